"""SuperSuit's vectors of PettingZoo's agents, of both base classes, under our wrappers: what they
give alone.
"""

import numpy as np
import pytest
from gymnasium import spaces

import vecwrap
from vecwrap.errors import ArgumentError, PlanError

supersuit = pytest.importorskip("supersuit.vector.vector_constructors")
pettingzoo = pytest.importorskip("pettingzoo")

AGENTS, COPIES, N = 2, 3, 6


class Drill(pettingzoo.ParallelEnv):
    """Two agents whose game ends for both at once, after a drawn number of steps."""

    metadata = {"name": "drill"}
    render_mode = None
    possible_agents = ["left", "right"]

    def __init__(self):
        self.agents = []

    def observation_space(self, agent):
        return spaces.Box(-9, 9, (2,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        if seed is not None or not hasattr(self, "rng"):
            self.rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.left = int(self.rng.integers(2, 6))
        return self.draw(), {agent: {"opens": self.left} for agent in self.agents}

    def step(self, actions):
        self.left -= 1
        agents, over, cut = self.agents, self.left == 0, self.rng.random() < 0.2
        if over or cut:
            self.agents = []
        rewards = {agent: float(actions[agent]) + (agent == "right") / 2 for agent in agents}
        flags = dict.fromkeys(agents, over), dict.fromkeys(agents, bool(cut and not over))
        return self.draw(agents), rewards, *flags, {agent: {"left": self.left} for agent in agents}

    def draw(self, agents=None):
        return {agent: self.rng.random(2, np.float32) for agent in agents or self.agents}


def vector(processes=0, base="gymnasium"):
    one = supersuit.pettingzoo_env_to_vec_env_v1(Drill())
    return supersuit.concat_vec_envs_v1(one, COPIES, num_cpus=processes, base_class=base)


@pytest.mark.parametrize("processes", [0, 2])
def test_the_rows_and_scores_are_those_of_the_vector_itself(processes):
    plain, ends = vector(processes), 0
    with vecwrap.wrap(vector(processes), ["framestack:2", "monitor"]) as env:
        assert env.autoreset_mode.name == "SAME_STEP"
        assert env.num_envs == N
        observations, infos = env.reset(seed=3)
        expected, _ = plain.reset(seed=3)
        assert infos["opens"].min() >= 2
        returns, rng = np.zeros(N), np.random.default_rng(0)
        for _ in range(40):
            np.testing.assert_array_equal(observations[:, -1], expected)
            actions = rng.integers(0, 3, N)
            observations, rewards, terminations, truncations, infos = env.step(actions)
            expected, *row, theirs = plain.step(actions)
            for one, other in zip((rewards, terminations, truncations), row, strict=True):
                np.testing.assert_array_equal(one, other)
            returns += rewards
            for i in np.flatnonzero(terminations | truncations):
                ends += 1
                np.testing.assert_array_equal(
                    infos["final_obs"][i][-1], theirs[i]["terminal_observation"]
                )
                assert infos["final_info"]["left"][i] == theirs[i]["left"]
                assert infos["opens"][i] == theirs[i]["opens"]  # SuperSuit's info holds both
                assert infos["episode"]["r"][i] == returns[i]
                returns[i] = 0
            np.testing.assert_array_equal(infos["left"], [info["left"] for info in theirs])
            assert "terminal_observation" not in infos
        assert ends > 20
        assert truncations.dtype == bool
    plain.close()


@pytest.mark.parametrize("processes", [0, 2])
def test_its_stable_baselines_class(processes):
    """Which neither passes seeds on nor says what was truncated: all its ends are terminations."""
    plain, ends = vector(processes, "stable_baselines3"), 0
    with vecwrap.wrap(vecwrap.from_sb3(vector(processes, "stable_baselines3")), ["monitor"]) as env:
        first, infos = env.reset(seed=3)
        np.testing.assert_array_equal(first, env.reset(seed=3)[0])
        assert infos["opens"].min() >= 2
        plain.unwrapped.reset(seed=3)
        np.testing.assert_array_equal(first, plain.reset())
        rng = np.random.default_rng(0)
        for _ in range(30):
            actions = rng.integers(0, 3, N)
            observations, rewards, terminations, truncations, infos = env.step(actions)
            expected, theirs, dones, their_infos = plain.step(actions)
            np.testing.assert_array_equal(observations, expected)
            np.testing.assert_array_equal(rewards, theirs)
            np.testing.assert_array_equal(terminations, dones)
            assert not truncations.any()
            for i in np.flatnonzero(dones):
                ends += 1
                np.testing.assert_array_equal(
                    infos["final_obs"][i], their_infos[i]["terminal_observation"]
                )
        assert ends > 10
        with pytest.raises(
            ArgumentError,
            match=r"ConcatVec.* receives no options|ProcConcatVec receives no options",
        ):
            env.reset(options={"level": 1})
    plain.close()


def test_each_function_names_the_one_that_takes_it():
    engine = vector()
    with pytest.raises(
        ArgumentError, match=r"from_sb3: .*got ConcatVecEnv, a gymnasium.* pass it to vecwrap\.wrap"
    ):
        vecwrap.from_sb3(engine)
    with pytest.raises(
        PlanError, match=r"got a Stable-Baselines3 SB3VecEnvWrapper; use .*from_sb3\(venv\)"
    ):
        vecwrap.wrap(vector(base="stable_baselines3"))
    with vecwrap.to_sb3(vecwrap.wrap(engine)).vecwrap_env as env:
        env.reset(seed=1)
