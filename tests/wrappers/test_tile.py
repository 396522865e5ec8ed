"""One image of all sub-environments, and what its labels tell."""

import itertools

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import vecwrap
from tests.helpers.backends import DummyBackend, ShmemBackend, SubprocessBackend
from tests.helpers.stream_envs import Lives
from vecwrap.env import picture as tiles
from vecwrap.errors import PlanError
from vecwrap.sources.source_factories import SubEnvFactory
from vecwrap.wrappers.clip_reward import ClipReward
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.tile import Tile

MODES = ["same_step", "next_step", "disabled", "episodic"]


class Card(gymnasium.Env):
    """A frame of one colour, which tells the index; pays ``2.5 * (index + 1)`` a step; ends after
    ``length``.
    """

    metadata = {"render_modes": ["rgb_array"]}
    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, index=0, length=3, size=(32, 48)):
        self.render_mode = "rgb_array"
        self.index, self.length, self.size = index, length, size

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(1, np.float32), 2.5 * (self.index + 1), self.steps == self.length, False, {}

    def render(self):
        return np.full((*self.size, 3), (self.index + 1) % 256, np.uint8)


def make(n=3, **options):
    return [lambda i=i: Card(i, **options) for i in range(n)]


def labels_of(env, monkeypatch):
    """(score, length, marked) of each tile, as they are drawn."""
    drawn = []
    real = tiles.labelled

    def noted(frames, texts, marks, *size):
        drawn.append((texts, marks))
        return real(frames, texts, marks, *size)

    monkeypatch.setattr(tiles, "labelled", noted)
    env.render()
    monkeypatch.undo()
    ((texts, marks),) = drawn
    assert [text[-1] for text in texts] == [f"#{i}" for i in range(env.num_envs)]
    numbers = [text[1].split()[1:] for text in texts]
    return [
        (float(score), int(length), marked)
        for (score, length), marked in zip(numbers, marks, strict=True)
    ]


