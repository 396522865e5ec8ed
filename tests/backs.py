"""Constructors of backends, by their names."""

from vecwrap.backends.dummy import Dummy, around
from vecwrap.backends.shmem import Shmem
from vecwrap.backends.subprocess import Subprocess
from vecwrap.backends.threads import Threads
from vecwrap.env.backend import Backend
from vecwrap.sources.engine import Engine
from vecwrap.testing import on

# What the fork server imports once, for all of its workers: as much of it as most tests need.
FOR_WORKERS = ["vecwrap.backends.workers.worker", "vecwrap.testing", "cv2", "ale_py", "pytest", "hypothesis", "psutil"]

DummyBackend = on(Dummy)
SubprocessBackend = on(Subprocess)
ShmemBackend = on(Shmem)
ThreadsBackend = on(Threads)


class OnDummy(Backend):
    """A face over dummy, for tests that change it."""

    def __init__(self, factories, **options):
        super().__init__(Dummy(), factories, **options)


class Changing(Dummy):
    """Changes every result as it leaves the books."""

    def change(self, step):
        raise NotImplementedError

    def start(self, factories):
        receive = self.books.receive

        def changed(count, timeout):
            step = receive(count, timeout)
            self.change(step)
            return step

        self.books.receive = changed
        return super().start(factories)


def EngineBackend(engine, *, seed=None, **options):  # noqa: N802
    return around(Engine(engine, **options), seed=seed)
