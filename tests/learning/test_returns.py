"""Advantages and returns are those of the definition, worked out for one row at a time."""

from functools import partial

import numpy as np
import pytest

import vecwrap
from tests.helpers.naive_steps import act, value
from tests.learning.test_games import MODES, Chooses
from tests.learning.test_rollouts import built, take
from vecwrap.errors import ArgumentError

GAMMA = 0.9
LAMBDA = 0.7


def segments(batch):
    """The steps of each row that lead to each other: (row, steps, value of what followed).

    A step of games that is passed over is in none of them; what followed a lost row's last step is
    what the policy said of the observation that it then acted on.
    """
    values = batch.extras["values"].astype(float)
    last = value(row_of_batch(batch, -1)).astype(float)
    ends = {(t, i): k for k, (t, i) in enumerate(batch.final_obs_index.tolist())}
    for i in range(batch.valid.shape[1]):
        steps = []
        for t in range(len(batch.valid)):
            if batch.valid[t, i]:
                steps.append(t)
            if not (batch.terminations[t, i] or batch.truncations[t, i]):
                continue
            following = 0.0
            if not batch.valid[t, i]:
                following = values[t, i]
            elif not batch.terminations[t, i]:
                k = ends[t, i]
                following = float(value(row_of_batch(batch, slice(k, k + 1), "final_obs"))[0])
            yield i, steps, following
            steps = []
        yield i, steps, last[i]


def row_of_batch(batch, at, name="observations"):
    tree = getattr(batch, name)
    if isinstance(tree, dict):
        return {key: leaf[at] for key, leaf in tree.items()}
    return tree[at]


def naive_gae(batch):
    """The definition: the sum of all k-step surprises to come, weighted."""
    found = np.zeros(batch.valid.shape)
    for i, steps, following in segments(batch):
        values = [float(batch.extras["values"][t, i]) for t in steps] + [following]
        surprises = [
            batch.rewards[t, i] + GAMMA * values[k + 1] - values[k] for k, t in enumerate(steps)
        ]
        for k, t in enumerate(steps):
            found[t, i] = sum((GAMMA * LAMBDA) ** j * one for j, one in enumerate(surprises[k:]))
    return found


def naive_returns(batch, n):
    found = np.zeros(batch.valid.shape)
    for i, steps, following in segments(batch):
        values = [float(batch.extras["values"][t, i]) for t in steps] + [following]
        for k, t in enumerate(steps):
            some = steps[k : k + n] if n else steps[k:]
            paid = sum(GAMMA**j * batch.rewards[at, i] for j, at in enumerate(some))
            found[t, i] = paid + GAMMA ** len(some) * values[k + len(some)]
    return found


def rollout(mode, **options):
    crashes = (7, 0, 3, 11)
    env = built(mode, crashes=crashes, on_failure="restart", max_restarts=99, **options)
    batches = take(vecwrap.rollouts(env, act, n_steps=16), 2)
    env.close()
    return batches


def rollout_of_games(mode):
    env = vecwrap.build("pettingzoo:classic/tictactoe-v3", n=3, autoreset=mode, backend="dummy")
    chooses = Chooses(env)

    def policy(observations, state, episode_start):
        actions, _, state = chooses(observations, state, episode_start)
        return actions, {"values": value(observations)}, state

    batches = take(vecwrap.rollouts(env, policy, n_steps=16), 2)
    env.close()
    return batches


@pytest.mark.parametrize("collect", [rollout, rollout_of_games])
@pytest.mark.parametrize("mode", MODES)
def test_advantages_are_those_of_the_definition(mode, collect):
    for batch in collect(mode):
        advantages, returns = vecwrap.gae(batch, value, GAMMA, LAMBDA)
        expected = naive_gae(batch)
        np.testing.assert_allclose(advantages, expected, rtol=1e-6, atol=1e-6)
        with_values = np.where(batch.valid, expected + batch.extras["values"], 0)
        np.testing.assert_allclose(returns, with_values, rtol=1e-6, atol=1e-6)
        assert advantages.dtype == returns.dtype == np.float32
        assert not advantages[~batch.valid].any()
        assert (~batch.valid).any() or mode != "next_step"


@pytest.mark.parametrize("collect", [rollout, rollout_of_games])
@pytest.mark.parametrize("n", [1, 3, 100, None])
@pytest.mark.parametrize("mode", MODES)
def test_returns_of_some_steps_are_those_of_the_definition(mode, n, collect):
    for batch in collect(mode):
        found = vecwrap.nstep_returns(batch, value, n, GAMMA)
        np.testing.assert_allclose(found, naive_returns(batch, n), rtol=1e-6, atol=1e-6)


def test_advantages_of_lambda_1_are_the_returns_of_all_steps_less_the_values():
    for batch in rollout("same_step"):
        _, returns = vecwrap.gae(batch, value, GAMMA, 1.0)
        np.testing.assert_allclose(returns, vecwrap.nstep_returns(batch, value, None, GAMMA), 1e-5)
        one, _ = vecwrap.gae(batch, value, GAMMA, 0.0)
        expected = vecwrap.nstep_returns(batch, value, 1, GAMMA) - batch.extras["values"]
        np.testing.assert_allclose(one[batch.valid], expected[batch.valid], rtol=1e-4, atol=1e-5)


