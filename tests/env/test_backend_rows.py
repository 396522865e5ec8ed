"""Pending rows, restarts, timeouts and interrupts over a runner whose arrivals are written down
here.
"""

import numpy as np
import pytest
from gymnasium.error import NoAsyncCallError

import vecwrap
from tests.helpers.scripted_runner import Scripted, Still, resets, steps
from vecwrap.env.arrivals import RecreateFailed, RowResults, WorkerLost
from vecwrap.env.backend import Backend
from vecwrap.errors import BackendError, ResetNeededError, SubEnvError, WaitTimeoutError
from vecwrap.sources.failure import make_failure
from vecwrap.testing import toy


def build(*script, n=2, **options):
    runner = Scripted(script)
    env = Backend(runner, [Still] * n, **options)
    return env, runner


def lost(*rows, reason="worker 0 died", **facts):
    return WorkerLost(0, rows, reason, "\nIts last lines on stderr:\n  oh", facts=facts)


def interrupt(runner):
    raise KeyboardInterrupt


# -- rows ------------------------------------------------------------------------------------------


def test_rows_arrive_in_any_order_and_are_delivered_in_ascending_order():
    env, runner = build(resets(1), resets(2, 0), steps(2), steps(0, 1), n=3)
    assert env.reset(seed=5)[0].tolist() == [[0], [0], [0]]
    assert env.step([0, 0, 0])[0].tolist() == [[1], [1], [1]]
    assert runner.requests == [("reset", [0, 1, 2], [5, 6, 7]), ("step", [0, 1, 2])]


def test_a_batch_is_the_rows_that_arrive_first():
    env, _ = build(resets(0, 1, 2), steps(2), steps(0), steps(1), n=3, batch_size=2)
    env.reset()
    env.send([0, 0, 0])
    assert env.recv()[4]["env_id"].tolist() == [0, 2]
    env.send([0], env_ids=[2])
    env.runner.script.append(steps(2))
    assert env.recv()[4]["env_id"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("arrivals", "said"),
    [
        ([RowResults([0, 1, 1])], r"rows \[1\] brought twice"),
        ([RowResults([0]), RowResults([0])], r"rows \[0\] brought twice"),
        ([RowResults([0, 1, 5])], r"rows \[5\] not asked for"),
    ],
)
def test_rows_that_nobody_asked_for_or_that_come_twice_are_named_and_end_the_environment(
    arrivals, said
):
    env, _ = build(resets(0, 1), arrivals)
    env.reset()
    for _ in range(2):
        with pytest.raises(
            BackendError, match=rf"Scripted: expected each of the rows \[0, 1\] once, got {said}"
        ):
            env.step([0, 0])
    env.close()


@pytest.mark.filterwarnings("ignore:Calling `close` while waiting for a pending call")
def test_too_few_rows_are_named():
    env, _ = build(resets(0, 1), steps(1))
    env.reset()
    with pytest.raises(
        BackendError, match=r"Scripted: expected results of sub-environments \[0\], .* none will"
    ):
        env.step([0, 0])
    env.close()


def test_a_timeout_loses_nothing():
    env, runner = build(resets(0, 1), "nothing", steps(1), "nothing")
    env.reset()
    env.step_async([0, 0])
    for _ in range(2):
        with pytest.raises(WaitTimeoutError, match="2 sub-environments have not answered yet"):
            env.step_wait(timeout=0.0)
    runner.script.append(steps(0))
    assert env.step_wait(timeout=5.0)[0].tolist() == [[1], [1]]


def test_rows_that_could_not_be_sent_are_idle_again():
    env, runner = build(resets(0, 1), steps(0, 1))
    env.reset()
    send, runner.send = runner.send, lambda rows: 1 / 0
    with pytest.raises(ZeroDivisionError):
        env.step_async([0, 0])
    runner.send = send
    assert env.step([0, 0])[0].tolist() == [[1], [1]]


# -- losses ----------------------------------------------------------------------------------------


