"""What to build: ids and callables become factories that can be sent anywhere."""

import copy
import functools
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import registry
from gymnasium.wrappers import FrameStackObservation

import vecwrap
from vecwrap.errors import PlanError, SpecError, install_command
from vecwrap.pipeline import environments
from vecwrap.pipeline.environments import find_environment
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.source_map import SourceLocation, SourceMap, SourceRef
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.sources.factories import MakeEnvironment, WrapSubEnv
from vecwrap.testing import assert_same


class Counter(gymnasium.Env[Any, Any]):
    """Says nothing and lasts ``length`` steps."""

    observation_space = gymnasium.spaces.Discrete(9)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length: int = 4) -> None:
        self.length = length


class CartPole(Counter):
    """Has a name that Gymnasium's registry has too."""


def made(target: Any, **settings: Any) -> gymnasium.Env:  # type: ignore[type-arg]
    """Make one, as a worker would: from bytes."""
    (factory,) = find_environment(target, **settings).factories
    env: gymnasium.Env[Any, Any] = cloudpickle.loads(cloudpickle.dumps(factory))()
    env.close()
    return env


def message_of(target: Any, **settings: Any) -> str:
    with pytest.raises((SpecError, PlanError)) as error:
        find_environment(target, **settings)
    return str(error.value)


@pytest.fixture
def registered() -> Any:
    """Registers ids for one test."""
    added: list[str] = []

    def register(id: str, entry_point: Any, **kwargs: Any) -> str:
        gymnasium.register(id, entry_point, **kwargs)
        added.append(id)
        return id

    yield register
    for name in added:
        registry.pop(name, None)


