"""``vecwrap run`` steps a pipeline under a policy and reports the results; ``vecwrap load`` shows and reruns a run."""

import contextlib
import math
import secrets
import shlex
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import imageio.v3 as imageio
import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from vecwrap.cli import command as cli
from vecwrap.cli.journal import Journal, refuse_taken
from vecwrap.cli.output import name_table, print_json, say_where, show_findings
from vecwrap.cli.pipelines import read_pipeline, read_settings, refuse_imported, with_images, with_monitor, with_videos
from vecwrap.env.games import one_a_game
from vecwrap.env.picture import SIZE, game_labels, labelled
from vecwrap.env.saving import read_state, write_whole
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import PlanError, SpecError, VecwrapError, cut
from vecwrap.pipeline.build import build_plan, rebuild
from vecwrap.pipeline.check import check
from vecwrap.pipeline.places import Place
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.run_folder import VIDEOS, Run, other_versions, read_run
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.rows.step_result import Autoreset
from vecwrap.sources.factories import draws_none
from vecwrap.tools.evaluate import Quota
from vecwrap.tools.player import Player
from vecwrap.tools.rollout import Interrupt, Policy, Tally, find_policy, interruptible, rollout
from vecwrap.tools.trained import TrainedPolicy, refuse_nothing_learnt, refuse_pickles, use_vec_normalize
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.recording.run_files import seen_from_here
from vecwrap.wrappers.recording.run_record import FINISHED, INTERRUPTED, LOG, PIPELINE, PROGRESS, said
from vecwrap.wrappers.tile import Tile
from vecwrap.wrappers.video import Video
from vecwrap.wrappers.window.viewer import Viewer

DEFAULT_STEPS = 20_000  # two or three games of random Pong in each of eight sub-environments
PICTURES = (".png", ".jpg", ".webp")
SIGNALLED = 128  # plus the signal's number, the shell convention
REFRESH_SECONDS = 0.1


@dataclass(frozen=True)
class RunSettings:
    """How a pipeline is run; the help of ``vecwrap run`` describes each option."""

    policy: str = "random"
    algorithm: str | None = None  # of the model, if the policy is one
    statistics: Path | None = None  # of a VecNormalize
    steps: int | None = None
    episodes: int | None = None
    out: Path | None = None
    record: bool = False
    interval: float = 10.0
    snapshot: Path | None = None
    evaluation: bool = False
    page: tuple[int | None, str] | None = None  # the port and the host of a page that shows it


@cli.command("run", "examples/pong.yaml --episodes 20 --record --out runs/tonight")
def run(
    pipeline: cli.Pipeline,
    steps: cli.Steps = None,
    episodes: cli.Episodes = None,
    policy: cli.PolicyName = "random",
    algo: cli.Algorithm = None,
    stats: cli.Statistics = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the environments and of a random policy.")] = None,
    n: cli.Number = None,
    backend: cli.BackendName = None,
    out: cli.Out = None,
    record: cli.Record = False,
    snapshot: cli.Snapshot = None,
    interval: cli.Interval = 10.0,
    watched: cli.Watched = False,
    port: cli.Port = None,
    host: cli.Host = "127.0.0.1",
    settings: cli.Settings = None,
    evaluation: cli.Evaluation = False,
    no_imports: cli.NoImports = False,
) -> int:
    """Step a pipeline under a policy: a live table, a summary, monitor.csv, a picture; with --out a run folder."""
    if no_imports:
        refuse_pickles(policy, stats)
    pickled = stats if stats is not None and stats.suffix == ".pkl" else None
    own = None if stats is None or pickled is not None else str(stats)
    options = {"n": n, "seed": seed, "backend": backend, "stats": own}
    spec = read_pipeline(pipeline, settings, options, evaluation=evaluation, imports=not no_imports)
    if (port is not None or host != "127.0.0.1") and not watched:
        raise SpecError("--port and --host are of the page: expected --watch beside them")
    page = (port, host) if watched else None
    chosen = RunSettings(
        policy=policy,
        algorithm=algo,
        statistics=pickled,
        steps=steps,
        episodes=episodes,
        out=out,
        record=record,
        interval=interval,
        snapshot=snapshot,
        evaluation=evaluation,
        page=page,
    )
    return run_pipeline(spec, chosen, cli.terminal())


