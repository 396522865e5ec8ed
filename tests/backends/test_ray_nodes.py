"""Two nodes on one machine, with addresses of their own; clusters that are joined, missing or
silent.
"""

import math
import os
import socket
import subprocess
import sys
import time
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

from tests.backends.ray_cluster import STORE, small
from tests.faults.faulty import Faulty, factories
from tests.helpers.backends import DummyBackend
from tests.helpers.polling import until
from vecwrap.backends.ray import ActorHandle, Ray
from vecwrap.backends.ray_cluster import Cluster, RayOptions
from vecwrap.backends.workers.pool import PendingReply
from vecwrap.errors import BackendError, SubEnvError
from vecwrap.rows.compare import assert_same

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.xdist_group("ray nodes")  # one process has the cluster
ROOT = Path(__file__).parents[2]
SECOND = "127.0.0.2"  # the second node's address
ON_THE_SECOND = {f"node:{SECOND}": 0.01}
SETTINGS = {"num_cpus": 1, "object_store_memory": STORE}
SOON = {  # Ray's own patience with a node that does not answer is half a minute
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 3000,
    "health_check_failure_threshold": 3,
}


@pytest.fixture(scope="module", autouse=True)
def no_other_cluster():
    """That of other tests ends here, if they ran before."""
    ray.shutdown()


