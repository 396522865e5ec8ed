"""Terminal observations as one dense batch, in every autoreset mode."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

import vecwrap
from tests.helpers.backends import DummyBackend, ShmemBackend, SubprocessBackend
from tests.helpers.call_events import operations
from tests.helpers.stream_envs import Driver, ToyEnv, assert_same, replay
from tests.helpers.toy_envs import LastLife
from vecwrap.env.state_file import read_state, write_state
from vecwrap.errors import ArgumentError, PlanError
from vecwrap.sources.source_factories import SubEnvFactory
from vecwrap.wrappers.clip_reward import ClipReward
from vecwrap.wrappers.episodic_life import EpisodicLife
from vecwrap.wrappers.framestack import FrameStack
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.terminal_obs import TerminalObs

MODES = ["same_step", "next_step", "disabled", "episodic"]
BOX = spaces.Box(0, 255, (2, 3), np.uint8)
TREE = spaces.Dict(
    {"image": BOX, "more": spaces.Tuple([spaces.Discrete(5), spaces.Dict({"x": BOX})])}
)
STEPS = [("step", ())] * 25


def factories(space=BOX, lengths=(3, 5, 1)):
    return [lambda i=i: ToyEnv(lengths=lengths, index=i, observation_space=space) for i in range(3)]


def check_ends(env, make, played, key="terminal_obs"):
    """Compare with what each environment on its own gives in its last steps; give how many ends
    there were.
    """
    ends = 0
    for i, events in enumerate(Driver(env).play(played)):
        for event, (observation, _, terminated, truncated, _) in replay(make[i](), events):
            ended = terminated or truncated
            assert (key in event.infos) == ended
            if ended:
                assert_same(event.infos[key], observation)
                ends += 1
    return ends


@settings(deadline=None)
@given(
    mode=st.sampled_from(MODES),
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    space=st.sampled_from([BOX, TREE, spaces.Discrete(7, start=-2), spaces.Text(3)]),
    played=operations,
)
def test_terminal_observation_is_that_of_the_environment_on_its_own(mode, lengths, space, played):
    make = factories(space, lengths)
    with TerminalObs(DummyBackend(make, autoreset=mode)) as env:
        check_ends(env, make, played)


@pytest.mark.parametrize("mode", MODES)
def test_terminal_observation_of_a_stack_has_the_ended_history_and_inside_of_it_is_a_frame(mode):
    make = factories()
    stacked = [
        lambda make=make: gymnasium.wrappers.FrameStackObservation(make(), 3, padding_type="zero")
        for make in make
    ]
    backend = DummyBackend(make, autoreset=mode)
    with TerminalObs(FrameStack(backend, 3)) as env:
        assert check_ends(env, stacked, STEPS) >= 3
    with TerminalObs(
        FrameStack(TerminalObs(DummyBackend(make, autoreset=mode), key="frame"), 3)
    ) as env:
        frames, stacks = [], []
        for events in Driver(env).play(STEPS):
            frames += [event.infos["frame"] for event in events if "frame" in event.infos]
            stacks += [
                event.infos["terminal_obs"] for event in events if "terminal_obs" in event.infos
            ]
        assert len(frames) >= 3
        assert_same(np.stack(stacks)[:, -1], np.stack(frames))


@pytest.mark.parametrize("mode", MODES)
def test_terminal_observation_under_the_name_that_sb3_gives_it(mode):
    make = factories()
    with TerminalObs(DummyBackend(make, autoreset=mode), key="terminal_observation") as env:
        assert check_ends(env, make, STEPS, key="terminal_observation") >= 3


def test_terminal_observation_equals_that_of_sb3():
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    make = factories(lengths=(3, 5, 2))
    peer = vec_env.DummyVecEnv(make)
    peer.reset()
    with TerminalObs(DummyBackend(make), key="terminal_observation") as env:
        env.reset()
        for step in range(40):
            actions = np.full(3, step % 3)
            *_, dones, peer_infos = peer.step(actions)
            *_, infos = env.step(actions)
            for i in np.flatnonzero(dones):
                assert_same(infos["terminal_observation"][i], peer_infos[i]["terminal_observation"])
            assert infos.get("_terminal_observation", np.zeros(3, bool)).tolist() == dones.tolist()


def test_rows_without_an_end_are_zeros_and_objects_are_none():
    space = spaces.Dict({"box": BOX, "text": spaces.Text(3)})
    make = [
        lambda i=i: ToyEnv(lengths=(1 + i,), index=i, observation_space=space) for i in range(3)
    ]
    with TerminalObs(DummyBackend(make)) as env:
        _, infos = env.reset()
        assert "terminal_obs" not in infos
        *_, infos = env.step([0, 0, 0])
    column = infos["terminal_obs"]
    assert infos["_terminal_obs"].tolist() == [True, False, False]
    assert (column["box"].shape, column["box"].dtype) == ((3, 2, 3), np.uint8)
    assert column["box"][0].all()
    assert not column["box"][1:].any()
    assert column["text"].tolist() == ["ab", None, None]


@pytest.mark.parametrize("mode", ["next_step", "disabled"])
def test_terminal_observation_stays_as_it_was(mode):
    with TerminalObs(DummyBackend(factories(), autoreset=mode, copy=False)) as env:
        observations, infos = env.reset()
        while "terminal_obs" not in infos:
            observations, *_, infos = env.step([0, 0, 0])
        ended = infos["_terminal_obs"]
        before = observations[ended].copy()
        env.reset()
        assert (observations[ended] != before).any()  # views of the slots
        assert_same(infos["terminal_obs"][ended], before)


def test_an_episode_that_no_action_ended_has_its_last_observation_too():
    env = TerminalObs(DummyBackend(factories(), autoreset="next_step"))
    env.reset()
    env.step_async([0, 0, 0])
    step = env.env.rows.receive(3, None)
    lost = step.lost = np.array([False, True, False])
    step.truncations, step.acted, step.observed = lost, ~lost, ~lost
    env.on_step(step)
    assert step.infos["_terminal_obs"].tolist() == [False, True, False]
    assert_same(step.infos["terminal_obs"][1], step.observations[1])
    env.close()


# -- the record ------------------------------------------------------------------------------------


# Hypothesis likes short lists; these bring about four ends of each sub-environment, and broken-off
# episodes.
ENDS = [("step", ())] * 4 + [
    ("reset", (1, 1, 0)),
    ("partial", (0, 1, 1)),
    ("step", ()),
    ("reset", (0, 1, 1)),
]
ENDS *= 4


def endings_of(events, most):
    """What a naive loop would keep of one sub-environment's stream."""
    kept, score, length = [], 0.0, 0
    for event in events:
        if event.kind == "reset":
            score, length = 0.0, 0
            continue
        score, length = score + event.reward, length + 1
        if event.terminated or event.truncated:
            kept.append(
                (event.observation, score, length, event.terminated, event.truncated, False)
            )
    return kept[-most:]


