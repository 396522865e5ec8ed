"""FIRE at each reset, against Stable-Baselines3's and a hand-written game."""

import ale_py
import gymnasium
import numpy as np
import pytest
from stable_baselines3.common.atari_wrappers import FireResetEnv

from tests.helpers.fake_atari import FIRES, Game, played
from tests.helpers.stream_envs import ToyEnv, assert_same
from vecwrap.errors import PlanError
from vecwrap.wrappers.episodic_life import EpisodicLife
from vecwrap.wrappers.fire_reset import FireReset
from vecwrap.wrappers.frame_skip import FrameSkip

gymnasium.register_envs(ale_py)


def test_lineages_press_fire_then_action_2():
    env = FireReset(Game(FIRES))
    observation, info = env.reset(seed=3)
    assert env.unwrapped.actions == [[1, 2]]
    assert (info["tick"], info["seeds"]) == (2, 3)
    assert (observation == 2).all()


def test_lineages_press_each_for_a_full_skip_outside_of_one():
    env = FireReset(FrameSkip(Game(FIRES), 4))
    env.reset()
    assert env.unwrapped.actions == [[1] * 4 + [2] * 4]


def test_lineages_press_fire_after_a_lost_life_too():
    env = FireReset(EpisodicLife(Game(FIRES, lives=[3] * 3 + [2] * 40)))
    env.reset()
    assert env.step(3)[2]
    env.reset()
    assert env.unwrapped.actions == [[1, 2, 3, 0, 1, 2]]


def test_a_game_that_does_not_know_fire_is_left_as_it_is():
    env = FireReset(Game())
    env.reset()
    assert env.unwrapped.actions == [[]]


def test_a_game_that_ends_while_fire_is_pressed_is_begun_again_as_before():
    env = FireReset(Game(FIRES, over=1))
    observation, info = env.reset(seed=3, options={"level": 1})
    assert env.unwrapped.actions == [[1], [2], []]
    assert env.unwrapped.seeds == [3, 3, 3]
    assert (info["tick"], info["options"]) == (0, {"level": 1})
    assert (observation == 0).all()


def test_a_life_lost_while_fire_is_pressed_is_followed_by_the_next_also_after_a_seeded_reset():
    env = FireReset(EpisodicLife(Game(FIRES, lives=[3] + [2] * 40)))
    env.reset(seed=3)
    assert env.unwrapped.actions == [[1, 0, 2]]
    assert not env.step(3)[2]


def test_equals_sb3_on_a_real_game():
    def make():
        return gymnasium.make("BreakoutNoFrameskip-v4", max_episode_steps=60)

    actions = np.random.default_rng(3).integers(4, size=300)
    mine, theirs = played(FireReset(make()), actions), played(FireResetEnv(make()), actions)
    assert len(mine) > 305
    for one, other in zip(mine, theirs, strict=True):
        assert_same(one[0], other[0])
        assert one[1:4] == other[1:4]
        assert one[4] == other[4] or not other[4]  # SB3 loses what a reset reports


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (ToyEnv(), "fire_reset: expected a game with action meanings"),
        (
            Game(("NOOP", "RIGHT", "FIRE")),
            "fire_reset: expected discrete actions that begin with NOOP, FIRE and one more",
        ),
        (
            Game(("NOOP", "FIRE")),
            "fire_reset: expected discrete actions that begin with NOOP, FIRE and one more",
        ),
        (
            gymnasium.make("ALE/Breakout-v5", continuous=True, full_action_space=True),
            (
                "fire_reset: expected discrete actions that begin with NOOP, FIRE and one more, "
                "got Box"
            ),
        ),
    ],
)
def test_what_does_not_fit_is_refused(env, message):
    with pytest.raises(PlanError) as error:
        FireReset(env)
    assert str(error.value).startswith(message)
