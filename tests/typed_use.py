"""What type checkers say of a user's program: `make lint` reads it with mypy and pyright, and an
ignore that is not needed is an error.
"""

from functools import partial
from typing import Any, assert_type

import vecwrap
from vecwrap.wrappers.framestack import FrameStack
from vecwrap.wrappers.monitor import Monitor


def use() -> vecwrap.VecEnv:
    """Never called."""
    vecwrap.biuld  # type: ignore[attr-defined]  # noqa: B018
    return vecwrap.build("CartPole-v1", n=2)


def use_settings() -> None:
    """Never called: modes, backends and the arguments of wrappers are known by name."""
    vecwrap.build("CartPole-v1", n=2, backend="shmem", autoreset="next_step")
    vecwrap.build("CartPole-v1", n=2, backend={"name": "shmem", "workers": 2})
    vecwrap.build("CartPole-v1", n=2, wrappers=["monitor", {"framestack": {"k": 4}}])
    vecwrap.build("CartPole-v1", n=2, wrappers=[partial(FrameStack, k=4), Monitor])
    vecwrap.build("CartPole-v1", n=2, backend="shm")  # type: ignore[arg-type]
    vecwrap.build("CartPole-v1", n=2, autoreset="samestep")  # type: ignore[arg-type]
    vecwrap.build("CartPole-v1", n=2, start_method="frok")  # type: ignore[arg-type]
    vecwrap.build("CartPole-v1", n=2, on_failure="retry")  # type: ignore[arg-type]
    vecwrap.build("CartPole-v1", n=2, num_envs=4)  # type: ignore[arg-type]
    vecwrap.build("CartPole-v1", wrappers=[partial(FrameStack, kk=4)])  # type: ignore[call-arg]
    vecwrap.load("pong.yaml", mode="evaluation")  # type: ignore[arg-type]


def use_specs() -> vecwrap.PipelineSpec:
    """Never called: a spec takes what ``build`` takes."""
    vecwrap.PipelineSpec("CartPole-v1", backend="shm")  # type: ignore[arg-type]
    return vecwrap.PipelineSpec("CartPole-v1", n=4, backend="shmem", wrappers=["framestack:3"])


def use_wrappers(env: vecwrap.VecEnv) -> None:
    """Never called."""
    FrameStack(env, k=4, padding="first")
    FrameStack(env, k=4, paddin="first")  # type: ignore[call-arg]
    FrameStack(env, k=4, padding="last")  # type: ignore[arg-type]
    Monitor(env, rewards="seen")
    Monitor(env, rewards="clipped")  # type: ignore[arg-type]


def use_modules(env: vecwrap.VecEnv) -> None:
    """Never called: the public modules are attributes of the package, and their names are known
    too.
    """
    assert_type(env.find(vecwrap.wrappers.monitor.Monitor), vecwrap.wrappers.monitor.Monitor)
    assert_type(env.find("monitor"), Any)
    assert_type(
        vecwrap.wrappers.framestack.FrameStack(env, k=4), vecwrap.wrappers.framestack.FrameStack
    )
    vecwrap.wrappers.monitr  # type: ignore[attr-defined]  # noqa: B018
    vecwrap.testing.check_wrapper(vecwrap.wrappers.clip_reward.ClipReward)
    raise vecwrap.errors.CheckpointError("never")


def use_pipeline(env: vecwrap.VecEnv) -> str:
    """Never called: an environment that was assembled by hand has no pipeline."""
    assert_type(env.pipeline, vecwrap.PipelineSpec | None)
    assert env.pipeline is not None
    env.pipeline.hsah  # type: ignore[attr-defined]  # noqa: B018
    return env.pipeline.hash


def use_tensors(env: vecwrap.VecEnv) -> None:
    """Never called: what ``to_torch`` returns is not typed as NumPy's arrays."""
    _, rewards, *_ = vecwrap.to_torch(env).step([0])
    assert_type(rewards, Any)
