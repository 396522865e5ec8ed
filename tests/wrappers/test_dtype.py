"""Observations as another number type."""

from copy import deepcopy

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.backends import DummyBackend
from tests.helpers.call_events import MODES, OPERATIONS, check_each_alone, operations
from tests.helpers.stream_envs import ToyEnv, assert_same
from vecwrap.errors import PlanError
from vecwrap.wrappers.dtype import Dtype

BOX = spaces.Box(0, 255, (2, 3), np.float32)
IMAGE = spaces.Box(0, 255, (2, 3), np.uint8)
NUMBERS = [BOX, IMAGE, spaces.Discrete(7, start=-2), spaces.MultiBinary(3)]
TREE = spaces.Dict({"image": IMAGE, "more": spaces.Discrete(5), "text": spaces.Text(3)})


def factories(space, lengths=(3, 5, 1)):
    return [lambda i=i: ToyEnv(lengths=lengths, index=i, observation_space=space) for i in range(3)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("space", "dtype"),
    [(space, dtype) for space in NUMBERS for dtype in ("float32", "float64", "int64", "int16")]
    + [(spaces.MultiDiscrete([300, 300]), dtype) for dtype in ("int64", "int16")],
    ids=str,
)
@pytest.mark.filterwarnings(
    "ignore:overflow encountered in cast:RuntimeWarning"
)  # in Gymnasium's Box
def test_equals_dtype_observation_of_gymnasium(space, dtype, mode):
    """But for a MultiDiscrete of floats, which it cannot make, and a Discrete, whose bounds it once
    had one off.
    """
    make = factories(space)
    env = Dtype(DummyBackend(make, autoreset=mode), dtype)
    alone = [
        lambda m=m: gymnasium.wrappers.DtypeObservation(m(), np.dtype(dtype).type) for m in make
    ]
    if isinstance(space, spaces.Discrete):
        assert env.single_observation_space == spaces.Box(-2, 4, (), np.dtype(dtype).type)
    else:
        assert env.single_observation_space == alone[0]().observation_space
    assert check_each_alone(env, alone, OPERATIONS) > 8


@settings(deadline=None)
@given(
    mode=st.sampled_from(MODES),
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    played=operations,
)
def test_casts_every_observation_terminal_ones_too(mode, lengths, played):
    make = factories(IMAGE, lengths)
    alone = [lambda m=m: gymnasium.wrappers.DtypeObservation(m(), np.float32) for m in make]
    check_each_alone(Dtype(DummyBackend(make, autoreset=mode), "float32"), alone, played)


def test_multidiscrete_of_floats_becomes_a_box():
    with Dtype(
        DummyBackend(factories(spaces.MultiDiscrete([300, 280], start=[-1, 5]))), "float32"
    ) as env:
        assert env.single_observation_space == spaces.Box(
            np.array([-1, 5]), np.array([298, 284]), dtype=np.float32
        )
        assert_same(env.reset()[0][0], np.array([1, 2], np.float32))


@pytest.mark.parametrize("space", [BOX, spaces.MultiDiscrete([300, 280])], ids=str)
@pytest.mark.parametrize("dtype", ["<i4", ">i4", ">f8"])
def test_the_space_has_the_byte_order_of_the_arrays(space, dtype):
    with Dtype(DummyBackend(factories(space)), dtype) as env:
        observations, _ = env.reset()
        assert (
            observations.dtype
            == env.single_observation_space.dtype
            == env.observation_space.dtype
            == dtype
        )
        assert observations in env.observation_space


def test_members_of_a_dict():
    inner = DummyBackend(factories(TREE))
    before = deepcopy(inner.single_observation_space)
    with Dtype(inner, "float32", keys=("image", "more")) as env:
        assert env.single_observation_space["more"] == spaces.Box(0, 4, (), np.float32)
        observations, _ = env.reset()
        assert [observations[key].dtype for key in ("image", "more")] == [np.float32, np.float32]
        assert observations["text"] == ("a", "ab", "abc")
        assert inner.single_observation_space == before


@pytest.mark.parametrize(
    ("space", "dtype", "message"),
    [
        (
            BOX,
            "float23",
            'dtype: expected an integer or float type of NumPy, such as "float32", got "float23"',
        ),
        (
            BOX,
            "bool",
            'dtype: expected an integer or float type of NumPy, such as "float32", got "bool"',
        ),
        (
            spaces.Text(3),
            "float32",
            "dtype: expected observations of a Box, Discrete, MultiDiscrete or MultiBinary, got T",
        ),
        (
            BOX,
            "int8",
            (
                "dtype: observations: expected bounds that int8 can hold, -128 to 127, got "
                "Box(0.0, 255.0, (2, 3),"
            ),
        ),
        (
            spaces.Discrete(5, start=-1),
            "uint8",
            "dtype: observations: expected bounds that uint8 can hold, 0 to 255, got",
        ),
        (
            spaces.Box(-np.inf, np.inf, (2,)),
            "int64",
            "dtype: observations: expected bounds that int64 can hold, -9223372",
        ),
        (
            spaces.Box(0, 1e6, (2,)),
            "float16",
            "dtype: observations: expected bounds that float16 can hold, -65504.0 to 6",
        ),
        (
            spaces.Box(0, 2**31 - 1, (2,)),
            "int32",
            "dtype: observations: expected bounds that int32 can hold, -2147483648 ",
        ),
        (
            TREE,
            "float32",
            (
                "dtype: observations['text']: expected a Box, Discrete, MultiDiscrete or "
                "MultiBinary, got Text("
            ),
        ),
    ],
)
def test_what_cannot_be_cast_is_refused(space, dtype, message):
    with DummyBackend(factories(space)) as env, pytest.raises(PlanError) as error:
        Dtype(env, dtype)
    assert str(error.value).startswith(message)


def test_infinite_bounds_stay_infinite():
    with Dtype(
        DummyBackend(factories(spaces.Box(-np.inf, 300, (2,), np.float64))), "float16"
    ) as env:
        assert env.single_observation_space == spaces.Box(-np.inf, 300, (2,), np.float16)
