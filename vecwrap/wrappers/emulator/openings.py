"""How a game of the Arcade Learning Environment begins and goes on: no-ops, FIRE, lives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from itertools import repeat
from typing import Any

import gymnasium
import numpy as np

from vecwrap.errors import PlanError
from vecwrap.sources.description import Env, wrappers_of

NOOP = 0
FIRE = 1
AFTER_FIRE = 2
Begun = tuple[Any, dict[str, Any]]
Stepped = tuple[Any, Any, bool, bool, dict[str, Any]]


class Lives(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Ends an episode at every lost life; the next reset, if unseeded, continues with a no-op."""

    game_goes_on: bool = False

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.game_goes_on = False
        self._lives = 0
        discrete = isinstance(env.action_space, gymnasium.spaces.Discrete)
        self._noop: Any = NOOP
        if not discrete:
            self._noop = np.zeros(env.action_space.shape or (), env.action_space.dtype)
        self._ale: Any = env.unwrapped.ale  # type: ignore[attr-defined]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Begun:
        begun = None
        if self.game_goes_on and seed is None:
            begun = self._next_life()
        if begun is None:
            begun = self._new_game(seed, options)
        self._lives = self._ale.lives()
        self.game_goes_on = False
        return begun

    def step(self, action: Any) -> Stepped:
        observation, reward, terminated, truncated, info = self._act(action)
        lost = self._life_lost()
        self.game_goes_on = lost and not (terminated or truncated)
        return observation, reward, bool(terminated) or lost, bool(truncated), info

    def _new_game(self, seed: int | None, options: dict[str, Any] | None) -> Begun:
        return self.env.reset(seed=seed, options=options)

    def _act(self, action: Any) -> Stepped:
        return self.env.step(action)

    def _next_life(self) -> Begun | None:
        observation, _, terminated, truncated, info = self._act(self._noop)
        if terminated or truncated:
            return None
        return (observation, info)

    def _life_lost(self) -> bool:
        # 0 lives are left to the game to report: Q*bert, for example, shows 0 for some frames while
        # still running
        before = self._lives
        self._lives = self._ale.lives()
        return 0 < self._lives < before


def play_opening(
    begin: Callable[..., Begun],
    act: Callable[[Any], Stepped],
    actions: Iterable[int],
    seed: int | None,
    options: dict[str, Any] | None,
    goes_on: Callable[[], bool] = bool,
) -> Begun:
    """Begin an episode, take the actions that open it, and merge the infos (latest value per key).

    If an action ends the episode, it is begun again, and the remaining actions are taken; if only a
    life was lost (``goes_on``), without a seed, so that the game continues. The actions may be
    drawn after the first beginning.
    """
    # An environment may write into its options.
    observation, info = begin(seed=seed, options=deepcopy(options))
    for action in actions:
        observation, _, terminated, truncated, step_info = act(action)
        if terminated or truncated:
            observation, info = begin(seed=None if goes_on() else seed, options=deepcopy(options))
        else:
            info = {**info, **step_info}
    return observation, info


def noops(env: Env, most: int) -> Iterator[int]:
    """Yield 1 to ``most`` no-ops, or none if ``most`` is 0.

    The number is drawn from the environment's generator when the first no-op is requested.
    """
    if most:
        yield from repeat(NOOP, int(env.unwrapped.np_random.integers(1, most + 1)))


def game_goes_on(env: Env) -> bool:
    return any(getattr(wrapper, "game_goes_on", False) for wrapper in wrappers_of(env))


def opening_of(meanings: Sequence[str]) -> tuple[int, ...]:
    if "FIRE" in meanings:
        return (FIRE, AFTER_FIRE)
    return ()


def refuse_actions(
    env: Env, wrapper: str, meanings: Sequence[str], noop: str = "", fire: str = ""
) -> None:
    """Refuse actions that do not begin with NOOP, and with FIRE in games that have it.

    ``noop`` and ``fire`` say what to do without these actions; nothing where they are not needed.
    """
    space = env.action_space
    fires = bool(fire and opening_of(meanings))
    discrete = isinstance(space, gymnasium.spaces.Discrete)
    begins = discrete and space.contains(NOOP) and meanings[NOOP] == "NOOP"
    knows_fire = discrete and len(meanings) > AFTER_FIRE and meanings[FIRE] == "FIRE"
    if remedies := [noop] * bool(noop and not begins) + [fire] * (fires and not knows_fire):
        actions = str(space)
        if discrete:
            actions = ", ".join(meanings)
        raise PlanError(
            f"{wrapper}: expected discrete actions that begin with "
            f"NOOP{', FIRE and one more' if fires else ''}, got {actions}: make the environment "
            f"with {'full_action_space=True' if discrete else 'continuous=False'}, or "
            f"{' and '.join(remedies)}"
        )


def meanings_of(env: Env, wrapper: str) -> list[str]:
    """Return the meanings of a game's actions, or raise PlanError if the game has none."""
    game: Any = env.unwrapped
    if not hasattr(game, "get_action_meanings"):
        raise PlanError(
            f"{wrapper}: expected a game with action meanings (get_action_meanings, as those of "
            f"ale-py have), got {type(game).__name__}; leave the wrapper out"
        )
    return list(game.get_action_meanings())
