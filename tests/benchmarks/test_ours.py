"""Our side: nothing is timed whose stream is not dummy's, and the user's files stay as they are."""

import itertools
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import vecwrap
from benchmarks.comparison import (
    LOCKSTEP,
    StreamError,
    _loop,
    built,
    compare_pipeline,
    ideal,
    our_contenders,
)
from benchmarks.peers import PEERS
from vecwrap.backends.dummy import Dummy
from vecwrap.errors import PlanError
from vecwrap.pipeline.plan import plan, plan_into_folder
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.testing.toys import OpenResources, assert_nothing_left
from vecwrap.tools.throughput import SEED

BASE = PipelineSpec("CartPole-v1", n=3, backend="dummy")


class OtherSeeds(Dummy):
    """Seeds its sub-environments otherwise."""

    def reset(self, rows, seeds, options):
        super().reset(rows, [None if seed is None else seed + 1 for seed in seeds], options)


class FirstActionOnly(Dummy):
    """Gives every sub-environment the first one's action."""

    def send(self, rows):
        actions = self.slots.actions.batch()
        actions[:] = actions[0]
        super().send(rows)


class Dice(gymnasium.Env):
    """Draws from a generator that nobody seeds."""

    observation_space = spaces.Box(0, 1, (2,), np.float64)
    action_space = spaces.Discrete(2)
    rng = np.random.default_rng()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.rng.random(2), {}

    def step(self, action):
        return self.rng.random(2), 0.0, False, False, {}


class Ten(gymnasium.Env):
    """Ends after ten steps, and counts all there are."""

    observation_space = spaces.Discrete(11)
    action_space = spaces.Discrete(2)
    resets, steps, closed = 0, 0, False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets += 1
        self.now = 0
        return 0, {}

    def step(self, action):
        assert self.now < 10, "stepped past its end"
        self.now += 1
        self.steps += 1
        return self.now, 0.0, self.now == 10, False, {}

    def close(self):
        self.closed = True


def opened(contender):
    """Open and close it; give what one sample was."""
    sampler = contender.open()
    try:
        return sampler.sample(0.002)
    finally:
        sampler.close()


def test_the_number_of_steps_is_that_of_all_rows():
    sampler = built("ours", BASE).open()
    assert sampler.run(5) == 15
    sampler.close()


@pytest.mark.parametrize("backend", [OtherSeeds, FirstActionOnly])
def test_a_backend_with_another_stream_is_not_timed(backend):
    with pytest.raises(StreamError, match=r"the wrong one: its stream is not dummy's"):
        built("the wrong one", BASE.override(backend=backend)).open()


def test_an_environment_that_cannot_be_compared_is_not_timed():
    with pytest.raises(StreamError, match=r"draws from anything but its own np_random"):
        built("ours", BASE.override(env=Dice)).open()


@pytest.mark.parametrize(
    "line", ["CartPole-v1 n=3 | framestack:2 | monitor", "CartPole-v1 n=3 autoreset=next_step"]
)
@pytest.mark.parametrize("backend", ["dummy", "shmem"])
def test_pipelines_with_wrappers_and_clocks_are_compared_equal(line, backend):
    assert opened(built("ours", PipelineSpec.parse(line).override(backend=backend)))["rate"] > 0


def test_nothing_is_left_behind():
    before = OpenResources.now()
    sampler = built("ours", BASE.override(backend="shmem", workers=2)).open()
    during = OpenResources.now()
    sampler.sample(0.002)
    sampler.close()
    assert_nothing_left(before, during)


def test_with_a_batch_size_rows_go_out_as_they_come_home(monkeypatch):
    calls = []
    for name in ("send", "recv", "step"):
        real = getattr(vecwrap.VecEnv, name)

        def noted(self, *args, real=real, name=name, **kwargs):
            calls.append(name)
            return real(self, *args, **kwargs)

        monkeypatch.setattr(vecwrap.VecEnv, name, noted)
    sampler = built("ours", BASE.override(n=4, batch_size=2)).open()
    del calls[:]
    assert sampler.run(6) == 12
    assert calls == ["recv", "send"] * 6
    sampler.close()


