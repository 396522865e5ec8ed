"""Import paths, ``"module:attr"``: the only way in which pipelines name objects to import."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from vecwrap.errors import SpecError, did_you_mean, install_command

PATTERN = r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*"  # of an import path


def is_import_path(text: str) -> bool:
    """Whether a text has the form ``"module:attr"``; nothing else is ever imported."""
    return re.fullmatch(PATTERN, text) is not None


def import_path(target: Any) -> str | None:
    """Return ``"module:qualname"`` if that path leads to the very same object, else None.

    The path is also valid in another process.
    """
    module = getattr(target, "__module__", None)
    name = getattr(target, "__qualname__", None)
    if (
        not isinstance(module, str)
        or not isinstance(name, str)
        or module == "__main__"
        or "<" in name
    ):
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is target:
        return f"{module}:{name}"
    return None


def refuse_import(path: str, where: str, *, imports: bool) -> None:
    if not imports:
        raise SpecError(f'{where}: expected nothing to import (--no-imports), got "{path}"')


def import_target(path: str, where: str, extra: str | None = None) -> Callable[..., Any]:
    if not is_import_path(path):
        raise SpecError(
            f'{where}: expected an import path "module:attr", got '
            f"{json.dumps(path, ensure_ascii=False)}."
        )
    module_name, _, attr = path.partition(":")
    found: Any = imported(module_name, where, extra)
    for part in attr.split("."):
        if not hasattr(found, part):
            raise SpecError(
                f"{where}: {module_name} has no {attr}.{did_you_mean(part, dir(found))}"
            )
        found = getattr(found, part)
    if not callable(found):
        raise SpecError(f"{where}: expected a class or callable, got a {type(found).__name__}.")
    return found  # type: ignore[no-any-return]


def imported(module_name: str, where: str, extra: str | None = None) -> ModuleType:
    try:
        return import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(f"{missing}."):
            remedy = ""
            if "." not in missing:
                remedy = " Is its folder on sys.path? PYTHONPATH=FOLDER puts it there."
            raise SpecError(f"{where}: there is no module {missing}.{remedy}") from None
        if extra:
            command = install_command(extra)
        else:
            command = f"install {missing}"
        raise SpecError(f"{where} needs {missing}: {command}") from error
    except (Exception, SystemExit) as error:
        raise SpecError(
            f"{where}: importing {module_name} raised {type(error).__name__}: {error}"
        ) from error
