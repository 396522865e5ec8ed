"""Games of several agents for tests: toys for the nasty cases, and the loop over a raw game that
they are held to.
"""

import os
import signal

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv


class Alike:
    """A game whose agents have the same two ``spaces``, and whose numbers are drawn from the last
    seed given.
    """

    def observation_space(self, agent):
        return self.spaces[0]

    def action_space(self, agent):
        return self.spaces[1]

    def draw_from(self, seed):
        if seed is not None or not hasattr(self, "rng"):
            self.rng = np.random.default_rng(seed)


class InTurns(Alike, AECEnv):
    """One in which agents move in turns, and all are there when it begins."""

    def begin(self, seed):
        self.draw_from(seed)
        self.agents = self.possible_agents[:]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self._skip_agent_selection = None


class Turns(InTurns):
    """Three agents and one that never moves; who moves, is paid, dies, and of what, is drawn.

    Anyone may open a game, move twice, be paid out of turn, and die in another's turn; the last
    ones die together.
    """

    metadata = {"name": "turns", "render_modes": ["rgb_array"]}
    render_mode = "rgb_array"
    possible_agents = ["ann", "bob", "cyd", "dot"]

    def __init__(self, most=12):
        super().__init__()
        self.most, self.bonus, self.calls = most, 0.0, []
        self.spaces = spaces.Box(-1e6, 1e6, (4,), np.float64), spaces.Discrete(5)

    def reset(self, seed=None, options=None):
        self.begin(seed)
        self.infos = {
            agent: {"opened": 1, "start": (options or {}).get("start", 0)} for agent in self.agents
        }
        self.time, self.last_action = 0, -1
        self.agent_selection = self.next_one()

    def next_one(self):
        movers = [agent for agent in self.agents if agent != "dot" and not self.is_done(agent)]
        return str(self.rng.choice(movers)) if movers else self.agents[0]

    def is_done(self, agent):
        return self.terminations[agent] or self.truncations[agent]

    def observe(self, agent):
        drawn = self.rng.bit_generator.state["state"]["state"] % 99991
        return np.array(
            [self.time, self.last_action, self.possible_agents.index(agent), drawn], np.float64
        )

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
            self.infos[one] = (
                {"time": self.time, "odd": bool(self.time % 2)} if self.rng.random() < 0.7 else {}
            )
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


class Party(Alike, ParallelEnv):
    """Up to four at once: some come late, some leave early, some come back."""

    comes_back = True
    metadata = {"name": "party"}
    render_mode = None
    possible_agents = [0, 1, 2, 3]

    def __init__(self, most=10):
        self.most, self.bonus = most, 0.0
        self.spaces = (
            spaces.Dict(at=spaces.Box(-9, 9, (2,), np.float32), who=spaces.Discrete(4)),
            spaces.Discrete(5),
        )

    def reset(self, seed=None, options=None):
        self.draw_from(seed)
        self.time, self.banned = 0, set()
        self.agents = [
            agent for agent in self.possible_agents if agent == 0 or self.rng.random() < 0.7
        ]
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
        absent = [
            agent
            for agent in self.possible_agents
            if agent not in were and agent not in self.banned
        ]
        come = [agent for agent in absent if self.rng.random() < 0.1 and stay]
        self.banned |= set() if self.comes_back else set(were) - set(stay)
        self.agents = stay + come
        terminations |= dict.fromkeys(come, False)
        truncations |= dict.fromkeys(come, False)
        rewards |= dict.fromkeys(come, 0.0)
        infos = {agent: {"time": self.time} for agent in were + come}
        return self.seen(were + come), rewards, terminations, truncations, infos

    def state(self):
        return np.array([self.time], np.float32)

    def close(self):
        pass


class Guests(Turns):
    """Turns whose agents come late, come back, and are paid or done, or both, before they have
    moved.

    That may be when a game begins, when they join, or because of others; the last may leave when
    another joins.
    """

    metadata = {"name": "guests", "render_modes": []}
    render_mode = None
    weights = {"ann": 9, "bob": 9, "cyd": 1, "dot": 1}  # how likely each is to be the next to move

    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        for agent in self.possible_agents[1:]:
            if self.rng.random() < 0.4:
                self.take_out(agent)
        for agent in self.agents:
            if self.rng.random() < 0.3:
                self._cumulative_rewards[agent] = float(self.rng.integers(-3, 4))
            if len(self.agents) > 1 and self.rng.random() < 0.05:
                self.terminations[agent] = True
        self.agent_selection = self.next_one()
        self._deads_step_first()

    def take_out(self, agent):
        self.agents.remove(agent)
        for column in (
            self.rewards,
            self._cumulative_rewards,
            self.terminations,
            self.truncations,
            self.infos,
        ):
            del column[agent]

    def next_one(self):
        movers = [agent for agent in self.agents if not self.is_done(agent)]
        weights = np.array([self.weights[agent] for agent in movers], float)
        return str(self.rng.choice(movers, p=weights / weights.sum())) if movers else self.agents[0]

    def step(self, action):
        agent = self.agent_selection
        if self.is_done(agent):
            self._was_dead_step(action)
            return
        if action == 4 and self.bonus:
            self.fail()
        self._cumulative_rewards[agent] = 0.0
        self.time, self.last_action = self.time + 1, int(action)
        self._clear_rewards()
        everybody = self.rng.random() < 0.08 or self.time >= self.most
        for one in self.agents:
            if self.rng.random() < 0.5:
                self.rewards[one] = float(self.rng.integers(-3, 4))
            self.infos[one] = {"time": self.time} if self.rng.random() < 0.7 else {}
            if everybody or self.rng.random() < 0.08:
                self.end(one)
        self._accumulate_rewards()
        absent = [one for one in self.possible_agents if one not in self.agents]
        for one in absent:
            if self.rng.random() < 0.3 and self.time < self.most:
                self.let_in(one)
        self.agent_selection = self.next_one()
        self._deads_step_first()

    def fail(self):
        if self.bonus == 99:
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("as asked")

    def end(self, agent):
        (self.terminations if self.rng.random() < 0.5 else self.truncations)[agent] = True

    def let_in(self, agent):
        self.agents.append(agent)
        self.rewards[agent] = 0.0
        self._cumulative_rewards[agent] = (
            float(self.rng.integers(-3, 4)) if self.rng.random() < 0.5 else 0.0
        )
        self.terminations[agent] = self.truncations[agent] = False
        self.infos[agent] = {"joined": self.time}
        if self.rng.random() < 0.4:
            self.end(agent)


