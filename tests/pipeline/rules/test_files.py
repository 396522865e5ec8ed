"""What wrappers write into one folder."""

import pytest

import vecwrap


def ids(*wrappers):
    return [finding.id for finding in vecwrap.check("CartPole-v1", n=2, backend="dummy", wrappers=wrappers)]


def test_two_monitors_in_one_folder_however_it_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    apart = ["monitor:other", "monitor:runs,stats_key=again"]
    assert ids(*apart) == []
    vecwrap.build("CartPole-v1", n=2, backend="dummy", wrappers=apart).close()
    for folder in ("runs", "runs/../runs", str(tmp_path / "runs"), "link"):
        wrappers = ["monitor:runs", {"monitor": {"dir": folder, "stats_key": "again"}}]
        assert ids(*wrappers) == ["monitors_share_folder"]
        with pytest.raises(vecwrap.PlanError, match="writes into .* already"):
            vecwrap.build("CartPole-v1", n=2, backend="dummy", wrappers=wrappers)
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(vecwrap.PlanError, match="Too many levels of symbolic links"):
        vecwrap.build("CartPole-v1", n=2, backend="dummy", wrappers=["monitor:circle"])


def test_monitors_with_folders_of_their_own_or_without(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ids("monitor:runs", "monitor:runs/inner,stats_key=again", "monitor:stats_key=third") == []
    assert ids("monitor", "monitor:stats_key=again") == []
