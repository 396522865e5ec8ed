"""What a user sees of episodes and numbers, the same on every backend; one test for each row of
docs/semantics.md.
"""

import contextlib
import os
import signal
import threading
import warnings
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.error import NoAsyncCallError, ResetNeeded

from tests.helpers.backends import DummyBackend, ShmemBackend, SubprocessBackend, ThreadsBackend
from tests.helpers.toy_envs import Counter, Told, counter, told
from vecwrap.env.backend_rows import BackendRows
from vecwrap.env.row_protocol import NeedsReset
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import ArgumentError, BackendError, PlanError, SubEnvError
from vecwrap.rows.table import Slots
from vecwrap.testing import assert_same, toy

BACKENDS = {
    "dummy": DummyBackend,
    "subprocess": partial(SubprocessBackend, workers=2),
    "shmem": partial(ShmemBackend, workers=2),
    "threads": partial(ThreadsBackend, workers=2),
}


@pytest.fixture(params=BACKENDS)
def make(request):
    """Makes environments, and closes them in the end."""
    made = []

    def build(factories, **options):
        made.append(BACKENDS[request.param](factories, **options))
        return made[-1]

    yield build
    for env in made:
        env.close()


def has_processes(env):
    return bool(env.num_workers) and env.backend != "threads"


def array(*rows):
    return np.array(rows, np.float32)


# -- episode boundaries ----------------------------------------------------------------------------


def test_same_step_brings_the_terminal_observation_and_the_next_episodes_first(make):
    env = make([counter(length=2), counter(length=3)])
    assert_same(array([1, 0], [1, 0]), env.reset(seed=1)[0])
    assert_same(array([1, 1], [1, 1]), env.step([0, 0])[0])
    observations, rewards, terminations, truncations, infos = env.step([0, 0])
    assert_same(array([2, 0], [1, 2]), observations)
    assert rewards.tolist() == [12, 12]
    assert terminations.tolist() == [True, False]
    assert truncations.tolist() == [False, False]
    assert_same(array([1, 2])[0], infos["final_obs"][0])
    assert infos["final_obs"][1] is None
    assert infos["_final_obs"].tolist() == [True, False]
    observations, rewards, terminations, _, infos = env.step([0, 0])
    assert_same(array([2, 1], [2, 0]), observations)
    assert rewards.tolist() == [21, 13]
    assert terminations.tolist() == [False, True]
    assert_same(array([1, 3])[0], infos["final_obs"][1])


def test_the_ended_steps_info_is_in_final_info_and_the_resets_at_the_top(make):
    env = make([counter(length=2), counter(length=3)])
    env.reset(seed=1)
    env.step([0, 1])
    infos = env.step([1, 2])[4]
    final = {"step": np.array([2, 0]), "_step": np.array([True, False])}
    final |= {"action": np.array([1, 0]), "_action": np.array([True, False])}
    assert_same(final, infos["final_info"])
    assert_same(np.array([True, False]), infos["_final_info"])
    assert_same(np.array([2, 0]), infos["began"])
    assert_same(np.array([True, False]), infos["_began"])
    assert_same(np.array([0, 2]), infos["step"])
    assert_same(np.array([False, True]), infos["_step"])
    infos = env.step([0, 0])[4]
    assert "began" in infos, "of row 1, which began its second episode"
    assert infos["_final_info"].tolist() == [False, True]


def test_next_step_resets_in_the_step_after_whose_action_is_ignored(make):
    env = make([counter(length=2, truncate=True)] * 2, autoreset="next_step")
    env.reset(seed=1)
    env.step([0, 0])
    observations, rewards, terminations, truncations, infos = env.step([0, 0])
    assert_same(array([1, 2], [1, 2]), observations)
    assert truncations.all()
    assert not terminations.any()
    assert "final_obs" not in infos
    observations, rewards, terminations, truncations, infos = env.step([2, 2])
    assert_same(array([2, 0], [2, 0]), observations)
    assert rewards.tolist() == [0, 0]
    assert not (terminations | truncations).any()
    assert infos["began"].tolist() == [2, 2]
    assert_same(array([2, 1], [2, 1]), env.step([0, 0])[0])


