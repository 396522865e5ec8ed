"""What the page of a run costs: `python -m benchmarks.watch` prints one table.

Agent steps a second of a run without a page, of one whose page nobody looks at, and of one that a
browser elsewhere looks at: a client in a process of its own reads the states and asks for all tiles
five times a second, as the page does. It decodes nothing, since a browser is mostly on another
machine; on the same two cores it slows a run.
"""

from __future__ import annotations

import argparse
import multiprocessing
import threading
import time
import urllib.request
import warnings
from functools import partial
from multiprocessing.synchronize import Event
from typing import Any

import vecwrap
from benchmarks.measure import Contender, Sample, WorkResult, measure_rounds
from benchmarks.pages import table
from benchmarks.report import figure
from vecwrap.tools.throughput import SEED, Throughput, action_batches, make_stepper

N = 8
CASES = {
    "CartPole-v1, dummy": ("CartPole-v1", ["monitor"], {"backend": "dummy"}),
    "Pong, shmem": (
        "PongNoFrameskip-v4",
        ["atari", "framestack:4", "monitor"],
        {"backend": "shmem"},
    ),
}
EACH = 0.2  # seconds between two pictures


def look(address: str, seen: Any, stop: Event) -> None:
    """Be a tab: read states, and fetch all tiles again and again."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def read() -> None:
        with opener.open(f"{address}events") as events:
            while not stop.is_set() and events.readline():
                pass

    threading.Thread(target=read, daemon=True).start()
    while not stop.is_set():
        began = time.monotonic()
        with opener.open(f"{address}frame") as answer:
            if answer.status == 200 and answer.read():
                with seen.get_lock():
                    seen.value += 1
        stop.wait(max(0.0, began + EACH - time.monotonic()))


class Run:
    """A run, with a page and somebody who looks at it only while it is measured."""

    pictures = 0  # of all runs, and the seconds in which they were taken
    looked = 0.0

    def __init__(self, case: str, *, page: bool, tab: bool) -> None:
        env_id, wrappers, options = CASES[case]
        env = vecwrap.build(env_id, n=N, wrappers=wrappers, render_mode="rgb_array", **options)
        env.reset(seed=SEED)
        self._address = vecwrap.watch(env) if page else ""
        self._tab = tab
        self._run = Throughput(
            make_stepper(env.step, action_batches(env.single_action_space, N), N), env.close
        )

    def sample(self, seconds: float) -> Sample:
        """Step; with a tab, from its first picture on."""
        if not self._tab:
            return self._run.sample(seconds)
        context = multiprocessing.get_context("spawn")
        seen, stop = context.Value("i", 0), context.Event()
        browser = context.Process(target=look, args=(self._address, seen, stop), daemon=True)
        browser.start()
        while not seen.value:
            self._run.sample(0.05)
        before, began = seen.value, time.monotonic()
        sample = self._run.sample(seconds)
        Run.pictures += seen.value - before
        Run.looked += time.monotonic() - began
        stop.set()
        browser.join()
        self._run.sample(0.2)  # until the page has noticed
        return sample

    def close(self) -> None:
        """Close it."""
        self._run.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.5, help="of one contender in one round")
    parser.add_argument("--only", choices=list(CASES), help="one case")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [["8 environments that render", "", "agent steps/s", "speed"]]
    for case in [options.only] if options.only else CASES:
        kinds = {
            "no page": {"page": False, "tab": False},
            "a page, nobody looks": {"page": True, "tab": False},
            "one tab": {"page": True, "tab": True},
        }
        contenders = [
            Contender(name, "peer" if i else "ours", partial(Run, case, **kind))
            for i, (name, kind) in enumerate(kinds.items())
        ]
        measured = measure_rounds(contenders, options.rounds, options.seconds)
        result = WorkResult(case, case, "", measured)
        for each in measured:
            ratio = result.ratio(each)
            rows.append(
                [
                    case,
                    each.name,
                    figure(each.median("rate") or 0.0),
                    f"{1 / ratio.of_medians:.3f} ×" if ratio else "",
                ]
            )
    print(table(rows))
    print(f"The tab had {Run.pictures / Run.looked:.1f} pictures a second.")


if __name__ == "__main__":
    main()
