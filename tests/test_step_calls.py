"""How many calls an ordinary vector step makes, in Python and into C: in the parent and in a
worker. No clock is read.

The figures are those that hold; a change that needs more of them makes every step of every user
dearer. Calls of the environments themselves are not counted. Between the two halves of a step there
is a pause in which the workers answer, and before each step one in which they fall asleep, so that
nobody waits or looks twice while calls are counted.
"""

import sys
import time
from functools import partial

import gymnasium
import numpy as np
import pytest

import vecwrap
from vecwrap.backends.workers import process
from vecwrap.backends.workers.step_ring import Spinner
from vecwrap.rows.row_set import RowSet

PAUSE = (
    0.03  # seconds; too short a pause makes a figure larger, and the smallest of several is taken
)
STEPS = 12
ACTIONS = np.zeros(8, np.int64)
CHAINS = {"none": [], "monitor": ["monitor"], "chain": ["framestack:4", "normalize", "monitor"]}

# (calls in Python, calls into C) of one vector step of 8 sub-environments in the parent, by backend
# and chain; on shmem with two workers and no share of the parent's. Each half holds Ctrl-C back,
# with 5 calls into C.
PARENT = {
    ("dummy", "none"): (82, 41),
    ("dummy", "monitor"): (87, 42),
    ("dummy", "chain"): (139, 78),
    ("shmem", "none"): (129, 70),
    ("shmem", "monitor"): (134, 71),
    ("shmem", "chain"): (186, 107),
}
# The same of a whole step in one call, which takes the straight line.
WHOLE = {
    ("dummy", "none"): (46, 16),
    ("dummy", "monitor"): (48, 16),
    ("dummy", "chain"): (94, 50),
    ("shmem", "none"): (48, 34),
    ("shmem", "monitor"): (50, 34),
    ("shmem", "chain"): (96, 68),
}
# What actions in another form add to a whole step: a check and one cast.
OTHER_FORM = (2, 1)
# What each further worker adds in the parent.
FURTHER_WORKER = (33, 13)
# A worker with one row, and what each further row adds.
WORKER = (26, 19)
FURTHER_ROW = (2, 1)


class Counter:
    """Counts calls by kind while it is installed, but for those of an environment and within it."""

    def __init__(self):
        self.python = self.c = self.inside = 0

    def __call__(self, frame, event, argument):
        is_env = frame.f_code in Still.CODES
        if event == "call":
            self.inside += is_env
            self.python += not self.inside
        elif event == "return":
            self.inside -= is_env
        elif event == "c_call" and argument is not sys.setprofile:
            self.c += not self.inside

    @property
    def calls(self):
        return self.python, self.c


class Still(gymnasium.Env):
    """Nothing happens, and no call is made; the first one of a worker counts what is called from
    step to step.
    """

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    OBSERVATION = np.zeros(4, np.float32)

    def __init__(self, action_space=action_space):
        self.action_space = action_space
        self.counter, self.seen, self.counts = None, [], False

    def reset(self, *, seed=None, options=None):
        return self.OBSERVATION, {}

    def step(self, action):
        if self.counts:
            sys.setprofile(None)
            if self.counter is not None:
                self.seen.append(self.counter.calls)
            self.counter = Counter()
            self.counter.inside = 1  # this very call, which is about to return
            sys.setprofile(self.counter)
        return self.OBSERVATION, 0.0, False, False, {}


Still.CODES = frozenset({Still.step.__code__})


def build(chain, **options):
    env = vecwrap.build(Still, n=8, wrappers=CHAINS[chain], **options)
    env.reset(seed=0)
    return env


def step_counted(env, actions, *, whole=False):
    """One vector step; the calls in this process. In two halves with pauses, or ``whole``."""
    counter = Counter()
    if whole:
        spin = Spinner.spin

        def later(*arguments):
            """Let the workers answer before they are looked at."""
            sys.setprofile(None)
            time.sleep(PAUSE)
            sys.setprofile(counter)
            return spin(*arguments)

        time.sleep(PAUSE)
        Spinner.spin = later
        sys.setprofile(counter)
        try:
            env.step(actions)
        finally:
            sys.setprofile(None)
            Spinner.spin = spin
        return counter.calls
    time.sleep(PAUSE)
    sys.setprofile(counter)
    try:
        env.step_async(actions)
    finally:
        sys.setprofile(None)
    time.sleep(PAUSE)
    sys.setprofile(counter)
    try:
        env.step_wait()
    finally:
        sys.setprofile(None)
    return counter.calls


