"""Data sets that Minari reads again, against what each sub-environment did."""

import itertools
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import iterate

import vecwrap
from tests.helpers.backends import DummyBackend, ShmemBackend
from tests.helpers.call_events import MODES, OPERATIONS
from tests.helpers.stream_envs import Driver, Lives, ToyEnv, assert_same
from vecwrap.errors import PlanError
from vecwrap.sources.source_factories import SubEnvFactory
from vecwrap.testing import toy
from vecwrap.wrappers.clip_reward import ClipReward
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.record_trajectories import RecordTrajectories
from vecwrap.wrappers.recording import minari_data_set
from vecwrap.wrappers.seed_each_episode import SeedEachEpisode

minari = pytest.importorskip("minari")

ROOT = Path(__file__).parents[2]
IMAGE = spaces.Box(0, 255, (40, 36, 3), np.uint8)  # Minari takes it for an image, for JPEG
SPACES = {
    "box": spaces.Box(0, 255, (2, 3), np.float64),
    "image": IMAGE,
    "four frames": spaces.Box(0, 255, (40, 40, 4), np.uint8),  # which JPEG cannot hold
    "discrete": spaces.Discrete(7, start=-2),
    "nested": spaces.Dict(
        {
            "image": IMAGE,
            "more": spaces.Tuple(
                [
                    spaces.Discrete(5),
                    spaces.Dict({"x": spaces.Box(0, 255, (), np.float32)}),
                    spaces.MultiDiscrete([300, 300]),
                ]
            ),
            "text": spaces.Text(3, charset="abc"),
        }
    ),
}
STEPS = [("step", ())] * 12


def make(space=SPACES["box"], lengths=(3, 5, 1), n=3):
    return [lambda i=i: ToyEnv(lengths=lengths, index=i, observation_space=space) for i in range(n)]


def play_steps(env, count):
    for step in range(count):
        env.step(np.full(env.num_envs, step % 3))


def read(path):
    """Each episode of a data set with its metadata, in the order in which they ended."""
    data = minari.MinariDataset(path)
    episodes = list(data.iterate_episodes())
    assert data.total_episodes == len(episodes)
    assert data.total_steps == sum(len(episode) for episode in episodes)
    return list(zip(data.storage.get_episode_metadata(data.episode_indices), episodes, strict=True))


def at(values, t):
    if isinstance(values, dict):
        return {key: at(value, t) for key, value in values.items()}
    if isinstance(values, tuple):
        return tuple(at(value, t) for value in values)
    return values[t]


def length_of(values):
    if isinstance(values, dict):
        (length,) = {length_of(value) for value in values.values()}
        return length
    if isinstance(values, tuple):
        (length,) = {length_of(value) for value in values}
        return length
    return len(values)


def episodes_of(events):
    """The events of each episode with a step: its reset and its steps."""
    episodes = []
    for event in events:
        if event.kind == "reset":
            episodes.append([])
        episodes[-1].append(event)
    return [episode for episode in episodes if len(episode) > 1]


def check(path, streams):
    """Compare a data set with what each sub-environment did; return how many episodes it has."""
    found = read(path)
    for i, events in enumerate(streams):
        own = [(facts, episode) for facts, episode in found if facts["env"] == i]
        for (facts, episode), (reset, *steps) in zip(own, episodes_of(events), strict=True):
            assert length_of(episode.observations) == len(steps) + 1 == facts["total_steps"] + 1
            for t, event in enumerate([reset, *steps]):
                assert_same(at(episode.observations, t), event.observation)
                assert episode.infos["step"][t] == event.info["step"] == t
                assert episode.infos["episode_number"][t] == event.info["episode_number"]
            assert_same(episode.actions, np.array([event.action for event in steps]))
            assert_same(episode.rewards, np.array([event.reward for event in steps]))
            assert_same(episode.terminations, np.array([event.terminated for event in steps]))
            over = steps[-1].terminated or steps[-1].truncated
            truncations = [event.truncated for event in steps[:-1]]
            truncations.append(steps[-1].truncated or not over)  # what is broken off
            assert_same(episode.truncations, np.array(truncations))
            assert (facts["ended"] in ("terminated", "truncated")) == over
    return len(found)


