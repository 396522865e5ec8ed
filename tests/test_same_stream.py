"""Law 1 on real environments: the three backends, any number of workers, every mode, wrappers
included, bit for bit.
"""

import threading
from functools import partial

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit

import vecwrap
from tests.helpers.backends import (
    DummyBackend,
    OnDummy,
    ShmemBackend,
    SubprocessBackend,
    ThreadsBackend,
)
from vecwrap.rows.step_result import Autoreset
from vecwrap.sources.factories import MakeEnvironment
from vecwrap.sources.source_factories import SubEnvFactory
from vecwrap.testing import assert_same, toy
from vecwrap.testing.drive import Lockstep, drive, drive_rows
from vecwrap.wrappers.atari import Atari
from vecwrap.wrappers.framestack import FrameStack

gymnasium.register_envs(ale_py)

OTHERS = [
    (SubprocessBackend, 1),
    (SubprocessBackend, 2),
    (SubprocessBackend, 3),
    (ShmemBackend, 1),
    (ShmemBackend, 2),
    (ShmemBackend, 3),
    (ThreadsBackend, 1),
    (ThreadsBackend, 3),
]
ENOUGH = 50  # terminations, and truncations, that a comparison must have met to say something


def cartpole(limit):
    return SubEnvFactory(
        partial(gymnasium.make, "CartPole-v1"), (partial(TimeLimit, max_episode_steps=limit),)
    )


def atari(game, limit):
    make = MakeEnvironment(gymnasium.spec(f"{game}NoFrameskip-v4"), {})
    return SubEnvFactory(make, (Atari, partial(TimeLimit, max_episode_steps=limit)))


def run(factory, n, steps, mode, others, *, stack=None, seed=0, unrest=0.2):
    """Drive dummy and the others in lockstep; give how many ends of each kind were met."""
    envs = []
    try:
        for backend, workers in [(DummyBackend, None), *others]:
            options = {} if workers is None else {"workers": workers}
            env = backend([factory] * n, autoreset=mode, **options)
            envs.append(env)
            if stack:
                envs[-1] = FrameStack(env, stack)
        return drive(Lockstep(*envs), steps, seed, unrest=unrest)
    finally:
        for env in envs:
            env.close()


FEW = [OTHERS[1], OTHERS[5], OTHERS[7]]


@pytest.mark.parametrize(
    ("mode", "others"),
    [
        (Autoreset.SAME_STEP, OTHERS),
        *((mode, FEW) for mode in Autoreset if mode is not Autoreset.SAME_STEP),
        *(
            pytest.param(mode, OTHERS, marks=pytest.mark.full)
            for mode in Autoreset
            if mode is not Autoreset.SAME_STEP
        ),
    ],
)
def test_cartpole_is_the_same_on_every_backend_with_any_number_of_workers(mode, others):
    met = run(cartpole(limit=20), 8, 320, mode, others)
    assert min(met.values()) >= ENOUGH, met


IN_SUITE = (Autoreset.SAME_STEP, Autoreset.DISABLED)
TWO_MODES = [
    pytest.param(mode, marks=() if mode in IN_SUITE else pytest.mark.full) for mode in Autoreset
]


@pytest.mark.parametrize("mode", TWO_MODES)
def test_toys_with_nested_spaces_are_the_same_with_a_stack_around(mode):
    others = [(SubprocessBackend, 2), (ShmemBackend, 3)]  # CartPole meets all of them
    met = run(
        toy(observations="box_uint8", actions="nested", end=0.16), 5, 140, mode, others, stack=3
    )
    assert min(met.values()) >= ENOUGH, met


@pytest.mark.parametrize("mode", TWO_MODES)
def test_what_one_sub_environment_does_is_the_same_under_send_and_recv(mode):
    """By whole steps on dummy, and in whatever order rows come home from three workers."""
    with DummyBackend([cartpole(limit=18)] * 5, autoreset=mode) as env:
        expected = drive_rows(env, 150, seed=1)
    for backend in (SubprocessBackend, ShmemBackend):
        with backend([cartpole(limit=18)] * 5, autoreset=mode, batch_size=2, workers=3) as env:
            for i, pair in enumerate(zip(expected, drive_rows(env, 150, seed=1), strict=True)):
                assert_same(*pair, f"sub-environment {i}")


@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
def test_breakout_with_atari_and_framestack_is_the_same():
    """Lives are lost, games go on, a time limit truncates: in one mode here, in all of them in the
    long runs.
    """
    met = run(
        atari("Breakout", limit=30),
        4,
        150,
        Autoreset.SAME_STEP,
        [(SubprocessBackend, 2), (ShmemBackend, 2)],
        stack=4,
    )
    assert met["truncations"] >= 5, met
    assert met["terminations"] >= 5, met


