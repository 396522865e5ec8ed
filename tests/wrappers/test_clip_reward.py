"""Rewards clipped to their sign, or to bounds."""

import gymnasium
import numpy as np
import pytest

from tests.helpers.backends import DummyBackend
from tests.helpers.stream_envs import Driver, ToyEnv, replay
from vecwrap.errors import PlanError
from vecwrap.wrappers.clip_reward import ClipReward
from vecwrap.wrappers.monitor import Monitor

MODES = ["same_step", "next_step", "disabled", "episodic"]
OPERATIONS = [
    ("step", ()),
    ("partial", (0, 1, 1)),
    ("step", ()),
    ("reset", (1, 0, 0)),
    *[("step", ())] * 20,
]


def factories(count=3):
    return [lambda i=i: ToyEnv(index=i - 1) for i in range(count)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("bounds", "clip"),
    [
        ((), np.sign),
        ((-0.5, 1.25), lambda reward: min(max(reward, -0.5), 1.25)),
        ((0.0,), lambda reward: max(reward, 0.0)),
        ((None, 0.5), lambda reward: min(reward, 0.5)),
    ],
    ids=["sign", "both", "low", "high"],
)
def test_equals_the_function_on_each_reward_of_a_single_environment(mode, bounds, clip):
    env = ClipReward(DummyBackend(factories(), autoreset=mode), *bounds)
    rewards = []
    for i, events in enumerate(Driver(env).play(OPERATIONS)):
        for event, (_, reward, *_) in replay(
            gymnasium.wrappers.TransformReward(factories()[i](), clip), events
        ):
            assert event.reward == reward
            rewards.append(reward)
    assert len(set(rewards)) > 2
    env.close()


@pytest.mark.parametrize(
    ("mode", "expected"), [("next_step", [0.5, 0.5, 0, 0.5]), ("episodic", [0.5, 0.5, 0, 0])]
)
def test_a_row_in_which_nothing_was_done_pays_nothing_whatever_the_bounds(mode, expected):
    inner = DummyBackend([lambda: gymnasium.wrappers.TimeLimit(ToyEnv(), 2)] * 2, autoreset=mode)
    env = ClipReward(inner, low=0.5)
    env.reset(seed=1)
    paid = [env.step([0, 0])[1] for _ in range(4)]
    assert [min(rewards[0], 0.5) for rewards in paid] == expected
    env.close()


def test_the_sign_equals_that_of_baselines_as_sb3_has_it():
    atari_wrappers = pytest.importorskip("stable_baselines3.common.atari_wrappers")
    env = ClipReward(DummyBackend(factories()))
    for i, events in enumerate(Driver(env).play(OPERATIONS)):
        for event, (_, reward, *_) in replay(
            atari_wrappers.ClipRewardEnv(factories()[i]()), events
        ):
            assert event.reward == reward
    env.close()


def test_whose_reward_a_monitor_reports_stays_what_the_environment_paid():
    env = Monitor(ClipReward(DummyBackend(factories())))
    paid = 0
    for i, events in enumerate(Driver(env).play(OPERATIONS)):
        toy = factories()[i]()
        for event, _ in replay(toy, events):
            if "episode" in event.infos and event.kind == "step":
                assert event.infos["episode"]["r"] == toy.scores[-1]
                paid += 1
    assert paid > 6
    env.close()


def test_the_arrays_that_came_are_not_written_to():
    inner = DummyBackend(factories(), copy=False)
    env = ClipReward(inner)
    env.reset()
    env.step([2, 2, 2])
    assert inner.core.slots.rewards.tolist() == [0.25, 1.25, 2.25]
    env.close()


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ((1.0, -1.0), "clip_reward: expected low <= high, got low=1.0 and high=-1.0; swap them"),
        ((float("nan"), None), "clip_reward: low: expected a number or None, got nan"),
    ],
)
def test_bounds_that_do_not_fit_are_refused(bounds, message):
    with DummyBackend(factories()) as env, pytest.raises(PlanError) as error:
        ClipReward(env, *bounds)
    assert str(error.value) == message
