"""``vecwrap explain``: what would be built."""

from rich.console import Console
from rich.text import Text

from vecwrap.commands.output import print_json
from vecwrap.explain import Line
from vecwrap.plan import plan
from vecwrap.spec import PipelineSpec

__all__ = ["explain_pipeline"]

_STYLES = {"head": "bold", "title": "dim", "name": "cyan", "plain": "", "note": "dim"}


def explain_pipeline(spec: PipelineSpec, console: Console, *, as_json: bool = False) -> None:
    """Print the plan of a pipeline, with the actual spaces of its environment.

    Args:
        spec: the pipeline.
        console: where it is shown.
        as_json: print it as JSON instead.

    Raises:
        VecwrapError: it cannot be planned.
    """
    planned = plan(spec).with_spaces()
    if as_json:
        print_json(planned.to_dict(), console)
        return
    for line in planned.lines():
        console.print(_styled(line), no_wrap=True, overflow="ignore", crop=False)


def _styled(line: Line) -> Text:
    text = Text()
    for role, part in line:
        text.append(part, style=_STYLES[role])
    return text
