"""A game without an emulator, whose lives, rewards, frames and end are written by hand."""

import gymnasium
import numpy as np

NO_FIRE, FIRES = ("NOOP", "RIGHT", "LEFT"), ("NOOP", "FIRE", "RIGHT", "LEFT")


class Game(gymnasium.Env):
    """Tick t of a game shows ``frames[t]`` and ``lives[t]``, pays ``rewards[t]`` and ends at
    ``over``.

    Past its end each list goes on with its last entry; without frames, every pixel of tick t is t.
    ``actions`` holds what every game was given, game by game, and ``seeds`` what each was seeded
    with. As ``ale`` it counts its lives.
    """

    def __init__(
        self, meanings=NO_FIRE, lives=(3,), rewards=(0,), over=None, frames=None, sticky=0.0
    ):
        self.meanings, self.lives_, self.rewards, self.over, self.frames = (
            meanings,
            lives,
            rewards,
            over,
            frames,
        )
        self.sticky = sticky
        shape = (2, 2) if frames is None else frames[0].shape
        self.observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
        self.action_space = gymnasium.spaces.Discrete(len(meanings))
        self.ale, self.tick, self.actions, self.seeds = self, 0, [], []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.tick = 0
        self.actions.append([])
        self.seeds.append(seed)
        return self.observe(), {"tick": 0, "seeds": seed, "options": dict(options or {})}

    def step(self, action):
        self.tick += 1
        self.actions[-1].append(int(action))
        over = self.over is not None and self.tick >= self.over
        return self.observe(), at(self.rewards, self.tick), over, False, {"tick": self.tick}

    def observe(self):
        return (
            np.full((2, 2), self.tick, np.uint8)
            if self.frames is None
            else at(self.frames, self.tick).copy()
        )

    def lives(self):
        return at(self.lives_, self.tick)

    def get_action_meanings(self):
        return list(self.meanings)

    def getFloat(self, name):  # noqa: N802
        assert name == "repeat_action_probability"
        return self.sticky


def at(entries, tick):
    return entries[min(tick, len(entries) - 1)]


def played(env, actions, seed=0):
    """Reset, take these actions with seedless resets between episodes; give every row."""
    observation, info = env.reset(seed=seed)
    rows = [(observation, 0.0, False, False, info)]
    for action in actions:
        row = env.step(action)
        rows.append(row)
        if row[2] or row[3]:
            observation, info = env.reset()
            rows.append((observation, 0.0, False, False, info))
    env.close()
    return rows


def check_no_ops(env):
    """Check that each game begins with 1 to 30 no-ops, drawn as one number of its own generator."""
    env.reset(seed=5)
    expected = np.random.default_rng(5)
    counts = [len(env.unwrapped.actions[-1])]
    assert counts == [expected.integers(1, 31)]
    for _ in range(300):
        env.reset()
        counts.append(len(env.unwrapped.actions[-1]))
        assert counts[-1] == expected.integers(1, 31)
    assert (min(counts), max(counts)) == (1, 30)
    assert {action for game in env.unwrapped.actions for action in game} == {0}
