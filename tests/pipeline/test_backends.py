"""Which backend a pipeline gets that names none: by a table of what steps cost, and by what its
settings ask for.
"""

import gymnasium
import pytest

import vecwrap
from tests.helpers.multi_agent_games import Turns
from vecwrap.pipeline import backends
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.testing import ToyEnv, assert_same


@pytest.mark.parametrize(
    ("n", "cores", "cost", "name"),
    [
        (1, 16, None, "dummy"),
        (8, 2, None, "shmem"),  # nothing is known of it
        (8, 2, 8.0, "dummy"),
        (25, 2, 8.0, "dummy"),
        (26, 2, 8.0, "shmem"),
        (8, 16, 8.0, "dummy"),
        (32, 16, 8.0, "shmem"),
        (8, 2, 35.0, "shmem"),
        (2, 2, 35.0, "dummy"),
        (64, 1, 8.0, "dummy"),  # there is no other core to hand anything to
    ],
)
def test_a_step_that_costs_less_than_handing_it_over_stays_here(n, cores, cost, name, monkeypatch):
    monkeypatch.setattr(backends, "usable_cores", lambda: cores)
    assert backends.choose(PipelineSpec("CartPole-v1"), n, cost)[0] == name


@pytest.mark.parametrize(
    "settings",
    [
        {"workers": 2},
        {"step_timeout": 9.0},
        {"on_failure": "restart"},
        {"batch_size": 2},
        {"backend": "shmem"},
    ],
)
def test_what_asks_for_workers_gets_them(settings):
    with vecwrap.build("CartPole-v1", n=4, **settings) as env:
        assert env.backend == "shmem"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"env": "CartPole-v1", "n": 1}, "one sub-environment is quickest"),
        ({"env": ToyEnv, "n": 3}, "3 sub-environments share the cores"),
        (
            {"env": "CartPole-v1", "n": 4, "envs_per_engine": 4, "autoreset": "next_step"},
            "one engine is quickest",
        ),
        (
            {"env": "CartPole-v1", "n": 12, "envs_per_engine": 4, "autoreset": "next_step"},
            "3 engines share the cores",
        ),
        ({"env": "pettingzoo:classic/rps-v2", "n": 1}, "one game is quickest"),
        ({"env": Turns, "n": 3}, "3 games share the cores"),
        # As is seen when one is made.
        (
            {"env": lambda: Turns(4), "n": 3},
            "3 games share the cores",
        ),
    ],
)
def test_the_reason_says_of_what_there_are_so_many(settings, said):
    assert f"because {said}" in str(plan(PipelineSpec.from_dict(settings)).with_spaces())


def test_the_stream_and_the_hash_are_those_of_any_backend():
    with (
        vecwrap.build("FrozenLake-v1", n=3) as env,
        vecwrap.build("FrozenLake-v1", n=3, backend="shmem") as other,
    ):
        assert (env.backend, other.backend) == ("dummy", "shmem")
        assert env.pipeline.hash == other.pipeline.hash
        assert_same(other.reset(seed=1), env.reset(seed=1))
        for _ in range(20):
            assert_same(other.step([1, 2, 1]), env.step([1, 2, 1]))


@pytest.mark.parametrize(
    ("name", "cost"),
    [
        ("CartPole-v1", 8.0),
        ("Acrobot-v1", 35.0),
        ("FrozenLake8x8-v1", 8.0),
        ("HalfCheetah-v5", None),
        ("phys2d/CartPole-v1", None),
    ],
)
def test_the_table_goes_by_the_module_of_the_environment(name, cost):
    assert backends.step_cost([gymnasium.spec(name)], 0) == cost
    if cost is not None:
        assert (
            backends.step_cost([gymnasium.spec(name)], 2)
            == cost + 2 * backends.WRAPPER_MICROSECONDS
        )


def test_of_several_the_dearest_counts_and_one_that_is_not_known_is_dear():
    specs = [gymnasium.spec(name) for name in ("CartPole-v1", "Acrobot-v1", "HalfCheetah-v5")]
    assert backends.step_cost(specs[:2], 0) == 35.0
    assert backends.step_cost(specs, 0) is None
    assert backends.step_cost([None], 0) is None
    with vecwrap.build(ToyEnv, n=2) as env:
        assert env.backend == "shmem"
