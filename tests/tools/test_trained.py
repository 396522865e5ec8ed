"""Models that Stable-Baselines3 and sb3-contrib saved, as policies of commands: as these libraries
play them.
"""

import copy
import csv
import functools
import json
import pickle
import zipfile
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import vecwrap
from tests.env.test_action_masks import Steps, best
from vecwrap.cli import main
from vecwrap.errors import ArgumentError, SpecError, VecwrapError
from vecwrap.tools import trained
from vecwrap.tools.rollout import find_policy

sb3 = pytest.importorskip("stable_baselines3")
contrib = pytest.importorskip("sb3_contrib")
evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
vec_env = pytest.importorskip("stable_baselines3.common.vec_env")

SMALL = {"policy_kwargs": {"net_arch": [8]}, "device": "cpu", "seed": 1}
ON_POLICY = {**SMALL, "n_steps": 16}
RECURRENT = {
    "device": "cpu",
    "seed": 1,
    "n_steps": 16,
    "policy_kwargs": {"lstm_hidden_size": 8, "net_arch": [8]},
}
OFF_POLICY = {**SMALL, "learning_starts": 8, "buffer_size": 100}
MODELS = {
    "ppo": (sb3.PPO, "MlpPolicy", "CartPole-v1", {**ON_POLICY, "batch_size": 16}),
    "a2c": (sb3.A2C, "MlpPolicy", "CartPole-v1", ON_POLICY),
    "dqn": (sb3.DQN, "MlpPolicy", "CartPole-v1", OFF_POLICY),
    "sac": (sb3.SAC, "MlpPolicy", "Pendulum-v1", OFF_POLICY),
    "td3": (sb3.TD3, "MlpPolicy", "Pendulum-v1", OFF_POLICY),
    "trpo": (contrib.TRPO, "MlpPolicy", "CartPole-v1", {**ON_POLICY, "batch_size": 16}),
    "qrdqn": (contrib.QRDQN, "MlpPolicy", "CartPole-v1", OFF_POLICY),
    "tqc": (contrib.TQC, "MlpPolicy", "Pendulum-v1", OFF_POLICY),
    "ars": (contrib.ARS, "LinearPolicy", "CartPole-v1", {"device": "cpu", "seed": 1}),
    "ppo_lstm": (
        contrib.RecurrentPPO,
        "MlpLstmPolicy",
        "CartPole-v1",
        {**RECURRENT, "batch_size": 16},
    ),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return a function that gives an algorithm's model, trained for a few steps and saved once,
    and its file.
    """
    folder = tmp_path_factory.mktemp("models")

    @functools.cache
    def get(name):
        kind, policy, env_id, settings = MODELS[name]
        model = kind(policy, env_id, **copy.deepcopy(settings))  # some of which SB3 changes
        if name != "ars":  # whose training starts with whole episodes
            model.learn(32)
        path = folder / f"{name}.zip"
        model.save(path)
        return model, path

    return get


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def scores(folder):
    lines = Path(folder, "monitor.csv").read_text().splitlines()[1:]
    return [(float(row["r"]), int(row["l"])) for row in csv.DictReader(lines)]


def by_hand(model, env_id, games, n=2, seed=5):
    """Play as SB3's documentation does, one environment after the other; each has its own share of
    games.
    """
    played = []
    for i in range(n):
        env = gymnasium.make(env_id)
        observation, _ = env.reset(seed=seed + i)
        for _ in range(games // n):
            state, first, total, length, over = None, True, 0.0, 0, False
            while not over:
                action, state = model.predict(
                    observation, state=state, episode_start=np.array([first]), deterministic=True
                )
                observation, reward, terminated, truncated, _ = env.step(action)
                first, over = False, terminated or truncated
                total, length = total + float(reward), length + 1
            played.append((round(total, 6), length))
            observation, _ = env.reset()
        env.close()
    return sorted(played)


# Two of each kind: by trust region and by replay, deterministic and recurrent.
SOME_MODELS = ("ppo", "dqn", "td3", "ppo_lstm", "ars")


@pytest.mark.parametrize(
    "name",
    [
        name if name in SOME_MODELS else pytest.param(name, marks=pytest.mark.full)
        for name in MODELS
    ],
)
def test_the_command_plays_it_as_a_loop_by_hand_does(name, saved, capsys):
    model, path = saved(name)
    env_id = MODELS[name][2]
    line = f"{env_id} n=2 backend=dummy seed=5"
    assert (
        main(["run", line, "--eval", "--episodes", "4", "--policy", str(path), "--out", "out"]) == 0
    )
    assert type(model).__name__ in capsys.readouterr().out
    quota = scores("out")[:]
    expected = by_hand(model, env_id, 4)
    for score, length in expected:
        near = [
            one for one in quota if one[1] == length and one[0] == pytest.approx(score, abs=1e-3)
        ]
        assert near, f"{(score, length)} is not among {quota}"


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_evaluation_gives_what_evaluate_policy_gives(name, saved):
    model, path = saved(name)
    theirs = vec_env.DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * 2)
    theirs.seed(5)
    returns, lengths = evaluation.evaluate_policy(
        model, theirs, 6, return_episode_rewards=True, warn=False
    )
    with vecwrap.build("CartPole-v1", 2, backend="dummy", seed=5) as env:
        ours = vecwrap.evaluate(env, find_policy(str(path), env), 6)
    assert sorted(ours.returns) == sorted(returns)
    assert sorted(ours.lengths) == sorted(lengths)


@pytest.mark.parametrize("name", MODELS)
def test_the_file_says_its_algorithm(name, saved):
    assert trained.read_algorithm(saved(name)[1]) == name


def edited(path, to, **changes):
    """Copy a model with other settings."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(to, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "data":
                content = json.dumps({**json.loads(content), **changes})
            new.writestr(name, content)
    return to


def of_module(path, module):
    with zipfile.ZipFile(path) as archive:
        data = json.loads(archive.read("data"))
    return {
        key: {**data[key], "__module__": module} for key in ("policy_class", "rollout_buffer_class")
    }


def test_one_that_does_not_say_it_needs_the_option(saved, here):
    path = edited(saved("ppo")[1], here / "own.zip", **of_module(saved("ppo")[1], "my.policies"))
    with vecwrap.build("CartPole-v1", 2, backend="dummy") as env:
        with pytest.raises(
            SpecError,
            match=r"own\.zip: the file does not say which algorithm it is of; .*--algo: a2c",
        ):
            find_policy(str(path), env)
        assert find_policy(str(path), env, "ppo").algorithm == "PPO"
        assert find_policy(str(path), env, "PPO").algorithm == "PPO"


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ("a2c", "--algo a2c: .* is a model of ppo; leave --algo out"),
        ("pp0", r'--algo: expected one of a2c, .*, got .pp0.\. Did you mean "ppo"\?'),
        ("RecurrentPPO", "--algo RecurrentPPO: .* is a model of ppo"),
    ],
)
def test_another_algorithm_than_the_files_is_refused(algorithm, message, saved):
    with (
        vecwrap.build("CartPole-v1", 1, backend="dummy") as env,
        pytest.raises(SpecError, match=message),
    ):
        find_policy(str(saved("ppo")[1]), env, algorithm)


