"""Engines in workers that are lost: their rows end and begin together, all others are untouched."""

import csv
import os
import signal
import time
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import vecwrap
from tests.helpers.backends import DummyBackend, ShmemBackend, SubprocessBackend, ThreadsBackend
from tests.helpers.polling import gone
from vecwrap.errors import BackendError, PlanError, SubEnvError
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.sources.source_factories import EngineFactory
from vecwrap.wrappers.framestack import FrameStack
from vecwrap.wrappers.monitor import Monitor

K = 3
BACKENDS = [ShmemBackend, SubprocessBackend]
pytestmark = pytest.mark.usefixtures("either_start")


class FailsOnRequest:
    """Fails once in a step for which a file exists, before it steps or after."""

    requests = Path()

    def step(self, actions):
        self.meet("before")
        result = super().step(actions)
        self.meet("after")
        return result

    def meet(self, point):
        request = self.requests / point
        if not request.exists():
            return
        kind = request.read_text()
        request.unlink()
        if kind == "raise":
            raise RuntimeError("as asked")
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)


class CartPoles(FailsOnRequest, CartPoleVectorEnv):
    def __init__(self):
        super().__init__(K, max_episode_steps=30)


def cartpole():
    return gymnasium.make("CartPole-v1", max_episode_steps=30)


class SyncCartPoles(FailsOnRequest, SyncVectorEnv):
    def __init__(self, mode):
        super().__init__([cartpole] * K, autoreset_mode=AutoresetMode(mode))


ENGINES = {
    "CartPole's own, next_step": (CartPoles, "next_step"),
    "Sync, next_step": (partial(SyncCartPoles, "NextStep"), "next_step"),
    "Sync, same_step": (partial(SyncCartPoles, "SameStep"), "same_step"),
    "Sync, disabled": (partial(SyncCartPoles, "Disabled"), "disabled"),
}


def on_request(make, requests):
    """An engine that looks for requests in this folder."""
    engine = make()
    engine.requests = requests
    return engine


class NaiveEngine:
    """A bare engine, and what its rows show when it is lost and another one takes its place."""

    def __init__(self, make, mode, seed):
        self.make = make
        self.mode = mode
        self.seed = seed
        self.restarts = 0
        self.begins = False
        self.over = np.zeros(K, dtype=bool)
        self.engine = make()
        self.observations = self.engine.reset(seed=seed)[0]

    def recreate(self):
        self.restarts += 1
        entropy = np.random.SeedSequence([self.seed, self.restarts])
        self.engine.close()
        self.engine = self.make()
        return self.engine.reset(seed=int(entropy.generate_state(1)[0] % 2**30))[0].copy()

    def step(self, actions):
        """Observations, rewards, terminations, truncations, and which rows open an episode."""
        none = np.zeros(K, dtype=bool)
        if self.begins:
            self.begins = False
            self.over = none
            self.observations = self.first
            return self.first, np.zeros(K), none, none, ~none
        opened = self.over & (self.mode == "next_step")
        observations, rewards, terminations, truncations, _ = self.engine.step(actions)
        self.observations = observations.copy()
        self.over = terminations | truncations
        self.dones = terminations, truncations
        if self.mode == "same_step":
            opened = self.over
        paid = np.where(opened & (self.mode == "next_step"), 0.0, rewards)
        return self.observations, paid, terminations, truncations, opened

    def lose(self):
        none = np.zeros(K, dtype=bool)
        first = self.recreate()
        if self.mode == "same_step":
            self.observations = first
            return first, np.zeros(K), none, ~none, ~none
        if self.over.all():  # the reset of all was due
            self.over = none
            self.observations = first
            return first, np.zeros(K), none, none, ~none
        self.first = first
        self.begins = True
        terminated, truncated = self.dones
        rows = self.observations, np.zeros(K), terminated & self.over
        rows = *rows, np.where(self.over, truncated, True), none
        self.over = ~none
        return rows

    def reset(self, mask):
        self.over &= ~mask
        if self.begins:
            self.begins = False
            self.observations = self.first
        elif mask.any():
            self.observations = self.engine.reset(options={"reset_mask": mask})[0].copy()
        return self.observations


