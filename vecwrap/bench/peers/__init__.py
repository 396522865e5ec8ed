"""The peers: each module has a small class that says how a library does the work of a pipeline, or why it cannot.

Nothing of a peer is imported until it is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Protocol

from vecwrap.bench.contender import CannotRun, Contender
from vecwrap.errors import SpecError, did_you_mean
from vecwrap.plan import Plan

__all__ = ["PEERS", "Peer", "load_peer", "peer_contenders", "read_names"]


class Peer(Protocol):
    """A library that we are compared with.

    Attributes:
        names: of its contenders, as shown in tables.
    """

    names: tuple[str, ...]

    def contenders(self, planned: Plan) -> Sequence[Contender]:
        """Return contenders that do the work of a pipeline.

        Raises:
            CannotRun: it cannot do the same work.
        """


PEERS = {
    "gymnasium": "vecwrap.bench.peers.gymnasium:Gymnasium",
    "sb3": "vecwrap.bench.peers.sb3:StableBaselines3",
    "envpool": "vecwrap.bench.peers.envpool:EnvPool",
    "ale": "vecwrap.bench.peers.ale:Ale",
    "tianshou": "vecwrap.bench.peers.tianshou:Tianshou",
}


def read_names(text: str) -> list[str]:
    """Read ``"gymnasium,sb3"``.

    Raises:
        SpecError: an unknown peer.

    >>> read_names("sb3, envpool")
    ['sb3', 'envpool']
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in PEERS:
            hint = did_you_mean(name, PEERS) or f" Known are {', '.join(PEERS)}."
            raise SpecError(f"--vs: there is no peer {name!r}.{hint}")
    return list(dict.fromkeys(names))


def load_peer(name: str) -> Peer:
    """Return a peer by its name."""
    module, _, attribute = PEERS[name].partition(":")
    peer: Peer = getattr(import_module(module), attribute)()
    return peer


def peer_contenders(name: str, planned: Plan) -> Sequence[Contender]:
    """Return a peer's contenders for a pipeline; if it cannot do the same work, contenders that say why."""
    peer = load_peer(name)
    try:
        return peer.contenders(planned)
    except CannotRun as error:

        def refuse(reason: CannotRun = error) -> object:
            raise reason

        return [Contender(each, "peer", refuse) for each in peer.names]  # type: ignore[arg-type]
