"""The state of a chain, and its running statistics."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from vecwrap.env.action_masks import loaded_masks, saved_masks
from vecwrap.env.saved_form import refuse_form
from vecwrap.env.state_file import read_state, write_state
from vecwrap.errors import CheckpointError, PlanError, SubEnvError, VecwrapError, printable, text_of
from vecwrap.rows.saved import fitting, same_data
from vecwrap.rows.statistics import RunningStatistics

FORMAT = 2


def state_dict(env: Any) -> dict[str, Any]:
    call_state = env.call_state
    call_state.refuse_pending("state_dict")
    sub_envs, reason = env.core.sub_env_states()
    last_observations = None
    masks = None
    if sub_envs is not None:
        last_observations = call_state.results.last_observations.all()
        masks = saved_masks(call_state.results.reported_masks)
    return {
        **statistics_dict(env),
        "wrappers": [wrapper.wrapper_state() for wrapper in _wrappers(env)],
        "training": [wrapper.training for wrapper in _wrappers(env)],
        "sub_envs": sub_envs,
        "sub_envs_missing": reason,
        "shown": last_observations,
        "masks": masks,
        "build_seed": call_state.pending.seed,
    }


def save(env: Any, path: str | os.PathLike[str]) -> bool:
    """Write the state of an environment, as ``VecEnv.save`` says."""
    folder = str(Path(path).absolute().parent)
    try:
        if folder not in env.saved_to:
            _refuse_missing(folder, path)
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


def _refuse_missing(folder: str, path: str | os.PathLike[str]) -> None:
    """Refuse to save into a folder that does not exist: the path may be mistyped."""
    where = f"save: {printable(str(path))}"
    if not os.path.lexists(folder):
        raise FileNotFoundError(
            f"{where}: expected a folder that exists, got {printable(folder)}. Is the path right, "
            f"relative to {Path.cwd()}? If it is, create the folder first, with "
            "Path(...).mkdir(parents=True)"
        )
    if not Path(folder).is_dir():
        raise NotADirectoryError(f"{where}: expected a folder, got the file {printable(folder)}")


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
    with _as_checkpoint_error("load_state_dict"):
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
        with _as_checkpoint_error(type(wrapper).__name__):
            wrapper.refuse_wrapper_state(fitting(wrapper_state, {}, "its state"))
    try:
        with _load_wrappers(_wrappers(env)) as load:
            with core.rows.interrupts as interrupts:
                interrupts.hold()  # load all wrappers, or none
                load(state["wrappers"], state["training"])
            core.load_sub_env_states(state["sub_envs"])
        # an environment to be reset after the load needs its own seed
        if state["sub_envs"] is not None:
            call_state.pending.seed = state["build_seed"]
            call_state.results.last_observations.load(state["shown"])
            call_state.results.reported_masks = loaded_masks(state["masks"])
        elif state["build_seed"] is None:  # it was used, and schedules have started
            core.leave_seed_to_schedules()
    except (CheckpointError, PlanError):
        # everything is as it was, or only the sub-environments could not be restored
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
            with _as_checkpoint_error(type(wrapper).__name__):
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
def _as_checkpoint_error(name: str) -> Iterator[None]:
    """Turn an error about a state of the wrong form into a CheckpointError of this name."""
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
        offered = [
            (type(wrapper).__name__, statistics)
            for wrapper in _wrappers(source)
            if (statistics := wrapper.wrapper_statistics())
        ]
    matched = []
    for wrapper in _wrappers(env):
        replaced = wrapper.wrapper_statistics()
        if not replaced:
            continue
        name = type(wrapper).__name__
        position = next((k for k, (other, _) in enumerate(offered) if other == name), None)
        if position is None:
            raise CheckpointError(
                f"stats: {where} has no statistics of a wrapper {name}; expected one for each here"
            )
        _, statistics = offered.pop(position)
        shapes = {key: value.mean.shape for key, value in replaced.items()}
        offered_shapes = {key: value.mean.shape for key, value in statistics.items()}
        if shapes != offered_shapes:
            raise CheckpointError(
                f"stats: the statistics of {name} in {where} are of other observations: expected "
                f"{shapes}, got {offered_shapes}"
            )
        matched.append((wrapper, replaced, statistics))
    if unused := [name for name, statistics in offered if set(statistics) - {"returns"}]:
        warnings.warn(
            f"stats: {printable(where)} normalises observations ({', '.join(unused)}), and no "
            "wrapper here takes its statistics over, so what was trained there sees other "
            "numbers here; add that wrapper",
            RuntimeWarning,
            stacklevel=3,
        )
    for wrapper, replaced, statistics in matched:
        if not isinstance(source, (str, os.PathLike)):
            wrapper.use_statistics(statistics)
            continue
        # load in place, so that environments sharing these objects see it
        for key, value in replaced.items():
            value.load(statistics[key].state(), where)


def _saved_statistics(
    path: str | os.PathLike[str],
) -> list[tuple[str, dict[str, RunningStatistics]]]:
    state = read_state(path)
    saved = []
    with _as_checkpoint_error(os.fspath(path)):
        names = reversed(state["chain"]["wrappers"])
        for name, states in zip(names, state["statistics"], strict=True):
            statistics = {}
            for key, values in states.items():
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
        "wrappers": [type(wrapper).__name__ for wrapper in reversed(_wrappers(env))],
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


def refuse_unread(stats: Any, where: str) -> None:
    if isinstance(stats, (str, os.PathLike)):
        try:
            _saved_statistics(stats)
        except CheckpointError as error:
            raise CheckpointError(f"{where}: {error}") from None
