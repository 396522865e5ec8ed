"""Rounds, with contenders that only take notes: who is measured when, and what becomes of one that fails."""

import pytest

from vecwrap.bench.contender import CannotRun, Contender
from vecwrap.bench.rounds import measure_rounds
from vecwrap.errors import PlanError, VecwrapError


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


def test_each_round_measures_everyone_once_and_begins_with_another():
    log = []
    measured = measure_rounds([contender(name, log) for name in "abc"], 4, 1.0)
    order = sampled(log, 1.0)
    assert ["".join(order[i : i + 3]) for i in range(0, 12, 3)] == ["abc", "bca", "cab", "abc"]
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


@pytest.mark.parametrize("error", [PlanError("no such layer"), ZeroDivisionError("wheel")])
def test_what_fails_on_our_side_is_raised_and_everything_is_closed(error):
    def fail():
        raise error

    log = []
    with pytest.raises(VecwrapError, match=str(error)):
        measure_rounds([contender("a", log), Contender("ours", "ours", fail)], 1, 1.0)
    assert ("a", "close", None) in log


def test_names_are_different():
    with pytest.raises(ValueError, match="different names"):
        measure_rounds([contender("a", []), contender("a", [])], 1, 1.0)
