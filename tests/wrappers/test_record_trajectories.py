"""Trajectory files against what each sub-environment did, told by a driver that takes its stream apart."""

import json
import re
import tempfile
import zipfile
from itertools import pairwise
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

import vecwrap
from tests.backs import DummyBackend, ShmemBackend
from tests.calls import operations
from tests.streams import Driver, Lives, ToyEnv, assert_same
from vecwrap.errors import CheckpointError, PlanError
from vecwrap.rows.batch import leaves
from vecwrap.sources.sub_env import SubEnvFactory
from vecwrap.wrappers.clip_reward import ClipReward
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.record_trajectories import RecordTrajectories
from vecwrap.wrappers.seed_each_episode import SeedEachEpisode

MODES = ["same_step", "next_step", "disabled", "episodic"]
BOX = spaces.Box(0, 255, (2, 3), np.uint8)
TREE = spaces.Dict({"image": BOX, "more": spaces.Tuple([spaces.Discrete(5), spaces.Dict({"x": BOX})])})
STEPS = [("step", ())] * 20


def make(space=BOX, lengths=(3, 5, 1), n=3):
    return [lambda i=i: ToyEnv(lengths=lengths, index=i, observation_space=space) for i in range(n)]


def play(env, steps):
    for step in range(steps):
        env.step(np.full(env.num_envs, step % 3))


