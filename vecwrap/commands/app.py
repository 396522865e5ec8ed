"""The commands and their options; what they do stands in the modules beside this one."""

import functools
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

import vecwrap
from vecwrap.errors import PlanError, SpecError, VecwrapError

__all__ = ["app", "run_app"]

app = typer.Typer(
    name="vecwrap",
    help="Vectorised reinforcement-learning environments from a pipeline file.",
    epilog="A mistake gives one message; --debug shows the traceback. "
    "Exit status: 0 good, 1 findings or a failure while running, 2 a call or pipeline that cannot be used.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


Pipeline = Annotated[
    str,
    typer.Argument(
        help='A pipeline file, or a pipeline in one line: an environment id, or "Id n=8 | layer | layer".',
        metavar="PIPELINE",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Replace what stands at a key; one with dots reaches inside: n=16, wrappers.framestack.k=2, eval.seed=7. "
        "May be given many times.",
        metavar="KEY=VALUE",
    ),
]
Evaluation = Annotated[
    bool, typer.Option("--eval", help="Take the evaluation that belongs to the pipeline (its section eval).")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"vecwrap {vecwrap.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(epilog="Example: vecwrap run examples/pong.yaml --episodes 20 --out runs/tonight")
def run(
    pipeline: Pipeline,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Agent steps over all sub-environments. Default: 20000, or no limit with --episodes."),
    ] = None,
    episodes: Annotated[int | None, typer.Option(min=1, help="Stop when so many have ended.")] = None,
    policy: Annotated[
        str, typer.Option(help="random, zeros, or module:callable from batched observations to batched actions.")
    ] = "random",
    seed: Annotated[int | None, typer.Option(help="Of the environments and of a random policy.")] = None,
    n: Annotated[int | None, typer.Option("--n", "-n", min=1, help="How many sub-environments.")] = None,
    backend: Annotated[str | None, typer.Option(help="What runs them: auto, dummy, subprocess, shmem, ...")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for monitor.csv and tiles.png. Default: the monitor layer's dir, else runs/NAME."),
    ] = None,
    settings: Settings = None,
    evaluation: Evaluation = False,
    debug: Debug = False,
) -> None:
    """Step a pipeline under a policy: live progress, a summary, monitor.csv and a picture of all sub-environments."""
    from vecwrap.commands.pipelines import read_pipeline
    from vecwrap.commands.run import run_pipeline

    options = {"n": n, "seed": seed, "backend": backend}
    raise typer.Exit(
        run_pipeline(
            read_pipeline(pipeline, settings or (), options, evaluation=evaluation),
            policy=policy,
            steps=steps,
            episodes=episodes,
            out=out,
            console=_console(),
        )
    )


@app.command(epilog="Example: vecwrap explain examples/pong.yaml --set wrappers.framestack.k=2")
def explain(
    pipeline: Pipeline,
    settings: Settings = None,
    evaluation: Evaluation = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the plan: each layer, where it runs, what it makes of spaces, its bytes, its part in an episode's end."""
    from vecwrap.commands.explain import explain_pipeline
    from vecwrap.commands.pipelines import read_pipeline

    explain_pipeline(read_pipeline(pipeline, settings or (), evaluation=evaluation), _console(), as_json=as_json)


@app.command(epilog="Example: vecwrap check examples/pong.yaml --strict --ignore no_seed")
def check(
    pipelines: Annotated[
        list[str], typer.Argument(help="Pipeline files, or pipelines in one line.", metavar="PIPELINE...")
    ],
    strict: Annotated[
        bool, typer.Option("--strict", help="Warnings give exit status 1 too, and a seed is asked for.")
    ] = False,
    ignore: Annotated[
        list[str] | None, typer.Option(help="A finding that is meant so. May be given many times.", metavar="ID")
    ] = None,
    settings: Settings = None,
    evaluation: Evaluation = False,
    no_imports: Annotated[
        bool, typer.Option("--no-imports", help="Refuse files that name a module to import, as from strangers.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Look for mistakes of order and use, without stepping; exit status 1 where there are errors."""
    from vecwrap.commands.check import check_pipelines
    from vecwrap.commands.pipelines import read_pipeline

    read = functools.partial(read_pipeline, settings=settings or (), evaluation=evaluation, imports=not no_imports)
    raise typer.Exit(check_pipelines(pipelines, read, _console(), strict=strict, ignore=ignore or (), as_json=as_json))


@app.command(epilog="Example: vecwrap schema --out pipeline.schema.json")
def schema(
    out: Annotated[Path | None, typer.Option(help="Write it to this file instead of printing it.")] = None,
    debug: Debug = False,
) -> None:
    """Print the JSON schema of pipeline files, with which editors complete and check them."""
    from vecwrap.commands.schema import print_schema

    print_schema(out)


@app.command("list", epilog="Example: vecwrap list framestack zero_padding")
def list_all(
    names: Annotated[
        list[str] | None, typer.Argument(help="Only these layers, backends or findings.", metavar="[NAME]...")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List layers and backends with their parameters and defaults, and what check finds."""
    from vecwrap.commands.show import list_names

    list_names(names or [], _console(), as_json=as_json)


@app.command(epilog='Example: vecwrap bench "CartPole-v1 n=8 | framestack:4" --vs gymnasium,sb3')
def bench(
    pipeline: Pipeline,
    vs: Annotated[
        str | None,
        typer.Option(
            help="Peers, with commas: gymnasium, sb3, envpool, ale, tianshou. Default: all but tianshou. A peer that "
            "is named and cannot take part is a finding: exit status 1.",
            metavar="PEERS",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Samples of each, interleaved.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.001, help="How long a sample lasts.")] = 1.0,
    n: Annotated[int | None, typer.Option("--n", "-n", min=1, help="How many sub-environments.")] = None,
    backend: Annotated[str | None, typer.Option(help="What runs ours: auto, dummy, subprocess, shmem, ...")] = None,
    out: Annotated[Path | None, typer.Option(help="A file for the tables as Markdown.")] = None,
    settings: Settings = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure a pipeline beside other libraries, where they are installed and can do the same work."""
    from vecwrap.commands.bench import bench_pipeline
    from vecwrap.commands.pipelines import read_pipeline

    raise typer.Exit(
        bench_pipeline(
            read_pipeline(pipeline, settings or (), {"n": n, "backend": backend}),
            vs=vs,
            rounds=rounds,
            seconds=seconds,
            as_json=as_json,
            out=out,
            console=_console(),
        )
    )


def _console() -> Console:
    """The terminal: plain and never wrapped where the output is piped."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, no_color=True, width=max(console.width, 120), soft_wrap=True)
    return console


def run_app(arguments: list[str]) -> int:
    """Run a command; give the exit status."""
    debug = "--debug" in arguments
    try:
        app(args=arguments, prog_name="vecwrap")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except VecwrapError as error:
        if debug:
            raise
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            Text("error: ", style="bold red") + Text(str(error))
        )
        return 2 if isinstance(error, (SpecError, PlanError)) else 1
    except BrokenPipeError:  # `vecwrap list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0
