"""Starting workers as users do: a plain script, `python -c`, a REPL, a notebook kernel, each start
method.
"""

import ast
import json
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from gymnasium import Env
from gymnasium.spaces import Box, Discrete

import vecwrap

ROOT = Path(__file__).parents[1]

# What a user would write: an environment and an id that exist in this script alone, and no `if
# __name__ == "__main__"`.
SCRIPT = """
import functools
import gymnasium
import numpy as np
import vecwrap

class Count(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 100, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    @functools.cache
    def length(self):
        return 3

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        ended = self.steps == self.length()
        return np.full(2, self.steps, np.float32), float(action), ended, False, {}

gymnasium.register("Count-v0", Count)

def show(env):
    env.reset(seed=1)
    for _ in range(3):
        observations, rewards, terminations, truncations, infos = env.step([0, 1, 1, 0])
    last = infos["final_obs"][3].tolist()
    print(env.backend, env.num_workers, rewards.tolist(), terminations.all(), last)
    env.close()

"""
SHOWN = "{} 2 [0.0, 1.0, 1.0, 0.0] True [3.0, 3.0]\n"


def full(*values: object) -> object:
    """Parameters that the suite leaves to ``make test-full``: how workers start is one piece of
    code under both.
    """
    return pytest.param(*values, marks=pytest.mark.full)


