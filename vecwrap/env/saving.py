"""The state of a chain, its running statistics, and files that are written completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import struct
import warnings
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.spaces import GraphInstance

from vecwrap.errors import CheckpointError, VecwrapError, paths_looked_at
from vecwrap.rows.batch import copy
from vecwrap.rows.statistics import RunningStatistics

if TYPE_CHECKING:
    from vecwrap.env.vec_env import VecEnv
    from vecwrap.env.wrapper import VecEnvWrapper


def write_whole(path: Path, write: Callable[[Any], None], *, to_disk: bool = False) -> None:
    """Write a file completely or not at all, whatever happens meanwhile."""
    with written(path, write, to_disk=to_disk) as growing:
        growing.replace(path)


@contextlib.contextmanager
def written(path: Path, write: Callable[[Any], None], *, to_disk: bool = False) -> Iterator[Path]:
    """Write a file's contents into a temporary file beside it, which exists as long as the context."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "expected the name of a file, got a folder", str(path))
    growing = path.parent / f".{secrets.token_hex(8)}.tmp"  # short, however long the file's own name is
    try:
        with growing.open("xb") as file:
            write(file)
            if to_disk:
                file.flush()
                os.fsync(file.fileno())
        yield growing
    except OSError as error:
        if error.errno is not None and str(error.filename) in (
            "None",
            str(growing),
        ):  # whose name tells nobody anything
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        with contextlib.suppress(OSError):  # it is gone if it was renamed
            growing.unlink()


FORMAT = 1
_STRUCTURE = "structure"
# Exceptions of NumPy and zipfile for a file of another kind, or a damaged one.
_UNREADABLE = (
    *(ValueError, TypeError, KeyError, OSError, EOFError, NotImplementedError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)


def state_dict(env: VecEnv) -> dict[str, Any]:
    """Return the state of every layer and, if they support it, of the sub-environments."""
    root = env._root
    root._refuse_pending("state_dict")
    sub_envs, reason = root._sub_env_states()
    return {
        **statistics_dict(env),
        "layers": [layer.layer_state() for layer in _wrappers(env)],
        "training": [layer.training for layer in _wrappers(env)],
        "sub_envs": sub_envs,
        "sub_envs_missing": reason,
        "shown": env._all_observations() if sub_envs is not None else None,
        "build_seed": root._build_seed,
    }


def statistics_dict(env: VecEnv) -> dict[str, Any]:
    """Return only the running statistics, for ``share_statistics``; the backend may have failed or been closed."""
    return {
        "format": FORMAT,
        "hash": env.pipeline.hash if env.pipeline is not None else None,
        "chain": _chain_of(env),
        "statistics": [
            {name: statistics.state() for name, statistics in layer.layer_statistics().items()}
            for layer in _wrappers(env)
        ],
    }


def load_state_dict(env: VecEnv, state: dict[str, Any]) -> None:
    """Restore a state of the same chain from ``state_dict``."""
    root = env._root
    root._refuse_pending("load_state_dict")
    if not isinstance(state, dict):
        raise CheckpointError(f"expected what state_dict gave, got {type(state).__name__}; load reads a file")
    if state.get("format") != FORMAT:
        raise CheckpointError(f"expected a state of format {FORMAT}, got {state.get('format')!r}; save it anew")
    if "layers" not in state:
        raise CheckpointError(
            "expected the state of a chain, got its running statistics alone, which a run writes into its folder; use "
            "them with stats=, or load the folder: vecwrap.load"
        )
    expected = _chain_of(env)
    for key in expected:
        if state["chain"].get(key) != expected[key]:
            raise CheckpointError(_difference(key, state["chain"].get(key), expected[key]))
    for layer, layer_state in zip(_wrappers(env), state["layers"], strict=True):
        with _taken_in_by(layer):
            layer._refuse_state(layer_state)
    interrupts = root._interrupts
    try:
        with interrupts:
            interrupts.hold()  # load all layers, or none
            _load_layers(_wrappers(env), state["layers"], state["training"])
        root._load_sub_env_states(state["sub_envs"])
        if state["sub_envs"] is not None:  # an environment to be reset after the load needs its own seed
            root._build_seed = state.get("build_seed")
            env._shown = copy(state["shown"])
        elif state.get("build_seed") is None:  # it was used, and schedules have started
            root._leave_seed_to_schedules()
    except BaseException:
        root._load_sub_env_states(None)  # a partially loaded environment must not be stepped
        raise


def _load_layers(layers: Sequence[VecEnvWrapper], states: Sequence[dict[str, Any]], training: Sequence[bool]) -> None:
    """Load them all; if one refuses, restore those before it."""
    before = [(layer, layer.layer_state(), layer.layer_statistics(), layer.training) for layer in layers]
    loaded = 0
    try:
        for layer, state, trains in zip(layers, states, training, strict=True):
            loaded += 1
            with _taken_in_by(layer):
                layer.load_layer_state(state)
            layer.training = bool(trains)
    except Exception:
        for layer, state, statistics, trains in before[:loaded]:
            with contextlib.suppress(Exception):  # the layer that refused may refuse again
                layer.load_layer_state(state)
                layer.training = trains
            if layer.layer_statistics() != statistics:  # they were shared from another environment; share them again
                layer.use_statistics(statistics)
        raise


@contextlib.contextmanager
def _taken_in_by(layer: VecEnvWrapper) -> Iterator[None]:
    """Turn errors about a state of the wrong form into one that names the layer."""
    try:
        yield
    except VecwrapError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{type(layer).__name__}: expected the state of such a layer as state_dict gave it, got one that it cannot "
            f"take in ({type(error).__name__}: {error}); save it anew"
        ) from error


