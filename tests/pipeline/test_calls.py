"""How much of the package runs from a line to an environment, in calls rather than in time."""

import sys
from collections import Counter
from pathlib import Path

import vecwrap

ROOT = Path(vecwrap.__file__).parent
LINE = "CartPole-v1 n=2 | time_limit:100 | framestack:4"


def calls_of_a_build():
    """How many calls of Python functions in each file of the package a build takes, once everything
    is imported.
    """
    vecwrap.build(LINE).close()
    calls = Counter()

    def count(frame, event, _):
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(ROOT):
            calls[file.relative_to(ROOT)] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        env = vecwrap.build(LINE)
    finally:
        sys.setprofile(before)
    env.close()
    return calls


def test_a_line_is_an_environment_after_few_calls():
    calls = calls_of_a_build()
    of_pipelines = [file for file in calls if file.parts[0] in ("pipeline", "errors.py")]
    assert len(of_pipelines) > 10
    assert sum(calls[file] for file in of_pipelines) <= 430
    assert sum(calls.values()) <= 850
