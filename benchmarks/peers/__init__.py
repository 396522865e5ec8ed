"""The libraries that `make bench` measures beside us."""

from __future__ import annotations

from benchmarks.comparison import Peer
from benchmarks.peers.ale import Ale
from benchmarks.peers.envpool import EnvPool
from benchmarks.peers.gymnasium import Gymnasium
from benchmarks.peers.sb3 import StableBaselines3
from benchmarks.peers.tianshou import Tianshou
from vecwrap.errors import SpecError, did_you_mean

__all__ = ["PEERS", "read_names"]

PEERS: dict[str, Peer] = {
    "gymnasium": Gymnasium(),
    "sb3": StableBaselines3(),
    "envpool": EnvPool(),
    "ale": Ale(),
    "tianshou": Tianshou(),
}


def read_names(text: str) -> list[str]:
    """Read names of peers with commas between them; SpecError for an unknown one."""
    names = dict.fromkeys(filter(None, map(str.strip, text.split(","))))
    for name in names:
        if name not in PEERS:
            hint = did_you_mean(name, PEERS) or f" Known are {', '.join(PEERS)}."
            raise SpecError(f"--vs: there is no peer {name!r}.{hint}")
    return list(names)
