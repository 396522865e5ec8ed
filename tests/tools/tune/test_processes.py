"""The processes that measure, with real environments: what they answer, how they end, and that
nothing is left.
"""

import os
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.polling import gone
from vecwrap.tools import tune
from vecwrap.tools.tune import ASYNC, SYNC, MeasureError, measured

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


class Prints(Toy):
    def step(self, action):
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


@pytest.fixture(autouse=True)
def short_samples(monkeypatch):
    """The process may take its time, as a machine may be busy, but measures for a moment."""
    short = "import vecwrap.tools.tune as tune; tune.MAX_SAMPLE_SECONDS = 0.02\nanswer("
    monkeypatch.setattr(tune, "_BOOTSTRAP", tune._BOOTSTRAP.replace("answer(", short))


@pytest.fixture
def toys(tmp_path, monkeypatch):
    (tmp_path / "toys_of_tune.py").write_text(TOYS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    return lambda name: {**CART_POLE, "env": f"toys_of_tune:{name}"}


def test_a_candidate_has_a_rate_of_each_sample():
    found = measured(CART_POLE, 6.0)
    assert len(found["rates"]) == 5
    assert min(found["rates"]) > 0
    assert found["start_seconds"] > 0


def test_what_it_prints_is_not_the_answer(toys):
    assert len(measured(toys("Prints"), SOON)["rates"]) == 5


@pytest.mark.parametrize("kind", [SYNC, ASYNC])
def test_a_reference_has_the_wrappers_of_the_sub_environments(kind, toys):
    pipeline = {
        **CART_POLE,
        "backend": {"name": kind},
        "wrappers": ["time_limit:3", "framestack:2"],
    }
    found = measured(pipeline, SOON)
    assert len(found["rates"]) == 5
    assert min(found["rates"]) > 0


def test_a_reference_refuses_masks_of_which_it_knows_nothing(toys):
    with pytest.raises(MeasureError, match="knows nothing of the environment's action masks"):
        measured({**toys("Masked"), "backend": {"name": SYNC}}, SOON)


@pytest.mark.parametrize("options", [{}, pytest.param({"batch_size": 1}, marks=pytest.mark.full)])
def test_the_actions_that_are_measured_are_legal(toys, options):
    pipeline = {**toys("Masked"), **options}
    assert min(measured(pipeline, 30.0)["rates"]) > 0


def test_what_it_raises_is_told_in_one_line(toys):
    with pytest.raises(MeasureError) as error:
        measured(toys("Raises"), SOON)
    assert "ValueError" in str(error.value)
    assert str(error.value).endswith("the wheel")


def test_a_death_is_told_with_its_last_words(toys):
    with pytest.raises(MeasureError, match="exit code 7: out of paper"):
        measured(toys("Dies"), SOON)


def test_at_its_deadline_it_ends_with_all_that_it_started(toys):
    deadline, seconds = time.monotonic() + SOON, 4.0
    while not Path("pids").exists() and time.monotonic() < deadline:
        with pytest.raises(MeasureError, match="not done within"):
            measured(toys("Hangs"), seconds)
        seconds *= 2
    pids = [int(pid) for pid in Path("pids").read_text().split()]
    assert os.getpid() not in pids
    assert gone(pids)
