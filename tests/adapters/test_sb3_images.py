"""Warnings of misread images, against what Stable-Baselines3 really makes of each."""

import warnings

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecTransposeImage

import vecwrap
from tests.streams import ToyEnv

STACK, ALONG, ALONG_FIRST = (
    "framestack:{}",
    "framestack:{},axis=channel",
    "framestack:{},axis=channel,channels=first",
)

# The shape of one image, the wrappers, and the shape that a network must be given: channels first.
KNOWN = {
    "grey frames, stacked": ((40, 44), [STACK.format(4)], (4, 40, 44)),
    "one grey frame": ((40, 44), [STACK.format(1)], (1, 40, 44)),
    "grey frames along a last axis": ((40, 44), [ALONG.format(4)], (4, 40, 44)),
    "colour": ((40, 44, 3), [], (3, 40, 44)),
    "colour, channels first": ((3, 40, 44), [], (3, 40, 44)),
    "colour, stacked along the channels": ((40, 44, 3), [ALONG.format(4)], (12, 40, 44)),
    "colour first, stacked along the channels": ((3, 40, 44), [ALONG_FIRST.format(4)], (12, 40, 44)),
    "colour, transposed": ((40, 44, 3), ["transpose"], (3, 40, 44)),
    "more frames than lines": ((36, 44), [STACK.format(40)], (40, 36, 44)),
    "more frames than lines and columns": ((36, 38), [STACK.format(40)], (40, 36, 38)),
    "more channels than lines": ((40, 44, 3), [ALONG.format(14)], (42, 40, 44)),
    "few lines": ((5, 44, 3), [ALONG.format(2)], (6, 5, 44)),
    "few columns": ((44, 5, 3), [ALONG.format(2)], (6, 44, 5)),
}


def toy(shape, dtype=np.uint8, high=255):
    return lambda: ToyEnv(observation_space=spaces.Box(0, high, shape, dtype))


def adapted(shape, wrappers, **space):
    return vecwrap.to_sb3(vecwrap.build(toy(shape, **space), 1, wrappers, backend="dummy"))


@pytest.mark.parametrize("case", KNOWN)
@pytest.mark.filterwarnings("ignore:Treating image space as channels-last")
def test_it_warns_wherever_sb3_would_look_for_the_channels_elsewhere(case):
    shape, wrappers, wanted = KNOWN[case]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        venv = adapted(shape, wrappers)
    told = [str(each.message) for each in caught if "goes by the shortest axis" in str(each.message)]
    read = PPO._wrap_env(venv).observation_space.shape
    assert bool(told) == (read != wanted or case == "few columns"), (told, read)
    if not told:
        return
    assert "skip=True" in told[0]
    if venv.observation_space.shape != wanted:  # channels last: what it says to do
        venv = adapted_silently(shape, [*wrappers, "transpose"])
    assert PPO._wrap_env(VecTransposeImage(venv, skip=True)).observation_space.shape == wanted
    venv.close()


def adapted_silently(shape, wrappers):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return adapted(shape, wrappers)


def test_the_known_cases_are_of_both_kinds():
    wrong = 0
    for shape, wrappers, wanted in KNOWN.values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wrong += PPO._wrap_env(adapted(shape, wrappers)).observation_space.shape != wanted
    assert 3 <= wrong <= len(KNOWN) - 5


@pytest.mark.parametrize("shape", [(5, 7, 8), (8, 7, 8), (3, 40, 3), (40, 3, 40)])
def test_where_the_shape_does_not_say_it_warns(shape):
    with pytest.warns(UserWarning, match="may be otherwise, but Stable-Baselines3, which goes by the shortest axis"):
        adapted(shape, [])


@pytest.mark.parametrize("space", [{"dtype": np.float32}, {"high": 200}, {"dtype": np.int16}])
def test_what_holds_no_pixels_is_left_alone(space):
    for shape in ((5, 7, 8), (40, 44), (2, 3, 4, 5)):
        adapted(shape, [], **space).close()


def test_members_of_a_dict_are_told_apart():
    space = spaces.Dict(eye=spaces.Box(0, 255, (5, 44, 3), np.uint8), ear=spaces.Box(0, 255, (9,), np.uint8))
    env = vecwrap.build(
        lambda: ToyEnv(observation_space=space),
        1,
        [{"framestack": {"k": 2, "axis": "channel", "keys": ["eye"]}}],
        backend="dummy",
    )
    with pytest.warns(UserWarning, match=r"observations\['eye'\] of shape \(5, 44, 6\) may be otherwise") as caught:
        vecwrap.to_sb3(env).close()
    assert len(caught) == 1
