"""Rock, paper, scissors: players that are a probability for each move, and players of known
strength.
"""

import math

import numpy as np
from gymnasium import spaces

from vecwrap.selfplay.ratings import ELO
from vecwrap.selfplay.results import Results, Row

OBSERVATIONS, ACTIONS = spaces.Box(0, 1, (1,), np.float32), spaces.Discrete(3)
SEEN = np.zeros((4, 1), np.float32)


def weights(move=0, shape=(3,)):
    """The arrays of a player that always plays one move."""
    logits = np.zeros(shape, np.float32)
    logits.flat[move % logits.size] = 1
    return {"logits": logits}


def make(arrays):
    """A policy that plays its largest logit."""
    return lambda observations: np.full(len(observations), int(arrays["logits"].argmax()))


def make_raising(arrays):
    raise ValueError("size mismatch for logits")


def make_nothing(arrays):
    return 3


def rock(observations):
    return np.zeros(len(observations), np.int64)


NOT_CALLABLE = 3


def oldest(members, win_rates):
    """A sampling rule."""
    return np.arange(len(members)) == 0


def result(move, other):
    """1, 0 or -1: paper beats rock, scissors beat paper, rock beats scissors."""
    return (move - other + 1) % 3 - 1


def play(rng, strengths, games, *, seat=0.0, draws=0.0):
    """Let players of known Elo strengths play each other, in both seats; the first seat has an
    advantage.
    """
    rows = []
    for one in strengths:
        for other in strengths:
            if one != other:
                wins = 1 / (1 + math.exp(-(strengths[one] - strengths[other] + seat) / ELO))
                drawn = draws * 2 * min(wins, 1 - wins)
                counts = rng.multinomial(games, [wins - drawn / 2, drawn, 1 - wins - drawn / 2])
                rows.append(Row(one, other, 0, *counts.tolist()))
    return Results(rows)
