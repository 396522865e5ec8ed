"""The Ray backend against the laws that every backend keeps, with real actors; and what is Ray's
alone.
"""

import json
import multiprocessing
import os
import re
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import psutil
import pytest

import vecwrap
from tests.backends.ray_cluster import small, with_workers
from tests.backends.test_infos import Holding, Speaking
from tests.backends.test_waits import Gated
from tests.helpers.backends import DummyBackend
from tests.helpers.polling import gone
from tests.sources.test_games import held_to_the_loop
from vecwrap.backends.ray import Ray
from vecwrap.errors import BackendError, PlanError, SpecError, SubEnvError, install_command
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.rows.step_result import Autoreset
from vecwrap.testing import backends as kit
from vecwrap.testing import on, toy
from vecwrap.testing.drive import Lockstep, drive

pytest.importorskip("ray")
pytestmark = pytest.mark.xdist_group("ray")  # one process has the cluster
EXAMPLE = Path(__file__).parents[2] / "examples" / "ray.yaml"
SLOW = [kit.every_space_round_trips]  # starts 20 pairs of actors
IN_SUITE = [kit.same_stream_in_every_mode]
REST = [
    pytest.param(law, marks=pytest.mark.full)
    for law in kit.BACKEND_LAWS
    if law not in [*SLOW, *IN_SUITE]
]
QUICK = [*IN_SUITE, *REST]


@pytest.mark.parametrize("law", QUICK, ids=lambda law: law.__name__)
def test_law(law, ray):
    law(with_workers(1))


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("law", kit.BACKEND_LAWS, ids=lambda law: law.__name__)
def test_law_with_any_number_of_actors(law, workers, ray):
    law(with_workers(workers))


@pytest.mark.parametrize(
    "space",
    ["nested", "graph", *(pytest.param(one, marks=pytest.mark.soak) for one in ("custom", "text"))],
)
@pytest.mark.full
def test_spaces_of_each_kind_go_through(space, ray):
    factories = [toy(observations=space, actions=space, end=0.1)] * 3
    with DummyBackend(factories) as reference, small(factories, workers=2) as env:
        assert env.single_observation_space == reference.single_observation_space
        drive(Lockstep(reference, env), 40, seed=5)


def cases(*quick):
    """These mode, observations and number of actors in the suite, and every other of them in the
    long runs.
    """
    rest = [
        (mode, space, workers)
        for mode in Autoreset
        for space in ("box_uint8", "large")
        for workers in (1, 2, 3)
        if (mode, space, workers) not in quick
    ]
    return [*quick, *(pytest.param(*case, marks=pytest.mark.soak) for case in rest)]


@pytest.mark.parametrize(("mode", "space", "workers"), cases((Autoreset.SAME_STEP, "large", 3)))
@pytest.mark.full
def test_the_stream_is_the_same_with_any_number_of_actors_and_with_large_observations(
    mode, space, workers, ray
):
    """Some of these observations are read where they lie in the object store, some come with the
    answer.
    """
    factory = toy(observations=space) if space != "large" else Large
    with (
        DummyBackend([factory] * 5, autoreset=mode) as one,
        small([factory] * 5, workers=workers, autoreset=mode) as other,
    ):
        met = drive(Lockstep(one, other), 40, seed=7)
        assert min(met.values()) >= 1, met