def run_pipeline(spec: PipelineSpec, settings: RunSettings, console: Console, loaded: Run | None = None) -> int:
    """Run a pipeline, or a folder's; return the exit status. A failure while stepping is raised after the summary."""
    out = settings.out
    if settings.snapshot is not None and settings.snapshot.suffix not in PICTURES:
        raise PlanError(f'--snapshot: expected a file {", ".join(PICTURES)}, got "{settings.snapshot}"')
    if out is not None:
        refuse_taken(out)
        if spec.seed is None:  # so that the folder can record it
            spec = spec.override(seed=secrets.randbelow(2**31))
    spec = with_images(with_monitor(spec, out))
    if settings.record:
        spec = with_videos(spec, out)
    planned = plan(spec)
    with console.status("starting ...") if console.is_terminal else contextlib.nullcontext():
        pickled = None if settings.statistics is None else partial(use_vec_normalize, settings.statistics)
        env = build_plan(planned, pickled) if loaded is None else rebuild(loaded, spec)
    with contextlib.ExitStack() as files, env, interruptible() as interrupt:
        running = _Running(env, settings, interrupt, console)
        env.action_space.seed(spec.seed)
        act = find_policy(settings.policy, env, settings.algorithm)
        if isinstance(act, TrainedPolicy):
            running.policy = f"{settings.policy} ({act.algorithm})"
            statistics = pickled or planned.pipeline.stats or (loaded and loaded.statistics)
            if statistics is None:
                refuse_nothing_learnt(env, settings.policy)
        if out is None:
            another = "Give another folder with --out, or as the monitor wrapper's dir."
            refuse_taken(seen_from_here(running.folder), another, (PROGRESS, LOG))
        else:
            journal = running.journal = Journal(out, running.record)
            files.callback(journal.close)
            files.enter_context(journal.warnings_too())
        if settings.page is not None:
            from vecwrap.live import page_of

            page = page_of(env, *settings.page)
            files.callback(page.close)
            say_where(page.address, console)
        running.go(act)
        return running.finish()


