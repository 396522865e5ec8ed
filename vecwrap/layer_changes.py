"""Changes to single layers in a list: the one with this name or number gets other arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from vecwrap import registry
from vecwrap.errors import did_you_mean
from vecwrap.layer_spec import POSITIONAL, LayerSpec, read_arguments
from vecwrap.preset import Preset
from vecwrap.signatures import Signature
from vecwrap.source import Source, fail
from vecwrap.values import Whole, merged, shown

__all__ = ["change_layers", "find_layer", "with_argument"]


def change_layers(layers: Sequence[LayerSpec], changes: Mapping[Any, Any], source: Source) -> tuple[LayerSpec, ...]:
    """Return the layers with other arguments; what is not named stays.

    Args:
        layers: inner first.
        changes: maps the name or number of a layer to a mapping of arguments, or to a replacement of them all.
        source: where the changes were written.

    Raises:
        SpecError: there is no such layer, or more than one.

    >>> layers = LayerSpec.parse("atari"), LayerSpec.parse("framestack:4,padding=first")
    >>> print(*change_layers(layers, {"framestack": {"k": 2}}, Source()))
    atari framestack:2,padding=first
    """
    changed = list(layers)
    for step, change in changes.items():
        index = find_layer(layers, step, source)
        changed[index] = _changed(changed[index], step, change, source.at(step))
    return tuple(changed)


def find_layer(layers: Sequence[LayerSpec], step: Any, source: Source) -> int:
    """Return the number of the layer that a name or number refers to.

    Args:
        layers: inner first.
        step: a layer's name, the part of its import path after the colon, or its number, also as text.
        source: where that was written.

    Raises:
        SpecError: there is no such layer, or more than one.
    """
    names = [layer.name for layer in layers]
    if _is_number(step):
        if int(step) >= len(layers):
            fail(source.at(step), f"there are {len(layers)} layers, numbered from 0.{_all(names)}")
        return int(step)
    if not isinstance(step, str):
        fail(source, f"expected the name or number of a layer, got {shown(step)}")
    found = [index for index, name in enumerate(names) if step in (name, name.rpartition(":")[2])]
    if not found:
        fail(source.at(step), f"there is no such layer.{did_you_mean(step, names) or _all(names)}")
    if len(found) > 1:
        numbers = " or ".join(f"{source.at(str(index)).label()}" for index in found)
        fail(source.at(step), f"there are {len(found)} layers of this name. Say which by its number: {numbers}")
    return found[0]


def _is_number(step: Any) -> bool:
    if isinstance(step, str):
        return step.isascii() and step.isdigit() and len(step) < 10
    return type(step) is int and step >= 0


def _all(names: Sequence[str]) -> str:
    return f" They are {', '.join(names)}, inner first." if names else " There are none."


def _changed(layer: LayerSpec, step: Any, change: Any, source: Source) -> LayerSpec:
    if isinstance(change, Mapping):
        for name, value in change.items():
            layer = with_argument(layer, name, value, source)
        return layer
    whole = change.value if isinstance(change, Whole) else change
    if _is_number(step):
        return LayerSpec.parse(whole, source)
    args, kwargs = read_arguments(whole, f'{source} "{layer.name}"')
    replaced = Source(steps=layer.source.steps, otherwise=source.place)  # its old places no longer apply
    return dataclasses.replace(layer, args=args, kwargs=kwargs, source=replaced)


def with_argument(layer: LayerSpec, name: Any, change: Any, source: Source) -> LayerSpec:
    """Return a layer with another argument.

    Args:
        layer: the layer, which may have been given the argument without its name.
        name: the argument's name, or ``"*"`` for all those without a name.
        change: its value; a mapping is merged into an existing one.
        source: where that was written.

    Raises:
        SpecError: not a name, or a layer whose signature is needed cannot be found.
    """
    if name == POSITIONAL:
        args, kwargs = read_arguments({POSITIONAL: merged(None, change)}, str(source))
        layer = _placed(dataclasses.replace(layer, args=args), (POSITIONAL,), source.at(POSITIONAL))
        names = _names(layer) if args else []
        for i in range(len(args)):
            for steps in ((i,), (POSITIONAL, i), *((called,) for called in names[i : i + 1])):
                layer = _placed(layer, steps, source.at(POSITIONAL, i))
        return layer
    if not isinstance(name, str) or not name.isidentifier():
        fail(source, f"expected the name of an argument, got {shown(name)}")
    position = _position(layer, name) if layer.args and name not in layer.kwargs else None
    if position is None or position >= len(layer.args):
        kwargs = {**layer.kwargs, name: merged(layer.kwargs.get(name), change)}
        return _placed(dataclasses.replace(layer, kwargs=kwargs), (name,), source.at(name))
    args = (*layer.args[:position], merged(layer.args[position], change), *layer.args[position + 1 :])
    layer = _placed(dataclasses.replace(layer, args=args), (name,), source.at(name))
    return _placed(_placed(layer, (position,), source.at(name)), (POSITIONAL, position), source.at(name))


def _position(layer: LayerSpec, name: str) -> int | None:
    """The position of the argument of this name in the layer's signature."""
    names = _names(layer)
    return names.index(name) if name in names else None


def _names(layer: LayerSpec) -> list[str]:
    """The parameters that may be given by position, in order."""
    target = registry.wrappers.find(layer.target, layer.where)
    parameters = Signature.of(target, skip=0 if isinstance(target, Preset) else 1).parameters
    return [parameter.name for parameter in parameters if parameter.by_position]


def _placed(layer: LayerSpec, steps: tuple[str | int, ...], source: Source) -> LayerSpec:
    """Note where an argument was written."""
    within = (*layer.source.steps, layer.name, *steps)
    return dataclasses.replace(layer, source=layer.source.with_place(within, source.place))
