"""What strangers' files and environments say reaches a terminal, a log and a plot as text, and in
short.
"""

import json
import logging
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import vecwrap
from tests.pipeline.test_strange_files import folder  # noqa: F401
from vecwrap.cli import main
from vecwrap.errors import PlanError, SpecError, SubEnvError, VecwrapError

EVIL = "\x1b]0;owned\x07\x1b[31m\x9b1m\u202e\r[bold]:x:"
CONTROL = "\x1b\x07\x9b\u202e\r"
ENVIRONMENT = f'''
import logging, warnings
import gymnasium, numpy as np
EVIL = {EVIL!r}

class Evil(gymnasium.Env):
    """Says strange things."""

    observation_space = gymnasium.spaces.Dict({{EVIL: gymnasium.spaces.Box(-1, 1, (2,))}})
    action_space = gymnasium.spaces.Discrete(2)
    metadata = {{"render_modes": [EVIL], "step_unit": EVIL}}
    lives = 3

    def __init__(self, said="", raise_in=""):
        self.said, self.raise_in, self.steps = said, raise_in, 0
        if raise_in == "make":
            raise RuntimeError(EVIL + said * 900_000)

    def reset(self, *, seed=None, options=None):
        warnings.warn(EVIL + self.said * 900_000)
        logging.getLogger("vecwrap").warning(EVIL)
        return self.observation_space.sample(), {{EVIL: EVIL}}

    def step(self, action):
        self.steps += 1
        if self.raise_in == "step":
            raise RuntimeError(EVIL + self.said * 900_000)
        return self.observation_space.sample(), 1.0, self.steps % 5 == 0, False, {{}}

Evil.__name__ = Evil.__qualname__ = EVIL + "Evil"
gymnasium.register("Evil" + "-v0", Evil)
'''


