"""The workloads of ``make bench``: who takes part, what the environments do, what is written."""

import functools
import importlib
import json
import shutil
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from benchmarks import chains, environments, pages, startup
from benchmarks.__main__ import main
from benchmarks.workloads import workloads
from vecwrap.rows.compare import assert_same

PAGE = Path(__file__).resolve().parents[2] / "docs" / "performance.md"


@functools.cache
def works():
    return {work.key: work for work in workloads(10.0)}


# -- who takes part --------------------------------------------------------------------------------


def test_ours_come_first_and_every_peer_takes_part():
    pytest.importorskip("ale_py")
    names = [each.name for each in works()["pong-8"].contenders()]
    assert names[0] == "vecwrap shmem"
    peers = {
        "Gymnasium Async",
        "SB3 SubprocVecEnv",
        "EnvPool, 1 thread",
        "ALE AtariVectorEnv",
        "tianshou Shmem",
    }
    assert peers <= set(names)


# -- the environments ------------------------------------------------------------------------------


def test_calibration_takes_the_quickest_of_its_looks_at_the_clock():
    lasts = iter([5, 4, 2, 9, 9, 9, 9, 9, 9])
    clock = {"now": 0.0, "odd": False}

    def tick():
        clock["now"] += next(lasts) * 1e-3 if clock["odd"] else 0.0
        clock["odd"] = not clock["odd"]
        return clock["now"]

    assert environments.loops_per_microsecond(tick) == pytest.approx(
        environments.CALIBRATION_LOOPS / 2000
    )


def test_work_is_loops_and_not_time(monkeypatch):
    spun, slept = [], []
    monkeypatch.setattr(environments, "spin", spun.append)
    monkeypatch.setattr(environments.time, "sleep", slept.append)
    env = environments.Work(microseconds=100, loops_per_us=7.5)
    env.reset(seed=1)
    env.step(0)
    assert (spun, slept) == ([750], [])
    for waits in (True, False):
        uneven = environments.Uneven(waits=waits, loops_per_us=10.0)
        uneven.reset(seed=1)
        for _ in range(200):
            uneven.step(0)
    assert (len(slept), len(spun)) == (200, 201)
    assert 0.0002 <= min(slept) < 0.0005
    assert 0.0045 < max(slept) <= 0.005
    np.testing.assert_allclose(spun[1:], np.array(slept) * 1e7, atol=1)


@pytest.mark.parametrize(
    ("env_id", "kwargs", "shape"),
    [
        (
            environments.WORK,
            {"microseconds": 0, "loops_per_us": 1.0, "shape": [3, 16, 16]},
            (3, 16, 16),
        ),
        (environments.UNEVEN, {"waits": False}, (8,)),
    ],
)
def test_the_environments_keep_gymnasiums_rules_and_their_seed(env_id, kwargs, shape):
    one, other = (gymnasium.make(env_id, **kwargs) for _ in range(2))
    lengths = []
    for seed in (1, 2):
        assert_same(one.reset(seed=seed), other.reset(seed=seed))
        for steps in range(1, 1000):
            result = one.step(steps % 2)
            assert_same(result, other.step(steps % 2))
            if result[2]:
                break
        lengths.append(steps)
    assert one.observation_space.shape == shape
    assert result[0] in one.observation_space
    assert 400 <= min(lengths) < max(lengths) <= 600


# -- chains alone ----------------------------------------------------------------------------------


def test_both_sides_of_a_chain_stand_over_the_same_batches():
    pytest.importorskip("stable_baselines3")
    batches = chains.Batches((3,), np.float32)
    ours, theirs = chains.Still(batches), chains.still_for_sb3(batches)
    np.testing.assert_array_equal(ours.reset()[0], theirs.reset())
    ends = 0
    for _ in range(100):
        observations, rewards, terminations, truncations, infos = ours.step(None)
        seen, paid, dones, said = theirs.step(np.zeros(chains.N))
        np.testing.assert_array_equal(observations, seen)
        np.testing.assert_allclose(rewards, paid, rtol=1e-6)
        np.testing.assert_array_equal(terminations | truncations, dones)
        for i in np.flatnonzero(dones):
            ends += 1
            np.testing.assert_array_equal(infos["final_obs"][i], said[i]["terminal_observation"])
        assert sum(map(bool, said)) == dones.sum()
    assert ends > 5


