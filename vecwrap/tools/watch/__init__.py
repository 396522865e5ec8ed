"""The page that shows a run in a browser: of an environment in this program, or of a run's folder (docs/seeing.md)."""

from vecwrap.tools.watch.folder import RunFolder
from vecwrap.tools.watch.live import page_of
from vecwrap.tools.watch.notebook import watch
from vecwrap.tools.watch.server import Page, find_page, serve, why_no_page

__all__ = ["Page", "RunFolder", "find_page", "page_of", "serve", "watch", "why_no_page"]
