"""What people read who come from other libraries, with their code, their names and their habits."""

import functools
import re
import subprocess
import sys
import traceback
import types
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import vecwrap
from vecwrap.cli import main
from vecwrap.env.hints import WRAPPER_HINTS
from vecwrap.errors import ArgumentError, PlanError, SpecError, SubEnvError, is_installed

BACKENDS = ["dummy", "shmem"]


class Now(gymnasium.Env):
    """Of the API of today."""

    observation_space = spaces.Box(0, 9, (2,), np.float32)
    action_space = spaces.Discrete(3)
    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}


class FourValues(Now):
    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, {}


class NoPair(Now):
    """Its observation has two parts, which could be taken for an observation and an info."""

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32)


class NoPairOfText(NoPair):
    observation_space = spaces.Dict(a=spaces.Discrete(2), b=spaces.Discrete(2))

    def reset(self, *, seed=None, options=None):
        return {"a": 0, "b": 0}


class NoPairOfNumber(NoPair):
    observation_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return 0


class NoSeed(Now):
    def reset(self):
        return np.zeros(2, np.float32), {}


class RenderMode(Now):
    def render(self, mode):
        return np.zeros((2, 2, 3), np.uint8)


class Unpacks(gymnasium.Wrapper):
    """As Gymnasium's wrappers do it."""

    def reset(self, **kwargs):
        observation, info = self.env.reset(**kwargs)
        return observation, info

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, info


class Silent(Now):
    def step(self, action):
        if action != 2:
            raise AssertionError  # not by assert, to which pytest gives a text
        return super().step(action)


def play(env, backend, **settings):
    with vecwrap.build(env, n=2, backend=backend, **settings) as built:
        built.reset(seed=1)
        return built.step([0, 1])


# -- the old Gym API -------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "wrappers", [[], ["time_limit:9"], [Unpacks]], ids=["plain", "time_limit", "unpacks"]
)
@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (
            FourValues,
            (
                "step returned four values, expected (observation, reward, terminated, truncated, "
                "info)"
            ),
        ),
        (NoPair, "expected (observation, info), got ndarray"),
        (NoPairOfText, "expected (observation, info), got dict"),
        (NoPairOfNumber, "expected (observation, info), got int"),
        (NoSeed, "expected reset(self, *, seed=None, options=None)"),
    ],
)
def test_an_environment_of_the_old_gym_api(backend, wrappers, env, expected):
    with pytest.raises(SubEnvError) as error:
        play(env, backend, wrappers=wrappers)
    for part in (expected, "the old Gym API", "docs/migrating.md", "shimmy.GymV21CompatibilityV0"):
        assert part in str(error.value)


@pytest.mark.parametrize("env", [NoPair, NoPairOfNumber])
def test_a_wrapper_of_the_users_around_one_without_pair(env):
    with pytest.raises(SubEnvError, match="the old Gym API"):
        play(lambda: Unpacks(env()), "dummy")


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_environment_whose_render_takes_a_mode(backend):
    with vecwrap.build(RenderMode, n=1, backend=backend, render_mode="rgb_array") as env:
        env.reset(seed=1)
        with pytest.raises(SubEnvError, match=r"the old Gym API: expected render\(self\)"):
            env.render()


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_environment_that_derives_from_gym(backend):
    core = types.ModuleType("gym.core")
    core.Env = type("Env", (), {"__module__": "gym.core"})
    mine = type("Mine", (core.Env,), {})
    with pytest.raises(
        SubEnvError, match=r"gave Mine, a gym\.Env of the old Gym API, expected a gymnasium\.Env"
    ):
        vecwrap.build(mine, n=1, backend=backend)


def test_an_id_whose_class_does_not_derive_from_gymnasium(monkeypatch):
    for name in ("register", "registry"):
        monkeypatch.setattr(
            gymnasium.envs.registration, name, getattr(gymnasium.envs.registration, name)
        )
    made = type("Mine", (), {"metadata": {"render_modes": ["rgb_array"]}})
    monkeypatch.setitem(
        gymnasium.registry, "Mine-v0", gymnasium.envs.registration.EnvSpec("Mine-v0", made)
    )
    with pytest.raises(SubEnvError, match="the old Gym API: if its class derives from gym.Env"):
        vecwrap.build("Mine-v0", n=1, backend="dummy")


def test_an_environments_own_unpacking_is_not_taken_for_the_old_api():
    class Mine(Now):
        def step(self, action):
            _a, _b, _c, _d, _e = (1, 2, 3, 4)

    with pytest.raises(SubEnvError) as error:
        play(Mine, "dummy")
    assert "old Gym API" not in str(error.value)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("wrappers", [[], ["monitor"], ["tile"]])