@settings(deadline=None, max_examples=40)
@given(
    mode=st.sampled_from(MODES),
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    space=st.sampled_from([BOX, TREE, spaces.Text(3)]),
    most=st.integers(1, 3),
    played=operations,
)
def test_terminal_observations_of_the_last_k_endings_are_kept_with_how_they_ended(
    mode, lengths, space, most, played
):
    with TerminalObs(DummyBackend(factories(space, lengths), autoreset=mode), record=most) as env:
        streams = Driver(env).play(played + ENDS)
        for events, kept in zip(streams, env.endings, strict=True):
            expected = endings_of(events, most)
            assert [ending[1:] for ending in kept] == [ending[1:] for ending in expected]
            for ending, (observation, *_) in zip(kept, expected, strict=True):
                assert_same(ending.observation, observation)


def test_a_kept_score_is_what_the_environment_paid_and_a_lost_episode_is_marked():
    make = [lambda i=i: ToyEnv((9 if i else 3,), i) for i in range(3)]
    env = TerminalObs(ClipReward(DummyBackend(make, autoreset="next_step")), record=2)
    env.reset()
    for _ in range(2):
        env.step([1, 1, 1])
    env.step_async([1, 1, 1])
    step = env.env.rows.receive(3, None)
    lost = step.lost = np.array([False, True, False])
    step.truncations, step.acted, step.observed = step.truncations | lost, ~lost, ~lost
    step.raw_rewards = np.where(lost, 0, step.raw_rewards)
    env.on_step(step)
    (first,), (second,), _ = env.endings
    assert (first.score, first.length, first.lost) == (
        sum(0.25 * time + 0.5 for time in (1, 2, 3)),
        3,
        False,
    )
    assert (second.length, second.terminated, second.truncated, second.lost) == (
        2,
        False,
        True,
        True,
    )
    assert second.score == sum(0.25 * time + 1 + 0.5 for time in (1, 2))
    env.close()


@pytest.mark.parametrize("mode", MODES)
def test_terminal_observations_that_are_kept_stay_as_they_were(mode):
    with TerminalObs(
        DummyBackend(factories(lengths=(2,)), autoreset=mode, copy=False), record=9
    ) as env:
        env.reset()
        env.step([0, 0, 0])
        *_, infos = env.step([0, 0, 0])
        (ending,), *_ = env.endings
        before = ending.observation.copy()
        infos["terminal_obs"].fill(9)  # the caller's own
        env.reset()
        env.step([0, 0, 0])
        assert_same(env.endings[0][0].observation, before)


