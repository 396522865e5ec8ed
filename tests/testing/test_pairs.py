"""Rows of an own numbering: fewer than what is wrapped, which is stepped several times for each of
them.
"""

import inspect
from contextlib import suppress
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.error import AlreadyPendingCallError

from tests.helpers.backends import DummyBackend, ShmemBackend, ThreadsBackend
from tests.helpers.pair_rows import Pairs
from vecwrap.env.backend_rows import BackendRows
from vecwrap.env.random_actions import RandomActions
from vecwrap.errors import CheckpointError, ResetNeededError, SubEnvError
from vecwrap.rows.compare import rows_of
from vecwrap.rows.step_result import Autoreset
from vecwrap.testing import BACKEND_LAWS, assert_same, toy
from vecwrap.testing.drive import play
from vecwrap.testing.toys import OpenResources, assert_nothing_left
from vecwrap.wrappers.framestack import FrameStack
from vecwrap.wrappers.monitor import Monitor

BACKENDS = {
    "dummy": DummyBackend,
    "shmem": partial(ShmemBackend, workers=2),
    "threads": partial(ThreadsBackend, workers=2),
}
# Those compare the dtypes of infos' columns, which go by the rows that come together, or the
# numbers that errors and sub-environments say of themselves.
NUMBERED = (
    "same_stream_in_every_mode",
    "results_are_writable",
    "attributes_reach_the_environment",
    "failed_start_releases_everything",
    "errors_are_isolated",
    "timeouts_lose_nothing",
)


def pairs(make, factories, **options):
    """As many rows as factories, over twice as many sub-environments."""
    if options.get("batch_size"):
        options["batch_size"] *= 2
    return Pairs(make([factory for factory in factories for _ in range(2)], **options))


@pytest.fixture(params=BACKENDS)
def make(request):
    return partial(pairs, BACKENDS[request.param])


LAWS = [law for law in BACKEND_LAWS if law.__name__ not in NUMBERED]
OF_ROWS = ("same_rows_by_send_and_recv", "results_never_change")


@pytest.mark.parametrize(
    ("backend", "law"),  # rows that come at once, and rows that do not
    [
        *(
            pytest.param("dummy", law, marks=pytest.mark.full)
            if law.__name__ in OF_ROWS
            else ("dummy", law)
            for law in LAWS
        ),
        *(
            ("shmem", law)
            if law.__name__ in OF_ROWS
            else pytest.param("shmem", law, marks=pytest.mark.full)
            for law in LAWS
        ),
    ],
)
def test_the_laws_of_backends_hold_for_its_rows(backend, law):
    # Of pairs, two or three each.
    steps = {"steps": 8} if "steps" in inspect.signature(law).parameters else {}
    law(partial(pairs, BACKENDS[backend]), **steps)


@pytest.mark.parametrize(
    ("backend", "mode"),
    [
        (backend, mode)
        if backend == "dummy" or mode is Autoreset.SAME_STEP
        else pytest.param(backend, mode, marks=pytest.mark.full)
        for backend in BACKENDS
        for mode in Autoreset
    ],
)
def test_the_stream_is_that_of_the_first_of_each_pair(backend, mode):
    make = partial(pairs, BACKENDS[backend])
    factories = [toy(observations="nested", actions="nested")] * 3
    with DummyBackend(factories, autoreset=mode) as twin, make(factories, autoreset=mode) as env:
        space = env.single_observation_space
        for one in (twin, env):
            one.reset(seed=4)
        both = zip(*(play(one, 30, RandomActions(one, seed=1)) for one in (twin, env)), strict=True)
        for expected, got in both:
            assert_same(rows_of(space, expected), rows_of(space, got))
        assert env.played.min() > 0


def test_waits_that_time_out_lose_nothing(make):
    """The law of backends, but for the dtypes of infos' columns."""
    with DummyBackend([toy()] * 3) as twin, make([toy()] * 3) as env:
        policy, space = RandomActions(twin, seed=2), twin.single_observation_space
        twin.reset(seed=2)
        env.reset(seed=2)
        for _ in range(30):
            actions = policy()
            env.step_async(actions)
            got = None
            while got is None:
                with suppress(TimeoutError):
                    got = env.step_wait(timeout=0)
            assert_same(rows_of(space, twin.step(actions)), rows_of(space, got))


def test_calls_seeds_and_attributes_are_those_of_the_first(make):
    with make([toy()] * 3, start_index=10) as env:
        env.reset(seed=1)
        assert env.get_attr("np_random_seed") == (11, 12, 13)
        env.set_attr("bonus", [1.0, 2.0, 3.0])
        assert env.get_attr("bonus") == (1.0, 2.0, 3.0)
        assert env.env.get_attr("bonus") == (1.0, 0.0, 2.0, 0.0, 3.0, 0.0)
        assert env.call("get_wrapper_attr", "bonus", indices=[2, 0]) == (3.0, 1.0)
        assert len(env.np_random) == 3


