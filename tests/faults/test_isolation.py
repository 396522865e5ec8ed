"""Environments that do what they should not: each works as on dummy, or gives an error that names
it.
"""

import asyncio
import contextlib
import gc
import os
import resource
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import vecwrap
from tests.faults.faulty import Faulty
from tests.helpers.backends import DummyBackend, ShmemBackend, SubprocessBackend
from tests.helpers.polling import gone, until
from vecwrap.backends.workers.worker import Worker
from vecwrap.errors import BackendError, SubEnvError
from vecwrap.rows.compare import assert_same
from vecwrap.rows.step_result import Autoreset
from vecwrap.testing.toys import OpenResources, assert_nothing_left

PROCESS_BACKENDS = [SubprocessBackend, ShmemBackend]
pytestmark = pytest.mark.usefixtures("either_start")
ALL = [DummyBackend, *PROCESS_BACKENDS]


class Writer(Faulty):
    """Writes to stdout in every way there is."""

    def step(self, action):
        print("to stdout")
        os.write(1, b"to descriptor 1\n")
        sys.stdout.flush()
        return super().step(action)


class Mover(Faulty):
    """Goes elsewhere."""

    def step(self, action):
        os.chdir("/")
        return super().step(action)


class Deaf(Faulty):
    """Takes signals for itself."""

    def reset(self, **keywords):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        return super().reset(**keywords)


class Threads(Faulty):
    """Starts threads that never end."""

    def reset(self, **keywords):
        threading.Thread(target=time.sleep, args=(600,), daemon=False).start()
        return super().reset(**keywords)


class Closes(Faulty):
    """Closes itself in mid-episode, as some do at the end of an episode."""

    def step(self, action):
        self.close()
        self.closed = False  # it does not mind
        return super().step(action)


class Buffers(Faulty):
    """Gives the same arrays again and again."""

    def reset(self, **keywords):
        observation, info = super().reset(**keywords)
        self.kept = observation
        return self.kept, info

    def step(self, action):
        observation, *rest = super().step(action)
        for key, value in observation.items():
            self.kept[key][...] = value
        return self.kept, *rest


class Huge(Faulty):
    """An info of 30 MB."""

    def step(self, action):
        result = super().step(action)
        result[4]["huge"] = np.full(30_000_000 // 8, self.steps, dtype=np.int64)
        return result


class NotANumber(Faulty):
    def step(self, action):
        observation, _, *rest = super().step(action)
        observation["a"][:] = np.nan
        return observation, float("nan"), *rest


class ArrayReward(Faulty):
    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, np.array([reward]), *rest


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    "kind", [Writer, Mover, Deaf, Threads, Closes, Buffers, Huge, NotANumber, ArrayReward]
)
@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_it_works_as_on_dummy_and_goes_when_it_is_told(backend, kind, capfd):
    before = OpenResources.now()
    # These would stay in this process.
    plain = {Deaf: Faulty, Threads: Faulty, Mover: Faulty}.get(kind, kind)
    # A fork server's stdout is not the one that is captured here.
    start = "fresh" if kind is Writer else None
    with (
        backend([kind] * 3, workers=2, start_method=start) as env,
        DummyBackend([plain] * 3) as twin,
    ):
        assert_same(twin.reset(seed=1), env.reset(seed=1), "reset")
        for k in range(4):
            assert_same(twin.step([k % 3] * 3), env.step([k % 3] * 3), f"step {k}")
        processes = [worker.process for worker in env.unwrapped.runner._workers]
        env.close(timeout=60)
    assert [process.exitcode for process in processes] == [0, 0], (
        "it went when it was asked, and was not killed"
    )
    assert_nothing_left(before, before)
    if kind is Writer:
        assert capfd.readouterr().out.count("to descriptor 1\n") == 2 * 4 * 3


class Unpicklable(Exception):
    def __init__(self):
        super().__init__("an exception with a lock in it")
        self.lock = threading.Lock()

    def __reduce__(self):
        raise TypeError("no")


class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("even this")


class Leaving(Exception):
    def __str__(self):
        sys.exit(3)


