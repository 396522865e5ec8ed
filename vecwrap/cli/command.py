"""The shared parts of the commands: their application, and common options."""

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

import vecwrap
from vecwrap.cli import completion
from vecwrap.cli.help_pages import Command, Group
from vecwrap.cli.output import PIPED_COLUMNS, Terminal, result_alone
from vecwrap.pipeline import registry

app = typer.Typer(
    name="vecwrap",
    cls=Group,
    help="Vectorised reinforcement-learning environments from a pipeline file.",
    epilog=(
        "Example: vecwrap run 'CartPole-v1 n=4 | framestack:4'. Use --help after a command "
        "for details.\n\nAn error prints one message; --debug shows the traceback. Exit "
        "status: 0 success, 1 findings or a failure while running, 2 an invalid call or "
        "pipeline (for check, an invalid pipeline is a finding), 130 after Ctrl-C."
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

# The groups of commands, and of the options of one command.
RUN = "Run"
UNDERSTAND = "Understand"
MEASURE = "Measure"
ANALYSE = "Analyse"
WHAT_RUNS = "What runs"
HOW_LONG = "How long"
POLICY = "Policy"
OUTPUT = "Output"
BROWSER = "Browser"


def command(
    name: str, group: str, example: str = ""
) -> Callable[[Callable[..., int | None]], Callable[..., int | None]]:
    """Return a decorator for the function of a command.

    The function returns the exit status, or None for 0.
    """
    epilog = None
    if example:
        epilog = f"Example: vecwrap {name} {example}"

    def register(function: Callable[..., int | None]) -> Callable[..., int | None]:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> None:
            raise typer.Exit(function(*args, **kwargs) or 0)

        app.command(name, cls=Command, epilog=epilog, rich_help_panel=group)(run)
        return function

    return register


def _count(text: str) -> int:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if number < 1 or not number.is_integer():
        raise typer.BadParameter(
            f"expected a whole number from 1, such as 10000 or 1e4, got {text}"
        )
    return int(number)


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"expected a whole number, got {text}") from None


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise typer.BadParameter(f"expected a whole number from 0 to 65535, got {text}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0.001 <= number < math.inf:
        raise typer.BadParameter(f"expected a number of seconds from 0.001, got {text}")
    return number


count_option = functools.partial(typer.Option, parser=_count, metavar="N")
seed_option = functools.partial(typer.Option, parser=_whole_number, metavar="SEED")
seconds_option = functools.partial(typer.Option, parser=_seconds, metavar="SECONDS")


Pipeline = Annotated[
    str,
    typer.Argument(
        help=(
            "A pipeline file, a run folder, or a pipeline in one line: an environment id, or "
            '"Id n=8 | wrapper | wrapper".'
        ),
        metavar="PIPELINE",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help=(
            "Set a key; a dotted key reaches inside: n=16, wrappers.framestack.k=2, "
            "eval.seed=7. May be repeated."
        ),
        metavar="KEY=VALUE",
        rich_help_panel=WHAT_RUNS,
    ),
]
Evaluation = Annotated[
    bool,
    typer.Option(
        "--eval",
        help="Use the pipeline's evaluation (its section eval).",
        rich_help_panel=WHAT_RUNS,
    ),
]
PolicyName = Annotated[
    str,
    typer.Option(
        help=(
            "random, zeros, module:callable from batched observations to batched actions, or "
            "the .zip of a model that Stable-Baselines3 or sb3-contrib saved: it holds "
            "pickles, so loading it runs the code in it."
        ),
        metavar="POLICY",
        autocompletion=completion.one_of("random", "zeros"),
        rich_help_panel=POLICY,
    ),
]
Algorithm = Annotated[
    str | None,
    typer.Option(
        "--algo",
        help=(
            "The algorithm of --policy model.zip, if the file does not say it: ppo, a2c, dqn, "
            "sac, ..., ppo_lstm (RecurrentPPO), maskable_ppo."
        ),
        metavar="NAME",
        autocompletion=completion.algorithms,
        rich_help_panel=POLICY,
    ),
]
Statistics = Annotated[
    Path | None,
    typer.Option(
        "--stats",
        help=(
            "Running statistics for the wrappers that normalise, frozen: a stats.npz, another "
            "file of env.save, or the .pkl that Stable-Baselines3's VecNormalize saved, a "
            "pickle, which runs the code in it."
        ),
        metavar="FILE",
        rich_help_panel=POLICY,
    ),
]
Number = Annotated[
    int | None,
    count_option("--n", "-n", help="How many sub-environments.", rich_help_panel=WHAT_RUNS),
]
BackendName = Annotated[
    str | None,
    typer.Option(
        help=(
            "What runs the sub-environments: auto, "
            f"{', '.join(registry.backends.names())}, or module:class."
        ),
        metavar="BACKEND",
        autocompletion=completion.backend_names,
        rich_help_panel=WHAT_RUNS,
    ),
]
Steps = Annotated[
    int | None,
    count_option(
        help="Agent steps over all sub-environments. Default: 20000, or no limit with --episodes.",
        rich_help_panel=HOW_LONG,
    ),
]
Episodes = Annotated[
    int | None,
    count_option(
        help=(
            "Stop after this many; with --eval, when each sub-environment has played its "
            "share of them."
        ),
        rich_help_panel=HOW_LONG,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help=(
            "A folder for the run: pipeline.yaml, run.json, monitor.csv, statistics, picture; "
            "one that contains a run is refused. Default: the monitor wrapper's folder or "
            "runs/NAME, without statistics; files of an earlier run there are moved aside."
        ),
        metavar="FOLDER",
        rich_help_panel=OUTPUT,
    ),
]
Snapshot = Annotated[
    Path | None,
    typer.Option(
        help=(
            "The file for the picture of all sub-environments: .png, .jpg or .webp. Default: "
            "the folder's tiles.png."
        ),
        metavar="PICTURE",
        rich_help_panel=OUTPUT,
    ),
]
Record = Annotated[
    bool,
    typer.Option(
        "--record", help="Record videos, into the subfolder videos.", rich_help_panel=OUTPUT
    ),
]
Watched = Annotated[
    bool,
    typer.Option(
        "--watch",
        help="Show the run in the browser while it lasts: prints the page's address.",
        rich_help_panel=BROWSER,
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        help="The page's port. Default: 8642, or the next one that is free.",
        parser=_port,
        metavar="PORT",
        rich_help_panel=BROWSER,
    ),
]
Host = Annotated[
    str,
    typer.Option(
        help=(
            "The address that the page listens on. Any other than the default lets other "
            "machines in, unencrypted; rather forward the port: ssh -L 8642:localhost:8642 "
            "SERVER."
        ),
        metavar="ADDRESS",
        rich_help_panel=BROWSER,
    ),
]
Interval = Annotated[
    float,
    seconds_option(
        help="Seconds between lines when piped, and between writes of counts and statistics.",
        rich_help_panel=OUTPUT,
    ),
]


def _result_alone(context: typer.Context, as_json: bool) -> bool:
    """With ``--json``, reserve stdout for the result until the command ends."""
    if as_json and not context.resilient_parsing:
        context.with_resource(result_alone())
    return as_json


NoImports = Annotated[
    bool,
    typer.Option(
        "--no-imports",
        help=(
            "Refuse what names a module to import, or a backend that connects or installs; "
            "for untrusted files."
        ),
        rich_help_panel=WHAT_RUNS,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", callback=_result_alone, help="Print JSON, for machines.")
]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"vecwrap {vecwrap.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", help="Show the traceback of an error; may stand after the command too."
        ),
    ] = False,
) -> None:
    pass


def terminal() -> Terminal:
    """The terminal: plain, and wide enough for any line, if the output is piped."""
    console = Terminal()
    if console.is_terminal:
        return console
    return Terminal(no_color=True, width=PIPED_COLUMNS, soft_wrap=True)
