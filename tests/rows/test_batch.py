"""Batches: rows put from one into another, beside a naive loop over rows."""

import numpy as np
import pytest

from vecwrap.rows.batch import object_array, put_rows, row
from vecwrap.rows.compare import assert_same


def batch(kind, num_rows, start):
    numbers = np.arange(start, start + 3 * num_rows, dtype=np.float32).reshape(num_rows, 3)
    if kind == "array":
        return numbers
    objects = object_array([[start + i] for i in range(num_rows)])
    return {"object": objects, "dict": {"a": numbers, "b": (objects, numbers[:, 0].copy())}}[kind]


@pytest.mark.parametrize("kind", ["array", "object", "dict"])
@pytest.mark.parametrize("count", [1, 2, 4, 5, 9])
def test_rows_are_put_where_they_belong(kind, count):
    rng = np.random.default_rng(count)
    at, rows = rng.permutation(10)[:count], rng.permutation(12)[:count]
    target, source = batch(kind, 10, 0), batch(kind, 12, 100)
    expected = [
        row(source, rows[list(at).index(i)]) if i in at else row(target, i) for i in range(10)
    ]
    put_rows(target, list(zip(at.tolist(), rows.tolist(), strict=True)), source)
    for i in range(10):
        assert_same(expected[i], row(target, i), f"row {i}")


def test_objects_are_put_as_copies():
    target, source = batch("object", 3, 0), batch("object", 3, 100)
    put_rows(target, [(1, 2)], source)
    source[2].append("changed since")
    assert target.tolist() == [[0], [102], [2]]
