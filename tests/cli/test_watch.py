"""``vecwrap watch`` and ``vecwrap run --watch``, through the real entry point."""

import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("plotly")

import vecwrap
from tests.live.test_server import write_run
from vecwrap.cli import main


def start(*arguments):
    """Start a command; return its process and the address that it printed."""
    command = [sys.executable, "-m", "vecwrap", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return process, re.fullmatch(
        r"page  (http://127\.0\.0\.1:\d+/[\w-]+/)\n", process.stdout.readline()
    )[1]


def test_a_folder_is_shown_until_ctrl_c(tmp_path):
    process, address = start("watch", write_run(tmp_path / "run"), "--port", 0)
    with urllib.request.urlopen(f"{address}about") as answer:
        assert answer.status == 200
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(address.rstrip("/")[:-1] + "x/")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "interrupted\n")


def test_a_run_that_is_watched_prints_its_address_and_ends_as_any_other(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert (
        main(["run", "CartPole-v1 n=2", "--steps", "200", "--out", "out", "--watch", "--port", "0"])
        == 0
    )
    said = capsys.readouterr().out
    assert re.match(r"page  http://127\.0\.0\.1:\d+/", said)
    assert "shown again by: vecwrap watch out" in said
    assert not (tmp_path / "out" / ".page.json").exists()


def test_the_folder_of_a_live_run_leads_to_its_own_page(tmp_path, capsys):
    with vecwrap.build(
        "CartPole-v1", n=2, backend="dummy", wrappers=[f"monitor:{tmp_path}"]
    ) as env:
        address = vecwrap.watch(env, 0)
        env.reset(seed=1)
        assert main(["watch", str(tmp_path)]) == 0
    assert f"page  {address}" in capsys.readouterr().out


def test_what_cannot_be_shown_is_said(tmp_path, capsys):
    assert main(["watch", str(tmp_path)]) == 2
    assert "expected the folder of a run" in capsys.readouterr().err
    assert main(["run", "CartPole-v1", "--port", "1234"]) == 2
    assert "expected --watch" in capsys.readouterr().err
