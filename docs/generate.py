"""Write the pages that are made from the name tables: ``make docs``. The tests check that they are current."""

import re
import textwrap
from collections.abc import Callable
from pathlib import Path

from vecwrap.commands.catalogue import Row, RuleRow, backend_rows, layer_rows, rule_rows

LAYERS = """# Layers

Made from the name table and the signatures by `make docs`; edit the docstrings, not this page.

A pipeline lists layers **from the inside out**. Layers that run in a *worker* wrap each sub-environment by itself;
layers that run in the *parent* wrap the vector, and come after them. A *preset* stands for several layers. `vecwrap
list` prints the table in the terminal, `vecwrap list NAME` a section.

"""
BACKENDS = """# Backends

Made from the name table and the signatures by `make docs`; edit the docstrings, not this page.

A backend says how the sub-environments run. For one seed all of them give the same stream, so choosing is a matter of
speed and of debugging alone. `auto`, the default, takes `dummy` for one sub-environment and `shmem` for more; the repr
and `vecwrap explain` say which, and why.

| take | when |
|---|---|
| `dummy` | you debug (`breakpoint()` works), or a step costs less than handing it to another process |
| `subprocess` | a space has no fixed size, or memory cannot be shared |
| `ray` | the cores of one machine are not enough ([scaling.md](scaling.md)) |
| `shmem` | otherwise |

[How shmem talks](#how-shmem-talks) and [the parent's share](#the-parents-share) stand below the parameters; which
backend is quickest for a pipeline on a machine, `vecwrap tune` measures.

"""
ENGINE = """
## How shmem talks

One block of memory, which the parent and its workers see, holds the actions, observations, terminal observations,
rewards and flags, and infos as far as they are numbers. An ordinary step makes no message and pickles nothing:

1. The parent writes the actions into the block. Each worker has a *lane* there, a few words: into it the parent puts an
   entry for what is to be stepped, advances its count of entries, and rings the worker's bell.
2. The worker steps what the entries say, in their order, and each result goes straight into its row. Then it advances a
   count of its own, of the entries that are done, and rings back.
3. When all have answered, the parent copies the rows once. These arrays are the ones you get, and keep.

An entry stands for all sub-environments of a worker, or for one of them where only some are sent. With `batch_size`
each row is answered by itself; otherwise a worker answers at once for all that it was asked for.

- **In the block**: Box, Discrete, MultiBinary, MultiDiscrete, Text, and Dict and Tuple of them; infos of at most 16
  numbers (`int`, `float`, `bool`, and NumPy's bool, float32, float64, int32 and int64). Which keys an info has, with
  which types, is learnt from the first of its kind, which itself is sent; from then on there are cells for it.
- **By message, through the pipe**: leaves of other spaces (Graph, Sequence, OneOf, your own); other infos (text,
  arrays, dicts, an integer of more than 64 bits); frames for a recorder; exceptions. In such a step a worker answers by
  message for all its rows. Where actions have such a leaf, steps are asked for by message, too.
- **By message as well, in order with the entries**: resets, `call`, `get_attr`, `set_attr`, which frames are wanted,
  what is to be made anew.

None of it shows: an info has the same values of the same types as on `dummy`, and its columns the same bits. A worker
learns 32 kinds of infos at most; those of further kinds are sent.

### Spinning and sleeping

To be woken takes tens of microseconds, to look at a count less than one. So who waits looks again and again at first:
for four times as long as waits took of late and 50 µs more, 500 µs at most. After that it sleeps until a bell, a
message or the other's death wakes it. Where waits took more than 500 µs of late, it sleeps at once.

Nobody keeps a core that another may need: a worker spins only if there is one beside the parent's and those of the
workers before it, and no more workers than usable cores. A parent with as many workers as usable cores, or more, offers
its core to them between two looks (`sched_yield`): so it goes on when they are done and need not be woken for each.

Who is woken where the parent runs takes its core at once, and a worker that is not woken yet would wait until those
rows are done. So each worker writes down on which core it answered, and those that share the parent's are asked last.

A worker that dies is noticed at once by a parent that sleeps. One that does not sleep, because answers keep coming
through memory, looks every 20 ms.

### Why nothing is read too early

- Each count has one writer, who advances it after writing what it speaks of.
- Who hears a bell sees all that was written before it was rung, on every processor: ringing and hearing pass through a
  lock of the kernel (an eventfd; a pipe where there is none).
- Who spins reads a count without having heard the bell. That is right only where a processor keeps its stores in order
  and its loads in order, as x86-64 does. Elsewhere, arm64 among them, nobody spins or looks at a count: even beside a
  bell that was heard it may be ahead of what that was rung for, so the bell itself says how many entries.
- A bell keeps its count. One that is rung just before somebody falls asleep wakes them all the same, so nobody has to
  say beforehand that they are about to sleep.

## The parent's share

While the workers step, this process only waits. With `parent_share` it steps the last share itself. On two cores there
are then two processes, this one and a worker, instead of three.

- **By itself** it does so with `shmem`, given or chosen by `auto`, on more than one usable core, where the environment
  is one that Gymnasium or ale-py ships, every layer around the sub-environments is Gymnasium's or vecwrap's, and
  nothing asks for isolation: no `workers`, `envs_per_worker`, time limit, `on_failure="restart"` or `batch_size`.
- **`parent_share=True`** does it with environments of your own, too; `workers` are then those beside the parent. It is
  refused beside a time limit, `on_failure="restart"` and `batch_size`, because nothing isolates rows in this process.
- **`parent_share=False`** never does it.

`vecwrap explain` says which it is:

```
backend shmem: 1 worker, 3 sub-environments each, started as fresh interpreters, and 2 in this process, which
    would only wait (parent_share)
```

Its rows run **in `step_wait`**, not in `step_async`. So what a loop does between the two overlaps with the workers'
rows alone; a loop that thinks for long there is better off with `parent_share=False`. `step_wait(timeout=...)` looks at
the clock after each row.

What it costs is isolation, for these rows: an environment that crashes there ends this process, one that hangs there
hangs it, its memory is this process's memory, and what it does to global state is done here. An exception is told as a
worker's is, and costs the other rows nothing; Ctrl-C amid a row comes when that row is done. The stream is the same,
bit for bit.
"""
CHECKS = """# Checks

Made from the rules' docstrings by `make docs`; edit these, not this page.

`vecwrap check` looks for mistakes of order and use before anything is stepped. It makes one sub-environment where the
backend would make it, looks at the spaces before and after each layer, and closes it again. Nothing is written.

```
$ vecwrap check cartpole.yaml
warning  zero_padding  cartpole.yaml:4: wrappers[0] "framestack"
    each episode's first stacks are padded with zeros, which are values like any other in observations (4,) float32.
    fix: Use padding=first.
    see: vecwrap list zero_padding
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
    return BACKENDS + _overview(backend_rows(), with_where=False) + _details(backend_rows()) + ENGINE


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


def _markdown(details: str) -> str:
    """Docstrings are Markdown, but for blocks after two colons and the length of lines."""
    lines = [
        line if line[:1] in "-| " else textwrap.fill(line, 120, break_on_hyphens=False) for line in details.split("\n")
    ]
    return re.sub(r"::\n\n((?:    .*\n?|\n)+)", _block, "\n".join(lines)).rstrip()


def _block(match: re.Match[str]) -> str:
    return f":\n\n```text\n{textwrap.dedent(match[1]).strip()}\n```\n\n"


def _details(rows: list[Row]) -> str:
    text = ""
    for row in rows:
        text += f"\n## {row.name}\n\n{row.summary}\n"
        if row.layers:
            text += f"\nA preset; with its defaults it is `{row.layers}`.\n"
        if row.details:
            text += f"\n{_markdown(row.details)}\n"
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
