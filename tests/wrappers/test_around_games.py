"""Wrappers of the vector around games of several agents, held to a loop over the raw game."""

import csv
import itertools
import json
from functools import partial

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.conversions import parallel_to_aec

import vecwrap
from tests.helpers.multi_agent_games import (
    Crowd,
    Guests,
    LingeringCrowd,
    Loop,
    Party,
    Returning,
    Turns,
    choose,
)
from vecwrap.errors import NotFiniteError, PlanError
from vecwrap.tools.evaluate import evaluate
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.normalize_reward import NormalizeReward

MODES = ["same_step", "next_step", "disabled", "episodic"]


class Chooses(vecwrap.VecEnvWrapper):
    """Knows what the loop would do next: its choices are by the number of an agent's moves in its
    game.
    """

    def __init__(self, env):
        super().__init__(env)
        self.moves = np.zeros(env.num_envs, int)

    def on_step(self, step):
        self.moves[step.env_ids] = np.where(step.first, 0, self.moves[step.env_ids] + step.acted)

    def chosen(self):
        return [
            choose(name, number, None, 5)
            for name, number in zip(self.row_agents, self.moves, strict=True)
        ]


def played(make, wrappers, mode, steps=160, backend="dummy", games=3, **options):
    """Yields the environment and each result."""
    built = vecwrap.build(
        make, n=games, wrappers=[Chooses, *wrappers], backend=backend, autoreset=mode, **options
    )
    with built as env:
        chooses = env.find(Chooses)
        yield env, (*env.reset(seed=9), None, None, None)
        for _ in range(steps):
            over = ~env.alive.reshape(games, -1).any(axis=1)
            if mode in ("disabled", "episodic") and over.any():
                env.reset(options={"reset_mask": over.repeat(env.num_envs // games)})
            observations, rewards, terminations, truncations, infos = env.step(chooses.chosen())
            yield env, (observations, infos, rewards, terminations, truncations)


def loops(make, games=3):
    found = [Loop(make(), 9 + game) for game in range(games)]
    for loop in found:
        loop.play(80)
    return found


# A game of each kind in every mode, each game in one.
GAMES = [
    *((make, mode) for make in (Turns, LingeringCrowd) for mode in MODES),
    *((make, mode) for make in (Party, Guests, Returning, Crowd) for mode in MODES[:1]),
    *(
        pytest.param(make, mode, marks=pytest.mark.full)
        for make in (Party, Guests, Returning, Crowd)
        for mode in MODES[1:]
    ),
]


@pytest.mark.parametrize(("make", "mode"), GAMES)
def test_a_monitor_has_a_line_for_each_agents_episode(make, mode, tmp_path):
    for env, _ in played(make, [{"monitor": {"dir": str(tmp_path)}}], mode):
        recent = list(env.find(vecwrap.VecEnvWrapper).recent)
    lines = (tmp_path / "monitor.csv").read_text().splitlines()
    assert json.loads(lines[0][1:])["env_id"] == make.metadata["name"]
    rows = list(csv.DictReader(lines[1:]))
    assert list(rows[0]) == ["r", "l", "t", "env", "lost", "steps", "agent"]
    assert recent[-1].agent == rows[-1]["agent"]
    names = list(map(str, make.possible_agents))
    for game, loop in enumerate(loops(make)):
        for seat, name in enumerate(names):
            own = [row for row in rows if int(row["env"]) == game * len(names) + seat]
            assert {row["agent"] for row in own} <= {name}
            expected = loop.episodes[name]
            got = [(float(row["r"]), int(row["l"])) for row in own]
            assert len(got) > 5
            # As they are rounded in the file.
            np.testing.assert_allclose(got, expected[: len(got)], atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_statistics_count_each_observation_and_each_complete_reward_once(mode):
    """Observations that a decision was made on, or that a game was opened with; returns by
    transitions.
    """
    gamma = 0.9
    for one, result in played(
        Turns, [{"normalize_obs": {}}, {"normalize_reward": {"gamma": gamma}}], mode, steps=100
    ):
        env, last = one, result
    counted = {
        name: each
        for wrapper in env.chain
        for name, each in getattr(wrapper, "wrapper_statistics", dict)().items()
    }
    returns = counted["returns"]
    plain, discounted, running = [], [], np.zeros(12)
    steps = played(Turns, [Counts], mode, steps=100)
    for twin, _ in steps:
        counts = twin.find(Counts)
    for step in counts.steps:
        plain += [step.observations[k] for k in range(len(step.env_ids)) if counts.shown(step, k)]
        for k in np.flatnonzero(step.completed):
            i = step.env_ids[k]
            running[i] = running[i] * gamma + step.rewards[k]
            discounted.append(running[i])
        running[step.env_ids[step.first | step.dones]] = 0
    np.testing.assert_allclose(returns.var, np.var(discounted), rtol=1e-5)
    assert round(returns.count) == len(discounted)
    observations = next(each for name, each in counted.items() if name != "returns")
    np.testing.assert_allclose(observations.mean, np.mean(plain, axis=0), rtol=1e-5)
    assert last[0].dtype == np.float32


class Counts(vecwrap.VecEnvWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.steps = []

    def on_step(self, step):
        self.steps.append(step.replace())

    def shown(self, step, k):
        return bool(step.observed[k] and (step.first[k] or not step.dones[k]))


@pytest.mark.parametrize(("make", "mode"), GAMES)
def test_a_stack_holds_an_agents_own_observations(make, mode):
    """A row that waits repeats its stack; a turn pushes what the agent then sees, an end what it
    last saw.
    """
    in_turns = issubclass(make, Turns)
    keys = {} if in_turns else {"keys": ["at"]}
    steps = played(make, [Counts, {"framestack": {"k": 3, **keys}}], mode, steps=120)
    stacks = {}
    of = (lambda seen: seen) if in_turns else (lambda seen: seen["at"])
    present = np.zeros(12, bool)
    for number, (env, (observations, infos, *_)) in enumerate(steps):
        counts = env.find(Counts)
        news, counts.steps = counts.steps, []
        for step in news:
            for k, i in enumerate(step.env_ids.tolist()):
                final = step.first[k] and step.dones[k]
                joins = step.observed[k] and not present[i]
                present[i] = step.alive[k]
                if final and step is news[-1]:
                    before = (
                        [np.zeros_like(of(step.observations)[k])] * 2 if joins else stacks[i][1:]
                    )
                    expected = [*before, of(step.final_obs)[k]]
                    got = infos["final_obs"][i] if in_turns else infos["final_obs"][i]["at"]
                    np.testing.assert_array_equal(got, expected)
                if step.first[k] or joins:
                    stacks[i] = [np.zeros_like(of(step.observations)[k])] * 3
                if step.observed[k]:
                    stacks[i] = [*stacks[i][1:], of(step.observations)[k]]
        for i, stack in stacks.items():
            np.testing.assert_array_equal(of(observations)[i], stack, f"step {number}, row {i}")


@pytest.mark.parametrize("backend", ["dummy", "shmem"])
def test_pictures_and_videos_are_one_a_game(backend, tmp_path):
    pytest.importorskip("imageio_ffmpeg")
    wrappers = [{"video": {"dir": str(tmp_path), "every": 1, "max_size": 64}}, "tile"]
    for env, _ in played(Turns, wrappers, "same_step", steps=40, backend=backend):
        assert env.render().shape == (4, 18, 3)  # a row of three tiles
    assert len(list(tmp_path.glob("*.mp4"))) > 1
    with pytest.raises(PlanError, match="labels: expected False in games of several agents"):
        vecwrap.build(Turns, n=1, wrappers=[{"tile": {"labels": True}}], backend="dummy")


def test_terminal_observations_are_those_of_agents_that_leave():
    for env, (observations, infos, _, terminations, truncations) in played(
        Turns, ["terminal_obs"], "same_step"
    ):
        if terminations is None:
            continue
        dones = terminations | truncations
        assert ("terminal_obs" in infos) == dones.any()
        for i in np.flatnonzero(dones):
            expected = (
                infos["final_obs"][i]
                if "final_obs" in infos and infos["_final_obs"][i]
                else observations[i]
            )
            np.testing.assert_array_equal(infos["terminal_obs"][i], expected)
        assert env.alive[~dones].sum() + dones.sum() >= 0


@pytest.mark.parametrize("mode", MODES)
def test_time_goes_by_an_agents_own_moves(mode):
    """And a row that waits repeats what it last saw."""
    before = None
    wrappers = [{"time_aware": {"limit": 99, "flatten": False}}, Counts]
    for env, (observations, *_) in played(Turns, wrappers, mode):
        counts = env.find(Counts)
        *resets, step = counts.steps
        counts.steps, moves = [], env.find(Chooses).moves
        turns = step.observed & step.alive
        np.testing.assert_array_equal(observations["time"][turns, 0], moves[turns])
        if before is not None and not resets:
            waits = ~(step.observed | step.first)
            np.testing.assert_array_equal(observations["time"][waits], before[waits])
        before = observations["time"]


LENGTHS = {"a": 2, "b": 4, "c": 3}


class Leaving(ParallelEnv):
    """Move t of a player pays t; a, b and c leave after 2, 4 and 3 moves."""

    metadata = {"name": "leaving", "render_modes": []}
    render_mode = None
    possible_agents = ["a", "b", "c"]

    def __init__(self):
        self.spaces = spaces.Box(0, 9, (1,)), spaces.Discrete(2)

    def observation_space(self, agent):
        return self.spaces[0]

    def action_space(self, agent):
        return self.spaces[1]

    def reset(self, seed=None, options=None):
        self.time, self.agents = 0, self.possible_agents[:]
        return self.of_all(np.zeros(1, np.float32)), self.of_all({})

    def of_all(self, value):
        return dict.fromkeys(self.agents, value)

    def step(self, actions):
        self.time += 1
        result = [self.of_all(np.full(1, self.time, np.float32)), self.of_all(float(self.time))]
        ended = {agent: self.time >= LENGTHS[agent] for agent in self.agents}
        result += [ended, self.of_all(False), self.of_all({})]
        self.agents = [agent for agent in self.agents if not ended[agent]]
        return tuple(result)


@pytest.mark.parametrize("mode", MODES)
def test_in_turns_the_same_returns_are_counted_as_at_once(mode):
    """The same game in both forms, and by hand: an agent's first turn completes no action."""
    returns = []
    for length in LENGTHS.values():
        returns += itertools.accumulate(
            range(1, length + 1), lambda running, reward: running * 0.9 + reward
        )
    for make in (Leaving, in_turns):
        wrappers = ["normalize_reward:gamma=0.9", "monitor"]
        with vecwrap.build(make, n=1, backend="dummy", autoreset=mode, wrappers=wrappers) as env:
            env.reset(seed=1)
            while env.find(Monitor).num_episodes < 9:
                if mode in ("disabled", "episodic") and not env.alive.any():
                    env.reset()
                env.step([0, 0, 0])
            counted = env.find(NormalizeReward).rewards.statistics
        assert round(counted.count) == 27
        np.testing.assert_allclose(
            [counted.mean, counted.var], [np.mean(returns), np.var(returns)], rtol=1e-4
        )


def in_turns():
    return parallel_to_aec(Leaving())


def test_who_has_not_moved_gets_no_lowest_reward():
    """And who has been paid all the same, before its first move, is paid within the bounds."""
    with vecwrap.build(
        in_turns, n=1, backend="dummy", wrappers=["clip_reward:low=0.5,high=2"]
    ) as env:
        env.reset(seed=1)
        rewards = [env.step([0, 0, 0])[1].tolist() for _ in range(6)]
    assert rewards == [[0, 0, 0], [0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [2, 2, 0]]
    with vecwrap.build(
        Visited, n=1, backend="dummy", wrappers=["clip_reward:low=0.5,high=2"]
    ) as env:
        env.reset(seed=1)
        rewards = [env.step([0, 0, 0])[1].tolist() for _ in range(2)]
    assert rewards == [[0.5, 0, 0], [0.5, 0.5, 0]]


class Visited(AECEnv):
    """With the second move of a comes b, who has to go at once, by ``flags``, and is paid -7; a may
    go with it.
    """

    metadata = {"name": "visited", "render_modes": []}
    render_mode = None
    possible_agents = ["a", "b", "never"]

    def __init__(self, flags=(True, False), ends=False, reward=-7.0):
        self.flags, self.ends, self.reward = flags, ends, reward
        self.spaces = spaces.Box(-9, 9, (1,), np.float32), spaces.Discrete(2)

    def observation_space(self, agent):
        return self.spaces[0]

    def action_space(self, agent):
        return self.spaces[1]

    def observe(self, agent):
        return np.full(1, self.time + 5 * (agent == "b"), np.float32)

    def reset(self, seed=None, options=None):
        self.agents, self.agent_selection, self.time = ["a"], "a", 0
        self.rewards, self._cumulative_rewards, self.infos = {"a": 0.0}, {"a": 0.0}, {"a": {}}
        self.terminations, self.truncations = {"a": False}, {"a": False}

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self.time += 1
        self._cumulative_rewards[agent] = 0.0
        if self.time == 2:
            self.agents.append("b")
            self.rewards["b"], self._cumulative_rewards["b"], self.infos["b"] = (
                0.0,
                self.reward,
                {"came": 2},
            )
            self.terminations["b"], self.truncations["b"] = self.flags
            self.terminations["a"] = self.ends
            self.agent_selection = "b"
            self._skip_agent_selection = "a"


FLAGS = {"terminated": (True, False), "truncated": (False, True), "both": (True, True)}


@pytest.mark.parametrize("backend", ["dummy", "shmem"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ends", [False, True], ids=["goes on", "ends"])
def test_who_joins_and_is_done_at_once_has_what_last_says(ends, mode, backend):
    """Its reward, flags, observation and info; where the game goes on, no episode of its opens."""
    for flags in FLAGS.values():
        raw = Visited(flags, ends)
        raw.reset()
        raw.step(0)
        raw.step(0)
        seen, reward, terminated, truncated, info = raw.last()
        make = partial(Visited, flags, ends)
        with vecwrap.build(
            make, n=1, backend=backend, autoreset=mode, wrappers=[Counts, "monitor"]
        ) as env:
            env.reset(seed=1)
            env.step([0, 0, 0])
            observations, rewards, terminations, truncations, infos = env.step([0, 0, 0])
            step = env.find(Counts).steps[-1]
        assert (rewards[1], terminations[1], truncations[1]) == (reward, terminated, truncated)
        finals = ends and mode == "same_step"
        assert (infos["final_obs"][1] if finals else observations[1]) == seen
        of_end = infos["final_info"] if finals else infos
        assert (of_end["came"][1], of_end["_came"].tolist()) == (
            info["came"],
            [False, True, False],
        )
        assert (step.acted[1], step.completed[1], step.first[1]) == (False, False, finals)
        assert infos["_episode"].tolist() == [ends, True, False]
        assert (infos["episode"]["r"][1], infos["episode"]["l"][1]) == (reward, 0)
        assert infos["episode"]["t"][1] == 0


@pytest.mark.parametrize("make", [Guests, Crowd])
def test_evaluate_counts_who_joins_and_is_done_at_once(make):
    """As many episodes of each row as asked for, which are a loop's first ones."""
    with vecwrap.build(make, n=2, backend="dummy", wrappers=[Chooses, "monitor"]) as env:
        chooses = env.find(Chooses)
        result = evaluate(
            env, lambda observations: chooses.chosen(), episodes=env.num_envs * 5, seed=9
        )
    for game, loop in enumerate(loops(make, 2)):
        for seat, agent in enumerate(make.possible_agents):
            own = result.env_ids == game * 4 + seat
            got = list(zip(result.returns[own].tolist(), result.lengths[own].tolist(), strict=True))
            assert got == loop.episodes[str(agent)][:5]


class NotANumber(Visited):
    def __init__(self, joins=True):
        super().__init__(flags=(not joins, False), reward=float("nan"))


@pytest.mark.parametrize("joins", [True, False])
def test_a_reward_before_the_first_action_is_looked_at_too(joins):
    with vecwrap.build(
        partial(NotANumber, joins), n=1, backend="dummy", wrappers=["check_nan"]
    ) as env:
        env.reset(seed=1)
        env.step([0, 0, 0])
        with pytest.raises(NotFiniteError, match="nan in rewards of sub-environment 1"):
            env.step([0, 0, 0])


def test_what_an_agent_is_paid_when_it_joins_is_in_its_score():
    """It goes on from there; the reward stands in the row in which it joins."""
    games = []
    make = partial(Visited, (False, False), reward=3.0)
    with vecwrap.build(
        make, n=1, backend="dummy", wrappers=[Counts, {"monitor": {"log": games.append}}]
    ) as env:
        env.reset(seed=1)
        env.step([0, 0, 0])
        rewards = env.step([0, 0, 0])[1]
        assert (rewards[1], env.find(Counts).steps[-1].completed[1]) == (3, False)
        assert env.find(Monitor).games[0].tolist() == [0, 3, 0]
        env.reset()
        assert env.find(Monitor).games[0].tolist() == [0, 0, 0]
