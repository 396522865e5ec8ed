"""The last k observations as one, held against Gymnasium's and SB3's stacks and against lists of
frames.
"""

import platform
import subprocess
import sys
from copy import deepcopy

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.backends import DummyBackend
from tests.helpers.stream_envs import Driver, ToyEnv, assert_same, replay
from vecwrap.errors import PlanError
from vecwrap.wrappers.framestack import FrameStack

MODES = ["same_step", "next_step", "disabled", "episodic"]
operations = st.lists(
    st.tuples(
        st.sampled_from(["step", "step", "step", "reset", "partial"]),
        st.lists(st.booleans(), min_size=3, max_size=3),
    ),
    min_size=5,
    max_size=40,
)
layouts = st.sampled_from(
    [
        # (shape of one observation, axis, channels)
        ((), "new", "last"),
        ((3,), "new", "last"),
        ((2, 3), "new", "last"),
        ((2, 3, 4), "new", "last"),
        ((2, 2, 2, 2), "new", "first"),
        ((), "channel", "last"),
        ((3,), "channel", "last"),
        ((3,), "channel", "first"),
        ((4, 5), "channel", "last"),
        ((4, 5), "channel", "first"),
        ((4, 5, 1), "channel", "last"),
        ((4, 5, 3), "channel", "last"),
        ((1, 4, 5), "channel", "first"),
        ((3, 4, 5), "channel", "first"),
    ]
)


def factories(shape=(3,), dtype=np.float32, lengths=(3, 5, 1), count=3):
    return [lambda i=i: ToyEnv(lengths, i, shape, dtype) for i in range(count)]


def naive(frames, shape, axis, channels):
    """Put a list of frames together, as one would by hand."""
    if axis == "new" or not shape:
        return np.array(frames)
    if len(shape) == 2:
        frames = [frame[..., None] if channels == "last" else frame[None] for frame in frames]
    return np.concatenate(frames, axis=-1 if channels == "last" else 0)


# -- stack at reset --------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    mode=st.sampled_from(MODES),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    k=st.integers(1, 5),
    padding=st.sampled_from(["zero", "first"]),
    layout=layouts,
    dtype=st.sampled_from([np.uint8, np.float32, np.int64]),
    played=operations,
)
def test_equals_a_list_of_frames_in_every_mode(mode, lengths, k, padding, layout, dtype, played):
    shape, axis, channels = layout
    make = factories(shape, dtype, lengths)
    backend = DummyBackend(make, autoreset=mode)
    with FrameStack(backend, k, axis=axis, padding=padding, channels=channels) as env:
        for i, events in enumerate(Driver(env).play(played)):
            frames = []
            for event, (frame, *_) in replay(make[i](), events):
                if event.kind == "reset":
                    frames = [np.zeros_like(frame) if padding == "zero" else frame] * k
                frames = [*frames[1:], frame]
                assert_same(event.observation, naive(frames, shape, axis, channels))
                assert env.single_observation_space.contains(event.observation)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("padding", "peers"), [("zero", "zero"), ("first", "reset")])
def test_stack_at_reset_equals_gymnasium_on_each_environment(mode, padding, peers):
    make = factories((2, 3), np.uint8)
    played = (
        [("step", ())] * 7 + [("reset", (1, 0, 1)), ("partial", (0, 1, 1))] + [("step", ())] * 20
    )
    with FrameStack(DummyBackend(make, autoreset=mode), 3, padding=padding) as env:
        for i, events in enumerate(Driver(env).play(played)):
            peer = FrameStackObservation(make[i](), 3, padding_type=peers)
            assert env.single_observation_space == peer.observation_space
            for event, (observation, *_) in replay(peer, events):
                assert_same(event.observation, observation)


def test_stack_at_reset_leaves_the_callers_arrays_alone():
    with FrameStack(DummyBackend(factories()), 2) as env:
        given_out = [env.reset()[0]]
        copies = [given_out[0].copy()]
        for step in range(40):
            observations, *_, infos = env.step([0, 0, 0])
            given_out += [
                observations,
                *(final for final in infos.get("final_obs", []) if final is not None),
            ]
            if step % 7 == 3:
                given_out.append(
                    env.reset(options={"reset_mask": np.array([True, False, False])})[0]
                )
            copies += [array.copy() for array in given_out[len(copies) :]]
        for array, copy in zip(given_out, copies, strict=True):
            assert_same(array, copy)


