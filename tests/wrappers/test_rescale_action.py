"""Actions between bounds of one's choice, moved to those of the environment."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.call_events import MODES
from tests.helpers.echo_env import Echo, echoes, some_actions
from tests.helpers.stream_envs import assert_same
from vecwrap.errors import PlanError
from vecwrap.wrappers.clip_action import ClipAction
from vecwrap.wrappers.rescale_action import RescaleAction

BOX = spaces.Box(np.array([-1, 0, 5], np.float32), np.array([1, 2, 30], np.float32))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.0, 0.5)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_rescale_action_of_gymnasium(low, high, dtype, mode):
    """To the rounding of its arithmetic, which is that of the action's dtype."""
    space = spaces.Box(BOX.low.astype(dtype), BOX.high.astype(dtype), dtype=dtype)
    bounds = [np.broadcast_to(np.array(bound, dtype), (3,)) for bound in (low, high)]
    peers = [gymnasium.wrappers.RescaleAction(Echo(space), *bounds) for _ in range(3)]
    with RescaleAction(echoes(space, autoreset=mode), low, high) as env:
        assert env.single_action_space == peers[0].action_space
        env.reset()
        for peer in peers:
            peer.reset()
        for k in range(2):
            actions = some_actions((3,), dtype, scale=1, seed=k)
            observations, *_ = env.step(actions)
            for i, peer in enumerate(peers):
                np.testing.assert_allclose(
                    observations[i], peer.step(actions[i])[0], rtol=1e-5, atol=1e-5
                )


@settings(deadline=None)
@given(data=st.data(), dtype=st.sampled_from([np.float32, np.float64]))
def test_bounds_become_the_environments_bounds_to_the_bit_and_nothing_between_leaves_them(
    data, dtype
):
    """Gymnasium's float32 arithmetic gives 29.999998 for the greatest action of a Box up to 30."""
    width = {np.float32: 32, np.float64: 64}[dtype]
    number = st.floats(-1000, 1000, width=width, allow_subnormal=False)
    low, high, outer_low, outer_high = (data.draw(number) for _ in range(4))
    if not low < high or not outer_low < outer_high:
        return
    with RescaleAction(echoes(spaces.Box(low, high, (1,), dtype), 2), outer_low, outer_high) as env:
        env.reset()
        space = env.single_action_space
        observations, *_ = env.step(np.stack([space.low, space.high]))
        assert observations.ravel().tolist() == [dtype(low), dtype(high)]
        between = data.draw(st.floats(space.low.item(), space.high.item(), width=width))
        between, _ = env.step(np.full((2, 1), between, dtype))[0]
        slack = np.spacing(max(abs(dtype(low)), abs(dtype(high))))
        assert low - slack <= between.item() <= high + slack


def test_only_the_rows_that_are_sent_are_moved_and_nothing_is_written_to():
    with RescaleAction(echoes(BOX)) as env:
        env.reset()
        actions = np.array([[1, 1, 1], [-1, -1, 0]], np.float32)
        before = actions.copy()
        env.send(actions, [2, 0])
        assert env.recv()[0].tolist() == [[-1, 0, 17.5], [1, 2, 30]]
        assert_same(actions, before)


def test_the_wrapped_space_stays_as_it_was():
    inner = echoes(BOX)
    with RescaleAction(inner) as env:
        assert env.single_action_space == spaces.Box(-1, 1, (3,), np.float32)
        assert env.action_space.shape == (3, 3)
        assert inner.single_action_space == BOX


@pytest.mark.parametrize(
    ("space", "arguments", "message"),
    [
        (
            spaces.Discrete(3),
            {},
            (
                "rescale_action: expected actions of a Box of floats, got Discrete(3); leave the "
                "wrapper"
            ),
        ),
        (
            spaces.Box(0, 9, (1,), np.int64),
            {},
            "rescale_action: expected actions of a Box of floats, got Box(0, 9, (1,)",
        ),
        (
            spaces.Box(0, np.inf, (1,)),
            {},
            "rescale_action: expected actions with bounds, got Box(0.0, inf, (1,), float32)",
        ),
        (BOX, {"low": 1.0}, "rescale_action: expected low < high, got low=1.0 and high=1.0"),
        (
            BOX,
            {"high": float("inf")},
            "rescale_action: high: expected a finite number that float32 can hold, got inf",
        ),
        (
            spaces.Box(-1, 1, (2,), np.float16),
            {"low": -1e6},
            "rescale_action: low: expected a finite number that float16 can hold, got -1000000.0",
        ),
    ],
)
def test_what_cannot_be_rescaled_is_refused(space, arguments, message):
    with echoes(space) as env, pytest.raises(PlanError) as error:
        RescaleAction(env, **arguments)
    assert str(error.value).startswith(message)


def test_outside_of_clip_action_there_are_no_bounds_to_move_to():
    with (
        echoes(BOX) as env,
        pytest.raises(PlanError, match="if clip_action removed them, put it outside this"),
    ):
        RescaleAction(ClipAction(env))
