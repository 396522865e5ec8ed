"""Pipelines as the commands take them, and what a run adds to one."""

from pathlib import Path
from typing import Any

from gymnasium.envs.registration import load_env_creator

from vecwrap.environments import find_environment
from vecwrap.layer_spec import LayerSpec
from vecwrap.registry import wrappers
from vecwrap.spec import PipelineSpec

__all__ = ["read_pipeline", "with_images", "with_monitor"]


def read_pipeline(pipeline: str) -> PipelineSpec:
    """Read a file, or a pipeline in one line.

    Raises:
        SpecError: where it cannot be read.
    """
    path = Path(pipeline)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        return PipelineSpec.load(path)
    return PipelineSpec.parse(pipeline)


def with_monitor(spec: PipelineSpec, out: Path | None) -> PipelineSpec:
    """Give a pipeline whose episodes are counted and written to a folder.

    The outermost monitor stays where it is and keeps its folder unless ``out`` names another; a pipeline without one
    gets one around everything. Without any folder, it is ``runs/NAME`` in the working directory.
    """
    layers = list(spec.wrappers)
    found = [i for i, layer in enumerate(layers) if layer.name in ("monitor", wrappers.entry("monitor").target)]
    if not found:
        layers.append(LayerSpec("monitor", kwargs={"dir": str(_folder(spec, out))}))
        return spec.override(wrappers=layers)
    layer = layers[found[-1]]
    arguments: dict[str, Any] = {**dict(zip(("dir",), layer.args, strict=False)), **layer.kwargs}
    if out is None and arguments.get("dir") is not None:
        return spec
    layers[found[-1]] = LayerSpec(layer.target, kwargs={**arguments, "dir": str(_folder(spec, out))})
    return spec.override(wrappers=layers)


def _folder(spec: PipelineSpec, out: Path | None) -> Path:
    """The folder, relative to the working directory."""
    if out is not None:
        return out
    name = Path(spec.source.file).stem if spec.source.file else spec.env if isinstance(spec.env, str) else "run"
    return Path("runs") / name.replace("/", "-").replace(":", "-")


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
        creator = load_env_creator(maker) if isinstance(maker, str) else maker
        if "rgb_array" not in getattr(creator, "metadata", {}).get("render_modes", ()):
            return spec
    return spec.override(render_mode="rgb_array")
