"""Infos as columns: compared with Gymnasium's own where that is right, with plain Python where it
is not.
"""

import threading

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vecwrap.rows.compare import info_row
from vecwrap.rows.infos import columns, row_of, scatter_columns, snapshot, without_keys

VALUES = st.one_of(
    st.integers(-(2**40), 2**40),
    st.floats(allow_nan=False),
    st.booleans(),
    st.text(max_size=3),
    st.none(),
)
INFOS = st.recursive(
    st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner | VALUES, max_size=3),
    max_leaves=6,
)


def by_the_masks(infos, i):
    """Undo ``columns`` for one row, by the masks alone."""
    row = {}
    for key, value in infos.items():
        if not key.startswith("_") and infos[f"_{key}"][i]:
            row[key] = by_the_masks(value, i) if isinstance(value, dict) else value[i]
    return row


@given(st.lists(INFOS, min_size=1, max_size=5))
def test_the_masks_give_every_row_back(rows):
    infos = columns(rows)
    for i, row in enumerate(rows):
        assert by_the_masks(infos, i) == row_of(infos, i) == row


def test_a_column_without_a_mask_is_of_all_rows():
    infos = {
        "lives": np.array([3, 2]),
        "_lives": np.array([True, False]),
        "name": "engine",
        "time": np.array([7, 8]),
    }
    assert row_of(infos, 0) == {"lives": 3, "name": "engine", "time": 7}
    assert row_of(infos, 1) == {"name": "engine", "time": 8}


def test_a_batch_of_observations_is_a_column():
    """``terminal_obs`` reports such: dicts and tuples of arrays, with one mask outside."""
    batch = {
        "at": np.array([1.5, 2.5]),
        "hand": (np.array([[1, 2], [3, 4]]), np.array(["a", None], dtype=object)),
    }
    infos = {"last": batch, "_last": np.array([True, False])}
    expected = {"at": 1.5, "hand": (np.array([1, 2]), "a")}
    for row in (row_of(infos, 0), info_row(infos, 0)):
        assert row["last"]["at"] == expected["at"]
        np.testing.assert_array_equal(expected["hand"][0], row["last"]["hand"][0])
        assert row["last"]["hand"][1] == "a"
    assert row_of(infos, 1) == info_row(infos, 1) == {}
    whole = scatter_columns(infos, np.array([0, 2]), 3)
    assert whole["_last"].tolist() == [True, False, False]
    assert whole["last"]["at"].tolist() == [1.5, 0, 2.5]
    assert whole["last"]["hand"][0].tolist() == [[1, 2], [0, 0], [3, 4]]
    assert whole["last"]["hand"][1].tolist() == ["a", None, None]


def test_infos_with_mixed_types_are_promoted_over_the_batch():
    assert columns([{"x": 1}, {"x": 2.7}])["x"].tolist() == [1.0, 2.7]
    assert columns([{"x": 2.7}, {"x": 1}])["x"].dtype == np.float64
    assert columns([{"x": True}, {"x": 3}])["x"].tolist() == [1, 3]
    assert columns([{"x": np.float32(1.5)}, {"x": np.float64(0.1)}])["x"].tolist() == [1.5, 0.1]
    assert columns([{"x": 1}, {"x": "one"}])["x"].tolist() == [1, "one"]
    assert columns([{"x": 2**80}, {"x": 1}])["x"].tolist() == [2**80, 1]
    assert columns([{"x": 2**63}, {"x": 2**62 + 1}, {"x": -1}])["x"].tolist() == [
        2**63,
        2**62 + 1,
        -1,
    ]
    assert columns([{"x": 2**63}, {"x": 2**63 + 1}])["x"].dtype == np.uint64


def test_an_absent_value_is_zero_or_none():
    infos = columns([{}, {"n": 3, "b": True, "s": "x", "a": np.ones(2), "d": {"k": 1}}])
    assert infos["n"].tolist() == [0, 3]
    assert infos["b"].tolist() == [False, True]
    assert infos["s"].tolist() == [None, "x"]
    assert infos["a"].tolist() == [[0, 0], [1, 1]]
    assert infos["d"]["k"].tolist() == [0, 1]
    assert infos["_d"].tolist() == [False, True]


def test_arrays_of_unequal_shapes_are_objects():
    column = columns([{"x": np.ones(2)}, {"x": np.ones(3)}])["x"]
    assert column.dtype == object
    assert [value.shape for value in column] == [(2,), (3,)]


def test_a_column_does_not_depend_on_the_rows_that_came_before():
    assert columns([{"x": 1}])["x"].dtype == np.int64
    assert columns([{"x": 1.5}])["x"].dtype == np.float64


@pytest.mark.parametrize(
    "rows",
    [
        [{"n": 1, "f": 0.5}, {"n": 2, "f": 1.5}],
        [{"n": 1}, {}],
        [{"a": np.arange(3)}, {"a": np.arange(3)}],
        [{"s": "x"}, {"s": None}],
        [{"d": {"k": 1}}, {"d": {"k": 2}}],
    ],
)
def test_the_layout_is_gymnasiums(rows):
    vector = gymnasium.vector.VectorEnv()
    vector.num_envs = len(rows)
    theirs = {}
    for i, row in enumerate(rows):
        theirs = vector._add_info(theirs, row, i)
    assert_same(columns(rows), theirs)