@pytest.mark.soak
@pytest.mark.parametrize("others", [OTHERS[:3], OTHERS[3:]], ids=["subprocess", "shmem"])
@pytest.mark.parametrize("mode", Autoreset)
@pytest.mark.parametrize("game", ["Pong", "Breakout"])
@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
def test_pong_and_breakout_are_the_same_for_five_thousand_steps(game, mode, others):
    """With a limit of 400 agent steps a random game of Pong is always cut short; a life in Breakout
    never is.
    """
    met = run(atari(game, limit=400), 8, 5000, mode, others, stack=4, unrest=0.02)
    assert met["truncations" if game == "Pong" else "terminations"] >= ENOUGH, met


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("mode", Autoreset)
def test_cartpole_and_toys_are_the_same_with_many_seeds(mode, seed):
    for factory in (cartpole(limit=20), toy(observations="mixed", actions="mixed")):
        met = run(factory, 8, 1000, mode, OTHERS, seed=seed)
        assert min(met.values()) >= ENOUGH, met


def test_the_comparison_is_of_what_it_says():
    """Observations, rewards, flags, infos, final observations and final infos: a difference in any
    one is found.
    """
    for part in range(6):

        class Differs(OnDummy):
            def __init__(self, factories):
                super().__init__(factories)
                results = self.call_state.results
                results.five_tuple = partial(self.differ, results.five_tuple)

            def differ(self, five_tuple, step):
                result = five_tuple(step)
                observations, rewards, terminations, truncations, infos = result
                if "final_obs" not in infos:
                    return result
                i = int(np.flatnonzero(infos["_final_obs"])[0])
                final = infos["final_obs"].copy()
                final[i] = np.nextafter(final[i], np.float32(9))
                changed = [
                    (
                        np.nextafter(observations, np.float32(9)),
                        rewards,
                        terminations,
                        truncations,
                        infos,
                    ),
                    (observations, np.nextafter(rewards, 9), terminations, truncations, infos),
                    (observations, rewards, truncations, terminations, infos),
                    (
                        observations,
                        rewards,
                        terminations,
                        truncations,
                        {**infos, "lives": infos["lives"] + 1},
                    ),
                    (
                        observations,
                        rewards,
                        terminations,
                        truncations,
                        {**infos, "final_obs": final},
                    ),
                    (observations, rewards, terminations, truncations, {**infos, "final_info": {}}),
                ]
                return changed[part]  # noqa: B023

        with (
            DummyBackend([toy()] * 2) as one,
            Differs([toy()] * 2) as other,
            pytest.raises(AssertionError),
        ):
            drive(Lockstep(one, other), 60)


class Levels(gymnasium.Env):
    """Adds to the list of levels that it was made with, and shows how many there are."""

    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, levels, lock=None):
        self.levels, self.lock = levels, lock

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.levels.append(len(self.levels))
        return np.array([float(len(self.levels))]), {}

    def step(self, action):
        return np.array([float(len(self.levels))]), 0.0, False, False, {}


@pytest.mark.parametrize(
    "backend", ["dummy", {"name": "subprocess", "workers": 2}, {"name": "shmem", "workers": 2}]
)
def test_what_a_callable_is_given_is_each_sub_environments_own(backend):
    given = [7]
    with vecwrap.build(Levels, n=4, backend=backend, env_kwargs={"levels": given}) as env:
        assert env.reset(seed=1)[0].tolist() == [[2.0]] * 4
        assert env.reset()[0].tolist() == [[3.0]] * 4
    assert given == [7]


def test_what_cannot_be_copied_or_was_bound_by_the_user_is_given_as_it_is():
    lock, mine = threading.Lock(), [7]
    with vecwrap.build(
        partial(Levels, mine), n=2, backend="dummy", env_kwargs={"lock": lock}
    ) as env:
        assert env.get_attr("lock") == (lock, lock)
        env.reset()
    assert len(mine) == 3


class Goal(gymnasium.Env):
    """Says something of an episode's end in the first two alone."""

    observation_space = gymnasium.spaces.Box(0, 100, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    episode = -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.episode = 0, self.episode + 1
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        ends, succeeds = self.steps == 2, self.episode < 2
        info = {"is_success": True, "score": float(self.episode)} if ends and succeeds else {}
        return (
            np.full(2, self.steps, np.float32),
            0.0,
            ends and succeeds,
            ends and not succeeds,
            info,
        )


@pytest.mark.parametrize(
    ("backend", "settings"),
    [
        ("subprocess", {"workers": 2}),
        ("shmem", {"workers": 2}),
        ("shmem", {"workers": 1}),
        ("shmem", {"parent_share": True}),
    ],
)
def test_an_end_that_says_nothing_is_not_told_as_an_earlier_one(backend, settings):
    with (
        vecwrap.build(Goal, n=2, backend=backend, **settings) as env,
        vecwrap.build(Goal, n=2, backend="dummy") as twin,
    ):
        assert_same(twin.reset(seed=1), env.reset(seed=1))
        for k in range(10):
            expected, got = twin.step([0, 0]), env.step([0, 0])
            assert_same(expected, got, f"step {k}")
        assert got[4]["final_info"] == {}
