"""The state of one sub-environment: nothing that the next step depends on is left out without a
word.
"""

import time
from functools import partial

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces, wrappers

from tests.helpers.backends import DummyBackend
from vecwrap.sources.saving import CannotSaveError, env_state, load_env_state

gymnasium.register_envs(ale_py)


class Walk(gymnasium.Env):
    """A random walk that offers its state."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}
    render_mode = "rgb_array"
    place = 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0.0
        return self.shown(), {}

    def step(self, action):
        self.place += float(self.np_random.normal()) + float(action)
        return self.shown(), self.place, bool(self.np_random.random() < 0.1), False, {}

    def shown(self):
        return np.array([self.place, 1.0], np.float32)

    def render(self):
        return np.full((4, 4, 3), 9, np.uint8)

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


class Remembering(wrappers.TransformReward):
    """Stands for a wrapper of Gymnasium's with state that is no data."""

    __module__ = "gymnasium.wrappers"

    def __init__(self, env, memory):
        super().__init__(env, abs)
        self.kept = memory


ALL = {
    "stack": partial(wrappers.FrameStackObservation, stack_size=3),
    "stack, zero": partial(wrappers.FrameStackObservation, stack_size=3, padding_type="zero"),
    "delay": partial(wrappers.DelayObservation, delay=2),
    "observations": wrappers.NormalizeObservation,
    "rewards": wrappers.NormalizeReward,
    "time": lambda env: wrappers.TimeAwareObservation(wrappers.TimeLimit(env, 30)),
    "sticky": partial(wrappers.StickyAction, repeat_action_probability=0.5),
    "skip": partial(wrappers.MaxAndSkipObservation, skip=2),
    "statistics": wrappers.RecordEpisodeStatistics,
    "limit": partial(wrappers.TimeLimit, max_episode_steps=30),
    "order": wrappers.OrderEnforcing,
    "checker": wrappers.PassiveEnvChecker,
    "autoreset": wrappers.Autoreset,
    "dtype": partial(wrappers.DtypeObservation, dtype=np.float64),
    "flat": wrappers.FlattenObservation,
    "function": partial(wrappers.TransformObservation, func=np.sign, observation_space=None),
    "frames": wrappers.RenderCollection,
    "pixels": wrappers.AddRenderObservation,
    "two": lambda env: wrappers.FrameStackObservation(wrappers.NormalizeObservation(env), 2),
}
if hasattr(wrappers, "RepeatAction"):  # the oldest version that is supported has neither
    ALL["repeated"] = partial(wrappers.RepeatAction, num_repeats=2)
    ALL["noise"] = lambda env: wrappers.AddWhiteNoise(env, 0.1)


def run(env, actions):
    """Step through actions, resetting what ended; give all that came."""
    came = []
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        info.get("episode", {}).pop("t", None)
        came.append((observation.tobytes(), float(reward), terminated, truncated, str(info)))
        if terminated or truncated:
            came.append(env.reset()[0].tobytes())
    return came


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("wrapper", ALL.values(), ids=list(ALL))
def test_going_on_within_every_wrapper_of_gymnasiums(wrapper):
    actions = np.random.default_rng(0).integers(0, 2, 60).tolist()
    env, other = wrapper(Walk()), wrapper(Walk())
    env.reset(seed=3)
    other.reset()
    run(env, actions[:25])
    state = env_state(env)
    expected = run(env, actions[25:])
    load_env_state(other, state)
    assert run(other, actions[25:]) == expected
    load_env_state(env, state)
    assert run(env, actions[25:]) == expected, "nothing that was saved has moved on"


def test_going_on_within_gymnasiums_atari_wrappers(tmp_path):
    def make():
        game = gymnasium.make("BreakoutNoFrameskip-v4", max_episode_steps=400)
        return wrappers.FrameStackObservation(wrappers.AtariPreprocessing(game), 4)

    actions = np.random.default_rng(0).integers(0, 4, (60, 1))
    with DummyBackend([make]) as env:
        env.reset(seed=3)
        for action in actions[:30]:
            env.step(action)
        env.save(tmp_path / "state.npz")
        expected = [env.step(action)[0] for action in actions[30:]]
    with DummyBackend([make]) as env:
        env.load(tmp_path / "state.npz")
        for action, observations in zip(actions[30:], expected, strict=True):
            np.testing.assert_array_equal(env.step(action)[0], observations)


def test_what_cannot_be_saved_and_may_be_state_is_named():
    env = Remembering(Walk(), memory=object())
    with pytest.raises(
        CannotSaveError, match=r"the wrapper Remembering .* its attribute kept is of type object"
    ):
        env_state(env)
    env = Remembering(Walk(), memory=[{"a": (1, object())}])
    with pytest.raises(CannotSaveError, match="its attribute kept is of type list"):
        env_state(env)
    env_state(Remembering(Walk(), memory=[{"a": (1, np.float32(2))}]))


def test_what_a_wrapper_was_given_is_its_own():
    env, other = wrappers.TimeLimit(Walk(), 30), wrappers.TimeLimit(Walk(), 5)
    env.reset(seed=3)
    env.step(0)
    env.step(0)
    other.reset()
    load_env_state(other, env_state(env))
    assert [other.step(0)[3] for _ in range(3)] == [False, False, True]


def test_an_episode_takes_the_time_before_the_save_and_after_the_load(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    env, other = (wrappers.RecordEpisodeStatistics(wrappers.TimeLimit(Walk(), 2)) for _ in range(2))
    env.reset(seed=3)
    other.reset()
    now[0] = 102.0
    env.step(0)
    state = env_state(env)
    now[0] = 7.0  # another process's clock
    load_env_state(other, state)
    now[0] = 8.0
    assert other.step(0)[4]["episode"]["t"] == 3.0


@pytest.mark.parametrize("name", ["_max_episode_steps", "step", "unwrapped", "env"])
def test_a_state_sets_nothing_that_a_wrapper_does_not_remember(name):
    env = wrappers.TimeLimit(Walk(), 5)
    env.reset(seed=3)
    states = env_state(env)
    states[0]["state"]["attributes"][name] = 10**6
    with pytest.raises(
        ValueError,
        match=f"what TimeLimit remembers, got its attribute {name}, which it is made with",
    ):
        load_env_state(env, states)
    assert [env.step(0)[3] for _ in range(5)] == [False] * 4 + [True]
