"""EnvPool: environments and preprocessing in C++."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measure import Contender, peer_module
from benchmarks.peers.engines import atari_only
from benchmarks.peers.translation import cannot
from vecwrap.backends.workers.cores import usable_cores
from vecwrap.pipeline.plan import Plan
from vecwrap.rows.step_result import Autoreset
from vecwrap.tools.throughput import SEED, Throughput, action_batches, make_stepper

__all__ = ["EnvPool", "atari_task"]

NEXT_STEP = "resets in the step after an end, which counts as a step"


def thread_counts() -> list[int]:
    """1, 2, 4 and so on, and as many as are usable cores: cheap tasks are fastest with few."""
    cores = usable_cores()
    return sorted({*(2**i for i in range(cores.bit_length()) if 2**i <= cores), cores})


class EnvPool:
    """``envpool.make(..., env_type="gymnasium")``, once with each number of threads."""

    names = tuple(f"EnvPool, {k} thread{'s' if k > 1 else ''}" for k in thread_counts())

    def contenders(self, planned: Plan) -> Sequence[Contender]:
        """Return the engine of the same game or task."""
        if planned.pipeline.autoreset_mode not in (Autoreset.SAME_STEP, Autoreset.NEXT_STEP):
            cannot("EnvPool", f"it has no autoreset mode {planned.pipeline.autoreset_mode.value}")
        task, arguments, note = atari_task(planned) if planned.wrappers else _task(planned)
        n, batch_size = planned.n, planned.pipeline.batch_size
        arguments |= {"num_envs": n, "batch_size": batch_size or n, "seed": SEED}

        def start(threads: int) -> Throughput:
            envpool = peer_module("envpool", "envpool")
            if task not in envpool.list_all_envs():
                cannot("EnvPool", f"it has no {task}")
            env = envpool.make(task, env_type="gymnasium", num_threads=threads, **arguments)
            batches = action_batches(env.action_space, batch_size or n)
            batches = [np.asarray(batch, dtype=env.action_space.dtype) for batch in batches]
            if batch_size is None:
                env.reset()
                return Throughput(make_stepper(env.step, batches, n), env.close)
            return Throughput(make_stepper(_send_and_receive(env), batches, batch_size), env.close)

        return [
            Contender(name, "peer", partial(start, threads), f"C++; {note}")
            for name, threads in zip(self.names, thread_counts(), strict=True)
        ]


def _send_and_receive(env: Any) -> Callable[[Any], None]:
    env.async_reset()

    def step(actions: Any) -> None:
        ids = env.recv()[4]["env_id"]
        env.send(actions, ids)

    return step


def _task(planned: Plan) -> tuple[str, dict[str, Any], str]:
    """An environment without wrappers, as it is registered."""
    registered = planned.environment.effective_spec()
    if registered is None:
        cannot("EnvPool", "the pipeline's environment is a callable, and it has engines of its own")
    if registered.kwargs:
        cannot("EnvPool", f"its engine does not take {', '.join(sorted(registered.kwargs))}")
    arguments = (
        {"max_episode_steps": registered.max_episode_steps} if registered.max_episode_steps else {}
    )
    return registered.id, arguments, NEXT_STEP


def atari_task(planned: Plan) -> tuple[str, dict[str, Any], str]:
    """The game, the arguments that preprocess as the pipeline does, and how the two differ."""
    game, settings, stack, kwargs = atari_only(planned, "EnvPool")
    task = "".join(part.capitalize() for part in game.split("_")) + "-v5"
    arguments = {
        "stack_num": stack,
        "frame_skip": settings.frame_skip,
        "noop_max": settings.noop_max,
        "episodic_life": settings.terminal_on_life_loss,
        "reward_clip": settings.clip_reward,
        "use_fire_reset": settings.fire_reset,
        "img_height": settings.screen_size,
        "img_width": settings.screen_size,
        "gray_scale": True,
        "full_action_space": bool(kwargs.get("full_action_space", False)),
        "repeat_action_probability": settings.repeat_action_probability,
    }
    return task, arguments, NEXT_STEP + ("; shows a stack of 1" if stack == 1 else "")
