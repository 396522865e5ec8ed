"""Bells, spins and lanes: nothing is lost, nothing comes twice, and the order is kept."""

import os
import select
import signal
import threading
from multiprocessing import Pipe
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from tests.faults.faulty import factories
from tests.helpers.backends import ShmemBackend
from tests.helpers.polling import gone, until
from vecwrap.backends.workers import step_ring
from vecwrap.backends.workers.step_ring import (
    MAX_SPIN_SECONDS,
    ORDERED,
    Doorbell,
    Spinner,
    StepRing,
    WorkerStepRing,
    allocate_rings,
)
from vecwrap.errors import BackendError


@pytest.fixture(params=["eventfd", "pipe"])
def a_bell(request, monkeypatch):
    if request.param == "pipe":
        monkeypatch.delattr(step_ring.os, "eventfd", raising=False)
    one = Doorbell.create()
    yield one
    one.close()
    one.close()


def test_a_bell_is_heard_once_however_often_it_was_rung_and_ringing_never_waits(a_bell):
    poll = bell_poll(a_bell)
    assert not poll()
    for _ in range(100_000):  # more than a pipe holds
        a_bell.ring()
    assert poll()
    for _ in range(200):
        a_bell.clear()
    assert not poll()
    a_bell.clear()
    a_bell.ring()
    assert poll()


def bell_poll(one):
    poller = select.poll()
    poller.register(one.read_end, select.POLLIN)
    return lambda: bool(poller.poll(0))


