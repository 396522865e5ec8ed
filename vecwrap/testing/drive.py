"""Drives several environments by the same calls, and records streams and what wrappers see."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium.vector import SyncVectorEnv

from vecwrap.backends.dummy import Dummy
from vecwrap.env.backend import Backend
from vecwrap.env.random_actions import RandomActions
from vecwrap.env.runner import Runner
from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import SubEnvError
from vecwrap.rows.compare import assert_same, info_row, rows_of, take_row
from vecwrap.rows.step_result import Autoreset, Infos, StepResult
from vecwrap.sources.source_factories import EngineFactory

# Errors are compared where they are raised.
_FIELDS = [name for name in StepResult.__slots__ if name != "failures"]
ON_REQUEST = (Autoreset.DISABLED, Autoreset.EPISODIC)  # the modes that leave resets to the caller


Factories = Sequence[Callable[[], gymnasium.Env[Any, Any]]]
MakeBackend = Callable[..., VecEnv]
"""``make_backend(factories, **options)``: those of ``vecwrap.env.backend.Backend`` and a runner."""


def on(runner: type[Runner], **fixed: Any) -> MakeBackend:
    """Return the constructor of backends with a runner, and with some of its options.

    Args:
        runner: the runner's class.
        **fixed: its options, or those of every backend.

    Returns:
        What is called as ``make_backend(factories, **options)``.

    >>> from vecwrap.backends.dummy import Dummy
    >>> from vecwrap.testing.toys import toy
    >>> on(Dummy, autoreset="disabled")([toy()] * 2).close()
    """
    make: Any = partial(Backend.of, runner, **fixed)
    make.__name__ = runner.__name__
    make.name = runner.name
    made: MakeBackend = make
    return made


on_dummy = on(Dummy)


def on_engines(runner: type[Runner], rows: int | None = None, **fixed: Any) -> MakeBackend:
    """Return the constructor of backends whose sub-environments are stepped by engines.

    Each engine is a Gymnasium ``SyncVectorEnv``, in its own autoreset mode; there is no episodic
    mode. Rows of an engine are sent together.

    Args:
        runner: the runner's class.
        rows: how many sub-environments each engine has; None: one engine has all.
        **fixed: its options, or those of every backend.

    >>> from vecwrap.backends.dummy import Dummy
    >>> from vecwrap.testing.toys import toy
    >>> with on_engines(Dummy, rows=2)([toy()] * 4, autoreset="next_step") as env:
    ...     len(env.runner.engines())
    2
    """

    def make(
        factories: Factories, *, autoreset: Autoreset | str = Autoreset.SAME_STEP, **options: Any
    ) -> VecEnv:
        mode = Autoreset.parse(autoreset).gymnasium
        number = rows or len(factories)
        engines = [
            EngineFactory(
                partial(SyncVectorEnv, factories[i : i + number], autoreset_mode=mode), number
            )
            for i in range(0, len(factories), number)
        ]
        return Backend.of(runner, engines, autoreset=autoreset, **fixed, **options)

    return make


def play(env: VecEnv, steps: int, act: Callable[[], Any]) -> Iterator[tuple[Any, ...]]:
    """Step, reset ended rows if the mode requires it, and yield all results, also of resets."""
    for _ in range(steps):
        result = env.step(act())
        ended = result[2] | result[3]
        yield result
        if ended.any() and env.core.autoreset in ON_REQUEST:
            yield of_reset(*env.reset(options={"reset_mask": ended}), env.num_envs)


def of_reset(observations: Any, infos: Infos, num_envs: int) -> tuple[Any, ...]:
    """What a reset returns, as a step would."""
    flags = np.zeros(num_envs, dtype=np.bool_)
    return observations, np.zeros(num_envs), flags, flags, infos


def assert_kept(env: VecEnv, steps: int, where: str) -> None:
    """Raise AssertionError if a result changes during later calls, or when ``env`` is closed."""
    kept: list[Any] = [env.reset(seed=3)]
    copies = deepcopy(kept)
    for result in play(env, steps, RandomActions(env, seed=3)):
        kept.append(result)
        copies.append(deepcopy(result))
    for when in ("in the end", "after close"):
        for k, pair in enumerate(zip(copies, kept, strict=True)):
            assert_same(*pair, f"{where}: what call {k} gave, looked at {when}")
        env.close()


def assert_in_space(env: VecEnv, steps: int, where: str) -> None:
    """Raise AssertionError for observations outside the space and wrong reward or flag types."""
    single = env.single_observation_space
    batched = env.observation_space
    n = env.num_envs
    forms = [(np.dtype(kind), (n,)) for kind in (np.float64, np.bool_, np.bool_)]
    first = of_reset(*env.reset(seed=7), n)
    for k, result in enumerate(chain([first], play(env, steps, RandomActions(env, seed=7)))):
        here = f"{where}, result {k}"
        _check(result[0] in batched, here, batched, result[0])
        got = [(array.dtype, array.shape) for array in result[1:4]]
        _check(got == forms, f"{here}: rewards and flags", forms, got)
        for i, row in rows_of(single, result):
            _check(row["observation"] in single, f"{here}, row {i}", single, row["observation"])
        for i in np.flatnonzero(result[4].get("_final_obs", ())).tolist():
            final = result[4]["final_obs"][i]
            _check(final in single, f"{here}, final_obs[{i}]", single, final)


def _check(holds: bool, where: str, expected: Any, got: Any) -> None:
    assert holds, f"{where}: expected {expected}, got {got!r}"


# -- the same calls on several ---------------------------------------------------------------------


class Lockstep:
    """Makes every call on a reference and other environments, and compares results and errors."""

    def __init__(self, reference: VecEnv, *others: VecEnv) -> None:
        self.envs = (reference, *others)
        self.calls = 0

    def __call__(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of each environment with the same arguments, and compare the outcomes.

        A call that changes the shared arguments is detected, too.
        """
        self.calls += 1
        before = deepcopy((args, kwargs))
        outcomes = [_outcome(getattr(env, name), args, kwargs) for env in self.envs]
        where = f"call {self.calls}, {name}"
        for env, outcome in zip(self.envs[1:], outcomes[1:], strict=True):
            assert_same(
                _comparable(outcomes[0], self.envs[0]),
                _comparable(outcome, env),
                f"{where} of {env!r}",
            )
        assert_same(before, (args, kwargs), f"{where}: arguments are never touched")
        if isinstance(outcomes[0], Exception):
            raise outcomes[0]
        return outcomes[0]


