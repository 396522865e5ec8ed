"""A chain over sub-environments that are lost: scores are marked, histories end where they were,
recordings go on.
"""

import csv
import json
from functools import partial

import numpy as np
import pytest

import vecwrap
from tests.faults.faulty import Faulty, ask, factories
from tests.helpers.backends import DummyBackend, ShmemBackend, SubprocessBackend
from vecwrap.wrappers.framestack import FrameStack
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.normalize_reward import NormalizeReward
from vecwrap.wrappers.seed_each_episode import SeedEachEpisode
from vecwrap.wrappers.terminal_obs import TerminalObs
from vecwrap.wrappers.video import Video

# An exception on dummy, a death elsewhere: what the wrappers see is the same, but for who is lost.
WAYS = [
    (DummyBackend, "raise", {}),
    (SubprocessBackend, "kill", {"workers": 2}),
    (ShmemBackend, "exit", {"workers": 2}),
]
pytestmark = [
    pytest.mark.parametrize(("backend", "kind", "options"), WAYS),
    pytest.mark.usefixtures("quick_workers"),
]
MODES = ["same_step", "next_step", "disabled", "episodic"]


def vector(backend, options, folder, **keywords):
    return backend(factories(folder, 2, end=0.0), on_failure="restart", **options, **keywords)


@pytest.mark.parametrize("mode", MODES)
def test_monitor_marks_the_lost_episode_and_counts_it_nowhere(
    backend, kind, options, mode, tmp_path
):
    requests = tmp_path / "requests"
    requests.mkdir()
    with Monitor(vector(backend, options, requests, autoreset=mode), str(tmp_path / "run")) as env:
        env.reset(seed=1)
        paid = sum(env.step([0, 0])[1][1] for _ in range(3))
        ask(requests, 1, "step", kind)
        *_, infos = env.step([0, 0])
        assert "episode" not in infos
        assert infos["restarted"].tolist() == [0, 1]
        assert env.num_episodes == 0
        if mode in ("disabled", "episodic"):
            env.reset(options={"reset_mask": np.array([False, True])})
        for _ in range(3):
            env.step([0, 0])
    lines = (tmp_path / "run" / "monitor.csv").read_text().splitlines()
    json.loads(lines[0][1:])
    (row,) = csv.DictReader(lines[1:])
    assert (float(row["r"]), row["l"], row["env"], row["lost"]) == (
        pytest.approx(paid, abs=1e-5),
        "3",
        "1",
        "1",
    )


@pytest.mark.parametrize("mode", MODES)
def test_histories_end_with_what_was_delivered_and_begin_anew(
    backend, kind, options, mode, tmp_path
):
    make = vector(backend, options, tmp_path, autoreset=mode)
    with TerminalObs(NormalizeReward(FrameStack(make, 3, keys=("a",))), record=4) as env:
        env.reset(seed=1)
        for _ in range(4):
            observations, *_ = env.step([1, 2])
        last = observations["a"][1].copy()
        ask(tmp_path, 1, "step", kind)
        observations, rewards, terminations, truncations, infos = env.step([1, 2])
        assert (terminations.tolist(), truncations.tolist()) == ([False, False], [False, True])
        assert rewards[1] == 0
        assert (infos["terminal_obs"]["a"][1] == last).all()
        (ending,) = env.endings[1]
        assert (ending.lost, ending.length, ending.truncated) == (True, 4, True)
        assert env.env.rewards.returns[1] == 0
        if mode == "same_step":
            assert (infos["final_obs"][1]["a"] == last).all()
        else:
            assert (observations["a"][1] == last).all()
            if mode in ("disabled", "episodic"):
                observations, _ = env.reset(options={"reset_mask": np.array([False, True])})
            else:
                observations, *_ = env.step([1, 2])
        assert (observations["a"][1][:2] == 0).all(), "a new history"
        assert (observations["a"][0][0] != 0).any(), "the others' go on"


def test_a_schedule_of_seeds_goes_on_after_the_episode_that_was_lost(
    backend, kind, options, tmp_path
):
    """The lost episode's entry is not given again, and none is left out; one that cannot begin is
    left behind.
    """
    requests = tmp_path / "requests"
    requests.mkdir()
    seeds = [100 + k for k in range(40)]
    make = backend(
        factories(requests, 2, end=0.5), on_failure="restart", restart_backoff=0.0, **options
    )
    seen = [[], []]
    with SeedEachEpisode(make, seeds) as env:

        def note(infos):
            for i in (0, 1):
                if "episode_seed" in infos and infos["_episode_seed"][i]:
                    seen[i].append(int(infos["episode_seed"][i]))

        note(env.reset()[1])
        for k in range(40):
            if k in (10, 20):
                ask(requests, 1, "step", kind)
            note(env.step([0, 0])[4])
        restarts = env.health().restarts
    assert restarts[1] == 2
    for i in (0, 1):
        assert len(seen[i]) > 10
        assert seen[i] == [seeds[(20 * i + k) % 40] for k in range(len(seen[i]))]


class Drawn(Faulty):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}
    render_mode = "rgb_array"

    def render(self):
        return np.full((32, 32, 3), 10 * self.steps, np.uint8)


def test_a_video_ends_with_the_lost_episode_and_the_next_is_recorded(
    backend, kind, options, tmp_path
):
    requests = tmp_path / "requests"
    requests.mkdir()
    make = [partial(Drawn, str(requests), i, end=0.0) for i in range(2)]
    with Video(
        backend(make, on_failure="restart", **options), tmp_path / "run", every=1, envs=(1,)
    ) as env:
        env.reset(seed=1)
        for k in range(12):
            if k == 5:
                ask(requests, 1, "step", kind)
            env.step([0, 0])
    reports = [json.loads(path.read_text()) for path in sorted((tmp_path / "run").glob("*.json"))]
    # The reset and five steps; the new one's reset and six.
    assert [report["frames"] for report in reports] == [
        6,
        7,
    ]


def test_a_whole_pipeline_goes_on(backend, kind, options, tmp_path):
    env = vecwrap.build(
        factories(tmp_path, 4),
        backend={"name": backend.name, **options},
        on_failure="restart",
        wrappers=[
            {"framestack": {"k": 2, "keys": ["a"]}},
            "normalize_reward",
            "monitor",
            "terminal_obs",
        ],
    )
    with env:
        env.reset(seed=1)
        for k in range(30):
            if k % 10 == 5:
                ask(tmp_path, k % 4, "step", kind)
            env.step(env.action_space.sample())
        assert env.health().restarts.sum() >= 2


def test_an_episode_whose_end_was_delivered_is_no_lost_one_though_the_reset_after_it_failed(
    backend, kind, options, tmp_path
):
    if kind != "raise":
        # Of a worker that died nobody knows how far it had got.
        kind, options = (
            "raise",
            {"workers": 1},
        )
    requests = tmp_path / "requests"
    requests.mkdir()
    make = backend(factories(requests, 2, end=1.0), on_failure="restart", **options)
    with Monitor(TerminalObs(make, record=1)) as env:
        env.reset(seed=1)
        ask(requests, 1, "reset", kind)
        _, rewards, terminations, truncations, infos = env.step([1, 2])
        assert (terminations | truncations).tolist() == [True, True]
        assert infos["episode"]["r"].tolist() == rewards.tolist()
        assert infos["restarted"].tolist() == [0, 1]
        (ending,) = env.find(TerminalObs).endings[1]
        assert not ending.lost