class Large(gymnasium.Env):
    """Pictures of 60 kB, so that two of them are too large to come with the answer; and one in each
    info.
    """

    observation_space = gymnasium.spaces.Box(0, 255, (100, 200, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.picture(), {"picture": self.picture()}

    def step(self, action):
        chance = self.np_random.random()
        return (
            self.picture(),
            float(action),
            chance < 0.1,
            0.1 < chance < 0.15,
            {"picture": self.picture()},
        )

    def picture(self):
        return self.np_random.integers(0, 256, (100, 200, 3), np.uint8)


@pytest.mark.full
def test_large_arrays_are_yours_and_keep_no_room_in_the_object_store(ray):
    with small([Large] * 3) as env:
        kept = []
        for k in range(60):  # 60 times 0.36 MB would be a fifth of the object store
            observations, *_, infos = env.step([0, 1, 2]) if k else env.reset(seed=1)
            observations[:] = 1
            infos["picture"][0][:] = 1
            kept.append((observations, infos))
        picture = env.call("picture")[0]
        picture[:] = 2
        assert all((observations == 1).all() for observations, _ in kept)


def test_one_call_and_one_answer_an_actor_and_step(ray, monkeypatch):
    with small([toy()] * 6, workers=2, num_cpus=0.1) as env:
        env.reset(seed=1)
        calls = []
        send = env.runner._send_bytes
        monkeypatch.setattr(
            env.runner,
            "_send_bytes",
            lambda *arguments: calls.append(arguments[0].number) or send(*arguments),
        )
        for _ in range(5):
            env.step([0] * 6)
        assert calls == [0, 1] * 5


def test_a_cluster_that_the_user_started_goes_on(ray):
    small([toy()]).close()
    env = small([toy()])
    env.close(terminate=True)
    assert ray.is_initialized()
    assert ray.get(ray.remote(num_cpus=0)(lambda: 7).remote()) == 7


SHUT_DOWN = """
import os, ray, vecwrap
from vecwrap.errors import BackendError

def build():
    backend = {"name": "ray", "workers": 1, "num_cpus": 0.1}
    env = vecwrap.build("CartPole-v1", n=2, backend=backend, on_failure="restart")
    env.reset(seed=1)
    return env

def refused(call):
    try:
        call()
    except BackendError as error:
        return "ray.shutdown()" in str(error)

ours = build()
ours.step_async([0, 1])
ray.shutdown()
assert refused(ours.step_wait)
assert not ray.is_initialized(), "no other cluster was started"
ray.init(os.environ["RAY_ADDRESS"], logging_level="ERROR")
assert refused(ours.reset)
build().close()
ours.close()
assert ray.is_initialized(), "what the program has connected to is the program's"
"""


@pytest.mark.full
def test_a_connection_that_the_program_ends_is_told_and_the_next_one_is_its_own(ray):
    address = ray.get_runtime_context().gcs_address
    run = [sys.executable, "-W", "ignore", "-c", SHUT_DOWN]
    subprocess.run(run, env={**os.environ, "RAY_ADDRESS": address}, check=True, timeout=120)


AUTO = """
from functools import lru_cache
import ray._private.services
addresses = frozenset({{"{address}"}})  # whatever else runs here
ray._private.services.find_gcs_addresses = lru_cache(lambda: addresses)
ray._private.services.find_bootstrap_address = lambda *_: None
import vecwrap
backend = {{"name": "ray", "address": "{given}", "workers": 2, "num_cpus": 0.1}}
with vecwrap.build("CartPole-v1", n=3, backend=backend, seed=1) as env:
    assert ray.get_runtime_context().gcs_address == "{address}"
    print(env.reset()[0].tolist())
assert not ray.is_initialized(), "what we have joined we have left"
"""


@pytest.mark.parametrize("given", ["auto", pytest.param("host:port", marks=pytest.mark.soak)])
@pytest.mark.full
def test_a_program_joins_the_cluster_that_runs_here_and_leaves_it_running(given, ray):
    address = ray.get_runtime_context().gcs_address
    code = AUTO.format(address=address, given=given if given == "auto" else address)
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=240
    )
    with vecwrap.build("CartPole-v1", n=3, backend="dummy", seed=1) as twin:
        assert (done.stdout, done.stderr) == (f"{twin.reset()[0].tolist()}\n", "")
    assert ray.get(ray.remote(num_cpus=0)(lambda: 7).remote()) == 7


def test_actors_are_gone_after_close(ray):
    env = small([toy()] * 2, workers=2)
    pids = [worker.pid for worker in env.health().workers]
    assert all(map(psutil.pid_exists, pids))
    env.close()
    assert gone(pids)


@pytest.mark.full
def test_pong_from_a_file_is_that_of_dummy(ray, tmp_path):
    file = tmp_path / "pong.yaml"
    file.write_text(
        "env: PongNoFrameskip-v4\nn: 3\nseed: 1\n"
        "backend: {name: ray, workers: 2, num_cpus: 0.5}\n"
        "wrappers: [atari, {framestack: 4}, {monitor: {dir: out}}]\n"
    )
    dummy = vecwrap.build(
        "PongNoFrameskip-v4", 3, ["atari", "framestack:4", "monitor"], seed=1, backend="dummy"
    )
    with vecwrap.build(file) as env, dummy:
        results = [each.reset()[0] for each in (env, dummy)]
        assert results[0].shape == (3, 4, 84, 84)
        np.testing.assert_array_equal(*results)
        for k in range(40):
            actions = (np.arange(3) + k) % 6
            for got, expected in zip(env.step(actions)[:4], dummy.step(actions)[:4], strict=True):
                np.testing.assert_array_equal(got, expected)
    assert (tmp_path / "out" / "monitor.csv").exists()


@pytest.mark.full
def test_the_example_runs(tmp_path):
    """By the real command, in a program of its own that starts its own cluster and leaves nothing
    of it.
    """
    command = [
        sys.executable,
        "-m",
        "vecwrap",
        "run",
        str(EXAMPLE),
        "--steps",
        "160",
        "--out",
        str(tmp_path / "run"),
    ]
    command += ["--set", "backend.init={num_cpus: 1, object_store_memory: 80000000}"]
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "160" in done.stdout
    lines = (tmp_path / "run" / "monitor.csv").read_text(encoding="utf-8").splitlines()
    header = json.loads(lines[0].removeprefix("#"))
    assert (header["env_id"], header["frame_skip"]) == ("PongNoFrameskip-v4", 4)


@pytest.mark.full
def test_sb3_trains_on_the_example_as_on_dummy(ray, tmp_path):
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(1)  # its threads would wait for cores on which the actors run
    weights = []
    for backend in ("dummy", {"name": "ray", "workers": 2, "num_cpus": 0.1}):
        venv = vecwrap.to_sb3(
            vecwrap.load(
                EXAMPLE,
                n=3,
                backend=backend,
                wrappers=["atari", "framestack:4", f"monitor:{tmp_path}"],
            )
        )
        model = PPO("CnnPolicy", venv, seed=3, n_steps=8, batch_size=24, n_epochs=1, device="cpu")
        before = [value.numpy().copy() for value in model.policy.state_dict().values()]
        model.learn(48)
        venv.close()
        weights.append([value.numpy().copy() for value in model.policy.state_dict().values()])
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not all((one == other).all() for one, other in zip(before, weights[0], strict=True))


# -- bad input -------------------------------------------------------------------------------------


class NeedsWhatIsNotThere(gymnasium.Env):
    def __init__(self):
        import surely_no_such_package  # noqa: F401


def unpickled_with_a_module():
    import __surely_not__  # noqa: F401


class Gone:
    """Pickles as something of a module that only this process has."""

    def __reduce__(self):
        return __import__, ("no_such_module_on_the_node",)

    def __call__(self):
        raise AssertionError


@pytest.mark.full
def test_a_package_that_a_node_lacks_is_named_with_the_node(ray):
    with pytest.raises(
        SubEnvError, match=r"(?s)no_such_package.*on node [\d.]+: install the package there"
    ):
        small([NeedsWhatIsNotThere])
    with pytest.raises(
        BackendError, match=r"node [\d.]+ has no package no_such_module_on_the_node, which actor 0"
    ):
        small([Gone()])


class Looks(gymnasium.Env):
    """Tells what the node has been given."""

    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.value = (
            __import__("only_in_the_folder").VALUE if os.environ.get("WITH") == "folder" else 1
        )

    def reset(self, *, seed=None, options=None):
        text = Path("data.txt").read_text() if self.value > 1 else ""
        return np.full(1, self.value, np.float32), {
            "mark": os.environ.get("MARK", ""),
            "text": text,
        }


@pytest.mark.full
def test_variables_of_a_runtime_env_are_those_of_its_actors_alone(ray):
    with (
        small([Looks] * 2, workers=2, runtime_env={"env_vars": {"MARK": "seen"}}) as env,
        small([Looks], runtime_env={"env_vars": {"MARK": "other"}}) as other,
        small([Looks]) as none,
    ):
        assert [each.reset()[1]["mark"].tolist() for each in (env, other, none)] == [
            ["seen"] * 2,
            ["other"],
            [""],
        ]
        assert "MARK" not in os.environ


@pytest.mark.full
def test_what_ray_does_not_take_is_an_error_that_says_so(ray, tmp_path):
    with pytest.raises(
        PlanError, match=r"(?s)Ray does not accept the resources that actors request .*env_vars"
    ):
        small([Looks], runtime_env={"env_vars": {"MARK": 1}})
    with pytest.raises(
        PlanError, match=r"(?s)Ray does not accept .*working_dir.*only supported .* `ray.init`"
    ):
        small([Looks], runtime_env={"working_dir": str(tmp_path)})
    nowhere = {"working_dir": "file:///no/such/package.zip"}
    words = r"(?s)actor 0 .*its runtime_env could not be set up.*Ray says: .*/no/such/package"
    with pytest.raises(BackendError, match=words):
        small([Looks], runtime_env=nowhere, on_failure="restart")


FOLDER = """
from tests.backends.ray_cluster import small
from tests.backends.test_ray import Looks
if __name__ == "__main__":
    init = {{"num_cpus": 1, "object_store_memory": 80_000_000, "log_to_driver": False}}
    init["runtime_env"] = {{"working_dir": "{folder}"}}
    runtime_env = {{"env_vars": {{"WITH": "folder", "MARK": "seen"}}}}
    with small([Looks] * 2, workers=2, runtime_env=runtime_env, address="local", init=init) as env:
        observations, infos = env.reset()
        print(observations.ravel().tolist(), infos["text"].tolist(), infos["mark"].tolist())
        with small([Looks], runtime_env=runtime_env, init=init) as other:
            print(other.reset()[0].tolist())
"""


@pytest.mark.full
def test_a_folder_goes_to_the_nodes_with_its_modules_and_files(tmp_path):
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "only_in_the_folder.py").write_text("VALUE = 41")
    (folder / "data.txt").write_text("data")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", FOLDER.format(folder=folder)]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=240
    )
    assert done.stdout == "[41.0, 41.0] ['data', 'data'] ['seen', 'seen']\n[[41.0]]\n", done.stderr


