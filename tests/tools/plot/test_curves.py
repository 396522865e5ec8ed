"""Smoothing and spreads, beside naive loops and pandas."""

import statistics

import numpy as np
import pytest

from tests.tools.plot.files import random_rows, write_file
from vecwrap.errors import PlotError
from vecwrap.tools.plot import AXES, curve, quantiles, read_runs, thinned, trailing_mean


@pytest.mark.parametrize("window", [1, 2, 10, 99, 100, 101])
def test_a_trailing_mean_is_that_of_pandas(window):
    pandas = pytest.importorskip("pandas")
    values = np.random.default_rng(window).normal(size=100) * 1e3
    np.testing.assert_allclose(
        trailing_mean(values, window), pandas.Series(values).rolling(window).mean().dropna()
    )


def test_a_huge_score_does_not_blur_the_ones_after_it():
    values = np.array([1.0, 1e17, 1.0, 2.0, 3.0])
    assert trailing_mean(values, 2)[2:].tolist() == [1.5, 2.5]


def naive(rows, axis, window):
    """The points of one seed: where each episode stands, and the mean of the last episodes up to
    it.
    """
    points, scores, steps = [], [], 0
    for score, length, end, *_ in rows:
        steps += length
        scores.append(score)
        if len(scores) >= window:
            x = {"steps": steps, "episodes": len(scores), "minutes": end / 60}[axis]
            points.append((x, statistics.fmean(scores[-window:])))
    return points


def last_before(points, x):
    return [y for at, y in points if at <= x][-1]


def assert_near(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("window", [1, 10, 100])
def test_one_seed(tmp_path, axis, window):
    rows = random_rows(np.random.default_rng(3), 250, envs=3)
    line = curve(*read_runs([write_file(tmp_path / "monitor.csv", rows)]), axis, window)
    points = naive(rows, axis, window)
    assert_near(line.x, [x for x, _ in points])
    assert_near(line.mean, [y for _, y in points])
    scores = [score for score, *_ in rows]
    assert_near(
        line.spread,
        [statistics.pstdev(scores[i - window : i]) for i in range(window, len(scores) + 1)],
    )


@pytest.mark.parametrize("axis", AXES)
def test_several_seeds(tmp_path, axis):
    rng = np.random.default_rng(5)
    seeds = [random_rows(rng, count) for count in (60, 40, 50)]
    for i, rows in enumerate(seeds):
        write_file(tmp_path / str(i) / "monitor.csv", rows, t_start=1000.0 * i)
    line = curve(*read_runs([tmp_path]), axis, 10)
    each = [naive(rows, axis, 10) for rows in seeds]
    first, last = max(points[0][0] for points in each), min(points[-1][0] for points in each)
    places = sorted({x for points in each for x, _ in points if first <= x <= last})
    assert len(places) > 20
    assert_near(line.x, places)
    assert_near(
        line.mean, [statistics.fmean(last_before(points, x) for points in each) for x in places]
    )
    assert_near(
        line.spread, [statistics.pstdev(last_before(points, x) for points in each) for x in places]
    )


def test_a_seed_with_too_few_episodes_is_left_out(tmp_path):
    rng = np.random.default_rng(6)
    seeds = [random_rows(rng, count) for count in (30, 9)]
    for i, rows in enumerate(seeds):
        write_file(tmp_path / str(i) / "monitor.csv", rows)
    line = curve(*read_runs([tmp_path]), "steps", 10)
    assert_near(line.mean, [y for _, y in naive(seeds[0], "steps", 10)])


def test_fewer_episodes_than_the_window_have_no_curve(tmp_path):
    (run,) = read_runs(
        [write_file(tmp_path / "monitor.csv", random_rows(np.random.default_rng(7), 9))]
    )
    assert curve(run, "steps", 10) is None
    assert curve(run, "steps", 9) is not None


def test_seeds_that_nowhere_meet_have_no_curve(tmp_path):
    write_file(tmp_path / "0" / "monitor.csv", [(1, 1, 1.0, 0, 0), (1, 1, 2.0, 0, 0)])
    write_file(tmp_path / "1" / "monitor.csv", [(1, 100, 100.0, 0, 0)])
    (run,) = read_runs([tmp_path])
    assert curve(run, "steps", 1) is None
    assert curve(run, "episodes", 1).x.tolist() == [1]


@pytest.mark.parametrize(
    ("axis", "window", "message"),
    [
        (
            "step",
            2,
            r'expected axes of steps, episodes, minutes, got "step"\. Did you mean "steps"\?',
        ),
        ("steps", 0, "expected to smooth over at least 1 episode, got 0"),
        ("steps", -3, "expected to smooth over at least 1 episode, got -3"),
    ],
)
def test_an_axis_or_a_window_that_there_is_not_is_refused(tmp_path, axis, window, message):
    (run,) = read_runs(
        [write_file(tmp_path / "monitor.csv", random_rows(np.random.default_rng(8), 9))]
    )
    with pytest.raises(PlotError, match=message):
        curve(run, axis, window)


@pytest.mark.parametrize("count", [1, 2, 99, 100, 101, 5000])
def test_thinned_points_are_spread_along_the_axis_with_both_ends(count):
    x = np.random.default_rng(count).exponential(1.0, count).cumsum()
    kept = thinned(x, 100)
    assert sorted(set(kept.tolist())) == kept.tolist()
    assert (kept[0], kept[-1]) == (0, count - 1)
    assert len(kept) <= 102
    assert len(kept) == count if count <= 100 else len(kept) > 60
    widest = (x[-1] - x[0]) / 99 + np.diff(x).max(initial=0)
    assert (np.diff(x[kept]) <= widest + 1e-9).all()


def test_quantiles_are_those_of_the_sub_environments_own_means(tmp_path):
    rows = random_rows(np.random.default_rng(1), 60, envs=4)
    (run,) = read_runs([write_file(tmp_path / "monitor.csv", rows)])
    seed, x = run.runs[0], np.arange(1, 61)
    found = quantiles(seed, "episodes", 12, x)
    for place in x.tolist():
        own = [[score for score, _, _, env, _ in rows[:place] if env == i] for i in range(4)]
        means = [statistics.mean(scores[-3:]) for scores in own if len(scores) >= 3]
        if means:
            np.testing.assert_allclose(found[:, place - 1], np.quantile(means, [0.1, 0.5, 0.9]))
        else:
            assert np.isnan(found[:, place - 1]).all()


def test_one_sub_environment_has_no_quantiles(tmp_path):
    (run,) = read_runs([write_file(tmp_path / "monitor.csv", [(1.0, 2, 3.0, 0, 0)] * 5)])
    assert quantiles(run.runs[0], "steps", 1, run.runs[0].steps) is None


def test_a_file_for_each_sub_environment_has_quantiles_too(tmp_path):
    """Stable-Baselines3's files do not say in their rows which sub-environment they are of."""
    for i in range(2):
        write_file(
            tmp_path / f"{i}.monitor.csv",
            [
                (
                    10.0 * i,
                    2,
                    3.0 + i,
                )
            ]
            * 3,
            columns=("r", "l", "t"),
        )
    (run,) = read_runs([tmp_path])
    assert run.runs[0].envs.tolist() == [0, 0, 0, 1, 1, 1]
    assert quantiles(run.runs[0], "episodes", 2, np.array([6]))[1].tolist() == [5.0]
