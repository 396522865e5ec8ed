"""Pipelines as the commands take them, and what a run adds to one."""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vecwrap.environments import creator_of, find_environment
from vecwrap.errors import SpecError
from vecwrap.evaluation_spec import in_mode
from vecwrap.layer_changes import with_argument
from vecwrap.layer_plan import plan_layers
from vecwrap.layer_spec import LayerSpec
from vecwrap.no_imports import load_without_imports, refuse_imports
from vecwrap.pipeline_file import is_file, names_file
from vecwrap.plan import plan
from vecwrap.registry import wrappers
from vecwrap.run_folder import PIPELINE, VIDEOS, moved
from vecwrap.source import Place, Source, fail_where
from vecwrap.spec import PipelineSpec
from vecwrap.values import Settings, scalar, shown
from vecwrap.yaml_file import read_yaml

__all__ = ["read_pipeline", "read_settings", "with_images", "with_monitor", "with_videos"]


def read_pipeline(
    pipeline: str,
    settings: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    *,
    evaluation: bool = False,
    imports: bool = True,
) -> PipelineSpec:
    """Read a file, or a pipeline in one line, and what is set over it.

    Args:
        pipeline: a file, or a pipeline in one line.
        settings: what ``--set`` says: ``"n=16"``, ``"wrappers.framestack.k=2"``.
        options: keys that have an option of their own, to their values; None for one that was not given.
        evaluation: whether the evaluation is meant that belongs to it.
        imports: whether the pipeline may name something to import.

    Raises:
        SpecError: where it cannot be read.
    """
    path = Path(pipeline)
    if names_file(pipeline) or is_file(path):
        spec = PipelineSpec.load(path) if imports else load_without_imports(path)
    else:
        spec = PipelineSpec.parse(pipeline)
        if not imports:
            refuse_imports(spec)
        if is_file(path / PIPELINE):
            _refuse_run_folder(path, spec.env)
    overrides = read_settings(settings)
    given = {key: value for key, value in (options or {}).items() if value is not None}
    for key in given:
        if key in overrides:
            fail_where(f"--set {key}", f"--{key} says it already; leave one of the two out")
    places = {**dict.fromkeys(overrides, Place("--set")), **{key: Place(f"--{key}") for key in given}}
    return in_mode(spec, "eval" if evaluation else "train", {**given, **overrides}, places)


def _refuse_run_folder(folder: Path, env: Any) -> None:
    """Refuse a run folder in the place of a pipeline, unless an environment is called so too."""
    try:
        find_environment(env)
    except SpecError:
        fail_where(
            str(folder),
            "expected a pipeline, got a run folder. Take `vecwrap load "
            f"{shlex.quote(str(folder))}`, or the pipeline in it: {folder / PIPELINE}",
        )


