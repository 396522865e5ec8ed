"""Shared memory without a name, by each of the ways that a system may have."""

import os

import gymnasium
import numpy as np
import pytest

from tests.helpers.backends import DummyBackend, ShmemBackend
from vecwrap.backends.workers import step_ring
from vecwrap.backends.workers.step_ring import SharedBlock
from vecwrap.errors import BackendError

WAYS = ["memfd", "unlinked file"]


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    if request.param == "unlinked file":
        monkeypatch.setattr(step_ring, "anonymous_file", step_ring._unlinked_file)
    elif not hasattr(os, "memfd_create"):
        pytest.skip("this system has no memfd")


def test_two_mappings_see_the_same_bytes_and_no_descriptor_is_left(way):
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    block = SharedBlock.create(10_000)
    other = SharedBlock.map(os.dup(block.descriptor))
    block.close_descriptor()
    block.close_descriptor()
    first = np.ndarray(10_000, np.uint8, buffer=block.buffer)
    second = np.ndarray(10_000, np.uint8, buffer=other.buffer)
    assert not second.any(), "zeroed"
    first[9_999] = 7
    assert second[9_999] == 7
    del first, second, block, other
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_shmem_gives_the_same_stream_by_either_way(way):
    factories = [lambda: gymnasium.make("CartPole-v1")] * 3
    with DummyBackend(factories) as dummy, ShmemBackend(factories, workers=2) as shmem:
        np.testing.assert_array_equal(dummy.reset(seed=3)[0], shmem.reset(seed=3)[0])
        for _ in range(40):
            actions = dummy.action_space.sample()
            np.testing.assert_array_equal(dummy.step(actions)[0], shmem.step(actions)[0])


def test_too_little_memory_says_how_much_is_needed(monkeypatch):
    def full(descriptor, offset, length):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(step_ring.os, "posix_fallocate", full)
    with pytest.raises(
        BackendError, match=r"1,000,000 bytes of shared memory are needed .*subprocess"
    ):
        SharedBlock.create(1_000_000)
