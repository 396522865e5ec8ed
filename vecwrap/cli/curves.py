"""The commands that read monitor files: plot, compare and watch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vecwrap.cli.command import ANALYSE, Host, Json, Port, command, count_option, terminal
from vecwrap.cli.completion import comma_separated
from vecwrap.cli.output import figures_table, print_json, say_where
from vecwrap.errors import PlotError, install_command, is_installed, truncate
from vecwrap.tools.compare import Compared, Interval, compare, differences, draw_comparison
from vecwrap.tools.plot import check, check_suffix, draw, fitting_window, fitting_windows, save
from vecwrap.tools.runs import RunGroup, read_runs, step_unit, time_unit

_SETTINGS = attrgetter("settings")
_VERSIONS = attrgetter("versions")
_RESAMPLED = {"seeds": "seeds", "episodes": "the episodes of one seed"}


@command("plot", ANALYSE, "runs/ppo runs/a2c --smooth 10,100 --out curves.png --out curves.svg")
def plot_runs(
    runs: Annotated[
        list[str],
        typer.Argument(
            help=(
                "Folders with monitor files (one file, or one per sub-environment; vecwrap's, "
                "Stable-Baselines3's or Baselines'), or folders of such folders, one per "
                "seed. NAME=FOLDER names a run; runs with the same name are seeds of one "
                "curve."
            ),
            metavar="RUN",
        ),
    ],
    out: Annotated[
        list[Path] | None,
        typer.Option(
            "--out",
            "-o",
            help="The picture, .png or .svg. May be given twice. Default: curves.png.",
            metavar="PICTURE",
        ),
    ] = None,
    smooth: Annotated[
        str | None,
        typer.Option(
            help=(
                "How many episodes to average over, comma-separated. Default: at most a tenth "
                "of the shortest run: 10, 20, 50 or 100."
            ),
            metavar="EPISODES",
        ),
    ] = None,
    x: Annotated[
        str,
        typer.Option(
            help="One panel each, comma-separated: steps, episodes, minutes.",
            metavar="AXES",
            autocompletion=comma_separated("steps", "episodes", "minutes"),
        ),
    ] = "steps,episodes,minutes",
    title: Annotated[
        str | None, typer.Option(help="Default: the environment's id.", metavar="TEXT")
    ] = None,
) -> None:
    """Draw learning curves from monitor files: episodes, smoothed lines, and their spread.

    The band around a smoothed line is ± one standard deviation.
    """
    console = terminal()
    given = None
    if smooth is not None:
        given = [_window(text) for text in _parts(smooth)]
    names = _parts(x)
    check(names, given or ())  # before a long file is read
    pictures = _pictures(out, Path("curves.png"))
    found = read_runs(runs)
    windows = fitting_windows(found)
    if given is not None:
        windows = given
    figure = draw(found, names, windows, title)
    for path in pictures:
        save(figure, path)
    console.print(_curves_table(found, max(windows, default=fitting_window(found))))
    _say(console, _notes(found, windows), pictures)


def _pictures(out: list[Path] | None, *default: Path) -> list[Path]:
    """The pictures that are asked for, refused before a long file is read."""
    pictures = out or list(default)
    for path in pictures:
        check_suffix(path)
    return pictures


def _say(console: Console, notes: Sequence[str], pictures: Sequence[Path]) -> None:
    for note in notes:
        console.print(Text(note, style="yellow"))
    for path in pictures:
        console.print(Text.assemble(("picture  ", "bold"), str(path)))


def _parts(text: str) -> list[str]:
    """The comma-separated parts, each once."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _window(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise PlotError(
            f'--smooth: expected comma-separated episode counts, such as 10,100, got "{text}"'
        ) from None


def _curves_table(runs: Sequence[RunGroup], window: int) -> Table:
    unit, scale = time_unit(runs)
    table = figures_table("run", "seeds", "episodes", "steps", unit, f"last {window} episodes")
    for run in runs:
        last = np.concatenate([seed.scores[-window:] for seed in run.runs])
        minutes = sum(float(seed.minutes[-1]) for seed in run.runs if len(seed.minutes))
        score = "-"
        if len(last):
            score = f"{last.mean():.2f} ± {last.std():.2f}"
        table.add_row(
            Text(run.name),
            str(len(run.runs)),
            f"{sum(len(seed.scores) for seed in run.runs):,}",
            f"{sum(seed.total_steps for seed in run.runs):,}",
            f"{scale * minutes:.2f}",
            score,
        )
    return table


def _notes(runs: Sequence[RunGroup], windows: Sequence[int]) -> list[str]:
    """Note what was left out, and what must not be compared."""
    notes = []
    for run in runs:
        for text, count in (
            (
                "episodes without a score, because the sub-environment was lost",
                sum(seed.lost for seed in run.runs),
            ),
            (
                "scores that are not finite, or beyond 1e150",
                sum(seed.not_finite for seed in run.runs),
            ),
            ("lines that cannot be read as an episode", sum(seed.unreadable for seed in run.runs)),
        ):
            if count:
                notes.append(f"{run.name}: left out {text}: {count:,}")
        for window in sorted(windows):
            short = sum(len(seed.scores) < window for seed in run.runs)
            if short == len(run.runs):
                notes.append(f"{run.name}: fewer than {window} episodes, so no mean of {window}")
            elif short:
                notes.append(
                    f"{run.name}: seeds with fewer than {window} episodes, not in the mean of "
                    f"{window}: {short}"
                )
    if len({step_unit([run]) for run in runs}) > 1:
        said = "; ".join(f"{run.name}: {step_unit([run])}" for run in runs)
        notes.append(
            f"these runs count steps differently, so compare over minutes or episodes ({said})"
        )
    return notes


