"""An environment with several members, for rules that look at one of them."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces


class Robot(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array", "ansi"]}
    action_space = spaces.Box(-2, 2, (2,), np.float32)

    def __init__(self, members, render_mode=None):
        self.observation_space = spaces.Dict(members)
        self.render_mode = render_mode


@pytest.fixture
def camera_and_joints():
    """What makes an environment whose observations are a camera, joints and a speed."""
    members = {
        "camera": spaces.Box(0, 255, (8, 8, 3), np.uint8),
        "joints": spaces.Box(-1, 1, (5,), np.float32),
        "speed": spaces.Box(-9, 9, (), np.float32),
    }
    return partial(Robot, members)
