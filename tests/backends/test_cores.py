"""Usable cores: the least of affinity, container quota and batch scheduler."""

import os

import pytest

from vecwrap.backends.cores import usable_cores


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)


def test_affinity_where_nothing_else_limits(tmp_path):
    assert usable_cores(tmp_path) == 8


@pytest.mark.parametrize(("text", "cores"), [("max 100000", 8), ("300000 100000", 3), ("50000 100000", 1), ("x", 8)])
def test_the_quota_of_a_second_generation_control_group(tmp_path, text, cores):
    (tmp_path / "cpu.max").write_text(text)
    assert usable_cores(tmp_path) == cores


@pytest.mark.parametrize(("quota", "cores"), [("-1", 8), ("200000", 2)])
def test_the_quota_of_a_first_generation_control_group(tmp_path, quota, cores):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(quota)
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert usable_cores(tmp_path) == cores


def test_slurm(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "5")
    assert usable_cores(tmp_path) == 5
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "50")
    assert usable_cores(tmp_path) == 8
