"""Attributes of sub-environments, and these themselves where they are in this process."""

import warnings
from functools import partial

import gymnasium
import numpy as np
import pytest

import vecwrap
from vecwrap.testing import ToyEnv

HERE = ["dummy"]
ELSEWHERE = ["subprocess", "shmem", {"name": "shmem", "workers": 1, "parent_share": True}]
EVERY = pytest.mark.parametrize("backend", HERE + ELSEWHERE, ids=str)


def build(backend, **settings):
    return vecwrap.build(
        "CartPole-v1", n=3, backend=backend, wrappers=["time_limit:9", "monitor"], **settings
    )


# -- set_attr --------------------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize(
    "name", ["gravity", "bonus", "resets", "_elapsed_steps", "stage", "render_mode"]
)
def test_what_is_there_and_what_is_new_is_set(backend, name):
    with warnings.catch_warnings(), build(backend) as env:
        warnings.simplefilter("error")
        env.set_attr(name, 3)
        assert env.get_attr(name) == (3, 3, 3)


def test_a_new_attribute_is_the_environments_own():
    with build("dummy") as env:
        env.set_attr("bonus", 3)
        assert all(vars(one.unwrapped)["bonus"] == 3 for one in env.envs)


# -- envs ------------------------------------------------------------------------------------------


def test_the_sub_environments_are_there_in_this_process():
    with build("dummy") as env:
        assert env.envs == env.unwrapped.envs == env.env.envs
        assert [type(one.unwrapped).__name__ for one in env.envs] == ["CartPoleEnv"] * 3
        env.reset(seed=1)
        np.testing.assert_array_equal(env.get_attr("state")[1], env.envs[1].unwrapped.state)


@pytest.mark.parametrize("backend", ELSEWHERE, ids=str)
def test_elsewhere_what_to_use_instead_is_said(backend):
    with build(backend) as env:
        assert not hasattr(env, "envs")
        for one in (env, env.unwrapped):
            with pytest.raises(
                AttributeError, match=r'use call\("method", ...\), get_attr\("name"\)'
            ):
                _ = one.envs


def test_one_that_was_recreated_is_the_new_one():
    with vecwrap.build(ToyEnv, n=2, backend="dummy", on_failure="restart") as env:
        env.reset(seed=1)
        old = env.envs
        env.set_attr("raise_in", "step", indices=[1])
        env.step([0, 0])
        assert (env.envs[0] is old[0], env.envs[1] is old[1]) == (True, False)


def test_engines_show_theirs_if_they_have_any():
    make = partial(gymnasium.make, "CartPole-v1")
    with vecwrap.wrap(gymnasium.vector.SyncVectorEnv([make] * 2), ["monitor"]) as env:
        assert env.envs == env.unwrapped.runner.engines()[0].envs
    with vecwrap.wrap(
        gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point")
    ) as env:
        assert not hasattr(env, "envs")
