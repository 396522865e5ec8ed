"""Every way to fail, and what follows, with real actors: the fault suite's cases that make sense
there.

Where the fault suite says what a worker's words are, there is a case of its own here; the others
are the suite's own.
"""

import os
import signal
import threading
import time
from functools import partial
from itertools import cycle
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import vecwrap
from tests.backends.ray_cluster import patient, small
from tests.faults import test_failures as failures
from tests.faults import test_machine as machine
from tests.faults import test_restarts as restarts
from tests.faults import test_wrappers as wrappers
from tests.faults.faulty import DEATHS, IN_STEP_OF_A_WORKER, Faulty, ask, factories
from tests.faults.test_soak import Twin
from tests.faults.trial import Trial
from tests.helpers.backends import DummyBackend
from tests.helpers.polling import gone
from vecwrap.backends.ray import Ray, fetch
from vecwrap.errors import BackendError, SubEnvError
from vecwrap.testing import assert_same

pytest.importorskip("ray")
# One process has the cluster.
pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.usefixtures("ray"),
]
MODES = ["same_step", "next_step", "disabled", "episodic"]
# Ray's answers come whole or not at all.
POINTS = [point for point in IN_STEP_OF_A_WORKER if point != "half a reply"]
soak = pytest.mark.soak


def some(first, *others):
    """These parameters in the suite, and those in the long runs."""
    others = [other if isinstance(other, tuple) else (other,) for other in others]
    return [*first, *(pytest.param(*other, marks=soak) for other in others)]


# -- on_failure="restart" --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.full
def test_an_exception_at_any_point_loses_one_row(mode, tmp_path):
    trial = Trial(patient, mode, tmp_path)
    trial.reset(list(range(10, 15)))
    trial.set_attr("bonus", [1.0, 2.0, 3.0, 4.0, 5.0])
    for k, point in zip(range(50), cycle(["reset", *POINTS])):
        restarts.reset_what_is_over(trial)
        if trial.may_step():
            trial.step({k % 5: (point, "raise"), (k * 3 + 1) % 5: (point, "raise")})
    assert trial.met > 40
    trial.reset([7, None, 9, None, 11], faults={0: "raise", 1: "raise"})
    trial.reset(mask=np.array([True, False, True, False, True]), faults={4: "raise"})
    restarts.play_on(trial, 10)
    trial.close()


@pytest.mark.full
def test_what_cannot_be_sent_of_one_row_costs_no_other_its_last_step(tmp_path):
    restarts.test_what_cannot_be_sent_of_one_row_costs_no_other_its_last_step(patient, tmp_path)


def test_a_death_loses_the_rows_of_its_actor(tmp_path):
    die_at(["half a row", "reset"], "same_step", tmp_path, workers=2)


@pytest.mark.parametrize("schedule", [None, [3, 4, 5, 6]])
@pytest.mark.full
def test_a_reset_after_a_death_between_calls_is_what_it_would_have_been(schedule):
    restarts.test_a_reset_after_a_death_between_calls_is_what_it_would_have_been(patient, schedule)


@pytest.mark.full
def test_a_step_that_begins_an_episode_after_a_death_leaves_none_of_the_schedule_out():
    restarts.test_a_step_that_begins_an_episode_after_a_death_leaves_none_of_the_schedule_out(
        patient
    )


@pytest.mark.full
def test_ctrl_c_while_an_actor_is_asked_whether_it_lives_costs_none():
    with (
        small([restarts.toy()] * 2, workers=2, on_failure="restart") as env,
        DummyBackend([restarts.toy()] * 2) as reference,
    ):
        env.reset(seed=1)
        (pid,) = [worker.pid for worker in env.health().workers if 1 in worker.env_ids]
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            env.reset(seed=7)
        os.kill(pid, signal.SIGCONT)
        assert_same(reference.reset(seed=7), env.reset(seed=7))
        assert_same(reference.step([0, 1]), env.step([0, 1]))
        assert env.health().restarts.tolist() == [0, 0]


@soak
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.full
def test_a_death_at_any_point_loses_the_rows_of_its_actor(mode, workers, tmp_path):
    die_at([*POINTS, "reset"], mode, tmp_path, workers=workers)


