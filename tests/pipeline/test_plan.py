"""Pipelines are checked before anything starts, and a plan says what would be built."""

import contextlib
import enum
import functools
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import vecwrap
from vecwrap.backends.dummy import Dummy
from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import BackendError, PlanError, SpecError, VecwrapError
from vecwrap.pipeline import static_plan
from vecwrap.pipeline.build import build_plan
from vecwrap.pipeline.elements import WrapperSpec
from vecwrap.pipeline.plan import Plan, plan
from vecwrap.pipeline.registry import register_wrapper, wrappers
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.pipeline.wrappers import end_note
from vecwrap.sources.factories import MakeEnvironment


class Scale(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Multiply observations."""

    def __init__(self, env: Any, factor: float = 2.0) -> None:
        super().__init__(env)
        self.factor = factor

    def observation(self, observation: Any) -> Any:
        return observation * self.factor


class Halve(VecEnvWrapper):
    """Keep half the observation."""

    path_parameters: ClassVar[frozenset[str]] = frozenset({"file"})
    not_hashed: ClassVar[frozenset[str]] = frozenset({"verbose"})
    made_with: ClassVar[list[Any]] = []

    def __init__(
        self, env: VecEnv, dtype: str = "float32", *, file: str | None = None, verbose: bool = False
    ) -> None:
        size = env.single_observation_space.shape[0] // 2  # type: ignore[index]
        super().__init__(env, gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.dtype(dtype).type))
        self.made_with.append((file, verbose))

    def on_observations(self, observations: Any) -> Any:
        return observations[:, : observations.shape[1] // 2]

    @classmethod
    def summary(cls, *unnamed: Any, **arguments: Any) -> str:
        return "only the first half is kept"

    def describe(self) -> str:
        return f"around {self.num_envs} sub-environments"


class Blank(gymnasium.Env[Any, Any]):
    """Takes what wrappers ask for."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, frameskip: int = 4, sticky: float = 0.25) -> None:
        self.frameskip, self.sticky = frameskip, sticky


class Late(Blank):
    """Is made long after anybody would have waited for it."""

    def __init__(self) -> None:
        time.sleep(30)


class Colour(enum.Enum):
    """What is painted."""

    RED, GREEN = "red", "green"


def paint(env: Any, colour: Colour = Colour.RED, names: set[str] = frozenset()) -> Any:  # type: ignore[assignment]
    """Take what YAML has no word for."""
    assert isinstance(colour, Colour)
    assert isinstance(names, (set, frozenset))
    return env


class NoSkip(vecwrap.Declares, gymnasium.Wrapper[Any, Any, Any, Any]):
    """Needs every frame."""

    @classmethod
    def environment_kwargs(cls, env_spec: Any, sticky: float = 0.0) -> dict[str, Any]:
        if "frameskip" not in env_spec.kwargs:
            raise PlanError("noskip: expected an environment that can skip frames")
        return {"frameskip": 1, "sticky": sticky}

    def __init__(self, env: Any, sticky: float = 0.0) -> None:
        super().__init__(env)


def wrap_vector(env: VecEnv, k: int = 2) -> VecEnv:
    return VecEnvWrapper(env)


@pytest.fixture(autouse=True)
def names() -> Any:
    gymnasium.register("PlanBlank-v0", Blank, kwargs={"frameskip": 4})
    register_wrapper("scale", Scale)
    register_wrapper("halve", Halve)
    register_wrapper("noskip", NoSkip)
    Halve.made_with.clear()
    yield
    gymnasium.registry.pop("PlanBlank-v0")
    for name in ("scale", "halve", "noskip"):
        wrappers.unregister(name)


def planned(line: str, **overrides: Any) -> Plan:
    return plan(PipelineSpec.parse(line).override(**overrides))


def message_of(line: str, **overrides: Any) -> str:
    with pytest.raises((PlanError, SpecError)) as error:
        planned(line, **overrides)
    return str(error.value)


# -- wrappers --------------------------------------------------------------------------------------


def test_each_wrapper_runs_where_its_class_says() -> None:
    wrappers = planned("PlanBlank-v0 n=2 | scale | time_limit:9 | halve").wrappers
    assert [wrapper.runs_in for wrapper in wrappers] == ["worker", "worker", "parent"]


def test_callables_and_partials_are_looked_through() -> None:
    wraps = [
        functools.partial(Scale, factor=3.0),
        lambda env: env,
        wrap_vector,
        functools.partial(wrap_vector, k=3),
    ]
    wrappers = planned("PlanBlank-v0 n=2 backend=dummy", wrappers=wraps).wrappers
    assert [wrapper.runs_in for wrapper in wrappers] == ["worker", "worker", "parent", "parent"]
    assert wrappers[0].spec.name == "scale"
    assert wrappers[3].bound.kwargs == {"k": 3}


def test_text_is_imported_where_only_a_callable_or_class_fits() -> None:
    """What accepts text resolves it itself: it may be another kind of name."""

    def wrap(
        env: Any,
        rule: Callable[[int], bool],
        kind: type | None,
        sample: str | Callable[[int], bool],
    ) -> Any:
        return env

    paths = ["math:isnan", "pathlib:Path", "math:isinf"]
    (wrapper,) = planned(
        "PlanBlank-v0 n=1 backend=dummy", wrappers=[WrapperSpec(wrap, args=tuple(paths))]
    ).wrappers
    assert wrapper.bound.kwargs == {"rule": math.isnan, "kind": Path, "sample": "math:isinf"}
    assert list(wrapper.spec.kwargs.values()) == paths


def test_text_is_imported_in_arguments_that_can_only_be_given_by_position_too() -> None:
    def wrap(env: Any, rule: Callable[[int], bool], *names: str) -> Any:
        return env

    spec = WrapperSpec(wrap, args=("math:isnan", "math:isinf"))
    (wrapper,) = planned("PlanBlank-v0 n=1 backend=dummy", wrappers=[spec]).wrappers
    assert wrapper.bound.args == (math.isnan, "math:isinf")
    assert wrapper.spec.args == ("math:isnan", "math:isinf")


def test_an_object_that_can_be_called_runs_where_its_call_says() -> None:
    class Wrap:
        def __call__(self, env: vecwrap.VecEnv) -> vecwrap.VecEnv:
            return env

    assert (
        planned("PlanBlank-v0 n=2 backend=dummy", wrappers=[Wrap()]).wrappers[0].runs_in == "parent"
    )


def test_a_wrapper_in_the_wrong_place_is_told_what_to_move_where() -> None:
    assert message_of("PlanBlank-v0 | halve | time_limit:9 | scale") == (
        'wrappers[1] "time_limit": it wraps each sub-environment, in the workers, so it cannot '
        'stand outside of "halve" (wrappers[0]), which wraps the whole vector. Move "time_limit" '
        'before "halve": '
        "time_limit, scale, halve."
    )


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        (
            gymnasium.wrappers.vector.NormalizeObservation,
            "NormalizeObservation wraps one of Gymnasium's vector environments from outside and "
            "cannot be a wrapper. "
            'Instead, take "gymnasium.wrappers:NormalizeObservation", which wraps each '
            "sub-environment, or put it "
            "around the finished environment: NormalizeObservation(vecwrap.build(...)).",
        ),
        (
            Blank,
            "expected a gymnasium.Wrapper (for each sub-environment), a vecwrap.VecEnvWrapper "
            "(for the whole vector) or a callable that wraps, got the class ",
        ),
    ],
)
def test_what_cannot_be_a_wrapper_is_told_why(wrapper: Any, message: str) -> None:
    assert message in message_of("PlanBlank-v0 n=1", wrappers=[wrapper])


