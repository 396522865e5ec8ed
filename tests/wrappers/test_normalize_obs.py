"""Observations normalised by running statistics: the same as by hand, in every mode, with masks and
partial batches.
"""

from copy import deepcopy

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.backends import DummyBackend
from tests.helpers.call_events import MODES, OPERATIONS, calls_of, operations
from tests.helpers.reference_normalizer import mean_and_var, normalized_observations
from tests.helpers.stream_envs import ToyEnv, assert_same
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import CheckpointError, NotFiniteError, PlanError, ResetNeededError
from vecwrap.wrappers.clip_reward import ClipReward
from vecwrap.wrappers.extract_obs import ExtractObs
from vecwrap.wrappers.framestack import FrameStack
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.normalize_obs import NormalizeObs

BOX = spaces.Box(0, 255, (2, 3), np.float32)
IMAGE = spaces.Box(0, 255, (2, 3), np.uint8)
DOUBLE = spaces.Box(-np.inf, np.inf, (), np.float64)
TREE = spaces.Dict(
    {
        "a": BOX,
        "b": spaces.Discrete(5),
        "c": spaces.Box(0, 300, (2,), np.float64),
        "t": spaces.Text(3),
    }
)
STEPS = [("step", ())] * 25


def factories(space=BOX, lengths=(3, 5, 1)):
    return [lambda i=i: ToyEnv(lengths=lengths, index=i, observation_space=space) for i in range(3)]


def backend(space=BOX, mode="same_step", lengths=(3, 5, 1), **options):
    return DummyBackend(factories(space, lengths), autoreset=mode, **options)


def check(space, mode, played, lengths=(3, 5, 1), clip=10.0, key=None, **arguments):
    """Compare every observation of every call with what comes out by hand."""

    def member(observation):
        return observation if key is None else observation[key]

    with (
        backend(space, mode, lengths) as raw,
        NormalizeObs(backend(space, mode, lengths), clip=clip, **arguments) as env,
    ):
        calls = calls_of(raw, played)
        for events, expected in zip(
            calls_of(env, played), normalized_observations(calls, clip, member), strict=True
        ):
            for (_, event), value in zip(events, expected, strict=True):
                assert member(event.observation).dtype == np.float32
                np.testing.assert_allclose(member(event.observation), value, rtol=2e-6, atol=2e-6)
    return calls


@settings(deadline=None)
@given(
    mode=st.sampled_from(MODES),
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    space=st.sampled_from([BOX, DOUBLE, IMAGE]),
    clip=st.sampled_from([10.0, 1.0, np.inf]),
    played=operations,
)
def test_running_statistics_equal_those_by_hand(mode, lengths, space, clip, played):
    check(space, mode, played, lengths, clip, integers=True)


