"""`build` and `load`: every way to say what to build gives the environment; whatever fails leaves
nothing open.
"""

from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import vecwrap
from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import PlanError, SpecError
from vecwrap.pipeline.build import build_plan
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.testing.toys import OpenResources, assert_nothing_left


class Small(gymnasium.Env[Any, Any]):
    """Shows its size."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"]}
    action_space = gymnasium.spaces.Discrete(2)
    closed: ClassVar[list[int]] = []

    def __init__(self, size: int = 3, render_mode: str | None = None) -> None:
        self.size, self.render_mode = size, render_mode
        self.observation_space = gymnasium.spaces.Box(0, 99, (3,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.full(3, self.size, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.full(3, self.size, np.float32), 0.0, False, False, {}

    def close(self) -> None:
        self.closed.append(self.size)


class Hears(VecEnvWrapper):
    """Notes which pipeline it is part of."""

    heard: ClassVar[list[str]] = []

    def on_pipeline(self, pipeline: PipelineSpec) -> None:
        self.heard.append(pipeline.hash)


class Refuses(VecEnvWrapper):
    """Wants what it does not get."""

    def __init__(self, env: VecEnv) -> None:
        super().__init__(env)
        raise ValueError("not with me")


@pytest.fixture(autouse=True)
def small() -> Any:
    gymnasium.register("BuildSmall-v0", Small)
    Small.closed.clear()
    Hears.heard.clear()
    yield
    gymnasium.registry.pop("BuildSmall-v0")


YAML = """\
env: BuildSmall-v0
n: 2
seed: 5
backend: {name: subprocess, workers: 2}
autoreset: next_step
env_kwargs: {size: 7}
wrappers:
  - time_limit: 9
  - framestack: {k: 2, padding: first}
