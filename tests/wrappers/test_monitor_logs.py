"""The monitor's other logs, read back with each tool's own reader and held against a naive loop."""

import contextlib
import gc
import os
import struct
import subprocess
import sys
import textwrap
import threading
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import vecwrap
import vecwrap.testing
from tests.helpers.backends import DummyBackend
from tests.helpers.polling import until
from tests.helpers.stream_envs import Driver, ToyEnv
from tests.wrappers.test_monitor import MODES, factories, play, read
from vecwrap.errors import PlanError, SpecError, install_command
from vecwrap.pipeline.evaluation import evaluation
from vecwrap.pipeline.no_imports import load_without_imports
from vecwrap.wrappers.monitor import Episode, Monitor
from vecwrap.wrappers.recording import sinks
from vecwrap.wrappers.recording.sinks import Curves

pytest.importorskip("tensorboardX")
EventAccumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator"
).EventAccumulator

ROOT = Path(__file__).parents[2]
LENGTHS = (3, 5, 2)
GAMES = []  # of the function that a file names


def keep(episode):
    GAMES.append(episode)


def curves(folder):
    """What TensorBoard itself reads: steps and values by tag."""
    reader = EventAccumulator(str(folder))
    reader.Reload()
    return {
        tag: [(event.step, event.value) for event in reader.Scalars(tag)]
        for tag in reader.Tags()["scalars"]
    }


def history(path):
    """Rows of a run of W&B, the x-axes of its metrics, and whether it is finished: LevelDB's log of
    W&B's messages.
    """
    messages = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    content, place, rows, axes, parts, finished = path.read_bytes(), 7, [], {}, b"", False
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        _, length, kind = struct.unpack("<IHB", content[place : place + 7])
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or its last part
            record = messages.Record.FromString(parts)
            parts = b""
            finished |= record.HasField("exit")
            if record.HasField("history"):
                items = record.history.item
                rows.append(
                    {item.key or "/".join(item.nested_key): item.value_json for item in items}
                )
            if record.HasField("metric"):
                axes[record.metric.name or record.metric.glob_name] = record.metric.step_metric
    return rows, axes, finished


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """W&B without a network, and without a run when the test begins and ends."""
    wandb = pytest.importorskip("wandb")
    for name, value in {
        "MODE": "offline",
        "SILENT": "true",
        "DIR": str(tmp_path),
        "ERROR_REPORTING": "false",
    }.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    assert wandb.run is None
    yield wandb
    if wandb.run is not None:
        wandb.finish()
        pytest.fail("a run of W&B was left open")


@contextlib.contextmanager
def one_warning(match):
    with pytest.warns(RuntimeWarning, match=match) as caught:
        yield
    assert len(caught) == 1


def of_run(tmp_path, wandb_folder="wandb"):
    (path,) = (tmp_path / wandb_folder).glob("offline-run-*/run-*.wandb")
    assert until(lambda: history(path)[2])  # by a process of W&B's, which may be behind
    rows, axes, _ = history(path)
    found = {}
    for row in rows:
        for key, value in row.items():
            if key.startswith("episode/"):
                found.setdefault(key, []).append((int(row["agent_steps"]), float(value)))
    return found, axes


def settle(env):
    """Wait until everything is logged."""
    monitor = env.find(Monitor)
    assert until(lambda: not any(sink._waiting for sink in monitor._sinks))


@pytest.fixture
def each_alone(monkeypatch):
    """A point for each vector step in which games ended: with ``settle`` after it, none waits for
    the next.
    """
    monkeypatch.setattr(sinks, "FLUSH_INTERVAL_SECONDS", 0.001)


def expected(env, steps, action=0):
    """Play, and compute the curves by a loop from what the environment itself reports."""
    found, last = {}, {"return": {}, "length": {}}
    env.reset(seed=1)
    for step in range(1, steps + 1):
        infos = env.step([action] * env.num_envs)[-1]
        settle(env)
        for i in range(env.num_envs):
            if "episode" in infos and infos["_episode"][i]:
                last["return"][i], last["length"][i] = (
                    infos["episode"]["r"][i],
                    infos["episode"]["l"][i],
                )
        if "episode" not in infos:
            continue
        ended = infos["_episode"]
        for name, key in (("return", "r"), ("length", "l")):
            curve = f"episode/{name}"
            found.setdefault(curve, []).append(
                (step * env.num_envs, np.mean(infos["episode"][key][ended]))
            )
            for q in (10, 50, 90):
                value = np.quantile(list(last[name].values()), q / 100)
                found.setdefault(f"{curve}_q{q}", []).append((step * env.num_envs, value))
    return found