def test_values_are_asked_for_the_last_observations_of_cut_off_episodes_and_of_the_rollout_alone():
    asked = []

    def counted(observations):
        asked.append(len(observations))
        return value(observations)

    with built() as env:
        (batch,) = take(vecwrap.rollouts(env, act, n_steps=16), 1)
    vecwrap.gae(batch, counted)
    steps, rows = batch.final_obs_index.T
    assert asked == [int(batch.truncations[steps, rows].sum()), 4]
    assert 0 < asked[0] < len(steps)


def test_advantages_are_those_of_stable_baselines3_up_to_its_float32():
    """SB3 computes in float32 throughout, and adds the value of a cut-off episode to its reward."""
    buffers = pytest.importorskip("stable_baselines3.common.buffers")
    import torch

    with built() as env:
        batches = take(vecwrap.rollouts(env, act, n_steps=16), 4)
        spaces = env.single_observation_space, env.single_action_space
    for batch in batches:
        buffer = buffers.RolloutBuffer(16, *spaces, "cpu", LAMBDA, GAMMA, n_envs=4)
        starts = np.zeros(4)
        following = batch.next_observations()
        for t in range(16):
            rewards = batch.rewards[t].copy()
            cut_off = batch.truncations[t] & ~batch.terminations[t]
            if cut_off.any():
                rewards[cut_off] += GAMMA * value(following[t][cut_off])
            values = torch.as_tensor(batch.extras["values"][t])
            buffer.add(batch.observations[t], batch.actions[t], rewards, starts, values, values)
            starts = batch.terminations[t] | batch.truncations[t]
        buffer.compute_returns_and_advantage(torch.as_tensor(value(batch.observations[-1])), starts)
        advantages, returns = vecwrap.gae(batch, value, GAMMA, LAMBDA)
        np.testing.assert_allclose(advantages, buffer.advantages, rtol=2e-6, atol=2e-6)
        np.testing.assert_allclose(returns, buffer.returns, rtol=2e-6, atol=2e-6)


def test_tensors_give_tensors():
    torch = pytest.importorskip("torch")

    def with_tensors(observations):
        actions, extras = act(observations)
        return actions, {"values": torch.as_tensor(extras["values"]).requires_grad_()}

    def tensor_value(observations):
        return torch.as_tensor(value(observations)).to(torch.bfloat16).requires_grad_()

    with built() as env, built() as other:
        (batch,) = take(vecwrap.rollouts(env, with_tensors, n_steps=16), 1)
        (same,) = take(vecwrap.rollouts(other, act, n_steps=16), 1)
    found = vecwrap.gae(batch, tensor_value)
    expected = vecwrap.gae(same, lambda seen: tensor_value(seen).float().detach())
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32
        np.testing.assert_array_equal(one, other)


BATCH = partial(vecwrap.RolloutBatch, np.zeros((3, 2, 1)), np.zeros((2, 2), int))
FLAGS = [np.zeros((2, 2), bool)] * 3
REST = (np.zeros((0, 1)), np.zeros((0, 2), int))


@pytest.mark.parametrize(
    ("extras", "arguments", "said"),
    [
        ({}, {}, r'gae: batch.extras: expected "values".* got \[\]; have the policy return'),
        ({"values": np.zeros((2, 2, 1))}, {}, r"values.squeeze\(-1\) has it"),
        ({"values": np.zeros((2, 2), int)}, {}, "expected floats of shape"),
        ({"values": np.zeros((2, 2))}, {"gamma": 2}, "gae: gamma: expected a number from 0 to 1"),
        ({"values": np.zeros((2, 2))}, {"gae_lambda": -1}, "gae: gae_lambda: expected a number"),
        ({"values": np.zeros((2, 2))}, {}, r"gae: value: expected 2 values .*got shape \(2, 1\)"),
    ],
    ids=["none", "an axis more", "integers", "gamma", "lambda", "value"],
)
def test_values_of_another_form_are_refused(extras, arguments, said):
    batch = BATCH(extras, np.zeros((2, 2)), *FLAGS, *REST)
    with pytest.raises(ArgumentError, match=said):
        vecwrap.gae(batch, lambda observations: observations, **arguments)


def test_returns_without_values_need_a_rollout_that_has_no_step_in_need_of_them():
    batch = BATCH({}, np.ones((2, 2)), *FLAGS[:2], ~FLAGS[2], *REST)
    found = vecwrap.nstep_returns(batch, lambda observations: np.full(2, 4.0), None, 0.5)
    assert found.tolist() == [[2.5, 2.5], [3.0, 3.0]]
    with pytest.raises(ArgumentError, match="nstep_returns: batch.extras: expected"):
        vecwrap.nstep_returns(batch, lambda observations: np.zeros(2), 1)
    with pytest.raises(ArgumentError, match="n: expected an int of 1 or more, got 0"):
        vecwrap.nstep_returns(batch, lambda observations: np.zeros(2), 0)
