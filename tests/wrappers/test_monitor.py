"""Scores and lengths of finished games, held against the environments' own books, Gymnasium's and
SB3's.
"""

import ast
import contextlib
import csv
import json
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit
from hypothesis import given, settings
from hypothesis import strategies as st

import vecwrap
import vecwrap.testing
from tests.helpers.backends import DummyBackend, EngineBackend, ShmemBackend, SubprocessBackend
from tests.helpers.stream_envs import Driver, Joined, Lives, Skip, ToyEnv, replay
from vecwrap.errors import PlanError
from vecwrap.sources.source_factories import SubEnvFactory
from vecwrap.wrappers import monitor as monitor_module
from vecwrap.wrappers.clip_reward import ClipReward
from vecwrap.wrappers.framestack import FrameStack
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.recording import monitor_file
from vecwrap.wrappers.terminal_obs import TerminalObs

ROOT = Path(__file__).parents[2]
MODES = ["same_step", "next_step", "disabled", "episodic"]
STEPS = [("step", ())] * 40
operations = st.lists(
    st.tuples(
        st.sampled_from(["step", "step", "step", "reset", "partial"]),
        st.lists(st.booleans(), min_size=3, max_size=3),
    ),
    min_size=10,  # so that games end
    max_size=60,
)


def factories(lengths=(3, 5, 2), wrappers=(), count=3):
    return [SubEnvFactory(lambda i=i: ToyEnv(lengths, i), wrappers) for i in range(count)]


def reports(events, key="episode"):
    """What a monitor said of one sub-environment, in order."""
    return [
        (event.infos[key]["r"], event.infos[key]["l"]) for event in events if key in event.infos
    ]


def games(make, events):
    """Scores as the environment itself added them up, and agent steps counted by hand."""
    env = make()
    toy = env.unwrapped
    found, length, number = [], 0, 0
    for event, _ in replay(env, events):
        length += event.kind == "step"
        if len(toy.scores) > len(found):
            found.append((toy.scores[-1], length))
        if toy.episode != number or toy.time == toy.lengths[toy.episode % len(toy.lengths)]:
            length, number = 0, toy.episode
    return found


def play(env, steps, action=0):
    """Step until done with it; for same-step mode."""
    env.reset()
    for _ in range(steps):
        env.step([action] * env.num_envs)


def read(path):
    """A reader of OpenAI Baselines' layout: a line of JSON after ``#``, then a headed table."""
    with Path(path).open() as file:
        first = file.readline()
        assert first[0] == "#"
        rows = list(csv.DictReader(file))
    return json.loads(first[1:]), rows


# -- episode length and return ---------------------------------------------------------------------


@settings(deadline=None)
@given(
    mode=st.sampled_from(MODES),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    played=operations,
)
def test_episode_length_and_return_equal_gymnasium_on_each_environment(mode, lengths, played):
    make = factories(lengths)
    with Monitor(DummyBackend(make, autoreset=mode)) as env:
        for i, events in enumerate(Driver(env).play(played)):
            peer = replay(RecordEpisodeStatistics(make[i]()), events)
            for event, (*_, info) in peer:
                assert ("episode" in event.infos) == ("episode" in info)
                if "episode" in info:
                    assert event.infos["episode"]["r"] == info["episode"]["r"]
                    assert event.infos["episode"]["l"] == info["episode"]["l"]


def test_episode_length_and_return_of_running_rows_survive_a_masked_reset():
    with Monitor(DummyBackend(factories((4,)))) as env:
        env.reset()
        env.step([0, 0, 0])
        env.reset(options={"reset_mask": np.array([True, False, False])})
        env.step([0, 0, 0])
        env.step([0, 0, 0])
        *_, infos = env.step([0, 0, 0])
        assert infos["episode"]["l"].tolist() == [0, 4, 4]
        assert infos["_episode"].tolist() == [False, True, True]
        *_, infos = env.step([0, 0, 0])
        assert infos["episode"]["l"].tolist() == [4, 0, 0]


@pytest.mark.parametrize("mode", MODES)
def test_episode_length_counts_no_reset_step_and_no_resting_row(mode):
    with Monitor(DummyBackend(factories((1, 2)), autoreset=mode)) as env:
        for events in Driver(env).play([*STEPS[:9], ("reset", (1, 1, 1)), *STEPS[:9]]):
            assert {length for _, length in reports(events)} == {1, 2}


# -- whose reward a monitor reports ----------------------------------------------------------------


@settings(deadline=None)
@given(
    mode=st.sampled_from(MODES),
    lengths=st.lists(st.integers(2, 6), min_size=1, max_size=3),
    lives=st.integers(1, 4),
    outside=st.booleans(),
    played=operations,
)
def test_whose_reward_a_monitor_reports_is_the_games_own_through_lost_lives_and_clipping(
    mode, lengths, lives, outside, played
):
    make = factories(lengths, (lambda env: Lives(env, lives),))
    backend = DummyBackend(make, autoreset=mode)
    env = Monitor(ClipReward(backend)) if outside else ClipReward(Monitor(backend))
    with env:
        for i, events in enumerate(Driver(env).play(played)):
            assert reports(events) == games(make[i], events)


@pytest.mark.parametrize("mode", MODES)
def test_whose_reward_a_monitor_reports_through_a_skip_and_a_stack(mode):
    make = factories((8, 5, 11), (Skip,))
    with Monitor(FrameStack(ClipReward(DummyBackend(make, autoreset=mode)), 2)) as env:
        for i, events in enumerate(Driver(env).play([*STEPS, ("reset", (1, 1, 1)), *STEPS])):
            assert reports(events) == games(make[i], events)
            assert len(reports(events)) >= 2