@pytest.mark.parametrize("n", [1, 2, 5, 8, 9])
def test_each_sub_environment_has_its_place_and_the_rest_is_black(n):
    with Tile(DummyBackend(make(n))) as env:
        env.reset()
        image = env.render()
    rows, columns = tiles.grid(n)
    assert (image.shape, image.dtype) == ((rows * 32, columns * 48, 3), np.uint8)
    for k in range(rows * columns):
        tile = image[k // columns * 32 :, k % columns * 48 :][:32, :48]
        assert (tile == (k + 1 if k < n else 0)).all()


@pytest.mark.parametrize("backend", [SubprocessBackend, ShmemBackend])
def test_it_is_the_same_from_workers_and_through_outer_wrappers(backend):
    with Tile(DummyBackend(make(5))) as env:
        env.reset()
        expected = env.render()
    with Monitor(Tile(backend(make(5), workers=2))) as env:
        env.reset()
        np.testing.assert_array_equal(env.render(), expected)
        assert [frame.shape for frame in env.get_images()] == [(32, 48, 3)] * 5


def test_frames_of_unequal_size_are_padded():
    sizes = [(32, 48), (16, 20), (8, 60)]
    with Tile(DummyBackend([lambda i=i: Card(i, size=sizes[i]) for i in range(3)])) as env:
        env.reset()
        image = env.render()
    assert image.shape == (32, 180, 3)
    for i in range(3):
        tile = image[:, 60 * i : 60 * (i + 1)]
        height, width = sizes[i]
        assert (tile[:height, :width] == i + 1).all()
        assert tile.sum() == height * width * 3 * (i + 1)


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("n", [1, 3, 64, 300])
def test_it_fits_at_any_n_and_keeps_its_aspect(n, labels):
    with Tile(DummyBackend(make(n)), labels, size=(640, 400)) as env:
        env.reset()
        height, width = env.render().shape[:2]
    assert width <= 640
    assert height <= 400
    rows, columns = tiles.grid(n)
    strip = tiles.STRIP if n < 64 else 0  # else they would take most of it
    if labels:
        width, height = width / columns - tiles.LINE, height / rows - tiles.LINE - strip
    else:
        width, height = width / columns, height / rows
    assert width / height == pytest.approx(48 / 32, rel=0.1 if labels else 0.02)


def test_a_tile_whose_game_ended_has_an_orange_line_around_it_until_its_next_step():
    lengths = (2, 9)
    with Tile(
        DummyBackend([lambda i=i: Card(i, lengths[i], (120, 160)) for i in range(2)]), labels=True
    ) as env:
        env.reset()
        for marked in (False, True, False, True):
            env.step([0, 0])
            image = env.render()
            assert image.shape == (120 + tiles.STRIP + 2 * tiles.LINE, 2 * 160 + 3 * tiles.LINE, 3)
            assert (image[:, : tiles.LINE] == tiles.ORANGE).all() == marked
            assert (image[: tiles.LINE, : 160 + 2 * tiles.LINE] == tiles.ORANGE).all() == marked
            assert (image[:, -tiles.LINE :] == tiles.GREY).all()
            frame = image[-120 - tiles.LINE : -tiles.LINE, tiles.LINE :][:, :160]
            np.testing.assert_array_equal(frame, env.get_images(0)[0])


@pytest.mark.parametrize("mode", MODES)
def test_labels_tell_what_the_monitor_tells(mode, monkeypatch):
    lengths = (2, 3, 4)
    monitor = Monitor(
        DummyBackend([lambda i=i: Card(i, lengths[i]) for i in range(3)], autoreset=mode)
    )
    ends = 0
    with Tile(ClipReward(monitor), labels=True) as env:
        env.reset()
        assert labels_of(env, monkeypatch) == [(0, 0, False)] * 3
        over = np.zeros(3, bool)
        for _ in range(20):
            resting = over.copy() if mode == "episodic" else np.zeros(3, bool)
            *_, terminations, truncations, infos = env.step([0, 0, 0])
            over = terminations | truncations
            ended = infos.get("_episode", np.zeros(3, bool))
            for i, (score, length, marked) in enumerate(labels_of(env, monkeypatch)):
                assert marked == (ended[i] or resting[i])
                assert score == 2.5 * (i + 1) * length
                if ended[i]:
                    ends += 1
                    assert (score, length) == (infos["episode"]["r"][i], infos["episode"]["l"][i])
                    assert length == lengths[i]
            if mode == "disabled" and over.any():
                env.reset(options={"reset_mask": over})
                assert [
                    label
                    for label, reset in zip(labels_of(env, monkeypatch), over, strict=True)
                    if reset
                ] == [(0, 0, False)] * int(over.sum())
    assert ends >= 3


class Fragile(Card):
    """A card of three steps; the first one made raises in its second step, the next one in its
    second reset.
    """

    def __init__(self, number):
        super().__init__()
        self.number, self.resets = number, 0

    def reset(self, *, seed=None, options=None):
        self.resets += 1
        if (self.number, self.resets) == (1, 2):
            raise RuntimeError("boom")
        return super().reset(seed=seed, options=options)

    def step(self, action):
        if (self.number, self.steps) == (0, 1):
            raise RuntimeError("boom")
        return super().step(action)


@pytest.mark.parametrize("mode", MODES)
def test_a_game_that_is_lost_has_ended_and_where_none_runs_none_has(mode, monkeypatch):
    numbers = itertools.count()
    policy = {"on_failure": "restart", "restart_backoff": 0.0}
    with Tile(
        DummyBackend([lambda: Fragile(next(numbers))], autoreset=mode, **policy), labels=True
    ) as env:
        env.reset()
        told = []
        while len(told) < 7:
            *_, terminations, truncations, _ = env.step([0])
            told += labels_of(env, monkeypatch)
            if mode in ("disabled", "episodic") and (terminations | truncations).any():
                env.reset()
                told += labels_of(env, monkeypatch)
    opening = [] if mode == "same_step" else [(0, 0, False)]
    game = [(2.5, 1, False), (5, 2, False), (7.5, 3, True)]
    assert told[:7] == [(2.5, 1, False), (2.5, 1, True), *opening, *game, *opening, *game][:7]


def test_a_reset_that_breaks_an_episode_off_begins_anew_for_its_row_alone(monkeypatch):
    with Tile(DummyBackend(make(2, length=9)), labels=True) as env:
        env.reset()
        env.step([0, 0])
        env.reset(options={"reset_mask": np.array([True, False])})
        env.step([0, 0])
        assert labels_of(env, monkeypatch) == [(2.5, 1, False), (10.0, 2, False)]


def test_a_lost_life_is_no_end_of_a_game(monkeypatch):
    factory = SubEnvFactory(lambda: Card(length=5), (Lives,))
    with Tile(DummyBackend([factory]), labels=True) as env:
        env.reset()
        told = []
        for _ in range(4):
            env.step([0])
            told += labels_of(env, monkeypatch)
    assert [marked for *_, marked in told] == [False, False, False, True]
    assert told[-1][0] == 12.5


def test_state_goes_on(monkeypatch):
    with Tile(DummyBackend(make(2)), labels=True) as env:
        env.reset()
        env.step([0, 0])
        state = env.wrapper_state()
    with Tile(DummyBackend(make(2)), labels=True) as env:
        env.reset()
        env.load_wrapper_state(state)
        state["scores"][:] = 99
        assert labels_of(env, monkeypatch) == [(2.5, 1, False), (5.0, 1, False)]


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(
        PlanError,
        match='"tile": expected an environment built with render_mode="rgb_array", got None',
    ):
        vecwrap.build("CartPole-v1", n=1, wrappers=["tile"])
    with (
        DummyBackend(make()) as env,
        pytest.raises(PlanError, match="tile: size: expected a width and a height"),
    ):
        Tile(env, size=(100, 3))


def test_a_pipeline_with_tile_does_not_change_its_hash_with_labels():
    hashes = []
    for wrapper in ("tile", "tile:true"):
        with vecwrap.build(make(1), n=1, wrappers=[wrapper], backend="dummy") as env:
            hashes.append(env.pipeline.hash)
    assert hashes[0] == hashes[1]
