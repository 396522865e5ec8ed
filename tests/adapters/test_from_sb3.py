"""``from_sb3``: a VecEnv of Stable-Baselines3's under our wrappers, beside the same environments
under our backends.
"""

from contextlib import nullcontext
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers as gw
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecEnv,
    VecEnvWrapper,
    VecFrameStack,
    VecMonitor,
)

import vecwrap
from tests.adapters.test_to_sb3 import assert_same, play
from tests.adapters.worlds import DICT, factories
from tests.helpers.stream_envs import assert_same as assert_same_bits
from tests.helpers.stream_envs import info_row
from vecwrap.errors import ArgumentError, PlanError, SubEnvError


def rows(env, steps, seed=3):
    """All that an environment of ours gives in a run, with one dict of infos for each row."""
    observations, infos = env.reset(seed=seed, options={"level": 1})
    kept = [(observations, [info_row(infos, i) for i in range(env.num_envs)])]
    env.action_space.seed(1)
    for _ in range(steps):
        *row, infos = env.step(env.action_space.sample())
        infos.pop("env_id", None)
        kept.append((*row, [info_row(infos, i) for i in range(env.num_envs)]))
    return kept


def of_sb3(makers, kind=DummyVecEnv):
    return vecwrap.from_sb3(kind(makers))


def without_both(kept):
    """What SB3 cannot tell: that an episode was truncated as well as terminated."""
    for row in kept:
        if len(row) == 5:
            row[3][:] = row[3] & ~row[2]
    return kept


@pytest.mark.parametrize(
    ("kind", "n"), [(DummyVecEnv, 3), pytest.param(SubprocVecEnv, 1, marks=pytest.mark.full)]
)
def test_it_gives_what_our_backends_give(kind, n):
    makers = factories(n)
    with vecwrap.build(makers, backend="dummy") as env:
        expected = without_both(rows(env, 90))
    with of_sb3(makers, kind) as env:
        assert repr(env) == f"<VecEnv {kind.__name__}, n={n}, dummy, same_step>"
        got = rows(env, 90)
    for row, other in zip(got, expected, strict=True):
        for one, another in zip(row[:-1], other[:-1], strict=True):
            np.testing.assert_array_equal(one, another)
        for info, another in zip(row[-1], other[-1], strict=True):
            assert info.keys() == another.keys()
            for key in info:
                assert_same_bits(info[key], another[key])
    flags = np.array([[row[2], row[3]] for row in got[1:]])
    assert flags[:, 0].sum() > 5
    assert flags[:, 1].sum() > 5


WRAPPERS = [
    ["framestack:3", "monitor"],
    ["normalize", "framestack:2"],
    [{"normalize_obs": {"keys": ["speed"]}}, {"framestack": {"k": 2, "keys": ["camera"]}}],
    ["terminal_obs", "time_aware:limit=5,flatten=false"],
]


@pytest.mark.parametrize("wrappers", WRAPPERS, ids=[str(i) for i in range(len(WRAPPERS))])
def test_our_wrappers_around_it_do_what_they_do_around_our_backends(wrappers):
    makers = factories(observation_space=DICT if "normalize_obs" in str(wrappers) else None)
    kept = []
    for env in (
        vecwrap.build(makers, wrappers=wrappers, backend="dummy"),
        vecwrap.wrap(of_sb3(makers), wrappers),
    ):
        kept.append(rows(env, 30))
        env.close()
    for row, other in zip(kept[1], without_both(kept[0]), strict=True):
        for one, another in zip(row[:-1], other[:-1], strict=True):
            for a, b in zip(leaves(one), leaves(another), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-6)  # SB3's rewards are float32
        for info, another in zip(row[-1], other[-1], strict=True):
            assert info.keys() == another.keys()


def leaves(batch):
    return [batch[key] for key in sorted(batch)] if isinstance(batch, dict) else [batch]


def test_there_and_back_is_the_same():
    expected = play(DummyVecEnv(factories(observation_space=DICT)), 40)
    venv = vecwrap.to_sb3(of_sb3(factories(observation_space=DICT)))
    assert_same(play(venv, 40), expected)
    venv.close()


def test_sb3s_monitor_is_seen_there_and_told_in_final_info():
    env = vecwrap.from_sb3(make_vec_env("CartPole-v1", n_envs=2, seed=1))
    assert env.spec.id == "CartPole-v1"
    assert env.render_mode == "rgb_array"
    env.reset()
    while "final_info" not in (infos := env.step(np.ones(2, int))[4]):
        pass
    ended = infos["_final_obs"]
    assert (infos["final_info"]["episode"]["l"][ended] > 5).all()
    assert "TimeLimit.truncated" not in infos["final_info"]
    venv = vecwrap.to_sb3(env)
    assert venv.env_is_wrapped(Monitor) == [True, True]
    assert venv.env_is_wrapped(gw.TimeLimit, 1) == [True]
    assert venv.env_is_wrapped(gw.ClipReward) == [False, False]
    assert env.render()[0].shape == (400, 600, 3)
    assert len(env.get_images([1])) == 1
    env.close()


