"""What a stranger reads who made a mistake: where, expected, got, remedy; and nothing is left
running.
"""

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import vecwrap
from vecwrap.errors import (
    ArgumentError,
    BackendError,
    PlanError,
    SpecError,
    SubEnvError,
    VecwrapError,
    install_command,
)
from vecwrap.rows.gymnasium_form import range_of
from vecwrap.testing.toys import OpenResources, assert_nothing_left

BACKENDS = ("dummy", "subprocess", "shmem")
pytestmark = pytest.mark.usefixtures("quick_workers")


class Plain(gymnasium.Env[Any, Any]):
    """Does what is expected."""

    observation_space = gymnasium.spaces.Box(0, 9, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 0.0, False, False, {}


class Wide(Plain):
    """Its observations are wider."""

    observation_space = gymnasium.spaces.Box(0, 9, (5,), np.float32)


class NoSpace(Plain):
    """Forgot its space."""

    observation_space = None


@pytest.fixture(autouse=True)
def nothing_left(fork_server: None) -> Iterator[None]:
    """After each of these tests no process, descriptor or shared memory is left."""
    before = OpenResources.now()
    yield
    assert_nothing_left(before, before)


def message_of(kind: type[VecwrapError], *args: Any, **kwargs: Any) -> str:
    with pytest.raises(kind) as error:
        vecwrap.build(*args, **kwargs)
    return str(error.value)


# -- unknown names ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (("CartPol-v1",), {}, 'env "CartPol-v1": unknown environment. Did you mean "CartPole-v1"?'),
        (
            ("CartPole-v1", 2, ["framestak"]),
            {},
            'wrappers[0] "framestak": unknown wrapper. Did you mean "framestack"?',
        ),
        (
            ("CartPole-v1", 2),
            {"backend": "shmen"},
            'backend "shmen": unknown backend. Did you mean "shmem"?',
        ),
        (
            ("CartPole-v1", 2, ["framestack:k=4,pading=first"]),
            {},
            (
                'wrappers[0] "framestack", argument pading: unknown argument. Did you mean '
                '"padding"? It takes (k: int, '
            ),
        ),
        (
            ("CartPole-v1", 2, ["framestack:four"]),
            {},
            'wrappers[0] "framestack", argument k: expected int, got "four".',
        ),
        (
            ("CartPole-v1", 2, ["framestack"]),
            {},
            'wrappers[0] "framestack": the argument k: int is missing. `vecwrap list framestack` '
            "shows all of them.",
        ),
        (({"env": "CartPole-v1", "nn": 2},), {}, 'nn: unknown key. Did you mean "n"?'),
        (
            ({"env": "CartPole-v1", "num_envs": 2},),
            {},
            "num_envs: unknown key. The number of sub-environments is called n.",
        ),
        ((None,), {}, "env: expected an environment id, a callable, or a pipeline, got null."),
        (
            (3,),
            {},
            "env: expected an environment id or a callable that makes one environment, got 3.",
        ),
        (([],), {}, "env: expected at least one environment, got an empty list."),
        (
            ("no_such_module_x:Id-v0",),
            {},
            "env: there is no module no_such_module_x. Is its folder on sys.path",
        ),
    ],
)
def test_an_unknown_name(args: tuple[Any, ...], kwargs: dict[str, Any], message: str) -> None:
    assert message_of(SpecError, *args, **kwargs).startswith(message)


def test_an_environment_that_was_made_is_told_what_to_give_instead() -> None:
    with (
        gymnasium.make("CartPole-v1") as env,
        contextlib.closing(gymnasium.make_vec("CartPole-v1", 2)) as vector,
    ):
        remedy = (
            " Each sub-environment is created separately, so pass a callable that makes one: "
            "lambda: gymnasium.make(...)."
        )
        assert message_of(SpecError, env).endswith(remedy)
        assert message_of(SpecError, [env, env]).endswith(remedy)
        assert message_of(SpecError, vector).endswith(
            " vecwrap.wrap puts wrappers around a vector environment."
        )


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        name
        for name, spec in gymnasium.registry.items()
        if str(spec.entry_point).startswith("ale_py")
    ]:
        monkeypatch.delitem(gymnasium.registry, name)
    monkeypatch.setitem(sys.modules, "ale_py", None)
    assert message_of(SpecError, "PongNoFrameskip-v4", 2) == (
        f"PongNoFrameskip-v4 needs ale-py: {install_command('atari')}"
    )


