"""Constructors of backends, by their names."""

from vecwrap.backends.dummy import Dummy, around
from vecwrap.backends.shmem import Shmem
from vecwrap.backends.subprocess import Subprocess
from vecwrap.backends.threads import Threads
from vecwrap.env.backend import Backend
from vecwrap.sources.engine import Engine
from vecwrap.testing import on

# What the fork server imports once, for all of its workers: as much of it as most tests need.
FOR_WORKERS = [
    "vecwrap.backends.workers.worker",
    "vecwrap.testing",
    "cv2",
    "ale_py",
    "pytest",
    "hypothesis",
    "psutil",
]

DummyBackend = on(Dummy)
SubprocessBackend = on(Subprocess)
ShmemBackend = on(Shmem)
ThreadsBackend = on(Threads)


class OnDummy(Backend):
    """A face over dummy, for tests that change it."""

    def __init__(self, factories, **options):
        super().__init__(Dummy(), factories, **options)


class Changing(Dummy):
    """Changes every result as it leaves the slots."""

    def change(self, step):
        raise NotImplementedError

    def allocate(self, description):
        slots = super().allocate(description)
        collect = slots.collect

        def changed(env_ids, copy):
            step = collect(env_ids, copy=copy)
            self.change(step)
            return step

        slots.collect = changed
        return slots


def EngineBackend(engine, *, seed=None, **options):  # noqa: N802
    return around(Engine(engine, **options), seed=seed)
