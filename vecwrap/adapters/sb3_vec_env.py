"""What ``to_sb3`` returns; importing it imports Stable-Baselines3."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, NoReturn

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.monitor import Monitor as Sb3Monitor
from stable_baselines3.common.vec_env import VecEnv as Sb3VecEnv

from vecwrap.adapters.sb3_engine import SteppedVecEnv
from vecwrap.env.call_results import FiveTuple
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import ArgumentError, ResetNeededError, SubEnvError
from vecwrap.rows import batch as batches
from vecwrap.rows.compare import assert_same
from vecwrap.rows.infos import row_of
from vecwrap.rows.step_result import BoolArray, Infos, StepResult
from vecwrap.sources.masks import METHOD
from vecwrap.wrappers.clip_action import ClipAction
from vecwrap.wrappers.monitor import Monitor

Array = np.ndarray[Any, Any]
Indices = Any  # SB3's: None, an int, or several

# Known even if sub-environments cannot be reached one by one.
_OF_ALL = ("render_mode", "spec", "metadata")


# SB3 is not read by mypy, for it would read torch.
class AdaptedVecEnv(Sb3VecEnv):  # type: ignore[misc]
    """The four-tuple interface around an environment in same-step mode; made by ``to_sb3``."""

    def __init__(self, env: VecEnv) -> None:
        self.vecwrap_env = env
        env.core.rows.read_observations()
        self._monitored = any(
            isinstance(wrapper, Monitor) and wrapper.column == "episode" for wrapper in env.chain
        )
        self._masks = env.call_state.action_masks
        self._games = bool(env.possible_agents)
        # Observations and infos, which masks are found in.
        self._latest: tuple[Any, Infos] = (None, {})
        # Whose agents are not in their games, and what was shown.
        self.resting: tuple[BoolArray, Any] | None = None
        # SB3's VecNormalize writes into the spaces of what it wraps.
        super().__init__(
            env.num_envs, deepcopy(env.single_observation_space), deepcopy(_action_space(env))
        )
        self.metadata = {
            key: value for key, value in env.metadata.items() if key != "autoreset_mode"
        }

    @property
    def spec(self) -> Any:
        return self.vecwrap_env.spec

    # -- rows --------------------------------------------------------------------------------------

    def reset(self) -> Any:
        """Start an episode in every sub-environment, as ``seed`` and ``set_options`` request."""
        self._receive_pending()
        # Agents of a game have one seed.
        number = self.num_envs // self.vecwrap_env.call_state.pending.rows_per_seed
        if all(seed is None for seed in self._seeds):
            seeds = None
        else:
            seeds = self._seeds[:number]
        call_state = self.vecwrap_env.call_state
        call_state.refuse_pending("reset_async")
        call_state.reset(seeds, self._requests())
        step, (observations, *_, infos) = call_state.wait("reset", None)
        self._record(step, observations, infos)
        self.reset_infos = self._infos(step, np.zeros(self.num_envs, dtype=np.bool_), None)
        self._reset_seeds()
        self._reset_options()
        return self._own(observations)

    def set_options(self, options: Any = None) -> None:
        """Set the next reset's options: one dict for all, or a list of a dict or None for each."""
        if isinstance(options, (list, tuple)):
            each = options
        else:
            each = [options] * self.num_envs
        if len(each) != self.num_envs or not all(
            one is None or isinstance(one, dict) for one in each
        ):
            raise ArgumentError(
                "set_options: expected a dict for all sub-environments, or a list of "
                f"{self.num_envs} dicts, got {options!r}"
            )
        agents = self.vecwrap_env.call_state.pending.rows_per_seed
        if any(not _equal(each[i], each[i - i % agents]) for i in range(self.num_envs)):
            raise ArgumentError(
                f"set_options: expected equal options for all agents of a game, got {options!r}"
            )
        self._options = [deepcopy(one) or {} for one in each]

    def _requests(self) -> list[tuple[Any, dict[str, Any] | None]]:
        """The rows to reset, in groups with equal options."""
        groups: list[tuple[list[int], dict[str, Any]]] = []
        for i, options in enumerate(self._options):
            rows = next((rows for rows, known in groups if _equal(known, options)), None)
            if rows is None:
                groups.append(([i], options))
            else:
                rows.append(i)
        if len(groups) == 1:
            return [(self.vecwrap_env.call_state.pending.all_ids, groups[0][1] or None)]
        return [(np.array(rows, np.int64), options or None) for rows, options in groups]

    def step(self, actions: Array) -> tuple[Any, Array, Array, list[dict[str, Any]]]:
        """Take a step; as ``step_async`` and ``step_wait``, but in one go, which costs less."""
        try:
            step, result = self.vecwrap_env.call_state.step(
                self.vecwrap_env, self._conformed(actions)
            )
        except ResetNeededError as error:
            raise self._with_remedy(error) from None
        return self._as_sb3(step, result)

    def step_async(self, actions: Array) -> None:
        """Send the actions; SB3 passes those for MultiBinary spaces as float32 zeros and ones."""
        try:
            self.vecwrap_env.step_async(self._conformed(actions))
        except ResetNeededError as error:
            raise self._with_remedy(error) from None

    def _with_remedy(self, error: ResetNeededError) -> ResetNeededError:
        """Say how an algorithm resets that was interrupted; it is refused to join two episodes."""
        if not self.vecwrap_env.call_state.numbered_rows.needs_reset.interrupted:
            return error
        return ResetNeededError(f"{error}; for SB3 to do so, set model._last_obs = None")

    def _conformed(self, actions: Array) -> Array:
        if isinstance(self.action_space, spaces.MultiBinary):
            if not np.isin(actions, (0, 1)).all():
                raise ArgumentError(
                    f"actions: expected zeros and ones for {self.action_space}, got {actions}"
                )
            return np.asarray(actions).astype(self.action_space.dtype)
        return actions

    def step_wait(self) -> tuple[Any, Array, Array, list[dict[str, Any]]]:
        """Wait for ``step_async``: observations, rewards (n,) float32, dones (n,) bool, n infos."""
        return self._as_sb3(*self.vecwrap_env.call_state.wait("step", None))

    def _as_sb3(
        self, step: StepResult, result: FiveTuple
    ) -> tuple[Any, Array, Array, list[dict[str, Any]]]:
        observations, rewards, terminations, truncations, seen = result
        rested = self.resting
        self._record(step, observations, seen)
        dones = terminations | truncations
        if step.uneventful and not step.infos:
            infos: list[dict[str, Any]] = [{"TimeLimit.truncated": False} for _ in self._seeds]
        else:
            # Or SB3 would take the first observation of a game for what followed from the rest.
            if rested is not None:
                dones |= step.first
            infos = self._infos(step, dones, rested)
            for info in infos:
                info["TimeLimit.truncated"] = False
            for i in (truncations > terminations).nonzero()[0].tolist():
                infos[i]["TimeLimit.truncated"] = True
        return self._own(observations), rewards.astype(np.float32), dones, infos

    def _record(self, step: StepResult, observations: Any, infos: Infos) -> None:
        """Keep what later calls and steps need."""
        self._latest = observations, infos
        rests = self._games and not step.alive.all()
        if rests:
            self.resting = (~step.alive, batches.copy(step.observations))
        else:
            self.resting = None

    def close(self) -> None:
        self.vecwrap_env.close()

    def _receive_pending(self) -> None:
        """Wait for the results of a call that an interrupt left pending.

        Calling ``learn`` again starts with a reset.
        """
        env = self.vecwrap_env
        if env.call_state.pending.call in ("step", "reset", "call"):
            with contextlib.suppress(SubEnvError):  # a reset follows
                getattr(env, f"{env.call_state.pending.call}_wait")()

    def _infos(
        self, step: StepResult, dones: Array, rested: tuple[BoolArray, Any] | None
    ) -> list[dict[str, Any]]:
        """Return one info per row: an ended row's is the step's, and the reset's is separate."""
        infos: list[dict[str, Any]] = [{} for _ in self._seeds]
        if not (step.infos or dones.any()):
            return infos
        added = {name: step.infos[name] for key in step.added for name in (key, f"_{key}")}
        others = {key: value for key, value in step.infos.items() if key not in added}
        backend_rows = self.vecwrap_env.core.rows
        finals = step.final_infos or {}
        # A wrapper that numbers rows itself makes their infos itself.
        as_given = self.vecwrap_env.call_state.numbered_rows is backend_rows
        if as_given:
            before, finals_before = backend_rows.last_infos
        else:
            before = {}
            finals_before = None
        changes = _Changes(before, others)
        of_ends = _Changes(finals_before or {}, finals)
        rows: Sequence[int] = range(self.num_envs)
        if not (before or others or finals_before or finals):
            # No environment reports anything, as CartPole.
            some = np.logical_or.reduce([dones, *(added[f"_{key}"] for key in step.added)])
            rows = np.flatnonzero(some).tolist()
        for i in rows:
            if as_given:
                own, own_final = backend_rows.slots.own_infos(i)
            else:
                own = {}
                own_final = {}
            info = changes.made_to(own, i)
            of_step = row_of(added, i)
            done = dones.item(i)
            if done and step.first[i]:  # not so where an agent leaves a game that goes on
                of_rest = rested is not None and rested[0][i]
                self.reset_infos[i] = info
                info = {}
                if not of_rest:
                    info = of_ends.made_to(own_final, i)
                if "restarted" in of_step:  # in both: why one episode ended and the next began
                    self.reset_infos[i]["restarted"] = of_step["restarted"]
            if done:
                info["terminal_observation"] = _last_of(step, i, rested)
            info.update(of_step)
            infos[i] = info
        if step.games_ended is not None:
            for i in step.games_ended.nonzero()[0].tolist():
                infos[i]["games_ended"] = step.games_ended.item(i)
        return infos

    def _own(self, observations: Any) -> Any:
        """Return observations that SB3 may keep: a copy if needed.

        SB3 stores observations after the next step, which must not overwrite them.
        """
        if self.vecwrap_env.core.copy:
            return observations
        return deepcopy(observations)

    @property
    def envs(self) -> list[Any]:
        """The sub-environments, if all are in this process; SB3's callbacks use ``envs[0]``."""
        return self.vecwrap_env.envs

    # -- calls to the sub-environments -------------------------------------------------------------

    def _masks_of(self, ids: Sequence[int]) -> list[Any] | None:
        """Return the masks of environments that report any, or None if there are none yet.

        Masks that an environment reports by a method are available after its first reset.
        """
        if self._latest[0] is None and self._masks.has_method:
            return None
        masks = self._masks.find(*self._latest, np.array(ids), waiting="one")
        if masks is None:
            return None
        return [masks[i] for i in ids]

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        env = self.vecwrap_env
        ids = self._ids(indices)
        if attr_name == METHOD and (masks := self._masks_of(ids)) is not None:
            return [lambda mask=mask: mask for mask in masks]
        try:
            if ids:
                return list(env.get_attr(attr_name, ids))
            return []
        except SubEnvError as error:
            _raise_as_sb3_does(error)
        except ArgumentError as error:  # an engine whose sub-environments cannot be reached
            if attr_name not in _OF_ALL:
                raise AttributeError(str(error)) from error
            return [getattr(env, attr_name)] * len(ids)

    def has_attr(self, attr_name: str) -> bool:
        """Return whether every sub-environment has an attribute, without fetching it."""
        env = self.vecwrap_env
        env.call_state.refuse_pending("has_attr")
        if attr_name == METHOD and self._masks_of(range(self.num_envs)) is not None:
            return True
        try:
            return all(
                env.core.calls.now(
                    "has_attr", [(attr_name,)] * self.num_envs, env.call_state.ids_of_call(None)
                )
            )
        except ArgumentError:  # an engine whose sub-environments cannot be reached
            return attr_name in _OF_ALL

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Set an attribute of each sub-environment to one value, on the wrapper that has it."""
        if ids := self._ids(indices):
            # `vecwrap_env` reads a list as one value for each.
            self.vecwrap_env.set_attr(attr_name, [value] * len(ids), ids)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        ids = self._ids(indices)
        if not ids:
            return []
        if method_name == METHOD and (masks := self._masks_of(ids)) is not None:
            return masks
        self.vecwrap_env.call_state.call(method_name, method_args, method_kwargs, ids)
        try:
            return list(self.vecwrap_env.call_wait())
        except SubEnvError as error:
            _raise_as_sb3_does(error)

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Indices = None) -> list[bool]:
        """Return whether each sub-environment is wrapped in a class.

        The ``monitor`` wrapper counts as SB3's ``Monitor``.
        """
        env = self.vecwrap_env
        ids = self._ids(indices)
        if wrapper_class is Sb3Monitor and self._monitored:
            return [True] * len(ids)
        env.call_state.refuse_pending("env_is_wrapped")
        if not ids:
            return []
        rows = env.call_state.ids_of_call(ids)
        for engine in env.core.runner.engines():
            if isinstance(engine, SteppedVecEnv):  # it is asked for the class itself
                return list(engine.venv.env_is_wrapped(wrapper_class, rows))
        names = (wrapper_class.__module__, wrapper_class.__qualname__)
        try:
            return list(env.core.calls.now("is_wrapped", [names] * len(ids), rows))
        except ArgumentError:  # an engine whose sub-environments cannot be reached
            return [False] * len(ids)

    def get_images(self) -> Sequence[Array | None]:
        """Return an image of each sub-environment; None without ``render_mode="rgb_array"``."""
        if self.render_mode != "rgb_array":
            return [None] * self.num_envs
        return self.vecwrap_env.get_images()

    def _ids(self, indices: Indices) -> list[int]:
        """Read indices as SB3 does: -1 is the last one."""
        ids = [int(i) for i in self._get_indices(indices)]
        for k, i in enumerate(ids):
            if -self.num_envs <= i < 0:
                ids[k] = i + self.num_envs
        checked: list[int] = self.vecwrap_env.call_state.pending.indices(ids, "indices").tolist()
        return checked

    def __repr__(self) -> str:
        return f"<to_sb3 of {self.vecwrap_env!r}>"


class _Changes:
    """Changes by wrappers to the columns of a step's infos; renaming alone is not a change."""

    def __init__(self, before: Infos, now: Infos) -> None:
        had, has = ({id(column) for column in infos.values()} for infos in (before, now))
        masks = {f"_{key}": key for key in now}
        changed = {masks.get(key, key) for key, column in now.items() if id(column) not in had}
        self._new = {name: now[name] for key in changed for name in (key, f"_{key}") if name in now}
        self._gone = [
            key
            for key, column in before.items()
            if not {id(column), id(before.get(f"_{key}", column))} <= has
        ]

    def made_to(self, own: dict[str, Any], i: int) -> dict[str, Any]:
        """Return a row's own info with them."""
        for key in self._gone:
            own.pop(key, None)
        own.update(row_of(self._new, i))
        return own


def _last_of(step: StepResult, i: int, rested: tuple[BoolArray, Any] | None) -> Any:
    """Return the last observation of a row's ended episode, or what a resting agent was shown."""
    if rested is not None and rested[0][i]:
        return batches.row(rested[1], i)
    ended = step.final_obs is not None and step.first[i]
    return batches.row(step.final_obs if ended else step.observations, i)


def _raise_as_sb3_does(error: SubEnvError) -> NoReturn:
    """Raise AttributeError if a sub-environment raised one, because SB3 and users catch it."""
    if error.kind == "AttributeError":
        raise AttributeError(str(error)) from error
    raise error


def _action_space(env: VecEnv) -> spaces.Space[Any]:
    """Return the bounded action space under ``clip_action``: SB3 needs bounds and clips to them."""
    for wrapper in env.chain:
        if (
            isinstance(wrapper, ClipAction)
            and wrapper.single_action_space is env.single_action_space
        ):
            return wrapper.env.single_action_space
    return env.single_action_space


def _equal(one: dict[str, Any] | None, other: dict[str, Any] | None) -> bool:
    """Whether two options are, to the bit."""
    try:
        assert_same(one or {}, other or {})
    except AssertionError:
        return False
    return True
