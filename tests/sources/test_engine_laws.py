"""The kit's laws over engines, in this process and in workers; and wrappers around an engine,
beside naive loops over the same bare engine.
"""

from functools import partial

import envpool
import gymnasium
import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import SyncVectorEnv

import vecwrap
from tests.helpers.reference_normalizer import mean_and_var
from vecwrap.backends.dummy import Dummy
from vecwrap.backends.shmem import Shmem
from vecwrap.backends.subprocess import Subprocess
from vecwrap.rows.step_result import Autoreset
from vecwrap.testing import WRAPPER_LAWS, Subject, on_engines
from vecwrap.testing.drive import SideBySide, drive, on_dummy
from vecwrap.testing.wrappers import (
    arrays_are_not_modified,
    observations_are_in_the_space,
    results_never_change,
    resumes_after_load,
    wrapped_env_is_unchanged,
)

MODES = ("same_step", "next_step", "disabled")
WRAPPERS = ("framestack:3", "monitor", "normalize", "terminal_obs")
pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")


class Drawn(gymnasium.Env):
    """Draws observations, rewards and the length of each episode."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.length = 0, int(self.np_random.integers(2, 7))
        return self.seen(), {"length": self.length}

    def seen(self):
        return np.array([self.np_random.random(), self.steps], np.float32)

    def step(self, action):
        self.steps += 1
        reward = float(action) + self.np_random.random()
        return self.seen(), reward, self.steps >= self.length, False, {"steps": self.steps}


def around(*wrappers):
    return partial(vecwrap.wrap, wrappers=list(wrappers))


def subject(wrappers, backend):
    return Subject(
        around(wrappers),
        Drawn,
        40,
        independent=wrappers != "normalize",
        backend=backend,
        modes=tuple(map(Autoreset, MODES)),
    )


@pytest.mark.parametrize("wrappers", WRAPPERS)
@pytest.mark.parametrize("law", WRAPPER_LAWS, ids=lambda law: law.__name__)
def test_engines_of_one_row_keep_every_law(law, wrappers):
    law(subject(wrappers, on_engines(Dummy, rows=1)))


@pytest.mark.parametrize("wrappers", WRAPPERS)
@pytest.mark.parametrize(
    "law",
    [
        arrays_are_not_modified,
        observations_are_in_the_space,
        results_never_change,
        resumes_after_load,
        wrapped_env_is_unchanged,
    ],
    ids=lambda law: law.__name__,
)
def test_an_engine_of_all_rows_keeps_the_laws_that_send_all(law, wrappers):
    law(subject(wrappers, on_engines(Dummy)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "backend",
    [
        on_engines(Dummy),
        on_engines(Dummy, rows=2),
        on_engines(Shmem, rows=2, workers=2),
        pytest.param(on_engines(Subprocess, rows=2, workers=2), marks=pytest.mark.full),
    ],
    ids=["all rows", "two engines", "two in workers", "two over pipes"],
)
def test_over_engines_a_chain_gives_what_it_gives_over_sub_environments(backend, mode):
    """Steps and masked resets; every result is compared, below and above the wrapper."""
    factories = [Drawn] * 4
    both = SideBySide(
        around(*WRAPPERS),
        on_dummy(factories, autoreset=mode),
        backend(factories, autoreset=mode),
        ignore=("episode.t",),
    )
    for env in both.envs:
        env.__enter__()
    met = drive(both, 40, seed=12, unrest=5.0, options=False)
    for env in both.envs:
        env.close()
    assert met["terminations"] > 10


def cartpole():
    return gymnasium.make("CartPole-v1", max_episode_steps=20)


def gymnasium_sync():
    return SyncVectorEnv([cartpole] * 3)


def gymnasium_cartpole():
    return CartPoleVectorEnv(3, max_episode_steps=20)


def envpool_cartpole():
    return envpool.make(
        "CartPole-v1",
        env_type="gymnasium",
        num_envs=3,
        num_threads=1,
        seed=3,
        max_episode_steps=20,
    )


def ale_pong():
    return AtariVectorEnv(
        "pong",
        num_envs=2,
        num_threads=1,
        stack_num=1,
        img_height=20,
        img_width=20,
        max_num_frames_per_episode=90,
    )


SEEDS = {envpool_cartpole: None}  # which is seeded when it is made
WITH_MASKED_RESETS = [gymnasium_sync, envpool_cartpole, ale_pong]
EVERYWHERE = [
    (gymnasium_cartpole, "next_step"),
    *[(make, mode) for make in WITH_MASKED_RESETS for mode in MODES],
]


class BareRows:
    """The bare engine, whose ended rows are reset by masks where the mode has them reset."""

    def __init__(self, make, mode):
        self.engine = make()
        self.mode = mode
        self.num_envs = self.engine.num_envs
        self.first, _ = self.engine.reset(seed=SEEDS.get(make, 4))
        self.over = np.zeros(self.num_envs, bool)

    def step(self, actions):
        """Observations, rewards, dones, which rows open an episode, last observations."""
        observations, rewards, terminations, truncations, _ = self.engine.step(actions)
        last = observations.copy()
        dones = terminations | truncations
        opened = np.zeros(self.num_envs, bool)
        if self.mode == "next_step":
            opened = self.over
            rewards = np.where(opened, 0.0, rewards)
            self.over = dones
        elif self.mode == "same_step":
            opened = dones
            observations = self.reset(dones, last)
        return observations, rewards.astype(float), dones, opened, last

    def reset(self, mask, shown):
        """The observations after a reset of these rows, of which the others stay as shown."""
        shown = shown.copy()
        if mask.any():
            options = None if mask.all() else {"reset_mask": mask}
            fresh, _ = self.engine.reset(options=options)
            shown[mask] = fresh if len(fresh) < self.num_envs else fresh[mask]
        return shown


def played(env, bare, make, steps=70):
    """Each result of the chain with what the bare engine gave, a reset of ended rows as a step."""
    none = np.zeros(bare.num_envs, bool)
    nothing = np.zeros(bare.num_envs)
    observations, infos = env.reset(seed=SEEDS.get(make, 4))
    yield (observations, nothing, none, none, infos), (bare.first, nothing, none, ~none, None)
    rng = np.random.default_rng(7)
    space = bare.engine.single_action_space
    for _ in range(steps):
        actions = rng.integers(space.n - 2, space.n, bare.num_envs).astype(space.dtype)
        given = bare.step(actions)
        yield env.step(actions), given
        dones = given[2]
        if bare.mode == "disabled" and dones.any():
            options = {"reset_mask": dones}
            observations, infos = env.reset(options=options)
            shown = bare.reset(dones, given[0])
            yield (
                (observations[dones], nothing[dones], none, none, {}),
                (shown[dones], nothing[dones], none, dones, None),
            )


@pytest.mark.parametrize(("make", "mode"), EVERYWHERE)
def test_stacks_scores_and_last_observations_are_those_of_loops(make, mode):
    bare = BareRows(make, mode)
    n = bare.num_envs
    stacks = [None] * n
    scores = np.zeros(n)
    lengths = np.zeros(n, int)
    ends = 0
    wrappers = ["framestack:2", "terminal_obs", "monitor"]
    with vecwrap.wrap(make(), wrappers, autoreset=mode) as env:
        for (observations, _, _, _, infos), given in played(env, bare, make):
            shown, rewards, dones, opened, last = given
            rows = np.flatnonzero(opened) if len(shown) < n else range(n)
            acted = ~opened | (mode == "same_step" and last is not None)
            for k, i in enumerate(rows):
                if acted[i] and last is not None:
                    stacks[i] = np.stack([stacks[i][1], last[i]])
                    scores[i] += rewards[i]
                    lengths[i] += 1
                if dones[i]:
                    ends += 1
                    np.testing.assert_array_equal(infos["terminal_obs"][i], stacks[i])
                    assert infos["episode"]["r"][i] == pytest.approx(scores[i])
                    assert infos["episode"]["l"][i] == lengths[i]
                if opened[i]:
                    stacks[i] = np.stack([np.zeros_like(shown[k]), shown[k]])
                    scores[i], lengths[i] = 0.0, 0
                np.testing.assert_array_equal(observations[k], stacks[i])
            if dones.any():
                np.testing.assert_array_equal(infos["_terminal_obs"], dones)
                np.testing.assert_array_equal(infos["_episode"], dones)
            else:
                assert "terminal_obs" not in infos
        assert ends > 3
    bare.engine.close()


@pytest.mark.parametrize(("make", "mode"), [one for one in EVERYWHERE if one[0] is not ale_pong])
def test_normalize_is_the_mean_and_variance_of_everything_so_far(make, mode):
    bare = BareRows(make, mode)
    n = bare.num_envs
    returns = np.zeros(n)
    counted, paid = [], []
    with vecwrap.wrap(make(), ["normalize"], autoreset=mode) as env:
        for (observations, normalized, _, _, infos), given in played(env, bare, make):
            shown, rewards, dones, opened, last = given
            rows = np.flatnonzero(opened) if len(shown) < n else range(n)
            for k, i in enumerate(rows):
                if last is not None and (mode == "same_step" or not opened[i]):
                    returns[i] = returns[i] * 0.99 + rewards[i]
                    paid.append(returns[i])
                if mode == "same_step" or not dones[i]:
                    counted.append(shown[k])
                if dones[i] or opened[i]:
                    returns[i] = 0.0
            mean, var = mean_and_var(counted, (4,))
            expected = np.clip((shown - mean) / np.sqrt(var + 1e-8), -10, 10)
            np.testing.assert_allclose(observations, expected, rtol=1e-4, atol=1e-5)
            if paid:
                _, paid_var = mean_and_var(paid)
                expected = np.clip(rewards / np.sqrt(paid_var + 1e-8), -10, 10)
                np.testing.assert_allclose(normalized, expected, rtol=1e-6)
            for i in np.flatnonzero(infos.get("_final_obs", ())):
                expected = np.clip((last[i] - mean) / np.sqrt(var + 1e-8), -10, 10)
                np.testing.assert_allclose(infos["final_obs"][i], expected, rtol=1e-4, atol=1e-5)
        assert len(paid) > 150
    bare.engine.close()
