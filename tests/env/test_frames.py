"""Frames that recorders ask for: rendered where the sub-environment lives, before its autoreset,
and riding home.
"""

import gc
import pickle
import re
import sys
import weakref

import numpy as np
import pytest

from tests.helpers.backends import DummyBackend, ShmemBackend, SubprocessBackend
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import RemoteTraceback
from vecwrap.testing import ToyEnv

BACKENDS = [DummyBackend, SubprocessBackend, ShmemBackend]
MODES = ["same_step", "next_step", "disabled", "episodic"]


class Counted(ToyEnv):
    """Episodes of three steps; frames tell episode and step; knows how often it was rendered."""

    def __init__(self, raises=False):
        super().__init__(end=0.0, limit=3, render_mode="rgb_array")
        self.renders = 0
        self.raises = raises

    def render(self):
        self.renders += 1
        if self.raises:
            raise RuntimeError("no display")
        return super().render()


class Asks(VecEnvWrapper):
    """Asks for frames, and keeps what came: one list of (episode, step) a sub-environment."""

    def __init__(self, env):
        super().__init__(env)
        self.seen = [[] for _ in range(env.num_envs)]
        self.finals = [[] for _ in range(env.num_envs)]

    def on_step(self, step):
        for frames, seen in ((step.final_frames, self.finals), (step.frames, self.seen)):
            for i, frame in zip(
                step.env_ids.tolist(), frames or [None] * len(step.env_ids), strict=True
            ):
                seen[i].append(
                    frame if frame is None or isinstance(frame, Exception) else told(frame)
                )


def told(frame):
    """(episode, step) of a toy's frame."""
    assert frame.shape == (4, 6, 3)
    return int(frame[0, 0, 1]), int(frame[0, 0, 0])


def some(backend, n=3, **options):
    if backend is not DummyBackend:
        options = {"workers": 1, **options}
    return Asks(backend([Counted] * n, **options))


