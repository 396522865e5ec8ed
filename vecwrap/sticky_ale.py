"""The action that a sticky emulator holds, which the Arcade Learning Environment leaves out of its state.

With sticky actions, each tick draws whether the emulator takes the given action or repeats the one that it holds. The
draws are in the state, the held action is not, and nothing returns it. So it is found by playing: a few ticks from the
state show what the emulator does with the held action. Any action with which it does the same is as good: the held one
matters until the first tick that takes another, and never again.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

__all__ = ["find_held_action", "is_sticky", "restore"]

NOOP = 0
CERTAIN = 1e-12
"""The accepted probability that none of a number of ticks took the given action."""

MOST_TICKS = 10_000
"""The most ticks played for each action that is tried, some 50 µs each."""


def is_sticky(game: Any) -> bool:
    """Whether the emulator of an Atari environment ever repeats an action, and ever takes another."""
    return 0.0 < _probability(game) < 1.0


def find_held_action(game: Any) -> int:
    """Find an action equivalent to the one that the emulator of a sticky game holds.

    The emulator is left as it was, except that it holds the action found, and ``render`` shows what it showed.
    LookupError if there is none, or if the game is so sticky that it would take minutes to tell.
    """
    ale = game.ale
    if _ticks_until_taken(game) > MOST_TICKS:
        raise LookupError(
            f"repeat_action_probability={_probability(game):g} is too near to 1 for the action to be found that the "
            "emulator holds"
        )
    with _same_picture(game):
        state = ale.cloneState(include_rng=True)
        try:
            expected = [_tick(ale) for _ in range(_ticks_until_taken(game))]
            for action in dict.fromkeys([*ale.getMinimalActionSet(), *ale.getLegalActionSet()]):
                _hold(game, action)
                ale.restoreState(state)
                if all(_tick(ale) == tick for tick in expected):
                    _hold(game, action)
                    return int(action.value)
        finally:
            ale.restoreState(state)
    raise LookupError("the emulator does with no action what it does with the one that it holds")


def restore(game: Any, state: Any, held_action: int | None) -> None:
    """Restore the state of an emulator, and the action that it held, if known; ``render`` shows the same."""
    if held_action is None or not is_sticky(game):
        game.ale.restoreState(state)
        return
    with _same_picture(game):
        _hold(game, held_action)
        game.ale.restoreState(state)


def _probability(game: Any) -> float:
    return float(game.ale.getFloat("repeat_action_probability"))


def _ticks_until_taken(game: Any) -> int:
    """How many ticks it takes until one of them has certainly taken the given action."""
    return math.ceil(math.log(CERTAIN) / math.log(_probability(game)))


def _hold(game: Any, action: int) -> None:
    """Make the emulator hold an action; its state advances by some ticks."""
    for _ in range(_ticks_until_taken(game)):
        game.ale.act(action)


def _tick(ale: Any) -> tuple[int, bytes, Any]:
    """Play one tick; return everything observable: the reward, the screen, the state."""
    reward = ale.act(NOOP)
    return reward, ale.getScreen().tobytes(), ale.cloneState(include_rng=True).__getstate__()


@contextlib.contextmanager
def _same_picture(game: Any) -> Iterator[None]:
    """Make ``render`` show the same until the emulator goes on: restoring a state does not change the screen."""
    if game.render_mode != "rgb_array":
        yield
        return
    picture = game.render()
    yield
    left = _place(game.ale)

    def render() -> Any:
        if _place(game.ale) == left:
            return picture.copy()
        vars(game).pop("render", None)
        return game.render()

    game.render = render


def _place(ale: Any) -> tuple[int, int, bytes]:
    return ale.getFrameNumber(), ale.getEpisodeFrameNumber(), ale.getScreen().tobytes()
