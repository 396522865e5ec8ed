"""Our side of a comparison: pipelines whose stream is first compared with dummy's, and loops over one environment."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium

from vecwrap.backends.cores import usable_cores
from vecwrap.bench.contender import SEED, Contender, Steps, Throughput, action_batches
from vecwrap.build import build_plan
from vecwrap.errors import VecwrapError
from vecwrap.layer_plan import path_parameters
from vecwrap.plan import Plan, plan
from vecwrap.spec import PipelineSpec
from vecwrap.testing.compare import assert_same, rows_of
from vecwrap.vec_env import VecEnv

__all__ = [
    "StreamError",
    "built",
    "compare_streams",
    "driver",
    "ideal",
    "into",
    "loop",
]

LOCKSTEP = 32  # vector steps compared with dummy before anything is timed
# The wall clock in a monitor's record is not part of the stream.
CLOCKS = ("episode.t", "final_info.episode.t")


class StreamError(VecwrapError):
    """A backend of ours returned another stream than dummy: whatever it costs, it is not the same work."""


def built(name: str, spec: PipelineSpec, note: str = "") -> Contender:
    """Return a pipeline of ours, driven by ``send`` and ``recv`` with a ``batch_size``, else by ``step``.

    Before it is timed, it is stepped alongside dummy with equal seeds and actions: the streams must be equal, and each
    of its n sub-environments must report its own seed.
    """
    return Contender(name, "ours", functools.partial(_open, name, spec), note)


def _open(name: str, spec: PipelineSpec) -> Throughput:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vecwrap-bench-")))
        env = build_plan(plan(into(spec, folder / "ours")))
        stack.callback(env.close)
        reference = spec.override(backend="dummy", copy=True, batch_size=None)
        with build_plan(plan(into(reference, folder / "dummy"))) as dummy:
            compare_streams(name, dummy, env)
        env.reset(seed=SEED)
        return Throughput(driver(env, spec.batch_size), stack.pop_all().close)


def driver(env: VecEnv, batch_size: int | None) -> Steps:
    """Return what steps an environment after a reset: ``send`` and ``recv`` with a ``batch_size``, else ``step``."""
    batches = action_batches(env.single_action_space, env.num_envs, as_list=True)
    if batch_size is None:
        return Steps(env.step, batches, env.num_envs)
    env.send(batches[0])
    return Steps(_send_and_receive(env), batches, batch_size)


def _send_and_receive(env: VecEnv) -> Callable[[Any], None]:
    """One step of the rows that are ready: receive them, and send them again at once."""

    def step(actions: Any) -> None:
        ids = env.recv()[4]["env_id"]
        env.send([actions[i] for i in ids], env_ids=ids)

    return step


def into(spec: PipelineSpec, folder: Path) -> PipelineSpec:
    """Return the same pipeline with its files in another folder: a comparison leaves the user's alone."""
    planned = plan(spec)
    layers = []
    for i, layer in enumerate(planned.layers):
        paths = {
            key: str(folder / str(i)) for key in path_parameters(layer.target) if layer.spec.kwargs.get(key) is not None
        }
        layers.append(dataclasses.replace(layer.spec, kwargs={**layer.spec.kwargs, **paths}))
    return spec.override(wrappers=layers, eval=None)  # eval may name a preset whose layers these are


def compare_streams(name: str, reference: VecEnv, env: VecEnv, steps: int = LOCKSTEP) -> None:
    """Step two environments alike, from the same seed; both are reset.

    Args:
        name: of ``env``, for the error.
        reference: the one that is right.
        env: the one compared with it.
        steps: how many vector steps.

    Raises:
        StreamError: they differ.
    """
    space, monitors = reference.single_observation_space, [getattr(layer, "stats_key", "") for layer in env.layers]
    clocks = (*CLOCKS, *(f"{prefix}{key}.t" for key in monitors if key for prefix in ("", "final_info.")))
    try:
        assert_same(reference.reset(seed=SEED)[0], env.reset(seed=SEED)[0], "reset")
        alive = reference.get_attr("np_random_seed")
        assert_same(alive, env.get_attr("np_random_seed"), "the sub-environments' seeds")
        batches = action_batches(env.single_action_space, env.num_envs)
        for number, actions in enumerate(itertools.islice(itertools.cycle(batches), steps)):
            expected, got = (rows_of(space, each.step(actions), clocks) for each in (reference, env))
            assert_same(expected, got, f"step {number + 1}")
    except AssertionError as error:
        raise StreamError(
            f"{name}: its stream is not dummy's, so it does other work: {error}. If the environment draws from "
            "anything but its own np_random (the clock, a global generator), no two runs of it can be compared."
        ) from None


# -- references -------------------------------------------------------------------------------------------------------


def ideal(planned: Plan) -> Contender:
    """Cores × one process that loops over one sub-environment as workers hold it, resets included."""
    layers = " and ".join(layer.spec.name for layer in planned.layers if layer.runs_in == "worker")
    note = f"a loop over one environment{' with ' + layers if layers else ''}, times the cores"
    open_it = functools.partial(loop, planned.factories[0], usable_cores())
    return Contender(f"ideal: {usable_cores()} × one process", "reference", open_it, note)


def loop(make: Callable[[], gymnasium.Env[Any, Any]], factor: int = 1) -> Throughput:
    """Open a loop over one environment; its rate is multiplied by ``factor``."""
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
