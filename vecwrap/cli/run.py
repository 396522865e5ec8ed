"""``vecwrap run`` steps a pipeline or a recorded run under a policy and reports the results."""

import contextlib
import math
import os
import secrets
import shlex
import signal
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from vecwrap.cli import command as cli
from vecwrap.cli.output import name_table, say_where
from vecwrap.cli.pipelines import read_pipeline_or_run, with_images, with_monitor, with_videos
from vecwrap.cli.progress import about, seconds_left, share_text
from vecwrap.cli.snapshot import SUFFIXES, save_picture
from vecwrap.env.saving import statistics_dict
from vecwrap.env.state_file import write_state
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import PlanError, SpecError, VecwrapError, searched_paths
from vecwrap.pipeline.build import build_plan, rebuild
from vecwrap.pipeline.plan import Plan, plan
from vecwrap.pipeline.run_folder import Run
from vecwrap.pipeline.run_output import folder_of, refuse_unwritable_folder
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.tools.evaluate import EpisodeQuota
from vecwrap.tools.policy_runner import PolicyRunner
from vecwrap.tools.rollout import (
    EpisodeStats,
    Interrupt,
    Policy,
    find_policy,
    interruptible,
    rollout,
)
from vecwrap.tools.trained import (
    TrainedPolicy,
    refuse_nothing_learnt,
    refuse_pickles,
    use_vec_normalize,
)
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.recording.run_files import relative_to_cwd
from vecwrap.wrappers.recording.run_record import (
    FACTS,
    FINISHED,
    INTERRUPTED,
    PIPELINE,
    STATISTICS,
    end_text,
)
from vecwrap.wrappers.video import Video

DEFAULT_STEPS = 20_000  # two or three games of random Pong in each of eight sub-environments
SIGNAL_EXIT_CODE = 128  # plus the signal's number, the shell convention
REFRESH_SECONDS = 0.1


@dataclass(frozen=True)
class RunSettings:
    """How a pipeline is run; the help of ``vecwrap run`` describes each option."""

    policy: str = "random"
    algorithm: str | None = None  # of the model, if the policy is one
    vec_normalize: Path | None = None  # a file of Stable-Baselines3's, with its statistics
    steps: int | None = None
    episodes: int | None = None
    out: Path | None = None
    record: bool = False
    interval: float = 10.0
    snapshot: Path | None = None
    evaluation: bool = False
    page: tuple[int | None, str] | None = None  # the port and the host of a page that shows it


@cli.command("run", cli.RUN, "examples/pong.yaml --episodes 20 --record --out runs/tonight")
def run(
    pipeline: cli.Pipeline,
    n: cli.Number = None,
    backend: cli.BackendName = None,
    seed: Annotated[
        int | None,
        cli.seed_option(
            help="Seed of the environments and of a random policy.", rich_help_panel=cli.WHAT_RUNS
        ),
    ] = None,
    settings: cli.Settings = None,
    evaluation: cli.Evaluation = False,
    no_imports: cli.NoImports = False,
    steps: cli.Steps = None,
    episodes: cli.Episodes = None,
    policy: cli.PolicyName = "random",
    algo: cli.Algorithm = None,
    stats: cli.Statistics = None,
    out: cli.Out = None,
    record: cli.Record = False,
    snapshot: cli.Snapshot = None,
    interval: cli.Interval = 10.0,
    watched: cli.Watched = False,
    port: cli.Port = None,
    host: cli.Host = "127.0.0.1",
) -> int:
    """Step a pipeline, or a recorded run again, under a policy, and report the results.

    A live table is shown while the run goes on, then a summary; a picture and a run folder can be
    written.
    """
    if no_imports:
        refuse_pickles(policy, stats)
    options: dict[str, Any] = {"n": n, "seed": seed, "backend": backend}
    vec_normalize = None
    if stats is not None and stats.suffix == ".pkl":
        vec_normalize = stats
    elif stats is not None:
        options["stats"] = str(stats)
    spec, recorded_run = read_pipeline_or_run(
        pipeline, settings, options, evaluation=evaluation, imports=not no_imports
    )
    if (port is not None or host != "127.0.0.1") and not watched:
        raise SpecError("--port and --host are of the page: expected --watch beside them")
    page = None
    if watched:
        page = (port, host)
    run_settings = RunSettings(
        policy=policy,
        algorithm=algo,
        vec_normalize=vec_normalize,
        steps=steps,
        episodes=episodes,
        out=out,
        record=record,
        interval=interval,
        snapshot=snapshot,
        evaluation=evaluation,
        page=page,
    )
    return run_pipeline(spec, run_settings, cli.terminal(), recorded_run)


