"""Saved states with anything at all in them: each is refused as a CheckpointError that changes
nothing, or loaded.
"""

import copy
import io
import os
import stat
import warnings
import zipfile
from collections import deque
from copy import deepcopy

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers

from tests.env.test_checkpoint import Drawn, Walk
from tests.env.test_env_state import Walk as Painted
from tests.helpers.backends import DummyBackend, ShmemBackend
from vecwrap.env.state_file import read_state, write_state
from vecwrap.errors import CheckpointError, VecwrapError
from vecwrap.sources.source_factories import SubEnvFactory
from vecwrap.testing import assert_same
from vecwrap.wrappers.atari import Atari
from vecwrap.wrappers.check_nan import CheckNan
from vecwrap.wrappers.framestack import FrameStack
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.normalize import Normalize
from vecwrap.wrappers.seed_each_episode import SeedEachEpisode
from vecwrap.wrappers.sticky_actions import StickyActions
from vecwrap.wrappers.terminal_obs import TerminalObs
from vecwrap.wrappers.tile import Tile
from vecwrap.wrappers.time_aware import TimeAware
from vecwrap.wrappers.video import Video

gymnasium.register_envs(ale_py)


class Strict(Walk):
    """Takes nothing but a number."""

    def load_state_dict(self, state):
        self.place = float(state["place"])


class Rendered(Painted):
    """Renders; takes nothing but a number."""

    load_state_dict = Strict.load_state_dict


def of_gymnasium():
    env = wrappers.RecordEpisodeStatistics(wrappers.TimeLimit(Strict(), 30))
    env = wrappers.NormalizeReward(wrappers.NormalizeObservation(env))
    return StickyActions(wrappers.FrameStackObservation(env, 2))


def game():
    return gymnasium.make("BreakoutNoFrameskip-v4", max_episode_steps=400)


def recorders(folder):
    return Tile(
        Video(DummyBackend([Rendered] * 2), folder / "videos", trigger=lambda episode: False)
    )


CHAINS = {
    "numbers": lambda folder: Normalize(
        CheckNan(TerminalObs(Monitor(DummyBackend([Strict] * 2)), record=2))
    ),
    "stack": lambda folder: FrameStack(TimeAware(DummyBackend([Strict] * 2), limit=50), 2),
    "schedule": lambda folder: SeedEachEpisode(DummyBackend([Drawn] * 2), [3, 5, 7]),
    "restarts": lambda folder: DummyBackend([Drawn] * 2, on_failure="restart", max_restarts=2),
    "gymnasium": lambda folder: DummyBackend([of_gymnasium] * 2),
    "recorders": recorders,
    "atari": lambda folder: Monitor(FrameStack(DummyBackend([SubEnvFactory(game, (Atari,))]), 4)),
    "shmem": lambda folder: Monitor(FrameStack(ShmemBackend([Drawn] * 2), 2)),
}

STRANGE = [
    *(
        None,
        True,
        3,
        -1,
        10**30,
        0.5,
        float("nan"),
        "text",
        "",
        b"bytes",
        [],
        ["x"],
        {},
        {"x": 1},
        {"__dict__": {}},
    ),
    *((1, 2), deque([1], 1), np.zeros(0), np.zeros((3, 3)), np.array(["a", "b"]), np.float32(1)),
]
FEW_STRANGE = ["text", np.zeros((3, 3)), None]
MISSING = object()


def places(value, path=()):
    """Every place in a tree, but of long lists only the ends."""
    yield path
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, (list, tuple, deque)):
        inner = {i: value[i] for i in (0, -1) if value}.items()
    else:
        inner = ()
    for key, part in inner:
        yield from places(part, (*path, key))


def changed(value, path, strange):
    """A copy of a tree with something else in one place."""
    if not path:
        return strange
    value = list(value) if isinstance(value, tuple) else type(value)(value)
    if len(path) == 1 and strange is MISSING:
        del value[path[0]]
    else:
        value[path[0]] = changed(value[path[0]], path[1:], strange)
    return value


