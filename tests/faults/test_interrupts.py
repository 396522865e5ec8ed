"""Ctrl-C inside a call: it waits for the wrappers and ends the call; a reset begins anew."""

import itertools
import os
import signal
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from gymnasium.vector import SyncVectorEnv

import vecwrap
from tests.helpers.backends import DummyBackend, SubprocessBackend
from tests.helpers.toy_envs import counter
from vecwrap import interrupts as interrupts_module
from vecwrap.backends.workers import worker_handle
from vecwrap.backends.workers.launch import start_worker
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import ResetNeededError
from vecwrap.interrupts import Interrupts
from vecwrap.testing import ToyEnv, assert_same

pytestmark = pytest.mark.usefixtures("quick_workers", "own_handler")
PACKAGE = f"{Path(vecwrap.__file__).parent}/"
WRAPPERS = ["terminal_obs", "framestack:2", "normalize", {"time_aware": {"limit": 50}}, "monitor"]
SHMEM = {"name": "shmem", "workers": 2, "parent_share": False}
SUBPROCESS = {"name": "subprocess", "workers": 2}


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    """Stands still: what the monitor tells of seconds is not compared."""
    monkeypatch.setattr(
        "vecwrap.wrappers.monitor.time", SimpleNamespace(perf_counter=lambda: 0.0, time=lambda: 0.0)
    )


class CtrlC(VecEnvWrapper):
    """A wrapper in which Ctrl-C is pressed, so many times."""

    times = 0

    def on_step(self, step):
        for _ in range(self.times):
            signal.raise_signal(signal.SIGINT)
        self.times = 0


def make(backend="dummy", wrappers=("framestack:2", CtrlC, "normalize", "monitor"), n=3, **options):
    return vecwrap.build(
        partial(ToyEnv, end=0.3), n=n, wrappers=list(wrappers), backend=backend, seed=7, **options
    )


def pressed(env, wait, times=1):
    """Press Ctrl-C while the wrappers work: it waits for them, and ends the call."""
    env.find(CtrlC).times = times
    with pytest.raises(KeyboardInterrupt):
        wait()
    assert env.find(CtrlC).times == 0


@pytest.mark.parametrize("backend", ["dummy", SHMEM, SUBPROCESS])
def test_an_interrupt_while_wrappers_work_waits_for_them_and_ends_the_call(backend):
    env, twin = (
        make(backend, ["framestack:2", CtrlC, "monitor"]),
        make(wrappers=["framestack:2", CtrlC, "monitor"]),
    )
    for seed, (ask, wait, *arguments) in enumerate(
        [
            ("reset_async", "reset_wait"),
            ("step_async", "step_wait", [0, 1, 2]),
            ("send", "recv", [0, 1, 2]),
        ]
        * 2
    ):
        if ask != "reset_async":
            env.reset()
        getattr(env, ask)(*arguments)
        pressed(env, getattr(env, wait))
        with pytest.raises(ResetNeededError, match=r"ended by an interrupt \(Ctrl-C\)"):
            env.step([0, 1, 2])
        assert_same(twin.reset(seed=seed), env.reset(seed=seed))
        assert_same(twin.step([0, 1, 2]), env.step([0, 1, 2]))
    env.close()
    twin.close()


def pressed_at(line, call, is_wanted):
    """Press Ctrl-C at a line of the package; gives whether there are so many, and what came of the
    call.
    """
    lines = 0

    def trace(frame, event, argument):
        nonlocal lines
        path = frame.f_code.co_filename
        if not path.startswith(PACKAGE) or not is_wanted(path.removeprefix(PACKAGE)):
            return None
        if event == "line":
            lines += 1
            if lines == line:
                signal.raise_signal(signal.SIGINT)
        return trace

    sys.settrace(trace)
    try:
        came = call()
    except KeyboardInterrupt:
        came = KeyboardInterrupt
    finally:
        sys.settrace(None)
    return lines >= line, came


