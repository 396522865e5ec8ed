"""Seeds and options of every episode, from a list or a function: level sets, curricula."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import ArgumentError, PlanError, one_of
from vecwrap.rows.saved import fitting, fitting_list
from vecwrap.sources.by_value import by_value
from vecwrap.sources.schedule import Dealt, Reset, Rule, Schedule, Told, as_reset


class SeedEachEpisode(VecEnvWrapper):
    """Give each episode its seed and options, from a list or a function.

    This applies to every reset without a seed: autoresets in any mode, masked resets, and an unseeded first reset. A
    seeded reset restarts the schedule: its own episode uses the given seed (unless ``replace``), and the next one the
    schedule's first entry. Options given to a reset take precedence over the schedule's, key by key. In games with
    lives, an episode here is the whole game. No extra messages are sent: each sub-environment has its own copy of the
    schedule.

    A list is used in one of two ways. ``"cycle"``: each sub-environment plays the whole list in order, repeatedly;
    their starting points are spread evenly over it. ``"once"``: the list is dealt out like cards, entry ``episode * n
    + i`` to sub-environment i, so that each entry is played once; episodes after that have no seed.

    A function takes the number of the episode (from 0, per sub-environment) and ``start_index + i``, the index that
    seeds are offset by. Each sub-environment has its own copy, with separate state, so the stream is the same on every
    backend. Its exceptions are raised as the sub-environment's (``SubEnvError``). Its state is saved with its
    ``state_dict`` and ``load_state_dict`` if it is an object, or a method of one, that has them; otherwise only those
    of its attributes that are numbers, text, arrays, or lists, tuples and dicts of these. A recreated sub-environment
    has a fresh copy.

    ``infos["episode_seed"]``, with its mask, is the seed of each episode that starts with one.

    At an episode's end:
        The next episode gets its seed and options.

    Args:
        env: what it wraps.
        seeds: a list, or a function of (episode, index), in a pipeline its import path ``"module:attr"``. An entry, or
            the function's result, is a seed, None for no seed, or a pair of either and a dict of options.
        use: how a list is used.
        replace: also replace seeds given to a reset, so that every episode follows the schedule.

    Raises:
        PlanError: an empty list, an entry or function that does not fit, one that cannot be sent to another process,
            a second wrapper of this kind, or an engine whose sub-environments cannot be reached.

    Example:
        >>> import gymnasium
        >>> import vecwrap
        >>> make = lambda: gymnasium.make("CartPole-v1", max_episode_steps=1)
        >>> env = SeedEachEpisode(vecwrap.build(make, n=2, backend="dummy"), [10, 11, 12, 13])
        >>> observations, infos = env.reset()
        >>> infos["episode_seed"]
        array([10, 12])
        >>> env.step([0, 0])[4]["episode_seed"]
        array([11, 13])
        >>> env.close()
    """

    def __init__(
        self,
        env: VecEnv,
        seeds: list[Any] | Callable[[int, int], Any],
        *,
        use: Literal["cycle", "once"] = "cycle",
        replace: bool = False,
    ) -> None:
        super().__init__(env)
        one_of("seed_each_episode: use", use, ("cycle", "once"))
        if any(isinstance(wrapper, SeedEachEpisode) for wrapper in env.chain):
            raise PlanError("seed_each_episode: an inner seed_each_episode sets the seeds already; leave one out")
        self.use = use
        self.replace = replace
        self.follow(seeds)

    def follow(self, seeds: Any) -> None:
        """Switch to another schedule, from its first episode, at the next reset of each sub-environment.

        Args:
            seeds: as for the class.

        Raises:
            PlanError: likewise.
            AlreadyPendingCallError: rows are pending.
        """
        rules = self._rules(seeds)
        try:
            schedules = [by_value(Schedule(rule, replace=self.replace)) for rule in rules]
        except Exception as error:
            raise PlanError(
                f"seed_each_episode: seeds: {seeds!r} cannot be sent to a sub-environment: {error}; create unpicklable "
                "objects inside the function"
            ) from error
        self.face.refuse_pending("follow")
        self.core.follow(schedules)

    def wrapper_state(self) -> dict[str, Any]:
        states = self.core.scheduled()
        return {key: [state[key] for state in states] for key in ("episodes", "remembered")}

    def load_wrapper_state(self, state: dict[str, Any]) -> None:
        both = zip(state["episodes"], fitting_list(state["remembered"], self.num_envs, "remembered"), strict=True)
        states = [{"episodes": fitting(k, 0, "episodes"), "remembered": memory} for k, memory in both]
        self.core.go_on_in_schedule(states)

    def _rules(self, seeds: Any) -> list[Rule]:
        if callable(seeds):
            first = self.core.pending.start_index
            return [Told(seeds, first + i) for i in range(self.num_envs)]
        entries = _entries(seeds)
        count, n = len(entries), self.num_envs
        if self.use == "once":
            return [Dealt(entries, i, n, again=False) for i in range(n)]
        return [Dealt(entries, i * count // n, 1, again=True) for i in range(n)]


def _entries(seeds: Any) -> list[Reset]:
    try:
        values = None if isinstance(seeds, str) else list(seeds)
    except TypeError:
        values = None
    if values is None:
        raise PlanError(
            "seed_each_episode: seeds: expected a list or a function of (episode, index), in a pipeline its import "
            f'path "module:attr", got {seeds!r}'
        )
    if not values:
        raise PlanError("seed_each_episode: seeds: expected at least one entry, got an empty list")
    entries = []
    for number, value in enumerate(values):
        try:
            entries.append(as_reset(value))
        except ArgumentError as error:
            raise PlanError(f"seed_each_episode: seeds[{number}]: {error}") from None
    return entries
