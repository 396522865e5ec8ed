"""The laws of a backend's calls: attributes, the end, seeds, the order of calls, and errors.

The others are in ``vecwrap.testing.backends``, which has the list of all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError

from vecwrap.env.random_actions import RandomActions
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import ResetNeededError, SubEnvError
from vecwrap.rows.compare import assert_same
from vecwrap.rows.step_result import Autoreset
from vecwrap.testing.drive import MakeBackend, assert_raises, beside_dummy
from vecwrap.testing.toys import OpenResources, assert_nothing_left, toy

# -- law 6: attributes and calls -------------------------------------------------------------------


def attributes_reach_the_environment(make_backend: MakeBackend) -> None:
    """The environment and ``get_attr`` see the values that ``set_attr`` writes.

    ``indices`` selects sub-environments; a list has one value for each.
    """
    with beside_dummy(make_backend, [toy()] * 3) as both:
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
        assert_raises(SubEnvError, both, "call", "no_such_method")
        # The first by index is named.
        assert_raises(SubEnvError, both, "get_attr", "no_such_attribute", indices=[2, 0])
        assert_raises(ValueError, both, "set_attr", "bonus", [1.0, 2.0])
        assert_raises(ValueError, both, "call", "reset")
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
        assert_raises(SubEnvError, env.step, [0] * env.num_envs)

    # What the first use opens once, such as an import or a helper process, is no leak.
    make_backend([toy()] * 3).close()
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
    error = assert_raises(
        SubEnvError, make_backend, [toy(), toy(), toy(observations="no such space")]
    )
    assert (error.index, error.during) == (2, "make"), (
        f"expected sub-environment 2, make; got {error}"
    )
    assert "no such space" in str(error), f"expected the factory's own message, got {error}"
    del error  # with its traceback, which holds what was made
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
        assert_raises(ClosedEnvironmentError, function, *arguments)


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
            assert_raises(ValueError, env.reset, seed=bad)


def _check_seeds(env: VecEnv, expected: list[int], where: str) -> None:
    got = [int(seed) for seed in env.get_attr("np_random_seed")]
    assert got == expected, f"{where}: expected the seeds {expected}, got {got}"


# -- order of calls, errors ------------------------------------------------------------------------


def calls_out_of_order_raise(make_backend: MakeBackend) -> None:
    """Gymnasium's own errors, each leaving the environment as it was."""
    with make_backend([toy()] * 3) as env:
        assert_raises(ResetNeededError, env.step, [0, 0, 0])
        assert_raises(
            ResetNeededError, env.reset, options={"reset_mask": np.array([True, False, False])}
        )
        for wait in (env.step_wait, env.reset_wait, env.call_wait, env.recv):
            assert_raises(NoAsyncCallError, wait)
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
        for begin, finish, other_waits in pending:
            begin()
            for call in (
                env.reset,
                env.reset_async,
                lambda: env.step([0, 0, 0]),
                lambda: env.step_async([0, 0, 0]),
            ):
                assert_raises(AlreadyPendingCallError, call)
            assert_raises(AlreadyPendingCallError, env.call_async, "state")
            assert_raises(AlreadyPendingCallError, env.get_attr, "bonus")
            assert_raises(AlreadyPendingCallError, env.set_attr, "bonus", 1.0)
            for wait in other_waits:
                assert_raises(NoAsyncCallError, wait)
            finish()
        env.send([0], env_ids=[1])
        assert_raises(ValueError, env.send, [0], env_ids=[1])  # it is pending
        assert_raises(AlreadyPendingCallError, env.reset)  # a row is still pending
        env.send([0, 0], env_ids=[2, 0])
        assert env.recv()[4]["env_id"].tolist() == [0, 1, 2], (
            "recv brings the rows in ascending order"
        )
        env.step([0, 0, 0])


def stepping_an_ended_row_raises(make_backend: MakeBackend) -> None:
    """In DISABLED mode, stepping an ended row before its reset is refused and changes nothing."""
    with beside_dummy(make_backend, [toy(end=0.2)] * 3, autoreset="disabled") as both:
        policy = RandomActions(both.envs[0], seed=1)
        both("reset", seed=1)
        refused = 0
        while refused < 5:
            *_, terminations, truncations, _ = both("step", policy())
            ended = terminations | truncations
            if not ended.any():
                continue
            assert_raises(ResetNeededError, both, "step", policy())
            assert_raises(
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
        with beside_dummy(make_backend, [toy(end=0.0)] * 3, autoreset=mode) as both:
            policy = RandomActions(both.envs[0], seed=1)
            both("reset", seed=1)
            both("step", policy())
            for where, healthy in (("step", [0, 2]), ("reset", [2])):
                both("set_attr", "raise_in", where, indices=1)
                keywords: dict[str, Any] = {"options": {"reset_mask": mask}}
                if where == "step":
                    keywords = {"actions": policy()}
                error = assert_raises(SubEnvError, both, where, **keywords)
                _check_error(error, where, healthy)
                assert_raises(ResetNeededError, both, "step", policy())
                both("send", policy([0, 2]), env_ids=[0, 2])
                both("recv")
                both("reset", options={"reset_mask": np.array([False, True, False])})
                both("step", policy())


def _check_error(error: SubEnvError, where: str, healthy: list[int]) -> None:
    assert (error.index, error.during) == (1, where), f"expected 1, {where}; got {error}"
    assert error.others is not None, "expected the transitions of the healthy rows in error.others"
    ids = error.others[4]["env_id"].tolist()
    assert ids == healthy, f"expected the healthy rows {healthy}, got {ids}"
    assert "asked to raise" in str(error.__cause__), (
        f"expected the sub-environment's own traceback as the cause, got {error.__cause__!r}"
    )
