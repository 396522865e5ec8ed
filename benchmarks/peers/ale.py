"""ale-py's own vector engine: Atari games and their preprocessing in C++."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.measure import CannotRun, Contender, peer_module
from benchmarks.peers.engines import atari_only
from benchmarks.peers.translation import cannot
from vecwrap.backends.workers.cores import usable_cores
from vecwrap.pipeline.plan import Plan
from vecwrap.rows.step_result import Autoreset
from vecwrap.tools.throughput import SEED, Throughput, action_batches, make_stepper

__all__ = ["Ale", "engine_arguments"]

PIP = '"ale-py>=0.11"'


class Ale:
    """``ale_py.vector_env.AtariVectorEnv`` with as many threads as usable cores."""

    names = ("ALE AtariVectorEnv",)

    def contenders(self, planned: Plan) -> Sequence[Contender]:
        """Return the engine of the same game."""
        game, arguments = engine_arguments(planned)
        n, batch_size = planned.n, planned.pipeline.batch_size
        arguments |= {
            "num_envs": n,
            "batch_size": batch_size or 0,
            "num_threads": usable_cores(),
        }

        def start() -> Throughput:
            try:
                engine = peer_module("ale_py.vector_env", PIP).AtariVectorEnv
            except AttributeError as error:
                raise CannotRun(f"this ale-py has no AtariVectorEnv: pip install {PIP}") from error
            env = engine(game, **arguments)
            # With a batch_size it returns the first batch, and each step another.
            env.reset(seed=SEED)
            rows = batch_size or n
            return Throughput(
                make_stepper(env.step, action_batches(env.single_action_space, rows), rows),
                env.close,
            )

        note = "C++; takes the maximum of greys" + (
            "; shows a stack of 1" if arguments["stack_num"] == 1 else ""
        )
        return [Contender(self.names[0], "peer", start, note)]


def engine_arguments(planned: Plan) -> tuple[str, dict[str, Any]]:
    """The game, and the arguments that preprocess as the pipeline does."""
    game, settings, stack, kwargs = atari_only(planned, "AtariVectorEnv")
    mode = planned.pipeline.autoreset_mode
    if mode not in (Autoreset.SAME_STEP, Autoreset.NEXT_STEP):
        cannot("AtariVectorEnv", f"it has no autoreset mode {mode.value}")
    return game, {
        "stack_num": stack,
        "frameskip": settings.frame_skip,
        "maxpool": settings.frame_skip > 1,
        "noop_max": settings.noop_max,
        "episodic_life": settings.terminal_on_life_loss,
        "reward_clipping": settings.clip_reward,
        "use_fire_reset": settings.fire_reset,
        "img_height": settings.screen_size,
        "img_width": settings.screen_size,
        "grayscale": True,
        "full_action_space": bool(kwargs.get("full_action_space", False)),
        "repeat_action_probability": settings.repeat_action_probability,
        "autoreset_mode": mode.gymnasium,
    }
