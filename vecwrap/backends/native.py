"""Environments that bring their own vector implementation, under vecwrap's layers.

CartPole's vector class, ale-py's ``AtariVectorEnv``, EnvPool's Gymnasium interface, Gymnasium's Sync and Async:
whatever steps n sub-environments at once and declares what it does after an episode's end.
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

from vecwrap import batch as batches
from vecwrap.backends.base import Backend, Factory
from vecwrap.backends.description import Description
from vecwrap.backends.local import LocalRows
from vecwrap.batch import Batch, object_array
from vecwrap.contract import Autoreset, BoolArray, Frames, Infos, IntArray, StepResult
from vecwrap.errors import ArgumentError, PlanError, VecwrapError
from vecwrap.failure import Failure, make_failure
from vecwrap.gymnasium_form import from_gymnasium, to_gymnasium
from vecwrap.infos import columns, own_copy
from vecwrap.vec_env import VecEnv

__all__ = ["NativeBackend", "refuse_other_mode"]

_FINAL = ("final_obs", "_final_obs", "final_info", "_final_info", "final_observation", "_final_observation")


class NativeBackend(Backend):
    """A vector environment of somebody else's, taken as the innermost one.

    All rows step together (``send`` takes all or none), and stepping happens in ``step_wait`` or ``recv``. These, and
    ``call_wait``, look at no timeout: Gymnasium's Async loses a step whose wait it gave up, the others know none.

    Args:
        vector_env: what is taken; closing this closes it.
        autoreset: what it does after an episode's end, where its metadata does not say it.
        masked_resets: whether it honours ``options["reset_mask"]``; None means where that is known (Gymnasium's Sync
            and Async). Elsewhere a masked reset is refused, for an engine that ignores the mask resets every row.
        seed: used by the first reset, where that is given none.
    """

    is_engine: ClassVar[bool] = True
    name: ClassVar[str] = "native"
    _why_no_masked_resets: ClassVar[str] = (
        'this engine is not known to honour options["reset_mask"] (one that ignores it resets every row); if it does, '
        "say masked_resets=True"
    )

    def __init__(
        self,
        vector_env: Any,
        *,
        autoreset: Autoreset | AutoresetMode | str | None = None,
        masked_resets: bool | None = None,
        seed: int | None = None,
    ) -> None:
        self.vector_env = vector_env
        known = isinstance(vector_env, (SyncVectorEnv, AsyncVectorEnv))
        self._masked_resets = known if masked_resets is None else masked_resets
        self._request: tuple[str, Any, IntArray] | None = None
        self._seed_of: list[int | None] = [None] * vector_env.num_envs
        self._local: LocalRows | None = None  # of Gymnasium's Sync, whose sub-environments are here
        self._over: BoolArray = np.zeros(vector_env.num_envs, dtype=np.bool_)
        mode = _mode_of(vector_env, autoreset)
        # Gymnasium's Async forgets to take back an autoreset that a reset has overtaken, unless it shares memory.
        inner = _unwrapped(vector_env)
        self._resets_again = (
            isinstance(inner, AsyncVectorEnv) and not inner.shared_memory and mode is Autoreset.NEXT_STEP
        )
        factories: list[Factory] = [_made_already] * vector_env.num_envs
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
                f"got {len(env_ids)}; a backend of vecwrap's own (dummy, subprocess, shmem) takes some"
            )
        self._request = ("step", batches.copy(actions), env_ids)  # the caller's own may change before the engine steps

    def _reset_rows(self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        for i, seed in zip(env_ids.tolist(), seeds, strict=True):
            self._seed_of[i] = self._seed_of[i] if seed is None else seed
        arguments: dict[str, Any] = {}
        whole, of_ale = len(env_ids) == self.num_envs, _is_of_ale(self.vector_env)
        if any(seed is not None for seed in seeds):
            arguments["seed"] = _one_seed(seeds) if whole else list(seeds)
            if of_ale and isinstance(arguments["seed"], list):  # it takes those of the rows that are reset, -1 for none
                arguments["seed"] = np.array([-1 if seed is None else seed for seed in seeds])
        if not whole:
            if not self._masked_resets:
                raise ArgumentError(f"{self.env_name}: masked resets are refused, for {self._why_no_masked_resets}")
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
        assert self._request is not None, "rows are out"
        self._interrupts.hold()  # from here on: an engine that is interrupted has stepped some rows and others not
        (kind, content, env_ids), self._request = self._request, None
        self._mark_home(env_ids)
        step = self._reset(content, env_ids) if kind == "reset" else self._step(content)
        self._note_ends(step)
        return step

    def _of_engine(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Let the engine step or reset; what it raises comes as it is, with a note of what to do."""
        try:
            return getattr(self.vector_env, name)(*args, **kwargs)
        except Exception as error:
            error.add_note(
                f"{self.env_name} raised this in {name}, and may have stepped some sub-environments and others not. "
                "Reset it before the next step; where that raises too, as after the death of one of its workers, build "
                "it again. vecwrap.build steps the same sub-environments with errors that name the one that failed, "
                'and makes what is lost anew with on_failure="restart".'
            )
            raise

    def _reset(self, arguments: dict[str, Any], env_ids: IntArray) -> StepResult:
        observations, infos = self._of_engine("reset", **arguments)
        whole = len(env_ids) == self.num_envs
        rows: Any = slice(None) if whole else env_ids
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
        first = np.zeros(self.num_envs, dtype=np.bool_)
        acted = np.ones(self.num_envs, dtype=np.bool_)
        batch = from_gymnasium(self.single_observation_space, observations)
        final_obs = final_infos = None
        if self.autoreset is Autoreset.SAME_STEP:
            first = dones
            if dones.any():
                final_obs = self._final_observations(batch, infos, dones)
                final_infos = _final_infos(infos.get("final_info"))
        elif self.autoreset is Autoreset.NEXT_STEP:
            first, acted = self._over, ~self._over
            rewards[first] = 0.0  # a reset earns nothing, whatever the engine pays for it
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
            lost=np.zeros(self.num_envs, dtype=np.bool_),
            raw_rewards=rewards,
            raw_dones=dones & acted,
            raw_first=first,
            infos=_take_infos({key: value for key, value in infos.items() if key not in _FINAL}, slice(None)),
            final_obs=final_obs,
            final_infos=final_infos,
        )

    def _final_observations(self, batch: Batch, infos: Infos, dones: BoolArray) -> Batch:
        finals = infos.get("final_obs", infos.get("final_observation"))
        if finals is None:
            raise PlanError(
                f'{self.env_name} resets in the same step but gives no infos["final_obs"]: the terminal observation is '
                "lost; build it in next-step mode, or say what it really does with autoreset="
            )
        out = batches.copy(batch)
        # One for each row, as Gymnasium has it, or all in one batch, which of a Tuple space is itself a tuple.
        tuples = isinstance(self.single_observation_space, spaces.Tuple)
        in_one = isinstance(finals, (dict, tuple) if tuples else dict)
        for i in np.flatnonzero(dones).tolist():
            single = batches.row(finals, i) if in_one else finals[i]
            if single is not None:
                batches.tree_map(_set_row(i), out, from_gymnasium(self.single_observation_space, single, single=True))
        return out

    def _follow(self, schedules: Sequence[bytes]) -> None:
        raise PlanError(
            f"{self.env_name}: a native engine resets its sub-environments by itself; a schedule of seeds needs "
            "vecwrap's backends"
        )

    def _request_frames(self, layer: VecEnv, env_ids: IntArray, opening: IntArray) -> None:
        raise PlanError(f"{self.env_name}: a native engine renders only when asked; recorders need vecwrap's backends")

    def _tell_frames(self, wanted: Sequence[Frames]) -> None:
        raise AssertionError("no layer around a native engine can ask for frames")

    def _poll(self, deadline: float | None) -> None:
        raise AssertionError("rows of a native engine come all at once")

    def _sub_env_states(self) -> tuple[None, str]:
        return None, f"{self.env_name} gives no state of its sub-environments"

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
            note = "" if len(ids) == 1 else f"\n{self.env_name} does not say which of {ids} it was."
            failure = make_failure(ids[0], error)
            return {}, [replace(failure, during=method, seed=self._seed_of[ids[0]], note=note)]

    def _answers_are_kept(self) -> bool:
        return self._local is not None  # nobody knows what an engine makes of an interrupt

    def _ask_engine(self, method: str, ids: list[int], arguments: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
        """Ask an engine, which asks all its sub-environments; gives a value for each of ``ids``.

        Raises:
            ArgumentError: it cannot ask for that, or would ask more than these.
            Exception: what a sub-environment raised.
        """
        engine, name, everyone = self.vector_env, arguments[0][0], range(self.num_envs)
        if method == "call" and name == "render":
            frames = engine.render()
            return [frames[i] for i in ids]
        function = getattr(engine, "set_attr" if method == "set_attr" else "call", None)
        if function is None or method not in ("call", "get_attr", "set_attr", "has_attr"):
            raise ArgumentError(f"{self.env_name} has no {method}; its sub-environments cannot be reached one by one")
        if method in ("call", "set_attr") and set(ids) != set(everyone):
            raise ArgumentError(
                f"{self.env_name}: {method} takes all sub-environments, got {ids}; a backend of vecwrap's own (dummy, "
                "subprocess, shmem) takes some"
            )
        if method == "set_attr":
            values = {i: value for i, (_, value) in zip(ids, arguments, strict=True)}
            function(name, [values[i] for i in everyone])
            return [None] * len(ids)
        if method == "has_attr":
            name, args, kwargs = "has_wrapper_attr", (name,), {}
        else:
            if isinstance(engine, AsyncVectorEnv):
                _refuse_missing(engine, name)
            _, args, kwargs = arguments[0] if method == "call" else (name, (), {})
        answers = function(name, *args, **kwargs)
        return [answers[i] for i in ids]

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
            _end_workers(engine)  # one of them has died, and Gymnasium has left the others as they are


def _made_already() -> gymnasium.Env[Any, Any]:
    raise AssertionError("a native engine makes its own sub-environments")


def _itself(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    return env


def _unwrapped(engine: Any) -> Any:
    """The engine itself, under Gymnasium's own wrappers of vectors."""
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
    """Raise AttributeError here, for Gymnasium ends the worker of a sub-environment that raises."""
    lacking = [i for i, has in enumerate(engine.call("has_wrapper_attr", name)) if not has]
    if lacking:
        raise AttributeError(f"sub-environments {lacking} have no attribute {name!r}")


def _mode_of(vector_env: Any, given: Autoreset | AutoresetMode | str | None) -> Autoreset:
    declared = (getattr(vector_env, "metadata", None) or {}).get("autoreset_mode")
    name = type(vector_env).__name__
    if declared is None:
        if given is None:
            raise PlanError(
                f'{name} does not say what follows the end of an episode: expected metadata["autoreset_mode"], or '
                'wrap(..., autoreset="next_step") (or "same_step", "disabled"), got neither'
            )
        return Autoreset.parse(given)
    mode = Autoreset.parse(declared)
    refuse_other_mode(name, mode, given)
    return mode


def refuse_other_mode(name: str, mode: Autoreset, given: Autoreset | AutoresetMode | str | None) -> None:
    """Raise PlanError where another mode is asked for than the one that something has."""
    if given is not None and Autoreset.parse(given) is not mode:
        raise PlanError(f"{name} declares {mode.value}, and autoreset={given!r} was asked for; leave it out")


def _one_seed(seeds: Sequence[int | None]) -> Any:
    """The seed as the user gave it: an int where they follow each other, for not every engine takes a list."""
    first = seeds[0]
    if first is not None and list(seeds) == list(range(first, first + len(seeds))):
        return first
    return list(seeds)


def _final_infos(infos: Any) -> Infos:
    """The ended episodes' infos as columns: of some engines they come as an object array of dicts and None."""
    if isinstance(infos, np.ndarray):
        return columns([info or {} for info in infos.tolist()])
    return _take_infos(infos or {}, slice(None))


def _set_row(i: int) -> Any:
    def put(target: np.ndarray[Any, Any], value: np.ndarray[Any, Any]) -> None:
        target[i] = value[0] if target.dtype == object else value

    return put


def _take_infos(infos: Infos, rows: Any) -> Infos:
    """These rows of an engine's infos, and all of what is no array of rows; as copies, for who gave them writes on."""
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
