"""Episodes as ``.npz`` files: observations, actions, rewards and flags."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import CheckpointError, PlanError, at_least, chosen_envs, text_of
from vecwrap.rows.batch import Batch, leaves, take
from vecwrap.rows.columns import ARRAY_SPACES
from vecwrap.rows.saved import fitting, fitting_list, put
from vecwrap.rows.step_result import BoolArray, IntArray, StepResult
from vecwrap.wrappers.recording.run_files import make_folder, write_new

Array = np.ndarray[Any, np.dtype[Any]]
_SAVED = ("open", "episodes", "first_steps", "parts")


class RecordTrajectories(VecEnvWrapper):
    """Write every episode to a ``.npz`` file: observations, actions and rewards as they are at this place in the chain.

    A file holds one episode, ``env-003-episode-000012.npz``; one of more than ``max_steps`` agent steps is written in
    parts, ``env-003-episode-000012-part-000.npz`` and so on, so that memory is bounded: by ``(max_steps + 1)``
    observations per sub-environment. Episodes are the agent's, numbered from 0 for each sub-environment. With k steps::

        observations    (k + 1, ...)  from the first to the terminal one; observations[t + 1] follows actions[t]
        actions         (k, ...)
        rewards         (k,) float64  the agent's rewards
        raw_rewards     (k,) float64  the environment's own rewards
        terminations, truncations, raw_dones   (k,) bool; raw_dones: the environment's own episode ended
        header          JSON text

    Members of Dict and Tuple spaces have separate arrays: ``observations/camera``, ``actions/0``. The last observation
    of a part is the first of the next. The header contains ``env_id``, ``pipeline`` (its hash, or null), ``env`` (the
    sub-environment's index), ``episode``, ``part``, ``first_step`` (of the part within the episode), ``seed`` (of the
    episode's reset; null if none is known), and ``ended``: ``"terminated"``, ``"truncated"``, ``"lost"`` (with its
    sub-environment), ``"reset"`` (interrupted by one), ``"closed"``, or null if another part follows. Nothing in a file
    is pickled::

        with np.load(path, allow_pickle=False) as file:
            header, observations = json.loads(str(file["header"])), file["observations"]

    Each file is written completely or not at all, and overwrites nothing. A folder that cannot be written is an error
    at the first reset; a later write failure ends the recording with a warning, never the training.

    At an episode's end:
        The episode's file is written, with its terminal observation.

    Args:
        env: what it wraps.
        dir: the folder for the files, created if missing.
        envs: which sub-environments; None means all.
        max_steps: the maximum number of steps in a file.
        compress: whether files are compressed; the training waits meanwhile.

    Attributes:
        num_files: how many files were written.

    Raises:
        PlanError: observations or actions without an array form (Text, Graph, Sequence, OneOf, custom spaces), or
            arguments that do not fit.

    Example:
        >>> import gymnasium
        >>> import vecwrap
        >>> RecordTrajectories(vecwrap.build("CartPole-v1", n=2, backend="dummy"), "trajectories")
        <VecEnv CartPole-v1, n=2, dummy, same_step, wrappers RecordTrajectories>
    """

    _failed = True  # so that `close` writes nothing if `__init__` failed
    path_parameters: ClassVar[frozenset[str]] = frozenset({"dir"})
    not_hashed: ClassVar[frozenset[str]] = frozenset({"dir", "envs", "max_steps", "compress"})

    @classmethod
    def in_evaluation(cls, *, dir: str, **others: Any) -> dict[str, Any]:
        """An evaluation writes into its own folder, so that it does not move the training's files aside."""
        return {"dir": str(Path(dir, "eval"))}

    def __init__(
        self,
        env: VecEnv,
        dir: str = "trajectories",
        *,
        envs: tuple[int, ...] | None = None,
        max_steps: int = 1000,
        compress: bool = True,
    ) -> None:
        super().__init__(env)
        observations = _leaves_of("observations", self.single_observation_space)
        actions = _leaves_of("actions", self.single_action_space)
        ids = chosen_envs("record_trajectories: envs", envs, self.num_envs)
        at_least("record_trajectories: max_steps", max_steps, 1)
        self.dir = Path(dir).absolute()
        self.num_files = 0
        self._ids = ids
        self._place = np.full(self.num_envs, -1, dtype=np.int64)  # the index of a sub-environment's arrays
        self._place[list(ids)] = np.arange(len(ids))
        self._trajectories = _Trajectories(observations, actions, len(ids), max_steps)
        self._actions = {name: np.zeros((self.num_envs, *(s.shape or ())), s.dtype) for name, s in actions.items()}
        self._open = np.zeros(len(ids), dtype=np.bool_)  # an episode is running
        # In games: the rows whose agents have not been to move since their episode began.
        self._unopened = np.zeros(self.num_envs, dtype=np.bool_) if env.possible_agents else None
        self._episodes = np.full(len(ids), -1, dtype=np.int64)
        self._first_steps = np.zeros(len(ids), dtype=np.int64)
        self._parts = np.zeros(len(ids), dtype=np.int64)
        self._seeds: list[int | None] = [None] * len(ids)
        self._given: list[int | None] = [None] * self.num_envs  # seeds of resets that are under way
        self._compress = compress
        self._header: dict[str, Any] = {"env_id": self.core.env_id, "pipeline": None}
        self._made_folder = False
        self._failed = False

    def on_pipeline(self, pipeline: Any) -> None:
        self._header["pipeline"] = pipeline.hash

    def on_actions(self, actions: Batch, env_ids: IntArray) -> Batch:
        used = slice(None) if self._unopened is None else self.env.to_move[env_ids]
        for name, values in _flat("actions", actions).items():
            self._actions[name][env_ids[used]] = values[used]
        return actions

    def on_step(self, step: StepResult) -> None:
        if not self._failed:
            try:
                self._take(step)
            except Exception as error:  # a failed recording must never end the training
                self._give_up(error)
        places = self._place[step.env_ids]
        self._episodes[places[step.first & (places >= 0)]] += 1  # even after a failure, for saved states

    def on_close(self) -> None:
        if self._failed:
            return
        try:
            for place in np.flatnonzero(self._open).tolist():
                self._write(place, "closed")
        except Exception as error:
            self._give_up(error)

    def __del__(self) -> None:
        self._close_wrapper()

    def wrapper_state(self) -> dict[str, Any]:
        return {
            "envs": list(self._ids),
            "trajectories": self._trajectories.state(),
            **{name: getattr(self, f"_{name}").copy() for name in _SAVED},
            "seeds": list(self._seeds),
        }

    def load_wrapper_state(self, state: dict[str, Any]) -> None:
        self._make_folder()
        self._trajectories.load_state(state["trajectories"])
        for name in _SAVED:
            put(getattr(self, f"_{name}"), state[name], name)
        seeds = fitting_list(state["seeds"], len(self._seeds), "seeds")
        self._seeds = [seed if seed is None else fitting(seed, 0, "seeds") for seed in seeds]
        if self._failed:
            self._drop_running()

    def refuse_wrapper_state(self, state: dict[str, Any]) -> None:
        parts, ids = state["trajectories"], list(self._ids)
        if state["envs"] != ids:
            raise CheckpointError(
                f"record_trajectories: envs: the state is for {state['envs']}, but this environment records {ids}; use "
                "the same envs"
            )
        longest, most = max(len(part["rewards"]) for part in parts), self._trajectories.capacity
        if longest > most:
            raise CheckpointError(
                f"record_trajectories: max_steps: the state has a part of {longest} steps, but this environment writes "
                f"at most {most}; use {longest} or more"
            )

    # -- parts ---------------------------------------------------------------------------------------------------------

    def before_reset(self, env_ids: IntArray, seeds: Sequence[int | None]) -> None:
        self._make_folder()
        for i, seed in zip(env_ids.tolist(), seeds, strict=True):
            self._given[i] = seed

    def _make_folder(self) -> None:
        if not self._made_folder:
            make_folder(self.dir, "record_trajectories")
            self._made_folder = True

    def _take(self, step: StepResult) -> None:
        places = self._place[step.env_ids]
        mine = places >= 0
        running = mine.copy()
        running[mine] = self._open[places[mine]]
        acted = (step.acted if self._unopened is None else step.completed) & running
        if acted.any():
            going_on = places[acted]
            for place in going_on[self._trajectories.full(going_on)].tolist():  # not sooner: it may have ended there
                self._write(place, None)
            self._add(step, acted, going_on)
        ended = (step.dones | step.lost) & running
        for k in np.flatnonzero(ended | (step.first & running)).tolist():
            self._write(int(places[k]), _reason(step, k) if ended[k] else "reset")
        opened = step.first & mine
        if self._unopened is not None:  # an agent's first transition begins with its first turn
            self._unopened[step.env_ids[step.first]] = True
            opened = self._unopened[step.env_ids] & step.to_move & mine
            self._unopened[step.env_ids[opened]] = False
        if opened.any():
            self._begin(step, opened, places[opened])

    def _add(self, step: StepResult, which: BoolArray, places: IntArray) -> None:
        env_ids = step.env_ids[which]
        transitions: dict[str, Array] = {name: values[env_ids] for name, values in self._actions.items()}
        for name in ("rewards", "terminations", "truncations"):
            transitions[name] = getattr(step, name)[which]
        paid, over = step.raw_of_step or (step.raw_rewards, step.raw_dones)
        transitions["raw_rewards"], transitions["raw_dones"] = paid[which], over[which]
        observations = _flat("observations", take(step.terminal_observations, which))
        self._trajectories.add(places, transitions, observations)

    def _begin(self, step: StepResult, which: BoolArray, places: IntArray) -> None:
        self._trajectories.begin(places, _flat("observations", take(step.observations, which)))
        self._open[places] = True
        self._first_steps[places] = self._parts[places] = 0
        told = scheduled = None
        if self.core.on_schedule:  # otherwise the environment itself reports this key, with its own meaning
            told, scheduled = step.infos.get("_episode_seed"), step.infos.get("episode_seed")
        for k, place in zip(np.flatnonzero(which).tolist(), places.tolist(), strict=True):
            i = int(step.env_ids[k])
            seed, self._given[i] = self._given[i], None
            # After a failed reset another seed was used; a schedule reports the one it used, if any.
            if step.lost[k] or self.core.on_schedule:
                seed = None
            self._seeds[place] = int(scheduled[k]) if told is not None and scheduled is not None and told[k] else seed

    def _write(self, place: int, ended: str | None) -> None:
        """Write a sub-environment's current part, and start the next; ``ended`` is why the episode ended."""
        steps = int(self._trajectories.length[place])
        if ended is not None:
            self._open[place] = False
        if not steps:
            return
        i, episode, part = self._ids[place], int(self._episodes[place]), int(self._parts[place])
        header = {
            **self._header,
            "env": i,
            "episode": episode,
            "part": part,
            "first_step": int(self._first_steps[place]),
            "seed": self._seeds[place],
            "ended": ended,
        }
        name = f"env-{i:03d}-episode-{episode:06d}" + (f"-part-{part:03d}" if part or ended is None else "")
        arrays: dict[str, Any] = {"header": np.array(json.dumps(header)), **self._trajectories.part(place)}
        save = np.savez_compressed if self._compress else np.savez
        write_new(self.dir / f"{name}.npz", lambda file: save(file, **arrays))
        self.num_files += 1
        if ended is None:
            self._trajectories.go_on(place)
            self._first_steps[place] += steps
            self._parts[place] += 1

    def _give_up(self, error: Exception) -> None:
        self._failed = True
        self._drop_running()
        warnings.warn(
            "record_trajectories: the recording has ended; the run continues, and what was written is kept. "
            f"{text_of(error)}",
            RuntimeWarning,
            stacklevel=2,
        )

    def _drop_running(self) -> None:
        """Drop the running episodes: the rest is not recorded, and a saved state must not continue with a gap."""
        self._open[:] = False
        self._trajectories.length[:] = 0


