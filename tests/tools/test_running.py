"""Mean and variance of a stream, batch by batch: the same as of all values at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.reference_normalizer import mean_and_var
from vecwrap.errors import CheckpointError
from vecwrap.rows.statistics import RunningStatistics, moments


def of(batches, shape=()):
    statistics = RunningStatistics(shape)
    for batch in batches:
        statistics.merge(moments(batch))
    return statistics


@settings(deadline=None)
@given(
    batches=st.lists(
        st.lists(st.integers(-1000, 1000), min_size=1, max_size=5), min_size=1, max_size=20
    ),
    dtype=st.sampled_from([np.float64, np.float32, np.int16]),
)
def test_running_statistics_equal_two_passes_over_all_values(batches, dtype):
    batches = [np.array(batch, dtype) for batch in batches]
    statistics = of(batches)
    mean, var = mean_and_var(np.concatenate(batches))
    assert statistics.mean == pytest.approx(mean, rel=1e-12, abs=1e-12)
    assert statistics.var == pytest.approx(var, rel=1e-9)
    assert statistics.count == pytest.approx(sum(map(len, batches)) + 1e-4)


def test_running_statistics_are_exact_where_the_mean_is_far_greater_than_the_spread():
    """In float32, or by E[x²] - E[x]², nothing would be left of the variance."""
    values = (np.random.default_rng(0).normal(size=(1000, 4, 2)) + 1e5).astype(np.float32)
    statistics = of([values[:1].reshape(-1, 2), *values[1:]], (2,))
    mean, var = mean_and_var(values.reshape(-1, 2), (2,))
    np.testing.assert_allclose(statistics.mean, mean, rtol=1e-13)
    np.testing.assert_allclose(statistics.var, var, rtol=1e-9)


def test_running_statistics_are_those_of_sb3_and_gymnasium():
    from gymnasium.wrappers.utils import RunningMeanStd as Gymnasium

    sb3 = pytest.importorskip("stable_baselines3.common.running_mean_std")
    batches = np.random.default_rng(1).normal(3, 5, size=(50, 6, 2))
    statistics = of(batches, (2,))
    for kind in (sb3.RunningMeanStd, Gymnasium):
        peer = kind(shape=(2,))
        for batch in batches:
            peer.update(batch)
        for name in ("mean", "var", "count"):
            np.testing.assert_allclose(getattr(statistics, name), getattr(peer, name), rtol=1e-12)


def test_epsilon_stands_under_the_root():
    statistics = RunningStatistics((2,))
    statistics.var = np.array([1.0, 0.0])
    np.testing.assert_allclose(statistics.scale(3.0), [2, np.sqrt(3)])


@pytest.mark.parametrize(
    "values", [[1.0, np.nan], [np.inf, 1.0], [np.inf, -np.inf], [1e200, -1e200]]
)
def test_values_without_mean_and_variance_are_refused(values):
    with (
        np.errstate(invalid="ignore", over="ignore"),
        pytest.raises(FloatingPointError, match="not finite"),
    ):
        moments(np.array(values))
    if not np.isfinite(values[1]):
        with pytest.raises(FloatingPointError, match="not finite"):
            moments(np.array(values[1:]))  # a batch of one


def test_what_state_gives_is_taken_in_again_and_shared_with_nobody():
    statistics = of(np.random.default_rng(2).normal(size=(5, 3, 2)), (2,))
    state = statistics.state()
    other = RunningStatistics((2,))
    other.load(state, "here")
    state["mean"][:] = 9
    np.testing.assert_array_equal(other.mean, statistics.mean)
    np.testing.assert_array_equal(other.var, statistics.var)
    assert other.count == statistics.count
    with pytest.raises(
        CheckpointError,
        match=r"here: expected statistics of shape \(\), got \(2,\); they belong to",
    ):
        RunningStatistics().load(state, "here")
