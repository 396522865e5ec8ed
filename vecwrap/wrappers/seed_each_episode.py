"""Seed and options of every episode, from a list or a function: level sets, curricula."""

from __future__ import annotations

from typing import Any, Literal

import cloudpickle

from vecwrap.errors import ArgumentError, PlanError
from vecwrap.parts.argument_checks import one_of
from vecwrap.registry import import_target
from vecwrap.schedule import Dealt, Reset, Rule, Schedule, Told, as_reset
from vecwrap.vec_env import VecEnv
from vecwrap.wrapper import VecEnvWrapper

__all__ = ["SeedEachEpisode"]


class SeedEachEpisode(VecEnvWrapper):
    """Give each episode its seed and options, from a list or a function.

    That holds for every reset that brings no seed: autoresets in any mode, masked resets, and a first reset without a
    seed. A reset that does bring one begins the schedule anew; its own episode has the seed that it brought (unless
    ``replace``), the next is the schedule's first. Options that a reset brings come before the schedule's, key by key.
    Where lives are lost within a game, an episode here is the game. It costs no message: each sub-environment has its
    own schedule and asks it where it resets.

    A list is gone through in one of two ways. ``"cycle"``: each sub-environment plays the whole list in its order,
    again and again; they start evenly spread over it. ``"once"``: the list is dealt out like cards, entry ``episode * n
    + i`` to sub-environment i, so that each is played once; episodes after that have no seed.

    A function takes the number of the episode (from 0, of that sub-environment) and ``start_index + i``, the same
    index that seeds are counted by. Each sub-environment has a copy of it: what a copy remembers, no other sees, so the
    stream is the same on every backend. Its exceptions are the sub-environment's (``SubEnvError``). What it remembers
    is saved by its ``state_dict`` and ``load_state_dict`` where it is an object, or a method of one, that has them;
    else its attributes that are numbers, text, arrays, or lists, tuples and dicts of these. Anything else is not
    saved: generators among its attributes, what it closes over. A sub-environment that is made anew has a fresh copy.

    ``infos["episode_seed"]``, with its mask, tells the seed of each episode that begins, where it has one.

    At an episode's end:
        The next episode gets its seed and options.

    Args:
        env: what it wraps.
        seeds: a list, or a function of (episode, index), or its import path ``"module:attr"``. Its entries, or what it
            returns: a seed, None for none, or a pair of such and a dict of options.
        use: how a list is gone through.
        replace: take the place of seeds that a reset brings, too, so that no episode is played outside of the schedule.

    Raises:
        PlanError: an empty list, an entry or function that does not fit, one that cannot be sent to another process,
            a second layer of this kind, or an engine whose sub-environments cannot be reached.

    Example:
        >>> import gymnasium
        >>> from vecwrap.backends.dummy import DummyBackend
        >>> make = lambda: gymnasium.make("CartPole-v1", max_episode_steps=1)
        >>> env = SeedEachEpisode(DummyBackend([make, make]), [10, 11, 12, 13])
        >>> observations, infos = env.reset()
        >>> infos["episode_seed"]
        array([10, 12])
        >>> env.step([0, 0])[4]["episode_seed"]
        array([11, 13])
        >>> env.close()
    """

    def __init__(
        self, env: VecEnv, seeds: Any, *, use: Literal["cycle", "once"] = "cycle", replace: bool = False
    ) -> None:
        super().__init__(env)
        one_of("seed_each_episode: use", use, ("cycle", "once"))
        if any(isinstance(layer, SeedEachEpisode) for layer in env.layers):
            raise PlanError("seed_each_episode: an inner layer of this kind gives the seeds already; leave one out")
        self.use = use
        self.replace = replace
        self.follow(seeds)

    def follow(self, seeds: Any) -> None:
        """Go on with another schedule, from its first episode: the next reset of each sub-environment follows it.

        Args:
            seeds: as for the class.

        Raises:
            PlanError: likewise.
            AlreadyPendingCallError: rows are out.
        """
        rules = self._rules(seeds)
        try:
            schedules = [cloudpickle.dumps(Schedule(rule, replace=self.replace)) for rule in rules]
        except Exception as error:
            raise PlanError(
                f"seed_each_episode: seeds: {seeds!r} cannot be sent to a sub-environment: {error}; make what cannot "
                "be sent inside the function"
            ) from error
        self._root._follow(schedules)

    def layer_state(self) -> dict[str, Any]:
        """How far each sub-environment is in its schedule, and what its function remembers."""
        states = self._root._scheduled()
        return {key: [state[key] for state in states] for key in ("episodes", "remembered")}

    def load_layer_state(self, state: dict[str, Any]) -> None:
        """Go on there."""
        remembered = state.get("remembered", [None] * self.num_envs)
        both = zip(state["episodes"], remembered, strict=True)
        self._root._go_on_in_schedule([{"episodes": k, "remembered": memory} for k, memory in both])

    def _rules(self, seeds: Any) -> list[Rule]:
        if isinstance(seeds, str):
            seeds = import_target(seeds, "seed_each_episode: seeds")
        if callable(seeds):
            first = self._root.start_index
            return [Told(seeds, first + i) for i in range(self.num_envs)]
        entries = _entries(seeds)
        count, n = len(entries), self.num_envs
        if self.use == "once":
            return [Dealt(entries, i, n, again=False) for i in range(n)]
        return [Dealt(entries, i * count // n, 1, again=True) for i in range(n)]


def _entries(seeds: Any) -> list[Reset]:
    try:
        values = list(seeds)
    except TypeError:
        raise PlanError(
            "seed_each_episode: seeds: expected a list, a function of (episode, index), or its import path "
            f'"module:attr", got {seeds!r}'
        ) from None
    if not values:
        raise PlanError("seed_each_episode: seeds: expected at least one entry, got an empty list")
    entries = []
    for number, value in enumerate(values):
        try:
            entries.append(as_reset(value))
        except ArgumentError as error:
            raise PlanError(f"seed_each_episode: seeds[{number}]: {error}") from None
    return entries
