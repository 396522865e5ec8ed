"""What each call brought, taken apart into events: for wrappers whose rows depend on each other,
such as statistics.
"""

from hypothesis import strategies as st

from tests.helpers.stream_envs import Driver, assert_same, replay

MODES = ["same_step", "next_step", "disabled", "episodic"]
OPERATIONS = [
    ("step", ()),
    ("partial", (0, 1, 1)),
    ("step", ()),
    ("reset", (1, 0, 0)),
    ("partial", (1, 0, 0)),
    *[("step", ())] * 12,
    ("reset", (0, 1, 1)),
    *[("step", ())] * 6,
    *([("reset", (1, 1, 1))] + [("step", ())] * 5) * 3,
]
operations = st.lists(
    st.tuples(
        st.sampled_from(["step", "step", "step", "reset", "partial"]),
        st.lists(st.booleans(), min_size=3, max_size=3),
    ),
    max_size=40,
)


class Calls(Driver):
    """A driver that also keeps, call by call, the pairs (sub-environment, event) in the order of
    rows.

    A row that ends and begins anew within a step brings two events: the step with its terminal
    observation, the reset.
    """

    def __post_init__(self):
        super().__post_init__()
        self.calls = []
        self._result = None

    def note_resets(self, ids, observations, infos):
        super().note_resets(ids, observations, infos)
        self.calls.append([(i, self.events[i][-1]) for i in ids])

    def note_step(self, i, row, action, result):
        if result is not self._result:
            self._result = result
            self.calls.append([])
        known = len(self.events[i])
        super().note_step(i, row, action, result)
        self.calls[-1] += [(i, event) for event in self.events[i][known:]]


def calls_of(env, played):
    """Play and give the calls."""
    calls = Calls(env)
    calls.play(played)
    return calls.calls


def ended(event):
    """Whether the event ended an episode."""
    return event.terminated or event.truncated


def check_each_alone(env, alone, played, same=assert_same):
    """Compare every event with what each environment does on its own, wrapped by itself; gives the
    number of ends.

    Args:
        env: the vector environment with the wrapper, closed afterwards.
        alone: for each sub-environment what makes it with a wrapper of its own (law 5:
            per-environment = vectorised).
        played: the operations.
        same: compares two observations, or a reward with a reward.
    """
    ends = 0
    with env:
        for i, events in enumerate(Driver(env).play(played)):
            for event, (observation, reward, terminated, truncated, _) in replay(
                alone[i](), events
            ):
                same(event.observation, observation)
                same(event.reward, float(reward))
                assert (event.terminated, event.truncated) == (terminated, truncated)
                ends += ended(event)
    return ends
