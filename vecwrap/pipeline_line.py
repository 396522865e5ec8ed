"""A pipeline in one line: the environment, settings, then the layers after bars."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from vecwrap.backend_spec import BackendSpec
from vecwrap.errors import SpecError
from vecwrap.keys import KEYS
from vecwrap.scalars import quoted, write_scalar
from vecwrap.source import Source, fail, fail_where
from vecwrap.values import is_scalar, scalar, shown, split

__all__ = ["BACKENDS", "read_line", "show_line", "write_line"]

BACKENDS = ("backend", "eval.backend")  # in a line, the value of each of these is the backend's name
_WITH_OPTIONS = re.compile(r"=|:[^A-Za-z_]")  # of a backend: an import path has a name after its colon


def read_line(line: str) -> dict[str, Any]:
    """Return the keys of a pipeline that is written in one line; layers stay as written.

    Raises:
        SpecError: the line cannot be read.

    >>> read_line("CartPole-v1 n=4 backend=shmem backend.workers=2 | framestack:4 | monitor")
    {'env': 'CartPole-v1', 'n': 4, 'backend': {'name': 'shmem', 'workers': 2}, 'wrappers': ['framestack:4', 'monitor']}
    """
    source = Source()
    head, *layers = split(line, "|", source)
    words = [word for word in split(head, " \t\r\n", source) if word]
    if with_comma := [word for word in words if word.endswith(",")]:
        fail(source, f'expected spaces between the environment and its settings, got the comma of "{with_comma[0]}"')
    if not words:
        fail(source, "expected an environment id at the start of the line")
    if "=" in words[0] and words[0].partition("=")[0] in KEYS:
        fail(source, f'expected an environment id at the start of the line, got "{words[0]}"')
    data: dict[str, Any] = {"env": str(scalar(words[0], source)) if words[0][0] in "\"'" else words[0]}
    for word in words[1:]:
        key, equals, text = word.partition("=")
        if not equals:
            remedy = f'. Did you mean "n={word}"?' if word.isdecimal() else ""
            fail(source, f'expected key=value or a bar before a layer, got "{word}"{remedy}')
        if key.partition(".")[0] == "wrappers":
            fail_where(key, 'layers and their arguments stand after bars: "CartPole-v1 n=4 | framestack:4"')
        for part, value in _parts(key, scalar(text, source)):
            _set(data, part, value)
    for number, layer in enumerate(layers):
        if not layer.strip():
            fail_where(f"wrappers[{number}]", "nothing stands behind the bar; leave it out or name a layer")
    if layers:
        data["wrappers"] = [layer.strip() for layer in layers]
    return data


def write_line(data: Mapping[str, Any], layers: Iterable[str]) -> str:
    """Write a line that ``read_line`` reads back.

    Args:
        data: a pipeline's keys, as plain data; its layers are left out.
        layers: its layers, each as text.

    Raises:
        SpecError: something in it is not a scalar.
    """
    words = [_word(steps, value) for steps, value in _settings(data)]
    return " | ".join([" ".join([_env_word(data["env"]), *words]), *layers])


def show_line(data: Mapping[str, Any], layers: Iterable[str]) -> str:
    """Do as ``write_line`` for a line that need not be read back: what no line can hold is shown anyway."""
    env = data["env"]
    words = [_shown_word(steps, value) for steps, value in _settings(data)]
    return " | ".join([" ".join([_env_word(env) if isinstance(env, str) else shown(env), *words]), *layers])


def _parts(key: str, value: Any) -> list[tuple[str, Any]]:
    """Split a backend that is written with its options (``backend=shmem:workers=2``)."""
    if key not in BACKENDS or not isinstance(value, str) or not _WITH_OPTIONS.search(value):
        return [(key, value)]
    backend = BackendSpec.parse(value, Source(steps=tuple(key.split("."))))
    return [(key, backend.target), *((f"{key}.{name}", option) for name, option in backend.options.items())]


def _set(data: dict[str, Any], key: str, value: Any) -> None:
    """Put ``backend.workers=2`` and the like into nested dicts."""
    *steps, last = (f"{key}.name" if key in BACKENDS else key).split(".")
    if steps and KEYS.get(steps[0], KEYS["n"]).change is None:
        inside = ", ".join(name for name, known in KEYS.items() if known.change is not None and name != "wrappers")
        fail_where(key, f"only {inside} have settings of their own")
    for step in steps:
        data = data.setdefault(step, {})
        if not isinstance(data, dict):
            fail_where(key, f"is given twice: {step} stands there as {shown(data)} too")
    if last in data:
        fail_where(key, "is given twice")
    data[last] = value


def _env_word(env: str) -> str:
    """Write the environment, which a line begins with."""
    return quoted(env) if re.search(r"[\s\"'=|]", env) else env


def _settings(data: Mapping[str, Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """All but the environment and the layers."""
    return _leaves({name: value for name, value in data.items() if name not in ("env", "wrappers")})


def _leaves(data: Mapping[Any, Any], steps: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The leaves of nested data, each with the keys that lead to it."""
    for name, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*steps, name))
        else:
            yield (*steps, name), value


def _word(steps: tuple[Any, ...], value: Any) -> str:
    """Write ``key=value`` or ``key.key=value``."""
    key = ".".join(map(str, steps))
    for name in steps:
        if not isinstance(name, str) or re.search(r"[\s=|\"'.]", name):
            fail_where(key, f"the name {shown(name)} cannot be written in a line; write the pipeline as YAML")
    if not is_scalar(value):
        fail_where(key, f"{shown(value)} cannot be written in a line; write the pipeline as YAML")
    whole = key.removesuffix(".name")
    return f"{whole if whole in BACKENDS else key}={write_scalar(value)}"


def _shown_word(steps: tuple[Any, ...], value: Any) -> str:
    """The same, if ``parse`` need not read it back."""
    try:
        return _word(steps, value)
    except SpecError:
        return f"{'.'.join(map(str, steps))}={shown(value)}"
