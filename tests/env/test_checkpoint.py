"""Saving and loading a chain: going on after a load equals never having stopped, bit for bit."""

import contextlib
import itertools
import os
import signal
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from enum import IntEnum
from functools import partial
from pathlib import Path

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import GraphInstance
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tests.helpers.backends import DummyBackend, ShmemBackend, SubprocessBackend
from tests.helpers.polling import gone
from vecwrap.env.state_file import read_state, write_state
from vecwrap.errors import CheckpointError, PlanError, ResetNeededError, SubEnvError
from vecwrap.sources.source_factories import SubEnvFactory
from vecwrap.testing import assert_same
from vecwrap.wrappers.atari import Atari
from vecwrap.wrappers.framestack import FrameStack
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.normalize_obs import NormalizeObs
from vecwrap.wrappers.normalize_reward import NormalizeReward
from vecwrap.wrappers.seed_each_episode import SeedEachEpisode
from vecwrap.wrappers.terminal_obs import TerminalObs
from vecwrap.wrappers.time_aware import TimeAware

gymnasium.register_envs(ale_py)
BREAKOUT = gymnasium.spec("BreakoutNoFrameskip-v4")
atari = SubEnvFactory(lambda: gymnasium.make(BREAKOUT, max_episode_steps=400), (Atari,))


