"""Checks that a pipeline's stream follows from its seed, and reports the first difference."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import gymnasium
import numpy as np

from vecwrap.env.random_actions import RandomActions
from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import PlanError, SpecError, VecwrapError
from vecwrap.pipeline.build import build_plan
from vecwrap.pipeline.evaluation import in_mode
from vecwrap.pipeline.findings import Finding, RuleViolation, Severity, finding_at
from vecwrap.pipeline.plan import plan, plan_into_folder
from vecwrap.pipeline.spec import PipelineSpec, as_spec
from vecwrap.pipeline.values import short_repr
from vecwrap.pipeline.wrappers import PlannedWrapper
from vecwrap.rows.compare import Different, assert_same, rows_of
from vecwrap.rows.statistics import RunningStatistics
from vecwrap.rows.step_result import Autoreset
from vecwrap.testing.drive import ON_REQUEST, of_reset, play
from vecwrap.wrappers.monitor import Monitor

# What ``vecwrap check --twice`` and ``vecwrap.testing.play_twice`` find, with their severities.
OF_STREAMS: dict[str, tuple[Severity, str]] = {
    "stream_differs": (
        "error",
        "Two runs with one seed and the same actions that differ in an observation, a reward or a "
        "flag.\n\n"
        "The first difference is reported, with the runs that have it, and the wrapper without "
        "which all runs agree. Which runs differ says where to look: after the second reset alone, "
        "it is state that the reset leaves as it was; in worker processes alone, it is often the "
        "order of a set, or state that sub-environments in one process share.",
    ),
    "info_differs": (
        "warning",
        "Two runs with one seed and the same actions that differ in an info.\n\n"
        "Only a policy that reads the info can learn something else from it. If it is a time that "
        "was measured, ignore it.",
    ),
}

STEPS = 2000
# of a wrapper that is to blame; one in 1024 is wrong at most, whatever the rate at which runs
# differ
TRIES = 5
MAX_WORKERS = 4
RUN_KINDS = {
    "again": "after a second reset of the same environment",
    "second": "in a second environment in the same process",
    "worker": "in worker processes",
}
# What the runs that differ from the first one say about the reason.
_SIGNS = {
    ("again",): (
        "Something survives the reset: a counter, a cache, a generator that is not seeded "
        "again. Set in reset all that the stream depends on, and draw from self.np_random."
    ),
    ("worker",): (
        "Something depends on the process: the order of a set, hash() of text, an id(), a "
        "process id, a variable of the system, or what the sub-environments of one process "
        "share. Sort sets; keep state in self."
    ),
    **dict.fromkeys(
        [("second",), ("second", "worker")],
        "Something is drawn or counted when it is made: in __init__, in a class or a module. "
        "Draw it in reset, from self.np_random.",
    ),
}
_NO_SEED = (
    "Something comes from where no seed reaches: the clock, np.random.default_rng() without a "
    "seed, an id(), or what all of a process share (an attribute of a class, a global of a "
    "module). Draw from self.np_random, after super().reset(seed=seed); keep state in self, and "
    "set it in reset."
)


def play_twice(
    pipeline: Any, *, steps: int = STEPS, mode: Literal["train", "eval"] = "train", **settings: Any
) -> tuple[Finding, ...]:
    """Play a pipeline four times with one seed and the same actions; report the first difference.

    The first run is on ``dummy``, in this process. The others are the same environment after a
    second ``reset(seed=...)``, a second environment in this process, and one in worker processes
    (fresh interpreters). Bits are compared, so NaN equals NaN. The actions are drawn from a copy of
    the action space, with the same seed: legal ones if the environment reports action masks, which
    are compared, too. Running statistics begin each run alike, files go to a temporary folder, and
    a monitor's wall clock (``episode.t``) is not compared.

    If the pipeline has wrappers, fewer of them are played until the runs agree, so that the finding
    names the wrapper that causes the difference, or the environment itself. Before a wrapper is
    named, runs with it and without it are played five times more, and must differ each time and
    agree each time. If only some differ, no wrapper is named.

    Args:
        pipeline: whatever ``build`` takes.
        steps: agent steps over all sub-environments, in each run.
        mode: ``"eval"`` for the pipeline's evaluation, as ``load``.
        settings: a pipeline's keys, as for ``load``. ``seed`` is 0 if the pipeline has none.

    Returns:
        At most one ``stream_differs``, an error, for observations, rewards and flags, and before it
            at most one
        ``info_differs``, a warning, for an info that differs earlier, or alone. Empty if all is the
            same. The reason
        says the sub-environment, its episode and step, counted from 1, both values, and which runs
            differ.

    Raises:
        SpecError: it is not a pipeline, which can be built several times.
        VecwrapError: as ``build``; and an exception of an environment in the first run.

    >>> play_twice("CartPole-v1 n=2 | framestack:4", steps=200)
    ()
    >>> class Counts(gymnasium.Wrapper):
    ...     steps = 0  # which no reset sets back
    ...
    ...     def step(self, action):
    ...         self.steps += 1
    ...         observation, _, *rest = self.env.step(action)
    ...         return observation, self.steps, *rest
    >>> (found,) = play_twice("CartPole-v1", n=1, wrappers=[Counts], steps=2)
    >>> print(found.reason)  # doctest: +ELLIPSIS
    with seed 0, reward of sub-environment 0, episode 1, step 1, is 1.0 in the first run ...
    """
    if isinstance(pipeline, gymnasium.vector.VectorEnv):
        raise SpecError(
            f"expected a pipeline, which can be built several times, got {pipeline!r}, which is "
            "built."
        )
    spec = in_mode(as_spec(pipeline), mode, settings)
    changes: dict[str, Any] = {"copy": True, "batch_size": None, "seed": spec.seed or 0}
    if spec.stats is None:
        changes["training"] = True  # an evaluation's statistics are usually given to build
    if spec.render_mode == "human":
        changes["render_mode"] = "rgb_array"
    planned = plan(spec)
    wrappers = [wrapper.spec for wrapper in planned.wrappers]
    chains = [
        spec.override(**changes, n=planned.n, wrappers=wrappers[:k], eval=None)
        for k in range(len(wrappers) + 1)
    ]
    compared = functools.cache(lambda k: _compared(chains[k], steps))
    findings = []
    for name in reversed(OF_STREAMS):
        if name in compared(len(wrappers)):
            k, one = _shortest(chains, name, compared, steps)
            place: PlannedWrapper | str = "env"
            if k:
                place = planned.wrappers[k - 1]
            fault = one.fault(place, bool(wrappers), k is None)
            findings.append(finding_at(name, OF_STREAMS[name][0], fault, planned.written))
    return tuple(findings)


def _shortest(
    chains: Sequence[PipelineSpec],
    name: str,
    compared: Callable[[int], dict[str, _Difference]],
    steps: int,
) -> tuple[int | None, _Difference]:
    """Return how many wrappers suffice for a difference (None if unclear), and the difference.

    A wrapper is blamed if, in every one of several tries, runs with it differ in the same column,
    and runs without it agree. What differs now and then is thus never blamed on a wrapper that has
    no part in it.
    """
    agreed = []
    for k in range(len(chains)):
        with contextlib.suppress(PlanError):  # a wrapper may need those around it
            if name in compared(k):
                break
            agreed.append(k)
    found = compared(k)[name]
    runs = found.runs[:1]
    tries = 0
    while agreed and tries < TRIES:
        tries += 1
        if name in (less := _compared(chains[agreed[-1]], steps, runs)):
            k = agreed.pop()
            found = less[name]
            tries = 0
            continue
        more = _compared(chains[k], steps, runs).get(name)
        if more is None or more.column != found.column:
            return None, found
    return k, found


# -- four runs -------------------------------------------------------------------------------------


@dataclass
class _Row:
    """What a sub-environment returned, or the part of it that is of one episode."""

    index: int
    episode: int
    step: int
    values: dict[str, Any]
    info: dict[str, Any]


@dataclass
class _Difference:
    """A difference: where, in which runs, and what the first run gives away about its reason."""

    row: _Row | None
    difference: Different
    seed: int
    clues: Sequence[str]
    runs: tuple[str, ...] = ()

    @property
    def column(self) -> str:
        """What differs: ``reward``, ``observation``, ``info``, ..."""
        return self.difference.path.partition("[")[0]

    def fault(
        self, place: PlannedWrapper | str, has_wrappers: bool, is_unclear: bool
    ) -> RuleViolation:
        """What a person reads."""
        expected, got = _texts(self.difference.expected, self.difference.got)
        which, *others = [RUN_KINDS[run] for run in self.runs]
        fix = " ".join(self.clues) or _SIGNS.get(self.runs, _NO_SEED)
        if self.row is None:
            text = (
                f"with seed {self.seed}, it fails {which}, and not in the first run "
                f"({self.difference.got[:500]}); "
            )
            fix = " ".join(self.clues)  # the error says more
        else:
            where = f"sub-environment {self.row.index}, episode {self.row.episode}"
            when = "at the reset"
            if self.row.step:
                when = f"step {self.row.step}"
            text = (
                f"with seed {self.seed}, {self.difference.path} of {where}, {when}, is "
                f"{expected} in the first run "
            )
            text += f"and {got} {which}; "
        if others:
            text += f"it also differs {' and '.join(others)}."
        else:
            text += "the other runs agree."
        if not isinstance(place, str):
            text += " Without this wrapper all runs agree."
        elif is_unclear:
            text += (
                " Only some runs differ, so whether the environment or a wrapper is the cause "
                "cannot be determined."
            )
        elif has_wrappers:
            text += " The environment alone differs, without any wrapper."
        if self.difference.path.startswith("info"):
            fix += " If it is a time and meant to be one, ignore info_differs."
        return RuleViolation(place, text, fix)


def _texts(expected: Any, got: Any) -> tuple[str, str]:
    """Two values, briefly; long texts from shortly before the place where they part."""
    if isinstance(expected, str) and isinstance(got, str):
        parting = (
            k for k, (one, other) in enumerate(zip(expected, got, strict=False)) if one != other
        )
        start = max(0, next(parting, 0) - 20)
        expected = expected[start:]
        got = got[start:]
    texts = []
    for value in (expected, got):
        if isinstance(value, np.generic):
            texts.append(str(value))
        else:
            texts.append(short_repr(value))
    return texts[0], texts[1]


def _compared(
    spec: PipelineSpec, steps: int, runs: Sequence[str] = tuple(RUN_KINDS)
) -> dict[str, _Difference]:
    """Play these runs of a pipeline, and return differences from the first run by finding id."""
    dummy = spec.override(backend="dummy")
    worker = spec.override(backend={"name": "subprocess", "workers": min(spec.n or 1, MAX_WORKERS)})
    seed = spec.seed or 0
    found: dict[str, _Difference] = {}
    with TemporaryDirectory(prefix="vecwrap-twice-") as folder, contextlib.ExitStack() as stack:

        def built(run: str, spec: PipelineSpec) -> VecEnv:
            return stack.enter_context(build_plan(plan(plan_into_folder(spec, Path(folder, run)))))

        def rows(run: str, spec: PipelineSpec) -> Iterator[_Row]:
            yield from _rows(built(run, spec), steps, seed)

        before = _global_generators()
        env = built("first", dummy)
        statistics = [(each, each.state()) for each in _statistics(env)]
        first = list(_rows(env, steps, seed))
        clues = list(_clues(env, before))
        for each, state in statistics:  # they outlive a reset, and are meant to
            each.load(state, "twice")
        others = {
            "again": _rows(env, steps, seed),
            "second": rows("second", dummy),
            "worker": rows("worker", worker),
        }
        for run in runs:
            played = others[run]
            for name, (row, difference) in _first_differences(first, played).items():
                one = found.setdefault(name, _Difference(row, difference, seed, clues))
                one.runs = (*one.runs, run)
    return found


def _statistics(env: VecEnv) -> list[RunningStatistics]:
    wrappers = (wrapper for wrapper in env.chain if isinstance(wrapper, VecEnvWrapper))
    return [each for wrapper in wrappers for each in wrapper.wrapper_statistics().values()]


def _global_generators() -> dict[str, Any]:
    return {"np.random": np.random.get_state(), "random": random.getstate()}  # noqa: NPY002


def _clues(env: VecEnv, before: dict[str, Any]) -> Iterator[str]:
    """What the first run shows of generators that no seed of a reset reaches."""
    for name, state in _global_generators().items():
        try:
            assert_same(before[name], state)
        except AssertionError:
            yield (
                f"It uses the global generator of {name}, which all of a process share: use "
                "self.np_random."
            )
    with contextlib.suppress(Exception):
        # From the system's entropy.
        if any(seed.bit_length() > 64 for seed in env.get_attr("np_random_seed")):
            yield "Its np_random was never seeded: call super().reset(seed=seed) in reset."


def _first_differences(
    expected: Iterable[_Row], got: Iterator[_Row]
) -> dict[str, tuple[_Row | None, Different]]:
    """The first difference in a value, and one in an info if it comes before that."""
    found: dict[str, tuple[_Row | None, Different]] = {}
    try:
        for row, other in zip(expected, got, strict=True):
            try:
                for name, value in row.values.items():
                    assert_same(value, other.values[name], name)
            except Different as difference:
                return {**found, "stream_differs": (row, difference)}
            if "info_differs" not in found:
                try:
                    assert_same(row.info, other.info, "info")
                except Different as difference:
                    found["info_differs"] = row, difference
    except VecwrapError as error:
        found["stream_differs"] = None, Different("error", None, str(error))
    return found


def _rows(env: VecEnv, steps: int, seed: int) -> Iterator[_Row]:
    """Play, and yield each sub-environment's rows with the number of its episode and step."""
    n = env.num_envs
    mode = env.core.autoreset
    episode = np.ones(n, np.int64)
    step = np.full(n, -1)
    over = np.zeros(n, np.bool_)  # its next row opens an episode
    monitors = [wrapper for wrapper in env.chain if isinstance(wrapper, Monitor)]
    clocks = [
        f"{prefix}{wrapper.column}.t" for wrapper in monitors for prefix in ("", "final_info.")
    ]
    results = play(env, -(-steps // n), RandomActions(env, seed))
    for result in chain([of_reset(*env.reset(seed=seed), n)], results):
        # A masked reset, which shows the others' rows again.
        on_request = over.any() and mode in ON_REQUEST
        masks = env.call_state.action_masks.now()
        for i, values in rows_of(env.single_observation_space, result, clocks):
            if on_request and not over[i]:
                continue
            if over[i]:
                episode[i] = episode[i] + 1
                step[i] = -1
            step[i] += 1
            info = values["info"]
            observation = values["observation"]
            flags = {name: values[name] for name in ("terminated", "truncated")}
            # which actions are drawn follows from them
            legal = {}
            if masks is not None:
                legal = {"action_masks": masks[i]}
            over[i] = any(flags.values())
            if over[i] and mode is Autoreset.SAME_STEP:  # two episodes in one row
                end = {
                    **flags,
                    "final_obs": info.pop("final_obs", None),
                    "reward": values["reward"],
                }
                yield _Row(i, int(episode[i]), int(step[i]), end, info.pop("final_info", {}))
                episode[i] = episode[i] + 1
                step[i] = 0
                over[i] = False
                yield _Row(i, int(episode[i]), 0, {"observation": observation, **legal}, info)
            else:
                seen = {**flags, "observation": observation, "reward": values["reward"], **legal}
                yield _Row(i, int(episode[i]), int(step[i]), seen, info)
