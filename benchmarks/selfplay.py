"""An opponent in the parent, or in each environment: `python -m benchmarks.selfplay` prints one
table.

64 games of connect four against one frozen network of two layers, on the CPU; the learner plays
random legal moves. In agent steps a second, the learner's. "parent" is the wrapper `opponents`,
with one call for all games whose turn it is; "inside" is a Gymnasium environment that holds the
game and its own network, as slimevolleygym does it, on the same backend with one torch thread a
worker. Memory is that of all processes, proportional.
"""

from __future__ import annotations

import argparse
import os
import warnings
from functools import partial
from typing import Any

import gymnasium
import numpy as np

import vecwrap
from benchmarks.measure import Contender, WorkResult, measure_rounds
from benchmarks.pages import table
from benchmarks.report import figure
from benchmarks.start_one import pss_mb
from vecwrap.tools.throughput import SEED, Throughput

GAMES = 64
MOVES = 7


def network(width: int) -> Any:
    """The opponent: 84 cells, a hidden layer, seven columns."""
    import torch

    torch.manual_seed(SEED)
    return torch.nn.Sequential(
        torch.nn.Linear(84, width), torch.nn.Tanh(), torch.nn.Linear(width, MOVES)
    )


class Frozen:
    """The likeliest legal move of a network."""

    def __init__(self, width: int) -> None:
        self.network = network(width)

    def __call__(self, observations: Any, *, action_masks: Any) -> Any:
        """Return moves of m rows."""
        import torch

        boards = torch.as_tensor(observations.reshape(len(observations), -1), dtype=torch.float32)
        with torch.no_grad():
            logits = self.network(boards).numpy()
        return np.where(action_masks, logits, -np.inf).argmax(axis=1)


class Inside(gymnasium.Env[Any, Any]):
    """Connect four for one player: the other one is a part of it."""

    def __init__(self, width: int) -> None:
        import torch
        from pettingzoo.classic.connect_four.connect_four import raw_env

        torch.set_num_threads(1)
        self.game, self.opponent = raw_env(), Frozen(width)
        self.observation_space = gymnasium.spaces.Box(0, 1, (6, 7, 2), np.int8)
        self.action_space = gymnasium.spaces.Discrete(MOVES)

    def seen(self) -> Any:
        """Let the opponent move if it is to; return what Gymnasium's step returns."""
        game, me = self.game, self.me
        if game.agent_selection != me and not game.terminations[me]:
            seen = game.observe(game.agent_selection)
            game.step(
                int(
                    self.opponent(
                        seen["observation"][None], action_masks=seen["action_mask"][None]
                    )[0]
                )
            )
        seen = game.observe(me)
        self.paid += game.rewards[me]
        return (
            seen["observation"],
            self.paid,
            game.terminations[me],
            False,
            {"action_mask": seen["action_mask"]},
        )

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin, in a random seat."""
        super().reset(seed=seed)
        self.game.reset(seed=seed)
        self.me, self.paid = self.game.possible_agents[self.np_random.integers(2)], 0.0
        observation, *_, info = self.seen()
        return observation, info

    def step(self, action: Any) -> Any:
        """Move, and have the opponent answer."""
        self.paid = 0.0
        self.game.step(int(action))
        return self.seen()


def parent(backend: str, width: int) -> Any:
    pool = vecwrap.OpponentPool(None)
    pool.current = Frozen(width)
    return vecwrap.build(
        # without PettingZoo's checks, as in the other
        "pettingzoo.classic.connect_four.connect_four:raw_env",
        n=GAMES,
        backend=backend,
        wrappers=["extract_obs:observation", {"opponents": {"pool": pool, "current": 1.0}}],
    )


def inside(backend: str, width: int) -> Any:
    return vecwrap.build(partial(Inside, width), n=GAMES, backend=backend)


def played(make: Any, memory: dict[str, float], name: str) -> Throughput:
    """Play random legal moves."""
    before = _memory()
    env = make()
    rng = np.random.default_rng(SEED)
    masks = [env.reset(seed=SEED)[1]["action_mask"]]
    memory[name] = _memory() - before

    def run(count: int) -> int:
        for _ in range(count):
            actions = (rng.random(masks[0].shape) * masks[0]).argmax(axis=1)
            masks[0] = env.step(actions)[4]["action_mask"]
        return count * GAMES

    return Throughput(run, env.close)


def _memory() -> float:
    """Of this process and all that it has started, in MB."""
    import psutil

    own = psutil.Process(os.getpid())
    return sum(pss_mb(process.pid) or 0.0 for process in [own, *own.children(recursive=True)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one contender in one round")
    parser.add_argument("--width", type=int, default=128, help="of the opponent's hidden layer")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    memory: dict[str, float] = {}
    makes = {
        f"{make.__name__}, {backend}": partial(make, backend, options.width)
        for backend in ("shmem", "dummy")
        for make in (parent, inside)
    }
    contenders = [
        Contender(name, "peer" if i else "ours", partial(played, make, memory, name))
        for i, (name, make) in enumerate(makes.items())
    ]
    measured = measure_rounds(contenders, options.rounds, options.seconds)
    result = WorkResult("selfplay", "selfplay", "", measured)
    rows = [[f"{GAMES} games of connect four", "agent steps/s", "parent, shmem, is", "memory, MB"]]
    for each in measured:
        ratio = result.ratio(each)
        times = "" if ratio is None else f"{ratio.of_medians:.2f} ×"
        rows.append(
            [each.name, figure(each.median("rate") or 0.0), times, f"{memory[each.name]:.0f}"]
        )
    print(table(rows), flush=True)


if __name__ == "__main__":
    main()