class _Running:
    """A run from its first step to its summary; ``env`` has a monitor among its wrappers."""

    def __init__(self, env: VecEnv, settings: RunSettings, interrupt: Interrupt, console: Console) -> None:
        self._env = env
        self._settings = settings
        self._interrupt = interrupt
        self._console = console
        self._monitor = env.find(Monitor)
        self._videos = [wrapper for wrapper in env.chain if isinstance(wrapper, Video)]
        assert self._monitor.dir is not None
        assert self._monitor.record is not None
        self.folder = self._monitor.dir
        self.record = self._monitor.record
        self.record.facts["policy"] = settings.policy
        self.journal: Journal | None = None
        self._counted, self._tally = _counted(env, settings)
        self._limit = settings.steps
        if settings.steps is None and settings.episodes is None:
            self._limit = DEFAULT_STEPS
        self._failure: Exception | None = None
        self._picture = "none"
        self._description = repr(env)
        self.policy = settings.policy

    def go(self, act: Policy) -> None:
        """Step until something ends the run, then write what is left to write, take the picture, and close."""
        stopped_by = self._attempt(lambda: self._step(act))
        self._count_restarts()
        if self.journal is not None:
            torn = stopped_by is not None and not isinstance(stopped_by, VecwrapError)  # amid a step of the wrappers
            self.journal.note(self._env, self._tally, torn=torn)
        if stopped_by is None:
            self._attempt(self._take_picture)  # last: rendering may end the process, as without a display
        self._record_end()
        self._attempt(self._env.close)

    def _attempt(self, do: Callable[[], None]) -> BaseException | None:
        """Do what may hang or fail; a second Ctrl-C or a failure is noted and returned, so that the rest can follow."""
        try:
            with self._interrupt.may_stop():
                do()
        except KeyboardInterrupt as error:  # closing is continued at the end
            self._interrupt.asked = True
            return error
        except Exception as error:
            self._failure = self._failure or error
            return error
        return None

    def _step(self, act: Policy) -> None:
        tally, settings = self._tally, self._settings
        player = Player(self._counted, act, where=f"--policy {settings.policy}")
        taken = rollout(
            player, player.act, tally, steps=self._limit, episodes=settings.episodes, interrupt=self._interrupt
        )
        live = Live(console=self._console, transient=True, auto_refresh=False) if self._console.is_terminal else None
        refreshed, due = -math.inf, settings.interval
        with live or contextlib.nullcontext():
            for _ in taken:
                tally.steps = player.steps
                if tally.seconds >= due:
                    due = tally.seconds + settings.interval
                    self._note()
                if live is not None and tally.seconds - refreshed > REFRESH_SECONDS:
                    refreshed = tally.seconds
                    live.update(self._live(), refresh=True)

    def _take_picture(self) -> None:
        self._picture = _save_picture(self._env, self._settings.snapshot or self.folder / "tiles.png")

    def finish(self) -> int:
        """Print the summary, once all files of the environment are closed; return the exit status."""
        summary = self._summary()
        self._record_end()  # again, for closing may have failed
        if self.journal is not None:
            self.journal.say(summary)
            if self._failure is not None:
                self.journal.say(Text(f"error: {said(self._failure)}"))
        self._print(summary)
        if self._failure is not None:
            raise self._failure
        return SIGNALLED + self._interrupt.number if self._interrupt.asked else 0

    # -- while it runs -------------------------------------------------------------------------------------------------

    def _note(self) -> None:
        """Print a line if no table is shown, and write a row to the folder."""
        line = Text("  ".join(f"{name} {value}" for name, value in self._figures()))
        if not self._console.is_terminal:
            self._print(line)
        if self.journal is not None:
            self.journal.say(line)
            self.journal.note(self._env, self._tally)

    def _print(self, what: Text | Table) -> None:
        """Print it; a closed pipe (`| head`) ends a run like Ctrl-C."""
        try:
            self._console.print(what)
        except BrokenPipeError:
            self._console.quiet = True
            self._interrupt.asked, self._interrupt.number = True, signal.SIGPIPE

    def _live(self) -> Table:
        limit, tally = self._limit, self._tally
        done, total = (tally.steps, limit) if limit else (tally.episodes, self._settings.episodes)
        return name_table([*self._figures(), ("", ProgressBar(total or 1, done, width=40))])

    def _figures(self) -> list[tuple[str, str]]:
        self._count_restarts()
        tally, score = self._tally, "-"
        if tally.recent_score is not None:
            mean, spread = tally.recent_score
            score = f"{mean:.2f} ± {spread:.2f} over the last {min(tally.episodes, tally.window)}"
        figures = [
            ("seconds", f"{tally.seconds:.0f}"),
            ("agent steps", f"{tally.steps:,}"),
            ("steps/s", f"{tally.recent_rate:,.0f}"),
            ("episodes", f"{tally.episodes:,}"),
            ("score", score),
        ]
        return [*figures, ("restarts", f"{tally.restarts:,}")] if tally.restarts else figures

    def _count_restarts(self) -> None:
        self._tally.restarts = int(self._env.health().restarts.sum())

    # -- at its end ----------------------------------------------------------------------------------------------------

    def _record_end(self) -> None:
        tally = self._tally
        self.record.end(
            self._end(),
            steps=tally.steps,
            episodes=tally.episodes,
            seconds=round(tally.seconds, 3),
            restarts=tally.restarts,
        )

    def _end(self) -> str:
        if self._failure is not None:
            return f"failed: {said(self._failure)}"
        return f"{INTERRUPTED} by {self._by()}" if self._interrupt.asked else FINISHED

    def _by(self) -> str:
        number = self._interrupt.number
        words = {signal.SIGINT: "Ctrl-C", signal.SIGPIPE: "the closing of its output pipe"}
        return words.get(signal.Signals(number), signal.Signals(number).name)

    def _summary(self) -> Table:
        tally = self._tally
        lines = [("interrupted", f"by {self._by()}; the files are complete")] if self._interrupt.asked else []
        lines += [
            ("environment", self._description),
            ("policy", self.policy),
            ("agent steps", f"{tally.steps:,} in {tally.seconds:.1f} s, {tally.rate:,.0f} a second"),
            ("episodes", f"{tally.episodes:,}"),
        ]
        if tally.episodes:
            scores, lengths = np.array(tally.scores), np.array(tally.lengths)
            lines += [
                ("score", f"{scores.mean():.2f} ± {scores.std():.2f}, from {scores.min():g} to {scores.max():g}"),
                ("length", f"{lengths.mean():.0f} agent steps, from {lengths.min()} to {lengths.max()}"),
            ]
        if tally.restarts:
            lines.append(("restarts", f"{tally.restarts:,} sub-environments were lost and recreated"))
        lines += [("monitor", str(seen_from_here(path))) for path in self._monitor.paths if path.exists()]
        if "tensorboard" in self._monitor.log:
            folder = shlex.quote(str(seen_from_here(self.folder)))
            lines.append(("curves", f"shown by: tensorboard --logdir {folder}"))
        for wrapper in self._videos:
            lines += [("video", str(seen_from_here(path))) for path in wrapper.paths[-3:]]
        lines.append(("picture", self._picture))
        if self._settings.page is not None:
            lines.append(("page", f"shown again by: vecwrap watch {shlex.quote(str(seen_from_here(self.folder)))}"))
        if self.journal is not None:
            whole = self.journal.folder
            lines.append(("folder", f"{whole}, rebuilt by: vecwrap load {shlex.quote(str(whole))}"))
        return name_table(lines)


