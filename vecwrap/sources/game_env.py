"""PettingZoo's environments: their kinds, and what they report about the agent to move."""

from __future__ import annotations

from typing import Any, NoReturn

from gymnasium import spaces
from gymnasium.vector.utils import batch_space, create_empty_array, iterate

from vecwrap.errors import PlanError
from vecwrap.sources.description import is_game


def refuse_other(env: Any) -> None:
    if not is_game(type(env)):
        raise PlanError(
            "expected PettingZoo's AECEnv or ParallelEnv from the factory, got "
            f"{type(env).__name__}"
        )


def is_parallel(env: Any) -> bool:
    return (
        next(
            kind.__name__
            for kind in type(env).__mro__
            if kind.__name__ in ("AECEnv", "ParallelEnv")
        )
        != "AECEnv"
    )


def refuse_lacking(agent: Any, **given: Any) -> NoReturn:
    what, values = next((name, values) for name, values in given.items() if agent not in values)
    raise PlanError(
        f"expected {what} of every agent that acts, got none of {agent}: {list(values)}"
    )


def as_reset_result(result: Any) -> tuple[Any, Any]:
    """Return what the reset of a ``ParallelEnv`` gave, if it is of the right form."""
    if isinstance(result, tuple) and len(result) == 2:
        return result
    raise PlanError(
        f"reset: expected a dict of observations and one of infos, got {type(result).__name__}"
    )


def as_step_result(result: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Return what a step of a ``ParallelEnv`` gave, if it is of the right form."""
    if isinstance(result, tuple) and len(result) == 5:
        return result
    if isinstance(result, tuple):
        got = f"a tuple of {len(result)}"
    else:
        got = type(result).__name__
    raise PlanError(f"step: expected PettingZoo's five dicts, got {got}")


def zero_of(space: spaces.Space[Any]) -> Any:
    return next(iter(iterate(batch_space(space, 1), create_empty_array(space, 1))))


_ORDER = "OrderEnforcingWrapper"
_TRANSPARENT = frozenset(  # without state of their own
    {
        _ORDER,
        "AssertOutOfBoundsWrapper",
        "TerminateIllegalWrapper",
        "ClipOutOfBoundsWrapper",
        "CaptureStdoutWrapper",
    }
)


class FastLast:
    """The interface of an ``AECEnv`` without PettingZoo's wrappers.

    Each attribute would be forwarded through all of those wrappers.

    ``play`` steps and observes, ``state`` knows.
    """

    def __init__(self, env: Any) -> None:
        from pettingzoo.utils.env import AECEnv

        # Without the wrapper that only checks the order of calls, which is ours.
        self.play = env.env if _name(env) == _ORDER else env
        self.state = env
        while _name(self.state) in _TRANSPARENT:
            self.state = self.state.env
        self._last: Any = None if type(env).last is AECEnv.last else env.last

    def last(self, agent: Any) -> tuple[Any, Any, Any, Any, Any]:
        """As ``env.last()``, of the agent whose turn it is."""
        if self._last is not None:
            return self._last()  # type: ignore[no-any-return]
        seen = self.play.observe(agent)
        state = self.state
        paid = state._cumulative_rewards[agent]  # noqa: SLF001  # as AECEnv.last does
        return seen, paid, state.terminations[agent], state.truncations[agent], state.infos[agent]


def _name(env: Any) -> str:
    kind = type(env)
    return kind.__name__ if kind.__module__.startswith("pettingzoo.utils.wrappers.") else ""
