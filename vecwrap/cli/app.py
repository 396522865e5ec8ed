"""The commands and their options; the modules next to this one implement them."""

import contextlib
import errno
import functools
import json
import logging
import os
import re
import shlex
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperCommand

import vecwrap
from vecwrap.cli.output import (
    Terminal,
    discard_output,
    escape_what_cannot_be_shown,
    flush_output,
    result_alone,
)
from vecwrap.errors import (
    CheckpointError,
    PlanError,
    PlotError,
    SpecError,
    VecwrapError,
    cut,
    printable_lines,
    traceback_of,
)

app = typer.Typer(
    name="vecwrap",
    help="Vectorised reinforcement-learning environments from a pipeline file.",
    epilog="Example: vecwrap run 'CartPole-v1 n=4 | framestack:4'. Use --help after a command for details.\n\n"
    "An error prints one message; --debug shows the traceback. "
    "Exit status: 0 success, 1 findings or a failure while running, 2 an invalid call or pipeline, "
    "130 after Ctrl-C.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


class _Command(TyperCommand):
    """A command that takes a pipeline: says what to write if the shell split it, or for an option of another name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # typer's classes of errors have no public names
            from vecwrap.pipeline.changes import other_word

            message, option = getattr(error, "message", ""), getattr(error, "option_name", "") or ""
            remedy = other_word(option.strip("-").replace("-", "_"))
            if rest := re.search(r"unexpected extra arguments?(?:\(s\))? \((.*)\)", message):
                line = shlex.quote(f"{ctx.params.get('pipeline')} {rest[1]}")
                remedy = f" Quote the whole pipeline: vecwrap {self.name} {line}"
            if remedy:
                setattr(error, "message", f"{message.rstrip('.')}.{remedy}")  # noqa: B010
            raise


_command = functools.partial(app.command, cls=_Command)


def _count(text: str) -> int:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if number < 1 or not number.is_integer():
        raise typer.BadParameter(f"expected a whole number from 1, such as 10000 or 1e4, got {text}")
    return int(number)


_count_option = functools.partial(typer.Option, parser=_count, metavar="INTEGER")


Pipeline = Annotated[
    str,
    typer.Argument(
        help='A pipeline file, or a pipeline in one line: an environment id, or "Id n=8 | wrapper | wrapper".',
        metavar="PIPELINE",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Set a key; a dotted key reaches inside: n=16, wrappers.framestack.k=2, eval.seed=7. May be repeated.",
        metavar="KEY=VALUE",
    ),
]
Evaluation = Annotated[bool, typer.Option("--eval", help="Use the pipeline's evaluation (its section eval).")]
PolicyName = Annotated[
    str, typer.Option(help="random, zeros, or module:callable from batched observations to batched actions.")
]
Number = Annotated[int | None, _count_option("--n", "-n", help="How many sub-environments.")]
BackendName = Annotated[
    str | None,
    typer.Option(help="What runs the sub-environments: auto, dummy, subprocess, shmem, ..."),
]
Steps = Annotated[
    int | None,
    _count_option(help="Agent steps over all sub-environments. Default: 20000, or no limit with --episodes."),
]
Episodes = Annotated[
    int | None,
    _count_option(help="Stop after this many; with --eval, when each sub-environment has played its share of them."),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="A folder for pipeline, versions, seed, monitor.csv, progress.csv, log.txt, statistics, picture; one "
        "that contains a run is refused. Default: only monitor.csv and tiles.png, in the monitor wrapper's folder or "
        "in runs/NAME."
    ),
]
Snapshot = Annotated[
    Path | None,
    typer.Option(
        help="The file for the picture of all sub-environments: .png, .jpg or .webp. Default: the folder's tiles.png."
    ),
]
Record = Annotated[bool, typer.Option("--record", help="Record videos, into the subfolder videos.")]
Watched = Annotated[
    bool, typer.Option("--watch", help="Show the run in the browser while it lasts: prints the page's address.")
]
Port = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="The page's port. Default: 8642, or the next one that is free."),
]
Host = Annotated[
    str,
    typer.Option(
        help="The address that the page listens on. Any other than the default lets other machines in, unencrypted; "
        "rather forward the port: ssh -L 8642:localhost:8642 SERVER."
    ),
]
Interval = Annotated[
    float, typer.Option(min=0.001, help="Seconds between rows of progress.csv, and between lines when piped.")
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
        help="Refuse what names a module to import, or a backend that connects or installs; for untrusted files.",
    ),
]
Json = Annotated[bool, typer.Option("--json", callback=_result_alone, help="Print JSON, for machines.")]


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
        bool, typer.Option("--debug", help="Show the traceback of an error; may stand after the command too.")
    ] = False,
) -> None:
    pass


@_command(epilog="Example: vecwrap run examples/pong.yaml --episodes 20 --record --out runs/tonight")
def run(
    pipeline: Pipeline,
    steps: Steps = None,
    episodes: Episodes = None,
    policy: PolicyName = "random",
    seed: Annotated[int | None, typer.Option(help="Seed of the environments and of a random policy.")] = None,
    n: Number = None,
    backend: BackendName = None,
    out: Out = None,
    record: Record = False,
    snapshot: Snapshot = None,
    interval: Interval = 10.0,
    watched: Watched = False,
    port: Port = None,
    host: Host = "127.0.0.1",
    settings: Settings = None,
    evaluation: Evaluation = False,
    no_imports: NoImports = False,
) -> None:
    """Step a pipeline under a policy: a live table, a summary, monitor.csv, a picture; with --out a run folder."""
    from vecwrap.cli.pipelines import read_pipeline
    from vecwrap.cli.run import RunSettings, run_pipeline

    options = {"n": n, "seed": seed, "backend": backend}
    spec = read_pipeline(pipeline, settings or (), options, evaluation=evaluation, imports=not no_imports)
    if (port is not None or host != "127.0.0.1") and not watched:
        raise SpecError("--port and --host are of the page: expected --watch beside them")
    page = (port, host) if watched else None
    chosen = RunSettings(policy, steps, episodes, out, record, interval, snapshot, evaluation, page)
    raise typer.Exit(run_pipeline(spec, chosen, _console()))


@app.command(epilog="Example: vecwrap load runs/tonight --eval --episodes 20 --policy my_agent:act")
def load(
    folder: Annotated[Path, typer.Argument(help="A folder written by `vecwrap run --out`.", metavar="FOLDER")],
    steps: Annotated[
        int | None,
        _count_option(help="Agent steps over all sub-environments. Without this and --episodes, nothing is run."),
    ] = None,
    episodes: Episodes = None,
    policy: PolicyName = "random",
    out: Annotated[
        Path | None,
        typer.Option(
            help="A folder to write, as with `vecwrap run`. Default: only monitor.csv and tiles.png, in FOLDER/loaded, "
            "or FOLDER/eval with --eval."
        ),
    ] = None,
    record: Record = False,
    snapshot: Snapshot = None,
    interval: Interval = 10.0,
    settings: Settings = None,
    evaluation: Evaluation = False,
    no_imports: NoImports = False,
    as_json: Json = False,
) -> None:
    """Show a run's folder, check that it can be rebuilt, and with --steps or --episodes run it again."""
    from vecwrap.cli.run import RunSettings, load_folder

    chosen = RunSettings(policy, steps, episodes, out, record, interval, snapshot, evaluation)
    raise typer.Exit(load_folder(folder, settings or (), chosen, _console(), as_json=as_json, imports=not no_imports))


@_command(epilog="Example: vecwrap explain examples/pong.yaml --set wrappers.framestack.k=2")
def explain(
    pipeline: Pipeline,
    settings: Settings = None,
    evaluation: Evaluation = False,
    no_imports: NoImports = False,
    as_json: Json = False,
) -> None:
    """Print the plan: each wrapper, where it runs, its spaces and bytes, and what it does at an episode's end."""
    from vecwrap.cli.inspect import explain_pipeline
    from vecwrap.cli.pipelines import read_pipeline

    spec = read_pipeline(pipeline, settings or (), evaluation=evaluation, imports=not no_imports)
    explain_pipeline(spec, _console(), as_json=as_json)


@app.command(epilog="Example: vecwrap check examples/pong.yaml --strict --ignore no_seed")
def check(
    pipelines: Annotated[
        list[str], typer.Argument(help="Pipeline files, or pipelines in one line.", metavar="PIPELINE")
    ],
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with status 1 on warnings too, and require a seed.")
    ] = False,
    ignore: Annotated[
        list[str] | None,
        typer.Option(help="A finding to ignore. May be repeated.", metavar="ID"),
    ] = None,
    twice: Annotated[
        bool,
        typer.Option(
            "--twice",
            help="Also play it with one seed: twice here, after a second reset, and in worker processes; name the "
            "first value that differs.",
        ),
    ] = False,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Agent steps over all sub-environments in each run of --twice. Default: 2000."),
    ] = None,
    settings: Settings = None,
    evaluation: Evaluation = False,
    no_imports: NoImports = False,
    as_json: Json = False,
) -> None:
    """Look for mistakes in order and use, without stepping unless asked to; exit with status 1 if there are errors."""
    from vecwrap.cli.inspect import check_pipelines
    from vecwrap.cli.pipelines import read_pipeline
    from vecwrap.testing.twice import STEPS

    if steps is not None and not twice:
        raise SpecError("--steps: expected --twice beside it; without that, nothing is stepped")
    read = functools.partial(read_pipeline, settings=settings or (), evaluation=evaluation, imports=not no_imports)
    played = (steps or STEPS) if twice else None
    status = check_pipelines(
        pipelines, read, _console(), strict=strict, ignore=ignore or (), as_json=as_json, steps=played
    )
    raise typer.Exit(status)


