"""``vecwrap bench``: compares a pipeline with its peers; its tables are shared with ``make bench``."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vecwrap.bench.measure import WorkResult
from vecwrap.bench.ours import compare_pipeline
from vecwrap.bench.peers import PEERS, read_names
from vecwrap.bench.report import describe_machine, machine_line, markdown, result_table, to_data
from vecwrap.commands.output import print_json, refuse_unwritable, write_out
from vecwrap.commands.rollout import sigterm_as_ctrl_c
from vecwrap.spec import PipelineSpec

__all__ = ["bench_pipeline", "print_result", "progress"]


def bench_pipeline(
    spec: PipelineSpec,
    *,
    vs: str | None,
    rounds: int,
    seconds: float,
    as_json: bool,
    out: Path | None,
    console: Console,
) -> int:
    """Compare a pipeline with peers; return the exit status.

    Args:
        spec: the pipeline.
        vs: comma-separated names of peers; None: all.
        rounds: how many samples of each contender.
        seconds: how long a sample lasts.
        as_json: print JSON instead of tables.
        out: a file for the Markdown tables.
        console: where it is shown.

    Returns:
        1 if a peer that was requested by name has no figures, else 0; after Ctrl-C or SIGTERM, the shell's status for
        that signal.

    Raises:
        SpecError: the file cannot be written; unless that was detected up front, the tables have been printed.
        VecwrapError: the pipeline cannot be built, or fails.
    """
    peers = list(PEERS) if vs is None else read_names(vs)
    if out is not None:
        refuse_unwritable(out)
    machine = describe_machine()
    with sigterm_as_ctrl_c() as number, progress(console, quiet=as_json) as say:
        try:
            result = compare_pipeline(spec, [PEERS[name] for name in peers], rounds, seconds, say=say)
        except KeyboardInterrupt:
            console.print("interrupted; nothing is left running")
            return 128 + number[0]
    if as_json:
        print_json(to_data(machine, [result], rounds=rounds, seconds=seconds), console)
    else:
        console.print(Text(machine_line(machine), style="dim"))
        print_result(result, console)
    if out is not None:
        write_out(out, markdown(machine, [result]))
    return int(vs is not None and any(m.missing for m in result.measurements if m.side == "peer"))


@contextlib.contextmanager
def progress(console: Console, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """A line that shows what is being measured, on a terminal."""
    if quiet or not console.is_terminal:
        yield lambda text: None
        return
    with console.status("starting ...") as status:
        yield status.update


def print_result(result: WorkResult, console: Console) -> None:
    """Print one piece of work: a table per quantity, then remarks, then the contenders without figures and why."""
    console.print(Text(f"\n{result.title}", style="bold"))
    console.print(Text(result.how, style="dim"))
    for quantity in result.quantities:
        header, *rows = [row[:-1] for row in result_table(result, quantity) if row[1] != "–"]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column(header[0], no_wrap=True)
        for title in header[1:]:
            table.add_column(title, justify="right", no_wrap=True)
        for row in rows:
            table.add_row(*map(Text, row))
        console.print(table)
    for m in result.measurements:
        if m.missing:
            console.print(Text(f"{m.name}: ", style="yellow") + Text(m.missing))
        elif m.note:
            console.print(Text(f"{m.name}: {m.note}", style="dim"))
