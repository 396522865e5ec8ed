"""Write the pages that are made from the name tables: ``make docs``. The tests check that they are current."""

from collections.abc import Callable
from pathlib import Path

from vecwrap.commands.catalogue import Row, backend_rows, layer_rows

LAYERS = """# Layers

Made from the name table and the signatures by `make docs`; edit the docstrings, not this page.

A pipeline lists layers **from the inside out**. Layers that run in a *worker* wrap each sub-environment by itself;
layers that run in the *parent* wrap the vector, and come after them. A *preset* stands for several layers. `vecwrap
list` prints this in the terminal.

"""
BACKENDS = """# Backends

Made from the name table and the signatures by `make docs`; edit the docstrings, not this page.

A backend says how the sub-environments run. For one seed all of them give the same stream, so choosing is a matter of
speed and of debugging alone. `auto`, the default, takes `dummy` for one sub-environment and `shmem` for more; the repr
and `vecwrap explain` say which, and why.

| take | when |
|---|---|
| `dummy` | you debug (`breakpoint()` works), or a step costs less than a message between processes |
| `subprocess` | a space has no fixed size, or memory cannot be shared |
| `shmem` | otherwise |

"""


def layers_page() -> str:
    """The text of wrappers.md."""
    return LAYERS + _overview(layer_rows(), with_where=True) + _details(layer_rows())


def backends_page() -> str:
    """The text of backends.md."""
    return BACKENDS + _overview(backend_rows(), with_where=False) + _details(backend_rows())


def _overview(rows: list[Row], with_where: bool) -> str:
    lines = (
        ["| name | runs in | what it does |", "|---|---|---|"]
        if with_where
        else ["| name | what it does |", "|---|---|"]
    )
    for row in rows:
        where = f" {row.where} |" if with_where else ""
        lines.append(f"| [`{row.name}`](#{row.name}) |{where} {row.summary} |")
    return "\n".join(lines) + "\n"


def _details(rows: list[Row]) -> str:
    text = ""
    for row in rows:
        text += f"\n## {row.name}\n\n{row.summary}\n"
        if row.layers:
            text += f"\nA preset; with its defaults it is `{row.layers}`.\n"
        if row.parameters:
            text += "\n| parameter | |\n|---|---|\n"
            for parameter in row.parameters:
                cells = (f"`{parameter}`", row.help.get(parameter.name, ""))
                text += "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
    return text


PAGES: dict[str, Callable[[], str]] = {"wrappers.md": layers_page, "backends.md": backends_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        Path(__file__).with_name(name).write_text(page(), encoding="utf-8")
