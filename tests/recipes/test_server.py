"""Environments behind a server: the recipe, against the real template of OpenEnv."""

import importlib.util
import re
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("openenv", reason="needs openenv-core; .ci/run has an environment with it")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "server_env.py"
N = 4


@pytest.fixture(scope="module")
def example():
    specification = importlib.util.spec_from_file_location("server_env", EXAMPLE)
    module = importlib.util.module_from_spec(specification)
    sys.modules["server_env"] = module
    specification.loader.exec_module(module)
    yield module
    del sys.modules["server_env"]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The template of a server, as `openenv init` writes it, for several sessions."""
    folder = tmp_path_factory.mktemp("server")
    command = [Path(sys.executable).with_name("openenv"), "init", "echo_text"]
    subprocess.run([*command, "--output-dir", folder], check=True, capture_output=True)
    app = folder / "echo_text" / "server" / "app.py"
    text, changes = re.subn(r"max_concurrent_envs=1\b", "max_concurrent_envs=16", app.read_text())
    assert changes == 1
    app.write_text(text)
    return folder


@pytest.fixture(scope="module")
def port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextmanager
def server(project, port):
    command = [sys.executable, "-m", "uvicorn", "echo_text.server.app:app", "--port", str(port)]
    with subprocess.Popen(command, cwd=project, stderr=subprocess.DEVNULL) as process:
        try:
            while process.poll() is None:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    time.sleep(0.1)
            assert process.poll() is None
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def first_server(project, port):
    with server(project, port) as process:
        yield process


def test_the_example_runs_as_it_is(first_server, port):
    command = [sys.executable, str(EXAMPLE), f"http://127.0.0.1:{port}", "--n", "2"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert re.search(
        r"^\d+ steps, the last message: .*, 0 restarts, 0 lost episodes$", result.stdout
    )
    assert result.stderr == ""


def test_each_row_gets_the_answers_to_its_own_messages_also_after_the_server_has_died(
    example, first_server, project, port
):
    with example.build(f"http://127.0.0.1:{port}", N) as env:
        observations, _ = env.reset()
        assert observations == ("Echo Text environment ready!",) * N
        expected = [""] * N
        counts = np.zeros(N, int)
        restarted = np.zeros(N, bool)

        def send(env_ids):
            for i in env_ids:
                counts[i] += 1
                expected[i] = f"Row {i}, message {counts[i]}."
            env.send([expected[i] for i in env_ids], env_ids=env_ids)

        def receive():
            """Compare what arrives; return the rows."""
            observations, rewards, terminations, truncations, infos = env.recv()
            lost = infos.get("_restarted", np.zeros(len(observations), bool))
            restarted[infos["env_id"][lost]] = True
            assert not terminations.any()
            assert (truncations[lost]).all()
            for k, i in enumerate(infos["env_id"]):
                answer = observations[k]
                if truncations[k]:
                    assert answer == "Echo Text environment ready!"  # of the next episode
                    answer = infos["final_obs"][k]
                if not lost[k]:
                    assert answer == expected[i]
                    assert rewards[k] == pytest.approx(0.1 * len(expected[i]))
            return infos["env_id"]

        send(range(N))
        while counts.min() < 30:
            send(receive())
        first_server.kill()
        first_server.wait()
        with server(project, port):
            counts[:] = 0
            while counts.min() < 30:
                send(receive())
        assert restarted.all()
        assert env.health().restarts.tolist() == [1] * N
