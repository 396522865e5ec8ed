"""``vecwrap plot``: learning curves from monitor files, as pictures, a table, or numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vecwrap.commands.output import print_json
from vecwrap.errors import PlotError
from vecwrap.plotting.curves import Curve, check, check_suffix, curve, draw, save
from vecwrap.plotting.runs import Run, Seed, read_runs, step_unit

__all__ = ["plot_runs"]

RECENT = 100  # episodes whose mean score the table shows


def plot_runs(
    places: Sequence[str],
    *,
    out: Sequence[Path],
    smooth: str,
    axes: str,
    title: str | None,
    as_json: bool,
    console: Console,
) -> int:
    """Draw learning curves and print a table of the runs, or their numbers as JSON; return the exit status."""
    windows = [_window(text) for text in _parts(smooth)]
    names = _parts(axes)
    check(names, windows)  # before a long file is read
    pictures = out or ([] if as_json else [Path("curves.png")])
    for path in pictures:
        check_suffix(path)
    runs = read_runs(places)
    if pictures:
        figure = draw(runs, names, windows, title)
        for path in pictures:
            save(figure, path)
    if as_json:
        print_json([_curves_data(run, names, windows) for run in runs], console)
        return 0
    console.print(_curves_table(runs))
    for note in _notes(runs, windows):
        console.print(Text(note, style="yellow"))
    for path in pictures:
        console.print(Text.assemble(("picture  ", "bold"), str(path)))
    return 0


def _parts(text: str) -> list[str]:
    """The comma-separated parts, each once."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _window(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise PlotError(f'--smooth: expected comma-separated episode counts, such as 10,100, got "{text}"') from None


def _curves_data(run: Run, axes: Sequence[str], windows: Sequence[int]) -> dict[str, Any]:
    """Each episode, and each curve at each of its points."""
    curves = [
        {"axis": axis, "window": window, **_plain(line)}
        for axis in axes
        for window in windows
        if (line := curve(run, axis, window)) is not None
    ]
    seeds = [{**_plain(seed), "path": str(seed.path)} for seed in run.seeds]
    return {"name": run.name, "seeds": seeds, "curves": curves}


def _plain(record: Seed | Curve) -> dict[str, Any]:
    fields = vars(record)
    return {**fields, **{key: value.tolist() for key, value in fields.items() if isinstance(value, np.ndarray)}}


# -- what is printed ---------------------------------------------------------------------------------------------------


def _curves_table(runs: Sequence[Run]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("run", overflow="fold")
    for title in ("seeds", "episodes", "steps", "minutes", f"last {RECENT} episodes"):
        table.add_column(title, justify="right", no_wrap=True)
    for run in runs:
        last = np.concatenate([seed.scores[-RECENT:] for seed in run.seeds])
        table.add_row(
            Text(run.name),
            str(len(run.seeds)),
            f"{sum(len(seed.scores) for seed in run.seeds):,}",
            f"{sum(seed.total_steps for seed in run.seeds):,}",
            f"{sum(float(seed.minutes[-1]) for seed in run.seeds if len(seed.minutes)):.2f}",
            f"{last.mean():.2f} ± {last.std():.2f}" if len(last) else "-",
        )
    return table


def _notes(runs: Sequence[Run], windows: Sequence[int]) -> list[str]:
    """Note what was left out, and what must not be compared."""
    notes = []
    for run in runs:
        for text, count in (
            ("episodes without a score, because the sub-environment was lost", sum(seed.lost for seed in run.seeds)),
            ("scores that are not finite, or beyond 1e150", sum(seed.not_finite for seed in run.seeds)),
            ("lines that cannot be read as an episode", sum(seed.unreadable for seed in run.seeds)),
        ):
            if count:
                notes.append(f"{run.name}: left out {text}: {count:,}")
        for window in sorted(windows):
            short = sum(len(seed.scores) < window for seed in run.seeds)
            if short == len(run.seeds):
                notes.append(f"{run.name}: fewer than {window} episodes, so no mean of {window}")
            elif short:
                notes.append(
                    f"{run.name}: seeds with fewer than {window} episodes, not in the mean of {window}: {short}"
                )
    if len({step_unit([run]) for run in runs}) > 1:
        said = "; ".join(f"{run.name}: {step_unit([run])}" for run in runs)
        notes.append(f"these runs count steps differently, so compare over minutes or episodes ({said})")
    return notes