@pytest.mark.parametrize("which", [0, 1])
def test_an_error_of_either_is_the_pairs(make, which):
    with make([toy(end=0.0)] * 3) as env:
        env.reset(seed=1)
        env.step([0, 0, 0])
        env.env.set_attr("raise_in", "step", indices=[2 + which])
        with pytest.raises(SubEnvError, match=f"sub-environment {2 + which} ") as caught:
            env.step([0, 0, 0])
        assert caught.value.index == 1
        assert caught.value.others[4]["env_id"].tolist() == [0, 2]
        env.reset(options={"reset_mask": np.array([False, True, False])})
        env.step([0, 0, 0])


def steps_of(env, number):
    return [env.step([k % 3] * env.num_envs) for k in range(number)]


@pytest.mark.parametrize("at", range(4))
def test_after_an_interrupt_at_any_reception_a_reset_begins_anew(make, at, monkeypatch):
    with make([toy(end=0.3)] * 3) as env, make([toy(end=0.3)] * 3) as twin:
        env.reset(seed=2)
        steps_of(env, 4)
        env.step_async([1, 1, 1])
        left, receive = [at], BackendRows.receive

        def interrupted(self, count, timeout):
            if left and not left[0]:
                left.clear()
                self.interrupts.let_through()
                raise KeyboardInterrupt
            if left:
                left[0] -= 1
            return receive(self, count, timeout)

        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(BackendRows, "receive", interrupted)
            env.step_wait()
        if not left:
            with pytest.raises(ResetNeededError, match="ended by an interrupt"):
                env.step([1, 1, 1])
        for one in (env, twin):
            one.reset(seed=3)
        for expected, got in zip(steps_of(twin, 5), steps_of(env, 5), strict=True):
            assert_same(expected[:4], got[:4])


def test_closed_amid_a_step_it_leaves_nothing_and_says_what_is_dropped(make):
    make([toy()] * 2).close()
    before = OpenResources.now()
    env = make([toy()] * 3)
    env.reset(seed=1)
    steps_of(env, 2)
    env.step_async([0, 0, 0])
    with suppress(TimeoutError):
        env.step_wait(timeout=0)
    during = OpenResources.now()
    with pytest.warns(UserWarning, match="pending call to `step`"):
        env.close()
    assert_nothing_left(before, during)


def test_wrappers_around_it_see_its_rows(make):
    with (
        FrameStack(Monitor(make([toy(end=0.3)] * 3)), 2) as env,
        FrameStack(Monitor(DummyBackend([toy(end=0.3)] * 3)), 2) as twin,
    ):
        for one in (env, twin):
            one.reset(seed=3)
        for expected, got in zip(steps_of(twin, 40), steps_of(env, 40), strict=True):
            assert_same(expected[:4], got[:4])
        assert env.find(Monitor).episode_count == twin.find(Monitor).episode_count > 3


@pytest.mark.parametrize("mode", Autoreset)
def test_a_saved_state_goes_on_as_if_it_had_never_stopped(mode):
    chain = partial(pairs, DummyBackend, [toy(end=0.2)] * 3, autoreset=mode)
    with chain() as env, chain() as other:
        env.reset(seed=5)
        for _ in play(env, 30, lambda: [0, 1, 2]):
            pass
        other.load_state_dict(env.state_dict())
        both = zip(*(play(one, 30, lambda: [2, 1, 0]) for one in (env, other)), strict=True)
        for expected, got in both:
            assert_same(expected, got)


@pytest.mark.parametrize("which", [0, 1])
def test_a_lost_one_is_made_anew_and_the_other_pairs_go_on(which):
    options = {"workers": 6, "on_failure": "restart"}
    with (
        pairs(ShmemBackend, [toy(end=0.0)] * 3, **options) as env,
        DummyBackend([toy(end=0.0)] * 3) as twin,
    ):
        for one in (env, twin):
            one.reset(seed=1)
            steps_of(one, 2)
        with suppress(Exception):
            env.env.call("die", indices=[2 + which])
        env.env.set_attr("raise_in", "step", indices=[2 + which])
        env.env.call("set_wrapper_attr", "raise_in", "step", indices=[2 + which])
        for expected, got in zip(steps_of(twin, 6), steps_of(env, 6), strict=True):
            assert_same(expected[1][[0, 2]], got[1][[0, 2]])
            if which:
                assert_same(expected[1], got[1])
        assert env.health().restarts[2 + which] > 0


class Stubborn(gymnasium.Env):
    """Refuses every state, also its own."""

    observation_space = action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 0, 0.0, False, False, {}

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        raise RuntimeError("as asked")


def test_a_load_that_cannot_be_undone_leaves_rows_that_need_a_reset(make):
    with make([Stubborn] * 2) as env:
        env.reset(seed=1)
        state = env.state_dict()
        assert state["sub_envs"] is not None
        with pytest.raises(CheckpointError):
            env.load_state_dict(state)
        with pytest.raises(ResetNeededError):
            env.step([0, 0])
        env.reset()
        env.step([0, 0])


def test_one_call_at_a_time_in_the_whole_chain(make):
    with make([toy()] * 2) as env:
        env.reset(seed=1)
        env.send([0, 0])
        with pytest.raises(AlreadyPendingCallError, match=r"pending call to `send`"):
            env.env.step([0] * 4)
        assert len(env.recv()[1]) == 2
        env.env.send([0] * 4)
        with pytest.raises(AlreadyPendingCallError, match=r"pending call to `send`"):
            env.step([0, 0])
        assert len(env.env.recv()[1]) == 4
