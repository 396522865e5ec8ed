"""Reads pipeline files, and those that they extend."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vecwrap.document import Document, read_text
from vecwrap.json_file import read_json
from vecwrap.source import Source, fail
from vecwrap.values import shown
from vecwrap.yaml_file import read_yaml

__all__ = ["SUFFIXES", "is_file", "is_folder", "lineage", "names_file", "read_file"]

SUFFIXES = (".yaml", ".yml", ".json")
MAX_FILES = 30

# Keys of a file that are not part of the pipeline: the file it extends, and where an editor finds the schema.
_EXTENDS = "extends"
_SCHEMA = "$schema"


def read_file(path: Path) -> tuple[Any, Source]:
    """Read a file: JSON if it is named so, else YAML.

    Returns:
        Its contents, and where they were written; paths in it are relative to its folder.

    Raises:
        SpecError: with file and line.
    """
    text, name = read_text(path), str(path)
    document: Document = read_json(text, name) if path.suffix == ".json" else read_yaml(text, name)
    return document.value, Source.of_file(document, name, path.parent)


def lineage(data: Mapping[Any, Any], source: Source) -> list[tuple[Mapping[Any, Any], Source]]:
    """Follow ``extends`` from one file to the next.

    Args:
        data: the contents of a file.
        source: where they were written.

    Returns:
        The contents of each file, without ``extends``, and their source; the outermost base first, ``data`` last.

    Raises:
        SpecError: a file that does not exist, cannot be read or is not a mapping, or files that extend each other in a
            circle.
    """
    _refuse_no_mapping(data, source, "env: CartPole-v1")
    found = [(_own(data), source)]
    seen = [Path(source.file).resolve()] if source.file and is_file(Path(source.file)) else []
    names = [source.file or "pipeline"]
    while (base := data.get(_EXTENDS)) is not None:
        at = source.at(_EXTENDS)
        if not isinstance(base, str) or not base:
            fail(at, f"expected the path of a pipeline file, got {shown(base)}")
        path = (at.directory or Path()) / base
        names.append(str(path))
        if is_folder(path):
            fail(at, f'expected the path of a pipeline file, got the folder "{path}"; name the file in it')
        if not is_file(path):  # a pipe is refused, too: it could block a reader
            fail(at, f"there is no file {path}")
        if path.resolve() in seen:
            fail(at, f"the files extend each other in a circle: {' > '.join(names)}")
        if len(found) == MAX_FILES:
            fail(at, f"expected at most {MAX_FILES} files, each of which extends the next")
        seen.append(path.resolve())
        data, source = read_file(path)
        _refuse_no_mapping(data, source, "n: 8")
        found.append((_own(data), source))
    return found[::-1]


def _refuse_no_mapping(data: Any, source: Source, such_as: str) -> None:
    if not isinstance(data, Mapping):
        got = "an empty file" if data is None and source.file else shown(data)
        fail(source, f'expected the keys of a pipeline, such as "{such_as}", got {got}')


def _own(data: Mapping[Any, Any]) -> Mapping[Any, Any]:
    return {key: value for key, value in data.items() if key not in (_EXTENDS, _SCHEMA)}


def names_file(text: str) -> bool:
    """Whether a text is a pipeline file's name, by its suffix; a pipeline in one line may end in one, too.

    >>> names_file("runs/pong.yaml"), names_file("CartPole-v1 n=1 | monitor:dir=runs/a.json")
    (True, False)
    """
    return text.endswith(SUFFIXES) and not re.search(r"\||\s[\w.]+=", text)


def is_file(path: Path) -> bool:
    """Whether there is a file of this name; invalid names do not raise."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long, or with a NUL in it
        return False


def is_folder(path: Path) -> bool:
    """Whether there is a folder of this name; invalid names do not raise."""
    try:
        return path.is_dir()
    except (OSError, ValueError):  # as above
        return False
