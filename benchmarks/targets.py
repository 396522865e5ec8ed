"""The targets on two cores: ratios of medians within one run, or bounds of a median."""

from vecwrap.backends.cores import usable_cores
from vecwrap.bench.results import Target

__all__ = ["TARGETS"]

OURS = "vecwrap shmem"
IDEAL = f"ideal: {usable_cores()} × one process"
OWN_LAYER = f"{usable_cores()} × atari in one process"
COPY_FALSE = f"{OURS}, copy=False"

TARGETS = (
    Target("cartpole-8", OURS, "Gymnasium Async", 12.0),
    Target("cartpole-8", OURS, "EnvPool", 2.5),
    Target("cartpole-8", OURS, IDEAL, 0.75),
    Target("cartpole-64", OURS, "Gymnasium Async", 12.0),
    Target("cartpole-64", OURS, IDEAL, 0.87),
    Target("work-1ms", OURS, IDEAL, 0.97),
    Target("image-100us", OURS, IDEAL, 0.85),
    Target("image-100us", COPY_FALSE, IDEAL, 0.93),
    *(
        target
        for work in ("pong-8", "pong-16")
        for target in (
            Target(work, OURS, "EnvPool", 1.15, aim=1.2),
            Target(work, OURS, "ALE AtariVectorEnv", 1.0, aim=1.05),
            Target(work, OURS, "Gymnasium Async", 2.0),
            Target(work, OURS, OWN_LAYER, 0.93),
        )
    ),
    Target("pong-monitor-8", OURS, "SB3 SubprocVecEnv", 2.1),
    Target("start-64", OURS, None, 4.0, "start"),
    Target("start-64", OURS, None, 500.0, "memory"),
    Target("stack-64", "vecwrap framestack, new axis", None, 220.0, "chain"),
    Target("stack-64", "vecwrap framestack, last axis", None, 220.0, "chain"),
    Target("chain-64", "vecwrap chain", "SB3 chain", 2.0, "chain"),
    Target("uneven-wait", f"{OURS}, send/recv", f"{OURS}, step", 1.4),
    Target("uneven-compute", f"{OURS}, send/recv", f"{OURS}, step", 1.0),
)
