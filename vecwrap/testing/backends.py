"""The laws that every backend must satisfy, as functions that take its constructor."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector import AutoresetMode

from vecwrap.env.random_actions import RandomActions
from vecwrap.env.runner import Runner
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import ResetNeededError, SubEnvError
from vecwrap.rows.compare import assert_same
from vecwrap.rows.step_result import Autoreset
from vecwrap.testing.drive import (
    Lockstep,
    MakeBackend,
    assert_in_space,
    assert_kept,
    drive,
    drive_rows,
    on,
    on_dummy,
    play,
)
from vecwrap.testing.toys import SPACES, OpenResources, assert_nothing_left, toy

Factories = Sequence[Callable[[], gymnasium.Env[Any, Any]]]


def check_backend(
    backend: type[Runner] | MakeBackend, *, laws: Iterable[Callable[..., None]] | None = None
) -> None:
    """Raise AssertionError, with an explanation, if a backend breaks one of the laws.

    Args:
        backend: a runner's class, or what is called as ``make_backend(factories, **options)``, such
            as ``on(Threads, workers=2)``.
        laws: which; None means all of ``BACKEND_LAWS``.

    Raises:
        AssertionError: a law is broken; the message gives the call, the expected result, and the
            actual one.

    >>> check_backend(on_dummy, laws=[seeds_are_per_sub_environment])
    """
    make_backend: Any = backend
    if isinstance(backend, type) and issubclass(backend, Runner):
        make_backend = on(backend)
    for law in BACKEND_LAWS if laws is None else laws:
        law(make_backend)


@contextmanager
def _beside_dummy(make_backend: MakeBackend, factories: Factories, **options: Any) -> Any:
    """The dummy backend as the reference, and the backend under test, to be called in lockstep."""
    with ExitStack() as stack:
        yield Lockstep(
            *(stack.enter_context(make(factories, **options)) for make in (on_dummy, make_backend))
        )


# -- law 1: the same stream ------------------------------------------------------------------------


def same_stream_in_every_mode(make_backend: MakeBackend, *, steps: int = 100) -> None:
    """In every mode, with masked resets, the stream equals dummy's bit for bit.

    This also holds for ill-behaved environments.
    """
    for mode in Autoreset:
        with _beside_dummy(
            make_backend, [toy(observations="nested", actions="nested")] * 3, autoreset=mode
        ) as both:
            met = drive(both, steps, seed=11)
        assert min(met.values()) >= 5, f"{mode}: the run met too few ends to say anything: {met}"


def every_space_round_trips(make_backend: MakeBackend, *, steps: int = 30) -> None:
    """Spaces of every kind are the environment's own, and the values in them equal dummy's."""
    for name in SPACES:
        factories = [toy(observations=name, actions=name, end=0.1)] * 2
        with _beside_dummy(make_backend, factories, autoreset="same_step") as both:
            for env in both.envs:
                _check_spaces(env, name)
            drive(both, steps, seed=5)
            for env in both.envs[1:]:
                assert_in_space(env, 3, name)


def _check_spaces(env: VecEnv, name: str) -> None:
    space = SPACES[name]()
    batched = gymnasium.vector.utils.batch_space(space, env.num_envs)
    for attribute, expected in {
        "single_observation_space": space,
        "single_action_space": space,
        "observation_space": batched,
        "action_space": batched,
    }.items():
        assert getattr(env, attribute) == expected, f"{attribute}: expected {expected}"
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP, (
        f"metadata: got {env.metadata}"
    )
    assert env.metadata["render_fps"] == 30, (
        f"metadata of the environment are kept: got {env.metadata}"
    )


def same_rows_by_send_and_recv(make_backend: MakeBackend, *, steps: int = 40) -> None:
    """With a ``batch_size``, each sub-environment's stream is dummy's in any order of arrival."""
    for mode in Autoreset:
        options: dict[str, Any] = {"autoreset": mode, "batch_size": 2}
        factories = [toy(observations="mixed", actions="mixed")] * 5
        with on_dummy(factories, **options) as reference:
            expected = drive_rows(reference, steps, seed=3)
        with make_backend(factories, **options) as env:
            got = drive_rows(env, steps, seed=3)
        for i in range(5):
            assert_same(expected[i], got[i], f"{mode}, sub-environment {i}")


def timeouts_lose_nothing(make_backend: MakeBackend) -> None:
    """A wait that times out leaves the call pending; later waits return the same result."""
    with _beside_dummy(make_backend, [toy()] * 3) as both:
        policy = RandomActions(both.envs[0], seed=2)
        both("reset", seed=2)
        for _ in range(30):
            _poll(both, "step", policy())
        _poll(both, "reset", seed=4)
        _poll(both, "call", "state")


def _poll(both: Lockstep, name: str, *args: Any, **kwargs: Any) -> None:
    for env in both.envs:
        getattr(env, f"{name}_async")(*args, **kwargs)
    expected, got = (_wait(getattr(env, f"{name}_wait")) for env in both.envs)
    assert_same(expected, got, f"a {name} that was polled for")


def _wait(wait: Callable[..., Any], polls: int = 60_000) -> Any:
    """Poll; the limit, a minute at least, only catches calls that never finish."""
    for poll in range(polls):
        with suppress(TimeoutError):
            return wait(timeout=0)
        time.sleep(0.001 * (poll > 100))
    raise AssertionError(
        f"{wait.__name__}(timeout=0) has timed out {polls:,} times: it never gets there"
    )


# -- laws 2 and 3: yours to keep, never touched ----------------------------------------------------


def results_never_change(make_backend: MakeBackend, *, steps: int = 100) -> None:
    """Returned results never change, even if the environments overwrite their buffers."""
    for mode in ("same_step", "disabled"):
        with make_backend([toy(observations="mixed", actions="mixed")] * 3, autoreset=mode) as env:
            assert_kept(env, steps, mode)


def results_are_writable(make_backend: MakeBackend) -> None:
    """Writing into returned results does not affect later ones."""
    factories = [toy(observations="box_float32")] * 3
    with _beside_dummy(make_backend, factories, autoreset="disabled") as both:
        reference, env = both.envs
        reference.reset(seed=1)
        env.reset(seed=1)[0][:] = 99
        # Shows rows 1 and 2 again.
        both("reset", options={"reset_mask": np.array([True, False, False])})
        for expected, got in zip(
            *(play(each, 30, RandomActions(each, seed=1)) for each in both.envs), strict=True
        ):
            assert_same(expected, got, "a result after the user wrote into older ones")
            for array in got[:4]:
                array[:] = 0


def arguments_are_not_modified(make_backend: MakeBackend) -> None:
    """Actions, seeds, options and masks passed in are unchanged, whatever the environments do."""
    for name in ("nested", "mixed", "custom", "box_float32"):
        with make_backend([toy(observations="discrete", actions=name)] * 3) as env:
            env.action_space.seed(1)
            mask = np.array([True, False, True])
            arguments: list[Any] = [
                ("reset", {"seed": [1, None, 3], "options": {"level": [1, 2], "map": np.zeros(2)}}),
                ("step", {"actions": env.action_space.sample()}),
                ("step", {"actions": RandomActions(env, seed=1)()}),
                ("reset", {"seed": [1, 2, 3], "options": {"reset_mask": mask, "deep": {"a": [1]}}}),
                ("step", {"actions": RandomActions(env, seed=2)()}),
            ]
            for method, keywords in arguments:
                before = deepcopy(keywords)
                getattr(env, method)(**keywords)
                assert_same(before, keywords, f"the arguments of {method}, action space {name}")


def actions_are_copied_on_send(make_backend: MakeBackend) -> None:
    """Actions are taken as given to ``step_async``, even if they change before ``step_wait``."""
    with on_dummy([toy()] * 3) as reference, make_backend([toy()] * 3) as env:
        for one in (reference, env):
            one.reset(seed=1)
        expected = reference.step(np.array([0, 1, 2]))
        actions = np.array([0, 1, 2])
        env.step_async(actions)
        actions[:] = -2
        assert_same(
            expected, env.step_wait(), "a step whose actions were overwritten after step_async"
        )


# -- law 6: attributes and calls -------------------------------------------------------------------


def attributes_reach_the_environment(make_backend: MakeBackend) -> None:
    """The environment and ``get_attr`` see the values that ``set_attr`` writes.

    ``indices`` selects sub-environments; a list has one value for each.
    """
    with _beside_dummy(make_backend, [toy()] * 3) as both:
        both("reset", seed=1)
        plain = both("step", [0, 0, 0])[1]
        both("reset", seed=1)
        both("set_attr", "bonus", [1000.0, 2000.0, 3000.0])
        assert_same(
            plain + np.array([1000, 2000, 3000]),
            both("step", [0, 0, 0])[1],
            "rewards after set_attr of each",
        )
        both("set_attr", "bonus", 5.0, indices=[2, 0])
        assert_same((5.0, 2000.0, 5.0), both("get_attr", "bonus"), "get_attr after set_attr of two")
        assert_same((2000.0, 5.0), both("get_attr", "bonus", indices=[1, 2]), "get_attr of two")
        both("set_attr", "nobody_knows", {"a": [1]})
        assert_same(({"a": [1]},) * 3, both("get_attr", "nobody_knows"), "a new attribute")
        for env in both.envs:
            env.get_attr("nobody_knows")[0]["a"].append(2)  # returned values belong to the caller
        assert_same(
            ({"a": [1]},) * 3,
            both("get_attr", "nobody_knows"),
            "an attribute that the caller has changed",
        )
        both("call", "greet", "you", loud=True)
        both("call", "greet", "you", indices=1)
        both("call", "greet", "you", indices=[2, 1])
        both("call", "bonus")
        _raises(SubEnvError, both, "call", "no_such_method")
        # The first by index is named.
        _raises(SubEnvError, both, "get_attr", "no_such_attribute", indices=[2, 0])
        _raises(ValueError, both, "set_attr", "bonus", [1.0, 2.0])
        _raises(ValueError, both, "call", "reset")
        both("step", [0, 0, 0])


# -- law 8: nothing left behind --------------------------------------------------------------------


def close_releases_everything(make_backend: MakeBackend) -> None:
    """No process, descriptor or shared memory outlives ``close``.

    ``close`` is called after use, during a call, before any use, and after an error.
    """

    def step(env: VecEnv) -> None:
        env.reset(seed=1)
        env.step([0] * env.num_envs)

    def leave_a_call(env: VecEnv) -> None:
        env.reset(seed=1)
        env.step_async([0] * env.num_envs)

    def fail(env: VecEnv) -> None:
        env.reset(seed=1)
        env.set_attr("raise_in", "step", indices=1)
        _raises(SubEnvError, env.step, [0] * env.num_envs)

    make_backend(
        [toy()] * 3
    ).close()  # resources opened once by the first use (an import, a helper) are not leaks
    for use in (step, leave_a_call, fail, lambda env: None):
        for terminate in (False, True):
            before = OpenResources.now()
            env = make_backend([toy(observations="nested")] * 3)
            during = OpenResources.now()
            use(env)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Calling `close` while waiting")
                env.close(terminate=terminate)
            del env
            assert_nothing_left(before, during)


def failed_start_releases_everything(make_backend: MakeBackend) -> None:
    """An environment that cannot be made raises an error that names it, and the rest are closed."""
    make_backend([toy()] * 3).close()
    before = OpenResources.now()
    try:
        make_backend([toy(), toy(), toy(observations="no such space")])
    except SubEnvError as error:
        assert (error.index, error.during) == (2, "make"), (
            f"expected sub-environment 2, make; got {error}"
        )
        assert "no such space" in str(error), f"expected the factory's own message, got {error}"
    else:
        raise AssertionError("expected SubEnvError of a factory that raises, got an environment")
    assert_nothing_left(before, before)


def close_is_idempotent(make_backend: MakeBackend) -> None:
    """``close`` may be repeated; other calls then raise Gymnasium's ClosedEnvironmentError."""
    env = make_backend([toy()] * 2)
    env.reset(seed=1)
    env.close()
    env.close()
    env.close(terminate=True)
    calls: list[tuple[Any, ...]] = [
        (env.reset,),
        (env.step, [0, 0]),
        (env.step_async, [0, 0]),
        (env.step_wait,),
        (env.reset_wait,),
        (env.recv,),
        (env.send, [0, 0]),
        (env.call, "state"),
        (env.get_attr, "bonus"),
        (env.set_attr, "bonus", 1.0),
    ]
    for function, *arguments in calls:
        _raises(ClosedEnvironmentError, function, *arguments)


