"""Every row of the Atari table in docs/semantics.md, under its own name.

Three references: the peers (Stable-Baselines3, Gymnasium), a naive loop that keeps every frame in a
list, and a game whose script of lives and frames is written by hand.
"""

import functools
import hashlib
import importlib.abc
import json
import subprocess
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

import ale_py
import cv2
import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing
from stable_baselines3.common.atari_wrappers import AtariWrapper

import vecwrap
from tests.helpers.fake_atari import check_no_ops
from vecwrap.errors import PlanError, ResetNeededError
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.sources.description import wrappers_of
from vecwrap.sources.raw_rewards import RawRewardRecorder
from vecwrap.wrappers.atari import Atari

gymnasium.register_envs(ale_py)

# Of the ids that end in -v0.
pytestmark = pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")

GAMES = ("Pong", "Breakout", "SpaceInvaders")
STEPS = 3000


@dataclass(frozen=True)
class Row:
    """What a step or a reset gave.

    Only the naive loop says `over` (the game ended) and `inside` (within the skip).
    """

    picture: int
    reward: float
    terminated: bool
    truncated: bool
    info: dict
    over: bool = False
    inside: bool = False


def play(env, steps=STEPS, seed=1, stream=7):
    """Play a fixed stream of actions; resets without a seed follow every end."""
    actions = np.random.default_rng(stream).integers(env.action_space.n, size=steps)
    observation, info = env.reset(seed=seed)
    rows = [Row(picture(observation), 0.0, False, False, info)]
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        rows.append(
            Row(
                picture(observation),
                reward,
                terminated,
                truncated,
                info,
                *getattr(env, "ending", ()),
            )
        )
        if terminated or truncated:
            observation, info = env.reset()
            rows.append(Row(picture(observation), 0.0, False, False, info))
    env.close()
    return rows


def picture(observation):
    return zlib.crc32(observation.tobytes())


class Naive(gymnasium.Wrapper):
    """The two lineages once more, as plainly as can be: every frame of an agent step in a list."""

    def __init__(self, env, lineage="deepmind", skip=4):
        super().__init__(env)
        self.deepmind, self.skip = lineage == "deepmind", skip
        self.ale = env.unwrapped.ale
        self.lost = False

    def frame(self):
        return self.ale.getScreenRGB() if self.deepmind else self.ale.getScreenGrayscale()

    def hold(self, action, ticks):
        self.frames, total = [], 0.0
        terminated = truncated = False
        for _ in range(ticks):
            _, reward, terminated, truncated, info = self.env.step(action)
            self.frames.append(self.frame())
            total += reward
            if terminated or truncated:
                break
        self.ending = (
            terminated or truncated,
            (terminated or truncated) and len(self.frames) < ticks,
        )
        return total, terminated, truncated, info

    def observation(self):
        grey = np.max(self.frames[-2:], axis=0)
        if self.deepmind:
            grey = cv2.cvtColor(grey, cv2.COLOR_RGB2GRAY)
        return cv2.resize(grey, (84, 84), interpolation=cv2.INTER_AREA)

    def new_game(self, seed):
        _, info = self.env.reset(seed=seed)
        self.frames = [self.frame()]
        for _ in range(self.env.unwrapped.np_random.integers(1, 31)):
            _, terminated, truncated, step_info = self.hold(0, 1)
            info = {**info, **step_info}
            if terminated or truncated:
                _, info = self.env.reset(seed=seed)
                self.frames = [self.frame()]
        return info

    def reset(self, *, seed=None, options=None):
        if self.lost and seed is None:
            _, terminated, truncated, info = self.hold(0, self.skip)
            if terminated or truncated:
                info = self.new_game(None)
        else:
            info = self.new_game(seed)
        for action in (
            (1, 2) if self.deepmind and "FIRE" in self.env.unwrapped.get_action_meanings() else ()
        ):
            _, terminated, truncated, step_info = self.hold(action, self.skip)
            info = self.new_game(seed) if terminated or truncated else {**info, **step_info}
        self.lives, self.lost = self.ale.lives(), False
        return self.observation(), info

    def step(self, action):
        reward, terminated, truncated, info = self.hold(action, self.skip)
        before, self.lives = self.lives, self.ale.lives()
        lost = self.deepmind and 0 < self.lives < before
        self.lost = lost and not (terminated or truncated)
        return (
            self.observation(),
            np.sign(reward) if self.deepmind else reward,
            terminated or lost,
            truncated,
            info,
        )


def make(game, **kwargs):
    return gymnasium.make(f"{game}NoFrameskip-v4", **kwargs)


class Script(gymnasium.Env):
    """A game without an emulator: tick t of a game shows `frames[t]` and `lives[t]`, pays
    `rewards[t]`, ends at `over`.

    Past its end each list goes on with its last entry. `actions` holds what every game was given,
    game by game.
    """

    observation_space = gymnasium.spaces.Box(0, 255, (210, 160, 3), np.uint8)

    def __init__(
        self,
        lives=(3,),
        rewards=(0,),
        over=None,
        meanings=("NOOP", "RIGHT", "LEFT"),
        frames=None,
        info=True,
    ):
        self.lives_, self.rewards, self.over, self.meanings, self.frames = (
            lives,
            rewards,
            over,
            meanings,
            frames,
        )
        self.action_space = gymnasium.spaces.Discrete(len(meanings))
        self.ale, self.tick, self.actions = self, 0, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.tick = 0
        self.actions.append([])
        return self.getScreenRGB(), {"tick": 0, "seeds": seed}

    def step(self, action):
        self.tick += 1
        self.actions[-1].append(int(action))
        over = self.over is not None and self.tick >= self.over
        return self.getScreenRGB(), self.at(self.rewards), over, False, {"tick": self.tick}

    def at(self, entries):
        return entries[min(self.tick, len(entries) - 1)]

    def lives(self):
        return self.at(self.lives_)

    def get_action_meanings(self):
        return list(self.meanings)

    def getFloat(self, name):  # noqa: N802
        return 0.0

    def getScreenRGB(self):  # noqa: N802
        return (
            np.full((210, 160, 3), self.tick, np.uint8)
            if self.frames is None
            else self.at(self.frames).copy()
        )

    def getScreenGrayscale(self, buffer):  # noqa: N802
        buffer[:] = self.getScreenRGB()[..., 0] // 2


