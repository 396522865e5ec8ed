"""Our side of a comparison: pipelines whose stream is first compared with dummy's, and an ideal."""

from __future__ import annotations

import contextlib
import functools
import itertools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

import gymnasium

from benchmarks.measure import CannotRun, Contender, WorkResult, measure_rounds
from vecwrap.backends.workers.cores import usable_cores
from vecwrap.env.random_actions import RandomActions
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import PlanError, VecwrapError
from vecwrap.pipeline.build import build_plan
from vecwrap.pipeline.plan import Plan, plan, plan_into_folder
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.rows.compare import assert_same, rows_of
from vecwrap.rows.step_result import Autoreset
from vecwrap.tools.throughput import SEED, Throughput, action_batches, make_driver

OTHER_BACKENDS = ("shmem", "subprocess", "dummy")
ASKED_FOR = (Autoreset.DISABLED, Autoreset.EPISODIC)  # when resets come is up to the user's loop
LOCKSTEP = 32  # vector steps compared with dummy before anything is timed
CLOCKS = ("episode.t", "final_info.episode.t")  # a monitor's wall clock is not part of the stream
HOW = (
    "One set of environments, seeds and actions for all; wrappers of the sub-environments are the "
    "same on both sides, unless a peer has its own, which its row says."
)


class StreamError(VecwrapError):
    """A backend of ours returned another stream than dummy: whatever it costs, it is not the same
    work.
    """


class Peer(Protocol):
    """A library that we are compared with: how it does the work of a pipeline, or why it cannot."""

    names: tuple[str, ...]

    def contenders(self, planned: Plan) -> Sequence[Contender]:
        """Return contenders that do the work of a pipeline; CannotRun if it cannot do the same."""


def compare_pipeline(
    spec: PipelineSpec,
    peers: Sequence[Peer],
    rounds: int,
    seconds: float,
    *,
    say: Callable[[str], None] = lambda text: None,
) -> WorkResult:
    """Measure a user's pipeline and peers that can do the same work; its files go to a temporary
    folder meanwhile.
    """
    mode = spec.autoreset_mode
    if mode in ASKED_FOR:
        raise PlanError(
            f"{spec.where('autoreset')}: expected same_step or next_step, in which stepping alone "
            f"goes on for ever, got {mode.value}. Write autoreset: same_step to compare it."
        )
    contenders = our_contenders(spec)
    with tempfile.TemporaryDirectory(prefix="vecwrap-bench-") as folder:
        elsewhere = plan(plan_into_folder(spec, Path(folder)))
        contenders.append(ideal(elsewhere))
        for peer in peers:
            contenders += peer_contenders(peer, elsewhere)
        measured = measure_rounds(contenders, rounds, seconds, say=say)
    return WorkResult("pipeline", str(spec), HOW, measured)


# -- contenders ------------------------------------------------------------------------------------


def our_contenders(spec: PipelineSpec) -> list[Contender]:
    """Return our side: the pipeline as written, then under other backends, without options."""
    chosen = plan(spec).pipeline.backend.name
    lead = f"vecwrap {chosen}" + (", send/recv" if spec.batch_size is not None else "")
    others = [
        built(f"vecwrap {name}", spec.override(backend=name))
        for name in OTHER_BACKENDS
        if name != chosen
    ]
    return [built(lead, spec), *others]


def built(name: str, spec: PipelineSpec) -> Contender:
    """Return a pipeline of ours, driven by ``send`` and ``recv`` with a ``batch_size``, else by
    ``step``.

    Before it is timed, it is stepped alongside dummy with equal seeds and actions: the streams must
    be equal, and each of its n sub-environments must report its own seed.
    """
    return Contender(name, "ours", functools.partial(_open, name, spec))


def _open(name: str, spec: PipelineSpec) -> Throughput:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vecwrap-bench-")))
        env = build_plan(plan(plan_into_folder(spec, folder / "ours")))
        stack.callback(env.close)
        reference = spec.override(backend="dummy", copy=True, batch_size=None)
        with build_plan(plan(plan_into_folder(reference, folder / "dummy"))) as dummy:
            _compare_streams(name, dummy, env)
        env.reset(seed=SEED)
        return Throughput(make_driver(env, spec.batch_size), stack.pop_all().close)


def _compare_streams(name: str, reference: VecEnv, env: VecEnv) -> None:
    """Step two environments alike, from the same seed; StreamError if they differ."""
    space, monitors = (
        reference.single_observation_space,
        [getattr(wrapper, "stats_key", "") for wrapper in env.chain],
    )
    clocks = (
        *CLOCKS,
        *(f"{prefix}{key}.t" for key in monitors if key for prefix in ("", "final_info.")),
    )
    try:
        assert_same(reference.reset(seed=SEED)[0], env.reset(seed=SEED)[0], "reset")
        alive = reference.get_attr("np_random_seed")
        assert_same(alive, env.get_attr("np_random_seed"), "the sub-environments' seeds")
        draw = RandomActions(reference, SEED)
        for number in range(LOCKSTEP):
            actions = draw()
            expected, got = (
                rows_of(space, each.step(actions), clocks) for each in (reference, env)
            )
            assert_same(expected, got, f"step {number + 1}")
    except AssertionError as error:
        raise StreamError(
            f"{name}: its stream is not dummy's, so it does other work: {error}. If the "
            "environment draws from anything but its own np_random (the clock, a global "
            "generator), no two runs of it can be compared: see vecwrap check --twice."
        ) from None


def peer_contenders(peer: Peer, planned: Plan) -> Sequence[Contender]:
    """Return a peer's contenders for a pipeline; if it cannot do the same work, contenders that say
    why.
    """
    try:
        return peer.contenders(planned)
    except CannotRun as error:
        return [Contender(name, "peer", functools.partial(_refuse, error)) for name in peer.names]


def _refuse(error: CannotRun) -> NoReturn:
    raise error


def ideal(planned: Plan) -> Contender:
    """Cores × one process that loops over a sub-environment as workers hold it, with resets."""
    wrappers = " and ".join(
        wrapper.spec.name for wrapper in planned.wrappers if wrapper.runs_in == "worker"
    )
    note = f"a loop over one environment{' with ' + wrappers if wrappers else ''}, times the cores"
    open_it = functools.partial(_loop, planned.factories[0], usable_cores())
    return Contender(f"ideal: {usable_cores()} × one process", "reference", open_it, note)


def _loop(make: Callable[[], gymnasium.Env[Any, Any]], factor: int) -> Throughput:
    env = make()
    env.reset(seed=SEED)
    actions = itertools.cycle(action_batches(env.action_space, 1, as_list=True))

    def run(count: int) -> int:
        step, reset = env.step, env.reset
        for (action,) in itertools.islice(actions, count):
            _, _, terminated, truncated, _ = step(action)
            if terminated or truncated:
                reset()
        return count

    return Throughput(run, env.close, factor=factor)