def test_calls_of_the_old_api_on_the_vector(backend, wrappers):
    with vecwrap.build("CartPole-v1", 2, wrappers, backend=backend, render_mode="rgb_array") as env:
        with pytest.raises(
            AttributeError, match=r"'seed'. Here it is reset\(seed=...\), or build\(..., seed=...\)"
        ):
            env.seed(1)
        for render in (
            functools.partial(env.render, mode="human"),
            functools.partial(env.render, "human"),
        ):
            with pytest.raises(ArgumentError, match="got 'human'; give build.*render_mode='human'"):
                render()


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("n_envs", "num_envs"),
        ("venv", "chain, or find"),
        ("env_is_wrapped", "vecwrap.to_sb3"),
        ("get_wrapper_attr", "get_attr(name)"),
        ("obs_rms", "wrapper_statistics()"),
        ("gravity", "env.get_attr('gravity')"),
    ],
)
def test_an_attribute_of_other_libraries(name, here):
    with vecwrap.build("CartPole-v1", 2, ["monitor"], backend="dummy") as env:
        with pytest.raises(AttributeError) as error:
            getattr(env, name)
        assert f"'VecEnv' object has no attribute '{name}'" in str(error.value)
        assert here in str(error.value)
        assert not hasattr(env, name)
        assert env.get_attr("gravity") == (9.8, 9.8)


class Failing(vecwrap.VecEnvWrapper):
    @property
    def speed(self):
        return self.wheels


def test_a_property_of_a_wrapper_that_fails_says_itself_why():
    with (
        vecwrap.build("CartPole-v1", 1, [Failing], backend="dummy") as env,
        pytest.raises(AttributeError, match="no attribute 'wheels'"),
    ):
        print(env.speed)


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("VecNormalize", 'wrappers=["normalize"]'),
        ("DummyVecEnv", 'backend="dummy"'),
        ("SubprocVectorEnv", 'backend="subprocess"'),
        ("GrayscaleObservation", 'wrappers=["grayscale"]'),
        ("TimeLimit", 'wrappers=["time_limit:1000"]'),
        ("evaluate_policy", "vecwrap.evaluate(env, policy)"),
        ("Env", "gymnasium.Env"),
    ],
)
def test_a_name_of_other_libraries_also_in_a_from_import(name, here):
    with pytest.raises(AttributeError, match="Here it is") as error:
        getattr(vecwrap, name)
    assert here in str(error.value)
    with pytest.raises(ImportError) as error:
        exec(f"from vecwrap import {name}")
    assert str(error.value).startswith(f"cannot import name '{name}' from 'vecwrap'. Here it is ")
    assert here in str(error.value)


def test_each_name_of_other_libraries_leads_to_a_wrapper_that_there_is():
    known = vecwrap.pipeline.registry.wrappers.names()
    assert {wrapper.partition(":")[0] for wrapper in WRAPPER_HINTS} <= set(known)


# -- actions ---------------------------------------------------------------------------------------


class Reals(Now):
    action_space = spaces.Box(-1, 1, (1,), np.float32)


@pytest.mark.parametrize(
    ("env", "actions", "said"),
    [
        (Now, np.array([0.0, 1.0]), "got float64; np.asarray(actions, int) has it"),
        (Now, [0.0, 1.0], "got float64; np.asarray(actions, int) has it"),
        (
            Now,
            np.array([0.5, 1.0], np.float32),
            "got float32; choose whole numbers, as np.argmax does",
        ),
        (Now, [np.nan, 1.0], "got float64; choose whole numbers, as np.argmax does"),
        (Now, 1, "got shape (); [action] * 2 repeats it"),
        (Now, [[0], [1]], "got shape (2, 1); np.reshape(actions, (2,)) has it"),
        (Now, [[0, 1]], "got shape (1, 2); np.reshape(actions, (2,)) has it"),
        (Now, [0, 1, 2], "got shape (3,)"),
        (Reals, [0.0, 1.0], "got shape (2,); np.reshape(actions, (2, 1)) has it"),
        (Reals, [0.5], "got shape (1,); [action] * 2 repeats it"),
    ],
)
def test_actions_of_the_wrong_kind_or_shape(env, actions, said):
    with vecwrap.build(
        env, n=2, backend="dummy"
    ) as built:  # they are looked at before any backend has them
        built.reset(seed=1)
        with pytest.raises(ArgumentError) as error:
            built.step(actions)
        assert str(error.value).startswith("actions: expected ")
        assert str(error.value).endswith(said)


