"""``vecwrap time``: runs a pipeline, and shows where the time of a vector step goes."""

import contextlib
import itertools
import sys
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

from vecwrap.bench.comparison import refuse_asked_for_resets
from vecwrap.bench.ours import into
from vecwrap.build import build
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
WORDS = 24  # columns for what a part does; if these two do not fit, the table omits them
_COLOURS = {
    "environment": "green",
    "layer": "cyan",
    "backend": "yellow",
    "window": "red",
    "face": "blue",
    "policy": "magenta",
}


@dataclass
class _Timed:
    """The measurements: with the stopwatch on, and with it off."""

    description: str
    parts: list[Part]
    steps: int
    plain_steps: int = 0
    plain_nanoseconds: int = 0

    @property
    def nanoseconds(self) -> int:
        return sum(part.nanoseconds for part in self.parts)

    @property
    def rows(self) -> list[tuple[Part, float, float]]:
        """Each part that ran, with its µs per vector step and its share."""
        whole = self.nanoseconds or 1
        ran = [part for part in self.parts if part.calls or part.kind == "other"]
        return [(part, part.nanoseconds / 1e3 / self.steps, part.nanoseconds / whole) for part in ran]

    @property
    def microseconds(self) -> float:
        """A whole vector step."""
        return self.nanoseconds / 1e3 / self.steps

    @property
    def plain_microseconds(self) -> float | None:
        """The same with the stopwatch off."""
        return self.plain_nanoseconds / 1e3 / self.plain_steps if self.plain_steps else None


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

    Args:
        spec: the pipeline; its files go to a temporary folder meanwhile.
        policy: as ``find_policy`` takes it.
        steps: agent steps over all sub-environments; None for no limit.
        seconds: how long; None for a default, or no limit if ``steps`` is given.
        as_json: print JSON instead of the table.
        console: where it is shown.

    Raises:
        VecwrapError: it cannot be built, or stepping failed.
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
        print_json(_data(measured), console)
    else:
        _show(measured, console)
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
    return _Timed(repr(env), watch.parts, watch.steps, plain, plain_nanoseconds)


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


def _show(measured: _Timed, console: Console) -> None:
    table = _table(measured, in_full=False)
    room = console.width - console.measure(table, options=console.options.update(max_width=sys.maxsize)).maximum
    console.print(Text(measured.description, style="bold"))
    console.print(_table(measured, in_full=True) if room >= BAR + WORDS else table)
    console.print(Text(_remark(measured), style="dim"))


def _table(measured: _Timed, *, in_full: bool) -> Table:
    """The parts and their figures; in full with a bar and a description each. Figures are never cut."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("part", no_wrap=in_full, overflow="fold")
    table.add_column("µs/step", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    if in_full:
        table.add_column("", no_wrap=True, min_width=BAR)
        table.add_column("", style="dim", overflow="fold")
    widest = max(share for _, _, share in measured.rows) or 1.0
    for part, microseconds, share in measured.rows:
        colour = _COLOURS.get(part.kind, "white")
        name = Text(f"backend: {part.name}" if part.kind == "backend" else part.name, style=colour)
        bar = Text("█" * round(BAR * share / widest), style=colour)
        table.add_row(name, f"{microseconds:,.1f}", f"{share:.1%}", *((bar, part.what) if in_full else ()))
    table.add_row(Text("all", style="bold"), f"{measured.microseconds:,.1f}", "100.0%", style="bold")
    return table


def _remark(measured: _Timed) -> str:
    text = f"{measured.steps:,} vector steps were timed."
    if measured.plain_microseconds is not None:
        text += f" The same number in between, untimed, took {measured.plain_microseconds:,.1f} µs each."
    return text


def _data(measured: _Timed) -> dict[str, Any]:
    return {
        "environment": measured.description,
        "vector_steps": measured.steps,
        "microseconds": measured.microseconds,
        "microseconds_without_stopwatch": measured.plain_microseconds,
        "parts": [
            {
                "name": part.name,
                "kind": part.kind,
                "what": part.what,
                "microseconds": microseconds,
                "share": share,
                "calls": part.calls,
            }
            for part, microseconds, share in measured.rows
        ],
    }
