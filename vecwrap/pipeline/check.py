"""Finds mistakes in a pipeline: those that ``build`` refuses, and those that the rules find."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import gymnasium

from vecwrap.env.saving import refuse_unread
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import CheckpointError, PlanError, SpecError, VecwrapError, did_you_mean
from vecwrap.pipeline import rules, rules_of_games
from vecwrap.pipeline.elements import WrapperSpec
from vecwrap.pipeline.evaluation import in_mode
from vecwrap.pipeline.findings import Finding, RuleViolation, Severity, finding_at, written_place
from vecwrap.pipeline.plan import Plan, plan, plan_around
from vecwrap.pipeline.spec import PipelineSpec, as_spec
from vecwrap.pipeline.static_plan import StaticPlan
from vecwrap.pipeline.wrappers import PlannedWrapper, plan_wrappers

RULES: Mapping[str, Callable[[StaticPlan], Iterator[RuleViolation]]] = {
    rule.__name__: rule for rule in (*rules.RULES, *rules_of_games.RULES)
}

# What ``build`` refuses, by the stage at which it does, each with its paragraph in docs/checks.md.
REFUSALS = {
    "unreadable": (
        """A pipeline that cannot be read: invalid YAML, an unknown key, a value of the wrong kind.

    All such mistakes are reported, and what is wrong with single wrappers; there is no pipeline yet
    to check further.
    """
    ),
    "refused": (
        """An unknown name, an unfit argument, a wrapper that refuses what it wraps, a wrong order.

    Nothing is reported about wrappers outside one that refuses, because their spaces are not the
    intended ones. A ``stats`` file must exist for the training; that of an evaluation may not exist
    yet.
    """
    ),
    "unmakeable": """An environment that cannot be made, or a worker that cannot be started.

    One sub-environment is made in the place where the backend would make it. Rules that need no
    spaces still apply.
    """,
}

# What ``check`` used to find, for lists of findings to ignore, which still name it.
_NO_LONGER_FOUND = {
    "changes_nothing": "a wrapper that changes nothing is no longer reported",
    "flatten_inside_stack": "flatten inside a stack is no longer reported",
    "monitors_share_folder": "build refuses it, and check no longer looks into folders",
    "no_render_mode": 'what build refuses is reported as "refused", which cannot be ignored',
    "no_seed": "a pipeline without a seed is no longer reported",
    "restarts_not_asked_for": "limits on restarts without restarts are no longer reported",
}


def check(
    pipeline: Any,
    *,
    mode: Literal["train", "eval"] = "train",
    ignore: Collection[str] = (),
    **settings: Any,
) -> tuple[Finding, ...]:
    """Look for mistakes in order and use, before anything is stepped.

    One sub-environment is made as the backend would make it, and closed again. Nothing is written.

    Args:
        pipeline: whatever ``build`` takes: an id, a file, a line, a dict, callables, a
            ``PipelineSpec``; or an environment that it built. Or an engine as for ``wrap``, with
            the wrappers in ``wrappers=``; it is only inspected.
        mode: ``"eval"`` for the pipeline's evaluation, as ``load``.
        ignore: ids of findings to ignore.
        settings: a pipeline's keys, as for ``load``; they override the pipeline.

    Returns:
        The findings in the order of the pipeline; empty if there are none. Those that ``build``
            would raise have the severity ``"error"``.

    Raises:
        SpecError: an unknown id or setting.

    >>> wrappers = ["flatten", "framestack:4"]
    >>> for finding in check("CartPole-v1", n=2, wrappers=wrappers, backend="dummy"):
    ...     print(finding)
    wrappers[1] "framestack": warning zero_padding: each episode's first stacks are padded with
    zeros, which are values like any other in observations (4,) float32. Use padding=first.
    """
    refuse_unknown(ignore, [*REFUSALS, *RULES])
    if "strict" in settings:
        raise SpecError(
            "strict: it added a finding for a missing seed, which is no longer reported; leave it "
            "out"
        )
    engine = None
    try:
        if isinstance(pipeline, VecEnv):
            if pipeline.pipeline is None:
                raise SpecError(
                    f"expected an environment built from a pipeline, got {pipeline!r}, assembled "
                    "by hand."
                )
            pipeline = pipeline.pipeline
        elif isinstance(pipeline, gymnasium.vector.VectorEnv):
            engine = pipeline
            pipeline = PipelineSpec(type(pipeline), n=pipeline.num_envs)
        spec = in_mode(as_spec(pipeline), mode, settings)
    except (SpecError, PlanError) as error:
        return not_read(error, str(pipeline))
    findings = _findings(spec, engine)
    return tuple(finding for finding in sorted(findings, key=_order) if finding.id not in ignore)


def refuse_unknown(ignore: Collection[str], ids: Collection[str]) -> None:
    """Raise SpecError for an id that no finding can have, and for one instead of a list."""
    if isinstance(ignore, str):
        raise SpecError(f'ignore: expected a list of findings, got "{ignore}"; write ["{ignore}"]')
    for name in ignore:
        if name in _NO_LONGER_FOUND:
            raise SpecError(
                f'ignore: there is no finding "{name}" any more: {_NO_LONGER_FOUND[name]}; leave '
                "it out"
            )
        if name not in ids:
            raise SpecError(f'ignore: there is no finding "{name}".{did_you_mean(name, ids)}')
        if name in ("unreadable", "refused"):
            raise SpecError(
                f'ignore: "{name}" is of a pipeline that cannot be built, which nobody can mean to '
                "have"
            )


def not_read(error: VecwrapError, pipeline: str) -> tuple[Finding, ...]:
    """Report an error raised before there was a pipeline.

    A PlanError is about a wrapper of the evaluation.
    """
    kind = "unreadable"
    if isinstance(error, PlanError):
        kind = "refused"
    found = [
        _refusal(kind, each, pipeline if str(each).startswith(f"{pipeline}:") else "")
        for each in error.mistakes or (error,)
    ]
    try:
        plan_wrappers(error.wrappers)
    except (SpecError, PlanError) as refused:
        found += [
            _refusal("refused", each, "", error.wrappers) for each in refused.mistakes or (refused,)
        ]
    return tuple(found)


def _findings(spec: PipelineSpec, engine: Any) -> Sequence[Finding]:
    """Plan it, then with spaces, as far as possible; then apply the rules."""
    file = spec.source.location.file
    try:
        if engine is None:
            planned = plan(spec)
        else:
            planned = plan_around(engine, spec)
    except (SpecError, PlanError) as error:
        return [
            _refusal("refused", each, file, spec.wrappers) for each in error.mistakes or (error,)
        ]
    findings = []
    try:
        # the statistics for an evaluation may not exist yet
        if planned.pipeline.training is not False:
            refuse_unread(planned.pipeline.stats, spec.where("stats"))
    except CheckpointError as error:
        findings.append(_refusal("refused", error, file, ["stats"]))
    try:
        planned = planned.with_refusals()
    except VecwrapError as error:
        findings.append(
            _refusal("refused" if isinstance(error, PlanError) else "unmakeable", error, file)
        )
    return [*findings, *_findings_in(planned)]


def _findings_in(planned: Plan) -> Iterator[Finding]:
    """A wrapper's refusal, and the rules' findings.

    Nothing is reported about wrappers outside one that refuses, because its resulting spaces are
    unknown.
    """
    silent: set[int] = set()
    for wrapper, spaces_at in zip(planned.wrappers, (planned.spaces_at or ())[1:], strict=False):
        if silent:
            silent.add(id(wrapper))
        elif spaces_at is not None and spaces_at.refusal is not None:
            silent.add(id(wrapper))
            yield _refusal(
                "refused", spaces_at.refusal, planned.written.source.location.file, [wrapper]
            )
    for name, rule in RULES.items():
        for fault in rule(planned):
            if id(fault.place) not in silent:
                yield finding_at(name, severity_of(name), fault, planned.written)


def severity_of(name: str) -> Severity:
    """The severity of a rule's findings: an error if ``build`` refuses them."""
    if name == "empty_pool":
        return "error"
    return "warning"


