"""How a plan is shown: an indented list from the sub-environment outwards, as text or as data."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from vecwrap.probe import Stage
from vecwrap.space_text import bytes_of, bytes_text, short_text, space_data, space_text
from vecwrap.spec import PipelineSpec
from vecwrap.values import as_data, is_scalar, shown

__all__ = [
    "WIDTH",
    "Line",
    "Role",
    "Row",
    "backend_notes",
    "backend_text",
    "head_text",
    "plain_text",
    "plan_data",
    "plan_lines",
]

WIDTH = 110
_LONG = {False: 34, True: 22}  # narrow or not: the most characters of a space in a column; a longer one gets a line
_NARROW = 100
_LEAST = 30  # characters per line, whatever the terminal reports: some report no width
_GAP = "  "
_TITLES = ("runs in", "observations", "bytes/step", "bytes held")
_RIGHT = ("bytes/step", "bytes held")
_IN_MODE = {
    "same_step": "Reset within the step; `final_obs` is its last observation.",
    "next_step": "Reset in the step after, whose action is ignored and whose reward is 0.",
    "disabled": "Waits for a reset by `reset_mask`; to step it before is an error.",
    "episodic": "Rests until it is reset; meanwhile it is not stepped, its reward is 0 and its done flag stays up.",
}

Role: TypeAlias = Literal["head", "title", "name", "plain", "note"]
Line: TypeAlias = list[tuple[Role, str]]
"""A line in parts, each with its role, so that a terminal can colour it."""


@dataclass(frozen=True)
class Row:
    """The environment or a layer, as shown.

    Attributes:
        name: its name.
        runs_in: ``"worker"`` or ``"parent"``.
        copies: how many there are.
        arguments: those it was given, as text.
        settings: all its arguments, with their defaults.
        preset: the preset that it was written as, or ``""``.
        words: what it does, if it says so.
        at_end: what it does at an episode's end, if known.
        before, after: its input and output; None if not known yet.
    """

    name: str
    runs_in: str
    copies: int = 1
    arguments: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    preset: str = ""
    words: str = ""
    at_end: str = ""
    before: Stage | None = None
    after: Stage | None = None

    @property
    def observations(self) -> str:
        """The space, or how it is changed."""
        if self.after is None:
            return ""
        space = self.after.observation_space
        if self.before is None:
            return space_text(space)
        if self.before.observation_space == space:
            return "unchanged"
        other = ", other bounds" * (space_text(self.before.observation_space) == space_text(space))
        return f"→ {space_text(space)}{other}"

    @property
    def actions(self) -> str:
        """The space, or how it is changed; ``""`` if it is not."""
        if self.after is None:
            return ""
        space = self.after.action_space
        if self.before is None:
            return space_text(space)
        before = self.before.action_space
        return "" if before == space else f"{_or_endless(space)} from the agent → {_or_endless(before)}"

    @property
    def held(self) -> int | None:
        """The bytes kept from one step to the next, by all copies; None if unknown."""
        if self.before is None or self.after is None:
            return None
        return self.after.held * self.copies


# -- as text ----------------------------------------------------------------------------------------------------------


def plain_text(lines: Sequence[Line]) -> str:
    """Return the lines without the roles of their parts."""
    return "\n".join("".join(text for _, text in line) for line in lines)


class Shares(NamedTuple):
    """How many sub-environments each worker holds, and the parent (0: none)."""

    workers: list[int]
    parent: int


def plan_lines(
    pipeline: PipelineSpec,
    rows: Sequence[Row],
    shares: Shares | None,
    reason: str,
    width: int = WIDTH,
) -> list[Line]:
    """Write a plan.

    Args:
        pipeline: the resolved spec.
        rows: the environment, then the layers, inner first.
        shares: how many sub-environments each process holds; None if only this one does.
        reason: why this backend.
        width: of the text; names and spaces may be wider.
    """
    long = _LONG[width < _NARROW]
    table = [_cells(row, pipeline.n or 0, long) for row in rows]
    if all(row.after is None for row in rows):
        table = [cells[:1] for cells in table]
    titles = _TITLES[: len(table[0])]
    widths = [max(map(len, column)) for column in zip(titles, *table, strict=True)]
    names, arguments_below = _names(rows, width - sum(len(_GAP) + each for each in widths))
    name_width = max(map(len, names))
    lines: list[Line] = [[("head", part)] for part in _wrapped(head_text(pipeline), width, "")]
    lines.append([("title", " " * name_width + _columns(titles, widths))])
    for depth, (row, name, cells) in enumerate(zip(rows, names, table, strict=True)):
        indent = "  " * depth + row.name
        rest = (name.removeprefix(indent).ljust(name_width - len(indent)) + _columns(cells, widths)).rstrip()
        lines.append([("name", indent), ("plain", rest)])
        notes = ([row.arguments] if depth in arguments_below else []) + _notes(row, pipeline, long)
        for note in notes:
            lines += [[("note", part)] for part in _wrapped(note, width, "  " * depth + "    ")]
    return lines + [[("plain", part)] for part in _backend_lines(pipeline, shares, reason, width)]


def head_text(pipeline: PipelineSpec) -> str:
    """Describe the pipeline in a line."""
    head = [pipeline.env_name, f"n={pipeline.n}", pipeline.autoreset, f"pipeline {pipeline.hash}"]
    if pipeline.seed is not None:
        head.insert(2, f"seed={pipeline.seed}")
    return ", ".join(head)


def _cells(row: Row, n: int, long: int) -> list[str]:
    if row.after is None:
        return [row.runs_in, "", "", ""]
    size = bytes_of(row.after.observation_space)
    text = row.observations
    if len(text) > long:
        text = f"{'→ ' * (row.before is not None)}{short_text(row.after.observation_space)}"
    held = "" if row.held is None else bytes_text(row.held) if row.held else "0"
    return [row.runs_in, text, bytes_text(None if size is None else n * size), held]


def _names(rows: Sequence[Row], room: int) -> tuple[list[str], set[int]]:
    """The first column, and the rows whose arguments do not fit into it."""
    names, below = [], set()
    for depth, row in enumerate(rows):
        name = "  " * depth + row.name
        whole = f"{name}  {row.arguments}" if row.arguments else name
        if len(whole) > max(room, 24):
            below.add(depth)
            whole = name
        names.append(whole)
    return names, below


def _columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "".join(
        _GAP + (cell.rjust(width) if title in _RIGHT else cell.ljust(width))
        for title, cell, width in zip(_TITLES, cells, widths, strict=False)
    ).rstrip()


def _notes(row: Row, pipeline: PipelineSpec, long: int) -> list[str]:
    """The lines under a row: what it does, to what, and what at an episode's end."""
    notes = [f"part of the preset {row.preset}"] if row.preset else []
    notes += [words for words in (row.words, row.after.words if row.after else "") if words]
    if len(row.observations) > long:
        notes.append(f"observations: {row.observations.removeprefix('→ ')}")
    if row.actions:
        notes.append(f"actions: {row.actions}")
    at_end = row.at_end or (_IN_MODE[pipeline.autoreset] if row.before is None and row.after else "")
    return [*notes, f"at an episode's end: {_lower(at_end)}"] if at_end else notes


