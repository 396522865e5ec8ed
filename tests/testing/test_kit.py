"""The conformance kit finds what it is there to find: each law is broken on purpose, and must say
so.
"""

import os
import subprocess
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial

import gymnasium
import numpy as np
import pytest

from tests.helpers.backends import Changing, DummyBackend, OnDummy, ShmemBackend
from vecwrap.backends.dummy import Dummy
from vecwrap.env.arrivals import RowResults
from vecwrap.env.runner import Runner
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import BackendError, SubEnvError
from vecwrap.rows import batch as batches
from vecwrap.rows.step_result import Autoreset
from vecwrap.sources.source_factories import SubEnvFactory
from vecwrap.testing import BACKEND_LAWS, WRAPPER_LAWS, Subject, assert_same, on, toy
from vecwrap.testing import backends as backend_laws
from vecwrap.testing import toys as leftovers
from vecwrap.testing import wrappers as wrapper_laws
from vecwrap.testing.toys import SPACES, digest
from vecwrap.testing.wrappers import backend_invariance
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.normalize_reward import NormalizeReward

# -- wrappers that break one law each --------------------------------------------------------------


class ForgetsFinalObs(VecEnvWrapper):
    def on_step(self, step):
        step.observations = step.observations / 2


class CountsTheResetStep(VecEnvWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.count = np.zeros(env.num_envs)

    def on_step(self, step):
        self.count[step.rows] += 1
        step.add_info("count", self.count[step.rows].copy(), step.acted)


class WritesInPlace(VecEnvWrapper):
    def on_step(self, step):
        step.rewards[:] = np.sign(step.rewards)


class WritesIntoInfos(VecEnvWrapper):
    def on_step(self, step):
        step.infos["mine"] = np.ones(len(step.env_ids))
        step.infos["_mine"] = np.ones(len(step.env_ids), dtype=bool)


class WritesIntoActions(VecEnvWrapper):
    def on_actions(self, actions, env_ids):
        actions += 0
        return actions


class IndexedByPosition(VecEnvWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.count = np.zeros(env.num_envs)

    def on_step(self, step):
        here = slice(0, len(step.env_ids))
        self.count[here] += step.acted
        step.rewards = step.rewards + self.count[here]


class MixesRows(VecEnvWrapper):
    def on_step(self, step):
        step.rewards = step.rewards - step.rewards.mean()


class HandsOutItsBuffer(VecEnvWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.buffer = np.zeros(env.observation_space.shape, np.float32)

    def on_step(self, step):
        self.buffer[step.rows] = step.observations
        step.observations = self.buffer[step.rows]


class ChangesRaw(VecEnvWrapper):
    def on_step(self, step):
        step.rewards = step.raw_rewards = np.sign(step.rewards)


class WrongSpace(VecEnvWrapper):
    def __init__(self, env):
        super().__init__(env, env.single_observation_space)

    def on_observations(self, observations):
        return observations * 2


class ChangesTheInnerSpace(VecEnvWrapper):
    def __init__(self, env):
        super().__init__(env)
        env.single_observation_space.low[:] = -7


class ForgetsToClose(VecEnvWrapper):
    def close(self, timeout=None, terminate=False):
        pass


class ForgetsItsState(VecEnvWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.count = np.zeros(env.num_envs)

    def on_step(self, step):
        self.count[step.rows] = np.where(step.first, 0, self.count[step.rows] + step.acted)
        step.rewards = step.rewards + self.count[step.rows]


class LoadsOnlyHalf(ForgetsItsState):
    def wrapper_state(self):
        return {"count": self.count.copy()}


class SavesWhatIsNoData(ForgetsItsState):
    def wrapper_state(self):
        return {"count": iter(self.count)}


class GoesOn(LoadsOnlyHalf):
    def load_wrapper_state(self, state):
        self.count = state["count"].copy()


BROKEN_WRAPPERS = [
    (ForgetsFinalObs, "correct_in_every_autoreset_mode"),
    (CountsTheResetStep, "correct_in_every_autoreset_mode"),
    (WritesInPlace, "arrays_are_not_modified"),
    (WritesIntoInfos, "arrays_are_not_modified"),
    (WritesIntoActions, "arrays_are_not_modified"),
    (IndexedByPosition, "arrival_order_invariance"),
    (IndexedByPosition, "backend_invariance"),
    (MixesRows, "batch_size_invariance"),
    (HandsOutItsBuffer, "results_never_change"),
    (ChangesRaw, "raw_fields_are_unchanged"),
    (WrongSpace, "observations_are_in_the_space"),
    (ChangesTheInnerSpace, "wrapped_env_is_unchanged"),
    (ForgetsToClose, "attributes_are_forwarded"),
    (ForgetsItsState, "resumes_after_load"),
    (LoadsOnlyHalf, "resumes_after_load"),
    (SavesWhatIsNoData, "resumes_after_load"),
]


@cache
def passes(law):
    """What breaks none passes."""
    getattr(wrapper_laws, law)(Subject(VecEnvWrapper, steps=60))


@pytest.mark.parametrize(("wrapper", "law"), BROKEN_WRAPPERS)
def test_a_wrapper_that_breaks_a_law_is_caught_by_it(wrapper, law):
    passes(law)
    # ValueError: NumPy's, of a write to a read-only array.
    with pytest.raises((AssertionError, ValueError)):
        getattr(wrapper_laws, law)(Subject(wrapper, steps=60))


def test_a_wrapper_that_saves_and_loads_its_state_goes_on():
    wrapper_laws.resumes_after_load(Subject(GoesOn, steps=60))


def test_where_sub_environments_cannot_be_saved_the_wrappers_go_on_from_a_reset():
    cartpole = partial(gymnasium.make, "CartPole-v1")
    wrapper_laws.resumes_after_load(Subject(GoesOn, cartpole, steps=60))
    wrapper_laws.resumes_after_load(Subject(NormalizeReward, cartpole, steps=60))
    with pytest.raises(AssertionError, match="after a load"):
        wrapper_laws.resumes_after_load(Subject(CountsForEver, cartpole))


class CountsForEver(VecEnvWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.count = 0

    def on_step(self, step):
        self.count += 1
        step.rewards = step.rewards + self.count


@pytest.mark.parametrize("law", WRAPPER_LAWS, ids=lambda law: law.__name__)
def test_every_law_is_tried_over_the_backend_that_is_given(law):
    made = []

    def make_backend(factories, **options):
        made.append(len(factories))
        return DummyBackend(factories, **options)

    law(Subject(VecEnvWrapper, steps=8, backend=make_backend))
    assert made


# -- the law that compares backends ----------------------------------------------------------------


class TellsItsProcess(gymnasium.Wrapper):
    """Right in one process, and not over several."""

    def step(self, action):
        *result, info = self.env.step(action)
        return *result, {**info, "pid": os.getpid()}


class AsksForFrames(VecEnvWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.request_frames(range(env.num_envs))


class Watches(AsksForFrames):
    """Counts what happens in each mode."""

    def __init__(self, env, met):
        super().__init__(env)
        self.met = met
        self.running = np.zeros(env.num_envs, dtype=bool)

    def on_step(self, step):
        met = self.met[self.core.autoreset]
        opened = step.first & ~step.acted
        partial_batch = len(step.env_ids) < self.num_envs
        met["ends"] += step.ended.sum()
        met["episodes broken off by a masked reset"] += (
            partial_batch * (opened & self.running[step.rows]).sum()
        )
        met["rows of a partial batch that acted"] += partial_batch * step.acted.sum()
        met["frames"] += sum(frame is not None for frame in step.frames or ())
        met["final frames"] += sum(frame is not None for frame in step.final_frames or ())
        self.running[step.rows] = step.observed & ~(step.dones & ~step.first)


def test_the_same_over_every_backend_meets_what_it_is_about():
    met = {mode: Counter() for mode in Autoreset}  # over both chains
    backend_invariance(Subject(partial(Watches, met=met), toy(render_mode="rgb_array"), steps=16))
    for mode in Autoreset:
        final_frames = met[mode].pop("final frames")
        assert final_frames >= 6 if mode is Autoreset.SAME_STEP else final_frames == 0
        assert len(met[mode]) == 4
        assert min(met[mode].values()) >= 6, (mode, met[mode])


def test_what_depends_on_the_process_is_found_over_processes():
    subject = Subject(VecEnvWrapper, SubEnvFactory(toy(), (TellsItsProcess,)), steps=8)
    backend_invariance(subject)
    with pytest.raises(AssertionError, match="'pid'"):
        backend_invariance(replace(subject, backend=partial(ShmemBackend, workers=2)))


class ForgetsFrames(Dummy):
    def set_frames(self, wanted):
        pass


class RoundsWhatWasPaid(Changing):
    def change(self, step):
        step.raw_rewards = np.round(step.raw_rewards)


class ForgetsInAPartialBatch(Changing):
    def change(self, step):
        if step.acted.any() and len(step.env_ids) < self.context.num_rows:
            step.rewards = np.zeros_like(step.rewards)


@pytest.mark.parametrize(
    ("backend", "what"),
    [
        (ForgetsFrames, r"StepResult below the wrapper\['frames'\]"),
        (RoundsWhatWasPaid, r"StepResult below the wrapper\['raw_rewards'\]"),
        (ForgetsInAPartialBatch, "recv"),
    ],
)
@pytest.mark.parametrize("independent", [True, False])
def test_everything_that_passes_is_compared(backend, what, independent):
    subject = Subject(
        AsksForFrames, toy(render_mode="rgb_array"), steps=16, independent=independent
    )
    backend_invariance(subject)
    with pytest.raises(AssertionError, match=what):
        backend_invariance(replace(subject, backend=on(backend)))


class RefusesOptions(gymnasium.Wrapper):
    def reset(self, *, seed=None, options=None):
        assert not options
        return self.env.reset(seed=seed)


def test_environments_that_know_no_options_are_not_given_any():
    backend_invariance(Subject(VecEnvWrapper, SubEnvFactory(toy(), (RefusesOptions,)), steps=16))


def test_nothing_but_what_is_named_is_taken_for_a_clock():
    backend_invariance(Subject(Monitor, steps=16))
    with pytest.raises(AssertionError, match=r"\['episode'\]\['t'\]"):
        backend_invariance(Subject(Monitor, steps=16, ignore=()))


# -- backends that break one law each --------------------------------------------------------------


class Rounds(Changing):
    """Rewards in single precision."""

    def change(self, step):
        step.rewards = step.rewards.astype(np.float32).astype(np.float64)


class LosesText(Changing):
    """Pads strings to one length, as NumPy's own string arrays would."""

    def change(self, step):
        shown = step.observations
        if (
            isinstance(shown, np.ndarray)
            and shown.dtype.kind == "O"
            and all(isinstance(one, str) for one in shown)
        ):
            step.observations = np.char.ljust(shown.astype(str), 8).astype(object)


class Crosses(Changing):
    """Gives partial batches in the order of arrival, with ascending numbers."""

    def change(self, step):
        if len(step.env_ids) < self.context.num_rows:
            step.rewards = step.rewards[::-1].copy()


class NeverGetsThere(Dummy):
    """Forgets what it did when a timeout is over."""

    def poll(self, until, *, return_early):
        if return_early and self.context.batch_size is None:
            raise TimeoutError
        return super().poll(until, return_early=return_early)


class InventsARow(Dummy):
    """Brings a row that nobody asked for, in partial batches."""

    requested = frozenset()

    def send(self, rows):
        self.requested = set(rows.tolist())
        super().send(rows)

    def reset(self, rows, seeds, options):
        self.requested = set(rows.tolist())
        super().reset(rows, seeds, options)

    def poll(self, until, *, return_early):
        arrivals = super().poll(until, return_early=return_early)
        others = set(range(self.context.num_rows)) - self.requested
        if self.requested and others:
            arrivals.append(RowResults([min(others)]))
        return arrivals


class BringsARowTwice(Dummy):
    def poll(self, until, *, return_early):
        arrivals = super().poll(until, return_early=return_early)
        if isinstance(arrivals[0], RowResults):
            arrivals.append(RowResults(arrivals[0].rows[:1]))
        return arrivals


class HandsOutViews(OnDummy):
    def __init__(self, factories, **options):
        super().__init__(factories, **{**options, "copy": False})


class PopsTheMask(OnDummy):
    def reset_async(self, *, seed=None, options=None):
        before = dict(options or {})
        (options or {}).pop("reset_mask", None)
        super().reset_async(seed=seed, options=before)


class HoldsActions(Dummy):
    """Looks at the actions when they are due, not when they are given."""

    held = ()

    def allocate(self, description):
        slots = super().allocate(description)
        fill = slots.actions.fill

        def hold(rows, actions):
            fill(rows, actions)
            self.held = [
                (i, actions, k) for k, i in enumerate(np.arange(slots.num_rows)[rows].tolist())
            ]

        slots.actions.fill = hold
        return slots

    def poll(self, until, *, return_early):
        for i, actions, k in self.held:
            self.slots.actions.put(i, batches.row(actions, k))
        self.held = []
        return super().poll(until, return_early=return_early)


class IgnoresIndices(OnDummy):
    def set_attr(self, name, values, indices=None):
        super().set_attr(name, values if isinstance(values, list) else [values] * self.num_envs)


class LeavesAFile(Dummy):
    def begin(self, context, factories):
        os.open(os.devnull, os.O_RDONLY)
        return super().begin(context, factories)


class LeavesAProcess(Dummy):
    def begin(self, context, factories):
        self.left = subprocess.Popen(["sleep", "30"])
        return super().begin(context, factories)


class ClosesOnce(OnDummy):
    def close(self, timeout=None, terminate=False):
        assert not self.closed
        super().close(timeout, terminate)


class IgnoresStartIndex(OnDummy):
    def __init__(self, factories, **options):
        super().__init__(factories, **{**options, "start_index": 0})


class AnyOrder(OnDummy):
    def __init__(self, factories, **options):
        super().__init__(factories, **options)
        self.call_state.refuse_pending = lambda name, allow=None: self.call_state.refuse_closed(
            name
        )


class StepsOn(OnDummy):
    def __init__(self, factories, **options):
        super().__init__(factories, **options)
        self.call_state.refuse_ended = lambda env_ids: None


class LosesTheOthers(OnDummy):
    def step(self, actions):
        try:
            return super().step(actions)
        except SubEnvError as error:
            error.others = None
            raise

    def step_wait(self, timeout=None):
        try:
            return super().step_wait(timeout)
        except SubEnvError as error:
            error.others = None
            raise

    def reset(self, **arguments):
        try:
            return super().reset(**arguments)
        except SubEnvError as error:
            error.others = None
            raise


BROKEN_BACKENDS = [
    (Rounds, "same_stream_in_every_mode"),
    (LosesText, "every_space_round_trips"),
    (Crosses, "same_rows_by_send_and_recv"),
    (NeverGetsThere, "timeouts_lose_nothing"),
    (InventsARow, "same_stream_in_every_mode"),
    (BringsARowTwice, "same_stream_in_every_mode"),
    (HandsOutViews, "results_never_change"),
    (HandsOutViews, "results_are_writable"),
    (PopsTheMask, "arguments_are_not_modified"),
    (HoldsActions, "actions_are_copied_on_send"),
    (IgnoresIndices, "attributes_reach_the_environment"),
    (LeavesAFile, "close_releases_everything"),
    (LeavesAProcess, "close_releases_everything"),
    (LeavesAFile, "failed_start_releases_everything"),
    (ClosesOnce, "close_is_idempotent"),
    (IgnoresStartIndex, "seeds_are_per_sub_environment"),
    (AnyOrder, "calls_out_of_order_raise"),
    (StepsOn, "stepping_an_ended_row_raises"),
    (LosesTheOthers, "errors_are_isolated"),
]


@pytest.mark.parametrize(("backend", "law"), BROKEN_BACKENDS)
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_a_backend_that_breaks_a_law_is_caught_by_it(backend, law, monkeypatch):
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *args: started.append(popen(*args)) or started[-1]
    )
    for patient, bound in ((leftovers.assert_nothing_left, 0.1), (backend_laws._wait, 200)):
        # Nobody has to wait for what will not come.
        monkeypatch.setattr(patient, "__defaults__", (bound,))
    try:
        with pytest.raises(AssertionError):
            getattr(backend_laws, law)(on(backend) if issubclass(backend, Runner) else backend)
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("kind", "said"),
    [(InventsARow, r"rows \[0\] not asked for"), (BringsARowTwice, r".*rows \[0\] brought twice")],
)
def test_a_runner_that_breaks_its_protocol_is_named_with_the_row(kind, said):
    env = on(kind)([toy()] * 3, autoreset="disabled")
    with pytest.raises(
        BackendError, match=f"{kind.__name__}: expected each of the rows .* once, got {said}"
    ):
        env.reset(seed=1)
        env.reset(options={"reset_mask": np.array([False, True, True])})
    with pytest.raises(BackendError, match=kind.__name__):
        env.step([0] * 3)
    env.close()


def test_every_law_is_broken_above():
    assert {law.__name__ for law in WRAPPER_LAWS} == {law for _, law in BROKEN_WRAPPERS}
    assert {law.__name__ for law in BACKEND_LAWS} == {law for _, law in BROKEN_BACKENDS}


# -- the tools -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPACES)
def test_a_toy_depends_on_its_seed_and_its_actions_alone(name):
    def play(seed, action_seed):
        env = toy(observations=name, actions=name)()
        env.action_space.seed(action_seed)
        told = [deepcopy(env.reset(seed=seed))]
        for _ in range(12):
            result = deepcopy(env.step(env.action_space.sample()))
            told.append(result)
            if result[2] or result[3]:
                told.append(deepcopy(env.reset()))
        return told

    assert_same(play(1, 1), play(1, 1))
    assert digest(play(1, 1)) != digest(play(2, 1))
    assert digest(play(1, 1)) != digest(play(1, 2))


def test_toys_end_by_termination_and_by_truncation_and_overwrite_what_they_gave():
    env = toy()()
    first, _ = env.reset(seed=1)
    ends = [env.step(0)[2:4] if k % 5 else env.reset()[:0] for k in range(1, 400)]
    assert env.step(0)[0] is first
    assert {(True, False), (False, True)} <= set(ends)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (np.zeros(2), np.zeros(2, np.float32)),
        (np.zeros(2), np.zeros((2, 1))),
        (np.array([0.0]), np.array([-0.0])),
        (1, 1.0),
        (1.0, np.float64(1.0)),
        (0.0, -0.0),
        ({"a": 1}, {"a": 1, "b": 1}),
        ((1, 2), [1, 2]),
        ((1, 2), (1, 2, 3)),
        (np.array([None, "a"]), np.array([None, "b"])),
        (None, 0),
        ("a", "b"),
    ],
)
def test_assert_same_tells_apart(expected, got):
    with pytest.raises(AssertionError):
        assert_same(expected, got)
    assert_same(deepcopy(expected), expected)


def test_assert_same_takes_nan_for_itself():
    assert_same({"a": (np.nan, np.array([np.nan]))}, {"a": (np.nan, np.array([np.nan]))})
