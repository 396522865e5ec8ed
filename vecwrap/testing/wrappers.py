"""The laws that every layer must satisfy, as functions that take a layer and something to wrap."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field, replace
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium
import numpy as np

from vecwrap.backends.dummy import DummyBackend
from vecwrap.contract import Autoreset, StepResult
from vecwrap.layers import plan_layers, refuse_wrong_order
from vecwrap.places import Source
from vecwrap.sub_env import SubEnvFactory
from vecwrap.testing.backends import MakeBackend
from vecwrap.testing.compare import assert_same, rows_of
from vecwrap.testing.drive import Policy, drive, drive_rows
from vecwrap.testing.episodes import Below, _freeze, episodes
from vecwrap.testing.side_by_side import SideBySide, drive_parts
from vecwrap.testing.toys import toy
from vecwrap.vec_env import VecEnv
from vecwrap.words import read_layers
from vecwrap.wrapper import VecEnvWrapper

__all__ = ["WRAPPER_LAWS", "Subject", "check_wrapper"]


@dataclass(frozen=True)
class Subject:
    """A layer, and what to test it on.

    Attributes:
        wrap: takes a vector environment and returns the wrapped one.
        factory: makes one sub-environment; a toy with Box observations if not given.
        steps: how long to test.
        ignore: dotted names of infos that depend on a clock.
        changes: raw fields of StepResult that the layer changes on purpose.
        independent: whether a row depends on its own history alone; False for a layer with statistics over all rows.
        backend: what it is put over: a backend's class, or a partial of it.

    >>> from vecwrap.wrappers.framestack import FrameStack
    >>> subject = Subject(lambda env: FrameStack(env, 3), steps=20)
    >>> env, below = subject.build(2, Autoreset.SAME_STEP)
    >>> observations, infos = env.reset(seed=1)
    >>> observations.shape
    (2, 3, 3)
    >>> env.close()
    >>> right_in_every_mode(subject)  # one of WRAPPER_LAWS
    """

    wrap: Callable[[VecEnv], VecEnv]
    factory: Callable[[], gymnasium.Env[Any, Any]] = field(default_factory=toy)
    steps: int = 200
    ignore: Collection[str] = ("episode.t",)
    changes: Collection[str] = ()
    independent: bool = True
    backend: MakeBackend = DummyBackend

    def build(self, num_envs: int, mode: Autoreset, *, keep: bool = False, **options: Any) -> tuple[VecEnv, Below]:
        """Return the layer around a probe around the backend, and the probe.

        Args:
            num_envs: how many sub-environments.
            mode: the autoreset mode.
            keep: whether the probe keeps what it passes up, with copies.
            **options: of the backend.
        """
        below = Below(self.backend([self.factory] * num_envs, autoreset=mode, **options), keep=keep)
        return self.wrap(below), below


def check_wrapper(
    wrap: Callable[[VecEnv], VecEnv] | str,
    *,
    factory: Callable[[], gymnasium.Env[Any, Any]] | None = None,
    steps: int = 200,
    ignore: Collection[str] = ("episode.t",),
    changes: Collection[str] = (),
    independent: bool = True,
    backend: MakeBackend = DummyBackend,
    laws: Iterable[Callable[[Subject], None]] | None = None,
) -> None:
    """Raise AssertionError, with an explanation, if a layer breaks one of the laws.

    A layer that is a ``gymnasium.Wrapper`` is checked inside its factory: by its name in pipelines, or as
    ``check_wrapper(lambda env: env, factory=SubEnvFactory(make, (MyLayer,)))``.

    Args:
        wrap: takes a vector environment and returns the wrapped one: a layer's class, or a partial of it. Or a layer as
            written in pipelines, ``"framestack:4"``, or several separated by bars.
        factory: makes one sub-environment that the layer can wrap; a toy with Box observations if not given.
        steps: how long to test.
        ignore: dotted names of infos that depend on a clock.
        changes: raw fields of StepResult that the layer changes on purpose.
        independent: whether a row depends on its own history alone; False for a layer with statistics over all rows.
        backend: what it is put over: a backend's class, or a partial of it; every law is tested over it.
        laws: which; None means all of ``WRAPPER_LAWS``.

    Raises:
        AssertionError: a law is broken; the message gives the sub-environment, the expected result, and the actual one.

    >>> class Identity(VecEnvWrapper):
    ...     pass
    >>> check_wrapper(Identity, steps=20)
    >>> check_wrapper("time_limit:9 | framestack:3", steps=20)
    """
    factory = factory or toy()
    if isinstance(wrap, str):
        wrap, factory = _by_name(wrap, factory)
    subject = Subject(wrap, factory, steps, ignore, changes, independent, backend)
    for law in WRAPPER_LAWS if laws is None else laws:
        law(subject)


def _by_name(
    layers: str, factory: Callable[[], gymnasium.Env[Any, Any]]
) -> tuple[Callable[[VecEnv], VecEnv], Callable[[], gymnasium.Env[Any, Any]]]:
    """Resolve layers named as in a pipeline: those of the vector, and a factory with those inside it."""
    _, planned = plan_layers(read_layers(layers, Source(steps=("layers",))))
    refuse_wrong_order(planned)
    inner = tuple(layer.around_sub_env for layer in planned if layer.runs_in == "worker")

    def wrap(env: VecEnv) -> VecEnv:
        for layer in planned:
            env = layer.around_vector(env) if layer.runs_in == "parent" else env
        return env

    return wrap, SubEnvFactory(factory, inner) if inner else factory


def right_in_every_mode(subject: Subject) -> None:
    """Episodes are identical in all four autoreset modes, with masked resets mixed in."""
    if not subject.independent:
        return
    told = {}
    for mode in Autoreset:
        env, below = subject.build(3, mode)
        with env:
            told[mode] = episodes(env, below, subject.steps, seed=4, ignore=subject.ignore)
    reference = told[Autoreset.SAME_STEP]
    for mode, rows in told.items():
        for i, (expected, got) in enumerate(zip(reference, rows, strict=True)):
            for k, pair in enumerate(zip(expected, got, strict=True)):
                assert_same(*pair, f"{mode} against same_step, sub-environment {i}, event {k}")


def alone_as_together(subject: Subject) -> None:
    """A sub-environment gives the same results alone as in a vector: its rows depend only on its own history."""
    if not subject.independent:
        return
    for mode in Autoreset:
        env, below = subject.build(3, mode)
        with env:
            together = episodes(env, below, subject.steps, seed=6, ignore=subject.ignore)
        for i, expected in enumerate(together):
            env, below = subject.build(1, mode, start_index=i)
            with env:
                (alone,) = episodes(env, below, subject.steps, seed=6, start=i, ignore=subject.ignore)
            for k, pair in enumerate(zip(expected, alone, strict=True)):
                assert_same(*pair, f"{mode}, sub-environment {i} alone, event {k}")


def in_any_order_of_arrival(subject: Subject) -> None:
    """Under ``recv`` each sub-environment gives the same results, in whatever order rows arrive."""
    if not subject.independent:
        return
    # The rows of worker processes arrive in any order; those of dummy only if they are shuffled.
    shuffled = replace(subject, backend=_AnyOrder) if subject.backend is DummyBackend else subject
    for mode in Autoreset:
        env, _ = subject.build(4, mode)
        with env:
            expected = drive_rows(env, subject.steps // 2, seed=8, ignore=subject.ignore)
        env, _ = shuffled.build(4, mode, batch_size=2)
        with env:
            got = drive_rows(env, subject.steps // 2, seed=8, ignore=subject.ignore)
        for i, pair in enumerate(zip(expected, got, strict=True)):
            assert_same(*pair, f"{mode}, sub-environment {i} in another order of arrival")


class _AnyOrder(DummyBackend):
    """Its rows arrive in a random order."""

    def _start(self, factories: Any) -> Any:
        self._order = np.random.default_rng(9)
        return super()._start(factories)

    def _poll(self, deadline: float | None) -> None:
        self.local.shuffle(self._order)
        super()._poll(deadline)


def the_same_over_every_backend(subject: Subject, *, num_envs: int = 3) -> None:
    """Over its backend the chain returns the same as over dummy, bit for bit: in every mode, and with ``recv``.

    Steps and masked resets, then some sub-environments at a time by ``send`` and ``recv``: every result is compared,
    raw fields and frames included. Then with a ``batch_size``, with which the order of arrival decides which
    rows come together: each sub-environment's results are compared, except for layers whose rows depend on each other.
    """
    batch_size = num_envs - 1 if subject.independent else None
    for mode in Autoreset:
        with ExitStack() as stack:
            factories = [subject.factory] * num_envs
            dummy = stack.enter_context(DummyBackend(factories, autoreset=mode))
            other = stack.enter_context(subject.backend(factories, autoreset=mode, batch_size=batch_size))
            both = SideBySide(subject.wrap, dummy, other, ignore=subject.ignore)
            for env in both.envs:
                stack.enter_context(env)
            drive(both, subject.steps // 2, seed=12, unrest=5.0, options=False)
            drive_parts(both, subject.steps // 2, seed=13)
            if both.envs[0].render_mode == "rgb_array":
                both("render")
            if subject.independent:
                expected, got = (drive_rows(env, subject.steps // 4, seed=14) for env in both.envs)
                for i, pair in enumerate(zip(expected, got, strict=True)):
                    assert_same(*pair, f"{mode}, sub-environment {i} with batch_size={batch_size}")


def arrays_are_never_written_to(subject: Subject) -> None:
    """Arrays from below and actions from above are not changed; they are read-only in this test."""
    for mode in Autoreset:
        env, below = subject.build(3, mode, keep=True)
        with env:
            env.reset(seed=2)
            env.action_space.seed(2)
            for _ in range(subject.steps // 2):
                actions = env.action_space.sample()
                _freeze(actions)
                before = deepcopy(actions)
                _, _, terminations, truncations, _ = env.step(actions)
                assert_same(before, actions, "actions from above")
                ended = terminations | truncations
                if ended.any() and mode in (Autoreset.DISABLED, Autoreset.EPISODIC):
                    env.reset(options={"reset_mask": ended})
        for k, (arrays, copies) in enumerate(below.history):
            assert_same(copies, arrays, f"{mode}: what came from below in call {k}, looked at in the end")


def results_are_yours_to_keep(subject: Subject) -> None:
    """Returned results never change."""
    for mode in Autoreset:
        env, _ = subject.build(3, mode)
        with env:
            kept: list[Any] = [env.reset(seed=3)]
            copies = deepcopy(kept)
            policy = Policy(env, seed=3)
            for _ in range(subject.steps):
                result: Any = env.step(policy())
                kept.append(result)
                copies.append(deepcopy(result))
                ended = result[2] | result[3]
                if ended.any() and mode in (Autoreset.DISABLED, Autoreset.EPISODIC):
                    result = env.reset(options={"reset_mask": ended})
                    kept.append(result)
                    copies.append(deepcopy(result))
        for k, pair in enumerate(zip(copies, kept, strict=True)):
            assert_same(*pair, f"{mode}: what call {k} gave, looked at after close")


def raw_fields_are_left_alone(subject: Subject) -> None:
    """The environment's own rewards and flags, and the rows' indices, are the same above the layer as below it."""
    fields = {"env_ids", "first", "acted", "raw_rewards", "raw_dones", "raw_first", "frames"} - set(subject.changes)
    for mode in Autoreset:
        env, below = subject.build(3, mode)
        above = _Above(env, below, sorted(fields))
        with above:
            drive_rows(above, subject.steps // 2, seed=5)


class _Above(VecEnvWrapper):
    """A layer above the one under test, which compares with what came from below."""

    def __init__(self, env: VecEnv, below: Below, fields: list[str]) -> None:
        super().__init__(env)
        self._below = below
        self._fields = fields

    def on_step(self, step: StepResult) -> None:
        for name in self._fields:
            assert_same(getattr(self._below.handed, name), getattr(step, name), f"StepResult.{name} above the layer")


def observations_lie_in_the_space(subject: Subject) -> None:
    """Observations and final observations are in the declared space; rewards and flags have Gymnasium's types."""
    for mode in Autoreset:
        env, _ = subject.build(3, mode)
        with env:
            single = env.single_observation_space
            batched = gymnasium.vector.utils.batch_space(single, 3)
            assert env.observation_space == batched, (
                f"observation_space: expected {batched}, got {env.observation_space}"
            )
            policy = Policy(env, seed=7)
            observations, _ = env.reset(seed=7)
            assert observations in batched, f"{mode}, reset: expected an element of {batched}, got {observations!r}"
            for k in range(subject.steps // 2):
                result = env.step(policy())
                assert result[0] in batched, f"{mode}, step {k}: expected an element of {batched}, got {result[0]!r}"
                forms = [(array.dtype, array.shape) for array in result[1:4]]
                expected = [(np.dtype(kind), (3,)) for kind in (np.float64, np.bool_, np.bool_)]
                assert forms == expected, f"{mode}, step {k}: rewards and flags: expected {expected}, got {forms}"
                for i, row in rows_of(single, result):
                    assert row["observation"] in single, f"{mode}, step {k}, row {i}: expected an element of {single}"
                for i in np.flatnonzero(result[4].get("_final_obs", ())).tolist():
                    final = result[4]["final_obs"][i]
                    assert final in single, (
                        f"{mode}, step {k}, final_obs[{i}]: expected an element of {single}, got {final!r}"
                    )
                ended = result[2] | result[3]
                if ended.any() and mode in (Autoreset.DISABLED, Autoreset.EPISODIC):
                    env.reset(options={"reset_mask": ended})


def what_it_wraps_stays_as_it_was(subject: Subject) -> None:
    """Spaces and metadata of the wrapped environment are not changed by wrapping or by use."""
    names = ("single_observation_space", "observation_space", "single_action_space", "action_space", "metadata")
    inner = subject.backend([subject.factory] * 2)
    before = {name: deepcopy(getattr(inner, name)) for name in names}
    sub_env_spaces = deepcopy(inner.get_attr("observation_space"))
    with subject.wrap(inner) as env:
        env.reset(seed=1)
        policy = Policy(env, seed=1)
        for _ in range(20):
            env.step(policy())
        for name, expected in before.items():
            assert getattr(inner, name) == expected, f"{name} of what it wraps: expected {expected}"
        assert inner.get_attr("observation_space") == sub_env_spaces, "observation_space of the sub-environments"
        assert env.metadata["autoreset_mode"] is inner.metadata["autoreset_mode"], "metadata['autoreset_mode']"
        assert env.num_envs == 2, f"num_envs: expected 2, got {env.num_envs}"


def everything_else_is_forwarded(subject: Subject) -> None:
    """Attributes, calls and partial batches reach the sub-environments; ``close`` closes all, and may be repeated."""
    inner = subject.backend([subject.factory] * 3)
    env = subject.wrap(inner)
    env.reset(seed=1)
    env.set_attr("something_new", [1, 2, 3])
    assert env.get_attr("something_new", indices=[2, 0]) == (3, 1), "set_attr and get_attr through the layer"
    assert env.call("get_wrapper_attr", "something_new", indices=1) == (2,), "call through the layer"
    assert env.unwrapped is inner, f"unwrapped: expected the backend, got {env.unwrapped!r}"
    assert env.layers[-1] is inner, f"layers: expected the backend last, got {env.layers}"
    env.send(Policy(env, seed=1)([1]), env_ids=[1])
    assert env.recv()[4]["env_id"].tolist() == [1], "recv through the layer"
    env.close()
    env.close()
    assert env.closed, "closed: expected True after close"
    assert inner.closed, "close: expected what it wraps to be closed too"


def goes_on_after_a_load(subject: Subject) -> None:
    """A fresh chain that loads a state saved during episodes continues exactly like the original.

    If the sub-environments cannot save their state, both continue with a reset.
    """
    for mode in Autoreset:
        with TemporaryDirectory() as folder, ExitStack() as stack:
            saved, loaded = (stack.enter_context(subject.build(3, mode)[0]) for _ in range(2))
            saved.reset(seed=14)
            policy = Policy(saved, seed=14)
            _go_on(saved, policy, subject.steps // 2, subject.ignore)
            saved.save(f"{folder}/state.npz")
            loaded.load(f"{folder}/state.npz")
            if saved.state_dict()["sub_envs"] is None:
                saved.reset(seed=15)
                loaded.reset(seed=15)
            expected, got = (
                _go_on(env, deepcopy(policy), subject.steps // 2, subject.ignore) for env in (saved, loaded)
            )
        for k, pair in enumerate(zip(expected, got, strict=True)):
            assert_same(*pair, f"{mode}, result {k} after a load (what layer_state gives, load_layer_state takes in)")


def _go_on(env: VecEnv, policy: Policy, steps: int, ignore: Collection[str]) -> list[Any]:
    """Step, and reset ended rows if the mode leaves that to the caller; return all rows."""
    came = []
    flags, mode = np.zeros(env.num_envs, dtype=np.bool_), env._root.autoreset
    for _ in range(steps):
        result: Any = env.step(policy())
        came.append(rows_of(env.single_observation_space, result, ignore))
        ended = result[2] | result[3]
        if ended.any() and mode in (Autoreset.DISABLED, Autoreset.EPISODIC):
            observations, infos = env.reset(options={"reset_mask": ended})
            result = (observations, np.zeros(env.num_envs), flags, flags, infos)
            came.append(rows_of(env.single_observation_space, result, ignore))
    return came


WRAPPER_LAWS: tuple[Callable[[Subject], None], ...] = (
    right_in_every_mode,
    alone_as_together,
    in_any_order_of_arrival,
    the_same_over_every_backend,
    arrays_are_never_written_to,
    results_are_yours_to_keep,
    raw_fields_are_left_alone,
    observations_lie_in_the_space,
    what_it_wraps_stays_as_it_was,
    everything_else_is_forwarded,
    goes_on_after_a_load,
)
"""Every law; each takes a ``Subject`` and can be a test case of its own."""
