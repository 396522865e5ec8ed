"""An exception of a sub-environment in a form that can be sent.

The message also explains errors that environments of OpenAI's Gym before 0.26 cause.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vecwrap.errors import (
    RemoteTraceback,
    SubEnvError,
    kind_of,
    raised_through,
    text_of,
    traceback_of,
)
from vecwrap.rows.gymnasium_form import range_of


@dataclass(frozen=True)
class Failure:
    index: int
    seed: int | None
    episode: int
    step: int
    action: Any
    during: str
    kind: str
    message: str
    traceback: str
    note: str = ""  # what was done about it
    autoreset: bool = False  # a step began the next episode, and its reset failed
    # The step itself was done; its row lacks only the reset that failed after it.
    stepped: bool = False
    refused: bool = False  # an engine or a game does not have what was requested
    whole_source: str = ""  # if all rows of its engine failed: what that is
    cause: BaseException | None = field(default=None, compare=False)

    def error(self) -> SubEnvError:
        during = self.during
        steps = f"{self.step} step{'s' * (self.step != 1)}"
        place = ""
        if self.episode:
            place = f" of its episode {self.episode}, after {steps}"
        action = ""
        remedy = ""
        if during == "step" and not self.whole_source:
            value = self.action
            if isinstance(value, np.generic):
                value = value.item()
            action = f" on action {value!r}"
            remedy = "\nThe others are unharmed; reset this one before it is stepped again."
        if self.autoreset:
            during = "reset"
            place = f" after its episode {self.episode} of {steps}"
            action = ""
        seed = "unseeded"
        if self.seed is not None:
            seed = f"seed {self.seed}"
        error = SubEnvError(
            f"sub-environment {self.index} ({seed}){self.whole_source} raised {self.kind} in "
            f"{during}{place}{action}: {self.message}{self.note}{remedy}",
            index=self.index,
            seed=self.seed,
            episode=self.episode,
            step=self.step,
            action=self.action,
            during=self.during,
            kind=self.kind,
        )
        error.__cause__ = self.cause or RemoteTraceback(self.traceback)
        return error

    def is_of(self, env_ids: range) -> bool:
        texts = self.during, self.kind, self.message, self.traceback, self.note, self.whole_source
        return (
            type(self.index) is int
            and self.index in env_ids
            and {*map(type, texts)} == {str}
            and not self.cause
        )

    def without_cause(self) -> Failure:
        """Return the form to send: an environment's exceptions may not survive pickling."""
        return replace(self, cause=None)


class MakeError(Exception):
    """A source could not be made, or its factory not be read here."""

    def __init__(self, failure: Failure, factory: Any = None) -> None:
        super().__init__(failure)
        self.failure = failure
        self.factory = factory


def make_failure(index: int, error: BaseException) -> Failure:
    """Report what was raised as something was made; other callers replace what they know better."""
    message = text_of(error)
    hint = _old_api_hint(error, message) or _display_hint(error, message)
    if hint:
        message = f"{message.removesuffix('.')}. {hint}"
    return Failure(
        index,
        seed=None,
        episode=0,
        step=0,
        action=None,
        during="make",
        kind=kind_of(error),
        message=message,
        traceback=traceback_of(error),
        cause=error,
    )


_REMEDY = (
    "Change the environment, or wrap it as docs/migrating.md shows; shimmy.GymV21CompatibilityV0 "
    "wraps those of the package gym"
)
# What an exception says, what is called in the line that raised it, and what was expected.
_SIGNS = (
    (
        r"not enough values to unpack \(expected 5, got 4\)",
        ".step(",
        "step returned four values, expected (observation, reward, terminated, truncated, info)",
    ),
    (
        r"values to unpack \(expected 2|cannot unpack non-iterable",
        ".reset(",
        "reset returned an observation alone, expected (observation, info)",
    ),
    (
        (
            r"reset\(\) (got an unexpected keyword argument '(seed|options)'|takes no keyword "
            r"arguments)"
        ),
        ".reset(",
        "expected reset(self, *, seed=None, options=None)",
    ),
    (
        r"render\(\) missing 1 required positional argument: 'mode'",
        ".render(",
        "expected render(self), with the mode given to __init__ as render_mode",
    ),
    (r"must inherit from the gymnasium\.Env class", "", "if its class derives from gym.Env"),
)


