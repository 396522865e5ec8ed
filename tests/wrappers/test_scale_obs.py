"""Observations moved from the bounds of their space to others."""

from copy import deepcopy

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

import vecwrap
from tests.helpers.backends import DummyBackend
from tests.helpers.call_events import MODES, OPERATIONS, check_each_alone, operations
from tests.helpers.stream_envs import ToyEnv
from vecwrap.errors import PlanError
from vecwrap.wrappers.scale_obs import ScaleObs

BOX = spaces.Box(np.array([0, -10, 5], np.float32), np.array([255, 300, 256], np.float32))
DOUBLE = spaces.Box(0, 255, (), np.float64)
IMAGE = spaces.Box(0, 255, (2, 3), np.uint8)
TREE = spaces.Dict(
    {"image": IMAGE, "more": spaces.Discrete(5), "x": spaces.Box(0, 500, (2,), np.int64)}
)


def factories(space, lengths=(3, 5, 1)):
    return [lambda i=i: ToyEnv(lengths=lengths, index=i, observation_space=space) for i in range(3)]


def close(one, other):
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("space", [BOX, DOUBLE], ids=str)
def test_equals_rescale_observation_of_gymnasium(space, mode):
    """To the rounding of its arithmetic.

    Integers it leaves integers, so images would be zeros and ones.
    """
    make = factories(space)
    env = ScaleObs(DummyBackend(make, autoreset=mode), -1, 2.5)
    low, high = (np.full(space.shape, bound, space.dtype) for bound in (-1, 2.5))
    alone = [lambda m=m: gymnasium.wrappers.RescaleObservation(m(), low, high) for m in make]
    assert env.single_observation_space == alone[0]().observation_space
    assert check_each_alone(env, alone, OPERATIONS, close) > 8


@settings(deadline=None)
@given(
    mode=st.sampled_from(MODES),
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    played=operations,
)
def test_images_become_the_quotient_by_255_as_float32(mode, lengths, played):
    make = factories(IMAGE, lengths)
    env = ScaleObs(DummyBackend(make, autoreset=mode))
    assert env.single_observation_space == spaces.Box(0, 1, (2, 3), np.float32)
    box = spaces.Box(0, 1, (2, 3), np.float32)
    alone = [
        lambda m=m: gymnasium.wrappers.TransformObservation(
            m(), lambda image: (image / 255).astype(np.float32), box
        )
        for m in make
    ]
    check_each_alone(
        env, alone, played, lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-7)
    )


def test_every_byte_is_the_quotient_by_255_to_the_bit():
    class Ramp(ToyEnv):
        def observe(self):
            return np.arange(256, dtype=np.uint8)

    with ScaleObs(
        DummyBackend([lambda: Ramp(observation_space=spaces.Box(0, 255, (256,), np.uint8))])
    ) as env:
        observations, _ = env.reset()
        assert observations.dtype == np.float32
        np.testing.assert_array_equal(
            observations[0], np.arange(256, dtype=np.float32) / np.float32(255)
        )


@pytest.mark.parametrize(("low", "high"), [(-0.1, 0.7), (0.3, 0.9), (-7, 1e3)])
def test_the_bounds_become_the_new_ones_to_the_bit(low, high):
    class Ends(ToyEnv):
        def observe(self):
            return BOX.low if self.time % 2 else BOX.high

    with ScaleObs(DummyBackend([lambda: Ends(observation_space=BOX)]), low, high) as env:
        assert env.reset()[0][0].tolist() == [np.float32(high)] * 3
        assert env.step([0])[0][0].tolist() == [np.float32(low)] * 3


def test_members_of_a_dict():
    inner = DummyBackend(factories(TREE))
    before = deepcopy(inner.single_observation_space)
    with ScaleObs(inner, keys=("image", "x")) as env:
        assert env.single_observation_space["x"] == spaces.Box(0, 1, (2,), np.float32)
        assert env.single_observation_space["more"] == spaces.Discrete(5)
        observations, _ = env.reset()
        assert observations in env.observation_space
        assert observations["x"][1].tolist() == [np.float32(98 / 500), np.float32(99 / 500)]
        assert inner.single_observation_space == before


INF = np.inf
HALF = spaces.Box(
    np.array([0, -INF, 5, -INF, -1.5], np.float32),
    np.array([255, INF, INF, 300, 1.5], np.float32),
    dtype=np.float32,
)
HALF_LOW, HALF_HIGH = [-1, -INF, -2, -INF, 0], [2.5, INF, INF, 4, 1]


@pytest.mark.parametrize("mode", MODES)
def test_bounds_of_each_element_equal_rescale_observation_of_gymnasium(mode):
    make = factories(HALF)
    env = ScaleObs(DummyBackend(make, autoreset=mode), HALF_LOW, np.array(HALF_HIGH))
    low, high = (np.array(bound, np.float32) for bound in (HALF_LOW, HALF_HIGH))
    alone = [lambda m=m: gymnasium.wrappers.RescaleObservation(m(), low, high) for m in make]
    assert env.single_observation_space == alone[0]().observation_space
    assert check_each_alone(env, alone, OPERATIONS, close) > 8


