"""What ``build`` refuses, as findings: three ids, by when it is noticed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from vecwrap.errors import PlanError, VecwrapError
from vecwrap.rules.finding import DOCS, Finding

__all__ = ["REFUSALS", "not_read", "refused", "unmakeable", "unreadable"]


def unreadable(error: VecwrapError, file: str = "") -> Finding:
    """A pipeline that cannot be read: no YAML, an unknown key, a value of the wrong kind.

    Nothing else is looked at, because there is no pipeline yet.
    """
    return _finding("unreadable", error, file, ())


def refused(error: VecwrapError, file: str = "", places: Iterable[str] = ()) -> Finding:
    """A name that is unknown, an argument that does not fit, a layer that refuses what it is to wrap, a wrong order.

    The reason says what was expected, what came, and what to do. Where a layer refuses what it wraps, nothing is said
    of the layers outside of it: their spaces are not those that are meant. A file of ``stats`` has to be there for the
    training; that of an evaluation may be yet to come. Whether an evaluation has statistics at all is not asked: most
    often they are handed to ``build``.
    """
    return _finding("refused", error, file, places)


def unmakeable(error: VecwrapError, file: str = "") -> Finding:
    """An environment that cannot be made, or a worker that cannot be started.

    One sub-environment is made to look at its spaces, where the backend would make it. What its constructor raises is
    told here; rules that need no spaces are applied all the same.
    """
    return _finding("unmakeable", error, file, ())


REFUSALS: tuple[Callable[..., Finding], ...] = (unreadable, refused, unmakeable)
"""They are functions for their docstrings, which are their sections in the docs as those of rules are."""


def not_read(error: VecwrapError, pipeline: str) -> Finding:
    """Tell what was raised before there was a pipeline: ``refused`` where a layer of the evaluation cannot be one.

    Args:
        error: as it was raised.
        pipeline: a file, or what else was given.
    """
    file = pipeline if str(error).startswith(f"{pipeline}:") else ""
    return refused(error, file) if isinstance(error, PlanError) else unreadable(error, file)


def _finding(id: str, error: VecwrapError, file: str, places: Iterable[str]) -> Finding:
    """Take an error's text apart: ``FILE:LINE: wrappers[1] "framestack": what is wrong``.

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
