"""What every test process starts from."""

import gc
import multiprocessing
import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.backs import SubprocessBackend
from vecwrap import interrupts
from vecwrap.backends.workers import options, process
from vecwrap.testing import toy

# A suite that a script starts in the background inherits an ignored Ctrl-C, and so would the programs that it tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Networks here are small, and other tests run on the other cores: in scripts that train, threads would wait for each
# other most of the time.
for library in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(library, "1")

# Tests start workers by the thousand; a fork server that has imported what workers need makes one in 20 ms, and has no
# threads that a fork could lose. What the modules of tests import is needed, too: environments are defined in them.
multiprocessing.set_forkserver_preload(
    ["vecwrap.backends.workers.worker", "vecwrap.testing", "cv2", "ale_py", "pytest", "hypothesis", "psutil"]
)

# The suite tries the same examples each time, so that what it says of a change is about the change, and no clock judges
# them. New ones are looked for in the long runs.
quiet = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("suite", derandomize=True, **quiet)
settings.register_profile("long", max_examples=2000, **quiet)
settings.load_profile("suite")


def pytest_collection_finish(session):
    """Take what the imports of all tests have left behind out of the garbage collector's sight.

    Torch, pandas and the rest are a million objects, and many tests collect garbage to see what is left: a quarter of
    a second each time, for nothing.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _each_counts(monkeypatch):
    """Each signal counts: tests press Ctrl-C twice, or one after the other, in no time."""
    monkeypatch.setattr(interrupts, "TOGETHER", 0.0)


@pytest.fixture(scope="session")
def fork_server():
    """Start the fork server now: it stays, and is no leak of the test that happens to be the first to use it."""
    SubprocessBackend([toy()], start_method="forkserver").close()


@pytest.fixture
def quick_workers(fork_server, monkeypatch):
    """Workers come from the fork server where a test leaves ``start_method`` out.

    A fresh interpreter, which is what users get, takes twenty times as long: most of it is the import of NumPy,
    Gymnasium and the module of the test.
    """
    check = options.check_start_method
    monkeypatch.setattr(process, "check_start_method", lambda method: check(method or "forkserver"))


@pytest.fixture(autouse=True)
def default_workers(quick_workers):
    """Workers are quick, but where a folder or a module has a fixture of this name that makes none.

    That workers do in a fresh interpreter what they do once they run is what tests/test_start.py, tests/faults, some
    laws of tests/test_laws.py, the pages, the examples and all commands that run as processes are for.
    """