def _refusal(
    id: str,
    error: VecwrapError,
    file: str,
    about: Iterable[WrapperSpec | PlannedWrapper | str] = (),
) -> Finding:
    """Split an error's text into its place (a file, a line, a wrapper) and what is wrong.

    The text looks like ``FILE:LINE: wrappers[1] "framestack": what is wrong``.
    """
    text = str(error)
    line = None
    for given in (*about, ""):
        if isinstance(given, str):
            place = given
        else:
            place = written_place(given)
        file_and_line = r"(?:(.+?)(?::(\d+))?: )?"
        if not place:
            file_and_line = rf"({re.escape(file)})(?::(\d+))?: "
        if found := re.match(file_and_line + re.escape(place), text):
            file = found[1] or ""
            text = text[found.end() :].lstrip(":, ")
            line = None
            if found[2]:
                line = int(found[2])
            break
    wrapper = place.partition('"')[2].rstrip('"')
    return Finding(id, "error", file, line, place, wrapper, text)


def _order(finding: Finding) -> tuple[list[int], bool]:
    """The pipeline's keys first, then wrapper by wrapper; for one wrapper, errors first."""
    numbers = re.findall(r"\[(\d+)\]", finding.place.partition(" ")[0])
    return [int(number) for number in numbers], finding.severity == "warning"