class Walk(gymnasium.Env):
    """A random walk that offers its state."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0.0
        return np.array([self.place]), {}

    def step(self, action):
        self.place += float(self.np_random.normal()) + float(action)
        return (
            np.array([self.place]),
            self.place,
            bool(self.np_random.random() < 0.1),
            False,
            {"place": self.place},
        )

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


class Drawn(gymnasium.Env):
    """Shows a number that each reset draws, and its steps; an action lets it raise."""

    observation_space = gymnasium.spaces.Box(0, 1000, (2,), np.int64)
    action_space = gymnasium.spaces.Discrete(4)
    FAILS, DIES = 2, 3
    state = (0, 0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = (int(self.np_random.integers(1000)), 0)
        return np.array(self.state), {}

    def step(self, action):
        if action == self.FAILS:
            raise RuntimeError("boom")
        if action == self.DIES:
            os._exit(3)
        self.state = (self.state[0], self.state[1] + 1)
        return np.array(self.state), 1.0, False, self.state[1] == 5, {}

    def state_dict(self):
        return {"state": self.state}

    def load_state_dict(self, state):
        self.state = state["state"]


class Level(Walk):
    """Needs options at every reset; its state leaves out what they say."""

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        self.level = options["level"]
        return observation + self.level, info

    def step(self, action):
        observation, *others = super().step(action)
        return observation + self.level, *others


class TwoLives(gymnasium.Wrapper):
    """Ends an episode amid a game every third step; the reset that follows goes on in the game,
    without options.
    """

    game_goes_on = False
    steps = 0

    def reset(self, *, seed=None, options=None):
        if self.game_goes_on and seed is None:
            self.game_goes_on = False
            return np.array([-1.0]), {}
        self.game_goes_on, self.steps = False, 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        self.game_goes_on = not terminated and self.steps % 3 == 0
        return observation, reward, terminated or self.game_goes_on, truncated, info

    def state_dict(self):
        return {"goes_on": self.game_goes_on, "steps": self.steps}

    def load_state_dict(self, state):
        self.game_goes_on, self.steps = state["goes_on"], state["steps"]


def chain(backend, factory, mode, k=3):
    return Monitor(FrameStack(backend([factory] * 3, autoreset=mode), k))


def run(env, actions):
    """Step through actions, resetting what ended where the mode does not; give all that came, as
    text.
    """
    came = []
    for action in actions:
        observations, rewards, terminations, truncations, infos = env.step(action)
        times = infos.get("episode", {}).pop("t", None)
        assert times is None or times.shape == (3,)
        infos.pop("_t", None)
        came.append(
            (
                observations.tobytes(),
                rewards.tobytes(),
                terminations.tobytes(),
                truncations.tobytes(),
                str(infos),
            )
        )
        dones = terminations | truncations
        if env.core.autoreset.value == "disabled" and dones.any():
            came.append(env.reset(options={"reset_mask": dones})[0].tobytes())
    return came


GAMES_OF_ATARI = [("same_step", ShmemBackend, atari)]


@pytest.mark.parametrize(
    ("mode", "backend", "factory"),
    [
        pytest.param(
            *case, marks=() if case[2] is Walk or case in GAMES_OF_ATARI else pytest.mark.full
        )
        for case in itertools.product(
            ["same_step", "next_step", "disabled", "episodic"],
            [DummyBackend, SubprocessBackend, ShmemBackend],
            [atari, Walk],
        )
    ],
)
def test_going_on_after_a_load_equals_never_having_stopped(tmp_path, backend, mode, factory):
    actions = np.random.default_rng(0).integers(0, 2, (160, 3))
    with chain(DummyBackend, factory, mode) as env:
        env.reset(seed=3)
        run(env, actions[:60])
        env.save(tmp_path / "state.npz")
        expected = run(env, actions[60:])
    with chain(backend, factory, mode) as env:
        env.load(tmp_path / "state.npz")
        assert run(env, actions[60:]) == expected


@pytest.mark.parametrize("wrappers", [(), (TwoLives,)], ids=["", "lives"])
@pytest.mark.parametrize(
    "seeds", [None, [(k, {"level": k}) for k in range(5)]], ids=["", "scheduled"]
)
@pytest.mark.parametrize("backend", [DummyBackend, SubprocessBackend, ShmemBackend])
def test_what_needs_options_is_loaded_with_those_of_its_last_reset(
    tmp_path, backend, seeds, wrappers
):
    def make(backend):
        env = backend([SubEnvFactory(Level, wrappers)] * 3, autoreset="disabled")
        return env if seeds is None else SeedEachEpisode(env, seeds)

    def step(env):
        observations, _, terminations, *_ = env.step([0, 1, 0])
        if terminations.any():
            env.reset(options={"reset_mask": terminations, "level": 7})
        return observations.tolist()

    options = {"level": 5} if seeds is None else None
    with make(DummyBackend) as env, make(backend) as other, make(backend) as third:
        env.reset(seed=3 if seeds is None else None, options=options)
        for _ in range(4):
            step(env)
        env.save(tmp_path / "state.npz")
        other.load(tmp_path / "state.npz")
        other.save(tmp_path / "again.npz")
        third.load(tmp_path / "again.npz")
        for _ in range(20):
            assert step(env) == step(other) == step(third)


def test_options_that_no_file_can_hold_are_left_out_of_a_state(tmp_path):
    with DummyBackend([Walk] * 2) as env, DummyBackend([Walk] * 2) as other:
        env.reset(seed=1, options={"tool": object()})
        env.save(tmp_path / "state.npz")
        other.load(tmp_path / "state.npz")
        assert env.step([0, 1])[0].tolist() == other.step([0, 1])[0].tolist()


def test_options_in_a_state_are_those_the_reset_was_given_not_what_the_environment_made_of_them():
    class Scribbles(Level):
        def reset(self, *, seed=None, options=None):
            result = super().reset(seed=seed, options=options)
            del options["level"]
            return result

    with DummyBackend([Scribbles]) as env, DummyBackend([Scribbles]) as other:
        env.reset(seed=1, options={"level": 3})
        other.load_state_dict(env.state_dict())
        other.load_state_dict(other.state_dict())
        assert env.step([0])[0].tolist() == other.step([0])[0].tolist()


def test_what_was_frozen_stays_frozen():
    with chain(DummyBackend, Walk, "same_step") as env:
        env.reset(seed=1)
        state = env.eval().state_dict()
    with chain(DummyBackend, Walk, "same_step") as env:
        env.load_state_dict(state)
        assert not env.training


def test_a_masked_reset_after_a_load_shows_what_was_last_shown(tmp_path):
    mask = np.array([False, True, False])
    with chain(DummyBackend, Walk, "disabled") as env:
        env.reset(seed=3)
        shown = env.step([0, 1, 1])[0]
        env.save(tmp_path / "state.npz")
    with chain(SubprocessBackend, Walk, "disabled") as env:
        env.load(tmp_path / "state.npz")
        observations, _ = env.reset(options={"reset_mask": mask})
        np.testing.assert_array_equal(observations[[0, 2]], shown[[0, 2]])
        assert (observations[1] == 0).all()


@pytest.mark.parametrize("first", [None, 7], ids=["used", "left"])
def test_the_seed_of_build_is_used_once_over_all(first):
    mask = {"reset_mask": np.array([False, True, False])}
    with (
        DummyBackend([Drawn] * 3, autoreset="disabled", seed=1) as env,
        DummyBackend([Drawn] * 3, autoreset="disabled", seed=1 if first is None else None) as other,
    ):
        env.reset(seed=first)
        other.load_state_dict(env.state_dict())
        for _ in range(2):
            np.testing.assert_array_equal(env.reset(options=mask)[0], other.reset(options=mask)[0])


def test_a_seed_of_build_is_there_for_sub_environments_that_cannot_be_saved():
    def cartpole():
        return gymnasium.make("CartPole-v1")

    with DummyBackend([cartpole], seed=1) as env, DummyBackend([cartpole], seed=1) as other:
        first = env.reset()[0]
        other.load_state_dict(env.state_dict())
        np.testing.assert_array_equal(other.reset()[0], first)


@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled", "episodic"])
@pytest.mark.parametrize("backend", [DummyBackend, ShmemBackend])
def test_a_row_that_failed_needs_a_reset_after_a_load_too(backend, mode):
    with (
        DummyBackend([Drawn] * 3, autoreset=mode) as env,
        backend([Drawn] * 3, autoreset=mode) as other,
    ):
        env.reset(seed=1)
        with pytest.raises(SubEnvError):
            env.step([0, Drawn.FAILS, 0])
        before = env.state_dict()
        for one in (env, other):
            if one is other:
                one.load_state_dict(before)
            with pytest.raises(
                ResetNeededError, match=r"sub-environments \[1\] have ended or failed"
            ):
                one.step([0, 0, 0])
        mask = {"reset_mask": np.array([False, True, False])}
        np.testing.assert_array_equal(env.reset(options=mask)[0], other.reset(options=mask)[0])
        np.testing.assert_array_equal(env.step([0, 0, 0])[0], other.step([0, 0, 0])[0])
        whole = env.state_dict()
        with pytest.raises(SubEnvError):
            other.step([Drawn.FAILS, 0, 0])
        other.load_state_dict(whole)
        np.testing.assert_array_equal(env.step([0, 0, 0])[0], other.step([0, 0, 0])[0])


def test_what_is_no_state_is_refused_and_a_folder_is_no_file(tmp_path):
    with DummyBackend([Drawn]) as env:
        env.reset(seed=1)
        for other in (None, [], str(tmp_path / "state.npz")):
            with pytest.raises(
                CheckpointError, match="expected what state_dict gave, got .*; load reads a file"
            ):
                env.load_state_dict(other)
        with pytest.raises(IsADirectoryError, match="expected the name of a file, got a folder"):
            env.save(tmp_path)
        assert not list(tmp_path.iterdir())
        env.step([0])


@pytest.mark.parametrize("backend", [DummyBackend, ShmemBackend])
def test_where_one_sub_environment_cannot_load_its_state_all_go_on_as_they_were(backend):
    with backend([Drawn] * 3) as env, DummyBackend([Drawn] * 3) as other:
        env.reset(seed=1)
        other.reset(seed=1)
        early = env.state_dict()
        first, second, third = early["sub_envs"]
        for each in (env, other):
            each.step([0, 0, 0])
        for entry, words in (
            ({}, r"sub_envs\[1\]: expected list, got dict"),
            ([], "sub-environment 1 .* raised"),
        ):
            with pytest.raises(CheckpointError, match=words):
                env.load_state_dict({**early, "sub_envs": [first, {**second, "env": entry}, third]})
        for _ in range(12):
            np.testing.assert_array_equal(env.step([0, 0, 0])[0], other.step([0, 0, 0])[0])
        env.load_state_dict(early)
        assert env.step([0, 0, 0])[0][:, 1].tolist() == [1, 1, 1]


class Unwilling(Drawn):
    """Shows its state, and takes none in, not even its own."""

    def load_state_dict(self, state):
        self.state = (0, 0)
        raise RuntimeError("no")


@pytest.mark.parametrize("backend", [DummyBackend, ShmemBackend])
def test_what_cannot_be_as_it_was_is_not_stepped(backend):
    with backend([Unwilling] * 2) as env:
        env.reset(seed=1)
        with pytest.raises(
            CheckpointError, match="sub-environment 0 .* raised RuntimeError in load_state .*: no"
        ):
            env.load_state_dict(env.state_dict())
        with pytest.raises(
            ResetNeededError, match=r"sub-environments \[0, 1\] have ended or failed"
        ):
            env.step([0, 0])
        env.reset()
        env.step([0, 0])


def go_on(env, steps):
    """Step, resetting what asks for it; give all that came."""
    came = []
    for actions in steps:
        observations, rewards, terminations, truncations, infos = env.step(actions)
        came.append(
            (
                observations.tolist(),
                rewards.tolist(),
                terminations.tolist(),
                truncations.tolist(),
                str(infos),
            )
        )
        dones = terminations | truncations
        if env.core.autoreset.value in ("disabled", "episodic") and dones.any():
            came.append(env.reset(options={"reset_mask": dones})[0].tolist())
    return came


FAILS_ONCE = [[0, 0, 0], [0, 0, 0], [0, Drawn.FAILS, 0], *[[0, 0, 0]] * 9]


@pytest.mark.parametrize("seeds", [None, [3, 5, 7, 9, 11]], ids=["", "scheduled"])
@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled", "episodic"])
@pytest.mark.parametrize("backend", [DummyBackend, ShmemBackend])
def test_restarts_go_on_as_if_it_had_never_stopped(tmp_path, backend, mode, seeds):
    def make(backend):
        env = backend([Drawn] * 3, autoreset=mode, on_failure="restart")
        return env if seeds is None else SeedEachEpisode(env, seeds)

    with make(DummyBackend) as env, make(backend) as other:
        env.reset(seed=1)
        env.step([0, 0, 0])
        env.step([0, Drawn.FAILS, 0])
        env.save(tmp_path / "state.npz")
        other.load(tmp_path / "state.npz")
        if mode in ("disabled", "episodic"):
            mask = {"reset_mask": np.array([False, True, False])}
            np.testing.assert_array_equal(env.reset(options=mask)[0], other.reset(options=mask)[0])
        assert go_on(other, FAILS_ONCE) == go_on(env, FAILS_ONCE)
        assert other.health().restarts.tolist() == env.health().restarts.tolist() == [0, 2, 0]
        assert other.health().lost_episodes.tolist() == env.health().lost_episodes.tolist()


class Late(Drawn):
    """Has no state before its first reset; shows how often it was reset, too, and what was set on
    it.
    """

    observation_space = gymnasium.spaces.Box(0, 1000, (4,), np.int64)
    level = resets = 0

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        self.resets += 1
        self.begun = self.resets, self.level
        return np.array([*observation, *self.begun]), info

    def step(self, action):
        observation, *others = super().step(action)
        return np.array([*observation, *self.begun]), *others

    def state_dict(self):
        return {
            "state": self.state,
            "begun": self.begun,
            "resets": self.resets,
            "level": self.level,
        }

    def load_state_dict(self, state):
        self.state, self.begun = state["state"], state["begun"]
        self.resets, self.level = state["resets"], state["level"]


RESTARTS = {"on_failure": "restart", "restart_backoff": 0.0}


def late(backend, mode, seeds, **options):
    env = backend([Late] * 3, autoreset=mode, **options)
    return env if seeds is None else SeedEachEpisode(env, seeds)


@pytest.mark.parametrize(
    ("seeds", "used"),
    [(None, False), (None, True), ([3, 5, 7, 9, 11], True)],
    ids=["fresh", "used", "scheduled, used"],
)
@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled", "episodic"])
@pytest.mark.parametrize(
    "backend",
    [DummyBackend, partial(ShmemBackend, workers=1), ShmemBackend],
    ids=["dummy", "shmem", "shmem, dies"],
)
def test_what_was_made_anew_and_never_reset_is_saved_as_such(tmp_path, backend, mode, seeds, used):
    action = Drawn.DIES if backend is ShmemBackend else Drawn.FAILS
    # A state is the same whatever it came from.
    source = DummyBackend if action == Drawn.FAILS else backend
    with (
        late(source, mode, seeds, **RESTARTS) as env,
        late(backend, mode, seeds, **RESTARTS) as other,
        late(DummyBackend, mode, seeds) as third,
    ):
        env.reset(seed=1)
        env.set_attr("level", 5)
        env.step([0, 0, 0])
        lost = env.step([0, action, 0])[3]
        env.save(tmp_path / "state.npz")
        assert env.state_dict()["sub_envs_missing"] is None
        for one in (other, third):
            if used:
                one.reset(seed=9)
                one.step([1, 1, 1])
            one.load(tmp_path / "state.npz")
        if mode in ("disabled", "episodic"):
            mask = {"reset_mask": lost}
            expected = env.reset(options=mask)[0]
            for one in (other, third):
                np.testing.assert_array_equal(one.reset(options=mask)[0], expected)
        expected = go_on(env, FAILS_ONCE[:2])
        assert go_on(other, FAILS_ONCE[:2]) == expected
        for mine, theirs in zip(go_on(third, FAILS_ONCE[:2]), expected, strict=True):
            assert mine[:4] == theirs[:4]  # but for the count of restarts in infos
        assert go_on(other, FAILS_ONCE) == go_on(env, FAILS_ONCE)
        assert other.health().restarts.tolist() == env.health().restarts.tolist()


@pytest.mark.parametrize("backend", [DummyBackend, ShmemBackend])
def test_what_was_set_on_a_new_one_after_the_save_is_gone_after_the_load(tmp_path, backend):
    class Tools(Late):
        tool = None

    with backend(
        [Tools] * 2, autoreset="disabled", on_failure="restart", restart_backoff=0.0
    ) as env:
        env.reset(seed=1)
        lost = env.step([Drawn.FAILS, 0])[3]
        env.save(tmp_path / "state.npz")
        env.set_attr("tool", len)  # which no file can hold
        env.set_attr("level", 5)
        env.load(tmp_path / "state.npz")
        assert env.get_attr("level") == (0, 0)
        expected = env.reset(options={"reset_mask": lost})[0]
        env.load(tmp_path / "state.npz")
        env.set_attr("level", [7, 0])
        env.load(tmp_path / "state.npz")
        np.testing.assert_array_equal(env.reset(options={"reset_mask": lost})[0], expected)
        assert env.get_attr("tool") == (len, len)


DEATHS = pytest.mark.parametrize(
    ("backend", "mode", "seeds"),
    [
        pytest.param(
            backend,
            mode,
            seeds,
            id=f"{name}-{mode}",
            marks=() if mode in modes else pytest.mark.full,
        )
        for name, backend, seeds, modes in (
            ("subprocess", SubprocessBackend, None, ("same_step", "disabled")),
            ("shmem, scheduled", ShmemBackend, [3, 5, 7, 9, 11], ("next_step", "episodic")),
        )
        for mode in ("same_step", "next_step", "disabled", "episodic")
    ],
)


@DEATHS
def test_a_save_that_meets_the_death_of_a_worker_is_gone_on_from_as_if_it_had_never_stopped(
    tmp_path, backend, mode, seeds
):
    with (
        late(backend, mode, seeds, **RESTARTS, workers=2) as env,
        late(DummyBackend, mode, seeds, **RESTARTS) as other,
    ):
        env.reset(seed=1)
        env.step([0, 0, 0])
        (pid,) = [worker.pid for worker in env.health().workers if 2 in worker.env_ids]
        os.kill(pid, signal.SIGKILL)
        assert gone([pid])
        env.save(tmp_path / "state.npz")
        expected = go_on(env, [[0, 0, 0]] * 12)
        assert "restarted" in expected[0][-1], "the loss is told after the save"
        other.load(tmp_path / "state.npz")
        assert go_on(other, [[0, 0, 0]] * 12) == expected
        assert other.health().lost_episodes.tolist() == env.health().lost_episodes.tolist()


@DEATHS
def test_a_load_that_meets_the_death_of_a_worker_goes_on_as_any_load(
    tmp_path, backend, mode, seeds
):
    with (
        late(backend, mode, seeds, **RESTARTS, workers=2) as env,
        late(DummyBackend, mode, seeds, **RESTARTS) as other,
    ):
        env.reset(seed=1)
        env.step([0, 0, 0])
        env.save(tmp_path / "state.npz")
        env.step([0, 0, 0])
        (pid,) = [worker.pid for worker in env.health().workers if 2 in worker.env_ids]
        os.kill(pid, signal.SIGKILL)
        assert gone([pid])
        env.load(tmp_path / "state.npz")
        other.load(tmp_path / "state.npz")
        assert go_on(env, [[0, 0, 0]] * 12) == go_on(other, [[0, 0, 0]] * 12)


@pytest.mark.parametrize("backend", [DummyBackend, ShmemBackend])
def test_restarts_after_a_load_set_again_what_was_set_when_it_was_saved(tmp_path, backend):
    with (
        backend([Drawn] * 2, on_failure="restart", restart_backoff=0.0) as env,
        backend([Drawn] * 2, on_failure="restart", restart_backoff=0.0) as other,
    ):
        env.reset(seed=1)
        env.set_attr("level", {"of": np.array([5.0])})
        env.set_attr("size", [namedtuple("Size", "width")(3)] * 2)  # which no file can hold
        env.save(tmp_path / "state.npz")
        env.set_attr("level", 9.0)
        other.set_attr("level", 9.0)
        other.set_attr("later", 1)
        other.set_attr("tool", len)
        for one in (env, other):
            one.load(tmp_path / "state.npz")
            one.step([Drawn.FAILS, 0])
            np.testing.assert_equal(one.get_attr("level", indices=[0]), ({"of": np.array([5.0])},))
        with pytest.raises(SubEnvError, match="later"):
            other.get_attr("later", indices=[0])
        assert other.get_attr("tool", indices=[0]) == (len,), (
            "what no file can hold stays as it was set here"
        )


@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled", "episodic"])
def test_a_loss_that_was_not_told_yet_is_told_after_a_load(mode):
    def make():
        return ShmemBackend([Late] * 3, workers=1, autoreset=mode, on_failure="restart")

    with make() as env, make() as other, make() as third:
        env.reset(seed=1)
        env.step([0, 0, 0])
        before = env.state_dict()
        env.send([Drawn.DIES], [1])
        env.recv()
        other.load_state_dict(env.state_dict())
        if mode in ("disabled", "episodic"):
            for one in (env, other):
                one.reset(options={"reset_mask": np.array([False, True, False])})
        assert go_on(other, FAILS_ONCE) == go_on(env, FAILS_ONCE)
        assert other.health().lost_episodes.tolist() == env.health().lost_episodes.tolist()

        env.load_state_dict(before)
        third.load_state_dict(before)
        third.send([Drawn.DIES], [1])
        third.recv()
        third.load_state_dict(before)
        assert go_on(third, FAILS_ONCE) == go_on(env, FAILS_ONCE), (
            "what was lost before a load is not told after it"
        )


def test_a_state_saved_without_restarts_is_gone_on_from_with_them_and_the_other_way_round():
    with (
        DummyBackend([Drawn] * 3) as env,
        DummyBackend([Drawn] * 3, on_failure="restart") as restarting,
        DummyBackend([Drawn] * 3) as third,
    ):
        env.reset(seed=1)
        env.step([0, 0, 0])
        restarting.reset(seed=9)
        restarting.step([0, Drawn.FAILS, 0])
        restarting.load_state_dict(env.state_dict())
        third.load_state_dict(restarting.state_dict())
        steps = [[0, 0, 0]] * 9
        assert go_on(env, steps) == go_on(restarting, steps) == go_on(third, steps)
        assert restarting.health().restarts.tolist() == [0, 0, 0]


def test_where_sub_environments_offer_no_state_the_wrappers_go_on_and_a_reset_is_needed():
    def cartpole():
        return gymnasium.make("CartPole-v1")

    with DummyBackend([cartpole] * 2) as env:
        env.reset(seed=1)
        state = env.state_dict()
        assert state["sub_envs"] is None
        assert (
            "CartPoleEnv offers no state_dict() and load_state_dict()" in state["sub_envs_missing"]
        )
        env.load_state_dict(state)
        with pytest.raises(
            ResetNeededError,
            match=r"\[0, 1\] have ended or failed, or were loaded without a state,",
        ):
            env.step([0, 1])
        env.reset()
        env.step([0, 1])


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (
            lambda: chain(DummyBackend, Walk, "next_step"),
            "autoreset: the state is of 'same_step', this environment has 'next_step'",
        ),
        (
            lambda: FrameStack(DummyBackend([Walk] * 3), 3),
            r"wrappers: the state is of 2 \(FrameStack, Monitor\), this environment has 1",
        ),
        (
            lambda: FrameStack(Monitor(DummyBackend([Walk] * 3)), 3),
            r'wrappers\[0\]: the state is of "FrameStack", this environment has "Monitor"',
        ),
        (
            lambda: Monitor(FrameStack(DummyBackend([Walk] * 2), 3)),
            "n: the state is of 3, this environment has 2",
        ),
        (
            lambda: chain(DummyBackend, Walk, "same_step", k=2),
            (
                r'observations\[1\]: the state is of "Box\(3, 1\) float64", this environment has '
                r'"Box\(2, 1\)'
            ),
        ),
    ],
)
def test_a_state_of_another_chain_is_refused_with_the_first_difference(other, words):
    with chain(DummyBackend, Walk, "same_step") as env:
        env.reset(seed=1)
        state = env.state_dict()
    with other() as env, pytest.raises(CheckpointError, match=words):
        env.load_state_dict(state)


def test_a_state_of_another_format_is_refused():
    with DummyBackend([Walk]) as env:
        env.reset()
        with pytest.raises(CheckpointError, match="expected a state of format 2, got 1"):
            env.load_state_dict({**env.state_dict(), "format": 1})


def square(items):
    array = np.empty((2, 2), dtype=object)
    for i, item in enumerate(items):
        array[divmod(i, 2)] = item
    return array


TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=4)
    | npst.arrays(
        st.sampled_from([np.uint8, np.float32, np.int64, np.bool_]),
        npst.array_shapes(max_dims=2, max_side=3),
    )
    | st.sampled_from(
        [np.float32(0.5), np.float64(2), np.int64(3), np.bool_(True), np.str_("a"), np.array(4.0)]
    )
    | st.sampled_from([GraphInstance(np.ones((2, 2), np.float32), None, None)]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.builds(deque, st.lists(inner, max_size=3), st.none() | st.integers(3, 4))
        | st.dictionaries(
            st.text(max_size=3) | st.integers() | st.builds(np.int64, st.integers(0, 9)),
            inner,
            max_size=3,
        )
        | st.lists(inner, min_size=4, max_size=4).map(square)
    ),
    max_leaves=8,
)


def same(one, other):
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        return (
            all(map(same, one.flat, other.flat))
            if one.dtype == object
            else one.tobytes() == other.tobytes()
        )
    if isinstance(one, dict):
        return (
            all(map(same, one, other))
            and all(map(same, one.values(), other.values()))
            and len(one) == len(other)
        )
    if isinstance(one, (list, tuple, deque)):
        return (
            len(one) == len(other) and all(map(same, one, other)) and maxlen(one) == maxlen(other)
        )
    return one == other


def maxlen(value):
    return getattr(value, "maxlen", None)


@given(st.dictionaries(st.text(max_size=3), TREES, max_size=3))
def test_what_is_written_is_read_back(tmp_path_factory, tree):
    path = tmp_path_factory.mktemp("state") / "state.npz"
    write_state(path, tree)
    read = read_state(path)
    assert same(read, tree)


def test_a_file_is_data_and_nothing_in_it_is_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "it ran",))

    path = tmp_path / "trap.npz"
    np.savez(path, structure=np.array([Trap()], dtype=object))
    # NumPy's own words for both advise to unpickle them.
    why, remedy = (
        r"\(no archive of plain arrays\)",
        "expected the file that save wrote; of a run, its stats.npz",
    )
    message = f"^{path}: not a state that vecwrap saved {why}; {remedy}$"
    with pytest.raises(CheckpointError, match=message):
        read_state(path)
    assert not (tmp_path / "it ran").exists()
    path.write_bytes(b"something else")
    with pytest.raises(CheckpointError, match=message):
        read_state(path)
    with pytest.raises(CheckpointError, match="no such file"):
        read_state(tmp_path / "missing.npz")


def test_a_file_that_may_not_be_looked_at_is_not_said_to_be_another(tmp_path):
    with pytest.raises(
        CheckpointError,
        match=r"xxx\.npz: cannot be read \(File name too long\)\. Is the path right",
    ):
        read_state(tmp_path / ("x" * 300 + ".npz"))
    with pytest.raises(
        CheckpointError, match=f"^{tmp_path}: this is a folder; .* of a run, its stats.npz$"
    ):
        read_state(tmp_path)


def test_what_cannot_be_kept_is_refused_with_its_place(tmp_path):
    with pytest.raises(
        CheckpointError, match=r"state\['a'\]\[1\]: expected arrays, .* got a object"
    ):
        write_state(tmp_path / "state.npz", {"a": [1, object()]})
    assert not list(tmp_path.iterdir())


def test_a_named_tuple_whose_class_a_file_cannot_name_is_refused(tmp_path):
    point = namedtuple("Point", "x y")(1, 2)
    with pytest.raises(CheckpointError, match=r"state\['a'\]: expected arrays, .* got a Point"):
        write_state(tmp_path / "state.npz", {"a": point})


def test_an_array_that_would_have_to_be_pickled_is_refused_with_its_place(tmp_path):
    records = np.zeros(2, dtype=[("number", np.int64), ("name", object)])
    with pytest.raises(
        CheckpointError,
        match=r"state\['a'\]: .* got an array of dtype \[\('number'.* would have to be",
    ):
        write_state(tmp_path / "state.npz", {"a": records})
    assert not list(tmp_path.iterdir())


def test_numbers_of_numpy_may_be_keys(tmp_path):
    given = {np.int64(3): "a", (np.int64(0), np.float32(0.5)): "b", np.bool_(True): "c"}
    write_state(tmp_path / "state.npz", {"a": given})
    assert read_state(tmp_path / "state.npz")["a"] == given


def test_a_crash_while_saving_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "state.npz"
    write_state(path, {"a": 1})

    def full(*arguments, **keywords):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        write_state(path, {"a": 2})
    assert [file.name for file in tmp_path.iterdir()] == ["state.npz"]
    assert read_state(path) == {"a": 1}


class Keeps(gymnasium.Env):
    """Gives and takes its own array as its state, and writes into it at every step."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, extra=None):
        self.place, self.extra = np.zeros(1), extra

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place[:] = 0
        return self.place, {}

    def step(self, action):
        self.place += 1
        return self.place, 0.0, False, False, {}

    def state_dict(self):
        return {"place": self.place, "extra": self.extra}

    def load_state_dict(self, state):
        self.place = state["place"]


