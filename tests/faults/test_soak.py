"""The long runs: thousands of faults beside a twin that knows what must come of them; memory and
descriptors stay flat.

`make soak` runs them; what the last run printed stands in docs/reliability.md.
"""

import contextlib
import os
import signal
import time
from functools import partial

import ale_py
import gymnasium
import numpy as np
import psutil
import pytest

from tests.faults.model import Model
from tests.helpers.backends import ShmemBackend, SubprocessBackend
from vecwrap.backends.workers.shares import share_out
from vecwrap.testing.toys import OpenResources, assert_nothing_left

gymnasium.register_envs(ale_py)
pytestmark = pytest.mark.soak

BACKENDS = [SubprocessBackend, ShmemBackend]
NONE, RAISE, RAISE_LATE, RAISE_IN_RESET, KILL, HANG, STOP = range(7)
WORKERS, NUM_ENVS = 2, 8


class Saboteur(gymnasium.Wrapper):
    """Fails as the action says: the action is that of the environment, plus its number of actions
    times the fault.
    """

    def __init__(self, env):
        super().__init__(env)
        self.actions = int(env.action_space.n)
        self.action_space = gymnasium.spaces.Discrete(7 * self.actions)
        self.fail_in_reset = False

    def reset(self, **keywords):
        if self.fail_in_reset:
            self.fail_in_reset = False
            raise RuntimeError("in the reset")
        return self.env.reset(**keywords)

    def step(self, action):
        fault, action = divmod(int(action), self.actions)
        if fault == RAISE:
            raise RuntimeError("before the step")
        if fault == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == STOP:
            os.kill(os.getpid(), signal.SIGSTOP)
        if fault in (HANG, KILL, STOP):
            time.sleep(600)
        result = self.env.step(action)
        if fault == RAISE_LATE:
            raise RuntimeError("after the step")
        self.fail_in_reset = fault == RAISE_IN_RESET and (result[2] or result[3])
        return result


def make(name):
    return Saboteur(
        gymnasium.make(
            name, **({"obs_type": "ram"} if "Pong" in name else {"max_episode_steps": 40})
        )
    )


