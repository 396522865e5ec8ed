"""The command line, through the door users take: the process, or ``main`` with its arguments."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import imageio.v3 as imageio
import pytest

import vecwrap
from tests.helpers.polling import until
from tests.helpers.terminal_output import on_a_terminal
from vecwrap.cli import main
from vecwrap.errors import install_command
from vecwrap.wrappers.recording.run_record import RunRecord

CARTPOLE = """env: CartPole-v1
n: 3
seed: 1
backend: dummy
wrappers:
  - framestack: 2
  - monitor: {dir: runs/cartpole}
"""
TOY = Path(__file__).with_name("toys_of_cli.py").read_text()
WORKERS = pytest.mark.parametrize("backend", ["dummy", "subprocess", "shmem"])


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with a pipeline and a module of environments."""
    (tmp_path / "cartpole.yaml").write_text(CARTPOLE)
    (tmp_path / "toys_of_cli.py").write_text(TOY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    sys.modules.pop("toys_of_cli", None)


def vecwrap_process(*arguments, **options):
    command = [sys.executable, "-m", "vecwrap", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, **options
    )


# -- run -------------------------------------------------------------------------------------------


def rows_of(path):
    lines = Path(path).read_text().splitlines()
    assert lines[0].startswith("#{")
    return list(csv.DictReader(lines[1:]))


@WORKERS
def test_run_counts_writes_and_draws(here, capsys, backend):
    assert (
        main(
            [
                "run",
                "toys_of_cli:Toy",
                "--n",
                "3",
                "--steps",
                "60",
                "--out",
                "out",
                "--backend",
                backend,
            ]
        )
        == 0
    )
    said = capsys.readouterr().out
    assert "agent steps  60 in" in said
    assert "episodes     6" in said
    assert "10.00 ± 0.00, from 10 to 10" in said
    assert "10 agent steps, from 10 to 10" in said
    assert [row["r"] for row in rows_of("out/monitor.csv")] == ["10.0"] * 6
    for path in ("out/monitor.csv", "out/tiles.png"):
        assert path in said
    # One row of three, each below its label, and large enough for that.
    image = imageio.imread("out/tiles.png")
    height, width, _ = image.shape
    assert width > 3 * height
    assert image[height - 10, [width // 6, width // 2, width * 5 // 6]].tolist() == [[10] * 3] * 3


def test_files_go_where_the_monitor_of_the_pipeline_says(here, capsys):
    assert main(["run", "cartpole.yaml", "--steps", "200"]) == 0
    assert rows_of("runs/cartpole/monitor.csv")
    assert "runs/cartpole/monitor.csv" in capsys.readouterr().out


def test_out_takes_the_files_elsewhere(here):
    assert main(["run", "cartpole.yaml", "--steps", "200", "--out", "elsewhere"]) == 0
    assert rows_of("elsewhere/monitor.csv")
    assert not Path("runs").exists()


def test_without_any_folder_it_is_named_after_the_pipeline(here):
    assert main(["run", "toys_of_cli:Toy n=2 backend=dummy", "--steps", "40"]) == 0
    assert len(rows_of("runs/toys_of_cli-Toy/monitor.csv")) == 4


def test_episodes_stop_the_run(here, capsys):
    assert main(["run", "toys_of_cli:Toy n=2 backend=dummy", "--episodes", "5"]) == 0
    assert "episodes     6" in capsys.readouterr().out  # both games of the last step count


@pytest.mark.parametrize("policy", ["random", "zeros", "toys_of_cli:always_one"])
def test_policies(here, capsys, policy):
    assert main(["run", "cartpole.yaml", "--steps", "200", "--policy", policy]) == 0
    assert policy in capsys.readouterr().out


def test_always_pushing_to_one_side_ends_cartpole_sooner_than_pushing_at_random(here):
    for policy in ("random", "zeros"):
        assert (
            main(["run", "cartpole.yaml", "--steps", "3000", "--policy", policy, "--out", policy])
            == 0
        )
    random, zeros = (
        [float(row["r"]) for row in rows_of(f"{name}/monitor.csv")] for name in ("random", "zeros")
    )
    assert max(zeros) <= 11 < sum(random) / len(random)


def test_the_same_seed_gives_the_same_games(here):
    for out in ("one", "two"):
        assert main(["run", "cartpole.yaml", "--steps", "300", "--seed", "7", "--out", out]) == 0
    one, two = ([row["r"] for row in rows_of(f"{out}/monitor.csv")] for out in ("one", "two"))
    assert one == two


@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled", "episodic"])
def test_every_autoreset_mode(here, capsys, mode):
    assert (
        main(["run", f"toys_of_cli:Toy n=2 backend=dummy autoreset={mode}", "--episodes", "6"]) == 0
    )
    said = capsys.readouterr().out
    assert "agent steps  60 in" in said
    assert "episodes     6" in said


@pytest.mark.parametrize(
    ("number", "presses"),
    [
        pytest.param(signal.SIGINT, 1, marks=pytest.mark.full),
        (signal.SIGINT, 2),
        (signal.SIGTERM, 1),
    ],
)
def test_ctrl_c_and_sigterm_leave_whole_files_and_a_summary(here, number, presses):
    command = [
        sys.executable,
        "-m",
        "vecwrap",
        "run",
        "toys_of_cli:Slow",
        "--n",
        "2",
        "--steps",
        "10000000",
    ]
    with subprocess.Popen(
        [*command, "--out", "out"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        monitor = here / "out" / "monitor.csv"
        assert until(
            lambda: (
                process.poll() is not None
                or (monitor.exists() and monitor.read_text().count("\n") >= 4)
            )
        )
        assert process.poll() is None, process.communicate()
        for _ in range(presses):
            os.killpg(process.pid, number)  # as a terminal does it: to the workers too
        said, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, errors
    assert (
        f"by {'Ctrl-C' if number == signal.SIGINT else 'SIGTERM'}; the files are complete" in said
    )
    assert re.search(r"episodes +\d", said)
    assert "Traceback" not in errors
    assert {row["r"] for row in rows_of(monitor)} == {"10.0"}
    facts = json.loads(Path("out/run.json").read_text())
    assert facts["end"] == f"interrupted by {'Ctrl-C' if number == signal.SIGINT else 'SIGTERM'}"
    assert facts["steps"] >= 20


def test_a_second_ctrl_c_amid_the_last_notes_leaves_them_whole(here, capsys, monkeypatch):
    def end(self, *args, end=RunRecord.end, **keywords):
        try:
            for _ in range(2):
                signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            pytest.fail("the notes were cut off")
        end(self, *args, **keywords)

    monkeypatch.setattr(RunRecord, "end", end)
    assert (
        main(["run", "toys_of_cli:Toy n=2 backend=dummy", "--steps", "40", "--out", "out"])
        == 128 + signal.SIGINT
    )
    assert "by Ctrl-C; the files are complete" in capsys.readouterr().out
    assert json.loads(Path("out/run.json").read_text())["end"] == "interrupted by Ctrl-C"


def test_what_fails_while_running_is_said_after_the_summary(here, capsys):
    assert (
        main(["run", "toys_of_cli:Broken", "--n", "2", "--backend", "dummy", "--out", "out"]) == 1
    )
    said = capsys.readouterr()
    assert "agent steps  0" in said.out
    assert "the wheel came off" in said.err
    assert "Traceback" not in said.err


def test_an_error_in_a_policy_names_it(here, capsys):
    assert main(["run", "cartpole.yaml", "--policy", "toys_of_cli:broken_policy"]) == 1
    assert (
        "--policy toys_of_cli:broken_policy raised KeyError: 'weights'" in capsys.readouterr().err
    )


def test_an_environment_without_images_has_no_picture_and_says_why(here, capsys):
    Path("toys_of_cli.py").write_text(TOY.replace('"rgb_array"', '"ansi"'))
    assert main(["run", "toys_of_cli:Toy n=2 backend=dummy", "--steps", "20", "--out", "out"]) == 0
    assert "draws none: no mode in its metadata gives images" in capsys.readouterr().out.replace(
        "\n", " "
    )
    assert not Path("out/tiles.png").exists()


def test_what_stands_in_brackets_is_printed_as_it_is(here, capsys):
    raises = """raise RuntimeError('pip install "toy[classic]"')"""
    Path("toys_of_cli.py").write_text(
        TOY.replace("return np.full((6, 8, 3), 10 + self.now, np.uint8)", raises)
    )
    assert (
        main(["run", "toys_of_cli:Toy n=2 backend=dummy", "--steps", "20", "--out", "out[bold]"])
        == 0
    )
    said = " ".join(capsys.readouterr().out.split())
    assert 'pip install "toy[classic]"' in said
    assert "out[bold]/monitor.csv" in said


# -- the door --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "no-such.yaml"], "no-such.yaml"),
        (["run", "CartPole-v9"], "CartPole-v9"),
        (["run", "cartpole.yaml", "--backend", "shmen"], 'Did you mean "shmem"?'),
        (["run", "cartpole.yaml", "--policy", "randm"], 'Did you mean "random"?'),
        (["run", "cartpole.yaml", "--steps", "0"], "--steps"),
        (["run", "cartpole.yaml", "--stepz", "4"], "--steps"),
        (["explain", "no-such.yaml"], "no-such.yaml"),
        (["check"], "PIPELINE"),
        (["runn"], "run"),
    ],
)
def test_a_call_that_cannot_be_used_is_one_message_and_status_2(here, capsys, arguments, message):
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert "Traceback" not in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "PATH.yaml"],
        ["plot", "PATH"],
        ["run", "cartpole.yaml", "--out", "PATH"],
        ["run", "cartpole.yaml", "--set", "wrappers.monitor.dir=PATH"],
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_a_path_that_the_system_refuses_to_look_at_is_one_message_and_status_2(
    here, capsys, arguments
):
    name = "x" * 300  # refused to everybody, as a folder of somebody else's is
    assert main([argument.replace("PATH", name) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert f"{name}" in error
    assert "File name too long" in error


@pytest.mark.parametrize(
    "text",
    [
        'env: "\\e[31mEVIL\\e[2J"',
        'env: CartPole-v1\nbackend: {name: shmem, "\\e[31mEVIL\\e[2J": 1}',
        'env: CartPole-v1\nwrappers: [dtype: "\\e[31mEVIL\\e[2J"]',
    ],
)
def test_what_a_terminal_would_obey_does_not_reach_it_from_a_strangers_file(here, capsys, text):
    Path("strange.yaml").write_text(text)
    for arguments in (["check"], ["explain"], ["run"], ["run", "--debug"]):
        assert main([arguments[0], "strange.yaml", *arguments[1:]]) in (1, 2)
        said = capsys.readouterr()
        assert "\x1b" not in said.out + said.err
        assert r"\u001b[31mEVIL\u001b[2J" in said.out + said.err


def test_nor_does_it_from_the_name_of_a_folder(here, capsys):
    wrapper = {"monitor": {"dir": "runs/\x1b[31mEVIL"}}
    Path("strange.json").write_text(
        json.dumps({"env": "CartPole-v1", "n": 1, "wrappers": [wrapper]})
    )
    assert main(["run", "strange.json", "--steps", "4"]) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert r"runs/\u001b[31mEVIL/monitor.csv" in said


def test_debug_shows_the_traceback(here):
    result = vecwrap_process("explain", "no-such.yaml", "--debug")
    assert result.returncode == 2
    assert "Traceback" in result.stderr
    assert "no-such.yaml" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", "CartPol-v1"],
        ["run", "toys_of_cli:Broken", "--n", "2", "--backend", "dummy"],
        ["check", "cartpole.yaml", "--ignore", "no_such"],
    ],
)
def test_debug_changes_no_exit_status(here, capsys, arguments):
    status = main(arguments)
    assert (
        main([*arguments, *(["--out", "other"] if arguments[0] == "run" else []), "--debug"])
        == status
    )
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--help"], *([name, "--help"] for name in ("run", "explain", "check", "list"))]
)
def test_help_has_an_example(here, capsys, arguments):
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "Usage" in said
    assert "Example: vecwrap " in said


def test_version(here, capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"vecwrap {vecwrap.__version__}\n"


def test_colours_are_off_when_piped_and_the_bar_too(here):
    result = vecwrap_process(
        "run", "cartpole.yaml", "--steps", "200", env={**os.environ, "TERM": "xterm-256color"}
    )
    assert result.returncode == 0, result.stderr
    assert "\x1b" not in result.stdout + result.stderr
    assert result.stdout.startswith("environment")


def test_a_terminal_sees_progress(here):
    text = on_a_terminal("run", "toys_of_cli:Slow", "--n", "2", "--steps", "300", "--out", "out")
    for words in ("agent steps", "steps/s", "episodes", "10.00 ± 0.00 over the last"):
        assert words in text


@pytest.mark.parametrize("arguments", [[], ["pong.yaml", "--vs", "sb3"], ["--help"]])
def test_a_command_that_is_gone_says_what_to_do_instead(arguments, capsys):
    assert main(["bench", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        "error: bench: there is no such command any more. `vecwrap tune PIPELINE` shows"
    )
    assert "make bench PIPELINE=FILE" in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "backend", "options"),
    [
        ("explain", "dummy", []),
        ("check", "subprocess", []),
        ("time", "dummy", ["--steps", "200"]),
    ],
)
def test_json_is_alone_in_the_output_whatever_an_environment_prints(
    here, command, backend, options
):
    # C's output too.
    buffered = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    pipeline = f"toys_of_cli:Talks n=2 seed=1 backend={backend}"
    result = vecwrap_process(command, pipeline, "--json", *options, env=buffered)
    assert result.returncode == 0, result.stderr
    assert isinstance(json.loads(result.stdout), (dict, list))
    for words in ("simulator ready", "server started"):
        assert words in result.stderr


def test_what_an_environment_prints_is_kept_from_json_in_this_process_too(here, capsys):
    assert main(["explain", "toys_of_cli:Talks n=2 backend=dummy", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["n"] == 2
    assert "simulator ready" in said.err
    assert main(["explain", "toys_of_cli:Talks n=2 backend=dummy"]) == 0
    assert "simulator ready" in capsys.readouterr().out
    assert main(["explain", "toys_of_cli:NoSuch", "--json"]) == 2
    print("as ever")
    assert capsys.readouterr().out == "as ever\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_json_where_an_output_is_closed(here, closed):
    command = f"{sys.executable} -m vecwrap explain cartpole.yaml --json {closed}"
    result = subprocess.run(
        command, shell=True, capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert closed == ">&-" or json.loads(result.stdout)["n"] == 3


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_terminal_libraries_the_extra_is_named(here, missing):
    program = (
        f"import sys; sys.modules[{missing!r}] = None; from vecwrap.cli import main; "
        "sys.exit(main(['list']))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 2
    assert install_command("cli") in result.stderr
    assert "Traceback" not in result.stderr


def test_a_reader_that_stops_reading_is_no_error(here):
    command = f"{sys.executable} -m vecwrap list | head -n 1"
    result = subprocess.run(
        command, shell=True, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["explain", "cartpole.yaml"], marks=pytest.mark.full),
        ["explain", "cartpole.yaml", "--json"],
        ["schema"],
    ],
)
def test_a_full_disk_under_the_output_is_one_message(here, arguments):
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "vecwrap", *arguments]
        result = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False
        )
    assert result.returncode == 1
    assert (
        result.stderr
        == "error: writing failed: No space left on device; free some space, or write elsewhere\n"
    )


def test_characters_that_the_output_lacks_are_written_as_escapes(here):
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = vecwrap_process("explain", "cartpole.yaml", env=ascii_only)
    assert (result.returncode, result.stderr) == (0, "")
    assert "\\u2192" in result.stdout
    for arguments in (
        ["explain", "cartpole.yaml"],
        ["check", "CartPole-v1 | ±"],
        ["check", "\udcffabc"],
    ):
        result = vecwrap_process(*arguments, "--json", env=ascii_only)
        assert result.stderr == ""
        data = json.loads(result.stdout)
    assert data[0]["pipeline"] == "\udcffabc"
    assert "\\udcffabc" in vecwrap_process("check", "\udcffabc").stdout


def test_the_help_and_the_page_tell_every_exit_status(capsys):
    assert main(["--help"]) == 0
    page = (Path(__file__).parents[2] / "docs" / "index.md").read_text(encoding="utf-8")
    for text in (capsys.readouterr().out, page):
        (told,) = re.findall(r"xit status(?: is|:) (.*?Ctrl-C)\.", " ".join(text.split()))
        assert re.findall(r"\b\d+\b", told) == ["0", "1", "2", "130"]


def test_only_the_module_of_the_command_that_is_asked_for_is_imported(here):
    program = (
        "import sys\nfrom vecwrap.cli import main\nassert main(['list', 'framestack']) == 0\n"
        "others = [name for name in sys.modules if name.startswith(('vecwrap.cli.', "
        "'vecwrap.tools.'))]\nassert not {'vecwrap.cli.run', 'vecwrap.cli.measure', "
        "'vecwrap.cli.curves'} & set(others), others\nassert main(['lisst']) == 2\nfrom "
        "vecwrap.cli.app import COMMANDS, app\nassert [command.name for command in "
        "app.registered_commands] == list(COMMANDS)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "Did you mean" in result.stderr


def test_ctrl_c_while_python_still_imports_is_no_traceback(here):
    program = (
        "import sys\n"
        "class Pressed:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'vecwrap.cli.app': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Pressed())\n"
        "from vecwrap.cli import main\n"
        "sys.exit(main(['list']))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "interrupted\n")


@pytest.mark.skipif(sys.platform != "linux", reason="SDL says so on Linux alone")
def test_where_there_is_no_display_nothing_complains_of_that(here):
    left_out = ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "SDL_VIDEODRIVER")
    environment = {key: value for key, value in os.environ.items() if key not in left_out}
    command = [
        sys.executable,
        "-m",
        "vecwrap",
        "run",
        "cartpole.yaml",
        "--steps",
        "6",
        "--set",
        "render_mode=rgb_array",
    ]
    command += ["--snapshot", "tiles.png"]
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert Path("tiles.png").exists()