def test_tensors_as_actions():
    torch = pytest.importorskip("torch")
    with vecwrap.build(Now, n=2, backend="dummy") as env:
        env.reset(seed=1)
        with pytest.raises(ArgumentError, match=r"got float32; np.asarray\(actions, int\) has it"):
            env.step(torch.tensor([0.0, 1.0]))
        with pytest.raises(ArgumentError, match=r"got Tensor: .*detach\(\)"):
            env.step(torch.tensor([0.0, 1.0], requires_grad=True))
        env.step(torch.tensor([0, 1]))
        env.step(np.asarray(torch.tensor([0.0, 1.0]), int))


# -- keys and values -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["num", "num_env", "num_envs", "n_env", "n_envs", "nenvs", "env_num", "count"]
)
def test_other_words_for_n(name):
    said = "The number of sub-environments is called n."
    with pytest.raises(SpecError, match=rf"build: {name}: unknown key\. {said}"):
        vecwrap.build("CartPole-v1", **{name: 4})
    with pytest.raises(SpecError, match=rf"pipeline:2: {name}: unknown key\. {said}"):
        vecwrap.PipelineSpec.from_yaml(f"env: CartPole-v1\n{name}: 4\n")
    with pytest.raises(SpecError, match=rf"{name}: unknown key\. {said}"):
        vecwrap.build(f"CartPole-v1 {name}=4")
    with pytest.raises(
        PlanError, match=rf"env_kwargs.{name}: CartPole-v1 takes no such argument\. {said}"
    ):
        vecwrap.build("CartPole-v1", backend="dummy", env_kwargs={name: 4})


def test_an_environment_that_takes_an_argument_of_such_a_name_gets_it():
    class Mine(Now):
        def __init__(self, num):
            self.num = num

    with vecwrap.build(Mine, n=2, backend="dummy", env_kwargs={"num": 3}) as env:
        assert env.get_attr("num") == (3, 3)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('n: "4"', 'n: expected int, got "4". Write 4, without quotes.'),
        ("n: 4.0", "n: expected int, got 4.0. Write 4."),
        ("n: 1e1", "n: expected int, got 10.0. Write 10."),
        ("n: four", 'n: expected int, got "four".'),
        ("n: 4.5", "n: expected int, got 4.5."),
        ("copy: no", 'copy: expected true or false, got "no". Write false.'),
        ('copy: "true"', 'copy: expected true or false, got "true". Write true, without quotes.'),
        (
            'wrappers: [framestack: "4"]',
            'wrappers[0] "framestack", argument k: expected int, got "4". Write 4, without quotes.',
        ),
        (
            'wrappers: [scale_reward: "0.5"]',
            (
                'wrappers[0] "scale_reward", argument factor: expected float, got "0.5". Write '
                "0.5, without quotes."
            ),
        ),
    ],
)
def test_a_number_or_truth_value_that_came_as_something_else(written, said, tmp_path):
    (tmp_path / "p.yaml").write_text(f"env: CartPole-v1\n{written}\n")
    with pytest.raises(SpecError) as error:
        vecwrap.load(tmp_path / "p.yaml")
    assert str(error.value) == f"{tmp_path / 'p.yaml'}:2: {said}"


def test_text_for_n_in_python():
    with pytest.raises(SpecError, match=r'^n: expected int, got "4"\. Write 4, without quotes\.$'):
        vecwrap.build("CartPole-v1", n="4")


# -- ids -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize(
    ("env_id", "module", "pip"),
    [
        ("MiniGrid-Empty-5x5-v0", "minigrid", "minigrid"),
        ("BabyAI-GoToRedBall-v0", "minigrid", "minigrid"),
        ("FetchReach-v2", "gymnasium_robotics", "gymnasium-robotics"),
        ("HandReach-v1", "gymnasium_robotics", "gymnasium-robotics"),
        ("highway-fast-v0", "highway_env", "highway-env"),
        ("Meta-World/MT1-v0", "metaworld", "metaworld"),
        ("bsuite/catch-v0", "shimmy", '"shimmy[dm-control,bsuite]"'),
        ("HalfCheetahBulletEnv-v0", "pybullet_envs_gymnasium", "pybullet-envs-gymnasium"),
    ],
)
def test_an_id_of_a_well_known_package(monkeypatch, is_there, env_id, module, pip):
    for known in [
        known for known in gymnasium.registry if known.startswith(env_id.rpartition("-v")[0])
    ]:
        monkeypatch.delitem(gymnasium.registry, known)  # another test may have imported the package
    monkeypatch.setattr("vecwrap.pipeline.packages.is_installed", lambda name: is_there)
    stem = env_id.rpartition("-v")[0]
    with pytest.raises(SpecError) as error:
        vecwrap.build(env_id)
    needs = "" if is_there else f" It needs {module.replace('_', '-')}: pip install {pip}."
    assert str(error.value) == (
        f'env "{env_id}": unknown environment.{needs} Write "{module}:{env_id}", or '
        f'"{module}:{stem}" for its newest '
        "version."
    )


