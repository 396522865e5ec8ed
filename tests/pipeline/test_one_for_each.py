"""Settings and environments that differ from one sub-environment to the next."""

import contextlib
import functools
import json
import os
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_differing_spaces

import vecwrap
from vecwrap.cli import main
from vecwrap.errors import BackendError, PlanError, SpecError
from vecwrap.pipeline.evaluation import evaluation
from vecwrap.pipeline.no_imports import load_without_imports
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.run_output import versions
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.sources.description import joint_space

BACKENDS = ["dummy", "subprocess", "shmem"]


class Range(gymnasium.Env[Any, Any]):
    """Draws observations within its own bounds, for ``length`` steps."""

    def __init__(
        self, high: float = 1.0, length: int = 5, form: str = "box", size: int = 2, actions: int = 2
    ) -> None:
        self.high, self.length, self.form = high, length, form
        self.box = spaces.Box(-high, 2 * high, (size,), np.float32)
        self.observation_space: Any = self.box
        if form == "dict":
            members = {
                "inside": spaces.Tuple([self.box]),
                "count": spaces.Discrete(int(high), start=-int(high)),
            }
            self.observation_space = spaces.Dict(members)
        self.action_space = spaces.Discrete(actions)

    def _observation(self) -> Any:
        drawn = self.np_random.uniform(self.box.low, self.box.high).astype(np.float32)
        return {"inside": (drawn,), "count": int(-self.high)} if self.form == "dict" else drawn

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.step_number = 0
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        self.step_number += 1
        return self._observation(), self.high * action, self.step_number == self.length, False, {}

    @property
    def process(self) -> int:
        return os.getpid()


EACH: list[dict[str, Any]] = [{"high": 1.0}, {"high": 3.0, "length": 2}, {"high": 2.0}, {}]


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, (dict, tuple)):
        pairs = one.items() if isinstance(one, dict) else enumerate(one)
        for key, part in pairs:
            assert_same(part, other[key])
    else:
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


