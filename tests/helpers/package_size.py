"""Prints how large the package is and how it is wrappered: lines, code, files, circles, floors.

    python tests/helpers/package_size.py

Code is what is neither blank, nor comment, nor docstring. Imports count wherever they stand,
type-only ones too. Floors are counted between the names at the top: each is one above the highest
that it imports from.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "vecwrap"
LONGEST = 640
DEEPEST = 20
WIDEST = 100
NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING),
}
Graph = dict[str, set[str]]


@dataclass
class File:
    """What is counted of one module."""

    path: Path
    lines: int
    code: int
    imports: set[str] = field(default_factory=set)


def files(package: Path = PACKAGE) -> dict[str, File]:
    """Every module of the package, by its dotted name."""
    paths = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        paths[".".join(parts).removesuffix(".__init__")] = path
    return {name: read(path, paths) for name, path in paths.items()}


def read(path: Path, modules: dict[str, Path]) -> File:
    """Count one file, and find which of the modules it imports."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    documented: set[int] = set()
    imports: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if ast.get_docstring(node, clean=False) is not None:
                documented.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                imports.add(full if full in modules else node.module)
        elif isinstance(node, ast.Import):
            imports.update(alias.name for alias in node.names)
    used: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            used.update(range(token.start[0], token.end[0] + 1))
    return File(path, len(text.splitlines()), len(used - documented), imports & set(modules))


def is_word(node: ast.expr) -> bool:
    """Whether an arm of a conditional expression is a name, a literal or an attribute."""
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, (ast.Name, ast.Constant))


def packed(node: ast.AST) -> str:
    """What a node packs into one expression or statement that reads better as several; or ""."""
    if isinstance(node, ast.IfExp) and not (is_word(node.body) and is_word(node.orelse)):
        return "a conditional expression with more than a name, literal or attribute as an arm"
    if isinstance(node, ast.Assign):
        both = (node.targets[0], node.value)
        if all(isinstance(side, ast.Tuple) for side in both):
            return "a parallel assignment without the interrupt that it is for in a comment"
    if isinstance(node, ast.Subscript) and isinstance(node.value, (ast.Tuple, ast.List)):
        return "a choice by index, (b, a)[c]"
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        first, last = node.values[0], node.values[-1]
        literal = isinstance(last, (ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.Dict))
        if literal and isinstance(first, ast.BoolOp) and isinstance(first.op, ast.And):
            return "a choice by x and y or z"
    return ""


def not_plain(text: str) -> list[tuple[int, str]]:
    """The lines of a source that pack what should be several statements, and those too wide."""
    lines = text.splitlines()
    found = [
        (number, f"{len(line)} columns")
        for number, line in enumerate(lines, 1)
        if len(line) > WIDEST
    ]
    for node in ast.walk(ast.parse(text)):
        kind = packed(node)
        if kind.startswith("a parallel"):
            around = " ".join(lines[max(0, node.lineno - 3) : node.end_lineno])
            if "interrupt" in around or "Ctrl-C" in around:
                kind = ""
        if kind:
            found.append((node.lineno, kind))
    return sorted(found)


def circles(graph: Graph) -> list[list[str]]:
    """The groups of more than one node each of which can be reached from every other."""

    def reached(start: str) -> set[str]:
        seen, ahead = set(), [start]
        while ahead:
            for other in graph.get(ahead.pop(), set()) - seen:
                seen.add(other)
                ahead.append(other)
        return seen

    reach = {node: reached(node) for node in graph}
    groups = {
        tuple(sorted(other for other in reach[node] if node in reach[other])) for node in graph
    }
    return sorted(list(group) for group in groups if len(group) > 1)


def deepest(graph: Graph) -> list[str]:
    """The longest chain of nodes each of which leads to the next, in a graph without circles."""
    chains: dict[str, list[str]] = {}

    def chain(node: str) -> list[str]:
        if node not in chains:
            chains[node] = [
                node,
                *max(map(chain, sorted(graph.get(node, ()))), key=len, default=[]),
            ]
        return chains[node]

    return max(map(chain, sorted(graph)), key=len)


def modules_graph(found: dict[str, File]) -> Graph:
    """Imports between modules; the top of the package and its entry point import what they like."""
    face = {PACKAGE.name, f"{PACKAGE.name}.__main__"}
    return {
        name: file.imports - {name, PACKAGE.name}
        for name, file in found.items()
        if name not in face
    }


def top(name: str) -> str:
    """The name at the top of the package that a module belongs to."""
    return name.split(".")[1]


def tops_graph(graph: Graph) -> Graph:
    """Imports between the names at the top."""
    tops: Graph = {top(name): set() for name in graph}
    for name, others in graph.items():
        tops[top(name)] |= {top(other) for other in others} - {top(name)}
    return tops


def floors(tops: Graph) -> list[list[str]]:
    """The names at the top, by floor, the lowest first."""
    known: dict[str, int] = {}

    def floor(name: str) -> int:
        if name not in known:
            known[name] = 1 + max(map(floor, tops[name]), default=0)
        return known[name]

    levels = [floor(name) for name in tops]
    return [
        sorted(name for name in tops if known[name] == level) for level in range(1, max(levels) + 1)
    ]


def names_at_the_top() -> list[str]:
    """What `ls` shows of the package, without what Python leaves there."""
    return sorted(
        path.name for path in PACKAGE.iterdir() if path.is_file() or any(path.rglob("*.py"))
    )


def main() -> None:
    """Print the figures."""
    found = files()
    graph = modules_graph(found)
    names = names_at_the_top()
    lines, code = (
        sum(file.lines for file in found.values()),
        sum(file.code for file in found.values()),
    )
    print(f"{lines} lines, {code} of code, {len(found)} files, {len(names)} names at the top")
    print("by folder:")
    for name in sorted(tops_graph(graph)):
        own = [file for module, file in found.items() if module.split(".")[1:2] == [name]]
        own_lines, own_code = sum(file.lines for file in own), sum(file.code for file in own)
        print(f"  {name:<12} {own_lines:>6} lines {own_code:>6} of code {len(own):>4} files")
    long = [f"{name} {file.lines}" for name, file in found.items() if file.lines > LONGEST]
    print(f"over {LONGEST} lines:", "; ".join(long) or "none")
    print("circles of modules:", circles(graph) or "none")
    print("circles of names at the top:", circles(tops_graph(graph)) or "none")
    if not circles(tops_graph(graph)):
        print("deepest chain of imports:", len(deepest(graph)), " ".join(deepest(graph)))
        for number, level in reversed(list(enumerate(floors(tops_graph(graph)), 1))):
            print(f"floor {number}: {', '.join(level)}")


if __name__ == "__main__":
    sys.exit(main())