class Twin:
    """Plays with chosen numbers of faults, and compares each row of each step with the model."""

    def __init__(self, backend, name, seed=0, **options):
        self.env = backend(
            [partial(make, name)] * NUM_ENVS,
            workers=WORKERS,
            on_failure="restart",
            max_restarts=None,
            restart_backoff=0.0,
            step_timeout=2.0,
            **options,
        )
        self.model = Model(lambda _: make(name), NUM_ENVS, "same_step")
        self.shares = share_out(NUM_ENVS, WORKERS, None)
        self.rng = np.random.default_rng(seed)
        self.actions = self.model.rows[0].env.actions
        self.rows = self.steps = 0
        seeds = list(range(seed, seed + NUM_ENVS))
        self.model.reset(range(NUM_ENVS), seeds)
        self.env.reset(seed=seed)

    def step(self, faults):
        """One vector step; ``faults``: index to fault."""
        base = self.rng.integers(self.actions, size=NUM_ENVS)
        losses, kept = {}, set()
        for i, fault in faults.items():
            if fault == RAISE_IN_RESET:
                kept.add(i)
            elif fault in (RAISE, RAISE_LATE):
                losses[i] = 1
            else:
                losses.update(dict.fromkeys(next(share for share in self.shares if i in share), 1))
        told = self.model.step(dict(enumerate(base.tolist())), losses, kept - losses.keys())
        carried = base + self.actions * np.array([faults.get(i, NONE) for i in range(NUM_ENVS)])
        observations, rewards, terminations, truncations, infos = self.env.step(carried)
        for i, row in told.items():
            same = (
                (observations[i] == row["observation"]).all()
                and rewards[i] == row["reward"]
                and (terminations[i], truncations[i]) == row["flags"]
                and ("final" not in row or (infos["final_obs"][i] == row["final"]).all())
                and infos.get("restarted", np.zeros(NUM_ENVS))[i]
                == row.get("info", {}).get("restarted", 0)
            )
            assert same, (
                f"step {self.steps}, faults {faults}, row {i}: expected {row}, got "
                f"{observations[i]}, {infos}"
            )
        self.rows += NUM_ENVS
        self.steps += 1

    def play(self, raises, **counts):
        """Mix this many faults of each kind at random; gives what happened in words."""
        kinds = {"kill": KILL, "hang": HANG, "stop": STOP}
        rare = np.repeat([kinds[kind] for kind in counts], list(counts.values()))
        self.rng.shuffle(rare)
        every = max(1, raises // (len(rare) + 1) * 2)
        raised, rare = 0, list(rare)
        while raised < raises or rare:
            faults = {}
            for i in np.flatnonzero(self.rng.random(NUM_ENVS) < 0.06).tolist():
                if raised < raises:
                    faults[i] = int(self.rng.choice([RAISE, RAISE_LATE, RAISE_IN_RESET]))
                    raised += 1
            if rare and self.steps % max(1, every // 8) == 0:
                faults = {int(self.rng.integers(NUM_ENVS)): int(rare.pop())}
            self.step(faults)
        assert self.env.health().restarts.tolist() == [row.restarts for row in self.model.rows]


def tell(figures):
    """Print them, and write them to the file that ``SOAK_FIGURES`` names: what a test process
    prints may be lost.
    """
    print(figures)
    if "SOAK_FIGURES" in os.environ:
        with open(os.environ["SOAK_FIGURES"], "a") as file:  # noqa: PTH123
            file.write(figures.strip() + "\n")


def descriptors():
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "raises", "counts"),
    [
        ("CartPole-v1", 50_000, {"kill": 450, "hang": 80, "stop": 80}),
        ("PongNoFrameskip-v4", 500, {"kill": 50, "hang": 20, "stop": 20}),
    ],
)
def test_chaos(backend, name, raises, counts, capsys, caplog):
    caplog.set_level("ERROR")
    before = OpenResources.now()
    twin = Twin(backend, name)
    twin.play(min(raises // 10, 1000), kill=5)  # what is opened once is open now
    opened, memory = descriptors(), psutil.Process().memory_info().rss
    rows, since = twin.rows, time.monotonic()
    twin.play(raises, **counts)
    rows, seconds = twin.rows - rows, time.monotonic() - since
    grown = (psutil.Process().memory_info().rss - memory) / 2**20
    assert descriptors() <= opened + 2
    quiet = time.monotonic()
    for _ in range(2000):
        twin.step({})
    rate = 2000 * NUM_ENVS / (time.monotonic() - quiet)
    with capsys.disabled():
        tell(
            f"\n{backend.name} {name}: {rows:,} rows, all as they must be; {raises:,} exceptions, "
            f"{counts}; RSS {grown:+.1f} MB ({grown / rows * 1e6:+.2f} a million rows); "
            f"{rows / seconds:,.0f} rows/s with faults, {rate:,.0f} without, the comparison "
            "included"
        )
    twin.env.close()
    assert_nothing_left(before, before)


@pytest.mark.parametrize("backend", BACKENDS)
def test_ten_million_steps_take_no_memory(backend, capsys):
    env = backend([partial(gymnasium.make, "CartPole-v1")] * 64, workers=2)
    env.reset(seed=1)
    actions = np.random.default_rng(1).integers(2, size=(1000, 64))
    process = psutil.Process()
    workers = [psutil.Process(worker.pid) for worker in env.health().workers]
    marks = []
    for k in range(10_000_000 // 64):
        if k in (20_000, 10_000_000 // 64 - 1):
            marks.append(
                (descriptors(), *(one.memory_info().rss / 2**20 for one in (process, *workers)))
            )
        env.step(actions[k % 1000])
    (before, *memory), (after, *later) = marks
    grown = [round(now - then, 2) for then, now in zip(memory, later, strict=True)]
    with capsys.disabled():
        tell(
            f"\n{backend.name}: RSS over 10 million steps, parent and workers: {grown} MB; "
            f"descriptors {before}, then {after}"
        )
    env.close()
    assert after == before
    assert max(grown) < 8.7  # under 1 MB a million steps


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_thousand_builds_leave_nothing(backend, capsys):
    def cycle(k):
        env = backend(
            [partial(gymnasium.make, "CartPole-v1")] * 3, workers=2, autoreset="next_step"
        )
        env.reset(seed=k)
        env.step([0, 1, 0])
        if k % 3 == 0:
            env.step_async([0, 1, 0])
        said = contextlib.nullcontext()
        if k % 3 == 0:
            said = pytest.warns(UserWarning, match="pending call to `step`")
        with said:
            env.close(terminate=k % 5 == 0)

    for k in range(20):
        cycle(k)
    before, opened, memory = OpenResources.now(), descriptors(), psutil.Process().memory_info().rss
    for k in range(1000):
        cycle(k)
    grown = (psutil.Process().memory_info().rss - memory) / 2**20
    assert_nothing_left(before, before)
    with capsys.disabled():
        tell(
            f"\n{backend.name}: 1,000 builds and closes: RSS {grown:+.1f} MB, descriptors "
            f"{descriptors() - opened:+d}"
        )
    assert descriptors() == opened
    assert grown < 10
