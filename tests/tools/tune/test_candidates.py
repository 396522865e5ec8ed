from dataclasses import dataclass, replace

import pytest

from vecwrap.backends.dummy import Dummy
from vecwrap.env.options import Options
from vecwrap.pipeline import registry
from vecwrap.pipeline.evaluation import in_mode
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.tools.tune import BackendKind, Candidate, EnvCost, Situation, backend_kinds, candidates

COST = EnvCost(100e-6, 5e-6, 1000, 1.0, 0.1)  # a step computes, always as long
WAITS = replace(COST, busy=0.02)
PROCESS_OPTIONS = frozenset({"workers", "envs_per_worker", "on_failure", "step_timeout"})
DUMMY = BackendKind("dummy", frozenset({"on_failure"}))
SHMEM = BackendKind("shmem", PROCESS_OPTIONS)
SUBPROCESS = BackendKind("subprocess", PROCESS_OPTIONS)
SHARES = BackendKind("shmem", PROCESS_OPTIONS | {"parent_share"})
NOW = Situation(n=8, cores=2, backend="shmem")


def names(kinds=(DUMMY, SHMEM, SUBPROCESS), now=NOW, cost=COST):
    return [candidate.name for candidate in candidates(kinds, now, cost)]


def test_what_the_pipeline_has_comes_first_and_nothing_comes_twice():
    assert names() == ["shmem", "dummy", "shmem, workers=4", "shmem, workers=1", "shmem, recv of 4", "subprocess"]
    assert names(now=replace(NOW, options={"workers": 4}))[0] == "shmem, workers=4"
    assert names(now=replace(NOW, options={"workers": 4})).count("shmem, workers=4") == 1


def test_where_steps_wait_as_many_workers_as_sub_environments_are_tried():
    assert "shmem, workers=8" not in names()
    assert {"shmem, workers=8", "shmem, workers=8, recv of 4"} <= set(names(cost=WAITS))
    assert "shmem, workers=64" in names(cost=WAITS, now=replace(NOW, n=500))


def test_a_loop_that_receives_batches_already_is_tried_with_other_batches_and_never_with_step():
    found = candidates([DUMMY, SHMEM], replace(NOW, batch_size=4), COST)
    assert all(candidate.batch_size is not None for candidate in found)
    assert {candidate.batch_size for candidate in found} == {2, 4, 8}


def test_a_share_of_the_parent_is_tried_where_the_signature_has_it():
    assert not any("parent_share" in name for name in names())
    assert names(kinds=[DUMMY, SHARES])[:3] == ["shmem", "dummy", "shmem, parent_share=true"]


def test_what_is_shared_by_itself_is_tried_without_and_not_a_second_time_with():
    found = names(kinds=[DUMMY, SHARES], now=replace(NOW, shares=True))
    assert found[:3] == ["shmem", "dummy", "shmem, parent_share=false"]
    assert not any("true" in name for name in found)


@pytest.mark.parametrize("option", [{"step_timeout": 9.0}, {"on_failure": "restart"}])
def test_whoever_asks_for_processes_of_their_own_gets_no_share_of_the_parent(option):
    kind = replace(SHARES)
    assert not any("parent_share" in name for name in names(kinds=[kind], now=replace(NOW, options=option)))


def test_options_of_the_users_stay_and_a_backend_without_them_is_left_out():
    found = candidates([DUMMY, SHMEM], replace(NOW, options={"step_timeout": 9.0, "workers": 3}), COST)
    assert all(candidate.options["step_timeout"] == 9.0 for candidate in found)
    assert found[0].options == {"step_timeout": 9.0, "workers": 3}
    assert not any(candidate.backend == "dummy" for candidate in found)


def test_a_cluster_is_started_for_nobody_who_has_none():
    ray = BackendKind("ray", PROCESS_OPTIONS)
    assert not any(candidate.backend == "ray" for candidate in candidates([DUMMY, SHMEM, ray], NOW, COST))
    assert candidates([DUMMY, SHMEM, ray], replace(NOW, backend="ray"), COST)[0].backend == "ray"


def test_one_sub_environment_asks_for_no_numbers_of_workers():
    assert names(now=Situation(1, 2, "dummy", favourite="dummy")) == ["dummy", "shmem", "subprocess"]


