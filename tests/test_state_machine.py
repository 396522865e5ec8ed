"""Any order of calls, in any mode: the process backends do as the dummy does, which is the model.

Workers are kept from one example to the next; an example begins by bringing everything home and
resetting with a seed. Whether a wait times out depends on the clock, so a rule that does not apply
does nothing; preconditions would be flaky.
"""

import warnings
from functools import partial

import numpy as np
import pytest
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.helpers.backends import DummyBackend, ShmemBackend, SubprocessBackend, ThreadsBackend
from vecwrap.errors import SubEnvError, VecwrapError
from vecwrap.rows.compare import rows_of
from vecwrap.rows.step_result import Autoreset
from vecwrap.testing import assert_same, toy
from vecwrap.testing.drive import Lockstep

NUM_ENVS = 3
BACKENDS = (
    DummyBackend,
    partial(SubprocessBackend, workers=2),
    partial(ShmemBackend, workers=2),
    partial(ShmemBackend, workers=1, parent_share=True),
    partial(ThreadsBackend, workers=2),
)
OPTIONS = st.sampled_from([None, {}, {"level": 3}, {"deep": {"map": [1, 2]}}])
SEEDS = st.one_of(
    st.none(),
    st.integers(0, 1000),
    st.lists(st.none() | st.integers(0, 99), min_size=3, max_size=3),
)
MASKS = st.lists(st.booleans(), min_size=NUM_ENVS, max_size=NUM_ENVS).map(np.array)
SOME = st.sets(st.integers(0, NUM_ENVS - 1), min_size=1).flatmap(
    lambda ids: st.permutations(sorted(ids))
)
NOT_YET = object()
EXPECTED = (VecwrapError, AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError)

_kept: dict[Autoreset, tuple] = {}


@pytest.fixture(autouse=True, scope="module")
def _close_what_was_kept():
    yield
    for mode in list(_kept):
        drop(mode)


def drop(mode):
    for env in _kept.pop(mode):
        env.close(terminate=True)


