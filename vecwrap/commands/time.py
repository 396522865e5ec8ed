"""``vecwrap time``: runs a pipeline, and shows where the time of a vector step goes."""

import contextlib
import itertools
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector.utils import iterate
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vecwrap.bench.ours import into, refuse_asked_for_resets
from vecwrap.building import build
from vecwrap.commands.output import print_json
from vecwrap.commands.rollout import Interrupt, Policy, Tally, find_policy, interruptible, rollout
from vecwrap.errors import VecwrapError
from vecwrap.spec import PipelineSpec
from vecwrap.timing import Part, Stopwatch
from vecwrap.vec_env import VecEnv

__all__ = ["time_pipeline"]

DEFAULT_SECONDS = 5.0
WARM_UP = 32  # vector steps that are not counted, while caches fill and spin times adapt
BLOCK = 16  # vector steps with the stopwatch on, then the same number with it off, alternating
BLOCK_SECONDS = 0.1
BAR = 20
IN_FULL = 100  # columns from which on the table has bars and descriptions
_COLOURS = {"environment": "green", "layer": "cyan", "backend": "yellow", "face": "blue", "policy": "magenta"}


@dataclass
class _Timed:
    """The measurements: with the stopwatch on, and with it off."""

    description: str
    parts: list[Part]  # those that ran
    steps: int
    plain_microseconds: float | None  # a vector step with the stopwatch off; None if there was none

    @property
    def microseconds(self) -> float:
        """A whole vector step."""
        return sum(map(self.of, self.parts))

    def of(self, part: Part) -> float:
        """Microseconds of a part in a vector step."""
        return part.nanoseconds / 1e3 / self.steps


def time_pipeline(
    spec: PipelineSpec,
    *,
    policy: str,
    steps: int | None,
    seconds: float | None,
    as_json: bool,
    console: Console,
) -> int:
    """Run a pipeline and print what each part of a vector step costs; return the exit status.

    Its files go to a temporary folder meanwhile. ``steps`` are agent steps over all sub-environments.
    """
    if steps is None and seconds is None:
        seconds = DEFAULT_SECONDS
    if spec.batch_size is not None:
        refuse_asked_for_resets(spec)
    with contextlib.ExitStack() as stack:
        if console.is_terminal and not as_json:
            stack.enter_context(console.status("timing ..."))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="vecwrap-time-"))
        env = stack.enter_context(build(into(spec, Path(folder))))
        interrupt = stack.enter_context(interruptible())
        env.action_space.seed(spec.seed)
        measured = _measure(env, find_policy(policy, env), policy, steps, seconds, interrupt)
    if as_json:
        print_json(_timing_data(measured), console)
    else:
        _show_timing(measured, console)
    return 128 + interrupt.number if interrupt.asked else 0


def _measure(
    env: VecEnv, act: Policy, name: str, steps: int | None, seconds: float | None, interrupt: Interrupt
) -> _Timed:
    """Step in blocks, alternating the stopwatch on and off, so that fluctuations affect both alike."""
    watch = Stopwatch(env)
    drive = rollout if env.pipeline.batch_size is None else _exchange
    taken = drive(
        env, watch.timed(name, "policy", "the policy", act), Tally(), steps=steps, episodes=None, interrupt=interrupt
    )
    block = BLOCK if steps is None else max(1, min(BLOCK, steps // env.num_envs // 4))
    end = None if seconds is None else time.monotonic() + seconds
    _take(taken, min(WARM_UP, 2 * block), BLOCK_SECONDS)
    plain = plain_nanoseconds = 0
    while True:
        with watch:
            _take(taken, block, BLOCK_SECONDS)
        start = time.perf_counter_ns()
        count = _take(taken, block, BLOCK_SECONDS)
        plain_nanoseconds += time.perf_counter_ns() - start
        plain += count
        if not count or (end is not None and time.monotonic() >= end):
            break
    if not watch.steps:
        raise VecwrapError("time: ended before a step was timed; increase --steps, or press Ctrl-C later")
    ran = [part for part in watch.parts if part.calls or part.kind == "other"]
    return _Timed(repr(env), ran, watch.steps, plain_nanoseconds / 1e3 / plain if plain else None)


def _take(taken: Iterator[None], most: int, seconds: float) -> int:
    """Take at most this many steps, for this long; return how many, 0 when there are no more."""
    end = time.monotonic() + seconds
    count = 0
    for _ in itertools.islice(taken, most):
        count += 1
        if time.monotonic() >= end:
            break
    return count


def _exchange(
    env: VecEnv, policy: Policy, tally: Tally, *, steps: int | None, episodes: int | None, interrupt: Interrupt
) -> Iterator[None]:
    """As ``rollout``, with ``send`` and ``recv``: each ready sub-environment gets its next action."""
    observations, _ = env.reset()
    env.send(policy(observations))
    start = time.perf_counter()
    while not (interrupt.asked or (steps is not None and tally.steps >= steps)):
        observations, _, _, _, infos = env.recv()
        ids = infos["env_id"]
        tally.add(len(ids), infos, time.perf_counter() - start)
        actions = policy(observations)  # random and zeros always return n rows
        rows = actions if isinstance(actions, np.ndarray) else list(iterate(env.action_space, actions))
        env.send(rows[: len(ids)], env_ids=ids)
        yield


# -- what is shown ----------------------------------------------------------------------------------------------------


def _show_timing(measured: _Timed, console: Console) -> None:
    in_full = console.width >= IN_FULL
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("part", overflow="fold")
    table.add_column("µs/step", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    if in_full:
        table.add_column("", no_wrap=True)
        table.add_column("", style="dim", overflow="fold")
    whole, most = measured.microseconds, max(map(measured.of, measured.parts))
    for part in measured.parts:
        colour, time_of = _COLOURS.get(part.kind, "white"), measured.of(part)
        name = Text(f"backend: {part.name}" if part.kind == "backend" else part.name, style=colour)
        bar = Text("█" * round(BAR * time_of / most), style=colour)
        table.add_row(name, f"{time_of:,.1f}", f"{time_of / whole:.1%}", *((bar, part.what) if in_full else ()))
    table.add_row(Text("all", style="bold"), f"{whole:,.1f}", "100.0%", style="bold")
    remark = f"{measured.steps:,} vector steps were timed."
    if measured.plain_microseconds is not None:
        remark += f" The same number in between, untimed, took {measured.plain_microseconds:,.1f} µs each."
    console.print(Text(measured.description, style="bold"))
    console.print(table)
    console.print(Text(remark, style="dim"))


def _timing_data(measured: _Timed) -> dict[str, Any]:
    return {
        "environment": measured.description,
        "vector_steps": measured.steps,
        "microseconds": measured.microseconds,
        "microseconds_without_stopwatch": measured.plain_microseconds,
        "parts": [
            {**vars(part), "microseconds": measured.of(part), "share": measured.of(part) / measured.microseconds}
            for part in measured.parts
        ],
    }