@pytest.mark.parametrize("form", ["box", "dict"])
@pytest.mark.parametrize(
    "backend",
    [
        "dummy",
        "subprocess",
        "shmem",
        {"name": "shmem", "workers": 1},
        {"name": "subprocess", "workers": 3},
    ],
)
def test_each_gets_its_own_arguments_and_the_stream_is_gymnasiums(backend: Any, form: str) -> None:
    each = [{**kwargs, "form": form} for kwargs in EACH]
    peer = SyncVectorEnv(
        [functools.partial(Range, **kwargs) for kwargs in each],
        observation_mode="different",
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    with vecwrap.build(Range, env_kwargs=each, backend=backend) as env, contextlib.closing(peer):
        assert env.num_envs == 4
        assert_same(env.reset(seed=3)[0], peer.reset(seed=3)[0])
        for number in range(12):
            actions = np.array([0, 1, 1, number % 2])
            ours, theirs = env.step(actions), peer.step(actions)
            for one, other in zip(ours[:4], theirs[:4], strict=True):
                assert_same(one, other)
        own = env.get_attr("observation_space")
        assert list(own) == [Range(**kwargs).observation_space for kwargs in each]
        assert batch_differing_spaces(list(own)) == peer.observation_space
        assert env.observation_space.contains(ours[0])
        assert all(
            part in env.single_observation_space for part in [space.sample() for space in own]
        )


@pytest.mark.parametrize("backend", ["dummy", {"name": "subprocess", "workers": 1}])
def test_unlike_time_limits_are_not_taken_for_one(backend: Any) -> None:
    limits = [{"max_episode_steps": 2}, {"max_episode_steps": 3}]
    with vecwrap.build("Pendulum-v1", env_kwargs=limits, backend=backend) as env:
        assert env.spec is None
        assert env.core.env_id == "Pendulum-v1"
        env.reset(seed=1)
        ends = [env.step(np.zeros((2, 1), np.float32))[3].tolist() for _ in range(3)]
        assert ends == [[False, False], [True, False], [False, True]]
    with pytest.raises(PlanError, match='"time_aware": expected an environment with a time limit'):
        vecwrap.build("Pendulum-v1", env_kwargs=limits, wrappers=["time_aware"], backend=backend)
    with vecwrap.build("Pendulum-v1", env_kwargs=[{"g": 1.0}, {"g": 2.0}], backend=backend) as env:
        assert env.spec is not None
        assert env.spec.max_episode_steps == 200


def test_the_space_is_the_smallest_that_holds_all() -> None:
    with vecwrap.build(
        Range, env_kwargs=[{**one, "form": "dict"} for one in EACH[:3]], backend="dummy"
    ) as env:
        inside = spaces.Tuple([spaces.Box(-3, 6, (2,), np.float32)])
        assert env.single_observation_space == spaces.Dict(
            inside=inside, count=spaces.Discrete(3, start=-3)
        )
    whole = [spaces.Box(0, 255, (2,), np.uint8), spaces.Box(7, 9, (2,), np.uint8)]
    assert joint_space(whole) == whole[0]
    apart = [spaces.Box(np.float32([0, 5]), np.float32([1, np.inf])), spaces.Box(-1, 6, (2,))]
    assert joint_space(apart) == spaces.Box(np.float32([-1, -1]), np.float32([6, np.inf]))
    for one, other in [
        (spaces.Box(0, 1, (2,)), spaces.Box(0, 1, (3,))),
        (spaces.Box(0, 1, (2,), np.float32), spaces.Box(0, 1, (2,), np.float64)),
        (spaces.Box(0, 1, (2,)), spaces.MultiBinary(2)),
        (spaces.Dict(a=spaces.Discrete(2)), spaces.Dict(b=spaces.Discrete(2))),
        (spaces.Tuple([spaces.Discrete(2)]), spaces.Tuple([spaces.Discrete(2)] * 2)),
        (spaces.Dict(a=spaces.Box(0, 1, (2,))), spaces.Dict(a=spaces.Box(0, 1, (3,)))),
        (spaces.MultiDiscrete([2, 3]), spaces.MultiDiscrete([2, 4])),
    ]:
        assert joint_space([one, other]) is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_differs_in_more_than_bounds_is_still_refused(backend: str) -> None:
    for each, what in [
        ([{}, {"size": 3}], "observation_space"),
        ([{}, {"actions": 3}], "action_space"),
    ]:
        with pytest.raises(
            BackendError, match=f"need the same {what}: sub-environment 0 .* sub-environment 1 "
        ):
            vecwrap.build(Range, env_kwargs=each, backend=backend)


def test_wrappers_see_the_joint_bounds() -> None:
    with vecwrap.build(
        Range, env_kwargs=EACH, wrappers=["scale_obs"], backend="dummy", debug=True
    ) as env:
        observations, _ = env.reset(seed=1)
        assert (np.abs(observations) <= 1).all()
    bare = vecwrap.build(Range, env_kwargs=EACH, backend="dummy")
    raw, _ = bare.reset(seed=1)
    low, high = bare.single_observation_space.low, bare.single_observation_space.high
    np.testing.assert_allclose(observations, (raw - low) / (high - low), atol=1e-6)
    bare.close()


@pytest.mark.parametrize("backend", ["subprocess", "shmem"])
def test_one_that_is_recreated_keeps_its_own_arguments(backend: str) -> None:
    with vecwrap.build(
        Range, env_kwargs=EACH, backend=backend, workers=2, on_failure="restart"
    ) as env:
        env.reset(seed=1)
        before = env.get_attr("high")
        os.kill(env.get_attr("process")[1], signal.SIGKILL)
        assert any(np.any(env.step([0] * 4)[4].get("restarted", False)) for _ in range(3))
        assert env.get_attr("high") == before == (1.0, 3.0, 2.0, 1.0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_ids_specs_and_callables_may_be_mixed(backend: str) -> None:
    each = [
        "CartPole-v0",
        gymnasium.spec("CartPole-v1"),
        "gymnasium.envs.classic_control:CartPoleEnv",
        lambda: gymnasium.make("CartPole-v1", max_episode_steps=7),
    ]
    with vecwrap.build(each, backend=backend) as env, gymnasium.make("CartPole-v1") as one:
        assert env.num_envs == 4
        assert env.spec is None
        assert repr(env).startswith(
            f"<VecEnv CartPole-v0, CartPole-v1, {each[2]}, ..., n=4, {backend}"
        )
        observations, _ = env.reset(seed=5)
        for i in range(4):
            np.testing.assert_array_equal(observations[i], one.reset(seed=5 + i)[0])
    spec = PipelineSpec(each[:3], n=3)
    assert spec.to_dict()["env"] == ["CartPole-v0", "CartPole-v1", each[2]]
    assert PipelineSpec.from_yaml(spec.to_yaml()) == spec
    with pytest.raises(SpecError, match=r"env\[3\]: lambda lives in this process only"):
        PipelineSpec(each).to_dict()


def test_unlike_ids_are_told_apart_and_said_to_differ() -> None:
    with pytest.raises(BackendError, match="need the same observation_space"):
        vecwrap.build(["CartPole-v1", "Acrobot-v1"], backend="dummy")
    with pytest.raises(SpecError, match=r'env\[1\] "CartPol-v1": unknown environment'):
        vecwrap.build(["CartPole-v1", "CartPol-v1"])
    with pytest.raises(
        SpecError, match=r"env\[1\]: expected an environment id or a callable .*, got 3"
    ):
        vecwrap.build(["CartPole-v1", 3])  # type: ignore[list-item]


# -- as data ---------------------------------------------------------------------------------------


PENDULUMS = "env: Pendulum-v1\nenv_kwargs: [{g: 1.0}, {g: 9.8}]\n"


def test_a_list_is_written_and_read_as_the_same_pipeline(tmp_path: Path) -> None:
    spec = PipelineSpec("Pendulum-v1", env_kwargs=[{"g": 1.0}, {"g": 9.8}])
    assert PipelineSpec.from_yaml(PENDULUMS) == spec == PipelineSpec.from_dict(spec.to_dict())
    resolved = plan(spec).pipeline
    assert resolved.n == 2
    assert plan(PipelineSpec.from_yaml(resolved.to_yaml())).pipeline.hash == resolved.hash
    hashes = {
        plan(spec.override(env_kwargs=given, n=2)).pipeline.hash
        for given in ({"g": 1.0}, [{"g": 1.0}, {}])
    }
    assert len(hashes | {resolved.hash}) == 3
    file = tmp_path / "pendulums.yaml"
    file.write_text(PENDULUMS)
    with vecwrap.load(file, backend="dummy") as env:
        assert env.get_attr("g") == (1.0, 9.8)
        assert str(env.pipeline) == "Pendulum-v1 n=2 backend=dummy env_kwargs=[{g: 1.0}, {g: 9.8}]"
    with pytest.raises(
        SpecError, match=r"env_kwargs: \[\{g: 1\.0\}, .* write the pipeline as YAML"
    ):
        spec.format()
    with pytest.raises(
        SpecError, match=r"env: \[.* cannot be written in a line; write the pipeline as YAML"
    ):
        PipelineSpec(["CartPole-v1", "CartPole-v0"]).format()


def test_a_list_is_the_callers_and_stays_as_it_is() -> None:
    given = [{"high": 1.0}, {"high": 2.0}]
    spec = PipelineSpec(Range, env_kwargs=given)
    given[0]["high"] = 9.0
    given.append({})
    assert spec.env_kwargs == ({"high": 1.0}, {"high": 2.0})


def test_changes_reach_all_mappings_or_one_by_its_number(tmp_path: Path) -> None:
    spec = PipelineSpec.from_yaml(PENDULUMS)
    assert spec.override(**{"env_kwargs.1.g": 5.0}).env_kwargs == ({"g": 1.0}, {"g": 5.0})
    assert spec.override(**{"env_kwargs.max_episode_steps": 9}).env_kwargs == (
        {"g": 1.0, "max_episode_steps": 9},
        {"g": 9.8, "max_episode_steps": 9},
    )
    assert spec.override(env_kwargs={"g": 5.0}).env_kwargs == {"g": 5.0}
    with pytest.raises(SpecError, match=r"env_kwargs\.2: there are 2 mappings, numbered from 0"):
        spec.override(**{"env_kwargs.2.g": 5.0})
    (tmp_path / "base.yaml").write_text(PENDULUMS)
    above = "extends: base.yaml\nenv_kwargs: "
    for text, expected in [("[{g: 3.0}]", ({"g": 3.0},)), ("{g: 3.0}", ({"g": 3.0},) * 2)]:
        (tmp_path / "above.yaml").write_text(above + text)
        assert PipelineSpec.load(tmp_path / "above.yaml").env_kwargs == expected


def test_an_evaluation_has_a_list_of_its_own_or_changes_each() -> None:
    for section, expected in [
        ({"env_kwargs": [{"g": 5.0}]}, ({"g": 5.0},)),
        ({"env_kwargs": {"g": 5.0}}, ({"g": 5.0}, {"g": 5.0})),
        ({"env_kwargs": {"1": {"g": 5.0}}}, ({"g": 1.0}, {"g": 5.0})),
    ]:
        spec = PipelineSpec.from_yaml(PENDULUMS).override(eval=section)
        assert evaluation(spec).env_kwargs == expected
        resolved = plan(spec).pipeline
        assert evaluation(resolved).env_kwargs == expected
        assert PipelineSpec.from_yaml(resolved.to_yaml()) == resolved
    with pytest.raises(
        PlanError, match=r"expected 2, one for each mapping in env_kwargs, got 1\. .* section eval"
    ):
        plan(PipelineSpec.from_yaml(PENDULUMS).override(eval={"n": 1}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"n": 3},
            (
                r"^n: expected 2, one for each mapping in env_kwargs, got 3\. Leave n out, or give "
                r"one mapping for"
            ),
        ),
        (
            {"env_kwargs": []},
            r"^env_kwargs: expected a mapping for each sub-environment, got an empty list",
        ),
        (
            {"env_kwargs": [{"g": 1}, 3]},
            r"^env_kwargs\[1\]: expected a mapping of names to values, got 3",
        ),
        (
            {"env_kwargs": [{"g": 1}, {3: 1}]},
            r"^env_kwargs\[1\]: expected the name of an argument, got 3",
        ),
        ({"env_kwargs": "g=1"}, r'^env_kwargs: expected a mapping of names to values, got "g=1"'),
        (
            {"env": ["Pendulum-v1"] * 3},
            r"env_kwargs: expected 3 mappings, one for each entry of env, got 2",
        ),
        (
            {"env": ["Pendulum-v1"] * 2, "n": 3},
            r"^n: expected 2, one for each entry of env, got 3\. Leave n out",
        ),
        ({"env": []}, r"^env: expected at least one environment, got an empty list"),
    ],
)
def test_lists_that_do_not_fit_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises((SpecError, PlanError), match=said):
        plan(PipelineSpec.from_yaml(PENDULUMS).override(**changes))


