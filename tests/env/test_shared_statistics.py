"""Evaluation copies: the statistics of a training environment, shared or from a file, frozen where
they are used.
"""

import json
import re

import numpy as np
import pytest
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import vecwrap
from vecwrap.errors import ArgumentError, CheckpointError, PlanError

WRAPPERS = ["monitor", "normalize_obs", "normalize_reward"]


@pytest.fixture
def training():
    env = vecwrap.build("Pendulum-v1", n=3, wrappers=WRAPPERS, backend="dummy", seed=1)
    env.reset()
    run(env, 50)
    yield env
    env.close()


def run(env, steps):
    env.action_space.seed(0)
    for _ in range(steps):
        env.step(env.action_space.sample())


def numbers(env):
    return [
        (name, statistics.mean.tolist(), statistics.var.tolist(), statistics.count)
        for wrapper in env.chain[:-1]
        for name, statistics in wrapper.wrapper_statistics().items()
    ]


def test_an_evaluation_copy_follows_the_training_environment_and_never_moves_it(training):
    with vecwrap.build(
        "Pendulum-v1", n=2, wrappers=WRAPPERS[1:], backend="dummy", stats=training, seed=9
    ) as evaluation:
        assert not evaluation.training
        assert training.training
        before = numbers(training)
        evaluation.reset()
        run(evaluation, 30)
        assert numbers(training) == before == numbers(evaluation)
        run(training, 20)
        assert numbers(training) != before
        assert numbers(evaluation) == numbers(training), "shared, not copied"


def test_observations_that_are_normalised_there_and_not_here_are_a_warning(training, tmp_path):
    training.save(tmp_path / "run.npz")
    for source, where in [
        (training, repr(training)),
        (tmp_path / "run.npz", str(tmp_path / "run.npz")),
    ]:
        told = re.escape(
            f"stats: {where} normalises observations (NormalizeObs), and no wrapper here takes"
        )
        for wrappers in (["monitor"], ["normalize_reward"]):
            with pytest.warns(RuntimeWarning, match=told):
                vecwrap.build(
                    "Pendulum-v1", n=1, wrappers=wrappers, backend="dummy", stats=source
                ).close()
        with vecwrap.build(
            "Pendulum-v1", n=1, wrappers=["normalize_obs"], backend="dummy", stats=source
        ):
            pass  # an evaluation that leaves rewards as they are is told nothing


def test_the_same_observations_are_shown_alike(training):
    training.eval()
    with vecwrap.build(
        "Pendulum-v1", n=3, wrappers=WRAPPERS, backend="dummy", stats=training
    ) as evaluation:
        np.testing.assert_array_equal(training.reset(seed=4)[0], evaluation.reset(seed=4)[0])
        actions = training.action_space.sample()
        for one, other in zip(
            training.step(actions)[:2], evaluation.step(actions)[:2], strict=True
        ):
            np.testing.assert_array_equal(one, other)


def test_statistics_that_are_given_go_on_where_the_pipeline_says_so(training, tmp_path):
    training.save(tmp_path / "run.npz")
    wrappers = [{"normalize_obs": {}}, {"normalize_reward": {}}]
    pipeline = {"env": "Pendulum-v1", "n": 2, "backend": "dummy", "wrappers": wrappers, "seed": 5}
    begun = {**pipeline, "stats": str(tmp_path / "run.npz")}
    before = numbers(training)
    with vecwrap.build(begun) as still, vecwrap.build({**begun, "training": True}) as going_on:
        for env in (still, going_on):
            assert numbers(env) == before
            env.reset()
            run(env, 10)
        assert (still.training, numbers(still)) == (False, before)
        assert going_on.training
        assert all(now[-1] > then[-1] for now, then in zip(numbers(going_on), before, strict=True))
        assert still.pipeline.hash == going_on.pipeline.hash, (
            "what the agent sees at first is the same"
        )
    assert numbers(training) == before, "a file's are a copy"
    evaluation = {**pipeline, "wrappers": wrappers, "eval": {"training": True}}
    (tmp_path / "mine.json").write_text(json.dumps(evaluation))
    with vecwrap.load(tmp_path / "mine.json", mode="eval", stats=training) as going_on:
        going_on.reset()
        run(going_on, 10)
        assert numbers(going_on) == numbers(training) != before, (
            "those of a live environment are shared"
        )


def test_statistics_from_a_file_for_another_n(training, tmp_path):
    training.save(tmp_path / "run.npz")
    with vecwrap.build(
        "Pendulum-v1", n=1, wrappers=WRAPPERS[1:], stats=tmp_path / "run.npz"
    ) as evaluation:
        assert numbers(evaluation) == numbers(training)
        evaluation.reset(seed=1)
        run(evaluation, 10)
        assert numbers(evaluation) == numbers(training), "frozen"
        evaluation.train()
        run(evaluation, 10)
        assert numbers(evaluation) != numbers(training)


def test_both_halves_in_one_wrapper(training):
    with (
        vecwrap.build(
            "Pendulum-v1", n=2, wrappers=["normalize"], backend="dummy", seed=2
        ) as source,
        vecwrap.build(
            "Pendulum-v1", n=1, wrappers=["normalize"], backend="dummy", stats=source
        ) as evaluation,
    ):
        source.reset()
        run(source, 5)
        assert len(numbers(evaluation)) == 2
        assert numbers(evaluation) == numbers(source)


