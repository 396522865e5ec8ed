"""Driving environments: the same calls on several at once, and by sub-environment in any order of arrival."""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import deepcopy
from typing import Any

import numpy as np

from vecwrap.contract import Autoreset
from vecwrap.errors import SubEnvError
from vecwrap.testing.compare import assert_same, rows_of
from vecwrap.vec_env import VecEnv

__all__ = ["Lockstep", "Policy", "drive", "drive_rows"]


class Policy:
    """Random actions that depend only on the sub-environment and on how many actions it has had.

    Args:
        env: the environment with the action space.
        seed: of the actions.
        start: the number of the first sub-environment.

    >>> from vecwrap.backends.dummy import DummyBackend
    >>> from vecwrap.testing.toys import toy
    >>> with DummyBackend([toy()] * 3) as env:
    ...     one, other = Policy(env, seed=1), Policy(env, seed=1)
    ...     first = one()
    >>> [*other([2]), *other([0, 1])] == [first[2], *first[:2]]  # in whatever order they are asked for
    True
    """

    def __init__(self, env: VecEnv, seed: int, start: int = 0) -> None:
        self._spaces = [deepcopy(env.single_action_space) for _ in range(env.num_envs)]
        for i, space in enumerate(self._spaces):
            space.seed(seed + start + i)

    def __call__(self, env_ids: Collection[int] | None = None) -> list[Any]:
        """Return the next action of each of these sub-environments."""
        return [self._spaces[i].sample() for i in (range(len(self._spaces)) if env_ids is None else env_ids)]

    def other(self) -> Any:
        """Return an action for a row that will not act, without affecting the actions of the rest."""
        return deepcopy(self._spaces[0]).sample()


