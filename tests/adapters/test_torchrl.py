"""TorchRL reads our environments as it reads Gymnasium's own vector environments: the same
rollouts, bit for bit.
"""

from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import vecwrap

N, STEPS = 3, 80


def torchrl_envs():
    """Imported when it is needed: that takes two seconds."""
    return pytest.importorskip("torchrl.envs")


def rollout(env):
    """The rollout of a random policy, with the same actions each time."""
    wrapped = torchrl_envs().GymWrapper(env)
    wrapped.set_seed(5)
    actions = iter(torch.randint(0, 2, (STEPS, N), generator=torch.Generator().manual_seed(1)))

    # By this name TorchRL knows that all fields are asked for, not the observation alone.
    def policy(
        td,
    ):
        return td.set("action", torch.nn.functional.one_hot(next(actions), 2))

    rows = wrapped.rollout(STEPS, policy, break_when_any_done=False)
    wrapped.close()
    return rows


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
@pytest.mark.parametrize("backend", ["dummy", "shmem", "to_torch"])
def test_a_rollout_is_that_of_gymnasiums_own(mode, backend):
    theirs = rollout(
        SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * N, autoreset_mode=mode)
    )
    build = partial(vecwrap.build, "CartPole-v1", n=N, autoreset=mode)
    if backend == "to_torch":
        ours = rollout(vecwrap.to_torch(build(backend="dummy")))
    else:
        ours = rollout(build(backend=backend))
    keys = set(theirs.keys(True, True))
    assert set(ours.keys(True, True)) == keys
    for key in keys:
        np.testing.assert_array_equal(ours[key].numpy(), theirs[key].numpy(), err_msg=str(key))
    assert ours["next", "done"].sum() > N
    # Where an episode ended.
    assert not torch.equal(ours["next", "observation"][:, :-1], ours["observation"][:, 1:])


def test_what_ends_an_episode_has_come_through_the_wrappers():
    ours = rollout(
        vecwrap.build("CartPole-v1", n=N, wrappers=["framestack:2", "monitor"], backend="dummy")
    )
    plain = rollout(vecwrap.build("CartPole-v1", n=N, backend="dummy"))
    np.testing.assert_array_equal(
        ours["next", "observation"][..., -1, :], plain["next", "observation"]
    )
    assert ours["next", "done"].sum() > N


def test_an_id_of_a_pipeline():
    vecwrap.register("vecwrap-tests/Torch-v0", "CartPole-v1 | framestack:2 | monitor")
    env = torchrl_envs().GymEnv("vecwrap-tests/Torch-v0")
    env.set_seed(5)
    rows = env.rollout(200, break_when_any_done=False)
    plain = torchrl_envs().GymEnv("CartPole-v1")
    plain.set_seed(5)
    actions = iter(rows["action"])
    expected = plain.rollout(
        200, lambda td: td.set("action", next(actions)), break_when_any_done=False
    )
    np.testing.assert_array_equal(
        rows["next", "observation"][:, -1], expected["next", "observation"]
    )
    np.testing.assert_array_equal(rows["next", "done"], expected["next", "done"])
    assert rows["next", "done"].any()
    env.close()
    plain.close()
    del gymnasium.registry["vecwrap-tests/Torch-v0"]
