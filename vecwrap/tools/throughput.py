"""How many environment steps something takes in a second."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate

from vecwrap.env.random_actions import RandomActions
from vecwrap.env.vec_env import VecEnv

SEED = 1  # of every first reset and of the actions, so that all contenders play the same games
ACTION_BATCHES = 64  # drawn before the clock starts and used in turn, so that nobody pays for it
CHUNKS = 20  # how often a sample checks the clock; rarely enough to cost nothing

RunSteps: TypeAlias = Callable[
    [int], int
]  # takes so many vector steps; returns the environment steps


@dataclass
class Throughput:
    """Measures environment steps per second over repeated vector steps, times ``factor``."""

    run: RunSteps
    close: Callable[[], object] = lambda: None
    factor: float = 1.0
    clock: Callable[[], float] = time.perf_counter
    _chunk: int = 0  # steps between two looks at the clock; 0 until it is known

    def sample(self, seconds: float) -> Mapping[str, float]:
        """Return the rate over whole chunks that together last at least ``seconds``."""
        if not self._chunk:
            self._chunk = self._fitting_chunk(seconds / CHUNKS)
        done = 0
        start = self.clock()
        while True:
            done += self.run(self._chunk)
            elapsed = self.clock() - start
            if elapsed >= seconds:
                return {"rate": self.factor * done / elapsed}

    def _fitting_chunk(self, seconds: float) -> int:
        """Double the chunk until it lasts this long."""
        chunk = 1
        while True:
            start = self.clock()
            self.run(chunk)
            if self.clock() - start >= seconds:
                return chunk
            chunk *= 2


def make_stepper(step: Callable[[Any], object], actions: Iterable[Any], rows: int) -> RunSteps:
    """Return a function that takes vector steps with batches of actions in turn.

    Each vector step counts as ``rows`` environment steps.
    """
    turns = itertools.cycle(actions)

    def run(count: int) -> int:
        for action in itertools.islice(turns, count):
            step(action)
        return count * rows

    return run


def action_batches(single: spaces.Space[Any], rows: int, *, as_list: bool = False) -> list[Any]:
    """Draw the batches that every contender uses; as lists of actions where they are not arrays."""
    space = batch_space(single, rows)
    space.seed(SEED)
    batches = [space.sample() for _ in range(ACTION_BATCHES)]
    if not as_list or isinstance(batches[0], np.ndarray):
        return batches
    return [list(iterate(space, batch)) for batch in batches]


def make_driver(env: VecEnv, batch_size: int | None) -> RunSteps:
    """Return what steps an environment after a reset: ``send`` and ``recv`` with a ``batch_size``.

    Actions are drawn before anything is timed, if all are legal.
    """
    if env.call_state.action_masks.now() is not None:
        return _legal_driver(env, batch_size)
    batches = action_batches(env.single_action_space, env.num_envs, as_list=True)
    if batch_size is None:
        return make_stepper(env.step, batches, env.num_envs)
    env.send(batches[0])

    def send_and_receive(actions: Any) -> None:
        ids = env.recv()[4]["env_id"]  # those that are ready go out again at once
        env.send([actions[i] for i in ids], env_ids=ids)

    return make_stepper(send_and_receive, batches, batch_size)


def _legal_driver(env: VecEnv, batch_size: int | None) -> RunSteps:
    draw = RandomActions(env, SEED)
    if batch_size is None:
        return make_stepper(lambda _: env.step(draw()), [None], env.num_envs)
    env.send(draw())

    def send_and_receive(_: None) -> None:
        ids = env.recv()[4]["env_id"]
        env.send(draw(ids), env_ids=ids)

    return make_stepper(send_and_receive, [None], batch_size)
