"""Pictures of learning curves: what is in them, that nothing overlaps, and what drawing one leaves
alone.
"""

import io
import itertools
import re
import subprocess
import sys
import xml.etree.ElementTree

import numpy as np
import pytest

from tests.tools.plot.files import random_rows, write_file
from vecwrap.errors import PlotError, install_command
from vecwrap.tools.plot import AXES, COLOURS, curve, draw, fitting_window, read_runs, save

pytest.importorskip("matplotlib")


def runs_of(folder, counts, **header):
    rng = np.random.default_rng(1)
    for i, count in enumerate(counts):
        write_file(
            folder / f"run-with-a-name-{i}" / "monitor.csv", random_rows(rng, count), **header
        )
    return read_runs(sorted(folder.iterdir()))


def lines_of(panel):
    return [(line.get_xdata(), line.get_ydata()) for line in panel.get_lines()]


def test_a_panel_for_each_axis_with_every_episode_and_every_window(tmp_path):
    runs = runs_of(tmp_path, [40, 250], step_unit="agent step", frame_skip=4)
    figure = draw(runs, windows=(100, 10))
    assert [panel.get_xlabel() for panel in figure.axes] == [
        "agent steps of 4 frames",
        "episodes",
        "minutes",
    ]
    for panel, axis in zip(figure.axes, ("steps", "episodes", "minutes"), strict=True):
        expected = []
        for run, windows in zip(runs, ((10,), (10, 100)), strict=True):
            expected.append((run.runs[0].along(axis), run.runs[0].scores))
            expected += [
                (line.x, line.mean) for line in (curve(run, axis, window) for window in windows)
            ]
        for found, right in zip(lines_of(panel), expected, strict=True):
            np.testing.assert_allclose(found, right)
        widest = [
            line.get_linewidth() for line in panel.get_lines() if line.get_linestyle() != "None"
        ]
        assert widest[0] == widest[1] < widest[2]  # 10, 10, 100
        assert len(panel.collections) == 2  # a band each


@pytest.mark.parametrize(("last", "unit", "scale"), [(119.9, "seconds", 60), (120.0, "minutes", 1)])
def test_runs_of_under_two_minutes_have_seconds(last, unit, scale, tmp_path):
    write_file(tmp_path / "a" / "monitor.csv", [(1.0, 10, 3.0, 0, 0), (2.0, 10, last, 0, 0)])
    write_file(tmp_path / "b" / "monitor.csv", [(1.0, 10, 30.0, 0, 0), (2.0, 10, 60.0, 0, 0)])
    runs = read_runs([tmp_path / "a", tmp_path / "b"])
    (panel,) = draw(runs, ["minutes"], windows=[2]).axes
    assert panel.get_xlabel() == unit
    first, line, *_ = (x for x, _ in lines_of(panel))
    np.testing.assert_allclose(first * 60 / scale, [3.0, last])
    np.testing.assert_allclose(line, scale * curve(runs[0], "minutes", 2).x)


def test_a_mean_of_just_as_many_episodes_as_there_are_is_a_point_that_is_seen(tmp_path):
    (panel,) = draw(runs_of(tmp_path, [100]), ["steps"], windows=[10, 100]).axes
    widest = panel.get_lines()[-1]
    assert (len(widest.get_xdata()), widest.get_marker()) == (1, "o")


def test_titles_and_legends(tmp_path):
    runs = runs_of(tmp_path, [1200, 1000])
    figure = draw(runs)
    (top,) = figure.legends
    assert top.get_title().get_text() == "Toy-v0"
    lines = ["mean of 10 episodes", "mean of 100 episodes"]
    assert in_legend(figure) == ["run-with-a-name-0", "run-with-a-name-1", *lines]
    assert (
        figure.get_supxlabel()
        == "dots: episodes; bands: ± 1 standard deviation of the last 100 scores"
    )
    assert draw(runs, title="Mine: $5").legends[0].get_title().get_text() == "Mine: $5"
    assert in_legend(draw(runs, windows=[10]))[2:] == lines[:1]


