"""``on_failure="restart"``: what is lost is told, exactly, and every other row is what it would
have been.
"""

import asyncio
import contextlib
import os
import signal
import threading
import time
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import ClassVar
from uuid import uuid4

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError, ResetNeeded

from tests.faults.faulty import DEATHS, IN_STEP_OF_A_WORKER, Faulty, ask, factories, forget
from tests.faults.trial import Trial
from tests.helpers.backends import DummyBackend, ShmemBackend, SubprocessBackend, ThreadsBackend
from tests.helpers.polling import LONG, gone, until
from tests.helpers.toy_envs import Counter
from vecwrap.backends.dummy import Dummy
from vecwrap.errors import BackendError, SubEnvError
from vecwrap.rows.batch import take
from vecwrap.testing import assert_same, on, toy
from vecwrap.testing.toys import OpenResources, assert_nothing_left
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.seed_each_episode import SeedEachEpisode
from vecwrap.wrappers.terminal_obs import TerminalObs

BACKENDS = [DummyBackend, SubprocessBackend, ShmemBackend, ThreadsBackend]
PROCESS_BACKENDS = [SubprocessBackend, ShmemBackend]
MODES = ["same_step", "next_step", "disabled", "episodic"]
HANGS_ARE_SHORT = {"step_timeout": 3.0, "reset_timeout": 3.0}  # seconds, and each is waited for
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.usefixtures("either_start"),
]


def play_on(trial, steps):
    """Steps without faults, and the resets that the mode leaves to the caller."""
    for _ in range(steps):
        reset_what_is_over(trial)
        if trial.may_step():
            trial.step()


def reset_what_is_over(trial):
    over = np.array([row.over for row in trial.model.rows])
    if trial.mode.value in ("disabled", "episodic") and over.any() and trial.rng.random() < 0.7:
        trial.reset(mask=over)


class Noting(Dummy):
    """Notes of which sub-environments it was asked to notice losses."""

    def __init__(self):
        self.noted = []

    def notice_losses(self, env_ids):
        self.noted.append(env_ids.tolist())
        return ()