# -- law 9: seeds ----------------------------------------------------------------------------------


def seeds_are_per_sub_environment(make_backend: MakeBackend) -> None:
    """Sub-environment i gets ``seed + start_index + i``, or its own seed of a list.

    The seed given to ``build`` serves one reset.
    """
    masks = np.array([False, True, False]), np.array([True, False, True])
    with make_backend([toy()] * 3, start_index=10, seed=100) as env:
        first = env.reset()[0]
        _check_seeds(env, [110, 111, 112], "seed=100, start_index=10")
        again = env.reset()[0]
        assert not np.array_equal(first, again), (
            "the seed given to build serves one reset, not every one"
        )
        resets: list[tuple[dict[str, Any], list[int]]] = [
            ({"seed": np.int64(5)}, [15, 16, 17]),
            ({"seed": [7, None, 9]}, [7, 16, 9]),
            ({"seed": np.array([1, 2, 3])}, [1, 2, 3]),
            # The others' are ignored.
            (
                {"seed": [20, 21, 22], "options": {"reset_mask": masks[0]}},
                [1, 21, 3],
            ),
            ({"seed": 30, "options": {"reset_mask": masks[1]}}, [40, 21, 42]),
        ]
        for keywords, expected in resets:
            env.reset(**keywords)
            _check_seeds(env, expected, f"reset with {keywords}, start_index=10")
        for bad in ([1, 2], -50, 1.5, True, "1", [1.5, 2, 3]):
            _raises(ValueError, env.reset, seed=bad)


