"""All peers of `make bench`: vecwrap's own two, and those that only it measures."""

from __future__ import annotations

from benchmarks.peers.ale import Ale
from benchmarks.peers.envpool import EnvPool
from benchmarks.peers.tianshou import Tianshou
from vecwrap.tools.bench import Peer
from vecwrap.tools.peers import PEERS

__all__ = ["ALL_PEERS"]

ALL_PEERS: dict[str, Peer] = {**PEERS, "envpool": EnvPool(), "ale": Ale(), "tianshou": Tianshou()}
