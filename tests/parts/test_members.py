"""Nothing is shared with what was put in or is given out, whatever form it has."""

import numpy as np
import pytest
from gymnasium import spaces

from vecwrap.rows.batch import object_array
from vecwrap.rows.members import LastRows, Line

BOX = spaces.Box(-9, 9, (1,), np.float64)


@pytest.mark.parametrize("space", [BOX, spaces.Sequence(BOX)], ids=["array", "object"])
def test_nothing_is_shared(space):
    def rows(value):
        return np.full((2, 1), value) if space is BOX else object_array([np.full(1, value) for _ in range(2)])

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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fraction", [0.5, 0.9, 1.0])
def test_bounds_near_the_largest_float_are_scaled_without_overflow(dtype, fraction):
    most = dtype(np.finfo(dtype).max * fraction)
    huge, unit = spaces.Box(-most, most, (1,), dtype), spaces.Box(0, 1, (1,), dtype)
    values = np.array([[-most], [-most / 2], [0], [most / 2], [most]], dtype)
    parts = np.array([[0], [0.25], [0.5], [0.75], [1]], dtype)
    with np.errstate(all="raise"):
        scaled, back = Line(huge, unit)(values), Line(unit, huge)(parts)
    assert scaled[[0, -1]].tolist() == [[0], [1]]
    assert back[[0, -1]].tolist() == [[-most], [most]]
    np.testing.assert_allclose(scaled, parts, rtol=np.finfo(dtype).eps)
    np.testing.assert_allclose(back / most, values / most, atol=np.finfo(dtype).eps)
