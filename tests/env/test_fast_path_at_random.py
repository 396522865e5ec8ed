"""The straight path of a step beside the general path, over the same random stream: ends, resets,
parts, errors.
"""

import numpy as np
import pytest

import vecwrap
from tests.env.test_fast_path import BACKENDS, Seated, taken  # noqa: F401  # a fixture
from tests.helpers.reference_game_rows import (
    FAILS,
    FailingCrowd,
    FailingGuests,
    FailingLingeringCrowd,
)
from vecwrap.errors import SubEnvError
from vecwrap.testing import assert_same

MODES = ["same_step", "next_step", "disabled", "episodic"]
CHAIN = ["clip_reward:low=-2,high=2", "framestack:3", "normalize", "monitor"]
SUBJECTS = {
    "numbers": (Seated, CHAIN, 1),
    "guests": (FailingGuests, CHAIN, 4),
    "crowd": (
        FailingCrowd,
        ["normalize_reward", "time_aware:limit=99,flatten=false", "monitor"],
        4,
    ),
    "lingering crowd": (FailingLingeringCrowd, ["monitor"], 4),
}
SOURCES = 5


class Pair:
    """Two vectors of which one takes the straight path wherever it may, and the other never."""

    def __init__(self, subject, backend, mode, seed):
        make, chain, self.k = SUBJECTS[subject]
        options = {"wrappers": chain, "backend": BACKENDS[backend], "autoreset": mode}
        if self.k == 1:
            make = [lambda length=length: Seated(length) for length in range(3, 3 + SOURCES)]
        else:
            options["n"] = SOURCES
        self.fast, self.general = vecwrap.build(make, **options), vecwrap.build(make, **options)
        self.envs = self.fast, self.general
        self.rng, self.mode = np.random.default_rng(seed), mode
        self.num_rows = self.whole_steps = self.errors = 0
        self.over = np.zeros(SOURCES, bool)

    def same(self, *calls):
        """Call both; compare what they give, or how they fail."""
        results = []
        for call in calls:
            try:
                results.append(without_seconds(call()))
            except SubEnvError as error:
                failed = [one.index for one in error.failures]
                results.append((str(error), failed, without_seconds(error.others)))
        assert_same(*results)
        self.num_rows += self.fast.num_envs
        failed = isinstance(results[0][0], str)
        self.errors += failed
        self.note(results[0][-1] if failed else results[0])
        return not failed

    def actions(self):
        space = self.fast.action_space
        if self.k == 1:
            return self.rng.normal(size=space.shape).astype(space.dtype)
        return self.rng.integers(0, 5, space.shape)

    def step(self):
        actions, fails = self.actions(), self.rng.random() < 0.02
        if fails and self.k == 1:
            raises = [ValueError("no") if i == 1 else None for i in range(SOURCES)]
            for env in self.envs:
                env.set_attr("raises", raises)
        elif fails:
            actions[self.fast.to_move & (np.arange(len(actions)) // self.k == 1)] = FAILS
        worked = self.same(
            lambda: self.fast.step(actions), lambda: in_halves(self.general, actions)
        )
        self.whole_steps += 1
        if fails and self.k == 1:
            for env in self.envs:
                env.set_attr("raises", None)
        if not worked:
            self.reset([1])

    def part(self):
        ids = np.flatnonzero(self.rng.random(SOURCES) < 0.5)
        if len(ids):
            rows = (ids[:, None] * self.k + np.arange(self.k)).ravel()
            actions = self.actions()[rows]
            self.same(*(lambda env=env: sent(env, actions, rows) for env in self.envs))

    def reset(self, sources):
        mask = np.isin(np.arange(SOURCES), sources)
        seed = None if self.rng.random() < 0.5 else self.rng.integers(2**31, size=SOURCES).tolist()
        options = {"reset_mask": mask.repeat(self.k)}
        self.over[sources] = False
        self.same(*(lambda env=env: env.reset(seed=seed, options=options) for env in self.envs))

    def note(self, result):
        """See whose episode, or game, is over."""
        if self.k > 1:
            self.over = ~self.fast.alive.reshape(-1, self.k).any(axis=1)
        elif len(result) == 5:
            self.over[result[4].get("env_id", slice(None))] = result[2] | result[3]

    def play(self, num_rows):
        self.same(*(lambda env=env: env.reset(seed=7) for env in self.envs))
        while self.num_rows < num_rows:
            must = self.mode == "disabled" or (self.mode == "episodic" and self.rng.random() < 0.5)
            if must and self.over.any():
                self.reset(np.flatnonzero(self.over))
            chance = self.rng.random()
            if chance < 0.9:
                self.step()
            elif chance < 0.95:
                self.part()
            elif chance < 0.97:
                self.reset(self.rng.permutation(SOURCES)[: self.rng.integers(1, SOURCES + 1)])
            elif self.k == 1:
                assert_same(*(env.get_attr("steps") for env in self.envs))
            else:
                assert_same(*(env.call("state") for env in self.envs))
        for wrapper, twin in zip(self.fast.chain[:-1], self.general.chain[:-1], strict=True):
            assert_same(
                without_seconds((wrapper.wrapper_state(),)),
                without_seconds((twin.wrapper_state(),)),
            )


def in_halves(env, actions):
    env.step_async(actions)
    return env.step_wait()


def sent(env, actions, rows):
    env.send(actions, rows)
    return env.recv()


def without_seconds(result):
    """The same without how many seconds an episode took."""

    def plain(value, key=""):
        if isinstance(value, dict):
            return {
                name: plain(one, name)
                for name, one in value.items()
                if name not in ("t", "_t", "elapsed")
            }
        if key == "recent":
            return [[score, length, *others] for score, length, _, *others in value]
        return value

    return tuple(map(plain, result))


def compared(subject, backend, mode, num_rows, seed=0):
    pair = Pair(subject, backend, mode, seed)
    with pair.fast, pair.general:
        pair.play(num_rows)
    return pair


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_random_stream_is_the_same_on_both_paths(subject, mode, taken):  # noqa: F811
    pair = compared(subject, "dummy", mode, 500)
    assert len(taken) > pair.whole_steps / 4


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("subject", "backend"),
    [*((subject, "dummy") for subject in SUBJECTS), ("numbers", "shmem"), ("guests", "shared")],
)
def test_a_hundred_thousand_rows_are_the_same_on_both_paths(subject, backend, mode, taken):  # noqa: F811
    pair = compared(subject, backend, mode, 100_000, seed=1)
    assert len(taken) > pair.whole_steps / 4
    assert pair.errors > 50