@app.command(epilog="Example: vecwrap schema > pipeline.schema.json")
def schema() -> None:
    """Print the JSON schema of pipeline files, which lets editors complete and check them."""
    from vecwrap.cli.schema import pipeline_schema

    typer.echo(json.dumps(pipeline_schema(), indent=2, ensure_ascii=False))


@app.command("list", epilog="Example: vecwrap list framestack zero_padding")
def list_all(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Only these wrappers, backends or findings, in full.",
            metavar="NAME",
        ),
    ] = None,
) -> None:
    """List wrappers and backends with their parameters and defaults, and the findings of check."""
    from vecwrap.cli.inspect import list_names

    list_names(names or [], _console())


@_command(epilog="Example: vecwrap time examples/pong.yaml --seconds 10 --policy my_agent:act")
def time(
    pipeline: Pipeline,
    steps: Annotated[
        int | None,
        _count_option(help="Agent steps over all sub-environments, including untimed ones."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.001, help="How long. Default: 5, or no limit with --steps.")
    ] = None,
    policy: PolicyName = "random",
    n: Number = None,
    backend: BackendName = None,
    settings: Settings = None,
    evaluation: Evaluation = False,
    as_json: Json = False,
) -> None:
    """Run a pipeline and show where a step's time goes: each wrapper, the backend's wait, the copy, the policy."""
    from vecwrap.cli.measure import time_pipeline
    from vecwrap.cli.pipelines import read_pipeline

    options = {"n": n, "backend": backend}
    spec = read_pipeline(pipeline, settings or (), options, evaluation=evaluation)
    raise typer.Exit(
        time_pipeline(spec, policy=policy, steps=steps, seconds=seconds, as_json=as_json, console=_console())
    )


