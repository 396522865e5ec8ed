"""What every test process starts from."""

import gc
import multiprocessing
import os
import re
import signal
import zlib
from functools import partial

import pytest
from hypothesis import HealthCheck, settings

from tests.helpers.backends import FOR_WORKERS, SubprocessBackend
from vecwrap import interrupts
from vecwrap.backends.workers import options, process
from vecwrap.testing import toy

# A suite that a script starts in the background inherits an ignored Ctrl-C, and so would the
# programs that it tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Networks here are small, and other tests run on the other cores: in scripts that train, threads
# would wait for each other most of the time.
for library in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(library, "1")

# Tianshou would compile for eight seconds in each process what then runs for a moment.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")

# Tests start workers by the thousand; a fork server that has imported what workers need makes one
# in 20 ms, and has no threads that a fork could lose. What the modules of tests import is needed,
# too: environments are defined in them.
multiprocessing.set_forkserver_preload(FOR_WORKERS)

# The suite tries the same examples each time, so that what it says of a change is about the change,
# and no clock judges them. New ones are looked for in the long runs, with
# --hypothesis-profile=long.
quiet = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", max_examples=30, derandomize=True, **quiet)
settings.register_profile("ci", max_examples=50, derandomize=True, **quiet)
settings.register_profile("long", max_examples=2000, **quiet)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


# Programs, which do what they do when they are imported; tests/test_start.py runs them.
collect_ignore = ["helpers"]

# What runs on the oldest releases that pyproject.toml allows: what speaks with them (spaces,
# arrays, infos), the peers that it is compared with, wrappers, pictures and videos, files and
# commands, and laws over one process.
BOUNDS = (
    "vecwrap/rows/",
    "vecwrap/sources/",
    "vecwrap/wrappers/",
    "vecwrap/selfplay/",
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
    "tests/backends/test_detached_copies.py",
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
    "vecwrap/wrappers/record_trajectories.py",  # Minari wants a newer NumPy
    "tests/wrappers/test_record_trajectories.py",
    "tests/wrappers/test_around_games.py",
    "tests/wrappers/test_viewer.py",
)
IN_THIS_PROCESS = ("dummy", "threads")
PROCESSES = ("subprocess", "shmem")
MODES = ("same_step", "next_step", "disabled", "episodic")

# What is tried over processes beside dummy fails alike on both of their backends, and alike in each
# mode; but how rows travel, which tests/backends is about, is each backend's own.
OVER_ONE_BACKEND = (
    "tests/adapters/",
    "tests/env/",
    "tests/faults/",
    "tests/live/",
    "tests/pipeline/",
    "tests/rows/",
    "tests/selfplay/",
    "tests/sources/",
    "tests/testing/",
    "tests/tools/",
    "tests/wrappers/",
)
OF_BACKENDS = ("backend", "name", "make")
OF_MODES = ("mode", "autoreset")
IN_ONE_MODE = (*OVER_ONE_BACKEND, "tests/backends/")


def is_of_the_bounds(place):
    return place.startswith(BOUNDS) and not place.startswith(NOT_BOUNDS)


