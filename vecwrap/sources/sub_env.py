"""One sub-environment: the only code that steps, autoresets and renders one. Every backend uses it.

The order within a step is fixed: step, frame, terminal observation, autoreset, ``first``. Results
are written into the sub-environment's row of the slots at once, so an environment that returns the
same buffer again and again does no harm, and the terminal observation is copied before the reset
overwrites it.
"""

from __future__ import annotations

import contextlib
import inspect
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import gymnasium

from vecwrap.errors import ArgumentError
from vecwrap.interrupts import close_quietly
from vecwrap.rows import batch as batches
from vecwrap.rows.infos import detached_copy
from vecwrap.rows.saved import is_plain
from vecwrap.rows.step_result import Autoreset, Frames
from vecwrap.rows.table import Slots
from vecwrap.sources.description import Env, EnvDescription, chain_of
from vecwrap.sources.env_holder import EnvHolder
from vecwrap.sources.failure import Failure, make_failure, outside_hint, refuse_no_pair
from vecwrap.sources.masks import masks_method, with_mask
from vecwrap.sources.own_spaces import load_space_states, own_spaces, seed_spaces, space_states
from vecwrap.sources.raw_rewards import NUMBERS, RawRewardRecorder, float_reward
from vecwrap.sources.returned_values import frame_of, returned_copy
from vecwrap.sources.saving import env_state, load_env_state
from vecwrap.sources.schedule import Schedule
from vecwrap.sources.source import RestartState, Source
from vecwrap.sources.source_factories import Factory


