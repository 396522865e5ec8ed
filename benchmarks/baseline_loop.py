"""One contender of the baseline, in an interpreter of its own: whichever vecwrap that interpreter
has installed.

It reads the case as JSON from its argument, builds the environment, and answers each line of
standard input, a number of seconds, with the vector steps a second that it made meanwhile. Only
names that 0.1.0 has are used here.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import time
import warnings
from typing import Any

import gymnasium
import numpy as np

# random batches of actions, drawn beforehand, so that drawing costs nothing while time is taken
POOL = 256
WARM_UP = 0.2  # seconds


def gymnasium_env(case: dict[str, Any]) -> Any:
    """Build the same with Gymnasium's Sync in same-step mode, in which its wrappers do not
    normalise observations.
    """
    same_step = gymnasium.vector.AutoresetMode.SAME_STEP
    make = functools.partial(gymnasium.make, case["env"])
    env = gymnasium.vector.SyncVectorEnv([make] * case["n"], autoreset_mode=same_step)
    return gymnasium.wrappers.vector.RecordEpisodeStatistics(env) if case["wrappers"] else env


def vecwrap_env(case: dict[str, Any]) -> Any:
    """Build it with the vecwrap that is installed here."""
    import vecwrap

    return vecwrap.build(case["env"], n=case["n"], wrappers=case["wrappers"], **case["options"])


def balance(observations: Any) -> Any:
    """Push the cart to the side that the pole falls to: episodes of CartPole last hundreds of
    steps.
    """
    last = observations if observations.ndim == 2 else observations[:, -1]
    return (last[:, 2] + 0.5 * last[:, 3] > 0).astype(np.int64)


class Loop:
    """Steps one environment, under random actions drawn beforehand or the balancing policy."""

    def __init__(self, env: Any, case: dict[str, Any]) -> None:
        self.env, self.case = env, case
        env.action_space.seed(1)
        self.pool = [env.action_space.sample() for _ in range(POOL)]
        self.observations, _ = env.reset(seed=1)
        self.step = self.send_and_receive if case["batch_size"] else self.whole
        if case["batch_size"]:
            env.send(self.pool[0])
        self.count = 0

    def whole(self) -> None:
        """Step all of them."""
        actions = (
            balance(self.observations) if self.case["balance"] else self.pool[self.count % POOL]
        )
        self.observations, *_ = self.env.step(actions)

    def send_and_receive(self) -> None:
        """Receive those that are ready, and send them on."""
        *_, infos = self.env.recv()
        self.env.send(self.pool[self.count % POOL][: len(infos["env_id"])], infos["env_id"])

    def run(self, seconds: float) -> float:
        """Step for so long; return steps a second."""
        step, start = self.step, time.perf_counter()
        done, end = 0, start + seconds
        while (now := time.perf_counter()) < end:
            for _ in range(10):
                self.count += 1
                step()
            done += 10
        return done / (now - start)


def main() -> None:
    """Serve one contender until standard input ends."""
    warnings.simplefilter("ignore")
    case = json.loads(sys.argv[1])
    env = gymnasium_env(case) if case["peer"] else vecwrap_env(case)
    with contextlib.closing(env):
        loop = Loop(env, case)
        loop.run(WARM_UP)
        print("ready", flush=True)
        for line in sys.stdin:
            print(loop.run(float(line)), flush=True)


if __name__ == "__main__":
    main()