def test_more_than_the_cluster_has_is_refused(ray):
    with pytest.raises(
        BackendError, match=r"3 actors with 1 CPU each: expected 3, got 2 in the whole cluster"
    ):
        small([toy()] * 3, workers=3, num_cpus=1)
    with pytest.raises(BackendError, match="1 actors with 1 robot each: expected 1, got 0"):
        small([toy()], resources={"robot": 1})


def test_options_are_checked_before_anything_starts():
    for options, words in [
        ({"placement": "sprad"}, 'placement: expected spread.*Did you mean "spread"'),
        ({"address": "nonsense"}, "address: expected auto, local or host:port"),
        ({"address": "ray://head:10001"}, "run this program on one of its nodes"),
        ({"num_cpus": -1.0}, "num_cpus: expected 0 or more"),
        ({"step_timeout": 0.0}, "step_timeout: expected seconds above 0"),
    ]:
        with pytest.raises(PlanError, match=words):
            on(Ray)([toy()], **options)
        with pytest.raises(PlanError, match=words):
            plan(PipelineSpec("CartPole-v1", n=1, backend={"name": "ray", **options}))
    with pytest.raises((PlanError, SpecError), match=r"no option start_method"):
        plan(PipelineSpec("CartPole-v1", n=1, backend={"name": "ray", "start_method": "fork"}))


