import os
import signal
import subprocess
import sys
import time

import pytest

from tests.waiting import gone
from vecwrap.tools.processes import Ended, Measurer, TooLate, pss_mb, session_of

SOON = 60.0  # seconds; a machine may be busy


def soon():
    return time.monotonic() + SOON


def test_it_answers_and_may_print_what_it_likes():
    def job(connection):
        print("environments print")
        connection.send(("doubled", 2 * connection.recv()))

    with Measurer(job) as process:
        process.ask(21)
        assert process.hear(soon()) == 42
        with pytest.raises(Ended, match="ended with exit code 0"):
            process.hear(soon())


def test_what_it_raises_is_told_in_one_line():
    def job(connection):
        raise ValueError("the wheel\ncame off")

    with Measurer(job) as process, pytest.raises(Ended) as error:
        process.hear(soon())
    assert str(error.value) == "ValueError: the wheel"


def test_a_death_is_told_with_its_last_words():
    def job(connection):
        print("out of paper", file=sys.stderr, flush=True)
        os._exit(7)

    with Measurer(job) as process, pytest.raises(Ended, match="exit code 7: out of paper"):
        process.hear(soon())


def test_at_its_deadline_it_ends_with_all_that_it_started():
    def job(connection):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], process_group=0)
        connection.send(("pids", (os.getpid(), child.pid)))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(1000)

    with Measurer(job) as process:
        pids = process.hear(soon())
        assert set(pids) <= set(session_of(pids[0]))
        with pytest.raises(TooLate):
            process.hear(time.monotonic() + 0.3)
        process.end(kill=True)
        assert gone(pids)


def test_an_interrupt_of_the_parent_ends_it():
    def job(connection):
        connection.send(("pid", os.getpid()))
        time.sleep(1000)

    with pytest.raises(KeyboardInterrupt), Measurer(job) as process:
        pid = process.hear(soon())
        raise KeyboardInterrupt
    assert gone([pid])


def test_memory_is_known_where_the_system_says_it():
    assert (pss_mb(os.getpid()) or 1.0) > 0.0
    assert pss_mb(2**22 + 1) is None
