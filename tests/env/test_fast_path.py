"""The fast path of a step of all rows gives what its two halves give, and is taken where nothing is
special.
"""

import signal
import warnings
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError

import vecwrap
from vecwrap.backends.dummy import Dummy
from vecwrap.env.fast_path import FastPath
from vecwrap.errors import ArgumentError, ResetNeededError, SubEnvError
from vecwrap.testing import ToyEnv, assert_same
from vecwrap.tools.timing import Stopwatch

CHAINS = {
    "none": [],
    "chain": ["clip_reward", "framestack:3", "normalize", "monitor"],
    "actions": ["rescale_action", "clip_action"],
}


class Seated(gymnasium.Env):
    """Counts its steps, says so in an info of numbers, and ends when it has taken ``length``."""

    action_space = gymnasium.spaces.Box(-2, 2, (2,), np.float32)
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def __init__(self, length=5):
        self.length, self.raises, self.presses = length, None, False
        self.steps = self.time = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.np_random.normal(size=3).astype(np.float32), {"time": 0}

    def step(self, action):
        self.steps += 1
        self.time += 1
        if self.raises is not None:
            raise self.raises
        if self.presses:
            self.presses = False
            signal.raise_signal(signal.SIGINT)
        observation = self.np_random.normal(size=3).astype(np.float32) + action.sum()
        done = self.time == self.length
        return (
            observation,
            float(self.time),
            done,
            False,
            {"time": self.time, "half": self.time / 2},
        )


def build(wrappers=(), **settings):
    lengths = iter([3, 5, 4])
    return vecwrap.build(
        [lambda length=length: Seated(length) for length in lengths], wrappers=wrappers, **settings
    )


@pytest.fixture
def taken(monkeypatch):
    """How many steps took the fast path."""
    steps = []
    way = FastPath.step
    monkeypatch.setattr(FastPath, "step", lambda *arguments: steps.append(1) or way(*arguments))
    return steps


BACKENDS = {
    "dummy": {"name": "dummy"},
    "shmem": {"name": "shmem", "workers": 2, "start_method": "forkserver"},
    "shared": {"name": "shmem", "workers": 1, "parent_share": True, "start_method": "forkserver"},
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled", "episodic"])
def test_a_whole_step_is_its_two_halves(chain, mode, backend, taken):
    one, other = (build(CHAINS[chain], backend=BACKENDS[backend], autoreset=mode) for _ in range(2))
    draw = np.random.default_rng(0)
    assert_same(other.reset(seed=3), one.reset(seed=3))
    for _ in range(30):
        actions = draw.normal(size=(3, 2)).astype(np.float32)
        other.step_async(actions)
        there, here = other.step_wait(), one.step(actions)
        for result in (there, here):
            result[4].pop("episode", None)  # it has a time in seconds
        assert_same(there, here)
        over = here[2] | here[3]
        if mode in ("disabled", "episodic") and over.any():
            assert_same(*(env.reset(options={"reset_mask": over}) for env in (other, one)))
    assert len(taken) >= 15
    assert_same(other.get_attr("steps"), one.get_attr("steps"))
    for env in (one, other):
        env.close()


@pytest.mark.parametrize("actions", [[[0, 0]] * 3, np.zeros((3, 2)), [np.zeros(2, np.float32)] * 3])
def test_actions_of_any_form_take_it(actions, taken):
    with build(backend="dummy") as env:
        env.reset(seed=1)
        for _ in range(3):
            env.step(actions)
    assert len(taken) == 3


DISCRETE = {
    "discrete": gymnasium.spaces.Discrete(4),
    "begins below zero": gymnasium.spaces.Discrete(4, start=-1),
    "several": gymnasium.spaces.MultiDiscrete([4, 3]),
}


class Chooses(gymnasium.Env):
    """Shows the action that it was given."""

    def __init__(self, space):
        self.action_space = space
        self.observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.int64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.int64), {}

    def step(self, action):
        seen = np.zeros(2, np.int64) + action
        return seen, float(seen.sum()), False, False, {"kind": str(np.asarray(action).dtype)}


@pytest.mark.parametrize("form", [np.int8, np.uint8, np.int32, np.uint32, np.int64, list, bool])
@pytest.mark.parametrize("space", DISCRETE.values(), ids=DISCRETE)
def test_integers_of_any_form_take_it_and_are_the_same_actions(space, form, taken):
    one, other = (vecwrap.build(lambda: Chooses(space), n=3, backend="dummy") for _ in range(2))
    draw = np.random.default_rng(0)
    for env in (one, other):
        env.reset(seed=1)
    for _ in range(5):
        actions = draw.integers(0, 2, (3, *space.shape))
        given = actions.tolist() if form is list else actions.astype(form)
        other.step_async(given)
        assert_same(other.step_wait(), one.step(given))
        here = one.step(given)
        np.testing.assert_array_equal(here[0], one.step(actions)[0])
        assert set(here[4]["kind"]) == {"int64"}
    assert len(taken) == 15
    one.close(), other.close()


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        (
            np.ones(3),
            (
                r"expected dtype int64 for Discrete\(4\), got float64; np.asarray\(actions, int\) "
                r"has it"
            ),
        ),
        ([0.5, 1, 1], "got float64; choose whole numbers, as np.argmax does"),
        (
            np.full(3, 2**63, np.uint64),
            "expected integers that int64 can hold, got 9223372036854775808 to",
        ),
        (
            np.ones(2, np.int32),
            r"actions: expected shape \(3,\), one action of Discrete\(4\) for each of 3",
        ),
        (np.ones((3, 1), np.int32), r"; np.reshape\(actions, \(3,\)\) has it"),
    ],
)
def test_what_is_no_such_form_is_refused_in_the_same_words_either_way(actions, said, taken):
    with vecwrap.build(lambda: Chooses(DISCRETE["discrete"]), n=3, backend="dummy") as env:
        env.reset(seed=1)
        env.step([0, 1, 2])
        for step in (env.step, env.step_async):
            with pytest.raises(ArgumentError, match=said):
                step(actions)
    assert len(taken) == 1