def assert_same(read_back, wanted):
    assert read_back.keys() == wanted.keys()
    for name, points in wanted.items():
        assert [step for step, _ in read_back[name]] == [step for step, _ in points]
        assert np.allclose(
            [value for _, value in read_back[name]], [value for _, value in points], rtol=1e-6
        )


def build(log, folder=None, count=3, **arguments):
    return Monitor(
        DummyBackend(factories(LENGTHS, count=count)), folder and str(folder), log=log, **arguments
    )


# -- curves, read back -----------------------------------------------------------------------------


def test_tensorboard_reads_the_curves_that_a_loop_computes(each_alone, tmp_path):
    with build(["csv", "tensorboard"], tmp_path) as env:
        wanted = expected(env, 30)
    assert len(wanted["episode/return"]) > 8
    assert_same(curves(tmp_path / "tensorboard"), wanted)
    assert len(read(tmp_path / "monitor.csv")[1]) == env.num_episodes


def test_wandb_joins_an_active_run_and_leaves_it_open(each_alone, offline, tmp_path):
    run = offline.init(dir=str(tmp_path))
    with build("wandb") as env:
        wanted = expected(env, 30)
    assert offline.run is run
    run.log({"mine": 1.0})
    run.finish()
    found, axes = of_run(tmp_path)
    assert_same(found, wanted)
    assert axes["episode/*"] == "agent_steps"


def test_wandb_begins_a_run_if_none_is_active_and_finishes_it(each_alone, offline, tmp_path):
    with build("wandb", tmp_path / "run") as env:
        wanted = expected(env, 12)
        assert offline.run is not None
    assert offline.run is None
    assert_same(of_run(tmp_path / "run")[0], wanted)
    assert not (tmp_path / "run" / "monitor.csv").exists()  # it was not asked for


def test_a_run_of_wandb_that_is_given_stays_open(each_alone, offline, tmp_path):
    run = offline.init(dir=str(tmp_path))
    with build([run]) as env:
        wanted = expected(env, 12)
    assert offline.run is run
    run.finish()
    assert_same(of_run(tmp_path)[0], wanted)


def test_a_run_of_wandb_that_others_have_finished_is_one_warning(offline, tmp_path):
    run = offline.init(dir=str(tmp_path))
    run.finish()
    with one_warning(r"monitor: log: Run failed \("), build([run]) as env:
        play(env, 20)
        assert env.num_episodes > 10


@pytest.mark.parametrize("module", ["torch.utils.tensorboard", "tensorboardX"])
def test_a_writer_that_is_given_is_written_to_and_stays_open(module, each_alone, tmp_path):
    with pytest.importorskip(module).SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("loss", 1.0, 0)
        with build(writer) as env:
            wanted = expected(env, 12)
        writer.add_scalar("loss", 0.5, 36)
    found = curves(tmp_path)
    assert found.pop("loss") == [(0, 1.0), (36, 0.5)]
    assert_same(found, wanted)


def test_one_sub_environment_has_no_quantiles(each_alone, tmp_path):
    with build("tensorboard", tmp_path, count=1) as env:
        play(env, 12)
    assert curves(tmp_path / "tensorboard").keys() == {"episode/return", "episode/length"}


def test_games_that_end_between_two_points_are_their_mean():
    first = [
        (Episode(1.0, 4, 0.1, 0, steps=8), {"won": True, "who": "me"}),
        (Episode(2.0, 4, 0.1, 1, steps=8), {}),
    ]
    second = [(Episode(6.0, 8, 0.2, 1, steps=24), {"won": False})]
    values = Curves("seen", ["", ""]).values([*first, *second])
    assert values["seen/return"] == 3.0
    assert values["seen/return_q50"] == 3.5  # of the last ones, 1 and 6
    assert values["seen/length"] == pytest.approx(16 / 3)
    assert values["seen/won"] == 0.5
    assert "seen/who" not in values