@pytest.mark.parametrize(
    ("env", "wrappers", "words"),
    [
        ("Pendulum-v1", ["normalize"], "has no statistics of a wrapper Normalize"),
        (
            "CartPole-v1",
            ["normalize_obs"],
            r"of other observations: expected .*\(4,\).*got .*\(3,\)",
        ),
        (
            "Pendulum-v1",
            ["normalize_obs", "normalize_obs"],
            "has no statistics of a wrapper NormalizeObs",
        ),
    ],
)
def test_statistics_that_do_not_fit_are_refused(training, env, wrappers, words):
    with pytest.raises(CheckpointError, match=words):
        vecwrap.build(env, n=1, wrappers=wrappers, stats=training)


def test_a_file_that_holds_no_state_is_refused_before_anything_is_made(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "env: Pendulum-v1\nn: 1\nstats: none.npz\nwrappers: [normalize]\n"
    )
    file, made = tmp_path / "none.npz", []
    telling = f"{re.escape(str(file))}: no such file\\. Is the path right, relative to .*\\?$"
    with pytest.raises(CheckpointError, match=f"^stats: {telling}"):
        vecwrap.build(lambda: made.append(1), n=1, wrappers=["normalize"], stats=file)
    assert not made
    with pytest.raises(CheckpointError, match=rf"mine\.yaml:3: stats: {telling}"):
        vecwrap.load(tmp_path / "mine.yaml")


def test_a_load_into_an_evaluation_copy_leaves_training_alone_and_one_into_training_is_shared(
    training,
):
    evaluation = vecwrap.build(
        "Pendulum-v1", n=3, wrappers=WRAPPERS, backend="dummy", stats=training
    )
    before = training.state_dict()
    at = numbers(training)
    run(training, 10)
    training.load_state_dict(before)
    assert numbers(evaluation) == numbers(training) == at
    training.reset()
    run(training, 10)
    later = numbers(training)
    assert numbers(evaluation) == later != at
    evaluation.load_state_dict(before)
    assert numbers(evaluation) == at
    assert numbers(training) == later
    evaluation.close()


def test_a_load_into_a_copy_of_both_halves_leaves_training_alone():
    training = vecwrap.build("Pendulum-v1", n=2, wrappers=["normalize"], backend="dummy", seed=1)
    evaluation = vecwrap.build(
        "Pendulum-v1", n=2, wrappers=["normalize"], backend="dummy", stats=training
    )
    training.reset()
    state, at = training.state_dict(), numbers(training)
    run(training, 10)
    later = numbers(training)
    evaluation.load_state_dict(state)
    assert numbers(evaluation) == at != later == numbers(training)
    training.close()
    evaluation.close()


def test_a_load_that_a_wrapper_refuses_leaves_shared_what_was(training, tmp_path):
    wrappers = [{"monitor": {"dir": str(tmp_path / "taken")}}, *WRAPPERS[1:]]
    with vecwrap.build(
        "Pendulum-v1", n=2, wrappers=wrappers, backend="dummy", stats=training
    ) as evaluation:
        (tmp_path / "taken").write_text("a file, where the monitor's folder was")
        before = numbers(training)
        with pytest.raises(PlanError, match="monitor: dir"):
            evaluation.load_state_dict(evaluation.state_dict())
        assert numbers(evaluation) == before == numbers(training)
        run(training, 20)
        assert numbers(evaluation) == numbers(training) != before


def test_what_has_no_statistics_to_share_is_refused_with_what_has(training):
    pytest.importorskip("stable_baselines3")
    with pytest.raises(
        ArgumentError, match=r"stats: .* NormalizedVecEnv; .* inside .* is its vecwrap_env"
    ):
        vecwrap.build(
            "Pendulum-v1", n=1, wrappers=WRAPPERS, backend="dummy", stats=vecwrap.to_sb3(training)
        )
    with pytest.raises(
        ArgumentError, match="stats: expected a vecwrap environment or a file .* got int"
    ):
        training.share_statistics(3)
    wrapped = RecordEpisodeStatistics(RecordEpisodeStatistics(training))
    with pytest.raises(
        ArgumentError,
        match=r"got RecordEpisodeStatistics, .* the environment itself, its \.env\.env$",
    ):
        training.share_statistics(wrapped)
    assert training.share_statistics(wrapped.env.env) is training


def test_a_load_into_training_is_seen_by_its_copies_also_where_it_began_with_a_file(
    training, tmp_path
):
    """As a run is resumed from its folder."""
    training.save(tmp_path / "begun.npz")
    run(training, 30)
    training.save(tmp_path / "later.npz")
    settings = {"wrappers": WRAPPERS, "backend": "dummy"}
    with (
        vecwrap.build("Pendulum-v1", n=3, **settings, stats=tmp_path / "begun.npz") as resumed,
        vecwrap.build("Pendulum-v1", n=1, **settings, stats=resumed) as evaluation,
    ):
        resumed.load(tmp_path / "later.npz")
        assert numbers(evaluation) == numbers(resumed) == numbers(training)
        resumed.reset(seed=1)
        resumed.train()
        run(resumed, 5)
        assert numbers(evaluation) == numbers(resumed) != numbers(training)


def test_statistics_that_fit_in_part_change_nothing():
    with (
        vecwrap.build(
            "Pendulum-v1", n=2, wrappers=["normalize_reward"], backend="dummy", seed=1
        ) as source,
        vecwrap.build("Pendulum-v1", n=2, wrappers=WRAPPERS, backend="dummy", seed=1) as other,
    ):
        source.reset()
        with pytest.raises(CheckpointError, match="has no statistics of a wrapper NormalizeObs"):
            other.share_statistics(source)
        before = numbers(source)
        other.reset()
        run(other, 5)
        assert numbers(source) == before
