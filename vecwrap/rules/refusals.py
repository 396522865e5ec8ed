"""The errors of ``build`` as findings: three ids, by the stage at which they occur."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from vecwrap.errors import PlanError, VecwrapError
from vecwrap.rules.finding import DOCS, Finding

__all__ = ["REFUSALS", "not_read", "refused", "unmakeable", "unreadable"]


def unreadable(error: VecwrapError, file: str = "") -> Finding:
    """A pipeline that cannot be read: invalid YAML, an unknown key, a value of the wrong kind.

    Nothing else is checked, because there is no pipeline yet.
    """
    return _finding("unreadable", error, file, ())


def refused(error: VecwrapError, file: str = "", places: Iterable[str] = ()) -> Finding:
    """An unknown name, an argument that does not fit, a layer that refuses what it wraps, a wrong order.

    The reason gives what was expected, what was found, and what to do. If a layer refuses what it wraps, nothing is
    reported about the layers outside it, because their spaces are not the intended ones. A ``stats`` file must exist
    for the training; that of an evaluation may not exist yet. Whether an evaluation has statistics at all is not
    checked, because they are usually passed to ``build``.
    """
    return _finding("refused", error, file, places)


def unmakeable(error: VecwrapError, file: str = "") -> Finding:
    """An environment that cannot be made, or a worker that cannot be started.

    One sub-environment is made to inspect its spaces, in the place where the backend would make it. Exceptions of its
    constructor are reported here; rules that need no spaces still apply.
    """
    return _finding("unmakeable", error, file, ())


REFUSALS: tuple[Callable[..., Finding], ...] = (unreadable, refused, unmakeable)
"""These are functions so that their docstrings become sections in the docs, like those of rules."""


def not_read(error: VecwrapError, pipeline: str) -> Finding:
    """Report an error raised before there was a pipeline; ``refused`` if it is about a layer of the evaluation.

    Args:
        error: as it was raised.
        pipeline: a file, or what else was given.
    """
    file = pipeline if str(error).startswith(f"{pipeline}:") else ""
    return refused(error, file) if isinstance(error, PlanError) else unreadable(error, file)


def _finding(id: str, error: VecwrapError, file: str, places: Iterable[str]) -> Finding:
    """Split an error's text: ``FILE:LINE: wrappers[1] "framestack": what is wrong``.

    Args:
        id: of the finding.
        error: as ``build`` raises it.
        file: that the pipeline was read from, or ``""``.
        places: what the text may begin with, after file and line: ``'wrappers[1] "framestack"'``.
    """
    text, line = str(error), None
    place = next((place for place in places if place in text), "")
    found = re.match(rf"(?:(.+?)(?::(\d+))?: )?{re.escape(place)}", text) if place else None
    if place and found is None:
        place = ""
    if not place and file:
        found = re.match(rf"({re.escape(file)})(?::(\d+))?: ", text)
    if found is not None:
        file, text = found[1] or "", text[found.end() :].lstrip(":, ")
        line = int(found[2]) if found[2] else None
    layer = place.partition('"')[2].rstrip('"')
    return Finding(id, "error", file, line, place, layer, text, "", f"{DOCS}#{id}")
