"""What makes games in workers, and what looks at one before n are started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

from vecwrap.sources.factories import RenderMode, own_arguments
from vecwrap.sources.game_env import refuse_other
from vecwrap.sources.seats import ALL, Seats

PETTINGZOO = "pettingzoo"


@dataclass(frozen=True)
class MakeGame:
    kind: str  # "parallel" or "aec"
    spec: Any  # PettingZoo's EnvSpec, by value
    kwargs: Mapping[str, Any]

    def __call__(self) -> Any:
        from pettingzoo import make

        make_any: Any = make
        return make_any(self.kind, self.spec, **own_arguments(dict(self.kwargs)))

    def __str__(self) -> str:
        return f"{PETTINGZOO}:{self.spec.id}"


@dataclass(frozen=True)
class MakeProbedGame:
    """A factory for what can be seen of a game; the game itself is closed at once."""

    make: Callable[[], Any]
    name: str
    render_mode: RenderMode
    seats: Seats = ALL

    def __call__(self) -> gymnasium.Env[Any, Any]:
        seen = ProbedGame(self.make(), self.seats)
        self.render_mode.refuse_undeclared(seen, self.name)
        return seen


class ProbedGame(gymnasium.Env[Any, Any]):
    """The agents, spaces and attributes of a game; it cannot be stepped."""

    def __init__(self, game: Any, seats: Seats) -> None:
        self._game = game
        try:
            refuse_other(game)
            seated = seats.of(game)
            self.agents = tuple(map(str, seated.agents))
            self.padding = seated.padding.summary if seated.padding else ""
            self.own_spaces = seated.own_spaces
            self.observation_space = seated.observation_space
            self.action_space = seated.action_space
            self.metadata = {"render_modes": [], **(getattr(game, "metadata", None) or {})}
            self.render_mode = getattr(game, "render_mode", None)
        finally:
            if hasattr(game, "close"):
                game.close()

    def __getattr__(self, name: str) -> Any:
        if name == "_game":
            raise AttributeError(name)
        return getattr(self._game, name)
