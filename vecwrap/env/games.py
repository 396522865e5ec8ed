"""The game and agent of each row; without games, a row is its sub-environment's one agent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vecwrap.env.core import Core
from vecwrap.env.face import Face
from vecwrap.rows.step_result import IntArray


def row_games(face: Face, core: Core) -> IntArray:
    return face.sources // (core.rows.agents or 1)


def row_agents(face: Face, core: Core) -> NDArray[np.str_]:
    names = core.description.agents or ("",)
    return np.array([names[i % len(names)] for i in face.sources.tolist()])


def one_a_game(face: Face, core: Core) -> list[int] | None:
    """The first row of each game, for pictures; None: all rows."""
    if not core.rows.agents:
        return None
    _, firsts = np.unique(row_games(face, core), return_index=True)
    return list(firsts.tolist())
