"""The paths that the wrappers of a pipeline are given: those in one folder, moved to another."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from vecwrap.pipeline import registry
from vecwrap.pipeline.elements import WrapperSpec
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.pipeline.values import Settings, is_path
from vecwrap.sources.declares import declared_by


def moved(pipeline: PipelineSpec, folder: Path, to: Path) -> PipelineSpec:
    """Return a resolved pipeline with the paths within one folder moved to another.

    The paths of its evaluation are moved, too.
    """
    wrappers = _paths_within(pipeline.wrappers, folder, to)
    section = dict(pipeline.eval)
    if isinstance(section.get("wrappers"), tuple):
        section["wrappers"] = _paths_within(section["wrappers"], folder, to)
    return dataclasses.replace(pipeline, wrappers=wrappers, eval=Settings(section))


def _paths_within(
    wrappers: Sequence[WrapperSpec], folder: Path, to: Path
) -> tuple[WrapperSpec, ...]:
    root = os.path.realpath(folder)
    changed = []
    for wrapper in wrappers:
        kwargs = dict(wrapper.kwargs)
        for key in (
            declared_by(registry.wrappers.find(wrapper.target, wrapper.where)).path_parameters
            & kwargs.keys()
        ):
            if is_path(kwargs[key]) and (
                path := Path(os.path.realpath(kwargs[key]))
            ).is_relative_to(root):
                kwargs[key] = str(to / path.relative_to(root))
        changed.append(dataclasses.replace(wrapper, kwargs=Settings(kwargs)))
    return tuple(changed)
