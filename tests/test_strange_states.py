"""Saved states with anything at all in them: each is refused as a CheckpointError that changes nothing, or loaded."""

from collections import deque
from copy import deepcopy
from functools import partial

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers

from tests.test_checkpoint import Drawn, Keeps, Walk
from vecwrap.backends.dummy import DummyBackend
from vecwrap.backends.shmem import ShmemBackend
from vecwrap.env.saving import read_state, write_state
from vecwrap.errors import CheckpointError, VecwrapError
from vecwrap.sources.sub_env import SubEnvFactory
from vecwrap.testing import ToyEnv, assert_same
from vecwrap.wrappers.atari import Atari
from vecwrap.wrappers.check_nan import CheckNan
from vecwrap.wrappers.framestack import FrameStack
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.normalize import Normalize
from vecwrap.wrappers.record_trajectories import RecordTrajectories
from vecwrap.wrappers.seed_each_episode import SeedEachEpisode
from vecwrap.wrappers.sticky_actions import StickyActions
from vecwrap.wrappers.terminal_obs import TerminalObs
from vecwrap.wrappers.tile import Tile
from vecwrap.wrappers.time_aware import TimeAware
from vecwrap.wrappers.video import Video

gymnasium.register_envs(ale_py)
pytestmark = pytest.mark.usefixtures("quick_workers")


class Strict(Walk):
    """Takes nothing but a number."""

    def load_state_dict(self, state):
        self.place = float(state["place"])


class Seeds:
    """A schedule that remembers something."""

    calls = 0

    def __call__(self, episode, index):
        self.calls += 1
        return self.calls


def of_gymnasium():
    env = wrappers.RecordEpisodeStatistics(wrappers.TimeLimit(Strict(), 30))
    env = wrappers.NormalizeReward(wrappers.NormalizeObservation(env))
    return StickyActions(wrappers.FrameStackObservation(env, 2))


def game():
    return gymnasium.make("BreakoutNoFrameskip-v4", max_episode_steps=400)


def recorders(folder):
    env = RecordTrajectories(DummyBackend([partial(ToyEnv, render_mode="rgb_array")] * 2), folder / "trajectories")
    return Tile(Video(env, folder / "videos", trigger="every 1000 episodes"))


CHAINS = {
    "numbers": lambda folder: Normalize(CheckNan(TerminalObs(Monitor(DummyBackend([Strict] * 2)), record=2))),
    "stack": lambda folder: FrameStack(TimeAware(DummyBackend([ToyEnv] * 2), limit=50), 2),
    "schedule": lambda folder: SeedEachEpisode(DummyBackend([Drawn] * 2), Seeds()),
    "restarts": lambda folder: DummyBackend([Drawn] * 2, on_failure="restart", max_restarts=2),
    "gymnasium": lambda folder: DummyBackend([of_gymnasium] * 2),
    "recorders": recorders,
    "atari": lambda folder: Monitor(FrameStack(DummyBackend([SubEnvFactory(game, (Atari,))]), 4)),
    "shmem": lambda folder: Monitor(FrameStack(ShmemBackend([Drawn] * 2), 2)),
}

STRANGE = [
    *(None, True, 3, -1, 10**30, 0.5, float("nan"), "text", "", b"bytes", [], ["x"], {}, {"x": 1}, {"__dict__": {}}),
    *((1, 2), deque([1], 1), np.zeros(0), np.zeros((3, 3)), np.array(["a", "b"]), np.float32(1)),
]
MISSING = object()


def places(value, path=()):
    """Every place in a tree, but of long lists only the ends."""
    yield path
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, (list, tuple, deque)):
        inner = {i: value[i] for i in (0, -1) if value}.items()
    else:
        inner = ()
    for key, part in inner:
        yield from places(part, (*path, key))


def changed(value, path, strange):
    """A copy of a tree with something else in one place."""
    if not path:
        return strange
    value = list(value) if isinstance(value, tuple) else type(value)(value)
    if len(path) == 1 and strange is MISSING:
        del value[path[0]]
    else:
        value[path[0]] = changed(value[path[0]], path[1:], strange)
    return value


def comparable(state):
    """A state without what clocks say, or no load restores."""
    state = deepcopy(state)
    for layer in state["layers"]:
        layer.pop("elapsed", None)
    for row in state["sub_envs"]:
        row.pop("rewards")  # not loaded: the next step writes it
        for layer in row["env"]:
            layer["state"].get("attributes", {}).pop("episode_start_time", None)
        row.get("recovery", {}).get("restarts", {}).pop("ages", None)
    return state


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CHAINS)
def test_anything_anywhere_in_a_state_is_refused_and_changes_nothing_or_is_loaded(name, tmp_path):
    with CHAINS[name](tmp_path) as env:
        env.reset(seed=1)
        for _ in range(7):
            env.step(env.action_space.sample() * 0)
        state = env.state_dict()
        before = comparable(state)
        outcomes = {True: 0, False: 0}
        for path in list(places(state))[1:]:
            key = path[-1]
            junk = [MISSING, *STRANGE] if name not in ("atari", "shmem") else [MISSING, "text", np.zeros((3, 3)), None]
            for strange in junk:
                given = changed(state, path, strange)
                try:
                    env.load_state_dict(given)
                except CheckpointError as error:
                    assert len(str(error)) < 3000
                    assert_same(before, comparable(env.state_dict()), f"after {strange!r} at {path}")
                    outcomes[False] += 1
                except BaseException as error:
                    raise AssertionError(f"{strange!r} at {path} ({key})") from error
                else:
                    try:
                        env.step(env.action_space.sample() * 0)
                    except VecwrapError:
                        pass
                    except Exception as error:
                        raise AssertionError(f"{strange!r} at {path}, stepped") from error
                    env.load_state_dict(state)
                    outcomes[True] += 1
        assert outcomes[False] > outcomes[True], outcomes
