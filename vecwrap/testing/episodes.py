"""What happened to each sub-environment, described in a way that does not depend on the autoreset mode."""

from __future__ import annotations

from collections.abc import Collection
from copy import deepcopy
from typing import Any

import numpy as np

from vecwrap.contract import Autoreset, StepResult
from vecwrap.testing.compare import info_row, take_row
from vecwrap.testing.drive import Policy
from vecwrap.vec_env import VecEnv
from vecwrap.wrapper import VecEnvWrapper

__all__ = ["Below", "episodes"]

Event = dict[str, Any]
_FACE = ("final_obs", "final_info")


class Below(VecEnvWrapper):
    """A layer below the one under test: it passes up read-only arrays, and remembers them.

    Attributes:
        keys: all keys that infos from below have had.
        handed: a copy of the last StepResult, with the same arrays in it.
        history: every result's arrays, with copies of them.
    """

    def __init__(self, env: VecEnv, *, keep: bool = False) -> None:
        super().__init__(env)
        self.keys: set[str] = set()
        self.handed: StepResult
        self.history: list[tuple[Any, Any]] = []
        self._keep = keep

    def on_step(self, step: StepResult) -> None:
        """Record the result, and make its arrays read-only."""
        self.keys.update(step.infos, step.final_infos or ())
        self.handed = step.replace()
        arrays = _arrays_of(step)
        _freeze(arrays)
        if self._keep:
            self.history.append((arrays, deepcopy(arrays)))


def _arrays_of(step: StepResult) -> dict[str, Any]:
    return {name: getattr(step, name) for name in StepResult.__slots__ if name not in ("rows", "failures")}


def _freeze(value: Any) -> None:
    if isinstance(value, dict):
        for item in value.values():
            _freeze(item)
    elif isinstance(value, tuple):
        for item in value:
            _freeze(item)
    elif isinstance(value, np.ndarray):
        value.flags.writeable = False


def episodes(
    env: VecEnv, below: Below, steps: int, *, seed: int, start: int = 0, ignore: Collection[str] = ()
) -> list[list[Event]]:
    """Play, and return for each sub-environment one event per reset and one per step.

    Some episodes are cut short by a masked reset. When, and which actions are taken, depends on the sub-environment and
    on how often it has acted, not on the mode or the others. In episodic mode, ended rows rest for a while before they
    are reset.

    Args:
        env: what to play.
        below: the probe below the layer under test: infos that it has not seen are the layer's own.
        steps: how many actions of each sub-environment to report.
        seed: of actions, breaks and the first reset.
        start: the number of the first sub-environment.
        ignore: dotted names of infos to leave out.
    """
    play = _Play(env, below, seed, start, ignore)
    while play.acted.min() < steps:
        play.step()
    return [events[: _position_of_step(events, steps) + 1] for events in play.events]


def _position_of_step(events: list[Event], number: int) -> int:
    return [k for k, event in enumerate(events) if event["kind"] == "step"][number - 1]


class _Play:
    def __init__(self, env: VecEnv, below: Below, seed: int, start: int, ignore: Collection[str]) -> None:
        self.env, self.below, self.seed, self.start, self.ignore = env, below, seed, start, ignore
        self.mode = env._root.autoreset
        num_envs = env.num_envs
        self.events: list[list[Event]] = [[] for _ in range(num_envs)]
        self.acted = np.zeros(num_envs, dtype=np.int64)
        self.over = np.zeros(num_envs, dtype=np.bool_)  # ended, and not yet reset
        self.rested = np.zeros(num_envs, dtype=np.int64)
        self.policy = Policy(env, seed, start)
        self.ignored_action = self.policy.other()
        observations, infos = env.reset(seed=seed)
        for i in range(num_envs):
            self.note(i, "reset", self.row(observations, i), infos)

    def row(self, observations: Any, i: int) -> Any:
        return take_row(self.env.single_observation_space, observations, i)

    def note(self, i: int, kind: str, observation: Any, infos: Any, added: Any = None, **values: Any) -> None:
        """Record an event; ``added`` holds the layer's own infos, if they are elsewhere."""
        theirs = {key: value for key, value in info_row(infos, i, self.ignore).items() if key in self.below.keys}
        above = info_row(infos if added is None else added, i, self.ignore)
        ours = {key: value for key, value in above.items() if key not in self.below.keys and key not in _FACE}
        self.events[i].append({"kind": kind, "observation": observation, "info": theirs, "added": ours, **values})

    def step(self) -> None:
        acting = ~self.over
        self.acted += acting
        chosen = iter(self.policy(np.flatnonzero(acting).tolist()))
        actions = [next(chosen) if acts else self.ignored_action for acts in acting]
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        dones = terminations | truncations
        for i in range(self.env.num_envs):
            observation = self.row(observations, i)
            told = {"reward": float(rewards[i]), "terminated": bool(terminations[i]), "truncated": bool(truncations[i])}
            if acting[i] and dones[i] and self.mode is Autoreset.SAME_STEP:
                self.note(i, "step", infos["final_obs"][i], infos["final_info"], infos, **told)
                self.note(i, "reset", observation, infos, {})
            elif acting[i]:
                self.note(i, "step", observation, infos, **told)
            else:
                self._check_row_without_action(i, told)
                if self.mode is Autoreset.NEXT_STEP:
                    self.note(i, "reset", observation, infos)
        self._reset_some(acting, dones)

    def _check_row_without_action(self, i: int, told: dict[str, Any]) -> None:
        done = told["terminated"] or told["truncated"]
        expected = self.mode is Autoreset.EPISODIC  # a resting row stays done, the reset step of next-step mode is not
        assert done == expected, f"{self.mode}, row {i} did not act: expected done={expected}, got {told}"
        assert told["reward"] == 0, f"{self.mode}, row {i} did not act: expected reward 0, got {told['reward']}"

    def _reset_some(self, acting: Any, dones: Any) -> None:
        """Cut some episodes short, and reset ended rows if the mode leaves that to the caller."""
        broken = np.array([acting[i] and self._breaks_off(i) for i in range(len(acting))]) & ~dones
        self.rested = np.where(dones, self.rested + 1, 0)
        due = np.zeros_like(dones)
        if self.mode is Autoreset.DISABLED:
            due = dones
        elif self.mode is Autoreset.EPISODIC:
            due = dones & (self.rested > np.arange(len(dones)) % 3)
        mask = broken | due
        if mask.any():
            observations, infos = self.env.reset(options={"reset_mask": mask})
            for i in np.flatnonzero(mask).tolist():
                self.note(i, "reset", self.row(observations, i), infos)
        self.rested[mask] = 0
        self.over = dones & ~mask if self.mode is not Autoreset.SAME_STEP else np.zeros_like(dones)

    def _breaks_off(self, i: int) -> bool:
        return bool(np.random.default_rng([self.seed, self.start + i, self.acted[i]]).random() < 0.03)
