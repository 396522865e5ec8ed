"""The entry point of ``vecwrap``, which reports a missing terminal library in one message.

It stays thin, so that a user of the command sees no traceback in that case.
"""

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    try:
        from vecwrap.cli.app import run_app

        if arguments is None:
            arguments = sys.argv[1:]
        return run_app(list(arguments))
    except KeyboardInterrupt:  # everything that was open has been closed by now
        print("interrupted", file=sys.stderr)  # noqa: T201
        return 130
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        from vecwrap.errors import install_command

        command = install_command("cli")
        print(f"vecwrap: the commands need {error.name}: {command}", file=sys.stderr)  # noqa: T201
        return 2


if __name__ == "__main__":
    sys.exit(main())
