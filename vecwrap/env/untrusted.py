"""Untrusted files: their sizes are checked first, and none of their content is executed."""

from __future__ import annotations

import errno
import math
import os
import stat
import zipfile
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from vecwrap.errors import CheckpointError, text_of

MAX_JSON_BYTES = 16_000_000
_Content = TypeVar("_Content")


def open_regular(path: str | os.PathLike[str], *, follow: bool = True) -> BinaryIO:
    """Open a regular file for reading; raise OSError for a pipe, a device or the like.

    Reading from anything other than a regular file could block or never end.

    Args:
        path: of the file.
        follow: whether the path may be a link; one that the user named may, one found in a folder
            leads anywhere.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    if not follow:
        flags |= os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP and not follow:
            raise OSError(errno.ELOOP, "a link, which is not followed", os.fspath(path)) from None
        raise
    try:
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(kind):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: str | os.PathLike[str], most: int, *, follow: bool = True) -> bytes:
    """Read a file of at most ``most`` bytes; OSError if it is larger, before it is read."""
    with open_regular(path, follow=follow) as file:
        size = os.fstat(file.fileno()).st_size
        data = b""
        if size <= most:
            data = file.read(most + 1)
    if max(size, len(data)) > most:
        raise OSError(errno.EFBIG, f"larger than {most:,} bytes", os.fspath(path))
    return data


def read_json(path: Path, kind: type[_Content], expected: str) -> _Content:
    """Read a file of JSON in a stranger's folder as a value of this type; links are not followed.

    Args:
        path: of the file.
        kind: the type.
        expected: what the file should be, for the message.

    Raises:
        FileNotFoundError: there is none.
        CheckpointError: it is too large, nested too deep, or something else.
    """
    import msgspec

    try:
        return msgspec.json.decode(read_bytes(path, MAX_JSON_BYTES, follow=False), type=kind)
    except FileNotFoundError:
        raise
    except Exception as error:  # many kinds: of the system, of JSON, of what the type checks
        why = text_of(error)
        if isinstance(error, OSError) and error.strerror:
            why = error.strerror
        raise CheckpointError(
            f"{path}: expected {expected}, got another one ({why[:500]}); put the right one back, "
            "or remove it"
        ) from None


def read_arrays(
    path: str | os.PathLike[str], *, follow: bool = True
) -> dict[str, np.ndarray[Any, Any]]:
    """Read all arrays of a file of arrays, with memory and time bounded by the file's size.

    ValueError if the arrays are together larger than the file: compressed, or several from the same
    bytes of it.
    """
    with open_regular(path, follow=follow) as stream, zipfile.ZipFile(stream) as archive:
        members = archive.infolist()
        size = os.fstat(stream.fileno()).st_size
        if any(info.compress_type != zipfile.ZIP_STORED for info in members):
            raise ValueError("its arrays are compressed")
        if sum(info.file_size for info in members) > size:
            raise ValueError("its arrays overlap")
        if len({info.filename for info in members}) < len(members):
            raise ValueError("two of its arrays have one name")
        return {info.filename.removesuffix(".npy"): _array(archive, info) for info in members}


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray[Any, Any]:
    with archive.open(info) as member:
        _refuse_size(member, info.file_size)
    with archive.open(info) as member:
        array: np.ndarray[Any, Any] = np.lib.format.read_array(member, allow_pickle=False)
        return array


def _refuse_size(member: Any, size: int) -> None:
    """Refuse an array whose size differs from its header, before memory is allocated."""
    version = np.lib.format.read_magic(member)
    read_header = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read_header(member)
    if not dtype.hasobject and math.prod(shape) * dtype.itemsize != size - member.tell():
        raise ValueError(f"an array of shape {str(shape)[:100]} has another number of bytes")
