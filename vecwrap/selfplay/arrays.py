"""Arrays of a policy, by value: what a snapshot consists of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from vecwrap.errors import ArgumentError, text_of

Arrays: TypeAlias = dict[str, np.ndarray[Any, Any]]
Form: TypeAlias = dict[str, tuple[tuple[int, ...], str]]
"""Shape and dtype of each array."""


def own_arrays(policy: Any, where: str) -> Arrays:
    """Return copies of a policy's arrays.

    ``policy`` is a mapping, a PyTorch module, or a model of Stable-Baselines3.
    """
    named = policy
    if not isinstance(named, Mapping):
        owner = policy
        if not callable(getattr(policy, "state_dict", None)):
            owner = getattr(policy, "policy", None)
        if not callable(getattr(owner, "state_dict", None)):
            raise ArgumentError(
                f"{where}: add: expected arrays or tensors by name, what has a state_dict(), or "
                f"the name of a scripted member, got {type(policy).__name__}"
            )
        named = owner.state_dict()
    if not isinstance(named, Mapping) or not named:
        raise ArgumentError(f"{where}: add: expected arrays or tensors by name, got none")
    arrays = {}
    for name, value in named.items():
        if not isinstance(name, str) or not name or not name.isprintable():
            raise ArgumentError(f"{where}: add: expected printable names of arrays, got {name!r}")
        try:
            # a tensor, also one that is trained or on a GPU
            if callable(getattr(value, "detach", None)):
                value = value.detach().cpu().numpy()
            arrays[name] = np.array(value, order="C")  # a copy
        except Exception as error:
            raise ArgumentError(
                f"{where}: add: {name}: expected what can be made an array, got "
                f"{type(value).__name__} ({text_of(error)[:200]}); for a tensor of a dtype that "
                "NumPy lacks, give tensor.float()"
            ) from None
        if arrays[name].dtype.kind not in "biufcSU":
            raise ArgumentError(
                f"{where}: add: {name}: expected an array of numbers or text, got one of dtype "
                f"{arrays[name].dtype}, from {type(value).__name__}"
            )
    return arrays


def digest(arrays: Arrays) -> str:
    """Return the SHA-256 of arrays: names, dtypes, shapes and values, in any order of names."""
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        found.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def form_of(arrays: Arrays) -> Form:
    return {name: (array.shape, array.dtype.str) for name, array in sorted(arrays.items())}


def form_text(form: Form) -> str:
    """Write shapes and dtypes for a message: ``w: (2, 3) float32``."""
    return ", ".join(f"{name}: {shape} {np.dtype(dtype)}" for name, (shape, dtype) in form.items())[
        :1000
    ]
