"""A reward of several numbers is refused with a word on what makes one of them, also by engines and games."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector.utils import batch_space

import vecwrap
from vecwrap.errors import SubEnvError

pytest.importorskip("pettingzoo")
REMEDY = "as mo_gymnasium.wrappers.LinearReward does with weights, and leave the others in infos"


class Engine(gymnasium.vector.VectorEnv):
    """Its rewards are those that it is given."""

    def __init__(self, rewards):
        self.rewards = rewards
        self.num_envs = 2
        self.single_observation_space, self.single_action_space = (
            gymnasium.spaces.Box(0, 1),
            gymnasium.spaces.Discrete(2),
        )
        self.observation_space = batch_space(self.single_observation_space, 2)
        self.action_space = batch_space(self.single_action_space, 2)
        self.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}

    def reset(self, *, seed=None, options=None):
        return np.zeros((2, 1), np.float32), {}

    def step(self, actions):
        return np.zeros((2, 1), np.float32), self.rewards, np.zeros(2, bool), np.zeros(2, bool), {}


@pytest.mark.parametrize("rewards", [np.ones((2, 3)), np.ones((2, 1)), [[1, 2], [3, 4]]])
def test_an_engine_with_several_numbers_a_row(rewards):
    with vecwrap.wrap(Engine(rewards)) as env:
        env.reset()
        with pytest.raises(SubEnvError, match=rf"expected 2 rewards, got shape \(2, \d\)\. .*{REMEDY}"):
            env.step([0, 1])


def test_an_engine_with_a_wrong_number_of_rewards_has_no_such_remedy():
    with vecwrap.wrap(Engine(np.ones(3))) as env:
        env.reset()
        with pytest.raises(SubEnvError) as error:
            env.step([0, 1])
    assert "expected 2 rewards, got shape (3,)" in str(error.value)
    assert "LinearReward" not in str(error.value)


def test_an_agent_of_a_game_that_is_paid_several_numbers():
    from tests.agents import Party

    class Paid(Party):
        def step(self, actions):
            observations, rewards, *rest = super().step(actions)
            return observations, {agent: np.ones(2) for agent in rewards}, *rest

    with vecwrap.build(Paid, n=1, backend="dummy") as env:
        env.reset(seed=1)
        with pytest.raises(SubEnvError, match=rf"reward: expected one number, got shape \(2,\)\. .*{REMEDY}"):
            env.step(env.action_space.sample())
