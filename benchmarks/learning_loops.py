"""A2C and PPO as loops over any vector environment, and what each part of a loop takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.distributions import Categorical

from benchmarks.learning import STAGES

GAMMA, GAE_LAMBDA = 0.99, 0.95
ENTROPY, VALUE, MAX_NORM = 0.01, 0.5, 0.5
A2C_STEPS = 5  # vector steps between two updates
PPO_STEPS, PPO_EPOCHS, PPO_CLIP, MINIBATCH = 16, 4, 0.1, 128


class LoopEnv(Protocol):
    """A vector environment as a loop drives it."""

    num_envs: int
    num_actions: int

    def reset(self) -> Any:
        """Return the first observations, (n, 4, 84, 84) uint8."""

    def step(self, actions: NDArray[np.int64]) -> tuple[Any, Any, Any]:
        """Return observations, rewards and whether the episodes ended, (n,) each."""

    def close(self) -> object: ...


class GymnasiumLoopEnv:
    """Gymnasium's interface, which is ours, too; an ended row has begun again."""

    def __init__(self, env: Any, seed: int) -> None:
        self._env = env
        self._seed = seed
        self.num_envs: int = env.num_envs
        self.num_actions = int(env.single_action_space.n)
        self.close = env.close

    def reset(self) -> Any:
        return self._env.reset(seed=self._seed)[0]

    def step(self, actions: NDArray[np.int64]) -> tuple[Any, Any, Any]:
        observations, rewards, terminations, truncations, _ = self._env.step(actions)
        return observations, rewards, terminations | truncations


class Sb3LoopEnv:
    """Stable-Baselines3's interface; the frames of a stack are the last axis there."""

    def __init__(self, env: Any, seed: int) -> None:
        env.seed(seed)
        self._env = env
        self.num_envs: int = env.num_envs
        self.num_actions = int(env.action_space.n)
        self.close = env.close

    def reset(self) -> Any:
        return np.moveaxis(self._env.reset(), -1, 1)

    def step(self, actions: NDArray[np.int64]) -> tuple[Any, Any, Any]:
        observations, rewards, dones, _ = self._env.step(actions)
        return np.moveaxis(observations, -1, 1), rewards, dones


