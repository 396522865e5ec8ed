"""Merges pipeline data for ``extends``, the section ``eval``, ``--set`` and ``override``."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from vecwrap.errors import did_you_mean
from vecwrap.pipeline import registry
from vecwrap.pipeline.elements import BackendSpec, EngineSpec, WrapperSpec, read_arguments
from vecwrap.pipeline.signatures import Signature
from vecwrap.pipeline.source_map import MAX_DEPTH, SourceMap, SourceRef, Steps, fail
from vecwrap.pipeline.values import Settings, short_repr, with_entries
from vecwrap.wrappers.presets import Preset

# what is written over other mappings; any other one replaces
_PLAIN = (
    dict,
    Settings,
    OrderedDict,
)


@dataclass(frozen=True)
class Replace:
    """A value that replaces the previous one, even if both are mappings."""

    value: Any


class WithSourceMap(NamedTuple):
    """A value of a pipeline, and where it was written."""

    value: Any
    source_map: SourceMap


_NOTHING = WithSourceMap(None, SourceMap())


def merge(
    base: WithSourceMap, over: WithSourceMap, steps: Steps = (), depth: int = 0
) -> WithSourceMap:
    """Return ``over`` written over ``base``.

    Mappings are merged key by key, and stay of the base's type. A mapping over a list of wrappers
    changes those that it names, and over a list of ``env_kwargs`` each, or those that it numbers.
    Options are added to a backend's or an engine's, or discard them if they come with a name.
    Anything else replaces. What is changed is still where it was; what replaces is where it was
    written, with all its parts.

    Args:
        base: what was there, None if nothing.
        over: what is written over it.
        steps: which part of a pipeline it is.
        depth: how deep it is in what was written.
    """
    written = over.value
    if isinstance(written, Replace):
        return WithSourceMap(written.value, over.source_map)
    if type(written) not in _PLAIN:
        return over
    if depth > MAX_DEPTH:
        fail(short_repr(written), f"nested more than {MAX_DEPTH} deep")
    source = SourceRef(over.source_map, steps)
    if isinstance(base.value, (BackendSpec, EngineSpec)):
        options = WithSourceMap({"name": base.value.target, **base.value.options}, base.source_map)
        if "name" in written:
            options = _NOTHING
        merged = merge(options, over, steps, depth + 1)
        return WithSourceMap(type(base.value).parse(merged.value, source), merged.source_map)
    if isinstance(base.value, tuple) and steps[-1:] == ("wrappers",):
        wrappers = merge_wrappers(base.value, written, source)
        of_each: dict[str | int, SourceMap] = {
            index: wrapper.source.source_map for index, wrapper in enumerate(wrappers)
        }
        return WithSourceMap(wrappers, dataclasses.replace(base.source_map, parts=of_each))
    if isinstance(base.value, tuple) and steps[-1:] == ("env_kwargs",):
        return _merge_each(base, over, source)
    if not hasattr(type(base.value), "keys"):
        base = WithSourceMap(type(written)(), SourceMap(over.source_map.location))
    entries = {}
    parts = dict(base.source_map.parts)
    for key, value in written.items():
        old = WithSourceMap(base.value.get(key), base.source_map.at(key))
        entries[key], parts[key] = merge(
            old, WithSourceMap(value, over.source_map.at(key)), (*steps, key), depth + 1
        )
    return WithSourceMap(
        with_entries(base.value, entries), dataclasses.replace(base.source_map, parts=parts)
    )


def _merge_each(base: WithSourceMap, over: WithSourceMap, source: SourceRef) -> WithSourceMap:
    """Write over each mapping of a list, or over those that are named by number."""
    mappings = list(base.value)
    changes = dict.fromkeys(range(len(mappings)), over)
    if over.value and all(map(_is_number, over.value)):
        changes = {
            number: WithSourceMap(value, over.source_map.at(number))
            for number, value in over.value.items()
        }
    mark = base.source_map
    for number, change in changes.items():
        index = int(number)
        if index >= len(mappings):
            fail(source.at(number), f"there are {len(mappings)} mappings, numbered from 0")
        mappings[index], part = merge(
            WithSourceMap(mappings[index], mark.at(index)), change, (*source.steps, number)
        )
        mark = mark.with_part((index,), part)
    return WithSourceMap(tuple(mappings), mark)


# -- wrappers --------------------------------------------------------------------------------------


def merge_wrappers(
    wrappers: Sequence[WrapperSpec], over: Mapping[Any, Any], source: SourceRef
) -> tuple[WrapperSpec, ...]:
    """Merge changes into wrappers by name or number: named arguments, or whole wrappers.

    Named arguments replace the wrapper's own; any other value replaces what the wrapper was given.
    """
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
        beside = SourceRef(
            SourceMap(at.location), wrapper.source.steps
        )  # its old places no longer apply
        merged[index] = dataclasses.replace(wrapper, args=args, kwargs=kwargs, source=beside)
    return tuple(merged)


def find_wrapper(wrappers: Sequence[WrapperSpec], step: Any, source: SourceRef) -> int:
    """Return the number of the wrapper that a name or number refers to."""
    names = [wrapper.name for wrapper in wrappers]
    known = " There are none."
    if names:
        known = f" They are {', '.join(names)}, inner first."
    if _is_number(step):
        if int(step) >= len(wrappers):
            fail(source.at(step), f"there are {len(wrappers)} wrappers, numbered from 0.{known}")
        return int(step)
    if not isinstance(step, str):
        fail(source, f"expected the name or number of a wrapper, got {short_repr(step)}")
    found = [index for index, name in enumerate(names) if step in (name, name.rpartition(":")[2])]
    if not found:
        fail(source.at(step), f"there is no such wrapper.{did_you_mean(step, names) or known}")
    if len(found) > 1:
        numbers = " or ".join(f"{source.at(str(index)).label()}" for index in found)
        fail(
            source.at(step),
            f"there are {len(found)} wrappers of this name. Say which by its number: {numbers}",
        )
    return found[0]


def _is_number(step: Any) -> bool:
    if isinstance(step, str):
        return step.isascii() and step.isdigit() and len(step) < 10
    return type(step) is int and step >= 0


def with_argument(wrapper: WrapperSpec, name: Any, value: Any, source: SourceRef) -> WrapperSpec:
    """Return a wrapper with another argument; one that was given without its name has it then.

    Only for that its signature is looked up, and the wrapper imported.
    """
    if not isinstance(name, str) or not name.isidentifier():
        fail(source, f"expected the name of an argument, got {short_repr(name)}")
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
    old = WithSourceMap(kwargs.get(name), wrapper.source.at(wrapper.name, name).source_map)
    kwargs[name], mark = merge(old, WithSourceMap(value, at.source_map), at.steps)
    marks = wrapper.source.source_map.with_part((wrapper.name, name), mark)
    return dataclasses.replace(
        wrapper, args=args, kwargs=kwargs, source=SourceRef(marks, wrapper.source.steps)
    )
