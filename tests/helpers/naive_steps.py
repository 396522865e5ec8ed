"""What a policy does in one environment by itself, one step after the other, without modes."""

import numpy as np

from vecwrap.rows.batch import leaves
from vecwrap.testing.toys import digest


def rows_of(tree):
    """The rows of a batch, each as a tree of its own."""
    number = len(leaves(tree)[0][1])
    return [row_of(tree, i) for i in range(number)]


def row_of(tree, i):
    if isinstance(tree, dict):
        return {key: row_of(part, i) for key, part in tree.items()}
    if isinstance(tree, tuple) and not isinstance(tree[0], str):  # texts of several rows
        return tuple(row_of(part, i) for part in tree)
    return np.array(tree[i])


def code(observation):
    """A number that depends on every byte of an observation, whatever made it."""
    return digest([np.asarray(leaf).tolist() for _, leaf in leaves(observation)])


def act(observations):
    """A policy that looks at each row by itself; its values, too, are the row's alone."""
    codes = np.array([code(row) for row in rows_of(observations)])
    return codes % 3, {"values": values_of(codes)}


def value(observations):
    return values_of(np.array([code(row) for row in rows_of(observations)]))


def values_of(codes):
    return (codes % 1009 / 1009 - 0.5).astype(np.float32)


class Remembers:
    """A policy with a state: the steps of each row's episode; its actions depend on both."""

    def __init__(self):
        self.starts = []

    def __call__(self, observations, state, episode_start):
        state = np.zeros(len(episode_start), int) if state is None else state
        state = np.where(episode_start, 0, state + 1)
        self.starts.append(episode_start.copy())
        codes = np.array([code(row) for row in rows_of(observations)])
        return (codes + state) % 3, {"values": values_of(codes), "age": state}, state


class Broken(Exception):
    pass


def transitions(make, count, policy_action=None, limit=None):
    """``count`` steps of what ``make()`` makes, with what no step is: the losses between them.

    Yields (observation, action, reward, terminated, truncated, next observation), or None and the
    last observation where the environment raised, after which another one is made.
    """
    choose = policy_action or (lambda observation, age: code(observation) % 3)
    found = []
    env = make()
    observation, _ = env.reset()
    age = 0
    while sum(one is not None for one, _ in found) < count:
        action = choose(observation, age)
        try:
            after, reward, terminated, truncated, _ = env.step(action)
        except Broken:
            found.append((None, observation))
            env = make()
            observation, _ = env.reset()
            age = 0
            continue
        step = observation, action, reward, terminated, truncated, after
        found.append((step, after))
        observation = after
        age += 1
        if terminated or truncated:
            observation, _ = env.reset()
            age = 0
    return found