class Forwarding(Exception):
    """Hands on what it does not have itself; the traceback module asks it for notes."""

    def __init__(self):
        super().__init__("no such level")
        self.details = {"level": 3}

    def __getattr__(self, name):
        return self.details[name]


class Secretive(Exception):
    def __getattribute__(self, name):
        raise RuntimeError(name)


class Nameless(type):
    @property
    def __name__(cls):
        raise RuntimeError("no name")


class OfNoName(Exception, metaclass=Nameless):
    pass


def misplaced():
    """A SyntaxError whose text is none, which the traceback module cannot show."""
    return SyntaxError("bad level", ("level.txt", 1, 3, 17))


def raising(error):
    class Raises(Faulty):
        def step(self, action):
            raise error()

    return Raises


def giving(**changes):
    class Gives(Faulty):
        def step(self, action):
            observation, reward, terminated, truncated, info = super().step(action)
            observation = changes.get("observation", observation)
            return (
                observation,
                changes.get("reward", reward),
                terminated,
                truncated,
                changes.get("info", info),
            )

    return Gives


A, B = np.zeros(2), np.zeros(3, np.uint8)


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.parametrize("backend", ALL)
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (raising(Unpicklable), "an exception with a lock in it"),
        (raising(Speechless), "its message cannot be shown"),
        (
            raising(Leaving),
            "raised Leaving in step of its episode 1, after 0 steps on action 0: (its message",
        ),
        (raising(SystemExit), "raised SystemExit in step"),
        (raising(asyncio.CancelledError), "raised CancelledError in step"),
        (
            giving(observation={"a": np.zeros(3), "b": B}),
            "observation['a']: expected shape (2,), got shape (3,)",
        ),
        (
            giving(observation={"a": A, "b": np.zeros(1, np.uint8)}),
            "expected shape (3,), got shape (1,)",
        ),
        (
            giving(observation={"a": A, "b": np.zeros(3)}),
            "expected dtype uint8, got float64, which is of another kind",
        ),
        (giving(observation={"a": A}), "expected a dict with keys ['a', 'b'], got ['a']"),
        (giving(observation=None), "expected a dict with keys ['a', 'b'], got NoneType"),
        (
            giving(observation={"a": [[1], [2, 3]], "b": B}),
            "observation['a']: expected dtype float64, got object, which is of another kind",
        ),
        (giving(reward=np.zeros(2)), "reward: expected one number, got shape (2,)"),
        (
            giving(reward=[1.0, 2.0]),
            "as mo_gymnasium.wrappers.LinearReward does with weights",
        ),
        (
            giving(reward={"a": 1.0}),
            "got {'a': 1.0}. If a reward is several numbers, make one of them with a wrapper",
        ),
        (giving(reward="much"), "reward: expected a number, got 'much'"),
        (giving(reward=None), "reward: expected a number, got None"),
    ],
)
def test_it_is_an_error_that_names_the_sub_environment(backend, make, words):
    with backend([Faulty, make, Faulty]) as env:
        env.reset(seed=1)
        with pytest.raises(SubEnvError) as caught:
            env.step([0, 0, 0])
        assert caught.value.index == 1
        assert words in str(caught.value)
        assert caught.value.others[4]["env_id"].tolist() == [0, 2]
        env.reset(seed=1)


def told(asked):
    """Give the SubEnvError that something raises; pytest could not show the others that are raised
    here.
    """
    try:
        asked()
    except BaseException as error:
        return str(error) if type(error) is SubEnvError else ""
    return ""


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.parametrize("backend", ALL)
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Forwarding, "raised Forwarding in {}: no such level"),
        (Secretive, "raised Secretive in {}: "),
        # In the words of an error of drawing.
        (
            lambda: Secretive("no EGL"),
            "raised Secretive in {}: no EGL",
        ),
        (OfNoName, "raised OfNoName in {}: "),
        (misplaced, "raised SyntaxError in {}: bad level"),
    ],
    ids=[
        "of no members",
        "of no attributes",
        "of no attributes but a text",
        "of no name",
        "of no text",
    ],
)
def test_an_exception_that_no_traceback_can_be_made_of_takes_its_own_row_alone(
    backend, error, words
):
    class Raises(Faulty):
        def step(self, action):
            raise error()

        def shout(self):
            raise error()

    def unmakeable():
        raise error()

    with backend([Faulty, Raises, Faulty]) as env:
        env.reset(seed=1)
        place = "step of its episode 1, after 0 steps on action 0"
        assert words.format(place) in told(lambda: env.step([0, 0, 0]))
        env.reset(seed=1)
        place = "call of its episode 2, after 0 steps"
        assert words.format(place) in told(lambda: env.call("shout", indices=[1]))
    assert words.format("make") in told(lambda: backend([Faulty, unmakeable]))


