"""The loops of ``benchmarks.learning``: what they learn from, what is timed, who takes part."""

import os

import numpy as np
import pytest

from benchmarks import learning, pages
from benchmarks.measure import CannotRun

N = 2


class Frames:
    """Frames of one colour in a stack; an action that is right brings 1, and nine steps a game."""

    num_envs = N
    num_actions = 3

    def __init__(self):
        self.steps = 0
        self.closed = False

    def reset(self):
        return self._frames()

    def step(self, actions):
        assert actions.shape == (N,)
        self.steps += 1
        rewards = (actions == self.steps % self.num_actions).astype(np.float64)
        return self._frames(), rewards, np.full(N, self.steps % 9 == 0)

    def close(self):
        self.closed = True

    def _frames(self):
        return np.full((N, 4, 84, 84), self.steps % 9, np.uint8)


class Clock:
    """Seconds that pass where a test says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture(scope="module")
def loops():
    pytest.importorskip("torch")
    from benchmarks import learning_loops

    return learning_loops


@pytest.mark.parametrize("kind", ["A2C", "PPO"])
def test_a_cycle_steps_the_environment_and_changes_the_net(loops, kind):
    import torch

    env = Frames()
    loop = loops.LOOPS[kind](env, loops.StageTimes())
    before = [weights.detach().clone() for weights in loop.net.parameters()]
    agent_steps = loop.cycle()
    assert agent_steps == N * env.steps
    assert env.steps == {"A2C": loops.A2C_STEPS, "PPO": loops.PPO_STEPS}[kind]
    changed = zip(before, loop.net.parameters(), strict=True)
    assert not any(torch.equal(old, new) for old, new in changed)


def test_a_loop_may_act_on_one_thread_and_learn_on_all(loops):
    import torch

    seen = []
    loop = loops.A2C(Frames(), loops.StageTimes())
    loop.acting_threads = 1
    loop.net.register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        loop.cycle()
    finally:
        torch.set_num_threads(before)
    assert seen == [1] * loops.A2C_STEPS + [2, 2]


def test_a_stage_waits_while_its_thread_has_no_core(loops):
    clock = Clock()
    core = Clock()

    def step(seconds, computed):
        clock.now += seconds
        core.now += computed
        return "result"

    times = loops.StageTimes(clock, core)
    assert times.run_environments(step, 5.0, 2.0) == "result"
    assert times.run("acting", step, 7.0, 7.0) == "result"
    assert times.run_environments(step, 1.0, 1.5) == "result"  # clocks that differ
    assert times.seconds == {"environments": 3.0, "waiting": 3.0, "acting": 7.0, "updating": 0.0}


def test_a_sample_is_of_whole_cycles_in_steps_a_second_and_ms_a_vector_step(loops):
    clock = Clock()
    times = loops.StageTimes(clock, clock)

    class Loop:
        def cycle(self):
            times.run("updating", self.work)
            return 5 * N

        def work(self):
            clock.now += 0.4

    figures = loops.sample(Loop(), times, N, 1.0, clock)
    assert figures["rate"] == pytest.approx(10 / 0.4)
    assert figures["updating"] == pytest.approx(80.0)
    assert figures["acting"] == 0.0


def test_a_process_opens_an_environment_once_and_measures_both_loops(loops):
    from benchmarks.learning_process import Side

    envs = []

    def open_env(name, n):
        if name == "missing":
            raise CannotRun("not installed")
        envs.append(Frames())
        return envs[-1]

    side = Side(N, open_env)
    assert side.answer("ours") == {}
    assert side.answer("ours", "A2C", 0.0)["rate"] > 0
    assert len(envs) == 1
    with pytest.raises(CannotRun):
        side.answer("missing")
    side.close()
    assert envs[0].closed


class Answers:
    """A process whose loops take what the test says."""

    asked = []
    closed = 0

    def __init__(self, n, threads):
        self.threads = threads

    def ask(self, name, loop="", seconds=0.0):
        self.asked.append((self.threads, name, loop))
        if name == "SB3 SubprocVecEnv":
            raise CannotRun("sb3 is not installed")
        if not loop:
            return {}
        rate = {"spinning": 500.0, "passive": 800.0}[self.threads]
        if name != learning.LEAD:
            rate /= 2
        return {"rate": rate, **dict.fromkeys(learning.STAGES, 1.25)}

    def close(self):
        Answers.closed += 1


def test_all_take_turns_and_ratios_are_of_the_same_threads(monkeypatch):
    monkeypatch.setattr(Answers, "asked", [])
    monkeypatch.setattr(Answers, "closed", 0)
    names = [learning.LEAD, "Gymnasium Async", "SB3 SubprocVecEnv"]
    threads = ["spinning", "passive"]
    found = learning.measure(16, names, ["A2C"], threads, 3, 0.1, Answers)
    assert Answers.closed == 2
    assert Answers.asked.count(("passive", "Gymnasium Async", "")) == 1
    assert Answers.asked.count(("passive", "Gymnasium Async", "A2C")) == 3
    measured = {each.name: each for each in found}
    assert learning.rates(measured, "A2C", names, threads) == [
        ["A2C, agent steps a second", "spinning", "passive"],
        ["vecwrap, default", "500", "800"],
        ["Gymnasium Async", "250 (2.00 ×)", "400 (2.00 ×)"],
        ["SB3 SubprocVecEnv", "sb3 is not installed", "sb3 is not installed"],
    ]
    stages = learning.stage_times(measured, "A2C", names, threads)
    assert stages[1] == ["vecwrap, default", "spinning", *["1.2"] * 4]
    assert len(stages) == 5


def test_the_threads_of_a_process_are_set_before_it_starts(monkeypatch):
    started = []

    class Popen:
        def __init__(self, command, *, env, **pipes):
            started.append((command, env))

    monkeypatch.setattr(learning.subprocess, "Popen", Popen)
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for threads in learning.THREADS:
        learning.Process(8, threads)
    policies = [env.get("OMP_WAIT_POLICY") for _, env in started]
    assert policies == [None, "PASSIVE", None, None]
    assert not any("OMP_NUM_THREADS" in env for _, env in started)
    assert all(env["PATH"] == os.environ["PATH"] for _, env in started)
    assert [command[-2:] for command, _ in started][2] == ["--torch-threads", "1"]


def test_names_and_loops_are_those_of_the_process(loops):
    from benchmarks import learning_process

    assert tuple(learning_process.OURS) == learning.NAMES[:3] + learning.ON_REQUEST
    peers = learning_process.Gymnasium.names + learning_process.StableBaselines3.names
    assert set(learning.NAMES[3:]) <= set(peers)
    assert tuple(loops.LOOPS) == learning.LOOP_NAMES


def test_the_page_has_a_place_for_the_tables():
    text = pages.PAGE.read_text(encoding="utf-8")
    assert text.index(learning.BEGIN) < text.index(learning.END)


@pytest.mark.full
def test_it_prints_a_table_of_rates_and_one_of_stages_for_each_loop(capsys):
    pytest.importorskip("torch")
    pytest.importorskip("ale_py")
    only = ["--only", "vecwrap dummy", "--threads", "one thread", "--n", "2", "--rounds", "1"]
    learning.main([*only, "--seconds", "0.01"])
    printed = capsys.readouterr().out
    assert printed.count("| vecwrap dummy |") == 4
    assert "| n=2, PPO, agent steps a second | one thread |" in printed