@settings(deadline=None)
@given(mode=st.sampled_from(MODES), lives=st.integers(1, 4), played=operations)
def test_whose_reward_a_monitor_reports_that_was_asked_for_the_seen_ones(mode, lives, played):
    make = factories(wrappers=(lambda env: Lives(env, lives),))
    with Monitor(DummyBackend(make, autoreset=mode), rewards="seen") as env:
        for i, events in enumerate(Driver(env).play(played)):
            for event, (*_, info) in replay(RecordEpisodeStatistics(make[i]()), events):
                expected = (
                    [(info["episode"]["r"], info["episode"]["l"])] if "episode" in info else []
                )
                assert reports([event]) == expected


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lives", [1, 2, 3])
def test_whose_reward_a_monitor_reports_in_every_mode(mode, lives):
    make = factories((3, 7, 2), (lambda env: Lives(env, lives),))
    played = [
        *STEPS[:6],
        ("reset", (1, 0, 1)),
        ("partial", (0, 1, 1)),
        *STEPS[:9],
        ("reset", (1, 1, 1)),
    ] * 24
    with Monitor(ClipReward(DummyBackend(make, autoreset=mode))) as env:
        for i, events in enumerate(Driver(env).play(played)):
            assert reports(events) == games(make[i], events)
            assert len(reports(events)) >= 10


def test_whose_reward_a_monitor_reports_when_a_game_ends_in_the_reset_after_a_lost_life():
    make = factories((3,), (lambda env: Lives(env, 2),))
    with Monitor(DummyBackend(make, autoreset="next_step")) as env:
        env.reset()
        env.step([0, 0, 0])
        *_, terminations, _, infos = env.step([0, 0, 0])
        assert terminations.all()
        assert "episode" not in infos
        *_, terminations, _, infos = env.step([0, 0, 0])  # the reset's own step ends the game
        assert not terminations.any()
        assert infos["episode"]["l"].tolist() == [2, 2, 2]
        assert infos["episode"]["r"].tolist() == [1.5, 4.5, 7.5]
        env.step([0, 0, 0])
        env.step([0, 0, 0])
        *_, infos = env.step([0, 0, 0])
        assert infos["episode"]["l"].tolist() == [2, 2, 2]


@pytest.mark.parametrize("mode", MODES)
def test_whose_reward_a_monitor_reports_when_a_wrapper_begins_the_next_game_within_a_step(mode):
    make = SubEnvFactory(lambda: ToyEnv((3, 1, 2), 1), (Joined,))
    with Monitor(DummyBackend([make], autoreset=mode)) as env:
        env.reset()
        dones, found = [False], []
        for _ in range(16):
            if dones[0] and mode in ("disabled", "episodic"):
                env.reset()
            _, _, terminations, truncations, infos = env.step([0])
            dones = terminations | truncations
            if "episode" in infos:
                found.append((infos["episode"]["r"][0], infos["episode"]["l"][0]))
        (scores,) = env.get_attr("scores")
        assert found == list(zip(scores, [3, 1, 2] * 9, strict=False))
        assert len(found) >= 6


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", [DummyBackend, SubprocessBackend, ShmemBackend])
def test_whose_reward_a_monitor_reports_when_a_wrapper_ends_games_in_the_reset_after_a_lost_life(
    backend, mode
):
    def limited(env):
        return TimeLimit(env, 3)

    def lives(env):
        return Lives(env, 2)

    played = (
        [*STEPS[:2], ("reset", (1, 1))] * 20
        if mode == "episodic"
        else [*STEPS, ("reset", (1, 0)), *STEPS]
    )
    told = []
    for make in (
        [SubEnvFactory(lambda i=i: limited(ToyEnv((9,), i)), (lives,)) for i in range(2)],
        factories((9,), (limited, lives), 2),
    ):
        inner = Monitor(ClipReward(backend(make, autoreset=mode)))
        with TerminalObs(inner, record=99) as env:
            events = [reports(of_one) for of_one in Driver(env).play(played)]
            assert [len(of_one) >= 12 for of_one in events] == [True, True]
            # The third step is the reset's own.
            assert {length for of_one in events for _, length in of_one} == {2}
            reached = vecwrap.evaluate(env, lambda observations: [0, 0], 8)
            endings = env.find(TerminalObs).endings
        ends = [[(ending.score, ending.length) for ending in of_one] for of_one in endings]
        told.append((events, reached.returns.tolist(), reached.lengths.tolist(), ends))
    assert told[0] == told[1]


def test_whose_reward_a_monitor_reports_when_a_reset_of_the_user_breaks_a_game_off():
    make = factories((9,), (lambda env: TimeLimit(env, 4), lambda env: Lives(env, 2)), 1)
    with Monitor(DummyBackend(make)) as env:
        play(env, 1)
        env.reset()  # amid a life
        env.step([0])
        *_, infos = env.step([0])  # loses a life
        assert infos["_final_info"][0]
        env.reset(seed=1)  # a seed begins a new game
        assert env.num_episodes == 0


def test_whose_reward_a_monitor_reports_when_a_wrapper_breaks_a_game_off():
    """Within the agent's episode: the game that the wrapper ended is one, as if a time limit had
    ended it.
    """
    for limit in (None, 4):
        make = SubEnvFactory(
            lambda limit=limit: TimeLimit(ToyEnv((5, 3), 1), limit or 99),
            (lambda env: Joined(env, most=4),),
        )
        with Monitor(DummyBackend([make])) as env:
            play(env, 3)
            assert env.num_episodes == 0
            *_, infos = env.step([0])
            assert (infos["episode"]["r"][0], infos["episode"]["l"][0]) == (6.5, 4)
            env.step([0])
            env.step([0])
            *_, infos = env.step([0])
            (scores,) = env.get_attr("scores")
            assert (infos["episode"]["r"][0], infos["episode"]["l"][0]) == (scores[0], 3)


def test_whose_reward_a_monitor_reports_when_the_next_game_begins_amid_a_skip():
    make = SubEnvFactory(lambda: ToyEnv((3, 4), 1), (Joined, lambda env: Skip(env, 2)))
    with Monitor(DummyBackend([make])) as env:
        env.reset()
        found = []
        for _ in range(4):
            *_, infos = env.step([0])
            found.append(
                (infos["episode"]["r"][0], infos["episode"]["l"][0]) if "episode" in infos else None
            )
        (scores,) = env.get_attr("scores")
        assert found == [None, (scores[0], 2), None, (scores[1], 2)]


