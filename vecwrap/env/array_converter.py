"""What an environment has whose calls take and return another library's arrays, such as tensors."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["ArrayConverter"]


class ArrayConverter(Protocol):
    """Converts batches between NumPy's arrays and those of another library, at any depth.

    What is not an array of numbers is left as it is.
    """

    framework: str

    def from_numpy(self, values: Any) -> Any:
        """Return the same values as the environment's calls return them."""

    def to_numpy(self, values: Any) -> Any:
        """Return the same values in arrays, from whatever the environment's calls take."""