def test_a_wrapper_says_what_its_environment_must_be_made_with() -> None:
    made = planned("PlanBlank-v0 n=1 | noskip:0.5").environment.factories[0]().unwrapped
    assert (made.frameskip, made.sticky) == (1, 0.5)  # type: ignore[attr-defined]
    assert message_of("CartPole-v1 n=1 | noskip") == (
        'wrappers[0] "noskip": expected an environment that can skip frames'
    )
    assert message_of("PlanBlank-v0 n=1 env_kwargs.frameskip=4 | noskip") == (
        "env_kwargs.frameskip: expected 1, as noskip needs it, got 4. Leave it out."
    )
    assert planned("PlanBlank-v0 n=1 env_kwargs.frameskip=1 | noskip").pipeline.env_kwargs == {
        "frameskip": 1
    }


@pytest.mark.parametrize(("wrapper", "sticky"), [("atari", 0.0), ("atari:machado", 0.25)])
def test_an_atari_id_that_skips_by_itself_is_made_without(wrapper: str, sticky: float) -> None:
    pytest.importorskip("ale_py")
    for name in ("ALE/Pong-v5", "Pong-v4", "PongNoFrameskip-v4"):
        factory = planned(f"{name} n=1 | time_limit:400 | {wrapper}").environment.factories[0]
        assert isinstance(factory, MakeEnvironment)
        assert factory.kwargs == {"frameskip": 1, "repeat_action_probability": sticky}


