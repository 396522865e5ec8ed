"""Which agents of a game are rows, and how their spaces are made equal.

All rows of a vector have one space.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.errors import PlanError, did_you_mean
from vecwrap.sources.description import joint_space, same_space, space_text
from vecwrap.sources.masks import MEMBER

Space = spaces.Space[Any]


@dataclass(frozen=True)
class Seats:
    """Which agents are rows, in which order, and whether unequal spaces are padded.

    Without names, all agents are rows.
    """

    names: tuple[str, ...] | None = None
    pad: bool = False
    # Those named are the learner's; the others are rows too, and opponents move them.
    opponents: bool = False

    def of(self, env: Any) -> SeatSpaces:
        """Seat the agents of a game; PlanError if their spaces do not go together."""
        everyone = agents_of(env)
        if self.names is None:
            agents = everyone
        else:
            agents = self._named(env, everyone)
        if self.opponents:
            agents = [
                agent for agent in everyone if agent in agents or not _has_one_action(env, agent)
            ]
        others = {agent: _only_action(env, agent) for agent in everyone if agent not in agents}
        own = [(env.observation_space(agent), env.action_space(agent)) for agent in agents]
        observations, actions = zip(*own, strict=True)
        joint = joint_space(observations)
        if joint is not None and all(same_space(space, actions[0]) for space in actions[1:]):
            return SeatSpaces(agents, others, joint, actions[0])
        said = "; ".join(
            f"{agent}: observations {space_text(one)}, actions {space_text(other)}"
            for agent, (one, other) in zip(agents, own, strict=True)
        )
        if not (self.pad or self.opponents):
            raise PlanError(
                f"{name_of(env)}: expected agents with equal spaces, because they are rows of one "
                f"vector, got {said}; agents: {{pad: true}} pads them with zeros; agents: [NAME, "
                "...] are the learner's, if the wrapper opponents moves the others or they have "
                "one action only"
            )
        joint = padded_space(observations)
        action = padded_actions(actions)
        if joint is None or action is None:
            raise PlanError(
                f"{name_of(env)}: agents: expected spaces that can be padded (Boxes of one dtype "
                "and number of dimensions, Discrete actions that start at one number), got "
                f"{said}; convert them in the factory"
            )
        padding = Padding(agents, own, joint, action)
        own_spaces: tuple[tuple[Space, Space], ...] = ()
        if self.opponents:
            own_spaces = tuple(own)
        return SeatSpaces(agents, others, joint, action, padding, own_spaces)

    def _named(self, env: Any, everyone: list[Any]) -> list[Any]:
        by_name = {str(agent): agent for agent in everyone}
        for name in self.names or ():
            if name not in by_name:
                near = did_you_mean(name, list(by_name))
                known = ", ".join(by_name)
                raise PlanError(
                    f'agents: expected agents of {name_of(env)} ({known}), got "{name}".{near}'
                )
        return [by_name[name] for name in self.names or ()]


ALL = Seats()


@dataclass(frozen=True)
class SeatSpaces:
    """The agents of a game that are rows, and their space."""

    agents: list[Any]
    others: dict[Any, Any]  # those that are no rows, and the only action that each of them has
    observation_space: Space
    action_space: Space
    padding: Padding | None = None
    own_spaces: tuple[tuple[Space, Space], ...] = ()  # of each, if there are two sides


class Padding:
    """Padding of unequal spaces with zeros at the end of each axis.

    Observations are padded; padded actions are cut to what an agent has itself.
    """

    def __init__(
        self,
        agents: Sequence[Any],
        own: Sequence[tuple[Space, Space]],
        observations: Space,
        actions: Space,
    ) -> None:
        self.fit = [_fit(space, observations) for space, _ in own]
        self.cut = [
            _cut(agent, space, actions) for agent, (_, space) in zip(agents, own, strict=True)
        ]
        self._masks: list[Any] | None = None
        if isinstance(actions, spaces.Discrete) and any(space != actions for _, space in own):
            sizes = [int(space.n) for _, space in own]  # type: ignore[attr-defined]
            self._masks = [(np.arange(int(actions.n)) < size).astype(np.int8) for size in sizes]
        named = list(zip(agents, own, strict=True))
        seen = [
            f"{agent} has {space_text(one)}" for agent, (one, _) in named if one != observations
        ]
        done = [f"{agent} has {space_text(one)}" for agent, (_, one) in named if one != actions]
        self.summary = "; ".join(
            f"{what} padded with zeros, because {', '.join(smaller)}"
            for what, smaller in (
                ("observations", seen),
                ("masks of actions" if self._masks else "actions", done),
            )
            if smaller
        )

    def info(self, seat: int, observation: Any, info: dict[str, Any]) -> dict[str, Any]:
        """Return an agent's info with the mask of its actions, if it has fewer than others."""
        if self._masks is None or (isinstance(observation, dict) and MEMBER in observation):
            return info
        mask = self._masks[seat]
        if MEMBER in info:
            given = np.asarray(info[MEMBER], np.int8)
            mask = np.pad(given, (0, len(mask) - len(given)))
        return {**info, MEMBER: mask}


