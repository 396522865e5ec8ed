"""Write the pages that are made from the name tables: ``make docs``.

The tests check that they are current.
"""

import re
import textwrap
from collections.abc import Callable
from pathlib import Path

from vecwrap.cli.listing import RuleRow, rule_rows
from vecwrap.cli.names import Row, backend_rows, wrapper_rows

WRAPPERS = """# Wrappers

Generated from the name table and the signatures by `make docs`; edit the docstrings, not this page.

A pipeline lists wrappers **from the inside out**. Wrappers that run in a *worker* wrap each sub-environment separately;
wrappers that run in the *parent* wrap the vector, and come after them. A *preset* stands for several wrappers.
`vecwrap list` prints the table in the terminal, `vecwrap list NAME` a section.

"""
BACKENDS = """# Backends

Generated from the name table and the signatures by `make docs`; edit the docstrings, not this page.

A backend determines how the sub-environments run. For a given seed all of them give the same stream, so the choice
affects only speed and debugging. `auto`, the default, uses `dummy` for one sub-environment, and for more of them where
a step is known to cost less than handing it to another process (CartPole without wrappers of its own: up to 25
sub-environments on two cores); otherwise `shmem`. Settings that ask for workers get `shmem`. The repr and
`vecwrap explain` say which it is, and why; the stream is the same.

| use | when |
|---|---|
| `dummy` | you are debugging (`breakpoint()` works), or a step costs less than handing it to another process |
| `threads` | steps wait for something outside (a socket, a simulator); nothing is isolated |
| `subprocess` | a space has no fixed size, or memory cannot be shared |
| `ray` | one machine's cores are not enough ([scaling.md](scaling.md)) |
| `shmem` | otherwise |

On `threads`, steps that wait do so side by side. Where they compute, Python's global lock costs more than a second core
gains, even if most of a step is outside of Python: on two cores, eight HalfCheetah-v5 took 11,000 environment steps a
second on `threads`, 21,900 on `dummy` and 27,300 on `shmem`; eight Pongs under `atari` and `framestack:4` took 1,960,
3,090 and 3,840 (`python -m benchmarks.beside --only threads`).

[How shmem talks](#how-shmem-talks) and [the parent's share](#the-parents-share) are described below the parameters.
`vecwrap tune` measures which backend is fastest for a pipeline on your machine.

"""
ENGINE = """
## Engines

An engine is a vector environment that steps several sub-environments at once: CartPole's and ale-py's own vector
classes, EnvPool, anything else that is a `gymnasium.vector.VectorEnv`. `engine` names one ([engines.md](engines.md)), with
all rows in this process. `envs_per_engine` says how many rows each of several has, without `engine` of the class that is
registered; they are then distributed over the processes or threads of a backend as sub-environments are:

```python
import vecwrap

settings = {
    "n": 256,
    "envs_per_engine": 128,
    "wrappers": ["framestack:4", "monitor"],
}
with vecwrap.build("CartPole-v1", backend={"name": "shmem", "workers": 2}, **settings) as env:
    observations, infos = env.reset(seed=1)
    assert [len(worker.env_ids) for worker in env.health().workers] == [128, 128]
```

For an id, the vector class that is registered with it is made, with `env_kwargs`; a callable makes the engine, and gets
`num_envs` if it takes that. Rows are numbered and seeded as always: each engine's `reset` gets `seed + start_index`
plus its first row. (EnvPool ignores the seeds of a reset; `engine: envpool` makes it with them.)

- **The autoreset mode is the engine's** where its class declares one; of what a function makes, set `autoreset` to what it
  declares, or the error says which that is.
- **Its rows step together**: `send` takes all rows of an engine or none, and `batch_size` is a multiple of them. They
  also fail together.
- **Restarts**: with `on_failure="restart"` an engine in a worker is recreated when it raises, when its worker dies, or
  when it exceeds `step_timeout`, and its rows go on as [lost sub-environments do](reliability.md). They begin together:
  in next-step mode a row that was about to be reset shows its end once more (reward 0, no action taken, no second
  episode), while the rows beside it end. Its rows get consecutive seeds, from
  `numpy.random.SeedSequence([seed, restarts]).generate_state(1)[0] % 2**30` on, where `seed` was the first row's. In
  this process (`dummy`, `threads`) it is refused, because a crash there would end the program.
- **Masked resets** work where an engine is known to honour `reset_mask` (Gymnasium's Sync and Async); of others whole
  engines can be reset.
- **Wrappers of the vector work unchanged**; those of single environments (`time_limit`, `atari`) are the engine's own, or
  refused. Infos stay columns, in other processes too.
- `call`, `get_attr` and `set_attr` reach the engine's sub-environments if it has these methods; saved states have the
  wrappers, and not the engine's own state.

`n` and `envs_per_engine` belong to the pipeline and its hash; how engines are distributed does not. An engine that
exists already is wrapped by `vecwrap.wrap`.

### Engines that return some of their rows at a time

EnvPool and ale-py can be made with a `batch_size`: they then step all rows in threads of their own, and return those
that are done first. `wrap` takes such an engine as it is. `recv` returns as many rows, `infos["env_id"]` says which, and
the wrappers keep their statistics and histories by row:

```python
import envpool
import vecwrap

engine = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=8, batch_size=4, seed=1)
with vecwrap.wrap(engine, ["framestack:4", "monitor"]) as env:
    env.reset_async()
    for _ in range(100):
        observations, rewards, terminations, truncations, infos = env.recv()
        assert observations.shape == (4, 4, 4)
        env.send([1] * 4, env_ids=infos["env_id"])
```

- **EnvPool** takes actions for any multiple of `batch_size` rows that are not in flight, and also `reset()` and `step`
  of all rows.
- **ale-py** takes actions for the rows alone that it returned last. So it begins with `reset_async(seed=...)` and
  `recv()`; then `send` and `recv` take turns. `reset()` and `step`, which need all rows, are refused.
- Each row's stream is that of the engine without `batch_size`. Which rows arrive together depends on the threads, so
  wrappers with statistics over all rows (`normalize`) differ from run to run.
- The autoreset mode is the engine's own. Masked resets, frames, and Gymnasium's wrappers around the engine are refused,
  as is a `num_envs` that is not a multiple of `batch_size`.

## How shmem talks

One block of memory, shared by the parent and its workers, holds the actions, observations, terminal observations,
rewards and flags, and the numeric infos. An ordinary step sends no message and pickles nothing:

1. The parent writes the actions into the block. Each worker has a *step ring* there, a small ring of requests: the
   parent adds an entry for what is to be stepped, advances its count of entries, and rings the worker's bell.
2. The worker steps the entries in order, writing each result straight into its row. It then advances its own count of
   finished entries, and rings back.
3. When all have answered, the parent copies the rows once. These copies are the arrays that you get, and keep.

An entry stands for all sub-environments of a worker, or for one of them if only some are sent. With `batch_size` each
row is answered separately; otherwise a worker sends one answer for everything it was asked for.

- **In the block**: Box, Discrete, MultiBinary, MultiDiscrete, Text, and Dict and Tuple of them; infos of at most 16
  numbers (`int`, `float`, `bool`, and NumPy's bool, float32, float64, int32 and int64). The keys and types of an info
  are learnt from the first of its kind, which is itself sent by message; from then on it has cells in the block.
- **By message, through the pipe**: leaves of other spaces (Graph, Sequence, OneOf, your own); other infos (text,
  arrays, dicts, an integer of more than 64 bits); frames for a recorder; exceptions. In such a step a worker answers by
  message for all its rows. If actions have such a leaf, steps are also requested by message.
- **Also by message, in order with the entries**: resets, `call`, `get_attr`, `set_attr`, which frames are wanted, what
  to recreate.

None of this is visible: an info has the same values of the same types as on `dummy`, and its columns the same bits. A
worker learns at most 32 kinds of infos; those of further kinds are sent.

### Spinning and sleeping

Waking up takes tens of microseconds; looking at a count takes less than one. So a waiting process first spins, looking
repeatedly: for four times as long as recent waits took plus 50 µs, at most 500 µs. Then it sleeps until a bell, a
message or the other side's death wakes it. If recent waits took more than 500 µs, it sleeps at once.

No process keeps a core that another may need: a worker spins only if there is a core for it beside those of the parent
and the workers before it, and if there are no more workers than usable cores. A parent with at least as many workers as
usable cores offers its core to them between two looks (`sched_yield`), so it continues when they are done and need not
be woken for each.

A worker woken on the parent's core preempts the parent, and a worker that has not been woken yet would wait until those
rows are done. So each worker records the core on which it answered, and those that share the parent's core are asked
last.

A sleeping parent notices a worker's death at once. A parent that does not sleep, because answers keep arriving through
memory, checks every 20 ms.

### Why nothing is read too early

- Each count has one writer, which advances it after writing the data that the count covers.
- A process that hears a bell sees everything written before it was rung, on every processor: ringing and hearing pass
  through a kernel lock (an eventfd; a pipe where there is none).
- A spinning process reads a count without having heard the bell. That is safe only on processors that keep stores in
  order and loads in order, as x86-64 does. Elsewhere, including arm64, no process spins or reads a count: even after a
  bell was heard, the count may be ahead of what the bell was rung for, so the bell itself carries the number of
  entries.
- A bell keeps its count. A bell rung just before a process falls asleep still wakes it, so a process need not announce
  beforehand that it is about to sleep.

## The parent's share

While the workers step, this process only waits. With `parent_share` it steps the last share itself. On two cores there
are then two processes, this one and a worker, instead of three.

- **By default** this happens with `shmem`, given or chosen by `auto`, on more than one usable core, if the environment
  is one that Gymnasium or ale-py ships, every wrapper around the sub-environments is Gymnasium's or vecwrap's, and
  nothing asks for isolation: no `workers`, `envs_per_worker`, time limit, `on_failure="restart"` or `batch_size`.
- **`parent_share=True`** also enables it for environments of your own; `workers` then does not include the parent. It
  is refused with a time limit, `on_failure="restart"` or `batch_size`, because nothing isolates rows in this process.
- **`parent_share=False`** disables it.

`vecwrap explain` shows which applies:

```
backend shmem: 1 worker, 3 sub-environments each, started as fresh interpreters,
    and 2 in this process, which would only wait (parent_share)
```

The parent's rows run **in `step_wait`**, not in `step_async`. So whatever a loop does between the two overlaps only
with the workers' rows; a loop that computes for long there is better off with `parent_share=False`.
`step_wait(timeout=...)` checks the clock after each row.

The cost is isolation of these rows: an environment that crashes there ends this process, one that hangs there hangs it,
its memory is this process's memory, and its changes to global state happen here. An exception is reported like a
worker's, and costs the other rows nothing; Ctrl-C during a row takes effect when that row is done. The stream is the
same, bit for bit.
"""
CHECKS = """# Checks

Generated from the rules' docstrings by `make docs`; edit these, not this page.

`vecwrap check` finds mistakes of order and use before anything is stepped. It makes one sub-environment where the
backend would make it, inspects the spaces before and after each wrapper, and closes it again. Nothing is written.

```
$ vecwrap check cartpole.yaml
warning  zero_padding  cartpole.yaml:4: wrappers[0] "framestack"
    each episode's first stacks are padded with zeros, which are values like any other in observations (4,) float32.
    fix: Use padding=first.
    see: vecwrap list zero_padding
```

An **error** is something that `build` would refuse, or with `--twice` a stream that its seed does not repeat. A
**warning** can be built, but probably gives other results than intended. The exit status is 1 if there is an error, and
2 if the command line itself cannot be used. For continuous integration, `--strict` makes it 1 for warnings too.
`--ignore ID` suppresses an intended finding, `--json` prints a list of findings, `--eval` checks the pipeline's
evaluation, and `vecwrap list ID` prints a paragraph of this page, to which the first warning of a kind points. Only
`build` finds that a folder cannot be written, or that two monitors would share it.

With `--twice` a pipeline without errors is also [played four times](testing.md#your-environment) with one seed and the
same actions, for `--steps` agent steps, and the first observation, reward, flag or info that differs is named:

```
$ vecwrap check "my_package:Maze n=2" --twice
error  stream_differs  my_package:Maze n=2: env
    with seed 0, observation['walls'][3] of sub-environment 0, episode 1, step 5, is 2 in the first run and 1 in worker
    processes; the other runs agree.
    fix: Something depends on the process: the order of a set, hash() of text, an id(), a process id, a variable of the
    system, or what the sub-environments of one process share. Sort sets; keep state in self.
```

`build` does not report warnings. In Python, `vecwrap.check` takes whatever `build` takes, or an engine, as `wrap`:

```python
import vecwrap

(finding,) = vecwrap.check("CartPole-v1", n=2, wrappers=["framestack:4"], backend="dummy")
assert (finding.id, finding.severity) == ("zero_padding", "warning")
print(finding)  # where, what is wrong, and what to do
```
"""


