"""How the commands print for machines."""

import json
from typing import Any

from rich.console import Console

__all__ = ["print_json"]


def print_json(data: Any, console: Console) -> None:
    """Print plain data as JSON; in colours on a terminal."""
    text = json.dumps(data, indent=2, allow_nan=False)
    if console.is_terminal:
        console.print_json(text)
    else:
        print(text)  # noqa: T201