def test_without_restarts_a_loss_ends_the_environment():
    env, _ = build(resets(0, 1), [lost(0, 1, exitcode=3)])
    env.reset()
    for _ in range(2):
        with pytest.raises(
            BackendError, match='worker 0 died\nIts last.*\n.*oh\nclose.*on_failure="restart"'
        ) as caught:
            env.step([0, 0])
    assert (caught.value.worker, caught.value.exitcode, caught.value.env_ids) == (0, 3, (0, 1))
    env.close()


@pytest.mark.parametrize(
    ("mode", "truncated", "observations"),
    [
        ("same_step", True, [0, 1]),
        ("next_step", True, [1, 1]),
        ("disabled", True, [1, 1]),
        ("episodic", True, [1, 1]),
    ],
)
def test_a_running_episode_that_is_lost_ends_truncated(mode, truncated, observations):
    script = [resets(0, 1), steps(0, 1), steps(1), [lost(0)], resets(0)]
    env, runner = build(*script, autoreset=mode, on_failure="restart")
    env.reset(seed=5)
    env.step([0, 0])
    got, rewards, terminations, truncations, infos = env.step([0, 0])
    assert got[:, 0].tolist() == [observations[0], 2]
    assert (rewards.tolist(), terminations.tolist(), truncations.tolist()) == (
        [0, 1],
        [False] * 2,
        [truncated, False],
    )
    assert infos["restarted"].tolist() == [1, 0]
    if mode == "same_step":
        assert infos["final_obs"][0].tolist() == [1]
        assert ("reset", [0], [None]) in runner.requests
    assert env.health().lost_episodes.tolist() == [1, 0]


def test_a_row_that_arrived_before_its_worker_died_is_delivered_as_it_is():
    env, _ = build(
        resets(0, 1),
        lambda runner: [*runner.stepped(0), lost(0), *runner.stepped(1)],
        on_failure="restart",
    )
    env.reset()
    _, rewards, _, truncations, infos = env.step([0, 0])
    assert (rewards.tolist(), truncations.tolist()) == ([1, 1], [False, False])
    assert "restarted" not in infos
    env.runner.script.extend([steps(1), resets(0)])
    assert env.step([0, 0])[3].tolist() == [True, False], "its next request reports the loss"


def test_a_death_of_the_past_leaves_the_seeds_of_a_reset_as_they_were_given():
    env, runner = build(resets(0, 1), on_failure="restart")
    env.reset(seed=1)
    runner.losses = [lost(0)]
    runner.script.append(resets(1))
    runner.script.append(resets(0))
    env.reset(seed=7)
    assert ("reset", [0], [7]) in runner.requests
    assert ("reset", [1], [8]) in runner.requests


def test_a_reset_during_which_a_worker_dies_is_repeated_with_another_seed():
    env, runner = build([lost(0)], resets(1), resets(0), on_failure="restart")
    env.reset(seed=7)
    ((_, _, (seed,)),) = [one for one in runner.requests if one[0] == "reset" and one[1] == [0]]
    assert seed not in (7, None)


def test_what_cannot_be_restored_is_tried_again_until_the_limit():
    failure = make_failure(0, ValueError("no"))
    script = [
        resets(0, 1),
        steps(1),
        [lost(0)],
        [RecreateFailed([failure])],
        [RecreateFailed([failure])],
    ]
    env, runner = build(*script, on_failure="restart", max_restarts=2, restart_backoff=0.0)
    env.reset()
    with pytest.raises(SubEnvError, match=r"not recreated, because max_restarts=2") as caught:
        env.step([0, 0])
    assert caught.value.others[4]["env_id"].tolist() == [1]
    assert [kind for kind, *_ in runner.requests].count("recreate") == 2


def test_a_call_that_loses_its_worker_is_not_repeated():
    env, runner = build(resets(0, 1), on_failure="restart")
    env.reset()
    assert env.get_attr("x") == (0, 10)
    runner.call = lambda number, *_: runner.script.append([lost(0, 1)])
    with pytest.raises(BackendError, match="the call is not repeated"):
        env.get_attr("x")


# -- interrupts ------------------------------------------------------------------------------------