@pytest.mark.parametrize("masked", [True, False])
def test_a_reset_clears_a_pending_autoreset(make, masked):
    """The step after it steps; a second reset would begin a third episode."""
    env = make([counter(length=1)] * 2, autoreset="next_step")
    env.reset(seed=1)
    env.step([0, 0])
    observations, _ = env.reset(options={"reset_mask": np.array([True, False])} if masked else None)
    assert_same(array([2, 0], [1, 1] if masked else [2, 0]), observations)
    observations, rewards, *_ = env.step([0, 0])
    assert_same(array([2, 1], [2, 0] if masked else [2, 1]), observations)
    assert rewards.tolist() == [21, 0 if masked else 21]


def test_stepping_past_the_end_in_disabled_mode_is_the_same_error_everywhere(make):
    env = make([counter(length=1), counter(length=3)], autoreset="disabled")
    env.reset(seed=1)
    assert_same(array([1, 1], [1, 1]), env.step([0, 0])[0])
    with pytest.raises(ResetNeeded, match=r"sub-environments \[0\] have ended"):
        env.step([0, 0])
    env.send([0], env_ids=[1])
    observations, *_, infos = env.recv()
    assert_same(array([1, 2]), observations)
    assert infos["env_id"].tolist() == [1]
    observations, infos = env.reset(options={"reset_mask": np.array([True, False])})
    assert_same(array([2, 0], [1, 2]), observations)
    assert infos["_began"].tolist() == [True, False]
    assert_same(array([2, 1], [1, 3]), env.step([0, 0])[0])


def test_an_ended_row_rests_in_episodic_mode_until_it_is_reset(make):
    env = make([counter(length=1), counter(length=3)], autoreset="episodic")
    env.reset(seed=1)
    env.step([0, 0])
    for step in (2, 3):
        observations, rewards, terminations, _, infos = env.step([0, 0])
        assert_same(array([1, 1], [1, step]), observations)
        assert rewards.tolist() == [0, 10 + step]
        assert terminations.tolist() == [True, step == 3]
        assert infos["_step"].tolist() == [False, True]
    assert_same(
        array([2, 0], [1, 3]), env.reset(options={"reset_mask": np.array([True, False])})[0]
    )
    _, rewards, terminations, *_ = env.step([0, 0])
    assert rewards.tolist() == [21, 0]
    assert terminations.tolist() == [True, True]


def test_the_episodic_loop_gives_one_episode_of_each(make):
    env = make([counter(length=length) for length in (1, 5, 2, 4)], autoreset="episodic")
    env.reset()
    returns, dones = np.zeros(4), np.zeros(4, bool)
    while not dones.all():
        _, rewards, terminations, truncations, _ = env.step(env.action_space.sample())
        returns += rewards
        dones = terminations | truncations
    assert returns.tolist() == [
        sum(10 + k for k in range(1, length + 1)) for length in (1, 5, 2, 4)
    ]


def test_the_terminal_observation_is_a_copy_made_before_the_reset(make):
    """The environment overwrites its one observation buffer in the reset."""
    polite, rude = make([toy(well_behaved=True, end=0.2)] * 3), make([toy(end=0.2)] * 3)
    for env in (polite, rude):
        env.reset(seed=1)
    met = 0
    while met < 5:
        results = [env.step([0, 0, 0]) for env in (polite, rude)]
        assert_same(*results)
        met += "final_obs" in results[0][4]


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reward", [1.5, np.float32(1.5), np.array(1.5), np.array([1.5]), np.array([[1.5]], np.float16)]
)
def test_rewards_of_shape_1_and_numpy_scalars_are_numbers(make, reward):
    env = make([told(reward=reward)] * 2)
    env.reset()
    assert_same(np.array([1.5, 1.5]), env.step([0, 0])[1])


@pytest.mark.parametrize(
    "reward", [2**64, -(10**30), np.array([2**70])], ids=["2**64", "-10**30", "an array"]
)
def test_rewards_that_are_whole_numbers_may_be_of_any_size(make, reward):
    env = make([told(reward=reward)] * 2)
    env.reset()
    assert_same(np.full(2, float(np.asarray(reward).item())), env.step([0, 0])[1])