def _check_seeds(env: VecEnv, expected: list[int], where: str) -> None:
    got = [int(seed) for seed in env.get_attr("np_random_seed")]
    assert got == expected, f"{where}: expected the seeds {expected}, got {got}"


# -- order of calls, errors ------------------------------------------------------------------------


def calls_out_of_order_raise(make_backend: MakeBackend) -> None:
    """Gymnasium's own errors, each leaving the environment as it was."""
    with make_backend([toy()] * 3) as env:
        _raises(ResetNeededError, env.step, [0, 0, 0])
        _raises(ResetNeededError, env.reset, options={"reset_mask": np.array([True, False, False])})
        for wait in (env.step_wait, env.reset_wait, env.call_wait, env.recv):
            _raises(NoAsyncCallError, wait)
        env.reset(seed=1)
        pending: list[tuple[Callable[[], Any], Callable[[], Any], list[Any]]] = [
            (
                lambda: env.step_async([0, 0, 0]),
                env.step_wait,
                [env.reset_wait, env.call_wait, env.recv],
            ),
            (
                lambda: env.reset_async(seed=1),
                env.reset_wait,
                [env.step_wait, env.call_wait, env.recv],
            ),
            (
                lambda: env.call_async("state"),
                env.call_wait,
                [env.step_wait, env.reset_wait, env.recv],
            ),
            (lambda: env.send([0, 0, 0]), env.recv, [env.step_wait, env.reset_wait, env.call_wait]),
        ]
        for ask, take, others in pending:
            ask()
            for call in (
                env.reset,
                env.reset_async,
                lambda: env.step([0, 0, 0]),
                lambda: env.step_async([0, 0, 0]),
            ):
                _raises(AlreadyPendingCallError, call)
            _raises(AlreadyPendingCallError, env.call_async, "state")
            _raises(AlreadyPendingCallError, env.get_attr, "bonus")
            _raises(AlreadyPendingCallError, env.set_attr, "bonus", 1.0)
            for other in others:
                _raises(NoAsyncCallError, other)
            take()
        env.send([0], env_ids=[1])
        _raises(ValueError, env.send, [0], env_ids=[1])  # it is pending
        _raises(AlreadyPendingCallError, env.reset)  # a row is still pending
        env.send([0, 0], env_ids=[2, 0])
        assert env.recv()[4]["env_id"].tolist() == [0, 1, 2], (
            "recv brings the rows in ascending order"
        )
        env.step([0, 0, 0])


