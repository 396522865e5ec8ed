"""Any order of calls with any faults among them, against a model that knows which rows must be
untouched.
"""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.faults.faulty import IN_STEP_OF_A_WORKER
from tests.faults.trial import Trial
from tests.helpers.backends import DummyBackend, ShmemBackend, SubprocessBackend

NUM_ENVS = 4
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.usefixtures("either_start"),
]
INDEX = st.integers(0, NUM_ENVS - 1)
MASK = st.lists(st.booleans(), min_size=NUM_ENVS, max_size=NUM_ENVS).map(np.array)
SEEDS = st.lists(st.integers(0, 99), min_size=NUM_ENVS, max_size=NUM_ENVS)


class Faults(RuleBasedStateMachine):
    """One vector beside the model; the backend, the mode and what may happen are the class's."""

    backend = ShmemBackend
    mode = "same_step"
    kinds = ("raise", "kill", "exit")
    points = ("reset", *IN_STEP_OF_A_WORKER)

    @initialize(workers=st.integers(1, 3), seeds=SEEDS)
    def build(self, workers, seeds):
        self.saved = None
        self.folder = tempfile.mkdtemp()
        self.trial = Trial(
            self.backend, self.mode, self.folder, num_envs=NUM_ENVS, workers=workers, end=0.3
        )
        self.trial.reset(seeds)

    @precondition(lambda self: self.trial.may_step())
    @rule(data=st.data())
    def step(self, data):
        self.trial.step(data.draw(self._faults()) if len(self.trial.may_step()) else None)

    @precondition(lambda self: self.trial.may_step())
    @rule(data=st.data())
    def step_some(self, data):
        some = data.draw(st.sets(st.sampled_from(self.trial.may_step()), min_size=1))
        self.trial.step(data.draw(self._faults()), env_ids=sorted(some))

    @rule(seeds=st.none() | SEEDS, mask=MASK, data=st.data())
    def reset(self, seeds, mask, data):
        mask = mask if mask.any() else None
        rows = range(NUM_ENVS) if mask is None else np.flatnonzero(mask).tolist()
        faults = data.draw(
            st.dictionaries(st.sampled_from(rows), st.sampled_from(self.kinds), max_size=1)
        )
        self.trial.reset(seeds, mask, faults)

    @rule(data=st.data())
    def save(self, data):
        self.saved = self.trial.save(data.draw(self._deaths()))

    @precondition(lambda self: self.saved is not None)
    @rule(data=st.data())
    def load(self, data):
        self.trial.load(self.saved, data.draw(self._deaths()))

    @rule(bonus=st.floats(-5, 5))
    def set_attr(self, bonus):
        self.trial.set_attr("bonus", [bonus + i for i in range(NUM_ENVS)])

    @rule()
    def call(self):
        assert self.trial.env.call("call_me") == tuple(range(NUM_ENVS))

    def _deaths(self):
        """At most one, who takes its worker along; an exception in a save or a load is no loss."""
        deaths = [kind for kind in self.kinds if kind != "raise"]
        return (
            st.dictionaries(INDEX, st.sampled_from(deaths), max_size=1) if deaths else st.just({})
        )

    def _faults(self):
        return st.dictionaries(
            INDEX, st.tuples(st.sampled_from(self.points), st.sampled_from(self.kinds)), max_size=2
        ).map(
            lambda faults: {
                i: fault for i, fault in faults.items() if fault != ("half a reply", "raise")
            }
        )

    def teardown(self):
        if hasattr(self, "trial"):
            self.trial.close()
            assert not any(Path(self.folder).iterdir())
            shutil.rmtree(self.folder)


class OnDummy(Faults):
    """What dummy can live through."""

    backend = DummyBackend
    kinds = ("raise",)
    points = ("reset", "step", "after step", "half a row")


def run(kind, mode, examples, calls):
    machine = type(f"Faults_{kind.__name__}_{mode}", (kind,), {"mode": mode})
    options = settings(
        max_examples=examples,
        stateful_step_count=calls,
        deadline=None,
        # Shrinking starts workers for minutes.
        phases=(
            Phase.explicit,
            Phase.reuse,
            Phase.generate,
        ),
        suppress_health_check=tuple(HealthCheck),
        print_blob=True,
    )
    run_state_machine_as_test(machine, settings=options)


BACKENDS = {
    "dummy": OnDummy,
    "shmem": Faults,
    "subprocess": type("OnSubprocess", (Faults,), {"backend": SubprocessBackend}),
}
MODES = ["same_step", "next_step", "disabled", "episodic"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_any_order_of_calls_and_faults(backend, mode):
    run(BACKENDS[backend], mode, *((12, 30) if backend == "dummy" else (5, 25)))


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_any_order_of_many_calls_and_faults(backend, mode):
    run(BACKENDS[backend], mode, 100, 50)
