"""``to_sb3`` beside Stable-Baselines3's own DummyVecEnv over the same environments, on every
backend.
"""

import re
import signal
import sys
from copy import deepcopy
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium import wrappers as gw
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecEnv,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
)

import vecwrap
from tests.adapters.worlds import (
    DICT,
    Mine,
    Restarted,
    Talking,
    breaking,
    factories,
    locked,
    short_cartpole,
    talking,
)
from tests.helpers.stream_envs import Lives, ToyEnv
from vecwrap.errors import (
    ArgumentError,
    PlanError,
    RemoteTraceback,
    ResetNeededError,
    SubEnvError,
    install_command,
)

BACKENDS = pytest.mark.parametrize("backend", ["dummy", "subprocess", "shmem"])


def adapted(makers, wrappers=(), **settings):
    return vecwrap.to_sb3(vecwrap.build(makers, wrappers=wrappers, **settings))


def assert_same(got, expected):
    """Equal, of equal types and dtypes, through dicts, lists and tuples."""
    if isinstance(expected, np.ndarray):
        assert isinstance(got, np.ndarray)
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(got, expected)
        return
    if isinstance(expected, np.generic):
        assert got == expected
        return
    if isinstance(expected, dict):
        assert got.keys() == expected.keys()
        for key, value in expected.items():
            assert_same(got[key], value)
    elif isinstance(expected, (list, tuple)):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
    else:
        assert type(got) is type(expected)
        assert got == expected


def play(venv, steps, reseed=None):
    """All that a VecEnv gives in a run: resets with seeds and options, and steps."""
    venv.seed(7)
    venv.set_options({"level": [1, 2]})
    rows = [(venv.reset(), deepcopy(venv.reset_infos))]
    venv.action_space.seed(1)
    for number in range(steps):
        if number == steps // 2:
            venv.set_options({"of": 1})
            rows.append((venv.reset(), deepcopy(venv.reset_infos)))
        if number == reseed:
            rows.append((venv.reset(), deepcopy(venv.reset_infos)))
        actions = np.array([venv.action_space.sample() for _ in range(venv.num_envs)])
        rows.append((*venv.step(actions), deepcopy(list(venv.reset_infos))))
        for info in rows[-1][3]:
            # SB3's holds the int that came.
            if isinstance(ended := info.get("terminal_observation"), dict):
                info["terminal_observation"] = {
                    key: np.asarray(value) for key, value in ended.items()
                }
    return rows


def by_sb3(env_id, n=3):
    return DummyVecEnv([partial(gymnasium.make, env_id) for _ in range(n)])


# -- the same stream -------------------------------------------------------------------------------


@BACKENDS
@pytest.mark.parametrize("space", [None, DICT], ids=["box", "dict"])
def test_everything_that_it_gives_is_what_sb3s_own_gives(space, backend):
    expected = play(DummyVecEnv(factories(observation_space=space)), 40, reseed=30)
    venv = adapted(factories(observation_space=space), backend=backend)
    assert isinstance(venv, VecEnv)
    got = play(venv, 40, reseed=30)
    venv.close()
    assert_same(got, expected)
    infos = [info for row in got if len(row) == 5 for info in row[3]]
    assert sum("terminal_observation" in info for info in infos) > 20
    assert {info["TimeLimit.truncated"] for info in infos if "terminal_observation" in info} == {
        True,
        False,
    }


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "MountainCar-v0"])
def test_the_same_of_gymnasiums_environments(env_id):
    expected = play(by_sb3(env_id), 450)
    venv = vecwrap.to_sb3(vecwrap.build(env_id, 3, backend="dummy"))
    assert_same(play(venv, 450), expected)
    venv.close()


def test_a_step_that_both_terminates_and_truncates_is_no_time_limit():
    venv = adapted([lambda: Talking(ToyEnv(lengths=(1,)))], backend="dummy")
    venv.reset()
    flags = [venv.step(np.zeros(1, int))[3][0]["TimeLimit.truncated"] for _ in range(8)]
    venv.close()
    # The fourth and the eighth are both.
    assert flags == [
        False,
        True,
        False,
        False,
        False,
        True,
        False,
        False,
    ]


def test_the_seed_of_the_pipeline_holds_until_sb3_gives_one():
    venv = adapted(factories(2), backend="dummy", seed=5)
    seen = []
    for seed in (None, 11, None):
        if seed is not None:
            assert venv.seed(seed) == [11, 12]
        venv.reset()
        seen.append([info["seed"] for info in venv.reset_infos])
    venv.close()
    assert seen == [[5, 6], [11, 12], [None, None]]