def test_the_newest_version_of_a_package_that_is_there():
    if not is_installed("gymnasium_robotics"):
        pytest.skip("needs gymnasium-robotics")
    # it changes Gymnasium's registry
    program = "import vecwrap; vecwrap.build('gymnasium_robotics:FetchReach-v2')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert re.search(r"there is no such version; there is .*FetchReach-v4", done.stderr), (
        done.stderr
    )


@pytest.mark.parametrize("env_id", ["procgen-coinrun-v0", "SuperMarioBros-v0"])
def test_an_id_of_a_package_for_the_old_gym(env_id):
    with pytest.raises(
        SpecError, match=r"for the package gym: wrap it as docs/migrating\.md shows\.$"
    ):
        vecwrap.build(env_id)


def test_a_module_that_is_not_there_but_well_known():
    with pytest.raises(
        SpecError,
        match=r"there is no module panda_gym\. It needs panda-gym: pip install panda-gym\.$",
    ):
        vecwrap.build("panda_gym:PandaReach-v3")


def test_versions_that_gymnasium_only_raises_for():
    pytest.importorskip("mujoco")
    with pytest.raises(
        SpecError, match=r'"Hopper-v2": Gymnasium no longer has .*"Hopper" is the newest one\.$'
    ):
        vecwrap.build("Hopper-v2")
    with pytest.raises(SpecError, match=r"there is Hopper-v4, Hopper-v5\.$"):
        vecwrap.build("Hopper-v1")


# -- exceptions without text -----------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_assertion_without_text_is_shown_with_its_file_line_and_code(backend):
    with pytest.raises(SubEnvError) as error:
        play(Silent, backend)
    line = Silent.step.__code__.co_firstlineno + 2
    assert (
        "raised AssertionError in step of its episode 1, after 0 steps on action 0: "
        f"{__file__}:{line}: "
    ) in str(error.value)
    assert f":{line}: raise AssertionError" in str(error.value)


@pytest.mark.parametrize("backend", ["subprocess", "shmem"])
def test_what_a_script_defines_keeps_its_file_in_a_worker(backend, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import gymnasium, vecwrap\n"
        "class Mine(gymnasium.Env):\n"
        "    observation_space = action_space = gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        assert seed == 3\n"
        f"with vecwrap.build(Mine, n=1, backend={backend!r}) as env:\n"
        "    try:\n"
        "        env.reset(seed=1)\n"
        "    except vecwrap.SubEnvError as error:\n"
        "        print(error)\n"
        "        print(error.__cause__)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120
    )
    assert f"raised AssertionError in reset: {script}:5: assert seed == 3" in done.stdout, (
        done.stderr
    )
    assert f'File "{script}", line 5, in reset' in done.stdout


def test_a_wrapper_that_raises_without_text():
    class Mine(gymnasium.Wrapper):
        def __init__(self, env):
            raise AssertionError

    with pytest.raises(
        PlanError, match=rf"raised AssertionError: {__file__}:\d+: raise AssertionError$"
    ):
        vecwrap.build("CartPole-v1", 1, [Mine])


# -- the command -----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["run", "explain", "time", "tune"])
def test_a_pipeline_without_quotes(command, capsys):
    assert main([command, "CartPole-v1", "n=4", "|", "framestack:4"]) == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert f"Quote the whole pipeline: vecwrap {command} 'CartPole-v1 n=4 | framestack:4'" in said


def test_a_pipeline_without_quotes_where_several_may_stand(capsys):
    assert main(["check", "CartPole-v1", "n=4"]) == 1
    assert 'got "n=4". In a shell, quote the whole line.' in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--num", "--num-envs", "--n_envs"])
def test_an_option_for_n_of_another_name(option, capsys):
    assert main(["run", "CartPole-v1", option, "4"]) == 2
    assert "The number of sub-environments is called n." in " ".join(
        capsys.readouterr().err.replace("│", " ").split()
    )


