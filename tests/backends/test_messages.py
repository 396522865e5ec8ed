"""Workers whose messages have the wrong form, or are code that raises: they are lost, and nothing
else.
"""

import builtins
import fcntl
import os
import random
import select
import signal
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tests.helpers.backends import DummyBackend, ShmemBackend, SubprocessBackend
from tests.helpers.polling import LONG, until
from tests.helpers.stream_envs import ToyEnv
from vecwrap.backends.workers.messages import decode, encode, refuse_malformed
from vecwrap.backends.workers.step_ring import SharedBlock
from vecwrap.errors import BackendError, PlanError
from vecwrap.sources.failure import make_failure
from vecwrap.testing import assert_same

pytestmark = [
    pytest.mark.filterwarnings("ignore:Calling `close` while waiting:UserWarning"),
]
READS_NOT = r"worker 0 \(pid \d+, sub-environments 0-1\) sent what cannot be read here"
FAILURE = make_failure(0, ValueError("no")).without_cause()


def toy():
    return ToyEnv((1, 2))


def build(backend, **options):
    return backend([toy] * 4, workers=2, **options)


def lie(env, change):
    """Have worker 0's next message changed on its way."""
    channel = env.unwrapped.runner._workers[0].channel
    honest, changed = channel.receive, []

    def receive():
        data = honest()
        if data is None or changed:
            return data
        changed.append(data)
        return encode(change(list(decode(data))))

    channel.receive = receive


def rows(where, value):
    def change(message):
        message[where] = value
        return tuple(message)

    return change


def payload(where, value):
    def change(message):
        parts = list(message[4])
        parts[where] = value
        return (*message[:4], tuple(parts), *message[5:])

    return change


