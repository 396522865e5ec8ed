"""Wrappers near the largest float: right values, or an error; never an overflow unseen."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import vecwrap
from vecwrap.errors import NotFiniteError


class Shows(gymnasium.Env):
    """Observations are the given values in turn; actions are remembered."""

    action_space = spaces.Discrete(2)

    def __init__(self, space, values, actions=None, reward=0.0):
        self.observation_space, self.values, self.reward, self.given = space, values, reward, []
        self.action_space = actions or self.action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = -1
        return self.now(), {}

    def step(self, action):
        self.given.append(np.array(action))
        return self.now(), self.reward, False, False, {}

    def now(self):
        self.at += 1
        return self.values[self.at % len(self.values)]


def played(wrappers, space, values, **options):
    with vecwrap.build(
        lambda: Shows(space, values, **options), n=1, wrappers=wrappers, backend="dummy"
    ) as env:
        seen = [env.reset(seed=1)[0]]
        return [*seen, *(env.step([0])[0] for _ in values[1:])]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_scaled_observations(dtype):
    most = np.finfo(dtype).max
    parts = np.array([-1, -0.5, 0, 0.5, 1], dtype)
    box, values = (
        spaces.Box(-most, most, (1,), dtype),
        [np.array([most * part], dtype) for part in parts],
    )
    seen = np.ravel(played(["scale_obs"], box, values))
    np.testing.assert_allclose(seen, [0, 0.25, 0.5, 0.75, 1], rtol=np.finfo(dtype).eps)
    assert seen[[0, -1]].tolist() == [0, 1]
    seen = np.ravel(
        played([{"scale_obs": {"low": -float(most), "high": float(most)}}], box, values)
    )
    np.testing.assert_allclose(seen / most, parts, atol=np.finfo(dtype).eps)
    assert seen[[0, -1]].tolist() == [-most, most]


def test_members_of_a_dict_are_scaled_each_by_its_bounds():
    box = spaces.Dict(
        {
            "big": spaces.Box(-1e308, 1e308, (1,), np.float64),
            "small": spaces.Box(-1, 1, (1,), np.float32),
        }
    )
    values = [
        {"big": np.array([x * 1e308]), "small": np.array([x], np.float32)} for x in (-1.0, 0.0, 1.0)
    ]
    seen = played(["scale_obs"], box, values)
    assert [(one["big"].item(), one["small"].item()) for one in seen] == [
        (0, 0),
        (0.5, 0.5),
        (1, 1),
    ]


def test_bounds_of_actions_of_which_some_are_infinite_are_refused():
    box = spaces.Box(np.array([-1, -np.inf]), np.array([1, np.inf]), dtype=np.float64)
    with pytest.raises(vecwrap.PlanError, match="bounds"):
        played(["rescale_action"], box, [np.zeros(2)], actions=box)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("wrappers", "actions", "expected"),
    [
        (["rescale_action"], (-1, 0, 1), (-1, 0, 1)),
        (["clip_action"], (-np.inf, 0, np.inf), (-1, 0, 1)),
        (["rescale_action", "clip_action"], (-np.inf, 0, np.inf), (-1, 0, 1)),
    ],
)
def test_actions_reach_the_bounds(dtype, wrappers, actions, expected):
    most, made = np.finfo(dtype).max, []
    box = spaces.Box(-most, most, (1,), dtype)

    def make():
        made.append(Shows(spaces.Box(-1, 1, (1,)), [np.zeros(1, np.float32)], box))
        return made[-1]

    with vecwrap.build(make, n=1, wrappers=wrappers, backend="dummy") as env:
        env.reset(seed=1)
        for action in actions:
            env.step(np.full((1, 1), action, dtype))
    assert np.ravel(made[0].given).tolist() == [float(most) * x for x in expected]


@pytest.mark.parametrize(
    "wrapper", ["framestack:2", "flatten", "dtype:float64", "time_aware:limit=100000"]
)
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_values_that_are_only_moved_stay_what_they_are(wrapper, dtype):
    most = np.finfo(dtype).max
    seen = played([wrapper], spaces.Box(-most, most, (1,), dtype), [np.array([most], dtype)] * 2)
    assert np.ravel(seen).max() == most
    assert np.isfinite(seen).all()


@pytest.mark.parametrize("wrapper", ["resize:2,2", "grayscale"])
def test_images_are_averaged_without_overflow(wrapper):
    most = np.finfo(np.float32).max
    seen = played(
        [wrapper], spaces.Box(-most, most, (4, 4, 3), np.float32), [np.full((4, 4, 3), most)] * 2
    )
    np.testing.assert_allclose(seen, most, rtol=1e-6)


def test_a_dtype_that_cannot_hold_the_bounds_is_refused():
    with pytest.raises(vecwrap.PlanError, match="expected bounds that float32 can hold"):
        played(["dtype:float32"], spaces.Box(-1e308, 1e308, (1,), np.float64), [np.zeros(1)])


@pytest.mark.parametrize("wrapper", ["normalize", "normalize_obs"])
@pytest.mark.parametrize("shape", [(), (2,)])
@pytest.mark.parametrize("value", [1e200, -1.7e308])
def test_what_is_too_large_to_be_squared_is_refused_instead_of_spoiling_the_statistics(
    wrapper, shape, value
):
    with pytest.raises(NotFiniteError, match=r"observations.*too large to be squared"):
        played(
            [wrapper], spaces.Box(-np.inf, np.inf, shape, np.float64), [np.full(shape, value)] * 2
        )


@pytest.mark.parametrize("value", [1e30, 1e100])
def test_large_values_are_normalised(value):
    space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    seen = np.ravel(
        played(["normalize_obs"], space, [np.array([x * value]) for x in (1.0, -1.0, 1.0, -1.0)])
    )
    np.testing.assert_allclose(seen[-2:], [1 / np.sqrt(8 / 9) * 2 / 3, -1], rtol=1e-3)


def test_rewards_that_are_too_large_to_be_squared_are_refused():
    box = spaces.Box(-1, 1, (1,))
    with pytest.raises(NotFiniteError, match=r"rewards.*too large to be squared"):
        played(["normalize_reward"], box, [np.zeros(1, np.float32)] * 3, reward=1e200)
