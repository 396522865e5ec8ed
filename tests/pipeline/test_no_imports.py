"""Files from strangers: what would import a module is refused, and nothing is imported to find that
out.
"""

import sys
from pathlib import Path

import pytest

from vecwrap.cli import main
from vecwrap.errors import SpecError
from vecwrap.pipeline.no_imports import refuse_imports
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.sources.import_paths import import_target

TRAP = "raise SystemExit('the trap was imported')\n"


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that must not be imported, on the way where imports look."""
    (tmp_path / "trap.py").write_text(TRAP)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("env: trap:Env-v0\n", "p.yaml:1: env"),
        ("env: CartPole-v1\nwrappers:\n  - trap:Wrapper:\n", "p.yaml:3: wrappers[0]"),
        (
            "env: CartPole-v1\nwrappers:\n  - flatten\n  - {trap:Wrapper: {k: 1}}\n",
            "p.yaml:4: wrappers[1]",
        ),
        (
            "env: CartPole-v1\nwrappers:\n  - seed_each_episode:\n      seeds: trap:seeds\n",
            "p.yaml:4: wrappers[0].seed_each_episode.seeds",
        ),
        (
            "env: CartPole-v1\nwrappers: ['video:trigger=\"trap:now\"']\n",
            "p.yaml:2: wrappers[0].video.trigger",
        ),
        (
            "env: CartPole-v1\nwrappers: [{anything: [[{a: trap:now}]]}]\n",
            "p.yaml:2: wrappers[0].anything[0][0].a",
        ),
        ("env: CartPole-v1\nbackend: {name: trap:Backend}\n", "p.yaml:2: backend"),
        ("env: CartPole-v1\nbackend: {name: shmem, hook: trap:Hook}\n", "p.yaml:2: backend.hook"),
        ("env: CartPole-v1\nenv_kwargs:\n  a: [1, trap:Reward]\n", "p.yaml:3: env_kwargs.a[1]"),
        ("env: CartPole-v1\neval: {env: trap:Env}\n", "p.yaml:2: eval.env"),
        ("env: CartPole-v1\neval: {wrappers: [trap.sub:Wrapper]}\n", "p.yaml:2: eval.wrappers[0]"),
        (
            "env: CartPole-v1\nwrappers: [flatten]\neval:\n  wrappers: {flatten: {x: trap:now}}\n",
            "p.yaml:4: eval.wrappers.flatten.x",
        ),
        (
            "env: CartPole-v1\nwrappers: [flatten]\neval:\n  wrappers: {0: 'trap.sub:Wrapper:3'}\n",
            "p.yaml:4: eval.wrappers[0]",
        ),
        (
            "env: CartPole-v1\nwrappers: [flatten]\neval:\n  wrappers: {0: ' trap.sub:Wrapper'}\n",
            "p.yaml:4: eval.wrappers[0]",
        ),
        (
            "env: CartPole-v1\nwrappers: [flatten]\neval:\n  wrappers: {'0': 'trap:Wrapper:'}\n",
            "p.yaml:4: eval.wrappers.0",
        ),
        (
            (
                "env: CartPole-v1\nwrappers: [flatten]\neval:\n  wrappers: {0: "
                "'video:trigger=\"trap:now\"'}\n"
            ),
            "p.yaml:4: eval.wrappers[0].video.trigger",
        ),
        ("env: CartPole-v1\neval: {backend: {hook: trap:Hook}}\n", "p.yaml:2: eval.backend.hook"),
        ("env: CartPole-v1\neval: {backend: trap.sub:Backend}\n", "p.yaml:2: eval.backend"),
        ("extends: base.yaml\n", "base.yaml:2: wrappers[0]"),
    ],
)
@pytest.mark.usefixtures("trap")
def test_every_way_to_an_import_is_refused_before_anything_is_imported(
    text: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("base.yaml").write_text("env: CartPole-v1\nwrappers: [trap.sub:Wrapper]\n")
    Path("p.yaml").write_text(text)
    with pytest.raises(SpecError) as error:
        refuse_imports(PipelineSpec.load("p.yaml"))
    assert str(error.value).startswith(
        f'{place}: expected nothing to import or to connect to (--no-imports), got "trap'
    )
    assert main(["check", "--no-imports", "p.yaml"]) == 1
    said = capsys.readouterr().out
    assert "expected nothing to import or to connect to (--no-imports)" in " ".join(said.split())
    assert "trap" not in sys.modules


@pytest.mark.usefixtures("trap")
@pytest.mark.parametrize(
    ("base", "place"),
    [
        ("wrappers:\n  - {trap:Wrapper: 4}\n", "base.yaml:3: wrappers[0]"),
        ("eval:\n  wrappers:\n    - {trap:Wrapper: 4}\n", "base.yaml:4: eval.wrappers[0]"),
    ],
)
def test_a_file_that_changes_anothers_wrappers_imports_nothing(
    base: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # by the argument's name, which only the wrapper's signature knows
    change = "  wrappers: {Wrapper: {k: 2}}\n"
    Path("base.yaml").write_text(f"env: CartPole-v1\n{base}")
    Path("p.yaml").write_text(
        "extends: base.yaml\n" + (f"eval:\n{change}" if "eval" in base else change[2:])
    )
    assert main(["check", "--no-imports", "p.yaml"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert (
        f'{place}: expected nothing to import or to connect to (--no-imports), got "trap:Wrapper"'
        in said
    )
    assert "trap" not in sys.modules


@pytest.mark.usefixtures("trap")
def test_names_alone_and_ordinary_text_are_let_through() -> None:
    Path("p.yaml").write_text(
        "env: CartPole-v1\nn: 2\nbackend: dummy\nwrappers: [monitor: {dir: 'C:/runs/a b:c'}]\n"
    )
    refuse_imports(PipelineSpec.load("p.yaml"))
    assert main(["check", "--no-imports", "p.yaml"]) == 0


@pytest.mark.usefixtures("trap")
def test_without_the_option_the_module_is_imported() -> None:
    Path("p.yaml").write_text("env: CartPole-v1\nwrappers: [trap:Wrapper:]\n")
    assert main(["check", "p.yaml"]) != 0
    with pytest.raises(SpecError, match="importing trap raised SystemExit: the trap was imported"):
        import_target("trap:Wrapper", "here")


@pytest.mark.usefixtures("trap")
@pytest.mark.parametrize(
    "text", ["trap", "trap.", "trap:", ":trap", " trap:a", "trap/a:b", "trap:a b", "..trap:a"]
)
def test_only_the_one_form_is_ever_imported(text: str) -> None:
    with pytest.raises(SpecError, match=r'^here: expected an import path "module:attr", got '):
        import_target(text, "here")
    assert "trap" not in sys.modules
