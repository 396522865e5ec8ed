"""Seeds and options of every episode, from a list or a function: level sets, curricula."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import ArgumentError, CheckpointError, PlanError, one_of
from vecwrap.rows.saved import fitting, fitting_list
from vecwrap.sources.by_value import by_value
from vecwrap.sources.schedule import Schedule, ScheduledReset, as_reset


class SeedEachEpisode(VecEnvWrapper):
    """Give each episode its seed and options, from a list or a function.

    This applies to every reset without a seed: autoresets in any mode, masked resets, and an
    unseeded first reset. A seeded reset restarts the schedule: its own episode uses the given seed
    (unless ``replace``), and the next one the schedule's first entry. Options given to a reset take
    precedence over the schedule's, key by key. In games with lives, an episode here is the whole
    game. No extra messages are sent: each sub-environment has its own copy of the schedule.

    A list is used in one of two ways. ``"cycle"``: each sub-environment plays the whole list in
    order, repeatedly; their starting points are spread evenly over it. ``"once"``: the list is
    dealt out like cards, entry ``episode * n + i`` to sub-environment i, so that each entry is
    played once; episodes after that have no seed.

    A function takes the number of the episode (from 0, per sub-environment) and ``start_index +
    i``, the index that seeds are offset by. Each sub-environment has its own copy, so the stream is
    the same on every backend. Its exceptions are raised as the sub-environment's (``SubEnvError``).

    A recreated sub-environment, and one whose state is loaded, goes on with the number of its next
    episode, and so with the next entry. Only state that a function keeps itself is lost there.

    ``infos["episode_seed"]``, with its mask, is the seed of each episode that starts with one.

    At an episode's end:
        The next episode gets its seed and options.

    Args:
        env: what it wraps.
        seeds: a list, or a function of (episode, index), in a pipeline its import path
            ``"module:attr"``. An entry, or the function's result, is a seed, None for no seed, or a
            pair of either and a dict of options.
        use: how a list is used.
        replace: also replace seeds given to a reset, so that every episode follows the schedule.

    Raises:
        PlanError: an empty list, an entry or function that does not fit, one that cannot be sent to
            another process, a second wrapper of this kind, or an engine whose sub-environments
            cannot be reached.

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
            raise PlanError(
                "seed_each_episode: an inner seed_each_episode sets the seeds already; leave one "
                "out"
            )
        entries: Any = seeds
        if not callable(seeds):
            entries = _entries(seeds)
        start_index = self.core.pending.start_index
        schedule = Schedule(
            entries, self.num_envs, start_index, once=use == "once", replace=replace
        )
        try:
            pickled = by_value(schedule)
        except Exception as error:
            raise PlanError(
                f"seed_each_episode: seeds: {seeds!r} cannot be sent to a sub-environment: "
                f"{error}; create unpicklable objects inside the function"
            ) from error
        self.call_state.refuse_pending("seed_each_episode")
        self.core.follow(pickled)

    def wrapper_state(self) -> dict[str, Any]:
        return {"episodes": self.core.scheduled()}

    def refuse_wrapper_state(self, state: dict[str, Any]) -> None:
        for remembered in state.get("remembered", ()):  # in the state of an earlier version
            if remembered not in (None, {"attributes": {}}):
                raise CheckpointError(
                    "seed_each_episode: the state has what its function remembered, which is no "
                    "longer saved or loaded; have the function depend on the episode and the "
                    "index alone, and save it again from a new run"
                )

    def load_wrapper_state(self, state: dict[str, Any]) -> None:
        episodes = fitting_list(state["episodes"], self.num_envs, "episodes")
        self.core.resume_schedule([fitting(number, 0, "episodes") for number in episodes])


def _entries(seeds: Any) -> tuple[ScheduledReset, ...]:
    try:
        if isinstance(seeds, str):
            values = None
        else:
            values = list(seeds)
    except TypeError:
        values = None
    if values is None:
        raise PlanError(
            "seed_each_episode: seeds: expected a list or a function of (episode, index), in a "
            f'pipeline its import path "module:attr", got {seeds!r}'
        )
    if not values:
        raise PlanError("seed_each_episode: seeds: expected at least one entry, got an empty list")
    entries = []
    for number, value in enumerate(values):
        try:
            entries.append(as_reset(value))
        except ArgumentError as error:
            raise PlanError(f"seed_each_episode: seeds[{number}]: {error}") from None
    return tuple(entries)