def test_paths_of_a_file_are_relative_to_it(tmp_path: Path) -> None:
    text = "env: PlanBlank-v0\nn: 1\nwrappers:\n  - halve: {file: out.csv}\n"
    wrapper = plan(PipelineSpec.from_yaml(text, "p.yaml", tmp_path)).wrappers[0]
    assert wrapper.bound.kwargs["file"] == str(tmp_path / "out.csv")
    assert wrapper.spec.kwargs["file"] == str(tmp_path / "out.csv")


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No shell has read a file, and a folder that is called ~ is not what anybody means."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    text = "env: PlanBlank-v0\nn: 1\nstats: ~/s.npz\nwrappers:\n  - halve: {file: ~/runs/out.csv}\n"
    for directory in (tmp_path, None):
        planned = plan(PipelineSpec.from_yaml(text, "p.yaml", directory))
        assert planned.wrappers[0].bound.kwargs["file"] == str(
            tmp_path / "home" / "runs" / "out.csv"
        )
        assert planned.pipeline.stats == str(tmp_path / "home" / "s.npz")


class Named(Halve):
    """Takes paths in every way that Python has, and has one already."""

    path_parameters: ClassVar[frozenset[str]] = frozenset({"file", "more", "log"})
    made_with: ClassVar[list[Any]] = []

    def __init__(
        self, env: VecEnv, file: str, *words: str, more: Path | None = None, log: str = "log"
    ) -> None:
        super().__init__(env)
        self.made_with.append((file, *words, more, log))


def test_a_wrapper_writes_where_the_spec_says_wherever_the_program_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    for args, kwargs in [(("a", "word"), {}), (("a",), {}), ((), {"file": "a"})]:
        wrapper = WrapperSpec(Named, args, {"more": Path("b"), **kwargs})
        monkeypatch.chdir(tmp_path)
        checked = plan(PipelineSpec("PlanBlank-v0", n=1, backend="dummy", wrappers=[wrapper]))
        monkeypatch.chdir("elsewhere")
        Named.made_with.clear()
        with build_plan(checked) as env:
            ((file, *words, more, log),) = Named.made_with[-1:]
        spec = env.pipeline.wrappers[0]
        assert (file, more, log) == (str(tmp_path / "a"), tmp_path / "b", str(tmp_path / "log"))
        assert words == list(spec.args[1:])
        assert (spec.args[0] if spec.args else spec.kwargs["file"]) == file
        assert (spec.kwargs["more"], spec.kwargs["log"]) == (str(more), log)


def test_a_plan_shows_paths_as_they_were_written() -> None:
    assert 'halve  file="./out.csv"' in str(planned("PlanBlank-v0 n=1 | halve:file=./out.csv"))


# -- the resolved pipeline -------------------------------------------------------------------------


def test_the_resolved_pipeline_says_everything_and_is_its_own_plan() -> None:
    resolved = planned("PlanBlank n=2 | scale:3 | halve").pipeline
    assert resolved.env == "PlanBlank-v0"
    assert resolved.backend.name == "shmem"
    assert resolved.wrappers[0].kwargs == {"factor": 3.0}
    assert resolved.wrappers[1].kwargs == {"dtype": "float32", "file": None, "verbose": False}
    again = plan(PipelineSpec.from_yaml(resolved.to_yaml())).pipeline
    assert again == resolved
    assert again.hash == resolved.hash


def test_a_path_is_its_text_in_the_hash_and_in_what_is_written() -> None:
    spec = PipelineSpec(
        "PlanBlank-v0", n=2, wrappers=["halve"], env_kwargs={"sticky": 0, "root": Path("/tmp/x")}
    )
    resolved = plan(spec).pipeline
    assert resolved.env_kwargs["root"] == Path("/tmp/x")  # the environment is given what it was
    assert str(spec) == "PlanBlank-v0 n=2 env_kwargs.sticky=0 env_kwargs.root=/tmp/x | halve"
    for again in (
        PipelineSpec.from_yaml(resolved.to_yaml()),
        PipelineSpec.parse(resolved.format()),
    ):
        assert (again, plan(again).pipeline.hash) == (resolved, resolved.hash)


