"""Small environments whose every number is known beforehand, and a driver that tells what each
sub-environment did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import iterate

from vecwrap.rows import batch as batches
from vecwrap.rows.step_result import Autoreset


class ToyEnv(gymnasium.Env):
    """Episode e lasts ``lengths[e % len(lengths)]`` steps; episodes end in turn by termination and
    by truncation.

    Nothing is random, and no two observations in sight of each other are equal: element j of an
    observation is ``1 + (code + j) % 250`` with ``code = 97 * index + 31 * episode + step``. The
    info says ``step`` and ``episode_number``, and on the last step ``last`` as well.
    """

    def __init__(
        self, lengths=(3, 5, 1), index=0, shape=(3,), dtype=np.float32, observation_space=None
    ):
        self.observation_space = observation_space or spaces.Box(0, 255, shape, dtype)
        self.action_space = spaces.Discrete(3)
        self.lengths = lengths
        self.index = index
        self.episode = -1
        self.time = 0
        self.score = 0.0
        self.scores = []  # of every episode that came to its end

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.time = 0
        self.score = 0.0
        return self.observe(), self.info()

    def step(self, action):
        self.time += 1
        reward = 0.25 * self.time - (self.episode % 3) + self.index + 0.5 * int(action)
        self.score += reward
        over = self.time >= self.lengths[self.episode % len(self.lengths)]
        if over:
            self.scores.append(self.score)
        truncated = over and self.episode % 2 == 1
        return self.observe(), reward, over and not truncated, truncated, self.info(over)

    def observe(self):
        code = 97 * self.index + 31 * self.episode + self.time

        def fill(space):
            if isinstance(space, spaces.Dict):
                return {key: fill(member) for key, member in space.spaces.items()}
            if isinstance(space, spaces.Tuple):
                return tuple(fill(member) for member in space.spaces)
            if isinstance(space, spaces.Text):
                return "abc"[: 1 + code % 3]
            if isinstance(space, spaces.Discrete):
                return int(space.start + code % space.n)
            return (
                (1 + (code + np.arange(np.prod(space.shape, dtype=int))) % 250)
                .astype(space.dtype)
                .reshape(space.shape)
            )

        return fill(self.observation_space)

    def info(self, over=False):
        return {
            "step": self.time,
            "episode_number": self.episode,
            **({"last": True} if over else {}),
        }


class Lives(gymnasium.Wrapper):
    """Ends an episode at every lost life, each ``steps`` long, though the game goes on; clips
    rewards to their sign.

    The seedless reset after a lost life takes a step in the running game, which may end it.
    """

    def __init__(self, env, steps=2):
        super().__init__(env)
        self.steps = steps
        self.game_goes_on = False
        self.count = 0

    def reset(self, *, seed=None, options=None):
        went_on, self.game_goes_on = self.game_goes_on, False
        self.count = 0
        if went_on and seed is None:
            observation, _, terminated, truncated, info = self.env.step(0)
            if not (terminated or truncated):
                return observation, info
        return self.env.reset(seed=seed, options=options)

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.count += 1
        lost = self.count == self.steps
        self.game_goes_on = lost and not (terminated or truncated)
        return observation, float(np.sign(reward)), terminated or lost, truncated, info


class Joined(gymnasium.Wrapper):
    """Plays games as one episode: the next begins within the step that ends the one before, or
    breaks it off.
    """

    def __init__(self, env, games=2, most=None):
        super().__init__(env)
        self.games = games
        self.most = most  # steps of a game

    def reset(self, *, seed=None, options=None):
        self.left, self.steps = self.games, 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        if terminated or truncated or self.steps == self.most:
            self.left -= 1
            self.steps = 0
            if self.left:
                observation, info = self.env.reset()
                terminated = truncated = False
        return observation, reward, terminated, truncated, info


class Skip(gymnasium.Wrapper):
    """Holds an action for ``frame_skip`` steps, or until the game ends."""

    def __init__(self, env, frame_skip=3):
        super().__init__(env)
        self.frame_skip = frame_skip

    def step(self, action):
        total = 0.0
        for _ in range(self.frame_skip):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += reward
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


@dataclass
class Event:
    """One reset or one step of one sub-environment, whatever the autoreset mode.

    Attributes:
        kind: ``"reset"`` or ``"step"``.
        observation: what the reset or step itself gave: of the last step of an episode the terminal
            observation.
        info: the info that came with that observation.
        infos: this row of all infos of the call, with what wrappers added; empty for a reset within
            a step, whose row is that of the step.
    """

    kind: str
    observation: Any
    info: dict[str, Any]
    infos: dict[str, Any]
    action: int | None = None
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False


def info_row(infos, i):
    """One row of a dict of columns: what has it, as the sub-environment gave it."""
    row = {}
    for key, value in infos.items():
        mask = infos.get(f"_{key}")
        if key.startswith("_") or key == "env_id" or (mask is not None and not mask[i]):
            continue
        row[key] = info_row(value, i) if isinstance(value, dict) else batches.row(value, i)
    return row


@dataclass
class Driver:
    """Plays a vector environment and takes the stream of each sub-environment apart into events.

    Operations are pairs (kind, mask): ``"step"`` steps all (in DISABLED it first resets those that
    have ended), ``"reset"`` resets those of the mask, ``"partial"`` sends to and receives from
    those of the mask. Rows without an event, and rows at rest, must show again what they showed
    last.
    """

    env: Any
    events: list[list[Event]] = field(default_factory=list)

    def __post_init__(self):
        self.mode = self.env.core.autoreset
        self.over = np.ones(self.env.num_envs, dtype=bool)
        self.shown = [None] * self.env.num_envs
        self.events = [[] for _ in range(self.env.num_envs)]
        self.actions = 0

    def play(self, operations: Iterable[tuple[str, Any]]) -> list[list[Event]]:
        observations, infos = self.env.reset(seed=0)
        self.note_resets(range(self.env.num_envs), observations, infos)
        for kind, mask in operations:
            mask = np.array(mask, dtype=bool)
            if kind == "reset":
                self.reset(mask)
            elif kind == "partial":
                self.partial(mask)
            else:
                self.step()
        return self.events

    def reset(self, mask):
        if not mask.any():
            return
        observations, infos = self.env.reset(options={"reset_mask": mask})
        for i in np.flatnonzero(~mask):
            assert_same(self.row(observations, i), self.shown[i])
            assert not info_row(infos, i)
        self.note_resets(np.flatnonzero(mask), observations, infos)

    def step(self):
        if self.mode is Autoreset.DISABLED:
            self.reset(self.over.copy())
        actions = self.next_actions(self.env.num_envs)
        result = self.env.step(actions)
        for i in range(self.env.num_envs):
            self.note_step(i, i, actions[i], result)

    def partial(self, mask):
        if self.mode is Autoreset.DISABLED:
            mask = mask & ~self.over
        ids = np.flatnonzero(mask)
        if not len(ids):
            return
        actions = self.next_actions(len(ids))
        self.env.send(actions, ids)
        result = self.env.recv()
        assert result[4]["env_id"].tolist() == ids.tolist()
        for row, i in enumerate(ids):
            self.note_step(i, row, actions[row], result)

    def row(self, observations, i):
        return deepcopy(list(iterate(self.env.observation_space, observations))[i])

    def next_actions(self, count):
        self.actions += count
        return (np.arange(self.actions, self.actions + count) * 7 // 3) % 3

    def note_resets(self, ids, observations, infos):
        for i in ids:
            self.shown[i] = self.row(observations, i)
            self.events[i].append(
                Event("reset", self.shown[i], info_row(infos, i), info_row(infos, i))
            )
            self.over[i] = False

    def note_step(self, i, row, action, result):
        observations, rewards, terminations, truncations, infos = result
        observation = self.row(observations, row)
        done = bool(terminations[row] or truncations[row])
        above = {
            key: value
            for key, value in info_row(infos, row).items()
            if key not in ("final_obs", "final_info")
        }
        if self.over[i] and self.mode is Autoreset.NEXT_STEP:
            assert rewards[row] == 0
            assert not done
            self.events[i].append(Event("reset", observation, above, above))
            self.over[i] = False
        elif self.over[i]:
            assert self.mode is Autoreset.EPISODIC
            assert rewards[row] == 0
            assert done
            assert not above
            assert_same(observation, self.shown[i])
        else:
            begins = done and self.mode is Autoreset.SAME_STEP
            ended = infos["final_obs"][row] if begins else observation
            info = info_row(infos["final_info"], row) if begins else above
            flags = bool(terminations[row]), bool(truncations[row])
            self.events[i].append(
                Event("step", ended, info, above, int(action), float(rewards[row]), *flags)
            )
            if begins:
                self.events[i].append(Event("reset", observation, above, {}))
            self.over[i] = done and not begins
        self.shown[i] = observation


def replay(env: gymnasium.Env, events: Iterable[Event]) -> Iterator[tuple[Event, tuple[Any, ...]]]:
    """Do to a single environment what was done to a sub-environment; gives each event and the
    five-tuple that came.
    """
    for event in events:
        if event.kind == "reset":
            observation, info = env.reset()
            yield event, (observation, 0.0, False, False, info)
        else:
            yield event, env.step(event.action)


def assert_same(got, expected):
    """Equal to the bit, in dtype and shape too, through dicts and tuples."""
    if isinstance(expected, dict):
        assert got.keys() == expected.keys()
        for key, value in expected.items():
            assert_same(got[key], value)
    elif isinstance(expected, tuple):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
    else:
        got, expected = np.asarray(got), np.asarray(expected)
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)