@pytest.fixture
def without_ale(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if ale-py were not installed."""
    for name in [
        name for name, spec in registry.items() if str(spec.entry_point).startswith("ale_py")
    ]:
        monkeypatch.delitem(registry, name)
    monkeypatch.setitem(sys.modules, "ale_py", None)


# -- what is found ---------------------------------------------------------------------------------


def test_an_id_travels_as_its_registration(registered: Any) -> None:
    registered("OnlyHere-v3", Counter, max_episode_steps=7, kwargs={"length": 5})
    factory = cloudpickle.dumps(find_environment("OnlyHere-v3").factories[0])
    registry.pop("OnlyHere-v3")
    env = cloudpickle.loads(factory)()
    assert env.unwrapped.length == 5
    assert env.spec.id == "OnlyHere-v3"
    assert env.spec.max_episode_steps == 7


def test_an_entry_point_in_main_is_found_in_the_parent(
    registered: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "InTheScript", Counter, raising=False)
    registered("InTheScript-v0", "__main__:InTheScript")
    factory = find_environment("InTheScript-v0").factories[0]
    assert isinstance(factory, MakeEnvironment)
    assert factory.env_spec.entry_point is Counter


def test_an_id_without_a_version_is_the_latest() -> None:
    assert find_environment("CartPole").target == "CartPole-v1"


def test_a_class_with_the_name_of_an_id_is_the_class() -> None:
    found = PipelineSpec(CartPole).env
    assert found == f"{__name__}:CartPole"
    assert find_environment(found).factories == (CartPole,)


def test_a_module_before_the_id_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "vecwrap_test_ids.py").write_text(
        "import gymnasium\nfrom tests.pipeline.test_environments import Counter\n"
        "gymnasium.register('FromModule-v0', Counter)\ndef make(length=4): return Counter(length)\n"
    )
    try:
        found = find_environment("vecwrap_test_ids:FromModule-v0")
        assert found.target == found.name == "vecwrap_test_ids:FromModule-v0"
        assert isinstance(made("vecwrap_test_ids:FromModule-v0").unwrapped, Counter)
        # What the module does not register but holds is a callable.
        assert made("vecwrap_test_ids:make", env_kwargs={"length": 9}).length == 9  # type: ignore[attr-defined]
        assert "unknown environment" in message_of("vecwrap_test_ids:FromModul-v0")
        assert message_of("vecwrap_test_ids:FromModul-v0").endswith(
            'Did you mean "vecwrap_test_ids:FromModule-v0"?'
        )
        assert message_of("vecwrap_test_ids:maker").endswith(
            'Did you mean "vecwrap_test_ids:make"?'
        )
    finally:
        registry.pop("FromModule-v0", None)


def test_atari_ids_need_no_import_of_ale_py(monkeypatch: pytest.MonkeyPatch) -> None:
    ale_py = pytest.importorskip("ale_py")
    monkeypatch.delitem(sys.modules, "ale_py")
    for name in [
        name for name, spec in registry.items() if str(spec.entry_point).startswith("ale_py")
    ]:
        monkeypatch.delitem(registry, name)

    def import_module(name: str) -> Any:
        assert name == "ale_py"
        monkeypatch.setitem(sys.modules, "ale_py", ale_py)
        gymnasium.register("PongNoFrameskip-v4", "ale_py.env:AtariEnv")
        return ale_py

    monkeypatch.setattr(environments.importlib, "import_module", import_module)
    try:
        assert find_environment("PongNoFrameskip-v4").env_spec is not None
    finally:
        registry.pop("PongNoFrameskip-v4", None)


def test_arguments_and_render_mode_reach_gymnasium() -> None:
    kwargs = {"sutton_barto_reward": True, "max_episode_steps": 9}
    env = made("CartPole-v1", env_kwargs=kwargs, render_mode="rgb_array")
    assert env.render_mode == "rgb_array"
    assert env.spec is not None
    assert env.spec.max_episode_steps == 9
    assert env.spec.kwargs["sutton_barto_reward"] is True
    assert kwargs == {"sutton_barto_reward": True, "max_episode_steps": 9}


@pytest.mark.parametrize("backend", ["dummy", "shmem"])
@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("render_mode: rgb_aray", "render_mode"),
        ("env_kwargs: {render_mode: rgb_aray}", "env_kwargs.render_mode"),
    ],
)
def test_a_render_mode_that_an_id_does_not_have_is_refused_when_it_is_made(
    line: str, where: str, backend: str
) -> None:
    spec = PipelineSpec.from_yaml(
        f"env: CartPole-v1\n{line}\nn: 2\nbackend: {backend}\n", "pong.yaml"
    )
    said = (
        'expected one that CartPole-v1 has (human, rgb_array), got "rgb_aray". Did you mean '
        '"rgb_array"?'
    )
    (finding,) = vecwrap.check(spec)
    assert (finding.file, finding.line) == ("pong.yaml", 2)
    assert finding.reason == f"{where}: {said}"
    with pytest.raises(PlanError) as error:
        vecwrap.build(spec)
    assert str(error.value) == f"pong.yaml:2: {where}: {said}"


class Draws(Counter):
    """Says how it can be shown."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.render_mode = render_mode


def test_a_render_mode_that_a_class_does_not_have_is_refused_at_once() -> None:
    message = 'render_mode: expected one that Draws has (rgb_array), got "ansi".'
    assert message_of(Draws, render_mode="ansi") == message
    assert message_of((Draws, Draws), render_mode="ansi") == message
    assert made(Draws, render_mode="rgb_array").render_mode == "rgb_array"
    assert made(Draws, render_mode="human").render_mode == "rgb_array", (
        "one window shows the frames of all"
    )


class SaysNothing(Draws):
    """Renders, and does not say how."""

    metadata = gymnasium.Env.metadata


@pytest.mark.filterwarnings("ignore:.*not in the possible render_modes")
def test_render_modes_that_gymnasium_makes_of_others_or_that_nobody_named_are_none_of_our_business(
    registered: Any,
) -> None:
    assert made("CartPole-v1", render_mode="rgb_array_list").render_mode == "rgb_array_list"
    registered("Draws-v0", Draws)
    with pytest.warns(UserWarning, match="HumanRendering"):
        assert made("Draws-v0", env_kwargs={"render_mode": "human"}).render_mode == "human"
    of_an_id = registered("SaysNothing-v0", SaysNothing)
    for target in (SaysNothing, of_an_id, lambda render_mode: SaysNothing(render_mode)):
        assert made(target, render_mode="ansi").render_mode == "ansi"


def test_one_environment_does_not_get_at_the_arguments_of_the_next(registered: Any) -> None:
    def greedy(names: list[str]) -> Any:
        names.append("another")
        return Counter(len(names))

    registered("Greedy-v0", greedy)
    factory = find_environment("Greedy-v0", {"names": ["one"]}).factories[0]
    assert [factory().unwrapped.length for _ in range(2)] == [2, 2]  # type: ignore[attr-defined]


def test_callables_get_the_arguments_that_they_take() -> None:
    assert made(Counter, env_kwargs={"length": 9}).length == 9  # type: ignore[attr-defined]
    assert find_environment(Counter).factories == (Counter,)
    found = find_environment((Counter, functools.partial(Counter, 5)))
    assert len(found.parts) == 2
    assert [factory().length for factory in found.factories] == [4, 5]  # type: ignore[attr-defined]
    assert found.name == "Counter, Counter(5)"


def test_a_wrapping_keeps_its_arguments() -> None:
    wrap = WrapSubEnv(gymnasium.wrappers.TimeLimit, kwargs={"max_episode_steps": 3})
    env = cloudpickle.loads(cloudpickle.dumps(wrap))(Counter())
    assert isinstance(env, gymnasium.wrappers.TimeLimit)
    assert repr(wrap) == "gymnasium.wrappers.common:TimeLimit"


# -- what is not -----------------------------------------------------------------------------------


def test_an_unknown_id_suggests_a_near_one() -> None:
    assert (
        message_of("CartPol-v1")
        == 'env "CartPol-v1": unknown environment. Did you mean "CartPole-v1"?'
    )
    assert message_of("vecwrap.testing:ToyEnf").endswith('Did you mean "vecwrap.testing:ToyEnv"?')
    # What a module does not hold is not told by another word that begins with the module's name.
    assert message_of("json:nope") == (
        'env "json:nope": unknown environment: json holds no nope, and no id is registered as nope.'
    )
    assert message_of("math:pi") == (
        'env "math:pi": expected a callable that makes an environment, or an id, got '
        "3.141592653589793, which math "
        "holds under this name."
    )
    assert message_of("CartPole-v9") == (
        'env "CartPole-v9": there is no such version; there is CartPole-v0, CartPole-v1.'
    )
    assert message_of("Qwxyz!") == (
        'env "Qwxyz!": unknown environment. An id of a package that is not imported yet is '
        'written "module:Id-v0"; so is a callable, "module:attr".'
    )


def test_a_place_in_a_file_is_named() -> None:
    pipeline = SourceRef(SourceMap(parts={"env": SourceMap(SourceLocation("p.yaml", 3))}))
    assert message_of("CartPol-v1", pipeline=pipeline).startswith(
        'p.yaml:3: env "CartPol-v1": unknown'
    )


@pytest.mark.usefixtures("without_ale")
@pytest.mark.parametrize(
    "id", ["PongNoFrameskip-v4", "ALE/Pong-v5", "Krull-ram-v4", "HeroDeterministic-v0"]
)
def test_an_atari_id_without_ale_py_names_the_extra(id: str) -> None:
    assert message_of(id) == f"{id} needs ale-py: {install_command('atari')}"


@pytest.mark.parametrize(
    ("id", "package", "command"),
    [
        ("LunarLander-v3", "Box2D", 'pip install swig "gymnasium[box2d]"'),
        ("Ant-v5", "mujoco", install_command("mujoco")),
    ],
)
def test_a_missing_package_names_the_extra(
    id: str, package: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert message_of(id) == f"{id} needs {package}: {command}"


@pytest.mark.parametrize(
    ("id", "extra"), [("CartPole-v1", "classic-control"), ("FrozenLake-v1", "toy-text")]
)
def test_what_draws_is_missed_before_the_first_step(
    id: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it shall draw: for a video, in a window, and for `render`; what is only read as text
    does without.
    """
    monkeypatch.setitem(sys.modules, "pygame", None)
    remedy = ", or leave render_mode out"
    for line, where, rest in (
        ("rgb_array | video", 'wrappers[0] "video"', ""),
        ("human", "render_mode", remedy),
        ("rgb_array | monitor", "render_mode", remedy),
    ):
        with pytest.raises(SpecError) as refused:
            plan(PipelineSpec.parse(f"{id} n=1 render_mode={line}"))
        assert (
            str(refused.value)
            == f'{where}: {id} needs pygame to draw: pip install "gymnasium[{extra}]"{rest}'
        )
    plan(PipelineSpec.parse(f"{id} n=1 | monitor"))
    plan(PipelineSpec.parse("FrozenLake-v1 n=1 render_mode=ansi"))


def test_a_module_that_is_not_there() -> None:
    assert message_of("no_such_module_x:Id-v0") == (
        "env: there is no module no_such_module_x. Is its folder on sys.path? "
        "PYTHONPATH=FOLDER puts it there."
    )


def test_a_callable_that_does_not_take_the_arguments() -> None:
    def make(length: int = 3) -> Any:
        return Counter(length)

    assert message_of(make, env_kwargs={"lenght": 3}) == (
        "env: make does not take lenght, so env_kwargs.lenght has nowhere to go. Did you mean "
        '"length"?'
    )
    assert message_of(make, render_mode="rgb_array") == (
        "env: make does not take render_mode, so render_mode has nowhere to go."
    )
    assert message_of((make, lambda size: None)) == (
        "env[1]: lambda needs the argument size; expected a callable that makes an environment "
        "without arguments. Give it in env_kwargs, or bind it: functools.partial(lambda, "
        "size=...)."
    )


# -- Gymnasium's EnvSpec ---------------------------------------------------------------------------

FROM_MAKE = gymnasium.make("CartPole-v1", max_episode_steps=7, sutton_barto_reward=True).spec
WRAPPED = FrameStackObservation(gymnasium.make("CartPole-v1"), 3).spec


def stream(env: Any, n: int, **reset: Any) -> list[Any]:
    rows, rng = [env.reset(**reset)[0]], np.random.default_rng(0)
    rows += [env.step(rng.integers(2, size=n))[:4] for _ in range(40)]
    env.close()
    return rows


@pytest.mark.parametrize("backend", ["dummy", "shmem", "subprocess"])
@pytest.mark.parametrize(
    "spec", [gymnasium.spec("CartPole-v1"), FROM_MAKE, WRAPPED], ids=["id", "kwargs", "wrapped"]
)
@pytest.mark.usefixtures("quick_workers")
def test_a_spec_is_what_gymnasium_makes_of_it(spec, backend):
    mode = gymnasium.vector.AutoresetMode.SAME_STEP
    peer = gymnasium.vector.SyncVectorEnv(
        [functools.partial(gymnasium.make, spec)] * 2, autoreset_mode=mode
    )
    env = vecwrap.build(spec, n=2, backend=backend)
    assert env.spec.id == "CartPole-v1"
    assert env.pipeline.env_name == "CartPole-v1"
    assert "CartPole-v1, n=2" in repr(env)
    assert_same(stream(env, 2, seed=3), stream(peer, 2, seed=3))


def test_a_spec_as_registered_is_its_id_and_another_is_refused_in_files():
    plain = PipelineSpec("CartPole-v1", n=2)
    assert PipelineSpec(gymnasium.spec("CartPole-v1"), n=2) == plain
    assert PipelineSpec(gymnasium.make("CartPole-v1").spec, n=2).to_yaml() == plain.to_yaml()
    other = PipelineSpec(FROM_MAKE, n=2)
    assert other == PipelineSpec(copy.deepcopy(FROM_MAKE), n=2) != plain
    assert (
        plan(other).pipeline.hash == plan(PipelineSpec(copy.deepcopy(FROM_MAKE), n=2)).pipeline.hash
    )
    assert plan(other).pipeline.hash != plan(plain).pipeline.hash
    with pytest.raises(
        SpecError,
        match="env: an EnvSpec that differs from what is registered as CartPole-v1 lives in",
    ):
        other.to_yaml()
    assert str(plan(other)).startswith("CartPole-v1, n=2")


def test_arguments_come_on_top_of_those_of_a_spec():
    env = made(FROM_MAKE, env_kwargs={"max_episode_steps": 3, "sutton_barto_reward": False})
    assert env.spec.max_episode_steps == 3
    assert not env.unwrapped._sutton_barto_reward
    with pytest.raises(PlanError, match="gravity"):
        vecwrap.build(FROM_MAKE, n=1, env_kwargs={"gravity": 1})


def test_a_spec_without_an_entry_point_is_refused():
    with pytest.raises(
        SpecError, match='env "Bare-v0": is registered without an entry point for one environment'
    ):
        vecwrap.build(gymnasium.envs.registration.EnvSpec("Bare-v0"), n=1)


@pytest.mark.parametrize(
    ("target", "settings", "shipped", "takes"),
    [
        ("CartPole-v1", {}, True, "sutton_barto_reward"),
        (
            "gymnasium.envs.classic_control:CartPoleEnv",
            {"env_kwargs": {"render_mode": None}},
            True,
            "render_mode",
        ),
        ("gymnasium.envs.registration:make", {"env_kwargs": {"id": "CartPole-v1"}}, False, "id"),
        (Counter, {}, False, "length"),
        ("pettingzoo:classic/rps-v2", {}, False, "max_cycles"),
        ("pettingzoo.classic.connect_four.connect_four:env", {}, False, "screen_scaling"),
    ],
)
def test_what_makes_it_is_known_however_it_is_written(
    target: Any, settings: dict[str, Any], shipped: bool, takes: str
) -> None:
    if "pettingzoo" in str(target):
        pytest.importorskip("pettingzoo.classic.connect_four.connect_four")
    found = find_environment(target, **settings)
    assert found.is_shipped is shipped
    assert takes in found.parameters()
