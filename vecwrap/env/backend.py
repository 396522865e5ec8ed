"""The base of every backend: construction, closing, and calls to sub-environments other than steps and resets.

The bookkeeping of rows is in ``vecwrap.env.row_tracking``. A backend adds how sub-environments are made, called and
closed: ``_start``, ``_send_rows``, ``_reset_rows``, ``_poll``, ``_ask``, ``_answers`` and ``_stop``. Stepping itself is
only in ``vecwrap.sources.sub_env``.
"""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector import AutoresetMode

from vecwrap.env.restarts import Health, Recovery, Restarts, WorkerHealth, check_policy
from vecwrap.env.row_tracking import RowBooks, errors_of
from vecwrap.errors import (
    ArgumentError,
    BackendError,
    CheckpointError,
    PlanError,
    ResetNeededError,
    SubEnvError,
    VecwrapError,
    did_you_mean,
)
from vecwrap.interrupts import at_exit, counted_once, is_interrupt
from vecwrap.rows.step_result import Autoreset, IntArray
from vecwrap.sources.description import Description
from vecwrap.sources.failure import Failure
from vecwrap.sources.sub_env import Factory

__all__ = ["Backend", "Factory", "read_indices", "read_seeds"]


class Backend(RowBooks):
    """The innermost vector environment: it holds the sub-environments, or the workers that hold them.

    Args:
        factories: one callable per sub-environment, which returns a ``gymnasium.Env``.
        autoreset: ``"same_step"``, ``"next_step"``, ``"disabled"`` or ``"episodic"``.
        copy: return fresh arrays with each result; False returns views that the next step overwrites.
        batch_size: how many rows ``recv`` waits for; None waits for all that are pending.
        start_index: added to the index of each sub-environment in seeds (for parts of a larger vector).
        seed: used by the first reset if it is given none.
        debug: check each action and observation against its space.
        on_failure: ``"raise"``, or ``"restart"``: a sub-environment that raises is recreated, as are all those of a
            worker that dies or hangs; the episodes lost with them end truncated.
        max_restarts: how often a sub-environment may be recreated within ``restart_window``, and in a row without a
            step in between; None for no limit. The next failure is raised.
        restart_window: seconds; None counts over the whole run.
        restart_backoff: delay in seconds before recreating a sub-environment that failed again without completing a
            step.

    Raises:
        PlanError: no sub-environments, an impossible ``batch_size``, or restart options that do not fit.
        SubEnvError: a sub-environment raised while it was being created.
        BackendError: a worker could not be started, or the spaces of the sub-environments differ.

    A backend that records which sub-environments are stepped, derived from an existing one (docs/adding-a-backend.md
    writes one from scratch):

    >>> import vecwrap
    >>> from vecwrap.backends.dummy import DummyBackend
    >>> class NotingBackend(DummyBackend):
    ...     name = "noting"
    ...
    ...     def _send_rows(self, actions, env_ids):
    ...         print("steps", env_ids)
    ...         super()._send_rows(actions, env_ids)
    >>> with vecwrap.build("CartPole-v1", n=3, backend=NotingBackend) as env:
    ...     _ = env.reset(seed=1)
    ...     env.send([0, 1], env_ids=[0, 2])
    ...     _ = env.recv()
    steps [0 2]
    """

    name: ClassVar[str] = "backend"
    is_engine: ClassVar[bool] = False  # whether layers must not query the sub-environments
    workers: int = 0
    _open: bool = False  # whether something must still be stopped, including after an interrupted `close`
    _broken: VecwrapError | None = None  # raised by every further call

    def __init__(
        self,
        factories: Sequence[Factory],
        *,
        autoreset: Autoreset | AutoresetMode | str = Autoreset.SAME_STEP,
        copy: bool = True,
        batch_size: int | None = None,
        start_index: int = 0,
        seed: int | None = None,
        debug: bool = False,
        on_failure: Literal["raise", "restart"] = "raise",
        max_restarts: int | None = 10,
        restart_window: float | None = 60.0,
        restart_backoff: float = 1.0,
    ) -> None:
        limits = {"max_restarts": max_restarts, "restart_window": restart_window, "restart_backoff": restart_backoff}
        check_policy({"on_failure": on_failure, **limits})
        num_envs = len(factories)
        if not factories:
            raise PlanError("n: expected at least one sub-environment, got 0 factories")
        if batch_size is not None and not 1 <= batch_size <= num_envs:
            raise PlanError(f"batch_size: expected 1 to n={num_envs}, got {batch_size}")
        mode = Autoreset.parse(autoreset)
        recovery = None
        if on_failure == "restart":
            if type(self)._make_anew is Backend._make_anew:
                raise PlanError(f'on_failure: {self.name} cannot recreate sub-environments; expected "raise"')
            recovery = Recovery(num_envs, mode, Restarts(num_envs, max_restarts, restart_window, restart_backoff))
        super().__init__(num_envs, mode, copy=copy, recovery=recovery)
        self.batch_size = batch_size
        self.start_index = start_index
        self.debug = debug
        self._build_seed = seed
        self._on_schedule = False
        self._asked: list[int] = []
        self._values: dict[int, Any] = {}  # the answers to the last call so far
        self._misspelt: set[str] = set()  # new attributes that were warned of
        self.closed, self._open = False, True
        with counted_once():
            try:
                self._adopt(self._start(factories))
                if hasattr(self, "slots"):
                    self.slots.recycle()
            except BaseException:
                with contextlib.suppress(Exception, SystemExit):  # an error while closing must not hide the cause
                    self._close(None, terminate=True)
                raise
        at_exit(self)

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> None:
        """Raise PlanError for given options that make no sense, before anything is started; their types fit."""
        check_policy(options)

    # -- what a backend adds -------------------------------------------------------------------------------------------

    @abstractmethod
    def _start(self, factories: Sequence[Factory]) -> Description:
        """Make all sub-environments, refuse unequal spaces, set ``slots``; return the first one's description."""

    @abstractmethod
    def _ask(self, method: str, env_ids: Sequence[int], arguments: Sequence[tuple[Any, ...]]) -> None:
        """Call a method of ``SubEnv`` on sub-environments, each with its arguments."""

    @abstractmethod
    def _answers(self, deadline: float | None) -> tuple[dict[int, Any], list[Failure]]:
        """Wait for the results of ``_ask``: values by index, and failures."""

    def _answers_are_kept(self) -> bool:
        """Whether an interrupted wait for answers can be resumed."""
        return True

    def _envs_here(self) -> list[Any] | None:
        """The sub-environments; None if they are not all in this process."""
        return None

    @abstractmethod
    def _stop(self, timeout: float, terminate: bool) -> None:
        """Close everything that was opened, whatever its state."""

    def health(self) -> Health:
        """Report restarts, lost episodes and workers."""
        if self._recovery is None:
            none = np.zeros(self.num_envs, dtype=np.int64)
            return Health(none, none.copy(), ("",) * self.num_envs, self._worker_health())
        restarts = self._recovery.restarts
        counts, lost = restarts.counts.copy(), self._recovery.lost_episodes.copy()
        return Health(counts, lost, tuple(restarts.reasons), self._worker_health())

    def _worker_health(self) -> tuple[WorkerHealth, ...]:
        return ()

    # -- what may be called when ---------------------------------------------------------------------------------------

    def _refuse_closed(self, name: str) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"Trying to operate on {self!r}, after a call to `close()`: `{name}`.")

    def _refuse_pending(self, name: str, allow: str | None = None) -> None:
        self._refuse_closed(name)
        if self._pending is not None and self._pending != allow:
            wait = "recv" if self._pending == "send" else f"{self._pending}_wait"
            raise AlreadyPendingCallError(
                f"Calling `{name}` while waiting for a pending call to `{self._pending}` to complete; {wait}() returns "
                "its result, even after an interrupt.",
                self._pending,
            )

    def _refuse_ended(self, env_ids: IntArray) -> None:
        ended = env_ids[self._ended[env_ids]]
        if not len(ended):
            return
        if self._never_reset.any():
            raise ResetNeededError(f"{self!r} has not been reset yet; call reset() before the first step")
        raise ResetNeededError(
            f"sub-environments {ended.tolist()} have ended or failed, or were loaded without a state, and have not "
            "been reset; reset them with "
            'reset(options={"reset_mask": mask}), or skip them with send(actions, env_ids=live)'
        )

    def _idle_ids(self, env_ids: Any) -> IntArray:
        if env_ids is None:
            if len(self._out) == self.num_envs:
                raise ArgumentError("env_ids: all sub-environments are pending already; recv them first")
            return np.array(sorted(self._all - self._out), dtype=np.int64)
        ids = self._indices(env_ids, once=True)
        if not len(ids):
            raise ArgumentError("env_ids: expected at least one sub-environment, got none; skip the call instead")
        if out := [i for i in ids.tolist() if i in self._out]:
            raise ArgumentError(f"env_ids: sub-environments {out} are pending already; recv them first")
        return ids

    def _indices(self, indices: Any, what: str = "env_ids", *, once: bool = False) -> IntArray:
        return self.all_ids if indices is None else read_indices(indices, self.num_envs, what, once=once)

    def _indices_of_call(self, indices: Any) -> list[int]:
        in_order: list[int] = self._indices(indices, "indices", once=True).tolist()
        return in_order

    def _seeds(self, seed: Any, env_ids: IntArray) -> list[int | None]:
        """Return the seed of each of these rows; build's seed is used if none is given."""
        given = read_seeds(seed, env_ids, self.num_envs, self.start_index)
        if self._build_seed is None:
            return given
        of_build = read_seeds(self._build_seed, env_ids, self.num_envs, self.start_index)
        return [own if own is not None else built for own, built in zip(given, of_build, strict=True)]

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _call_async(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], indices: Any) -> None:
        self._refuse_pending("call_async")
        if name in ("reset", "step", "close"):
            raise ArgumentError(f"call({name!r}): use the vector environment's {name}(), so that it can track episodes")
        ids = self._indices_of_call(indices)
        self._wait_until_made(ids)
        with self._interrupts:
            self._interrupts.hold()
            self._ask("call", ids, [(name, args, kwargs)] * len(ids))
            self._asked, self._pending, self.in_line = ids, "call", False

    def _call_wait(self, timeout: float | None) -> tuple[Any, ...]:
        self._refuse_closed("call_wait")
        if self._pending != "call":
            raise NoAsyncCallError("Calling `call_wait` without any prior call to `call_async`.", "call")
        try:
            with self._interrupts:
                values, failures = self._answers(None if timeout is None else time.monotonic() + timeout)
        except BaseException as error:
            goes_on = isinstance(error, TimeoutError) or (
                (is_interrupt(error) or not isinstance(error, Exception)) and self._answers_are_kept()
            )
            if not goes_on:
                self._pending = None
            raise
        self._pending = None
        _raise_first(failures)
        return tuple(values[i] for i in self._asked)

    def _get_attr(self, name: str, indices: Any) -> tuple[Any, ...]:
        self._refuse_pending("get_attr")
        ids = self._indices_of_call(indices)
        return self._call_now("get_attr", [(name,)] * len(ids), ids)

    def _set_attr(self, name: str, values: Any, indices: Any) -> None:
        self._refuse_pending("set_attr")
        recovery = self._recovery
        ids = self._indices_of_call(indices)
        each = values if isinstance(values, (list, tuple)) else [values] * len(ids)
        if len(each) != len(ids):
            raise ArgumentError(f"set_attr({name!r}): expected one value or {len(ids)} values, got {len(each)}")
        interrupted = False
        try:
            near = self._call_now("set_attr", [(name, value) for value in each], ids)
        except BaseException as error:
            interrupted = is_interrupt(error) or not isinstance(error, Exception)
            raise
        finally:  # remember it for those that succeeded, even if others failed; after an interrupt, for all
            if recovery is not None:
                for i, value in zip(ids, each, strict=True):
                    if i in self._values or interrupted:
                        recovery.set_attribute(i, name, value)
        if any(near) and name not in self._misspelt:
            self._misspelt.add(name)
            warnings.warn(
                f'set_attr: "{name}" is new: no layer and no environment had it.'
                f"{did_you_mean(name, filter(None, near))} It was set on the environment itself.",
                stacklevel=3,
            )

    def _follow(self, schedules: Sequence[bytes]) -> None:
        self._refuse_pending("follow")
        self._call_now("follow", [(schedule,) for schedule in schedules], self.all_ids.tolist())
        self.slots.scheduled[:] = 0
        self._on_schedule = True
        if self._recovery is not None:
            self._recovery.follow(schedules)

    def _scheduled(self) -> tuple[dict[str, Any], ...]:
        """The position of each sub-environment in its schedule, and the state of its function."""
        return tuple(self._ask_all("scheduled"))

    def _go_on_in_schedule(self, states: Sequence[dict[str, Any]]) -> None:
        self._call_now("go_on_in_schedule", [(state,) for state in states], self.all_ids.tolist())
        episodes = [state["episodes"] for state in states]
        self.slots.scheduled[:] = episodes
        if self._recovery is not None:
            self._recovery.go_on_in_schedule(episodes)

    def _leave_seed_to_schedules(self) -> None:
        """Keep build's seed from restarting schedules: it serves only first resets without a scheduled seed."""
        if self._build_seed is None or not self._on_schedule:
            return
        seeds = self._seeds(None, self.all_ids)
        self._call_now("leave_seed", [(seed,) for seed in seeds], self.all_ids.tolist())
        self._build_seed = None
        if self._recovery is not None:
            self._recovery.seeded(seeds)

    def _sub_env_states(self) -> tuple[list[dict[str, Any]] | None, str | None]:
        """Return the state of each sub-environment, or None and the reason."""
        if self._any_ended and self._never_reset.any():
            return None, "it has not been reset yet"
        try:
            states = self._ask_all("state")
        except (SubEnvError, ResetNeededError) as error:
            return None, str(error)
        except BackendError as error:  # saving killed a worker twice: save only the layers
            if self._recovery is None:
                raise
            return None, str(error)
        for i, state in enumerate(states):
            state["ended"] = bool(self._ended[i])
            if self._recovery is not None:
                state["recovery"] = self._recovery.state(i, self.slots)
        return states, None

    def _load_sub_env_states(self, states: Sequence[dict[str, Any]] | None) -> None:
        """Restore all sub-environments, or if one refuses, none of them; without states, each needs a reset."""
        self.in_line = False
        if states is None:
            self._ended[:] = self._any_ended = True
            return
        attributes = [self._attributes_of(i, state) for i, state in enumerate(states)]
        try:
            before = self._ask_all("state")
            self._ask_all("load_state", list(zip(states, attributes, strict=True)))
        except SubEnvError as error:
            try:
                self._ask_all("load_state", [(state, self._attributes_of(i, state)) for i, state in enumerate(before)])
            except SubEnvError:  # its own code fails again
                self._load_sub_env_states(None)
            raise CheckpointError(f"{error}; its saved state does not fit; save it anew") from error
        self._never_reset[:] = False
        for i, state in enumerate(states):
            self.slots.observations.put(i, state["observation"])
            self._ended[i] = state.get("ended", state["over"] and self.autoreset is Autoreset.DISABLED)
            if self._recovery is not None:
                self._recovery.loaded(i, state, self.slots)
        self._any_ended = bool(self._ended.any())

    def _attributes_of(self, i: int, state: dict[str, Any]) -> dict[str, Any]:
        """Return the attributes set on a sub-environment that was saved after a restart, before any reset."""
        if state["env"] is not None:
            return {}
        if self._recovery is not None:
            return self._recovery.attributes_of(i, state)
        return dict(state.get("recovery", {}).get("attributes", {}))

    def _ask_all(self, method: str, arguments: Sequence[tuple[Any, ...]] = ()) -> list[Any]:
        """Call a method that may be called twice on all; if a worker dies meanwhile, again, replacements included."""
        arguments, ids = arguments or [()] * self.num_envs, self.all_ids.tolist()
        try:
            return list(self._call_now(method, arguments, ids))
        except BackendError:
            if self._recovery is None:
                raise
        return list(self._call_now(method, arguments, ids))

    def _call_now(self, method: str, arguments: Sequence[tuple[Any, ...]], ids: Sequence[int]) -> tuple[Any, ...]:
        self._values = {}
        self._wait_until_made(ids)
        with self._interrupts:
            self._interrupts.hold()
            self._ask(method, ids, arguments)
            self._interrupts.let_through()
            self._values, failures = self._answers(None)
        _raise_first(failures)
        return tuple(self._values[i] for i in ids)

    # -- the face's spaces, and the end --------------------------------------------------------------------------------

    def _adopt(self, description: Description) -> None:
        self.metadata = {**description.metadata, "autoreset_mode": self.autoreset.gymnasium}
        self.render_mode = description.render_mode
        self.spec = description.spec
        self.env_name = description.name
        # A copy: gymnasium.make_vec later sets the id of `spec` to that of a whole pipeline.
        self.env_id = description.spec.id if description.spec is not None else description.name
        self._set_observation_space(deepcopy(description.observation_space))
        self._set_action_space(deepcopy(description.action_space))

    def close(self, timeout: float | None = None, terminate: bool = False) -> None:  # type: ignore[override]
        """Close every sub-environment and worker; may be called again, in any state.

        Args:
            timeout: seconds to wait for the workers before they are killed; None means 5.
            terminate: kill the workers at once instead.
        """
        self._close(timeout, terminate, tell=True)

    def _close(self, timeout: float | None, terminate: bool, *, tell: bool = False) -> None:
        if not self._open:
            return
        # With `batch_size`, rows are pending whenever a loop ends; an exception says why a call is, also to its wait.
        known = self._broken is not None or self._interrupts.inside or sys.exc_info()[0] is not None
        waited_for = self._pending == "call" or (self._pending in ("step", "reset") and self._out)
        dropped = self._pending if tell and waited_for and not known else None
        self.closed, self._open, self.in_line = True, False, False
        self._pending = self._through = None
        try:
            self._stop(5.0 if timeout is None else timeout, terminate)
        except BaseException as error:
            self._open = not isinstance(error, Exception)  # after an interrupt the next call continues
            raise
        finally:
            self._interrupts.close()
        if dropped is not None:  # last, because filters may make it an exception
            warnings.warn(
                f"Calling `close` while waiting for a pending call to `{dropped}` to complete; its result is dropped.",
                stacklevel=3,
            )

    @property
    def _root(self) -> Backend:  # type: ignore[override]
        """This backend; a property, because a reference to itself would keep an unused one alive."""
        return self

    def _close_at_exit(self) -> None:
        self._close(None, terminate=True)

    def __del__(self) -> None:
        if self._open:
            with self._interrupts:
                self._interrupts.hold()  # nothing could close it later
                self._close(None, terminate=True)

    @property  # type: ignore[misc]
    def np_random(self) -> Any:
        """A tuple of the sub-environments' generators (copies, if they live in other processes)."""
        return self._get_attr("np_random", None)

    @property
    def np_random_seed(self) -> Any:
        """A tuple of the sub-environments' seeds."""
        return self._get_attr("np_random_seed", None)


