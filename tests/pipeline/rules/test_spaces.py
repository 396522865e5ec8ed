"""Wrappers on spaces that are not, or no longer, what they are for."""

from functools import partial

import gymnasium
import numpy as np
import pytest

import vecwrap
from tests.pipeline.rules.findings import ids
from vecwrap.errors import PlanError


class Cube(gymnasium.Env):
    """Height, width and channels are three each: a board with three planes."""

    observation_space = gymnasium.spaces.Box(0, 1, (3, 3, 3), np.float32)
    action_space = gymnasium.spaces.Discrete(2)


ROBOT = "vecwrap.testing:ToyEnv env_kwargs.observations=mixed"


# -- changes_nothing --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("CartPole-v1 | flatten", True),
        ("FrozenLake-v1 | flatten", False),
        ("CartPole-v1 | dtype:float32", True),
        ("CartPole-v1 | dtype:float64", False),
        ("Pendulum-v1 | rescale_action:-2,2", True),
        ("Pendulum-v1 | rescale_action", False),
        ("Pendulum-v1 | clip_action | clip_action", True),
        ("Pendulum-v1 | clip_action", False),
        ("MountainCar-v0 | scale_obs:-1,1 | scale_obs:-1,1", True),
        ("MountainCar-v0 | scale_obs:-1,1", False),
        ("CartPole-v1 | framestack:1,axis=channel", True),
        ("tests.pipeline.rules.test_spaces:Cube | transpose", False),
        ("CartPole-v1 | framestack:1", False),  # one more axis
        ("vecwrap.testing:ToyEnv env_kwargs.observations=box_uint8 | resize:4,5", True),
        ("vecwrap.testing:ToyEnv env_kwargs.observations=box_uint8 | resize:4,4", False),
        ("CartPole-v1 | scale_reward:1", True),
        ("CartPole-v1 | scale_reward:0.5", False),
        ("CartPole-v1 | clip_reward:-inf,inf", True),
        ("CartPole-v1 | clip_reward", False),
        ("CartPole-v1 | clip_reward:-inf,0", False),
        ("CartPole-v1 | frame_skip:1", True),
        ("CartPole-v1 | frame_skip:2", False),
        ("CartPole-v1 | sticky_actions:0", True),
        ("CartPole-v1 | sticky_actions", False),
        ("CartPole-v1 | monitor", False),  # changes no space, and is no change of one
        ("CartPole-v1 | check_nan", False),
    ],
)
def test_a_wrapper_that_changes_nothing(line, found):
    assert ids(line) == ["changes_nothing"] * found


def test_a_filter_that_keeps_all_members(camera_and_joints):
    keep = ["camera", "joints", "speed"]
    assert ids(camera_and_joints, {"filter_obs": {"keys": keep}}) == ["changes_nothing"]
    assert ids(camera_and_joints, {"filter_obs": {"keys": keep[1:]}}) == []


# -- what needs a Dict, outside one that extracts a member -------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrappers", "at"),
    [
        (["extract_obs:position", "extract_obs:mesh"], 1),
        (["extract_obs:position", {"filter_obs": [["mesh"]]}], 1),
        (["extract_obs:position", "monitor", {"normalize_obs": {"keys": ["position"]}}], 2),
        (["extract_obs:position", {"framestack": {"k": 2, "keys": ["position"], "padding": "first"}}], 1),
    ],
)
def test_a_wrapper_that_wants_the_dict_is_an_error_that_is_told_once(wrappers, at):
    (finding,) = vecwrap.check(ROBOT, n=2, backend="dummy", wrappers=wrappers)
    assert (finding.id, finding.severity) == ("refused", "error")
    assert finding.place.startswith(f"wrappers[{at}]")
    with pytest.raises(PlanError):
        vecwrap.build(ROBOT, n=2, backend="dummy", wrappers=wrappers)


def test_wrappers_that_are_content_with_the_member(camera_and_joints):
    assert ids(ROBOT, "extract_obs:position", "normalize_obs") == []
    assert ids(camera_and_joints, {"normalize_obs": {"keys": ["joints"]}}, "extract_obs:joints") == []


@pytest.mark.parametrize("keys", ["zzz", 3])
def test_keys_of_another_wrapper_are_its_own_affair(keys):
    class Api(vecwrap.VecEnvWrapper):
        def __init__(self, env, keys=None):
            super().__init__(env)

    assert ids(ROBOT, "extract_obs:position", partial(Api, keys=keys)) == []


def test_a_member_that_is_a_dict_itself():
    nested = {"env_kwargs": {"observations": "nested"}}
    assert ids("vecwrap.testing:ToyEnv", "extract_obs:body", "extract_obs:contacts", **nested) == []
    assert ids("vecwrap.testing:ToyEnv", "extract_obs:camera", "extract_obs:body", **nested) == ["refused"]
