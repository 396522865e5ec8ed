"""Any ``gymnasium.Wrapper``, and anything that wraps, is a wrapper: by import path, class, partial,
callable or name.

The reference is a loop over single environments that were wrapped by hand, on every backend.
"""

import functools
import operator
import threading

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers as gw

import vecwrap
from tests.helpers.stream_envs import assert_same
from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import PlanError, SpecError

BACKENDS = pytest.mark.parametrize("backend", ["dummy", "subprocess", "shmem"])
STEPS, LIMIT = 25, 9


def make(id):
    return gymnasium.make(id, max_episode_steps=LIMIT)


def naive(id, wrap, n=2, seed=3):
    """Rows of a loop over single environments, each reset in the step in which it ends."""
    envs = [wrap(make(id)) for _ in range(n)]
    first = [env.reset(seed=seed + i)[0] for i, env in enumerate(envs)]
    envs[0].action_space.seed(4)
    rows = [(np.stack(first),)]
    actions = []
    for _ in range(STEPS):
        batch = [envs[0].action_space.sample() for _ in envs]
        results = [env.step(action) for env, action in zip(envs, batch, strict=True)]
        shown = [
            env.reset()[0] if terminated or truncated else observation
            for env, (observation, _, terminated, truncated, _) in zip(envs, results, strict=True)
        ]
        _, rewards, terminations, truncations, _ = zip(*results, strict=True)
        rows.append(
            (
                np.stack(shown),
                np.array(rewards, float),
                np.array(terminations),
                np.array(truncations),
            )
        )
        actions.append(np.array(batch))
    for env in envs:
        env.close()
    return actions, rows


def check(id, wrappers, wrap, backend, **settings):
    """The pipeline gives what the loop gives."""
    actions, expected = naive(id, wrap)
    keywords = {"max_episode_steps": LIMIT}
    with vecwrap.build(id, 2, wrappers, backend=backend, env_kwargs=keywords, **settings) as env:
        rows = [(env.reset(seed=3)[0],), *(env.step(batch)[:4] for batch in actions)]
    for row, other in zip(rows, expected, strict=True):
        assert_same(row, other)
    assert sum(row[2].sum() + row[3].sum() for row in rows[1:]) >= 4


class Scale(gymnasium.ObservationWrapper):
    """A class of this module."""

    def __init__(self, env, factor=2.0):
        super().__init__(env)
        self.factor = factor
        box = env.observation_space
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, box.shape, box.dtype.type)

    def observation(self, observation):
        return (observation * self.factor).astype(self.observation_space.dtype)


def scaled(env, factor=2.0):
    """A function that wraps."""
    return Scale(env, factor)


def twice(env):
    """A function that wraps more than once."""
    return Scale(Scale(env, 3.0), factor=0.5)


def local_class():
    class Local(Scale):
        pass

    return Local


