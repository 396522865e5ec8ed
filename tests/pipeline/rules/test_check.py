"""Looking for mistakes in Python: what is taken, in which order it is told, and what cannot be
looked at.
"""

import re
from pathlib import Path

import gymnasium
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import vecwrap
from vecwrap.errors import CheckpointError, PlanError, SpecError

FILE = """env: Pendulum-v1
n: 2
backend: dummy
wrappers:
  - rescale_action
  - scale_reward: 0.1
  - framestack:
      k: 4
  - normalize
  - video
"""


def ids(pipeline, **changes):
    return [finding.id for finding in vecwrap.check(pipeline, **changes)]


def test_findings_are_in_the_order_of_the_pipeline_with_file_line_and_wrapper(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(FILE)
    found = vecwrap.check(file)
    assert [(f.id, f.line, f.wrapper, f.severity) for f in found] == [
        ("reward_inside_normalize", 6, "scale_reward", "warning"),
        ("zero_padding", 7, "framestack", "warning"),
        ("normalize_stack", 9, "normalize", "warning"),
        ("refused", 10, "video", "error"),
    ]
    assert {f.file for f in found} == {str(file)}
    assert found[0].where == f'{file}:6: wrappers[1] "scale_reward"'
    assert str(found[3]).startswith(
        f'{file}:10: wrappers[4] "video": error refused: expected an environment built '
    )


def test_what_stands_in_a_file_that_is_extended_is_found_there(tmp_path):
    (tmp_path / "base.yaml").write_text(
        "env: CartPole-v1\nbackend: dummy\nwrappers:\n  - framestack: 4\n  - flatte\n"
    )
    (tmp_path / "p.yaml").write_text("extends: base.yaml\nn: 2\n")
    (unknown,) = vecwrap.check(tmp_path / "p.yaml")
    assert (unknown.id, Path(unknown.file).name, unknown.line) == ("refused", "base.yaml", 5)
    (tmp_path / "p.yaml").write_text("extends: base.yaml\nn: 2\nwrappers:\n  - framestack: 4\n")
    (padding,) = vecwrap.check(tmp_path / "p.yaml")
    assert (padding.id, Path(padding.file).name, padding.line) == ("zero_padding", "p.yaml", 4)


def test_what_cannot_be_a_wrapper_of_the_evaluation_is_found_where_the_evaluation_is_meant(
    tmp_path,
):
    wrapper = "gymnasium.wrappers.vector:RecordEpisodeStatistics"
    file = tmp_path / "p.yaml"
    file.write_text(f"env: CartPole-v1\nn: 2\nbackend: dummy\neval: {{wrappers: ['{wrapper}']}}\n")
    for mode in ("train", "eval"):
        (found,) = vecwrap.check(file, mode=mode)
        assert (found.id, found.severity, found.file, found.line) == (
            "refused",
            "error",
            str(file),
            4,
        )
        assert "RecordEpisodeStatistics wraps one of Gymnasium" in found.reason
    (found,) = vecwrap.check(
        {"env": "CartPole-v1", "n": 2, "eval": {"wrappers": [wrapper]}}, mode="eval"
    )
    assert (found.id, found.file, found.line) == ("refused", "", None)


@pytest.mark.parametrize(
    "form",
    [
        "CartPole-v1 n=2 backend=dummy | framestack:4",
        {"env": "CartPole-v1", "n": 2, "backend": "dummy", "wrappers": ["framestack:4"]},
        vecwrap.PipelineSpec.parse("CartPole-v1 n=2 backend=dummy | framestack:4"),
    ],
)
def test_every_form_that_build_takes_is_taken(form):
    assert ids(form) == ["zero_padding"]
    with vecwrap.build(form) as env:
        assert ids(env) == ["zero_padding"]
    assert ids(form, wrappers=[]) == []


def test_callables_are_taken_with_their_wrappers():
    cart = {"n": 2, "backend": "dummy", "wrappers": ["framestack:4"]}
    assert ids(lambda: gymnasium.make("CartPole-v1"), **cart) == ["zero_padding"]


def test_several_wrappers_that_are_refused_are_all_told():
    found = vecwrap.check(
        "CartPole-v1 n=2 backend=dummy | framestak:4 | time_limit:ten | monitor | flaten"
    )
    assert [(f.id, f.wrapper) for f in found] == [
        ("refused", "framestak"),
        ("refused", "time_limit"),
        ("refused", "flaten"),
    ]


def test_a_wrong_order_is_told():
    (finding,) = vecwrap.check("CartPole-v1 n=2 backend=dummy | monitor | time_limit:9")
    assert (finding.id, finding.wrapper) == ("refused", "time_limit")
    assert 'Move "time_limit" before "monitor"' in finding.reason


def test_outside_of_a_wrapper_that_refuses_nothing_is_said():
    found = vecwrap.check(
        "CartPole-v1 n=2 backend=dummy | framestack:2 | transpose | normalize_obs"
    )
    assert [(f.id, f.wrapper) for f in found] == [
        ("zero_padding", "framestack"),
        ("refused", "transpose"),
    ]
    assert found[1].reason.startswith(
        "expected observations of a Box of shape (height, width, channels)"
    )


@pytest.mark.parametrize("backend", ["dummy", "subprocess"])
def test_a_wrapper_that_refuses_inside_of_a_sub_environment_is_told_too(backend):
    found = vecwrap.check(
        f"Pendulum-v1 n=2 backend={backend} | noop_reset | sticky_actions:0 | flatten"
    )
    assert [(f.id, f.wrapper, f.place) for f in found] == [
        ("refused", "noop_reset", 'wrappers[0] "noop_reset"')
    ]
    assert found[0].reason.startswith("expected discrete actions that begin with NOOP")


def test_an_environment_that_cannot_be_made_is_told_and_the_rest_looked_at():
    def broken():
        raise OSError("the ROM is lost")

    found = vecwrap.check(
        broken, n=2, backend="dummy", wrappers=["normalize_reward", "normalize_reward"]
    )
    assert [f.id for f in found] == ["unmakeable", "normalize_twice"]
    assert "the ROM is lost" in found[0].reason


def test_an_unknown_environment_and_a_wrong_argument_of_it():
    assert ids("CartPol-v1 n=2 backend=dummy | flatten") == ["refused"]
    (finding,) = vecwrap.check("CartPole-v1 n=2 backend=dummy env_kwargs.sutton=true")
    assert finding.id == "refused"
    assert "sutton_barto_reward" in finding.reason


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "no such file"), (b"garbage", "not a state that vecwrap saved")]
)
def test_statistics_that_a_training_cannot_begin_with_are_told(content, reason, tmp_path):
    file, stats = tmp_path / "p.yaml", tmp_path / "s.npz"
    file.write_text(
        "env: Pendulum-v1\nn: 1\nbackend: dummy\nstats: s.npz\nwrappers: [normalize]\neval: {n: "
        "1}\n"
    )
    if content is not None:
        stats.write_bytes(content)
    (finding,) = vecwrap.check(file)
    assert (finding.id, finding.severity, finding.place, finding.line) == (
        "refused",
        "error",
        "stats",
        4,
    )
    assert finding.reason.startswith(f"{stats}: {reason}")
    with pytest.raises(CheckpointError, match=reason):
        vecwrap.load(file)
    assert vecwrap.check(file, mode="eval") == ()  # its training may write them yet
    with vecwrap.build("Pendulum-v1", 1, ["normalize"], backend="dummy") as training:
        training.reset(seed=1)
        training.save(stats)
    assert vecwrap.check(file) == ()


