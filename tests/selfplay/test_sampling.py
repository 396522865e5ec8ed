"""Sampling rules against their formulas: the shares they give, and the shares that are drawn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.rock_paper_scissors import ACTIONS, OBSERVATIONS, result, weights
from vecwrap import OpponentPool
from vecwrap.errors import ArgumentError, SpecError
from vecwrap.selfplay.sampling import pick, rule_of, shares

CHI_SQUARED = {4: 18.47, 5: 20.52}  # exceeded with probability 0.001, by degrees of freedom
DRAWS = 4000


@pytest.fixture
def skewed(tmp_path):
    """A pool of rocks, papers and scissors, against which a learner that plays rock has results."""
    pool = OpponentPool(
        tmp_path, make="tests.helpers.rock_paper_scissors:make", scripted=["random"], decay=1.0
    )
    pool.bind(OBSERVATIONS, ACTIONS)
    for move in (0, 0, 1, 2, 2):
        pool.add(weights(move))
    for name, moves in {
        "random": (0, 1, 2),
        "000001": (0, 0),
        "000003": (1, 1, 1),
        "000004": (2, 2, 2, 2, 2),
    }.items():
        for move in moves:
            pool.record(name, result(0, move))
    return pool


# A draw is half a win; one win and one loss are added.
RATES = [
    (1.5 + 1) / 5,
    0.5,
    0.5,
    1 / 5,
    6 / 7,
    0.5,
]


@pytest.mark.parametrize(
    ("sample", "formula"),
    [
        ("latest", lambda x: [0, 0, 0, 0, 0, 1]),
        ("uniform", lambda x: [1, 1, 1, 1, 1, 1]),
        ("recent:1", lambda x: [1, 1, 1, 1, 1, 1]),
        ("recent:0.5", lambda x: [0, 0, 0, 1, 1, 1]),
        ("recent:0.4", lambda x: [0, 0, 0, 1, 1, 1]),  # 2.4 members are three
        ("recent:0.01", lambda x: [0, 0, 0, 0, 0, 1]),
        ("pfsp", lambda x: (1 - x) ** 2),
        ("pfsp:1", lambda x: 1 - x),
        ("pfsp:0.5", lambda x: np.sqrt(1 - x)),
        ("pfsp:even", lambda x: x * (1 - x)),
        ("tests.helpers.rock_paper_scissors:oldest", lambda x: [1, 0, 0, 0, 0, 0]),
    ],
)
def test_members_are_drawn_in_the_shares_of_the_formula(skewed, sample, formula):
    assert [skewed.win_rate(name) for name in skewed.members] == pytest.approx(RATES)
    expected = np.asarray(formula(np.array(RATES)), float)
    expected /= expected.sum()
    np.testing.assert_allclose(skewed.shares(sample), expected)
    rng = np.random.default_rng(7)
    drawn = [skewed.draw(rng, sample) for _ in range(DRAWS)]
    counts = np.array([drawn.count(name) for name in skewed.members])
    possible = expected > 0
    assert counts[~possible].sum() == 0
    if possible.sum() > 1:
        limit = {**CHI_SQUARED, 2: 13.82}[possible.sum() - 1]
        assert (
            (counts - DRAWS * expected)[possible] ** 2 / (DRAWS * expected[possible])
        ).sum() < limit


def test_a_share_of_the_games_is_against_the_present_policy(skewed):
    skewed.current = lambda observations: observations
    rng = np.random.default_rng(3)
    drawn = [skewed.draw(rng, "uniform", current=0.25) for _ in range(DRAWS)]
    counts = np.array([drawn.count(name) for name in ("current", *skewed.members)])
    expected = DRAWS * np.array([0.25, *[0.125] * 6])
    assert ((counts - expected) ** 2 / expected).sum() < 22.46  # 6 degrees of freedom
    assert skewed.policy("current") is skewed.current


def test_a_draw_takes_two_numbers_whatever_the_rule_and_the_members(skewed):
    skewed.current = lambda observations: observations
    rest = set()
    for sample, current in (
        ("latest", 0.0),
        ("pfsp", 0.0),
        ("uniform", 1.0),
        (lambda members, rates: rates, 0.5),
    ):
        rng = np.random.default_rng(3)
        skewed.draw(rng, sample, current=current)
        rest.add(rng.random())
    assert len(rest) == 1


def test_equal_generators_draw_equal_opponents(skewed):
    one, other = (
        [skewed.draw(rng, "pfsp") for _ in range(50)] for rng in map(np.random.default_rng, (5, 5))
    )
    assert one == other


def test_earlier_games_of_the_learner_count_less(tmp_path):
    pool = OpponentPool(
        tmp_path, make="tests.helpers.rock_paper_scissors:make", scripted=["random"], decay=0.5
    )
    for score in (1, 1, 0, -1):
        pool.record("random", score)
    weight = [0.125, 0.25, 0.5, 1]
    assert pool.win_rate("random") == pytest.approx((0.125 + 0.25 + 0.25 + 1) / (sum(weight) + 2))


def test_games_between_others_do_not_change_what_the_learner_meets(skewed):
    before = skewed.shares("pfsp").tolist()
    skewed.record("000003", 1, player="000001")
    skewed.current = lambda observations: observations
    skewed.record("current", -1)
    assert skewed.shares("pfsp").tolist() == before


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        ("lastest", r"sample: expected latest, uniform, .* Did you mean \"latest\"\?"),
        ("recent", "a share above 0 and up to 1"),
        ("recent:0", "a share above 0 and up to 1"),
        ("recent:1.5", 'got "recent:1.5"'),
        ("recent:half", 'got "recent:half"'),
        ("recent:nan", "a share above 0"),
        ("pfsp:-1", "a power from 0"),
        ("pfsp:inf", "a power from 0"),
        ("pfsp:odd", 'got "pfsp:odd"'),
        ("latest:3", "expected latest"),
        ("tests.helpers.rock_paper_scissors:nothing", "has no nothing"),
        ("tests.helpers.rock_paper_scissors:NOT_CALLABLE", "expected a class or callable"),
        ("no.such:rule", "there is no module"),
    ],
)
def test_a_rule_that_is_none_is_refused(skewed, sample, said):
    with pytest.raises(SpecError, match=said):
        skewed.draw(np.random.default_rng(1), sample)


def test_a_rule_is_not_imported_where_nothing_may_be():
    with pytest.raises(
        SpecError,
        match=(
            r"expected nothing to import \(--no-imports\), got "
            r'"tests\.helpers\.rock_paper_scissors:oldest"'
        ),
    ):
        rule_of("tests.helpers.rock_paper_scissors:oldest", imports=False)
    assert rule_of("recent:0.5", imports=False)


@pytest.mark.parametrize(
    "given", [[1], [1, 1, 1], [1, -1], [0, 0], [np.nan, 1], [np.inf, 1], "ab", None, [[1, 1]]]
)
def test_weights_that_are_none_are_refused(given):
    with pytest.raises(ArgumentError, match="expected 2 finite weights, one for each of a, b"):
        shares(lambda members, rates: given, ["a", "b"], np.full(2, 0.5))


def test_a_rule_cannot_change_the_rates_of_a_pool():
    rates = np.full(2, 0.5)

    def rule(members, given):
        given[:] = 0
        return [1, 1]

    shares(rule, ["a", "b"], rates)
    assert rates.tolist() == [0.5, 0.5]


@given(
    st.lists(st.floats(0, 1e300), min_size=1, max_size=20).filter(lambda weights: max(weights) > 0),
    st.floats(0, 1, exclude_max=True),
)
def test_what_is_picked_has_a_share(given, number):
    probabilities = shares(
        lambda members, rates: given, [*map(str, range(len(given)))], np.full(len(given), 0.5)
    )
    assert probabilities.sum() == pytest.approx(1)
    index = pick(probabilities, number)
    assert probabilities[index] > 0
    assert probabilities[:index].sum() <= number + 1e-9
    assert number - 1e-9 <= probabilities[: index + 1].sum()


@pytest.mark.parametrize(
    "sample", [*("latest", "uniform", "recent:0.5", "pfsp", "pfsp:even", "only:a"), lambda *_: []]
)
def test_an_empty_pool_has_no_shares_and_nobody_to_draw(sample, tmp_path):
    for pool in (OpponentPool(None), OpponentPool(tmp_path)):
        for ask in (
            pool.shares,
            lambda sample, pool=pool: pool.draw(np.random.default_rng(1), sample),
        ):
            with pytest.raises(
                ArgumentError, match="expected members to draw from, got an empty pool; add one"
            ):
                ask(sample)


@pytest.mark.parametrize("dir", [["random"], 3, b"folder", {"random": 1}])
def test_a_folder_of_another_type_is_refused(dir):
    with pytest.raises(
        ArgumentError, match="dir: expected a folder, or None for scripted members alone, got"
    ):
        OpponentPool(dir)
