"""Mistakes in stacking observations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from gymnasium import spaces

from vecwrap.parts.members import name_of
from vecwrap.plan import Plan
from vecwrap.probe import Stage
from vecwrap.rules.finding import Fault, rule
from vecwrap.rules.look import STACKS, boxes, overlap, spots


@rule("warning")
def zero_padding(plan: Plan) -> Iterator[Fault]:
    """Stacks of float vectors that start with zeros.

    For images, zero is black, and networks learn that there was nothing before. For measured quantities such as an
    angle or a speed, zero is a value like any other, so an episode seems to start with a jump. ``padding=first``
    repeats the first observation: nothing has moved yet.

    Wrong: ``CartPole-v1 | framestack:4``
    Right: ``CartPole-v1 | framestack:4,padding=first``
    """
    for spot in spots(plan, "framestack"):
        if spot.argument("padding") != "zero" or spot.argument("k") == 1:
            continue
        vectors = {
            key: box
            for key, box in boxes(spot.before, spot.keys).items()
            if len(box.shape) <= 1 and np.issubdtype(box.dtype, np.floating)
        }
        if vectors:
            what = ", ".join(f"{name_of(key)} {box.shape} {box.dtype}" for key, box in vectors.items())
            yield Fault(
                spot.layer,
                f"each episode's first stacks are padded with zeros, which are values like any other in {what}.",
                "Use padding=first.",
            )


@rule("warning")
def stack_twice(plan: Plan) -> Iterator[Fault]:
    """A stack of stacks.

    An engine that stacks by itself (ale-py's ``AtariVectorEnv`` and EnvPool do, by default by four), an environment
    that already stacks, or another ``framestack`` inside: the outer stack holds every frame several times.

    Wrong: ``PongNoFrameskip-v4 | atari | framestack:4 | framestack:4``
    Right: ``PongNoFrameskip-v4 | atari | framestack:4``
    """
    stacks = list(spots(plan, *STACKS))
    for spot in stacks:
        inner = [other for other in stacks if other.index < spot.index and overlap(other, spot)]
        by = inner[-1].label if inner else spot.before.stacks if spot.before else ""
        if by:
            yield Fault(
                spot.layer,
                f"{by} stacks observations already.",
                "Leave one of the two out" + ("." if inner else "; an engine may accept a stack of 1 (stack_num=1)."),
            )


@rule("warning")
def flatten_inside_stack(plan: Plan) -> Iterator[Fault]:
    """Observations flattened before they are stacked.

    A stack of k vectors has the shape (k, D), which networks for vectors do not accept, and an image is no longer an
    image. ``flatten`` outside the stack gives (k·D,). Inside is right if the observations could not be stacked
    otherwise, and with ``axis=channel``, which concatenates the vectors.

    Wrong: ``PongNoFrameskip-v4 | atari | flatten | framestack:4``
    Right: ``PongNoFrameskip-v4 | atari | framestack:4 | flatten``
    """
    for spot in spots(plan, "flatten"):
        stack = next((other for other in spots(plan, "framestack") if other.index > spot.index), None)
        if stack is None or stack.argument("axis") == "channel" or not _could_be_stacked(spot.before):
            continue
        yield Fault(
            spot.layer,
            f"{stack.label} makes {stack.argument('k')} rows of each flattened observation.",
            f'Put "flatten" after "{stack.name}".',
        )


def _could_be_stacked(stage: Stage | None) -> bool:
    """Whether observations can be stacked as they are; vectors are covered by changes_nothing."""
    space = None if stage is None else stage.observation_space
    if isinstance(space, spaces.Dict):
        return all(isinstance(member, spaces.Box) for member in space.spaces.values())
    return isinstance(space, spaces.Box) and len(space.shape) != 1
