import os
import signal

import gymnasium
import numpy as np
import pytest

from vecwrap.backends.dummy import DummyBackend
from vecwrap.commands.rollout import Interrupt, Tally, interruptible, rollout
from vecwrap.sub_env import SubEnvFactory
from vecwrap.wrapper import VecEnvWrapper


class Clock(gymnasium.Env):
    """Pays 1 an agent step and ends after five."""

    observation_space = gymnasium.spaces.Discrete(6)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.now = 0
        return 0, {}

    def step(self, action):
        self.now += 1
        return self.now, 1.0, self.now == 5, False, {}


class Report(VecEnvWrapper):
    """The monitor's infos by hand: every episode of Clock has five steps."""

    def on_step(self, step):
        if step.ended.any():
            fives = np.where(step.ended, 5, 0)
            step.add_info("episode", {"r": fives.astype(np.float64), "l": fives, "t": fives}, step.ended)


def clocks(mode, n=3):
    return Report(DummyBackend([SubEnvFactory(Clock)] * n, autoreset=mode))


def play(env, steps=None, episodes=None, interrupt=None):
    tally = Tally()
    policy = lambda observations: np.zeros(env.num_envs, np.int64)  # noqa: E731
    for _ in rollout(env, policy, tally, steps=steps, episodes=episodes, interrupt=interrupt or Interrupt()):
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
    tally = Tally()
    steps = rollout(env, lambda o: [0, 0, 0], tally, steps=None, episodes=None, interrupt=interrupt)
    next(steps)
    interrupt.asked = True
    assert list(steps) == []
    assert tally.steps == 3
    env.close()


def test_the_first_sigterm_is_a_wish_and_the_second_an_interrupt():
    came = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    try:
        with pytest.raises(KeyboardInterrupt), interruptible() as interrupt:
            os.kill(os.getpid(), signal.SIGTERM)
            assert (interrupt.asked, interrupt.number) == (True, signal.SIGTERM)
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
def test_a_signal_that_is_ignored_from_the_start_stays_ignored(number):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with interruptible() as interrupt:
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
            assert not interrupt.asked
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_the_first_ctrl_c_is_a_wish_and_the_second_is_an_interrupt():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interruptible() as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.asked
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