# -- compare ---------------------------------------------------------------------------------------


@command("compare", ANALYSE, "ppo=runs/ppo-1 ppo=runs/ppo-2 a2c=runs/a2c-1 a2c=runs/a2c-2")
def compare_runs(
    runs: Annotated[
        list[str],
        typer.Argument(
            help=(
                "Folders of runs or monitor files, as `vecwrap plot` takes them: a folder of "
                "folders is a run of several seeds, and so are NAME=FOLDER of the same name."
            ),
            metavar="RUN",
        ),
    ],
    last: Annotated[
        int | None,
        count_option(
            help=(
                "How many of the last episodes of each seed count. Default: at most a tenth "
                "of the shortest seed: 10, 20, 50 or 100."
            )
        ),
    ] = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(
            "--out",
            "-o",
            help="The picture, .png or .svg. May be given twice. Default: compare.png.",
            metavar="PICTURE",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare runs of one environment: final returns, speed, restarts, and differences.

    The final returns have 95 % confidence intervals.
    """
    console = terminal()
    drawn = not as_json and is_installed("matplotlib")
    pictures = _pictures(out, *[Path("compare.png")] * drawn)
    found = read_runs(runs)
    if last is None:
        last = fitting_window(found)
    compared = compare(found, last)
    if pictures:
        figure = draw_comparison(found, compared, last)
        for path in pictures:
            save(figure, path)
    if as_json:
        print_json(_comparison_data(found, compared, last), console)
        return
    console.print(_comparison_table(compared, last))
    known = [
        each
        for each in compared
        if each.last_return is not None and each.last_return.low is not None
    ]
    if known:
        resampled = " or ".join(dict.fromkeys(_RESAMPLED[each.resampled] for each in known))
        console.print(Text(f"intervals: 95 %, from resampling {resampled}", style="dim"))
    for title, of in (("pipeline", _SETTINGS), ("version", _VERSIONS)):
        if differing := differences(compared, of):
            console.print()
            console.print(_differences_table(title, compared, differing))
    _say(console, [*_notes(found, []), *_comparison_notes(found, compared, last)], pictures)
    if not pictures:
        console.print(
            Text(f"no picture, which needs matplotlib: {install_command('plot')}", style="dim")
        )


def _comparison_table(compared: Sequence[Compared], last: int) -> Table:
    table = figures_table(
        "run",
        "seeds",
        "episodes",
        "steps",
        f"last {last} episodes",
        "IQM of seeds",
        "steps/s",
        "restarts",
    )
    for each in compared:
        steps_per_second = restarts = "-"
        if each.steps_per_second is not None:
            steps_per_second = f"{each.steps_per_second:,.0f}"
        if each.restarts is not None:
            restarts = f"{each.restarts:,}"
        table.add_row(
            Text(each.name),
            str(len(each.scores)),
            f"{each.episodes:,}",
            f"{each.steps:,}",
            _interval(each.last_return),
            _interval(each.iqm),
            steps_per_second,
            restarts,
        )
    return table


def _interval(found: Interval | None) -> str:
    if found is None:
        return "-"
    if found.low is None:
        return f"{found.value:.2f}"
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"


def _differences_table(
    title: str, compared: Sequence[Compared], found: Mapping[str, list[tuple[str, ...]]]
) -> Table:
    table = figures_table(f"what differs: {title}", *(each.name for each in compared))
    for key, values in found.items():
        table.add_row(Text(key), *(Text(truncate(", ".join(value), 60) or "-") for value in values))
    return table


def _comparison_notes(
    runs: Sequence[RunGroup], compared: Sequence[Compared], last: int
) -> list[str]:
    notes = []
    for run, each in zip(runs, compared, strict=True):
        notes += [f"{run.name}: {truncate(end, 300)}" for end in dict.fromkeys(each.ends)]
        if empty := sum(not len(seed.scores) for seed in run.runs):
            notes.append(f"{run.name}: seeds without a finished episode, left out: {empty}")
        if short := sum(0 < len(seed.scores) < last for seed in run.runs):
            notes.append(
                f"{run.name}: seeds with fewer than {last} episodes, of which all count: {short}"
            )
        if not each.settings:
            notes.append(
                f"{run.name}: no pipeline.yaml beside its monitor files, so its pipeline is not "
                "compared"
            )
    return notes


def _comparison_data(
    runs: Sequence[RunGroup], compared: Sequence[Compared], last: int
) -> dict[str, Any]:
    return {
        "last": last,
        "runs": [
            {
                **vars(each),
                "scores": each.scores.tolist(),
                "seeds": [str(seed.path) for seed in run.runs],
            }
            for run, each in zip(runs, compared, strict=True)
        ],
        "pipelines_differ": differences(compared, _SETTINGS),
        "versions_differ": differences(compared, _VERSIONS),
    }


# -- watch -----------------------------------------------------------------------------------------


@command("watch", ANALYSE, "runs/tonight --port 9000")
def watch_folder(
    folder: Annotated[
        Path,
        typer.Argument(
            help="A run's folder, or one with a folder for each seed.", metavar="RUN_FOLDER"
        ),
    ],
    port: Port = None,
    host: Host = "127.0.0.1",
) -> None:
    """Show a finished or running run in the browser: curves, figures, plan.

    The page's address is printed.
    """
    from vecwrap.live import RunFolder, find_page, serve

    console = terminal()
    if (address := find_page(folder)) is not None:
        say_where(address, console)
        console.print(Text("The run itself shows it.", style="dim"))
        return
    page = serve(RunFolder(folder), port, host)
    say_where(page.address, console)
    console.print(Text("Ctrl-C ends the page, not the run.", style="dim"))
    try:
        page.join()
    finally:
        page.close()
