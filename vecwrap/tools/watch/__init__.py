"""The page that shows a run in a browser: of an environment in this program, or of a run's folder (docs/seeing.md)."""

from vecwrap.tools.watch.folder import RunFolder
from vecwrap.tools.watch.server import PORT, Page, serve

__all__ = ["PORT", "Page", "RunFolder", "serve"]