def test_the_seed_that_sb3_gives_ends_that_of_the_pipeline():
    venv, theirs = adapted(factories(2), backend="dummy", seed=5), DummyVecEnv(factories(2))
    for each in (venv, theirs):
        each.seed(11)
    for _ in range(3):  # an algorithm with seed= first, its evaluations afterwards
        assert_same(venv.reset(), theirs.reset())
    venv.close()


@pytest.mark.parametrize("backend", ["dummy", "subprocess"])
@pytest.mark.parametrize("wrappers", [[], ["framestack:2", "monitor", "normalize"]])
@pytest.mark.parametrize(
    "options",
    [
        [{"level": 1}, {"level": 2}, {"level": 3}],
        [{}, {"level": np.arange(2)}, {}],
        [{"level": 1}, {"level": 2}, {"level": 1}],
        {"level": 1},
        None,
    ],
)
def test_options_of_each_reach_it_at_the_next_reset_alone_as_in_sb3(options, wrappers, backend):
    venv, theirs = adapted(factories(3), wrappers, backend=backend), DummyVecEnv(factories(3))
    for each in (venv, theirs):
        each.seed(7)
        each.set_options(options)
    for _ in range(2):
        ours, expected = venv.reset(), theirs.reset()
        assert_same(
            [info["options"] for info in venv.reset_infos],
            [info["options"] for info in theirs.reset_infos],
        )
        if not wrappers:
            assert_same(ours, expected)
    venv.close()


@pytest.mark.parametrize("options", [[{}, {}], [{}] * 4, [], [{}, {}, 3], "level", {1, 2}])
def test_options_for_another_number_are_refused_and_change_nothing(options):
    venv = adapted(factories(3), backend="dummy")
    venv.set_options({"level": 1})
    with pytest.raises(
        ArgumentError, match="set_options: expected a dict for all .* or a list of 3 dicts"
    ):
        venv.set_options(options)
    venv.reset()
    assert [info["options"] for info in venv.reset_infos] == [{"level": 1}] * 3
    venv.close()


def test_the_options_that_are_given_are_not_shared():
    venv, options = adapted(factories(2), backend="dummy"), [{"level": [1]}, {"level": [2]}]
    venv.set_options(options)
    options[0]["level"].append(9)
    venv.reset()
    assert venv.reset_infos[0]["options"] == {"level": [1]}
    venv.close()


class RefusesOnce(ToyEnv):
    """Raises in the first reset that brings options, and tells with which options it began."""

    refused = False

    def reset(self, *, seed=None, options=None):
        if options and not RefusesOnce.refused:
            RefusesOnce.refused = True
            raise RuntimeError("once")
        observation, info = super().reset(seed=seed, options=options)
        return observation, {**info, "level": (options or {}).get("level", -1)}


def test_options_survive_the_loss_of_a_row_that_was_reset_with_them():
    RefusesOnce.refused = False
    venv = adapted([RefusesOnce] * 3, backend="dummy", on_failure="restart")
    venv.set_options({"level": 5})
    venv.reset()
    assert RefusesOnce.refused
    assert [info["level"] for info in venv.reset_infos] == [5, 5, 5]
    assert venv.reset_infos[0].keys() == {*venv.reset_infos[1], "restarted"}
    venv.close()


@BACKENDS
@pytest.mark.parametrize("copy", [True, False])
def test_arrays_are_ones_own(backend, copy):
    venv = adapted(factories(observation_space=DICT), backend=backend, copy=copy)
    actions = np.array([0, 1, 2])
    given = [venv.reset()]
    kept = deepcopy(given)
    for _ in range(12):
        row = venv.step(actions)
        given.append(row)
        kept.append(deepcopy(row))
    venv.reset()
    venv.close()
    assert_same(given, kept)
    assert actions.tolist() == [0, 1, 2]


def test_the_spaces_are_its_own():
    env = vecwrap.build(factories(2, observation_space=DICT), backend="dummy")
    venv = vecwrap.to_sb3(env)
    # Rewrites the space of an image that it normalises.
    VecNormalize(venv, norm_obs_keys=["camera"])
    assert env.single_observation_space == DICT
    venv.close()


# -- calls to the sub-environments -----------------------------------------------------------------


