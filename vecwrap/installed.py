"""Whether a package is installed, without importing it."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["is_installed"]


def is_installed(package: str) -> bool:
    """Whether a package can be imported; a mere folder of its name on Python's path does not count.

    >>> is_installed("numpy"), is_installed("no_such_package")
    (True, False)
    """
    try:
        found = find_spec(package)
    except (ImportError, ValueError):  # as for sys.modules[package] = None
        return False
    return found is not None and found.origin is not None
