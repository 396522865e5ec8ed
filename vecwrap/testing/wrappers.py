"""The laws that every wrapper must satisfy: functions of a wrapper and something to wrap."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field, replace
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium
import numpy as np

from vecwrap.backends.dummy import Dummy
from vecwrap.env.arrivals import Arrival
from vecwrap.env.random_actions import RandomActions
from vecwrap.env.runner import Context
from vecwrap.env.vec_env import VecEnv
from vecwrap.pipeline.around_vector import put_around
from vecwrap.pipeline.elements import read_wrappers
from vecwrap.pipeline.source_map import SourceRef
from vecwrap.pipeline.wrappers import plan_wrappers, refuse_wrong_order
from vecwrap.rows.compare import assert_same, rows_of
from vecwrap.rows.gymnasium_form import conform_actions
from vecwrap.rows.step_result import Autoreset
from vecwrap.sources.source_factories import Factory, SubEnvFactory
from vecwrap.testing.drive import (
    EpisodeRecorder,
    MakeBackend,
    SideBySide,
    StepRecorder,
    arrivals,
    assert_in_space,
    assert_kept,
    drive,
    drive_rows,
    freeze,
    on,
    on_dummy,
    play,
)
from vecwrap.testing.toys import toy


@dataclass(frozen=True)
class Subject:
    """A wrapper, and what to test it on.

    Attributes:
        wrap: takes a vector environment and returns the wrapped one.
        factory: makes one sub-environment; a toy with Box observations if not given.
        steps: how long to test.
        ignore: dotted names of infos that depend on a clock.
        changes: raw fields of StepResult that the wrapper changes on purpose.
        independent: whether a row depends on its own history alone; False for a wrapper with
            statistics over all rows.
        backend: what it is put over: ``on`` a runner's class, or ``on_engines``.
        modes: the autoreset modes to test; engines have no episodic mode.

    >>> from vecwrap.wrappers.framestack import FrameStack
    >>> subject = Subject(lambda env: FrameStack(env, 3), steps=20)
    >>> env, below = subject.build(2, Autoreset.SAME_STEP)
    >>> observations, infos = env.reset(seed=1)
    >>> observations.shape
    (2, 3, 3)
    >>> env.close()
    >>> correct_in_every_autoreset_mode(subject)  # one of WRAPPER_LAWS
    """

    wrap: Callable[[VecEnv], VecEnv]
    factory: Callable[[], gymnasium.Env[Any, Any]] = field(default_factory=toy)
    steps: int = 200
    ignore: Collection[str] = ("episode.t",)
    changes: Collection[str] = ()
    independent: bool = True
    backend: MakeBackend = on_dummy
    modes: Sequence[Autoreset] = tuple(Autoreset)

    def build(
        self, num_envs: int, mode: Autoreset, *, keep: bool = False, **options: Any
    ) -> tuple[VecEnv, StepRecorder]:
        """Return the wrapper around a witness around the backend, and the witness.

        Args:
            num_envs: how many sub-environments.
            mode: the autoreset mode.
            keep: whether the witness keeps what it passes up, with copies.
            **options: of the backend.
        """
        below = StepRecorder(
            self.backend([self.factory] * num_envs, autoreset=mode, **options), keep=keep
        )
        return self.wrap(below), below


def check_wrapper(
    wrap: Callable[[VecEnv], VecEnv] | str,
    *,
    laws: Iterable[Callable[[Subject], None]] | None = None,
    **settings: Any,
) -> None:
    """Raise AssertionError, with an explanation, if a wrapper breaks one of the laws.

    A wrapper that is a ``gymnasium.Wrapper`` is checked inside its factory: by its name in
    pipelines, or as ``check_wrapper(lambda env: env, factory=SubEnvFactory(make, (MyWrapper,)))``.

    Args:
        wrap: takes a vector environment and returns the wrapped one: a wrapper's class, or a
            partial of it. Or a wrapper as written in pipelines, ``"framestack:4"``, or several
            separated by bars.
        laws: which; None means all of ``WRAPPER_LAWS``.
        **settings: what it is tested on: ``factory``, ``steps`` and the other fields of
            ``Subject``.

    Raises:
        AssertionError: a law is broken; the message gives the sub-environment, the expected result,
            and the actual one.

    >>> import vecwrap
    >>> class Identity(vecwrap.VecEnvWrapper):
    ...     pass
    >>> check_wrapper(Identity, steps=20)
    >>> check_wrapper("time_limit:9 | framestack:3", steps=20)
    """
    if callable(wrap):
        subject = Subject(wrap, **settings)
    else:
        subject = _by_name(wrap, Subject(lambda env: env, **settings))
    for law in WRAPPER_LAWS if laws is None else laws:
        law(subject)


def _by_name(wrappers: str, subject: Subject) -> Subject:
    """Return a subject with wrappers named as in a pipeline; worker wrappers go to its factory."""
    planned = plan_wrappers(read_wrappers(wrappers, SourceRef(steps=("wrappers",))))
    refuse_wrong_order(planned)
    inner = tuple(wrapper.around_sub_env for wrapper in planned if wrapper.runs_in == "worker")

    def wrap(env: VecEnv) -> VecEnv:
        for wrapper in planned:
            if wrapper.runs_in == "parent":
                env = put_around(wrapper, env)
        return env

    factory = subject.factory
    if inner:
        factory = SubEnvFactory(factory, inner)
    return replace(subject, wrap=wrap, factory=factory)


def _episodes(
    subject: Subject, num_envs: int, mode: Autoreset, seed: int, start: int = 0
) -> list[Any]:
    """The steps and resets of each sub-environment, in a form in which modes do not differ."""
    with EpisodeRecorder(
        *subject.build(num_envs, mode, start_index=start), subject.ignore
    ) as diary:
        deque(arrivals(diary, subject.steps, seed, start), maxlen=0)
    return diary.until_the_last_step()


def correct_in_every_autoreset_mode(subject: Subject) -> None:
    """Episodes are identical in all autoreset modes, with masked resets mixed in."""
    if not subject.independent:
        return
    expected = _episodes(subject, 3, Autoreset.SAME_STEP, seed=4)
    for mode in subject.modes:
        for i, pair in enumerate(zip(expected, _episodes(subject, 3, mode, seed=4), strict=True)):
            assert_same(*pair, f"{mode} against same_step, sub-environment {i}")


def batch_size_invariance(subject: Subject) -> None:
    """A sub-environment gives the same results alone as in a vector.

    A row depends only on the history of its own sub-environment.
    """
    if not subject.independent:
        return
    for number, mode in enumerate(subject.modes):
        i = number % 3
        (alone,) = _episodes(subject, 1, mode, seed=6, start=i)
        assert_same(
            _episodes(subject, 3, mode, seed=6)[i], alone, f"{mode}, sub-environment {i} alone"
        )


def arrival_order_invariance(subject: Subject) -> None:
    """Under ``recv`` each sub-environment gives the same results, in whatever order rows arrive."""
    if not subject.independent:
        return
    # The rows of worker processes arrive in any order; those of dummy only if they are shuffled.
    if subject.backend is on_dummy:
        shuffled = replace(subject, backend=on(_ShuffledArrivals))
    else:
        shuffled = subject
    for mode in subject.modes:
        env, _ = subject.build(4, mode)
        with env:
            expected = drive_rows(env, subject.steps // 2, seed=8, ignore=subject.ignore)
        env, _ = shuffled.build(4, mode, batch_size=2)
        with env:
            got = drive_rows(env, subject.steps // 2, seed=8, ignore=subject.ignore)
        for i, pair in enumerate(zip(expected, got, strict=True)):
            assert_same(*pair, f"{mode}, sub-environment {i} in another order of arrival")


class _ShuffledArrivals(Dummy):
    """Its rows arrive in a random order."""

    def begin(self, context: Context, factories: Sequence[Factory]) -> Sequence[Arrival]:
        self._order = np.random.default_rng(9)
        return super().begin(context, factories)

    def poll(self, until: float, *, return_early: bool) -> Sequence[Arrival]:
        self.local.shuffle(self._order)
        return super().poll(until, return_early=return_early)


def backend_invariance(subject: Subject, *, num_envs: int = 3) -> None:
    """Over its backend the chain returns the same as over dummy, in every mode and with ``recv``.

    The results are the same bit for bit.

    Steps and masked resets of all sub-environments or of some: every result is compared, raw fields
    and frames included. Then with a ``batch_size``, with which the order of arrival decides which
    rows come together: each sub-environment's results are compared, except for wrappers whose rows
    depend on each other.
    """
    batch_size = None
    if subject.independent:
        batch_size = num_envs - 1
    for mode in subject.modes:
        with ExitStack() as stack:
            factories = [subject.factory] * num_envs
            dummy = stack.enter_context(on_dummy(factories, autoreset=mode))
            other = stack.enter_context(
                subject.backend(factories, autoreset=mode, batch_size=batch_size)
            )
            both = SideBySide(subject.wrap, dummy, other, ignore=subject.ignore)
            for env in both.envs:
                stack.enter_context(env)
            drive(both, subject.steps, seed=12, unrest=5.0, options=False, parts=0.5)
            if both.envs[0].render_mode == "rgb_array":
                both("render")
            if subject.independent:
                expected, got = (drive_rows(env, subject.steps // 4, seed=14) for env in both.envs)
                for i, pair in enumerate(zip(expected, got, strict=True)):
                    assert_same(*pair, f"{mode}, sub-environment {i} with batch_size={batch_size}")


def arrays_are_not_modified(subject: Subject) -> None:
    """Arrays from below and actions from above are not changed; they are read-only in this test."""
    for mode in subject.modes:
        env, below = subject.build(3, mode, keep=True)
        given: list[tuple[Any, Any]] = []

        draw = RandomActions(env, seed=2)

        def act(
            env: VecEnv = env, draw: RandomActions = draw, given: list[tuple[Any, Any]] = given
        ) -> Any:
            actions = conform_actions(env.single_action_space, draw(), env.num_envs)
            freeze(actions)
            given.append((deepcopy(actions), actions))
            return actions

        with env:
            env.reset(seed=2)
            for _ in play(env, subject.steps // 2, act):
                assert_same(*given[-1], "actions from above")
        for k, (arrays, copies) in enumerate(below.history):
            assert_same(
                copies, arrays, f"{mode}: the inner result of call {k}, inspected at the end"
            )


def results_never_change(subject: Subject) -> None:
    """Returned results never change."""
    for mode in subject.modes:
        env, _ = subject.build(3, mode)
        with env:
            assert_kept(env, subject.steps, str(mode))


def raw_fields_are_unchanged(subject: Subject) -> None:
    """Raw rewards, raw flags and row indices are the same above the wrapper as below it."""
    fields = {"env_ids", "first", "acted", "raw_rewards", "raw_dones", "raw_first", "frames"} - set(
        subject.changes
    )
    for mode in subject.modes:
        env, below = subject.build(3, mode, keep=True)
        with StepRecorder(env, keep=True) as above:
            deque(arrivals(above, subject.steps // 2, seed=5), maxlen=0)
        for (came, _), (passed, _) in zip(below.history, above.history, strict=True):
            for name in sorted(fields):
                assert_same(came[name], passed[name], f"StepResult.{name} above the wrapper")


def observations_are_in_the_space(subject: Subject) -> None:
    """Observations, final ones too, are in the space; rewards and flags have Gymnasium's types."""
    for mode in subject.modes:
        env, _ = subject.build(3, mode)
        with env:
            batched = gymnasium.vector.utils.batch_space(env.single_observation_space, 3)
            got = env.observation_space
            assert got == batched, f"observation_space: expected {batched}, got {got}"
            assert_in_space(env, subject.steps // 2, str(mode))


def wrapped_env_is_unchanged(subject: Subject) -> None:
    """Spaces and metadata of the wrapped environment are not changed by wrapping or by use."""
    names = (
        "single_observation_space",
        "observation_space",
        "single_action_space",
        "action_space",
        "metadata",
    )
    inner = subject.backend([subject.factory] * 2)
    before = {name: deepcopy(getattr(inner, name)) for name in names}
    sub_env_spaces = deepcopy(inner.get_attr("observation_space"))
    with subject.wrap(inner) as env:
        env.reset(seed=1)
        policy = RandomActions(env, seed=1)
        for _ in range(20):
            env.step(policy())
        for name, expected in before.items():
            assert getattr(inner, name) == expected, f"{name} of what it wraps: expected {expected}"
        assert inner.get_attr("observation_space") == sub_env_spaces, (
            "observation_space of the sub-environments"
        )
        assert env.metadata["autoreset_mode"] is inner.metadata["autoreset_mode"], (
            "metadata['autoreset_mode']"
        )
        assert env.num_envs == 2, f"num_envs: expected 2, got {env.num_envs}"


def attributes_are_forwarded(subject: Subject) -> None:
    """Attributes, calls and partial batches reach sub-environments; ``close`` closes everything.

    ``close`` may be repeated.
    """
    inner = subject.backend([subject.factory] * 3)
    env = subject.wrap(inner)
    env.reset(seed=1)
    env.set_attr("something_new", [1, 2, 3])
    assert env.get_attr("something_new", indices=[2, 0]) == (3, 1), (
        "set_attr and get_attr through the wrapper"
    )
    assert env.call("get_wrapper_attr", "something_new", indices=1) == (2,), (
        "call through the wrapper"
    )
    assert env.unwrapped is inner, f"unwrapped: expected the backend, got {env.unwrapped!r}"
    assert env.chain[-1] is inner, f"wrappers: expected the backend last, got {env.chain}"
    env.send(RandomActions(env, seed=1)([1]), env_ids=[1])
    assert env.recv()[4]["env_id"].tolist() == [1], "recv through the wrapper"
    env.close()
    env.close()
    assert env.closed, "closed: expected True after close"
    assert inner.closed, "close: expected what it wraps to be closed too"


def resumes_after_load(subject: Subject) -> None:
    """A fresh chain that loads a state saved during episodes continues exactly like the original.

    If the sub-environments cannot save their state, both continue with a reset.
    """
    for mode in subject.modes:
        with TemporaryDirectory() as folder, ExitStack() as stack:
            saved, loaded = (stack.enter_context(subject.build(3, mode)[0]) for _ in range(2))
            saved.reset(seed=14)
            policy = RandomActions(saved, seed=14)
            _resume(saved, policy, subject.steps // 2, subject.ignore)
            saved.save(f"{folder}/state.npz")
            loaded.load(f"{folder}/state.npz")
            if saved.state_dict()["sub_envs"] is None:
                saved.reset(seed=15)
                loaded.reset(seed=15)
            expected, got = (
                _resume(env, policy.continued(env), subject.steps // 2, subject.ignore)
                for env in (saved, loaded)
            )
        for k, pair in enumerate(zip(expected, got, strict=True)):
            assert_same(
                *pair,
                (
                    f"{mode}, result {k} after a load (load_wrapper_state loads what "
                    "wrapper_state returns)"
                ),
            )


def _resume(env: VecEnv, policy: RandomActions, steps: int, ignore: Collection[str]) -> list[Any]:
    return [
        rows_of(env.single_observation_space, result, ignore) for result in play(env, steps, policy)
    ]


WRAPPER_LAWS: tuple[Callable[[Subject], None], ...] = (
    correct_in_every_autoreset_mode,
    batch_size_invariance,
    arrival_order_invariance,
    backend_invariance,
    arrays_are_not_modified,
    results_never_change,
    raw_fields_are_unchanged,
    observations_are_in_the_space,
    wrapped_env_is_unchanged,
    attributes_are_forwarded,
    resumes_after_load,
)
"""Every law; each takes a ``Subject`` and can be a test case of its own."""
