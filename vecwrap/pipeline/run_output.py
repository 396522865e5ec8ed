"""What a run writes and where: the folder ``out``, the config, and facts of the pipeline."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import PlanError, SpecError
from vecwrap.pipeline.elements import WrapperSpec
from vecwrap.pipeline.environments import engine_of, module_of
from vecwrap.pipeline.fields import write
from vecwrap.pipeline.merge import with_argument
from vecwrap.pipeline.paths import moved
from vecwrap.pipeline.registry import wrappers
from vecwrap.pipeline.scalars import is_scalar
from vecwrap.pipeline.source_map import MAX_DEPTH, SourceRef, fail
from vecwrap.pipeline.spec import HASH_VERSION, PipelineSpec
from vecwrap.pipeline.static_plan import StaticPlan, plan_statically
from vecwrap.pipeline.values import is_mapping, normalise, short_repr, to_builtins, to_data
from vecwrap.pipeline.wrappers import PlannedWrapper, plan_wrappers
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.recording.run_files import relative_to_cwd
from vecwrap.wrappers.recording.run_record import RunDescription, library_versions

# -- the folder ------------------------------------------------------------------------------------


def with_out(spec: PipelineSpec, out: Any, *, instead: bool = False) -> PipelineSpec:
    """Return the pipeline with a monitor that writes into a folder: ``build(..., out=...)``.

    A pipeline without a monitor gets one around everything, and a monitor without a folder gets
    this one. One that writes elsewhere is refused, unless this folder is meant ``instead``.
    """
    if not isinstance(out, (str, os.PathLike)) or not os.fspath(out):
        fail("out", f"expected a folder for the run's files, got {short_repr(out)}")
    spec = expanded(spec)
    folder = Path(os.fsdecode(out)).expanduser()
    found = [each for each in folders_of(spec, "monitor") if each is not None]
    if any(os.path.realpath(each) == os.path.realpath(folder) for each in found):
        return spec
    old = folder_of(spec, "monitor")
    if old is not None and not instead:
        where = spec.wrappers[outermost(spec, "monitor") or 0].where_argument("dir")
        raise PlanError(
            "out: expected the folder that the pipeline's monitor writes into, "
            f'"{relative_to_cwd(old)}" ({where}), got "{relative_to_cwd(folder)}"; leave one of '
            "the two out"
        )
    return with_folder(spec, "monitor", folder)


def with_out_around(
    given: Sequence[WrapperSpec], out: Any, config: Mapping[str, Any] | None
) -> tuple[WrapperSpec, ...]:
    """Do the same for wrappers that are put around a vector environment."""
    spec = PipelineSpec("vector", wrappers=tuple(given), source=SourceRef(steps=()))
    if out is not None:
        spec = with_out(spec, out)
    refuse_without_folder(config, spec)
    for folder in folders_of(expanded(spec), "monitor"):
        refuse_unwritable_folder(folder)
    return spec.wrappers


def with_folder(spec: PipelineSpec, name: str, folder: Path) -> PipelineSpec:
    """Return the pipeline with its outermost wrapper of a name writing into a folder.

    If there is no such wrapper, it is added.

    The wrappers of an evaluation that write into the old folder are moved to the new one; an
    evaluation that already has a wrapper of this name does not get another.
    """
    changed = list(spec.wrappers)
    section = spec.eval
    found = outermost(spec, name)
    old = folder_of(spec, name)
    if found is None:
        changed.append(WrapperSpec(name, kwargs={"dir": str(folder)}))
    else:
        changed[found] = with_argument(changed[found], "dir", str(folder), SourceRef())
        if isinstance(section.get("wrappers"), tuple) and old is not None:
            section = moved(plan_statically(spec).pipeline, old, folder.absolute()).eval
    return dataclasses.replace(spec, wrappers=tuple(changed), eval=section)


def expanded(spec: PipelineSpec) -> PipelineSpec:
    """Return the pipeline with its presets replaced by their wrappers.

    The evaluation, which may name these wrappers, is filled in.
    """
    parts = plan_wrappers(spec.wrappers)
    if not any(part.preset for part in parts):
        return spec
    evaluation = spec.eval
    if spec.eval:
        evaluation = plan_statically(spec).pipeline.eval
    return dataclasses.replace(spec, wrappers=tuple(part.spec for part in parts), eval=evaluation)


def outermost(spec: PipelineSpec, name: str) -> int | None:
    return max(_all_of(spec, name), default=None)


def folder_of(spec: PipelineSpec, name: str) -> Path | None:
    """The folder of the outermost wrapper of a name, as this process finds it."""
    return next(iter(folders_of(spec, name)[::-1]), None)


def folders_of(spec: PipelineSpec, name: str) -> list[Path | None]:
    return [_folder_of(spec.wrappers[found]) for found in _all_of(spec, name)]


def _all_of(spec: PipelineSpec, name: str) -> list[int]:
    names = (name, wrappers.entry(name).target)
    return [i for i, wrapper in enumerate(spec.wrappers) if wrapper.name in names]


def _folder_of(wrapper: WrapperSpec) -> Path | None:
    folder = wrapper.kwargs.get("dir")
    if "dir" not in wrapper.kwargs and wrapper.args:
        folder = wrapper.args[0]
    directory = wrapper.source.at(wrapper.name, "dir").location.directory
    if folder is None:
        return None
    return Path(directory or "", folder)


def refuse_unwritable(planned: StaticPlan) -> None:
    """Refuse a monitor whose folder nothing can be written into, before anything is started."""
    for folder in folders_of(planned.pipeline, "monitor"):
        refuse_unwritable_folder(folder)


def refuse_unwritable_folder(
    folder: Path | None, where: str = "monitor: dir", remedy: str = "give another, or leave dir out"
) -> None:
    """Refuse a folder in which nothing can be created."""
    if folder is None:
        return
    try:
        there = next(
            path
            for path in (folder.absolute(), *folder.absolute().parents)
            if os.path.lexists(path)
        )
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise PlanError(
            f"{where}: expected a folder that files can be written to, got "
            f'"{relative_to_cwd(folder)}": '
            f"{error.strerror or error}; {remedy}"
        ) from error


# -- the training's own settings -------------------------------------------------------------------


def read_config(config: Any) -> dict[str, Any] | None:
    """Read training settings for ``run.json`` as plain data; SpecError if JSON cannot hold them."""
    if config is None:
        return None
    if not is_mapping(config):
        remedy = ""
        if hasattr(config, "__dict__") and not callable(config):
            remedy = " Pass vars(...) of it."
        got = f"expected a mapping of names to values, got {short_repr(config)}.{remedy}"
        fail("config", got.removesuffix("."))
    return {
        _name(key, "config"): _as_json(value, f"config.{key}", 0) for key, value in config.items()
    }


def _name(key: Any, where: str) -> str:
    if isinstance(key, str):
        return key
    return fail(where, f"expected text as the name of a setting, got {short_repr(key)}")


def _as_json(value: Any, where: str, depth: int) -> Any:
    value = to_data(normalise(value))
    if depth > MAX_DEPTH:
        fail(where, f"nested more than {MAX_DEPTH} deep")
    if is_mapping(value):
        return {
            _name(key, where): _as_json(inner, f"{where}.{key}", depth + 1)
            for key, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_as_json(inner, f"{where}[{i}]", depth + 1) for i, inner in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        fail(
            where,
            (
                f"expected a finite number, since JSON has no other, got {value}; write it as "
                f'text: "{value}"'
            ),
        )
    if not is_scalar(value):
        remedy = "; give its name, as text"
        if hasattr(value, "tolist"):
            remedy = "; for an array, its tolist()"
        fail(
            where,
            (
                "expected numbers, text, lists and dicts, as JSON has them, got "
                f"{short_repr(value)}{remedy}"
            ),
        )
    return value


def refuse_without_folder(config: Any, spec: PipelineSpec) -> None:
    """Refuse settings of a training if no run folder could hold them."""
    if config is not None and not any(folders_of(expanded(spec), "monitor")):
        raise PlanError(
            "config: expected a run folder that it is written into, got none; give "
            'out="runs/NAME", or a monitor '
            "with dir"
        )


# -- what the folder says of the pipeline ----------------------------------------------------------


def record_run(env: VecEnv, planned: StaticPlan, config: Mapping[str, Any] | None) -> None:
    """Have each monitor's folder say which pipeline the run was of."""
    for wrapper in env.chain:
        if isinstance(wrapper, Monitor) and wrapper.record is not None:
            wrapper.record.describe = functools.partial(describe, planned, wrapper.record.folder)
            wrapper.record.config = config


