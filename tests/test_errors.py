"""Every error that a user meets is in ``vecwrap.errors``, whose docstring shows them as a tree."""

import ast
import builtins
import re
from pathlib import Path

import gymnasium.error

import vecwrap
from vecwrap import errors

PACKAGE = Path(errors.__file__).parent
# raised and caught within the package: what users see of them is another error's text
INTERNAL = {
    "CannotSaveError",
    "Different",  # an AssertionError, of the laws
    "DoesNotFit",
    "IllegalMoveError",
    "MakeError",
    "MeasureError",
    "SeveralAgentsError",
    "UnpickleError",
    "_GameFound",
    "_ParentExited",
}


def tree():
    """The names in the docstring's tree, each with its indentation and its other bases."""
    rows = re.findall(r"^    ( *)(\w+)(?: +\(([\w.]+)\))?  ", errors.__doc__, re.MULTILINE)
    return [(len(indent), name, base) for indent, name, base in rows]


def test_the_tree_has_every_public_error_once():
    names = [name for _, name, _ in tree() if name in errors.__all__]
    assert sorted(["VecwrapError", *names]) == errors.__all__
    assert sorted(errors.__all__) == errors.__all__


def test_the_tree_shows_what_derives_from_what():
    for indent, name, _ in tree():
        assert issubclass(getattr(errors, name), errors.VecwrapError) == bool(indent), name
    for _, name, other in tree():
        if other:
            given = getattr(builtins, other, None) or getattr(
                gymnasium.error, other.rpartition(".")[2]
            )
            assert issubclass(getattr(errors, name), given), name


def raised(path):
    """The names of classes that a file raises."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise) and node.exc is not None:
            called = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            name = getattr(called, "attr", None) or getattr(called, "id", "")
            if name[:1].isupper() or name[:2].strip("_")[:1].isupper():
                yield name


def test_no_other_kind_of_error_is_raised():
    names = {name for path in PACKAGE.rglob("*.py") for name in raised(path)}
    outside = {name for name in names if not hasattr(builtins, name) and name not in errors.__all__}
    assert outside - INTERNAL <= {"BadParameter", "Exit", "PicklingError"}, outside  # typer, pickle


def test_errors_at_the_top_are_the_same():
    at_the_top = [name for name in vecwrap.__all__ if name.endswith("Error")]
    assert len(at_the_top) == 5
    for name in at_the_top:
        assert getattr(vecwrap, name) is getattr(errors, name)
