"""Ctrl-C in every command: one line, and exit status 130."""

import signal

import pytest

from vecwrap.cli import curves, inspect, listing, main, measure, schema


def press(*_, **__):
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("module", "function", "arguments"),
    [
        (inspect, "read_pipeline", ["explain", "CartPole-v1"]),
        (inspect, "check", ["check", "CartPole-v1"]),
        (listing, "wrapper_rows", ["list"]),
        (schema, "pipeline_schema", ["schema"]),
        (measure, "build", ["time", "CartPole-v1"]),
        (measure, "read_pipeline", ["tournament", "CartPole-v1", "--pool", "x"]),
        (curves, "read_runs", ["plot", "x"]),
        (curves, "read_runs", ["compare", "x", "--json"]),
    ],
)
def test_before_there_is_a_result(module, function, arguments, monkeypatch, capsys):
    monkeypatch.setattr(module, function, press)
    assert main(arguments) == 130
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "interrupted\n")


def test_time_shows_what_it_has(monkeypatch, capsys):
    def rollout(*arguments, rollout=measure.rollout, **settings):
        for number, step in enumerate(rollout(*arguments, **settings)):
            if number == 40:
                press()
            yield step

    monkeypatch.setattr(measure, "rollout", rollout)
    monkeypatch.setattr(measure, "WARM_UP", 2)
    assert main(["time", "CartPole-v1 n=1 backend=dummy", "--steps", "100000"]) == 130
    said = capsys.readouterr()
    assert "vector steps were timed." in said.out
    assert said.out.endswith("interrupted; the figures are of the steps until then\n")
    assert said.err == ""
