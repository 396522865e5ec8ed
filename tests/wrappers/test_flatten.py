"""Observations as one vector each."""

from copy import deepcopy
from functools import partial
from inspect import signature

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.backends import DummyBackend
from tests.helpers.call_events import MODES, OPERATIONS, check_each_alone, operations
from tests.helpers.stream_envs import ToyEnv
from vecwrap.errors import PlanError
from vecwrap.rows.members import flat
from vecwrap.testing import SPACES
from vecwrap.testing import ToyEnv as AnyEnv
from vecwrap.wrappers.flatten import Flatten

IMAGE = spaces.Box(0, 255, (2, 3), np.uint8)
TREE = spaces.Dict(
    {
        "b": IMAGE,
        "a": spaces.Tuple(
            [spaces.Discrete(5, start=-1), spaces.Dict({"x": spaces.Box(0, 300, ())})]
        ),
    }
)
WITH_DTYPES = [partial(spaces.MultiDiscrete, [2, 3])]
if "dtype" in signature(spaces.Discrete).parameters:  # Gymnasium 1.1 has none
    WITH_DTYPES.append(partial(spaces.Discrete, 3))
WITHOUT = ("graph", "sequence", "stacked_sequence", "custom", "mixed")


def factories(space, lengths=(3, 5, 1)):
    return [lambda i=i: ToyEnv(lengths=lengths, index=i, observation_space=space) for i in range(3)]


@settings(deadline=None)
@given(
    mode=st.sampled_from(MODES),
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    space=st.sampled_from([IMAGE, TREE, spaces.Discrete(7, start=-2)]),
    played=operations,
)
def test_equals_flatten_observation_of_gymnasium(mode, lengths, space, played):
    make = factories(space, lengths)
    alone = [lambda m=m: gymnasium.wrappers.FlattenObservation(m()) for m in make]
    check_each_alone(Flatten(DummyBackend(make, autoreset=mode)), alone, played)


@pytest.mark.parametrize("name", [name for name in SPACES if name not in WITHOUT])
def test_every_space_of_fixed_size_is_flattened_as_gymnasium_does_it(name):
    """What is drawn differs from one to the other, so both flatten the same observations."""
    with (
        DummyBackend([lambda: AnyEnv(name)] * 4) as raw,
        Flatten(DummyBackend([lambda: AnyEnv(name)] * 4)) as env,
    ):
        space = raw.single_observation_space
        assert env.single_observation_space == spaces.utils.flatten_space(space)
        observations, _ = raw.reset(seed=3)
        flat, _ = env.reset(seed=3)
        assert flat in env.observation_space
        each = gymnasium.vector.utils.iterate(raw.observation_space, observations)
        np.testing.assert_array_equal(
            flat, [spaces.utils.flatten(space, observation) for observation in each]
        )


@pytest.mark.parametrize("mode", MODES)
def test_terminal_observations_are_flat_too(mode):
    make = factories(TREE)
    alone = [lambda m=m: gymnasium.wrappers.FlattenObservation(m()) for m in make]
    assert check_each_alone(Flatten(DummyBackend(make, autoreset=mode)), alone, OPERATIONS) > 8


def test_the_wrapped_space_stays_as_it_was():
    inner = DummyBackend(factories(IMAGE))
    before = deepcopy(inner.single_observation_space)
    with Flatten(inner) as env:
        assert env.observation_space.shape == (3, 6)
        assert inner.single_observation_space == before


@pytest.mark.parametrize("name", WITHOUT)
def test_a_space_without_a_flat_form_is_refused(name):
    with (
        DummyBackend([lambda: AnyEnv(name)]) as env,
        pytest.raises(PlanError, match="flatten: expected observations wi"),
    ):
        Flatten(env)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, np.uint16, np.uint32])
@pytest.mark.parametrize("form", WITH_DTYPES)
def test_whole_numbers_of_every_dtype_are_flat_as_gymnasium_has_them(form, dtype):
    space = form(dtype=dtype)
    observations = [space.sample() for _ in range(9)]
    got = flat(space, np.array(observations, dtype))
    np.testing.assert_array_equal(got, [spaces.utils.flatten(space, one) for one in observations])
    assert got.dtype == dtype
