"""Engines with a vector implementation of their own under our wrappers, beside our own backend
where possible.
"""

import os
from functools import partial

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.error import NoAsyncCallError
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from tests.helpers.backends import DummyBackend, EngineBackend
from tests.helpers.toy_envs import Counter, counter
from vecwrap.backends.local import LocalRows
from vecwrap.errors import ArgumentError, PlanError, SubEnvError
from vecwrap.rows import batch as batches
from vecwrap.sources.engine import Engine
from vecwrap.wrappers.framestack import FrameStack
from vecwrap.wrappers.monitor import Monitor

gymnasium.register_envs(ale_py)


def cartpole():
    return gymnasium.make("CartPole-v1", max_episode_steps=15)


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("engine", [SyncVectorEnv, AsyncVectorEnv])
def test_gymnasiums_engines_under_framestack_equal_dummy_under_framestack(mode, engine):
    ours = FrameStack(DummyBackend([cartpole] * 3, autoreset=mode), 3)
    theirs = FrameStack(EngineBackend(engine([cartpole] * 3, autoreset_mode=mode)), 3)
    with ours, theirs:
        ours.action_space.seed(1)
        endings = {"terminated": 0, "truncated": 0}
        np.testing.assert_array_equal(ours.reset(seed=1)[0], theirs.reset(seed=1)[0])
        for _ in range(120):
            actions = ours.action_space.sample()
            ours_step, theirs_step = ours.step(actions), theirs.step(actions)
            for one, other in zip(ours_step[:4], theirs_step[:4], strict=True):
                np.testing.assert_array_equal(one, other)
            assert ours_step[4].keys() == theirs_step[4].keys()
            for one, other in zip(
                ours_step[4].get("final_obs", ()), theirs_step[4].get("final_obs", ()), strict=True
            ):
                np.testing.assert_array_equal(one, other)
            endings["terminated"] += ours_step[2].sum()
            endings["truncated"] += ours_step[3].sum()
            dones = ours_step[2] | ours_step[3]
            if mode is AutoresetMode.DISABLED and dones.any():
                options = {"reset_mask": dones}
                np.testing.assert_array_equal(
                    ours.reset(options=options)[0], theirs.reset(options=options)[0]
                )
        assert min(endings.values()) > 2


def test_actions_are_those_of_the_call_whatever_becomes_of_the_array():
    with (
        DummyBackend([cartpole] * 2) as ours,
        EngineBackend(SyncVectorEnv([cartpole] * 2)) as theirs,
    ):
        np.testing.assert_array_equal(ours.reset(seed=1)[0], theirs.reset(seed=1)[0])
        actions = np.array([0, 1])
        theirs.step_async(actions)
        actions[:] = 1, 0
        np.testing.assert_array_equal(ours.step([0, 1])[0], theirs.step_wait()[0])


def test_cartpoles_own_vector_class_ignores_the_mask_so_a_masked_reset_is_refused():
    with EngineBackend(CartPoleVectorEnv(4)) as env:
        env.reset(seed=3)
        mask = np.array([True, False, False, False])
        (engine,) = env.runner.engines()
        before = engine.state.copy()
        with pytest.raises(
            ArgumentError,
            match=r"CartPoleVectorEnv: expected all 4 rows .*got \[0\]; this engine is",
        ):
            env.reset(options={"reset_mask": mask})
        np.testing.assert_array_equal(engine.state, before)
        env.step([0, 1, 0, 1])


def test_ales_own_vector_engine():
    AtariVectorEnv = pytest.importorskip(
        "ale_py.vector_env", reason="came with ale-py 0.11"
    ).AtariVectorEnv
    with FrameStack(EngineBackend(AtariVectorEnv("pong", num_envs=2, stack_num=1)), 2) as env:
        twin = AtariVectorEnv("pong", num_envs=2, stack_num=1)
        observations, _ = env.reset(seed=5)
        plain, _ = twin.reset(seed=5)
        for _ in range(30):
            np.testing.assert_array_equal(observations[:, -1], plain)
            observations, rewards, *_ = env.step([2, 3])
            plain, theirs, *_ = twin.step(np.array([2, 3]))
            np.testing.assert_array_equal(rewards, theirs)
        twin.close()


