"""Record what is played: a video of all sub-environments, a picture with labels, and what came back
as arrays.
"""

import gymnasium
import numpy as np

import vecwrap
from vecwrap.wrappers.video import Video


class Catch(gymnasium.Env):
    """A ball falls, a paddle moves below: 1 for a ball that is caught, and the end for one that is
    not.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(0, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        """Drop a ball."""
        super().reset(seed=seed)
        self.ball, self.height, self.paddle = self.np_random.integers(16), 0, 8
        return self.observe(), {}

    def step(self, action):
        """Move the paddle: 0 left, 1 stay, 2 right."""
        self.height += 1
        self.paddle = np.clip(self.paddle + action - 1, 1, 14)
        landed, caught = self.height == 15, abs(self.paddle - self.ball) <= 1
        if landed and caught:
            self.ball, self.height = self.np_random.integers(16), 0
        return self.observe(), float(landed and caught), bool(landed and not caught), False, {}

    def observe(self):
        """Where the ball and the paddle are, from 0 to 1."""
        return np.array([self.ball, self.height, self.paddle], np.float32) / 15

    def render(self):
        """Draw them, ten pixels a place."""
        image = np.full((16, 16, 3), 30, np.uint8)
        image[self.height, self.ball] = 250, 200, 40
        image[15, self.paddle - 1 : self.paddle + 2] = 80, 160, 250
        return image.repeat(10, axis=0).repeat(10, axis=1)


class Keep(vecwrap.VecEnvWrapper):
    """Keep the rewards and ends of each step."""

    def __init__(self, env):
        super().__init__(env)
        self.rewards, self.ends = [], []

    def on_step(self, step):
        """Copy the columns of a step, or of a reset, whose rewards are 0."""
        self.rewards.append(step.rewards.copy())
        self.ends.append(step.dones)


env = vecwrap.build(
    Catch,
    n=4,
    wrappers=[
        Keep,
        {"tile": {"labels": True}},
        {"video": {"dir": "runs/record", "at": [0], "length": 100}},
    ],
    render_mode="rgb_array",
    seed=1,
)
rng = np.random.default_rng(1)
observations, _ = env.reset()
for _ in range(120):
    ball, _, paddle = observations.T
    actions = np.sign(ball - paddle).astype(int) + 1
    actions[rng.random(4) < 0.6] = 1  # often asleep
    observations, *_ = env.step(actions)
picture = env.render()
(video,) = env.find(Video).paths
kept = env.find(Keep)
rewards, ends = np.stack(kept.rewards), np.stack(kept.ends)
env.close()

np.savez_compressed("runs/record/steps.npz", rewards=rewards, ends=ends)
print(f"{video}; picture of {picture.shape[1]}x{picture.shape[0]} pixels")
print(
    f"{len(rewards) - 1} steps of {rewards.shape[1]} games: {ends.sum()} ended, {rewards.sum():g} "
    "balls were caught"
)
