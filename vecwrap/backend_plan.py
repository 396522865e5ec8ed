"""The backend of a plan: which one, why, and whether its options fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from vecwrap import registry
from vecwrap.backend_spec import BackendSpec
from vecwrap.backends.cores import usable_cores
from vecwrap.backends.launch import check_start_method
from vecwrap.errors import PlanError, did_you_mean
from vecwrap.signatures import Signature
from vecwrap.spec import PipelineSpec
from vecwrap.values import Settings, import_path, shown
from vecwrap.vec_env import VecEnv
from vecwrap.wrapper import VecEnvWrapper

__all__ = ["PIPELINE_KEYS", "plan_backend"]

# What every backend takes from the pipeline itself.
PIPELINE_KEYS = ("autoreset", "copy", "batch_size", "start_index", "seed", "debug")
_PROCESS_OPTIONS = (
    "workers",
    "envs_per_worker",
    "start_method",
    "daemon",
    "parent_share",
    "step_timeout",
    "reset_timeout",
    "start_timeout",
)


def plan_backend(
    spec: PipelineSpec, n: int, *, known: bool = False
) -> tuple[Callable[..., VecEnv], Mapping[str, Any], BackendSpec, str]:
    """Choose and check a backend; nothing is started.

    Args:
        spec: the pipeline.
        n: how many sub-environments.
        known: whether all code that would run in this process is Gymnasium's, ale-py's or ours.

    Returns:
        Its class, its options, its resolved spec, and why it was chosen (``""`` if it was requested).

    Raises:
        SpecError: an unknown backend, or an option of the wrong type.
        PlanError: an option that it does not have, or a number that does not fit.
    """
    options = dict(spec.backend.options)
    target, reason = spec.backend.target, ""
    if target == "auto":
        target, reason = _choose(options, n)
    where = f'{spec.where("backend")} "{target if isinstance(target, str) else shown(target)}"'
    if not isinstance(target, str):
        backend = target
    elif ":" in target:
        backend = registry.import_target(target, where)
    else:
        backend = registry.backends.load(target, where)
    if not (isinstance(backend, type) and issubclass(backend, VecEnv)) or issubclass(backend, VecEnvWrapper):
        raise PlanError(f"{where}: expected a class derived from vecwrap.backends.base.Backend, got {shown(backend)}.")
    options = _fitting_options(spec, backend, options, where)
    _check_workers(spec, options, n)
    if hasattr(backend, "check_options"):
        try:
            backend.check_options(options)
        except PlanError as error:
            option, _, message = str(error).partition(": ")
            place, message = (_where(spec, option), message) if option in options else (where, str(error))
            raise PlanError(f"{place}: {message.removesuffix('.')}.") from None
    if options.get("parent_share"):
        _refuse_isolation(spec, options)
    name = registry.backends.name_of(backend) or import_path(backend) or backend
    written = BackendSpec(name, options)
    if target == "shmem" and known and "parent_share" not in options and _shares_with_parent(spec, options, n):
        options["parent_share"] = True  # like the number of workers: choices made for this machine are not written
    return backend, Settings(options), written, reason


def _choose(options: Mapping[str, Any], n: int) -> tuple[str, str]:
    asked = [name for name in _PROCESS_OPTIONS if options.get(name) is not None]
    if asked:
        return "shmem", f"{' and '.join(asked)} ask{'s' * (len(asked) == 1)} for worker processes"
    if options.get("on_failure") == "restart":
        return (
            "shmem",
            "on_failure=restart asks for worker processes, so that a crash takes no more than its own with it",
        )
    if n == 1:
        return "dummy", "one sub-environment is quickest in this process"
    return "shmem", f"{n} sub-environments share the cores; vecwrap tune measures whether another way is quicker"


_ISOLATION = ("workers", "envs_per_worker", "step_timeout", "reset_timeout", "start_timeout")


def _asks_for_isolation(spec: PipelineSpec, given: Mapping[str, Any]) -> str:
    """The given option that requires sub-environments in their own processes, or ``""``."""
    asked = [name for name in _ISOLATION if given.get(name) is not None]
    asked += ["on_failure"] * (given.get("on_failure") == "restart")
    asked += ["batch_size"] * (spec.batch_size is not None)
    return asked[0] if asked else ""


def _shares_with_parent(spec: PipelineSpec, given: Mapping[str, Any], n: int) -> bool:
    return min(n, usable_cores()) > 1 and not _asks_for_isolation(spec, given)


def _refuse_isolation(spec: PipelineSpec, given: Mapping[str, Any]) -> None:
    asked = _asks_for_isolation(spec, {key: value for key, value in given.items() if key not in _ISOLATION[:2]})
    if asked:
        raise PlanError(
            f"{_where(spec, 'parent_share')}: expected False beside {asked}, got True: what this process steps itself, "
            f"nothing isolates. Leave out parent_share or {asked}."
        )


def _fitting_options(spec: PipelineSpec, backend: Any, options: dict[str, Any], where: str) -> dict[str, Any]:
    signature = Signature.of(backend)
    names = [parameter.name for parameter in signature.parameters if parameter.name not in PIPELINE_KEYS]
    for name in options:
        place = _where(spec, name)
        if name in PIPELINE_KEYS:
            raise PlanError(f"{place}: {name} is the pipeline's own; write it one level up.")
        if name not in names and not signature.any_name:
            if name in _PROCESS_OPTIONS and "workers" not in names:
                remedy = ' It runs in this process; leave the option out, or take backend="shmem".'
            else:
                remedy = did_you_mean(name, names) or (f" It has {', '.join(names)}." if names else " It has none.")
            raise PlanError(f"{place}: {where.rpartition(': ')[2]} has no option {name}.{remedy}")
    checked = dataclasses.replace(
        signature, parameters=tuple(p for p in signature.parameters if p.name not in PIPELINE_KEYS)
    )
    return dict(checked.bind((), options, where, lambda key, name: _where(spec, name)).kwargs)


def _check_workers(spec: PipelineSpec, options: dict[str, Any], n: int) -> None:
    """Refuse numbers below 1, or both at once; cap the workers at the number of sub-environments."""
    for name in ("workers", "envs_per_worker"):
        value = options.get(name)
        if value is not None and value < 1:
            raise PlanError(f"{_where(spec, name)}: expected at least 1, got {value}.")
    if options.get("workers") is not None and options.get("envs_per_worker") is not None:
        raise PlanError(
            f"{_where(spec, 'envs_per_worker')}: expected workers or envs_per_worker, got both; each follows "
            "from the other."
        )
    if options.get("start_method") is not None:
        try:
            check_start_method(options["start_method"])
        except PlanError as error:
            place = _where(spec, "start_method")
            raise PlanError(f"{place}: {str(error).removeprefix('start_method: ')}") from None
    if (options.get("workers") or 0) > n:
        options["workers"] = n


def _where(spec: PipelineSpec, option: str) -> str:
    """``"pong.yaml:4: backend.workers"``; if not in a file, the name in ``build``: ``"workers"``."""
    source = spec.source.at("backend", option)
    return str(source) if source.prefix() else option