def test_ddpg_is_a_td3(saved):
    with vecwrap.build("Pendulum-v1", 1, backend="dummy") as env:
        assert find_policy(str(saved("td3")[1]), env, "ddpg").algorithm == "DDPG"


def test_the_option_is_of_models(saved, capsys):
    assert main(["run", "CartPole-v1 n=1", "--algo", "ppo", "--steps", "5"]) == 2
    assert "--algo: expected a model's file with it" in capsys.readouterr().err
    with (
        vecwrap.build("CartPole-v1", 1, backend="dummy") as env,
        pytest.raises(SpecError, match=r"Did you mean .*ppo\.zip"),
    ):
        find_policy(str(saved("ppo")[1]).removesuffix(".zip"), env)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "CartPole-v1 n=1 | framestack:2",
            r"the pipeline's observations, Box\(.*\(2, 4\).*, got one for Box\(.*\(4,\)",
        ),
        (
            "Acrobot-v1 n=1",
            r"the pipeline's observations, Box\(.*\(6,\).* got one for Box\(.*\(4,\)",
        ),
        ("FrozenLake-v1 n=1", r"the pipeline's observations, Discrete\(16\), got one for Box"),
    ],
)
def test_spaces_that_do_not_fit_are_both_named(line, message, saved):
    with vecwrap.build(line, backend="dummy") as env, pytest.raises(SpecError, match=message):
        find_policy(str(saved("ppo")[1]), env)


