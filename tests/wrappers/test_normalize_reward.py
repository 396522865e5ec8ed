"""Rewards divided by the spread of the return: the same as by hand, in every mode, with masks and
partial batches.
"""

from copy import deepcopy

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.backends import DummyBackend
from tests.helpers.call_events import MODES, OPERATIONS, calls_of, operations
from tests.helpers.reference_normalizer import mean_and_var, normalized_rewards
from tests.helpers.stream_envs import ToyEnv, assert_same, replay
from vecwrap.errors import NotFiniteError, PlanError, ResetNeededError
from vecwrap.wrappers.clip_reward import ClipReward
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.normalize_reward import NormalizeReward

STEPS = [("step", ())] * 30


def factories(lengths=(3, 5, 1), **keywords):
    return [lambda i=i: ToyEnv(lengths=lengths, index=i - 1, **keywords) for i in range(3)]


def backend(mode="same_step", lengths=(3, 5, 1)):
    return DummyBackend(factories(lengths), autoreset=mode)


def check(mode, played, lengths=(3, 5, 1), gamma=0.99, clip=10.0):
    """Compare every reward of every call with what comes out by hand."""
    with (
        backend(mode, lengths) as raw,
        NormalizeReward(backend(mode, lengths), gamma=gamma, clip=clip) as env,
    ):
        calls = calls_of(raw, played)
        for events, expected in zip(
            calls_of(env, played), normalized_rewards(calls, gamma, clip), strict=True
        ):
            for (_, event), value in zip(events, expected, strict=True):
                assert event.reward == pytest.approx(value, rel=1e-9)
    return calls


@settings(deadline=None)
@given(
    mode=st.sampled_from(MODES),
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    gamma=st.sampled_from([0.99, 0.5, 0.0, 1.0]),
    clip=st.sampled_from([10.0, 0.5, np.inf]),
    played=operations,
)
def test_running_statistics_equal_those_by_hand(mode, lengths, gamma, clip, played):
    check(mode, played, lengths, gamma, clip)


@pytest.mark.parametrize("mode", MODES)
def test_running_return_begins_anew_for_exactly_the_rows_whose_episode_ended(mode):
    """Gymnasium 1.4 carries it over the ends of next-step mode, and clears every row on a masked
    reset.
    """
    check(mode, OPERATIONS, gamma=1.0)
    with NormalizeReward(backend(mode, (4,)), gamma=1.0) as env:
        env.reset()
        env.step([0, 0, 0])
        before = env.rewards.returns.copy()
        assert before.all()
        env.reset(options={"reset_mask": np.array([False, True, False])})
        assert env.rewards.returns.tolist() == [before[0], 0.0, before[2]]
        env.send([0, 0], [0, 2])
        env.recv()
        for _ in range(2):
            env.send([0], [2])
            env.recv()
        returns = env.rewards.returns
        assert returns[0] != before[0]
        assert returns[1:].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("mode", MODES)
def test_the_last_reward_of_an_episode_is_counted_and_a_reset_step_is_not(mode):
    """Sub-environment 0 ends in its first step, and begins anew or rests as 1 takes its second."""
    make = [lambda: ToyEnv(lengths=(1, 9)), lambda: ToyEnv(lengths=(9,), index=1)]
    with NormalizeReward(DummyBackend(make, autoreset=mode), gamma=1.0) as env:
        env.reset()
        env.step([1, 1])
        counted = [0.75, 1.75]
        assert_counted(env, counted)
        if mode == "disabled":
            env.send([0], [1])
            env.recv()
        else:
            env.step([0, 0])
        counted += [1.75 + 1.5] + ([0.25 - 1] if mode == "same_step" else [])
        assert_counted(env, counted)


def assert_counted(env, returns):
    mean, var = mean_and_var(returns)
    statistics = env.rewards.statistics
    assert (statistics.mean, statistics.var) == (pytest.approx(mean), pytest.approx(var))
    assert statistics.count == pytest.approx(len(returns), abs=0.001)


