"""Draw the timelines of autoreset.md, from real runs: ``python docs/timelines.py``.

Two sub-environments, whose episodes last three and four steps, are played for eight calls in each
autoreset mode. All that is drawn comes out of what ``reset`` and ``step`` gave. The tests compare
the pictures with what is drawn now.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import vecwrap

HERE = Path(__file__).resolve().parent
MODES = ("same_step", "next_step", "disabled", "episodic")
LENGTHS = (3, 4)
CALLS = 8
WIDTH, HEIGHT, LEFT, TOP = 92, 62, 64, 46
COLOURS = ("#4361c2", "#c2571a", "#2f855a", "#7b4bb0")  # of the first episode, the second, ...


class Numbered(gymnasium.Env[np.ndarray, int]):
    """Shows the number of its episode and the step within it; its episodes all have one length."""

    observation_space = gymnasium.spaces.Box(0, 99, (2,), np.int64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length: int) -> None:
        self.length, self.episode, self.count = length, 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict]:
        """Begin the next episode."""
        super().reset(seed=seed)
        self.episode, self.count = self.episode + 1, 0
        return np.array([self.episode, 0]), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Go on by one."""
        self.count += 1
        return np.array([self.episode, self.count]), 1.0, self.count == self.length, False, {}


@dataclass(frozen=True)
class Cell:
    """What one call gave for one sub-environment; observations are (episode, step within it)."""

    observation: tuple[int, int]
    reward: float | None = None
    ended: bool = False
    final: tuple[int, int] | None = None

    def __str__(self) -> str:
        """Everything in one word, as ``2.0 +1 end (1.3)``."""
        words = ["{}.{}".format(*self.observation)]
        words += [] if self.reward is None else [f"+{self.reward:.0f}"]
        words += ["end"] if self.ended else []
        words += [] if self.final is None else ["({}.{})".format(*self.final)]
        return " ".join(words)


def play(mode: str) -> list[tuple[str, list[Cell | None]]]:
    """Give the calls of a run, each with what it gave for each sub-environment; None where a row
    was left alone.
    """
    factories: list[Callable[[], Numbered]] = [
        lambda length=length: Numbered(length) for length in LENGTHS
    ]
    with vecwrap.build(factories, autoreset=mode, backend="dummy") as env:
        observations, _ = env.reset()
        calls: list[tuple[str, list[Cell | None]]] = [
            ("reset", [Cell(pair(row)) for row in observations])
        ]
        ended = np.zeros(len(LENGTHS), bool)
        while len(calls) < CALLS:
            if mode == "disabled" and ended.any():
                observations, _ = env.reset(options={"reset_mask": ended})
                fresh = zip(observations, ended, strict=True)
                calls.append(
                    (
                        "reset rows",
                        [Cell(pair(row)) if was_reset else None for row, was_reset in fresh],
                    )
                )
                ended = np.zeros(len(LENGTHS), bool)
                continue
            observations, rewards, terminations, truncations, infos = env.step(
                np.zeros(len(LENGTHS), int)
            )
            ended = terminations | truncations
            finals = infos.get("final_obs", [None] * len(LENGTHS))
            columns = zip(observations, rewards, ended, finals, strict=True)
            cells = [
                Cell(pair(o), float(r), bool(e), None if f is None else pair(f))
                for o, r, e, f in columns
            ]
            calls.append(("step", list(cells)))
    return calls


def pair(observation: np.ndarray) -> tuple[int, int]:
    """An observation as plain numbers."""
    return int(observation[0]), int(observation[1])


def draw(mode: str) -> str:
    """The picture of a mode, as SVG."""
    calls = play(mode)
    width, height = LEFT + WIDTH * len(calls) + 8, TOP + HEIGHT * len(LENGTHS) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="system-ui, sans-serif" text-anchor="middle">',
        f"<title>{mode}: what each call gives for two sub-environments</title>",
        f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>',
    ]
    heights = [TOP + HEIGHT * (i + 0.5) for i in range(len(LENGTHS))]
    parts += [text(LEFT / 2, y, f"row {i}", "#333333", 14) for i, y in enumerate(heights)]
    for column, (call, cells) in enumerate(calls):
        x = LEFT + WIDTH * column
        ink = "#333333" if call == "step" else "#b00020"
        parts.append(text(x + WIDTH / 2 - 3, TOP - 16, call, ink, 14))
        for i, cell in enumerate(cells):
            if cell is not None:
                parts += box(x, TOP + HEIGHT * i, cell)
    return "\n".join([*parts, "</svg>"]) + "\n"


def box(x: float, y: float, cell: Cell) -> list[str]:
    """One cell: the observation, the reward below it, a thick edge where the episode ended."""
    colour = COLOURS[(cell.observation[0] - 1) % len(COLOURS)]
    acted = bool(cell.reward)
    fill, ink = (colour, "#ffffff") if acted else ("#ffffff", colour)
    middle, parts = x + WIDTH / 2 - 3, []
    parts.append(
        f'<rect x="{x + 1}" y="{y + 1}" width="{WIDTH - 8}" height="{HEIGHT - 8}" rx="5" '
        f'fill="{fill}" stroke="{colour}" stroke-width="2"/>'
    )
    parts.append(text(middle, y + 17, "{}.{}".format(*cell.observation), ink, 16, bold=True))
    below = [] if cell.reward is None else [f"reward {cell.reward:.0f}"]
    below += ["ended"] if cell.ended and cell.final is None else []
    if cell.final is not None:
        below.append("ended: {}.{}".format(*cell.final))
    for line, words in enumerate(below):
        parts.append(text(middle, y + 32 + 14 * line, words, ink, 12))
    return parts


def text(x: float, y: float, words: str, colour: str, size: int, *, bold: bool = False) -> str:
    """Words around a place."""
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:g}" y="{y + 4:g}" font-size="{size}" fill="{colour}"{weight}>{words}</text>'
    )


if __name__ == "__main__":
    for name in MODES:
        HERE.joinpath(f"autoreset-{name}.svg").write_text(draw(name), encoding="utf-8")