SPECIAL = {
    "debug": {"debug": True},
    "restarts": {"on_failure": "restart"},
    "part of the rows": {"batch_size": 2},
    "messages": {"backend": "subprocess"},
    "a time limit": {"backend": "shmem", "step_timeout": 60.0},
}


class Noting(Dummy):
    def send(self, rows):
        super().send(rows)


@pytest.mark.parametrize(
    "settings", [*SPECIAL.values(), {"backend": Noting}], ids=[*SPECIAL, "a backend of one's own"]
)
def test_what_is_special_goes_the_general_path(settings, taken):
    with build(**{"backend": "dummy", **settings}) as env:
        env.reset(seed=1)
        env.step(np.zeros((3, 2), np.float32))
    assert not taken


def test_a_stopwatch_and_requested_frames_go_the_general_path_and_it_comes_back(taken):
    actions = [0, 0]
    env = vecwrap.build(
        ToyEnv, n=2, wrappers=["monitor"], backend="dummy", env_kwargs={"render_mode": "rgb_array"}
    )
    env.reset(seed=1)
    env.step(actions)
    assert len(taken) == 1
    with Stopwatch(env):
        env.step(actions)
        env.step(actions)
    assert len(taken) == 1
    env.step(actions)
    env.step(actions)
    assert len(taken) == 2
    env.request_frames([0])
    step, _ = env.call_state.step(env, actions)
    assert len(taken) == 2
    assert step.frames[0].shape == (4, 6, 3)
    step, _ = env.call_state.step(env, actions)  # along the fast path, frames included
    assert len(taken) == 3
    assert step.frames[0].shape == (4, 6, 3)
    env.close()


def test_a_call_that_is_pending_refuses_a_step(taken):
    with build(backend="dummy") as env:
        env.reset(seed=1)
        env.step(np.zeros((3, 2), np.float32))
        env.call_async("get_wrapper_attr", "steps")
        with pytest.raises(gymnasium.error.AlreadyPendingCallError):
            env.step(np.zeros((3, 2), np.float32))
        assert env.call_wait() == (1, 1, 1)


def test_a_row_that_raises_leaves_the_others_and_what_they_brought():
    results = []
    for whole in (True, False):
        with build(["monitor"], backend="dummy") as env:
            env.reset(seed=1)
            env.step(np.zeros((3, 2), np.float32))
            env.set_attr("raises", [None, ValueError("no"), None])
            with pytest.raises(
                SubEnvError, match="sub-environment 1 .* raised ValueError in step of its episode 1"
            ) as caught:
                if whole:
                    env.step(np.zeros((3, 2), np.float32))
                else:
                    env.step_async(np.zeros((3, 2), np.float32))
                    env.step_wait()
            results.append((str(caught.value), caught.value.others, env.get_attr("steps")))
            with pytest.raises(vecwrap.errors.ResetNeededError):
                env.step(np.zeros((3, 2), np.float32))
    assert_same(results[0][1], results[1][1])
    assert results[0][0] == results[1][0]
    assert results[0][2] == results[1][2] == (2, 2, 2)


@pytest.mark.parametrize("row", [0, 1, 2])
def test_an_interrupt_among_the_rows_ends_the_step_and_all_rows_need_a_reset(row):
    with build(["monitor"], backend="dummy") as env, build(["monitor"], backend="dummy") as twin:
        env.reset(seed=1)
        actions = np.ones((3, 2), np.float32)
        env.step(actions)
        env.set_attr("presses", [i == row for i in range(3)])
        with pytest.raises(KeyboardInterrupt):
            env.step(actions)
        for call in (partial(env.step, actions), partial(env.send, actions), env.step_wait):
            with pytest.raises(
                ResetNeededError, match=r"ended by an interrupt \(Ctrl-C\).*call reset\(\)"
            ):
                call()
        assert env.get_attr("steps") == tuple(2 if i <= row else 1 for i in range(3))
        assert_same(twin.reset(seed=2), env.reset(seed=2))
        assert_same(twin.step(actions)[:4], env.step(actions)[:4])


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("row", [0, 1, 2])
def test_what_a_signal_handler_closes_during_a_step_says_that_it_was_closed(whole, row):
    env = build(["monitor"], backend="dummy")
    env.reset(seed=1)
    env.step(np.zeros((3, 2), np.float32))
    env.set_attr("presses", [i == row for i in range(3)])
    before = signal.signal(signal.SIGINT, lambda *_: env.close())
    try:
        with (
            pytest.raises(ClosedEnvironmentError, match="closed meanwhile"),
            warnings.catch_warnings(),
        ):
            warnings.filterwarnings("ignore", "Calling `close` while waiting")
            if whole:
                env.step(np.zeros((3, 2), np.float32))
            else:
                env.step_async(np.zeros((3, 2), np.float32))
                env.step_wait()
    finally:
        signal.signal(signal.SIGINT, before)
    with pytest.raises(ClosedEnvironmentError, match=r"after a call to `close\(\)`"):
        env.step(np.zeros((3, 2), np.float32))
