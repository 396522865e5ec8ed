"""The end, however it comes, and waits that are broken off, with real actors; and environments with
bad manners.
"""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from gymnasium.error import ClosedEnvironmentError

from tests.backends.ray_cluster import patient, small
from tests.backends.test_base import interrupted
from tests.faults import test_closing as closing
from tests.faults import test_forks as forks
from tests.faults import test_isolation as isolation
from tests.faults.faulty import Faulty, ask, factories
from tests.helpers.backends import DummyBackend
from tests.helpers.polling import gone, until
from vecwrap.errors import BackendError, SubEnvError
from vecwrap.rows.compare import assert_same
from vecwrap.testing import toy

pytest.importorskip("ray")
# One process has the cluster.
pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.usefixtures("ray"),
]
ROOT = Path(__file__).parents[2]
soak = pytest.mark.soak


# -- close -----------------------------------------------------------------------------------------


STATES = ["unused", "idle", "stepping", "resetting", "calling", "hanging", "stopped", "dead"]
HOWS = ["close", "timeout", "terminate", "forgotten"]
SOME = [("dead", "close"), ("hanging", "terminate"), ("resetting", "forgotten")]
REST = [
    pytest.param(state, how, marks=soak)
    for state in STATES
    for how in HOWS
    if (state, how) not in SOME
]


@pytest.mark.filterwarnings("ignore:Calling `close` while waiting:UserWarning")
@pytest.mark.parametrize(("state", "how"), [*SOME, *REST])
def test_close_in_any_state(state, how, tmp_path):
    env = small(factories(tmp_path, 3), workers=2)
    pids = [worker.pid for worker in env.health().workers]
    if state != "unused":
        env.reset(seed=1)
    if state == "resetting":
        env.reset_async(seed=2)
    elif state == "calling":
        env.call_async("call_me")
    elif state not in ("unused", "idle"):
        if state != "stepping":
            ask(tmp_path, 1, "step", {"hanging": "hang", "stopped": "stop", "dead": "kill"}[state])
        env.step_async([0, 0, 0])
    if how == "forgotten":
        del env
    else:
        env.close(**{"timeout": {"timeout": 0.1}, "terminate": {"terminate": True}}.get(how, {}))
        env.close()
        assert env.closed
    assert gone(pids)


@pytest.mark.parametrize(
    "kind", ["raise", "kill", pytest.param("hang", marks=soak), pytest.param("stop", marks=soak)]
)
@pytest.mark.full
def test_an_environment_that_fails_while_it_is_closed(kind, tmp_path):
    env = small(factories(tmp_path, 3), workers=2)
    pids = [worker.pid for worker in env.health().workers]
    env.reset(seed=1)
    ask(tmp_path, 2, "close", kind)
    env.close(timeout=1.0)
    assert gone(pids)


@pytest.fixture
def hanging(tmp_path):
    """An environment whose next step hangs; the test closes it."""
    env = small(factories(tmp_path, 3), workers=2)
    pids = [worker.pid for worker in env.health().workers]
    env.reset(seed=1)
    ask(tmp_path, 0, "step", "hang")
    yield env
    assert gone(pids)


@pytest.mark.full
def test_close_from_another_thread_than_the_one_that_steps(hanging, tmp_path):
    closing.test_close_from_another_thread_than_the_one_that_steps(hanging, tmp_path)


@pytest.mark.full
def test_close_in_a_signals_handler(hanging):
    closing.test_close_in_a_signals_handler(hanging)


@pytest.mark.full
def test_close_while_an_actor_is_asked_whether_it_lives(caplog):
    env = small([toy()] * 2, workers=2, on_failure="restart")
    env.reset(seed=1)
    pids = [worker.pid for worker in env.health().workers]
    os.kill(pids[1], signal.SIGSTOP)
    closing = threading.Timer(1.0, env.close, kwargs={"terminate": True})
    closing.start()
    caplog.clear()  # a busy machine makes actors wait for their place, which is told too
    with pytest.raises(ClosedEnvironmentError):
        env.reset(seed=7)
    closing.join()
    assert gone(pids)
    assert not caplog.records  # nothing is made anew