def in_legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_legend_shows_each_window_as_it_is_drawn_and_none_without_a_line(tmp_path):
    figure = draw(runs_of(tmp_path, [120, 30]), ["steps"], windows=[1, 50, 200])
    assert in_legend(figure)[2:] == ["mean of 1 episode", "mean of 50 episodes"]
    drawn = {
        line.get_linewidth() for line in figure.axes[0].get_lines() if line.get_linestyle() == "-"
    }
    assert (
        {handle.get_linewidth() for handle in figure.legends[0].legend_handles[2:]}
        == drawn
        == {0.9}
    )


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([165], "10"),
        ([1000], "10, 100"),
        ([5000, 165], "10"),
        ([700, 500, 0], "10, 50"),
        ([200], "10, 20"),
        ([8], "4"),
    ],
)
def test_the_window_fits_the_shortest_run_and_is_said(counts, said, tmp_path):
    runs = runs_of(tmp_path, counts)
    windows = said.split(", ")
    assert in_legend(draw(runs, ["steps"]))[-len(windows) :] == [
        f"mean of {window} episodes" for window in windows
    ]
    assert str(fitting_window(runs)) == windows[-1]


def test_the_line_ends_where_a_run_of_165_episodes_arrived(tmp_path):
    """It learned all along: 155 episodes rise to 200, and the last ten are there."""
    scores = [*np.linspace(20, 200, 155), *[200.0] * 10]
    rows = [(score, 10, float(k), 0, 0) for k, score in enumerate(scores, 1)]
    write_file(tmp_path / "run" / "monitor.csv", rows)
    (panel,) = draw(read_runs([tmp_path / "run"]), ["episodes"]).axes
    assert panel.get_lines()[-1].get_ydata()[-1] == 200


def test_a_run_of_several_seeds_says_how_many(tmp_path):
    runs_of(tmp_path / "ppo", [30, 30, 30])
    (run,) = read_runs([tmp_path / "ppo"])
    figure = draw([run])
    assert in_legend(figure) == ["ppo (3 seeds)", "mean of 10 episodes"]
    assert figure.get_supxlabel().endswith("± 1 standard deviation over seeds")


def test_runs_of_several_environments_and_step_units_have_titles_that_are_true(tmp_path):
    write_file(
        tmp_path / "a" / "monitor.csv", [(1, 10, 1.0, 0, 0)], env_id="A-v0", step_unit="agent step"
    )
    write_file(tmp_path / "b" / "monitor.csv", [(1, 10, 1.0, 0, 0)], env_id="B-v0")
    figure = draw(read_runs([tmp_path]))
    assert figure.legends[0].get_title().get_text() == "learning curves"
    assert figure.axes[0].get_xlabel() == "steps"


@pytest.mark.parametrize(
    ("counts", "axes"),
    [
        ([1], AXES),
        ([3], AXES),
        ([12], ["minutes"]),
        ([5, 100, 300], AXES),
        ([120] * 8, AXES),
        ([12] * 20, ["steps"]),
    ],
)
def test_nothing_overlaps(tmp_path, counts, axes):
    figure = draw(runs_of(tmp_path, counts), axes)
    figure.draw_without_rendering()
    top, bottom = figure.legends[0].get_window_extent(), figure._supxlabel.get_window_extent()
    panels = [panel.get_tightbbox() for panel in figure.axes]
    stacked = [top, *panels, bottom]
    for upper, lower in itertools.pairwise(stacked):
        assert upper.y0 >= lower.y1 - 1
    for box in stacked:
        assert (box.x0 >= 0, box.x1 <= 800, box.y0 >= 0, box.y1 <= figure.bbox.height) == (
            True,
        ) * 4
    for panel in figure.axes:
        assert panel.get_window_extent().height > 100
        for axis, low, high in ((panel.xaxis, "x0", "x1"), (panel.yaxis, "y0", "y1")):
            view = sorted(panel.get_xlim() if axis is panel.xaxis else panel.get_ylim())
            labels = [
                tick.label1
                for tick in axis.get_major_ticks()
                if view[0] <= tick.get_loc() <= view[1]
            ]
            boxes = [label.get_window_extent() for label in labels]
            assert len(boxes) >= 2
            assert all(getattr(a, high) < getattr(b, low) for a, b in itertools.pairwise(boxes))


def test_runs_are_told_apart_by_colour_and_from_nine_on_by_dashes_too(tmp_path):
    assert len(set(COLOURS)) == 8
    handles = draw(runs_of(tmp_path, [5] * 17), ["steps"]).legends[0].legend_handles[:17]
    assert len({(line.get_color(), line.get_linestyle()) for line in handles}) == 17


