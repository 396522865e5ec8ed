"""The adapters: each installed peer does some real steps, with our seeds and actions; others say
what is missing.
"""

import importlib
import subprocess
import sys
import types
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from benchmarks.comparison import peer_contenders
from benchmarks.measure import CannotRun
from benchmarks.peers import PEERS, read_names, sb3
from vecwrap.errors import SpecError
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.testing.toys import OpenResources, assert_nothing_left
from vecwrap.tools.throughput import SEED, action_batches

ROOT = Path(__file__).resolve().parents[2]
# What a peer prints or warns of while it is opened is its own affair.
pytestmark = pytest.mark.filterwarnings("ignore")

CARTPOLE = "CartPole-v1 n=2"
PONG = "PongNoFrameskip-v4 n=2 | atari | framestack:4"
RUNS = [
    ("gymnasium", CARTPOLE),
    ("gymnasium", "CartPole-v1 n=2 | framestack:3 | monitor"),
    pytest.param(
        "gymnasium", "CartPole-v1 n=2 autoreset=next_step | monitor", marks=pytest.mark.full
    ),
    pytest.param("gymnasium", "Pendulum-v1 n=2 | clip_action", marks=pytest.mark.full),
    ("gymnasium", PONG),
    ("sb3", CARTPOLE),
    ("sb3", "CartPole-v1 n=2 | time_limit:7 | framestack:3 | monitor"),
    ("sb3", "PongNoFrameskip-v4 n=2 | atari | framestack:4 | monitor"),
    ("envpool", CARTPOLE),
    ("envpool", "CartPole-v1 n=4 batch_size=2"),
    ("envpool", PONG),
    ("ale", PONG),
    ("ale", "PongNoFrameskip-v4 n=4 batch_size=2 | atari:machado | framestack:2"),
    ("tianshou", "CartPole-v1 n=2 | framestack:3 | monitor"),
    ("tianshou", "CartPole-v1 n=2 batch_size=1"),
]
MODULES = {
    "sb3": "stable_baselines3",
    "envpool": "envpool",
    "ale": "ale_py.vector_env",
    "tianshou": "tianshou",
}


class Recorder(gymnasium.Env):
    """Notes what it is asked; ends after four steps."""

    observation_space = spaces.Box(0, 255, (4,), np.uint8)
    action_space = spaces.Discrete(6)
    alive = []

    def __init__(self):
        self.seeds, self.actions = [], []
        Recorder.alive.append(self)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.now = 0
        return np.zeros(4, np.uint8), {}

    def step(self, action):
        self.now += 1
        self.actions.append(int(action))
        return np.zeros(4, np.uint8), 0.0, self.now == 4, False, {}


def planned(line, **changes):
    return plan(PipelineSpec.parse(line).override(**changes))


@pytest.mark.xdist_group("tianshou")  # which takes seconds to import
@pytest.mark.parametrize(("peer", "line"), RUNS)
def test_an_installed_peer_steps(peer, line, server_of_peers):
    pytest.importorskip(MODULES.get(peer, "gymnasium"))
    if "Pong" in line:
        pytest.importorskip("ale_py")
    spec = PipelineSpec.parse(line)
    for contender in PEERS[peer].contenders(plan(spec)):
        sampler = contender.open()
        assert sampler.run(40) == 40 * (spec.batch_size or spec.n)
        sampler.close()


@pytest.mark.parametrize(
    ("peer", "name"), [("gymnasium", "Gymnasium Sync"), ("sb3", "SB3 DummyVecEnv")]
)
def test_a_peer_gets_our_seeds_and_actions(peer, name):
    pytest.importorskip(MODULES.get(peer, "gymnasium"))
    Recorder.alive.clear()
    contenders = {
        each.name: each for each in PEERS[peer].contenders(planned(CARTPOLE, env=Recorder))
    }
    sampler = contenders[name].open()
    sampler.run(10)
    sampler.close()
    expected = np.array(action_batches(Recorder.action_space, 2)[:10])
    stepped = [env for env in Recorder.alive if env.actions]
    assert [env.seeds for env in stepped] == [[SEED + i, None, None] for i in range(2)]
    np.testing.assert_array_equal(np.array([env.actions for env in stepped]).T, expected)


class EndsAfterThree:
    """What tianshou's vector environments are, as far as the loop calls them; stepping past an end
    is an error.
    """

    def __init__(self, n, wait_num):
        self.since, self.wait_num, self.out, self.resets = [0] * n, wait_num, [], 0

    def step(self, actions, ids):
        assert len(actions) == len(ids)
        assert all(self.since[i] < 3 for i in ids), "stepped past an end"
        for i in ids:
            self.since[i] += 1
        self.out += ids.tolist()
        ready, self.out = self.out[: self.wait_num], self.out[self.wait_num :]
        dones = np.array([self.since[i] == 3 for i in ready])
        return None, None, dones, np.zeros_like(dones), [{"env_id": i} for i in ready]

    def reset(self, ids):
        self.resets += len(ids)
        for i in ids:
            self.since[i] = 0