def _reason(step: StepResult, k: int) -> str:
    if step.lost[k] and not step.acted[k]:
        return "lost"
    return "terminated" if step.terminations[k] else "truncated"


def _leaves_of(name: str, space: spaces.Space[Any]) -> dict[str, spaces.Space[Any]]:
    """Name the leaves of a space as ``_flat`` names those of a batch."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        members = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        found: dict[str, spaces.Space[Any]] = {}
        for key, member in members:
            inner = _leaves_of(f"{name}/{key}", member)
            if twice := found.keys() & inner.keys():
                raise PlanError(
                    f'record_trajectories: two members of {space} are called "{twice.pop()}" in a file; rename one'
                )
            found.update(inner)
        return found
    if not isinstance(space, ARRAY_SPACES):
        raise PlanError(
            f"record_trajectories: {name}: expected Box, Discrete, MultiBinary or MultiDiscrete, or Dict and Tuple of "
            f"these, got {space}, which would have to be pickled. Leave it out with filter_obs, or change its form "
            "inside"
        )
    return {name: space}


def _flat(name: str, batch: Batch) -> dict[str, Array]:
    return {"/".join(map(str, (name, *path))): array for path, array in leaves(batch)}


class _Trajectories:
    """The current part of the episode of each of m sub-environments; ``length`` is its number of transitions, (m,)."""

    def __init__(
        self,
        observations: dict[str, spaces.Space[Any]],
        actions: dict[str, spaces.Space[Any]],
        num_rows: int,
        capacity: int,
    ) -> None:
        self.capacity = capacity
        self.length: IntArray = np.zeros(num_rows, dtype=np.int64)
        # np.empty: pages not yet written take no memory
        self._observations = {
            name: np.empty((num_rows, capacity + 1, *(space.shape or ())), space.dtype)
            for name, space in observations.items()
        }
        self._transitions: dict[str, Array] = {
            name: np.empty((num_rows, capacity, *(space.shape or ())), space.dtype) for name, space in actions.items()
        }
        for name in ("rewards", "raw_rewards"):
            self._transitions[name] = np.empty((num_rows, capacity))
        for name in ("terminations", "truncations", "raw_dones"):
            self._transitions[name] = np.empty((num_rows, capacity), dtype=np.bool_)

    def begin(self, rows: IntArray, observations: dict[str, Array]) -> None:
        self.length[rows] = 0
        for name, values in observations.items():
            self._observations[name][rows, 0] = values

    def add(self, rows: IntArray, transitions: dict[str, Array], observations: dict[str, Array]) -> None:
        at = self.length[rows]
        for name, values in transitions.items():
            self._transitions[name][rows, at] = values
        for name, values in observations.items():
            self._observations[name][rows, at + 1] = values
        self.length[rows] += 1

    def full(self, rows: IntArray) -> BoolArray:
        return np.equal(self.length[rows], self.capacity)

    def part(self, row: int) -> dict[str, Array]:
        k = int(self.length[row])
        observations = {name: values[row, : k + 1] for name, values in self._observations.items()}
        return {**observations, **{name: values[row, :k] for name, values in self._transitions.items()}}

    def go_on(self, row: int) -> None:
        for values in self._observations.values():
            values[row, 0] = values[row, self.length[row]]
        self.length[row] = 0

    def state(self) -> list[dict[str, Array]]:
        return [{name: values.copy() for name, values in self.part(row).items()} for row in range(len(self.length))]

    def load_state(self, state: list[dict[str, Array]]) -> None:
        for row, part in enumerate(fitting_list(state, len(self.length), "trajectories")):
            self.length[row] = len(part["rewards"])
            for name, values in self.part(row).items():
                put(values, part[name], name)