@_command(epilog="Example: vecwrap tune examples/pong.yaml --budget 2min")
def tune(
    pipeline: Pipeline,
    budget: Annotated[str, typer.Option(help="Time limit: 60s, 2min. Candidates that do not fit are marked.")] = "60s",
    n: Number = None,
    settings: Settings = None,
    evaluation: Evaluation = False,
    as_json: Json = False,
) -> None:
    """Measure the environment, try backends and numbers of workers, and print the lines to add to the pipeline."""
    from vecwrap.cli.measure import tune_pipeline
    from vecwrap.cli.pipelines import read_pipeline

    spec = read_pipeline(pipeline, settings or (), {"n": n}, evaluation=evaluation)
    raise typer.Exit(tune_pipeline(spec, budget=budget, as_json=as_json, console=_console(), evaluation=evaluation))


@_command(epilog='Example: vecwrap bench "CartPole-v1 n=8 | framestack:4" --vs gymnasium,sb3')
def bench(
    pipeline: Pipeline,
    vs: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated peers: gymnasium, sb3. Default: both. If a peer named here cannot take part, the "
            "exit status is 1.",
            metavar="PEERS",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Samples per contender, interleaved.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.001, help="Duration of a sample.")] = 1.0,
    n: Number = None,
    backend: BackendName = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Compare a pipeline with Gymnasium and Stable-Baselines3, if installed and able to do the same work."""
    from vecwrap.cli.measure import bench_pipeline
    from vecwrap.cli.pipelines import read_pipeline

    spec = read_pipeline(pipeline, settings or (), {"n": n, "backend": backend})
    raise typer.Exit(bench_pipeline(spec, vs=vs, rounds=rounds, seconds=seconds, as_json=as_json, console=_console()))


@app.command(epilog="Example: vecwrap plot runs/ppo runs/a2c --smooth 10,100 --out curves.png --out curves.svg")
def plot(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Folders with monitor files (one file, or one per sub-environment; vecwrap's, Stable-Baselines3's or "
            "Baselines'), or folders of such folders, one per seed. NAME=FOLDER names a run; runs with the same name "
            "are seeds of one curve.",
            metavar="RUN",
        ),
    ],
    out: Annotated[
        list[Path] | None,
        typer.Option("--out", "-o", help="The picture, .png or .svg. May be given twice. Default: curves.png."),
    ] = None,
    smooth: Annotated[
        str, typer.Option(help="How many episodes to average over, comma-separated.", metavar="EPISODES")
    ] = "10,100",
    x: Annotated[
        str, typer.Option(help="One panel each, comma-separated: steps, episodes, minutes.", metavar="AXES")
    ] = "steps,episodes,minutes",
    title: Annotated[str | None, typer.Option(help="Default: the environment's id.")] = None,
    as_json: Json = False,
) -> None:
    """Draw learning curves from monitor files: each episode, smoothed, with a band of one standard deviation."""
    from vecwrap.cli.curves import plot_runs

    raise typer.Exit(
        plot_runs(runs, out=out or (), smooth=smooth, axes=x, title=title, as_json=as_json, console=_console())
    )


@app.command(epilog="Example: vecwrap compare ppo=runs/ppo-1 ppo=runs/ppo-2 a2c=runs/a2c-1 a2c=runs/a2c-2")
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Folders of runs or monitor files, as `vecwrap plot` takes them: a folder of folders is a run of "
            "several seeds, and so are NAME=FOLDER of the same name.",
            metavar="RUN",
        ),
    ],
    last: Annotated[int, _count_option(help="How many of the last episodes of each seed count.")] = 100,
    out: Annotated[
        list[Path] | None,
        typer.Option("--out", "-o", help="The picture, .png or .svg. May be given twice. Default: compare.png."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare runs of one environment: final returns with 95 % intervals, speed, restarts, and what differs."""
    from vecwrap.cli.curves import compare_runs

    raise typer.Exit(compare_runs(runs, last=last, out=out or (), as_json=as_json, console=_console()))


