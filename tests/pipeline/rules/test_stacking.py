"""Stacks of what should not be stacked, or not so."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import vecwrap
from tests.pipeline.rules.findings import ids

STACKED = "gymnasium.wrappers:FrameStackObservation"


# -- zero_padding ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("CartPole-v1 | framestack:4", True),
        ("CartPole-v1 | framestack:4,axis=channel", True),
        ("CartPole-v1 | framestack:4,padding=first", False),
        ("CartPole-v1 | framestack:1", False),  # nothing is padded
        ("PongNoFrameskip-v4 | atari | framestack:4", False),  # zero is black
        ("PongNoFrameskip-v4 | atari | scale_obs | framestack:4", False),  # also of floats
        ("vecwrap.testing:ToyEnv env_kwargs.observations=box_int16 | framestack:4", False),
        ("vecwrap.testing:ToyEnv env_kwargs.observations=box_scalar | framestack:4", True),
    ],
)
def test_stacks_of_float_vectors_that_begin_with_zeros(line, found):
    assert ids(line) == ["zero_padding"] * found


def test_only_the_members_that_are_stacked_count(camera_and_joints):
    (finding,) = vecwrap.check(camera_and_joints, n=2, backend="dummy", wrappers=["framestack:2"])
    assert "observations['joints'] (5,) float32" in finding.reason
    assert "observations['speed']" in finding.reason
    assert "camera" not in finding.reason
    assert ids(camera_and_joints, {"framestack": {"k": 2, "keys": ["camera"]}}) == []


# -- stack_twice -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrappers", "expected"),
    [
        (["framestack:2,padding=first", "framestack:2"], ["stack_twice"]),
        (["framestack:2,padding=first"] + ["framestack:2"] * 2, ["stack_twice"] * 2),
        ([f"{STACKED}:2", "framestack:2"], ["stack_twice"]),
        ([f"{STACKED}:2", f"{STACKED}:2"], ["stack_twice"]),
        ([f"{STACKED}:2"], []),
    ],
)
def test_a_stack_of_stacks(wrappers, expected):
    assert ids("Pendulum-v1", *wrappers) == expected


def test_stacks_of_different_members_are_no_stack_of_stacks(camera_and_joints):
    camera, joints = (
        {"framestack": {"k": 2, "keys": [key], "padding": "first"}} for key in ("camera", "joints")
    )
    assert ids(camera_and_joints, camera, joints) == []


class Stacks(gymnasium.Env):
    """Says that it stacks, as engines do."""

    observation_space = spaces.Box(0, 255, (4, 8, 8), np.uint8)
    action_space = spaces.Discrete(2)

    def __init__(self, stack_num=4):
        self.stack_num = stack_num


@pytest.mark.parametrize("backend", ["dummy", "subprocess"])
def test_an_environment_that_stacks_already(backend):
    (finding,) = vecwrap.check(Stacks, n=2, backend=backend, wrappers=["framestack:4"])
    assert finding.id == "stack_twice"
    assert finding.reason == "Stacks (4) stacks observations already."
    assert ids(Stacks, "framestack:4", env_kwargs={"stack_num": 1}) == []
    assert ids(lambda: gymnasium.wrappers.FrameStackObservation(Stacks(1), 3), "framestack:4") == [
        "stack_twice"
    ]


def test_an_engine_that_stacks_already():
    engine = pytest.importorskip("ale_py.vector_env", reason="came with ale-py 0.11").AtariVectorEnv
    for stack_num, found in ((4, ["stack_twice"]), (1, [])):
        pongs = engine("pong", num_envs=2, stack_num=stack_num)
        assert [f.id for f in vecwrap.check(pongs, wrappers=["framestack:4"])] == found
        assert vecwrap.check(pongs, wrappers=["monitor"]) == ()
        pongs.reset(seed=1)  # it is left as it was, and open
        pongs.close()


def test_an_engine_of_envpool_that_stacks_already():
    envpool = pytest.importorskip("envpool")
    pongs = envpool.make("Pong-v5", env_type="gymnasium", num_envs=2)
    (finding,) = vecwrap.check(pongs, wrappers=["framestack:4"], autoreset="next_step")
    assert finding.id == "stack_twice"
    pongs.close()
