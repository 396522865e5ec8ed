"""One process for each core, all of them at work at the same time."""

import itertools
import multiprocessing
import os
import signal
import time

import gymnasium
import pytest
from gymnasium import spaces

from vecwrap.backends.cores import usable_cores
from vecwrap.bench.at_once import AtOnce
from vecwrap.bench.ours import at_once, loop
from vecwrap.errors import VecwrapError
from vecwrap.plan import plan
from vecwrap.spec import PipelineSpec


class Clocked(gymnasium.Env):
    """Notes when it was stepped, and by whom."""

    observation_space = action_space = spaces.Discrete(2)

    def __init__(self, folder):
        self.file = (folder / str(os.getpid())).open("w")

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        self.file.write(f"{time.monotonic()}\n")
        self.file.flush()
        time.sleep(0.001)
        return 0, 0.0, False, False, {}


def times(file):
    return [float(line) for line in file.read_text().splitlines()]


def test_all_of_them_step_at_the_same_time_and_their_rates_are_added(tmp_path):
    sampler = AtOnce(loop, lambda: Clocked(tmp_path), 3)
    assert len(multiprocessing.active_children()) == 3
    rate = sampler.sample(0.3)["rate"]
    files = list(tmp_path.iterdir())
    assert len(files) == 3
    spans = [(min(noted), max(noted)) for noted in map(times, files)]
    for (start, _), (_, stop) in itertools.permutations(spans, 2):
        assert start < stop  # each began before any other one was done
    assert 0 < rate <= 3 * 1000  # each step sleeps a millisecond at least
    sampler.close()
    assert not multiprocessing.active_children()


def test_an_interrupt_is_the_parents_and_no_process_shows_a_traceback(tmp_path, capfd):
    sampler = AtOnce(loop, lambda: Clocked(tmp_path), 2)
    processes = multiprocessing.active_children()
    for process in processes:
        os.kill(process.pid, signal.SIGINT)  # Ctrl-C reaches the whole group
    assert sampler.sample(0.05)["rate"] > 0
    for link in sampler._links:  # an interrupt while they are asked: their answers are read by nobody
        link.send(0.01)
        assert link.poll(60)
    sampler.close()
    assert [process.exitcode for process in processes] == [0, 0]
    assert capfd.readouterr().err == ""


def test_the_reference_has_the_layers_of_the_sub_environments(tmp_path):
    bare = PipelineSpec("CartPole-v1", n=2, backend="dummy")
    for spec in (bare, bare.override(wrappers=["time_limit:5"])):
        contender = at_once(plan(spec))
        assert contender.side == "reference"
        assert contender.name == f"{usable_cores()} processes at once"
        sampler = contender.open()
        assert sampler.sample(0.01)["rate"] > 0
        sampler.close()


def _broken():
    raise RuntimeError("no such game")


def test_an_environment_that_cannot_be_made_is_told():
    with pytest.raises(VecwrapError, match="RuntimeError: no such game"):
        AtOnce(loop, _broken, 2)
    assert not multiprocessing.active_children()