def test_a_class_within_a_function_is_found_around_sb3s_environments():
    class Local(gymnasium.Wrapper):
        pass

    def make():
        return Local(gymnasium.make("CartPole-v1"))

    venv = vecwrap.to_sb3(
        vecwrap.from_sb3(DummyVecEnv([make, lambda: gymnasium.make("CartPole-v1")]))
    )
    assert venv.env_is_wrapped(Local) == [True, False]
    assert venv.env_is_wrapped(Local, [1, 0]) == [False, True]
    assert venv.env_is_wrapped(Local, []) == []
    venv.close()


def test_attributes_and_methods_reach_the_sub_environments():
    env = of_sb3(factories())
    env.reset(seed=0)
    env.set_attr("level", [4, 5, 6])
    assert env.get_attr("level") == (4, 5, 6)
    env.set_attr("level", 9, indices=[1])
    assert env.call("add", 1, indices=[2, 1]) == (7, 10)
    assert env.get_attr("index", indices=2) == (2,)
    env.close()


def test_what_a_sub_environment_raises_is_told_and_leaves_it_usable():
    env = of_sb3(factories())
    env.reset(seed=4)
    for ask, index, seed in ((env.call, 1, 5), (env.get_attr, 2, 6)):
        with pytest.raises(SubEnvError, match="raised AttributeError in") as caught:
            ask("nothing", indices=[index])
        assert (caught.value.index, caught.value.seed) == (index, seed)
    with pytest.raises(SubEnvError, match=r"DummyVecEnv does not report which of its 3 rows"):
        env.call("nothing")
    env.step(np.zeros(3, int))
    env.close()


def test_live_buffers_of_sb3s_wrappers_are_copied():
    env = vecwrap.from_sb3(VecFrameStack(DummyVecEnv(factories()), 3))
    first, _ = env.reset(seed=0)
    kept = first.copy()
    env.step(np.zeros(3, int))
    env.reset(seed=0)  # VecFrameStack zeroes what it gave
    np.testing.assert_array_equal(first, kept)
    env.close()


def test_seeds_and_masks_that_sb3_has_not_are_refused():
    env = of_sb3(factories())
    with pytest.raises(ArgumentError, match=r"expected one seed.*got \[3, 9, 1\]"):
        env.reset(seed=[3, 9, 1])
    env.reset(seed=[3, 4, 5])
    with pytest.raises(
        ArgumentError,
        match="expected all 3 rows .*; a .*VecEnv resets all .*; the backends of vecwrap.build",
    ):
        env.reset(options={"reset_mask": np.array([True, False, False])})
    env.close()


class Forgetful(VecEnvWrapper):
    def reset(self):
        return self.venv.reset()

    def step_wait(self):
        observations, rewards, dones, infos = self.venv.step_wait()
        return observations, rewards, dones, [{"only": 1} for _ in infos]


def test_a_lost_terminal_observation_is_an_error_and_no_guess():
    env = vecwrap.from_sb3(Forgetful(DummyVecEnv(factories(1))))
    env.reset(seed=0)
    with pytest.raises(
        SubEnvError, match="sub-environment 0 is done, but its info has no terminal_observation"
    ):
        for _ in range(10):
            env.step(np.zeros(1, int))
    env.close()


def test_what_is_no_vec_env_is_refused():
    engine = gymnasium.vector.SyncVectorEnv([partial(gymnasium.make, "CartPole-v1")])
    with pytest.raises(
        ArgumentError, match="expected a stable_baselines3.common.vec_env.VecEnv, got SyncVectorEnv"
    ):
        vecwrap.from_sb3(engine)
    engine.close()


@pytest.mark.parametrize("settings", [{}, {"autoreset": "same_step"}])
def test_wrap_leads_here(settings):
    with pytest.raises(
        PlanError,
        match=(
            r"got a Stable-Baselines3 DummyVecEnv.*vecwrap.wrap\(vecwrap.from_sb3\(venv\), "
            r"\[...\]\)"
        ),
    ):
        vecwrap.wrap(DummyVecEnv(factories(1)), ["monitor"], **settings)


def test_wrap_takes_a_seed_for_it():
    first = [
        vecwrap.wrap(of_sb3(factories()), ["monitor"], seed=5).reset()[1]["seed"].tolist()
        for _ in range(2)
    ]
    assert first == [[5, 6, 7]] * 2