class OneEpisode(Faulty):
    """Cannot begin another one, once its first has ended after its second step."""

    taken = 0

    def reset(self, *, seed=None, options=None):
        if seed is None:
            raise ValueError("no second episode")
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self.taken += 1
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, self.taken == 2, truncated, info


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.parametrize("backend", ALL)
@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_a_reset_that_a_step_brings_is_told_as_a_reset(backend, mode):
    with backend([Faulty, OneEpisode], autoreset=mode) as env:
        env.reset(seed=1)
        env.step([0, 0])
        if mode == "next_step":
            env.step([0, 0])
        message = told(lambda: env.step([0, 0]))
    assert (
        "sub-environment 1 (seed 2) raised ValueError in reset after its episode 1 of 2 "
        "steps: no second"
    ) in message


class Stubborn(Faulty):
    """Cannot be closed."""

    def close(self):
        super().close()
        if self.folder is not None:
            Path(self.folder, f"{self.index} closed").touch()
        raise asyncio.CancelledError


@pytest.mark.parametrize("backend", ALL)
def test_one_that_cannot_be_closed_keeps_no_other_open(backend, tmp_path):
    env = backend([partial(Stubborn, str(tmp_path), i) for i in range(3)])
    with contextlib.suppress(asyncio.CancelledError):
        env.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["0 closed", "1 closed", "2 closed"]


class Threaded(Faulty):
    """Has a thread that never ends, and ends its worker by a fault of the worker's own."""

    def step(self, action):
        threading.Thread(target=threading.Event().wait).start()
        return super().step(action)

    def call_me(self, kind=None):
        worker = next(one for one in gc.get_objects() if isinstance(one, Worker))
        worker.answer_all = worker._answer = None


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_a_worker_that_ends_amiss_ends_with_all_its_threads(backend):
    with backend([Threaded] * 2, workers=1) as env:
        env.reset(seed=1)
        env.step([0, 0])
        env.call("call_me", indices=[0])
        with pytest.raises(BackendError, match="'NoneType' object is not callable"):
            env.call("call_me", indices=[0])


class Forking(Faulty):
    """Its copies leave in ways that are meant for a process of their own, or go on as if they were
    the worker.
    """

    def fork(self, leaves):
        if os.fork():
            return
        if leaves:
            sys.exit(0)
        Path(self.folder, f"copy {os.getpid()}").touch()
        until(Path(self.folder, "go on").exists)

    def reset(self, *, seed=None, options=None):
        result = super().reset(seed=seed, options=options)
        if options:
            self.fork(**options)
        return result

    def step(self, action):
        result = super().step(action)
        if action:
            self.fork(leaves=action == 1)
        return result


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_a_copy_that_an_environment_forks_off_answers_nothing_and_writes_nothing(backend, tmp_path):
    before = OpenResources.now()
    with (
        backend([partial(Forking, tmp_path)] * 3, workers=1) as env,
        DummyBackend([Faulty] * 3) as twin,
    ):
        assert_same(twin.reset(seed=1), env.reset(seed=1), "reset")
        for actions in ([0, 1, 0], [0, 0, 2], [1, 2, 1]):
            assert_same(twin.step(actions), env.step(actions), str(actions))
        for leaves in (True, False):
            mask = {"reset_mask": np.array([True, False, False])}
            asked = env.reset(options={**mask, "leaves": leaves})
            assert_same(twin.reset(options=mask), asked, f"reset, leaves={leaves}")
        assert_same(twin.step([0, 0, 0]), env.step([0, 0, 0]), "the step after")
        assert until(lambda: len(list(tmp_path.glob("copy *"))) == 3)
        (tmp_path / "go on").touch()
        assert gone([file.name.removeprefix("copy ") for file in tmp_path.glob("copy *")])
        mask = {"reset_mask": np.array([False, True, False])}
        assert_same(twin.reset(options=mask), env.reset(options=mask), "what the others show")
        assert_same(twin.step([0, 0, 0]), env.step([0, 0, 0]), "the last step")
    assert_nothing_left(before, before)


