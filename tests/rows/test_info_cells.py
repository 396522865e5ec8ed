"""Infos as numbers in arrays: what is read is what was written, type for type, and columns are
those of the dicts.
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vecwrap.rows.info_cells import MAX_LAYOUTS, RowInfos
from vecwrap.rows.infos import columns
from vecwrap.testing import assert_same

VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.booleans(),
    st.floats(width=32).map(np.float32),
    st.integers(-9, 9).map(np.int32),
    st.integers(-9, 9).map(np.int64),
    st.booleans().map(np.bool_),
    st.sampled_from(["text", None, 2**70, np.zeros(2)]),
)
INFOS = st.lists(
    st.dictionaries(st.sampled_from(["a", "b", "_b", "c"]), VALUES, max_size=3),
    min_size=4,
    max_size=4,
)


def over_the_same_arrays(*bases):
    """Several over the same arrays, as processes have them."""
    arrays = []

    def allocate(shape, dtype):
        arrays.append(np.zeros(shape, dtype))
        return arrays[-1]

    cells = [RowInfos(4, allocate, base=bases[0])]
    for base in bases[1:]:
        again = iter(arrays)
        cells.append(RowInfos(4, lambda shape, dtype, again=again: next(again), base))
    return cells


def put(writer, row, info):
    """Put an info; whether it is in cells."""
    writer.put(row, info)
    return row not in writer.others


def pair():
    """A writer and a reader."""
    return over_the_same_arrays(MAX_LAYOUTS, 0)


@given(st.lists(INFOS, min_size=1, max_size=6))
def test_what_is_taken_is_given_back_and_columns_are_those_of_the_dicts(steps):
    writer, reader = pair()
    for infos in steps:
        taken = [put(writer, row, info) for row, info in enumerate(infos)]
        reader.add_layouts(writer.new_layouts(), MAX_LAYOUTS)
        for row, info in enumerate(infos):
            got = reader.get(row)
            if taken[row]:
                assert list(got) == list(info)
                assert [type(value) for value in got.values()] == [
                    type(value) for value in info.values()
                ]
                assert_same(info, got, "info")
            else:
                assert got == {}
        keys = {key for info in infos for key in info}
        if all(taken):
            found = reader.columns(slice(None), range(4))
            # A mask would take an info's place: `columns` renames.
            if any(f"_{key}" in keys for key in keys):
                assert_same(columns(infos), found, "columns")
                continue
            assert list(found) == list(columns(infos))
            assert_same(columns(infos), found, "columns")
            of_few = columns([{}, infos[1], {}, infos[3]])
            found = reader.columns(slice(None), range(4), [1, 3])
            assert sorted(found) == sorted(of_few)
            assert_same(of_few, found, "columns of few")
            assert_same(
                columns([infos[2], infos[0]]),
                reader.columns(np.array([2, 0]), [2, 0]),
                "columns of some",
            )


def test_rows_of_one_form_are_columns_at_once_also_where_two_writers_learnt_it():
    writer, reader, other = over_the_same_arrays(MAX_LAYOUTS, 2 * MAX_LAYOUTS, 0)
    infos = [{"lives": 5 - row, "score": row / 2} for row in range(4)]
    for turn in range(2):
        taken = [put(writer if row < 2 else other, row, info) for row, info in enumerate(infos)]
        # A layout is learnt once by each.
        assert taken == [turn == 1 or row % 2 == 1 for row in range(4)]
        reader.add_layouts(writer.new_layouts(), MAX_LAYOUTS)
        reader.add_layouts(other.new_layouts())
    found = reader.columns(slice(None), range(4))
    assert_same(columns(infos), found, "columns")
    assert found["lives"].dtype == np.int64
    assert not reader.columns(np.array([], np.int64), [])
    found["lives"][0] = 99
    assert reader.get(0) == infos[0]  # the columns are the caller's own


def test_a_writer_learns_so_many_layouts_and_no_more():
    writer, _ = pair()
    for k in range(MAX_LAYOUTS + 5):
        writer.put(0, {f"key {k}": 1})
    assert len(writer.new_layouts()) == MAX_LAYOUTS
    assert put(writer, 0, {"key 1": 1})
    assert not put(writer, 0, {f"key {MAX_LAYOUTS + 1}": 1})
    assert not put(writer, 0, {f"key {MAX_LAYOUTS + 1}": 1})


def test_an_info_that_went_another_way_leaves_nothing_here():
    writer, reader = pair()
    for _ in range(2):
        writer.put(1, {"a": 1})
    reader.add_layouts(writer.new_layouts(), MAX_LAYOUTS)
    assert reader.get(1) == {"a": 1}
    reader.forget(1)
    assert reader.get(1) == {}
    assert put(writer, 1, {"a": 2})  # also where the writer does not know that it was forgotten
    assert reader.get(1) == {"a": 2}
    assert put(writer, 1, {})
    assert reader.get(1) == {}