class Bare(VecEnv):
    """A vector of somebody's own that does not call the base class's ``__init__``, and has only
    what is abstract.
    """

    num_envs, observation_space, action_space = (
        2,
        gymnasium.spaces.Box(0, 9, (1,)),
        gymnasium.spaces.Discrete(2),
    )

    def __init__(self):
        self.time = 0

    def reset(self):
        return np.zeros((2, 1), np.float32)

    def step_async(self, actions):
        self.time += 1

    def step_wait(self):
        over = self.time % 3 == 0
        info = (
            {"terminal_observation": np.full(1, 3, np.float32), "TimeLimit.truncated": True}
            if over
            else {}
        )
        observations = np.full((2, 1), self.time % 3, np.float32)
        return observations, np.ones(2, np.float32), np.full(2, over), [dict(info), dict(info)]

    def get_attr(self, attr_name, indices=None):
        return [None] * 2

    set_attr = env_method = env_is_wrapped = get_attr

    def close(self):
        pass


@pytest.mark.parametrize(
    "around",
    [None, VecMonitor, partial(VecFrameStack, n_stack=2)],
    ids=["bare", "monitor", "stack"],
)
def test_a_vector_that_lacks_what_the_base_class_sets(around):
    venv = Bare() if around is None else around(Bare())
    is_told = (
        pytest.warns(UserWarning, match="games are counted twice")
        if around is VecMonitor
        else nullcontext()
    )
    with vecwrap.wrap(vecwrap.from_sb3(venv), ["monitor"]) as env:
        env.reset()
        with is_told:
            for _ in range(3):
                *_, truncations, infos = env.step([0, 1])
        assert truncations.all()
        assert infos["final_obs"][0][-1] == 3
        assert infos["episode"]["r"].tolist() == [3, 3]
        env.reset(seed=1, options={"level": 1})


def test_a_vector_without_spaces_is_refused():
    with pytest.raises(
        PlanError, match=r"VecEnv, got Blind, which has no single_observation_space; set what is"
    ):
        vecwrap.from_sb3(type("Blind", (Bare,), {"observation_space": None})())


class Frugal(VecEnv):
    """Its ``step`` returns the infos that it is given."""

    def __init__(self, infos, done=False):
        self.given, self.done = infos, done
        super().__init__(2, gymnasium.spaces.Box(0, 1, (1,)), gymnasium.spaces.Discrete(2))
        del self.reset_infos  # as a class of somebody's own that does not call SB3's

    def reset(self):
        return np.zeros((2, 1), np.float32)

    def step_wait(self):
        return (
            np.zeros((2, 1), np.float32),
            np.zeros(2, np.float32),
            np.full(2, self.done),
            self.given,
        )

    def step_async(self, actions):
        pass

    close = lambda self: None  # noqa: E731
    get_attr = lambda self, name, indices=None: [None, None]  # noqa: E731
    set_attr = env_method = lambda self, *args, **keywords: None
    env_is_wrapped = lambda self, kind, indices=None: [False, False]  # noqa: E731


@pytest.mark.parametrize("infos", [[], (), None, ({}, {}), [None, None], (None, {})])
def test_a_step_without_infos(infos):
    with vecwrap.wrap(vecwrap.from_sb3(Frugal(infos)), ["monitor"]) as env:
        assert env.reset()[1] == {}
        *_, terminations, truncations, got = env.step([0, 1])
        assert got == {}
        assert not (terminations | truncations).any()


@pytest.mark.parametrize("kind", [tuple, np.array])
def test_some_rows_without_infos_and_infos_in_what_is_no_list(kind):
    with vecwrap.from_sb3(Frugal(kind([{"a": 1}, None]))) as env:
        env.reset()
        infos = env.step([0, 1])[4]
        assert infos["a"].tolist() == [1, 0]
        assert infos["_a"].tolist() == [True, False]


@pytest.mark.parametrize("infos", [[{}], [{}, {}, {}], {"a": 1}, [{}, 3]])
def test_infos_that_are_not_one_for_each_row_are_refused(infos):
    with vecwrap.from_sb3(Frugal(infos)) as env:
        env.reset()
        with pytest.raises(
            SubEnvError, match="Frugal: expected infos as .* a list of 2 dicts, got"
        ):
            env.step([0, 1])


@pytest.mark.parametrize("infos", [[], [None, None], [{}, {}]])
def test_an_end_without_infos_has_lost_its_observation(infos):
    with vecwrap.from_sb3(Frugal(infos, done=True)) as env:
        env.reset()
        with pytest.raises(SubEnvError, match="no terminal_observation"):
            env.step([0, 1])