def test_before_a_step_losses_are_looked_for_where_an_episode_begins():
    with on(Noting)(
        [toy(limit=2), toy(limit=3)], autoreset="next_step", on_failure="restart"
    ) as env:
        noted, asked = env.runner.noted, []
        env.reset(seed=1)
        for _ in range(6):
            noted.clear()
            env.step([1, 1])
            asked.append([i for env_ids in noted for i in env_ids])
    assert asked == [[], [], [0], [1], [], [0]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exception_at_any_point_loses_one_row(backend, mode, tmp_path):
    before = OpenResources.now()
    trial = Trial(backend, mode, tmp_path)
    trial.reset(list(range(10, 15)))
    trial.set_attr("bonus", [1.0, 2.0, 3.0, 4.0, 5.0])
    points = cycle(
        [
            point
            for point in ("reset", *IN_STEP_OF_A_WORKER)
            if backend not in (DummyBackend, ThreadsBackend)
            or "reply" not in point  # they send none
        ]
    )
    for k, point in zip(range(60), points, strict=False):
        if point == "half a reply":
            continue  # nobody who raises has sent half of a message
        reset_what_is_over(trial)
        if trial.may_step():
            trial.step({k % 5: (point, "raise"), (k * 3 + 1) % 5: (point, "raise")})
    assert trial.met > 40
    trial.reset([7, None, 9, None, 11], faults={0: "raise", 1: "raise"})
    trial.reset(mask=np.array([True, False, True, False, True]), faults={4: "raise"})
    play_on(trial, 10)
    trial.close()
    assert_nothing_left(before, before)


@pytest.mark.parametrize(
    # How the next worker is started has nothing to do with the mode.
    (
        "mode",
        "workers",
        "start_method",
    ),
    [
        *((mode, 2, "forkserver") for mode in MODES),
        ("next_step", 1, "forkserver"),
        ("episodic", 3, "forkserver"),
        ("same_step", 2, "fresh"),
    ],
)
@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_a_death_at_any_point_loses_the_rows_of_its_worker(
    backend, mode, workers, start_method, tmp_path
):
    before = OpenResources.now()
    trial = Trial(backend, mode, tmp_path, workers=workers, start_method=start_method)
    trial.reset(list(range(10, 15)))
    trial.set_attr("bonus", [1.0, 2.0, 3.0, 4.0, 5.0])
    kinds = cycle(DEATHS)
    for i, point in zip(
        cycle([3, 0, 4, 1, 2]),
        ("step", "after step", "half a row", "reply", "half a reply", "reset"),
    ):
        for _ in range(3):  # until there is one that meets it
            met = trial.met
            play_on(trial, 2)
            reset_what_is_over(trial)
            if trial.may_step():
                trial.step({i: (point, next(kinds))})
            if trial.met > met:
                break
    assert trial.met >= 4
    trial.reset([7, None, 9, None, 11], faults={0: "kill"})
    trial.reset(mask=np.array([True, False, True, False, True]), faults={4: "exit"})
    play_on(trial, 6)
    trial.close()
    assert_nothing_left(before, before)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_what_could_not_be_made_at_the_first_try_is_another_one_all_the_same(
    backend, mode, tmp_path
):
    """Nothing is ever asked of the one that was closed; a row that is out waits for the new one."""
    streams = []
    for kind in (DummyBackend, backend):
        folder = tmp_path / kind.name
        folder.mkdir()
        options = {} if kind is DummyBackend else {"workers": 1, "start_method": "forkserver"}
        env = kind(
            factories(folder, 3),
            autoreset=mode,
            on_failure="restart",
            restart_backoff=0.01,
            **options,
        )
        stream = [env.reset(seed=[5, 6, 7])]
        for asked in ({"step": "raise", "make": "raise"}, {}, {"reset": "raise", "make": "raise"}):
            for point, fault in asked.items():
                ask(folder, 2, point, fault)
            if "reset" in asked:
                stream.append(env.reset(seed=[8, 9, 10]))
            for _ in range(4):
                if (
                    mode in ("disabled", "episodic")
                    and (
                        over := env.core.rows.needs_reset.ended | env.core.slots.terminations
                    ).any()
                ):
                    stream.append(env.reset(options={"reset_mask": np.array(over)}))
                stream.append(env.step([0, 1, 2]))
            stream.append(env.get_attr("bonus"))  # which waits until it is there again
        health = env.health()
        stream.append((health.restarts, health.lost_episodes))
        env.close()
        streams.append(stream)
    assert_same(*streams)
    assert streams[0][-1][0][2] == 4


@pytest.mark.parametrize("mode", ["next_step", "disabled", "episodic"])
def test_a_row_that_is_home_is_handed_out_though_nothing_is_made_anew_for_it(mode, tmp_path):
    """Row by row: the first is lost and tells of it, then nothing can be made in its place, then
    the others come.
    """
    policy = {"on_failure": "restart", "max_restarts": 1, "restart_backoff": 0.0}
    env = DummyBackend(factories(tmp_path, 3, end=0.0), autoreset=mode, batch_size=3, **policy)
    env.reset(seed=1)
    ask(tmp_path, 0, "step", "raise")
    ask(tmp_path, 0, "make", "raise")
    _, rewards, _, truncations, infos = env.step([1, 1, 1])
    assert truncations.tolist() == [True, False, False]
    assert (rewards != 0).tolist() == [False, True, True]
    assert infos["_restarted"].tolist() == [True, False, False]
    with pytest.raises(ResetNeeded, match=r"\[0\] have ended or failed"):
        env.step([1, 1, 1])
    env.close()


class Unready(Faulty):
    """Has a setter that works in a running episode alone."""

    level = property(lambda self: 0, lambda self, value: self.set_level())

    def set_level(self):
        if not hasattr(self, "steps"):
            raise ConnectionError("reset first")


@pytest.mark.parametrize("kind", ["raise", "kill"])
@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_what_cannot_be_set_again_is_said_and_no_end_of_the_worker(backend, kind, tmp_path):
    makers = [partial(Unready, str(tmp_path), i) for i in range(2)]
    with backend(
        makers, workers=1, on_failure="restart", max_restarts=2, restart_backoff=0.0
    ) as env:
        env.reset(seed=1)
        env.set_attr("level", 3)
        ask(tmp_path, 1, "step", kind)
        with pytest.raises(SubEnvError, match="raised ConnectionError in make: reset first"):
            env.step([0, 0])


class Noted(Unready):
    """Leaves a file for as long as it is open."""

    def __init__(self, folder, index):
        super().__init__(folder, index)
        self.note = Path(folder, f"open {uuid4()}")
        self.note.touch()

    def close(self):
        self.note.unlink(missing_ok=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_was_made_but_cannot_be_set_again_is_closed(backend, tmp_path):
    makers = [partial(Noted, str(tmp_path), i) for i in range(2)]
    with backend(makers, on_failure="restart", max_restarts=2, restart_backoff=0.0) as env:
        env.reset(seed=1)
        env.set_attr("level", 3)
        ask(tmp_path, 1, "step", "raise")
        with pytest.raises(SubEnvError, match="raised ConnectionError in make: reset first"):
            env.step([0, 0])
        assert len(list(tmp_path.glob("open *"))) == 1  # the other one


class Cancelled(Faulty):
    """Is closed as what runs an event loop of its own: with an exception that is none of Python's
    ``Exception``s.
    """

    def close(self):
        raise asyncio.CancelledError


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_whatever_a_lost_one_raises_as_it_is_closed_another_takes_its_place(backend, tmp_path):
    with backend(
        [partial(Cancelled, str(tmp_path), i) for i in range(2)], on_failure="restart", workers=1
    ) as env:
        env.reset(seed=1)
        ask(tmp_path, 1, "step", "raise")
        assert env.step([0, 0])[3].tolist()[1]
        assert env.health().restarts.tolist() == [0, 1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_seed_that_no_reset_was_tried_with_is_used_as_it_is(backend, tmp_path):
    with (
        backend(factories(tmp_path, 2), autoreset="disabled", on_failure="restart") as env,
        DummyBackend(factories(None, 2)) as twin,
    ):
        env.reset(seed=1)
        ask(tmp_path, 1, "step", "raise")
        ask(tmp_path, 1, "make", "raise")
        assert env.step([0, 0])[3].tolist()[1]
        assert_same(env.reset(seed=7)[0], twin.reset(seed=7)[0])
        assert env.health().restarts.tolist() == [0, 2]


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_is_called_of_what_could_not_be_made_anew(backend, tmp_path):
    env = backend(factories(tmp_path, 2), on_failure="restart", max_restarts=1, restart_backoff=0.0)
    env.reset(seed=1)
    ask(tmp_path, 1, "step", "raise")
    ask(tmp_path, 1, "make", "raise")
    with pytest.raises(SubEnvError, match="sub-environment 1 .*asked to raise") as caught:
        env.step([0, 0])
    assert caught.value.others[4]["env_id"].tolist() == [0]
    for call in (
        lambda: env.call("call_me"),
        lambda: env.get_attr("bonus"),
        lambda: env.set_attr("bonus", 1.0),
    ):
        with pytest.raises(
            ResetNeeded,
            match=r"sub-environments \[1\] were lost and could not be recreated; a reset",
        ):
            call()
    assert env.call("call_me", indices=[0]) == (0,)
    assert "could not be recreated" in env.state_dict()["sub_envs_missing"]
    env.close()


@pytest.mark.parametrize(
    ("backend", "kind"), [(SubprocessBackend, "stop"), (ShmemBackend, "hang")]
)  # more below
def test_a_hang_is_a_failure_after_its_time(backend, kind, tmp_path):
    trial = Trial(backend, "same_step", tmp_path, **HANGS_ARE_SHORT)
    trial.reset(list(range(10, 15)))
    for i, point in enumerate(["step", "half a reply"]):
        trial.step()
        trial.step({i + 1: (point, kind)})
    trial.reset([1, 2, 3, 4, 5], faults={3: kind})
    play_on(trial, 5)
    trial.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_what_was_lost_while_it_was_not_asked_is_told_when_it_is_next_asked(
    backend, mode, tmp_path
):
    trial = Trial(backend, mode, tmp_path, num_envs=4, end=0.0)
    trial.reset([1, 2, 3, 4])
    trial.step()
    trial.step({0: ("step", "kill")}, env_ids=[0, 2])  # sub-environment 1 is lost too
    trial.step(env_ids=[2, 3])
    if mode == "disabled":
        trial.reset(mask=np.array([True, False, False, False]))
    trial.step(env_ids=[1, 3])
    if mode == "disabled":
        trial.reset(mask=np.array([False, True, False, False]))
    trial.step()
    trial.step({2: ("after step", "exit")}, env_ids=[2])  # and now 3
    trial.reset(mask=np.array([False, False, False, True]))  # which is reset before it was told
    play_on(trial, 3)
    trial.close()


class Gated(Faulty):
    """It waits for as long as a file is there."""

    def reset(self, *, seed=None, options=None):
        self.wait()
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self.wait()
        return super().step(action)

    def wait(self):
        while Path(self.folder, f"{self.index} gate").exists():
            time.sleep(0.01)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_who_takes_the_place_of_a_dead_worker_leaves_its_rows_alone_that_are_home(
    backend, mode, tmp_path
):
    """Of three rows the first comes home, the second takes their worker with it, and the third is
    waited for.
    """
    makers = [partial(Gated, str(tmp_path), i, end=0.0) for i in range(3)]
    settings = {"workers": 2, "batch_size": 3, "start_method": "forkserver"}
    with (
        backend(makers, autoreset=mode, on_failure="restart", **settings) as env,
        DummyBackend(factories(None, 3, end=0.0), autoreset=mode) as twin,
    ):
        env.reset(seed=1)
        twin.reset(seed=1)
        ask(tmp_path, 1, "step", "kill")
        ask(tmp_path, 2, "gate", "shut")
        env.step_async([1, 1, 1])
        while (
            env.health().workers[0].restarts == 0
            or "attached" in env.unwrapped.runner._workers[0].awaiting()
        ):
            with contextlib.suppress(TimeoutError):
                env.step_wait(timeout=0.01)
        forget(tmp_path)
        result, expected = env.step_wait(), twin.step([1, 1, 1])
        for got, meant in zip(result[:4], expected[:4], strict=True):
            assert_same(take(meant, [0, 2]), take(got, [0, 2]))
        assert result[3].tolist() == [False, True, False]
        assert result[4]["_restarted"].tolist() == [False, True, False]
        if mode == "disabled":
            env.reset(options={"reset_mask": np.array([False, True, False])})
        told = env.step([1, 1, 1])  # and now the first
        assert told[3].tolist()[0]
        assert told[4]["_restarted"].tolist()[0]
        assert env.health().lost_episodes.tolist() == [1, 1, 0]


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_a_schedule_leaves_out_only_what_failed_where_the_next_is_lost_before_it_is_handed_out(
    backend, tmp_path
):
    makers = [partial(Gated, str(tmp_path), i, end=0.0) for i in range(3)]
    settings = {"workers": 2, "batch_size": 3, "start_method": "forkserver"}
    with SeedEachEpisode(
        backend(makers, on_failure="restart", **settings), seeds=range(15)
    ) as env:  # five each
        backend = env.unwrapped
        ask(tmp_path, 0, "reset", "raise")
        ask(tmp_path, 2, "gate", "shut")
        env.reset_async()

        def wait_until(done):
            while not done():
                with contextlib.suppress(TimeoutError):
                    env.reset_wait(timeout=0.01)

        wait_until(lambda: backend.core.rows.pending.num_arrived == 2)
        os.kill(env.health().workers[0].pid, signal.SIGKILL)
        wait_until(
            lambda: (
                env.health().workers[0].restarts == 1
                and "attached" not in backend.unwrapped.runner._workers[0].awaiting()
            )
        )
        forget(tmp_path)
        assert env.reset_wait()[1]["episode_seed"].tolist() == [1, 5, 10]
        assert env.step([0, 0, 0])[4]["episode_seed"].tolist()[:2] == [2, 6]


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_what_cannot_be_sent_of_one_row_costs_no_other_its_last_step(backend, tmp_path):
    """In one answer: a row whose info cannot be sent, and one whose autoreset failed after a step
    that was whole.
    """
    trial = Trial(backend, "same_step", tmp_path, workers=1, end=1.0)
    trial.reset([1, 2, 3, 4, 5])
    for _ in range(3):
        trial.step({1: ("reply", "raise"), 2: ("reset", "raise")})
    trial.close()


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("kind", ["stop", "hang"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_a_hang_at_any_point_loses_the_rows_of_its_worker(backend, mode, kind, workers, tmp_path):
    trial = Trial(backend, mode, tmp_path, workers=workers, **HANGS_ARE_SHORT)
    trial.reset(list(range(10, 15)))
    for i, point in enumerate(IN_STEP_OF_A_WORKER):
        play_on(trial, 2)
        over = np.array([row.over for row in trial.model.rows])
        if mode in ("disabled", "episodic") and over.any():
            trial.reset(mask=over)
        trial.step({i: (point, kind)})
    trial.reset([7, None, 9, None, 11], faults={0: kind})
    play_on(trial, 6)
    assert trial.met >= 3
    trial.close()


class Growing(gymnasium.Env):
    """Its observations are longer each time it is made, and its process is killed in the first
    step.
    """

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, folder):
        made = len(list(folder.iterdir()))
        (folder / str(made)).touch()
        self.observation_space = gymnasium.spaces.Box(-1, 1, (4 + made,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.low, {}

    def step(self, action):
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_what_comes_back_with_other_spaces_is_refused_before_it_writes(backend, tmp_path):
    before = OpenResources.now()
    env = backend([lambda: Growing(tmp_path)], on_failure="restart", start_method="fork")
    env.reset(seed=1)
    with pytest.raises(
        BackendError, match=r"need the same observation_space.*Box\(-1.0, 1.0, \(5,\)"
    ):
        env.step([0])
    with pytest.raises(BackendError, match="need the same observation_space"):
        env.step([0])
    env.close()
    assert_nothing_left(before, before)


class Informs(gymnasium.Env):
    """Has infos while it plays and none at its resets; after a crash others.

    Action 2 ends the worker.
    """

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, folder):
        self.key = "later" if (folder / "crashed").exists() else "x"
        self.folder, self.steps = folder, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {} if self.key == "x" else {"later": 7}

    def step(self, action):
        self.steps += 1
        if action == 2:
            (self.folder / "crashed").touch()
            os._exit(3)
        return np.zeros(1, np.float32), 0.0, False, False, {"x": self.steps}


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_infos_of_a_worker_that_died_are_gone_with_it(backend, mode, tmp_path):
    class SilentAtResets(Informs):
        def __init__(self):
            super().__init__(tmp_path / "nowhere")
            self.folder = tmp_path

    with backend([SilentAtResets] * 2, workers=1, on_failure="restart", autoreset=mode) as env:
        env.reset(seed=1)
        for _ in range(4):
            env.step([0, 0])
        os.kill(env.health().workers[0].pid, signal.SIGKILL)
        _, infos = env.reset()
        assert set(infos) == {"restarted", "_restarted"}
        for _ in range(4):
            env.step([0, 0])
        infos = env.step([2, 0])[4]
        if mode == "next_step":
            assert set(infos) == {"restarted", "_restarted"}
            infos = env.step([0, 0])[4]
            assert infos == {}
        else:
            assert set(infos) - {"final_obs", "_final_obs", "final_info", "_final_info"} == {
                "restarted",
                "_restarted",
            }


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_infos_that_came_home_before_their_worker_died_are_read_as_they_were_written(
    backend, tmp_path
):
    with backend(
        [partial(Informs, tmp_path)] * 2, workers=1, on_failure="restart", batch_size=2
    ) as env:
        env.reset(seed=1)
        for _ in range(4):
            env.send([0, 0])
            env.recv()
        env.send([0, 2])
        infos = env.recv()[4]
        assert infos["x"].tolist() == [5, 0]
        assert infos["_x"].tolist() == [True, False]
        assert infos["later"].tolist() == [0, 7]
        assert infos["_later"].tolist() == [False, True]


class Drawn(Counter):
    """Can be drawn; its episodes outlast the tests."""

    metadata: ClassVar[dict[str, list[str]]] = {"render_modes": ["rgb_array"]}
    render_mode = "rgb_array"

    def __init__(self):
        super().__init__(length=99)

    def render(self):
        return np.zeros((2, 2, 3), np.uint8)


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.parametrize("asked", ["step", "reset"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_a_death_between_calls_is_told_the_same_where_other_frames_are_wanted_from_now_on(
    backend, mode, asked
):
    """A recorder that begins at this very step is the first to send the dead worker something."""

    def what_is_told(frames):
        drawn = backend([Drawn] * 2, workers=2, on_failure="restart", autoreset=mode)
        with TerminalObs(Monitor(drawn), record=2) as env:
            env.reset(seed=1)
            env.step([1, 1])
            (pid,) = [worker.pid for worker in env.health().workers if 1 in worker.env_ids]
            os.kill(pid, signal.SIGKILL)
            assert gone([pid])
            if frames:
                env.request_frames([0])
            told = [env.step([1, 1])] if asked == "step" else [env.reset(seed=5)]
            if asked == "step" and mode in ("disabled", "episodic"):
                told.append(env.reset(options={"reset_mask": np.array([False, True])}))
            told.append(env.step([1, 1]))
            state = env.find(Monitor).wrapper_state()
            booked = {
                name: state[name] for name in ("returns", "lengths", "running", "num_episodes")
            }
            endings = [(one.length, one.score, one.lost) for one in env.endings[1]]
            return told, booked, endings, env.health().lost_episodes.tolist()

    told, expected = what_is_told(frames=True), what_is_told(frames=False)
    assert_same(expected, told)
    assert told[0][-1][0][1, 1] < 2, "it began anew"


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_a_save_after_a_death_that_nobody_has_met_yet_is_made(backend, tmp_path):
    """Training goes on: of sub-environments without a state the wrappers are saved; a reset follows
    the load.
    """
    with Monitor(backend([Drawn] * 2, workers=2, on_failure="restart")) as env:
        env.reset(seed=1)
        env.step([1, 1])
        (pid,) = [worker.pid for worker in env.health().workers if 1 in worker.env_ids]
        os.kill(pid, signal.SIGKILL)
        assert gone([pid])
        env.save(tmp_path / "state.npz")
        infos = env.step([1, 1])[4]
        assert infos["restarted"].tolist() == [0, 1]
        env.load(tmp_path / "state.npz")
        env.reset(seed=2)
        assert env.step([1, 1])[0][:, 1].tolist() == [1, 1]


class FailsOnce(gymnasium.Env):
    """Shows the level that a reset asks for; the first reset with one raises, in the first
    sub-environment made.
    """

    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, folder):
        self.failed = folder / "failed"

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if options and not self.failed.exists():
            self.failed.touch()
            raise RuntimeError("once")
        return np.full(1, options["levels"][0] if options else 0, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, False, False, {}


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.parametrize("mask", [{}, {"reset_mask": np.array([True])}])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_reset_that_is_asked_for_again_has_the_options_that_it_was_given(backend, mask, tmp_path):
    with backend([partial(FailsOnce, tmp_path)], on_failure="restart", restart_backoff=0.0) as env:
        env.reset()
        options = {"levels": [3], **mask}
        env.reset_async(options=options)
        options["levels"][0] = 7
        options["levels"] = [8]
        assert env.reset_wait()[0].tolist() == [[3.0]]
        assert (tmp_path / "failed").exists()


class Breaks(Counter):
    """Raises in every step."""

    def step(self, action):
        raise RuntimeError("as always")


def ask_while_a_restart_is_waited_for(env):
    env.step([0, 0])  # in next-step mode the loss is told first
    return env.get_attr("spec")


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("mode", "wait"),
    [("same_step", lambda env: env.step([0, 0])), ("next_step", ask_while_a_restart_is_waited_for)],
)
def test_close_by_another_thread_while_a_restart_is_waited_for(backend, mode, wait):
    told = []
    env = backend([Breaks] * 2, autoreset=mode, on_failure="restart", restart_backoff=600.0)
    env.reset(seed=1)
    asleep = threading.Event()
    rows = env.core.rows
    rows._sleep = lambda until: (asleep.set(), type(rows)._sleep(rows, until))

    def go_on():
        try:
            while True:
                wait(env)
        except Exception as error:
            told.append(type(error))

    thread = threading.Thread(target=go_on)
    thread.start()
    assert backend is not DummyBackend or asleep.wait(LONG)
    assert until(lambda: env.core.rows.restarts.restart_at)
    env.close()
    thread.join(LONG)
    assert not thread.is_alive()
    assert told == [ClosedEnvironmentError]
    if backend is DummyBackend:
        assert env.unwrapped.runner.local.sources == []


def test_what_is_made_in_an_environment_that_was_closed_meanwhile_is_closed_too():
    made = []

    class Made(Breaks):
        closed = False

        def __init__(self):
            super().__init__()
            made.append(self)
            if len(made) == 2:
                env.close()  # as another thread does

        def close(self):
            self.closed = True

    env = DummyBackend([Made], on_failure="restart")
    env.reset(seed=1)
    with pytest.raises(ClosedEnvironmentError):
        env.step([0])
    assert [one.closed for one in made] == [True, True]


class DiesOfSaves(Drawn):
    """Ends its worker when its state is asked for the k-th time."""

    def __init__(self, k):
        super().__init__()
        self.left = k

    def state_dict(self):
        self.left -= 1
        if not self.left:
            os._exit(3)
        return {}

    def load_state_dict(self, state):
        raise AssertionError("it is not loaded")


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_a_save_that_one_worker_after_the_other_dies_of_holds_the_wrappers(backend):
    with Monitor(
        backend([partial(DiesOfSaves, k) for k in (1, 2)], workers=2, on_failure="restart")
    ) as env:
        env.reset(seed=1)
        env.step([1, 1])
        state = env.state_dict()
        assert state["sub_envs"] is None
        assert "exit code 3" in state["sub_envs_missing"]
        assert state["wrappers"][0]["lengths"].tolist() == [1, 1]
        env.reset(seed=2)
        assert env.step([1, 1])[0][:, 1].tolist() == [1, 1]


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.parametrize("schedule", [None, [3, 4, 5, 6]])
@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_a_reset_after_a_death_between_calls_is_what_it_would_have_been(backend, schedule):
    """It has not led to the death: no other seed is derived for it, and no episode of a schedule is
    left out.
    """

    def begun(kind, **arguments):
        env = kind([toy()] * 2, **arguments)
        env = env if schedule is None else SeedEachEpisode(env, schedule)
        env.reset(seed=1 if schedule is None else None)
        env.step([1, 1])
        return env

    asked = {"seed": 7} if schedule is None else {}
    with begun(backend, workers=2, on_failure="restart") as env, begun(DummyBackend) as reference:
        (pid,) = [worker.pid for worker in env.health().workers if 1 in worker.env_ids]
        os.kill(pid, signal.SIGKILL)
        assert gone([pid])
        observations, infos = env.reset(**asked)
        assert infos["restarted"].tolist() == [0, 1]
        assert_same(reference.reset(**asked)[0], observations)
        assert_same(reference.step([0, 1])[:4], env.step([0, 1])[:4])


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_a_step_that_begins_an_episode_after_a_death_leaves_none_of_the_schedule_out(backend):
    def told(kind, *, dies, **arguments):
        with SeedEachEpisode(
            kind([toy(limit=1)] * 2, autoreset="next_step", **arguments), [3, 4, 5, 6, 7]
        ) as env:
            seeds = [env.reset()[1]["episode_seed"].tolist()]
            env.step([1, 1])
            if dies:
                (pid,) = [worker.pid for worker in env.health().workers if 1 in worker.env_ids]
                os.kill(pid, signal.SIGKILL)
                assert gone([pid])
            infos = [env.step([1, 1])[4] for _ in range(4)]
            return seeds + [
                info["episode_seed"].tolist() for info in infos if "episode_seed" in info
            ]

    assert told(backend, dies=True, workers=2, on_failure="restart") == told(
        DummyBackend, dies=False
    )
