"""The table of names in docs/migrating.md names what there is."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from vecwrap.pipeline import registry

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "migrating.md").read_text(encoding="utf-8")
ROWS = [
    line.strip("| \n").split("|")
    for line in PAGE.partition("## Names")[2].splitlines()
    if line.startswith("| `")
]
TABLE = [[re.findall(r"`([\w:]+)`", cell) for cell in row] for row in ROWS if len(row) >= 3]

MODULES = {  # of the peers that the tests install; the column's number
    1: [
        "stable_baselines3.common.vec_env",
        "stable_baselines3.common.atari_wrappers",
        "stable_baselines3.common.monitor",
    ],
    2: ["gymnasium.wrappers"],
}


def test_every_wrapper_of_the_table_is_registered():
    wrappers = [row[0][0] for row in TABLE]
    assert len(wrappers) > 20
    for name in wrappers:
        assert name in registry.wrappers.names()
    assert len(set(wrappers)) == len(wrappers)


@pytest.mark.parametrize("column", MODULES)
def test_every_name_of_an_installed_peer_is_there(column):
    modules = [import_module(name) for name in MODULES[column]]
    names = [name for row in TABLE for name in row[column] if ":" not in name]
    assert len(names) > 10
    for name in names:
        assert any(hasattr(module, name) for module in modules), name