@pytest.mark.parametrize("backend", ["dummy", "shmem"])
def test_an_unknown_argument_is_told_with_its_number(backend: str) -> None:
    with pytest.raises(
        PlanError, match=r"^env_kwargs\[1\]\.gg: Pendulum-v1 takes no such argument\. Did you mean"
    ):
        vecwrap.build("Pendulum-v1", env_kwargs=[{"g": 1.0}, {"gg": 1.0}], backend=backend)
    with pytest.raises(
        PlanError,
        match=r"Range does not take hihg, so env_kwargs\[1\]\.hihg has nowhere to go.*high",
    ):
        plan(PipelineSpec(Range, env_kwargs=[{}, {"hihg": 1.0}]))
    with pytest.raises(
        PlanError, match=r"^env_kwargs\[1\]\.render_mode: expected one that Pendulum-v1 has"
    ):
        vecwrap.build("Pendulum-v1", env_kwargs=[{}, {"render_mode": "rgb"}], backend=backend)


def test_the_plan_says_what_each_gets_and_that_bounds_were_joined() -> None:
    shown = str(plan(PipelineSpec(Range, env_kwargs=EACH[:2], backend="dummy")).with_spaces())
    assert "env_kwargs of each: [{high: 1.0}, {high: 3.0, length: 2}]" in shown
    assert "bounds differ between the sub-environments: these contain them all" in shown
    assert "(2,) float32 in [-3, 6]" in shown
    looked = plan(PipelineSpec(Range, env_kwargs=EACH[:2], backend="dummy")).with_spaces()
    told = looked.explanation.to_dict()["environment"]
    assert told["after"]["observations"]["high"] == 6.0
    assert len(told["words"]) == 2
    alike = str(plan(PipelineSpec(Range, env_kwargs=[{}, {}], backend="dummy")).with_spaces())
    assert "bounds differ" not in alike
    with pytest.raises(BackendError, match="need the same observation_space"):
        plan(PipelineSpec(Range, env_kwargs=[{}, {"size": 3}], backend="dummy")).with_spaces()


