"""The state of a chain, its running statistics, and files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import stat
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import GraphInstance

from vecwrap.env.action_masks import load_saved_masks, saved_masks
from vecwrap.env.saved_form import refuse_form
from vecwrap.env.untrusted import open_regular, read_arrays
from vecwrap.errors import (
    CheckpointError,
    PlanError,
    SubEnvError,
    VecwrapError,
    printable,
    searched_paths,
    text_of,
)
from vecwrap.rows.batch import object_array
from vecwrap.rows.saved import fitting, same_data
from vecwrap.rows.statistics import RunningStatistics

_TEMPORARY_NAME = re.compile(r"\.[0-9a-f]{16}\.tmp")
_SECONDS_WITHOUT_LOCKS = (
    86_400  # after which a file counts as abandoned on a file system that has no locks
)


def write_atomically(
    path: Path, write: Callable[[Any], None], *, to_disk: bool = False, follow: bool = True
) -> None:
    """Write a file completely or not at all, whatever happens meanwhile; with its old mode.

    A link's target is written, or without ``follow`` the link is replaced.
    """
    if follow:
        path = Path(os.path.realpath(path))
    with written_atomically(path, write, to_disk=to_disk) as growing:
        with contextlib.suppress(OSError):  # there is none yet, or it is another user's
            growing.chmod(stat.S_IMODE(path.stat(follow_symlinks=follow).st_mode))
        growing.replace(path)


@contextlib.contextmanager
def written_atomically(
    path: Path, write: Callable[[Any], None], *, to_disk: bool = False
) -> Iterator[Path]:
    """Write a file's contents into a temporary file beside it, which exists as long as the context.

    The file is locked meanwhile, under its final name too, so that `remove_abandoned` can tell it
    from what a killed process has left.
    """
    if path.is_dir():
        raise IsADirectoryError(
            errno.EISDIR, "expected the name of a file, got a folder", str(path)
        )
    # short, however long the file's own name is
    growing = path.parent / f".{secrets.token_hex(8)}.tmp"
    held: int | None = None
    try:
        with growing.open("xb") as file:
            # keeps the lock while the file is closed: closing may be what reports a full disk
            held = os.dup(file.fileno())
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(held, fcntl.LOCK_EX)
            # another process removed it as abandoned before it was locked
            if not os.path.lexists(growing):
                with written_atomically(path, write, to_disk=to_disk) as another:
                    yield another
                return
            write(file)
            if to_disk:
                file.flush()
                os.fsync(file.fileno())
        yield growing
    except OSError as error:
        # the temporary file's name tells the user nothing
        if error.errno is not None and str(error.filename) in ("None", str(growing)):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        with contextlib.suppress(OSError):  # it is gone if it was renamed
            growing.unlink()
        if held is not None:
            os.close(held)


def remove_temporary_files(folder: Path) -> None:
    """Remove the temporary files that killed processes have left in a folder."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if _TEMPORARY_NAME.fullmatch(path.name):
                remove_abandoned(path)


def remove_abandoned(path: Path, unless: Callable[[], bool] = lambda: False) -> None:
    """Remove a file unless somebody is writing it, or unless that is so once nobody is."""
    with contextlib.suppress(OSError), open_regular(path, follow=False) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        except OSError:  # a file system without locks
            if time.time() - os.fstat(file.fileno()).st_mtime < _SECONDS_WITHOUT_LOCKS:
                return
        if not unless():
            path.unlink()


def create_exclusively(growing: Path, path: Path) -> Path:
    """Move a file to a path; raises a FileExistsError if that exists."""
    try:
        os.link(growing, path)  # unlike a rename, this replaces nothing
    except FileExistsError:
        raise
    except OSError:  # a file system without links; an empty file may be visible for a moment
        path.open("xb").close()
        try:
            growing.replace(path)
        except BaseException:
            path.unlink()
            raise
    return path


FORMAT = 2
_MAX_DEPTH = 100
_STRUCTURE = "structure"


def state_dict(env: Any) -> dict[str, Any]:
    call_state = env.call_state
    call_state.refuse_pending("state_dict")
    sub_envs, reason = env.core.sub_env_states()
    shown = None
    masks = None
    if sub_envs is not None:
        shown = call_state.results.last_observations.all()
        masks = saved_masks(call_state)
    return {
        **statistics_dict(env),
        "wrappers": [wrapper.wrapper_state() for wrapper in _wrappers(env)],
        "training": [wrapper.training for wrapper in _wrappers(env)],
        "sub_envs": sub_envs,
        "sub_envs_missing": reason,
        "shown": shown,
        "masks": masks,
        "build_seed": call_state.pending.seed,
    }