@app.command(epilog="Example: vecwrap watch runs/tonight --port 9000")
def watch(
    folder: Annotated[
        Path, typer.Argument(help="A run's folder, or one with a folder for each seed.", metavar="RUN_FOLDER")
    ],
    port: Port = None,
    host: Host = "127.0.0.1",
) -> None:
    """Show a run in the browser, finished or running: curves, figures, plan, log; prints the page's address."""
    from vecwrap.cli.curves import watch_folder

    raise typer.Exit(watch_folder(folder, port, host, _console()))


@_command()
def tournament(
    pipeline: Pipeline,
    pool: Annotated[Path, typer.Option(help="The folder of an OpponentPool.", metavar="DIR")],
    games: Annotated[int, _count_option(help="How many for each pair and seat.")] = 20,
    seed: Annotated[int, typer.Option(help="Of the first game of each pair and seat.")] = 0,
    players: Annotated[
        str | None, typer.Option(help="Which members, comma-separated. Default: all.", metavar="NAMES")
    ] = None,
    anchor: Annotated[str | None, typer.Option(help="Whose rating is 0. Default: random, if it plays.")] = None,
    record: Annotated[
        str | None, typer.Option(help="Film the first games of a pair: NAME,NAME.", metavar="NAMES")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A folder for tables (CSV), pictures (PNG) and videos.")
    ] = None,
    number: Number = None,
    backend: BackendName = None,
    settings: Settings = None,
    no_imports: NoImports = False,
    as_json: Json = False,
) -> None:
    """Have all opponents of a pool play each other, in every seat, and print their ratings."""
    from vecwrap.cli.measure import play_tournament
    from vecwrap.cli.pipelines import read_pipeline

    spec = read_pipeline(pipeline, settings or (), {"n": number, "backend": backend}, imports=not no_imports)
    names = {"players": players, "record": record}
    raise typer.Exit(
        play_tournament(
            spec,
            pool,
            games=games,
            seed=seed,
            anchor=anchor,
            out=out,
            imports=not no_imports,
            as_json=as_json,
            console=_console(),
            **{
                key: None if text is None else [name.strip() for name in text.split(",")] for key, text in names.items()
            },
        )
    )


