"""Every error that a user meets; each says where, what was expected, what came and what to do.

::

    VecwrapError
      SpecError          (ValueError)    a pipeline that cannot be read
      PlanError          (ValueError)    a pipeline that can be read, and not built
      ArgumentError      (ValueError)    a wrong argument of a call
      NotFiniteError     (ValueError)    a nan or an infinity that check_nan found
      CheckpointError    (ValueError)    a saved state that does not fit
      PlotError          (ValueError)    runs that cannot be plotted
      ResetNeededError   (gymnasium.error.ResetNeeded)    a step before a reset
      WaitTimeoutError   (TimeoutError)  a wait that took longer than its timeout; nothing is lost
      SubEnvError        (RuntimeError)  a sub-environment raised
      BackendError       (RuntimeError)  a worker or the whole backend failed
    AlreadyPendingCallError  (Exception)  a call while the result of another is pending: Gymnasium's
    NoAsyncCallError     (Exception)     a wait for a result, and no call is pending: Gymnasium's
    ClosedEnvironmentError  (Exception)  a call after close: Gymnasium's
    RemoteTraceback      (Exception)     the traceback of a worker, the ``__cause__`` of an error
    CastWarning          (UserWarning)   observations of another dtype were cast

Besides, Python's own: TypeError for an object of another kind, AttributeError for a missing name,
LookupError from ``find``, OSError for a file that cannot be written, and ImportError.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import multiprocessing
import operator
import os
import re
import traceback
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

import gymnasium.error
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError

__all__ = [
    "AlreadyPendingCallError",
    "ArgumentError",
    "BackendError",
    "CastWarning",
    "CheckpointError",
    "ClosedEnvironmentError",
    "NoAsyncCallError",
    "NotFiniteError",
    "PlanError",
    "PlotError",
    "RemoteTraceback",
    "ResetNeededError",
    "SpecError",
    "SubEnvError",
    "VecwrapError",
    "WaitTimeoutError",
]


class VecwrapError(Exception):
    """The base class of vecwrap's own errors.

    >>> import vecwrap
    >>> try:
    ...     vecwrap.build("CartPole-v1 n=2 | framestak:4")
    ... except VecwrapError as error:
    ...     print(error)
    wrappers[0] "framestak": unknown wrapper. Did you mean "framestack"?
    """

    mistakes: tuple[VecwrapError, ...] = ()  # of a pipeline, one error each, if several were found
    # those that could be read, of a pipeline that cannot be read; ``check`` looks at them
    wrappers: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return printable_lines(truncate(super().__str__()))


def truncate(text: str, most: int = 8_000) -> str:
    """Leave out the middle of a long text, such as a quotation from a file or environment."""
    if len(text) <= most + 100:
        return text
    half = most // 2
    return f"{text[:half]} ... ({len(text) - 2 * half:,} characters left out) ... {text[-half:]}"


def printable(text: str) -> str:
    if text.isprintable():
        return text
    escaped = {ord(char): json.dumps(char)[1:-1] for char in text if not char.isprintable()}
    return text.translate(escaped)


def printable_lines(text: str) -> str:
    """Escape control characters in untrusted text: an id, an exception or a name in a file."""
    return re.sub(r"[^\n\t]+", lambda part: printable(part[0]), text)


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
    """A pipeline that can be read but not built, for example because of a wrong order.

    Another example is an argument that the backend does not support.

    >>> import vecwrap
    >>> try:
    ...     vecwrap.build("CartPole-v1", n=2, batch_size=3, backend="dummy")
    ... except PlanError as error:
    ...     print(error)
    batch_size: expected 1 to n=2, got 3.
    """


class ArgumentError(VecwrapError, ValueError):
    """An invalid argument of a call: actions, seeds, a reset mask, indices."""


class ResetNeededError(VecwrapError, gymnasium.error.ResetNeeded):
    """A row without a running episode was stepped."""


class CheckpointError(VecwrapError, ValueError):
    """A saved state that does not fit, or a file that does not contain one."""


class PlotError(VecwrapError, ValueError):
    """Learning curves that cannot be drawn.

    For example, monitor files are unreadable or empty, or arguments do not fit.
    """


class BackendError(VecwrapError, RuntimeError):
    """A worker could not be started, died, or cannot be reached.

    Args:
        message: the error text.

    Attributes:
        worker: the worker's number, or None if the error is not about a single worker.
        env_ids: the sub-environments it ran.
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
        self,
        message: str,
        *,
        worker: int | None = None,
        env_ids: tuple[int, ...] = (),
        exitcode: int | None = None,
    ) -> None:
        super().__init__(message)
        self.worker = worker
        self.env_ids = env_ids
        self.exitcode = exitcode


