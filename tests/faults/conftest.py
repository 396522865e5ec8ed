"""What the fault suite starts from."""

import pytest

from tests.faults.faulty import Faulty
from vecwrap.backends.subprocess import SubprocessBackend


@pytest.fixture(autouse=True, scope="session")
def fork_server():
    """Start the fork server now: it stays, and is no leak of the test that happens to be the first to use it."""
    SubprocessBackend([Faulty], start_method="forkserver").close()