def test_ales_own_vector_engine_takes_any_seeds_for_any_rows():
    AtariVectorEnv = pytest.importorskip(
        "ale_py.vector_env", reason="came with ale-py 0.11"
    ).AtariVectorEnv

    def played(env, rows):
        return [env.step([2, 3, 2])[0][rows].tobytes() for _ in range(20)]

    expected = []
    for seed in (3, 9, 4):
        with EngineBackend(AtariVectorEnv("pong", num_envs=3, stack_num=1)) as alone:
            alone.reset(seed=seed)
            expected.append(played(alone, 0))
    with EngineBackend(AtariVectorEnv("pong", num_envs=3, stack_num=1), masked_resets=True) as env:
        env.reset(seed=[3, 9, None])
        assert played(env, 0) == expected[0]
        env.reset(seed=2, options={"reset_mask": np.array([False, False, True])})
        assert env.step([2, 3, 2])[0][2].tobytes() == expected[2][0]
        env.reset(seed=[3, 9, 4], options={"reset_mask": np.array([True, False, False])})
        assert played(env, 0) == expected[0]


class PaysForResets(CartPoleVectorEnv):
    """Pays in the step that resets, as Gymnasium's CartPole in JAX (phys2d) does."""

    def step(self, actions):
        observations, _, *rest = super().step(actions)
        return observations, np.ones(self.num_envs, dtype=np.float32), *rest


def test_a_reset_earns_nothing_though_the_engine_pays_for_it():
    peer = CartPoleVectorEnv(num_envs=3, max_episode_steps=9)
    with EngineBackend(PaysForResets(num_envs=3, max_episode_steps=9)) as env:
        env.action_space.seed(1)
        np.testing.assert_array_equal(env.reset(seed=1)[0], peer.reset(seed=1)[0])
        over, resets = np.zeros(3, dtype=bool), 0
        for _ in range(60):
            actions = env.action_space.sample()
            ours, theirs = env.step(actions), peer.step(actions)
            for got, expected in zip(ours[:4], theirs[:4], strict=True):
                np.testing.assert_array_equal(got, expected)
            assert not ours[1][over].any()
            resets += np.count_nonzero(over)
            over = theirs[2] | theirs[3]
        assert resets > 10


class Undeclared(CartPoleVectorEnv):
    metadata = {}

    def __init__(self):
        super().__init__(2)
        self.metadata = {}


def test_an_engine_that_declares_no_mode_is_refused_unless_one_is_given():
    with pytest.raises(PlanError, match="Undeclared does not declare its autoreset mode"):
        EngineBackend(Undeclared())
    with EngineBackend(Undeclared(), autoreset="next_step") as env:
        assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    with pytest.raises(PlanError, match="declares next_step"):
        EngineBackend(CartPoleVectorEnv(2), autoreset="same_step")


class Batched(gymnasium.vector.VectorEnv):
    """Resets in the same step, and gives the terminal observations as one batch, of the form of its
    observations.
    """

    num_envs = 3
    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
    single_action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, nested):
        box, number = gymnasium.spaces.Box(0, 99, (2,), np.float32), gymnasium.spaces.Discrete(99)
        self.single_observation_space = nested({"a": box, "b": number}) if nested else box
        self.steps = 0

    def observations(self, start):
        box, number = (
            np.arange(start, start + 6, dtype=np.float32).reshape(3, 2),
            np.arange(start, start + 3),
        )
        space = self.single_observation_space
        if isinstance(space, gymnasium.spaces.Tuple):
            return box, number
        return {"a": box, "b": number} if isinstance(space, gymnasium.spaces.Dict) else box

    def reset(self, *, seed=None, options=None):
        return self.observations(0), {}

    def step(self, actions):
        ended = np.array([True, False, True])
        return (
            self.observations(10),
            np.ones(3),
            ended,
            ~np.ones(3, bool),
            {"final_obs": self.observations(50)},
        )


@pytest.mark.parametrize(
    ("nested", "expected"),
    [
        (None, [[50, 51], None, [54, 55]]),
        (gymnasium.spaces.Dict, [{"a": [50, 51], "b": 50}, None, {"a": [54, 55], "b": 52}]),
        (
            lambda spaces: gymnasium.spaces.Tuple(spaces.values()),
            [([50, 51], 50), None, ([54, 55], 52)],
        ),
    ],
)
def test_terminal_observations_in_one_batch_are_told_row_by_row(nested, expected):
    with EngineBackend(Batched(nested)) as env:
        env.reset(seed=1)
        *_, infos = env.step([0, 1, 0])
    told = [
        batches.tree_map(lambda value: value.tolist(), one) if one is not None else None
        for one in infos["final_obs"]
    ]
    assert told == expected
    assert infos["_final_obs"].tolist() == [True, False, True]


