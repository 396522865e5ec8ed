"""An episode for each life, against Stable-Baselines3's and a hand-written game."""

import ale_py
import gymnasium
import numpy as np
import pytest
from stable_baselines3.common.atari_wrappers import EpisodicLifeEnv

from tests.helpers.backends import DummyBackend
from tests.helpers.fake_atari import Game, played
from tests.helpers.stream_envs import ToyEnv, assert_same
from vecwrap.errors import PlanError
from vecwrap.sources.source_factories import SubEnvFactory
from vecwrap.wrappers.episodic_life import EpisodicLife
from vecwrap.wrappers.frame_skip import FrameSkip
from vecwrap.wrappers.monitor import Monitor

gymnasium.register_envs(ale_py)


def test_lineages_end_an_episode_at_a_lost_life_and_go_on_with_one_no_op():
    env = EpisodicLife(Game(lives=[3] * 2 + [2] * 10))
    env.reset()
    assert [env.step(1)[2] for _ in range(2)] == [False, True]
    assert env.game_goes_on
    observation, info = env.reset(options={"level": 1})
    assert not env.game_goes_on
    assert env.unwrapped.actions == [[1, 1, 0]]
    assert (observation == 3).all()
    assert info == {"tick": 3}


def test_life_loss_is_looked_at_after_a_full_skip_outside_of_one():
    env = EpisodicLife(FrameSkip(Game(lives=[3, 3, 2, 3, 3]), 4))
    env.reset()
    assert not env.step(1)[2]


def test_life_loss_of_the_last_life_is_left_to_the_game():
    env = EpisodicLife(Game(lives=[1] + [0] * 20, over=3))
    env.reset()
    assert [env.step(1)[2] for _ in range(3)] == [False, False, True]
    assert not env.game_goes_on


def test_life_loss_after_a_bonus_life_counts():
    env = EpisodicLife(Game(lives=[3, 4, 3, 3]))
    env.reset()
    assert [env.step(1)[2] for _ in range(3)] == [False, True, False]


def test_life_loss_is_followed_by_a_new_game_where_the_reset_is_seeded_or_comes_later():
    env = EpisodicLife(Game(lives=[3, 2, 2, 2]))
    env.reset(seed=1)
    assert env.step(1)[2]
    env.reset(seed=2)
    assert env.unwrapped.seeds == [1, 2]
    assert env.step(1)[2]
    env.step(1)
    env.reset()  # not directly after the lost life
    assert env.unwrapped.seeds == [1, 2, None]


def test_life_loss_whose_no_op_ends_the_game_is_followed_by_a_new_one():
    env = EpisodicLife(Game(lives=[3, 2, 2], over=2))
    env.reset()
    assert env.step(1)[2]
    _, info = env.reset(options={"level": 1})
    assert env.unwrapped.actions == [[1, 0], []]
    assert (info["tick"], info["options"]) == (0, {"level": 1})


def test_life_loss_is_no_end_of_the_game_for_raw_dones_and_monitor():
    factory = SubEnvFactory(
        lambda: Game(lives=[3, 2, 2, 1, 1, 1], rewards=[0, 1], over=6), (EpisodicLife,)
    )
    with Monitor(DummyBackend([factory])) as env:
        env.reset()
        dones, scores = [], []
        for _ in range(4):
            *_, infos = env.step([1])
            dones.append("final_obs" in infos)
            scores += infos["episode"]["r"].tolist() if "episode" in infos else []
        assert dones == [True, True, False, True]
        assert scores == [6.0]


def test_equals_sb3_on_a_real_game_but_for_seeded_resets():
    actions = np.random.default_rng(3).integers(4, size=500)
    mine = played(EpisodicLife(gymnasium.make("BreakoutNoFrameskip-v4")), actions)
    theirs = played(EpisodicLifeEnv(gymnasium.make("BreakoutNoFrameskip-v4")), actions)
    assert sum(row[2] for row in mine) >= 3
    for one, other in zip(mine, theirs, strict=True):
        assert_same(one[0], other[0])
        assert one[1:] == other[1:]


def test_an_environment_without_lives_is_refused():
    with pytest.raises(
        PlanError, match=r"^episodic_life: expected a game of the Arcade .*, got ToyEnv; leave"
    ):
        EpisodicLife(ToyEnv())
