"""Where the time of a step goes and which rows are slow, by a clock that only the work that is done moves."""

import gc
import weakref

import numpy as np
import pytest

import vecwrap
from tests.backs import DummyBackend, ShmemBackend
from tests.tools.test_timing import CLOCK, Inner, Outer, Outermost, Works, attributes
from vecwrap.live.times import BLOCKS, LEAST_PAUSE, STEPS, StepTimes
from vecwrap.sources.sub_env import SubEnvFactory
from vecwrap.tools.timing import Stopwatch


class Lazy(Works):
    """A step costs 900 more."""

    def step(self, action):
        CLOCK.now += 900
        return super().step(action)


class Onlooker:
    """Only times."""

    def __init__(self, env):
        self.times = StepTimes(env, clock=lambda: 1000 * CLOCK.now)

    def before(self, actions, env_ids):
        if actions is not None:
            self.times.step(env_ids)

    def after(self, step):
        pass


def look(env):
    env.core.books.onlooker = onlooker = Onlooker(env)
    env.core.books.in_line = False
    return onlooker.times


def play(env, steps, cost=100):
    for _ in range(steps):
        env.step(np.zeros(env.num_envs, np.int64))
        CLOCK.now += cost


def microseconds(times):
    return {name: value for name, _, value in times.shares()}


def test_the_parts_are_what_a_step_costs():
    env = Outermost(Outer(DummyBackend([SubEnvFactory(Works, (Inner,))] * 3)))
    env.reset()
    times = look(env)
    assert times.shares() == []
    play(env, STEPS + 2)  # one to begin with, one that ends it
    a_row = 11 + 3 + (13 + 2) / 4  # it ends, and begins again, in every fourth step
    expected = {"sub-environments": 3 * a_row, "Outer": 5 + 7, "Outermost": 100, "your program": 100}
    assert microseconds(times) == expected
    play(env, 20 * BLOCKS, cost=LEAST_PAUSE // 40_000)
    assert {**microseconds(times), "your program": 100} == expected


def test_only_a_part_of_the_steps_is_timed_and_afterwards_none():
    env = Outer(DummyBackend([Works] * 3))
    env.reset()
    before = attributes(env)
    times = look(env)
    timed = 0
    for _ in range(1000):
        play(env, 1, cost=10_000)
        timed += bool(env.core.books.stopwatches)
    assert 0 < timed < 250
    while not env.core.books.stopwatches:
        play(env, 1, cost=10_000)
    times.stop()
    assert attributes(env) == before
    assert "step" not in vars(env.core.runner.local.sources[0])
    assert env.core.books.stopwatches == []


def test_the_slowest_rows_come_first():
    env = DummyBackend([Works, Lazy, Works, Works])
    env.reset()
    times = look(env)
    play(env, STEPS + 2)
    mean = (11 + 13 / 4) / 1000
    (slow, of_it), *rest = times.slowest()
    assert (slow, [rows for rows, _ in rest]) == ("#1", ["#0", "#2–3"])
    assert [of_it, rest[0][1], rest[1][1]] == pytest.approx([mean + 0.9, mean, mean], abs=1e-4)


def test_rows_that_are_alike_are_not_ranked():
    env = DummyBackend([Works] * 4)
    env.reset()
    times = look(env)
    play(env, STEPS + 2)
    assert times.slowest() == []


def test_of_workers_it_is_the_time_until_they_answer():
    with ShmemBackend([Works] * 4, workers=2, parent_share=False) as env:
        env.reset()
        env.core.books.onlooker = onlooker = Onlooker(env)
        onlooker.times = times = StepTimes(env)
        env.core.books.in_line = False
        play(env, STEPS + 2)
        assert sorted(name for name, _ in times.slowest()) == ["#0–1", "#2–3"]
        assert microseconds(times)["sub-environments"] > 0
        times.stop()
        assert not {"arrived", "send"} & vars(env.core.books).keys()


def careful(observations, *, action_masks):
    CLOCK.now += 7
    return action_masks.argmax(1)


def test_opponents_have_their_time_though_they_move_in_the_middle_of_a_step():
    pytest.importorskip("pettingzoo")
    pool = vecwrap.OpponentPool(None, scripted=[f"{__name__}:careful"])
    chain = ["extract_obs:observation", {"opponents": {"pool": pool}}]
    with vecwrap.build("pettingzoo:classic/tictactoe-v3", n=3, backend="dummy", wrappers=chain) as env:
        env.reset(seed=1)
        times = look(env)
        for _ in range(200):
            env.step(env.action_masks().argmax(1))
            CLOCK.now += 10_000
        parts, steps = microseconds(times), sum(block[1] for block in times._blocks)
        assert steps >= STEPS
        assert parts["opponents"] > 0
        assert round(parts["opponents"] * steps) % 7 == 0
        assert round(parts["your program"] * steps) % 10_000 == 0


def test_another_stopwatch_may_be_put_on_meanwhile():
    env = Outer(DummyBackend([Works] * 3))
    env.reset()
    before = attributes(env)
    times = look(env)
    with Stopwatch(env, clock=lambda: CLOCK.now) as watch:
        play(env, 4 * STEPS, cost=10_000)
    play(env, STEPS, cost=10_000)
    times.stop()
    assert attributes(env) == before
    assert {part.name: part.nanoseconds for part in watch.parts}["Outer"] == 4 * STEPS * 12


def test_an_environment_that_nobody_holds_any_more_is_closed_at_once():
    env = Outer(DummyBackend([Works] * 3))
    env.reset()
    look(env)
    play(env, 3)
    books, gone = env.core.books, weakref.ref(env)
    assert books.stopwatches
    gc.disable()
    try:
        del env
        assert gone() is None
        assert books.closed
    finally:
        gc.enable()
