"""Which candidates tune chooses for a pipeline; two usable cores."""

from dataclasses import dataclass

import pytest

from vecwrap.backends.dummy import Dummy
from vecwrap.env.options import Options
from vecwrap.pipeline import registry
from vecwrap.pipeline.evaluation import in_mode
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.tools import tune
from vecwrap.tools.tune import Candidate, backend_options, candidates, references

PROCESS_OPTIONS = frozenset({"workers", "envs_per_worker", "on_failure", "step_timeout"})
DUMMY = {"dummy": frozenset({"on_failure"})}
SHMEM = {"shmem": PROCESS_OPTIONS}
SUBPROCESS = {"subprocess": PROCESS_OPTIONS}
SHARES = {"shmem": PROCESS_OPTIONS | {"parent_share"}}


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    for place in ("tools.tune", "pipeline.backends", "backends.workers.shares"):
        monkeypatch.setattr(f"vecwrap.{place}.usable_cores", lambda: 2)


def planned(env="vecwrap.testing:ToyEnv", n=8, backend="shmem", **options):
    return plan(PipelineSpec(env, n=n, backend={"name": backend, **options}))


def names(backends=DUMMY | SHMEM | SUBPROCESS, **pipeline):
    return [candidate.name for candidate in candidates(planned(**pipeline), backends)]


def test_what_the_pipeline_has_comes_first_and_nothing_comes_twice():
    found = [
        "shmem",
        "dummy",
        "shmem, workers=1",
        "shmem, workers=4",
        "shmem, workers=8",
        "subprocess",
    ]
    assert names() == found
    assert names(workers=4) == [
        "shmem, workers=4",
        "dummy",
        *[one for one in found if one not in ("dummy", "shmem, workers=4")],
    ]


def test_at_most_eight_workers_for_each_core_are_tried():
    """Environments that wait can use as many; of those that compute, the row says they cannot."""
    assert "shmem, workers=16" in names(n=500)
    assert "shmem, workers=500" not in names(n=500)


def test_a_share_of_the_parent_is_tried_where_the_signature_has_it():
    assert not any("parent_share" in name for name in names())
    assert names(backends=DUMMY | SHARES)[:3] == ["shmem", "dummy", "shmem, parent_share=true"]


def test_what_is_shared_by_itself_is_tried_without_and_not_a_second_time_with():
    found = names(backends=DUMMY | SHARES, env="CartPole-v1")  # whose cost is known
    assert found[:3] == ["shmem", "dummy", "shmem, parent_share=false"]
    assert not any("true" in name for name in found)


@pytest.mark.parametrize("option", [{"step_timeout": 9.0}, {"on_failure": "restart"}])
def test_whoever_asks_for_processes_of_their_own_gets_no_share_of_the_parent(option):
    assert not any("parent_share" in name for name in names(backends=SHARES, **option))


def test_options_of_the_users_stay_and_a_backend_without_them_is_left_out():
    found = candidates(planned(step_timeout=9.0, workers=3), DUMMY | SHMEM)
    assert all(candidate.options["step_timeout"] == 9.0 for candidate in found)
    assert found[0].options == {"step_timeout": 9.0, "workers": 3}
    assert not any(candidate.backend == "dummy" for candidate in found)


def test_a_cluster_is_started_for_nobody_who_has_none():
    ray = {"ray": PROCESS_OPTIONS}
    assert not any(name.startswith("ray") for name in names(backends=DUMMY | SHMEM | ray))
    pytest.importorskip("ray")
    assert names(backends=DUMMY | SHMEM | ray, backend="ray")[0] == "ray"


def test_one_sub_environment_asks_for_no_numbers_of_workers():
    assert names(n=1, backend="dummy") == ["dummy", "shmem", "subprocess"]


def test_the_processes_of_each_are_foretold():
    found = candidates(planned(), DUMMY | SHMEM)
    assert {c.name: c.processes for c in found} == {
        "shmem": 2,
        "dummy": 0,
        "shmem, workers=8": 8,
        "shmem, workers=4": 4,
        "shmem, workers=1": 1,
    }


# -- for reference ---------------------------------------------------------------------------------


def test_the_references_are_gymnasiums_two_classes():
    assert references(planned()) == [Candidate(tune.SYNC), Candidate(tune.ASYNC)]


def test_a_process_for_each_of_many_is_not_started():
    assert references(planned(n=65)) == [Candidate(tune.SYNC)]


def test_games_and_engines_have_no_references():
    pytest.importorskip("pettingzoo")
    assert references(plan(PipelineSpec("pettingzoo:classic/tictactoe_v3", n=1))) == []
    engine = PipelineSpec("CartPole-v1", n=4, envs_per_engine=4)
    assert references(plan(engine)) == []


# -- backends --------------------------------------------------------------------------------------


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
    assert "sharing" in names({"sharing": options})


def test_the_lines_are_read_back_as_the_settings():
    found = candidates(planned(on_failure="restart", step_timeout=0.5), DUMMY | SHARES)
    for candidate in [*found, *candidates(planned(), DUMMY | SHARES)]:
        expected = PipelineSpec("CartPole-v1", n=8, **candidate.settings)
        text = "\n".join(["env: CartPole-v1", "n: 8", *candidate.lines()])
        assert PipelineSpec.from_yaml(text) == expected
        assert PipelineSpec.parse(f"CartPole-v1 n=8 {candidate.to_line()}") == expected


def test_the_lines_of_an_evaluation_change_the_evaluation_alone():
    training = "env: CartPole-v1\nn: 8\nbackend: {name: subprocess, workers: 3}\nbatch_size: 4"
    candidate = Candidate("shmem", {"workers": 4, "on_failure": "restart"})
    pasted = PipelineSpec.from_yaml("\n".join([training, *candidate.lines(evaluation=True)]))
    assert in_mode(pasted, "train") == pasted
    assert pasted.override(eval={}) == PipelineSpec.from_yaml(training)
    expected = PipelineSpec("CartPole-v1", n=8, training=False, batch_size=4, **candidate.settings)
    assert in_mode(pasted, "eval") == expected
    line = "CartPole-v1 n=8 backend=subprocess backend.workers=3 batch_size=4"
    assert PipelineSpec.parse(f"{line} {candidate.to_line(evaluation=True)}") == pasted


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
    assert PipelineSpec.parse(f"CartPole-v1 {candidate.to_line()}") == expected


@pytest.mark.parametrize("value", [[1, "two"], [], {"a": [1]}, {}])
def test_what_no_line_can_hold_has_none_but_lines_of_a_file(value):
    candidate = Candidate("shmem", {"mine": value})
    expected = PipelineSpec("CartPole-v1", **candidate.settings)
    assert PipelineSpec.from_yaml("\n".join(["env: CartPole-v1", *candidate.lines()])) == expected
    assert candidate.to_line() is None
