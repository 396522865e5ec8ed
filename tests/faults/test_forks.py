"""Forks, threads, daemons and builds side by side: it works, or says clearly why not."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import vecwrap
from tests.helpers.backends import DummyBackend, ShmemBackend, SubprocessBackend
from tests.helpers.polling import LONG, gone
from vecwrap.testing.toys import OpenResources, assert_nothing_left

ROOT = Path(__file__).parents[2]
PROCESS_BACKENDS = [SubprocessBackend, ShmemBackend]
pytestmark = [
    pytest.mark.parametrize("backend", PROCESS_BACKENDS),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
CARTPOLES = [partial(gymnasium.make, "CartPole-v1")] * 3


def in_child(function):
    """Run a function in a forked child; gives what it returns, as text."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            text = str(function())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    text = b""
    while part := os.read(reading, 1 << 16):
        text += part
    os.close(reading)
    os.waitpid(pid, 0)
    return text.decode()


def test_a_forked_child_may_not_use_it_and_does_it_no_harm(backend, quick_workers):
    with backend(CARTPOLES, workers=2) as env:
        observations, _ = env.reset(seed=1)
        for call in (
            lambda: env.step([0, 0, 0]),
            env.reset,
            lambda: env.get_attr("spec"),
            lambda: env.send([0, 0, 0]),
        ):
            told = in_child(call)
            assert told.startswith("BackendError: ")
            assert (
                f"was built in process {os.getpid()}, and its workers answer only that process"
                in told
            )
        assert in_child(env.close) == "None"
        assert in_child(lambda: env.__del__()) == "None"
        with DummyBackend(CARTPOLES) as twin:
            assert (twin.reset(seed=1)[0] == observations).all()
            assert (twin.step([0, 1, 0])[0] == env.step([0, 1, 0])[0]).all()


def test_a_forked_child_builds_its_own(backend):
    def play():
        with backend(CARTPOLES, workers=2) as env:
            return env.reset(seed=1)[0].tolist()

    with backend(CARTPOLES, workers=1) as env:
        assert in_child(play) == str(env.reset(seed=1)[0].tolist())
        env.step([0, 0, 0])


SURVIVED = """
import os, sys, time
import gymnasium
from vecwrap.backends.{module} import {backend}
from vecwrap.testing import on
env = on({backend})([lambda: gymnasium.make("CartPole-v1")] * 2, workers=2)
env.reset(seed=1)
if not os.fork():
    time.sleep(600)  # it holds copies of all that the parent had open
    os._exit(0)
print(*[worker.pid for worker in env.health().workers], flush=True)
time.sleep(600)
"""


def test_workers_end_with_their_parent_though_a_fork_of_it_lives_on(backend):
    code = SURVIVED.format(module=backend.name, backend=backend.__name__)
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    pids = [int(word) for word in parent.stdout.readline().split()]
    parent.kill()
    ended = gone(pids)
    os.killpg(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert ended


def _build_and_play(backend, put):
    try:
        with backend(CARTPOLES, workers=2) as env:
            put(env.reset(seed=1)[0].tolist())
    except BaseException as error:
        put(f"{type(error).__name__}: {error}")


class Outer(gymnasium.Wrapper):
    """Has sub-environments of its own, whose workers are forked off the worker."""

    def __init__(self, backend):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.inner = backend(CARTPOLES[:1], workers=1, start_method="fork")

    def reset(self, *, seed=None, options=None):
        return self.inner.reset(seed=seed)[0][0], {}

    def close(self):
        self.inner.close()
        super().close()


def test_a_forked_worker_whose_environment_forks_workers_of_its_own(backend):
    """The lock that was held while it was forked is its own now, and nobody would release it."""
    make = partial(Outer, backend)
    with (
        backend([make], workers=1, start_method="fork", daemon=False, start_timeout=LONG) as env,
        DummyBackend(CARTPOLES[:1]) as twin,
    ):
        assert env.reset(seed=1)[0].tolist() == twin.reset(seed=1)[0].tolist()


def test_inside_a_daemon_process(backend):
    """multiprocessing lets a daemon have no children of multiprocessing's; a fresh interpreter is
    none of those.
    """
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    daemon = context.Process(target=_build_and_play, args=(backend, queue.put), daemon=True)
    daemon.start()
    got = queue.get()
    daemon.join()
    with DummyBackend(CARTPOLES) as env:
        assert got == env.reset(seed=1)[0].tolist()


def test_inside_a_daemon_process_with_multiprocessings_own_start_says_why_not(backend):
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    spawning = partial(backend, start_method="spawn")
    daemon = context.Process(target=_build_and_play, args=(spawning, queue.put), daemon=True)
    daemon.start()
    got = queue.get()
    daemon.join()
    assert got.startswith(
        "BackendError: a worker could not be started (daemonic processes are not allowed"
    )


def test_inside_a_thread_that_ends_before_it_is_used(backend):
    before = OpenResources.now()
    built = []
    thread = threading.Thread(target=lambda: built.append(backend(CARTPOLES, workers=2)))
    thread.start()
    thread.join()
    time.sleep(0.2)
    built[0].reset(seed=1)
    built[0].step([0, 1, 0])
    built.pop().close()
    assert_nothing_left(before, before)


def test_beside_threads_that_are_busy(backend):
    stop = threading.Event()

    def work():
        while not stop.is_set():
            np.linalg.svd(np.random.default_rng(0).random((50, 50)))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        with backend(CARTPOLES, workers=2) as env:
            env.reset(seed=1)
            for _ in range(5):
                env.step([0, 1, 0])
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def play_in_threads(backend):
    """Three environments at once, each in a thread of its own, give what one alone gives."""
    with DummyBackend(CARTPOLES) as twin:
        expected = [twin.reset(seed=1)[0], *(twin.step([0, 1, 0])[0] for _ in range(30))]
    results = {}

    def play(name):
        with backend(CARTPOLES, workers=2) as env:
            results[name] = [env.reset(seed=1)[0], *(env.step([0, 1, 0])[0] for _ in range(30))]

    threads = [threading.Thread(target=play, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in "abc":
        assert all((one == other).all() for one, other in zip(expected, results[name], strict=True))


def test_several_at_the_same_time_in_threads(backend):
    before = OpenResources.now()
    play_in_threads(backend)
    assert_nothing_left(before, before)


def test_a_fork_by_the_user_of_build(backend, quick_workers):
    env = vecwrap.build("CartPole-v1", n=2, backend=backend.name, wrappers=["monitor"])
    env.reset(seed=1)
    assert in_child(lambda: env.step([0, 0])).startswith("BackendError: ")
    env.step([0, 0])
    env.close()
