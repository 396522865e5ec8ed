"""A run's folder as a page shows it: read from its files, and again when they change.

Nothing is run.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from vecwrap.env.untrusted import open_regular
from vecwrap.errors import PlotError, VecwrapError, one_line, printable, printable_lines, truncate
from vecwrap.live.leaderboard import facts_of, leaderboard, results_of
from vecwrap.live.listing import MAX_BYTES, MAX_FILES, PICTURE, POOL, list_run
from vecwrap.live.page_source import duration_text, reload_hint, score_text
from vecwrap.selfplay.pool_files import PoolFolder
from vecwrap.selfplay.results import Results
from vecwrap.tools.compare import Record, read_record
from vecwrap.tools.runs import PATTERN, RunGroup, read_runs
from vecwrap.wrappers.recording.run_record import FACTS, PIPELINE

MAX_TEXT = 200_000  # bytes of a text file
READ_PAUSE_FACTOR = 10  # reading files that grow may take a tenth of the time
QUIET_SECONDS = (
    60.0  # seconds without a change, after which a run without an end may have been killed
)


def _writes(folder: Path) -> str:
    """Say which command would write a run into a folder."""
    return f"`vecwrap run PIPELINE --out {shlex.quote(str(folder))}` writes one"


class RunFolder:
    """A folder of a run, or of several; PlotError if there is nothing in it that can be shown."""

    ended = False  # another run may write into it

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not folder.is_dir():
            expected = f"{folder}: expected the folder of a run, got"
            if folder.exists():
                raise PlotError(f"{expected} a file; give the folder that holds it")
            raise PlotError(f"{expected} none. {_writes(folder)}")
        self._listing = list_run(folder)
        if not os.path.lexists(folder / PIPELINE) and not self._listing.games:
            raise PlotError(
                f"{folder}: expected the folder of a run, with monitor files ({PATTERN}) or "
                f"{PIPELINE}, got neither. {_writes(folder)}"
            )
        self._inside = folder.resolve()
        self._runs: list[RunGroup] = []
        self._record: Record | None = None
        self._leaderboard: dict[str, Any] | None = None
        self._signature: list[tuple[Path, int, int]] = []
        self._is_read = False  # since the folder could be listed
        self._trouble = ""
        self._next = 0.0
        self._readings = (
            self._read_record,
            self._read_runs,
            self._read_results,
            self._check_shown_files,
        )
        self.version = 0

    def state(self, row: int | None) -> dict[str, Any]:
        self._read()
        seeds = [seed for run in self._runs for seed in run.runs]
        record = self._record
        ids = {seed.env_id for seed in seeds if seed.env_id}
        steps = sum(seed.total_steps for seed in seeds)
        seconds = 60 * sum(float(seed.minutes[-1]) for seed in seeds if len(seed.minutes))
        rate = restarts = "–"
        if record:
            steps = record.steps or steps
            seconds = record.seconds or seconds
            if record.restarts is not None:
                restarts = f"{record.restarts:,}"
        if seconds and steps:
            rate = f"{steps / seconds:,.0f}"
        return {
            "title": truncate(printable(self._inside.name), 80),
            "env": truncate(printable(", ".join(sorted(ids)[:3])), 120),
            "live": False,
            "status": self._status(),
            "trouble": self._trouble,
            "again": reload_hint(self.folder),
            "version": self.version,
            "games": min((len(seed.scores) for seed in seeds), default=0),
            "figures": [
                ["agent steps", f"{steps:,}"],
                ["steps/s", rate],
                ["episodes", f"{sum(len(seed.scores) for seed in seeds):,}"],
                [
                    "score, last 100",
                    score_text([score for seed in seeds for score in seed.scores[-100:]]),
                ],
                ["restarts", restarts],
                ["time", duration_text(seconds)],
            ],
            "rows": [],
            "frames": False,
        }

    def about(self) -> dict[str, Any]:
        self._read()
        versions = []
        if self._record:
            for name, text in self._record.versions.items():
                versions.append([truncate(printable(name), 60), truncate(printable(text), 60)])
        return {
            "plan": self._text(PIPELINE) or self._settings(),
            "leaderboard": self._leaderboard,
            "versions": versions,
            "picture": PICTURE if self.file(PICTURE) else None,
            "videos": self._videos(),
        }

    def runs(self) -> list[RunGroup]:
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
        return (
            "No episode is recorded from a run's files; its own page has the button while it runs."
        )

    def watched(self, viewers: int) -> None:
        """Nothing depends on it."""

    def done(self) -> None:
        """Nothing was begun."""

    # -- parts -------------------------------------------------------------------------------------

    def _within(self, path: Path) -> Path | None:
        """The path if it is a file within the folder, links resolved."""
        whole = Path(os.path.realpath(path))  # which raises nothing at links in a circle
        return whole if whole.is_relative_to(self._inside) and _is_file(whole) else None

    def _videos(self) -> list[str]:
        found = [path for path in self._listing.videos if self._within(path)]
        return [str(path.relative_to(self.folder)) for path in found]

    def _text(self, name: str) -> str:
        path = self._within(self.folder / name)
        if path is None:
            return ""
        try:
            with open_regular(path) as file:
                return printable_lines(file.read(MAX_TEXT).decode(errors="replace"))
        except OSError as error:
            return f"{name}: cannot be read ({error.strerror})"

    def _settings(self) -> str:
        """What a run that has no pipeline file was of, if a reading says it."""
        if not self._record:
            return ""
        settings = self._record.settings.items()
        return printable_lines("\n".join(f"{key}: {value}" for key, value in settings))

    def _read(self) -> None:
        """Read again what has changed; the last good reading stays if that fails."""
        began = time.monotonic()
        if began < self._next:
            return
        if trouble := self._attempt(self._list):
            self._trouble = _one_line([trouble])
            self._is_read = False
        elif (found := self._listing.signature()) != self._signature or not self._is_read:
            self._signature = found
            self._is_read = True
            self.version = self.version + 1
            troubles = [self._attempt(read) for read in self._readings]
            self._trouble = _one_line([*self._listing.troubles, *troubles])
        self._next = began + READ_PAUSE_FACTOR * (time.monotonic() - began)

    def _attempt(self, read: Callable[[], None]) -> str:
        try:
            read()
        except VecwrapError as error:
            return str(error)
        except OSError as error:
            return f"{error.filename}: cannot be read ({error.strerror})"
        except Exception as error:  # a stranger's files may hold anything
            return f"{self.folder}: cannot be read ({one_line(error)})"
        return ""

    def _list(self) -> None:
        self._listing = list_run(self.folder)

    def _read_record(self) -> None:
        self._check(self.folder / name for name in (FACTS, PIPELINE))
        self._record = read_record(self.folder)

    def _read_runs(self) -> None:
        games = self._listing.games
        self._check(games)
        if games and self._listing.whole:
            games = [self.folder]
        if games:
            self._runs = read_runs(games)

    def _read_results(self) -> None:
        """Those of a pool within the folder, or else those beside the games."""
        pools = self._listing.pools
        if not pools:
            self._leaderboard = leaderboard(results_of(self._runs))
            return
        self._check([*(pool / POOL for pool in pools), *self._listing.results])
        folders = [PoolFolder(pool) for pool in pools]
        results = Results(row for pool in folders for row in pool.tables(without=""))
        self._leaderboard = leaderboard(
            results, {name: facts for pool in folders for name, facts in facts_of(pool).items()}
        )

    def _check_shown_files(self) -> None:
        """What is not read here, but shown or played."""
        self._refuse_outside([self.folder / PICTURE, *self._listing.videos])

    def _check(self, paths: Iterable[Path]) -> None:
        """Refuse files that cannot be read, or would take too long."""
        present = list(paths)
        if len(present) > MAX_FILES:
            raise PlotError(
                f"{self.folder}: expected at most {MAX_FILES:,} files such as {present[-1].name}, "
                "got more; give the folder of one run"
            )
        present = [path for path in present if os.path.lexists(path)]
        self._refuse_outside(present)
        size = sum(path.stat().st_size for path in present)
        if size > MAX_BYTES:
            raise PlotError(
                f"{present[0]}: expected at most {MAX_BYTES // 1_000_000} MB to read, got "
                f"{size // 1_000_000}; `vecwrap plot` draws curves of longer runs"
            )

    def _refuse_outside(self, paths: Iterable[Path]) -> None:
        for path in paths:
            if os.path.lexists(path) and self._within(path) is None:
                got = "a link out of it" if _is_file(path) else "none that can be read"
                raise PlotError(f"{path}: expected a file within the run's folder, got {got}")

    def _status(self) -> str:
        record = self._record
        if record is None:
            return ""
        unknown = not os.path.lexists(self.folder / FACTS)
        if unknown or record.end.startswith("has not ended"):
            latest = max((changed for *_, changed in self._signature), default=0) / 1e9
            silent = time.time() - latest
            if silent < QUIET_SECONDS:
                return "running"
            return f"last news {duration_text(silent)} ago{'' if unknown else ': killed, or slow'}"
        return truncate(printable(record.end), 300) or "finished"


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # no permission to look
        return False


def _one_line(troubles: Iterable[str]) -> str:
    return truncate(printable("; ".join(dict.fromkeys(filter(None, troubles)))), 1_000)
