from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.tools import tune
from vecwrap.tools.tune import MeasureError, search

BACKENDS = {"dummy": frozenset(), "shmem": frozenset({"workers"})}
SPEC = PipelineSpec("CartPole-v1", n=4, backend="shmem")


class World:
    """A clock, and what each measurement takes and returns: seconds, and a rate or an error, of a
    candidate.
    """

    def __init__(self, **candidates):
        self.now = 0.0
        self.candidates = candidates  # name: (seconds, rate)
        self.tried = []

    def clock(self):
        return self.now

    def measured(self, pipeline, limit):
        name, *options = [str(value) for value in pipeline["backend"].values()]
        self.tried.append("_".join([name, *options]))
        seconds, found = self.candidates.get(self.tried[-1], (0.5, 100.0))
        self.now += min(seconds, limit)
        if seconds > limit:
            raise MeasureError(f"not done within {limit:.1f} s")
        if isinstance(found, Exception):
            raise found
        return {"rates": [found] * 3, "start_seconds": 0.1}


def tuned(world, monkeypatch, seconds=60.0, spec=SPEC):
    monkeypatch.setattr(tune, "measured", world.measured)
    monkeypatch.setattr(tune, "usable_cores", lambda: 2)
    monkeypatch.setattr(tune, "backend_options", lambda: BACKENDS)
    try:
        return search(spec, seconds, clock=world.clock)
    finally:
        assert world.now <= seconds


def rows(found):
    return {trial.candidate.name: trial for trial in found.trials}


def test_every_candidate_is_tried_and_the_quickest_recommended(monkeypatch):
    found = tuned(World(shmem=(0.5, 200.0)), monkeypatch)
    assert list(rows(found)) == ["shmem", "dummy", "shmem, workers=1", "shmem, workers=4"]
    assert all(trial.rates == [trial.rate] * 3 for trial in found.trials)
    assert found.recommended.name == "shmem"


def test_gymnasiums_classes_are_measured_after_ours_and_never_recommended(monkeypatch):
    spec = SPEC.override(wrappers=["time_limit:5", "framestack:2", "monitor"])
    world = World(**{tune.SYNC: (0.5, 900.0)})
    found = tuned(world, monkeypatch, spec=spec)
    assert world.tried[-2:] == [tune.SYNC, tune.ASYNC]
    assert [(each.candidate.name, each.rate) for each in found.references] == [
        (tune.SYNC, 900.0),
        (tune.ASYNC, 100.0),
    ]
    assert found.left_out == ["framestack", "monitor"]
    assert found.recommended.name == "dummy"


def test_a_candidate_that_fails_is_a_row_that_says_why(monkeypatch):
    found = tuned(
        World(shmem_4=(0.1, MeasureError("SubEnvError: the wheel came off"))), monkeypatch
    )
    assert rows(found)["shmem, workers=4"].failed == "SubEnvError: the wheel came off"
    assert found.recommended is not None


def test_a_candidate_that_hangs_costs_its_share_of_the_time_and_no_more(monkeypatch):
    found = tuned(World(shmem=(1e9, 1.0)), monkeypatch)
    assert rows(found)["shmem"].failed.startswith("not done within")
    assert all(trial.rates for name, trial in rows(found).items() if name != "shmem")


def test_where_everything_hangs_there_is_no_recommendation_and_the_budget_holds(monkeypatch):
    names = ("shmem", "dummy", "shmem_4", "shmem_1", tune.SYNC, tune.ASYNC)
    found = tuned(World(**dict.fromkeys(names, (1e9, 1.0))), monkeypatch, seconds=10.0)
    assert found.recommended is None
    assert all(trial.failed for trial in found.trials)


def test_with_little_time_what_there_is_and_dummy_are_measured_and_others_wholly_or_not_at_all(
    monkeypatch,
):
    """Each takes 1.2 s, as interpreters do on a busy machine; there is no time for four."""
    world = World(**dict.fromkeys(("shmem", "dummy", "shmem_4", "shmem_1"), (1.2, 100.0)))
    found = tuned(world, monkeypatch, seconds=4.0)
    assert all(rows(found)[name].rates for name in ("shmem", "dummy"))
    others = [trial for trial in found.trials if trial.candidate.name not in ("shmem", "dummy")]
    assert all(trial.rates or trial.failed for trial in others)
    assert any(trial.failed for trial in others)


def test_modes_in_which_resets_are_asked_for_are_measured_in_same_step(monkeypatch):
    assert tuned(World(), monkeypatch, spec=SPEC.override(autoreset="episodic")).mode == "same_step"
    assert (
        tuned(World(), monkeypatch, spec=SPEC.override(autoreset="next_step")).mode == "next_step"
    )


def test_an_engine_is_measured_in_the_mode_of_its_own_and_tried_once(monkeypatch):
    line = "BreakoutNoFrameskip-v4 n=2 engine=envpool engine.num_threads=1 | atari"
    monkeypatch.setattr(tune, "measured", World().measured)
    monkeypatch.setattr(tune, "backend_options", lambda: BACKENDS)
    found = search(PipelineSpec.parse(line), 60.0, engines=True)
    assert found.mode == "next_step"
    assert "engine envpool" not in rows(found)
    assert found.trials[0].candidate.name == "dummy"
    assert found.trials[0].rates
