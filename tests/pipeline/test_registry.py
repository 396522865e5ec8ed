"""Names, and what they stand for."""

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from vecwrap.errors import SpecError, install_command
from vecwrap.pipeline import registry
from vecwrap.pipeline.registry import NameTable, register_wrapper
from vecwrap.sources.import_paths import import_target


@pytest.fixture
def table() -> NameTable:
    return NameTable(
        "wrapper", "vecwrap.test_nothing", {"framestack": "vecwrap.wrappers.framestack:FrameStack"}
    )


class FakePoint:
    """An entry point of an installed package."""

    def __init__(self, name: str, value: str, owner: str) -> None:
        self.name, self.value = name, value
        self.dist = type("Distribution", (), {"name": owner})()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets a test say which entry points are installed."""

    def install(*points: FakePoint) -> NameTable:
        monkeypatch.setattr(
            importlib.metadata, "entry_points", lambda group: [p for p in points if group == "g"]
        )
        return NameTable("wrapper", "g", {"framestack": "vecwrap.wrappers.framestack:FrameStack"})

    return install


def test_a_name_gives_its_target() -> None:
    assert registry.wrappers.load("time_limit") is gymnasium.wrappers.TimeLimit
    assert registry.wrappers.name_of(gymnasium.wrappers.TimeLimit) == "time_limit"
    assert registry.wrappers.name_of(gymnasium.wrappers.ClipReward) is None


def test_looking_at_names_imports_nothing() -> None:
    code = (
        "import sys; from vecwrap.pipeline import registry; registry.wrappers.names(); "
        "registry.backends.names();heavy = ('vecwrap.wrappers', 'vecwrap.backends', 'msgspec', "
        "'ruamel', 'cv2');print(*[m for m in sys.modules if m.startswith(heavy)])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == ""
    )


@pytest.mark.parametrize("name", registry.wrappers.names())
def test_every_wrapper_of_this_package_is_found_under_its_name(name: str) -> None:
    entry = registry.wrappers.entry(name)
    assert entry.owner == "vecwrap"
    if name != "time_limit":  # one name finds everything: spec key = module = test file
        folders = "wrappers", "selfplay"
        places = [f"vecwrap.{folder}.{name}:" for folder in folders]
        assert str(entry.target).startswith((*places, f"vecwrap.wrappers.presets:{name}"))


def test_an_unknown_name_suggests_a_near_one_or_lists_all() -> None:
    with pytest.raises(SpecError) as error:
        registry.wrappers.load("framestak", 'pong.yaml:7: wrappers[1] "framestak"')
    assert (
        str(error.value)
        == 'pong.yaml:7: wrappers[1] "framestak": unknown wrapper. Did you mean "framestack"?'
    )
    with pytest.raises(
        SpecError,
        match=(
            r"unknown backend\. Known names: dummy, ray, shmem, subprocess, threads; an import "
            r"path is written module:attr, or module:attr: if the module has no dot\.$"
        ),
    ):
        registry.backends.load("quantum")


def test_a_name_taken_twice_is_refused_with_both_owners(table: NameTable) -> None:
    table.register("halve", "a.wrappers:Halve")
    table.register("halve", "a.wrappers:Halve")  # the same again is no conflict
    with pytest.raises(SpecError) as error:
        table.register("halve", "b.wrappers:Halve")
    assert str(error.value) == (
        'register "halve": the name is taken by a.wrappers (a.wrappers:Halve); b.wrappers '
        "(b.wrappers:Halve) needs "
        "another one."
    )
    with pytest.raises(SpecError, match="taken by vecwrap"):
        table.register("framestack", "b.wrappers:FrameStack")


def test_a_cell_that_defines_and_registers_a_wrapper_can_be_run_again(table: NameTable) -> None:
    for _ in range(2):

        class Halve(gymnasium.Wrapper):  # type: ignore[type-arg]
            pass

        table.register("halve", Halve)
    assert table.load("halve") is Halve


@pytest.mark.parametrize(("name", "target"), [("a b", "m:a"), ("4", "m:a"), ("", "m:a"), ("ok", 4)])
def test_what_is_no_name_or_no_target_is_refused(table: NameTable, name: str, target: Any) -> None:
    with pytest.raises(SpecError, match=r"register.*: expected a"):
        table.register(name, target)


def test_register_wrapper_adds_to_the_wrappers() -> None:
    register_wrapper("test_registry_clip", gymnasium.wrappers.ClipReward)
    try:
        assert registry.wrappers.load("test_registry_clip") is gymnasium.wrappers.ClipReward
    finally:
        registry.wrappers.unregister("test_registry_clip")


def test_entry_points_of_other_packages_are_names(installed: Any) -> None:
    table = installed(FakePoint("limit", "gymnasium.wrappers.common:TimeLimit", "some-plugin"))
    assert table.names() == ["framestack", "limit"]
    assert table.load("limit") is gymnasium.wrappers.TimeLimit
    assert table.entry("limit").owner == "some-plugin"


def test_two_packages_that_claim_a_name_are_both_named(installed: Any) -> None:
    table = installed(
        FakePoint("framestack", "plug:Stack", "some-plugin"),
        FakePoint("other", "plug:Other", "some-plugin"),
    )
    with pytest.raises(SpecError) as error:
        table.load("framestack")
    assert str(error.value) == (
        'wrapper "framestack": the name "framestack" is claimed by vecwrap '
        "(vecwrap.wrappers.framestack:FrameStack) "
        "and some-plugin (plug:Stack); give an import path, or remove one."
    )
    assert table.entry("other").owner == "some-plugin"


# -- import paths ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "no_such_module_x:Thing",
            "here: there is no module no_such_module_x. Is its folder on sys.path? "
            "PYTHONPATH=FOLDER puts it there.",
        ),
        ("gymnasium.no_such:Thing", "here: there is no module gymnasium.no_such."),
        (
            "gymnasium.wrappers:TimeLimi",
            'here: gymnasium.wrappers has no TimeLimi. Did you mean "TimeLimit"?',
        ),
        ("gymnasium:__version__", "here: expected a class or callable, got a str."),
    ],
)
def test_an_import_path_that_leads_nowhere_is_told(path: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        import_target(path, "here")
    assert str(error.value) == message


def test_a_module_that_fails_to_import_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "vecwrap_test_raises.py").write_text("1 / 0")
    (tmp_path / "vecwrap_test_needs.py").write_text("import no_such_package_x")
    with pytest.raises(
        SpecError,
        match="here: importing vecwrap_test_raises raised ZeroDivisionError: division by zero",
    ):
        import_target("vecwrap_test_raises:X", "here")
    with pytest.raises(SpecError, match="here needs no_such_package_x: install no_such_package_x"):
        import_target("vecwrap_test_needs:X", "here")
    with pytest.raises(
        SpecError, match=re.escape(f"here needs no_such_package_x: {install_command('atari')}")
    ):
        import_target("vecwrap_test_needs:X", "here", extra="atari")
