"""What makes games in workers, and what looks at one before n are started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

from vecwrap.errors import PlanError
from vecwrap.sources.description import is_game
from vecwrap.sources.factories import own_arguments
from vecwrap.sources.seats import ALL, Seats

PETTINGZOO = "pettingzoo"


@dataclass(frozen=True)
class MakeGame:
    """A factory for a game that PettingZoo has registered."""

    kind: str  # "parallel" or "aec"
    spec: Any  # PettingZoo's EnvSpec, by value
    kwargs: Mapping[str, Any]

    def __call__(self) -> Any:
        """Make one."""
        from pettingzoo import make

        make_any: Any = make
        return make_any(self.kind, self.spec, **own_arguments(dict(self.kwargs)))

    def __str__(self) -> str:
        return f"{PETTINGZOO}:{self.spec.id}"


@dataclass(frozen=True)
class LookAtGame:
    """A factory for what can be seen of a game; the game itself is closed at once."""

    make: Callable[[], Any]
    seats: Seats = ALL

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """Make one, and look at it."""
        return SeenGame(self.make(), self.seats)


class SeenGame(gymnasium.Env[Any, Any]):
    """The agents and spaces of a game; it cannot be stepped."""

    def __init__(self, game: Any, seats: Seats) -> None:
        try:
            if not is_game(type(game)):
                raise PlanError(
                    f"expected PettingZoo's AECEnv or ParallelEnv from the factory, got {type(game).__name__}"
                )
            seated = seats.of(game)
            self.agents = tuple(map(str, seated.agents))
            self.padding = seated.padding.words if seated.padding else ""
            self.observation_space, self.action_space = seated.observation_space, seated.action_space
            self.metadata = dict(getattr(game, "metadata", None) or {})
            self.render_mode = getattr(game, "render_mode", None)
        finally:
            game.close() if hasattr(game, "close") else None
