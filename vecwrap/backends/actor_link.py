"""One actor as its parent sees it: where it runs, the answers it owes; and waiting for several actors."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from vecwrap.backends.restarts import WorkerHealth
from vecwrap.backends.workers import Expected

__all__ = ["ActorLink", "fetch", "has_answered", "wait"]


class ActorLink:
    """The link to one actor; it outlives the process that the actor runs in."""

    def __init__(self, number: int, env_ids: range) -> None:
        self.number = number
        self.env_ids = env_ids
        self.handle: Any = None  # Ray's
        self.life = 0  # how often it was started; every step and answer belongs to one life
        self.init = b""  # the first message of its current life, until it has been sent
        self._up = False
        self.made = False  # whether its sub-environments are
        self.torn = False  # whether an interrupt came while an answer was being received
        self.warned = False  # that it is waiting
        self.calls: dict[Any, Expected] = {}  # the answers it owes, in order, by Ray's reference
        self.later: list[tuple[Expected, bytes]] = []  # calls that wait until it is awake, and their messages
        self.news: deque[tuple[Any, ...]] = deque()  # messages that go with the next call
        self.pid: int | None = None  # of its current life, once known, as node and address
        self.node = ""
        self.address = "?"
        self.since = 0.0  # when it last answered, or was first called

    def begin(self, init: bytes) -> None:
        """Start another life, with this first message."""
        self.life += 1
        self._up, self.made, self.torn, self.warned = True, False, False, False
        self.pid, self.node, self.address = None, "", "?"  # the previous process's must not be killed
        self.news.clear()
        self.init = init

    def is_up(self) -> bool:
        """Whether it has been started and not been lost."""
        return self._up

    def call(self, reference: Any, call: Expected) -> None:
        """Record a call."""
        if not self.calls:
            self.since = time.monotonic()
        self.calls[reference] = call

    def answered(self, reference: Any) -> Expected:
        """Record an answer."""
        call = self.calls.pop(reference)
        self.since = time.monotonic()
        return call

    def excuse(self, seconds: float) -> None:
        """Extend the limit of the answer that is due by this long."""
        self.since += seconds

    def forget(self) -> None:
        """Expect nothing more from it."""
        self._up = False
        self.calls.clear()
        self.later.clear()
        self.news.clear()

    @property
    def deadline(self) -> float:
        """When the next answer is overdue; infinity if it has no limit."""
        first = next(iter(self.calls.values()), None)
        return math.inf if first is None or first.seconds is None else self.since + first.seconds

    @property
    def waits_since(self) -> float:
        """Since when it has waited for resources or made its environments; infinity if it does neither."""
        first = next(iter(self.calls.values()), None)
        return self.since if first is not None and first.kind in ("start", "wake") else math.inf

    def owes(self) -> list[str]:
        """The kinds of answers that it owes, in order."""
        return [call.kind for call in (*self.calls.values(), *(call for call, _ in self.later))]

    def health(self) -> WorkerHealth:
        """Return its current state."""
        pid = self.pid if self._up and self.made else None
        return WorkerHealth(self.number, pid, tuple(self.env_ids), self.life - 1)

    def __str__(self) -> str:
        ids = f"{self.env_ids[0]}-{self.env_ids[-1]}" if len(self.env_ids) > 1 else f"{self.env_ids[0]}"
        return f"actor {self.number} (pid {self.pid} on node {self.address}, sub-environments {ids})"


def wait(ray: Any, actors: Sequence[ActorLink], *, for_all: bool, seconds: float) -> list[tuple[ActorLink, Any]]:
    """Wait until actors have answered, and return which, each with its reference; a death counts as an answer.

    ``for_all``: wait for every owed answer, to wake up only once; else for the first.
    """
    owed = {reference: actor for actor in actors for reference in actor.calls}
    if not owed:
        time.sleep(seconds)
        return []
    arrived, _ = ray.wait(list(owed), num_returns=len(owed) if for_all else 1, timeout=seconds)
    return [(owed[reference], reference) for reference in arrived]


def has_answered(ray: Any, actor: ActorLink) -> bool:
    """Whether the first answer that an actor owes is ready, even if on another node."""
    first = next(iter(actor.calls), None)
    return first is not None and bool(ray.wait([first], timeout=0, fetch_local=False)[0])


def fetch(ray: Any, references: Sequence[Any]) -> list[Any]:
    """Get answers that are ready; an error takes the place of a failed one."""
    try:
        return list(ray.get(list(references))) if references else []
    except ray.exceptions.RayError:
        return [_fetch_one(ray, reference) for reference in references]


def _fetch_one(ray: Any, reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as error:
        return error
