"""Arrays to tensors and back: in shared memory on the CPU, through pinned memory on CUDA."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from vecwrap.errors import ArgumentError, one_line
from vecwrap.rows import batch as batches
from vecwrap.rows.batch import Batch

__all__ = ["CudaLink", "StagedConverter", "TensorConverter", "make_converter", "tensor_dtypes"]

Array = np.ndarray[Any, Any]

_FLOATS = tuple(map(np.dtype, ("float16", "float32", "float64", "longdouble")))
_OTHERS = tuple(
    map(
        np.dtype,
        ("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    )
) + tuple(map(np.dtype, ("complex64", "complex128")))
_TORCH = {dtype: torch.from_numpy(np.empty(0, dtype)).dtype for dtype in (*_FLOATS[:3], *_OTHERS)}
_IN_NUMPY = frozenset(_TORCH.values())
# unsigned integers whose rows PyTorch cannot write by index, and integers of their size
_SIGNED = {
    torch.uint16: torch.int16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
}
_ALIGNMENT = 256  # bytes, between the arrays in a staging buffer; no device wants more
_MIN_PINNED_BYTES = 1 << 16  # pinning takes longer than writing so much


def tensor_dtypes(floats: np.dtype[Any] | None) -> dict[np.dtype[Any], np.dtype[Any]]:
    """Return the dtype of an array's tensor by the array's dtype; others stay arrays."""
    kept = {dtype: dtype for dtype in _TORCH}
    if floats is None:
        return kept
    return {**kept, **dict.fromkeys(_FLOATS, floats)}


def make_converter(device: torch.device, floats: np.dtype[Any] | None) -> TensorConverter:
    if device.type == "cuda":
        return StagedConverter(device, floats, CudaLink(device))
    return TensorConverter(device, floats)


def _each_leaf(
    of_array: Callable[[Array], Any], of_tensor: Callable[[torch.Tensor], Any], values: Any
) -> Any:
    """Convert arrays and tensors in dicts and tuples of any depth; others stay as they are."""
    kind = type(values)
    if kind is np.ndarray:
        return of_array(values)
    if kind is dict:
        return {key: _each_leaf(of_array, of_tensor, value) for key, value in values.items()}
    if kind is tuple:
        return tuple([_each_leaf(of_array, of_tensor, value) for value in values])
    if isinstance(values, np.ndarray):
        return of_array(values)
    if isinstance(values, torch.Tensor):
        return of_tensor(values)
    return values


class TensorConverter:
    """Returns tensors for arrays: with the same memory on the CPU, and copies on other devices."""

    framework: ClassVar[str] = "torch"

    def __init__(self, device: torch.device, floats: np.dtype[Any] | None) -> None:
        self.device = device
        self._dtypes = tensor_dtypes(floats)
        self._float: torch.dtype | None = None  # they are kept
        if floats is not None:
            self._float = _TORCH[floats]
        self._is_elsewhere = device.type != "cpu"

    def from_numpy(self, values: Any) -> Any:
        return _each_leaf(self._tensor, self._of_engine, values)

    def to_numpy(self, values: Any) -> Any:
        """Return arrays for tensors, without a copy if they have the form; others as they are."""
        if isinstance(values, torch.Tensor):
            return _array(values)
        if isinstance(values, dict):
            return {key: self.to_numpy(value) for key, value in values.items()}
        if type(values) in (tuple, list):
            return type(values)([self.to_numpy(value) for value in values])
        return values

    def results(self, result: Any) -> Any:
        """Convert what a reset or a step returns: observations first, infos last."""
        infos = result[-1]
        if "final_obs" in infos and _is_by_row(infos["final_obs"]):
            ended = infos["_final_obs"].nonzero()[0]
            dense = batches.copy(result[0])
            _write_rows(dense, ended.tolist(), infos["final_obs"][ended].tolist())
            result = (*result[:-1], {**infos, "final_obs": dense})
        return self.from_numpy(result)

    def _of_engine(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return an engine's tensor, which is the caller's own, on the device, in the dtype."""
        dtype = tensor.dtype
        if self._float is not None and dtype.is_floating_point:
            dtype = self._float
        return tensor.detach().to(self.device, dtype)

    def _tensor(self, array: Array) -> Any:
        dtype = self._dtypes.get(array.dtype)
        if dtype is None:
            return array
        # torch warns of memory that is not writeable, and the array may be shared
        if dtype is not array.dtype or not array.flags.writeable:
            array = array.astype(dtype)
        try:
            tensor = torch.from_numpy(array)
        except ValueError:  # negative strides
            tensor = torch.from_numpy(array.copy())
        if self._is_elsewhere:
            return tensor.to(self.device)
        return tensor


def _array(tensor: torch.Tensor) -> Array:
    try:
        array: Array = tensor.numpy()
    except (RuntimeError, TypeError):  # on a device, with gradients, or in bfloat16
        array = _array_of_other(tensor)
    return array


def _array_of_other(tensor: torch.Tensor) -> Array:
    if tensor.dtype not in _IN_NUMPY and tensor.is_floating_point():
        tensor = tensor.float()
    try:
        array: Array = tensor.numpy(force=True)
    except (RuntimeError, TypeError) as error:  # a sparse or a quantised one
        raise ArgumentError(
            f"expected tensors that have an array form, got {tensor.layout} of "
            f"{tensor.dtype}: {one_line(error)}"
        ) from None
    return array


