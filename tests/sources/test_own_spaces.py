"""An environment that samples its own spaces gives one stream for one seed, on every backend."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import vecwrap
from vecwrap.rows.step_result import Autoreset
from vecwrap.sources.own_spaces import load_space_states, space_states
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

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        """Remembers nothing but what its spaces do."""


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

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        """Remembers nothing but what its space does."""

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


# -- states -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("backend", "through_a_file"), [("dummy", False), ("dummy", True), ("shmem", True)])
def test_what_was_saved_goes_on_drawing_bit_for_bit(kind, backend, through_a_file, tmp_path):
    with vecwrap.build(kind, n=3, backend=backend) as env, vecwrap.build(kind, n=3, backend="dummy") as other:
        env.reset(seed=0)
        other.reset(seed=99)
        for _ in range(3):
            env.step(env.action_space.sample())
            other.step(other.action_space.sample())
        if through_a_file:
            env.save(tmp_path / "state.npz")
            other.load(tmp_path / "state.npz")
        else:
            other.load_state_dict(env.state_dict())
        for _ in range(5):
            actions = env.action_space.sample()
            assert np.array_equal(env.step(actions)[0], other.step(actions)[0])
        assert np.array_equal(env.reset()[0], other.reset()[0])  # no seed: they go on where they were


def test_a_new_environment_goes_on_drawing_where_another_was_saved():
    with vecwrap.build(Samples, n=2, backend="dummy") as env, vecwrap.build(Samples, n=2, backend="dummy") as other:
        env.reset(seed=0)
        env.step([0, 0])
        other.load_state_dict(env.state_dict())
        assert np.array_equal(env.step([0, 0])[0], other.step([0, 0])[0])


def test_a_state_from_before_there_were_generators_in_it_is_loaded():
    with vecwrap.build(Samples, n=1, backend="dummy") as env:
        env.reset(seed=0)
        state = env.state_dict()
        del state["sub_envs"][0]["spaces"]
        env.load_state_dict(state)
        env.step([0])


ANY = [
    spaces.Dict({"a": spaces.Text(9), "b": spaces.Tuple([spaces.MultiBinary(9), spaces.MultiDiscrete([9, 9])])}),
    spaces.Sequence(spaces.Box(0, 1, (3,))),
    spaces.Sequence(spaces.Discrete(1000), stack=True),
    spaces.Graph(spaces.Box(0, 1, (2,)), spaces.Discrete(1000)),
    spaces.OneOf([spaces.Discrete(1000), spaces.Box(0, 1)]),
]


@pytest.mark.parametrize("space", ANY, ids=str)
def test_every_generator_in_a_space_is_in_its_state(space):
    env = Samples()
    env.action_space = space
    space.seed(3)
    state = space_states(env)
    drawn = [space.sample() for _ in range(9)]
    space.seed(4)
    load_space_states(env, state)
    assert repr([space.sample() for _ in range(9)]) == repr(drawn)


def test_a_state_of_other_spaces_is_refused():
    env, other = Samples(), Samples()
    env.action_space, other.action_space = spaces.Discrete(2), spaces.Tuple([spaces.Discrete(2)])
    with pytest.raises(ValueError, match="expected the generators of 3 spaces, got 2"):
        load_space_states(other, space_states(env))
