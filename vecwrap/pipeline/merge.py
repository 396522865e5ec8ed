"""One pipeline's data written over another's, for ``extends``, the section ``eval``, ``--set`` and ``override``."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vecwrap.errors import did_you_mean
from vecwrap.pipeline import registry
from vecwrap.pipeline.places import MAX_DEPTH, Source, fail
from vecwrap.pipeline.signatures import Signature
from vecwrap.pipeline.values import Settings, shown, with_entries
from vecwrap.pipeline.words import BackendSpec, WrapperSpec, read_arguments
from vecwrap.wrappers.presets import Preset

_PLAIN = (dict, Settings, OrderedDict)  # what is written over other mappings; any other one replaces
_NOWHERE = Source()


@dataclass(frozen=True)
class Replace:
    """A value that replaces the previous one, even if both are mappings."""

    value: Any


def merge(base: Any, over: Any, source: Source = _NOWHERE, depth: int = 0) -> Any:
    """Return ``over`` written over ``base``.

    Mappings are merged key by key, and stay of the base's type. A mapping over a list of wrappers changes those that
    it names, and over a list of ``env_kwargs`` each, or those that it numbers. Options are added to a backend's, or
    discard them if they come with a name. Anything else replaces.

    Args:
        base: what was there, None if nothing.
        over: what is written over it.
        source: where that was written.
        depth: how deep it is in what was written.
    """
    if isinstance(over, Replace):
        return over.value
    if type(over) not in _PLAIN:
        return over
    if depth > MAX_DEPTH:
        fail(shown(over), f"nested more than {MAX_DEPTH} deep")
    if isinstance(base, BackendSpec):
        options = {} if "name" in over else {"name": base.target, **base.options}
        return BackendSpec.parse(merge(options, over, source, depth + 1), source)
    if isinstance(base, tuple) and source.steps[-1:] == ("wrappers",):
        return merge_wrappers(base, over, source)
    if isinstance(base, tuple) and source.steps[-1:] == ("env_kwargs",):
        return _merge_each(base, over, source)
    below = base if hasattr(type(base), "keys") else type(over)()
    entries = {}
    for key, value in over.items():
        entries[key] = merge(below.get(key), value, source.at(key), depth + 1)
    return with_entries(below, entries)


def _merge_each(mappings: Sequence[Any], over: Mapping[Any, Any], source: Source) -> tuple[Any, ...]:
    """Write over each mapping of a list, or over those that are named by number."""
    if not (over and all(map(_is_number, over))):
        return tuple(merge(mapping, over, source.at(index)) for index, mapping in enumerate(mappings))
    merged = list(mappings)
    for number, value in over.items():
        if int(number) >= len(merged):
            fail(source.at(number), f"there are {len(merged)} mappings, numbered from 0")
        merged[int(number)] = merge(merged[int(number)], value, source.at(number))
    return tuple(merged)


# -- wrappers ---------------------------------------------------------------------------------------------------------


def merge_wrappers(wrappers: Sequence[WrapperSpec], over: Mapping[Any, Any], source: Source) -> tuple[WrapperSpec, ...]:
    """Write over wrappers by their names or numbers: named arguments over theirs, anything else in their place."""
    merged = list(wrappers)
    for step, value in over.items():
        index = find_wrapper(wrappers, step, source)
        at = source.at(step)
        if isinstance(value, Mapping):
            for name, argument in value.items():
                merged[index] = with_argument(merged[index], name, argument, at)
            continue
        given = value.value if isinstance(value, Replace) else value
        if _is_number(step):
            merged[index] = WrapperSpec.parse(given, at)
            continue
        wrapper = merged[index]
        args, kwargs = read_arguments(given, f'{at} "{wrapper.name}"')
        beside = Source(steps=wrapper.source.steps, otherwise=at.place)  # its old places no longer apply
        merged[index] = dataclasses.replace(wrapper, args=args, kwargs=kwargs, source=beside)
    return tuple(merged)


def find_wrapper(wrappers: Sequence[WrapperSpec], step: Any, source: Source) -> int:
    """Return the number of the wrapper that a name or number refers to."""
    names = [wrapper.name for wrapper in wrappers]
    known = f" They are {', '.join(names)}, inner first." if names else " There are none."
    if _is_number(step):
        if int(step) >= len(wrappers):
            fail(source.at(step), f"there are {len(wrappers)} wrappers, numbered from 0.{known}")
        return int(step)
    if not isinstance(step, str):
        fail(source, f"expected the name or number of a wrapper, got {shown(step)}")
    found = [index for index, name in enumerate(names) if step in (name, name.rpartition(":")[2])]
    if not found:
        fail(source.at(step), f"there is no such wrapper.{did_you_mean(step, names) or known}")
    if len(found) > 1:
        numbers = " or ".join(f"{source.at(str(index)).label()}" for index in found)
        fail(source.at(step), f"there are {len(found)} wrappers of this name. Say which by its number: {numbers}")
    return found[0]


def _is_number(step: Any) -> bool:
    if isinstance(step, str):
        return step.isascii() and step.isdigit() and len(step) < 10
    return type(step) is int and step >= 0


def with_argument(wrapper: WrapperSpec, name: Any, value: Any, source: Source) -> WrapperSpec:
    """Return a wrapper with another argument; one that was given without its name has it then.

    Only for that its signature is looked up, and the wrapper imported.
    """
    if not isinstance(name, str) or not name.isidentifier():
        fail(source, f"expected the name of an argument, got {shown(name)}")
    args = wrapper.args
    kwargs = dict(wrapper.kwargs)
    if args and name not in kwargs:
        target = registry.wrappers.find(wrapper.target, wrapper.where)
        parameters = Signature.of(target, skip=0 if isinstance(target, Preset) else 1).parameters
        names = [parameter.name for parameter in parameters if parameter.by_position]
        if name in names[: len(args)]:
            kwargs = {**dict(zip(names, args, strict=False)), **kwargs}
            args = args[len(names) :]
    at = source.at(name)
    kwargs[name] = merge(kwargs.get(name), value, at)
    written = wrapper.source.with_place((*wrapper.source.steps, wrapper.name, name), at.place)
    return dataclasses.replace(wrapper, args=args, kwargs=kwargs, source=written)