def read(path):
    """(header, arrays) of a file, of which nothing is unpickled."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return json.loads(str(arrays.pop("header"))), arrays


def files_of(folder, i):
    """All files of a sub-environment, in the order of its episodes and their parts."""
    found = [read(path) for path in folder.glob("*.npz")]
    return sorted(
        (one for one in found if one[0]["env"] == i), key=lambda one: (one[0]["episode"], one[0]["first_step"])
    )


def episodes_of(events):
    """The events of each episode: its reset and its steps."""
    episodes = []
    for event in events:
        if event.kind == "reset":
            episodes.append([])
        episodes[-1].append(event)
    return episodes


def check(folder, streams, max_steps):
    """Compare the files with what each sub-environment did; give how many there were."""
    count = 0
    for i, events in enumerate(streams):
        files = iter(files_of(folder, i))
        for number, (reset, *steps) in enumerate(episodes_of(events)):
            for first in range(0, len(steps), max_steps):
                part = steps[first : first + max_steps]
                header, arrays = next(files)
                over = part[-1].terminated or part[-1].truncated
                goes_on = first + max_steps < len(steps)
                broken = "closed" if number == len(episodes_of(events)) - 1 else "reset"
                reason = "terminated" if part[-1].terminated else "truncated" if over else broken
                assert header["ended"] == (None if goes_on else reason)
                assert (header["episode"], header["first_step"]) == (number, first)
                assert header["part"] == first // max_steps
                opening = reset if first == 0 else steps[first - 1]
                for t, event in enumerate([opening, *part]):
                    assert_same(
                        {name: values[t] for name, values in arrays.items() if name.startswith("observations")},
                        {
                            "/".join(map(str, ("observations", *path))): np.asarray(value)
                            for path, value in leaves(event.observation)
                        },
                    )
                assert arrays["actions"].tolist() == [event.action for event in part]
                assert arrays["rewards"].tolist() == [event.reward for event in part]
                assert arrays["terminations"].tolist() == [event.terminated for event in part]
                assert arrays["truncations"].tolist() == [event.truncated for event in part]
                count += 1
        assert next(files, None) is None
    return count


@settings(max_examples=40, deadline=None)  # it writes files
@given(
    mode=st.sampled_from(MODES),
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    space=st.sampled_from([BOX, TREE, spaces.Discrete(7, start=-2)]),
    max_steps=st.integers(1, 5),
    played=operations,
)
def test_files_hold_what_each_environment_did(mode, lengths, space, max_steps, played):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = RecordTrajectories(
            DummyBackend(make(space, lengths), autoreset=mode), name, max_steps=max_steps, compress=False
        )
        streams = Driver(env).play(played)
        env.close()
        check(folder, streams, max_steps)


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_writes_whole_episodes(mode, tmp_path):
    env = RecordTrajectories(DummyBackend(make(), autoreset=mode), tmp_path)
    streams = Driver(env).play(STEPS)
    env.close()
    assert check(tmp_path, streams, 1000) == env.num_files >= 3
    header, arrays = read(tmp_path / "env-001-episode-000000.npz")
    assert header == {
        "env_id": "ToyEnv",
        "pipeline": None,
        "env": 1,
        "episode": 0,
        "part": 0,
        "first_step": 0,
        "seed": 1,
        "ended": "terminated",
    }
    assert {name: (values.shape, values.dtype) for name, values in arrays.items()} == {
        "observations": ((4, 2, 3), np.uint8),
        "actions": ((3,), np.int64),
        "rewards": ((3,), np.float64),
        "raw_rewards": ((3,), np.float64),
        "terminations": ((3,), np.bool_),
        "truncations": ((3,), np.bool_),
        "raw_dones": ((3,), np.bool_),
    }


def test_workers_and_views_of_the_slots_give_the_same_files(tmp_path):
    for name, backend, options in (("a", DummyBackend, {}), ("b", ShmemBackend, {"workers": 1, "copy": False})):
        with RecordTrajectories(backend(make(TREE), **options), tmp_path / name, max_steps=2) as env:
            env.reset(seed=1)
            for step in range(12):
                env.step([step % 3, 1, 2])
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "b").iterdir())
    assert len(names) > 12
    for name in names:
        assert_same(read(tmp_path / "a" / name)[1], read(tmp_path / "b" / name)[1])


def test_names_of_episodes_and_of_parts(tmp_path):
    with RecordTrajectories(DummyBackend(make(lengths=(2, 5), n=1)), tmp_path, max_steps=2) as env:
        env.reset()
        for _ in range(7):
            env.step([0])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "env-000-episode-000000.npz",
        "env-000-episode-000001-part-000.npz",
        "env-000-episode-000001-part-001.npz",
        "env-000-episode-000001-part-002.npz",
    ]
    parts = [read(path)[1]["observations"] for path in sorted(tmp_path.glob("*part*"))]
    for before, after in pairwise(parts):
        assert_same(before[-1], after[0])


def test_rewards_as_the_agent_gets_them_beside_what_the_environment_paid(tmp_path):
    factory = SubEnvFactory(make(lengths=(5,))[1], (Lives,))
    with RecordTrajectories(ClipReward(DummyBackend([factory]), -0.1, 0.1), tmp_path) as env:
        env.reset()
        for _ in range(4):
            env.step([1])
    files = files_of(tmp_path, 0)
    assert [arrays["raw_dones"].tolist() for _, arrays in files] == [[False, False], [False, True]]
    assert all(arrays["terminations"].tolist() == [False, True] for _, arrays in files)
    for _, arrays in files:
        assert np.abs(arrays["rewards"]).max() <= 0.1
        assert np.abs(arrays["raw_rewards"]).max() > 1


@pytest.mark.parametrize("mode", MODES)
def test_seeds_are_those_of_resets_and_of_a_schedule(mode, tmp_path):
    with RecordTrajectories(DummyBackend(make(lengths=(2,), n=2), autoreset=mode, seed=7), tmp_path / "reset") as env:
        env.reset()
        env.step([0, 0])
        env.reset(seed=[30, 31], options={"reset_mask": np.array([False, True])})
        env.step([0, 0])
        env.reset(options={"reset_mask": np.array([True, True])})
        env.step([0, 0])
    assert [header["seed"] for header, _ in files_of(tmp_path / "reset", 0)] == [7, None]
    assert [header["seed"] for header, _ in files_of(tmp_path / "reset", 1)] == [8, 31, None]
    schedule = SeedEachEpisode(DummyBackend(make(lengths=(2,), n=2), autoreset=mode), [5, 6, 7, None])
    env = RecordTrajectories(schedule, tmp_path / "schedule")
    streams = Driver(env).play([("step", ())] * 9)  # its first reset has seed 0
    env.close()
    check(tmp_path / "schedule", streams, 1000)
    seeds = [header["seed"] for header, _ in files_of(tmp_path / "schedule", 1)]
    assert seeds[:3] == ([1] if mode == "episodic" else [1, 7, None])  # where an ended row rests until it is reset


def test_a_seed_that_a_schedule_replaced_by_none_is_not_the_episodes(tmp_path):
    schedule = SeedEachEpisode(DummyBackend(make(lengths=(1,), n=2)), [4], use="once", replace=True)
    with RecordTrajectories(schedule, tmp_path) as env:
        env.reset(seed=20)  # the list has no entry for the second
        env.step([0, 0])
    assert [[header["seed"] for header, _ in files_of(tmp_path, i)] for i in range(2)] == [[4], [None]]


class TellsASeed(ToyEnv):
    """A toy that has a use of its own for the word that a schedule tells its seeds by."""

    said: object = 99

    def info(self, over=False):
        return {**super().info(over), "episode_seed": self.said}


@pytest.mark.parametrize("said", [99, None, "of a level"])
def test_what_an_environment_calls_episode_seed_is_not_the_seed_of_its_reset(said, tmp_path):
    def toy():
        env = TellsASeed(lengths=(1,))
        env.said = said
        return env

    with RecordTrajectories(DummyBackend([toy] * 2), tmp_path) as env:
        env.reset(seed=20)
        env.step([0, 0])
        env.step([0, 0])
    assert [[header["seed"] for header, _ in files_of(tmp_path, i)] for i in range(2)] == [[20, None], [21, None]]


class FailsWithSeed8(ToyEnv):
    """A toy whose reset raises with one seed."""

    def reset(self, *, seed=None, options=None):
        if seed == 8:
            raise RuntimeError("boom")
        return super().reset(seed=seed, options=options)


@pytest.mark.parametrize("mode", MODES)
def test_a_seed_that_the_reset_failed_with_is_not_the_episodes(mode, tmp_path):
    backend = DummyBackend([FailsWithSeed8] * 2, autoreset=mode, on_failure="restart", restart_backoff=0.0)
    with RecordTrajectories(backend, tmp_path) as env:
        env.reset(seed=7)
        env.step([0, 0])
        env.reset(seed=20)
        env.step([0, 0])
    assert [header["seed"] for header, _ in files_of(tmp_path, 0)] == [7, 20]
    assert [header["seed"] for header, _ in files_of(tmp_path, 1)] == [None, 21]


@pytest.mark.parametrize("mode", MODES)
def test_an_episode_that_a_reset_breaks_off_has_no_step_into_the_next(mode, tmp_path):
    with RecordTrajectories(DummyBackend(make(lengths=(9,), n=2), autoreset=mode), tmp_path) as env:
        env.reset()
        play(env, 2)
        env.reset(options={"reset_mask": np.array([True, False])})
        play(env, 1)
    told = [[(header["ended"], len(arrays["actions"])) for header, arrays in files_of(tmp_path, i)] for i in (0, 1)]
    assert told == [[("reset", 2), ("closed", 1)], [("closed", 3)]]


@pytest.mark.parametrize("max_steps", [1, 2, 4])
def test_what_is_broken_off_exactly_at_a_parts_end_says_how_it_ended(max_steps, tmp_path):
    with RecordTrajectories(DummyBackend(make(lengths=(9,), n=1)), tmp_path, max_steps=max_steps) as env:
        for _ in range(2):
            env.reset()
            for _ in range(4):
                env.step([0])
    told = [(header["episode"], header["ended"]) for header, _ in files_of(tmp_path, 0)]
    parts = 4 // max_steps - 1
    assert told == [(0, None)] * parts + [(0, "reset")] + [(1, None)] * parts + [(1, "closed")]
    assert all(len(arrays["actions"]) == max_steps for _, arrays in files_of(tmp_path, 0))


def test_some_sub_environments_alone(tmp_path):
    with RecordTrajectories(DummyBackend(make(lengths=(2,))), tmp_path, envs=(2, 0)) as env:
        env.reset()
        for step in range(3):
            env.step([0, 1, step % 3])
    assert {header["env"] for header, _ in map(read, tmp_path.iterdir())} == {0, 2}
    assert files_of(tmp_path, 2)[0][1]["actions"].tolist() == [0, 1]


def test_envs_may_be_numpys_integers(tmp_path):
    with RecordTrajectories(DummyBackend(make()), tmp_path, envs=tuple(np.array([2, 0]))) as env:
        env.reset()
        play(env, 4)
        state = env.wrapper_state()
    assert [header["env"] for i in (0, 2) for header, _ in files_of(tmp_path, i)] == [0, 0, 2, 2]
    assert json.dumps(state["envs"]) == "[2, 0]"


def test_a_lost_row_ends_its_episode_without_a_step(tmp_path):
    env = RecordTrajectories(DummyBackend(make(lengths=(9,)), autoreset="next_step"), tmp_path)
    env.reset()
    env.step([0, 0, 0])
    env.step_async([1, 1, 1])
    step = env.env.rows.receive(3, None)
    lost = step.lost = np.array([False, True, False])
    step.truncations, step.acted, step.live = lost, ~lost, ~lost
    env.on_step(step)
    (header, arrays), *_ = files_of(tmp_path, 1)
    assert header["ended"] == "lost"
    assert arrays["actions"].tolist() == [0]
    env.close()
    assert [len(arrays["actions"]) for i in (0, 2) for _, arrays in files_of(tmp_path, i)] == [2, 2]


def test_memory_is_bounded(tmp_path):
    with RecordTrajectories(DummyBackend(make(lengths=(10**6,))), tmp_path, max_steps=7, compress=False) as env:
        sizes = set()
        env.reset()
        for _ in range(40):
            env.step([0, 0, 0])
            trajectories = env._trajectories
            arrays = [*trajectories._observations.values(), *trajectories._transitions.values()]
            sizes.add(sum(array.nbytes for array in arrays))
    assert sizes == {3 * (8 * 6 + 7 * (8 + 8 + 8 + 3))}


def test_state_goes_on_as_if_it_had_never_stopped(tmp_path):
    whole = RecordTrajectories(DummyBackend(make()), tmp_path / "whole", max_steps=2)
    whole.reset(seed=3)
    play(whole, 4)
    state = whole.wrapper_state()
    before = {path.name for path in (tmp_path / "whole").iterdir()}
    backend = whole.env
    on = RecordTrajectories(backend, tmp_path / "on", max_steps=2)
    on.load_wrapper_state(state)
    state["open"][:] = False  # a copy
    for name in state["trajectories"][0]:
        state["trajectories"][0][name][...] = 0
    for step in range(4, 12):
        backend_step = np.array([step % 3, 1, 2])
        on.on_actions(whole.on_actions(backend_step, np.arange(3)), np.arange(3))
        backend.rows.send(backend_step, np.arange(3))
        result = backend.rows.receive(3, None)
        whole.on_step(result.replace())
        on.on_step(result.replace())
    whole.on_close()
    on.on_close()
    backend.close()
    after = {path.name for path in (tmp_path / "whole").iterdir()} - before
    assert after == {path.name for path in (tmp_path / "on").iterdir()}
    assert len(after) > 6
    for name in after:
        expected, got = read(tmp_path / "whole" / name), read(tmp_path / "on" / name)
        assert got[0] == expected[0]
        assert_same(got[1], expected[1])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"envs": (0, 2), "max_steps": 9}, r"envs: the state is for \[0, 1\], but this environment records \[0, 2\]"),
        ({"envs": (1,), "max_steps": 9}, r"envs: the state is for \[0, 1\], but this environment records \[1\]"),
        (
            {"envs": (0, 1), "max_steps": 2},
            "max_steps: the state has a part of 4 steps, but this environment writes at most 2",
        ),
    ],
)
def test_a_state_that_has_no_place_here_is_refused_before_any_wrapper_takes_it_in(options, words, tmp_path):
    def build(**options):
        env = RecordTrajectories(DummyBackend(make(lengths=(9,))), tmp_path, **options)
        return Monitor(env)

    with build(envs=(0, 1), max_steps=9) as env:
        env.reset(seed=3)
        play(env, 4)
        state = env.state_dict()
    with build(**options) as env:
        env.reset(seed=3)
        with pytest.raises(CheckpointError, match=f"record_trajectories: {words}"):
            env.load_state_dict(state)
        assert env.wrapper_state()["lengths"].tolist() == [0, 0, 0]
        play(env, 4)
    assert env.wrapper_state()["lengths"].tolist() == [4, 4, 4]


@pytest.mark.parametrize("compress", [True, False])
def test_compression(compress, tmp_path):
    with RecordTrajectories(DummyBackend(make(lengths=(3,))), tmp_path, compress=compress) as env:
        env.reset()
        for _ in range(3):
            env.step([0, 0, 0])
    with zipfile.ZipFile(next(tmp_path.iterdir())) as file:
        assert {entry.compress_type for entry in file.infolist()} == {
            zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
        }


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_nothing_is_overwritten_and_no_half_file_is_left(tmp_path):
    for _ in range(2):
        with RecordTrajectories(DummyBackend(make(lengths=(1,), n=1)), tmp_path) as env:
            env.reset()
            env.step([0])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "env-000-episode-000000-1.npz",
        "env-000-episode-000000.npz",
    ]


def test_another_who_is_quicker_keeps_the_name(tmp_path, monkeypatch):
    theirs, save = tmp_path / "env-000-episode-000000.npz", np.savez_compressed

    def slow(file, **arrays):
        save(file, **arrays)
        theirs.write_bytes(b"another's")

    monkeypatch.setattr(np, "savez_compressed", slow)
    monkeypatch.setattr(Path, "exists", lambda path: False)  # it was not there yet when we looked
    with RecordTrajectories(DummyBackend(make(lengths=(2,), n=1)), tmp_path) as env:
        env.reset()
        play(env, 2)
    assert theirs.read_bytes() == b"another's"
    assert len(read(tmp_path / "env-000-episode-000000-1.npz")[1]["rewards"]) == 2
    assert len(list(tmp_path.iterdir())) == 2


def test_a_write_that_fails_ends_the_recording_and_not_the_run(tmp_path, monkeypatch):
    env = RecordTrajectories(DummyBackend(make(lengths=(2,))), tmp_path)
    env.reset()
    for _ in range(2):
        env.step([0, 0, 0])
    written = sorted(tmp_path.iterdir())
    assert len(written) == 3

    def full(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.warns(RuntimeWarning, match="record_trajectories: the recording has ended.*No space left") as caught:
        play(env, 6)
    assert len(caught) == 1
    env.close()
    assert sorted(tmp_path.iterdir()) == written
    assert env.num_files == 3


def full(file, **arrays):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("envs", [None, (2, 0)])
@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_after_a_write_that_failed_a_saved_state_has_no_half_episode_and_counts_on(mode, envs, tmp_path, monkeypatch):
    backend = DummyBackend(make(lengths=(2, 9, 3)), autoreset=mode)
    failing = RecordTrajectories(backend, tmp_path, envs=envs)
    failing.reset()
    with monkeypatch.context() as patch:
        patch.setattr(np, "savez_compressed", full)
        with pytest.warns(RuntimeWarning, match="the recording has ended"):
            play(failing, 15)  # the first write fails in the step that opens episode 1
    state = failing.wrapper_state()
    assert not state["open"].any()
    assert not any(len(part["rewards"]) for part in state["trajectories"])
    on = RecordTrajectories(backend, tmp_path, envs=envs)
    on.load_wrapper_state(state)
    play(on, 30)
    on.close()
    next_one = 4 if mode == "same_step" else 3  # what runs now is not recorded
    for i in range(3) if envs is None else envs:
        files = files_of(tmp_path, i)
        assert [header["episode"] for header, _ in files][:2] == [next_one, next_one + 1]
        for header, arrays in files[:2]:
            first = ToyEnv(index=i, observation_space=BOX)
            first.episode = header["episode"]
            assert_same(arrays["observations"][0], first.observe())
            assert len(arrays["rewards"]) == (2, 9, 3)[header["episode"] % 3]


def test_what_a_recording_that_has_ended_takes_in_is_no_running_episode(tmp_path, monkeypatch):
    with RecordTrajectories(DummyBackend(make(lengths=(3,))), tmp_path) as env:
        env.reset()
        play(env, 2)
        state = env.wrapper_state()
        with monkeypatch.context() as patch:
            patch.setattr(np, "savez_compressed", full)
            with pytest.warns(RuntimeWarning, match="the recording has ended"):
                play(env, 1)
        env.load_wrapper_state(state)
        assert not env.wrapper_state()["open"].any()


def test_a_folder_that_cannot_be_written_is_an_error_before_the_first_step(tmp_path):
    (tmp_path / "taken").write_text("")
    with (
        RecordTrajectories(DummyBackend(make()), tmp_path / "taken") as env,
        pytest.raises(PlanError, match="record_trajectories: dir: expected a folder"),
    ):
        env.reset()


@pytest.mark.parametrize(
    ("space", "leaf"),
    [
        (spaces.Text(4), "observations"),
        (spaces.Dict(a=BOX, b=spaces.Tuple([spaces.Graph(BOX, None)])), "observations/b/0"),
        (spaces.Sequence(BOX), "observations"),
    ],
)
def test_what_would_have_to_be_pickled_is_refused(space, leaf):
    class Odd(ToyEnv):
        def __init__(self):
            super().__init__(observation_space=space)

    message = re.escape(f"record_trajectories: {leaf}: expected Box, Discrete")
    with DummyBackend([Odd]) as env, pytest.raises(PlanError, match=message):
        RecordTrajectories(env)


def test_two_members_of_one_name_are_refused():
    space = spaces.Dict({"a": spaces.Dict({"b": BOX}), "a/b": BOX})
    with DummyBackend(make(space)) as env, pytest.raises(PlanError, match='called "observations/a/b" in a file'):
        RecordTrajectories(env)


def test_actions_of_a_tree_have_arrays_of_their_own(tmp_path):
    class Busy(ToyEnv):
        def __init__(self):
            super().__init__(lengths=(3,))
            self.action_space = spaces.Dict(a=spaces.Discrete(3), b=spaces.Tuple([spaces.MultiBinary(2)]))

        def step(self, action):
            return super().step(action["a"])

    with RecordTrajectories(DummyBackend([Busy] * 2), tmp_path) as env:
        env.reset()
        env.action_space.seed(4)
        actions = [env.action_space.sample() for _ in range(3)]
        for action in actions:
            env.step(action)
    _, arrays = files_of(tmp_path, 1)[0]
    assert arrays["actions/a"].tolist() == [action["a"][1] for action in actions]
    assert_same(arrays["actions/b/0"], np.stack([action["b"][0][1] for action in actions]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"envs": ()}, "envs: expected indices from 0 to 2"),
        ({"envs": (3,)}, "envs: expected indices from 0 to 2"),
        ({"max_steps": 0}, "max_steps: expected at least 1, got 0"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, message):
    with DummyBackend(make()) as env, pytest.raises(PlanError, match=f"record_trajectories: {message}"):
        RecordTrajectories(env, **arguments)


def test_in_a_pipeline_the_header_has_its_hash(tmp_path):
    wrapper = {"record_trajectories": {"dir": str(tmp_path), "max_steps": 4}}
    with vecwrap.build("CartPole-v1", n=2, wrappers=[wrapper], backend="dummy") as env:
        env.reset(seed=1)
        for _ in range(5):
            env.step([0, 1])
        hash_ = env.pipeline.hash
    header, _ = read(tmp_path / "env-000-episode-000000-part-000.npz")
    assert (header["env_id"], header["pipeline"], header["seed"]) == ("CartPole-v1", hash_, 1)
    with vecwrap.build("CartPole-v1", n=2, wrappers=["record_trajectories:else"], backend="dummy") as env:
        assert env.pipeline.hash == hash_
    assert gymnasium.spec("CartPole-v1").id == header["env_id"]
