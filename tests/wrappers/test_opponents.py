"""The wrapper ``opponents``: what the learner sees is what a loop over the raw game gives, with the same opponents."""

import zlib

import numpy as np
import pytest

import vecwrap
from tests.agents import Party, Turns, copied
from vecwrap import OpponentPool
from vecwrap.errors import PlanError, SubEnvError
from vecwrap.rows import batch as batches
from vecwrap.rows.batch import leaves
from vecwrap.rows.compare import assert_same
from vecwrap.rows.infos import row_of
from vecwrap.wrappers.opponents import Opponents

pytestmark = pytest.mark.usefixtures("quick_workers")
STREAM = 0x0110
BACKENDS = {"dummy": {}, "threads": {"workers": 2}, "shmem": {"workers": 2}, "subprocess": {"workers": 3}}
MODES = ["same_step", "next_step", "disabled", "episodic"]


def tictactoe():
    from pettingzoo.classic.tictactoe.tictactoe import env

    return env()


def texas():
    from pettingzoo.classic.rlcard_envs.texas_holdem import env

    return env(num_players=3)


def rps():
    from pettingzoo.classic.rps.rps import parallel_env

    return parallel_env(max_cycles=5)


GAMES = {"tictactoe": tictactoe, "texas": texas, "turns": Turns, "party": Party, "rps": rps}


def move(seen, shift, n):
    """A legal action that depends on everything that is seen."""
    legal = np.flatnonzero(seen["action_mask"]) if isinstance(seen, dict) and "action_mask" in seen else np.arange(n)
    if not len(legal):
        return 0  # of a row that rests
    parts = sorted(leaves(seen), key=lambda part: part[0])
    whole = b"".join(np.ascontiguousarray(array, np.float64).tobytes() for _, array in parts)
    return int(legal[(zlib.crc32(whole) + shift) % len(legal)])


def one(observations, *, action_masks=None):
    return _moves(observations, 1, action_masks)


def two(observations, *, action_masks=None):
    return _moves(observations, 2, action_masks)


def _moves(observations, shift, masks):
    count = len(leaves(observations)[0][1])
    rows = [batches.row(observations, i) for i in range(count)]
    if masks is not None:
        assert all(np.array_equal(row["action_mask"], mask) for row, mask in zip(rows, masks, strict=True))
    return [move(row, shift, N["n"]) for row in rows]


N = {}  # how many actions a game has, where nothing tells
SHIFTS = {f"{__name__}:one": 1, f"{__name__}:two": 2}


@pytest.fixture(autouse=True)
def number_of_actions():
    N.clear()
    yield
    N.clear()


class Reference:
    """The learner's transitions in a loop over a raw game."""

    def __init__(self, make, seed, seat):
        self.env, self.seed, self.seat = make(), seed, seat
        self.agents = list(self.env.possible_agents)
        self.episode = 0
        self.pool = OpponentPool(None, scripted=list(SHIFTS))
        self.transitions, self.ends = [], []

    def draw(self):
        rng = np.random.default_rng([self.seed, self.episode, STREAM])
        name = self.pool.draw(rng, "uniform")
        seat = int(rng.integers(len(self.agents)))
        self.episode += 1
        return name, seat if self.seat is None else self.seat

    def play(self, number):
        while len(self.ends) < number:
            name, seat = self.draw()
            seed = self.seed if self.episode == 1 else None
            found = self._run(seed, name, seat)
            if found:
                self.transitions += found
                self.ends.append((name, seat))

    def _run(self, seed, name, seat):
        return (self._one if hasattr(self.env, "agent_iter") else self._all)(seed, name, self.agents[seat], seat)

    def _one(self, seed, name, me, seat):
        env, n = self.env, self.env.action_space(me).n
        env.reset(seed=seed)
        found, before, early = [], None, 0.0
        for agent in env.agent_iter():
            seen, reward, terminated, truncated, _ = env.last()
            seen, done = copied(seen), terminated or truncated
            if agent == me and before is None:
                early += reward
            elif agent == me:
                found.append((*before, float(reward) + early, bool(terminated), bool(truncated), seen))
                early = 0.0
            if done:
                env.step(None)
                continue
            action = move(seen, 0 if agent == me else SHIFTS[name], n)
            before = (seen, action) if agent == me else before
            env.step(action)
        return found

    def _all(self, seed, name, me, seat):
        env, n = self.env, self.env.action_space(me).n
        seen, _ = env.reset(seed=seed)
        seen, found, left = copied(seen), [], False
        while env.agents:
            mine = [agent for agent in env.agents if agent == me and not left]
            actions = {
                agent: move(seen[agent], 0 if agent in mine else SHIFTS[name], n) for agent in env.agents
            }
            after, rewards, terminations, truncations, _ = env.step(dict(actions))
            if mine:
                ends = bool(terminations[me]), bool(truncations[me])
                found.append((seen[me], actions[me], float(rewards[me]), *ends, copied(after[me])))
                left = any(ends)
            seen = copied(after)
        return found