@pytest.mark.parametrize("steps", ["100", "1e2", "1_00", "1E+2"])
def test_a_number_of_steps_as_people_write_it(steps, tmp_path, capsys):
    assert (
        main(
            [
                "run",
                "CartPole-v1",
                "--backend",
                "dummy",
                "--steps",
                steps,
                "--out",
                str(tmp_path / "run"),
            ]
        )
        == 0
    )
    assert "agent steps  100 in" in capsys.readouterr().out


@pytest.mark.parametrize("steps", ["0", "-1", "1e-1", "1.5", "many", "nan", "inf", "1e999"])
def test_a_number_of_steps_that_is_none(steps, capsys):
    assert main(["run", "CartPole-v1", "--steps", steps]) == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert f"expected a whole number from 1, such as 10000 or 1e4, got {steps}" in said


WRONG = """env: CartPole-v1
num: 4
seed: "1"
wrapers: [framestack: 4]
wrappers:
  - framestak: 4
  - framestack: {k: four, pad: 3}
eval:
  nn: 1
  training: maybe
"""
FOUND = {
    (2, "unreadable", "num: unknown key."),
    (3, "unreadable", "seed: expected int"),
    (4, "unreadable", "wrapers: unknown key."),
    (6, "refused", "unknown wrapper."),
    (7, "refused", "argument pad: unknown argument."),
    (7, "refused", "argument k: expected int"),
    (9, "unreadable", "eval.nn: unknown key."),
    (10, "unreadable", "eval.training: expected true or false"),
}


def test_check_reports_all_mistakes_of_a_file(tmp_path):
    file = tmp_path / "wrong.yaml"
    file.write_text(WRONG)
    findings = vecwrap.check(file)
    assert len(findings) == len(FOUND)
    for line, kind, reason in FOUND:
        (one,) = [each for each in findings if each.line == line and each.reason.startswith(reason)]
        assert (one.id, one.severity, one.file) == (kind, "error", str(file))


