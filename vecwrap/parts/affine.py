"""Linear maps between the bounds of two Boxes, for actions and observations."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.errors import PlanError

__all__ = ["Bound", "Line", "box_between"]

Array = np.ndarray[Any, Any]
Bound = float | tuple[float, ...]


def box_between(layer: str, low: Bound, high: Bound, shape: tuple[int, ...], dtype: Any) -> spaces.Box:
    """Return the Box of a shape between two bounds, each one number or one per element.

    Args:
        layer: for errors.
        low: the lower bound.
        high: the upper bound.
        shape: of the Box.
        dtype: of the Box.

    Raises:
        PlanError: bounds that are not finite, too large for the dtype, of another shape, or not in order.
    """
    bounds = []
    for name, bound in (("low", low), ("high", high)):
        array = np.asarray(bound, dtype=np.float64)
        if array.shape not in ((), shape):
            raise PlanError(
                f"{layer}: {name}: expected one number, or one for each element of shape {shape}, got {array.size}"
            )
        if not np.isfinite(array).all():
            raise PlanError(f"{layer}: {name}: expected finite numbers, got {bound}")
        with np.errstate(over="ignore"):
            bounds.append(np.broadcast_to(array, shape).astype(dtype))
        if not np.isfinite(bounds[-1]).all():
            raise PlanError(f"{layer}: {name}: expected numbers that {np.dtype(dtype)} can hold, got {bound}")
    if not (bounds[0] < bounds[1]).all():
        raise PlanError(f"{layer}: expected low < high, got low={low} and high={high}")
    return spaces.Box(bounds[0], bounds[1], dtype=dtype)


class Line:
    """Maps the bounds of one Box exactly to those of another, and the values in between linearly.

    Values outside the bounds stay outside.

    Args:
        source: a bounded Box; an element with equal bounds is mapped to the low bound.
        target: a bounded Box of the same shape.

    >>> line = Line(spaces.Box(0, 255, (2,), np.uint8), spaces.Box(-1, 1, (2,)))
    >>> line(np.array([[0, 255]], np.uint8))
    array([[-1.,  1.]], dtype=float32)
    """

    def __init__(self, source: spaces.Box, target: spaces.Box) -> None:
        self._dtype = target.low.dtype
        # Small integers fit a float32; anything else is computed in float64 and rounded once.
        small = source.low.dtype.kind in "iu" and source.low.dtype.itemsize <= 2
        self._work: Any = np.float32 if small and self._dtype == np.float32 else np.float64
        low: Array = source.low.astype(self._work)
        high: Array = source.high.astype(self._work)
        self._start = low
        self._width = np.where(high > low, high - low, 1).astype(self._work)
        self._low, self._high = target.low.astype(self._work), target.high.astype(self._work)

    def __call__(self, values: Array) -> Array:
        """Map (m, *shape) values to a fresh array of the target's dtype."""
        part = np.subtract(values, self._start, dtype=self._work) / self._width  # 0 at the low bound, 1 at the high one
        return np.asarray(self._low * (1 - part) + self._high * part).astype(self._dtype, copy=False)
