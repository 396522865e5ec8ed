"""Observations that say how far the episode is."""

from copy import deepcopy

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.backends import DummyBackend
from tests.helpers.call_events import MODES, OPERATIONS, check_each_alone, operations
from tests.helpers.stream_envs import ToyEnv, assert_same
from vecwrap.errors import PlanError
from vecwrap.sources.source_factories import SubEnvFactory
from vecwrap.wrappers.time_aware import TimeAware

BOX = spaces.Box(0, 255, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (2, 3), np.uint8)
TREE = spaces.Dict({"z": BOX, "a": spaces.Discrete(5)})
PAIR = spaces.Tuple([BOX, spaces.Discrete(5)])
LIMIT = 6


def limited(make):
    return gymnasium.wrappers.TimeLimit(make(), LIMIT)


def factories(space=BOX, lengths=(3, 9, 1)):
    """Episodes of nine steps are truncated at the limit."""
    return [
        lambda i=i: limited(lambda: ToyEnv(lengths=lengths, index=i, observation_space=space))
        for i in range(3)
    ]


@settings(deadline=None)
@given(
    mode=st.sampled_from(MODES),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    space=st.sampled_from([BOX, IMAGE, TREE, PAIR, spaces.Discrete(5)]),
    flatten=st.booleans(),
    normalize=st.booleans(),
    played=operations,
)
def test_equals_time_aware_observation_of_gymnasium(
    mode, lengths, space, flatten, normalize, played
):
    make = factories(space, lengths)
    alone = [
        lambda m=m: gymnasium.wrappers.TimeAwareObservation(
            m(), flatten=flatten, normalize_time=normalize
        )
        for m in make
    ]
    env = TimeAware(
        DummyBackend(make, autoreset=mode), flatten=flatten, normalize=normalize, limit=LIMIT
    )
    assert env.single_observation_space == alone[0]().observation_space
    check_each_alone(env, alone, played)


@pytest.mark.parametrize("mode", MODES)
def test_terminal_observations_have_the_time_of_the_ended_episode(mode):
    make = factories()
    alone = [lambda m=m: gymnasium.wrappers.TimeAwareObservation(m()) for m in make]
    assert (
        check_each_alone(
            TimeAware(DummyBackend(make, autoreset=mode), limit=LIMIT), alone, OPERATIONS
        )
        > 5
    )


def test_episode_length_counts_rows_that_acted_and_a_masked_reset_touches_its_rows_alone():
    with TimeAware(DummyBackend(factories(lengths=(9,))), flatten=False, limit=LIMIT) as env:
        env.reset()
        env.step([0, 0, 0])
        env.send([0, 0], [0, 2])
        env.recv()
        observations, _ = env.reset(options={"reset_mask": np.array([True, False, False])})
        assert observations["time"].ravel().tolist() == [0, 1, 2]
        assert env.step([0, 0, 0])[0]["time"].ravel().tolist() == [1, 2, 3]


def test_a_row_lost_in_mid_episode_keeps_its_time():
    with TimeAware(
        DummyBackend(factories(lengths=(9,)), autoreset="next_step"), flatten=False, limit=LIMIT
    ) as env:
        env.reset()
        env.step([0, 0, 0])
        env.step_async([0, 0, 0])
        step = env.env.rows.receive(3, None)
        lost = step.lost = np.array([False, True, False])
        step.truncations, step.acted, step.observed = lost, ~lost, ~lost
        env.on_step(step)
        assert step.observations["time"].ravel().tolist() == [2, 1, 2]


def test_the_limit_is_the_environments_own():
    make = [lambda: gymnasium.make("CartPole-v1", max_episode_steps=77)] * 2
    with TimeAware(DummyBackend(make)) as env:
        assert env.limit == 77
    wrappered = SubEnvFactory(
        lambda: gymnasium.make("CartPole-v1").env,
        (lambda env: gymnasium.wrappers.TimeLimit(env, 11),),
    )
    with TimeAware(DummyBackend([wrappered])) as env:
        assert env.limit == 11


@pytest.mark.parametrize("normalize", [False, True])
def test_an_episode_that_outlasts_the_limit_stays_there(normalize):
    with TimeAware(
        DummyBackend(factories(lengths=(9,))), flatten=False, normalize=normalize, limit=2
    ) as env:
        env.reset()
        for _ in range(4):
            observations, *_ = env.step([0, 0, 0])
        assert observations["time"].ravel().tolist() == [1.0 if normalize else 2] * 3
        assert observations in env.observation_space


def test_the_wrapped_space_stays_as_it_was():
    inner = DummyBackend(factories(TREE))
    before = deepcopy(inner.single_observation_space)
    with TimeAware(inner, flatten=False, key="t", limit=LIMIT) as env:
        assert list(env.single_observation_space) == ["a", "t", "z"]
        assert inner.single_observation_space == before


def test_going_on_after_a_load_equals_never_having_stopped():
    with (
        TimeAware(DummyBackend(factories()), limit=LIMIT) as env,
        TimeAware(DummyBackend(factories()), limit=LIMIT) as other,
    ):
        for one in (env, other):
            one.reset()
        for _ in range(2):
            env.step([0, 0, 0])
            other.env.step([0, 0, 0])
        other.load_wrapper_state(env.wrapper_state())
        for _ in range(20):
            assert_same(env.step([0, 0, 0])[0], other.step([0, 0, 0])[0])


@pytest.mark.parametrize(
    ("space", "arguments", "message"),
    [
        (
            BOX,
            {"limit": None},
            (
                "time_aware: expected an environment with a time limit, got one without; put "
                "time_limit"
            ),
        ),
        (BOX, {"limit": 0}, "time_aware: limit: expected at least 1, got 0"),
        (
            TREE,
            {"key": "a"},
            'time_aware: key: the observations have a member "a" already; give another name',
        ),
        (
            BOX,
            {"key": "obs"},
            'time_aware: key: the observations have a member "obs" already; give another name',
        ),
        (
            spaces.Sequence(BOX),
            {},
            "time_aware: expected observations with a flat form of fixed size, got Dict(",
        ),
    ],
)
def test_what_cannot_be_done_is_refused(space, arguments, message):
    make = [lambda: ToyEnv(observation_space=space)] * 2
    with DummyBackend(make) as env, pytest.raises(PlanError) as error:
        TimeAware(env, **{"limit": LIMIT, **arguments})
    assert str(error.value).startswith(message)


def test_members_come_in_the_order_of_the_space():
    space = spaces.Dict({"zeal": BOX, "a": BOX})
    peer = gymnasium.vector.SyncVectorEnv(
        [
            lambda m=m: gymnasium.wrappers.TimeAwareObservation(m(), flatten=False)
            for m in factories(space)
        ]
    )
    with TimeAware(DummyBackend(factories(space)), limit=LIMIT, flatten=False) as env:
        observations, _ = env.reset(seed=1)
        assert (
            list(observations) == list(env.observation_space.spaces) == list(peer.reset(seed=1)[0])
        )
    peer.close()
