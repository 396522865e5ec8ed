"""Pipelines in JSON: the values that Python's reader gives, each with its line."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vecwrap.errors import SpecError
from vecwrap.pipeline.files import read_json

numbers = st.integers(-(10**30), 10**30) | st.floats()
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=30,
)


def places(value: Any, steps: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a value, from the outside in and from the first to the last."""
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [steps, *(place for key, inner in inside for place in places(inner, (*steps, key)))]


@given(values, st.sampled_from([None, 0, 2, "\t"]), st.booleans())
def test_it_reads_what_python_reads(value: Any, indent: Any, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert repr(read_json(text, "p.json").value) == repr(json.loads(text))


@given(values)
def test_each_value_has_its_line(value: Any) -> None:
    document = read_json(json.dumps(value, indent=1), "p.json")
    # Python's writer begins a new line before each entry, so lines grow from entry to entry,
    # closing brackets apart.
    lines = [document.source.at(*place).location.line for place in places(value)]
    assert lines == sorted(lines)
    assert len(set(lines)) == len(lines)
    text = json.dumps(value, indent=1).splitlines()
    for place in places(value):
        if place and isinstance(place[-1], str):
            assert json.dumps(place[-1]) in text[document.source.at(*place).location.line - 1]


def test_what_is_beyond_json_but_written_by_python() -> None:
    value = read_json('{"a": NaN, "b": -Infinity, "c": 1e999}', "p.json").value
    assert math.isnan(value["a"])
    assert (value["b"], value["c"]) == (-math.inf, math.inf)
    assert read_json("", "p.json").value is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"n": 1,\n "seed": 2,\n "n": 3}',
            'p.json:3: the key "n" stands here for the second time; the first is in line 1.',
        ),
        (
            '{"n": 1,\n m}',
            "p.json:2: this is not JSON: Expecting property name enclosed in double quotes.",
        ),
        ('{"n": 1,\n "m" 2}', "p.json:2: this is not JSON: Expecting ':' delimiter."),
        (
            "{'n': 1}",
            "p.json:1: this is not JSON: Expecting property name enclosed in double quotes.",
        ),
        ('{"n": 1} {"n": 2}', "p.json:1: this is not JSON: Extra data."),
        (
            '\n{"n": ' + "9" * 5000 + "}",
            "p.json:2: a number of 5,000 digits is too long to be read.",
        ),
        ("[" * 41 + "]" * 41, "p.json:1: nested more than 40 deep."),
        ("[" * 100_000 + "]" * 100_000, "p.json: nested more than 40 deep."),
        (
            "[" + "1," * 100_000 + "1]",
            "p.json:1: the file stands for more than 100,000 values, aliases counted",
        ),
        (" " * 1_000_001, "p.json: expected a pipeline of at most 1 MB, got 1,000,001 characters."),
    ],
    ids=lambda text: text[:20],
)
def test_a_mistake_is_told_with_its_line(text: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        read_json(text, "p.json")
    assert str(error.value).startswith(message)
