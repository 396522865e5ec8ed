"""Atari's wrappers one by one, put together again: the same stream as ``atari``, and as
Stable-Baselines3's.
"""

import ale_py
import gymnasium
import numpy as np
import pytest
from stable_baselines3.common.atari_wrappers import AtariWrapper

import vecwrap
from tests.helpers.stream_envs import assert_same
from vecwrap.wrappers.monitor import Monitor

gymnasium.register_envs(ale_py)

PIECES = [
    "noop_reset",
    "frame_skip:4,pooling=max",
    "episodic_life",
    "fire_reset",
    "grayscale",
    "resize:84",
    "clip_reward",
]
GAMES = (
    "Breakout",
    *(pytest.param(game, marks=pytest.mark.full) for game in ("Pong", "SpaceInvaders")),
)


def built(game, *wrappers, n=1, **keywords):
    keywords["env_kwargs"] = {"max_episode_steps": 130}
    return vecwrap.build(f"{game}NoFrameskip-v4", n, [*wrappers, "monitor"], **keywords)


@pytest.mark.parametrize("game", GAMES)
def test_lineages_pieces_put_together_equal_atari(game):
    actions = np.random.default_rng(5).integers(4, size=(130, 2))
    with (
        built(game, *PIECES, n=2, backend="dummy") as pieces,
        built(game, "atari", n=2, backend="dummy") as whole,
    ):
        assert pieces.single_observation_space == whole.single_observation_space
        results = [(pieces.reset(seed=4), whole.reset(seed=4))]
        results += [(pieces.step(row), whole.step(row)) for row in actions]
    games = 0
    for mine, expected in results:
        for infos in (mine[-1], expected[-1]):
            games += "episode" in infos
            infos.get("episode", {}).pop("t", None)
        assert_same_rows(mine, expected)
    assert games >= 4


def assert_same_rows(mine, expected):
    for one, other in zip(mine[:-1], expected[:-1], strict=True):
        assert_same(one, other)
    one, other = mine[-1], expected[-1]
    assert one.keys() == other.keys()
    for key in one:
        if key == "final_obs":
            for i in np.flatnonzero(one["_final_obs"]):
                assert_same(one[key][i], other[key][i])
        else:
            assert_same(one[key], other[key])


@pytest.mark.parametrize("game", GAMES)
def test_lineages_pieces_equal_sb3_but_for_frames_of_games_that_end_inside_a_skip(game):
    """SB3 pools a stale frame where a game ends inside a skip (docs/semantics.md)."""
    peer = AtariWrapper(gymnasium.make(f"{game}NoFrameskip-v4", max_episode_steps=130))
    ends = 0
    with built(game, *PIECES, backend="dummy", autoreset="disabled") as env:
        assert_same(env.reset(seed=4)[0][0], peer.reset(seed=4)[0][..., 0])
        for action in np.random.default_rng(5).integers(4, size=130):
            observations, rewards, terminations, truncations, _ = env.step([action])
            observation, reward, terminated, truncated, _ = peer.step(action)
            assert (rewards[0], terminations[0], truncations[0]) == (reward, terminated, truncated)
            assert truncated or np.array_equal(observations[0], observation[..., 0])
            if terminated or truncated:
                ends += truncated
                reset = env.reset(options={"reset_mask": np.array([True])})[0]
                assert_same(reset[0], peer.reset()[0][..., 0])
    assert ends >= 2


@pytest.mark.parametrize("backend", ["subprocess", "shmem"])
def test_pieces_run_in_workers_alike(backend):
    with (
        built("Breakout", *PIECES, n=2, backend="dummy") as expected,
        built("Breakout", *PIECES, n=2, backend=backend, workers=1) as env,
    ):
        results = []
        for each in (expected, env):
            rows = [each.reset(seed=4)[0]]
            rows += [
                each.step(action)[:4]
                for action in np.random.default_rng(5).integers(4, size=(40, 2))
            ]
            results.append(rows)
    assert_same(tuple(results[1][1:]), tuple(results[0][1:]))


def test_an_id_that_skips_and_sticks_by_itself_is_made_so_that_the_pieces_do_it():
    with vecwrap.build(
        "ALE/Pong-v5", 1, ["frame_skip:4,pooling=max", "grayscale"], backend="dummy"
    ) as env:
        assert env.get_attr("_frameskip") == (1,)
    with pytest.raises(
        vecwrap.VecwrapError,
        match="sticky_actions.: expected a game without sticky actions, got one",
    ):
        vecwrap.build("ALE/Pong-v5", 1, ["sticky_actions"], backend="dummy")


