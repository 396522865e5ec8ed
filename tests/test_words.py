"""What users read is in the field's words, not in names that only the authors can explain.

The pages that are written by hand are searched. One failure lists every offender with the word
to use instead.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Their code spans name modules and classes, and are not searched.
OF_MAINTAINERS = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "design.md"]
GENERATED = ("wrappers.md", "backends.md", "checks.md")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), OF_MAINTAINERS[0]]
PAGES = [page for page in PAGES if page.name not in GENERATED]
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


def without_timings(text):
    """A page without two lines that ``vecwrap time`` prints, whose names are the command's."""
    return re.sub(r"^(?:backend: books|face) .*█.*$", "", text, flags=re.MULTILINE)


def test_the_pages():
    found = []
    for path in PAGES:
        text = without_timings(path.read_text(encoding="utf-8"))
        found += offenders(name_of(path), without_code(text) if path in OF_MAINTAINERS else text)
    assert not found, report(found)


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
        "`env/face.py` and `face.rows`",
    ],
)
def test_plain_english_is_left_alone(text):
    assert not list(offenders("page.md", text))
