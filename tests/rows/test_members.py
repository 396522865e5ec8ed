"""Nothing is shared with what was put in or is given out, whatever form it has."""

import numpy as np
import pytest
from gymnasium import spaces

from vecwrap.rows.batch import object_array
from vecwrap.rows.members import AffineMap, LastRows

BOX = spaces.Box(-9, 9, (1,), np.float64)


@pytest.mark.parametrize("space", [BOX, spaces.Sequence(BOX)], ids=["array", "object"])
def test_nothing_is_shared(space):
    def rows(value):
        return (
            np.full((2, 1), value)
            if space is BOX
            else object_array([np.full(1, value) for _ in range(2)])
        )

    def overwrite(array):
        for value in array:
            value[:] = 0

    last = LastRows(space, 2)
    given = rows(1.0)
    last.put(slice(None), given)
    for shared in (given, last.all(), last.state()[0]):
        overwrite(shared)
    assert [value[0] for value in last.all()] == [1, 1]
    state = last.state()
    other = LastRows(space, 2)
    other.load(state, "here")
    overwrite(state[0])
    assert [value[0] for value in other.all()] == [1, 1]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64])
@pytest.mark.parametrize("most", [1.0, float(np.finfo(np.float32).max)])
def test_the_whole_range_of_an_integer_is_scaled_without_overflow(dtype, most):
    limits = np.iinfo(dtype)
    line = AffineMap(
        spaces.Box(limits.min, limits.max, (1,), dtype), spaces.Box(-most, most, (1,), np.float32)
    )
    middle = (int(limits.min) + int(limits.max) + 1) // 2
    with np.errstate(all="raise"):
        scaled = line(np.array([[limits.min], [middle], [limits.max]], dtype))
    assert scaled[[0, 2]].tolist() == [[-np.float32(most)], [np.float32(most)]]
    assert abs(float(scaled[1, 0]) / most) <= 1.001 / (int(limits.max) - int(limits.min)) + 1e-7


def test_elements_of_any_size_are_scaled_side_by_side():
    low, high = (
        np.array([-1, -1e308, 0, -np.finfo(float).max]),
        np.array([1, 1e308, 5e-324, np.finfo(float).max]),
    )
    box, unit = spaces.Box(low, high, dtype=np.float64), spaces.Box(0, 1, (4,), np.float64)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        assert AffineMap(box, unit)(np.stack([low, high])).tolist() == [[0] * 4, [1] * 4]
        assert AffineMap(unit, box)(np.array([[0.0] * 4, [1.0] * 4])).tolist() == [
            low.tolist(),
            high.tolist(),
        ]
    assert AffineMap(box, unit)(np.zeros((1, 4)))[0].tolist() == [0.5, 0.5, 0, 0.5]
