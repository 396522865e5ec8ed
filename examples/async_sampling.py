"""Step one half while the policy thinks about the other: send and recv, and what that gains over
step.

A step here waits for something, as for a simulator on other cores or a robot, and the policy takes
a while for each row. With `step` the policy waits for the environments, then they wait for it. With
`batch_size=n // 2`, `recv` gives whichever half is ready, and the workers go on with the other one
while actions are found for these rows.
"""

import statistics
import time

import gymnasium
import numpy as np

import vecwrap

N, WORKERS, STEPS, ROUNDS = 8, 2, 60, 3
WAIT = 0.002  # seconds that a step takes
CANDIDATES = 128


class Device(gymnasium.Env):
    """Takes its time, and ends after 50 steps."""

    observation_space = gymnasium.spaces.Box(-1, 1, (8,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        """Begin an episode."""
        super().reset(seed=seed)
        self.count = 0
        return self.observe(), {}

    def step(self, action):
        """Wait, then show something else."""
        time.sleep(WAIT)
        self.count += 1
        return self.observe(), 1.0, self.count == 50, False, {}

    def observe(self):
        """Show anything."""
        return self.np_random.uniform(-1, 1, 8).astype(np.float32)


class Planner:
    """Tries many actions for each row with a learnt model, and takes the best: about a millisecond
    a row.
    """

    def __init__(self):
        self.rng = np.random.default_rng(0)
        shapes = (10, 256), (256, 256), (256, 1)
        self.model = [
            self.rng.normal(0, shape[0] ** -0.5, shape).astype(np.float32) for shape in shapes
        ]

    def __call__(self, observations):
        """Give an action for each of m rows, (m, 2)."""
        actions = self.rng.uniform(-1, 1, (len(observations), CANDIDATES, 2)).astype(np.float32)
        best = []
        for observation, candidates in zip(observations, actions, strict=True):
            scores = np.column_stack([np.tile(observation, (CANDIDATES, 1)), candidates])
            for weights in self.model:
                scores = np.tanh(scores @ weights)
            best.append(candidates[scores[:, 0].argmax()])
        return np.array(best)


def in_step(env, policy):
    """All sub-environments, then the policy, then all sub-environments: agent steps a second."""
    observations, _ = env.reset(seed=1)
    start = time.perf_counter()
    for _ in range(STEPS):
        observations, *_ = env.step(policy(observations))
    return N * STEPS / (time.perf_counter() - start)


def in_turn(env, policy):
    """Act for the half that is ready while the other half steps: agent steps a second."""
    observations, _ = env.reset(seed=1)
    start = time.perf_counter()
    env.send(policy(observations))
    for _ in range(2 * (STEPS - 1)):
        observations, _, _, _, infos = env.recv()
        env.send(policy(observations), env_ids=infos["env_id"])
    for _ in range(2):  # nothing may be out when the next round begins
        env.recv()
    return N * STEPS / (time.perf_counter() - start)


policy = Planner()
settings = {"n": N, "backend": "shmem", "workers": WORKERS}
with (
    vecwrap.build(Device, **settings) as one,
    vecwrap.build(Device, **settings, batch_size=N // 2) as two,
):
    start = time.perf_counter()
    for _ in range(20):
        policy(np.zeros((N, 8), np.float32))
    thinking = (time.perf_counter() - start) / 20
    rounds = [(in_step(one, policy), in_turn(two, policy)) for _ in range(ROUNDS)]

stepping = WAIT * N / WORKERS
whole, half = (statistics.median(rates) for rates in zip(*rounds, strict=True))
print(f"for all rows: {stepping * 1e3:.1f} ms to step, {thinking * 1e3:.1f} ms to find actions")
print(
    f"step: {whole:,.0f} agent steps a second; send and recv by halves: {half:,.0f}, "
    f"{half / whole:.2f} times as many"
)