def stepping_an_ended_row_raises(make_backend: MakeBackend) -> None:
    """In DISABLED mode, stepping an ended row before its reset is refused and changes nothing."""
    with _beside_dummy(make_backend, [toy(end=0.2)] * 3, autoreset="disabled") as both:
        policy = RandomActions(both.envs[0], seed=1)
        both("reset", seed=1)
        refused = 0
        while refused < 5:
            *_, terminations, truncations, _ = both("step", policy())
            ended = terminations | truncations
            if not ended.any():
                continue
            _raises(ResetNeededError, both, "step", policy())
            _raises(
                ResetNeededError,
                both,
                "send",
                policy(np.flatnonzero(ended)),
                env_ids=np.flatnonzero(ended),
            )
            refused += 1
            live = np.flatnonzero(~ended)
            if len(live):
                both("send", policy(live), env_ids=live)
                result = both("recv")
                assert result[4]["env_id"].tolist() == live.tolist(), (
                    "recv brings the rows that were sent"
                )
                ended[live] = result[2] | result[3]
            both("reset", options={"reset_mask": ended})


def errors_are_isolated(make_backend: MakeBackend) -> None:
    """An error names its sub-environment, and the others' transitions are kept.

    A masked reset revives the sub-environment that raised.
    """
    mask = np.array([False, True, True])
    for mode in Autoreset:
        with _beside_dummy(make_backend, [toy(end=0.0)] * 3, autoreset=mode) as both:
            policy = RandomActions(both.envs[0], seed=1)
            both("reset", seed=1)
            both("step", policy())
            for where, healthy in (("step", [0, 2]), ("reset", [2])):
                both("set_attr", "raise_in", where, indices=1)
                try:
                    if where == "step":
                        both("step", policy())
                    else:
                        both("reset", options={"reset_mask": mask})
                except SubEnvError as error:
                    _check_error(error, where, healthy)
                else:
                    raise AssertionError(f"expected SubEnvError from {where}, nothing was raised")
                _raises(ResetNeededError, both, "step", policy())
                both("send", policy([0, 2]), env_ids=[0, 2])
                both("recv")
                both("reset", options={"reset_mask": np.array([False, True, False])})
                both("step", policy())


