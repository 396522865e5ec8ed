"""Vector wrappers: a few hooks, and everything else is forwarded by name.

A wrapper overrides ``on_actions``, ``on_observations`` or ``on_step``, which serve reset, masked
reset, step and recv in every autoreset mode, because each of these yields a StepResult;
per-sub-environment state is indexed by ``step.rows``.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from copy import deepcopy
from inspect import isfunction
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from vecwrap.env import games
from vecwrap.env.call_state import CallState
from vecwrap.env.chain import Chain
from vecwrap.env.core import Core
from vecwrap.env.fast_path import FastPath
from vecwrap.env.pending_call import PendingCall
from vecwrap.env.refusals import refuse_mode, refuse_tensors
from vecwrap.env.row_protocol import NumberedRows
from vecwrap.env.vec_env import VecEnv
from vecwrap.interrupts import at_exit
from vecwrap.rows.batch import Batch
from vecwrap.rows.gymnasium_form import conform_actions
from vecwrap.rows.statistics import RunningStatistics
from vecwrap.rows.step_result import IntArray, StepResult
from vecwrap.sources.declares import Declares

__all__ = ["VecEnvWrapper"]

# Called on the outermost wrapper only; inner wrappers are driven through the row protocol.
_OUTERMOST_METHODS = (
    "reset",
    "reset_async",
    "reset_wait",
    "step",
    "step_async",
    "step_wait",
    "send",
    "recv",
)
_RESULT_HOOKS = {"on_step", "on_observations"}
_GYMNASIUM_HOOKS = {
    "actions": "on_actions(actions, env_ids)",
    "observations": "on_observations(observations)",
    "rewards": "on_step(step), which assigns step.rewards",
}


class VecEnvWrapper(Declares, VecEnv):
    """A wrapper around a vector environment.

    Args:
        env: what it wraps.
        single_observation_space: the space of one observation, if this wrapper changes it; it is
            copied.
        single_action_space: the space of one action, if this wrapper changes it; it is copied.

    Attributes:
        reads_observations: a class whose ``on_step`` neither looks at observations nor changes them
            says False here; an engine's tensors then stay on their device.

    Raises:
        TypeError: ``env`` is not a vecwrap environment.
        PlanError: ``env`` returns tensors: ``to_torch`` comes after all wrappers.

    A complete wrapper that counts the actions taken:

    >>> class CountSteps(VecEnvWrapper):
    ...     def __init__(self, env):
    ...         super().__init__(env)
    ...         self.steps = np.zeros(env.num_envs, dtype=np.int64)
    ...
    ...     def on_step(self, step):
    ...         self.steps[step.rows] += step.acted

    One that only changes observations, terminal ones too:

    >>> class Halves(VecEnvWrapper):
    ...     def __init__(self, env):
    ...         space = env.single_observation_space
    ...         halved = spaces.Box(space.low / 2, space.high / 2, space.shape, space.dtype)
    ...         super().__init__(env, halved)
    ...
    ...     def on_observations(self, observations):
    ...         return observations / 2

    One with all the other hooks: it inverts actions, saves state, holds statistics, and reports
    when it is closed:

    >>> class Contrary(VecEnvWrapper):
    ...     def __init__(self, env):
    ...         super().__init__(env)
    ...         self.turned = 0
    ...         self.seen = RunningStatistics(())
    ...
    ...     def on_actions(self, actions, env_ids):
    ...         self.turned += len(env_ids)
    ...         return 1 - actions
    ...
    ...     def on_close(self):
    ...         print("closed after", self.turned, "actions")
    ...
    ...     def wrapper_state(self):
    ...         return {"turned": self.turned}
    ...
    ...     def load_wrapper_state(self, state):
    ...         self.turned = state["turned"]
    ...
    ...     def wrapper_statistics(self):
    ...         return {"seen": self.seen}
    ...
    ...     def use_statistics(self, statistics):
    ...         self.seen = statistics["seen"]
    >>> import vecwrap
    >>> wrappers = [CountSteps, Halves, Contrary]
    >>> env = vecwrap.build("CartPole-v1", n=2, wrappers=wrappers, backend="dummy")
    >>> observations, infos = env.reset(seed=1)
    >>> observations, rewards, terminations, truncations, infos = env.step([0, 1])
    >>> env.find(CountSteps).steps
    array([1, 1])
    >>> env.close()
    closed after 2 actions
    """

    env: VecEnv
    num_envs: int
    single_observation_space: spaces.Space[Any]
    observation_space: spaces.Space[Any]
    single_action_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    metadata: dict[str, Any]
    render_mode: str | None
    backend: str
    num_workers: int
    autoreset_mode: AutoresetMode
    possible_agents: tuple[str, ...]
    row_games: IntArray
    row_agents: NDArray[np.str_]
    core: Core
    call_state: CallState

    reads_observations: ClassVar[bool] = True
    _on_close_called = True  # so that `close` does nothing if `__init__` failed

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Refuse a wrapper whose override would take effect only if it is the outermost."""
        super().__init_subclass__(**keywords)
        if "reads_observations" not in vars(cls) and vars(cls).keys() & _RESULT_HOOKS:
            cls.reads_observations = True  # whatever the class that it is derived from does
        for name in _OUTERMOST_METHODS:
            if getattr(cls, name) is not getattr(VecEnvWrapper, name):
                raise TypeError(
                    f"{cls.__name__}.{name}: expected a wrapper to override on_actions and "
                    "on_step, which see every reset, step and recv at any place in the chain; "
                    f"{name} is called on the outermost wrapper only"
                )
        for name, hook in _GYMNASIUM_HOOKS.items():
            if isfunction(vars(cls).get(name)):
                raise TypeError(f"{cls.__name__}.{name}, as Gymnasium calls it: expected {hook}")

    def __init__(
        self,
        env: VecEnv,
        single_observation_space: spaces.Space[Any] | None = None,
        single_action_space: spaces.Space[Any] | None = None,
    ) -> None:
        if not isinstance(env, VecEnv):
            raise TypeError(
                f"{type(self).__name__}: expected a vecwrap.VecEnv to wrap, got "
                f"{type(env).__name__}; vecwrap.build makes one"
            )
        refuse_tensors(type(self).__name__, env, "wrappers come before to_torch")
        self.env = env
        self.num_envs = env.num_envs
        self.single_observation_space = env.single_observation_space
        self.observation_space = env.observation_space
        self.single_action_space = env.single_action_space
        self.action_space = env.action_space
        self.metadata = dict(env.metadata)
        self.render_mode = env.render_mode
        self.backend = env.backend
        self.num_workers = env.num_workers
        self.autoreset_mode = env.autoreset_mode
        self.possible_agents = env.possible_agents
        self.row_games = env.row_games
        self.row_agents = env.row_agents
        self.core = env.core
        env.wrapped_by = weakref.ref(self)
        if self.reads_observations and _changes_results(self):
            self.core.rows.read_observations()
        self.call_state = CallState(
            self, HookRows(self), env.call_state.numbered_rows, env.call_state.pending
        )
        results = self.call_state.results
        results.set_space(env.single_observation_space)
        if not (self.reads_observations and _changes_results(self)):
            # What it returns is what it wraps returned, which may be kept there already.
            results.last_observations = env.call_state.results.last_observations
        if single_observation_space is not None:
            self.call_state.set_observation_space(self, deepcopy(single_observation_space))
        if single_action_space is not None:
            self.call_state.set_action_space(self, deepcopy(single_action_space))
        self._owner = os.getpid()
        self._on_close_called = False
        at_exit(self)

    # -- the hooks ---------------------------------------------------------------------------------

    def on_actions(self, actions: Batch, env_ids: IntArray) -> Batch:
        """Change the actions on their way down.

        Args:
            actions: m rows of the action space, in batched form; not to be written into.
            env_ids: (m,) int64, the sub-environment of each.

        Returns:
            The actions for the wrapper below.
        """
        return actions

    def on_observations(self, observations: Batch) -> Batch:
        """Change observations and nothing else: also the terminal ones, with the same call.

        Args:
            observations: m rows, to be changed independently of each other; not to be written into.

        Returns:
            m rows of the wrapper's space, in arrays of its dtype.
        """
        return observations

    def on_step(self, step: StepResult) -> None:
        """Change a result on its way outwards; by default, only with ``on_observations``.

        Args:
            step: m rows; assign its fields, and never write into its arrays.
        """
        step.observations = self.on_observations(step.observations)
        if step.final_obs is not None:
            step.final_obs = self.on_observations(step.final_obs)

    def on_close(self) -> None:
        """Close what this wrapper opened: once, before the wrapped one; not in a forked process."""

    def wrapper_state(self) -> dict[str, Any]:
        """Return everything that this wrapper needs to continue as if it had never stopped.

        Returns:
            Arrays, numbers, strings, booleans, None, and lists and dicts of these; fresh copies. A
                wrapper without state returns an empty dict.
        """
        return {}

    def load_wrapper_state(self, state: dict[str, Any]) -> None:
        """Restore the state that ``wrapper_state`` returned.

        Args:
            state: that state; it must not be shared with this wrapper afterwards.
        """

    def request_frames(
        self, env_ids: Sequence[int] | IntArray, opening: Sequence[int] | IntArray = ()
    ) -> None:
        """Request frames from the next actions or resets on, until this wrapper calls it again.

        Frames are rendered in the sub-environment's process, before the autoreset, and arrive with
        the result in ``StepResult.frames`` and ``final_frames``. For recorders; requests of several
        wrappers are merged. May be called at any time; does not wait, and costs nothing if the
        request is unchanged.

        Args:
            env_ids: (k,) int64 or a list, sub-environments whose frames are needed with every
                result.
            opening: sub-environments whose frames are needed only for the first observation of an
                episode.
        """
        rows = self.call_state.numbered_rows
        pending = self.call_state.pending
        always = rows.frame_rows(pending.indices(env_ids))
        at_first = rows.frame_rows(pending.indices(opening))
        self.core.request_frames(self, always, at_first)

    def normalizers(self) -> tuple[Any, ...]:
        return ()

    def wrapper_statistics(self) -> dict[str, RunningStatistics]:
        """Return this wrapper's running statistics by name: the objects themselves, not copies."""
        return {}

    def use_statistics(self, statistics: dict[str, RunningStatistics]) -> None:
        """Use these objects instead of this wrapper's own.

        Args:
            statistics: by the names of ``wrapper_statistics``; names and shapes have been checked.
        """

    def refuse_wrapper_state(self, state: dict[str, Any]) -> None:
        """Raise CheckpointError if this wrapper cannot use a state, before any wrapper loads."""

    def _number_rows(self, rows: NumberedRows, num_envs: int, rows_per_seed: int = 1) -> None:
        """Give this wrapper its own numbering of rows; called at the end of ``__init__``.

        Args:
            rows: the object that maps them to the wrapped rows.
            num_envs: how many there are.
            rows_per_seed: how many consecutive rows have one seed.
        """
        wrapped = self.env.call_state.pending
        pending = PendingCall(
            np.arange(num_envs),
            seed=wrapped.seed,
            start_index=wrapped.start_index,
            rows_per_seed=rows_per_seed,
            batch_size=wrapped.batch_size
            and max(1, wrapped.batch_size * num_envs // wrapped.num_envs),
        )
        self.core.rows.read_observations()
        self.core.numberings.append((pending, rows))
        pending.all_numberings = self.core.pending.all_numberings
        pending.all_numberings.append(pending)
        self.num_envs = num_envs
        self.call_state = CallState(self, rows, rows, pending)
        self.call_state.set_observation_space(self, self.single_observation_space)
        self.call_state.set_action_space(self, self.single_action_space)
        self.row_games = games.row_games(self.call_state, self.core)
        self.row_agents = games.row_agents(self.call_state, self.core)

    @property
    def _numbers_alike(self) -> bool:
        return self.call_state.pending is self.env.call_state.pending

    def before_reset(self, env_ids: IntArray, seeds: Sequence[int | None]) -> None:
        """Open what is opened late: these rows are about to be reset."""

    # -- forwarding --------------------------------------------------------------------------------

    def new_fast_path(self) -> FastPath:
        """The way of a whole step through this wrapper and those that it wraps."""
        within: list[Any] = [wrapper for wrapper in self.chain[:-1] if wrapper is not self]
        # some wrappers number rows themselves
        if not all(type(wrapper.rows) is HookRows for wrapper in (self, *within)):
            return FastPath(0, None, (), (), (False, False))
        downwards = [wrapper for wrapper in within if _changes_actions(wrapper)]
        upwards = [wrapper for wrapper in reversed(within) if _changes_results(wrapper)]
        outermost = _changes_actions(self), _changes_results(self)
        return FastPath(self.num_envs, self.single_action_space, downwards, upwards, outermost)

    def close(  # type: ignore[override]
        self, timeout: float | None = None, terminate: bool = False
    ) -> None:
        """Close this wrapper, then what it wraps; may be called again."""
        try:
            self._close_wrapper()
        finally:
            self.env.close(timeout=timeout, terminate=terminate)

    def _close_wrapper(self) -> None:
        """Call ``on_close`` once, never in a forked process; also at interpreter exit.

        Wrappers with files also call this when they are garbage-collected.
        """
        if not self._on_close_called and os.getpid() == self._owner:
            # even if the backend is closed already: it may have failed
            self._on_close_called = True
            with self.core.rows.interrupts as interrupts:
                interrupts.hold()  # nothing else would close what an interrupt leaves open here
                self.on_close()

    close_at_exit = _close_wrapper

    def render(self, mode: None = None) -> Any:
        refuse_mode(mode)
        if self._numbers_alike:
            return self.env.render()
        return super().render()

    def picture(self) -> NDArray[np.uint8]:
        if self._numbers_alike:
            return self.env.picture()
        return super().picture()

    @property
    def viewer_open(self) -> bool:
        return self.env.viewer_open

    def _repr_html_(self) -> str | None:
        return self.env._repr_html_()

    @property
    def closed(self) -> bool:  # type: ignore[override]
        return self.core.rows.closed

    @property
    def chain(self) -> tuple[VecEnv, ...]:
        return Chain((self, *self.env.chain))

    @property
    def unwrapped(self) -> VecEnv:  # type: ignore[override]
        return self.env.unwrapped

    @property
    def spec(self) -> Any:  # type: ignore[override]
        return self.unwrapped.spec

    @property  # type: ignore[misc]
    def np_random(self) -> Any:
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> Any:
        return self.get_attr("np_random_seed")


class HookRows:
    """The rows of a wrapper: those that it wraps, which pass its hooks."""

    def __init__(self, wrapper: VecEnvWrapper) -> None:
        # weak, because the wrapper has this object, which must not keep the wrapper alive
        self._wrapper: Any = weakref.ref(wrapper)
        self._inner = wrapper.env.call_state  # whose rows may be replaced by timed ones

    def send(self, actions: Batch, env_ids: IntArray) -> None:
        wrapper = self._wrapper()
        changed = wrapper.on_actions(actions, env_ids)
        space = wrapper.env.single_action_space
        # The same array for the same space has the right form; members of a dict may be other ones.
        if (
            type(changed) is not np.ndarray
            or changed is not actions
            or space is not wrapper.single_action_space
        ):
            changed = conform_actions(
                space, changed, len(env_ids), f"{type(wrapper).__name__}.on_actions"
            )
        self._inner.rows.send(changed, env_ids)

    def reset(
        self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        self._wrapper().before_reset(env_ids, seeds)
        self._inner.rows.reset(env_ids, seeds, options)

    def receive(self, count: int, timeout: float | None) -> StepResult:
        step = self._inner.rows.receive(count, timeout)
        if len(step.env_ids):
            self._wrapper().on_step(step)
        return step


def _overrides(wrapper: VecEnvWrapper, hook: str) -> bool:
    return getattr(type(wrapper), hook) is not getattr(VecEnvWrapper, hook)


def _changes_results(wrapper: VecEnvWrapper) -> bool:
    return _overrides(wrapper, "on_step") or _overrides(wrapper, "on_observations")


def _changes_actions(wrapper: VecEnvWrapper) -> bool:
    """Whether a wrapper changes actions, or takes those of another space, which must be checked."""
    return (
        _overrides(wrapper, "on_actions")
        or wrapper.single_action_space is not wrapper.env.single_action_space
    )