@BACKENDS
def test_attributes_and_methods_of_chosen_sub_environments(backend):
    venvs = [DummyVecEnv(factories()), adapted(factories(), backend=backend)]
    for venv in venvs:
        venv.reset()
        assert venv.get_attr("level") == [3, 3, 3]
        assert venv.get_attr("index", [2, 0]) == [2, 0]
        venv.set_attr("level", 10, indices=1)
        venv.set_attr("tags", ["b", "c"], indices=[0, 2])
        assert venv.get_attr("tags") == [["b", "c"], ["a"], ["b", "c"]]
        assert venv.env_method("add", 1, indices=(0, 1), name=100) == [104, 111]
        assert venv.env_method("add", 1) == [4, 11, 4]
        assert venv.get_attr("level", []) == venv.env_method("add", 1, indices=[]) == []
        assert venv.has_attr("level")
        assert not venv.has_attr("lvl")
        with pytest.raises(AttributeError, match="lvl"):
            venv.get_attr("lvl")
    venvs[1].close()


ENGINES = {
    "sync": partial(gymnasium.vector.SyncVectorEnv, autoreset_mode="SameStep"),
    "async": partial(gymnasium.vector.AsyncVectorEnv, autoreset_mode="SameStep"),
    "from_sb3": DummyVecEnv,
}


def locked_in(kind):
    makers = [partial(locked, i) for i in range(2)]
    if kind == "from_sb3":
        return vecwrap.to_sb3(vecwrap.from_sb3(DummyVecEnv(makers)))
    return (
        vecwrap.to_sb3(vecwrap.wrap(ENGINES[kind](makers)))
        if kind in ENGINES
        else adapted(makers, backend=kind)
    )


@pytest.mark.parametrize("kind", ["dummy", "subprocess", "shmem", *ENGINES])
def test_has_attr_asks_where_the_attribute_lives(kind):
    venv = locked_in(kind)
    venv.reset()
    assert venv.has_attr("action_masks")
    assert venv.has_attr("lock")
    assert not venv.has_attr("nothing")
    assert [mask.tolist() for mask in venv.env_method("action_masks")] == [[True, False]] * 2
    venv.step(np.zeros(2, int))
    venv.close()


@pytest.mark.parametrize("kind", ["dummy", "shmem", *ENGINES])
def test_what_is_missing_is_an_attribute_error_and_nothing_else_is(kind):
    venv = locked_in(kind)
    for ask in (venv.get_attr, venv.env_method):
        with pytest.raises(AttributeError, match="nothing"):
            ask("nothing")
    with pytest.raises(ArgumentError, match="indices: expected indices from 0 to 1"):
        venv.get_attr("gravity", 2)
    if kind != "async":  # it ends the worker
        with pytest.raises(SubEnvError, match="raised ValueError in call") as caught:
            venv.env_method("fail", ValueError)
        assert caught.value.kind == "ValueError"
        assert isinstance(
            caught.value.__cause__, RemoteTraceback if kind == "shmem" else ValueError
        )
    venv.close()


def test_negative_indices_count_from_the_end():
    for venv in (DummyVecEnv(factories()), adapted(factories(), backend="dummy")):
        assert venv.get_attr("index", -1) == [2]
        assert venv.get_attr("index", [-3, 1, -1]) == [0, 1, 2]
        venv.set_attr("level", 8, indices=-2)
        assert venv.get_attr("level") == [3, 8, 3]
        assert venv.env_method("add", 1, indices=[-2]) == [9]
        venv.close()


@BACKENDS
def test_env_is_wrapped_tells_classes_and_their_parents(backend):
    makers = [partial(gymnasium.make, "CartPole-v1"), short_cartpole]
    for venv in (DummyVecEnv(makers), adapted(makers, backend=backend)):
        assert venv.env_is_wrapped(gw.TimeLimit) == [True, True]
        assert venv.env_is_wrapped(Mine) == [False, True]
        assert venv.env_is_wrapped(Mine, indices=[1, 0]) == [True, False]
        assert venv.env_is_wrapped(gw.TimeLimit, indices=1) == [True]
        assert venv.env_is_wrapped(Monitor) == [False, False]
        venv.close()


def test_sb3s_monitor_is_found_inside_and_ours_counts_as_one():
    makers = [lambda: Monitor(gymnasium.make("CartPole-v1"))] * 2
    for venv in (
        adapted(makers, backend="dummy"),
        adapted(factories(2), ["monitor"], backend="dummy"),
    ):
        assert venv.env_is_wrapped(Monitor) == [True, True]
        assert venv.env_is_wrapped(Monitor, indices=1) == [True]
        venv.close()
    venv = adapted(factories(2), [{"monitor": {"stats_key": "mine"}}], backend="dummy")
    assert venv.env_is_wrapped(Monitor) == [False, False]  # no info["episode"] there
    venv.close()


