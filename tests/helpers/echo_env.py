"""An environment that shows which action it was given."""

import gymnasium
import numpy as np
from gymnasium import spaces

from tests.helpers.backends import DummyBackend


class Echo(gymnasium.Env):
    """The observation is the last action as it arrived, the reward its sum; episodes last three
    steps.
    """

    def __init__(self, action_space):
        self.action_space = action_space
        dtype = action_space.dtype if isinstance(action_space, spaces.Box) else np.float64
        self.observation_space = spaces.Box(
            -np.inf, np.inf, action_space.shape, np.result_type(dtype, np.float32)
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(self.observation_space.shape, self.observation_space.dtype), {}

    def step(self, action):
        self.time += 1
        arrived = np.asarray(action).astype(self.observation_space.dtype)
        return (
            arrived,
            float(arrived.sum()),
            self.time == 3,
            False,
            {"dtype": str(np.asarray(action).dtype)},
        )


def echoes(action_space, count=3, **options):
    """A backend of such environments."""
    return DummyBackend([lambda: Echo(action_space)] * count, **options)


def some_actions(shape, dtype, count=3, scale=4.0, seed=0):
    """Actions inside and outside of any small bounds."""
    return (np.random.default_rng(seed).normal(size=(count, *shape)) * scale).astype(dtype)
