"""What `import vecwrap` costs, in modules rather than in time; and what its public names are."""

import json
import subprocess
import sys

import pytest

HEAVY = (
    "cv2",
    "ruamel",
    "msgspec",
    "typer",
    "rich",
    "imageio",
    "ale_py",
    "torch",
    "stable_baselines3",
)


def modules_after(code):
    """The names in sys.modules of a fresh interpreter that ran the code."""
    program = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    return set(json.loads(result.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def base():
    return modules_after("import gymnasium, numpy")


def test_importing_vecwrap_adds_nothing_but_itself(base):
    added = modules_after("import gymnasium, numpy\nimport vecwrap") - base
    assert added == {"vecwrap"}


@pytest.mark.parametrize(
    "code",
    [
        "import vecwrap",
        "import vecwrap; vecwrap.to_torch; vecwrap.to_sb3; vecwrap.to_tianshou",
        (
            "import vecwrap; vecwrap.VecEnv; vecwrap.VecEnvWrapper; vecwrap.StepResult; "
            "vecwrap.SubEnvError"
        ),
    ],
)
def test_heavy_libraries_wait_until_they_are_needed(code):
    loaded = {name.partition(".")[0] for name in modules_after(code)}
    assert loaded.isdisjoint(HEAVY)


def test_building_and_stepping_a_pipeline_in_python_needs_no_terminal_and_no_yaml_library():
    code = (
        "import vecwrap\n"
        "env = vecwrap.build('CartPole-v1', n=2, backend='dummy', wrappers=['framestack:2'])\n"
        "env.reset(seed=1); env.step(env.action_space.sample()); env.close()"
    )
    loaded = {name.partition(".")[0] for name in modules_after(code)}
    assert loaded.isdisjoint({"ruamel", "typer", "rich", "imageio", "cv2"})


def test_every_public_name_is_there_and_no_other():
    import vecwrap

    for name in vecwrap.__all__:
        assert getattr(vecwrap, name) is not None
    assert dir(vecwrap) == sorted(vecwrap.__all__)
    with pytest.raises(AttributeError, match="no attribute 'biuld'"):
        vecwrap.biuld  # noqa: B018


def test_a_public_name_stays_itself_when_its_module_is_imported():
    import importlib

    import vecwrap

    importlib.import_module("vecwrap.pipeline.build")
    assert callable(vecwrap.build)
    program = (
        "import vecwrap.pipeline.build\nimport vecwrap\nassert callable(vecwrap.build), "
        "vecwrap.build"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("make", r"Here it is vecwrap\.build\(id, n=1\)"),
        ("VecNormalize", r'wrappers=\["normalize"\]'),
        ("SubprocVecEnv", 'backend="subprocess"'),
        ("biuld", r"Did you mean vecwrap\.build\?"),
        ("qwxyz", "no attribute 'qwxyz'$"),
    ],
)
def test_a_name_that_is_not_here_is_answered_with_the_one_that_is(name, said):
    import vecwrap

    with pytest.raises(AttributeError, match=said):
        getattr(vecwrap, name)


def test_public_modules_are_there_without_an_import_of_their_own_and_load_when_first_used(base):
    code = (
        "import gymnasium, numpy\nimport vecwrap\n"
        "assert vecwrap.wrappers.monitor.Monitor.__name__ == 'Monitor'\n"
        "assert issubclass(vecwrap.errors.CheckpointError, vecwrap.VecwrapError)"
    )
    loaded = modules_after(code)
    assert "vecwrap.wrappers.monitor" in loaded
    assert loaded.isdisjoint({"vecwrap.wrappers.video", "vecwrap.testing", *HEAVY})


def test_every_module_of_a_wrapper_is_known_to_type_checkers_and_at_run_time():
    import re
    from pathlib import Path

    import vecwrap

    folder = Path(vecwrap.wrappers.__file__).parent
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    named = re.findall(
        r"^    from vecwrap\.wrappers import (\w+) as \1$",
        (folder / "__init__.py").read_text(),
        re.M,
    )
    assert sorted(named) == sorted(modules)
    for name in modules:
        assert getattr(vecwrap.wrappers, name).__name__ == f"vecwrap.wrappers.{name}"


def test_a_module_that_no_wrapper_has_is_refused_and_a_missing_package_is_not_hidden(monkeypatch):
    import vecwrap

    with pytest.raises(AttributeError, match=r"no attribute 'monitr'.*vecwrap list"):
        vecwrap.wrappers.monitr  # noqa: B018
    assert not hasattr(vecwrap.wrappers, "__wrapped__")
    monkeypatch.delitem(sys.modules, "vecwrap.wrappers.resize", raising=False)
    monkeypatch.delattr(vecwrap.wrappers, "resize", raising=False)
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ModuleNotFoundError, match="gymnasium"):
        vecwrap.wrappers.resize  # noqa: B018
