"""What must come of every row when sub-environments are lost: a naive reference, one environment a
row, no process.
"""

from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np

from vecwrap.rows.step_result import Autoreset


@dataclass
class Row:
    """One sub-environment as it should be."""

    env: object
    attributes: dict = field(default_factory=dict)
    seed: int | None = None  # of the last seeded reset
    new_seed: int | None = None  # of the first reset of one that was made anew
    restarts: int = 0
    lost: bool = False  # and not told
    over: bool = True
    shown: object = None
    flags: tuple = (False, False)


class Model:
    """n rows; ``losses`` says how often each loses its sub-environment in a call."""

    def __init__(self, make, num_envs, mode):
        self.make, self.mode = make, Autoreset.parse(mode)
        self.rows = [Row(make(i)) for i in range(num_envs)]

    def lose(self, i, times=1):
        row = self.rows[i]
        for _ in range(times):
            row.restarts += 1
            row.env = self.make(i)
            for name, value in row.attributes.items():
                setattr(row.env, name, value)
            row.lost = True
            row.new_seed = self.another(row.seed, row.restarts)

    @staticmethod
    def another(seed, restarts):
        return (
            None
            if seed is None
            else int(np.random.SeedSequence([seed, restarts]).generate_state(1)[0])
        )

    def state(self):
        """All that a load brings back."""
        return deepcopy(self.rows)

    def load(self, state):
        self.rows = deepcopy(state)

    def set_attr(self, name, values):
        for row, value in zip(self.rows, values, strict=True):
            setattr(row.env, name, value)
            row.attributes[name] = value

    def reset(self, env_ids, seeds, losses=()):
        """What a reset of these rows gives, by index."""
        told = {}
        for i in env_ids:
            row, seed = self.rows[i], seeds[i]
            if seed is not None:
                row.seed = seed
            if losses and losses.get(i):
                self.lose(i, losses[i])
                seed = self.another(seed, row.restarts)
            told[i] = self._begin(i, seed)
        return told

    def step(self, actions, losses=(), kept=()):
        """What a step of these rows (index to action) gives; rows in ``kept`` fail in the autoreset
        after it.
        """
        told = {}
        for i, action in actions.items():
            row = self.rows[i]
            if losses and losses.get(i):
                self.lose(i, losses[i])
            if row.lost and not row.over:
                told[i] = self._cut_off(i)
            elif row.over and self.mode is Autoreset.EPISODIC:
                told[i] = {"observation": row.shown, "reward": 0.0, "flags": row.flags}
            elif row.over:
                told[i] = self._begin(i, None)
            else:
                told[i] = self._step(i, action, i in kept)
            row.shown = deepcopy(told[i]["observation"])
            row.flags = told[i]["flags"]
        return told

    def _begin(self, i, seed):
        row = self.rows[i]
        if seed is None:
            seed = row.new_seed
        row.new_seed = None
        observation, info = row.env.reset(seed=seed)
        row.over, row.shown, row.flags = False, deepcopy(observation), (False, False)
        told = {
            "observation": observation,
            "reward": 0.0,
            "flags": (False, False),
            "info": dict(info),
        }
        if row.lost:
            told["info"]["restarted"] = row.restarts
            row.lost = False
        return told

    def _cut_off(self, i):
        row = self.rows[i]
        if self.mode is Autoreset.SAME_STEP:
            last = row.shown
            return {**self._begin(i, None), "flags": (False, True), "final": last, "final_info": {}}
        row.over, row.lost = True, False
        return {
            "observation": row.shown,
            "reward": 0.0,
            "flags": (False, True),
            "info": {"restarted": row.restarts},
        }

    def _step(self, i, action, kept):
        row = self.rows[i]
        observation, reward, terminated, truncated, info = row.env.step(action)
        told = {
            "observation": observation,
            "reward": reward,
            "flags": (terminated, truncated),
            "info": info,
        }
        if not (terminated or truncated):
            return told
        if self.mode is not Autoreset.SAME_STEP:
            row.over = True
            return told
        if kept:
            self.lose(i)
        opened = self._begin(i, None)
        return {
            **told,
            "observation": opened["observation"],
            "info": opened["info"],
            "final": observation,
            "final_info": info,
        }
