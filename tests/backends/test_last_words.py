"""What a worker writes to stderr: shown here, kept for the error, and never in the way of the worker."""

import os
import subprocess
import sys

from vecwrap.backends import last_words
from vecwrap.backends.last_words import LastWords


def write(words, text):
    subprocess.run([sys.executable, "-c", f"import os; os.write(2, {text.encode()!r})"], stderr=words.descriptor)


def test_it_is_shown_as_it_comes_and_the_last_lines_are_kept(capsys):
    words = LastWords()
    write(words, "one\n\n")
    words.show()
    assert capsys.readouterr().err == "one\n\n"
    write(words, "".join(f"line {k}\n" for k in range(20)) + "no end\xff")
    words.close()
    assert capsys.readouterr().err.startswith("line 0\nline 1\n")
    assert words.lines(3) == ["line 18", "line 19", "no end\xff"]
    words.close()


def test_a_flood_takes_no_memory_for_long(monkeypatch, capsys):
    monkeypatch.setattr(last_words, "_LARGEST", 10_000)
    words = LastWords()
    for _ in range(5):
        write(words, "x" * 9_999 + "\n")
        words.show()
    assert len(capsys.readouterr().err) == 50_000
    assert os.fstat(words.descriptor).st_size <= 10_000
    write(words, "the end")
    words.close()
    assert words.lines()[-1] == "the end"


def test_no_stderr_is_no_harm(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    words = LastWords()
    write(words, "said\n")
    words.close()
    assert words.lines() == ["said"]
