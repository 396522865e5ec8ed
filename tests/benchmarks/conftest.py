"""What tests of peers start from."""

import signal
from multiprocessing import forkserver

import pytest

from tests.helpers.backends import FOR_WORKERS, SubprocessBackend
from vecwrap.testing import toy

# What their workers import otherwise, for five seconds each.
OF_PEERS = ["stable_baselines3.common.vec_env", "tianshou.env"]


@pytest.fixture(scope="package")
def server_of_peers(fork_server):
    """A fork server that has imported what workers of the peers need, until the last of these
    tests.
    """
    anew([*FOR_WORKERS, *OF_PEERS])
    yield
    anew(FOR_WORKERS)


def anew(modules):
    """Start another fork server, as the first one keeps what it has imported; it ignores Ctrl-C, as
    theirs do.
    """
    server = forkserver._forkserver
    server._stop()
    server.set_forkserver_preload(modules)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        server.ensure_running()
    finally:
        signal.signal(signal.SIGINT, before)
    SubprocessBackend([toy()], start_method="forkserver").close()
