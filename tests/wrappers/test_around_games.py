"""Wrappers of the vector around games of several agents, held to a loop over the raw game."""

import csv
import json

import numpy as np
import pytest

import vecwrap
from tests.agents import Loop, Party, Turns, choose
from vecwrap.errors import PlanError
from vecwrap.rows.compare import assert_same

MODES = ["same_step", "next_step", "disabled", "episodic"]


class Chooses(vecwrap.VecEnvWrapper):
    """Knows what the loop would do next: its choices are by the number of an agent's moves in its game."""

    def __init__(self, env):
        super().__init__(env)
        self.moves = np.zeros(env.num_envs, int)

    def on_step(self, step):
        self.moves[step.env_ids] = np.where(step.first, 0, self.moves[step.env_ids] + step.acted)

    def chosen(self):
        return [choose(name, number, None, 5) for name, number in zip(self.row_agents, self.moves, strict=True)]


def played(make, wrappers, mode, steps=160, backend="dummy", games=3, **options):
    """Yields the environment and each result."""
    built = vecwrap.build(make, n=games, wrappers=[Chooses, *wrappers], backend=backend, autoreset=mode, **options)
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


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [Turns, Party])
def test_a_monitor_has_a_line_for_each_agents_episode(make, mode, tmp_path):
    for env, _ in played(make, [{"monitor": {"dir": str(tmp_path)}}], mode):
        recent = list(env.find(vecwrap.VecEnvWrapper).recent)
    lines = (tmp_path / "monitor.csv").read_text().splitlines()
    assert json.loads(lines[0][1:])["env_id"] in ("turns", "party")
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
            np.testing.assert_allclose(got, expected[: len(got)], atol=1e-6)  # as they are rounded in the file


@pytest.mark.parametrize("mode", MODES)
def test_statistics_count_each_observation_and_each_complete_reward_once(mode):
    """Observations that a decision was made on, or that a game was opened with; returns by transitions."""
    gamma = 0.9
    for one, result in played(Turns, [{"normalize_obs": {}}, {"normalize_reward": {"gamma": gamma}}], mode, steps=100):
        env, last = one, result
    counted = {
        name: each for wrapper in env.chain for name, each in getattr(wrapper, "wrapper_statistics", dict)().items()
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
        return bool(step.live[k] and (step.first[k] or not step.dones[k]))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [Turns, Party])
def test_a_stack_holds_an_agents_own_observations(make, mode):
    """A row that waits repeats its stack; a turn pushes what the agent then sees, an end what it last saw."""
    keys = {} if make is Turns else {"keys": ["at"]}
    steps = played(make, [Counts, {"framestack": {"k": 3, **keys}}], mode, steps=120)
    stacks = {}
    of = (lambda seen: seen) if make is Turns else (lambda seen: seen["at"])
    for number, (env, (observations, infos, *_)) in enumerate(steps):
        counts = env.find(Counts)
        news, counts.steps = counts.steps, []
        for step in news:
            for k, i in enumerate(step.env_ids.tolist()):
                final = step.first[k] and step.dones[k]
                if final and step is news[-1]:
                    expected = [*stacks[i][1:], of(step.final_obs)[k]]
                    got = infos["final_obs"][i] if make is Turns else infos["final_obs"][i]["at"]
                    np.testing.assert_array_equal(got, expected)
                if step.first[k]:
                    stacks[i] = [np.zeros_like(of(step.observations)[k])] * 3
                if step.live[k]:
                    stacks[i] = [*stacks[i][1:], of(step.observations)[k]]
        for i, stack in stacks.items():
            np.testing.assert_array_equal(of(observations)[i], stack, f"step {number}, row {i}")


@pytest.mark.parametrize("mode", MODES)
def test_trajectories_are_an_agents_transitions(mode, tmp_path):
    wrapper = {"record_trajectories": {"dir": str(tmp_path)}}
    for _ in played(Turns, [wrapper], mode, steps=150):
        pass
    expected = loops(Turns)
    found = 0
    for game, loop in enumerate(expected):
        for seat, name in enumerate(Turns.possible_agents):
            own = iter([one for one in loop.transitions[name] if one[0] is not None])
            for path in sorted(tmp_path.glob(f"env-{game * 4 + seat:03d}-*.npz")):
                with np.load(path) as file:
                    for k in range(len(file["rewards"])):
                        (seen, action), reward, terminated, truncated, after, _ = next(own)
                        assert_same(
                            [action, reward, terminated, truncated],
                            [
                                int(file["actions"][k]),
                                float(file["rewards"][k]),
                                bool(file["terminations"][k]),
                                bool(file["truncations"][k]),
                            ],
                        )
                        np.testing.assert_array_equal(file["observations"][k], seen)
                        np.testing.assert_array_equal(file["observations"][k + 1], after)
                        found += 1
    assert found > 150


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
    for env, (observations, infos, _, terminations, truncations) in played(Turns, ["terminal_obs"], "same_step"):
        if terminations is None:
            continue
        dones = terminations | truncations
        assert ("terminal_obs" in infos) == dones.any()
        for i in np.flatnonzero(dones):
            expected = infos["final_obs"][i] if "final_obs" in infos and infos["_final_obs"][i] else observations[i]
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
        turns = step.live & step.alive
        np.testing.assert_array_equal(observations["time"][turns, 0], moves[turns])
        if before is not None and not resets:
            waits = ~(step.live | step.first)
            np.testing.assert_array_equal(observations["time"][waits], before[waits])
        before = observations["time"]