class NaiveChain:
    """A stack of two and the scores, row by row, over what the naive engines show."""

    def __init__(self, observations):
        self.stacks = [np.stack([np.zeros_like(row), row]) for row in observations]
        self.scores = np.zeros(len(observations))
        self.lengths = np.zeros(len(observations), dtype=int)
        self.running = np.ones(len(observations), dtype=bool)
        self.episodes = []

    def step(self, observations, rewards, dones, opened, acted, lost):
        for i, row in enumerate(observations):
            self.scores[i] += rewards[i]
            self.lengths[i] += acted[i]
            if dones[i] and self.running[i]:
                self.episodes.append((i, self.scores[i], self.lengths[i], int(lost[i])))
                self.running[i] = False
            if opened[i]:
                self.begin(i, row)
            elif acted[i]:
                self.stacks[i] = np.stack([self.stacks[i][1], row])

    def begin(self, i, row):
        self.stacks[i] = np.stack([np.zeros_like(row), row])
        self.scores[i] = 0.0
        self.lengths[i] = 0
        self.running[i] = True


def written(folder):
    lines = (folder / "monitor.csv").read_text().splitlines()[1:]
    rows = csv.DictReader(lines)
    return [(int(row["env"]), float(row["r"]), int(row["l"]), int(row["lost"])) for row in rows]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "kind", ["between", "before kill", pytest.param("after kill", marks=pytest.mark.full), "raise"]
)
def test_a_lost_engine_is_made_anew_and_the_other_is_as_if_alone(backend, engine, kind, tmp_path):
    make, mode = ENGINES[engine]
    factories = [EngineFactory(partial(on_request, make, tmp_path / str(i)), K) for i in range(2)]
    for i in range(2):
        (tmp_path / str(i)).mkdir()
    inner = backend(factories, autoreset=mode, on_failure="restart", restart_backoff=0.0, workers=2)
    naive = [NaiveEngine(make, mode, seed) for seed in (5, 5 + K)]
    rng = np.random.default_rng(3)
    rested = 0
    with Monitor(FrameStack(inner, 2), str(tmp_path / "run")) as env:
        stacks, _ = env.reset(seed=5)
        chain = NaiveChain(np.concatenate([one.observations for one in naive]))
        np.testing.assert_array_equal(stacks, chain.stacks)
        for step in range(140):
            actions = rng.integers(0, 2, 2 * K)
            over = naive[1].over.copy()
            is_loss = step in (17, 40, 100)
            if mode == "next_step" and not rested and step > 60:
                is_loss |= over.any() and not over.all()  # a reset is due beside running rows
            if is_loss and kind == "between":
                os.kill(env.health().workers[1].pid, signal.SIGKILL)
            elif is_loss:
                point, _, what = kind.rpartition(" ")
                (tmp_path / "1" / (point or "before")).write_text(what)
            shown = [naive[0].step(actions[:K])]
            shown.append(naive[1].lose() if is_loss else naive[1].step(actions[K:]))
            observations, rewards, *dones, opened = map(np.concatenate, zip(*shown, strict=True))
            stacks, paid, *flags, infos = env.step(actions)
            np.testing.assert_array_equal(paid, rewards)
            np.testing.assert_array_equal(flags, dones)
            over_now = dones[0] | dones[1]
            acted = ~opened | (mode == "same_step")
            lost = np.zeros(2 * K, dtype=bool)
            if is_loss:
                acted[K:] = False
                lost[K:] = ~over
                rested += (over & ~opened[K:]).sum()
                assert infos["restarted"].tolist() == [0] * K + [naive[1].restarts] * K
            else:
                assert "restarted" not in infos
            chain.step(observations, rewards, over_now, opened, acted, lost)
            np.testing.assert_array_equal(stacks, chain.stacks)
            if mode == "disabled" and over_now.any():
                stacks, _ = env.reset(options={"reset_mask": over_now})
                begun = [naive[0].reset(over_now[:K]), naive[1].reset(over_now[K:])]
                for i in np.flatnonzero(over_now):
                    chain.begin(i, np.concatenate(begun)[i])
                np.testing.assert_array_equal(stacks, chain.stacks)
        health = env.health()
        counted = env.num_episodes
    for one in naive:
        one.engine.close()
    assert health.restarts.tolist() == [0] * K + [naive[1].restarts] * K
    assert written(tmp_path / "run") == [pytest.approx(one) for one in chain.episodes]
    assert counted == sum(not lost for *_, lost in chain.episodes) > 10
    assert rested or mode != "next_step"


def lost_in(backend, make, requests, kind, mode, **options):
    """Two engines, of which the first fails in the step that follows, before it has stepped."""
    factories = [
        EngineFactory(partial(on_request, make, requests), K),
        EngineFactory(partial(on_request, make, requests / "none"), K),
    ]
    env = backend(factories, autoreset=mode, workers=2, **options)
    env.reset(seed=5)
    (requests / "before").write_text(kind)
    return env


