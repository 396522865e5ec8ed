"""What is behind the face of a backend, and of every wrapper around it: books of rows, a runner, calls.

Whatever a whole chain has once is here: the environment's name and mode, schedules of seeds, the saved states of
sub-environments, and its end.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vecwrap.env.books import Books
from vecwrap.env.calls import Calls
from vecwrap.env.observers import StepObserver
from vecwrap.env.options import RestartOptions
from vecwrap.env.pending import Pending
from vecwrap.env.restarts import Health, Recovery, Restarts
from vecwrap.env.row_protocol import NumberedRows
from vecwrap.env.runner import Runner
from vecwrap.errors import ArgumentError, BackendError, CheckpointError, PlanError, ResetNeededError, SubEnvError
from vecwrap.interrupts import counted_once
from vecwrap.rows.normalizers import RewardNormalizer
from vecwrap.rows.step_result import Autoreset, IntArray
from vecwrap.rows.table import Slots
from vecwrap.sources.description import Description
from vecwrap.sources.making import EngineFactory, GameFactory, num_rows_of
from vecwrap.sources.sub_env import Factory

__all__ = ["Core"]


class Core:
    """A started backend, without a face."""

    is_open: bool = False  # whether something must still be stopped, including after an interrupted `close`

    def __init__(
        self,
        runner: Runner,
        factories: Sequence[Factory],
        autoreset: Autoreset,
        *,
        settings: Mapping[str, Any],
        restarts: RestartOptions,
        seed: int | None,
        start_index: int,
    ) -> None:
        if not factories:
            raise PlanError("n: expected at least one sub-environment, got 0 factories")
        rows = num_rows_of(factories)  # of each source
        num_envs, batch_size = len(factories) * rows, settings["batch_size"]
        if batch_size is not None and not 1 <= batch_size <= num_envs:
            raise PlanError(f"batch_size: expected 1 to n={num_envs}, got {batch_size}")
        recovery = None
        engines = isinstance(factories[0], EngineFactory)
        agents = rows if isinstance(factories[0], GameFactory) else 0  # of a game
        if batch_size is not None and rows > 1 and not agents:
            raise PlanError(f"batch_size: the {rows} rows of an engine step and arrive together; leave it out")
        if batch_size is not None and agents and batch_size % agents:
            raise PlanError(f"batch_size: expected a multiple of {rows}, the agents of a game, got {batch_size}")
        if engines and restarts.restart:
            raise PlanError("on_failure: an engine is not recreated; leave it out")
        if restarts.restart:
            if type(runner).recreate is Runner.recreate:
                raise PlanError(f'on_failure: {runner.name} cannot recreate sub-environments; expected "raise"')
            limits = restarts.max_restarts, restarts.restart_window, restarts.restart_backoff
            recovery = Recovery(num_envs, autoreset, Restarts(num_envs, *limits), agents)
        self.num_envs = num_envs
        self.autoreset = autoreset
        self.runner = runner
        self.name, self.copy, self.batch_size = runner.name, settings["copy"], batch_size
        self.books = runner.books = Books(num_envs, autoreset, runner, recovery=recovery, agents=agents, **settings)
        self.calls = Calls(self.books, runner)
        shared: dict[str, Any] = {"together": agents or 1, "batch_size": batch_size}
        self.pending = Pending(self.books.all_ids, seed=seed, start_index=start_index, **shared)
        self.numberings: list[tuple[Pending, NumberedRows]] = [(self.pending, self.books)]  # and those of wrappers
        self._observing = threading.Lock()
        self.on_schedule = False  # whether seedless resets get what schedules say
        self.is_open = True
        with counted_once():
            try:
                self.description: Description = runner.start(factories)
                made = self.description
                if engines or agents:
                    self.books.keep_together(rows, made.name, made.why_no_masked_resets, made.agents)
                if engines:
                    runner.engine = made.name
                if hasattr(self.books, "slots"):
                    self.books.slots.recycle()
            except BaseException:
                with contextlib.suppress(Exception, SystemExit):  # an error while closing must not hide the cause
                    self.close(None, terminate=True)
                raise
        # A copy: gymnasium.make_vec later sets the id of `spec` to that of a whole pipeline.
        spec = self.description.spec
        self.env_id = spec.id if spec is not None else self.description.name

    @property
    def is_engine(self) -> bool:
        return bool(self.runner.engine)

    @property
    def slots(self) -> Slots:
        return self.books.slots

    def request_frames(self, wrapper: Any, env_ids: IntArray, opening: IntArray) -> None:
        if self.runner.engine:
            raise PlanError(f"{self.runner.engine}: an engine cannot send frames; recorders need vecwrap's backends")
        self.books.request_frames(wrapper, env_ids, opening)

    def health(self) -> Health:
        books = self.books
        resting = books.endings.ended.copy()
        slots = getattr(books, "slots", None)  # gone once workers have ended
        if slots is not None:
            resting |= slots.waits
        in_flight = np.zeros(self.num_envs, dtype=np.bool_)
        in_flight[list(books.out)] = True
        none = np.zeros(self.num_envs, dtype=np.int64)
        health = Health(
            restarts=none,
            lost_episodes=none.copy(),
            failures=("",) * self.num_envs,
            workers=self.runner.health(),
            lost=np.zeros(self.num_envs, dtype=np.bool_),
            resting=resting,
            in_flight=in_flight,
        )
        if books.recovery is None:
            return health
        restarts = books.recovery.restarts
        lost = books.recovery.lost.copy()
        lost[[*books.due, *books.gone]] = True
        return replace(
            health,
            restarts=restarts.counts.copy(),
            lost_episodes=books.recovery.lost_episodes.copy(),
            failures=tuple(restarts.reasons),
            lost=lost,
        )

    def observe(self, observer: StepObserver) -> None:
        """Tell an observer of every step from now on, along the general path; from any thread."""
        with self._observing:
            if observer not in self.books.observers:
                self.books.observers = (*self.books.observers, observer)
        self.books.in_line = False

    def ignore(self, observer: StepObserver) -> None:
        """Tell an observer nothing any more; from any thread."""
        with self._observing:
            self.books.observers = tuple(one for one in self.books.observers if one is not observer)

    def follow(self, schedule: bytes) -> None:
        """Have seedless resets get what a ``Schedule`` says, which was pickled."""
        if self.books.agents:
            raise PlanError(
                f"expected an environment of one agent, got {self.description.name}, a game: its games go on from one "
                "seed; for a schedule, reset them with reset(seed=[...], options={'reset_mask': ...})"
            )
        if self.runner.engine:
            raise PlanError(
                f"{self.runner.engine}: an engine resets its sub-environments itself; for a schedule of seeds, "
                "use one of vecwrap's backends"
            )
        self.calls.of_each("follow", [(schedule, 0)] * self.num_envs)
        self.on_schedule = True
        if self.books.recovery is not None:
            self.books.recovery.schedule = schedule
            self.books.recovery.scheduled[:] = 0

    def scheduled(self) -> list[int]:
        """How many episodes the schedule has supplied to each sub-environment."""
        return self.calls.of_all("scheduled")

    def go_on_in_schedule(self, scheduled: Sequence[int]) -> None:
        self.calls.of_each("go_on_in_schedule", [(number,) for number in scheduled])
        self.books.slots.scheduled[:] = scheduled
        if self.books.recovery is not None:
            self.books.recovery.scheduled[:] = scheduled

    def leave_seed_to_schedules(self) -> None:
        """Keep build's seed from restarting schedules: it serves only first resets without a scheduled seed."""
        pending = self.pending
        if pending.seed is None or not self.on_schedule:
            return
        seeds = pending.seeds(None, pending.all_ids)
        self.calls.of_each("leave_seed", [(seed,) for seed in seeds])
        pending.seed = None
        if self.books.recovery is not None:
            self.books.recovery.seeded(seeds)

    def sub_env_states(self) -> tuple[list[dict[str, Any]] | None, str | None]:
        """Return the state of each sub-environment, or None and the reason."""
        books = self.books
        if self.runner.engine:
            return None, f"{self.runner.engine} does not expose the state of its sub-environments"
        if books.endings.any_ended and books.endings.never_reset.any():
            return None, "it has not been reset yet"
        try:
            states = self.calls.of_all("state")
        except (SubEnvError, ResetNeededError) as error:
            return None, str(error)
        except BackendError as error:  # saving killed a worker twice: save only the wrappers
            if books.recovery is None:
                raise
            return None, str(error)
        for i, state in enumerate(states):
            state["ended"] = bool(books.endings.ended[i])
            if books.recovery is not None:
                state["recovery"] = books.recovery.state(i, books.slots)
        return states, None

    def load_sub_env_states(self, states: Sequence[dict[str, Any]] | None) -> None:
        """Restore all sub-environments, or if one refuses, none of them; without states, each needs a reset."""
        books, endings = self.books, self.books.endings
        books.in_line = False
        if states is None:
            for _, rows in self.numberings:
                rows.endings.mark(slice(None))
            return
        attributes = [self._attributes_of(i, state) for i, state in enumerate(states)]
        try:
            before = self.calls.of_all("state")
            self.calls.of_all("load_state", list(zip(states, attributes, strict=True)))
        except SubEnvError as error:
            try:
                self.calls.of_all(
                    "load_state", [(state, self._attributes_of(i, state)) for i, state in enumerate(before)]
                )
            except SubEnvError:  # its own code fails again
                self.load_sub_env_states(None)
            raise CheckpointError(f"{error}; its saved state does not fit; save it again") from error
        endings.never_reset[:] = False
        for i, state in enumerate(states):
            books.slots.observations.put(i, state["observation"])
            endings.ended[i] = state["ended"]
            if books.recovery is not None:
                books.recovery.loaded(i, state, books.slots)
        endings.any_ended = bool(endings.ended.any())

    def _attributes_of(self, i: int, state: dict[str, Any]) -> dict[str, Any]:
        """Return the attributes set on a sub-environment that was saved after a restart, before any reset."""
        if state["env"] is not None:
            return {}
        if self.books.recovery is not None:
            return self.books.recovery.attributes_of(i, state)
        return dict(state.get("recovery", {}).get("attributes", {}))

    def close(self, timeout: float | None, terminate: bool, *, tell: bool = False) -> None:
        if not self.is_open:
            return
        books = self.books
        # With `batch_size`, rows are pending whenever a loop ends; an exception says why a call is, also to its wait.
        known = books.broken is not None or books.interrupts.inside or sys.exc_info()[0] is not None
        calls = [pending.call for pending, rows in self.numberings if rows.out or pending.call == "call"]
        dropped = next((call for call in calls if call not in (None, "send")), None) if tell and not known else None
        books.closed, self.is_open, books.in_line = True, False, False
        for pending, _ in self.numberings:
            pending.call = pending.through = None
        try:
            self.runner.stop(5.0 if timeout is None else timeout, terminate)
        except BaseException as error:
            self.is_open = not isinstance(error, Exception)  # after an interrupt the next call continues
            raise
        finally:
            books.interrupts.close()
        if dropped is not None:  # last, because filters may make it an exception
            warnings.warn(
                f"Calling `close` while waiting for a pending call to `{dropped}` to complete. Its result is dropped.",
                stacklevel=4,
            )