@pytest.mark.parametrize(
    "bounds",
    [
        {},
        {"low": [0, -INF, 0, -INF], "high": np.array([1, INF, 1, INF])},
        {"low": np.float32(0), "high": 1},
    ],
)
def test_elements_without_bounds_stay_as_they_are_to_the_bit(bounds):
    with vecwrap.build(
        "CartPole-v1", n=2, wrappers=[{"scale_obs": bounds}], backend="dummy"
    ) as env:
        plain = vecwrap.build("CartPole-v1", n=2, backend="dummy")
        expected, scaled = plain.reset(seed=1)[0], env.reset(seed=1)[0]
        np.testing.assert_array_equal(scaled[:, [1, 3]], expected[:, [1, 3]])
        assert (np.abs(scaled[:, [0, 2]] - 0.5) < 0.1).all()
        assert np.isinf(env.single_observation_space.high).tolist() == [False, True, False, True]
        plain.close()


def test_bounds_of_each_element_over_a_stack_and_in_a_member():
    wrappers = [
        "framestack:3",
        {"scale_obs": {"low": [-1, -INF, -1, -INF], "high": [1, INF, 1, INF]}},
    ]
    with vecwrap.build("CartPole-v1", n=2, wrappers=wrappers, backend="dummy") as env:
        plain = vecwrap.build("CartPole-v1", n=2, wrappers=["framestack:3"], backend="dummy")
        expected, bound = plain.reset(seed=1)[0], np.array([4.8, 1, 0.41887903, 1])
        close(env.reset(seed=1)[0], expected / bound)
        plain.close()
    space = spaces.Dict(half=HALF, other=spaces.Box(0, 9, (5,)))
    with ScaleObs(DummyBackend(factories(space)), HALF_LOW, HALF_HIGH, keys=("half",)) as env:
        assert env.single_observation_space["other"] == space["other"]
        np.testing.assert_array_equal(
            env.single_observation_space["half"].low, np.float32(HALF_LOW)
        )


def test_bounds_near_the_largest_float_do_not_overflow():
    most = np.finfo(np.float64).max
    space = spaces.Box(np.array([-most, -INF]), np.array([most, INF]), dtype=np.float64)

    class Ends(ToyEnv):
        def observe(self):
            return np.array([(-most, 0, most)[self.time % 3], most])

    with ScaleObs(
        DummyBackend([lambda: Ends(lengths=(9,), observation_space=space)]), [0, -INF], [most, INF]
    ) as env:
        seen = [env.reset()[0][0], *(env.step([0])[0][0] for _ in range(2))]
    places = sorted(row[0] for row in seen)
    assert places == [0, most / 2, most]
    assert [row[1] for row in seen] == [most] * 3


@pytest.mark.parametrize(
    ("space", "arguments", "message"),
    [
        (
            spaces.Discrete(3),
            {},
            (
                "scale_obs: expected observations of a Box with bounds, got Discrete(3); "
                "normalize_obs sc"
            ),
        ),
        (
            spaces.Box(-np.inf, 1, (2,)),
            {},
            "scale_obs: expected observations of a Box with bounds, got Box(-inf, 1.0",
        ),
        (
            TREE,
            {},
            (
                "scale_obs: observations['more']: expected a Box with bounds, got Discrete(5); "
                "name those that it is "
            ),
        ),
        (
            spaces.Box(-INF, INF, (2,)),
            {},
            "scale_obs: expected observations of a Box with bounds, got Box(-inf, inf",
        ),
        (HALF, {}, "scale_obs: expected observations of a Box with bounds, got Box("),
        (HALF, {"low": HALF_LOW}, "scale_obs: high: element [2] of Box("),
        (
            BOX,
            {"low": [0, -INF, 0]},
            "scale_obs: low: expected a finite number that float32 can hold, got [0, -inf, ",
        ),
        (
            BOX,
            {"low": [0, 0]},
            "scale_obs: low: expected a number, or one for each element of shape (3,), got [0, 0]",
        ),
        (
            BOX,
            {"low": ["a", 0, 0]},
            "scale_obs: low: expected a number, or one for each element of shape (3,), got ",
        ),
        (BOX, {"low": [0, 2, 0]}, "scale_obs: expected low < high, got low=[0, 2, 0] and high=1.0"),
        (
            spaces.Box(-1e308, INF, (1,), np.float64),
            {"low": [1e308], "high": [INF]},
            "scale_obs: expected bounds nearer",
        ),
        (IMAGE, {"low": 2.0}, "scale_obs: expected low < high, got low=2.0 and high=1.0"),
        (
            IMAGE,
            {"high": 1e39},
            "scale_obs: high: expected a finite number that float32 can hold, got 1e+39",
        ),
    ],
)
def test_what_cannot_be_scaled_is_refused(space, arguments, message):
    with DummyBackend(factories(space)) as env, pytest.raises(PlanError) as error:
        ScaleObs(env, **arguments)
    assert str(error.value).startswith(message)
