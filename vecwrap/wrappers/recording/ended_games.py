"""The games that ended in one result, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np

from vecwrap.rows.batch import object_array
from vecwrap.rows.infos import columns
from vecwrap.rows.step_result import BoolArray, FloatArray, IntArray, UnplayedGame
from vecwrap.wrappers.recording.sinks import Episode

__all__ = ["NO_GAMES", "EndedGames"]


@dataclass(slots=True)
class EndedGames:
    """m games that ended in one step or reset; several may be of one row.

    Attributes:
        at: (m,) int64. The place of the game's row in the result.
        scores: (m,) float64.
        lengths: (m,) int64. Agent steps.
        seconds: (m,) float64. How long it took.
        env_ids: (m,) int64.
        lost: (m,) bool. The game's sub-environment was lost, so the score is none.
        infos: (m,) dicts: what is reported besides; None if nothing is.
        steps: the agent steps of all sub-environments by then.
    """

    at: IntArray
    scores: FloatArray
    lengths: IntArray
    seconds: FloatArray
    env_ids: IntArray
    lost: BoolArray
    infos: np.ndarray[Any, Any] | None
    steps: int

    @classmethod
    def of_one(
        cls, score: float, length: int, seconds: float, env_id: int, steps: int
    ) -> EndedGames:
        ids = np.array([env_id])
        lost = np.zeros(1, np.bool_)
        lengths = np.array([length])
        return cls(ids, np.array([score]), lengths, np.array([seconds]), ids, lost, None, steps)

    @classmethod
    def of_unplayed(
        cls,
        games: Sequence[UnplayedGame],
        env_ids_of_result: IntArray,
        *,
        raw: bool,
        info_keys: Sequence[str],
        steps: int,
    ) -> EndedGames:
        """Games that ended within a step, before the first move of a row's agent."""
        if raw:
            scores = np.array([game.raw_reward for game in games])
        else:
            scores = np.array([game.reward for game in games])
        env_ids = np.array([game.env_id for game in games])
        infos = [{key: game.infos[key] for key in info_keys if key in game.infos} for game in games]
        return cls(
            np.searchsorted(env_ids_of_result, env_ids),
            scores,
            np.zeros(len(games), np.int64),
            np.array([game.seconds for game in games]),
            env_ids,
            np.array([game.lost for game in games]),
            object_array(infos),
            steps,
        )

    def __len__(self) -> int:
        return len(self.at)

    def take(self, index: Any) -> EndedGames:
        """Return the games of a mask or a slice."""
        infos = self.infos
        if infos is not None:
            infos = infos[index]
        return replace(
            self,
            at=self.at[index],
            scores=self.scores[index],
            lengths=self.lengths[index],
            seconds=self.seconds[index],
            env_ids=self.env_ids[index],
            lost=self.lost[index],
            infos=infos,
        )

    def followed_by(self, others: EndedGames) -> EndedGames:
        return replace(
            self,
            at=np.concatenate([self.at, others.at]),
            scores=np.concatenate([self.scores, others.scores]),
            lengths=np.concatenate([self.lengths, others.lengths]),
            seconds=np.concatenate([self.seconds, others.seconds]),
            env_ids=np.concatenate([self.env_ids, others.env_ids]),
            lost=np.concatenate([self.lost, others.lost]),
            infos=object_array([*self.info_dicts(), *others.info_dicts()]),
        )

    def info_dicts(self) -> list[dict[str, Any]]:
        if self.infos is None:
            return [{}] * len(self)
        return list(self.infos)

    def episodes(self, agents: Sequence[str]) -> list[Episode]:
        """Return a record of each game; ``agents`` has the agent of each sub-environment."""
        env_ids = self.env_ids.tolist()
        records = zip(
            self.scores.tolist(),
            self.lengths.tolist(),
            self.seconds.tolist(),
            env_ids,
            [agents[i] for i in env_ids],
            repeat(self.steps),
            strict=False,
        )
        return list(map(Episode._make, records))

    def columns(self, num_rows: int) -> tuple[dict[str, Any], BoolArray]:
        """Return ``r``, ``l``, ``t`` and the infos as columns of the result, and their mask.

        If several games are of one row, the columns have the last of them.
        """
        mask = np.zeros(num_rows, np.bool_)
        mask[self.at] = True
        values: dict[str, Any] = {
            "r": _spread(self.scores, self.at, num_rows),
            "l": _spread(self.lengths, self.at, num_rows),
            "t": _spread(self.seconds, self.at, num_rows),
        }
        if self.infos is not None:
            infos: list[dict[str, Any]] = [{}] * num_rows
            for at, info in zip(self.at.tolist(), self.infos, strict=True):
                infos[at] = info
            values |= columns(infos)
        return values, mask


def _spread(values: np.ndarray[Any, Any], at: IntArray, size: int) -> np.ndarray[Any, Any]:
    column = np.zeros(size, values.dtype)
    column[at] = values
    return column


_NO_IDS = np.zeros(0, np.int64)
NO_GAMES = EndedGames(
    _NO_IDS, np.zeros(0), _NO_IDS, np.zeros(0), _NO_IDS, np.zeros(0, np.bool_), None, 0
)