def test_what_the_caller_writes_into_his_arrays_does_not_come_back():
    with (
        FrameStack(DummyBackend(factories()), 3) as env,
        FrameStack(DummyBackend(factories()), 3) as untouched,
    ):
        env.reset()[0].fill(255)
        untouched.reset()
        for _ in range(12):
            observations, *_, infos = env.step([0, 0, 0])
            expected, *_, expected_infos = untouched.step([0, 0, 0])
            assert_same(observations, expected)
            for i in np.flatnonzero(infos.get("_final_obs", ())):
                assert_same(infos["final_obs"][i], expected_infos["final_obs"][i])
            observations.fill(255)


@pytest.mark.parametrize("axis", ["new", "channel"])
def test_stack_keeps_values_of_its_own_where_the_backend_writes_over_its_arrays(axis):
    make = factories(shape=(4, 5), dtype=np.uint8)
    fresh, reused = DummyBackend(make), DummyBackend(make, copy=False)
    with FrameStack(fresh, 3, axis=axis) as expected, FrameStack(reused, 3, axis=axis) as env:
        assert_same(env.reset(seed=1)[0], expected.reset(seed=1)[0])
        for _ in range(20):
            assert_same(env.step([0, 0, 0])[0], expected.step([0, 0, 0])[0])


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint16, np.int16, np.float16, np.float32, np.bool_, np.float64]
)
@pytest.mark.parametrize(
    ("k", "shape"), [(2, (3, 5)), (4, (3, 5, 1)), (8, (3, 5)), (3, (3, 5)), (4, (3, 5, 2))]
)
def test_stack_of_any_number_keeps_every_bit(dtype, k, shape):
    """Also of negative numbers, of NaNs and their signs, and of arrays that lie in memory the other
    way round.
    """
    bits = np.random.default_rng(k).integers(
        0, 256, (12, 2, *shape, np.dtype(dtype).itemsize), np.uint8
    )
    given_in = (bits & 1 if dtype is np.bool_ else bits).view(dtype)[..., 0]
    make = [lambda: ToyEnv((99,), observation_space=spaces.Box(0, 1, shape, dtype))] * 2
    with FrameStack(DummyBackend(make), k, axis="channel") as env:
        env.reset()
        env.step_async([0, 0])
        received = env.env.rows.receive(2, None)
        for t, observations in enumerate(given_in):
            step = received.replace(
                observations=np.asfortranarray(observations) if t % 2 else observations
            )
            env.on_step(step)
        expected = [naive(list(given_in[-k:, i]), shape, "channel", "last") for i in range(2)]
        assert step.observations.tobytes() == np.array(expected).tobytes()


