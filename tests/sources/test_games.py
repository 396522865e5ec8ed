"""Games of several agents: what their rows give is what a loop over the raw game gives, bit for bit."""

from functools import partial

import numpy as np
import pytest

import vecwrap
from tests.agents import Loop, Party, Turns, choose, copied
from tests.backs import DummyBackend, ShmemBackend, SubprocessBackend, ThreadsBackend
from vecwrap.rows import batch as batches
from vecwrap.rows.compare import assert_same
from vecwrap.rows.infos import row_of
from vecwrap.sources.parts import PartFactory

pytestmark = pytest.mark.usefixtures("quick_workers")
BACKENDS = {
    "dummy": DummyBackend,
    "threads": partial(ThreadsBackend, workers=2),
    "shmem": partial(ShmemBackend, workers=2),
    "shmem, parent's share": partial(ShmemBackend, workers=1, parent_share=True),
    "subprocess": partial(SubprocessBackend, workers=2),
}
MODES = ["same_step", "next_step", "disabled", "episodic"]


def tictactoe():
    from pettingzoo.classic.tictactoe.tictactoe import env

    return env()


def connect_four():
    from pettingzoo.classic.connect_four.connect_four import env

    return env()


def rps():
    from pettingzoo.classic.rps.rps import env

    return env()


def leduc():
    from pettingzoo.classic.rlcard_envs.leduc_holdem import env

    return env()


def texas():
    from pettingzoo.classic.rlcard_envs.texas_holdem import env

    return env(num_players=3)


def chess():
    from pettingzoo.classic.chess.chess import env

    return env()


def spread():
    from mpe2.simple_spread.simple_spread import parallel_env

    return parallel_env(max_cycles=6)


def rps_at_once():
    from pettingzoo.classic.rps.rps import parallel_env

    return parallel_env(max_cycles=5)


GAMES = {
    "turns": Turns,
    "party": Party,
    "tictactoe": tictactoe,
    "connect four": connect_four,
    "rps": rps,
    "leduc": leduc,
    "texas": texas,
    "spread": spread,
    "rps at once": rps_at_once,
}
AGENTS = {"party": 4, "turns": 4, "spread": 3, "texas": 3}


def parts(make, k, games=4):
    return [PartFactory(make, row, k, of_game=True) for _ in range(games) for row in range(k)]


class Look(vecwrap.VecEnvWrapper):
    """Notes each agent's transitions: the action when it acts, the rest when that is complete."""

    def __init__(self, env):
        super().__init__(env)
        n, core = env.num_envs, env.core
        self.names = [core.description.agents[i % core.books.agents] for i in range(n)]
        self.seen, self.before, self.moves = [None] * n, [None] * n, [0] * n
        self.to_move, self.alive = np.zeros(n, bool), np.zeros(n, bool)
        self.transitions = [[] for _ in range(n)]
        self.actions = [0] * n
        self.games_over = 0

    def on_actions(self, actions, env_ids):
        for i, action in zip(env_ids.tolist(), actions.tolist(), strict=True):
            self.actions[i] = action
        return actions

    def on_step(self, step):
        assert not (step.to_move & ~step.alive).any()
        assert not (step.rewards[~step.live]).any()
        dones, completed = step.dones, step.completed
        for k, i in enumerate(step.env_ids.tolist()):
            seen = copied(batches.row(step.observations, k))
            if step.acted[k]:
                assert self.to_move[i]
                self.before[i] = self.seen[i], self.actions[i]
                self.moves[i] += 1
            if completed[k] and (self.before[i] is not None or dones[k]):
                final = bool(dones[k] and step.first[k])
                last = copied(batches.row(step.final_obs, k)) if final else seen
                info = row_of(step.final_infos if final else step.infos, k)
                paid, *flags = step.rewards[k].item(), bool(step.terminations[k]), bool(step.truncations[k])
                row = self.before[i], paid, *flags, last, info
                self.transitions[i].append(row)
            if step.first[k]:
                self.moves[i], self.before[i] = 0, None
            if step.live[k] or step.first[k]:
                self.seen[i] = seen
            elif self.seen[i] is not None:
                assert_same(self.seen[i], seen)
        self.to_move[step.env_ids], self.alive[step.env_ids] = step.to_move, step.alive

    def choices(self, ids):
        n = self.single_action_space.n
        return [choose(self.names[i], self.moves[i], self.seen[i], n) if self.to_move[i] else 0 for i in ids]


def held_to_the_loop(backend, name, mode, *, games=4, steps=150, partial_sends=False, masked_resets=False):
    make, k = GAMES[name], AGENTS.get(name, 2)
    rng = np.random.default_rng(5)
    with Look(backend(parts(make, k, games), autoreset=mode)) as env:
        env.reset(seed=30)
        opened = np.ones(games, int)
        for _ in range(steps):
            going = np.ones(games, bool)
            if partial_sends:
                going = rng.random(games) < 0.6
                going[rng.integers(games)] = True
            over = ~env.alive.reshape(games, k).any(axis=1)
            if mode in ("disabled", "episodic") and over.any():
                env.reset(options={"reset_mask": over.repeat(k)})
                opened += over
            ids = np.flatnonzero(going.repeat(k))
            actions = env.choices(ids)
            if partial_sends:
                env.send(actions, ids)
                env.recv()
            else:
                env.step(actions)
        assert sum(map(len, env.transitions)) > 40
        for game in range(games):
            expected = Loop(make(), 30 + game).play(60)
            for seat in range(k):
                got = env.transitions[game * k + seat]
                wanted = expected[env.names[seat]][: len(got)]
                for number, (one, other) in enumerate(zip(wanted, got, strict=True)):
                    assert_same(one, other, f"game {game}, {env.names[seat]}, transition {number}")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", GAMES)
def test_transitions_are_those_of_a_loop_over_the_raw_game(name, mode):
    held_to_the_loop(DummyBackend, name, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["turns", "party", "tictactoe"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_on_every_backend_with_partial_sends(backend, name, mode):
    held_to_the_loop(BACKENDS[backend], name, mode, partial_sends=True)