FIRES = ("NOOP", "FIRE", "RIGHT", "LEFT")


def scripted(lineage="deepmind", noop_max=0, **script):
    settings = {"repeat_action_probability": 0} if lineage == "machado" else {}
    return Atari(Script(**script), lineage, noop_max=noop_max, **settings)


@functools.cache
def ours(game, lineage, steps=STEPS):
    return play(Atari(make(game), lineage, repeat_action_probability=0), steps)


@functools.cache
def naive(game, lineage):
    return play(Naive(make(game), lineage))


# The streams of the naive loop as digests, so that the suite plays neither that loop nor the peers;
# `full` tests do. `python -m tests.wrappers.test_atari` writes them again.
GOLDEN = Path(__file__).with_name("atari_streams.json")
LINEAGES = ("deepmind", "machado")
STREAMS = [(game, lineage) for game in GAMES for lineage in LINEAGES]
IN_SUITE = (("Pong", "deepmind"), ("Breakout", "machado"))
SOME_STREAMS = [
    *IN_SUITE,
    *(pytest.param(*each, marks=pytest.mark.full) for each in STREAMS if each not in IN_SUITE),
]
one_process = pytest.mark.xdist_group("atari streams")  # which keeps what is played


def digests(rows):
    """Of the rewards and flags, and of the pictures, which OpenCV's release decides."""
    numbers = repr([(float(row.reward), bool(row.terminated), bool(row.truncated)) for row in rows])
    pictures = repr([row.picture for row in rows])
    return {"numbers": digest(numbers), "pictures": digest(pictures)}


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def golden():
    return json.loads(GOLDEN.read_text(encoding="utf-8"))


def seen(row):
    return row.picture, row.reward, row.terminated, row.truncated


# -- lineages, each part by itself -----------------------------------------------------------------


def test_a_game_begins_with_1_to_30_no_ops_drawn_as_one_number_of_the_games_own_generator():
    check_no_ops(scripted(noop_max=30))


