"""The end of a run, however it comes: an exception, a killed worker, a killed parent, Ctrl-C, a
forgotten close.
"""

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import psutil
import pytest

from tests.helpers.backends import ShmemBackend, SubprocessBackend
from tests.helpers.polling import gone, until
from vecwrap.backends.workers.launch import kill
from vecwrap.errors import BackendError, SubEnvError
from vecwrap.testing.toys import OpenResources, assert_nothing_left

ROOT = Path(__file__).parents[2]
PROCESS_BACKENDS = [SubprocessBackend, ShmemBackend]
pytestmark = [
    pytest.mark.usefixtures("either_start"),
    pytest.mark.filterwarnings("ignore:Calling `close` while waiting for a pending call"),
]


class Faulty(gymnasium.Env):
    """Counts its steps; action 1 raises, action 2 kills its process, action 3 ends it, action 4
    calls sys.exit.
    """

    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        if action == 1:
            raise KeyError("what went wrong")
        if action == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if action == 3:
            os._exit(7)
        if action == 4:
            sys.exit("the simulator gave up")
        return np.full(1, self.steps, np.float32), 1.0, False, False, {"steps": self.steps}


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
@pytest.mark.parametrize("action", [1, 4])
def test_an_exception_in_a_sub_environment(backend, action):
    with backend([Faulty] * 4, workers=2) as env:
        env.reset(seed=10)
        env.step([0, 0, 0, 0])
        with pytest.raises(SubEnvError) as caught:
            env.step([0, action, 0, 0])
        error = caught.value
        assert (error.index, error.seed, error.episode, error.step, int(error.action)) == (
            1,
            11,
            1,
            1,
            action,
        )
        words = "what went wrong" if action == 1 else "the simulator gave up"
        assert words in str(error)
        assert words in str(error.__cause__)
        assert "in step" in str(error.__cause__), "the sub-environment's own traceback"
        # the others are unharmed: their transitions travel with the error, and they go on
        observations, rewards, _, _, infos = error.others
        assert infos["env_id"].tolist() == [0, 2, 3]
        assert observations.ravel().tolist() == [2, 2, 2]
        assert rewards.tolist() == [1, 1, 1]
        mask = np.array([False, True, False, False])
        observations, _ = env.reset(options={"reset_mask": mask})
        assert observations.ravel().tolist() == [2, 0, 2, 2]
        assert env.step([0, 0, 0, 0])[0].ravel().tolist() == [3, 1, 3, 3]


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
@pytest.mark.parametrize(
    ("action", "words", "code"),
    [(2, "killed by SIGKILL, often the out-of-memory", -9), (3, "exit code 7", 7)],
)
def test_a_worker_that_dies_is_noticed_at_once(backend, action, words, code):
    env = backend([Faulty] * 4, workers=2)
    pids = [worker.process.pid for worker in env.unwrapped.runner._workers]
    env.reset()
    with pytest.raises(BackendError) as caught:
        env.step([0, 0, 0, action])
    assert words in str(caught.value)
    assert f"worker 1 (pid {pids[1]}, sub-environments 2-3)" in str(caught.value)
    assert (caught.value.worker, caught.value.env_ids, caught.value.exitcode) == (1, (2, 3), code)
    with pytest.raises(BackendError, match="worker 1"):
        env.step([0, 0, 0, 0])
    env.close()
    assert gone(pids)


def reap_all(number, frame):
    """As programs do that never want to see a zombie."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                return
        except ChildProcessError:
            return


@pytest.fixture(params=[signal.SIG_IGN, reap_all], ids=["ignored", "reaped"])
def program_takes_ends(request):
    """The program reaps its children itself, or has the system do so."""
    gc.collect()  # what other tests have left, with its processes
    earlier = signal.signal(signal.SIGCHLD, request.param)
    yield
    signal.signal(signal.SIGCHLD, earlier)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    "start_method", ["fresh", "fork", pytest.param("spawn", marks=pytest.mark.full), "forkserver"]
)
def test_a_program_that_takes_its_children_s_ends(start_method, program_takes_ends, monkeypatch):
    """It is told no exit code that was none, and its workers are neither waited for in vain nor
    killed.
    """
    before = OpenResources.now()
    sent = []

    def noted(process, number):
        sent.append(number)
        kill(process, number)

    monkeypatch.setattr("vecwrap.backends.workers.worker_handle.kill", noted)
    env = ShmemBackend([Faulty] * 4, workers=2, start_method=start_method)
    pids = [worker.process.pid for worker in env.unwrapped.runner._workers]
    env.reset()
    with pytest.raises(
        BackendError, match=r"worker 1 \(pid \d+, sub-environments 2-3\) died: (.*)"
    ) as caught:
        env.step([0, 0, 0, 2])
    if start_method == "forkserver":  # whose server is not this program
        assert caught.value.exitcode == -signal.SIGKILL
    else:
        assert "the program ignores SIGCHLD, or waited for this process itself" in str(caught.value)
        assert caught.value.exitcode is None
    env.close()
    assert gone(pids)
    assert signal.SIGTERM not in sent, "they went when they were asked"
    assert_nothing_left(before, before)


PARENT = """
import os, subprocess, time
import gymnasium, numpy as np
from vecwrap.backends.{module} import {backend}
from vecwrap.testing import on

