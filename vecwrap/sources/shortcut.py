"""A quicker way to a game in turns: PettingZoo's own wrappers forward each attribute through all of them."""

from __future__ import annotations

from typing import Any

_ORDER = "OrderEnforcingWrapper"
_TRANSPARENT = frozenset(  # without state of their own
    {_ORDER, "AssertOutOfBoundsWrapper", "TerminateIllegalWrapper", "ClipOutOfBoundsWrapper", "CaptureStdoutWrapper"}
)


class Shortcut:
    """Gives what an ``AECEnv`` gives, read where its wrappers read it; ``play`` steps and observes, ``state`` knows."""

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
        seen, state = self.play.observe(agent), self.state
        paid = state._cumulative_rewards[agent]  # noqa: SLF001  # as AECEnv.last does
        return seen, paid, state.terminations[agent], state.truncations[agent], state.infos[agent]


def _name(env: Any) -> str:
    kind = type(env)
    return kind.__name__ if kind.__module__.startswith("pettingzoo.utils.wrappers.") else ""