@pytest.mark.parametrize("space", [BOX, TREE])
def test_the_record_is_saved_for_anybody_to_read(tmp_path, space):
    if space is TREE:
        space = spaces.Dict(
            {"image": BOX, "more": spaces.Tuple([spaces.Discrete(5), spaces.MultiBinary(2)])}
        )
    with TerminalObs(DummyBackend(factories(space)), record=2) as env:
        env.reset()
        for _ in range(12):
            env.step([0, 0, 0])
        env.save_endings(tmp_path / "endings.npz")
        kept = [(i, ending) for i, endings in enumerate(env.endings) for ending in endings]
    with np.load(tmp_path / "endings.npz", allow_pickle=False) as file:
        arrays = dict(file)
    assert arrays["env_ids"].tolist() == [i for i, _ in kept] == [0, 0, 1, 1, 2, 2]
    assert arrays["scores"].tolist() == [ending.score for _, ending in kept]
    assert arrays["lengths"].tolist() == [ending.length for _, ending in kept]
    flags = np.stack(
        [arrays["terminations"], arrays["truncations"], arrays["lost"]], axis=1
    ).tolist()
    assert flags == [list(ending[3:]) for _, ending in kept]
    if space is BOX:
        assert_same(arrays["observations"], np.stack([ending.observation for _, ending in kept]))
    else:
        images = np.stack([ending.observation["image"] for _, ending in kept])
        assert_same(arrays["observations.image"], images)
        assert arrays["observations.more.0"].tolist() == [
            ending.observation["more"][0] for _, ending in kept
        ]
        assert arrays["observations.more.1"].shape == (6, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["endings.npz"]


def test_an_empty_record_is_saved_too_and_one_without_arrays_is_refused(tmp_path):
    with TerminalObs(DummyBackend(factories()), record=2) as env:
        env.save_endings(tmp_path / "endings.npz")
        with np.load(tmp_path / "endings.npz") as file:
            assert file["observations"].shape == (0, 2, 3)
    with TerminalObs(DummyBackend(factories(spaces.Text(3))), record=2) as env:
        with pytest.raises(
            ArgumentError,
            match="save_endings: observations: expected observations that have an array",
        ):
            env.save_endings(tmp_path / "texts.npz")
        assert not (tmp_path / "texts.npz").exists()


def test_a_record_in_which_two_members_have_one_name_is_refused(tmp_path):
    space = spaces.Dict({"a": spaces.Dict({"b": BOX}), "a.b": BOX})
    with TerminalObs(DummyBackend(factories(space)), record=1) as env:
        with pytest.raises(
            ArgumentError,
            match=r'save_endings: two members .* are called "observations.a.b" in a file',
        ):
            env.save_endings(tmp_path / "endings.npz")
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mode", MODES)
def test_goes_on_from_a_state_as_if_it_had_never_stopped(mode, tmp_path):
    envs = [
        TerminalObs(DummyBackend(factories(lengths=(3,)), autoreset=mode), record=3)
        for _ in range(2)
    ]
    for env in envs:
        env.reset()
    for _ in range(2):
        envs[0].step([0, 0, 0])
        envs[1].env.step([0, 0, 0])
    write_state(tmp_path / "state.npz", envs[0].wrapper_state())
    envs[1].load_wrapper_state(read_state(tmp_path / "state.npz"))
    for env in envs:
        env.step([0, 0, 0])
    assert [ending[1:] for (ending,) in envs[1].endings] == [
        ending[1:] for (ending,) in envs[0].endings
    ]
    assert envs[0].endings[0][0].length == 3
    state = envs[0].wrapper_state()
    envs[1].load_wrapper_state(state)
    state["endings"][0][0][0].fill(200)
    assert (envs[1].endings[0][0].observation != 200).all()
    assert (envs[0].endings[0][0].observation != 200).all()
    for env in envs:
        env.close()


def test_a_negative_record_is_refused():
    with (
        DummyBackend(factories()) as env,
        pytest.raises(PlanError, match="record: expected at least 0, got -1"),
    ):
        TerminalObs(env, record=-1)


def test_a_key_that_an_inner_wrapper_of_the_kind_has_is_refused_and_another_is_not():
    with TerminalObs(DummyBackend(factories()), key="end") as env:
        with pytest.raises(
            PlanError, match=r'an inner terminal_obs reports infos\["end"\] already; .* key="..."'
        ):
            TerminalObs(FrameStack(env, 2), key="end")
        TerminalObs(FrameStack(env, 2))
    (finding,) = vecwrap.check({"env": "CartPole-v1", "wrappers": ["terminal_obs", "terminal_obs"]})
    assert (finding.id, finding.place) == ("refused", 'wrappers[1] "terminal_obs"')


@pytest.mark.parametrize("key", ["", "_terminal", "final_obs", "env_id"])
def test_a_key_that_means_something_else_is_refused(key):
    with (
        DummyBackend(factories()) as env,
        pytest.raises(PlanError, match=f'terminal_obs: key: expected .* got "{key}"'),
    ):
        TerminalObs(env, key=key)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", [DummyBackend, SubprocessBackend, ShmemBackend])
def test_what_a_game_pays_that_ends_in_the_reset_after_a_life_is_not_the_lifes(backend, mode):
    inner = Monitor(backend([SubEnvFactory(LastLife, (EpisodicLife,))] * 2, autoreset=mode))
    with TerminalObs(inner, record=9) as env:
        env.reset(seed=1)
        for _ in range(2):
            env.step([0, 0])
            if mode == "next_step":
                env.step([0, 0])
            elif mode != "same_step":
                env.reset(options={"reset_mask": np.array([True, True])})
        endings = env.find(TerminalObs).endings
        assert [(ending.score, ending.length) for of_one in endings for ending in of_one] == [
            (1.0, 1)
        ] * 4
        assert [(game.score, game.length) for game in inner.recent] == [(6.0, 1)] * 4
