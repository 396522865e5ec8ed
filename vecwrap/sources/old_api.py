"""The API of OpenAI's Gym before 0.26, recognised by what an environment returns and raises."""

from __future__ import annotations

import re
import traceback
from typing import Any

_REMEDY = (
    "Change the environment, or wrap it as docs/migrating.md shows; shimmy.GymV21CompatibilityV0 wraps those of the "
    "package gym"
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
        r"reset\(\) (got an unexpected keyword argument '(seed|options)'|takes no keyword arguments)",
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


def old_api(error: BaseException, message: str) -> str:
    """Return what to add to an exception's message if an environment of the old API caused it, else ``""``."""
    if not issubclass(type(error), (TypeError, ValueError)):  # an error may raise when it is looked at
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    line = (frames[-1].line or "") if frames else ""
    said = (said for sign, call, said in _SIGNS if call in line and re.search(sign, message))
    return next((f". This is the old Gym API: {expected}. {_REMEDY}" for expected in said), "")


def refuse_no_pair(result: Any) -> None:
    is_pair = isinstance(result, (tuple, list)) and len(result) == 2
    if not is_pair or not (result[1] is None or hasattr(result[1], "items")):
        got = type(result).__name__ + (f" of {len(result)}" if isinstance(result, (tuple, list)) else "")
        raise TypeError(f"expected (observation, info), got {got}, as in the old Gym API. {_REMEDY}")


def not_an_env(made: Any) -> str:
    """What to say of an object that is not a ``gymnasium.Env``: what was expected, and what it is."""
    kind = type(made)
    if any(base.__module__.partition(".")[0] == "gym" for base in kind.__mro__):
        return f"{kind.__name__}, a gym.Env of the old Gym API, expected a gymnasium.Env. {_REMEDY}"
    return f"{kind.__name__}, expected a gymnasium.Env"
