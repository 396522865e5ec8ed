"""An engine: another library's vector environment, which steps several rows at once.

CartPole's vector class, ale-py's ``AtariVectorEnv``, EnvPool's Gymnasium interface, Gymnasium's
Sync and Async, SuperSuit's: anything that steps n sub-environments at once and declares its
autoreset mode. Its infos stay columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.utils import batch_space, iterate

from vecwrap.errors import ArgumentError, PlanError
from vecwrap.rows import batch as batches
from vecwrap.rows.batch import Batch
from vecwrap.rows.gymnasium_form import from_gymnasium, to_gymnasium
from vecwrap.rows.infos import END_KEYS, detached_copy, scatter_columns, take_columns
from vecwrap.rows.step_result import Autoreset, BoolArray, Frames, Infos, StepResult
from vecwrap.rows.table import Slots
from vecwrap.sources.description import EnvDescription
from vecwrap.sources.engine_calls import EngineCalls
from vecwrap.sources.engine_infos import (
    begins_game,
    by_column,
    merged,
    num_rows_of,
    of_rows,
    put_finals,
    with_mask,
    with_tensors,
)
from vecwrap.sources.failure import Failure
from vecwrap.sources.known_engines import (
    MAX_SEED,
    declared_mode,
    ends_with_lives,
    is_of_ale,
    is_of_envpool,
    refuse_lacking,
    reports_games,
    resets_by_mask,
    returns_fresh_arrays,
    rows_at_once,
    unwrapped,
)
from vecwrap.sources.raw_rewards import SEVERAL_NUMBERS
from vecwrap.sources.returned_values import frame_of
from vecwrap.sources.saving import CannotSaveError, offers_state
from vecwrap.sources.source import RestartState, Source

_BOOL = np.dtype(np.bool_)
_FLOAT64 = np.dtype(np.float64)
_WHOLE = slice(None)


@dataclass(frozen=True)
class EngineOptions:
    """What a pipeline sets of an engine that it names.

    Attributes:
        make_seeded: makes the engine with a seed for each row, if a reset takes no seeds.
        seeds: those that it was made with, if they are known.
        clip_rewards: whether the agent's rewards become their sign.
        stacks_one: whether observations are stacks of a single frame, whose axis goes.
    """

    make_seeded: Callable[[Sequence[int]], Any] | None = None
    seeds: Sequence[int] = ()
    clip_rewards: bool = False
    stacks_one: bool = False


class Engine(EngineCalls, Source):
    """A vector environment and its rows of the slots, which step together.

    The options are those of ``vecwrap.wrap``, and those of a pipeline that names the engine;
    ``make`` makes another one if it is lost.
    """

    kind: ClassVar[str] = "engine"
    gives_columns: ClassVar[bool] = True
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
        make: Callable[[], Any] | None = None,
        options: EngineOptions | None = None,
    ) -> None:
        refuse_lacking(vector_env, "wrap: expected a gymnasium.vector.VectorEnv")
        self.vector_env = vector_env
        self.name = type(self.unwrapped).__name__
        self.num_rows: int = vector_env.num_envs
        self.rows_at_once = self._rows_at_once()
        if masked_resets is None:
            masked_resets = resets_by_mask(vector_env)
        self._masked_resets = masked_resets
        self._lent = lent
        self._make = make
        # Of an engine that was recreated: the seed of the first reset of each row, by its row.
        self._restart_seeds: dict[int, int | None] = {}
        self._options = options or EngineOptions()
        self._seeds = list(self._options.seeds)
        self._frames: Sequence[Frames] = [Frames.NONE] * self.num_rows
        self._wants_frames = False
        self._is_fresh = returns_fresh_arrays(vector_env)
        self._gives_tensors = False  # and nobody reads them
        self._reports_games = reports_games(vector_env)
        self._ignores_seeds = is_of_envpool(vector_env) and self._options.make_seeded is None
        self._seed_of: list[int | None] = [None] * self.num_rows
        self._over: BoolArray = np.zeros(self.num_rows, dtype=np.bool_)
        self._ids = np.arange(self.num_rows)
        self._yes: BoolArray = np.ones(self.rows_at_once, dtype=np.bool_)
        self._no: BoolArray = np.zeros(self.rows_at_once, dtype=np.bool_)
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
        if self._options.stacks_one:
            self._space = spaces.Box(0, 255, self._space.shape[1:], self._space.dtype)
        self._expected_shape: tuple[int, ...] | None = None
        if isinstance(self._space, spaces.Box):
            self._expected_shape = (self.rows_at_once, *self._space.shape)

    def _rows_at_once(self) -> int:
        """Return how many rows come from a step: all; refuse an engine that returns fewer."""
        number = rows_at_once(self.vector_env)
        if number < self.num_rows:
            raise PlanError(
                f"{self.name}: expected an engine that returns all its {self.num_rows} rows in a "
                f"step, got batch_size={number}; leave batch_size out, or give the engine itself "
                "to vecwrap.wrap, for send() and recv()"
            )
        return self.num_rows

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
            why_no_state=self._why_no_state(),
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
            if seed is not None and not self._ignores_seeds:
                self._seed_of[i] = seed
        if is_of_ale(self.vector_env):
            seeds = [seed and seed % MAX_SEED for seed in seeds]
        arguments: dict[str, Any] = {}
        whole = len(rows) == self.num_rows
        everyone = range(self.num_rows)
        if self._options.make_seeded is not None and any(seed is not None for seed in seeds):
            self._make_again(seeds)
            seeds = [None] * len(rows)
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

    def _make_again(self, seeds: Sequence[int | None]) -> None:
        """Make the engine with the seeds of a reset, unless it was made with them just now."""
        given = [seed for seed in seeds if seed is not None]
        if len(given) < self.num_rows:
            raise ArgumentError(
                f"{self.name} takes seeds only when it is made: expected seeds for all "
                f"{self.num_rows} rows and a reset of all, got {len(given)}"
            )
        if given != self._seeds:
            assert self._options.make_seeded is not None
            self.vector_env.close()
            self.vector_env = self._options.make_seeded(given)
        self._seeds = []  # its next episodes are others

    def reset(
        self, rows: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        own = list(rows)
        if self._restart_seeds:
            seeds = self._seeds_after_restart(own, seeds)
        batch, infos = self._reset(own, self.arguments_of_reset(own, seeds, options))
        slots = self._slots
        slots.forget_result()
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
            slots.raw_first[at] = begins_game(infos)[own]
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
        if isinstance(infos, dict) and num_rows_of(observations) == len(ids) < self.num_rows:
            # EnvPool returns the rows that it has reset.
            infos = scatter_columns(of_rows(infos, len(ids)), ids, self.num_rows)
            return self._batch(observations), infos
        self._refuse_misfit(observations)
        batch = batches.take(self._batch(observations), ids)
        return batch, by_column(self.vector_env, infos)

    def step(self, action: Any = None) -> None:
        """Step with the actions in the slots, or with a batch that the engine may write into."""
        if self._restart_seeds:
            everyone = range(self.num_rows)
            self.reset(everyone, [None] * self.num_rows, None)
            return
        actions = action
        if actions is None:
            actions = batches.copy(batches.take(self._slots.actions.batch(), self._at))
        result, dones = self._result(self._of_engine("step", in_gymnasium(actions)), self._over)
        if self.mode is Autoreset.NEXT_STEP:
            self._over = dones
        self._slots.put_result(self.rows, result)

    def _result(self, values: tuple[Any, ...], over: BoolArray) -> tuple[StepResult, BoolArray]:
        """Return the rows of a step, and which of them ended; those that were ``over`` open."""
        observations, rewards, terminations, truncations, infos = values
        self._refuse_misfit(observations)
        rewards = self._column("rewards", rewards, _FLOAT64)
        terminations = self._column("terminations", terminations, _BOOL)
        truncations = self._column("truncations", truncations, _BOOL)
        dones = terminations | truncations
        if type(infos) is not dict or infos:
            infos = by_column(self.vector_env, infos, dones)
        any_done = np.count_nonzero(dones)
        any_over = np.count_nonzero(over)
        yes = self._yes
        no = self._no
        result = StepResult(  # by position, which takes half the time
            self._ids,
            _WHOLE,
            self._batch(observations),
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
                result.first = result.raw_first = dones | result.first
                if self._resets_rows:
                    infos = self._reset_ended(result, infos, dones)
                else:
                    infos = put_finals(self.name, self._space, result, infos, dones)
        elif not any_over:
            result.uneventful_flags = terminations, truncations, yes, no
        if self._reports_games and (any_over or any_done):
            result.raw_first = result.first & begins_game(infos)
        if self._options.clip_rewards:
            result.rewards = np.sign(rewards)
        if infos:
            result.infos = {key: value for key, value in infos.items() if key not in END_KEYS}
            if not self._is_fresh:
                result.infos = take_columns(result.infos, _WHOLE)
        if self._wants_frames:
            result.frames = self._frames_of(result.first)
        return result, dones

    def _column(self, name: str, column: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Return one of the columns of a step as an array that the engine does not reuse."""
        own: np.ndarray[Any, Any] = column
        if type(column) is not np.ndarray or column.dtype is not dtype or not self._is_fresh:
            own = np.array(column, dtype)
        if own.shape != (self.rows_at_once,):
            self._refuse_column(name, own)
        return own

    def _batch(self, observations: Any) -> Batch:
        if (
            self._is_fresh
            and isinstance(observations, np.ndarray)
            and observations.dtype == self._space.dtype
        ):
            return observations
        if self._gives_tensors:
            return batches.copy(observations)
        return from_gymnasium(self._space, observations)

    def _refuse_column(self, name: str, column: np.ndarray[Any, Any]) -> NoReturn:
        several = ""
        if name == "rewards" and column.ndim > 1:
            several = f". {SEVERAL_NUMBERS}"
        raise PlanError(
            f"{self.name}.step: expected {self.rows_at_once} {name}, got shape "
            f"{column.shape}{several}"
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
        if self._options.stacks_one:
            result = (result[0][:, 0], *result[1:])
        if self._is_fresh:
            return result
        self._gives_tensors = (
            type(result[0]) is not np.ndarray
            and not self.debug
            and self._slots.takes_tensors(result[0])
        )
        if not self._gives_tensors:
            return batches.in_numpy(result)
        has_finals = name == "step" and self.mode is Autoreset.SAME_STEP
        result = with_tensors(self._space, result, has_finals=has_finals)
        self._slots.hold_tensors(result[0])
        return result

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
        expected = self._expected_shape
        if expected is not None and getattr(observations, "shape", expected) != expected:
            raise PlanError(
                f"{self.name}: expected observations of shape {expected}, {self.rows_at_once} rows "
                f"of {self._space}, got {tuple(observations.shape)}; set "
                "single_observation_space and single_action_space to the spaces of one "
                "sub-environment"
            )
        if self.debug:
            space = batch_space(self._space, self.rows_at_once)
            for i, one in enumerate(iterate(space, observations)):
                if not self._space.contains(one):
                    raise PlanError(
                        f"{self.name}: expected observations in {self._space}, got {one!r} in its "
                        f"row {i}"
                    )

    # -- saved states ------------------------------------------------------------------------------

    def _why_no_state(self) -> str:
        if offers_state(self.vector_env) and self.rows_at_once == self.num_rows:
            return ""
        return f"{self.name} does not expose the state of its sub-environments"

    def call(
        self, method: str, rows: Sequence[int], arguments: Sequence[tuple[Any, ...]]
    ) -> tuple[dict[int, Any], list[Failure]]:
        if method == "state":
            return {row: self._state_of(row) for row in rows}, []
        if method == "load_state":
            self._load_states([state for state, _ in arguments])
            return dict.fromkeys(rows), []
        return super().call(method, rows, arguments)

    def _state_of(self, row: int) -> dict[str, Any]:
        """Return what a row goes on from; the first one has the engine's own state, too."""
        if self._restart_seeds:
            raise CannotSaveError(f"{self.name} was recreated, and has not begun again")
        slots = self._slots
        at = self._at.start + row
        env = []
        if row == 0:
            env = [detached_copy(self.vector_env.state_dict())]
        return {
            "env": env,
            "over": bool(self._over[row]),
            "seed": self._seed_of[row],
            "seed_of_takeover": None,
            "options": None,
            "episode": 0,
            "steps": 0,
            "observation": batches.row(slots.observations.batch(), at),
            "terminated": bool(slots.terminations[at]),
            "truncated": bool(slots.truncations[at]),
            "first": bool(slots.first[at]),
        }

    def _load_states(self, states: Sequence[dict[str, Any]]) -> None:
        (own,) = states[0]["env"]
        self.vector_env.load_state_dict(detached_copy(own))
        slots = self._slots
        slots.forget_result()
        self._restart_seeds = {}
        self._over = np.array([state["over"] for state in states])
        self._seed_of = [state["seed"] for state in states]
        for at, state in zip(self.rows, states, strict=True):
            slots.observations.put(at, state["observation"])
            slots.terminations[at] = state["terminated"]
            slots.truncations[at] = state["truncated"]
            slots.first[at] = state["first"]

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

    # -- restarts ----------------------------------------------------------------------------------

    def recreate(self) -> None:
        assert self._make is not None, "only a runner that has made the engine recreates it"
        made = self._make()
        before = self.vector_env
        self.vector_env = made
        self.__dict__.pop("sub_envs", None)
        if type(made) is not type(before) or made.num_envs != self.num_rows:
            raise PlanError(
                f"{self.name}: expected an engine of {self.num_rows} rows again, got a "
                f"{type(made).__name__} of {made.num_envs}"
            )

    def restore(self, restart_states: Sequence[RestartState]) -> None:
        names = dict.fromkeys(name for state in restart_states for name in state.attributes)
        for name in names:
            rows = [i for i, state in enumerate(restart_states) if name in state.attributes]
            values = [(name, restart_states[i].attributes[name]) for i in rows]
            _, failures = self.call("set_attr", rows, values)
            if failures:
                raise failures[0].error()
        self._restart_seeds = {i: state.seed for i, state in enumerate(restart_states)}
        self._over = self._no.copy()
        self.want_frames([state.frames for state in restart_states])

    def _seeds_after_restart(
        self, rows: Sequence[int], seeds: Sequence[int | None]
    ) -> Sequence[int | None]:
        """Return the seeds of these rows' reset, after a first one of all rows of a new engine."""
        everyone = range(self.num_rows)
        own = self._restart_seeds
        if len(rows) < len(own) == self.num_rows:
            first = [own[i] for i in everyone]
            self._reset(everyone, self.arguments_of_reset(everyone, first, None))
        given = list(seeds)
        for place, i in enumerate(rows):
            if given[place] is None:
                given[place] = own.get(i)
        self._restart_seeds = {i: seed for i, seed in own.items() if i not in rows}
        return given

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


def _end_workers(engine: AsyncVectorEnv) -> None:
    engine.closed = True
    for process in engine.processes:
        process.kill()
        process.join()
    for pipe in engine.parent_pipes:
        if pipe is not None:
            pipe.close()


def in_gymnasium(actions: Batch) -> Any:
    """The actions in the form that a vector environment takes."""
    if isinstance(actions, np.ndarray) and actions.dtype != object:
        return actions
    return to_gymnasium(actions)


def one_seed(seeds: Sequence[int | None]) -> Any:
    """The seeds as one int if they are consecutive, because not every engine takes a list."""
    first = seeds[0]
    if first is not None and list(seeds) == list(range(first, first + len(seeds))):
        return first
    return list(seeds)
