"""The page that shows a run in a browser: a live environment, or a run's folder.

See docs/seeing.md.
"""

from vecwrap.live.folder import RunFolder
from vecwrap.live.live import page_of
from vecwrap.live.notebook import watch
from vecwrap.live.server import Page, find_page, serve, why_no_page

__all__ = ["Page", "RunFolder", "find_page", "page_of", "serve", "watch", "why_no_page"]