class Wrapping:
    """An object that wraps."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, env):
        return Scale(env, self.factor)


FORMS = {
    "class": ([Scale], Scale),
    "class with arguments in a mapping": (
        [{f"{__name__}:Scale": {"factor": 3}}],
        functools.partial(Scale, factor=3.0),
    ),
    "import path with arguments": ([f"{__name__}:Scale:3"], functools.partial(Scale, factor=3.0)),
    "partial": ([functools.partial(Scale, factor=3.0)], functools.partial(Scale, factor=3.0)),
    "function": ([scaled], scaled),
    "function by import path": (
        [f"{__name__}:scaled:factor=4"],
        functools.partial(scaled, factor=4.0),
    ),
    "lambda": ([lambda env: Scale(env, 5.0)], lambda env: Scale(env, 5.0)),
    "class of a function": ([local_class()], Scale),
    "object that wraps": ([Wrapping(6.0)], Wrapping(6.0)),
    "several wrappers in one": ([twice], twice),
    "one after the other": (
        [Scale, functools.partial(gw.TimeLimit, max_episode_steps=5), "time_limit:7"],
        lambda env: gw.TimeLimit(Scale(env), 5),
    ),
    "a wrapper that adds a space": (
        ["gymnasium.wrappers:TimeAwareObservation"],
        gw.TimeAwareObservation,
    ),
}


@BACKENDS
@pytest.mark.parametrize("form", FORMS)
def test_a_wrapper_of_the_sub_environments_in_any_form(form, backend):
    wrappers, wrap = FORMS[form]
    check("CartPole-v1", wrappers, wrap, backend)


def negative(reward):
    return -reward


GYMNASIUM = {
    "ClipReward": ("CartPole-v1", {"min_reward": -0.5, "max_reward": 0.5}),
    "DelayObservation": ("CartPole-v1", {"delay": 2}),
    "DtypeObservation": ("CartPole-v1", {"dtype": np.float64}),
    "FlattenObservation": ("CartPole-v1", {}),
    "FrameStackObservation": ("CartPole-v1", {"stack_size": 3}),
    "MaxAndSkipObservation": ("CartPole-v1", {"skip": 2}),
    "NormalizeObservation": ("Pendulum-v1", {}),
    "NormalizeReward": ("Pendulum-v1", {"gamma": 0.9}),
    "RecordEpisodeStatistics": ("CartPole-v1", {}),
    "RescaleAction": ("Pendulum-v1", {"min_action": -1.0, "max_action": 1.0}),
    "RescaleObservation": ("MountainCar-v0", {"min_obs": 0, "max_obs": 1.0}),
    "StickyAction": ("CartPole-v1", {"repeat_action_probability": 0.4}),
    "TimeAwareObservation": ("CartPole-v1", {}),
    "TransformReward": ("CartPole-v1", {"func": negative}),
}


@pytest.mark.parametrize("backend", ["dummy", "shmem"])
@pytest.mark.parametrize("name", GYMNASIUM)
@pytest.mark.filterwarnings(
    "ignore:.*precision lowered by casting"
)  # Gymnasium's own, of Python's floats as bounds
def test_gymnasiums_own_wrappers_by_import_path_give_what_they_give_by_hand(name, backend):
    env_id, arguments = GYMNASIUM[name]
    wrapper = (
        {f"gymnasium.wrappers:{name}": arguments} if arguments else f"gymnasium.wrappers:{name}"
    )
    check(env_id, [wrapper], functools.partial(getattr(gw, name), **arguments), backend)


@BACKENDS
def test_a_wrapper_under_a_name_of_ones_own(backend):
    vecwrap.pipeline.registry.register_wrapper("scale_of_mine", Scale)
    try:
        check("CartPole-v1", ["scale_of_mine:3"], functools.partial(Scale, factor=3.0), backend)
    finally:
        vecwrap.pipeline.registry.wrappers.unregister("scale_of_mine")


# -- wrappers of the vector ------------------------------------------------------------------------


class Negate(VecEnvWrapper):
    """A vector wrapper of this module."""

    def __init__(self, env, factor: float = -1.0):
        super().__init__(env)
        self.factor = factor

    def on_step(self, step):
        step.rewards = step.rewards * self.factor


def negated(env: VecEnv) -> VecEnv:
    return Negate(env, -2.0)


VECTOR = {
    "class": ([Negate], -1.0),
    "partial": ([functools.partial(Negate, factor=-3.0)], -3.0),
    "import path": ([f"{__name__}:Negate:-4"], -4.0),
    "mapping": ([{f"{__name__}:Negate": {"factor": -5}}], -5.0),
    "function whose argument says that it is a vector": ([negated], -2.0),
    "outside of one of the sub-environments": (
        [Scale, Negate, functools.partial(Negate, factor=3.0)],
        -3.0,
    ),
}


@BACKENDS
@pytest.mark.parametrize("form", VECTOR)
def test_a_wrapper_of_the_vector_in_any_form(form, backend):
    wrappers, factor = VECTOR[form]

    def wrap(env):
        return gw.TransformReward(
            Scale(env) if Scale in wrappers else env, functools.partial(operator.mul, factor)
        )

    check("CartPole-v1", wrappers, wrap, backend)


class Forgetful(VecEnvWrapper):
    """Does not call the ``__init__`` that keeps what it wraps."""

    def __init__(self, env):
        self.seen = env.num_envs


# -- what cannot be one ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrapper", "error", "message"),
    [
        (
            gymnasium.Env,
            PlanError,
            "expected a gymnasium.Wrapper (for each sub-environment), a vecwrap.VecEnvWrapper",
        ),
        (
            gw.vector.ClipReward,
            PlanError,
            'take "gymnasium.wrappers:ClipReward", which wraps each sub-environment',
        ),
        (lambda env: 3, PlanError, "expected a gymnasium.Env from it, got int"),
        (
            functools.partial(Scale, 3.0),
            SpecError,
            "the partial binds 3.0 where the environment goes. Bind by keyword",
        ),
        (
            functools.partial(Scale, factr=3.0),
            SpecError,
            'unknown argument. Did you mean "factor"?',
        ),
        (
            "gymnasium.wrappers:TimeLimt",
            SpecError,
            'gymnasium.wrappers has no TimeLimt. Did you mean "TimeLimit"?',
        ),
        (
            Forgetful,
            PlanError,
            "expected its __init__ to call super().__init__(env), which it does not.",
        ),
        (3, SpecError, "expected a wrapper (a name, a mapping of one key, or a callable), got 3"),
    ],
)
def test_what_cannot_be_a_wrapper_is_told(wrapper, error, message):
    with pytest.raises(error) as raised:
        vecwrap.build("CartPole-v1", 1, [wrapper], backend="dummy")
    assert "wrappers[0]" in str(raised.value)
    assert message in str(raised.value)


@pytest.mark.parametrize("backend", ["subprocess", "shmem"])
def test_a_wrapper_that_cannot_travel_is_named(backend):
    lock = threading.Lock()
    with pytest.raises(PlanError, match=r'^wrappers\[0\] "lambda": .*lock'):
        vecwrap.build(
            "CartPole-v1", 2, [lambda env: Scale(env, float(lock.locked()))], backend=backend
        )


class Loose(gymnasium.Wrapper):
    """Its defaults are not quite of the types that it names."""

    def __init__(
        self, env, limit: float = 1000, size: tuple[float, float] = (0, 1), name: str = 5000
    ):
        super().__init__(env)
        self.given = limit, size, name


@pytest.mark.parametrize("arguments", ["", "1000", "1000.0,name=5000"])
def test_a_wrapper_whose_defaults_are_not_quite_of_their_types_is_rebuilt_from_its_file(arguments):
    with vecwrap.build("CartPole-v1", n=1, wrappers=[f"{__name__}:Loose:"], backend="dummy") as env:
        hashed, given = env.pipeline.hash, env.get_attr("given")
    with vecwrap.build(
        "CartPole-v1", n=1, wrappers=[f"{__name__}:Loose:{arguments}"], backend="dummy"
    ) as env:
        text = env.pipeline.to_yaml()
        assert env.pipeline.hash == hashed
    with vecwrap.build(vecwrap.PipelineSpec.from_yaml(text)) as env:
        assert env.pipeline.hash == hashed
        assert repr(env.get_attr("given")) == repr(given)
