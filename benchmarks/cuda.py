"""`to_torch` on CUDA beside what loops write by hand: `python -m benchmarks.cuda`, two minutes.

64 environments with observations of 3×256×256 bytes, whose steps cost nothing but their copies.
First every value is compared with NumPy's environment, bit for bit; then three ways to the device
take turns, alone and with a network on the device that chooses the actions: one blocking copy a
step, one copy through pinned memory, and `to_torch`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

import vecwrap
from benchmarks.environments import Toy
from benchmarks.measure import Contender, Sample, measure_rounds
from benchmarks.pages import table
from benchmarks.report import figure

N = 64
SHAPE = (3, 256, 256)
SEED = 1

Policy = Callable[[Any], Any]


def built() -> vecwrap.VecEnv:
    return vecwrap.build(partial(Toy, SHAPE), n=N, seed=SEED)


def network(device: str) -> Policy:
    torch.manual_seed(SEED)
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 8, 4),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 4, 4),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.LazyLinear(2),
    ).to(device)

    def act(observations: torch.Tensor) -> Any:
        with torch.inference_mode():
            return layers(observations.float() / 255).argmax(1)

    return act


def constant(device: str) -> Policy:
    actions = torch.ones(N, dtype=torch.int64)
    return lambda observations: actions


class Blocking:
    """One blocking copy of the observations a step, and of the actions back."""

    def __init__(self, device: str, policy: Callable[[str], Policy]) -> None:
        self._device = device
        self._policy = policy(device)
        self._env = self.make()
        self._observations = self.on_device(self._env.reset()[0])

    def make(self) -> Any:
        return built()

    def on_device(self, observations: Any) -> Any:
        return torch.from_numpy(observations).to(self._device)

    def step(self, actions: Any) -> Any:
        return self.on_device(self._env.step(actions.cpu().numpy())[0])

    def sample(self, seconds: float) -> Sample:
        """Step until the time is over and the device is done."""
        steps = 0
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            self._observations = self.step(self._policy(self._observations))
            steps += 1
        if self._observations.is_cuda:
            torch.cuda.synchronize()
        return {"rate": steps * N / (time.perf_counter() - start)}

    def close(self) -> None:
        self._env.close()


class Pinned(Blocking):
    """One asynchronous copy a step, out of pinned memory that is waited for before a write."""

    def on_device(self, observations: Any) -> Any:
        if not hasattr(self, "_memory"):
            self._memory = torch.from_numpy(observations).clone()
            if torch.cuda.is_available():
                self._memory = self._memory.pin_memory()
        elif torch.cuda.is_available():
            torch.cuda.current_stream().synchronize()
        np.copyto(self._memory.numpy(), observations)
        return self._memory.to(self._device, non_blocking=True, copy=True)


class Converted(Blocking):
    """`to_torch`, which also converts rewards, flags and infos."""

    def make(self) -> Any:
        return vecwrap.to_torch(built(), self._device)

    def on_device(self, observations: Any) -> Any:
        return observations

    def step(self, actions: Any) -> Any:
        return self._env.step(actions)[0]


def compare(device: str, steps: int = 600) -> int:
    """Compare `to_torch` with NumPy's environment; return how many episodes ended."""
    ended = 0
    with built() as ours, vecwrap.to_torch(built(), device) as env:
        pairs = [(ours.reset()[0], env.reset()[0])]
        actions = np.ones(N, np.int64)
        for _ in range(steps):
            given = ours.step(actions)
            got = env.step(torch.from_numpy(actions).to(device))
            pairs += [(given[0], got[0]), *zip(given[1:4], got[1:4], strict=True)]
            if "final_obs" in given[4]:
                mask = given[4]["_final_obs"]
                ended += int(mask.sum())
                finals = given[0].copy()
                finals[mask] = np.stack(given[4]["final_obs"][mask])
                pairs.append((finals, got[4]["final_obs"]))
            for expected, tensor in pairs:
                if expected.dtype == np.float64:
                    expected = expected.astype(np.float32)
                np.testing.assert_array_equal(tensor.cpu().numpy(), expected, strict=True)
            pairs.clear()
    return ended


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda", help="cpu tries the script elsewhere")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one way in one round")
    options = parser.parse_args()
    device = options.device
    with built() as env:
        vecwrap.to_torch(env, device)  # says what is wrong with the device
        print(repr(env))
    name = device
    if device.startswith("cuda"):
        name = torch.cuda.get_device_name(device)
    print(f"{name}, torch {torch.__version__}, vecwrap {vecwrap.__version__}")
    print(f"equal to NumPy's environment, with {compare(device)} ends of episodes", flush=True)
    rows = [["environment steps a second", "to_torch", "blocking", "pinned by hand"]]
    policies: Mapping[str, Callable[[str], Policy]] = {
        "the same actions each step": constant,
        "a network on the device": network,
    }
    for title, policy in policies.items():
        contenders = [
            Contender("to_torch", "ours", partial(Converted, device, policy)),
            Contender("blocking", "peer", partial(Blocking, device, policy)),
            Contender("pinned", "peer", partial(Pinned, device, policy)),
        ]
        measured = measure_rounds(contenders, options.rounds, options.seconds)
        rates = [each.median("rate") or 0.0 for each in measured]
        cells = [title, figure(rates[0])]
        cells += [f"{figure(rate)} ({rates[0] / rate:.2f} ×)" for rate in rates[1:]]
        rows.append(cells)
    print(table(rows))


if __name__ == "__main__":
    main()