def test_what_yaml_has_no_word_for_is_written_and_read_back() -> None:
    text = """
env: PlanBlank-v0
n: 2
env_kwargs: {sticky: {0: x, 7: y, true: 2, null: .5, a: {1e-3: z}}}
wrappers:
  - %s: {colour: green, names: [c, a, b]}
"""
    resolved = plan(PipelineSpec.from_yaml(text % f"{__name__}:paint")).pipeline
    assert resolved.wrappers[0].kwargs == {"colour": Colour.GREEN, "names": {"a", "b", "c"}}
    written = resolved.to_yaml()
    assert "env_kwargs: {sticky: {0: x, 7: y, true: 2, null: 0.5, a: {0.001: z}}}\n" in written
    assert written.endswith("{colour: green, names: [a, b, c]}\n")
    again = PipelineSpec.from_yaml(written)
    assert (again, again.env_kwargs) == (resolved, resolved.env_kwargs)
    assert (
        plan(again).pipeline.hash
        == resolved.hash
        == plan(PipelineSpec.from_dict(resolved.to_dict())).pipeline.hash
    )


def test_one_pipeline_has_one_hash_however_it_is_written() -> None:
    forms: list[Any] = [
        "scale",
        "scale:2.0",
        "scale:2",
        {"scale": {"factor": 2}},
        Scale,
        functools.partial(Scale, factor=2),
        f"{Scale.__module__}:Scale:",
    ]
    assert len({planned("PlanBlank-v0 n=2", wrappers=[form]).pipeline.hash for form in forms}) == 1


@pytest.mark.parametrize(
    ("line", "same"),
    [
        ("PlanBlank-v0 n=2 seed=5 start_index=3 backend=dummy | halve", True),
        ("PlanBlank-v0 n=2 backend=subprocess backend.workers=1 copy=false | halve", True),
        ("PlanBlank-v0 n=2 | halve:file=runs/x,verbose=true", True),
        ("PlanBlank-v0 n=3 | halve", False),
        ("PlanBlank-v0 n=2 autoreset=next_step | halve", False),
        ("PlanBlank-v0 n=2 env_kwargs.sticky=0.1 | halve", False),
        ("PlanBlank-v0 n=2 | halve:float64", False),
        ("PlanBlank-v0 n=2 | scale | halve", False),
        ("CartPole-v1 n=2 | halve", False),
    ],
)
def test_the_hash_covers_what_changes_the_stream(line: str, same: bool) -> None:
    assert (
        planned(line).pipeline.hash == planned("PlanBlank-v0 n=2 | halve").pipeline.hash
    ) is same


def test_a_callable_is_its_import_path_or_its_name_in_the_hash() -> None:
    def hashed(env: Any) -> str:
        return plan(PipelineSpec(env, n=1, backend="dummy")).pipeline.hash

    arguments = [
        functools.partial(Blank, 1),
        functools.partial(Blank, 2),
        functools.partial(Blank, sticky=2),
    ]
    assert len(set(map(hashed, [Blank, *arguments]))) == 4
    assert hashed(lambda: Blank(1)) == hashed(lambda: Blank(2)) != hashed(Blank)


@pytest.mark.parametrize("also", [{}, {"render_mode": "rgb_array"}])
def test_the_render_mode_is_no_part_of_the_hash_wherever_it_is_said(also: dict[str, str]) -> None:
    spec = PipelineSpec("CartPole-v1", n=1, env_kwargs=also)
    assert (
        plan(spec).pipeline.hash == planned("CartPole-v1 n=1 render_mode=rgb_array").pipeline.hash
    )


SETS_AND_OBJECTS = """
from vecwrap.pipeline.spec import PipelineSpec

class Score:
    pass

def make(level, **others):
    return level in {"cave", "tower", "harbour", ("a", "b")}

kwargs = {"levels": {"cave", "tower", "harbour", 1, 2}, "score": Score(), "scores": [Score()]}
print(PipelineSpec(make, n=1, env_kwargs=kwargs).hash)
"""