@pytest.mark.parametrize("wait_num", [4, 2])
def test_tianshous_ended_rows_are_reset_by_the_loop(wait_num):
    step_and_reset = importlib.import_module("benchmarks.peers.tianshou")._step_and_reset
    env = EndsAfterThree(4, wait_num)
    step = step_and_reset(env, np.arange(4))
    for _ in range(10):
        step(np.zeros(4, np.int64))
    assert env.resets >= 4


def test_nothing_is_left_of_a_peer():
    _, contender = PEERS["gymnasium"].contenders(planned(CARTPOLE))
    contender.open().close()  # the forkserver stays for the next one
    before = OpenResources.now()
    sampler = contender.open()
    during = OpenResources.now()
    sampler.close()
    # Multiprocessing's processes keep a descriptor each for as long as somebody knows them.
    del sampler
    assert_nothing_left(before, during)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_the_peers_processes_leave_an_interrupt_to_the_parent():
    """Ctrl-C reaches the whole group: a traceback of every worker would follow."""
    program = """if True:
        from pathlib import Path
        from benchmarks.start_one import descendants
        from benchmarks.peers import PEERS
        from vecwrap.pipeline.plan import plan
        from vecwrap.pipeline.spec import PipelineSpec
        import os, signal
        sampler = PEERS["gymnasium"].contenders(plan(PipelineSpec("CartPole-v1", n=2)))[1].open()
        for pid in descendants(os.getpid()):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            ignored = next(int(line.split()[1], 16) for line in lines if line.startswith("SigIgn"))
            print(bool(ignored & 1 << signal.SIGINT - 1))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        sampler.close()
    """
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    told = done.stdout.split()
    assert len(told) >= 3  # the forkserver and two workers at least
    assert set(told) == {"True"}


# -- the same work ---------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", ["gymnasium", "sb3", "tianshou"])
def test_wrappers_of_the_sub_environments_run_in_the_peers_too(peer, monkeypatch):
    """What a peer has no word for is wrapped around its sub-environments as it is around ours."""
    seen = []

    def look(env):
        seen.append(type(env.unwrapped).__name__)
        return env

    factories = []
    module = importlib.import_module(f"benchmarks.peers.{peer}")
    real = module.translated

    def keep(*args, **kwargs):
        work = real(*args, **kwargs)
        factories.extend(work.factories)
        return work

    monkeypatch.setattr(module, "translated", keep)
    PEERS[peer].contenders(planned(CARTPOLE, wrappers=[look, "time_limit:5", "framestack:2"]))
    env = factories[0]()
    assert seen == ["CartPoleEnv"]
    limits = []
    while hasattr(env, "env"):
        limits.append(getattr(env, "_max_episode_steps", None))
        env = env.env
    assert 5 in limits
    env.close()


