"""What the threads backend does that no other does; laws, state machine and faults are run
elsewhere.
"""

import gc
import multiprocessing
import threading
import weakref
from functools import partial

import gymnasium
import numpy as np
import pytest

import vecwrap
from tests.helpers.backends import DummyBackend, ThreadsBackend
from tests.helpers.polling import until
from vecwrap.errors import BackendError, PlanError, SubEnvError, WaitTimeoutError
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.testing import assert_same
from vecwrap.testing.drive import Lockstep, drive


class Where(gymnasium.Env):
    """Notes which thread does what; waits, hangs or is interrupted on request."""

    observation_space = action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, held=None):
        self.threads = {"make": threading.get_ident()}
        self.held = held  # what cannot be sent to another process
        self.wait = self.release = None
        self.presses = False

    def note(self, what):
        self.threads[what] = threading.get_ident()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.note("reset")
        return 0, {}

    def step(self, action):
        self.note("step")
        if self.wait is not None:
            self.wait.wait(20)
        if self.presses:
            self.presses = False
            raise KeyboardInterrupt
        return 1, 0.0, False, False, {}

    def render(self):
        self.note("render")

    def close(self):
        self.note("close")


def ours():
    return sum(
        thread.name.startswith("vecwrap sub-environments") for thread in threading.enumerate()
    )


def test_a_sub_environment_is_made_stepped_and_closed_in_one_thread_which_is_not_ours():
    made = []
    with ThreadsBackend([lambda: made.append(Where()) or made[-1]] * 4, workers=2) as env:
        env.reset(seed=1)
        env.step([0, 0, 0, 0])
        env.call("render")
        assert env.num_workers == 2
    for one in made:
        assert set(one.threads) == {"make", "reset", "step", "render", "close"}
        assert len(set(one.threads.values())) == 1
    assert len({one.threads["make"] for one in made}) == 2
    assert threading.get_ident() not in {one.threads["make"] for one in made}


def test_steps_run_at_the_same_time():
    """Each waits for the other: in one thread neither would go on."""
    both = threading.Barrier(2)
    with ThreadsBackend([Where] * 2, workers=2) as env:
        env.reset()
        env.set_attr("wait", [both, both])
        env.step([0, 0])
        assert not both.broken


def test_rows_come_as_they_are_ready():
    late = threading.Event()
    with ThreadsBackend([Where] * 4, workers=4, batch_size=2) as env:
        env.reset()
        env.set_attr("wait", [late, None, late, None])
        env.send([0, 0, 0, 0])
        assert env.recv()[4]["env_id"].tolist() == [1, 3]
        with pytest.raises(WaitTimeoutError, match="2 sub-environments have not answered yet"):
            env.recv(timeout=0.01)
        late.set()
        assert env.recv()[4]["env_id"].tolist() == [0, 2]


def test_what_another_process_could_not_be_sent_is_no_matter():
    with vecwrap.build(Where, n=2, backend="threads", env_kwargs={"held": threading.Lock()}) as env:
        env.reset()
        assert "threads" in repr(env)


def test_an_interrupt_that_an_environment_raises_is_the_error_of_its_row():
    with ThreadsBackend([Where] * 3, workers=1) as env:
        env.reset()
        env.set_attr("presses", [False, True, False])
        with pytest.raises(
            SubEnvError, match="sub-environment 1 .* raised KeyboardInterrupt"
        ) as caught:
            env.step([0, 0, 0])
        assert caught.value.others[4]["env_id"].tolist() == [0, 2]


def test_close_does_not_wait_for_ever_for_a_step_that_hangs():
    release = threading.Event()
    env = ThreadsBackend([Where] * 2, workers=2)
    env.reset()
    env.set_attr("wait", [None, release])
    env.step_async([0, 0])
    told = pytest.warns(
        RuntimeWarning, match=r"sub-environments \[1\] were still busy 0.1 s after close"
    )
    with told, pytest.warns(UserWarning, match="Calling `close` while waiting"):
        env.close(timeout=0.1)
    release.set()


