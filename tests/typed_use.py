"""What type checkers say of a user's program: `make lint` reads it, and an ignore that is not
needed is an error.
"""

from typing import Any, assert_type

import vecwrap


def use() -> vecwrap.VecEnv:
    """Never called."""
    vecwrap.biuld  # type: ignore[attr-defined]  # noqa: B018
    return vecwrap.build("CartPole-v1", n=2)


def use_modules(env: vecwrap.VecEnv) -> None:
    """Never called: the public modules are attributes of the package, and their names are known
    too.
    """
    assert_type(env.find(vecwrap.wrappers.monitor.Monitor), vecwrap.wrappers.monitor.Monitor)
    assert_type(
        vecwrap.wrappers.framestack.FrameStack(env, k=4), vecwrap.wrappers.framestack.FrameStack
    )
    vecwrap.wrappers.monitr  # type: ignore[attr-defined]  # noqa: B018
    vecwrap.testing.check_wrapper(vecwrap.wrappers.clip_reward.ClipReward)
    raise vecwrap.errors.CheckpointError("never")


def use_tensors(env: vecwrap.VecEnv) -> None:
    """Never called: what ``to_torch`` returns is not typed as NumPy's arrays."""
    _, rewards, *_ = vecwrap.to_torch(env).step([0])
    assert_type(rewards, Any)
