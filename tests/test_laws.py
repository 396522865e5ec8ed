"""The laws of the conformance kit, over every backend; how many workers and how they start makes no difference."""

from functools import partial

import pytest

from vecwrap.backends.dummy import DummyBackend
from vecwrap.backends.shmem import ShmemBackend
from vecwrap.backends.subprocess import SubprocessBackend
from vecwrap.testing import BACKEND_LAWS, check_backend
from vecwrap.testing.backends import (
    attributes_are_seen_by_the_environment,
    same_rows_by_send_and_recv,
    same_stream_in_every_mode,
)

BACKENDS = {
    "dummy": DummyBackend,
    "subprocess": partial(SubprocessBackend, workers=2),
    "shmem": partial(ShmemBackend, workers=2),
}
PROCESS_BACKENDS = pytest.mark.parametrize("backend", [SubprocessBackend, ShmemBackend])


@pytest.mark.parametrize("law", BACKEND_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_keeps_every_law(backend, law):
    law(BACKENDS[backend])


@pytest.mark.parametrize("workers", [1, 3])
@PROCESS_BACKENDS
def test_the_number_of_workers_makes_no_difference(backend, workers):
    make_backend = partial(backend, workers=workers)
    same_stream_in_every_mode(make_backend)
    same_rows_by_send_and_recv(make_backend)


@pytest.mark.parametrize("start_method", ["spawn", "forkserver", "fork"])
@PROCESS_BACKENDS
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_start_method_makes_no_difference(backend, start_method):
    make_backend = partial(backend, workers=2, start_method=start_method)
    same_stream_in_every_mode(make_backend, steps=100)
    attributes_are_seen_by_the_environment(make_backend)


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 2, 3])
@PROCESS_BACKENDS
def test_the_laws_hold_for_a_thousand_steps(backend, workers):
    make_backend = partial(backend, workers=workers)
    same_stream_in_every_mode(make_backend, steps=1000)
    same_rows_by_send_and_recv(make_backend, steps=400)


def test_check_backend_runs_the_laws_it_is_given():
    ran = []
    check_backend(DummyBackend, laws=[lambda make_backend: ran.append(make_backend)] * 2)
    assert ran == [DummyBackend, DummyBackend]
