import pytest

from vecwrap.tools.tune import Candidate, Trial, recommend

DUMMY = Candidate("dummy")
TWO = Candidate("shmem", {}, processes=2)
FOUR = Candidate("shmem", {"workers": 4}, processes=4)
SHARED = Candidate("shmem", {"parent_share": True}, processes=2)


def trial(candidate, rate, spread=0.01):
    return Trial(candidate, (rate * (1 - spread), rate, rate * (1 + spread)), 0.1)


def chosen(*trials, now=TWO):
    candidate, _ = recommend(trials, now)
    return candidate


def test_the_quickest_is_taken_and_its_rate_said():
    candidate, reason = recommend([trial(DUMMY, 1000), trial(TWO, 1900), trial(FOUR, 1500)], TWO)
    assert candidate == TWO
    assert "It is the quickest: 1,900 agent steps/s" in reason
    assert "The pipeline has it already." in reason


@pytest.mark.parametrize(
    ("simple", "other"),
    [(DUMMY, TWO), (TWO, FOUR), (DUMMY, FOUR), (TWO, SHARED), (DUMMY, SHARED), (SHARED, FOUR)],
)
def test_of_a_tie_the_simpler_is_taken_whichever_comes_first(simple, other):
    if simple is SHARED:  # nobody's share in the parent is simpler, whatever the number of workers
        simple, other = other, simple
    for trials in (
        [trial(simple, 960), trial(other, 1000)],
        [trial(other, 1000), trial(simple, 960)],
    ):
        candidate, reason = recommend(trials, other)
        assert candidate == simple
        assert f"{other.name} did 4% more, which may be noise" in reason


def test_beyond_the_noise_the_quicker_is_taken():
    assert chosen(trial(DUMMY, 890), trial(TWO, 1000)) == TWO


def test_the_margin_is_counted_from_the_best_and_not_along_a_chain_of_ties():
    """8 % from one to the next: the last is 15 % behind the best, and no tie of it."""
    trials = [trial(DUMMY, 850), trial(TWO, 920), trial(FOUR, 1000)]
    assert chosen(*trials) == TWO


def test_what_failed_is_never_taken():
    assert chosen(Trial(DUMMY, failed="did not start"), trial(TWO, 10)) == TWO
    assert recommend([Trial(DUMMY, failed="did not start")], TWO) is None