def test_the_hash_is_the_same_in_every_process() -> None:
    # Texts in a set are in another order, and objects at another address.
    command = [sys.executable, "-c", SETS_AND_OBJECTS]
    hashes = {
        subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(hashes) == 1


def test_defaults_that_depend_on_other_arguments_are_filled_in() -> None:
    """Said or not, it is the same pipeline; and what its file means does not change with a
    lineage's defaults.
    """
    said = {
        "terminal_on_life_loss": False,
        "fire_reset": False,
        "clip_reward": False,
        "repeat_action_probability": 0.25,
    }
    unsaid = planned("PongNoFrameskip-v4 n=2 | atari:machado").pipeline
    assert {name: unsaid.wrappers[0].kwargs[name] for name in said} == said
    written = planned(
        "PongNoFrameskip-v4 n=2", wrappers=[{"atari": {"lineage": "machado", **said}}]
    ).pipeline
    assert (
        written.hash == unsaid.hash == plan(PipelineSpec.from_yaml(unsaid.to_yaml())).pipeline.hash
    )
    other = planned("PongNoFrameskip-v4 n=2 | atari:machado,clip_reward=true").pipeline
    assert other.hash != unsaid.hash
    assert other.wrappers[0].kwargs["clip_reward"] is True


def test_a_path_may_be_given_for_its_text() -> None:
    one, other = (
        planned("PlanBlank-v0 n=2", wrappers=[{"monitor": given}])
        for given in ([Path("a/b")], ["a/b"])
    )
    assert one.pipeline == other.pipeline
    assert one.wrappers[0].bound.kwargs["dir"] == str(Path("a/b").absolute())


def test_the_hash_stays_what_it_was() -> None:
    # Files carry it: a change here makes the files of earlier versions strangers.
    assert planned("CartPole-v1 n=2 | time_limit:100").pipeline.hash == "55f81ad33a32"


# -- numbers and the backend -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("PlanBlank-v0 n=0", "n: expected at least 1 sub-environment, got 0."),
        ("PlanBlank-v0 n=2 batch_size=3", "batch_size: expected 1 to n=2, got 3."),
        ("PlanBlank-v0 n=2 seed=-1", "seed: expected 0 or more, got -1."),
        ("PlanBlank-v0 n=2 backend.workers=0", "workers: expected at least 1, got 0."),
        ("PlanBlank-v0 n=2 backend.workers=two", 'workers: expected int or null, got "two".'),
        (
            "PlanBlank-v0 n=2 backend.workers=1 backend.envs_per_worker=2",
            (
                "envs_per_worker: expected workers or envs_per_worker, got both; each follows "
                "from the other."
            ),
        ),
        (
            "PlanBlank-v0 n=2 backend=dummy backend.workers=2",
            'workers: backend "dummy" has no option workers. It runs in this process; leave the '
            'option out, or take backend="shmem".',
        ),
        (
            "PlanBlank-v0 n=2 backend=shmem backend.worker=2",
            'worker: backend "shmem" has no option worker. Did you mean "workers"?',
        ),
        (
            "PlanBlank-v0 n=2 backend=shmem backend.seed=2",
            "seed: seed is the pipeline's own; write it one level up.",
        ),
        (
            "PlanBlank-v0 n=2 backend=shmen",
            'backend "shmen": unknown backend. Did you mean "shmem"?',
        ),
    ],
)
def test_a_number_or_option_that_does_not_fit_is_told(line: str, message: str) -> None:
    assert message_of(line) == message


def test_a_class_that_is_no_backend_is_told() -> None:
    assert "expected a class derived from vecwrap.env.runner.Runner, got" in message_of(
        "PlanBlank-v0", backend=Blank
    )
    assert planned("PlanBlank-v0 n=1", backend=Dummy).pipeline.backend.name == "dummy"


@pytest.mark.parametrize(
    ("line", "name", "reason"),
    [
        ("PlanBlank-v0 n=1", "dummy", "one sub-environment is quickest in this process"),
        (
            "PlanBlank-v0 n=2",
            "shmem",
            (
                "2 sub-environments share the cores; vecwrap tune measures whether another way is "
                "quicker"
            ),
        ),
        ("PlanBlank-v0 n=1 backend.workers=1", "shmem", "workers asks for worker processes"),
        (
            "PlanBlank-v0 n=1 backend.parent_share=false",
            "shmem",
            "parent_share asks for worker processes",
        ),
        ("PlanBlank-v0 n=2 backend=subprocess", "subprocess", ""),
    ],
)
def test_auto_chooses_and_says_why(line: str, name: str, reason: str) -> None:
    found = planned(line)
    assert (found.pipeline.backend.name, found.reason) == (name, reason)


