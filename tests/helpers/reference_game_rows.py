"""What each row of a game must be: a hand-written loop over the raw game, in all modes, with losses
and restarts.
"""

import os
import signal

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv

from tests.helpers.multi_agent_games import Crowd, Guests, LingeringCrowd, Returning, copied

FAILS, DIES = 5, 6  # actions


class Failing:
    """A game in which one action raises and one kills the process."""

    def __init__(self):
        super().__init__()
        self.spaces = self.spaces[0], spaces.Discrete(7)

    def step(self, action):
        given = action.values() if isinstance(action, dict) else [action]
        if FAILS in given:
            raise RuntimeError("as asked")
        if DIES in given:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class FailingGuests(Failing, Guests):
    pass


class FailingReturning(Failing, Returning):
    pass


class FailingCrowd(Failing, Crowd):
    pass


class FailingLingeringCrowd(Failing, LingeringCrowd):
    pass


class GameRows:
    """A game, and its rows after each call: by agent, a dict of what a ``StepResult`` says."""

    def __init__(self, make, mode):
        self.make, self.mode = make, mode
        self.env = make()
        self.agents = list(self.env.possible_agents)
        self.in_turns = isinstance(self.env, AECEnv)
        self.seed = self.next_seed = None
        self.restarts = 0
        self.over, self.alive, self.acting = True, set(), []
        self.flags = dict.fromkeys(self.agents, (False, False))
        self.episodes = []  # (agent, score, length) of each that ended

    def reset(self, seed=None):
        if seed is not None:
            self.seed = self.next_seed = seed
        return self.begun(self.nothing())

    def step(self, actions):
        """Let those who are to act do so, by agent; then go on until somebody is to act again."""
        rows = self.nothing()
        if self.over:
            return self.begun(rows) if self.mode == "next_step" else self.shown_in(rows)
        (self.one_turn if self.in_turns else self.all_at_once)(rows, actions)
        self.over = not self.alive
        if not (self.over and self.mode == "same_step"):
            return self.shown_in(rows)
        for agent, row in rows.items():
            if row["raw_dones"]:
                row["final"], row["final_info"] = self.seen[agent], row["info"]
        return self.begun(rows)

    def lose(self):
        """The game is lost in a step; another is made in its place."""
        self.restarts += 1
        self.env = self.make()
        self.next_seed = int(
            np.random.SeedSequence([self.seed, self.restarts]).generate_state(1)[0]
        )
        rows = self.nothing()
        for agent, row in rows.items():
            row["lost"], row["restarted"] = True, self.restarts
            if agent in self.alive:
                row["truncations"], row["final"], row["final_info"] = True, self.seen[agent], {}
        self.over, self.alive, self.acting = True, set(), []
        return self.begun(rows) if self.mode == "same_step" else self.shown_in(rows)

    # -- parts -------------------------------------------------------------------------------------

    def nothing(self):
        flags = (
            "terminations",
            "truncations",
            "first",
            "acted",
            "completed",
            "observed",
            "lost",
            "raw_dones",
            "raw_first",
        )
        row = {
            "rewards": 0.0,
            "raw_rewards": 0.0,
            **dict.fromkeys(flags, False),
            "info": {},
            "restarted": 0,
        }
        return {agent: dict(row) for agent in self.agents}

    def begun(self, rows):
        """Begin a game; what the rows say of one that ended in the same step stays."""
        env, seed, self.next_seed = self.env, self.next_seed, None
        result = env.reset(seed=seed)
        self.over, self.alive, self.unpaid = False, set(env.agents), {}
        self.moved = set()  # who has acted, and has not been to move again
        self.score = dict.fromkeys(self.agents, 0.0)
        self.length = dict.fromkeys(self.agents, 0)
        self.flags = dict.fromkeys(self.agents, (False, False))
        self.seen = {agent: nothing_seen(env.observation_space(agent)) for agent in self.agents}
        for agent, row in rows.items():
            row["first"], row["info"] = True, {}
            if agent in self.alive:
                row["observed"] = row["raw_first"] = True
                self.seen[agent] = copied(env.observe(agent) if self.in_turns else result[0][agent])
                row["info"] = dict(env.infos[agent] if self.in_turns else result[1][agent])
        self.acting = list(env.agents)
        if self.in_turns:
            _, reward, terminated, truncated, _ = env.last()
            self.acting = [] if terminated or truncated else [env.agent_selection]
            for agent in self.acting:
                self.score[agent] = self.unpaid[agent] = reward
        return self.shown_in(rows)

    def shown_in(self, rows):
        for agent, row in rows.items():
            gone, done = agent not in self.alive, row["terminations"] or row["truncations"]
            if self.mode == "episodic" and gone and not done:
                row["terminations"], row["truncations"] = self.flags[agent]
            self.flags[agent] = (
                (row["terminations"], row["truncations"]) if gone else (False, False)
            )
            row |= {
                "observation": self.seen[agent],
                "to_move": agent in self.acting,
                "alive": not gone,
            }
            if not (row["first"] and (row["terminations"] or row["truncations"])):
                row.pop("final", None), row.pop("final_info", None)
        return rows

    def one_turn(self, rows, actions):
        env = self.env
        for agent in self.acting:
            self.act(agent, rows)
            env.step(actions[agent])
        self.acting = []
        for agent in env.agent_iter():
            seen, reward, terminated, truncated, info = env.last()
            row, done = rows[agent], terminated or truncated
            if row["raw_dones"] and not done:  # it comes back in the step in which it left
                row["final"], row["final_info"] = self.seen[agent], row["info"]
                self.unpaid[agent] = reward
            else:
                row["rewards"], row["raw_rewards"] = reward, reward + self.unpaid.pop(agent, 0.0)
            self.see(agent, row, seen, info, reward)
            if done:
                self.leave(agent, row, terminated, truncated)
                env.step(None)
                continue
            self.stay(agent, row)
            self.acting = [agent]
            return

    def all_at_once(self, rows, actions):
        for agent in self.acting:
            self.act(agent, rows)
        result = self.env.step({agent: actions[agent] for agent in self.acting})
        seen, rewards, terminations, truncations, infos = result
        self.acting = []
        for agent in rewards:
            row = rows[agent]
            row["rewards"] = row["raw_rewards"] = rewards[agent]
            self.see(agent, row, seen[agent], infos[agent], rewards[agent])
            if terminations[agent] or truncations[agent]:
                self.leave(agent, row, terminations[agent], truncations[agent])
            else:
                self.stay(agent, row)
                self.acting.append(agent)

    def act(self, agent, rows):
        rows[agent]["acted"] = True
        self.length[agent] += 1
        self.moved.add(agent)

    def see(self, agent, row, seen, info, reward):
        self.seen[agent], row["info"], row["observed"] = copied(seen), dict(info), True
        if agent not in self.alive:
            self.score[agent], self.length[agent] = 0.0, 0
        self.score[agent] += reward
        row["completed"] = row["completed"] or agent in self.moved
        self.moved.discard(agent)

    def leave(self, agent, row, terminated, truncated):
        row["terminations"], row["truncations"], row["raw_dones"] = (
            bool(terminated),
            bool(truncated),
            True,
        )
        self.episodes.append((agent, self.score[agent], self.length[agent]))
        self.alive.discard(agent)

    def stay(self, agent, row):
        if agent not in self.alive:
            row["first"] = row["raw_first"] = True
            self.alive.add(agent)


def nothing_seen(space):
    if isinstance(space, spaces.Dict):
        return {key: nothing_seen(one) for key, one in space.items()}
    return np.zeros(space.shape, space.dtype)