def test_wrappers_that_ask_for_arguments_get_them_from_each() -> None:
    pytest.importorskip("ale_py")
    games = PipelineSpec(
        "ALE/Breakout-v5", env_kwargs=[{"difficulty": 0}, {"difficulty": 1}], wrappers=["atari"]
    )
    made = [part.effective_spec().kwargs for part in plan(games).environment.each]  # type: ignore[union-attr]
    assert [(kwargs["difficulty"], kwargs["frameskip"]) for kwargs in made] == [(0, 1), (1, 1)]
    with pytest.raises(
        PlanError, match=r"^env_kwargs\[1\]\.frameskip: expected 1, as atari needs it, got 4"
    ):
        plan(games.override(env_kwargs=[{}, {"frameskip": 4}]))


def test_a_limit_that_some_sub_environments_lack_is_not_found_fault_with() -> None:
    def faults(*limits: int) -> list[str]:
        kwargs = [{"max_episode_steps": limit} for limit in limits]
        spec = PipelineSpec(
            "Pendulum-v1", env_kwargs=kwargs, wrappers=["time_limit:100"], backend="dummy"
        )
        return [finding.id for finding in vecwrap.check(spec)]

    assert "time_limit_never_acts" in faults(50, 60)
    assert "time_limit_never_acts" not in faults(50, 200)


