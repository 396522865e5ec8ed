"""Where several names are asked for, a text is one name, or several joined by ``+``: in lines,
mappings, Python.
"""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import vecwrap
from vecwrap.errors import SpecError
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.wrappers.filter_obs import FilterObs
from vecwrap.wrappers.monitor import Monitor

CAMERA = spaces.Box(0, 255, (8, 8, 3), np.uint8)


class Sees(gymnasium.Env):
    observation_space = spaces.Dict({"camera": CAMERA, "side": CAMERA, "a+b": spaces.Discrete(3)})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, True, False, {"lap": 3, "won": True}


class Takes(vecwrap.VecEnvWrapper):
    def __init__(self, env, names: list[str] | None = None):
        super().__init__(env)
        self.names = names


WITH_KEYS = [
    "framestack:2",
    "normalize_obs:integers=true",
    "normalize:integers=true",
    "scale_obs",
    "resize:4",
    "grayscale",
    "dtype:float32",
    "transpose",
    "filter_obs",
]


def spaces_of(wrapper):
    with vecwrap.build(Sees, n=1, wrappers=[wrapper], backend="dummy") as env:
        return env.single_observation_space, env.pipeline.hash


@pytest.mark.parametrize("text", WITH_KEYS)
@pytest.mark.parametrize("names", ["camera", "camera+side"])
def test_every_wrapper_with_keys_takes_one_text_as_it_takes_a_list(text, names):
    name, _, argument = text.partition(":")
    arguments = [part for part in argument.split(",") if part]
    line = f"{name}:{','.join([*arguments, f'keys={names}'])}"
    spec = vecwrap.PipelineSpec.parse(f"CartPole-v1 | {line}").wrappers[0]
    listed = {name: {"*": list(spec.args), **spec.kwargs, "keys": names.split("+")}}
    in_a_mapping = {name: {"*": list(spec.args), **spec.kwargs}}
    assert spaces_of(line) == spaces_of(in_a_mapping) == spaces_of(listed)


def test_info_keys_of_a_monitor_in_every_form():
    for wrapper in ("monitor:info_keys=lap+won", {"monitor": {"info_keys": "lap+won"}}):
        with vecwrap.build(Sees, n=1, wrappers=[wrapper], backend="dummy") as env:
            env.reset(seed=1)
            ended = env.step([0])[-1]["episode"]
            assert (ended["lap"].tolist(), ended["won"].tolist()) == ([3], [True])
    with Monitor(vecwrap.build(Sees, n=1, backend="dummy"), info_keys="lap") as env:
        env.reset(seed=1)
        assert set(env.step([0])[-1]["episode"]) == {"r", "l", "t", "lap", "_lap"}


def test_a_member_whose_name_holds_a_plus():
    with FilterObs(vecwrap.build(Sees, n=1, backend="dummy"), "a+b") as env:
        assert list(env.single_observation_space) == ["a+b"]


def test_a_wrapper_of_ones_own_gets_a_list():
    path = f"{__name__}:Takes"
    with vecwrap.build(Sees, n=1, wrappers=[f"{path}:a+b"], backend="dummy") as env:
        assert env.names == ["a", "b"]
    planned = plan(PipelineSpec("CartPole-v1", n=1, wrappers=[{path: {"names": "a"}}]))
    assert planned.pipeline.wrappers[0].kwargs["names"] == ["a"]


@pytest.mark.parametrize("text", ["", "a++b", "+a"])
def test_an_empty_name_is_refused(text):
    with pytest.raises(SpecError, match="info_keys: expected tuple"):
        vecwrap.build("CartPole-v1", n=1, wrappers=[{"monitor": {"info_keys": text}}])


@pytest.mark.parametrize("arguments", [{}, {"min_action": -1.0, "max_action": 1.0}, None, [1]])
@pytest.mark.parametrize("name", ["gymnasium.wrappers.RescaleAction", "package.Wrapper"])
def test_a_dotted_name_in_a_mapping_has_the_hint_that_it_has_in_a_text(name, arguments):
    path = ":".join(name.rsplit(".", 1))
    with pytest.raises(SpecError) as error:
        vecwrap.build("Pendulum-v1", n=1, wrappers=[{name: arguments}])
    assert (
        str(error.value)
        == f'wrappers[0]: got "{name}". An import path has a colon before its last part: "{path}".'
    )


def test_a_dotted_name_of_a_backend_has_it_too():
    with pytest.raises(
        SpecError, match='An import path has a colon before its last part: "my_package:Backend"'
    ):
        vecwrap.build("Pendulum-v1", n=1, backend={"name": "my_package.Backend"})
