"""Names that are nearly those of attributes, and the sub-environments themselves where they are in this process."""

import logging
import warnings
from functools import partial

import gymnasium
import numpy as np
import pytest

import vecwrap
from vecwrap.testing import ToyEnv, toy

HERE = ["dummy"]
ELSEWHERE = ["subprocess", "shmem", {"name": "shmem", "workers": 1, "parent_share": True}]
EVERY = pytest.mark.parametrize("backend", HERE + ELSEWHERE, ids=str)
WORDS = 'set_attr: "gravityy" is new: no wrapper and no environment had it. Did you mean "gravity"?'


def build(backend, **settings):
    return vecwrap.build("CartPole-v1", n=3, backend=backend, wrappers=["time_limit:9", "monitor"], **settings)


# -- set_attr ----------------------------------------------------------------------------------------------------------


@EVERY
def test_a_new_name_near_to_another_warns_once(backend):
    with build(backend) as env:
        env.reset(seed=1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            env.set_attr("gravityy", 3.0, indices=[0])
            env.set_attr("gravityy", [3.0, 4.0, 5.0])
            env.set_attr("gravityy", 4.0)
        assert [str(one.message) for one in caught] == [f"{WORDS} It was set on the environment itself."]
        assert caught[0].filename == __file__
        assert env.get_attr("gravityy") == (4.0, 4.0, 4.0)
        assert env.get_attr("gravity") == (9.8, 9.8, 9.8)


@EVERY
@pytest.mark.parametrize("name", ["gravity", "bonus", "resets", "_elapsed_steps", "stage", "render_mode"])
def test_what_is_there_and_what_is_truly_new_is_set_in_silence(backend, name):
    with warnings.catch_warnings(), build(backend) as env:
        warnings.simplefilter("error")
        env.set_attr(name, 3)
        assert env.get_attr(name) == (3, 3, 3)


def test_a_new_attribute_is_the_environments_own():
    with build("dummy") as env:
        env.set_attr("bonus", 3)
        assert all(vars(one.unwrapped)["bonus"] == 3 for one in env.envs)


@pytest.mark.parametrize("backend", ["dummy", "subprocess", "shmem"])
def test_a_restart_sets_it_again_without_a_word(backend, caplog):
    settings = {"on_failure": "restart", "restart_backoff": 0.0}
    with vecwrap.build(toy(end=0), n=2, backend=backend, **settings) as env, caplog.at_level(logging.ERROR):
        env.reset(seed=1)
        with pytest.warns(UserWarning, match='Did you mean "raise_in"'):
            env.set_attr("raise_inn", 7)
        env.set_attr("raise_in", "step", indices=[0])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            env.step([0, 0])
            env.step([0, 0])
            env.set_attr("raise_inn", 8)
        assert env.health().restarts.tolist()[0] > 0
        assert env.get_attr("raise_inn") == (8, 8)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_engines_of_gymnasium(mode):
    engine = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode=mode)
    with vecwrap.wrap(engine, ["monitor"]) as env:
        if mode == "sync":
            with pytest.warns(UserWarning, match='Did you mean "gravity"'):
                env.set_attr("gravityy", 3.0)
        else:
            env.set_attr("gravityy", 3.0)  # what its workers have cannot be seen from here
        env.set_attr("bonus", 3.0)
        assert env.get_attr("gravityy") == (3.0, 3.0)


class Forwarding(gymnasium.Wrapper):
    """Answers to any name."""

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return 5


def test_a_name_that_a_wrapper_answers_to_is_not_new():
    with vecwrap.build(lambda: Forwarding(gymnasium.make("CartPole-v1")), n=1, backend="dummy") as env:
        env.set_attr("gravityy", 3.0)


# -- envs --------------------------------------------------------------------------------------------------------------


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
            with pytest.raises(AttributeError, match=r'use call\("method", ...\), get_attr\("name"\)'):
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
    with vecwrap.wrap(gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point")) as env:
        assert not hasattr(env, "envs")
