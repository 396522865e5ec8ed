"""The processes that measure, with real environments: what they answer, how they end, and that nothing is left."""

import os
import sys
import time
from pathlib import Path

import pytest

from tests.waiting import gone
from vecwrap.tools.tune import Failed, measured

SOON = 120.0  # seconds; a machine may be busy
CART_POLE = {"env": "CartPole-v1", "n": 2, "backend": {"name": "dummy"}}
TOYS = """
import os
import subprocess
import sys
import time

import gymnasium
import numpy as np


class Toy(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}


class Waits(Toy):
    def step(self, action):
        time.sleep(0.01)
        print("environments print")
        return 0, 0.0, False, False, {}


class Raises(Toy):
    def step(self, action):
        raise ValueError("the wheel\\ncame off")


class Masked(Toy):
    action_space = gymnasium.spaces.Discrete(9)

    def seen(self):
        self.time = getattr(self, "time", 0) + 1
        return {"action_mask": np.arange(9) == self.time % 9}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, self.seen()

    def step(self, action):
        if action != self.time % 9:
            raise ValueError(f"illegal action {action}")
        return 0, 0.0, self.time % 5 == 0, False, self.seen()


class Dies(Toy):
    def step(self, action):
        print("out of paper", file=sys.stderr, flush=True)
        os._exit(7)


class Hangs(Toy):
    def step(self, action):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        with open("pids", "w") as file:
            file.write(f"{os.getpid()} {child.pid}")
        time.sleep(1000)
"""


@pytest.fixture
def toys(tmp_path, monkeypatch):
    (tmp_path / "toys_of_tune.py").write_text(TOYS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    return lambda name: {**CART_POLE, "env": f"toys_of_tune:{name}"}


def test_an_environment_that_computes_and_one_that_waits_are_told_apart(toys):
    assert measured("environment", CART_POLE, SOON)["busy"] > 0.5
    found = measured("environment", toys("Waits"), SOON)
    assert found["busy"] < 0.5
    assert found["step_seconds"] >= 0.01


def test_a_candidate_has_a_rate_of_each_sample():
    found = measured("candidate", CART_POLE, 6.0)
    assert len(found["rates"]) == 5
    assert min(found["rates"]) > 0
    assert found["start_seconds"] > 0


@pytest.mark.parametrize("options", [{}, pytest.param({"batch_size": 1}, marks=pytest.mark.full)])
def test_the_actions_that_are_measured_are_legal(toys, options):
    pipeline = {**toys("Masked"), **options}
    assert measured("environment", pipeline, SOON)["steps"] > 0
    assert min(measured("candidate", pipeline, 4.0)["rates"]) > 0


def test_what_it_raises_is_told_in_one_line(toys):
    with pytest.raises(Failed) as error:
        measured("environment", toys("Raises"), SOON)
    assert str(error.value) == "ValueError: the wheel"


def test_a_death_is_told_with_its_last_words(toys):
    with pytest.raises(Failed, match="exit code 7: out of paper"):
        measured("environment", toys("Dies"), SOON)


def test_at_its_deadline_it_ends_with_all_that_it_started(toys):
    deadline, seconds = time.monotonic() + SOON, 4.0
    while not Path("pids").exists() and time.monotonic() < deadline:
        with pytest.raises(Failed, match="not done within"):
            measured("environment", toys("Hangs"), seconds)
        seconds *= 2
    pids = [int(pid) for pid in Path("pids").read_text().split()]
    assert os.getpid() not in pids
    assert gone(pids)