class Learner(vecwrap.VecEnvWrapper):
    """Notes the learner's transitions, and who was played."""

    def __init__(self, env):
        super().__init__(env)
        n = env.num_envs
        self.seen, self.actions, self.transitions, self.ends = [None] * n, [0] * n, [[] for _ in range(n)], [[] for _ in range(n)]

    def on_actions(self, actions, env_ids):
        for i, action in zip(env_ids.tolist(), actions.tolist(), strict=True):
            self.actions[i] = action
        return actions

    def on_step(self, step):
        for k, i in enumerate(step.env_ids.tolist()):
            seen = copied(batches.row(step.observations, k))
            done, first = bool(step.dones[k]), bool(step.first[k])
            if step.acted[k]:
                last = copied(batches.row(step.final_obs, k)) if done and first else seen
                paid, *flags = step.rewards[k].item(), bool(step.terminations[k]), bool(step.truncations[k])
                self.transitions[i].append((self.seen[i], self.actions[i], paid, *flags, last))
            elif not first:
                assert not step.live[k] and not step.rewards[k]
            if done and step.live[k]:
                info = row_of(step.final_infos if first else step.infos, k)
                self.ends[i].append((info["opponent"], info["seat"]))
            self.seen[i] = seen


def build(make, mode, backend, n=3, **options):
    settings = {} if backend == "dummy" else BACKENDS[backend]
    return vecwrap.build(make, n=n, backend=backend, autoreset=mode, **settings, **options)


def drive(env, games, rng=None):
    """Play until each row has ended so many episodes; with ``rng``, some rows at a time."""
    learner, n = env.chain[0], env.num_envs
    env.reset(seed=11)
    while min(map(len, learner.ends)) < games:
        act = np.array([move(seen, 0, env.single_action_space.n) for seen in learner.seen])
        if rng is None:
            result = env.step(act)
            ids = np.arange(n)
        else:
            ids = np.flatnonzero(rng.random(n) < 0.6)
            if not len(ids):
                continue
            env.send(act[ids], ids)
            result = env.recv()
        if env.core.autoreset.value in ("disabled", "episodic") and (ended := (result[2] | result[3])).any():
            mask = np.zeros(n, bool)
            mask[ids[ended]] = True
            if env.core.autoreset.value == "disabled" or (rng is None or rng.random() < 0.5):
                env.reset(options={"reset_mask": mask})


def check(make, env, games, seat=None):
    learner = env.chain[0]
    for i in range(env.num_envs):
        reference = Reference(make, 11 + i, seat)
        reference.play(games)
        assert learner.ends[i][:games] == reference.ends
        assert_same(learner.transitions[i][: len(reference.transitions)], reference.transitions)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
def test_transitions_are_those_of_a_loop_over_the_raw_game(game, mode, partial):
    make = GAMES[game]
    N["n"] = make().action_space(make().possible_agents[0]).n
    with Learner(Opponents(build(make, mode, "dummy"), list(SHIFTS))) as env:
        drive(env, 6, np.random.default_rng(1) if partial else None)
        check(make, env, 6)