class Flat(Faulty):
    observation_space = spaces.Box(0, 255, (3,), np.uint8)

    def observation(self):
        return np.zeros(3, np.uint8)


class Bytes(Flat):
    def step(self, action):
        return b"abc", *super().step(action)[1:]


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.parametrize("backend", ALL)
def test_bytes_are_no_observation_though_they_would_fit_into_its_memory(backend):
    with backend([Flat, Bytes]) as env:
        env.reset(seed=1)
        with pytest.raises(SubEnvError, match=r"expected shape \(3,\), got shape \(\)"):
            env.step([0, 0])


class Lock(Faulty):
    def step(self, action):
        result = super().step(action)
        result[4]["lock"] = threading.Lock()
        return result


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_an_info_that_cannot_be_sent_is_named(backend):
    with backend([Faulty, Lock, Faulty]) as env:
        env.reset(seed=1)
        with pytest.raises(
            SubEnvError,
            match=r"sub-environment 1 .* infos \['lock'\] cannot be sent between processes",
        ):
            env.step([0, 0, 0])


class TakesEveryDescriptor(Faulty):
    """Holds as many files open as it may."""

    def __init__(self):
        super().__init__()
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        self.files = []
        with contextlib.suppress(OSError):
            while True:
                self.files.append(os.open("/dev/null", os.O_RDONLY))


def test_a_worker_without_a_descriptor_left_says_so():
    before = OpenResources.now()
    with pytest.raises(
        BackendError, match=r"may open no more descriptors \(RLIMIT_NOFILE is 64\); raise ulimit -n"
    ):
        ShmemBackend([TakesEveryDescriptor] * 2, workers=2)
    assert_nothing_left(before, before)


class ClosesEveryDescriptor(Faulty):
    """As a library that makes a daemon of its process; the files that it opens then get the lowest
    numbers.
    """

    def step(self, action):
        os.closerange(3, 4096)
        for number in range(8):
            os.write(
                os.open(f"{self.folder}/{self.index}-{number}", os.O_WRONLY | os.O_CREAT),
                b"its own",
            )
        return super().step(action)


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_a_file_that_takes_a_closed_descriptors_place_gets_nothing_of_the_workers(
    backend, tmp_path
):
    env = backend([partial(ClosesEveryDescriptor, tmp_path, i) for i in range(2)], workers=2)
    env.reset(seed=1)
    with pytest.raises(
        BackendError, match="An environment has closed descriptors that are its worker's"
    ):
        # The parent may see the first answer in shared memory before the worker ends.
        for _ in range(3):
            env.step([0, 0])
    env.close()
    written = [file.read_bytes() for file in tmp_path.iterdir()]
    assert len(written) >= 8
    assert set(written) == {b"its own"}


class LockAt(gymnasium.Env):
    """Episodes of two steps; the second episode has a lock in the info of its reset, or of one of
    its steps.
    """

    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(3)
    episode = 0

    def __init__(self, at):
        self.at = at

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.steps = self.episode + 1, 0
        return np.zeros(1, np.float32), self.info()

    def step(self, action):
        self.steps += 1
        return np.zeros(1, np.float32), 0.0, self.steps == 2, False, self.info()

    def info(self):
        return {"lock": threading.Lock()} if (self.episode, self.steps) == (2, self.at) else {}