def comparable(state):
    """A state without what clocks say, or no load restores."""
    state = deepcopy(state)
    for wrapper in state["wrappers"]:
        wrapper.pop("elapsed", None)
        for memory in wrapper.get("remembered", ()):
            memory["attributes"].pop("x", None)  # one more attribute is loaded, and stays
    for row in state["sub_envs"]:
        row.pop("rewards")  # not loaded: the next step writes it
        for wrapper in row["env"]:
            wrapper["state"].get("attributes", {}).pop("episode_start_time", None)
        row.get("recovery", {}).get("restarts", {}).pop("ages", None)
    return state


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "every", [25, pytest.param(3, marks=pytest.mark.full), pytest.param(1, marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("name", CHAINS)
def test_anything_anywhere_in_a_state_is_refused_and_changes_nothing_or_is_loaded(
    name, every, tmp_path
):
    """One thing that is strange at one place, and another at the next; all of them in the long
    runs.
    """
    with CHAINS[name](tmp_path) as env:
        env.reset(seed=1)
        for _ in range(7):
            env.step(env.action_space.sample() * 0)
        state = env.state_dict()
        before = comparable(state)
        outcomes = {True: 0, False: 0}
        for number, path in enumerate(list(places(state))[1:]):
            key = path[-1]
            strange_here = STRANGE[number % every :: every]
            if name in ("atari", "shmem"):  # which are slow
                strange_here = FEW_STRANGE if every < 25 else [FEW_STRANGE[number % 3]]
            for strange in [MISSING, *strange_here]:
                given = changed(state, path, strange)
                try:
                    env.load_state_dict(given)
                except CheckpointError:
                    assert_same(
                        before, comparable(env.state_dict()), f"after {strange!r} at {path}"
                    )
                    outcomes[False] += 1
                except BaseException as error:
                    raise AssertionError(f"{strange!r} at {path} ({key})") from error
                else:
                    try:
                        env.step(env.action_space.sample() * 0)
                    except VecwrapError:
                        pass
                    except Exception as error:
                        raise AssertionError(f"{strange!r} at {path}, stepped") from error
                    env.load_state_dict(state)
                    outcomes[True] += 1
        assert outcomes[False] > outcomes[True], outcomes


def packed(path, structure, arrays=(), compress=False):
    """Write a file as ``write_state`` would, of any structure."""
    text = np.frombuffer(structure.encode(), np.uint8)
    (np.savez_compressed if compress else np.savez)(path, structure=text, **dict(arrays))


@pytest.mark.parametrize(
    "structure",
    [
        *(
            '{"dict": []}',
            '{"dict": 3}',
            '{"pairs": 3}',
            '{"pairs": [[1]]}',
            '{"pairs": [[[1], 2]]}',
            "{}",
            "[1]",
            "3",
        ),
        *(
            '{"deque": [1, 2], "maxlen": 1}',
            '{"deque": [1], "maxlen": -1}',
            '{"deque": [], "maxlen": "x"}',
        ),
        *(
            '{"deque": 3, "maxlen": 1}',
            '{"deque": []}',
            '{"graph": [1]}',
            '{"graph": 3}',
            '{"tuple": 3}',
        ),
        *(
            '{"array": "b"}',
            '{"array": 3}',
            '{"array": []}',
            '{"array": "a", "scalar": true}',
            '{"array": "../a"}',
        ),
        *('{"objects": [1, 2], "shape": [3]}', '{"objects": 3}', '{"objects": [], "shape": ["x"]}'),
        *(
            '{"objects": [1], "shape": [1000000000000000000000]}',
            "",
            "{",
            "[" * 5000,
            "[" * 200 + "]" * 200,
            "\x00",
        ),
        *('{"dict": {"hash": {"array": "a"}}}', "9" * 5000),
    ],
)
def test_a_file_of_another_structure_is_refused(tmp_path, structure):
    file = tmp_path / "state.npz"
    if not structure.startswith('{"dict": {"hash"'):
        structure = (
            f'{{"dict": {{"x": {structure}}}}}'
            if structure[:1] == "{" and len(structure) > 2
            else structure
        )
    packed(file, structure, {"a": np.zeros(2)})
    with pytest.raises(CheckpointError, match=f"^{file}: not a state that vecwrap saved"):
        read_state(file)
    with (
        pytest.raises(CheckpointError, match="not a state that vecwrap saved"),
        DummyBackend([Drawn]) as env,
    ):
        env.load(file)


def header(declared, data=b""):
    """A .npy file of uint8 that says any number of elements."""
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {declared}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + data


@pytest.mark.parametrize(
    "declared", ["(10**12,)", "(1000000000000,)", "(-1,)", "(1000000, 1000000, 1000000, 10000000)"]
)
def test_an_array_that_only_says_that_it_is_large_is_refused(tmp_path, declared):
    file = tmp_path / "state.npz"
    packed(file, '{"dict": {"x": {"array": "a"}}}')
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("a.npy", header(declared, b"abc"))
    with pytest.raises(CheckpointError, match="not a state that vecwrap saved"):
        read_state(file)


REFERENCE = '{"array": "a"}'
BOMBS = {
    "zeros": ('{"dict": {"x": {"array": "a"}}}', np.zeros(4_000_000, np.uint8)),
    "one array a hundred times": (
        f'{{"dict": {{"x": [{", ".join([REFERENCE] * 100)}]}}}}',
        np.arange(40_000, dtype=np.uint8),
    ),
    "text": (f'{{"dict": {{"x": [{", ".join(["[]"] * 100_000)}]}}}}', np.zeros(1)),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_file_of_a_large_state_is_refused(tmp_path, bomb):
    file = tmp_path / "state.npz"
    structure, array = BOMBS[bomb]
    packed(file, structure, {"a": array}, compress=bomb != "one array a hundred times")
    with pytest.raises(CheckpointError, match=f"^{file}: not a state that vecwrap saved"):
        read_state(file)


def overlapping(path, count, name="a"):
    """Write an archive whose directory lists one array ``count`` times; return how often its bytes
    are read.
    """
    array = io.BytesIO()
    np.save(array, np.zeros(100_000, np.uint8))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}00.npy", array.getvalue())
        (first,) = archive.infolist()
        for k in range(1, count):
            entry = copy.copy(first)
            entry.filename = entry.orig_filename = f"{name}{k:02d}.npy"
            archive.filelist.append(entry)


def test_arrays_that_overlap_are_refused_before_one_is_read(tmp_path, monkeypatch):
    file = tmp_path / "state.npz"
    overlapping(file, 50)
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *args, **kwargs: pytest.fail("it was read"))
    with pytest.raises(CheckpointError, match="its arrays overlap"):
        read_state(file)


def test_an_array_is_refused_by_its_header_before_memory_is_taken(tmp_path, monkeypatch):
    file = tmp_path / "state.npz"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.npy", header("(10**9,)".replace("10**9", str(10**9)), b"abc"))
    monkeypatch.setattr(
        np.lib.format, "read_array", lambda *args, **kwargs: pytest.fail("memory was taken")
    )
    with pytest.raises(CheckpointError, match="has another number of bytes"):
        read_state(file)


def test_two_arrays_of_one_name_are_refused(tmp_path):
    file = tmp_path / "state.npz"
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w") as archive:
        warnings.simplefilter("ignore")
        for _ in range(2):
            archive.writestr("a.npy", header("(3,)", b"abc"))
    with pytest.raises(CheckpointError, match="two of its arrays have one name"):
        read_state(file)


def test_values_nested_too_deep_are_refused_when_they_are_saved(tmp_path):
    deep = []
    for _ in range(200):
        deep = [deep]
    with pytest.raises(CheckpointError, match="nested at most 100 deep"):
        write_state(tmp_path / "state.npz", {"x": deep})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "strange",
    [
        MISSING,
        *(
            pytest.param(value, marks=() if k % 3 == 0 else pytest.mark.full)
            for k, value in enumerate(STRANGE)
        ),
    ],
    ids=lambda strange: repr(strange)[:20],
)
def test_statistics_with_anything_in_them_are_refused_and_change_nothing_or_are_used(
    tmp_path, strange
):
    file = tmp_path / "stats.npz"
    with Normalize(DummyBackend([Strict] * 2)) as env:
        env.reset(seed=1)
        env.step([0, 1])
        env.save(file)
        state = read_state(file)
        before = env.state_dict()["statistics"]
        inside = [
            path
            for path in places(state)
            if path[:1] == ("statistics",) or path[:2] == ("chain", "wrappers")
        ]
        for path in [*inside, ("chain",), ("hash",)]:
            try:
                write_state(file, changed(state, path, strange))
                env.share_statistics(file)
            except CheckpointError:
                assert_same(before, env.state_dict()["statistics"])
            else:
                write_state(file, state)
                env.share_statistics(file)


