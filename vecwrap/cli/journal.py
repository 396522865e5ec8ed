"""Writes a run's folder during the run: each piece immediately, so that a kill loses at most the last one."""

import contextlib
import io
import shlex
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from vecwrap.cli.output import Terminal
from vecwrap.env import saving as checkpoint
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import SpecError, paths_looked_at
from vecwrap.tools.rollout import Tally
from vecwrap.wrappers.recording.run_files import GrowingFile, csv_line
from vecwrap.wrappers.recording.run_record import FACTS, LOG, PIPELINE, PROGRESS, STATISTICS, RunRecord

COLUMNS = ("time", "steps", "steps_per_second", "episodes", "score_mean", "score_std", "restarts")


class Journal:
    """The command's own files in a run folder, which is created; the wrappers write theirs.

    A disk that fills up later causes a warning, once per file, and never ends the run.
    """

    def __init__(self, folder: Path, record: RunRecord) -> None:
        refuse_taken(folder)
        self.folder = folder
        self._failed: set[str] = set()
        self._before: tuple[float, int] | None = None  # seconds and steps at the last row
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._log = GrowingFile(folder / LOG, new=True)  # if two runs start at once, one is refused
            record.prepare()
            record.begin()  # before the first step
            self._progress = GrowingFile(folder / PROGRESS, new=True)
            self._progress.append(csv_line(COLUMNS))
        except OSError as error:
            if isinstance(error, FileExistsError) and folder.is_dir():
                refuse_taken(folder)
            raise SpecError(
                f"--out {folder}: expected a folder that files can be written to: {error}; give another"
            ) from error

    def say(self, *what: Any) -> None:
        """Write the terminal's output to the log, without colours."""
        text = io.StringIO()
        Terminal(file=text, color_system=None, width=120, soft_wrap=True).print(*what)
        self._try(LOG, lambda: self._log.append(text.getvalue()))

    @contextlib.contextmanager
    def warnings_too(self) -> Iterator[None]:
        """Show warnings as usual, and write them to the log too."""
        with warnings.catch_warnings():
            show = warnings.showwarning

            def note(message: Warning | str, category: type[Warning], *where: Any, **others: Any) -> None:
                show(message, category, *where, **others)
                self.say(Text(f"{category.__name__}: {message}"))

            warnings.showwarning = note
            yield

    def note(self, env: VecEnv, tally: Tally, *, torn: bool = False) -> None:
        """Write a row of progress, and the current statistics; nothing if nothing happened meanwhile.

        If a wrapper may have been interrupted during a step (``torn``), the last statistics are kept.
        """
        now = tally.seconds, tally.steps
        if now == self._before:
            return
        seconds, steps = self._before or (0.0, 0)
        rate = (tally.steps - steps) / (tally.seconds - seconds) if tally.seconds > seconds else 0.0
        self._before = now
        score = ["", ""] if tally.recent_score is None else [round(value, 6) for value in tally.recent_score]
        row = [round(tally.seconds, 3), tally.steps, round(rate, 1), tally.episodes, *score, tally.restarts]
        self._try(PROGRESS, lambda: self._progress.append(csv_line(row)))
        state = checkpoint.statistics_dict(env)
        if any(state["statistics"]) and not torn:
            self._try(STATISTICS, lambda: checkpoint.write_state(self.folder / STATISTICS, state))

    def close(self) -> None:
        self._log.close()
        self._progress.close()

    def _try(self, name: str, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            if name not in self._failed:
                self._failed.add(name)
                warnings.warn(
                    f"--out: {self.folder / name} cannot be written ({error}); the run goes on; what was written stays",
                    RuntimeWarning,
                    stacklevel=2,
                )


@paths_looked_at(SpecError)
def refuse_taken(
    folder: Path,
    remedy: str = "Give another folder, or delete this one.",
    names: Sequence[str] = (PIPELINE, FACTS, PROGRESS, LOG, STATISTICS),
) -> None:
    """Refuse a folder that already holds a run: its files would be mixed with, or moved aside by, those of the next."""
    files = [name for name in names if (folder / name).exists()]
    if files:
        raise SpecError(
            f"{folder}: there is a run already ({', '.join(files)}), and it stays as it is. {remedy} To go on with "
            f"its statistics: vecwrap load {shlex.quote(str(folder))} --steps 20000 --out ANOTHER."
        )
