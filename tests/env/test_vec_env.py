"""The face: seeds, masks, actions, send and recv, what is shown again, what it tells of itself."""

import copy
import gc
import pickle
import threading
import weakref

import gymnasium
import numpy as np
import pytest
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, ResetNeeded

import vecwrap
from tests.helpers.backends import DummyBackend
from tests.helpers.toy_envs import counter, told
from vecwrap.env.backend import Backend
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import ArgumentError, SubEnvError
from vecwrap.testing import assert_same, toy


class Doubled(VecEnvWrapper):
    def __init__(self, env):
        super().__init__(env, env.single_observation_space)

    def on_observations(self, observations):
        return observations * 2


def array(*rows):
    return np.array(rows, np.float32)


# -- masks and seeds -------------------------------------------------------------------------------


@pytest.mark.parametrize("wrappers", [0, 1, 2])
def test_a_masked_reset_shows_the_other_rows_as_they_were_last_shown(wrappers):
    env = DummyBackend([counter(length=9)] * 3)
    for _ in range(wrappers):
        env = Doubled(env)
    factor = np.float32(2**wrappers)
    env.reset()
    env.step([0, 0, 0])
    env.send([0], env_ids=[2])
    env.recv()
    observations, infos = env.reset(options={"reset_mask": np.array([False, True, False])})
    assert_same(array([1, 1], [2, 0], [1, 2]) * factor, observations)
    assert_same(np.array([0, 2, 0]), infos["began"])
    assert_same(np.array([False, True, False]), infos["_began"])


def test_a_masked_reset_shows_the_other_rows_as_they_were_before_a_wrapper_changed_any():
    class DoubledUnlessFirst(Doubled):
        def on_step(self, step):
            if not step.first.any():
                super().on_step(step)

    env = DoubledUnlessFirst(DummyBackend([counter(length=9)] * 3))
    env.reset()
    env.send([0], env_ids=[2])
    env.recv()
    observations, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    assert_same(array([1, 0], [2, 0], [2, 2]), observations)


def test_what_is_shown_again_is_a_copy():
    env = DummyBackend([counter(length=9)] * 2)
    env.reset()
    mask = np.array([True, False])
    env.reset(options={"reset_mask": mask})[0][:] = 99
    assert_same(array([3, 0], [1, 0]), env.reset(options={"reset_mask": mask})[0])


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        ([True, False], "expected a NumPy array .*, got list"),
        (np.array([True]), r"expected a NumPy array of shape \(2,\) .*, got shape \(1,\)"),
        (np.array([1, 0]), "dtype bool, got dtype int64"),
        (np.array([False, False]), "at least one True"),
    ],
)
def test_a_bad_mask_is_refused_and_nothing_happens(mask, words):
    env = DummyBackend([counter()] * 2)
    env.reset()
    with pytest.raises(ArgumentError, match=words):
        env.reset(options={"reset_mask": mask})
    assert_same(array([1, 1], [1, 1]), env.step([0, 0])[0])


def test_a_mask_before_the_first_reset_is_refused():
    with pytest.raises(ResetNeeded, match=r"sub-environments \[1\] have never been reset"):
        DummyBackend([counter()] * 2).reset(options={"reset_mask": np.array([True, False])})


def test_options_reach_each_sub_environment_as_a_copy_of_its_own():
    """Each scribbles over what it gets; none sees another's scribbling, nor does the caller."""
    env = DummyBackend([toy()] * 3)
    options = {"level": 1, "map": np.zeros(2), "reset_mask": np.array([True, True, True])}
    env.reset(seed=1)
    infos = env.reset(options=options)[1]
    assert set(options) == {"level", "map", "reset_mask"}
    assert_same(np.zeros(2), options["map"])
    assert infos["options"]["level"].tolist() == [1, 1, 1]
    assert "scribbled" not in infos["options"]


def test_the_seed_given_to_the_build_serves_the_first_reset():
    env, other = DummyBackend([toy()] * 2, seed=7), DummyBackend([toy()] * 2)
    assert_same(other.reset(seed=7), env.reset())
    assert_same(other.reset(), env.reset())


