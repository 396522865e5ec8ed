"""Files of states: plain data in a ``.npz`` file, of which nothing is executed."""

from __future__ import annotations

import json
import os
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import GraphInstance

from vecwrap.env.atomic_files import write_atomically
from vecwrap.env.untrusted import read_arrays
from vecwrap.errors import CheckpointError, searched_paths, text_of
from vecwrap.rows.batch import object_array

_MAX_DEPTH = 100
_STRUCTURE = "structure"


def write_state(path: str | os.PathLike[str], state: dict[str, Any]) -> None:
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    text = json.dumps(_encode(state, arrays, "state"))
    members = {_STRUCTURE: np.frombuffer(text.encode(), dtype=np.uint8), **arrays}
    write_atomically(
        Path(path),
        lambda file: np.savez(file, **members),  # type: ignore[arg-type]
        to_disk=True,
    )


def read_state(path: str | os.PathLike[str], *, follow: bool = True) -> dict[str, Any]:
    """Read a file written by ``write_state``; nothing in it is executed.

    With ``follow``, the path may be a link.
    """
    remedy = "expected the file that save wrote; of a run, its stats.npz"
    try:
        arrays = read_arrays(path, follow=follow)
        state = _decode(json.loads(arrays.pop(_STRUCTURE).tobytes().decode()), arrays)
    except FileNotFoundError:
        raise CheckpointError(
            f"{os.fspath(path)}: no such file. Is the path right, relative to {Path.cwd()}?"
        ) from None
    except IsADirectoryError:
        raise CheckpointError(f"{os.fspath(path)}: this is a folder; {remedy}") from None
    except Exception as error:  # many kinds, for a file of another kind, or a damaged one
        # the message of the system, not of NumPy
        if isinstance(error, OSError) and error.filename is not None:
            with searched_paths(CheckpointError):
                raise
        reason = text_of(error)[:500]
        if "not a zip" in reason or "allow_pickle" in reason:  # NumPy advises to unpickle the file
            reason = "no archive of plain arrays"
        raise CheckpointError(
            f"{os.fspath(path)}: not a state that vecwrap saved ({reason}); {remedy}"
        ) from None
    if not isinstance(state, dict):
        raise CheckpointError(f"{os.fspath(path)}: not a state that vecwrap saved; {remedy}")
    if not isinstance(state.get("hash"), (str, type(None))):
        raise CheckpointError(
            f"{os.fspath(path)}: not a state that vecwrap saved (its hash is not text); {remedy}"
        )
    return state


def _encode(value: Any, arrays: dict[str, np.ndarray[Any, Any]], path: str, depth: int = 0) -> Any:
    """Return JSON that names the arrays, and put those into ``arrays``."""
    if depth >= _MAX_DEPTH:
        raise CheckpointError(
            f"{path[:200]}: expected values nested at most {_MAX_DEPTH} deep, got deeper ones"
        )

    def encode(inner: Any, place: str = "") -> Any:
        return _encode(inner, arrays, path + place, depth + 1)

    if type(value) is np.ndarray:
        if value.dtype == object:
            items = [encode(item, f"[{i}]") for i, item in enumerate(value.flat)]
            return {"objects": items, "shape": list(value.shape)}
        if value.dtype.hasobject:
            raise CheckpointError(
                f"{path}: expected arrays of numbers, text or objects, got an array of dtype "
                f"{value.dtype}, which would have to be pickled"
            )
        name = f"array_{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    if isinstance(value, np.generic):
        return encode(np.asarray(value)) | {"scalar": True}
    if type(value) is bytes:
        return encode(np.frombuffer(value, dtype=np.uint8)) | {"bytes": True}
    if type(value) is dict:
        if any(type(key) is not str for key in value):
            pairs = [[encode(key), encode(item, f"[{key!r}]")] for key, item in value.items()]
            return {"pairs": pairs}
        return {"dict": {key: encode(item, f"[{key!r}]") for key, item in value.items()}}
    if type(value) in (list, deque, tuple, GraphInstance):
        items = [encode(item, f"[{i}]") for i, item in enumerate(value)]
        if isinstance(value, deque):
            return {"deque": items, "maxlen": value.maxlen}
        if isinstance(value, GraphInstance):
            return {"graph": items}
        if isinstance(value, tuple):
            return {"tuple": items}
        return items
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise CheckpointError(
        f"{path}: expected arrays, numbers, text, lists and dicts, got a {type(value).__name__}, "
        "which no file gives back as it is"
    )


def _decode(value: Any, arrays: dict[str, np.ndarray[Any, Any]], depth: int = 0) -> Any:
    """Undo ``_encode``, with each array used once, so that a small file stays a small state."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"nested more than {_MAX_DEPTH} deep")

    def decode(inner: Any) -> Any:
        return _decode(inner, arrays, depth + 1)

    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        array = arrays.pop(value["array"])
        if value.get("scalar"):
            return array.reshape(())[()]
        if value.get("bytes"):
            return array.tobytes()
        return array
    if "objects" in value:
        return object_array(decode(value["objects"])).reshape(value["shape"])
    if "deque" in value:
        items = decode(value["deque"])
        maxlen = value["maxlen"]
        if maxlen is not None and len(items) > maxlen:
            raise ValueError(f"a deque of at most {maxlen} with {len(items)} entries")
        return deque(items, maxlen)
    if "graph" in value:
        return GraphInstance(*decode(value["graph"]))
    if "tuple" in value:
        return tuple(decode(value["tuple"]))
    if "pairs" in value:
        return {decode(key): decode(item) for key, item in value["pairs"]}
    return {key: decode(item) for key, item in value["dict"].items()}
