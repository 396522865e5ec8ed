"""How far a run is: the total, the share and the time left, on a terminal and in a file."""

import re

import pytest

from vecwrap.cli import main
from vecwrap.cli.progress import about, seconds_left, share_text


@pytest.mark.parametrize(
    ("done", "total", "text"),
    [
        (0, 60000, "0 of 60,000 (0 %)"),
        (1544, 60000, "1,544 of 60,000 (3 %)"),
        (22, 20, "22 of 20 (100 %)"),
        (1544, None, "1,544"),
    ],
)
def test_a_count_has_its_total_and_share(done, total, text):
    assert share_text(done, total) == text


def test_what_is_reached_first_says_how_long_it_takes():
    assert seconds_left(10.0, (0, 100), (0, None)) is None
    assert seconds_left(10.0, (100, 400), (1, None)) == 30.0
    assert seconds_left(10.0, (100, 400), (1, 2)) == 10.0
    assert seconds_left(10.0, (404, 400)) == 0.0
    assert [about(left) for left in (0.2, 89, 91, 340, 7 * 3600)] == [
        "about 1 s",
        "about 89 s",
        "about 2 min",
        "about 6 min",
        "about 7 h",
    ]


def test_a_file_gets_whole_lines(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    line = "CartPole-v1 n=2 backend=dummy"
    out = "a-folder-with-a-name-that-is-longer-than-a-line-of-eighty-columns-of-a-terminal"
    assert main(["run", line, "--steps", "400", "--interval", "0.001", "--out", out]) == 0
    said = capsys.readouterr().out
    lines = re.findall(r"^seconds .*$", said, re.MULTILINE)
    assert any(
        re.search(r"  time left about \d+ s  agent steps \d+ of 400 \(\d+ %\)  ", each)
        for each in lines
    )
    assert f"monitor      {out}/monitor.csv\n" in said
    assert f"folder       {out}, run again by: vecwrap run {out}\n" in said
    assert not re.search(" $", said, re.MULTILINE)