def said_by(arguments, capsys):
    """Run a command; give all that it printed, which must be text."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        main(arguments)
    said = "".join(capsys.readouterr())
    assert not set(said) & set(CONTROL), ascii(said)
    assert len(said) < 60_000, f"{len(said)} characters"
    return said


@pytest.fixture
def evil(tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text(ENVIRONMENT)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield
    gymnasium.registry.pop("Evil-v0", None)


@pytest.mark.parametrize(
    "settings", ["", "raise_in=step", "raise_in=make", "raise_in=step env_kwargs.said=x"]
)
@pytest.mark.parametrize(
    "command",
    [
        *(
            ["run", "--steps", "8", "--out", "out"],
            ["check"],
            ["explain"],
            ["time", "--steps", "8"],
            ["run", "--debug"],
        ),
        ["tune", "--budget", "0.3s"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
@pytest.mark.usefixtures("evil")
def test_what_an_environment_says_is_text_on_every_command(command, settings, capsys):
    line = f"evil:Evil-v0 n=1 backend=dummy {settings and 'env_kwargs.' + settings} | monitor"
    said_by([*command, line, *(["--steps", "9"] if command[-1] == "--debug" else [])], capsys)


@pytest.mark.parametrize(
    "text",
    [
        *(
            f"env: {EVIL!r}\n",
            f'{{"env": "CartPole-v1", {json.dumps(EVIL)}: 3}}',
            f"env: CartPole-v1\nwrappers: [{EVIL}]",
        ),
        *(
            json.dumps({"env": "CartPole-v1", "env_kwargs": {EVIL: EVIL}}),
            f"env: CartPole-v1\nn: {json.dumps(EVIL)}\n",
        ),
        *(json.dumps({"env": EVIL * 20_000}), json.dumps({"env": "CartPole-v1", "x" * 900_000: 1})),
        json.dumps(
            {"env": "CartPole-v1", "wrappers": [{"monitor": {"dir": EVIL, "info_keys": [EVIL]}}]}
        ),
        json.dumps({"env": "CartPole-v1", "extends": EVIL}),
    ],
)
def test_what_a_pipeline_says_is_text(tmp_path, monkeypatch, text, capsys):
    monkeypatch.chdir(tmp_path)
    file = Path(f"{EVIL}.json" if text[0] == "{" else f"{EVIL}.yaml")
    file.write_text(text)
    for command in (["check"], ["explain"], ["run", "--steps", "5"]):
        said_by([*command, str(file)], capsys)
        said_by([*command, text[:3000]], capsys)


def test_what_a_folder_says_is_text(folder, capsys):  # noqa: F811
    facts = json.loads((folder / "run.json").read_text())
    told = {EVIL: EVIL, "numpy": EVIL, "y" * 900: "x" * 30_000}
    (folder / "run.json").write_text(
        json.dumps({**facts, "versions": told, "policy": EVIL, "end": EVIL, EVIL: EVIL})
    )
    said_by(["explain", "run"], capsys)
    said_by(["compare", "run"], capsys)


@pytest.mark.parametrize(
    "unit",
    [
        "$\\frac",
        EVIL,
        {"$": 1},
        *(pytest.param(unit, marks=pytest.mark.full) for unit in ("_x_$", "x" * 100_000, ["a"], 3)),
    ],
)
def test_any_unit_and_id_is_drawn_as_text(tmp_path, unit, capsys):
    header = {
        "t_start": 1.0,
        "env_id": unit,
        "step_unit": unit,
        "frame_skip": unit,
        "pipeline": unit,
    }
    (tmp_path / "monitor.csv").write_text(f"#{json.dumps(header)}\nr,l,t\n1.0,3,0.5\n2.0,3,0.9\n")
    said_by(
        ["plot", str(tmp_path), "--out", str(tmp_path / "a.svg"), "--out", str(tmp_path / "a.png")],
        capsys,
    )
    assert (tmp_path / "a.png").stat().st_size < 10**6
    assert (tmp_path / "a.svg").stat().st_size < 10**6


def test_errors_of_every_kind_are_text_and_short():
    error = VecwrapError(f"{EVIL}\n\tline {'x' * 900_000}")
    assert not set(str(error)) & set(CONTROL)
    assert "\n\tline" in str(error)
    assert len(str(error)) < 9_000

    class Loud(gymnasium.Env):
        observation_space = action_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)

        def reset(self, *, seed=None, options=None):
            raise ValueError(EVIL + "x" * 900_000)

    with vecwrap.build(Loud, n=1, backend="dummy") as env, pytest.raises(SubEnvError) as caught:
        env.reset()
    assert len(str(caught.value)) < 9_000
    assert not set(str(caught.value)) & set(CONTROL)


def test_the_handler_of_a_command_is_gone_after_it(capsys):
    before = list(logging.getLogger("vecwrap").handlers)
    assert main(["check", "CartPole-v1 seed=1"]) == 0
    assert logging.getLogger("vecwrap").handlers == before


FLAT = "flatten" * 60_000
REFUSED = {
    "deep.yaml": "env: " + "[" * 200_000,
    "mappings.yaml": "{a: " * 100_000,
    "blocks.yaml": "\n".join(" " * k + "a:" for k in range(1200)),
    "key.yaml": "? " + "x" * 900_000 + "\n: 1",
    "line.yaml": "env: CartPole-v1\nwrappers: ['monitor:" + "a=1," * 200_000 + "']",
    "quote.yaml": "env: CartPole-v1\nwrappers: ['monitor:dir=\"" + "\\\\" * 200_000 + "']",
    "aliases.yaml": "a: &a [" + "1, " * 900 + "]\n" + "\n".join(f"b{k}: *a" for k in range(20_000)),
    "module.yaml": "env: " + "a." * 400_000 + "b:c",
    "keys.yaml": "? ? ? " * 30_000,
    "deep.json": '{"env": ' + "[" * 300_000 + "]" * 300_000 + "}",
    "number.json": '{"env": "CartPole-v1", "n": ' + "9" * 900_000 + "}",
    "version.json": json.dumps({"env": "CartPole-v" + "1" * 500_000}),
    "name.json": json.dumps({"env": "CartPole-" * 90_000}),
    "module.json": json.dumps({"env": "a" * 500_000 + ":CartPole-v1"}),
    "unknown.json": json.dumps({"env": "CartPole-v1", FLAT: 1}),
    "wrapper.json": json.dumps({"env": "CartPole-v1", "wrappers": [{FLAT: {}}]}),
    "argument.json": json.dumps({"env": "CartPole-v1", "wrappers": [{"monitor": {FLAT: 1}}]}),
    "option.json": json.dumps({"env": "CartPole-v1", "backend": {"name": "shmem", FLAT: 1}}),
    "eval.json": json.dumps(
        {"env": "CartPole-v1", "wrappers": [{FLAT: {}}], "eval": {"wrappers": {FLAT + "x": {}}}}
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_large_file_is_refused_in_short_and_without_work_that_grows_with_its_square(
    tmp_path, monkeypatch, name
):
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(REFUSED[name])
    with pytest.raises((SpecError, PlanError), match=f"^{name}:") as refused:
        vecwrap.load(name)
    assert len(str(refused.value)) < 9_000


def test_a_folder_with_thousands_of_versions_is_refused(folder, capsys):  # noqa: F811
    (folder / "run.json").write_text(
        json.dumps({"versions": {f"package{k}": "1" for k in range(40_000)}})
    )
    assert "expected what `vecwrap run` writes" in " ".join(
        said_by(["check", "run"], capsys).split()
    )
