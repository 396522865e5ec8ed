"""Arguments are checked against a wrapper's signature, strictly."""

import enum
import os
import typing
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import gymnasium
import numpy as np
import pytest

from vecwrap.cli.names import summary
from vecwrap.errors import SpecError
from vecwrap.pipeline.elements import WrapperSpec
from vecwrap.pipeline.signatures import REQUIRED, Signature, annotation_text, checked
from vecwrap.pipeline.values import to_file

if TYPE_CHECKING:
    from nowhere import Unknown


class Padding(enum.Enum):
    ZERO = "zero"


def stack(
    env: Any, k: int, padding: Literal["zero", "first"] = "zero", *, scale: float | None = None
) -> Any:
    """Stack.

    More.
    """


def bind(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    wrapper = WrapperSpec("stack", args, kwargs)
    return Signature.of(function).bind(
        wrapper.args, wrapper.kwargs, wrapper.where, wrapper.where_argument
    )


def test_positions_become_names_and_defaults_are_known() -> None:
    bound = bind(stack, 4, scale=2)
    assert (bound.args, bound.kwargs, bound.defaults) == (
        (),
        {"k": 4, "scale": 2.0},
        {"padding": "zero"},
    )
    assert bound.complete == {"k": 4, "scale": 2.0, "padding": "zero"}
    assert type(bound.kwargs["scale"]) is float


def test_a_default_that_a_file_can_hold_is_filled_in_where_its_type_gives_it_back() -> None:
    def wrapper(
        env: Any,
        kind: Padding = Padding.ZERO,
        kinds: tuple[Padding, ...] = (Padding.ZERO,),
        file: Path = Path("levels"),
        ids: frozenset[int] = frozenset({1, 2}),
        table: dict[str, Padding] = {"a": Padding.ZERO},  # noqa: B006
        untyped: Any = Padding.ZERO,  # a file would give "zero"
        untyped_ids: Any = frozenset({1}),  # and a list
        dtype: Any = np.float32,
        array: Any = np.zeros(2),  # noqa: B008
    ) -> None: ...

    bound = bind(wrapper)
    assert len(bound.defaults) == 9
    assert set(bound.complete) == {"kind", "kinds", "file", "ids", "table"}
    written = {key: to_file(value, key) for key, value in bound.complete.items()}
    assert written == {
        "kind": "zero",
        "kinds": ["zero"],
        "file": "levels",
        "ids": [1, 2],
        "table": {"a": "zero"},
    }
    assert bind(wrapper, **written).kwargs == bound.complete
    assert bind(wrapper, kind="zero", ids=[2, 1]).complete == bound.complete


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (("four",), {}, 'wrapper "stack", argument k: expected int, got "four".'),
        ((4.0,), {}, 'wrapper "stack", argument k: expected int, got 4.0.'),
        ((True,), {}, 'wrapper "stack", argument k: expected int, got true.'),
        (
            (4, "zeros"),
            {},
            'wrapper "stack", argument padding: expected "zero" or "first", got "zeros".',
        ),
        ((4,), {"scale": "2"}, 'wrapper "stack", argument scale: expected float or null, got "2".'),
        (
            (4,),
            {"pading": "zero"},
            'wrapper "stack", argument pading: unknown argument. Did you mean "padding"? It takes ',
        ),
        (
            (),
            {},
            'wrapper "stack": the argument k: int is missing.',
        ),
        (
            (4,),
            {"k": 3},
            (
                'wrapper "stack", argument k: is given twice, by its name and as number 1 of '
                "those without."
            ),
        ),
        (
            (4, "zero", 2.0),
            {},
            (
                'wrapper "stack": expected at most 2 without a name, got 3 arguments. It takes '
                "(k: int, "
            ),
        ),
    ],
)
def test_an_argument_that_does_not_fit_is_told(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError) as error:
        bind(stack, *args, **kwargs)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("value", "annotation", "result"),
    [
        (4, float, 4.0),
        (4, int | float, 4),
        ([1, 2], tuple[int, int], (1, 2)),
        ("runs", Path, Path("runs")),
        ("runs", str | os.PathLike[str] | None, "runs"),
        ("zero", Padding, Padding.ZERO),
        (Padding.ZERO, Padding, Padding.ZERO),
        ("anything", "NotEvaluated", "anything"),
        (len, Callable[[Any], int], len),
    ],
)
def test_a_value_becomes_what_the_type_wants(value: Any, annotation: Any, result: Any) -> None:
    found = checked(value, annotation, "here")
    assert found == result
    assert type(found) is type(result)