def test_each_agent_of_a_game_has_its_own_curves():
    log = Curves("episode", ["a", "b", "a", "b"])
    episodes = [
        Episode(1.0, 4, 0.1, 0, "a", 8),
        Episode(-1.0, 3, 0.1, 1, "b", 8),
        Episode(3.0, 4, 0.1, 2, "a", 8),
    ]
    values = log.values([(episode, {}) for episode in episodes])
    assert (values["episode/return_a"], values["episode/return_b"]) == (2.0, -1.0)
    assert values["episode/return_a_q50"] == 2.0
    assert values["episode/return_b_q90"] == -1.0
    assert "episode/return" not in values


def test_a_score_that_is_no_number_leaves_the_quantiles_to_the_others():
    log = Curves("episode", ["", ""])
    values = log.values([(Episode(np.nan, 4, 0.1, 0), {}), (Episode(2.0, 4, 0.1, 1), {})])
    assert np.isnan(values["episode/return"])
    assert values["episode/return_q10"] == values["episode/return_q90"] == 2.0


def test_info_keys_that_are_numbers_are_curves(each_alone, tmp_path):
    with build("tensorboard", tmp_path, info_keys=("step", "nothing")) as env:
        play(env, 10)
        settle(env)
    found = curves(tmp_path / "tensorboard")
    assert [value for _, value in found["episode/step"]] == [
        value for _, value in found["episode/length"]
    ]
    assert "episode/nothing" not in found


# -- agent steps -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_steps_are_all_that_were_taken_in_all_sub_environments(mode):
    games = []
    operations = [
        ("step", ()),
        ("partial", (True, False, True)),
        ("reset", (False, True, False)),
        ("step", ()),
    ] * 12
    with Monitor(DummyBackend(factories(LENGTHS), autoreset=mode), log=games.append) as env:
        events = Driver(env).play(operations)
        taken = sum(event.kind == "step" for stream in events for event in stream)
        assert env.num_steps == taken
        settle(env)
        assert [episode.steps for episode in games] == sorted(episode.steps for episode in games)
    assert games[-1].steps <= taken


def test_steps_go_on_from_a_saved_state_and_what_was_logged_after_it_is_not_shown(
    each_alone, tmp_path
):
    def run(folder, resume=False):
        make = [lambda: vecwrap.testing.ToyEnv(limit=3)] * 2  # which offers its state
        return Monitor(DummyBackend(make), str(folder), log="tensorboard", resume=resume)

    def step(env, times):
        for _ in range(times):
            env.step([0, 1])
            settle(env)

    with run(tmp_path / "stays") as env:
        env.reset(seed=1)
        step(env, 14)
    with run(tmp_path / "goes on") as env:
        env.reset(seed=1)
        step(env, 7)
        state = env.state_dict()
        step(env, 4)  # and is killed
    with run(tmp_path / "goes on", resume=True) as env:
        env.load_state_dict(state)
        assert env.num_steps == 14
        step(env, 7)
        assert env.num_steps == 28
    wanted = curves(tmp_path / "stays" / "tensorboard")
    assert {step > 14 for step, _ in wanted["episode/return"]} == {False, True}
    assert curves(tmp_path / "goes on" / "tensorboard") == wanted


def test_files_of_an_earlier_run_are_moved_aside(tmp_path):
    for _ in range(3):
        with build("tensorboard", tmp_path) as env:
            play(env, 6)
    folders = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert sorted(path.name for path in folders) == [
        "tensorboard",
        "tensorboard.1",
        "tensorboard.2",
    ]
    for path in folders:
        assert curves(path)["episode/return"]


def link(target):
    return lambda path: path.symlink_to(target)


@pytest.mark.parametrize(
    "make", [os.mkfifo, Path.touch, link("nowhere"), link("tensorboard")], ids=range(4)
)
def test_whatever_has_the_name_of_its_folder_is_moved_aside(make, tmp_path):
    make(tmp_path / "tensorboard")
    with build("tensorboard", tmp_path) as env:
        play(env, 6)
    assert sorted(path.name for path in tmp_path.glob("tensorboard*")) == [
        "tensorboard",
        "tensorboard.1",
    ]
    assert curves(tmp_path / "tensorboard")["episode/return"]


