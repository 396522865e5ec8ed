"""Runs beside each other: how good they are in the end, how fast, and what differs.

For ``vecwrap compare``. Intervals and the interquartile mean are those of Agarwal et al. (2021),
"Deep Reinforcement Learning at the Edge of the Statistical Precipice": percentiles of bootstrap
samples, here over the seeds of one task.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vecwrap.errors import PlotError, printable, searched_paths
from vecwrap.pipeline import registry
from vecwrap.pipeline.files import read_text, read_yaml
from vecwrap.rows.step_result import FloatArray
from vecwrap.sources.declares import declared_by
from vecwrap.tools.plot import (
    add_legend,
    clean_axes,
    draw_curves,
    fitting_window,
    line_style,
    new_figure,
    short,
)
from vecwrap.tools.runs import Run, RunGroup
from vecwrap.wrappers.recording.run_record import FACTS, FINISHED, PIPELINE, RUNNING, read_facts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "Compared",
    "Interval",
    "compare",
    "differences",
    "draw_comparison",
    "interquartile_mean",
    "interval",
]

NOT_ENDED = "has not ended, or was killed"
CONFIDENCE = 95  # per cent
RESAMPLES = 5_000


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % confidence interval.

    Both ends are None if there is nothing to estimate them from.
    """

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Compared:
    """What is known of one run.

    Attributes:
        name: in the table and the legend.
        scores: (s,) float64, the mean return of each seed's last episodes; seeds without an episode
            are left out.
        last_return: the mean of these over the seeds; with one seed, of its last episodes.
        resampled: what the interval of ``last_return`` was resampled over: ``"seeds"``; or of one
            seed its ``"episodes"``, as if they were independent, which says nothing about another
            seed.
        iqm: the interquartile mean over the seeds, with an interval over the seeds; None with one
            seed.
        episodes: of all seeds.
        steps: of all seeds; if a run was not recorded, those by the end of its last episodes.
        steps_per_second: the mean over the seeds; None if it is not known.
        restarts: of sub-environments, in all seeds; None if it is not known.
        ends: how each seed ended that did not finish.
        versions: the packages' versions, each as the different ones of the seeds.
        settings: the pipeline's keys and the training's (``config.KEY``), each as the different
            values of the seeds, as text; empty if they are not known.
    """

    name: str
    scores: FloatArray
    last_return: Interval | None
    resampled: str
    iqm: Interval | None
    episodes: int
    steps: int
    steps_per_second: float | None
    restarts: int | None
    ends: tuple[str, ...]
    versions: Mapping[str, tuple[str, ...]]
    settings: Mapping[str, tuple[str, ...]]


def compare(runs: Sequence[RunGroup], last: int | None = None) -> list[Compared]:
    """Compare runs by their last episodes, and by what lies beside their monitor files.

    ``last`` says how many of each seed; by default what `fitting_window` gives for these runs.

    PlotError: runs of different environments, or none with a finished episode.
    """
    if last is None:
        last = fitting_window(runs)
    if last < 1:
        raise PlotError(f"expected at least 1 of the last episodes, got {last}")
    ids = {seed.env_id: run.name for run in runs for seed in run.runs if seed.env_id is not None}
    if len(ids) > 1:
        said = "; ".join(f"{printable(name)}: {printable(env_id)}" for env_id, name in ids.items())
        raise PlotError(
            "expected runs of one environment, because returns of different ones cannot be "
            f"compared, got {said}"
        )
    if not any(len(seed.scores) for run in runs for seed in run.runs):
        names = ", ".join(run.name for run in runs)
        raise PlotError(
            f"{names}: expected at least one finished episode, got none; an episode counts when it "
            "ends. Run longer: vecwrap run PIPELINE --episodes 10"
        )
    return [_compared(run, last) for run in runs]


