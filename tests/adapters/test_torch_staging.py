"""``to_torch`` on a device: through pinned memory, which is never used again too early.

Here the device is one that copies as late as it may; the same tests run on CUDA where it is there.
"""

from collections import Counter
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

import vecwrap
from tests.helpers.torch_arrays import OfNumpy, OfTensors, arrays, expected
from tests.helpers.torch_links import CountedLink, LateLink, staged
from vecwrap.adapters.torch_transfer import CudaLink
from vecwrap.env.random_actions import RandomActions
from vecwrap.rows.batch import in_numpy
from vecwrap.rows.compare import Different, assert_same
from vecwrap.testing import ToyEnv, toy
from vecwrap.testing.drive import Lockstep, assert_kept, drive, on_dummy, play

MODES = ("same_step", "next_step", "disabled", "episodic")
FULL = pytest.mark.full
KINDS = ("dict", "tuple", "box_uint8", "box_int16", "box_scalar", "box_float64")
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
DEVICES = pytest.mark.parametrize("device", ["late", pytest.param("cuda", marks=CUDA)])


def link_of(device):
    """The way to the device, its calls counted; the device of tensors; what waits for all."""
    if device == "late":
        late = LateLink()
        return CountedLink(late), "cpu", late.finish
    cuda = torch.device("cuda", 0)
    return CountedLink(CudaLink(cuda)), cuda, torch.cuda.synchronize


def pair(device, kind="dict", n=3, **options):
    """NumPy's environment, that of tensors on the device, and the way to it."""
    given, other = (on_dummy([toy(observations=kind, end=0.1)] * n, **options) for _ in range(2))
    link, place, finish = link_of(device)
    floats = np.dtype("float32")
    return OfNumpy(given), OfTensors(staged(other, link, place, floats), finish), link


@DEVICES
@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        pytest.param(kind, mode, marks=() if kind == "dict" or mode == "same_step" else FULL)
        for kind in KINDS
        for mode in MODES
    ],
)
def test_values_are_those_of_numpys_environment(kind, mode, device):
    ours, theirs, _ = pair(device, kind, autoreset=mode)
    with ours, theirs:
        met = drive(Lockstep(ours, theirs), 60, seed=1, unrest=2.0, parts=0.3)
    assert min(met.values()) >= 3


def steps_without_waiting(link, place, finish, steps=30):
    """Step without a look at the device; compare all at the end."""
    ours = on_dummy([toy(observations="dict", end=0.1)] * 3)
    theirs = staged(on_dummy([toy(observations="dict", end=0.1)] * 3), link, place)
    with ours, theirs:
        given = [ours.reset(seed=1), *play(ours, steps, RandomActions(ours, seed=1))]
        kept = [theirs.reset(seed=1), *play(theirs, steps, RandomActions(theirs, seed=1))]
        finish()
        assert sum("final_obs" in result[-1] for result in given) >= 3
        for k, (one, other) in enumerate(zip(given, kept, strict=True)):
            assert_same(expected(one, None), arrays(other), f"result {k}")


@DEVICES
def test_staging_memory_is_not_written_before_its_copies_are_done(device):
    steps_without_waiting(*link_of(device))


def test_the_late_device_notices_memory_that_is_written_too_early():
    late = LateLink(waits=False)
    with pytest.raises((Different, IndexError)):
        steps_without_waiting(late, "cpu", late.finish)


def test_a_step_waits_only_for_the_copies_of_the_step_before_the_last():
    late = LateLink()
    with staged(on_dummy([partial(Silent, end=0.0)] * 2), late) as env:
        env.reset(seed=1)
        for _ in range(5):
            before = list(late.todo)
            assert before  # the last call returned while its copies were on their way
            env.step([0, 1])
            assert all(copy in late.todo for copy in before[-4:])
            assert len(late.todo) <= 8  # of this step and the one before, four leaves each


@DEVICES
def test_one_copy_for_each_leaf_and_step_and_two_pieces_of_pinned_memory(device):
    link, place, finish = link_of(device)
    with staged(on_dummy([partial(Silent, observations="dict", end=0.0)] * 3), link, place) as env:
        env.reset(seed=1)
        env.step([0, 0, 0])
        before = Counter(link.calls)
        kept = [env.step([0, 0, 0]) for _ in range(10)]
        finish()
        # two leaves of observations, rewards, two flags
        assert link.calls - before == {"copy": 50, "deliver": 10}
        assert before["pinned"] == 2
        assert len({result[0]["a"].data_ptr() for result in kept}) == 10


@DEVICES
def test_only_the_rows_that_ended_cross_for_final_obs(device):
    link, place, finish = link_of(device)
    crossed = []
    copy = link.link.copy
    link.link.copy = lambda tensor: crossed.append(tuple(tensor.shape)) or copy(tensor)
    with staged(on_dummy([toy(observations="box_uint8", end=0.0, limit=2 + i) for i in range(4)]),
                link, place) as env:  # fmt: skip
        env.reset(seed=1)
        env.step([0] * 4)
        crossed.clear()
        *_, infos = env.step([0] * 4)
        finish()
        assert infos["_final_obs"].tolist() == [True, False, False, False]
        assert infos["final_obs"].shape == (4, 4, 5, 3)
        assert crossed.count((4, 4, 5, 3)) == 1  # the observations
        assert (1, 4, 5, 3) in crossed
        assert link.calls["spread"] == 1


@DEVICES
def test_results_are_yours_to_keep_and_to_write(device):
    _, theirs, _ = pair(device)
    assert_kept(theirs, 40, device)
    ours, theirs, _ = pair(device)
    with ours, theirs:
        for result in (theirs.reset(seed=1), *play(theirs, 30, RandomActions(theirs, seed=1))):
            result[0]["a"][:] = 0.0
        drive(Lockstep(ours, theirs), 10, seed=2)


