"""Usable cores: the least of affinity, container quota and batch scheduler."""

import os

import pytest

from vecwrap.backends.workers.cores import usable_cores


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)


def test_affinity_where_nothing_else_limits(tmp_path):
    assert usable_cores(tmp_path) == 8


@pytest.mark.parametrize(
    ("text", "cores"), [("max 100000", 8), ("300000 100000", 3), ("50000 100000", 1), ("x", 8)]
)
def test_the_quota_of_a_second_generation_control_group(tmp_path, text, cores):
    (tmp_path / "cpu.max").write_text(text)
    assert usable_cores(tmp_path) == cores


@pytest.mark.parametrize(("quota", "cores"), [("-1", 8), ("200000", 2)])
def test_the_quota_of_a_first_generation_control_group(tmp_path, quota, cores):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(quota)
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert usable_cores(tmp_path) == cores


@pytest.mark.parametrize(
    ("membership", "quotas", "cores"),
    [
        ("0::/jobs/one", {"jobs/one/cpu.max": "300000 100000"}, 3),
        # One around it.
        (
            "0::/jobs/one",
            {"jobs/cpu.max": "200000 100000", "jobs/one/cpu.max": "max 100000"},
            2,
        ),
        ("0::/jobs/one", {"jobs/other/cpu.max": "200000 100000"}, 8),
        ("0::/not/seen/here", {"cpu.max": "400000 100000"}, 4),
        (
            "4:memory:/\n2:cpu,cpuacct:/jobs",
            {"cpu/jobs/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_quota_us": "-1"},
            1,
        ),
        ("3:cpuset:/jobs\n0::/", {"cpu/jobs/cpu.cfs_quota_us": "200000"}, 8),
    ],
)
def test_the_quotas_of_the_group_that_it_is_in_and_of_those_around_it(
    tmp_path, membership, quotas, cores
):
    for name, text in quotas.items():
        file = tmp_path / "groups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if file.name == "cpu.cfs_quota_us":
            file.with_name("cpu.cfs_period_us").write_text("100000")
    (tmp_path / "membership").write_text(membership)
    assert usable_cores(tmp_path / "groups", tmp_path / "membership") == cores


def test_what_python_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "process_cpu_count", lambda: 3, raising=False)
    assert usable_cores(tmp_path) == 3


def test_slurm(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "5")
    assert usable_cores(tmp_path) == 5
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "50")
    assert usable_cores(tmp_path) == 8
