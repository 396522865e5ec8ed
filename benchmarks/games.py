"""Games of several agents: `python -m benchmarks.games` prints two tables.

turns: 64 games of connect four, random legal moves, beside SuperSuit's vectors of the same game as
a parallel one, in plies a second. at once: a game of two agents with cheap steps (a MountainCar
each), beside as many cars by themselves.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from gymnasium.envs.classic_control import MountainCarEnv
from pettingzoo import ParallelEnv

import vecwrap
from benchmarks.beside import lines, opened
from benchmarks.measure import Contender, measure_rounds
from benchmarks.pages import table
from vecwrap.tools.throughput import SEED, Throughput

GAMES, CHEAP = 64, 32


def played(env: Any, masks_of: Callable[[Any, Any], Any], clock: Callable[[], float]) -> Throughput:
    """Play random legal moves; one ply a game and vector step."""
    rng = np.random.default_rng(SEED)
    seen = [env.reset(seed=SEED)[0]]

    def run(count: int) -> int:
        for _ in range(count):
            masks = masks_of(env, seen[0])
            actions = (rng.random(masks.shape) * masks).argmax(axis=1)
            seen[0] = env.step(actions)[0]
        return count * GAMES

    return Throughput(run, env.close, clock=clock)


def ours(backend: str, clock: Callable[[], float]) -> Throughput:
    env = vecwrap.build("pettingzoo:classic/connect_four-v3", n=GAMES, backend=backend)
    return played(env, lambda env, _: env.action_masks(), clock)


def supersuits(num_cpus: int, clock: Callable[[], float]) -> Throughput:
    import supersuit
    from pettingzoo.classic.connect_four import connect_four
    from pettingzoo.utils.conversions import turn_based_aec_to_parallel

    game = supersuit.pettingzoo_env_to_vec_env_v1(turn_based_aec_to_parallel(connect_four.env()))
    env = supersuit.concat_vec_envs_v1(game, GAMES, num_cpus=num_cpus, base_class="gymnasium")
    return played(env, lambda _, seen: seen["action_mask"], clock)


class Cheap(MountainCarEnv):
    """A car that is sent home after 200 steps, as all of a game are at once."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin."""
        self.time = 0
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        """Take a step."""
        self.time += 1
        seen, paid, *_ = super().step(action)
        return seen, paid, False, self.time == 200, {}


class CheapGame(ParallelEnv[Any, Any, Any]):
    """Two agents with a car each."""

    metadata = {"name": "cheap"}
    possible_agents = ["a", "b"]
    render_mode = None

    def __init__(self) -> None:
        self.cars = {agent: Cheap() for agent in self.possible_agents}

    def observation_space(self, agent: Any) -> Any:
        """The same for both."""
        return self.cars["a"].observation_space

    def action_space(self, agent: Any) -> Any:
        """The same for both."""
        return self.cars["a"].action_space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        """Begin."""
        self.agents = ["a", "b"]
        return {agent: car.reset(seed=seed)[0] for agent, car in self.cars.items()}, {
            "a": {},
            "b": {},
        }

    def step(self, actions: Any) -> Any:
        """Take a step."""
        seen, paid, done, over, infos = {}, {}, {}, {}, {}
        for agent, car in self.cars.items():
            seen[agent], paid[agent], done[agent], over[agent], infos[agent] = car.step(
                actions[agent]
            )
        if over["a"]:
            self.agents = []
        return seen, paid, done, over, infos

    def close(self) -> None:
        """Nothing is open."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one contender in one round")
    parser.add_argument(
        "--processor",
        action="store_true",
        help="count this process's time alone, and leave out what uses others",
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # the peers' own
    clock = time.process_time if options.processor else time.perf_counter

    def measure(makes: Any) -> Any:
        contenders = [
            Contender(name, "peer" if i else "ours", make)
            for i, (name, make) in enumerate(makes.items())
        ]
        return measure_rounds(contenders, options.rounds, options.seconds)

    makes: dict[str, Any] = {
        "vecwrap dummy": partial(ours, "dummy", clock),
        "SuperSuit": partial(supersuits, 0, clock),
    }
    if not options.processor:
        makes |= {
            "vecwrap shmem": partial(ours, "shmem", clock),
            "SuperSuit, 2 cpus": partial(supersuits, 2, clock),
        }
    title = f"{GAMES} games of connect four, plies a second"
    print(table([[title, *makes], lines(measure, "random legal moves", makes)]), flush=True)

    rows: dict[str, Any] = {
        "games of two": partial(
            opened, partial(vecwrap.build, CheapGame, n=CHEAP // 2, backend="dummy")
        ),
        "single agents": partial(opened, partial(vecwrap.build, Cheap, n=CHEAP, backend="dummy")),
    }
    print(
        table(
            [[f"{CHEAP} rows of cheap steps, rows a second", *rows], lines(measure, "dummy", rows)]
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()
