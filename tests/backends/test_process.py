"""Sharing sub-environments out among workers, and starting them."""

import errno
import os
import signal
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.backends import ShmemBackend, SubprocessBackend
from tests.helpers.polling import until
from tests.helpers.toy_envs import counter
from vecwrap.backends.shmem import Shmem
from vecwrap.backends.workers import launch, process, worker_handle
from vecwrap.backends.workers.launch import ONE_THREAD, worker_environment, worker_variables
from vecwrap.backends.workers.options import ProcessOptions, check_start_method
from vecwrap.backends.workers.shares import rows_of, share_out, sources_per_worker
from vecwrap.backends.workers.step_ring import _CORE, _DONE, Doorbell
from vecwrap.backends.workers.worker_handle import WorkerHandle
from vecwrap.errors import BackendError, PlanError
from vecwrap.testing import toy
from vecwrap.testing.toys import OpenResources, assert_nothing_left


@given(st.integers(1, 200), st.integers(1, 50))
def test_shares_differ_by_one_at_most(num_envs, workers):
    shares = share_out(num_envs, workers, None)
    assert [i for share in shares for i in share] == list(range(num_envs))
    assert len(shares) == min(workers, num_envs)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(st.integers(1, 200), st.integers(1, 50))
def test_so_many_a_worker_and_the_last_one_fewer(num_envs, envs_per_worker):
    sizes = [len(share) for share in share_out(num_envs, None, envs_per_worker)]
    assert sum(sizes) == num_envs
    assert set(sizes[:-1]) <= {envs_per_worker}
    assert 1 <= sizes[-1] <= envs_per_worker


def test_no_game_is_split():
    expected = [range(4), range(4, 6)]
    for workers, each in ((2, None), (None, 4)):
        shares = share_out(3, workers, sources_per_worker(each, 2))
        assert [rows_of(share, 2) for share in shares] == expected


@pytest.mark.parametrize(("workers", "envs_per_worker"), [(0, None), (-1, None), (None, 0), (2, 2)])
def test_impossible_shares_are_refused(workers, envs_per_worker):
    with pytest.raises(PlanError, match="workers|envs_per_worker"):
        ProcessOptions(workers=workers, envs_per_worker=envs_per_worker)


def test_an_unknown_start_method_is_refused_with_a_near_one():
    with pytest.raises(PlanError, match="got 'forkservr'. Did you mean \"forkserver\""):
        check_start_method("forkservr")


def test_a_worker_has_no_mpi_variables_and_one_thread_a_library_unless_the_user_said_otherwise():
    given_ = {
        "OMPI_COMM_WORLD_RANK": "1",
        "PMI_SIZE": "2",
        "PMIX_ID": "x",
        "OMP_NUM_THREADS": "4",
        "HOME": "/h",
    }
    variables = worker_environment(given_)
    assert variables["OMP_NUM_THREADS"] == "4"
    assert variables["MKL_NUM_THREADS"] == "1"
    assert variables["HOME"] == "/h"
    assert not [name for name in variables if name.startswith(("OMPI", "PMI"))]


def test_only_the_variables_that_differ_are_changed_for_a_start_that_inherits_them(monkeypatch):
    """Other threads look at them meanwhile, and what is interrupted must not lose them."""
    for name in ONE_THREAD:
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    monkeypatch.delenv("MKL_NUM_THREADS")
    before, changed = dict(os.environ), []
    for function in ("putenv", "unsetenv"):
        real = getattr(os, function)

        def noted(name, *value, real=real):
            changed.append(os.fsdecode(name))
            real(name, *value)

        monkeypatch.setattr(os, function, noted)
    with pytest.raises(RuntimeError), worker_variables():
        assert dict(os.environ) == worker_environment(before)
        raise RuntimeError
    assert dict(os.environ) == before
    assert sorted(changed) == ["MKL_NUM_THREADS"] * 2 + ["OMPI_COMM_WORLD_RANK"] * 2


def exhausted(*_, **__):
    raise OSError(errno.EMFILE, "Too many open files")


@pytest.mark.parametrize(
    "place", [(launch, "StderrTail"), (launch.socket, "socketpair"), (launch, "_popen")]
)
def test_a_worker_that_finds_no_descriptors_is_an_error_that_says_so_and_leaves_none_open(
    place, monkeypatch
):
    before = OpenResources.now()
    with (
        monkeypatch.context() as patch,
        pytest.raises(BackendError, match="could not be started .*Too many"),
    ):
        patch.setattr(*place, exhausted)
        SubprocessBackend([toy()] * 2, workers=2, start_method="fresh")
    assert_nothing_left(before, before)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes in /proc")
