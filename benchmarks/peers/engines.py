"""What EnvPool's and ALE's engines share: which pipelines are an Atari game that they can play
themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.peers.translation import cannot
from vecwrap.pipeline.plan import Plan
from vecwrap.wrappers.atari import Atari
from vecwrap.wrappers.emulator.lineages import Settings, resolve_settings
from vecwrap.wrappers.framestack import FrameStack

__all__ = ["atari_only"]


def atari_only(planned: Plan, peer: str) -> tuple[str, Settings, int, Mapping[str, Any]]:
    """Return the game, its preprocessing, the stack, and its registration's arguments.

    Raises:
        CannotRun: the pipeline is not an Atari game under ``atari`` and at most a plain
            ``framestack``.
    """
    registered = planned.environment.effective_spec()
    wrappers = list(planned.wrappers)
    if (
        registered is None
        or "game" not in registered.kwargs
        or not wrappers
        or wrappers[0].target is not Atari
    ):
        cannot(
            peer,
            (
                "its only wrappers are the preprocessing of Atari games, and the pipeline does "
                "not begin with atari"
            ),
        )
    stack = 1
    for wrapper in wrappers[1:]:
        arguments = wrapper.bound.complete
        if wrapper.target is not FrameStack or stack != 1:
            cannot(peer, f'it has nothing like the wrapper "{wrapper.spec.name}"')
        if (arguments["axis"], arguments["padding"], arguments["keys"]) != ("new", "zero", None):
            cannot(peer, "its stack has a new leading axis and is padded with zeros")
        stack = arguments["k"]
    return (
        str(registered.kwargs["game"]),
        resolve_settings(**wrappers[0].bound.complete),
        stack,
        registered.kwargs,
    )
