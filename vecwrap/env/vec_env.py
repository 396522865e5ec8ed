"""What users call on every vector environment, which forwards it to ``call_state`` and ``core``."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, overload

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from vecwrap.env import games, saving
from vecwrap.env import picture as tiles
from vecwrap.env.action_masks import masks_of
from vecwrap.env.array_converter import ArrayConverter
from vecwrap.env.call_results import FiveTuple, with_env_ids
from vecwrap.env.call_state import CallState
from vecwrap.env.chain import (
    Chain,
    envs_of,
    find_wrapper,
    innermost_normalizer,
    short_repr,
    shown_names,
)
from vecwrap.env.core import Core
from vecwrap.env.health import Health
from vecwrap.env.refusals import (
    missing,
    refuse_copy,
    refuse_mode,
    refuse_render_mode,
    refuse_source,
)
from vecwrap.env.row_protocol import Rows
from vecwrap.env.state_file import read_state
from vecwrap.errors import hide_internal_frames, internal_frames_hidden
from vecwrap.rows import gymnasium_form
from vecwrap.rows.infos import scatter_columns
from vecwrap.rows.normalizers import ObservationNormalizer, RewardNormalizer
from vecwrap.rows.step_result import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from vecwrap import PipelineSpec

__all__ = ["VecEnv"]

Wrapper = TypeVar("Wrapper")


class VecEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """A ``gymnasium.vector.VectorEnv`` of n sub-environments: the backend, or a wrapper.

    Attributes:
        num_envs: n.
        single_observation_space, single_action_space: of one sub-environment.
        observation_space, action_space: batched.
        metadata: the environment's, with ``autoreset_mode`` (episodic mode declares DISABLED).
        autoreset_mode: that of ``metadata``, as Gymnasium's own vector environments have it.
        render_mode: the sub-environments'.
        spec: Gymnasium's EnvSpec of the environment, or None.
        pipeline: the ``PipelineSpec`` it was built from, or None if it was assembled by hand.
        backend: the backend's name.
        num_workers: how many worker processes or threads there are; 0 if everything runs in the
            caller's own.
        possible_agents: the names of a game's agents, in the order of its rows; empty if there is
            one agent.
        row_games: (n,) int64. The number of each row's game; without games, of its sub-environment.
        row_agents: (n,) text. The name of each row's agent; without games, "".
        training: whether the wrappers update their statistics; set by ``train()`` and ``eval()``.
        core, call_state, array_converter: what the chain has once, what this environment does for
            its caller, and None or how ``to_torch`` converts; for adapters and tools.

    Every method in use: the page "API" (docs/api.md).

    >>> import vecwrap
    >>> with vecwrap.build("CartPole-v1", n=2, wrappers=["monitor"], backend="dummy") as env:
    ...     observations, infos = env.reset(seed=1)
    ...     observations, rewards, terminations, truncations, infos = env.step([0, 1])
    >>> observations.shape, rewards.tolist(), env
    ((2, 4), [1.0, 1.0], <VecEnv CartPole-v1, n=2, dummy, same_step, wrappers monitor>)
    """

    pipeline: PipelineSpec | None = None
    plan: Any = None  # it was built from, for notebooks
    # of a wrapper: its ``WrapperSpec`` in the pipeline that made it, and its arguments as text
    written: tuple[Any, str] | None = None
    wrapped_by: weakref.ref[VecEnv] | None = None  # a wrapper, if one is around it
    # for each folder, whether the last write succeeded
    saved_to: Mapping[str, bool] = MappingProxyType({})
    training: bool = True
    array_converter: ArrayConverter | None = None

    core: Core
    call_state: CallState
    backend: str
    num_workers: int
    autoreset_mode: AutoresetMode
    possible_agents: tuple[str, ...]
    row_games: IntArray
    row_agents: NDArray[np.str_]

    # -- the row protocol --------------------------------------------------------------------------

    @property
    def rows(self) -> Rows:
        """The rows, as what is around this environment drives them; for wrappers alone."""
        return self.call_state.rows

    # -- resets and steps --------------------------------------------------------------------------

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every sub-environment, or in those selected by a mask.

        Args:
            seed: sub-environment i gets ``seed + start_index + i``; or a sequence of n seeds or
                Nones.
            options: passed to each sub-environment, without ``options["reset_mask"]``: (n,) bool,
                which rows to reset; seeds of other rows are ignored. Neither argument is modified.

        Returns:
            The n observations (the last ones of rows that the mask excludes), and the infos.

        Raises:
            ArgumentError: a mask or seeds of the wrong form.
            SubEnvError: a sub-environment raised.
        """
        with internal_frames_hidden:
            try:
                self.reset_async(seed=seed, options=options)
                return self.reset_wait()
            except BaseException as error:  # an interrupt may come between the two halves
                self.call_state.end_if_interrupted(error)
                raise

    def reset_async(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Start a ``reset`` without waiting; ``reset_wait`` returns its result.

        With a ``batch_size``, ``recv`` may return its rows instead, as they are ready.

        Args:
            seed, options: as ``reset``.
        """
        self.call_state.refuse_pending("reset_async")
        self.call_state.reset(seed, [self.call_state.split_reset_mask(options)])

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """Wait for the result of ``reset_async``.

        Args:
            timeout: seconds; None waits forever.
        """
        step, (observations, *_, infos) = self.call_state.wait("reset", timeout)
        if len(step.env_ids) < self.num_envs:
            results = self.call_state.results
            observations = results.to_gymnasium(results.last_observations.all())
            infos = scatter_columns(infos, step.env_ids, self.num_envs)
        return observations, infos

    def step(self, actions: Any) -> FiveTuple:
        """Take one action in every sub-environment.

        Args:
            actions: n actions: an array, a list, or for Dict and Tuple spaces their batched form.

        Returns:
            ``(observations, rewards, terminations, truncations, infos)``: n rows of the observation
                space, (n,) float64, (n,) bool, (n,) bool, and a dict of columns. All arrays are
                yours to keep, unless the environment was built with ``copy=False``.

        Raises:
            ArgumentError: actions of the wrong number, shape or kind.
            ResetNeededError: a row has no running episode, and the autoreset mode starts none.
            SubEnvError: a sub-environment raised.
        """
        try:
            return self.call_state.step(self, actions)[1]
        except Exception as error:
            hide_internal_frames(error)
            raise

    def step_async(self, actions: Any) -> None:
        """Send the actions without waiting; ``step_wait`` returns the results.

        Args:
            actions: as ``step``.
        """
        self.call_state.refuse_pending("step_async")
        self.call_state.send(
            "step", self.single_action_space, actions, self.call_state.pending.all_ids
        )

    def step_wait(self, timeout: float | None = None) -> FiveTuple:
        """Wait for the result of ``step_async``.

        Args:
            timeout: seconds; None waits forever.
        """
        return self.call_state.wait("step", timeout)[1]

    def send(self, actions: Any, env_ids: Sequence[int] | IntArray | None = None) -> None:
        """Send actions to some sub-environments, without waiting.

        Args:
            actions: m actions, in the order of ``env_ids`` and in any form that ``step`` accepts.
            env_ids: (m,) int64 or a list; None means all that are not pending, ascending.

        Raises:
            ArgumentError: an index is repeated, out of range, or already pending.
        """
        try:
            self.call_state.send_some(self.single_action_space, actions, env_ids)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def recv(self, timeout: float | None = None, *, min: int | None = None) -> FiveTuple:
        """Receive the first ``batch_size`` rows that are ready, or all pending rows without one.

        Args:
            timeout: seconds; None waits forever.
            min: how many rows are enough once the timeout has passed; None: no fewer than before.

        Returns:
            The five-tuple of ``step`` with m rows; ``infos["env_id"]``, (m,) int64, ascending,
                identifies them.

        Raises:
            WaitTimeoutError: fewer rows are ready by then; they are kept for the next ``recv``.
            ArgumentError: ``min`` is not a number of rows that one ``recv`` can return.
            SubEnvError: a sub-environment raised.
        """
        step, result = self.call_state.wait("send", timeout, min)
        return with_env_ids(result, step)

    # -- games of several agents -------------------------------------------------------------------

    @property
    def to_move(self) -> BoolArray:
        """(n,) bool, as in ``infos``. In games: the row's next action will be used; else True."""
        return np.asarray(~self.core.slots.not_to_move[self.call_state.sources])

    @property
    def alive(self) -> BoolArray:
        """(n,) bool, as in ``infos``. In games: the row's agent is in the game; else True."""
        return np.asarray(~self.core.slots.left[self.call_state.sources])

    def action_masks(self) -> BoolArray:
        """Return which actions are legal now, from wherever the environment says it.

        Returns:
            (n, k) bool. k is the number of actions, of a MultiDiscrete that of all dimensions
                together. All False in rows that do not act next.

        Raises:
            ArgumentError: the environment reports no masks, or malformed ones.
        """
        with internal_frames_hidden:
            self.call_state.refuse_pending("action_masks")
            return masks_of(self)

    # -- calls to the sub-environments -------------------------------------------------------------

    def call(
        self, name: str, /, *args: Any, indices: Sequence[int] | int | None = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Call a method of each sub-environment, or read an attribute; return the results.

        The outermost wrapper of a sub-environment that has the method is called.

        Args:
            name: the method.
            *args: its arguments.
            indices: which sub-environments, in that order; None means all.
            **kwargs: its keyword arguments; one may be called ``name``.

        Raises:
            ArgumentError: for ``reset``, ``step`` and ``close``, which this environment has.
            SubEnvError: a sub-environment raised.
        """
        with internal_frames_hidden:
            self.call_async(name, *args, indices=indices, **kwargs)
            return self.call_wait()

    env_method = call

    def call_async(
        self, name: str, /, *args: Any, indices: Sequence[int] | int | None = None, **kwargs: Any
    ) -> None:
        """Start a ``call`` without waiting; ``call_wait`` returns its result.

        Args:
            name, *args, indices, **kwargs: as ``call``.
        """
        self.call_state.call(name, args, kwargs, indices)

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Wait for the result of ``call_async``.

        Args:
            timeout: seconds; None waits forever.
        """
        return self.call_state.wait_for_call(timeout)

    def get_attr(self, name: str, indices: Sequence[int] | int | None = None) -> tuple[Any, ...]:
        """Return an attribute of each sub-environment, from its outermost wrapper that has it.

        Args:
            name: the attribute; SubEnvError if a sub-environment lacks it.
            indices: which sub-environments, in that order; None means all.
        """
        with internal_frames_hidden:
            self.call_state.refuse_pending("get_attr")
            ids = self.call_state.ids_of_call(indices)
            return self.core.calls.now("get_attr", [(name,)] * len(ids), ids)

    def set_attr(self, name: str, values: Any, indices: Sequence[int] | int | None = None) -> None:
        """Set an attribute of each sub-environment, on the wrapper that has it, if one has.

        Args:
            name: the attribute.
            values: a list or tuple has one value for each; anything else is set on all.
            indices: which sub-environments; None means all.
        """
        with internal_frames_hidden:
            self.call_state.refuse_pending("set_attr")
            self.core.calls.set_attr(name, values, self.call_state.ids_of_call(indices))

    @property
    def envs(self) -> list[gymnasium.Env[Any, Any]]:
        """The sub-environments if all run in this process: to inspect, not to step or reset."""
        return envs_of(self)

    def render(self, mode: None = None) -> tuple[Any, ...]:
        """Return what each sub-environment renders in its ``render_mode``, which ``build`` takes.

        Args:
            mode: rejected.
        """
        refuse_mode(mode)
        refuse_render_mode("render", self, None)
        return self.call("render")

    def get_images(self, indices: Sequence[int] | int | None = None) -> tuple[Any, ...]:
        """Return a (height, width, 3) uint8 image of each, with ``render_mode="rgb_array"``.

        Args:
            indices: which sub-environments, in that order; None means all.
        """
        refuse_render_mode("get_images", self, "rgb_array")
        return self.call("render", indices=indices)

    def picture(self) -> NDArray[np.uint8]:
        """Return one (height, width, 3) uint8 image of all, with the labels of ``tile``, if any."""
        images = self.get_images(games.first_rows(self.call_state, self.core))
        return tiles.fit(tiles.tile(images), tiles.MAX_PICTURE_PIXELS)

    def show(self) -> None:
        """Show ``picture()`` below a notebook cell; raise ArgumentError outside a notebook."""
        tiles.display_image(self.picture())

    @property
    def viewer_open(self) -> bool:
        """Whether the window of ``render_mode="human"`` is open."""
        return False

    def _repr_html_(self) -> str | None:
        """The plan, for notebooks; None if the environment was assembled by hand."""
        if self.plan is None:
            return None
        return str(self.plan._repr_html_())

    # -- structure ---------------------------------------------------------------------------------

    @property
    def chain(self) -> tuple[VecEnv, ...]:
        """The vector wrappers, outermost first, the backend last."""
        return Chain((self,))

    @overload
    def find(self, kind: type[Wrapper]) -> Wrapper: ...

    @overload
    def find(self, kind: str) -> Any: ...

    def find(self, kind: type[Wrapper] | str) -> Any:
        """Return the outermost wrapper of a name or a class; LookupError if there is none.

        Args:
            kind: the name in pipelines, ``"monitor"``; or the class, where a base class also finds
                its subclasses.
        """
        return find_wrapper(self, kind)

    def train(self, mode: bool = True) -> Self:
        """Let the statistics of the chain update, or freeze all of them; return the environment.

        Args:
            mode: False freezes them.
        """
        for wrapper in self.chain:
            wrapper.training = mode
        return self

    def eval(self) -> Self:
        """Freeze every statistic in the chain, for evaluation; returns the environment."""
        return self.train(False)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the wrappers and, if possible, of the sub-environments: plain data.

        A sub-environment supports it if it and each of its wrappers has ``state_dict`` and
        ``load_state_dict``, or is ALE's, Gymnasium's or vecwrap's. Otherwise the entry
        ``"sub_envs_missing"`` gives the reason; after a load only the wrappers continue.
        """
        return saving.state_dict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state_dict``: bit for bit if the sub-environments could be saved.

        Args:
            state: what it returned; not shared with the environment afterwards.

        Raises:
            CheckpointError: the state is of a different chain or format, or a part of it cannot be
                loaded: nothing has changed. If a sub-environment cannot load the state that it had
                before either, and after an interrupt, the environment must be reset or loaded again
                before it can be stepped.
        """
        with internal_frames_hidden:
            saving.load_state_dict(self, state)

    def share_statistics(self, source: VecEnv | str | PathLike[str]) -> Self:
        """Use another chain's running statistics, for evaluation: ``build(..., stats=source)``.

        Those of a live environment are shared, not copied. This environment only reads them: it is
        put into ``eval()``.

        Args:
            source: an environment with the same normalising wrappers, or a file written by
                ``save``. n and the other wrappers may differ.

        Raises:
            CheckpointError: the source lacks a wrapper, or has one for other observations.
            ArgumentError: it is neither a vecwrap environment nor a path.
        """
        if not isinstance(source, (VecEnv, str, PathLike)):
            refuse_source(source)
        saving.share_statistics(self, source)
        return self.eval()

    def save(self, path: str | PathLike[str]) -> bool:
        """Write ``state_dict()`` to a ``.npz`` file atomically; return whether it was written.

        A crash leaves the old file. A disk that fills up hours later does not end the run: once
        this environment has written a file into the same folder, a failure is only a warning, given
        once until writing works again.

        Args:
            path: the file, in a folder that exists.

        Raises:
            FileNotFoundError: the folder does not exist; NotADirectoryError: it is a file.
            OSError: the file cannot be written, and none was written to this folder before.
        """
        return saving.save(self, path)

    def load(self, path: str | PathLike[str]) -> None:
        """Continue from a file written by ``save``; nothing in the file is executed.

        Args:
            path: the file; CheckpointError if ``save`` did not write it, or for a different chain.
        """
        with internal_frames_hidden:
            self.load_state_dict(read_state(path))

    def get_original_obs(self) -> Any:
        """Return the last n observations as the innermost normalising wrapper received them."""
        normalizer = innermost_normalizer(self.chain, ObservationNormalizer)
        return gymnasium_form.to_gymnasium(normalizer.original())

    def get_original_reward(self) -> FloatArray:
        """Return the last rewards, (n,) float64, before any normalisation; 0 after a reset."""
        return innermost_normalizer(self.chain, RewardNormalizer).original()

    def health(self) -> Health:
        """Report the restarts and lost episodes of each sub-environment, and the workers."""
        return self.core.health()

    def close(  # type: ignore[override]
        self, timeout: float | None = None, terminate: bool = False
    ) -> None:
        """Close every sub-environment, worker and file; may be called again.

        Args:
            timeout: seconds to wait for the workers before they are killed; None means 5.
            terminate: kill the workers at once instead.

        Warns:
            UserWarning: a step, a reset or a call was pending; its result is dropped.
        """
        raise NotImplementedError

    if not TYPE_CHECKING:  # so that type checkers refuse names that are not there

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # a property, which raises its own error again
                return object.__getattribute__(self, name)
            raise missing(self, name)

    def __del__(self) -> None:
        """Do nothing: Gymnasium 1.1 would close the environment with its wrapper."""

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse to be copied or pickled: a copy would share the sub-environments, or have none."""
        refuse_copy(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __dir__(self) -> list[str]:
        return shown_names(self, VecEnv)

    def __repr__(self) -> str:
        return short_repr(self)
