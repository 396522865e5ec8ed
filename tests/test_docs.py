"""The pages do what they say: their Python runs, their pipelines can be read, their links lead
somewhere.
"""

import functools
import importlib.util
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import gymnasium
import psutil
import pytest

import vecwrap
from benchmarks import beside, learning
from vecwrap.cli import main
from vecwrap.errors import install_command
from vecwrap.pipeline.registry import backends
from vecwrap.pipeline.spec import PipelineSpec

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def blocks(page, language):
    """The code blocks of a page in one language."""
    return re.findall(
        rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def pages_with(language, **marks):
    """Pages that have blocks of a language; ``marks``: those of a page, by its name without
    ``.md``.
    """
    return [
        pytest.param(page, id=page.name, marks=marks.get(page.stem, ()))
        for page in PAGES
        if blocks(page, language)
    ]


@pytest.fixture(scope="module")
def programs():
    """Runs a script in a folder as a program, without the time that imports take: gives its exit
    status.
    """
    command = [sys.executable, "-m", "tests.helpers.script_runner"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def run(script, folder, start):
            process.stdin.write(json.dumps([str(script), str(folder), start]) + "\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        yield run
        process.stdin.close()


# What learns, and what holds an example to all laws, as tests/testing does.
LONG = dict.fromkeys(("selfplay",), pytest.mark.full)
ALL = pages_with("python", **LONG)


@pytest.mark.xdist_group("pages")
@pytest.mark.parametrize(
    ("page", "start"),
    [
        *(
            pytest.param(*page.values, "fork", id=f"{page.id}-fork", marks=page.marks)
            for page in ALL
        ),
        *(
            pytest.param(*page.values, "fresh", id=f"{page.id}-fresh", marks=pytest.mark.full)
            for page in ALL
            if page.id
            # Which start workers in several ways.
            in (
                "index.md",
                "gymnasium.md",
                "recipes.md",
                "sb3.md",
            )
        ),
    ],
)
def test_the_python_of_a_page_runs_as_one_plain_script(page, start, tmp_path, programs):
    if "Pong" in "".join(blocks(page, "python")):
        pytest.importorskip("ale_py")
    if page.name == "gymnasium.md" and tuple(map(int, gymnasium.__version__.split(".")[:2])) < (
        1,
        4,
    ):
        pytest.skip("DictInfoToList took no nested infos then, as the page says")
    if "import envpool" in "".join(blocks(page, "python")):  # which is for x86-64 Linux alone
        pytest.importorskip("envpool")
    for package in ("tianshou", "supersuit"):
        if f"import {package}\n" in "".join(blocks(page, "python")):
            pytest.importorskip(package)
    if "import SummaryWriter" in "".join(blocks(page, "python")):
        pytest.importorskip("tensorboardX")
    if "HalfCheetah" in "".join(blocks(page, "python")):
        pytest.importorskip("mujoco")
    script = tmp_path / f"{page.stem}_page.py"  # gymnasium.py would stand before the package
    script.write_text("\n".join(blocks(page, "python")), encoding="utf-8")
    if page.name in ("README.md", "tour.md"):  # as a stranger runs them
        command = [sys.executable, str(script)]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
        assert result.returncode == 0, result.stdout + result.stderr
    else:
        assert programs(script, tmp_path, start) == 0, (tmp_path / "output.txt").read_text(
            encoding="utf-8"
        )


@pytest.mark.parametrize("page", pages_with("yaml"))
def test_the_pipelines_of_a_page_can_be_read(page, tmp_path):
    # One may extend another, which says its name in its first line.
    for block in blocks(page, "yaml"):
        if name := re.match(r"# (\S+\.yaml)$", block, re.MULTILINE):
            (tmp_path / name[1]).write_text(block, encoding="utf-8")
    for block in blocks(page, "yaml"):
        spec = PipelineSpec.from_yaml(block, page.name, tmp_path)
        assert PipelineSpec.from_yaml(spec.to_yaml()) == spec


def test_the_job_script_of_the_recipes_is_one_task_of_its_array(tmp_path):
    page = ROOT / "docs" / "recipes.md"
    for block in blocks(page, "yaml"):
        if name := re.match(r"# (\S+\.yaml)$", block, re.MULTILINE):
            (tmp_path / name[1]).write_text(block, encoding="utf-8")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {
        **os.environ,
        "PATH": path,
        "SLURM_ARRAY_TASK_ID": "3",
        "SLURM_CPUS_PER_TASK": "1",
    }
    script, _ = blocks(page, "bash")
    command = ["bash", "-eu", "-c", script]
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert vecwrap.PipelineSpec.load(tmp_path / "runs/seed-3/pipeline.yaml").seed == 3


@pytest.mark.full
def test_the_job_script_that_is_stopped_in_time_goes_on_in_its_next_run(tmp_path):
    for package in ("torch", "matplotlib"):
        pytest.importorskip(package)
    _, script = blocks(ROOT / "docs" / "recipes.md", "bash")
    script, changes = re.subn(
        r"examples/pong\.yaml", "examples/cartpole.yaml --steps 6000 --episodes 2", script
    )
    assert changes == 1
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    slurm = tmp_path / "slurm"
    slurm.mkdir()
    for name, content in {"srun": 'exec "$@"', "scontrol": 'echo "$@" >> queue'}.items():
        (slurm / name).write_text(f"#!/bin/sh\n{content}\n")
        (slurm / name).chmod(0o755)
    path = os.pathsep.join([str(slurm), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {
        **os.environ,
        "PATH": path,
        "SLURM_JOB_ID": "7",
        "SLURM_CPUS_PER_TASK": "1",
        "SDL_VIDEODRIVER": "dummy",
    }

    def job():
        command = ["bash", "-eu", "-c", script]
        return subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
        )

    with job() as process:
        assert process.stdout.readline().startswith("<VecEnv CartPole-v1, n=8")
        (step,) = psutil.Process(process.pid).children()
        step.send_signal(signal.SIGUSR1)
        said = process.stdout.read()
    assert "stopped, and saved" in said
    assert "evaluation" not in said
    assert (tmp_path / "queue").read_text() == "requeue 7\n"
    (stopped_at,) = map(int, re.findall(r"^([\d,]+) steps", said.replace(",", "")))
    assert 0 < stopped_at < 6_000
    with job() as process:
        said = process.stdout.read()
    assert process.returncode == 0
    assert "evaluation: 2 episodes" in said
    steps = [int(count) for count in re.findall(r"^(\d+) steps", said.replace(",", ""), re.M)]
    assert steps[-1] > stopped_at
    assert (tmp_path / "queue").read_text() == "requeue 7\n"


def commands(page):
    """The commands that a page shows, each as a list of words; what follows ``;`` or ``>`` is the
    shell's.
    """
    for block in blocks(page, "console"):
        for line in re.findall(r"^\$ (.*)", block, re.MULTILINE):
            yield shlex.split(re.split("; | > ", line)[0], comments=True)


ALL_PAGES = [pytest.param(page, id=page.name) for page in PAGES]


@pytest.mark.parametrize("page", ALL_PAGES)
def test_every_block_of_code_is_of_a_kind_that_is_tried(page):
    text = page.read_text(encoding="utf-8")
    fences = re.findall(r"^( *)```+(\w*)[^\n]*\n(.*?)^ *```+$", text, re.MULTILINE | re.DOTALL)
    assert not [body for indent, _, body in fences if indent], (
        "the tests do not find blocks that are indented"
    )
    elsewhere = {"tour.md": {"py"}, "recipes.md": {"bash"}, "api.md": {"pycon"}}.get(
        page.name, set()
    )  # which have a test of their own
    assert {language for _, language, _ in fences} <= {
        "python",
        "yaml",
        "console",
        "toml",
        "text",
        "",
    } | elsewhere
    for _, language, body in fences:
        if language in ("text", ""):
            assert not re.search(
                r"^(>>>|import|from \w+ import|pip|make|python|vecwrap) ", body, re.MULTILINE
            ), body


@pytest.mark.parametrize("page", pages_with("console"))
def test_the_commands_of_a_page_can_be_given(page):
    targets = re.findall(
        r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for words in commands(page):
        match words:
            case ["vecwrap", name, *arguments]:
                command_line().commands[name].make_context(
                    name, arguments
                )  # refuses options that there are not
            case ["make", target, *_]:
                assert target in targets
            case ["pip", "install", *packages]:
                extras = re.findall(r"(?:vecwrap|\.)\[([\w,]+)\]", " ".join(packages))
                named = {name for extra in extras for name in extra.split(",")}
                assert named <= project["optional-dependencies"].keys()
            case ["tensorboard" | "ssh" | "ffmpeg" | "openenv" | "uvicorn", *_]:  # of others
                pass
            case ["python", "-m", "benchmarks.beside", *arguments]:
                assert beside.arguments(arguments).only
            case ["python", "-m", "benchmarks.learning", *arguments]:
                assert learning.arguments(arguments).rounds
            case ["python", script, *_]:
                assert (ROOT / script).exists() or page.name == "tour.md"
            case _:
                assert (ROOT / words[0]).exists(), words


@pytest.mark.parametrize("page", pages_with("toml"))
def test_the_toml_of_a_page_can_be_read(page):
    assert all(tomllib.loads(block) for block in blocks(page, "toml"))


def test_the_commands_of_the_readme_run(tmp_path, monkeypatch, capsys):
    """But those that take a minute, and the plot, which wants a whole game; a shorter run, too."""
    for package in ("typer", "ale_py"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    (pipeline,) = blocks(ROOT / "README.md", "yaml")
    Path("pong.yaml").write_text(pipeline, encoding="utf-8")
    ran = []
    for program, name, *arguments in commands(ROOT / "README.md"):
        if program == "vecwrap" and name not in ("plot", "time", "tune"):
            assert main([name, *arguments, *(["--steps", "80"] if name == "run" else [])]) == 0, (
                capsys.readouterr()
            )
            ran.append(name)
    assert ran == ["check", "explain", "run", "run", "list"]


@pytest.mark.parametrize("page", ALL_PAGES)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "index.md" or f"({page.name})" in index


def test_the_page_of_wrappers_says_what_stands_in_files(tmp_path):
    folder = str(tmp_path)
    wrappers = [{"monitor": {"dir": folder}}]
    with vecwrap.build("CartPole-v1", n=1, wrappers=wrappers, backend="dummy") as env:
        env.reset()
        env.step([0])
    header, columns = (tmp_path / "monitor.csv").read_text(encoding="utf-8").splitlines()
    page = (ROOT / "docs" / "wrappers.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    words = {*json.loads(header[1:]), *columns.split(",")}
    assert {word for word in words if not re.search(rf"\b{word}\b", sections["monitor"])} == set()


@pytest.mark.parametrize("name", ["wrappers.md", "backends.md", "checks.md"])
def test_the_generated_pages_are_current(name):
    specification = importlib.util.spec_from_file_location(
        "generate", ROOT / "docs" / "generate.py"
    )
    generate = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(generate)
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == generate.PAGES[name](), (
        "run `make docs`"
    )


def test_every_promise_of_reliability_names_a_test_that_is_there():
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    promises = []
    for heading in ("## The promises", "## On Ray"):
        section = page.partition(heading)[2].partition("\n## ")[0]
        promises += [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(promises) > 25
    for line in promises:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", line)
        assert named, line
        for file, test in named:
            assert re.search(
                rf"^def {test}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE
            ), (file, test)


# Options of other programs that pages name in prose, with the word that stands before them there.
OPTIONS_ELSEWHERE = {"--object-store-memory"}  # ray start


@functools.cache
def command_line():
    app = pytest.importorskip("vecwrap.cli.app").with_commands()
    return pytest.importorskip("typer.main").get_command(app)


@functools.cache
def options_of(name):
    """The options of a command; of all commands for an empty name."""
    root = command_line()
    chosen = root.commands.values() if not name else [root.commands[name]]
    given = [
        option
        for command in [root, *chosen]
        for each in command.params
        for option in each.opts + each.secondary_opts
    ]
    return {*given, "--help", "--install-completion", "--show-completion"}


@functools.cache
def options_of_scripts():
    """The options that the scripts of examples/ and benchmarks/ define."""
    scripts = [*ROOT.glob("examples/*.py"), *ROOT.glob("benchmarks/*.py")]
    texts = [path.read_text(encoding="utf-8") for path in scripts]
    return {
        option for text in texts for option in re.findall(r'add_argument\(\s*"(--[a-z-]+)"', text)
    }


@pytest.mark.parametrize("page", [page for page in ALL_PAGES if page.id != "CHANGELOG.md"])
def test_every_command_and_option_named_in_prose_exists(page):
    prose = re.sub(
        r"^( *)```.*?^\1```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    unknown = []
    for code in re.findall(r"`([^`\n]+)`", prose):
        options = {*re.findall(r"(?<![\w-])--[a-z][a-z-]+", code)}
        named = re.match(r"vecwrap (?!-)([a-z]+)\b", code)
        if named and named[1] not in command_line().commands:
            unknown.append(code)
        elif named:
            unknown += [code] * bool(options - options_of(named[1]))
        else:
            unknown += [code] * bool(
                options - options_of("") - options_of_scripts() - OPTIONS_ELSEWHERE
            )
    assert unknown == []


def test_the_help_names_every_backend():
    (option,) = [each for each in command_line().commands["run"].params if "--backend" in each.opts]
    assert [name for name in ("auto", *backends.names()) if name not in option.help] == []


def test_the_address_of_the_repository_is_one_placeholder():
    """Nothing is published yet: two pages show the placeholder, and no page or message installs
    from an index.
    """
    paths = [*PAGES, *ROOT.glob("vecwrap/**/*.py"), ROOT / "pyproject.toml", ROOT / "mkdocs.yml"]
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}
    counts = {
        name: text.count("REPOSITORY") for name, text in texts.items() if name != "CHANGELOG.md"
    }
    assert {name: count for name, count in counts.items() if count} == {
        "README.md": 2,
        "docs/index.md": 2,
    }
    index = re.compile(r'pip install "?vecwrap(\[[\w,]+\])?"')
    assert {name for name, text in texts.items() if index.search(text)} <= {"CHANGELOG.md"}


def recorded(monkeypatch, text):
    """Have pip's note of where vecwrap came from say something else."""
    made = type("Distribution", (), {"read_text": lambda self, name: text})()
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: made)


@pytest.mark.parametrize(
    ("note", "expected"),
    [
        (None, 'pip install "vecwrap[atari]"'),
        (
            {"url": "file:///a%20b/vecwrap", "dir_info": {"editable": True}},
            'pip install -e "/a b/vecwrap[atari]"',
        ),
        ({"url": "file:///clone", "dir_info": {}}, 'pip install "/clone[atari]"'),
        (
            {
                "url": "https://git.example/v.git",
                "vcs_info": {"vcs": "git", "commit_id": "1", "requested_revision": "v1"},
            },
            'pip install "vecwrap[atari] @ git+https://git.example/v.git@v1"',
        ),
        (
            {"url": "https://files.example/vecwrap.whl", "archive_info": {}},
            'pip install "vecwrap[atari] @ https://files.example/vecwrap.whl"',
        ),
    ],
)
def test_a_missing_extra_is_installed_from_where_vecwrap_came(monkeypatch, note, expected):
    recorded(monkeypatch, json.dumps(note) if note else None)
    assert install_command("atari") == expected
