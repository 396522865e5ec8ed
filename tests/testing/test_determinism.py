"""A pipeline is played four times with one seed, and the first difference is named with its place
and likely reason.
"""

import functools
import random
import re
import threading

import gymnasium
import numpy as np
import pytest

import vecwrap
from tests.env.test_action_masks import Steps
from tests.helpers import bad_envs
from vecwrap.rows.compare import Different, assert_same
from vecwrap.rows.step_result import Autoreset
from vecwrap.testing import check_wrapper, determinism, play_twice, toy
from vecwrap.testing.determinism import RUN_KINDS

PROCESS = ("again", "second", "worker")
# What is found of each kind: id, runs, sub-environment, episode, step, what, and a part of the
# remedy.
FOUND = {
    "GlobalNumpy": (
        "stream_differs",
        PROCESS,
        0,
        1,
        0,
        "observation['b']",
        "global generator of np.random",
    ),
    "GlobalNumpySeeded": (
        "stream_differs",
        ("worker",),
        0,
        1,
        1,
        "observation['b']",
        "global generator of np.random",
    ),
    "GlobalRandom": ("stream_differs", PROCESS, 0, 1, 1, "reward", "global generator of random"),
    "Clock": ("stream_differs", PROCESS, 0, 1, 1, "reward", "the clock"),
    "ClassCounter": (
        "stream_differs",
        PROCESS,
        0,
        1,
        0,
        "observation['b']",
        "an attribute of a class",
    ),
    "CountsInstances": (
        "stream_differs",
        ("second", "worker"),
        0,
        1,
        0,
        "observation['b']",
        "when it is made",
    ),
    "Identity": ("stream_differs", ("second", "worker"), 0, 1, 1, "reward", "when it is made"),
    "OwnGenerator": ("stream_differs", PROCESS, 0, 1, 1, "reward", "default_rng() without a seed"),
    "NotReseeded": ("stream_differs", ("again",), 0, 1, 1, "reward", "survives the reset"),
    "SeedNotPassedOn": (
        "stream_differs",
        PROCESS,
        0,
        1,
        0,
        "observation['a'][0, 0]",
        "super().reset(seed=seed)",
    ),
    "InfoOnly": ("info_differs", PROCESS, 0, 1, 1, "info['took']", "the clock"),
    "FinalInfoOnly": ("info_differs", PROCESS, 0, 1, 7, "info['took']", "the clock"),
    "OneMember": ("stream_differs", PROCESS, 0, 1, 0, "observation['a'][1, 0]", "the clock"),
    "FlagOnly": ("stream_differs", ("second", "worker"), 0, 1, 3, "truncated", "when it is made"),
    "SecondEpisode": ("stream_differs", PROCESS, 0, 2, 0, "observation['a'][0, 1]", "the clock"),
    "FinalObsOnly": ("stream_differs", PROCESS, 0, 1, 7, "final_obs['a'][0, 0]", "the clock"),
}


def said(found, what, index, episode, step, runs):
    """Whether a finding's reason has this place, and these runs."""
    where = (
        f"{what} of sub-environment {index}, episode {episode}, "
        f"{f'step {step}' if step else 'at the reset'}, is "
    )
    first, *others = [RUN_KINDS[run] for run in runs]
    agreeing = f"it also differs {' and '.join(others)}." if others else "the other runs agree."
    return where in found.reason and f" {first}; {agreeing}" in found.reason


@pytest.mark.parametrize("name", FOUND)
def test_each_flaw_is_named_with_its_place_and_remedy(name):
    bad_envs.ClassCounter.made = bad_envs.FlagOnly.made = 0
    (found,) = play_twice(getattr(bad_envs, name), n=2, steps=40, seed=5)
    finding, runs, index, episode, step, what, remedy = FOUND[name]
    assert found.id == finding
    assert said(found, what, index, episode, step, runs), found.reason
    assert remedy in found.fix
    assert found.place == "env"
    assert found.severity == ("error" if finding == "stream_differs" else "warning")
    expected, got = re.search(
        r", is (.*) in the first run and (.*?) (?:after|in) ", found.reason
    ).groups()
    assert expected != got
    assert found.reason.startswith(f"with seed 5, {what} ")