@contextmanager
def beside_dummy(make_backend: MakeBackend, factories: Factories, **options: Any) -> Any:
    """The dummy backend as the reference, and the backend under test, to be called in lockstep."""
    with ExitStack() as stack:
        yield Lockstep(
            *(stack.enter_context(make(factories, **options)) for make in (on_dummy, make_backend))
        )


_Error = TypeVar("_Error", bound=BaseException)


def assert_raises(
    kind: type[_Error], function: Callable[..., Any], *args: Any, **kwargs: Any
) -> _Error:
    """Return the error of this kind that a call raises; AssertionError for any other outcome."""
    if isinstance(function, Lockstep):
        name = args[0]
    else:
        name = getattr(function, "__name__", function)
    try:
        got = function(*args, **kwargs)
    except kind as error:
        return error
    except Exception as error:
        raise AssertionError(
            f"{name}: expected {kind.__name__}, got {type(error).__name__}: {error}"
        ) from error
    raise AssertionError(f"{name}: expected {kind.__name__}, got {got!r}")


def _outcome(method: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    try:
        return method(*args, **kwargs)
    except Exception as error:
        return error


def _comparable(outcome: Any, env: VecEnv) -> Any:
    """What must be equal; of an error's message, all but the environment's own name."""
    if not isinstance(outcome, Exception):
        return outcome
    told: list[Any] = [type(outcome)]
    # Says who is waited for, which depends on the backend.
    if not isinstance(outcome, TimeoutError):
        told.append(str(outcome).replace(repr(env), "the environment"))
    if isinstance(outcome, SubEnvError):
        fields = ("index", "seed", "episode", "step", "action", "during", "others")
        told += [
            {name: getattr(outcome, name) for name in fields},
            [failure.index for failure in outcome.failures],
        ]
    return told


def drive(
    lockstep: Lockstep,
    steps: int,
    seed: int = 0,
    *,
    unrest: float = 1.0,
    options: bool = True,
    parts: float = 0.0,
) -> dict[str, int]:
    """Step, with masked resets, seeds and options mixed in as each autoreset mode needs and allows.

    ``unrest`` is how often resets interrupt running episodes; 1 does so in about one of thirty
    steps. ``parts`` is the share of steps that only some of the sub-environments take, by ``send``
    and ``recv``: each ``recv`` returns what was sent, so that wrappers with statistics over the
    batch count the same rows. Returns how many ``terminations`` and ``truncations`` were met.
    """
    env = lockstep.envs[0]
    mode = env.core.autoreset
    num_envs = env.num_envs
    rng = np.random.default_rng(seed)
    policy = RandomActions(env, seed)
    lockstep("reset", seed=seed)
    over = np.zeros(num_envs, dtype=np.bool_)  # ended, and not reset yet
    met = {"terminations": 0, "truncations": 0}
    for _ in range(steps):
        ids = np.arange(num_envs)
        if num_envs > 1 and parts and rng.random() < parts:
            ids = rng.permutation(num_envs)[: rng.integers(1, num_envs)]
        if mode is Autoreset.DISABLED:
            ids = ids[~over[ids]]
        if len(ids) == num_envs:
            result = lockstep("step", policy())
        elif len(ids):
            lockstep("send", policy(ids.tolist()), env_ids=ids)
            result = lockstep("recv")
            ids = np.sort(ids)
        if len(ids):
            resting = over[ids] & (mode is Autoreset.EPISODIC)
            met["terminations"] += int((result[2] & ~resting).sum())
            met["truncations"] += int((result[3] & ~resting).sum())
            over[ids] = result[2] | result[3]
        mask = rng.random(num_envs) < (0.3 if rng.random() < 0.05 * unrest else 0.0)
        if mode in ON_REQUEST and (
            (mode is Autoreset.DISABLED and not parts) or rng.random() < 0.3
        ):
            mask |= over
        if mask.any():
            asked = {**_some_options(rng, options), "reset_mask": mask}
            lockstep("reset", seed=_some_seeds(rng, num_envs), options=asked)
            over &= ~mask
        if rng.random() < 0.02 * unrest:
            lockstep(
                "reset",
                seed=_some_seeds(rng, num_envs),
                options=_some_options(rng, options) or None,
            )
            over[:] = False
    return met


def _some_seeds(rng: np.random.Generator, num_envs: int) -> Any:
    choice = rng.integers(4)
    if choice == 0:
        return int(rng.integers(1000))
    if choice == 1:
        seeds: list[int | None] = [None] * num_envs
        for i in range(num_envs):
            if rng.random() >= 0.5:
                seeds[i] = int(rng.integers(1000))
        return seeds
    return None


def _some_options(rng: np.random.Generator, wanted: bool) -> dict[str, Any]:
    if not wanted or rng.random() < 0.5:
        return {}
    return {"level": int(rng.integers(5)), "map": rng.random(2)}


# -- each sub-environment's own stream -------------------------------------------------------------


def drive_rows(
    env: VecEnv, steps: int, seed: int = 0, *, ignore: Collection[str] = ()
) -> list[list[dict[str, Any]]]:
    """Step every sub-environment ``steps`` times by ``send`` and ``recv``, when its row arrives.

    Some episodes are cut short by a masked reset. When, and which actions are taken, depends on the
    sub-environment and on how often it has acted, not on the mode or the others. In the modes
    without autoreset an ended row is reset with a mask; in episodic mode it may rest first. Returns
    the rows of each, in order, as ``rows_of`` gives them.
    """
    streams: list[list[dict[str, Any]]] = [[] for _ in range(env.num_envs)]
    for result, ids in arrivals(env, steps, seed):
        for i, row in rows_of(env.single_observation_space, result, ignore):
            if i in ids:
                streams[i].append(row)
    return streams


def arrivals(
    env: VecEnv, steps: int, seed: int, start: int = 0
) -> Iterator[tuple[tuple[Any, ...], Collection[int]]]:
    """Yield what ``drive_rows`` receives, with the sub-environments that it is about."""
    n = env.num_envs
    mode = env.core.autoreset
    policy = RandomActions(env, seed, start)
    acted = np.zeros(n, dtype=np.int64)
    over = np.zeros(n, dtype=np.bool_)  # ended, and not reset yet
    rested = np.zeros(n, dtype=np.int64)
    due = np.zeros(n, dtype=np.bool_)  # to be reset with a mask
    out: set[int] = set()

    def breaks_off(i: int) -> bool:
        return bool(np.random.default_rng([seed, start + i, acted[i]]).random() < 0.03)

    yield of_reset(*env.reset(seed=seed), n), range(n)
    while True:
        ready = [i for i in reversed(range(n)) if i not in out and acted[i] < steps and not due[i]]
        if ready:
            actions = []
            for i in ready:
                if over[i]:
                    actions.append(policy.unused())
                else:
                    actions.append(policy([i])[0])
            env.send(actions, env_ids=ready)
            out |= set(ready)
        if not out:
            return
        result = env.recv()
        home = result[4]["env_id"].tolist()
        assert out.issuperset(home), f"recv: expected pending rows, {sorted(out)}, got {home}"
        yield result, home
        out -= set(home)
        for k, i in enumerate(home):
            done = bool(result[2][k] | result[3][k])
            if over[i]:  # it did not act: the reset step of next-step mode, or a row at rest
                got = (float(result[1][k]), done)
                expected = (0.0, mode is Autoreset.EPISODIC)
                assert got == expected, (
                    f"{mode}, row {i} did not act: expected reward and done {expected}, got {got}"
                )
                rested[i] += 1
            else:
                acted[i] += 1
                due[i] = not done and breaks_off(i)
            over[i] = done and mode is not Autoreset.SAME_STEP
            due[i] |= (
                over[i]
                and mode in ON_REQUEST
                and (mode is Autoreset.DISABLED or rested[i] >= i % 3)
            )
        mask = due & (acted < steps)
        if not out and mask.any():
            yield (
                of_reset(*env.reset(options={"reset_mask": mask}), n),
                np.flatnonzero(mask).tolist(),
            )
            over[mask] = due[mask] = False
            rested[mask] = 0


# -- what wrappers see -----------------------------------------------------------------------------


class StepRecorder(VecEnvWrapper):
    """Records results, makes their arrays read-only, and removes infos that depend on a clock."""

    def __init__(self, env: VecEnv, *, ignore: Collection[str] = (), keep: bool = False) -> None:
        super().__init__(env)
        self.seen: dict[str, Any] = {}  # the last StepResult's fields
        self.keys: set[str] = set()  # all keys that infos have had
        # If kept: the fields of every result, with copies of them.
        self.history: list[tuple[Any, Any]] = []
        self._ignore = ignore
        self._keep = keep

    def on_step(self, step: StepResult) -> None:
        if self._ignore:
            step.infos = _without(step.infos, self._ignore)
            if step.final_infos is not None:
                step.final_infos = _without(step.final_infos, self._ignore)
        self.keys.update(step.infos, step.final_infos or ())
        self.seen = {name: getattr(step, name) for name in _FIELDS}
        freeze(self.seen)
        if self._keep:
            self.history.append((self.seen, deepcopy(self.seen)))


def freeze(value: Any) -> None:
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple):
        for item in value:
            freeze(item)
    elif isinstance(value, np.ndarray):
        value.flags.writeable = False