@pytest.mark.parametrize("backend", [DummyBackend, SubprocessBackend, ShmemBackend])
def test_one_state_can_be_gone_on_from_several_times(backend):
    with backend([Keeps] * 2) as env:
        env.reset(seed=1)
        env.step([0, 0])
        state = env.state_dict()
        for _ in range(3):
            env.load_state_dict(state)
            assert [env.step([0, 0])[0].ravel().tolist() for _ in range(3)] == [
                [2, 2],
                [3, 3],
                [4, 4],
            ]


class Phase(IntEnum):
    RED = 1


class Line(list):
    pass


@pytest.mark.parametrize(
    "extra",
    [
        Counter("ab"),
        defaultdict(int),
        OrderedDict(a=1),
        Phase.RED,
        Line([1]),
        np.ma.masked_array([1, 2]),
    ],
)
def test_what_a_file_would_give_back_as_another_type_is_refused(extra, tmp_path):
    with DummyBackend([partial(Keeps, extra)]) as env:
        env.reset(seed=1)
        with pytest.raises(
            CheckpointError,
            match=rf"'extra'\]: expected .* got a {type(extra).__name__}, which no file",
        ):
            env.save(tmp_path / "state.npz")
    assert list(tmp_path.iterdir()) == []


def test_the_seed_of_an_environment_is_told_after_a_load(tmp_path):
    with DummyBackend([Walk] * 2) as env:
        env.reset(seed=7)
        env.save(tmp_path / "state.npz")
    with DummyBackend([Walk] * 2) as other:
        other.reset(seed=70)
        other.load(tmp_path / "state.npz")
        assert other.np_random_seed == (7, 8)