def test_n_is_the_usable_cores_or_the_number_of_callables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static_plan, "usable_cores", lambda: 5)
    assert planned("PlanBlank-v0").n == 5
    assert plan(PipelineSpec((Blank, Blank))).n == 2
    with pytest.raises(
        PlanError, match=r"^n: expected 2, one for each callable, got 3\. Leave n out\.$"
    ):
        plan(PipelineSpec((Blank, Blank), n=3))


def test_more_workers_than_sub_environments_are_as_many() -> None:
    assert planned("PlanBlank-v0 n=2 backend.workers=5").backend_options == {"workers": 2}


class Says(vecwrap.Declares, gymnasium.Wrapper[Any, Any, Any, Any]):
    """Describes itself, and may refuse."""

    def __init__(self, env: Any, refuse: bool = False) -> None:
        if refuse:
            raise PlanError("says: no")
        super().__init__(env)

    def describe(self) -> str:
        return "it is I"


@pytest.mark.parametrize("make", [Blank, lambda: Says(Blank())], ids=["alone", "wrapped"])
def test_only_the_wrapper_itself_is_described(make: Any) -> None:
    says = PipelineSpec(
        make, 1, wrappers=[Says, functools.partial(Says, refuse=True)], backend="dummy"
    )
    found = plan(says).with_refusals()
    assert [stage.summary for stage in found.spaces_at or () if stage is not None] == [
        "",
        "it is I",
        "",
    ]


def test_planning_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vecwrap.backends.workers.worker_handle.start_worker", None)
    monkeypatch.setattr(Blank, "__init__", None)
    planned("PlanBlank-v0 n=2 | scale | halve")


# -- what is shown ---------------------------------------------------------------------------------


def test_the_plan_is_an_indented_list_from_the_sub_environment_outwards() -> None:
    found = planned(
        "PlanBlank-v0 n=2 seed=3 backend=dummy | scale:3 | halve:file=x.csv"
    ).with_spaces()
    assert (
        str(found)
        == f"""\
PlanBlank-v0, n=2, seed=3, same_step, pipeline {found.pipeline.hash}
                         runs in  observations             bytes/step
PlanBlank-v0             parent   (4,) float32 in [-1, 1]        32 B
    actions: Discrete(2)
    at an episode's end: reset within the step; final_obs is its last
    observation.
  scale  factor=3.0      parent   unchanged                      32 B
      at an episode's end: the terminal observation is changed like every other.
    halve  file="x.csv"  parent   → (2,) float32                 16 B
        only the first half is kept
        around 2 sub-environments
        at an episode's end: the terminal observation is changed like every
        other.
backend dummy: in this process, one after the other"""
    )
    assert Halve.made_with == [(None, False)]  # no file is written for an explanation


def test_a_plan_is_as_wide_as_a_narrow_terminal() -> None:
    line = (
        "Pendulum-v1 n=4 backend=dummy | time_limit:200 | rescale_action | clip_action | "
        "framestack:4,padding=first | time_aware:flatten=false | terminal_obs:record=9"
    )
    text = str(planned(line).with_spaces())
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    for said in (
        'padding="first"',
        "obs: (4, 3) float32",
        "time: (1,) int32 in [0, 200]",
        "Dict of 2",
        "record=9",
    ):
        assert said in words, said


def test_spaces_and_bytes_are_those_of_the_environment_that_is_built() -> None:
    line = (
        "Pendulum-v1 n=3 backend=dummy | time_limit:200 | rescale_action | "
        "normalize_obs:clip=5 | framestack:4"
    )
    data = planned(line).with_spaces().explanation.to_dict()
    with vecwrap.build(line) as env:
        observations, _ = env.reset(seed=1)
        outermost = data["wrappers"][-1]
        assert outermost["after"]["observations"]["shape"] == list(
            env.single_observation_space.shape or ()
        )
        assert outermost["bytes_per_step"] == observations.nbytes
        assert data["environment"]["bytes_per_step"] == env.core.slots.observations.batch().nbytes
    before, after = (data["wrappers"][1][when]["actions"] for when in ("before", "after"))
    assert (before["low"], before["high"], after["low"], after["high"]) == (-2.0, 2.0, -1.0, 1.0)


