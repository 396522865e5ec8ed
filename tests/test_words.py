"""What users read is in the field's words, not in names that only the authors can explain.

Searched are the pages; the strings of the package, which are its messages and the help of its
commands' options; the page in the browser; and the docstrings that pages, ``vecwrap list`` and
``vecwrap --help`` show.
One failure lists every offender with the word to use instead.
"""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

from vecwrap import testing
from vecwrap.env.options import RestartOptions
from vecwrap.pipeline import registry
from vecwrap.pipeline.check import RULES

ROOT = Path(__file__).resolve().parents[1]
# Their code spans name modules and classes, and are not searched.
OF_MAINTAINERS = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "design.md"]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), OF_MAINTAINERS[0]]
WORDS = {
    r"books": "bookkeeping, or what is recorded",
    r"faces?": "interface, or the name of the class",
    r"lanes?": "step ring",
    r"taps?": "raw rewards",
    r"torn": "incomplete",
    r"home": "arrived, or idle",
    r"in(?: |_)stride": "uneventful",
    r"anew": "again; recreated, for an environment that is",
    r"(?:take|takes|taking|taken|took) in": "receive, read or load",
    r"told": "reported, asked or informed",
    r"(?:hand|hands|handed|handing) (?:\w+ )?out": "return",
    r"amid": "during, or while",
    r"hush(?:es|ed)?": "clear",
    r"ow(?:e|es|ed)": "pending, or awaited",
    r"(?<!there\s)(?:is|are|was|were) no": "is not a",
    r"standings?": "leaderboard",
    r"onlookers?": "observer",
    r"tall(?:y|ies)": "statistics, or counts",
    r"cures?": "remedy",
    r"in vain": "failed, or without success",
}
# What one of the patterns finds in plain English.
PLAIN = [
    r"home (?:folder|directory)",
    r"(?:take|takes|taking|taken|took) in (?:place of|turn|a second|this row)",
    r"(?:is|are|was|were) no (?:longer|more|fewer|less)",
]


def pattern(word):
    """Search for a word or words, across the end of a line and in any case."""
    return re.compile(rf"(?<![\w./-]){word}(?![\w./-]\w)\b".replace(" ", r"\s+"), re.IGNORECASE)


PATTERNS = {pattern(word): instead for word, instead in WORDS.items()}
ALLOWED = [pattern(word) for word in PLAIN]


def offenders(name, text, first_line=1):
    """Yield a line for each private word of a text: where it is, and what to say instead."""
    for found, instead in PATTERNS.items():
        for match in found.finditer(text):
            if any(allowed.match(text, match.start()) for allowed in ALLOWED):
                continue
            line = first_line + text.count("\n", 0, match.start())
            around = " ".join(text[max(0, match.start() - 30) : match.end() + 30].split())
            word = " ".join(match[0].split())
            yield f"{name}:{line}: “{word}” in “{around}”; say: {instead}"


def report(found):
    """One message for all offenders."""
    return "words that a user cannot know:\n" + "\n".join(found)


def name_of(path):
    return str(path.relative_to(ROOT))


def without_code(text):
    """A page without its code spans, line for line."""
    return re.sub(r"`[^`\n]+`", "``", text)


def test_the_pages():
    found = []
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        found += offenders(name_of(path), without_code(text) if path in OF_MAINTAINERS else text)
    assert not found, report(found)


