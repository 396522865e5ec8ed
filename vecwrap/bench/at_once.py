"""What the cores can really do: one process on each, with nothing of ours but the layers that workers hold.

Cores × one process is more than that if cores share something (a cache, a clock, a neighbour's load). And a vector
step waits for its slowest row, so a core that is slow for a moment delays the others: ``AtOnce`` measures what the
cores do when all of them work, ``InStep`` what they do when they wait for each other after every vector step.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import multiprocessing
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import cloudpickle
import gymnasium

from vecwrap.bench.contender import SEED, Sample, Throughput, action_batches
from vecwrap.errors import VecwrapError

__all__ = ["AtOnce", "InStep"]

Make = Callable[[], gymnasium.Env[Any, Any]]
Answer = Callable[[Any], Any]
Job = Callable[[Any], tuple[Answer, Callable[[], object]]]

_LINE = 8  # words per cache line; each process writes into its own


class AtOnce:
    """Processes that each loop over one environment, all at once.

    Args:
        loop: opens a loop over what ``make`` returns, in each process.
        make: returns one environment; sent by value.
        processes: how many.

    Raises:
        VecwrapError: the environment cannot be made.
    """

    def __init__(self, loop: Callable[[Make], Throughput], make: Make, processes: int) -> None:
        self._processes = _Processes([functools.partial(_alone, loop, make)] * processes)

    def sample(self, seconds: float) -> Sample:
        """Return the sum of their rates over ``seconds``."""
        return {"rate": sum(self._processes.ask(seconds))}

    def close(self) -> None:
        """End the processes."""
        self._processes.close()


class InStep(Throughput):
    """Processes that divide the rows of a vector step among them, and wait for each other after each step.

    They wait in the fastest way there is: each counts its steps in shared memory, and spins on the others' counts. No
    actions come in and no results go out, so a backend that steps these rows in as many processes can hardly be faster.

    Args:
        makes: each returns the environment of a row; sent by value.
        processes: how many; at most as many as rows.

    Raises:
        VecwrapError: an environment cannot be made, or raises.
    """

    def __init__(self, makes: Sequence[Make], processes: int) -> None:
        rows = [range(number, len(makes), processes) for number in range(processes)]
        jobs = [
            functools.partial(_together, [makes[i] for i in share], [SEED + i for i in share], number)
            for number, share in enumerate(rows)
        ]
        running = _Processes(jobs, words=_LINE * processes)

        def run(count: int) -> int:
            running.ask(count)
            return count * len(makes)

        super().__init__(run, running.close)


def _alone(loop: Callable[[Make], Throughput], make: Make, words: Any) -> tuple[Answer, Callable[[], object]]:
    """What a process of ``AtOnce`` does: run for the requested seconds, and answer with its rate."""
    sampler = loop(make)
    return lambda seconds: sampler.sample(seconds)["rate"], sampler.close


def _together(
    makes: Sequence[Make], seeds: Sequence[int], number: int, words: Any
) -> tuple[Answer, Callable[[], object]]:
    """What a process of ``InStep`` does: take the requested vector steps, and answer when all have taken them."""
    envs = [make() for make in makes]
    for env, seed in zip(envs, seeds, strict=True):
        env.reset(seed=seed)
    actions = itertools.cycle(action_batches(envs[0].action_space, len(envs), as_list=True))
    mine = number * _LINE
    others = [word for word in range(0, len(words), _LINE) if word != mine]

    def run(count: int) -> None:
        done: int = words[mine]
        for row in itertools.islice(actions, count):
            for env, action in zip(envs, row, strict=True):
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()
            done += 1
            words[mine] = done
            for word in others:
                while words[word] < done:
                    pass

    def close() -> None:
        for env in envs:
            env.close()

    return run, close


class _Processes:
    """Processes that answer requests, all at the same time.

    Args:
        jobs: what each does: given the words, return a function that answers, and one that closes; sent by value.
        words: how many numbers all of them share.

    Raises:
        VecwrapError: one of them cannot be opened.
    """

    def __init__(self, jobs: Sequence[Job], words: int = 0) -> None:
        context = multiprocessing.get_context("spawn")
        self._words = context.RawArray(ctypes.c_int64, words)  # kept here, or the next one gets its memory
        self._links: list[Connection] = []
        self._processes = []
        self._failed = False
        for job in jobs:
            here, there = context.Pipe()
            with there:
                process = context.Process(target=_serve, args=(there, cloudpickle.dumps(job), self._words), daemon=True)
                process.start()
            self._links.append(here)
            self._processes.append(process)
        try:
            self._answers()
        except BaseException:
            self.close()
            raise

    def ask(self, question: Any) -> list[Any]:
        """Ask all of them, and return their answers.

        Raises:
            VecwrapError: one of them failed.
        """
        for link in self._links:
            link.send(question)
        return self._answers()

    def close(self) -> None:
        """End the processes; those waiting for one that failed would wait forever."""
        for link in self._links:
            link.close()
        for process in self._processes:
            if self._failed:
                process.kill()
            process.join()

    def _answers(self) -> list[Any]:
        answers: dict[Any, Any] = {}
        while left := [link for link in self._links if link not in answers]:
            for link in wait(left):
                assert isinstance(link, Connection)
                try:
                    answers[link], error = link.recv()
                except EOFError:
                    self._failed = True
                    raise VecwrapError("a process that loops over the environment ended before its time") from None
                if error:
                    self._failed = True
                    raise VecwrapError(f"the environment cannot be run by itself: {error}")
        return [answers[link] for link in self._links]


def _serve(link: Connection, job: bytes, words: Any) -> None:
    """Run in each process: answer requests until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    with link, contextlib.suppress(EOFError, ConnectionError):  # closed, perhaps with an unread answer
        try:
            answer, close = cloudpickle.loads(job)(words)
        except Exception as error:
            link.send((None, f"{type(error).__name__}: {error}"))
            return
        try:
            link.send((None, ""))
            for question in iter(link.recv, None):
                link.send(_tried(answer, question))
        finally:
            close()


def _tried(answer: Answer, question: Any) -> tuple[Any, str]:
    """Return the answer, or a description of what was raised."""
    try:
        return answer(question), ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
