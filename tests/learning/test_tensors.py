"""Rollouts and transitions of an environment of tensors are those of its arrays."""

import numpy as np
import pytest

import vecwrap
from tests.helpers.naive_steps import act, value
from tests.learning.test_rollouts import MODES, built, take
from tests.learning.test_uneven import built as built_uneven
from vecwrap.rows.batch import leaves

if not hasattr(vecwrap, "to_torch"):
    pytest.skip("there is no to_torch", allow_module_level=True)

NAMES = ("observations", "actions", "rewards", "terminations", "truncations", "valid")
ENDS = ("final_obs", "final_obs_index")
CRASHES = {"crashes": (7, 0, 3, 11), "on_failure": "restart", "max_restarts": 99}


def act_on_tensors(observations):
    import torch

    arrays = as_arrays(observations)
    actions, extras = act(arrays)
    return torch.as_tensor(actions), {"values": torch.as_tensor(extras["values"])}


def as_arrays(tree):
    if isinstance(tree, dict):
        return {key: as_arrays(part) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(as_arrays(part) for part in tree)
    return tree.numpy()


def same(one, other):
    """Tensors that are equal to arrays, with floats in float32."""
    import torch

    for (path, tensor), (same_path, array) in zip(leaves(one), leaves(other), strict=True):
        assert path == same_path
        assert isinstance(tensor, torch.Tensor)
        assert tensor.dtype != torch.float64
        np.testing.assert_array_equal(tensor.numpy(), array.astype(tensor.numpy().dtype))


@pytest.mark.parametrize("space", ["vector", "dict", "tuple"])
@pytest.mark.parametrize("mode", MODES)
def test_rollouts_of_tensors_are_those_of_arrays(mode, space):
    pytest.importorskip("torch")
    with built(mode, space, **CRASHES) as env, built(mode, space, **CRASHES) as other:
        tensors = vecwrap.to_torch(env)
        found = take(vecwrap.rollouts(tensors, act_on_tensors, n_steps=13), 2)
        found += take(vecwrap.rollouts(tensors, act_on_tensors, n_steps=13, reset=False), 1)
        expected = take(vecwrap.rollouts(other, act, n_steps=13), 3)
    for batch, same_batch in zip(found, expected, strict=True):
        for name in (*NAMES, *ENDS):
            same(getattr(batch, name), getattr(same_batch, name))
        same(batch.extras, same_batch.extras)
        same(batch.next_observations(), same_batch.next_observations())
        if space != "tuple":  # whose float64 a critic sees as float32
            given = vecwrap.gae(batch, lambda seen: value(as_arrays(seen)))
            for one, two in zip(given, vecwrap.gae(same_batch, value), strict=True):
                same(one, two)


@pytest.mark.parametrize("mode", MODES)
def test_transitions_of_tensors_are_those_of_arrays(mode):
    pytest.importorskip("torch")
    with built(mode, **CRASHES) as env, built(mode, **CRASHES) as other:
        stream = vecwrap.transitions(vecwrap.to_torch(env), act_on_tensors, total_steps=80)
        expected = vecwrap.transitions(other, act, total_steps=80)
        for step, same_step in zip(stream, expected, strict=True):
            for name in (*NAMES[:-1], "next_observations", "env_ids", "extras"):
                same(getattr(step, name), getattr(same_step, name))


def test_uneven_simulators_give_tensors_too():
    pytest.importorskip("torch")
    with built_uneven() as env, built_uneven() as other:
        tensors = vecwrap.to_torch(env)
        found = take(vecwrap.rollouts(tensors, act_on_tensors, 10, min_fraction=0.9), 3)
        expected = take(vecwrap.rollouts(other, act, 10, min_fraction=0.9), 3)
    for batch, same_batch in zip(found, expected, strict=True):
        for name in (*NAMES, *ENDS):
            same(getattr(batch, name), getattr(same_batch, name))
