"""Who has a core while a step waits for workers, by clocks that only the test moves."""

import os
import threading
import time

import pytest

import vecwrap
from tests.helpers.backends import DummyBackend
from vecwrap.testing import toy
from vecwrap.tools.core_use import CoreCounts, CoreMeter, contention, read_run_delay
from vecwrap.tools.timing import Stopwatch


class Cores:
    """A learner's thread, its other threads, and one worker, in seconds."""

    def __init__(self):
        self.now = self.stepping = self.others = 0.0
        self.delays = {}

    def waits(self, seconds, *, others=0.0, delay=0.0):
        self.now += seconds
        self.stepping += seconds / 10
        self.others += others
        self.delays = {pid: before + delay for pid, before in self.delays.items()}

    def meter(self, runner):
        self.delays = {worker.pid: 3.0 for worker in runner.health()}
        return CoreMeter(
            runner,
            clock=lambda: self.now,
            process_clock=lambda: self.stepping + self.others,
            thread_clock=lambda: self.stepping,
            read_delay=self.delays.get,
        )


@pytest.fixture
def env():
    with vecwrap.build("CartPole-v1", n=2, backend="shmem", workers=2) as env:
        env.reset(seed=1)
        yield env


def metered(runner, cores, waits, **each):
    meter = cores.meter(runner)
    meter._read_delay = lambda pid: cores.delays[pid]
    before = meter.read()
    for _ in range(waits):
        cores.waits(1.0, others=5.0, delay=0.0)  # the learner computes: nobody's wait
        meter.begin_wait()
        cores.waits(0.0117, **each)
        meter.end_wait()
    return meter.read().since(before)


def test_waits_are_counted_and_what_the_learner_computes_between_them_is_not(env):
    counts = metered(env.core.runner, Cores(), 100, others=0.0105, delay=0.0062)
    assert counts.waits == 100
    assert counts.waited == pytest.approx(1.17)
    assert counts.beside == pytest.approx(1.05)
    assert list(counts.delays.values()) == [pytest.approx(0.62)] * 2


def test_threads_that_take_the_workers_core_are_named_with_figures_and_a_remedy(env):
    remark = contention(metered(env.core.runner, Cores(), 100, others=0.0105, delay=0.0062))
    assert remark.startswith("your learner's threads take your workers' core: of the 11.7 ms ")
    assert "no core for 6.2 ms" in remark
    assert "OMP_WAIT_POLICY=PASSIVE before torch is imported" in remark
    assert "torch.set_num_threads(1)" in remark


@pytest.mark.parametrize(
    ("others", "delay"),
    [
        pytest.param(0.0, 0.0062, id="other programs take the core"),
        pytest.param(0.0105, 0.0, id="there are cores for all"),
        pytest.param(0.0, 0.0, id="the environments are slow"),
        pytest.param(0.0105, 0.002, id="a little"),
    ],
)
def test_nobody_is_accused_wrongly(env, others, delay):
    assert not contention(metered(env.core.runner, Cores(), 100, others=others, delay=delay))


def test_a_moment_says_nothing(env):
    assert not contention(metered(env.core.runner, Cores(), 4, others=0.0105, delay=0.0062))


def test_workers_that_were_restarted_meanwhile_are_left_out():
    before = CoreCounts(0, 0.0, 0.0, {1: 5.0, 2: 5.0})
    after = CoreCounts(10, 1.0, 0.9, {1: 5.1, 3: 90.0})
    assert after.since(before).delays == {1: pytest.approx(0.1)}


def test_without_workers_no_process_is_looked_at():
    env = DummyBackend([toy()])
    meter = CoreMeter(env.core.runner, read_delay=lambda pid: pytest.fail("asked"))
    assert not meter.has_workers
    assert meter.read().delays == {}
    env.close()


@pytest.mark.skipif(read_run_delay(os.getpid()) is None, reason="the system does not count it")
def test_the_system_counts_how_long_a_process_has_no_core():
    before = read_run_delay(os.getpid())
    assert before >= 0
    assert read_run_delay(os.getpid()) >= before


def test_a_process_that_has_ended_and_a_system_that_does_not_count_are_unknown(tmp_path):
    assert read_run_delay(2**22 + 1) is None


def test_a_stopwatch_remarks_on_what_it_timed_over_all_its_periods(env):
    cores = Cores()
    watch = Stopwatch(env)
    watch.meter = cores.meter(env.core.runner)
    watch.meter._read_delay = lambda pid: cores.delays[pid]
    receive = watch._rows[0]._rows.receive

    class Rows:
        """Waits as beside a learner that spins."""

        def __getattr__(self, name):
            return getattr(env.core.rows, name)

        def receive(self, count, timeout):
            cores.waits(0.0117, others=0.0105, delay=0.0062)
            return receive(count, timeout)

    watch._rows[0]._rows = Rows()
    for _ in range(3):
        assert watch.remarks == []
        with watch:
            for _ in range(3):
                env.step([0, 1])
        cores.waits(100.0, others=100.0, delay=100.0)  # while it is off
    (remark,) = watch.remarks
    assert "11.7 ms" in remark
    assert "6.2 ms" in remark


def test_threads_beside_the_calling_one_are_what_the_clocks_leave():
    """Of the real clocks: what another thread computes is the process's, not this thread's."""
    meter = CoreMeter(DummyBackend([toy()]).core.runner)
    meter.begin_wait()
    thread = threading.Thread(target=lambda: sum(range(10**6)))
    thread.start()
    thread.join()
    meter.end_wait()
    assert meter.read().beside > 0
    assert time.thread_time() < time.process_time()
