"""Several wrappers under one name: how they are planned, shown, written and refused."""

import pytest

import vecwrap
from vecwrap.cli.names import wrapper_rows
from vecwrap.errors import PlanError, SpecError
from vecwrap.pipeline import registry
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.wrappers.presets import Preset


@Preset
def short(limit: int = 50, k: int = 2):
    """Cut episodes short, and stack.

    Args:
        limit: how short.
    """
    return [{"time_limit": limit}, f"framestack:{k}"]


@Preset
def shorter(limit: int):
    """A preset in a preset."""
    return [{f"{__name__}:short": {"limit": limit, "k": 3}}, "monitor"]


@Preset
def endless():
    return ["clip_reward", endless]


@Preset
def nothing():
    return []


@pytest.fixture(autouse=True)
def _names():
    registry.register_wrapper("short", short)
    registry.register_wrapper("shorter", shorter)
    yield
    registry.wrappers.unregister("short")
    registry.wrappers.unregister("shorter")


def planned(line, **changes):
    return plan(PipelineSpec.parse(f"CartPole-v1 n=2 backend=dummy {line}").override(**changes))


def names(checked):
    return [wrapper.spec.name for wrapper in checked.wrappers]


@pytest.mark.parametrize(
    "form",
    ["short:9", "short:limit=9", {"short": 9}, {"short": {"limit": 9}}, f"{__name__}:short:9"],
)
def test_the_plan_puts_the_wrappers_in_its_place(form):
    checked = planned("", wrappers=[form, "clip_reward"])
    assert names(checked) == ["time_limit", "framestack", "clip_reward"]
    assert checked.pipeline.wrapper_names == ("time_limit", "framestack", "clip_reward")
    assert checked.pipeline.wrappers[0].kwargs == {"max_episode_steps": 9}
    assert checked.wrappers[0].bound.kwargs == {"max_episode_steps": 9}


def test_the_round_trip_is_intact():
    spec = PipelineSpec.parse("CartPole-v1 n=2 | short:9 | clip_reward")
    assert PipelineSpec.parse(spec.format()) == spec
    assert PipelineSpec.from_yaml(spec.to_yaml()) == spec
    resolved = plan(spec).pipeline
    assert (
        resolved == planned("| time_limit:9 | framestack:2 | clip_reward", backend="auto").pipeline
    )
    again = plan(PipelineSpec.from_yaml(resolved.to_yaml())).pipeline
    assert (again, again.hash) == (resolved, resolved.hash)
    assert PipelineSpec.parse(resolved.format()) == resolved


def test_the_hash_is_that_of_its_wrappers():
    assert (
        planned("| short:9").pipeline.hash == planned("| time_limit:9 | framestack:2").pipeline.hash
    )
    assert planned("| short:9").pipeline.hash != planned("| short:8").pipeline.hash
    assert planned("| short:50").pipeline.hash == planned("| short").pipeline.hash
    assert (
        planned("| shorter:9").pipeline.hash
        == planned("| time_limit:9 | framestack:3 | monitor").pipeline.hash
    )


def test_a_preset_may_hold_presets_and_be_an_object():
    assert names(planned("| shorter:9")) == ["time_limit", "framestack", "monitor"]
    assert names(planned("", wrappers=[short, nothing])) == ["time_limit", "framestack"]


@pytest.mark.parametrize("backend", ["dummy", "subprocess", "shmem"])
def test_it_is_built_as_its_wrappers_are(backend):
    with vecwrap.build("CartPole-v1", 2, ["short:3"], backend=backend) as env:
        assert env.reset(seed=1)[0].shape == (2, 2, 4)
        truncations = [env.step([0, 1])[3].all() for _ in range(3)]
        assert truncations == [False, False, True]
        assert repr(env).endswith("wrappers time_limit > framestack>")


def test_explain_and_list_show_that_it_is_one_and_of_what():
    text = str(planned("| short:9 | monitor").with_spaces())
    assert text.count("part of the preset short") == 2
    assert text.count("max_episode_steps=9") == 1
    rows = {row.name: row for row in wrapper_rows()}
    assert (rows["short"].where, rows["short"].wrappers) == (
        "preset",
        "time_limit:50 | framestack:2",
    )
    assert rows["short"].summary == "Cut episodes short, and stack."
    assert [str(parameter) for parameter in rows["short"].parameters] == [
        "limit: int = 50",
        "k: int = 2",
    ]
    assert rows["short"].help == {"limit": "how short."}
    # It needs an argument.
    assert (rows["shorter"].where, rows["shorter"].wrappers) == (
        "preset",
        "",
    )
    assert rows["mujoco"].wrappers.startswith("clip_action | normalize")


@pytest.mark.parametrize(
    ("wrappers", "error", "message"),
    [
        (
            ["short:nine"],
            SpecError,
            'wrappers[0] "short", argument limit: expected int, got "nine".',
        ),
        (
            ["short:limits=9"],
            SpecError,
            'wrappers[0] "short", argument limits: unknown argument. Did you mean "limit"? '
            "It takes (limit: int = 50, k: int = 2).",
        ),
        (
            ["shorter"],
            SpecError,
            'wrappers[0] "shorter": the argument limit: int is missing.',
        ),
        ([endless], PlanError, "expected wrappers, got a preset that holds itself."),
        (
            ["monitor", "short"],
            PlanError,
            'wrappers[1].short[0] "time_limit": it wraps each sub-environment',
        ),
        ([Preset(lambda: 3)], PlanError, "expected a list of wrappers, got 3"),
        (
            [Preset(lambda: None)],
            PlanError,
            "expected a list of wrappers from the preset's function, got null; let it",
        ),
        (
            [Preset(lambda: {"monitor": {}})],
            PlanError,
            "the preset's function, got {monitor: {}}; let it return [",
        ),
        ([Preset(lambda: 1 / 0)], PlanError, "ZeroDivisionError"),
        (
            [Preset(lambda: ["framestak"])],
            SpecError,
            '"framestak": unknown wrapper. Did you mean "framestack"?',
        ),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(wrappers, error, message):
    with pytest.raises(error) as raised:
        planned("", wrappers=wrappers)
    assert message in str(raised.value)


def test_a_wrapper_that_refuses_is_told_with_the_line_of_the_preset():
    text = "env: CartPole-v1\nn: 2\nbackend: dummy\nwrappers:\n  - short: {k: 0}\n"
    with pytest.raises(
        PlanError,
        match=r'^p\.yaml:5: wrappers\[0\]\.short\[1\] "framestack": .*expected at least 1',
    ):
        plan(PipelineSpec.from_yaml(text, "p.yaml")).with_spaces()