@pytest.mark.parametrize("method", ["fresh", "spawn", "fork"])
def test_no_signal_goes_to_the_group_of_a_process_that_was_reaped(method, monkeypatch):
    """Its id may be another's by then."""
    killed, kill = [], os.killpg

    def noted(pid, number):
        killed.append((pid, Path(f"/proc/{pid}").exists()))
        kill(pid, number)

    with SubprocessBackend([toy()] * 2, workers=1, start_method=method) as env:
        (worker,) = env.health().workers
        monkeypatch.setattr(os, "killpg", noted)
    assert set(killed) == {(worker.pid, True)}


def interrupts_of_a_worker():
    return signal.getsignal(signal.SIGINT), signal.pthread_sigmask(signal.SIG_BLOCK, [])


class TellsOfInterrupts(CartPoleEnv):
    def tell(self):
        return interrupts_of_a_worker()


@pytest.mark.parametrize("method", ["fresh", "spawn", "fork"])
def test_a_worker_hears_no_interrupt_from_its_first_moment_on(method, monkeypatch):
    """As it was: Ctrl-C while workers started by spawn printed a traceback for each."""
    blocked = []
    start = BaseProcess.start

    def noted(process):
        blocked.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))
        start(process)

    monkeypatch.setattr(BaseProcess, "start", noted)
    with SubprocessBackend([TellsOfInterrupts], workers=1, start_method=method) as env:
        assert blocked == {"fresh": [], "spawn": [True], "fork": [False]}[method]
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
        assert env.call("tell") == ((signal.SIG_IGN, set()),)


@pytest.mark.parametrize("bells", range(4))
def test_a_lane_that_finds_no_descriptors_is_an_error_that_says_so_and_leaves_none_open(
    bells, monkeypatch
):
    before, create = OpenResources.now(), Doorbell.create
    made = []
    monkeypatch.setattr(
        Doorbell,
        "create",
        lambda: exhausted() if len(made) == bells else made.append(create()) or made[-1],
    )
    with pytest.raises(BackendError, match="bells could not .*Too many"):
        ShmemBackend([toy()] * 2, workers=2)
    assert_nothing_left(before, before)


def test_an_info_is_read_though_its_keys_are_told_in_the_message_of_another_row():
    """Two rows are done before the parent looks: the first tells of an info's keys, the second has
    such an info.
    """
    with ShmemBackend([counter(length=9)] * 2, workers=1, batch_size=1) as env:
        env.reset(seed=1)
        env.send([0, 1])
        lane = env.unwrapped.runner._workers[0].ring
        assert until(lambda: lane.counts[_DONE] == 2)
        for _ in range(2):
            infos = env.recv()[4]
            assert infos["action"].tolist() == infos["env_id"].tolist()
            assert infos["step"].tolist() == [1]


@pytest.mark.parametrize(
    ("cores", "order"), [((1, 0, 1), [1, 0, 2]), ((0, 0, 0), [0, 1, 2]), ((1, 1, 0), [2, 0, 1])]
)
@pytest.mark.parametrize("whole", [True, False])
def test_workers_that_would_take_the_parents_core_are_asked_last(cores, order, whole, monkeypatch):
    """A worker is woken where it ran last; on the parent's core it would keep the parent from
    waking the others.
    """
    asked = []
    ask = WorkerHandle.request_steps
    monkeypatch.setattr(
        WorkerHandle,
        "request_steps",
        lambda link, *arguments: asked.append(link.number) or ask(link, *arguments),
    )
    monkeypatch.setattr(worker_handle, "current_core", lambda: 1)
    with ShmemBackend([toy()] * 6, workers=3) as env, ShmemBackend([toy()] * 6, workers=1) as alone:
        for each in (env, alone):
            each.reset(seed=1)
        for worker, core in zip(env.unwrapped.runner._workers, cores, strict=True):
            worker.ring.counts[_CORE] = core
        asked.clear()
        for each in (env, alone):
            each.step_async([0, 1, 2, 0, 1, 2]) if whole else each.send([0, 1, 2], [0, 2, 4])
            assert asked[:3] == order
        got, expected = (
            (each.step_wait() if whole else each.recv())[0].tolist() for each in (env, alone)
        )
        assert got == expected


def test_workers_say_on_which_core_they_were():
    with ShmemBackend([toy()] * 2, workers=2) as env:
        env.reset(seed=1)
        for worker in env.unwrapped.runner._workers:
            worker.ring.counts[_CORE] = -7
        env.step([0, 1])
        assert all(worker.ring.core >= -1 for worker in env.unwrapped.runner._workers)


@pytest.mark.parametrize(
    ("workers", "spins"), [(1, [True]), (3, [True, True, False]), (4, [False] * 4)]
)
def test_workers_spin_while_there_is_a_core_for_each(workers, spins, monkeypatch):
    told = []
    monkeypatch.setattr(process, "usable_cores", lambda: 3)
    init_of = Shmem._init_of
    monkeypatch.setattr(
        Shmem,
        "_init_of",
        lambda *all, spins, **more: told.append(spins) or init_of(*all, spins=spins, **more),
    )
    with ShmemBackend([toy()] * 4, workers=workers):
        assert told == spins