def test_the_order_of_a_set_is_that_of_a_process(monkeypatch):
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    (found,) = play_twice(bad_envs.SetOrder, n=4, steps=8)
    assert found.id == "stream_differs"
    assert "observation['b'] of sub-environment " in found.reason
    assert " in worker processes; the other runs agree." in found.reason
    assert "the order of a set" in found.fix


@pytest.mark.parametrize("mode", list(Autoreset))
def test_rows_are_numbered_alike_in_every_mode(mode):
    (found,) = play_twice(bad_envs.SecondEpisode, n=3, steps=60, autoreset=mode)
    assert said(found, "observation['a'][0, 1]", 0, 2, 0, PROCESS), found.reason


@pytest.mark.parametrize("mode", list(Autoreset))
@pytest.mark.parametrize("kind", [bad_envs.Right, bad_envs.Uncomparable])
def test_nothing_is_found_where_the_stream_is_its_seeds(kind, mode):
    assert play_twice(kind, n=3, steps=60, autoreset=mode) == ()


@pytest.mark.parametrize("space", ["nested", "mixed", "sequence", "graph", "custom"])
def test_any_space_can_be_played(space):
    assert play_twice(toy(observations=space, actions=space), n=2, steps=60) == ()


@pytest.mark.parametrize(
    "line",
    [
        "CartPole-v1 n=2",
        "FrozenLake-v1 n=3 | monitor",
        "CartPole-v1 n=1 backend=ray",
        "CartPole-v1 n=2 batch_size=1 backend=shmem copy=false",
        "Pendulum-v1 n=2 | rescale_action | time_aware | normalize | framestack:2 | monitor",
        "Pendulum-v1 n=2 seed=7 | sticky_actions:0.5 | normalize_reward",
    ],
)
def test_pipelines_whose_stream_is_their_seeds(line):
    if "ray" in line:
        pytest.importorskip("ray")
    assert play_twice(line, steps=300) == ()


def test_pong_and_breakout_with_their_wrappers():
    pytest.importorskip("ale_py")
    assert play_twice("PongNoFrameskip-v4 n=2 | atari | framestack:4 | monitor", steps=40) == ()
    assert play_twice("BreakoutNoFrameskip-v4 n=2 | atari | normalize_reward", steps=100) == ()


def test_half_cheetah_with_its_preset():
    pytest.importorskip("mujoco")
    assert play_twice("HalfCheetah-v5 n=2 | mujoco", steps=100) == ()


