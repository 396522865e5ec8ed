"""The game and agent of each row; without games, a row is its sub-environment's one agent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vecwrap.env.call_state import CallState
from vecwrap.env.core import Core
from vecwrap.rows.step_result import IntArray


def row_games(call_state: CallState, core: Core) -> IntArray:
    return call_state.sources // (core.rows.agents or 1)


def row_agents(call_state: CallState, core: Core) -> NDArray[np.str_]:
    names = core.description.agents or ("",)
    return np.array([names[i % len(names)] for i in call_state.sources.tolist()])


def first_rows(call_state: CallState, core: Core) -> list[int] | None:
    """The first row of each game, for pictures; None: all rows."""
    if not core.rows.agents:
        return None
    _, firsts = np.unique(row_games(call_state, core), return_index=True)
    return list(firsts.tolist())
