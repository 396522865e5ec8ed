"""EnvPool and ale-py that return some of their rows at a time, under ``wrap``: each row's stream is
that of the same engine with all its rows in step.
"""

import os
import signal
from functools import cache

import envpool
import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import vecwrap
from tests.helpers.reference_normalizer import mean_and_var
from vecwrap.errors import ArgumentError, PlanError, ResetNeededError
from vecwrap.testing import toy
from vecwrap.wrappers.monitor import Monitor

N = 4
STEPS = 100
ACTIONS = np.random.default_rng(5).integers(0, 2, size=(STEPS, N))
pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")


def envpool_cartpole(batch_size):
    return envpool.make(
        "CartPole-v1",
        env_type="gymnasium",
        num_envs=N,
        batch_size=batch_size,
        num_threads=2,
        seed=3,
        max_episode_steps=20,
    )


def envpool_pong(batch_size):
    return envpool.make(
        "Pong-v5",
        env_type="gymnasium",
        num_envs=N,
        batch_size=batch_size,
        num_threads=2,
        seed=3,
        stack_num=1,
        img_height=20,
        img_width=20,
        max_episode_steps=12,
    )


def ale_pong(batch_size, mode=AutoresetMode.NEXT_STEP):
    return AtariVectorEnv(
        "pong",
        num_envs=N,
        batch_size=batch_size,
        num_threads=2,
        stack_num=1,
        img_height=20,
        img_width=20,
        max_num_frames_per_episode=90,
        autoreset_mode=mode,
    )


def ale_pong_same_step(batch_size):
    return ale_pong(batch_size, AutoresetMode.SAME_STEP)


ENGINES = [envpool_cartpole, envpool_pong, ale_pong, ale_pong_same_step]
KEYS = ("lives", "elapsed_step", "frame_number", "episode_frame_number")


def seed_of(make):
    """What a reset is given; EnvPool is seeded when it is made."""
    if make in (ale_pong, ale_pong_same_step):
        return {"seed": 11}
    return {}


def actions_of(make):
    """Left and right: the first two of Pong's are no-ops there."""
    if make is envpool_cartpole:
        return ACTIONS
    return ACTIONS + 2


@cache
def bare_streams(make):
    """What each row of the bare engine shows after a reset and so many steps of all its rows."""
    engine = make(N)
    observations, infos = engine.reset(**seed_of(make))
    none = np.zeros(N, dtype=bool)
    streams = [[] for _ in range(N)]

    def note(observations, rewards, terminations, truncations, opened, infos):
        for i, stream in enumerate(streams):
            final = None
            if "final_obs" in infos and opened[i]:
                final = infos["final_obs"][i].copy()
            row = observations[i].copy(), float(rewards[i]) * (final is not None or not opened[i])
            shown = {key: int(infos[key][i]) for key in KEYS if key in infos}
            done = bool(terminations[i]), bool(truncations[i])
            stream.append((*row, *done, bool(opened[i]), final, shown))

    note(observations, none, none, none, ~none, infos)
    over = none
    for actions in actions_of(make):
        observations, rewards, terminations, truncations, infos = engine.step(actions)
        dones = terminations | truncations
        opened = over
        if make is ale_pong_same_step:
            opened = dones
        note(observations, rewards, terminations, truncations, opened, infos)
        over = dones
    engine.close()
    return streams


def driven(env, make, batches, batch_size, *, order=None):
    """Each result of so many ``recv``, in turns with ``send`` for the rows that it brought."""
    taken = np.zeros(N, dtype=int)  # actions of each row
    env.reset_async(**seed_of(make))
    for _ in range(batches):
        result = env.recv()
        ids = result[-1]["env_id"]
        assert len(ids) == batch_size
        yield ids, taken[ids], result
        if order is not None:
            ids = ids[order.permutation(len(ids))]
        env.send(actions_of(make)[taken[ids], ids], env_ids=ids)
        taken[ids] += 1


