"""``vecwrap.watch``: an environment's page, or a refreshed picture in a notebook.

A notebook shows the picture where the browser cannot reach the page, or its packages are missing.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from importlib import import_module
from typing import Any

from vecwrap.env.picture import in_notebook
from vecwrap.env.refusals import describe_env
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import ArgumentError, PlanError
from vecwrap.live.live import Live, page_of
from vecwrap.live.observer import FRAME_INTERVAL_SECONDS
from vecwrap.live.server import LOOPBACK, why_no_page

# by the variable that says that the kernel runs there, behind a server that hides its ports
_HOSTED = {"COLAB_RELEASE_TAG": "Colab", "JUPYTERHUB_SERVICE_PREFIX": "JupyterHub"}
# by the chain's core
_shown: weakref.WeakKeyDictionary[Any, weakref.ref[Live]] = weakref.WeakKeyDictionary()


def watch(env: VecEnv, port: int | None = None, host: str = LOOPBACK) -> str:
    """Show an environment in the browser while it runs; needs ``vecwrap[live]``.

    Args:
        env: the environment, with all its wrappers; it is not kept alive, and its page ends with
            it.
        port: None: 8642, or the next one that is free.
        host: what to listen on; any other than the default lets other machines in, unencrypted.

    Returns:
        The address of the page, the same one when asked again. As the value of a notebook's cell it
            is the page itself. On Colab and JupyterHub, where a browser does not reach it unless
            ``port`` is forwarded, and without the packages of ``vecwrap[live]``, a notebook gets a
            picture that is renewed instead.

    Raises:
        ArgumentError: it is not a vecwrap environment.
        PlanError: a package is missing, the port is taken, or a notebook's picture has no frames.

    Example:
        >>> import vecwrap
        >>> settings = {"render_mode": "rgb_array", "backend": "dummy"}
        >>> env = vecwrap.build("CartPole-v1", n=4, wrappers=["monitor"], **settings)
        >>> vecwrap.watch(env)  # doctest: +SKIP
        'http://127.0.0.1:8642/fbv7V1HCFvrNfiUpzCYyEA/'
        >>> env.close()
    """
    if not isinstance(env, VecEnv):
        raise ArgumentError(f"watch: env: expected a vecwrap environment, got {describe_env(env)}")
    if in_notebook() and (why := why_no_page() or _why_not_reached(port)):
        _watch_in_cell(env)
        return f"A picture instead of the page: {why}"
    return page_of(env, port, host).address


def _why_not_reached(port: int | None) -> str:
    """Return why a browser does not reach the page, or ``""``; with a port of your own it does."""
    if port is not None:
        return ""
    for variable, name in _HOSTED.items():
        if os.environ.get(variable):
            return (
                f"the kernel runs on {name} ({variable}), whose ports a browser does not reach; if "
                "one is forwarded, name it: vecwrap.watch(env, port=8642)"
            )
    return ""


def _watch_in_cell(env: VecEnv) -> None:
    """Show it until the environment is closed; PlanError if there are no frames."""
    known = _shown.get(env.core)
    live = None
    if known is not None:
        live = known()
    if live is None:  # else the cell was run again
        live = Live(env)
        _shown[env.core] = weakref.ref(live)
    if why := live.state(None).get("why_no_frames"):
        raise PlanError(f"watch: {why}")
    display: Any = import_module("IPython.display")
    handle = display.display(display.HTML("Shown from the next step on."), display_id=True)
    threading.Thread(
        target=_renew, args=(live, handle, display.Image), name="vecwrap: picture", daemon=True
    ).start()


def _renew(live: Live, handle: Any, image: Any) -> None:
    shown = None
    while not live.ended:
        live.watched(1)
        frame = live.frame(None)
        if frame is not None and frame != shown:
            shown = frame
            handle.update(image(data=frame, format="jpeg"))
        time.sleep(FRAME_INTERVAL_SECONDS)
