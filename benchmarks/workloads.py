"""The workloads of `make bench`, as data: what is done, and who does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks import chains, startup
from benchmarks.environments import UNEVEN, WORK
from benchmarks.peers import ALL_PEERS
from vecwrap.bench.measure import Contender
from vecwrap.bench.ours import OTHER_BACKENDS, built, ideal, our_contenders, peer_contenders
from vecwrap.plan import Plan, plan
from vecwrap.spec import PipelineSpec

__all__ = ["Workload", "workloads"]

SAME = "All sides hold the same environments with the same inner wrappers, seeds and actions. "
LOOP = "The ideal is a loop over one of these environments, resets included, times the cores."
ATARI = (
    "Skip 4, 84×84 grey INTER_AREA, 1 to 30 no-ops, an episode a life, rewards clipped, a stack of 4, on all sides. "
    "EnvPool and ALE's engine play in C++ and hold no Python environments; where a peer's preprocessing differs, its "
    "row says so."
)
PYTHON_PEERS = ("gymnasium", "sb3", "tianshou")
ATARI_PEERS = (*PYTHON_PEERS, "envpool", "ale")

Reference = Callable[[Plan], Contender]


@dataclass(frozen=True)
class Workload:
    """One line of the table, not yet opened.

    Attributes:
        key: its short name, for ``--only``.
        title: what is done.
        how: what the sides have in common, and where they differ.
        contenders: returns them, ours first.
        most_rounds: the most rounds, if a round takes long; 0 for no limit.
        warm_up: whether a sample is taken beforehand.
    """

    key: str
    title: str
    how: str
    contenders: Callable[[], Sequence[Contender]]
    most_rounds: int = 0
    warm_up: bool = True


@dataclass(frozen=True)
class Pipeline:
    """A pipeline of ours with peers and references.

    Attributes:
        spec: ours.
        variants: more rows of ours, by name: settings that replace some of the pipeline's.
        backends: other backends of ours.
        peers: their names.
        references: what the cores could do.
    """

    spec: PipelineSpec
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    backends: tuple[str, ...] = OTHER_BACKENDS
    peers: tuple[str, ...] = PYTHON_PEERS
    references: tuple[Reference, ...] = (ideal,)

    def __call__(self) -> list[Contender]:
        """Return all contenders."""
        planned = plan(self.spec)
        lead, *others = our_contenders(self.spec, self.backends)
        variants = [built(name, self.spec.override(**changes)) for name, changes in self.variants.items()]
        contenders = [lead, *variants, *others]
        contenders += [reference(planned) for reference in self.references]
        for peer in self.peers:
            contenders += peer_contenders(ALL_PEERS[peer], planned)
        return contenders


def workloads(loops_per_us: float) -> list[Workload]:
    """Return all workloads.

    Args:
        loops_per_us: how many loops of ``spin`` make a microsecond on this machine.
    """

    def work(microseconds: int, **more: Any) -> dict[str, Any]:
        return {"microseconds": microseconds, "loops_per_us": loops_per_us, **more}

    image = PipelineSpec(WORK, n=8, env_kwargs=work(100, shape=[3, 256, 256]))
    return [
        *(
            Workload(
                f"cartpole-{n}",
                f"CartPole-v1, n={n}",
                SAME + LOOP,
                Pipeline(PipelineSpec("CartPole-v1", n=n), peers=(*PYTHON_PEERS, "envpool")),
            )
            for n in (8, 64)
        ),
        Workload(
            "work-1ms",
            "a step that computes for 1 ms, n=8",
            SAME + LOOP,
            Pipeline(PipelineSpec(WORK, n=8, env_kwargs=work(1000))),
        ),
        Workload(
            "image-100us",
            "a step that computes for 100 µs, with a 3×256×256 uint8 observation, n=8",
            f"{SAME}Observations are copied on all sides; the rows with copy=False hand out views. {LOOP}",
            Pipeline(image, {"vecwrap shmem, copy=False": {"copy": False}}),
        ),
        *(
            Workload(f"pong-{n}", f"Pong, skip 4, 84×84 grey, a stack of 4, n={n}", ATARI, _pong(n, ATARI_PEERS))
            for n in (8, 16)
        ),
        Workload(
            "pong-monitor-8",
            "Pong with atari, framestack:4 and monitor, n=8",
            f"{ATARI} SB3's side is AtariWrapper, VecFrameStack and VecMonitor; its stack is on the last axis.",
            _pong(8, ("sb3",), "monitor"),
        ),
        Workload(
            "start-64",
            "64 Pongs from build to the first seeded observation, without fork",
            startup.HOW,
            startup.contenders,
            most_rounds=3,
            warm_up=False,
        ),
        Workload("stack-64", "framestack:4 alone, on 84×84 frames, n=64", chains.STACK_HOW, chains.stacks),
        Workload(
            "chain-64", "framestack, normalize and monitor alone, on 8 numbers, n=64", chains.CHAIN_HOW, chains.chain
        ),
        *(
            Workload(
                f"uneven-{'wait' if waits else 'compute'}",
                f"steps that {'wait' if waits else 'compute'} 0.2 to 5 ms, n=16, 16 workers, batch_size=8",
                f"{SAME}send/recv takes whichever 8 rows are ready and sends them off again; step waits for all 16. "
                "Only tianshou among these peers can do the former.",
                Pipeline(
                    PipelineSpec(
                        UNEVEN,
                        n=16,
                        batch_size=8,
                        backend={"name": "shmem", "workers": 16},
                        env_kwargs={"waits": waits, "loops_per_us": loops_per_us},
                    ),
                    {"vecwrap shmem, step": {"batch_size": None}},
                    backends=(),
                    peers=("tianshou",),
                    references=(),
                ),
            )
            for waits in (True, False)
        ),
    ]


def _pong(n: int, peers: tuple[str, ...], *layers: str) -> Pipeline:
    spec = PipelineSpec("PongNoFrameskip-v4", n=n, wrappers=["atari", "framestack:4", *layers])
    return Pipeline(spec, peers=peers, references=(ideal,))