def _lower(text: str) -> str:
    """The text as the rest of a sentence; a name in capitals stays as it is."""
    text = text.replace("`", "")
    return text if text[:2].isalpha() and text[:2].isupper() else text[:1].lower() + text[1:]


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(text, max(width, len(indent) + _LEAST), initial_indent=indent, subsequent_indent=indent)


def _or_endless(space: Any) -> str:
    text = space_text(space)
    return text if "[" in text or "(" not in text or not hasattr(space, "is_bounded") or space.is_bounded() else (
        f"{text} without bounds"
    )  # fmt: skip


def backend_text(pipeline: PipelineSpec, shares: Shares | None) -> str:
    """Describe how it is run in a line."""
    backend, options = pipeline.backend, pipeline.backend.options
    line = f"backend {backend.name}"
    if shares:
        held, own = shares
        each = f"{held[0]}" if min(held) == max(held) else f"{min(held)} or {max(held)}"
        workers = f"{len(held)} workers" if len(held) > 1 else "1 worker"
        line += f": {workers}, {each} sub-environment{'s' * (each != '1')} each, started "
        line += f"by {options['start_method']}" if options.get("start_method") else "as fresh interpreters"
        line += f", and {own} in this process, which would only wait (parent_share)" if own else ""
    elif backend.name == "dummy":
        line += ": in this process, one after the other"
    others = [f"{key}={shown(value)}" for key, value in options.items() if not (shares and key in _SAID)]
    others += [] if pipeline.copy else ["copy=false"]
    others += [] if pipeline.batch_size is None else [f"batch_size={pipeline.batch_size}"]
    return line + (f"; {', '.join(others)}" if others else "")


def backend_notes(pipeline: PipelineSpec, reason: str) -> list[str]:
    """Return further notes on how it is run, each a line or a part of one."""
    notes = ["shown in a window until Esc"] * (pipeline.render_mode == "human")
    return [*notes, *([f"because {reason}"] if reason else [])]


def _backend_lines(pipeline: PipelineSpec, shares: Shares | None, reason: str, width: int) -> list[str]:
    lines = textwrap.wrap(backend_text(pipeline, shares), max(width, _LEAST), subsequent_indent="    ")
    notes = backend_notes(pipeline, reason)
    return lines + [line for note in notes for line in _wrapped(note, width, "    ")]


_SAID = ("workers", "envs_per_worker", "start_method", "parent_share")


# -- as data ----------------------------------------------------------------------------------------------------------


def plan_data(pipeline: PipelineSpec, rows: Sequence[Row], shares: Shares | None, reason: str) -> dict[str, Any]:
    """Return all that ``plan_lines`` writes, as plain data."""
    environment, *layers = [_row_data(row, pipeline.n or 0) for row in rows]
    return {
        "pipeline": pipeline.hash,
        "n": pipeline.n,
        "seed": pipeline.seed,
        "autoreset": pipeline.autoreset,
        "backend": {
            "name": pipeline.backend.name,
            "options": {key: _plain(value) for key, value in pipeline.backend.options.items()},
            "sub_environments_per_worker": shares.workers if shares else None,
            "sub_environments_of_parent": shares.parent if shares else None,
            "because": reason or None,
        },
        "environment": {key: environment[key] for key in ("name", "runs_in", "after", "bytes_per_step")},
        "layers": layers,
    }


def _row_data(row: Row, n: int) -> dict[str, Any]:
    size = None if row.after is None else bytes_of(row.after.observation_space)
    return {
        "name": row.name,
        "arguments": {key: _plain(value) for key, value in row.settings.items()},
        "preset": row.preset or None,
        "runs_in": row.runs_in,
        "words": [words for words in (row.words, row.after.words if row.after else "") if words],
        "at_an_episodes_end": row.at_end or None,
        "before": _stage_data(row.before),
        "after": _stage_data(row.after),
        "bytes_per_step": None if size is None else n * size,
        "bytes_held": row.held,
    }


def _stage_data(stage: Stage | None) -> dict[str, Any] | None:
    if stage is None:
        return None
    return {"observations": space_data(stage.observation_space), "actions": space_data(stage.action_space)}


def _plain(value: Any) -> Any:
    value = as_data(value)
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    return value if is_scalar(value) else shown(value)
