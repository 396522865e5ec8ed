"""``run.json``: what the folder of a run says of it, and of the libraries that were installed."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import vecwrap
from vecwrap.errors import SpecError
from vecwrap.pipeline.files import read_text
from vecwrap.pipeline.places import fail

_MOST_VERSIONS = 1000  # each is looked up


def read_facts(path: Path) -> Mapping[str, Any]:
    """Read ``run.json``; empty if there is none."""
    if not os.path.lexists(path):
        return {}
    try:
        facts = json.loads(read_text(path, follow=False))
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path}: this is not JSON: {error}.") from None
    versions = facts.get("versions", {}) if isinstance(facts, dict) else None
    if not isinstance(versions, dict) or len(versions) > _MOST_VERSIONS:
        fail(str(path), "expected what `vecwrap run` writes, a mapping with the key versions")
    return dict(facts)


def other_versions(facts: Mapping[str, Any]) -> dict[str, tuple[str, str | None]]:
    """The libraries whose versions differ, mapped to the version then and now (None: not installed)."""
    now: dict[str, str | None] = {"python": platform.python_version(), "vecwrap": vecwrap.__version__}
    for name in facts.get("versions", {}).keys() - now.keys():
        try:
            now[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            now[name] = None
    then = facts.get("versions", {})
    return {name: (str(then[name]), now[name]) for name in then if then[name] != now[name]}
