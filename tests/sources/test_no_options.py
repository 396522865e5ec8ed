"""A ``reset`` that takes a seed but no options is reset without, wherever in the chain it is."""

import gymnasium
import numpy as np
import pytest

import vecwrap
from vecwrap.errors import SubEnvError
from vecwrap.testing import assert_same


class Seeded(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None):
        super().reset(seed=seed)
        self.time = 0
        return self.draw(), {}

    def step(self, action):
        self.time += 1
        return self.draw(), 1.0, self.time == 4, False, {}

    def draw(self):
        return self.np_random.random(2, np.float32)


class WithOptions(Seeded):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed)


class Around(gymnasium.Wrapper):
    def reset(self, seed=None):
        return self.env.reset(seed=seed)


class Inside:
    """Makes one that is inside of wrappers when it arrives."""

    def __init__(self, kind):
        self.kind = kind

    def __call__(self):
        return gymnasium.wrappers.OrderEnforcing(self.kind())


def stream(target, **settings):
    with vecwrap.build(target, n=2, **settings) as env:
        rows = [env.reset(seed=3)[0]]
        rows += [env.step([0, 1])[:4] for _ in range(10)]
        rows.append(env.reset(options={"reset_mask": np.array([True, False])})[0])
    return rows


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
@pytest.mark.parametrize("backend", ["dummy", "shmem", "subprocess"])
def test_its_stream_is_that_of_one_with_options(backend, mode):
    expected = stream(WithOptions, backend="dummy", autoreset=mode)
    for target, wrappers in (
        (Seeded, []),
        (Seeded, ["time_limit:9"]),
        (Inside(Seeded), []),
        (Inside(WithOptions), [Around]),
        (Inside(Seeded), [Around, "time_limit:9", "monitor"]),
    ):
        assert_same(stream(target, wrappers=wrappers, backend=backend, autoreset=mode), expected)


def test_options_that_it_is_given_are_refused_by_name():
    with vecwrap.build(Seeded, n=1, backend="dummy") as env:
        with pytest.raises(
            SubEnvError,
            match=r"reset: Seeded.reset takes no options, got .*; add options=None to it",
        ):
            env.reset(options={"level": 1})
        env.reset(seed=1)