def save(env: Any, path: str | os.PathLike[str]) -> bool:
    """Write the state of an environment, as ``VecEnv.save`` says."""
    folder = str(Path(path).absolute().parent)
    try:
        # a folder that has disappeared is not recreated, maybe on another disk
        if folder not in env.saved_to:
            Path(folder).mkdir(parents=True, exist_ok=True)
        write_state(path, state_dict(env))
    except OSError as error:
        if folder not in env.saved_to:
            raise
        if env.saved_to[folder]:
            warnings.warn(
                f"save: {printable(str(path))} can no longer be written ({text_of(error)}); the "
                "run continues, and the last file is kept",
                RuntimeWarning,
                stacklevel=3,
            )
        env.saved_to = {**env.saved_to, folder: False}
        return False
    env.saved_to = {**env.saved_to, folder: True}
    return True


def statistics_dict(env: Any) -> dict[str, Any]:
    """Return only the running statistics, for ``share_statistics``.

    The backend may have failed or been closed.
    """
    return {
        "format": FORMAT,
        "hash": env.pipeline.hash if env.pipeline is not None else None,
        "chain": _chain_of(env),
        "statistics": [
            {name: statistics.state() for name, statistics in wrapper.wrapper_statistics().items()}
            for wrapper in _wrappers(env)
        ],
    }


def load_state_dict(env: Any, state: dict[str, Any]) -> None:
    """Restore a state of the same chain from ``state_dict``."""
    core = env.core
    call_state = env.call_state
    call_state.refuse_pending("load_state_dict")
    if not isinstance(state, dict):
        raise CheckpointError(
            f"expected what state_dict gave, got {type(state).__name__}; load reads a file"
        )
    if not same_data(state.get("format"), FORMAT):
        raise CheckpointError(
            f"expected a state of format {FORMAT}, got {state.get('format')!r}; save it again"
        )
    if "wrappers" not in state:
        raise CheckpointError(
            "expected the state of a chain, got its running statistics alone, which a run writes "
            "into its folder; use them with stats=, or load the folder: vecwrap.load"
        )
    expected = _chain_of(env)
    with _swallowed_by("load_state_dict"):
        chain = fitting(state["chain"], {}, "chain")
        for key in expected:
            if not same_data(chain.get(key), expected[key]):
                raise CheckpointError(_difference(key, chain.get(key), expected[key]))
        refuse_form(
            state,
            len(_wrappers(env)),
            env.num_envs,
            core.num_envs,
            env.single_observation_space,
            core.slots.observations.conform,
        )
    for wrapper, wrapper_state in zip(_wrappers(env), state["wrappers"], strict=True):
        with _swallowed_by(type(wrapper).__name__):
            wrapper.refuse_wrapper_state(fitting(wrapper_state, {}, "its state"))
    interrupts = core.rows.interrupts
    try:
        with _load_wrappers(_wrappers(env)) as load:
            with interrupts:
                interrupts.hold()  # load all wrappers, or none
                load(state["wrappers"], state["training"])
            core.load_sub_env_states(state["sub_envs"])
        # an environment to be reset after the load needs its own seed
        if state["sub_envs"] is not None:
            call_state.pending.seed = state["build_seed"]
            call_state.results.last_observations.load(state["shown"])
            load_saved_masks(call_state, state["masks"])
        elif state["build_seed"] is None:  # it was used, and schedules have started
            core.leave_seed_to_schedules()
    except (CheckpointError, PlanError):  # everything is as it was
        # otherwise the sub-environments could not be put back, but their wrappers could
        if core.rows.needs_reset.ended.all():
            core.load_sub_env_states(None)
        raise
    except BaseException:
        core.load_sub_env_states(None)  # a partially loaded environment must not be stepped
        raise


