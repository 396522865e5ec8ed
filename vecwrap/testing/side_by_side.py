"""The same chain over several backends: the same calls on all, with everything that passes compared bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from vecwrap.contract import Autoreset, Infos, StepResult
from vecwrap.testing.compare import assert_same
from vecwrap.testing.drive import Lockstep, Policy
from vecwrap.vec_env import VecEnv
from vecwrap.wrapper import VecEnvWrapper

__all__ = ["SideBySide", "drive_parts"]

_COMPARED = [name for name in StepResult.__slots__ if name != "failures"]  # errors are compared where they are raised


class SideBySide(Lockstep):
    """Lockstep that also compares every StepResult, below the layer and above it: raw fields and frames, too.

    Args:
        wrap: takes a vector environment and returns the wrapped one.
        *backends: the backends to wrap, the reference first; the caller closes them.
        ignore: dotted names of infos that depend on a clock; they are left out.
    """

    def __init__(
        self, wrap: Callable[[VecEnv], VecEnv], *backends: VecEnv, ignore: Collection[str] = ("episode.t",)
    ) -> None:
        self._below = [_Witness(backend, ignore) for backend in backends]
        self._above = [_LastWitness(wrap(below), ignore) for below in self._below]
        super().__init__(*self._above)

    def __call__(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of each, and compare the results, what the layers received and what they passed up."""
        outcome = super().__call__(name, *args, **kwargs)
        for where, witnesses in (("below the layer", self._below), ("above the layer", self._above)):
            reference, *others = witnesses
            for witness in others:
                told = f"call {self.calls}, {name} of {witness!r}, StepResult {where}"
                assert_same(reference.seen, witness.seen, told)
        return outcome


class _Witness(VecEnvWrapper):
    """Records the last StepResult that passed, without what depends on a clock."""

    def __init__(self, env: VecEnv, ignore: Collection[str]) -> None:
        super().__init__(env)
        self.seen: dict[str, Any] = {}
        self._ignore = ignore

    def on_step(self, step: StepResult) -> None:
        self.seen = {name: getattr(step, name) for name in _COMPARED}
        self.seen["infos"] = _without(step.infos, self._ignore)
        if step.final_infos is not None:
            self.seen["final_infos"] = _without(step.final_infos, self._ignore)


class _LastWitness(_Witness):
    """The outermost witness: what depends on a clock does not reach the caller either."""

    def on_step(self, step: StepResult) -> None:
        super().on_step(step)
        step.infos, step.final_infos = self.seen["infos"], self.seen["final_infos"]


def _without(infos: Infos, ignore: Collection[str], prefix: str = "") -> Infos:
    """Columns without those of some dotted names, and without their masks."""
    kept: Infos = {}
    for key, column in infos.items():
        name = f"{prefix}{key}"
        if name in ignore or (key.startswith("_") and f"{prefix}{key[1:]}" in ignore):
            continue
        kept[key] = _without(column, ignore, f"{name}.") if isinstance(column, dict) else column
    return kept


def drive_parts(lockstep: Lockstep, rounds: int, seed: int = 0) -> None:
    """Step some of the sub-environments at a time, by ``send`` and ``recv``, with masked resets in between.

    Each ``recv`` returns what was sent, so that layers with statistics over the batch count the same rows.

    Args:
        lockstep: the environments, all of one mode; none of their rows needs a reset.
        rounds: how many times.
        seed: of the choice of sub-environments and of their actions.
    """
    env = lockstep.envs[0]
    mode = env._root.autoreset
    rng = np.random.default_rng(seed)
    policy = Policy(env, seed)
    over = np.zeros(env.num_envs, dtype=np.bool_)
    for _ in range(rounds):
        some = rng.permutation(env.num_envs)[: rng.integers(1, env.num_envs)]
        if mode is Autoreset.DISABLED:
            some = some[~over[some]]
        if len(some):
            lockstep("send", policy(some.tolist()), env_ids=some)
            _, _, terminations, truncations, infos = lockstep("recv")
            over[infos["env_id"]] = terminations | truncations
        mask = rng.random(env.num_envs) < 0.2
        if mode in (Autoreset.DISABLED, Autoreset.EPISODIC):
            mask |= over & (rng.random(env.num_envs) < 0.5)
        if mask.any():
            lockstep("reset", options={"reset_mask": mask})
            over[mask] = False
