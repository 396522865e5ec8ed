"""The shared parts of the commands: their application, and common options."""

import functools
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

import vecwrap
from vecwrap.cli.output import Terminal, result_alone
from vecwrap.pipeline.fields import other_name

app = typer.Typer(
    name="vecwrap",
    help="Vectorised reinforcement-learning environments from a pipeline file.",
    epilog=(
        "Example: vecwrap run 'CartPole-v1 n=4 | framestack:4'. Use --help after a command "
        "for details.\n\nAn error prints one message; --debug shows the traceback. Exit "
        "status: 0 success, 1 findings or a failure while running, 2 an invalid call or "
        "pipeline (for check, an invalid pipeline is a finding), 130 after Ctrl-C."
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


class _Command(TyperCommand):
    """Says what to write if the shell split a pipeline, or for an option of another name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # typer's classes of errors have no public names
            message = getattr(error, "message", "")
            option = getattr(error, "option_name", "") or ""
            remedy = other_name(option.strip("-").replace("-", "_"))
            rest = re.search(r"unexpected extra arguments?(?:\(s\))? \((.*)\)", message)
            if rest and "pipeline" in ctx.params:
                line = shlex.quote(f"{ctx.params['pipeline']} {rest[1]}")
                remedy = f" Quote the whole pipeline: vecwrap {self.name} {line}"
            if remedy:
                setattr(error, "message", f"{message.rstrip('.')}.{remedy}")  # noqa: B010
            raise


def command(
    name: str, example: str = ""
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

        app.command(name, cls=_Command, epilog=epilog)(run)
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


count_option = functools.partial(typer.Option, parser=_count, metavar="INTEGER")


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
    ),
]
Evaluation = Annotated[
    bool, typer.Option("--eval", help="Use the pipeline's evaluation (its section eval).")
]
PolicyName = Annotated[
    str,
    typer.Option(
        help=(
            "random, zeros, module:callable from batched observations to batched actions, or "
            "the .zip of a model that Stable-Baselines3 or sb3-contrib saved: it holds "
            "pickles, so loading it runs the code in it."
        )
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
    ),
]
Number = Annotated[int | None, count_option("--n", "-n", help="How many sub-environments.")]
BackendName = Annotated[
    str | None,
    typer.Option(
        help=(
            "What runs the sub-environments: auto, dummy, threads, subprocess, shmem, ray, or "
            "module:class."
        ),
    ),
]
Steps = Annotated[
    int | None,
    count_option(
        help="Agent steps over all sub-environments. Default: 20000, or no limit with --episodes."
    ),
]
Episodes = Annotated[
    int | None,
    count_option(
        help=(
            "Stop after this many; with --eval, when each sub-environment has played its "
            "share of them."
        )
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help=(
            "A folder for the run: pipeline.yaml, run.json, monitor.csv, statistics, picture; "
            "one that contains a run is refused. Default: the monitor wrapper's folder or "
            "runs/NAME, without statistics; files of an earlier run there are moved aside."
        )
    ),
]
Snapshot = Annotated[
    Path | None,
    typer.Option(
        help=(
            "The file for the picture of all sub-environments: .png, .jpg or .webp. Default: "
            "the folder's tiles.png."
        )
    ),
]
Record = Annotated[bool, typer.Option("--record", help="Record videos, into the subfolder videos.")]
Watched = Annotated[
    bool,
    typer.Option(
        "--watch", help="Show the run in the browser while it lasts: prints the page's address."
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        min=0, max=65535, help="The page's port. Default: 8642, or the next one that is free."
    ),
]
Host = Annotated[
    str,
    typer.Option(
        help=(
            "The address that the page listens on. Any other than the default lets other "
            "machines in, unencrypted; rather forward the port: ssh -L 8642:localhost:8642 "
            "SERVER."
        )
    ),
]
Interval = Annotated[
    float,
    typer.Option(
        min=0.001,
        help="Seconds between lines when piped, and between writes of counts and statistics.",
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
    """The terminal: plain and never wrapped if the output is piped."""
    console = Terminal()
    if console.is_terminal:
        return console
    return Terminal(no_color=True, width=max(console.width, 120), soft_wrap=True)
