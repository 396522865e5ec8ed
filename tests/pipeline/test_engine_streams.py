"""The table of docs/engines.md: where the pixels of engines first differ from ours."""

import re
from pathlib import Path

import numpy as np
import pytest

import vecwrap

PAGE = Path(__file__).resolve().parents[2] / "docs" / "engines.md"
STEPS = 5000
COLUMNS = [
    (engine, lineage) for engine in ("envpool", "ale") for lineage in ("deepmind", "machado")
]


def table():
    rows = re.findall(
        r"^\| (\w+)((?: \| (?:none|\d+: \d+, by \d+)){4}) \|$", PAGE.read_text(), re.M
    )
    for game, cells in rows:
        for column, cell in zip(COLUMNS, cells.split(" | ")[1:], strict=True):
            yield (game, *column, cell)


CASES = list(table())


def test_the_table_has_five_games():
    assert len(CASES) == 20


def both(game, engine, lineage):
    noop_max = {"envpool": 1, "ale": 0}[engine]
    atari = {
        "lineage": lineage,
        "noop_max": noop_max,
        "fire_reset": False,
        "repeat_action_probability": 0.0,
        "terminal_on_life_loss": False,
        "clip_reward": False,
    }
    stack = "framestack:4,padding=" + {"envpool": "first", "ale": "zero"}[engine]
    settings = {
        "n": 1,
        "seed": 1,
        "autoreset": "next_step",
        "wrappers": [{"atari": atari}, stack],
    }
    ours = vecwrap.build(f"{game}NoFrameskip-v4", backend="dummy", **settings)
    engine = {"name": engine, "num_threads": 1}
    return ours, vecwrap.build(f"{game}NoFrameskip-v4", engine=engine, **settings)


@pytest.mark.parametrize(
    ("game", "engine", "lineage", "cell"),
    [
        pytest.param(*case, marks=() if case[0] == "Breakout" else pytest.mark.full)
        for case in CASES
    ],
)
def test_rewards_and_ends_are_equal_and_pixels_until_the_step_of_the_table(
    game, engine, lineage, cell, request
):
    steps = STEPS
    if request.node.get_closest_marker("full") is None:
        steps = int(cell.partition(":")[0]) + 100
    found = "none"
    ours, theirs = both(game, engine, lineage)
    with ours, theirs:
        np.testing.assert_array_equal(ours.reset()[0], theirs.reset()[0])
        rng = np.random.default_rng(0)
        for step in range(1, steps + 1):
            action = rng.integers(0, ours.single_action_space.n, 1)
            observations, *flags = ours.step(action)[:4]
            others, *other_flags = theirs.step(action)[:4]
            assert flags == other_flags, step
            differ = observations != others
            if found == "none" and differ.any():
                by = np.abs(observations.astype(int) - others).max()
                found = f"{step}: {np.count_nonzero(differ[0, -1])}, by {by}"
    assert found == cell
