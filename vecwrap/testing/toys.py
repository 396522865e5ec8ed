"""Toy environments: all kinds of spaces and ends, mixed infos, and bad behaviour on request."""

from __future__ import annotations

import contextlib
import gc
import os
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.spaces.text import alphanumeric

# In order: Gymnasium before 1.4 draws from a set, whose order differs from one interpreter to the
# next.
LETTERS = "".join(sorted(alphanumeric))


class Polylines(spaces.Space[Any]):
    """A custom space, unknown to Gymnasium: lists of one to three (2,) float32 points."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(None, None, seed)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def sample(self, mask: Any = None, probability: Any = None) -> list[Any]:
        return [
            self.np_random.random(2, np.float32) for _ in range(int(self.np_random.integers(1, 4)))
        ]

    def contains(self, x: Any) -> bool:
        return (
            isinstance(x, list)
            and all(isinstance(p, np.ndarray) and p.shape == (2,) for p in x)
            and 1 <= len(x) <= 3
        )

    def __repr__(self) -> str:
        return "Polylines()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polylines)

    __hash__ = None  # type: ignore[assignment]


def _nested() -> spaces.Space[Any]:
    """Dict and Tuple nested three deep, with leaves of every fixed size."""
    return spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (2, 3, 3), np.uint8),
            "body": spaces.Dict(
                {
                    "joints": spaces.Tuple(
                        (
                            spaces.Box(-1, 1, (2,), np.float64),
                            spaces.Discrete(4, start=-2),
                            spaces.Text(5, min_length=0, charset=LETTERS),
                        )
                    ),
                    "contacts": spaces.MultiBinary(3),
                }
            ),
            "orders": spaces.Tuple(
                (spaces.MultiDiscrete([3, 5], start=[-1, 2]), spaces.Discrete(2))
            ),
        }
    )


def _mixed() -> spaces.Space[Any]:
    """Leaves with and without an array form."""
    return spaces.Dict(
        {
            "position": spaces.Box(-1, 1, (2,), np.float32),
            "loose": spaces.Tuple(
                (
                    Polylines(),
                    spaces.Sequence(spaces.Box(0, 1, (2,), np.float32)),
                    spaces.Text(4, charset=LETTERS),
                )
            ),
            "mesh": spaces.Graph(spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3)),
        }
    )


SPACES: dict[str, Callable[[], spaces.Space[Any]]] = {
    "box_float32": lambda: spaces.Box(-1, 1, (3,), np.float32),
    "box_float64": lambda: spaces.Box(-np.inf, np.inf, (2, 2), np.float64),
    "box_uint8": lambda: spaces.Box(0, 255, (4, 5, 3), np.uint8),
    "box_int16": lambda: spaces.Box(-300, 300, (2,), np.int16),
    "box_scalar": lambda: spaces.Box(-1, 1, (), np.float32),
    "discrete": lambda: spaces.Discrete(5, start=-2),
    "multi_binary": lambda: spaces.MultiBinary((2, 3)),
    "multi_discrete": lambda: spaces.MultiDiscrete([3, 4], start=[-1, 2]),
    "text": lambda: spaces.Text(8, min_length=0, charset=LETTERS),
    "dict": lambda: spaces.Dict(
        {"a": spaces.Box(-1, 1, (2,), np.float32), "b": spaces.Discrete(3)}
    ),
    "tuple": lambda: spaces.Tuple((spaces.MultiBinary(2), spaces.Box(0, 9, (1,), np.int32))),
    "nested": _nested,
    "graph": lambda: spaces.Graph(spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3)),
    "sequence": lambda: spaces.Sequence(spaces.Discrete(7, start=1)),
    "stacked_sequence": lambda: spaces.Sequence(spaces.Box(0, 1, (2,), np.float32), stack=True),
    "one_of": lambda: spaces.OneOf((spaces.Discrete(3), spaces.Box(0, 1, (2,), np.float32))),
    "custom": Polylines,
    "mixed": _mixed,
}
"""Every kind of space that a sub-environment can have, by name."""


def digest(value: Any) -> int:
    """Return a number that depends on every byte of a value, the same in every process."""
    if isinstance(value, dict):
        return zlib.crc32(repr([(key, digest(item)) for key, item in value.items()]).encode())
    if isinstance(value, (tuple, list)) or (
        isinstance(value, np.ndarray) and value.dtype == object
    ):
        return zlib.crc32(repr([digest(item) for item in value]).encode())
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        return zlib.crc32(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return zlib.crc32(repr(value).encode())


_STATE = ("bonus", "raise_in", "_steps", "_history", "_episode", "_drawn_seed")


class ToyEnv(gymnasium.Env[Any, Any]):
    """An environment that draws observations, rewards, ends and infos from its ``np_random``.

    Rewards depend on all actions of the episode, so an action that reaches the wrong
    sub-environment, or reaches it changed, is detected. Episodes end by termination, by truncation,
    and sometimes by both; some last one step.

    Args:
        observations: a name in ``SPACES``.
        actions: likewise.
        end: the probability of each kind of end, in each step.
        limit: steps after which an episode is truncated in any case.
        render_mode: None or ``"rgb_array"``, for ``render``.

    >>> env = ToyEnv(observations="dict", actions="multi_binary", limit=1)
    >>> observation, info = env.reset(seed=1, options={"level": 3})
    >>> sorted(observation), info["options"]
    (['a', 'b'], {'level': 3})
    >>> observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
    >>> truncated, info["steps"]
    (True, 1)
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(
        self,
        observations: str = "box_float32",
        actions: str = "discrete",
        *,
        end: float = 0.05,
        limit: int = 40,
        render_mode: str | None = None,
    ) -> None:
        self.observation_space: gymnasium.spaces.Space[Any] = SPACES[observations]()
        self.action_space: gymnasium.spaces.Space[Any] = SPACES[actions]()
        self.render_mode = render_mode
        self.bonus: float = 0.0  # added to each reward; for set_attr
        self.raise_in: str | None = None  # "step" or "reset" raises once; for tests of errors
        self._end = end
        self._limit = limit
        self._drawn = SPACES[
            observations
        ]()  # a separate space, so that sampling leaves the public one alone
        self._drawn_seed = 0
        self._steps = 0
        self._history = 0
        self._episode = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; the options are returned in the info."""
        super().reset(seed=seed)
        self._raise("reset")
        self._steps = 0
        self._history = 0
        self._episode += 1
        if seed is not None:
            self._episode = 1
        self._drawn_seed = int(self.np_random.integers(2**31))
        self._drawn.seed(self._drawn_seed)
        info = {"episode_number": self._episode, **self._info()}
        if options:
            info["options"] = dict(options)
        return self._drawn.sample(), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step; the reward depends on every action since the reset."""
        self._raise("step")
        self._steps += 1
        self._history = zlib.crc32(f"{self._history} {digest(action)}".encode())
        reward = float(self.np_random.normal()) + self._history % 1000 + self.bonus
        terminated = bool(self.np_random.random() < self._end)
        truncated = bool(self.np_random.random() < self._end) or self._steps >= self._limit
        return (
            self._drawn.sample(),
            reward,
            terminated,
            truncated,
            {"steps": self._steps, **self._info()},
        )

    def render(self) -> Any:
        """Return a (4, 6, 3) uint8 image that encodes the step and the episode."""
        image = np.zeros((4, 6, 3), np.uint8)
        image[..., 0] = self._steps % 256
        image[..., 1] = self._episode % 256
        return image

    def greet(self, name: str, *, loud: bool = False) -> str:
        """Say hello, for ``call``.

        Args:
            name: whom to greet.
            loud: whether to use capitals.
        """
        return f"{'HELLO' if loud else 'hello'} {name} {self._steps}"

    def state(self) -> tuple[int, int, int]:
        """Return its progress; for ``call``."""
        return self._episode, self._steps, self._history

    def state_dict(self) -> dict[str, Any]:
        """Return the state needed to continue, except ``np_random``.

        ``np_random`` is saved for every environment.
        """
        return {name: getattr(self, name) for name in _STATE}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state; observations are redrawn up to the current one.

        Args:
            state: the result of ``state_dict``.
        """
        for name in _STATE:
            setattr(self, name, state[name])
        self._drawn.seed(self._drawn_seed)
        for _ in range(self._steps + 1):
            self._drawn.sample()

    def _raise(self, where: str) -> None:
        if self.raise_in == where:
            self.raise_in = None
            raise RuntimeError(f"asked to raise in {where}")

    def _info(self) -> dict[str, Any]:
        """Mixed types, absent keys, nested dicts, arrays, strings."""
        draw = int(self.np_random.integers(2**20))
        info: dict[str, Any] = {
            "lives": draw % 4,
            "score": draw / 7,
            "flags": np.array([draw % 3, draw % 2], np.int16),
            "name": "abc"[: draw % 4],
            "nested": {"depth": {"height": draw / 3}, "tag": None},
        }
        if draw % 2:  # an int here, a float there
            info["score"] = draw % 5
        if draw % 3 == 0:
            info["rare"] = np.float32(draw)
            info["nested"]["odd"] = bool(draw % 2)
        if draw % 5 == 0:
            if draw % 2:
                info["anything"] = draw
            else:
                info["anything"] = [draw, "x"]
            info["ragged"] = np.arange(draw % 4)
        return info


class ArrayReusingWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Simulates bad but possible behaviour: reuses returned arrays, and writes into arguments.

    Observations and infos are buffers that the next step or reset overwrites; actions and options
    are scribbled over.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._observation: Any = None
        self._info: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        if options is not None:
            _overwrite_with_garbage(options)
        return self._reuse(observation, info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        _overwrite_with_garbage(action)
        return (*self._reuse(observation, info)[:1], reward, terminated, truncated, self._info)

    def _reuse(self, observation: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        self._observation = _overwrite(self._observation, observation)
        self._info = _overwrite(self._info, info)
        return self._observation, self._info


def _overwrite(old: Any, new: Any) -> Any:
    """Write a value into the buffers of an older one, if they fit."""
    if isinstance(old, dict) and isinstance(new, dict):
        merged = {key: _overwrite(old.get(key), value) for key, value in new.items()}
        old.clear()
        old.update(merged)
        return old
    if isinstance(old, list) and isinstance(new, list):
        old[:] = new
        return old
    if type(old) is tuple and type(new) is tuple and len(old) == len(new):
        return tuple(_overwrite(*pair) for pair in zip(old, new, strict=True))
    if (
        isinstance(old, np.ndarray)
        and isinstance(new, np.ndarray)
        and (old.dtype, old.shape) == (new.dtype, new.shape)
    ):
        old[...] = new
        return old
    return new


def _overwrite_with_garbage(value: Any) -> None:
    """Overwrite everything in a value that is writable."""
    if isinstance(value, dict):
        for item in value.values():
            _overwrite_with_garbage(item)
        value["scribbled"] = True
    elif isinstance(value, (list, tuple)):
        for item in value:
            _overwrite_with_garbage(item)
        if isinstance(value, list):
            value.append("scribbled")
    elif isinstance(value, np.ndarray) and value.flags.writeable:
        value[...] = 77


def _toy(keywords: dict[str, Any], well_behaved: bool) -> gymnasium.Env[Any, Any]:
    env: gymnasium.Env[Any, Any] = ToyEnv(**keywords)
    if well_behaved:
        return env
    return ArrayReusingWrapper(env)


def toy(*, well_behaved: bool = False, **keywords: Any) -> Callable[[], gymnasium.Env[Any, Any]]:
    """Return a factory of toy environments that can be sent to another process.

    Args:
        well_behaved: whether the environment leaves its results and its arguments alone; otherwise
            it overwrites both (``ArrayReusingWrapper``).
        **keywords: of ``ToyEnv``.

    >>> env = toy(well_behaved=True, observations="box_uint8")()
    >>> observation, info = env.reset(seed=1)
    >>> observation.shape, observation.dtype
    ((4, 5, 3), dtype('uint8'))
    """
    return partial(_toy, keywords, well_behaved)


@dataclass(frozen=True)
class OpenResources:
    """What is open at one moment."""

    children: dict[int, str]  # ids of living or unreaped child processes, with their command lines
    descriptors: dict[int, str]  # what each open file descriptor refers to
    shared: frozenset[str]  # names of mapped files that are shared memory

    @classmethod
    def now(cls) -> OpenResources:
        return cls(_children(), _descriptors(), _shared_memory())


def assert_nothing_left(
    before: OpenResources, during: OpenResources, patience: float = 5.0
) -> None:
    """Raise AssertionError if anything newer than ``before``, or a file of ``during``, is left.

    A process that was asked to end may take a moment: ``patience`` seconds.
    """
    deadline = time.monotonic() + patience
    while True:
        gc.collect()
        left = _left(before, during)
        if not left:
            return
        if time.monotonic() > deadline:
            raise AssertionError("nothing may be left behind after close, got " + "; ".join(left))
        time.sleep(0.02)


def _left(before: OpenResources, during: OpenResources) -> list[str]:
    now = OpenResources.now()
    left = [
        f"process {pid} ({name})"
        for pid, name in now.children.items()
        if pid not in before.children
    ]
    left += [
        f"descriptor {number} ({target})"
        for number, target in now.descriptors.items()
        if before.descriptors.get(number) != target
    ]
    left += [f"mapped {name}" for name in now.shared - before.shared]
    files = {name for name in during.shared - before.shared if name.startswith("/dev/shm/")}
    left += [f"file {name}" for name in files if Path(name).exists()]
    return left


def _children() -> dict[int, str]:
    children = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):  # it has just ended
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            if int(fields[1]) == os.getpid():
                children[int(folder.name)] = (folder / "cmdline").read_text().replace(
                    "\0", " "
                ).strip() or fields[0]
    return children


def _descriptors() -> dict[int, str]:
    targets = {}
    for path in Path("/proc/self/fd").glob("*"):
        with contextlib.suppress(OSError):  # the listing's own descriptor
            targets[int(path.name)] = str(path.readlink())
    return targets


def _shared_memory() -> frozenset[str]:
    maps = Path("/proc/self/maps")
    lines = []
    if maps.exists():
        lines = maps.read_text().splitlines()
    names = {line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6}
    return frozenset(name for name in names if name.startswith(("/dev/shm/", "/memfd:")))
