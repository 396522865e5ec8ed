"""Mean and variance of a stream, batch by batch."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from vecwrap.errors import CheckpointError
from vecwrap.rows.saved import fitting
from vecwrap.rows.step_result import FloatArray

_NONE = np.zeros(())
MAX_MAGNITUDE = 1e12  # how many values the sums must hold
PRIOR_COUNT = 1e-4  # how many values the initial mean 0 and variance 1 count for


class Moments(NamedTuple):
    """A batch's contribution: the number of values, the mean, and the sum of squared distances."""

    number: int
    mean: FloatArray
    squares: FloatArray


def moments(values: np.ndarray[Any, Any]) -> Moments:
    """Summarise a batch (k, *shape), k >= 1.

    FloatingPointError is raised if a value is not finite or too large to be squared.
    """
    exact = np.asarray(values, dtype=np.float64)
    number = len(values)
    if number == 1:
        mean = exact[0]
        squares = _NONE
    else:
        mean = np.add.reduce(exact) / number  # as mean() does, without its detours
        own = None
        if values.dtype != np.float64:  # then they were cast into memory of our own
            own = exact
        distances = np.subtract(exact, mean, out=own)
        if exact.ndim == 1:
            squares = distances.dot(distances)
        else:
            distances *= distances
            squares = np.add.reduce(distances)
    # The sum may be too large although all of its terms are not, which is rare.
    sizes = float(np.add.reduce(squares, axis=None)) + float(np.vdot(mean, mean))
    if not (
        math.isfinite(sizes * MAX_MAGNITUDE)
        or np.isfinite((squares + mean * mean) * MAX_MAGNITUDE).all()
    ):
        raise FloatingPointError("a batch with values that are not finite has no mean and variance")
    return Moments(number, mean, squares)


class RunningStatistics:
    """The mean and variance of all values so far, element by element, in float64.

    The update is that of Chan, Golub and LeVeque (1979).

    As in Baselines, SB3 and Gymnasium, they start at mean 0 and variance 1 with the weight of a
    ten-thousandth of a value: enough to be defined before the first one.

    Args:
        shape: of one value.

    Attributes:
        mean, var: float64, of that shape; the variance is that of the values themselves (divided by
            their number).
        count: the number of values, plus the ten-thousandth.
    """

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.mean: FloatArray = np.zeros(shape)
        self.var: FloatArray = np.ones(shape)
        self.count: float = PRIOR_COUNT

    def merge(self, batch: Moments) -> None:
        total = self.count + batch.number
        delta = batch.mean - self.mean
        squares = (
            self.var * self.count
            + batch.squares
            + delta * delta * (self.count * batch.number / total)
        )
        self.mean = self.mean + delta * (batch.number / total)
        self.var = squares / total
        self.count = total

    def scale(self, epsilon: float) -> FloatArray:
        root: FloatArray = np.sqrt(self.var + epsilon)
        return root

    def state(self) -> dict[str, Any]:
        return {"mean": np.array(self.mean), "var": np.array(self.var), "count": float(self.count)}

    def load(self, state: dict[str, Any], where: str) -> None:
        mean, var = (np.array(state[name]) for name in ("mean", "var"))
        if mean.shape != np.shape(self.mean) or var.shape != mean.shape:
            raise CheckpointError(
                f"{where}: expected statistics of shape {np.shape(self.mean)}, got {mean.shape}; "
                "they belong to a chain with other observations"
            )
        count = fitting(state["count"], 0.0, f"{where}: count")
        fitting(mean, np.asarray(self.mean), f"{where}: mean")
        fitting(var, np.asarray(self.var), f"{where}: var")
        if not (
            np.isfinite(mean).all()
            and np.isfinite(var).all()
            and (var >= 0).all()
            and 0 < count < math.inf
        ):
            raise CheckpointError(
                f"{where}: expected finite numbers, none of the variance below 0 and a count above "
                "0, got others"
            )
        self.mean = mean.astype(np.float64)
        self.var = var.astype(np.float64)
        self.count = float(count)