"""


def sizes(env: VecEnv) -> Any:
    """What the last numbers of each observation are, after a reset; closes the environment."""
    observations, _ = env.reset()
    env.close()
    return observations.reshape(env.num_envs, -1)[:, -1].tolist()


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("BuildSmall-v0", [3, 3]),
        ("BuildSmall", [3, 3]),
        (f"{__name__}:BuildSmall-v0", [3, 3]),
        (Small, [3, 3]),
        (lambda: Small(4), [4, 4]),
        ([Small, lambda: Small(5)], [3, 5]),
        ("BuildSmall-v0 n=2 env_kwargs.size=6", [6, 6]),
        ("BuildSmall-v0 | time_limit:5 | framestack:2", [3, 3]),
        ({"env": "BuildSmall-v0", "env_kwargs": {"size": 8}}, [8, 8]),
        (PipelineSpec("BuildSmall-v0"), [3, 3]),
    ],
)
def test_what_to_build_can_be_said_in_many_ways(target: Any, expected: list[int]) -> None:
    assert sizes(vecwrap.build(target, n=2, backend="dummy")) == expected


def test_a_file_can_be_built_or_loaded_with_overrides(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(YAML)
    for env in (
        vecwrap.build(file, n=3, backend="dummy"),
        vecwrap.load(str(file), n=3, backend="dummy"),
    ):
        assert (env.num_envs, env.backend, env.metadata["autoreset_mode"]) == (
            3,
            "dummy",
            AutoresetMode.NEXT_STEP,
        )
        assert env.single_observation_space.shape == (2, 3)
        assert sizes(env) == [7, 7, 7]
    assert sizes(
        vecwrap.build(str(file), wrappers=["time_limit:3"], backend="dummy", env_kwargs={"size": 1})
    ) == [1, 1]
    with vecwrap.load(file, autoreset="same_step", wrappers=[], seed=None, workers=1) as env:
        assert (env.backend, env.num_workers, env.metadata["autoreset_mode"]) == (
            "subprocess",
            1,
            AutoresetMode.SAME_STEP,
        )
        assert env.pipeline.seed is None
        assert env.single_observation_space.shape == (3,)


def test_a_value_that_is_no_default_reaches_the_backend() -> None:
    env = vecwrap.build(
        "BuildSmall-v0",
        3,
        backend="dummy",
        copy=False,
        batch_size=2,
        seed=np.int64(4),
        start_index=10,
        autoreset=AutoresetMode.DISABLED,
        render_mode="rgb_array",
        debug=True,
    )
    core = env.core
    assert (core.copy, core.batch_size, core.pending.start_index, core.rows.debug) == (
        False,
        2,
        10,
        True,
    )
    assert (env.metadata["autoreset_mode"], env.render_mode) == (
        AutoresetMode.DISABLED,
        "rgb_array",
    )
    env.reset()
    assert env.np_random_seed == (14, 15, 16)
    env.close()


def test_n_is_the_number_of_callables() -> None:
    assert sizes(vecwrap.build([Small] * 3, backend="dummy")) == [3, 3, 3]


def test_a_built_environment_gives_its_pipeline_back() -> None:
    env = vecwrap.build(
        "BuildSmall", n=2, wrappers=["framestack:2", Hears], backend="dummy", env_kwargs={"size": 6}
    )
    env.close()
    assert env.pipeline.wrappers[0].kwargs == {
        "k": 2,
        "axis": "new",
        "padding": "zero",
        "channels": "last",
        "keys": None,
    }
    assert Hears.heard == [env.pipeline.hash]
    assert all(wrapper.pipeline is env.pipeline for wrapper in env.chain)
    again = vecwrap.build(PipelineSpec.from_yaml(env.pipeline.to_yaml()))
    assert again.pipeline == env.pipeline
    assert repr(again) == repr(env)
    assert sizes(again) == [6, 6]
    assert env.spec is not None
    assert env.spec.id == "BuildSmall-v0"  # Gymnasium's own stays


def test_the_repr_names_environment_n_backend_workers_mode_and_wrappers() -> None:
    with vecwrap.build(
        "BuildSmall-v0", n=2, wrappers=["time_limit:9", "framestack:2"], workers=1
    ) as env:
        assert repr(env) == (
            "<VecEnv BuildSmall-v0, n=2, shmem, 1 worker, same_step, wrappers time_limit > "
            "framestack>"
        )


def test_wrappers_of_sub_environments_run_in_the_workers_and_count_as_wrappers_there() -> None:
    wraps: list[Any] = [lambda env: gymnasium.wrappers.TimeLimit(env, 2), "framestack:2"]
    with vecwrap.build("BuildSmall-v0", n=2, wrappers=wraps, workers=2) as env:
        env.reset(seed=1)
        env.step([0, 0])
        truncations = env.step([0, 0])[3]
    assert truncations.tolist() == [True, True]


@pytest.mark.parametrize("backend", ["dummy", "subprocess", "shmem"])
@pytest.mark.parametrize(
    ("wrappers", "message"),
    [
        ([Refuses], f'wrappers[0] "{__name__}:Refuses": raised ValueError: not with me'),
        (["framestack:2", lambda env: gymnasium.Env()], 'wrappers[1] "lambda"'),
        ([vars], 'wrappers[0] "builtins:vars": expected a gymnasium.Env from it, got dict.'),
    ],
)
def test_a_wrapper_that_fails_leaves_nothing_open(
    backend: str, wrappers: list[Any], message: str
) -> None:
    before = OpenResources.now()
    with pytest.raises(PlanError) as error:
        vecwrap.build("BuildSmall-v0", n=2, wrappers=wrappers, backend=backend)
    assert message in str(error.value)
    assert_nothing_left(before, before)
    if backend == "dummy" and wrappers == [Refuses]:
        assert Small.closed == [3, 3]


@pytest.mark.parametrize("wrapper", [Refuses, vars])
def test_a_refusal_is_told_though_closing_fails_too(wrapper: Any) -> None:
    class Stays(Small):
        def close(self) -> None:
            raise RuntimeError("stays")

    with pytest.raises(PlanError, match=r"wrappers\[0\]"):
        vecwrap.build(Stays, n=2, wrappers=[wrapper], backend="dummy")


def test_an_interrupt_while_building_leaves_nothing_open() -> None:
    class Interrupts(VecEnvWrapper):
        def __init__(self, env: VecEnv) -> None:
            raise KeyboardInterrupt

    before = OpenResources.now()
    with pytest.raises(KeyboardInterrupt):
        vecwrap.build("BuildSmall-v0", n=2, wrappers=[Interrupts], backend="shmem")
    assert_nothing_left(before, before)


def test_a_plan_can_be_carried_out_more_than_once() -> None:
    checked = plan(PipelineSpec.parse("BuildSmall-v0 n=2 backend=dummy | framestack:2"))
    assert sizes(build_plan(checked)) == sizes(build_plan(checked)) == [3, 3]


def test_nothing_that_was_given_is_changed() -> None:
    env_kwargs, wrappers = {"size": 5}, [{"framestack": {"k": 2}}]
    vecwrap.build("BuildSmall-v0", n=1, env_kwargs=env_kwargs, wrappers=wrappers).close()
    assert (env_kwargs, wrappers) == ({"size": 5}, [{"framestack": {"k": 2}}])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("num_envs", "build: num_envs: unknown key. The number of sub-environments is called n."),
        ("n_envs", "build: n_envs: unknown key. The number of sub-environments is called n."),
        ("wrapper", 'build: wrapper: unknown key. Did you mean "wrappers"?'),
        (
            "training",
            (
                "build: training: expected in the pipeline itself, or in vecwrap.load(FILE, "
                "training=...)."
            ),
        ),
        ("wrappers.framestack.k", "build: wrappers.framestack.k: unknown key."),
        (
            "max_episode_steps",
            (
                "build: max_episode_steps: unknown key. What the environment takes goes into "
                "env_kwargs."
            ),
        ),
    ],
)
def test_an_argument_that_there_is_not_is_told_in_the_words_of_a_pipelines_file(
    name: str, said: str
) -> None:
    arguments: dict[str, Any] = {name: 4}
    with pytest.raises(SpecError) as error:
        vecwrap.build("CartPole-v1 | framestack:2", **arguments)
    assert str(error.value).startswith(said)


@pytest.mark.parametrize("path", ["CartPole-v1", "CartPole-v1 n=2 | monitor", "a" * 5000])
def test_what_is_no_path_is_told_what_builds_it(path: str) -> None:
    with pytest.raises(SpecError, match="cannot be read .* Is the path right, relative to "):
        vecwrap.load(path)


@pytest.mark.parametrize(
    ("pipeline", "shown"),
    [
        ({"env": "CartPole-v1"}, '{env: "CartPole-v1"}'),
        (None, "null"),
        (PipelineSpec("CartPole-v1", n=2), "PipelineSp"),
    ],
)
def test_a_pipeline_that_is_no_path_is_told_what_builds_it(pipeline: Any, shown: str) -> None:
    with pytest.raises(SpecError) as error:
        vecwrap.load(pipeline)
    said = str(error.value)
    assert said.startswith(f"pipeline: expected the path of a pipeline file, got {shown}")
    assert said.endswith("vecwrap.build takes other forms.")


@pytest.mark.parametrize("seed", ["a", "12", b"34", 1.5, [], object])
def test_a_seed_of_another_kind_is_told_what_there_may_be(seed: Any) -> None:
    with vecwrap.build("CartPole-v1", n=2, backend="dummy") as env:
        with pytest.raises(
            ValueError, match="^seed: expected an int, a sequence of 2 or None, got "
        ):
            env.reset(seed=seed)
        env.reset(seed=[1, 2])


def makers_of_a_loop() -> list[Any]:
    return [lambda: Small(i) for i in range(4)]  # noqa: B023 -- that is the mistake


def test_callables_that_share_a_loops_variable_are_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"4 of the callables .* with i = 3: .*lambda i=i"):
        env = vecwrap.build(makers_of_a_loop(), backend="dummy")
    assert env.get_attr("size") == (3, 3, 3, 3)
    env.close()


@pytest.mark.parametrize(
    "makers",
    [
        [lambda i=i: Small(i) for i in range(4)],
        [Small] * 4,
        [makers_of_a_loop()[0]] * 4,
        [lambda: Small(1), lambda: Small(2)],
    ],
)
def test_callables_that_are_bound_or_meant_to_be_alike_are_not(makers: list[Any]) -> None:
    vecwrap.build(makers, backend="dummy").close()  # a warning would be an error here