def python(*arguments: str, stdin: str | None = None, cwd: Path | None = None) -> str:
    """Run an interpreter as a user would, and give what it printed."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, *arguments],
        input=stdin,
        cwd=cwd,
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


@pytest.fixture(autouse=True)
def default_workers():
    """Fresh interpreters, as users have."""


@pytest.mark.parametrize("backend", [full("subprocess"), "shmem"])
def test_a_plain_script_needs_no_main_guard(tmp_path, backend):
    file = tmp_path / "script.py"
    file.write_text(
        SCRIPT + f"show(vecwrap.build('Count-v0', n=4, backend='{backend}', workers=2))\n"
    )
    assert python("script.py", cwd=tmp_path) == SHOWN.format(backend)


@pytest.mark.parametrize("backend", ["subprocess", full("shmem")])
def test_a_program_without_stdin_stdout_and_stderr(tmp_path, backend):
    """Descriptors 0, 1 and 2 are free then, and the next ones that are opened."""
    file = tmp_path / "script.py"
    shown = f"show(vecwrap.build(Count, n=4, backend='{backend}', workers=2))\n"
    tells = "open('shown', 'w').write(sys.stdout.getvalue())\n"
    file.write_text(f"import io, sys\nsys.stdout = io.StringIO()\n{SCRIPT}{shown}{tells}")
    closing = (
        "import os, sys; os.closerange(0, 3); os.execv(sys.executable, [sys.executable, "
        "'script.py'])"
    )
    python("-c", closing, cwd=tmp_path)
    assert (tmp_path / "shown").read_text() == SHOWN.format(backend)


def test_python_c():
    assert python("-c", SCRIPT + "show(vecwrap.build('Count-v0', n=4, workers=2))") == SHOWN.format(
        "shmem"
    )


def test_a_callable_of_the_script_itself():
    assert python("-c", SCRIPT + "show(vecwrap.build(Count, n=4, workers=2))") == SHOWN.format(
        "shmem"
    )


def test_an_entry_point_string_that_names_main():
    code = SCRIPT + (
        "gymnasium.register('Text-v0', '__main__:Count')\nshow(vecwrap.build('Text-v0', "
        "n=4, workers=2))"
    )
    assert python("-c", code) == SHOWN.format("shmem")


def as_typed(script: str) -> str:
    """Give a script as it is typed into a REPL: no blank line within a statement, one after it."""
    statements = (ast.get_source_segment(script, node) or "" for node in ast.parse(script).body)
    return "".join(
        "\n".join(line for line in text.splitlines() if line) + "\n\n" for text in statements
    )


def test_a_repl():
    session = as_typed(SCRIPT + "show(vecwrap.build('Count-v0', n=4, workers=2))")
    assert SHOWN.format("shmem") in python("-i", "-q", stdin=session)


def test_a_module_beside_the_script(tmp_path):
    (tmp_path / "mine.py").write_text(SCRIPT.replace("gymnasium.register", "# gymnasium.register"))
    (tmp_path / "script.py").write_text(
        "import sys, vecwrap\nsys.path.insert(0, sys.path[0])\nimport mine\n"
        "mine.show(vecwrap.build(mine.Count, n=4, workers=2))\n"
    )
    assert python(str(tmp_path / "script.py")) == SHOWN.format("shmem")


@pytest.mark.parametrize("backend", [full("subprocess"), "shmem"])
def test_classes_and_functions_of_the_script_that_use_the_package(tmp_path, backend):
    (tmp_path / "script.py").write_text(
        SCRIPT
        + "class Mine(gymnasium.Wrapper):\n"
        + "    def step(self, action):\n"
        + "        assert issubclass(vecwrap.SubEnvError, vecwrap.VecwrapError)\n"
        + "        return super().step(action)\n"
        + "def make():\n"
        + "    assert vecwrap.build is not None\n"
        + "    return Mine(Count())\n"
        + f"show(vecwrap.build(make, n=4, wrappers=[Mine], workers=2, backend={backend!r}))\n"
    )
    assert python(str(tmp_path / "script.py")) == SHOWN.format(backend)


@pytest.mark.parametrize("backend", ["subprocess", full("shmem")])
def test_a_working_directory_with_files_that_are_named_as_the_standard_librarys(tmp_path, backend):
    """The program itself does not import from there, and neither do its workers."""
    (tmp_path / "elsewhere").mkdir()
    for name in ("random", "tempfile", "pickle", "socket"):
        (tmp_path / "elsewhere" / f"{name}.py").write_text(
            f"raise ImportError('this is no {name}')"
        )
    (tmp_path / "script.py").write_text(
        f"{SCRIPT}show(vecwrap.build('Count-v0', n=4, workers=2, backend={backend!r}))"
    )
    assert python(str(tmp_path / "script.py"), cwd=tmp_path / "elsewhere") == SHOWN.format(backend)


@pytest.mark.parametrize("backend", [full("subprocess"), "shmem"])
def test_on_a_terminal_whose_modes_an_environment_sets(tmp_path, backend):
    """A process of another group than the terminal's is stopped for that, unless it ignores the
    signal.
    """
    (tmp_path / "script.py").write_text(
        SCRIPT
        + "import termios\n"
        + "class Draws(Count):\n"
        + "    def reset(self, **arguments):\n"
        + "        with open('/dev/tty', 'wb') as terminal:\n"
        + "            termios.tcsetattr(terminal, termios.TCSANOW, termios.tcgetattr(terminal))\n"
        + "        return super().reset(**arguments)\n"
        + f"show(vecwrap.build(Draws, n=4, workers=2, backend={backend!r}))\n"
    )
    on_a_terminal = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) != 0)"
    printed = python("-c", on_a_terminal, sys.executable, str(tmp_path / "script.py"), stdin="")
    assert printed.replace("\r\n", "\n") == SHOWN.format(backend)


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_multiprocessings_start_methods_under_a_guard(tmp_path, method):
    file = tmp_path / "script.py"
    file.write_text(
        SCRIPT
        + "if __name__ == '__main__':\n"
        + (
            f"    show(vecwrap.build(Count, n=4, workers=2, start_method='{method}', "
            "backend='shmem'))\n"
        )
    )
    assert python("script.py", cwd=tmp_path) == SHOWN.format("shmem")


def test_a_notebook_kernel():
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        printed = []

        def collect(message):
            if message["msg_type"] in ("stream", "error"):
                printed.append(
                    message["content"].get("text") or "\n".join(message["content"]["traceback"])
                )

        for cell in (SCRIPT, "show(vecwrap.build('Count-v0', n=4, workers=2))"):
            reply = client.execute_interactive(cell, output_hook=collect, timeout=60)
            assert reply["content"]["status"] == "ok", "".join(printed)
        assert SHOWN.format("shmem") in "".join(printed)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("method", ["fresh", full("spawn"), "forkserver", full("fork")])
def test_classes_of_a_script_are_in_workers_what_they_are_in_the_script(monkeypatch, method):
    """Caches, static and class methods, generics, dataclasses, enums, metaclasses, ..."""
    monkeypatch.setenv("METHOD", method)
    here, in_a_worker = map(
        json.loads, python("program_env_kinds.py", cwd=ROOT / "tests" / "helpers").splitlines()
    )
    assert in_a_worker == here


def test_ids_that_a_script_has_registered_exist_in_workers_and_in_those_that_take_their_place():
    pytest.importorskip("pettingzoo")
    here, *there, restarted, rows, locked, unreadable = python(
        "program_registrations.py", cwd=ROOT / "tests" / "helpers"
    ).splitlines()
    tell = [
        "class",
        "lambda",
        "partial",
        "text",
        "in lambda",
        "overridden",
        *["beside"] * 2,
        "late",
        "beside",
    ]
    assert json.loads(here)[0] == [*tell, "in lambda"]
    assert there == [here, here]
    assert (restarted, rows) == ("True", "2")
    assert locked.startswith(
        '"Locked-v0": the registration cannot be sent to a worker (cannot pickle'
    )
    assert unreadable.startswith(
        '"Unreadable-v0": the registration cannot be sent to a worker (ZeroDivisionError'
    )


def test_what_travels_to_a_worker():
    code = textwrap.dedent("""
        import logging, os, sys, tempfile, warnings
        os.environ.update(OMPI_COMM_WORLD_RANK="3", PMI_RANK="3")
        os.environ.pop("OMP_NUM_THREADS", None)
        os.environ["MKL_NUM_THREADS"] = "7"
        import gymnasium, numpy as np, vecwrap
        logging.getLogger().setLevel(13)
        warnings.filterwarnings("ignore", message="a filter of the parent's")
        os.chdir(tempfile.gettempdir())
        sys.path.append("a-path-of-the-parent's")

        class Report(gymnasium.Env):
            observation_space = action_space = gymnasium.spaces.Discrete(2)
            def reset(self, *, seed=None, options=None):
                return 0, {}
            def report(self):
                names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
                return (
                    [os.environ.get(name) for name in names],
                    logging.getLogger().level,
                    any("a filter" in str(filter[1]) for filter in warnings.filters),
                    os.getcwd() == os.path.realpath(tempfile.gettempdir()),
                    sys.path[-1],
                    os.getpid() != PARENT,
                )
        PARENT = os.getpid()
        with vecwrap.build(Report, n=1, backend="subprocess") as env:
            print(env.call("report")[0])
        print(os.environ["OMPI_COMM_WORLD_RANK"])
    """)
    expected = ([None, None, "1", "7"], 13, True, True, "a-path-of-the-parent's", True)
    assert python("-c", code) == f"{expected}\n3\n"


class Downloads(Env):
    """Sets a default timeout in its process, as libraries do that download something; its infos are
    large.
    """

    observation_space = Box(0, 1, (2,), np.float32)
    action_space = Discrete(2)

    def __init__(self):
        socket.setdefaulttimeout(10)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.ones(2, np.float32), 1.0, False, False, {"text": "a" * 3_000_000}


@pytest.fixture
def default_timeout():
    before = socket.getdefaulttimeout()
    yield
    socket.setdefaulttimeout(before)


@pytest.mark.usefixtures("default_timeout")
@pytest.mark.parametrize(
    ("backend", "method"),
    [
        ("subprocess", None),
        ("subprocess", "forkserver"),
        ("shmem", "fork"),
        full("subprocess", "spawn"),
        full("subprocess", "fork"),
        full("shmem", None),
        full("shmem", "spawn"),
        full("shmem", "forkserver"),
    ],
)
def test_sockets_with_a_default_timeout(backend, method):
    socket.setdefaulttimeout(30)
    with vecwrap.build("CartPole-v1", n=2, workers=2, backend=backend, start_method=method) as env:
        env.reset(seed=1)
        assert env.step([0, 1])[1].tolist() == [1.0, 1.0]


@pytest.mark.usefixtures("default_timeout")
@pytest.mark.parametrize(
    ("backend", "method"),
    [("shmem", None), ("subprocess", "fork"), full("subprocess", None), full("shmem", "fork")],
)
def test_a_default_timeout_that_an_environment_sets(backend, method):
    with vecwrap.build(Downloads, n=2, workers=2, backend=backend, start_method=method) as env:
        env.reset(seed=1)
        infos = env.step([0, 1])[4]
    assert [len(text) for text in infos["text"]] == [3_000_000] * 2


OBJECTS = """
import dataclasses, gymnasium, numpy as np, vecwrap

