"""Pipelines as the commands accept them, and the wrappers that a run adds."""

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from vecwrap.errors import PlanError, SpecError, truncate
from vecwrap.pipeline.engines import find_environment_of
from vecwrap.pipeline.evaluation import in_mode
from vecwrap.pipeline.files import is_file, names_file, read_yaml
from vecwrap.pipeline.no_imports import load_without_imports, refuse_imports
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.run_folder import Run, other_versions, read_run
from vecwrap.pipeline.run_output import expanded, folder_of, outermost, with_folder
from vecwrap.pipeline.scalars import read_argument
from vecwrap.pipeline.source_map import SourceLocation, SourceMap, SourceRef, fail
from vecwrap.pipeline.spec import PipelineSpec, overridden
from vecwrap.pipeline.values import short_repr
from vecwrap.wrappers.recording.run_record import FACTS, PIPELINE, VIDEOS


def read_pipeline(
    pipeline: str,
    settings: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    evaluation: bool = False,
    imports: bool = True,
) -> PipelineSpec:
    """Read a file, a one-line pipeline, or that of a run folder, and apply overrides.

    ``settings`` are the values of ``--set``, ``options`` those of keys with an option of their own,
    None if not given; without ``imports`` the pipeline may not name something to import.
    """
    spec, _ = read_pipeline_or_run(
        pipeline, settings, options, evaluation=evaluation, imports=imports
    )
    return spec


def read_pipeline_or_run(
    pipeline: str,
    settings: Sequence[str] | None,
    options: Mapping[str, Any] | None,
    *,
    evaluation: bool,
    imports: bool,
) -> tuple[PipelineSpec, Run | None]:
    """Return the pipeline as `read_pipeline` does, and the run if a run folder was given."""
    path = Path(pipeline)
    run = None
    if any(os.path.lexists(path / name) for name in (PIPELINE, FACTS)):
        run = read_run(path, imports=imports)
        spec = run.resolved
        _warn_of_versions(run)
    elif names_file(pipeline) or is_file(path):
        if imports:
            spec = PipelineSpec.load(path)
        else:
            spec = load_without_imports(path)
    else:
        spec = PipelineSpec.parse(pipeline)
        if not imports:
            refuse_imports(spec)
    overrides = read_settings(settings)
    given = {key: value for key, value in (options or {}).items() if value is not None}
    for key in given:
        if key in overrides:
            fail(f"--set {key}", f"--{key} sets it already; leave one of the two out")
    places = {
        **dict.fromkeys(overrides, SourceLocation("--set")),
        **{key: SourceLocation(f"--{key}") for key in given},
    }
    if not imports:
        refuse_imported(spec, {**given, **overrides}, places)
    mode: Literal["train", "eval"] = "eval" if evaluation else "train"
    changes = {**given, **overrides}
    if run is None:
        return in_mode(spec, mode, changes, places), None
    return run.pipeline(mode, changes, places), run


def _warn_of_versions(run: Run) -> None:
    for name, (then, now) in other_versions(run.facts).items():
        installed = "and is not installed"
        if now is not None:
            installed = f"and {now} is installed: the stream may differ"
        warnings.warn(
            f"{run.folder}: {truncate(name, 200)} was {truncate(then, 200)}, {installed}",
            RuntimeWarning,
            stacklevel=2,
        )


def refuse_imported(
    spec: PipelineSpec, overrides: Mapping[str, Any], places: Mapping[str, SourceLocation]
) -> None:
    """Refuse overrides that name something to import.

    Each override is checked before the next, which may need signatures.
    """
    for key, value in overrides.items():
        spec = overridden(spec, {key: value}, places)
        refuse_imports(spec)


def read_settings(settings: Sequence[str] | None) -> dict[str, Any]:
    """Read ``key=value`` settings; the last value of a key counts.

    Values are written as in a one-line pipeline, lists and mappings as in YAML.
    """
    read = {}
    for setting in settings or ():
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            fail(
                "--set",
                (
                    "expected KEY=VALUE, such as n=16 or wrappers.framestack.k=2, got "
                    f"{short_repr(setting)}"
                ),
            )
        key = key.strip()
        text = text.strip()
        if text[:1] in ("[", "{"):
            read[key] = read_yaml(text, f"--set {key}").value
        else:
            read[key] = read_argument(text, SourceRef(SourceMap(SourceLocation("--set")), (key,)))
    return read


def with_monitor(spec: PipelineSpec, out: Path | None) -> PipelineSpec:
    """Return the pipeline with a monitor that writes to a folder.

    The outermost monitor stays where it is and keeps its folder unless ``out`` names another; a
    pipeline without one gets one around everything. The default folder is ``runs/NAME`` in the
    working directory.
    """
    spec = expanded(spec)
    if out is None and folder_of(spec, "monitor") is not None:
        return spec
    return with_folder(spec, "monitor", _folder(spec, out))


def with_videos(spec: PipelineSpec, out: Path | None) -> PipelineSpec:
    """Return the pipeline, which has a monitor with a folder, with video recording.

    The outermost ``video`` stays as it is, except for its folder if ``out`` is given; a pipeline
    without one gets one around everything. The folder is ``videos`` in ``out`` or in the monitor's.
    """
    modes = [given.get("render_mode") for given in spec.each_env_kwargs]
    if spec.render_mode not in ("rgb_array", "human") and set(modes) != {"rgb_array"}:
        asked = spec.render_mode or next((mode for mode in modes if mode != "rgb_array"), None)
        why = "one that renders none"
        if asked:
            why = f"render_mode={short_repr(asked)}"
        fail("--record", f"expected an environment that renders images (rgb_array), got {why}")
    if out is None and outermost(spec, "video") is not None:
        return spec
    folder = out
    if folder is None:
        folder = folder_of(spec, "monitor")
    assert folder is not None
    return with_folder(spec, "video", folder / VIDEOS)


def _folder(spec: PipelineSpec, out: Path | None) -> Path:
    """The folder, relative to the working directory."""
    if out is not None:
        return out
    name = Path(spec.source.location.file).stem
    if not name:
        name = "run"
        if isinstance(spec.env, str):
            name = spec.env
    folder = Path("runs") / name.replace("/", "-").replace(":", "-")
    if spec.training is not False:
        return folder
    return folder / "eval"


def with_images(spec: PipelineSpec, needed_by: str = "") -> PipelineSpec:
    """Return the pipeline with image rendering if supported and no render mode is set.

    If an option needs images, a missing package that the environment draws with is an error.
    """
    if spec.render_mode is not None or any(
        "render_mode" in given for given in spec.each_env_kwargs
    ):
        return spec
    drawn = spec.override(render_mode="rgb_array")
    try:
        found = find_environment_of(spec)
        if spec.engine is not None or spec.envs_per_engine is not None:
            plan(drawn)
    except (SpecError, PlanError):  # an engine that does not draw; building reports what else it is
        return spec
    if found.missing_to_draw():
        if needed_by:
            found.refuse_undrawable(needed_by)
        return spec
    for part in found.each:
        try:
            creator = part.creator()
        except (Exception, SystemExit):  # building reports it, with its location
            return spec
        if "rgb_array" not in getattr(creator, "metadata", {}).get("render_modes", ()):
            return spec
    return drawn
