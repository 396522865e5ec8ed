"""Prints which public names pyright does not know the whole type of; `make lint` wants none.

    python tests/helpers/public_types.py

Public are the names of ``vecwrap``, ``vecwrap.errors`` and ``vecwrap.testing``, the wrappers that
pipelines know by name, and what each of their classes has without an underscore. pyright must be
installed, and be called with the environment's ``bin`` first on the path: there it looks for the
packages that vecwrap imports.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import vecwrap
from vecwrap.pipeline import registry

ROOT = Path(__file__).resolve().parents[2]


def public_names() -> set[str]:
    """The dotted names of public objects, where they are defined."""
    objects = [getattr(vecwrap, name) for name in vecwrap.__all__ if name != "__version__"]
    objects += [getattr(vecwrap.testing, name) for name in vecwrap.testing.__all__]
    objects += map(registry.wrappers.load, registry.wrappers.names())
    names = {
        f"{made.__module__}.{made.__qualname__}"
        for made in objects
        if hasattr(made, "__qualname__") and made.__module__.startswith("vecwrap.")
    }
    return names | {f"vecwrap.errors.{name}" for name in vecwrap.errors.__all__}


def is_public(symbol: str, names: set[str]) -> bool:
    """Whether a symbol is one of the names, or a public member of one."""
    parts = symbol.split(".")
    if any(part.startswith("_") and not part.startswith("__") for part in parts):
        return False
    return any(".".join(parts[:end]) in names for end in range(2, len(parts) + 1))


def report() -> list[dict[str, object]]:
    """What pyright says of each symbol of the package."""
    done = subprocess.run(
        ["pyright", "--verifytypes", "vecwrap", "--ignoreexternal", "--outputjson"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT.parent,
        env={
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": str(ROOT),
        },
    )
    return list(json.loads(done.stdout)["typeCompleteness"]["symbols"])


def main() -> None:
    """Print the figures; exit with 1 if a type is not known."""
    names = public_names()
    symbols = [symbol for symbol in report() if is_public(str(symbol["name"]), names)]
    unknown = [
        symbol for symbol in symbols if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]
    ]
    for symbol in unknown:
        print(symbol["name"])
        for said in symbol["diagnostics"]:  # type: ignore[attr-defined]
            print("   ", said["message"].replace("\n", "\n    "))
    print(f"{len(symbols) - len(unknown)} of {len(symbols)} public symbols have a known type")
    sys.exit(bool(unknown) or not symbols)


if __name__ == "__main__":
    main()