def in_the_parent(chain, **options):
    with build(chain, **options) as env:
        actions = np.zeros(8, np.int64)
        return min(step_counted(env, actions) for _ in range(STEPS))


def whole(chain, space=Still.action_space, actions=ACTIONS, **options):
    # After each pause it would be due.
    glance, process.CHECK_INTERVAL_SECONDS = (
        process.CHECK_INTERVAL_SECONDS,
        float("inf"),
    )
    try:
        with build(chain, env_kwargs={"action_space": space}, **options) as env:
            return min(step_counted(env, actions, whole=True) for _ in range(2 * STEPS))
    finally:
        process.CHECK_INTERVAL_SECONDS = glance


def in_a_worker(rows_of_it, **options):
    """The calls that the first of the workers makes for one step."""
    workers = 8 // rows_of_it
    with build("none", backend="shmem", workers=workers, parent_share=False, **options) as env:
        env.set_attr("counts", True, indices=[0])
        for _ in range(STEPS):
            step_counted(env, np.zeros(8, np.int64))
        return min(env.get_attr("seen", indices=[0])[0])


SHMEM = {"backend": "shmem", "workers": 2, "parent_share": False}


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("options", [{"backend": "dummy"}, SHMEM], ids=["dummy", "shmem"])
def test_a_step_in_the_parent_makes_no_more_calls_than_it_did(options, chain):
    python, c = in_the_parent(chain, **options)
    most = PARENT[options["backend"], chain]
    assert python <= most[0]
    assert c <= most[1]


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("options", [{"backend": "dummy"}, SHMEM], ids=["dummy", "shmem"])
def test_a_whole_step_takes_the_straight_line_and_makes_no_more_calls_than_it_did(options, chain):
    python, c = whole(chain, **options)
    most = WHOLE[options["backend"], chain]
    assert python <= most[0]
    assert c <= most[1]


BOX = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
PAIR = gymnasium.spaces.MultiDiscrete([2, 2])
OTHER_FORMS = {
    "int32": (Still.action_space, ACTIONS.astype(np.int32), ACTIONS),
    "uint8": (Still.action_space, ACTIONS.astype(np.uint8), ACTIONS),
    "list": (Still.action_space, ACTIONS.tolist(), ACTIONS),
    "pairs": (PAIR, np.zeros((8, 2), np.int32), np.zeros((8, 2), np.int64)),
    "list of pairs": (PAIR, np.zeros((8, 2), np.int64).tolist(), np.zeros((8, 2), np.int64)),
    "float64": (BOX, np.zeros((8, 2)), np.zeros((8, 2), np.float32)),
}


@pytest.mark.parametrize("form", OTHER_FORMS)
@pytest.mark.parametrize("options", [{"backend": "dummy"}, SHMEM], ids=["dummy", "shmem"])
def test_actions_of_another_dtype_or_in_a_list_cost_a_check_and_a_cast(options, form):
    space, given, exact = OTHER_FORMS[form]
    dearer = whole("none", space, given, **options)
    least = whole("none", space, exact, **options)
    assert dearer[0] - least[0] <= OTHER_FORM[0]
    assert dearer[1] - least[1] <= OTHER_FORM[1]


def test_further_workers_cost_the_parent_no_more_calls_than_they_did():
    two, eight = (in_the_parent("none", **{**SHMEM, "workers": workers}) for workers in (2, 8))
    added = [(after - before) / 6 for before, after in zip(two, eight, strict=True)]
    assert added[0] <= FURTHER_WORKER[0]
    assert added[1] <= FURTHER_WORKER[1]


def test_a_worker_makes_no_more_calls_for_a_step_than_it_did():
    one, four = in_a_worker(1), in_a_worker(4)
    further = [(after - before) / 3 for before, after in zip(one, four, strict=True)]
    assert one[0] <= WORKER[0]
    assert one[1] <= WORKER[1]
    assert further[0] <= FURTHER_ROW[0]
    assert further[1] <= FURTHER_ROW[1]


