from dataclasses import replace

import pytest

from vecwrap.tools.tune import Candidate, EnvCost, Trial, recommend

COST = EnvCost(100e-6, 5e-6, 1000, 1.0, 0.1)
DUMMY = Candidate("dummy")
TWO = Candidate("shmem", {}, processes=2)
FOUR = Candidate("shmem", {"workers": 4}, processes=4)
SHARED = Candidate("shmem", {"parent_share": True}, processes=2)
BATCHES = Candidate("shmem", {}, 4, 2)


def trial(candidate, rate, spread=0.01):
    return Trial(candidate, (rate * (1 - spread), rate, rate * (1 + spread)), 0.1)


def chosen(*trials, batch_size=None, now=TWO):
    found = recommend(trials, COST, batch_size=batch_size, now=now)
    return found.candidate


def test_the_quickest_is_taken_and_its_rate_said():
    found = recommend([trial(DUMMY, 1000), trial(TWO, 1900), trial(FOUR, 1500)], COST, batch_size=None, now=TWO)
    assert found.candidate == TWO
    assert "It is the quickest: 1,900 agent steps/s" in found.reason
    assert "The pipeline has it already." in found.reason
    assert found.other is None


def test_what_the_pipeline_has_now_is_said_beside():
    found = recommend([trial(DUMMY, 1000), trial(TWO, 1900)], COST, batch_size=None, now=DUMMY)
    assert "What the pipeline has now, dummy, did 1,000." in found.reason


@pytest.mark.parametrize(
    ("simple", "other"), [(DUMMY, TWO), (TWO, FOUR), (DUMMY, FOUR), (TWO, SHARED), (DUMMY, SHARED), (SHARED, FOUR)]
)
def test_of_a_tie_the_simpler_is_taken_whichever_comes_first(simple, other):
    if simple is SHARED:  # nobody's share in the parent is simpler, whatever the number of workers
        simple, other = other, simple
    for trials in ([trial(simple, 960), trial(other, 1000)], [trial(other, 1000), trial(simple, 960)]):
        assert chosen(*trials) == simple
        found = recommend(trials, COST, batch_size=None, now=other)
        assert f"{other.name} did 4% more, which may be noise" in found.reason


def test_beyond_the_noise_the_quicker_is_taken():
    assert chosen(trial(DUMMY, 940), trial(TWO, 1000)) == TWO


def test_the_margin_is_counted_from_the_best_and_not_along_a_chain_of_ties():
    """4 % from one to the next: the last is 8 % behind the best, and no tie of it."""
    trials = [trial(DUMMY, 920), trial(TWO, 960), trial(FOUR, 1000)]
    assert chosen(*trials) == TWO


def test_what_failed_is_never_taken():
    assert chosen(Trial(DUMMY, failed="did not start"), trial(TWO, 10)) == TWO
    assert recommend([Trial(DUMMY, failed="did not start")], COST, batch_size=None, now=TWO) is None


def test_another_loop_is_recommended_beside_where_it_is_worth_it_and_never_instead():
    found = recommend([trial(TWO, 1000), trial(BATCHES, 1400)], COST, batch_size=None, now=TWO)
    assert (found.candidate, found.other) == (TWO, BATCHES)
    assert "1.40 ×" in found.other_reason
    assert recommend([trial(TWO, 1000), trial(BATCHES, 1040)], COST, batch_size=None, now=TWO).other is None
    assert recommend([trial(BATCHES, 1400)], COST, batch_size=None, now=TWO) is None


def test_for_a_loop_that_receives_batches_its_own_size_is_the_same_loop():
    two = replace(BATCHES, batch_size=2)
    found = recommend([trial(BATCHES, 1000), trial(two, 1500)], COST, batch_size=4, now=BATCHES)
    assert (found.candidate, found.other) == (BATCHES, two)