class Lockstep:
    """Makes every call on a reference and on other environments, and compares the results, including errors.

    Args:
        reference: its results are returned to the caller.
        *others: the environments that must behave the same.

    >>> from vecwrap.backends.dummy import DummyBackend
    >>> from vecwrap.testing.toys import toy
    >>> with DummyBackend([toy()] * 2) as one, DummyBackend([toy()] * 2) as other:
    ...     both = Lockstep(one, other)
    ...     observations, infos = both("reset", seed=1)
    ...     other.set_attr("bonus", 1.0, indices=0)
    ...     both("get_attr", "bonus")
    Traceback (most recent call last):
        ...
    AssertionError: call 2, get_attr of <VecEnv ToyEnv, n=2, dummy, same_step>[0]: expected 0.0, got 1.0
    """

    def __init__(self, reference: VecEnv, *others: VecEnv) -> None:
        self.envs = (reference, *others)
        self.calls = 0

    def __call__(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of each; the arguments are shared, so a call that changes them is detected too.

        Raises:
            AssertionError: something differs from the reference.
            Exception: the reference's exception, if all have raised the same.
        """
        self.calls += 1
        before = deepcopy((args, kwargs))
        outcomes = [_outcome(getattr(env, name), args, kwargs) for env in self.envs]
        where = f"call {self.calls}, {name}"
        for env, outcome in zip(self.envs[1:], outcomes[1:], strict=True):
            told = _comparable(outcomes[0], self.envs[0]), _comparable(outcome, env)
            assert_same(*told, f"{where} of {env!r}")
        assert_same(before, (args, kwargs), f"{where}: arguments are never touched")
        if isinstance(outcomes[0], Exception):
            raise outcomes[0]
        return outcomes[0]


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
    if not isinstance(outcome, TimeoutError):  # says who is waited for, which depends on the backend
        told.append(str(outcome).replace(repr(env), "the environment"))
    if isinstance(outcome, SubEnvError):
        fields = ("index", "seed", "episode", "step", "action", "during", "others")
        told += [{name: getattr(outcome, name) for name in fields}, [failure.index for failure in outcome.failures]]
    return told


def drive(
    lockstep: Lockstep, steps: int, seed: int = 0, *, unrest: float = 1.0, options: bool = True
) -> dict[str, int]:
    """Step, with masked resets, seeds and options mixed in as each autoreset mode needs and allows.

    Args:
        lockstep: the environments, all of one mode.
        steps: how many steps.
        seed: of actions, masks and the first reset.
        unrest: how often running episodes are interrupted by resets; 1 interrupts in about one of thirty steps.
        options: whether resets pass options; toys accept them, other environments may refuse unknown ones.

    Returns:
        How many ``terminations`` and ``truncations`` were met, over all sub-environments.

    Raises:
        AssertionError: something differs from the reference.

    >>> from vecwrap.backends.dummy import DummyBackend
    >>> from vecwrap.testing.toys import toy
    >>> with DummyBackend([toy()] * 2) as one, DummyBackend([toy()] * 2) as other:
    ...     met = drive(Lockstep(one, other), 100, seed=1)
    >>> sorted(met), min(met.values()) > 0
    (['terminations', 'truncations'], True)
    """
    env = lockstep.envs[0]
    mode = env._root.autoreset
    rng = np.random.default_rng(seed)
    policy = Policy(env, seed)
    lockstep("reset", seed=seed)
    resting = np.zeros(env.num_envs, dtype=np.bool_)
    met = {"terminations": 0, "truncations": 0}
    for _ in range(steps):
        _, _, terminations, truncations, _ = lockstep("step", policy())
        met["terminations"] += int((terminations & ~resting).sum())
        met["truncations"] += int((truncations & ~resting).sum())
        dones = terminations | truncations
        mask = rng.random(env.num_envs) < (0.3 if rng.random() < 0.05 * unrest else 0.0)
        if mode is Autoreset.DISABLED or (mode is Autoreset.EPISODIC and rng.random() < 0.3):
            mask |= dones
        if mask.any():
            asked = {**_some_options(rng, options), "reset_mask": mask}
            lockstep("reset", seed=_some_seeds(rng, env.num_envs), options=asked)
        resting = dones & ~mask if mode is Autoreset.EPISODIC else np.zeros_like(dones)
        if rng.random() < 0.02 * unrest:
            lockstep("reset", seed=_some_seeds(rng, env.num_envs), options=_some_options(rng, options) or None)
            resting[:] = False
    return met


def _some_seeds(rng: np.random.Generator, num_envs: int) -> Any:
    choice = rng.integers(4)
    if choice == 0:
        return int(rng.integers(1000))
    if choice == 1:
        return [None if rng.random() < 0.5 else int(rng.integers(1000)) for _ in range(num_envs)]
    return None


def _some_options(rng: np.random.Generator, wanted: bool) -> dict[str, Any]:
    return {} if not wanted or rng.random() < 0.5 else {"level": int(rng.integers(5)), "map": rng.random(2)}


def drive_rows(
    env: VecEnv, steps: int, seed: int = 0, *, start: int = 0, ignore: Collection[str] = ()
) -> list[list[dict[str, Any]]]:
    """Give every sub-environment ``steps`` actions by ``send`` and ``recv``, each as soon as its row has arrived.

    In the modes without autoreset an ended row is reset with a mask; in episodic mode it rests once first.

    Args:
        env: the environment.
        steps: how many actions for each sub-environment.
        seed: of the actions and of the reset.
        start: the number of the first sub-environment, for actions.
        ignore: dotted names of infos to leave out.

    Returns:
        For each sub-environment its rows, in order, as ``rows_of`` returns them.

    >>> from vecwrap.backends.dummy import DummyBackend
    >>> from vecwrap.testing.toys import toy
    >>> with DummyBackend([toy()] * 2, batch_size=1) as env:
    ...     streams = drive_rows(env, 10, seed=1)
    >>> [len(stream) for stream in streams]  # the first reset and ten steps
    [11, 11]
    """
    space, mode = env.single_observation_space, env._root.autoreset
    policy = Policy(env, seed, start)
    streams: list[list[dict[str, Any]]] = [[] for _ in range(env.num_envs)]
    left = np.full(env.num_envs, steps)
    asked_for = mode in (Autoreset.DISABLED, Autoreset.EPISODIC)
    rests = 1 if mode is Autoreset.EPISODIC else 0  # how often a row is stepped after its end
    over_for = np.full(env.num_envs, -1)  # how many results ago its episode ended; -1: it has not
    out: set[int] = set()

    def note(result: tuple[Any, ...], only: Collection[int]) -> None:
        for i, row in rows_of(space, result, ignore):
            if i in only:
                streams[i].append(row)

    def reset(mask: np.ndarray[Any, Any], **arguments: Any) -> None:
        observations, infos = env.reset(**arguments)
        flags = np.zeros(env.num_envs, dtype=np.bool_)
        note((observations, np.zeros(env.num_envs), flags, flags, infos), np.flatnonzero(mask).tolist())
        over_for[mask] = -1

    reset(np.ones(env.num_envs, dtype=np.bool_), seed=seed)
    while True:
        ready = [i for i in reversed(range(env.num_envs)) if i not in out and left[i] and over_for[i] < rests]
        if ready:
            left[ready] -= 1
            env.send(policy(ready), env_ids=ready)
            out |= set(ready)
        if not out:
            return streams
        result = env.recv()
        home = result[4]["env_id"]
        assert out.issuperset(home.tolist()), f"recv: expected pending rows, {sorted(out)}, got {home.tolist()}"
        note(result, out)
        out -= set(home.tolist())
        over_for[home] = np.where((result[2] | result[3]) & asked_for, over_for[home] + 1, -1)
        waiting = (over_for >= rests) & (left > 0)
        if not out and waiting.any():
            reset(waiting, options={"reset_mask": waiting})