def test_two_monitors_report_both_kinds_of_reward():
    with Monitor(
        ClipReward(Monitor(DummyBackend(factories((2,))))), rewards="seen", stats_key="clipped"
    ) as env:
        env.reset()
        env.step([2, 2, 2])
        *_, infos = env.step([2, 2, 2])
    assert infos["episode"]["r"].tolist() == [2.75, 4.75, 6.75]
    assert infos["clipped"]["r"].tolist() == [2.0, 2.0, 2.0]


# -- infos -----------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(gymnasium.vector, "AutoresetMode"), reason="needs autoreset modes")
def test_infos_are_laid_out_as_gymnasium_lays_them_out():
    make = [lambda i=i: ToyEnv((2 + i, 5), i) for i in range(3)]
    peer_class = gymnasium.wrappers.vector.RecordEpisodeStatistics
    peer = peer_class(
        gymnasium.vector.SyncVectorEnv(
            make, autoreset_mode=gymnasium.vector.AutoresetMode.NEXT_STEP
        )
    )
    with Monitor(DummyBackend(make, autoreset="next_step")) as env:
        env.reset()
        peer.reset()
        met = 0
        for _ in range(60):
            *_, infos = env.step(np.zeros(3, int))
            *_, expected = peer.step(np.zeros(3, int))
            assert ("episode" in infos, "_episode" in infos) == (
                "episode" in expected,
                "_episode" in expected,
            )
            if "episode" in expected:
                assert infos["_episode"].tolist() == expected["_episode"].tolist()
                assert list(infos["episode"]) == list(expected["episode"])
                for key in "rlt":
                    assert infos["episode"][key].dtype == expected["episode"][key].dtype
                    assert infos["episode"][key].shape == (3,)
                for key in "rl":
                    assert infos["episode"][key].tolist() == expected["episode"][key].tolist()
                met += 1
        assert met > 10
    peer.close()


def another_monitor(name):
    """A wrapper of a sub-environment that reports episodes as well."""
    if name == "gymnasium":
        return RecordEpisodeStatistics
    return pytest.importorskip("stable_baselines3.common.monitor").Monitor


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
@pytest.mark.parametrize("name", ["gymnasium", "sb3"])
def test_infos_of_another_monitor_in_the_environment_are_replaced_with_one_warning(name, mode):
    make = factories((2,), (another_monitor(name),))
    with Monitor(DummyBackend(make, autoreset=mode), stats_key="other") as env:
        play(env, 4)
    with Monitor(DummyBackend(make, autoreset=mode)) as env:
        with pytest.warns(
            UserWarning,
            match="Stable-Baselines3's Monitor.* games are counted twice; leave one of the",
        ):
            play(env, 2)
        for _ in range(6):  # a second warning would be an error
            env.step([0, 0, 0])


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.parametrize(
    ("name", "said", "backend"),
    [
        ("gymnasium", "Gymnasium's RecordEpisodeStatistics", "dummy"),
        ("gymnasium", "Gymnasium's RecordEpisodeStatistics", "shmem"),
        ("sb3", "Stable-Baselines3's Monitor", "dummy"),
        # Imports torch.
        pytest.param("sb3", "Stable-Baselines3's Monitor", "shmem", marks=pytest.mark.full),
    ],
)
def test_another_monitor_in_the_environment_is_named_when_it_is_built(name, said, backend):
    another = another_monitor(name)
    makers = [lambda: gymnasium.make("CartPole-v1"), lambda: another(gymnasium.make("CartPole-v1"))]
    with pytest.warns(
        UserWarning, match=f"leave one of the two out: {said} where the environments are made"
    ):
        env = vecwrap.build(makers, wrappers=["monitor"], backend=backend)
    with env:
        env.reset(seed=1)  # a second warning would be an error
        for _ in range(60):
            env.step([0, 1])
    vecwrap.build(makers, wrappers=["monitor:stats_key=mine"], backend=backend).close()


def test_a_monitor_of_sb3_in_its_own_vectors_is_named_at_the_first_reset():
    sb3 = pytest.importorskip("stable_baselines3.common.vec_env")
    venv = sb3.DummyVecEnv([lambda: another_monitor("sb3")(ToyEnv((99,)))])
    with vecwrap.wrap(vecwrap.from_sb3(venv), ["monitor"]) as env:
        with pytest.warns(
            UserWarning, match="leave one of the two out: Stable-Baselines3's Monitor where"
        ):
            env.reset()
        env.reset()


def test_a_monitor_of_sb3_in_its_own_vectors_is_told_too():
    sb3 = pytest.importorskip("stable_baselines3.common.vec_env")
    make = [lambda: another_monitor("sb3")(ToyEnv((2,)))]
    for venv in (sb3.DummyVecEnv(make), sb3.VecMonitor(sb3.DummyVecEnv(factories((2,))))):
        with (
            Monitor(vecwrap.from_sb3(venv)) as env,
            pytest.warns(UserWarning, match="games are counted twice"),
        ):
            play(env, 2)


@pytest.mark.parametrize("mode", MODES)
def test_infos_have_the_info_keys_of_the_step_that_ended_the_game(mode):
    keys = ("step", "episode_number", "never")
    with Monitor(DummyBackend(factories(), autoreset=mode), info_keys=keys) as env:
        for events in Driver(env).play([*STEPS[:12], ("reset", (1, 1, 1)), *STEPS[:12]]):
            told = [event.infos["episode"] for event in events if "episode" in event.infos]
            assert len(told) >= 2
            for one in told:
                assert one["step"] == one["l"]
                assert (3, 5, 2)[one["episode_number"] % 3] == one["l"]
                assert "never" not in one


