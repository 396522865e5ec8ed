"""Some members of Dict observations."""

from copy import deepcopy

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tests.helpers.backends import DummyBackend
from tests.helpers.call_events import MODES, OPERATIONS, check_each_alone
from tests.helpers.stream_envs import ToyEnv
from vecwrap.errors import PlanError
from vecwrap.wrappers.filter_obs import FilterObs

TREE = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (2, 3), np.uint8),
        "deep": spaces.Dict({"x": spaces.Discrete(5)}),
        "t": spaces.Text(3),
    }
)


def factories(space=TREE):
    return [lambda i=i: ToyEnv(index=i, observation_space=space) for i in range(3)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("keys", [("image",), ("t", "deep")])
def test_equals_filter_observation_of_gymnasium(mode, keys):
    make = factories()
    alone = [lambda m=m: gymnasium.wrappers.FilterObservation(m(), keys) for m in make]
    env = FilterObs(DummyBackend(make, autoreset=mode), keys)
    assert env.single_observation_space == alone[0]().observation_space
    assert env.observation_space == gymnasium.vector.utils.batch_space(
        env.single_observation_space, 3
    )
    assert check_each_alone(env, alone, OPERATIONS) > 8


def test_only_what_is_left_says_whether_objects_are_given_as_tuples():
    with FilterObs(DummyBackend(factories()), ("image", "deep")) as env:
        assert not env.call_state.results.object_leaves
    with FilterObs(DummyBackend(factories()), ("t",)) as env:
        assert env.reset()[0] == {"t": ("a", "ab", "abc")}


def test_the_order_is_that_of_the_space_and_the_wrapped_space_stays_as_it_was():
    inner = DummyBackend(factories())
    before = deepcopy(inner.single_observation_space)
    with FilterObs(inner, ("t", "deep")) as env:
        assert list(env.single_observation_space) == list(env.reset()[0]) == ["deep", "t"]
        assert inner.single_observation_space == before


@pytest.mark.parametrize(
    ("space", "keys", "message"),
    [
        (
            spaces.Discrete(3),
            ("x",),
            "filter_obs: expected observations of a Dict space, got Discrete(3); leave the wrapper",
        ),
        (
            TREE,
            ("t", "X"),
            (
                "filter_obs: keys: expected members of the observations, ['deep', 'image', 't'], "
                'got "X".'
            ),
        ),
        (
            TREE,
            "t+t",
            (
                "filter_obs: keys: expected one or more of ['deep', 'image', 't'], each once, got "
                "['t', 't']"
            ),
        ),
        (
            TREE,
            "tt",
            (
                "filter_obs: keys: expected members of the observations, ['deep', 'image', 't'], "
                'got "tt".'
            ),
        ),
        (
            TREE,
            (),
            "filter_obs: keys: expected one or more of ['deep', 'image', 't'], each once, got []",
        ),
        (
            TREE,
            ("t", "t"),
            (
                "filter_obs: keys: expected one or more of ['deep', 'image', 't'], each once, got "
                "['t', 't']"
            ),
        ),
    ],
)
def test_what_cannot_be_kept_is_refused(space, keys, message):
    with DummyBackend(factories(space)) as env, pytest.raises(PlanError) as error:
        FilterObs(env, keys)
    assert str(error.value).startswith(message)
