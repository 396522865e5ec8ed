"""How far a run is, in words: a share of the whole, and the time that is left."""

import math


def share_text(done: int, total: int | None) -> str:
    """Return a count, with the total and the share if there is one.

    >>> share_text(1544, 60000)
    '1,544 of 60,000 (3 %)'
    >>> share_text(1544, None)
    '1,544'
    """
    if total is None:
        return f"{done:,}"
    return f"{done:,} of {total:,} ({min(done / total, 1):.0%})".replace("%)", " %)")


def seconds_left(seconds: float, *counts: tuple[int, int | None]) -> float | None:
    """Return the seconds until the first total is reached; None if there is nothing to go by.

    Args:
        seconds: how long it has taken so far.
        *counts: of each kind how many are done, and how many there will be, or None for no limit.

    >>> seconds_left(10.0, (100, 400), (3, None))
    30.0
    """
    left = []
    for done, total in counts:
        if total is not None and done:
            left.append(seconds * max(total - done, 0) / done)
    if left:
        return min(left)
    return None


def about(seconds: float) -> str:
    """Return a time in one unit.

    >>> about(7.4), about(340), about(7 * 3600)
    ('about 8 s', 'about 6 min', 'about 7 h')
    """
    if seconds < 90:
        return f"about {math.ceil(seconds)} s"
    if seconds < 90 * 60:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:.0f} h"