def test_a_seed_given_to_the_first_reset_takes_the_place_of_the_builds_for_good():
    env, other = DummyBackend([toy()] * 2, seed=7), DummyBackend([toy()] * 2)
    assert_same(other.reset(seed=1), env.reset(seed=1))
    # The stream of 1 goes on; it was the build's that began.
    assert_same(other.reset(), env.reset())


def test_the_seed_given_to_the_build_is_there_for_the_rows_that_the_first_reset_gives_none():
    env, other = DummyBackend([toy()] * 3, seed=7), DummyBackend([toy()] * 3)
    assert_same(other.reset(seed=[7, 5, 9]), env.reset(seed=[None, 5, None]))
    assert_same(other.reset(), env.reset())


class RefusesOnce(VecEnvWrapper):
    """Lets no reset through before the second."""

    refused = False

    def before_reset(self, env_ids, seeds):
        if not self.refused:
            self.refused = True
            raise ValueError("not yet")


def test_the_seed_given_to_the_build_is_not_used_up_by_a_reset_that_reaches_nobody():
    env, other = RefusesOnce(DummyBackend([toy()] * 2, seed=7)), DummyBackend([toy()] * 2)
    with pytest.raises(ValueError, match="not yet"):
        env.reset()
    assert_same(other.reset(seed=7), env.reset())
    assert_same(other.reset(), env.reset())


def test_seeds_of_a_list_are_taken_one_each_and_none_leaves_the_generator_alone():
    env = DummyBackend([toy()] * 2)
    env.reset(seed=[3, 8])
    assert env.np_random_seed == (3, 8)
    state = env.np_random[1].bit_generator.state
    env.reset(seed=[4, None], options={"reset_mask": np.array([True, False])})
    assert env.np_random_seed == (4, 8)
    assert env.np_random[1].bit_generator.state == state


@pytest.mark.parametrize("seed", [-1, 1.0, "1", True, [1], [1, "2"], [1, True], [1, -2], {}])
def test_what_is_no_seed_is_refused_before_anything_is_reset(seed):
    env = DummyBackend([counter()] * 2)
    env.reset(seed=1)
    with pytest.raises(ArgumentError, match="seed"):
        env.reset(seed=seed)
    assert_same(array([1, 1], [1, 1]), env.step([0, 0])[0])


# -- send and recv ---------------------------------------------------------------------------------


def test_actions_go_to_the_rows_they_were_sent_for_in_any_order():
    env = DummyBackend([counter(length=9)] * 4)
    env.reset()
    env.send([2, 0, 1], env_ids=[3, 0, 2])
    infos = env.recv()[4]
    assert infos["env_id"].tolist() == [0, 2, 3]
    assert infos["action"].tolist() == [0, 1, 2]


def test_recv_brings_batch_size_rows_and_the_rest_as_they_come():
    env = DummyBackend([counter(length=9)] * 5, batch_size=2)
    env.reset()
    env.send([0] * 5)
    assert [len(env.recv()[1]) for _ in range(3)] == [2, 2, 1]
    env.send([0, 0], env_ids=[1, 4])
    env.send([0], env_ids=[0])
    with pytest.raises(ArgumentError, match=r"\[4\] are pending already"):
        env.send([0], env_ids=[4])
    with pytest.raises(AlreadyPendingCallError):
        env.step([0] * 5)
    assert sorted(np.concatenate([env.recv()[4]["env_id"] for _ in range(2)]).tolist()) == [0, 1, 4]
    env.step([0] * 5)


def test_send_without_ids_goes_to_all_that_are_home():
    env = DummyBackend([counter(length=9)] * 3)
    env.reset()
    env.send([0], env_ids=[1])
    env.send([1, 2])
    assert env.recv()[4]["action"].tolist() == [1, 0, 2]


@pytest.mark.parametrize("env_ids", [[0, 0], [3], [-1], [0.5], [[0]], "a"])
def test_bad_ids_are_refused(env_ids):
    env = DummyBackend([counter()] * 3)
    env.reset()
    with pytest.raises(ArgumentError, match="env_ids"):
        env.send([0] * len(env_ids), env_ids=env_ids)
    env.step([0, 0, 0])