@contextlib.contextmanager
def _load_wrappers(
    wrappers: Sequence[Any],
) -> Iterator[Callable[[Sequence[dict[str, Any]], Sequence[bool]], None]]:
    """Yield the loader of all wrappers; restore the loaded wrappers if a later action fails."""
    before = [
        (wrapper, wrapper.wrapper_state(), wrapper.wrapper_statistics(), wrapper.training)
        for wrapper in wrappers
    ]
    loaded = 0

    def load(states: Sequence[dict[str, Any]], training: Sequence[bool]) -> None:
        nonlocal loaded
        for wrapper, state, trains in zip(wrappers, states, training, strict=True):
            loaded += 1
            with _swallowed_by(type(wrapper).__name__):
                wrapper.load_wrapper_state(state)
            wrapper.training = trains

    try:
        yield load
    except Exception:
        for wrapper, state, statistics, trains in before[:loaded]:
            with contextlib.suppress(Exception):  # the wrapper that refused may refuse again
                wrapper.load_wrapper_state(state)
                wrapper.training = trains
            # they were shared from another environment; share them again
            if wrapper.wrapper_statistics() != statistics:
                wrapper.use_statistics(statistics)
        raise


@contextlib.contextmanager
def _swallowed_by(name: str) -> Iterator[None]:
    """Turn errors about a state of the wrong form into one that names the wrapper."""
    try:
        yield
    except (VecwrapError, OSError) as error:
        if isinstance(error, SubEnvError):
            raise CheckpointError(f"{name}: {error}; save it again") from error
        raise
    except Exception as error:
        raise CheckpointError(
            f"{name}: expected a state as state_dict gave it, got one that cannot be loaded "
            f"({type(error).__name__}: {text_of(error)[:500]}); save it again"
        ) from error


def share_statistics(env: Any, source: Any) -> None:
    """Use the statistics of another chain, or start from saved ones.

    Wrappers are matched by class, outer first.
    """
    if isinstance(source, (str, os.PathLike)):
        where = os.fspath(source)
        offered = _saved_statistics(source)
    else:
        where = repr(source)
        chain = ((wrapper, wrapper.wrapper_statistics()) for wrapper in _wrappers(source))
        offered = [(type(wrapper).__name__, theirs) for wrapper, theirs in chain if theirs]
    matched = []
    for wrapper in _wrappers(env):
        own = wrapper.wrapper_statistics()
        if not own:
            continue
        name = type(wrapper).__name__
        position = next((k for k, (kind, _) in enumerate(offered) if kind == name), None)
        if position is None:
            raise CheckpointError(
                f"stats: {where} has no statistics of a wrapper {name}; expected one for each here"
            )
        _, theirs = offered.pop(position)
        if {key: value.mean.shape for key, value in own.items()} != {
            k: v.mean.shape for k, v in theirs.items()
        }:
            raise CheckpointError(
                f"stats: the statistics of {name} in {where} are of other observations: expected "
                f"{ {key: value.mean.shape for key, value in own.items()} }, got "
                f"{ {key: value.mean.shape for key, value in theirs.items()} }"
            )
        matched.append((wrapper, own, theirs))
    if left := [name for name, theirs in offered if set(theirs) - {"returns"}]:
        warnings.warn(
            f"stats: {printable(where)} normalises observations ({', '.join(left)}), and no "
            "wrapper here takes its statistics over, so what was trained there sees other "
            "numbers here; add that wrapper",
            RuntimeWarning,
            stacklevel=3,
        )
    for wrapper, own, theirs in matched:
        if not isinstance(source, (str, os.PathLike)):
            wrapper.use_statistics(theirs)
            continue
        # load in place, so that environments sharing these objects see it
        for key, statistics in own.items():
            statistics.load(theirs[key].state(), where)


def _saved_statistics(
    path: str | os.PathLike[str],
) -> list[tuple[str, dict[str, RunningStatistics]]]:
    state = read_state(path)
    saved = []
    with _swallowed_by(os.fspath(path)):
        for name, wrapper in zip(
            reversed(state["chain"]["wrappers"]), state["statistics"], strict=True
        ):
            statistics = {}
            for key, values in wrapper.items():
                statistics[fitting(key, "")] = RunningStatistics(np.shape(values["mean"]))
                statistics[key].load(values, f"stats: {os.fspath(path)}: {name}")
            if statistics:
                saved.append((fitting(name, ""), statistics))
    return saved


def _wrappers(env: Any) -> Sequence[Any]:
    return env.chain[:-1]  # type: ignore[no-any-return]


def _chain_of(env: Any) -> dict[str, Any]:
    """The properties that a saved chain and the one it is loaded into must share."""
    core = env.core
    names = None
    if env.pipeline is not None:
        names = list(env.pipeline.wrapper_names)
    return {
        "environment": core.env_id,
        "n": env.num_envs,
        "autoreset": core.autoreset.value,
        "wrappers": [type(wrapper).__name__ for wrapper in reversed(env.chain[:-1])],
        "pipeline": names,
        "observations": [
            _short_repr(wrapper.single_observation_space) for wrapper in reversed(env.chain)
        ],
    }


