"""What a run leaves in its folder beside the games: ``run.json`` and ``pipeline.yaml``.

``run.json`` is written when the run begins, and again when it ends; `vecwrap run` updates its
counts meanwhile. If it says ``running`` and nothing runs any more, the run was killed.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import platform
import re
import secrets
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from vecwrap.env.atomic_files import write_atomically
from vecwrap.env.untrusted import read_bytes
from vecwrap.errors import SpecError, VecwrapError, text_of, truncate
from vecwrap.interrupts import is_raised_by_handler
from vecwrap.wrappers.recording.run_files import relative_to_cwd

PIPELINE = "pipeline.yaml"
FACTS = "run.json"
STATISTICS = "stats.npz"
VIDEOS = "videos"

RUNNING = "running"
FINISHED = "finished"
INTERRUPTED = "interrupted"
WITHOUT_CLOSE = f"{INTERRUPTED}: the program ended without closing the environment"
NOT_CLOSED = f"{INTERRUPTED}: the environment was given up without being closed"

_MAX_BYTES = 1_000_000
_MAX_VERSIONS = 1000  # each is looked up when a run is built again
_MONITOR_FILE = re.compile(r"(\d+\.)?monitor\.csv")
_COUNTS = ("steps", "episodes", "seconds", "restarts")
_DISTRIBUTIONS = {"cv2": ("opencv-python", "opencv-python-headless", "opencv-contrib-python")}


@dataclass(frozen=True)
class RunDescription:
    """What a run's folder says of the pipeline."""

    pipeline: str | None  # its hash; None if the chain was assembled by hand
    # The text of pipeline.yaml; None if some part of the pipeline exists only in this process.
    yaml: str | None
    hash_version: int | None = None
    seed: int | None = None
    # Instead of pipeline.yaml: its keys, objects by name.
    settings: Mapping[str, Any] = field(default_factory=dict)
    missing: tuple[str, ...] = ()  # what a file cannot hold, a sentence each
    modules: tuple[str, ...] = ()  # where the environment and the wrappers come from