@pytest.mark.parametrize(
    ("value", "annotation", "fits"),
    [
        (1, np.floating | np.ndarray, True),
        (0.5, np.floating | np.integer | np.ndarray, True),
        (1, np.integer | np.ndarray, True),
        (0.5, np.number, True),
        (0.5, np.float32 | None, True),
        (0.5, np.integer | np.ndarray, False),
        (True, np.integer, False),
        ("1", np.floating, False),
    ],
)
def test_numbers_stand_for_numpys_as_gymnasiums_wrappers_ask_for_them(
    value: Any, annotation: Any, fits: bool
) -> None:
    if fits:
        assert checked(value, annotation, "here") == value
    else:
        with pytest.raises(SpecError, match="^here: expected"):
            checked(value, annotation, "here")


@pytest.mark.parametrize(
    "annotation",
    [Callable, Callable[[float], float], typing.Callable[[float], float] | None],
    ids=str,
)
def test_a_callable_fits_where_one_is_asked_for(annotation: Any) -> None:
    assert checked(abs, annotation, "here") is abs
    with pytest.raises(SpecError, match="^here: expected"):
        checked("abs", annotation, "here")


def test_a_type_that_cannot_be_found_is_not_checked() -> None:
    def wrapper(env: Any, a: "Unknown", b: int = 3) -> None: ...

    assert bind(wrapper, object(), 4).kwargs["b"] == 4
    with pytest.raises(SpecError, match='expected int, got "x"'):
        bind(wrapper, None, "x")


def test_a_default_of_another_type_may_be_given() -> None:
    def wrapper(env: Any, a: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    assert bind(wrapper, None).kwargs == {"a": None}


def test_a_default_that_is_not_quite_of_its_type_is_one_default_however_it_is_written() -> None:
    def wrapper(
        env: Any,
        limit: float = 1000,
        size: tuple[float, float] = (0, 1),
        names: str = 5000,  # type: ignore[assignment]
    ) -> None: ...

    written = {"limit": 1000.0, "size": (0.0, 1.0), "names": 5000}
    for kwargs in ({}, {"limit": 1000}, {"limit": 1000.0}, {"size": [0.0, 1]}, written):
        bound = bind(wrapper, **kwargs)
        assert "limit" not in bound.kwargs
        assert {name: repr(value) for name, value in bound.complete.items()} == {
            name: repr(value) for name, value in written.items()
        }
    assert bind(wrapper, limit=7).kwargs == {"limit": 7.0}
    with pytest.raises(SpecError, match="expected text, got 5001"):
        bind(wrapper, names=5001)


def test_the_word_none_is_said_in_a_line_as_everywhere() -> None:
    def wrapper(
        env: Any, pooling: Literal["none", "max"] = "max", other: Literal["none"] | None = None
    ) -> None: ...

    assert bind(wrapper, pooling=None, other=None).kwargs == {"pooling": "none", "other": None}


def test_any_number_and_any_name() -> None:
    def wrapper(env: Any, a: int, *rest: Any, **more: Any) -> None: ...

    bound = bind(wrapper, 1, 2, 3, other=4)
    assert (bound.args, bound.kwargs) == ((1, 2, 3), {"other": 4})


def test_the_parameters_of_a_class_leave_the_environment_out() -> None:
    parameters = Signature.of(gymnasium.wrappers.TimeLimit).parameters
    assert [(p.name, p.annotation, p.default) for p in parameters] == [
        ("max_episode_steps", int, REQUIRED)
    ]
    with pytest.raises(SpecError, match=r"It takes no arguments\."):
        Signature(()).bind((), {"x": 1}, "here", lambda key, name: "here")


def test_words() -> None:
    assert summary(stack) == "Stack."
    assert annotation_text(os.PathLike[str]) == "a path"
    assert str(Signature.of(stack).parameters[1]) == 'padding: "zero" or "first" = "zero"'