def pytest_ignore_collect(collection_path, config):
    """A run on the lower bounds imports no other module of tests: the packages of some are not
    installed there.
    """
    if collection_path.suffix == ".py" and "bounds" in config.option.markexpr:
        return not is_of_the_bounds(collection_path.relative_to(config.rootpath).as_posix()) or None
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark what the suite leaves to ``make test-full``, and what .ci/run runs on the lower bounds.

    Of a test over processes the suite runs one of their backends; and one mode, if it has the
    others in this process. Where both backends stay, and nothing runs in this process, each has
    half of the modes. Which ones, the test's name decides, so that each is met often.
    """
    tests = {}
    for item in items:
        if is_of_the_bounds(item.nodeid):
            item.add_marker("bounds")
        is_left_out = item.get_closest_marker("full") or item.get_closest_marker("soak")
        if item.nodeid.startswith(IN_ONE_MODE) and not is_left_out:
            tests.setdefault((item.path, item.originalname, _other_parameters(item)), []).append(
                item
            )
    for (_, name, _), variants in tests.items():
        number = zlib.crc32(name.encode())
        over_processes = [item for item in variants if _backend_of(item)]
        if variants[0].nodeid.startswith(OVER_ONE_BACKEND):
            over_processes = _all_but_one(over_processes, _backend_of, PROCESSES, number)
        if len(over_processes) < len(variants) or variants[0].nodeid.startswith("tests/faults/"):
            for backend in PROCESSES:
                here = [item for item in over_processes if _backend_of(item) == backend]
                _all_but_one(here, _mode_of, MODES, number // 2)
        elif {_backend_of(item) for item in variants} == {*PROCESSES}:
            _every_other(over_processes, number)


def _all_but_one(items, value_of, values, number):
    """Leave out all but those that have one of the values, or none; gives the latter."""
    found = {value_of(item) for item in items}
    values = [value for value in values if value in found]
    kept = (
        [item for item in items if value_of(item) in ("", values[number % len(values)])]
        if values
        else items
    )
    for item in items:
        if item not in kept:
            item.add_marker("full")
    return kept


def _every_other(items, number):
    """Leave out every other mode: one backend keeps those that the other one lacks."""
    for item in items:
        mode = _mode_of(item)
        if mode and (PROCESSES.index(_backend_of(item)) + MODES.index(mode) + number) % 2:
            item.add_marker("full")


def _parameter(item, names, values):
    """The name and the value of the first parameter of such a name that is one of these values."""
    given = item.callspec.params if hasattr(item, "callspec") else {}
    for name in names:
        value = given.get(name)
        if isinstance(value, partial) and not hasattr(value, "__name__"):
            value = value.func
        elif isinstance(value, dict):
            value = value.get("name")
        word = str(getattr(value, "value", getattr(value, "__name__", value)))
        word = (
            re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word.removesuffix("Backend"))
            .lower()
            .partition(",")[0]
        )
        if word in values:
            return name, word
    return "", ""


def _backend_of(item):
    return _parameter(item, OF_BACKENDS, PROCESSES)[1]


def _mode_of(item):
    return _parameter(item, OF_MODES, MODES)[1]


def _other_parameters(item):
    given = item.callspec.params if hasattr(item, "callspec") else {}
    left_out = {
        _parameter(item, OF_BACKENDS, (*IN_THIS_PROCESS, *PROCESSES))[0],
        _parameter(item, OF_MODES, MODES)[0],
    }
    return str({name: value for name, value in given.items() if name not in left_out})


def pytest_collection_finish(session):
    """Take what the imports of all tests have left behind out of the garbage collector's sight.

    Torch, pandas and the rest are a million objects, and many tests collect garbage to see what is
    left: a quarter of a second each time, for nothing.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _out_of_sight():
    """And what the tests of a module have imported and kept in caches: in the end a tenth of a
    second each time.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _each_counts(monkeypatch):
    """Each signal counts: tests press Ctrl-C twice, or one after the other, in no time."""
    monkeypatch.setattr(interrupts, "REPEAT_SECONDS", 0.0)


@pytest.fixture(scope="session")
def fork_server():
    """Start the fork server now: it stays, and is no leak of the test that happens to be the first
    to use it.
    """
    SubprocessBackend([toy()], start_method="forkserver").close()


@pytest.fixture
def quick_workers(fork_server, monkeypatch):
    """Workers come from the fork server where a test leaves ``start_method`` out.

    A fresh interpreter, which is what users get, takes twenty times as long: most of it is the
    import of NumPy, Gymnasium and the module of the test.
    """
    check = options.check_start_method
    monkeypatch.setattr(process, "check_start_method", lambda method: check(method or "forkserver"))


@pytest.fixture(autouse=True)
def default_workers(quick_workers):
    """Workers are quick, but where a folder or a module has a fixture of this name that makes none.

    That workers do in a fresh interpreter what they do once they run is what tests/test_start.py,
    tests/faults, some laws of tests/test_laws.py, README and the tour, the examples and all
    commands that run as processes are for.
    """