def share_statistics(env: VecEnv, source: VecEnv | str | os.PathLike[str]) -> None:
    """Let every normalising layer of a chain use the statistics of another chain, or start from those of a saved one.

    Layers are matched by class, from the outermost in; layers without statistics may differ. If the source normalises
    observations and no layer here does, there is a warning, because an agent trained there sees other numbers here.
    """
    if isinstance(source, (str, os.PathLike)):
        where, offered = os.fspath(source), _saved_statistics(source)
    else:
        where, chain = repr(source), ((layer, layer.layer_statistics()) for layer in _wrappers(source))
        offered = [(type(layer).__name__, theirs) for layer, theirs in chain if theirs]
    matched = []
    for layer in _wrappers(env):
        own = layer.layer_statistics()
        if not own:
            continue
        name = type(layer).__name__
        position = next((k for k, (kind, _) in enumerate(offered) if kind == name), None)
        if position is None:
            raise CheckpointError(f"stats: {where} has no statistics of a layer {name}; expected one for each here")
        _, theirs = offered.pop(position)
        if {key: value.mean.shape for key, value in own.items()} != {k: v.mean.shape for k, v in theirs.items()}:
            raise CheckpointError(
                f"stats: the statistics of {name} in {where} are of other observations: expected "
                f"{ {key: value.mean.shape for key, value in own.items()} }, got "
                f"{ {key: value.mean.shape for key, value in theirs.items()} }"
            )
        matched.append((layer, own, theirs))
    if left := [name for name, theirs in offered if set(theirs) - {"returns"}]:
        warnings.warn(
            f"stats: {where} normalises observations ({', '.join(left)}), and no layer here takes its statistics over, "
            "so what was trained there sees other numbers here; add that layer",
            RuntimeWarning,
            stacklevel=3,
        )
    for layer, own, theirs in matched:
        if not isinstance(source, (str, os.PathLike)):
            layer.use_statistics(theirs)
            continue
        for key, statistics in own.items():  # load in place, so that environments sharing these objects see it
            statistics.load(theirs[key].state(), where)


def _saved_statistics(path: str | os.PathLike[str]) -> list[tuple[str, dict[str, RunningStatistics]]]:
    state = read_state(path)
    saved = []
    for name, layer in zip(reversed(state["chain"]["layers"]), state["statistics"], strict=True):
        statistics = {}
        for key, values in layer.items():
            statistics[key] = RunningStatistics(np.shape(values["mean"]))
            statistics[key].load(values, f"stats: {os.fspath(path)}: {name}")
        if statistics:
            saved.append((name, statistics))
    return saved


def _wrappers(env: VecEnv) -> tuple[VecEnvWrapper, ...]:
    return env.layers[:-1]  # type: ignore[return-value]  # all but the backend


def _chain_of(env: VecEnv) -> dict[str, Any]:
    """The properties that a saved chain and the one it is loaded into must share."""
    root = env._root
    pipeline = env.pipeline
    return {
        "environment": root.env_id,
        "n": env.num_envs,
        "autoreset": root.autoreset.value,
        "layers": [type(layer).__name__ for layer in reversed(env.layers[:-1])],
        "pipeline": list(pipeline.layer_names) if pipeline is not None else None,
        "observations": [_in_short(layer.single_observation_space) for layer in reversed(env.layers)],
    }


def _in_short(space: Any) -> str:
    if isinstance(space, gymnasium.spaces.Box):
        return f"Box{space.shape} {space.dtype}"
    return str(space)


def _difference(key: str, saved: Any, here: Any) -> str:
    if isinstance(saved, list) and isinstance(here, list):
        for i, (one, other) in enumerate(zip(saved, here, strict=False)):
            if one != other and len(saved) == len(here):
                return f'{key}[{i}]: the state is of "{one}", this environment has "{other}"'
        return f"{key}: the state is of {len(saved)} ({', '.join(saved)}), this environment has {len(here)}"
    return f"{key}: the state is of {saved!r}, this environment has {here!r}"


