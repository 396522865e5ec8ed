"""The workloads of `make bench`, as data: what is done, and who does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks import chains, startup
from benchmarks.comparison import built, ideal, our_contenders, peer_contenders
from benchmarks.environments import UNEVEN, WORK
from benchmarks.measure import Contender
from benchmarks.peers import PEERS
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec

__all__ = ["Workload", "workloads"]

SAME = (
    "All sides hold the same environments with the same inner wrappers, seeds and actions. The "
    "ideal is a loop over one of these environments, resets included, times the cores."
)
PONG = (
    "Skip 4, 84×84 grey INTER_AREA, 1 to 30 no-ops, an episode a life, rewards clipped, a stack "
    "of 4, on all sides. EnvPool and ALE's engine play in C++ and hold no Python environments; "
    "where a peer's preprocessing differs, its row says so."
)
UNEVEN_HOW = (
    "16 workers, batch_size=8: send/recv takes whichever 8 rows are ready and sends them off "
    "again; step waits for all 16. Only tianshou among these peers can do the former."
)
PYTHON_PEERS = ("gymnasium", "sb3", "tianshou")


@dataclass(frozen=True)
class Workload:
    """One comparison, not yet opened."""

    key: str  # its short name, for --only
    title: str
    how: str  # what the sides have in common, and where they differ
    contenders: Callable[[], Sequence[Contender]]  # ours first
    most_rounds: int = 0  # if a round takes long; 0 for no limit
    warm_up: bool = True


def workloads(loops_per_us: float) -> list[Workload]:
    """Return all workloads, given how many loops of ``spin`` make a microsecond on this machine."""

    def work(microseconds: int, **more: Any) -> PipelineSpec:
        kwargs = {"microseconds": microseconds, "loops_per_us": loops_per_us, **more}
        return PipelineSpec(WORK, n=8, env_kwargs=kwargs)

    def cartpole(n: int) -> Workload:
        peers = (*PYTHON_PEERS, "envpool")
        return Workload(
            f"cartpole-{n}",
            f"{n} CartPoles",
            SAME,
            partial(_all, PipelineSpec("CartPole-v1", n=n), peers),
        )

    def pong(n: int) -> Workload:
        spec = PipelineSpec("PongNoFrameskip-v4", n=n, wrappers=["atari", "framestack:4"])
        return Workload(f"pong-{n}", f"{n} Pongs", PONG, partial(_all, spec, tuple(PEERS)))

    def uneven(kind: str, waits: bool) -> Workload:
        kwargs = {"waits": waits, "loops_per_us": loops_per_us}
        backend = {"name": "shmem", "workers": 16}
        spec = PipelineSpec(UNEVEN, n=16, batch_size=8, backend=backend, env_kwargs=kwargs)
        contenders = partial(
            _all, spec, ("tianshou",), {"vecwrap shmem, step": {"batch_size": None}}, backends=False
        )
        return Workload(
            f"uneven-{kind}", f"16 envs that {kind} 0.2 to 5 ms", UNEVEN_HOW, contenders
        )

    image, views = work(100, shape=[3, 256, 256]), {"vecwrap shmem, copy=False": {"copy": False}}
    return [
        cartpole(8),
        cartpole(64),
        Workload("work-1ms", "8 envs, 1 ms per step", SAME, partial(_all, work(1000))),
        Workload(
            "image-100us",
            "8 envs, 100 µs, 3×256×256 px",
            (
                f"{SAME} Observations are copied on all sides; the rows with copy=False hand out "
                "views."
            ),
            partial(_all, image, variants=views),
        ),
        pong(8),
        pong(16),
        Workload(
            "start-64",
            "64 Pongs ready",
            startup.HOW,
            startup.contenders,
            most_rounds=3,
            warm_up=False,
        ),
        Workload("stack-64", "framestack:4 of 64 84×84 frames", chains.STACK_HOW, chains.stacks),
        Workload(
            "chain-64",
            "framestack, normalize, monitor of 64 × 8 numbers",
            chains.CHAIN_HOW,
            chains.chain,
        ),
        Workload(
            "chain-1024",
            "framestack, normalize, monitor of 1,024 × 8 numbers",
            chains.CHAIN_HOW,
            partial(chains.chain, 1024),
        ),
        uneven("wait", True),
        uneven("compute", False),
    ]


def _all(
    spec: PipelineSpec,
    peers: Sequence[str] = PYTHON_PEERS,
    variants: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    backends: bool = True,
) -> list[Contender]:
    """The contenders of a pipeline: ours, variants of it by name, our other backends and the ideal,
    and peers.
    """
    planned = plan(spec)
    lead, *others = our_contenders(spec)
    contenders = [lead] + [
        built(name, spec.override(**changes)) for name, changes in (variants or {}).items()
    ]
    if backends:
        contenders += [*others, ideal(planned)]
    for peer in peers:
        contenders += peer_contenders(PEERS[peer], planned)
    return contenders
