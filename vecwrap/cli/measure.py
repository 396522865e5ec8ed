"""The commands that measure: time, tune, tournament."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vecwrap.backends.workers.cores import usable_cores
from vecwrap.cli import command as cli
from vecwrap.cli.output import figures_table, print_json, say_interrupted
from vecwrap.cli.pipelines import read_pipeline
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import SpecError, VecwrapError
from vecwrap.pipeline.build import build
from vecwrap.pipeline.plan import plan_into_folder
from vecwrap.selfplay.pool import OpponentPool
from vecwrap.selfplay.tournament import Tournament, tournament
from vecwrap.tools.policy_runner import MASKS_OPTIONAL, PolicyRunner
from vecwrap.tools.rollout import (
    EpisodeStats,
    Interrupt,
    Policy,
    find_policy,
    interruptible,
    rollout,
    sigterm_as_ctrl_c,
)
from vecwrap.tools.timing import Stopwatch
from vecwrap.tools.trained import refuse_pickles
from vecwrap.tools.tune import Tuned, search

DEFAULT_SECONDS = 5.0
# vector steps that are not counted, while caches fill and spin times adapt
WARM_UP = 32
WARM_UP_SECONDS = 0.1
BAR_COLUMNS = 20
MIN_FULL_COLUMNS = 100  # columns from which on the table has bars and descriptions
_COLOURS = {
    "environment": "green",
    "wrapper": "cyan",
    "backend": "yellow",
    "interface": "blue",
    "policy": "magenta",
}


@cli.command("time", cli.MEASURE, "examples/pong.yaml --seconds 10 --policy my_agent:act")
def time_pipeline(
    pipeline: cli.Pipeline,
    n: cli.Number = None,
    backend: cli.BackendName = None,
    settings: cli.Settings = None,
    evaluation: cli.Evaluation = False,
    no_imports: cli.NoImports = False,
    steps: Annotated[
        int | None,
        cli.count_option(
            help="Agent steps over all sub-environments, including untimed ones.",
            rich_help_panel=cli.HOW_LONG,
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        cli.seconds_option(
            help="How many seconds. Default: 5, or no limit with --steps.",
            rich_help_panel=cli.HOW_LONG,
        ),
    ] = None,
    policy: cli.PolicyName = "random",
    as_json: cli.Json = False,
) -> int:
    """Run a pipeline and show where a step's time goes: wrappers, backend, copy, policy.

    The backend's time is the time spent waiting for it.
    """
    if no_imports:
        refuse_pickles(policy, None)
    options = {"n": n, "backend": backend}
    spec = read_pipeline(pipeline, settings, options, evaluation=evaluation, imports=not no_imports)
    console = cli.terminal()
    if steps is None and seconds is None:
        seconds = DEFAULT_SECONDS
    with contextlib.ExitStack() as stack:
        say = stack.enter_context(progress(console, quiet=as_json))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="vecwrap-time-"))
        env = stack.enter_context(
            build(plan_into_folder(spec.override(batch_size=None), Path(folder)))
        )
        interrupt = stack.enter_context(interruptible())
        env.action_space.seed(spec.seed)
        how_long = "..."
        if seconds is not None:
            how_long = f"for {seconds:g} s"
        say(f"measuring {how_long}")
        measured = _measure(env, find_policy(policy, env), policy, steps, seconds, interrupt)
    if as_json:
        print_json(measured, console)
    else:
        _show_timing(measured, console)
    if interrupt.is_requested:
        say_interrupted("the figures are of the steps until then", console)
        return 128 + interrupt.number
    return 0


def _measure(
    env: VecEnv,
    act: Policy,
    name: str,
    steps: int | None,
    seconds: float | None,
    interrupt: Interrupt,
) -> dict[str, Any]:
    """Return what ran, inner parts first, and for how long, as plain data."""
    environment = repr(env)
    optional = isinstance(act, MASKS_OPTIONAL)
    if optional:
        env.reset()  # its infos may have masks
    policy_runner = PolicyRunner(env, act, where=f"--policy {name}")
    # else any action will do
    asks = bool(policy_runner.given) and not (
        optional and env.call_state.action_masks.now() is None
    )
    env = policy_runner if asks else env
    watch = Stopwatch(env)
    timed = watch.timed(name, "policy", "the policy", policy_runner.act if asks else act)
    taken = rollout(env, timed, EpisodeStats(), steps=steps, episodes=None, interrupt=interrupt)
    few = WARM_UP
    if steps is not None:
        few = min(WARM_UP, steps // env.num_envs // 2)
    _take(taken, few, WARM_UP_SECONDS)
    with watch:
        _take(taken, None, math.inf if seconds is None else seconds)
    if not watch.steps:
        raise VecwrapError(
            "time: ended before a step was timed; increase --steps, or press Ctrl-C later"
        )
    parts = [
        {**vars(part), "microseconds": part.nanoseconds / 1e3 / watch.steps}
        for part in watch.parts
        if part.calls or part.kind == "other"
    ]
    whole = sum(part["microseconds"] for part in parts)
    for part in parts:
        part["share"] = part["microseconds"] / whole
    return {
        "environment": environment,
        "vector_steps": watch.steps,
        "microseconds": whole,
        "parts": parts,
        "remarks": watch.remarks,
    }


def _take(taken: Iterator[None], most: int | None, seconds: float) -> None:
    """Take at most this many steps, for this long."""
    end = time.monotonic() + seconds
    for _ in itertools.islice(taken, most):
        if time.monotonic() >= end:
            break


# -- what is shown ---------------------------------------------------------------------------------


def _show_timing(measured: Mapping[str, Any], console: Console) -> None:
    in_full = console.width >= MIN_FULL_COLUMNS
    table = figures_table("part", "µs/step", "share")
    if in_full:
        table.add_column("", no_wrap=True)
        table.add_column("", style="dim", overflow="fold")
    most = max(part["microseconds"] for part in measured["parts"])
    for part in measured["parts"]:
        colour = _COLOURS.get(part["kind"], "white")
        name = Text(part["name"], style=colour)
        if part["kind"] == "backend":
            name = Text(f"backend: {part['name']}", style=colour)
        bar = Text("█" * round(BAR_COLUMNS * part["microseconds"] / most), style=colour)
        cells: list[Any] = [name, f"{part['microseconds']:,.1f}", f"{part['share']:.1%}"]
        if in_full:
            cells += [bar, part["what"]]
        table.add_row(*cells)
    table.add_row(
        Text("all", style="bold"), f"{measured['microseconds']:,.1f}", "100.0%", style="bold"
    )
    console.print(Text(measured["environment"], style="bold"))
    console.print(table)
    console.print(Text(f"{measured['vector_steps']:,} vector steps were timed.", style="dim"))
    for remark in measured["remarks"]:
        console.print(Text(f"\n{remark}", style="yellow"))


_UNITS = {"s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}


def read_seconds(text: str) -> float:
    """Read ``60s``, ``2min``, ``90``."""
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)(s|min|m|h)?", text)
    if found is None or not float(found[1]):
        raise SpecError(f"--budget: expected seconds, as in 60s, or 2min, got {text!r}.")
    return float(found[1]) * _UNITS[found[2] or "s"]


@cli.command("tune", cli.MEASURE, "examples/pong.yaml --budget 2min")
def tune_pipeline(
    pipeline: cli.Pipeline,
    budget: Annotated[
        str,
        typer.Option(
            help="Time limit: 60s, 2min. Candidates that do not fit are marked.", metavar="TIME"
        ),
    ] = "60s",
    n: cli.Number = None,
    settings: cli.Settings = None,
    evaluation: cli.Evaluation = False,
    engines: Annotated[
        bool,
        typer.Option("--engines", help="Try engines, too, whose streams are their own."),
    ] = False,
    no_imports: cli.NoImports = False,
    as_json: cli.Json = False,
) -> int:
    """Try backends and numbers of workers, and print the lines to add to the pipeline."""
    spec = read_pipeline(
        pipeline, settings, {"n": n}, evaluation=evaluation, imports=not no_imports
    )
    seconds = read_seconds(budget)
    console = cli.terminal()
    start = time.monotonic()
    with _measuring(console, quiet=as_json) as say:
        tuned = search(
            spec,
            seconds,
            lambda text: say(f"{text}, {time.monotonic() - start:.0f} of {budget}"),
            engines=engines,
        )
    if as_json:
        print_json({"budget": seconds, **tuned.data(evaluation=evaluation)}, console)
    else:
        _show_tuning(tuned, console, evaluation=evaluation)
    return int(tuned.recommended is None)


def _show_tuning(tuned: Tuned, console: Console, *, evaluation: bool) -> None:
    console.print(_tuning_table(tuned))
    chosen = tuned.recommended
    if chosen is None:
        console.print(
            Text("\nNo candidate could be measured: increase --budget, or see why they failed.")
        )
        return
    console.print(Text(f"\n{tuned.reason}"))
    for line in chosen.lines(evaluation=evaluation):
        console.print(Text(f"    {line}", style="bold green"))
    if in_a_line := chosen.to_line(evaluation=evaluation):
        console.print(Text(f"in one line: {in_a_line}", style="dim"))
    for name, changes in tuned.changes.items():
        console.print(Text(f"\nWhat {name} changes:"))
        for change in changes:
            console.print(Text(f"    {change}"))
    machine = (
        f"n={tuned.planned.n}, {usable_cores()} usable cores, measured in the mode {tuned.mode}"
    )
    console.print(Text(f"\n{machine}", style="dim"))


def _tuning_table(tuned: Tuned) -> Table:
    table = figures_table("candidate", "agent steps/s", "±", "start", whole=True)
    table.add_column("", overflow="fold")
    without = "the same wrappers"
    if tuned.left_out:
        without = f"without {', '.join(tuned.left_out)}"
    for trial in [*tuned.trials, *tuned.references]:
        remark = trial.failed
        if not remark and trial in tuned.references:
            remark = f"for reference, {without}"
        elif not remark and trial.candidate == tuned.trials[0].candidate:
            remark = "the pipeline has it now"
        style = "bold green" * (trial.candidate == tuned.recommended)
        figures = ["–", "", ""]
        if trial.rates:
            figures = [f"{trial.rate:,.0f}", f"{trial.spread:.0%}", f"{trial.start_seconds:.3g} s"]
        cells = [trial.candidate.name, *figures]
        table.add_row(*map(Text, cells), Text(remark, style="dim"), style=style)
    return table


@contextlib.contextmanager
def progress(console: Console, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """A line that shows what is being measured, on a terminal."""
    if quiet or not console.is_terminal:
        yield lambda text: None
        return
    with console.status("starting ...") as status:
        yield status.update


@contextlib.contextmanager
def _measuring(console: Console, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show what is being measured; Ctrl-C and SIGTERM end the command once everything is closed."""
    with sigterm_as_ctrl_c() as number:
        try:
            with progress(console, quiet=quiet) as say:
                yield say
        except KeyboardInterrupt:
            say_interrupted("nothing is left running", console)
            raise typer.Exit(128 + number[0]) from None


