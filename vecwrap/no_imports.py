"""Refuses pipelines that name something to import, for untrusted files. Nothing is imported to find out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vecwrap.backend_spec import BackendSpec
from vecwrap.draft import Draft
from vecwrap.files import lineage, read_file
from vecwrap.layer_spec import LayerSpec
from vecwrap.registry import is_import_path
from vecwrap.source import Source, fail_where
from vecwrap.spec import PipelineSpec
from vecwrap.values import shown

__all__ = ["load_without_imports", "refuse_imports"]

_MAY_IMPORT = ("env", "env_kwargs", "backend", "wrappers", "eval")


def load_without_imports(path: Path) -> PipelineSpec:
    """Read a pipeline file, and refuse it as ``refuse_imports`` does.

    Each file is checked before the one that extends it changes its layers, because that may need their signatures.

    Raises:
        SpecError: it cannot be read, or names a module.
    """
    data, source = read_file(path)
    draft = Draft()
    for said, where in lineage(data, source) if isinstance(data, Mapping) else ():
        draft.write_over(said, where)
        _refuse(draft)
    return PipelineSpec.from_dict(data, source)


def refuse_imports(spec: PipelineSpec) -> None:
    """Refuse a pipeline that names a module: as environment, backend or layer, or in any argument.

    Arguments count because layers import some of them (``trigger`` of ``video``), and layers of other packages may do
    anything with theirs. Names alone lead only to what is installed and registered.

    Raises:
        SpecError: with the place of the first.

    >>> refuse_imports(PipelineSpec.parse("CartPole-v1 | framestack:4"))
    >>> refuse_imports(PipelineSpec.parse("CartPole-v1 | my.layers:Scale"))
    Traceback (most recent call last):
    ...
    vecwrap.errors.SpecError: wrappers[0]: expected nothing to import (--no-imports), got "my.layers:Scale".
    """
    _refuse(spec.draft())


def _refuse(draft: Draft) -> None:
    said = {key: value for key, value in draft.settings.items() if key in _MAY_IMPORT}
    for where, text in _imports(said, Source(draft.places)):
        fail_where(where, f"expected nothing to import (--no-imports), got {shown(text)}")


def _imports(value: Any, source: Source) -> Iterator[tuple[str, str]]:
    """What would be imported, and where it was written."""
    if isinstance(value, LayerSpec):
        if ":" in value.name:
            yield str(value.source), value.name
        given: list[tuple[str | int, Any]] = [*enumerate(value.args), *value.kwargs.items()]
        for key, argument in given:
            for _, text in _imports(argument, source):
                yield value.where_argument(key), text
    elif isinstance(value, BackendSpec):
        if ":" in value.name:
            yield str(source), value.name
        yield from _imports(value.options, source)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _imports(key, source.at(key))
            stands_for_a_layer = source.steps == ("eval", "wrappers") and str(key).isdigit() and isinstance(inner, str)
            read = LayerSpec.parse(inner, source.at(key)) if stands_for_a_layer else inner
            yield from _imports(read, source.at(key))
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from _imports(inner, source.at(index))
    elif isinstance(value, str) and (is_import_path(value) or (":" in value and source.steps[-1:] == ("env",))):
        yield str(source), value
