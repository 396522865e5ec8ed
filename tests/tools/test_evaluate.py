"""How good a policy is: against loops over single environments, against SB3, and against what the
naive way says.
"""

import contextlib
import io
import sys
from functools import partial

import gymnasium
import numpy as np
import pytest

import vecwrap
from tests.helpers.stream_envs import Lives, ToyEnv
from tests.helpers.toy_envs import Lottery
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import ArgumentError
from vecwrap.tools.evaluate import Evaluation, evaluate
from vecwrap.wrappers.normalize import Normalize

MODES = ["same_step", "next_step", "disabled", "episodic"]


class Brittle(gymnasium.Env):
    """Five steps an episode, 1 each; one step in twenty raises."""

    observation_space = gymnasium.spaces.Box(0, 5, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        if self.np_random.random() < 0.05:
            raise RuntimeError("brittle")
        self.count += 1
        return np.full(1, self.count, np.float32), 1.0, self.count == 5, False, {}


class Recurrent:
    """A model whose state counts the steps of each row's episode."""

    def __init__(self):
        self.seen = []

    def predict(self, observations, state=None, episode_start=None, deterministic=False):
        state = np.zeros(len(observations), int) if state is None else state
        state = np.where(episode_start, 0, state + 1)
        self.seen.append((observations.copy(), state.copy(), deterministic))
        return np.zeros(len(observations), int), state


def act(observations):
    """A policy for CartPole that looks at each row by itself, and fails at different times."""
    return (observations[..., 2] > 0).astype(int)


def always_0(observations):
    return np.zeros(len(observations), int)


def by_hand(make, policy, quotas, seed):
    """Returns and lengths of each environment stepped by itself, one episode after the other."""
    returns, lengths = [], []
    for i, quota in enumerate(quotas):
        env = make()
        for k in range(quota):
            observation, _ = env.reset(seed=seed + i if k == 0 else None)
            rewards, done = [], False
            while not done:
                observation, reward, terminated, truncated, _ = env.step(
                    int(policy(observation[None])[0])
                )
                rewards.append(reward)
                done = terminated or truncated
            returns.append(sum(rewards))
            lengths.append(len(rewards))
        env.close()
    return returns, lengths


@pytest.mark.parametrize("mode", MODES)
def test_every_sub_environment_plays_its_quota_and_each_episode_is_what_it_is_alone(mode):
    env = vecwrap.build("CartPole-v1", n=4, backend="dummy", autoreset=mode)
    reached = evaluate(env, act, episodes=14, seed=5)
    env.close()
    returns, lengths = by_hand(partial(gymnasium.make, "CartPole-v1"), act, [3, 3, 4, 4], seed=5)
    assert reached.returns.tolist() == returns
    assert reached.lengths.tolist() == lengths
    assert reached.env_ids.tolist() == [0] * 3 + [1] * 3 + [2] * 4 + [3] * 4
    assert len(set(lengths)) > 5  # or nothing was compared


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("built_with", [None, 1])
def test_with_a_seed_it_gives_the_same_each_time_and_leaves_builds_seed_to_the_first_reset(
    mode, built_with
):
    build = partial(
        vecwrap.build, "CartPole-v1", n=2, backend="dummy", seed=built_with, autoreset=mode
    )
    with build(seed=None) as without:
        expected = evaluate(without, act, episodes=8, seed=5).returns.tolist()
    with build() as env, build() as never_evaluated:
        for _ in range(3):
            assert evaluate(env, act, episodes=8, seed=5).returns.tolist() == expected
        with pytest.raises(ZeroDivisionError):
            evaluate(env, lambda observations: 1 / 0, seed=5)
        if built_with is not None:
            np.testing.assert_array_equal(env.reset()[0], never_evaluated.reset()[0])


def test_fewer_episodes_than_sub_environments():
    env = vecwrap.build(Lottery, n=5, backend="dummy", autoreset="episodic")
    reached = evaluate(env, always_0, episodes=2, seed=1)
    env.close()
    assert reached.env_ids.tolist() == [3, 4]
    assert reached.returns.tolist() == by_hand(Lottery, always_0, [0, 0, 0, 1, 1], seed=1)[0]


def naive(env, policy, episodes, seed):
    """The first episodes that end, whoever's they are."""
    observations, _ = env.reset(seed=seed)
    running, returns = np.zeros(env.num_envs), []
    while len(returns) < episodes:
        observations, rewards, terminations, truncations, _ = env.step(policy(observations))
        running += rewards
        dones = terminations | truncations
        returns.extend(running[dones])
        running[dones] = 0
    return np.array(returns[:episodes])


@pytest.mark.parametrize("mode", ["disabled", "episodic"])
def test_nothing_is_reset_after_the_last_episode(mode):
    """Where the caller asks for resets, one costs time, and nobody has use for it."""
    with vecwrap.build(ToyEnv, n=3, backend="dummy", autoreset=mode) as env:
        evaluate(env, lambda observations: [0, 0, 0], 3, seed=1)
        assert env.get_attr("episode") == (0, 0, 0)


def test_short_episodes_are_not_favoured():
    env = vecwrap.build(Lottery, n=16, backend="dummy")
    first_to_end = np.mean([naive(env, always_0, 16, seed=1000 * k).mean() for k in range(20)])
    fixed = np.mean([evaluate(env, always_0, 16, seed=1000 * k).mean for k in range(20)])
    env.close()
    error = 14.5 / np.sqrt(20 * 16)  # the standard deviation of a mean of so many
    assert first_to_end < 15.5 - 10 * error, "the environment does not tell the two apart"
    assert abs(fixed - 15.5) < 3 * error


@pytest.mark.parametrize("mode", MODES)
def test_game_scores_where_a_monitor_stands_in_the_chain(mode):
    """Lives are lost every second step and rewards clipped to their sign; a game is longer and pays
    more.
    """
    make = [lambda i=i: ToyEnv((5, 8, 3), index=i) for i in range(3)]
    env = vecwrap.build(
        make, wrappers=[Lives, "monitor", "clip_reward"], backend="dummy", autoreset=mode
    )
    reached = evaluate(env, always_0, episodes=9)
    env.close()
    expected, games = [], []
    for i in range(3):
        toy = ToyEnv((5, 8, 3), index=i)
        lives = Lives(toy)
        lives.reset()
        while len(toy.scores) < 3:
            _, _, terminated, truncated, _ = lives.step(0)
            if terminated or truncated:
                lives.reset()
        expected += toy.scores
        games += [5, 8, 3]
    np.testing.assert_allclose(reached.returns, expected, rtol=0, atol=1e-12)
    # The step within the seedless reset after a lost life is the wrapper's and no agent step.
    assert (reached.lengths <= games).all()
    assert (reached.lengths < games).any()


def test_without_a_monitor_the_agents_rewards_and_episodes():
    env = vecwrap.build(
        [lambda: Lives(ToyEnv((5, 8, 3)))], wrappers=["clip_reward"], backend="dummy"
    )
    reached = evaluate(env, always_0, episodes=4)
    env.close()
    lives = Lives(ToyEnv((5, 8, 3)))
    returns, lengths = by_hand(lambda: lives, always_0, [4], seed=0)
    assert reached.lengths.tolist() == lengths
    assert reached.returns.tolist() == returns


def test_the_rest_of_a_game_that_had_begun_before_is_no_game():
    make = [lambda: ToyEnv((6, 4))]
    env = vecwrap.build(make, wrappers=[Lives, "monitor"], backend="dummy", autoreset="disabled")
    env.reset()
    while not env.step([0])[2][0]:  # a life is lost, the game goes on at the next reset
        pass
    reached = evaluate(env, always_0, episodes=2)
    scores = list(env.get_attr("scores")[0])
    env.close()
    assert len(scores) == 3, "the rest of the first game was played too"
    np.testing.assert_allclose(reached.returns, scores[1:], rtol=0, atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wrappers", [[], ["monitor"]])
def test_lost_episodes_are_left_out_and_counted(mode, wrappers):
    env = vecwrap.build(
        Brittle,
        n=3,
        wrappers=wrappers,
        backend="dummy",
        autoreset=mode,
        on_failure="restart",
        max_restarts=None,
        restart_backoff=0,
    )
    reached = evaluate(env, always_0, episodes=30, seed=1)
    health = env.health()
    env.close()
    assert reached.returns.tolist() == [5.0] * 30
    assert reached.lengths.tolist() == [5] * 30
    assert 0 < reached.lost <= health.lost_episodes.sum()
    assert "more were lost" in str(reached)


def test_statistics_stand_still_and_every_wrapper_goes_on_as_it_was():
    env = vecwrap.build(
        "CartPole-v1", n=2, wrappers=["normalize", "monitor"], backend="dummy", seed=1
    )
    env.reset()
    for _ in range(20):
        env.step([0, 1])
    normalize = env.find(Normalize)
    normalize.training = False  # by hand: this one alone
    env.training = True
    before = {
        name: statistics.state() for name, statistics in normalize.wrapper_statistics().items()
    }
    flags = []

    def watch(observations):
        flags.append([wrapper.training for wrapper in env.chain])
        return always_0(observations)

    evaluate(env, watch, episodes=2)
    assert not np.any(flags)
    assert (env.training, normalize.training) == (True, False)
    env.train()
    evaluate(env, watch, episodes=2)
    assert normalize.training
    for name, statistics in normalize.wrapper_statistics().items():
        assert statistics.state()["count"] == before[name]["count"]
    env.reset()
    assert normalize.wrapper_statistics()["observations"].count > before["observations"]["count"]

    def broken(observations):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        evaluate(env, broken)
    assert env.training
    assert normalize.training
    env.close()


class Tape(gymnasium.Wrapper):
    """Says its last observation when asked."""

    def reset(self, **keywords):
        self.last, info = self.env.reset(**keywords)
        return self.last, info

    def step(self, action):
        self.last, *rest = self.env.step(action)
        return self.last, *rest


class Halve(VecEnvWrapper):
    """A wrapper whose observations the backend cannot give again."""

    def __init__(self, env):
        super().__init__(env, env.single_observation_space)

    def on_observations(self, observations):
        return observations / 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wrappers", [[], [Halve], ["framestack:2"]])
@pytest.mark.parametrize(
    "begun", [False, True], ids=["never reset before", "reset and stepped before"]
)
@pytest.mark.parametrize("fails", [False, True], ids=["to the end", "the policy fails"])
def test_a_masked_reset_afterwards_shows_where_the_other_sub_environments_are(
    mode, wrappers, begun, fails
):
    make = lambda: Tape(gymnasium.make("CartPole-v1"))  # noqa: E731
    env = vecwrap.build(make, n=3, wrappers=wrappers, backend="dummy", autoreset=mode)
    steps = 0

    def policy(observations):
        nonlocal steps
        steps += 1
        if fails and steps == 20:
            raise ZeroDivisionError
        return np.array([0, 1, 0])

    if begun:
        env.reset(seed=3)
        env.step([0, 0, 0])
    with contextlib.suppress(ZeroDivisionError):
        evaluate(env, policy, episodes=12, seed=5)
    assert (steps == 20) is fails
    for mask in ([True, False, False], [False, False, True], [True, True, True]):
        observations, _ = env.reset(options={"reset_mask": np.array(mask)})
        shown = observations[:, -1] if "framestack:2" in wrappers else observations
        where = np.stack(env.get_attr("last")) / (2 if Halve in wrappers else 1)
        np.testing.assert_array_equal(shown, where.astype(np.float32))
    env.close()


def test_a_model_of_sb3_is_as_good_as_sb3_says():
    sb3, torch = pytest.importorskip("stable_baselines3"), pytest.importorskip("torch")
    torch.set_num_threads(1)  # as the suite's own workers keep the cores busy
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    theirs = make_vec_env("CartPole-v1", 4, seed=3)
    model = sb3.PPO("MlpPolicy", theirs, n_steps=16, batch_size=16, seed=0, device="cpu")
    theirs.seed(3)
    returns, lengths = evaluate_policy(
        model, theirs, n_eval_episodes=10, return_episode_rewards=True
    )
    theirs.close()
    env = vecwrap.build("CartPole-v1", n=4, backend="dummy")
    reached = evaluate(env, model, episodes=10, seed=3)
    env.close()
    # Theirs are in the order in which they ended.
    assert sorted(reached.returns.tolist()) == sorted(returns)
    assert sorted(reached.lengths.tolist()) == sorted(lengths)


@pytest.mark.parametrize("mode", MODES)
def test_a_recurrent_model_is_given_its_state_and_where_episodes_begin(mode):
    make = [partial(Counting, length) for length in (2, 5)]
    env = vecwrap.build(make, backend="dummy", autoreset=mode)
    model = Recurrent()
    evaluate(env, model, episodes=4, deterministic=False)
    env.close()
    for observations, state, deterministic in model.seen:
        running = observations[:, 0] < [2, 5]  # else the action is ignored
        assert (state == observations[:, 0])[running].all()
        assert deterministic is False
    assert len(model.seen) >= 10


class Counting(gymnasium.Env):
    """Observes how many steps of its episode are done."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.count += 1
        return np.full(1, self.count, np.float32), 1.0, self.count == self.length, False, {}


def test_workers_give_what_this_process_gives():
    results = []
    for settings in ({"backend": "dummy"}, {"backend": "shmem", "workers": 2}):
        env = vecwrap.build("CartPole-v1", n=4, wrappers=["monitor"], **settings)
        results.append(evaluate(env, act, episodes=8, seed=2))
        env.close()
    assert results[0].returns.tolist() == results[1].returns.tolist()


def test_in_words_with_mean_and_spread():
    reached = Evaluation(np.array([1.0, 2.0, 6.0]), np.array([4, 5, 6]), np.array([0, 1, 1]))
    assert (reached.mean, round(reached.std, 3)) == (3.0, 2.16)
    assert str(reached) == "3 episodes: return 3.00 ± 2.16, from 1 to 6, length 5"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("progress", "shown"), [(True, True), (False, False)])
def test_a_bar_where_standard_error_is_a_terminal(progress, shown, monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    env = vecwrap.build(Lottery, n=2, backend="dummy")
    evaluate(env, always_0, episodes=4, seed=1, progress=progress)
    env.close()
    assert ("evaluate" in screen.getvalue() and "4/4" in screen.getvalue()) is shown


def test_nothing_is_printed_where_it_is_none(capfd):
    env = vecwrap.build(Lottery, n=2, backend="dummy")
    evaluate(env, always_0, episodes=4, seed=1)
    env.close()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (
            {"env": gymnasium.vector.SyncVectorEnv([Lottery])},
            TypeError,
            "vecwrap.wrap turns any gymnasium.vector.V",
        ),
        ({"episodes": 0}, ArgumentError, "episodes: expected an int of 1 or more, got 0"),
        ({"episodes": 1e1}, ArgumentError, r"episodes: expected an int of 1 or more, got 10\.0"),
        (
            {"policy": "random"},
            TypeError,
            "expected a callable from batched observations to actions, .*got str",
        ),
    ],
)
def test_what_cannot_be_evaluated_is_refused(arguments, error, words):
    env = vecwrap.build(Lottery, n=1, backend="dummy")
    with pytest.raises(error, match=words):
        evaluate(**{"env": env, "policy": always_0, **arguments})
    env.close()


def test_what_is_no_whole_number_of_episodes_is_refused_before_any_is_played():
    played = []
    with vecwrap.build(Lottery, n=1, backend="dummy") as env:
        with pytest.raises(ArgumentError, match="expected an int"):
            evaluate(env, played.append, 2.5)
        assert not played
        assert len(evaluate(env, always_0, np.int64(2)).returns) == 2


def test_what_to_sb3_gives_is_told_where_the_environment_is():
    pytest.importorskip("stable_baselines3")
    venv = vecwrap.to_sb3(vecwrap.build(Lottery, n=1, backend="dummy"))
    with pytest.raises(TypeError, match="inside to_sb3.s result is its vecwrap_env"):
        evaluate(venv, always_0)
    venv.close()