def test_sb3s_preprocessing_shows_what_ours_shows():
    pytest.importorskip("ale_py")
    pytest.importorskip("stable_baselines3")
    ours = planned("PongNoFrameskip-v4 n=1 | atari").factories[0]()
    make = planned("PongNoFrameskip-v4 n=1 | atari").environment.factories[0]
    (wrap,) = sb3._atari_wrapper(
        planned("PongNoFrameskip-v4 n=1 | atari").wrappers[0].bound.complete
    ).wraps
    theirs = wrap(make())
    for env in (ours, theirs):
        env.reset(seed=3)
    for action in action_batches(ours.action_space, 1)[:40]:
        mine, its = ours.step(action[0]), theirs.step(action[0])
        np.testing.assert_array_equal(mine[0], its[0][..., 0])
        assert mine[1:4] == its[1:4]
    ours.close(), theirs.close()


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        (
            "envpool",
            {
                "stack_num": 3,
                "frame_skip": 2,
                "noop_max": 7,
                "episodic_life": False,
                "reward_clip": True,
                "use_fire_reset": False,
                "img_height": 42,
                "img_width": 42,
                "gray_scale": True,
                "num_envs": 2,
                "batch_size": 2,
                "repeat_action_probability": 0.25,
                "full_action_space": False,
            },
        ),
        (
            "ale",
            {
                "stack_num": 3,
                "frameskip": 2,
                "noop_max": 7,
                "episodic_life": False,
                "reward_clipping": True,
                "use_fire_reset": False,
                "img_height": 42,
                "img_width": 42,
                "grayscale": True,
                "num_envs": 2,
                "maxpool": True,
                "repeat_action_probability": 0.25,
                "full_action_space": False,
            },
        ),
    ],
)
def test_engines_are_given_the_preprocessing_of_the_pipeline(peer, expected, monkeypatch):
    pytest.importorskip("ale_py")
    told = {}

    class Engine:
        action_space = single_action_space = spaces.Discrete(6)

        def __init__(self, game, env_type=None, **arguments):
            told.update(arguments, game=game)

        def reset(self, seed=None):
            pass

        step = close = reset

    module = types.SimpleNamespace(
        list_all_envs=lambda: ["SpaceInvaders-v5"], make=Engine, AtariVectorEnv=Engine
    )
    monkeypatch.setattr(f"benchmarks.peers.{peer}.peer_module", lambda *args: module)
    line = (
        "SpaceInvadersNoFrameskip-v4 n=2 | "
        "atari:machado,frame_skip=2,noop_max=7,screen_size=42,clip_reward=true | framestack:3"
    )
    PEERS[peer].contenders(planned(line))[0].open()
    assert {key: told[key] for key in expected} == expected
    assert told["game"] == {"envpool": "SpaceInvaders-v5", "ale": "space_invaders"}[peer]


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peer", "line", "why"),
    [
        ("gymnasium", "CartPole-v1 n=2 | tile", 'no equivalent of the wrapper "tile"'),
        (
            "gymnasium",
            "CartPole-v1 n=2 | monitor | framestack:2",
            "inside of Gymnasium's other wrappers",
        ),
        ("gymnasium", "CartPole-v1 n=2 | framestack:2,axis=channel", "new leading axis"),
        ("gymnasium", "CartPole-v1 n=2 autoreset=episodic", "no autoreset mode episodic"),
        ("gymnasium", "CartPole-v1 n=2 batch_size=1", "has a batch_size"),
        ("sb3", "CartPole-v1 n=2 autoreset=next_step", "no autoreset mode next_step"),
        ("sb3", "CartPole-v1 n=2 | framestack:2,padding=first", "pads with zeros"),
        ("sb3", "Pendulum-v1 n=2 | clip_action", 'no equivalent of the wrapper "clip_action"'),
        ("sb3", "Pendulum-v1 n=2 | normalize", 'no equivalent of the wrapper "normalize"'),
        ("envpool", "CartPole-v1 n=2 | framestack:2", "the preprocessing of Atari games"),
        (
            "envpool",
            "CartPole-v1 n=2 env_kwargs.sutton_barto_reward=true",
            "does not take sutton_barto_reward",
        ),
        ("envpool", "gymnasium.envs.classic_control:CartPoleEnv n=2", "is a callable"),
        (
            "envpool",
            "PongNoFrameskip-v4 n=2 | atari | framestack:4 | monitor",
            'nothing like the wrapper "monitor"',
        ),
        ("ale", "CartPole-v1 n=2", "the preprocessing of Atari games"),
        ("ale", "PongNoFrameskip-v4 n=2 | atari | framestack:4,axis=channel", "new leading axis"),
        ("tianshou", "CartPole-v1 n=2 | normalize", 'no equivalent of the wrapper "normalize"'),
    ],
)
def test_what_a_peer_cannot_do_is_refused_with_the_reason(peer, line, why):
    if "Pong" in line:
        pytest.importorskip("ale_py")
    contenders = peer_contenders(PEERS[peer], planned(line))
    assert [contender.name for contender in contenders] == list(PEERS[peer].names)
    for contender in contenders:
        with pytest.raises(CannotRun, match=f"cannot do the same work: .*{why}"):
            contender.open()


def test_an_engine_without_the_task_says_so(monkeypatch):
    module = types.SimpleNamespace(list_all_envs=lambda: ["Pong-v5"])
    monkeypatch.setattr("benchmarks.peers.envpool.peer_module", lambda *args: module)
    for contender in peer_contenders(PEERS["envpool"], planned(CARTPOLE)):
        with pytest.raises(
            CannotRun, match="EnvPool cannot do the same work: it has no CartPole-v1"
        ):
            contender.open()


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer != "gymnasium"])
def test_a_peer_that_is_not_installed_is_a_row_with_its_line(peer, monkeypatch):
    pytest.importorskip("ale_py")
    real = importlib.import_module
    absent = ("stable_baselines3", "envpool", "ale_py.vector_env", "tianshou.env")

    def without(name, *args):
        if name.startswith(absent):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args)

    monkeypatch.setattr("benchmarks.measure.import_module", without)
    for contender in peer_contenders(PEERS[peer], planned(PONG)):
        with pytest.raises(CannotRun, match=r"is not installed: pip install "):
            contender.open()


def test_names_are_read_once_each_and_an_unknown_one_is_refused():
    assert read_names("sb3,gymnasium, sb3,") == ["sb3", "gymnasium"]
    with pytest.raises(SpecError, match=r"there is no peer 'sb4'. Did you mean \"sb3\"\?"):
        read_names("sb4")
    with pytest.raises(SpecError, match=r"Known are gymnasium, sb3, envpool, ale, tianshou"):
        read_names("rllib")