def die_at(points, mode, folder, workers):
    trial = Trial(patient, mode, folder, workers=workers)
    trial.reset(list(range(10, 15)))
    trial.set_attr("bonus", [1.0, 2.0, 3.0, 4.0, 5.0])
    for i, point, kind in zip(cycle([3, 0, 4, 1, 2]), points, cycle(DEATHS)):
        for _ in range(4):  # until there is one that meets it
            met = trial.met
            restarts.play_on(trial, 2)
            restarts.reset_what_is_over(trial)
            if trial.may_step():
                trial.step({i: (point, kind)})
            if trial.met > met:
                break
    assert trial.met >= 1
    trial.reset([7, None, 9, None, 11], faults={0: "kill"})
    restarts.play_on(trial, 6)
    trial.close()


@pytest.mark.parametrize("kind", some(["stop"], "hang"))
def test_a_hang_is_a_failure_after_its_time(kind, tmp_path):
    brief = partial(small, step_timeout=5.0, start_timeout=60.0)
    trial = Trial(
        lambda factories, **options: brief(factories, **without_limits(options)),
        "same_step",
        tmp_path,
    )
    trial.reset(list(range(10, 15)))
    trial.step()
    trial.step({1: ("step", kind)})
    restarts.play_on(trial, 5)
    trial.close()


def without_limits(options):
    return {name: value for name, value in options.items() if not name.endswith("_timeout")}


class HangsWhenItIsMadeAnew(gymnasium.Env):
    """Dies in its first step, then hangs when it is made, then is fine; ``folder`` holds the pid of
    each time.
    """

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, folder):
        self.time = len(list(Path(folder).iterdir()))
        path = Path(folder, "unfinished")
        path.write_text(str(os.getpid()))
        path.rename(Path(folder, str(self.time)))
        if self.time == 1:
            time.sleep(600)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        if self.time == 0:
            os._exit(7)
        return np.ones(2, np.float32), 0.0, False, False, {}


@pytest.mark.full
def test_a_hang_after_a_death_is_ended_and_not_the_one_who_died(tmp_path, monkeypatch):
    killed = []
    kill = os.kill
    monkeypatch.setattr(os, "kill", lambda pid, number: (killed.append(pid), kill(pid, number)))
    # Its time is over as soon as it hangs: before that Ray takes longer than any hang, where a
    # machine is busy.
    hangs, once, late = Path(tmp_path, "1"), iter([True]), Ray._is_late
    monkeypatch.setattr(
        Ray, "_is_late", lambda *given: (hangs.exists() and next(once, False)) or late(*given)
    )
    options = {
        "on_failure": "restart",
        "restart_backoff": 0.0,
        "start_timeout": 60.0,
        "max_restarts": 3,
    }
    with small([partial(HangsWhenItIsMadeAnew, str(tmp_path))], **options) as env:
        env.reset(seed=1)
        assert env.step([0])[3].tolist() == [True]
        assert env.step([0])[0].tolist() == [[1.0, 1.0]]
        died, hung, fine = (int(Path(tmp_path, name).read_text()) for name in "012")
        assert gone([hung])
        assert died not in killed
        assert env.health().workers[0].pid == fine


@pytest.mark.parametrize("mode", some(MODES[:1], *MODES[1:]))
@pytest.mark.full
def test_what_was_lost_while_it_was_not_asked_is_told_when_it_is_next_asked(mode, tmp_path):
    restarts.test_what_was_lost_while_it_was_not_asked_is_told_when_it_is_next_asked(
        patient, mode, tmp_path
    )


@pytest.mark.full
def test_what_comes_back_with_other_spaces_is_refused_before_it_writes(tmp_path):
    restarts.test_what_comes_back_with_other_spaces_is_refused_before_it_writes(small, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["raise", "exit"])
def test_what_was_never_made_is_not_restarted(kind, tmp_path):
    failures.test_what_was_never_made_is_not_restarted(small, kind, None, tmp_path)


@pytest.mark.full
def test_what_no_actor_can_read_is_an_error_that_says_so():
    failures.test_what_no_worker_can_read_is_an_error_that_says_so(small, {"on_failure": "restart"})


@pytest.mark.full
def test_what_was_made_once_and_fails_when_it_is_made_again_is_tried_again(tmp_path):
    failures.test_what_was_made_once_and_fails_when_it_is_made_again_is_tried_again(small, tmp_path)