@pytest.mark.parametrize(
    ("backend", "stride", "left_out"),
    [
        ("dummy", 3, ("testing",)),
        ({**SHMEM, "parent_share": True}, 11, ("backends/spinning.py", "testing")),
        (SUBPROCESS, 11, ("backends/spinning.py", "testing")),
        pytest.param("dummy", 1, ("testing",), marks=pytest.mark.full),
        pytest.param(
            {**SHMEM, "parent_share": True},
            3,
            ("backends/spinning.py", "testing"),
            marks=pytest.mark.full,
        ),
        pytest.param(SHMEM, 3, ("backends/spinning.py", "testing"), marks=pytest.mark.full),
        pytest.param(SUBPROCESS, 3, ("backends/spinning.py", "testing"), marks=pytest.mark.full),
    ],
)
def test_at_whatever_line_of_a_step_an_interrupt_comes(backend, stride, left_out):
    wrappers = ["framestack:2", "normalize_reward", "monitor"]
    env, twin = make(backend, wrappers), make(wrappers=wrappers)
    assert_same(twin.reset(), env.reset())
    outcomes = Counter()
    for line in itertools.count(1, stride):
        there_is, came = pressed_at(
            line, lambda: env.step([0, 1, 2]), lambda file: not file.startswith(left_out)
        )
        if came is KeyboardInterrupt:
            try:
                env.step([0, 1, 2])
                outcomes["between two calls"] += 1
            except ResetNeededError:
                outcomes["inside of one"] += 1
        assert env.get_attr("render_mode") == (None,) * 3
        results = [one.reset(seed=line) for one in (twin, env)]
        assert_same(*results, f"line {line}")
        assert_same(*(one.step([0, 1, 2])[0] for one in (twin, env)), f"line {line}")
        if not there_is and line > 300:
            break
    assert outcomes["inside of one"] > 300 / stride / 2, outcomes
    assert outcomes["between two calls"] <= 8 + 20 / stride, outcomes
    env.close()


