"""Actions held for several steps, against lists of frames, Gymnasium's and Stable-Baselines3's."""

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import MaxAndSkipObservation
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.atari_wrappers import MaxAndSkipEnv

from tests.helpers.fake_atari import Game, at, played
from tests.helpers.stream_envs import ToyEnv, assert_same
from vecwrap.errors import PlanError
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.wrappers.frame_skip import FrameSkip

gymnasium.register_envs(ale_py)


def frames(count=20, shape=(2, 3)):
    return np.random.default_rng(1).integers(256, size=(count, *shape), dtype=np.uint8)


@settings(deadline=None)
@given(
    skip=st.integers(1, 5),
    over=st.integers(1, 9),
    pooling=st.sampled_from(["none", "max"]),
    steps=st.integers(1, 6),
)
def test_equals_a_list_of_frames_also_where_a_game_ends_inside_a_skip(skip, over, pooling, steps):
    game = Game(frames=frames(), rewards=range(20), over=over)
    env = FrameSkip(game, skip, pooling=pooling)
    observation, _ = env.reset()
    assert_same(observation, at(game.frames, 0))
    tick = 0
    for _ in range(steps):
        ticks = list(range(tick + 1, min(tick + skip, over) + 1))
        observation, reward, terminated, truncated, info = env.step(1)
        tick = ticks[-1]
        shown = game.frames[ticks[-2:] if pooling == "max" else ticks[-1:]].max(axis=0)
        assert_same(observation, shown)
        assert (reward, terminated, truncated, info["tick"]) == (
            sum(ticks),
            tick == over,
            False,
            tick,
        )
        if terminated:
            env.reset()
            tick = 0


@pytest.mark.parametrize("peer", [MaxAndSkipObservation, MaxAndSkipEnv])
def test_equals_gymnasium_and_sb3_but_for_the_frames_of_games_that_end_inside_a_skip(peer):
    def make():
        return gymnasium.make("PongNoFrameskip-v4", max_episode_steps=62)

    actions = np.random.default_rng(3).integers(6, size=120)
    mine, theirs = played(FrameSkip(make(), pooling="max"), actions), played(peer(make()), actions)
    ends = 0
    for one, other in zip(mine, theirs, strict=True):
        ends += one[3]
        # The peer pools a frame of the agent step before.
        assert np.array_equal(one[0], other[0]) != one[3]
        assert one[1:] == other[1:]
    assert ends == 7


def test_skip_1_pools_nothing():
    env = FrameSkip(Game(frames=frames()), 1, pooling="max")
    env.reset()
    for tick in range(1, 5):
        assert_same(env.step(0)[0], env.unwrapped.frames[tick])


class Rude(ToyEnv):
    """Gives one buffer again and again, writes into its action, and pays in arrays."""

    def __init__(self):
        super().__init__(lengths=(9,))
        self.buffer = np.zeros(3, np.float32)
        self.action_space = spaces.Box(-1, 1, (1,))
        self.taken = []

    def step(self, action):
        self.taken.append(float(action[0]))
        action *= 2
        observation, reward, *rest = super().step(0)
        self.buffer[:] = -observation
        return self.buffer, np.array([reward]), *rest


def test_an_environment_that_writes_into_what_it_gives_and_gets_does_no_harm():
    env = FrameSkip(Rude(), 3, pooling="max")
    env.reset()
    action = np.ones(1, np.float32)
    observation, reward, *_ = env.step(action)
    assert env.unwrapped.taken == [1.0] * 3
    assert action.tolist() == [1.0]
    assert_same(observation, -np.array([3, 4, 5], np.float32))  # of tick 2, which is the greater
    assert type(reward) is float


def test_an_id_that_skips_by_itself_is_made_without():
    checked = plan(PipelineSpec.parse("ALE/Pong-v5 n=1 | frame_skip:3")).with_spaces()
    assert dict(checked.environment.effective_spec().kwargs)["frameskip"] == 1
    with pytest.raises(
        PlanError, match=r"frameskip: expected 1, as frame_skip needs it, got 4\. Leave it out"
    ):
        plan(PipelineSpec.parse("ALE/Pong-v5 n=1 env_kwargs.frameskip=4 | frame_skip:3"))


@pytest.mark.parametrize(
    ("env", "arguments", "message"),
    [
        (ToyEnv(), {"frame_skip": 0}, "frame_skip: frame_skip: expected at least 1, got 0"),
        (ToyEnv(), {"pooling": "mean"}, 'frame_skip: pooling: expected none or max, got "mean"'),
        (
            ToyEnv(observation_space=spaces.Discrete(3)),
            {"pooling": "max"},
            (
                'frame_skip: pooling: "max" expects observations of a Box, got Discrete(3); leave '
                "pooling out"
            ),
        ),
        (
            FrameSkip(ToyEnv(), 2),
            {},
            "frame_skip: expected an environment that skips no frames, but FrameSkip inside",
        ),
        (
            gymnasium.make("ALE/Pong-v5"),
            {},
            "frame_skip: expected an environment that skips no frames, got one with frameskip=4",
        ),
    ],
)
def test_what_does_not_fit_is_refused(env, arguments, message):
    with pytest.raises(PlanError) as error:
        FrameSkip(env, **arguments)
    assert str(error.value).startswith(message)
