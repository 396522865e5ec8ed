"""What ``vecwrap run --out`` leaves in its folder, however the run ends; through the real entry
point.
"""

import csv
import json
import os
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import cv2
import gymnasium
import imageio.v3 as imageio
import numpy as np
import pytest

import vecwrap
from vecwrap.cli import main
from vecwrap.env.state_file import read_state
from vecwrap.errors import CheckpointError
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.run_output import versions
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.wrappers.normalize import Normalize
from vecwrap.wrappers.recording.run_record import RunRecord

TOYS = Path(__file__).with_name("toys_of_cli.py")
WALK = "toys_of_cli:Walk n=2 seed=5 backend=dummy | normalize"
OWN = {"pipeline.yaml", "run.json"}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A working directory with a module of environments."""
    (tmp_path / "toys_of_cli.py").write_text(TOYS.read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    sys.modules.pop("toys_of_cli", None)


def run(line, *arguments, out="out"):
    return main(["run", line, "--out", out, *map(str, arguments)])


def process(*arguments):
    command = [sys.executable, "-m", "vecwrap", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def rows(path, skip=0):
    return list(csv.DictReader(Path(path).read_text().splitlines()[skip:]))


def games(out="out"):
    return rows(f"{out}/monitor.csv", skip=1)


def facts(out="out"):
    return json.loads(Path(out, "run.json").read_text())


def test_the_folder_holds_what_the_run_was():
    assert run(WALK, "--steps", 100, "--policy", "toys_of_cli:counted", "--interval", 0.001) == 0
    assert {path.name for path in Path("out").iterdir()} == OWN | {
        "monitor.csv",
        "stats.npz",
        "tiles.png",
    }
    said = facts()
    assert (said["seed"], said["policy"], said["end"], said["steps"], said["episodes"]) == (
        5,
        "toys_of_cli:counted",
        "finished",
        100,
        10,
    )
    assert said["versions"]["vecwrap"] == vecwrap.__version__
    for name in ("numpy", "gymnasium", "opencv-python"):
        assert said["versions"][name] == metadata.version(name)
    assert said["started"] <= said["ended"]
    assert said["rate"] == pytest.approx(said["steps"] / said["seconds"], abs=0.1)
    planned = plan(PipelineSpec.load("out/pipeline.yaml")).pipeline
    assert (
        planned.hash
        == said["pipeline"]
        == plan(PipelineSpec.parse(f"{WALK} | monitor")).pipeline.hash
    )
    header = json.loads(Path("out/monitor.csv").read_text().splitlines()[0][1:])
    assert header["pipeline"] == read_state("out/stats.npz")["hash"] == said["pipeline"]


def test_the_counts_are_written_each_interval(monkeypatch):
    written = []
    update = RunRecord.update

    def spy(self, **counts):
        update(self, **counts)
        written.append(facts())

    monkeypatch.setattr(RunRecord, "update", spy)
    assert (
        run(
            "toys_of_cli:Slow n=2 backend=dummy autoreset=next_step",
            "--episodes",
            6,
            "--interval",
            0.001,
        )
        == 0
    )
    # Each vector step takes 10 ms; the step in which next-step mode resets has no action in it.
    assert list(dict.fromkeys(each["steps"] for each in written)) == [*range(2, 61, 2)]
    assert [each["episodes"] for each in written][9:11] == [2, 2]
    assert {(each["end"], each["ended"], each["restarts"]) for each in written} == {
        ("running", None, 0)
    }
    assert facts()["end"] == "finished"


@pytest.mark.parametrize(
    ("line", "package", "counts"),
    [
        ("PongNoFrameskip-v4 n=1 | atari", "ale-py", True),
        ("InvertedPendulum-v5 n=1", "mujoco", True),
        ("Pendulum-v1 n=1", "mujoco", False),
        ("pettingzoo:classic/connect_four-v3 n=1", "pettingzoo", True),
        ("pettingzoo.classic.rps.rps:parallel_env n=1", "pettingzoo", True),
        ("Pendulum-v1 n=1", "pettingzoo", False),
    ],
)
def test_versions_are_of_what_the_stream_comes_from(line, package, counts):
    pytest.importorskip(package.replace("-", "_"))
    expected = metadata.version(package) if counts else None
    assert versions(plan(PipelineSpec.parse(line))).get(package) == expected


def test_what_is_piped_has_a_line_an_interval(capsys):
    assert run("toys_of_cli:Slow n=2 backend=dummy", "--steps", 60, "--interval", 0.05) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("seconds")]
    assert len(lines) > 1
    for line in lines:
        for words in ("agent steps", "steps/s", "episodes", "score"):
            assert words in line
    assert "score 10.00 ± 0.00 over the last" in lines[-1]


def test_a_run_without_a_seed_gets_one_that_repeats_it():
    line = "CartPole-v1 n=2 backend=dummy"
    assert run(line, "--steps", 200) == 0
    seed = facts()["seed"]
    assert PipelineSpec.load("out/pipeline.yaml").seed == seed
    assert run(line, "--steps", 200, "--seed", seed, out="again") == 0
    lengths = [[game["l"] for game in games(folder)] for folder in ("out", "again")]
    assert lengths[0] == lengths[1]
    assert len(set(lengths[0])) > 2


def test_a_folder_that_holds_a_run_is_refused_and_left_as_it_is(capsys):
    assert run(WALK, "--steps", 20) == 0
    before = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    capsys.readouterr()
    assert run(WALK, "--steps", 20) == 2
    said = capsys.readouterr()
    assert said.err.startswith(
        "error: out: there is a run already (pipeline.yaml, run.json, stats.npz"
    )
    assert "Give another folder with --out" in said.err
    # Nor does the pipeline in it write there.
    assert main(["run", "out/pipeline.yaml", "--steps", "20"]) == 2
    assert "To go on with its statistics: vecwrap run out --steps" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before


def test_without_out_an_earlier_run_is_moved_aside():
    assert run(WALK, "--steps", 20) == 0
    before = {
        name: Path("out", name).read_bytes() for name in ("run.json", "pipeline.yaml", "stats.npz")
    }
    assert main(["run", f"{WALK} | monitor:dir=out", "--steps", "20"]) == 0
    assert {name: Path("out", f"{name}.1").read_bytes() for name in before} == before
    assert not Path("out/stats.npz").exists()


@pytest.mark.parametrize("out", ["file", "file/out", "circle", "circle/out"])
def test_a_folder_that_cannot_be_written_is_one_message(capsys, out):
    Path("file").write_text("")
    Path("circle").symlink_to("circle")
    assert run(WALK, "--steps", 20, out=out) == 2
    assert (
        f'--out: expected a folder that files can be written to, got "{out}": '
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("pipeline", "folder"), [(WALK, "runs"), (f"{WALK} | monitor:dir=file/out", "file/out")]
)
def test_where_no_folder_was_given_the_message_names_the_monitors(capsys, pipeline, folder):
    Path("file").write_text("")
    Path("runs").write_text("")
    assert main(["run", pipeline, "--steps", "20"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(
        f'error: monitor: dir: expected a folder that files can be written to, got "{folder}'
    )
    assert said.endswith("; give another, or leave dir out\n")


def test_what_is_refused_of_the_monitor_has_its_line_though_the_run_gives_it_a_folder(capsys):
    wrappers = "  - monitor: {dir: out, stats_key: inner}\n  - monitor: a\n"
    Path("two.yaml").write_text(f"env: CartPole-v1\nn: 1\nwrappers:\n{wrappers}")
    assert run("two.yaml", "--steps", 20) == 2
    assert (
        'error: two.yaml:5: wrappers[1] "monitor": dir: an inner monitor writes'
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "arguments", [("--policy", "toys_of_cli:nobody"), ("--set", "wrappers.normalize.gama=1")]
)
def test_a_call_that_cannot_be_used_leaves_no_folder(arguments):
    assert run(WALK, *arguments) == 2
    assert not Path("out").exists()


def test_a_killed_run_loses_at_most_the_row_in_flight(capsys):
    line = WALK.replace("Walk", "Slow").replace(" | normalize", "")
    result = process(
        "run", line, "--policy", "toys_of_cli:killed", "--interval", 0.001, "--out", "out"
    )
    assert result.returncode == -signal.SIGKILL
    assert [(game["r"], game["l"]) for game in games()] == [("10.0", "10")] * 6
    # 39 vector steps of two.
    assert (facts()["end"], facts()["ended"], facts()["steps"]) == (
        "running",
        None,
        78,
    )
    assert main(["compare", "out"]) == 0
    assert "has not ended, or was killed" in capsys.readouterr().out
    assert main(["run", "out", "--steps", "20"]) == 0


@pytest.mark.parametrize("policy", ["killed", "killed_while_saving"])
def test_statistics_of_a_killed_run_are_whole_and_used(policy):
    arguments = ("--policy", f"toys_of_cli:{policy}", "--interval", 1e-3, "--steps", 1000)
    result = process("run", WALK, *arguments, "--out", "out")
    assert result.returncode == -signal.SIGKILL, result.stderr
    assert facts()["steps"] == (78 if policy == "killed" else 80)
    half = [path.read_bytes() for path in Path("out").glob(".*.tmp")]
    assert half == ([] if policy == "killed" else [b"PK half of an archive"])
    with vecwrap.build(WALK) as same:
        same.reset()
        for _ in range(39):
            same.step([0, 0])
        expected = same.find(Normalize).wrapper_statistics()["observations"]
        with vecwrap.load("out", mode="eval") as env:
            statistics = env.find(Normalize).wrapper_statistics()["observations"]
            np.testing.assert_allclose(statistics.mean, expected.mean)
            np.testing.assert_allclose(statistics.var, expected.var)


def test_a_disk_that_fills_up_is_a_warning_for_each_file_and_leaves_whole_files():
    result = process(
        "run",
        WALK,
        "--policy",
        "toys_of_cli:full_disk",
        "--interval",
        1e-3,
        "--steps",
        100,
        "--out",
        "out",
    )
    assert result.returncode == 0, result.stderr
    assert "agent steps  100 in" in result.stdout
    assert result.stderr.count("out/run.json cannot be written") == 1
    assert result.stderr.count("out/stats.npz cannot be written") == 1
    assert facts()["steps"] == 38
    assert read_state("out/stats.npz")["statistics"]


@pytest.mark.parametrize("interval", [0.001, 60], ids=["at a line", "at the summary"])
def test_a_full_disk_under_the_output_ends_the_run_with_its_files_whole(interval):
    arguments = ["run", WALK, "--steps", "100", "--interval", str(interval), "--out", "out"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "vecwrap", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: writing failed: No space left on device")
    assert facts()["end"] == (
        "finished" if interval == 60 else "failed: OSError: [Errno 28] No space left on device"
    )


def test_a_lost_row_is_no_agent_step_and_restarts_are_counted(capsys):
    line = (
        "toys_of_cli:Fragile n=2 backend=dummy backend.on_failure=restart "
        "backend.max_restarts=null backend.restart_backoff=0"
    )
    assert run(line, "--steps", 40, "--interval", 0.001) == 0
    restarts = facts()["restarts"]
    assert restarts >= 8
    assert f"restarts     {restarts} sub-environments were lost" in capsys.readouterr().out
    taken = Path("taken.txt").stat().st_size
    assert taken == facts()["steps"] == 40


def test_what_fails_stands_in_the_folder_too(capsys):
    assert run("toys_of_cli:Broken n=2 backend=dummy") == 1
    assert "the wheel came off" in capsys.readouterr().err
    assert facts()["end"].startswith("failed: ")
    assert "the wheel came off" in facts()["end"]
    assert facts()["steps"] == 0


FAILS = """
from vecwrap.env.wrapper import VecEnvWrapper


