"""Mistakes about frames: how they are counted, and whether there are any."""

from __future__ import annotations

from collections.abc import Iterator

from vecwrap.plan import Plan
from vecwrap.rules.finding import Fault, rule
from vecwrap.rules.look import FRAME_SKIPS, spots


@rule("error")
def no_render_mode(plan: Plan) -> Iterator[Fault]:
    """``video`` or ``tile`` without a render mode.

    They use the environment's ``rgb_array`` rendering, and an environment renders nothing unless it is made with a
    render mode. ``build`` refuses it.

    Wrong: ``CartPole-v1 | video``
    Right: ``CartPole-v1 render_mode=rgb_array | video``
    """
    for spot in spots(plan, "video", "tile"):
        if spot.before is not None and spot.before.render_mode != "rgb_array":
            mode = spot.before.render_mode
            renders = f'renders for "{mode}"' if mode else "renders nothing"
            yield Fault(
                spot.layer,
                f"it needs images, and the environment {renders}.",
                "Add render_mode: rgb_array to the pipeline.",
            )


@rule("warning")
def time_aware_in_frames(plan: Plan) -> Iterator[Fault]:
    """A time that ends at a fraction of its limit.

    ``time_aware`` counts agent steps. Without ``limit`` it uses the environment's time limit, which inside ``atari`` or
    ``frame_skip`` is in frames: with ``normalize`` the elapsed fraction stops at a quarter, and without it the space
    includes times that are never reached.

    Wrong: ``CartPole-v1 | frame_skip:4 | time_aware:normalize=true``
    Right: ``CartPole-v1 | frame_skip:4 | time_aware:normalize=true,limit=125``
    """
    for spot in spots(plan, "time_aware"):
        inside = [other for other in spots(plan, "time_limit", *FRAME_SKIPS) if other.index < spot.index]
        last = inside[-1] if inside else None  # a time limit outside a skip counts agent steps
        if last is None or last.name not in FRAME_SKIPS or spot.argument("limit") is not None:
            continue
        frames = last.argument(*FRAME_SKIPS[last.name])
        if frames > 1:
            yield Fault(
                spot.layer,
                f"it counts agent steps, but its limit is a time limit in frames: {last.label} holds an action for "
                f"{frames}, so an episode ends at 1/{frames} of it.",
                "Give limit, in agent steps.",
            )


@rule("warning")
def time_limit_in_frames(plan: Plan) -> Iterator[Fault]:
    """A time limit that counts frames.

    Inside ``atari`` or ``frame_skip``, an environment's step is only one of the frames of an agent step. Outside,
    ``time_limit`` counts agent steps. If frames are intended (Atari's customary 108,000), the finding can be ignored.

    Wrong: ``PongNoFrameskip-v4 | time_limit:1000 | atari``
    Right: ``PongNoFrameskip-v4 | atari | time_limit:1000``
    """
    skips = list(spots(plan, *FRAME_SKIPS))
    for spot in spots(plan, "time_limit"):
        outer = next((skip for skip in skips if skip.index > spot.index), None)
        if outer is None:
            continue
        frames = outer.argument(*FRAME_SKIPS[outer.name])
        if frames > 1:
            limit = spot.argument("max_episode_steps")
            yield Fault(
                spot.layer,
                f"it counts frames, not agent steps: {outer.label} holds an action for {frames}, so {limit:,} frames "
                f"are {-(-limit // frames):,} agent steps.",
                f'Put it after "{outer.name}", or ignore this if frames are intended.',
            )
