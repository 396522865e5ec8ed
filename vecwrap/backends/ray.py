"""Sub-environments in the actors of a Ray cluster: on several machines, or on one."""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from vecwrap.backends.ray_actor import Reply, host_class, unpack
from vecwrap.backends.ray_cluster import Cluster, RayOptions
from vecwrap.backends.workers.launch import ONE_THREAD
from vecwrap.backends.workers.messages import encode_for_worker
from vecwrap.backends.workers.pool import PendingReply, WorkerHandleBase, WorkerPool
from vecwrap.backends.workers.shares import rows_of, share_out, sources_per_worker
from vecwrap.env.arrivals import Arrival
from vecwrap.env.runner import Context, Runner
from vecwrap.errors import BackendError, PlanError
from vecwrap.rows.step_result import Frames, IntArray
from vecwrap.rows.table import Slots
from vecwrap.sources.description import EnvDescription
from vecwrap.sources.failure import Failure
from vecwrap.sources.source import RestartState
from vecwrap.sources.source_factories import Factory, num_rows_of

_START_WARNING_SECONDS = (
    10.0  # seconds that actors may take to start before a warning says what they need
)
_RESPONSE_SECONDS = 30.0  # seconds for an idle actor to respond
_EXIT_SECONDS = 2.0  # seconds for an actor to end when Ray tells it to
_NO_MESSAGES = encode_for_worker(())
_MISSING_PACKAGE = ("ModuleNotFoundError", "DependencyNotInstalled")
_log = logging.getLogger("vecwrap")


class ActorHandle(WorkerHandleBase):
    """The handle of one actor, and to the one that takes its place when it is lost."""

    def __init__(self, number: int, env_ids: range) -> None:
        super().__init__(number, env_ids)
        self.handle: Any = None  # Ray's
        # the answers it owes, in order, by Ray's reference
        self.calls: dict[Any, PendingReply] = {}
        self.news: deque[tuple[Any, ...]] = deque()  # messages that go with the next call

    def begin(self, handle: Any) -> None:
        self.handle = handle
        self.restarts += 1
        self._up = True
        self.made = False
        self.warned = False  # that it is waiting
        self.pid = None  # until known, as node and address
        self.node = ""
        self.address = "?"

    def call(self, reference: Any, call: PendingReply) -> None:
        if not self.calls:
            self.since = time.monotonic()
        self.calls[reference] = call

    def forget(self) -> None:
        self._up = False
        self.handle = None
        self.calls.clear()
        self.news.clear()

    @property
    def deadline(self) -> float:
        first = next(iter(self.calls.values()), None)
        if first is None or first.seconds is None:
            return math.inf
        return self.since + first.seconds

    def awaiting(self) -> list[str]:
        return [call.kind for call in self.calls.values()]

    def is_idle(self) -> bool:
        return not self.calls

    def __str__(self) -> str:
        return self.label("actor", f"{self.pid} on node {self.address}")


def fetch(ray: Any, references: Sequence[Any]) -> list[Any]:
    """Get answers that are ready; an error takes the place of a failed one."""
    try:
        if references:
            return list(ray.get(list(references)))
        return []
    except ray.exceptions.RayError:
        return [_fetch_one(ray, reference) for reference in references]