@pytest.mark.parametrize("stride", [17, pytest.param(7, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "wrappers",
    [WRAPPERS, [*WRAPPERS[:2], {"seed_each_episode": {"seeds": [3, 4, 5]}}, *WRAPPERS[2:]]],
)
def test_at_whatever_line_of_a_load_an_interrupt_comes_nothing_goes_on_half_loaded(
    wrappers, stride
):
    env, other = make(wrappers=wrappers), make(wrappers=wrappers)
    for one, steps in ((env, 3), (other, 8)):
        one.reset()
        for _ in range(steps):
            one.step([0, 1, 2])
    before, state = env.state_dict(), other.state_dict()
    refused = whole = 0
    for line in itertools.count(1, stride):
        there_is, came = pressed_at(
            line, partial(env.load_state_dict, state), lambda file: not file.startswith("testing")
        )
        wrappers = env.state_dict()["wrappers"]
        try:
            assert_same(wrappers, state["wrappers"])
        except AssertionError:
            assert_same(wrappers, before["wrappers"], f"line {line}")  # all of them, or none
        try:
            env.step([0, 1, 2])
        except ResetNeededError:
            assert came is KeyboardInterrupt, line
            refused += 1
        else:
            whole += 1
        if not there_is:
            break
        env.load_state_dict(before)
        assert_same(before["wrappers"], env.state_dict()["wrappers"], f"after line {line}")
    assert refused > 20, (refused, whole)


def test_a_wrapper_that_asks_the_sub_environments_amid_a_reset_lets_nothing_through(
    tmp_path, monkeypatch
):
    env, twin = (make(SUBPROCESS, [{"monitor": {"dir": str(tmp_path / name)}}]) for name in "ab")
    send = type(env.unwrapped.runner)._send_bytes
    pressed = []

    def press_after_the_first(backend, worker, data, replies=()):
        send(backend, worker, data, replies)
        if backend is env.unwrapped.runner and replies[0].kind == "rows" and not pressed:
            pressed.append(worker)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(type(env.unwrapped.runner), "_send_bytes", press_after_the_first)
    with pytest.raises(KeyboardInterrupt):
        env.reset()
    assert pressed
    assert_same(twin.reset(seed=9), env.reset(seed=9))
    env.close()
    twin.close()


def test_what_an_outer_block_holds_back_an_inner_one_does_not_let_through():
    interrupts = Interrupts()
    reached = []
    with pytest.raises(KeyboardInterrupt), interrupts:
        interrupts.hold()
        with interrupts:
            signal.raise_signal(signal.SIGINT)
            interrupts.let_through()
        reached.append("behind the inner block")
    assert reached
    with interrupts:
        with pytest.raises(KeyboardInterrupt), interrupts:
            interrupts.hold()
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    interrupts.close()


def test_a_second_one_ends_the_holding():
    heard = []
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    interrupts = Interrupts()
    with interrupts:
        interrupts.hold()
        signal.raise_signal(signal.SIGINT)
        assert heard == []
        signal.raise_signal(signal.SIGINT)
        assert heard == [signal.SIGINT] * 2
        signal.raise_signal(signal.SIGINT)
        assert heard == [signal.SIGINT] * 3
    interrupts.close()


@pytest.mark.parametrize("backend", ["dummy", SHMEM])
def test_rows_that_had_arrived_before_the_wait_are_dropped_too(backend):
    env, twin = (make(one, ["framestack:2", CtrlC], batch_size=1) for one in (backend, "dummy"))
    env.reset()
    env.send([0, 1, 2])
    pressed(env, env.recv)
    assert not env.health().in_flight.any()
    assert_same(twin.reset(seed=4), env.reset(seed=4))
    for one in (env, twin):
        one.send([0, 1, 2])
    rows = [
        {int(one[4]["env_id"][0]): one[:4] for one in (each.recv() for _ in range(3))}
        for each in (env, twin)
    ]
    for i in range(3):
        assert_same(rows[0][i], rows[1][i])
    env.close()


def test_around_an_engine_too():
    env, twin = (
        vecwrap.wrap(SyncVectorEnv([counter(length=3)] * 3), ["framestack:2", CtrlC, "monitor"])
        for _ in range(2)
    )
    for seed in range(3):
        assert_same(twin.reset(seed=seed), env.reset(seed=seed))
        assert_same(twin.step([0, 1, 2]), env.step([0, 1, 2]))
        env.step_async([0, 1, 2])
        pressed(env, env.step_wait)


def test_a_wrapper_that_hangs_is_interrupted_by_the_second_one():
    env = make()
    env.reset()
    env.step_async([0, 1, 2])
    wrapper = env.find(CtrlC)
    wrapper.times = 3
    with pytest.raises(KeyboardInterrupt):
        env.step_wait()
    assert wrapper.times == 3, "it came through at the second"
    wrapper.times = 0
    env.reset()
    assert env.step([0, 1, 2])[1].shape == (3,)


def test_what_the_first_one_sets_is_what_the_second_one_meets():
    """As in `vecwrap run`, whose first one is a wish, and whose second one stops at once."""
    env, came = make(), []
    env.reset()

    def ask(number, frame):
        came.append(number)
        signal.signal(number, signal.default_int_handler)

    signal.signal(signal.SIGINT, ask)
    env.find(CtrlC).times = 3
    env.step_async([0, 1, 2])
    with pytest.raises(KeyboardInterrupt):
        env.step_wait()
    assert came == [signal.SIGINT]
    assert env.find(CtrlC).times == 3, "it came through at the second"


def test_whatever_handler_the_program_has_is_called_once(monkeypatch):
    env, came = make(), []
    env.reset()
    for _ in range(2):  # a program may set one at any time
        signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
        env.find(CtrlC).times = 1
        env.step([0, 1, 2])
        assert came == [signal.SIGINT]
        signal.raise_signal(signal.SIGINT)
        assert came == [signal.SIGINT] * 2
        came.clear()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    env.find(CtrlC).times = 2
    env.step([0, 1, 2])
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_the_programs_own_handler_is_back_when_the_last_environment_is_closed():
    def handler(number, frame):
        """Of the program."""

    signal.signal(signal.SIGINT, handler)
    first, second = make(), make()
    first.reset()
    second.reset()
    first.close()
    assert signal.getsignal(signal.SIGINT) is not handler
    second.close()
    assert signal.getsignal(signal.SIGINT) is handler
    env = make()
    env.reset()
    del env  # forgotten
    assert signal.getsignal(signal.SIGINT) is handler


def test_after_the_last_was_closed_in_a_thread_the_first_interrupt_puts_the_programs_handler_back():
    env = make()
    env.reset()
    in_a_thread(env.close)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_wrapper_that_raises_leaves_the_gate_open(monkeypatch):
    env = make()
    env.reset()
    monkeypatch.setattr(CtrlC, "on_step", lambda self, step: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        env.step([0, 1, 2])
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


class Nested(VecEnvWrapper):
    """Steps an environment of its own; Ctrl-C comes before that."""

    def on_step(self, step):
        with make(wrappers=["monitor"]) as inner:
            inner.reset()
            signal.raise_signal(signal.SIGINT)
            inner.step([0, 1, 2])
        self.done = True


def test_an_environment_in_a_wrapper_of_another_lets_nothing_through():
    env = make(wrappers=[Nested, "monitor"])
    with pytest.raises(KeyboardInterrupt):
        env.reset()
    assert env.find(Nested).done


def test_a_forked_copy_holds_nothing_back():
    interrupts = Interrupts()
    with pytest.raises(KeyboardInterrupt), interrupts:
        interrupts.hold()
        copy = os.fork()
        if not copy:
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                os._exit(3)
            os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) == 3
        signal.raise_signal(signal.SIGINT)


def in_a_thread(call):
    """What a call in another thread gives."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result(60)


def test_another_thread_than_the_main_one_holds_nothing_back():
    env, interrupts = make(), Interrupts()
    in_a_thread(env.reset)
    assert in_a_thread(lambda: env.step([0, 1, 2]))[1].shape == (3,)
    with interrupts:
        in_a_thread(interrupts.hold)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt), interrupts:
        interrupts.hold()
        signal.raise_signal(signal.SIGINT)
        in_a_thread(interrupts.let_through)
        in_a_thread(env.reset)
        held = True
    assert held
    in_a_thread(env.close)
    interrupts.close()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_build_leaves_the_programs_handler_as_it_found_it():
    """Only a step needs another; asyncio, which may begin in between, takes the place of Python's
    alone.
    """
    with vecwrap.build(ToyEnv, n=2, backend="subprocess"):
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_nobody_will_let_through_is_not_held():
    interrupts = Interrupts()
    interrupts.hold()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    with interrupts:
        interrupts.hold()
        interrupts.let_through()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


# -- two that come together ------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    """A second within 0.3 s counts as the same; its ``now`` moves by hand."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(interrupts_module, "REPEAT_SECONDS", 0.3)
    monkeypatch.setattr(interrupts_module, "monotonic", lambda: clock.now)
    interrupts_module._last_counted.clear()
    yield clock
    interrupts_module._last_counted.clear()


def test_two_that_come_together_count_as_one(clock):
    heard = []
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(clock.now))
    env = make()
    env.reset()
    for clock.now in (100.0, 100.0, 100.2, 100.29, 100.31, 100.5, 100.7):
        signal.raise_signal(signal.SIGINT)
    assert heard == [100.0, 100.31, 100.7]
    env.close()


def test_two_that_come_together_are_held_back_as_one_and_a_later_one_ends_the_holding(clock):
    heard = []
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(clock.now))
    interrupts = Interrupts()
    with interrupts:
        interrupts.hold()
        for clock.now in (100.0, 100.1, 100.2):
            signal.raise_signal(signal.SIGINT)
        assert heard == []
        clock.now = 101.0
        signal.raise_signal(signal.SIGINT)
        assert heard == [101.0, 101.0]
    clock.now = 102.0
    with interrupts:
        interrupts.hold()
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
    assert heard == [101.0, 101.0, 102.0]
    interrupts.close()


