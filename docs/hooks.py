"""What the site has beside the pages of docs/: a hook of MkDocs (mkdocs.yml), and no part of the
package.

The pages are written for the repository, where `../examples/ppo.py` is a file. On the site there
are no files beside docs/, so examples stand on a page of their own, and CHANGELOG.md and
CONTRIBUTING.md are pages too.
"""

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".ipynb": "python"}
HIDDEN = {
    "index.md": ["navigation"],  # there would be one line of it
    "migrating.md": ["toc"],  # its table of names is wide
}
EXAMPLES = """# Examples

Each file of [examples/](../examples) as it is; all of them run in the tests.

"""


def anchor(name: str) -> str:
    """The heading of an example, as a link has it.

    >>> anchor("plugin/pyproject.toml")
    'plugin-pyproject-toml'
    """
    return re.sub(r"\W", "-", name)


def examples_page() -> str:
    """All examples, one after the other."""
    folder = ROOT / "examples"
    found = [path.relative_to(folder) for path in folder.rglob("*") if path.suffix in LANGUAGES]
    text = EXAMPLES
    for path in sorted(found, key=lambda path: (len(path.parts), path)):
        if {"runs", "build"} & {*path.parts}:  # what running and building them leaves behind
            continue
        name = str(path)
        text += f"## {name} {{ #{anchor(name)} }}\n\n"
        text += f"````{LANGUAGES[path.suffix]}\n{shown(folder / path)}````\n\n"
    return text


def shown(path: Path) -> str:
    """The text of an example; of a notebook its cells, with its text as comments."""
    content = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return content
    cells = []
    for cell in json.loads(content)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            source = "\n".join(f"# {line}".rstrip() for line in source.splitlines())
        cells.append(source)
    return "\n\n".join(cells) + "\n"


def for_the_site(text: str) -> str:
    """Turn links that lead out of docs/ into links between pages.

    >>> for_the_site("[a](../examples/ppo.py), [b](../examples)")
    '[a](examples.md#ppo-py), [b](examples.md)'
    >>> for_the_site("[c](../CHANGELOG.md), [`d`](../tests/test_d.py)")
    '[c](changelog.md), `d`'
    """
    text = re.sub(r"\]\(\.\./examples/?\)", "](examples.md)", text)
    text = re.sub(r"\]\(\.\./examples/plugin/?\)", "](examples.md#plugin-pyproject-toml)", text)
    text = re.sub(
        r"\]\(\.\./examples/([^)#]+)\)", lambda link: f"](examples.md#{anchor(link[1])})", text
    )
    text = re.sub(
        r"\]\(\.\./(CHANGELOG|CONTRIBUTING)\.md\)", lambda link: f"]({link[1].lower()}.md)", text
    )
    return re.sub(r"\[([^]]*)\]\(\.\./(?:tests|benchmarks)/[^)]*\)", r"\1", text)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are made of files outside of docs/."""
    pages = {"examples.md": examples_page()}
    for name in ("CHANGELOG", "CONTRIBUTING"):
        text = ROOT.joinpath(f"{name}.md").read_text(encoding="utf-8")
        pages[f"{name.lower()}.md"] = text.replace("](docs/", "](").replace("[docs/", "[")
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def titles(nav: list[Any]) -> dict[str, str]:
    """What the nav calls each page.

    >>> titles([{"Start": "index.md"}, {"Use it": [{"A tour": "tour.md"}]}])
    {'index.md': 'Start', 'tour.md': 'A tour'}
    """
    found: dict[str, str] = {}
    for title, value in (item for entry in nav for item in entry.items()):
        found |= {value: title} if isinstance(value, str) else titles(value)
    return found


def named(text: str, called: dict[str, str]) -> str:
    """Call pages by their titles where a link calls them by their files.

    >>> named("see [tour.md](tour.md#a), [here](tour.md)", {"tour.md": "A tour"})
    'see [A tour](tour.md#a), [here](tour.md)'
    """
    return re.sub(r"\[([\w-]+\.md)\](?=\(\1)", lambda link: f"[{called[link[1]]}]", text)


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Every page, before it becomes HTML."""
    page.meta["hide"] = HIDDEN.get(page.file.src_uri, [])
    return named(for_the_site(markdown), titles(config.nav or []))


def breakable(html: str) -> str:
    """Let the code in tables, but for their first column, break where a name has its joints, and
    nowhere else.

    >>> breakable("<tr><td><code>a_b</code></td><td><code>tests/a.py::test_b</code></td></tr>")
    '<tr><td><code>a_b</code></td><td><code>tests/<wbr>a.py::<wbr>test_<wbr>b</code></td></tr>'
    >>> breakable("<tr><td></td></tr> <code>a_b</code>")
    '<tr><td></td></tr> <code>a_b</code>'
    """

    def joints(code: re.Match[str]) -> str:
        return re.sub(r"(::|/|_+)(?=\w)", r"\1<wbr>", code[0])

    def row(found: re.Match[str]) -> str:
        first, end, others = found[0].partition("</td>")
        return first + end + re.sub(r"(?<=<code>)[^<]*", joints, others)

    return re.sub(r"<tr>.*?</tr>", row, html, flags=re.DOTALL)


def on_page_content(html: str, **_: Any) -> str:
    """Every page, as HTML."""
    return breakable(html)
