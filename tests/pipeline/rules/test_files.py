"""What wrappers write into one folder."""

import pytest

import vecwrap


def test_two_monitors_in_one_folder_however_it_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    apart = ["monitor:other", "monitor:runs,stats_key=again"]
    vecwrap.build("CartPole-v1", n=2, backend="dummy", wrappers=apart).close()
    for folder in ("runs", "runs/../runs", str(tmp_path / "runs"), "link"):
        wrappers = ["monitor:runs", {"monitor": {"dir": folder, "stats_key": "again"}}]
        with pytest.raises(vecwrap.PlanError, match="writes into .* already"):
            vecwrap.build("CartPole-v1", n=2, backend="dummy", wrappers=wrappers)
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(vecwrap.PlanError, match="Too many levels of symbolic links"):
        vecwrap.build("CartPole-v1", n=2, backend="dummy", wrappers=["monitor:circle"])