@pytest.mark.parametrize("name", ["n", "seed", "batch_size", "start_index"])
@pytest.mark.parametrize("value", [np.array([3]), np.array([2, 3]), np.array(2.0)])
def test_an_array_is_no_whole_number(name: str, value: Any) -> None:
    arguments = {"n": 2, "backend": "dummy", name: value}
    assert message_of(SpecError, "CartPole-v1", **arguments).startswith(
        f"{name}: expected int, got "
    )


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "env: CartPole-v1\nn: 2\nwrappers:\n  - atari\nn: 3\n",
            'pong.yaml:5: the key "n" stands here for the second time; the first is in line 2.',
        ),
        (
            "env: CartPole-v1\nwrappers:\n  - time_limit: 9\n  - framestak: 4\n",
            'pong.yaml:4: wrappers[1] "framestak": unknown wrapper. Did you mean "framestack"?',
        ),
        (
            "env: CartPole-v1\nwrappers:\n  - framestack:\n      k: four\n",
            'pong.yaml:4: wrappers[0] "framestack", argument k: expected int, got "four".',
        ),
        (
            "env: CartPole-v1\nwrappers: [framestack: 4\n",
            "pong.yaml:3: this is not YAML: while parsing a flow sequence",
        ),
        ("env: CartPole-v1\nn: 0\n", "pong.yaml:2: n: expected at least 1 sub-environment, got 0."),
        (
            "env: CartPole-v1\nn: 2\nbackend:\n  name: shmem\n  workers: 0\n",
            "pong.yaml:5: backend.workers: expected at least 1, got 0.",
        ),
        (
            "n: 2\nenv: CartPol-v1\n",
            'pong.yaml:2: env "CartPol-v1": unknown environment. Did you mean "CartPole-v1"?',
        ),
        (
            "env: CartPole-v1\nn: 2\nautoreset: never\n",
            (
                "pong.yaml:3: autoreset: expected one of same_step, next_step, disabled, "
                "episodic, got 'never'."
            ),
        ),
        (
            "env: CartPole-v1\nwrappers:\n  - framestack: 4\n  - time_limit: 9\n",
            'pong.yaml:4: wrappers[1] "time_limit": it wraps each sub-environment, in the '
            'workers, so it cannot stand outside of "framestack" (wrappers[0])',
        ),
        (
            "env: CartPole-v1\nn: 2\nwrappers:\n  - framestack: 0\n",
            'pong.yaml:4: wrappers[0] "framestack": k: expected',
        ),
    ],
)
def test_a_mistake_in_a_file_names_file_and_line(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pong.yaml").write_text(text)
    with pytest.raises((SpecError, PlanError)) as error:
        vecwrap.load("pong.yaml")
    assert str(error.value).startswith(message)


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"n": 0}, "n: expected at least 1 sub-environment, got 0."),
        ({"n": 2, "workers": 0}, "workers: expected at least 1, got 0."),
        ({"n": 2, "envs_per_worker": 0}, "envs_per_worker: expected at least 1, got 0."),
        ({"n": 2, "batch_size": 0}, "batch_size: expected 1 to n=2, got 0."),
        (
            {"n": 2, "workers": 2, "backend": "dummy"},
            'workers: backend "dummy" has no option workers.',
        ),
        (
            {"n": 2, "start_method": "spoon"},
            "start_method: expected one of fresh, spawn, forkserver, fork, got 'spoon'. "
            'Did you mean "spawn"?',
        ),
    ],
)
def test_a_number_that_does_not_fit(kwargs: dict[str, Any], message: str) -> None:
    assert message_of(PlanError, "CartPole-v1", **kwargs).startswith(message)