CHANGES = {
    "a list": list,
    "nothing": lambda message: None,
    "a number": lambda message: 5,
    "empty": lambda message: (),
    "the tag alone": lambda message: ("rows",),
    "too short": lambda message: tuple(message[:-1]),
    "too long": lambda message: (*message, 1),
    "an unknown tag": rows(0, "rowz"),
    "a tag of another type": rows(0, 3),
    "a tag that cannot be a key": rows(0, []),
    "another answer": lambda message: ("values", {}, []),
    "made again": lambda message: ("made", []),
    "attached again": lambda message: ("attached",),
    "a failed start": lambda message: ("failed", FAILURE),
    "no answers": rows(1, 0),
    "too many answers": rows(1, 99),
    "answers in words": rows(1, "1"),
    "rows of another worker": rows(2, [2, 3]),
    "rows that there are not": rows(2, [0, 99]),
    "a negative row": rows(2, [0, -1]),
    "one row twice": rows(2, [0, 0]),
    "rows in words": rows(2, ["0", "1"]),
    "no list of rows": rows(2, None),
    "steps of rows that did not fail": rows(3, [0]),
    "no content": rows(4, ()),
    "infos that are none": payload(3, {0: 5}),
    "infos in a list": payload(3, [{}]),
    "ends of another worker's rows": payload(2, ([2], None, None, None, None)),
    "failures in words": rows(5, ["no"]),
    "a failure of another worker's": rows(5, [replace(FAILURE, index=3)]),
    "a failure of nobody": rows(5, [replace(FAILURE, index="0")]),
    "a failure that says no text": rows(5, [replace(FAILURE, message=b"no")]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_answer_of_the_wrong_form_is_an_error_that_names_the_worker(change):
    with build(SubprocessBackend) as env:
        env.reset_async(seed=1)
        lie(env, change)
        with pytest.raises(BackendError, match=READS_NOT):
            env.reset_wait()
        with pytest.raises(BackendError, match="close.. still works"):
            env.step([0] * 4)


@pytest.mark.parametrize("backend", [SubprocessBackend, ShmemBackend])
@pytest.mark.parametrize("change", ["a number", "rows of another worker", "infos that are none"])
def test_an_answer_of_the_wrong_form_costs_only_that_workers_rows(backend, change):
    with build(backend, on_failure="restart") as env, DummyBackend([toy] * 4) as twin:
        env.reset_async(seed=1)
        lie(env, CHANGES[change])
        seen, infos = env.reset_wait()
        assert infos["restarted"].tolist() == [1, 1, 0, 0]
        assert_same(twin.reset(seed=1)[0][2:], seen[2:], "the other worker's")
        assert_same(twin.step([0] * 4)[0][2:], env.step([0] * 4)[0][2:], "and its next ones")


@pytest.mark.parametrize(
    "answer", [("values", {0: 1, 3: 5}, []), ("values", {0: 1}, []), ("values", [], [])]
)
def test_values_of_others_or_too_few_are_an_error(answer):
    with build(SubprocessBackend) as env:
        env.call_async("get_wrapper_attr", "lengths")
        lie(env, lambda message: answer)
        with pytest.raises(BackendError, match=READS_NOT):
            env.call_wait()


@pytest.mark.parametrize("content", [None, [], [(1, None)], [(0, "Discrete(2)")], ["text"], [(0,)]])
def test_descriptions_that_are_none_are_refused(content):
    with pytest.raises((ValueError, TypeError, LookupError)):
        refuse_malformed(("made", content), ["made"], range(2))


def junk(draw):
    things = (
        None,
        -1,
        0,
        1,
        10**9,
        2.5,
        "x",
        b"",
        True,
        [],
        {},
        (),
        [3],
        {0: 1},
        {"x": {}},
        range(3),
        set(),
        np.ones((3, 1)),
    )
    return deepcopy(
        draw.choice([*things, FAILURE, replace(FAILURE, index=3), np.zeros(2, "U3"), object()])
    )


def mutated(value, draw):
    """A copy of a value in which one thing, at any depth, is another, or is missing, or is there
    twice.
    """
    if draw.random() < 0.25 or not isinstance(value, (tuple, list, dict)) or not value:
        return junk(draw)
    if isinstance(value, dict):
        key = draw.choice(list(value))
        other = {**value, key: mutated(value[key], draw)}
        return other if draw.random() < 0.9 else {draw.choice([-1, 7, "x", None, 2.5]): value[key]}
    place = draw.randrange(len(value))
    parts = [*value[:place], mutated(value[place], draw), *value[place + 1 :]]
    if draw.random() < 0.1:
        parts = parts[:place] if draw.random() < 0.5 else [*parts, parts[place]]
    return type(value)(parts)


@pytest.mark.parametrize(
    ("backend", "steps"), [(SubprocessBackend, 0), (SubprocessBackend, 1), (ShmemBackend, 0)]
)
def test_whatever_a_message_says_it_is_read_or_refused_and_other_rows_stay(backend, steps):
    draw, refused, arrived = random.Random(0), 0, []
    with build(backend) as env:
        env.reset_async(seed=1)
        for _ in range(steps):
            env.reset_wait()
            env.step_async([0] * 4)
        worker, other = env.unwrapped.runner._workers
        assert select.select([other.channel], [], [], LONG)[0]  # it has written its rows
        assert until(lambda: arrived.append(worker.channel.receive()) or arrived[-1] is not None)
        message = decode(arrived[-1])
        before = snapshot_of(env)
        for _ in range(2000):
            answer = mutated(message, draw)
            read = env.unwrapped.runner._read(worker, lambda: answer, worker.expected)  # noqa: B023
            refused += isinstance(read, str)
            assert_same(before, snapshot_of(env), repr(answer))
            env.core.slots.collect(env.core.rows.all_ids)
        assert refused > 1000
        assert env.unwrapped.runner._read(worker, lambda: message, worker.expected) is message
        env.close(terminate=True)


def snapshot_of(env):
    """All that is known of the rows of worker 1."""
    step = env.core.slots.collect(np.array([2, 3]))
    return step.observations, step.rewards, step.dones, step.infos, step.final_obs, step.final_infos


# -- messages that are code ------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    "kind", ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "Mine", "PlanError", "OSError"]
)
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


def test_ctrl_c_while_a_message_is_read_ends_the_step_and_nothing_else():
    with SubprocessBackend([lambda: Sends(signal.raise_signal, signal.SIGINT)], workers=1) as env:
        env.reset()
        with pytest.raises(KeyboardInterrupt):
            env.step([1])
        env.reset()
        assert env.get_attr("render_mode") == (None,)


# -- shared memory ---------------------------------------------------------------------------------


def test_a_value_that_is_read_before_the_rows_in_memory_that_precede_it_is_no_row(monkeypatch):
    """After an interrupt rows are still under way, and a call may follow them."""
    with ShmemBackend([ToyEnv] * 2, workers=1) as env:
        env.reset(seed=1)
        env.step([0, 0])
        env.send([0, 1])
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(env.runner, "poll", lambda *_, **__: signal.default_int_handler(2, None))
            env.recv()
        env.call_async("get_wrapper_attr", "render_mode")
        lane = env.runner._workers[0].ring
        assert until(
            lambda: (
                lane.has_answers()
                and select.select([env.runner._workers[0].channel.fileno()], [], [], 0)[0]
            )
        )
        with monkeypatch.context() as patch:
            # As if the rows had arrived a moment later.
            patch.setattr(lane, "has_answers", lambda: False)
            assert env.call_wait(timeout=LONG) == (None, None)
        assert len(env.reset(seed=1)[0]) == 2


@pytest.mark.parametrize("count", [-5, 0, 99, 2**62])
def test_a_count_of_answers_that_were_not_asked_for_is_an_error_that_names_the_worker(
    count, monkeypatch
):
    with build(ShmemBackend) as env:
        env.reset(seed=1)
        env.step([0] * 4)
        env.step_async([0] * 4)
        monkeypatch.setattr(env.unwrapped.runner._workers[0].ring, "_num_done", lambda: count)
        with pytest.raises(
            BackendError,
            match=r"worker 0 .* has written what cannot be read here \(expected . to . ",
        ):
            env.step_wait()


def test_an_answer_in_memory_and_by_message_at_once_is_an_error():
    with build(ShmemBackend) as env:
        env.reset(seed=1)
        env.step([0] * 4)
        env.step_async([0] * 4)
        worker = env.unwrapped.runner._workers[0]
        # Nothing is awaited of this worker afterwards, so its rows have to be there before.
        assert until(worker.ring.has_answers)
        worker.expected.clear()  # as if a message had come for them
        with pytest.raises(BackendError, match=r"worker 0 .* has written what cannot be read here"):
            env.step_wait()


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
    """Cuts whatever its parent has in memory; the shared block would then kill the parent with
    SIGBUS.
    """

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
