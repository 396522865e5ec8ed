"""Actions that do not get through, against Gymnasium's and a naive loop."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import StickyAction

from tests.helpers.fake_atari import Game, played
from tests.helpers.stream_envs import ToyEnv, assert_same
from vecwrap.errors import PlanError
from vecwrap.wrappers.frame_skip import FrameSkip
from vecwrap.wrappers.sticky_actions import StickyActions


class Scribbler(gymnasium.Env):
    """Writes into its action, and pays what it was given."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Box(-9, 9, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        given = float(action[0])
        action *= 2
        return np.zeros(1, np.float32), given, False, False, {}


def test_equals_gymnasium_at_equal_seeds():
    actions = np.random.default_rng(3).integers(3, size=400)
    mine, theirs = Game(over=50), Game(over=50)
    for one, other in zip(
        played(StickyActions(mine, 0.25), actions),
        played(StickyAction(theirs, 0.25), actions),
        strict=True,
    ):
        assert_same(one[0], other[0])
        assert one[1:] == other[1:]
    assert mine.actions == theirs.actions
    taken = np.concatenate(mine.actions[:-1])
    assert 0.1 < np.mean(taken != actions) < 0.25  # an action that is repeated may be the one given


def test_repeats_the_action_before_as_a_naive_loop_does():
    env = StickyActions(Game(over=7), 0.5)
    env.reset(seed=4)
    generator, given = np.random.default_rng(4), np.random.default_rng(5)
    expected, previous = [[]], None
    for _ in range(60):
        action = int(given.integers(3))
        previous = action if previous is None or generator.uniform() >= 0.5 else previous
        expected[-1].append(previous)
        if env.step(action)[2]:
            env.reset()
            expected.append([])
            previous = None
    assert env.unwrapped.actions == expected


def test_what_is_repeated_is_what_was_given_whatever_is_written_into_it():
    env = StickyActions(Scribbler(), 0.999)
    env.reset(seed=1)
    buffer = np.ones(1, np.float32)
    rewards = [env.step(buffer)[1]]
    for _ in range(4):
        buffer[:] = -5  # the caller fills one buffer again and again
        rewards.append(env.step(buffer)[1])
        assert buffer[0] == -5
    assert rewards == [1.0] * 5
    peer = StickyAction(Scribbler(), 0.999)
    peer.reset(seed=1)
    # Why it is not used.
    assert [peer.step(np.ones(1, np.float32))[1] for _ in range(4)] == [
        1.0,
        2.0,
        4.0,
        8.0,
    ]


def test_inside_of_a_skip_it_draws_for_each_frame_and_outside_for_each_agent_step():
    inside, outside = (
        FrameSkip(StickyActions(Game(), 0.5), 4),
        StickyActions(FrameSkip(Game(), 4), 0.5),
    )
    for env in (inside, outside):
        env.reset(seed=6)
        for action in [1, 2] * 20:
            env.step(action)
    whole = [
        len(set(step)) == 1
        for env in (inside, outside)
        for step in np.reshape(env.unwrapped.actions[0], (-1, 4))
    ]
    assert not all(whole[:40])
    assert all(whole[40:])


def test_goes_on_from_a_state_as_if_it_had_never_stopped():
    env, other = StickyActions(Game(), 0.5), StickyActions(Game(), 0.5)
    env.reset(seed=8)
    env.step(2)
    other.reset()
    state = env.state_dict()
    state["previous"] = np.array(state["previous"])  # as a file holds it
    other.load_state_dict(state)
    other.unwrapped.np_random = np.random.default_rng(2)
    env.unwrapped.np_random = np.random.default_rng(2)
    for _ in range(20):
        env.step(0)
        other.step(0)
    assert env.unwrapped.actions[0][1:] == other.unwrapped.actions[0]
    assert 2 in other.unwrapped.actions[0]


@pytest.mark.parametrize(
    ("env", "probability", "message"),
    [
        (
            ToyEnv(),
            1.0,
            (
                "sticky_actions: repeat_action_probability: expected 0 or more and less than 1, "
                "got 1.0"
            ),
        ),
        (
            ToyEnv(),
            -0.1,
            (
                "sticky_actions: repeat_action_probability: expected 0 or more and less than 1, "
                "got -0.1"
            ),
        ),
        (
            Game(sticky=0.25),
            0.25,
            "sticky_actions: expected a game without sticky actions, got one whose emulator "
            "repeats actions with probability 0.25; make it with repeat_action_probability=0",
        ),
    ],
)
def test_what_does_not_fit_is_refused(env, probability, message):
    with pytest.raises(PlanError) as error:
        StickyActions(env, probability)
    assert str(error.value).startswith(message)
