"""The random player: legal moves, each equally often, from the generator that it is given."""

import numpy as np
import pytest
from gymnasium import spaces

import vecwrap
from vecwrap.errors import ArgumentError
from vecwrap.selfplay.opponents import Opponents
from vecwrap.selfplay.pool import OpponentPool
from vecwrap.selfplay.scripted import RandomPolicy

ROWS = 6000


def draw(space, masks=None, rows=ROWS, seed=3):
    return RandomPolicy(space)(
        np.zeros((rows, 2)), action_masks=masks, rng=np.random.default_rng(seed)
    )


@pytest.mark.parametrize("dtype", [np.bool_, np.int8])
def test_each_legal_move_is_equally_often(dtype):
    masks = np.tile(np.array([0, 1, 0, 1, 1], dtype), (ROWS, 1))
    actions = draw(spaces.Discrete(5, start=10), masks)
    counts = np.bincount(actions - 10, minlength=5)
    assert counts[[0, 2]].tolist() == [0, 0]
    assert (
        (counts[[1, 3, 4]] - ROWS / 3) ** 2 / (ROWS / 3)
    ).sum() < 13.82  # 2 degrees of freedom, 0.001
    assert actions.dtype == np.int64


def test_without_masks_every_move_is_legal():
    counts = np.bincount(draw(spaces.Discrete(4)), minlength=4)
    assert ((counts - ROWS / 4) ** 2 / (ROWS / 4)).sum() < 16.27


def test_each_row_has_its_own_mask_and_one_without_legal_moves_gets_the_first():
    assert draw(spaces.Discrete(3), np.array([[0, 0, 1], [0, 1, 0], [0, 0, 0]]), 3).tolist() == [
        2,
        1,
        0,
    ]


def test_several_discrete_actions_have_their_masks_side_by_side():
    space = spaces.MultiDiscrete([2, 3], start=[5, 0])
    masks = np.tile([0, 1, 1, 0, 1], (ROWS, 1))
    actions = draw(space, masks)
    assert set(map(tuple, actions.tolist())) == {(6, 0), (6, 2)}
    assert all(space.contains(row) for row in draw(space)[:50])


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (3,), np.float32),
        spaces.MultiBinary(4),
        spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(0, 1, (2,))}),
        spaces.MultiDiscrete([[2, 3], [4, 5]]),
    ],
)
def test_other_spaces_are_sampled_from_the_generator(space):
    one, other, third = draw(space, rows=5), draw(space, rows=5), draw(space, rows=5, seed=4)
    assert repr(one) == repr(other) != repr(third)


def test_rows_are_counted_in_nested_observations():
    observations = {"x": (np.zeros((7, 2)),), "action_mask": np.ones((7, 3))}
    assert RandomPolicy(spaces.Discrete(3))(observations, rng=np.random.default_rng(1)).shape == (
        7,
    )


def test_masks_that_do_not_fit_are_refused():
    with pytest.raises(
        ArgumentError, match=r"expected action masks of shape \(2, 3\), got \(2, 4\)"
    ):
        draw(spaces.Discrete(3), np.ones((2, 4)), 2)
    with pytest.raises(ArgumentError, match="expected no action masks for Box"):
        draw(spaces.Box(0, 1, (2,)), np.ones((2, 4)), 2)


def test_a_pools_folder_may_name_the_first_legal_move_by_its_path_in_0_1(tmp_path):
    path = "vecwrap.wrappers.selfplay.scripted:first_legal"
    OpponentPool(tmp_path / "pool", scripted=[path]).save()
    wrappers = ["extract_obs:observation"]
    with vecwrap.build(
        "pettingzoo:classic/tictactoe-v3", n=1, backend="dummy", wrappers=wrappers
    ) as games:
        env = Opponents(games, tmp_path / "pool", seat="player_2")
        observations, infos = env.reset(seed=1)
    assert infos["opponent"].tolist() == [path]
    assert observations[0, 0, 0].tolist() == [0, 1], "it has taken the first field"