def test_the_command_reports_them_too(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("wrong.yaml").write_text(WRONG)
    assert main(["check", "wrong.yaml"]) == 1
    out = capsys.readouterr().out
    assert out.endswith("8 errors.\n")
    assert all(reason in out for _, _, reason in FOUND)
    assert main(["run", "wrong.yaml"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert [
        line.partition(": ")[0 if i else 2].partition(": ")[0] for i, line in enumerate(said)
    ] == [f"wrong.yaml:{line}" for line in (2, 3, 4, 9, 10)]


def test_an_unknown_environment_does_not_hide_a_wrong_option_of_the_backend():
    found = vecwrap.check({"env": "CartPol-v1", "n": 2, "backend": {"name": "shmem", "worker": 2}})
    assert [finding.reason.partition(":")[0] for finding in found] == ['env "CartPol-v1"', "worker"]


def test_all_unknown_arguments_of_a_call():
    with pytest.raises(SpecError) as error:
        vecwrap.build("CartPole-v1", num=4, sed=1)
    assert [line.partition(": unknown key")[0] for line in str(error.value).splitlines()] == [
        "build: num",
        "build: sed",
    ]
    assert [type(each) for each in error.value.mistakes] == [SpecError, SpecError]


def test_a_file_of_nothing_but_mistakes_is_refused_after_some():
    with pytest.raises(SpecError) as error:
        vecwrap.PipelineSpec.from_dict({f"key{i}": i for i in range(10_000)})
    assert len(error.value.mistakes) < 100


# -- tracebacks ------------------------------------------------------------------------------------


def entries(call):
    """The frames of an error's traceback from the call on, and the whole text."""
    with pytest.raises((vecwrap.VecwrapError, gymnasium.error.ClosedEnvironmentError)) as error:
        call()
    frames = traceback.extract_tb(error.value.__traceback__)
    ours = [
        frame
        for frame in frames
        if Path(frame.filename).is_relative_to(Path(vecwrap.__file__).parent)
    ]
    return len(ours), "".join(traceback.format_exception(error.value))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "mistake",
    [
        {"env": "CartPol-v1"},
        {"n": "4"},
        {"num": 4},
        {"wrappers": ["framestak"]},
        {"wrappers": ["framestack:four"]},
        {"wrappers": ["framestack:0"]},
        {"wrappers": ["grayscale"]},
        {"wrappers": ["atari"]},
        {"wrappers": ["framestack:4", "time_limit:3"]},
        {"render_mode": "rgb"},
        {"env_kwargs": {"gravity": 1}},
        {"wrappers": ["normalize"], "stats": "no-such-file.npz"},
    ],
    ids=str,
)
def test_a_mistake_in_build_shows_one_frame_of_ours_and_no_cause(backend, mistake):
    frames, text = entries(
        lambda: vecwrap.build(**{"env": "CartPole-v1", "n": 2, "backend": backend, **mistake})
    )
    assert frames == 1
    assert text.count("Traceback (most recent call last)") == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mistake_in_a_call_shows_one_frame_of_ours(backend):
    with vecwrap.build("CartPole-v1", 2, ["monitor"], backend=backend) as env:
        calls = [
            lambda: env.step([0, 1]),
            lambda: env.reset(seed=[1]),
            lambda: env.reset(options={"reset_mask": [True, False]}),
            lambda: env.load_state_dict({}),
            lambda: env.set_attr("gravity", [1.0]),
        ]
        assert [entries(call)[0] for call in calls] == [1] * 5
        env.reset(seed=1)
        for call in (
            lambda: env.step([0.0, 1.0]),
            lambda: env.step([0]),
            lambda: env.send([0], [7]),
        ):
            frames, text = entries(call)
            assert frames == 1
            assert text.count("Traceback (most recent call last)") == 1
    assert entries(lambda: env.step([0, 1]))[0] == 1  # closed


def test_a_mistake_in_other_functions():
    calls = [
        lambda: vecwrap.load("no-such-file.yaml"),
        lambda: vecwrap.wrap("CartPole-v1"),
        lambda: vecwrap.PipelineSpec.parse("CartPole-v1 n=x"),
        lambda: vecwrap.PipelineSpec("CartPole-v1").override(k=4),
        lambda: vecwrap.PipelineSpec("CartPole-v1", n="4"),
    ]
    assert [entries(call)[0] for call in calls] == [1] * 5


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sub_environments_own_traceback_stays_as_the_cause(backend):
    frames, text = entries(lambda: play(Silent, backend))
    assert frames == 1
    assert "raise AssertionError  # not by assert" in text
    assert text.count("Traceback (most recent call last)") == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_users_wrapper_raised_stays_as_the_cause(backend):
    class Mine(gymnasium.Wrapper):
        def __init__(self, env):
            raise KeyError("mine")

    class Ours(gymnasium.Wrapper):
        def __init__(self, env):
            raise PlanError("mine")

    for wrapper in (Mine, Ours):
        frames, text = entries(
            lambda wrapper=wrapper: vecwrap.build("CartPole-v1", 2, [wrapper], backend=backend)
        )
        assert frames == 1
        assert f'File "{__file__}"' in text.partition("direct cause")[0]


class Refuses(vecwrap.VecEnvWrapper):
    """Raises an error of ours in the user's code."""

    def on_step(self, step):
        raise ArgumentError("mine")


class Broken(vecwrap.VecEnvWrapper):
    def on_step(self, step):
        return step.nothing


def test_a_users_own_code_below_the_call_is_kept():
    with vecwrap.build("CartPole-v1", 1, [Refuses], backend="dummy") as env:
        text = entries(lambda: env.reset(seed=1))[1]
    assert 'raise ArgumentError("mine")' in text


def test_other_errors_keep_their_tracebacks(monkeypatch):
    with (
        vecwrap.build("CartPole-v1", 1, [Broken], backend="dummy") as env,
        pytest.raises(AttributeError) as error,
    ):
        env.reset(seed=1)
    assert "return step.nothing" in "".join(traceback.format_exception(error.value))
    monkeypatch.setattr("vecwrap.pipeline.build.plan", lambda spec: 1 / 0)
    with pytest.raises(ZeroDivisionError) as error:
        vecwrap.build("CartPole-v1")
    assert len(traceback.extract_tb(error.value.__traceback__)) == 4


def test_the_whole_traceback_on_request(monkeypatch, capsys):
    monkeypatch.setenv("VECWRAP_TRACEBACK", "full")
    frames, text = entries(lambda: vecwrap.build("CartPole-v1", 2, ["grayscale"], backend="dummy"))
    assert frames > 3
    assert "direct cause" in text
    monkeypatch.delenv("VECWRAP_TRACEBACK")
    assert main(["run", "CartPole-v1 | framestak", "--debug"]) == 2
    assert capsys.readouterr().err.count('File "') > 5
    assert "VECWRAP_TRACEBACK" not in vecwrap.errors.os.environ