@pytest.mark.parametrize("key", ["n", "workers", "seed", "batch_size"])
def test_text_where_a_number_belongs(key: str) -> None:
    assert "expected int" in message_of(SpecError, "CartPole-v1", **{key: "many"})


def test_an_argument_that_the_environment_does_not_take() -> None:
    text = message_of(PlanError, "CartPole-v1", 2, env_kwargs={"suton_barto_reward": True})
    assert text == (
        "env_kwargs.suton_barto_reward: CartPole-v1 takes no such argument. Did you mean "
        '"sutton_barto_reward"?'
    )


# -- factories and environments --------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_factory_that_raises(backend: str) -> None:
    def make() -> Any:
        raise OSError("the simulator is not running")

    text = message_of(SubEnvError, [Plain, make, Plain], backend=backend)
    assert text.startswith(
        "sub-environment 1 (unseeded) raised OSError in make: the simulator is not running"
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_factory_that_gives_something_else(backend: str) -> None:
    text = message_of(SubEnvError, dict, 2, backend=backend)
    assert text.startswith("sub-environment 0 (unseeded) raised TypeError in make: the factory ")
    assert text.endswith("gave dict, expected a gymnasium.Env")


@pytest.mark.parametrize("backend", ["subprocess", "shmem"])
def test_a_factory_that_cannot_be_pickled_names_the_captured_variable(backend: str) -> None:
    connection = threading.Lock()

    def make() -> Any:
        return connection and Plain()

    text = message_of(PlanError, make, 2, backend=backend)
    assert text.startswith(
        'env: make cannot be sent to a worker, because the captured variable "connection" is a '
        "lock, which cannot be "
    )
    assert text.endswith('Make it inside the factory, or use backend="dummy".')
    vecwrap.build(make, 2, backend="dummy").close()


def test_a_wrapper_that_cannot_be_pickled_names_the_captured_variable() -> None:
    connection = threading.Lock()
    text = message_of(PlanError, Plain, 2, [lambda env: connection and env])
    assert text.startswith('wrappers[0] "lambda": ')
    assert 'the captured variable "connection" is a lock' in text


class Away(gymnasium.Env[Any, Any]):
    observation_space = action_space = gymnasium.spaces.Discrete(2)

    @property
    def spec(self) -> Any:  # type: ignore[override]
        raise ConnectionError("the server is away")


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_environment_that_cannot_be_described(backend: str) -> None:
    with pytest.raises(
        SubEnvError, match="sub-environment 0 .* raised ConnectionError in make: the server is away"
    ):
        vecwrap.build(Away, n=2, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_environment_without_a_space(backend: str) -> None:
    text = message_of(BackendError, NoSpace, 2, backend=backend)
    assert text == (
        "sub-environment 0 (NoSpace): expected observation_space to be a gymnasium.spaces.Space, "
        "got None; set self.observation_space in the environment's __init__"
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_unequal_spaces_show_the_first_two_that_differ(backend: str) -> None:
    text = message_of(BackendError, [Plain, Plain, Wide, Wide], backend=backend)
    assert text.startswith(
        "all sub-environments need the same observation_space: sub-environment 0 has Box(0.0, "
        "9.0, (2,)"
    )
    assert "sub-environment 2 has Box(0.0, 9.0, (5,)" in text


# -- resets and actions ----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_reset_mask_of_the_wrong_form(backend: str) -> None:
    expected = 'options["reset_mask"]: expected a NumPy array of shape (2,) and dtype bool, got '
    with vecwrap.build(Plain, 2, backend=backend) as env:
        env.reset(seed=1)
        for mask, got in (
            (np.array([True] * 3), "shape (3,)"),
            (np.array([1, 0]), "dtype int64; convert it with np.array(mask, dtype=bool)"),
            ([True, False], "list; convert it with np.array(mask, dtype=bool)"),
        ):
            with pytest.raises(VecwrapError) as error:
                env.reset(options={"reset_mask": mask})
            assert str(error.value) == expected + got
        env.reset(options={"reset_mask": np.array([True, False])})


@pytest.mark.parametrize("backend", BACKENDS)
def test_actions_of_the_wrong_form(backend: str) -> None:
    with vecwrap.build(Plain, 2, backend=backend) as env:
        env.reset(seed=1)
        with pytest.raises(VecwrapError) as error:
            env.step([0, 1, 2])
        assert str(error.value).startswith(
            "actions: expected shape (2,), one action of Discrete(3) for each of 2"
        )
        assert "(3,)" in str(error.value)
        with pytest.raises(
            VecwrapError, match=r"actions: expected dtype int64 for Discrete\(3\), got float64"
        ):
            env.step([0.5, 1.0])
        env.step([0, 1])


class Doubled(vecwrap.VecEnvWrapper):
    """Gives two actions for each."""

    def on_actions(self, actions: Any, env_ids: Any) -> Any:
        return np.repeat(actions, 2)


@pytest.mark.parametrize("name", ["reset", "step", "step_wait", "recv"])
def test_a_wrapper_that_overrides_what_the_outermost_alone_is_asked_is_refused(name: str) -> None:
    """As one written for other libraries: it would do nothing as soon as another wrapper stands
    around it.
    """
    message = (
        rf"^Mine\.{name}: expected a wrapper to override on_actions and on_step, which see .* only$"
    )
    with pytest.raises(TypeError, match=message):
        type("Mine", (vecwrap.VecEnvWrapper,), {name: lambda self, *arguments, **keywords: None})


@pytest.mark.parametrize("name", ["actions", "observations", "rewards"])
def test_a_wrapper_with_the_hooks_of_gymnasiums_is_refused(name: str) -> None:
    message = rf"^Mine\.{name}, as Gymnasium calls it: expected on_\w+\("
    with pytest.raises(TypeError, match=message):
        type("Mine", (vecwrap.VecEnvWrapper,), {name: lambda self, values: values})


class Floats(vecwrap.VecEnvWrapper):
    """Takes a float, and hands it down as it is."""

    def __init__(self, env: vecwrap.VecEnv) -> None:
        super().__init__(env, single_action_space=gymnasium.spaces.Box(0, 2, (), np.float64))


class ReplacesAMember(vecwrap.VecEnvWrapper):
    """Writes into the dict that it was given."""

    def on_actions(self, actions: Any, env_ids: Any) -> Any:
        actions["b"] = np.array([1.7, 2.9])
        return actions


class TwoActions(Plain):
    """Takes two actions at once."""

    action_space = gymnasium.spaces.Dict(
        {"a": gymnasium.spaces.Discrete(3), "b": gymnasium.spaces.Discrete(3)}
    )


def test_a_member_of_wrong_form_that_a_wrapper_puts_into_the_actions() -> None:
    with vecwrap.build(TwoActions, 2, wrappers=[ReplacesAMember], backend="dummy") as env:
        env.reset(seed=1)
        with pytest.raises(
            VecwrapError, match=r"ReplacesAMember.on_actions\['b'\]: expected dtype int64"
        ):
            env.step({"a": [0, 1], "b": [1, 2]})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("wrapper", "action", "message"),
    [
        (Doubled, 1, r"Doubled.on_actions: expected shape \(2,\), .* got shape \(4,\)"),
        (Floats, 1.5, r"Floats.on_actions: expected dtype int64 for Discrete\(3\), got float64"),
    ],
)
def test_actions_that_a_wrapper_brings_into_a_wrong_form(
    backend: str, wrapper: Any, action: Any, message: str
) -> None:
    with vecwrap.build(Plain, 2, wrappers=[wrapper], backend=backend) as env:
        env.reset(seed=1)
        with pytest.raises(VecwrapError, match=message):
            env.step([action, action])
        env.reset(seed=1)  # nothing is out


@pytest.mark.parametrize("backend", BACKENDS)
def test_actions_outside_the_space_under_debug(backend: str) -> None:
    with vecwrap.build(Plain, 2, backend=backend, debug=True) as env:
        env.reset(seed=1)
        with pytest.raises(VecwrapError, match=r"actions.*Discrete\(3\).*7"):
            env.step([0, 7])
        env.step([0, 1])


# -- OpenCV ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_opencv_that_cannot_load_its_libraries(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ale_py")
    (tmp_path / "cv2.py").write_text(
        "raise ImportError('libGL.so.1: cannot open shared object file: No such file or directory')"
    )
    monkeypatch.syspath_prepend(tmp_path)  # it travels to the workers
    monkeypatch.delitem(sys.modules, "cv2", raising=False)
    # The fork server has the real one already.
    started = {} if backend == "dummy" else {"start_method": "fresh"}
    text = message_of(PlanError, "PongNoFrameskip-v4", 2, ["atari"], backend=backend, **started)
    assert text.startswith('wrappers[0] "atari": ')
    assert "with OpenCV, but `import cv2` failed (libGL.so.1" in text
    for remedy in ("libgl1", "libglib2.0-0", "opencv-python-headless"):
        assert remedy in text


@pytest.mark.parametrize("backend", ["dummy", "subprocess"])
@pytest.mark.parametrize(
    ("env", "action", "said"),
    [
        ("CartPole-v1", 7, "on action 7: .*invalid\nDiscrete(2) takes 0 or 1.\n"),
        ("CartPole-v1", -1, "on action -1: .*invalid\nDiscrete(2) takes 0 or 1.\n"),
        ("FrozenLake-v1", 4, "on action 4: .*\nDiscrete(4) takes 0 to 3.\n"),
    ],
)
def test_an_action_that_the_space_does_not_have(backend: str, env: str, action: int, said: str):
    with vecwrap.build(env, n=2, backend=backend) as built:
        built.reset(seed=1)
        match = said.replace("(", r"\(").replace(")", r"\)")
        with pytest.raises(SubEnvError, match=match):
            built.step([0, action])


def test_an_error_on_a_good_action_says_nothing_of_the_space():
    class Fails(Plain):
        def step(self, action: Any) -> Any:
            raise ValueError("no")

    with vecwrap.build(Fails, n=1, backend="dummy") as env:
        env.reset(seed=1)
        with pytest.raises(SubEnvError, match="on action 2: no\nThe others are unharmed"):
            env.step([2])


def test_the_range_of_a_space_in_debug_mode():
    with vecwrap.build("CartPole-v1", n=1, backend="dummy", debug=True) as env:
        env.reset(seed=1)
        with pytest.raises(ArgumentError, match=r"got np.int64\(2\)\. Discrete\(2\) takes 0 or 1"):
            env.step([2])


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (gymnasium.spaces.Discrete(1), ". Discrete(1) takes 0 alone"),
        (gymnasium.spaces.Discrete(3, start=-1), ". Discrete(3, start=-1) takes -1 to 1"),
        (gymnasium.spaces.MultiBinary(2), ""),
    ],
)
def test_the_range_of_a_space(space: gymnasium.Space[Any], said: str):
    assert range_of(space) == said


@pytest.mark.parametrize("render_mode", ["rgb_array", "human"])
def test_a_package_to_draw_with_is_missed_by_the_plan(
    render_mode: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(SpecError, match="render_mode: CartPole-v1 needs pygame to draw: pip inst"):
        vecwrap.build("CartPole-v1", n=1, backend="dummy", render_mode=render_mode)
    with vecwrap.build("FrozenLake-v1", n=1, backend="dummy", render_mode="ansi") as env:
        env.reset(seed=1)
        assert "S" in env.render()[0]


def test_a_wrapper_with_its_argument_in_a_tuple():
    with pytest.raises(SpecError, match='name, as in "framestack:4" or {"framestack": 4}'):
        vecwrap.build("CartPole-v1", n=1, wrappers=[("framestack", 4)])