def _without(infos: Infos, ignore: Collection[str], prefix: str = "") -> Infos:
    """Columns without those of some dotted names, and without their masks."""
    kept: Infos = {}
    for key, column in infos.items():
        name = f"{prefix}{key}"
        if name in ignore or (key.startswith("_") and f"{prefix}{key[1:]}" in ignore):
            continue
        if isinstance(column, dict):
            kept[key] = _without(column, ignore, f"{name}.")
        else:
            kept[key] = column
    return kept


class SideBySide(Lockstep):
    """Lockstep that also compares every StepResult below and above the wrapper.

    Raw fields and frames are compared, too.
    """

    def __init__(
        self, wrap: Callable[[VecEnv], VecEnv], *backends: VecEnv, ignore: Collection[str]
    ) -> None:
        self._below = [StepRecorder(backend, ignore=ignore) for backend in backends]
        self._above = [StepRecorder(wrap(below), ignore=ignore) for below in self._below]
        super().__init__(*self._above)

    def __call__(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of each; compare results, and StepResults below and above the wrapper."""
        outcome = super().__call__(name, *args, **kwargs)
        for where, (reference, *others) in (
            ("below the wrapper", self._below),
            ("above the wrapper", self._above),
        ):
            for witness in others:
                told = f"call {self.calls}, {name} of {witness!r}, StepResult {where}"
                assert_same(reference.seen, witness.seen, told)
        return outcome


class EpisodeRecorder(VecEnvWrapper):
    """The outermost wrapper: records each sub-environment's steps and resets, alike in all modes.

    Infos that the witness below has not seen are the wrapper's own.
    """

    def __init__(self, env: VecEnv, below: StepRecorder, ignore: Collection[str]) -> None:
        super().__init__(env)
        self._events: list[list[dict[str, Any]]] = [[] for _ in range(env.num_envs)]
        self._below = below
        self._ignore = ignore

    def on_step(self, step: StepResult) -> None:
        """Note a step of each row that acted, and a reset of each that begins an episode."""
        ends = step.terminal_observations
        space = self.single_observation_space
        for k, i in enumerate(step.env_ids.tolist()):
            infos = info_row(step.infos, k, self._ignore)
            theirs = {key: value for key, value in infos.items() if key in self._below.keys}
            added = {key: value for key, value in infos.items() if key not in self._below.keys}
            if step.acted[k]:
                last = theirs
                if step.final_infos is not None and step.first[k] and step.dones[k]:
                    last = info_row(step.final_infos, k, self._ignore)
                    last = {key: value for key, value in last.items() if key in self._below.keys}
                event = {
                    "observation": take_row(space, ends, k),
                    "reward": float(step.rewards[k]),
                    "terminated": bool(step.terminations[k]),
                    "truncated": bool(step.truncations[k]),
                    "info": last,
                    "added": added,
                }
                self._events[i].append(event)
                added = {}  # a reset in the same row has none of its own
            if step.first[k]:
                observation = take_row(space, step.observations, k)
                self._events[i].append({"observation": observation, "info": theirs, "added": added})

    def until_the_last_step(self) -> list[list[dict[str, Any]]]:
        """Return each sub-environment's events, without a reset at the end.

        Not every mode makes that reset by itself.
        """
        kept = []
        for events in self._events:
            if "reward" not in events[-1]:
                events = events[:-1]
            kept.append(events)
        return kept