class StageTimes:
    """Seconds of each stage. A stage waits while its thread has no core.

    Args:
        clock: in seconds.
        core_clock: the seconds for which this thread has had a core.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        core_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._clock = clock
        self._core_clock = core_clock
        self.seconds = dict.fromkeys(STAGES, 0.0)

    def run(self, stage: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function, whose time is this stage's."""
        start = self._clock()
        result = function(*arguments)
        self.seconds[stage] += self._clock() - start
        return result

    def run_environments(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of an environment: what it computes here, and for what it waits."""
        start = self._clock()
        computed = self._core_clock()
        result = function(*arguments)
        computed = self._core_clock() - computed
        taken = self._clock() - start
        computed = min(computed, taken)  # the clocks differ by a little
        self.seconds["environments"] += computed
        self.seconds["waiting"] += taken - computed
        return result


class Net(nn.Module):
    """The net of Mnih et al. (2013), with a policy and a value: 16 filters of 8x8 and 32 of 4x4,
    256 units, for four frames of 84 x 84 pixels.
    """

    def __init__(self, num_actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 16, 8, 4),
            nn.ReLU(),
            nn.Conv2d(16, 32, 4, 2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 9 * 9, 256),
            nn.ReLU(),
        )
        self.actor = nn.Linear(256, num_actions)
        self.critic = nn.Linear(256, 1)

    def forward(self, observations: Any) -> tuple[Any, Any]:
        features = self.body(observations.float() / 255)
        policy = Categorical(logits=self.actor(features), validate_args=False)
        return policy, self.critic(features).squeeze(-1)


class Loop:
    """Collects rollouts, and learns from each; what is collected is kept by reference.

    Args:
        env: the environment.
        num_steps: vector steps of a rollout.
        times: where the seconds of each stage are added.

    Attributes:
        acting_threads: PyTorch's threads while the loop acts; 0: as many as while it updates.
    """

    def __init__(self, env: LoopEnv, num_steps: int, times: StageTimes) -> None:
        torch.manual_seed(0)
        self.acting_threads = 0
        self._env = env
        self._num_steps = num_steps
        self._times = times
        self.net = Net(env.num_actions)
        self._observations = env.reset()

    def cycle(self) -> int:
        """Collect one rollout and learn from it; return its agent steps."""
        times = self._times
        rollout = []
        for _ in range(self._num_steps):
            actions, values, log_probs = times.run("acting", self._act, self._observations)
            seen = self._observations
            self._observations, rewards, dones = times.run_environments(self._env.step, actions)
            rollout.append((seen, actions, values, log_probs, rewards, dones))
        times.run("updating", self._learn, rollout)
        return self._num_steps * self._env.num_envs

    def _act(self, observations: Any) -> tuple[Any, Any, Any]:
        if not self.acting_threads:
            return self._choose(observations)
        threads = torch.get_num_threads()
        torch.set_num_threads(self.acting_threads)
        chosen = self._choose(observations)
        torch.set_num_threads(threads)
        return chosen

    @torch.no_grad()
    def _choose(self, observations: Any) -> tuple[Any, Any, Any]:
        policy, values = self.net(torch.as_tensor(observations))
        actions = policy.sample()
        return actions.numpy(), values.numpy(), policy.log_prob(actions).numpy()

    @torch.no_grad()
    def _last_values(self) -> Any:
        return self.net(torch.as_tensor(self._observations))[1].numpy()

    def _learn(self, rollout: list[tuple[Any, ...]]) -> None:
        raise NotImplementedError

    def _take_gradient_step(self, optimizer: Any, loss: Any) -> None:
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), MAX_NORM)
        optimizer.step()


class A2C(Loop):
    """An update after every five vector steps, with their returns (Mnih et al., 2016)."""

    def __init__(self, env: LoopEnv, times: StageTimes) -> None:
        super().__init__(env, A2C_STEPS, times)
        self._optimizer = torch.optim.RMSprop(self.net.parameters(), lr=7e-4, alpha=0.99, eps=1e-5)

    def _learn(self, rollout: list[tuple[Any, ...]]) -> None:
        observations, actions, _, _, rewards, dones = zip(*rollout, strict=True)
        following = self._last_values()
        returns = []
        for reward, done in zip(reversed(rewards), reversed(dones), strict=True):
            following = reward + GAMMA * following * ~done
            returns.append(following)
        targets = torch.as_tensor(np.concatenate(returns[::-1]), dtype=torch.float32)
        policy, values = self.net(torch.as_tensor(np.concatenate(observations)))
        taken = torch.as_tensor(np.concatenate(actions))
        advantages = targets - values.detach()
        loss = -(policy.log_prob(taken) * advantages).mean()
        loss = loss + VALUE * (targets - values).square().mean()
        self._take_gradient_step(self._optimizer, loss - ENTROPY * policy.entropy().mean())


class PPO(Loop):
    """Four passes over every 16 vector steps, in minibatches of 128 (Schulman et al., 2017)."""

    def __init__(self, env: LoopEnv, times: StageTimes) -> None:
        super().__init__(env, PPO_STEPS, times)
        self._optimizer = torch.optim.Adam(self.net.parameters(), lr=2.5e-4, eps=1e-5)
        self._rng = np.random.default_rng(0)

    def _learn(self, rollout: list[tuple[Any, ...]]) -> None:
        observations, actions, values, log_probs, rewards, dones = zip(*rollout, strict=True)
        following = self._last_values()
        advantage = np.zeros(self._env.num_envs)
        advantages = []
        for value, reward, done in zip(
            reversed(values), reversed(rewards), reversed(dones), strict=True
        ):
            error = reward + GAMMA * following * ~done - value
            advantage = error + GAMMA * GAE_LAMBDA * advantage * ~done
            advantages.append(advantage)
            following = value
        flat = np.concatenate(advantages[::-1])
        columns = [np.concatenate(column) for column in (observations, actions, log_probs)]
        columns += [flat.astype(np.float32), np.float32(flat + np.concatenate(values))]
        tensors = [torch.as_tensor(column) for column in columns]
        for _ in range(PPO_EPOCHS):
            order = torch.as_tensor(self._rng.permutation(len(flat)))
            for rows in order.split(MINIBATCH):
                self._learn_from(*(column[rows] for column in tensors))

    def _learn_from(
        self, observations: Any, actions: Any, log_probs: Any, advantages: Any, targets: Any
    ) -> None:
        policy, values = self.net(observations)
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        ratio = (policy.log_prob(actions) - log_probs).exp()
        clipped = ratio.clamp(1 - PPO_CLIP, 1 + PPO_CLIP)
        loss = -torch.min(ratio * advantages, clipped * advantages).mean()
        loss = loss + VALUE * (targets - values).square().mean()
        self._take_gradient_step(self._optimizer, loss - ENTROPY * policy.entropy().mean())


LOOPS: Mapping[str, Callable[[LoopEnv, StageTimes], Loop]] = {"A2C": A2C, "PPO": PPO}


def sample(
    loop: Loop, times: StageTimes, num_envs: int, seconds: float, clock: Callable[[], float]
) -> dict[str, float]:
    """Run whole cycles for at least so many seconds.

    Return the agent steps a second (``rate``), and the milliseconds of each stage for one vector
    step.
    """
    times.seconds = dict.fromkeys(STAGES, 0.0)
    agent_steps = 0
    start = clock()
    elapsed = 0.0
    while not agent_steps or elapsed < seconds:
        agent_steps += loop.cycle()
        elapsed = clock() - start
    vector_steps = agent_steps / num_envs
    spent = {stage: 1e3 * times.seconds[stage] / vector_steps for stage in STAGES}
    return {"rate": agent_steps / elapsed, **spent}