class WaitTimeoutError(VecwrapError, multiprocessing.TimeoutError, TimeoutError):
    """A wait whose ``timeout`` has passed; its call stays pending, and nothing is lost: wait again.

    Caught as Python's ``TimeoutError`` and as ``multiprocessing.TimeoutError``, which Gymnasium
    raises.
    """


class RemoteTraceback(Exception):
    """The traceback of another process, as text: the cause of an error in this one."""

    def __str__(self) -> str:
        return printable_lines(f"\n{self.args[0]}")


class SubEnvError(VecwrapError, RuntimeError):
    """A sub-environment raised; the other sub-environments are unharmed.

    The row needs a reset (a masked one is enough); all other rows can continue. ``__cause__`` holds
    the sub-environment's own exception (dummy) or its traceback as text (the other backends).

    Args:
        message: the error text.

    Attributes:
        index: which sub-environment.
        seed: the seed of its last seeded reset, or None.
        episode: how many episodes it had started, including the current one.
        step: how many agent steps of the current episode it had completed.
        action: the action that led there, or None.
        during: what it was doing: ``"step"``, ``"reset"``, ``"render"``, ``"call"``, ``"set_attr"``
            or ``"make"``.
        kind: the name of the exception's class, for example ``"ValueError"``.
        others: the results of the healthy rows in the same call, as the five-tuple of ``recv``
            (with ``infos["env_id"]``), or None if there are none: the call raises, but their
            transitions are not lost.
        failures: the errors of all sub-environments that failed in this call, this one first.

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
        """Make the error picklable; the environment's exception becomes traceback text.

        Process pools, for example, pickle errors.
        """
        cause = self.__cause__
        if cause is not None and not isinstance(cause, RemoteTraceback):
            cause = RemoteTraceback(traceback_of(cause))
        return type(self).__new__, (type(self), *self.args), {**vars(self), "__cause__": cause}


class NotFiniteError(VecwrapError, ValueError):
    """A NaN or an infinity, found by a wrapper that checks for it or cannot continue with it.

    Attributes:
        index: the sub-environment, or None if the error is not about a single one.
        step: how many agent steps of its episode it had completed, or None if unknown.
        action: the action that led there, or None.
    """

    def __init__(
        self, message: str, *, index: int | None = None, step: int | None = None, action: Any = None
    ) -> None:
        super().__init__(message)
        self.index = index
        self.step = step
        self.action = action


class CastWarning(UserWarning):
    """Observations that are cast: their dtype differs from the space's, but not the kind."""


@contextlib.contextmanager
def searched_paths(kind: type[VecwrapError]) -> Iterator[None]:
    """Turn an OSError about a path that a user gave, such as a forbidden one, into another."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise
        why = f"{error.filename}: cannot be read ({error.strerror})"
        raise kind(f"{why}. Is the path right, relative to {Path.cwd()}?") from error


def text_of(error: BaseException) -> str:
    """Return an exception's message with visible escapes, or where it was raised if empty."""
    try:
        return printable_lines(str(error) or _raised_at(error))
    except (Exception, SystemExit):  # the __str__ of a user's exception may fail
        return "(its message cannot be shown)"


def _raised_at(error: BaseException) -> str:
    """``"game.py:12: assert self.lives > 0"``, or ``""`` for what was not raised."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    return f"{frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line}".removesuffix(": ")


def kind_of(error: BaseException) -> str:
    """Return the name of an exception's class, whatever its metaclass makes of ``__name__``."""
    name: str = type.__dict__["__name__"].__get__(type(error))
    return printable(name)


def one_line(error: BaseException, most: int = 300) -> str:
    """Return an exception's class and message in one line of at most about so many characters."""
    return f"{kind_of(error)}: {printable(truncate(text_of(error), most))}"


def traceback_of(error: BaseException) -> str:
    """Format an exception with its traceback, as far as the exception's own attributes allow."""
    try:
        return "".join(traceback.format_exception(error))
    except (Exception, SystemExit):  # looking up its notes, causes or members may fail
        frames = "".join(traceback.format_tb(raised_through(error)))
        return f"Traceback (most recent call last):\n{frames}{kind_of(error)}: {text_of(error)}\n"


def raised_through(error: BaseException) -> TracebackType | None:
    """Return an exception's traceback, whatever its class makes of attributes."""
    frames: TracebackType | None = BaseException.__dict__["__traceback__"].__get__(error)
    return frames