def padded_space(parts: Sequence[Space]) -> Any:
    """Return the smallest space that holds all parts with zeros at the end of their axes.

    Return None if there is no such space.
    """
    first = parts[0]
    if all(isinstance(part, spaces.Box) for part in parts):
        if any(
            (part.dtype, len(part.shape or ())) != (first.dtype, len(first.shape or ()))
            for part in parts
        ):
            return None
        shape = tuple(np.max([part.shape or () for part in parts], axis=0).tolist())
        bounds = [
            [_padded(getattr(part, side), shape) for part in parts] for side in ("low", "high")
        ]
        return spaces.Box(
            np.min(bounds[0], axis=0),
            np.max(bounds[1], axis=0),
            dtype=first.dtype,  # type: ignore[arg-type]
        )
    if isinstance(first, spaces.Dict) and all(isinstance(part, spaces.Dict) for part in parts):
        if any(part.keys() != first.keys() for part in parts):  # type: ignore[attr-defined]
            return None
        members = {
            key: padded_space([part[key] for part in parts])  # type: ignore[index]
            for key in first
        }
        if None in members.values():
            return None
        return spaces.Dict(members)
    return joint_space(parts)


def padded_actions(parts: Sequence[Space]) -> Any:
    first = parts[0]
    if all(isinstance(part, spaces.Discrete) for part in parts):
        discrete: Sequence[Any] = parts
        if len({part.start for part in discrete}) > 1:
            return None
        return max(discrete, key=lambda part: part.n)
    if all(isinstance(part, spaces.Box) for part in parts):
        return padded_space(parts)
    return first if all(same_space(part, first) for part in parts) else None


def _padded(array: Any, shape: tuple[int, ...]) -> Any:
    out = np.zeros(shape, array.dtype)
    out[tuple(map(slice, array.shape))] = array
    return out


def _fit(own: Space, joint: Space) -> Callable[[Any], Any]:
    """What pads an agent's observations."""
    if isinstance(own, spaces.Dict) and isinstance(joint, spaces.Dict):
        fits = {key: _fit(own[key], joint[key]) for key in joint}
        return lambda seen: {key: fit(seen[key]) for key, fit in fits.items()}
    if own.shape == joint.shape:
        return lambda seen: seen
    dtype = own.dtype
    shape = joint.shape or ()
    return lambda seen: _padded(np.asarray(seen, dtype), shape)


def _cut(agent: Any, own: Space, joint: Space) -> Callable[[Any], Any]:
    """What takes the padding off an agent's actions."""
    if isinstance(own, spaces.Box) and own.shape != joint.shape:
        at = tuple(map(slice, own.shape))
        return lambda action: action[at]
    if isinstance(own, spaces.Discrete) and own != joint:
        last = int(own.start + own.n) - 1

        def checked(action: Any) -> Any:
            if action > last:
                raise ValueError(
                    f"{agent}: expected a legal action, one of {own.start} to {last}, got {action}"
                )
            return action

        return checked
    return lambda action: action


def _only_action(env: Any, agent: Any) -> Any:
    """The action of an agent that has no choice; PlanError if it has one."""
    space = env.action_space(agent)
    if _has_one_action(env, agent):
        return space.start
    raise PlanError(
        f"{name_of(env)}: agents: expected all agents that have a choice, got a list without "
        f"{agent}, whose actions are {space_text(space)}: somebody has to move it. The wrapper "
        "opponents in the pipeline does; with agents: {pad: true} all agents are rows"
    )


def _has_one_action(env: Any, agent: Any) -> bool:
    space = env.action_space(agent)
    return isinstance(space, spaces.Discrete) and bool(space.n == 1)


def agents_of(env: Any) -> list[Any]:
    """Return a game's agents in the order of its rows.

    Raise PlanError if the agents are unknown, or if names repeat.
    """
    agents = getattr(env, "possible_agents", None)
    if not agents:
        raise PlanError(
            f"{name_of(env)}: expected possible_agents, a list of all agents that may ever take "
            f"part, got {agents!r}: each of them is a row"
        )
    names = [str(agent) for agent in agents]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise PlanError(
            f"{name_of(env)}: possible_agents: expected each name once, got {', '.join(repeated)} "
            "again"
        )
    return list(agents)


def name_of(env: Any) -> str:
    name = (getattr(env, "metadata", None) or {}).get("name")
    return str(name or type(getattr(env, "unwrapped", env)).__name__)