@pytest.mark.full
def test_a_wait_that_times_out_can_be_repeated_and_gives_what_it_would_have_given(tmp_path):
    closing.test_a_wait_that_times_out_can_be_repeated_and_gives_what_it_would_have_given(
        small, tmp_path
    )


def test_after_an_interrupted_wait_a_reset_begins_anew(tmp_path):
    # Ray's wait makes a SystemError of others.
    closing.interrupt_waits(small, tmp_path, KeyboardInterrupt)


@pytest.mark.full
def test_an_interrupt_in_the_middle_of_a_reply_ends_the_environment(tmp_path, monkeypatch):
    closing.test_an_interrupt_in_the_middle_of_a_reply_ends_the_environment(
        small, "_take_reply", tmp_path, monkeypatch
    )


@pytest.mark.full
def test_what_an_interrupted_call_is_answered_that_waited_for_its_actor_is_dropped(monkeypatch):
    with small([toy()] * 2, on_failure="restart", restart_backoff=0.0) as env:
        env.reset(seed=1)
        os.kill(env.health().workers[0].pid, signal.SIGKILL)
        with pytest.raises(BackendError):
            env.get_attr("bonus")
        interrupted(env.runner, "_receive", monkeypatch, after=False)
        with pytest.raises(KeyboardInterrupt):
            env.get_attr("nothing")
        assert env.unwrapped.runner._workers[0].awaiting() == ["made", "values"], (
            "the new actor has not answered anything yet"
        )
        assert env.get_attr("bonus") == (0.0, 0.0)


# -- the interpreter's end -------------------------------------------------------------------------


SCRIPT = """
import os, sys, time
import gymnasium
from vecwrap.backends.ray import Ray
from vecwrap.testing import on
if __name__ == "__main__":
    init = {{"num_cpus": 1, "object_store_memory": 80_000_000, "log_to_driver": False}}
    make = [lambda: gymnasium.make("CartPole-v1")] * 3
    env = on(Ray)(make, workers=2, num_cpus=0.1, address="local", init=init)
    env.reset(seed=1)
    print(*[worker.pid for worker in env.health().workers], flush=True)
    {rest}
"""


@soak
@pytest.mark.parametrize("rest", ["env.step_async([0, 0, 0])", "", "raise SystemExit(0)"])
@pytest.mark.full
def test_at_the_interpreters_end_nothing_is_left(rest, tmp_path):
    program = start(rest, tmp_path)
    pids = [int(word) for word in program.stdout.readline().split()]
    out, errors = program.communicate(timeout=240)
    assert (program.returncode, out, errors) == (0, "", "")
    assert len(pids) == 2
    assert gone(pids)
    assert until(lambda: not mine(program))


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=soak)])
@pytest.mark.full
def test_when_the_parent_is_ended_its_cluster_and_actors_go(number, tmp_path):
    program = start("env.step([0, 0, 0]); time.sleep(600)", tmp_path)
    pids = [int(word) for word in program.stdout.readline().split()]
    assert len(pids) == 2
    program.send_signal(number)
    program.wait()
    assert gone(pids)
    if number != signal.SIGKILL:  # some of Ray's own processes look for their parent once a minute
        assert until(lambda: not mine(program))
    program.stdout.close()
    program.stderr.close()


