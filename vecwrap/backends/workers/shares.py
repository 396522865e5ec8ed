"""How sources are shared out among workers."""

from __future__ import annotations

from itertools import pairwise

from vecwrap.backends.workers.cores import usable_cores
from vecwrap.errors import PlanError


def share_out(
    num_sources: int,
    workers: int | None,
    sources_per_worker: int | None,
    parent_share: bool | None = False,
) -> list[range]:
    """Return the sources of each worker, by default one per core: consecutive.

    With ``parent_share`` there is one more share than ``workers``, the parent's.
    """
    if sources_per_worker is not None:
        begins = range(0, num_sources, sources_per_worker)
        return [range(i, min(i + sources_per_worker, num_sources)) for i in begins]
    if workers:
        count = workers + bool(parent_share)
    else:
        count = usable_cores()
    count = min(count, num_sources)
    bounds = [-(-num_sources * k // count) for k in range(count + 1)]
    return [range(start, stop) for start, stop in pairwise(bounds)]


def sources_per_worker(envs_per_worker: int | None, num_rows: int) -> int | None:
    """Return the number of sources per worker, or None if the user has set none.

    ``num_rows`` is the number of rows of each source.
    """
    if envs_per_worker is None:
        return None
    if envs_per_worker % num_rows:
        raise PlanError(
            f"envs_per_worker: expected a multiple of {num_rows}, the rows of an engine, got "
            f"{envs_per_worker}"
        )
    return envs_per_worker // num_rows


def rows_of(sources: range, num_rows: int) -> range:
    """Return the rows of consecutive sources of so many rows each."""
    return range(sources.start * num_rows, sources.stop * num_rows)