@pytest.mark.parametrize(
    ("mode", "space"),
    [
        *((mode, "nested") for mode in MODES),
        *(("next_step", space) for space in SPACES if space != "nested"),
    ],
)
def test_an_episode_is_what_its_environment_did(mode, space, tmp_path):
    env = RecordTrajectories(
        DummyBackend(make(SPACES[space]), autoreset=mode),
        tmp_path,
        info_keys=("step", "episode_number"),
    )
    streams = Driver(env).play(OPERATIONS)
    env.close()
    assert check(env.path, streams) == env.num_episodes >= 15
    assert minari.MinariDataset(env.path).observation_space == SPACES[space]


def test_workers_and_views_of_the_slots_give_the_same_episodes(tmp_path):
    for name, backend, options in (
        ("a", DummyBackend, {}),
        ("b", ShmemBackend, {"workers": 1, "copy": False}),
    ):
        backend = backend(make(SPACES["nested"]), **options)
        with RecordTrajectories(backend, tmp_path / name) as env:
            env.reset(seed=1)
            for step in range(12):
                env.step([step % 3, 1, 2])
    both = [read(tmp_path / name / "episodes-v0" / "data") for name in "ab"]
    assert len(both[0]) > 10
    for (facts, one), (same_facts, other) in zip(*both, strict=True):
        assert facts == same_facts
        assert_same(vars(one), vars(other))