def test_wrappers_are_as_they_were_where_one_of_them_refuses_its_state(tmp_path):
    """Here a folder that no file can be made in."""
    with NormalizeObs(Monitor(DummyBackend([Walk] * 2))) as env:
        env.reset(seed=1)
        for _ in range(20):
            env.step([0, 0])
        state = env.state_dict()
    (tmp_path / "file").touch()
    with NormalizeObs(Monitor(DummyBackend([Walk] * 2), str(tmp_path / "file" / "sub"))) as env:
        count = env.observations.statistics[None].count
        with pytest.raises(PlanError, match="monitor: dir"):
            env.load_state_dict(state)
        assert env.observations.statistics[None].count == count


MUTILATED = {
    "framestack": (lambda env: FrameStack(env, 2), "stacks"),
    "monitor": (Monitor, "returns"),
    "normalize_reward": (NormalizeReward, "returns"),
    "terminal_obs": (lambda env: TerminalObs(env, record=1), "lengths"),
    "time_aware": (lambda env: TimeAware(env, limit=9), "times"),
}


@pytest.mark.parametrize(
    "put", [[np.zeros((7, 7, 7))], [np.array(["a", "b"])], []], ids=["shape", "kind", "missing"]
)
@pytest.mark.parametrize("name", MUTILATED)
def test_a_mutilated_state_is_refused_with_the_wrappers_name_and_leaves_the_wrapper_as_it_was(
    name, put
):
    wrap, entry = MUTILATED[name]
    with wrap(DummyBackend([Walk] * 2)) as env:
        env.reset(seed=1)
        env.step([0, 0])
        before, state = env.state_dict(), env.state_dict()
        del state["wrappers"][0][entry]
        if put:
            state["wrappers"][0][entry] = put[0]
        with pytest.raises(CheckpointError, match=f"(?i){name.replace('_', '_?')}: expected"):
            env.load_state_dict(state)
        (before,), (after,) = before["wrappers"], env.state_dict()["wrappers"]
        assert_same({**before, "elapsed": 0}, {**after, "elapsed": 0})  # a clock's


def test_a_file_of_which_any_byte_was_changed_is_read_or_refused(tmp_path):
    file = tmp_path / "state.npz"
    with DummyBackend([Walk] * 2) as env:
        env.reset(seed=1)
        env.save(file)
    whole = file.read_bytes()
    rng = np.random.default_rng(1)
    for at in [*range(len(whole) - 400, len(whole)), *rng.integers(0, len(whole), 400).tolist()]:
        for value in (0, 1, 255):
            file.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
            with contextlib.suppress(CheckpointError):
                read_state(file)