def test_a_game_that_ends_within_its_no_ops_is_reset_and_the_rest_of_them_played():
    env = scripted(noop_max=30, over=4)
    env.reset(seed=5)
    noops = int(np.random.default_rng(5).integers(1, 31))
    assert [len(game) for game in env.unwrapped.actions] == [4] * (noops // 4) + [noops % 4]


def test_an_action_is_held_for_four_frames_whose_rewards_are_summed():
    env = scripted("machado", rewards=range(100))
    env.reset()
    _, reward, *_, info = env.step(2)
    assert env.unwrapped.actions == [[2, 2, 2, 2]]
    assert (reward, info["tick"]) == (1 + 2 + 3 + 4, 4)


def test_deepmind_shows_the_grey_of_the_per_channel_maximum_of_the_last_two_frames():
    frames = np.random.default_rng(0).integers(256, size=(5, 210, 160, 3), dtype=np.uint8)
    env = scripted(frames=frames)
    env.reset()
    observation, *_ = env.step(0)
    grey = cv2.cvtColor(np.maximum(frames[3], frames[4]), cv2.COLOR_RGB2GRAY)
    assert np.array_equal(observation, cv2.resize(grey, (84, 84), interpolation=cv2.INTER_AREA))


def test_machado_shows_the_maximum_of_the_emulators_greys():
    frames = np.random.default_rng(0).integers(256, size=(5, 210, 160, 3), dtype=np.uint8)
    env = scripted("machado", frames=frames)
    env.reset()
    observation, *_ = env.step(0)
    grey = np.maximum(frames[3][..., 0] // 2, frames[4][..., 0] // 2)
    assert np.array_equal(observation, cv2.resize(grey, (84, 84), interpolation=cv2.INTER_AREA))


def test_a_reset_shows_its_last_frame_alone():
    env = scripted(
        noop_max=30, frames=[np.full((210, 160, 3), 255 - tick, np.uint8) for tick in range(40)]
    )
    observation, info = env.reset(seed=5)
    assert (observation == 255 - info["tick"]).all()


def test_a_lost_life_ends_an_episode_of_deepmind_and_none_of_machado():
    lives = [3] * 6 + [2] * 10
    for lineage, ends in (("deepmind", [False, True, False]), ("machado", [False, False, False])):
        env = scripted(lineage, lives=lives)
        env.reset()
        assert [env.step(1)[2] for _ in range(3)] == ends


def test_lives_are_looked_at_after_the_full_skip():
    env = scripted(lives=[3, 3, 2, 3, 3])
    env.reset()
    assert not env.step(1)[2]
    assert env.unwrapped.tick == 4


def test_the_last_life_ends_with_the_game_and_not_before():
    env = scripted(lives=[1] * 3 + [0] * 20, over=10)
    env.reset()
    assert [env.step(1)[2] for _ in range(3)] == [False, False, True]
    assert not env.game_goes_on


def test_a_bonus_life_counts_from_then_on():
    env = scripted(lives=[3] * 3 + [4] * 4 + [3] * 9)
    env.reset()
    assert [env.step(1)[2] for _ in range(3)] == [False, True, False]


def test_a_reset_presses_fire_then_action_2_each_for_a_full_skip():
    env = scripted(meanings=FIRES)
    observation, info = env.reset()
    assert env.unwrapped.actions == [[1] * 4 + [2] * 4]
    assert info["tick"] == 8
    assert (observation == 8).all()


def test_fire_is_pressed_after_a_lost_life_too():
    env = scripted(meanings=FIRES, lives=[3] * 10 + [2] * 40)
    env.reset()
    assert env.step(3)[2]
    env.reset()
    assert env.unwrapped.actions == [[1] * 4 + [2] * 4 + [3] * 4 + [0] * 4 + [1] * 4 + [2] * 4]


def test_fire_is_left_out_where_the_game_does_not_know_it_and_by_machado():
    for env in (
        scripted(),
        scripted("machado", meanings=FIRES),
        Atari(Script(meanings=FIRES), noop_max=0, fire_reset=False),
    ):
        env.reset()
        assert env.unwrapped.actions == [[]]


def test_a_life_lost_while_fire_is_pressed_is_followed_by_a_no_op():
    env = scripted(meanings=FIRES, lives=[3] * 2 + [2] * 40)
    observation, info = env.reset(seed=3)  # which begins one game, and not two
    assert env.unwrapped.actions == [[1] * 4 + [0] * 4 + [2] * 4]
    assert (observation == info["tick"]).all()
    assert not env.step(3)[2]


def test_a_game_that_ends_while_action_2_follows_fire_shows_the_new_games_frame():
    env = scripted(meanings=FIRES, over=6)
    observation, info = env.reset()
    assert env.unwrapped.actions == [[1] * 4 + [2] * 2, []]
    assert info["tick"] == 0
    assert (observation == 0).all()


def test_rewards_are_their_sign_in_deepmind_and_the_games_own_in_machado():
    for lineage, rewards in (("deepmind", [1.0, -1.0, 0.0]), ("machado", [20.0, -7.0, 0.0])):
        env = scripted(lineage, rewards=[0, 5, 5, 5, 5, 0, 0, 0, -7, 3, -3, 0, 0])
        env.reset()
        assert [env.step(1)[1] for _ in range(3)] == rewards


def test_machado_plays_with_sticky_actions_of_a_quarter():
    assert Atari.environment_kwargs(gymnasium.spec("PongNoFrameskip-v4"), lineage="machado") == {
        "frameskip": 1,
        "repeat_action_probability": 0.25,
    }
    Atari(make("Pong", repeat_action_probability=0.25), "machado").close()


def test_the_lineage_can_be_given_by_position():
    spec = gymnasium.spec("PongNoFrameskip-v4")
    assert Atari.environment_kwargs(spec, "machado") == Atari.environment_kwargs(
        spec, lineage="machado"
    )
    assert Atari.summary("machado", noop_max=0) == Atari.summary(lineage="machado", noop_max=0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {},
            [
                "DeepMind",
                "one life",
                "FIRE at each reset",
                "clipped",
                "no sticky actions",
                "grey of the maximum",
            ],
        ),
        (
            {"lineage": "machado"},
            ["Machado", "whole game", "no FIRE", "as the game pays", "sticky actions 0.25"],
        ),
        (
            {"clip_reward": False, "frame_skip": 1},
            ["DeepMind", "as the game pays", "every frame; grey, 84x84"],
        ),
        ({"noop_max": 0, "terminal_on_life_loss": False}, ["no no-ops", "whole game"]),
    ],
)
def test_the_lineage_can_be_said_in_words(arguments, words):
    sentence = Atari.summary(**arguments)
    assert all(word in sentence for word in words), sentence
    assert sentence.count(".") - sentence.count("0.25") - sentence.count("et al.") == 1
    assert "\n" not in sentence


# -- equality with the peers -----------------------------------------------------------------------


@one_process
@pytest.mark.parametrize(("game", "lineage"), SOME_STREAMS)
def test_a_stream_is_the_one_that_the_naive_loop_gave(game, lineage):
    kept = golden()
    if kept["ale_py"] != ale_py.__version__:
        pytest.skip(f"the digests are of ale-py {kept['ale_py']}")
    found = digests(ours(game, lineage))
    assert found["numbers"] == kept["streams"][f"{game} {lineage}"]["numbers"]
    if kept["opencv"] == cv2.__version__:
        assert found["pictures"] == kept["streams"][f"{game} {lineage}"]["pictures"]


@pytest.mark.full
@one_process
def test_the_digests_are_those_of_the_naive_loop():
    kept = golden()
    if (kept["ale_py"], kept["opencv"]) != (ale_py.__version__, cv2.__version__):
        pytest.skip("the digests are of other releases")
    assert {
        f"{game} {lineage}": digests(naive(game, lineage)) for game, lineage in STREAMS
    } == kept["streams"]


@pytest.mark.full
@one_process
def test_atari_equals_sb3_but_for_the_terminal_frames_of_games_that_end_inside_a_skip():
    ends = inside = 0
    for game in GAMES:
        rows, reference = ours(game, "deepmind"), naive(game, "deepmind")
        peer = play(AtariWrapper(make(game)))
        for row, other, mark in zip(rows, peer, reference, strict=True):
            assert seen(row)[1:] == seen(other)[1:]
            assert row.picture == other.picture or mark.inside
            # SB3 loses what a reset reports where it presses FIRE.
            assert row.info == other.info or not other.info
        ends += sum(row.over for row in reference)
        inside += sum(row.inside for row in reference)
    assert (ends, inside) == (24, 19)


