"""A pipeline compared with its peers: who takes part, and with what."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vecwrap.bench.contender import Contender
from vecwrap.bench.ours import built, ideal, into
from vecwrap.bench.peers import PEERS, peer_contenders
from vecwrap.bench.results import WorkResult
from vecwrap.bench.rounds import measure_rounds
from vecwrap.contract import Autoreset
from vecwrap.errors import PlanError
from vecwrap.plan import plan
from vecwrap.spec import PipelineSpec

__all__ = ["ASKED_FOR", "OTHER_BACKENDS", "compare_pipeline", "our_contenders", "refuse_asked_for_resets"]

OTHER_BACKENDS = ("shmem", "subprocess", "dummy")
ASKED_FOR = (Autoreset.DISABLED, Autoreset.EPISODIC)


def our_contenders(
    spec: PipelineSpec,
    variants: Mapping[str, Mapping[str, Any]] | None = None,
    backends: Iterable[str] = OTHER_BACKENDS,
) -> list[Contender]:
    """Return our side: the pipeline as written, then under other backends.

    Args:
        spec: the pipeline.
        variants: more rows: settings that replace some of the pipeline's, by name.
        backends: other backends to try, without options.
    """
    chosen = plan(spec).pipeline.backend.name
    lead = f"vecwrap {chosen}" + (", send/recv" if spec.batch_size is not None else "")
    contenders = [built(lead, spec)]
    contenders += [built(name, spec.override(**changes)) for name, changes in (variants or {}).items()]
    # dummy has no workers to set; each other backend is used with its defaults.
    contenders += [built(f"vecwrap {name}", spec.override(backend=name)) for name in backends if name != chosen]
    return contenders


def compare_pipeline(
    spec: PipelineSpec,
    peers: Sequence[str],
    rounds: int,
    seconds: float,
    *,
    say: Callable[[str], None] = lambda text: None,
) -> WorkResult:
    """Measure a user's pipeline and peers that can do the same work.

    Args:
        spec: the pipeline; its files go to a temporary folder meanwhile.
        peers: their names.
        rounds: how many samples of each contender.
        seconds: how long a sample lasts.
        say: called with progress messages.

    Raises:
        VecwrapError: it cannot be built, or fails; or its stream is not reproducible.
    """
    refuse_asked_for_resets(spec)
    contenders = our_contenders(spec)
    how = (
        "One set of environments, seeds and actions for all; layers of the sub-environments are the same on both "
        "sides, unless a peer has its own, which its row says."
    )
    with tempfile.TemporaryDirectory(prefix="vecwrap-bench-") as folder:
        elsewhere = into(spec, Path(folder))
        contenders.append(ideal(plan(elsewhere)))
        for peer in peers:
            contenders += peer_contenders(PEERS[peer], plan(elsewhere))
        measured = measure_rounds(contenders, rounds, seconds, say=say)
    return WorkResult("pipeline", str(spec), how, measured)


def refuse_asked_for_resets(spec: PipelineSpec) -> None:
    """Refuse the modes in which resets are requested: when they come is up to the user's loop, not the backend."""
    mode = Autoreset.parse(spec.autoreset)
    if mode in ASKED_FOR:
        raise PlanError(
            f"{spec.where('autoreset')}: expected same_step or next_step, in which stepping alone goes on for ever, "
            f"got {mode.value}. Write autoreset: same_step to compare it."
        )