def sentence_inside(text: str) -> str:
    """A sentence that goes on after a colon; a word in capitals stays as it is.

    >>> sentence_inside("The stack is padded."), sentence_inside("FIRE is pressed.")
    ('the stack is padded.', 'FIRE is pressed.')
    """
    first = text.split(maxsplit=1)[:1]
    return text if first and first[0][1:].isupper() else text[:1].lower() + text[1:]


def wrappers_page() -> str:
    """The text of wrappers.md."""
    return WRAPPERS + _overview(wrapper_rows(), with_where=True) + _details(wrapper_rows())


def backends_page() -> str:
    """The text of backends.md."""
    return (
        BACKENDS + _overview(backend_rows(), with_where=False) + _details(backend_rows()) + ENGINE
    )


def checks_page() -> str:
    """The text of checks.md."""
    return CHECKS + "".join(map(_check, rule_rows()))


def _check(row: RuleRow) -> str:
    text = " ".join(f"*{row.kind.capitalize()}.* {row.summary} {row.reasons}".split())
    text = f"\n## {row.name}\n{textwrap.fill(text, 120, break_on_hyphens=False)}\n"
    return text + (f"Wrong: `{row.wrong}`. Right: `{row.right}`.\n" if row.wrong else "")


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
        line if line[:1] in "-| " else textwrap.fill(line, 120, break_on_hyphens=False)
        for line in details.split("\n")
    ]
    return re.sub(r"::\n\n((?:    .*\n?|\n)+)", _block, "\n".join(lines)).rstrip()


def _block(match: re.Match[str]) -> str:
    return f":\n\n```text\n{textwrap.dedent(match[1]).strip()}\n```\n\n"


def _details(rows: list[Row]) -> str:
    text = ""
    for row in rows:
        text += f"\n## {row.name}\n\n{row.summary}\n"
        if row.wrappers:
            text += f"\nA preset; with its defaults it is `{row.wrappers}`.\n"
        if row.details:
            text += f"\n{_markdown(row.details)}\n"
        if row.at_end:
            text += f"\nAt an episode's end: {sentence_inside(row.at_end)}\n"
        if row.parameters:
            text += "\n| parameter | |\n|---|---|\n"
            for parameter in row.parameters:
                cells = (f"`{parameter}`", row.help.get(parameter.name, ""))
                text += "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
    return text


PAGES: dict[str, Callable[[], str]] = {
    "wrappers.md": wrappers_page,
    "backends.md": backends_page,
    "checks.md": checks_page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        Path(__file__).with_name(name).write_text(page(), encoding="utf-8")
