"""Episodes as a Minari data set: observations, actions, rewards, flags and infos."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from gymnasium import spaces

from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import PlanError, at_least, read_names, text_of
from vecwrap.rows.batch import Batch, in_numpy, row
from vecwrap.rows.infos import row_of
from vecwrap.rows.step_result import IntArray, StepResult
from vecwrap.wrappers.recording.minari_data_set import (
    MAX_STEPS,
    MinariDataSet,
    RecordedEpisode,
    check_installed,
    max_steps_of,
)
from vecwrap.wrappers.recording.run_files import make_folder

_SEED_COLUMNS = ("episode_seed", "_episode_seed")
# as Minari reads it; a namespace has two characters or more
_DATASET_ID = re.compile(r"([-\w]{2,}/)*[-\w]*\w-v\d+", re.ASCII)

_LEAF_SPACES = (
    spaces.Box,
    spaces.Discrete,
    spaces.MultiBinary,
    spaces.MultiDiscrete,
    spaces.Text,
)


class RecordTrajectories(VecEnvWrapper):
    """Write every episode, as the agent sees it at this place, into a Minari data set.

    The data set is in ``dir/dataset_id/data``: ``minari.MinariDataset`` takes that path, and if
    ``MINARI_DATASETS_PATH`` is ``dir``, ``minari.load_dataset`` takes the id. If the data set
    exists, episodes are appended, also by several programs at once; it must have the same spaces.

    An episode is added in the step in which it ends, so a program that is killed loses only the
    running episodes. With k steps, an episode has, as Minari defines it::

        observations    (k + 1, ...)  observations[t + 1] is what actions[t] led to
        actions         (k, ...)
        rewards         (k,) float64  what ``step`` returns at this place: clipped outside of
                                      ``clip_reward``, the environment's own inside of it
        terminations, truncations     (k,) bool
        infos           dict of (k + 1, ...), each with a mask ``_key``, (k + 1,) bool

    Images are stored as they are, without JPEG. Observations and actions of Dict and Tuple spaces
    are dicts and tuples of arrays. An episode that is interrupted is truncated at its last step, as
    with Minari's own ``DataCollector``; an episode without a step is not written.

    Infos are numbers, text and arrays of one shape; nested dicts become names such as
    ``"episode/r"``. As in a step's ``infos``, a value that a step does not have is 0 or empty, and
    its mask is False. Minari reads episodes together only if all have the same infos, so the data
    set's first episode decides their names, shapes and dtypes. What does not fit is not recorded,
    and there is one warning.

    Minari's ``storage.get_episode_metadata`` returns for each episode ``id``, ``total_steps``,
    ``seed`` (of its reset, if known), ``env`` (the row), ``first_step`` (not 0 if the episode
    continues another, see ``max_steps``), ``pipeline`` (the pipeline's hash, or null) and
    ``ended``: ``"terminated"``, ``"truncated"``, ``"lost"`` (with its sub-environment), ``"reset"``
    (interrupted by one), ``"max_steps"``, ``"loaded"`` or ``"closed"``.

    A folder that cannot be written is an error at the first reset; a later write failure ends the
    recording with a warning, never the training.

    At an episode's end:
        The episode is added to the data set, with its terminal observation.

    Args:
        env: what it wraps.
        dir: the folder of data sets, created if missing.
        dataset_id: the data set's name in it, ``(namespace/)name-v0``.
        info_keys: names of infos to record, ``()`` for none; one that the first episode does
            not have becomes a float64. None means all that the first episode has.
        max_steps: an episode of more steps is written in pieces of so many, each truncated at its
            end; memory holds one piece for each row. Minari reads at most 32767 steps.

    Attributes:
        path: the folder ``data`` of the data set.
        num_episodes: how many episodes were added.

    Raises:
        PlanError: Minari or pyarrow is not installed, a space that Minari has no form for (Graph,
            Sequence, OneOf and custom spaces), a game of several agents, a data set of other
            spaces, or arguments that do not fit.

    Example:
        >>> import vecwrap
        >>> env = vecwrap.build("CartPole-v1", n=2, backend="dummy")
        >>> RecordTrajectories(env, "datasets", dataset_id="cartpole/random-v0")
        <VecEnv CartPole-v1, n=2, dummy, same_step, wrappers RecordTrajectories>

    """

    _opened = False
    path_parameters: ClassVar[frozenset[str]] = frozenset({"dir"})
    not_hashed: ClassVar[frozenset[str]] = frozenset(
        {"dir", "dataset_id", "info_keys", "max_steps"}
    )

    @classmethod
    def summary(cls, *args: Any, **kwargs: Any) -> str:
        """Nothing; Minari that is not installed is refused before anything is started."""
        check_installed()
        return ""

    @classmethod
    def in_evaluation(cls, *, dir: str, **others: Any) -> dict[str, Any]:
        """Return the arguments for an evaluation: its episodes are not among the training's."""
        return {"dir": str(Path(dir, "eval"))}

    def __init__(
        self,
        env: VecEnv,
        dir: str = "datasets",
        *,
        dataset_id: str = "episodes-v0",
        info_keys: tuple[str, ...] | None = None,
        max_steps: int = MAX_STEPS,
    ) -> None:
        super().__init__(env)
        check_installed()
        if env.possible_agents:
            raise PlanError(
                "record_trajectories: expected rows with one agent each, got a game of several: "
                "Minari's episodes are of one agent. Put `opponents` inside, and record one seat"
            )
        if not _DATASET_ID.fullmatch(dataset_id):
            raise PlanError(
                'record_trajectories: dataset_id: expected "(namespace/)name-v0" in letters, '
                f'digits, "-" and "_", two or more in a namespace, got "{dataset_id}"'
            )
        for name in ("observations", "actions"):
            _check_space(name, getattr(self, f"single_{name[:-1]}_space"))
        self.num_episodes: int = 0
        if info_keys is not None:
            info_keys = tuple(read_names(info_keys))
        self._info_keys = info_keys
        longest = max_steps_of(self.single_observation_space, self.single_action_space)
        self._max_steps = min(at_least("record_trajectories: max_steps", max_steps, 1), longest)
        self._data_set = MinariDataSet(
            Path(dir, dataset_id, "data").absolute(),
            dataset_id,
            self.single_observation_space,
            self.single_action_space,
            self.core.description.spec,
        )
        self._data_set.check()
        self._running: list[RecordedEpisode | None] = [None] * self.num_envs
        self._ended: list[RecordedEpisode] = []  # that are not yet in the data set
        self._actions: list[Any] = [None] * self.num_envs
        self._seeds: list[int | None] = [None] * self.num_envs  # of resets that are under way
        self._pipeline_hash: str | None = None
        self._warned = False
        self._failed = False  # until something could not be written

    @property
    def path(self) -> Path:
        return self._data_set.folder

    def on_pipeline(self, pipeline: Any) -> None:
        self._pipeline_hash = pipeline.hash

    def on_actions(self, actions: Batch, env_ids: IntArray) -> Batch:
        if not self._failed:
            taken = in_numpy(actions)
            for k, i in enumerate(env_ids.tolist()):
                self._actions[i] = row(taken, k)
        return actions

    def on_step(self, step: StepResult) -> None:
        if not self._failed:
            with self._surviving():
                self._take(step)
            self._warn_of_unrecorded()

    def on_close(self) -> None:
        if self._opened:
            self._end_all("closed")
            self._data_set.close()

    def __del__(self) -> None:
        self._close_wrapper()

    def load_wrapper_state(self, state: dict[str, Any]) -> None:
        """End the running episodes: those of the loaded state began elsewhere."""
        self._open()
        self._end_all("loaded")

    def before_reset(self, env_ids: IntArray, seeds: Sequence[int | None]) -> None:
        self._open()
        for i, seed in zip(env_ids.tolist(), seeds, strict=True):
            self._seeds[i] = seed

    def _open(self) -> None:
        if not self._opened:
            make_folder(self.path, "record_trajectories")
            self._data_set.open()
            self._opened = True

    def _take(self, step: StepResult) -> None:
        """Add the steps to the running episodes, then end and begin episodes."""
        last_observations = step.terminal_observations
        rewards = step.rewards.tolist()
        terminations = step.terminations.tolist()
        truncations = step.truncations.tolist()
        acted = step.acted.tolist()
        first = step.first.tolist()
        over = (step.dones | step.lost).tolist()
        for k, i in enumerate(step.env_ids.tolist()):
            episode = self._running[i]
            if episode is not None:
                if acted[k]:
                    if len(episode.rewards) == self._max_steps:
                        episode = self._next_piece(i, episode)
                    episode.observations.append(row(last_observations, k))
                    episode.infos.append(self._info_of_step(step, k))
                    episode.actions.append(self._actions[i])
                    episode.rewards.append(rewards[k])
                    episode.terminations.append(terminations[k])
                    episode.truncations.append(truncations[k])
                if over[k]:
                    self._end(i, _reason(step, k))
                elif first[k]:
                    self._end(i, "reset")
            if first[k]:
                self._begin(step, k, i)
        self._write()

    def _begin(self, step: StepResult, k: int, i: int) -> None:
        seed = self._seeds[i]
        self._seeds[i] = None
        # after a failed reset another seed was used; a schedule reports the one that it used
        if step.lost[k] or self.core.on_schedule:
            seed = None
        info = self._info_of_opening(step, k)
        if self.core.on_schedule and "_episode_seed" in step.infos:
            seed = row_of({key: step.infos[key] for key in _SEED_COLUMNS}, k).get("episode_seed")
        self._running[i] = RecordedEpisode(
            [row(step.observations, k)],
            [info],
            seed=seed,
            facts={"env": i, "first_step": 0, "pipeline": self._pipeline_hash},
        )

    def _next_piece(self, i: int, episode: RecordedEpisode) -> RecordedEpisode:
        self._end(i, "max_steps")
        steps = episode.facts["first_step"] + len(episode.rewards)
        piece = RecordedEpisode(
            episode.observations[-1:],
            episode.infos[-1:],
            facts={**episode.facts, "first_step": steps},
        )
        self._running[i] = piece
        return piece

    def _end(self, i: int, reason: str) -> None:
        episode = self._running[i]
        self._running[i] = None
        if episode is None or not episode.rewards:
            return
        episode.facts = {**episode.facts, "ended": reason}
        if not episode.terminations[-1]:
            episode.truncations[-1] = True
        self._ended.append(episode)

    def _end_all(self, reason: str) -> None:
        if self._failed:
            return
        with self._surviving():
            for i in range(self.num_envs):
                self._end(i, reason)
            self._write()
        self._warn_of_unrecorded()

    def _write(self) -> None:
        ended = self._ended
        self._ended = []
        if not ended:
            return
        self._data_set.add(ended, self._info_keys)
        self.num_episodes += len(ended)

    def _warn_of_unrecorded(self) -> None:
        if self._data_set.unrecorded and not self._warned:
            self._warned = True
            names = ", ".join(f'"{name}"' for name in sorted(self._data_set.unrecorded))
            warnings.warn(
                f"record_trajectories: infos: {names} not recorded: expected numbers, text or "
                "arrays with the name, shape and dtype that they have in the data set's first "
                "episode; say which to record with info_keys",
                RuntimeWarning,
                stacklevel=2,
            )

    def _info_of_step(self, step: StepResult, k: int) -> dict[str, Any]:
        """The info of the step of a row; the next episode may begin in that same step."""
        if self._info_keys == ():
            return {}
        if not (step.first[k] and (step.terminations[k] or step.truncations[k])):
            return row_of(step.infos, k)
        added = {name: step.infos[name] for key in step.added for name in (key, f"_{key}")}
        return {**row_of(step.final_infos or {}, k), **row_of(added, k)}

    def _info_of_opening(self, step: StepResult, k: int) -> dict[str, Any]:
        if self._info_keys == ():
            return {}
        info = row_of(step.infos, k)
        if step.terminations[k] or step.truncations[k]:
            for key in step.added:  # about the step that ended the episode before
                info.pop(key, None)
        return info

    @contextlib.contextmanager
    def _surviving(self) -> Iterator[None]:
        """A failed recording never ends the training."""
        try:
            yield
        except Exception as error:
            self._failed = True
            self._running = [None] * self.num_envs
            self._ended = []
            warnings.warn(
                "record_trajectories: the recording has ended; the run continues, and what was "
                f"written is kept. {text_of(error)}",
                RuntimeWarning,
                stacklevel=2,
            )


def _reason(step: StepResult, k: int) -> str:
    if step.lost[k] and not step.acted[k]:
        return "lost"
    if step.terminations[k]:
        return "terminated"
    return "truncated"


def _check_space(name: str, space: spaces.Space[Any]) -> None:
    if isinstance(space, _LEAF_SPACES) and 0 not in (space.shape or ()):
        return
    members: Sequence[Any] = ()
    if isinstance(space, spaces.Dict) and all(isinstance(key, str) for key in space.spaces):
        members = list(space.spaces.values())
    if isinstance(space, spaces.Tuple):
        members = space.spaces
    if not members:
        raise PlanError(
            f"record_trajectories: {name}: expected Box, Discrete, MultiBinary, MultiDiscrete or "
            f"Text, or Dict (with texts as keys) and Tuple of these, none of them empty, got "
            f"{space}, which Minari has no form for. Leave it out with filter_obs, or change its "
            "form inside"
        )
    for member in members:
        _check_space(name, member)
