"""How often and how soon: the policy, under a clock of the test's own."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.backends import DummyBackend
from vecwrap.env.health import WorkerHealth
from vecwrap.env.restart_budget import MAX_RESTARTS_WITHOUT_A_STEP, RestartBudget
from vecwrap.errors import PlanError, SubEnvError
from vecwrap.testing import toy
from vecwrap.testing.toys import ToyEnv


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def restarts(*, most=3, window=60.0, backoff=0.5, num_envs=2):
    clock = Clock()
    return RestartBudget(num_envs, most, window, backoff, clock), clock


def test_the_first_is_at_once_and_each_further_one_in_vain_waits():
    policy, _ = restarts(most=None)
    assert [policy.request([0], "why") for _ in range(4)] == [0.0, 0.5, 0.5, 0.5]
    assert policy.request([1], "why") == 0.0, "each sub-environment by itself"
    policy.stepped(np.array([0, 1]), np.array([True, False]))
    assert policy.request([0], "why") == 0.0, "a step has been taken"
    assert policy.request([1], "why") == 0.5
    policy.stepped(np.array([0]), np.array([True]))
    assert policy.request([0, 1], "why") == 0.5, "a worker waits if one of its own does"


def test_what_may_restart_for_ever_keeps_no_record_that_grows():
    policy, _ = restarts(most=None)
    for _ in range(1000):
        policy.request([0, 1], "why")
        policy.stepped(np.array([0, 1]), np.array([True, True]))
    assert policy.counts.tolist() == [1000, 1000]
    assert sum(map(len, policy._times)) == 0


def test_what_dies_in_every_reset_comes_to_an_end_without_any_limit():
    policy, _ = restarts(most=None, window=None)
    granted = 0
    while policy.request([0], "why") is not None:
        granted += 1
        assert granted <= MAX_RESTARTS_WITHOUT_A_STEP
    assert granted == MAX_RESTARTS_WITHOUT_A_STEP
    assert policy.refusal == f"{MAX_RESTARTS_WITHOUT_A_STEP} restarts in a row without a step"
    policy.stepped(np.array([0]), np.array([True]))
    assert policy.request([0], "it has worked meanwhile") == 0.0


@pytest.mark.parametrize("seconds", [0.0, 5.0, 8.0, 120.0])
def test_what_always_fails_comes_to_an_end_however_long_each_try_takes(seconds):
    policy, clock = restarts(most=10, window=60.0, backoff=0.1)
    granted = 0
    while (pause := policy.request([0], "why")) is not None:
        clock.now += pause + seconds
        granted += 1
        assert granted <= 10
    used_up = "within restart_window=60 s" if seconds < 6.0 else "in a row without a step"
    assert policy.refusal == f"max_restarts=10 {used_up}"
    policy.stepped(np.array([0]), np.array([True]))
    clock.now += 61.0
    assert policy.request([0], "it has worked meanwhile") == 0.0


def test_no_more_than_so_many_within_the_window():
    policy, clock = restarts(most=2, window=10.0)
    assert policy.request([0], "a") is not None
    clock.now = 9.0
    assert policy.request([0], "b") is not None
    policy.stepped(np.array([0]), np.array([True]))
    clock.now = 10.0
    assert policy.request([0], "c") is None
    assert policy.request([0, 1], "c") is None, "all or none"
    assert policy.counts.tolist() == [2, 0], "what is refused is not counted"
    assert policy.reasons == ["b", ""]
    clock.now = 10.1
    assert policy.request([0], "d") is not None
    assert policy.refusal == "max_restarts=2 within restart_window=10 s"


def test_after_too_many_in_a_row_without_a_step_each_failure_is_raised_until_there_is_one():
    policy, clock = restarts(most=2, window=10.0)
    assert [policy.request([0], "a") for _ in range(2)] == [0.0, 0.5]
    clock.now = 11.0
    assert [policy.request([0], "a") for _ in range(2)] == [None, None]
    assert policy.refusal == "max_restarts=2 in a row without a step"
    policy.stepped(np.array([0]), np.array([True]))
    assert policy.request([0], "a") == 0.0


def test_without_a_window_the_whole_run_counts():
    policy, clock = restarts(most=2, window=None)
    for seconds in (0.0, 1e6):
        clock.now = seconds
        assert policy.request([0], "a") is not None
        policy.stepped(np.array([0]), np.array([True]))
    clock.now = 1e9
    assert policy.request([0], "a") is None
    assert policy.refusal == "max_restarts=2 within the whole run"


def test_what_was_used_up_before_a_save_is_used_up_after_the_load():
    policy, clock = restarts(most=3, window=10.0)
    policy.request([0], "a")
    policy.stepped(np.array([0]), np.array([True]))
    policy.request([0], "a")
    clock.now = 4.0
    policy.request([0], "b")
    state, other = policy.state(0), restarts(most=3, window=10.0)[0]
    other.clock = clock
    clock.now = 1000.0  # another process's clock
    other.load(0, state)
    assert other.counts.tolist() == [3, 0]
    assert other.reasons == ["b", ""]
    clock.now = 1006.0
    assert other.request([0], "c") is None
    clock.now = 1006.1
    assert other.request([0], "c") == 0.5, "no step was taken in between"


@given(
    st.lists(st.tuples(st.floats(0, 20), st.booleans()), max_size=30),
    st.integers(1, 4),
    st.floats(1, 15),
)
def test_it_allows_what_counting_allows(failures, most, window):
    policy, clock = restarts(most=most, window=window)
    granted, in_vain = [], 0
    for pause, has_stepped in failures:
        clock.now += pause
        if has_stepped:
            policy.stepped(np.array([0]), np.array([True]))
            in_vain = 0
        recent = [then for then in granted if clock.now - then <= window]
        allowed = policy.request([0], "why") is not None
        assert allowed == (len(recent) < most and in_vain < most)
        granted += [clock.now] * allowed
        in_vain += allowed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on_failure": "retry"}, "on_failure: expected raise or restart, got 'retry'"),
        ({"max_restarts": 0}, "max_restarts: expected at least 1, or null for no limit, got 0"),
        (
            {"restart_window": 0},
            "restart_window: expected seconds above 0, or null for the whole run, got 0",
        ),
        ({"restart_backoff": -1}, "restart_backoff: expected seconds from 0, got -1"),
        ({"restart_backoff": float("nan")}, "restart_backoff: expected seconds from 0, got nan"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(arguments, message):
    with pytest.raises(PlanError) as error:
        DummyBackend([toy()] * 2, **arguments)
    assert str(error.value).startswith(message)


class OnceOnly(ToyEnv):
    """Each reset but an environment's first fails, and so does one that was made after another."""

    made = 0

    def __init__(self):
        super().__init__()
        OnceOnly.made += 1
        self.works = OnceOnly.made == 1

    def reset(self, *, seed=None, options=None):
        if not self.works:
            raise RuntimeError("no licence")
        self.works = False
        return super().reset(seed=seed, options=options)