def test_the_processes_of_each_are_foretold():
    found = candidates([DUMMY, SHMEM], NOW, WAITS)
    assert {c.name: c.processes for c in found} == {
        "shmem": 2, "dummy": 0, "shmem, workers=8": 8, "shmem, workers=4": 4, "shmem, workers=1": 1,
        "shmem, workers=8, recv of 4": 8, "shmem, recv of 4": 2,
    }  # fmt: skip
    few = candidates([SHMEM], Situation(8, 2, "shmem", {"envs_per_worker": 3}), COST)
    assert few[0].processes == 3


def test_the_backends_are_all_that_have_a_name_with_their_options():
    kinds = {kind.name: kind for kind in backend_kinds()}
    assert {"dummy", "shmem", "subprocess"} <= kinds.keys()
    assert kinds["shmem"].takes("workers")
    assert not kinds["dummy"].takes("workers")
    assert not kinds["shmem"].takes("seed")  # the pipeline's own


def test_a_backend_of_another_package_is_tried_with_the_options_that_it_has():
    @dataclass(frozen=True)
    class Shared(Options):
        workers: int | None = None
        parent_share: bool = False

    class Sharing(Dummy):
        Options = Shared

    registry.backends.register("sharing", Sharing)
    try:
        (kind,) = [kind for kind in backend_kinds() if kind.name == "sharing"]
    finally:
        registry.backends.unregister("sharing")
    assert kind == BackendKind("sharing", frozenset({"workers", "parent_share"}))
    assert "sharing, parent_share=true" in names(kinds=[kind], now=replace(NOW, backend="sharing", favourite="sharing"))


def test_the_lines_are_read_back_as_the_settings():
    found = candidates([DUMMY, SHARES], replace(NOW, options={"on_failure": "restart", "step_timeout": 0.5}), WAITS)
    for candidate in [*found, *candidates([DUMMY, SHARES], NOW, WAITS)]:
        expected = PipelineSpec("CartPole-v1", n=8, **candidate.settings)
        text = "\n".join(["env: CartPole-v1", "n: 8", *candidate.lines()])
        assert PipelineSpec.from_yaml(text) == expected
        assert PipelineSpec.parse(f"CartPole-v1 n=8 {candidate.in_a_line()}") == expected


def test_the_lines_of_an_evaluation_change_the_evaluation_alone():
    training = "env: CartPole-v1\nn: 8\nbackend: {name: subprocess, workers: 3}\nbatch_size: 4"
    candidate = Candidate("shmem", {"workers": 4, "on_failure": "restart"}, 2)
    pasted = PipelineSpec.from_yaml("\n".join([training, *candidate.lines(evaluation=True)]))
    assert in_mode(pasted, "train") == pasted
    assert pasted.override(eval={}) == PipelineSpec.from_yaml(training)
    expected = PipelineSpec("CartPole-v1", n=8, training=False, **candidate.settings)
    assert in_mode(pasted, "eval") == expected
    line = "CartPole-v1 n=8 backend=subprocess backend.workers=3 batch_size=4"
    assert PipelineSpec.parse(f"{line} {candidate.in_a_line(evaluation=True)}") == pasted


@pytest.mark.parametrize(
    "candidate",
    [
        Candidate("mybk:Mine"),
        Candidate("mybk:Mine", {"workers": 2}, 4),
        Candidate("shmem", {"step_timeout": float("inf"), "start_method": "on"}),
        Candidate("shmem", {"note": "a b, c: #d", "empty": None}),
    ],
)
def test_import_paths_and_unusual_values_are_read_back_too(candidate):
    expected = PipelineSpec("CartPole-v1", **candidate.settings)
    assert PipelineSpec.from_yaml("\n".join(["env: CartPole-v1", *candidate.lines()])) == expected
    assert PipelineSpec.parse(f"CartPole-v1 {candidate.in_a_line()}") == expected


@pytest.mark.parametrize("value", [[1, "two"], [], {"a": [1]}, {}])
def test_what_no_line_can_hold_has_none_but_lines_of_a_file(value):
    candidate = Candidate("shmem", {"mine": value}, 4)
    expected = PipelineSpec("CartPole-v1", **candidate.settings)
    assert PipelineSpec.from_yaml("\n".join(["env: CartPole-v1", *candidate.lines()])) == expected
    assert candidate.in_a_line() is None
