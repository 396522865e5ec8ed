"""Ratings of players whose strengths are known, and of tables that leave some unknown."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.rock_paper_scissors import play
from vecwrap import OpponentPool
from vecwrap.errors import ArgumentError
from vecwrap.live.leaderboard import leaderboard
from vecwrap.selfplay.ratings import ELO, bradley_terry, bradley_terry_by_seed
from vecwrap.selfplay.results import Results, Row, read_rows

STRENGTHS = {"random": 0.0, "a": 120.0, "b": 250.0, "c": 400.0, "d": -150.0}


@pytest.mark.parametrize(
    ("games", "draws", "seat"), [(5, 0.0, 0.0), (40, 0.0, 60.0), (40, 0.5, -40.0)]
)
def test_known_strengths_are_recovered_within_the_stated_errors(games, draws, seat):
    rng = np.random.default_rng(11)
    scores = []
    for _ in range(150):
        ratings = bradley_terry(play(rng, STRENGTHS, games, seat=seat, draws=draws), "random")
        away = ratings.points - [STRENGTHS[name] for name in ratings.players]
        scores += [gap / error for gap, error in zip(away, ratings.errors, strict=True) if error]
    inside = np.mean(np.abs(scores) < 1.96)
    # Draws make the errors too large, never too small.
    assert 0.93 < inside < (0.97 if not draws else 1.0)
    assert abs(np.mean(scores)) < 0.2


def test_the_error_of_a_difference_knows_that_both_errors_go_together():
    rng = np.random.default_rng(2)
    scores, naive = [], []
    for _ in range(150):
        ratings = bradley_terry(play(rng, {"random": 0.0, "a": 600.0, "b": 700.0}, 150), "random")
        points, error = ratings.difference("b", "a")
        scores.append((points - 100) / error)
        naive.append(math.hypot(*ratings.errors[:2]) / error)
    assert 0.91 < np.mean(np.abs(scores) < 1.96) < 0.99
    assert min(naive) > 1.5


def test_an_advantage_of_a_seat_is_found_and_does_not_look_like_strength():
    ratings = bradley_terry(
        play(np.random.default_rng(4), {"random": 0.0, "a": 100.0}, 20_000, seat=80.0), "random"
    )
    assert ratings.seats == pytest.approx({0: 80, 1: -80}, abs=6)
    assert ratings.points == pytest.approx([100, 0], abs=8)
    sides = [1 / (1 + math.exp(-(100 + seat) / ELO)) for seat in (80, -80)]
    assert ratings.expected("a", "random") == pytest.approx(np.mean(sides), abs=0.02)


def test_games_that_are_recorded_from_either_side_count_the_same():
    rows = play(np.random.default_rng(5), STRENGTHS, 30, seat=50.0).rows()
    turned = [
        Row(row.opponent, row.player, 1 - row.seat, row.losses, row.draws, row.wins)
        if k % 2
        else row
        for k, row in enumerate(rows)
    ]
    one, other = bradley_terry(Results(rows), "random"), bradley_terry(Results(turned), "random")
    assert one.points == pytest.approx(other.points, abs=1e-4)
    assert one.seats == pytest.approx(other.seats, abs=1e-4)


def test_two_players_and_one_seat_have_a_rating_in_closed_form():
    ratings = bradley_terry(Results([Row("a", "b", 0, 29, 2, 9)]), "b")
    score = (30 + 0.5) / (40 + 1)  # Firth adds half a win and half a loss
    assert ratings.points == pytest.approx([ELO * math.log(score / (1 - score)), 0])
    assert ratings.errors == pytest.approx([ELO / math.sqrt(40 * score * (1 - score)), 0])
    assert ratings.seats == {}
    assert ratings.games.tolist() == [40, 40]


def test_who_won_all_games_has_a_finite_rating_with_a_large_error():
    few, many = (bradley_terry(Results([Row("a", "b", 0, games, 0, 0)]), "b") for games in (5, 500))
    assert 0 < few.points[0] < many.points[0] < 2000
    assert min(few.errors[0], many.errors[0]) > 200


def test_a_chain_of_games_connects_and_others_stay_unknown():
    table = Results(
        [Row("a", "b", 0, 5, 0, 5), Row("b", "random", 1, 7, 0, 3), Row("x", "y", 0, 1, 0, 0)]
    )
    ratings = bradley_terry(table, "random")
    known = dict(zip(ratings.players, np.isfinite(ratings.points).tolist(), strict=True))
    assert known == {"a": True, "b": True, "random": True, "x": False, "y": False}
    assert ratings.errors[ratings.players.index("x")] == math.inf
    points, error = ratings.difference("x", "a")
    assert math.isnan(points)
    assert error == math.inf


def test_games_against_the_present_policy_and_oneself_are_not_rated():
    rows = [Row("learner", "random", 0, 3, 0, 1), Row("learner", "random", 1, 1, 0, 1)]
    more = [*rows, Row("learner", "current", 0, 90, 0, 1), Row("random", "random", 0, 4, 0, 5)]
    one, other = bradley_terry(Results(rows), "random"), bradley_terry(Results(more), "random")
    assert one.points.tolist() == other.points.tolist()
    assert one.players == other.players


def test_the_order_of_games_does_not_matter():
    rng = np.random.default_rng(3)
    games = [
        ("ab"[k], "cd"[m], int(seat), int(won)) for k, m, seat, won in rng.integers(0, 2, (200, 4))
    ]
    tables = []
    for chosen in (games, games[::-1]):
        results = Results()
        for one, other, seat, won in chosen:
            results.record(one, other, seat=seat, result=won)
        tables.append(bradley_terry(results, "a").points.tolist())
    assert tables[0] == tables[1]


counts = st.tuples(*[st.integers(0, 10**6)] * 3).filter(any)
tables = st.dictionaries(
    st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd"), st.integers(0, 2)),
    counts,
    min_size=1,
    max_size=12,
)


@given(tables)
def test_any_table_has_ratings_at_which_the_penalised_likelihood_is_largest(table):
    rows = [Row(*key, *value) for key, value in table.items() if key[0] != key[1]]
    if not rows:
        with pytest.raises(ArgumentError, match="got none"):
            bradley_terry(Results(rows))
        return
    ratings = bradley_terry(Results(rows), rows[0].player)
    known = [
        name
        for name, points in zip(ratings.players, ratings.points, strict=True)
        if np.isfinite(points)
    ]
    assert rows[0].opponent in known
    assert np.isfinite(ratings.errors[[ratings.players.index(name) for name in known]]).all()
    best = penalised(rows, ratings, known)
    for name in known:
        for step in (-2.0, 2.0):
            moved = ratings.points.copy()
            moved[ratings.players.index(name)] += step
            assert penalised(rows, ratings, known, moved) < best + 1e-6 * abs(best)


def penalised(rows, ratings, known, points=None):
    """The logarithm of the likelihood and of the square root of the information's determinant, from
    the definition.
    """
    points = ratings.points if points is None else points
    at = dict(zip(ratings.players, points / ELO, strict=True))
    total, columns, weights = 0.0, [], []
    free = [name for name in known if name != ratings.anchor]
    seats = list(ratings.seats)
    for row in rows:
        if row.player in known:
            odds = at[row.player] - at[row.opponent] + ratings.seats.get(row.seat, 0.0) / ELO
            won = row.wins + row.draws / 2
            total -= won * np.logaddexp(0, -odds) + (row.games - won) * np.logaddexp(0, odds)
            seat = [float(row.seat == each) - float(row.seat == seats[-1]) for each in seats[:-1]]
            columns.append(
                [(name == row.player) - float(name == row.opponent) for name in free] + seat
            )
            weights.append(row.games * math.exp(-np.logaddexp(0, -odds) - np.logaddexp(0, odds)))
    design = np.array(columns)
    return total + 0.5 * np.linalg.slogdet(design.T @ (np.array(weights)[:, None] * design))[1]


def test_bad_arguments():
    with pytest.raises(ArgumentError, match="expected games between two players, got none"):
        bradley_terry(Results())
    table = Results([Row("a", "b", 0, 1, 0, 0)])
    with pytest.raises(ArgumentError, match='anchor: "rndom" has played no game'):
        bradley_terry(table, "rndom")
    with pytest.raises(ArgumentError, match='"c" has played no game'):
        bradley_terry(table, "a").difference("a", "c")


def test_a_table_counts_by_pair_and_seat():
    results = Results()
    for seat, result in ((0, 1), (0, 0.5), (1, -2), (1, 0)):
        results.record("a", "b", seat=seat, result=result)
    assert results.rows() == [Row("a", "b", 0, 2, 0, 0), Row("a", "b", 1, 0, 1, 1)]
    assert [(row.games, row.score) for row in results.rows()] == [(2, 1.0), (2, 0.25)]
    assert math.isnan(Row("a", "b", 0, 0, 0, 0).score)
    results.add([Row("c", "a", 0, 0, 1, 0)])
    results.rename("a", "b")
    assert results.rows() == [
        Row("b", "b", 0, 2, 0, 0),
        Row("b", "b", 1, 0, 1, 1),
        Row("c", "b", 0, 0, 1, 0),
    ]
    assert read_rows(results.state(), "here") == results.rows()


@pytest.mark.parametrize("result", [math.nan])
def test_what_is_no_result_is_refused(result):
    with pytest.raises(ArgumentError, match="a against b: expected a result"):
        Results().record("a", "b", result=result)


@pytest.mark.parametrize("seat", [-1, 1000])
def test_what_is_no_seat_is_refused(seat):
    with pytest.raises(ArgumentError, match="seat: expected 0 to 999"):
        Results().record("a", "b", seat=seat, result=1)


@pytest.mark.parametrize(
    "state",
    [
        3,
        [3],
        [["a", "b", 0, 1, 1]],
        [["a", "b", 0, 1, 1, -1]],
        [["a", 2, 0, 1, 1, 1]],
        [["a", "b", 0, 1, 1, 0.5]],
    ],
)
def test_what_is_no_table_is_refused(state):
    with pytest.raises(TypeError, match="here: expected rows of player, opponent, seat"):
        read_rows(state, "here")


# -- games that share seeds ------------------------------------------------------------------------


def luck_of_seeds(rng, seeds, strengths):
    """The games of each seed, where the same luck decides the games of all pairs in both seats."""
    found = []
    for luck in rng.logistic(size=seeds):
        rows = []
        for one, other in [("a", "random"), ("b", "random"), ("a", "b")]:
            for seat in (0, 1):
                wins = int(strengths[one] - strengths[other] + luck > 0)
                rows.append(Row(one, other, seat, wins, 0, 1 - wins))
        found.append(Results(rows))
    return found


def test_errors_are_what_ratings_differ_by_between_seeds(monkeypatch):
    monkeypatch.setattr("vecwrap.selfplay.ratings.REPLICATES", 100)
    rng = np.random.default_rng(1)
    points, errors, naive = [], [], []
    for _ in range(60):
        games = luck_of_seeds(rng, 30, {"random": 0.0, "a": 0.6, "b": 0.9})
        ratings = bradley_terry_by_seed(games, "random")
        alone = bradley_terry(Results(row for each in games for row in each.rows()), "random")
        assert ratings.points.tolist() == alone.points.tolist()
        points.append(ratings.points[:2])
        errors.append(ratings.errors[:2])
        naive.append(alone.errors[:2])
    spread = np.std(points, axis=0, ddof=1)
    assert np.mean(errors, axis=0) / spread == pytest.approx(np.ones(2), abs=0.25)
    assert (np.mean(naive, axis=0) < 0.7 * spread).all()


def test_playing_the_same_games_of_a_seed_again_says_nothing_new():
    games = luck_of_seeds(np.random.default_rng(2), 20, {"random": 0.0, "a": 0.5, "b": 1.0})
    again = [Results([*each.rows()] * 9) for each in games]
    once, often = bradley_terry_by_seed(games, "random"), bradley_terry_by_seed(again, "random")
    assert often.errors == pytest.approx(once.errors, rel=0.15)
    assert once.resampled == often.resampled == "20 seeds"
    both = [
        Results(row for each in each_games for row in each.rows()) for each_games in (games, again)
    ]
    few, many = (bradley_terry(results, "random").errors for results in both)
    assert many[:2] == pytest.approx(few[:2] / 3, rel=0.1)


def test_the_error_of_a_difference_is_small_where_two_play_alike():
    """Both have the same luck in each seed, which cancels out between them."""
    games = luck_of_seeds(np.random.default_rng(3), 20, {"random": 0.0, "a": 0.7, "b": 0.7})
    ratings = bradley_terry_by_seed(games, "random")
    assert ratings.difference("a", "b")[1] < 0.5 * ratings.difference("a", "random")[1]


def test_who_won_every_game_has_an_error_and_one_seed_has_none():
    won = [Results([Row("a", "random", seat, 1, 0, 0) for seat in (0, 1)]) for _ in range(10)]
    ratings = bradley_terry_by_seed(won, "random")
    assert 50 < ratings.errors[0] < 1_000
    assert ratings.errors[1] == 0
    alone = bradley_terry_by_seed(won[:1], "random")
    assert alone.errors.tolist() == [math.inf, 0]
    assert alone.difference("a", "random") == (alone.points[0], math.inf)
    assert alone.about == "Elo points above random, with standard errors from resampling 1 seed"


def test_the_same_games_have_the_same_errors_again():
    games = luck_of_seeds(np.random.default_rng(4), 10, {"random": 0.0, "a": 0.5, "b": 1.0})
    first = bradley_terry_by_seed(games)
    assert bradley_terry_by_seed(games).covariance.tolist() == first.covariance.tolist()


@pytest.mark.parametrize(
    ("names", "anchor"),
    [
        (["learner", "a:greedy", "random"], "random"),
        (["learner", "a:greedy", "z:greedy"], "a:greedy"),
        (["learner", "000001", "000002"], "learner"),
    ],
)
def test_one_rule_says_whose_rating_is_0(names, anchor):
    rows = [Row("learner", name, 0, 3, 0, 1) for name in names[1:]]
    pool = OpponentPool(None)
    pool.results.add(rows)
    found = leaderboard(Results(rows))
    assert bradley_terry(Results(rows)).anchor == anchor
    assert bradley_terry_by_seed([Results(rows)] * 2).anchor == anchor
    assert pool.ratings().anchor == anchor
    assert found["anchor"] == anchor
    assert (
        found["about"]
        == f"Elo points above {anchor}, with standard errors as if all games were independent"
    )
