"""How a failure is told: at once, by name, with the worker's last words; and what the policy's end
looks like.
"""

import os
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import psutil
import pytest

from tests.faults.faulty import DEATHS, IN_STEP_OF_A_WORKER, Faulty, Gated, ask, factories
from tests.helpers.backends import DummyBackend, ShmemBackend, SubprocessBackend, ThreadsBackend
from tests.helpers.polling import gone, until
from vecwrap.errors import BackendError, SubEnvError
from vecwrap.testing.toys import OpenResources, assert_nothing_left

PROCESS_BACKENDS = [SubprocessBackend, ShmemBackend]
WORDS = {
    "kill": "killed by SIGKILL, often the out-of-memory killer",
    "segv": "killed by SIGSEGV",
    "exit": "exit code 7",
}
pytestmark = [
    pytest.mark.parametrize("backend", PROCESS_BACKENDS),
    pytest.mark.usefixtures("either_start"),
]


def told(error, kind, number, ids):
    assert f"worker {number} (pid " in str(error)
    assert f"sub-environments {ids[0]}-{ids[-1]}) died: {WORDS[kind]}" in str(error)
    assert (error.worker, error.env_ids) == (number, tuple(ids))
    assert error.exitcode == {"kill": -9, "segv": -11, "exit": 7}[kind]


@pytest.mark.parametrize("kind", DEATHS)
@pytest.mark.parametrize("point", ["reset", *IN_STEP_OF_A_WORKER])
def test_a_death_is_an_error_that_names_the_worker(backend, point, kind, tmp_path):
    before = OpenResources.now()
    # Where it dies has nothing to do with how it began.
    start = None if point == "step" else "forkserver"
    env = backend(factories(tmp_path, 4), workers=2, start_method=start)
    if point == "reset":
        ask(tmp_path, 2, point, kind)
        with pytest.raises(BackendError) as caught:
            env.reset(seed=1)
    else:
        env.reset(seed=1)
        ask(tmp_path, 2, point, kind)
        with pytest.raises(BackendError) as caught:
            env.step([0, 0, 0, 0])
    told(caught.value, kind, 1, [2, 3])
    for call in (lambda: env.step([0, 0, 0, 0]), env.reset, lambda: env.call("call_me")):
        with pytest.raises(BackendError, match="worker 1"):
            call()
    env.close()
    assert_nothing_left(before, before)


@pytest.mark.parametrize("kind", ["raise", *DEATHS])
def test_a_death_while_the_environments_are_made(backend, kind, tmp_path):
    before = OpenResources.now()
    ask(tmp_path, 3, "make", kind)
    with pytest.raises(SubEnvError if kind == "raise" else BackendError) as caught:
        backend(factories(tmp_path, 4), workers=2)
    if kind == "raise":
        assert (caught.value.index, caught.value.during) == (3, "make")
    else:
        told(caught.value, kind, 1, [2, 3])
    assert_nothing_left(before, before)


def goes_on(env, env_ids):
    """Step rows of which one step is out already; never content."""
    env.recv()
    env.send([0] * len(env_ids), env_ids=env_ids)
    return False


@pytest.mark.parametrize(
    "when", ["between two steps", "in recv", "in a call", "in get_attr", "while nobody waits"]
)
def test_a_death_is_noticed_wherever_it_comes(backend, when, tmp_path):
    env = backend(factories(tmp_path, 4), workers=2, batch_size=2 if when == "in recv" else None)
    env.reset(seed=1)
    victim = env.health().workers[1].pid
    with pytest.raises(
        BackendError, match="worker 1 .*sub-environments 2-3.* died: killed by SIGKILL"
    ):
        if when == "between two steps":
            os.kill(victim, signal.SIGKILL)
            env.step([0, 0, 0, 0])
            env.step([0, 0, 0, 0])
        elif when == "in recv":
            ask(tmp_path, 2, "step", "kill")
            env.send([0, 0, 0, 0])
            env.recv()
            env.recv()
        elif when == "in a call":
            env.call("call_me", "kill", indices=[3])
        elif when == "in get_attr":
            os.kill(victim, signal.SIGSTOP)
            env.call_async("call_me")
            os.kill(victim, signal.SIGKILL)
            env.call_wait()
        else:
            env.send([0, 0], env_ids=[0, 1])
            os.kill(victim, signal.SIGKILL)
            assert gone([victim])
            # Where no other answers come by pipe, it is looked for now and then.
            until(lambda: goes_on(env, [0, 1]))
    env.close()


class Holder(Faulty):
    """Its child keeps the worker's connection open, as one that was forked does."""

    def reset(self, **keywords):
        observation, info = super().reset(**keywords)
        info["child"] = os.fork()
        if not info["child"]:
            os.setpgid(0, 0)  # the worker's end does not end it
            time.sleep(60)
            os._exit(0)
        return observation, info


@pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="this system tells of an end by the connection alone"
)
def test_a_death_is_noticed_though_a_child_holds_the_connection(backend):
    env = backend([Holder] * 2, workers=1)
    children = env.reset(seed=1)[1]["child"].tolist()
    os.kill(env.health().workers[0].pid, signal.SIGKILL)
    try:
        env.step_async([0, 0])
        with pytest.raises(BackendError, match="died: killed by SIGKILL"):
            env.step_wait(timeout=20)
        assert all(psutil.pid_exists(child) for child in children)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
        env.close()


class Talker(Faulty):
    """Says something before it dies."""

    def step(self, action):
        for k in range(60):
            print(f"simulator: state {k}", file=sys.stderr)
        os.write(2, b"free(): invalid pointer\n")
        os.abort()


def test_the_last_lines_on_stderr_are_in_the_error_and_have_been_shown(backend, capsys):
    # A fork has more lines to its stack.
    env = backend([Talker] * 2, workers=1, start_method="fresh")
    env.reset(seed=1)
    with pytest.raises(BackendError) as caught:
        env.step([0, 0])
    message = str(caught.value)
    assert "died: killed by SIGABRT\nIts last lines on stderr:\n" in message
    assert "free(): invalid pointer" in message
    assert "in step" in message, "where in Python it was"
    assert "state 0" not in message
    env.close()
    assert "simulator: state 0\n" in capsys.readouterr().err


soak = pytest.mark.soak


@pytest.mark.parametrize(
    # Each is waited for; how it hangs matters little to whose time it is that is up.
    (
        "limit",
        "point",
        "kind",
    ),
    [
        ("step_timeout", "step", "hang"),
        ("step_timeout", "step", "stop"),
        ("reset_timeout", "reset", "hang"),
        ("start_timeout", "make", "stop"),
        pytest.param("reset_timeout", "reset", "stop", marks=soak),
        pytest.param("start_timeout", "make", "hang", marks=soak),
    ],
)
def test_a_hang_is_an_error_after_its_time(backend, limit, point, kind, tmp_path):
    before = OpenResources.now()
    ask(tmp_path, 1, point, kind)
    with pytest.raises(
        BackendError, match=rf"worker 0 .* did not answer within {limit}=3 s, and was killed"
    ):
        # From the fork server, for a fresh interpreter alone may take so long on a busy machine.
        env = backend(factories(tmp_path, 4), workers=2, start_method="forkserver", **{limit: 3.0})
        try:
            env.reset(seed=1)
            env.step([0, 0, 0, 0])
        finally:
            env.close()
    assert_nothing_left(before, before)


def test_what_has_come_meanwhile_is_no_hang(backend, tmp_path):
    """The time runs until the answer has come, not until somebody looks for it."""
    with backend(factories(tmp_path, 4), workers=2, step_timeout=3.0) as env:
        env.reset(seed=1)
        env.step_async([0, 0, 0, 0])
        time.sleep(3.5)
        env.step_wait()


def stop_this_process(seconds, then):
    """Stop this process in a moment, as job control and schedulers do, let it go on later, and make
    a file.
    """
    pid = os.getpid()
    return subprocess.Popen(
        [
            "sh",
            "-c",
            (
                f"sleep 0.3; kill -STOP {pid}; sleep {seconds}; kill -CONT {pid}; sleep 0.3; touch "
                f"'{then}'"
            ),
        ]
    )


def test_time_for_which_the_job_is_stopped_is_no_workers_delay(backend, tmp_path):
    with backend([partial(Gated, tmp_path)] * 2, workers=2, step_timeout=3.0) as env:
        env.reset(seed=1)
        env.step_async([0, 0])
        with stop_this_process(4.0, tmp_path / "1"):
            env.step_wait()
        assert [worker.restarts for worker in env.health().workers] == [0, 0]


class Always(Faulty):
    """Fails at each step, or each reset, or each time that it is made but the first."""

    def __init__(self, where, how, folder, number):
        self.where, self.how = where, how
        self.folder = None
        made = folder / f"made {number}"
        if where == "make" and made.exists():
            self.fail()
        made.touch()
        super().__init__()

    def fail(self):
        if self.how == "raise":
            raise RuntimeError("as always")
        os._exit(3)

    def reset(self, **keywords):
        if self.where == "reset":
            self.fail()
        return super().reset(**keywords)

    def step(self, action):
        self.fail()


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.parametrize("how", ["raise", "exit"])
@pytest.mark.parametrize("where", ["make", "reset", "step"])
def test_what_always_fails_ends_with_one_error_and_not_in_a_loop(backend, where, how, tmp_path):
    before = OpenResources.now()
    make = [partial(Always, where, how, tmp_path, number) for number in range(2)]
    env = backend(make, workers=2, on_failure="restart", max_restarts=3, restart_backoff=0.01)
    with pytest.raises((SubEnvError, BackendError)) as caught:
        env.reset(seed=1)
        for _ in range(10):
            env.step([0, 0])
    if isinstance(caught.value, BackendError):
        assert "max_restarts=3 within restart_window=60 s are used up" in str(caught.value)
    else:
        assert "as always" in str(caught.value)
        assert "max_restarts=3 within restart_window=60 s are used up" in str(caught.value)
    assert env.health().restarts.max() == 3
    env.close()
    assert_nothing_left(before, before)