def test_an_engine_that_hangs_is_lost_after_its_step_timeout(tmp_path):
    env = lost_in(
        ShmemBackend, CartPoles, tmp_path, "hang", "next_step", on_failure="restart", step_timeout=2
    )
    with env:
        *_, truncations, infos = env.step([1] * 2 * K)
        assert truncations.tolist() == [True] * K + [False] * K
        assert infos["restarted"].tolist() == [1] * K + [0] * K
        assert "step_timeout=2 s" in env.health().failures[0]
        observations, *_ = env.step([1] * 2 * K)
        seed = np.random.SeedSequence([5, 1]).generate_state(1)[0] % 2**30
        bare, _ = CartPoles().reset(seed=int(seed))
        np.testing.assert_array_equal(observations[:K], bare)


@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_that_were_reset_alone_since_the_loss_end_with_the_others(backend, mode, tmp_path):
    """A masked reset, in which the engine is lost, is the new one's; what was not reset ends in the
    step that follows, and the rows begin together.
    """
    make = partial(SyncCartPoles, mode)
    factories = [EngineFactory(make, K)] * 2
    mask = np.arange(2 * K) == 1
    with backend(factories, autoreset=mode, workers=2, on_failure="restart") as env:
        env.reset(seed=5)
        before, *_ = env.step([1] * 2 * K)
        pid = env.health().workers[0].pid
        os.kill(pid, signal.SIGKILL)
        assert gone([pid])  # so that this reset has not caused it, and its seeds stay as given
        observations, infos = env.reset(seed=9, options={"reset_mask": mask})
        assert infos["restarted"].tolist() == [0, 1] + [0] * 4
        expected = before.copy()
        expected[1] = cartpole().reset(seed=10)[0]
        np.testing.assert_array_equal(observations, expected)
        ended, _, _, truncations, infos = env.step([1] * 2 * K)
        assert truncations.tolist() == [True] * K + [False] * K
        if mode == "SameStep":
            np.testing.assert_array_equal(np.stack(infos["final_obs"][:K]), expected[:K])
        else:
            np.testing.assert_array_equal(ended[:K], expected[:K])
        if mode == "Disabled":
            env.reset(options={"reset_mask": np.arange(2 * K) < K})
        elif mode == "NextStep":
            observations, rewards, *_ = env.step([1] * 2 * K)
            assert rewards.tolist() == [0.0] * K + [1.0] * K
        *_, truncations, infos = env.step([1] * 2 * K)
        assert not truncations.any()
        # That which the reset began ended with the others, before its first step.
        assert env.health().lost_episodes.tolist() == [1, 2, 1, 0, 0, 0]


@pytest.mark.parametrize("kind", ["raise", "kill"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_was_set_is_set_again_and_the_limit_is_that_of_sub_environments(
    backend, kind, tmp_path
):
    make = partial(SyncCartPoles, "NextStep")
    options = {"on_failure": "restart", "max_restarts": 1, "restart_backoff": 0.0}
    with lost_in(backend, make, tmp_path, kind, "next_step", **options) as env:
        env.set_attr("length", [float(i) for i in range(2 * K)])
        env.step([1] * 2 * K)
        env.step([1] * 2 * K)
        assert env.get_attr("length") == tuple(map(float, range(2 * K)))
        (tmp_path / "before").write_text(kind)
        with pytest.raises((BackendError, SubEnvError), match="max_restarts=1 within"):
            env.step([1] * 2 * K)


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_restarts_the_error_of_a_death_says_what_makes_it_automatic(backend, tmp_path):
    with (
        lost_in(backend, CartPoles, tmp_path, "kill", "next_step") as env,
        pytest.raises(BackendError, match='sub-environments 0-2.*\n.*on_failure="restart"'),
    ):
        env.step([1] * 2 * K)


@pytest.mark.parametrize("backend", [DummyBackend, ThreadsBackend])
def test_engines_in_this_process_are_not_restarted(backend):
    said = r'on_failure: expected "raise" for engines on \w+, got "restart".*backend="shmem"'
    with pytest.raises(PlanError, match=said):
        backend([EngineFactory(CartPoles, K)], autoreset="next_step", on_failure="restart")


def test_the_plan_says_so_before_anything_is_made():
    line = "CartPole-v1 n=4 envs_per_engine=2 autoreset=next_step backend.on_failure=restart"
    assert "shmem" in str(plan(PipelineSpec.parse(line)))
    with pytest.raises(PlanError, match=r"for engines on dummy, got .restart."):
        vecwrap.build(f"{line} backend=dummy")