def in_short(env: Any, core: Core) -> str:
    """``<VecEnv CartPole-v1, n=2, dummy, same_step, wrappers monitor>``."""
    if env.pipeline is not None:
        name, wrappers = env.pipeline.env_name, env.pipeline.wrapper_names
    else:
        name, wrappers = core.env_id, tuple(type(wrapper).__name__ for wrapper in reversed(env.chain[:-1]))
    number = core.runner.workers
    workers = f", {number} worker{'s' * (number != 1)}" if number else ""
    chain = f", wrappers {' > '.join(wrappers)}" if wrappers else ""
    return f"<VecEnv {name}, n={env.num_envs}, {core.name}{workers}, {core.autoreset.value}{chain}>"


def find_wrapper(env: Any, kind: Any) -> Any:
    if not isinstance(kind, type):
        raise ArgumentError(
            f"find: kind: expected the class of a wrapper, got {kind!r}; classes of the wrappers here are "
            f"{', '.join(type(wrapper).__name__ for wrapper in env.chain)}"
        )
    for wrapper in env.chain:
        if isinstance(wrapper, kind):
            return wrapper
    raise LookupError(f"{env!r} has no wrapper {kind.__name__}")


def normalizers_of(chain: Sequence[Any], kind: type[Any]) -> list[Any]:
    """All that normalise observations, or rewards, inner first."""
    found = [half for wrapper in reversed(chain[:-1]) for half in wrapper.normalizers() if isinstance(half, kind)]
    if not found:
        what, wrapper = ("rewards", "reward") if kind is RewardNormalizer else ("observations", "obs")
        raise LookupError(f"{chain[0]!r} has no wrapper that normalises {what}: normalize or normalize_{wrapper}")
    return found


def envs_of(env: Any, core: Core) -> list[Any]:
    if (envs := core.runner.envs()) is None:
        raise AttributeError(
            f"{env!r} has no envs: its sub-environments live in other processes, or in an engine; use "
            'call("method", ...), get_attr("name") and set_attr("name", value), or backend="dummy"'
        )
    return [envs[i] for i in env.face.sources.tolist()]