class Returning(Guests):
    """Guests of whom some come back in the very turn in which they leave."""

    def _was_dead_step(self, action):
        agent, alone = self.agent_selection, len(self.agents) == 1
        super()._was_dead_step(action)
        if any(map(self.is_done, self.agents)) or self.time >= self.most or self.rng.random() < 0.7:
            return
        self.let_in(agent)
        self.terminations[agent] = self.truncations[agent] = False
        if alone or self.rng.random() < 0.5:
            self.agent_selection = agent


class Crowd(Party):
    """A party at which those who come are paid at once, or have to go at once, maybe when all
    others go.
    """

    metadata = {"name": "crowd"}
    stays_in_agents = False  # those who come and go at once

    def reset(self, seed=None, options=None):
        # they do not come in the next step: a game may go on saying that they are done
        self.just_left = []
        return super().reset(seed, options)

    def step(self, actions):
        if 4 in actions.values() and self.bonus:
            if self.bonus == 99:
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("as asked")
        self.time += 1
        were = list(actions)
        end = self.time >= self.most
        everybody = end or self.rng.random() < 0.08
        away = [
            agent for agent in self.possible_agents if agent not in [*self.agents, *self.just_left]
        ]
        come = [agent for agent in away if self.rng.random() < 0.25 and not end]
        around = were + come
        terminations = {
            agent: agent in were and bool(everybody or self.rng.random() < 0.1) for agent in around
        }
        truncations = {
            agent: bool(self.rng.random() < (0.4 if agent in come else 0.05)) for agent in around
        }
        rewards = {
            agent: float(self.rng.integers(-3, 4)) + actions.get(agent, 0) for agent in around
        }
        stay = [agent for agent in around if not (terminations[agent] or truncations[agent])]
        self.just_left = [agent for agent in around if agent not in stay]
        self.agents = [
            agent for agent in around if agent in stay or (self.stays_in_agents and agent in come)
        ]
        infos = {agent: {"time": self.time} for agent in around}
        return self.seen(around), rewards, terminations, truncations, infos


class LingeringCrowd(Crowd):
    """One whose guests are in ``agents`` in the step in which they come and go."""

    stays_in_agents = True


def choose(agent, number, seen, n):
    """The action of an agent's move number ``number`` in its game: any legal one."""
    legal = (
        np.flatnonzero(seen["action_mask"])
        if isinstance(seen, dict) and "action_mask" in seen
        else np.arange(n)
    )
    return int(legal[(7 * number + 3 * len(str(agent)) + number * number) % len(legal)])


class Loop:
    """What a loop over the raw game gives: by agent, each transition of each of its episodes."""

    def __init__(self, env, seed):
        self.env, self.seed = env, seed
        self.transitions = {str(agent): [] for agent in env.possible_agents}
        # (score, moves), also of what no move earned.
        self.episodes = {str(agent): [] for agent in env.possible_agents}
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
        return all(
            len(row) >= most for row, most in zip(self.transitions.values(), enough, strict=False)
        )

    def _one(self, seed, options, enough):
        env = self.env
        env.reset(seed=seed, options=options)
        before, moves = {}, dict.fromkeys(map(str, env.possible_agents), 0)
        for agent in env.agent_iter():
            if self._has(enough):
                return
            seen, reward, terminated, truncated, info = env.last()
            seen = copied(seen)
            self._score(agent, reward, terminated or truncated, agent in before)
            if agent in before or terminated or truncated:
                self._add(agent, before.pop(agent, None), reward, terminated, truncated, seen, info)
            if terminated or truncated:
                moves[str(agent)] = 0  # it may come back
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
        acting = list(env.agents)
        while acting and not self._has(enough):
            actions = {}
            for agent in acting:
                actions[agent] = choose(
                    agent, moves[str(agent)], seen[agent], env.action_space(agent).n
                )
                moves[str(agent)] += 1
            after, rewards, terminations, truncations, infos = env.step(dict(actions))
            for agent, action in actions.items():
                flags = terminations[agent], truncations[agent]
                self._add(
                    agent, (seen[agent], action), rewards[agent], *flags, after[agent], infos[agent]
                )
                self._score(agent, rewards[agent], any(flags), True)
            for agent in rewards:
                if agent not in actions:  # it joins, and may be done at once
                    moves[str(agent)], flags = 0, (terminations[agent], truncations[agent])
                    self._score(agent, rewards[agent], any(flags), False)
                    if any(flags):
                        self._add(agent, None, rewards[agent], *flags, after[agent], infos[agent])
            acting = [
                agent for agent in env.agents if not (terminations[agent] or truncations[agent])
            ]
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
