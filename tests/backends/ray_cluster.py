"""One small Ray cluster for all tests of a process, started when the first of them asks for it."""

import functools
import gc
import time
import warnings
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from vecwrap.backends.ray import Ray
from vecwrap.testing import on

STORE = 100_000_000  # bytes


@contextmanager
def patience():
    """Give nodes two minutes to start, on a machine that is busy with other tests: Ray's half
    minute is no setting.
    """
    node = pytest.importorskip("ray._private.node")
    slow = SimpleNamespace(time=time.time, sleep=time.sleep, monotonic=lambda: time.monotonic() / 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node, "time", slow)
        yield


@contextmanager
def running(**settings):
    """A cluster that this process has started, not vecwrap."""
    ray = pytest.importorskip("ray")
    # Ray's own niceness would leave its actors waiting for all other tests.
    settings = {
        "num_cpus": 2,
        "object_store_memory": STORE,
        "_system_config": {"worker_niceness": 0},
        **settings,
    }
    with warnings.catch_warnings(), patience():
        # Ray's own; and what did not start, it leaves to the garbage collector.
        warnings.simplefilter("ignore")
        for tries_left in (2, 1, 0):
            try:
                ray.init(
                    "local",
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level="ERROR",
                    **settings,
                )
                break
            except Exception:  # a machine may be busier than that
                ray.shutdown()
                if not tries_left:
                    raise
        gc.collect()
    try:
        yield ray
    finally:
        with warnings.catch_warnings():
            # Older ones leave their processes to the garbage collector.
            warnings.simplefilter("ignore")
            ray.shutdown()
            gc.collect()


def small(factories, *, workers=1, start_method=None, num_cpus=0.1, **options):
    """A backend whose actors ask for little; takes what other backends take."""
    return on(Ray)(factories, workers=workers, num_cpus=num_cpus, **options)


def patient(factories, **options):
    """The same, and nothing is a hang before half a minute: actors are slow on a busy machine."""
    return small(
        factories, **{**options, "step_timeout": 30.0, "reset_timeout": 30.0, "start_timeout": 60.0}
    )


def with_workers(count):
    return functools.partial(small, workers=count)