def _console() -> Terminal:
    """The terminal: plain and never wrapped if the output is piped."""
    console = Terminal()
    if console.is_terminal:
        return console
    return Terminal(no_color=True, width=max(console.width, 120), soft_wrap=True)


def run_app(arguments: list[str]) -> int:
    """Run a command; return the exit status."""
    debug = "--debug" in arguments
    if sys.platform == "linux" and not any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR"))):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # else pygame's SDL prints an error that is none
    escape_what_cannot_be_shown()
    here = str(Path.cwd())
    with contextlib.ExitStack() as afterwards:
        if here not in sys.path:  # as with `python -m vecwrap`, but last, so that nothing installed is hidden by a file
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
        return printable_lines(cut(super().format(record)))


def _run(arguments: list[str], debug: bool) -> int:
    try:
        app(args=[argument for argument in arguments if argument != "--debug"], prog_name="vecwrap")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except VecwrapError as error:
        if debug:
            sys.stderr.write(printable_lines(traceback_of(error)))
        else:
            _say(str(error))
        return 2 if isinstance(error, (SpecError, PlanError, CheckpointError, PlotError)) else 1
    return 0


def _without_source(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning without its line of source code; vecwrap's own also without file and line number."""
    ours = Path(filename).is_relative_to(Path(vecwrap.__file__).parent)
    return f"{'' if ours else f'{filename}:{lineno}: '}{category.__name__}: {printable_lines(cut(str(message)))}\n"


def _say(error: str) -> None:
    text = Text("error: ", style="bold red") + Text(error)
    Terminal(stderr=True, soft_wrap=True).print(text)