@pytest.mark.parametrize("mode", list(Autoreset))
@pytest.mark.parametrize(
    ("at", "place"),
    [
        (0, "in reset after its episode 1 of 2 steps: "),
        (1, "in step of its episode 2, after 0 steps on action 2: "),
        (2, "in step of its episode 2, after 1 step on action 2: "),
    ],
)
@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_an_error_of_what_cannot_be_sent_says_which_call_gave_it(backend, at, place, mode):
    asked_for = mode in (Autoreset.DISABLED, Autoreset.EPISODIC)
    if asked_for and at == 0:
        place = "in reset of its episode 1, after 2 steps: "
    with backend([partial(LockAt, at)], workers=1, autoreset=mode) as env:
        env.reset(seed=1)
        with pytest.raises(SubEnvError) as raised:
            for _ in range(6):
                dones = np.logical_or(*env.step([2])[2:4])
                if asked_for and dones.any():
                    env.reset()
    assert f"raised TypeError {place}infos ['lock'] cannot be sent" in str(raised.value)


class CloseAll(Faulty):
    """Closes every descriptor, the worker's connection among them."""

    def step(self, action):
        os.closerange(3, 4096)
        return super().step(action)


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_an_environment_that_closes_every_descriptor_is_a_worker_that_died(backend):
    before = OpenResources.now()
    with backend([CloseAll] * 2, workers=1) as env:
        env.reset(seed=1)
        with pytest.raises(BackendError, match=r"worker 0 .* died"):
            env.step([0, 0])
    assert_nothing_left(before, before)


class Vector(gymnasium.Env):
    """Holds a vector environment of its own."""

    def __init__(self):
        self.inner = vecwrap.build("CartPole-v1", n=2, backend="shmem", workers=2)
        self.observation_space = self.inner.observation_space
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return self.inner.reset(seed=seed)[0], {
            "pids": np.array([one.pid for one in self.inner.health().workers])
        }

    def step(self, action):
        observations, rewards, *_ = self.inner.step([action, action])
        return observations, rewards.sum(), False, False, {}

    def close(self):
        self.inner.close()


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
@pytest.mark.parametrize("ends_by", ["close", "kill"])
def test_vectors_within_vectors(backend, ends_by):
    with DummyBackend([Vector] * 2) as twin:
        expected = [twin.reset(seed=1)[0], *(twin.step([0, 1])[0] for _ in range(5))]
    env = backend([Vector] * 2, workers=2)
    observations, infos = env.reset(seed=1)
    assert_same(expected, [observations, *(env.step([0, 1])[0] for _ in range(5))], "nested")
    if ends_by == "kill":
        for worker in env.health().workers:
            os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(BackendError):
            env.step([0, 1])
    env.close()
    assert gone(infos["pids"].ravel())


class Hungry(Faulty):
    """Wants more memory than there is."""

    def step(self, action):
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        self.eaten = np.ones(1 << 32)
        return super().step(action)


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_memory_that_is_not_there_is_an_error_that_names_the_sub_environment(backend):
    with backend([Faulty, Hungry], workers=2) as env:
        env.reset(seed=1)
        with pytest.raises(SubEnvError, match=r"sub-environment 1 .* raised \w*MemoryError"):
            env.step([0, 0])


LIMITED = """
import resource, sys
import gymnasium, numpy as np
from vecwrap.backends.shmem import Shmem
from vecwrap.testing import on
class Big(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (1 << 22,), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)
size = next(line for line in open("/proc/self/status") if line.startswith("VmSize"))
limit = 1024 * int(size.split()[1]) + (1 << 28)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    on(Shmem)([Big] * 50, workers=1)
except Exception as error:
    print(type(error).__name__, error)
"""


def test_shared_memory_that_cannot_be_had_is_said_before_anything_is_stepped(tmp_path):
    import subprocess

    done = subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("BackendError shmem: 419,4"), done.stdout + done.stderr
    assert "bytes of shared memory are needed but could not be allocated" in done.stdout


def test_shared_memory_does_not_lie_in_dev_shm():
    """Which is 64 MB in a container."""
    before = set()
    if Path("/dev/shm").is_dir():
        before = {entry.name for entry in os.scandir("/dev/shm")}
    with ShmemBackend([Faulty] * 2) as env:
        env.reset(seed=1)
        assert any(name.startswith("/memfd:vecwrap") for name in OpenResources.now().shared)
        if before:
            assert {entry.name for entry in os.scandir("/dev/shm")} - before == set()
