"""Derives the evaluation of a pipeline from its section ``eval`` and its wrappers' requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vecwrap.errors import SpecError, did_you_mean
from vecwrap.pipeline import registry
from vecwrap.pipeline.elements import WrapperSpec
from vecwrap.pipeline.error_collector import for_each
from vecwrap.pipeline.fields import KEYS
from vecwrap.pipeline.merge import find_wrapper, merge_wrappers, with_argument
from vecwrap.pipeline.signatures import Signature
from vecwrap.pipeline.source_map import SourceLocation, SourceMap, SourceRef
from vecwrap.pipeline.spec import Layers, PipelineSpec, overridden
from vecwrap.pipeline.values import Settings, same_content, short_repr
from vecwrap.pipeline.wrappers import plan_wrappers
from vecwrap.sources.declares import Declares, declared_by
from vecwrap.wrappers.presets import Preset

MODES = ("train", "eval")


def in_mode(
    spec: PipelineSpec,
    mode: str,
    overrides: Mapping[str, Any] | None = None,
    places: Mapping[str, SourceLocation] | None = None,
) -> PipelineSpec:
    """Return the pipeline for training or evaluation, with overrides; those of ``eval`` first."""
    if mode not in MODES:
        raise SpecError(
            'mode: expected "train" or "eval", got '
            f"{short_repr(mode)}.{did_you_mean(str(mode), MODES)}"
        )
    overrides = overrides or {}
    of_eval = {key: value for key, value in overrides.items() if key.partition(".")[0] == "eval"}
    spec = overridden(spec, of_eval, places)
    if mode == "eval":
        spec = evaluation(spec)
    return overridden(
        spec, {key: value for key, value in overrides.items() if key not in of_eval}, places
    )


def evaluation(spec: PipelineSpec) -> PipelineSpec:
    """Return the pipeline that the section ``eval`` describes; it has no such section itself.

    Statistics are frozen unless the section sets ``training: true``. Wrappers that differ in an
    evaluation define how (``in_evaluation``): ``atari`` plays whole games with raw rewards, and
    wrappers that write files use their own folder.
    """
    section = dict(spec.eval)
    source = spec.source.at("eval")
    words = _wrappers(spec.wrappers, section.pop("wrappers", None), source.at("wrappers"))
    wrappers = tuple(part for word in words for part in _parts_in_evaluation(word))
    if section.get("training") is None:
        section["training"] = False
    layers = Layers.of(spec)
    layers.add(section, source)
    layers.settings |= {"wrappers": wrappers, "eval": Settings()}
    return layers.spec()


def differences(training: PipelineSpec, evaluation: PipelineSpec) -> Mapping[str, Any]:
    """Return the section ``eval`` that turns one resolved pipeline into another."""
    # These two differ in an evaluation even if they are not set.
    section: dict[str, Any] = {"training": evaluation.in_training, "wrappers": evaluation.wrappers}
    for key in KEYS:
        value = getattr(evaluation, key)
        if key != "eval" and not same_content(value, getattr(training, key)):
            section[key] = value if key != "env_kwargs" or value else None
    return Settings(section)


def _wrappers(
    wrappers: Sequence[WrapperSpec], written: Any, source: SourceRef
) -> tuple[WrapperSpec, ...]:
    """The section's own list of wrappers, else the pipeline's with the section's changes."""
    if written is not None and not isinstance(written, Mapping):
        return for_each(written, lambda wrapper: _in_evaluation(wrapper, of_training=False))
    changed = [_in_evaluation(wrapper, of_training=True) for wrapper in wrappers]
    for step, change in (written or {}).items():
        changed = list(merge_wrappers(changed, {step: change}, source))
        if not isinstance(change, Mapping):  # the whole wrapper was written for the evaluation
            index = find_wrapper(changed, step, source)
            changed[index] = _in_evaluation(changed[index], of_training=False)
    return tuple(changed)


def _in_evaluation(wrapper: WrapperSpec, *, of_training: bool) -> WrapperSpec:
    """Apply a wrapper's changes for evaluation; keep arguments written for the evaluation."""
    target = registry.wrappers.find(wrapper.target, wrapper.where)
    declares = declared_by(target)
    if declares is Declares:  # nothing differs
        return wrapper
    bound = Signature.of(target).bind(
        wrapper.args, wrapper.kwargs, wrapper.where, wrapper.where_argument
    )
    for name, value in declares.in_evaluation(**{**bound.defaults, **bound.kwargs}).items():
        given = name in bound.kwargs
        if of_training or not given:
            place = SourceLocation()
            if given:
                place = wrapper.source.at(wrapper.name, name).location
            wrapper = with_argument(wrapper, name, value, SourceRef(SourceMap(place)))
    return wrapper


def _parts_in_evaluation(element: WrapperSpec) -> tuple[WrapperSpec, ...]:
    """Replace a preset by its wrappers if one of them differs in an evaluation."""
    if not isinstance(registry.wrappers.find(element.target, element.where), Preset):
        return (element,)
    parts = tuple(wrapper.spec for wrapper in plan_wrappers([element]))
    asked = tuple(_in_evaluation(part, of_training=True) for part in parts)
    if asked == parts:
        return (element,)
    return asked
