"""What frames are counted, and whether there are any."""

from __future__ import annotations

from collections.abc import Iterator

from vecwrap.plan import Plan
from vecwrap.rules.finding import Fault, rule
from vecwrap.rules.look import FRAME_SKIPS, spots


@rule("error")
def no_render_mode(plan: Plan) -> Iterator[Fault]:
    """``video`` or ``tile`` without a render mode.

    They draw what the environment renders as ``rgb_array``, and it renders nothing unless it is told to when it is
    made. It is refused.

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
def time_limit_in_frames(plan: Plan) -> Iterator[Fault]:
    """A time limit that counts frames.

    Inside of ``atari`` or ``frame_skip``, an environment's step is one frame of several that an agent step lasts.
    Outside, ``time_limit`` counts agent steps. Where frames are meant (Atari's customary 108,000), it can be ignored.

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
                f'Put it after "{outer.name}", or ignore this where frames are meant.',
            )
