"""Whatever is read is a spec, or refused in one sentence with a place; what is a spec can be
planned, or is refused.

Texts of every kind: any at all, pieces of YAML and JSON thrown together, a good file with small
damage, nested data of wrong types, numbers and names of any size, aliases that stand for more than
fits into the memory.
"""

import itertools
import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from vecwrap.errors import PlanError, SpecError
from vecwrap.pipeline.elements import WrapperSpec
from vecwrap.pipeline.files import MAX_VALUES, read_json, read_yaml
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.registry import wrappers
from vecwrap.pipeline.signatures import Signature
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.wrappers.presets import Preset

KEYS = [
    "env",
    "n",
    "seed",
    "start_index",
    "backend",
    "autoreset",
    "copy",
    "batch_size",
    "render_mode",
    "env_kwargs",
    "debug",
    "wrappers",
    "training",
    "stats",
    "eval",
    "$schema",
    "name",
    "workers",
    "*",
    "k",
    "dir",
    "agents",
    "pad",
    "framestack",
    "atari",
    "monitor",
    "3",
    "wrapers",
    "num_envs",
]
PIECES = [
    *KEYS,
    *(f"{key}: " for key in KEYS),
    "- ",
    "\n",
    "\n  ",
    "\n    ",
    ": ",
    "{",
    "}",
    "[",
    "]",
    ", ",
    "&a ",
    "*a",
    "'",
    '"',
    "!!",
    "!x ",
    "|",
    ">",
    "#",
    "%YAML 1.2\n",
    "---",
    "...",
    "?",
    "\t",
    "0x1F",
    "9" * 30,
    "1e999",
    ".nan",
    "-.inf",
    "null",
    "~",
    "true",
    "é",
    "\u2028",
    "\x00",
    "\x1b[31m",
    "\ud800",
    "a.b:c",
    "framestack:4",
    "4",
    "\\",
    '"\\u',
    '"\\U99999999"',
    '"\\ud83d\\ude00"',
    "<<: ",
    "=",
    "@",
    "`",
    "0x" + "f" * 5000,
    "9" * 5000,
]
HUGE = [10**400, -(10**1300), 2**5000, 10**5000]
FILE = """\
env: PongNoFrameskip-v4
n: 8
seed: 1 # of the first reset
backend: {name: shmem, workers: 2}
wrappers:
  - atari
  - framestack: 4
  - monitor: {dir: runs/pong}
eval: {n: 2, wrappers: {framestack: {k: 2}}}
"""

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(PIECES)
    | st.integers(0, len(HUGE) - 1).map(lambda index: HUGE[index])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(KEYS) | st.text(max_size=4) | st.integers(), inner, max_size=4
        )
    ),
    max_leaves=20,
)
many = settings(
    max_examples=2 * settings.default.max_examples,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def outcome(make: Any) -> tuple[str | None, Any]:
    """What is refused, or what is made; any other error is one too many."""
    try:
        return None, make()
    except (SpecError, PlanError) as error:
        return str(error), None


def told(read: Any, place: str) -> None:
    """Read; whatever is refused is refused in one short sentence that begins with the place."""
    refused, spec = outcome(read)
    if refused is not None:
        assert re.match(place, refused), refused
        assert all(line.isprintable() for line in refused.split("\n"))  # one for each mistake
        assert max(map(len, refused.split("\n"))) < 1500
        return
    # Such as a number of thousands of digits, which no file can hold.
    cannot_be_written, data = outcome(spec.to_dict)
    if cannot_be_written is None:
        assert PipelineSpec.from_dict(data) == spec
        assert PipelineSpec.from_yaml(spec.to_yaml()) == spec


def told_of_file(text: str) -> None:
    """Read a text as YAML, as JSON, and as a line."""
    told(lambda: PipelineSpec.from_yaml(text, "f.yaml"), r"f\.yaml(:\d+)?: .")

    def from_json() -> PipelineSpec:
        document = read_json(text, "f.json")
        return PipelineSpec.from_dict(document.value, document.source)

    told(from_json, r"f\.json(:\d+)?: .")
    told(lambda: PipelineSpec.parse(text), ".+: .")


@many
@given(st.text() | st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
@example("?")
@example("[]: 1")
@example("env: A\n1e999: 2")
@example('env: "\\U99999999"')
@example('{"env": "\\ud83d\\ude00 \\ud800"}')
@example("env: A\nn: 0x" + "f" * 5000)
@example('env: A\n"\\e[31m": 2')
def test_any_text_is_a_pipeline_or_is_refused_with_its_place(text: str) -> None:
    told_of_file(text)
    told_of_file(f"env: CartPole-v1\n{text}")


@many
@given(st.randoms(use_true_random=False))
def test_a_damaged_file_is_a_pipeline_or_is_refused_with_its_place(random: Any) -> None:
    text = FILE
    for _ in range(random.randint(1, 3)):
        start = random.randrange(len(text) + 1)
        end = min(len(text), start + random.choice([0, 1, 5, 20]))
        text = (
            text[:start]
            + random.choice(["", random.choice(PIECES), text[start:end] * 2])
            + text[end:]
        )
    told_of_file(text)


@many
@given(st.dictionaries(st.sampled_from(KEYS), values, max_size=8), st.booleans())
@example({"n": 10**5000}, True)
@example({"autoreset": [10**5000]}, True)
@example({"wrappers": [{10**5000: 1, 2: 2}]}, True)
@example({"env_kwargs": {"a": 10**5000}}, True)
@example({"eval": {"wrappers": {1: {"k": 1}, "1": [2]}}}, True)
def test_any_data_is_a_pipeline_or_is_refused(data: dict[Any, Any], named: bool) -> None:
    data = {"env": "CartPole-v1", **data} if named else data
    told(lambda: PipelineSpec.from_dict(data), ".+: .")
    try:
        text = json.dumps(data)
    except ValueError:  # Python does not write a number of so many digits
        return
    told_of_file(text)


def test_data_that_holds_itself_is_refused() -> None:
    circle: dict[str, Any] = {"env": "A"}
    circle["env_kwargs"] = {"map": circle}
    listed: list[Any] = []
    listed.append(listed)
    for data in (
        circle,
        {"env": "A", "wrappers": [{"x": listed}]},
        {"env": "A", "wrappers": listed},
        listed,
    ):
        with pytest.raises(SpecError) as error:
            PipelineSpec.from_dict(data)
        assert len(str(error.value)) < 1500


# -- what is a spec can be planned, or is refused --------------------------------------------------


def _parameters(name: str) -> list[str]:
    target = wrappers.load(name)
    return [
        p.name for p in Signature.of(target, skip=0 if isinstance(target, Preset) else 1).parameters
    ]


small = (
    st.none()
    | st.booleans()
    | st.integers(-3, 100)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(
        ["first", "channel", "raw", "float32", "a:b", "os", "cycle", 10**400, 2**64, -(10**30)]
    )
)
arguments = st.recursive(
    small,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=5,
)


@st.composite
def written_wrappers(draw: Any) -> Any:
    name = draw(st.sampled_from(wrappers.names()))
    named = st.dictionaries(st.sampled_from([*_parameters(name), "x"]), arguments, max_size=3)
    return draw(st.sampled_from([name])) if draw(st.booleans()) else {name: draw(arguments | named)}


numbers = st.integers(1, 9) | arguments
sections = st.fixed_dictionaries(
    {},
    optional={
        "n": numbers,
        "seed": numbers,
        "stats": arguments,
        "training": st.booleans(),
        "wrappers": st.lists(written_wrappers(), max_size=2)
        | st.dictionaries(st.sampled_from(wrappers.names()), arguments, max_size=2),
    },
)
pipelines = st.fixed_dictionaries(
    {
        "env": st.sampled_from(["CartPole-v1", "Pendulum-v1"]),
        "backend": st.sampled_from(["dummy", "shmem", "auto"]),
    },
    optional={
        "n": numbers,
        "seed": numbers,
        "start_index": numbers,
        "batch_size": numbers,
        "render_mode": arguments,
        "env_kwargs": arguments,
        "wrappers": st.lists(written_wrappers(), max_size=3),
        "eval": sections,
        "stats": arguments,
        "agents": arguments,
    },
)


@many
@given(pipelines)
@example({"env": "CartPole-v1", "n": 10**30})
@example(
    {
        "env": "CartPole-v1",
        "n": 2,
        "wrappers": [{"video": {"trigger": "os"}}, {"framestack": 10**400}],
    }
)
def test_any_pipeline_can_be_planned_or_is_refused(data: dict[str, Any]) -> None:
    refused, planned = outcome(lambda: plan(PipelineSpec.from_dict(data)))
    if refused is not None:
        assert all(line.isprintable() for line in refused.split("\n"))  # one for each mistake
        return
    assert str(planned)
    again = plan(PipelineSpec.from_yaml(planned.pipeline.to_yaml())).pipeline
    assert again == planned.pipeline
    assert again.hash == planned.pipeline.hash


# -- bombs -----------------------------------------------------------------------------------------


def bomb(levels: int, width: int) -> str:
    """Lists of aliases of lists of aliases: ``width ** levels`` values in a few lines."""
    text = f"a0: &a0 [{','.join(['x'] * width)}]\n"
    for inner, outer in itertools.pairwise(f"a{level}" for level in range(levels)):
        text += f"{outer}: &{outer} [{','.join([f'*{inner}'] * width)}]\n"
    return text


@pytest.mark.parametrize(
    "text",
    [
        bomb(400, 9),  # whoever expanded it would never come back
        bomb(400, 9).replace("[", "{k: [").replace("]", "]}"),
        "env_kwargs: &a {b: "
        + "[" * 30
        + "]" * 30
        + "}\neval: {env_kwargs: *a, wrappers: ["
        + ",*a" * 5_000
        + "]}",
        "a: &a [" + "1," * 49_999 + "1]\nb: *a\nc: *a\n",
    ],
)
def test_an_alias_bomb_is_refused_when_it_stands_for_too_much(text: str) -> None:
    with pytest.raises(
        SpecError,
        match=rf"^bomb\.yaml:\d+: the file stands for more than {MAX_VALUES:,} values, aliases",
    ):
        PipelineSpec.from_yaml(text.replace("[,", "["), "bomb.yaml")


def test_values_are_counted_at_what_their_aliases_stand_for() -> None:
    fits = "a: &a [" + ",".join("1" * 30_000) + "]\nb: *a\nc: *a\n"
    assert len(read_yaml(fits, "f").value["c"]) == 30_000
    with pytest.raises(SpecError, match="^f:4: the file stands for more than"):
        read_yaml(f"{fits}d: *a\n", "f")


def test_texts_of_many_parts_are_refused() -> None:
    for text in ("a|" * 5_000 + "a", "a:" + "1," * 5_000 + "1", "a:" * 5_000):
        with pytest.raises(SpecError, match="expected at most 1,000 parts"):
            PipelineSpec.from_yaml(f'env: A\nwrappers: "{text}"', "f")
    with pytest.raises(SpecError, match="^wrappers: expected at most 1,000 wrappers, got 5,000"):
        PipelineSpec.from_dict({"env": "A", "wrappers": ["a"] * 5_000})
    with pytest.raises(SpecError, match="^wrapper: expected at most 1,000 parts"):
        WrapperSpec.parse("a:" + "1," * 5_000 + "1")