@pytest.mark.full
@one_process
def test_atari_machado_equals_gymnasium_but_for_the_terminal_frames_of_games():
    ends = inside = 0
    for game in GAMES:
        rows, reference = ours(game, "machado"), naive(game, "machado")
        peer = play(AtariPreprocessing(make(game)))
        for row, other, mark in zip(rows, peer, reference, strict=True):
            assert seen(row)[1:] == seen(other)[1:]
            assert row.info == other.info
            # Gymnasium leaves out the frame in which a game ends.
            assert row.picture == other.picture or mark.over
        ends += sum(row.over for row in reference)
        inside += sum(row.inside for row in reference)
    assert (ends, inside) == (25, 24)


@pytest.mark.parametrize(
    ("game", "direct", "steps"),
    [
        ("Breakout", None, 600),
        pytest.param("Breakout", False, 600, marks=pytest.mark.full),
        # Where lives last longer.
        pytest.param("SpaceInvaders", None, 1200, marks=pytest.mark.full),
    ],
)
def test_atari_machado_with_a_new_game_after_a_lost_life_equals_gymnasium(game, direct, steps):
    tap = RawRewardRecorder(make(game))
    env = Atari(
        tap, "machado", repeat_action_probability=0, terminal_on_life_loss="new_game", direct=direct
    )
    rows, peer = (
        play(env, steps),
        play(AtariPreprocessing(make(game), terminal_on_life_loss=True), steps),
    )
    for row, other in zip(rows, peer, strict=True):
        assert seen(row)[1:] == seen(other)[1:]
        assert row.info == other.info
        # Gymnasium pools a frame of an earlier agent step.
        assert row.picture == other.picture or other.terminated
    assert sum(row.terminated for row in rows) >= 5
    assert not env.game_goes_on


def test_atari_with_a_new_game_after_a_lost_life_ends_the_step_that_loses_it_and_reports_a_game():
    game = Script(lives=[3, 3, 2], rewards=[1, 1, 1, 5])
    with vecwrap.build(
        [lambda: game], wrappers=["atari:noop_max=0,terminal_on_life_loss=new_game", "monitor"]
    ) as env:
        env.reset()
        *_, rewards, terminations, truncations, infos = env.step([1])
        assert (rewards[0], terminations[0], truncations[0]) == (1.0, True, False)
        assert (infos["episode"]["r"][0], infos["episode"]["l"][0]) == (2.0, 1)
        env.step([2])
    assert game.actions == [[1, 1], [2, 2], []]
    words = Atari.summary(terminal_on_life_loss="new_game")
    assert "a game ends with its first life" in words


# -- a game that ends inside a skip ----------------------------------------------------------------


@pytest.mark.full
@one_process
@pytest.mark.parametrize(("game", "lineage"), STREAMS)
def test_a_game_that_ends_inside_a_skip_pools_the_frames_of_its_own_agent_step(game, lineage):
    rows, reference = ours(game, lineage), naive(game, lineage)
    assert any(row.inside for row in reference)
    for row, other in zip(rows, reference, strict=True):
        assert (*seen(row), row.info) == (*seen(other), other.info)


@pytest.mark.parametrize(("over", "frames"), [(5, [5]), (6, [5, 6]), (7, [6, 7]), (8, [7, 8])])
def test_a_game_that_ends_at_any_frame_of_a_skip_pools_the_last_two_or_the_only_one(over, frames):
    pictures = np.random.default_rng(0).integers(256, size=(9, 210, 160, 3), dtype=np.uint8)
    env = scripted(frames=pictures, over=over)
    env.reset()
    assert not env.step(1)[2]
    observation, _, terminated, *_ = env.step(1)
    grey = cv2.cvtColor(pictures[frames].max(axis=0), cv2.COLOR_RGB2GRAY)
    assert terminated
    assert np.array_equal(observation, cv2.resize(grey, (84, 84), interpolation=cv2.INTER_AREA))


# -- skip = 1 --------------------------------------------------------------------------------------


def test_with_skip_1_there_is_no_pooling():
    env = Atari(
        Script(frames=[np.full((210, 160, 3), 255 - tick, np.uint8) for tick in range(9)]),
        noop_max=0,
        frame_skip=1,
    )
    env.reset()
    assert [int(env.step(1)[0].max()) for _ in range(3)] == [254, 253, 252]


def test_skip_1_equals_sb3():
    rows = play(Atari(make("Breakout"), frame_skip=1), steps=500)
    peer = play(AtariWrapper(make("Breakout"), frame_skip=1), steps=500)
    assert [seen(row) for row in rows] == [seen(row) for row in peer]


# -- life loss -------------------------------------------------------------------------------------


def lose_a_life(**script):
    env = scripted(lives=[3] * 3 + [2] * 40, **script)
    env.reset(seed=1)
    assert env.step(1)[2]
    return env


def test_the_game_goes_on_with_one_no_op_on_the_seedless_reset_after_a_lost_life():
    env = lose_a_life()
    assert env.game_goes_on
    observation, info = env.reset()
    assert env.unwrapped.actions == [[1] * 4 + [0] * 4]
    assert info == {"tick": 8}
    assert (observation == 8).all()
    assert not env.game_goes_on


def test_a_seeded_reset_after_a_lost_life_starts_a_new_game():
    env = lose_a_life()
    _, info = env.reset(seed=2)
    assert info["seeds"] == 2
    assert env.unwrapped.actions == [[1] * 4, []]
    assert not env.game_goes_on


def test_every_other_reset_starts_a_new_game():
    env = lose_a_life()
    env.reset()
    env.reset()  # directly after that of the lost life
    env.step(1)
    assert len(env.unwrapped.actions) == 2
    env = scripted()
    env.reset()
    env.step(1)
    env.reset()  # in the middle of an episode
    assert len(env.unwrapped.actions) == 2
    env = scripted(over=4)
    env.reset()
    assert env.step(1)[2]
    assert not env.game_goes_on
    env.reset()  # after the game's own end
    assert len(env.unwrapped.actions) == 2