def test_final_infos_as_a_row_of_dicts():
    """As Gymnasium's own vector environments gave them before 1.0."""

    class Older(Batched):
        def step(self, actions):
            *result, infos = super().step(actions)
            ends = np.empty(3, dtype=object)
            ends[0], ends[2] = {"score": 3.0}, {"score": 4.0, "name": "x"}
            return *result, {**infos, "final_info": ends}

    with EngineBackend(Older(False)) as env:
        env.reset(seed=1)
        infos = env.step([0, 1, 0])[4]["final_info"]
    assert infos["score"].tolist() == [3.0, 0.0, 4.0]
    assert infos["_score"].tolist() == [True, False, True]
    assert infos["name"].tolist() == [None, None, "x"]


def test_what_it_hands_out_stays_as_it_was():
    with EngineBackend(SyncVectorEnv([cartpole] * 2, copy=False)) as env:
        first, _ = env.reset(seed=1)
        kept = first.copy()
        env.step([0, 1])
        np.testing.assert_array_equal(first, kept)


class Traced(gymnasium.Env):
    """Goes on writing into the lists that it gave; an episode is two steps long."""

    observation_space = gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(9), stack=True)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.trace = np.zeros(1, np.int64)
        self.told = [0]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.result()

    def step(self, action):
        *_, info = self.result()
        return self.trace, 1.0, self.trace[0] % 3 == 2, False, info

    def result(self):
        self.trace += 1
        self.told.append(len(self.told))
        return self.trace, {"told": self.told, "deep": {"told": self.told}}


@pytest.mark.parametrize("mode", AutoresetMode)
def test_infos_and_observations_without_an_array_form_stay_as_they_were(mode):
    engine = SyncVectorEnv([Traced] * 2, autoreset_mode=mode, copy=False)
    with EngineBackend(engine) as env:
        came = [env.reset(seed=1)]
        then = [repr(came[-1])]
        for _ in range(3 if mode is not AutoresetMode.DISABLED else 1):
            came.append(env.step([0, 0]))
            then.append(repr(came[-1]))
        assert any("final_info" in infos for *_, infos in came) == (mode is AutoresetMode.SAME_STEP)
        assert [repr(one) for one in came] == then


def test_rows_go_out_together_or_not_at_all():
    with EngineBackend(SyncVectorEnv([cartpole] * 3)) as env:
        env.reset(seed=1)
        with pytest.raises(
            ArgumentError,
            match=r"SyncVectorEnv: expected all 3 rows .*got \[1\]; they step together",
        ):
            env.send([0], env_ids=[1])
        env.send([0, 1, 0])
        assert env.recv()[4]["env_id"].tolist() == [0, 1, 2]
        assert env.get_attr("spec")[0].id == "CartPole-v1"


# -- calls -----------------------------------------------------------------------------------------


class Friendly(Counter):
    bonus = 0.0

    def greet(self, name):
        return f"hello {name} {self.step_number}"


def friendly(engine, n=3):
    return EngineBackend(engine([Friendly] * n))


def test_a_call_that_the_engine_cannot_answer_leaves_it_usable():
    with EngineBackend(CartPoleVectorEnv(2)) as env:
        env.reset(seed=0)
        with pytest.raises(ArgumentError, match="CartPoleVectorEnv has no call"):
            env.call("anything")
        env.step([0, 1])


def test_what_a_sub_environment_of_sync_raises_is_told_as_everywhere():
    with friendly(SyncVectorEnv) as env:
        env.reset(seed=5)
        with pytest.raises(
            SubEnvError, match=r"sub-environment 0 \(seed 5\) raised AttributeError in call"
        ) as caught:
            env.call("no_such_method")
        assert [(error.index, error.seed) for error in caught.value.failures] == [
            (0, 5),
            (1, 6),
            (2, 7),
        ]
        with pytest.raises(SubEnvError, match="raised AttributeError in get_attr"):
            env.get_attr("no_such_attribute", indices=[2])
        with pytest.raises(SubEnvError, match="raised TypeError in call"):
            env.call("greet")
        env.step([0, 1, 0])


def test_asking_async_for_what_is_missing_ends_no_worker():
    with friendly(AsyncVectorEnv) as env:
        env.reset(seed=5)
        for ask in (env.call, env.get_attr):
            with pytest.raises(
                SubEnvError, match=r"\[0, 1, 2\] have no attribute 'nothing'"
            ) as caught:
                ask("nothing")
            assert isinstance(caught.value.__cause__, AttributeError)
        assert env.call("greet", "you") == ("hello you 0",) * 3
        env.step([0, 1, 0])