@pytest.mark.parametrize("mode", MODES)
def test_what_counts_is_what_the_agent_acts_on_and_no_terminal_observation(mode):
    with backend(mode=mode) as raw, NormalizeObs(backend(mode=mode)) as env:
        calls = calls_of(raw, OPERATIONS)
        calls_of(env, OPERATIONS)
        terminal = [e for events in calls for _, e in events if e.terminated or e.truncated]
        counted = [
            e.observation
            for events in calls
            for _, e in events
            if not (e.terminated or e.truncated)
        ]
        statistics = env.observations.statistics[None]
        assert len(terminal) > 8
        assert statistics.count == pytest.approx(len(counted), abs=0.001)
        mean, var = mean_and_var(counted, (2, 3))
        np.testing.assert_allclose(statistics.mean, mean, rtol=1e-12)
        np.testing.assert_allclose(statistics.var, var, rtol=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_terminal_observations_are_normalized_with_current_statistics(mode):
    calls = check(BOX, mode, OPERATIONS)
    assert sum(e.terminated or e.truncated for events in calls for _, e in events) > 8


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("key", ["a", "c"])
def test_members_of_a_dict_are_normalized_each_by_itself(mode, key):
    check(TREE, mode, OPERATIONS, key=key, keys=("a", "c"))


def test_other_members_are_left_as_they_are_and_the_space_says_what_comes():
    with backend(TREE) as raw, NormalizeObs(backend(TREE), keys=("c",), clip=5) as env:
        space = env.single_observation_space
        assert list(space.spaces) == list(raw.single_observation_space.spaces)
        assert space["c"] == spaces.Box(-5, 5, (2,), np.float32)
        for (_, expected), (_, event) in zip(
            *[[e for events in calls_of(one, STEPS) for e in events] for one in (raw, env)],
            strict=True,
        ):
            assert event.observation in space
            for key in ("a", "b", "t"):
                assert_same(event.observation[key], expected.observation[key])


def test_shared_spaces_of_a_wrapped_dict_are_not_rewritten():
    inner = backend(TREE)
    before = deepcopy(inner.single_observation_space), deepcopy(inner.observation_space)
    with NormalizeObs(inner, keys=("a",)) as env:
        assert env.single_observation_space != before[0]
        assert (inner.single_observation_space, inner.observation_space) == before
        assert inner.get_attr("observation_space")[0] == before[0]


@pytest.mark.parametrize("mode", MODES)
def test_evaluation_freezes_the_statistics_and_training_resumes(mode):
    with backend(mode=mode) as raw, NormalizeObs(backend(mode=mode), clip=np.inf) as env:
        calls = calls_of(raw, STEPS)
        env.eval()
        frozen = calls_of(env, STEPS)
        expected = normalized_observations(calls, clip=np.inf, training=lambda k: False)
        for events, values in zip(frozen, expected, strict=True):
            for (_, event), value in zip(events, values, strict=True):
                np.testing.assert_allclose(event.observation, value, rtol=2e-6)
        assert env.observations.statistics[None].count < 1
        env.train()
        calls_of(env, STEPS)
        assert env.observations.statistics[None].count > 10


@pytest.mark.parametrize("mode", MODES)
def test_original_observations_are_given_also_through_outer_wrappers(mode):
    with (
        backend(TREE, mode) as raw,
        ExtractObs(NormalizeObs(backend(TREE, mode), keys=("a",)), "a") as env,
    ):
        with pytest.raises(ResetNeededError, match="there is no original yet"):
            env.get_original_obs()
        mask = {"reset_mask": np.array([True, False, True])}
        for call, arguments in [
            ("reset", {}),
            ("step", {"actions": [0, 1, 2]}),
            ("reset", {"options": mask}),
        ]:
            observations, *_ = getattr(raw, call)(**deepcopy(arguments))
            getattr(env, call)(**deepcopy(arguments))
            assert_same(env.get_original_obs(), observations)
        for one in (raw, env):
            one.send([0, 1], [0, 2])
            part = one.recv()[0]
        assert part.shape == (2, 2, 3)
        assert_same(
            env.get_original_obs(),
            raw.call_state.results.to_gymnasium(raw.call_state.results.last_observations.all()),
        )
        env.get_original_obs()["a"][:] = -1  # a copy
        assert_same(
            env.get_original_obs(),
            raw.call_state.results.to_gymnasium(raw.call_state.results.last_observations.all()),
        )


def test_original_observations_without_such_a_wrapper_are_an_error():
    with (
        backend() as env,
        pytest.raises(LookupError, match="no wrapper that normalises observations: normalize or"),
    ):
        env.get_original_obs()


@pytest.mark.parametrize("mode", MODES)
def test_going_on_after_a_load_equals_never_having_stopped(mode):
    make = [lambda i=i: ToyEnv(index=i, observation_space=BOX, lengths=(40,)) for i in range(3)]
    with (
        NormalizeObs(DummyBackend(make, autoreset=mode)) as env,
        NormalizeObs(DummyBackend(make, autoreset=mode)) as other,
    ):
        for one in (env, other):
            one.reset(seed=0)
        for _ in range(5):
            env.step([0, 1, 2])
            other.env.step([0, 1, 2])
        state = env.wrapper_state()
        copy = deepcopy(state)
        other.load_wrapper_state(state)
        assert_same(other.get_original_obs(), env.get_original_obs())
        for _ in range(50):
            if mode == "disabled" and other.core.rows.needs_reset.ended.any():
                for one in (env, other):
                    one.reset()
            assert_same(env.step([0, 1, 2])[0], other.step([0, 1, 2])[0])
        assert_same(state["shown"], copy["shown"])
        np.testing.assert_array_equal(
            state["statistics"][""]["mean"], copy["statistics"][""]["mean"]
        )


def test_after_a_load_a_row_at_rest_shows_what_it_showed():
    make = [
        lambda i=i: ToyEnv(index=i, observation_space=BOX, lengths=(2 + 9 * i,)) for i in range(2)
    ]
    with NormalizeObs(DummyBackend(make, autoreset="episodic")) as env:
        other = NormalizeObs(DummyBackend(make, autoreset="episodic"))
        for one in (env, other.env):
            one.reset()
            for _ in range(4):
                shown = one.step([0, 0])[0]
            if one is env:
                normalized = shown
        other.load_wrapper_state(env.wrapper_state())
        assert_same(other.step([0, 0])[0][0], normalized[0])
        other.close()


@pytest.mark.parametrize(
    ("space", "keys", "message"),
    [
        (
            DOUBLE,
            None,
            (
                "normalize_obs: observations: expected statistics of shape (2, 3), got (); they "
                "belong to"
            ),
        ),
        (TREE, ("a",), "normalize_obs: expected statistics of [''], got ['a']"),
    ],
)
def test_statistics_of_another_shape_are_refused(space, keys, message):
    with NormalizeObs(backend()) as env, NormalizeObs(backend(space), keys=keys) as other:
        state = other.wrapper_state()
        with pytest.raises(CheckpointError) as error:
            env.load_wrapper_state(state)
    assert str(error.value).startswith(message)


def test_a_value_that_is_not_finite_is_refused_before_anything_is_counted():
    class Spoilt(ToyEnv):
        def observe(self):
            value = super().observe()
            value[0, 0] = np.nan if self.index == 1 and self.time == 2 else value[0, 0]
            return value

    make = [lambda i=i: Spoilt(index=i, observation_space=BOX, lengths=(9,)) for i in range(3)]
    with NormalizeObs(DummyBackend(make)) as env:
        env.reset()
        env.step([0, 0, 0])
        before = deepcopy(env.wrapper_state())
        with pytest.raises(
            NotFiniteError,
            match="normalize_obs: observations of sub-environment 1: expected finite",
        ) as e:
            env.step([0, 0, 0])
        assert e.value.index == 1
        after = env.wrapper_state()
        np.testing.assert_array_equal(
            after["statistics"][""]["mean"], before["statistics"][""]["mean"]
        )
        env.eval()
        env.reset()
        env.step([0, 0, 0])
        assert np.isnan(env.step([0, 0, 0])[0][1, 0, 0])


@pytest.mark.parametrize("space", [BOX, DOUBLE, TREE], ids=["box", "scalar", "dict"])
def test_equals_vecnormalize_of_sb3(space):
    """On the same stream.

    SB3 works out a batch's mean in the dtype of the observations, hence the tolerance.
    """
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    keys = None
    if isinstance(space, spaces.Dict):  # SB3's Dict spaces are without Text
        space = spaces.Dict({key: member for key, member in space.spaces.items() if key != "t"})
        keys = ("a", "c")
    peer = vec_env.VecNormalize(
        vec_env.DummyVecEnv(factories(space)), norm_reward=False, norm_obs_keys=keys and list(keys)
    )
    with NormalizeObs(backend(space), keys=keys) as env:
        expected, (observations, _) = peer.reset(), env.reset()
        for step in range(60):
            for key in keys or [None]:
                one, other = (
                    each if key is None else each[key] for each in (observations, expected)
                )
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
                raw, peer_raw = (
                    e.get_original_obs() if key is None else e.get_original_obs()[key]
                    for e in (env, peer)
                )
                assert_same(raw, peer_raw)
            actions = np.full(3, step % 3)
            expected, _, dones, peer_infos = peer.step(actions)
            observations, *_, infos = env.step(actions)
            for i in np.flatnonzero(dones):
                one, other = infos["final_obs"][i], peer_infos[i]["terminal_observation"]
                for key in keys or [None]:
                    np.testing.assert_allclose(
                        *(e if key is None else e[key] for e in (one, other)), rtol=1e-5, atol=1e-5
                    )


def test_equals_gymnasium_within_one_episode():
    """Gymnasium's counts terminal observations too, so beyond an end the two differ."""
    make = [lambda: ToyEnv(lengths=(30,), observation_space=DOUBLE)]
    peer = gymnasium.wrappers.NormalizeObservation(make[0]())
    with NormalizeObs(DummyBackend(make), clip=np.inf) as env:
        np.testing.assert_allclose(env.reset()[0][0], peer.reset()[0], rtol=1e-5)
        for _ in range(25):
            np.testing.assert_allclose(env.step([1])[0][0], peer.step(1)[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("space", "arguments", "message"),
    [
        (
            spaces.Discrete(3),
            {},
            (
                "normalize_obs: expected observations of a Box of floats, got Discrete(3); the "
                "wrapper fl"
            ),
        ),
        (
            IMAGE,
            {},
            (
                "normalize_obs: expected observations of a Box of floats, got Box(0, 255, (2, 3), "
                "uint8); the wrapper f"
            ),
        ),
        (
            TREE,
            {},
            (
                "normalize_obs: observations['b']: expected a Box of floats, got Discrete(5); "
                "name those that it is "
            ),
        ),
        (TREE, {"keys": ("A",)}, "normalize_obs: keys: expected members of the observations, ["),
        (TREE, {"keys": ()}, "normalize_obs: keys: expected one or more of ["),
        (
            BOX,
            {"keys": ("a",)},
            "normalize_obs: keys: expected observations of a Dict space, got Box(",
        ),
        (BOX, {"clip": 0.0}, "normalize_obs: clip: expected a number above 0, got 0.0"),
        (
            BOX,
            {"epsilon": float("nan")},
            "normalize_obs: epsilon: expected a number above 0, got nan",
        ),
    ],
)
def test_what_cannot_be_normalized_is_refused(space, arguments, message):
    with backend(space) as env, pytest.raises(PlanError) as error:
        NormalizeObs(env, **arguments)
    assert str(error.value).startswith(message)


def test_a_row_lost_in_mid_episode_shows_again_what_it_showed():
    with NormalizeObs(backend(mode="next_step", lengths=(9,))) as env:
        env.reset()
        shown = env.step([0, 0, 0])[0].copy()
        env.step_async([0, 0, 0])
        step = env.env.rows.receive(3, None)
        lost = step.lost = np.array([False, True, False])
        step.truncations, step.acted, step.observed = lost, ~lost, ~lost
        count = env.observations.statistics[None].count
        env.on_step(step)
        assert_same(step.observations[1], shown[1])
        assert env.observations.statistics[None].count == count + 2


class LookAt(VecEnvWrapper):
    """Keeps the results that pass."""

    def __init__(self, env):
        super().__init__(env)
        self.steps = []

    def on_step(self, step):
        self.steps.append(step.replace())


def test_other_rows_of_final_obs_equal_the_observations():
    env = LookAt(NormalizeObs(backend()))
    env.reset(seed=1)
    for _ in range(12):
        env.step(np.zeros(3, np.int64))
    ends = [step for step in env.steps if step.final_obs is not None]
    assert ends
    for step in ends:
        others = ~(step.first & step.dones)
        assert_same(step.final_obs[others], step.observations[others])


@pytest.mark.parametrize("outer", [[], [Monitor], [Monitor, ClipReward]])
def test_a_masked_reset_repeats_what_was_returned_whatever_the_user_wrote_into_it(outer):
    env = NormalizeObs(FrameStack(backend(mode="disabled", lengths=(9, 9, 9)), 2))
    for wrapper in outer:
        env = wrapper(env)
    env.reset(seed=1)
    observations = env.step(np.zeros(3, np.int64))[0]
    returned = observations.copy()
    originals = env.get_original_obs()
    observations[:] = -1
    mask = np.array([False, True, False])
    after, _ = env.reset(options={"reset_mask": mask})
    assert_same(after[~mask], returned[~mask])
    assert_same(env.get_original_obs()[~mask], originals[~mask])
