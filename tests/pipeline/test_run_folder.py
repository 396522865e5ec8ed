"""Environments built from the folder of a run: the statistics they use, and where they write."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest

import vecwrap
from vecwrap.errors import PlanError, SpecError
from vecwrap.pipeline import run_folder
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.run_folder import read_run
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.wrappers.normalize import Normalize
from vecwrap.wrappers.presets import Preset

PIPELINE = {
    "env": "Pendulum-v1",
    "n": 3,
    "seed": 1,
    "backend": "dummy",
    "wrappers": ["normalize", {"monitor": {"dir": "run"}}],
    "eval": {"n": 2, "seed": 9, "stats": "of-another-run.npz"},
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A folder as a training script makes it with two lines, and the statistics in it."""
    monkeypatch.chdir(tmp_path)
    folder = Path("run")
    with vecwrap.build(PIPELINE) as env:
        env.reset()
        for _ in range(30):
            env.step(env.action_space.sample())
        (folder / "pipeline.yaml").write_text(env.pipeline.to_yaml())
        env.save(folder / "stats.npz")
        (statistics,) = env.find(Normalize).observations.statistics.values()
        return folder, statistics


def make_at(root):
    """An environment that is told of a folder."""
    assert str(root) == "/tmp"
    return gymnasium.make("Pendulum-v1")


def observed(env):
    (statistics,) = env.find(Normalize).observations.statistics.values()
    return statistics


