"""Write the pages that are made from the name tables: ``make docs``. The tests check that they are current."""

import textwrap
from collections.abc import Callable
from pathlib import Path

from vecwrap.commands.catalogue import Row, RuleRow, backend_rows, layer_rows, rule_rows

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
CHECKS = """# Checks

Made from the rules' docstrings by `make docs`; edit these, not this page.

`vecwrap check` looks for mistakes of order and use before anything is stepped. It makes one sub-environment where the
backend would make it, looks at the spaces before and after each layer, and closes it again. Nothing is written.

```
$ vecwrap check cartpole.yaml
warning  zero_padding  cartpole.yaml:4: wrappers[0] "framestack"
    each episode's first stacks are filled up with zeros, which are values like others in observations (4,) float32.
    fix: Take padding=first.
    see: docs/checks.md#zero_padding
```

An **error** is what `build` would refuse. A **warning** can be built, and is probably not what is meant. The exit
status is 1 where there is an error, and 2 where the call itself cannot be used. For continuous integration, `--strict`
makes it 1 for warnings too, and asks for a seed. `--ignore ID` leaves out what is meant so, `--json` prints a list of
findings, `--eval` looks at the evaluation that belongs to the pipeline, and `vecwrap list ID` prints a section of this
page.

In Python, `vecwrap.check` takes whatever `build` takes, and an engine as `vecwrap.wrap` takes it:

```python
import vecwrap

findings = vecwrap.check("CartPole-v1", n=2, wrappers=["framestack:4"], backend="dummy")
assert [(finding.id, finding.severity) for finding in findings] == [("zero_padding", "warning")]
print(findings[0])  # where, what is wrong, and what to do
assert vecwrap.check("CartPole-v1", n=2, wrappers=["framestack:4,padding=first"], backend="dummy") == ()
```

`vecwrap.build` says nothing of warnings: a pipeline is checked once, when it is written, and built a thousand times, in
tests that make errors of warnings too. [A rule of your own](adding-a-wrapper.md#a-rule-of-your-own) is one function.

"""


def layers_page() -> str:
    """The text of wrappers.md."""
    return LAYERS + _overview(layer_rows(), with_where=True) + _details(layer_rows())


def backends_page() -> str:
    """The text of backends.md."""
    return BACKENDS + _overview(backend_rows(), with_where=False) + _details(backend_rows())


def checks_page() -> str:
    """The text of checks.md."""
    rows = rule_rows()
    lines = ["| finding | | what it finds |", "|---|---|---|"]
    lines += [f"| [`{row.name}`](#{row.name}) | {row.kind} | {row.summary} |" for row in rows]
    return CHECKS + "\n".join(lines) + "\n" + "".join(map(_check, rows))


def _check(row: RuleRow) -> str:
    reasons = "\n\n".join(textwrap.fill(paragraph, 120) for paragraph in row.reasons.split("\n\n"))
    text = f"\n## {row.name}\n\n*{row.kind.capitalize()}.* {row.summary}\n\n{reasons}\n"
    if row.wrong:
        width = max(len(row.wrong), len(row.right)) + 3
        text += f"\n```\n{row.wrong.ljust(width)}# found\n{row.right.ljust(width)}# good\n```\n"
    return text


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
        if row.at_end:
            text += f"\nAt an episode's end: {row.at_end[:1].lower()}{row.at_end[1:]}\n"
        if row.parameters:
            text += "\n| parameter | |\n|---|---|\n"
            for parameter in row.parameters:
                cells = (f"`{parameter}`", row.help.get(parameter.name, ""))
                text += "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
    return text


PAGES: dict[str, Callable[[], str]] = {
    "wrappers.md": layers_page,
    "backends.md": backends_page,
    "checks.md": checks_page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        Path(__file__).with_name(name).write_text(page(), encoding="utf-8")
