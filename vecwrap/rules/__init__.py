"""Rules that find mistakes of order and use in a plan, one small function each; their names are in the registry.

A rule of your own is a function from a plan to faults:

    from vecwrap.rules import Fault, Plan, rule, spots

    @rule("warning")
    def long_stack(plan: Plan) -> Iterator[Fault]:
        '''A stack of more than eight observations.

        It is slow, and a recurrent network would do.

        Wrong: ``CartPole-v1 | framestack:16,padding=first``
        Right: ``CartPole-v1 | framestack:4,padding=first``
        '''
        for spot in spots(plan, "framestack"):
            if spot.argument("k") > 8:
                yield Fault(spot.layer, "it stacks more than eight observations.", "Take k=4.")

A package registers it in the entry point group ``vecwrap.rules``.
"""

from vecwrap.plan import Plan
from vecwrap.rules.finding import Fault, Finding, Rule, rule
from vecwrap.rules.look import Spot, spots

__all__ = ["Fault", "Finding", "Plan", "Rule", "Spot", "rule", "spots"]