def test_the_cost_of_a_chain_is_what_the_bare_environment_does_not_take():
    class Fixed:
        def __init__(self, rate):
            self.rate = rate

        def sample(self, seconds):
            assert seconds == 0.5
            return {"rate": self.rate}

    cost = chains.ChainCost(Fixed(2_000.0), Fixed(10_000.0))
    assert cost.sample(1.0) == {"chain": pytest.approx(400.0)}


# -- start-up --------------------------------------------------------------------------------------


def test_a_start_is_timed_and_its_first_observations_are_checked(monkeypatch):
    pytest.importorskip("ale_py")
    monkeypatch.chdir(PAGE.parents[1])
    contender = startup.contenders(n=2)[0]
    told = contender.open().sample(0.0)
    assert told["start"] > 0
    assert told.get("memory", 1.0) > 0
    with pytest.raises(RuntimeError, match="first observations are not those"):
        startup.Startup("ours", 2, "another digest").sample(0.0)


# -- what is written -------------------------------------------------------------------------------


def test_a_run_prints_and_writes_tables_and_data(tmp_path, capsys):
    pytest.importorskip("stable_baselines3")
    out = tmp_path / "out"
    assert (
        main(["--only", "chain-64", "--rounds", "2", "--seconds", "0.004", "--out", str(out)]) == 0
    )
    printed = capsys.readouterr().out
    assert "framestack, normalize, monitor of 64" in printed
    data = json.loads((out / "bench.json").read_text(encoding="utf-8"))
    assert data["machine"]["loops_per_us"] > 0
    assert "| SB3 chain |" in (out / "bench.md").read_text(encoding="utf-8")


def test_ctrl_c_keeps_what_was_measured(tmp_path, capsys, monkeypatch):
    pytest.importorskip("stable_baselines3")
    program = importlib.import_module("benchmarks.__main__")
    real = program.run

    def run(work, options, console):
        if work.key == "uneven-wait":
            raise KeyboardInterrupt
        return real(work, options, console)

    monkeypatch.setattr(program, "run", run)
    keys = "chain-64,uneven-wait"
    assert (
        main(
            [
                "--only",
                keys,
                "--rounds",
                "1",
                "--seconds",
                "0.004",
                "--out",
                str(tmp_path),
                "--publish",
            ]
        )
        == 130
    )
    assert "interrupted" in capsys.readouterr().out
    data = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    assert [result["key"] for result in data["results"]] == ["chain-64"]


def test_the_list_names_every_workload(capsys):
    assert main(["--list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == list(works())


def test_an_unknown_key_is_refused(capsys):
    assert main(["--only", "cartpole-9"]) == 2
    assert "there is no cartpole-9; known are cartpole-8" in capsys.readouterr().err


def test_the_page_takes_the_tables_between_its_marks_and_keeps_the_rest(tmp_path):
    page = tmp_path / "performance.md"
    shutil.copyfile(PAGE, page)
    pages.publish("first", page)
    pages.publish("| the | table |", page)
    text = page.read_text(encoding="utf-8")
    assert text.partition(pages.BEGIN)[2].partition(pages.END)[0].strip() == "| the | table |"
    before = PAGE.read_text(encoding="utf-8")
    assert text.partition(pages.BEGIN)[0] == before.partition(pages.BEGIN)[0]
    assert text.partition(pages.END)[2] == before.partition(pages.END)[2]


def test_a_page_without_marks_is_left_alone(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing here", encoding="utf-8")
    with pytest.raises(ValueError, match="expected the marks"):
        pages.publish("text", page)
    assert page.read_text(encoding="utf-8") == "nothing here"
