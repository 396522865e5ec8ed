"""Tables and pictures of results: what is in them, beside counts by hand."""

import csv
import io

import numpy as np
import pytest

from tests.helpers.rock_paper_scissors import play
from vecwrap.errors import PlotError
from vecwrap.selfplay.leaderboard import (
    heat_map,
    rating_curve,
    ratings_csv,
    results_csv,
    score_matrix,
    write_csv,
)
from vecwrap.selfplay.ratings import bradley_terry
from vecwrap.selfplay.results import Results, Row
from vecwrap.tools.plot import save

TABLE = Results(
    [
        Row("a", "b", 0, 3, 1, 0),
        Row("a", "b", 1, 1, 0, 3),
        Row("b", "a", 0, 2, 0, 0),
        Row("c", "c", 0, 1, 2, 1),
    ]
)
LADDER = {"random": 0.0, "000001": 50.0, "000002": 120.0, "000003": 260.0}


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_a_table_of_results():
    rows = rows_of(results_csv(TABLE))
    assert [list(row.values()) for row in rows] == [
        ["a", "b", "0", "4", "3", "1", "0", "0.875"],
        ["a", "b", "1", "4", "1", "0", "3", "0.25"],
        ["b", "a", "0", "2", "2", "0", "0", "1.0"],
        ["c", "c", "0", "4", "1", "2", "1", "0.5"],
    ]


def test_totals_are_those_of_both_sides_over_all_opponents_and_seats():
    assert TABLE.totals() == {"a": (4, 1, 5), "b": (5, 1, 4), "c": (2, 4, 2)}
    assert Results().totals() == {}


def test_a_table_of_ratings_has_the_strongest_first_and_nothing_for_who_is_unknown():
    ratings = bradley_terry(
        Results([*play(np.random.default_rng(1), LADDER, 200).rows(), *TABLE.rows()]), "random"
    )
    rows = rows_of(ratings_csv(ratings))
    assert [row["player"] for row in rows] == ["000003", "000002", "000001", "random", "a", "b"]
    for row in rows:
        i = ratings.players.index(row["player"])
        assert int(row["games"]) == ratings.games[i]
        if row["player"] in "ab":
            assert row["rating"] == row["error"] == ""
        else:
            assert [float(row["rating"]), float(row["error"])] == pytest.approx(
                [ratings.points[i], ratings.errors[i]], abs=0.06
            )


def test_names_with_commas_and_lines_survive_a_table(tmp_path):
    results = Results([Row('a,"b"\n', "ü", 0, 1, 0, 0)])
    write_csv(tmp_path / "new" / "table.csv", results_csv(results))
    text = (tmp_path / "new" / "table.csv").read_bytes().decode()
    assert rows_of(text)[0]["player"] == 'a,"b"\n'
    with pytest.raises(PlotError, match="the table cannot be written"):
        write_csv(tmp_path, "x")


def test_scores_are_those_of_all_seats_seen_from_both_sides():
    scores, games = score_matrix(TABLE, ["a", "b", "c"])
    nan = np.nan
    np.testing.assert_allclose(scores, [[nan, 0.45, nan], [0.55, nan, nan], [nan, nan, 0.5]])
    assert games.tolist() == [[0, 10, 0], [10, 0, 0], [0, 0, 8]]


class TestPictures:
    @pytest.fixture(autouse=True)
    def _matplotlib(self):
        pytest.importorskip("matplotlib")

    def test_a_heat_map_shows_the_scores(self, tmp_path):
        figure = heat_map(TABLE, ["b", "a"], title="who beats whom")
        panel = figure.axes[0]
        shown = panel.images[0].get_array()
        np.testing.assert_allclose(shown.filled(-1), [[-1, 0.55], [0.45, -1]])
        assert [text.get_text() for text in panel.texts] == ["0.55", "0.45"]
        assert [label.get_text() for label in panel.get_yticklabels()] == ["b", "a"]
        assert panel.get_title() == "who beats whom"
        save(figure, tmp_path / "map.png")
        assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")

    def test_a_heat_map_of_many_players_names_some(self):
        players = {f"{k:06d}": 10.0 * k for k in range(130)}
        rows = [Row(one, "000000", 0, 1, 0, 1) for one in players if one != "000000"]
        panel = heat_map(Results(rows)).axes[0]
        assert len(panel.get_xticks()) == 44
        assert not panel.texts

    def test_a_heat_map_without_games_is_refused(self):
        for table, players in ((Results(), None), (TABLE, ["a", "c", "x"][:1])):
            with pytest.raises(PlotError, match="expected games between the players of a heat map"):
                heat_map(table, players)

    def test_a_curve_shows_ratings_intervals_and_who_else_there_is(self, tmp_path):
        ratings = bradley_terry(play(np.random.default_rng(1), LADDER, 200), "random")
        names = ["000001", "000002", "000009", "000003"]
        figure = rating_curve(ratings, names, x=[10, 20, 30, 40], x_label="steps")
        (panel,) = figure.axes
        line = panel.get_lines()[0]
        at = [ratings.players.index(name) for name in ("000001", "000002", "000003")]
        np.testing.assert_allclose(line.get_ydata()[[0, 1, 3]], ratings.points[at])
        assert np.isnan(line.get_ydata()[2])
        assert line.get_xdata().tolist() == [10, 20, 30, 40]
        assert [text.get_text() for text in panel.texts] == ["random"]
        assert panel.get_lines()[1].get_ydata() == [0, 0]
        band = panel.collections[0].get_paths()[0].vertices
        first = band[np.isclose(band[:, 0], 10)][:, 1]
        error = 1.96 * ratings.errors[at[0]]
        assert [first.min(), first.max()] == pytest.approx(
            [ratings.points[at[0]] - error, ratings.points[at[0]] + error]
        )
        assert panel.get_ylabel() == "Elo points above random"
        save(figure, tmp_path / "curve.png")

    def test_a_curve_is_of_all_snapshots_by_default(self):
        ratings = bradley_terry(play(np.random.default_rng(1), LADDER, 20), "random")
        line = rating_curve(ratings).axes[0].get_lines()[0]
        assert line.get_xdata().tolist() == [1, 2, 3]

    def test_a_curve_of_nothing_and_places_that_do_not_fit_are_refused(self):
        ratings = bradley_terry(play(np.random.default_rng(1), LADDER, 20), "random")
        with pytest.raises(PlotError, match="expected snapshots with ratings, got none"):
            rating_curve(ratings, ["x"])
        with pytest.raises(PlotError, match="x: expected 2 numbers, one for each player, got 3"):
            rating_curve(ratings, ["000001", "000002"], x=[1, 2, 3])

    def test_names_are_not_read_as_formulas(self, tmp_path):
        results = Results(
            [Row("$a_$\x1b" + "n" * 100, "b$", 0, 3, 0, 1), Row("000001", "b$", 0, 3, 0, 1)]
        )
        save(heat_map(results, title="$x"), tmp_path / "map.png")
        save(
            rating_curve(bradley_terry(results, "b$"), title="$x", x_label="$"),
            tmp_path / "curve.png",
        )