@pytest.mark.parametrize("kind", ["raise", "exit", "stop"])
@pytest.mark.parametrize("limit", [3, None])
def test_what_was_never_made_is_not_restarted(backend, kind, limit, tmp_path):
    """Another attempt would make it: the request to fail is taken by the first."""
    before = OpenResources.now()
    ask(tmp_path, 1, "make", kind)
    options = {"on_failure": "restart", "max_restarts": limit, "restart_backoff": 0.01}
    timeout = 0.5 if kind == "stop" else None
    with pytest.raises((SubEnvError, BackendError)) as caught:
        backend(
            [partial(Faulty, tmp_path, i) for i in range(2)],
            workers=2,
            start_timeout=timeout,
            **options,
        )
    assert str(caught.value).endswith(
        "\nIt was making Faulty. What has never been made is not restarted: "
        'on_failure="restart" recreates what is lost later.'
    )
    assert_nothing_left(before, before)


@pytest.mark.parametrize("options", [{}, {"on_failure": "restart"}])
def test_what_no_worker_can_read_is_an_error_that_says_so(backend, options):
    with pytest.raises(SubEnvError) as caught:
        backend([partial(Faulty, Unreadable())] * 2, workers=2, **options)
    assert "raised ZeroDivisionError in make: integer division" in str(caught.value)
    assert "A worker cannot read what was sent to make the environments" in str(caught.value)
    assert ("not restarted" in str(caught.value)) == bool(options)


def test_in_this_process_what_was_never_made_is_not_restarted_either(backend, tmp_path):
    for make in (DummyBackend, ThreadsBackend):
        ask(tmp_path, 1, "make", "raise")
        with pytest.raises(
            SubEnvError,
            match="asked to raise\nIt was making Faulty. What has never been made is not",
        ):
            make(factories(tmp_path, 2), on_failure="restart")


def test_what_was_made_once_and_fails_when_it_is_made_again_is_tried_again(backend, tmp_path):
    with backend(
        factories(tmp_path, 4), workers=4, on_failure="restart", restart_backoff=0.01
    ) as env:
        env.reset(seed=1)
        for i, kind in enumerate(["raise", "exit", "kill", "raise"]):
            ask(tmp_path, i, "step", kind)
            ask(tmp_path, i, "make", kind)
        env.step([0, 0, 0, 0])
        assert env.health().restarts.tolist() == [2, 2, 2, 2]
        env.step([0, 0, 0, 0])


def test_a_call_that_kills_its_worker_is_an_error_and_the_run_goes_on(backend, tmp_path):
    with backend(factories(tmp_path, 4, end=0.0), workers=2, on_failure="restart") as env:
        env.reset(seed=1)
        with pytest.raises(BackendError, match="the call is not repeated"):
            env.call("call_me", "kill", indices=[3])
        assert env.call("call_me") == (0, 1, 2, 3)
        *_, truncations, infos = env.step([0, 0, 0, 0])
        assert truncations.tolist() == [False, False, True, True]
        assert infos["restarted"].tolist() == [0, 0, 1, 1]


def test_what_cannot_be_read_here_is_an_error_that_names_the_worker(backend):
    with backend([Strange] * 2, workers=1) as env:
        env.reset(seed=1)
        with pytest.raises(
            BackendError, match=r"worker 0 .* sent what cannot be read here \(ZeroDivisionError"
        ):
            env.step([0, 0])


class Unreadable:
    def __reduce__(self):
        return divmod, (1, 0)


class Strange(Faulty):
    def step(self, action):
        result = super().step(action)
        result[4]["strange"] = Unreadable()
        return result


def test_dummy_restarts_what_raises(backend, tmp_path):
    """The same rows on every backend: an exception needs no process."""
    rows = []
    for make in (DummyBackend, backend):
        with make(factories(tmp_path, 3), on_failure="restart") as env:
            env.reset(seed=[1, 2, 3])
            for k in range(20):
                ask(tmp_path, k % 3, "step", "raise")
                rows.append(env.step(np.full(3, k % 3)))
    from vecwrap.rows.compare import assert_same

    assert_same(rows[:20], rows[20:], "restarts")


def test_a_call_to_a_worker_that_fails_to_start_again_is_an_error_that_says_so(backend, tmp_path):
    with backend(factories(tmp_path, 2), workers=2, on_failure="restart") as env:
        env.reset(seed=1)
        pid = env.health().workers[0].pid
        ask(tmp_path, 0, "make", "raise")
        os.kill(pid, signal.SIGKILL)
        assert gone([pid])
        with pytest.raises(
            BackendError, match="died: killed by SIGKILL.*\n*.*the call is not repeated"
        ):
            env.get_attr("index")
        with pytest.raises(
            BackendError, match="raised RuntimeError in make.*\n*.*the call is not repeated"
        ):
            env.get_attr("index")
        assert env.get_attr("index") == (0, 1)
