"""The resources that actors need in a cluster: what each requests, and where it goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vecwrap.backends.cluster import Node
from vecwrap.backends.workers import share_out
from vecwrap.errors import BackendError, PlanError, did_you_mean

__all__ = ["Request", "share_out_over"]

_PLACEMENTS = {"spread": "SPREAD", "pack": "DEFAULT"}
_FOLDERS = ("working_dir", "py_modules")  # of a runtime_env


def share_out_over(
    n: int, workers: int | None, each: int | None, nodes: Sequence[Node], per_actor: float
) -> list[range]:
    """Return the sub-environments of each actor; by default as many actors as the nodes have CPUs for.

    >>> nodes = [Node("1", "10.0.0.1", {"CPU": 1.0}), Node("2", "10.0.0.2", {"CPU": 1.0})]
    >>> share_out_over(6, None, None, nodes, per_actor=0.5)
    [range(0, 2), range(2, 3), range(3, 5), range(5, 6)]
    """
    if workers is None and each is None:
        workers = max(1, _room_for("CPU", per_actor or 1.0, nodes))
    return share_out(n, workers, each)


def _room_for(name: str, amount: float, nodes: Sequence[Node]) -> int:
    """How many actors with this request for a resource fit; each must fit on a single node."""
    return sum(int(node.resources.get(name, 0.0) / amount + 1e-9) for node in nodes)


@dataclass(frozen=True)
class Request:
    """The resources that each actor requests.

    Attributes:
        needs: how much of each resource.
        placement: ``"spread"``, ``"pack"``, or node addresses or ids, used in turn.
        runtime_env: Ray's setup of a node before the actor starts, without local folders.
        folders: the local folders of the same: Ray accepts these per program, not per actor.
    """

    needs: Mapping[str, float]
    placement: str | Sequence[str] = "spread"
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    folders: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Request:
        """Read the options of the backend.

        Raises:
            PlanError: an option is invalid.
        """
        needs = {"num_cpus": options.get("num_cpus", 1.0), "num_gpus": options.get("num_gpus", 0.0)}
        for name, amount in {**needs, **(options.get("resources") or {})}.items():
            if not amount >= 0:
                raise PlanError(f"{name}: expected 0 or more, got {amount}")
        placement = options.get("placement", "spread")
        if isinstance(placement, str) and placement not in _PLACEMENTS:
            near = did_you_mean(placement, _PLACEMENTS)
            raise PlanError(f"placement: expected spread, pack or a list of nodes, got {placement!r}.{near}")
        if not placement:
            raise PlanError("placement: expected at least one node, got an empty list")
        named = {"CPU": needs["num_cpus"], "GPU": needs["num_gpus"], **(options.get("resources") or {})}
        runtime_env = dict(options.get("runtime_env") or {})
        folders = {name: value for name, value in runtime_env.items() if name in _FOLDERS and not _is_uploaded(value)}
        return cls(named, placement, {k: v for k, v in runtime_env.items() if k not in folders}, folders)

    def refuse_no_room(self, actors: int, nodes: Sequence[Node]) -> None:
        """Refuse requests that exceed the whole cluster, even if nothing else ran in it.

        Raises:
            BackendError: too little of a resource.
        """
        for name, amount in self.needs.items():
            if not amount:
                continue
            places = _room_for(name, amount, nodes)
            if places < actors:
                raise BackendError(
                    f"{actors} actors with {amount:g} {name} each: expected room for all, got room for {places} in "
                    f"the whole cluster ({', '.join(map(str, nodes))}); use fewer workers, request less (num_cpus, "
                    "num_gpus, resources), or add nodes"
                )
        if not isinstance(self.placement, str):
            for name in self.placement:
                _node_named(name, nodes)

    def options(self, number: int, nodes: Sequence[Node], *, restarts: bool) -> dict[str, Any]:
        """Return Ray's options for an actor.

        Args:
            number: the actor's.
            nodes: those that are up.
            restarts: whether Ray restarts its process.
        """
        others = {name: amount for name, amount in self.needs.items() if name not in ("CPU", "GPU") and amount}
        return {
            "num_cpus": self.needs["CPU"],
            "num_gpus": self.needs["GPU"],
            "resources": others or None,
            "runtime_env": dict(self.runtime_env) or None,
            "scheduling_strategy": self._strategy(number, nodes),
            "max_restarts": -1 if restarts else 0,
            "max_task_retries": 0,
        }

    def _strategy(self, number: int, nodes: Sequence[Node]) -> Any:
        if isinstance(self.placement, str):
            return _PLACEMENTS[self.placement]
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = _node_named(self.placement[number % len(self.placement)], nodes)
        return NodeAffinitySchedulingStrategy(node.id, soft=True)  # soft: another node if that one is gone


def _is_uploaded(place: Any) -> bool:
    places = place if isinstance(place, (list, tuple)) else [place]
    return all("://" in str(one) for one in places)


def _node_named(name: str, nodes: Sequence[Node]) -> Node:
    for node in nodes:
        if name in (node.address, node.id):
            return node
    raise BackendError(f"placement: no node {name} in the cluster; it has {', '.join(map(str, nodes))}")
