"""Games of several agents for tests: toys for the nasty cases, and the loop over a raw game that they are held to."""

import os
import signal

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv


class Turns(AECEnv):
    """Three agents and one that never moves; who moves, is paid, dies, and of what, is drawn.

    Anyone may open a game, move twice, be paid out of turn, and die in another's turn; the last ones die together.
    """

    metadata = {"name": "turns", "render_modes": ["rgb_array"]}
    render_mode = "rgb_array"
    possible_agents = ["ann", "bob", "cyd", "dot"]

    def __init__(self, most=12):
        super().__init__()
        self.most, self.bonus, self.calls = most, 0.0, []
        self.spaces = spaces.Box(-1e6, 1e6, (4,), np.float64), spaces.Discrete(5)

    def observation_space(self, agent):
        return self.spaces[0]

    def action_space(self, agent):
        return self.spaces[1]

    def reset(self, seed=None, options=None):
        if seed is not None or not hasattr(self, "rng"):
            self.rng = np.random.default_rng(seed)
        self.agents = self.possible_agents[:]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {"opened": 1, "start": (options or {}).get("start", 0)} for agent in self.agents}
        self.time, self.last_action = 0, -1
        self.agent_selection = self.next_one()
        self._skip_agent_selection = None

    def next_one(self):
        movers = [agent for agent in self.agents if agent != "dot" and not self.is_done(agent)]
        return str(self.rng.choice(movers)) if movers else self.agents[0]

    def is_done(self, agent):
        return self.terminations[agent] or self.truncations[agent]

    def observe(self, agent):
        drawn = self.rng.bit_generator.state["state"]["state"] % 99991
        return np.array([self.time, self.last_action, self.possible_agents.index(agent), drawn], np.float64)

    def step(self, action):
        agent = self.agent_selection
        if self.is_done(agent):
            self._was_dead_step(action)
            return
        if action == 4 and self.bonus < 0:
            raise RuntimeError("as asked")
        if action == 4 and self.bonus == 99:
            os.kill(os.getpid(), signal.SIGKILL)
        self._cumulative_rewards[agent] = 0.0
        self.time, self.last_action = self.time + 1, int(action)
        self._clear_rewards()
        for one in self.agents:
            if self.rng.random() < 0.5:
                self.rewards[one] = float(self.rng.integers(-3, 4)) + self.bonus
        for one in self.agents:
            if self.rng.random() < 0.06:
                (self.terminations if self.rng.random() < 0.5 else self.truncations)[one] = True
            self.infos[one] = {"time": self.time, "odd": bool(self.time % 2)} if self.rng.random() < 0.7 else {}
        if self.time >= self.most or all(self.is_done(one) for one in self.agents if one != "dot"):
            for one in self.agents:
                if not self.is_done(one):
                    self.truncations[one] = True
        self.agent_selection = self.next_one()
        self._accumulate_rewards()
        self._deads_step_first()

    def state(self):
        return np.array([self.time, self.last_action], np.float32)

    def tell(self):
        return [self.time, self.last_action]

    def render(self):
        return np.full((4, 6, 3), self.time, np.uint8)

    def close(self):
        pass


class Party(ParallelEnv):
    """Up to four at once: some come late, some leave early, some come back."""

    comes_back = True
    metadata = {"name": "party"}
    render_mode = None
    possible_agents = [0, 1, 2, 3]

    def __init__(self, most=10):
        self.most, self.bonus = most, 0.0
        self.spaces = spaces.Dict(at=spaces.Box(-9, 9, (2,), np.float32), who=spaces.Discrete(4)), spaces.Discrete(5)

    def observation_space(self, agent):
        return self.spaces[0]

    def action_space(self, agent):
        return self.spaces[1]

    def reset(self, seed=None, options=None):
        if seed is not None or not hasattr(self, "rng"):
            self.rng = np.random.default_rng(seed)
        self.time, self.banned = 0, set()
        self.agents = [agent for agent in self.possible_agents if agent == 0 or self.rng.random() < 0.7]
        return self.seen(self.agents), {agent: {"opened": self.time} for agent in self.agents}

    def seen(self, agents):
        return {agent: {"at": self.rng.random(2, np.float32), "who": agent} for agent in agents}

    def step(self, actions):
        assert list(actions) == self.agents
        if self.bonus < 0 and 4 in actions.values():
            raise RuntimeError("as asked")
        self.time += 1
        were, end = self.agents, self.time >= self.most
        terminations = {agent: bool(self.rng.random() < 0.1) for agent in were}
        truncations = {agent: end or bool(self.rng.random() < 0.05) for agent in were}
        rewards = {agent: float(self.rng.normal()) + actions[agent] + self.bonus for agent in were}
        stay = [agent for agent in were if not (terminations[agent] or truncations[agent])]
        absent = [agent for agent in self.possible_agents if agent not in were and agent not in self.banned]
        come = [agent for agent in absent if self.rng.random() < 0.1 and stay]
        self.banned |= set() if self.comes_back else set(were) - set(stay)
        self.agents = stay + come
        return (
            self.seen(were + come),
            rewards,
            terminations,
            truncations,
            {agent: {"time": self.time} for agent in were},
        )

    def state(self):
        return np.array([self.time], np.float32)

    def close(self):
        pass