@pytest.fixture(scope="module")
def head(no_other_cluster):
    """A cluster of one node."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={**SETTINGS, "include_dashboard": False, "_system_config": SOON},
    )
    cluster.second = None
    try:
        yield cluster
    finally:
        if ray.is_initialized():
            ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def cluster(head, tmp_path_factory):
    """With a second one, which a test before may have killed; it alone has the module
    ``only_on_the_second``.
    """
    if head.second is None:
        folder = tmp_path_factory.mktemp("packages")
        (folder / "only_on_the_second.py").touch()
        head.second = head.add_node(
            **SETTINGS, node_ip_address=SECOND, env_vars={"PYTHONPATH": str(folder)}
        )
    return head


@pytest.fixture(autouse=True)
def no_address(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def runs_on(cluster):
    """Whether a cluster answers."""
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    try:
        return ray.get(ray.remote(num_cpus=0)(lambda: 7).remote()) == 7
    finally:
        ray.shutdown()


# -- how many --------------------------------------------------------------------------------------


def of_nodes(*cpus):
    """A connection to a cluster of nodes with so many CPUs, the last of which is gone."""
    found = [{"Alive": k < len(cpus) - 1, "Resources": {"CPU": own}} for k, own in enumerate(cpus)]
    cluster = object.__new__(Cluster)
    cluster.ray = SimpleNamespace(nodes=lambda: found)
    return cluster


@pytest.mark.parametrize(("each", "actors"), [(2.0, 2), (1.5, 4), (0.1, 60), (4.0, 1)])
def test_there_are_as_many_actors_as_nodes_have_room_for(each, actors):
    """Two nodes of 3 CPUs have no room for three actors of 2."""
    assert of_nodes(3.0, 3.0, 100.0).num_actors(each) == actors


@pytest.mark.parametrize(
    ("actors", "options"),
    [(3, {"num_cpus": 1}), (1, {"num_gpus": 1}), (1, {"resources": {"robot": 1}})],
)
def test_what_the_whole_cluster_has_too_little_for_is_refused(actors, options):
    with pytest.raises(BackendError, match="in the whole cluster; use fewer workers"):
        RayOptions(**options).refuse_too_small(actors, {"CPU": 2.0})
    RayOptions(num_cpus=0.1).refuse_too_small(20, {"CPU": 2.0})


def test_one_line_says_what_actors_wait_for_that_have_not_started(caplog):
    runner = object.__new__(Ray)
    runner.options = RayOptions(num_cpus=2, num_gpus=0.5)
    runner._workers = [ActorHandle(number, range(1)) for number in range(3)]
    for actor in runner._workers:
        actor.begin(None)
    for actor in runner._workers[:2]:
        actor.call("reference", PendingReply("made", "start_timeout", None, 0))
    now = time.monotonic()
    for seconds in (9.0, 11.0, 30.0):
        runner._warn_of_waiting(now + seconds)
    (record,) = caplog.records
    assert record.getMessage() == (
        "2 of 3 actors have not started within 10 s: they wait for room in the cluster (each "
        "requests 2 CPU, 0.5 GPU), or for their environments"
    )


# -- where actors go -------------------------------------------------------------------------------


class NeedsAPackage(Faulty):
    def __init__(self):
        import only_on_the_second  # noqa: F401

        super().__init__()


@pytest.mark.full
def test_a_package_that_one_node_lacks_is_named_with_that_node(cluster):
    head = cluster.head_node.node_ip_address
    with pytest.raises(
        SubEnvError,
        match=(
            rf"(?s)sub-environment 0 .*only_on_the_second'.*on node {head}: install the package "
            r"there"
        ),
    ):
        small([NeedsAPackage], address=cluster.address, resources={f"node:{head}": 0.01})
    small([NeedsAPackage], address=cluster.address, resources=ON_THE_SECOND).close()


class Large(gymnasium.Env):
    """Its observations go by the object store of its node."""

    observation_space = gymnasium.spaces.Box(0, 255, (500, 1000), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.low, {}

    def step(self, action):
        return self.observation_space.high, 0.0, False, False, {}


@pytest.mark.full
def test_what_has_come_meanwhile_is_no_hang_though_it_lies_on_another_node(cluster):
    """The time runs until the answer is there, not until somebody looks for it."""
    with small(
        [Large] * 4, address=cluster.address, resources=ON_THE_SECOND, step_timeout=300.0
    ) as env:
        env.reset(seed=1)
        for _ in range(5):
            env.step_async([0] * 4)
            (actor,) = env.unwrapped.runner._workers
            assert until(lambda actor=actor: not env.unwrapped.runner._is_late(actor, math.inf))
            actor.since -= 1000.0
            assert (env.step_wait()[0] == 255).all()


# -- clusters that are joined, missing or silent ---------------------------------------------------


@pytest.mark.full
def test_a_cluster_that_is_not_there_is_an_error_within_its_time():
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        free = nobody.getsockname()[1]
    with pytest.raises(
        BackendError,
        match=rf'no Ray cluster at address "127.0.0.1:{free}": .*refused.*ray start --head',
    ):
        small([None], address=f"127.0.0.1:{free}", connect_timeout=2.0)


def test_auto_without_any_cluster_says_so(monkeypatch):
    # Whatever else runs here.
    monkeypatch.setattr("ray._private.services.find_gcs_addresses", lru_cache(frozenset))
    monkeypatch.setattr("ray._private.services.find_bootstrap_address", lambda *_: None)
    with pytest.raises(
        BackendError,
        match=r'no Ray cluster at address "auto": Could not find any .*ray start --head',
    ):
        small([None], address="auto", connect_timeout=30.0)


SILENT = """
from vecwrap.backends.ray import Ray
from vecwrap.testing import on
try:
    on(Ray)([None], address="{address}", connect_timeout=2.0)
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.full
def test_what_listens_and_says_nothing_is_an_error_within_its_time():
    """In a program of its own: Ray goes on trying in its thread, until the program ends."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-c", SILENT.format(address=address)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=240,
        )
    assert done.stdout.startswith(
        f'BackendError no Ray cluster at address "{address}": no cluster has answered there '
    )
    assert "answered there within 2 s. Start one with" in done.stdout
    assert done.returncode == 0


# -- a node that is lost ---------------------------------------------------------------------------


def rows(batch, ids):
    return (
        {key: leaf[ids] for key, leaf in batch.items()} if isinstance(batch, dict) else batch[ids]
    )


@pytest.mark.full
def test_a_node_is_lost_and_the_rows_of_the_other_go_on_untouched(cluster, tmp_path):
    options = {"workers": 2, "num_cpus": 0.5, "address": cluster.address, "restart_backoff": 0.01}
    env = small(factories(tmp_path, 4), on_failure="restart", **options)
    reference = DummyBackend(factories(None, 4))
    try:
        assert len({actor.node for actor in env.unwrapped.runner._workers}) == 2, (
            "spread is the default"
        )
        here = env.unwrapped.runner._cluster.own_node
        safe = next(
            list(actor.env_ids) for actor in env.unwrapped.runner._workers if actor.node == here
        )
        lost = [i for i in range(4) if i not in safe]
        assert_same(reference.reset(seed=1)[0], env.reset(seed=1)[0], "reset")
        told = []
        # Until the loss has been told, which takes Ray a while, and some steps more.
        for k in range(10_000):
            if told and k > told[0][0] + 20:
                break
            if k == 5:
                cluster.remove_node(cluster.second, allow_graceful=False)
                cluster.second = None
            actions = (np.arange(4) + k) % 3
            expected, got = reference.step(actions), env.step(actions)
            for one, other in zip(expected[:4], got[:4], strict=True):
                assert_same(
                    rows(one, safe), rows(other, safe), f"rows of the node that lives, step {k}"
                )
            if "restarted" in got[4] and got[4]["_restarted"].any():
                told.append((k, np.flatnonzero(got[4]["_restarted"]).tolist()))
                assert got[3][lost].all()
        assert [rows for _, rows in told] == [lost]
        assert env.health().restarts.tolist() == [int(i in lost) for i in range(4)]
        assert {actor.node for actor in env.unwrapped.runner._workers} == {here}
    finally:
        env.close()
        reference.close()
    assert not ray.is_initialized()  # we had joined, and have left
    assert runs_on(cluster)
