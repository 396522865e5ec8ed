"""Workers whose messages are code that raises are lost, and nothing else."""

import builtins
import fcntl
import os
import signal
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tests.backs import ShmemBackend, SubprocessBackend
from vecwrap.backends.workers.shared import SharedBlock
from vecwrap.errors import PlanError

pytestmark = [
    pytest.mark.filterwarnings("ignore:Calling `close` while waiting:UserWarning"),
]


class Mine(BaseException):
    """Derives from no Exception."""


def raises(kind):
    """Runs in the parent as it reads the message."""
    raise {"Mine": Mine, "PlanError": PlanError}.get(kind) or getattr(builtins, kind)


class Code:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call

    def __deepcopy__(self, memo):
        return self


class Sends(gymnasium.Env):
    observation_space = spaces.Discrete(9)
    action_space = spaces.Discrete(2)

    def __init__(self, function, *arguments):
        self.code = Code(function, *arguments)

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 1, 0.0, False, False, {"code": self.code} if action else {}


@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "Mine", "PlanError", "OSError"])
@pytest.mark.parametrize("backend", [SubprocessBackend, ShmemBackend])
def test_whatever_a_message_raises_as_it_is_read_costs_its_worker_alone(backend, kind):
    with backend([lambda: Sends(raises, kind)] * 2, workers=2, on_failure="restart") as env:
        env.reset()
        assert env.step([1, 0])[4]["restarted"].tolist() == [1, 0]
        assert f"sent what cannot be read here ({kind}: " in env.health().failures[0]
        assert env.step([0, 0])[0].tolist() == [1, 1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGALRM])
def test_what_a_handler_of_the_program_raises_meanwhile_is_its_own(number):
    def handler(number, frame):
        raise SystemExit("of the program")

    before = signal.signal(number, handler)
    try:
        with SubprocessBackend([lambda: Sends(signal.raise_signal, number)], workers=1) as env:
            env.reset()
            with pytest.raises(SystemExit, match="of the program"):
                env.step([1])
    finally:
        signal.signal(number, before)


def test_ctrl_c_while_a_message_is_read_costs_nothing():
    with SubprocessBackend([lambda: Sends(signal.raise_signal, signal.SIGINT)], workers=1) as env:
        env.reset()
        with pytest.raises(KeyboardInterrupt):
            env.step([1])
        assert env.step_wait()[0].tolist() == [1]


# -- shared memory ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(fcntl, "F_ADD_SEALS"), reason="no seals here")
def test_the_block_can_be_neither_shortened_nor_lengthened_nor_sealed_further():
    block = SharedBlock.create(100_000)
    for size in (0, 10, 10**6):
        with pytest.raises(PermissionError):
            os.ftruncate(block.descriptor, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(block.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    np.ndarray(100_000, np.uint8, buffer=block.buffer)[-1] = 7
    assert SharedBlock.map(os.dup(block.descriptor)).buffer[99_999] == 7
    block.close_descriptor()


class Shortens(gymnasium.Env):
    """Cuts whatever its parent has in memory; the shared block would then kill the parent with SIGBUS."""

    observation_space = spaces.Box(0, 255, (1_000_000,), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.ones(1_000_000, np.uint8), {}

    def step(self, action):
        refused = 0
        for path in Path(f"/proc/{os.getppid()}/fd").iterdir():
            try:
                if "memfd:vecwrap" in str(path.readlink()):
                    os.truncate(path, 0)
            except PermissionError:
                refused += 1
            except OSError:
                continue
        return np.full(1_000_000, 2, np.uint8), float(refused), False, False, {}


@pytest.mark.skipif(not hasattr(fcntl, "F_ADD_SEALS"), reason="no seals here")
def test_a_worker_cannot_take_the_memory_from_under_its_parent():
    with ShmemBackend([Shortens], workers=1, start_method="fork", parent_share=False) as env:
        env.reset()
        seen, rewards, *_ = env.step([0])
        assert rewards[0] >= 1
        assert seen.min() == 2
