"""Makes policies of a pool's members: arrays by ``make``, scripted members by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from gymnasium import spaces

from vecwrap.errors import ArgumentError, SpecError, did_you_mean, text_of
from vecwrap.selfplay.arrays import Arrays, Form, form_text
from vecwrap.selfplay.scripted import RANDOM, RandomPolicy
from vecwrap.sources.import_paths import import_path, import_target, is_import_path, refuse_import

Policy: TypeAlias = Callable[..., Any]
Make: TypeAlias = Callable[[Arrays], Policy]


class Policies:
    """Makes policies, and imports what that needs if it may."""

    def __init__(self, where: str, make: str | Make | None, *, imports: bool) -> None:
        self._where = where
        self._imports = imports
        if callable(make):
            self._make: Make | None = make
            self.path = import_path(make)
        else:
            self._make = None
            self.path = make
        self.action_space: spaces.Space[Any] | None = None  # what a random policy needs
        if isinstance(make, str):
            self._checked("make", make)

    @property
    def can_make(self) -> bool:
        return self._make is not None or self.path is not None

    def use(self, path: str | None) -> None:
        if not self.can_make and path is not None:
            self.path = self._checked("make", path)

    def use_function(self, make: Make) -> None:
        if not self.can_make:
            self.path = import_path(make)
            self._make = make

    def checked_scripted(self, name: str) -> str:
        """Return the name of a scripted member, if it is one that may be used."""
        if name == RANDOM:
            return name
        if not is_import_path(name):
            raise SpecError(
                f'{self._where}: scripted: expected "{RANDOM}" or the import path of a policy, '
                f'"module:function", got "{name}".{did_you_mean(name, [RANDOM])}'
            )
        return self._checked("scripted", name)

    def scripted(self, name: str) -> Policy:
        if name != RANDOM:
            return import_target(_moved(name), f"{self._where}: scripted")
        if self.action_space is None:
            raise ArgumentError(
                f"{self._where}: {RANDOM}: expected a pool that knows its game; call pool.bind "
                "first"
            )
        return RandomPolicy(self.action_space)

    def make(self, name: str, arrays: Arrays, form: Form) -> Policy:
        if self._make is None:
            if self.path is None:
                raise ArgumentError(
                    f"{self._where}: {name}: expected a way to make a policy from its arrays, "
                    "which pool.json does not "
                    'say; give OpponentPool(dir, make="module:function")'
                )
            self._make = import_target(self.path, f"{self._where}: make")
        try:
            made = self._make(arrays)
        except Exception as error:
            raise ArgumentError(
                f"{self._where}: {name}: make raised {type(error).__name__}: "
                f"{text_of(error)[:500]}; it received {form_text(form)}. Is it the make of this "
                "pool?"
            ) from error
        if not callable(made) and not callable(getattr(made, "predict", None)):
            raise ArgumentError(
                f"{self._where}: {name}: make: expected it to return a policy, a callable or a "
                f"model with predict, got {type(made).__name__}"
            )
        return made

    def _checked(self, argument: str, path: str) -> str:
        if not is_import_path(path):
            raise SpecError(
                f'{self._where}: {argument}: expected an import path "module:function", got '
                f'"{path}"'
            )
        refuse_import(path, f"{self._where}: {argument}", imports=self._imports)
        return path


def _moved(path: str) -> str:
    """Return the present import path of a scripted player of vecwrap 0.1.

    A pool's folder may name the player by its old path.
    """
    before = "vecwrap.wrappers.selfplay."
    if path.startswith(before):
        return f"vecwrap.selfplay.{path.removeprefix(before)}"
    return path
