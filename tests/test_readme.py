"""What a stranger sees first: its figures are those of docs/performance.md, and its clip is a real
run.
"""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageSequence

import vecwrap
from benchmarks import pages
from benchmarks.measure import Measurement, WorkResult
from benchmarks.peers import PEERS
from benchmarks.workloads import workloads
from vecwrap.env.picture import LINE, STRIP
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
CLIP = ROOT / "docs" / "seeing-pongs.webp"


@pytest.fixture(scope="module")
def figures():
    specification = importlib.util.spec_from_file_location(
        "figures_of_docs", ROOT / "docs" / "figures.py"
    )
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_its_figures_are_those_of_the_page(figures):
    readme, page = README.read_text(encoding="utf-8"), figures.PAGE.read_text(encoding="utf-8")
    assert figures.with_block(readme, page) == readme, "`make docs` writes them again"


def measured(name, side, missing="", **rates):
    quantities = [
        dict(zip(rates, values, strict=True)) for values in zip(*rates.values(), strict=True)
    ]
    return Measurement(name, side, "a note | with a bar", quantities, missing)


def test_the_table_is_what_a_run_has_written_into_the_page(figures):
    results = [
        WorkResult(
            "cartpole-8",
            "8 CartPoles",
            "How.",
            [
                measured("vecwrap dummy", "ours", rate=[160_000.0, 150_000.0, 158_731.0]),
                measured("vecwrap shmem", "ours", rate=[1.0, 1.0, 1.0]),
                measured("ideal: 2 × one process", "reference", rate=[200_000.0] * 3),
                measured("Gymnasium Sync", "peer", rate=[156_000.0, 155_000.0, 157_000.0]),
                measured("Gymnasium Async", "peer", rate=[9_000.0, 9_100.0, 9_200.0]),
                measured("EnvPool, 1 thread", "peer", rate=[200_000.0] * 3),
                measured("EnvPool, 2 threads", "peer", rate=[100_000.0] * 3),
                measured(
                    "ALE AtariVectorEnv", "peer", missing="needs ale-py | which is not installed"
                ),
            ],
        ),
        WorkResult(
            "start-64",
            "64 Pongs ready",
            "How.",
            [
                measured("vecwrap shmem", "ours", start=[3.0], memory=[450.0]),
                measured("SB3 SubprocVecEnv", "peer", start=[12.0], memory=[4500.0]),
            ],
        ),
        WorkResult(
            "pong-8",
            "8 Pongs",
            "How.",
            [
                measured("vecwrap shmem", "ours", rate=[50.0]),
                measured("SB3 DummyVecEnv", "peer", rate=[25.0]),
                measured("EnvPool, 2 threads", "peer", rate=[100.0]),
            ],
        ),
    ]
    machine = {
        "cpu": "Some processor",
        "usable_cores": 2,
        "memory_gb": 8,
        "system": "Linux 6",
        "python": "CPython 3.11.7",
        "packages": {"vecwrap": "0.1.0"},
        "date": "2026-11-22T00:00:00",
        "load": 0.1,
    }
    page = pages.tables(machine, results)
    assert page.splitlines()[2:10] == [
        "| env steps/s | 8 CartPoles |",
        "| --- | --- |",
        "| vecwrap dummy | **158,700** |",
        "| vecwrap shmem | 1 (158,700\u00a0×) |",
        "| ideal: 2 × one process | 200,000 (0.794\u00a0×) |",
        "| Gymnasium Sync | 156,000 (1.02\u00a0×) |",
        "| Gymnasium Async | 9,100 (17.4\u00a0×) |",
        "| EnvPool, 1 thread | 200,000 (0.794\u00a0×) |",
    ]
    by_hand = [
        f"{heading}\n\nHow.\n\n| {i} | b |\n|---|---|\n| c | d |\n"
        for i, heading in enumerate(figures.OTHERS.values())
    ]
    head = "# Performance\n\n| peer | what |\n|---|---|\n| a | b |"
    block = figures.block("\n\n".join([head, *by_hand, page]))
    first, *others = block.split("\n\n**")
    header, _, *rows, empty, below = first.splitlines()
    assert header == (
        "| env steps/s | vecwrap | Gymnasium Sync | Gymnasium Async | SB3 DummyVecEnv | SB3 "
        "SubprocVecEnv | EnvPool | ALE AtariVectorEnv |"
    )
    assert rows == [
        "| 8 CartPoles | 158,700 (dummy) | 156,000 (a tie) | 9,100 (17.4\u00a0×) |  |  "
        "| **200,000** (0.794\u00a0×) |  |",
        "| 8 Pongs | 50 (shmem) |  |  | 25 (2\u00a0×) |  | **100** (0.5\u00a0×) |  |",
    ]
    assert empty == ""
    assert "64 Pongs ready: vecwrap shmem 3 s (SB3 SubprocVecEnv 12 s)." in below
    assert "64 Pongs ready, memory: vecwrap shmem 450 MB (SB3 SubprocVecEnv 4,500 MB)." in below
    assert "Some processor, 2 usable cores, 8 GB, Linux 6, CPython 3.11.7, 2026-11-22." in below
    assert [other.partition("**")[0] for other in others] == ["Engines", "Chains"]
    for i, other in enumerate(others):
        assert other.endswith(f"\n\n| {i} | b |\n|---|---|\n| c | d |")


def test_what_is_compared_by_default_is_what_build_chooses():
    works = {work.key: work for work in workloads(1.0)}
    for key in ("cartpole-8", "cartpole-64", "pong-8"):
        spec = PipelineSpec(
            "CartPole-v1" if "cart" in key else "PongNoFrameskip-v4", n=int(key.partition("-")[2])
        )
        assert works[key].contenders()[0].name == f"vecwrap {plan(spec).pipeline.backend.name}"


def test_a_page_without_figures_says_so(figures):
    assert figures.block("## Figures\n\nNot measured yet.\n").startswith("Not measured yet.")


def test_a_readme_without_its_marks_is_refused(figures):
    with pytest.raises(ValueError, match="expected <!-- figures"):
        figures.with_block("# vecwrap\n", "")


def test_columns_are_named_as_the_benchmarks_name_them(figures):
    assert {*figures.PEERS} <= {
        name.partition(",")[0] for peer in PEERS.values() for name in peer.names
    }


def test_its_pictures_are_there():
    pictures = re.findall(r'src="([^"]+)"', README.read_text(encoding="utf-8"))
    assert pictures == [str(CLIP.relative_to(ROOT))]
    assert CLIP.stat().st_size < 300 * 1024


def test_its_clip_is_a_real_run():
    pytest.importorskip("ale_py")
    with Image.open(CLIP) as clip:
        frames = np.stack(
            [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(clip)]
        )
    assert frames.shape == (90, 2 * (STRIP + 210 + LINE) + LINE, 4 * (160 + LINE) + LINE, 3)
    with vecwrap.build(
        "PongNoFrameskip-v4", n=8, wrappers=["atari"], render_mode="rgb_array", seed=1
    ) as env:
        env.reset()
        env.action_space.seed(1)
        for step in range(1, 81):
            env.step(env.action_space.sample())
            if step >= 75:
                # Not the labels, which another OpenCV may draw otherwise.
                for i, played in enumerate(env.get_images()):
                    top, left = (
                        i // 4 * (STRIP + 210 + LINE) + LINE + STRIP,
                        i % 4 * (160 + LINE) + LINE,
                    )
                    np.testing.assert_array_equal(
                        frames[step - 75][top : top + 210, left : left + 160], played
                    )