def test_infos_have_info_keys_as_columns_with_masks():
    class Other(gymnasium.Wrapper):
        def step(self, action):
            *result, info = super().step(action)
            return *result, {"score": np.float32(info["step"])}

    others = factories((2,), (Other,), count=1)
    with Monitor(
        DummyBackend(others + factories((2,), count=2)), info_keys=("score", "step")
    ) as env:
        play(env, 1)
        *_, infos = env.step([0, 0, 0])
    assert list(infos["episode"]) == ["r", "l", "t", "score", "_score", "step", "_step"]
    assert infos["episode"]["score"].dtype == np.float32
    assert infos["episode"]["score"].tolist() == [2.0, 0.0, 0.0]
    assert infos["episode"]["_score"].tolist() == [True, False, False]
    assert infos["episode"]["step"].tolist() == [0, 2, 2]
    assert infos["episode"]["_step"].tolist() == [False, True, True]


def test_infos_have_info_keys_as_sb3_has_its_info_keywords():
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    keys = ("step", "episode_number")
    peer = vec_env.VecMonitor(vec_env.DummyVecEnv(factories()), info_keywords=keys)
    env = vecwrap.to_sb3(Monitor(DummyBackend(factories()), info_keys=keys))
    env.reset()
    peer.reset()
    ended = 0
    for step in range(30):
        infos, expected = (one.step(np.full(3, step % 3))[3] for one in (env, peer))
        for info, other in zip(infos, expected, strict=True):
            assert ("episode" in info) == ("episode" in other)
            if "episode" in other:
                assert {**info["episode"], "t": 0} == {**other["episode"], "t": 0}
                ended += 1
    assert ended > 10
    env.close()
    peer.close()


@pytest.mark.skipif(not hasattr(gymnasium.vector, "AutoresetMode"), reason="needs autoreset modes")
@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP"])
def test_counts_and_queues_equal_those_of_gymnasium(mode):
    if mode == "SAME_STEP" and gymnasium.__version__ < "1.4":
        pytest.skip("its episodes were one step short")
    make = [lambda i=i: ToyEnv((2 + i, 5), i) for i in range(3)]
    vector = gymnasium.vector.SyncVectorEnv(
        make, autoreset_mode=gymnasium.vector.AutoresetMode[mode]
    )
    peer = gymnasium.wrappers.vector.RecordEpisodeStatistics(vector)
    with (
        Monitor(DummyBackend(make, autoreset=mode.lower())) as env,
        Monitor(DummyBackend(make)) as other,
    ):
        queues = env.return_queue, env.length_queue, env.time_queue  # held from the start
        env.reset()
        peer.reset()
        for step in range(300):
            env.step(np.full(3, step % 3))
            peer.step(np.full(3, step % 3))
            assert env.episode_count == env.num_episodes == peer.episode_count
            assert env.return_queue == peer.return_queue
            assert env.length_queue == peer.length_queue
            assert len(env.time_queue) == len(peer.time_queue)
        assert (
            env.episode_count
            > len(env.return_queue)
            == env.return_queue.maxlen
            == peer.return_queue.maxlen
        )
        assert min(env.time_queue) > 0
        other.load_wrapper_state(env.wrapper_state())
        assert queues == (other.return_queue, other.length_queue, other.time_queue)
        assert other.episode_count == env.episode_count
    peer.close()


def test_times_are_of_the_episode_in_infos_and_since_the_start_in_the_file(tmp_path, monkeypatch):
    clock = SimpleNamespace(now=5000.0)
    clock.perf_counter = clock.time = lambda: clock.now
    for module in (monitor_module, monitor_file):
        monkeypatch.setattr(module, "time", clock)
    seconds = []
    with Monitor(DummyBackend(factories((2, 3), count=1)), str(tmp_path)) as env:
        env.reset()
        for _ in range(5):
            clock.now += 10
            *_, infos = env.step([0])
            seconds += infos["episode"]["t"].tolist() if "episode" in infos else []
    assert seconds == [20.0, 30.0]
    header, rows = read(tmp_path / "monitor.csv")
    assert header["t_start"] == 5000.0
    assert [float(row["t"]) for row in rows] == [20.0, 50.0]


def test_recent_games_and_their_number_are_at_hand():
    with Monitor(DummyBackend(factories((2,), count=2))) as env:
        assert (env.num_episodes, list(env.recent)) == (0, [])
        play(env, 5)
        assert env.num_episodes == 4
        assert [(*tuple(episode)[:2], episode.env) for episode in env.recent] == [
            (0.75, 2, 0),
            (2.75, 2, 1),
            (-1.25, 2, 0),
            (0.75, 2, 1),
        ]
        play(env, 300)
        assert len(env.recent) == 100


# -- the ended step's info -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_the_ended_steps_info_is_what_the_file_says(mode, tmp_path):
    keys = ("step", "episode_number", "last", "never")
    with Monitor(DummyBackend(factories(), autoreset=mode), str(tmp_path), info_keys=keys) as env:
        Driver(env).play([*STEPS[:12], ("reset", (1, 1, 1)), *STEPS[:12]])
    _, rows = read(tmp_path / "monitor.csv")
    assert len(rows) >= 6
    for row in rows:
        assert row["step"] == row["l"]  # the reset's info says 0
        assert (3, 5, 2)[int(row["episode_number"]) % 3] == int(row["l"])
        assert (row["last"], row["never"]) == ("True", "")


@pytest.mark.parametrize("mode", MODES)
def test_the_ended_steps_columns_of_inner_wrappers_are_what_the_file_says(mode, tmp_path):
    inner = Monitor(DummyBackend(factories(), autoreset=mode), stats_key="inner")
    with Monitor(inner, str(tmp_path), info_keys=("inner",)) as env:
        Driver(env).play([*STEPS[:12], ("reset", (1, 1, 1)), *STEPS[:12]])
    _, rows = read(tmp_path / "monitor.csv")
    assert len(rows) >= 6
    for row in rows:
        told = ast.literal_eval(row["inner"])
        assert (told["r"], told["l"]) == (float(row["r"]), int(row["l"]))


