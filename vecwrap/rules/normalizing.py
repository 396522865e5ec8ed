"""Mistakes in what is normalised, and where."""

from __future__ import annotations

from collections.abc import Iterator

from vecwrap.parts.members import name_of
from vecwrap.plan import Plan
from vecwrap.rules.finding import Fault, rule
from vecwrap.rules.look import OBSERVATION_NORMALIZERS, REWARD_NORMALIZERS, STACKS, boxes, is_image, overlap, spots
from vecwrap.space_text import space_text

CLIPS = ("clip_reward", "gymnasium.wrappers.transform_reward:ClipReward")


@rule("warning")
def normalize_images(plan: Plan) -> Iterator[Fault]:
    """Running statistics of uint8 images.

    A mean and a variance per pixel take memory and time, turn bytes into float32 (four times the traffic), and amplify
    pixels that hardly ever change. Networks for images divide by 255. Without ``integers=true``, ``build`` refuses it,
    so it is an error.

    Wrong: ``PongNoFrameskip-v4 | atari | normalize_obs:integers=true``
    Right: ``PongNoFrameskip-v4 | atari | scale_obs``
    """
    for spot in spots(plan, *OBSERVATION_NORMALIZERS):
        refused = "integers" in spot.layer.spec.kwargs and not spot.argument("integers")
        instead = "normalize_reward for the rewards" if spot.name == "normalize" else "scale_obs for values from 0 to 1"
        for key, box in boxes(spot.before, spot.keys).items():
            if is_image(box):
                yield Fault(
                    spot.layer,
                    f"{name_of(key)} are images, {space_text(box)}: each pixel would have a mean and a variance.",
                    f"Use {instead} instead." if key is None else "Name the other members in keys.",
                    "error" if refused else None,
                )


@rule("warning")
def normalize_twice(plan: Plan) -> Iterator[Fault]:
    """A second normaliser of values that are already normalised.

    The outer one keeps statistics of numbers that already have mean 0 and variance 1, and whose scale still shifts
    while the inner one learns. ``normalize`` covers both observations and rewards.

    Wrong: ``Pendulum-v1 | normalize | normalize_obs``
    Right: ``Pendulum-v1 | normalize``
    """
    for what, names in (("observations", OBSERVATION_NORMALIZERS), ("rewards", REWARD_NORMALIZERS)):
        found = list(spots(plan, *names))
        for spot in found:
            inner = [
                other for other in found if other.index < spot.index and (what == "rewards" or overlap(other, spot))
            ]
            if inner:
                yield Fault(spot.layer, f"{inner[-1].label} normalises {what} already.", "Leave one of the two out.")


@rule("warning")
def reward_inside_normalize(plan: Plan) -> Iterator[Fault]:
    """Rewards clipped or scaled before they are normalised.

    ``normalize_reward`` divides by the standard deviation of what it sees: a factor inside it cancels out, and the
    size of clipped rewards is lost. It clips by itself, after dividing (``clip``).

    Wrong: ``Pendulum-v1 | scale_reward:0.1 | normalize_reward``
    Right: ``Pendulum-v1 | normalize_reward``
    """
    normalizers = list(spots(plan, *REWARD_NORMALIZERS))
    for spot in spots(plan, "atari", "scale_reward", *CLIPS):
        outer = next((normalizer for normalizer in normalizers if normalizer.index > spot.index), None)
        if outer is None:
            continue
        if spot.name == "scale_reward":
            yield Fault(spot.layer, f"{outer.label} divides by the spread, so the factor cancels out.", "Leave it out.")
        elif spot.name in CLIPS:
            yield Fault(
                spot.layer,
                f"{outer.label} sees clipped rewards, and never how large they were.",
                f"Leave it out: {outer.name} clips too, after dividing.",
            )
        elif _atari_clips(spot.argument("lineage"), spot.argument("clip_reward")):
            yield Fault(
                spot.layer,
                f"it clips rewards to their sign, and {outer.label} never sees how large they were.",
                f"Leave {outer.name} out, or give atari clip_reward=false.",
            )


def _atari_clips(lineage: str, clip_reward: bool | None) -> bool:
    return lineage == "deepmind" if clip_reward is None else clip_reward


@rule("warning")
def normalize_stack(plan: Plan) -> Iterator[Fault]:
    """Observations normalised after they are stacked.

    A stack holds k copies of one quantity, which get k different means and variances, and with zero padding the zeros
    count too. Inside the stack there is one of each.

    Wrong: ``Pendulum-v1 | framestack:4,padding=first | normalize_obs``
    Right: ``Pendulum-v1 | normalize_obs | framestack:4,padding=first``
    """
    stacks = list(spots(plan, *STACKS))
    for spot in spots(plan, *OBSERVATION_NORMALIZERS):
        inner = next((stack for stack in stacks if stack.index < spot.index and overlap(stack, spot)), None)
        if inner is None:
            continue
        k = inner.argument("k", inner.argument("stack_size"))
        move = f'Put "{spot.name}" before "{inner.name}".'
        if inner.layer.runs_in != spot.layer.runs_in:
            move = f'Use framestack instead of "{inner.name}", and put it after "{spot.name}".'
        yield Fault(
            spot.layer,
            f"{inner.label} stacks {k} observations, so every quantity has {k} means and {k} variances.",
            move,
        )