class Clock:
    """Gives microseconds that pass by looking."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1e-6
        return self.now


def waits(spinner, clock, seconds):
    """Wait for something that is ready after so long; gives whether it slept."""
    start, slept = clock.now, []

    def sleep():
        slept.append(True)
        clock.now = max(clock.now, start + seconds)
        return False

    spinner.wait(lambda: clock.now - start >= seconds, sleep)
    return bool(slept)


def test_who_waits_a_short_while_spins_and_who_waits_longer_learns_to_sleep_at_once():
    clock = Clock()
    spinner = Spinner(True, crowded=False, clock=clock)
    assert not any(waits(spinner, clock, 20e-6) for _ in range(50))
    assert spinner.bound < MAX_SPIN_SECONDS
    for _ in range(20):
        assert waits(spinner, clock, 10e-3)
    assert spinner.bound == 0.0  # not one look more than it takes
    for _ in range(20):
        waits(spinner, clock, 20e-6)
    assert not waits(spinner, clock, 20e-6)  # and back


def test_one_long_pause_is_forgotten_soon():
    clock = Clock()
    spinner = Spinner(True, crowded=False, clock=clock)
    waits(spinner, clock, 3600.0)
    waits(spinner, clock, 20e-6)
    assert not waits(spinner, clock, 20e-6)


def test_where_no_core_is_to_spare_nobody_spins():
    clock = Clock()
    spinner = Spinner(False, crowded=False, clock=clock)
    assert all(waits(spinner, clock, 20e-6) for _ in range(5))


@pytest.mark.parametrize("crowded", [True, False])
def test_whose_core_others_need_offers_it_to_them_between_two_looks(crowded, monkeypatch):
    clock, offered, looks = Clock(), [], []
    monkeypatch.setattr("os.sched_yield", lambda: offered.append(len(looks)))
    spinner = Spinner(True, crowded=crowded, clock=clock)
    spinner.wait(
        lambda: looks.append(None) or len(looks) == 4, lambda: pytest.fail("it need not sleep")
    )
    assert offered == ([1, 2, 3] if crowded else [])


def pair(num_rows=3):
    words = allocate_rings(2, num_rows, lambda shape, dtype: np.zeros(shape, dtype))[1]
    here, there = Pipe()
    lane = StepRing(words, range(num_rows))
    worker = WorkerStepRing(
        words,
        range(num_rows),
        Doorbell(lane.request_bell.read_end, -1),
        Doorbell(-1, lane.reply_bell.write_end),
        there,
        spins=False,
    )
    return lane, worker, here, there


@pytest.fixture
def two_ends():
    lane, worker, here, there = pair()
    yield lane, worker, here
    lane.close()
    lane.close()
    here.close()
    there.close()


def test_rows_are_answered_in_their_order_and_those_by_message_are_left_out(two_ends):
    lane, worker, _ = two_ends
    for turn in range(40):  # many times around
        lane.request(None, 0)
        assert bell_poll(
            lane.request_bell
        )()  # who sleeps is woken, who does not sleep is left alone
        assert worker.wait()
        assert [list(group) for group in worker.take()] == [[0, 1, 2]]
        worker.answer(1, by_pipe=turn % 3 == 0)
        assert bell_poll(lane.reply_bell)()
        lane.clear_doorbell()
        assert lane.has_answers()
        rows, answers = lane.take()
        assert (list(rows), answers) == (([], 0) if turn % 3 == 0 else ([0, 1, 2], 1))
        assert lane.by_pipe == (turn % 3 == 0)
        lane.request([2, 0], 0)
        assert worker.wait()
        assert worker.take() == [[2], [0]]
        worker.answer(1, by_pipe=False)
        lane.clear_doorbell()
        assert lane.take() == ([2], 1)
        assert lane.is_awaiting
        worker.answer(1, by_pipe=True)
        lane.clear_doorbell()
        assert lane.take() == ((), 0)
        assert not lane.is_awaiting


@pytest.mark.parametrize("by_message", [0, 1])
def test_that_one_of_several_answers_came_by_message_is_known_whichever_it_was(
    two_ends, by_message
):
    lane, worker, _ = two_ends
    lane.request([0, 1], 0)
    assert worker.wait()
    for k in range(2):
        worker.answer(1, by_pipe=k == by_message)
    lane.clear_doorbell()
    assert lane.take() == ([1 - by_message], 1)
    assert lane.by_pipe


def test_a_message_that_was_sent_before_comes_before(two_ends):
    lane, worker, here = two_ends
    here.send_bytes(b"first")
    lane.request([1], 1)
    lane.request([2], 1)
    assert worker.wait()
    assert worker.messages_before == 1
    assert worker.take() == [[1], [2]]
    worker.answer(2, by_pipe=False)
    lane.request([0], 1)
    lane.request([1], 2)  # a message came between
    assert worker.wait()
    assert worker.take() == [[0]]
    worker.answer(1, by_pipe=False)
    assert worker.messages_before == 2
    assert worker.take() == [[1]]


@pytest.mark.parametrize("ordered", [True, False])
def test_rows_that_were_asked_for_before_a_message_come_before_it(two_ends, ordered, monkeypatch):
    monkeypatch.setattr(step_ring, "ORDERED", ordered)
    lane, worker, here = two_ends
    lane.request([1], 0)
    here.send_bytes(b"later")
    assert worker.wait()  # rows, though the message is there as well
    worker.take()
    worker.answer(1, by_pipe=False)
    assert not worker.wait()  # now the message


def test_where_stores_come_in_any_order_a_count_is_believed_no_further_than_the_bell_was_rung(
    two_ends, monkeypatch
):
    """On arm64 the next count may be there before what it speaks of."""
    monkeypatch.setattr(step_ring, "ORDERED", False)
    lane, worker, _ = two_ends
    lane.request([0], 0)
    lane._memory.counts[0] = 2  # another is being asked for, and its entry is not there yet
    assert worker.wait()
    assert worker.take() == [[0]]
    lane._memory.counts[0] = 1
    lane.request([1], 0)
    worker.answer(1, by_pipe=False)
    lane._memory.counts[8] = 2
    lane.clear_doorbell()
    assert lane.take() == ([0], 1)
    assert worker.wait()
    assert worker.take() == [[1]]
    worker.answer(1, by_pipe=False)
    assert not lane.has_answers()
    lane.clear_doorbell()
    assert lane.take() == ([1], 1)


def test_a_lane_begins_anew_with_another_process(two_ends):
    lane, worker, _ = two_ends
    lane.request(None, 0)
    worker.wait()
    worker.answer(1, by_pipe=False)
    lane.restart()
    assert not lane.has_answers()
    assert not lane.is_awaiting


@pytest.mark.parametrize("turns", [3000])
def test_who_sleeps_is_woken_and_who_is_awake_misses_nothing(turns):
    """Two threads hand one count to each other; a wake-up that is lost would stop both for ever."""
    lane, worker, here, there = pair()
    seen = []

    def serve():
        while len(seen) < turns:
            worker.wait()
            for group in worker.take():
                seen.append(list(group))
                worker.answer(1, by_pipe=False)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    poll = bell_poll(lane.reply_bell)
    for turn in range(turns):
        lane.request([turn % 3], 0)
        while not lane.has_answers():
            poll()
            lane.clear_doorbell()
        assert lane.take() == ([turn % 3], 1)
    thread.join(30)
    assert not thread.is_alive()
    assert seen == [[turn % 3] for turn in range(turns)]
    lane.close()
    here.close()
    there.close()


@pytest.mark.skipif(
    not ORDERED, reason="nobody looks at shared memory without having heard the bell"
)
def test_a_death_is_noticed_though_all_answers_are_there_before_anybody_waits(tmp_path):
    env = ShmemBackend(factories(tmp_path, 4), workers=2)
    env.reset(seed=1)
    worker, victim = env.unwrapped.runner._workers

    def steps():
        env.send([0, 0], env_ids=[0, 1])
        assert until(worker.ring.has_answers)
        env.recv()
        return False

    os.kill(victim.process.pid, signal.SIGKILL)
    assert gone([victim.process.pid])
    with pytest.raises(
        BackendError, match=r"worker 1 .*sub-environments 2-3.* died: killed by SIGKILL"
    ):
        until(steps)
    env.close()


def test_nothing_is_left_open():
    before = len(list(Path("/proc/self/fd").iterdir()))
    lane, _, here, there = pair()
    lane.close()
    here.close()
    there.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


class TellsWords(gymnasium.Env):
    """Every other info is no number, so it comes as a message."""

    observation_space = gymnasium.spaces.Box(0, np.inf, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(1), {"word": "begun"}

    def step(self, action):
        self.steps += 1
        return (
            np.array([float(self.steps)]),
            1.0,
            False,
            False,
            {
                "word" if self.steps % 2 else "steps": f"{self.steps}"
                if self.steps % 2
                else self.steps
            },
        )


def test_rows_asked_one_by_one_again_and_again_are_never_taken_for_each_other():
    """Where an answer comes as a message, the count of its entry may not have been read yet."""
    with ShmemBackend([TellsWords] * 5, workers=1) as env:
        env.reset()
        for step in range(1, 300):
            env.send([0] * 5, env_ids=[4, 3, 2, 1, 0])
            observations, *_, infos = env.recv()
            assert observations[:, 0].tolist() == [step] * 5
            assert (
                infos["word" if step % 2 else "steps"].tolist()
                == [f"{step}" if step % 2 else step] * 5
            )
