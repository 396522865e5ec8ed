"""The errors vecwrap raises: each says where, what was expected, what came, and what to do."""

from __future__ import annotations

import contextlib
import difflib
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import gymnasium.error

__all__ = [
    "ArgumentError",
    "BackendError",
    "CastWarning",
    "CheckpointError",
    "ClipError",
    "NotFiniteError",
    "PlanError",
    "PlotError",
    "ResetNeededError",
    "SpecError",
    "SubEnvError",
    "VecwrapError",
    "did_you_mean",
    "kind_of",
    "paths_looked_at",
    "text_of",
    "traceback_of",
]


class VecwrapError(Exception):
    """The root of every error that vecwrap raises by itself.

    >>> import vecwrap
    >>> try:
    ...     vecwrap.build("CartPole-v1 n=2 | framestak:4")
    ... except VecwrapError as error:
    ...     print(error)
    wrappers[0] "framestak": unknown layer. Did you mean "framestack"?
    """


class SpecError(VecwrapError, ValueError):
    """A pipeline that cannot be read: a bad line, a duplicate key, an unknown name, a wrong type.

    >>> import vecwrap
    >>> try:
    ...     vecwrap.PipelineSpec.parse("CartPole-v1 n=many")
    ... except SpecError as error:
    ...     print(error)
    n: expected int, got "many".
    """


class PlanError(VecwrapError, ValueError):
    """A pipeline that can be read but not built: a wrong order, an argument that the backend has no use for.

    >>> import vecwrap
    >>> try:
    ...     vecwrap.build("CartPole-v1", n=2, batch_size=3, backend="dummy")
    ... except PlanError as error:
    ...     print(error)
    batch_size: expected 1 to n=2, got 3.
    """


class ArgumentError(VecwrapError, ValueError):
    """An argument of a call that does not fit: actions, seeds, a reset mask, indices."""


class ResetNeededError(VecwrapError, gymnasium.error.ResetNeeded):
    """A row was stepped that has no running episode."""


class CheckpointError(VecwrapError, ValueError):
    """A saved state that does not fit, or a file that holds none."""


class ClipError(VecwrapError, ValueError):
    """A video cannot be made into an animated picture: no such file, another kind, nothing left of it."""


class PlotError(VecwrapError, ValueError):
    """Learning curves that cannot be drawn: monitor files that cannot be read or hold nothing, what does not fit."""


class BackendError(VecwrapError, RuntimeError):
    """A worker that could not be started, died, or cannot be talked to.

    Args:
        message: what is said.

    Attributes:
        worker: the worker's number, or None where no single worker is meant.
        env_ids: the sub-environments that it held.
        exitcode: as ``subprocess.Popen.returncode``: negative for a signal; None while unknown.

    >>> import os
    >>> import gymnasium
    >>> import vecwrap
    >>> class Dying(gymnasium.Wrapper):
    ...     def step(self, action):
    ...         os._exit(3)
    >>> env = vecwrap.build(lambda: Dying(gymnasium.make("CartPole-v1")), n=1, backend="subprocess")
    >>> _ = env.reset(seed=1)
    >>> try:
    ...     env.step([0])
    ... except BackendError as error:
    ...     print(error.worker, error.env_ids, error.exitcode)
    0 (0,) 3
    >>> env.close()
    """

    def __init__(
        self, message: str, *, worker: int | None = None, env_ids: tuple[int, ...] = (), exitcode: int | None = None
    ) -> None:
        super().__init__(message)
        self.worker = worker
        self.env_ids = env_ids
        self.exitcode = exitcode


