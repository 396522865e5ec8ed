"""Ctrl-C in programs as they are: handlers that exit or raise what they like, engines, forks, files
being closed.
"""

import os
import signal
import sys
import threading
import time

import gymnasium
import numpy as np
import pytest
from gymnasium.error import NoAsyncCallError
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

import vecwrap
from vecwrap.env.backend_rows import BackendRows
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import ResetNeededError
from vecwrap.interrupts import Interrupts
from vecwrap.testing import assert_same

pytestmark = [
    pytest.mark.usefixtures("quick_workers", "own_handler"),
    # Nobody waits again.
    pytest.mark.filterwarnings("ignore:Calling `close` while waiting for a pending call"),
]
PRESS_TWICE, FAIL = 1, 2
SHARED = {"name": "shmem", "workers": 1, "parent_share": True}


def press():
    """Press Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)


class Stop(Exception):
    """What a program's own handler raises."""


class Pressed(gymnasium.Env):
    """Counts its steps; in it Ctrl-C is pressed: in a step, in a call, or as it is closed or made
    anew.
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(3)
    bonus = 0.0
    press_in = ""  # of the class

    def __init__(self):
        self.came = 0
        if type(self).press_in == "make":
            press()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.came = 0
        return np.array([-1.0 if seed is None else seed, 0.0]), {}

    def step(self, action):
        if action == FAIL:
            raise ValueError("broken")
        if action == PRESS_TWICE or type(self).press_in == "step":
            press()
            if action == PRESS_TWICE:
                press()
        self.came += 1
        return np.array([self.bonus, self.came]), 1.0, False, False, {}

    def close(self):
        if type(self).press_in == "close":
            press()

    def press(self):
        """Be a method in which it is pressed."""
        press()
        return 7

    def wait(self):
        """Be a method that takes its time."""
        time.sleep(0.5)
        return 7


class Kept(Pressed):
    """One whose state can be kept."""

    def state_dict(self):
        return {"came": self.came}

    def load_state_dict(self, state):
        self.came = state["came"]


class Quiet(Pressed):
    """One in which nothing is pressed."""

    press_in = ""


def exits(number, frame):
    """Be the commonest handler of all."""
    sys.exit(3)


def raises(number, frame):
    """Be a handler with an exception of its own."""
    raise Stop


HANDLERS = pytest.mark.parametrize(("handler", "kind"), [(exits, SystemExit), (raises, Stop)])


@HANDLERS
@pytest.mark.parametrize(
    "settings",
    [{"backend": "dummy"}, {"backend": "dummy", "on_failure": "restart"}, {"backend": SHARED}],
    ids=["", "restart", "parent_share"],
)
def test_what_a_handler_raises_is_no_failure_of_the_environment_that_it_comes_in(
    handler, kind, settings
):
    with vecwrap.build(Pressed, n=2, **settings) as env:
        env.reset()
        signal.signal(signal.SIGINT, handler)
        with pytest.raises(kind):
            env.step([0, PRESS_TWICE])  # the second one comes through at once
        assert env.health().restarts.tolist() == [0, 0]


@HANDLERS
@pytest.mark.parametrize("place", ["close", "make"])
def test_what_a_handler_raises_while_something_is_made_anew_is_no_failure_of_that(
    handler, kind, place, monkeypatch
):
    with vecwrap.build(Pressed, n=2, backend="dummy", on_failure="restart") as env:
        env.reset()
        signal.signal(signal.SIGINT, handler)
        monkeypatch.setattr(Pressed, "press_in", place)
        with pytest.raises(kind):
            env.step([0, FAIL])
        monkeypatch.setattr(Pressed, "press_in", "")
        env.reset()
        assert env.step([0, 0])[1].shape == (2,)
        assert env.health().restarts[0] == 0


@HANDLERS
def test_what_a_handler_raises_while_one_is_made_anew_by_a_load_is_raised(
    handler, kind, monkeypatch
):
    with vecwrap.build(
        Kept, n=2, backend="dummy", on_failure="restart", autoreset="disabled"
    ) as env:
        env.reset()
        env.step([0, FAIL])
        state = env.state_dict()  # one of them is as new
        env.reset()
        signal.signal(signal.SIGINT, handler)
        monkeypatch.setattr(Kept, "press_in", "close")
        with pytest.raises(kind):
            env.load_state_dict(state)
        monkeypatch.setattr(Kept, "press_in", "")


@HANDLERS
def test_what_a_handler_raises_in_a_call_is_raised(handler, kind):
    with vecwrap.build(Pressed, n=2, backend="dummy") as env:
        env.reset()
        signal.signal(signal.SIGINT, handler)
        with pytest.raises(kind):
            env.call("press")


def test_a_call_that_a_handler_interrupts_is_over_whatever_it_raises():
    with vecwrap.build(Pressed, n=2, backend="subprocess") as env:
        env.reset()
        signal.signal(signal.SIGINT, raises)
        env.call_async("wait")
        threading.Timer(0.1, press).start()
        with pytest.raises(Stop):
            env.call_wait()
        with pytest.raises(NoAsyncCallError):
            env.call_wait()
        assert env.call("wait") == (7, 7)


def test_a_handler_may_step_the_environment_after_the_step_that_it_has_interrupted(monkeypatch):
    with vecwrap.build(Pressed, n=2, backend="dummy") as env:
        env.reset()
        taken = []
        signal.signal(signal.SIGINT, lambda number, frame: taken.append(env.step([0, 0])))
        env.step_async([0, 0])
        monkeypatch.setattr(BackendRows, "receive", pressing(BackendRows.receive, monkeypatch))
        first = env.step_wait()
        assert first[0][:, 1].tolist() == [1.0, 1.0]
        assert taken[0][0][:, 1].tolist() == [2.0, 2.0]


def pressing(receive, monkeypatch):
    """A `receive` in which Ctrl-C is pressed at the end, while it is held back."""

    def pressed(self, count, timeout):
        step = receive(self, count, timeout)
        monkeypatch.setattr(BackendRows, "receive", receive)
        press()
        return step

    return pressed


def sync():
    """An engine in this process."""
    return SyncVectorEnv([Quiet, Pressed, Quiet])


def amid_the_second(monkeypatch):
    monkeypatch.setattr(Pressed, "press_in", "step")


def processes():
    """An engine of processes."""
    return AsyncVectorEnv([Quiet] * 3, context="fork")


def after_the_actions_are_sent(monkeypatch):
    monkeypatch.setattr(AsyncVectorEnv, "step_wait", pressing_first(AsyncVectorEnv.step_wait))


def pressing_first(wait):
    """A wait that Ctrl-C is pressed in before anything has come."""

    def pressed(self, *args, **kwargs):
        press()
        return wait(self, *args, **kwargs)

    return pressed


@pytest.mark.parametrize(
    ("make", "press_in"), [(sync, amid_the_second), (processes, after_the_actions_are_sent)]
)
def test_an_engine_is_not_interrupted_amid_its_rows(make, press_in, monkeypatch):
    monkeypatch.setattr(Pressed, "press_in", "")
    with (
        vecwrap.wrap(make(), ["monitor"], seed=5) as env,
        vecwrap.wrap(SyncVectorEnv([Quiet] * 3), ["monitor"], seed=5) as twin,
    ):
        for seed in range(3):
            assert_same(twin.reset(seed=seed), env.reset(seed=seed))
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                press_in(patch)
                env.step([0, 0, 0])
            assert_same(twin.reset(seed=seed), env.reset(seed=seed))
            assert_same(twin.step([0, 0, 0]), env.step([0, 0, 0]))


def test_learning_with_sb3_can_begin_again_after_ctrl_c_in_a_call():
    venv = vecwrap.to_sb3(vecwrap.build(Pressed, n=2, backend="subprocess"))
    venv.reset()
    threading.Timer(0.1, press).start()
    with pytest.raises(KeyboardInterrupt):
        venv.env_method("wait")
    assert venv.reset().shape == (2, 2)
    assert venv.env_method("wait") == [7, 7]
    venv.close()


class PressesOnce(VecEnvWrapper):
    """A wrapper in which Ctrl-C is pressed, in the given vector step."""

    left = -1

    def on_step(self, step):
        self.left -= 1
        if self.left == 0:
            press()


def test_what_an_evaluation_was_interrupted_in_is_dropped_by_a_reset():
    with vecwrap.build(
        "CartPole-v1", n=3, wrappers=[PressesOnce, "normalize"], backend="dummy"
    ) as env:
        env.reset(seed=1)
        env.find(PressesOnce).left = 4
        with pytest.raises(KeyboardInterrupt):
            vecwrap.evaluate(env, lambda observations: np.zeros(3, np.int64), episodes=3)
        assert all(wrapper.training for wrapper in env.chain)
        with pytest.raises(ResetNeededError, match="ended by an interrupt"):
            env.step(np.zeros(3, np.int64))
        vecwrap.evaluate(env, lambda observations: np.zeros(3, np.int64), episodes=3)


def test_a_forked_process_has_its_own_handler_and_holds_back_for_itself():
    with vecwrap.build(Pressed, n=1, backend="dummy") as env:
        env.reset()
        interrupts = Interrupts()
        with interrupts:
            interrupts.hold()
            copy = os.fork()
            if not copy:
                os._exit(in_the_copy())
        interrupts.close()
        assert os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) == 0


def in_the_copy():
    """What is wrong in a forked copy, as an exit code."""
    try:
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return 1
        came = []
        signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
        own = Interrupts()
        for k in range(3):
            with own:
                own.hold()
                press()
                if len(came) != k:
                    return 2
            if len(came) != k + 1:
                return 3
        handler = signal.getsignal(signal.SIGINT)
        own.close()
        return 4 * (signal.getsignal(signal.SIGINT) is handler)
    except BaseException:
        return 5


class PressedAsItCloses(VecEnvWrapper):
    """A wrapper that has something to finish as it is closed."""

    finished = False

    def on_close(self):
        press()
        self.finished = True


def test_what_a_wrapper_finishes_as_it_is_closed_is_finished():
    env = vecwrap.build(Pressed, n=1, wrappers=[PressedAsItCloses], backend="dummy")
    env.reset()
    with pytest.raises(KeyboardInterrupt):
        env.close()
    assert env.find(PressedAsItCloses).finished
    assert env.closed
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_is_forgotten_is_closed_to_the_end(monkeypatch):
    env = vecwrap.build(Pressed, n=1, backend="dummy")
    env.reset()
    stopped, ignored = [], []
    # Nobody can catch what `__del__` raises.
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    monkeypatch.setattr(
        type(env.runner), "stop", lambda self, timeout, terminate: [press(), stopped.append(True)]
    )
    del env
    assert stopped == [True]
    assert [one.exc_type for one in ignored] == [KeyboardInterrupt]


def test_an_attribute_that_ctrl_c_came_amid_is_set_again_at_a_restart(monkeypatch):
    with vecwrap.build(Pressed, n=2, backend="dummy", on_failure="restart") as env:
        env.reset()
        with monkeypatch.context() as interrupted:
            poll = type(env.unwrapped.runner).poll

            def pressed(self, until, *, return_early):
                arrivals = poll(self, until, return_early=return_early)
                press()
                return arrivals

            interrupted.setattr(type(env.unwrapped.runner), "poll", pressed)
            with pytest.raises(KeyboardInterrupt):
                env.set_attr("bonus", 5.0)
        env.step([FAIL, 0])
        assert env.get_attr("bonus") == (5.0, 5.0)


def test_one_that_is_closed_holds_nothing_back():
    first, second = Interrupts(), Interrupts()
    with second:
        second.hold()
    first.__enter__()
    first.hold()
    first.close()
    with pytest.raises(KeyboardInterrupt):
        press()
    second.close()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with first:  # a wrapper may be closed after the backend
        first.hold()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