def test_envpools_rows_may_be_reset_and_stepped_together_too():
    """And in halves, in any order."""
    make = envpool_cartpole
    expected = bare_streams(make)
    with vecwrap.wrap(make(2)) as env:
        shown = [env.reset()[0]]
        for step, actions in enumerate(ACTIONS[:30]):
            if step % 3 == 0:
                shown.append(env.step(actions)[0])
                continue
            ids = np.random.default_rng(step).permutation(N)
            for half in (ids[:2], ids[2:]):
                env.send(actions[half], env_ids=half)
            both = [env.recv(), env.recv()]
            arrived = np.concatenate([result[-1]["env_id"] for result in both])
            observations = np.concatenate([result[0] for result in both])
            shown.append(observations[np.argsort(arrived)])
    for step, observations in enumerate(shown):
        np.testing.assert_array_equal(observations, [stream[step][0] for stream in expected])


def stacks_and_scores(make, streams):
    """Stacks of three, and (row, place, score, length) of each episode, by loops over the rows."""
    stacks, scores = [], []
    for i, stream in enumerate(streams):
        stack, score, length = None, 0.0, 0
        stacks.append([])
        for place, (row, reward, *done, opened, _, _) in enumerate(stream):
            if not opened or (make is ale_pong_same_step and any(done)):
                score += reward
                length += 1
            if any(done):
                scores.append((i, place, score, length))
            if opened:
                stack, score, length = [np.zeros_like(row)] * 3, 0.0, 0
            stack = [*stack[1:], row]
            stacks[-1].append(np.stack(stack))
    return stacks, scores


@pytest.mark.parametrize("make", ENGINES)
def test_streams_stacks_and_scores_by_row_are_those_of_the_engine_in_step(make):
    expected = bare_streams(make)
    stacks, scores = stacks_and_scores(make, expected)
    seen = []
    last = np.zeros(N, dtype=int)
    order = np.random.default_rng(0)
    with vecwrap.wrap(make(2), ["framestack:3", "monitor"]) as env:
        for ids, places, result in driven(env, make, STEPS, 2, order=order):
            last[ids] = places
            observations, rewards, terminations, truncations, infos = result
            for k, (i, place) in enumerate(zip(ids, places, strict=True)):
                _, reward, *done, _, final, shown = expected[i][place]
                np.testing.assert_array_equal(observations[k], stacks[i][place])
                assert rewards[k] == reward
                assert [terminations[k], truncations[k]] == done
                assert shown.items() <= {key: infos[key][k] for key in shown}.items()
                assert ("final_obs" in infos and infos["_final_obs"][k]) == (final is not None)
                if final is not None:
                    np.testing.assert_array_equal(infos["final_obs"][k][-1], final)
                if "episode" in infos and infos["_episode"][k]:
                    seen.append((i, place, infos["episode"]["r"][k], infos["episode"]["l"][k]))
        assert env.find(Monitor).num_episodes == len(seen) > 5
    assert sorted(seen) == [one for one in scores if one[1] <= last[one[0]]]


def test_normalize_counts_what_arrives_as_it_arrives():
    """Against the mean and variance of everything that has arrived, computed anew each time."""
    streams = bare_streams(envpool_cartpole)
    counted, paid, returns = [], [], np.zeros(N)
    with vecwrap.wrap(envpool_cartpole(2), ["normalize"]) as env:
        for ids, places, result in driven(env, envpool_cartpole, STEPS, 2):
            rows = [streams[i][place] for i, place in zip(ids, places, strict=True)]
            for i, (row, reward, *done, opened, _, _) in zip(ids, rows, strict=True):
                if not any(done):
                    counted.append(row)
                if opened:
                    returns[i] = 0.0
                    continue
                returns[i] = returns[i] * 0.99 + reward
                paid.append(returns[i])
            mean, var = mean_and_var(counted, (4,))
            expected = [np.clip((row[0] - mean) / np.sqrt(var + 1e-8), -10, 10) for row in rows]
            np.testing.assert_allclose(result[0], expected, rtol=1e-5, atol=1e-6)
            _, var = mean_and_var(paid)
            expected = [np.clip(row[1] / np.sqrt(var + 1e-8), -10, 10) for row in rows]
            np.testing.assert_allclose(result[1], expected, rtol=1e-6)


def interrupted(function):
    """The same with Ctrl-C before it."""

    def call():
        os.kill(os.getpid(), signal.SIGINT)
        return function()

    return call


