import os
import signal

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import vecwrap
from tests.cli.toys_of_cli import Toy
from tests.helpers.backends import DummyBackend
from vecwrap import interrupts
from vecwrap.env.action_masks import legal_nearest_to_zero
from vecwrap.errors import SpecError, VecwrapError
from vecwrap.sources.source_factories import SubEnvFactory
from vecwrap.tools.rollout import (
    EpisodeStats,
    Interrupt,
    find_policy,
    interruptible,
    rollout,
    sigterm_as_ctrl_c,
)
from vecwrap.wrappers.monitor import Monitor


class Clock(Toy):
    """Ends after five steps."""

    length = 5


def clocks(mode, n=3):
    return Monitor(DummyBackend([SubEnvFactory(Clock)] * n, autoreset=mode))


def play(env, steps=None, episodes=None, interrupt=None):
    tally = EpisodeStats(env)
    policy = lambda observations: np.zeros(env.num_envs, np.int64)  # noqa: E731
    for _ in rollout(
        env, policy, tally, steps=steps, episodes=episodes, interrupt=interrupt or Interrupt()
    ):
        pass
    env.close()
    return tally


@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled", "episodic"])
def test_only_steps_that_acted_are_counted_in_every_mode(mode):
    tally = play(clocks(mode), episodes=9)
    assert (tally.steps, tally.episodes) == (45, 9)
    assert tally.scores == [5.0] * 9
    assert tally.lengths == [5] * 9
    assert tally.recent_score == (5.0, 0.0)


def test_steps_are_rounded_up_to_a_whole_vector_step():
    assert play(clocks("same_step"), steps=10).steps == 12


def test_without_an_ended_episode_there_is_no_score():
    tally = play(clocks("same_step"), steps=3)
    assert (tally.episodes, tally.recent_score) == (0, None)


def test_a_wish_to_stop_is_granted_between_steps():
    interrupt = Interrupt()
    env = clocks("same_step")
    tally = EpisodeStats()
    steps = rollout(env, lambda o: [0, 0, 0], tally, steps=None, episodes=None, interrupt=interrupt)
    next(steps)
    interrupt.is_requested = True
    assert list(steps) == []
    assert tally.steps == 3
    env.close()


def test_the_first_sigterm_is_a_wish_and_the_second_an_interrupt():
    came = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    try:
        with pytest.raises(KeyboardInterrupt), interruptible() as interrupt:
            os.kill(os.getpid(), signal.SIGTERM)
            assert (interrupt.is_requested, interrupt.number) == (True, signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
        assert came == []
        os.kill(os.getpid(), signal.SIGTERM)
        assert came == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_what_takes_a_moment_is_completed_however_often_ctrl_c_is_pressed():
    with interruptible() as interrupt:
        with pytest.raises(KeyboardInterrupt), interrupt.may_stop():
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
        try:
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            pytest.fail("it was not completed")
        with pytest.raises(KeyboardInterrupt), interrupt.may_stop():
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_two_that_come_together_are_one_wish_and_a_later_one_an_interrupt(number, monkeypatch):
    """A terminal and a launcher deliver it, and `timeout` does, to the command and its group."""
    now = 100.0
    monkeypatch.setattr(interrupts, "REPEAT_SECONDS", 0.3)
    monkeypatch.setattr(interrupts, "monotonic", lambda: now)
    monkeypatch.setattr(interrupts, "_last_counted", {})
    with interruptible() as interrupt, interrupt.may_stop():
        for now in (100.0, 100.1, 100.2):  # noqa: B007 -- the clock reads it
            os.kill(os.getpid(), number)
        assert (interrupt.is_requested, interrupt.number) == (True, number)
        now = 100.4
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
    now = 200.0
    with sigterm_as_ctrl_c():
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)  # while what it interrupted is put away
        now = 201.0
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_is_ignored_from_the_start_stays_ignored(number):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with interruptible() as interrupt:
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
            assert not interrupt.is_requested
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_the_first_ctrl_c_is_a_wish_and_the_second_is_an_interrupt():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interruptible() as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.is_requested
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


# -- policies --------------------------------------------------------------------------------------


class Idle(gymnasium.Env):
    observation_space = spaces.Discrete(2)

    def __init__(self, action_space):
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        assert self.action_space.contains(action), action
        return 0, 0.0, False, False, {}


def idle(space, n=2):
    return DummyBackend([SubEnvFactory(lambda: Idle(space))] * n)