def test_a_game_that_ends_within_the_no_op_after_a_lost_life_is_followed_by_a_new_one():
    env = lose_a_life(over=6)
    observation, info = env.reset()
    assert env.unwrapped.actions == [[1] * 4 + [0] * 2, []]
    assert info["tick"] == 0
    assert (observation == 0).all()
    assert not env.game_goes_on


def test_a_time_limit_that_falls_on_a_lost_life_ends_the_game():
    env = Atari(
        gymnasium.wrappers.TimeLimit(Script(lives=[3, 3, 2]), max_episode_steps=4), noop_max=0
    )
    env.reset()
    *_, terminated, truncated, _ = env.step(1)
    assert terminated
    assert truncated
    assert not env.game_goes_on


def test_what_the_game_itself_pays_and_reports_is_noted_and_it_is_not_over_before_its_end():
    tap = RawRewardRecorder(Script(lives=[3] * 3 + [2] * 40, rewards=[5], over=11))
    env = Atari(tap, noop_max=0)
    env.reset()
    assert tap.after_reset() == (0.0, False, True)
    assert env.step(1)[1:3] == (1.0, True)
    assert tap.after_step() == (20.0, False, False)
    env.reset()
    assert tap.after_reset() == (0.0, False, False)
    assert env.step(1)[1:3] == (1.0, True)
    assert tap.after_step() == (20.0 + 15.0, True, False)  # the no-op's rewards are the game's too


# -- observation shape -----------------------------------------------------------------------------


def test_observations_have_shape_84_84_and_are_the_callers_to_keep():
    env = Atari(make("Pong"))
    assert env.observation_space == gymnasium.spaces.Box(0, 255, (84, 84), np.uint8)
    first, _ = env.reset(seed=1)
    kept = [first, *(env.step(0)[0] for _ in range(20))]
    copies = [observation.copy() for observation in kept]
    for _ in range(20):
        env.step(1)
    assert all(env.observation_space.contains(observation) for observation in kept)
    assert all(np.array_equal(a, b) for a, b in zip(kept, copies, strict=True))
    env.close()


def test_the_screen_size_can_be_chosen():
    env = Atari(Script(), screen_size=42)
    assert env.reset()[0].shape == env.observation_space.shape == (42, 42)


# -- an id that skips or sticks by itself ----------------------------------------------------------


@pytest.mark.parametrize(
    "id", ["ALE/Pong-v5", "Pong-v4", "Pong-v0", "PongNoFrameskip-v0", "PongNoFrameskip-v4"]
)
@pytest.mark.parametrize(("lineage", "sticky"), [("deepmind", 0.0), ("machado", 0.25)])
def test_an_id_that_skips_or_sticks_by_itself_is_made_with_frameskip_1_and_the_lineages_stickiness(
    id, lineage, sticky
):
    kwargs = Atari.environment_kwargs(gymnasium.spec(id), lineage=lineage)
    assert kwargs == {"frameskip": 1, "repeat_action_probability": sticky}
    if lineage == "deepmind" and id != "PongNoFrameskip-v4":
        env = Atari(gymnasium.make(id, **kwargs), lineage)
        assert play(env, steps=50) == ours("Pong", "deepmind", steps=50)


class PongByItself(ale_py.AtariEnv):
    def __init__(self, frameskip=4):
        super().__init__("pong", frameskip=frameskip, repeat_action_probability=0.0)


def make_pong(game="pong", **kwargs):
    return ale_py.AtariEnv(game, **kwargs)


@pytest.mark.parametrize(
    ("entry_point", "kwargs"),
    [
        (PongByItself, {"frameskip": 1}),
        (make_pong, {"frameskip": 1, "repeat_action_probability": 0.0}),
        (lambda: PongByItself(frameskip=1), {}),
        (ale_py.AtariEnv, {"frameskip": 1, "repeat_action_probability": 0.0}),
    ],
)
def test_an_id_of_the_users_own_gets_what_its_constructor_takes(entry_point, kwargs):
    spec = gymnasium.envs.registration.EnvSpec("Own-v0", entry_point=entry_point)
    assert Atari.environment_kwargs(spec) == kwargs


def test_an_id_that_is_no_atari_game_is_a_plan_error():
    with pytest.raises(
        PlanError,
        match=r'expected a game of the Arcade.*got "CartPole-v1" \(CartPoleEnv\): take an id',
    ):
        Atari.environment_kwargs(gymnasium.spec("CartPole-v1"))


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            lambda: gymnasium.make("CartPole-v1"),
            r"expected a game of the Arcade Learning Environment .*got CartPoleEnv",
        ),
        (
            lambda: gymnasium.make("ALE/Pong-v5"),
            r"skips no frames, got one with frameskip=4.*make it with frameskip=1",
        ),
        (lambda: gymnasium.make("Pong-v4"), r"skips no frames, got one with frameskip=\(2, 5\)"),
        (
            lambda: AtariPreprocessing(make("Pong")),
            r"but AtariPreprocessing inside it skips 4: leave one of the two out",
        ),
        (lambda: AtariWrapper(make("Pong")), r"but MaxAndSkipEnv inside it skips 4"),
        (
            lambda: gymnasium.make("PongNoFrameskip-v0"),
            (
                r"with repeat_action_probability=0 .*got one with 0.25: make it with the former, "
                r"or give atari"
            ),
        ),
        (
            lambda: make("Pong", obs_type="ram"),
            r"expected colour images.*got Box.*obs_type=\"rgb\"",
        ),
        (lambda: make("Pong", obs_type="grayscale"), r"expected colour images"),
        (
            lambda: make("Pong", continuous=True, full_action_space=True),
            (
                r"NOOP, FIRE.*, got Box.*continuous=False, or give atari noop_max=0 and give atari "
                r"fire_reset=False"
            ),
        ),
        (
            lambda: Script(meanings=("FIRE", "LEFT", "RIGHT")),
            r"begin with NOOP, FIRE.*full_action_space=True",
        ),
    ],
)
def test_an_environment_that_does_not_fit_is_a_plan_error(env, message):
    env = env()
    with pytest.raises(PlanError, match=message):
        Atari(env)
    env.close()