class Little(gymnasium.vector.VectorEnv):
    """An engine of a few rows, which may have infos."""

    single_observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    single_action_space = gymnasium.spaces.Discrete(2)
    metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}

    def __init__(self, infos, num_envs=2):
        self.infos = infos
        self.num_envs = num_envs

    def reset(self, *, seed=None, options=None):
        return np.zeros((self.num_envs, 4), np.float32), {}

    def step(self, actions):
        n = self.num_envs
        no = np.zeros(n, np.bool_)
        return np.zeros((n, 4), np.float32), np.zeros(n), no, no, self.infos


class Masked(Still):
    def reset(self, *, seed=None, options=None):
        return self.OBSERVATION, {"action_mask": np.ones(2, np.int8)}

    def step(self, action):
        return self.OBSERVATION, 0.0, False, False, {"action_mask": np.ones(2, np.int8)}


def calls_of(function, *arguments):
    counter = Counter()
    sys.setprofile(counter)
    try:
        function(*arguments)
    finally:
        sys.setprofile(None)
    return sum(counter.calls)


@pytest.mark.parametrize("infos", [{}, {"lives": np.ones(2)}], ids=["no infos", "infos"])
@pytest.mark.parametrize("options", [{"backend": "dummy"}, SHMEM], ids=["dummy", "shmem"])
def test_what_an_engine_costs_does_not_grow_with_the_number_of_others(options, infos):
    def counts(engines):
        settings = {"n": 2 * engines, "envs_per_engine": 2, "autoreset": "next_step", **options}
        with vecwrap.build(partial(Little, infos), **settings) as env:
            env.reset_async(seed=0)
            reset = calls_of(env.reset_wait, 60.0)
            actions, found = np.zeros(2 * engines, np.int64), []
            for _ in range(STEPS):
                env.send(actions[2:], range(2, 2 * engines))
                time.sleep(PAUSE)
                found.append(calls_of(env.recv, 60.0))
            return reset, min(found)

    for few, many in zip(counts(20), counts(80), strict=True):
        assert many < 5 * few


def test_what_an_engine_costs_does_not_grow_with_its_rows():
    def count(rows):
        """Of a step of two engines."""
        settings = {"n": 2 * rows, "envs_per_engine": rows, "autoreset": "next_step"}
        with vecwrap.build(partial(Little, {}, rows), backend="dummy", **settings) as env:
            env.reset(seed=0)
            actions = np.zeros(2 * rows, np.int64)
            return min(calls_of(env.step, actions) for _ in range(3))

    assert count(500) == count(2)


@pytest.mark.parametrize("whole", [True, False], ids=["step", "step_async"])
def test_rows_that_workers_answer_together_are_counted_together(whole, monkeypatch):
    def refuse(rows):
        pytest.fail("the rows were counted one by one")

    settings = {"n": 40, "envs_per_engine": 20, "autoreset": "next_step", **SHMEM}
    with vecwrap.build(partial(Little, {}), **settings) as env:
        env.reset(seed=0)
        monkeypatch.setattr(RowSet, "as_set", refuse)
        monkeypatch.setattr(Spinner, "bound", 0.0)  # no answer comes so soon
        for _ in range(3):
            if whole:
                env.step(np.zeros(40, np.int64))
            else:
                env.step_async(np.zeros(40, np.int64))
                env.step_wait()
            assert not env.core.rows.pending.awaited


def test_masks_of_some_rows_are_noted_without_a_look_at_the_others():
    def count(n):
        with vecwrap.build(Masked, n=n, backend="dummy") as env:
            env.reset(seed=0)
            env.send([0], [1])
            env.recv()
            env.send([0], [0])
            return calls_of(env.recv)

    assert count(40) <= count(4) + 2


if __name__ == "__main__":
    for name, options in (("dummy", {"backend": "dummy"}), ("shmem", SHMEM)):
        for chain in CHAINS:
            print(name, chain, in_the_parent(chain, **options), "whole:", whole(chain, **options))
    print("workers 2, 4, 8:", [in_the_parent("none", **{**SHMEM, "workers": k}) for k in (2, 4, 8)])
    print("worker with 1, 2, 4 rows:", [in_a_worker(k) for k in (1, 2, 4)])
