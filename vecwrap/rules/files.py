"""Layers that write into the same folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

from vecwrap.plan import Plan
from vecwrap.rules.finding import Fault, rule
from vecwrap.rules.look import spots


@rule("error")
def monitors_share_folder(plan: Plan) -> Iterator[Fault]:
    """Two monitors that write into one folder.

    Each writes its own ``monitor.csv``, or one per sub-environment (``per_env``). ``build`` refuses a second monitor
    that would write into the folder of the first.

    Wrong: ``CartPole-v1 | monitor:runs | clip_reward | monitor:runs,stats_key=clipped,rewards=seen``
    Right: ``CartPole-v1 | monitor:runs | clip_reward | monitor:runs/clipped,stats_key=clipped,rewards=seen``
    """
    writers: dict[str, str] = {}
    for spot in spots(plan, "monitor"):
        folder = spot.argument("dir")
        if folder is not None:
            first = writers.setdefault(os.path.realpath(folder), spot.label)
            if first != spot.label:
                yield Fault(spot.layer, f"{first} writes into that folder already.", "Give each its own dir.")
