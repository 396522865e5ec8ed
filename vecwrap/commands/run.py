"""``vecwrap run``: steps a pipeline under a policy, and reports the results."""

import contextlib
import secrets
import shlex
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from vecwrap.build import build_plan, rebuild
from vecwrap.commands.journal import Journal
from vecwrap.commands.output import discard_output, name_table
from vecwrap.commands.pipelines import with_images, with_monitor, with_videos
from vecwrap.commands.rollout import Interrupt, StepCounter, Tally, find_policy, interruptible, rollout
from vecwrap.errors import PlanError, SpecError, VecwrapError, text_of
from vecwrap.evaluate import Quota
from vecwrap.parts.run_files import seen_from_here, try_folder
from vecwrap.plan import plan
from vecwrap.run_folder import Run, refuse_taken
from vecwrap.spec import PipelineSpec
from vecwrap.vec_env import VecEnv
from vecwrap.whole_file import write_whole
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.video import Video

__all__ = ["RunSettings", "run_pipeline"]

DEFAULT_STEPS = 20_000  # two or three games of random Pong in each of eight sub-environments
PICTURES = (".png", ".jpg", ".webp")
INTERRUPTED = 128  # plus the signal's number, the shell convention
REFRESH_SECONDS = 0.1


@dataclass(frozen=True)
class RunSettings:
    """How a pipeline is run.

    Attributes:
        policy: as ``find_policy`` takes it.
        steps: agent steps over all sub-environments; None for a default, or no limit if ``episodes`` is given.
        episodes: stop after this many; in an evaluation, when each sub-environment has met its quota.
        out: the folder to write; None: only monitor.csv and the picture, in the monitor layer's folder or else in one
            named after the pipeline.
        record: whether to record videos.
        interval: seconds between rows of progress, and between lines if the output is piped.
        snapshot: the file for the picture; None: ``tiles.png`` in the folder.
        evaluation: whether this is the pipeline's evaluation.
    """

    policy: str = "random"
    steps: int | None = None
    episodes: int | None = None
    out: Path | None = None
    record: bool = False
    interval: float = 10.0
    snapshot: Path | None = None
    evaluation: bool = False


def run_pipeline(spec: PipelineSpec, settings: RunSettings, console: Console, loaded: Run | None = None) -> int:
    """Run a pipeline; return the exit status.

    Args:
        spec: the pipeline.
        settings: how to run it.
        console: where it is shown.
        loaded: the run folder that it was loaded from, whose statistics it uses.

    Raises:
        VecwrapError: stepping failed; raised after the summary, like any other exception of a layer.
    """
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
        env = build_plan(planned) if loaded is None else rebuild(loaded, spec)
    with contextlib.ExitStack() as files, env, interruptible() as interrupt:
        running = _Running(env, settings, interrupt, console)
        env.action_space.seed(spec.seed)
        act = find_policy(settings.policy, env)
        if out is None:
            _refuse_unwritable(seen_from_here(running.folder))
        else:
            journal = running.journal = Journal(out, planned, {"policy": settings.policy})
            files.callback(journal.close)
            files.enter_context(journal.warnings_too())
        running.go(act)
        running.close()
        return running.finish()


