"""``close`` in any state, from anywhere; waits that time out; interrupts.

Nothing stale is read, nothing is left.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
from gymnasium.error import ClosedEnvironmentError, NoAsyncCallError

from tests.faults.faulty import Faulty, Gated, ask, factories
from tests.helpers.backends import DummyBackend, ShmemBackend, SubprocessBackend
from tests.helpers.polling import LONG, gone, until
from vecwrap import interrupts
from vecwrap.backends.workers import worker_handle
from vecwrap.backends.workers.launch import start_worker
from vecwrap.backends.workers.messages import Channel
from vecwrap.backends.workers.step_ring import Doorbell
from vecwrap.errors import BackendError, ResetNeededError
from vecwrap.rows.compare import assert_same
from vecwrap.testing.toys import OpenResources, assert_nothing_left

ROOT = Path(__file__).parents[2]
PROCESS_BACKENDS = [SubprocessBackend, ShmemBackend]
pytestmark = [
    pytest.mark.parametrize("backend", PROCESS_BACKENDS),
    pytest.mark.usefixtures("either_start"),
    pytest.mark.filterwarnings("ignore:Calling `close` while waiting for a pending call"),
]


class Wordy(Faulty):
    """Says more than a socket's buffer takes."""

    words = "word " * 200_000

    def step(self, action):
        result = super().step(action)
        result[4]["words"] = self.words
        return result


def test_a_wait_that_times_out_can_be_repeated_and_gives_what_it_would_have_given(
    backend, tmp_path
):
    with (
        backend([partial(Gated, tmp_path)] * 2, workers=2) as env,
        DummyBackend([Faulty] * 2) as twin,
    ):
        assert_same(twin.reset(seed=1), env.reset(seed=1), "reset")
        for number in (1, 2):
            env.step_async([1, 2])
            with pytest.raises(TimeoutError):
                env.step_wait(timeout=0.01)
            with pytest.raises(TimeoutError):
                env.step_wait(timeout=0)
            (tmp_path / str(number)).touch()
            assert_same(twin.step([1, 2]), env.step_wait(), "step")
        env.call_async("wait")
        with pytest.raises(TimeoutError):
            env.call_wait(timeout=0.01)
        (tmp_path / "3").touch()
        assert env.call_wait() == ("waited", "waited")
        (tmp_path / "4").touch()
        assert_same(twin.step([0, 1]), env.step([0, 1]), "after it")


@pytest.mark.parametrize(
    "state", ["unused", "idle", "stepping", "resetting", "calling", "hanging", "stopped", "dead"]
)
@pytest.mark.parametrize("how", ["close", "timeout", "terminate", "forgotten"])
def test_close_in_any_state(backend, state, how, tmp_path):
    before = OpenResources.now()
    env = backend(factories(tmp_path, 3), workers=2)
    pids = [worker.pid for worker in env.health().workers]
    if state != "unused":
        env.reset(seed=1)
    if state == "resetting":
        env.reset_async(seed=2)
    elif state == "calling":
        env.call_async("call_me")
    elif state in ("stepping", "hanging", "stopped", "dead"):
        if state != "stepping":
            ask(tmp_path, 1, "step", {"hanging": "hang", "stopped": "stop", "dead": "kill"}[state])
        env.step_async([0, 0, 0])
    if how == "close" and state not in ("hanging", "stopped"):
        env.close()
    elif how in ("close", "timeout"):
        env.close(timeout=0.1)
    elif how == "terminate":
        env.close(terminate=True)
    if how == "forgotten":
        del env
    else:
        env.close()
        assert env.closed
    assert_nothing_left(before, before)
    assert gone(pids)


@pytest.mark.parametrize("kind", ["raise", "kill", "segv", "exit", "hang", "stop"])
def test_an_environment_that_fails_while_it_is_closed(backend, kind, tmp_path):
    before = OpenResources.now()
    env = backend(factories(tmp_path, 3), workers=2)
    env.reset(seed=1)
    ask(tmp_path, 2, "close", kind)
    env.close(timeout=1.0)
    assert_nothing_left(before, before)