class Wide(gymnasium.Env):
    """CartPole's observations, with other actions."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)


def test_actions_that_do_not_fit_are_named(saved):
    message = r"the pipeline's actions, Discrete\(3\), got one for Discrete\(2\)"
    with vecwrap.build(Wide, 1, backend="dummy") as env, pytest.raises(SpecError, match=message):
        find_policy(str(saved("ppo")[1]), env)


class Scene(gymnasium.Env):
    """Images with channels last, of which Stable-Baselines3 shows a model the transpose."""

    observation_space = gymnasium.spaces.Box(0, 255, (36, 36, 3), np.uint8)
    action_space = gymnasium.spaces.Box(-2, 2, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.now = 0
        return self.np_random.integers(0, 256, (36, 36, 3), np.uint8), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.now += 1
        return (
            self.np_random.integers(0, 256, (36, 36, 3), np.uint8),
            float(action[0]),
            self.now == 3,
            False,
            {},
        )


@pytest.mark.parametrize("wrappers", [[], ["clip_action"]])
def test_images_are_transposed_and_clipped_actions_are_those_trained_with(wrappers, here):
    venv = vecwrap.to_sb3(vecwrap.build(Scene, 1, wrappers, backend="dummy"))
    model = sb3.PPO("CnnPolicy", venv, n_steps=4, batch_size=4, device="cpu", seed=1)
    assert model.observation_space.shape == (3, 36, 36)
    model.save("scene.zip")
    venv.close()
    with vecwrap.build(Scene, 2, wrappers, backend="dummy", seed=4) as env:
        ours = vecwrap.evaluate(env, find_policy("scene.zip", env), 2)
    theirs = vec_env.DummyVecEnv([Scene] * 2)
    theirs.seed(4)
    returns, _ = evaluation.evaluate_policy(
        model, theirs, 2, return_episode_rewards=True, warn=False
    )
    np.testing.assert_allclose(sorted(ours.returns), sorted(returns), rtol=1e-5)


def test_masks_go_to_maskable_ppo(here):
    make = functools.partial(Steps, "method")
    venv = vecwrap.to_sb3(vecwrap.build(make, 2, ["monitor"], backend="dummy", seed=3))
    model = contrib.MaskablePPO("MlpPolicy", venv, n_steps=16, batch_size=16, seed=3, device="cpu")
    model.save("masked.zip")
    venv.close()
    assert trained.read_algorithm(Path("masked.zip")) == "maskable_ppo"
    with vecwrap.build(make, 2, ["monitor"], backend="dummy", seed=3) as env:
        reached = vecwrap.evaluate(env, find_policy("masked.zip", env), 6)
    assert best(reached.returns, reached.lengths)
    space = Steps("method").observation_space, Steps("method").action_space

    class Without(gymnasium.Env):
        observation_space, action_space = space

        def reset(self, *, seed=None, options=None):
            return self.observation_space.sample(), {}

    with (
        vecwrap.build(Without, 1, backend="dummy") as env,
        pytest.raises(ArgumentError, match="takes action_masks"),
    ):
        vecwrap.evaluate(env, find_policy("masked.zip", env), 1)


# -- statistics ------------------------------------------------------------------------------------


def normalised_model():
    """A model trained behind SB3's own VecNormalize, and both files."""
    venv = vec_env.VecNormalize(vec_env.DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")] * 2))
    model = sb3.PPO("MlpPolicy", venv, **copy.deepcopy({**ON_POLICY, "batch_size": 16})).learn(200)
    model.save("model.zip")
    venv.save("vecnormalize.pkl")
    venv.training = False
    venv.norm_reward = False
    return model, venv


def test_a_vec_normalizes_statistics_are_used_frozen(capsys):
    model, venv = normalised_model()
    venv.seed(5)
    returns, _ = evaluation.evaluate_policy(model, venv, 2, return_episode_rewards=True, warn=False)
    line = "Pendulum-v1 n=2 backend=dummy seed=5 | normalize"
    for options in ([], ["--eval"]):
        out = f"out{len(options)}"
        given = [
            "--stats",
            "vecnormalize.pkl",
            "--policy",
            "model.zip",
            "--episodes",
            "2",
            "--out",
            out,
            *options,
        ]
        assert main(["run", line, *given]) == 0, capsys.readouterr().err
        np.testing.assert_allclose(
            sorted(score for score, _ in scores(out)[:2]), sorted(returns), rtol=1e-4
        )
    with vecwrap.load("out0", mode="eval") as env:  # the folder has them, as data
        kept = env.chain[0].env.wrapper_statistics()["observations"]
    np.testing.assert_array_equal(kept.mean, venv.obs_rms.mean)
    assert kept.count == venv.obs_rms.count


def test_our_own_statistics_are_used_frozen():
    env = vecwrap.build("Pendulum-v1", 2, ["normalize"], backend="dummy", seed=1)
    model = sb3.PPO(
        "MlpPolicy", vecwrap.to_sb3(env), **copy.deepcopy({**ON_POLICY, "batch_size": 16})
    ).learn(100)
    model.save("model.zip")
    env.save("stats.npz")
    env.close()
    line = "Pendulum-v1 n=2 backend=dummy seed=5 | normalize"
    with vecwrap.build(f"{line} | monitor", stats="stats.npz") as env:
        expected = vecwrap.evaluate(env, model, 2)
    given = ["--eval", "--episodes", "2", "--policy", "model.zip"]
    assert main(["run", line, *given, "--stats", "stats.npz", "--out", "out"]) == 0
    np.testing.assert_allclose(
        sorted(score for score, _ in scores("out")[:2]), sorted(expected.returns), rtol=1e-4
    )


def test_without_statistics_a_normalised_model_is_refused(capsys):
    normalised_model()
    assert (
        main(["run", "Pendulum-v1 n=2 | normalize", "--policy", "model.zip", "--steps", "10"]) == 2
    )
    assert "statistics have seen nothing yet" in capsys.readouterr().err
    assert (
        main(
            ["run", "Pendulum-v1 n=2 | normalize_reward", "--policy", "model.zip", "--steps", "10"]
        )
        == 0
    )


@pytest.mark.parametrize(
    ("line", "content", "message"),
    [
        (
            "Pendulum-v1 n=1 | normalize",
            b"no pickle",
            "expected a file that a VecNormalize's save wrote",
        ),
        (
            "Pendulum-v1 n=1 | normalize",
            pickle.dumps({"obs_rms": 1}),
            "expected a file that a VecNormalize's save wrote",
        ),
        ("Pendulum-v1 n=1", None, "expected a pipeline that normalises"),
        ("CartPole-v1 n=1 | normalize", None, r"expected statistics of shape \(4,\), got \(3,\)"),
    ],
)
def test_statistics_that_do_not_fit_are_refused(line, content, message):
    normalised_model()
    if content is not None:
        Path("vecnormalize.pkl").write_bytes(content)
    with pytest.raises(VecwrapError, match=message):
        from vecwrap.pipeline.build import build_plan
        from vecwrap.pipeline.plan import plan

        spec = vecwrap.PipelineSpec.parse(f"{line.replace(' n=1', ' n=1 backend=dummy')}")
        build_plan(
            plan(spec), functools.partial(trained.use_vec_normalize, Path("vecnormalize.pkl"))
        )


# -- strange files ---------------------------------------------------------------------------------


class Bomb:
    def __reduce__(self):
        return Path.touch, (Path("ran"),)


@pytest.mark.parametrize(
    "option", [["--policy", "bomb.zip"], ["--policy", "random", "--stats", "bomb.pkl"]]
)
def test_no_imports_refuses_what_runs_code(option, capsys):
    with zipfile.ZipFile("bomb.zip", "w") as archive:
        archive.writestr("data", pickle.dumps(Bomb()))
    Path("bomb.pkl").write_bytes(pickle.dumps(Bomb()))
    assert main(["run", "CartPole-v1 n=1", "--steps", "5", "--no-imports", *option]) == 2
    assert (
        "expected nothing that runs code (--no-imports), got a file of pickles"
        in capsys.readouterr().err
    )
    assert not Path("ran").exists()


@pytest.mark.parametrize("content", [None, b"", b"text", "empty zip", "another zip", "a list"])
def test_what_is_no_model_is_refused_and_nothing_of_it_is_run(content):
    path = Path("x.zip")
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        with zipfile.ZipFile(path, "w") as archive:
            if content != "empty zip":
                archive.writestr("data", '{"a": 1}' if content == "another zip" else "[1]")
    message = (
        "there is no such file"
        if content is None
        else r"expected a \.zip that a Stable-Baselines3 model's save"
    )
    with (
        vecwrap.build("CartPole-v1", 1, backend="dummy") as env,
        pytest.raises(SpecError, match=message),
    ):
        find_policy("x.zip", env)


def test_one_that_cannot_be_loaded_is_one_message(saved, here):
    path = edited(saved("ppo")[1], here / "broken.zip", observation_space=3)
    message = r"broken\.zip: cannot be loaded as a model of PPO"
    with (
        vecwrap.build("CartPole-v1", 1, backend="dummy") as env,
        pytest.raises(SpecError, match=message),
    ):
        find_policy(str(path), env)


def test_the_help_says_that_it_runs_code(capsys):
    assert main(["run", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "it holds pickles, so loading it runs the code in it" in text
    assert "--algo" in text
    assert "--stats" in text


def test_it_is_recorded(saved):
    _, path = saved("ppo")
    given = ["--policy", str(path), "--steps", "20", "--record", "--out", "out"]
    assert main(["run", "CartPole-v1 n=2 backend=dummy", *given]) == 0
    assert list(Path("out/videos").glob("*.mp4"))
    assert json.loads(Path("out/run.json").read_text())["policy"] == str(path)