@pytest.mark.parametrize(
    "pipeline", ["no-such.yaml", "| flatten", {"n": 2}, {"env": "CartPole-v1", "seeed": 1}]
)
def test_what_cannot_be_read_is_told(pipeline):
    assert ids(pipeline) == ["unreadable"]


def test_ignore_leaves_out_what_is_meant_so():
    line = "CartPole-v1 n=2 backend=dummy | framestack:4 | normalize_obs"
    assert ids(line) == ["zero_padding", "normalize_stack"]
    assert ids(line, ignore=["normalize_stack"]) == ["zero_padding"]
    with pytest.raises(
        SpecError, match='a list of findings, got "zero_padding"; write \\["zero_padding"\\]'
    ):
        ids(line, ignore="zero_padding")
    with pytest.raises(
        SpecError, match='there is no finding "zero_pading"\\. Did you mean "zero_padding"\\?'
    ):
        vecwrap.check(line, ignore=["zero_pading"])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("changes_nothing", "a wrapper that changes nothing is no longer reported"),
        ("flatten_inside_stack", "flatten inside a stack is no longer reported"),
        ("monitors_share_folder", "build refuses it, and check no longer looks into folders"),
        ("no_render_mode", 'what build refuses is reported as "refused", which cannot be ignored'),
        ("no_seed", "a pipeline without a seed is no longer reported"),
        ("restarts_not_asked_for", "limits on restarts without restarts are no longer reported"),
    ],
)
def test_a_list_to_ignore_may_still_name_what_is_no_longer_found(name, reason):
    with pytest.raises(SpecError, match=re.escape(f'"{name}" any more: {reason}; leave it out')):
        vecwrap.check("CartPole-v1", ignore=[name])