def _old_api_hint(error: BaseException, message: str) -> str:
    """Return the hint for an error that an environment of the old Gym API caused, or ``""``."""
    # An error may raise when it is looked at.
    if not issubclass(type(error), (TypeError, ValueError)):
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    line = ""
    if frames:
        line = frames[-1].line or ""
    for sign, call, expected in _SIGNS:
        if call in line and re.search(sign, message):
            return f"This is the old Gym API: {expected}. {_REMEDY}"
    return ""


def _display_hint(error: BaseException, message: str) -> str:
    """Return the hint for an error of a drawing library without a display, or ``""``."""
    # pygame's class of errors is named `error`.
    if (
        re.search(r"(?i)video (device|system)|SDL_VIDEODRIVER", message)
        and kind_of(error) == "error"
    ):
        return (
            'pygame found no display: take render_mode="rgb_array", or set '
            "SDL_VIDEODRIVER=dummy before the start"
        )
    if not re.search(r"OpenGL|PYOPENGL|MUJOCO_GL|EGL|GLFW|OSMesa|glGetError|gladLoadGL", message):
        return ""
    files = {
        frame.f_code.co_filename.replace("\\", "/")
        for frame, _ in traceback.walk_tb(raised_through(error))
    }
    if not any(re.search(r"/(mujoco|dm_control)/", file) for file in files):
        return ""
    if "PYOPENGL_PLATFORM" in message:
        return (
            "Unset PYOPENGL_PLATFORM, or set it to the same as MUJOCO_GL, before the program starts"
        )
    return _MUJOCO_GL.get(os.environ.get("MUJOCO_GL", "").strip().lower(), _MUJOCO_GL[""])


_MUJOCO_GL = {
    "": "To draw without a display, set MUJOCO_GL=egl (or osmesa) before the program starts",
    "egl": (
        "MUJOCO_GL=egl needs a driver with EGL; MUJOCO_GL=osmesa needs none, but the library "
        "OSMesa (libosmesa6)"
    ),
    "osmesa": (
        "MUJOCO_GL=osmesa needs the library OSMesa (libosmesa6); MUJOCO_GL=egl draws with a "
        "graphics driver"
    ),
}


def outside_note(env: Any, action: Any) -> str:
    """Say that the action of a failed step is outside of the action space, or return ``""``."""
    try:
        space = env.action_space
        if space.contains(action):
            return ""
    except Exception:  # a space of the environment's own may fail at what it does not know
        return ""
    takes = range_of(space).removeprefix(". ")
    return f"\n{takes or f'The action is outside of {space}'}."


def refuse_no_pair(result: Any) -> None:
    is_pair = isinstance(result, (tuple, list)) and len(result) == 2
    if not is_pair or not (result[1] is None or hasattr(result[1], "items")):
        got = type(result).__name__
        if isinstance(result, (tuple, list)):
            got += f" of {len(result)}"
        raise TypeError(
            f"expected (observation, info), got {got}, as in the old Gym API. {_REMEDY}"
        )


def not_an_env(made: Any) -> str:
    """Describe an object that is not a ``gymnasium.Env``, and say what was expected."""
    kind = type(made)
    if any(base.__module__.partition(".")[0] == "gym" for base in kind.__mro__):
        return f"{kind.__name__}, a gym.Env of the old Gym API, expected a gymnasium.Env. {_REMEDY}"
    return f"{kind.__name__}, expected a gymnasium.Env"


def errors_of(failures: Sequence[Failure]) -> tuple[SubEnvError, ...]:
    """In ascending order of sub-environments, independent of which answered first."""
    return tuple(failure.error() for failure in sorted(failures, key=lambda failure: failure.index))
