"""Action layers in an order that does not work, or not for every agent."""

from __future__ import annotations

from collections.abc import Iterator

from vecwrap.plan import Plan
from vecwrap.rules.finding import Fault, rule
from vecwrap.rules.look import spots


@rule("error")
def clip_inside_rescale(plan: Plan) -> Iterator[Fault]:
    """``clip_action`` inside ``rescale_action``.

    ``clip_action`` accepts any number, so its action space has no bounds, and ``rescale_action`` has none to map
    actions to. ``build`` refuses it.

    Wrong: ``Pendulum-v1 | clip_action | rescale_action``
    Right: ``Pendulum-v1 | rescale_action``
    """
    for spot in spots(plan, "rescale_action"):
        inner = next((clip for clip in spots(plan, "clip_action") if clip.index < spot.index), None)
        if inner is not None and spot.before is not None and spot.after is None:
            yield Fault(
                spot.layer,
                f"it maps actions to the bounds of what it wraps, and {inner.label} has removed them.",
                f'Put "{inner.name}" after "{spot.name}", or leave it out.',
            )


@rule("warning")
def clip_hides_bounds(plan: Plan) -> Iterator[Fault]:
    """``clip_action`` outside ``rescale_action``.

    ``rescale_action`` shows the agent bounds, for example -1 to 1, and ``clip_action`` outside it hides them: an agent
    that squashes its actions into the bounds of the space (SAC, TD3, DDPG) then has none to use. For an agent with
    unbounded Gaussian actions (PPO, A2C) the order is right, and the finding can be ignored: actions are clipped to -1
    and 1, then rescaled.

    Wrong: ``Pendulum-v1 | rescale_action | clip_action``
    Right: ``Pendulum-v1 | rescale_action``
    """
    for spot in spots(plan, "clip_action"):
        inner = next((other for other in spots(plan, "rescale_action") if other.index < spot.index), None)
        if inner is not None:
            yield Fault(
                spot.layer,
                f"{inner.label} shows the agent bounds, and this layer hides them.",
                "Leave it out for an agent that uses bounds; for one with unbounded actions, ignore this.",
            )
