"""The rules of games and their opponents; what a rule is, ``vecwrap.pipeline.rules`` says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gymnasium import spaces

from vecwrap.errors import VecwrapError
from vecwrap.pipeline.findings import RuleViolation
from vecwrap.pipeline.placed_wrapper import (
    OBSERVATION_NORMALIZERS,
    REWARD_CLIPS,
    REWARD_NORMALIZERS,
    STACKING,
    PlacedWrapper,
    placed_wrappers,
)
from vecwrap.pipeline.static_plan import StaticPlan
from vecwrap.pipeline.values import short_repr
from vecwrap.sources.masks import MEMBER


def clip_hides_results(plan: StaticPlan) -> Iterator[RuleViolation]:
    """Rewards clipped so that two results of a game are the same.

    Clipped to 0 to 1, a loss is worth as much as a draw, and the learner need not avoid it. The
    sign keeps all three.

    Wrong: ``pettingzoo:classic/tictactoe-v3 | opponents | clip_reward:0,1``
    Right: ``pettingzoo:classic/tictactoe-v3 | opponents | clip_reward``
    """
    if not any(placed_wrappers(plan, "opponents")):
        return
    for placed in placed_wrappers(plan, *REWARD_CLIPS):
        low = placed.argument("low", placed.argument("min_reward"))
        high = placed.argument("high", placed.argument("max_reward"))
        for bound, of_bounds, results in (
            (low, 1, "a loss is paid as a draw"),
            (high, -1, "a win is paid as a draw"),
        ):
            if bound is not None and bound * of_bounds >= 0:
                yield RuleViolation(
                    placed.wrapper,
                    f"rewards are clipped at {bound:g}, so {results}.",
                    "Clip to the sign.",
                )


def empty_pool(plan: StaticPlan) -> Iterator[RuleViolation]:
    """A pool without anybody to play against.

    The folder is not there, or has no members yet: ``OpponentPool(DIR).add(...)`` fills it. With
    ``current: 1`` the learner plays against itself, and without ``pool`` the opponent moves at
    random.

    Wrong: ``pettingzoo:classic/tictactoe-v3 | opponents:runs/nobody``
    Right: ``pettingzoo:classic/tictactoe-v3 | opponents``
    """
    for placed in placed_wrappers(plan, "opponents"):
        pool = placed.argument("pool")
        try:
            opponents: Any = placed.wrapper.target
            has_members = opponents.has_members(pool)
        except VecwrapError as error:  # a folder that cannot be read
            yield RuleViolation(
                placed.wrapper,
                f"{str(error).removesuffix('.')}.",
                "Mend the folder, or give another.",
            )
            continue
        if not has_members and placed.argument("current", 0.0) < 1:
            yield RuleViolation(
                placed.wrapper,
                f"the pool {short_repr(pool)} has no members.",
                "Add some, or leave pool out.",
            )


def mask_among_values(plan: StaticPlan) -> Iterator[RuleViolation]:
    """An action mask that is treated as an observation.

    Normalised, stacked, scaled or flattened with the other members, a member ``action_mask`` no
    longer says what is legal. Masks are in ``infos["action_mask"]`` and ``env.action_masks()``
    whatever wrappers do.

    Wrong: ``pettingzoo:classic/tictactoe-v3 | flatten``
    Right: ``pettingzoo:classic/tictactoe-v3 | extract_obs:observation | flatten``
    """
    for placed in placed_wrappers(
        plan, *STACKING, *OBSERVATION_NORMALIZERS, "scale_obs", "flatten"
    ):
        space = None if placed.input_spaces is None else placed.input_spaces.observation_space
        if (
            isinstance(space, spaces.Dict)
            and MEMBER in space.spaces
            and (placed.keys is None or MEMBER in placed.keys)
        ):
            others = [key for key in space.spaces if key != MEMBER]
            fix = f"Put filter_obs inside, with the others: {', '.join(others)}."
            if len(others) == 1:
                fix = f"Put extract_obs:{others[0]} inside."
            yield RuleViolation(
                placed.wrapper, f'it changes the member "{MEMBER}", which says what is legal.', fix
            )


def learner_sees_otherwise(plan: StaticPlan) -> Iterator[RuleViolation]:
    """Observations that are changed outside of ``opponents``.

    Opponents from a pool's folder see what is inside, so a snapshot of a learner that sees
    something else cannot play: it was trained on other shapes, or on other values.

    Wrong: ``pettingzoo:classic/tictactoe-v3 | opponents:runs/pool | extract_obs:observation``
    Right: ``pettingzoo:classic/tictactoe-v3 | extract_obs:observation | opponents:runs/pool``
    """
    if plan.padding and isinstance(plan.pipeline.agents, tuple):
        return  # the opponents have spaces of their own, and are not snapshots of the learner
    for placed in placed_wrappers(plan, "opponents"):
        for outer in placed.outside():
            if placed.wrapper.has_path and not _same_observations(outer):
                yield RuleViolation(
                    outer.wrapper,
                    f"the opponents of {placed.label} see observations without it.",
                    "Put it inside.",
                )


def _same_observations(placed: PlacedWrapper) -> bool:
    if placed.name in (*STACKING, *OBSERVATION_NORMALIZERS):
        return False
    return (
        placed.input_spaces is None
        or placed.output_spaces is None
        or placed.input_spaces.observation_space == placed.output_spaces.observation_space
    )


def statistics_of_all_seats(plan: StaticPlan) -> Iterator[RuleViolation]:
    """Running statistics inside of ``opponents``.

    They are shared by all seats and go on changing, so what a snapshot sees is no longer what it
    was trained on. Rewards that are normalised per seat are no longer a game's.

    Wrong: ``pettingzoo:classic/rps-v2 | normalize_reward | opponents:runs/pool``
    Right: ``pettingzoo:classic/rps-v2 | opponents:runs/pool | normalize_reward``
    """
    for placed in placed_wrappers(plan, "opponents"):
        for inner in placed.inside(*OBSERVATION_NORMALIZERS, *REWARD_NORMALIZERS):
            fix = "Use scale_obs, or training: false."
            if "reward" in inner.name:
                fix = "Put it outside."
            yield RuleViolation(
                inner.wrapper,
                f"its statistics are of all seats of {placed.label}, and go on changing.",
                fix,
            )


RULES = (
    clip_hides_results,
    empty_pool,
    learner_sees_otherwise,
    mask_among_values,
    statistics_of_all_seats,
)