@pytest.mark.parametrize("game", ["Backgammon", "VideoCheckers"])
def test_games_without_a_no_op_among_their_minimal_actions_are_played_with_all_actions(game):
    with pytest.raises(PlanError, match=r"begin with NOOP, FIRE.*full_action_space=True"):
        Atari(gymnasium.make(f"ALE/{game}-v5", frameskip=1, repeat_action_probability=0))
    env = Atari(
        gymnasium.make(
            f"ALE/{game}-v5", frameskip=1, repeat_action_probability=0, full_action_space=True
        )
    )
    assert env.reset(seed=1)[0].shape == (84, 84)
    env.close()


@pytest.mark.parametrize("id", ["ALE/Backgammon-v5", "ALE/VideoCheckers-v5"])
def test_with_noop_max_0_a_game_needs_no_no_op_as_in_gymnasium(id):
    def game():
        return gymnasium.make(id, frameskip=1, repeat_action_probability=0)

    settings = {"noop_max": 0, "repeat_action_probability": 0}
    with pytest.raises(
        PlanError,
        match=r"begin with NOOP, FIRE and one more, got FIRE,.*, or give atari fire_reset=F",
    ):
        Atari(game(), **settings)
    Atari(game(), fire_reset=False, **settings).close()
    try:
        preprocessed = AtariPreprocessing(game(), noop_max=0)
    except AssertionError:
        pytest.skip("this Gymnasium wants NOOP even where none is taken")
    rows, peer = play(Atari(game(), "machado", **settings), 100), play(preprocessed, 100)
    assert [(row, row.info) for row in rows] == [(row, row.info) for row in peer]


@pytest.mark.filterwarnings("ignore:.continuous. is set to:UserWarning")  # ale-py 0.10
def test_with_noop_max_0_actions_may_be_continuous_and_a_lost_life_is_followed_by_zeros():
    def game():
        return gymnasium.make(
            "ALE/Breakout-v5", frameskip=1, repeat_action_probability=0, continuous=True
        )

    with pytest.raises(
        PlanError,
        match=r"got Box.*make the environment with continuous=False, or give atari noop_max=0",
    ):
        Atari(game(), "machado", repeat_action_probability=0)
    still = dict.fromkeys(range(400), np.zeros(3, np.float32)) | {
        0: np.array([1, 1, 1], np.float32)
    }
    whole = Atari(game(), noop_max=0, fire_reset=False, terminal_on_life_loss=False)
    lives = Atari(game(), noop_max=0, fire_reset=False)
    assert whole.path == "through env.step"
    seen = []
    for env in (whole, lives):
        env.reset(seed=1)
        rows = []
        for step in still.values():
            observation, _, terminated, _, info = env.step(step)
            rows.append((picture(observation), info["lives"]))
            if terminated:
                observation, info = env.reset()
                rows.append((picture(observation), info["lives"]))
        seen.append(rows[:400])
        env.close()
    assert seen[0] == seen[1]
    assert seen[0][-1][1] < 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"terminal_on_life_loss": "newgame"},
            'terminal_on_life_loss: expected true, false or "new_game", got ',
        ),
        (
            {"lineage": "deepmnd"},
            r'expected deepmind or machado, got "deepmnd". Did you mean "deepmind"\?',
        ),
        ({"frame_skip": 0}, "frame_skip: expected at least 1, got 0"),
        ({"noop_max": -1}, "noop_max: expected at least 0, got -1"),
        ({"screen_size": 0}, "screen_size: expected at least 1, got 0"),
        (
            {"repeat_action_probability": 1.0},
            "repeat_action_probability: expected 0 or more and less than 1, got 1.0",
        ),
    ],
)
def test_an_argument_out_of_range_is_a_plan_error_before_anything_is_made(arguments, message):
    with pytest.raises(PlanError, match=message):
        Atari.environment_kwargs(gymnasium.spec("PongNoFrameskip-v4"), **arguments)
    with pytest.raises(PlanError, match=message):
        Atari(Script(), **arguments)


# -- the direct path -------------------------------------------------------------------------------


class Inverted(gymnasium.ObservationWrapper):
    def observation(self, observation):
        return 255 - observation


class OwnPong(ale_py.AtariEnv):
    pass


def transparent(env):
    return RawRewardRecorder(
        gymnasium.wrappers.OrderEnforcing(gymnasium.wrappers.TimeLimit(env, 10))
    )


@pytest.mark.parametrize(
    ("env", "obstacle"),
    [
        (lambda: make("Pong"), None),
        (lambda: transparent(make("Pong", max_episode_steps=9)), None),
        (lambda: Inverted(make("Pong")), "Inverted lies between"),
        (
            lambda: gymnasium.wrappers.RecordEpisodeStatistics(make("Pong")),
            "RecordEpisodeStatistics lies between",
        ),
        (lambda: make("AirRaid"), "PAL consoles"),
        (
            lambda: OwnPong("pong", frameskip=1, repeat_action_probability=0.0),
            "OwnPong is not the environment of ale-py",
        ),
        (Script, "Script is not the environment of ale-py"),
    ],
    ids=["made", "time limits", "observations", "statistics", "PAL", "subclass", "other"],
)
def test_the_direct_path_is_taken_only_where_nothing_but_transparent_wrappers_lies_in_between(
    env, obstacle
):
    env = env()
    assert Atari(env).path == ("direct" if obstacle is None else "through env.step")
    assert Atari(env, direct=False).path == "through env.step"
    if obstacle is None:
        assert Atari(env, direct=True).path == "direct"
    else:
        with pytest.raises(PlanError, match=f"direct=True is not possible: .*{obstacle}"):
            Atari(env, direct=True)
    env.close()


