"""Waits that end early: ``recv`` with what has come, timeouts as Gymnasium's users catch them,
``close`` in between.
"""

import multiprocessing
import os
import signal
import threading
import warnings
from functools import partial
from itertools import product

import gymnasium
import numpy as np
import pytest

import vecwrap
from tests.helpers.backends import DummyBackend, ShmemBackend, SubprocessBackend
from tests.helpers.toy_envs import counter
from vecwrap.errors import ArgumentError, BackendError, SubEnvError, WaitTimeoutError
from vecwrap.rows.step_result import Autoreset
from vecwrap.testing import assert_same, toy

BACKENDS = {
    "dummy": DummyBackend,
    "subprocess": partial(SubprocessBackend, workers=3),
    "shmem": partial(ShmemBackend, workers=3),
}
EVERY = pytest.mark.parametrize("backend", BACKENDS)


class Gated(gymnasium.Env):
    """A step waits until a file is there; its observation is how many steps were taken."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, gate=None):
        self.gate, self.taken = gate, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.taken = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        if action == 2:
            raise RuntimeError("as told")
        if action == 1:
            self.pass_the_gate()
        self.taken += 1
        return np.full(1, self.taken, np.float32), 1.0, False, False, {"taken": self.taken}

    def pass_the_gate(self):
        while self.gate is not None and not self.gate.exists():
            threading.Event().wait(0.002)
        return "passed"


@pytest.fixture
def gate(tmp_path):
    path = tmp_path / "open"
    yield path
    path.touch()


@pytest.fixture
def gated(request, gate):
    """An environment of three on a backend of workers; the last one waits at the gate."""
    with _chain(request.param, gate) as env:
        env.reset(seed=1)
        yield env
        gate.touch()


def _chain(backend, gate):
    name, batch_size, wrappers = backend
    settings = {"workers": 3} | ({"parent_share": False} if name == "shmem" else {})
    makers = [Gated, Gated, partial(Gated, gate)]
    return vecwrap.build(
        makers, backend={"name": name, **settings}, batch_size=batch_size, wrappers=list(wrappers)
    )


WRAPPERS = ("monitor", "framestack:2", "normalize")
WORKERS = pytest.mark.parametrize(
    "gated",
    [
        pytest.param(each, marks=() if k % 4 in (1, 2) else pytest.mark.full)
        for k, each in enumerate(
            product(("subprocess", "shmem", "threads"), (None, 3), ((), WRAPPERS))
        )
    ],
    indirect=True,
    ids=str,
)


# -- recv with a minimum ---------------------------------------------------------------------------


@WORKERS
def test_at_the_timeout_recv_returns_what_has_come_and_nothing_is_lost(gated, gate):
    gated.send([0, 0, 1])
    got = []
    while len(got) < 2:
        try:
            result = gated.recv(min=2 - len(got), timeout=0.05)
        except WaitTimeoutError:
            continue
        got += result[4]["env_id"].tolist()
        assert result[4]["taken"].tolist() == [1] * len(result[1])
        assert all(len(column) == len(result[1]) for column in result[:4])
    assert sorted(got) == [0, 1]
    with pytest.raises(WaitTimeoutError):
        gated.recv(min=1, timeout=0)
    gated.send([0], env_ids=[got[0]])  # the others go on meanwhile
    while True:
        try:
            infos = gated.recv(min=1, timeout=0.05)[4]
            break
        except TimeoutError:
            continue
    assert (infos["env_id"].tolist(), infos["taken"].tolist()) == ([got[0]], [2])
    gate.touch()
    infos = gated.recv()[4]
    assert (infos["env_id"].tolist(), infos["taken"].tolist()) == ([2], [1])
    assert gated.step([0, 0, 0])[4]["taken"].tolist() == [3 if i == got[0] else 2 for i in range(3)]


@WORKERS
def test_with_too_few_rows_recv_times_out_and_keeps_them(gated, gate):
    gated.send([0, 0, 1])
    for least in (None, 3):
        with pytest.raises(WaitTimeoutError):
            gated.recv(min=least, timeout=0.02)
    gate.touch()
    assert gated.recv(min=1, timeout=60)[4]["taken"].tolist() == [1, 1, 1]


@EVERY
def test_rows_come_in_parts_and_each_once(backend):
    env = BACKENDS[backend]([counter(length=9)] * 5)
    env.reset()
    for turn in range(1, 4):
        env.send([0] * 5)
        got = []
        while len(got) < 5:
            try:
                result = env.recv(min=1, timeout=0)
            except WaitTimeoutError:
                continue
            got += result[4]["env_id"].tolist()
            assert_same(np.full(len(result[1]), turn), result[4]["step"])
        assert sorted(got) == list(range(5))
    env.close()


def test_in_this_process_each_wait_steps_at_least_one_row_and_at_least_the_minimum_is_returned():
    env = DummyBackend([counter(length=9)] * 3)
    env.reset()
    env.send([0] * 3)
    with pytest.raises(WaitTimeoutError):
        env.recv(min=2, timeout=0)
    assert env.recv(min=2, timeout=0)[4]["env_id"].tolist() == [0, 1]
    assert env.recv(min=3, timeout=0)[4]["env_id"].tolist() == [2]  # all that was left
    env.close()


@EVERY
def test_a_failure_counts_as_a_row_and_carries_what_came_with_it(backend):
    env = BACKENDS[backend]([toy(end=0)] * 3)
    env.reset(seed=1)
    env.set_attr("raise_in", "step", indices=[0])
    env.send([0, 0, 0])
    seen, failed = [], []
    while len(seen) + len(failed) < 3:
        try:
            seen += env.recv(min=1, timeout=0)[4]["env_id"].tolist()
        except WaitTimeoutError:
            continue
        except SubEnvError as error:
            failed += [failure.index for failure in error.failures]
            seen += [] if error.others is None else error.others[4]["env_id"].tolist()
    assert (sorted(seen), failed) == ([1, 2], [0])
    env.close()


@pytest.mark.parametrize("least", [0, -1, 3, 1.5, "1"])
def test_a_minimum_that_no_recv_can_return_is_refused(least):
    env = DummyBackend([counter()] * 4, batch_size=2)
    env.reset()
    env.send([0] * 4)
    with pytest.raises(
        ArgumentError, match="recv: min: expected 1 to 2, the rows that one recv returns, got"
    ):
        env.recv(min=least, timeout=1)
    assert len(env.recv(min=np.int64(2))[1]) == 2
    env.close()


# -- timeouts --------------------------------------------------------------------------------------


KINDS = (TimeoutError, multiprocessing.TimeoutError, vecwrap.VecwrapError)


@WORKERS
def test_a_timeout_is_caught_by_either_name(gated, gate):
    gated.step_async([0, 0, 1])
    for kind in KINDS:
        with pytest.raises(kind, match="have not answered yet; wait again"):
            gated.step_wait(timeout=0.01)
    gate.touch()
    assert gated.step_wait()[4]["taken"].tolist() == [1, 1, 1]


@WORKERS
def test_a_call_that_times_out_can_be_waited_for_again(gated, gate):
    gated.call_async("pass_the_gate")
    with pytest.raises(
        WaitTimeoutError, match="not all sub-environments have answered yet; wait again"
    ):
        gated.call_wait(timeout=0.01)
    gate.touch()
    assert gated.call_wait() == ("passed",) * 3


def test_so_is_one_in_this_process():
    env = DummyBackend([counter()] * 2)
    env.reset()
    env.step_async([0, 0])
    with pytest.raises(multiprocessing.TimeoutError):
        env.step_wait(timeout=0)
    env.step_wait()
    env.close()


# -- close while a call is pending -----------------------------------------------------------------


def ask(env, kind):
    arguments = {"step": [[0, 0, 0]], "reset": [], "call": ["state"]}[kind]
    getattr(env, f"{kind}_async")(*arguments)


@EVERY
@pytest.mark.parametrize("kind", ["step", "reset", "call"])
@pytest.mark.parametrize("terminate", [False, True])
def test_close_warns_once_of_a_pending_call_as_gymnasium_does(backend, kind, terminate):
    env = BACKENDS[backend]([toy()] * 3)
    env.reset(seed=1)
    ask(env, kind)
    words = f"Calling `close` while waiting for a pending call to `{kind}` to complete"
    with pytest.warns(UserWarning, match=words) as caught:
        env.close(terminate=terminate)
    assert len(caught) == 1
    env.close()
    assert env.closed


def test_gymnasium_says_the_same():
    engine = gymnasium.vector.AsyncVectorEnv([toy()] * 2)
    engine.reset(seed=2)  # whose infos it can stack
    engine.step_async([0, 0])
    with pytest.warns(
        UserWarning, match="Calling `close` while waiting for a pending call to `step` to complete"
    ):
        engine.close()


@EVERY
def test_a_warning_that_is_an_exception_leaves_nothing_open(backend):
    env = vecwrap.build(toy(), n=3, backend=backend, wrappers=["monitor"])
    env.reset(seed=1)
    env.step_async([0, 0, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="pending call to `step`"):
            env.close()
        env.close()
    assert env.closed


@EVERY
def test_it_says_nothing_of_rows_that_were_sent_nor_after_an_exception(backend):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = BACKENDS[backend]([toy()] * 3, batch_size=1)
        env.reset(seed=1)
        env.send([0, 0, 0])
        env.recv()
        env.close()
        with pytest.raises(KeyError), BACKENDS[backend]([toy()] * 3) as env:
            env.reset_async(seed=1)
            raise KeyError


def test_it_says_nothing_of_a_call_that_the_death_of_a_worker_has_answered():
    env = SubprocessBackend([toy(end=0)] * 2, workers=2)
    env.reset(seed=1)
    os.kill(env.health().workers[0].pid, signal.SIGKILL)
    with pytest.raises(BackendError):
        env.step([0, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.close()


@pytest.mark.parametrize("mode", Autoreset)
def test_it_warns_in_every_mode_and_through_wrappers(mode):
    env = vecwrap.build(toy(), n=2, backend="dummy", autoreset=mode, wrappers=["monitor"])
    env.reset_async(seed=1)
    with pytest.warns(UserWarning, match="pending call to `reset`"), env:
        pass


def test_an_engine_warns_too():
    with vecwrap.wrap(gymnasium.vector.SyncVectorEnv([toy()] * 2)) as env:
        env.reset(seed=1)
        env.step_async([0, 0])
        with pytest.warns(UserWarning, match="pending call to `step`"):
            env.close()
