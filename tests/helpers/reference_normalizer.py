"""Normalising done by hand: everything counted so far is kept, and its mean and variance worked out
anew each time.
"""

import numpy as np

from tests.helpers.call_events import ended

# the mean 0 and variance 1 that Baselines, SB3 and Gymnasium begin with count for this many values
PRIOR = 1e-4


def mean_and_var(values, shape=()):
    """Two passes over everything, in float64."""
    values = np.array(values, np.float64).reshape(-1, *shape)
    total = PRIOR + len(values)
    mean = values.sum(axis=0) / total
    return mean, (PRIOR * (1 + mean**2) + ((values - mean) ** 2).sum(axis=0)) / total


def normalized_observations(
    calls, clip=10.0, member=lambda observation: observation, training=lambda k: True
):
    """For each call the normalised observations of its events, in their order.

    What counts: the observation of every reset, and of every step that did not end an episode.
    """
    counted, results = [], []
    for k, events in enumerate(calls):
        if training(k):
            counted += [
                member(e.observation) for _, e in events if e.kind == "reset" or not ended(e)
            ]
        values = [np.asarray(member(e.observation), np.float64) for _, e in events]
        shape = values[0].shape if values else ()
        mean, var = mean_and_var(counted, shape)
        results.append(
            [np.clip((value - mean) / np.sqrt(var + 1e-8), -clip, clip) for value in values]
        )
    return results


def normalized_rewards(calls, gamma=0.99, clip=10.0, training=lambda k: True):
    """For each call the normalised rewards of its events; a reset has none."""
    returns, counted, results = {}, [], []
    for k, events in enumerate(calls):
        for i, event in events:
            if event.kind == "reset":
                returns[i] = 0.0
            elif training(k):
                returns[i] = returns[i] * gamma + event.reward
                counted.append(returns[i])
            if ended(event):
                returns[i] = 0.0
        _, var = mean_and_var(counted)
        results.append(
            [float(np.clip(event.reward / np.sqrt(var + 1e-8), -clip, clip)) for _, event in events]
        )
    return results