@one_process
@pytest.mark.parametrize(
    ("game", "lineage"),
    [
        IN_SUITE[1],
        *(
            pytest.param(*stream, marks=pytest.mark.full)
            for stream in STREAMS
            if stream != IN_SUITE[1]
        ),
    ],
)
def test_both_paths_give_the_same_stream(game, lineage):
    env = Atari(make(game), lineage, repeat_action_probability=0, direct=False)
    assert env.path == "through env.step"
    rows = play(env, steps=1500)
    assert rows == ours(game, lineage)[: len(rows)]


@pytest.mark.parametrize(
    ("kwargs", "settings"),
    [
        ({"max_episode_steps": 403}, {}),
        ({"max_episode_steps": 403}, {"lineage": "machado", "repeat_action_probability": 0}),
        pytest.param({"max_num_frames_per_episode": 403}, {}, marks=pytest.mark.full),
        ({"max_episode_steps": 37}, {}),  # falls into no-ops and FIRE
        pytest.param({"max_episode_steps": 90}, {"frame_skip": 1}, marks=pytest.mark.full),
        ({}, {"frame_skip": 3, "noop_max": 0, "screen_size": 61, "terminal_on_life_loss": False}),
        ({"repeat_action_probability": 0.25}, {"lineage": "machado"}),
        ({"full_action_space": True}, {}),
        ({"obs_type": "grayscale"}, {"lineage": "machado", "repeat_action_probability": 0}),
    ],
)
def test_both_paths_give_the_same_stream_with_time_limits_and_other_settings(kwargs, settings):
    direct, through = (
        Atari(make("Breakout", **kwargs), **settings, direct=direct) for direct in (True, False)
    )
    limit = kwargs.get("max_episode_steps", kwargs.get("max_num_frames_per_episode"))
    steps = 110 if limit in (None, 37) else 310
    rows = play(direct, steps)
    assert rows == play(through, steps)
    assert sum(row.truncated for row in rows) >= (3 if limit else 0)


@pytest.mark.parametrize("direct", [True, False])
def test_a_time_limit_inside_cuts_an_agent_step_short_as_in_the_naive_loop(direct):
    rows = play(Atari(make("Pong", max_episode_steps=203), direct=direct), steps=500)
    reference = play(Naive(make("Pong", max_episode_steps=203)), steps=500)
    assert [(*seen(row), row.info) for row in rows] == [(*seen(row), row.info) for row in reference]
    assert sum(row.inside for row in reference) >= 3


@pytest.mark.parametrize("inside", [True, False])
def test_both_paths_tell_what_the_game_itself_pays_and_reports(inside):
    noted, ends = [], 0
    for direct in (True, False):
        env = RawRewardRecorder(make("SpaceInvaders", max_episode_steps=None if inside else 2003))
        if inside:
            env = gymnasium.wrappers.TimeLimit(env, 2003)
        tap = next(
            wrapper for wrapper in wrappers_of(env) if isinstance(wrapper, RawRewardRecorder)
        )
        env = Atari(env, direct=direct)
        env.reset(seed=3)
        notes = [tap.after_reset()]
        for action in np.random.default_rng(7).integers(env.action_space.n, size=700):
            *_, terminated, truncated, _ = env.step(action)
            notes.append(tap.after_step())
            ends += notes[-1][1]
            if terminated or truncated:
                env.reset()
                notes.append(tap.after_reset())
        noted.append(notes)
        env.close()
    assert noted[0] == noted[1]
    assert max(note[0] for note in noted[0]) > 1
    assert ends


def test_a_pipelines_hash_is_the_same_on_both_paths():
    def hash_with(wrapper):
        spec = PipelineSpec.from_dict({"env": "PongNoFrameskip-v4", "n": 1, "wrappers": [wrapper]})
        return plan(spec).pipeline.hash

    assert hash_with("atari:direct=false") == hash_with("atari") != hash_with("atari:machado")


def test_the_direct_path_asks_for_colour_frames_at_resets_alone(monkeypatch):
    asked = []
    monkeypatch.setattr(ale_py.AtariEnv, "_get_obs", lambda self: asked.append(1))
    env = Atari(gymnasium.make("PongNoFrameskip-v4", disable_env_checker=True))
    env.reset(seed=1)
    for _ in range(20):
        env.step(0)
    assert asked == [1]
    env.close()


def test_the_direct_path_refuses_colours_that_it_does_not_know(monkeypatch):
    monkeypatch.setattr(
        "vecwrap.wrappers.emulator.play.palette", lambda: np.zeros((256, 3), np.uint8)
    )
    env = Atari(make("Pong"), direct=True)
    with pytest.raises(PlanError, match="expected the NTSC palette.*direct=False"):
        env.reset(seed=1)
    env.close()


def test_a_pal_game_equals_the_peers_too():
    rows = play(Atari(make("AirRaid")), steps=300)
    assert [seen(row) for row in rows] == [
        seen(row) for row in play(AtariWrapper(make("AirRaid")), steps=300)
    ]
    rows = play(Atari(make("AirRaid"), "machado", repeat_action_probability=0), steps=300)
    assert [seen(row) for row in rows] == [
        seen(row) for row in play(AtariPreprocessing(make("AirRaid")), steps=300)
    ]