_MAX_COMPARED = 200  # characters; comparing longer texts takes minutes


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return ``' Did you mean "framestack"?'`` if a candidate is close to ``name``, else ``""``."""
    if len(name) > _MAX_COMPARED:
        return ""
    short = [candidate for candidate in candidates if len(candidate) <= _MAX_COMPARED]
    matches = difflib.get_close_matches(name, short, n=1, cutoff=0.6)
    if not matches:
        return ""
    return f' Did you mean "{matches[0]}"?'


def is_installed(package: str) -> bool:
    """Return whether a package can be imported; a mere folder of that name does not count."""
    try:
        module = find_spec(package)
    except (ImportError, ValueError):  # as for sys.modules[package] = None
        return False
    return module is not None and module.origin is not None


def install_command(extra: str) -> str:
    """Return the pip command that adds an extra to this installation, from where it came.

    pip keeps the address of a clone, a git repository or a wheel in ``direct_url.json`` (PEP 610);
    what has none came from an index. A package that runs from a clone without being installed has
    its ``pyproject.toml`` beside it.
    """
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        recorded = distribution("vecwrap").read_text("direct_url.json")
    except PackageNotFoundError:
        recorded = None
        clone = Path(__file__).resolve().parents[1]
        if (clone / "pyproject.toml").exists():
            return f'pip install -e "{clone}[{extra}]"'
    if recorded is None:
        return f'pip install "vecwrap[{extra}]"'
    origin = json.loads(recorded)
    url = origin["url"]
    if "dir_info" in origin:
        option = "-e " if origin["dir_info"].get("editable") else ""
        return f'pip install {option}"{url2pathname(urlsplit(url).path)}[{extra}]"'
    if "vcs_info" in origin:
        revision = origin["vcs_info"].get("requested_revision")
        url = f"{origin['vcs_info']['vcs']}+{url}"
        if revision:
            url += f"@{revision}"
    return f'pip install "vecwrap[{extra}] @ {url}"'


_USER_ERRORS = (
    SpecError,
    PlanError,
    ArgumentError,
    CheckpointError,
    PlotError,
    SubEnvError,
    gymnasium.error.ResetNeeded,
    AlreadyPendingCallError,
    ClosedEnvironmentError,
)


def hide_internal_frames(error: BaseException) -> None:
    """End the traceback of a user's mistake at the call of vecwrap: the message is enough.

    Other errors keep their traceback, as does an error with a user's own code below the call.
    """
    user_frame = error.__traceback__
    if user_frame is not None and _is_user_error(error):
        user_frame.tb_next = None


def _is_user_error(error: BaseException) -> bool:
    """Whether the message alone explains the mistake, because only vecwrap's code was running."""
    if not isinstance(error, _USER_ERRORS) or os.environ.get("VECWRAP_TRACEBACK") == "full":
        return False
    modules = (
        frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)
    )
    return all(name.partition(".")[0] in ("vecwrap", "contextlib") for name in modules)


def cause_of(error: BaseException | None) -> BaseException | None:
    """Return the cause for an error that repeats this one's message; None if that is enough."""
    if isinstance(error, RemoteTraceback) and os.environ.get("VECWRAP_TRACEBACK") != "full":
        return error if "direct cause" in str(error) else None
    if error is not None and _is_user_error(error):
        return cause_of(error.__cause__)
    return error


class HiddenInternalFrames:
    """A ``with`` in what a user calls: the tracebacks of errors raised in it are shortened."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is not None:
            hide_internal_frames(error)


internal_frames_hidden = HiddenInternalFrames()


def one_of(argument: str, value: Any, values: tuple[str, ...]) -> Any:
    if value not in values:
        near = did_you_mean(str(value), values)
        raise PlanError(f'{argument}: expected {" or ".join(values)}, got "{value}".{near}')
    return value


def at_least(argument: str, value: int, least: int) -> int:
    if value < least:
        raise PlanError(f"{argument}: expected at least {least}, got {value}")
    return int(value)


def read_names(names: str | Iterable[Any]) -> tuple[Any, ...]:
    """Read a list of names; a text is one name, or several names joined by ``+``.

    Spec lines cannot hold lists.
    """
    if isinstance(names, str):
        return tuple(names.split("+"))
    return tuple(names)


def chosen_envs(argument: str, envs: Iterable[int] | None, num_envs: int) -> tuple[int, ...]:
    """Return the chosen sub-environments, in order; None means all."""
    if envs is None:
        envs = range(num_envs)
    ids = tuple(operator.index(i) for i in envs)  # for JSON
    if not ids or len(set(ids)) != len(ids) or not all(0 <= i < num_envs for i in ids):
        raise PlanError(
            f"{argument}: expected indices from 0 to {num_envs - 1}, each once, got {list(ids)}"
        )
    return ids


# infos keys that the outermost environment writes
_RESERVED_INFO_KEYS = ("final_obs", "final_info", "env_id")


def check_info_key(argument: str, key: str, default: str) -> None:
    """Refuse an infos key that is empty, a mask's, or written by the outermost environment."""
    if not key or key.startswith("_") or key in _RESERVED_INFO_KEYS:
        raise PlanError(
            f"{argument}: expected a name without a leading underscore and none of "
            f"{', '.join(_RESERVED_INFO_KEYS)}, "
            f'got "{key}"; the default is "{default}"'
        )