def test_the_mean_is_not_subtracted():
    class Steady(ToyEnv):
        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, 5.0, *rest

    with NormalizeReward(DummyBackend([lambda: Steady(lengths=(7,))] * 2), clip=np.inf) as env:
        env.reset()
        for _ in range(40):
            rewards = env.step([0, 0])[1]
        assert (rewards > 0.1).all()
        np.testing.assert_allclose(rewards, 5 / env.rewards.statistics.scale(1e-8))


@pytest.mark.parametrize("mode", MODES)
def test_evaluation_freezes_the_statistics_and_no_return_leaks_out_of_it(mode):
    with backend(mode, (3,)) as raw, NormalizeReward(backend(mode, (3,))) as env:
        for one in (raw, env):
            one.reset()
            one.step([0, 1, 2])
        count, var = env.rewards.statistics.count, env.rewards.statistics.var
        env.eval()
        for _ in range(2):
            paid, rewards = (one.step([0, 1, 2])[1] for one in (raw, env))
            np.testing.assert_allclose(rewards, np.clip(paid / np.sqrt(var + 1e-8), -10, 10))
        assert (env.rewards.statistics.count, env.rewards.statistics.var) == (count, var)
        assert env.rewards.returns.tolist() == [0, 0, 0]  # the episodes have ended meanwhile
        env.train()
        env.reset()
        env.step([0, 1, 2])
        assert env.rewards.statistics.count == pytest.approx(count + 3)


def test_whose_reward_a_monitor_reports_stays_what_the_environment_paid():
    with Monitor(NormalizeReward(backend())) as env:
        paid = 0
        for i, events in enumerate(each_of(env)):
            toy = factories()[i]()
            for event, _ in replay(toy, events):
                if "episode" in event.infos and event.kind == "step":
                    assert event.infos["episode"]["r"] == toy.scores[-1]
                    paid += 1
        assert paid > 6


def each_of(env):
    events = [[], [], []]
    for call in calls_of(env, STEPS):
        for i, event in call:
            events[i].append(event)
    return events


@pytest.mark.parametrize("mode", MODES)
def test_original_rewards_are_given_also_through_outer_wrappers(mode):
    with backend(mode) as raw, ClipReward(NormalizeReward(backend(mode))) as env:
        with pytest.raises(ResetNeededError):
            env.get_original_reward()
        for one in (raw, env):
            one.reset()
        assert env.get_original_reward().tolist() == [0, 0, 0]
        _, paid, *_ = raw.step([0, 1, 2])
        env.step([0, 1, 2])
        assert_same(env.get_original_reward(), paid)
        env.reset()
        assert env.get_original_reward().tolist() == [0, 0, 0]
        env.send([2], [1])
        assert env.recv()[1] == 1.0  # clipped by the outer wrapper
        env.get_original_reward()[:] = 9  # a copy
        assert env.get_original_reward().tolist() == [0, 0.25, 0]


def test_original_rewards_without_such_a_wrapper_are_an_error():
    with (
        backend() as env,
        pytest.raises(LookupError, match="no wrapper that normalises rewards: normalize or"),
    ):
        env.get_original_reward()


def test_going_on_after_a_load_equals_never_having_stopped():
    with NormalizeReward(backend()) as env, NormalizeReward(backend()) as other:
        for one in (env, other):
            one.reset()
        for _ in range(4):
            env.step([0, 1, 2])
            other.env.step([0, 1, 2])
        state = env.wrapper_state()
        copy = deepcopy(state)
        other.load_wrapper_state(state)
        for _ in range(30):
            assert_same(env.step([0, 1, 2])[1], other.step([0, 1, 2])[1])
            assert_same(env.get_original_reward(), other.get_original_reward())
        assert_same(state["returns"], copy["returns"])