def test_the_plan_as_data_is_plain_and_says_what_the_text_says() -> None:
    found = planned(
        "PlanBlank-v0 n=2 seed=3 backend=dummy | scale:3 | halve:file=x.csv"
    ).with_spaces()
    data = json.loads(json.dumps(found.explanation.to_dict(), allow_nan=False))
    assert (data["pipeline"], data["n"], data["seed"]) == (found.pipeline.hash, 2, 3)
    scale, halve = data["wrappers"]
    assert scale["arguments"] == {"factor": 3.0}
    assert halve["before"]["observations"] == {
        "type": "Box",
        "shape": [4],
        "dtype": "float32",
        "low": -1.0,
        "high": 1.0,
    }
    assert halve["after"]["observations"]["shape"] == [2]
    assert halve["after"]["observations"]["high"] is None  # endless
    assert halve["words"] == ["only the first half is kept", "around 2 sub-environments"]
    # Nothing was made.
    assert planned("PlanBlank-v0 n=2").explanation.to_dict()["environment"]["after"] is None


@pytest.mark.parametrize("name", [name for name in wrappers.names() if name != "mujoco"])
def test_every_wrapper_says_what_it_does_at_an_episodes_end(name: str) -> None:
    said = end_note(wrappers.load(name))
    assert said.endswith(".")
    assert 7 < len(said) <= 110


def test_wrappers_of_the_vector_are_tried_on_as_many_rows_as_there_will_be(tmp_path: Path) -> None:
    text = (
        "env: CartPole-v1\nn: 4\nbackend: dummy\nrender_mode: rgb_array\nwrappers:\n  - "
        "video: {envs: [1, 3]}\n"
    )
    assert plan(PipelineSpec.from_yaml(text)).with_spaces().spaces_at is not None
    with pytest.raises(PlanError, match="envs: expected indices from 0 to 3"):
        plan(PipelineSpec.from_yaml(text.replace("3]", "4]"))).with_spaces()


def test_a_wrapper_may_ask_the_sub_environments_while_it_is_tried() -> None:
    asked = []

    def ask(env: VecEnv) -> VecEnv:
        asked.append(
            (env.get_attr("frameskip"), env.call("get_wrapper_attr", "sticky", indices=[1]))
        )
        return VecEnvWrapper(env)

    planned("PlanBlank-v0 n=3 backend=dummy env_kwargs.frameskip=2", wrappers=[ask]).with_spaces()
    assert asked == [((2, 2, 2), (0.25,))]


def test_the_plan_of_worker_processes_says_how_they_are_shared_out() -> None:
    text = str(planned("PlanBlank-v0 n=3 backend.workers=2 | scale | halve"))
    assert "\n  scale" in text
    assert "   worker" in text
    assert text.endswith(
        "backend shmem: 2 workers, 1 or 2 sub-environments each, started as fresh\n"
        "    interpreters\n"
        "    because workers asks for worker processes"
    )
    assert "1 worker, 3 sub-environments each, started by spawn" in str(
        planned("PlanBlank-v0 n=3 backend=subprocess backend.workers=1 backend.start_method=spawn")
    )


def test_spaces_come_from_one_worker_that_is_closed_again() -> None:
    found = planned("CartPole-v1 n=4 backend=shmem | time_limit:9 | framestack:3").with_spaces()
    assert found.spaces_at is not None
    assert [stage.observation_space.shape for stage in found.spaces_at] == [(4,), (4,), (3, 4)]


def test_looking_at_the_spaces_takes_no_longer_than_a_start_may() -> None:
    late = planned("CartPole-v1 n=2 backend=subprocess backend.start_timeout=1", env=Late)
    with pytest.raises(BackendError, match="did not answer within start_timeout=1 s"):
        late.with_spaces()


def test_a_wrapper_that_refuses_the_environment_is_told_with_its_place() -> None:
    text = (
        "env: PlanBlank-v0\nn: 2\nbackend: dummy\nwrappers:\n  - "
        "gymnasium.wrappers:GrayscaleObservation\n"
    )
    found = plan(PipelineSpec.from_yaml(text, "p.yaml"))
    with pytest.raises(
        PlanError,
        match=r'^p\.yaml:5: wrappers\[0\] "gymnasium\.wrappers:GrayscaleObservation": raised ',
    ):
        found.with_spaces()


