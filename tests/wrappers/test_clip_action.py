"""Actions clipped to the bounds of the environment's action space."""

from copy import deepcopy

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tests.helpers.backends import DummyBackend
from tests.helpers.call_events import MODES
from tests.helpers.echo_env import Echo, echoes, some_actions
from tests.helpers.stream_envs import assert_same
from vecwrap.errors import PlanError
from vecwrap.wrappers.clip_action import ClipAction
from vecwrap.wrappers.rescale_action import RescaleAction

BOX = spaces.Box(np.array([-1, 0, -np.inf], np.float32), np.array([1, 2, 3], np.float32))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "space",
    [BOX, spaces.Box(-2, 5, (), np.float64), spaces.Box(-1, 1, (2, 2), np.float32)],
    ids=str,
)
def test_equals_clip_action_of_gymnasium(space, mode):
    peers = [gymnasium.wrappers.ClipAction(Echo(space)) for _ in range(3)]
    with ClipAction(echoes(space, autoreset=mode)) as env:
        assert env.single_action_space == peers[0].action_space
        assert env.action_space == gymnasium.vector.utils.batch_space(peers[0].action_space, 3)
        env.reset()
        for peer in peers:
            peer.reset()
        for k in range(2):
            actions = some_actions(space.shape, space.dtype, seed=k)
            observations, rewards, *_ = env.step(actions)
            for i, peer in enumerate(peers):
                expected, reward, *_ = peer.step(actions[i])
                assert_same(observations[i], expected)
                assert rewards[i] == reward
                assert env.env.single_action_space.contains(
                    np.asarray(observations[i], space.dtype)
                )


def test_only_the_rows_that_are_sent_are_clipped_and_nothing_is_written_to():
    with ClipAction(echoes(BOX)) as env:
        env.reset()
        actions = np.array([[9, 9, 9], [-9, -9, -9]], np.float32)
        before = actions.copy()
        env.send(actions, [2, 0])
        assert env.recv()[0].tolist() == [[-1, 0, -9], [1, 2, 3]]
        assert_same(actions, before)


def test_integer_actions_are_clipped_too():
    with ClipAction(echoes(spaces.Box(-3, 3, (2,), np.int8))) as env:
        assert env.single_action_space == spaces.Box(-128, 127, (2,), np.int8)
        env.reset()
        observations, *_, infos = env.step(np.full((3, 2), 100, np.int8))
        assert observations.tolist() == [[3, 3]] * 3
        assert infos["dtype"].tolist() == ["int8"] * 3


def test_shared_spaces_of_what_it_wraps_are_not_rewritten():
    inner = echoes(BOX)
    before = deepcopy((inner.single_action_space, inner.action_space))
    with ClipAction(inner) as env:
        assert env.single_action_space != BOX
        assert (inner.single_action_space, inner.action_space) == before


def test_inside_of_a_rescaling_it_takes_care_of_what_lies_outside():
    space = spaces.Box(0, 10, (1,), np.float32)
    with RescaleAction(echoes(space), -1, 1) as loose:
        loose.reset()
        assert loose.step([[2.0], [0.0], [1.0]])[0].ravel().tolist() == [15, 5, 10]
    with ClipAction(RescaleAction(echoes(space), -1, 1)) as env:
        env.reset()
        assert env.step([[2.0], [0.0], [-9.0]])[0].ravel().tolist() == [10, 5, 0]


def test_actions_without_bounds_to_clip_to_are_refused():
    with (
        DummyBackend([lambda: gymnasium.make("CartPole-v1")]) as env,
        pytest.raises(PlanError) as error,
    ):
        ClipAction(env)
    assert (
        str(error.value)
        == "clip_action: expected actions of a Box, got Discrete(2); leave the wrapper out"
    )
