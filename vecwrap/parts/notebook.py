"""Images below a notebook cell."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vecwrap.errors import ArgumentError
from vecwrap.parts.opencv import load_cv2

__all__ = ["display_image", "png"]


def display_image(image: NDArray[np.uint8]) -> None:
    """Show an image, (height, width, 3) uint8, below the cell that runs.

    Raises:
        ArgumentError: this is not a notebook.
    """
    shell: Any = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if getattr(shell, "kernel", None) is None:
        raise ArgumentError(
            "show: expected a Jupyter notebook, whose cell it draws below. Elsewhere: build(..., "
            'render_mode="human") opens a window, env.picture() gives the image as an array'
        )
    display: Any = import_module("IPython.display")
    display.display(display.Image(data=png(image)))


def png(image: NDArray[np.uint8]) -> bytes:
    """Return an image, (height, width, 3) uint8, as the content of a PNG file."""
    _, content = load_cv2("show").imencode(".png", np.ascontiguousarray(image[..., ::-1]))
    return bytes(content)