@pytest.mark.parametrize(
    ("bad", "shown"), [(np.nan, "got nan"), (np.inf, "got inf"), (1e300, "too large")]
)
def test_a_reward_that_is_not_finite_is_refused_before_anything_is_counted(bad, shown):
    class Spoilt(ToyEnv):
        def step(self, action):
            observation, reward, *rest = super().step(action)
            return observation, bad if action == 2 and self.index == 1 else reward, *rest

    make = [lambda i=i: Spoilt(lengths=(9,), index=i) for i in range(2)]
    with NormalizeReward(DummyBackend(make)) as env:
        env.reset()
        env.step([0, 0])
        count, var = env.rewards.statistics.count, env.rewards.statistics.var
        with pytest.raises(NotFiniteError, match=f"normalize_reward: rewards .*{shown}"):
            env.step([2, 2])
        assert (env.rewards.statistics.count, env.rewards.statistics.var) == (count, var)


@pytest.mark.parametrize("gamma", [0.99, 0.5])
def test_equals_vecnormalize_of_sb3(gamma):
    """On the same stream; SB3 rounds rewards to float32 on their way in (exactly, for these) and
    out.
    """
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    peer = vec_env.VecNormalize(vec_env.DummyVecEnv(factories()), norm_obs=False, gamma=gamma)
    with NormalizeReward(backend(), gamma=gamma) as env:
        peer.reset()
        env.reset()
        for step in range(80):
            actions = np.array([step % 3, 1, step * 7 // 5 % 3])
            _, expected, *_ = peer.step(actions)
            _, rewards, *_ = env.step(actions)
            np.testing.assert_allclose(rewards, expected, rtol=1e-6)
            np.testing.assert_array_equal(env.get_original_reward(), peer.get_original_reward())
        assert env.rewards.statistics.var == pytest.approx(peer.ret_rms.var, rel=1e-12)
        assert env.rewards.returns.tolist() == peer.returns.tolist()


def test_equals_gymnasium_until_an_episode_ends_and_not_after():
    """Gymnasium clears the running return before the last reward is added, and never at a
    truncation.
    """
    peer = gymnasium.wrappers.NormalizeReward(ToyEnv(lengths=(6,), index=1))
    with NormalizeReward(DummyBackend([lambda: ToyEnv(lengths=(6,), index=1)]), clip=np.inf) as env:
        env.reset()
        peer.reset()
        for step in range(5):
            assert env.step([step % 3])[1][0] == pytest.approx(
                float(np.asarray(peer.step(step % 3)[1]).item())
            )
        assert env.step([0])[1][0] != pytest.approx(float(np.asarray(peer.step(0)[1]).item()))


@pytest.mark.skipif(gymnasium.__version__ < "1.4", reason="before 1.4 it was otherwise wrong")
def test_the_vector_normalizer_of_gymnasium_carries_the_return_over_episodes():
    """Should this fail one day, Gymnasium is right too, and the comparison can become one of
    equality.
    """
    make = [lambda: ToyEnv(lengths=(2,), index=1)]
    inner = SyncVectorEnv(make, autoreset_mode=AutoresetMode.NEXT_STEP)
    peer = gymnasium.wrappers.vector.NormalizeReward(inner, gamma=1.0)
    peer.reset()
    for _ in range(3):
        peer.step([0])
    assert peer.accumulated_reward[0] != 0
    peer.close()
    with NormalizeReward(DummyBackend(make, autoreset="next_step"), gamma=1.0) as env:
        env.reset()
        for _ in range(3):
            env.step([0])
        assert env.rewards.returns.tolist() == [0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gamma": 1.5}, "normalize_reward: gamma: expected a number from 0 to 1, got 1.5"),
        (
            {"gamma": float("nan")},
            "normalize_reward: gamma: expected a number from 0 to 1, got nan",
        ),
        ({"clip": -1.0}, "normalize_reward: clip: expected a number above 0, got -1.0"),
        ({"epsilon": 0.0}, "normalize_reward: epsilon: expected a number above 0, got 0.0"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with backend() as env, pytest.raises(PlanError) as error:
        NormalizeReward(env, **arguments)
    assert str(error.value) == message