# -- errors ----------------------------------------------------------------------------------------


def test_an_error_carries_what_the_others_gave():
    env = DummyBackend([toy(end=0)] * 3)
    env.reset(seed=1)
    env.set_attr("raise_in", "step", indices=[0, 2])
    with pytest.raises(SubEnvError, match="asked to raise in step") as caught:
        env.step([0, 0, 0])
    error = caught.value
    assert (error.index, error.seed, error.episode, error.step, error.action, error.during) == (
        0,
        1,
        1,
        0,
        0,
        "step",
    )
    assert [failure.index for failure in error.failures] == [0, 2]
    assert error.others[4]["env_id"].tolist() == [1]
    assert isinstance(error.__cause__, RuntimeError)
    with pytest.raises(ResetNeeded, match=r"\[0, 2\]"):
        env.step([0, 0, 0])


def test_an_error_leaves_a_process_whole():
    env = DummyBackend([toy(end=0)] * 3)
    env.reset(seed=1)
    env.set_attr("raise_in", "step", indices=[0, 2])
    with pytest.raises(SubEnvError) as caught:
        env.step([0, 1, 0])
    error = caught.value
    # Exceptions of an environment need not survive pickling.
    error.__cause__.lock = threading.Lock()
    got = pickle.loads(pickle.dumps(error))
    assert type(got) is SubEnvError
    assert str(got) == str(error)
    for name in ("index", "seed", "episode", "step", "action", "during", "kind"):
        assert getattr(got, name) == getattr(error, name)
    assert_same(got.others, error.others)
    assert got.failures[0] is got
    assert got.failures[1].index == 2
    assert "asked to raise in step" in str(got.__cause__)
    assert "Traceback" in str(got.__cause__)


def test_an_error_under_batch_size_leaves_the_other_rows_to_be_received():
    env = DummyBackend([toy(end=0)] * 4, batch_size=2)
    env.reset(seed=1)
    env.set_attr("raise_in", "step", indices=1)
    env.send([0] * 4)
    with pytest.raises(SubEnvError) as caught:
        env.recv()
    assert caught.value.others[4]["env_id"].tolist() == [0]
    assert env.recv()[4]["env_id"].tolist() == [2, 3]
    env.reset(options={"reset_mask": np.array([False, True, False, False])})
    env.step([0] * 4)


# -- what it tells of itself -----------------------------------------------------------------------


def test_it_is_a_gymnasium_vector_environment():
    env = VecEnvWrapper(DummyBackend([toy(observations="nested")] * 2))
    assert isinstance(env, gymnasium.vector.VectorEnv)
    assert env.observation_space == gymnasium.vector.utils.batch_space(
        env.single_observation_space, 2
    )
    assert env.reset(seed=1)[0] in env.observation_space
    with env as entered:
        assert entered is env
    with pytest.raises(ClosedEnvironmentError):
        env.step([0, 0])


def test_the_repr_names_environment_n_backend_mode_and_wrappers():
    def make():
        return gymnasium.make("CartPole-v1")

    env = Doubled(DummyBackend([make] * 2, autoreset="episodic"))
    assert repr(env) == "<VecEnv CartPole-v1, n=2, dummy, episodic, wrappers Doubled>"
    assert repr(DummyBackend([counter()])) == "<VecEnv Counter, n=1, dummy, same_step>"


def test_wrappers_are_found_by_their_class():
    env = Doubled(VecEnvWrapper(DummyBackend([counter()])))
    assert [type(wrapper) for wrapper in env.chain] == [Doubled, VecEnvWrapper, Backend]
    assert env.find(VecEnvWrapper) is env
    assert env.find(Backend) is env.unwrapped
    with pytest.raises(LookupError, match="has no wrapper dict"):
        env.find(dict)
    with pytest.raises(
        ArgumentError,
        match="find: kind: expected the name or the class of a wrapper, got 3; those .*Backend",
    ):
        env.find(3)


