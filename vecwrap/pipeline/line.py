"""One-line pipelines as data: the environment, settings with dots, then wrappers after bars."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from vecwrap.pipeline.elements import to_line
from vecwrap.pipeline.scalars import is_scalar, quoted, read_argument, split
from vecwrap.pipeline.source_map import SourceRef, fail
from vecwrap.pipeline.values import is_mapping, names_of, short_repr

_NO_SOURCE = SourceRef()


def read_line(line: str) -> dict[str, Any]:
    """Return the keys of a pipeline in one line, and ``extends``, as a file would hold them."""
    head, *wrappers = split(line, "|", _NO_SOURCE)
    words = [word for word in split(head, " \t\r\n", _NO_SOURCE) if word]
    if with_comma := [word for word in words if word.endswith(",")]:
        fail(
            _NO_SOURCE,
            (
                "expected spaces between the environment and its settings, got the comma of "
                f'"{with_comma[0]}"'
            ),
        )
    if not words:
        fail(_NO_SOURCE, "expected an environment id at the start of the line")
    env, *settings = words
    if "=" in env and env[0] not in "\"'":
        quote = "In a shell, quote the whole line"
        fail(
            _NO_SOURCE, f'expected an environment id at the start of the line, got "{env}". {quote}'
        )
    if env[0] in "\"'":
        env = str(read_argument(env, _NO_SOURCE))
    data: dict[str, Any] = {"env": env}
    values: dict[str, Any] = {}
    for word in settings:
        key, equals, text = word.partition("=")
        key = whole(key)
        if not equals:
            remedy = ""
            if word.isdecimal():
                remedy = f'. Did you mean "n={word}"?'
            fail(_NO_SOURCE, f'expected key=value or a bar before a wrapper, got "{word}"{remedy}')
        if key.partition(".")[0] == "wrappers":
            fail(
                key,
                'wrappers and their arguments stand after bars: "CartPole-v1 n=4 | framestack:4"',
            )
        if key in values:
            fail(key, "is given twice")
        values[key] = read_argument(text, _NO_SOURCE)
    for key in sorted(values, key=lambda key: key.count(".")):
        put(data, key, values[key])
    for number, wrapper in enumerate(wrappers):
        if not wrapper.strip():
            fail(
                f"wrappers[{number}]",
                "nothing stands behind the bar; leave it out or name a wrapper",
            )
    if wrappers:
        data["wrappers"] = [wrapper.strip() for wrapper in wrappers]
    return data


def put(data: dict[str, Any], key: str, value: Any) -> None:
    """Put a value into nested data at a key with dots.

    The name of a backend or an engine that is there before its options becomes one of them.
    """
    *outer, last = key.split(".")
    for step in outer:
        within = data.get(step)
        if not isinstance(within, dict):
            if step in ("backend", "engine") and within is not None:
                data[step] = within = {"name": within}
            else:
                data[step] = within = {}
        data = within
    data[last] = value


def whole(key: str) -> str:
    """The key as it is in a line, where a name stands for the backend or the engine."""
    if key.removeprefix("eval.") in ("backend.name", "engine.name"):
        return key.removesuffix(".name")
    return key


def write_line(data: Mapping[str, Any], wrappers: Iterable[str], *, lossy: bool = False) -> str:
    """Write a line that ``read_line`` reads back; or one that shows also what no line can hold."""
    env = data["env"]
    if not isinstance(env, str):
        if not lossy:
            fail(
                "env", f"{short_repr(env)} cannot be written in a line; write the pipeline as YAML"
            )
        words = [names_of(env)]
        if isinstance(env, tuple):
            words = [f"[{names_of(env)}]"]
    elif re.search(r"[\s\"'=|]", env):
        words = [quoted(env)]
    else:
        words = [env]
    for steps, value in _leaves(
        {name: value for name, value in data.items() if name not in ("env", "wrappers")}
    ):
        key = ".".join(map(str, steps))
        for name in steps:
            if lossy:
                break
            if not isinstance(name, str) or re.search(r"[\s=|\"'.]", name):
                fail(
                    key,
                    (
                        f"the name {short_repr(name)} cannot be written in a line; write the "
                        "pipeline as YAML"
                    ),
                )
        if lossy and not is_scalar(value):
            text = short_repr(value)
        else:
            text = to_line(value, key)
        words.append(f"{whole(key)}={text}")
    return " | ".join([" ".join(words), *wrappers])


def _leaves(
    data: Mapping[Any, Any], steps: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The leaves of nested data, each with the keys that lead to it."""
    for name, value in data.items():
        if is_mapping(value) and value:
            yield from _leaves(value, (*steps, name))
        else:
            yield (*steps, name), value