class Endless(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        self.child = subprocess.Popen(["sleep", "600"])
        return np.zeros(1, np.float32), dict(pid=self.child.pid)
    def step(self, action):
        os.write(1, b"steps\\n")  # in one piece, beside the other's
        time.sleep(600)

env = on({backend})([Endless] * 2, workers=2, start_method={method!r})
_, infos = env.reset()
print(*[worker.process.pid for worker in env.unwrapped.runner._workers], *infos["pid"], flush=True)
env.step([0, 0])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
@pytest.mark.parametrize(
    ("number", "method"),
    [
        (signal.SIGKILL, None),
        (signal.SIGKILL, "fork"),
        (signal.SIGTERM, None),
        pytest.param(signal.SIGTERM, "fork", marks=pytest.mark.full),
        (signal.SIGINT, None),
        (signal.SIGINT, "fork"),
    ],
)
def test_the_parent_is_ended_while_workers_are_busy(backend, number, method):
    """Workers, and what environments started in them, go as well; Ctrl-C prints one traceback."""
    code = PARENT.format(module=backend.name, backend=backend.__name__, method=method)
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 4
    assert [parent.stdout.readline() for _ in range(2)] == ["steps\n"] * 2
    waits = psutil.Process(parent.pid)
    assert until(lambda: waits.status() == psutil.STATUS_SLEEPING)  # and no longer on its way there
    if number == signal.SIGINT:
        os.killpg(parent.pid, number)  # as a terminal does: to the whole group in the foreground
    else:
        parent.send_signal(number)
    _, errors = parent.communicate(timeout=60)
    assert gone(pids), "still running"
    if number == signal.SIGINT:
        assert errors.count("Traceback") == 1, errors
        assert errors.strip().endswith("KeyboardInterrupt"), errors


QUICK = """
import gymnasium
from vecwrap.backends.{module} import {backend}
from vecwrap.testing import on
env = on({backend})([lambda: gymnasium.make("CartPole-v1")] * 4, workers=2)
env.reset(seed=0)
print(*[worker.process.pid for worker in env.unwrapped.runner._workers], flush=True)
while True:
    env.step([0, 1, 0, 1])
    print("step", flush=True)
"""


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
@pytest.mark.parametrize(
    "steps", [37, *(pytest.param(steps, marks=pytest.mark.full) for steps in (1, 100))]
)
def test_the_parent_is_killed_amid_quick_steps(backend, steps):
    code = QUICK.format(module=backend.name, backend=backend.__name__)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True
    ) as parent:
        pids = [int(word) for word in parent.stdout.readline().split()]
        for _ in range(steps):
            assert parent.stdout.readline() == "step\n"
        parent.kill()
    assert len(pids) == 2
    assert gone(pids)  # and the memory with them, which has no name


class Starter(Faulty):
    """Starts a process and forgets it."""

    def reset(self, *, seed=None, options=None):
        child = subprocess.Popen(["sleep", "600"])
        return super().reset()[0], {"pid": child.pid}


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_what_an_environment_started_ends_with_its_worker(backend):
    with backend([Starter] * 2, workers=1) as env:
        _, infos = env.reset()
    assert gone(infos["pid"].tolist())


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
@pytest.mark.parametrize("how", ["close", "delete", "terminate", "while out"])
def test_nothing_is_left_behind(backend, how):
    me = psutil.Process()
    warm = backend([Faulty] * 2, workers=1)  # whatever a first use opens for good is open now
    warm.close()

    def held():
        return me.num_fds(), len(me.children(recursive=True)), len(me.open_files())

    before = held()
    env = backend([Faulty] * 4, workers=3)
    pids = [worker.process.pid for worker in env.unwrapped.runner._workers]
    env.reset()
    if how == "while out":
        env.step_async([0, 0, 0, 0])
    if how == "delete":
        del env
    else:
        env.close(terminate=how == "terminate")
        env.close()
    assert gone(pids)
    assert until(lambda: held() == before), (before, held())


def run(code):
    """Run a program of its own to its end; gives what it wrote to stdout and stderr."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout, done.stderr


ENDS_LATE = """
import gymnasium, vecwrap
class EndsLate(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Discrete(2)
    def close(self):
        import colorsys  # as many import what they draw with
        print("closed")
env = {make}
"""


@pytest.mark.parametrize(
    "make",
    [
        'vecwrap.build(EndsLate, n=2, backend="dummy")',
        "vecwrap.wrap(gymnasium.vector.SyncVectorEnv([EndsLate] * 2))",
    ],
    ids=["dummy", "wrap"],
)
def test_at_the_interpreters_end_what_runs_in_this_process_is_closed_while_it_can_import(make):
    assert run(ENDS_LATE.format(make=make)) == ("closed\n" * 2, "")


WRAPPER_ENDS_LATE = """
import gymnasium, vecwrap
from vecwrap.env.wrapper import VecEnvWrapper
class EndsLate(VecEnvWrapper):
    def __init__(self, env, name):
        super().__init__(env)
        self.name = name
    def on_close(self):
        import colorsys
        print(self.name)
env = EndsLate(EndsLate(vecwrap.build("CartPole-v1", n=2, backend="dummy"), "inner"), "outer")
"""


def test_at_the_interpreters_end_a_wrapper_is_closed_while_it_can_import():
    assert run(WRAPPER_ENDS_LATE) == ("outer\ninner\n", "")


IMPORTS_WHAT_ENDS = """
import atexit, gymnasium, vecwrap
from gymnasium.envs.classic_control import CartPoleEnv
class Imports(CartPoleEnv):
    def __init__(self, **keywords):
        super().__init__(**keywords)
        atexit.register(print, "the module has ended")
    def close(self):
        print("closed")
first = vecwrap.build("CartPole-v1", n=1, backend="dummy")
second = vecwrap.build(Imports, n=1, backend="dummy")
"""


def test_at_the_interpreters_end_what_an_environment_has_imported_is_still_there():
    assert run(IMPORTS_WHAT_ENDS) == ("closed\nthe module has ended\n", "")
