"""A sticky Atari game goes on bit for bit, though the emulator's state leaves out the action that
it holds.
"""

from functools import partial

import ale_py
import gymnasium
import numpy as np
import pytest

from vecwrap.sources import saving as sticky_ale
from vecwrap.sources.saving import CannotSaveError, env_state, find_held_action, load_env_state
from vecwrap.wrappers.atari import Atari

gymnasium.register_envs(ale_py)


def plain(game, **settings):
    return gymnasium.make(f"ALE/{game}-v5", render_mode="rgb_array", **settings)


def machado(game, direct, sticky=0.25):
    env = plain(game, frameskip=1, repeat_action_probability=sticky)
    return Atari(env, "machado", repeat_action_probability=sticky, direct=direct)


GAMES = {
    "pong": partial(plain, "Pong"),
    "breakout": partial(plain, "Breakout"),
    "pong, machado": partial(machado, "Pong", None),
    "breakout, machado": partial(machado, "Breakout", False),
    "breakout, each frame, mostly sticky": partial(
        plain, "Breakout", frameskip=1, repeat_action_probability=0.8
    ),
    "pong, full actions, short games": partial(
        plain, "Pong", full_action_space=True, frameskip=3, max_num_frames_per_episode=30
    ),
}
IN_SUITE = [("breakout, machado", 6), ("pong, full actions, short games", 6)]


def run(env, actions):
    """Step through actions, resetting what ended; give all that came."""
    came = []
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        came.append(
            (
                observation.tobytes(),
                float(reward),
                terminated,
                truncated,
                str(info),
                env.render().tobytes(),
            )
        )
        if terminated or truncated:
            observation, info = env.reset()
            came.append((observation.tobytes(), str(info)))
    return came


@pytest.mark.parametrize(
    ("make", "saves"),
    [
        pytest.param(
            make,
            saves,
            id=f"{name}-{saves}",
            marks=() if (name, saves) in IN_SUITE else pytest.mark.full,
        )
        for name, make in GAMES.items()
        for saves in (6, 12)
    ],
)
def test_it_goes_on_as_one_that_was_never_saved(make, saves):
    saved, never, loaded = make(), make(), make()
    for env in (saved, never):
        env.reset(seed=3)
    loaded.reset(seed=4)
    random = np.random.default_rng(0)
    for point in range(saves):
        actions = random.integers(0, saved.action_space.n, 13).tolist()
        assert run(saved, actions[:5]) == run(never, actions[:5]), f"before save {point}"
        state = env_state(saved)
        load_env_state(loaded, state)
        expected = run(never, actions[5:])
        assert run(loaded, actions[5:]) == expected, f"loaded at save {point}"
        assert run(saved, actions[5:]) == expected, f"saved at save {point}"


def test_a_save_at_the_end_of_a_game():
    saved, never, loaded = (plain("Pong", max_num_frames_per_episode=20) for _ in range(3))
    for env in (saved, never, loaded):
        env.reset(seed=3)
    for env in (saved, never):
        assert [env.step(3)[3] for _ in range(5)] == [False] * 4 + [True]
    load_env_state(loaded, env_state(saved))
    for env in (saved, never, loaded):
        env.reset()
    actions = [2, 3, 2, 3, 3] * 3
    expected = run(never, actions)
    assert run(saved, actions) == expected
    assert run(loaded, actions) == expected


def test_the_action_that_is_held_is_found():
    game = plain("Breakout", frameskip=1, repeat_action_probability=0.7).unwrapped
    game.reset(seed=3)
    found = set()
    for action in (2, 3) * 5:  # the paddle stays off the walls, at which each action does the same
        for _ in range(9):
            game.step(action)
        found.add((action, ale_py.Action(find_held_action(game)).name))
    assert {(2, "RIGHT"), (3, "LEFT")} <= found
    assert not {(2, "LEFT"), (3, "RIGHT")} & found


def test_a_file_without_the_action_that_is_held_is_loaded():
    env, other = plain("Pong"), plain("Pong")
    env.reset(seed=3)
    other.reset(seed=4)
    run(env, [2, 3, 2])
    state = env_state(env)
    del state[-1]["state"]["ale_held_action"]
    load_env_state(other, state)
    # Older releases give the memory of the last tick that was played until the next one, so it is
    # not compared.
    saved, loaded = (
        one.unwrapped.ale.cloneState(include_rng=True).__getstate__() for one in (env, other)
    )
    assert saved == loaded


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_where_no_action_is_held_for_a_while_nothing_is_played(monkeypatch, probability):
    env = plain("Pong", repeat_action_probability=probability)
    env.reset(seed=3)
    run(env, [2, 3, 2])
    monkeypatch.setattr("vecwrap.sources.saving.find_held_action", None)
    assert set(env_state(env)[-1]["state"]) == {"ale", "np_random", "np_random_seed"}


@pytest.mark.filterwarnings("ignore:.continuous. is set to .True.")  # of older releases
@pytest.mark.parametrize("setting", ["continuous", "sound_obs"])
def test_what_the_emulator_gives_no_state_of_is_refused(setting):
    env = plain("Pong", **{setting: True})
    env.reset(seed=3)
    with pytest.raises(
        CannotSaveError, match=f"{setting}=True and sticky actions.*repeat_action_probability=0"
    ):
        env_state(env)


def test_a_game_that_hardly_ever_takes_an_action_says_so_instead_of_playing_for_minutes():
    env = plain("Pong", repeat_action_probability=0.9999)
    env.reset(seed=3)
    run(env, [2, 3, 2])
    with pytest.raises(LookupError, match="repeat_action_probability=0.9999 is too near to 1"):
        env_state(env)


def test_an_interrupt_amid_a_save_leaves_the_game_where_it_is(monkeypatch):
    env = plain("Pong")
    env.reset(seed=3)
    run(env, [2, 3, 2])
    ale = env.unwrapped.ale
    before, left = ale.cloneState(include_rng=True).__getstate__(), iter(range(30))

    def tick(emulator, play=sticky_ale._tick):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return play(emulator)

    monkeypatch.setattr("vecwrap.sources.saving._tick", tick)
    with pytest.raises(KeyboardInterrupt):
        env_state(env)
    assert ale.cloneState(include_rng=True).__getstate__() == before
