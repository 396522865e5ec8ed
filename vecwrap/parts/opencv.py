"""Imports OpenCV when a layer needs it, with a remedy if that fails."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from vecwrap.errors import PlanError

__all__ = ["load_cv2"]


def load_cv2(layer: str) -> Any:
    """Import OpenCV, which is slow and not always installed, on first use.

    Args:
        layer: the layer that needs it, for the error.

    Raises:
        PlanError: it cannot be imported; names the missing packages.
    """
    try:
        return import_module("cv2")
    except ImportError as error:
        if any(library in str(error) for library in ("libGL", "libgthread", "libglib")):
            remedy = (
                "a system library is missing. On Debian and Ubuntu: apt-get install libgl1 libglib2.0-0. Or take the "
                "wheel that needs neither: pip uninstall opencv-python && pip install opencv-python-headless"
            )
        else:
            remedy = "pip install opencv-python (on a machine without a display: opencv-python-headless)"
        raise PlanError(f"{layer} changes images with OpenCV, but `import cv2` failed ({error}): {remedy}") from error