def test_names_that_mean_something_to_matplotlib_are_shown_as_they_are(tmp_path):
    for name in ("_hidden", "a$b$c", "x" * 200):
        write_file(tmp_path / name / "monitor.csv", [(1, 10, 1.0, 0, 0)])
    names = ["_hidden", "a$b$c", "x" * 200]
    figure = draw(read_runs([tmp_path / name for name in names]))
    shown = [text.get_text().strip() for text in figure.legends[0].get_texts()]
    assert shown[:2] == names[:2]
    assert shown[2].startswith("xxx")
    assert len(shown[2]) < 60
    figure.draw_without_rendering()
    assert figure.legends[0].get_window_extent().x1 <= 800


def test_names_that_are_no_text_are_shown_with_escapes(tmp_path):
    write_file(tmp_path / "run\udcff" / "monitor.csv", [(1, 10, 1.0, 0, 0)], step_unit="step\udcff")
    runs = read_runs([tmp_path / "run\udcff"])
    figure = draw(runs, title="one\x01\ntwo")
    assert figure.legends[0].get_title().get_text() == "one\\u0001\ntwo"
    assert figure.axes[0].get_xlabel() == "step\\udcffs"
    assert in_legend(figure)[0] == "run\\udcff"
    file = tmp_path / "curves.svg"
    save(figure, file)
    xml.etree.ElementTree.parse(file)


def test_a_png_and_an_svg_are_written_whole(tmp_path):
    image = pytest.importorskip("PIL.Image")
    figure = draw(runs_of(tmp_path / "runs", [20, 1200]), axes=["steps"])
    for name in ("new/curves.svg", "new/curves.PNG"):
        save(figure, tmp_path / name)
    with image.open(tmp_path / "new" / "curves.PNG") as picture:
        assert (picture.format, picture.width) == ("PNG", 1200)
        assert len(picture.convert("RGB").getcolors(1 << 20)) > 50
    root = xml.etree.ElementTree.parse(tmp_path / "new" / "curves.svg").getroot()
    assert root.tag.endswith("svg")
    assert (tmp_path / "new" / "curves.svg").stat().st_size < 1_000_000
    assert len(list(tmp_path.glob("new/*"))) == 2  # nothing half-written stays


def test_a_picture_that_cannot_be_written_or_has_another_ending_is_refused(tmp_path):
    figure = draw(runs_of(tmp_path / "runs", [5]))
    with pytest.raises(PlotError, match=r"ends in \.png or \.svg"):
        save(figure, tmp_path / "curves.gif")
    (tmp_path / "file").write_text("")
    with pytest.raises(PlotError, match="the picture cannot be written"):
        save(figure, tmp_path / "file" / "curves.png")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"axes": ["stepz"]}, 'Did you mean "steps"?'),
        ({"axes": []}, "at least one axis"),
        ({"windows": [10, 0]}, "at least 1 episode, got 0"),
    ],
)
def test_arguments_that_do_not_fit(tmp_path, arguments, says):
    with pytest.raises(PlotError) as raised:
        draw(runs_of(tmp_path, [5]), **arguments)
    assert says in str(raised.value)


def test_runs_without_an_episode_are_not_drawn_and_alone_refused(tmp_path):
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "monitor.csv").write_text("")
    write_file(tmp_path / "done" / "monitor.csv", [(1, 10, 1.0, 0, 0)])
    begun, done = read_runs([tmp_path / "begun", tmp_path / "done"])
    assert in_legend(draw([begun, done]))[0] == "done"
    with pytest.raises(PlotError, match="begun: expected at least one finished episode"):
        draw([begun])


def test_drawing_leaves_matplotlibs_global_state_and_pyplot_alone(tmp_path):
    path = write_file(tmp_path / "monitor.csv", [(1, 10, 1.0, 0, 0)])
    program = f"""
import sys, matplotlib
rc = matplotlib.rcParams
before = {{key: rc[key] for key in rc if key != "backend"}}  # asking for the backend chooses one
from vecwrap.tools.plot import draw, read_runs, save
from pathlib import Path
save(draw(read_runs([{str(path)!r}])), Path({str(tmp_path / "a.png")!r}))
assert all(rc[key] == value for key, value in before.items())
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_without_matplotlib_the_extra_is_named_and_reading_works(tmp_path, monkeypatch):
    path = write_file(tmp_path / "monitor.csv", random_rows(np.random.default_rng(1), 20))
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    (run,) = read_runs([path])
    assert curve(run, "steps", 10) is not None
    with pytest.raises(PlotError, match=re.escape(install_command("plot"))):
        draw([run])


def test_a_figure_can_be_written_anywhere_else(tmp_path):
    file = io.BytesIO()
    draw(runs_of(tmp_path, [5])).savefig(file, format="png")
    assert file.getvalue().startswith(b"\x89PNG")