def _counted(env: VecEnv, settings: RunSettings) -> tuple[VecEnv, Tally]:
    """Return the environment to step, and a tally: in an evaluation, it counts as ``vecwrap.evaluate`` does."""
    if settings.evaluation and settings.episodes is not None:
        monitor = Quota(env, settings.episodes).monitor
        return monitor, Tally(monitor.stats_key, window=settings.episodes)  # the last to end would favour long ones
    return env, Tally(env.find(Monitor).stats_key)


def _save_picture(env: VecEnv, path: Path) -> str:
    """Write a picture of the sub-environments now; return the path, or why there is none."""
    if env.render_mode not in ("rgb_array", "human"):
        cure = draws_none(env.metadata, env.core.env_id) or "a picture needs rgb_array"
        return f"none: the environment renders {env.render_mode or 'nothing'}, {cure}"
    try:
        env.get_images(indices=0)  # try only one first: after a failure, OpenGL would end the process on the next
        image = _picture(env)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = imageio.imwrite("<bytes>", image, extension=path.suffix)
        write_whole(path, lambda file: file.write(content))
    except (VecwrapError, OSError) as error:
        return f"none: {' '.join(str(error).split())}"
    return str(seen_from_here(path))


def _picture(env: VecEnv) -> NDArray[np.uint8]:
    """The picture of all sub-environments: as the pipeline draws it, or else with labels."""
    if any(isinstance(wrapper, (Tile, Viewer)) for wrapper in env.chain):
        return env.picture()
    frames, monitor = env.get_images(one_a_game(env.face, env.core)), env.find(Monitor)
    if len(frames) != monitor.num_envs:  # games of several agents, say, each of which has a score
        return labelled(frames, [(f"#{i}",) for i in range(len(frames))], [False] * len(frames), SIZE)
    scores, lengths, running = monitor.games
    over = ~running | ((lengths == 0) & (env.core.autoreset is Autoreset.SAME_STEP))  # as the wrapper tile has it
    ended = {episode.env: episode for episode in monitor.recent if over[episode.env]}
    for i, episode in ended.items():
        scores[i], lengths[i] = episode[:2]
    return labelled(frames, game_labels(scores, lengths), [i in ended for i in range(len(frames))], SIZE)


# -- load -------------------------------------------------------------------------------------------------------------

_FOR_A_RUN = ("policy", "out", "record", "snapshot", "interval")