def start(rest, folder):
    (folder / "program.py").write_text(SCRIPT.format(rest=rest))
    return subprocess.Popen(
        [sys.executable, str(folder / "program.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT), "MARK": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def mine(program):
    """What still runs of a program's cluster."""
    mark = f"MARK={program.args[-1].removesuffix('/program.py')}".encode()
    found = []
    for process in psutil.process_iter():
        try:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            if mark in environment and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.cmdline())
        except (OSError, psutil.Error):
            continue
    return found


# -- forks and threads -----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_may_not_use_it_and_does_it_no_harm():
    with small(forks.CARTPOLES, workers=2) as env, DummyBackend(forks.CARTPOLES) as twin:
        assert_same(twin.reset(seed=1), env.reset(seed=1), "reset")
        for call in (
            lambda: env.step([0, 0, 0]),
            env.reset,
            lambda: env.get_attr("spec"),
            lambda: env.send([0, 0, 0]),
        ):
            told = forks.in_child(call)
            assert told.startswith("BackendError: ")
            assert (
                f"was built in process {os.getpid()}, and its actors answer only that process"
                in told
            )
        assert forks.in_child(env.close) == "None"
        assert forks.in_child(lambda: env.__del__()) == "None"
        assert_same(twin.step([0, 1, 0]), env.step([0, 1, 0]), "step")


@pytest.mark.full
def test_inside_a_thread_that_ends_before_it_is_used():
    built = []
    thread = threading.Thread(target=lambda: built.append(small(forks.CARTPOLES, workers=2)))
    thread.start()
    thread.join()
    with built.pop() as env, DummyBackend(forks.CARTPOLES) as twin:
        assert_same(twin.reset(seed=1), env.reset(seed=1), "reset")
        assert_same(twin.step([0, 1, 0]), env.step([0, 1, 0]), "step")


@soak
@pytest.mark.full
def test_several_at_the_same_time_in_threads():
    forks.play_in_threads(small)  # what Ray itself keeps open of its cluster comes and goes


# -- bad manners -----------------------------------------------------------------------------------

BAD = [
    "Writer",
    "Mover",
    "Deaf",
    "Threads",
    "Closes",
    "Buffers",
    "Huge",
    "NotANumber",
    "ArrayReward",
]
WOULD_STAY = ("Mover", "Deaf", "Threads")  # in this process, on dummy


@pytest.mark.full
def test_what_behaves_badly_works_as_on_dummy_and_goes_when_it_is_told():
    """All of them side by side, so that one would show what another does to its neighbours."""
    make = [getattr(isolation, name) for name in BAD]
    plain = [Faulty if name in WOULD_STAY else getattr(isolation, name) for name in BAD]
    with patient(make, workers=2) as env, DummyBackend(plain) as twin:
        pids = [worker.pid for worker in env.health().workers]
        assert_same(twin.reset(seed=1), env.reset(seed=1), "reset")
        for k in range(2):
            assert_same(twin.step([k % 3] * len(BAD)), env.step([k % 3] * len(BAD)), f"step {k}")
    assert gone(pids)


@pytest.mark.full
def test_what_ray_does_not_kill_is_killed(monkeypatch):
    """Ray's word may be overtaken: then it lets Python end there, which waits for the threads of an
    environment.
    """
    import ray

    monkeypatch.setattr(ray, "kill", lambda handle, **options: None)
    env = patient([isolation.Threads, isolation.Deaf], workers=2)
    pids = [worker.pid for worker in env.health().workers]
    env.reset(seed=1)
    env.close()
    assert gone(pids)


CASES = isolation.test_it_is_an_error_that_names_the_sub_environment.pytestmark[0].args[1]


@pytest.mark.full
def test_what_is_wrong_is_an_error_that_names_the_sub_environment():
    """Every case of the fault suite, each in a row of its own, and between them rows that are
    right.
    """
    cases = [*CASES, (isolation.Lock, "infos ['lock'] cannot be sent between processes")]
    with small([Faulty, *(make for make, _ in cases), Faulty], workers=2) as env:
        env.reset(seed=1)
        with pytest.raises(SubEnvError) as caught:
            env.step([0] * env.num_envs)
        assert [error.index for error in caught.value.failures] == list(range(1, 1 + len(cases)))
        for error, (_, words) in zip(caught.value.failures, cases, strict=True):
            assert words in str(error)
        assert caught.value.others[4]["env_id"].tolist() == [0, env.num_envs - 1]
        env.reset(seed=1)


@soak
@pytest.mark.parametrize("ends_by", ["close", "kill"])
@pytest.mark.full
def test_vectors_within_vectors(ends_by):
    isolation.test_vectors_within_vectors(small, ends_by)
