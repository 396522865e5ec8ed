"""Samples, by a clock that only moves when something runs; rounds, with contenders that only take
notes.
"""

import numpy as np
import pytest
from gymnasium import spaces

from benchmarks.measure import CannotRun, Contender, measure_rounds, peer_module
from vecwrap.errors import PlanError, VecwrapError
from vecwrap.tools.throughput import Throughput, action_batches, make_stepper


class Clock:
    """Stands still but for what is added."""

    def __init__(self):
        self.now, self.looks = 0.0, 0

    def __call__(self):
        self.looks += 1
        return self.now


def timed(clock, seconds_a_step, rows=8, **more):
    """A contender whose vector step lasts so long; the counts that it was asked for."""
    asked = []

    def run(count):
        asked.append(count)
        clock.now += count * seconds_a_step
        return count * rows

    return Throughput(run, lambda: None, clock=clock, **more), asked


@pytest.mark.parametrize("seconds_a_step", [1e-6, 0.003, 7.0])
def test_the_rate_is_what_was_done_by_the_time_it_took(seconds_a_step):
    contender, _ = timed(Clock(), seconds_a_step)
    for _ in range(3):
        assert contender.sample(1.0)["rate"] == pytest.approx(8 / seconds_a_step)


def test_the_rate_of_one_process_is_multiplied_with_the_cores():
    contender, _ = timed(Clock(), 0.01, rows=1, factor=2)
    assert contender.sample(1.0)["rate"] == pytest.approx(200)


@pytest.mark.parametrize("seconds_a_step", [1e-6, 1e-4, 0.003])
def test_a_sample_lasts_as_long_as_asked_and_the_clock_is_looked_at_rarely(seconds_a_step):
    clock = Clock()
    contender, asked = timed(clock, seconds_a_step)
    contender.sample(1.0)
    start, looks, before = clock.now, clock.looks, len(asked)
    contender.sample(1.0)
    assert 1.0 <= clock.now - start < 1.2
    assert clock.looks - looks <= 22
    assert len(set(asked[before:])) == 1  # the chunk is found once and kept


def test_steps_take_the_actions_in_turn_and_count_rows():
    taken = []
    run = make_stepper(taken.append, ["a", "b", "c"], rows=5)
    assert (run(2), run(3)) == (10, 15)
    assert taken == ["a", "b", "c", "a", "b"]


def test_equal_spaces_draw_equal_actions():
    one, other = action_batches(spaces.Discrete(6), 4), action_batches(spaces.Discrete(6), 4)
    np.testing.assert_array_equal(one, other)
    assert len({batch.tobytes() for batch in one}) > 32


def test_batches_of_structures_can_be_had_as_lists_of_actions():
    space = spaces.Dict(a=spaces.Discrete(3), b=spaces.Box(-1, 1, (2,)))
    batch = action_batches(space, 4, as_list=True)[0]
    assert isinstance(batch, list)
    assert all(space.contains({"a": np.int64(action["a"]), "b": action["b"]}) for action in batch)
    assert isinstance(action_batches(spaces.Discrete(3), 4, as_list=True)[0], np.ndarray)


def test_a_peer_that_is_not_installed_is_named_with_its_line():
    with pytest.raises(
        CannotRun, match=r"no_such_peer is not installed: pip install torch no-such-peer"
    ):
        peer_module("no_such_peer.venv", "torch no-such-peer")


# -- rounds ----------------------------------------------------------------------------------------


class Noting:
    """Writes down what is asked of it; its k-th sample is worth k."""

    def __init__(self, name, log, fails_at=None):
        self.name, self.log, self.fails_at, self.samples = name, log, fails_at, 0

    def sample(self, seconds):
        self.log.append((self.name, "sample", seconds))
        self.samples += 1
        if self.samples == self.fails_at:
            raise BrokenPipeError("the other end is gone\nand more")
        return {"rate": float(self.samples)}

    def close(self):
        self.log.append((self.name, "close", None))
        raise OSError("what a peer says while it closes")


def contender(name, log, side="peer", **more):
    return Contender(name, side, lambda: Noting(name, log, **more), f"note of {name}")


def sampled(log, seconds):
    return [name for name, what, length in log if what == "sample" and length == seconds]


def test_each_round_measures_everyone_once_and_nobody_always_follows_the_same_one():
    log = []
    measured = measure_rounds([contender(name, log) for name in "abc"], 12, 1.0)
    order = sampled(log, 1.0)
    rounds = ["".join(order[i : i + 3]) for i in range(0, 36, 3)]
    assert {"".join(sorted(each)) for each in rounds} == {"abc"}
    assert {each[i : i + 2] for each in rounds for i in (0, 1)} == {
        "ab",
        "ac",
        "ba",
        "bc",
        "ca",
        "cb",
    }
    assert [m.name for m in measured] == ["a", "b", "c"]
    assert [m.note for m in measured] == ["note of a", "note of b", "note of c"]


def test_a_short_sample_beforehand_is_not_counted():
    log = []
    (measured,) = measure_rounds([contender("a", log)], 2, 1.0)
    assert log[0] == ("a", "sample", 0.25)
    assert measured.values("rate") == [2.0, 3.0]
    (cold,) = measure_rounds([contender("a", [])], 2, 1.0, warm_up=False)
    assert cold.values("rate") == [1.0, 2.0]


def test_all_are_open_before_the_first_is_measured_and_closed_after_the_last():
    log = []
    measure_rounds([contender(name, log) for name in "ab"], 1, 1.0)
    assert log.index(("b", "sample", 0.25)) < log.index(("a", "sample", 1.0))
    assert {name for name, what, _ in log[-2:] if what == "close"} == {"a", "b"}


def test_a_peer_that_cannot_take_part_says_why_and_the_others_go_on():
    def refuse():
        raise CannotRun("it is not installed: pip install it")

    log = []
    missing, there = measure_rounds([Contender("a", "peer", refuse), contender("b", log)], 2, 1.0)
    assert (missing.missing, missing.values("rate")) == ("it is not installed: pip install it", [])
    assert len(there.values("rate")) == 2


def test_a_peer_that_fails_halfway_loses_its_figures_and_no_one_elses():
    log = []
    failed, there = measure_rounds([contender("a", log, fails_at=3), contender("b", log)], 4, 1.0)
    assert failed.missing == "failed: BrokenPipeError: the other end is gone"
    assert failed.values("rate") == []
    assert len(there.values("rate")) == 4
    assert sampled(log, 1.0).count("a") == 2


@pytest.mark.parametrize("error", [PlanError("no such wrapper"), ZeroDivisionError("wheel")])
def test_what_fails_on_our_side_is_raised_and_everything_is_closed(error):
    def fail():
        raise error

    log = []
    with pytest.raises(VecwrapError, match=str(error)):
        measure_rounds([contender("a", log), Contender("ours", "ours", fail)], 1, 1.0)
    assert ("a", "close", None) in log
