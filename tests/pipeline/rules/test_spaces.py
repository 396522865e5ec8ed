"""Wrappers on spaces that are not, or no longer, what they are for."""

from functools import partial

import pytest

import vecwrap
from tests.pipeline.rules.findings import ids
from vecwrap.errors import PlanError

ROBOT = "vecwrap.testing:ToyEnv env_kwargs.observations=mixed"


# -- what needs a Dict, outside one that extracts a member -----------------------------------------


@pytest.mark.parametrize(
    ("wrappers", "at"),
    [
        (["extract_obs:position", "extract_obs:mesh"], 1),
        (["extract_obs:position", {"filter_obs": [["mesh"]]}], 1),
        (["extract_obs:position", "monitor", {"normalize_obs": {"keys": ["position"]}}], 2),
        (
            [
                "extract_obs:position",
                {"framestack": {"k": 2, "keys": ["position"], "padding": "first"}},
            ],
            1,
        ),
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
    assert (
        ids(camera_and_joints, {"normalize_obs": {"keys": ["joints"]}}, "extract_obs:joints") == []
    )


@pytest.mark.parametrize("keys", ["zzz", 3])
def test_keys_of_another_wrapper_are_its_own_affair(keys):
    class Api(vecwrap.VecEnvWrapper):
        def __init__(self, env, keys=None):
            super().__init__(env)

    assert ids(ROBOT, "extract_obs:position", partial(Api, keys=keys)) == []


def test_a_member_that_is_a_dict_itself():
    nested = {"env_kwargs": {"observations": "nested"}}
    assert ids("vecwrap.testing:ToyEnv", "extract_obs:body", "extract_obs:contacts", **nested) == []
    assert ids("vecwrap.testing:ToyEnv", "extract_obs:camera", "extract_obs:body", **nested) == [
        "refused"
    ]
