"""A reward of several numbers is refused with a word on what makes one of them, also by engines and
games.
"""

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
        with pytest.raises(
            SubEnvError, match=rf"expected 2 rewards, got shape \(2, \d\)\. .*{REMEDY}"
        ):
            env.step([0, 1])


def test_an_engine_with_a_wrong_number_of_rewards_has_no_such_remedy():
    with vecwrap.wrap(Engine(np.ones(3))) as env:
        env.reset()
        with pytest.raises(SubEnvError) as error:
            env.step([0, 1])
    assert "expected 2 rewards, got shape (3,)" in str(error.value)
    assert "LinearReward" not in str(error.value)


def test_an_agent_of_a_game_that_is_paid_several_numbers():
    from tests.helpers.multi_agent_games import Party

    class Paid(Party):
        def step(self, actions):
            observations, rewards, *rest = super().step(actions)
            return observations, {agent: np.ones(2) for agent in rewards}, *rest

    with vecwrap.build(Paid, n=1, backend="dummy") as env:
        env.reset(seed=1)
        with pytest.raises(
            SubEnvError, match=rf"reward: expected one number, got shape \(2,\)\. .*{REMEDY}"
        ):
            env.step(env.action_space.sample())


class _TwoGoals(gymnasium.Env):
    """Pays one number for each of two goals, three times a game."""

    observation_space = gymnasium.spaces.Discrete(4)
    action_space = gymnasium.spaces.Discrete(2)
    as_dict = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return 0, {}

    def step(self, action):
        self.steps += 1
        reward = np.array([self.steps, 10.0])
        return (
            self.steps,
            dict(enumerate(reward)) if self.as_dict else reward,
            self.steps == 3,
            False,
            {},
        )


class _TwoGoalsByName(_TwoGoals):
    as_dict = True


class _Weighted(gymnasium.Wrapper):
    """What LinearReward of MO-Gymnasium does."""

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        values = list(reward.values()) if isinstance(reward, dict) else reward
        return (
            observation,
            np.dot(values, [1.0, 0.5]),
            terminated,
            truncated,
            {**info, "vector_reward": values},
        )


class _Summed(gymnasium.RewardWrapper):
    def reward(self, reward):
        return reward.sum()


@pytest.mark.parametrize(
    ("make", "wrapper", "expected"),
    [
        (_TwoGoals, _Weighted, [6.0, 7.0, 8.0]),
        (_TwoGoalsByName, _Weighted, [6.0, 7.0, 8.0]),
        (_TwoGoals, _Summed, [11.0, 12.0, 13.0]),
    ],
)
@pytest.mark.parametrize("backend", ["dummy", "threads"])
def test_a_wrapper_of_the_pipeline_makes_one_number_of_several(make, wrapper, expected, backend):
    wrappers = [wrapper, "clip_reward:high=1", "monitor"]
    with vecwrap.build(make, n=2, wrappers=wrappers, backend=backend) as env:
        env.reset(seed=1)
        for _ in range(2):  # games
            for _ in range(3):
                _, rewards, _, _, infos = env.step([0, 1])
                assert rewards.tolist() == [1.0, 1.0]
            assert infos["episode"]["r"].tolist() == [sum(expected)] * 2


@pytest.mark.parametrize("make", [_TwoGoals, _TwoGoalsByName])
def test_several_numbers_that_no_wrapper_makes_one_of(make):
    with vecwrap.build(make, n=1, wrappers=["time_limit:9"], backend="dummy") as env:
        env.reset(seed=1)
        with pytest.raises(SubEnvError, match=REMEDY):
            env.step([0])
