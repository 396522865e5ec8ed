"""What a parent and its workers tell each other, and how it travels.

Messages are pickled tuples over the inherited connection:

- A ``WorkerInit`` comes first, and is answered by ``("made", descriptions)`` or, at the end of it, ``("failed",
  failures)``.
- ``("attach",)`` says that the slots may be made, and is followed by the descriptors of their memory and of the lane's
  bells where it is shared; the answer is ``("attached",)``.
- ``("step", rows, payload)`` and ``("reset", rows, seeds, options)`` are answered by ``("rows", answers, rows, stepped,
  payload, failures)``: one message for all rows, or one for each where the parent said ``each``.
- Where memory is shared, steps are asked for through the lane (``vecwrap.backends.lane``), and answered there too; by
  ``("rows", ...)`` where something cannot lie in shared memory: an info that is no number, a frame, a failure.
- ``("frames", wanted)`` holds for the rows that are asked for after it, and is not answered.
- ``("ask", method, rows, arguments)`` is answered by ``("values", values, failures)``.
- ``("remake", rows, takeovers)`` is answered by ``("remade", failures)``.
- ``("close",)`` ends it, and so does the parent's end.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np

from vecwrap.contract import Autoreset
from vecwrap.sub_env import Factory, Takeover

__all__ = ["WorkerInit", "can_send", "decode", "encode", "encode_for_worker"]


@dataclass
class WorkerInit:
    """What a worker is told first.

    Attributes:
        env_ids: the sub-environments that it holds, consecutive.
        num_envs: how many there are in all.
        factories: how to make its own.
        takeovers: what each takes over from one that was lost; None at the first start.
        autoreset: the mode.
        debug: check observations.
        shared: whether slots are in shared memory.
        each: answer row by row.
        number, num_workers, largest_share: which worker this is, and what it takes to find its lane.
        spins: whether there is a core on which it may wait without sleeping.
        filters: the parent's warning filters, as ``filters.named`` gives them.
        log_level: the parent's logging level.
    """

    env_ids: tuple[int, ...]
    num_envs: int
    factories: Sequence[Factory]
    takeovers: Sequence[Takeover] | None
    autoreset: Autoreset
    debug: bool
    shared: bool
    each: bool
    number: int
    num_workers: int
    largest_share: int
    spins: bool
    filters: list[Any]
    log_level: int


def encode(message: Any) -> bytes:
    """Pickle a message; by value what can be found nowhere."""
    try:
        return pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:
        data: bytes = cloudpickle.dumps(message)
        return data


def encode_for_worker(message: Any) -> bytes:
    """Pickle a message to a worker, whose ``__main__`` is another: what this one's defines goes by value.

    ``pickle`` alone would take it by reference, which the worker does not find.
    """
    data = encode(message)
    if b"__main__" in data:
        data = cloudpickle.dumps(message)
    return data


def decode(data: bytes) -> Any:
    """Undo ``encode``; only ever used on what came over an inherited connection."""
    return pickle.loads(data)


def can_send(value: Any) -> bool:
    """Whether a value can be pickled, as ``encode`` does it."""
    if value is None or isinstance(value, (int, float, str, bytes)):
        return True
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return True
    try:
        encode(value)
    except Exception:
        return False
    return True