def files(folder):
    return {str(path): path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_for_training_the_statistics_go_on_where_they_stood(run):
    folder, statistics = run
    with vecwrap.load(folder) as env:
        assert env.training
        np.testing.assert_array_equal(observed(env).mean, statistics.mean)
        env.reset()
        assert observed(env).count == pytest.approx(statistics.count + 3)


def test_a_folder_of_an_environment_that_takes_a_path_is_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = f"{__name__}:make_at n=2 backend=dummy | normalize"
    with vecwrap.build(line, env_kwargs={"root": Path("/tmp")}) as env:
        env.reset()
        Path("run").mkdir()
        Path("run/pipeline.yaml").write_text(env.pipeline.to_yaml())
        env.save("run/stats.npz")
        mean = observed(env).mean
    with vecwrap.load("run") as env:
        np.testing.assert_array_equal(observed(env).mean, mean)


def test_a_run_that_began_with_statistics_of_another_goes_on_as_it_did(run):
    folder, statistics = run
    settings = {
        **PIPELINE,
        "wrappers": ["normalize", {"monitor": {"dir": "later"}}],
        "stats": str(folder / "stats.npz"),
    }
    for word, grown in ((None, 0), (True, 3 * 31)):
        later = Path(f"later-{word}")
        later.mkdir()
        with vecwrap.build({**settings, "training": word, "eval": {"n": 1}}) as env:
            env.reset()
            for _ in range(30):
                env.step(env.action_space.sample())
            (later / "pipeline.yaml").write_text(env.pipeline.to_yaml())
            env.save(later / "stats.npz")
            learnt = observed(env)
        assert learnt.count == pytest.approx(statistics.count + grown)
        with vecwrap.load(later) as env, vecwrap.load(later, mode="eval") as evaluation:
            assert (env.training, evaluation.training) == (word is True, False)
            for each in (env, evaluation):
                np.testing.assert_array_equal(observed(each).mean, learnt.mean)
            env.reset()
            assert observed(env).count == pytest.approx(learnt.count + (3 if word else 0))


def test_for_evaluation_they_stand_still(run):
    folder, statistics = run
    with vecwrap.load(folder, mode="eval") as env:
        assert not env.training
        assert (env.num_envs, env.pipeline.seed) == (2, 9)
        observations, _ = env.reset()
        expected = (env.get_original_obs() - statistics.mean) / np.sqrt(statistics.var + 1e-8)
        np.testing.assert_allclose(observations, expected, rtol=1e-5)
        for _ in range(5):
            env.step(env.action_space.sample())
        assert observed(env).count == statistics.count


def test_an_evaluation_that_says_so_learns_on_with_a_copy(run):
    folder, statistics = run
    before = files(folder)
    with vecwrap.load(folder, mode="eval", **{"eval.training": True}) as env:
        assert env.training
        env.reset()
        assert observed(env).count == pytest.approx(statistics.count + 2)
    assert files(folder) == before


def test_statistics_that_are_given_come_before_the_folders_own(run):
    folder, _ = run
    with vecwrap.build(PIPELINE, wrappers=["normalize"]) as other:
        other.reset(seed=5)
        with vecwrap.load(folder, mode="eval", stats=other) as env:
            assert observed(env) is observed(other)
        other.save("of-another-run.npz")
        for key in ("stats", "eval.stats"):
            with vecwrap.load(folder, mode="eval", **{key: "of-another-run.npz"}) as env:
                np.testing.assert_array_equal(observed(env).mean, observed(other).mean)


def test_the_runs_own_files_stay_as_they_are(run):
    folder, _ = run
    before = files(folder)
    for mode in ("train", "eval"):
        with vecwrap.load(folder, mode=mode) as env:
            env.reset()
    assert files(folder) == before
    assert (folder / "loaded" / "monitor.csv").exists()
    assert (folder / "eval" / "monitor.csv").exists()


def test_a_folder_whose_paths_are_its_own_can_be_moved(run):
    folder, _ = run
    path = folder / "pipeline.yaml"
    path.write_text(run_folder.moved(PipelineSpec.load(path), folder, Path()).to_yaml())
    moved = Path("elsewhere", "moved")
    moved.parent.mkdir()
    Path("link").symlink_to(folder.rename(moved))
    before = files(moved)
    for mode, where in (("train", moved), ("eval", Path("link"))):
        with vecwrap.load(where, mode=mode) as env:
            env.reset()
    assert files(moved) == before
    assert {path.name for path in moved.iterdir() if path.is_dir()} == {"loaded", "eval"}
    assert not folder.exists()


def test_overrides_come_last(run):
    folder, statistics = run
    with vecwrap.load(folder, n=5, **{"wrappers.monitor.dir": None}) as env:
        assert env.num_envs == 5
        env.reset()
        np.testing.assert_array_equal(observed(env).mean.shape, statistics.mean.shape)
    assert not (folder / "loaded").exists()
    with (
        pytest.warns(RuntimeWarning, match=r"stats\.npz normalises observations \(Normalize\)"),
        vecwrap.load(folder, mode="eval", **{"eval.wrappers": ["monitor"]}) as env,
    ):
        assert env.pipeline.wrapper_names == ("monitor",)


def test_without_statistics_an_evaluation_that_needs_them_is_refused(run):
    folder, _ = run
    (folder / "stats.npz").unlink()
    with pytest.raises(PlanError, match="expected statistics for Normalize, which are frozen here"):
        vecwrap.load(folder, mode="eval", **{"eval.stats": None})
    with vecwrap.load(folder) as env:
        assert env.training


def test_monitor_files_of_each_sub_environment_are_looked_at(run):
    folder, _ = run
    (folder / "1.monitor.csv").write_text('#{"t_start": 1.0, "pipeline": "0123456789ab"}\nr,l,t\n')
    with pytest.raises(
        SpecError, match="1.monitor.csv: expected a file of pipeline .* got one of .* 0123456789ab"
    ):
        vecwrap.load(folder)
    # Not known, of another library, or torn in its first line: nothing to compare.
    for text in (
        '#{"t_start": 1.0, "pipeline": null}\nr,l,t\n',
        "#{",
        "r,l,t\n",
        "",
        "#" + "[" * 90_000,
    ):
        (folder / "1.monitor.csv").write_text(text)
        read_run(folder)


@Preset
def watched(dir: str = "runs/p"):
    """Count episodes, into a folder."""
    return [{"time_limit": 9}, {"monitor": {"dir": dir}}]


def test_a_path_within_a_preset_is_found_and_led_aside_as_any_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plain = plan(
        PipelineSpec.parse("CartPole-v1 n=1 backend=dummy | time_limit:9 | monitor:runs/x")
    ).pipeline
    with vecwrap.build(
        "CartPole-v1", 1, [{f"{__name__}:watched": {"dir": "runs/x"}}], backend="dummy"
    ) as env:
        env.reset(seed=1)
        for _ in range(30):
            env.step([0])
        written = env.pipeline.to_yaml()
        assert env.pipeline.hash == plain.hash
    rows = Path("runs/x/monitor.csv").read_text()
    assert len(rows.splitlines()) > 2
    assert f"dir: {tmp_path}/runs/x" in written
    with vecwrap.load("runs/x") as again:
        again.reset(seed=1)
        assert again.pipeline.hash == plain.hash
    assert Path("runs/x/monitor.csv").read_text() == rows
    names = sorted(path.name for path in Path("runs/x").iterdir())
    assert names == ["loaded", "monitor.csv", "pipeline.yaml", "run.json"]
