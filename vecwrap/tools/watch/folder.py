"""A run's folder as a page shows it: from its files alone, which are read again when they change; nothing is run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from vecwrap.env.saving import open_regular
from vecwrap.errors import PlotError, VecwrapError, cut, printable, printable_lines
from vecwrap.pipeline.run_folder import VIDEOS
from vecwrap.tools.compare import Record, read_record
from vecwrap.tools.plot import PATTERN, Run, read_runs
from vecwrap.tools.watch.source import score_in_words, time_in_words
from vecwrap.tools.watch.standing import results_of, standing
from vecwrap.wrappers.recording.run_record import FACTS, LOG, PIPELINE, PROGRESS
from vecwrap.wrappers.selfplay.pool_files import PoolFolder
from vecwrap.wrappers.selfplay.results import Results

PICTURE = "tiles.png"
GAMES = (PATTERN, f"*/{PATTERN}")
POOLS = ("results/*.json", "*/results/*.json")
MOST_TEXT = 200_000  # bytes of a text file
MOST_VIDEOS = 24
READ_SHARE = 10  # reading files that grow may take a tenth of the time
QUIET = 60.0  # seconds without a change, after which a run without an end may have been killed


class RunFolder:
    """A folder of a run, or of several; PlotError if there is nothing in it that can be shown."""

    ended = False  # another run may write into it

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not folder.is_dir():
            raise PlotError(f"{folder}: expected the folder of a run, got {'a file' if folder.exists() else 'none'}")
        if not (folder / PIPELINE).exists() and not any(any(folder.glob(name)) for name in GAMES):
            raise PlotError(
                f"{folder}: expected the folder of a run, with monitor files ({PATTERN}) or {PIPELINE}, got neither"
            )
        self._inside = folder.resolve()
        self._runs: list[Run] = []
        self._record: Record | None = None
        self._standing: dict[str, Any] | None = None
        self._signature: list[tuple[Path, int, int]] = []
        self._trouble = ""
        self._next = 0.0
        self.version = 0

    def state(self, row: int | None) -> dict[str, Any]:
        self._read()
        seeds = [seed for run in self._runs for seed in run.seeds]
        record, ids = self._record, {seed.env_id for seed in seeds if seed.env_id}
        steps = record.steps if record and record.steps else sum(seed.total_steps for seed in seeds)
        seconds = (
            record.seconds
            if record and record.seconds
            else 60 * sum(float(seed.minutes[-1]) for seed in seeds if len(seed.minutes))
        )
        return {
            "title": cut(printable(self._inside.name), 80),
            "env": cut(printable(", ".join(sorted(ids)[:3])), 120),
            "live": False,
            "status": self._status(),
            "trouble": self._trouble,
            "version": self.version,
            "games": min((len(seed.scores) for seed in seeds), default=0),
            "figures": [
                ["agent steps", f"{steps:,}"],
                ["steps/s", f"{steps / seconds:,.0f}" if seconds and steps else "–"],
                ["episodes", f"{sum(len(seed.scores) for seed in seeds):,}"],
                ["score, last 100", score_in_words([score for seed in seeds for score in seed.scores[-100:]])],
                ["restarts", f"{record.restarts:,}" if record and record.restarts is not None else "–"],
                ["time", time_in_words(seconds)],
            ],
            "rows": [],
            "frames": False,
        }

    def about(self) -> dict[str, Any]:
        self._read()
        record = self._record
        return {
            "plan": self._text(PIPELINE) or self._settings(),
            "standing": self._standing,
            "versions": [[cut(printable(name), 60), cut(printable(text), 60)] for name, text in record.versions.items()]
            if record
            else [],
            "log": self._text(LOG)[-20_000:],
            "picture": PICTURE if self.file(PICTURE) else None,
            "videos": self._videos(),
        }

    def runs(self) -> list[Run]:
        self._read()
        return self._runs

    def frame(self, row: int | None) -> bytes | None:
        """Return None: a folder has no frames, only its last picture."""
        return None

    def file(self, name: str) -> Path | None:
        if name != PICTURE and name not in self._videos():
            return None
        return self._within(self.folder / name)

    def record(self, row: int | None) -> str:
        return "No episode is recorded from a run's files; its own page has the button while it runs."

    def watched(self, viewers: int) -> None:
        """Nothing depends on it."""

    def done(self) -> None:
        """Nothing was begun."""

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _within(self, path: Path) -> Path | None:
        """The path if it is a file within the folder, links resolved."""
        whole = path.resolve()
        return whole if whole.is_relative_to(self._inside) and whole.is_file() else None

    def _videos(self) -> list[str]:
        patterns = f"{VIDEOS}/*.mp4", f"*/{VIDEOS}/*.mp4"  # of the run, and of its seeds
        found = [path for pattern in patterns for path in sorted(self.folder.glob(pattern)) if self._within(path)]
        return [str(path.relative_to(self.folder)) for path in found[-MOST_VIDEOS:]]

    def _text(self, name: str) -> str:
        path = self._within(self.folder / name)
        if path is None:
            return ""
        with open_regular(path) as file:
            return printable_lines(file.read(MOST_TEXT).decode(errors="replace"))

    def _settings(self) -> str:
        """What a run that has no pipeline file was of, if a reading says it."""
        settings = self._record.settings if self._record else {}
        return printable_lines("\n".join(f"{key}: {value}" for key, value in settings.items()))

    def _files(self) -> Iterator[Path]:
        for pattern in (*GAMES, *POOLS, FACTS, PROGRESS, PIPELINE, LOG, PICTURE):
            yield from sorted(self.folder.glob(pattern))

    def _read(self) -> None:
        """Read again what has changed; the last good reading stays if that fails."""
        found = []
        for path in self._files():
            with contextlib.suppress(OSError):  # it was there a moment ago
                status = path.stat()
                found.append((path, status.st_size, status.st_mtime_ns))
        began = time.monotonic()
        if found == self._signature or began < self._next:
            return
        self._signature, self.version = found, self.version + 1
        reads = (self._read_record, self._read_runs, self._read_results)
        troubles = [self._attempt(read) for read in reads]
        self._trouble = cut(printable_lines("\n".join(filter(None, troubles))), 1_000)
        self._next = began + READ_SHARE * (time.monotonic() - began)

    def _attempt(self, read: Callable[[], None]) -> str:
        try:
            read()
        except (VecwrapError, OSError) as error:
            return str(error)
        return ""

    def _read_record(self) -> None:
        self._refuse_outside(FACTS, PROGRESS, PIPELINE)
        self._record = read_record(self.folder)

    def _read_runs(self) -> None:
        self._refuse_outside(*GAMES)
        if any(True for name in GAMES for _ in self.folder.glob(name)):
            self._runs = read_runs([self.folder])

    def _read_results(self) -> None:
        """Those of a pool within the folder, or else those beside the games."""
        pools = [path.parent for pattern in ("pool.json", "*/pool.json") for path in sorted(self.folder.glob(pattern))]
        if not pools:
            self._standing = standing(results_of(self._runs))
            return
        inside = [str(pool.relative_to(self.folder)) for pool in pools]
        self._refuse_outside(*(f"{name}/{file}" for name in inside for file in ("pool.json", "results/*.json")))
        self._standing = standing(Results(row for pool in pools for row in PoolFolder(pool).tables(without="")))

    def _refuse_outside(self, *patterns: str) -> None:
        for path in (path for pattern in patterns for path in self.folder.glob(pattern)):
            if self._within(path) is None:
                raise PlotError(f"{path}: expected a file within the run's folder, got a link out of it")

    def _status(self) -> str:
        record = self._record
        if record is None:
            return ""
        unknown = not (self.folder / FACTS).exists()
        if unknown or record.end.startswith("has not ended"):
            latest = max((changed for *_, changed in self._signature), default=0) / 1e9
            silent = time.time() - latest
            if silent < QUIET:
                return "running"
            return f"last news {time_in_words(silent)} ago{'' if unknown else ': killed, or slow'}"
        return cut(printable(record.end), 300) or "finished"