@cli.command("load", "runs/tonight --eval --episodes 20 --policy my_agent:act")
def load(
    folder: Annotated[Path, typer.Argument(help="A folder written by `vecwrap run --out`.", metavar="FOLDER")],
    steps: Annotated[
        int | None,
        cli.count_option(help="Agent steps over all sub-environments. Without this and --episodes, nothing is run."),
    ] = None,
    episodes: cli.Episodes = None,
    policy: cli.PolicyName = "random",
    out: Annotated[
        Path | None,
        typer.Option(
            help="A folder to write, as with `vecwrap run`. Default: only monitor.csv and tiles.png, in FOLDER/loaded, "
            "or FOLDER/eval with --eval."
        ),
    ] = None,
    record: cli.Record = False,
    snapshot: cli.Snapshot = None,
    interval: cli.Interval = 10.0,
    settings: cli.Settings = None,
    evaluation: cli.Evaluation = False,
    no_imports: cli.NoImports = False,
    as_json: cli.Json = False,
) -> int:
    """Show a run's folder, check that it can be rebuilt, and with --steps or --episodes run it again."""
    again = steps is not None or episodes is not None
    if as_json and again:
        raise SpecError("load: --json prints the folder's contents; leave out --steps and --episodes, or --json.")
    chosen = RunSettings(
        policy=policy,
        steps=steps,
        episodes=episodes,
        out=out,
        record=record,
        interval=interval,
        snapshot=snapshot,
        evaluation=evaluation,
    )
    default = RunSettings()
    idle = [name for name in _FOR_A_RUN if getattr(chosen, name) != getattr(default, name) and not again]
    if idle:
        options = ", ".join(f"--{name}" for name in idle)
        raise SpecError(f"load: {options}: expected --steps or --episodes too; without them nothing is run.")
    console = cli.terminal()
    if no_imports:
        refuse_pickles(policy, None)
    found = read_run(folder, imports=not no_imports)
    overrides = read_settings(settings)
    places = dict.fromkeys(overrides, Place("--set"))
    if no_imports:
        refuse_imported(found.resolved, overrides, places)
    spec = found.pipeline("eval" if evaluation else "train", overrides, places)
    resolved = plan(spec).pipeline
    findings = check(spec)
    facts = _facts(found, resolved)
    status = int(any(finding.severity == "error" for finding in findings))
    if as_json:
        print_json({**facts, "findings": [finding.to_dict() for finding in findings]}, console)
        return status
    elsewhere = ("rebuilt", "installed")  # by `vecwrap explain`, and by the warnings
    console.print(name_table((name, _words(fact)) for name, fact in facts.items() if name not in elsewhere))
    for name, (then, now) in other_versions(found.facts).items():
        installed = "and is not installed" if now is None else f"and {now} is installed: the stream may differ"
        console.print(
            Text.assemble(("warning", "bold yellow"), f"  {cut(name, 200)} was {cut(then, 200)}, {installed}")
        )
    show_findings(findings, str(found.folder / PIPELINE), console)
    return run_pipeline(spec, chosen, console, loaded=found) if again else status


def _facts(run: Run, resolved: PipelineSpec) -> dict[str, Any]:
    """Everything known about a run, as plain data."""
    facts = {key: value for key, value in run.facts.items() if key not in ("pipeline", "versions")}
    return {
        "folder": str(run.folder),
        "pipeline": run.resolved.hash,
        **facts,
        "statistics": None if run.statistics is None else _statistics(run.statistics),
        "files": _files(run.folder),
        "versions": dict(run.facts.get("versions", {})),
        "installed": {name: now for name, (_, now) in other_versions(run.facts).items()},
        "rebuilt": resolved.to_dict(),
        "rebuilt_hash": resolved.hash,
    }


def _statistics(path: Path) -> dict[str, dict[str, float]]:
    """How many values each wrapper's statistics have seen."""
    state = read_state(path)
    wrappers = zip(reversed(state["chain"]["wrappers"]), state["statistics"], strict=True)
    return {
        name: {key: values["count"] for key, values in statistics.items()}
        for name, statistics in wrappers
        if statistics
    }


def _files(folder: Path) -> list[str]:
    """The files there, except those that a rebuilt run wrote."""
    names = [path.name for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith(".")]
    return names + sorted(f"{VIDEOS}/{path.name}" for path in (folder / VIDEOS).glob("*.mp4"))


def _words(value: Any) -> str:
    """A fact in one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return "-" if value is None else f"{round(value, 2):,.12g}" if isinstance(value, float) else str(value)