def choose(agent, number, seen, n):
    """The action of an agent's move number ``number`` in its game: any legal one."""
    legal = np.flatnonzero(seen["action_mask"]) if isinstance(seen, dict) and "action_mask" in seen else np.arange(n)
    return int(legal[(7 * number + 3 * len(str(agent)) + number * number) % len(legal)])


class Loop:
    """What a loop over the raw game gives: by agent, each transition of each of its episodes."""

    def __init__(self, env, seed):
        self.env, self.seed = env, seed
        self.transitions = {str(agent): [] for agent in env.possible_agents}
        self.episodes = {str(agent): [] for agent in env.possible_agents}  # (score, moves), also of what no move earned
        self.scores = dict.fromkeys(self.episodes, (0.0, 0))

    def play(self, games, options=None, enough=(float("inf"),)):
        seed = self.seed
        for _ in range(games):
            (self._one if isinstance(self.env, AECEnv) else self._all)(seed, options, enough)
            if self._has(enough):
                break
            seed = None
        return self.transitions

    def _has(self, enough):
        return all(len(row) >= most for row, most in zip(self.transitions.values(), enough, strict=False))

    def _one(self, seed, options, enough):
        env = self.env
        env.reset(seed=seed, options=options)
        before, moves = {}, dict.fromkeys(map(str, env.possible_agents), 0)
        for agent in env.agent_iter():
            if self._has(enough):
                return
            seen, reward, terminated, truncated, info = env.last()
            seen = copied(seen)
            self._score(agent, reward, terminated or truncated, agent in before and moves[str(agent)] > 0)
            if agent in before or terminated or truncated:
                self._add(agent, before.get(agent), reward, terminated, truncated, seen, info)
            if terminated or truncated:
                env.step(None)
                continue
            action = choose(agent, moves[str(agent)], seen, env.action_space(agent).n)
            moves[str(agent)] += 1
            before[agent] = seen, action
            env.step(action)

    def _all(self, seed, options, enough):
        env = self.env
        seen, _ = env.reset(seed=seed, options=options)
        seen = copied(seen)
        moves = dict.fromkeys(map(str, env.possible_agents), 0)
        while env.agents and not self._has(enough):
            actions = {}
            for agent in env.agents:
                actions[agent] = choose(agent, moves[str(agent)], seen[agent], env.action_space(agent).n)
                moves[str(agent)] += 1
            after, rewards, terminations, truncations, infos = env.step(dict(actions))
            for agent, action in actions.items():
                flags = terminations[agent], truncations[agent]
                self._add(agent, (seen[agent], action), rewards[agent], *flags, after[agent], infos[agent])
                self._score(agent, rewards[agent], any(flags), True)
            moves.update({str(agent): 0 for agent in env.agents if agent not in actions})  # it joins
            seen = copied(after)

    def _score(self, agent, reward, done, moved):
        score, length = self.scores[str(agent)]
        self.scores[str(agent)] = score + reward, length + moved
        if done:
            self.episodes[str(agent)].append(self.scores[str(agent)])
            self.scores[str(agent)] = 0.0, 0

    def _add(self, agent, before, reward, terminated, truncated, seen, info):
        row = before, float(reward), bool(terminated), bool(truncated), copied(seen), dict(info)
        self.transitions[str(agent)].append(row)


def copied(seen):
    if isinstance(seen, dict):
        return {key: copied(one) for key, one in seen.items()}
    return np.array(seen)