def play(env, steps):
    for _ in range(steps):
        *_, terminations, truncations, _ = env.step(np.zeros(env.num_envs, np.int64) - 2)
        ended = terminations | truncations
        if env.core.autoreset.value == "disabled" and ended.any():
            env.reset(options={"reset_mask": ended})


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_is_rendered_where_nothing_asks(backend):
    with some(backend) as env:
        env.reset(seed=1)
        play(env, 5)
        assert env.get_attr("renders") == (0, 0, 0)
        assert env.seen == [[None] * 6] * 3


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_terminal_frame_and_the_next_first_ride_home(backend, mode):
    workers = {} if backend is DummyBackend else {"workers": 2}
    with some(backend, autoreset=mode, **workers) as env:
        env.request_frames([0, 2])
        env.reset(seed=1)
        play(env, 5)
        assert env.seen[1] == [None] * len(env.seen[1])
        expected = [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 1), (2, 2)]
        if mode == "same_step":
            assert env.seen[0] == expected[:3] + expected[4:]
            assert env.finals[0] == [None, None, None, (1, 3), None, None]
        elif mode == "episodic":
            assert env.seen[0] == [*expected[:4], None, None]  # a row that rests shows nothing new
        else:
            assert env.seen[0] == expected[: len(env.seen[0])]
        assert env.seen[2] == env.seen[0]
        assert env.get_attr("renders")[1] == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_only_frames_that_open_an_episode(backend):
    with some(backend) as env:
        env.request_frames([1], opening=[0, 1])
        env.reset(seed=1)
        play(env, 4)
        assert env.seen[0] == [(1, 0), None, None, (2, 0), None]
        assert env.seen[1] == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)]
        assert env.get_attr("renders") == (2, 6, 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_two_wrappers_ask_for_is_merged(backend):
    inner = some(backend)
    with Asks(inner) as outer:
        inner.request_frames([0], opening=[1])
        outer.request_frames([1])
        outer.reset(seed=1)
        assert outer.seen == inner.seen == [[(1, 0)], [(1, 0)], [None]]
        outer.request_frames([])
        play(outer, 1)
        assert [seen[-1] for seen in outer.seen] == [(1, 1), None, None]
        play(outer, 2)
        assert [seen[-1] for seen in outer.seen] == [(2, 0), (2, 0), None]


@pytest.mark.parametrize("backend", BACKENDS)
def test_asked_while_rows_are_out_it_holds_for_those_that_are_sent_afterwards(backend):
    with some(backend) as env:
        env.reset(seed=1)
        env.send([0, 0], env_ids=[0, 2])
        env.request_frames([0, 1, 2])
        env.send([0], env_ids=[1])
        env.recv()
        assert [seen[-1] for seen in env.seen] == [None, (1, 1), None]
        env.send([0, 0, 0])
        env.request_frames([])
        env.recv()
        assert [seen[-1] for seen in env.seen] == [(1, 2)] * 3


@pytest.mark.parametrize("backend", [SubprocessBackend, ShmemBackend])
def test_asking_is_one_message_where_it_changes_something_and_none_where_not(backend, monkeypatch):
    with some(backend) as env:
        sent = []
        real = env.unwrapped.runner._send_bytes
        monkeypatch.setattr(
            env.unwrapped.runner,
            "_send_bytes",
            lambda worker, data, *rest: (
                sent.append(pickle.loads(data)[0]),
                real(worker, data, *rest),
            ),
        )
        env.reset(seed=1)
        env.request_frames([1])
        env.request_frames([1])
        play(env, 2)
        env.request_frames([])
        env.request_frames([1])
        play(env, 1)
        steps = ["step"] * 3 if backend is SubprocessBackend else []  # shmem's are no messages
        assert sent == ["reset", "frames", *steps]


@pytest.mark.parametrize("backend", BACKENDS)
def test_rendering_that_raises_never_stops_the_training(backend):
    with Asks(backend([lambda: Counted(raises=True)] * 2)) as env:
        env.request_frames([1])
        env.reset(seed=1)
        play(env, 3)
        assert env.seen[0] == [None] * 4
        assert all(
            isinstance(frame, RemoteTraceback) and "no display" in str(frame)
            for frame in env.seen[1]
        )


class Exits(Counted):
    def render(self):
        sys.exit("no display")


class Panic(BaseException):
    """As libraries in Rust raise it."""


class Panics(Counted):
    def render(self):
        raise Panic("no display")


class Unseen(Counted):
    def render(self):
        return None


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Exits, "SystemExit: no display"),
        (Panics, "Panic: no display"),
        (Unseen, r"render\(\) gave None"),
    ],
)
def test_rendering_that_exits_or_gives_none_is_told_in_the_frames_place(backend, kind, words):
    with Asks(backend([kind])) as env:
        env.request_frames([0])
        env.reset(seed=1)
        play(env, 3)
        told = [env.finals[0][-1], *env.seen[0]]
        assert len(told) == 5
        for frame in told:
            assert isinstance(frame, RemoteTraceback)
            assert re.search(words, str(frame))


@pytest.mark.parametrize("backend", [SubprocessBackend, ShmemBackend])
def test_what_belongs_to_an_ended_episode_travels_once(backend):
    with some(backend) as env:
        env.request_frames([0])
        env.reset(seed=1)
        payloads = []
        real = env.core.slots.load
        env.core.slots.load = lambda rows, payload, *places: (
            payloads.append(payload),
            real(rows, payload, *places),
        )
        play(env, 4)
        assert [payload[2] is not None for payload in payloads] == [False, False, True, False]


def test_a_wrapper_that_asked_is_not_kept_alive():
    env = some(DummyBackend)
    env.request_frames([0])
    backend, gone = env.unwrapped, weakref.ref(env)
    env.on_close = lambda: None
    del env
    gc.collect()
    assert gone() is None
    backend.close()


def test_render_is_what_the_wrapper_below_renders():
    class Postcard(VecEnvWrapper):
        def render(self):
            return "a postcard"

    with Asks(Postcard(DummyBackend([Counted] * 2))) as env:
        assert env.render() == "a postcard"
    with Asks(DummyBackend([Counted] * 2)) as env:
        env.reset()
        assert [told(frame) for frame in env.render()] == [(1, 0), (1, 0)]