def test_what_is_forgotten_is_closed_and_its_threads_end():
    assert until(lambda: not ours())
    env = ThreadsBackend([Where] * 2, workers=2)
    env.reset()
    gone = weakref.ref(env)
    assert ours() == 2
    del env
    gc.collect()
    assert gone() is None
    assert until(lambda: not ours())


def test_a_factory_that_raises_ends_the_threads():
    assert until(lambda: not ours())

    def fails():
        raise ValueError("no")

    with pytest.raises(SubEnvError, match="sub-environment 1 .* raised ValueError in make"):
        ThreadsBackend([Where, fails], workers=2)
    assert until(lambda: not ours())


def _step_in_a_fork(env, said):
    try:
        env.step([0, 0])
    except BackendError as error:
        said.put(str(error))
    env.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_is_refused():
    with ThreadsBackend([Where] * 2, workers=2) as env:
        env.reset()
        context = multiprocessing.get_context("fork")
        said = context.SimpleQueue()
        process = context.Process(target=_step_in_a_fork, args=(env, said))
        process.start()
        process.join(20)
        assert "threads a forked process does not have" in said.get()
        env.step([0, 0])


def test_the_plan_says_that_nothing_is_isolated_and_time_limits_are_refused():
    text = " ".join(str(plan(PipelineSpec.parse("CartPole-v1 n=4 backend=threads"))).split())
    assert "threads of this process; a crash ends it, and a step that hangs cannot be ended" in text
    with pytest.raises(PlanError, match="threads.* has no option step_timeout"):
        plan(PipelineSpec.parse("CartPole-v1 n=4 backend=threads backend.step_timeout=3"))


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "InvertedPendulum-v5"])
def test_mujoco_gives_the_stream_of_dummy(name):
    pytest.importorskip("mujoco")
    make = partial(gymnasium.make, name, max_episode_steps=20)
    envs = DummyBackend([make] * 5), ThreadsBackend([make] * 5, workers=3)
    try:
        met = drive(Lockstep(*envs), 60, seed=0)
    finally:
        for env in envs:
            env.close()
    assert min(met.values()) >= 0


def test_pong_gives_the_stream_of_dummy():
    pytest.importorskip("ale_py")
    envs = [
        vecwrap.build(
            "PongNoFrameskip-v4",
            n=3,
            wrappers=["atari", "framestack:4", "monitor"],
            backend=backend,
        )
        for backend in ("dummy", "threads")
    ]
    draw = np.random.default_rng(1)
    try:
        assert_same(*(env.reset(seed=2)[0] for env in envs))
        for _ in range(60):
            actions = draw.integers(0, 6, 3)
            assert_same(*(env.step(actions)[:4] for env in envs))
    finally:
        for env in envs:
            env.close()


class Presses(gymnasium.Env):
    """A method that raises as Ctrl-C does, and one that does not."""

    observation_space = action_space = gymnasium.spaces.Discrete(2)

    def press(self):
        raise KeyboardInterrupt

    def greet(self):
        return "hello"


def test_a_call_that_raises_an_interrupt_ends():
    with ThreadsBackend([Presses] * 4, workers=2) as env:
        with pytest.raises(SubEnvError, match="raised KeyboardInterrupt in call") as told:
            env.call("press")
        assert [error.index for error in told.value.failures] == [0, 1, 2, 3]
        assert env.call("greet") == ("hello",) * 4


def test_rings_do_not_pile_up():
    """A learner that computes meanwhile finds that all rows have arrived, and waits for no bell."""
    with ThreadsBackend([Where] * 4, workers=2) as env:
        env.reset(seed=1)
        queue = env.unwrapped.runner._arrived
        for _ in range(100):
            env.step_async([0] * 4)
            assert until(lambda: len(queue._arrived) == 2)
            env.step_wait()
        assert queue._event.qsize() <= 2
