"""An environment that samples its own spaces gives one stream for one seed, on every backend."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import vecwrap
from vecwrap.rows.step_result import Autoreset
from vecwrap.sources.sub_env import SubEnv

OF_THE_MODULE = spaces.Discrete(1000)


class Samples(gymnasium.Env):
    """Returns what it draws from its own spaces."""

    action_space = spaces.Discrete(1000)
    observation_space = spaces.Box(0, 1000, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.draw(), {}

    def step(self, action):
        return self.draw(), 0.0, False, False, {}

    def draw(self):
        return np.array([self.action_space.sample(), self.observation_space.sample()[0]], np.float32)


class OfTheModule(Samples):
    def __init__(self):
        self.action_space = OF_THE_MODULE


class OfItsOwn(Samples):
    def __init__(self):
        self.action_space = spaces.Discrete(1000)
        self.moves = self.action_space  # another name for it, which must stay one

    def draw(self):
        return np.array([self.moves.sample(), self.observation_space.sample()[0]], np.float32)


class Nested(Samples):
    action_space = spaces.Dict({"a": spaces.Discrete(1000), "b": spaces.Tuple([spaces.Discrete(9)])})

    def draw(self):
        drawn = self.action_space.sample()
        return np.array([drawn["a"], drawn["b"][0]], np.float32)


class Wrapped(gymnasium.Wrapper):
    """Has a space of its own, and draws from it."""

    def __init__(self):
        super().__init__(Samples())
        self.action_space = spaces.Discrete(1000)

    def step(self, action):
        observation, *rest = self.env.step(0)
        return observation + np.float32(self.action_space.sample()), *rest


KINDS = [Samples, OfTheModule, OfItsOwn, Nested, Wrapped]


def stream(kind, **options):
    with vecwrap.build(kind, n=4, **options) as env:
        seen = [env.reset(seed=0)[0]]
        seen += [env.step(env.action_space.sample())[0] for _ in range(5)]
        seen.append(env.reset(seed=[7, 7, 8, 8])[0])
        return np.stack(seen)


@pytest.mark.parametrize("kind", KINDS)
def test_one_seed_one_stream_wherever_it_runs(kind):
    first = stream(kind, backend="dummy")
    assert np.array_equal(first, stream(kind, backend="dummy"))
    for options in ({"backend": "shmem", "workers": 2}, {"backend": "subprocess", "workers": 4}):
        assert np.array_equal(first, stream(kind, **options))


@pytest.mark.parametrize("kind", KINDS)
def test_sub_environments_draw_from_generators_of_their_own(kind):
    seen = stream(kind, backend="dummy")
    assert not np.array_equal(seen[1, 0], seen[1, 1])
    assert np.array_equal(seen[-1, 0], seen[-1, 1])  # seeded alike
    assert not np.array_equal(seen[-1, 0], seen[-1, 2])


def test_it_draws_as_from_spaces_seeded_with_its_own_seed():
    space = spaces.Discrete(1000)
    space.seed(1)  # of sub-environment 1 under reset(seed=0)
    assert stream(OfItsOwn, backend="dummy")[:3, 1, 0].tolist() == [float(space.sample()) for _ in range(3)]


def test_the_class_keeps_its_spaces_unseeded():
    stream(Samples, backend="dummy")
    assert Samples.action_space._np_random is None


def test_a_property_is_left_alone():
    class Computed(Samples):
        @property
        def action_space(self):
            return spaces.Discrete(3)

        def draw(self):
            return np.zeros(2, np.float32)

    SubEnv(0, Computed, Autoreset.SAME_STEP)


def test_bounds_are_shared_with_the_space_of_the_class_and_generators_are_not():
    env = SubEnv(0, Samples, Autoreset.SAME_STEP).env
    assert env.observation_space == Samples.observation_space
    assert env.observation_space.low is Samples.observation_space.low
    nested = SubEnv(0, Nested, Autoreset.SAME_STEP).env.action_space
    assert nested == Nested.action_space
    assert nested["a"] is not Nested.action_space["a"]
