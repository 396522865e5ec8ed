"""Runs beside each other: held against naive loops over their files, and against what a run itself
recorded.
"""

import json
import math

import numpy as np
import pytest

from tests.tools.plot.files import random_rows, write_file
from vecwrap.errors import PlotError, SpecError, VecwrapError
from vecwrap.tools.compare import (
    Compared,
    compare,
    differences,
    draw_comparison,
    interquartile_mean,
    interval,
    read_record,
)
from vecwrap.tools.plot import read_runs


def write_seed(folder, rows, *, pipeline=None, env_id="Toy-v0", **facts):
    """A seed's folder: its monitor file, and what was recorded beside it."""
    write_file(folder / "monitor.csv", rows, env_id=env_id)
    if facts:
        (folder / "run.json").write_text(json.dumps(facts))
    if pipeline is not None:
        (folder / "pipeline.yaml").write_text(pipeline)
    return folder


def constant(score, count=5, length=10):
    return [(score, length, float(i + 1), 0, 0) for i in range(count)]


def trimmed(values):
    """The interquartile mean, by hand: a quarter of the sorted values, rounded down, goes at each
    end.
    """
    left = sorted(values)
    for _ in range(len(values) // 4):
        left = left[1:-1]
    return sum(left) / len(left)


# -- figures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 10, 11])
def test_the_interquartile_mean_cuts_a_quarter_off_at_each_end(count):
    values = np.random.default_rng(count).normal(size=(3, count))
    assert interquartile_mean(values) == pytest.approx([trimmed(row) for row in values.tolist()])
    stats = pytest.importorskip("scipy.stats")
    assert interquartile_mean(values) == pytest.approx(stats.trim_mean(values, 0.25, axis=1))


def test_an_interval_has_the_percentiles_of_samples_with_replacement():
    values = np.random.default_rng(1).normal(3.0, 2.0, size=40)
    found = interval(values, lambda samples: samples.mean(axis=-1))
    rng, means = np.random.default_rng(7), []
    for _ in range(4000):
        sample = [values[rng.integers(40)] for _ in range(40)]
        means.append(sum(sample) / 40)
    means.sort()
    error = 2.0 / math.sqrt(40)
    assert found.value == pytest.approx(values.mean())
    assert found.low == pytest.approx(means[100], abs=0.1 * error)
    assert found.high == pytest.approx(means[3900], abs=0.1 * error)
    assert found == interval(values, lambda samples: samples.mean(axis=-1))


def test_one_value_has_no_interval():
    found = interval(np.array([2.5]), interquartile_mean)
    assert (found.value, found.low, found.high) == (2.5, None, None)


def test_a_run_of_seeds_counts_their_last_episodes(tmp_path):
    rng = np.random.default_rng(3)
    rows = {
        name: random_rows(rng, count)
        for name, count in {"a": 40, "b": 55, "c": 7, "d": 30, "e": 31}.items()
    }
    for name, found in rows.items():
        write_seed(tmp_path / "ppo" / name, found)
    (each,) = compare(read_runs([tmp_path / "ppo"]), last=20)
    scores = []
    for name in "abcde":
        last = [row[0] for row in rows[name]][-20:]
        scores.append(sum(last) / len(last))
    assert each.scores == pytest.approx(scores)
    assert each.last_return.value == pytest.approx(sum(scores) / 5)
    assert each.iqm.value == pytest.approx(trimmed(scores))
    assert min(scores) <= each.iqm.low <= each.iqm.value <= each.iqm.high <= max(scores)
    assert each.episodes == 163
    assert each.steps == sum(row[1] for found in rows.values() for row in found)


def test_one_seed_has_the_interval_of_its_last_episodes(tmp_path):
    rows = random_rows(np.random.default_rng(3), 60)
    write_seed(tmp_path / "a", rows)
    (each,) = compare(read_runs([tmp_path / "a"]), last=25)
    last = np.array([row[0] for row in rows[-25:]])
    assert each.last_return == interval(last, lambda samples: samples.mean(axis=-1))
    assert each.iqm is None
    assert each.resampled == "episodes"


def test_the_last_episodes_are_as_many_as_fit_the_shortest_seed(tmp_path):
    for name, count in (("a", 165), ("b", 1500)):
        write_seed(
            tmp_path / name, [(float(k >= count - 10), 10, float(k), 0, 0) for k in range(count)]
        )
    runs = read_runs([tmp_path / "a", tmp_path / "b"])
    assert [each.last_return.value for each in compare(runs)] == [1.0, 1.0]
    assert [each.last_return.value for each in compare(runs, last=100)] == [0.1, 0.1]
    assert compare(runs[1:])[0].last_return.value == 0.1  # of its last hundred
    together = read_runs([f"x={tmp_path}/a", f"x={tmp_path}/b"])
    assert compare(together)[0].resampled == "seeds"


def test_lost_episodes_and_torn_lines_do_not_count(tmp_path):
    folder = write_seed(tmp_path / "a", [*constant(1.0), (99.0, 3, 6.0, 0, 1)])
    with (folder / "monitor.csv").open("a") as file:
        file.write("77.0,12")  # the run was killed here
    (each,) = compare(read_runs([folder]))
    assert (each.last_return.value, each.episodes) == (1.0, 5)


# -- what was recorded -----------------------------------------------------------------------------


def test_speed_and_restarts_are_those_that_a_run_recorded(tmp_path):
    for name, seconds, restarts in (("a", 2.0, 3), ("b", 4.0, 0)):
        facts = {
            "steps": 100,
            "seconds": seconds,
            "restarts": restarts,
            "end": "finished",
            "versions": {},
        }
        write_seed(tmp_path / "ppo" / name, constant(1.0), **facts)
    (each,) = compare(read_runs([tmp_path / "ppo"]))
    assert (each.steps_per_second, each.restarts, each.steps, each.ends) == (
        (50 + 25) / 2,
        3,
        200,
        (),
    )


def test_a_run_that_was_killed_has_what_it_had_noted_last(tmp_path):
    facts = {"end": None, "steps": 100, "seconds": 5.0, "restarts": 4, "versions": {"numpy": "2.0"}}
    folder = write_seed(tmp_path / "a", constant(1.0), **facts)
    (each,) = compare(read_runs([folder]))
    assert (each.steps_per_second, each.restarts, each.steps) == (20.0, 4, 100)
    assert each.ends == ("has not ended, or was killed",)


def test_files_alone_say_how_fast_episodes_ended_and_nothing_of_restarts(tmp_path):
    (each,) = compare(read_runs([write_seed(tmp_path / "a", constant(1.0, count=4, length=30))]))
    assert each.steps_per_second == pytest.approx(4 * 30 / 4.0)
    assert (each.restarts, each.versions, each.settings, each.ends) == (None, {}, {}, ())


def test_pipelines_differ_by_the_keys_that_set_takes(tmp_path):
    one = (
        "env: Toy-v0\nn: 4\nseed: 1\nbackend: dummy\nwrappers:\n- framestack: {k: 4}\n- "
        "monitor: {dir: ., log: [csv]}\n"
    )
    other = one.replace("k: 4", "k: 2").replace(
        "backend: dummy", "backend: {name: shmem, workers: 2}"
    )
    other = other.replace("- monitor: {dir: .", "- time_limit:200\n- monitor: {dir: /elsewhere")
    first = write_seed(tmp_path / "a", constant(1.0), pipeline=one)
    second = write_seed(tmp_path / "b", constant(1.0), pipeline=other)
    third = write_seed(tmp_path / "c", constant(1.0))
    compared = compare(read_runs([first, second, third]))
    assert differences(compared, lambda each: each.settings) == {
        "backend": [("dummy",), (), ()],
        "wrappers": [("framestack | monitor",), ("framestack | time_limit:200 | monitor",), ()],
        "wrappers.framestack.k": [("4",), ("2",), ()],
        "backend.name": [(), ("shmem",), ()],
        "backend.workers": [(), ("2",), ()],
    }


def test_two_wrappers_of_a_name_are_told_apart(tmp_path):
    lines = [
        f"env: Toy-v0\nwrappers: [{{monitor: {{dir: a}}}}, {{monitor: {{stats_key: {key}}}}}]\n"
        for key in "xy"
    ]
    folders = [
        write_seed(tmp_path / str(i), constant(1.0), pipeline=line) for i, line in enumerate(lines)
    ]
    compared = compare(read_runs(folders))
    assert differences(compared, lambda each: each.settings) == {
        "wrappers.1.stats_key": [("x",), ("y",)]
    }


def test_seeds_and_versions_of_a_run_are_compared_as_sets(tmp_path):
    for run, seeds in {"a": (1, 2), "b": (3, 4)}.items():
        for seed in seeds:
            facts = {"end": "finished", "versions": {"numpy": "2.0", "ale-py": f"0.{run}"}}
            write_seed(
                tmp_path / run / str(seed),
                constant(1.0),
                pipeline=f"env: Toy-v0\nseed: {seed}\n",
                **facts,
            )
    compared = compare(read_runs([tmp_path / "a", tmp_path / "b"]))
    assert differences(compared, lambda each: each.settings) == {"seed": [("1", "2"), ("3", "4")]}
    assert differences(compared, lambda each: each.versions) == {"ale-py": [("0.a",), ("0.b",)]}


# -- bad input -------------------------------------------------------------------------------------


def test_runs_of_different_environments_are_refused(tmp_path):
    folders = [
        write_seed(tmp_path / name, constant(1.0), env_id=name)
        for name in ("Pong-v5", "Breakout-v5")
    ]
    with pytest.raises(
        PlotError, match=r"cannot be compared, got Pong-v5: Pong-v5; Breakout-v5: Breakout-v5"
    ):
        compare(read_runs(folders))


def test_an_empty_run_is_left_empty_and_refused_if_it_is_alone(tmp_path):
    empty, other = write_seed(tmp_path / "empty", []), write_seed(tmp_path / "other", constant(1.0))
    with pytest.raises(PlotError, match="empty: expected at least one finished .* Run longer"):
        compare(read_runs([empty]))
    first, second = compare(read_runs([empty, other]))
    assert (first.last_return, first.iqm, first.episodes, len(first.scores)) == (None, None, 0, 0)
    assert second.last_return.value == 1.0


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("run.json", "{", r"run\.json: this is not JSON"),
        ("run.json", "[]", r"run\.json: expected what `vecwrap run` writes"),
        ("pipeline.yaml", "env: [", r"pipeline\.yaml:"),
    ],
)
def test_files_that_cannot_be_read_are_named(name, content, message, tmp_path):
    folder = write_seed(tmp_path / "a", constant(1.0))
    (folder / name).write_text(content)
    with pytest.raises(SpecError, match=message):
        compare(read_runs([folder]))