class Vector(RuleBasedStateMachine):
    """The calls of one example, made on each backend."""

    mode: Autoreset

    @initialize(seed=st.integers(0, 2**31 - 1))
    def begin(self, seed):
        if self.mode not in _kept:
            factories = [toy(observations="mixed", end=0.12)] * NUM_ENVS
            _kept[self.mode] = tuple(make(factories, autoreset=self.mode) for make in BACKENDS)
        self.lockstep = Lockstep(*_kept[self.mode])
        self.rng = np.random.default_rng(seed)
        self.asked = None  # the call that is pending: "step", "reset" or "call"
        self.results = []
        self.out = set()
        self.closed = False
        self.saved = None
        self.calls = 0
        self.all("set_attr", "bonus", 0.0)
        self.all("set_attr", "raise_in", None)
        self.all("reset", seed=seed)

    def all(self, name, *args, **kwargs):
        """Make a call; what the model raises, the others have raised as well."""
        if self.half_way:
            return None
        try:
            return self.lockstep(name, *args, **kwargs)
        except EXPECTED:
            return None
        except BaseException:
            drop(self.mode)
            raise

    def actions(self, count):
        return (self.rng.integers(5, size=count) - 2).tolist()

    @property
    def half_way(self):
        """Whether a wait has timed out for some of them and not for others: nothing can be compared
        now.
        """
        return bool(self.asked) and any(result is not NOT_YET for result in self.results)

    @property
    def idle(self):
        return not (self.closed or self.asked or self.out)

    # -- calls that come back at once --------------------------------------------------------------

    @rule(seed=SEEDS, options=OPTIONS)
    def reset(self, seed, options):
        self.all("reset", seed=seed, options=options)

    @rule(seed=SEEDS, options=OPTIONS, mask=MASKS)
    def masked_reset(self, seed, options, mask):
        self.all("reset", seed=seed, options={**(options or {}), "reset_mask": mask})

    @rule(times=st.integers(1, 4))
    def step(self, times):
        for _ in range(times):
            self.all("step", self.actions(NUM_ENVS))

    @rule()
    def reset_what_has_ended(self):
        if self.idle:
            mask = self.lockstep.envs[0].core.rows.needs_reset.ended.copy()
            if mask.any():
                self.all("reset", options={"reset_mask": mask})

    @rule(values=st.one_of(st.integers(-9, 9), st.lists(st.floats(-9, 9), min_size=3, max_size=3)))
    def set_attr(self, values):
        self.all("set_attr", "bonus", values)

    @rule(indices=SOME, where=st.sampled_from(["step", "reset"]))
    def make_some_raise(self, indices, where):
        self.all("set_attr", "raise_in", where, indices=indices)

    @rule(indices=st.none() | SOME)
    def call(self, indices):
        self.all("call", "state", indices=indices)

    @rule(
        indices=st.none() | SOME, name=st.sampled_from(["bonus", "raise_in", "no_such_attribute"])
    )
    def get_attr(self, indices, name):
        self.all("get_attr", name, indices=indices)

    @rule()
    def save(self):
        self.saved = self.all("state_dict") or self.saved

    @rule()
    def load(self):
        """Each takes the state in that dummy gave, which is the same."""
        if self.saved is not None:
            self.all("load_state_dict", self.saved)

    # -- calls in two halves -----------------------------------------------------------------------

    @rule(kind=st.sampled_from(["step", "reset", "call"]), seed=SEEDS, mask=MASKS)
    def ask(self, kind, seed, mask):
        if not self.idle:
            return
        arguments = {
            "step": ([self.actions(NUM_ENVS)], {}),
            "reset": ([], {"seed": seed, "options": {"reset_mask": mask} if mask.any() else None}),
            "call": (["greet", "you"], {}),
        }[kind]
        self.all(f"{kind}_async", *arguments[0], **arguments[1])
        # It may have been refused: a row has ended.
        if self.lockstep.envs[0].call_state.pending.call is not None:
            self.asked, self.results = kind, [NOT_YET] * len(BACKENDS)

    @rule(timeout=st.sampled_from([0, 0.0005, None]))
    def wait(self, timeout):
        if not self.asked:
            return
        for k, env in enumerate(self.lockstep.envs):
            if self.results[k] is NOT_YET:
                try:
                    self.results[k] = getattr(env, f"{self.asked}_wait")(timeout=timeout)
                except TimeoutError:
                    assert timeout is not None
                except SubEnvError as error:
                    self.results[k] = [str(error), error.index, error.others, len(error.failures)]
        if not any(result is NOT_YET for result in self.results):
            for k in range(1, len(BACKENDS)):
                assert_same(
                    self.results[0],
                    self.results[k],
                    f"{self.asked}_wait of {self.lockstep.envs[k]!r}",
                )
            self.asked = None

    @rule(ids=SOME)
    def send(self, ids):
        if self.closed or self.asked:
            return
        self.all("send", self.actions(len(ids)), env_ids=ids)
        self.out = set(self.lockstep.envs[0].core.rows.in_flight)

    @rule()
    def recv(self):
        if not self.out:
            return
        result = self.all("recv")
        if result is not None:
            assert set(result[4]["env_id"].tolist()) == self.out
        self.out = set()

    @rule(least=st.integers(1, NUM_ENVS), timeout=st.sampled_from([0, 0.0005]))
    def recv_as_they_come(self, least, timeout):
        """Which rows come together depends on the clock; what each of them is does not."""
        if not self.out:
            return
        results = [self.all_rows_of(env, least, timeout) for env in self.lockstep.envs]
        for k in range(1, len(BACKENDS)):
            assert_same(results[0], results[k], f"recv(min={least}) of {self.lockstep.envs[k]!r}")
        self.out = set()

    def all_rows_of(self, env, least, timeout):
        """By sub-environment, whatever the parts they come in: the row, or its failure's text."""
        rows = {}
        while env.core.rows.in_flight:
            try:
                result = env.recv(timeout, min=least)
            except TimeoutError:
                continue
            except SubEnvError as error:
                rows |= {failure.index: str(failure) for failure in error.failures}
                result = error.others
            if result is not None:
                rows |= dict(rows_of(env.single_observation_space, result))
        assert set(rows) == self.out
        return dict(sorted(rows.items()))

    # -- calls that must be refused ----------------------------------------------------------------

    @rule(name=st.sampled_from(["step_wait", "reset_wait", "call_wait", "recv"]))
    def wait_for_what_was_not_asked(self, name):
        if not (self.asked and name.startswith(self.asked)) and not (name == "recv" and self.out):
            self.all(name)

    @rule(
        actions=st.sampled_from([[0, 0], [[0], [0], [0]], ["a", "b", "c"], [0.5, 0.5, 0.5], None])
    )
    def step_with_bad_actions(self, actions):
        self.all("step", actions)

    @rule(
        mask=st.sampled_from([np.zeros(3, bool), np.ones(2, bool), np.ones(3), [True, True, True]])
    )
    def reset_with_a_bad_mask(self, mask):
        self.all("reset", options={"reset_mask": mask})

    @rule()
    def close(self):
        if self.calls < 12 or self.half_way:
            return
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            self.all("close")
        # Each says once that a call was pending.
        assert len(said) == (len(BACKENDS) if self.asked else 0)
        self.closed, self.asked, self.out = True, None, set()

    @invariant()
    def count(self):
        self.calls = getattr(self, "calls", 0) + 1

    def teardown(self):
        if self.mode not in _kept or not hasattr(self, "closed"):
            return
        if self.closed:
            drop(self.mode)
            return
        if self.asked:
            self.wait(None)
        if self.out:
            self.recv()


def run(mode, examples, calls):
    """Random examples, for one mode."""
    machine = type(f"Vector_{mode.value}", (Vector,), {"mode": mode})
    # Shrinking starts workers anew for each try: minutes.
    phases = (
        Phase.explicit,
        Phase.reuse,
        Phase.generate,
    )
    checks = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)
    options = settings(
        max_examples=examples,
        stateful_step_count=calls,
        deadline=None,
        phases=phases,
        suppress_health_check=checks,
        print_blob=True,
    )
    run_state_machine_as_test(machine, settings=options)


IN_SUITE = (Autoreset.SAME_STEP, Autoreset.DISABLED)


@pytest.mark.parametrize(
    "mode",
    [pytest.param(mode, marks=() if mode in IN_SUITE else pytest.mark.full) for mode in Autoreset],
)
def test_any_order_of_calls_gives_what_dummy_gives(mode):
    run(mode, examples=6, calls=30)


@pytest.mark.soak
@pytest.mark.parametrize("mode", Autoreset)
def test_any_order_of_many_calls_gives_what_dummy_gives(mode):
    run(mode, examples=200, calls=60)