# -- between the wrapper and the emulator ----------------------------------------------------------


def test_a_wrapper_inside_that_changes_images_is_heeded_by_deepmind():
    env, plain = Atari(Inverted(Script()), noop_max=0), Atari(Script(), noop_max=0)
    assert (env.reset()[0] == 255 - plain.reset()[0]).all()


def test_a_wrapper_inside_that_changes_colour_images_is_refused_by_machado_and_grey_is_heeded():
    env = Atari(Inverted(make("Pong")), "machado", repeat_action_probability=0)
    with pytest.raises(
        PlanError, match='a wrapper inside it changes the colour observations.*obs_type="grayscale"'
    ):
        env.reset(seed=1)
    env.close()
    env = Atari(make("Pong", obs_type="grayscale"), "machado", repeat_action_probability=0)
    assert play(env, steps=50) == ours("Pong", "machado", steps=50)
    env = Atari(
        Inverted(make("Pong", obs_type="grayscale")),
        "machado",
        repeat_action_probability=0,
        noop_max=0,
    )
    plain = Atari(make("Pong"), "machado", repeat_action_probability=0, noop_max=0)
    assert np.array_equal(env.reset(seed=1)[0], 255 - plain.reset(seed=1)[0])
    env.close()
    plain.close()


def test_a_step_before_the_first_reset_is_an_error():
    with pytest.raises(ResetNeededError, match="call reset"):
        Atari(Script()).step(0)


# -- OpenCV ----------------------------------------------------------------------------------------


class Failing(importlib.abc.MetaPathFinder):
    def __init__(self, message):
        self.message = message

    def find_spec(self, name, path, target=None):
        if name == "cv2":
            raise ImportError(self.message)


@pytest.mark.parametrize(
    ("message", "remedies"),
    [
        (
            "libGL.so.1: cannot open shared object file",
            ["libgl1", "libglib2.0-0", "opencv-python-headless"],
        ),
        (
            "libgthread-2.0.so.0: cannot open shared object file",
            ["libgl1", "libglib2.0-0", "opencv-python-headless"],
        ),
        ("No module named 'cv2'", ["pip install opencv-python"]),
    ],
)
def test_an_opencv_that_cannot_be_imported_names_what_to_install(monkeypatch, message, remedies):
    monkeypatch.delitem(sys.modules, "cv2")
    monkeypatch.setattr(sys, "meta_path", [Failing(message), *sys.meta_path])
    with pytest.raises(PlanError) as error:
        Atari(Script())
    assert message in str(error.value)
    assert all(remedy in str(error.value) for remedy in remedies)
    assert ("libgl1" in str(error.value)) == ("lib" in message)


def test_opencv_is_imported_no_sooner_than_a_game_is_wrapped():
    code = (
        "import sys, vecwrap.wrappers.atari as a, gymnasium; a.Atari.summary();"
        "a.Atari.environment_kwargs(gymnasium.envs.registration.EnvSpec('A-v0', "
        "entry_point='ale_py.env:AtariEnv'));sys.exit(bool({'cv2', 'ale_py'} & "
        "set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "game",
    [
        "Pong",
        *(
            pytest.param(game, marks=pytest.mark.full)
            for game in ("Assault", "Tennis", "ElevatorAction", "YarsRevenge")
        ),
    ],
)
def test_a_first_seeded_reset_that_spares_the_loading_gives_the_same_game_and_every_later_one_loads(
    game,
):
    """The state of all but Pong outlives a reset of the console, so a loading that is spared too
    often shows.
    """
    direct, loading = (
        Atari(gymnasium.make(f"{game}NoFrameskip-v4"), direct=way) for way in (None, False)
    )
    loads = []
    real = type(direct.unwrapped).load_game
    rng = np.random.default_rng(4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            type(direct.unwrapped), "load_game", lambda env: (loads.append(env), real(env))
        )
        for seed in (3, 4, None, 3):
            (seen, info), (expected, told) = (env.reset(seed=seed) for env in (direct, loading))
            assert np.array_equal(seen, expected)
            assert info == told
            for _ in range(60):
                action = int(rng.integers(direct.action_space.n))
                ours, theirs = direct.step(action), loading.step(action)
                assert np.array_equal(direct.unwrapped.ale.getRAM(), loading.unwrapped.ale.getRAM())
                assert np.array_equal(ours[0], theirs[0])
                assert ours[1:] == theirs[1:]
                if ours[2] or ours[3]:
                    direct.reset(), loading.reset()
    assert len([env for env in loads if env is loading.unwrapped]) == 3
    assert len([env for env in loads if env is direct.unwrapped]) == 2
    direct.close()
    loading.close()


@pytest.mark.parametrize("sticky", [0.0, 0.25])
def test_a_game_with_sticky_actions_is_loaded_at_its_first_seeded_reset(sticky):
    env = Atari(
        gymnasium.make("PongNoFrameskip-v4", repeat_action_probability=sticky),
        repeat_action_probability=sticky,
    )
    loads = []
    with pytest.MonkeyPatch.context() as patch:
        real = type(env.unwrapped).load_game
        patch.setattr(
            type(env.unwrapped), "load_game", lambda game: (loads.append(game), real(game))
        )
        env.reset(seed=1)
    assert len(loads) == (sticky > 0)
    env.close()


if __name__ == "__main__":
    streams = {f"{game} {lineage}": digests(naive(game, lineage)) for game, lineage in STREAMS}
    kept = {"ale_py": ale_py.__version__, "opencv": cv2.__version__, "streams": streams}
    GOLDEN.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
