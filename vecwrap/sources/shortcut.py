"""A quicker way to a game in turns: PettingZoo's own wrappers forward each attribute through all of them."""

from __future__ import annotations

from typing import Any

_STATE = frozenset({"agents", "agent_selection", "terminations", "truncations", "infos", "_cumulative_rewards"})
_ORDER = "OrderEnforcingWrapper"
_TRANSPARENT = frozenset(
    {_ORDER, "AssertOutOfBoundsWrapper", "TerminateIllegalWrapper", "ClipOutOfBoundsWrapper", "CaptureStdoutWrapper"}
)


class Shortcut:
    """Gives what an ``AECEnv`` gives, read where its wrappers read it.

    Attributes:
        play: what to call ``step`` and ``observe`` of: the environment without the wrapper that only checks the order
            of calls, which is ours.
    """

    def __init__(self, env: Any) -> None:
        from pettingzoo.utils.env import AECEnv

        self.play = env.env if _name(env) == _ORDER else env
        self._env = inner = env
        self._around: list[dict[str, Any]] = []  # the attributes of wrappers that forward what they do not have
        while _name(inner) in _TRANSPARENT:
            self._around.append(vars(inner))
            inner = inner.env
        self._inner = inner
        self._last: Any = None if type(env).last is AECEnv.last else env.last

    def state(self) -> Any:
        """Return what has the attributes of an AECEnv that are its state."""
        for attributes in self._around:
            if not _STATE.isdisjoint(attributes):
                return self._env
        return self._inner

    def last(self, state: Any, agent: Any) -> tuple[Any, Any, Any, Any, Any]:
        """As ``env.last()``, of the agent whose turn it is."""
        if self._last is not None:
            return self._last()  # type: ignore[no-any-return]
        seen = self.play.observe(agent)
        paid = state._cumulative_rewards[agent]  # noqa: SLF001  # as AECEnv.last does
        return seen, paid, state.terminations[agent], state.truncations[agent], state.infos[agent]


def _name(env: Any) -> str:
    """The name of one of PettingZoo's own wrappers."""
    kind = type(env)
    return kind.__name__ if kind.__module__.startswith("pettingzoo.utils.wrappers.") else ""