@pytest.mark.parametrize(
    ("where", "how"),
    some(
        [("make", "raise")],
        ("reset", "raise"),
        ("step", "raise"),
        ("make", "exit"),
        ("step", "exit"),
    ),
)
@pytest.mark.full
def test_what_always_fails_ends_with_one_error_and_not_in_a_loop(where, how, tmp_path):
    failures.test_what_always_fails_ends_with_one_error_and_not_in_a_loop(
        small, where, how, tmp_path
    )


@soak
@pytest.mark.full
def test_a_death_in_a_call_is_said_and_the_actor_comes_back(tmp_path):
    failures.test_a_call_that_kills_its_worker_is_an_error_and_the_run_goes_on(small, tmp_path)


@pytest.mark.full
def test_time_for_which_the_job_is_stopped_is_no_actors_delay(tmp_path):
    failures.test_time_for_which_the_job_is_stopped_is_no_workers_delay(small, tmp_path)


@pytest.mark.full
def test_an_actor_that_ray_cannot_reach_is_lost_once_and_another_takes_its_place(
    tmp_path, monkeypatch, ray
):
    """So it may be for half a minute where a node goes without a word."""
    silent = iter([True])

    def out_of_reach(ray, references):
        replies = fetch(ray, references)
        return (
            [ray.exceptions.ActorUnavailableError("it may come back", None)]
            if next(silent, False)
            else replies
        )

    with small(factories(tmp_path, 2), on_failure="restart", max_restarts=1) as env:
        env.reset(seed=1)
        pid = env.health().workers[0].pid
        monkeypatch.setattr("vecwrap.backends.ray.fetch", out_of_reach)
        assert env.step([0, 0])[4]["restarted"].tolist() == [1, 1]
        assert next(silent, None) is None
        assert env.health().workers[0].pid != pid
        assert gone([pid])