def record_wrapped(
    env: VecEnv, planned: Sequence[PlannedWrapper], config: Mapping[str, Any] | None
) -> None:
    """Do the same where wrappers were put around a vector environment, which no file can name."""
    around = [monitor for monitor in env.chain[: len(planned)] if isinstance(monitor, Monitor)]
    named = [_by_name(wrapper.spec) for wrapper in planned]
    modules = tuple(dict.fromkeys(_module(wrapper.target) for wrapper in planned))
    settings = {"env": env.core.env_id, "n": env.core.num_envs, "wrappers": named}
    missing = (
        (
            f"env: {env.core.env_id} is a vector environment of the program that ran, given to "
            "vecwrap.wrap"
        ),
    )
    described = RunDescription(None, None, settings=settings, missing=missing, modules=modules)
    for monitor in around:
        if monitor.record is not None:
            monitor.record.describe = lambda: described
            monitor.record.config = config


def describe(planned: StaticPlan, folder: Path) -> RunDescription:
    """Describe a pipeline for ``run.json`` and ``pipeline.yaml``, with relative paths.

    Paths are relative to the folder, so that the folder can be moved.
    """
    pipeline = moved(planned.pipeline, folder, Path())  # so that the folder can be moved
    settings, missing = _pipeline_data(pipeline)
    yaml = None
    if not missing:
        yaml = pipeline.to_yaml()
    return RunDescription(
        pipeline=planned.pipeline.hash,
        yaml=yaml,
        hash_version=HASH_VERSION,
        seed=pipeline.seed,
        settings=settings,
        missing=tuple(missing),
        modules=modules_of(planned),
    )