# -- callables -------------------------------------------------------------------------------------


def test_a_callable_gets_every_game_in_order():
    games = []
    with build(games.append) as env:
        play(env, 40)
    assert games == list(env.recent)
    assert len(games) == env.num_episodes > 20


def test_a_callable_that_a_file_names_is_imported(tmp_path):
    GAMES.clear()
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        "env: CartPole-v1\nn: 2\nbackend: dummy\n"
        "wrappers: [{monitor: {log: ['tests.wrappers.test_monitor_logs:keep']}}]"
    )
    # pytest has imported this file under another name
    with vecwrap.load(path) as env:
        env.reset(seed=1)
        while not env.find(Monitor).num_episodes:
            env.step([0, 0])
    kept = sys.modules["tests.wrappers.test_monitor_logs"].GAMES
    assert [tuple(episode) for episode in kept] == [
        tuple(episode) for episode in env.find(Monitor).recent
    ]
    with pytest.raises(SpecError, match=r"log\[0\]: expected nothing to import"):
        load_without_imports(path)


ESCAPES = "\x1b[31mred\x07\r\nline \u202e"


@pytest.mark.parametrize(
    "kind", [RuntimeError, SystemExit, KeyboardInterrupt, type("K\x1b[0m", (Exception,), {})]
)
def test_what_a_callable_says_is_one_line_without_escapes(kind):
    def bad(episode):
        raise kind(ESCAPES)

    bad.__qualname__ = ESCAPES
    with pytest.warns(RuntimeWarning) as warned, build(bad) as env:
        play(env, 12)
    (text,) = {str(one.message) for one in warned}
    assert text.isprintable()
    assert r"\u001b[31mred\u0007\r\nline \u202e" in text
    assert text.endswith("; the run continues, and games are missing there")


def test_a_callable_that_raises_is_one_warning_and_gets_the_next_games():
    games = []

    def picky(episode):
        if len(games) % 2:
            games.append(None)
            raise ValueError(f"no, {episode.length}")
        games.append(episode)

    with (
        one_warning(r"monitor: log: the callable \S+picky failed \(ValueError: no, 3\); the run"),
        build(picky) as env,
    ):
        env.reset()
        for _ in range(20):
            env.step([0, 0, 0])
            settle(env)
    assert len(games) == env.num_episodes  # it is called with each


def test_a_callable_that_exits_does_not_end_the_run():
    with one_warning("SystemExit: 3"), build(lambda episode: sys.exit(3)) as env:
        play(env, 10)
        assert env.num_episodes == 9


def test_a_callable_may_close_the_environment():
    closed = threading.Event()

    def close(episode):
        if not closed.is_set():
            env.close()
            closed.set()

    with build(close) as env:
        play(env, 2)
        env.step([0, 0, 0])
        assert closed.wait(60)
    assert env.closed


# -- a log that does not keep up, or breaks --------------------------------------------------------


def test_no_step_waits_for_a_log_and_nothing_is_lost():
    go_on, games = threading.Event(), []

    def slow(episode):
        go_on.wait()
        games.append(episode)

    with build(slow) as env:
        play(env, 200)  # would never end if it waited
        assert games == []
        go_on.set()
    assert len(games) == env.num_episodes > 100


def test_games_that_find_the_queue_full_are_left_out_with_one_warning(monkeypatch):
    monkeypatch.setattr(sinks, "MAX_WAITING", 10)
    go_on, games = threading.Event(), []

    def slow(episode):
        go_on.wait()
        games.append(episode)

    with (
        one_warning(r"failed \(games of 10 steps are waiting for it\); the run continues"),
        build(slow) as env,
    ):
        play(env, 100)
        at_most = env.num_episodes
        go_on.set()
        settle(env)
        for _ in range(6):
            env.step([0, 0, 0])
    assert 10 <= len(games) < at_most
    assert games[-1] == env.recent[-1]  # those that find a place again are logged


def test_closing_does_not_wait_for_ever(monkeypatch):
    monkeypatch.setattr(sinks, "CLOSE_SECONDS", 0.05)
    go_on = threading.Event()
    with (
        pytest.warns(RuntimeWarning, match=r"it was not done within 0\.05 seconds"),
        build(lambda _: go_on.wait()) as env,
    ):
        play(env, 6)
    go_on.set()


