"""What a step takes, by a clock that only the work that is done moves."""

import numpy as np
import pytest

import vecwrap
from tests.helpers.backends import DummyBackend
from tests.tools.test_timing import CLOCK, Inner, Outer, Outermost, Works
from vecwrap.live.shares import RECENT, StepShares
from vecwrap.sources.source_factories import SubEnvFactory


class Observer(StepShares):
    """Only times."""

    def __init__(self):
        super().__init__(lambda: CLOCK.now / 1e6)

    def on_send(self, actions, env_ids):
        super().on_send()

    def on_receive(self, step):
        super().on_receive()


def observed(env):
    env.reset()
    observer = Observer()
    env.core.observe(observer)
    return observer


def play(env, steps, cost=100):
    for _ in range(steps):
        env.step(np.zeros(env.num_envs, np.int64))
        CLOCK.now += cost


def microseconds(observer):
    return {name: value for name, _, value in observer.shares()}


def test_the_parts_are_what_a_step_costs():
    env = Outermost(Outer(DummyBackend([SubEnvFactory(Works, (Inner,))] * 3)))
    observer = observed(env)
    assert observer.shares() == []
    play(env, 4 * RECENT)
    a_row = 11 + 3 + (13 + 2) / 4  # it ends, and begins again, in every fourth step
    assert microseconds(observer) == pytest.approx(
        {"sub-environments": 3 * a_row, "wrappers": 5 + 7 + 100, "your program": 100}, rel=0.01
    )


def test_older_steps_count_for_less():
    env = Outer(DummyBackend([Works] * 3))
    observer = observed(env)
    play(env, 1, cost=10**9)
    play(env, 30 * RECENT)
    assert microseconds(observer)["your program"] < 200


def test_what_passes_while_nobody_looks_is_nobodys():
    env = Outer(DummyBackend([Works] * 3))
    observer = observed(env)
    play(env, 10)
    env.core.ignore(observer)
    observer.stop()
    CLOCK.now += 10**9
    env.core.observe(observer)
    play(env, 10)
    assert microseconds(observer)["your program"] <= 100


def test_sending_and_receiving_are_told_apart_from_what_is_done_in_between():
    env = Outer(DummyBackend([Works] * 4, batch_size=2))
    observer = observed(env)
    env.send([0, 0, 0, 0])
    for _ in range(100):
        ids = env.recv()[4]["env_id"]
        CLOCK.now += 500
        env.send([0, 0], env_ids=ids)
    assert microseconds(observer)["your program"] == pytest.approx(500, rel=0.02)


def test_steps_of_opponents_within_a_step_are_not_the_programs():
    pytest.importorskip("pettingzoo")
    wrappers = [{"opponents": {"pool": ["random"], "seat": "player_2"}}]
    with vecwrap.build(
        "pettingzoo:classic/tictactoe-v3", n=2, backend="dummy", wrappers=wrappers, seed=1
    ) as env:
        observer = observed(env)
        for _ in range(10):
            env.step(env.action_masks().argmax(axis=1))
            CLOCK.now += 100
        assert microseconds(observer) == {"sub-environments": 0, "wrappers": 0, "your program": 90}