class RunRecord:
    """Writes ``run.json`` and ``pipeline.yaml`` into a folder; a forked process writes nothing.

    Another run in the same folder moves these files aside; then this one's end is written where
    they are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # The pipeline, if the chain was built from one.
        self.describe: Callable[[], RunDescription] | None = None
        self.config: Mapping[str, Any] | None = None  # the training's own settings
        self.facts: dict[str, Any] = {}  # what is written
        self._owner = os.getpid()
        self._begun = False
        self._ended = False
        self._is_foreign = False  # another program's run.json is there
        self._earlier: list[dict[str, Any]] = []  # sittings of the same run, before this one
        # What the first of them left alone; None if there was none.
        self._kept: list[Any] | None = None
        self._handled: int | None = None  # the exception that was being handled when it began

    def prepare(self, *, resume: bool = False) -> None:
        """Create the folder, and move the files of an earlier run aside or continue that run.

        Args:
            resume: whether this run continues the one that the folder is of.

        Raises:
            OSError: the folder cannot be written to.
        """
        if self._begun or os.getpid() != self._owner:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        found = _facts_of_a_run(self.folder / FACTS)
        self._is_foreign = not found and (self.folder / FACTS).exists()
        if not resume:
            move_aside(self.folder)
        elif found:
            self._earlier = _sessions(found)
            self._kept = _kept(found)

    def begin(self, by_hand: RunDescription | None = None) -> None:
        """Write both files.

        Args:
            by_hand: what is known of a chain that no pipeline describes.

        Raises:
            OSError: they cannot be written.
        """
        if self._begun or os.getpid() != self._owner:
            return
        self._handled = id(sys.exception())
        if self._is_foreign:
            self._begun = self._ended = True
            warnings.warn(
                f"monitor: {relative_to_cwd(self.folder / FACTS)} is not a file of vecwrap, so it "
                "stays as it is, and nothing records how this run ends; give the run a folder of "
                "its own",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        if self.describe is None:
            described = by_hand
        else:
            described = self.describe()
        assert described is not None
        self.facts = self._facts_of(described)
        self._write_pipeline(described.yaml)
        self._write(self.folder / FACTS)
        self._begun = True

    def update(self, **counts: float) -> None:
        """Write the counts of a run that goes on, as `end` does."""
        if self.is_running and not self._is_foreign and os.getpid() == self._owner:
            self._rewrite(counts)

    def end(self, how: str, **counts: float) -> None:
        """Write how the run ended, and its counts; a later call corrects an earlier one.

        A disk that is full causes a warning, and ends nothing.

        Args:
            how: ``"finished"``, or in words.
            **counts: ``steps``, ``episodes``, ``seconds`` and ``restarts`` of this sitting.
        """
        if not self._begun or self._is_foreign or os.getpid() != self._owner:
            return
        self._ended = True
        self.facts |= {"ended": now(), "end": how}
        self._rewrite(counts)

    @property
    def is_running(self) -> bool:
        return self._begun and not self._ended

    def end_status(self) -> str:
        """Return how the run ends if closed now: by the exception being handled, or finished.

        An exception that was being handled when the run began is not its own.
        """
        error = sys.exception()
        if error is None or id(error) == self._handled:
            return FINISHED
        return end_status_of(error)

    # -- parts -------------------------------------------------------------------------------------

    def _facts_of(self, described: RunDescription) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "id": secrets.token_hex(4),
            "pipeline": described.pipeline,
            "hash_version": described.hash_version,
            "seed": described.seed,
        }
        facts |= self.facts  # what a command knows
        if self.config is not None:
            facts["config"] = dict(self.config)
        if described.yaml is None:
            facts |= {"settings": dict(described.settings), "missing": list(described.missing)}
        facts |= {
            "versions": library_versions(described.modules),
            "machine": machine(),
            "started": now(),
            "ended": None,
            "end": RUNNING,
        }
        if self._earlier:
            facts |= {
                "started": self._earlier[0]["started"],
                "earlier": self._earlier,
                "resumed": facts["started"],
            }
        return facts

    def _write_pipeline(self, text: str | None) -> None:
        """Write ``pipeline.yaml``, unless a file exists that is the user's and not a run's."""
        path = self.folder / PIPELINE
        is_ours = self._kept is not None and PIPELINE not in self._kept
        if path.exists() and not is_ours:
            self.facts["kept"] = [PIPELINE]
        elif text is not None:
            write_atomically(path, lambda file: file.write(text.encode()))

    def _rewrite(self, counts: Mapping[str, float]) -> None:
        """Rewrite ``run.json`` where it is now, unless it is gone or another run continues it."""
        whole = {name: value + _known(self._earlier, name) for name, value in counts.items()}
        self.facts |= whole
        if whole.get("seconds"):
            self.facts["rate"] = round(whole["steps"] / whole["seconds"], 1)
        candidates = [self.folder / FACTS, *sorted(self.folder.glob(f"{FACTS}.*"))]
        ours = [path for path in candidates if _facts_of_a_run(path).get("id") == self.facts["id"]]
        try:
            for path in ours[:1]:
                self._write(path)
        except OSError as error:
            warnings.warn(
                (
                    f"monitor: {self.folder / FACTS} cannot be written ({error}), so it does not "
                    "say how the run went"
                ),
                RuntimeWarning,
                stacklevel=1,  # one warning, wherever it is called from
            )

    def _write(self, path: Path) -> None:
        text = json.dumps(self.facts, indent=2) + "\n"
        write_atomically(path, lambda file: file.write(text.encode()))


def end_status_of(error: BaseException) -> str:
    """How a run ended that an exception ended: failed, interrupted, or as it was meant to."""
    if isinstance(error, KeyboardInterrupt) or is_raised_by_handler(error):
        return INTERRUPTED
    if isinstance(error, GeneratorExit) or (isinstance(error, SystemExit) and not error.code):
        return FINISHED
    if isinstance(error, (Exception, SystemExit)):
        return f"failed: {end_text(error)}"
    return f"{INTERRUPTED}: {type(error).__name__}"  # a task that was cancelled


def status_at_exit() -> str:
    """Return how a run ended that was never closed: by the program's last exception, if known."""
    error = getattr(sys, "last_value", None)
    # There, it may be of any line.
    if error is None or hasattr(sys, "ps1") or sys.flags.interactive:
        return WITHOUT_CLOSE
    return end_status_of(error)


def end_text(error: BaseException) -> str:
    """An exception's message; for one that is not vecwrap's, with its kind."""
    text = truncate(text_of(error), 2_000)
    if isinstance(error, VecwrapError):
        return text
    return f"{type(error).__name__}: {text}"


