"""`recreate_every`: environments are made anew between two episodes, on every backend, and nothing
else changes.
"""

from functools import partial

import gymnasium
import numpy as np
import pytest

import vecwrap
from tests.helpers.multi_agent_games import Party, Turns
from vecwrap.errors import CheckpointError, PlanError
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.rows.compare import assert_same
from vecwrap.testing import toy


class Leaky(gymnasium.Env):
    """Knows how many episodes this very object has begun; an episode has three steps."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    made = 0
    closed = 0
    bonus = 0.0

    def __init__(self):
        type(self).made += 1
        self.episodes = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episodes += 1
        self.time = 0
        return self._see(), {"seed": -1 if seed is None else seed}

    def step(self, action):
        self.time += 1
        return self._see(), self.bonus, self.time == 3, False, {}

    def _see(self):
        return np.array([self.episodes, self.np_random.random()], np.float32)

    def close(self):
        type(self).closed += 1


BACKENDS = [
    "dummy",
    {"name": "subprocess", "workers": 2},
    {"name": "shmem", "workers": 1, "parent_share": True},
    "threads",
]


@pytest.mark.parametrize("backend", BACKENDS, ids=["dummy", "subprocess", "shmem", "threads"])
@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled", "episodic"])
def test_every_second_episode_begins_in_a_new_environment_on_every_backend_and_in_every_mode(
    backend, mode
):
    seen = []
    with vecwrap.build(Leaky, n=2, backend=backend, autoreset=mode, recreate_every=2) as env:
        observations, infos = env.reset(seed=5)
        seen.append((observations[0].tolist(), infos["seed"].tolist()))
        while len(seen) < 6:
            observations, _, terminations, _, infos = env.step([0, 0])
            if mode in ("disabled", "episodic") and terminations.all():
                observations, infos = env.reset(options={"reset_mask": np.array([True, True])})
            if "seed" in infos:
                seen.append((observations[0].tolist(), infos["seed"].tolist()))
    assert [int(one[0]) for one, _ in seen] == [1, 2, 1, 2, 1, 2]
    derived = [
        [int(np.random.SeedSequence([5 + i, k]).generate_state(1)[0]) for i in (0, 1)] for k in (1,)
    ]
    assert [seeds for _, seeds in seen][:4] == [[5, 6], [-1, -1], derived[0], [-1, -1]]


def test_with_a_seed_for_each_episode_the_stream_is_the_one_without():
    streams = []
    for every in (None, 1):
        settings = {
            "wrappers": [{"seed_each_episode": {"seeds": [3, 4, 5, 6, 7, 8]}}],
            "backend": "dummy",
        }
        with vecwrap.build(toy(end=0.3), n=2, recreate_every=every, **settings) as env:
            streams.append([env.reset(seed=1), *(env.step([0, 1]) for _ in range(40))])
    assert_same(*streams)


def test_attributes_that_were_set_are_those_of_the_new_one_and_the_old_one_is_closed():
    Leaky.made = Leaky.closed = 0
    with vecwrap.build(Leaky, n=2, backend="dummy", recreate_every=1) as env:
        env.reset(seed=1)
        env.set_attr("bonus", [1.0, 2.0])
        for _ in range(7):
            rewards = env.step([0, 0])[1]
        assert rewards.tolist() == [1, 2]
        assert Leaky.made >= 2 + 2 * 2
        assert Leaky.made - Leaky.closed == 2
    assert Leaky.made == Leaky.closed


def test_a_saved_state_goes_on_as_it_would_have():
    build = partial(vecwrap.build, toy(end=0.3), n=2, backend="dummy", recreate_every=2, seed=3)
    with build() as env, build() as other:
        env.reset()
        for _ in range(20):
            env.step([0, 1])
        other.load_state_dict(env.state_dict())
        for _ in range(30):
            assert_same(env.step([0, 1]), other.step([0, 1]))


def test_what_was_set_before_a_save_is_set_on_what_is_made_anew_after_the_load():
    build = partial(vecwrap.build, toy(end=0.5), n=2, backend="dummy", recreate_every=1, seed=3)
    with build() as env, build() as other:
        env.reset()
        env.set_attr("bonus", [5.0, 7.0])
        other.load_state_dict(env.state_dict())
        for _ in range(20):
            assert_same(env.step([0, 1]), other.step([0, 1]))
        assert other.get_attr("bonus") == (5.0, 7.0)


def test_a_saved_state_that_would_set_a_dunder_is_refused():
    with vecwrap.build(toy(), n=1, backend="dummy", recreate_every=1, seed=3) as env:
        env.reset()
        state = env.state_dict()
        state["sub_envs"][0]["renewal"]["attributes"] = {"__class__": 1}
        with pytest.raises(CheckpointError):
            env.load_state_dict(state)


@pytest.mark.parametrize("game", [Turns, Party])
def test_games_too(game):
    made = []

    class Counted(game):
        resets = 0

        def reset(self, seed=None, options=None):
            self.resets += 1
            return super().reset(seed=seed, options=options)

    def make():
        made.append(Counted())
        return made[-1]

    with vecwrap.build(make, n=1, backend="dummy", recreate_every=2) as env:
        env.reset(seed=1)
        for _ in range(100):
            env.step(env.action_space.sample())
    begun = [one.resets for one in made if one.resets]
    assert len(begun) > 3
    assert begun[:-1] == [2] * (len(begun) - 1)


def spec_of(recreate_every, **settings):
    backend = {"name": "dummy", "recreate_every": recreate_every}
    return plan(
        PipelineSpec("CartPole-v1", n=2, backend=backend, autoreset="next_step", **settings)
    ).pipeline


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"recreate_every": 0},
            "recreate_every: expected at least 1 episode, or null for never, got 0",
        ),
        ({"recreate_every": 2, "envs_per_engine": 2}, "an engine is not recreated"),
    ],
)
def test_what_makes_no_sense_is_refused_in_the_plan(settings, said):
    with pytest.raises(PlanError, match=said):
        spec_of(**settings)


def test_it_is_part_of_the_hash_for_new_environments_have_other_seeds():
    hashes = {spec_of(recreate_every=k).hash for k in (None, 1, 2)}
    assert len(hashes) == 3