@pytest.mark.parametrize(
    "facts", [{"steps": "many", "seconds": -1, "restarts": None}, {"steps": 1e400, "seconds": []}]
)
def test_facts_that_are_no_figures_are_unknown(facts, tmp_path):
    folder = write_seed(tmp_path / "a", constant(1.0), end=5, versions={}, **facts)
    (each,) = compare(read_runs([folder]))
    assert isinstance(each, Compared)
    assert (each.restarts, each.steps) == (None, 50)


def test_a_pipeline_that_is_no_mapping_is_no_obstacle(tmp_path):
    folder = write_seed(tmp_path / "a", constant(1.0), pipeline="- 5\n")
    assert compare(read_runs([folder]))[0].last_return.value == 1.0


def test_no_episodes_at_all_cannot_be_asked_for(tmp_path):
    with pytest.raises(PlotError, match="at least 1 of the last episodes, got 0"):
        compare(read_runs([write_seed(tmp_path / "a", constant(1.0))]), last=0)


# -- the picture -----------------------------------------------------------------------------------


def test_the_picture_has_the_intervals_of_the_table(tmp_path):
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(5)
    for name in "abcd":
        write_seed(tmp_path / "ppo" / name, random_rows(rng, 30))
    write_seed(tmp_path / "one", random_rows(rng, 30))
    write_seed(tmp_path / "none", [])
    runs = read_runs([tmp_path / "ppo", tmp_path / "none", tmp_path / "one"])
    compared = compare(runs, 10)
    figure = draw_comparison(runs, compared, 10)
    _, ends = figure.axes
    bars = [line.get_xdata().tolist() for line in ends.lines if len(line.get_xdata()) == 2]
    ticks = [line.get_xdata()[0] for line in ends.lines if line.get_marker() == "|"]
    (rings,) = [line.get_xdata() for line in ends.lines if line.get_marker() == "o"]
    many, _, one = compared
    assert bars == [[many.iqm.low, many.iqm.high], [one.last_return.low, one.last_return.high]]
    assert ticks == [many.iqm.value, one.last_return.value]
    assert rings.tolist() == many.scores.tolist()
    assert [label.get_text() for label in ends.get_yticklabels()] == ["ppo", "one"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "ppo (4 seeds)",
        "one",
        "mean of 10 episodes",
    ]


@pytest.mark.parametrize("value", ["text", [1, {"a": 2}], 3, {"a": [{"b": None}]}])
@pytest.mark.parametrize("key", ["settings", "config"])
def test_a_strangers_record_is_read_as_far_as_it_goes(key, value, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"versions": {}, "end": "finished", key: value}))
    assert all(isinstance(said, str) for said in read_record(tmp_path).settings.values())


@pytest.mark.parametrize(
    "depth", [970, 100_000]
)  # what the parser takes and the reader does not; what neither takes
def test_a_record_that_is_nested_without_end_is_one_message(depth, tmp_path):
    deep = '{"a":' * depth + "1" + "}" * depth
    (tmp_path / "run.json").write_text('{"versions": {}, "config": ' + deep + "}")
    with pytest.raises(VecwrapError, match=r"run\.json: (nested too deep|this is not JSON)"):
        read_record(tmp_path)