@DEVICES
def test_memory_grows_with_what_a_step_brings(device):
    """Infos of a later step need more room; what the small memory held is still right."""
    link, place, finish = link_of(device)
    converter = staged(on_dummy([toy()]), link, place).array_converter
    sent = [np.arange(size, dtype=np.int32) + size for size in (3, 5, 70, 2, 50_000, 90_000, 9, 1)]
    kept = [converter.from_numpy({"x": array, "y": (array[:1], "text")}) for array in sent]
    finish()
    for array, got in zip(sent, kept, strict=True):
        assert_same({"x": array, "y": (array[:1], "text")}, arrays(got))
    assert link.calls["pinned"] == 2 + 2


@DEVICES
def test_an_interrupt_while_results_are_sent_loses_no_copy(device):
    link, place, finish = link_of(device)
    converter = staged(on_dummy([toy()]), link, place).array_converter
    copy = link.link.copy
    first = [converter.from_numpy(np.full(4, i)) for i in range(2)]

    def interrupted(tensor):
        copy(tensor)
        raise KeyboardInterrupt

    link.link.copy = interrupted
    with pytest.raises(KeyboardInterrupt):
        converter.from_numpy(np.full(4, 2))
    link.link.copy = copy
    first += [converter.from_numpy(np.full(4, 3 + i)) for i in range(3)]
    finish()
    assert [tensor.tolist() for tensor in first] == [[i] * 4 for i in (0, 1, 3, 4, 5)]


@DEVICES
def test_observations_that_an_engine_returns_as_tensors_stay_on_the_device(device):
    link, place, finish = link_of(device)
    floats = np.dtype("float32")
    ours = OfNumpy(vecwrap.wrap(ArrayEngine(place)))
    theirs = OfTensors(staged(vecwrap.wrap(TensorEngine(place)), link, place, floats), finish)
    with ours, theirs:
        kept = [(ours.reset(seed=1), theirs.reset(seed=1))]
        before = Counter(link.calls)
        actions = [[0, 1, k % 2] for k in range(6)]
        kept += [(ours.step(each), theirs.step(each)) for each in actions]
        # rewards, flags, an info
        assert link.calls["copy"] - before["copy"] == 4 * 6
        for given, got in kept:
            assert_same(given, got)
    with staged(vecwrap.wrap(TensorEngine(place), ["framestack:2"]), link, place) as env:
        env.reset(seed=1)
        before = Counter(link.calls)
        env.step([0, 1, 0])
        assert link.calls["copy"] - before["copy"] == 6  # a wrapper has changed them


def test_the_order_in_which_cuda_is_called(monkeypatch):
    log = []

    class Stream:
        def __init__(self, name):
            self.name = name

        def record_event(self):
            log.append(f"{self.name} records")
            return "event"

        def wait_event(self, event):
            log.append(f"{self.name} waits for {event}")

        def wait_stream(self, other):
            log.append(f"{self.name} waits for {other.name}")

    side, current = Stream("side"), Stream("current")

    @contextmanager
    def on(stream):
        log.append(f"on {stream.name}")
        yield
        log.append("off")

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: side)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: current)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda _, stream: log.append(stream.name))
    link = CudaLink(torch.device("cpu"))
    whole = link.copy(torch.zeros(3))
    spread = link.spread(whole, torch.tensor([1]), torch.ones(1))
    assert spread.tolist() == [0, 1, 0]
    assert log == ["on side", "off"] * 2
    log.clear()
    assert link.deliver([whole, spread]) == "event"
    assert log == ["side records", "current waits for event", "current", "current"]


@CUDA
def test_actions_come_from_the_device_and_on_its_current_stream():
    with vecwrap.build("CartPole-v1", n=4, backend="dummy") as ours:
        env = vecwrap.to_torch(vecwrap.build("CartPole-v1", n=4, backend="dummy"), "cuda")
        ours.reset(seed=1)
        observations, _ = env.reset(seed=1)
        for _ in range(50):
            actions = (observations[:, 2] > 0).long()
            assert actions.is_cuda
            result = env.step(actions)
            assert_same(expected(ours.step(actions.cpu().numpy())), arrays(result))
            observations = result[0]
        env.close()


class TensorEngine(VectorEnv):
    """An engine whose observations are tensors, which it writes again at every step."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    num_envs = 3
    single_observation_space = spaces.Dict(
        at=spaces.Box(-99, 99, (2,), np.float32), double=spaces.Box(-99, 99, (1,), np.float64)
    )
    single_action_space = spaces.Discrete(2)

    def __init__(self, place):
        self.seen = {
            "at": torch.zeros(3, 2, device=place),
            "double": torch.zeros(3, 1, dtype=torch.float64, device=place),
        }

    def reset(self, *, seed=None, options=None):
        for tensor in self.seen.values():
            tensor.zero_()
        return self.seen, {}

    def step(self, actions):
        for number, tensor in enumerate(self.seen.values()):
            tensor += torch.as_tensor(actions, device=tensor.device)[:, None] / 3 + number
        no = torch.zeros(3, dtype=torch.bool)
        return self.seen, torch.ones(3), no, no, {"found": self.seen["at"][:, 0]}


class ArrayEngine(TensorEngine):
    """The same in arrays."""

    def reset(self, **settings):
        return in_numpy(super().reset(**settings))

    def step(self, actions):
        return in_numpy(super().step(actions))


class Silent(ToyEnv):
    """Has no infos, so that only observations, rewards and flags cross."""

    def _info(self):
        return {}

    def reset(self, **arguments):
        return super().reset(**arguments)[0], {}

    def step(self, action):
        return *super().step(action)[:4], {}
