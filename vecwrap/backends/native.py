"""Environments with their own vector implementation, under vecwrap's layers.

CartPole's vector class, ale-py's ``AtariVectorEnv``, EnvPool's Gymnasium interface, Gymnasium's Sync and Async,
SuperSuit's: anything that steps n sub-environments at once and declares its autoreset mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorWrapper

from vecwrap.backends.local import LocalRows
from vecwrap.env.backend import Backend, Factory
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import ArgumentError, PlanError, VecwrapError
from vecwrap.rows import batch as batches
from vecwrap.rows.batch import Batch, object_array
from vecwrap.rows.gymnasium_form import from_gymnasium, to_gymnasium
from vecwrap.rows.infos import OF_ENDS, columns, own_copy
from vecwrap.rows.step_result import Autoreset, BoolArray, Frames, Infos, IntArray, StepResult
from vecwrap.sources.description import Description
from vecwrap.sources.failure import Failure, make_failure
from vecwrap.sources.sub_env import near_attribute

ENDS = ("terminal_observation", "TimeLimit.truncated")  # in the infos of SB3 and SuperSuit


class NativeBackend(Backend):
    """Another library's vector environment as the innermost one.

    All rows step together (``send`` takes all or none), and stepping happens in ``step_wait`` or ``recv``. These and
    ``call_wait`` ignore timeouts: Gymnasium's Async loses a step whose wait timed out, and the others have none.

    Args:
        vector_env: the environment to use; closing this closes it.
        autoreset: its autoreset mode, if its metadata does not declare it.
        masked_resets: whether it honours ``options["reset_mask"]``; None: only if known (Gymnasium's Sync and Async).
            Otherwise masked resets are refused, because an engine that ignores the mask resets every row.
        seed: used by the first reset if it is given none.
    """

    is_engine: ClassVar[bool] = True
    name: ClassVar[str] = "native"
    _why_no_masked_resets: ClassVar[str] = (
        'this engine is not known to honour options["reset_mask"] (one that ignores it resets every row); if it does, '
        "set masked_resets=True"
    )

    def __init__(
        self,
        vector_env: Any,
        *,
        autoreset: Autoreset | AutoresetMode | str | None = None,
        masked_resets: bool | None = None,
        seed: int | None = None,
    ) -> None:
        refuse_lacking(vector_env, "wrap: expected a gymnasium.vector.VectorEnv")
        self.vector_env = vector_env
        known = isinstance(vector_env, (SyncVectorEnv, AsyncVectorEnv))
        self._masked_resets = known if masked_resets is None else masked_resets
        self._request: tuple[str, Any, IntArray] | None = None
        self._seed_of: list[int | None] = [None] * vector_env.num_envs
        self._local: LocalRows | None = None  # of Gymnasium's Sync, whose sub-environments are here
        self._over: BoolArray = np.zeros(vector_env.num_envs, dtype=np.bool_)
        mode = _mode_of(vector_env, autoreset)
        # Gymnasium's Async does not cancel a pending autoreset on a reset, unless it shares memory.
        inner = _unwrapped(vector_env)
        self._resets_again = (
            isinstance(inner, AsyncVectorEnv) and not inner.shared_memory and mode is Autoreset.NEXT_STEP
        )
        factories: list[Factory] = [lambda: vector_env] * vector_env.num_envs  # never called: it has made its own
        super().__init__(factories, autoreset=mode, seed=seed)

    def _start(self, factories: Sequence[Factory]) -> Description:
        env = self.vector_env
        if isinstance(env, SyncVectorEnv):
            self._local = LocalRows(range(self.num_envs), [partial(_itself, one) for one in env.envs], self._interrupts)
            self._local.make(self.autoreset, debug=False)
        single_observation_space = getattr(env, "single_observation_space", None) or env.observation_space
        single_action_space = getattr(env, "single_action_space", None) or env.action_space
        name = type(getattr(env, "unwrapped", env)).__name__
        metadata = dict(getattr(env, "metadata", None) or {})
        spec = getattr(env, "spec", None)
        return Description(
            single_observation_space,
            single_action_space,
            metadata,
            getattr(env, "render_mode", None),
            spec if hasattr(spec, "id") else None,
            name,
        )

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _send_rows(self, actions: Batch, env_ids: IntArray) -> None:
        if len(env_ids) != self.num_envs:
            raise ArgumentError(
                f"{self.env_name} steps all {self.num_envs} sub-environments together: expected actions for all, "
                f"got {len(env_ids)}; vecwrap's own backends (dummy, subprocess, shmem) can step some"
            )
        self._request = ("step", batches.copy(actions), env_ids)  # the caller may change them before the engine steps

    def _reset_rows(self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        for i, seed in zip(env_ids.tolist(), seeds, strict=True):
            self._seed_of[i] = self._seed_of[i] if seed is None else seed
        arguments: dict[str, Any] = {}
        whole, of_ale = len(env_ids) == self.num_envs, _is_of_ale(self.vector_env)
        if any(seed is not None for seed in seeds):
            arguments["seed"] = _one_seed(seeds) if whole else list(seeds)
            if of_ale and isinstance(arguments["seed"], list):  # it takes the seeds of the reset rows only, -1 for none
                arguments["seed"] = np.array([-1 if seed is None else seed for seed in seeds])
        if not whole:
            if not self._masked_resets:
                raise ArgumentError(f"{self.env_name}: masked resets are refused: {self._why_no_masked_resets}")
            mask = np.zeros(self.num_envs, dtype=np.bool_)
            mask[env_ids] = True
            if "seed" in arguments and not of_ale:
                of: list[int | None] = [None] * self.num_envs
                for i, seed in zip(env_ids.tolist(), seeds, strict=True):
                    of[i] = seed
                arguments["seed"] = of
            options = {**(options or {}), "reset_mask": mask}
        if options is not None:
            arguments["options"] = own_copy(options)
        self._request = ("reset", arguments, env_ids)

    def _receive(self, count: int, timeout: float | None) -> StepResult:
        assert self._request is not None, "rows are pending"
        self._interrupts.hold()  # an interrupted engine may have stepped only some rows
        (kind, content, env_ids), self._request = self._request, None
        self._mark_home(env_ids)
        step = self._reset(content, env_ids) if kind == "reset" else self._step(content)
        self._latest_infos = step.infos, step.final_infos
        self._note_ends(step)
        return step

    def _of_engine(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Let the engine step or reset; its exceptions pass through, with a note about the remedy."""
        try:
            result = getattr(self.vector_env, name)(*args, **kwargs)
        except Exception as error:
            error.add_note(
                f"{self.env_name} raised this in {name}, and may have stepped only some of its sub-environments. "
                "Reset it before the next step; if that raises too, as after the death of one of its workers, build "
                "it again. With vecwrap.build instead, errors name the sub-environment that failed, and "
                'on_failure="restart" recreates what is lost.'
            )
            raise
        number, values = (2, "observations and infos") if name == "reset" else (5, "Gymnasium's five values")
        if not isinstance(result, tuple) or len(result) != number:
            got = f"a tuple of {len(result)}" if isinstance(result, tuple) else type(result).__name__
            raise PlanError(
                f"{self.env_name}.{name}: expected {values}, got {got}; vecwrap.from_sb3 takes environments in "
                "Stable-Baselines3's form, if their class is derived from its VecEnv"
            )
        return _in_numpy(result)

    def _reset(self, arguments: dict[str, Any], env_ids: IntArray) -> StepResult:
        observations, infos = self._of_engine("reset", **arguments)
        whole = len(env_ids) == self.num_envs
        rows: Any = slice(None) if whole else env_ids
        self._refuse_misfit(observations)
        infos = _by_column(self.vector_env, infos)
        batch = from_gymnasium(self.single_observation_space, observations)
        if not self._resets_again:
            self._over[env_ids] = False
        no, yes = np.zeros(len(env_ids), dtype=np.bool_), np.ones(len(env_ids), dtype=np.bool_)
        rewards = np.zeros(len(env_ids))
        return StepResult(
            env_ids=env_ids,
            rows=rows,
            observations=batch if whole else batches.take(batch, rows),
            rewards=rewards,
            terminations=no,
            truncations=no,
            first=yes,
            acted=no,
            live=yes,
            lost=no,
            raw_rewards=rewards,
            raw_dones=no,
            raw_first=yes,
            infos=_take_infos(infos, rows),
        )

    def _step(self, actions: Batch) -> StepResult:
        observations, rewards, terminations, truncations, infos = self._of_engine("step", to_gymnasium(actions))
        rewards = np.array(rewards, dtype=np.float64)
        terminations, truncations = np.array(terminations, dtype=np.bool_), np.array(truncations, dtype=np.bool_)
        dones = terminations | truncations
        infos = _by_column(self.vector_env, infos, dones)
        first = np.zeros(self.num_envs, dtype=np.bool_)
        acted = np.ones(self.num_envs, dtype=np.bool_)
        batch = from_gymnasium(self.single_observation_space, observations)
        final_obs = final_infos = None
        if self.autoreset is Autoreset.SAME_STEP:
            if "final_obs" not in infos:  # Gymnasium's name before 1.0, and ManiSkill's
                names = {"final_observation": "final_obs", "_final_observation": "_final_obs"}
                infos = {names.get(key, key): value for key, value in infos.items()}
            first = dones
            if dones.any():
                final_obs = self._final_observations(batch, infos, dones)
                final_infos = _final_infos(infos.get("final_info"))
        elif self.autoreset is Autoreset.NEXT_STEP:
            first, acted = self._over, ~self._over
            rewards[first] = 0.0  # a reset has no reward, whatever the engine reports
        self._over = dones.copy()
        return StepResult(
            env_ids=self.all_ids,
            rows=slice(None),
            observations=batch,
            rewards=rewards,
            terminations=terminations,
            truncations=truncations,
            first=first,
            acted=acted,
            live=acted | first,
            lost=np.zeros(self.num_envs, dtype=np.bool_),
            raw_rewards=rewards,
            raw_dones=dones & acted,
            raw_first=first,
            infos=_take_infos({key: value for key, value in infos.items() if key not in OF_ENDS}, slice(None)),
            final_obs=final_obs,
            final_infos=final_infos,
        )

    def _final_observations(self, batch: Batch, infos: Infos, dones: BoolArray) -> Batch:
        finals = infos.get("final_obs")
        if finals is None:
            raise PlanError(
                f'{self.env_name} resets in the same step but has no infos["final_obs"]: the terminal observation is '
                "lost; build it in next-step mode, or set its actual mode with autoreset="
            )
        out = batches.copy(batch)
        # One per row, as in Gymnasium, or all in one batch, which for a Tuple space is itself a tuple.
        tuples = isinstance(self.single_observation_space, spaces.Tuple)
        in_one = isinstance(finals, (dict, tuple) if tuples else dict)
        for i in np.flatnonzero(dones).tolist():
            single = batches.row(finals, i) if in_one else finals[i]
            if single is not None:
                batches.tree_map(_set_row(i), out, from_gymnasium(self.single_observation_space, single, single=True))
        return out

    def _refuse_misfit(self, observations: Any) -> None:
        """Refuse observations that are not n rows of the space, as if the batched space were all that is declared."""
        if isinstance(observations, np.ndarray) and isinstance(self.single_observation_space, spaces.Box):
            expected = (self.num_envs, *self.single_observation_space.shape)
            if observations.shape != expected:
                raise PlanError(
                    f"{self.env_name}: expected observations of shape {expected}, {self.num_envs} rows of "
                    f"{self.single_observation_space}, got {observations.shape}; set single_observation_space and "
                    "single_action_space to the spaces of one sub-environment"
                )

    def _follow(self, schedules: Sequence[bytes]) -> None:
        raise PlanError(
            f"{self.env_name}: a native engine resets its sub-environments itself; for a schedule of seeds, use one of "
            "vecwrap's backends"
        )

    def _request_frames(self, layer: VecEnv, env_ids: IntArray, opening: IntArray) -> None:
        raise PlanError(f"{self.env_name}: a native engine cannot send frames; recorders need vecwrap's backends")

    def _tell_frames(self, wanted: Sequence[Frames]) -> None:
        raise AssertionError("no layer around a native engine can ask for frames")

    def _poll(self, deadline: float | None) -> None:
        raise AssertionError("rows of a native engine arrive all at once")

    def _sub_env_states(self) -> tuple[None, str]:
        return None, f"{self.env_name} does not expose the state of its sub-environments"

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _ask(self, method: str, env_ids: Sequence[int], arguments: Sequence[tuple[Any, ...]]) -> None:
        self._question = (method, list(env_ids), list(arguments))
        if self._local is not None:
            self._local.ask(*self._question)

    def _answers(self, deadline: float | None) -> tuple[dict[int, Any], list[Failure]]:
        method, ids, arguments = self._question
        if self._local is not None:
            values, failures = self._local.answers()
            return values, [replace(failure, seed=self._seed_of[failure.index]) for failure in failures]
        if not ids:
            return {}, []
        try:
            return dict(zip(ids, self._ask_engine(method, ids, arguments), strict=True)), []
        except VecwrapError:
            raise
        except Exception as error:
            note = "" if len(ids) == 1 else f"\n{self.env_name} does not report which of {ids} failed."
            failure = make_failure(ids[0], error)
            return {}, [replace(failure, during=method, seed=self._seed_of[ids[0]], note=note)]

    def _answers_are_kept(self) -> bool:
        return self._local is not None  # how an engine reacts to an interrupt is unknown

    def _ask_engine(self, method: str, ids: list[int], arguments: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
        """Call a method through the engine, which calls all its sub-environments; return one value per id."""
        engine, name, everyone = self.vector_env, arguments[0][0], range(self.num_envs)
        if method == "call" and name == "render":
            frames = engine.render()
            return [frames[i] for i in ids]
        function = getattr(engine, "set_attr" if method == "set_attr" else "call", None)
        if function is None or method not in ("call", "get_attr", "set_attr", "has_attr"):
            raise ArgumentError(f"{self.env_name} has no {method}; its sub-environments cannot be reached one by one")
        if method in ("call", "set_attr") and set(ids) != set(everyone):
            raise ArgumentError(
                f"{self.env_name}: {method} takes all sub-environments, got {ids}; vecwrap's own backends (dummy, "
                "subprocess, shmem) can address some"
            )
        if method == "set_attr":
            values = {i: value for i, (_, value) in zip(ids, arguments, strict=True)}
            near = self._near(name, ids)
            function(name, [values[i] for i in everyone])
            return near
        if method == "has_attr":
            name, args, kwargs = "has_wrapper_attr", (name,), {}
        else:
            if isinstance(engine, AsyncVectorEnv):
                _refuse_missing(engine, name)
            _, args, kwargs = arguments[0] if method == "call" else (name, (), {})
        answers = function(name, *args, **kwargs)
        return [answers[i] for i in ids]

    def _envs_here(self) -> list[Any] | None:
        envs = getattr(_unwrapped(self.vector_env), "envs", None)
        if not isinstance(envs, (list, tuple)) or not all(isinstance(env, gymnasium.Env) for env in envs):
            return None
        return list(envs)

    def _near(self, name: str, ids: Sequence[int]) -> list[str | None]:
        """What ``SubEnv.set_attr`` returns, if the sub-environments can be looked at."""
        envs = self._envs_here()
        return [None if envs is None else near_attribute(envs[i], name) for i in ids]

    def _stop(self, timeout: float, terminate: bool) -> None:
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
    """Raise AttributeError here, because Gymnasium ends the worker of a sub-environment that raises."""
    lacking = [i for i, has in enumerate(engine.call("has_wrapper_attr", name)) if not has]
    if lacking:
        raise AttributeError(f"sub-environments {lacking} have no attribute {name!r}")


def refuse_lacking(engine: Any, expected: str) -> None:
    """Refuse what cannot be a vector environment, and name what is missing."""
    needed = {
        "num_envs": ("num_envs",),
        "single_observation_space": ("single_observation_space", "observation_space"),
        "single_action_space": ("single_action_space", "action_space"),
        **{name: (name,) for name in ("reset", "step", "close")},
    }
    lacking = [name for name, either in needed.items() if all(getattr(engine, one, None) is None for one in either)]
    if lacking:
        raise PlanError(
            f"{expected}, got {type(engine).__name__}, which has no {', '.join(lacking)}; set what is missing, or "
            "write one gymnasium.Env and let vecwrap.build vectorise it"
        )


def _mode_of(vector_env: Any, given: Autoreset | AutoresetMode | str | None) -> Autoreset:
    declared = (getattr(vector_env, "metadata", None) or {}).get("autoreset_mode")
    if declared is None and type(_unwrapped(vector_env)).__module__.startswith("supersuit."):
        declared = AutoresetMode.SAME_STEP  # always, without saying so
    name = type(vector_env).__name__
    if declared is None:
        if given is None:
            raise PlanError(
                f'{name} does not declare its autoreset mode: expected metadata["autoreset_mode"], or '
                'wrap(..., autoreset="next_step") (or "same_step", "disabled"), got neither'
            )
        return Autoreset.parse(given)
    mode = Autoreset.parse(declared)
    refuse_other_mode(name, mode, given)
    return mode


def refuse_other_mode(name: str, mode: Autoreset, given: Autoreset | AutoresetMode | str | None) -> None:
    """Raise PlanError if the given autoreset mode differs from the declared one."""
    if given is not None and Autoreset.parse(given) is not mode:
        raise PlanError(f"{name} declares {mode.value}, but got autoreset={given!r}; leave it out")


def _one_seed(seeds: Sequence[int | None]) -> Any:
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
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def rows_of_infos(engine: Any, infos: Any) -> list[dict[str, Any]]:
    """One dict for each row, of an engine that gives infos as a list of them (SuperSuit), or None."""
    rows, starts = list(infos or ()), getattr(engine, "idx_starts", ())
    if len(starts) == len(rows) + 1 and all(isinstance(ones, list) for ones in rows):
        # A reset of SuperSuit's workers gives a list for each of them: of (index among its rows, info) if not empty.
        some = {start + i: info for start, ones in zip(starts, rows, strict=False) for i, info in ones}
        rows = [some.get(i, {}) for i in range(engine.num_envs)]
    if infos is None:
        return [{}] * engine.num_envs
    if len(rows) != engine.num_envs or not all(isinstance(row, dict) for row in rows):
        raise PlanError(
            f"{type(engine).__name__}: expected infos as a dict of columns, or as a list of {engine.num_envs} dicts, "
            f"got {type(infos).__name__} of {len(rows)}"
        )
    return rows


def _by_column(engine: Any, infos: Any, dones: BoolArray | None = None) -> Infos:
    """An engine's infos as columns; those of a row that ended are also its ``final_info``.

    SuperSuit adds the infos of a reset to those of the step before it.
    """
    if isinstance(infos, dict):
        return infos
    rows = rows_of_infos(engine, infos)
    own = [{key: value for key, value in row.items() if key not in ENDS} for row in rows]
    if dones is None or any(rows[i].get("terminal_observation") is None for i in np.flatnonzero(dones).tolist()):
        return columns(own)
    ended = [info if done else {} for info, done in zip(own, dones.tolist(), strict=True)]
    finals = object_array([row.get("terminal_observation") for row in rows])
    return {**columns(own), "final_obs": finals, "final_info": columns(ended)}


def _final_infos(infos: Any) -> Infos:
    """The ended episodes' infos as columns: some engines return them as an object array of dicts and None."""
    if isinstance(infos, np.ndarray):
        return columns([info or {} for info in infos.tolist()])
    return _take_infos(infos or {}, slice(None))


def _set_row(i: int) -> Any:
    def put(target: np.ndarray[Any, Any], value: np.ndarray[Any, Any]) -> None:
        target[i] = value[0] if target.dtype == object else value

    return put


def _take_infos(infos: Infos, rows: Any) -> Infos:
    """These rows of an engine's infos, and all values that are not per row; copied, as the engine may reuse them."""
    out: Infos = {}
    for key, value in infos.items():
        if isinstance(value, dict):
            out[key] = _take_infos(value, rows)
        elif isinstance(value, np.ndarray) and value.ndim:
            taken = np.array(value[rows])
            if taken.dtype == object:
                taken = object_array([own_copy(each) for each in taken.flat]).reshape(taken.shape)
            out[key] = taken
        else:
            out[key] = own_copy(value)
    return out
