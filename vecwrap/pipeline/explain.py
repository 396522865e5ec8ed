"""What a plan shows: the spaces after each wrapper, and everything else, as text or data."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.pipeline.values import short_repr, to_builtins
from vecwrap.pipeline.wrappers import PlannedWrapper
from vecwrap.pipeline.wrappers import end_note as at_end_of
from vecwrap.sources.description import (
    bytes_of,
    bytes_text,
    short_text,
    space_data,
    space_text,
)
from vecwrap.sources.space_probe import SpacesAt

TABLE_COLUMNS = 80
_MAX_SPACE_CHARACTERS = 25  # the most characters of a space in the table; a longer one gets a line
_TITLES = ("runs in", "observations", "bytes/step")
_SHOWN_OPTIONS = ("workers", "envs_per_worker", "start_method", "parent_share")
_IN_MODE = {
    "same_step": "Reset within the step; `final_obs` is its last observation.",
    "next_step": "Reset in the step after, whose action is ignored and whose reward is 0.",
    "disabled": "Waits for a reset by `reset_mask`; to step it before is an error.",
    "episodic": (
        "Rests until it is reset; meanwhile it is not stepped, its reward is 0 and its done "
        "flag stays up."
    ),
}

Role: TypeAlias = Literal["head", "title", "name", "plain", "note"]
StyledLine: TypeAlias = list[tuple[Role, str]]
"""A line in parts, each with its role, so that a terminal can colour it."""


@dataclass(frozen=True)
class Row:
    """The environment or a wrapper, as shown."""

    name: str
    runs_in: str  # "worker" or "parent"
    planned_summary: str
    wrapper: PlannedWrapper | None = None  # None for the environment
    input_spaces: SpacesAt | None = None  # None if not known yet
    output_spaces: SpacesAt | None = None

    @property
    def arguments(self) -> str:
        if self.wrapper:
            return self.wrapper.arguments
        return ""

    @property
    def observations(self) -> str:
        """The space, or how it is changed."""
        if self.output_spaces is None:
            return ""
        space = self.output_spaces.observation_space
        if self.input_spaces is None:
            return space_text(space)
        if self.input_spaces.observation_space == space:
            return "unchanged"
        other = ", other bounds" * (
            space_text(self.input_spaces.observation_space) == space_text(space)
        )
        return f"→ {space_text(space)}{other}"

    @property
    def actions(self) -> str:
        """The space, or how it is changed; ``""`` if it is not."""
        if self.output_spaces is None:
            return ""
        space = self.output_spaces.action_space
        if self.input_spaces is None:
            return space_text(space)
        before = self.input_spaces.action_space
        if before == space:
            return ""
        return f"{space_text(space)} from the agent → {space_text(before)}"

    @property
    def summaries(self) -> list[str]:
        """What it does, as planned and as made."""
        return [
            words
            for words in (
                self.planned_summary,
                self.output_spaces.summary if self.output_spaces else "",
            )
            if words
        ]

    def bytes_per_step(self, n: int) -> int | None:
        """The size of one step's observations; None if it is unknown or varies.

        A step has n observations, or as many as leave the wrapper.
        """
        size = None
        if self.output_spaces is not None:
            size = bytes_of(self.output_spaces.observation_space)
        if self.output_spaces is None or size is None:
            return None
        return (self.output_spaces.num_rows or n) * size


@dataclass(frozen=True)
class Explanation:
    """All that a plan shows."""

    pipeline: PipelineSpec  # resolved
    rows: Sequence[Row]  # the environment, then the wrappers, inner first
    # How many sub-environments each of our workers holds, if there are any, and we do.
    shares: tuple[list[int], int]
    reason: str  # why this backend
    agents: tuple[str, ...] = ()  # of games, of which there are n; each has a row

    @property
    def num_rows(self) -> int:
        return (self.pipeline.n or 0) * max(1, len(self.agents))

    # -- as text

    def lines(self) -> list[StyledLine]:
        """An indented list from the sub-environment outwards."""
        columns = list(zip(_TITLES, *map(self._cells, self.rows), strict=True))
        if all(row.output_spaces is None for row in self.rows):
            columns = columns[:1]
        widths = [max(map(len, column)) for column in columns]
        titles, *table = zip(*columns, strict=True)
        names = ["  " * depth + row.name for depth, row in enumerate(self.rows)]
        whole = [
            f"{name}  {row.arguments}".rstrip() for name, row in zip(names, self.rows, strict=True)
        ]
        room = TABLE_COLUMNS - sum(2 + width for width in widths)
        beside = [
            name if len(text) > room else text for name, text in zip(names, whole, strict=True)
        ]
        widths.insert(0, max(map(len, beside)))
        spec = self.pipeline
        head = [spec.env_name, f"n={spec.n}"]
        if self.agents:
            head.append(f"{len(self.agents)} agents each, {self.num_rows} rows")
        if spec.seed is not None:
            head.append(f"seed={spec.seed}")
        head += [spec.autoreset_mode.value, f"pipeline {spec.hash}"]
        lines: list[StyledLine] = [[("head", part)] for part in _wrapped(", ".join(head))]
        lines.append([("title", _in_columns(["", *titles], widths))])
        for depth, (row, name, first, cells) in enumerate(
            zip(self.rows, names, beside, table, strict=True)
        ):
            lines.append(
                [("name", name), ("plain", _in_columns([first, *cells], widths)[len(name) :])]
            )
            notes = self._notes(row)
            if first != whole[depth]:
                notes.insert(0, row.arguments)
            for note in notes:
                lines += [[("note", part)] for part in _wrapped(note, "  " * depth + "    ")]
        plain = textwrap.wrap(self._backend(), TABLE_COLUMNS, subsequent_indent="    ")
        if self.pipeline.render_mode == "human":
            plain.append("    shown in a window until Esc")
        if self.reason:
            plain += _wrapped(f"because {self.reason}", "    ")
        return lines + [[("plain", part)] for part in plain]

    def __str__(self) -> str:
        return "\n".join("".join(text for _, text in line) for line in self.lines())

    def _cells(self, row: Row) -> tuple[str, str, str]:
        if row.output_spaces is None:
            return row.runs_in, "", ""
        space = row.observations
        if len(space) > _MAX_SPACE_CHARACTERS:
            space = short_text(row.output_spaces.observation_space)
            if row.input_spaces is not None:
                space = f"→ {space}"
        return row.runs_in, space, bytes_text(row.bytes_per_step(self.num_rows))

    def _notes(self, row: Row) -> list[str]:
        """The lines under a row: what it does, to what, and what at an episode's end."""
        notes = []
        if row.wrapper and row.wrapper.preset:
            notes.append(f"part of the preset {row.wrapper.preset}")
        notes += row.summaries
        if row.wrapper and row.wrapper.difference:
            notes.append(row.wrapper.difference)
        if len(row.observations) > _MAX_SPACE_CHARACTERS:
            notes.append(f"observations: {row.observations.removeprefix('→ ')}")
        if (
            row.input_spaces is not None
            and row.output_spaces is not None
            and row.output_spaces.num_rows is not None
        ):
            before = row.input_spaces.num_rows or self.num_rows
            if row.output_spaces.num_rows != before:
                notes.append(f"rows: {before} → {row.output_spaces.num_rows}")
        if row.actions:
            notes.append(f"actions: {row.actions}")
        if row.wrapper is not None:
            at_end = at_end_of(row.wrapper.target)
        else:
            at_end = ""
            if row.output_spaces:
                at_end = _IN_MODE[self.pipeline.autoreset_mode.value]
        if at_end:
            return [*notes, f"at an episode's end: {_lower(at_end)}"]
        return notes

    def _backend(self) -> str:
        """How it is run, in a line."""
        backend = self.pipeline.backend
        options = self.pipeline.backend.options
        line = f"backend {backend.name}"
        held, own = self.shares
        if held:
            each = f"{held[0]}"
            if min(held) != max(held):
                each = f"{min(held)} or {max(held)}"
            workers = "1 worker"
            if len(held) > 1:
                workers = f"{len(held)} workers"
            what = f"{'game' if self.agents else 'sub-environment'}{'s' * (each != '1')}"
            line += f": {workers}, {each} {what} each, started "
            if options.get("start_method"):
                line += f"by {options['start_method']}"
            else:
                line += "as fresh interpreters"
            if own:
                line += f", and {own} in this process, which would only wait (parent_share)"
        elif backend.name == "dummy" and self.pipeline.engine is not None:
            line += ": in this process"
        elif backend.name == "dummy":
            line += ": in this process, one after the other"
        elif backend.name == "threads":
            line += (
                ": in threads of this process; a crash ends it, and a step that hangs cannot "
                "be ended"
            )
        others = [
            f"{key}={short_repr(value)}"
            for key, value in options.items()
            if not (held and key in _SHOWN_OPTIONS)
        ]
        if not self.pipeline.copy:
            others.append("copy=false")
        if self.pipeline.batch_size is not None:
            others.append(f"batch_size={self.pipeline.batch_size}")
        return "; ".join(filter(None, (line, ", ".join(others))))

    # -- as data

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        environment, *wrappers = [self._row_data(row) for row in self.rows]
        spec = self.pipeline
        held, own = self.shares
        of_games = {}
        if self.agents:
            of_games["agents"] = list(self.agents)
        return {
            "pipeline": spec.hash,
            "n": spec.n,
            **of_games,
            "seed": spec.seed,
            "autoreset": spec.autoreset_mode.value,
            "backend": {
                "name": spec.backend.name,
                "options": to_builtins(spec.backend.options, short_repr),
                "sub_environments_per_worker": held or None,
                "sub_environments_of_parent": own if held else None,
                "because": self.reason or None,
            },
            "environment": environment,
            "wrappers": wrappers,
        }

    def _row_data(self, row: Row) -> dict[str, Any]:
        data = {
            "name": row.name,
            "runs_in": row.runs_in,
            "words": row.summaries,
            "after": _spaces_data(row.output_spaces),
            "bytes_per_step": row.bytes_per_step(self.num_rows),
        }
        if row.wrapper is not None:
            data["arguments"] = to_builtins(row.wrapper.spec.kwargs, short_repr)
            data["preset"] = row.wrapper.preset or None
            data["difference"] = row.wrapper.difference or None
            data["at_an_episodes_end"] = at_end_of(row.wrapper.target) or None
            data["before"] = _spaces_data(row.input_spaces)
        return data


def seats(agents: Sequence[str] | None, padding: str) -> str:
    """Who sits where in games, and what was padded."""
    if not agents:
        return ""
    k = len(agents)
    rows = [f"{agent} in row {k}g + {seat}" for seat, agent in enumerate(agents)]
    rows[0] = f"{agents[0]} in row {k}g"
    return f"agents are rows, of game g {', '.join(rows)}{padding and f'; {padding}'}"


def _in_columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    *left, last = map(str.ljust, cells, widths)
    if len(widths) > 2:  # the bytes
        last = last.rstrip().rjust(widths[-1])
    return "  ".join([*left, last]).rstrip()


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, max(TABLE_COLUMNS, len(indent) + 30), initial_indent=indent, subsequent_indent=indent
    )


def _lower(text: str) -> str:
    """The text as the rest of a sentence; a name in capitals stays as it is."""
    text = text.replace("`", "")
    if text[:2].isalpha() and text[:2].isupper():
        return text
    return text[:1].lower() + text[1:]


def _spaces_data(spaces_at: SpacesAt | None) -> dict[str, Any] | None:
    if spaces_at is None:
        return None
    return {
        "observations": space_data(spaces_at.observation_space),
        "actions": space_data(spaces_at.action_space),
    }