def test_a_log_that_hangs_keeps_no_game_from_the_others(each_alone, tmp_path):
    go_on, games = threading.Event(), []
    with build(["tensorboard", lambda _: go_on.wait(), games.append], tmp_path) as env:
        play(env, 20)
        assert until(lambda: len(games) == env.num_episodes)
        assert until(
            lambda: (
                curves(tmp_path / "tensorboard").get("episode/return", [(0,)])[-1][0]
                == games[-1].steps
            )
        )
        go_on.set()


def test_a_disk_that_fills_costs_the_points_that_found_no_room_and_one_warning(tmp_path):
    program = textwrap.dedent(
        """
        import resource, sys, warnings
        from tests.wrappers.test_monitor_logs import build, settle
        from vecwrap.wrappers.recording import sinks
        sinks.FLUSH_INTERVAL_SECONDS = 0.001
        endless = resource.RLIM_INFINITY
        env = build("tensorboard", sys.argv[1])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            env.reset()
            for step in range(300):
                if step == 100:
                    (path,) = __import__("pathlib").Path(sys.argv[1]).glob("tensorboard/*")
                    full = path.stat().st_size + 400
                    resource.setrlimit(resource.RLIMIT_FSIZE, (full, endless))
                if step == 200:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (endless, endless))
                env.step([0, 0, 0])
                settle(env)
            env.close()
        print(env.num_episodes, [str(warning.message) for warning in caught])
        """
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert (
        ran.stdout.count("the run continues")
        == ran.stdout.count("monitor: log: tensorboard failed (OSError")
        == 1
    )
    steps = [step for step, _ in curves(tmp_path / "tensorboard")["episode/return"]]
    assert steps == sorted(steps)
    assert 300 < max(step for step in steps if step <= 600) < 330
    assert [step for step in steps if step > 600][-1] == 900


def test_a_folder_that_cannot_be_written_is_an_error_before_the_first_step(tmp_path):
    (tmp_path / "tensorboard").write_text("")
    (tmp_path / "tensorboard").chmod(0o400)
    with (
        build("tensorboard", tmp_path / "tensorboard") as env,
        pytest.raises(
            PlanError, match="monitor: dir: expected a folder that files can be written to"
        ),
    ):
        env.reset()


def test_tensorboard_without_a_folder_is_an_error_before_the_first_step():
    with (
        build("tensorboard") as env,
        pytest.raises(PlanError, match="tensorboard needs a folder for its files"),
    ):
        env.reset()


def test_wandb_that_cannot_begin_is_an_error_before_the_first_step(offline, monkeypatch):
    def fail(**_):
        raise RuntimeError("no key")

    monkeypatch.setattr(offline, "init", fail)
    with (
        build("wandb") as env,
        pytest.raises(PlanError, match="log: wandb.init raised RuntimeError: no key; `"),
    ):
        env.reset()


# -- the end ---------------------------------------------------------------------------------------


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("monitor: ")]


def test_no_thread_is_left_behind(tmp_path):
    with build(["tensorboard", print], tmp_path) as env:
        assert threads() == []  # it begins with the run
        env.reset()
        assert len(threads()) == 2
    assert threads() == []
    env = build("tensorboard", tmp_path)
    env.reset()
    del env
    gc.collect()
    assert threads() == []


def test_a_program_that_closes_nothing_loses_nothing(tmp_path):
    program = textwrap.dedent(
        """
        import sys
        from torch.utils.tensorboard import SummaryWriter
        from tests.wrappers.test_monitor_logs import build
        env = build(["tensorboard", SummaryWriter(f"{sys.argv[1]}/given")], sys.argv[1])
        env.reset()
        for _ in range(2):
            env.step([0, 0, 0])
        env.step([0, 0, 0])  # the first games end
        """
    )
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, timeout=120, check=True
    )
    for folder in ("tensorboard", "given"):
        assert [step for step, _ in curves(tmp_path / folder)["episode/return"]] == [9]