def test_the_question_loads_no_torch_into_a_worker():
    venv = adapted([partial(talking, i) for i in range(2)], backend="subprocess")
    assert venv.env_is_wrapped(Monitor) == [False, False]
    assert venv.env_method("loaded", "torch") == [False, False]
    assert venv.env_method("loaded", "numpy") == [True, True]
    venv.close()


# -- the monitor's figures -------------------------------------------------------------------------


def test_episodes_are_told_in_the_step_that_ends_them():
    venv = adapted(factories(), ["monitor"], backend="dummy")
    venv.reset()
    reference = VecMonitor(DummyVecEnv(factories()))
    reference.reset()
    told = 0
    for _ in range(20):
        infos, others = venv.step(np.ones(3, int))[3], reference.step(np.ones(3, int))[3]
        for info, other, of_reset in zip(infos, others, venv.reset_infos, strict=True):
            assert info.keys() == other.keys()
            assert "episode" not in of_reset
            if "episode" in info:
                told += 1
                assert type(info["episode"]["l"]) is int
                assert info["episode"]["l"] == other["episode"]["l"]
                assert info["episode"]["r"] == pytest.approx(other["episode"]["r"])
    venv.close()
    assert told > 10


def test_a_lost_life_ends_an_episode_but_is_no_episode_of_the_monitor():
    venv = adapted([lambda: ToyEnv(lengths=(7,))], [Lives, "monitor"], backend="dummy")
    venv.reset()
    rows = [venv.step(np.zeros(1, int)) for _ in range(30)]
    venv.close()
    lives = [row[3][0] for row in rows if row[2][0]]
    games = [info for info in lives if "episode" in info]
    assert 0 < len(games) < len(lives)


class Odd(gymnasium.Wrapper):
    def step(self, action):
        *row, info = self.env.step(action)
        return *row, {**info, 3: "a key", "_own": 1}


def test_keys_of_infos_that_are_no_strings_have_no_masks_among_the_infos():
    venv = adapted([lambda: Odd(gymnasium.make("CartPole-v1"))], backend="dummy")
    venv.reset()
    assert venv.step(np.zeros(1, int))[3] == [{3: "a key", "_own": 1, "TimeLimit.truncated": False}]
    venv.close()


# -- what stands around it -------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [VecNormalize, partial(VecFrameStack, n_stack=3), VecMonitor])
def test_sb3s_wrappers_around_it_give_what_they_give_around_its_own(wrap):
    def rows(venv):
        venv.seed(3)
        kept = [venv.reset().copy()]
        for _ in range(30):
            observations, rewards, dones, infos = venv.step(np.ones(3, int))
            for info in infos:
                if "episode" in info:
                    del info["episode"]["t"]
            kept.append(deepcopy((observations, rewards, dones, infos)))
        return kept

    expected = rows(wrap(DummyVecEnv(factories())))
    venv = wrap(adapted(factories(), backend="dummy"))
    assert_same(rows(venv), expected)
    venv.close()


def test_vec_monitor_warns_that_there_is_a_monitor_already():
    venv = adapted(factories(), ["monitor"], backend="dummy")
    with pytest.warns(UserWarning, match="already wrapped with a `Monitor`"):
        VecMonitor(venv)
    venv.close()


def test_pictures():
    makers = [partial(gymnasium.make, "CartPole-v1", render_mode="rgb_array")] * 3
    venvs = [
        DummyVecEnv(makers),
        vecwrap.to_sb3(vecwrap.build("CartPole-v1", 3, backend="shmem", render_mode="rgb_array")),
    ]
    shown = []
    for venv in venvs:
        venv.seed(2)
        venv.reset()
        shown.append(
            (venv.render_mode, np.stack(venv.get_images()), venv.render(), venv.render("rgb_array"))
        )
        assert venv.metadata["render_fps"] == 50
        venv.close()
    assert_same(shown[1], shown[0])
    assert shown[0][1].any()


def test_without_a_render_mode_there_are_no_pictures_but_a_warning():
    venv = adapted(factories(), backend="dummy")
    venv.reset()
    assert venv.get_images() == [None] * 3
    with pytest.warns(UserWarning, match="no `render_mode` was passed"):
        assert venv.render() is None
    venv.close()


