"""The folder of a run: its contents, whether they belong together, and its rebuilt pipeline.

``build(..., out=...)``, a monitor with ``dir`` and ``vecwrap run --out`` fill one; ``env.save``
into ``stats.npz`` adds the running statistics. All but ``pipeline.yaml`` is optional. Nothing read
here is unpickled.
"""

from __future__ import annotations

import dataclasses
import json
import platform
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import vecwrap
from vecwrap.env.state_file import read_state
from vecwrap.env.untrusted import open_regular
from vecwrap.errors import SpecError, printable, searched_paths, truncate
from vecwrap.pipeline.evaluation import in_mode
from vecwrap.pipeline.files import read_text
from vecwrap.pipeline.no_imports import load_without_imports
from vecwrap.pipeline.paths import moved
from vecwrap.pipeline.source_map import SourceLocation
from vecwrap.pipeline.spec import HASH_VERSION, PipelineSpec
from vecwrap.pipeline.static_plan import plan_statically
from vecwrap.pipeline.values import Settings
from vecwrap.wrappers.recording.run_record import FACTS, PIPELINE, STATISTICS, read_facts


@dataclass(frozen=True)
class Run:
    """A run folder whose parts belong together."""

    folder: Path
    resolved: PipelineSpec  # with everything filled in
    facts: Mapping[str, Any]  # the contents of ``run.json``; empty if there is none
    statistics: Path | None  # the file of running statistics; None if there is none

    def pipeline(
        self,
        mode: Literal["train", "eval"],
        overrides: Mapping[str, Any],
        places: Mapping[str, SourceLocation] | None = None,
    ) -> PipelineSpec:
        """Return the rebuilt pipeline; the folder's statistics replace a file that it names."""
        spec = self.resolved
        # what it writes leaves the run's own files alone; an evaluation has a folder of its own
        if mode == "train":
            root = self.folder.absolute()
            spec = moved(spec, root, root / "loaded")
        if self.statistics is not None:
            section = Settings({key: value for key, value in spec.eval.items() if key != "stats"})
            training = spec.training if spec.stats is None else spec.in_training
            spec = dataclasses.replace(spec, stats=None, training=training, eval=section)
        return in_mode(spec, mode, overrides, places)


@searched_paths(SpecError)
def read_run(folder: str | Path, *, imports: bool = True) -> Run:
    """Read a run folder, and check that its parts belong to one pipeline.

    The parts beside the pipeline are checked before the pipeline imports anything.
    """
    folder = Path(folder)
    if not (folder / PIPELINE).is_file():
        _refuse_missing(folder)
        if folder.is_dir():
            got = f"one without {PIPELINE}. Is it the right one?"
        elif folder.exists():
            got = "a file. `vecwrap run`, `explain` and `check` take pipeline files."
        else:
            got = f"none, seen from {Path.cwd()}. Is the path right?"
        raise SpecError(f"{folder}: expected a run's folder, with {PIPELINE}, got {got}")
    facts = read_facts(folder / FACTS)
    statistics = None
    if (folder / STATISTICS).exists():
        statistics = folder / STATISTICS
    carried = [(FACTS, facts.get("pipeline")), *_monitors(folder)]
    if statistics is not None:
        carried.append((STATISTICS, read_state(statistics, follow=False).get("hash")))
    hashes = {name: truncate(str(found), 60) for name, found in carried if found is not None}
    most = [found for found, _ in Counter(hashes.values()).most_common(1)]
    _refuse_others(folder, hashes, "".join(most), "the files beside it are", facts)
    path = folder / PIPELINE
    text = read_text(path, follow=False)
    if imports:
        spec = PipelineSpec.from_yaml(text, str(path), folder)
    else:
        spec = load_without_imports(path)
    resolved = plan_statically(spec).pipeline
    # another version gives the same pipeline another hash
    if facts.get("hash_version", HASH_VERSION) == HASH_VERSION:
        _refuse_others(folder, hashes, resolved.hash, f"{PIPELINE} beside it is", facts)
    return Run(folder, resolved, facts, statistics)


def _refuse_missing(folder: Path) -> None:
    """Refuse a run that no file could hold, naming the parts that only its program had."""
    missing = read_facts(folder / FACTS).get("missing")
    if isinstance(missing, list) and missing:
        parts = "; ".join(truncate(printable(str(part)), 300) for part in missing[:10])
        raise SpecError(
            f"{folder}: the pipeline of this run cannot be built from its folder, because parts of "
            f"it existed only in the program that ran: {parts}. Build it with the program's own "
            "call, and with stats= for statistics."
        )


def _monitors(folder: Path) -> Iterable[tuple[str, Any]]:
    """Yield the name of each monitor file, and the pipeline that it says it is of."""
    for path in sorted(folder.glob("*monitor.csv")):
        with open_regular(path) as file:
            first = file.readline(100_000)
        try:
            header = json.loads(first.removeprefix(b"#"))
        except (
            ValueError,
            RecursionError,
        ):  # killed within the first line, or not one of our files
            continue
        if isinstance(header, dict):
            yield path.name, header.get("pipeline")


def _refuse_others(
    folder: Path, hashes: Mapping[str, str], expected: str, as_: str, facts: Mapping[str, Any]
) -> None:
    then, now = other_versions(facts).get("vecwrap", ("", ""))
    newer = ""
    if then:
        newer = f" (vecwrap {then} wrote it and this is {now}, in which a wrapper may differ.)"
    for name, found in hashes.items():
        if found != expected:
            raise SpecError(
                f"{folder / name}: expected a file of pipeline {expected}, which {as_}, got one of "
                f"pipeline {found}: either was changed, or is of another run.{newer} To build the "
                f"pipeline all the same, load {folder / PIPELINE} by itself."
            )


def other_versions(facts: Mapping[str, Any]) -> dict[str, tuple[str, str | None]]:
    """Return the libraries whose versions differ, with the version then and now.

    The version now is None for a library that is not installed.
    """
    now: dict[str, str | None] = {
        "python": platform.python_version(),
        "vecwrap": vecwrap.__version__,
    }
    for name in facts.get("versions", {}).keys() - now.keys():
        try:
            now[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            now[name] = None
    then = facts.get("versions", {})
    return {name: (str(then[name]), now[name]) for name in then if then[name] != now[name]}