@pytest.fixture
def hanging(backend, tmp_path):
    """An environment of three whose next step hangs; the test closes it, and nothing may be left
    then.
    """
    before = OpenResources.now()
    env = backend(factories(tmp_path, 3), workers=2)
    env.reset(seed=1)
    ask(tmp_path, 0, "step", "hang")
    yield env
    assert_nothing_left(before, before)


def hangs(tmp_path):
    """Whether the environment is in the step that hangs."""
    return not (tmp_path / "0 step").exists()


def test_close_from_another_thread_than_the_one_that_steps(hanging, tmp_path):
    raised = []

    def step():
        try:
            hanging.step([0, 0, 0])
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=step)
    thread.start()
    assert until(lambda: hangs(tmp_path))
    hanging.close(timeout=0.5)
    thread.join(LONG)
    assert not thread.is_alive()
    assert [type(error) for error in raised] == [ClosedEnvironmentError]


def test_close_in_a_signals_handler(hanging):
    earlier = signal.signal(signal.SIGUSR1, lambda number, frame: hanging.close(timeout=0.5))
    try:
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1))
        with pytest.raises(ClosedEnvironmentError):
            timer.start()
            hanging.step([0, 0, 0])
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, earlier)


def test_after_an_interrupted_wait_a_reset_waits_for_what_is_in_flight(backend, tmp_path):
    interrupt_waits(backend, tmp_path, Alarm)


def interrupt_waits(backend, tmp_path, kind):
    """An exception of any signal's handler comes while the parent waits; the rows come later, and
    are dropped.
    """

    def interrupt(number, frame):
        raise kind

    with (
        backend([partial(Gated, tmp_path)] * 2, workers=2) as env,
        DummyBackend([Faulty] * 2) as twin,
    ):
        env.reset(seed=1)
        earlier = signal.signal(signal.SIGUSR1, interrupt)
        try:
            for number in (1, 2, 3):
                env.step_async([1, 2])
                timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
                with pytest.raises(kind):
                    timer.start()
                    env.step_wait()
                timer.join()
                with pytest.raises(ResetNeededError, match="ended by an interrupt"):
                    env.step([1, 2])
                (tmp_path / str(number)).touch()
                assert_same(twin.reset(seed=number), env.reset(seed=number), "reset")
        finally:
            signal.signal(signal.SIGUSR1, earlier)


class Alarm(Exception):
    """What a program's own handler raises."""


BROKEN = "a second interrupt ended a call while sub-environments"


def test_an_interrupt_amid_the_sending_of_actions_ends_the_environment(backend, monkeypatch):
    """What was requested will be answered, though nobody waits for it: no later call may take that
    for its own.
    """
    with backend([Faulty] * 2, workers=2) as env:
        env.reset(seed=1)
        sends = (Doorbell, "ring") if backend.name == "shmem" else (Channel, "send")
        send = getattr(*sends)

        def sends_and_is_interrupted(*args):
            send(*args)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(*sends, sends_and_is_interrupted)
            env.step([1, 1])
        for call in (env.reset, lambda: env.step([0, 0]), lambda: env.get_attr("spec")):
            with pytest.raises(BackendError, match=BROKEN):
                call()


