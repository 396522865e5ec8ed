import pytest

from vecwrap.errors import VecwrapError
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.tools import tune
from vecwrap.tools.processes import Ended, TooLate
from vecwrap.tools.tune import BackendKind, Search

KINDS = [BackendKind("dummy", frozenset()), BackendKind("shmem", frozenset({"workers"}))]
FIGURES = {"step_seconds": 1e-4, "step_spread": 1e-6, "steps": 100, "busy": 1.0, "first_seconds": 0.1}
SPEC = PipelineSpec("CartPole-v1", n=4, backend="shmem")


class World:
    """A clock, and how long everything takes: seconds to start and to take a sample, and the rate, of a candidate."""

    def __init__(self, **candidates):
        self.now = 0.0
        self.candidates = candidates  # name: (start, sample, rate)
        self.env = [(0.6, FIGURES)]
        self.running = 0
        self.most_running = 0
        self.opened = []

    def clock(self):
        return self.now

    def of(self, settings):
        options = {key: value for key, value in settings["backend"].items() if key != "name"}
        if settings["batch_size"] is not None:
            options["batch_size"] = settings["batch_size"]
        words = [settings["backend"]["name"], *(f"{key}{value}" for key, value in options.items())]
        return "_".join(words), self.candidates.get("_".join(words), (0.1, 0.0, 100.0))

    def measurer(self, job):
        return Process(self, job)


class Process:
    def __init__(self, world, job):
        self.world = world
        world.running += 1
        world.most_running = max(world.running, world.most_running)
        if job.func is tune.measure_env:
            self.answers = list(world.env)
        else:
            name, (start, self.sample, self.rate) = world.of(job.args[0])
            world.opened.append(name)
            self.answers = [(start, {"start_seconds": start, "memory_mb": 9.0})]

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.world.running -= 1

    def ask(self, length):
        self.answers.append((max(length, self.sample), self.rate() if callable(self.rate) else self.rate))

    def hear(self, deadline):
        seconds, answer = self.answers.pop(0)
        if self.world.now + seconds > deadline:
            self.world.now = max(self.world.now, deadline)
            raise TooLate
        self.world.now += seconds
        if isinstance(answer, Exception):
            raise answer
        return answer


def tuned(world, monkeypatch, seconds=60.0, spec=SPEC):
    monkeypatch.setattr(tune, "Measurer", world.measurer)
    monkeypatch.setattr(tune, "usable_cores", lambda: 2)
    monkeypatch.setattr(tune, "backend_kinds", lambda: KINDS)
    try:
        return Search(spec, seconds, clock=world.clock).run()
    finally:
        assert world.running == 0
        assert world.now <= seconds


def rows(found):
    return {trial.candidate.name: trial for trial in found.trials}


def test_every_candidate_is_tried_and_the_quickest_recommended(monkeypatch):
    found = tuned(World(shmem=(0.5, 0.0, 200.0)), monkeypatch)
    assert list(rows(found)) == ["shmem", "dummy", "shmem, workers=4", "shmem, workers=1", "shmem, recv of 2"]
    assert all(trial.rates == (trial.rate,) * 3 for trial in found.trials)
    assert found.recommendation.candidate.name == found.now.name == "shmem"
    assert (found.cost.step_seconds, found.cost.first_seconds) == (1e-4, 0.1)


def test_a_candidate_that_fails_is_a_row_that_says_why(monkeypatch):
    world = World(shmem_workers4=(0.1, 0.0, Ended("SubEnvError: the wheel came off")))
    found = tuned(world, monkeypatch)
    assert rows(found)["shmem, workers=4"].failed == "SubEnvError: the wheel came off"
    assert found.recommendation is not None


def test_those_that_are_close_are_measured_again_in_turn_and_only_they(monkeypatch):
    rates = iter([100.0] * 3 + [90.0, 91.0, 92.0, 93.0, 94.0, 95.0, 96.0, 97.0, 98.0])
    world = World(
        shmem=(0.1, 0.0, 102.0), dummy=(0.1, 0.0, lambda: next(rates)), shmem_workers4=(0.1, 0.0, 50.0),
        shmem_workers1=(0.1, 0.0, 50.0), shmem_batch_size2=(0.1, 0.0, 102.0),
    )  # fmt: skip
    found = tuned(world, monkeypatch)
    assert rows(found)["dummy"].rates == (90.0, 91.0, 92.0, 93.0, 94.0, 95.0, 96.0, 97.0, 98.0)
    assert len(rows(found)["shmem"].rates) == 9
    assert len(rows(found)["shmem, workers=4"].rates) == 3
    assert world.opened[-2:] == ["shmem", "dummy"]  # batches of 2 are another loop
    assert world.most_running == 2


@pytest.mark.parametrize("forever", ["start", "sample"])
def test_a_candidate_that_hangs_costs_its_share_of_the_time_and_no_more(monkeypatch, forever):
    hangs = (1e9, 0.0, 1.0) if forever == "start" else (0.1, 1e9, 1.0)
    found = tuned(World(shmem=hangs), monkeypatch)
    said = "did not start within" if forever == "start" else "did not finish a sample within"
    assert rows(found)["shmem"].failed.startswith(said)
    assert all(trial.rates for name, trial in rows(found).items() if name != "shmem")


def test_where_everything_hangs_there_is_no_recommendation_and_the_budget_holds(monkeypatch):
    names = ("shmem", "dummy", "shmem_workers4", "shmem_workers1", "shmem_batch_size2")
    found = tuned(World(**dict.fromkeys(names, (1e9, 0.0, 1.0))), monkeypatch, seconds=10.0)
    assert found.recommendation is None
    assert all(trial.failed for trial in found.trials)


def test_with_little_time_what_there_is_and_dummy_are_measured_and_others_wholly_or_not_at_all(monkeypatch):
    """Each start takes 1 s, as interpreters do on a busy machine; a fair share of 10 s is less for each of five."""
    names = ("shmem", "dummy", "shmem_workers4", "shmem_workers1", "shmem_batch_size2")
    found = tuned(World(**dict.fromkeys(names, (1.0, 0.05, 100.0))), monkeypatch, seconds=7.0)
    assert all(rows(found)[name].rates for name in ("shmem", "dummy"))
    others = [trial for trial in found.trials if trial.candidate.name not in ("shmem", "dummy")]
    assert all(trial.rates or trial.failed.startswith("not tried: no time left") for trial in others)
    assert any(trial.failed for trial in others)


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ([(1e9, FIGURES)], "not made, reset and stepped within 40% of --budget 60s"),
        ([(0.1, Ended("RuntimeError: no licence"))], "by itself, failed: RuntimeError: no licence"),
    ],
)
def test_without_figures_of_one_sub_environment_nothing_is_tried(monkeypatch, env, said):
    world = World()
    world.env = env
    with pytest.raises(VecwrapError) as error:
        tuned(world, monkeypatch)
    assert said in str(error.value)
    assert world.opened == []


def test_modes_in_which_resets_are_asked_for_are_measured_in_same_step(monkeypatch):
    assert tuned(World(), monkeypatch, spec=SPEC.override(autoreset="episodic")).mode == "same_step"
    assert tuned(World(), monkeypatch, spec=SPEC.override(autoreset="next_step")).mode == "next_step"