# -- what becomes of a loss ------------------------------------------------------------------------


def test_an_episode_that_is_lost_ends_truncated_with_the_last_observation_that_came():
    makers = [partial(breaking, i) for i in range(2)]
    venv = adapted(makers, backend="dummy", on_failure="restart", restart_backoff=0.0)
    venv.reset()
    last, *_ = venv.step(np.array([0, 0]))
    observations, rewards, dones, infos = venv.step(np.array([0, 2]))
    venv.close()
    assert dones.tolist() == [False, True]
    assert rewards[1] == 0
    assert infos[1].keys() == {"TimeLimit.truncated", "terminal_observation", "restarted"}
    assert infos[1]["TimeLimit.truncated"]
    assert infos[1]["restarted"] == venv.reset_infos[1]["restarted"] == 1
    np.testing.assert_array_equal(infos[1]["terminal_observation"], last[1])
    assert not np.array_equal(observations[1], last[1])


@pytest.mark.parametrize("on_failure", ["raise", "restart"])
@pytest.mark.parametrize("in_steps", [False, True])
def test_what_an_environment_itself_calls_restarted_is_that_of_its_own_step(on_failure, in_steps):
    venv = adapted([partial(Restarted, in_steps)] * 2, backend="dummy", on_failure=on_failure)
    venv.reset()
    infos = venv.step(np.array([0, 0]))[3]
    venv.close()
    assert venv.reset_infos[0]["restarted"] == 2
    # With restarts that name is the vector's in infos of resets.
    if in_steps or on_failure == "raise":
        assert infos[0].get("restarted") == (-1 if in_steps else None)


# -- engines, and what is refused ------------------------------------------------------------------


def test_an_engine_in_same_step_mode():
    make = partial(gymnasium.make, "CartPole-v1", max_episode_steps=6)
    engine = gymnasium.vector.SyncVectorEnv(
        [make] * 2, autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP
    )
    venv = vecwrap.to_sb3(vecwrap.wrap(engine, ["monitor"]))
    venv.seed(0)
    venv.reset()
    ended = [
        info
        for _ in range(60)
        for info in venv.step(np.ones(2, int))[3]
        if "terminal_observation" in info
    ]
    assert ended
    assert all("episode" in info for info in ended)
    assert venv.render_mode is None
    assert venv.env_is_wrapped(Monitor) == [True, True]
    venv.close()


def test_an_engine_takes_one_dict_of_options_for_all():
    mode = gymnasium.vector.AutoresetMode.SAME_STEP
    engine = gymnasium.vector.SyncVectorEnv(
        [partial(gymnasium.make, "CartPole-v1")] * 2, autoreset_mode=mode
    )
    venv = vecwrap.to_sb3(vecwrap.wrap(engine, []))
    first = venv.reset()
    venv.set_options({"low": 0.2, "high": 0.3})
    assert (venv.reset() >= 0.2).all()
    assert (first < 0.2).all()
    venv.close()


@pytest.mark.parametrize("mode", ["next_step", "disabled", "episodic"])
def test_another_mode_is_refused_with_what_to_change(mode):
    with (
        vecwrap.build("CartPole-v1", 1, backend="dummy", autoreset=mode) as env,
        pytest.raises(PlanError, match=f'got {mode}; build it with autoreset="same_step"'),
    ):
        vecwrap.to_sb3(env)


def test_what_is_no_environment_of_ours_is_refused():
    with pytest.raises(ArgumentError, match="expected a vecwrap environment, got DummyVecEnv"):
        vecwrap.to_sb3(by_sb3("CartPole-v1"))


def test_a_missing_extra_names_its_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    with vecwrap.build("CartPole-v1", 1, backend="dummy") as env:
        for call in (vecwrap.to_sb3, vecwrap.from_sb3):
            with pytest.raises(
                PlanError, match=f"needs Stable-Baselines3 .*{re.escape(install_command('sb3'))}"
            ):
                call(env)


def test_sb3_is_shown_the_bounds_that_clip_action_clips_to():
    learnt = []
    for wrappers in (["mujoco"], ["normalize"]):
        venv = adapted("Pendulum-v1", wrappers, n=2, backend="dummy")
        assert venv.action_space == spaces.Box(-2, 2, (1,))
        model = PPO(
            "MlpPolicy", venv, n_steps=32, batch_size=32, n_epochs=2, seed=1, device="cpu"
        ).learn(128)
        learnt.append({name: values.numpy() for name, values in model.policy.state_dict().items()})
        venv.close()
    assert_same(*learnt)