def test_a_vector_wrapper_sees_the_mode() -> None:
    seen = []

    def look(env: VecEnv) -> VecEnv:
        seen.append(env.metadata["autoreset_mode"].name)
        return VecEnvWrapper(env)

    planned("PlanBlank-v0 n=2 backend=dummy autoreset=next_step", wrappers=[look]).with_spaces()
    assert seen == ["NEXT_STEP"]


def test_the_page_on_pipelines_shows_what_is_printed() -> None:
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
    line = "CartPole-v1 n=4 seed=1 backend=dummy | time_limit:200 | framestack:4 | monitor"
    assert f"\n{planned(line).with_spaces()}\n" in page


arguments = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
parameters = st.sampled_from(
    ["k", "axis", "padding", "factor", "dir", "lineage", "noop_max", "max_episode_steps", "x"]
)


@settings(
    max_examples=3 * settings.default.max_examples,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "scale",
                    "halve",
                    "framestack",
                    "monitor",
                    "time_limit",
                    "atari",
                    "clip_reward",
                    "nothing",
                ]
            ),
            st.lists(arguments, max_size=2)
            | st.dictionaries(parameters, arguments, max_size=2)
            | arguments,
        ),
        max_size=3,
    ),
    st.dictionaries(
        st.sampled_from(["name", "workers", "daemon", "envs_per_worker", "start_method"]), arguments
    ),
)
def test_any_pipeline_that_can_be_read_has_a_plan_or_an_error_of_ours(
    wrappers: Any, backend: Any
) -> None:
    with contextlib.suppress(VecwrapError):
        str(
            plan(
                PipelineSpec.from_dict(
                    {
                        "env": "CartPole-v1",
                        "n": 2,
                        "backend": backend,
                        "wrappers": [{name: given} for name, given in wrappers],
                    }
                )
            )
        )


@pytest.mark.parametrize(
    ("wrappers", "words"),
    [
        (["atari"], "Accesses the emulator directly"),
        (
            ["gymnasium.wrappers:ClipReward:-1,1", "atari"],
            "Goes through env.step: ClipReward lies between atari",
        ),
        (["atari:direct=false"], "Goes through env.step: direct=False"),
    ],
)
def test_the_plan_says_which_way_atari_takes_to_the_emulator(
    wrappers: list[str], words: str
) -> None:
    pytest.importorskip("ale_py")
    text = str(plan(PipelineSpec("PongNoFrameskip-v4", n=1, wrappers=wrappers)).with_spaces())
    assert words in " ".join(text.split())


def test_the_emulators_banner_is_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ale_py")
    plan(PipelineSpec("PongNoFrameskip-v4", n=2)).with_spaces()
    assert "Arcade" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        (
            {"name": "shmem", "step_timeout": -1},
            "step_timeout: expected seconds above 0, got -1.0; leave it out to",
        ),
        (
            {"name": "subprocess", "reset_timeout": math.nan},
            "reset_timeout: expected seconds above 0, got nan",
        ),
        ({"name": "shmem", "start_timeout": 0}, "start_timeout: expected seconds above 0, got 0.0"),
        (
            {"name": "dummy", "max_restarts": 0},
            "max_restarts: expected at least 1, or null for no limit, got 0",
        ),
        (
            {"name": "shmem", "restart_window": -1},
            "restart_window: expected seconds above 0, or null for the whole",
        ),
        (
            {"name": "shmem", "restart_backoff": math.inf},
            "restart_backoff: expected seconds from 0, got inf",
        ),
    ],
)
def test_numbers_of_a_backend_that_make_no_sense_are_refused_before_anything_starts(
    backend: dict[str, Any], message: str
) -> None:
    with pytest.raises(PlanError) as raised:
        plan(PipelineSpec("PlanBlank-v0", n=2, backend=backend))
    assert str(raised.value).startswith(message)
    text = (
        "env: PlanBlank-v0\nn: 2\nbackend:\n  name: shmem\n  on_failure: restart\n  "
        "max_restarts: -1\n"
    )
    with pytest.raises(PlanError, match=r"^p.yaml:6: backend.max_restarts: expected at least 1"):
        plan(PipelineSpec.from_yaml(text, "p.yaml"))
