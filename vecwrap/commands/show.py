"""``vecwrap explain``, ``check`` and ``list``: what can be said without stepping."""

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vecwrap.commands.catalogue import Row, backend_rows, layer_rows
from vecwrap.errors import SpecError, VecwrapError, did_you_mean
from vecwrap.plan import plan
from vecwrap.spec import PipelineSpec

__all__ = ["check_pipelines", "explain_pipeline", "list_names"]


def explain_pipeline(spec: PipelineSpec, console: Console) -> None:
    """Print the plan of a pipeline, with the spaces that its environment turns out to have.

    Raises:
        VecwrapError: where it cannot be planned.
    """
    console.print(Text(str(plan(spec).with_spaces())))


def check_pipelines(files: Sequence[str], read: Callable[[str], PipelineSpec], console: Console) -> int:
    """Print what is wrong with each file; give 1 where anything is, else 0."""
    findings = 0
    for file in files:
        try:
            plan(read(file)).with_spaces()
        except VecwrapError as error:
            findings += 1
            console.print(Text("error ", style="bold red") + Text(str(error)))
        else:
            console.print(Text("good  ", style="bold green") + Text(file))
    return int(findings > 0)


def list_names(names: Sequence[str], console: Console) -> None:
    """Print layers and backends with one line and their parameters.

    Args:
        names: only these; all where there are none.
        console: where it is shown.

    Raises:
        SpecError: for an unknown name.
    """
    layers, backends = layer_rows(), backend_rows()
    known = [row.name for row in (*layers, *backends)]
    for name in names:
        if name not in known:
            remedy = did_you_mean(name, known) or f" Known are {', '.join(known)}."
            raise SpecError(f'list: there is no layer or backend "{name}".{remedy}')
    for title, rows in (("layer", layers), ("backend", backends)):
        chosen = [row for row in rows if not names or row.name in names]
        if chosen:
            console.print(_table(title, chosen))


def _table(title: str, rows: Sequence[Row]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0), header_style="bold")
    table.add_column(title, style="cyan", no_wrap=True)
    if title == "layer":
        table.add_column("runs in", no_wrap=True)
    table.add_column("what it does, and its parameters")
    for row in rows:
        text = Text(row.summary)
        if row.layers:
            text.append(f"\n  = {row.layers}")
        for parameter in row.parameters:
            text.append(f"\n  {parameter}", style="dim")
        if row.owner not in ("", "vecwrap"):
            text.append(f"\n  from {row.owner}", style="dim")
        table.add_row(row.name, *([row.where] if title == "layer" else []), text)
    return table