@pytest.mark.full  # what ends a program is one piece of code for all logs
def test_a_program_that_closes_nothing_loses_nothing_in_wandb(offline, tmp_path):
    program = textwrap.dedent(
        """
        import sys
        from tests.wrappers.test_monitor_logs import build
        env = build("wandb", sys.argv[1])
        env.reset()
        for _ in range(3):
            env.step([0, 0, 0])
        """
    )
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, timeout=120, check=True
    )
    assert [step for step, _ in of_run(tmp_path)[0]["episode/return"]] == [9]


# -- pipelines -------------------------------------------------------------------------------------


def test_a_line_names_several_logs(tmp_path):
    line = f"CartPole-v1 n=2 seed=1 backend=dummy | monitor:{tmp_path},log=csv+tensorboard"
    spec = vecwrap.PipelineSpec.parse(line)
    assert vecwrap.PipelineSpec.parse(spec.format()) == spec
    with vecwrap.build(spec) as env:
        env.reset()
        while env.find(Monitor).num_episodes < 4:
            env.step([0, 1])
    assert curves(tmp_path / "tensorboard")["episode/return"]
    assert len(read(tmp_path / "monitor.csv")[1]) == 4


def test_an_evaluation_writes_only_files_of_its_own(tmp_path):
    games = []
    monitor = {"monitor": {"dir": str(tmp_path), "log": ["csv", "tensorboard", games.append]}}
    spec = vecwrap.PipelineSpec("CartPole-v1", n=2, seed=1, backend="dummy", wrappers=[monitor])
    with vecwrap.build(evaluation(spec)) as env:
        env.reset()
        while not env.find(Monitor).num_episodes:
            env.step([0, 1])
    assert games == []
    assert curves(tmp_path / "eval" / "tensorboard")["episode/return"]


@pytest.mark.parametrize("package", ["tensorboardX", "wandb"])
def test_a_package_that_is_missing_is_named_with_its_command_before_anything_is_started(
    package, monkeypatch, tmp_path
):
    monkeypatch.setattr(sinks, "is_installed", lambda name: name != package)
    made = []

    def make():
        made.append(1)
        return gymnasium.make("CartPole-v1")

    name, command = {
        "tensorboardX": ("tensorboard", install_command("live")),
        "wandb": ("wandb", "pip install wandb"),
    }[package]
    with pytest.raises(PlanError) as error:
        vecwrap.build(
            make,
            n=1,
            wrappers=[{"monitor": {"dir": str(tmp_path), "log": ["csv", name]}}],
            backend="dummy",
        )
    assert str(error.value).endswith(f'"monitor": log: {name} needs {package}: {command}')
    assert made == []


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (
            "tensorbord",
            'expected csv or tensorboard or wandb, got "tensorbord". Did you mean "tensorboard"?',
        ),
        (["csv", "cvs"], 'expected csv or tensorboard or wandb, got "cvs". Did you mean "csv"?'),
        (
            ["csv", 5],
            "expected csv, tensorboard, wandb, a SummaryWriter, a run of W&B or a callable, got 5",
        ),
        ("csv+csv", "expected each once, got 'csv+csv'"),
    ],
)
def test_logs_that_do_not_fit_are_refused(log, message):
    with DummyBackend(factories()) as env, pytest.raises(PlanError) as error:
        Monitor(env, log=log)
    assert str(error.value) == f"monitor: log: {message}"


def test_without_a_log_a_folder_has_the_rows_alone_and_no_thread(tmp_path):
    with Monitor(DummyBackend([lambda: ToyEnv((2,))]), str(tmp_path)) as env:
        play(env, 4)
        assert threads() == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["monitor.csv", "run.json"]


def test_nothing_is_imported_for_logs_that_are_not_asked_for():
    program = (
        "import sys, vecwrap; env = vecwrap.build('CartPole-v1', n=1, wrappers=['monitor'], "
        "backend='dummy'); env.reset(); assert not {'tensorboardX', 'wandb', 'torch'} & "
        "sys.modules.keys()"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)


def test_a_warning_that_is_an_error_leaves_a_run_that_goes_on():
    def fail(episode):
        raise ValueError

    env = build(fail)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.reset()
        with pytest.raises(RuntimeWarning):
            for _ in range(1000):
                env.step([0, 0, 0])
                settle(env)
        env.step([0, 0, 0])
        env.close()
