"""An engine: another library's vector environment, which steps several rows at once.

CartPole's vector class, ale-py's ``AtariVectorEnv``, EnvPool's Gymnasium interface, Gymnasium's
Sync and Async, SuperSuit's: anything that steps n sub-environments at once and declares its
autoreset mode. Its infos stay columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, ClassVar, NoReturn

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space, iterate

from vecwrap.errors import ArgumentError, PlanError, VecwrapError
from vecwrap.interrupts import is_interrupt
from vecwrap.rows import batch as batches
from vecwrap.rows.batch import object_array
from vecwrap.rows.gymnasium_form import from_gymnasium, to_gymnasium
from vecwrap.rows.infos import END_KEYS, columns, detached_copy, take_columns
from vecwrap.rows.step_result import Autoreset, BoolArray, Frames, Infos, StepResult
from vecwrap.rows.table import Slots
from vecwrap.sources.description import EnvDescription
from vecwrap.sources.failure import Failure, make_failure
from vecwrap.sources.raw_rewards import SEVERAL_NUMBERS
from vecwrap.sources.source import Source
from vecwrap.sources.sub_env import SubEnv

ENDS = ("terminal_observation", "TimeLimit.truncated")  # in the infos of SB3 and SuperSuit


class Engine(Source):
    """A vector environment and its rows of the slots, which step together.

    The options are those of ``vecwrap.wrap``.
    """

    kind: ClassVar[str] = "engine"
    gives_columns: ClassVar[bool] = True
    # Methods that ``call`` accepts.
    methods: ClassVar[tuple[str, ...]] = ("call", "get_attr", "set_attr", "has_attr")
    why_no_masked_resets: ClassVar[str] = (
        'this engine is not known to honour options["reset_mask"] (one that ignores it resets '
        "every row); if it does, set masked_resets=True"
    )

    def __init__(
        self,
        vector_env: Any,
        *,
        autoreset: Autoreset | AutoresetMode | str | None = None,
        masked_resets: bool | None = None,
        lent: bool = False,
    ) -> None:
        refuse_lacking(vector_env, "wrap: expected a gymnasium.vector.VectorEnv")
        self.vector_env = vector_env
        self.num_rows: int = vector_env.num_envs
        known = isinstance(vector_env, (SyncVectorEnv, AsyncVectorEnv))
        self._masked_resets = known if masked_resets is None else masked_resets
        self._lent = lent
        self._seed_of: list[int | None] = [None] * self.num_rows
        self._over: BoolArray = np.zeros(self.num_rows, dtype=np.bool_)
        self._ids = np.arange(self.num_rows)
        self._yes: BoolArray = np.ones(self.num_rows, dtype=np.bool_)
        self._no: BoolArray = np.zeros(self.num_rows, dtype=np.bool_)
        self._yes.flags.writeable = self._no.flags.writeable = False
        self.mode = _mode_of(vector_env, autoreset)
        # Gymnasium's Async does not cancel a pending autoreset on a reset, unless it shares memory.
        inner = _unwrapped(vector_env)
        self._resets_again = (
            isinstance(inner, AsyncVectorEnv)
            and not inner.shared_memory
            and self.mode is Autoreset.NEXT_STEP
        )
        self._space = (
            getattr(vector_env, "single_observation_space", None) or vector_env.observation_space
        )
        self.name = type(self.unwrapped).__name__

    @property
    def unwrapped(self) -> Any:
        return getattr(self.vector_env, "unwrapped", self.vector_env)

    def describe(self) -> EnvDescription:
        env = self.vector_env
        spec = getattr(env, "spec", None)
        return EnvDescription(
            self._space,
            getattr(env, "single_action_space", None) or env.action_space,
            dict(getattr(env, "metadata", None) or {}),
            getattr(env, "render_mode", None),
            spec if hasattr(spec, "id") else None,
            self.name,
            "" if self._masked_resets else self.why_no_masked_resets,
            monitor=self.monitor(),
        )

    def monitor(self) -> str:
        """The name of the wrapper inside the engine that reports infos["episode"], if known."""
        return ""

    def attach(self, slots: Slots, first_row: int) -> None:
        self._slots = slots
        self.rows = range(first_row, first_row + self.num_rows)
        self._at = slice(first_row, first_row + self.num_rows)

    # -- rows --------------------------------------------------------------------------------------

    def arguments_of_reset(
        self, rows: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Return the arguments of its ``reset`` for some of its rows, counted from its first."""
        for i, seed in zip(rows, seeds, strict=True):
            if seed is not None:
                self._seed_of[i] = seed
        arguments: dict[str, Any] = {}
        whole = len(rows) == self.num_rows
        everyone = range(self.num_rows)
        if any(seed is not None for seed in seeds):
            seed_of = dict(zip(rows, seeds, strict=True))
            if whole:
                arguments["seed"] = one_seed(seeds)
            else:
                arguments["seed"] = [seed_of.get(i) for i in everyone]
            # ale-py takes the seeds of reset rows only.
            if _is_of_ale(self.vector_env) and isinstance(arguments["seed"], list):
                arguments["seed"] = np.array([-1 if seed is None else seed for seed in seeds])
        if not whole:
            options = {**(options or {}), "reset_mask": np.isin(everyone, rows)}
        if options is not None:
            arguments["options"] = detached_copy(options)
        return arguments

    def reset(
        self, rows: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        observations, infos = self._of_engine(
            "reset", **self.arguments_of_reset(rows, seeds, options)
        )
        self._refuse_misfit(observations)
        infos = _by_column(self.vector_env, infos)
        batch = from_gymnasium(self._space, observations)
        slots = self._slots
        slots.forget_result()
        own = list(rows)
        if not self._resets_again:
            self._over[own] = False
        at = [self._at.start + i for i in own]
        slots.observations.fill(at, batches.take(batch, own))
        slots.rewards[at] = slots.raw_rewards[at] = 0.0
        slots.terminations[at] = slots.truncations[at] = slots.raw_dones[at] = False
        slots.acted[at] = slots.completed[at] = False
        slots.first[at] = slots.observed[at] = slots.raw_first[at] = True
        slots.put_columns(self.rows, take_columns(infos, slice(None)), {})

    def step(self, action: Any = None) -> None:
        """Step with the actions in the slots, or with a batch that the engine may write into."""
        actions = action
        if actions is None:
            actions = batches.copy(batches.take(self._slots.actions.batch(), self._at))
        values = self._of_engine("step", to_gymnasium(actions))
        observations, rewards, terminations, truncations, infos = values
        self._refuse_misfit(observations)
        for name, column in (
            ("rewards", rewards),
            ("terminations", terminations),
            ("truncations", truncations),
        ):
            if np.shape(column) != (self.num_rows,):
                self._refuse_column(name, column)
        terminations = np.array(terminations, dtype=np.bool_)
        truncations = np.array(truncations, dtype=np.bool_)
        dones = terminations | truncations
        infos = _by_column(self.vector_env, infos, dones)
        over = self._over
        any_done = bool(dones.any())
        any_over = self.mode is Autoreset.NEXT_STEP and bool(over.any())
        yes = self._yes
        no = self._no
        result = StepResult(
            self._ids,
            slice(None),
            from_gymnasium(self._space, observations),
            np.array(rewards, dtype=np.float64),
            terminations,
            truncations,
            first=no,
            acted=yes,
            completed=yes,
            observed=yes,
            to_move=yes,
            alive=yes,
            lost=no,
            raw_rewards=rewards,
            raw_dones=no,
            raw_first=no,
            infos={},
        )
        if any_over:
            # A reset has no reward, whatever the engine reports.
            result.rewards[over] = 0.0
            result.first = result.raw_first = over
            result.acted = result.completed = ~over
        if any_done:
            result.raw_dones = dones & result.acted
            if self.mode is Autoreset.SAME_STEP:
                result.first = result.raw_first = dones
                infos = self._put_finals(result, infos, dones)
        elif not any_over:
            result.uneventful_flags = terminations, truncations, yes, no
        result.raw_rewards = result.rewards.copy()
        own = {key: value for key, value in infos.items() if key not in END_KEYS}
        result.infos = take_columns(own, slice(None))
        self._slots.put_result(self.rows, result)
        self._over = dones.copy()

    def _refuse_column(self, name: str, column: Any) -> NoReturn:
        several = ""
        if name == "rewards" and np.ndim(column) > 1:
            several = f". {SEVERAL_NUMBERS}"
        raise PlanError(
            f"{self.name}.step: expected {self.num_rows} {name}, got shape "
            f"{np.shape(column)}{several}"
        )

    def _of_engine(self, name: str, *args: Any, **kwargs: Any) -> Any:
        result = getattr(self.vector_env, name)(*args, **kwargs)
        number = 5
        values = "Gymnasium's five values"
        if name == "reset":
            number = 2
            values = "observations and infos"
        if not isinstance(result, tuple) or len(result) != number:
            if isinstance(result, tuple):
                got = f"a tuple of {len(result)}"
            else:
                got = type(result).__name__
            raise PlanError(
                f"{self.name}.{name}: expected {values}, got {got}; vecwrap.from_sb3 takes "
                "environments in Stable-Baselines3's form, if their class is derived from its "
                "VecEnv"
            )
        return _in_numpy(result)

    def _put_finals(self, result: StepResult, infos: Infos, dones: BoolArray) -> Infos:
        """Add what belongs to the episodes that ended; return the infos under Gymnasium's names."""
        if "final_obs" not in infos:  # Gymnasium's name before 1.0, and ManiSkill's
            names = {"final_observation": "final_obs", "_final_observation": "_final_obs"}
            infos = {names.get(key, key): value for key, value in infos.items()}
        finals = infos.get("final_obs")
        if finals is None:
            raise PlanError(
                f'{self.name} resets in the same step but has no infos["final_obs"]: the terminal '
                "observation is lost; build it in next-step mode, or set its actual mode with "
                "autoreset="
            )
        result.final_obs = batches.copy(result.observations)
        ended = np.flatnonzero(dones)
        if self._is_batch(finals):
            batch = from_gymnasium(self._space, finals)
            batches.scatter(result.final_obs, ended, batches.take(batch, ended))
        else:
            for i in ended.tolist():
                if finals[i] is not None:
                    one = from_gymnasium(self._space, finals[i], single=True)
                    batches.tree_map(partial(_put_leaf, i), result.final_obs, one)
        result.final_infos = _final_infos(infos.get("final_info"))
        return infos

    def _is_batch(self, finals: Any) -> bool:
        """Whether terminal observations are one batch, not one for each row, as in Gymnasium.

        A batch of a Tuple space is a tuple.
        """
        if isinstance(finals, tuple):
            return isinstance(self._space, spaces.Tuple)
        return isinstance(finals, dict) or (
            isinstance(finals, np.ndarray) and finals.dtype != object
        )

    def _refuse_misfit(self, observations: Any) -> None:
        if isinstance(observations, np.ndarray) and isinstance(self._space, spaces.Box):
            expected = (self.num_rows, *self._space.shape)
            if observations.shape != expected:
                raise PlanError(
                    f"{self.name}: expected observations of shape {expected}, {self.num_rows} rows "
                    f"of {self._space}, got {observations.shape}; set single_observation_space and "
                    "single_action_space to the spaces of one sub-environment"
                )
        if self.debug:
            for i, one in enumerate(iterate(batch_space(self._space, self.num_rows), observations)):
                if not self._space.contains(one):
                    raise PlanError(
                        f"{self.name}: expected observations in {self._space}, got {one!r} in its "
                        f"row {i}"
                    )

    # -- calls -------------------------------------------------------------------------------------

    def want_frames(self, frames: Sequence[Frames]) -> None:
        """Engines send none, and those who want some are refused."""

    def call(
        self, method: str, rows: Sequence[int], arguments: Sequence[tuple[Any, ...]]
    ) -> tuple[dict[int, Any], list[Failure]]:
        """Call a method row by row if sub-environments can be reached, else through the engine."""
        if self.sub_envs is None:
            if method not in self.methods:
                raise ArgumentError(
                    f"{self.name} has no {method}; its sub-environments cannot be reached one by "
                    "one"
                )
            return dict(zip(rows, self.call_each(method, list(rows), arguments), strict=True)), []
        values: dict[int, Any] = {}
        failures: list[Failure] = []
        for row, given in zip(rows, arguments, strict=True):
            try:
                values[row] = self.sub_envs[row].answer(method, given)
            except BaseException as error:
                if is_interrupt(error):
                    raise
                failures += self.failures([row], error, method)
        return values, failures

    def failures(
        self, rows: Sequence[int], error: BaseException, during: str, action: Any = None
    ) -> list[Failure]:
        """Report that it raised: all the rows that were asked with it have failed."""
        of_row = during in ("step", "reset")
        note = ""
        whole = ""
        if of_row and len(rows) == self.num_rows:
            if self.num_rows > 1:
                whole = f" failed with the other rows of its {self.name}, which"
            else:
                whole = f", all of a {self.name},"
        if whole and not isinstance(error, VecwrapError):
            note = (
                f"\nReset all {self.num_rows} before the next step; if that raises too, as after "
                "the death of one of its workers, make it again. With vecwrap.build instead, "
                'errors name the sub-environment that failed, and on_failure="restart" recreates '
                "it."
            )
        elif not of_row and self.sub_envs is None and len(rows) > 1:
            note = (
                f"\n{self.name} does not report which of its {len(rows)} rows that were asked "
                "it was."
            )
        raised = replace(
            make_failure(self.index, error),
            during=during,
            action=action,
            note=note,
            refused=isinstance(error, ArgumentError) and not of_row,
            whole_source=whole,
        )
        return [replace(raised, index=self.index + row, seed=self._seed_of[row]) for row in rows]

    def call_each(
        self, method: str, ids: list[int], arguments: Sequence[tuple[Any, ...]]
    ) -> Sequence[Any]:
        """Call a method through the engine; return one value per id.

        The engine calls all its sub-environments.
        """
        engine = self.vector_env
        name = arguments[0][0]
        everyone = range(self.num_rows)
        if method == "call" and name == "render":
            frames = engine.render()
            return [frames[i] for i in ids]
        function = getattr(engine, "set_attr" if method == "set_attr" else "call", None)
        if function is None:
            raise ArgumentError(
                f"{self.name} has no {method}; its sub-environments cannot be reached one by one"
            )
        if method in ("call", "set_attr") and set(ids) != set(everyone):
            raise ArgumentError(
                f"{self.name}: {method} takes all sub-environments, got {ids}; vecwrap's own "
                "backends (dummy, subprocess, shmem) can address some"
            )
        if method == "set_attr":
            values = {i: value for i, (_, value) in zip(ids, arguments, strict=True)}
            function(name, [values[i] for i in everyone])
            return [None] * len(ids)
        args: tuple[Any, ...] = ()
        kwargs: dict[str, Any] = {}
        if method == "has_attr":
            args = (name,)
            name = "has_wrapper_attr"
        else:
            if isinstance(engine, AsyncVectorEnv):
                _refuse_missing(engine, name)
            if method == "call":
                _, args, kwargs = arguments[0]
        answers = function(name, *args, **kwargs)
        return [answers[i] for i in ids]

    @cached_property
    def sub_envs(self) -> list[SubEnv] | None:
        """The sub-environments, or None if they cannot be reached one by one.

        Gymnasium's ``SyncVectorEnv`` has its sub-environments in this process.
        """
        if not isinstance(self.vector_env, SyncVectorEnv):
            return None
        return [
            SubEnv(i, partial(_itself, env), self.mode)
            for i, env in enumerate(self.vector_env.envs)
        ]

    def envs(self) -> list[Any] | None:
        envs = getattr(_unwrapped(self.vector_env), "envs", None)
        if not isinstance(envs, (list, tuple)) or not all(
            isinstance(env, gymnasium.Env) for env in envs
        ):
            return None
        return list(envs)

    def close(self, timeout: float = 5.0, terminate: bool = False) -> None:
        if self._lent:
            return
        try:
            if isinstance(self.vector_env, AsyncVectorEnv):
                self.vector_env.close(timeout=timeout, terminate=terminate)
            else:
                self.vector_env.close()
        except (OSError, EOFError):
            engine = _unwrapped(self.vector_env)
            if not isinstance(engine, AsyncVectorEnv):
                raise
            _end_workers(engine)  # one of them has died, and Gymnasium has left the others running


def _itself(env: Any) -> Any:
    return env


def _unwrapped(engine: Any) -> Any:
    while isinstance(engine, VectorWrapper):
        engine = engine.env
    return engine


def _is_of_ale(engine: Any) -> bool:
    return type(_unwrapped(engine)).__module__.partition(".")[0] == "ale_py"


def _end_workers(engine: AsyncVectorEnv) -> None:
    engine.closed = True
    for process in engine.processes:
        process.kill()
        process.join()
    for pipe in engine.parent_pipes:
        if pipe is not None:
            pipe.close()


def _refuse_missing(engine: AsyncVectorEnv, name: str) -> None:
    """Raise AttributeError here if a sub-environment lacks the attribute.

    Gymnasium would end the worker of a sub-environment that raises.
    """
    lacking = [i for i, has in enumerate(engine.call("has_wrapper_attr", name)) if not has]
    if lacking:
        raise AttributeError(f"sub-environments {lacking} have no attribute {name!r}")


def refuse_lacking(engine: Any, expected: str) -> None:
    needed = {
        "num_envs": ("num_envs",),
        "single_observation_space": ("single_observation_space", "observation_space"),
        "single_action_space": ("single_action_space", "action_space"),
        **{name: (name,) for name in ("reset", "step", "close")},
    }
    lacking = [
        name
        for name, either in needed.items()
        if all(getattr(engine, one, None) is None for one in either)
    ]
    if lacking:
        raise PlanError(
            f"{expected}, got {type(engine).__name__}, which has no {', '.join(lacking)}; set what "
            "is missing, or write one gymnasium.Env and let vecwrap.build vectorise it"
        )


def _mode_of(vector_env: Any, given: Autoreset | AutoresetMode | str | None) -> Autoreset:
    declared = (getattr(vector_env, "metadata", None) or {}).get("autoreset_mode")
    if declared is None and type(_unwrapped(vector_env)).__module__.startswith("supersuit."):
        declared = AutoresetMode.SAME_STEP  # always, without saying so
    name = type(vector_env).__name__
    if declared is None:
        if given is None:
            raise PlanError(
                f'{name} does not declare its autoreset mode: expected metadata["autoreset_mode"], '
                'or wrap(..., autoreset="next_step") (or "same_step", "disabled"), got neither'
            )
        return Autoreset.parse(given)
    mode = Autoreset.parse(declared)
    refuse_other_mode(name, mode, given)
    return mode


def refuse_other_mode(
    name: str, mode: Autoreset, given: Autoreset | AutoresetMode | str | None
) -> None:
    if given is not None and Autoreset.parse(given) is not mode:
        raise PlanError(f"{name} declares {mode.value}, but got autoreset={given!r}; leave it out")


def one_seed(seeds: Sequence[int | None]) -> Any:
    """The seeds as one int if they are consecutive, because not every engine takes a list."""
    first = seeds[0]
    if first is not None and list(seeds) == list(range(first, first + len(seeds))):
        return first
    return list(seeds)


def _in_numpy(value: Any) -> Any:
    """The same with arrays in place of tensors (of PyTorch, on any device), deep inside too."""
    if isinstance(value, dict):
        return {key: _in_numpy(part) for key, part in value.items()}
    if type(value) is tuple:
        return tuple(map(_in_numpy, value))
    if hasattr(value, "detach"):
        return value.detach().cpu().numpy()
    return value


def rows_of_infos(engine: Any, infos: Any) -> list[dict[str, Any]]:
    """Return one info dict per row from an engine that returns infos as a list.

    SuperSuit does so, and rows may be None.

    None and an empty list stand for no infos.
    """
    rows = []
    if infos is not None:
        rows = list(infos)
    starts = getattr(engine, "idx_starts", ())
    if len(starts) == len(rows) + 1 and all(isinstance(ones, list) for ones in rows):
        # A reset of SuperSuit's workers gives a list for each of them: of (index among its rows,
        # info) if not empty.
        some = {
            start + i: info for start, ones in zip(starts, rows, strict=False) for i, info in ones
        }
        rows = [some.get(i, {}) for i in range(engine.num_envs)]
    if not rows and not isinstance(infos, dict):
        return [{}] * engine.num_envs
    for i, row in enumerate(rows):
        if row is None:
            rows[i] = {}
    if len(rows) != engine.num_envs or not all(isinstance(row, dict) for row in rows):
        raise PlanError(
            f"{type(engine).__name__}: expected infos as a dict of columns, or as a list of "
            f"{engine.num_envs} dicts, got {type(infos).__name__} of {len(rows)}"
        )
    return rows


def _by_column(engine: Any, infos: Any, dones: BoolArray | None = None) -> Infos:
    """An engine's infos as columns; those of a row that ended are its ``final_info`` too."""
    if isinstance(infos, dict):
        return infos
    rows = rows_of_infos(engine, infos)
    own = [{key: value for key, value in row.items() if key not in ENDS} for row in rows]
    if dones is None or any(
        rows[i].get("terminal_observation") is None for i in np.flatnonzero(dones).tolist()
    ):
        return columns(own)
    ended: list[dict[str, Any]] = [{} for _ in own]
    for i in np.flatnonzero(dones).tolist():
        ended[i] = own[i]
    finals = object_array([row.get("terminal_observation") for row in rows])
    return {**columns(own), "final_obs": finals, "final_info": columns(ended)}


def _final_infos(infos: Any) -> Infos:
    """Return the infos of ended episodes as columns.

    Some engines return these infos as an object array of dicts and None.
    """
    if isinstance(infos, np.ndarray):
        return columns([info or {} for info in infos.tolist()])
    return take_columns(infos or {}, slice(None))


def _put_leaf(i: int, target: np.ndarray[Any, Any], leaf: np.ndarray[Any, Any]) -> None:
    """Write the leaf of one row; a value without an array form is wrapped in an object array."""
    if leaf.dtype == object:
        target[i] = leaf[0]
    else:
        target[i] = leaf