class Stumbles(VecEnvWrapper):
    steps = 0

    def on_step(self, step):
        self.steps += 1
        if self.steps == 6:  # the reset's, and four
            raise ValueError("no such shape")


class Speechless(ValueError):
    def __str__(self):
        raise RuntimeError("no words")


class Gags(VecEnvWrapper):
    steps = 0

    def on_step(self, step):
        self.steps += 1
        if self.steps == 6:
            raise Speechless


class Jams(VecEnvWrapper):
    def on_close(self):
        raise ValueError("it does not shut")


class Leaves(VecEnvWrapper):
    steps = 0

    def on_step(self, step):
        self.steps += 1
        if self.steps == 6:
            raise SystemExit(0)
"""


@pytest.mark.parametrize(
    ("wrapper", "steps", "message", "statistics"),
    [
        # Normalize has counted a step that came to no end.
        (
            "Stumbles",
            400,
            "no such shape",
            False,
        ),
        ("Jams", 8, "it does not shut", True),
    ],
)
def test_an_exception_of_a_wrapper_of_the_users_leaves_the_end_in_the_folder(
    here, capsys, wrapper, steps, message, statistics
):
    (here / "mine").mkdir()
    (here / "mine" / "failing.py").write_text(FAILS)
    with pytest.raises(ValueError, match=message):
        run(f"{WALK} | mine.failing:{wrapper}", "--steps", steps)
    sys.modules.pop("mine.failing", None)
    assert "agent steps  8 in" in capsys.readouterr().out
    assert (facts()["end"], facts()["steps"]) == (f"failed: ValueError: {message}", 8)
    assert facts()["ended"] is not None
    assert Path("out/stats.npz").exists() is statistics


def test_what_cannot_even_be_printed_leaves_the_end_in_the_folder(here):
    (here / "mine").mkdir()
    (here / "mine" / "failing.py").write_text(FAILS)
    with pytest.raises(ValueError):  # its message cannot be looked at
        run(f"{WALK} | mine.failing:Gags", "--steps", 400)
    sys.modules.pop("mine.failing", None)
    assert facts()["end"] == "failed: Speechless: (its message cannot be shown)"


def test_a_failure_whose_message_is_no_utf_8_stands_in_the_folder_too():
    result = process("run", "toys_of_cli:Garbled n=2 backend=dummy", "--out", "out")
    assert result.returncode == 1
    assert result.stderr.startswith("error: sub-environment 0 ")
    assert r": lvl \udc80" in result.stderr
    assert r": lvl \udc80" in facts()["end"]


@pytest.mark.parametrize("backend", ["subprocess", "shmem"])
def test_statistics_are_saved_though_the_workers_are_gone(capsys, backend):
    line = f"toys_of_cli:Dies n=2 backend={backend} backend.workers=2 | normalize"
    assert run(line, "--steps", 400) == 1
    said = capsys.readouterr()
    assert "agent steps  28 in" in said.out
    assert "killed by SIGKILL" in said.err
    assert facts()["end"].startswith("failed: worker ")
    assert facts()["steps"] == 28
    (normalize,) = (wrapper for wrapper in read_state("out/stats.npz")["statistics"] if wrapper)
    # 2 of the reset, and 28.
    assert normalize["observations"]["count"] == pytest.approx(30, abs=0.01)
    with (
        pytest.raises(CheckpointError, match="got its running statistics alone"),
        vecwrap.load("out") as env,
    ):
        env.load("out/stats.npz")


def test_record_adds_videos_to_the_folder(capsys):
    assert run("toys_of_cli:Toy n=2 backend=dummy", "--record", "--episodes", 4) == 0
    assert "out/videos/video-episode-000001.mp4" in capsys.readouterr().out
    video = cv2.VideoCapture("out/videos/video-episode-000000.mp4")
    frames = sum(1 for _ in iter(lambda: video.read()[0], False))
    video.release()
    assert frames == 11  # the reset's, and one a step
    assert (
        json.loads(Path("out/videos/video-episode-000000.json").read_text())["pipeline"]
        == facts()["pipeline"]
    )


def test_record_keeps_what_the_pipeline_says_of_its_videos():
    line = (
        "toys_of_cli:Toy n=2 backend=dummy render_mode=rgb_array | "
        "video:dir=elsewhere,by=steps,every=7,length=3"
    )
    assert run(line, "--record", "--steps", 20) == 0
    assert {path.stem for path in Path("out/videos").glob("*.mp4")} == {
        "video-step-000000",
        "video-step-000007",
    }
    assert not Path("elsewhere").exists()
    # Without a folder to fill, they go where the pipeline says, and by default beside monitor.csv.
    assert main(["run", f"{line} | monitor:dir=m", "--record", "--steps", "20"]) == 0
    assert len(list(Path("elsewhere").glob("*.mp4"))) == 2
    assert (
        main(
            [
                "run",
                "toys_of_cli:Toy n=2 backend=dummy | monitor:dir=m",
                "--record",
                "--steps",
                "20",
            ]
        )
        == 0
    )
    assert Path("m/videos/video-episode-000000.mp4").exists()


PRESETS = """
from vecwrap.wrappers.presets import Preset