def test_a_missing_package_names_its_extra(monkeypatch):
    monkeypatch.setattr("vecwrap.backends.ray_cluster.is_installed", lambda name: False)
    with pytest.raises(PlanError, match=re.escape(install_command("ray"))):
        plan(PipelineSpec("CartPole-v1", n=1, backend="ray"))


# -- explain ---------------------------------------------------------------------------------------


def test_explain_shows_the_options_and_starts_nothing():
    backend = {"name": "ray", "address": "10.9.9.9:6379", "workers": 2, "num_cpus": 0.5}
    text = str(plan(PipelineSpec("CartPole-v1", n=5, backend=backend)).with_spaces())
    assert '\nbackend ray; address="10.9.9.9:6379", workers=2, num_cpus=0.5' in text


ALONE = """
import os
import psutil
import vecwrap
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
for cpus in ({}, {"num_cpus": 2}):
    init = {**cpus, "object_store_memory": 80_000_000}
    backend = {"name": "ray", "address": "local", "init": init}
    with vecwrap.build("CartPole-v1", 5, backend=backend) as env:
        workers = env.health().workers
        built = [len(worker.env_ids) for worker in workers]
        nicer = [psutil.Process(worker.pid).nice() - psutil.Process().nice() for worker in workers]
    print(built, nicer)
"""


@pytest.mark.full
def test_a_cluster_of_its_own_has_an_actor_for_each_core_that_yields_to_nobody():
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", ALONE], env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.stdout == "[5] [0]\n[3, 2] [0, 0]\n", done.stderr


def test_infos_attributes_and_waits_are_those_of_other_backends(ray, tmp_path):
    env = with_workers(2)(
        [partial(Speaking, ("success", "_success")), partial(Gated, tmp_path / "gate")]
    )
    with env:
        infos = env.reset(seed=1)[1]
        assert infos["_success_"].tolist() == [100, 0]
        env.set_attr("bonus", [1, 2])
        assert env.get_attr("bonus") == (1, 2)
        with pytest.raises(AttributeError, match="get_attr"):
            _ = env.envs
        env.send([0, 1])
        got = []
        while not got:
            with suppress(multiprocessing.TimeoutError):
                got = env.recv(min=1, timeout=0.05)[4]["env_id"].tolist()
        assert got == [0]
        (tmp_path / "gate").touch()
        assert env.recv()[4]["env_id"].tolist() == [1]
        env.reset_async()
        with pytest.warns(UserWarning, match="pending call to `reset`"):
            env.close()
    with (
        with_workers(1)([partial(Holding, "lock", True)]) as env,
        pytest.raises(SubEnvError, match=r"infos \['inner'\]"),
    ):
        env.reset()


@pytest.mark.parametrize(
    ("name", "mode", "games"), [("turns", "same_step", 3), ("party", "next_step", 4)]
)
def test_games_are_what_a_loop_over_the_raw_game_gives(name, mode, games, ray):
    held_to_the_loop(with_workers(2), name, mode, games=games, partial_sends=True, steps=100)