# -- tournament ------------------------------------------------------------------------------------


@cli.command("tournament", cli.MEASURE, "chess.yaml --pool runs/pool --games 10")
def play_tournament(
    pipeline: cli.Pipeline,
    pool: Annotated[Path, typer.Option(help="The folder of an OpponentPool.", metavar="DIR")],
    games: Annotated[int, cli.count_option(help="How many for each pair and seat.")] = 20,
    seed: Annotated[int, cli.seed_option(help="Of the first game of each pair and seat.")] = 0,
    players: Annotated[
        str | None,
        typer.Option(help="Which members, comma-separated. Default: all.", metavar="NAMES"),
    ] = None,
    anchor: Annotated[
        str | None,
        typer.Option(
            help=(
                "Whose rating is 0. Default: random, else the first scripted one, else who "
                "played most."
            ),
            metavar="NAME",
        ),
    ] = None,
    record: Annotated[
        str | None, typer.Option(help="Film the first games of a pair: NAME,NAME.", metavar="NAMES")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="A folder for tables (CSV), pictures (PNG) and videos.",
            metavar="FOLDER",
        ),
    ] = None,
    number: cli.Number = None,
    backend: cli.BackendName = None,
    settings: cli.Settings = None,
    no_imports: cli.NoImports = False,
    as_json: cli.Json = False,
) -> None:
    """Have all opponents of a pool play each other, in every seat, and print their ratings."""
    spec = read_pipeline(
        pipeline, settings, {"n": number, "backend": backend}, imports=not no_imports
    )
    console = cli.terminal()
    pair = _names(record)
    filmed = None
    if pair is not None:
        if len(pair) != 2:
            raise SpecError(f"--record: expected two names, separated by a comma, got {record}")
        filmed = (pair[0], pair[1])
    if not pool.is_dir():
        raise SpecError(f'--pool: expected the folder of a pool, got "{pool}", which is not there')
    played = tournament(
        spec,
        OpponentPool(pool, imports=not no_imports),
        games=games,
        seed=seed,
        players=_names(players),
        anchor=anchor,
        record=filmed,
        videos=out or Path("videos"),
        progress=not as_json,
    )
    ratings = played.ratings
    if as_json:
        each = zip(ratings.players, ratings.points, ratings.errors, ratings.games, strict=True)
        print_json(
            {
                "anchor": ratings.anchor,
                "resampled": ratings.resampled,
                "ratings": {
                    name: {
                        "rating": round(float(points), 1),
                        "error": round(float(error), 1),
                        "games": int(number),
                    }
                    for name, points, error, number in each
                },
                "results": [row._asdict() for row in played.results.rows()],
            },
            console,
        )
    else:
        console.print(Text(ratings.about))
        console.print(_ladder(played))
    if out is not None:
        for path in played.save(out):
            if not as_json:
                console.print(Text(f"wrote {path}", style="dim"))


def _names(text: str | None) -> list[str] | None:
    if text is None:
        return None
    return [name.strip() for name in text.split(",")]


def _ladder(played: Tournament) -> Table:
    """The ratings, the strongest first, with wins, draws and losses."""
    ratings = played.ratings
    totals = played.results.totals()
    table = figures_table("player", "rating", "error", "games", "won", "drawn", "lost")
    for name in played.ladder:
        i = ratings.players.index(name)
        # of one seed it is not known
        error = "-"
        if math.isfinite(ratings.errors[i]):
            error = f"{ratings.errors[i]:.0f}"
        figures = (f"{ratings.points[i]:+.0f}", error, str(ratings.games[i]))
        table.add_row(Text(name), *figures, *map(str, totals[name]))
    return table