class Dies(Counter):
    """Ends its process, or raises, as the action asks."""

    def step(self, action):
        if action == 1:
            os._exit(3)
        if action == 2:
            raise ValueError("boom")
        return super().step(action)


@pytest.mark.parametrize(
    ("engine", "action", "raised"),
    [
        (AsyncVectorEnv, 1, EOFError),
        (AsyncVectorEnv, 2, ValueError),
        (SyncVectorEnv, 2, ValueError),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_an_engine_raises_comes_with_a_note_of_what_to_do(engine, action, raised):
    vector_env = engine([Dies] * 2)
    env = Monitor(EngineBackend(vector_env))
    env.reset(seed=1)
    with pytest.raises(SubEnvError) as caught:
        env.step([0, action])
    assert isinstance(caught.value.__cause__, raised)
    assert [error.index for error in caught.value.failures] == [0, 1]
    said = str(caught.value)
    assert said.startswith(
        f"sub-environment 0 (seed 1) failed with the other rows of its {engine.__name__}, "
        f"which raised {raised.__name__} in step: "
    )
    assert "Reset all 2 before the next step; if that raises too" in said
    assert "make it again" in said
    assert 'on_failure="restart"' in said
    assert "unharmed" not in said
    if engine is SyncVectorEnv:
        env.reset(seed=1)  # as the error says
        assert env.step([0, 0])[1].shape == (2,)
    env.close(timeout=0.1)


@pytest.mark.filterwarnings(
    "ignore:.*(Received the following error|Traceback|Raising the last)"
)  # Gymnasium's log
def test_an_engine_that_raises_does_not_say_which_sub_environment_it_was():
    with friendly(AsyncVectorEnv, n=2) as env:
        env.reset(seed=5)
        expected = (
            r"raised TypeError in call: .*\nAsyncVectorEnv does not report which of its 2 rows"
        )
        with pytest.raises(SubEnvError, match=expected):
            env.call("greet")


@pytest.mark.parametrize(
    ("engine", "place"),
    [(SyncVectorEnv, (LocalRows, "_run_call")), (AsyncVectorEnv, (Engine, "call"))],
)
def test_a_call_amid_which_an_interrupt_comes_is_over(engine, place, monkeypatch):
    with friendly(engine) as env:
        env.reset(seed=1)
        env.call_async("greet", "you")

        def interrupt(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(*place, interrupt)
            env.call_wait()
        with pytest.raises(NoAsyncCallError):
            env.call_wait()
        assert len(env.call("greet", "you")) == 3
        env.step([0, 0, 0])


def test_chosen_sub_environments_of_sync_and_no_others():
    with friendly(SyncVectorEnv) as env:
        env.reset(seed=1)
        env.call("set_wrapper_attr", "bonus", 5.0, indices=[2, 0])
        assert env.get_attr("bonus") == (5.0, 0.0, 5.0)
        env.set_attr("bonus", [1.0, 2.0], indices=[1, 0])
        assert env.get_attr("bonus", indices=[1, 0]) == (1.0, 2.0)
        assert (
            env.get_attr("greet")[0].__name__ == "greet"
        )  # an attribute, and not what it would return
        assert env.call("greet", "you", indices=[]) == ()


def test_async_asks_all_sub_environments_so_chosen_ones_are_refused():
    with friendly(AsyncVectorEnv) as env:
        env.reset(seed=1)
        for ask in (
            lambda: env.call("set_wrapper_attr", "bonus", 5.0, indices=[0]),
            lambda: env.set_attr("bonus", [5.0], indices=[0]),
        ):
            with pytest.raises(
                ArgumentError,
                match=r"takes all sub-environments, got \[0\]; vecwrap's own backends",
            ):
                ask()
        assert env.get_attr("bonus", indices=[1]) == (0.0,)
        env.set_attr("bonus", [1.0, 2.0, 3.0], indices=[2, 0, 1])
        assert env.get_attr("bonus") == (2.0, 3.0, 1.0)
        assert env.call("greet", "you", indices=[2, 1, 0]) == ("hello you 0",) * 3


# -- the rest --------------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shared_memory", [True, False])
def test_a_reset_that_overtakes_an_autoreset_is_booked_as_the_engine_does_it(shared_memory, masked):
    """Gymnasium's Async without shared memory resets a second time, in the step that follows."""
    make = partial(counter, length=3)
    with Monitor(EngineBackend(AsyncVectorEnv([make()] * 2, shared_memory=shared_memory))) as env:
        env.reset(seed=1)
        for _ in range(3):
            env.step([0, 0])  # the last one ends both
        env.reset(options={"reset_mask": np.array([True, False])} if masked else None)
        lengths = []
        for _ in range(6):
            infos = env.step([0, 0])[4]
            if "episode" in infos:
                lengths += infos["episode"]["l"][infos["_episode"]].tolist()
        assert lengths == [3, 3]


class Closed(AsyncVectorEnv):
    def close(self, **arguments):
        self.closed_with = arguments
        super().close(**arguments)


def test_close_tells_async_whether_to_ask():
    engine = Closed([cartpole])
    EngineBackend(engine).close(timeout=3, terminate=True)
    assert engine.closed_with == {"timeout": 3, "terminate": True}


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("around", [lambda engine: engine, RecordEpisodeStatistics])
def test_close_ends_the_workers_of_async_where_one_of_them_has_died(around, fails):
    engine = AsyncVectorEnv([cartpole] * 3)
    env = EngineBackend(around(engine))
    env.reset(seed=1)
    engine.processes[1].kill()
    engine.processes[1].join()
    if fails:
        with pytest.raises(SubEnvError, match="(BrokenPipe|EOF)Error in step"):
            env.step([0, 0, 0])
    env.close()
    assert [process.is_alive() for process in engine.processes] == [False] * 3


@pytest.mark.parametrize("around", [lambda engine: engine, RecordEpisodeStatistics])
def test_an_engine_under_gymnasiums_own_wrapper_is_booked_as_it_is_itself(around):
    engine = around(
        AsyncVectorEnv(
            [partial(gymnasium.make, "CartPole-v1", max_episode_steps=5)], shared_memory=False
        )
    )
    with FrameStack(Monitor(EngineBackend(engine), stats_key="game"), 2) as env:
        env.reset(seed=1)
        for _ in range(5):
            env.step([0])
        env.reset(seed=1)  # overtakes the autoreset, which Async does all the same
        observations, *_ = env.step([0])
        assert not observations[0, 0].any()
        for _ in range(5):
            *_, infos = env.step([0])
        assert infos["game"]["l"].tolist() == [5]


class Bare(gymnasium.vector.VectorEnv):
    """As little as a vector environment can be: two counters that end after three steps, in the
    same step.
    """

    num_envs = 2
    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
    render_mode = spec = None
    single_observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    observation_space = gymnasium.spaces.Box(0, 9, (2, 1), np.float32)
    single_action_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.MultiDiscrete([2, 2])

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return np.zeros((2, 1), np.float32), {}

    def step(self, actions):
        self.time += 1
        observations, ended = np.full((2, 1), self.time, np.float32), np.full(2, self.time == 3)
        if not ended.any():
            return observations, np.ones(2), ended, ended & False, {}
        self.time = 0
        return (
            np.zeros((2, 1), np.float32),
            np.ones(2),
            ended,
            ended & False,
            {"final_obs": observations},
        )


def lacking(*names):
    """Such an engine without these attributes, not even those of Gymnasium's class."""

    def missing(self):
        raise AttributeError

    return type("Lacking", (Bare,), dict.fromkeys(names, property(missing)))()


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("render_mode",),
        ("spec",),
        ("observation_space", "action_space"),
        ("np_random", "np_random_seed"),
        ("render", "unwrapped"),
        ("metadata",),
    ],
    ids=str,
)
def test_what_an_engine_may_lack(names):
    mode = "same_step" if "metadata" in names else None
    with FrameStack(Monitor(EngineBackend(lacking(*names), autoreset=mode)), 2) as env:
        env.reset(seed=1)
        for _ in range(3):
            observations, *_, infos = env.step([0, 1])
    assert infos["episode"]["r"].tolist() == [3, 3]
    assert infos["final_obs"][0].tolist() == [[2], [3]]
    assert observations.tolist() == [[[0], [0]]] * 2


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # Gymnasium 1.1 closes what it deletes
@pytest.mark.parametrize("name", ["num_envs", "reset", "step", "close"])
def test_what_an_engine_must_have_is_named(name):
    with pytest.raises(
        PlanError,
        match=f"expected a gymnasium.vector.VectorEnv, got Lacking, which has no {name}; ",
    ):
        EngineBackend(lacking(name))


def test_a_batched_space_in_place_of_the_single_one_is_refused_at_the_first_reset():
    env = EngineBackend(lacking("single_observation_space", "single_action_space"))
    with pytest.raises(
        SubEnvError, match=r"of shape \(2, 2, 1\), .*got \(2, 1\); set single_observation_space"
    ):
        env.reset(seed=1)


def test_four_values_are_refused_with_the_function_that_takes_them():
    class Old(Bare):
        def reset(self, *, seed=None, options=None):
            return super().reset()[0]

    class Four(Bare):
        def step(self, actions):
            observations, rewards, ended, _, infos = super().step(actions)
            return observations, rewards, ended, infos

    with pytest.raises(
        SubEnvError,
        match=r"Old.reset: expected observations and infos, got ndarray; .*from_sb3 takes",
    ):
        EngineBackend(Old()).reset()
    env = EngineBackend(Four())
    env.reset()
    with pytest.raises(
        SubEnvError,
        match=r"Four.step: expected Gymnasium's five values, got a tuple of 4; .*from_sb3",
    ):
        env.step([0, 1])


def test_tensors_and_the_older_name_of_terminal_observations():
    """As ManiSkill's vectors have both."""
    torch = pytest.importorskip("torch")

    class Tensors(Bare):
        single_observation_space = gymnasium.spaces.Dict(at=Bare.single_observation_space)

        def reset(self, *, seed=None, options=None):
            return {"at": torch.zeros(2, 1)}, {"elapsed": torch.zeros(2)}

        def step(self, actions):
            observations, rewards, *flags, infos = super().step(actions)
            told = {
                "elapsed": torch.arange(2.0, requires_grad=True),
                "deep": {"one": torch.ones(2)},
            }
            if infos:
                final = {"at": torch.as_tensor(infos["final_obs"])}
                told |= {
                    "final_observation": final,
                    "_final_observation": torch.tensor([True, True]),
                }
                told |= {
                    "final_info": {"elapsed": torch.full((2,), 3)},
                    "_final_info": torch.tensor([True, True]),
                }
            row = map(torch.as_tensor, (rewards, *flags))
            return {"at": torch.as_tensor(observations)}, *row, told

    engine = Tensors()
    engine.time = 0
    with Monitor(EngineBackend(engine), info_keys=["elapsed"]) as env:
        env.reset(seed=1)
        for _ in range(3):
            observations, rewards, *_, infos = env.step([0, 1])
    assert type(rewards) is type(infos["elapsed"]) is np.ndarray
    assert type(observations["at"]) is torch.Tensor  # which nobody here reads
    assert infos["elapsed"].tolist() == [0, 1]
    assert infos["deep"]["one"].tolist() == [1, 1]
    assert [one["at"].tolist() for one in infos["final_obs"]] == [[3], [3]]
    assert infos["final_info"]["elapsed"].tolist() == [3, 3]
    assert "final_observation" not in infos


def test_infos_as_a_list_of_dicts():
    """As SuperSuit's vectors give them, with the terminal observation in them; a reset's are added
    to a step's.
    """

    class Listed(Bare):
        def reset(self, *, seed=None, options=None):
            return super().reset()[0], [{"opens": 1}, {}]

        def step(self, actions):
            *row, infos = super().step(actions)
            told = [{"time": self.time}, {"name": "x"}]
            if infos:
                told = [
                    {"terminal_observation": infos["final_obs"][i], "opens": 1, **told[i]}
                    for i in range(2)
                ]
            return *row, told

    with FrameStack(EngineBackend(Listed()), 2) as env:
        assert env.reset(seed=1)[1]["_opens"].tolist() == [True, False]
        for _ in range(3):
            *_, infos = env.step([0, 1])
    assert [one.tolist() for one in infos["final_obs"]] == [[[2], [3]]] * 2
    for told in (infos, infos["final_info"]):
        assert told["opens"].tolist() == [1, 1]
        assert told["name"].tolist() == [None, "x"]
        assert "terminal_observation" not in told

    class Torn(Listed):
        def step(self, actions):
            *row, infos = super().step(actions)
            return *row, infos[:1]

    env = EngineBackend(Torn())
    env.reset()
    with pytest.raises(
        SubEnvError,
        match="Torn: expected infos as a dict of columns, or a.* list of 2 dicts, got list",
    ):
        env.step([0, 1])
