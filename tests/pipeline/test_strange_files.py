"""Files of strangers: pipes and devices in a file's place, folders that do not belong together."""

import json
import os
import sys
from pathlib import Path

import pytest

import vecwrap
from tests.pipeline.test_no_imports import TRAP
from vecwrap.cli import main
from vecwrap.errors import CheckpointError, PlanError, PlotError, SpecError
from vecwrap.pipeline.spec import PipelineSpec

PIPELINE = "env: CartPole-v1\nn: 1\nbackend: dummy\nwrappers: [normalize, monitor]\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of a run, beside a module that must not be imported."""
    (tmp_path / "trap.py").write_text(TRAP)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run"
    with vecwrap.build(
        PipelineSpec.from_yaml(PIPELINE.replace("monitor", "monitor: {dir: run}"), "p.yaml")
    ) as env:
        env.reset(seed=1)
        for _ in range(30):
            env.step([0])
        env.save(folder / "stats.npz")
        (folder / "pipeline.yaml").write_text(env.pipeline.to_yaml())
        (folder / "run.json").write_text(
            json.dumps({"pipeline": env.pipeline.hash, "versions": {}})
        )
    return folder


def replaced(path, kind):
    """Put a pipe, or a link to a device, in a file's place."""
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(kind)


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero", "/dev/tty", "/dev/ptmx"])
@pytest.mark.parametrize("name", ["pipeline.yaml", "run.json", "stats.npz", "monitor.csv"])
def test_a_pipe_or_a_device_in_a_file_s_place_is_refused_at_once(folder, name, kind, capsys):
    assert main(["explain", "run"]) == 0
    replaced(folder / name, kind)
    assert main(["explain", "run"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert any(
        words in said for words in ("not a regular file", "cannot be read", "one without")
    ), said


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero"])
def test_so_it_is_wherever_a_file_is_read(folder, kind, monkeypatch):
    for name in ("p.yaml", "p.json", "state.npz", "lonely/monitor.csv"):
        Path("lonely").mkdir(exist_ok=True)
        replaced(Path(name), kind)
    for name in ("p.yaml", "p.json"):
        with pytest.raises(SpecError, match=rf"^{name}: cannot be read \(not a regular file\)"):
            vecwrap.load(name)
    Path("q.yaml").write_text("extends: p.yaml\n")
    with pytest.raises(SpecError, match=r"there is no file p\.yaml"):
        vecwrap.load("q.yaml")
    with vecwrap.build("CartPole-v1 n=1 backend=dummy | normalize") as env:
        for load in (env.load, env.share_statistics):
            with pytest.raises(
                CheckpointError, match=r"^state\.npz: cannot be read \(not a regular file\)"
            ):
                load("state.npz")
    with pytest.raises(CheckpointError, match="not a regular file"):
        vecwrap.build("CartPole-v1 n=1 backend=dummy | normalize", stats="state.npz")
    assert main(["plot", "lonely"]) == main(["plot", "lonely/monitor.csv"]) == 2
    with (
        vecwrap.build("CartPole-v1 n=1 backend=dummy | monitor:dir=lonely,resume=true") as env,
        pytest.raises(PlanError, match="not a regular file"),
    ):
        env.reset()


def test_a_pipeline_may_still_come_through_a_descriptor_of_this_process():
    reader, writer = os.pipe()
    os.write(writer, b"env: CartPole-v1\nn: 3\n")
    os.close(writer)
    assert PipelineSpec.load(f"/dev/fd/{reader}").n == 3
    os.close(reader)


@pytest.mark.parametrize("name", ["run.json", "monitor.csv"])
def test_a_folder_whose_files_are_of_different_runs_imports_nothing(folder, name, capsys):
    text = (folder / name).read_text()
    assert '"pipeline"' in text
    hash_ = json.loads((folder / "run.json").read_text())["pipeline"]
    (folder / name).write_text(text.replace(hash_, "0123456789ab"))
    (folder / "pipeline.yaml").write_text(PIPELINE.replace("normalize", "trap:Wrapper:"))
    assert main(["explain", "run"]) == 2
    assert "expected a file of pipeline" in capsys.readouterr().err
    assert "trap" not in sys.modules


@pytest.mark.parametrize("found", [[1], {"a": 1}, 3, "\x1b[31mred", "x" * 900_000])
@pytest.mark.parametrize("name", ["run.json", "monitor.csv"])
def test_a_hash_of_any_kind_is_compared_and_shown_in_short(folder, name, found, capsys):
    file = folder / name
    first, _, rest = file.read_text().partition("\n")
    said = json.loads(first.removeprefix("#"))
    file.write_text(
        ("#" if name == "monitor.csv" else "")
        + json.dumps({**said, "pipeline": found})
        + f"\n{rest}"
    )
    if name == "monitor.csv" and len(file.read_text()) > 900_000:
        assert main(["explain", "run"]) == 0, "its header is not read to the end"
        return
    assert main(["explain", "run"]) == 2
    said = capsys.readouterr().err
    assert "expected a file of pipeline" in said
    assert "\x1b" not in said
    assert len(said) < 1500


def test_a_run_folder_without_imports(folder, capsys):
    assert main(["explain", "run", "--no-imports"]) == 0
    assert main(["explain", "run", "--no-imports", "--set", "wrappers=[trap:Wrapper]"]) == 2
    (folder / "pipeline.yaml").write_text(PIPELINE.replace("normalize", "trap:Wrapper:"))
    assert main(["explain", "run", "--no-imports"]) == 2
    assert "expected nothing to import" in capsys.readouterr().err
    assert "trap" not in sys.modules


@pytest.mark.parametrize(
    "arguments",
    [
        *(
            ["trap:Env-v0"],
            ["trap:Env"],
            ["CartPole-v1 | trap:Wrapper:"],
            ["CartPole-v1 | video:trigger='trap:now'"],
        ),
        *(
            ["CartPole-v1", "--set", "env=trap:Env-v0"],
            ["CartPole-v1", "--set", "wrappers=[{trap:Wrapper: {k: 1}}]"],
        ),
        *(
            ["CartPole-v1", "--set", "eval.env=trap:Env-v0"],
            ["CartPole-v1", "--set", "eval.wrappers=['trap:Wrapper:']"],
        ),
        [
            "CartPole-v1",
            "--set",
            "wrappers=[{trap:Wrapper: {k: 1}}]",
            "--set",
            "wrappers.Wrapper.k=2",
        ],
        *(
            ["CartPole-v1", "--set", "backend=trap.sub:Backend"],
            ["CartPole-v1 backend=ray backend.address=ray://far:1"],
        ),
        ["CartPole-v1", "--set", "backend={name: ray, runtime_env: {pip: [trap]}}"],
        ["CartPole-v1", "--set", "backend={name: ray, init: {runtime_env: {pip: [trap]}}}"],
        ["CartPole-v1", "--set", "eval={backend: {name: ray, address: 'far:1'}}"],
        ["CartPole-v1", "--set", "eval.backend.address=far:1"],
    ],
)
@pytest.mark.usefixtures("folder")
def test_arguments_of_commands_are_refused_too(arguments, capsys):
    for command in (["run"], ["explain"], ["check"], ["run", "--eval"]):
        assert main([*command, *arguments, "--no-imports"]) != 0
        said = " ".join("".join(capsys.readouterr()).split())
        assert "expected nothing to import or to connect to (--no-imports)" in said, said
    assert "trap" not in sys.modules


@pytest.mark.usefixtures("folder")
def test_a_backend_of_the_command_line_is_refused_too(capsys):
    assert main(["run", "CartPole-v1", "--backend", "trap.sub:Backend", "--no-imports"]) == 2
    assert "expected nothing to import" in capsys.readouterr().err
    assert main(["run", "CartPole-v1", "--steps", "10", "--no-imports", "--out", "out"]) == 0


def test_a_plot_of_what_is_no_file(folder):
    from vecwrap.tools.plot import read_runs

    replaced(folder / "monitor.csv", "pipe")
    with pytest.raises(PlotError, match=r"monitor\.csv: cannot be read: not a regular file"):
        read_runs([folder])