def test_a_sub_environment_that_dies_in_every_reset_is_raised_at_last():
    OnceOnly.made = 0
    with DummyBackend(
        [OnceOnly], on_failure="restart", max_restarts=None, restart_backoff=0.0
    ) as env:
        env.reset(seed=1)
        with pytest.raises(SubEnvError, match="100 restarts in a row without a step are used up"):
            env.reset()
        assert OnceOnly.made == 101


def test_health_tells_what_happened():
    with DummyBackend([toy()] * 3, on_failure="restart") as env:
        env.reset(seed=1)
        assert str(env.health()) == "0 restarts, 0 lost episodes"
        env.set_attr("raise_in", "step", indices=1)
        env.core.rows.restarts._attributes[
            1
        ].clear()  # the toy asks once, and a value set is set again
        env.step([0, 0, 0])
        health = env.health()
        assert health.restarts.tolist() == health.lost_episodes.tolist() == [0, 1, 0]
        assert health.workers == ()
        assert (
            "sub-environment 1: 1 restart, 1 lost episode; sub-environment 1 (seed 2) raised"
            in str(health)
        )
        health.restarts[:] = 9
        assert env.health().restarts.tolist() == [0, 1, 0], "yours to keep"


def test_health_says_where_each_row_is():
    with DummyBackend(
        [toy()] * 3, autoreset="disabled", on_failure="restart", restart_backoff=60.0
    ) as env:
        assert env.health().resting.tolist() == [True] * 3
        env.reset(seed=1)
        assert env.health().resting.tolist() == [False] * 3
        env.send([0, 0], env_ids=[0, 2])
        assert env.health().in_flight.tolist() == [True, False, True]
        env.recv()
        assert env.health().in_flight.tolist() == [False] * 3
        env.set_attr("raise_in", "step", indices=1)
        env.step([0, 0, 0])
        assert env.health().lost.tolist() == [False, True, False]
        assert env.health().resting.tolist() == [False, True, False]


def test_health_shows_workers():
    health = DummyBackend([toy()]).health()
    workers = WorkerHealth(0, 77, (0,), 2), WorkerHealth(1, 78, (1, 2), 1)
    shown = replace(health, workers=workers)
    assert str(shown).splitlines() == [
        "0 restarts, 0 lost episodes",
        "worker 0 (pid 77, sub-environment 0): 2 restarts",
        "worker 1 (pid 78, sub-environments 1-2): 1 restart",
    ]
