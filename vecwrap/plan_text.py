"""How a plan is shown: an indented list from the sub-environment outwards."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.spec import PipelineSpec
from vecwrap.values import callable_name, shown

__all__ = ["Row", "Stage", "bytes_of", "plan_text", "space_text"]

WIDTH = 110


@dataclass(frozen=True)
class Stage:
    """What comes out of the environment, or of a layer.

    Attributes:
        observation_space, action_space: of one sub-environment.
        words: what the layer says of itself now that it is made (its ``describe``), or ``""``.
    """

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    words: str = ""

    @classmethod
    def of(cls, env: Any, observation_space: Any, action_space: Any) -> Stage:
        """Look at an environment that has just been made or wrapped."""
        describe = getattr(type(env), "describe", None)
        return cls(observation_space, action_space, "" if describe is None else str(describe(env)))


@dataclass(frozen=True)
class Row:
    """One line of the list."""

    name: str
    arguments: str
    runs_in: str
    words: str


def plan_text(
    pipeline: PipelineSpec, rows: Sequence[Row], stages: Sequence[Stage] | None, shares: list[int] | None, reason: str
) -> str:
    """Write a plan.

    Args:
        pipeline: the resolved spec.
        rows: the environment, then the layers, inner first.
        stages: their spaces, where they are known.
        shares: how many sub-environments each worker holds.
        reason: why this backend.
    """
    n = pipeline.n or 0
    head = [f"{pipeline.env_name}", f"n={n}", pipeline.autoreset, f"pipeline {pipeline.hash}"]
    if pipeline.seed is not None:
        head.insert(2, f"seed={pipeline.seed}")
    cells = [["", "runs in", "observation", f"bytes a step (n={n})"]]
    for depth, row in enumerate(rows):
        name = "  " * depth + row.name + (f"  {row.arguments}" if row.arguments else "")
        cells.append([name, row.runs_in, *_space_cells(stages[depth] if stages else None, n)])
    if stages is None:
        cells = [cell[:2] for cell in cells]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [", ".join(head), _line(cells[0], widths)]
    for depth, (row, cell) in enumerate(zip(rows, cells[1:], strict=True)):
        lines.append(_line(cell, widths))
        for words in (row.words, stages[depth].words if stages else ""):
            indent = "  " * depth + "    "
            lines += textwrap.wrap(words, WIDTH, initial_indent=indent, subsequent_indent=indent)
    return "\n".join([*lines, _backend_line(pipeline, shares, reason)])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    aligned = [cell.rjust(width) if column == 3 else cell.ljust(width) for column, (cell, width) in
               enumerate(zip(cells, widths, strict=True))]  # fmt: skip
    return "   ".join(aligned).rstrip()


def _space_cells(stage: Stage | None, n: int) -> list[str]:
    if stage is None:
        return ["", ""]
    size = bytes_of(stage.observation_space)
    return [space_text(stage.observation_space), "varies" if size is None else f"{n * size:,}"]


def _backend_line(pipeline: PipelineSpec, shares: list[int] | None, reason: str) -> str:
    backend, options = pipeline.backend, pipeline.backend.options
    line = f"backend {backend.name}"
    if shares:
        each = f"{shares[0]}" if min(shares) == max(shares) else f"{min(shares)} or {max(shares)}"
        workers = f"{len(shares)} workers" if len(shares) > 1 else "1 worker"
        line += f": {workers}, {each} sub-environment{'s' * (each != '1')} each, started "
        line += f"by {options['start_method']}" if options.get("start_method") else "as fresh interpreters"
    elif backend.name == "dummy":
        line += ": in this process, one after the other"
    others = [f"{key}={shown(value)}" for key, value in options.items() if key not in _SAID]
    others += [] if pipeline.copy else ["copy=false"]
    others += [] if pipeline.batch_size is None else [f"batch_size={pipeline.batch_size}"]
    line += f"; {', '.join(others)}" if others else ""
    return f"{line}\n    because {reason}" if reason else line


_SAID = ("workers", "envs_per_worker", "start_method")


def space_text(space: Any) -> str:
    """Say a space's shape and dtype.

    >>> space_text(spaces.Dict({"image": spaces.Box(0, 255, (84, 84), np.uint8), "speed": spaces.Discrete(3)}))
    'Dict(image: (84, 84) uint8, speed: Discrete(3))'
    """
    if isinstance(space, spaces.Dict):
        return f"Dict({', '.join(f'{key}: {space_text(part)}' for key, part in space.spaces.items())})"
    if isinstance(space, spaces.Tuple):
        return f"Tuple({', '.join(map(space_text, space.spaces))})"
    if isinstance(space, spaces.Discrete):
        return f"Discrete({space.n})"
    if isinstance(space, (spaces.Box, spaces.MultiBinary, spaces.MultiDiscrete)):
        return f"{space.shape} {space.dtype}"
    return callable_name(type(space))


def bytes_of(space: Any) -> int | None:
    """The bytes of one observation; None where they vary.

    >>> bytes_of(spaces.Box(0, 255, (84, 84), np.uint8)), bytes_of(spaces.Text(9))
    (7056, None)
    """
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        sizes = [bytes_of(part) for part in parts]
        return None if None in sizes else sum(size for size in sizes if size is not None)
    if isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)):
        return int(np.prod(space.shape or (), dtype=np.int64)) * np.dtype(space.dtype).itemsize
    return None