def test_what_refuses_two_kinds_of_sticky_actions_says_what_works():
    line = "PongNoFrameskip-v4 n=1 backend=dummy"
    with pytest.raises(
        vecwrap.VecwrapError, match=r"repeat_action_probability=0 \(in the wrapper atari if there"
    ):
        vecwrap.build(f"{line} | atari:machado | sticky_actions:0.3")
    with pytest.raises(
        vecwrap.VecwrapError,
        match="Give it to atari instead: (atari:repeat_action_probability=0)[.]$",
    ):
        vecwrap.build(
            f"{line} env_kwargs.repeat_action_probability=0 | atari:machado | sticky_actions:0.3"
        )
    vecwrap.build(
        f"{line} | atari:machado,repeat_action_probability=0 | sticky_actions:0.3"
    ).close()


def test_pieces_go_on_from_a_state_as_if_they_had_never_stopped(tmp_path):
    wrappers = ["noop_reset", "sticky_actions:0.3", *PIECES[1:]]
    actions = np.random.default_rng(5).integers(4, size=(70, 2))
    with (
        built("Breakout", *wrappers, n=2, backend="dummy") as env,
        built("Breakout", *wrappers, n=2, backend="dummy") as other,
    ):
        env.reset(seed=4)
        for action in actions[:35]:
            env.step(action)
        env.save(tmp_path / "state.npz")
        other.reset(seed=9)
        other.load(tmp_path / "state.npz")
        rows = [[each.step(action)[:4] for action in actions[35:]] for each in (env, other)]
    assert_same(tuple(rows[1]), tuple(rows[0]))
    assert sum(row[2].sum() + row[3].sum() for row in rows[0]) >= 2


class Shorten(gymnasium.Wrapper):
    """A user's own limit, in frames."""

    def reset(self, **keywords):
        self.left = 130
        return self.env.reset(**keywords)

    def step(self, action):
        self.left -= 1
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated or self.left <= 0, info


@pytest.mark.parametrize(
    ("mode", "wrappers"),
    [
        ("same_step", ["atari"]),
        ("next_step", PIECES),
        *(
            pytest.param(mode, ["atari"], marks=pytest.mark.full)
            for mode in ("next_step", "disabled", "episodic")
        ),
        pytest.param(
            "next_step", ["atari:machado,terminal_on_life_loss=true"], marks=pytest.mark.full
        ),
    ],
)
def test_the_same_games_are_reported_whichever_wrapper_ends_them_also_in_resets_after_lost_lives(
    mode, wrappers
):
    actions = np.random.default_rng(3).integers(4, size=(150, 2))
    told, in_resets = [], 0
    for kwargs, limit in (
        ({"max_episode_steps": 130}, []),
        ({}, ["time_limit:130"]),
        ({}, [Shorten]),
    ):
        stream = []
        with vecwrap.build(
            "BreakoutNoFrameskip-v4",
            2,
            [*limit, *wrappers, "monitor"],
            env_kwargs=kwargs,
            backend="dummy",
            autoreset=mode,
            seed=3,
        ) as env:
            env.reset()
            for row in actions:
                observations, *numbers, infos = env.step(row)
                dones = numbers[1] | numbers[2]
                if mode in ("disabled", "episodic") and dones.any():
                    observations, later = env.reset(options={"reset_mask": dones})
                    infos = {**later, **infos}
                if "episode" in infos:
                    in_resets += int((infos["_episode"] & ~dones).sum())
                stream.append((observations, *numbers))
            games = [(game.score, game.length, game.env) for game in env.find(Monitor).recent]
            score = vecwrap.evaluate(env, lambda observations: [2, 3], 4, seed=5)
        told.append((games, score.returns.tolist(), score.lengths.tolist(), tuple(stream)))
    for games, returns, lengths, stream in told[1:]:
        assert_same(stream, told[0][-1])
        assert (games, returns, lengths) == told[0][:-1]
    assert len(told[0][0]) >= 8
    assert in_resets >= 3 * (mode == "next_step"), "or nothing was compared"
