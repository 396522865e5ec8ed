"""Spaces that derive from Gymnasium's are stored, batched and served as those that they derive
from.
"""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from vecwrap import build, wrap
from vecwrap.rows.columns import TextColumn, make_column
from vecwrap.rows.gymnasium_form import conform_actions
from vecwrap.testing import assert_same


class OwnBox(spaces.Box):
    """A Box by another name."""


class OwnDiscrete(spaces.Discrete):
    """A Discrete by another name."""


class OwnMultiBinary(spaces.MultiBinary):
    """A MultiBinary by another name."""


class OwnMultiDiscrete(spaces.MultiDiscrete):
    """A MultiDiscrete by another name."""


class OwnText(spaces.Text):
    """A Text by another name."""


PAIRS = {
    "box": (OwnBox(-1, 9, (2,)), spaces.Box(-1, 9, (2,))),
    "discrete": (OwnDiscrete(4, start=-1), spaces.Discrete(4, start=-1)),
    "multi_binary": (OwnMultiBinary(3), spaces.MultiBinary(3)),
    "multi_discrete": (OwnMultiDiscrete([3, 4]), spaces.MultiDiscrete([3, 4])),
    "text": (OwnText(5), spaces.Text(5)),
    "dict": (
        spaces.Dict(a=OwnBox(0, 1, (2,)), b=OwnDiscrete(3), c=OwnText(4)),
        spaces.Dict(a=spaces.Box(0, 1, (2,)), b=spaces.Discrete(3), c=spaces.Text(4)),
    ),
}
ARRAYS = ["box", "discrete", "multi_binary", "multi_discrete"]


class Samples(gymnasium.Env):
    """Shows elements of its space; an episode is three steps long."""

    def __init__(self, space):
        self.observation_space = self.action_space = space
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        return self.observe(), 1.0, self.steps == 3, False, {}

    def observe(self):
        self.observation_space.seed(int(self.np_random.integers(1000)))
        return self.observation_space.sample()


def vecwraps(space, **options):
    return build(partial(Samples, space), n=2, **{"backend": "dummy", **options})


def native(space):
    return wrap(SyncVectorEnv([partial(Samples, space)] * 2), [])


def played(env, actions):
    """All observations of a few steps; each is an element of the space the environment says."""
    with env:
        results = [env.reset(seed=1)[0], *(env.step(action)[0] for action in actions)]
        assert all(env.observation_space.contains(observations) for observations in results)
        return tuple(results)


def actions_of(space):
    batched = gymnasium.vector.utils.batch_space(space, 2)
    batched.seed(1)
    return [batched.sample() for _ in range(5)]


@pytest.mark.parametrize(
    "make", [vecwraps, partial(vecwraps, backend="shmem"), native], ids=["dummy", "shmem", "wrap"]
)
@pytest.mark.parametrize("kind", PAIRS)
def test_a_space_that_derives_from_gymnasiums_is_batched_as_that(make, kind):
    own, gymnasiums = PAIRS[kind]
    actions = actions_of(gymnasiums)
    assert_same(played(make(own), actions), played(make(gymnasiums), actions))


@pytest.mark.parametrize("wrapper", ["framestack:2", "scale_obs", "dtype:float64", "flatten"])
def test_wrappers_for_a_space_serve_those_that_derive_from_it(wrapper, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own, gymnasiums = PAIRS["box"]
    actions = actions_of(gymnasiums)
    expected = played(vecwraps(gymnasiums, wrappers=[wrapper]), actions)
    assert_same(played(vecwraps(own, wrappers=[wrapper]), actions), expected)


@pytest.mark.parametrize("kind", ARRAYS)
def test_actions_of_a_derived_space_are_one_array(kind):
    own, gymnasiums = PAIRS[kind]
    own.seed(1)
    actions = [own.sample() for _ in range(3)]
    assert_same(conform_actions(own, actions, 3), conform_actions(gymnasiums, actions, 3))


def test_text_of_a_derived_space_can_be_shared():
    assert isinstance(make_column(OwnText(5), 2, np.zeros), TextColumn)
