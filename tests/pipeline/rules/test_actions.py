"""Wrappers of actions in an order that does not work, or not for everyone."""

import numpy as np
import pytest

import vecwrap
from tests.pipeline.rules.findings import ids
from vecwrap.errors import PlanError


@pytest.mark.parametrize(
    ("wrappers", "expected"),
    [
        ("clip_action", []),
        ("rescale_action", []),
        ("clip_action | rescale_action", ["refused"]),
        ("rescale_action | clip_action", ["clip_hides_bounds"]),
        ("rescale_action | monitor | clip_action", ["clip_hides_bounds"]),
        ("mujoco | rescale_action", ["refused"]),
    ],
)
def test_clipping_and_rescaling(wrappers, expected):
    assert ids(f"Pendulum-v1 | {wrappers}") == expected


def test_what_is_said_is_so():
    with pytest.raises(PlanError, match="expected actions with bounds"):
        vecwrap.build("Pendulum-v1 | clip_action | rescale_action", n=1)
    with vecwrap.build("Pendulum-v1 | rescale_action | clip_action", n=1) as env:
        assert not env.single_action_space.is_bounded()
        assert np.array_equal(env.env.single_action_space.high, [1])
