"""What a worker writes to stderr: shown here, kept for the error, and never in the way of the
worker.
"""

import io
import os
import subprocess
import sys

from vecwrap.backends.workers import launch
from vecwrap.backends.workers.launch import StderrTail


def write(words, text):
    subprocess.run(
        [sys.executable, "-c", f"import os; os.write(2, {text.encode()!r})"],
        stderr=words.descriptor,
    )


def test_it_is_shown_as_it_comes_and_the_last_lines_are_kept(capsys):
    words = StderrTail()
    write(words, "one\n\n")
    words.flush()
    assert capsys.readouterr().err == "one\n\n"
    write(words, "".join(f"line {k}\n" for k in range(20)) + "no end\xff")
    words.close()
    assert capsys.readouterr().err.startswith("line 0\nline 1\n")
    assert words.lines(3) == ["line 18", "line 19", "no end\xff"]
    words.close()


def test_a_flood_takes_no_memory_for_long(monkeypatch, capsys):
    monkeypatch.setattr(launch, "_MAX_STDERR_BYTES", 10_000)
    words = StderrTail()
    for _ in range(5):
        write(words, "x" * 9_999 + "\n")
        words.flush()
    assert len(capsys.readouterr().err) == 50_000
    assert os.fstat(words.descriptor).st_size <= 10_000
    write(words, "the end")
    words.close()
    assert words.lines()[-1] == "the end"


def test_what_comes_while_a_flood_is_read_is_not_thrown_away_with_it(monkeypatch, capsys):
    monkeypatch.setattr(launch, "_MAX_STDERR_BYTES", 10_000)
    words, read = StderrTail(), os.pread

    def write_meanwhile(*arguments):
        said = read(*arguments)
        os.write(words.descriptor, b"why it died\n")
        return said

    write(words, "x" * 10_001 + "\n")
    monkeypatch.setattr(os, "pread", write_meanwhile)
    words.flush()
    monkeypatch.setattr(os, "pread", read)
    words.close()
    assert capsys.readouterr().err.endswith("x\nwhy it died\n")
    assert words.lines()[-1] == "why it died"


def test_a_flood_without_end_takes_no_memory_for_long_either(monkeypatch, capsys):
    monkeypatch.setattr(launch, "_MAX_STDERR_BYTES", 1_000)
    words, read = StderrTail(), os.pread

    def write_meanwhile(*arguments):
        said = read(*arguments)
        os.write(words.descriptor, b"x" * 400)
        return said

    monkeypatch.setattr(os, "pread", write_meanwhile)
    write(words, "x")
    for _ in range(100):
        words.flush()
        assert os.fstat(words.descriptor).st_size <= 4_400
    monkeypatch.setattr(os, "pread", read)
    words.close()


def test_a_writer_that_is_never_behind_holds_nobody_up(monkeypatch):
    """Each write to the parent's stderr gives the worker time for more."""

    class Slow(io.StringIO):
        writes = 0

        def write(self, text):
            self.writes += 1
            if self.writes < 100:
                os.write(words.descriptor, b"more\n")
            return super().write(text)

    words = StderrTail()
    monkeypatch.setattr(sys, "stderr", Slow())
    write(words, "first\n")
    words.flush()
    assert (sys.stderr.writes, sys.stderr.getvalue()) == (1, "first\n")
    words.flush()
    assert (sys.stderr.writes, sys.stderr.getvalue()) == (2, "first\nmore\n")
    sys.stderr.writes = 100
    words.close()


def test_of_what_nobody_could_show_in_time_the_tail_is_shown_and_the_rest_counted(
    monkeypatch, capsys
):
    monkeypatch.setattr(launch, "_MAX_STDERR_BYTES", 10_000)
    monkeypatch.setattr(launch, "_TAIL_BYTES", 10)
    words = StderrTail()
    write(words, "x" * 49_989 + "\nthe tail.\n")
    words.flush()
    left_out, tail = capsys.readouterr().err.strip().split("\n\n")
    assert left_out.startswith("(49,990 bytes of a worker's stderr are left out")
    assert tail == "the tail."
    assert os.fstat(words.descriptor).st_size == 0
    write(words, "and on\n")
    words.close()
    assert capsys.readouterr().err == "and on\n"


def test_no_stderr_is_no_harm(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    words = StderrTail()
    write(words, "said\n")
    words.close()
    assert words.lines() == ["said"]