def _check_error(error: SubEnvError, where: str, healthy: list[int]) -> None:
    assert (error.index, error.during) == (1, where), f"expected 1, {where}; got {error}"
    assert error.others is not None, "expected the transitions of the healthy rows in error.others"
    ids = error.others[4]["env_id"].tolist()
    assert ids == healthy, f"expected the healthy rows {healthy}, got {ids}"
    said = error.__cause__
    assert "asked to raise" in str(said), (
        f"expected the sub-environment's own traceback as the cause, got {said!r}"
    )


def _raises(
    kind: type[BaseException], function: Callable[..., Any], *args: Any, **kwargs: Any
) -> None:
    if isinstance(function, Lockstep):
        name = args[0]
    else:
        name = getattr(function, "__name__", function)
    try:
        got = function(*args, **kwargs)
    except kind:
        return
    except Exception as error:
        raise AssertionError(
            f"{name}: expected {kind.__name__}, got {type(error).__name__}: {error}"
        ) from error
    raise AssertionError(f"{name}: expected {kind.__name__}, got {got!r}")


BACKEND_LAWS: tuple[Callable[..., None], ...] = (
    same_stream_in_every_mode,
    every_space_round_trips,
    same_rows_by_send_and_recv,
    timeouts_lose_nothing,
    results_never_change,
    results_are_writable,
    arguments_are_not_modified,
    actions_are_copied_on_send,
    attributes_reach_the_environment,
    close_releases_everything,
    failed_start_releases_everything,
    close_is_idempotent,
    seeds_are_per_sub_environment,
    calls_out_of_order_raise,
    stepping_an_ended_row_raises,
    errors_are_isolated,
)
"""Every law; each takes ``make_backend`` and can be a test case of its own."""
