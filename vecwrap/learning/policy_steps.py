"""An environment that a policy steps: what was seen, done and received, for rollouts to keep."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

import numpy as np
from gymnasium.vector import AutoresetMode

from vecwrap.env.refusals import describe_env
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import ArgumentError, VecwrapError
from vecwrap.learning.arrays import as_arrays, copied, put_rows, refuse_others, taken
from vecwrap.rows.batch import Batch, leaves, take
from vecwrap.rows.gymnasium_form import conform_actions
from vecwrap.rows.step_result import Autoreset, BoolArray, IntArray, StepResult
from vecwrap.sources.known_engines import is_of_ale, rows_at_once
from vecwrap.tools.policy_runner import PolicyInputs

__all__ = ["PolicySteps", "Received"]

_NONE: IntArray = np.zeros(0, np.int64)
# of a StepResult, what is read once the rows that ended are reset
_VIEWS = ("rewards", "terminations", "truncations", "first", "acted", "completed")


class Received(NamedTuple):
    """What m rows received for their actions.

    Attributes:
        step: their rows.
        observations: m rows, what the policy acts on next; also if that took a reset.
        last_observations: m rows. Where an episode ended, its last observation.
        ended: (k,) int64. Which of the m rows that is.
    """

    step: StepResult
    observations: Batch
    last_observations: Batch
    ended: IntArray


class PolicySteps:
    """An environment and the policy that steps it, all rows at once or some at a time.

    In the modes that reset on request, what has ended is reset at once, by a mask.

    Attributes:
        observations: n rows, what the policy acts on next.
        rewards: m rows, of the last step: of the kind that the environment gives.
        reuses_arrays: whether the environment writes into what it has returned.
        fills_arrays: whether the environment may write observations into memory that it is given.
        keeps_arrays: whether it may return the same observations again, after a masked reset.
        in_turns: whether an action may be complete some steps after it was taken: in games.
    """

    def __init__(self, env: VecEnv, policy: Any, where: str) -> None:
        if not isinstance(env, VecEnv):
            raise TypeError(f"{where}: env: expected a vecwrap.VecEnv, got {describe_env(env)}")
        self._env = env
        self._where = f"{where}: policy"
        # of an environment whose calls return another library's arrays
        self._converter: Any = getattr(env, "array_converter", None)
        self._inputs = PolicyInputs(
            env, policy, self._where, deterministic=False, converter=self._converter
        )
        self._results = env.call_state.results
        self._resets_on_request = env.metadata["autoreset_mode"] == AutoresetMode.DISABLED
        self._first_extras: dict[str, Any] | None = None  # None: the policy was not called yet
        self._in_parts = ""  # the option because of which some rows are stepped at a time
        self._step: StepResult | None = None  # that the last call has made its result of
        self._rows_are_joint = len(np.unique(env.row_games)) < env.num_envs
        self.in_turns = bool(env.core.rows.agents)
        self.reuses_arrays = not env.core.rows.copy
        self.fills_arrays = False
        self.keeps_arrays = bool(env.core.is_engine)
        self.observations: Batch = None
        self.rewards: Any = None

    @property
    def state(self) -> Any:
        """What the policy remembers."""
        return self._inputs.state

    def refuse_uneven(self) -> None:
        """Raise ArgumentError if rows cannot be stepped as they come."""
        if self._resets_on_request:
            self._refuse(
                "with batch_size, expected autoreset same_step or next_step, got "
                f"{self._env.core.autoreset.value}: rows cannot be reset on request while others "
                "are in flight"
            )
        self._refuse_parts("batch_size")
        for engine in self._env.core.runner.engines():
            if is_of_ale(engine) and rows_at_once(engine) < self._env.num_envs:
                self._refuse(
                    "expected an engine that is reset and stepped with all rows, got ale-py's with "
                    "batch_size, which takes actions for the rows that it returned last; leave "
                    "batch_size out, or take EnvPool"
                )

    def refuse_overlap(self) -> None:
        """Raise ArgumentError if one half of the rows cannot step while the policy has another."""
        env = self._env
        if env.call_state.pending.batch_size is not None:
            self._refuse(
                "expected overlap=2 or an environment built with batch_size, got both: with "
                "batch_size the policy is called for rows as they come, while others step"
            )
        if not env.core.runner.of_its_process:
            self._refuse(
                "overlap=2: expected a backend with workers (shmem, subprocess, threads, ray), got "
                f"{env.backend}, where nothing steps while the policy is called"
            )
        if env.core.is_engine:
            self._refuse(
                "overlap=2: expected vecwrap's own sub-environments, got an engine, whose rows "
                f"step together: {env!r}"
            )
        if env.num_envs == 1:
            self._refuse("overlap=2: expected n=2 or more, got n=1")
        self._refuse_parts("overlap=2")

    def warn_of_statistics(self, stacklevel: int) -> None:
        """Warn of wrappers that let one half of the rows change what the other receives."""
        wrappers: tuple[Any, ...] = self._env.chain[:-1]
        found = [
            type(wrapper).__name__
            for wrapper in wrappers
            if wrapper.training and wrapper.wrapper_statistics()
        ]
        if found:
            warnings.warn(
                f"rollouts: overlap=2: the statistics over all rows of {', '.join(found)} are "
                "updated after each half of a step, so that values differ slightly from those of "
                "overlap=1; env.eval() freezes them",
                stacklevel=stacklevel + 1,
            )

    def _refuse_parts(self, option: str) -> None:
        self._in_parts = option
        if self._rows_are_joint:
            self._refuse(
                f"expected games of several agents without {option}, because their rows step "
                f"together, got {self._env!r}"
            )
        if self._inputs.has_state and not self._inputs.is_model:
            self._refuse_state("that takes state and episode_start")

    def refuse_engine_rows(self) -> None:
        """Raise ArgumentError if rows cannot each go on at their own pace."""
        core = self._env.core
        if core.is_engine and core.autoreset is Autoreset.NEXT_STEP:
            self._refuse(
                "with batch_size, expected rows that are stepped one by one, got those of an "
                f"engine ({core.runner.engine}), which arrive together, while resets take steps of "
                "some; leave batch_size out, or take vecwrap.transitions"
            )

    def _refuse(self, text: str) -> NoReturn:
        raise ArgumentError(f"{self._where.partition(':')[0]}: {text}")

    def begin(self, *, reset: bool) -> None:
        """Begin with a reset, or go on from what was returned last, and reset what has ended."""
        self._begin(reset=reset)
        if self._in_parts:  # rows are written into them
            self.observations = copied(self.observations)
        env = self._env
        self.fills_arrays = (
            self._converter is None
            and env.core.slots.observations.can_move
            and env.call_state.numbered_rows is env.core.rows
            and not env.core.slots.needs_arrays  # no wrapper reads or changes observations
            and env.core.autoreset is not Autoreset.EPISODIC  # where rows may rest
        )

    def _begin(self, *, reset: bool) -> None:
        if reset:
            observations, _ = self._call(self._env.reset)
            self._inputs.update(self._result)
            self.observations = copied(self._kept(observations))
            return
        call_state = self._env.call_state
        call_state.refuse_pending("rollouts")
        if call_state.numbered_rows.needs_reset.never_reset.any():
            call_state.refuse_ended(call_state.pending.all_ids)
        slots = self._env.core.slots
        at = call_state.sources
        resting = (slots.terminations[at] | slots.truncations[at]) & ~slots.first[at]
        self._inputs.first[:] = slots.first[at]
        self._inputs.idle[:] = resting
        self._inputs.infos = self._results.reported_masks
        self.observations = self._results.last_observations.all()
        if self._converter is not None:
            self.observations = self._converter.from_numpy(self.observations)
        over = call_state.numbered_rows.needs_reset.ended.copy()
        if self._resets_on_request:
            over |= self._over(resting, ~slots.left[at])
        if over.any():
            self._reset(over)

    def step(self, seen: Batch, target: Batch = None) -> tuple[Batch, dict[str, Any], Received]:
        """Step all rows; return the actions, what the policy gave beside them, and the results.

        Args:
            seen: the observations, which the policy may write into.
            target: memory of n rows where the environment may write the observations, if it
                ``fills_arrays``. If it has, this is ``Received.observations``.
        """
        actions, extras = self.act(seen)
        if target is None:
            return actions, extras, self._received(self._call(self._env.step, actions))
        rows = self._env.core.rows
        rows.lend_memory(target)
        try:
            received = self._received(self._call(self._env.step, actions))
        finally:
            rows.lend_memory(None)
        if rows.slots.observations.batch() is target:
            received = received._replace(observations=target)
        return actions, extras, received

    def take_back(self) -> None:
        """Leave the environment with the last observations in its own memory."""
        rows = self._env.core.rows
        last = rows.last_observations
        rows.own_observations()
        if self.observations is last:
            self.observations = rows.last_observations

    def act_some(self, env_ids: IntArray) -> tuple[Batch, dict[str, Any]]:
        """Return the policy's actions for the last observations of these rows, and its extras."""
        return self.act(taken(self.observations, env_ids), env_ids)

    def act(
        self, observations: Batch, env_ids: IntArray | None = None
    ) -> tuple[Batch, dict[str, Any]]:
        """Return the policy's actions for observations of these rows, and its extras."""
        number = self._env.num_envs
        if env_ids is not None:
            number = len(env_ids)
        if self._results.object_leaves:
            observations = self._results.to_gymnasium(observations)
        actions, extras = self._inputs.act(observations, env_ids)
        if env_ids is not None and self.state is not None:
            self._refuse_state("whose predict returned a state")
        if self._converter is None:
            actions = conform_actions(
                self._env.single_action_space, actions, number, f"{self._where}: actions"
            )
        else:
            actions = self._converter.from_numpy(as_arrays(actions))
            self._refuse_number(actions, number, "actions")
        if extras or self._first_extras != {}:
            extras = self._checked(extras, number)
        return actions, extras

    def send(self, actions: Batch, env_ids: IntArray) -> None:
        self._env.send(actions, env_ids)

    def receive_all(self) -> None:
        """Receive what is in flight, and keep the last observations only."""
        with suppress(VecwrapError):
            while self._env.call_state.numbered_rows.in_flight and not self._env.core.rows.closed:
                self.receive()

    def receive(self) -> Received:
        """Receive some of the rows that were sent."""
        return self._received(self._call(self._env.recv))

    # -- parts -------------------------------------------------------------------------------------

    def _call(self, method: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Call the environment, and record the rows that its result is made of."""
        results = self._results
        results.on_step = self._record
        try:
            return method(*arguments, **keywords)
        finally:
            results.on_step = None

    def _record(self, step: StepResult) -> None:
        self._step = step

    @property
    def _result(self) -> StepResult:
        step = self._step
        self._step = None
        assert step is not None
        return step

    def _kept(self, observations: Any) -> Batch:
        """All n observations as they are kept: values without an array form in object arrays."""
        if self._results.object_leaves:
            return self._results.last_observations.all()
        return observations

    def _received(self, result: Any) -> Received:
        step = self._result
        self._inputs.update(step)
        observations = result[0]
        self.rewards = result[1]
        if self._results.object_leaves:
            observations = step.observations
        if isinstance(step.rows, slice):
            self.observations = observations
        else:
            put_rows(self.observations, step.env_ids, observations)
        if step.uneventful:
            return Received(step, observations, observations, _NONE)
        dones = step.dones
        ended = (dones & (step.observed | step.lost)).nonzero()[0]
        last = observations
        if step.final_obs is not None:
            last = step.final_obs
            if self._converter is not None:
                last = result[4]["final_obs"]
        if self._resets_on_request and dones.any():
            over = np.zeros(self._env.num_envs, np.bool_)
            over[step.rows] = self._over(dones, step.alive)
            if over.any():
                if self.reuses_arrays:  # the reset writes into them
                    step = replace(step, **{name: getattr(step, name).copy() for name in _VIEWS})
                    last = copied(last)
                self._reset(over)
                observations = take(self.observations, step.rows)
        return Received(step, observations, last, ended)

    def _over(self, dones: BoolArray, alive: BoolArray) -> BoolArray:
        """(n,) bool: the rows of the episodes that are over; of a game all rows or none."""
        if not self._rows_are_joint:
            return dones
        games = self._env.row_games
        present = np.bincount(games, weights=alive, minlength=int(games.max()) + 1)
        return np.asarray(present[games] == 0)

    def _reset(self, mask: BoolArray) -> None:
        observations, _ = self._call(self._env.reset, options={"reset_mask": mask})
        self._inputs.update(self._result)
        self.observations = self._kept(observations)

    def _checked(self, extras: dict[str, Any], number: int) -> dict[str, Any]:
        extras = as_arrays(extras)
        if self._first_extras is None:
            self._first_extras = extras
        self._refuse_number(extras, number, "extras")
        refuse_others(self._first_extras, extras, f"{self._where}: extras")
        return extras

    def _refuse_state(self, which: str) -> NoReturn:
        raise ArgumentError(
            f"{self._where}: with {self._in_parts}, expected a policy without a state, because "
            f"each call is for other rows; got one {which}"
        )

    def _refuse_number(self, batch: Batch, number: int, what: str) -> None:
        for path, leaf in leaves(batch):
            if leaf.shape[:1] != (number,):
                at = "".join(f"[{key!r}]" for key in path)
                raise ArgumentError(
                    f"{self._where}: {what}{at}: expected {number} rows, one for each row of the "
                    f"observations, got shape {tuple(leaf.shape)}"
                )
