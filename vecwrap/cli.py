"""The command ``vecwrap``: a thin door, so that a missing terminal library is one sentence and not a traceback."""

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: what follows the command's name; None takes the process's own.

    Returns:
        The exit status: 0 good, 1 findings or a failure while running, 2 a call or pipeline that cannot be used, 130
        after Ctrl-C.
    """
    try:
        from vecwrap.commands.app import run_app

        return run_app(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:  # while something is being imported; who holds anything has closed it by now
        return 130
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        print(f'vecwrap: the commands need {error.name}: pip install "vecwrap[cli]"', file=sys.stderr)  # noqa: T201
        return 2


if __name__ == "__main__":
    sys.exit(main())