def read_facts(path: Path) -> dict[str, Any]:
    """Read a ``run.json``; empty if there is none, SpecError if it is something else.

    Links are not followed.
    """
    if not os.path.lexists(path):
        return {}
    try:
        facts = json.loads(read_bytes(path, _MAX_BYTES, follow=False))
    except OSError as error:
        raise SpecError(
            f"{path}: cannot be read ({error.strerror}). Is it the right file?"
        ) from None
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path}: this is not JSON: {error}.") from None
    versions = None
    if isinstance(facts, dict):
        versions = facts.get("versions", {})
    if not isinstance(versions, dict) or len(versions) > _MAX_VERSIONS:
        raise SpecError(
            f"{path}: expected what `vecwrap run` writes, a mapping with the key versions."
        )
    return dict(facts)


def _facts_of_a_run(path: Path) -> dict[str, Any]:
    """What a run wrote into ``run.json``; empty if there is none, or if it is another program's."""
    try:
        facts = read_facts(path)
    except SpecError:
        return {}
    if "versions" not in facts or "started" not in facts:
        return {}
    return facts


def move_aside(folder: Path) -> None:
    """Rename the files of an earlier run, overwriting nothing: all of them get the same number.

    ``pipeline.yaml`` and ``stats.npz`` belong to a run only if its ``run.json`` is there, too.
    """
    names = [path.name for path in sorted(folder.iterdir()) if _MONITOR_FILE.fullmatch(path.name)]
    found = _facts_of_a_run(folder / FACTS)
    if found:
        of_a_run = (FACTS, PIPELINE, STATISTICS)
        names += [
            name for name in of_a_run if (folder / name).exists() and name not in _kept(found)
        ]
    numbers = itertools.count(1)
    asides = next(
        filter(_take, ([folder / f"{name}.{number}" for name in names] for number in numbers))
    )
    for name, aside in zip(names, asides, strict=True):
        try:
            (folder / name).replace(aside)
        except FileNotFoundError:  # another process was quicker
            aside.unlink()


def _take(paths: Sequence[Path]) -> bool:
    """Create these files to reserve their names, or return False if one of them exists."""
    taken = []
    try:
        for path in paths:
            path.open("xb").close()
            taken.append(path)
    except FileExistsError:
        for path in taken:
            path.unlink()
        return False
    return True


def _kept(found: Mapping[str, Any]) -> list[Any]:
    """The files that a run found in its folder and left alone."""
    kept = found.get("kept")
    if isinstance(kept, list):
        return kept
    return []


def _sessions(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The sittings of a run so far, oldest first, each with its own counts."""
    earlier = [
        dict(one) for one in found.get("earlier", ()) if isinstance(one, dict) and "started" in one
    ]
    last = {
        "started": found.get("resumed", found["started"]),
        "ended": found.get("ended"),
        "end": found.get("end"),
    }
    if last["end"] in (None, RUNNING):
        last["end"] = "killed, or still running when the run was resumed"
    known = {name: found[name] for name in _COUNTS if isinstance(found.get(name), (int, float))}
    return [*earlier, last | {name: value - _known(earlier, name) for name, value in known.items()}]


def _known(earlier: Iterable[Mapping[str, Any]], name: str) -> float:
    values = [one.get(name) for one in earlier]
    return sum(value for value in values if isinstance(value, (int, float)))


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@functools.cache
def machine() -> dict[str, Any]:
    return {"name": platform.node(), "system": platform.platform(), "cpus": os.cpu_count()}


def library_versions(modules: Iterable[str] = ()) -> dict[str, str]:
    """Return the versions of Python, vecwrap, NumPy, Gymnasium and the modules' distributions."""
    tops = {"gymnasium", "numpy", "cv2", *(module.partition(".")[0] for module in modules)} - {
        "vecwrap",
        "",
    }
    found = {name: version for top in tops for name, version in _distributions(top)}
    ours = sys.modules["vecwrap"]  # not imported by name: it leads to every floor
    return {
        "python": platform.python_version(),
        "vecwrap": ours.__version__,
        **dict(sorted(found.items())),
    }


@functools.cache
def _distributions(module: str) -> tuple[tuple[str, str], ...]:
    """Return a module's distributions and their versions; none for the program's own modules."""
    found = []
    for name in _DISTRIBUTIONS.get(module, (module,)):
        try:
            distribution = metadata.distribution(name)
        except (metadata.PackageNotFoundError, ValueError):
            continue
        found.append((distribution.metadata["Name"], distribution.version))
    if found:
        return tuple(found)
    path = getattr(sys.modules.get(module), "__file__", None)
    if (
        module in sys.stdlib_module_names
        or module == "__main__"
        or (path and "-packages" not in path)
    ):
        return ()
    owners = _owners().get(module, ())  # takes half a second, so it comes last
    return tuple((name, metadata.version(name)) for name in sorted(set(owners)))


@functools.cache
def _owners() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()