class Shots(gymnasium.Env):
    """Grey pictures of noise, in episodes of 5 steps."""

    observation_space = spaces.Box(0, 255, (40, 40), np.uint8)
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def shot(self):
        return self.np_random.integers(256, size=(40, 40), dtype=np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.shot(), {}

    def step(self, action):
        self.time += 1
        reward = 3 * float(action[0])
        return self.shot(), reward, False, self.time == 5, {"power": np.square(action)}


def naive_episodes(seed, actions):
    """Episodes of one environment with two stacked frames and rewards clipped to 1."""
    env = Shots()
    shot, _ = env.reset(seed=seed)
    stack = [np.zeros_like(shot), shot]
    episode = {"observations": [np.stack(stack, -1)], "rewards": [], "power": [[0, 0]]}
    for action in actions:
        shot, reward, _, over, info = env.step(action)
        stack = [stack[1], shot]
        episode["observations"].append(np.stack(stack, -1))
        episode["rewards"].append(min(max(reward, -1), 1))
        episode["power"].append(info["power"])
        if over:
            yield episode
            shot, _ = env.reset()
            stack = [np.zeros_like(shot), shot]
            episode = {"observations": [np.stack(stack, -1)], "rewards": [], "power": [[0, 0]]}
    if episode["rewards"]:
        yield episode


def test_a_pipeline_of_stacked_frames_is_recorded_as_a_loop_sees_it(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    recorder = {"record_trajectories": {"dir": str(tmp_path), "dataset_id": "shots/two-v1"}}
    wrappers = ["framestack:2,axis=channel", "clip_reward:-1,1", recorder]
    actions = np.random.default_rng(5).uniform(-1, 1, (23, 2, 2)).astype(np.float32)
    with vecwrap.build(Shots, n=2, wrappers=wrappers, seed=7, backend="dummy") as env:
        env.reset()
        for each in actions:
            env.step(each)
        pipeline = env.pipeline.hash
    data = minari.load_dataset("shots/two-v1")
    assert data.observation_space == env.single_observation_space
    assert data.action_space == env.single_action_space
    found = read(tmp_path / "shots" / "two-v1" / "data")
    for i in range(2):
        own = [(facts, episode) for facts, episode in found if facts["env"] == i]
        assert [facts.get("seed") for facts, _ in own][:2] == [7 + i, None]
        taken = actions[:, i]
        for number, (one, expected) in enumerate(
            zip(own, naive_episodes(7 + i, taken), strict=True)
        ):
            facts, episode = one
            assert facts["pipeline"] == pipeline
            assert_same(episode.observations, np.stack(expected["observations"]))
            assert_same(episode.rewards, np.array(expected["rewards"], np.float64))
            assert_same(episode.actions, taken[5 * number : 5 * number + 5])
            assert_same(episode.infos["power"], np.array(expected["power"], np.float32))
            assert not episode.infos["_power"][0]
            assert episode.infos["_power"][1:].all()


def test_actions_and_observations_of_nested_spaces(tmp_path):
    make = [toy(observations="dict", actions="nested", end=0.3)] * 2
    with RecordTrajectories(DummyBackend(make), tmp_path, info_keys=()) as env:
        env.action_space.seed(3)
        env.reset(seed=1)
        taken = [[], []]
        for _ in range(15):
            actions = env.action_space.sample()
            for i, action in enumerate(iterate(env.action_space, actions)):
                taken[i].append(action)
            env.step(actions)
    for i in range(2):
        own = [episode for facts, episode in read(env.path) if facts["env"] == i]
        recorded = [at(episode.actions, t) for episode in own for t in range(len(episode))]
        for got, expected in zip(recorded, taken[i], strict=True):
            assert_same(got, expected)


def test_pieces_of_long_episodes(tmp_path):
    env = DummyBackend(make(lengths=(4, 7), n=1))
    with RecordTrajectories(env, tmp_path, info_keys="step", max_steps=2) as env:
        streams = Driver(env).play([("step", ())] * 11)
    found = read(env.path)
    assert [(facts["first_step"], facts["ended"]) for facts, _ in found] == [
        (0, "max_steps"),
        (2, "terminated"),
        (0, "max_steps"),
        (2, "max_steps"),
        (4, "max_steps"),
        (6, "truncated"),
    ]
    assert ["seed" in facts for facts, _ in found] == [True] + [False] * 5
    ends = [bool(episode.truncations[-1]) for _, episode in found]
    assert ends == [True, False, True, True, True, True]
    for (_, before), (after_facts, after) in itertools.pairwise(found):
        if after_facts["first_step"]:
            assert_same(before.observations[-1], after.observations[0])
            assert before.infos["step"][-1] == after.infos["step"][0] == after_facts["first_step"]
    rewards = np.concatenate([episode.rewards for _, episode in found])
    assert rewards.tolist() == [event.reward for event in streams[0] if event.kind == "step"]


def test_minari_reads_whole_episodes_of_the_most_steps(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    space = spaces.Discrete(50_000)
    data_set = minari_data_set.MinariDataSet(folder, "long-v0", space, space, None)
    data_set.open()
    steps = minari_data_set.max_steps_of(space)
    for count in (steps, 2):
        data_set.add(
            [
                minari_data_set.RecordedEpisode(
                    list(range(count + 1)),
                    [{}] * (count + 1),
                    list(range(count)),
                    [1.0] * count,
                    [False] * count,
                    [False] * count,
                )
            ],
            None,
        )
    data_set.close()
    data = minari.MinariDataset(folder)
    assert [len(episode) for episode in data] == [steps, 2]
    assert data[0].observations.tolist() == list(range(steps + 1))


def test_arrays_of_arrow_hold_the_longest_piece():
    large = spaces.Dict({"a": spaces.Tuple([spaces.Box(0, 255, (512, 512, 3), np.uint8)])})
    rows = minari_data_set.max_steps_of(large, spaces.Discrete(2)) + 1
    assert rows * 512 * 512 * 3 < 2**31 <= (rows + 1) * 512 * 512 * 3


# -- infos -----------------------------------------------------------------------------------------


class Tells(ToyEnv):
    """Infos of all kinds, some of them absent now and then."""

    def info(self, over=False):
        info = {
            "count": self.time,
            "share": self.time / 2,
            "flag": self.time == 1,
            "name": "xyz"[: 1 + self.time],
            "matrix": np.full((2, 2), self.time, np.int16),
            "inner": {"deep": self.time + 0.5},
        }
        if self.time == 2:
            del info["count"], info["name"], info["matrix"]
        return info


@pytest.mark.parametrize("mode", MODES)
def test_infos_of_all_kinds(mode, tmp_path):
    env = DummyBackend([partial(Tells, lengths=(4,))], autoreset=mode)
    with RecordTrajectories(Monitor(env), tmp_path) as env:
        Driver(env).play([("step", ())] * 10)
    for _, episode in read(env.path)[:2]:
        infos = episode.infos
        there = np.array([True, True, False, True, True])
        assert_same(infos["count"], np.array([0, 1, 0, 3, 4]))
        assert_same(infos["_count"], there)
        assert_same(infos["share"], np.arange(5) / 2)
        assert_same(infos["flag"], np.arange(5) == 1)
        assert infos["name"].tolist() == ["x", "xy", "", "xyz", "xyz"]
        matrices = np.arange(5)[:, None, None] * np.ones((2, 2)) * there[:, None, None]
        assert_same(infos["matrix"], matrices.astype(np.int16))
        assert_same(infos["_matrix"], there)
        assert_same(infos["inner/deep"], np.arange(5) + 0.5)
        # of the monitor inside, which adds it to the step that ends the episode
        assert_same(infos["_episode/l"], np.arange(5) == 4)
        assert_same(infos["episode/l"], np.array([0, 0, 0, 0, 4]))


class Changes(ToyEnv):
    """The first episode alone tells nothing of ``late``; ``count`` becomes a float later."""

    def info(self, over=False):
        if self.episode == 0:
            return {"count": 1}
        return {"count": 1.5, "late": 2}


def test_what_the_first_episode_did_not_have_is_left_out_with_one_warning(tmp_path):
    with RecordTrajectories(DummyBackend([partial(Changes, lengths=(2,))]), tmp_path) as env:
        env.reset(seed=1)
        env.step([0])
        env.step([0])
        with pytest.warns(RuntimeWarning, match='"count", "late" not recorded.* info_keys'):
            play_steps(env, 2)
        play_steps(env, 4)
    infos = [episode.infos for _, episode in read(env.path)]
    assert [each.keys() for each in infos] == [{"count", "_count"}] * 4
    assert [each["_count"].tolist() for each in infos] == [[True] * 3] + [[False] * 3] * 3


def test_infos_that_are_named_have_their_place_from_the_start(tmp_path):
    env = DummyBackend([partial(Changes, lengths=(2,))])
    with RecordTrajectories(env, tmp_path, info_keys="late") as env:
        Driver(env).play([("step", ())] * 4)
    infos = [episode.infos for _, episode in read(env.path)]
    assert_same(infos[0], {"late": np.zeros(3), "_late": np.zeros(3, bool)})
    assert_same(infos[1], {"late": np.full(3, 2.0), "_late": np.ones(3, bool)})


# -- ends ------------------------------------------------------------------------------------------


def test_rewards_and_ends_are_those_of_the_place_in_the_chain(tmp_path):
    factory = SubEnvFactory(make(lengths=(5,))[1], (Lives,))
    inside = RecordTrajectories(DummyBackend([factory]), tmp_path / "inside", info_keys=())
    outside = RecordTrajectories(ClipReward(inside, -0.1, 0.1), tmp_path / "outside", info_keys=())
    paid = Driver(outside).play(STEPS)[0]
    outside.close()
    rewards = {}
    for env in (inside, outside):
        episodes = [episode for _, episode in read(env.path)]
        assert [len(episode) for episode in episodes[:3]] == [2, 2, 2], "lives"
        rewards[env] = np.concatenate([episode.rewards for episode in episodes])
    assert rewards[outside].tolist() == [event.reward for event in paid if event.kind == "step"]
    assert rewards[inside].max() == 1
    assert_same(rewards[outside], np.clip(rewards[inside], -0.1, 0.1))


class Breaks(ToyEnv):
    """Raises in the third step of its second episode."""

    def step(self, action):
        if (self.index, self.episode, self.time) == (1, 1, 2):
            raise RuntimeError("broken")
        return super().step(action)


@pytest.mark.parametrize("mode", MODES)
def test_an_episode_whose_environment_is_lost_is_truncated_at_its_last_step(mode, tmp_path):
    factories = [partial(Breaks, lengths=(3, 5), index=i) for i in range(2)]
    backend = DummyBackend(
        factories, autoreset=mode, on_failure="restart", restart_backoff=0.0, seed=1
    )
    with RecordTrajectories(backend, tmp_path) as env:
        env.reset()
        over = np.zeros(2, bool)
        for _ in range(12):
            if mode in ("disabled", "episodic") and over.any():
                env.reset(options={"reset_mask": over})
            _, _, terminations, truncations, _ = env.step([1, 2])
            over = terminations | truncations
    own = [(facts, episode) for facts, episode in read(env.path) if facts["env"] == 1]
    assert [facts["ended"] for facts, _ in own][:3] == ["terminated", "lost", "terminated"]
    assert [len(episode) for _, episode in own][:3] == [3, 2, 3]
    lost = own[1][1]
    assert (lost.terminations.any(), lost.truncations.tolist()) == (False, [False, True])
    codes = 97 + 31 + np.arange(3)
    assert lost.observations[:, 0].tolist() == (1 + codes % 250).tolist()
    assert "seed" not in own[2][0], "that of a recreated environment is not a given one"


def test_episodes_that_a_load_breaks_off_and_what_follows_it(tmp_path):
    whole = [("step", ())] * 4
    with RecordTrajectories(DummyBackend(make(lengths=(6,), n=2)), tmp_path) as env:
        driver = Driver(env)
        driver.play(whole)
        env.load_state_dict(env.state_dict())
        env.reset(seed=5)
        env.step([1, 1])
    found = [(facts["ended"], len(episode), facts.get("seed")) for facts, episode in read(env.path)]
    assert found == [("loaded", 4, 0), ("loaded", 4, 1), ("closed", 1, 5), ("closed", 1, 6)]


@pytest.mark.parametrize("mode", MODES)
def test_the_seeds_of_a_schedule(mode, tmp_path):
    schedule = SeedEachEpisode(DummyBackend(make(n=2), autoreset=mode), [5, 6, 7, None])
    with RecordTrajectories(schedule, tmp_path, info_keys=("step", "episode_number")) as env:
        streams = Driver(env).play([("step", ()), ("reset", (1, 1))] * 4)
    check(env.path, streams)
    seeds = [facts.get("seed") for facts, _ in read(env.path) if facts["env"] == 1]
    assert seeds[:3] == [1, 7, None]


# -- data sets that are there already --------------------------------------------------------------


def play(folder, space=SPACES["box"], steps=6, **options):
    with RecordTrajectories(DummyBackend(make(space, lengths=(3,))), folder, **options) as env:
        env.reset(seed=steps)
        for _ in range(steps):
            env.step([0, 1, 2])
    return env.path


def test_later_runs_append(tmp_path):
    path = play(tmp_path)
    before = read(path)
    minari.MinariDataset(path).storage.update_metadata({"author": {"me"}})
    play(tmp_path, steps=9)
    after = read(path)
    assert (len(before), len(after)) == (6, 15)
    for (facts, one), (same_facts, other) in zip(before, after, strict=False):
        assert facts == same_facts
        assert_same(vars(one), vars(other))
    assert [facts["id"] for facts, _ in after] == list(range(15))
    assert [facts.get("seed") for facts, _ in after][6:9] == [9, 10, 11]
    assert minari.MinariDataset(path).storage.metadata["author"] == {"me"}
    assert {entry.name for entry in path.iterdir()} == {"metadata.json", *map(str, range(15))}


def test_recorders_that_write_at_the_same_time(tmp_path):
    envs = [RecordTrajectories(DummyBackend(make(n=2)), tmp_path, info_keys=()) for _ in range(2)]
    drivers = [Driver(env) for env in envs]
    for driver, env in zip(drivers, envs, strict=True):
        driver.play([])
        assert not env.num_episodes
    for _ in range(8):
        for driver in drivers:
            driver.step()
    for env in envs:
        env.close()
    found = read(envs[0].path)
    assert len(found) == sum(env.num_episodes for env in envs) == 8
    assert [facts["id"] for facts, _ in found] == list(range(len(found)))


def test_a_data_set_of_another_kind_is_refused(tmp_path):
    path = play(tmp_path)
    with pytest.raises(PlanError, match="expected a data set whose observation_space is "):
        play(tmp_path, SPACES["discrete"])
    metadata = json.loads((path / "metadata.json").read_text())
    (path / "metadata.json").write_text(json.dumps({**metadata, "data_format": "hdf5"}))
    with pytest.raises(PlanError, match="whose data_format is arrow, got hdf5; give another dir"):
        play(tmp_path)
    (path / "metadata.json").write_text("no JSON")
    with pytest.raises(PlanError, match="metadata.json that cannot be read"):
        play(tmp_path)


# Each child of this program is killed before another call that changes files, within the step that
# ends its third and fourth episode; it writes down how many had ended when a step returned. The
# calls that are counted are those in modules of this name.
KILLED = """
import os, signal, sys
from functools import partial
from pathlib import Path
import minari, pyarrow.dataset
from minari.dataset._storages import arrow_storage
from tests.helpers.backends import DummyBackend
from tests.helpers.stream_envs import ToyEnv
from vecwrap.wrappers.record_trajectories import RecordTrajectories

CHANGES = {"open", "write", "close", "__exit__", "mkdir", "rename", "replace", "rmdir", "unlink"}

def record(folder, moment):
    backend = DummyBackend([partial(ToyEnv, lengths=(3,), index=i) for i in range(2)])
    env = RecordTrajectories(backend, folder)
    env.reset(seed=1)
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        file = frame.f_code.co_filename
        if event == "c_call" and argument.__name__ in CHANGES and sys.argv[2] in file:
            calls += 1
            if calls == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    for step in range(6):
        if step == 5:
            sys.setprofile(count)
        env.step([0, 1])
        sys.setprofile(None)
        (folder.parent / f"{folder.name}.ended").write_text(str(env.num_episodes))
    (folder.parent / f"{folder.name}.calls").write_text(str(calls))
    os._exit(0)

def child(folder, moment):
    pid = os.fork()
    if not pid:
        record(folder, moment)
    return os.waitpid(pid, 0)[1]

root = Path(sys.argv[1])
assert child(root / "whole", -1) == 0
most = int((root / "whole.calls").read_text())
for moment in range(1, most + 1):
    assert child(root / str(moment), moment) == signal.SIGKILL
print(most)
"""


@pytest.mark.parametrize(
    "module", ["atomic_files", "pathlib", pytest.param("", marks=pytest.mark.soak)]
)
def test_a_killed_program_loses_its_running_episodes_alone(module, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), module],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    left_over = set()
    for number in range(1, int(done.stdout) + 1):
        path = tmp_path / str(number) / "episodes-v0" / "data"
        assert (tmp_path / f"{number}.ended").read_text() == "2"
        found = read(path)
        assert len(found) in (2, 4)
        left_over |= {entry.name for entry in path.iterdir()} - set(map(str, range(len(found))))
        for facts, episode in found:
            codes = 1 + (97 * facts["env"] + 31 * (facts["id"] // 2) + np.arange(4)) % 250
            assert_same(episode.observations[:, 0], codes.astype(np.float32))
            assert len(episode) == 3
    assert {"2", "3"} < left_over, "some were killed before the episodes counted"
    backend = DummyBackend([partial(ToyEnv, lengths=(3,))] * 2)
    with RecordTrajectories(backend, tmp_path / "1") as env:
        env.reset(seed=1)
        play_steps(env, 3)
    assert [facts["id"] for facts, _ in read(env.path)] == [0, 1, 2, 3]
    assert {entry.name for entry in env.path.iterdir()} == {"metadata.json", "0", "1", "2", "3"}


# -- what is refused -------------------------------------------------------------------------------


def test_minari_that_is_not_installed_is_said_in_the_plan(monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    made = []
    with pytest.raises(PlanError, match=r"needs Minari and pyarrow, .*: pip install .*\[minari\]"):
        vecwrap.build(
            lambda: made.append(ToyEnv()), n=2, wrappers=["record_trajectories"], backend="dummy"
        )
    assert not made


def test_spaces_without_a_form_games_and_names_are_refused(tmp_path):
    graph = spaces.Dict({"g": spaces.Graph(spaces.Discrete(2), None)})
    with pytest.raises(PlanError, match="observations: expected Box, .* got Graph"):
        RecordTrajectories(DummyBackend([partial(ToyEnv, observation_space=graph)]), tmp_path)
    for name in ("../episodes-v0", "/episodes-v0", "a/episodes-v0", "episodes", "two words-v0"):
        with pytest.raises(PlanError, match='dataset_id: expected "\\(namespace/\\)name-v0"'):
            RecordTrajectories(DummyBackend(make()), tmp_path, dataset_id=name)
    with pytest.raises(PlanError, match="max_steps: expected at least 1"):
        RecordTrajectories(DummyBackend(make()), tmp_path, max_steps=0)
    assert not list(tmp_path.iterdir())


def test_games_of_several_agents_are_refused(tmp_path):
    pytest.importorskip("pettingzoo.classic")
    recorder = {"record_trajectories": {"dir": str(tmp_path)}}
    with pytest.raises(PlanError, match="one agent each, got a game of several"):
        vecwrap.build("pettingzoo:classic/tictactoe-v3", n=1, wrappers=[recorder], backend="dummy")
