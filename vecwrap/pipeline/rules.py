"""The rules: functions from a plan to its faults; each docstring is a paragraph in docs/checks.md.

A docstring names the mistake, gives the reasons, and two one-line pipelines after ``Wrong:`` and
``Right:``. The tests run them: the first must have this finding and the second none at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from gymnasium.envs.registration import EnvSpec

from vecwrap.pipeline.findings import RuleViolation
from vecwrap.pipeline.placed_wrapper import (
    FRAME_SKIPS,
    OBSERVATION_NORMALIZERS,
    REWARD_CLIPS,
    REWARD_NORMALIZERS,
    STACKING,
    PlacedWrapper,
    placed_wrappers,
)
from vecwrap.pipeline.static_plan import StaticPlan
from vecwrap.rows.members import name_of
from vecwrap.sources.description import space_text


def clip_hides_bounds(plan: StaticPlan) -> Iterator[RuleViolation]:
    """``clip_action`` outside ``rescale_action``.

    It hides the bounds, for example -1 to 1, from an agent that squashes its actions into them
    (SAC, TD3, DDPG). For unbounded Gaussian actions (PPO, A2C) the order is right: ignore it.

    Wrong: ``Pendulum-v1 | rescale_action | clip_action``
    Right: ``Pendulum-v1 | rescale_action``
    """
    for placed in placed_wrappers(plan, "clip_action"):
        if inner := placed.inside("rescale_action"):
            yield RuleViolation(
                placed.wrapper,
                f"{inner[0].label} shows the agent bounds, and this wrapper hides them.",
                (
                    "Leave it out for an agent that uses bounds; for one with unbounded actions, "
                    "ignore this."
                ),
            )


def normalize_images(plan: StaticPlan) -> Iterator[RuleViolation]:
    """Running statistics of uint8 images.

    A mean and a variance per pixel amplify pixels that hardly ever change, and turn bytes into
    float32. Networks for images divide by 255. Without ``integers=true``, ``build`` refuses it.

    Wrong: ``PongNoFrameskip-v4 | atari | normalize_obs:integers=true``
    Right: ``PongNoFrameskip-v4 | atari | scale_obs``
    """
    for placed in placed_wrappers(plan, *OBSERVATION_NORMALIZERS):
        instead = "scale_obs for values from 0 to 1"
        if placed.name == "normalize":
            instead = "normalize_reward for the rewards"
        for key, box in placed.boxes().items():
            if box.dtype == np.uint8 and len(box.shape) >= 2:
                fix = "Name the other members in keys."
                if key is None:
                    fix = f"Use {instead} instead."
                yield RuleViolation(
                    placed.wrapper,
                    (
                        f"{name_of(key)} are images, {space_text(box)}: each pixel would have a "
                        "mean and a variance."
                    ),
                    fix,
                )


def normalize_stack(plan: StaticPlan) -> Iterator[RuleViolation]:
    """Observations normalised after they are stacked.

    A stack holds k copies of one quantity, which get k different means and variances, and with zero
    padding the zeros count too. Inside the stack there is one of each.

    Wrong: ``Pendulum-v1 | framestack:4,padding=first | normalize_obs``
    Right: ``Pendulum-v1 | normalize_obs | framestack:4,padding=first``
    """
    for placed in placed_wrappers(plan, *OBSERVATION_NORMALIZERS):
        stacks = [stack for stack in placed.inside(*STACKING) if stack.overlaps(placed)]
        if not stacks:
            continue
        inner = stacks[0]
        k = inner.argument("k", inner.argument("stack_size"))
        move = f'Put "{placed.name}" before "{inner.name}".'
        if inner.wrapper.runs_in != placed.wrapper.runs_in:
            move = f'Use framestack instead of "{inner.name}", and put it after "{placed.name}".'
        yield RuleViolation(
            placed.wrapper,
            (
                f"{inner.label} stacks {k} observations, so every quantity has {k} means and {k} "
                "variances."
            ),
            move,
        )


def normalize_twice(plan: StaticPlan) -> Iterator[RuleViolation]:
    """A second normaliser of values that are already normalised.

    The outer one keeps statistics of numbers whose scale shifts while the inner one learns.
    ``normalize`` does both observations and rewards.

    Wrong: ``Pendulum-v1 | normalize | normalize_obs``
    Right: ``Pendulum-v1 | normalize``
    """
    for what, names in (("observations", OBSERVATION_NORMALIZERS), ("rewards", REWARD_NORMALIZERS)):
        for placed in placed_wrappers(plan, *names):
            inner = [
                other
                for other in placed.inside(*names)
                if what == "rewards" or other.overlaps(placed)
            ]
            if inner:
                yield RuleViolation(
                    placed.wrapper,
                    f"{inner[-1].label} normalises {what} already.",
                    "Leave one of the two out.",
                )


def reward_inside_normalize(plan: StaticPlan) -> Iterator[RuleViolation]:
    """Rewards clipped or scaled before they are normalised.

    ``normalize_reward`` divides by the standard deviation of what it sees: a factor inside it
    cancels out, and the size of clipped rewards is lost. It clips by itself, after dividing
    (``clip``).

    Wrong: ``Pendulum-v1 | scale_reward:0.1 | normalize_reward``
    Right: ``Pendulum-v1 | normalize_reward``
    """
    for placed in placed_wrappers(plan, "atari", "scale_reward", *REWARD_CLIPS):
        normalizers = placed.outside(*REWARD_NORMALIZERS)
        if not normalizers:
            continue
        outer = normalizers[0]
        clips = placed.argument("clip_reward")
        if clips is None:
            clips = placed.argument("lineage") == "deepmind"
        if placed.name == "scale_reward":
            yield RuleViolation(
                placed.wrapper,
                f"{outer.label} divides by the spread, so the factor cancels out.",
                "Leave it out.",
            )
        elif placed.name in REWARD_CLIPS:
            yield RuleViolation(
                placed.wrapper,
                f"{outer.label} sees clipped rewards, and never how large they were.",
                f"Leave it out: {outer.name} clips too, after dividing.",
            )
        elif clips:
            yield RuleViolation(
                placed.wrapper,
                (
                    f"it clips rewards to their sign, and {outer.label} never sees how large they "
                    "were."
                ),
                f"Leave {outer.name} out, or give atari clip_reward=false.",
            )


def stack_twice(plan: StaticPlan) -> Iterator[RuleViolation]:
    """A stack of stacks.

    An engine that stacks by itself (ale-py's and EnvPool's do, by default by four), an environment
    that already stacks, or another ``framestack`` inside: the outer stack holds every frame several
    times.

    Wrong: ``PongNoFrameskip-v4 | atari | framestack:4 | framestack:4``
    Right: ``PongNoFrameskip-v4 | atari | framestack:4``
    """
    for placed in placed_wrappers(plan, *STACKING):
        inner = [other for other in placed.inside(*STACKING) if other.overlaps(placed)]
        if inner:
            by = inner[-1].label
        elif placed.input_spaces:
            by = placed.input_spaces.stacked_by
        else:
            by = ""
        if by:
            yield RuleViolation(
                placed.wrapper,
                f"{by} stacks observations already.",
                "Leave one of the two out"
                + ("." if inner else "; an engine may accept a stack of 1 (stack_num=1)."),
            )


def time_aware_in_frames(plan: StaticPlan) -> Iterator[RuleViolation]:
    """A time that ends at a fraction of its limit.

    ``time_aware`` counts agent steps, but without ``limit`` it uses the environment's time limit,
    which inside ``atari`` or ``frame_skip`` is in frames: with ``normalize`` the elapsed fraction
    stops at a quarter.

    Wrong: ``CartPole-v1 | frame_skip:4 | time_aware:normalize=true``
    Right: ``CartPole-v1 | frame_skip:4 | time_aware:normalize=true,limit=125``
    """
    for placed in placed_wrappers(plan, "time_aware"):
        inside = placed.inside("time_limit", *FRAME_SKIPS)
        # a time limit outside a skip counts agent steps
        last = None
        if inside:
            last = inside[-1]
        if last is None or last.name not in FRAME_SKIPS or placed.argument("limit") is not None:
            continue
        if last.frames > 1:
            yield RuleViolation(
                placed.wrapper,
                f"it counts agent steps, but its limit is a time limit in frames: {last.label} "
                f"holds an action for {last.frames}, so an episode ends at 1/{last.frames} of it.",
                "Give limit, in agent steps.",
            )


def time_limit_in_frames(plan: StaticPlan) -> Iterator[RuleViolation]:
    """A time limit that counts frames.

    Inside ``atari`` or ``frame_skip``, a step is only one of the frames of an agent step. If frames
    are intended (Atari's customary 108,000), ignore the finding.

    Wrong: ``PongNoFrameskip-v4 | time_limit:1000 | atari``
    Right: ``PongNoFrameskip-v4 | atari | time_limit:1000``
    """
    for placed in placed_wrappers(plan, "time_limit"):
        skips = placed.outside(*FRAME_SKIPS)
        if skips and skips[0].frames > 1:
            outer = skips[0]
            limit = placed.argument("max_episode_steps")
            yield RuleViolation(
                placed.wrapper,
                f"it counts frames, not agent steps: {outer.label} holds an action for "
                f"{outer.frames}, so {limit:,} frames are {-(-limit // outer.frames):,} agent "
                "steps.",
                f'Put it after "{outer.name}", or ignore this if frames are intended.',
            )


def time_limit_never_acts(plan: StaticPlan) -> Iterator[RuleViolation]:
    """A time limit above the environment's own, which ends every episode first.

    ``time_limit`` adds a limit to that of the registration, which ``env_kwargs: {max_episode_steps:
    ...}`` replaces, and to an Atari game's, which ``max_num_frames_per_episode`` replaces.

    Wrong: ``Pendulum-v1 | time_limit:1000``
    Right: ``Pendulum-v1 | time_limit:100``
    """
    own = list(_own_limits(plan))
    for placed in placed_wrappers(plan, "time_limit"):
        limit = placed.argument("max_episode_steps")
        frames = _frames_inside(placed)
        held = ""
        if frames > 1:
            held = f", {limit * frames:,} of the environment's own steps"
        for steps, ends, key, skip in own:
            if 0 < steps < limit * frames:
                yield RuleViolation(
                    placed.wrapper,
                    f"it never acts: its limit is {limit:,} agent steps{held}, and "
                    f"{plan.environment.name} ends episodes after {ends}.",
                    (
                        f"Leave it out, or raise the environment's own: env_kwargs: {{{key}: "
                        f"{limit * frames * skip}}}."
                    ),
                )
                break
        for inner in placed.inside("time_limit"):
            if inner.argument("max_episode_steps") * _frames_inside(inner) < limit * frames:
                yield RuleViolation(
                    placed.wrapper,
                    (
                        f"it never acts: its limit is {limit:,} agent steps{held}, and "
                        f"{inner.label} ends episodes before."
                    ),
                    "Leave one of the two out.",
                )
                break


def _frames_inside(placed: PlacedWrapper) -> int:
    """How many of the environment's own steps a step of what this wrapper wraps is."""
    return math.prod(skip.frames for skip in placed.inside(*FRAME_SKIPS))


def _own_limits(plan: StaticPlan) -> Iterator[tuple[int, str, str, int]]:
    """Yield the environment's own limits: steps, summary, argument, and its count for one step.

    Of several environments, each with such a limit, the longest.
    """
    each = [list(_limits_of(part.effective_spec())) for part in plan.environment.each]
    for key in ("max_episode_steps", "max_num_frames_per_episode"):
        limits = [limit for of_one in each for limit in of_one if limit[2] == key]
        if len(limits) == len(each):
            yield max(limits)


def _limits_of(spec: EnvSpec | None) -> Iterator[tuple[int, str, str, int]]:
    if spec is None:
        return
    if (steps := spec.kwargs.get("max_episode_steps", spec.max_episode_steps)) is not None:
        yield steps, f"{steps:,}", "max_episode_steps", 1
    if (frames := spec.kwargs.get("max_num_frames_per_episode")) is not None:
        skip = spec.kwargs.get("frameskip", 1)
        least = skip
        if not isinstance(skip, int):
            least = min(skip)
        yield frames // least, f"{frames:,} frames", "max_num_frames_per_episode", least


def zero_padding(plan: StaticPlan) -> Iterator[RuleViolation]:
    """Stacks of float vectors that start with zeros.

    For images, zero is black: nothing was there before. For measured quantities such as an angle or
    a speed, it is a value like any other, so an episode seems to start with a jump.
    ``padding=first`` repeats the first observation.

    Wrong: ``CartPole-v1 | framestack:4``
    Right: ``CartPole-v1 | framestack:4,padding=first``
    """
    for placed in placed_wrappers(plan, "framestack"):
        if placed.argument("padding") != "zero" or placed.argument("k") == 1:
            continue
        vectors = {
            key: box
            for key, box in placed.boxes().items()
            if len(box.shape) <= 1 and np.issubdtype(box.dtype, np.floating)
        }
        if vectors:
            what = ", ".join(
                f"{name_of(key)} {box.shape} {box.dtype}" for key, box in vectors.items()
            )
            yield RuleViolation(
                placed.wrapper,
                (
                    "each episode's first stacks are padded with zeros, which are values like any "
                    f"other in {what}."
                ),
                "Use padding=first.",
            )


RULES = (
    clip_hides_bounds,
    normalize_images,
    normalize_stack,
    normalize_twice,
    reward_inside_normalize,
    stack_twice,
    time_aware_in_frames,
    time_limit_in_frames,
    time_limit_never_acts,
    zero_padding,
)
