"""What the fault suite starts from."""

import gc
import signal

import pytest

from tests.helpers.backends import SubprocessBackend


@pytest.fixture(autouse=True, scope="session")
def _fork_server_runs(fork_server):
    """Before a test notes what is open."""


@pytest.fixture(autouse=True)
def default_workers():
    """Fresh interpreters, as users have."""


@pytest.fixture
def either_start(request):
    """Workers come from the fork server; where a test is marked ``full``, those of ``shmem`` are
    fresh interpreters.

    How workers start and end is one piece of code under both backends, so each backend and each way
    to start meets every fault, and the suite pays for one of them.
    """
    is_full = request.node.get_closest_marker("full") is not None
    backend = request.getfixturevalue("backend") if "backend" in request.fixturenames else None
    if not is_full or backend in (SubprocessBackend, "subprocess"):
        request.getfixturevalue("quick_workers")


@pytest.fixture
def own_handler():
    """The handler of SIGINT is put back where a test has set one."""
    earlier = signal.getsignal(signal.SIGINT)
    yield
    gc.collect()  # the environments of the test
    signal.signal(signal.SIGINT, earlier)
