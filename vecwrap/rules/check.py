"""Finds mistakes in a pipeline: those that ``build`` refuses, and those that the rules find."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal

import gymnasium

from vecwrap import registry
from vecwrap.building import read
from vecwrap.checkpoint import refuse_unread
from vecwrap.errors import CheckpointError, PlanError, SpecError, VecwrapError, did_you_mean
from vecwrap.evaluation import in_mode
from vecwrap.layers import PlannedLayer, plan_layers
from vecwrap.plan import Plan, plan, plan_around
from vecwrap.rules.finding import DOCS, Fault, Finding, Rule
from vecwrap.rules.refusals import REFUSALS, not_read, refused, unmakeable, unreadable
from vecwrap.spec import PipelineSpec
from vecwrap.vec_env import VecEnv
from vecwrap.words import LayerSpec

__all__ = ["check", "load_rule", "refuse_unknown", "rules"]


def check(
    pipeline: Any,
    *,
    mode: Literal["train", "eval"] = "train",
    strict: bool = False,
    ignore: Collection[str] = (),
    **settings: Any,
) -> tuple[Finding, ...]:
    """Look for mistakes in order and use, before anything is stepped.

    One sub-environment is made as the backend would make it, and closed again. Nothing is written.

    Args:
        pipeline: whatever ``build`` takes: an id, a file, a line, a dict, callables, a ``PipelineSpec``; or an
            environment that it built. Or an engine as for ``wrap``, with the layers in ``wrappers=``; it is only
            inspected.
        mode: ``"eval"`` for the pipeline's evaluation, as ``load``.
        strict: also apply the rules of ``vecwrap check --strict``, such as for a missing seed.
        ignore: ids of findings to ignore.
        settings: a pipeline's keys, as for ``load``; they override the pipeline.

    Returns:
        The findings in the order of the pipeline; empty if there are none. Those that ``build`` would raise have the
        severity ``"error"``.

    Raises:
        SpecError: an unknown id or setting, or a rule's name that two packages claim.

    >>> for finding in check("CartPole-v1", n=2, wrappers=["flatten", "framestack:4"], backend="dummy"):
    ...     print(finding)
    wrappers[0] "flatten": warning changes_nothing: it changes nothing: (4,) float32 stays what it is. Leave it out.
    wrappers[1] "framestack": warning zero_padding: each episode's first stacks are padded with zeros, which are
    values like any other in observations (4,) float32. Use padding=first.
    """
    known = rules()
    refuse_unknown(ignore, known)
    asked = {name: rule for name, rule in known.items() if strict or not rule.strict}
    engine = None
    try:
        if isinstance(pipeline, VecEnv):
            pipeline = _pipeline_of(pipeline)
        elif isinstance(pipeline, gymnasium.vector.VectorEnv):
            engine, pipeline = pipeline, PipelineSpec(type(pipeline), n=pipeline.num_envs)
        spec = in_mode(read(pipeline), mode, settings)
    except (SpecError, PlanError) as error:
        return (not_read(error, str(pipeline)),)
    findings = _findings(spec, asked, engine)
    return tuple(finding for finding in sorted(findings, key=_place) if finding.id not in ignore)


def rules() -> dict[str, Rule]:
    """Every registered rule by its name.

    Raises:
        SpecError: one cannot be imported, is not a rule, or has a name that two packages claim.
    """
    return {name: load_rule(name) for name in registry.rules.names()}


def load_rule(name: str) -> Rule:
    """One of them.

    Raises:
        SpecError: as ``rules``.
    """
    loaded = registry.rules.load(name)
    if not isinstance(loaded, Rule):
        owner = registry.rules.entry(name).owner
        raise SpecError(
            f'rule "{name}" of {owner}: expected a function with the decorator vecwrap.rules.rule, got {loaded!r}.'
        )
    return loaded


def refuse_unknown(ignore: Collection[str], known: Collection[str]) -> None:
    """Raise SpecError for an id that no finding can have, and for one instead of a list."""
    if isinstance(ignore, str):
        raise SpecError(f'ignore: expected a list of findings, got "{ignore}"; write ["{ignore}"]')
    ids = [*known, *(refusal.__name__ for refusal in REFUSALS)]
    for name in ignore:
        if name not in ids:
            raise SpecError(f'ignore: there is no finding "{name}".{did_you_mean(name, ids)}')
        if name in (unreadable.__name__, refused.__name__):
            raise SpecError(f'ignore: "{name}" is of a pipeline that cannot be built, which nobody can mean to have')


def _pipeline_of(env: VecEnv) -> PipelineSpec:
    if env.pipeline is None:
        raise SpecError(f"expected an environment that was built from a pipeline, got {env!r}, assembled by hand.")
    pipeline: PipelineSpec = env.pipeline
    return pipeline


def _findings(spec: PipelineSpec, known: dict[str, Rule], engine: Any = None) -> Sequence[Finding]:
    """Plan each layer alone, all together, then with spaces, as far as possible; then apply the rules."""
    findings: list[Finding] = []
    good: list[LayerSpec] = []
    for word in spec.wrappers:
        try:
            plan_layers((word,))
            good.append(word)
        except (SpecError, PlanError) as error:
            findings.append(refused(error, spec.source.file, [_place_of(word)]))
    try:
        good_spec = dataclasses.replace(spec, wrappers=tuple(good))
        if findings:
            good_spec = dataclasses.replace(good_spec, eval={})  # it may refer to the layers that are left out
        planned = plan(good_spec) if engine is None else plan_around(engine, good_spec)
    except (SpecError, PlanError) as error:
        return [*findings, refused(error, spec.source.file, map(_place_of, good))]
    if not findings:  # otherwise a layer is missing, and spaces would not be the intended ones
        try:
            planned = planned.with_refusals()
        except PlanError as error:
            findings.append(refused(error, spec.source.file))
        except VecwrapError as error:
            findings.append(unmakeable(error, spec.source.file))
    return [*_unread_statistics(planned), *findings, *_findings_in(planned, known)]


def _unread_statistics(planned: Plan) -> Iterator[Finding]:
    """A statistics file for training that cannot be read; that of an evaluation may not exist yet."""
    if planned.pipeline.training is not False:
        written = planned.written
        try:
            refuse_unread(planned.pipeline.stats, written.where("stats"))
        except CheckpointError as error:
            yield refused(error, written.source.file, ["stats"])


def _findings_in(planned: Plan, known: dict[str, Rule]) -> Iterator[Finding]:
    """The rules' findings, and a layer's refusals that no rule explains.

    Nothing is reported about layers outside such a layer, because its resulting spaces are unknown.
    """
    told = [(name, fault) for name, rule in known.items() for fault in _faults(name, rule, planned)]
    explained = {id(fault.place) for name, fault in told if (fault.severity or known[name].severity) == "error"}
    silent: set[int] = set()
    for layer, stage in zip(planned.layers, (planned.stages or ())[1:], strict=False):
        if silent:
            silent.add(id(layer))
        elif stage is not None and stage.refusal is not None and id(layer) not in explained:
            silent.add(id(layer))
            prefix = layer.spec.source.prefix()
            yield refused(stage.refusal, planned.written.source.file, [layer.where.removeprefix(prefix)])
    for name, fault in told:
        if id(fault.place) not in silent:
            yield _finding(name, known[name], fault, planned)


def _faults(name: str, rule: Rule, planned: Plan) -> list[Fault]:
    try:
        return list(rule(planned))
    except Exception as error:
        owner = registry.rules.entry(name).owner
        raise VecwrapError(f'rule "{name}" of {owner} raised {type(error).__name__}: {error}') from error


def _finding(name: str, rule: Rule, fault: Fault, planned: Plan) -> Finding:
    if isinstance(fault.place, PlannedLayer):
        prefix = fault.place.spec.source.prefix()
        place, layer = fault.place.where.removeprefix(prefix), fault.place.spec.name
    else:
        source = planned.written.source
        prefix = source.at(*fault.place.split(".")).prefix() or (f"{source.file}: " if source.file else "")
        place, layer = fault.place, ""
    match = re.fullmatch(r"(.*?)(?::(\d+))?: ", prefix)
    file = match[1] if match else ""
    line = int(match[2]) if match and match[2] else None
    docs = f"{DOCS}#{name}" if registry.rules.entry(name).owner == "vecwrap" else ""
    severity = fault.severity or rule.severity
    return Finding(name, severity, file, line, place, layer, fault.reason, fault.fix, docs)


def _place_of(layer: LayerSpec) -> str:
    return layer.where.removeprefix(layer.source.prefix())


def _place(finding: Finding) -> tuple[list[int], bool]:
    """A sort key: the pipeline's keys first, then layer by layer; for one layer, errors first."""
    numbers = re.findall(r"\[(\d+)\]", finding.place.partition(" ")[0])
    return [int(number) for number in numbers], finding.severity == "warning"
