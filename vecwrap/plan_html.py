"""How a plan is shown in a notebook: a table, inner layers first."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from vecwrap.plan_text import Row, Shares, backend_notes, backend_text, head_text
from vecwrap.spec import PipelineSpec

__all__ = ["plan_html"]

_CELL = "text-align: left; vertical-align: top"
_TITLES = ("layer", "arguments", "runs in", "observations", "at an episode's end")


def plan_html(pipeline: PipelineSpec, rows: Sequence[Row], shares: Shares | None, reason: str) -> str:
    """Write a plan as a table with the environment at the top and how it is run below.

    Args:
        pipeline: the resolved spec.
        rows: the environment, then the layers, inner first.
        shares: how many sub-environments each worker holds.
        reason: why this backend.

    Returns:
        HTML without scripts, in which all text from users is escaped.
    """
    head = "".join(f'<th style="{_CELL}">{title}</th>' for title in _TITLES)
    body = "".join(f"<tr>{''.join(map(_cell, _texts(row)))}</tr>" for row in rows)
    foot = "; ".join([backend_text(pipeline, shares), *backend_notes(pipeline, reason)])
    return (
        f"<table><caption style='text-align: left'><b>{escape(head_text(pipeline))}</b></caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
        f'<tfoot><tr><td colspan="{len(_TITLES)}" style="{_CELL}">{escape(foot)}</td></tr></tfoot></table>'
    )


def _texts(row: Row) -> tuple[str, ...]:
    name = f"{row.name} ({row.preset})" if row.preset else row.name
    return name, row.arguments, row.runs_in, row.observations, row.at_end.replace("`", "")


def _cell(text: str) -> str:
    return f'<td style="{_CELL}">{escape(text)}</td>'