@pytest.mark.parametrize("reward", [np.zeros(2), "1", None, 1j])
def test_what_is_no_number_is_no_reward(make, reward):
    env = make([told(reward=reward)] * 2)
    env.reset()
    with pytest.raises(SubEnvError, match="reward: expected"):
        env.step([0, 0])


def test_infos_with_mixed_types_are_promoted_over_the_batch(make):
    env = make([told(info={"x": 1, "y": np.int8(1)}), told(info={"x": 2.7, "y": True})])
    infos = env.reset()[1]
    assert_same(np.array([1, 2.7]), infos["x"])
    assert_same(np.array([1, 1], np.int8), infos["y"])


def test_a_column_does_not_depend_on_what_came_before(make):
    env = make([told(info={"x": 2.5}), told(info={"x": "a"})])
    env.reset()
    env.set_attr("info", [{"x": 1}, {"x": 2}])
    assert_same(np.array([1, 2]), env.step([0, 0])[4]["x"])


def test_values_of_the_same_kind_are_cast_with_one_warning():
    """In this process, where the warning can be seen; test_laws compares what comes of it."""
    space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    env = DummyBackend([told(observation_space=space, observation=np.array([0.25, 0.5]))])
    with pytest.warns(UserWarning, match="the space says float32, the value is float64") as seen:
        results = [env.reset()[0], env.step([0])[0], env.step([0])[0]]
    assert len(seen) == 1
    assert_same([array([0.25, 0.5])] * 3, results)


@pytest.mark.filterwarnings("ignore:.*the space says float32:UserWarning")
def test_values_of_the_same_kind_are_cast_everywhere(make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        env = make([told(observation_space=space, observation=np.array([0.25, 0.5]))] * 2)
        assert_same(array([0.25, 0.5], [0.25, 0.5]), env.reset()[0])


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        (np.zeros(3, np.float32), r"observation: expected shape \(2,\), got shape \(3,\)"),
        (np.array(["a", "b"]), "observation: expected dtype float32, got <U1"),
        (np.zeros(2, complex), "observation: expected dtype float32, got complex128"),
        (None, "observation: expected shape"),
    ],
)
def test_a_wrong_shape_or_kind_is_an_error_that_shows_both(make, observation, words):
    space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    env = make([told(observation_space=space, observation=np.zeros(2, np.float32))] * 2)
    env.reset()
    env.set_attr("observation", [observation, observation], indices=[0, 1])
    if observation is None:
        env.set_attr("observation", [np.zeros(()), None])
    with pytest.raises(SubEnvError, match=words):
        env.step([0, 0])


@pytest.mark.parametrize("kind", ["dict", "tuple", "dict in a tuple"])
def test_a_refused_observation_leaves_the_row_as_it_was(make, kind):
    box = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    words = gymnasium.spaces.Text(5)
    forms = {
        "dict": (gymnasium.spaces.Dict, lambda *members: dict(zip("abc", members, strict=True))),
        "tuple": (
            lambda **members: gymnasium.spaces.Tuple(members.values()),
            lambda *members: members,
        ),
        "dict in a tuple": (
            lambda a, b, c: gymnasium.spaces.Tuple([a, gymnasium.spaces.Dict(b=b, c=c)]),
            lambda a, b, c: (a, {"b": b, "c": c}),
        ),
    }
    space, observation = forms[kind]
    zeros, ones = np.zeros(2, np.float32), np.ones(2, np.float32)
    env = make(
        [
            told(
                observation_space=space(a=box, b=words, c=box),
                observation=observation(zeros, "old", zeros),
            )
        ]
        * 2
    )
    before, _ = env.reset()
    env.set_attr(
        "observation",
        [observation(zeros, "old", zeros), observation(ones, "new", np.ones(3, np.float32))],
    )
    with pytest.raises(SubEnvError, match=r"expected shape \(2,\), got shape \(3,\)"):
        env.step([0, 0])
    assert_same(before, env.reset(options={"reset_mask": np.array([True, False])})[0])