class Halved(vecwrap.VecEnvWrapper):
    """Has actions of its own."""

    def __init__(self, env):
        super().__init__(env, single_action_space=spaces.Box(-9, 9, (1,)))


def test_actions_of_a_wrapper_outside_of_clip_action_are_its_own():
    venv = adapted("Pendulum-v1", ["clip_action", Halved], n=1, backend="dummy")
    assert venv.action_space == spaces.Box(-9, 9, (1,))
    venv.close()


class CtrlC(vecwrap.VecEnvWrapper):
    """Ctrl-C is pressed in its next step."""

    pressed = False

    def on_step(self, step):
        if self.pressed:
            self.pressed = False
            signal.raise_signal(signal.SIGINT)


@BACKENDS
def test_an_algorithm_that_was_interrupted_learns_again(backend):
    env = adapted(short_cartpole, [CtrlC, "monitor"], n=2, backend=backend, seed=1)
    model = PPO("MlpPolicy", env, n_steps=8, batch_size=16, n_epochs=1, device="cpu")
    for _ in range(2):  # the second time in its reset
        env.vecwrap_env.find(CtrlC).pressed = True
        with pytest.raises(KeyboardInterrupt):
            model.learn(64)
    model.learn(64)
    env.vecwrap_env.find(CtrlC).pressed = True
    with pytest.raises(KeyboardInterrupt):
        model.learn(64, reset_num_timesteps=False)
    with pytest.raises(
        ResetNeededError, match=r"ended by an interrupt .*set model\._last_obs = None"
    ):
        model.learn(64, reset_num_timesteps=False)  # it would act once more on what it saw before
    model._last_obs = None  # so SB3 resets
    model.learn(64, reset_num_timesteps=False)
    env.close()


def test_what_failed_while_it_was_interrupted_keeps_no_reset_back():
    env = adapted(lambda: gymnasium.Wrapper(short_cartpole()), [CtrlC], n=2, backend="dummy")
    first = env.reset()
    env.vecwrap_env.find(CtrlC).pressed = True
    env.step_async([0, 7])  # no action of CartPole's
    with pytest.raises(KeyboardInterrupt):
        env.step_wait()
    assert env.reset().shape == first.shape


def test_what_an_algorithm_cannot_use_gets_sb3s_own_error():
    venv = vecwrap.to_sb3(vecwrap.build("CartPole-v1", 1, backend="dummy"))
    with pytest.raises(
        AssertionError, match="The algorithm only supports .*Box.* as action spaces"
    ):
        SAC("MlpPolicy", venv)
    venv.close()
    nested = spaces.Dict({"inner": spaces.Dict({"x": spaces.Box(0, 255, (2,))})})
    venv = adapted([lambda: ToyEnv(observation_space=nested)], backend="dummy")
    with pytest.raises(NotImplementedError, match="Nested observation spaces are not supported"):
        SAC("MultiInputPolicy", venv)
    venv.close()


class Levers(gymnasium.Env):
    """Pays for each lever that is pulled, and tells what it was given."""

    observation_space = spaces.Box(0, 99, (3,))
    action_space = spaces.MultiBinary(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.steps += 1
        return (
            np.float32(action * self.steps),
            float(action.sum()),
            False,
            self.steps == 9,
            {"pulled": action.tolist()},
        )


def test_a_policy_over_several_bits_learns_what_it_learns_on_sb3s_own():
    learnt = []
    for venv in (
        DummyVecEnv([Levers] * 2),
        vecwrap.to_sb3(vecwrap.build(Levers, n=2, backend="dummy")),
    ):
        model = PPO("MlpPolicy", venv, seed=3, n_steps=16, batch_size=16, device="cpu").learn(64)
        learnt.append(
            {name: value.numpy().tolist() for name, value in model.policy.state_dict().items()}
        )
        venv.reset()
        infos = venv.step(np.array([[1, 0, 1], [0, 1, 0]], np.float32))[3]
        assert [info["pulled"] for info in infos] == [[1, 0, 1], [0, 1, 0]]
    assert learnt[0] == learnt[1]
    with pytest.raises(
        ArgumentError, match=r"actions: expected zeros and ones for MultiBinary\(3\), got \[\[0.5"
    ):
        venv.step(np.full((2, 3), 0.5, np.float32))
