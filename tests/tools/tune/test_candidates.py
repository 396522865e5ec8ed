from dataclasses import dataclass, replace

import pytest

from vecwrap.backends.dummy import Dummy
from vecwrap.env.options import Options
from vecwrap.pipeline import registry
from vecwrap.pipeline.evaluation import in_mode
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.tools.tune import Candidate, EnvCost, Situation, backend_options, candidates

COST = EnvCost(100e-6, 1000, 1.0, 0.1)  # a step computes
WAITS = replace(COST, busy=0.02)
PROCESS_OPTIONS = frozenset({"workers", "envs_per_worker", "on_failure", "step_timeout"})
DUMMY = {"dummy": frozenset({"on_failure"})}
SHMEM = {"shmem": PROCESS_OPTIONS}
SUBPROCESS = {"subprocess": PROCESS_OPTIONS}
SHARES = {"shmem": PROCESS_OPTIONS | {"parent_share"}}
NOW = Situation(n=8, cores=2, backend="shmem")


def names(backends=DUMMY | SHMEM | SUBPROCESS, now=NOW, cost=COST):
    return [candidate.name for candidate in candidates(backends, now, cost)]


def test_what_the_pipeline_has_comes_first_and_nothing_comes_twice():
    assert names() == ["shmem", "dummy", "shmem, workers=4", "shmem, workers=1", "subprocess"]
    assert names(now=replace(NOW, options={"workers": 4}))[0] == "shmem, workers=4"
    assert names(now=replace(NOW, options={"workers": 4})).count("shmem, workers=4") == 1


def test_where_steps_wait_as_many_workers_as_sub_environments_are_tried():
    assert "shmem, workers=8" not in names()
    assert "shmem, workers=8" in names(cost=WAITS)
    assert "shmem, workers=64" in names(cost=WAITS, now=replace(NOW, n=500))


def test_a_share_of_the_parent_is_tried_where_the_signature_has_it():
    assert not any("parent_share" in name for name in names())
    assert names(backends=DUMMY | SHARES)[:3] == ["shmem", "dummy", "shmem, parent_share=true"]


def test_what_is_shared_by_itself_is_tried_without_and_not_a_second_time_with():
    found = names(backends=DUMMY | SHARES, now=replace(NOW, shares=True))
    assert found[:3] == ["shmem", "dummy", "shmem, parent_share=false"]
    assert not any("true" in name for name in found)


@pytest.mark.parametrize("option", [{"step_timeout": 9.0}, {"on_failure": "restart"}])
def test_whoever_asks_for_processes_of_their_own_gets_no_share_of_the_parent(option):
    assert not any("parent_share" in name for name in names(backends=SHARES, now=replace(NOW, options=option)))


def test_options_of_the_users_stay_and_a_backend_without_them_is_left_out():
    found = candidates(DUMMY | SHMEM, replace(NOW, options={"step_timeout": 9.0, "workers": 3}), COST)
    assert all(candidate.options["step_timeout"] == 9.0 for candidate in found)
    assert found[0].options == {"step_timeout": 9.0, "workers": 3}
    assert not any(candidate.backend == "dummy" for candidate in found)


def test_a_cluster_is_started_for_nobody_who_has_none():
    ray = {"ray": PROCESS_OPTIONS}
    assert not any(candidate.backend == "ray" for candidate in candidates(DUMMY | SHMEM | ray, NOW, COST))
    assert candidates(DUMMY | SHMEM | ray, replace(NOW, backend="ray"), COST)[0].backend == "ray"


def test_one_sub_environment_asks_for_no_numbers_of_workers():
    assert names(now=Situation(1, 2, "dummy", favourite="dummy")) == ["dummy", "shmem", "subprocess"]


def test_the_processes_of_each_are_foretold():
    found = candidates(DUMMY | SHMEM, NOW, WAITS)
    assert {c.name: c.processes for c in found} == {
        "shmem": 2, "dummy": 0, "shmem, workers=8": 8, "shmem, workers=4": 4, "shmem, workers=1": 1,
    }  # fmt: skip
    few = candidates(SHMEM, Situation(8, 2, "shmem", {"envs_per_worker": 3}), COST)
    assert few[0].processes == 3


def test_the_backends_are_all_that_have_a_name_with_their_options():
    found = backend_options()
    assert {"dummy", "shmem", "subprocess"} <= found.keys()
    assert "workers" in found["shmem"]
    assert "workers" not in found["dummy"]
    assert "seed" not in found["shmem"]  # the pipeline's own


def test_a_backend_of_another_package_is_tried_with_the_options_that_it_has():
    @dataclass(frozen=True)
    class Shared(Options):
        workers: int | None = None
        parent_share: bool = False

    class Sharing(Dummy):
        Options = Shared

    registry.backends.register("sharing", Sharing)
    try:
        options = backend_options()["sharing"]
    finally:
        registry.backends.unregister("sharing")
    assert options == {"workers", "parent_share"}
    backends = {"sharing": options}
    assert "sharing, parent_share=true" in names(backends, now=replace(NOW, backend="sharing", favourite="sharing"))


def test_the_lines_are_read_back_as_the_settings():
    found = candidates(DUMMY | SHARES, replace(NOW, options={"on_failure": "restart", "step_timeout": 0.5}), WAITS)
    for candidate in [*found, *candidates(DUMMY | SHARES, NOW, WAITS)]:
        expected = PipelineSpec("CartPole-v1", n=8, **candidate.settings)
        text = "\n".join(["env: CartPole-v1", "n: 8", *candidate.lines()])
        assert PipelineSpec.from_yaml(text) == expected
        assert PipelineSpec.parse(f"CartPole-v1 n=8 {candidate.in_a_line()}") == expected


def test_the_lines_of_an_evaluation_change_the_evaluation_alone():
    training = "env: CartPole-v1\nn: 8\nbackend: {name: subprocess, workers: 3}\nbatch_size: 4"
    candidate = Candidate("shmem", {"workers": 4, "on_failure": "restart"})
    pasted = PipelineSpec.from_yaml("\n".join([training, *candidate.lines(evaluation=True)]))
    assert in_mode(pasted, "train") == pasted
    assert pasted.override(eval={}) == PipelineSpec.from_yaml(training)
    expected = PipelineSpec("CartPole-v1", n=8, training=False, batch_size=4, **candidate.settings)
    assert in_mode(pasted, "eval") == expected
    line = "CartPole-v1 n=8 backend=subprocess backend.workers=3 batch_size=4"
    assert PipelineSpec.parse(f"{line} {candidate.in_a_line(evaluation=True)}") == pasted


@pytest.mark.parametrize(
    "candidate",
    [
        Candidate("mybk:Mine"),
        Candidate("mybk:Mine", {"workers": 2}),
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
    candidate = Candidate("shmem", {"mine": value})
    expected = PipelineSpec("CartPole-v1", **candidate.settings)
    assert PipelineSpec.from_yaml("\n".join(["env: CartPole-v1", *candidate.lines()])) == expected
    assert candidate.in_a_line() is None
