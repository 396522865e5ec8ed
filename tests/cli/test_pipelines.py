"""What the commands read: a file or a line, what is set over it, and which of the two modes is
meant.
"""

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from vecwrap.cli import main
from vecwrap.cli.pipelines import read_pipeline, with_images
from vecwrap.errors import SpecError
from vecwrap.pipeline.elements import BackendSpec
from vecwrap.pipeline.spec import PipelineSpec, as_spec

CARTPOLE = """\
env: CartPole-v1
n: 3
seed: 1
backend: dummy
wrappers:
  - framestack: 4
  - monitor: {dir: runs/cartpole}
eval: {n: 2, seed: 9, wrappers: [monitor: {dir: runs/cartpole/eval}, terminal_obs]}
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A working directory with a pipeline."""
    (tmp_path / "cartpole.yaml").write_text(CARTPOLE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def test_a_file_is_a_file_and_all_else_a_line():
    spec = PipelineSpec.load("cartpole.yaml")
    assert read_pipeline("cartpole.yaml") == spec
    Path("without-suffix").write_text(CARTPOLE)
    assert read_pipeline("without-suffix") == spec
    Path("cartpole.json").write_text(json.dumps(spec.to_dict()))
    assert read_pipeline("cartpole.json") == spec
    assert read_pipeline("CartPole-v1 n=3") == PipelineSpec("CartPole-v1", n=3)
    long = "CartPole-v1 | " + " | ".join(["framestack:2"] * 50)  # longer than a file's name may be
    assert len(read_pipeline(long).wrappers) == 50


@pytest.mark.parametrize(
    "line",
    [
        "CartPole-v1 n=1 env_kwargs.config=conf.yaml",
        "CartPole-v1 n=1 | monitor:dir=runs/a.json",
        "CartPole-v1|monitor:runs/a.yml",
    ],
)
def test_a_line_may_end_as_a_files_name_does(line, capsys):
    assert read_pipeline(line) == as_spec(line) == PipelineSpec.parse(line)
    main(["check", line])
    assert "cannot be read" not in capsys.readouterr().err
    Path("a n=1 | b.yaml").write_text(CARTPOLE)
    assert read_pipeline("a n=1 | b.yaml") == PipelineSpec.load("cartpole.yaml")


@pytest.mark.parametrize("command", ["check", "explain"])
def test_a_name_that_is_too_long_for_a_file_is_one_message(command, capsys):
    assert main([command, "a" * 300 + ".yaml"]) == 2
    assert capsys.readouterr().err.startswith("error: aaa")


@pytest.mark.parametrize(
    ("setting", "key", "value"),
    [
        ("n=16", "n", 16),
        ("n = 16", "n", 16),
        ("seed=null", "seed", None),
        ("seed=none", "seed", None),
        ("wrappers.framestack.k=2", "wrappers.framestack.k", 2),
        ("backend.workers=2", "backend.workers", 2),
        ("env_kwargs.name='4'", "env_kwargs.name", "4"),
        ("env_kwargs.path=a=b", "env_kwargs.path", "a=b"),
        ("env_kwargs.rate=1e-8", "env_kwargs.rate", 1e-8),
        ("env_kwargs.size=[3, 4]", "env_kwargs.size", [3, 4]),
        ("env_kwargs={a: {b: 1}}", "env_kwargs", {"a": {"b": 1}}),
        ("wrappers=flatten | monitor", "wrappers", "flatten | monitor"),
        ("wrappers=[flatten, {framestack: 2}]", "wrappers", ["flatten", {"framestack": 2}]),
        ("eval.n=5", "eval.n", 5),
        ("workers=2", "workers", 2),
        ("backend={name: shmem, workers: 2}", "backend", {"name": "shmem", "workers": 2}),
        ("env=Acrobot-v1", "env", "Acrobot-v1"),
    ],
)
def test_set_says_what_a_keyword_says(setting, key, value):
    spec = PipelineSpec.load("cartpole.yaml")
    assert read_pipeline("cartpole.yaml", [setting]) == spec.override(**{key: value}) != spec


def test_the_last_of_a_key_counts_and_the_whole_comes_before_its_parts():
    spec = read_pipeline(
        "cartpole.yaml", ["n=1", "wrappers.framestack.k=2", "n=2", "wrappers=[framestack: 8]"]
    )
    assert (spec.n, str(spec.wrappers[0]), len(spec.wrappers)) == (2, "framestack:k=2", 1)


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        (["workers=1"], {"backend": "subprocess"}),
        (["backend.workers=1"], {"backend": "subprocess"}),
        (["backend.workers=1", "backend.name=subprocess"], {}),
        (["backend.name=subprocess", "workers=1"], {}),
        (["workers=1", "backend=subprocess"], {}),
    ],
)
@pytest.mark.parametrize("evaluation", [False, True])
def test_the_options_of_a_backend_are_kept_whatever_their_order(settings, options, evaluation):
    spec = read_pipeline("cartpole.yaml", settings, options, evaluation=evaluation)
    assert spec.backend == BackendSpec("subprocess", {"workers": 1})