@pytest.mark.parametrize("make", [envpool_cartpole, ale_pong])
def test_an_interrupt_drops_what_is_in_flight_and_a_reset_begins_anew(make, monkeypatch):
    streams = bare_streams(ale_pong)
    with vecwrap.wrap(make(2)) as env:
        for _ in driven(env, make, 5, 2):
            pass
        (engine,) = env.core.runner.engines()
        monkeypatch.setattr(engine, "recv", interrupted(engine.recv))
        with pytest.raises(KeyboardInterrupt):
            env.recv()
        monkeypatch.undo()
        with pytest.raises(ResetNeededError, match="interrupt"):
            env.send([0, 0], env_ids=[0, 1])
        for ids, places, (observations, *_) in driven(env, make, 20, 2):
            if make is ale_pong:  # which takes a seed
                np.testing.assert_array_equal(
                    observations,
                    [streams[i][place][0] for i, place in zip(ids, places, strict=True)],
                )
        assert places.max() > 1


def test_a_reset_may_begin_with_recv_on_every_backend():
    with vecwrap.build(toy(), n=4, batch_size=2, backend="dummy") as env:
        env.reset_async(seed=1)
        first = [env.recv() for _ in range(2)]
        observations, _ = env.reset(seed=1)
        for rows, *_, infos in first:
            np.testing.assert_array_equal(rows, observations[infos["env_id"]])


def test_what_such_an_engine_cannot_do_is_said():
    with vecwrap.wrap(envpool_cartpole(2), ["monitor"]) as env:
        env.reset()
        with pytest.raises(ArgumentError, match=r"env_ids: expected a multiple of 2 rows, got 3"):
            env.send([0, 0, 0], env_ids=[1, 2, 3])
        with pytest.raises(ArgumentError, match=r"expected all 4 rows .* is reset as a whole"):
            env.reset(options={"reset_mask": np.arange(N) < 2})
        with pytest.raises(ArgumentError, match=r"reset: CartPole.* takes no options, got"):
            env.reset(options={"low": 1})
        with pytest.warns(UserWarning, match="EnvPool is seeded when it is made"):
            env.reset(seed=1)
        env.step(ACTIONS[0])
    with vecwrap.wrap(ale_pong(2)) as env:
        with pytest.raises(ArgumentError, match=r"2 of its 4 rows at a time.*begin with recv"):
            env.reset(seed=1)
        ids = env.recv()[-1]["env_id"]
        with pytest.raises(ArgumentError, match=r"expected send\(\) for the rows \["):
            env.recv()
        env.send([0, 0], env_ids=ids)
        ids = env.recv()[-1]["env_id"]
        env.send([0, 0], env_ids=ids[::-1])


@pytest.mark.parametrize(
    ("make", "settings", "said"),
    [
        (lambda: envpool_cartpole(3), {}, "multiple of batch_size.* got 4 and 3"),
        (lambda: envpool_cartpole(2), {"autoreset": "same_step"}, "declares next_step, expected"),
        (lambda: envpool_cartpole(2), {"masked_resets": True}, "is reset as a whole"),
        (lambda: RecordEpisodeStatistics(ale_pong(2)), {}, "expected the engine itself"),
    ],
)
def test_what_does_not_fit_is_refused_by_wrap(make, settings, said):
    engine = make()
    with pytest.raises(PlanError, match=said):
        vecwrap.wrap(engine, **settings)
    engine.close()


def test_engines_of_a_pipeline_return_all_their_rows():
    with pytest.raises(PlanError, match=r"returns all its 4 rows in a step, got batch_size=2"):
        vecwrap.build(
            lambda num_envs: envpool_cartpole(2), n=N, envs_per_engine=N, autoreset="next_step"
        )


def test_check_looks_at_such_an_engine_without_stepping_it():
    engine = envpool_cartpole(2)
    assert vecwrap.check(engine, wrappers=["framestack:2,padding=first"]) == ()
    engine.close()


@pytest.mark.parametrize("make", [envpool_cartpole, ale_pong])
def test_it_can_be_closed_with_rows_in_flight(make):
    env = vecwrap.wrap(make(2), ["monitor"])
    env.reset_async()
    env.recv()
    env.close()