def run_pipeline(
    spec: PipelineSpec, settings: RunSettings, console: Console, recorded_run: Run | None
) -> int:
    """Run a pipeline, or a recorded run again with its statistics; return the exit status.

    A failure while stepping is raised after the summary.
    """
    out = settings.out
    if settings.snapshot is not None and settings.snapshot.suffix not in SUFFIXES:
        raise PlanError(
            f'--snapshot: expected a file {", ".join(SUFFIXES)}, got "{settings.snapshot}"'
        )
    if out is not None:
        refuse_taken(out)
        refuse_unwritable_folder(out, "--out", "give another")
        if spec.seed is None:  # so that the folder can record it
            spec = spec.override(seed=secrets.randbelow(2**31))
    needed_by = ""
    if settings.record:
        needed_by = "--record"
    elif settings.snapshot is not None:
        needed_by = "--snapshot"
    spec = with_images(with_monitor(spec, out), needed_by)
    if out is None:
        _refuse_own_folder(spec)
    if settings.record:
        spec = with_videos(spec, out)
    planned = plan(spec)
    starting: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if console.is_terminal:
        starting = console.status(f"starting {_workers(planned)}...")
    with starting:
        if settings.vec_normalize is not None:
            env = build_plan(planned, partial(use_vec_normalize, settings.vec_normalize))
        elif recorded_run is None:
            env = build_plan(planned)
        else:
            env = rebuild(recorded_run, spec)
    with contextlib.ExitStack() as files, env, interruptible() as interrupt:
        in_progress = _RunInProgress(env, settings, interrupt, console)
        in_progress.cannot_draw = planned.environment.missing_to_draw()
        env.action_space.seed(spec.seed)
        act = find_policy(settings.policy, env, settings.algorithm)
        if isinstance(act, TrainedPolicy):
            in_progress.policy = f"{settings.policy} ({act.algorithm})"
            statistics = settings.vec_normalize or planned.pipeline.stats
            if not statistics and (recorded_run is None or recorded_run.statistics is None):
                refuse_nothing_learnt(env, settings.policy)
        if settings.page is not None:
            from vecwrap.live import page_of

            page = page_of(env, *settings.page)
            files.callback(page.close)
            say_where(page.address, console)
        in_progress.run(act)
        return in_progress.finish()


def _workers(planned: Plan) -> str:
    """``"2 workers "``, or ``""`` if everything runs in this process."""
    held, _ = planned.explanation.shares
    if not held:
        return ""
    return f"{len(held)} worker{'s' * (len(held) > 1)} "


@searched_paths(SpecError)
def refuse_taken(folder: Path) -> None:
    """Refuse a folder that holds a run.

    The next run would mix its files with the folder's, or move those aside.
    """
    files = [name for name in (PIPELINE, FACTS, STATISTICS) if (folder / name).exists()]
    if files:
        raise SpecError(
            f"{folder}: there is a run already ({', '.join(files)}), and it stays as it is. Give "
            "another folder with --out, or delete this one. To go on with its statistics: vecwrap "
            f"run {shlex.quote(str(folder))} --steps 20000 --out ANOTHER."
        )


@searched_paths(SpecError)
def _refuse_own_folder(spec: PipelineSpec) -> None:
    """Refuse ``RUN/pipeline.yaml`` if its monitor would write into RUN.

    Running RUN itself writes into another folder.
    """
    file = Path(spec.source.location.file or ".")
    folder = folder_of(spec, "monitor")
    assert folder is not None
    is_own = file.name == PIPELINE and os.path.realpath(file.parent) == os.path.realpath(folder)
    if (folder / FACTS).exists() and is_own:
        refuse_taken(relative_to_cwd(file.parent))


