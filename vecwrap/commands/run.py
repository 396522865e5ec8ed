"""``vecwrap run``: steps a pipeline under a policy, and says what came of it."""

import contextlib
import signal
from collections.abc import Sequence
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from vecwrap.build import build
from vecwrap.commands.pipelines import with_images, with_monitor
from vecwrap.commands.policies import Policy, find_policy
from vecwrap.commands.rollout import Interrupt, Tally, interruptible, rollout
from vecwrap.errors import VecwrapError
from vecwrap.parts.tiles import tile
from vecwrap.spec import PipelineSpec
from vecwrap.vec_env import VecEnv
from vecwrap.wrappers.monitor import Monitor

__all__ = ["run_pipeline"]

DEFAULT_STEPS = 20_000  # two or three games of random Pong in each of eight sub-environments
INTERRUPTED = 128  # and the signal's number, as shells say it
REFRESH_SECONDS = 0.1


def run_pipeline(
    spec: PipelineSpec,
    *,
    policy: str,
    steps: int | None,
    episodes: int | None,
    out: Path | None,
    console: Console,
) -> int:
    """Run a pipeline; give the exit status.

    Args:
        spec: the pipeline.
        policy: as ``find_policy`` takes it.
        steps: agent steps over all sub-environments; None for a default, or no limit where ``episodes`` is given.
        episodes: stop when so many have ended.
        out: the folder for files; None: the monitor layer's, else one named after the pipeline.
        console: where it is shown.

    Raises:
        VecwrapError: after the summary, where stepping failed.
    """
    if steps is None and episodes is None:
        steps = DEFAULT_STEPS
    spec = with_images(with_monitor(spec, out))
    with console.status("starting ...") if console.is_terminal else contextlib.nullcontext():
        env = build(spec)
    monitor = env.find(Monitor)
    assert monitor.dir is not None
    tally, picture, failure = Tally(monitor.stats_key), "none", None
    with env, interruptible() as interrupt:
        env.action_space.seed(spec.seed)
        act = find_policy(policy, env)
        try:
            _watch(env, act, tally, steps, episodes, interrupt, console)
            picture = _save_picture(env, monitor.dir / "tiles.png")
        except KeyboardInterrupt:  # the second Ctrl-C
            interrupt.asked = True
        except VecwrapError as error:
            failure = error
        description, restarts = repr(env), int(env.health().restarts.sum())
    console.print(_summary(description, policy, tally, interrupt, monitor.paths, picture, restarts))
    if failure is not None:
        raise failure
    return INTERRUPTED + interrupt.number if interrupt.asked else 0


def _watch(
    env: VecEnv,
    policy: Policy,
    tally: Tally,
    steps: int | None,
    episodes: int | None,
    interrupt: Interrupt,
    console: Console,
) -> None:
    """Step to the end behind a live line (none where the output is piped)."""
    steps_taken = rollout(env, policy, tally, steps=steps, episodes=episodes, interrupt=interrupt)
    if not console.is_terminal:
        for _ in steps_taken:
            pass
        return
    columns = SpinnerColumn(), BarColumn(bar_width=24), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(_live(tally), total=steps or episodes)
        refreshed = 0.0
        for _ in steps_taken:
            if tally.seconds - refreshed > REFRESH_SECONDS:
                refreshed = tally.seconds
                progress.update(task, completed=tally.steps if steps else tally.episodes, description=_live(tally))


def _live(tally: Tally) -> str:
    score = "-" if tally.mean_score is None else f"{tally.mean_score:.2f}"
    return (
        f"{tally.steps:,} agent steps  {tally.recent_rate:,.0f} steps/s  "
        f"{tally.episodes:,} episodes  mean score {score}"
    )


def _save_picture(env: VecEnv, path: Path) -> str:
    """Write what the sub-environments look like now; give the path, or why there is none."""
    if env.render_mode != "rgb_array":
        return f"none: the environment renders {env.render_mode or 'nothing'}, a picture needs rgb_array"
    try:
        image = tile(env.get_images())
    except VecwrapError as error:
        return f"none: {' '.join(str(error).split())}"
    path.parent.mkdir(parents=True, exist_ok=True)
    imageio.imwrite(path, image)
    return str(path)


def _summary(
    description: str,
    policy: str,
    tally: Tally,
    interrupt: Interrupt,
    files: Sequence[Path],
    picture: str,
    restarts: int,
) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    if interrupt.asked:
        by = "Ctrl-C" if interrupt.number == signal.SIGINT else signal.Signals(interrupt.number).name
        table.add_row("interrupted", f"by {by}; the files are whole")
    table.add_row("environment", description)
    table.add_row("policy", policy)
    table.add_row("agent steps", f"{tally.steps:,} in {tally.seconds:.1f} s, {tally.rate:,.0f} a second")
    table.add_row("episodes", f"{tally.episodes:,}")
    if tally.episodes:
        scores, lengths = np.array(tally.scores), np.array(tally.lengths)
        table.add_row("score", f"{scores.mean():.2f} ± {scores.std():.2f}, from {scores.min():g} to {scores.max():g}")
        table.add_row("length", f"{lengths.mean():.0f} agent steps, from {lengths.min()} to {lengths.max()}")
    if restarts:
        table.add_row("restarts", f"{restarts:,} sub-environments were lost and made anew")
    for path in files:
        if path.exists():
            table.add_row("monitor", str(path))
    table.add_row("picture", picture)
    return table
