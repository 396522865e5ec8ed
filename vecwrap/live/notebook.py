"""A picture below a notebook's cell that is renewed while an environment runs: for where the page cannot be served."""

from __future__ import annotations

import threading
import time
import weakref
from importlib import import_module
from typing import Any

from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import PlanError
from vecwrap.live.live import FRAMES_EACH, Live

_shown: weakref.WeakKeyDictionary[Any, weakref.ref[Live]] = weakref.WeakKeyDictionary()  # by the chain's core


def watch_in_cell(env: VecEnv) -> None:
    """Show it until the environment is closed; PlanError if there are no frames."""
    known = _shown.get(env.core)
    live = None if known is None else known()
    if live is None:  # else the cell was run again
        live = Live(env)
        _shown[env.core] = weakref.ref(live)
    if why := live.state(None).get("why_no_frames"):
        raise PlanError(f"watch: {why}")
    display: Any = import_module("IPython.display")
    handle = display.display(display.HTML("Shown from the next step on."), display_id=True)
    threading.Thread(target=_renew, args=(live, handle, display.Image), name="vecwrap: picture", daemon=True).start()


def _renew(live: Live, handle: Any, image: Any) -> None:
    shown = None
    while not live.ended:
        live.watched(1)
        frame = live.frame(None)
        if frame is not None and frame != shown:
            shown = frame
            handle.update(image(data=frame, format="jpeg"))
        time.sleep(FRAMES_EACH)