FAULTS_OF_FRESH_STACKS = """
import resource, sys
from vecwrap.backends.dummy import Dummy
from vecwrap.testing import on
import numpy as np
from tests.helpers.stream_envs import ToyEnv
from vecwrap.wrappers.framestack import FrameStack

make = [lambda: ToyEnv((7,), shape=(84, 84, 1), dtype=np.uint8)] * 64
env = FrameStack(on(Dummy)(make), 4, axis=sys.argv[1])
env.reset()
for step in range(40):
    if step == 20:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    observations = env.step([0] * 64)[0]
new_pages = (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 20
print(new_pages, observations.nbytes // resource.getpagesize())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep other books")
@pytest.mark.parametrize("axis", ["new", "channel"])
def test_stack_at_every_step_is_fresh_but_its_memory_is_recycled(axis):
    ran = subprocess.run(
        [sys.executable, "-c", FAULTS_OF_FRESH_STACKS, axis],
        capture_output=True,
        text=True,
        check=True,
    )
    new_pages, pages_of_a_stack = map(int, ran.stdout.split())
    assert new_pages < pages_of_a_stack / 10


# -- stack of colour frames ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "channels"),
    [((6, 5, 1), "last"), ((6, 5, 3), "last"), ((1, 40, 36), "first"), ((3, 40, 36), "first")],
)
def test_stack_of_colour_frames_equals_sb3(shape, channels):
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    make = factories(shape, np.uint8, (3, 5, 2))
    peer = vec_env.VecFrameStack(vec_env.DummyVecEnv(make), 4, channels_order=channels)
    with FrameStack(DummyBackend(make), 4, axis="channel", channels=channels) as env:
        assert env.single_observation_space == peer.observation_space
        assert_same(env.reset()[0], peer.reset())
        ends = 0
        for step in range(40):
            actions = np.full(3, step % 3)
            expected, _, dones, peer_infos = peer.step(actions)
            observations, *_, infos = env.step(actions)
            assert_same(observations, expected)
            for i in np.flatnonzero(dones):
                assert_same(infos["final_obs"][i], peer_infos[i]["terminal_observation"])
                ends += 1
        assert ends > 30


@pytest.mark.parametrize(("axis", "shape"), [("new", (2, 4, 5, 0)), ("channel", (4, 5, 0))])
def test_stack_of_frames_without_channels_is_empty(axis, shape):
    with FrameStack(DummyBackend(factories((4, 5, 0))), 2, axis=axis) as env:
        env.reset()
        assert env.step([0] * 3)[0].shape == (3, *shape) == env.observation_space.shape


def test_stack_of_colour_frames_on_a_new_axis_keeps_every_channel():
    with FrameStack(DummyBackend(factories((4, 5, 3), np.uint8, (9,))), 2) as env:
        first, _ = env.reset()
        second, *_ = env.step([0, 0, 0])
        assert second.shape == (3, 2, 4, 5, 3)
        assert_same(second[:, 0], first[:, 1])
        assert (second[:, 0] != second[:, 1]).all()


# -- terminal observation --------------------------------------------------------------------------


def test_terminal_observation_has_the_ended_history_and_the_next_stack_nothing_of_it():
    with FrameStack(DummyBackend(factories((1,), lengths=(2, 4), count=1)), 3) as env:
        env.reset()
        env.step([0])
        observations, _, terminations, _, infos = env.step([0])
    assert terminations[0]
    assert infos["final_obs"][0].ravel().tolist() == [1, 2, 3]  # 1 + 31 * episode + step
    assert observations.ravel().tolist() == [0, 0, 32]


@pytest.mark.parametrize("begins_at_once", [True, False], ids=["same_step", "next_step"])
@pytest.mark.parametrize("axis", ["new", "channel"])
@pytest.mark.parametrize("dtype", [">i2", ">f4", ">i8"])
def test_terminal_observation_of_big_endian_numbers_has_the_ended_history(
    dtype, axis, begins_at_once
):
    space = spaces.Box(0, 255, (4, 5, 2), np.dtype(dtype))
    make = [lambda: ToyEnv((3, 4), observation_space=space)]
    native = [lambda: ToyEnv((3, 4), 0, (4, 5, 2), np.dtype(dtype).newbyteorder("="))]
    mode = "same_step" if begins_at_once else "next_step"
    with (
        FrameStack(DummyBackend(make, autoreset=mode), 3, axis=axis) as env,
        FrameStack(DummyBackend(native, autoreset=mode), 3, axis=axis) as expected,
    ):
        assert_same(env.reset()[0], expected.reset()[0])
        for _ in range(12):
            results, others = env.step([0]), expected.step([0])
            assert_same(results[0], others[0])
            assert results[0].dtype == env.single_observation_space.dtype
            if "final_obs" in others[4]:
                assert_same(results[4]["final_obs"][0], others[4]["final_obs"][0])


def test_terminal_observation_of_rows_that_did_not_end_is_their_stack():
    with FrameStack(DummyBackend(factories(lengths=(2, 4))), 3) as env:
        env.reset()
        env.reset(options={"reset_mask": np.array([True, False, False])})
        env.step([0, 0, 0])
        env.step_async([0, 0, 0])
        step = env.rows.receive(3, None)
        ended = step.first & step.dones
        assert ended.tolist() == [False, True, True]
        assert_same(step.final_obs[~ended], step.observations[~ended])
        assert (step.final_obs[ended] != step.observations[ended]).any()


@pytest.mark.parametrize("begins_at_once", [True, False], ids=["same_step", "next_step"])
def test_terminal_observation_that_no_action_brought_is_the_stack_that_was_delivered(
    begins_at_once,
):
    """An episode that was lost ends with the last observation that was delivered, which is in the
    history already.
    """
    with FrameStack(DummyBackend(factories(lengths=(9,))), 3) as env:
        env.reset()
        delivered, *_ = env.step([0, 0, 0])
        env.step_async([0, 0, 0])
        step = env.env.rows.receive(3, None)
        lost = step.lost = np.array([False, True, False])
        step.acted, step.observed, step.truncations = ~lost, ~lost | step.first, lost
        step.observations[1] = delivered[1, -1]
        if begins_at_once:
            step.first, step.observed, step.final_obs = lost, ~lost | lost, step.observations.copy()
            step.observations[1] = 7
        env.on_step(step)
        assert_same(step.terminal_observations[1], delivered[1])
        assert_same(step.terminal_observations[0, :-1], delivered[0, 1:])
        if begins_at_once:
            assert step.observations[1].tolist() == [[0] * 3, [0] * 3, [7] * 3]


# -- shared spaces ---------------------------------------------------------------------------------


def test_shared_spaces_are_not_changed_and_bounds_are_repeated():
    space = spaces.Box(np.array([[-1.0, 0.0]]), np.array([[1.0, 5.0]]), dtype=np.float64)
    before = deepcopy(space)
    backend = DummyBackend([lambda: ToyEnv(observation_space=space)] * 2)
    env = FrameStack(backend, 2)
    stacked = env.single_observation_space
    assert stacked == spaces.Box(
        np.array([[[-1.0, 0.0]]] * 2), np.array([[[1.0, 5.0]]] * 2), dtype=np.float64
    )
    assert env.observation_space.shape == (2, 2, 1, 2)
    stacked.low.fill(-9)
    assert space == before == backend.single_observation_space
    env.close()


def test_zeros_are_in_the_space_of_stacks_where_they_pad_it_though_not_in_that_of_frames():
    make = [lambda: ToyEnv(observation_space=spaces.Box(1, 255, (2,), np.uint8))]
    with FrameStack(DummyBackend(make), 3) as env:
        assert env.single_observation_space.low.tolist() == [[0, 0], [0, 0], [1, 1]]
        assert env.observation_space.contains(env.reset()[0])
    with FrameStack(DummyBackend(make), 3, padding="first") as env:
        assert env.single_observation_space.low.min() == 1
        assert env.observation_space.contains(env.reset()[0])


# -- the rest --------------------------------------------------------------------------------------


def test_a_stack_of_stacks_and_views_of_the_slots():
    make = factories((2,))
    with FrameStack(FrameStack(DummyBackend(make, copy=False), 2), 3) as env:
        for i, events in enumerate(Driver(env).play([("step", ())] * 12)):
            peer = make[i]()
            for size in (2, 3):
                peer = FrameStackObservation(peer, size, padding_type="zero")
            for event, (observation, *_) in replay(peer, events):
                assert_same(event.observation, observation)


def test_goes_on_from_a_state_as_if_it_had_never_stopped():
    with (
        FrameStack(DummyBackend(factories()), 3) as env,
        FrameStack(DummyBackend(factories()), 3) as other,
    ):
        env.reset()
        other.reset()
        env.step([0, 0, 0])
        other.env.step([0, 0, 0])
        state = env.wrapper_state()
        other.load_wrapper_state(state)
        state["stacks"].fill(9)
        assert_same(other.step([0, 0, 0])[0], env.step([0, 0, 0])[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "framestack: k: expected at least 1, got 0"),
        (
            {"k": 4, "axis": "chanel"},
            'framestack: axis: expected new or channel, got "chanel". Did you mean "channel"?',
        ),
        (
            {"k": 4, "padding": "reset"},
            'framestack: padding: expected zero or first, got "reset". Did you mean "first"?',
        ),
        (
            {"k": 4, "channels": "frist"},
            'framestack: channels: expected last or first, got "frist". Did you mean "first"?',
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, message):
    with DummyBackend(factories()) as env, pytest.raises(PlanError) as error:
        FrameStack(env, **arguments)
    assert str(error.value) == message


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.Text(3), spaces.MultiBinary(3)])
def test_a_space_that_it_cannot_serve_is_refused(space):
    make = [lambda: ToyEnv(observation_space=space)]
    with DummyBackend(make) as env, pytest.raises(PlanError) as error:
        FrameStack(env, 4)
    assert str(error.value) == (
        f"framestack: expected observations of a Box, got {space}; put a wrapper that makes them "
        "one, such as flatten, inside"
    )


# -- members of a Dict -----------------------------------------------------------------------------

CAMERA, SPEED = spaces.Box(0, 255, (2, 3), np.uint8), spaces.Box(-9, 9, (2,), np.float64)
MACHINE = spaces.Dict(camera=CAMERA, door=spaces.Discrete(4), speed=SPEED, word=spaces.Text(3))


@settings(deadline=None, max_examples=40)
@given(
    mode=st.sampled_from(MODES),
    keys=st.sampled_from([("camera",), ("speed", "camera")]),
    k=st.integers(1, 4),
    axis=st.sampled_from(["new", "channel"]),
    padding=st.sampled_from(["zero", "first"]),
    played=operations,
)
def test_keys_are_stacked_as_lists_of_frames_and_other_members_pass_unchanged(
    mode, keys, k, axis, padding, played
):
    make = [lambda i=i: ToyEnv((3, 5, 1), i, observation_space=MACHINE) for i in range(3)]
    with FrameStack(
        DummyBackend(make, autoreset=mode), k, axis=axis, padding=padding, keys=keys
    ) as env:
        for i, events in enumerate(Driver(env).play(played)):
            frames = {}
            for event, (observation, *_) in replay(make[i](), events):
                expected = dict(observation)
                for key in keys:
                    value = np.asarray(observation[key])
                    if event.kind == "reset":
                        frames[key] = [np.zeros_like(value) if padding == "zero" else value] * k
                    frames[key] = [*frames[key][1:], value]
                    expected[key] = naive(frames[key], value.shape, axis, "last")
                assert_same(event.observation, expected)


def test_keys_left_out_means_every_member_as_gymnasium_does_it_for_one():
    space = spaces.Dict(camera=CAMERA, speed=SPEED)
    make = [lambda: ToyEnv(observation_space=space)] * 2
    peer = FrameStackObservation(ToyEnv(observation_space=CAMERA), 3, padding_type="zero")
    with FrameStack(DummyBackend(make), 3) as env:
        assert env.single_observation_space["camera"] == peer.observation_space
        assert env.single_observation_space["speed"].shape == (3, 2)
        assert list(env.single_observation_space) == ["camera", "speed"]
        assert_same(env.reset()[0]["camera"][1], peer.reset()[0])
        assert_same(env.step([0, 0])[0]["camera"][1], peer.step(0)[0])


def test_keys_that_are_numbers_are_members_like_others():
    space = spaces.Dict({1: spaces.Box(0, 255, (2,)), 2: spaces.Discrete(3)})
    with FrameStack(DummyBackend([lambda: ToyEnv(observation_space=space)]), 2, keys=(1,)) as env:
        observations, _ = env.reset()
        assert list(env.single_observation_space.spaces) == [1, 2]
        assert env.single_observation_space[1].shape == (2, 2)
        assert observations in env.observation_space


def test_keys_leave_shared_spaces_and_the_dicts_that_came_alone():
    space = deepcopy(MACHINE)
    with FrameStack(
        DummyBackend([lambda: ToyEnv(observation_space=space)] * 2), 2, keys=("camera",)
    ) as env:
        assert space == MACHINE == env.env.single_observation_space
        env.reset()
        env.step_async([0, 0])
        step = env.env.rows.receive(2, None)
        came = step.observations
        camera = came["camera"].copy()
        env.on_step(step)
        assert step.observations is not came
        assert_same(came["camera"], camera)
        assert step.observations["speed"] is came["speed"]


def test_keys_go_on_from_a_state_as_if_they_had_never_stopped():
    make = [lambda: ToyEnv(observation_space=MACHINE)] * 2
    wrappers = [FrameStack(DummyBackend(make), 3, keys=("camera", "speed")) for _ in range(2)]
    for env in wrappers:
        env.reset()
    wrappers[0].step([0, 0])
    wrappers[1].env.step([0, 0])
    state = wrappers[0].wrapper_state()
    wrappers[1].load_wrapper_state(state)
    state["stacks"]["camera"].fill(9)
    one, other = (env.step([0, 0])[0] for env in wrappers)
    assert_same(one, other)
    assert one["camera"][0, 1].any()
    for env in wrappers:
        env.close()


@pytest.mark.parametrize(
    ("space", "keys", "message"),
    [
        (
            MACHINE,
            None,
            "framestack: observations['door']: expected a Box, got Discrete(4); name those that "
            "it is for: "
            'keys=["camera", "speed"]',
        ),
        (
            MACHINE,
            ("door",),
            "framestack: observations['door']: expected a Box, got Discrete(4); put a wrapper that",
        ),
        (
            MACHINE,
            ("camra",),
            "framestack: keys: expected members of the observations, ['camera', 'door', 'speed', "
            '\'word\'], got "camra". Did you mean "camera"?',
        ),
        (MACHINE, (), "framestack: keys: expected one or more of"),
        (CAMERA, ("camera",), "framestack: keys: expected observations of a Dict space, got Box"),
    ],
)
def test_keys_that_do_not_fit_are_refused(space, keys, message):
    with (
        DummyBackend([lambda: ToyEnv(observation_space=space)]) as env,
        pytest.raises(PlanError) as error,
    ):
        FrameStack(env, 2, keys=keys)
    assert str(error.value).startswith(message)