def test_files_of_the_pipeline_go_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = BASE.override(wrappers=["framestack:2", {"monitor": {"dir": "runs/mine"}}])
    opened(built("ours", spec))
    assert list(tmp_path.iterdir()) == []
    moved = plan(plan_into_folder(spec, tmp_path / "elsewhere"))
    assert moved.pipeline.hash == plan(spec).pipeline.hash
    assert all(
        str(tmp_path / "elsewhere") in str(wrapper.bound.kwargs["dir"])
        for wrapper in moved.wrappers[1:]
    )


def test_an_evaluation_may_name_a_preset_that_the_measured_pipeline_has_laid_open(tmp_path):
    spec = PipelineSpec.from_dict(
        {
            "env": "Pendulum-v1",
            "n": 2,
            "wrappers": ["mujoco", "monitor"],
            "eval": {"wrappers": {"mujoco": {"clip": 5.0}}},
        }
    )
    moved = plan_into_folder(spec, tmp_path)
    assert [wrapper.name for wrapper in plan(moved).pipeline.wrappers][-1] == "monitor"
    assert not moved.eval


class Log(vecwrap.Declares, gymnasium.Wrapper):
    """Writes a line for each reset into a file of its folder."""

    path_parameters = frozenset({"dir"})

    def __init__(self, env, dir):
        super().__init__(env)
        self.dir = Path(dir)

    def reset(self, **kwargs):
        self.dir.mkdir(parents=True, exist_ok=True)
        with (self.dir / "log.txt").open("a") as file:
            file.write("reset\n")
        return super().reset(**kwargs)


@pytest.mark.xdist_group("tianshou")  # which takes seconds to import
def test_peers_and_loops_write_elsewhere_too(tmp_path, monkeypatch, server_of_peers):
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("stable_baselines3")
    spec = BASE.override(
        wrappers=[{f"{__name__}:Log": {"dir": "logs"}}, {"monitor": {"dir": "runs/mine"}}]
    )
    rows = compare_pipeline(spec, [PEERS["sb3"]], 1, 0.01).measurements
    assert {row.side for row in rows} >= {"ours", "peer"}
    assert not [(row.name, row.missing) for row in rows if row.missing]
    assert list(tmp_path.iterdir()) == []


def test_our_rows_begin_with_the_pipeline_as_it_is_written():
    names = [contender.name for contender in our_contenders(BASE)]
    assert names == ["vecwrap dummy", "vecwrap shmem", "vecwrap subprocess"]


def test_a_loop_resets_where_an_episode_ends():
    env = Ten()
    sampler = _loop(lambda: env, 1)
    assert sampler.run(95) == 95
    assert (env.steps, env.resets) == (95, 1 + 9)
    sampler.close()
    assert env.closed


def test_the_ideal_is_one_sub_environment_as_workers_hold_it_times_the_cores(monkeypatch):
    monkeypatch.setattr("benchmarks.comparison.usable_cores", lambda: 3)
    seen = []

    def look(env):
        seen.append(env)
        return env

    contender = ideal(plan(BASE.override(wrappers=[look, "time_limit:5", "framestack:2"])))
    assert (contender.name, contender.side) == ("ideal: 3 × one process", "reference")
    assert "look and time_limit" in contender.note
    sampler = contender.open()
    assert (len(seen), sampler.factor) == (1, 3)
    assert sampler.run(20) == 20
    sampler.close()


@pytest.mark.parametrize("mode", ["disabled", "episodic"])
def test_modes_in_which_resets_are_asked_for_are_refused(mode):
    with pytest.raises(PlanError, match=rf"autoreset: expected same_step or next_step.*got {mode}"):
        compare_pipeline(BASE.override(autoreset=mode), [], 1, 0.001)


def test_the_lockstep_meets_ends():
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=SEED)
    env.action_space.seed(SEED)
    ends = (any(env.step(env.action_space.sample())[2:4]) for _ in itertools.count())
    assert next(i for i, end in enumerate(ends) if end) < LOCKSTEP
