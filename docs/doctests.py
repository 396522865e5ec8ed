"""Brings our docstrings into the form that Griffe expects, which reads them for the site: an
extension of it.
"""

import re
from typing import Any

from griffe import Extension, Object

_SHARED = re.compile(r"^( +)(\w+(?:, \w+)+): (.*(?:\n\1 +.*)*)", re.MULTILINE)
_EXAMPLE = re.compile(r"^( *)>>> .*(?:\n *\S.*)*", re.MULTILINE)


def fenced(text: str) -> str:
    """Put a fence around each example; it ends at an empty line, as doctest sees it.

    >>> fenced(">>> 1 + 1").split()
    ['```pycon', '>>>', '1', '+', '1', '```']
    """
    return _EXAMPLE.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", text)


def by_themselves(text: str) -> str:
    """Give each name an entry, where several share one; Griffe would take the second name for the
    type of the first.

    >>> by_themselves("    low, high: the bounds.").splitlines()
    ['    low: the bounds.', '    high: the bounds.']
    """
    return _SHARED.sub(
        lambda found: "\n".join(f"{found[1]}{name}: {found[3]}" for name in found[2].split(", ")),
        text,
    )


class Doctests(Extension):
    """Fences the examples of every docstring that is read, and takes entries for several names
    apart.
    """

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change one docstring."""
        if obj.docstring is not None and "```pycon" not in obj.docstring.value:
            obj.docstring.value = fenced(by_themselves(obj.docstring.value))