def is_text(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def strings(source):
    """Yield a module's strings with their lines, except docstrings and ``__all__``.

    What an f-string formats is ``{}``.
    """
    skipped = set()
    for node in ast.walk(ast.parse(source)):  # a node comes before its parts
        if isinstance(node, ast.Expr):
            skipped.add(id(node.value))
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            skipped |= {id(part) for part in ast.walk(node.value)}
        elif isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            texts = [part.value if is_text(part) else "{}" for part in node.values]
            yield node.lineno, "".join(texts)
        elif is_text(node) and id(node) not in skipped:
            yield node.lineno, node.value


def strings_of_script(source):
    """Yield a script's strings with their lines; what a template formats is ``{}``."""
    code = re.sub(r"(?<!:)//[^\n]*", "", source)
    for match in re.finditer(r'"[^"\n]*"|`[^`]*`', code):
        line = 1 + code.count("\n", 0, match.start())
        yield line, re.sub(r"\$\{[^}]*\}", "{}", match[0])


def documented():
    """What has a docstring that docs/api.md, the generated pages or ``vecwrap list`` show."""
    shown = []
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    for dotted in re.findall(r"^::: ([\w.]+\.[a-z]\w*\.\w+)$", page, re.MULTILINE):
        module, _, name = dotted.rpartition(".")
        shown.append(getattr(importlib.import_module(module), name))
    shown += [getattr(testing, name) for name in testing.__all__]
    for table in (registry.wrappers, registry.backends):
        targets = [str(table.entry(name).target) for name in table.names()]
        shown += [table.find(target, "") for target in targets if target.startswith("vecwrap.")]
    shown += [*RULES.values(), RestartOptions]
    return [part for each in shown for part in with_its_parts(each)]


def with_its_parts(shown):
    """Return a function; or a class, its options and its bases here, with their public methods."""
    if not inspect.isclass(shown):
        return [inspect.unwrap(shown)] if inspect.isfunction(shown) else []
    parts = []
    for kind in [*shown.__mro__, *getattr(shown, "Options", object).__mro__]:
        if kind.__module__.startswith("vecwrap."):
            parts.append(kind)
            for name, member in vars(kind).items():
                function = getattr(member, "__func__", getattr(member, "fget", member))
                is_public = name == "__init__" or not name.startswith("_")
                if inspect.isfunction(function) and is_public:
                    parts.append(inspect.unwrap(function))
    return [part for part in parts if part.__doc__ and part.__module__.startswith("vecwrap.")]


def place(shown):
    """The file and the first line of a docstring."""
    path = Path(inspect.getsourcefile(shown))
    lines, first = inspect.getsourcelines(shown)
    return name_of(path), first + next((i for i, line in enumerate(lines) if '"""' in line), 0)


def test_the_strings_of_the_package():
    found = []
    for path in sorted((ROOT / "vecwrap").rglob("*.py")):
        for line, text in strings(path.read_text(encoding="utf-8")):
            found += offenders(name_of(path), text, line)
    assert not found, report(found)


def test_the_page_in_the_browser():
    page = ROOT / "vecwrap" / "live" / "page"
    found = []
    for path in sorted(page.glob("*.html")):
        found += offenders(name_of(path), path.read_text(encoding="utf-8"))
    for path in sorted(page.glob("*.js")):
        for line, text in strings_of_script(path.read_text(encoding="utf-8")):
            found += offenders(name_of(path), text, line)
    assert not found, report(found)


def test_the_docstrings_that_are_shown():
    found = []
    for shown in dict.fromkeys(documented()):
        file, line = place(shown)
        found += offenders(file, shown.__doc__, line)
    assert not found, report(found)


def test_the_help_of_the_commands():
    application = pytest.importorskip("vecwrap.cli.app").with_commands()
    root = pytest.importorskip("typer.main").get_command(application)
    found = []
    for command in [root, *root.commands.values()]:
        texts = [command.help, command.epilog]
        texts += [getattr(each, "help", "") for each in command.params]
        found += offenders(f"vecwrap {command.name} --help", "\n".join(filter(None, texts)))
    assert not found, report(found)


def test_strings_are_found_without_docstrings_and_with_what_is_formatted():
    source = """
__all__ = ["Books"]
A = "zero"
'One.'

def f(n):
    'Two.'
    return f"three {n} books", "four"
"""
    assert sorted(strings(source)) == [(3, "zero"), (8, "four"), (8, "three {} books")]


def test_the_strings_of_a_script_are_found_without_its_comments():
    source = '// "books"\nput("the books"); // lanes\nconst text = `${n} books\nmore`;'
    assert list(strings_of_script(source)) == [(2, '"the books"'), (3, "`{} books\nmore`")]


def test_the_shown_docstrings_have_those_of_every_kind():
    names = {f"{each.__module__}.{each.__qualname__}" for each in documented()}
    names = {name.removeprefix("vecwrap.") for name in names}
    assert names > {
        "pipeline.build.build",
        "env.vec_env.VecEnv",
        "env.vec_env.VecEnv.step",
        "env.options.RestartOptions",
        "wrappers.framestack.FrameStack",
        "backends.shmem.Shmem",
    }
    assert len(names) > 150


@pytest.mark.parametrize(
    ("text", "line", "say"),
    [
        ("One.\nThe books\nare kept.", 2, "bookkeeping"),
        ("It is made\n anew.", 2, "recreated"),
        ("The rows are in\n  stride.", 1, "uneventful"),
        ("A state is taken in.", 1, "receive"),
        ("They are handed it out.", 1, "return"),
        ("This is no Dict.", 1, "is not a"),
        ("`backend: books`", 1, "bookkeeping"),
        ("All rows are home.", 1, "arrived"),
    ],
)
def test_a_private_word_is_found_with_its_line_and_what_to_say(text, line, say):
    (found,) = offenders("page.md", text)
    assert found.startswith(f"page.md:{line}: ")
    assert say in found.partition("; say: ")[2]


@pytest.mark.parametrize(
    "text",
    [
        "There is no file.",
        "It is no longer reported.",
        "your home folder",
        "the frames it takes in a second",
        "an interface, untorn, in strides of two",
        "`env/call_state.py` and `face.rows`",
    ],
)
def test_plain_english_is_left_alone(text):
    assert not list(offenders("page.md", text))
