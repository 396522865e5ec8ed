"""The face that users see, and the private row protocol below it.

Layers talk by rows: ``_send`` takes actions down, ``_send_reset`` takes resets down, ``_receive`` brings a StepResult
up. Only the outermost environment, the one that the user calls, makes Gymnasium's five-tuple of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector import AutoresetMode, VectorWrapper
from numpy.typing import NDArray

from vecwrap import batch as batches
from vecwrap import checkpoint, gymnasium_form
from vecwrap.actions import conform_actions, refuse_outside
from vecwrap.batch import Batch
from vecwrap.contract import BoolArray, FloatArray, IntArray, StepResult
from vecwrap.errors import ArgumentError, ResetNeededError
from vecwrap.infos import scatter_columns
from vecwrap.parts import tiles
from vecwrap.parts.notebook import display_image

if TYPE_CHECKING:
    from typing import Self

    from vecwrap.backends.base import Backend
    from vecwrap.backends.restarts import Health

__all__ = ["FiveTuple", "VecEnv", "what_came"]

FiveTuple = tuple[Any, FloatArray, BoolArray, BoolArray, dict[str, Any]]
Layer = TypeVar("Layer")


class VecEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """n sub-environments stepped together: a ``gymnasium.vector.VectorEnv`` with everything that vecwrap adds.

    What is shared by all backends and layers is here; a backend derives from ``vecwrap.backends.base.Backend``, a layer
    from ``vecwrap.VecEnvWrapper``.

    Attributes:
        num_envs: n.
        single_observation_space, single_action_space: of one sub-environment.
        observation_space, action_space: batched.
        metadata: the environment's, with ``autoreset_mode`` (episodic mode declares DISABLED).
        render_mode: the sub-environments'.
        spec: Gymnasium's EnvSpec of the environment, or None.
        pipeline: what it was built from (a ``PipelineSpec``), or None where it was put together by hand.
        training: whether the statistics of the layers follow the stream; ``train()`` and ``eval()`` set it.

    >>> import vecwrap
    >>> from vecwrap.testing import ToyEnv  # an environment for trying things
    >>> layers = ["normalize_reward", "normalize_obs", "monitor"]
    >>> env = vecwrap.build(ToyEnv, n=3, wrappers=layers, backend="dummy", env_kwargs={"render_mode": "rgb_array"})
    >>> observations, infos = env.reset(seed=1)
    >>> observations, rewards, terminations, truncations, infos = env.step([0, 1, 2])
    >>> observations.shape, observations.dtype, rewards.shape, rewards.dtype
    ((3, 3), dtype('float32'), (3,), dtype('float64'))

    In two halves, with something else to do in between; and some of the rows, where ``recv`` says which came:

    >>> env.step_async([0, 1, 2])
    >>> observations, rewards, terminations, truncations, infos = env.step_wait(timeout=60)
    >>> env.reset_async(options={"reset_mask": np.array([True, False, False])})
    >>> observations, infos = env.reset_wait()
    >>> env.send([2, 0], env_ids=[2, 0])
    >>> observations, rewards, terminations, truncations, infos = env.recv()
    >>> observations.shape, infos["env_id"]
    ((2, 3), array([0, 2]))

    The sub-environments themselves:

    >>> env.call("greet", "you", loud=True)
    ('HELLO you 1', 'HELLO you 2', 'HELLO you 3')
    >>> env.call_async("greet", "you", indices=[2])
    >>> env.call_wait()
    ('hello you 3',)
    >>> env.set_attr("bonus", [1.0, 2.0, 3.0])
    >>> env.get_attr("bonus", indices=[0, 2])
    (1.0, 3.0)

    Pictures, (height, width, 3) uint8; ``request_frames`` is for layers that record:

    >>> len(env.render()), env.get_images(indices=0)[0].shape, env.picture().shape, env.viewer_open
    (3, (4, 6, 3), (8, 12, 3), False)
    >>> env.request_frames(env_ids=[0])

    The chain:

    >>> [type(layer).__name__ for layer in env.layers], env.backend, env.num_workers
    (['Monitor', 'NormalizeObs', 'NormalizeReward', 'DummyBackend'], 'dummy', 0)
    >>> env.autoreset_mode
    <AutoresetMode.SAME_STEP: 'SameStep'>
    >>> from vecwrap.wrappers.normalize_obs import NormalizeObs
    >>> statistics = env.find(NormalizeObs).layer_statistics()
    >>> env.get_original_obs().shape, env.get_original_reward().shape
    ((3, 3), (3,))
    >>> print(env.health())
    0 restarts, 0 lost episodes

    Saving, and an evaluation with what was learnt:

    >>> from tempfile import mkdtemp
    >>> file = Path(mkdtemp()) / "state.npz"
    >>> state = env.state_dict()
    >>> env.load_state_dict(state)
    >>> env.save(file)
    True
    >>> env.load(file)
    >>> evaluation = vecwrap.build(ToyEnv, n=1, wrappers=layers, backend="dummy").share_statistics(env)
    >>> evaluation.training, evaluation.train().training, evaluation.eval().training
    (False, True, False)
    >>> evaluation.close()
    >>> env.close()
    """

    pipeline: Any = None
    _plan: Any = None  # that it was built from, for notebooks
    _saved_to: Mapping[str, bool] = MappingProxyType({})  # folders, and whether the last file there was written
    training: bool = True

    _root: Backend
    _shown: Batch = None  # what the user was last shown, where the backend cannot give it again
    _shown_unchanged: bool = False  # whether what the backend gave was shown, before there was anything to keep
    _object_leaves: bool
    _scalar_boxes: bool

    # -- the private row protocol --------------------------------------------------------------------------------------

    def _send(self, actions: Batch, env_ids: IntArray) -> None:
        """Take actions, in the space's form, for these rows down; returns at once where the backend can."""
        raise NotImplementedError

    def _send_reset(self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        """Ask for resets of these rows."""
        raise NotImplementedError

    def _receive(self, count: int, timeout: float | None) -> StepResult:
        """Bring ``count`` rows up, as soon as they are there."""
        raise NotImplementedError

    # -- reset ---------------------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every sub-environment, or in those of a mask.

        Args:
            seed: sub-environment i gets ``seed + start_index + i``; or a sequence of n seeds or Nones.
            options: passed to each sub-environment, without ``options["reset_mask"]``: (n,) bool, which rows to reset;
                seeds of other rows are ignored. Neither is changed.

        Returns:
            The batched observations, n rows (where a mask left a row alone: what it last showed), and the infos.

        Raises:
            ArgumentError: a mask or seeds of the wrong form.
            AlreadyPendingCallError: rows are still out.
            SubEnvError: a sub-environment raised.
        """
        self.reset_async(seed=seed, options=options)
        return self.reset_wait()

    def reset_async(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> None:
        """Ask for what ``reset`` does; ``reset_wait`` brings it.

        Args:
            seed: as ``reset``.
            options: as ``reset``.

        Raises:
            ArgumentError: a mask or seeds of the wrong form.
            AlreadyPendingCallError: rows are still out.
        """
        root = self._root
        root._refuse_pending("reset_async")
        env_ids, options = _split_mask(options, root)
        self._dispatch_resets(seed, [(env_ids, options)])

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """Wait for what ``reset_async`` asked for.

        Args:
            timeout: seconds; None waits for ever.

        Returns:
            As ``reset``.

        Raises:
            NoAsyncCallError: nothing was asked for.
            TimeoutError: not there yet; the call stays pending and can be made again.
        """
        step, (observations, *_, infos) = self._wait("reset", "reset_wait", timeout)
        if len(step.env_ids) == self.num_envs:
            return observations, infos
        return self._gymnasium_form(self._all_observations()), scatter_columns(infos, step.env_ids, self.num_envs)

    # -- step ----------------------------------------------------------------------------------------------------------

    def step(self, actions: Any) -> FiveTuple:
        """Take one action in every sub-environment.

        Args:
            actions: n actions: an array, a list, or for Dict and Tuple spaces their batched form.

        Returns:
            ``(observations, rewards, terminations, truncations, infos)``: n rows of the observation space, (n,)
            float64, (n,) bool, (n,) bool, and a dict of columns. All arrays are yours to keep, unless built with
            ``copy=False``.

        Raises:
            ArgumentError: actions of a wrong number, shape or kind.
            ResetNeededError: a row has no running episode, and the autoreset mode begins none.
            SubEnvError: a sub-environment raised.
        """
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Any) -> None:
        """Send the actions off; ``step_wait`` brings the results.

        Args:
            actions: as ``step``.

        Raises:
            ArgumentError: actions of a wrong number, shape or kind.
            AlreadyPendingCallError: rows are still out.
        """
        root = self._root
        root._refuse_pending("step_async")
        self._dispatch("step", actions, root.all_ids)

    def step_wait(self, timeout: float | None = None) -> FiveTuple:
        """Wait for what ``step_async`` sent off.

        Args:
            timeout: seconds; None waits for ever.

        Returns:
            As ``step``.

        Raises:
            NoAsyncCallError: nothing was sent.
            TimeoutError: not there yet; the call stays pending, nothing is lost, and it can be made again.
        """
        return self._wait("step", "step_wait", timeout)[1]

    def send(self, actions: Any, env_ids: Sequence[int] | IntArray | None = None) -> None:
        """Send actions to some sub-environments, without waiting.

        Args:
            actions: m actions, one for each of ``env_ids`` in their order, in any form that ``step`` takes.
            env_ids: (m,) int64 or a list, which sub-environments; None means all that are not out, in ascending order.

        Raises:
            ArgumentError: an index twice, out of range, or out already.
        """
        root = self._root
        root._refuse_pending("send", allow=None if root._through else "send")
        ids = root._idle_ids(env_ids)
        order = np.argsort(ids, kind="stable")
        self._dispatch("send", actions, ids[order], order)

    def recv(self, timeout: float | None = None) -> FiveTuple:
        """Receive the first ``batch_size`` rows that are ready (all that are out, without a ``batch_size``).

        Args:
            timeout: seconds; None waits for ever.

        Returns:
            The five-tuple of ``step`` with m rows; ``infos["env_id"]``: (m,) int64, ascending, says which.

        Raises:
            NoAsyncCallError: no row is out.
            TimeoutError: too few are ready; nothing is lost, and it can be called again.
        """
        step, result = self._wait("send", "recv", timeout)
        return self._with_env_ids(result, step)

    def _dispatch_resets(self, seed: Any, requests: Sequence[tuple[IntArray, dict[str, Any] | None]]) -> None:
        """Ask for resets of these rows, with these options each, and the seeds that ``reset`` was given."""
        root = self._root
        seeds = [root._seeds(seed, env_ids) for env_ids, _ in requests]
        with root._interrupts:
            root._interrupts.hold()
            root._asked_by = "reset"
            root._resetting = frozenset(i for env_ids, _ in requests for i in env_ids.tolist())
            try:
                for (env_ids, options), seeds_of_rows in zip(requests, seeds, strict=True):
                    self._send_reset(env_ids, seeds_of_rows, options)
            except BaseException:
                root._pending = "reset" if root._num_out else None
                raise
            finally:
                if root._num_out:  # what has reached nobody has used no seed up
                    root._build_seed = None

    def _dispatch(self, kind: str, actions: Any, env_ids: IntArray, order: IntArray | None = None) -> None:
        root = self._root
        rows = conform_actions(self.single_action_space, actions, len(env_ids))
        if root.debug:  # in the order in which they were given
            refuse_outside(self.single_action_space, rows, env_ids if order is None else env_ids[np.argsort(order)])
        if order is not None:
            rows = batches.take(rows, order)
        if root._any_ended:
            root._refuse_ended(env_ids)
        with root._interrupts:
            root._asked_by = kind
            try:
                self._send(rows, env_ids)
            except BaseException:
                root._pending = kind if root._num_out else None
                raise

    def _wait(self, kind: str, name: str, timeout: float | None) -> tuple[StepResult, FiveTuple]:
        """Wait for rows, and take them through the layers.

        An interrupt ends the wait for rows; while some are taken in, and go through the layers, it is held back. Then
        what has become of them is kept, and the next wait hands it out.
        """
        root = self._root
        root._refuse_closed(name)
        if root._pending != kind:
            prior = {"step": "step_async", "reset": "reset_async", "send": "send"}[kind]
            raise NoAsyncCallError(f"Calling `{name}` without any prior call to `{prior}`.", kind)
        if root._through is None:
            count = root._num_out
            if kind == "send" and root.batch_size is not None:
                count = min(count, root.batch_size)
            with root._interrupts:
                try:
                    step = self._receive(count, timeout)
                    root._through = step, self._five_tuple(step)
                except BaseException as error:
                    if root.closed and isinstance(error, Exception):  # by another thread, or by a signal's handler
                        raise ClosedEnvironmentError(f"{name}: the environment was closed meanwhile") from error
                    if not root._num_out:  # a layer raised; the rows themselves are home
                        root._pending = None
                    raise
        return self._hand_out(kind)

    def _hand_out(self, kind: str) -> tuple[StepResult, FiveTuple]:
        """Give what came through the layers, or raise what failed beside it."""
        root = self._root
        if root._through is None:  # the program's handler of SIGINT has taken it, amid this very wait
            raise NoAsyncCallError("What this call waits for was taken by another wait.", kind)
        pending = "send" if root._num_out and (kind == "send" or root._through[0].failures) else None
        (step, result), root._through, root._pending = root._through, None, pending  # at once: an interrupt may come
        if step.failures:
            error = step.failures[0]
            error.failures = step.failures
            error.others = self._with_env_ids(result, step) if len(step.env_ids) else None
            raise error
        return step, result

    # -- what the user is shown ----------------------------------------------------------------------------------------

    def _five_tuple(self, step: StepResult) -> FiveTuple:
        """Gymnasium's five-tuple of m rows; the only place that makes it."""
        self._remember(step)
        infos = step.infos
        if step.final_obs is not None:
            ended = step.first & step.dones
            final_obs = np.empty(len(step.env_ids), dtype=object)  # of None
            for i in ended.nonzero()[0].tolist():
                final_obs[i] = self._element(batches.row(step.final_obs, i))
            infos = {
                **infos,
                "final_obs": final_obs,
                "_final_obs": ended,
                "final_info": step.final_infos or {},
                "_final_info": ended.copy(),
            }
        return (
            self._gymnasium_form(step.observations),
            step.rewards,
            step.terminations,
            step.truncations,
            infos,
        )

    def _element(self, row: Any) -> Any:
        """One row as an element of the space, as a sub-environment gives it."""
        return gymnasium_form.element(self.single_observation_space, row) if self._scalar_boxes else row

    @staticmethod
    def _with_env_ids(result: FiveTuple, step: StepResult) -> FiveTuple:
        return (*result[:4], {**result[4], "env_id": step.env_ids.copy()})

    def _remember(self, step: StepResult) -> None:
        """Keep what is shown, so that a masked reset can show the other rows again; free where no layer changed it."""
        if not len(step.env_ids):
            return
        if self._shown is None:
            if step.observations is self._root._latest:
                self._shown_unchanged = True
                return
            if self._shown_unchanged:  # a layer that changes observations at times
                self._shown = self._all_observations()
            else:
                self._shown = batches.empty_like(step.observations, self.num_envs)
        batches.scatter(self._shown, step.rows, step.observations)

    def _all_observations(self) -> Batch:
        """All n rows as they were last shown, as fresh arrays."""
        return batches.copy(self._root.slots.observations.batch() if self._shown is None else self._shown)

    def _show_again(self, observations: Batch) -> None:
        """Say what was last shown, after a load."""
        self._shown = batches.copy(observations)

    def _gymnasium_form(self, observations: Batch) -> Any:
        return gymnasium_form.to_gymnasium(observations) if self._object_leaves else observations

    # -- calls to the sub-environments ---------------------------------------------------------------------------------

    def call(
        self, name: str, /, *args: Any, indices: Sequence[int] | int | None = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Call a method of each sub-environment (its outermost layer that has it); an attribute is simply given.

        Args:
            name: the method.
            *args: its arguments.
            indices: which sub-environments, in that order; None means all.
            **kwargs: its keyword arguments, also one that is called ``name``.

        Returns:
            One value for each.

        Raises:
            ValueError: for ``reset``, ``step`` and ``close``, which the vector environment must know of.
            SubEnvError: a sub-environment raised.
        """
        self.call_async(name, *args, indices=indices, **kwargs)
        return self.call_wait()

    env_method = call

    def call_async(self, name: str, /, *args: Any, indices: Sequence[int] | int | None = None, **kwargs: Any) -> None:
        """Ask for what ``call`` does; ``call_wait`` brings it.

        Args:
            name: the method.
            *args: its arguments.
            indices: which sub-environments, in that order; None means all.
            **kwargs: its keyword arguments.

        Raises:
            ValueError: as ``call``.
        """
        self._root._call_async(name, args, kwargs, indices)

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Wait for what ``call_async`` asked for.

        Args:
            timeout: seconds; None waits for ever.

        Returns:
            One value for each.

        Raises:
            NoAsyncCallError: nothing was asked for.
            TimeoutError: not there yet; the call stays pending and can be made again.
            SubEnvError: a sub-environment raised.
        """
        return self._root._call_wait(timeout)

    def get_attr(self, name: str, indices: Sequence[int] | int | None = None) -> tuple[Any, ...]:
        """Give an attribute of each sub-environment, from its outermost layer that has it.

        Args:
            name: the attribute.
            indices: which sub-environments, in that order; None means all.

        Returns:
            One value for each.

        Raises:
            SubEnvError: a sub-environment has no such attribute.
        """
        return self._root._get_attr(name, indices)

    def set_attr(self, name: str, values: Any, indices: Sequence[int] | int | None = None) -> None:
        """Set an attribute of each sub-environment, where it lives; a new one on the environment itself.

        Args:
            name: the attribute.
            values: a list or tuple gives one value for each sub-environment; anything else is set on all.
            indices: which sub-environments; None means all.

        Raises:
            ArgumentError: a list of another length.
        """
        self._root._set_attr(name, values, indices)

    def render(self) -> tuple[Any, ...]:
        """Give what each sub-environment renders, as its ``render_mode`` says.

        Raises:
            ArgumentError: it was built without a render mode.
        """
        if self.render_mode is None:
            raise ArgumentError(
                'render: built without a render mode; expected for example build(..., render_mode="rgb_array")'
            )
        return self.call("render")

    def get_images(self, indices: Sequence[int] | int | None = None) -> tuple[Any, ...]:
        """Give an (height, width, 3) uint8 image of each sub-environment.

        Args:
            indices: which sub-environments, in that order; None means all.

        Raises:
            ArgumentError: it was built without ``render_mode="rgb_array"``.
        """
        if self.render_mode != "rgb_array":
            raise ArgumentError(
                f'get_images: expected an environment built with render_mode="rgb_array", got {self.render_mode!r}'
            )
        return self.call("render", indices=indices)

    def picture(self) -> NDArray[np.uint8]:
        """Give one image of all sub-environments, (height, width, 3) uint8: with the labels of ``tile`` where it is.

        Raises:
            ArgumentError: it was built without a render mode that gives frames.
        """
        return tiles.fit(tiles.tile(self.get_images()), tiles.SIZE)

    def show(self) -> None:
        """Show ``picture()`` below the cell of a notebook.

        Raises:
            ArgumentError: this is no notebook; says what to use instead. Or as ``picture``.

        >>> import vecwrap
        >>> from vecwrap.testing import ToyEnv
        >>> env = vecwrap.build(ToyEnv, n=2, backend="dummy", env_kwargs={"render_mode": "rgb_array"})
        >>> _ = env.reset(seed=1)
        >>> try:
        ...     env.show()
        ... except ArgumentError as error:
        ...     print(str(error).partition(",")[0])
        show: expected a Jupyter notebook
        >>> env.close()
        """
        display_image(self.picture())

    @property
    def viewer_open(self) -> bool:
        """Whether the window of ``render_mode="human"`` is open."""
        return False

    def _repr_html_(self) -> str | None:
        """The plan as a table, for notebooks; None where it was put together by hand."""
        return None if self._plan is None else str(self._plan._repr_html_())

    def request_frames(self, env_ids: Sequence[int] | IntArray, opening: Sequence[int] | IntArray = ()) -> None:
        """Ask for frames of sub-environments from the next actions or resets on, until this layer asks otherwise.

        They are rendered where the sub-environment lives, before the autoreset, and travel with the result:
        ``StepResult.frames`` and ``final_frames``. For recorders; what several layers ask for is merged. It may be
        called at any time, costs nothing where it asks for the same as before, and no answer is waited for.

        Args:
            env_ids: (k,) int64 or a list, whose frames are wanted with every result.
            opening: the same, whose frames are wanted with results that open an episode.
        """
        root = self._root
        root._request_frames(self, root._indices(env_ids), root._indices(opening))

    # -- structure -----------------------------------------------------------------------------------------------------

    @property
    def layers(self) -> tuple[VecEnv, ...]:
        """The vector layers from the outermost in, the backend last."""
        return (self,)

    def find(self, kind: type[Layer]) -> Layer:
        """Give the outermost layer of a class.

        Args:
            kind: the class; a base class finds what derives from it.

        Raises:
            LookupError: there is none.
            ArgumentError: it is no class.
        """
        if not isinstance(kind, type):
            raise ArgumentError(
                f"find: kind: expected the class of a layer, got {kind!r}; classes of the layers here are "
                f"{', '.join(type(layer).__name__ for layer in self.layers)}"
            )
        for layer in self.layers:
            if isinstance(layer, kind):
                return layer
        raise LookupError(f"{self!r} has no layer {kind.__name__}")

    def train(self, mode: bool = True) -> Self:
        """Let every statistic in the chain follow the stream, or freeze all of them; gives the environment back.

        Args:
            mode: False freezes them.
        """
        for layer in self.layers:
            layer.training = mode
        return self

    def eval(self) -> Self:
        """Freeze every statistic in the chain, for evaluation; gives the environment back."""
        return self.train(False)

    def state_dict(self) -> dict[str, Any]:
        """Give the state of the chain: of its layers and, where they offer it, of the sub-environments.

        A sub-environment offers its state where it and each of its wrappers either has ``state_dict`` and
        ``load_state_dict``, or is ALE's, or is a wrapper of Gymnasium's or vecwrap's. Where one does not, the entry
        ``"sub_envs_missing"`` says why; after a load such an environment needs a reset, while the layers go on.

        Returns:
            Arrays, numbers, text, lists and dicts.

        Raises:
            AlreadyPendingCallError: rows are out.
        """
        return checkpoint.state_dict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where ``state_dict`` was called, bit for bit where the sub-environments could be saved.

        Args:
            state: what it gave; nothing in it is shared with the environment afterwards.

        Raises:
            CheckpointError: the state is of another chain or format; says the first difference.
            SubEnvError: a sub-environment cannot take its state in. After that, as after an interrupt, nothing can be
                stepped before it was reset or loaded again.
        """
        checkpoint.load_state_dict(self, state)

    def share_statistics(self, source: VecEnv | str | PathLike[str]) -> Self:
        """Use the running statistics of another chain, for evaluation; ``build(..., stats=source)`` calls this.

        The statistics of a live environment are shared, not copied: what it learns later holds here too. This
        environment is put into ``eval()``, so that it reads them and leaves them alone.

        Args:
            source: an environment with the same normalising layers, or a file that ``save`` wrote. n and the other
                layers may differ.

        Raises:
            CheckpointError: the source lacks a layer, or has one of other observations.
            ArgumentError: it is neither an environment of vecwrap's nor a path.
        """
        if not isinstance(source, (VecEnv, str, PathLike)):
            raise ArgumentError(
                f"stats: expected an environment of vecwrap's, or a file that its save wrote, got {what_came(source)}"
            )
        checkpoint.share_statistics(self, source)
        return self.eval()

    def save(self, path: str | PathLike[str]) -> bool:
        """Write ``state_dict()`` to a ``.npz`` file, atomically: a crash or a full disk leaves the old file.

        A disk that fills or vanishes hours later must not end the run: where a file of this environment has been
        written into the same folder before, a failure is a warning, given once until it works again.

        Args:
            path: the file; its folder is made where it is missing.

        Returns:
            Whether it was written.

        Raises:
            OSError: the file cannot be written, and none was written there before.
        """
        folder = str(Path(path).absolute().parent)
        try:
            if folder not in self._saved_to:  # one that has vanished since is not made anew, on another disk maybe
                Path(folder).mkdir(parents=True, exist_ok=True)
            checkpoint.write_state(path, self.state_dict())
        except OSError as error:
            if folder not in self._saved_to:
                raise
            if self._saved_to[folder]:
                warnings.warn(
                    f"save: {path} cannot be written any more ({error}); the run goes on, the last file stays",
                    RuntimeWarning,
                    stacklevel=2,
                )
            self._saved_to = {**self._saved_to, folder: False}
            return False
        self._saved_to = {**self._saved_to, folder: True}
        return True

    def load(self, path: str | PathLike[str]) -> None:
        """Read what ``save`` wrote and go on from there; nothing in the file is run.

        Args:
            path: the file.

        Raises:
            CheckpointError: no such file, not one of these, or one of another chain.
        """
        self.load_state_dict(checkpoint.read_state(path))

    def get_original_obs(self) -> Any:
        """Give the observations that were last shown as they were before any layer normalised them.

        Returns:
            n rows, fresh arrays, in the form that they had at the innermost normalising layer.

        Raises:
            LookupError: no layer normalises observations.
            ResetNeededError: nothing has been shown yet.
        """
        for layer in reversed(self.layers):
            if (original := layer._original_observations()) is not None:
                return layer._gymnasium_form(original)
        raise LookupError(f"{self!r} has no layer that normalises observations: normalize or normalize_obs")

    def get_original_reward(self) -> FloatArray:
        """Give the rewards that were last shown as they were before any layer normalised them.

        Returns:
            (n,) float64, fresh; 0 for a row that was reset.

        Raises:
            LookupError: no layer normalises rewards.
            ResetNeededError: nothing has been shown yet.
        """
        for layer in reversed(self.layers):
            if (original := layer._original_rewards()) is not None:
                return original
        raise LookupError(f"{self!r} has no layer that normalises rewards: normalize or normalize_reward")

    def _original_observations(self) -> Batch | None:
        """What came to this layer last, n rows, where it normalises observations."""
        return None

    def _original_rewards(self) -> FloatArray | None:
        """What came to this layer last, where it normalises rewards."""
        return None

    def health(self) -> Health:
        """Say what was lost and made anew: restarts and lost episodes of each sub-environment, and the workers."""
        return self._root.health()

    @property
    def backend(self) -> str:
        """The backend's name."""
        return self._root.name

    @property
    def autoreset_mode(self) -> AutoresetMode:
        """What ``metadata["autoreset_mode"]`` says; Gymnasium's own vector environments have it as an attribute too."""
        mode: AutoresetMode = self.metadata["autoreset_mode"]
        return mode

    @property
    def num_workers(self) -> int:
        """How many worker processes there are; 0 where everything runs in this process."""
        return self._root.workers

    def close(self, timeout: float | None = None, terminate: bool = False) -> None:  # type: ignore[override]
        """Close every sub-environment, worker and file; may be called again.

        Args:
            timeout: seconds to wait for the workers before they are killed; None means 5.
            terminate: do not ask, kill.
        """
        raise NotImplementedError

    def __del__(self) -> None:
        """Do nothing: a layer that is forgotten leaves what it wraps alone (Gymnasium 1.1 would close it here)."""

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse copies and pickles: they would share the sub-environments, or have none."""
        raise TypeError(
            f"{self!r} cannot be copied or sent to another process: its sub-environments cannot. Build another one "
            "where it is needed, with vecwrap.build(env.pipeline); load_state_dict(env.state_dict()) lets that one go "
            "on from where this one is, and stats= gives it the running statistics"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _set_observation_space(self, single: spaces.Space[Any]) -> None:
        """Set the space of one observation and, with it, the batched one."""
        self.single_observation_space = single
        self.observation_space = gymnasium.vector.utils.batch_space(single, self.num_envs)
        self._object_leaves = gymnasium_form.has_objects(single)
        self._scalar_boxes = gymnasium_form.has_scalar_boxes(single)

    def _set_action_space(self, single: spaces.Space[Any]) -> None:
        """Set the space of one action and, with it, the batched one."""
        self.single_action_space = single
        self.action_space = gymnasium.vector.utils.batch_space(single, self.num_envs)

    def __repr__(self) -> str:
        root = self._root
        if self.pipeline is not None:
            name, layers = self.pipeline.env_name, self.pipeline.layer_names
        else:
            name = root.env_id
            layers = tuple(type(layer).__name__ for layer in reversed(self.layers[:-1]))
        workers = f", {root.workers} worker{'s' * (root.workers != 1)}" if root.workers else ""
        chain = f", layers {' > '.join(layers)}" if layers else ""
        return f"<VecEnv {name}, n={self.num_envs}, {root.name}{workers}, {root.autoreset.value}{chain}>"


def what_came(env: Any) -> str:
    """Say, in an error, what came in the place of an environment of vecwrap's, and what to do."""
    name = type(env).__name__
    if hasattr(env, "vecwrap_env"):
        return f"{name}; what to_sb3 gives has the environment itself as its vecwrap_env"
    inner, steps = env, ""
    while isinstance(inner, VectorWrapper):
        inner, steps = inner.env, f"{steps}.env"
    if isinstance(inner, VecEnv):
        return f"{name}, a wrapper of Gymnasium's around one; give the environment itself, its {steps}"
    return f"{name}; vecwrap.build makes one, and vecwrap.wrap one of any gymnasium.vector.VectorEnv"


def _split_mask(options: dict[str, Any] | None, root: Backend) -> tuple[IntArray, dict[str, Any] | None]:
    """Give the rows of ``reset_mask``, and a copy of the options without it."""
    if options is None or "reset_mask" not in options:
        return root.all_ids, options
    mask = options["reset_mask"]
    num_envs = root.num_envs
    expected = f'options["reset_mask"]: expected a NumPy array of shape ({num_envs},) and dtype bool'
    if not isinstance(mask, np.ndarray):
        raise ArgumentError(f"{expected}, got {type(mask).__name__}; np.array(mask, dtype=bool) makes one")
    if mask.shape != (num_envs,):
        raise ArgumentError(f"{expected}, got shape {mask.shape}")
    if mask.dtype != np.bool_:
        raise ArgumentError(f"{expected}, got dtype {mask.dtype}; mask.astype(bool) makes one")
    if not mask.any():
        raise ArgumentError(f"{expected} with at least one True, got none; leave the call out instead")
    never = root._never_reset & ~mask
    if never.any():
        raise ResetNeededError(
            f"a masked reset shows all {num_envs} rows, but sub-environments {np.flatnonzero(never).tolist()} have "
            "never been reset; call reset() without a mask first"
        )
    rest = {key: value for key, value in options.items() if key != "reset_mask"}
    return np.flatnonzero(mask), rest
