"""Episodes that begin with no-ops, against Stable-Baselines3's and a hand-written game."""

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.atari_wrappers import NoopResetEnv

from tests.helpers.fake_atari import FIRES, Game, check_no_ops, played
from tests.helpers.stream_envs import ToyEnv, assert_same
from vecwrap.errors import PlanError
from vecwrap.wrappers.episodic_life import EpisodicLife
from vecwrap.wrappers.noop_reset import NoopReset

gymnasium.register_envs(ale_py)


def test_lineages_begin_a_game_with_1_to_30_no_ops_drawn_as_one_number_of_the_games_own_generator():
    check_no_ops(NoopReset(Game()))


def test_equals_sb3_on_a_real_game():
    def make():
        return gymnasium.make("BreakoutNoFrameskip-v4", max_episode_steps=60)

    actions = np.random.default_rng(3).integers(4, size=300)
    mine, theirs = played(NoopReset(make(), 9), actions), played(NoopResetEnv(make(), 9), actions)
    assert len(mine) > 305
    for one, other in zip(mine, theirs, strict=True):
        assert_same(one[0], other[0])
        assert one[1:4] == other[1:4]
        # SB3 keeps what the last step reports, and loses what a reset does.
        assert other[4].items() <= one[4].items()


def test_a_game_that_ends_within_its_no_ops_is_reset_as_before_and_the_rest_of_them_taken():
    env = NoopReset(Game(over=4))
    observation, info = env.reset(seed=5, options={"level": 3})
    noops = int(np.random.default_rng(5).integers(1, 31))
    assert [len(game) for game in env.unwrapped.actions] == [4] * (noops // 4) + [noops % 4]
    assert set(env.unwrapped.seeds) == {5}
    assert (info["tick"], info["options"]) == (noops % 4, {"level": 3})
    assert (observation == info["tick"]).all()


def test_options_that_the_environment_writes_into_are_the_same_for_the_next_reset():
    class Scribbler(Game):
        def reset(self, *, seed=None, options=None):
            result = super().reset(seed=seed, options=options)
            options["scribbled"] = True
            return result

    _, info = NoopReset(Scribbler(over=1)).reset(seed=5, options={"level": 3})
    assert info["options"] == {"level": 3}


def test_a_life_that_is_lost_within_the_no_ops_is_followed_by_the_next_life_and_no_new_game():
    env = NoopReset(EpisodicLife(Game(lives=[3, 2, 2, 1, 1])), 30)
    env.reset(seed=5)
    assert len(env.unwrapped.actions) == 1


def test_what_the_reset_reported_is_kept_beside_what_the_last_step_did():
    _, info = NoopReset(Game(), 3).reset(seed=7)
    assert info["seeds"] == 7
    assert info["tick"] >= 1


def test_an_environment_that_does_not_say_what_its_actions_mean_gets_its_action_0():
    env = ToyEnv(lengths=(50,))
    _, info = NoopReset(env, 5).reset(seed=2)
    assert 1 <= info["step"] <= 5


@pytest.mark.parametrize(
    ("env", "noop_max", "message"),
    [
        (Game(), -1, "noop_reset: noop_max: expected at least 0, got -1"),
        (
            Game(FIRES[1:]),
            3,
            (
                "noop_reset: expected discrete actions that begin with NOOP, got FIRE, RIGHT, "
                "LEFT: make"
            ),
        ),
        (
            gymnasium.make("Pendulum-v1"),
            3,
            "noop_reset: expected discrete actions that begin with NOOP, got Box",
        ),
    ],
)
def test_what_does_not_fit_is_refused(env, noop_max, message):
    with pytest.raises(PlanError) as error:
        NoopReset(env, noop_max)
    assert str(error.value).startswith(message)


def test_actions_that_begin_elsewhere_are_refused():
    env = ToyEnv()
    env.action_space = spaces.Discrete(3, start=1)
    with pytest.raises(PlanError, match="begin with NOOP"):
        NoopReset(env)


def test_with_noop_max_0_no_game_needs_a_no_op_and_nothing_is_changed():
    for make in (lambda: Game(FIRES[1:]), lambda: gymnasium.make("Pendulum-v1"), ToyEnv):
        wrappered, alone = NoopReset(make(), 0), make()
        for seed in (3, None):
            assert_same(wrappered.reset(seed=seed)[0], alone.reset(seed=seed)[0])
        assert (
            wrappered.unwrapped.np_random.bit_generator.state
            == alone.unwrapped.np_random.bit_generator.state
        )
