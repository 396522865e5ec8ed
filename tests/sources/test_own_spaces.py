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
        return np.array(
            [self.action_space.sample(), self.observation_space.sample()[0]], np.float32
        )

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
    action_space = spaces.Dict(
        {"a": spaces.Discrete(1000), "b": spaces.Tuple([spaces.Discrete(9)])}
    )

    def draw(self):
        drawn = self.action_space.sample()
        return np.array([drawn["a"], drawn["b"][0]], np.float32)


class MembersOfTheModule(Samples):
    """A Dict of its own, whose members are one space of the module."""

    def __init__(self):
        self.action_space = spaces.Dict({"a": OF_THE_MODULE, "b": OF_THE_MODULE})

    def draw(self):
        drawn = self.action_space.sample()
        return np.array([drawn["a"], drawn["b"]], np.float32)


class OtherNameOfTheClass(Samples):
    def __init__(self):
        self.moves = type(self).action_space

    def draw(self):
        return np.array([self.moves.sample(), 0], np.float32)


class SubclassOfBox(spaces.Box):
    def sample(self, mask=None, probability=None):
        return super().sample() * self.np_random.integers(2)


class CustomKind(Samples):
    action_space = SubclassOfBox(0, 1000, (1,), np.float32)

    def draw(self):
        return np.array([self.action_space.sample()[0], 0], np.float32)


class OneOfSeveral(Samples):
    action_space = spaces.OneOf((spaces.Discrete(1000), spaces.Sequence(spaces.Discrete(1000))))

    def draw(self):
        return np.array([np.sum(self.action_space.sample()[1]), 0], np.float32)


class OfAWrappersClass(gymnasium.Wrapper):
    action_space = spaces.Discrete(1000)

    def __init__(self):
        super().__init__(OfItsOwn())

    def step(self, action):
        observation, *rest = self.env.step(0)
        return observation + np.float32(self.action_space.sample()), *rest


class OfAWrappersModule(OfAWrappersClass):
    def __init__(self):
        super().__init__()
        self.action_space = OF_THE_MODULE


class HandedOn(OfAWrappersClass):
    """A wrapper that holds the space of what it wraps, as many do."""

    def __init__(self):
        gymnasium.Wrapper.__init__(self, Samples())
        self.action_space = self.env.action_space


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


KINDS = [
    *(
        Samples,
        OfTheModule,
        OfItsOwn,
        Nested,
        MembersOfTheModule,
        OtherNameOfTheClass,
        CustomKind,
        OneOfSeveral,
    ),
    *(Wrapped, OfAWrappersClass, OfAWrappersModule, HandedOn),
]


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
    assert stream(OfItsOwn, backend="dummy")[:3, 1, 0].tolist() == [
        float(space.sample()) for _ in range(3)
    ]


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


def test_what_was_one_space_stays_one():
    env = SubEnv(0, HandedOn, Autoreset.SAME_STEP).env
    assert env.action_space is env.unwrapped.action_space is not Samples.action_space
    made = [SubEnv(i, MembersOfTheModule, Autoreset.SAME_STEP).env for i in range(2)]
    assert all(env.action_space["a"] is env.action_space["b"] for env in made)
    assert made[0].action_space["a"] is not made[1].action_space["a"]


class NoEquality(spaces.Space):
    def __init__(self):
        super().__init__((), np.float64)

    def sample(self, mask=None, probability=None):
        return self.np_random.random()

    def contains(self, x):
        return True


def test_a_space_without_an_equality_stays_shared_so_that_all_have_the_same():
    class Custom(Samples):
        action_space = NoEquality()

        def draw(self):
            return np.array([self.action_space.sample(), 0], np.float32)

    first = stream(Custom, backend="dummy")
    assert np.array_equal(first, stream(Custom, backend="dummy"))


@pytest.mark.parametrize("wrapper", ["clip_action", "rescale_action"])
def test_wrappers_that_replace_the_action_space_leave_the_environments_own(wrapper):
    class Continuous(Samples):
        action_space = spaces.Box(-2, 2, (1,), np.float32)

        def draw(self):
            return np.array([self.action_space.sample()[0], 0], np.float32)

    seen = stream(Continuous, backend="dummy")
    for backend in ("dummy", "shmem", "subprocess"):
        assert np.array_equal(seen, stream(Continuous, wrappers=[wrapper], backend=backend))


def test_seeding_the_vectors_spaces_does_not_touch_the_sub_environments():
    def played(seed):
        with vecwrap.build(Samples, n=2, backend="dummy") as env:
            env.action_space.seed(seed)
            env.single_action_space.seed(seed)
            seen = [env.reset(seed=0)[0]]
            env.action_space.seed(seed)
            actions = env.action_space.sample()
            return actions, np.stack(
                [*seen, *(env.step(env.action_space.sample())[0] for _ in range(5))]
            )

    one, other = played(1), played(2)
    assert not np.array_equal(one[0], other[0])
    assert np.array_equal(one[1], other[1])
    assert np.array_equal(one[0], played(1)[0])


# -- states ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if not issubclass(kind, OfAWrappersClass)]
)  # without states
@pytest.mark.parametrize(
    ("backend", "through_a_file"), [("dummy", False), ("dummy", True), ("shmem", True)]
)
def test_what_was_saved_goes_on_drawing_bit_for_bit(kind, backend, through_a_file, tmp_path):
    with (
        vecwrap.build(kind, n=3, backend=backend) as env,
        vecwrap.build(kind, n=3, backend="dummy") as other,
    ):
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
        assert np.array_equal(
            env.reset()[0], other.reset()[0]
        )  # no seed: they go on where they were


def test_a_new_environment_goes_on_drawing_where_another_was_saved():
    with (
        vecwrap.build(Samples, n=2, backend="dummy") as env,
        vecwrap.build(Samples, n=2, backend="dummy") as other,
    ):
        env.reset(seed=0)
        env.step([0, 0])
        other.load_state_dict(env.state_dict())
        assert np.array_equal(env.step([0, 0])[0], other.step([0, 0])[0])


ANY = [
    spaces.Dict(
        {
            "a": spaces.Text(9),
            "b": spaces.Tuple([spaces.MultiBinary(9), spaces.MultiDiscrete([9, 9])]),
        }
    ),
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


class Watched(gymnasium.Env):
    """Notes looks at its own dict."""

    looks = 0

    def __init__(self):
        self.observation_space, self.action_space = (
            spaces.Box(-1, 1, (1,), np.float32),
            spaces.Discrete(2),
        )

    def __getattribute__(self, name):
        if name == "__dict__":
            Watched.looks += 1
        return super().__getattribute__(name)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, True, False, {}


def test_nobody_looks_at_the_dict_of_an_environment_whose_spaces_are_its_own():
    """CPython 3.11 and 3.12 keep attributes in a dict, which is slower, once it was looked at."""
    Watched.looks = 0
    with vecwrap.build(Watched, n=2, backend="dummy", wrappers=["monitor"]) as env:
        env.reset(seed=1)
        env.step([0, 1])
    assert Watched.looks == 0