# -- what is refused at the start ------------------------------------------------------------------


def test_no_sub_environments_are_refused(make):
    with pytest.raises(PlanError, match="at least one sub-environment, got 0"):
        make([])


@pytest.mark.parametrize("batch_size", [0, 3])
def test_an_impossible_batch_size_is_refused(make, batch_size):
    with pytest.raises(PlanError, match=f"batch_size: expected 1 to n=2, got {batch_size}"):
        make([counter()] * 2, batch_size=batch_size)


def test_an_unknown_mode_is_refused_with_a_near_one(make):
    with pytest.raises(PlanError, match='Did you mean "same_step"'):
        make([counter()], autoreset="same_stop")


@pytest.mark.parametrize("what", ["observations", "actions"])
def test_unequal_spaces_are_refused_with_the_first_two_that_differ(make, what):
    with pytest.raises(
        BackendError, match=r"sub-environment 0 has Discrete.*sub-environment 2 has MultiBinary"
    ):
        make(
            [
                toy(**{"observations": "discrete", what: name})
                for name in ("discrete", "discrete", "multi_binary")
            ]
        )


def test_an_environment_without_a_space_is_refused(make):
    with pytest.raises(
        BackendError, match=r"sub-environment 1 \(Bare\): expected observation_space to be"
    ):
        make([counter(), Bare])


class Bare(gymnasium.Env):
    """An environment that forgot its spaces."""


def test_debug_checks_observations(make):
    space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    env = make([told(observation_space=space, observation=array([5])[0])] * 2, debug=True)
    with pytest.raises(SubEnvError, match="observation: expected an element of Box"):
        env.reset()


@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled", "episodic"])
def test_debug_checks_terminal_observations(make, mode):
    env = make([partial(FarAway, 2)] * 2, debug=True, autoreset=mode)
    env.reset()
    env.step([0, 0])
    with pytest.raises(SubEnvError, match="observation: expected an element of Box"):
        env.step([0, 0])


