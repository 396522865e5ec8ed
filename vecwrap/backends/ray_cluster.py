"""The Ray cluster of the actors: the first environment joins or starts it, the last one leaves it.

An existing connection of this process is used and never closed; a cluster that was joined is never
shut down.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vecwrap.backends.workers.cores import usable_cores
from vecwrap.backends.workers.options import WorkerOptions, refuse_no_time
from vecwrap.errors import BackendError, PlanError, did_you_mean, install_command, is_installed

_PLACEMENTS = {"spread": "SPREAD", "pack": "DEFAULT"}
_lock = threading.RLock()
_clusters: weakref.WeakSet[Cluster] = weakref.WeakSet()  # connections made here


def check_address(address: str | None) -> None:
    if address is None or address in ("auto", "local"):
        return
    if address.startswith("ray://"):
        raise PlanError(
            f"address: expected auto, local or host:port, got {address!r}; a Ray client is not "
            "part of the cluster, so every observation would travel twice: run this program on "
            "one of its nodes (ray job submit)"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise PlanError(f"address: expected auto, local or host:port, got {address!r}")


class Cluster:
    """A connection to a Ray cluster.

    Raise BackendError if there is no cluster, or if this process is connected to another one.
    """

    def __init__(self, address: str | None, timeout: float, init: Mapping[str, Any]) -> None:
        import ray

        self.ray: Any = ray
        with _lock:
            self.is_own = not self.ray.is_initialized() or _is_held()
            if self.ray.is_initialized():
                self._refuse_another(address)
            else:
                self._connect(address or os.environ.get("RAY_ADDRESS") or "local", timeout, init)
            self._connection = self._present_connection()
            if self.is_own:
                _clusters.add(self)

    def leave(self) -> None:
        """Disconnect from the cluster if this is the last environment.

        Only a cluster that was started here is shut down.
        """
        with _lock:
            last = self in _clusters and self.is_there()
            _clusters.discard(self)
            if last and not _is_held():
                self.ray.shutdown()

    def is_there(self) -> bool:
        """Whether this connection is still the current one: the program may have replaced it."""
        return bool(self.ray.is_initialized()) and self._present_connection() == self._connection

    def num_actors(self, cpus: float) -> int:
        """Return how many actors of so many CPUs the nodes have, at least one."""
        nodes = [node["Resources"].get("CPU", 0.0) for node in self.ray.nodes() if node["Alive"]]
        return max(1, sum(int(own / cpus + 1e-9) for own in nodes))

    @property
    def own_node(self) -> str:
        node: str = self.ray.get_runtime_context().get_node_id()
        return node

    def _present_connection(self) -> tuple[str, str]:
        """An identifier of the connection, different even for another one to the same cluster."""
        context = self.ray.get_runtime_context()
        return context.get_node_id(), context.get_job_id()

    def _connect(self, address: str, timeout: float, init: Mapping[str, Any]) -> None:
        settings = {"address": address, "logging_level": "ERROR"}
        if address == "local":
            # Ray runs actors at niceness 15 by default; ours run like normal worker processes
            ours = {
                "num_cpus": usable_cores(),
                "include_dashboard": False,
                "_system_config": {"worker_niceness": 0},
            }
            try:
                self.ray.init(**{**ours, **settings, **init})
            except (TypeError, ValueError) as error:
                raise PlanError(
                    f"a Ray cluster cannot be started with these arguments: {error}"
                ) from error
            except Exception as error:
                self.ray.shutdown()  # whatever was started
                raise BackendError(
                    f"a Ray cluster could not be started on this machine: {error} Try again when "
                    'it is less busy, or start one with "ray start --head" and use address: auto'
                ) from error
            return
        if address != "auto":
            self._refuse_silence(address, timeout)
        failures: list[BaseException] = []

        def connect() -> None:
            try:
                self.ray.init(**settings, runtime_env=init.get("runtime_env"))
            except BaseException as error:
                failures.append(error)

        # If Ray does not listen at the address, ray.init waits for minutes and ignores signals.
        thread = threading.Thread(target=connect, daemon=True)
        thread.start()
        thread.join(timeout)
        if thread.is_alive():
            raise _no_cluster(address, f"no cluster has answered there within {timeout:g} s")
        if failures and "runtime_env" in init and isinstance(failures[0], (TypeError, ValueError)):
            raise PlanError(f"init: runtime_env: {failures[0]}") from failures[0]
        if failures:
            raise _no_cluster(address, str(failures[0])) from failures[0]

    def _refuse_silence(self, address: str, timeout: float) -> None:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout).close()
        except OSError as error:
            raise _no_cluster(address, f"{error} (waited up to {timeout:g} s)") from error

    def _refuse_another(self, address: str | None) -> None:
        connected = self.ray.get_runtime_context().gcs_address
        if address in (None, "auto", connected):
            return
        if address != "local":
            host, _, port = (address or "").rpartition(":")
            with contextlib.suppress(OSError):
                if f"{socket.gethostbyname(host)}:{port}" == connected:
                    return
        raise BackendError(
            f"address: expected {connected}, which this process is connected to already, got "
            f"{address!r}; a process can use only one cluster: leave the address out, or call "
            "ray.shutdown() first"
        )


def _is_held() -> bool:
    return any(cluster.is_there() for cluster in _clusters)


def _no_cluster(address: str, why: str) -> BackendError:
    return BackendError(
        f'no Ray cluster at address "{address}": {why}. Start one with "ray start --head" (and '
        '"ray start --address=HOST:6379" on the other machines), or leave the address out for one '
        "on this machine only"
    )


@dataclass(frozen=True)
class RayOptions(WorkerOptions):
    """The options of actors.

    Attributes:
        workers: how many actors; None: as many as the cluster has CPUs for.
        envs_per_worker: how many sub-environments per actor, instead of ``workers``.
        step_timeout: seconds that an actor may take for its share of a step, including autoresets;
            an actor that takes longer is killed, and ``on_failure`` applies. None waits forever.
        reset_timeout: the same for its share of a reset.
        start_timeout: the same for its start, including the creation of its environments and the
            wait for resources.
        address: None (the cluster that this process is connected to, else that of ``RAY_ADDRESS``,
            else a new one), ``"local"`` (a new one on this machine, shut down with the last
            environment), ``"auto"`` (the one running on this machine) or ``"host:port"``. Clusters
            not started here are never shut down.
        connect_timeout: seconds before a cluster that does not answer is an error.
        init: further arguments of ``ray.init`` for a cluster that is started here; its
            ``runtime_env``, which may have local folders (``working_dir``, ``py_modules``), for one
            that is joined, too.
        num_cpus: CPUs that each actor requests; may be a fraction.
        num_gpus: GPUs that each actor requests.
        resources: other resources that each actor requests, by the names that nodes were started
            with.
        placement: ``"spread"`` (over the nodes) or ``"pack"`` (on few nodes).
        runtime_env: Ray's description of what a node needs before the actor starts (``pip``,
            ``env_vars``, ...).
    """

    address: str | None = None
    connect_timeout: float = 30.0
    init: Mapping[str, Any] | None = None
    num_cpus: float = 1.0
    num_gpus: float = 0.0
    resources: Mapping[str, float] | None = None
    placement: str = "spread"
    runtime_env: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not is_installed("ray"):  # it is not imported, which takes seconds
            raise PlanError(f'backend "ray" needs ray: {install_command("ray")}')
        super().__post_init__()
        check_address(self.address)
        refuse_no_time("connect_timeout", self.connect_timeout)
        for name, amount in {
            "num_cpus": self.num_cpus,
            "num_gpus": self.num_gpus,
            **(self.resources or {}),
        }.items():
            if not amount >= 0:
                raise PlanError(f"{name}: expected 0 or more, got {amount}")
        if self.placement not in _PLACEMENTS:
            near = did_you_mean(self.placement, _PLACEMENTS)
            raise PlanError(f"placement: expected spread or pack, got {self.placement!r}.{near}")

    @property
    def needs(self) -> dict[str, float]:
        return {"CPU": self.num_cpus, "GPU": self.num_gpus, **(self.resources or {})}

    def refuse_too_small(self, actors: int, resources: Mapping[str, float]) -> None:
        """Refuse actors that the whole cluster has too little for."""
        for name, amount in self.needs.items():
            total = resources.get(name, 0.0)
            if actors * amount > total + 1e-9:
                raise BackendError(
                    f"{actors} actors with {amount:g} {name} each: expected {actors * amount:g}, "
                    f"got {total:g} in the whole cluster; use fewer workers, request less "
                    "(num_cpus, num_gpus, resources), or add nodes"
                )

    def of_an_actor(self) -> dict[str, Any]:
        return {
            "num_cpus": self.num_cpus,
            "num_gpus": self.num_gpus,
            "resources": {name: amount for name, amount in (self.resources or {}).items() if amount}
            or None,
            "runtime_env": dict(self.runtime_env or {}) or None,
            "scheduling_strategy": _PLACEMENTS[self.placement],
        }