def test_a_dunder_is_never_set(tmp_path):
    with DummyBackend([of_gymnasium]) as env:
        env.reset(seed=1)
        state = env.state_dict()
        for name in ("__dict__", "__class__", "__module__", "__anything"):
            wrappers = deepcopy(state["sub_envs"][0]["env"])
            wrappers[1]["state"]["attributes"][name] = {}
            with pytest.raises(CheckpointError, match=f"got its attribute {name}"):
                env.load_state_dict(
                    {**state, "sub_envs": [{**state["sub_envs"][0], "env": wrappers}]}
                )


def test_saving_keeps_the_mode_of_a_file_and_follows_a_link(tmp_path):
    file, link = tmp_path / "state.npz", tmp_path / "latest.npz"
    with DummyBackend([Drawn]) as env:
        env.reset(seed=1)
        env.save(file)
        mask = os.umask(0)
        os.umask(mask)
        assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~mask
        file.chmod(0o600)
        env.save(file)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        (tmp_path / "elsewhere").mkdir()
        link.symlink_to("elsewhere/real.npz")
        for _ in range(2):
            env.save(link)
            assert link.is_symlink()
            assert not (tmp_path / "elsewhere" / "real.npz").is_symlink()
        env.load(tmp_path / "elsewhere" / "real.npz")
    assert sorted(path.name for path in tmp_path.rglob("*.npz")) == [
        "latest.npz",
        "real.npz",
        "state.npz",
    ]