class FarAway(Counter):
    """Leaves its space with the last observation of an episode."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)

    def _observation(self):
        return np.array([0, self.step_number], np.float32)


# -- what goes wrong at the start and at the end ---------------------------------------------------


class Closing(Told):
    """Says in a file that it is closed, or fails at that."""

    def __init__(self, file, fails=False):
        super().__init__()
        self.file, self.fails = file, fails

    def close(self):
        if self.fails:
            raise ValueError(f"closing {self.file.name}")
        self.file.touch()


def fails_to_make():
    raise RuntimeError("making it")


def leaves():
    raise SystemExit(3)


def test_one_that_fails_to_close_leaves_no_other_open(make, tmp_path):
    env = make([partial(Closing, tmp_path / str(i), fails=i in (0, 2)) for i in range(4)])
    env.reset()
    here = env.backend in ("dummy", "threads")
    told_here = pytest.raises(ValueError, match="closing 0") if here else contextlib.nullcontext()
    with told_here:  # a worker says it on stderr
        env.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["1", "3"]
    assert env.closed


@pytest.mark.parametrize("last", [fails_to_make, leaves])
def test_what_failed_at_the_start_is_told_and_not_what_failed_at_closing(last, tmp_path):
    first = [partial(Closing, tmp_path / str(i), fails=i == 0) for i in range(2)]
    with pytest.raises(SubEnvError, match=r"sub-environment 2 .* in make") as caught:
        DummyBackend([*first, last])
    assert caught.value.index == 2
    assert [file.name for file in tmp_path.iterdir()] == ["1"]


# -- attributes ------------------------------------------------------------------------------------


def test_an_attribute_is_set_where_it_lives_and_a_new_one_on_the_environment_itself(make):
    env = make([two_wrappers] * 2)
    env.set_attr("factor", 3.0)  # of the inner wrapper
    env.set_attr("info", {"x": 1})  # of the environment
    env.set_attr("new", 1)
    env.reset()
    _, rewards, *_, infos = env.step([0, 0])
    assert rewards.tolist() == [6, 6]
    assert infos["x"].tolist() == [1, 1]
    assert env.get_attr("factor") == (3.0, 3.0)
    assert env.call("where_is", "factor") == (["Scale"],) * 2
    assert env.call("where_is", "info") == (["Told"],) * 2
    assert env.call("where_is", "new") == (["Told"],) * 2


@pytest.mark.parametrize("refused", ["by a setter", "by a death"])
def test_an_attribute_that_one_refuses_is_set_again_where_it_was_set(make, refused):
    env = make([Particular] * 3, on_failure="restart")
    if refused == "by a death" and not has_processes(env):
        pytest.skip("nothing dies alone in this process")
    env.reset()
    with pytest.raises(SubEnvError if refused == "by a setter" else BackendError):
        env.set_attr("level", [5, 6, -1 if refused == "by a setter" else -2])
    env.call("set_wrapper_attr", "fails", True, indices=[0])
    env.step([0, 0, 0])
    assert env.get_attr("level") == (5, 6, 0)
    assert env.health().restarts[0] == 1


class Particular(gymnasium.Env):
    """Takes not every level, and dies of one; fails once."""

    observation_space = action_space = gymnasium.spaces.Discrete(2)
    fails = False
    _level = 0

    @property
    def level(self):
        return self._level

    @level.setter
    def level(self, level):
        if level == -2:
            os._exit(7)
        if level < 0:
            raise ValueError("too low")
        self._level = level

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        if self.fails:
            raise RuntimeError("asked to fail")
        return 0, 0.0, False, False, {}


class Scale(gymnasium.RewardWrapper):
    """Multiplies rewards."""

    def __init__(self, env):
        super().__init__(env)
        self.factor = 1.0

    def reward(self, reward):
        return self.factor * reward


class Outer(gymnasium.Wrapper):
    """Tells on which wrappers an attribute is."""

    def where_is(self, name):
        wrappers, env = [], self
        while True:
            wrappers += [type(env).__name__] if name in vars(env) else []
            if env is self.unwrapped:
                return wrappers
            env = env.env


def two_wrappers():
    """A chain of two wrappers."""
    return Outer(Scale(told(reward=2.0)()))


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, 2])
def test_a_masked_reset_shows_nothing_of_a_step_that_failed_by_its_info(make, steps):
    env = make([told(observation=1)] * 3, autoreset="disabled")
    env.reset(seed=1)
    for _ in range(steps):
        env.step([0, 0, 0])
    env.set_attr("observation", 2)
    env.set_attr("info", "no dict", indices=[1])
    with pytest.raises(SubEnvError, match="sub-environment 1 .* in step"):
        env.step([0, 0, 0])
    observations, _ = env.reset(options={"reset_mask": np.array([True, False, False])})
    assert observations.tolist() == [2, 1, 2]


class Nested(Told):
    """Gives an info of dicts within dicts when it is asked to: of very many, or of one within
    itself.
    """

    def step(self, action):
        if action:
            innermost = nested = {}
            for _ in range(600 if action == 1 else 1):
                nested = {"d": nested}
            if action == 2:
                innermost["d"] = nested
            return *super().step(action)[:-1], nested
        return super().step(action)


@pytest.mark.parametrize("action", [1, 2])
def test_an_info_of_dicts_without_end_is_a_failure_of_its_row_alone(make, action):
    env = make([Nested] * 3)
    env.reset(seed=1)
    with pytest.raises(
        SubEnvError, match=r"sub-environment 1 .* raised ValueError in step .*infos\['d'\]: "
    ) as caught:
        env.step([0, action, 0])
    assert caught.value.others[4]["env_id"].tolist() == [0, 2]
    env.reset(options={"reset_mask": np.array([False, True, False])})
    env.step([0, 0, 0])


def test_a_reset_whose_options_cannot_be_sent_is_refused_and_was_none(make):
    env, other = make([toy()] * 3, seed=7), DummyBackend([toy()] * 3)
    if not has_processes(env):
        pytest.skip("nothing is sent")
    with pytest.raises(
        ArgumentError, match="reset: the options cannot be sent to another process: .*lock"
    ):
        env.reset(options={"lock": threading.Lock()})
    assert_same(other.reset(seed=7), env.reset())


# -- interrupts ------------------------------------------------------------------------------------


def interrupted(target, name, monkeypatch, *, after):
    """Have the next call of a function interrupted, before it has begun or after it is done."""
    function = getattr(target, name)

    def interrupt(*args, **kwargs):
        monkeypatch.setattr(target, name, function)
        if after:
            function(*args, **kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr(target, name, interrupt)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    "place", [(Slots, "collect"), (NeedsReset, "update"), (BackendRows, "_record")]
)
def test_after_an_interrupt_in_a_wait_all_rows_need_a_reset(make, place, after, monkeypatch):
    env, twin = make([toy(end=0.3)] * 3), DummyBackend([toy(end=0.3)] * 3)
    env.reset(seed=1)
    env.step([0, 1, 2])
    for seed, (ask, wait) in enumerate(
        [("step_async", "step_wait"), ("send", "recv"), ("reset_async", "reset_wait")]
    ):
        getattr(env, ask)(*([0, 1, 2],) * (ask != "reset_async"))
        interrupted(*place, monkeypatch, after=after)
        with pytest.raises(KeyboardInterrupt):
            getattr(env, wait)()
        # Held back there: only a second one comes through.
        if place[1] == "_record" and env.backend != "dummy":
            with pytest.raises(BackendError, match="a second interrupt ended a call while"):
                env.reset()
            return
        with pytest.raises(ResetNeeded, match=r"ended by an interrupt \(Ctrl-C\)"):
            env.step([0, 1, 2])
        assert_same(twin.reset(seed=seed), env.reset(seed=seed))
        assert_same(twin.step([0, 1, 2]), env.step([0, 1, 2]))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("batch_size", [None, 1])
def test_rows_that_arrive_after_an_interrupt_are_dropped(make, after, batch_size, monkeypatch):
    env, twin = make([counter()] * 4, batch_size=batch_size), DummyBackend([counter()] * 4)
    for seed in range(3):
        assert_same(twin.reset(seed=seed), env.reset(seed=seed))
        env.send([0, 1, 2, 0])
        interrupted(env.runner, "poll", monkeypatch, after=False)
        with pytest.raises(KeyboardInterrupt):
            env.recv()
        if after:
            assert env.get_attr("render_mode") == (None,) * 4
    assert_same(twin.reset(seed=9), env.reset(seed=9))
    assert env.health().in_flight.sum() == 0


@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled", "episodic"])
def test_an_interrupt_while_a_restart_is_waited_for_keeps_the_loss(make, mode, monkeypatch):
    env = make([toy(end=0.0)] * 3, autoreset=mode, on_failure="restart")
    env.reset(seed=1)
    env.call("set_wrapper_attr", "raise_in", "step", indices=[0])
    env.step_async([0, 0, 0])
    take = BackendRows._record

    def take_then_interrupt(self, arrivals):
        take(self, arrivals)
        if self.restarts.restart_at:
            interrupted(env.core.rows, "_recreate_due", monkeypatch, after=False)

    monkeypatch.setattr(BackendRows, "_record", take_then_interrupt)
    # A reset recreates it.
    expected = (KeyboardInterrupt, ResetNeeded) if mode == "disabled" else KeyboardInterrupt
    with pytest.raises(expected):
        env.step_wait()
        env.step([0, 0, 0])
    monkeypatch.undo()
    env.reset(seed=2)
    assert env.step([0, 0, 0])[0].shape == (3, 3)
    assert env.health().restarts.tolist() == [1, 0, 0]
    assert env.health().lost_episodes[0] == 1


def test_an_interrupted_call_is_over(make, monkeypatch):
    env = make([toy()] * 3)
    env.reset(seed=1)
    env.set_attr("bonus", [1.0, 2.0, 3.0])
    env.call_async("get_wrapper_attr", "bonus")
    interrupted(env.runner, "poll", monkeypatch, after=False)
    with pytest.raises(KeyboardInterrupt):
        env.call_wait()
    with pytest.raises(NoAsyncCallError):
        env.call_wait()
    assert env.get_attr("bonus") == (1.0, 2.0, 3.0)
    assert env.step([0, 0, 0])[0].shape == (3, 3), "no episode has changed"


class Spender(gymnasium.Env):
    """Counts what it spends; it may be interrupted once while it does."""

    observation_space = action_space = gymnasium.spaces.Discrete(2)
    spent, interrupts = 0, False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def spend(self):
        self.spent += 1
        if self.interrupts:
            self.interrupts = False
            raise KeyboardInterrupt
        return self.spent


@pytest.mark.parametrize(
    "backend", [DummyBackend, partial(ShmemBackend, workers=1, parent_share=True)]
)
def test_a_call_is_interrupted_at_once_in_this_process(backend):
    with backend([Spender] * 4) as env:
        env.reset()
        env.set_attr("interrupts", True, indices=[2])
        with pytest.raises(KeyboardInterrupt):
            env.call("spend")
        assert env.get_attr("spent")[2] == 1


def test_what_an_interrupted_call_is_answered_is_not_taken_for_the_answer_to_the_next(
    make, monkeypatch
):
    env = make([toy()] * 3)
    env.reset(seed=1)
    interrupted(env.runner, "poll", monkeypatch, after=False)
    with pytest.raises(KeyboardInterrupt):
        env.get_attr("nothing")
    assert env.get_attr("bonus") == (0.0, 0.0, 0.0)


class Between(VecEnvWrapper):
    """A wrapper that somebody interrupts."""

    def done(self):
        """After the wrappers below have sent rows."""

    def __init__(self, env):
        super().__init__(env)
        rows = self.rows
        send, reset = rows.send, rows.reset
        rows.send = lambda *args: (send(*args), self.done())
        rows.reset = lambda *args: (reset(*args), self.done())


@pytest.mark.parametrize("ask", ["step", "reset", "send"])
def test_an_interrupt_while_rows_are_sent_waits_and_then_ends_the_call(make, ask, monkeypatch):
    env, twin = Between(make([toy()] * 3)), DummyBackend([toy()] * 3)
    env.reset(seed=1)
    monkeypatch.setattr(env, "done", lambda: signal.raise_signal(signal.SIGINT))
    request = "send" if ask == "send" else f"{ask}_async"
    arguments = ([0, 1, 2],) * (ask != "reset")
    with pytest.raises(KeyboardInterrupt):
        getattr(env, request)(*arguments)
    monkeypatch.undo()
    assert_same(twin.reset(seed=2), env.reset(seed=2))
    assert_same(twin.step([0, 1, 2]), env.step([0, 1, 2]), "one row each")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("method", ["step", "reset", "step_all"])
def test_an_interrupt_amid_a_request_leaves_nothing_of_it(method, after, monkeypatch):
    env, twin = DummyBackend([toy()] * 3), DummyBackend([toy()] * 3)
    env.reset(seed=1)
    if method == "step":
        env.step_async([0, 0, 0])
        env.step_wait()
    interrupted(env.unwrapped.runner.local, method, monkeypatch, after=after)
    with pytest.raises(KeyboardInterrupt):
        if method == "step_all":
            env.step([0, 1, 2])
        else:
            getattr(env, f"{method}_async")(*([0, 1, 2],) * (method != "reset"))
    assert_same(twin.reset(seed=2), env.reset(seed=2))
    assert_same(twin.step([0, 1, 2]), env.step([0, 1, 2]), "one row each")


@pytest.mark.filterwarnings("ignore:Calling `close` while waiting for a pending call")
def test_rows_that_nobody_steps_are_an_error_and_no_wait_for_ever(make):
    env = make([counter()] * 2)
    env.reset(seed=1)
    env.core.rows.pending.request_all()
    env.call_state.pending.call = "step"
    for _ in range(2):
        with pytest.raises(
            BackendError,
            match=r"expected results of sub-environments \[0, 1\], which were requested",
        ):
            env.step_wait()
