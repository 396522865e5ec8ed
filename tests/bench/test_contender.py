"""What a sample is, by a clock that only moves when something runs."""

import numpy as np
import pytest
from gymnasium import spaces

from vecwrap.bench.contender import CannotRun, Steps, Throughput, action_batches, peer_module


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
    run = Steps(taken.append, ["a", "b", "c"], rows=5)
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
    with pytest.raises(CannotRun, match=r"no_such_peer is not installed: pip install torch no-such-peer"):
        peer_module("no_such_peer.venv", "torch no-such-peer")
