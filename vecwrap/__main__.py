"""``python -m vecwrap`` is the command ``vecwrap``."""

import sys

from vecwrap.cli import main

if __name__ == "__main__":
    sys.exit(main())
