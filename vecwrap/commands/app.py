"""The commands and their options; what they do stands in the modules beside this one."""

import contextlib
import errno
import functools
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

import vecwrap
from vecwrap.commands import completion
from vecwrap.commands.output import (
    Terminal,
    discard_output,
    escape_what_cannot_be_shown,
    flush_output,
    printable_lines,
    result_alone,
    stdout_of_result,
)
from vecwrap.errors import CheckpointError, ClipError, PlanError, PlotError, SpecError, VecwrapError, traceback_of

__all__ = ["app", "run_app"]

app = typer.Typer(
    name="vecwrap",
    help="Vectorised reinforcement-learning environments from a pipeline file.",
    epilog="Example: vecwrap run 'CartPole-v1 n=4 | framestack:4'. --help after a command says more of it.\n\n"
    "A mistake gives one message; --debug shows the traceback. "
    "Exit status: 0 good, 1 findings or a failure while running, 2 a call or pipeline that cannot be used, "
    "130 after Ctrl-C.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


Pipeline = Annotated[
    str,
    typer.Argument(
        help='A pipeline file, or a pipeline in one line: an environment id, or "Id n=8 | layer | layer".',
        metavar="PIPELINE",
        autocompletion=completion.pipelines,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Replace what stands at a key; one with dots reaches inside: n=16, wrappers.framestack.k=2, eval.seed=7. "
        "May be given many times.",
        metavar="KEY=VALUE",
        autocompletion=completion.settings,
    ),
]
Evaluation = Annotated[
    bool, typer.Option("--eval", help="Take the evaluation that belongs to the pipeline (its section eval).")
]
PolicyName = Annotated[
    str,
    typer.Option(
        help="random, zeros, or module:callable from batched observations to batched actions.",
        autocompletion=completion.policies,
    ),
]
Number = Annotated[int | None, typer.Option("--n", "-n", min=1, help="How many sub-environments.")]
BackendName = Annotated[
    str | None,
    typer.Option(
        help="What runs the sub-environments: auto, dummy, subprocess, shmem, ...", autocompletion=completion.backends
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(min=1, help="Agent steps over all sub-environments. Default: 20000, or no limit with --episodes."),
]
Episodes = Annotated[
    int | None,
    typer.Option(
        min=1, help="Stop when so many have ended; with --eval, when each sub-environment has played its share of them."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="A folder to fill: pipeline, versions, seed, monitor.csv, progress.csv, log.txt, statistics, picture; one "
        "that holds a run is refused. Default: only monitor.csv and tiles.png, where the monitor layer says or in "
        "runs/NAME."
    ),
]
Snapshot = Annotated[
    Path | None,
    typer.Option(
        help="Where the picture of all sub-environments goes: .png, .jpg or .webp. Default: the folder's tiles.png."
    ),
]
Record = Annotated[bool, typer.Option("--record", help="Record videos, into the folder's folder videos.")]
Interval = Annotated[
    float, typer.Option(min=0.001, help="Seconds between rows of progress.csv, and between lines when piped.")
]


def _result_alone(context: typer.Context, as_json: bool) -> bool:
    """Let ``--json`` keep stdout for the result, until the command has ended."""
    if as_json and not context.resilient_parsing:
        context.with_resource(result_alone())
    return as_json


Json = Annotated[bool, typer.Option("--json", callback=_result_alone, help="Print JSON, for machines.")]
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


@app.command(epilog="Example: vecwrap run examples/pong.yaml --episodes 20 --record --out runs/tonight")
def run(
    pipeline: Pipeline,
    steps: Steps = None,
    episodes: Episodes = None,
    policy: PolicyName = "random",
    seed: Annotated[int | None, typer.Option(help="Of the environments and of a random policy.")] = None,
    n: Number = None,
    backend: BackendName = None,
    out: Out = None,
    record: Record = False,
    snapshot: Snapshot = None,
    interval: Interval = 10.0,
    settings: Settings = None,
    evaluation: Evaluation = False,
    debug: Debug = False,
) -> None:
    """Step a pipeline under a policy: a live table, a summary, monitor.csv, a picture; with --out a folder of all."""
    from vecwrap.commands.pipelines import read_pipeline
    from vecwrap.commands.run import RunSettings, run_pipeline

    options = {"n": n, "seed": seed, "backend": backend}
    spec = read_pipeline(pipeline, settings or (), options, evaluation=evaluation)
    chosen = RunSettings(policy, steps, episodes, out, record, interval, snapshot, evaluation)
    raise typer.Exit(run_pipeline(spec, chosen, _console()))


@app.command(epilog="Example: vecwrap load runs/tonight --eval --episodes 20 --policy my_agent:act")
def load(
    folder: Annotated[Path, typer.Argument(help="What `vecwrap run --out` filled.", metavar="FOLDER")],
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Agent steps over all sub-environments. Without this and --episodes, nothing is run."),
    ] = None,
    episodes: Episodes = None,
    policy: PolicyName = "random",
    out: Annotated[
        Path | None,
        typer.Option(
            help="A folder to fill, as that of `vecwrap run`. Default: only monitor.csv and tiles.png, in the folder "
            "loaded within FOLDER, with --eval in the folder eval."
        ),
    ] = None,
    record: Record = False,
    snapshot: Snapshot = None,
    interval: Interval = 10.0,
    settings: Settings = None,
    evaluation: Evaluation = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show a run's folder, check that it can be rebuilt, and with --steps or --episodes run it again."""
    from vecwrap.commands.load import load_folder
    from vecwrap.commands.run import RunSettings

    chosen = RunSettings(policy, steps, episodes, out, record, interval, snapshot, evaluation)
    raise typer.Exit(load_folder(folder, settings or (), chosen, _console(), as_json=as_json))


@app.command(epilog="Example: vecwrap clip runs/tonight/videos/video-episode-000000.mp4 pong.webp --width 480 --fps 20")
def clip(
    video: Annotated[Path, typer.Argument(help="What the layer video or --record wrote.", metavar="VIDEO")],
    out: Annotated[Path, typer.Argument(help="The file to write, .webp or .gif.", metavar="OUT")],
    width: Annotated[int | None, typer.Option(min=1, help="The greatest, in pixels. Default: the video's.")] = None,
    fps: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="Frames a second at most: every second, third, ... frame of the video is taken, and it plays at the "
            "video's speed. Default: the video's.",
        ),
    ] = None,
    start: Annotated[float, typer.Option(min=0, help="Seconds to leave out at the beginning.")] = 0.0,
    seconds: Annotated[
        float | None, typer.Option(min=0.001, help="How many to take. Default: all that follow.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Turn a recorded video into an animated WebP or GIF, as READMEs and papers take it."""
    from vecwrap.commands.clip import save_clip

    save_clip(video, out, _console(), width=width, fps=fps, start=start, seconds=seconds)


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
        list[str],
        typer.Argument(
            help="Pipeline files, or pipelines in one line.", metavar="PIPELINE", autocompletion=completion.pipelines
        ),
    ],
    strict: Annotated[
        bool, typer.Option("--strict", help="Warnings give exit status 1 too, and a seed is asked for.")
    ] = False,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            help="A finding that is meant so. May be given many times.",
            metavar="ID",
            autocompletion=completion.findings,
        ),
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
        list[str] | None,
        typer.Argument(
            help="Only these layers, backends or findings, in full.", metavar="NAME", autocompletion=completion.names
        ),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List layers and backends with their parameters and defaults, and what check finds."""
    from vecwrap.commands.show import list_names

    list_names(names or [], _console(), as_json=as_json)


@app.command(epilog="Example: vecwrap time examples/pong.yaml --seconds 10 --policy my_agent:act")
def time(
    pipeline: Pipeline,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Agent steps over all sub-environments, those without the clock included.")
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
    debug: Debug = False,
) -> None:
    """Run a pipeline and say where the time of a step goes: each layer, the backend's wait, the copy, the policy."""
    from vecwrap.commands.pipelines import read_pipeline
    from vecwrap.commands.time import time_pipeline

    options = {"n": n, "backend": backend}
    spec = read_pipeline(pipeline, settings or (), options, evaluation=evaluation)
    raise typer.Exit(
        time_pipeline(spec, policy=policy, steps=steps, seconds=seconds, as_json=as_json, console=_console())
    )


@app.command(epilog="Example: vecwrap tune examples/pong.yaml --budget 2min")
def tune(
    pipeline: Pipeline,
    budget: Annotated[
        str, typer.Option(help="How long it may take: 60s, 2min. What does not fit is a row that says so.")
    ] = "60s",
    n: Number = None,
    settings: Settings = None,
    evaluation: Evaluation = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure the environment, try backends, workers and batch sizes, and give the lines to write into the pipeline."""
    from vecwrap.commands.pipelines import read_pipeline
    from vecwrap.commands.tune import tune_pipeline

    spec = read_pipeline(pipeline, settings or (), {"n": n}, evaluation=evaluation)
    raise typer.Exit(tune_pipeline(spec, budget=budget, as_json=as_json, console=_console(), evaluation=evaluation))


@app.command(epilog='Example: vecwrap bench "CartPole-v1 n=8 | framestack:4" --vs gymnasium,sb3')
def bench(
    pipeline: Pipeline,
    vs: Annotated[
        str | None,
        typer.Option(
            help="Peers, with commas: gymnasium, sb3, envpool, ale, tianshou. Default: all but tianshou. A peer that "
            "is named and cannot take part is a finding: exit status 1.",
            metavar="PEERS",
            autocompletion=completion.peers,
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Samples of each, interleaved.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.001, help="How long a sample lasts.")] = 1.0,
    n: Number = None,
    backend: BackendName = None,
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


@app.command(epilog="Example: vecwrap plot runs/ppo runs/a2c --smooth 10,100 --out curves.png --out curves.svg")
def plot(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Folders with monitor files (one file, or one a sub-environment; ours, Stable-Baselines3's, "
            "Baselines'), or folders of such folders: one a seed. NAME=FOLDER names a run; runs of one name are seeds "
            "of one curve.",
            metavar="RUN",
        ),
    ],
    out: Annotated[
        list[Path] | None,
        typer.Option("--out", "-o", help="The picture, .png or .svg. May be given twice. Default: curves.png."),
    ] = None,
    smooth: Annotated[
        str, typer.Option(help="Over how many episodes scores are averaged, with commas.", metavar="EPISODES")
    ] = "10,100",
    x: Annotated[
        str, typer.Option(help="A panel for each: steps, episodes, minutes, with commas.", metavar="AXES")
    ] = "steps,episodes,minutes",
    title: Annotated[str | None, typer.Option(help="Default: the environment's id.")] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", callback=_result_alone, help="Print the numbers as JSON; a picture is written only with --out."
        ),
    ] = False,
    debug: Debug = False,
) -> None:
    """Draw learning curves from monitor files: each episode, smoothed, with a band over seeds or sub-environments."""
    from vecwrap.commands.plot import plot_runs

    raise typer.Exit(
        plot_runs(runs, out=out or (), smooth=smooth, axes=x, title=title, as_json=as_json, console=_console())
    )


def _console() -> Terminal:
    """The terminal: plain and never wrapped where the output is piped."""
    with stdout_of_result():
        console = Terminal(highlight=False, markup=False)  # what is in brackets is meant: pip install "vecwrap[atari]"
        if console.is_terminal:
            return console
        return Terminal(highlight=False, markup=False, no_color=True, width=max(console.width, 120), soft_wrap=True)


def run_app(arguments: list[str]) -> int:
    """Run a command; give the exit status."""
    debug = "--debug" in arguments
    if sys.platform == "linux" and not any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR"))):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # else pygame's SDL prints an error that is none
    escape_what_cannot_be_shown()
    try:
        here = str(Path.cwd())
    except OSError as error:
        _say(f"the working directory cannot be read ({error.strerror}), was it deleted? Change to another")
        return 2
    with _modules_of(here), contextlib.nullcontext() if debug else _warnings_without_source():
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
            _say(f"writing failed: {error.strerror}; free some, or write elsewhere")
            return 1
    return status


@contextlib.contextmanager
def _modules_of(here: str) -> Iterator[None]:
    """Let environments, layers and policies be found in the working directory, as `python -m vecwrap` finds them.

    It comes last, so that no file that happens to lie there hides what is installed.
    """
    if here in sys.path:
        yield
        return
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)


@contextlib.contextmanager
def _warnings_without_source() -> Iterator[None]:
    """Let warnings be shown without the line of source code that gave them; of ours no place in it either."""

    def shown(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        ours = Path(filename).is_relative_to(Path(vecwrap.__file__).parent)
        return f"{'' if ours else f'{filename}:{lineno}: '}{category.__name__}: {message}\n"

    before = warnings.formatwarning
    warnings.formatwarning = shown
    try:
        yield
    finally:
        warnings.formatwarning = before


def _run(arguments: list[str], debug: bool) -> int:
    try:
        app(args=arguments, prog_name="vecwrap")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except VecwrapError as error:
        if debug:
            sys.stderr.write(printable_lines(traceback_of(error)))
        else:
            _say(str(error))
        return 2 if isinstance(error, (SpecError, PlanError, CheckpointError, PlotError, ClipError)) else 1
    return 0


def _say(error: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(
        Text("error: ", style="bold red") + Text(printable_lines(error))
    )
