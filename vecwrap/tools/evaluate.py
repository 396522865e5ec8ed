"""How good a policy is: returns and lengths of a fixed number of episodes per sub-environment."""

from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from vecwrap.env.refusals import describe_env
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import ArgumentError, is_installed
from vecwrap.rows.step_result import Autoreset, BoolArray, FloatArray, IntArray
from vecwrap.tools.policy_runner import PolicyRunner
from vecwrap.wrappers.monitor import Monitor

__all__ = ["EpisodeQuota", "Evaluation", "evaluate"]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The results of a policy in e episodes.

    Episodes are grouped by sub-environment, and within each in the order in which they were played.

    Attributes:
        returns: (e,) float64. Game scores if a monitor in the chain reports raw rewards, else the
            agent's returns.
        lengths: (e,) int64, in agent steps.
        env_ids: (e,) int64. The sub-environment of each episode.
        lost: the number of episodes left out because their sub-environment was lost.

    >>> reached = Evaluation(np.array([20.0, 30.0]), np.array([20, 30]), np.array([0, 1]))
    >>> reached.mean, reached.std
    (25.0, 5.0)
    >>> print(reached)
    2 episodes: return 25.00 ± 5.00, from 20 to 30, length 25
    """

    returns: FloatArray
    lengths: IntArray
    env_ids: IntArray
    lost: int = 0

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        """The standard deviation of the returns, not the error of their mean.

        The squares are divided by the number of returns.
        """
        return float(self.returns.std())

    def __str__(self) -> str:
        lost = ""
        if self.lost:
            lost = f"; {self.lost} more were lost"
        return (
            f"{len(self.returns)} episodes: return {self.mean:.2f} ± {self.std:.2f}, from "
            f"{self.returns.min():g} to {self.returns.max():g}, length "
            f"{self.lengths.mean():.0f}{lost}"
        )


def evaluate(
    env: VecEnv,
    policy: Any,
    episodes: int = 20,
    *,
    seed: int | Sequence[int | None] | None = None,
    deterministic: bool = True,
    progress: bool = True,
) -> Evaluation:
    """Play episodes with a policy, and return their returns and lengths.

    Each sub-environment plays a number of episodes fixed in advance: ``episodes // n``, and the
    last ``episodes % n`` one more, as in Stable-Baselines3's ``evaluate_policy``. Taking the first
    ``episodes`` that end instead would favour short ones, which are bad in one environment and good
    in another.

    If there is a monitor that reports raw rewards in the chain, an episode is a game, so the
    returns are game scores however the wrappers clip rewards or end episodes at lost lives;
    otherwise it is the agent's episode, with the rewards that the agent receives. Statistics are
    frozen meanwhile (``env.eval()``); afterwards each wrapper continues as before. Evaluation
    begins with a reset and stops anywhere, so reset before stepping again.

    Args:
        env: in any autoreset mode.
        policy: a callable from batched observations (n rows) to n actions; or anything with
            ``predict``, such as a Stable-Baselines3 model (also a recurrent one: it receives its
            state and which rows begin an episode). If it declares a keyword ``action_masks``, as
            sb3-contrib's ``MaskablePPO`` does, it receives the masks, (n, k) bool (of MultiDiscrete
            flattened as there), from ``infos["action_mask"]``, a member ``action_mask`` of Dict
            observations, or the method ``action_masks()``; if it declares ``infos``, the infos of
            the observations. It returns the actions, or ``(actions, extras)`` with a dict or None.
            Around ``to_torch`` a callable is given tensors; ``predict`` is given arrays, as SB3's.
        episodes: how many, 1 or more.
        seed: of the first reset, as ``env.reset``; the seed of ``build`` is then kept for the first
            reset afterwards. None: the environment's own.
        deterministic: passed on to ``predict``.
        progress: show a bar, if standard error is a terminal and rich is installed.

    Returns:
        The results. Episodes that ended because their sub-environment was lost
            (``on_failure="restart"``) are
        played again, and counted in ``lost``.

    Raises:
        TypeError: not a vecwrap environment, or not a policy.
        ArgumentError: fewer than one episode, or not a whole number of them; the policy declares
            ``action_masks``, but the environment has none.
        VecwrapError: as in ``env.step``.

    >>> from vecwrap.pipeline.build import build
    >>> env = build("CartPole-v1", n=4, backend="dummy")
    >>> def to_the_falling_side(observations):
    ...     return (observations[:, 2] + observations[:, 3] > 0).astype(int)
    >>> reached = evaluate(env, to_the_falling_side, episodes=6, seed=1)
    >>> reached.env_ids, bool((reached.returns == reached.lengths).all())
    (array([0, 1, 2, 2, 3, 3]), True)
    >>> env.close()
    """
    if not isinstance(env, VecEnv):
        raise TypeError(f"evaluate: env: expected a vecwrap.VecEnv, got {describe_env(env)}")
    episodes = _whole(episodes)
    converter = env.array_converter
    env = env.chain[0]  # the same one with NumPy's arrays
    quota = EpisodeQuota(env, episodes)
    policy_runner = PolicyRunner(
        quota.monitor, policy, deterministic=deterministic, converter=converter
    )
    with _unchanged(env, seed), progress_bar("evaluate", episodes, progress) as show:
        observations, _ = policy_runner.reset(seed=seed)
        show(quota.number)
        # a reset may have met it, with games that others ended before the first move
        while not quota.is_met.all():
            observations, _, terminations, truncations, _ = policy_runner.step(
                policy_runner.act(observations)
            )
            show(quota.number)
            again = (terminations | truncations) & ~quota.is_met.all()
            if env.core.autoreset is Autoreset.EPISODIC:
                again &= ~quota.is_met  # others may rest for good
            if env.metadata["autoreset_mode"] == AutoresetMode.DISABLED and again.any():
                observations, _ = policy_runner.reset(options={"reset_mask": again})
    return quota.result()


def _whole(episodes: Any) -> int:
    with contextlib.suppress(TypeError):
        if (number := operator.index(episodes)) >= 1:
            return number
    raise ArgumentError(f"evaluate: episodes: expected an int of 1 or more, got {episodes!r}")


class EpisodeQuota:
    """The episodes that an evaluation counts, with a quota for each sub-environment.

    These are the first episodes of all sub-environments, ``episodes`` in total.

    ``monitor`` is the environment with a monitor around it that reports what is counted, and
    nothing else.
    """

    def __init__(self, env: VecEnv, episodes: int) -> None:
        games = any(isinstance(wrapper, Monitor) and wrapper.scores_games for wrapper in env.chain)
        wrapped_by = env.wrapped_by
        self.monitor = Monitor(
            env, rewards="raw" if games else "seen", stats_key="vecwrap.evaluate"
        )
        env.wrapped_by = wrapped_by  # in its repr the environment stays the whole
        self.monitor.report_only(self._count)
        self._quotas: IntArray = (episodes + np.arange(env.num_envs)) // env.num_envs
        self._kept: list[list[tuple[float, int]]] = [[] for _ in range(env.num_envs)]
        self.lost = 0

    def _count(
        self,
        env_ids: IntArray,
        closed: BoolArray,
        lost: BoolArray,
        returns: FloatArray,
        lengths: IntArray,
    ) -> BoolArray:
        kept = np.zeros_like(closed)
        for row in np.flatnonzero(closed).tolist():
            env_id = int(env_ids[row])
            if len(self._kept[env_id]) >= self._quotas[env_id]:
                continue
            if lost[row]:
                self.lost += 1
            else:
                self._kept[env_id].append((float(returns[row]), int(lengths[row])))
                kept[row] = True
        return kept

    @property
    def number(self) -> int:
        return sum(map(len, self._kept))

    @property
    def is_met(self) -> BoolArray:
        """(n,) bool: whose quota is met."""
        return np.array([len(kept) for kept in self._kept]) >= self._quotas

    def result(self) -> Evaluation:
        returns, lengths = zip(*(episode for kept in self._kept for episode in kept), strict=True)
        env_ids = np.repeat(np.arange(len(self._quotas), dtype=np.int64), self._quotas)
        return Evaluation(
            np.array(returns, dtype=np.float64),
            np.array(lengths, dtype=np.int64),
            env_ids,
            self.lost,
        )


@contextlib.contextmanager
def _unchanged(env: VecEnv, seed: Any) -> Iterator[None]:
    """Freeze all statistics in the chain; afterwards each wrapper continues as before.

    An evaluation with its own seed uses up the seed of ``build``, which is kept for the first reset
    afterwards.
    """
    before = [(wrapper, wrapper.training) for wrapper in env.chain]
    pending = env.call_state.pending
    interrupts = env.core.rows.interrupts
    kept = pending.seed
    try:
        env.eval()
        yield
    finally:
        with interrupts:
            interrupts.hold()  # so that all of them continue
            for wrapper, training in before:
                wrapper.training = training
            if seed is not None:
                pending.seed = kept


@contextlib.contextmanager
def progress_bar(title: str, total: int, wanted: bool) -> Iterator[Callable[[int], None]]:
    """Show how many of ``total`` are done, on a terminal only."""
    if not (wanted and sys.stderr.isatty() and is_installed("rich")):
        yield lambda number: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn(title), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda number: bar.update(task, completed=number)