def test_the_ended_steps_columns_without_a_mask_are_of_all_rows(tmp_path):
    class Engine(CartPoleVectorEnv):
        """Gives infos as EnvPool does."""

        def step(self, actions):
            *result, infos = super().step(actions)
            return *result, {
                **infos,
                "elapsed_step": self.steps.astype(np.int32),
                "nested": {"x": self.steps + 0.5},
            }

    engine = Engine(num_envs=2, max_episode_steps=5)
    with Monitor(
        EngineBackend(engine), str(tmp_path), info_keys=("elapsed_step", "nested", "never")
    ) as env:
        play(env, 5)
    _, rows = read(tmp_path / "monitor.csv")
    assert [row["elapsed_step"] for row in rows] == ["5", "5"]
    assert [(row["nested"], row["never"]) for row in rows] == [("{'x': 5.5}", "")] * 2


# -- monitor.csv -----------------------------------------------------------------------------------


def test_monitor_csv_has_the_header_and_the_columns(tmp_path):
    before = time.time()
    env = Monitor(DummyBackend(factories(wrappers=(Skip,))), str(tmp_path / "new" / "folder"))
    assert env.paths == (tmp_path / "new" / "folder" / "monitor.csv",)
    env.on_pipeline(SimpleNamespace(hash="0123456789ab"))
    play(env, 4)
    env.close()
    header, rows = read(env.paths[0])
    assert before <= header.pop("t_start") <= time.time()
    assert header == {
        "env_id": "ToyEnv",
        "step_unit": "agent step",
        "frame_skip": 3,
        "pipeline": "0123456789ab",
    }
    assert list(rows[0]) == ["r", "l", "t", "env", "lost", "steps"]
    assert [(row["env"], row["l"], row["lost"]) for row in rows[:4]] == [
        ("0", "1", "0"),
        ("1", "1", "0"),
        ("2", "1", "0"),
        ("0", "2", "0"),
    ]


@pytest.mark.parametrize(
    ("attribute", "said"), [(None, 1), (4, 4), (np.int64(5), 5), ((2, 5), None)]
)
def test_monitor_csv_says_how_many_frames_an_agent_step_lasts(attribute, said, tmp_path):
    def make():
        env = gymnasium.make("CartPole-v1")
        if attribute is not None:
            env.unwrapped.frame_skip = attribute
        return env

    with Monitor(DummyBackend([make]), str(tmp_path)) as env:
        env.reset()
    header, rows = read(tmp_path / "monitor.csv")
    assert (header["frame_skip"], header["env_id"], header["pipeline"], rows) == (
        said,
        "CartPole-v1",
        None,
        [],
    )


@pytest.mark.parametrize(
    "engine", ["sync", "async", "own", pytest.param("sb3", marks=pytest.mark.full)]
)
def test_monitor_csv_asks_no_engine_how_many_frames_an_agent_step_lasts(engine, tmp_path):
    make = [lambda: gymnasium.make("CartPole-v1")] * 2
    if engine == "sb3":
        vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
        inner = vecwrap.from_sb3(vec_env.SubprocVecEnv(make))
    else:
        vector = {"sync": gymnasium.vector.SyncVectorEnv, "async": gymnasium.vector.AsyncVectorEnv}
        inner = EngineBackend(
            vector[engine](make) if engine in vector else CartPoleVectorEnv(num_envs=2)
        )
    with Monitor(inner, str(tmp_path)) as env:
        env.reset(seed=1)
        while not env.num_episodes:
            env.step([0, 0])
    header, rows = read(tmp_path / "monitor.csv")
    assert header["frame_skip"] is None
    assert len(rows) == env.num_episodes


def test_monitor_csv_equals_that_of_sb3_and_its_reader_reads_both(tmp_path):
    sb3 = pytest.importorskip("stable_baselines3.common.monitor")
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    pytest.importorskip("pandas")
    peer = vec_env.VecMonitor(
        vec_env.DummyVecEnv(factories()), str(tmp_path / "sb3"), info_keywords=("step",)
    )
    (tmp_path / "ours").mkdir()
    with Monitor(DummyBackend(factories()), str(tmp_path / "ours"), info_keys=("step",)) as env:
        env.reset()
        peer.reset()
        for step in range(50):
            env.step(np.full(3, step % 3))
            peer.step(np.full(3, step % 3))
    peer.close()
    ours = sb3.load_results(str(tmp_path / "ours"))
    theirs = sb3.load_results(str(tmp_path))
    assert len(ours) == env.num_episodes > 30
    assert ours[["r", "l", "step"]].equals(theirs[["r", "l", "step"]])
    assert ours["t"].is_monotonic_increasing


def test_monitor_csv_for_each_sub_environment_equals_that_of_sb3(tmp_path):
    sb3 = pytest.importorskip("stable_baselines3.common.monitor")
    with Monitor(DummyBackend(factories()), str(tmp_path), per_env=True) as env:
        played = Driver(env).play(STEPS)
        assert env.paths == tuple(tmp_path / f"{i}.monitor.csv" for i in range(3))
    assert sorted(sb3.get_monitor_files(str(tmp_path))) == [str(path) for path in env.paths]
    for i, events in enumerate(played):
        (tmp_path / str(i)).mkdir()
        peer = sb3.Monitor(factories()[i](), str(tmp_path / str(i)))
        for _ in replay(peer, events):
            pass
        peer.close()
        _, expected = read(tmp_path / str(i) / "monitor.csv")
        _, rows = read(tmp_path / f"{i}.monitor.csv")
        assert [(float(row["r"]), row["l"]) for row in rows] == [
            (float(row["r"]), row["l"]) for row in expected
        ]
        assert {row["env"] for row in rows} == {str(i)}


