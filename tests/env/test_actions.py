"""Actions: every way to write them gives the same batch, and a wrong one says what is wrong."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate

from vecwrap.errors import ArgumentError
from vecwrap.rows.batch import row
from vecwrap.rows.gymnasium_form import conform_actions, refuse_outside

SPACES = {
    "discrete": spaces.Discrete(5, start=-2),
    "box": spaces.Box(-1, 1, (2, 3), np.float32),
    "scalar box": spaces.Box(-1, 1, (), np.float64),
    "binary": spaces.MultiBinary((2, 2)),
    "multi": spaces.MultiDiscrete([3, 4]),
    "text": spaces.Text(6),
    "dict": spaces.Dict(
        a=spaces.Discrete(3), b=spaces.Tuple((spaces.Box(0, 1, (2,)), spaces.Text(3)))
    ),
    "tuple": spaces.Tuple((spaces.Discrete(3), spaces.Dict(x=spaces.MultiBinary(2)))),
    "graph": spaces.Graph(spaces.Box(0, 1, (2,)), None),
    "sequence": spaces.Sequence(spaces.Discrete(3)),
}


def equal(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return np.array_equal(one, other)


@pytest.mark.parametrize("name", SPACES)
def test_the_batched_form_and_a_list_of_actions_are_the_same(name):
    space = SPACES[name]
    batched = batch_space(space, 4)
    batched.seed(3)
    actions = batched.sample()
    rows = list(iterate(batched, actions))
    from_batch = conform_actions(space, actions, 4)
    from_list = conform_actions(space, rows, 4)
    for i in range(4):
        assert equal(row(from_batch, i), rows[i])
        assert equal(row(from_list, i), rows[i])


@pytest.mark.parametrize(
    ("space", "actions", "words"),
    [
        (spaces.Discrete(3), [0, 1], r"expected shape \(3,\).*got shape \(2,\)"),
        (spaces.Discrete(3), np.zeros((3, 1), int), r"expected shape \(3,\).*got shape \(3, 1\)"),
        (spaces.Discrete(3), [0.5, 1, 1], "expected dtype int64.*got float64"),
        (spaces.Discrete(3), 1, r"got shape \(\)"),
        (spaces.Box(0, 1, (2,)), np.zeros((3, 3)), r"expected shape \(3, 2\).*got shape \(3, 3\)"),
        (spaces.Box(0, 1, (2,)), [[0, 1], [1]] * 2, "got a list of 4"),
        (
            spaces.Box(0, 1, (2,), np.float32),
            np.zeros((3, 2), complex),
            "expected dtype float32.*got complex128",
        ),
        (
            spaces.Dict(a=spaces.Discrete(2)),
            {"b": [0, 0, 0]},
            "members .'a'., batched or as a list, got a dict",
        ),
        (
            spaces.Dict(a=spaces.Discrete(2)),
            {"a": [0, 0]},
            r"actions\['a'\]: expected shape \(3,\)",
        ),
        (
            spaces.Tuple([spaces.Discrete(2)] * 2),
            [(0, 0)] * 2,
            "expected 3 actions with the members",
        ),
        (spaces.Text(3), ["a", "b"], "expected a sequence of 3"),
        (spaces.Text(3), "abc", "expected a sequence of 3"),
    ],
)
def test_wrong_actions_say_what_was_expected_and_what_came(space, actions, words):
    with pytest.raises(ArgumentError, match=words):
        conform_actions(space, actions, 3)


def test_values_of_the_same_kind_are_cast():
    assert conform_actions(spaces.Box(0, 1, (1,), np.float32), [[0.5], [1]], 2).dtype == np.float32
    assert conform_actions(spaces.Discrete(3), np.array([1, 2], np.int8), 2).dtype == np.int64
    assert conform_actions(spaces.Discrete(3), np.array([1, 2], np.uint64), 2).dtype == np.int64


def test_debug_names_the_first_action_outside_the_space():
    actions = conform_actions(spaces.Discrete(3), [0, 7], 2)
    with pytest.raises(
        ArgumentError,
        match=r"actions\[1\], for sub-environment 5: expected an element of Discrete\(3\)",
    ):
        refuse_outside(spaces.Discrete(3), actions, np.array([2, 5]), np.ones(2, bool))


@pytest.mark.parametrize(
    ("space", "actions"),
    [
        (spaces.Box(0, 255, (1,), np.uint8), [[300], [1]]),
        (spaces.Box(0, 255, (1,), np.uint8), [[3], [-1]]),
        (spaces.Discrete(3), np.array([1, 2**63], np.uint64)),
        (spaces.MultiBinary(1), np.array([[1], [200]])),
        (spaces.MultiDiscrete([3], dtype=np.int32), np.array([[1], [2**32]])),
        (spaces.Box(0, 255, (1,), np.uint16), np.array([[1], [-1]], np.int8)),
        (spaces.Box(0, 2**64 - 1, (1,), np.uint64), [[1], [-1]]),
        (spaces.Box(-1, 255, (1,), np.int64), np.array([[1], [2**64 - 1]], np.uint64)),
    ],
)
def test_integers_that_the_spaces_dtype_cannot_hold_are_refused_and_not_wrapped(space, actions):
    with pytest.raises(
        ArgumentError, match=f"actions: expected integers that {space.dtype} can hold, got"
    ):
        conform_actions(space, actions, 2)


INTEGERS = [np.dtype(code) for code in "bBhHiIqQ"]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_of_any_dtype_are_the_same_numbers_or_refused(dtype):
    limits = np.iinfo(dtype)
    space = spaces.Box(limits.min, limits.max, (1,), dtype)
    numbers = {0, 1, -1}
    for other in INTEGERS:
        numbers |= {np.iinfo(other).min, np.iinfo(other).max, np.iinfo(other).max // 2 + 1}
    for other in INTEGERS:
        for number in numbers:
            if not np.iinfo(other).min <= number <= np.iinfo(other).max:
                continue
            actions = np.array([[0], [number]], other)
            if limits.min <= number <= limits.max:
                cast = conform_actions(space, actions, 2)
                assert cast.dtype == dtype
                assert cast.tolist() == [[0], [number]]
            else:
                with pytest.raises(ArgumentError, match="can hold"):
                    conform_actions(space, actions, 2)
