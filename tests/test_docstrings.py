"""Every public name says what it is: its arguments, its errors, its arrays' shapes and dtypes, and
an example.

What a program can check is checked here, by the source and the signature; that the examples are
true is what ``--doctest-modules`` sees to.
"""

import ast
import inspect
import re
import textwrap
from functools import cache
from pathlib import Path

import pytest

import vecwrap
from vecwrap import errors, testing
from vecwrap.env.backend import Backend
from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.pipeline import registry

PAGE = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
FACES = [VecEnv, VecEnvWrapper]  # whose methods stand in the reference, each with its use
# Not for users.
OF_THE_CHAIN = {
    "normalizers",
    "new_fast_path",
    "close_at_exit",
    "before_reset",
    "refuse_wrapper_state",
}
ARRAYS = re.compile(r"\b(NDArray|FloatArray|BoolArray|IntArray)\b")
SHAPE = re.compile(r"\([a-z],[^)]*\)|\(height, width")
DTYPE = re.compile(r"\b(u?int\d*|float\d*|bool)\b")


def named(table):
    """Our own classes and functions of a table of names; those of other packages are theirs to
    describe.
    """
    targets = [table.entry(name).target for name in table.names()]
    return [table.find(target, "") for target in targets if str(target).startswith("vecwrap.")]


REFERENCE = [getattr(vecwrap, name) for name in vecwrap.__all__ if name != "__version__"]
REFERENCE += [getattr(testing, name) for name in testing.__all__ if not name.isupper()]
PUBLIC = list(
    dict.fromkeys([*REFERENCE, *named(registry.wrappers), *named(registry.backends), Backend])
)


def methods(cls):
    """Public methods and properties that a class adds to its bases, by name; those that it
    overrides are theirs.
    """
    bases = () if cls is VecEnv else cls.__mro__[1:]  # which says more than Gymnasium
    for name, member in vars(cls).items():
        value = getattr(member, "__func__", getattr(member, "fget", member))
        is_alias = getattr(value, "__name__", name) != name or name in OF_THE_CHAIN
        if inspect.isfunction(value) and not (
            name.startswith("_") or is_alias or any(name in vars(b) for b in bases)
        ):
            yield name, value


def name_of(documented):
    return f"{documented.__module__}.{documented.__qualname__}"


def subjects():
    """What has a docstring, and the function that it speaks of."""
    for each in PUBLIC:
        yield each, each.__init__ if inspect.isclass(each) else each
        if inspect.isclass(each) and each in REFERENCE:
            for _, method in methods(each):
                yield method, method


SUBJECTS = list(subjects())


def sections(documented):
    """The text of each section of a Google-style docstring: what is indented below a title."""
    text = inspect.getdoc(documented) or ""
    return dict(re.findall(r"^([A-Z][\w' ]+):\n((?:[ ]+.*\n?|\n)+)", text, re.MULTILINE))


def entries(section):
    """The names at the left of a section."""
    heads = re.findall(r"^([*\w][\w.*, ]*):", textwrap.dedent(section), re.MULTILINE)
    return {name.strip(" *") for head in heads for name in head.split(",")}


def described(documented, *titles):
    """The names in sections of a docstring; of a class also those that its bases describe."""
    texts = documented.__mro__ if inspect.isclass(documented) else [documented]
    texts = [each for each in texts if each.__module__.startswith("vecwrap.")]
    texts += [vecwrap.build] if documented is vecwrap.PipelineSpec else []  # which it refers to
    return {
        name
        for each in texts
        for title in titles
        for name in entries(sections(each).get(title, ""))
    }


def raised(function):
    """Names of our errors that the body of a function raises by name."""
    if function.__code__.co_filename.startswith("<"):  # made by dataclass
        return set()
    kinds = {name for name, kind in vars(errors).items() if inspect.isclass(kind)}
    calls = [node.exc for node in ast.walk(tree(function)) if isinstance(node, ast.Raise)]
    return {
        call.func.id
        for call in calls
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    } & kinds


@cache
def tree(function):
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def is_ours(function):
    return inspect.isfunction(function) and function.__module__.startswith("vecwrap.")


def offenders(rule, subjects=None):
    """The names of those that break a rule, which takes what has a docstring and the function that
    it speaks of.
    """
    return [
        name_of(documented)
        for documented, called in subjects or SUBJECTS
        if not rule(documented, called)
    ]


def test_each_has_a_summary():
    assert (
        offenders(
            lambda documented, called: re.match(r"[^\n]+[.:]", inspect.getdoc(documented) or "")
        )
        == []
    )


def test_each_has_an_example():
    pairs = [(each, each) for each in PUBLIC]
    assert offenders(lambda documented, called: ">>> " in (documented.__doc__ or ""), pairs) == []


def has_its_arguments(documented, called):
    if not is_ours(called):
        return True
    taken = {*inspect.signature(called).parameters} - {"self", "cls"}
    known = described(documented, "Args", *(["Attributes"] * inspect.isclass(documented)))
    return taken <= known and entries(sections(documented).get("Args", "")) <= taken


def test_the_arguments_of_each_are_those_that_are_described():
    assert offenders(has_its_arguments) == []


def test_the_errors_that_each_raises_are_described():
    assert (
        offenders(
            lambda each, called: not is_ours(called) or raised(called) <= described(each, "Raises")
        )
        == []
    )


def has_shapes_and_dtypes(documented, called):
    if not is_ours(called) or not ARRAYS.search(
        " ".join(map(str, called.__annotations__.values()))
    ):
        return True
    text = inspect.getdoc(documented)
    return SHAPE.search(text) and DTYPE.search(text)


def test_arrays_that_each_takes_or_gives_have_a_shape_and_a_dtype():
    assert offenders(has_shapes_and_dtypes) == []


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
def test_each_method_of_a_face_is_used_in_an_example(face):
    unused = []
    for name, method in methods(face):
        text = f"{face.__doc__}\n{method.__doc__}\n{PAGE}"
        lines = re.findall(r"^\s*(?:>>>|\.\.\.) (.*)", text, re.MULTILINE)
        if not re.search(rf"(\.|def ){name}\b", "\n".join(lines)):
            unused.append(name)
    assert not unused