def _fetch_one(ray: Any, reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as error:
        return error


class Ray(WorkerPool[ActorHandle], Runner):
    """Sub-environments in the actors of a Ray cluster, which may be on other machines.

    Each actor holds several sub-environments.

    Raises:
        PlanError: an option that does not fit, or Ray is not installed.
        BackendError: no cluster, too few resources in it, a package missing on a node, or spaces
            that differ.
        SubEnvError: a sub-environment cannot be made.

    Example (starts a cluster, which takes seconds; tested in the form of a file,
    examples/ray.yaml):
        >>> import vecwrap
        >>> backend = {"name": "ray", "workers": 2, "num_cpus": 0.5}
        >>> env = vecwrap.build("CartPole-v1", n=8, backend=backend)  # doctest: +SKIP
        >>> observations, infos = env.reset(seed=1)  # doctest: +SKIP
        >>> env.close()  # doctest: +SKIP
    """

    name: ClassVar[str] = "ray"
    noun: ClassVar[str] = "actor"
    at_exit = 1.0, False
    of_its_process: ClassVar[str] = "and its actors answer only that process"

    Options: ClassVar[type[RayOptions]] = RayOptions
    options: RayOptions

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._cluster: Cluster | None = None

    # -- start -------------------------------------------------------------------------------------

    def begin(self, context: Context, factories: Sequence[Factory]) -> Sequence[Arrival]:
        self.context = context
        requested = self.options
        self._factories = list(factories)
        self._cluster = Cluster(requested.address, requested.connect_timeout, requested.init or {})
        self._ray = self._cluster.ray
        self._host = self._ray.remote(host_class())
        num_rows = num_rows_of(factories)
        workers = requested.workers
        if workers is None and requested.envs_per_worker is None:
            workers = self._cluster.num_actors(requested.num_cpus or 1.0)
        shares = share_out(
            len(factories), workers, sources_per_worker(requested.envs_per_worker, num_rows)
        )
        self._shares = [rows_of(share, num_rows) for share in shares]
        requested.refuse_too_small(len(self._shares), self._ray.cluster_resources())
        self.workers = len(self._shares)
        self._owner_of = [number for number, share in enumerate(self._shares) for _ in share]
        self._workers = [ActorHandle(number, share) for number, share in enumerate(self._shares)]
        for actor in self._workers:
            self._restart_worker(actor, None)
        return self._pop_arrivals()

    def allocate(self, description: EnvDescription) -> Slots:
        self._joint = description
        return super().allocate(description)

    def _restart_worker(
        self, actor: ActorHandle, restart_states: dict[int, RestartState] | None
    ) -> None:
        init = self._init_of(actor, restart_states)
        options = self.options.of_an_actor()
        try:
            handle = self._host.options(**options).remote()
        except (TypeError, ValueError) as error:
            raise PlanError(
                f"Ray does not accept the resources that actors request ({options}): {error}"
            ) from error
        actor.begin(handle)
        of_all = (self.options.init or {}).get("runtime_env") or {}
        directory = ""
        if "working_dir" not in {**of_all, **(self.options.runtime_env or {})}:
            directory = str(Path.cwd())
        reference = handle.start.remote(list(sys.path), directory, ONE_THREAD, init)
        actor.call(reference, self._reply("made", "start_timeout"))

    # -- rows --------------------------------------------------------------------------------------

    def set_frames(self, wanted: Sequence[Frames]) -> None:
        for actor in self._workers:
            if actor.is_up():  # a new one takes them over
                actor.news.append(("frames", [wanted[i] for i in actor.env_ids]))

    def poll(self, until: float, *, return_early: bool) -> Sequence[Arrival]:
        self._refuse_left_cluster()
        while not self._arrivals and self._is_anything_awaited():
            self.context.interrupts.let_through()
            self._receive(until, return_early=return_early)
            if time.monotonic() >= until or self._cluster is None:
                break
        return self._pop_arrivals()

    def notice_losses(self, rows: IntArray) -> Sequence[Arrival]:
        """Call the idle actors of these rows to notice dead actors.

        Ray reports an actor's death only in reply to a call.
        """
        idle = [
            actor for actor, _ in self._by_worker(rows) if actor.is_up() and not actor.awaiting()
        ]
        if idle:
            called = {actor.handle.answer.remote(_NO_MESSAGES): actor for actor in idle}
            self.context.interrupts.let_through()
            arrived, _ = self._ray.wait(
                list(called), num_returns=len(called), timeout=_RESPONSE_SECONDS
            )
            self.context.interrupts.hold()
            if self._cluster is None:  # closed meanwhile
                return ()
            for reference, word in zip(arrived, fetch(self._ray, arrived), strict=True):
                if isinstance(word, self._ray.exceptions.RayError):
                    self._lose_worker(called[reference], word)
        return self._pop_arrivals()

    # -- talking to the actors ---------------------------------------------------------------------

    def _pickled(self, actor: ActorHandle, message: tuple[Any, ...]) -> bytes:
        return encode_for_worker((*actor.news, message))  # in one call with its unsent news

    def _send_all(
        self,
        messages: Sequence[tuple[ActorHandle, tuple[Any, ...]]],
        reply: PendingReply,
        what: str = "",
    ) -> None:
        self._refuse_left_cluster()
        super()._send_all(messages, reply, what)

    def _send_bytes(self, actor: ActorHandle, data: bytes, replies: Sequence[PendingReply]) -> None:
        if not actor.is_up():  # it was lost a moment ago, which `poll` is about to return
            self._requested.discard(actor.env_ids)
            return
        (reply,) = replies
        actor.news.clear()
        actor.call(actor.handle.answer.remote(data), reply)

    def _receive(self, until: float, *, return_early: bool) -> None:
        """Wait for replies, and take them."""
        now = time.monotonic()
        seconds = max(0.0, min(until, *(actor.deadline for actor in self._workers)) - now)
        awaited = {reference: actor for actor in self._workers for reference in actor.calls}
        number = len(awaited)  # all replies, to wake up only once
        if return_early:
            number = 1
        arrived, _ = self._ray.wait(list(awaited), num_returns=number, timeout=seconds)
        if self._cluster is None:  # closed meanwhile
            return
        self._extend_deadlines(time.monotonic() - now - seconds)
        for reference, reply in zip(arrived, fetch(self._ray, arrived), strict=True):
            if reference in awaited[reference].calls:  # it has not been lost a moment ago
                self._receive_reply(awaited[reference], reference, reply)
        now = time.monotonic()
        overdue = [actor for actor in self._workers if actor.is_up() and self._is_late(actor, now)]
        for actor in overdue:
            self._lose_worker(actor)
        self._warn_of_waiting(now)

    def _is_late(self, actor: ActorHandle, now: float) -> bool:
        """Return whether an actor has exceeded its time limit.

        The transfer of a finished reply from the actor's node does not count.
        """
        if now <= actor.deadline:
            return False
        return not self._ray.wait([next(iter(actor.calls))], timeout=0, fetch_local=False)[0]

    def _receive_reply(self, actor: ActorHandle, reference: Any, reply: Any) -> None:
        self.context.interrupts.hold()  # until the next wait
        exceptions = self._ray.exceptions
        if isinstance(reply, exceptions.RuntimeEnvSetupError):  # it would fail again the next time
            why = (
                "its runtime_env could not be set up, and the environment cannot "
                f"continue\nRay says: {reply}"
            )
            raise self._error_of(actor, f"{actor}: {why}") from reply
        if isinstance(reply, exceptions.RayError):
            self._lose_worker(actor, reply)
            return
        call = actor.calls.pop(reference)
        actor.since = time.monotonic()
        if call.kind == "made":
            reply = self._record_node(actor, *reply)
        answer = self._read(actor, partial(unpack, reply), [call])
        if isinstance(answer, str):
            self._lose_worker(actor, did=answer)
            return
        self._take_reply(actor, answer, call.call)

    def _refuse_left_cluster(self) -> None:
        if self._cluster is not None and not self._cluster.is_there():
            raise BackendError(
                "ray.shutdown() has ended this process's connection to the Ray cluster, and its "
                "actors; close() still works; build the environment again to continue"
            )

    # -- actors that start -------------------------------------------------------------------------

    def _record_node(
        self,
        actor: ActorHandle,
        pid: int,
        node: str,
        address: str,
        missing: str | None,
        data: bytes,
    ) -> Reply:
        """Record where an actor runs, and return its reply.

        Raise BackendError if the node lacks a package.
        """
        actor.pid = pid
        actor.node = node
        actor.address = address
        if missing is not None:
            remedy = "install it there, or let Ray do it: runtime_env={'pip': [...]}"
            why = f"node {address} has no package {missing}, which {actor} needs; {remedy}"
            raise self._error_of(actor, why)
        return Reply(data)

    def _take_failed_start(self, actor: ActorHandle, failure: Failure) -> None:
        if failure.kind in _MISSING_PACKAGE:
            remedy = "install the package there, or let Ray do it with runtime_env={'pip': [...]}."
            failure = replace(failure, note=f"\nThat was on node {actor.address}: {remedy}")
        super()._take_failed_start(actor, failure)

    def _warn_of_waiting(self, now: float) -> None:
        late = [
            actor
            for actor in self._workers
            if actor.awaiting()[:1] == ["made"]
            and now - actor.since > _START_WARNING_SECONDS
            and not actor.warned
        ]
        for actor in late:
            actor.warned = True
        if late:
            needs = ", ".join(
                f"{amount:g} {name}" for name, amount in self.options.needs.items() if amount
            )
            _log.warning(
                "%d of %d actors have not started within %.0f s: they wait for room in the cluster "
                "(each requests %s), or for their environments",
                *(len(late), len(self._workers), _START_WARNING_SECONDS, needs or "nothing"),
            )

    # -- actors that are lost ----------------------------------------------------------------------

    def _lose_worker(
        self, actor: ActorHandle, error: BaseException | None = None, did: str = ""
    ) -> None:
        """End an actor that died, hangs, or ``did`` something for which it is ended."""
        who = str(actor)
        first = next(iter(actor.calls.values()), None)
        details = ""
        if isinstance(error, self._ray.exceptions.RayActorError):
            did = "died"
        else:
            self._end_worker(actor)
            if error is not None:
                did = f"was lost ({type(error).__name__})"
            elif not did and first is not None:
                did = f"did not answer within {first.limit}={first.seconds:g} s"
            did += ", and was killed"
        if error is not None:
            details = f"\nRay says: {' '.join(str(error).split())}"
        self._forget(actor)
        self._report_loss(actor, f"{who} {did}", details)

    def _end_worker(self, actor: ActorHandle) -> None:
        if self._is_on_this_node(actor):
            # Ray asks first, which takes seconds if the actor does not answer
            _signal(actor, signal.SIGKILL)

    def _is_on_this_node(self, actor: ActorHandle) -> bool:
        return (
            self._cluster is not None
            and actor.pid is not None
            and actor.node == self._cluster.own_node
        )

    def _await_end(self, actors: Sequence[ActorHandle], seconds: float) -> None:
        """Wait for the end of the actors on this node, then kill those that are still alive.

        Ray only lets these actors exit, and the exit waits for the environments' threads.
        """
        left = [actor for actor in actors if actor.is_up() and self._is_on_this_node(actor)]
        deadline = time.monotonic() + seconds
        while left and time.monotonic() < deadline:
            time.sleep(0.005)
            left = [actor for actor in left if _signal(actor, 0)]
        for actor in left:
            _signal(actor, signal.SIGKILL)

    def _forget(self, actor: ActorHandle) -> None:
        if actor.handle is not None:
            self._ray.kill(actor.handle)
        actor.forget()

    # -- the end -----------------------------------------------------------------------------------

    def stop(self, timeout: float, terminate: bool) -> None:
        if self._cluster is None:
            return
        actors = self._workers
        cluster = self._cluster
        if cluster.is_there():
            if not terminate:
                requested = [
                    actor.handle.close.remote(timeout) for actor in actors if actor.is_up()
                ]
                if requested:
                    cluster.ray.wait(
                        requested, num_returns=len(requested), timeout=min(timeout, 1e6)
                    )
            for actor in actors:
                if actor.handle is not None:
                    cluster.ray.kill(actor.handle)
            self._await_end(actors, min(timeout, _EXIT_SECONDS))
        self._workers = []
        self._cluster = None
        cluster.leave()


def _signal(actor: ActorHandle, number: int) -> bool:
    """Signal an actor on this node (0: not at all); whether there is such a process."""
    assert actor.pid is not None
    try:
        os.kill(actor.pid, number)
    except ProcessLookupError:
        return False
    return True
