"""With overlap=2 one half of the rows steps while the policy is called for the other one, and the
batches stay as they are without.
"""

import threading
from dataclasses import fields
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import vecwrap
from tests.helpers.naive_steps import Remembers, act, transitions, value
from tests.learning.test_rollouts import (
    MODES,
    SPACES,
    Crashing,
    built,
    same_steps,
    settings_of,
    take,
    taken,
)
from vecwrap.errors import ArgumentError, SubEnvError
from vecwrap.rows.compare import assert_same

THREADS = {"name": "threads", "workers": 2}
CRASHES = (7, 0, 3, 11, 5)
LOSSES = {"crashes": CRASHES, "on_failure": "restart", "max_restarts": 99}


def threaded(mode="same_step", space="vector", crashes=(0,) * 5, **options):
    """Five rows on two threads, the first of which has rows of both halves."""
    each = settings_of(space, crashes[:4])
    each += [{**each[0], "lengths": (2, 6), "index": 4, "crash": crashes[4]}]
    options = {"backend": THREADS, **options}
    return vecwrap.build(Crashing, env_kwargs=each, autoreset=mode, **options), each


def both(n_steps=13, count=3, policy=act, **settings):
    """The batches with overlap=2, those without, and how the sub-environments were made."""
    found = []
    for overlap in (2, 1):
        env, each = threaded(**settings)
        with env:
            found.append(take(vecwrap.rollouts(env, policy, n_steps, overlap=overlap), count))
    return *found, each


def same_batches(found, expected):
    for batch, same in zip(found, expected, strict=True):
        for field in fields(batch):
            assert_same(getattr(batch, field.name), getattr(same, field.name))
        assert_same(batch.next_observations(), same.next_observations())
        for got, wanted in zip(vecwrap.gae(batch, value), vecwrap.gae(same, value), strict=True):
            assert_same(got, wanted)


@pytest.mark.parametrize("copy", [True, False], ids=["copies", "views"])
@pytest.mark.parametrize("mode", MODES)
def test_batches_are_those_without_overlap_and_of_naive_loops(mode, copy):
    found, expected, each = both(mode=mode, copy=copy, **LOSSES)
    same_batches(found, expected)
    for i, settings in enumerate(each):
        same_steps(taken(found, i), transitions(partial(Crashing, **settings), 40))
    ended = sum(len(batch.final_obs_index) for batch in found)
    lost = sum((batch.truncations & ~batch.valid).sum() for batch in found)
    assert ended > 25
    assert lost > 5


@pytest.mark.parametrize("space", [name for name in SPACES if name != "vector"])
def test_batches_of_any_space_are_those_without_overlap(space):
    found, expected, _ = both(space=space, count=2)
    same_batches(found, expected)


@pytest.mark.parametrize(
    "backend",
    [{"name": "shmem", "workers": 2}, pytest.param("subprocess", marks=pytest.mark.full)],
    ids=["shmem", "subprocess"],
)
def test_batches_of_worker_processes_are_those_without_overlap(backend):
    found, expected, _ = both(mode="next_step", backend=backend, count=2)
    same_batches(found, expected)


