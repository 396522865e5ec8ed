"""Settings over a pipeline, by keys with dots: in Python, and where they were written."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vecwrap
from vecwrap.errors import PlanError, SpecError
from vecwrap.pipeline.fields import KEYS, other_name
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.source_map import SourceLocation
from vecwrap.pipeline.spec import PipelineSpec, overridden

BASE: dict[str, Any] = {
    "env": "CartPole-v1",
    "n": 4,
    "backend": {"name": "shmem", "workers": 2},
    "env_kwargs": {"size": {"width": 3, "height": 4}, "map": "small"},
    "wrappers": [
        {"time_limit": {"max_episode_steps": 200}},
        {"framestack": {"k": 4, "padding": "first"}},
        {"monitor": {"dir": "runs"}},
        {"my.wrappers:Scale": {"factor": 2.0, "bounds": {"low": 0, "high": 1}}},
        {"monitor": {"dir": "more"}},
    ],
    "eval": {"n": 1, "wrappers": {"framestack": {"padding": "zero"}}},
}
PLACES = [
    (("env",), "env"),
    (("n",), "n"),
    (("seed",), "seed"),
    (("backend", "workers"), "backend.workers"),
    (("backend", "daemon"), "daemon"),
    (("env_kwargs",), "env_kwargs"),
    (("env_kwargs", "map"), "env_kwargs.map"),
    (("env_kwargs", "size", "width"), "env_kwargs.size.width"),
    (("env_kwargs", "new", "deep"), "env_kwargs.new.deep"),
    (("wrappers", 0, "time_limit", "max_episode_steps"), "wrappers.time_limit.max_episode_steps"),
    (("wrappers", 1, "framestack", "k"), "wrappers.framestack.k"),
    (("wrappers", 1, "framestack", "keys"), "wrappers.1.keys"),
    (("wrappers", 1, "framestack"), "wrappers.framestack"),
    (("wrappers", 3, "my.wrappers:Scale", "factor"), "wrappers.Scale.factor"),
    (("wrappers", 3, "my.wrappers:Scale", "bounds"), "wrappers.3.bounds"),
    (("wrappers", 3, "my.wrappers:Scale", "bounds", "low"), "wrappers.Scale.bounds.low"),
    (("wrappers", 4, "monitor", "dir"), "wrappers.4.dir"),
    (("wrappers", 4), "wrappers.4"),
    (("eval", "n"), "eval.n"),
    (("eval", "wrappers", "framestack", "padding"), "eval.wrappers.framestack.padding"),
    (("eval", "wrappers", "monitor", "dir"), "eval.wrappers.monitor.dir"),
    (("eval", "seed"), "eval.seed"),
]
VALUES: dict[str, Any] = {
    "env": "Acrobot-v1",
    "env_kwargs": {"other": 1},
    "wrappers.framestack": {"k": 9},
    "wrappers.3.bounds": {"low": -1},
    "wrappers.4": {"monitor": {"per_env": True}},
}


def assigned(data: Any, steps: tuple[Any, ...], value: Any) -> Any:
    """Give nested data with one place assigned to, by hand."""
    if not steps:
        return value
    if isinstance(data, list):
        return [
            assigned(part, steps[1:], value) if i == steps[0] else part
            for i, part in enumerate(data)
        ]
    data = data if isinstance(data, dict) else {}
    return {**data, steps[0]: assigned(data.get(steps[0]), steps[1:], value)}


@pytest.mark.parametrize(("steps", "key"), PLACES, ids=[key for _, key in PLACES])
def test_a_key_with_dots_replaces_what_stands_there_and_nothing_else(
    steps: tuple[Any, ...], key: str
) -> None:
    value = VALUES.get(key, 7)
    changed = PipelineSpec.from_dict(BASE).override(**{key: value})
    assert changed == PipelineSpec.from_dict(assigned(BASE, steps, value))
    assert changed != PipelineSpec.from_dict(BASE)


def test_a_wrapper_that_is_an_import_path_is_found_by_its_last_part_or_its_number() -> None:
    spec = PipelineSpec(
        "CartPole-v1", n=1, wrappers=["gymnasium.wrappers:TimeLimit:9", "my_wrappers:Outer.In:k=1"]
    )
    changed = spec.override(**{"wrappers.TimeLimit.max_episode_steps": 7, "wrappers.1.k": 2})
    assert [str(wrapper) for wrapper in changed.wrappers] == [
        "gymnasium.wrappers:TimeLimit:max_episode_steps=7",
        "my_wrappers:Outer.In:k=2",
    ]
    with pytest.raises(
        SpecError,
        match=r"no such wrapper\. They are gymnasium\.wrappers:TimeLimit, my_wrappers:Out",
    ):
        spec.override(**{"wrappers.gymnasium.wrappers:TimeLimit.max_episode_steps": 7})


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(PLACES), max_size=5, unique=True), st.randoms(use_true_random=False)
)
def test_in_whatever_order_they_are_given_the_whole_comes_before_its_parts(
    chosen: Any, random: Any
) -> None:
    data = BASE
    for steps, key in sorted(
        chosen, key=lambda place: place[1].count(".") + (place[1] == "daemon")
    ):
        data = assigned(data, steps, VALUES.get(key, 7))
    random.shuffle(chosen)
    overrides = {key: VALUES.get(key, 7) for _, key in chosen}
    assert PipelineSpec.from_dict(BASE).override(**overrides) == PipelineSpec.from_dict(data)


@pytest.mark.parametrize("key", ["agents.pad", "eval.agents.pad"])
def test_padding_is_set_by_its_key(key: str) -> None:
    spec = PipelineSpec("CartPole-v1").override(**{key: True})
    assert (spec.eval if key.startswith("eval") else spec.to_dict())["agents"] == {"pad": True}


def test_an_argument_is_found_by_name_though_it_was_given_without() -> None:
    spec = PipelineSpec.parse(
        "CartPole-v1 | time_limit:9 | framestack:4,padding=first | mujoco | clip_reward:-1"
    )
    changed = spec.override(
        **{
            "wrappers.framestack.k": 2,
            "wrappers.time_limit.max_episode_steps": 5,
            "wrappers.mujoco.gamma": 0.9,
            "wrappers.clip_reward.high": 2.0,
        }
    )
    assert str(changed) == (
        "CartPole-v1 | time_limit:max_episode_steps=5 | framestack:k=2,padding=first | "
        "mujoco:gamma=0.9 | clip_reward:-1,high=2.0"
    )


def test_what_was_given_stays_as_it_was() -> None:
    spec, size = PipelineSpec.from_dict(BASE), {"width": 9}
    changed = spec.override(**{"env_kwargs.size": size})
    size["width"] = 10
    assert spec == PipelineSpec.from_dict(BASE)
    assert changed.env_kwargs["size"] == {"width": 9}


def test_no_key_of_a_pipeline_is_another_librarys_word_for_something() -> None:
    assert [key for key in KEYS if other_name(key)] == []


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"wrapers.framestack.k": 2}, 'wrapers: unknown key. Did you mean "wrappers"?'),
        ({"framestack.k": 2}, 'framestack.k: unknown key. Did you mean "wrappers.framestack.k"?'),
        ({"num_envs": 2}, "num_envs: unknown key. The number of sub-environments is called n."),
        ({"worker": 2}, 'worker: unknown key. Did you mean "workers"?'),
        ({"n.x": 2}, "n: expected int, got {x: 2}."),
        (
            {"wrappers.framestak.k": 2},
            'wrappers.framestak: there is no such wrapper. Did you mean "framestack"?',
        ),
        (
            {"wrappers.xyz.k": 2},
            "wrappers.xyz: there is no such wrapper. They are time_limit, framestack, monitor, "
            "my.wrappers:Scale, monitor, inner first.",
        ),
        (
            {"wrappers.monitor.dir": 2},
            (
                "wrappers.monitor: there are 2 wrappers of this name. Say which by its number: "
                "wrappers.2 or wrappers.4."
            ),
        ),
        (
            {"wrappers.9.dir": 2},
            "wrappers.9: there are 5 wrappers, numbered from 0. They are time_limit, framestack,",
        ),
        (
            {"wrappers.framestack.2": 2},
            'wrappers.framestack: expected the name of an argument, got "2".',
        ),
        (
            {"wrappers.framestack.*": 2},
            'wrappers.framestack: expected the name of an argument, got "*".',
        ),
        ({"backend.name": 3}, "backend.name: expected the name of a backend, got 3."),
        ({"eval.nn": 3}, 'eval.nn: unknown key. Did you mean "n"?'),
        ({"eval.wrappers": 3}, "eval.wrappers: expected a list of wrappers, got 3."),
        ({"eval": 3}, "eval: expected a mapping of what differs in an evaluation, got 3."),
        ({"training": 1}, "training: expected true or false, got 1."),
        ({"stats": 1}, "stats: expected a path, got 1."),
    ],
)
def test_a_key_that_leads_nowhere_says_what_is_near(
    overrides: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError) as error:
        PipelineSpec.from_dict(BASE).override(**overrides)
    assert str(error.value).startswith(message)


def test_errors_say_where_a_setting_was_written() -> None:
    spec = PipelineSpec.from_yaml(
        "env: CartPole-v1\nn: 4\nwrappers:\n  - framestack: 4\n  - monitor\n", "p.yaml"
    )
    changes = {"n": 0, "wrappers.framestack.k": "x", "seed": 3}
    places = {
        "n": SourceLocation("--set"),
        "wrappers.framestack.k": SourceLocation("--set"),
        "seed": SourceLocation("--seed"),
    }
    changed = overridden(spec, changes, places)
    assert (changed.where("n"), changed.where("seed")) == ("--set: n", "--seed: seed")
    assert changed.where("wrappers") == "p.yaml:3: wrappers"
    assert changed.wrappers[0].where == 'p.yaml:4: wrappers[0] "framestack"'
    assert changed.wrappers[0].where_argument("k") == '--set: wrappers[0] "framestack", argument k'
    assert changed.wrappers[1].where == 'p.yaml:5: wrappers[1] "monitor"'
    with pytest.raises(
        PlanError, match=r"^--set: n: expected at least 1 sub-environment, got 0\.\n--set: wrappers"
    ):
        plan(changed)
    with pytest.raises(
        SpecError, match=r'^--set: wrappers\[0\] "framestack", argument k: expected int, got "x"\.$'
    ):
        plan(changed.override(n=1))


def test_paths_are_relative_to_where_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("in/p.yaml").write_text(
        "env: CartPole-v1\nwrappers: [monitor: runs, video: {dir: v}]\nstats: s.npz\n"
    )
    spec = PipelineSpec.load("in/p.yaml")
    planned = plan(spec).pipeline
    assert [
        planned.wrappers[0].kwargs["dir"],
        planned.wrappers[1].kwargs["dir"],
        planned.stats,
    ] == [str(tmp_path / "in" / name) for name in ("runs", "v", "s.npz")]
    planned = plan(
        spec.override(
            **{"wrappers.monitor.dir": "mine", "stats": "s.npz", "wrappers.video.fps": 3.0}
        )
    ).pipeline
    assert [
        planned.wrappers[0].kwargs["dir"],
        planned.wrappers[1].kwargs["dir"],
        planned.stats,
    ] == [
        str(tmp_path / "mine"),
        str(tmp_path / "in" / "v"),
        str(tmp_path / "s.npz"),
    ]


def test_load_takes_the_same_keys(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("env: CartPole-v1\nn: 2\nwrappers: [framestack: 4]\n")
    with vecwrap.load(
        tmp_path / "p.yaml", backend="dummy", n=3, **{"wrappers.framestack.k": 2}
    ) as env:
        assert env.observation_space.shape == (3, 2, 4)


def test_a_line_says_nested_settings_with_dots_too() -> None:
    line = (
        "CartPole-v1 n=2 env_kwargs.size.width=3 backend=shmem backend.workers=2 eval.n=1 "
        "eval.backend=dummy | flatten"
    )
    spec = PipelineSpec.parse(line)
    assert spec.env_kwargs == {"size": {"width": 3}}
    assert spec.to_dict()["eval"] == {"n": 1, "backend": "dummy"}
    assert PipelineSpec.parse(spec.format()) == spec
    for wrong, message in (
        ("CartPole-v1 wrappers=flatten", "wrappers: wrappers and their arguments stand after bars"),
        (
            "CartPole-v1 wrappers.flatten.x=9 | flatten",
            "wrappers.flatten.x: wrappers and their arguments stand after bars",
        ),
        ("CartPole-v1 n.x=3", "n: expected int, got {x: 3}."),
        ("CartPole-v1 backend=shmem backend.name=dummy", "backend: is given twice"),
    ):
        with pytest.raises(SpecError) as error:
            PipelineSpec.parse(wrong)
        assert str(error.value).startswith(message)