def _short_repr(space: Any) -> str:
    if isinstance(space, gymnasium.spaces.Box):
        return f"Box{space.shape} {space.dtype}"
    return str(space)


def _difference(key: str, saved: Any, here: Any) -> str:
    if isinstance(saved, list) and isinstance(here, list):
        saved = list(map(str, saved))
        for i, (one, other) in enumerate(zip(saved, here, strict=False)):
            if one != other and len(saved) == len(here):
                return f'{key}[{i}]: the state is of "{one}", this environment has "{other}"'
        return (
            f"{key}: the state is of {len(saved)} ({', '.join(saved)}), this environment has "
            f"{len(here)}"
        )
    return f"{key}: the state is of {saved!r}, this environment has {here!r}"


def write_state(path: str | os.PathLike[str], state: dict[str, Any]) -> None:
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    text = json.dumps(_split(state, arrays, "state"))
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
        state = _join(json.loads(arrays.pop(_STRUCTURE).tobytes().decode()), arrays)
    except FileNotFoundError:
        requested = f"Is the path right, relative to {Path.cwd()}?"
        raise CheckpointError(f"{os.fspath(path)}: no such file. {requested}") from None
    except IsADirectoryError:
        raise CheckpointError(f"{os.fspath(path)}: this is a folder; {remedy}") from None
    except Exception as error:  # many kinds, for a file of another kind, or a damaged one
        # the system's own words, not NumPy's
        if isinstance(error, OSError) and error.filename is not None:
            with searched_paths(CheckpointError):
                raise
        words = text_of(error)[:500]  # NumPy's advise to unpickle what the file holds
        reason = (
            "no archive of plain arrays"
            if "not a zip" in words or "allow_pickle" in words
            else words
        )
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


def refuse_unread(stats: Any, where: str) -> None:
    if isinstance(stats, (str, os.PathLike)):
        try:
            _saved_statistics(stats)
        except CheckpointError as error:
            raise CheckpointError(f"{where}: {error}") from None


def _split(value: Any, arrays: dict[str, np.ndarray[Any, Any]], path: str, depth: int = 0) -> Any:
    """Give JSON that names the arrays, and put those into ``arrays``."""
    depth += 1
    if depth > _MAX_DEPTH:
        raise CheckpointError(
            f"{path[:200]}: expected values nested at most {_MAX_DEPTH} deep, got deeper ones"
        )
    if type(value) is np.ndarray:
        if value.dtype == object:
            items = [
                _split(item, arrays, f"{path}[{i}]", depth) for i, item in enumerate(value.flat)
            ]
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
        return _split(np.asarray(value), arrays, path, depth) | {"scalar": True}
    if type(value) is bytes:
        return _split(np.frombuffer(value, dtype=np.uint8), arrays, path, depth) | {"bytes": True}
    if type(value) is dict:
        bad = [key for key in value if type(key) is not str]
        if bad:
            pairs = [
                [_split(key, arrays, path, depth), _split(item, arrays, f"{path}[{key!r}]", depth)]
                for key, item in value.items()
            ]
            return {"pairs": pairs}
        return {
            "dict": {
                key: _split(item, arrays, f"{path}[{key!r}]", depth) for key, item in value.items()
            }
        }
    if type(value) in (list, deque, tuple, GraphInstance):
        items = [_split(item, arrays, f"{path}[{i}]", depth) for i, item in enumerate(value)]
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


def _join(value: Any, arrays: dict[str, np.ndarray[Any, Any]], depth: int = 0) -> Any:
    """Undo ``_split``, with each array used once, so that a small file stays a small state."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"nested more than {_MAX_DEPTH} deep")

    def join(inner: Any) -> Any:
        return _join(inner, arrays, depth + 1)

    if isinstance(value, list):
        return [join(item) for item in value]
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
        return object_array(join(value["objects"])).reshape(value["shape"])
    if "deque" in value:
        items = join(value["deque"])
        longest = value["maxlen"]
        if longest is not None and len(items) > longest:
            raise ValueError(f"a deque of at most {longest} with {len(items)} entries")
        return deque(items, longest)
    if "graph" in value:
        return GraphInstance(*join(value["graph"]))
    if "tuple" in value:
        return tuple(join(value["tuple"]))
    if "pairs" in value:
        return {join(key): join(item) for key, item in value["pairs"]}
    return {key: join(item) for key, item in value["dict"].items()}