def assert_same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for key in ours:
        if isinstance(ours[key], dict):
            assert_same(ours[key], theirs[key])
        else:
            assert ours[key].dtype == theirs[key].dtype
            assert ours[key].tolist() == theirs[key].tolist()


def test_a_snapshot_is_not_changed_by_what_the_environment_does_later():
    info = {"list": [1], "array": np.zeros(2), "nested": {"x": [1]}, "n": 1}
    kept = snapshot(info)
    info["list"].append(2)
    info["array"][0] = 5
    info["nested"]["x"].append(2)
    info["n"] = 2
    assert kept["list"] == [1]
    assert kept["array"].tolist() == [0, 0]
    assert kept["nested"] == {"x": [1]}
    assert kept["n"] == 1


def test_as_many_dicts_within_each_other_as_columns_can_be_made_of():
    nested = {}
    for _ in range(100):
        nested = {"d": nested}
    taken = snapshot(nested)
    assert taken == nested
    assert row_of(columns([taken]), 0) == nested
    with pytest.raises(
        ValueError, match=r"infos\['d'\]: expected at most 100 dicts within each other"
    ):
        snapshot({"d": nested})


def test_what_cannot_be_copied_is_kept_as_it_is():
    lock = threading.Lock()
    assert snapshot({"lock": lock})["lock"] is lock


def test_columns_of_some_rows_are_spread_over_all():
    infos = scatter_columns(columns([{"n": 5, "s": "x", "d": {"k": 1.5}}]), np.array([2]), 4)
    assert infos["n"].tolist() == [0, 0, 5, 0]
    assert infos["s"].tolist() == [None, None, "x", None]
    assert infos["d"]["k"].tolist() == [0, 0, 1.5, 0]
    assert infos["_n"].tolist() == [False, False, True, False]


def test_a_wrappers_column_of_texts_has_none_where_a_row_is_absent():
    infos = scatter_columns({"level": np.array(["cave"])}, np.array([1]), 3)
    assert infos["level"].tolist() == ["", "cave", ""]


def test_an_environments_own_key_in_a_masks_place_is_no_mask():
    for own in (np.arange(3), 0, {"y": 1}, np.zeros((2, 2), bool)):
        # Of an engine that takes no care.
        assert row_of({"x": np.array([5]), "_x": own}, 0)["x"] == 5


@pytest.mark.parametrize("order", [1, -1])
def test_a_key_in_a_masks_place_gets_another_name(order):
    rows = [
        dict([("success", True), ("_success", 7)][::order]),
        {"_success": 8},
        {"success": False},
        {},
    ]
    infos = columns(rows)
    assert infos.keys() == {"success", "_success", "_success_", "__success_"}
    assert infos["success"].tolist() == [True, False, False, False]
    assert infos["_success"].tolist() == [True, False, True, False]
    assert infos["_success_"].tolist() == [7, 8, 0, 0]
    assert infos["__success_"].tolist() == [True, True, False, False]


NAMES = st.dictionaries(
    st.sampled_from(["x", "_x", "__x", "x_", "_x_", "__x_", "_x__"]), st.integers(), max_size=7
)


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_no_value_is_lost_whatever_the_keys(rows):
    infos, nested = columns(rows), columns([{"d": row} for row in rows])["d"]
    for i, row in enumerate(rows):
        assert (
            sorted(row_of(infos, i).values())
            == sorted(row_of(nested, i).values())
            == sorted(row.values())
        )
        assert {
            key: value for key, value in row_of(infos, i).items() if not key.startswith("_")
        } == {key: value for key, value in row.items() if not key.startswith("_")}


@given(NAMES, st.sampled_from(["x", "x_", "x__"]))
def test_room_is_made_for_a_name_and_its_mask_and_no_value_is_lost(row, key):
    infos = without_keys(columns([row]), key)
    assert {key, f"_{key}"}.isdisjoint(infos)
    assert sorted(row_of(infos, 0).values()) == sorted(row.values())


def test_what_can_be_copied_beside_what_cannot_is_copied():
    lock, endless = threading.Lock(), [threading.Lock()]
    endless.append(endless)
    info = {"deep": {"lock": lock, "list": [1, (lock, [2])]}, "endless": endless}
    kept = snapshot(info)
    info["deep"]["list"][1][1].append(3)
    info["deep"]["list"].append(4)
    endless.append(5)
    assert kept["deep"] == {"lock": lock, "list": [1, (lock, [2])]}
    assert len(kept["endless"]) == 2
    assert snapshot({"x": Refusing()})["x"].value == 1


class Refusing:
    value = 1

    def __deepcopy__(self, memo):
        raise RuntimeError("as it is")
