"""The public interface, and the private row protocol below it.

Layers communicate in rows: ``_send`` passes actions down, ``_send_reset`` passes resets down, ``_receive`` returns a
StepResult. Only the outermost environment, the one that the user calls, converts it to Gymnasium's five-tuple.
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
from gymnasium.error import NoAsyncCallError
from gymnasium.vector import AutoresetMode, VectorWrapper
from numpy.typing import NDArray

from vecwrap.env import picture as tiles
from vecwrap.env import saving as checkpoint
from vecwrap.env.elsewhere import missing, refuse_mode
from vecwrap.env.line import Line
from vecwrap.env.picture import display_image
from vecwrap.errors import ArgumentError, ResetNeededError, brief, shorten
from vecwrap.rows import batch as batches
from vecwrap.rows import gymnasium_form
from vecwrap.rows.batch import Batch
from vecwrap.rows.gymnasium_form import conform_actions, refuse_outside
from vecwrap.rows.infos import OF_ENDS, make_room, scatter_columns
from vecwrap.rows.normalizers import ObservationNormalizer, RewardNormalizer
from vecwrap.rows.step_result import BoolArray, FloatArray, IntArray, StepResult

if TYPE_CHECKING:
    from typing import Self

    from vecwrap.env.backend import Backend
    from vecwrap.env.restarts import Health

__all__ = ["FiveTuple", "VecEnv", "what_came"]

FiveTuple = tuple[Any, FloatArray, BoolArray, BoolArray, dict[str, Any]]
Layer = TypeVar("Layer")


class VecEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """n sub-environments stepped together: a ``gymnasium.vector.VectorEnv`` with everything that vecwrap adds.

    The common base of backends and layers: a backend derives from ``vecwrap.env.backend.Backend``, a layer from
    ``vecwrap.VecEnvWrapper``.

    Attributes:
        num_envs: n.
        single_observation_space, single_action_space: of one sub-environment.
        observation_space, action_space: batched.
        metadata: the environment's, with ``autoreset_mode`` (episodic mode declares DISABLED).
        render_mode: the sub-environments'.
        spec: Gymnasium's EnvSpec of the environment, or None.
        pipeline: the ``PipelineSpec`` it was built from, or None if it was assembled by hand.
        training: whether the layers update their statistics; set by ``train()`` and ``eval()``.

    >>> import vecwrap
    >>> from vecwrap.testing import ToyEnv  # an environment for trying things
    >>> layers = ["normalize_reward", "normalize_obs", "monitor"]
    >>> env = vecwrap.build(ToyEnv, n=3, wrappers=layers, backend="dummy", env_kwargs={"render_mode": "rgb_array"})
    >>> observations, infos = env.reset(seed=1)
    >>> observations, rewards, terminations, truncations, infos = env.step([0, 1, 2])

    In two halves; and for some of the rows, where ``infos["env_id"]`` identifies those received. What sends raises
    AlreadyPendingCallError while rows are pending, a wait NoAsyncCallError if none is; one that raises
    WaitTimeoutError can be repeated, for its call stays pending and nothing is lost:

    >>> env.step_async([0, 1, 2])
    >>> observations, rewards, terminations, truncations, infos = env.step_wait(timeout=60)
    >>> env.reset_async(options={"reset_mask": np.array([True, False, False])})
    >>> observations, infos = env.reset_wait()
    >>> env.send([2, 0], env_ids=[2, 0])
    >>> env.recv()[4]["env_id"]
    array([0, 2])

    The sub-environments themselves:

    >>> env.call("greet", "you", loud=True)
    ('HELLO you 1', 'HELLO you 2', 'HELLO you 3')
    >>> env.call_async("greet", "you", indices=[2])
    >>> env.call_wait()
    ('hello you 3',)
    >>> env.set_attr("bonus", [1.0, 2.0, 3.0])
    >>> env.get_attr("bonus", indices=[0, 2])
    (1.0, 3.0)
    >>> env.envs[1].unwrapped.bonus  # with backend="dummy"
    2.0
    >>> len(env.render()), env.get_images(indices=0)[0].shape, env.picture().shape, env.viewer_open
    (3, (4, 6, 3), (8, 12, 3), False)
    >>> env.request_frames(env_ids=[0])  # for layers that record
    >>> env.show()  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    vecwrap.errors.ArgumentError: show: expected a Jupyter notebook

    The chain:

    >>> [type(layer).__name__ for layer in env.layers], env.backend, env.num_workers, env.autoreset_mode.name
    (['Monitor', 'NormalizeObs', 'NormalizeReward', 'DummyBackend'], 'dummy', 0, 'SAME_STEP')
    >>> statistics = env.find(vecwrap.VecEnvWrapper).layer_statistics()  # of the outermost one
    >>> env.get_original_obs().shape, env.get_original_reward().shape, str(env.health())
    ((3, 3), (3,), '0 restarts, 0 lost episodes')
    >>> env.normalize_obs(env.get_original_obs()).shape, env.unnormalize_obs(observations[0]).shape
    ((3, 3), (3,))
    >>> env.unnormalize_reward(env.normalize_reward([1.0, 2.0])).tolist()
    [1.0, 2.0]

    Saving, and evaluating with the learnt statistics:

    >>> env.load_state_dict(env.state_dict())
    >>> from tempfile import mkdtemp
    >>> file = Path(mkdtemp()) / "state.npz"
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
    _plan: Any = None  # the plan it was built from, for notebooks
    _saved_to: Mapping[str, bool] = MappingProxyType({})  # by folder: whether the last write succeeded
    training: bool = True

    _straight_line: Line | None = None
    _root: Backend
    _shown: Batch = None  # what the user was last shown, if the backend cannot provide it again
    _shown_unchanged: bool = False  # whether the backend's own observations were shown while `_shown` was still None
    _object_leaves: bool
    _scalar_boxes: bool

    # -- the private row protocol --------------------------------------------------------------------------------------

    def _send(self, actions: Batch, env_ids: IntArray) -> None:
        """Pass the actions of these rows, in the space's form, down; returns at once if the backend can."""
        raise NotImplementedError

    def _send_reset(self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        """Request resets of these rows."""
        raise NotImplementedError

    def _receive(self, count: int, timeout: float | None) -> StepResult:
        """Return ``count`` rows as soon as they are ready."""
        raise NotImplementedError

    def _new_line(self) -> Line:
        """Return the way of a whole step through the chain."""
        return Line(self.num_envs, self.single_action_space, (), (), (False, False))

    # -- reset ---------------------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every sub-environment, or in those selected by a mask.

        Args:
            seed: sub-environment i gets ``seed + start_index + i``; or a sequence of n seeds or Nones.
            options: passed to each sub-environment, without ``options["reset_mask"]``: (n,) bool, which rows to reset;
                seeds of other rows are ignored. Neither argument is modified.

        Returns:
            The batched observations, n rows (the last ones shown for rows that the mask excludes), and the infos.

        Raises:
            ArgumentError: a mask or seeds of the wrong form.
            SubEnvError: a sub-environment raised.
        """
        try:
            self.reset_async(seed=seed, options=options)
            return self.reset_wait()
        except Exception as error:
            shorten(error)
            raise

    def reset_async(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> None:
        """Start a ``reset`` without waiting; ``reset_wait`` returns its result.

        Args:
            seed: as ``reset``.
            options: as ``reset``.
        """
        root = self._root
        root._refuse_pending("reset_async")
        env_ids, options = _split_mask(options, root)
        self._dispatch_resets(seed, [(env_ids, options)])

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """Wait for the result of ``reset_async``.

        Args:
            timeout: seconds; None waits forever.
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
            float64, (n,) bool, (n,) bool, and a dict of columns. All arrays are yours to keep, unless the environment
            was built with ``copy=False``.

        Raises:
            ArgumentError: actions of the wrong number, shape or kind.
            ResetNeededError: a row has no running episode, and the autoreset mode starts none.
            SubEnvError: a sub-environment raised.
        """
        try:
            return self._step_whole(actions)[1]
        except Exception as error:
            shorten(error)
            raise

    def _step_whole(self, actions: Any) -> tuple[StepResult, FiveTuple]:
        """Take a step; along the straight line of ``vecwrap.env.line`` if nothing is special."""
        root = self._root
        if root.in_line and self._straight_line is None:
            self._straight_line = self._new_line()
        line = self._straight_line
        if not root.in_line or line is None or line.shape is None:
            self.step_async(actions)
            return self._wait("step", "step_wait", None)
        if not (type(actions) is np.ndarray and actions.dtype is line.dtype and actions.shape == line.shape):
            actions = conform_actions(self.single_action_space, actions, self.num_envs)
        with root._interrupts:
            try:
                step = line.step(self, root, actions)
                if step is not None:
                    root._through = step, self._five_tuple(step)
            except Exception as error:
                root._refuse_closed_meanwhile(error)
                raise
        if step is None:
            return self._wait("step", "step_wait", None)
        if root._through is None:
            return self._hand_out("step")
        through, root._through, root._pending = root._through, None, None  # one line: an interrupt may come
        root.in_line = root._is_ordinary()
        return through

    def step_async(self, actions: Any) -> None:
        """Send the actions without waiting; ``step_wait`` returns the results.

        Args:
            actions: as ``step``.
        """
        root = self._root
        root._refuse_pending("step_async")
        self._dispatch("step", actions, root.all_ids)

    def step_wait(self, timeout: float | None = None) -> FiveTuple:
        """Wait for the result of ``step_async``.

        Args:
            timeout: seconds; None waits forever.
        """
        return self._wait("step", "step_wait", timeout)[1]

    def send(self, actions: Any, env_ids: Sequence[int] | IntArray | None = None) -> None:
        """Send actions to some sub-environments, without waiting.

        Args:
            actions: m actions, one for each of ``env_ids``, in the same order and in any form that ``step`` accepts.
            env_ids: (m,) int64 or a list, which sub-environments; None means all that are not pending, ascending.

        Raises:
            ArgumentError: an index is repeated, out of range, or already pending.
        """
        root = self._root
        try:
            root._refuse_pending("send", allow=None if root._through else "send")
            ids = root._idle_ids(env_ids)
            order = np.argsort(ids, kind="stable")
            self._dispatch("send", actions, ids[order], order)
        except Exception as error:
            shorten(error)
            raise

    def recv(self, timeout: float | None = None, *, min: int | None = None) -> FiveTuple:
        """Receive the first ``batch_size`` rows that are ready, or all pending rows if there is no ``batch_size``.

        Args:
            timeout: seconds; None waits forever.
            min: how many rows are enough when the timeout has passed: those that are ready are returned. None: no
                fewer than without a timeout.

        Returns:
            The five-tuple of ``step`` with m rows; ``infos["env_id"]``, (m,) int64, ascending, identifies them.

        Raises:
            WaitTimeoutError: the timeout has passed with fewer rows ready; they are kept for the next ``recv``.
            ArgumentError: ``min`` is not a number of rows that one ``recv`` can return.
            SubEnvError: a sub-environment raised.
        """
        root = self._root
        most = root.batch_size or root.num_envs
        if min is not None and min not in range(1, most + 1):
            raise ArgumentError(f"recv: min: expected 1 to {most}, the rows that one recv returns, got {min!r}")
        step, result = self._wait("send", "recv", timeout, min)
        return self._with_env_ids(result, step)

    def _dispatch_resets(self, seed: Any, requests: Sequence[tuple[IntArray, dict[str, Any] | None]]) -> None:
        """Request resets of groups of rows, each with its own options, and with the seeds given to ``reset``."""
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
                if root._num_out:  # a request that was not sent has not consumed the seed
                    root._build_seed = None

    def _dispatch(self, kind: str, actions: Any, env_ids: IntArray, order: IntArray | None = None) -> None:
        root = self._root
        rows = conform_actions(self.single_action_space, actions, len(env_ids))
        if root.debug:  # checked in the caller's order
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

    def _wait(
        self, kind: str, name: str, timeout: float | None, least: int | None = None
    ) -> tuple[StepResult, FiveTuple]:
        """Wait for rows, and pass them through the layers; past the timeout, ``least`` will do.

        An interrupt ends the wait for rows, but is held back while rows are received and pass through the layers. The
        result is then kept, and the next wait returns it.
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
                    try:
                        step = self._receive(count, timeout)
                    except TimeoutError:
                        if least is None or root._num_arrived < least:
                            raise
                        step = self._receive(root._num_arrived, timeout)  # they are here
                    root._through = step, self._five_tuple(step)
                except BaseException as error:
                    if isinstance(error, Exception):
                        root._refuse_closed_meanwhile(error)
                    if not root._num_out:  # a layer raised; all rows have arrived
                        root._pending = None
                    raise
        return self._hand_out(kind)

    def _hand_out(self, kind: str) -> tuple[StepResult, FiveTuple]:
        """Return the result that passed through the layers, or raise the first failure along with it."""
        root = self._root
        if root._through is None:  # the program's SIGINT handler took it during this wait, or has closed us
            root._refuse_closed_meanwhile()
            raise NoAsyncCallError("Another wait has already taken the result that this call waits for.", kind)
        pending = "send" if root._num_out and (kind == "send" or root._through[0].failures) else None
        (step, result), root._through, root._pending = root._through, None, pending  # one line: an interrupt may come
        root.in_line = root.has_line and root._is_ordinary()
        if step.failures:
            error = step.failures[0]
            error.failures = step.failures
            error.others = self._with_env_ids(result, step) if len(step.env_ids) else None
            raise error
        return step, result

    # -- what the user is shown ----------------------------------------------------------------------------------------

    def _five_tuple(self, step: StepResult) -> FiveTuple:
        """Gymnasium's five-tuple of m rows; built only here."""
        self._remember(step)
        infos = step.infos
        if infos and not OF_ENDS.isdisjoint(infos):
            infos = make_room(infos, "final_obs", "final_info")
        if step.final_obs is not None:
            ended = step.first & step.dones
            final_obs = np.empty(len(step.env_ids), dtype=object)  # of None
            for i in ended.nonzero()[0].tolist():
                row = batches.row(step.final_obs, i)
                final_obs[i] = gymnasium_form.element(self.single_observation_space, row) if self._scalar_boxes else row
            infos = {
                **infos,
                "final_obs": final_obs,
                "_final_obs": ended,
                "final_info": step.final_infos or {},
                "_final_info": ended.copy(),
            }
        return self._gymnasium_form(step.observations), step.rewards, step.terminations, step.truncations, infos

    @staticmethod
    def _with_env_ids(result: FiveTuple, step: StepResult) -> FiveTuple:
        return (*result[:4], {**make_room(result[4], "env_id"), "env_id": step.env_ids.copy()})

    def _remember(self, step: StepResult) -> None:
        """Keep what is shown, so that a masked reset can repeat the other rows; free if no layer changed it."""
        if not len(step.env_ids):
            return
        if self._shown is None:
            if step.observations is self._root._latest:
                self._shown_unchanged = True
                return
            if self._shown_unchanged:  # a layer changes observations only sometimes
                self._shown = self._all_observations()
            else:
                self._shown = batches.empty_like(step.observations, self.num_envs)
        batches.scatter(self._shown, step.rows, step.observations)

    def _all_observations(self) -> Batch:
        """All n rows as they were last shown, as fresh arrays."""
        return batches.copy(self._root.slots.observations.batch() if self._shown is None else self._shown)

    def _gymnasium_form(self, observations: Batch) -> Any:
        return gymnasium_form.to_gymnasium(observations) if self._object_leaves else observations

    # -- calls to the sub-environments ---------------------------------------------------------------------------------

    def call(
        self, name: str, /, *args: Any, indices: Sequence[int] | int | None = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Call a method of each sub-environment, on its outermost layer that has it; an attribute is returned as is.

        Args:
            name: the method.
            *args: its arguments.
            indices: which sub-environments, in that order; None means all.
            **kwargs: its keyword arguments; one may be called ``name``.

        Returns:
            One value per sub-environment.

        Raises:
            ValueError: for ``reset``, ``step`` and ``close``, which must go through the vector environment.
            SubEnvError: a sub-environment raised.
        """
        with brief:
            self.call_async(name, *args, indices=indices, **kwargs)
            return self.call_wait()

    env_method = call

    def call_async(self, name: str, /, *args: Any, indices: Sequence[int] | int | None = None, **kwargs: Any) -> None:
        """Start a ``call`` without waiting; ``call_wait`` returns its result.

        Args:
            name: the method.
            *args: its arguments.
            indices: which sub-environments, in that order; None means all.
            **kwargs: its keyword arguments.
        """
        self._root._call_async(name, args, kwargs, indices)

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Wait for the result of ``call_async``.

        Args:
            timeout: seconds; None waits forever.
        """
        return self._root._call_wait(timeout)

    def get_attr(self, name: str, indices: Sequence[int] | int | None = None) -> tuple[Any, ...]:
        """Return an attribute of each sub-environment, from its outermost layer that has it.

        Args:
            name: the attribute; SubEnvError if a sub-environment lacks it.
            indices: which sub-environments, in that order; None means all.
        """
        with brief:
            return self._root._get_attr(name, indices)

    def set_attr(self, name: str, values: Any, indices: Sequence[int] | int | None = None) -> None:
        """Set an attribute of each sub-environment, on the layer that has it; a new one on the environment itself.

        Args:
            name: the attribute.
            values: a list or tuple gives one value per sub-environment; anything else is set on all.
            indices: which sub-environments; None means all.

        Warns:
            UserWarning: the attribute is new, and its name is close to that of one that exists; once for each name.
        """
        with brief:
            self._root._set_attr(name, values, indices)

    @property
    def envs(self) -> list[gymnasium.Env[Any, Any]]:
        """The sub-environments, if all of them live in this process: to look at, not to step or reset."""
        if (envs := self._root._envs_here()) is None:
            raise AttributeError(
                f"{self!r} has no envs: its sub-environments live in other processes, or in an engine; use "
                'call("method", ...), get_attr("name") and set_attr("name", value), or backend="dummy"'
            )
        return envs

    def render(self, mode: None = None) -> tuple[Any, ...]:
        """Return what each sub-environment renders, according to its ``render_mode``.

        Args:
            mode: rejected; the mode is an argument of ``build``.

        Raises:
            ArgumentError: it was built without a render mode.
        """
        refuse_mode(mode)
        if self.render_mode is None:
            raise ArgumentError(
                'render: built without a render mode; expected for example build(..., render_mode="rgb_array")'
            )
        return self.call("render")

    def get_images(self, indices: Sequence[int] | int | None = None) -> tuple[Any, ...]:
        """Return a (height, width, 3) uint8 image of each sub-environment.

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
        """Return one (height, width, 3) uint8 image of all sub-environments, with ``tile``'s labels if present."""
        return tiles.fit(tiles.tile(self.get_images()), tiles.SIZE)

    def show(self) -> None:
        """Show ``picture()`` below a notebook cell; ArgumentError elsewhere, which suggests an alternative."""
        display_image(self.picture())

    @property
    def viewer_open(self) -> bool:
        """Whether the window of ``render_mode="human"`` is open."""
        return False

    def _repr_html_(self) -> str | None:
        """The plan, for notebooks; None if the environment was assembled by hand."""
        return None if self._plan is None else str(self._plan._repr_html_())

    def request_frames(self, env_ids: Sequence[int] | IntArray, opening: Sequence[int] | IntArray = ()) -> None:
        """Request frames from the next actions or resets on, until this layer calls it again.

        Frames are rendered in the sub-environment's process, before the autoreset, and arrive with the result in
        ``StepResult.frames`` and ``final_frames``. For recorders; requests of several layers are merged. May be called
        at any time; does not wait, and costs nothing if the request is unchanged.

        Args:
            env_ids: (k,) int64 or a list, sub-environments whose frames are needed with every result.
            opening: sub-environments whose frames are needed only for the first observation of an episode.
        """
        root = self._root
        root._request_frames(self, root._indices(env_ids), root._indices(opening))

    # -- structure -----------------------------------------------------------------------------------------------------

    @property
    def layers(self) -> tuple[VecEnv, ...]:
        """The vector layers, outermost first, the backend last."""
        return (self,)

    def find(self, kind: type[Layer]) -> Layer:
        """Return the outermost layer of a class.

        Args:
            kind: the class; a base class also finds its subclasses.

        Raises:
            LookupError: there is none.
            ArgumentError: ``kind`` is not a class.
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
        """Let every statistic in the chain keep updating, or freeze all of them; returns the environment.

        Args:
            mode: False freezes them.
        """
        for layer in self.layers:
            layer.training = mode
        return self

    def eval(self) -> Self:
        """Freeze every statistic in the chain, for evaluation; returns the environment."""
        return self.train(False)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the chain: of its layers and, if they support it, of the sub-environments.

        A sub-environment supports it if it and each of its wrappers either has ``state_dict`` and ``load_state_dict``,
        or is ALE's, or is one of Gymnasium's or vecwrap's wrappers. Otherwise the entry ``"sub_envs_missing"`` gives
        the reason; after a load such an environment needs a reset, while the layers continue.

        Returns:
            Arrays, numbers, text, lists and dicts.
        """
        return checkpoint.state_dict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from where ``state_dict`` was called, bit for bit if the sub-environments could be saved.

        Args:
            state: what it returned; not shared with the environment afterwards.

        Raises:
            CheckpointError: the state is of a different chain or format, or has a part that cannot be loaded; the
                message gives the first one, and nothing has changed. If a sub-environment cannot load the state that
                it had before either, and after an interrupt, the environment must be reset or loaded again before it
                can be stepped.
        """
        with brief:
            checkpoint.load_state_dict(self, state)

    def share_statistics(self, source: VecEnv | str | PathLike[str]) -> Self:
        """Use the running statistics of another chain, for evaluation; ``build(..., stats=source)`` calls this.

        The statistics of a live environment are shared, not copied: its later updates apply here too. This environment
        is put into ``eval()``, so it only reads them.

        Args:
            source: a vecwrap environment with the same normalising layers, or a file written by ``save``. n and the
                other layers may differ.

        Raises:
            CheckpointError: the source lacks a layer, or its layer is for different observations.
            ArgumentError: it is neither a vecwrap environment nor a path.
        """
        if not isinstance(source, (VecEnv, str, PathLike)):
            raise ArgumentError(
                f"stats: expected a vecwrap environment or a file written by its save, got {what_came(source)}"
            )
        checkpoint.share_statistics(self, source)
        return self.eval()

    def save(self, path: str | PathLike[str]) -> bool:
        """Write ``state_dict()`` to a ``.npz`` file atomically: after a crash or on a full disk, the old file remains.

        A disk that fills up or disappears hours later must not end the run: once this environment has written a file
        into the same folder, a failure is only a warning, given once until writing works again.

        Args:
            path: the file; a missing folder is created.

        Returns:
            Whether it was written.

        Raises:
            OSError: the file cannot be written, and none was written to this folder before.
        """
        folder = str(Path(path).absolute().parent)
        try:
            if folder not in self._saved_to:  # one that has disappeared is not recreated, maybe on another disk
                Path(folder).mkdir(parents=True, exist_ok=True)
            checkpoint.write_state(path, self.state_dict())
        except OSError as error:
            if folder not in self._saved_to:
                raise
            if self._saved_to[folder]:
                warnings.warn(
                    f"save: {path} can no longer be written ({error}); the run continues, and the last file is kept",
                    RuntimeWarning,
                    stacklevel=2,
                )
            self._saved_to = {**self._saved_to, folder: False}
            return False
        self._saved_to = {**self._saved_to, folder: True}
        return True

    def load(self, path: str | PathLike[str]) -> None:
        """Load a file written by ``save`` and continue from there; nothing in the file is executed.

        Args:
            path: the file; CheckpointError if ``save`` did not write it, or for a different chain.
        """
        with brief:
            self.load_state_dict(checkpoint.read_state(path))

    def get_original_obs(self) -> Any:
        """Return the observations last shown, n rows, as they reached the innermost layer that normalises them.

        Raises:
            LookupError: no layer does.
            ResetNeededError: nothing has been shown yet.
        """
        return gymnasium_form.to_gymnasium(self._normalizers_of(ObservationNormalizer)[0].original())

    def get_original_reward(self) -> FloatArray:
        """Return the rewards last shown, (n,) float64, as they were before any layer normalised them; 0 after a reset.

        Raises:
            LookupError: no layer normalises rewards.
            ResetNeededError: nothing has been shown yet.
        """
        original: FloatArray = self._normalizers_of(RewardNormalizer)[0].original()
        return original

    def normalize_obs(self, observations: Any) -> Any:
        """Normalise given observations as the layers do, by their current statistics; nothing is counted.

        Args:
            observations: as ``get_original_obs`` returns them, one or with any number of leading axes.

        Returns:
            float32, clipped; other members of a Dict as they are.

        Raises:
            LookupError: no layer normalises observations.
            ArgumentError: they are not of the shape of the layer's observations.
        """
        for normalizer in self._normalizers_of(ObservationNormalizer):
            observations = normalizer.normalize(observations)
        return observations

    def unnormalize_obs(self, observations: Any) -> Any:
        """Undo ``normalize_obs``, except for clipping and rounding.

        Args:
            observations: normalised ones, one or with any number of leading axes.

        Returns:
            float64.
        """
        for normalizer in reversed(self._normalizers_of(ObservationNormalizer)):
            observations = normalizer.unnormalize(observations)
        return observations

    def normalize_reward(self, rewards: Any) -> FloatArray:
        """Normalise given rewards as the layers do, by their current statistics; nothing is counted.

        Args:
            rewards: (n,) float64, or any numbers of any shape.

        Returns:
            float64, clipped.

        Raises:
            LookupError: no layer normalises rewards.
        """
        for normalizer in self._normalizers_of(RewardNormalizer):
            rewards = normalizer.normalize(rewards)
        return np.asarray(rewards)

    def unnormalize_reward(self, rewards: Any) -> FloatArray:
        """Undo ``normalize_reward``, except for clipping.

        Args:
            rewards: (n,) float64, or any numbers of any shape.
        """
        for normalizer in reversed(self._normalizers_of(RewardNormalizer)):
            rewards = normalizer.unnormalize(rewards)
        return np.asarray(rewards)

    def _normalizers(self) -> tuple[Any, ...]:
        """The halves of this layer, if it is one that normalises."""
        return ()

    def _normalizers_of(self, kind: type[Any]) -> list[Any]:
        """All that normalise observations, or rewards, inner first."""
        found = [half for layer in reversed(self.layers) for half in layer._normalizers() if isinstance(half, kind)]
        if not found:
            what, layer = ("rewards", "reward") if kind is RewardNormalizer else ("observations", "obs")
            raise LookupError(f"{self!r} has no layer that normalises {what}: normalize or normalize_{layer}")
        return found

    def health(self) -> Health:
        """Report the restarts and lost episodes of each sub-environment, and the workers."""
        return self._root.health()

    @property
    def backend(self) -> str:
        """The backend's name."""
        return self._root.name

    @property
    def autoreset_mode(self) -> AutoresetMode:
        """The value of ``metadata["autoreset_mode"]``; an attribute in Gymnasium's own vector environments too."""
        mode: AutoresetMode = self.metadata["autoreset_mode"]
        return mode

    @property
    def num_workers(self) -> int:
        """How many worker processes there are; 0 if everything runs in this process."""
        return self._root.workers

    def close(self, timeout: float | None = None, terminate: bool = False) -> None:  # type: ignore[override]
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
        """Do nothing: deleting a layer does not close what it wraps (Gymnasium 1.1 would close it here)."""

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse to be copied or pickled: a copy would share the sub-environments, or have none."""
        raise TypeError(
            f"{self!r} cannot be copied or sent to another process, because its sub-environments cannot. Build another "
            "one where it is needed, with vecwrap.build(env.pipeline); load_state_dict(env.state_dict()) makes it "
            "continue from this one's state, and stats= gives it the running statistics"
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
    """Describe, for an error, what was given instead of a vecwrap environment, and the remedy."""
    name = type(env).__name__
    if hasattr(env, "vecwrap_env"):
        return f"{name}; the vecwrap environment inside to_sb3's result is its vecwrap_env"
    inner, steps = env, ""
    while isinstance(inner, VectorWrapper):
        inner, steps = inner.env, f"{steps}.env"
    if isinstance(inner, VecEnv):
        return f"{name}, a Gymnasium wrapper around one; pass the environment itself, its {steps}"
    return f"{name}; vecwrap.build makes one, and vecwrap.wrap turns any gymnasium.vector.VectorEnv into one"


def _split_mask(options: dict[str, Any] | None, root: Backend) -> tuple[IntArray, dict[str, Any] | None]:
    """Return the rows of ``reset_mask``, and a copy of the options without it."""
    if options is None or "reset_mask" not in options:
        return root.all_ids, options
    mask = options["reset_mask"]
    num_envs = root.num_envs
    expected = f'options["reset_mask"]: expected a NumPy array of shape ({num_envs},) and dtype bool'
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
        got = f"dtype {mask.dtype}" if isinstance(mask, np.ndarray) else type(mask).__name__
        raise ArgumentError(f"{expected}, got {got}; convert it with np.array(mask, dtype=bool)")
    if mask.shape != (num_envs,):
        raise ArgumentError(f"{expected}, got shape {mask.shape}")
    if not mask.any():
        raise ArgumentError(f"{expected} with at least one True, got none; skip the call instead")
    never = root._never_reset & ~mask
    if never.any():
        raise ResetNeededError(
            f"a masked reset shows all {num_envs} rows, but sub-environments {np.flatnonzero(never).tolist()} have "
            "never been reset; call reset() without a mask first"
        )
    rest = {key: value for key, value in options.items() if key != "reset_mask"}
    return np.flatnonzero(mask), rest
