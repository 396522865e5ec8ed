"""What ``vecwrap check`` looks for where this package is installed."""

from collections.abc import Iterator

from vecwrap.rules import Fault, Plan, rule, spots


@rule("warning")
def clip_outside_delay(plan: Plan) -> Iterator[Fault]:
    """Rewards clipped after they are delayed.

    What is paid at an episode's end is a sum, often a large one. Clipped, it says hardly more than whether there was
    anything at all. Clip each reward, then delay them.

    Wrong: ``CartPole-v1 | delay_reward | clip_reward``
    Right: ``CartPole-v1 | clip_reward | delay_reward``
    """
    delays = list(spots(plan, "delay_reward"))
    for spot in spots(plan, "clip_reward"):
        if any(delay.index < spot.index for delay in delays):
            yield Fault(spot.layer, "it clips sums of whole episodes.", f'Put "{spot.name}" before "delay_reward".')
