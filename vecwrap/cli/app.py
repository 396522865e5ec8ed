"""The ``vecwrap`` application: all commands, and their errors, warnings and exit status."""

import contextlib
import errno
import logging
import os
import sys
import warnings
from importlib import import_module
from pathlib import Path

import typer
from rich.text import Text

import vecwrap
from vecwrap.cli.command import app
from vecwrap.cli.completion import requested_command
from vecwrap.cli.help_pages import UsageError
from vecwrap.cli.output import Terminal, discard_output, escape_what_cannot_be_shown, flush_output
from vecwrap.cli.usage import usage_text
from vecwrap.errors import (
    CheckpointError,
    PlanError,
    PlotError,
    SpecError,
    VecwrapError,
    printable_lines,
    traceback_of,
    truncate,
)

__all__ = ["run_app", "with_commands"]

# The module of each command, in the order of the help. Only that of the command that is asked for
# is imported.
COMMANDS = {
    "run": "run",
    **dict.fromkeys(("explain", "check"), "inspect"),
    "list": "listing",
    "schema": "schema",
    **dict.fromkeys(("time", "tune", "tournament"), "measure"),
    **dict.fromkeys(("plot", "compare", "watch"), "curves"),
}

# What to do instead of a command that is gone.
REMOVED_COMMANDS = {
    "bench": (
        "`vecwrap tune PIPELINE` shows Gymnasium's Sync and Async beside the backends; in a "
        "clone of the repository, `make bench PIPELINE=FILE` compares more libraries"
    ),
    "load": (
        "`vecwrap run FOLDER --steps 20000` runs the run of a folder again, with --eval its "
        "evaluation; `check`, `explain` and `time` take the folder too, and "
        "`vecwrap.load(FOLDER)` builds it in Python"
    ),
}


def with_commands(requested: str | None = None) -> typer.Typer:
    """Return the application with the requested command, or with all if it does not exist."""
    modules = dict.fromkeys(COMMANDS.values())
    if requested in COMMANDS:
        modules = {COMMANDS[requested]: None}
    for module in modules:
        import_module(f"vecwrap.cli.{module}")  # it registers its commands
    app.registered_commands.sort(key=lambda command: list(COMMANDS).index(str(command.name)))
    return app


def run_app(arguments: list[str]) -> int:
    """Run a command; return the exit status."""
    debug = "--debug" in arguments
    if sys.platform == "linux" and not any(
        map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR"))
    ):
        # else pygame's SDL prints an error that is none
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    escape_what_cannot_be_shown()
    here = str(Path.cwd())
    with contextlib.ExitStack() as afterwards:
        # as with `python -m vecwrap`, but last, so that nothing installed is hidden by a file
        if here not in sys.path:
            sys.path.append(here)
            afterwards.callback(sys.path.remove, here)
        if debug:
            os.environ["VECWRAP_TRACEBACK"] = "full"
            afterwards.callback(os.environ.pop, "VECWRAP_TRACEBACK")
        else:
            afterwards.callback(setattr, warnings, "formatwarning", warnings.formatwarning)
            warnings.formatwarning = _without_source
        log = logging.StreamHandler()  # to stderr, as without it
        log.setFormatter(_Printable())
        logging.getLogger("vecwrap").addHandler(log)
        afterwards.callback(logging.getLogger("vecwrap").removeHandler, log)
        try:
            status = _run(arguments, debug)
            flush_output()
        except BrokenPipeError:  # `vecwrap list | head`
            discard_output()
            return 1
        except OSError as error:
            if debug or error.errno != errno.ENOSPC:
                raise
            discard_output()
            _say(f"writing failed: {error.strerror}; free some space, or write elsewhere")
            return 1
    return status


class _Printable(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(truncate(super().format(record)))


def _run(arguments: list[str], debug: bool) -> int:
    try:
        arguments = [argument for argument in arguments if argument != "--debug"]
        if arguments and arguments[0] in REMOVED_COMMANDS:
            raise SpecError(
                f"{arguments[0]}: there is no such command any more. "
                f"{REMOVED_COMMANDS[arguments[0]]}."
            )
        if "_VECWRAP_COMPLETE" in os.environ:  # a shell asks what fits
            typer.main.get_command(with_commands(*requested_command()))(prog_name="vecwrap")
        command = typer.main.get_command(with_commands(*arguments[:1]))
        with command.make_context("vecwrap", list(arguments) or ["--help"]) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code if arguments else 2
    except SystemExit as stop:
        if isinstance(stop.code, int):
            return stop.code
        return int(stop.code is not None)
    except UsageError as error:
        if debug:
            sys.stderr.write(printable_lines(traceback_of(error)))
        else:
            _say(usage_text(error))
        return 2
    except VecwrapError as error:
        if debug:
            sys.stderr.write(printable_lines(traceback_of(error)))
        else:
            _say(str(error))
        return 2 if isinstance(error, (SpecError, PlanError, CheckpointError, PlotError)) else 1
    return 0


def _without_source(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """Format a warning without its source line; vecwrap's own also without file and number."""
    text = f"{category.__name__}: {printable_lines(truncate(str(message)))}\n"
    if Path(filename).is_relative_to(Path(vecwrap.__file__).parent):
        return text
    return f"{filename}:{lineno}: {text}"


def _say(error: str) -> None:
    text = Text("error: ", style="bold red") + Text(error)
    Terminal(stderr=True, soft_wrap=True).print(text)