class _Running:
    """A run from its first step to its summary.

    Args:
        env: with a monitor among its layers.
        settings: how it is run.
        interrupt: whether the user wants to stop.
        console: where it is shown.
    """

    def __init__(self, env: VecEnv, settings: RunSettings, interrupt: Interrupt, console: Console) -> None:
        self._env = env
        self._settings = settings
        self._interrupt = interrupt
        self._console = console
        self._monitor = env.find(Monitor)
        self._videos = [layer for layer in env.layers if isinstance(layer, Video)]
        assert self._monitor.dir is not None
        self.folder = self._monitor.dir
        self.journal: Journal | None = None
        self._counted, self._tally = _counted(env, settings)
        self._failure: Exception | None = None
        self._picture = "none"
        self._description = repr(env)
        self._restarts = 0

    def go(self, act: Callable[..., object]) -> None:
        """Step until something ends the run."""
        limit = self._settings.steps
        if limit is None and self._settings.episodes is None:
            limit = DEFAULT_STEPS
        counter = StepCounter(self._counted)
        steps_taken = rollout(
            counter, act, self._tally, steps=limit, episodes=self._settings.episodes, interrupt=self._interrupt
        )
        torn = False
        try:
            with self._interrupt.may_stop(), self._shown(limit) as show:
                due = self._settings.interval
                for _ in steps_taken:
                    self._tally.steps = counter.steps
                    if self._tally.seconds >= due:
                        due = self._tally.seconds + self._settings.interval
                        self._note()
                    show()
        except KeyboardInterrupt:  # the second Ctrl-C
            self._interrupt.asked = torn = True
        except (Exception, SystemExit) as error:
            self._failure = _as_failure(error)
            torn = not isinstance(error, VecwrapError)  # a layer raised during a step
        self._count_restarts()
        if self.journal is not None:
            self.journal.note(self._env, self._tally, self._restarts, torn=torn)
        if not torn and self._failure is None:
            self._take_picture()

    def _take_picture(self) -> None:
        """Take the picture after everything else is written: rendering may end the process, as without a display."""
        try:
            with self._interrupt.may_stop():
                self._picture = _save_picture(self._env, self._settings.snapshot or self.folder / "tiles.png")
        except KeyboardInterrupt:  # the second Ctrl-C
            self._interrupt.asked = True
        except (Exception, SystemExit) as error:
            self._failure = _as_failure(error)

    def close(self) -> None:
        """Close the environment; even if a layer fails at that, the summary and the folder are completed."""
        try:
            with self._interrupt.may_stop():
                self._env.close()
        except KeyboardInterrupt:  # the second Ctrl-C; closing is continued at the end
            self._interrupt.asked = True
        except (Exception, SystemExit) as error:
            self._failure = self._failure or _as_failure(error)

    def finish(self) -> int:
        """Print the summary, once all files of the environment are closed; return the exit status."""
        summary, end = self._summary(), self._end()
        if self.journal is not None:
            self.journal.say(summary)
            if self._failure is not None:
                self.journal.say(Text(f"error: {_said(self._failure)}"))
            self.journal.end(end, self._tally, self._restarts)
        self._print(summary)
        if self._failure is not None:
            raise self._failure
        return INTERRUPTED + self._interrupt.number if self._interrupt.asked else 0

    # -- while it runs -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _shown(self, limit: int | None) -> Iterator[Callable[[], None]]:
        """A live table on a terminal; nothing if the output is piped, which gets lines instead."""
        if not self._console.is_terminal:
            yield lambda: None
            return
        with Live(console=self._console, transient=True, auto_refresh=False) as live:
            live.update(self._live(limit), refresh=True)
            refreshed = 0.0

            def show() -> None:
                nonlocal refreshed
                if self._tally.seconds - refreshed > REFRESH_SECONDS:
                    refreshed = self._tally.seconds
                    self._count_restarts()
                    live.update(self._live(limit), refresh=True)

            yield show

    def _note(self) -> None:
        """Print a line if no table is shown, and write a row to the folder."""
        self._count_restarts()
        line = Text("  ".join(f"{name} {value}" for name, value in self._figures()))
        if not self._console.is_terminal:
            self._print(line)
        if self.journal is not None:
            self.journal.say(line)
            self.journal.note(self._env, self._tally, self._restarts)

    def _print(self, what: Text | Table) -> None:
        """Print it; a closed pipe (`| head`) ends a run like Ctrl-C, a full disk does not."""
        try:
            self._console.print(what)
        except BrokenPipeError:
            self._console.quiet = True
            self._interrupt.asked, self._interrupt.number = True, signal.SIGPIPE
        except OSError as error:
            self._console.quiet = True
            discard_output()
            warnings.warn(
                f"standard output cannot be written ({error}); the run goes on and prints nothing more",
                RuntimeWarning,
                stacklevel=2,
            )

    def _live(self, limit: int | None) -> Table:
        done, total = (self._tally.steps, limit) if limit else (self._tally.episodes, self._settings.episodes)
        return name_table([*self._figures(), ("", ProgressBar(total or 1, done, width=40))])

    def _figures(self) -> list[tuple[str, str]]:
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
        return [*figures, ("restarts", f"{self._restarts:,}")] if self._restarts else figures

    def _count_restarts(self) -> None:
        self._restarts = int(self._env.health().restarts.sum())

    # -- at its end ----------------------------------------------------------------------------------------------------

    def _end(self) -> str:
        if self._failure is not None:
            return f"failed: {_said(self._failure)}"
        return f"interrupted by {self._by()}" if self._interrupt.asked else "finished"

    def _by(self) -> str:
        number = self._interrupt.number
        words = {signal.SIGINT: "Ctrl-C", signal.SIGPIPE: "the closing of its output pipe"}
        return words.get(signal.Signals(number), signal.Signals(number).name)

    def _summary(self) -> Table:
        tally = self._tally
        lines: list[tuple[str, str]] = []
        if self._interrupt.asked:
            lines.append(("interrupted", f"by {self._by()}; the files are complete"))
        lines.append(("environment", self._description))
        lines.append(("policy", self._settings.policy))
        lines.append(("agent steps", f"{tally.steps:,} in {tally.seconds:.1f} s, {tally.rate:,.0f} a second"))
        lines.append(("episodes", f"{tally.episodes:,}"))
        if tally.episodes:
            scores, lengths = np.array(tally.scores), np.array(tally.lengths)
            lines.append(
                ("score", f"{scores.mean():.2f} ± {scores.std():.2f}, from {scores.min():g} to {scores.max():g}")
            )
            lines.append(("length", f"{lengths.mean():.0f} agent steps, from {lengths.min()} to {lengths.max()}"))
        if self._restarts:
            lines.append(("restarts", f"{self._restarts:,} sub-environments were lost and recreated"))
        lines += [("monitor", str(seen_from_here(path))) for path in self._monitor.paths if path.exists()]
        lines += [("video", path) for path in _first([path for layer in self._videos for path in layer.paths])]
        lines.append(("picture", self._picture))
        if self.journal is not None:
            folder = self.journal.folder
            lines.append(("folder", f"{folder}, rebuilt by: vecwrap load {shlex.quote(str(folder))}"))
        return name_table(lines)