SPACES = {
    "discrete": spaces.Discrete(3),
    "discrete with a start": spaces.Discrete(3, start=2),
    "discrete below zero": spaces.Discrete(2, start=-5),
    "box": spaces.Box(-1, 1, (2,)),
    "box without zero": spaces.Box(np.float32(0.5), np.float32(1), (2,)),
    "multi-discrete": spaces.MultiDiscrete([3, 4], start=[1, -9]),
    "multi-binary": spaces.MultiBinary(3),
    "nested": spaces.Dict(a=spaces.Tuple((spaces.Discrete(2, start=1), spaces.Box(1, 2, (2, 2))))),
}


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("name", ["random", "zeros"])
def test_actions_are_in_the_space(name, space):
    with idle(space) as env:
        observations, _ = env.reset()
        policy = find_policy(name, env)
        for _ in range(3):
            env.step(policy(observations))


def test_zeros_is_the_action_nearest_to_zero():
    with idle(spaces.MultiDiscrete([3, 4], start=[1, -9])) as env:
        assert find_policy("zeros", env)(None).tolist() == [[1, -6]] * 2


def test_zeros_is_the_legal_action_nearest_to_zero():
    with vecwrap.build("CartPole-v1", n=3, backend="dummy") as env:
        act = find_policy("zeros", env)
        masks = np.array([[True, True], [False, True], [False, False]])
        assert act(None, action_masks=masks).tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("space", "mask", "nearest"),
    [
        (spaces.Discrete(5, start=-3), [1, 1, 0, 0, 1], 1),
        (spaces.MultiDiscrete([3, 2]), [0, 0, 1, 1, 0], [2, 0]),
        (spaces.MultiBinary(2), [0, 1, 1, 1], [1, 0]),
    ],
)
def test_the_legal_action_nearest_to_zero_in_each_kind_of_space(space, mask, nearest):
    (action,) = legal_nearest_to_zero(space, np.array([mask], np.bool_))
    assert action in space
    assert np.asarray(action).tolist() == nearest


def test_zeros_of_a_space_without_numbers_is_refused():
    with (
        idle(spaces.Text(4)) as env,
        pytest.raises(SpecError, match="no zero. Use --policy random"),
    ):
        find_policy("zeros", env)


def test_an_imported_policy_may_be_a_part_of_what_its_module_holds(tmp_path, monkeypatch):
    (tmp_path / "my_bots.py").write_text(
        "class Bots:\n    @staticmethod\n    def ones(o):\n        return [1] * len(o)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with idle(spaces.Discrete(2)) as env:
        assert find_policy("my_bots:Bots.ones", env)([0, 0]) == [1, 1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "randm",
            (
                "expected random, zeros, module:callable or a model's .zip, got 'randm'. Did you "
                'mean "random"'
            ),
        ),
        ("no_such_module:act", "there is no module no_such_module. Is its folder on sys.path"),
        ("math:no_such", "math has no no_such"),
        ("math:pi", "expected a class or callable, got a float."),
        ("./bots:act", 'expected an import path "module:attr"'),
    ],
)
def test_a_policy_that_leads_nowhere_is_refused(name, message):
    with idle(spaces.Discrete(2)) as env, pytest.raises(SpecError, match="--policy") as error:
        find_policy(name, env)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "def act(o)\n    return 0\n",
            "importing broken_bots raised SyntaxError: expected ':' (broken_bots.py, line 1)",
        ),
        (
            "import math\nmath.no_such\n",
            "importing broken_bots raised AttributeError: module 'math' has no attribute",
        ),
        ("1 / 0\n", "importing broken_bots raised ZeroDivisionError: division by zero"),
        ("raise SystemExit(0)\n", "importing broken_bots raised SystemExit: 0"),
    ],
)
def test_a_module_whose_own_code_fails_is_told_with_what_it_raised(
    text, message, tmp_path, monkeypatch
):
    (tmp_path / "broken_bots.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with (
        idle(spaces.Discrete(2)) as env,
        pytest.raises(SpecError, match="--policy broken_bots:act: ") as error,
    ):
        find_policy("broken_bots:act", env)
    assert message in str(error.value)


def test_the_name_of_a_file_is_told_how_its_module_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file_bots.py").write_text("def act(o):\n    return [0] * len(o)\n")
    for name in ("file_bots.py:act", "./file_bots.py:act"):
        with (
            idle(spaces.Discrete(2)) as env,
            pytest.raises(SpecError, match=r"leave out \.py: file_bots:act\.$"),
        ):
            find_policy(name, env)


def test_an_error_inside_a_policy_names_the_policy():
    with (
        idle(spaces.Discrete(2)) as env,
        pytest.raises(VecwrapError, match=r"--policy math:sqrt raised TypeError"),
    ):
        find_policy("math:sqrt", env)("four")
    with (
        idle(spaces.Discrete(2)) as env,
        pytest.raises(VecwrapError, match=r"--policy sys:exit raised SystemExit: 4"),
    ):
        find_policy("sys:exit", env)(4)