def test_wrappers_that_write_files_or_follow_a_schedule_leave_the_users_folders_alone(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    wrappers = [
        {"seed_each_episode": {"seeds": [1, 2, 3]}},
        {"monitor": {"dir": "runs"}},
    ]
    assert play_twice("CartPole-v1", n=2, wrappers=wrappers, steps=200) == ()
    assert list(tmp_path.iterdir()) == []


def test_statistics_of_a_normaliser_outlive_a_reset_but_begin_each_run_alike():
    assert play_twice("Pendulum-v1", n=2, wrappers=["normalize"], steps=100) == ()
    # There are none yet.
    assert play_twice("Pendulum-v1", n=2, wrappers=["normalize"], steps=100, mode="eval") == ()


def test_the_wrapper_without_which_all_runs_agree_is_named():
    wrappers = ["time_limit:50", bad_envs.WrapperOfTheClock, "framestack:2", "normalize_reward"]
    (found,) = play_twice("CartPole-v1", n=2, wrappers=wrappers, steps=20)
    assert (found.wrapper, found.place) == (
        "tests.helpers.bad_envs:WrapperOfTheClock",
        'wrappers[1] "tests.helpers.bad_envs:WrapperOfTheClock"',
    )
    assert said(found, "reward", 0, 1, 1, PROCESS), found.reason
    assert "Without this wrapper all runs agree." in found.reason


def test_the_environment_is_named_if_it_differs_without_wrappers():
    (found,) = play_twice(bad_envs.Clock, n=2, wrappers=["monitor", "normalize_reward"], steps=20)
    assert (found.place, found.wrapper) == ("env", "")
    assert "The environment alone differs, without any wrapper." in found.reason


def test_an_info_that_differs_before_the_stream_does_is_found_beside_it():
    class Both(bad_envs.Clock):
        def reset(self, *, seed=None, options=None):
            observation, _ = super().reset(seed=seed)
            return observation, {"identity": id(self)}

    found = play_twice(Both, n=1, steps=5)
    info, stream = found
    assert (info.id, stream.id) == ("info_differs", "stream_differs")
    assert said(info, "info['identity']", 0, 1, 0, ("second", "worker")), info.reason
    assert said(stream, "reward", 0, 1, 1, PROCESS), stream.reason


def test_a_run_that_fails_where_the_first_went_on_is_a_difference():
    bad_envs.RaisesLater.resets = 0
    (found,) = play_twice(bad_envs.RaisesLater, n=1, steps=20)
    assert found.id == "stream_differs"
    assert "it fails after a second reset of the same environment" in found.reason
    assert "; it also differs in a second environment in the same process." in found.reason
    assert "one is enough" in found.reason


def test_what_cannot_be_sent_to_a_worker_is_said_in_the_words_of_build():
    lock = threading.Lock()
    (found,) = play_twice(
        lambda: lock and gymnasium.make("CartPole-v1"), n=1, backend="dummy", steps=20
    )
    assert found.fix == ""
    assert "it fails in worker processes, and not in the first run" in found.reason
    assert "cannot be sent to a worker" in found.reason


def test_an_environment_that_fails_in_the_first_run_raises_its_error():
    bad_envs.RaisesLater.resets = 1
    with pytest.raises(vecwrap.SubEnvError, match="one is enough"):
        play_twice(bad_envs.RaisesLater, n=1, steps=20)


def test_what_is_built_already_cannot_be_played_several_times():
    with (
        vecwrap.build("CartPole-v1", n=1) as env,
        pytest.raises(vecwrap.SpecError, match="expected a pipeline"),
    ):
        play_twice(env)


def test_the_users_own_generators_are_not_drawn_from():
    before = np.random.get_state()  # noqa: NPY002
    play_twice("CartPole-v1", n=2, steps=20)
    assert_same(before, np.random.get_state())  # noqa: NPY002


# -- who is blamed ---------------------------------------------------------------------------------


def scripted(monkeypatch, differs):
    """Replace playing by ``differs(number of wrappers)``, which returns the path of a difference,
    or None.
    """

    def compared(spec, steps, runs=tuple(RUN_KINDS)):
        path = differs(len(spec.wrappers))
        if path is None:
            return {}
        row = determinism._Row(0, 1, 1, {}, {})
        return {
            "stream_differs": determinism._Difference(
                row, Different(path, 1.0, 2.0), 0, (), tuple(runs)
            )
        }

    monkeypatch.setattr(determinism, "_compared", compared)
    return play_twice("CartPole-v1", n=1, wrappers=["time_limit:50", "framestack:2", "monitor"])


@pytest.mark.parametrize("rate", [0.02, 0.2, 0.5, 0.8, 0.98])
def test_what_differs_now_and_then_is_never_blamed_on_a_wrapper(monkeypatch, rate):
    blamed = played = 0
    for seed in range(80):
        chance = random.Random(seed)
        for found in scripted(
            monkeypatch, lambda k, chance=chance: "reward" if chance.random() < rate else None
        ):
            played += 1
            blamed += found.place != "env"
    assert played > 0
    assert blamed <= 1  # one in 1024 of those that get so far


def test_the_environment_alone_is_said_to_differ_only_if_it_was_seen_to():
    with pytest.MonkeyPatch.context() as patch:
        results = iter(["reward", None, None, None, "reward", *[None] * 99])
        (found,) = scripted(patch, lambda k: next(results))
    assert "Only some runs differ" in found.reason
    assert "environment alone" not in found.reason
    assert "Without this wrapper" not in found.reason


@pytest.mark.parametrize("guilty", [1, 2, 3])
def test_a_wrapper_with_which_every_run_differs_is_blamed(monkeypatch, guilty):
    (found,) = scripted(monkeypatch, lambda k: "observation[0]" if k >= guilty else None)
    assert found.wrapper == ("time_limit", "framestack", "monitor")[guilty - 1]


def test_a_wrapper_is_not_blamed_for_a_column_in_which_it_does_not_differ_again(monkeypatch):
    once = []

    def differs(k):
        if k < 3:
            return None
        once.append(k)
        return "reward" if len(once) == 1 else "observation"

    (found,) = scripted(monkeypatch, differs)
    assert found.place == "env"
    assert "Only some runs differ" in found.reason


# -- legal actions ---------------------------------------------------------------------------------


class Strict(Steps):
    """Raises on an illegal action."""

    def step(self, action):
        result = super().step(action)
        if result[1] < 0:
            raise ValueError(f"illegal action {action}")
        return result


@pytest.mark.parametrize(
    ("place", "mode"),
    [
        (place, mode)
        if place == "infos" or mode is Autoreset.SAME_STEP
        else pytest.param(place, mode, marks=pytest.mark.full)
        for place in ("infos", "member", "method", "tuple")
        for mode in Autoreset
    ],
)
def test_the_actions_that_are_played_are_legal(place, mode):
    shape = "multi" if place == "tuple" else "discrete"
    make = functools.partial(Strict, place, shape=shape)
    assert play_twice(make, n=2, steps=60, autoreset=mode) == ()


def test_games_in_turns_are_played_by_their_rules(capfd):
    pytest.importorskip("pettingzoo")
    assert play_twice("pettingzoo:classic/tictactoe-v3", n=2, steps=80) == ()
    assert "Illegal move" not in capfd.readouterr().err


def test_masks_that_differ_are_a_difference_of_the_stream():
    class Masks(Steps):
        made = 0

        def mask(self):
            type(self).made += 1
            return np.array([1, 1, 1, self.made < 20], np.int8)

    (found,) = play_twice(Masks, n=1, steps=40)
    assert found.id == "stream_differs"
    assert "action_masks[3] of sub-environment 0" in found.reason


def test_laws_are_tried_with_legal_actions_alone():
    check_wrapper("framestack:2 | monitor", factory=functools.partial(Strict, "infos"), steps=20)


# -- the comparer ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "path"),
    [
        (np.zeros((2, 3)), np.array([[0, 0, 0], [0, -0.0, 0]]), "result[1, 1]"),
        (np.float32(1), np.float32(2), "result"),
        (np.array(1.0), np.array(np.nan), "result"),
        ({"a": (1, [2])}, {"a": (1, [3])}, "result['a'][1][0]"),
        (np.array(["x", "y"]), np.array(["x", "z"]), "result[1]"),
    ],
)
def test_the_first_element_that_differs_is_named(one, other, path):
    with pytest.raises(AssertionError) as caught:
        assert_same(one, other)
    assert caught.value.path == path
    assert_same(one, one)


def test_objects_without_an_equality_of_their_own_are_compared_by_their_repr():
    assert_same(functools.partial, functools.partial)
    assert_same([object()], [object()])
    with pytest.raises(AssertionError):
        assert_same(slice(1), slice(2))
    torch = pytest.importorskip("torch")
    assert_same({"t": torch.ones(2)}, {"t": torch.ones(2)})
    with pytest.raises(AssertionError, match="tensor"):
        assert_same({"t": torch.ones(2)}, {"t": torch.zeros(2)})
    assert_same(gymnasium.vector.AutoresetMode.DISABLED, gymnasium.vector.AutoresetMode.DISABLED)
