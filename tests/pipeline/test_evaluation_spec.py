"""The evaluation that belongs to a pipeline: what differs, what is refused, and that the stream is
the one meant.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecwrap
from vecwrap.errors import PlanError, SpecError
from vecwrap.pipeline.check import check
from vecwrap.pipeline.evaluation import evaluation, in_mode
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.wrappers.normalize import Normalize
from vecwrap.wrappers.presets import Preset

PONG = """\
env: PongNoFrameskip-v4
n: 8
seed: 1
batch_size: 4
backend: {name: shmem, workers: 2}
wrappers:
  - time_limit: 500
  - atari
  - framestack: 4
  - normalize_reward
  - monitor: {dir: runs/pong}
"""
PENDULUM = """\
env: Pendulum-v1
n: 3
seed: 1
wrappers: [normalize, monitor: {dir: runs}]
eval: {n: 2, seed: 9}
"""


def of(text: str, section: str = "") -> PipelineSpec:
    return evaluation(PipelineSpec.from_yaml(text + section, "p.yaml"))


def wrappers(spec: PipelineSpec) -> list[str]:
    return [str(wrapper) for wrapper in spec.wrappers]


def test_without_a_section_it_is_whole_games_raw_rewards_and_statistics_that_stand_still() -> None:
    spec = of(PONG)
    assert wrappers(spec) == [
        "time_limit:500",
        "atari:terminal_on_life_loss=false,clip_reward=false",
        "framestack:4",
        "normalize_reward",
        "monitor:dir=runs/pong/eval",
    ]
    training = PipelineSpec.from_yaml(PONG)
    assert spec == training.override(training=False, wrappers=spec.wrappers)
    assert spec.eval == {}


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        (
            "eval: {wrappers: {atari: {clip_reward: true}}}",
            "atari:terminal_on_life_loss=false,clip_reward=true",
        ),
        (
            "eval: {wrappers: {atari: machado}}",
            "atari:machado,terminal_on_life_loss=false,clip_reward=false",
        ),
        ("eval: {wrappers: {monitor: {dir: e}}}", "monitor:dir=e"),
        ("eval: {wrappers: {monitor: {rewards: seen}}}", "monitor:dir=runs/pong/eval,rewards=seen"),
        ("eval: {wrappers: {framestack: 2}}", "framestack:2"),
        ("eval: {wrappers: {2: {k: 2}}}", "framestack:k=2"),
    ],
)
def test_what_the_section_says_comes_before_what_a_wrapper_asks_for(
    section: str, expected: str
) -> None:
    assert expected in wrappers(of(PONG, section))


def test_a_list_replaces_the_wrappers_and_each_is_as_an_evaluation_wants_it() -> None:
    spec = of(PONG, "eval: {wrappers: [{atari: {clip_reward: true}}, monitor: {dir: e}, video]}")
    assert wrappers(spec) == [
        "atari:clip_reward=true,terminal_on_life_loss=false",
        "monitor:dir=e",
        "video:dir=videos/eval",
    ]


@Preset
def recorded(dir: str = "runs") -> list[Any]:
    """Record, and end."""
    return [{"time_limit": 9}, {"monitor": {"dir": dir}}]


@Preset
def outer(dir: str = "runs/outer") -> list[Any]:
    """A preset in a preset."""
    return [{f"{__name__}:recorded": dir}]


@Preset
def pong() -> list[Any]:
    """The usual."""
    return ["atari", "framestack:4"]


@pytest.mark.parametrize(
    ("wrapper", "section", "folders"),
    [
        (recorded, {}, ["runs/eval"]),
        (outer, {}, ["runs/outer/eval"]),
        ({f"{__name__}:recorded": "train"}, {}, ["train/eval"]),
        (recorded, {"wrappers": {"recorded": {"dir": "other"}}}, ["other/eval"]),
        (recorded, {"wrappers": []}, []),
        (recorded, {"wrappers": [outer]}, ["runs/outer/eval"]),
    ],
)
def test_the_wrappers_of_presets_are_asked_too(
    wrapper: Any, section: dict[str, Any], folders: list[str]
) -> None:
    spec = PipelineSpec("CartPole-v1", wrappers=[wrapper], eval={"n": 1, **section})
    for one in (spec, plan(spec).pipeline):
        wrappers = plan(evaluation(one)).wrappers
        found = [
            wrapper.bound.kwargs["dir"] for wrapper in wrappers if wrapper.spec.name == "monitor"
        ]
        assert found == [str(Path(folder).absolute()) for folder in folders]


def test_a_preset_of_atari_plays_whole_games_and_pays_raw_rewards() -> None:
    pytest.importorskip("ale_py")
    inner, _ = plan(evaluation(PipelineSpec("PongNoFrameskip-v4", wrappers=[pong]))).wrappers
    assert (inner.bound.kwargs["terminal_on_life_loss"], inner.bound.kwargs["clip_reward"]) == (
        False,
        False,
    )


def test_null_takes_the_default_back_and_statistics_stand_still_by_default() -> None:
    line = (
        "CartPole-v1 n=4 start_index=9 autoreset=disabled copy=false debug=true "
        "training=false backend=ray"
    )
    section = dict.fromkeys(["start_index", "autoreset", "copy", "debug", "training", "backend"])
    assert (
        str(evaluation(PipelineSpec.parse(line).override(eval=section)))
        == "CartPole-v1 n=4 training=false"
    )


def test_null_in_the_place_of_wrappers_says_nothing_and_an_empty_list_that_there_are_none() -> None:
    assert of(PONG, "eval: {wrappers: null}") == of(PONG)
    assert wrappers(of(PONG, "eval: {wrappers: []}")) == []
    base = PipelineSpec.from_yaml(PONG + "eval: {wrappers: [monitor]}")
    assert evaluation(base.override(**{"eval.wrappers": None})) == of(PONG)
    assert PipelineSpec.from_yaml(base.override(**{"eval.wrappers": None}).to_yaml()).eval == {
        "wrappers": None
    }


def test_other_keys_are_written_over_the_pipelines() -> None:
    spec = of(
        PONG,
        (
            "eval: {n: 2, seed: 5, batch_size: null, backend: {workers: 1}, env_kwargs: "
            "{mode: 1}, stats: s.npz}"
        ),
    )
    assert (spec.n, spec.seed, spec.batch_size, spec.stats, spec.training) == (
        2,
        5,
        None,
        "s.npz",
        False,
    )
    assert (spec.backend.name, spec.backend.options, spec.env_kwargs) == (
        "shmem",
        {"workers": 1},
        {"mode": 1},
    )
    assert of(PONG, "eval: {training: true}").training
    assert of(PONG, "eval: {backend: dummy}").backend.name == "dummy"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            "eval:\n  wrappers:\n    atari: {}\n    framestak: {}\n",
            (
                "p.yaml:15: eval.wrappers.framestak: there is no such wrapper. Did you mean "
                '"framestack"?'
            ),
        ),
        (
            "eval:\n  wrappers:\n    9: {k: 2}",
            "p.yaml:14: eval.wrappers[9]: there are 5 wrappers, numbered from 0.",
        ),
        (
            "eval: {wrappers: [vidoe]}",
            'p.yaml:12: eval.wrappers[0] "vidoe": unknown wrapper. Did you mean "video"?',
        ),
        (
            "eval: {wrappers: {1.5: {k: 2}}}",
            "p.yaml:12: eval.wrappers: expected the name or number of a wrapper, got 1.5.",
        ),
        (
            "eval: {n: 0, batch_size: null}",
            "p.yaml:12: n: expected at least 1 sub-environment, got 0.",
        ),
        ("eval: {n: 2}", "p.yaml:4: batch_size: expected 1 to n=2, got 4."),
        (
            "eval:\n  wrappers:\n    framestack: {k: four}",
            'p.yaml:14: wrappers[2] "framestack", argument k: expected int, got "four".',
        ),
    ],
)
def test_a_mistake_in_the_section_is_found_before_the_training_begins(
    section: str, message: str
) -> None:
    pytest.importorskip("ale_py")
    spec = PipelineSpec.from_yaml(PONG + section, "p.yaml")
    with pytest.raises((SpecError, PlanError)) as error:
        plan(spec)
    assert str(error.value).startswith(message)
    assert str(error.value).endswith(
        " (This is of the evaluation that the section eval describes.)"
    )


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            "eval: [n]",
            'p.yaml:12: eval: expected a mapping of what differs in an evaluation, got ["n"].',
        ),
        ("eval: {eval: {n: 1}}", "p.yaml:12: eval.eval: unknown key."),
        ("eval: {n: two}", 'p.yaml:12: eval.n: expected int, got "two".'),
        (
            "eval:\n  extends: base.yaml",
            (
                "p.yaml:13: eval.extends: unknown key. A pipeline file builds upon another one, "
                "and says so at its top."
            ),
        ),
        (
            "eval:\n  num_envs: 2",
            "p.yaml:13: eval.num_envs: unknown key. The number of sub-environments is called n.",
        ),
        (
            "eval:\n  add: [video]",
            (
                "p.yaml:13: eval.add: unknown key. An evaluation with other wrappers lists them "
                "all in eval.wrappers."
            ),
        ),
        ("evall: {n: 1}", 'p.yaml:12: evall: unknown key. Did you mean "eval"?'),
    ],
)
def test_a_section_that_cannot_be_read_is_refused_with_its_line(section: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        PipelineSpec.from_yaml(PONG + section, "p.yaml")
    assert str(error.value) == message


@pytest.mark.parametrize("in_section", [False, True])
def test_all_mistakes_are_listed_those_of_an_evaluation_too(in_section: bool) -> None:
    wrong = {"wrappers": ["framestack:4,pp=3", {"monitor": {"window": "x", "q": 1}}]}
    pipeline = {"env": "CartPole-v1", **({"eval": wrong} if in_section else wrong)}
    with pytest.raises(SpecError) as error:
        plan(PipelineSpec.from_dict(pipeline))
    for said in (
        list(map(str, error.value.mistakes)),
        [finding.reason for finding in check(pipeline)],
    ):
        assert [text[text.index("argument ") :].split(":")[0] for text in said] == [
            "argument pp",
            "argument window",
            "argument q",
        ]
        for text in said:
            assert (
                text.endswith("(This is of the evaluation that the section eval describes.)")
                is in_section
            )


def test_the_resolved_pipeline_holds_the_whole_evaluation_and_is_stable() -> None:
    pytest.importorskip("ale_py")
    text = PONG + "eval: {n: 4, seed: 7, wrappers: [atari, framestack: 4, terminal_obs]}"
    training = PipelineSpec.from_yaml(text)
    resolved = plan(training).pipeline
    # The training's stream is the same.
    assert resolved.hash == plan(PipelineSpec.from_yaml(PONG)).pipeline.hash
    again = PipelineSpec.from_yaml(resolved.to_yaml())
    assert again == resolved == plan(again).pipeline
    assert plan(evaluation(again)).pipeline == plan(evaluation(training)).pipeline
    for section in ("eval: {training: true}", "eval: {wrappers: {monitor: {dir: runs/pong}}}"):
        spec = PipelineSpec.from_yaml(PONG + section)
        assert plan(evaluation(plan(spec).pipeline)).pipeline == plan(evaluation(spec)).pipeline
    for section in (
        "eval: {n: 1, training: true}",
        "eval: {n: 1, wrappers: {monitor: {dir: runs/cartpole}}}",
    ):
        own = "env: CartPole-v1\ntraining: true\nwrappers: [monitor: {dir: runs/cartpole}]\n"
        # As the training, and not as an evaluation by itself.
        spec = PipelineSpec.from_yaml(own + section)
        assert plan(evaluation(plan(spec).pipeline)).pipeline == plan(evaluation(spec)).pipeline
    same = PipelineSpec.from_yaml(
        "env: CartPole-v1\nenv_kwargs: {sutton_barto_reward: true}\neval: {env_kwargs: null}\n"
    )
    assert evaluation(plan(same).pipeline).env_kwargs == {}


def test_overrides_come_last_but_those_of_the_section_before_it() -> None:
    spec = PipelineSpec.from_yaml(PENDULUM)
    assert (
        in_mode(spec, "eval", {"eval.n": 5, "seed": 3}).to_dict().items()
        >= {"n": 5, "seed": 3}.items()
    )
    assert in_mode(spec, "eval", {"n": 7}).n == 7
    assert in_mode(spec, "train", {"n": 7}).eval == {"n": 2, "seed": 9}
    with pytest.raises(
        SpecError, match=r'^mode: expected "train" or "eval", got "evel"\. Did you mean "eval"\?$'
    ):
        in_mode(spec, "evel")


@pytest.fixture
def pendulum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("pendulum.yaml").write_text(PENDULUM)
    return "pendulum.yaml"


def test_an_evaluation_uses_the_trainings_statistics_and_leaves_them_alone(pendulum: str) -> None:
    training: Any = vecwrap.load(pendulum, backend="dummy")
    evaluated: Any = vecwrap.load(pendulum, mode="eval", stats=training, backend="dummy")
    training.reset()
    for _ in range(20):
        training.step(training.action_space.sample())
    (statistics,) = training.find(Normalize).observations.statistics.values()
    mean, variance, count = statistics.mean.copy(), statistics.var.copy(), statistics.count
    observations, _ = evaluated.reset()
    original = evaluated.get_original_obs()
    np.testing.assert_allclose(
        observations, (original - mean) / np.sqrt(variance + 1e-8), rtol=1e-5
    )
    assert statistics.count == count
    assert evaluated.num_envs == 2
    assert (training.training, evaluated.training) == (True, False)
    assert Path("runs/monitor.csv").exists()
    assert Path("runs/eval/monitor.csv").exists()  # not the training's, moved aside
    training.save("s.npz")
    training.close()
    evaluated.close()
    saved: Any = vecwrap.load(pendulum, mode="eval", backend="dummy", **{"eval.stats": "s.npz"})
    np.testing.assert_array_equal(saved.reset()[0], observations)
    assert not saved.training
    saved.close()


def test_statistics_that_never_saw_anything_are_refused(pendulum: str) -> None:
    with pytest.raises(PlanError) as error:
        vecwrap.load(pendulum, mode="eval", backend="dummy")
    assert str(error.value).startswith(
        "stats: expected statistics for Normalize, which are frozen here"
    )
    vecwrap.load(pendulum, mode="eval", backend="dummy", **{"eval.wrappers": []}).close()
    with vecwrap.load(pendulum, mode="eval", backend="dummy", **{"eval.training": True}) as env:
        assert env.training


def test_a_built_evaluation_stands_still(pendulum: str) -> None:
    with vecwrap.load(
        pendulum, mode="eval", backend="dummy", **{"eval.wrappers": ["monitor"]}
    ) as env:
        assert not env.training
        changed = PipelineSpec.load(pendulum).override(
            **{"eval.wrappers": ["monitor"]}, backend="dummy"
        )
        assert env.pipeline == plan(evaluation(changed)).pipeline


def test_atari_plays_whole_games_and_pays_raw_rewards() -> None:
    pytest.importorskip("ale_py")
    spec = PipelineSpec.parse("BreakoutNoFrameskip-v4 n=1 seed=3 backend=dummy | atari:noop_max=0")
    ends = {}
    for mode in ("train", "eval"):
        with vecwrap.build(in_mode(spec, mode)) as env:
            env.reset()
            env.action_space.seed(1)
            steps, lives = 0, 5
            while True:
                *_, terminations, truncations, infos = env.step(env.action_space.sample())
                steps += 1
                if terminations.any() or truncations.any():
                    lives = int(infos["final_info"]["lives"][0])
                    break
            ends[mode] = lives
    assert ends == {"train": 4, "eval": 0}
