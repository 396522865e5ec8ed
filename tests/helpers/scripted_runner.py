"""A runner whose arrivals a test writes down: pending rows, restarts, timeouts and interrupts
without any process.
"""

import time
from collections import deque

import gymnasium
import numpy as np

from vecwrap.env.arrivals import CallValues, EnvsMade, RowResults
from vecwrap.env.runner import Runner
from vecwrap.sources.group import SourceGroup


class Still(gymnasium.Env):
    """What the scripted rows are rows of; it is never stepped."""

    observation_space = gymnasium.spaces.Box(-1e6, 1e6, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)


class Scripted(Runner):
    """``script``: for each poll a list of arrivals, or a function that returns one; ``requests``:
    what was asked of it.

    The observation of a step is ``1 + that of the row before``, of a reset 0; the reward of a step
    is 1.
    """

    name = "scripted"
    of_its_process = "which has other processes"

    def __init__(self, script=()):
        super().__init__()
        self.script = deque(script)
        self.requests = []
        self.losses = []  # what `notice_losses` returns next
        self.to_come = ()  # what `cancel` returns

    def begin(self, context, factories):
        self.context = context
        group = SourceGroup(0, factories, is_own=lambda error: False)
        return [EnvsMade(range(context.num_rows), group.make(context.autoreset, debug=False))]

    def send(self, rows):
        self.requests.append(("step", rows.tolist()))

    def reset(self, rows, seeds, options):
        self.requests.append(("reset", rows.tolist(), list(seeds)))

    def set_frames(self, wanted):
        self.requests.append(("frames",))

    def recreate(self, restart_states):
        self.requests.append(("recreate", {i: one.seed for i, one in restart_states.items()}))
        return ()

    def call(self, number, method, rows, arguments):
        self.requests.append(("call", method, list(rows)))
        self.script.append([CallValues(number, {i: 10 * i for i in rows})])

    def cancel(self, rows):
        self.requests.append(("cancel", sorted(rows)))
        return self.to_come

    def notice_losses(self, rows):
        losses, self.losses = self.losses, []
        return losses

    def poll(self, until, *, return_early):
        if not self.script:
            return ()
        arrivals = self.script.popleft()
        if arrivals == "nothing":
            time.sleep(max(0.0, until - time.monotonic()))
            return ()
        return arrivals(self) if callable(arrivals) else arrivals

    def stop(self, timeout, terminate):
        self.requests.append(("stop",))

    # -- for scripts -------------------------------------------------------------------------------

    def stepped(self, *rows, terminated=False):
        """Write steps of these rows, and return that they have arrived."""
        for i in rows:
            self.slots.rest(slice(i, i + 1))
            self.slots.observations.put(i, self.slots.observations.batch()[i] + 1)
            for column in (self.slots.acted, self.slots.completed, self.slots.observed):
                column[i] = True
            self.slots.rewards[i] = self.slots.raw_rewards[i] = 1.0
            self.slots.terminations[i] = self.slots.raw_dones[i] = terminated
        return [RowResults(list(rows))]

    def was_reset(self, *rows):
        for i in rows:
            self.slots.rest(slice(i, i + 1))
            self.slots.observations.put(i, np.zeros(1))
            self.slots.observed[i] = self.slots.first[i] = self.slots.raw_first[i] = True
        return [RowResults(list(rows))]


def steps(*rows, **how):
    return lambda runner: runner.stepped(*rows, **how)


def resets(*rows):
    return lambda runner: runner.was_reset(*rows)