def interquartile_mean(values: FloatArray) -> Any:
    """Return the mean of the middle half of the values on the last axis.

    A quarter of the values is cut off at each end.

    A quarter is rounded down, as ``scipy.stats.trim_mean`` does, so nothing is cut off up to three
    values.

    >>> float(interquartile_mean(np.array([0.0, 4.0, 5.0, 1000.0])))
    4.5
    """
    count = values.shape[-1]
    return np.sort(values, axis=-1)[..., count // 4 : count - count // 4].mean(axis=-1)


def interval(values: FloatArray, statistic: Callable[[FloatArray], Any]) -> Interval:
    """Return a statistic of (k,) values with its 95 % bootstrap interval.

    The same values always give the same interval.

    The values are taken as independent. ``statistic`` takes many samples, (..., k), and returns
    (...).
    """
    value = float(statistic(values))
    if len(values) < 2:
        return Interval(value, None, None)
    rng = np.random.default_rng(0)
    samples = statistic(values[rng.integers(len(values), size=(RESAMPLES, len(values)))])
    low, high = np.percentile(samples, [(100 - CONFIDENCE) / 2, (100 + CONFIDENCE) / 2])
    return Interval(value, float(low), float(high))


def differences(
    compared: Sequence[Compared], of: Callable[[Compared], Mapping[str, tuple[str, ...]]]
) -> dict[str, list[tuple[str, ...]]]:
    """Return the keys in which runs differ, each with every run's values.

    ``()`` stands for a value that is not known.
    """
    known = [of(each) for each in compared if of(each)]
    keys = dict.fromkeys(key for each in known for key in each)
    differ = [key for key in keys if len({each.get(key, ()) for each in known}) > 1]
    return {key: [of(each).get(key, ()) for each in compared] for key in differ}


# -- one run ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Record:
    """What ``vecwrap run`` wrote beside a seed's monitor files; without it, all is unknown."""

    seconds: float | None
    steps: int | None
    restarts: int | None
    end: str  # "" if it finished, or if nothing says how it ended
    versions: Mapping[str, str]
    settings: Mapping[str, str]


def _compared(run: RunGroup, last: int) -> Compared:
    records = [
        read_record(seed.path if seed.path.is_dir() else seed.path.parent) for seed in run.runs
    ]
    ends = [seed.scores[-last:] for seed in run.runs if len(seed.scores)]
    scores = np.array([each.mean() for each in ends])
    resampled = "seeds"
    values = scores
    if len(ends) == 1:
        resampled = "episodes"
        values = ends[0]
    last_return = None
    if ends:
        last_return = interval(values, partial(np.mean, axis=-1))
    rates = [
        rate
        for seed, record in zip(run.runs, records, strict=True)
        if (rate := _rate(seed, record)) is not None
    ]
    restarts = [record.restarts for record in records if record.restarts is not None]
    iqm = None
    if len(scores) > 1:
        iqm = interval(scores, interquartile_mean)
    steps_per_second = None
    if rates:
        steps_per_second = float(np.mean(rates))
    sum_of_restarts = None
    if restarts:
        sum_of_restarts = sum(restarts)
    return Compared(
        run.name,
        scores,
        last_return=last_return,
        resampled=resampled,
        iqm=iqm,
        episodes=sum(len(seed.scores) for seed in run.runs),
        steps=sum(
            record.steps or seed.total_steps for seed, record in zip(run.runs, records, strict=True)
        ),
        steps_per_second=steps_per_second,
        restarts=sum_of_restarts,
        ends=tuple(record.end for record in records if record.end),
        versions=_joined([record.versions for record in records]),
        settings=_joined([record.settings for record in records]),
    )


def _rate(seed: Run, record: Record) -> float | None:
    """Steps a second: of the whole run if it was recorded, or else until the last episode ended."""
    if record.seconds and record.steps:
        return record.steps / record.seconds
    if len(seed.minutes) and seed.minutes[-1] > 0:
        return float(seed.steps[-1] / (60 * seed.minutes[-1]))
    return None


def _joined(seeds: Sequence[Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    """The different values of each key, in the order of the seeds."""
    keys = dict.fromkeys(key for seed in seeds for key in seed)
    return {key: tuple(dict.fromkeys(seed[key] for seed in seeds if key in seed)) for key in keys}


@searched_paths(PlotError)
def read_record(folder: Path) -> Record:
    """Read the record of a run's folder."""
    facts = read_facts(folder / FACTS)
    end = str(facts.get("end", FINISHED))
    if facts.get("end", FINISHED) in (None, RUNNING):
        end = NOT_ENDED
    elif end == FINISHED:
        end = ""
    return Record(
        seconds=_number(facts.get("seconds")),
        steps=_count(facts.get("steps")),
        restarts=_count(facts.get("restarts")),
        end=end,
        versions={str(name): str(version) for name, version in facts.get("versions", {}).items()},
        settings=_all_settings(folder, facts),
    )


def _all_settings(folder: Path, facts: Mapping[str, Any]) -> dict[str, str]:
    """The keys of the pipeline, from its file or else by name, and the training's own settings."""
    pipeline = folder / PIPELINE
    settings = facts.get("settings")
    config = facts.get("config")
    if os.path.lexists(pipeline):
        settings = read_yaml(read_text(pipeline, follow=False), str(pipeline)).value
    found: dict[str, str] = {}
    try:
        if isinstance(settings, Mapping):
            found |= dict(_settings(settings))
        if isinstance(config, Mapping) and config:
            found |= dict(_settings(config, ("config",)))
        return found
    except RecursionError:
        raise PlotError(f"{folder / FACTS}: nested too deep; is it a file of vecwrap?") from None


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if np.isfinite(number) and number >= 0 else None


def _count(value: Any) -> int | None:
    number = _number(value)
    if number is None:
        return None
    return int(number)


def _settings(data: Any, steps: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """The leaves of a pipeline, each under the key that ``--set`` takes, as JSON."""
    if isinstance(data, Mapping) and (data or not steps):
        for key, value in data.items():
            yield from _settings(value, (*steps, str(key)))
    elif isinstance(data, list) and steps[-1:] == ("wrappers",):
        named = [_named(entry) for entry in data]
        names = [name for name, _ in named]
        yield ".".join(steps), " | ".join(names)
        for i, (name, arguments) in enumerate(named):
            step = name
            if names.count(name) > 1:
                step = str(i)
            own = (*steps, step)
            if arguments is not None:
                yield from (
                    (key, value)
                    for key, value in _settings(arguments, own)
                    if key not in _paths(name, own)
                )
    else:
        if not isinstance(data, str):
            data = json.dumps(data, ensure_ascii=False)
        yield ".".join(steps), data


def _paths(name: str, steps: tuple[str, ...]) -> set[str]:
    """The keys of a wrapper of ours that are paths, in which any two runs differ."""
    if name not in registry.wrappers.names():
        return set()
    return {
        ".".join((*steps, key))
        for key in declared_by(registry.wrappers.find(name, name)).path_parameters
    }


def _named(entry: Any) -> tuple[str, Any]:
    """A wrapper's name and arguments."""
    if isinstance(entry, Mapping) and len(entry) == 1:
        ((name, arguments),) = entry.items()
        return str(name), arguments
    return str(entry), None


# -- the picture -----------------------------------------------------------------------------------

# inches: the curves' panel, and a run in the one below
CURVES = 3.6
LINE = 0.32


def draw_comparison(
    runs: Sequence[RunGroup], compared: Sequence[Compared], last: int | None = None
) -> Figure:
    """Draw learning curves over steps, and below them the final returns with intervals.

    Each run has one final return with its confidence interval.
    """
    if last is None:
        last = fitting_window(runs)
    pairs = [
        (run, each)
        for run, each in zip(runs, compared, strict=True)
        if each.last_return is not None
    ]
    drawn = [run for run, _ in pairs]
    below = 0.9 + LINE * len(pairs)
    figure = new_figure(1.2 + CURVES + below)
    curves, ends = figure.subplots(2, 1, height_ratios=[CURVES, below])
    shown = draw_curves(curves, drawn, "steps", [last])
    _draw_ends(ends, [each for _, each in pairs])
    add_legend(figure, drawn, None, [last], shown)
    several = any(each.iqm is not None for _, each in pairs)
    text = "above: dots are episodes, bands one standard deviation\n"
    text += f"below: the return of the last {last} episodes and its {CONFIDENCE} % interval"
    text += (
        " from resampling its episodes"
        if not several
        else " from resampling seeds, or of one seed its episodes"
    )
    text += "\nof several seeds the interquartile mean, and a ring for each seed" if several else ""
    figure.supxlabel(text, fontsize=8, color="#555555")
    return figure


def _draw_ends(panel: Axes, compared: Sequence[Compared]) -> None:
    """A bar from the interval's low end to its high end for each run, the first at the top."""
    for number, each in enumerate(compared):
        shown = each.iqm or each.last_return
        assert shown is not None
        colour = line_style(number)["color"]
        if shown.low is not None and shown.high is not None:
            ends = [shown.low, shown.high]
            panel.plot(
                ends, [number, number], color=colour, linewidth=7, alpha=0.35, solid_capstyle="butt"
            )
        panel.plot([shown.value], [number], "|", color=colour, markersize=13, markeredgewidth=2.2)
        if each.iqm is not None:
            panel.plot(
                each.scores, [number] * len(each.scores), "o", ms=4, mfc="none", mec=colour, mew=0.9
            )
    panel.set_ylim(len(compared) - 0.4, -0.6)
    panel.set_yticks(
        range(len(compared)), [short(each.name, 20) for each in compared], parse_math=False
    )
    panel.tick_params(axis="y", length=0, labelsize=9)
    panel.set_xlabel("final score")
    clean_axes(panel, "x")
    panel.spines["left"].set_visible(False)
    panel.margins(x=0.05)