@dataclasses.dataclass
class Level:
    width: int

def seven(x):
    return 7.0

class E(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 100, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    level, pay = Level(0), None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.level = (options or {}).get("level", self.level)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert isinstance(self.level, Level)
        return np.zeros(2, np.float32), self.pay(0) if self.pay else 0.0, False, False, {}

    def use(self, level):
        self.level = level
        return isinstance(level, Level)

if __name__ == "__main__":
    with vecwrap.build(E, n=2, backend=BACKEND, workers=2, start_method=METHOD) as env:
        env.reset(seed=1, options={"level": Level(3)})
        print([level.width for level in env.get_attr("level")], env.call("use", Level(4)))
        env.set_attr("level", Level(5))
        env.set_attr("pay", seven)
        print(env.step([0, 0])[1].tolist(), env.get_attr("level"))
"""


@pytest.mark.parametrize(
    ("backend", "method"),
    [
        ("subprocess", "fresh"),
        ("shmem", "spawn"),
        full("subprocess", "spawn"),
        full("subprocess", "forkserver"),
        full("shmem", "fresh"),
        full("shmem", "forkserver"),
    ],
)
def test_objects_of_the_scripts_own_classes_reach_the_workers(tmp_path, backend, method):
    """As options, arguments and attributes; a worker's ``__main__`` is another, which has no such
    class.
    """
    script = tmp_path / "script.py"
    script.write_text(OBJECTS.replace("BACKEND", repr(backend)).replace("METHOD", repr(method)))
    printed = python(str(script)).splitlines()
    assert printed == ["[3, 3] (True, True)", "[7.0, 7.0] (Level(width=5), Level(width=5))"]
