"""Rewards times a factor."""

import gymnasium
import pytest

from tests.helpers.backends import DummyBackend
from tests.helpers.call_events import MODES, OPERATIONS, check_each_alone
from tests.helpers.stream_envs import Driver, ToyEnv, replay
from vecwrap.errors import PlanError
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.scale_reward import ScaleReward


def factories():
    return [lambda i=i: ToyEnv(index=i - 1) for i in range(3)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("factor", [0.1, -3, 0])
def test_equals_gymnasiums_transform_of_each_reward(mode, factor):
    env = ScaleReward(DummyBackend(factories(), autoreset=mode), factor)
    alone = [
        lambda make=make: gymnasium.wrappers.TransformReward(make(), lambda reward: reward * factor)
        for make in factories()
    ]
    assert check_each_alone(env, alone, OPERATIONS) > 8


def test_whose_reward_a_monitor_reports_stays_what_the_environment_paid():
    paid = 0
    with Monitor(ScaleReward(DummyBackend(factories()), 100)) as env:
        for i, events in enumerate(Driver(env).play(OPERATIONS)):
            toy = factories()[i]()
            for event, _ in replay(toy, events):
                if "episode" in event.infos and event.kind == "step":
                    assert event.infos["episode"]["r"] == toy.scores[-1]
                    paid += 1
    assert paid > 6


def test_the_arrays_that_came_are_not_written_to():
    inner = DummyBackend(factories(), copy=False)
    with ScaleReward(inner, 2) as env:
        env.reset()
        assert env.step([2, 2, 2])[1].tolist() == [0.5, 2.5, 4.5]
        assert inner.core.slots.rewards.tolist() == [0.25, 1.25, 2.25]


@pytest.mark.parametrize("factor", [float("nan"), float("inf")])
def test_a_factor_that_is_not_finite_is_refused(factor):
    with DummyBackend(factories()) as env, pytest.raises(PlanError) as error:
        ScaleReward(env, factor)
    assert str(error.value) == f"scale_reward: factor: expected a finite number, got {factor}"