class Counted(gymnasium.Env):
    """Counts its steps where a policy in the same process sees them."""

    observation_space = spaces.Box(0, 1e6, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, index, steps, stepped):
        self.index = index
        self.steps = steps
        self.stepped = stepped

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.full(1, self.index, np.float32), {}

    def step(self, action):
        with self.stepped:
            self.steps[self.index] += 1
            self.stepped.notify_all()
        return np.full(1, self.index, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("n", [2, 5])
def test_one_half_steps_while_the_policy_is_called_for_the_other(n):
    steps = np.zeros(n, int)
    stepped = threading.Condition()
    asked = []
    in_flight = []

    def policy(observations):
        """Returns only when the other half has stepped."""
        rows = observations[:, 0].astype(int).tolist()
        others = np.flatnonzero(env.health().in_flight).tolist()
        done = (len(asked) + 1) // 2
        with stepped:
            assert stepped.wait_for(lambda: (steps[others] == done).all(), 20)
        asked.append(rows)
        in_flight.append(others)
        return np.zeros(len(rows), int)

    makes = [partial(Counted, i, steps, stepped) for i in range(n)]
    with vecwrap.build(makes, backend=THREADS) as env:
        iterator = vecwrap.rollouts(env, policy, n_steps=4, overlap=2)
        next(iterator)
        assert not env.health().in_flight.any()  # between two batches nothing is
        iterator.close()
    even, odd = list(range(0, n, 2)), list(range(1, n, 2))
    assert asked == [even, odd] * 4
    assert in_flight == [[], *asked[:-1]]
    assert steps.tolist() == [4] * n


def test_going_on_and_stopping_are_as_without_overlap():
    counts = []
    for overlap in (2, 1):
        env, _ = threaded("next_step")
        with env:
            first = list(vecwrap.rollouts(env, act, 5, 60, overlap=overlap))
            more = take(vecwrap.rollouts(env, act, 5, reset=False, overlap=overlap), 2)
            counts.append([*first, *more])
    same_batches(*counts)
    assert sum(batch.valid.sum() for batch in counts[0][:-3]) < 60


def test_tensors_that_a_policy_gives_keep_their_gradients():
    torch = pytest.importorskip("torch")
    gradients = []
    for overlap in (2, 1):
        weight = torch.ones(3, requires_grad=True)

        def policy(observations, weight=weight):
            values = torch.as_tensor(observations) @ weight
            actions = torch.zeros(len(observations), dtype=torch.int64)
            return actions, {"values": values, "more": {"bare": observations[:, 0].tolist()}}

        env, _ = threaded()
        with env:
            (batch,) = take(vecwrap.rollouts(env, policy, n_steps=6, overlap=overlap), 1)
        assert batch.extras["more"]["bare"].shape == (6, 5)
        np.testing.assert_array_equal(
            batch.extras["more"]["bare"], batch.observations[:-1, :, 0].astype(float)
        )
        (batch.extras["values"] * torch.arange(30).reshape(6, 5)).sum().backward()
        gradients.append(weight.grad.numpy())
    np.testing.assert_allclose(*gradients)


@pytest.mark.parametrize("mode", ["same_step", "disabled"])
def test_an_environment_of_tensors_gives_those_without_overlap(mode):
    torch = pytest.importorskip("torch")

    def policy(observations):
        actions, extras = act(observations.numpy())
        return torch.as_tensor(actions), {"values": torch.as_tensor(extras["values"])}

    found = []
    for overlap in (2, 1):
        tensors = vecwrap.to_torch(threaded(mode)[0])
        with tensors:
            found.append(take(vecwrap.rollouts(tensors, policy, 13, overlap=overlap), 2))
    for batch, same in zip(*found, strict=True):
        for field in fields(batch):
            if field.name in ("state", "late", "extras"):
                continue
            got, wanted = getattr(batch, field.name), getattr(same, field.name)
            assert isinstance(got, torch.Tensor)
            assert got.dtype == wanted.dtype
            assert torch.equal(got, wanted)
        assert torch.equal(batch.extras["values"], same.extras["values"])


def test_what_a_policy_writes_and_reuses_changes_nothing():
    out = {"values": np.zeros(5, np.float32), "actions": np.zeros(5, int)}

    def scribbles(observations):
        number = len(observations)
        actions, extras = act(observations)
        out["values"][:number] = extras["values"]
        out["actions"][:number] = actions
        observations[:] = 0
        return out["actions"][:number], {"values": out["values"][:number]}

    found, _, _ = both(policy=scribbles, mode="disabled")
    _, expected, _ = both(mode="disabled")
    same_batches(found, expected)


class Failing(Exception):
    pass


def test_after_an_error_nothing_is_in_flight():
    calls = []

    def policy(observations):
        calls.append(len(observations))
        if len(calls) == 4:
            raise Failing
        return act(observations)

    env, _ = threaded()
    with env:
        with pytest.raises(Failing):
            next(vecwrap.rollouts(env, policy, overlap=2))
        assert not env.health().in_flight.any()
        env.reset()
    env, _ = threaded(crashes=CRASHES)
    with env:
        with pytest.raises(SubEnvError, match="sub-environment 2 .* raised Broken"):
            next(vecwrap.rollouts(env, act, overlap=2))
        assert not env.health().in_flight.any()
        env.reset()


class Masked(Crashing):
    def info(self, over=False):
        return {"action_mask": (np.arange(3) == int(self.observe()[0]) % 3).astype(np.int8)}


def test_masks_are_those_of_the_half_that_is_to_act():
    def policy(observations, *, action_masks, infos, rngs):
        assert len(observations) == len(action_masks) == len(infos["action_mask"]) == len(rngs)
        assert (action_masks == infos["action_mask"]).all()
        drawn = np.array([rng.random() for rng in rngs])
        return action_masks.argmax(axis=1), {"drawn": drawn}

    found = []
    for overlap in (2, 1):
        with vecwrap.build(Masked, env_kwargs=settings_of(), backend=THREADS) as env:
            found.append(take(vecwrap.rollouts(env, policy, 9, overlap=overlap), 1))
    for batch, same in zip(*found, strict=True):
        assert (batch.actions == batch.observations[:-1, :, 0].astype(int) % 3).all()
        assert_same(batch.asdict(), same.asdict())


def test_statistics_over_all_rows_are_warned_of():
    env, _ = threaded(wrappers=["framestack:2", "normalize"])
    with env, pytest.warns(UserWarning, match="all rows of Normalize are updated") as warned:
        vecwrap.rollouts(env, act, overlap=2)
    assert warned[0].filename == __file__


def test_batches_under_frozen_statistics_are_those_without_overlap():
    found = []
    for overlap in (2, 1):
        env, _ = threaded(wrappers=["framestack:2", "normalize"])
        with env:
            take(vecwrap.rollouts(env, act, 9), 1)
            found.append(take(vecwrap.rollouts(env.eval(), act, 9, overlap=overlap), 2))
    same_batches(*found)


@pytest.mark.parametrize(
    ("policy", "options", "said"),
    [
        (act, {"backend": "dummy"}, r"expected a backend with workers \(.*\), got dummy"),
        (act, {"batch_size": 2}, "expected overlap=2 or an environment built with batch_size"),
        (Remembers(), {}, "with overlap=2, expected a policy without a state"),
    ],
    ids=["dummy", "batch_size", "state"],
)
def test_what_does_not_go_together_with_overlap_is_refused(policy, options, said):
    with built(**{"backend": THREADS, **options}) as env, pytest.raises(ArgumentError, match=said):
        vecwrap.rollouts(env, policy, overlap=2)


@pytest.mark.parametrize(
    ("env", "options", "said"),
    [
        ("CartPole-v1", {"n": 1}, "expected n=2 or more, got n=1"),
        ("CartPole-v1", {"n": 4, "envs_per_engine": 2}, "got an engine, whose rows step together"),
        ("pettingzoo:classic/tictactoe-v3", {"n": 2}, "expected games of several agents without"),
    ],
    ids=["n", "engine", "games"],
)
def test_rows_that_cannot_be_halved_are_refused(env, options, said):
    if ":" in env:
        pytest.importorskip("pettingzoo")
    mode = {"autoreset": "next_step"} if "envs_per_engine" in options else {}
    with (
        vecwrap.build(env, backend={"name": "shmem", "workers": 1}, **mode, **options) as made,
        pytest.raises(ArgumentError, match=said),
    ):
        vecwrap.rollouts(made, act, overlap=2)


@pytest.mark.parametrize("overlap", [0, 3, None])
def test_other_overlaps_are_refused(overlap):
    with built() as env, pytest.raises(ArgumentError, match="overlap: expected 1 or 2, got"):
        vecwrap.rollouts(env, act, overlap=overlap)