def write_state(path: str | os.PathLike[str], state: dict[str, Any]) -> None:
    """Write a state as one ``.npz`` file, atomically."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    text = json.dumps(_split(state, arrays, "state"))
    members = {_STRUCTURE: np.frombuffer(text.encode(), dtype=np.uint8), **arrays}
    write_whole(Path(path), lambda file: np.savez(file, **members), to_disk=True)  # type: ignore[arg-type]


def read_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a file written by ``write_state``; nothing in it is executed."""
    remedy = "expected the file that save wrote; of a run, its stats.npz"
    try:
        # Opened here, because NumPy does not close a file that it cannot read.
        with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            structure = json.loads(file[_STRUCTURE].tobytes().decode())
            arrays = {name: file[name] for name in file.files if name != _STRUCTURE}
            state = _join(structure, arrays)
    except FileNotFoundError:
        asked = f"Is the path right, relative to {Path.cwd()}?"
        raise CheckpointError(f"{os.fspath(path)}: no such file. {asked}") from None
    except IsADirectoryError:
        raise CheckpointError(f"{os.fspath(path)}: this is a folder; {remedy}") from None
    except _UNREADABLE as error:
        if isinstance(error, OSError) and error.filename is not None:  # the system's own words, not NumPy's
            with paths_looked_at(CheckpointError):
                raise
        # NumPy takes any unknown format for pickled data, and suggests allowing that.
        reason = "no archive of plain arrays" if "pickle" in str(error) else error
        raise CheckpointError(f"{os.fspath(path)}: not a state that vecwrap saved ({reason}); {remedy}") from None
    if not isinstance(state, dict):
        raise CheckpointError(f"{os.fspath(path)}: not a state that vecwrap saved; {remedy}")
    return state


def refuse_unread(stats: Any, where: str) -> None:
    """Refuse statistics that cannot be read, before anything is started for them."""
    if isinstance(stats, (str, os.PathLike)):
        try:
            read_state(stats)
        except CheckpointError as error:
            raise CheckpointError(f"{where}: {error}") from None


def _split(value: Any, arrays: dict[str, np.ndarray[Any, Any]], path: str) -> Any:
    """Give JSON that names the arrays, and put those into ``arrays``."""
    if type(value) is np.ndarray:
        if value.dtype == object:
            items = [_split(item, arrays, f"{path}[{i}]") for i, item in enumerate(value.flat)]
            return {"objects": items, "shape": list(value.shape)}
        if value.dtype.hasobject:
            raise CheckpointError(
                f"{path}: expected arrays of numbers, text or objects, got an array of dtype {value.dtype}, which "
                "would have to be pickled"
            )
        name = f"array_{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    if isinstance(value, np.generic):
        return _split(np.asarray(value), arrays, path) | {"scalar": True}
    if type(value) is bytes:
        return _split(np.frombuffer(value, dtype=np.uint8), arrays, path) | {"bytes": True}
    if type(value) is dict:
        bad = [key for key in value if type(key) is not str]
        if bad:
            pairs = [
                [_split(key, arrays, path), _split(item, arrays, f"{path}[{key!r}]")] for key, item in value.items()
            ]
            return {"pairs": pairs}
        return {"dict": {key: _split(item, arrays, f"{path}[{key!r}]") for key, item in value.items()}}
    if type(value) in (list, deque, tuple, GraphInstance):
        items = [_split(item, arrays, f"{path}[{i}]") for i, item in enumerate(value)]
        if isinstance(value, deque):
            return {"deque": items, "maxlen": value.maxlen}
        if isinstance(value, GraphInstance):
            return {"graph": items}
        return {"tuple": items} if isinstance(value, tuple) else items
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise CheckpointError(
        f"{path}: expected arrays, numbers, text, lists and dicts, got a {type(value).__name__}, which no file gives "
        "back as it is"
    )


def _join(value: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, list):
        return [_join(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        array = arrays[value["array"]]
        if value.get("scalar"):
            return array[()]
        return array.tobytes() if value.get("bytes") else array
    if "objects" in value:
        out = np.empty(len(value["objects"]), dtype=object)
        for i, item in enumerate(value["objects"]):
            out[i] = _join(item, arrays)
        return out.reshape(value.get("shape", -1))
    if "deque" in value:
        return deque(_join(value["deque"], arrays), value["maxlen"])
    if "graph" in value:
        return GraphInstance(*_join(value["graph"], arrays))
    if "tuple" in value:
        return tuple(_join(item, arrays) for item in value["tuple"])
    if "pairs" in value:
        return {_join(key, arrays): _join(item, arrays) for key, item in value["pairs"]}
    return {key: _join(item, arrays) for key, item in value["dict"].items()}
