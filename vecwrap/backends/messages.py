"""The messages between a parent and its workers, and their encoding.

Messages are pickled tuples over the inherited connection:

- A ``WorkerInit`` comes first, and is answered by ``("made", descriptions)`` or by ``("failed", failures)``, after
  which the worker exits.
- ``("attach",)`` means that the slots can be made, and is followed by the descriptors of their memory and of the lane's
  bells if memory is shared; the answer is ``("attached",)``.
- ``("step", rows, payload)`` and ``("reset", rows, seeds, options)`` are answered by ``("rows", answers, rows, stepped,
  payload, failures)``: one message for all rows, or one per row if the parent set ``each``.
- If memory is shared, steps are requested through the lane (``vecwrap.backends.lane``), and answered there too; or by
  ``("rows", ...)`` if something cannot be in shared memory: an info that is not a number, a frame, a failure.
- ``("frames", wanted)`` applies to rows requested after it, and is not answered.
- ``("ask", method, rows, arguments)`` is answered by ``("values", values, failures)``.
- ``("remake", rows, takeovers)`` is answered by ``("remade", failures)``.
- ``("close",)`` ends the worker, and so does the end of the parent.
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
    """The first message to a worker.

    Attributes:
        env_ids: the sub-environments that it runs, consecutive.
        num_envs: how many there are in total.
        factories: the callables that make its own.
        takeovers: what each takes over from one that was lost; None at the first start.
        autoreset: the mode.
        debug: check observations.
        shared: whether slots are in shared memory.
        each: answer row by row.
        number, num_workers, largest_share: which worker this is, and what it needs to locate its lane.
        spins: whether there is a core on which it may wait without sleeping.
        filters: the parent's warning filters, as returned by ``filters.named``.
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
    """Pickle a message; what cannot be imported is pickled by value."""
    try:
        return pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:
        data: bytes = cloudpickle.dumps(message)
        return data


def encode_for_worker(message: Any) -> bytes:
    """Pickle a message to a worker, whose ``__main__`` is different: what ours defines is pickled by value.

    ``pickle`` alone would pickle it by reference, which the worker could not resolve.
    """
    data = encode(message)
    if b"__main__" in data:
        data = cloudpickle.dumps(message)
    return data


def decode(data: bytes) -> Any:
    """Undo ``encode``; only used on messages from an inherited connection."""
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