def _counted(env: VecEnv, settings: RunSettings) -> tuple[VecEnv, Tally]:
    """Return the environment to step, and a tally: in an evaluation, it counts as ``vecwrap.evaluate`` does."""
    if settings.evaluation and settings.episodes is not None:
        quota = Quota(env, settings.episodes)
        return quota, Tally(quota.stats_key, window=settings.episodes)  # the last to end would favour long ones
    return env, Tally(env.find(Monitor).stats_key)


def _refuse_unwritable(folder: Path) -> None:
    """Refuse a monitor folder that contains a run or cannot be written; most pipelines do not name it themselves."""
    remedy = "Give another folder with --out, or as the monitor layer's dir."
    refuse_taken(folder, remedy)
    try:
        try_folder(folder)
    except OSError as error:
        raise SpecError(
            f"{folder}: expected a folder that files can be written to: {error.strerror}. {remedy}"
        ) from error


def _as_failure(error: Exception | SystemExit) -> Exception:
    """Turn a layer's sys.exit into a failure, because the command's exit status is not the layer's."""
    if isinstance(error, Exception):
        return error
    failure = VecwrapError(f"a layer called sys.exit({error.code!r}); expected an error, which says what is wrong")
    failure.__cause__ = error
    return failure


def _said(error: Exception) -> str:
    """An exception's message; for one that is not vecwrap's, with its kind."""
    return str(error) if isinstance(error, VecwrapError) else f"{type(error).__name__}: {text_of(error)}"


def _first(paths: Sequence[Path], most: int = 3) -> list[str]:
    """A few of many."""
    rest = [f"and {len(paths) - most:,} more"] if len(paths) > most else []
    return [*(str(seen_from_here(path)) for path in paths[:most]), *rest]


def _save_picture(env: VecEnv, path: Path) -> str:
    """Write a picture of the sub-environments now; return the path, or why there is none."""
    if env.render_mode not in ("rgb_array", "human"):
        return f"none: the environment renders {env.render_mode or 'nothing'}, a picture needs rgb_array"
    try:
        env.get_images(indices=0)  # try only one first: after a failure, OpenGL would end the process on the next
        image = env.picture()
        path.parent.mkdir(parents=True, exist_ok=True)
        content = imageio.imwrite("<bytes>", image, extension=path.suffix)
        write_whole(path, lambda file: file.write(content))
    except (VecwrapError, OSError) as error:
        return f"none: {' '.join(str(error).split())}"
    return str(seen_from_here(path))