def test_frames_are_rendered_where_they_are_asked_for():
    env = DummyBackend([toy(render_mode="rgb_array")] * 3)
    env.reset(seed=1)
    assert [image.shape for image in env.get_images(indices=[2, 0])] == [(4, 6, 3)] * 2
    assert len(env.render()) == 3
    with pytest.raises(ArgumentError, match="without a render mode"):
        DummyBackend([toy()]).render()
    with pytest.raises(ArgumentError, match='render_mode="rgb_array"'):
        DummyBackend([toy()]).get_images()


class Watches(VecEnvWrapper):
    """Keeps the frames that come by."""

    def __init__(self, env):
        super().__init__(env)
        self.seen = []

    def on_step(self, step):
        self.seen.append((step.frames, step.final_frames, step.first & step.dones))


def test_requested_frames_come_with_the_result_the_terminal_one_before_the_reset():
    env = Watches(DummyBackend([toy(render_mode="rgb_array", end=0.3)] * 2))
    env.request_frames([1])
    env.reset(seed=1)
    env.step([0, 0])
    frames, *_ = env.seen[-1]
    assert frames[0] is None
    assert frames[1].shape == (4, 6, 3)
    while True:
        steps = env.seen[-1][0][1][0, 0, 0]
        env.step([0, 0])
        if env.seen[-1][2][1]:
            break
    frames, final_frames, _ = env.seen[-1]
    assert frames[1][0, 0, 0] == 0, "the next episode's first frame"
    assert final_frames[1][0, 0, 0] == steps + 1, "the ended episode's last"
    env.request_frames([])
    env.step([0, 0])
    assert env.seen[-1][0] is None


def test_actions_outside_the_space_are_found_in_debug_alone():
    env = DummyBackend([told()], debug=True)
    env.reset()
    with pytest.raises(
        ArgumentError,
        match=r"actions\[0\], for sub-environment 0: expected an element of Discrete\(2\)",
    ):
        env.step([2])
    assert env.step([1])[1].tolist() == [0]


def test_an_action_outside_of_the_space_is_told_by_the_place_in_which_it_was_given():
    env = DummyBackend([told()] * 3, debug=True)
    env.reset()
    with pytest.raises(
        ArgumentError, match=r"actions\[0\], for sub-environment 2: expected an element"
    ):
        env.send([7, 0], env_ids=[2, 0])
    env.send([1, 0], env_ids=[2, 0])
    assert env.recv()[4]["env_id"].tolist() == [0, 2]


def test_without_copy_the_arrays_are_the_backends_own():
    env = DummyBackend([counter()] * 2, copy=False)
    first, _ = env.reset()
    assert env.step([0, 0])[0] is not None
    assert_same(array([1, 1], [1, 1]), first)


class Trainer:
    """Forgets an environment while it goes on itself."""

    def forget(self):
        env = vecwrap.build(
            toy(), n=2, wrappers=["framestack:2", "normalize", "monitor"], backend="dummy"
        )
        env.reset(seed=1)
        env.step([0, 1])
        left = weakref.ref(env), weakref.ref(env.unwrapped)
        del env
        return [one() for one in left]


def test_what_is_forgotten_is_gone_at_once():
    assert Trainer().forget() == [None, None]


def test_a_wrapper_that_is_forgotten_does_not_close_what_it_wraps():
    """Gymnasium 1.1 closes a vector environment when it is collected, half-made ones too."""
    with DummyBackend([toy()] * 2) as inner:
        VecEnvWrapper(inner)
        gc.collect()
        assert not inner.closed
        inner.reset(seed=1)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("backend", ["dummy", "shmem"])
def test_a_copy_of_an_environment_is_refused_with_what_to_do_instead(backend, copied):
    with vecwrap.build(toy(), n=2, wrappers=["monitor"], backend=backend) as env:
        env.reset(seed=1)
        for one in (env, env.unwrapped, {"agent's": [env]}):
            with pytest.raises(
                TypeError, match=r"cannot be copied.*vecwrap\.build\(env\.pipeline\)"
            ):
                copy.deepcopy(one) if isinstance(one, dict) else copied(one)
        env.step([0, 1])