class _RunInProgress:
    """A run from its first step to its summary; ``env`` has a monitor among its wrappers."""

    def __init__(
        self, env: VecEnv, settings: RunSettings, interrupt: Interrupt, console: Console
    ) -> None:
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
        self._stepped_env, self._episode_stats = _with_episode_stats(env, settings)
        self._max_steps = settings.steps
        if settings.steps is None and settings.episodes is None:
            self._max_steps = DEFAULT_STEPS
        self._failure: Exception | None = None
        self._picture = "none"
        self.cannot_draw = ""  # which package is missing to draw, or ""
        self._description = repr(env)
        self.policy = settings.policy

    def run(self, act: Policy) -> None:
        """Step until the run ends, then write the rest, take the picture, and close."""
        stopped_by = self._attempt(lambda: self._step(act))
        self.record.update(**self._counts())
        # any other error may have come in the middle of the wrappers' step
        if stopped_by is None or isinstance(stopped_by, VecwrapError):
            self._write_statistics()
        if stopped_by is None:
            # last, because rendering may end the process, as without a display
            self._attempt(self._take_picture)
        self._record_end()
        self._attempt(self._env.close)

    def _attempt(self, task: Callable[[], None]) -> BaseException | None:
        """Run a task that may hang or fail; record and return an interrupt or a failure.

        The remaining tasks of the run can then follow, even after a second Ctrl-C.
        """
        try:
            with self._interrupt.may_stop():
                task()
        except KeyboardInterrupt as error:  # closing is continued at the end
            self._interrupt.is_requested = True
            return error
        except Exception as error:
            self._failure = self._failure or error
            return error
        return None

    def _step(self, act: Policy) -> None:
        episode_stats = self._episode_stats
        settings = self._settings
        policy_runner = PolicyRunner(self._stepped_env, act, where=f"--policy {settings.policy}")
        steps = rollout(
            policy_runner,
            policy_runner.act,
            episode_stats,
            steps=self._max_steps,
            episodes=settings.episodes,
            interrupt=self._interrupt,
        )
        live = None
        if self._console.is_terminal:
            live = Live(console=self._console, transient=True, auto_refresh=False)
        refreshed_at = -math.inf
        write_at = settings.interval
        with live or contextlib.nullcontext():
            for _ in steps:
                episode_stats.steps = policy_runner.steps
                if episode_stats.seconds >= write_at:
                    write_at = episode_stats.seconds + settings.interval
                    self._write_progress()
                if live is not None and episode_stats.seconds - refreshed_at > REFRESH_SECONDS:
                    refreshed_at = episode_stats.seconds
                    live.update(self._live_table(), refresh=True)

    def _take_picture(self) -> None:
        if self.cannot_draw:
            self._picture = f"none: {self.cannot_draw}"
            return
        self._picture = save_picture(
            self._env, self._settings.snapshot or self.folder / "tiles.png"
        )

    def finish(self) -> int:
        """Print the summary after all files are closed, and return the exit status."""
        summary = self._summary()
        self._record_end()  # again, because closing may have failed
        self._print(summary)
        if self._failure is not None:
            raise self._failure
        if self._interrupt.is_requested:
            return SIGNAL_EXIT_CODE + self._interrupt.number
        return 0

    # -- while it runs -----------------------------------------------------------------------------

    def _write_progress(self) -> None:
        """Write counts and statistics, and print a line if no table is shown.

        A kill would lose counts and statistics that are not written.
        """
        if not self._console.is_terminal:
            self._print(Text("  ".join(f"{name} {value}" for name, value in self._figures())))
        self.record.update(**self._counts())
        self._write_statistics()

    def _write_statistics(self) -> None:
        """Write the running statistics into the folder of ``--out``; a full disk only warns."""
        state = statistics_dict(self._env)
        if self._settings.out is None or not any(state["statistics"]):
            return
        path = self.folder / STATISTICS
        try:
            write_state(path, state)
        except OSError as error:
            warnings.warn(
                f"--out: {path} cannot be written ({error}); the run goes on; what was written "
                "stays",
                RuntimeWarning,
                stacklevel=1,  # one warning, wherever it is called from
            )

    def _print(self, text: Text | Table) -> None:
        """Print a text; a closed pipe (`| head`) ends a run like Ctrl-C."""
        try:
            self._console.print(text)
        except BrokenPipeError:
            self._console.quiet = True
            self._interrupt.is_requested = True
            self._interrupt.number = signal.SIGPIPE

    def _live_table(self) -> Table:
        done = self._episode_stats.episodes
        total = self._settings.episodes
        if self._max_steps:
            done = self._episode_stats.steps
            total = self._max_steps
        return name_table([*self._figures(), ("", ProgressBar(total or 1, done, width=40))])

    def _figures(self) -> list[tuple[str, str]]:
        episode_stats = self._episode_stats
        score = "-"
        if episode_stats.recent_score is not None:
            mean, spread = episode_stats.recent_score
            score = (
                f"{mean:.2f} ± {spread:.2f} over the last "
                f"{min(episode_stats.episodes, episode_stats.window)}"
            )
        figures = [
            ("seconds", f"{episode_stats.seconds:.0f}"),
            ("agent steps", share_text(episode_stats.steps, self._max_steps)),
            ("steps/s", f"{episode_stats.recent_rate:,.0f}"),
            ("episodes", share_text(episode_stats.episodes, self._settings.episodes)),
            ("score", score),
        ]
        remaining = seconds_left(
            episode_stats.seconds,
            (episode_stats.steps, self._max_steps),
            (episode_stats.episodes, self._settings.episodes),
        )
        if remaining is not None:
            figures.insert(1, ("time left", about(remaining)))
        if self._restarts:
            return [*figures, ("restarts", f"{self._restarts:,}")]
        return figures

    @property
    def _restarts(self) -> int:
        return int(self._env.health().restarts.sum())

    # -- at its end --------------------------------------------------------------------------------

    def _counts(self) -> dict[str, Any]:
        episode_stats = self._episode_stats
        return {
            "steps": episode_stats.steps,
            "episodes": episode_stats.episodes,
            "seconds": round(episode_stats.seconds, 3),
            "restarts": self._restarts,
        }

    def _record_end(self) -> None:
        self.record.end(self._end(), **self._counts())

    def _end(self) -> str:
        if self._failure is not None:
            return f"failed: {end_text(self._failure)}"
        if self._interrupt.is_requested:
            return f"{INTERRUPTED} by {self._interrupted_by()}"
        return FINISHED

    def _interrupted_by(self) -> str:
        number = signal.Signals(self._interrupt.number)
        causes = {signal.SIGINT: "Ctrl-C", signal.SIGPIPE: "the closing of its output pipe"}
        return causes.get(number, number.name)

    def _summary(self) -> Table:
        episode_stats = self._episode_stats
        lines = []
        if self._interrupt.is_requested:
            lines = [("interrupted", f"by {self._interrupted_by()}; the files are complete")]
        lines += [
            ("environment", self._description),
            ("policy", self.policy),
            (
                "agent steps",
                (
                    f"{episode_stats.steps:,} in {episode_stats.seconds:.1f} s, "
                    f"{episode_stats.rate:,.0f} a second"
                ),
            ),
            ("episodes", f"{episode_stats.episodes:,}"),
        ]
        if episode_stats.episodes:
            scores = np.array(episode_stats.scores)
            lengths = np.array(episode_stats.lengths)
            lines += [
                (
                    "score",
                    (
                        f"{scores.mean():.2f} ± {scores.std():.2f}, from {scores.min():g} to "
                        f"{scores.max():g}"
                    ),
                ),
                (
                    "length",
                    f"{lengths.mean():.0f} agent steps, from {lengths.min()} to {lengths.max()}",
                ),
            ]
        if self._restarts:
            lines.append(
                ("restarts", f"{self._restarts:,} sub-environments were lost and recreated")
            )
        lines += [
            ("monitor", str(relative_to_cwd(path))) for path in self._monitor.paths if path.exists()
        ]
        if "tensorboard" in self._monitor.logs:
            folder = shlex.quote(str(relative_to_cwd(self.folder)))
            lines.append(("curves", f"shown by: tensorboard --logdir {folder}"))
        for wrapper in self._videos:
            lines += [("video", str(relative_to_cwd(path))) for path in wrapper.paths[-3:]]
        lines.append(("picture", self._picture))
        if self._settings.page is not None:
            lines.append(
                (
                    "page",
                    (
                        "shown again by: vecwrap watch "
                        f"{shlex.quote(str(relative_to_cwd(self.folder)))}"
                    ),
                )
            )
        if self._settings.out is not None:
            out = str(self._settings.out)
            lines.append(("folder", f"{out}, run again by: vecwrap run {shlex.quote(out)}"))
        return name_table(lines)


def _with_episode_stats(env: VecEnv, settings: RunSettings) -> tuple[VecEnv, EpisodeStats]:
    """Return the environment to step and its episode statistics.

    In an evaluation, episodes are counted as ``vecwrap.evaluate`` counts them.
    """
    if settings.evaluation and settings.episodes is not None:
        monitor = EpisodeQuota(env, settings.episodes).monitor
        # of all, because the last ones to end are the long ones
        return monitor, EpisodeStats(monitor, window=settings.episodes)
    return env, EpisodeStats(env.find(Monitor))