class SubEnv(EnvHolder, Source):
    """One environment, in one row."""

    kind: ClassVar[str] = "environment"
    takes_action: ClassVar[bool] = True

    def __init__(
        self, index: int, factory: Factory, mode: Autoreset, *, debug: bool = False
    ) -> None:
        self.index = index
        self.mode = mode
        self.debug = debug
        self._factory = factory
        self._slots: Slots
        self._row = 0
        self.recreate()

    def recreate(self) -> None:
        self._make_env()
        self._over = True  # no running episode
        self._seed: int | None = None
        self._options: dict[str, Any] | None = None  # of the reset that the running game began with
        self._episode = 0
        self._steps = 0
        self._steps_before = 0  # of the episode before the running one
        self._schedule: Schedule | None = None
        self._seed_of_restart: int | None = None
        self._autoresetting = False
        # Whether an ordinary step changes nothing but reward, observation and info.
        self._uneventful = False
        self._frames = Frames.NONE
        if self.recreate_counter is not None:
            self.recreate_counter.begin()

    def attach(self, slots: Slots, first_row: int) -> None:
        self._slots = slots
        self._row = first_row
        self.rows = range(first_row, first_row + 1)
        self._put = slots.observations.putter(first_row)
        self._put_final = slots.final_observations.putter(first_row)
        self._rewards = slots.rewards.data
        self._raw_rewards = slots.raw_rewards.data
        self._uneventful = False

    def want_frames(self, frames: Sequence[Frames]) -> None:
        (self._frames,) = frames
        self._uneventful = False

    def describe(self) -> EnvDescription:
        return EnvDescription.of(self.env)

    # -- what a backend asks -----------------------------------------------------------------------

    def reset(
        self, rows: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        self._reset(seeds[0], options)

    def _reset(self, seed: int | None, options: dict[str, Any] | None) -> None:
        self._over = True
        self._autoresetting = False
        self._uneventful = False
        self._begin(seed, detached_copy(options))
        # Only now: if the reset has forked the process, its copy has other slots.
        slots = self._slots
        row = self._row
        slots.rewards[row] = 0.0
        slots.terminations[row] = slots.truncations[row] = False
        slots.acted[row] = slots.completed[row] = False
        slots.first[row] = slots.observed[row] = True
        slots.raw_rewards[row], slots.raw_dones[row], slots.raw_first[row] = self._raw_of_reset()

    def step(self, action: Any = None) -> None:
        if self._over:
            self._step_after_end()
            return
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        if type(reward) not in NUMBERS:
            reward = float_reward(reward)
        done = bool(terminated or truncated)
        if self._masks is not None and not done:
            info = with_mask(info, self._masks)
        if self._raw_rewards_recorder is None:
            raw_reward = reward
            raw_done = done
            raw_first = False
        else:
            raw_reward, raw_done, raw_first = self._raw_rewards_recorder.after_step()
            if not self._raw_rewards_recorder.is_one_number:
                raw_reward = reward
            raw_done = raw_done or (done and not self._game_goes_on())
            raw_first = raw_first and not done
        slots = self._slots
        row = self._row
        if self._uneventful and not (done or raw_done or raw_first):
            self._rewards[row] = reward
            self._raw_rewards[row] = raw_reward
            if info or slots.has_infos:
                slots.put_info(row, info)
            # Last: a masked reset returns what is there, and an info may be refused.
            self._put(observation)
            return
        slots.rewards[row] = reward
        slots.raw_rewards[row] = raw_reward
        slots.raw_dones[row] = raw_done
        slots.terminations[row] = terminated
        slots.truncations[row] = truncated
        slots.acted[row] = slots.completed[row] = slots.observed[row] = True
        slots.raw_first[row] = raw_first
        slots.first[row] = self._uneventful = False
        if done and self.mode is Autoreset.SAME_STEP:
            self._end_and_begin(observation, info)
            return
        self._over = done
        self._write(observation, info)
        uneventful = not (done or raw_done or raw_first or self.debug)
        self._uneventful = uneventful and self._frames is Frames.NONE

    def call(
        self, method: str, rows: Sequence[int], arguments: Sequence[tuple[Any, ...]]
    ) -> tuple[dict[int, Any], list[Failure]]:
        return {0: self.answer(method, arguments[0])}, []

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name == "render":
            return returned_copy(self.env.render())
        return super()._call(name, args, kwargs)

    def _set_attr(self, name: str, value: Any) -> None:
        if is_plain(value):
            self._plain_attributes.add(name)
        super()._set_attr(name, value)

    def _has_attr(self, name: str) -> bool:
        return bool(self.env.has_wrapper_attr(name))

    def _state(self) -> dict[str, Any]:
        """Return what continuing needs; ``env`` is None if the environment was never reset."""
        slots = self._slots
        row = self._row
        env = None
        if not self._is_new:
            env = env_state(self.env)
        return {
            **self._counter_state(),
            "env": env,
            "spaces": space_states(self.env),
            "over": self._over,
            "seed": self._seed,
            "seed_of_takeover": self._seed_of_restart,
            # A file cannot hold options that are not plain.
            "options": self._options if is_plain(self._options) else None,
            "episode": self._episode,
            "steps": self._steps,
            "observation": batches.row(slots.observations.batch(), row),
            "rewards": float(slots.rewards[row]),
            "terminated": bool(slots.terminations[row]),
            "truncated": bool(slots.truncations[row]),
            "first": bool(slots.first[row]),
        }

    def _load_state(self, state: dict[str, Any], attributes: dict[str, Any]) -> None:
        if state["env"] is None:
            self._start_fresh(attributes)
        else:
            if self._episode == 0:
                # Make what an environment makes at its first reset; the state then replaces it.
                self.env.reset(options=detached_copy(state["options"]))
            self._is_new = False
            load_env_state(self.env, state["env"])
        load_space_states(self.env, state["spaces"])
        slots = self._slots
        row = self._row
        self._over = state["over"]
        self._seed = state["seed"]
        self._options = detached_copy(state["options"])
        self._seed_of_restart = state["seed_of_takeover"]
        self._episode = state["episode"]
        self._steps = state["steps"]
        slots.observations.put(row, state["observation"])
        slots.terminations[row] = state["terminated"]
        slots.truncations[row] = state["truncated"]
        slots.first[row] = state["first"]
        self._autoresetting = self._uneventful = False
        if self.recreate_counter is not None:
            self.recreate_counter.load(state.get("renewal"))

    def _follow(self, schedule: bytes, scheduled: int) -> None:
        self._schedule = pickle.loads(schedule)
        self._resume_schedule(scheduled)

    def _leave_seed(self, seed: int | None) -> None:
        self._seed_of_restart = seed

    def _scheduled(self) -> int:
        return int(self._slots.scheduled[self._row])

    def _resume_schedule(self, scheduled: int) -> None:
        self._slots.scheduled[self._row] = scheduled

    def restore(self, restart_states: Sequence[RestartState]) -> None:
        super().restore(restart_states)
        (restart_state,) = restart_states
        if restart_state.schedule is not None:
            self._follow(restart_state.schedule, restart_state.scheduled)

    def envs(self) -> list[Any]:
        return [self.env]

    def failures(
        self, rows: Sequence[int], error: BaseException, during: str, action: Any = None
    ) -> list[Failure]:
        """Report that it raised; until its next reset it has no running episode."""
        autoreset = during == "step" and self._over  # rows at rest raise nothing
        if during in ("step", "reset"):
            self._over = True
        failure = make_failure(self.index, error)
        if during == "step" and not autoreset:
            hint = outside_hint(self.env.action_space, action)
            failure = replace(failure, message=failure.message + hint)
        failure = replace(
            failure,
            seed=self._seed,
            episode=self._episode,
            step=self._steps,
            action=action,
            during=during,
            autoreset=autoreset,
            stepped=during == "step" and self._autoresetting,
        )
        return [failure]

    def refused(self, row: int, error: Exception, during: str, *, of_the_end: bool) -> Failure:
        """Name the episode that the refused result was part of."""
        opens_episode = bool(self._slots.first[self._row])
        action = None
        if during == "step":
            action = self._slots.actions.get_all([self._row])[0]
        (failure,) = self.failures([row], error, during, action)
        if not opens_episode:
            return replace(failure, autoreset=False, step=self._steps - 1)
        failure = replace(failure, episode=self._episode - 1)
        if of_the_end:
            return replace(failure, step=self._steps_before - 1, autoreset=False)
        return replace(failure, step=self._steps_before, autoreset=during == "step")

    # -- the environment and its wrappers ----------------------------------------------------------

    def _chain(self) -> list[Env]:
        return chain_of(self.env)

    def _attribute(self, name: str) -> Any:
        return self.env.get_wrapper_attr(name)

    def _holder_of(self, name: str) -> Env:
        holders = (
            wrapper
            for wrapper in chain_of(self.env)
            if not isinstance(wrapper, RawRewardRecorder) and _lives_on(wrapper, name)
        )
        return next(holders, self.env.unwrapped)

    def _make_env(self) -> None:
        self.env = self._factory()
        own_spaces(self.env)
        allow_no_options(self.env)
        self._is_new = True
        # Those set since then, which the state of a new environment includes.
        self._plain_attributes: set[str] = set()
        chain = chain_of(self.env)
        self._masks = masks_method(self.env)
        self._raw_rewards_recorder = next(
            (wrapper for wrapper in chain if isinstance(wrapper, RawRewardRecorder)), None
        )
        self._game_continues = [wrapper for wrapper in chain if hasattr(wrapper, "game_goes_on")]

    def _start_fresh(self, attributes: dict[str, Any]) -> None:
        """Ensure an environment that has never run, with these attributes and no others set."""
        if not self._is_new or not self._plain_attributes <= attributes.keys():
            close_quietly(self.env)
            self._make_env()
        for name, value in attributes.items():
            self._set_attr(name, value)

    # -- parts of resets and rows ------------------------------------------------------------------

    def _begin(self, seed: int | None, options: dict[str, Any] | None) -> None:
        if self._schedule is None:
            observation, info = self._reset_env(seed, options)
        else:
            observation, info = self._reset_on_schedule(self._schedule, seed, options)
        if self._masks is not None:
            info = with_mask(info, self._masks)
        self._over = False
        self._episode += 1
        self._steps_before = self._steps
        self._steps = 0
        self._write(observation, info)

    def _reset_env(self, seed: int | None, options: dict[str, Any] | None) -> Any:
        if seed is None:
            seed = self._seed_of_restart
        self._seed_of_restart = None
        goes_on = seed is None and self._game_goes_on()
        if self.recreate_counter is not None and not goes_on:
            seed = self._recreate_if_due(self.recreate_counter, seed)
        if seed is not None:
            self._seed = seed
            seed_spaces(self.env, seed)
        self._is_new = False
        if self._raw_rewards_recorder is not None:
            self._raw_rewards_recorder.in_play = goes_on
        given = None
        if options is not None:
            given = detached_copy(options)
        result = self.env.reset(seed=seed, options=options)
        refuse_no_pair(result)
        if not goes_on or (
            self._raw_rewards_recorder is not None and self._raw_rewards_recorder.first
        ):
            self._options = given
        return result

    def _reset_on_schedule(
        self, schedule: Schedule, seed: int | None, options: dict[str, Any] | None
    ) -> Any:
        if seed is None and self._game_goes_on():
            # An environment may write into them.
            observation, info = self._reset_env(None, detached_copy(options))
            if self._raw_rewards_recorder is None or not self._raw_rewards_recorder.first:
                return observation, _with_seed_info(info, None)
            # the game ended within its reset; the new one that follows is the schedule's
        if seed is not None:  # it begins the schedule anew
            self._resume_schedule(0)
        if seed is None or schedule.replace:
            episode = self._scheduled()
            seed, options = schedule.reset(episode, self.index, options)
            self._resume_schedule(episode + 1)
        observation, info = self._reset_env(seed, options)
        return observation, _with_seed_info(info, seed)

    def _write(self, observation: Any, info: dict[str, Any]) -> None:
        slots = self._slots
        if self.debug:
            self._refuse_foreign(observation)
        if info or slots.has_infos:
            slots.put_info(self._row, info)
        # After the info, which may be refused, and before a frame is rendered.
        self._put(observation)
        opening = self._steps == 0 or slots.raw_first[self._row]
        if self._frames is Frames.ALL or (self._frames is Frames.OPENING and opening):
            slots.frames[self._row] = frame_of(self.env.render)
        elif slots.frames:
            slots.frames.pop(self._row, None)

    def _refuse_foreign(self, observation: Any) -> None:
        if not self.env.observation_space.contains(observation):
            raise ValueError(
                f"observation: expected an element of {self.env.observation_space}, got "
                f"{observation!r}"
            )

    def _end_and_begin(self, observation: Any, info: dict[str, Any]) -> None:
        """Store the ended episode, then reset and write a fresh row, in same-step mode."""
        slots = self._slots
        row = self._row
        if self.debug:
            self._refuse_foreign(observation)
        self._put_final(observation)
        if info or slots.has_infos:
            slots.put_final_info(row, info)
        if self._frames is Frames.ALL:
            slots.final_frames[row] = frame_of(self.env.render)
        elif slots.final_frames:
            slots.final_frames.pop(row, None)
        slots.first[row] = self._over = self._autoresetting = True
        self._begin(None, None)
        self._autoresetting = False
        slots = self._slots
        raw_reward, raw_done, slots.raw_first[row] = self._raw_of_reset()
        if raw_done:
            slots.raw_of_step[row] = float(slots.raw_rewards[row]), bool(slots.raw_dones[row])
        elif slots.raw_of_step:
            slots.raw_of_step.pop(row, None)
        if raw_reward:
            slots.raw_rewards[row] += raw_reward
        if raw_done:
            slots.raw_dones[row] = True

    def _game_goes_on(self) -> bool:
        """Return whether the game continues after a lost life.

        The episode ended with that life, and the seedless reset that follows continues the game.
        """
        return any(wrapper.game_goes_on for wrapper in self._game_continues)

    def _step_after_end(self) -> None:
        if self.mode is Autoreset.NEXT_STEP:
            self._reset(None, None)
            return
        assert self.mode is Autoreset.EPISODIC, "the backend refuses to step an ended row"
        row = self._row
        self._slots.rest(slice(row, row + 1), keep_dones=True)  # the observation stays too
        self._slots.forget_info(row)

    def _raw_of_reset(self) -> tuple[float, bool, bool]:
        if self._raw_rewards_recorder is None:
            return 0.0, False, True
        return self._raw_rewards_recorder.after_reset()


def allow_no_options(env: Env) -> None:
    """Let environments and wrappers whose ``reset`` has no ``options`` be reset without any."""
    wrapper: Any
    for wrapper in chain_of(env):
        # Some are written in C, or have attributes that cannot be set.
        with contextlib.suppress(TypeError, ValueError):
            reset: Any = wrapper.reset
            parameters = inspect.signature(reset).parameters
            takes_any = inspect.Parameter.VAR_KEYWORD in [
                parameter.kind for parameter in parameters.values()
            ]
            if "seed" in parameters and "options" not in parameters and not takes_any:
                wrapper.reset = partial(_reset_without_options, reset)


def _reset_without_options(
    reset: Callable[..., Any], *, seed: int | None = None, options: Any = None
) -> Any:
    if options:
        raise ArgumentError(
            f"reset: {reset.__qualname__} takes no options, got {options!r}; add options=None to it"
        )
    return reset(seed=seed)


def _with_seed_info(info: dict[str, Any], seed: int | None) -> dict[str, Any]:
    """Add the seed of a scheduled reset to its info as ``episode_seed``.

    An entry of the environment's own with that name is renamed.
    """
    others = {
        "episode_seed_" if key == "episode_seed" else key: value
        for key, value in (info or {}).items()
    }
    if seed is None:
        return others
    return {**others, "episode_seed": seed}


def _lives_on(wrapper: Env, name: str) -> bool:
    """Return whether a wrapper has an attribute itself, beyond what Gymnasium forwards."""
    found = inspect.getattr_static(wrapper, name, _MISSING)
    if found is _MISSING:
        return False
    return not (
        isinstance(wrapper, gymnasium.Wrapper)
        and found is inspect.getattr_static(gymnasium.Wrapper, name, _MISSING)
    )


_MISSING = object()