@pytest.mark.parametrize("backend", ["dummy", SHMEM, SUBPROCESS])
def test_two_that_come_together_in_a_call_are_one(backend, clock):
    wrappers = ["framestack:2", CtrlC, "monitor"]
    env, twin = make(backend, wrappers), make(wrappers=wrappers)
    for ask, wait, *arguments in [
        ("step_async", "step_wait", [0, 1, 2]),
        ("send", "recv", [0, 1, 2]),
    ] * 2:
        env.reset()
        getattr(env, ask)(*arguments)
        pressed(env, getattr(env, wait), times=2)
        clock.now += 1
    assert_same(twin.reset(seed=3), env.reset(seed=3))
    assert_same(twin.step([0, 1, 2]), env.step([0, 1, 2]))
    env.close()
    twin.close()


class ClosedByCtrlC(ToyEnv):
    """Ctrl-C is pressed as it is made, if it is the last one, and as it is closed."""

    made = 0
    closed = 0
    presses_in_make = False

    def __init__(self):
        super().__init__()
        ClosedByCtrlC.made += 1
        if self.presses_in_make and ClosedByCtrlC.made == 3:
            signal.raise_signal(signal.SIGINT)

    def close(self):
        signal.raise_signal(signal.SIGINT)
        ClosedByCtrlC.closed += 1


def test_the_second_of_two_does_not_interrupt_the_close_that_the_first_brought(clock):
    ClosedByCtrlC.made = ClosedByCtrlC.closed = 0
    with (
        pytest.raises(KeyboardInterrupt),
        vecwrap.build(ClosedByCtrlC, n=3, wrappers=[CtrlC], backend="dummy") as env,
    ):
        env.reset()
        env.find(CtrlC).times = 1
        env.step([0, 1, 2])
    assert ClosedByCtrlC.closed == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_second_of_two_does_not_interrupt_the_end_of_a_build_that_the_first_broke_off(
    clock, monkeypatch
):
    ClosedByCtrlC.made = ClosedByCtrlC.closed = 0
    monkeypatch.setattr(ClosedByCtrlC, "presses_in_make", True)
    with pytest.raises(KeyboardInterrupt):
        DummyBackend([ClosedByCtrlC] * 4)
    assert (ClosedByCtrlC.made, ClosedByCtrlC.closed) == (3, 2)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_second_of_two_leaves_no_process_of_a_build_that_the_first_broke_off(
    clock, monkeypatch
):
    started = []

    def start(*arguments, **keywords):
        worker = start_worker(*arguments, **keywords)
        started.append(worker[0].pid)
        if len(started) == 2:
            signal.raise_signal(signal.SIGINT)
        return worker

    def end(self, *arguments, end=worker_handle.WorkerHandle.end):
        signal.raise_signal(signal.SIGINT)
        return end(self, *arguments)

    monkeypatch.setattr(worker_handle, "start_worker", start)
    monkeypatch.setattr(worker_handle.WorkerHandle, "end", end)
    with pytest.raises(KeyboardInterrupt):
        SubprocessBackend([ToyEnv] * 3, workers=3)
    assert len(started) == 2
    assert not any(map(psutil.pid_exists, started))