@Preset
def recorded(dir: str | None = "runs/preset"):
    return [{"monitor": {"dir": dir}}, "terminal_obs"]

@Preset
def filmed(dir: str = "runs/films"):
    return [{"video": {"dir": dir}}]
"""


@pytest.fixture
def presets(here):
    """Presets that hold a monitor and a video wrapper."""
    (here / "presets_of_run.py").write_text(PRESETS)
    yield here
    sys.modules.pop("presets_of_run", None)


@pytest.mark.usefixtures("presets")
def test_a_monitor_within_a_preset_is_the_runs():
    line = f"{WALK} | presets_of_run:recorded:"
    assert main(["run", f"{line}dir=mine", "--steps", "40"]) == 0
    assert len(rows("mine/monitor.csv", skip=1)) == 4
    assert main(["run", f"{line}dir=null", "--steps", "40"]) == 0
    assert Path("runs/toys_of_cli-Walk/monitor.csv").exists()
    assert run(line, "--steps", 40) == 0
    assert len(games()) == 4
    assert not Path("runs/preset").exists()
    spec = PipelineSpec.load("out/pipeline.yaml")
    assert spec.wrapper_names == ("normalize", "monitor", "terminal_obs")
    assert facts()["pipeline"] == plan(PipelineSpec.parse(line)).pipeline.hash
    assert main(["run", "out", "--steps", "20"]) == 0


@pytest.mark.usefixtures("presets")
def test_videos_of_a_preset_go_into_the_runs_folder():
    assert run(f"{WALK} | presets_of_run:filmed:", "--steps", 40, "--record") == 0
    assert list(Path("out/videos").glob("*.mp4"))
    assert not Path("runs").exists()


@pytest.mark.usefixtures("presets")
@pytest.mark.parametrize("wrapper", ["presets_of_run:recorded", "monitor"])
def test_an_evaluation_with_a_monitor_of_its_own_gets_no_second_one(wrapper):
    Path("own.yaml").write_text(
        "env: toys_of_cli:Toy\nn: 2\nbackend: dummy\nwrappers: [flatten]\neval:\n  wrappers:\n"
        f"    - {wrapper}: {{dir: runs/own}}\n"
    )
    assert run("own.yaml", "--steps", 40) == 0
    assert len(games()) == 4
    assert main(["run", "out", "--eval", "--episodes", "2"]) == 0
    assert Path("runs/own/eval/monitor.csv" if ":" in wrapper else "runs/own/monitor.csv").exists()


@pytest.mark.usefixtures("presets")
def test_the_evaluation_of_a_preset_that_is_named_goes_along():
    Path("named.yaml").write_text(
        "env: toys_of_cli:Toy\nn: 2\nbackend: dummy\nwrappers: [{presets_of_run:recorded: {}}]\n"
        "eval: {n: 1, wrappers: {recorded: {dir: runs/preset}}}\n"
    )
    assert run("named.yaml", "--steps", 40) == 0
    assert main(["run", "out", "--eval", "--episodes", "2"]) == 0
    assert len(rows("out/eval/monitor.csv", skip=1)) == 2
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("mode", "episodes"),
    [("same_step", 20), ("next_step", 20), ("disabled", 20), ("episodic", 20), ("same_step", 120)],
)
def test_an_evaluation_plays_the_quota_of_each_and_no_short_episode_is_favoured(
    here, capsys, mode, episodes
):
    Path("l.yaml").write_text(
        "env: tests.helpers.toy_envs:Lottery\nn: 8\nseed: 3\nbackend: dummy\nautoreset: "
        f"{mode}\neval: {{}}\n"
    )
    with vecwrap.load("l.yaml", mode="eval") as env:
        expected = vecwrap.evaluate(env, lambda observations: np.zeros(8, int), episodes).returns
    assert main(["run", "l.yaml", "--steps", "16", "--out", "out"]) == 0
    for arguments in (["run", "l.yaml", "--out", "first"], ["run", "out", "--out", "second"]):
        capsys.readouterr()
        assert main([*arguments, "--eval", "--episodes", str(episodes)]) == 0
        said = capsys.readouterr().out
        assert f"{expected.mean():.2f} ± {expected.std():.2f}, from 1 to 30" in said
        assert facts(arguments[-1])["episodes"] == episodes
        counts = np.bincount([int(game["env"]) for game in games(arguments[-1])], minlength=8)
        assert (counts >= (episodes + np.arange(8)) // 8).all()
    sys.modules.pop("lottery_of_run", None)


def test_record_needs_pictures(capsys):
    Path("toys_of_cli.py").write_text(TOYS.read_text().replace('"rgb_array"', '"ansi"'))
    assert run("toys_of_cli:Toy n=2 backend=dummy", "--record") == 2
    assert "--record: expected an environment that renders images" in capsys.readouterr().err
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("entry_point", "says"),
    [
        (
            "no_such_module_x:Env",
            "raised ModuleNotFoundError in make: No module named 'no_such_module_x'",
        ),
        (
            "toys_of_cli:Absent",
            "raised AttributeError in make: module 'toys_of_cli' has no attribute 'Absent'",
        ),
        ("exits_when_run:Env", "raised SystemExit in make: 0"),
    ],
)
def test_an_id_whose_module_cannot_be_imported_is_one_message(here, capsys, entry_point, says):
    (here / "exits_when_run.py").write_text("import sys\nsys.exit(0)\n")
    gymnasium.register("Unmakeable-v0", entry_point)
    try:
        assert main(["run", "Unmakeable-v0 n=2 backend=dummy", "--steps", "4"]) == 1
    finally:
        gymnasium.registry.pop("Unmakeable-v0")
    said = capsys.readouterr()
    assert said.err.startswith(f"error: sub-environment 0 (unseeded) {says}")
    assert said.out == ""


def test_the_installed_command_finds_what_lies_in_the_working_directory():
    Path("imageio.py").write_text("raise AssertionError('what is installed comes first')")
    command = [
        str(Path(sys.executable).with_name("vecwrap")),
        "run",
        "toys_of_cli:Toy n=2",
        "--steps",
        "20",
    ]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    result = subprocess.run(
        [*command, "--policy", "toys_of_cli:counted"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert "toys_of_cli:counted" in result.stdout


def test_brackets_are_no_markup(capsys):
    assert run("toys_of_cli:Toy n=2 backend=dummy", "--steps", 20, out="runs/[b]1[/b]") == 0
    assert "runs/[b]1[/b]/monitor.csv" in capsys.readouterr().out
    assert main(["check", "runs/[b]1[/b]"]) == 0
    assert "runs/[b]1[/b]" in capsys.readouterr().out


def test_the_command_that_repeats_a_run_can_be_pasted(capsys):
    assert run("toys_of_cli:Toy n=2 backend=dummy", "--steps", 20, out="o ü[b]") == 0
    assert "o ü[b], run again by: vecwrap run 'o ü[b]'" in capsys.readouterr().out
    assert run("toys_of_cli:Toy n=2 backend=dummy", "--steps", 20, out="o ü[b]") == 2
    assert "vecwrap run 'o ü[b]' --steps 20000" in capsys.readouterr().err


def test_a_picture_that_the_disk_has_no_room_for_leaves_the_old_one_whole():
    line = "toys_of_cli:Toy n=2 backend=dummy"
    assert run(line, "--steps", 20, "--snapshot", "tiles.png") == 0
    before = Path("tiles.png").read_bytes()
    arguments = [
        "--steps",
        "60",
        "--policy",
        "toys_of_cli:full_disk",
        "--snapshot",
        "tiles.png",
        "--out",
        "again",
    ]
    done = process("run", line, *arguments)
    assert (done.returncode, "picture      none: " in done.stdout) == (0, True)
    assert Path("tiles.png").read_bytes() == before
    assert not list(Path().glob(".*"))


def test_a_picture_that_cannot_be_written_costs_no_summary(capsys):
    Path("out/tiles.png").mkdir(parents=True)
    assert run("toys_of_cli:Toy n=2 backend=dummy", "--steps", 20) == 0
    assert "picture      none: " in capsys.readouterr().out
    assert facts()["end"] == "finished"


def test_a_picture_that_cannot_be_rendered_costs_nothing_else():
    done = process("run", WALK.replace("Walk", "Blind"), "--steps", 20, "--out", "out")
    assert done.returncode == 0, done.stderr
    assert "picture      none: sub-environment 0 " in done.stdout
    assert "no display" in done.stdout
    assert (facts()["end"], facts()["steps"]) == ("finished", 20)
    assert {path.name for path in Path("out").iterdir()} == OWN | {"monitor.csv", "stats.npz"}


def test_statistics_are_written_before_the_picture_is_taken():
    done = process("run", WALK.replace("Walk", "Aborts"), "--steps", 20, "--out", "out")
    assert done.returncode == -signal.SIGABRT
    assert facts()["steps"] == 20
    (normalize,) = (wrapper for wrapper in read_state("out/stats.npz")["statistics"] if wrapper)
    # 2 of the reset, and 20.
    assert normalize["observations"]["count"] == pytest.approx(22, abs=0.01)


def test_a_snapshot_goes_where_it_is_asked_for_with_the_labels_of_the_pipeline(capsys):
    line = "toys_of_cli:Toy n=3 backend=dummy"
    assert run(f"{line} | tile", "--steps", 20, "--snapshot", "shots/one.png") == 0
    assert "picture      shots/one.png" in capsys.readouterr().out
    assert not Path("out/tiles.png").exists()
    assert run(line, "--steps", 20, "--snapshot", "shots/two.webp", out="other") == 0
    plain, labelled = imageio.imread("shots/one.png"), imageio.imread("shots/two.webp")
    assert labelled.shape != plain.shape  # small frames are enlarged until their labels can be read
    assert run(line, "--steps", 20, "--snapshot", "three.txt", out="third") == 2
    assert (
        '--snapshot: expected a file .png, .jpg, .webp, got "three.txt"' in capsys.readouterr().err
    )
    assert not Path("third").exists()


@pytest.mark.parametrize("mode", ["same_step", "next_step", "episodic"])
@pytest.mark.parametrize("steps", [27, 30, 33])
def test_the_picture_has_the_labels_of_the_wrapper_tile(mode, steps):
    line = f"toys_of_cli:Toy n=3 seed=1 backend=dummy autoreset={mode} | clip_reward"
    assert run(f"{line} | tile:labels=true", "--steps", steps, "--snapshot", "one.png") == 0
    assert run(line, "--steps", steps, "--snapshot", "two.png", out="other") == 0
    assert (imageio.imread("one.png") == imageio.imread("two.png")).all()


def test_a_reader_that_stops_reading_ends_the_run_with_its_files_whole():
    """`vecwrap run ... | head -n 1`: the run would go on for an hour."""
    command = [
        sys.executable,
        "-m",
        "vecwrap",
        "run",
        WALK,
        "--steps",
        "1000000000",
        "--interval",
        "0.01",
        "--out",
        "out",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.readline()
        running.stdout.close()
        said = running.stderr.read()
        assert running.wait(60) == 128 + signal.SIGPIPE
    assert said == b""
    facts = json.loads(Path("out/run.json").read_text())
    assert facts["end"] == "interrupted by the closing of its output pipe"
    assert facts["steps"] > 0
    assert vecwrap.load("out").close() is None


def test_without_the_package_that_draws_a_run_has_no_picture_unless_one_is_asked_for(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pygame", None)
    missing = 'CartPole-v1 needs pygame to draw: pip install "gymnasium[classic-control]"'
    run = ["run", "CartPole-v1 n=1 backend=dummy", "--steps", "4"]
    for option in (["--snapshot", "tiles.png"], ["--record"]):
        assert main([*run, *option]) == 2
        said = capsys.readouterr()
        assert (said.out, said.err) == ("", f"error: {option[0]}: {missing}\n")
    assert main(run) == 0
    assert f"picture      none: {missing}\n" in capsys.readouterr().out