def test_gymnasiums_make_vec_changes_each() -> None:
    vecwrap.register(
        "Pendulums-v0",
        {"env": "Pendulum-v1", "env_kwargs": [{"g": 1.0}, {"g": 9.8}], "backend": "dummy"},
    )
    try:
        make = functools.partial(
            gymnasium.make_vec, "Pendulums-v0", vectorization_mode="vector_entry_point"
        )
        with contextlib.closing(make(num_envs=2, max_episode_steps=3)) as env:
            assert env.get_attr("g") == (1.0, 9.8)  # type: ignore[attr-defined]
            env.reset(seed=1)
            for _ in range(3):
                truncations = env.step(np.zeros((2, 1), np.float32))[3]
            assert truncations.all()
        with pytest.raises(PlanError, match="one for each mapping in env_kwargs, got 3"):
            make(num_envs=3)
    finally:
        del gymnasium.registry["Pendulums-v0"]


def test_the_command_takes_such_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "pendulums.yaml"
    file.write_text(PENDULUMS + "backend: dummy\n")
    assert main(["check", str(file)]) == 0
    capsys.readouterr()
    assert main(["explain", str(file), "--set", "env_kwargs.1.g=3.5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["environment"]["words"] == [
        "env_kwargs of each: [{g: 1.0}, {g: 3.5}]"
    ]
    assert main(["run", str(file), "--steps", "20", "--out", str(tmp_path / "run")]) == 0
    with vecwrap.load(tmp_path / "run") as env:
        assert env.get_attr("g") == (1.0, 9.8)
    with pytest.raises(PlanError, match=r"pipeline\.yaml:\d+: n|^n: expected 2"):
        vecwrap.load(tmp_path / "run", n=3)
    mixed = tmp_path / "mixed.yaml"
    mixed.write_text("env: [CartPole-v0, 'gymnasium.envs.classic_control:CartPoleEnv']\n")
    with pytest.raises(SpecError, match=r"expected nothing to import .*, got \"gymnasium\.envs"):
        load_without_imports(mixed)
    assert "gymnasium" in versions(plan(PipelineSpec.load(mixed)))


# -- how factories are named -----------------------------------------------------------------------


class Maker:
    """A callable object."""

    def __call__(self) -> Any:
        return Range()


def closure_of(high: int) -> Any:
    def build_one() -> Any:
        return Range(high)

    return build_one


@pytest.mark.parametrize(
    ("factories", "name"),
    [
        ([lambda high=high: Range(high) for high in (1, 2)], "lambda(high=1), lambda(high=2)"),
        (
            [functools.partial(Range, high) for high in (1, 2, 3, 4)],
            "Range(1), Range(2), Range(3), ...",
        ),
        ([functools.partial(Range, high=2), closure_of(3)], "Range(high=2), build_one(high=3)"),
        ([Maker(), Maker(), Maker().__call__], "Maker, Maker.__call__"),
        ([functools.partial(Maker.__call__, object())] * 2, "Maker.__call__"),
        (lambda: Range(), "lambda"),
    ],
)
def test_factories_are_shown_by_name_and_what_they_bind(factories: Any, name: str) -> None:
    with vecwrap.build(factories, backend="dummy") as env:
        assert repr(env).startswith(f"<VecEnv {name}, n={env.num_envs}, dummy")
        assert env.spec is None
        assert f"{name}  " in str(plan(PipelineSpec(factories)))
        for text in (repr(env.pipeline), str(env.pipeline), str(env.pipeline.hash)):
            assert "0x" not in text
            assert "<" not in text


def test_a_shared_loop_variable_shows_in_the_name() -> None:
    with pytest.warns(
        UserWarning, match="the same function with the same variables, with high = 3"
    ):
        env = vecwrap.build([lambda: Range(high) for high in (1, 2, 3)], backend="dummy")  # noqa: B023
    assert repr(env) == "<VecEnv lambda(high=3), n=3, dummy, same_step>"
    env.close()


LENGTH = 2


def test_callables_that_read_no_variable_are_no_mistake() -> None:
    """The commonest idiom of Gymnasium's and SB3's users; warnings are errors here."""
    for makers in (
        [lambda: gymnasium.make("CartPole-v1") for _ in range(3)],  # a global that is a module
        [lambda: Range() for _ in range(3)],  # a class
        [lambda: closure_of(3)() for _ in range(3)],  # a function
        [lambda: Range(LENGTH) for _ in range(3)],  # a constant
        [lambda high=3: Range(high) for _ in range(3)],  # equal on purpose
    ):
        vecwrap.build(makers, backend="dummy").close()


def test_a_loop_variable_of_a_script_is_a_global() -> None:
    names: dict[str, Any] = {"Range": Range}
    exec("made = []\nfor high in (1, 2, 3):\n    made.append(lambda: Range(high))", names)
    with pytest.warns(
        UserWarning, match="the same function with the same variables, with high = 3"
    ):
        vecwrap.build(names["made"], backend="dummy").close()


@pytest.mark.parametrize("make", [lambda: 3, functools.partial(lambda i: i, 3)])
def test_a_factory_that_makes_something_else_is_named_without_an_address(make: Any) -> None:
    with pytest.raises(
        vecwrap.SubEnvError, match=r"the factory .*<lambda> gave int, expected a gymnasium\.Env"
    ):
        vecwrap.build(make, 1, backend="dummy")