def read_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Read ``key=value``: values as in a pipeline's line, lists and mappings as in YAML; the last of a key counts.

    Raises:
        SpecError: where one cannot be read.
    """
    read = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            fail_where("--set", f"expected KEY=VALUE, such as n=16 or wrappers.framestack.k=2, got {shown(setting)}")
        key, text = key.strip(), text.strip()
        if text[:1] in ("[", "{"):
            read[key] = read_yaml(text, f"--set {key}").value
        else:
            read[key] = scalar(text, Source(steps=(key,), otherwise=Place("--set")))
    return read


def with_monitor(spec: PipelineSpec, out: Path | None) -> PipelineSpec:
    """Give a pipeline whose episodes are counted and written to a folder.

    The outermost monitor stays where it is and keeps its folder unless ``out`` names another; a pipeline without one
    gets one around everything. Without any folder, it is ``runs/NAME`` in the working directory.
    """
    spec = _laid_open(spec, "monitor")
    if out is None and _folder_of(spec, "monitor") is not None:
        return spec
    return _with_folder(spec, "monitor", _folder(spec, out))


def with_videos(spec: PipelineSpec, out: Path | None) -> PipelineSpec:
    """Give a pipeline that records videos.

    The outermost ``video`` stays as it is, but for its folder where ``out`` is given; a pipeline without one gets one
    around everything, with a folder beside the monitor's file.

    Args:
        spec: with a monitor that has a folder.
        out: the folder of the run, for whose folder ``videos`` they are.

    Raises:
        SpecError: an environment that renders no images.
    """
    if spec.render_mode not in ("rgb_array", "human") and spec.env_kwargs.get("render_mode") != "rgb_array":
        asked = spec.render_mode or spec.env_kwargs.get("render_mode")
        why = f"render_mode={shown(asked)}" if asked else "one that renders none"
        fail_where("--record", f"expected an environment that renders images (rgb_array), got {why}")
    spec = _laid_open(spec, "video")
    if out is None and _outermost(spec, "video") is not None:
        return spec
    folder = out if out is not None else _folder_of(spec, "monitor")
    assert folder is not None
    return _with_folder(spec, "video", folder / VIDEOS)


def _with_folder(spec: PipelineSpec, name: str, folder: Path) -> PipelineSpec:
    """Give a pipeline whose outermost layer of a name writes into a folder; one is added where there is none.

    What an evaluation with layers of its own wrote into the old folder goes into the new one; to an evaluation that has
    a layer of this name already, none is added.
    """
    layers, section = list(spec.wrappers), spec.eval
    found, old = _outermost(spec, name), _folder_of(spec, name)
    has_list = isinstance(section.get("wrappers"), tuple)
    if found is not None:
        layers[found] = with_argument(layers[found], "dir", str(folder), Source())
        if has_list and old is not None:
            section = moved(plan(spec).pipeline, old, folder.absolute()).eval
    else:
        layers.append(LayerSpec(name, kwargs={"dir": str(folder)}))
        evaluated = plan(spec).pipeline.eval.get("wrappers", ())
        if not has_list and any(layer.name == name for word in evaluated for layer in word.expanded):
            section = Settings({**section, "drop": (*section.get("drop", ()), str(len(spec.wrappers)))})
    return dataclasses.replace(spec, wrappers=tuple(layers), eval=section)


def _laid_open(spec: PipelineSpec, name: str) -> PipelineSpec:
    """Give a pipeline in which a preset that holds a layer of a name is replaced by its layers.

    Its evaluation is filled in then, because the section may speak of the preset.
    """
    layers = tuple(part for word in spec.wrappers for part in _parts(word, name))
    if layers == spec.wrappers:
        return spec
    return dataclasses.replace(spec, wrappers=layers, eval=plan(spec).pipeline.eval)


def _parts(word: LayerSpec, name: str) -> tuple[LayerSpec, ...]:
    """The layers of a preset that holds one of a name; else the word itself."""
    _, layers = plan_layers([word])
    if any(layer.preset and layer.spec.name == name for layer in layers):
        return tuple(layer.spec for layer in layers)
    return (word,)


def _outermost(spec: PipelineSpec, name: str) -> int | None:
    names = (name, wrappers.entry(name).target)
    return max((i for i, layer in enumerate(spec.wrappers) if layer.name in names), default=None)


def _arguments(layer: LayerSpec) -> dict[str, Any]:
    """The arguments of a layer whose first is its folder."""
    return {**dict(zip(("dir",), layer.args, strict=False)), **layer.kwargs}


def _folder_of(spec: PipelineSpec, name: str) -> Path | None:
    """The folder of the outermost layer of a name, as this process finds it."""
    found = _outermost(spec, name)
    if found is None:
        return None
    layer = spec.wrappers[found]
    folder = _arguments(layer).get("dir")
    directory = layer.source.at(layer.name, "dir").directory
    return None if folder is None else Path(directory or "", folder)


def _folder(spec: PipelineSpec, out: Path | None) -> Path:
    """The folder, relative to the working directory."""
    if out is not None:
        return out
    name = Path(spec.source.file).stem if spec.source.file else spec.env if isinstance(spec.env, str) else "run"
    folder = Path("runs") / name.replace("/", "-").replace(":", "-")
    return folder if spec.training is not False else folder / "eval"


def with_images(spec: PipelineSpec) -> PipelineSpec:
    """Give a pipeline that renders images, where it renders nothing yet and its environment says that it can.

    Raises:
        VecwrapError: where there is no such environment.
    """
    if spec.render_mode is not None or "render_mode" in spec.env_kwargs:
        return spec
    found = find_environment(spec.env, spec.env_kwargs, None, spec.source.at("env"))
    makers = [found.env_spec.entry_point] if found.env_spec is not None else found.factories
    for maker in makers:
        try:
            creator = creator_of(maker)
        except (Exception, SystemExit):  # building tells it, with its place
            return spec
        if "rgb_array" not in getattr(creator, "metadata", {}).get("render_modes", ()):
            return spec
    return spec.override(render_mode="rgb_array")
