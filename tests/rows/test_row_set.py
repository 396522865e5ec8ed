"""A set of rows beside Python's own, whatever is added, discarded and taken."""

import random

import pytest

from vecwrap.rows.row_set import RowSet

NUM_ROWS = 12


def some_rows(rng):
    """A range of rows, or single rows in any order."""
    if rng.random() < 0.6:
        first = rng.randrange(NUM_ROWS)
        return range(first, rng.randint(first + 1, NUM_ROWS))
    return rng.sample(range(NUM_ROWS), rng.randint(0, 4))


@pytest.mark.parametrize("seed", range(200))
def test_it_holds_what_a_set_holds(seed):
    rng = random.Random(seed)
    rows, expected = RowSet(), set()
    for _ in range(30):
        what = rng.choice(["add", "discard", "take"])
        some = some_rows(rng)
        if what == "add":
            rows.add(some)
            expected.update(some)
        elif what == "discard":
            rows.discard(some)
            expected.difference_update(some)
        else:
            is_there = expected.issuperset(some)
            assert rows.take(some) is is_there
            if is_there:
                expected.difference_update(some)
        assert bool(rows) is bool(expected)
        if rng.random() < 0.2:
            assert rows.as_set() == expected
    assert rows.as_set() == expected


@pytest.mark.parametrize(
    "rows", [[1, 1], [5], [-1], [0, 4], range(3, 5), range(-1, 2), range(0, 8, 4)]
)
def test_rows_that_are_not_there_once_each_are_not_taken(rows):
    own = RowSet(range(4))
    assert not own.take(rows)
    assert own.as_set() == {0, 1, 2, 3}


def test_every_other_row_is_taken_and_the_rows_between_are_left():
    own = RowSet(range(4))
    assert own.take(range(0, 4, 2))
    assert own.as_set() == {1, 3}
