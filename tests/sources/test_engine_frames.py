"""Frames of engines that render: videos of them equal those of the same environments on dummy."""

import cv2
import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import vecwrap
from vecwrap.errors import PlanError

STEPS = 40


def cartpole():
    return gymnasium.make("CartPole-v1", render_mode="rgb_array", max_episode_steps=12)


def video(folder):
    return {"video": {"dir": str(folder), "every": 2, "envs": [0, 1], "files": "each"}}


def play(env, mode="next_step"):
    """Step with drawn actions; in disabled mode reset the rows that ended."""
    with env:
        env.reset(seed=3)
        for actions in np.random.default_rng(1).integers(0, 2, (STEPS, env.num_envs)):
            _, _, terminations, truncations, _ = env.step(actions)
            dones = terminations | truncations
            if mode == "disabled" and dones.any():
                env.reset(options={"reset_mask": dones})


def frames_in(path):
    capture = cv2.VideoCapture(str(path))
    frames = []
    while (read := capture.read())[0]:
        frames.append(cv2.cvtColor(read[1], cv2.COLOR_BGR2RGB))
    capture.release()
    return np.array(frames)


def videos(folder):
    return {path.name: frames_in(path) for path in sorted(folder.glob("*.mp4"))}


def assert_same_videos(one, other):
    assert one.keys() == other.keys()
    assert len(one) > 1
    for name, frames in one.items():
        np.testing.assert_array_equal(frames, other[name])


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("engine", [SyncVectorEnv, AsyncVectorEnv])
def test_videos_of_gymnasiums_engines_are_those_of_dummy(engine, mode, tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    make = [cartpole] * 3
    play(
        vecwrap.build(cartpole, n=3, backend="dummy", autoreset=mode, wrappers=[video(ours)]), mode
    )
    play(vecwrap.wrap(engine(make), [video(theirs)], autoreset=mode), mode)
    assert_same_videos(videos(theirs), videos(ours))


def test_an_engine_that_keeps_no_last_frame_records_the_others(tmp_path):
    engine = SyncVectorEnv([cartpole] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    play(vecwrap.build(cartpole, n=3, backend="dummy", wrappers=[video(ours)]))
    play(vecwrap.wrap(engine, [video(theirs)]))
    expected, recorded = videos(ours), videos(theirs)
    name = min(expected)
    assert len(recorded[name]) == len(expected[name]) - 1
    np.testing.assert_array_equal(recorded[name][0], expected[name][0])


@pytest.mark.parametrize("backend", ["dummy", "shmem", "subprocess"])
def test_a_vector_class_is_filmed_here_and_in_workers(backend, tmp_path):
    settings = {"n": 4, "envs_per_engine": 2, "autoreset": "next_step", "render_mode": "rgb_array"}
    play(
        vecwrap.build("CartPole-v1", backend=backend, wrappers=[video(tmp_path)], **settings),
    )
    engine = CartPoleVectorEnv(num_envs=2, render_mode="rgb_array")
    engine.reset(seed=3)
    frames = [engine.render()[1]]
    over = False
    for actions in np.random.default_rng(1).integers(0, 2, (STEPS, 4)):
        _, _, terminations, truncations, _ = engine.step(actions[:2])
        if over:
            break
        frames.append(engine.render()[1])
        over = terminations[1] or truncations[1]
    engine.close()
    first = videos(tmp_path)["video-episode-000000-env-1.mp4"]
    assert len(first) == len(frames)
    difference = np.abs(first.astype(int) - np.array(frames).astype(int))
    assert difference.mean() < 3  # the codec's


def test_an_engine_that_cannot_draw_is_refused(tmp_path):
    with pytest.raises(PlanError, match='built with render_mode="rgb_array", got None'):
        vecwrap.wrap(CartPoleVectorEnv(num_envs=2), [video(tmp_path)])