def _is_by_row(final_obs: Any) -> bool:
    """Whether there is one observation for each row that ended, and not a batch of all rows."""
    return isinstance(final_obs, np.ndarray) and final_obs.dtype == object


def _write_rows(target: Batch, rows: Sequence[int], values: Sequence[Any]) -> None:
    """Write single observations into rows of a batch."""
    if not isinstance(target, (dict, tuple)):
        for i, value in zip(rows, values, strict=True):
            target[i] = value
        return
    keys: Iterable[Any] = target
    if isinstance(target, tuple):
        keys = range(len(target))
    for key in keys:
        _write_rows(target[key], rows, [value[key] for value in values])


class StagedConverter(TensorConverter):
    """Copies arrays to a device through pinned memory, in two buffers that are used in turn.

    A buffer is used again when its copies are done, so that a step's arrays are staged while those
    of the step before may still be on their way. What an engine returns as tensors needs none.
    """

    def __init__(self, device: torch.device, floats: np.dtype[Any] | None, link: Any) -> None:
        super().__init__(device, floats)
        self._buffers = [StagingBuffer(link), StagingBuffer(link)]

    def from_numpy(self, values: Any) -> Any:
        with self._next_buffer() as buffer:
            return self._send(buffer, values)

    def results(self, result: Any) -> Any:
        infos = result[-1]
        if "final_obs" not in infos or batches.has_tensors(result[0]):
            return super().results(result)
        with self._next_buffer() as buffer:
            index = infos["_final_obs"].nonzero()[0]
            final_obs = infos["final_obs"]
            if _is_by_row(final_obs):
                rows = batches.take(result[0], index)
                _write_rows(rows, range(len(index)), final_obs[index].tolist())
            else:
                rows = batches.take(final_obs, index)
            infos = {**infos, "final_obs": rows}
            sent = self._send(buffer, (*result[:-1], infos, index))
            observations = sent[0]
            *_, infos, at = sent
            infos["final_obs"] = batches.tree_map(
                lambda whole, some: buffer.spread(whole, at, some),
                observations,
                infos["final_obs"],
            )
            return (*sent[:-2], infos)

    def _send(self, buffer: StagingBuffer, values: Any) -> Any:
        def send(array: Array) -> Any:
            dtype = self._dtypes.get(array.dtype)
            if dtype is None:
                return array
            return buffer.send(array, dtype)

        return _each_leaf(send, self._of_engine, values)

    @contextlib.contextmanager
    def _next_buffer(self) -> Iterator[StagingBuffer]:
        self._buffers.reverse()
        buffer = self._buffers[0]
        buffer.begin()
        try:
            yield buffer
        finally:  # also after an interrupt: copies may be on their way
            buffer.end()


class StagingBuffer:
    """Pinned memory that the arrays of one step pass through on their way to a device."""

    def __init__(self, link: Any) -> None:
        self._link = link
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._used_bytes = 0
        self._sent: list[torch.Tensor] = []
        self._copied: Any = None  # an event after the last copies from this memory

    def begin(self) -> None:
        """Wait until the memory may be written again."""
        if self._copied is not None:
            self._copied.synchronize()
        self._used_bytes = 0

    def send(self, array: Array, dtype: np.dtype[Any]) -> torch.Tensor:
        """Write an array into the memory, and start its copy to the device."""
        start = -(-self._used_bytes // _ALIGNMENT) * _ALIGNMENT
        self._used_bytes = start + math.prod(array.shape) * dtype.itemsize
        if self._used_bytes > len(self._memory):
            self._memory = self._link.pinned(max(2 * self._used_bytes, _MIN_PINNED_BYTES))
        staged = self._memory[start : self._used_bytes].view(_TORCH[dtype]).view(array.shape)
        np.copyto(staged.numpy(), array, casting="same_kind")
        return self._keep(self._link.copy(staged))

    def spread(self, whole: torch.Tensor, index: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return self._keep(self._link.spread(whole, index, rows))

    def end(self) -> None:
        """Let the device's consumers wait for what was sent."""
        self._copied = self._link.deliver(self._sent)
        self._sent = []

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor:
        self._sent.append(tensor)
        return tensor


def with_rows(whole: torch.Tensor, index: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return a copy of n rows in which k are replaced; nothing waits for the device."""
    copied = whole.clone()
    signed = _SIGNED.get(whole.dtype, whole.dtype)
    copied.view(signed).index_copy_(0, index, rows.view(signed))
    return copied


class CudaLink:
    """The way to a CUDA device: pinned memory, and copies on a stream of their own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def pinned(self, num_bytes: int) -> torch.Tensor:
        return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)

    def copy(self, staged: torch.Tensor) -> torch.Tensor:
        with torch.cuda.stream(self._stream):
            return staged.to(self._device, non_blocking=True)

    def spread(self, whole: torch.Tensor, index: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        with torch.cuda.stream(self._stream):
            return with_rows(whole, index, rows)

    def deliver(self, tensors: list[torch.Tensor]) -> Any:
        """Have the current stream wait for all that was begun; return the event to wait for."""
        copied = self._stream.record_event()
        consumer = torch.cuda.current_stream(self._device)
        consumer.wait_event(copied)
        for tensor in tensors:  # their memory is the other stream's: it is not reused before
            tensor.record_stream(consumer)
        return copied
