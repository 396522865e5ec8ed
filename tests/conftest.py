"""What every test process starts from."""

import gc
import multiprocessing
import os
import signal
import zlib

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
# them. New ones are looked for in the long runs, with --hypothesis-profile=long.
quiet = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", max_examples=30, derandomize=True, **quiet)
settings.register_profile("ci", max_examples=100, derandomize=True, **quiet)
settings.register_profile("long", max_examples=2000, **quiet)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


# Programs, which do what they do when they are imported; tests/test_start.py runs them.
collect_ignore = ["script_of_kinds.py", "script_of_registrations.py"]

# What runs on the oldest releases that pyproject.toml allows: what speaks with them (spaces, arrays, infos), the peers
# that it is compared with, wrappers, pictures and videos, files and commands, and laws over one process.
BOUNDS = (
    "vecwrap/rows/",
    "vecwrap/sources/",
    "vecwrap/wrappers/",
    "tests/rows/",
    "tests/sources/test_engines.py",
    "tests/sources/test_no_options.py",
    "tests/sources/test_own_spaces.py",
    "tests/sources/test_wrapped_engines.py",
    "tests/env/test_actions.py",
    "tests/env/test_env_state.py",
    "tests/env/test_frames.py",
    "tests/env/test_notebook.py",
    "tests/env/test_picture.py",
    "tests/env/test_vec_env.py",
    "tests/backends/test_infos.py",
    "tests/backends/test_own_copies.py",
    "tests/test_gymnasium_peer.py",
    "tests/test_laws.py",
    "tests/adapters/test_gymnasium.py",
    "tests/adapters/test_sb3_infos.py",
    "tests/adapters/test_to_sb3.py",
    "tests/wrappers/",
    "tests/pipeline/test_environments.py",
    "tests/pipeline/test_json_file.py",
    "tests/pipeline/test_pipeline_file.py",
    "tests/pipeline/test_plan.py",
    "tests/pipeline/test_sendable.py",
    "tests/pipeline/test_spec.py",
    "tests/tools/plot/",
    "tests/cli/test_check.py",
    "tests/cli/test_completion.py",
    "tests/cli/test_explain.py",
    "tests/cli/test_list.py",
    "tests/cli/test_plot.py",
)
NOT_BOUNDS = (
    "tests/selfplay/",
    "tests/wrappers/test_around_games.py",
    "tests/selfplay/test_opponents.py",
    "tests/wrappers/test_viewer.py",
)
PROCESSES = ("subprocess", "shmem")
MODES = ("same_step", "next_step", "disabled", "episodic")


def is_of_the_bounds(place):
    return place.startswith(BOUNDS) and not place.startswith(NOT_BOUNDS)


def pytest_ignore_collect(collection_path, config):
    """A run on the lower bounds imports no other module of tests: the packages of some are not installed there."""
    if collection_path.suffix == ".py" and "bounds" in config.option.markexpr:
        return not is_of_the_bounds(collection_path.relative_to(config.rootpath).as_posix()) or None
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark what the suite leaves to ``make test-full``, and what .ci/run runs on the lower bounds.

    One thing fails alike on both backends of worker processes, and mostly alike in each mode. So of a test of faults
    the suite runs one of these backends, in one mode; which ones, the test's name decides, so that each is met often.
    """
    for item in items:
        place = item.nodeid
        if is_of_the_bounds(place):
            item.add_marker("bounds")
        if place.startswith("tests/faults/") and hasattr(item, "callspec") and _is_repeated(item):
            item.add_marker("full")


def _is_repeated(item):
    number = zlib.crc32(item.originalname.encode())
    backend = item.callspec.params.get("backend")
    name = getattr(backend, "__name__", str(backend)).removesuffix("Backend").lower()
    mode = str(getattr(item.callspec.params.get("mode"), "value", item.callspec.params.get("mode")))
    if name not in PROCESSES:
        return False
    return name != PROCESSES[number % 2] or (mode in MODES and mode != MODES[number // 2 % 4])


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