def test_the_argument_that_asked_for_a_seed_is_refused():
    with pytest.raises(SpecError, match="strict: it added a finding for a missing seed"):
        vecwrap.check("CartPole-v1", strict=True)


def test_the_evaluation_is_another_pipeline():
    both = {
        "env": "CartPole-v1",
        "n": 2,
        "backend": "dummy",
        "eval": {"wrappers": ["framestack:4"]},
    }
    assert ids(both) == []
    assert ids(both, mode="eval") == ["zero_padding"]


def test_building_says_nothing_of_warnings():
    line = "CartPole-v1 n=2 backend=dummy | framestack:4 | normalize_obs"
    assert len(ids(line)) == 2
    vecwrap.build(line).close()  # warnings are errors here


@pytest.mark.parametrize("backend", ["dummy", "shmem"])
def test_checking_steps_nothing_writes_nothing_and_leaves_nothing_behind(
    backend, tmp_path, monkeypatch
):
    before = psutil.Process().children()
    monkeypatch.chdir(tmp_path)
    line = (
        f"vecwrap.testing:ToyEnv n=3 backend={backend} render_mode=rgb_array | monitor:a | video:b"
    )
    assert ids(line) == []
    assert list(Path().iterdir()) == []
    assert psutil.Process().children() == before


WRAPPERS = (
    "atari",
    "check_nan",
    "clip_action",
    "clip_reward",
    "clip_reward:2,1",
    "dtype:float32",
    "dtype:int8",
    "extract_obs:a",
    "extract_obs:camera",
    {"filter_obs": {"keys": ["a"]}},
    "flatten",
    "frame_skip:2",
    "framestack:2",
    "framestack:0",
    {"framestack": {"k": 2, "keys": ["a"]}},
    "grayscale",
    "monitor",
    "mujoco",
    "no_such_wrapper",
    "normalize",
    "normalize_obs:integers=true",
    {"normalize_obs": {"keys": ["a"]}},
    "normalize_reward",
    "rescale_action",
    "resize:4",
    "scale_obs",
    "scale_reward:2",
    "scale_reward",
    "sticky_actions",
    "terminal_obs",
    "tile",
    "time_aware:limit=5",
    "time_limit:9",
    "transpose",
    "video",
    "gymnasium.wrappers:FrameStackObservation:2",
    "gymnasium.wrappers:NormalizeObservation",
)
OBSERVATIONS = ("box_float32", "box_uint8", "discrete", "dict", "nested", "mixed")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(OBSERVATIONS),
    st.sampled_from(["discrete", "box_float32"]),
    st.sampled_from([None, "rgb_array"]),
    st.lists(st.sampled_from(WRAPPERS), max_size=4),
)
def test_there_is_an_error_exactly_where_build_refuses(
    observations, actions, render_mode, wrappers
):
    pipeline = {
        "env": "vecwrap.testing:ToyEnv",
        "n": 2,
        "backend": "dummy",
        "env_kwargs": {"observations": observations, "actions": actions},
        "render_mode": render_mode,
        "wrappers": wrappers,
    }
    errors = [finding for finding in vecwrap.check(pipeline) if finding.severity == "error"]
    refusal = None
    try:
        vecwrap.build(pipeline).close()
    except (SpecError, PlanError) as error:
        refusal = error
    assert bool(errors) == (refusal is not None), f"found: {errors}; build says: {refusal}"
