"""What a pipeline would import or connect to, and its refusal, as ``--no-imports`` asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vecwrap.errors import internal_frames_hidden
from vecwrap.pipeline.elements import WrapperSpec
from vecwrap.pipeline.fields import write
from vecwrap.pipeline.files import read_file
from vecwrap.pipeline.source_map import SourceRef, fail
from vecwrap.pipeline.spec import PipelineSpec, read_pipeline
from vecwrap.pipeline.values import short_repr
from vecwrap.sources.import_paths import is_import_path

# options of a backend that connect to machines or install packages
_CONNECTS = ("address", "init", "runtime_env")
_MAY_IMPORT = ("env", "env_kwargs", "backend", "engine", "wrappers", "eval")


def load_without_imports(path: Path) -> PipelineSpec:
    """Read a pipeline file, refusing imports before the signatures of its wrappers are needed.

    It refuses the same pipelines as ``refuse_imports``.
    """
    with internal_frames_hidden:
        return read_pipeline(*read_file(path), check=_refuse_imports)


def refuse_imports(spec: PipelineSpec) -> None:
    """Refuse a pipeline that names a module, in any part or argument, or that connects.

    Parts are the environment, the backend, the engine and the wrappers.

    Arguments count because wrappers import some of them (``trigger`` of ``video``), and wrappers of
    other packages may do anything with theirs. Names alone lead only to what is installed and
    registered.
    """
    _refuse_imports(dict(spec.settings()), spec.source)


def _refuse_imports(settings: Mapping[str, Any], source: SourceRef) -> None:
    data = {
        key: write(key, value)
        for key, value in settings.items()
        if key in _MAY_IMPORT and value is not None
    }
    for where, text in _imports(data, source):
        fail(
            where,
            f"expected nothing to import or to connect to (--no-imports), got {short_repr(text)}",
        )


def _imports(value: Any, source: SourceRef) -> Iterator[tuple[SourceRef, str]]:
    """What would be imported, as a file would hold it, and where it was written."""
    if isinstance(value, str):
        text = value.removesuffix(":")  # behind the path of a wrapper without arguments
        if is_import_path(text) or (":" in text and "env" in source.steps[-2:]):
            yield source, text
    elif isinstance(value, dict):
        is_eval_wrappers = source.steps == ("eval", "wrappers")
        for key, part in value.items():
            at = source.at(key)
            yield from _imports(key, SourceRef(at.source_map, source.steps))
            if source.steps[-1:] == ("backend",) and key in _CONNECTS and part is not None:
                yield at, key
            if is_eval_wrappers and str(key).isdigit() and isinstance(part, str):
                # the text of a wrapper that replaces the one of this number
                part = WrapperSpec.parse(part, at).to_data()
            yield from _imports(part, at)
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _imports(part, source.at(index))
