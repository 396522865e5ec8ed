"""The contents of a run's folder that a page shows, found in bounded time.

The time is bounded whatever else the folder contains.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from vecwrap.tools.runs import PATTERN
from vecwrap.wrappers.recording.run_record import FACTS, PIPELINE, VIDEOS

PICTURE = "tiles.png"
POOL = "pool.json"
RESULTS = "results"
MAX_ENTRIES = 10_000  # that are looked at, those of the folder itself first
MAX_FILES = 1_000  # of a kind that is read
MAX_VIDEOS = 24  # the last ones by name
MAX_BYTES = 200_000_000  # of a kind that is read, in all


@dataclass
class Listing:
    """The files of a run's folder and subfolders, by kind, and the problems of listing them."""

    folder: Path
    games: list[Path] = field(default_factory=list)  # monitor files
    pools: list[Path] = field(default_factory=list)  # folders of pools
    results: list[Path] = field(default_factory=list)  # tables in pools
    videos: list[Path] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    whole: bool = True  # everything was looked at

    def signature(self) -> list[tuple[Path, int, int]]:
        """Return size and modification time of each file that is read; for videos, only names.

        A video is written for a long time.
        """
        pools = (pool / POOL for pool in self.pools)
        read = *self.games[:MAX_FILES], *pools, *self.results[:MAX_FILES], *self.named()
        found = [(path, *_size_and_time(path)) for path in read if os.path.lexists(path)]
        return found + [(path, 0, 0) for path in self.videos]

    def named(self) -> list[Path]:
        return [self.folder / name for name in (FACTS, PIPELINE, PICTURE)]


def list_run(folder: Path) -> Listing:
    """List a run's folder; OSError if it cannot be read."""
    found = Listing(folder)
    left = MAX_ENTRIES

    def inside(place: Path) -> Iterator[os.DirEntry[str]]:
        nonlocal left
        with os.scandir(place) as entries:
            for entry in entries:
                if left == 0:
                    found.whole = False
                    return
                left -= 1
                yield entry

    for place in _sort(found, folder, inside(folder), ""):
        try:
            for inner in _sort(found, place, inside(place), place.name):
                if inner.name in (RESULTS, VIDEOS):
                    _sort(found, inner, inside(inner), inner.name)
        except OSError as error:
            found.troubles.append(f"{error.filename}: cannot be read ({error.strerror})")
    if not found.whole:
        found.troubles.append(
            f"{folder}: more than {MAX_ENTRIES:,} files; not all of them are looked at"
        )
        own = folder / "monitor.csv"
        found.games = []
        if os.path.lexists(own):
            found.games = [own]
    for paths in (found.games, found.pools, found.results, found.videos):
        paths.sort(key=os.fspath)  # quicker than paths are compared
    del found.videos[:-MAX_VIDEOS]
    return found


def _sort(
    found: Listing, place: Path, entries: Iterable[os.DirEntry[str]], name: str
) -> list[Path]:
    """Add the files of one folder, which has this name within the run's; return its subfolders."""
    folders = []
    for entry in entries:
        if _is_folder(entry):
            folders.append(place / entry.name)
        elif fnmatchcase(entry.name, PATTERN):
            found.games.append(place / entry.name)
        elif entry.name == POOL:
            found.pools.append(place)
        elif name == RESULTS and entry.name.endswith(".json"):
            found.results.append(place / entry.name)
        elif name == VIDEOS and entry.name.endswith(".mp4"):
            found.videos.append(place / entry.name)
    return sorted(folders)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in a circle
        return False


def _size_and_time(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:  # a link that leads nowhere, or it was there a moment ago
        return 0, 0
    return status.st_size, status.st_mtime_ns
