"""Gymnasium's own SyncVectorEnv as an independent reference, and where we disagree with it on
purpose.
"""

from copy import deepcopy

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import vecwrap
from tests.helpers.backends import DummyBackend
from tests.helpers.toy_envs import counter, told
from vecwrap.env.random_actions import RandomActions
from vecwrap.testing import SPACES, assert_same, toy

MODES = ["same_step", "next_step", "disabled"]


class Plain(gymnasium.Wrapper):
    """Leaves out of the infos what Gymnasium cannot put into columns: keys whose type or shape
    changes.
    """

    def plain(self, info):
        return {
            key: value for key, value in info.items() if key not in ("score", "anything", "ragged")
        }

    def reset(self, **arguments):
        observation, info = self.env.reset(**arguments)
        return observation, self.plain(info)

    def step(self, action):
        *result, info = self.env.step(action)
        return *result, self.plain(info)


def plain_toy(**keywords):
    make = toy(well_behaved=True, **keywords)
    return lambda: Plain(make())


def side_by_side(factories, mode):
    return DummyBackend(factories, autoreset=mode), SyncVectorEnv(
        factories,
        autoreset_mode=DummyBackend(factories[:1], autoreset=mode).metadata["autoreset_mode"],
    )


def of_the_space(space, value):
    """A value in the space's own dtype; Gymnasium's final_obs holds what the environment gave, say
    an int.
    """
    if isinstance(space, gymnasium.spaces.Dict):
        return {key: of_the_space(member, value[key]) for key, member in space.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(of_the_space(*pair) for pair in zip(space, value, strict=True))
    if isinstance(space, gymnasium.spaces.Box):
        # An array without axes too: a scalar is no element of it.
        return np.asarray(value, space.dtype)
    if isinstance(space, gymnasium.spaces.Discrete):
        return np.asarray(value, space.dtype)[()]
    return value


def in_our_types(space, result):
    *rest, infos = result
    if "final_obs" in infos:
        final = np.full(len(infos["final_obs"]), None)
        for i, value in enumerate(infos["final_obs"]):
            final[i] = None if value is None else of_the_space(space, value)
        infos = {**infos, "final_obs": final}
    return *rest, infos


def compare(factories, mode, steps, seed):
    """Step both, with masked resets mixed in; give how many ends there were."""
    ours, theirs = side_by_side(factories, mode)
    rng = np.random.default_rng(seed)
    policy = RandomActions(ours, seed)
    n = len(factories)
    ends = 0
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert_same(theirs.reset(seed=seed), ours.reset(seed=seed))
    for k in range(steps):
        actions = gymnasium.vector.utils.concatenate(
            ours.single_action_space,
            policy(),
            gymnasium.vector.utils.create_empty_array(ours.single_action_space, n),
        )
        expected = in_our_types(ours.single_observation_space, theirs.step(actions))
        assert_same(expected, ours.step(actions), f"{mode}, step {k}")
        dones = expected[2] | expected[3]
        ends += int(dones.sum())
        mask = rng.random(n) < (0.4 if rng.random() < 0.1 else 0)
        if mode == "disabled":
            mask |= dones
        if mask.any():
            seeds = [None if rng.random() < 0.5 else int(rng.integers(99)) for _ in range(n)]
            options = {"reset_mask": mask, **({"level": 3} if rng.random() < 0.5 else {})}
            expected = theirs.reset(seed=seeds, options=dict(options))
            assert_same(
                expected,
                ours.reset(seed=seeds, options=options),
                f"{mode}, masked reset after step {k}",
            )
    ours.close()
    theirs.close()
    return ends


@pytest.mark.parametrize("mode", MODES)
def test_toys_are_as_in_gymnasium(mode):
    assert (
        compare([plain_toy(observations="nested", actions="nested")] * 4, mode, steps=250, seed=1)
        >= 50
    )


@pytest.mark.parametrize(
    ("space", "mode"),
    [
        (space, mode)
        if mode == MODES[0] or space in ("nested", "mixed")
        else pytest.param(space, mode, marks=pytest.mark.full)
        for space in SPACES
        for mode in MODES
    ],
)
def test_every_space_is_as_in_gymnasium(space, mode):
    assert (
        compare([plain_toy(observations=space, actions=space, end=0.1)] * 2, mode, steps=30, seed=2)
        >= 5
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Blackjack-v1", "MountainCar-v0"])
def test_gymnasiums_environments_are_as_in_gymnasium(env_id, mode):
    def make():
        return gymnasium.make(env_id, disable_env_checker=True, max_episode_steps=15)

    assert compare([make] * 3, mode, steps=100, seed=3) >= 10


@pytest.mark.parametrize("mode", MODES)
def test_the_metadata_say_the_mode_as_gymnasium_does(mode):
    ours, theirs = side_by_side([counter()], mode)
    assert isinstance(ours.metadata["autoreset_mode"], AutoresetMode)
    assert ours.metadata == theirs.metadata
    assert ours.autoreset_mode is theirs.autoreset_mode


# -- where we disagree: docs/semantics.md has a row for each ---------------------------------------


def test_disagreement_the_terminal_observation_is_a_copy():
    """Gymnasium hands out the environment's own array, which the reset overwrites."""
    ours, theirs = side_by_side([toy(observations="box_float32", end=0.2)], "same_step")
    copied = DummyBackend([toy(observations="box_float32", end=0.2, well_behaved=True)])
    for env in (ours, theirs, copied):
        env.reset(seed=1)
    while True:
        *_, infos = ours.step([0])
        expected = copied.step([0])[-1]
        peer = theirs.step([0])
        if "final_obs" in infos:
            break
    assert_same(expected["final_obs"], infos["final_obs"])
    assert not np.array_equal(peer[4]["final_obs"][0], infos["final_obs"][0])
    assert np.array_equal(peer[4]["final_obs"][0], peer[0][0]), (
        "Gymnasium has mended this: move the test up"
    )


def test_disagreement_final_obs_has_the_dtype_of_the_space():
    """Gymnasium hands on whatever the environment gave, so that it differs from the same value in
    the batch.
    """
    ours, theirs = side_by_side(
        [lambda: gymnasium.make("FrozenLake-v1", max_episode_steps=1)], "same_step"
    )
    for env, kind in ((ours, np.int64), (theirs, int)):
        env.reset(seed=1)
        assert type(env.step(np.array([0]))[4]["final_obs"][0]) is kind


def test_disagreement_infos_with_mixed_types_are_promoted():
    """1 in the first row and 2.7 in the second: Gymnasium's column is of the first one's type."""
    ours, theirs = side_by_side([told(info={"x": 1}), told(info={"x": 2.7})], "same_step")
    assert_same(np.array([1.0, 2.7]), ours.reset()[1]["x"])
    assert_same(np.array([1, 2]), theirs.reset()[1]["x"])


def test_disagreement_options_are_not_touched():
    """Gymnasium pops the mask out of the caller's dict."""
    ours, theirs = side_by_side([counter()] * 2, "disabled")
    for env, left in ((ours, {"reset_mask", "level"}), (theirs, {"level"})):
        env.reset(seed=1)
        options = {"reset_mask": np.array([True, False]), "level": 1}
        env.reset(options=options)
        assert set(options) == left


def test_disagreement_stepping_an_ended_row_is_an_error_with_a_name():
    """Gymnasium's Sync fails an assertion (its Async goes on)."""
    ours, theirs = side_by_side([counter(length=1)] * 2, "disabled")
    for env, error in ((ours, ResetNeeded), (theirs, AssertionError)):
        env.reset(seed=1)
        env.step(np.array([0, 0]))
        with pytest.raises(error):
            env.step(np.array([0, 0]))


def test_disagreement_numpy_integers_are_integers():
    """Gymnasium takes np.int64(3) for a sequence."""
    ours, theirs = side_by_side([plain_toy()] * 2, "same_step")
    assert_same(theirs.reset(seed=3), ours.reset(seed=np.int64(3)))
    with pytest.raises(TypeError):
        theirs.reset(seed=np.int64(3))


def test_disagreement_rewards_of_one_element_are_numbers():
    """Where Gymnasium leaves it to NumPy's deprecated conversion."""
    env = DummyBackend([told(reward=np.array([1.5])), told(reward=np.float32(2)), told(reward=3)])
    env.reset()
    assert_same(np.array([1.5, 2.0, 3.0]), env.step([0, 0, 0])[1])


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_agreement_a_reset_clears_a_pending_autoreset(mode):
    """As Gymnasium's Sync; its Async without shared memory resets a second time."""
    ours, theirs = side_by_side([counter(length=2)] * 2, mode)
    for env in (ours, theirs):
        env.reset(seed=1)
        env.step(np.array([0, 0]))
        env.step(np.array([0, 0]))  # both end
    mask = np.array([True, False])
    assert_same(
        theirs.reset(options={"reset_mask": mask.copy()}),
        deepcopy(ours.reset(options={"reset_mask": mask})),
    )
    assert_same(theirs.step(np.array([0, 0])), ours.step(np.array([0, 0])))


# -- what docs/migrating.md says remains different -------------------------------------------------


def rows_of(env, actions):
    env.reset(seed=1)
    rows = [env.step(action)[:2] for action in actions]
    env.close()
    return [np.stack(each) for each in zip(*rows, strict=True)]


@pytest.mark.parametrize(
    ("id", "steps", "bound"),
    [
        ("Pendulum-v1", 50, 5e-7),
        ("Pendulum-v1", 199, 7e-5),
        ("HalfCheetah-v5", 1, 4e-7),
        ("HalfCheetah-v5", 10, 4e-4),
    ],
)
def test_actions_in_float64_are_cast_and_the_difference_is_as_small_as_the_page_says(
    id, steps, bound
):
    if id.startswith("Half"):
        pytest.importorskip("mujoco")

    def peer():
        return SyncVectorEnv(
            [lambda: gymnasium.make(id)] * 3, autoreset_mode=AutoresetMode.SAME_STEP
        )

    space = peer().single_action_space
    actions = np.random.default_rng(2).uniform(space.low, space.high, (steps, 3, *space.shape))
    ours = rows_of(vecwrap.build(id, n=3, backend="dummy"), actions)
    for one, other in zip(ours, rows_of(peer(), actions.astype(np.float32)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert 0 < abs(ours[0] - rows_of(peer(), actions)[0]).max() <= bound


def test_a_new_attribute_is_set_on_the_environment_itself_and_by_peers_on_the_outermost_wrapper():
    def make():
        return gymnasium.wrappers.TimeLimit(Returned(), 9)

    from stable_baselines3.common.vec_env import DummyVecEnv  # here, for workers import this module

    peers = SyncVectorEnv([make]), DummyVecEnv([make])
    for peer in peers:
        peer.set_attr("hint", 1)
        assert "hint" in vars(peer.envs[0])
        assert "hint" not in vars(peer.envs[0].unwrapped)
    with vecwrap.build(make, n=1, backend="dummy") as env:
        env.set_attr("hint", 1)
        (base,) = env.call("get_wrapper_attr", "unwrapped")
        assert base.hint == 1


class Returned(gymnasium.Env):
    """Gives the observation 3 as an int; raises at the action 1."""

    observation_space, action_space = gymnasium.spaces.Discrete(5), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        if action == 1:
            raise KeyError("door")
        return 3, 0.0, True, False, {}


@pytest.mark.parametrize("backend", ["dummy", "subprocess"])
def test_final_obs_of_a_discrete_space_and_what_an_environment_raises(backend):
    peer = SyncVectorEnv([Returned] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    peer.reset()
    assert [type(one) for one in peer.step(np.array([0, 0]))[4]["final_obs"]] == [int, int]
    with pytest.raises(KeyError):
        peer.step(np.array([0, 1]))
    with vecwrap.build(Returned, n=2, backend=backend) as env:
        env.reset()
        assert [type(one) for one in env.step([0, 0])[4]["final_obs"]] == [np.int64, np.int64]
        with pytest.raises(vecwrap.SubEnvError) as raised:
            env.step([0, 1])
    assert (raised.value.index, raised.value.kind) == (1, "KeyError")
    cause = raised.value.__cause__
    assert isinstance(cause, KeyError) if backend == "dummy" else "KeyError: 'door'" in str(cause)
