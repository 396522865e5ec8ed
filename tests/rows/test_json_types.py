"""A type in JSON schema takes what ``checked`` takes: two libraries read one annotation, and must agree."""

import enum
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vecwrap.cli.schema import json_type
from vecwrap.errors import SpecError
from vecwrap.pipeline.signatures import checked


class Padding(enum.Enum):
    """As a wrapper's own type might be."""

    ZERO = "zero"
    FIRST = "first"


ANNOTATIONS: list[Any] = [
    int, float, bool, str, None, Any, object, int | None, bool | None, float | tuple[float, ...], tuple[int, int],
    tuple[str, ...] | None, list[int], dict[str, int], Literal["zero", "first"], Literal["a", 3, None], Path,
    os.PathLike[str], str | os.PathLike[str] | None, Padding, Padding | None, Callable[[int], bool],
    Callable[[int], bool] | None, Callable[[int], bool] | int, type, type[int] | None, np.floating | np.ndarray,
    np.integer, np.ndarray, tuple[int | str, ...],
]  # fmt: skip
TEXTS = ["zero", "a", "", "my_pkg:when", "my_pkg.sub:Class.method", "1:2", "a:", "a.:b"]
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, -1.5]) | st.sampled_from(TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=5,
)


ONE_OF_EACH = [1, 0.5, "zero", "b", "my_pkg:when", None, True, [1, 2], ["a"], [0.5], {"a": 1}, [], {}]


@pytest.mark.parametrize("annotation", ANNOTATIONS, ids=str)
def test_an_editor_refuses_what_the_plan_refuses(annotation: Any) -> None:
    schema = json_type(annotation)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)

    def fits(value: Any) -> bool:
        try:
            checked(value, annotation, "here")
        except SpecError:
            return False
        return True

    @given(values)
    def agree(value: Any) -> None:
        assert validator.is_valid(value) is fits(value)

    agree()
    assert [validator.is_valid(value) for value in ONE_OF_EACH] == [fits(value) for value in ONE_OF_EACH]
    kinds = {fits(value) for value in ONE_OF_EACH}
    nothing = annotation is np.ndarray
    assert kinds == ({True} if annotation in (Any, object) else {False} if nothing else {True, False})


def test_a_type_that_is_not_known_is_left_open() -> None:
    assert json_type("NotEvaluated") == {}
    assert json_type(tuple[str | Path, ...]) == {}