def test_monitor_csv_is_not_written_without_a_folder_nor_before_the_first_reset(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with Monitor(DummyBackend(factories())) as env:
        play(env, 5)
        assert env.paths == ()
    with Monitor(DummyBackend(factories()), str(tmp_path / "folder")):
        pass
    assert list(tmp_path.iterdir()) == []


def test_monitor_csv_of_a_killed_run_loses_at_most_the_row_in_flight(tmp_path):
    program = textwrap.dedent(
        """
        import sys
        from tests.helpers.stream_envs import ToyEnv
        from tests.helpers.backends import DummyBackend
        from vecwrap.wrappers.monitor import Monitor
        env = Monitor(DummyBackend([lambda: ToyEnv((1, 2))] * 3), sys.argv[1])
        env.reset()
        while True:
            env.step([0, 0, 0])
            print(env.num_episodes, flush=True)
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for _ in range(50):
        said = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    process.stdout.close()
    assert (tmp_path / "monitor.csv").read_bytes().endswith(b"\n")
    _, rows = read(tmp_path / "monitor.csv")
    assert len(rows) >= said >= 50
    assert all(row["lost"] == "0" and row["l"] in ("1", "2") for row in rows)


def test_monitor_csv_of_an_earlier_run_is_moved_aside_and_nothing_is_overwritten(tmp_path):
    (tmp_path / "notes.csv").write_text("mine")
    contents = []
    for run, per_env in enumerate([False, False, True, False]):
        with Monitor(
            DummyBackend(factories((1 + run,), count=2)), str(tmp_path), per_env=per_env
        ) as env:
            play(env, 9)
        contents.append((tmp_path / ("0.monitor.csv" if per_env else "monitor.csv")).read_text())
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "0.monitor.csv.3",
        "1.monitor.csv.3",
        "monitor.csv",
        "monitor.csv.1",
        "monitor.csv.2",
        "notes.csv",
        "run.json",
        "run.json.1",
        "run.json.2",
        "run.json.3",
    ]
    names = ["monitor.csv.1", "monitor.csv.2", "0.monitor.csv.3", "monitor.csv"]
    assert [(tmp_path / name).read_text() for name in names] == contents


@pytest.mark.parametrize("per_env", [False, True])
def test_monitor_csv_is_appended_to_on_resume_and_its_header_is_kept(tmp_path, per_env):
    name = "0.monitor.csv" if per_env else "monitor.csv"
    for run in range(3):
        with Monitor(
            DummyBackend(factories((2,), count=2)),
            str(tmp_path),
            per_env=per_env,
            resume=True,
            info_keys=("step",),
        ) as env:
            play(env, 4)
        content = (tmp_path / name).read_text()
        if run == 0:
            head, table = content.split("\n", 1)
            # As if it had begun long ago.
            header = json.loads(head[1:]) | {"t_start": time.time() - 1000}
            content = f"#{json.dumps(header)}\n{table}"
            (tmp_path / name).write_text(content + "7.5,3,")  # killed while it wrote a row
            before = content
        else:
            assert content.startswith(before)
            before = content
    found, rows = read(tmp_path / name)
    assert found == header
    assert len(rows) == (6 if per_env else 12)
    assert all(row["l"] == row["step"] == "2" and None not in row for row in rows)
    first, *_, last = [float(row["t"]) for row in rows]
    assert first < 100 < 1000 <= last


def test_monitor_csv_holds_text_that_is_no_utf_8_as_escapes_and_is_gone_on_with(tmp_path):
    class Garbled(gymnasium.Wrapper):
        def step(self, action):
            *result, info = super().step(action)
            return *result, {**info, "\udc80": "lvl \udc81"}

    for _ in range(2):
        env = DummyBackend([lambda: Garbled(ToyEnv((1,)))])
        with Monitor(env, str(tmp_path), resume=True, info_keys=("\udc80",)) as env:
            play(env, 1)
    content = (tmp_path / "monitor.csv").read_text(encoding="utf-8")
    assert content.splitlines()[1] == r"r,l,t,env,lost,steps,\udc80"
    assert [line.rpartition(",")[2] for line in content.splitlines()[2:]] == [r"lvl \udc81"] * 2


def test_monitor_csv_that_was_killed_in_its_first_lines_is_begun_anew_on_resume(tmp_path):
    (tmp_path / "monitor.csv").write_text('#{"t_start": 12.5, "env')
    with Monitor(DummyBackend(factories((2,))), str(tmp_path), resume=True) as env:
        play(env, 2)
    header, rows = read(tmp_path / "monitor.csv")
    assert header["env_id"] == "ToyEnv"
    assert len(rows) == 3


@pytest.mark.parametrize(
    ("content", "got"),
    [
        ("my notes", "b'my notes'"),
        ("#{}\nr,l,t,env,lost\n", r"b'#{}\nr,l,t,env,lost\n'"),
        ('#{"t_start": 1.0}\nr,l,t\n1.0,2,3.0\n', r"""b'#{"t_start": 1.0}\nr,l,t\n1.0,2,3.0\n'"""),
        (
            '#{"t_start": 1.0}\nr,l,t,env,lost,\udcff\n',  # a byte that is no UTF-8
            r"""b'#{"t_start": 1.0}\nr,l,t,env,lost,\xff\n'""",
        ),
    ],
)
def test_monitor_csv_that_is_none_of_ours_is_refused_on_resume_and_left_alone(
    tmp_path, content, got
):
    path = tmp_path / "monitor.csv"
    path.write_text(content, errors="surrogateescape")
    with Monitor(DummyBackend(factories()), str(tmp_path), resume=True) as env:
        with pytest.raises(PlanError) as error:
            env.reset()
        assert str(error.value) == (
            f'monitor: resume: expected {path} to begin with "#" and JSON with t_start, then '
            rf"b'r,l,t,env,lost,steps\n', got {got}; give the same info_keys, or another dir"
        )
    assert path.read_text(errors="surrogateescape") == content


def test_monitor_csv_in_a_folder_that_cannot_be_written_is_an_error_before_the_first_step(tmp_path):
    (tmp_path / "file").write_text("")
    with Monitor(DummyBackend(factories()), str(tmp_path / "file" / "runs")) as env:
        with pytest.raises(
            PlanError,
            match=r'monitor: dir: expected a folder .* got ".*runs": .*; give another, or leave',
        ):
            env.reset()
        with pytest.raises(PlanError, match="monitor: dir"):  # it does not go on without
            env.reset()


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on file sizes")
def test_monitor_csv_on_a_disk_that_fills_keeps_what_was_written_and_the_run_goes_on_and_warns(
    tmp_path,
):
    program = textwrap.dedent(
        """
        import resource, sys, warnings
        from tests.helpers.stream_envs import ToyEnv
        from tests.helpers.backends import DummyBackend
        from vecwrap.wrappers.monitor import Monitor
        for limit in range(2000, 2024, 3):
            env = Monitor(DummyBackend([lambda: ToyEnv((1, 2))] * 3), f"{sys.argv[1]}/{limit}")
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                env.reset()
                for _ in range(200):
                    env.step([0, 0, 0])
            print(env.num_episodes, [str(warning.message) for warning in caught])
            env.close()
        """
    )
    result = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    for limit, said in zip(range(2000, 2024, 3), result.stdout.splitlines(), strict=True):
        assert said.startswith("399 ['monitor: ")
        assert said.count("can no longer be written") == 1
        content = (tmp_path / str(limit) / "monitor.csv").read_text()
        assert content.endswith("\n")  # no torn row
        assert limit - 100 < len(content) <= limit
        _, rows = read(tmp_path / str(limit) / "monitor.csv")
        assert all(row["lost"] == "0" for row in rows)


def test_monitor_csv_marks_a_lost_episode_whose_score_is_reported_nowhere_else(tmp_path):
    env = Monitor(DummyBackend(factories((9,)), autoreset="next_step"), str(tmp_path))
    env.reset()
    env.step([0, 0, 0])
    env.step_async([0, 0, 0])
    step = env.env.rows.receive(3, None)
    lost = step.lost = np.array([False, True, False])
    step.acted, step.observed, step.truncations = ~lost, ~lost | step.first, lost
    step.rewards = step.raw_rewards = np.where(lost, 0.0, step.raw_rewards)
    env.on_step(step)
    assert "episode" not in step.infos
    assert env.num_episodes == 0
    env.close()
    _, (row,) = read(tmp_path / "monitor.csv")
    assert (row["r"], row["l"], row["env"], row["lost"]) == ("1.25", "1", "1", "1")


@pytest.mark.parametrize(("rewards", "lost"), [("seen", False), ("raw", True)])
def test_a_sub_environment_lost_in_the_reset_after_a_lost_life(rewards, lost, tmp_path):
    """The agent's episode had ended by then; the game had not."""
    told = []

    class Fails(Lives):
        def reset(self, **arguments):
            if self.game_goes_on and not told:
                told.append(True)
                raise RuntimeError("no way on")
            return super().reset(**arguments)

    backend = DummyBackend(factories((9,), (Fails,), count=1), on_failure="restart")
    with Monitor(backend, str(tmp_path), rewards=rewards) as env:
        env.reset()
        env.step([0])
        *_, infos = env.step([0])
        assert ("episode" in infos, env.num_episodes) == (not lost, int(not lost))
    _, (row,) = read(tmp_path / "monitor.csv")
    assert (row["l"], row["lost"]) == ("2", str(int(lost)))


ANOTHER = "monitor: dir: another environment still writes into .*; give each a dir of its own"


@pytest.mark.parametrize("arguments", [{}, {"per_env": True}])
def test_a_newer_environment_of_this_process_takes_the_folder_over_and_no_row_is_lost_or_mixed(
    arguments, tmp_path
):
    def environment(length):
        return Monitor(DummyBackend(factories((length,), count=2)), str(tmp_path), **arguments)

    def rows(pattern):
        return [int(row["l"]) for path in tmp_path.glob(pattern) for row in read(path)[1]]

    with environment(2) as older, environment(3) as newer:
        play(older, 2)
        with pytest.warns(RuntimeWarning, match=ANOTHER):
            play(newer, 3)
        play(older, 4)
        play(newer, 3)
    assert (rows("*monitor.csv"), rows("*monitor.csv.*")) == ([3] * 4, [2] * 6)


def test_an_environment_that_is_still_held_does_not_keep_the_next_from_its_folder(tmp_path):
    """The cell of a notebook that runs again: IPython keeps what was shown."""
    held = []
    for _ in range(3):
        env = vecwrap.build(
            "CartPole-v1", 2, [{"monitor": {"dir": str(tmp_path)}}], backend="dummy"
        )
        with pytest.warns(RuntimeWarning, match=ANOTHER) if held else contextlib.nullcontext():
            env.reset()
        held.append(env)
    assert sorted(path.name for path in tmp_path.glob("monitor*")) == [
        "monitor.csv",
        "monitor.csv.1",
        "monitor.csv.2",
    ]
    for env in held:
        env.close()


def test_a_folder_that_could_not_be_taken_over_stays_with_its_environment(tmp_path):
    with Monitor(DummyBackend(factories((2,), count=1)), str(tmp_path)) as older:
        play(older, 2)
        newer = Monitor(DummyBackend(factories()), str(tmp_path), resume=True, info_keys=("x",))
        with (
            newer,
            pytest.warns(RuntimeWarning, match=ANOTHER),
            pytest.raises(PlanError, match="give the same info_keys, or another dir"),
        ):
            newer.reset()
        play(older, 2)
    assert [row["l"] for row in read(tmp_path / "monitor.csv")[1]] == ["2", "2"]


@pytest.mark.parametrize("per_env", [False, True])
def test_two_that_resume_the_same_files_append_to_both_with_a_warning_and_lose_nothing(
    per_env, tmp_path
):
    def environment(length):
        backend = DummyBackend(factories((length,), count=2))
        return Monitor(backend, str(tmp_path), per_env=per_env, resume=True)

    with environment(2) as older, environment(3) as newer:
        play(older, 2)
        name = "0.monitor.csv" if per_env else "monitor.csv"
        begun = (tmp_path / name).read_text()
        (tmp_path / name).write_text(begun + "7.5,3,")  # a row that the older is just writing
        with pytest.warns(
            RuntimeWarning, match=r"both append to the same files \((0\.)?monitor\.csv\)"
        ):
            newer.reset()
        assert (tmp_path / name).read_text() == begun + "7.5,3,"
        (tmp_path / name).write_text(begun)
        play(newer, 3)
        play(older, 4)
    lengths = [int(row["l"]) for path in tmp_path.glob("*monitor.csv") for row in read(path)[1]]
    assert sorted(lengths) == [2] * 6 + [3] * 2


WRITES = """
import sys
import vecwrap
monitor = {"dir": sys.argv[1], "log": sys.argv[2]}
env = vecwrap.build("CartPole-v1", 2, [{"monitor": monitor}], backend="dummy")
env.reset(seed=1)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(60):
    env.step([0, 0])
env.close()
"""


@pytest.mark.parametrize("log", ["csv", "tensorboard"])
def test_a_second_process_with_the_same_folder_warns_and_neither_loses_a_row(log, tmp_path):
    if log == "tensorboard":
        pytest.importorskip("tensorboardX")
    command = [sys.executable, "-c", WRITES, str(tmp_path), log]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout.readline() == "ready\n"
        env = vecwrap.build(
            "CartPole-v1", 2, [{"monitor": {"dir": str(tmp_path), "log": log}}], backend="dummy"
        )
        with pytest.warns(
            RuntimeWarning, match=f'still writes into "{tmp_path}": its files are moved'
        ):
            env.reset(seed=1)
        first.communicate("go\n", timeout=60)
        for _ in range(60):
            env.step([0, 0])
        env.close()
    assert first.returncode == 0
    if log == "csv":
        rows, moved = (read(tmp_path / name)[1] for name in ("monitor.csv", "monitor.csv.1"))
        assert [row["r"] for row in rows] == [row["r"] for row in moved]
        assert len(rows) >= 4
    else:
        assert sorted(path.name for path in tmp_path.glob("tensorboard*")) == [
            "tensorboard",
            "tensorboard.1",
        ]
    env = vecwrap.build(
        "CartPole-v1", 2, [{"monitor": {"dir": str(tmp_path), "log": log}}], backend="dummy"
    )
    env.reset(seed=1)  # both have ended: no warning
    env.close()


def test_files_are_closed_though_the_backend_was_closed_before(tmp_path):
    env = Monitor(DummyBackend(factories()), str(tmp_path))
    env.reset()
    file = env._files[0]._file._raw
    env.unwrapped.close()
    env.close()
    assert file.closed


# -- the rest --------------------------------------------------------------------------------------


def test_goes_on_from_a_state_as_if_it_had_never_stopped():
    with (
        Monitor(DummyBackend(factories((4,)))) as env,
        Monitor(DummyBackend(factories((4,)))) as other,
    ):
        play(env, 6)
        other.env.reset()
        for _ in range(6):
            other.env.step([0, 0, 0])
        other.load_wrapper_state(env.wrapper_state())
        play_on = [
            [vector.step([0, 0, 0])[-1].get("episode") for _ in range(2)] for vector in (env, other)
        ]
        assert play_on[0][0] is play_on[1][0] is None
        for key in "rl":
            assert play_on[0][1][key].tolist() == play_on[1][1][key].tolist()
        assert other.num_episodes == env.num_episodes == 6
        assert [episode[:2] for episode in other.recent] == [episode[:2] for episode in env.recent]


def test_monitor_csv_goes_on_after_a_load_without_a_reset(tmp_path):
    def build(folder):
        make = [lambda: vecwrap.testing.ToyEnv(limit=3)] * 2  # which offers its state
        return Monitor(DummyBackend(make), str(tmp_path / folder))

    def rows(folder):
        return [
            (row["r"], row["l"], row["env"]) for row in read(tmp_path / folder / "monitor.csv")[1]
        ]

    with build("stays") as env, build("goes on") as other:
        env.reset(seed=1)
        env.step([0, 1])
        other.load_state_dict(env.state_dict())
        for _ in range(8):
            env.step([0, 1])
            other.step([0, 1])
    assert rows("goes on") == rows("stays") != []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"rewards": "row"},
            'monitor: rewards: expected raw or seen, got "row". Did you mean "raw"?',
        ),
        (
            {"info_keys": "lap+l"},
            "monitor: info_keys: expected each name once and none of r, l, t, env, lost, "
            "steps, got ('lap', 'l')",
        ),
        (
            {"info_keys": ("lives", "l")},
            "monitor: info_keys: expected each name once and none of r, l, t, env, lost, "
            "steps, got ('lives', 'l')",
        ),
        (
            {"stats_key": "final_info"},
            "monitor: stats_key: expected a name without a leading underscore and none of "
            'final_obs, final_info, env_id, got "final_info"; the default is "episode"',
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, message):
    with DummyBackend(factories()) as env, pytest.raises(PlanError) as error:
        Monitor(env, **arguments)
    assert str(error.value) == message


def test_a_second_monitor_that_would_write_over_the_first_is_refused(tmp_path):
    with Monitor(DummyBackend(factories()), str(tmp_path)) as env:
        with pytest.raises(PlanError, match=r'an inner monitor reports infos\["episode"\] already'):
            Monitor(ClipReward(env))
        with pytest.raises(
            PlanError, match="an inner monitor writes into .* already; give each its own folder"
        ):
            Monitor(env, str(tmp_path / "." / ".." / tmp_path.name), stats_key="seen")
