"""Conversion to PyTorch's tensors; PyTorch is imported when the function is called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from vecwrap.env.refusals import describe_env, refuse_tensors
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import (
    ArgumentError,
    PlanError,
    install_command,
    internal_frames_hidden,
    one_line,
)
from vecwrap.rows.columns import ARRAY_SPACES

if TYPE_CHECKING:
    from vecwrap.adapters.torch_vec_env import TorchVecEnv

__all__ = ["to_torch"]

_DTYPES = ("float32", "float64")


def to_torch(env: VecEnv, device: Any = "cpu", dtype: Any = "float32") -> TorchVecEnv:
    """Convert an environment to one whose calls take and return PyTorch's tensors.

    The result is a ``VecEnv`` too; closing it closes ``env``. Observations, rewards, flags, action
    masks and numeric infos are tensors on the device; infos of other kinds (text, objects) stay as
    they are. ``infos["final_obs"]`` is dense: n rows like ``observations``, which differ from them
    where ``infos["_final_obs"]`` is True, so it is what followed each action in same-step mode.
    Actions may be on any device, in bfloat16 or with gradients, which are detached; so may a
    ``reset_mask`` and ``env_ids``. Arrays and lists are accepted as before.

    On the CPU tensors share the memory of the arrays that ``env`` returns, which are yours to keep.
    On CUDA each step's arrays pass through pinned memory, one asynchronous copy each, on a stream
    of their own, and the current stream waits for them. Nothing else changes: seeds, pipeline and
    saved states are those of ``env``, which is available as ``env``.

    Args:
        env: a vecwrap environment in any autoreset mode, with all its wrappers.
        device: of the tensors, as ``torch.device`` takes it.
        dtype: of floating-point tensors: ``"float32"``, ``"float64"``, or torch's own; None keeps
            each array's. Integers and booleans keep theirs.

    Returns:
        The environment, a ``VecEnv``. ``vecwrap.evaluate`` gives its tensors to policies.

    Raises:
        ArgumentError: not a vecwrap environment, or neither a device nor a dtype.
        PlanError: the device is not there, a space without an array form, an environment that
            returns tensors already, or PyTorch is not installed.

    >>> import torch
    >>> import vecwrap
    >>> env = to_torch(vecwrap.build("CartPole-v1", n=2, backend="dummy"))
    >>> observations, infos = env.reset(seed=1)
    >>> policy = torch.nn.Linear(4, 2)
    >>> actions = policy(observations).argmax(dim=1)
    >>> observations, rewards, terminations, truncations, infos = env.step(actions)
    >>> observations.shape, rewards, terminations
    (torch.Size([2, 4]), tensor([1., 1.]), tensor([False, False]))
    >>> env.close()
    """
    with internal_frames_hidden:
        if not isinstance(env, VecEnv):
            raise ArgumentError(
                f"to_torch: expected a vecwrap environment, got {describe_env(env)}"
            )
        refuse_tensors("to_torch", env, "it converts them")
        try:
            import torch
        except ModuleNotFoundError as error:
            raise PlanError(
                f"to_torch needs PyTorch ({error}): {install_command('torch')}"
            ) from error
        from vecwrap.adapters.torch_transfer import make_converter
        from vecwrap.adapters.torch_vec_env import TorchVecEnv

        floats = _read_dtype(dtype)
        for space, path in (
            (env.single_observation_space, "observations"),
            (env.single_action_space, "actions"),
        ):
            _refuse_without_tensors(space, path, floats)
        return TorchVecEnv(env, make_converter(_read_device(torch, device), floats))


def _read_dtype(dtype: Any) -> np.dtype[Any] | None:
    if dtype is None:
        return None
    name = str(dtype).removeprefix("torch.")
    if isinstance(dtype, (type, np.dtype)):
        name = np.dtype(dtype).name
    if name not in _DTYPES:
        raise ArgumentError(
            f"to_torch: dtype: expected {', '.join(_DTYPES)}, or None for each array's own, got "
            f"{dtype!r}; tensor.to(dtype) converts to others"
        )
    return np.dtype(name)


def _read_device(torch: Any, device: Any) -> Any:
    """Return the device, with its number if it is CUDA's; an error if it is not there."""
    try:
        read = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ArgumentError(
            f'to_torch: device: expected a device of PyTorch, such as "cpu" or "cuda:0", got '
            f"{device!r} ({one_line(error)})"
        ) from None
    try:
        return torch.empty(1, device=read).device
    except Exception as error:  # of many kinds, one for each device's backend
        there = ["cpu"] + [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        raise PlanError(
            f"to_torch: device: expected one that is there, such as {', '.join(there)}, got "
            f'"{read}" ({one_line(error)})'
        ) from None


def _refuse_without_tensors(
    space: spaces.Space[Any], path: str, floats: np.dtype[Any] | None
) -> None:
    from vecwrap.adapters.torch_transfer import tensor_dtypes

    for leaf, place in _leaves(space, path):
        if not isinstance(leaf, ARRAY_SPACES):
            raise PlanError(
                f"to_torch: expected spaces with an array form, got {place} in {leaf}; wrappers "
                "can leave such a member out (filter_obs) or encode it"
            )
        if np.dtype(leaf.dtype) not in tensor_dtypes(floats):
            raise PlanError(
                f"to_torch: expected dtypes that PyTorch has, got {place} of {leaf.dtype}; the "
                "wrapper dtype converts observations"
            )


def _leaves(space: spaces.Space[Any], path: str) -> Iterator[tuple[spaces.Space[Any], str]]:
    if isinstance(space, spaces.Dict):
        for key, member in space.spaces.items():
            yield from _leaves(member, f"{path}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        for i, member in enumerate(space.spaces):
            yield from _leaves(member, f"{path}[{i}]")
    else:
        yield space, path