def test_an_interrupt_of_a_wait_drops_what_is_in_flight_and_all_rows_need_a_reset():
    env, runner = build(resets(0, 1), steps(0), interrupt)
    env.reset(seed=1)
    env.step_async([0, 0])
    runner.to_come = [1]
    with pytest.raises(KeyboardInterrupt):
        env.step_wait()
    assert runner.requests[-1] == ("cancel", [0, 1])
    for call in (
        lambda: env.step([0, 0]),
        lambda: env.send([0], env_ids=[0]),
        env.step_wait,
        env.recv,
    ):
        with pytest.raises(ResetNeededError, match=r"ended by an interrupt \(Ctrl-C\)"):
            call()
    with pytest.raises(
        ResetNeededError, match=r"sub-environments \[1\] have not been reset since an interrupt"
    ):
        env.reset(options={"reset_mask": np.array([True, False])})
    assert env.get_attr("x") == (0, 10)
    assert env.health().resting.tolist() == [True, True]
    assert env.state_dict()["sub_envs"] is None
    # The late row, then those of the reset.
    runner.script.extend([steps(1), resets(0, 1), steps(0, 1)])
    assert env.reset(seed=3)[0].tolist() == [[0], [0]]
    assert runner.requests[-1] == ("reset", [0, 1], [3, 4])
    assert env.step([0, 0])[1].tolist() == [1, 1]


def test_a_step_after_an_interrupt_and_a_load_waits_for_what_is_dropped():
    env, runner = build(resets(0, 1), interrupt, autoreset="disabled")
    env.reset(seed=1)
    runner.to_come = [1]
    with pytest.raises(KeyboardInterrupt):
        env.step([0, 0])
    endings = env.core.rows.needs_reset
    endings.ended[:] = endings.never_reset[:] = False  # as a load does
    # The late row, then those of the step.
    runner.script.extend([steps(1), steps(0, 1, terminated=True)])
    assert env.step([0, 0])[1].tolist() == [1, 1]
    assert runner.requests[-1] == ("step", [0, 1])


def test_after_a_load_nothing_is_said_of_the_interrupt_before_it():
    env = vecwrap.build(toy(end=0.0), n=1, backend="dummy", autoreset="disabled")
    env.reset(seed=1)
    env.step([0])
    state = env.state_dict()
    state["sub_envs"][0]["ended"] = True
    env.core.interrupt()
    env.load_state_dict(state)
    with pytest.raises(ResetNeededError, match=r"sub-environments \[0\] have ended"):
        env.step([0])


def test_a_failure_of_a_dropped_row_is_dropped_and_a_loss_is_recorded():
    env, runner = build(resets(0, 1), interrupt, on_failure="restart")
    env.reset(seed=1)
    runner.to_come = [0, 1]
    with pytest.raises(KeyboardInterrupt):
        env.step([0, 0])
    runner.script.extend(
        [[RowResults([], [make_failure(0, ValueError("no"))])], [lost(1)], resets(0, 1)]
    )
    env.reset(seed=3)
    assert env.health().restarts.tolist() == [1, 1]
    assert [one for one in runner.requests if one[0] == "reset"][1:] == [
        ("reset", [0], [3]),
        ("reset", [1], [4]),
    ]
    assert env.health().lost_episodes.tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore:Calling `close` while waiting for a pending call")
def test_an_interrupt_that_breaks_a_hold_while_rows_are_in_flight_ends_the_environment():
    def take(runner):
        runner.context.interrupts.hold()
        raise KeyboardInterrupt

    env, _ = build(resets(0, 1), take)
    env.reset()
    with pytest.raises(KeyboardInterrupt):
        env.step([0, 0])
    for call in (env.reset, lambda: env.get_attr("x")):
        with pytest.raises(
            BackendError,
            match=r"a second interrupt ended a call while sub-environments \[0, 1\] were",
        ):
            call()
    env.close()


def test_an_interrupted_call_is_over_and_its_values_are_not_those_of_the_next():
    env, runner = build(resets(0, 1))
    env.reset()
    env.call_async("f")
    late = runner.script.pop()
    runner.script.append(interrupt)
    with pytest.raises(KeyboardInterrupt):
        env.call_wait()
    with pytest.raises(NoAsyncCallError):
        env.call_wait()
    runner.script.append(late)
    runner.call = lambda number, method, rows, arguments: runner.script.append(
        [type(late[0])(number, dict.fromkeys(rows, "new"))]
    )
    assert env.call("g") == ("new", "new")
