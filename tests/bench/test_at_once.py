"""One process for each core, all of them at work at the same time: each for itself, or in step."""

import contextlib
import functools
import itertools
import multiprocessing
import os
import signal
import threading
import time

import gymnasium
import pytest
from gymnasium import spaces

from tests.waiting import LONG
from vecwrap.backends.cores import usable_cores
from vecwrap.bench import ours
from vecwrap.bench.at_once import AtOnce, InStep
from vecwrap.bench.contender import SEED
from vecwrap.bench.ours import at_once, in_step, loop
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
    for link in sampler._processes._links:  # an interrupt while they are asked: their answers are read by nobody
        link.send(0.01)
        assert link.poll(60)
    sampler.close()
    assert [process.exitcode for process in processes] == [0, 0]
    assert capfd.readouterr().err == ""


def sample_once(contender, name):
    assert (contender.side, contender.name) == ("reference", name)
    with contextlib.closing(contender.open()) as sampler:
        assert sampler.sample(0.01)["rate"] > 0


def test_the_reference_has_the_layers_of_the_sub_environments(tmp_path):
    bare = PipelineSpec("CartPole-v1", n=2, backend="dummy")
    for spec in (bare, bare.override(wrappers=["time_limit:5"])):
        sample_once(at_once(plan(spec)), f"{usable_cores()} processes at once")


def _broken():
    raise RuntimeError("no such game")


@pytest.mark.parametrize(
    "open_it", [lambda: AtOnce(loop, _broken, 2), lambda: InStep([_broken] * 3, 2)], ids=["at once", "in step"]
)
def test_an_environment_that_cannot_be_made_is_told(open_it):
    with pytest.raises(VecwrapError, match="RuntimeError: no such game"):
        open_it()
    assert not multiprocessing.active_children()


class Noted(gymnasium.Env):
    """Writes down its steps, from when to when each of them lasted, and its resets."""

    observation_space = action_space = spaces.Discrete(2)

    def __init__(self, file, raises_at=None):
        self.file = file.open("w")
        self.seconds = 1e-3 if file.name == "row0" else 0.0  # some rows are slow
        self.steps = 0
        self.raises_at = raises_at

    def reset(self, *, seed=None, options=None):
        self.file.write(f"reset {seed}\n")
        return 0, {}

    def step(self, action):
        begun = time.monotonic()
        self.steps += 1
        if self.steps == self.raises_at:
            raise RuntimeError("no such move")
        time.sleep(self.seconds)
        self.file.write(f"step {begun} {time.monotonic()}\n")
        self.file.flush()
        return 0, 0.0, self.steps % 3 == 0, self.steps % 5 == 0, {}

    def close(self):
        self.file.write("closed\n")
        self.file.close()


def test_rows_in_step_wait_for_each_other_after_every_vector_step(tmp_path):
    files = [tmp_path / f"row{i}" for i in range(5)]
    sampler = InStep([functools.partial(Noted, file) for file in files], 2)
    assert len(multiprocessing.active_children()) == 2
    assert 0 < sampler.sample(0.05)["rate"] <= 5 * 1000  # each vector step sleeps a millisecond at least
    assert sampler._run(16) == 5 * 16  # the rate is of all rows
    sampler.close()
    assert not multiprocessing.active_children()
    noted = [[line.split() for line in file.read_text().splitlines()] for file in files]
    assert [lines[0] for lines in noted] == [["reset", str(SEED + i)] for i in range(5)]
    assert all(lines[-1] == ["closed"] for lines in noted)
    steps = [[(float(line[1]), float(line[2])) for line in lines if line[0] == "step"] for lines in noted]
    assert len({len(each) for each in steps}) == 1
    assert len(steps[0]) > 16
    for before, after in itertools.pairwise(zip(*steps, strict=True)):
        assert max(end for _, end in before) <= min(begin for begin, _ in after)
    for lines, each in zip(noted, steps, strict=True):
        ends = sum(number % 3 == 0 or number % 5 == 0 for number in range(1, len(each) + 1))
        assert lines.count(["reset", "None"]) == ends


def test_the_words_of_rows_in_step_are_nobody_elses(tmp_path):
    sampler = InStep([functools.partial(Noted, tmp_path / f"row{i}") for i in range(2)], 2)
    sampler._run(1)
    others = [multiprocessing.get_context("spawn").RawArray("q", 16) for _ in range(20)]  # as peers have them
    sampler._run(3)
    sampler.close()
    assert not any(any(words) for words in others)


def test_a_row_that_raises_is_told_and_nobody_waits_for_it(tmp_path):
    files = [tmp_path / f"row{i}" for i in range(2)]
    sampler = InStep([functools.partial(Noted, files[0]), functools.partial(Noted, files[1], 7)], 2)
    with pytest.raises(VecwrapError, match="RuntimeError: no such move"):
        sampler.sample(5.0)
    closing = threading.Thread(target=sampler.close, daemon=True)
    closing.start()
    closing.join(LONG)
    assert not closing.is_alive()
    assert not multiprocessing.active_children()


def test_the_reference_in_step_has_every_row_of_an_id_too(monkeypatch):
    made = []
    monkeypatch.setattr(ours, "InStep", lambda makes, processes: made.append((makes, processes)))
    for layers in ([], ["time_limit:5"]):
        contender = in_step(plan(PipelineSpec("CartPole-v1", n=5, backend="dummy", wrappers=layers)))
        contender.open()
        makes, processes = made.pop()
        assert (len(makes), processes) == (5, min(5, usable_cores()))
        assert contender.name == f"{processes} processes in step"
        limits = [make().spec.max_episode_steps for make in makes]
        assert limits == [5 if layers else 500] * 5


def test_the_reference_in_step_has_every_row_of_the_pipeline(tmp_path):
    files = [tmp_path / f"row{i}" for i in range(3)]
    spec = PipelineSpec([functools.partial(Noted, file) for file in files], backend="dummy")
    for given in (spec, spec.override(wrappers=["time_limit:1"])):
        sample_once(in_step(plan(given)), f"{min(3, usable_cores())} processes in step")
        resets = [file.read_text().count("reset") for file in files]
        assert resets[0] == resets[1] == resets[2]
        ended_always = resets[0] - 1 == files[0].read_text().count("step")
        assert ended_always == (given is not spec)  # where the time limit is in there
