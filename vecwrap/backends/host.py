"""The actors' class, sent by value, so that a node without this package can report that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["host_class"]


def host_class() -> Callable[[], Any]:
    """Return the class; cloudpickle sends a class defined in a function by value, with all that it needs."""

    class Host:
        """Runs in a Ray process and holds a vecwrap worker."""

        def __init__(self) -> None:
            self.worker: Any = None
            self.life = 0

        def start(self, life: int, path: list[str], directory: str, variables: Sequence[str], init: bytes) -> Any:
            """Make the sub-environments; the parent's paths are used if this node has them.

            Args:
                life: the number of the actor's new life.
                path: the parent's ``sys.path``.
                directory: its working directory.
                variables: environment variables that set how many threads libraries use.
                init: what to make.

            Returns:
                The process id, the node's id and address, the package that is missing or None, and the answer.
            """
            import os
            import sys

            import ray

            self.close()
            for name in variables:
                os.environ.setdefault(name, "1")
            sys.path.extend(entry for entry in path if entry not in sys.path)
            if os.path.isdir(directory):  # noqa: PTH112
                os.chdir(directory)
            missing, answer = None, b""
            try:
                from vecwrap.backends.actor import start_actor

                self.worker, answer = start_actor(init)
            except ModuleNotFoundError as error:
                missing = error.name or str(error)
            self.life = life
            node = ray.get_runtime_context().get_node_id()
            return os.getpid(), node, ray.util.get_node_ip_address(), missing, answer

        def answer(self, life: int, data: bytes) -> Any:
            """Handle the messages; None if they are meant for another life."""
            return None if self.worker is None or life != self.life else self.worker.answer(data)

        def close(self) -> None:
            """Close the environments."""
            worker, self.worker = self.worker, None
            if worker is not None:
                worker.close()

    return Host