@pytest.mark.parametrize("place", ["_handle", "_report_loss"])
def test_an_interrupt_in_the_middle_of_a_reply_ends_the_environment(
    backend, place, tmp_path, monkeypatch
):
    """Nobody knows how far it got."""
    env = backend(factories(tmp_path, 2), workers=2, on_failure="restart")
    env.reset(seed=1)
    ask(tmp_path, 0, "step", "kill" if place == "_report_loss" else "raise")
    env.step_async([0, 0])
    interrupted(env.runner, place, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        env.step_wait()
    with pytest.raises(BackendError, match=BROKEN):
        env.reset()
    env.close()


def interrupted(target, name, monkeypatch, *, after=False):
    """Have the next call of a function interrupted, before it has begun or after it is done."""
    function = getattr(target, name)

    def interrupt(*args, **keywords):
        monkeypatch.setattr(target, name, function)
        if after:
            function(*args, **keywords)
        raise KeyboardInterrupt

    monkeypatch.setattr(target, name, interrupt)


@pytest.mark.parametrize("after", [False, True])
def test_a_close_that_is_interrupted_is_finished_by_the_next_one(
    backend, after, tmp_path, monkeypatch
):
    before = OpenResources.now()
    env = backend(factories(tmp_path, 3), workers=2)
    env.reset(seed=1)
    ask(tmp_path, 0, "close", "hang")
    pids = [worker.pid for worker in env.health().workers]
    interrupted(worker_handle, "_drain", monkeypatch, after=False)
    interrupted(env.runner, "_release_memory", monkeypatch, after=after)
    with pytest.raises(KeyboardInterrupt):
        env.close()
    with pytest.raises(ClosedEnvironmentError):
        env.step([0, 0, 0])
    env.close(terminate=True)
    env.close()
    assert_nothing_left(before, before)
    assert gone(pids)


def test_of_two_threads_that_wait_for_the_same_rows_none_waits_for_ever(backend, tmp_path):
    with backend([partial(Gated, tmp_path)] * 2, workers=2) as env:
        env.reset(seed=1)
        env.step_async([0, 0])
        told = []

        def wait():
            try:
                told.append(len(env.step_wait()))
            except Exception as error:
                told.append(type(error))

        threads = [threading.Thread(target=wait) for _ in range(2)]
        for thread in threads:
            thread.start()
        (tmp_path / "1").touch()
        for thread in threads:
            thread.join(LONG)
        assert not any(thread.is_alive() for thread in threads), (
            "one waits for what the other has taken"
        )
        assert 5 in told
        assert set(told) <= {5, NoAsyncCallError}


def test_an_answer_that_waited_to_be_read_longer_than_its_limit_is_no_hang(backend):
    """More than the socket's buffer takes, so the worker is held up for as long as the parent is
    away.
    """
    with backend([partial(Wordy, end=0.0)] * 2, workers=2, step_timeout=1.0) as env:
        env.reset(seed=1)
        env.step_async([0, 0])
        time.sleep(1.2)
        assert env.step_wait()[4]["words"].tolist() == [Wordy.words] * 2


def test_what_has_a_limit_has_it_also_behind_what_has_none(backend):
    """A call, which may take as long as it likes, hangs and is interrupted; the step that follows
    may not.
    """
    with backend([Faulty] * 2, workers=2, step_timeout=0.5) as env:
        env.reset(seed=1)
        env.call_async("call_me", "hang")
        with pytest.raises(TimeoutError):
            env.call_wait(timeout=0.01)
        env.call_state.pending.call = (
            None  # as after an interrupt, where nobody takes the call up again
        )
        env.step_async([0, 0])
        with pytest.raises(BackendError, match=r"did not answer within step_timeout=0.5 s"):
            env.step_wait(timeout=LONG / 6)
        env.close(terminate=True)  # the other one hangs still


@pytest.mark.usefixtures("own_handler")
@pytest.mark.parametrize("place", ["_launch", "_initiate", "_attach"])
def test_an_interrupt_while_a_worker_is_restarted_waits_for_that(
    backend, place, tmp_path, monkeypatch
):
    with backend(factories(tmp_path, 2), workers=2, on_failure="restart") as env:
        env.reset(seed=1)
        ask(tmp_path, 0, "step", "kill")
        env.step_async([0, 0])
        function = getattr(env.runner, place)
        interrupts._last_counted.clear()  # one within 0.3 s would count as the same

        def press(*arguments):
            monkeypatch.undo()
            signal.raise_signal(signal.SIGINT)
            function(*arguments)

        monkeypatch.setattr(env.runner, place, press)
        with pytest.raises(KeyboardInterrupt):
            env.step_wait()
        env.reset(seed=2)
        assert env.health().restarts.tolist() == [1, 0]
        assert env.step([0, 0])[0]["a"].shape == (2, 2)


def test_a_build_that_is_interrupted_as_a_worker_starts_leaves_no_process(backend, monkeypatch):
    """The process is there, and nobody knows of it yet: who is not waited for stays as a zombie."""
    started = []

    def start(*args, **keywords):
        worker = start_worker(*args, **keywords)
        started.append(worker[0].pid)
        signal.raise_signal(signal.SIGINT)
        return worker

    monkeypatch.setattr(worker_handle, "start_worker", start)
    with pytest.raises(KeyboardInterrupt):
        backend([Faulty] * 2, workers=2)
    (pid,) = started
    assert not psutil.pid_exists(pid)


def test_nothing_is_received_after_an_interrupt_in_the_middle_of_a_reply(backend, monkeypatch):
    """Of what lies in shared memory one row was taken already, so that the next one would be taken
    for another.
    """
    with backend(
        [partial(Faulty, end=0.0)] * 3, workers=1, batch_size=1, on_failure="restart"
    ) as env:
        env.reset(seed=1)
        if backend.name != "shmem":
            pytest.skip("there is nothing in shared memory")
        # From now on it is known which infos there are, and they lie in shared memory too.
        env.step([0, 0, 0])
        lane = env.unwrapped.runner._workers[0].ring
        env.send([0, 0, 0])

        def take_half():
            monkeypatch.undo()
            lane._requests.popleft()
            raise KeyboardInterrupt

        monkeypatch.setattr(lane, "take", take_half)
        with pytest.raises(KeyboardInterrupt):
            env.recv()
        for call in (env.recv, env.reset):
            with pytest.raises(BackendError, match=BROKEN):
                call()


def run(code):
    """Run a program of its own to its end."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=True,
    )


SCRIPT = """
import sys, threading, atexit
import gymnasium, numpy as np
from vecwrap.backends.{module} import {backend}
from vecwrap.testing import on
env = on({backend})([lambda: gymnasium.make("CartPole-v1")] * 3, workers=2, start_method={method!r})
env.reset(seed=1)
print(*[worker.pid for worker in env.health().workers], flush=True)
{rest}
"""


ENDS = [
    "",
    "env.step_async([0, 0, 0])",
    "del env",
    "raise SystemExit(0)",
    "keep = [env]; keep.append(keep)",
    "import os; os._exit(0)",
    "atexit.register(env.close)",
    "threading.Thread(target=env.step, args=([0, 0, 0],)).start()",
]


@pytest.mark.parametrize(
    ("method", "rest"),
    [
        ("fresh", ENDS[1]),
        *(pytest.param("fresh", rest, marks=pytest.mark.full) for rest in ENDS if rest != ENDS[1]),
        *(("fork", rest) for rest in ENDS),  # as much ends, and it takes a third of the time
    ],
)
def test_at_the_interpreters_end_nothing_is_left(backend, method, rest):
    code = SCRIPT.format(module=backend.name, backend=backend.__name__, method=method, rest=rest)
    done = run(code)
    assert done.stderr == ""
    pids = [int(word) for word in done.stdout.split()]
    assert gone(pids)


ENDS_BADLY = """
import atexit, os
here, closed = os.getpid(), []
atexit.register(lambda: print(len(closed)))  # what is registered first is called last
import gymnasium
from vecwrap.backends.{module} import {backend}
from vecwrap.testing import on
class EndsBadly(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Discrete(2)
    def close(self):
        if os.getpid() == here:
            closed.append(self)
            raise RuntimeError("no end")
options = dict(workers=1, parent_share=True, start_method="fork")
envs = [on({backend})([EndsBadly] * 2, **options) for _ in range(3)]
"""


def test_at_the_interpreters_end_one_that_fails_to_close_leaves_no_other_open(backend):
    done = run(ENDS_BADLY.format(module=backend.name, backend=backend.__name__))
    assert done.stdout == "3\n"
    assert "RuntimeError: no end" in done.stderr