class RemoteTraceback(Exception):
    """The traceback of another process, as text, to stand as the cause of an error in this one."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


class SubEnvError(VecwrapError, RuntimeError):
    """A sub-environment raised; the others are unharmed.

    The row needs a reset (a masked one will do); every other row goes on from where it is. ``__cause__`` holds the
    sub-environment's own exception (dummy) or its traceback as text (the other backends).

    Args:
        message: what is said.

    Attributes:
        index: which sub-environment.
        seed: the seed of its last seeded reset, or None.
        episode: how many episodes it had begun, the present one included.
        step: how many agent steps of the present episode it had done.
        action: the action that led there, or None.
        during: what was asked of it: ``"step"``, ``"reset"``, ``"render"``, ``"call"``, ``"set_attr"`` or ``"make"``.
        kind: the name of the exception's class, ``"ValueError"`` for instance.
        others: what the healthy rows gave in the same call, the five-tuple of ``recv`` (with ``infos["env_id"]``) or
            None where there is nothing: the call raises, but their transitions are not lost.
        failures: every sub-environment that failed in this call, this one first.

    >>> import vecwrap
    >>> from vecwrap.testing import ToyEnv
    >>> env = vecwrap.build(ToyEnv, n=3, backend="dummy")
    >>> _ = env.reset(seed=1)
    >>> env.set_attr("raise_in", "step", indices=1)
    >>> try:
    ...     env.step([0, 1, 2])
    ... except SubEnvError as error:
    ...     print(error.index, error.seed, error.during)
    ...     observations, rewards, terminations, truncations, infos = error.others
    1 2 step
    >>> infos["env_id"], observations.shape
    (array([0, 2]), (2, 3))
    >>> env.close()
    """

    def __init__(
        self,
        message: str,
        *,
        index: int,
        seed: int | None = None,
        episode: int = 0,
        step: int = 0,
        action: Any = None,
        during: str = "step",
        kind: str = "",
    ) -> None:
        super().__init__(message)
        self.index = index
        self.seed = seed
        self.episode = episode
        self.step = step
        self.action = action
        self.during = during
        self.kind = kind
        self.others: tuple[Any, ...] | None = None
        self.failures: tuple[SubEnvError, ...] = (self,)

    def __reduce__(self) -> tuple[Any, ...]:
        """Let it leave a process, a pool's for instance; of what the environment raised, the traceback as text."""
        cause = self.__cause__
        if cause is not None and not isinstance(cause, RemoteTraceback):
            cause = RemoteTraceback(traceback_of(cause))
        return type(self).__new__, (type(self), *self.args), {**vars(self), "__cause__": cause}


class NotFiniteError(VecwrapError, ValueError):
    """A NaN or an infinity, where a layer was asked to look for it or cannot go on with it.

    Attributes:
        index: the sub-environment, or None where no single one is meant.
        step: how many agent steps of its episode it had done, or None where that is not known.
        action: the action that led there, or None.
    """

    def __init__(self, message: str, *, index: int | None = None, step: int | None = None, action: Any = None) -> None:
        super().__init__(message)
        self.index = index
        self.step = step
        self.action = action


class CastWarning(UserWarning):
    """An environment's observations have another dtype than its space says, of the same kind; they are cast."""


@contextlib.contextmanager
def paths_looked_at(kind: type[VecwrapError]) -> Iterator[None]:
    """Say what the system says of a path that somebody gave, as that it may not be read, in an error of ours.

    Args:
        kind: of which kind.

    Raises:
        VecwrapError: of that kind.

    >>> with paths_looked_at(PlotError):  # doctest: +ELLIPSIS
    ...     Path("x" * 300).is_file()
    Traceback (most recent call last):
    vecwrap.errors.PlotError: xxx...: cannot be read (File name too long). Is the path right, seen from ...?
    """
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise
        why = f"{error.filename}: cannot be read ({error.strerror})"
        raise kind(f"{why}. Is the path right, seen from {Path.cwd()}?") from error


def text_of(error: BaseException) -> str:
    r"""Give what an exception says, as text that can be printed and written everywhere.

    >>> text_of(ValueError("no such shape")), text_of(ValueError("lvl \udc80"))
    ('no such shape', 'lvl \\udc80')
    """
    try:
        return str(error).encode(errors="backslashreplace").decode()
    except (Exception, SystemExit):  # an exception of the user's own may fail even here
        return "(its message cannot be shown)"


def kind_of(error: BaseException) -> str:
    """Give the name of an exception's class, whatever a class of that class makes of names."""
    name: str = type.__dict__["__name__"].__get__(type(error))
    return name


def traceback_of(error: BaseException) -> str:
    """Format an exception with its traceback; where the exception's own attributes prevent that, what is left of it."""
    try:
        return "".join(traceback.format_exception(error))
    except (Exception, SystemExit):  # it may fail where its notes, its causes or its members are looked up
        frames = traceback.format_tb(BaseException.__dict__["__traceback__"].__get__(error))
        return "".join(["Traceback (most recent call last):\n", *frames, f"{kind_of(error)}: {text_of(error)}\n"])


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Give ``' Did you mean "framestack"?'`` where a candidate is near to ``name``, else ``""``.

    >>> did_you_mean("framestak", ["framestack", "monitor"])
    ' Did you mean "framestack"?'
    >>> did_you_mean("xyz", ["framestack", "monitor"])
    ''
    """
    near = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    return f' Did you mean "{near[0]}"?' if near else ""
