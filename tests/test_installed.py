"""Whether a package is there."""

import re
import sys

import pytest

import vecwrap
from vecwrap.errors import PlanError, install_command, is_installed


def test_a_folder_of_its_name_is_no_package(tmp_path, monkeypatch):
    """As Ray leaves one in /tmp, and as many a repository has one."""
    for name in ("a_folder", "a_package"):
        (tmp_path / name).mkdir()
    (tmp_path / "a_package" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert [is_installed(name) for name in ("a_folder", "a_package", "neither")] == [
        False,
        True,
        False,
    ]


def test_a_package_that_the_program_has_shut_out_is_not_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    assert not is_installed("gymnasium")


def test_ray_is_missed_though_its_folder_is_there(tmp_path, monkeypatch):
    (tmp_path / "ray").mkdir()
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    with pytest.raises(PlanError, match=re.escape(f"needs ray: {install_command('ray')}")):
        vecwrap.build("CartPole-v1", n=1, backend="ray")