def _raise_first(failures: Sequence[Failure]) -> None:
    if failures:
        errors = errors_of(failures)
        errors[0].failures = errors
        raise errors[0]


def read_indices(indices: Any, num_envs: int, what: str = "env_ids", *, once: bool = False) -> IntArray:
    """Read indices of sub-environments, an int or a sequence of them, into (k,) int64 in their order."""
    ids = np.atleast_1d(np.asarray(indices))
    if ids.dtype.kind not in "iu" and ids.size:
        raise ArgumentError(f"{what}: expected integers, got {indices!r}")
    if ids.ndim != 1 or (ids < 0).any() or (ids >= num_envs).any():
        raise ArgumentError(f"{what}: expected indices from 0 to {num_envs - 1}, got {indices!r}")
    if once and len(np.unique(ids)) != len(ids):
        raise ArgumentError(f"{what}: expected each index once, got {ids.tolist()}")
    return ids.astype(np.int64)


def read_seeds(seed: Any, env_ids: IntArray, num_envs: int, start_index: int = 0) -> list[int | None]:
    """Return the seed of each of these rows, or None if it gets none; i gets ``seed + start_index + i`` of an int."""
    if seed is None:
        return [None] * len(env_ids)
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, (bool, np.bool_)):
        return [_seed(int(seed) + start_index + i) for i in env_ids.tolist()]
    try:
        seeds = [] if isinstance(seed, (str, bytes)) else list(seed)
    except TypeError:
        seeds = []
    if not seeds:
        raise ArgumentError(f"seed: expected an int, a sequence of {num_envs} or None, got {seed!r}")
    if len(seeds) != num_envs:
        raise ArgumentError(f"seed: expected {num_envs} seeds, one for each sub-environment, got {len(seeds)}")
    return [None if seeds[i] is None else _seed(seeds[i]) for i in env_ids.tolist()]


def _seed(seed: Any) -> int:
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, (bool, np.bool_)):
        raise ArgumentError(f"seed: expected an int, got {seed!r}")
    if seed < 0:
        raise ArgumentError(f"seed: expected an int of at least 0, got {seed}")
    return int(seed)
