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
from vecwrap.plotting.curves import check_axes, check_windows, curve
from vecwrap.plotting.picture import check_suffix, draw, save, step_label
from vecwrap.plotting.runs import Run, Seed, read_runs

__all__ = ["plot_runs", "to_data"]

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
    """Draw learning curves and print a table of the runs; return the exit status.

    Args:
        places: as ``read_runs`` takes them.
        out: the pictures; none: ``curves.png``, or with ``as_json`` no picture.
        smooth: comma-separated numbers of episodes.
        axes: comma-separated names of axes.
        title: above the picture; None: the environment's id.
        as_json: print the numbers of the curves.
        console: where it is shown.

    Raises:
        PlotError: files that cannot be read, or arguments that do not fit.
    """
    windows = check_windows([_window(text) for text in _parts(smooth)])  # before a long file is read
    names = check_axes(_parts(axes))
    pictures = out or ([] if as_json else [Path("curves.png")])
    for path in pictures:
        check_suffix(path)
    runs = read_runs(places)
    if pictures:
        figure = draw(runs, names, windows, title)
        for path in pictures:
            save(figure, path)
    if as_json:
        print_json([to_data(run, names, windows) for run in runs], console)
        return 0
    console.print(_table(runs))
    for note in _notes(runs, windows):
        console.print(Text(note, style="yellow"))
    for path in pictures:
        console.print(Text.assemble(("picture  ", "bold"), str(path)))
    return 0


def to_data(run: Run, axes: Sequence[str], windows: Sequence[int]) -> dict[str, Any]:
    """Return the numbers of a run as plain data: each episode, and each curve at each of its points.

    Args:
        run: the run.
        axes: which axes.
        windows: how many episodes to smooth over.
    """
    found = [(axis, window, curve(run, axis, window)) for axis in axes for window in windows]
    return {
        "name": run.name,
        "seeds": [_seed_data(seed) for seed in run.seeds],
        "spread_over": run.over or None,
        "curves": [
            {
                "axis": axis,
                "window": window,
                "x": line.x.tolist(),
                "mean": line.mean.tolist(),
                "spread": None if line.spread is None else line.spread.tolist(),
            }
            for axis, window, line in found
            if line is not None
        ],
    }


def _seed_data(seed: Seed) -> dict[str, Any]:
    return {
        "path": str(seed.path),
        "files": [str(file) for file in seed.files],
        "env_id": seed.env_id,
        "step_unit": seed.step_unit,
        "frame_skip": seed.frame_skip,
        "pipeline": seed.pipeline,
        "num_envs": seed.num_envs,
        "total_steps": seed.total_steps,
        "left_out": {"lost": seed.lost, "not_finite": seed.not_finite, "unreadable": seed.unreadable},
        "episodes": {
            "score": seed.scores.tolist(),
            "steps": seed.steps.tolist(),
            "minutes": seed.minutes.tolist(),
            "env": seed.envs.tolist(),
        },
    }


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _window(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise PlotError(f'--smooth: expected comma-separated episode counts, such as 10,100, got "{text}"') from None


# -- what is printed ---------------------------------------------------------------------------------------------------


def _table(runs: Sequence[Run]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for i, title in enumerate(["run", "seeds", "sub-envs", "episodes", "steps", "minutes", f"last {RECENT} episodes"]):
        table.add_column(title, justify="left" if i == 0 else "right", no_wrap=i > 0, overflow="fold")
    for run in runs:
        last = np.concatenate([seed.scores[-RECENT:] for seed in run.seeds])
        table.add_row(
            Text(run.name),
            str(len(run.seeds)),
            _range([seed.num_envs for seed in run.seeds]),
            f"{sum(len(seed.scores) for seed in run.seeds):,}",
            f"{sum(seed.total_steps for seed in run.seeds):,}",
            f"{sum(float(seed.minutes[-1]) for seed in run.seeds if len(seed.minutes)):.2f}",
            f"{last.mean():.2f} ± {last.std():.2f}" if len(last) else "-",
        )
    return table


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low}-{high}"


def _notes(runs: Sequence[Run], windows: Sequence[int]) -> list[str]:
    """Note what was left out, and what must not be compared."""
    notes = []
    for run in runs:
        for text, count in (
            ("ended because the sub-environment was lost", sum(seed.lost for seed in run.seeds)),
            ("with a score that is not finite, or beyond 1e150", sum(seed.not_finite for seed in run.seeds)),
        ):
            if count:
                notes.append(f"{run.name}: left out {_count(count, 'episode')} {text}; its steps count")
        if count := sum(seed.unreadable for seed in run.seeds):
            notes.append(f"{run.name}: left out {_count(count, 'line')} that cannot be read as an episode")
        for window in sorted(set(windows)):
            short = [seed for seed in run.seeds if len(seed.scores) < window]
            if len(short) == len(run.seeds):
                notes.append(f"{run.name}: fewer than {window} episodes, so no mean of {window}")
            elif short:
                notes.append(
                    f"{run.name}: {_count(len(short), 'seed')} with fewer than {window} episodes left out there"
                )
    units = {step_label([run]) for run in runs}
    if len(units) > 1:
        said = "; ".join(f"{run.name}: {step_label([run])}" for run in runs)
        notes.append(f"these runs count steps differently, so compare over minutes or episodes ({said})")
    return notes


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