@pytest.mark.parametrize("whole", ["eval.backend=subprocess", "eval.backend.name=subprocess"])
def test_the_options_of_an_evaluations_backend_are_kept_whatever_their_order(whole):
    for settings in itertools.permutations(["eval.backend.workers=1", whole, "eval.n=3"]):
        spec = read_pipeline("cartpole.yaml", settings, evaluation=True)
        assert (spec.n, spec.backend) == (3, BackendSpec("subprocess", {"workers": 1}))


def test_the_evaluation_is_read_with_what_is_set_in_its_section():
    spec = read_pipeline(
        "cartpole.yaml", ["eval.seed=5", "wrappers.monitor.dir=e"], evaluation=True
    )
    assert (
        str(spec)
        == "CartPole-v1 n=2 seed=5 backend=dummy training=false | monitor:dir=e | terminal_obs"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--set", "n"],
            '--set: expected KEY=VALUE, such as n=16 or wrappers.framestack.k=2, got "n".',
        ),
        (
            ["--set", "=4"],
            '--set: expected KEY=VALUE, such as n=16 or wrappers.framestack.k=2, got "=4".',
        ),
        (["--set", "nn=4"], '--set: nn: unknown key. Did you mean "n"?'),
        (
            ["--set", "wrapers.framestack.k=4"],
            '--set: wrapers: unknown key. Did you mean "wrappers"?',
        ),
        (
            ["--set", "framestack.k=4"],
            '--set: framestack.k: unknown key. Did you mean "wrappers.framestack.k"?',
        ),
        (
            ["--set", "wrappers.framestak.k=4"],
            '--set: wrappers.framestak: there is no such wrapper. Did you mean "framestack"?',
        ),
        (
            ["--set", "wrappers.framestack.kk=4"],
            '--set: wrappers[0] "framestack", argument kk: unknown argument. Did you mean "k"?',
        ),
        (
            ["--set", "wrappers.framestack.k=four"],
            '--set: wrappers[0] "framestack", argument k: expected int, got "four".',
        ),
        (
            ["--set", "wrappers.framestack="],
            '--set: wrappers[0] "framestack": the argument k: int is missing.',
        ),
        (
            ["--set", "wrappers.framestack=0"],
            '--set: wrappers[0] "framestack": k: expected at least 1',
        ),
        (
            ["--set", "wrappers.monitor={dir: 4}"],
            '--set: wrappers[1] "monitor", argument dir: expected ',
        ),
        (["--set", "n=0"], "--set: n: expected at least 1 sub-environment, got 0."),
        (["--set", "seed='4"], "--set: seed: a quote that does not end where the text ends: '4."),
        (["--set", "wrappers=[4"], "--set wrappers:1: this is not YAML:"),
        (
            ["--set", "wrappers=[flatten, flatten]", "--set", "wrappers.flatten.x=1"],
            "--set: wrappers.flatten: there are 2 wrappers of this name. Say which by its "
            "number: wrappers.0 or wrappers.1.",
        ),
        (
            ["--set", "eval.backend.name=3"],
            "--set: eval.backend.name: expected the name of a backend, got 3.",
        ),
        (["--set", "eval.n=0"], "--set: n: expected at least 1 sub-environment, got 0."),
    ],
)
def test_an_error_names_the_option_and_what_is_near(capsys, arguments, message):
    assert main(["explain", "cartpole.yaml", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


def test_an_option_of_its_own_is_named_in_its_errors():
    with pytest.raises(SpecError, match="^--seed: seed: expected int, got true"):
        read_pipeline("cartpole.yaml", ["n=3"], {"seed": True})


def test_an_option_and_the_same_set_exclude_each_other(capsys):
    assert main(["run", "cartpole.yaml", "--n", "2", "--set", "n=3"]) == 2
    assert (
        capsys.readouterr().err
        == "error: --set n: --n sets it already; leave one of the two out.\n"
    )
    with pytest.raises(SpecError, match="^--set seed: --seed sets it already"):
        read_pipeline("cartpole.yaml", ["seed=3"], {"seed": 2})


def test_explain_and_check_look_at_what_is_set_and_at_the_evaluation(capsys):
    assert main(["explain", "cartpole.yaml", "--set", "wrappers.framestack.k=2"]) == 0
    assert re.search(r"framestack +k=2 .*\(2, 4\) float32", capsys.readouterr().out)
    assert main(["explain", "cartpole.yaml", "--eval", "--set", "eval.n=5"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("CartPole-v1, n=5, seed=9")
    assert "framestack" not in said
    assert main(["check", "cartpole.yaml", "--set", "wrappers.framestack.k=x"]) == 1
    assert "expected int" in capsys.readouterr().out


def test_run_takes_what_is_set_and_the_evaluation_writes_beside_the_training(capsys):
    command = [
        sys.executable,
        "-m",
        "vecwrap",
        "run",
        "cartpole.yaml",
        "--steps",
        "60",
        "--set",
        "n=4",
    ]
    assert subprocess.run(command, capture_output=True, timeout=120, check=False).returncode == 0
    training = Path("runs/cartpole/monitor.csv").read_text()
    assert main(["run", "cartpole.yaml", "--steps", "200", "--eval"]) == 0
    assert "wrappers monitor > terminal_obs" in capsys.readouterr().out
    assert Path("runs/cartpole/monitor.csv").read_text() == training
    rows = Path("runs/cartpole/eval/monitor.csv").read_text().splitlines()
    assert {row.split(",")[3] for row in rows[2:]} == {"0", "1"}
    assert main(["run", "CartPole-v1 n=1 backend=dummy", "--steps", "60", "--eval"]) == 0
    assert Path("runs/CartPole-v1/eval/monitor.csv").exists()


def test_an_evaluation_without_statistics_is_refused_in_a_sentence(capsys):
    line = "Pendulum-v1 n=1 backend=dummy | normalize"
    assert main(["run", line, "--steps", "5", "--eval"]) == 2
    assert capsys.readouterr().err.startswith("error: stats: expected statistics for Normalize")
    assert main(["explain", line, "--eval"]) == 0


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")
@pytest.mark.parametrize(
    ("line", "mode"),
    [
        ("PongNoFrameskip-v4 n=2 engine=ale | atari", None),
        ("Pong-v5 n=2 engine=envpool", None),  # which EnvPool alone knows
        ("CartPole-v1 n=2 engine=envpool", "rgb_array"),
        ("CartPole-v1 n=2 envs_per_engine=2", "rgb_array"),
    ],
)
def test_images_are_asked_for_where_the_engine_draws(line, mode, capsys):
    assert with_images(PipelineSpec.parse(line)).render_mode == mode
    assert main(["run", line, "--steps", "4"]) == 0
    assert ("tiles.png" in capsys.readouterr().out) == (mode is not None)
