"""The laws that every backend must satisfy, as functions that take its constructor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from vecwrap.env.random_actions import RandomActions
from vecwrap.env.runner import Runner
from vecwrap.env.vec_env import VecEnv
from vecwrap.rows.compare import assert_same
from vecwrap.rows.step_result import Autoreset
from vecwrap.testing.call_laws import (
    attributes_reach_the_environment,
    calls_out_of_order_raise,
    close_is_idempotent,
    close_releases_everything,
    errors_are_isolated,
    failed_start_releases_everything,
    seeds_are_per_sub_environment,
    stepping_an_ended_row_raises,
)
from vecwrap.testing.drive import (
    Lockstep,
    MakeBackend,
    assert_in_space,
    assert_kept,
    beside_dummy,
    drive,
    drive_rows,
    on,
    on_dummy,
    play,
)
from vecwrap.testing.toys import SPACES, toy


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


# -- law 1: the same stream ------------------------------------------------------------------------


def same_stream_in_every_mode(make_backend: MakeBackend, *, steps: int = 100) -> None:
    """In every mode, with masked resets, the stream equals dummy's bit for bit.

    This also holds for ill-behaved environments.
    """
    for mode in Autoreset:
        with beside_dummy(
            make_backend, [toy(observations="nested", actions="nested")] * 3, autoreset=mode
        ) as both:
            met = drive(both, steps, seed=11)
        assert min(met.values()) >= 5, f"{mode}: the run met too few ends to say anything: {met}"


def every_space_round_trips(make_backend: MakeBackend, *, steps: int = 30) -> None:
    """Spaces of every kind are the environment's own, and the values in them equal dummy's."""
    for name in SPACES:
        factories = [toy(observations=name, actions=name, end=0.1)] * 2
        with beside_dummy(make_backend, factories, autoreset="same_step") as both:
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
    with beside_dummy(make_backend, [toy()] * 3) as both:
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
    with beside_dummy(make_backend, factories, autoreset="disabled") as both:
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
        reference.reset(seed=1)
        env.reset(seed=1)
        expected = reference.step(np.array([0, 1, 2]))
        actions = np.array([0, 1, 2])
        env.step_async(actions)
        actions[:] = -2
        assert_same(
            expected, env.step_wait(), "a step whose actions were overwritten after step_async"
        )


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