def test_an_error_in_one_answer_leaves_the_others(ray):
    references = [ray.remote(num_cpus=0)(lambda k: 6 // k).remote(k) for k in (1, 0, 2)]
    ray.wait(references, num_returns=3)
    one, error, other = fetch(ray, references)
    assert (one, other) == (6, 3)
    assert isinstance(error, ray.exceptions.RayError)


# -- any order -------------------------------------------------------------------------------------


class OnRay(machine.Faults):
    backend = staticmethod(patient)
    points = ("reset", *POINTS)


@pytest.mark.parametrize("mode", some(MODES[:1], *MODES[1:]))
@pytest.mark.full
def test_any_order_of_calls_and_faults(mode):
    machine.run(OnRay, mode, 1, 10)


@soak
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.full
def test_any_order_of_many_calls_and_faults(mode):
    machine.run(OnRay, mode, 10, 30)


@soak
@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
@pytest.mark.parametrize("name", ["CartPole-v1", "PongNoFrameskip-v4"])
@pytest.mark.full
def test_chaos(name, caplog):
    caplog.set_level("ERROR")
    brief = partial(small, step_timeout=5.0)
    twin = Twin(lambda factories, **options: brief(factories, **without_limits(options)), name)
    twin.play(2000 if "CartPole" in name else 100, kill=20, stop=3, hang=3)
    assert twin.rows > 1000
    twin.env.close()


# -- what the wrappers make of it ------------------------------------------------------------------


WAY = small, "kill", {"workers": 2}


@pytest.mark.parametrize("mode", some(MODES[:1], *MODES[1:]))
@pytest.mark.full
def test_monitor_marks_the_lost_episode_and_counts_it_nowhere(mode, tmp_path):
    wrappers.test_monitor_marks_the_lost_episode_and_counts_it_nowhere(*WAY, mode, tmp_path)


@soak
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.full
def test_histories_end_with_what_was_delivered_and_begin_anew(mode, tmp_path):
    wrappers.test_histories_end_with_what_was_delivered_and_begin_anew(*WAY, mode, tmp_path)


@soak
@pytest.mark.parametrize(
    "case",
    [
        wrappers.test_a_schedule_of_seeds_goes_on_after_the_episode_that_was_lost,
        wrappers.test_a_video_ends_with_the_lost_episode_and_the_next_is_recorded,
        wrappers.test_an_episode_whose_end_was_delivered_is_no_lost_one_though_the_reset_after_it_failed,
    ],
    ids=lambda case: case.__name__,
)
@pytest.mark.full
def test_wrappers_know(case, tmp_path):
    case(*WAY, tmp_path)


@soak
@pytest.mark.full
def test_a_whole_pipeline_goes_on(tmp_path):
    env = vecwrap.build(
        factories(tmp_path, 4),
        backend={"name": "ray", "workers": 2, "num_cpus": 0.1},
        on_failure="restart",
        wrappers=[
            {"framestack": {"k": 2, "keys": ["a"]}},
            "normalize_reward",
            "monitor",
            "terminal_obs",
        ],
    )
    with env:
        env.reset(seed=1)
        for k in range(12):
            if k == 5:
                ask(tmp_path, 2, "step", "kill")
            env.step(env.action_space.sample())
        assert env.health().restarts.tolist() == [0, 0, 1, 1]


# -- on_failure="raise" ----------------------------------------------------------------------------

WHO = r"actor 1 \(pid \d+ on node [\d.]+, sub-environments 2-3\)"


@pytest.mark.parametrize(
    ("point", "kind"),
    some([("step", "kill")], ("reset", "exit"), *((point, "segv") for point in POINTS[1:])),
)
def test_a_death_is_an_error_that_names_the_actor_and_its_node(point, kind, tmp_path):
    env = small(factories(tmp_path, 4), workers=2)
    if point != "reset":
        env.reset(seed=1)
    ask(tmp_path, 2, point, kind)
    with pytest.raises(BackendError, match=f"{WHO} died") as caught:
        env.reset(seed=1) if point == "reset" else env.step([0, 0, 0, 0])
    assert (caught.value.worker, caught.value.env_ids) == (1, (2, 3))
    for call in (lambda: env.step([0, 0, 0, 0]), env.reset, lambda: env.call("call_me")):
        with pytest.raises(BackendError, match="actor 1"):
            call()
    env.close()


@pytest.mark.parametrize("kind", some(["kill"], "raise"))
@pytest.mark.full
def test_a_death_while_the_environments_are_made(kind, tmp_path):
    ask(tmp_path, 3, "make", kind)
    with pytest.raises(SubEnvError if kind == "raise" else BackendError) as caught:
        small(factories(tmp_path, 4), workers=2)
    if kind == "raise":
        assert (caught.value.index, caught.value.during) == (3, "make")
    else:
        assert (caught.value.worker, caught.value.env_ids) == (1, (2, 3))


@pytest.mark.parametrize("when", some(["in recv", "in a call"], "between two steps"))
@pytest.mark.full
def test_a_death_is_noticed_wherever_it_comes(when, tmp_path):
    env = small(factories(tmp_path, 4), workers=2, batch_size=2 if when == "in recv" else None)
    env.reset(seed=1)
    with pytest.raises(BackendError, match=f"{WHO} died"):
        if when == "between two steps":
            os.kill(env.health().workers[1].pid, 9)
            env.step([0, 0, 0, 0])
        elif when == "in recv":
            ask(tmp_path, 2, "step", "kill")
            env.send([0, 0, 0, 0])
            assert env.recv()[4]["env_id"].tolist() == [0, 1]
            env.recv()
        else:
            env.call("call_me", "kill", indices=[3])
    env.close()


@pytest.mark.parametrize(
    ("limit", "point"), some([("start_timeout", "make")], ("reset_timeout", "reset"))
)
@pytest.mark.full
def test_a_hang_is_an_error_after_its_time(limit, point, tmp_path):
    ask(tmp_path, 1, point, "stop")
    with pytest.raises(
        BackendError, match=rf"actor 0 .* did not answer within {limit}=5 s, and was killed"
    ):
        env = small(factories(tmp_path, 2), **{limit: 5.0})
        try:
            env.reset(seed=1)
        finally:
            env.close()


@pytest.mark.full
def test_what_cannot_be_read_here_is_an_error_that_names_the_actor():
    with small([failures.Strange] * 2) as env:
        env.reset(seed=1)
        with pytest.raises(
            BackendError, match=r"actor 0 .* sent what cannot be read here \(ZeroDivisionError"
        ):
            env.step([0, 0])


class Full(gymnasium.Wrapper):
    """Says what Ray says when an object store is full."""

    def step(self, action):
        from ray.exceptions import ObjectStoreFullError

        raise ObjectStoreFullError("no room")


@pytest.mark.full
def test_an_exception_of_rays_own_in_an_environment_is_the_environments():
    with small([lambda: Full(Faulty())] * 2) as env:
        env.reset(seed=1)
        with pytest.raises(
            SubEnvError, match="sub-environment 0 .* raised ObjectStoreFullError in step"
        ):
            env.step([0, 0])
