"""What Tab offers for the values of options and arguments.

Where nothing of this fits, the shell offers files.
"""

import os
from collections.abc import Callable, Iterable

from vecwrap.pipeline import registry


def one_of(*values: str) -> Callable[[str], list[str]]:
    """Return a completion that offers these values."""
    return lambda incomplete: _fitting(values, incomplete)


def backend_names(incomplete: str) -> list[str]:
    return _fitting(["auto", *registry.backends.names()], incomplete)


def comma_separated(*values: str) -> Callable[[str], list[str]]:
    """Return a completion that offers these values for the last part of a list with commas."""

    def complete(incomplete: str) -> list[str]:
        given, comma, last = incomplete.rpartition(",")
        return [f"{given}{comma}{value}" for value in _fitting(values, last)]

    return complete


def requested_command() -> list[str]:
    """Return the command, in a list, of the line that a shell wants to complete."""
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    return line.split()[1:2]


def algorithms(incomplete: str) -> list[str]:
    from vecwrap.tools.trained import ALGORITHMS

    return _fitting(ALGORITHMS, incomplete)


def _fitting(values: Iterable[str], incomplete: str) -> list[str]:
    return [value for value in values if value.startswith(incomplete)]
