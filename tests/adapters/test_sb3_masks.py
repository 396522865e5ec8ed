"""sb3-contrib's MaskablePPO through ``to_sb3``: as on SB3's own DummyVecEnv, and where it finds the
masks.
"""

import functools
import warnings

import numpy as np
import pytest
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

import vecwrap
from tests.env.test_action_masks import Steps, best
from tests.helpers.stream_envs import assert_same

sb3_contrib = pytest.importorskip("sb3_contrib")
evaluation = pytest.importorskip("sb3_contrib.common.maskable.evaluation")
utils = pytest.importorskip("sb3_contrib.common.maskable.utils")

PLACES = ["method", "infos", "member"]


def adapted(place="method", backend="dummy", wrappers=("monitor",), n=2):
    return vecwrap.to_sb3(
        vecwrap.build(
            [functools.partial(Steps, place)] * n, wrappers=list(wrappers), backend=backend, seed=3
        )
    )


def trained(venv, policy="MlpPolicy"):
    model = sb3_contrib.MaskablePPO(
        policy, venv, n_steps=32, batch_size=16, n_epochs=2, seed=3, device="cpu"
    ).learn(128)
    return model, {name: value.numpy() for name, value in model.policy.state_dict().items()}


@pytest.mark.parametrize("backend", ["dummy", "shmem"])
def test_training_gives_the_weights_of_sb3s_own_dummy_vec_env(backend):
    theirs = DummyVecEnv([lambda: Monitor(Steps("method"), allow_early_resets=True)] * 2)
    (_, expected), ours = trained(theirs), adapted(backend=backend)
    _, weights = trained(ours)
    ours.close()
    for name, value in expected.items():
        np.testing.assert_array_equal(weights[name], value)


def test_training_is_the_same_wherever_the_masks_are():
    results = []
    for place in PLACES:
        venv = adapted(
            place, "shmem", ["extract_obs:at", "monitor"] if place == "member" else ["monitor"]
        )
        results.append(trained(venv)[1])
        venv.close()
    for others in results[1:]:
        assert_same(results[0], others)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("around", [lambda venv: venv, VecMonitor], ids=["alone", "in VecMonitor"])
def test_sb3_contrib_finds_the_masks_and_never_plays_illegally(place, around):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are two monitors
        venv = around(adapted(place, "shmem"))
    assert utils.is_masking_supported(venv) == (place != "infos")  # which there are none of yet
    venv.reset()
    assert utils.is_masking_supported(venv)
    model, _ = trained(venv, "MultiInputPolicy" if place == "member" else "MlpPolicy")
    for _ in range(12):
        masks = utils.get_action_masks(venv)
        assert masks.shape == (2, 4)
        assert (masks.sum(axis=1) == 1).all()
        _, rewards, _, _ = venv.step(masks.argmax(axis=1))
        assert (rewards == 1).all()
    assert best(
        *map(np.array, evaluation.evaluate_policy(model, venv, 6, return_episode_rewards=True))
    )
    reached = vecwrap.evaluate(venv.unwrapped.vecwrap_env, model, 6, seed=1)
    assert best(reached.returns, reached.lengths)
    venv.close()


def test_without_masks_it_is_not_supported():
    venv = vecwrap.to_sb3(vecwrap.build("CartPole-v1", n=2, backend="dummy"))
    venv.reset()
    assert not utils.is_masking_supported(venv)
    with pytest.raises(AttributeError, match="action_masks"):
        venv.env_method("action_masks")
    venv.close()
