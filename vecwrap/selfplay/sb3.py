"""Self-play in Stable-Baselines3: a callback that adds the model's snapshots to the pool."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from vecwrap.adapters.sb3_vec_env import AdaptedVecEnv
from vecwrap.errors import ArgumentError
from vecwrap.selfplay.opponents import Opponents
from vecwrap.selfplay.pool import OpponentPool
from vecwrap.selfplay.results import LEARNER

__all__ = ["SelfPlayCallback", "policy_maker"]


class SelfPlayCallback(BaseCallback):  # type: ignore[misc]  # Stable-Baselines3 is not read by mypy
    """Add snapshots of a model to the pool that its environment's wrapper ``opponents`` draws from.

    A snapshot is added every ``every`` agent steps, or as soon as the model's mean result (1 for a
    win, 0.5 for a draw) over at least ``games`` rated games since the last snapshot reaches
    ``win_rate``; and at the end of training. The pool's ``current`` is the model itself, for games
    against the present policy. A pool that does not know how to make policies gets
    ``policy_maker(model)``, which serves this process alone.

    Logged at each snapshot: ``selfplay/members``, ``selfplay/games`` and ``selfplay/score`` since
    the last one, and ``selfplay/rating`` with ``selfplay/rating_error``, the snapshot's in Elo
    points.

    Args:
        every: agent steps between snapshots; None: only by ``win_rate``.
        win_rate: the mean result from which on a snapshot is added; None: only by ``every``.
        games: over how many games at least.
        verbose: 1 prints a line for each snapshot.

    Attributes:
        pool: the environment's.
        snapshots: the names of those that were added.

    Raises:
        ArgumentError: neither ``every`` nor ``win_rate``; or, when training begins, an environment
            that is not ``vecwrap.to_sb3`` of a chain with ``opponents``, or whose opponents have
            other spaces than the model.
    """

    def __init__(
        self,
        every: int | None = 50_000,
        *,
        win_rate: float | None = None,
        games: int = 100,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        if every is None and win_rate is None:
            raise ArgumentError("SelfPlayCallback: expected every=STEPS, win_rate=SCORE, or both")
        self.every = every
        self.win_rate = win_rate
        self.games = games
        self.pool: OpponentPool
        self.snapshots: list[str] = []

    def _init_callback(self) -> None:
        venv = self.training_env
        while not isinstance(venv, AdaptedVecEnv) and hasattr(venv, "venv"):
            venv = venv.venv
        if not isinstance(venv, AdaptedVecEnv):
            raise ArgumentError(
                f"SelfPlayCallback: expected an environment of vecwrap.to_sb3, got {venv!r}"
            )
        try:
            opponents = venv.vecwrap_env.find(Opponents)
        except LookupError:
            raise ArgumentError(
                "SelfPlayCallback: expected the wrapper opponents in the chain, got "
                f"{venv.vecwrap_env!r}"
            ) from None
        if not opponents.sides_alike:
            raise ArgumentError(
                "SelfPlayCallback: expected opponents with the learner's own spaces, got agents "
                "of others, which a snapshot of this model cannot move; add snapshots to the pool "
                "of whoever plays against it"
            )
        self.pool = opponents.pool
        self.pool.use_make(policy_maker(self.model))
        self.pool.current = self.model

    def _on_training_start(self) -> None:
        self._last = self.num_timesteps

    def _on_step(self) -> bool:
        due = self.every is not None and self.num_timesteps - self._last >= self.every
        if not due and self.win_rate is not None:
            games, score = self._since()
            due = games >= self.games and score >= self.win_rate
        if due:
            self._add()
        return True

    def _on_training_end(self) -> None:
        if self.num_timesteps > self._last:
            self._add()

    def _since(self) -> tuple[int, float]:
        """How many games the model has played since the last snapshot, and its mean result."""
        rows = [row for row in self.pool.results.rows() if row.player == LEARNER]
        games = sum(row.games for row in rows)
        if not games:
            return 0, math.nan
        return games, sum(row.points for row in rows) / games

    def _add(self) -> None:
        games, score = self._since()
        name = self.pool.add(
            self.model, facts={"steps": int(self.num_timesteps)}, take_results=True
        )
        self._last = self.num_timesteps
        self.snapshots.append(name)
        facts = {"members": len(self.pool), "games": games, "score": score}
        if games:
            ratings = self.pool.ratings()
            if name in ratings.players:
                i = ratings.players.index(name)
                facts |= {"rating": ratings.points[i], "rating_error": ratings.errors[i]}
        for key, value in facts.items():
            if np.isfinite(value):
                self.logger.record(f"selfplay/{key}", value)
        if self.verbose:
            self.logger.info(
                f"{name}: added after {self.num_timesteps} steps; score {score:.2f} in {games} "
                "games"
            )


def policy_maker(model: Any) -> Callable[[Mapping[str, Any]], Any]:
    """Return a ``make`` for ``OpponentPool`` that puts arrays into policies of a model's kind.

    Args:
        model: of Stable-Baselines3 or sb3-contrib.
    """

    def make(arrays: Mapping[str, Any]) -> Any:
        import torch

        # what the policy's own `save` keeps
        settings = model.policy._get_constructor_parameters()  # noqa: SLF001
        policy = type(model.policy)(**settings)
        policy.load_state_dict({name: torch.as_tensor(array) for name, array in arrays.items()})
        policy.set_training_mode(False)
        return policy

    return make
