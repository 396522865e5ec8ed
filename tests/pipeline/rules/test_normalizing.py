"""What should not be normalised, or not there."""

import pytest

import vecwrap
from tests.pipeline.rules.findings import ids
from vecwrap.errors import PlanError

NORMALIZE_OBSERVATION = "gymnasium.wrappers:NormalizeObservation"


def only(line, **settings):
    (finding,) = vecwrap.check(line, **{"n": 2, "backend": "dummy", **settings})
    return finding


# -- normalize_images ------------------------------------------------------------------------------


@pytest.mark.parametrize("wrapper", ["normalize", "normalize_obs"])
def test_images_without_integers_are_an_error_that_is_told_once(wrapper):
    line = f"PongNoFrameskip-v4 | atari:clip_reward=false | {wrapper}"
    finding = only(line)
    assert (finding.id, finding.severity, finding.wrapper) == ("refused", "error", wrapper)
    with pytest.raises(PlanError):
        vecwrap.build(line, n=2, backend="dummy")


def test_images_with_integers_are_a_warning():
    assert only("PongNoFrameskip-v4 | atari | normalize_obs:integers=true").severity == "warning"


def test_only_the_members_that_are_normalised_count(camera_and_joints):
    both = {"normalize_obs": {"keys": ["camera", "joints"], "integers": True}}
    finding = only(camera_and_joints, wrappers=[both])
    assert "observations['camera']" in finding.reason
    assert "joints" not in finding.reason
    assert ids(camera_and_joints, {"normalize_obs": {"keys": ["joints"]}}) == []


def test_bytes_that_are_no_image_are_refused_but_are_no_images():
    assert ids("vecwrap.testing:ToyEnv env_kwargs.observations=box_int16 | normalize_obs") == [
        "refused"
    ]


# -- normalize_twice -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrappers", "expected"),
    [
        (["normalize_obs", "normalize_reward"], []),
        (["normalize_obs", "normalize"], ["normalize_twice"]),
        (["normalize", "normalize"], ["normalize_twice"] * 2),  # observations and rewards
        (["normalize_reward", "normalize_reward"], ["normalize_twice"]),
        (["mujoco", "normalize_reward"], ["normalize_twice"]),
        ([NORMALIZE_OBSERVATION, "normalize_obs"], ["normalize_twice"]),
        ([NORMALIZE_OBSERVATION, "normalize_reward"], []),
    ],
)
def test_a_second_normaliser_of_the_same(wrappers, expected):
    assert ids("Pendulum-v1", *wrappers) == expected


def test_normalisers_of_different_members_are_no_second_one(camera_and_joints):
    speed = {"normalize_obs": {"keys": ["speed"]}}
    joints = {"normalize_obs": {"keys": ["joints"]}}
    both = {"normalize_obs": {"keys": ["speed", "joints"]}}
    assert ids(camera_and_joints, speed, joints) == []
    assert ids(camera_and_joints, speed, both) == ["normalize_twice"]


# -- reward_inside_normalize -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrappers", "expected"),
    [
        (["scale_reward:0.1", "normalize"], ["reward_inside_normalize"]),
        (["clip_reward", "normalize_reward"], ["reward_inside_normalize"]),
        (["gymnasium.wrappers:ClipReward:-1,1", "normalize_reward"], ["reward_inside_normalize"]),
        (["normalize_reward", "clip_reward"], []),
        (["normalize", "scale_reward:0.1"], []),
        (["clip_reward", "normalize_obs"], []),
    ],
)
def test_rewards_changed_before_they_are_normalised(wrappers, expected):
    assert ids("Pendulum-v1", *wrappers) == expected


@pytest.mark.parametrize(
    ("atari", "found"),
    [
        ("atari", True),
        ("atari:clip_reward=false", False),
        ("atari:machado", False),
        ("atari:machado,clip_reward=true", True),
    ],
)
def test_atari_that_clips_rewards_is_such_a_wrapper(atari, found):
    assert (
        ids("PongNoFrameskip-v4", atari, "normalize_reward") == ["reward_inside_normalize"] * found
    )


# -- normalize_stack -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrappers", "expected"),
    [
        (["framestack:3,padding=first", "normalize"], ["normalize_stack"]),
        (["framestack:3,padding=first", "flatten", "normalize_obs"], ["normalize_stack"]),
        (["framestack:3,padding=first", "normalize_reward"], []),
        (["normalize", "framestack:3,padding=first"], []),
        (["gymnasium.wrappers:FrameStackObservation:3", "normalize_obs"], ["normalize_stack"]),
    ],
)
def test_observations_normalised_after_they_are_stacked(wrappers, expected):
    assert ids("Pendulum-v1", *wrappers) == expected


def test_a_stack_of_other_members_is_none(camera_and_joints):
    stack = {"framestack": {"k": 2, "keys": ["camera"]}}
    assert ids(camera_and_joints, stack, {"normalize_obs": {"keys": ["joints"]}}) == []


def test_the_fix_says_what_can_be_done():
    assert only("Pendulum-v1 | framestack:3,padding=first | normalize_obs").fix == (
        'Put "normalize_obs" before "framestack".'
    )
    inner = only("Pendulum-v1 | gymnasium.wrappers:FrameStackObservation:3 | normalize_obs")
    assert "Use framestack instead" in inner.fix  # a wrapper of the vector cannot go inside
