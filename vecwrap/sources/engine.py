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
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space, iterate

from vecwrap.errors import ArgumentError, PlanError, VecwrapError
from vecwrap.interrupts import is_interrupt
from vecwrap.rows import batch as batches
from vecwrap.rows.batch import Batch
from vecwrap.rows.gymnasium_form import from_gymnasium, to_gymnasium
from vecwrap.rows.infos import END_KEYS, detached_copy, scatter_columns, take_columns
from vecwrap.rows.step_result import Autoreset, BoolArray, Frames, Infos, StepResult
from vecwrap.rows.table import Slots
from vecwrap.sources.description import EnvDescription
from vecwrap.sources.engine_infos import by_column, in_numpy, merged, put_finals, with_mask
from vecwrap.sources.failure import Failure, make_failure
from vecwrap.sources.known_engines import (
    declared_mode,
    ends_with_lives,
    is_of_ale,
    refuse_lacking,
    reports_games,
    resets_by_mask,
    returns_fresh_arrays,
    unwrapped,
)
from vecwrap.sources.raw_rewards import SEVERAL_NUMBERS
from vecwrap.sources.returned_values import frame_of
from vecwrap.sources.source import Source
from vecwrap.sources.sub_env import SubEnv

_BOOL = np.dtype(np.bool_)
_FLOAT64 = np.dtype(np.float64)
_WHOLE = slice(None)


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
        if masked_resets is None:
            masked_resets = resets_by_mask(vector_env)
        self._masked_resets = masked_resets
        self._lent = lent
        self._frames: Sequence[Frames] = [Frames.NONE] * self.num_rows
        self._wants_frames = False
        self._is_fresh = returns_fresh_arrays(vector_env)
        self._reports_games = reports_games(vector_env)
        self._seed_of: list[int | None] = [None] * self.num_rows
        self._returned: Any = None  # observations as it returned them, if they are converted
        self._over: BoolArray = np.zeros(self.num_rows, dtype=np.bool_)
        self._ids = np.arange(self.num_rows)
        self._yes: BoolArray = np.ones(self.num_rows, dtype=np.bool_)
        self._no: BoolArray = np.zeros(self.num_rows, dtype=np.bool_)
        self._yes.flags.writeable = self._no.flags.writeable = False
        own_mode = declared_mode(vector_env, autoreset)
        # Gymnasium's Async does not cancel a pending autoreset on a reset, unless it shares memory.
        inner = unwrapped(vector_env)
        self._resets_again = (
            isinstance(inner, AsyncVectorEnv)
            and not inner.shared_memory
            and own_mode is Autoreset.NEXT_STEP
        )
        self.mode = self._mode(own_mode, autoreset)
        # Whether this class resets ended rows within the step, by a masked reset.
        self._resets_rows = self.mode is Autoreset.SAME_STEP and own_mode is not self.mode
        self._space = (
            getattr(vector_env, "single_observation_space", None) or vector_env.observation_space
        )
        self.name = type(self.unwrapped).__name__

    def _mode(
        self, own_mode: Autoreset, autoreset: Autoreset | AutoresetMode | str | None
    ) -> Autoreset:
        """Return the mode asked for; masked resets give same-step and disabled besides its own."""
        if autoreset is None:
            return own_mode
        mode = Autoreset.parse(autoreset)
        if mode is own_mode:
            return mode
        by_masked_resets = mode in (Autoreset.SAME_STEP, Autoreset.DISABLED)
        if by_masked_resets and ends_with_lives(self.vector_env):
            raise PlanError(
                f"autoreset: expected {own_mode.value} with episodic_life, because masked "
                f"resets of EnvPool begin a new game where a life was lost, got {mode.value}; make "
                "the engine with episodic_life=False"
            )
        if by_masked_resets and self._masked_resets and not self._resets_again:
            return mode
        remedy = f'set autoreset="{own_mode.value}"'
        if by_masked_resets:
            remedy += f"; {mode.value} takes an engine that can reset some of its rows"
        name = type(self.vector_env).__name__
        raise PlanError(f"{name} declares {own_mode.value}, expected {mode.value}; {remedy}")

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
            if is_of_ale(self.vector_env) and isinstance(arguments["seed"], list):
                arguments["seed"] = np.array([-1 if seed is None else seed for seed in seeds])
        if not whole:
            options = {**(options or {}), "reset_mask": np.isin(everyone, rows)}
        if options is not None:
            arguments["options"] = detached_copy(options)
        return arguments

    def reset(
        self, rows: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        own = list(rows)
        batch, infos = self._reset(own, self.arguments_of_reset(rows, seeds, options))
        slots = self._slots
        slots.forget_result()
        slots.returned_observations = None
        if not self._resets_again:
            self._over = self._over.copy()
            self._over[own] = False
        at = [self._at.start + i for i in own]
        slots.observations.fill(at, batch)
        slots.rewards[at] = slots.raw_rewards[at] = 0.0
        slots.terminations[at] = slots.truncations[at] = slots.raw_dones[at] = False
        slots.acted[at] = slots.completed[at] = False
        slots.first[at] = slots.observed[at] = slots.raw_first[at] = True
        if self._reports_games:
            slots.raw_first[at] = _begins_game(infos)[own]
        slots.put_columns(self.rows, take_columns(infos, slice(None)), {})
        slots.forget_frames(self.rows)
        if self._wants_frames:
            frames = self._frames_of(np.isin(self._ids, own))
            slots.frames.update(
                (self._at.start + i, frames[i]) for i in own if frames[i] is not None
            )

    def _reset(self, rows: Sequence[int], arguments: dict[str, Any]) -> tuple[Batch, Infos]:
        """Reset these rows; return their observations, and the infos of all rows."""
        observations, infos = self._of_engine("reset", **arguments)
        ids = np.array(rows)
        if isinstance(infos, dict) and _num_rows_of(observations) == len(ids) < self.num_rows:
            # EnvPool returns the rows that it has reset.
            return from_gymnasium(self._space, observations), scatter_columns(
                infos, ids, self.num_rows
            )
        self._refuse_misfit(observations)
        batch = batches.take(from_gymnasium(self._space, observations), ids)
        return batch, by_column(self.vector_env, infos)

    def step(self, action: Any = None) -> None:
        """Step with the actions in the slots, or with a batch that the engine may write into."""
        actions = action
        if actions is None:
            actions = batches.copy(batches.take(self._slots.actions.batch(), self._at))
        if not isinstance(actions, np.ndarray) or actions.dtype == object:
            actions = to_gymnasium(actions)
        values = self._of_engine("step", actions)
        observations, rewards, terminations, truncations, infos = values
        self._refuse_misfit(observations)
        rewards = self._column("rewards", rewards, _FLOAT64)
        terminations = self._column("terminations", terminations, _BOOL)
        truncations = self._column("truncations", truncations, _BOOL)
        dones = terminations | truncations
        infos = by_column(self.vector_env, infos, dones)
        any_done = np.count_nonzero(dones)
        over = self._over
        any_over = self.mode is Autoreset.NEXT_STEP and np.count_nonzero(over)
        if not self._resets_rows:
            self._over = dones
        yes = self._yes
        no = self._no
        batch = self._batch(observations)
        self._slots.returned_observations = batch, self._returned
        result = StepResult(  # by position, which takes half the time
            self._ids,
            _WHOLE,
            batch,
            rewards,
            terminations,
            truncations,
            no,  # first
            yes,  # acted
            yes,  # completed
            yes,  # observed
            yes,  # to_move
            yes,  # alive
            no,  # lost
            rewards,  # raw_rewards
            no,  # raw_dones
            no,  # raw_first
            {},  # infos
        )
        if any_over:
            rewards[over] = 0.0  # a reset has no reward, whatever the engine reports
            result.first = result.raw_first = over
            result.acted = result.completed = ~over
        if self._reports_games:
            rewards = np.array(infos["reward"], np.float64)
            rewards[~result.acted] = 0.0
            result.raw_rewards = rewards
        if any_done:
            result.raw_dones = dones & result.acted
            if self._reports_games:
                game_over = np.asarray(infos["terminated"], np.bool_)
                result.raw_dones &= game_over | truncations
            if self.mode is Autoreset.SAME_STEP:
                result.first = result.raw_first = dones
                if self._resets_rows:
                    infos = self._reset_ended(result, infos, dones)
                else:
                    infos = put_finals(self.name, self._space, result, infos, dones)
        elif not any_over:
            result.uneventful_flags = terminations, truncations, yes, no
        if self._reports_games and (any_over or any_done):
            result.raw_first = result.first & _begins_game(infos)
        if infos:
            result.infos = {key: value for key, value in infos.items() if key not in END_KEYS}
            if not self._is_fresh:
                result.infos = take_columns(result.infos, _WHOLE)
        if self._wants_frames:
            result.frames = self._frames_of(result.first)
        self._slots.put_result(self.rows, result)

    def _column(self, name: str, column: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Return one of the columns of a step as an array that the engine does not reuse."""
        own: np.ndarray[Any, Any] = column
        if type(column) is not np.ndarray or column.dtype is not dtype or not self._is_fresh:
            own = np.array(column, dtype)
        if own.shape != (self.num_rows,):
            self._refuse_column(name, own)
        return own

    def _batch(self, observations: Any) -> Batch:
        if (
            self._is_fresh
            and isinstance(observations, np.ndarray)
            and observations.dtype == self._space.dtype
        ):
            return observations
        return from_gymnasium(self._space, observations)

    def _refuse_column(self, name: str, column: np.ndarray[Any, Any]) -> NoReturn:
        several = ""
        if name == "rewards" and column.ndim > 1:
            several = f". {SEVERAL_NUMBERS}"
        raise PlanError(
            f"{self.name}.step: expected {self.num_rows} {name}, got shape {column.shape}{several}"
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
        if self._is_fresh:
            return result
        self._returned = result[0]
        return in_numpy(result)

    def _reset_ended(self, result: StepResult, infos: Infos, dones: BoolArray) -> Infos:
        """Reset the rows that ended; return the infos, of the new episodes in these rows."""
        ended = np.flatnonzero(dones)
        if self._wants_frames:
            frames = self._frames_of(self._no)
            result.final_frames = tuple(
                frame if is_done else None
                for frame, is_done in zip(frames, dones.tolist(), strict=True)
            )
        if not self._is_fresh:  # the reset may write into the arrays of the step
            infos = take_columns(infos, _WHOLE)
        result.final_infos = take_columns(with_mask(infos, dones), _WHOLE)
        arguments: dict[str, Any] = {}
        if len(ended) < self.num_rows:
            arguments["options"] = {"reset_mask": dones.copy()}
        batch, infos_of_reset = self._reset(ended.tolist(), arguments)
        result.final_obs = result.observations
        result.observations = batches.copy(result.observations)
        batches.scatter(result.observations, ended, batch)
        return merged(infos, infos_of_reset, dones)

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
        self._frames = frames
        self._wants_frames = any(wanted is not Frames.NONE for wanted in frames)

    def _render(self) -> Any:
        images = self.vector_env.render()
        if not isinstance(images, (tuple, list, np.ndarray)) or len(images) != self.num_rows:
            raise PlanError(f"{self.name}.render: expected {self.num_rows} frames, one for a row")
        return images

    def _frames_of(self, first: BoolArray) -> tuple[Any, ...]:
        """Render all rows; return the frames that are wanted, and None for the other rows."""
        opening = [bool(opens) for opens in first]
        wanted = [
            frames is Frames.ALL or (frames is Frames.OPENING and opens)
            for frames, opens in zip(self._frames, opening, strict=True)
        ]
        if not any(wanted):
            return (None,) * self.num_rows
        images = frame_of(self._render)
        if isinstance(images, Exception):
            images = [images] * self.num_rows
        return tuple(
            image if is_wanted else None for image, is_wanted in zip(images, wanted, strict=True)
        )

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
        envs = getattr(unwrapped(self.vector_env), "envs", None)
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
            engine = unwrapped(self.vector_env)
            if not isinstance(engine, AsyncVectorEnv):
                raise
            _end_workers(engine)  # one of them has died, and Gymnasium has left the others running


def _itself(env: Any) -> Any:
    return env


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


def one_seed(seeds: Sequence[int | None]) -> Any:
    """The seeds as one int if they are consecutive, because not every engine takes a list."""
    first = seeds[0]
    if first is not None and list(seeds) == list(range(first, first + len(seeds))):
        return first
    return list(seeds)


def _begins_game(infos: Infos) -> BoolArray:
    """Where a reset has begun a new game of EnvPool's, and not the next life of one."""
    begins: BoolArray = np.asarray(infos["elapsed_step"]) == 0
    return begins


def _num_rows_of(observations: Any) -> int:
    """How many rows an engine's batch has; 0 if its form does not say."""
    while isinstance(observations, dict) and observations:
        observations = next(iter(observations.values()))
    if isinstance(observations, np.ndarray):
        return len(observations)
    return 0