def _pipeline_data(pipeline: PipelineSpec) -> tuple[dict[str, Any], list[str]]:
    """Return a pipeline's keys as plain data, and descriptions of parts that no file can hold.

    Objects of this process are represented by their names.
    """
    settings: dict[str, Any] = {}
    missing: list[str] = []
    for key, value in pipeline.settings():
        try:
            settings[key] = write(key, value)
        except SpecError as error:
            missing.append(str(error).removesuffix("."))
            settings[key] = _by_name(value)
    return settings, missing


def _by_name(value: Any) -> Any:
    return to_builtins(value, _name_of, for_json=True)


def _name_of(value: Any) -> Any:
    """What stands for a wrapper, with its arguments, and for an object of this process."""
    if not isinstance(value, WrapperSpec):
        return short_repr(value)
    arguments = _by_name({**dict(enumerate(value.args)), **value.kwargs})
    if arguments:
        return {value.name: arguments}
    return value.name


def modules_of(planned: StaticPlan) -> tuple[str, ...]:
    """The modules that a pipeline's stream comes from."""
    targets: list[Any] = [wrapper.target for wrapper in planned.wrappers]
    for part in planned.environment.each:
        targets += [part.entry_point, engine_of(part.entry_point)]
    return tuple(dict.fromkeys(map(_module, targets)))


def _module(target: Any) -> str:
    while hasattr(target, "func"):  # a partial
        target = target.func
    return module_of(target)


def versions(planned: StaticPlan) -> dict[str, str]:
    """The versions of what determines a pipeline's stream: Python and distributions."""
    return library_versions(modules_of(planned))
