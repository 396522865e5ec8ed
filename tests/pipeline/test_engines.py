"""``engine:`` in a pipeline. Each expectation is a loop over the same engine, made by hand, or over
the emulator itself.
"""

import csv
import json
import os
import signal

import ale_py
import envpool
import gymnasium
import numpy as np
import pytest
from ale_py import roms
from ale_py.vector_env import AtariVectorEnv
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

import vecwrap
from vecwrap.errors import PlanError, SpecError
from vecwrap.pipeline import engine_packages
from vecwrap.pipeline.no_imports import refuse_imports
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning"),
    pytest.mark.filterwarnings("ignore:EnvPool seeds are fixed:UserWarning"),
]
PREPROCESSED = {"img_height": 84, "img_width": 84}


def bare_envpool_pong():
    return envpool.make(
        "Pong-v5",
        env_type="gymnasium",
        num_envs=3,
        seed=7,
        num_threads=1,
        stack_num=4,
        noop_max=30,
        frame_skip=4,
        reward_clip=True,
        use_fire_reset=True,
        repeat_action_probability=0.0,
        max_episode_steps=25,
    )


def bare_envpool_cartpole():
    return envpool.make(
        "CartPole-v1", env_type="gymnasium", num_envs=3, seed=7, num_threads=1, max_episode_steps=25
    )


def bare_ale_pong():
    return AtariVectorEnv(
        "pong",
        3,
        num_threads=1,
        noop_max=31,
        max_num_frames_per_episode=100,
        reward_clipping=True,
        repeat_action_probability=0.0,
    )


def bare_cartpole():
    return CartPoleVectorEnv(num_envs=3, max_episode_steps=25)


def bare_sync():
    return gymnasium.make_vec(
        "CartPole-v1", num_envs=3, vectorization_mode="sync", max_episode_steps=25
    )


ATARI = ["atari", "time_limit:25", "framestack:4"]
PONG = "PongNoFrameskip-v4"
SAME = [
    (bare_envpool_pong, PONG, {"name": "envpool", "num_threads": 1}, ATARI),
    (bare_envpool_cartpole, "CartPole-v1", "envpool", ["time_limit:25"]),
    (bare_ale_pong, PONG, {"name": "ale", "num_threads": 1}, ATARI),
    (bare_cartpole, "CartPole-v1", "vector_entry_point", ["time_limit:25"]),
    (
        bare_sync,
        "CartPole-v1",
        {"name": "gymnasium:make_vec", "vectorization_mode": "sync", "max_episode_steps": 25},
        [],
    ),
]


@pytest.mark.parametrize(
    ("bare", "env_id", "engine", "wrappers"), SAME, ids=lambda value: getattr(value, "__name__", "")
)
def test_an_engine_of_a_pipeline_is_the_engine_that_its_users_make(bare, env_id, engine, wrappers):
    mode = None
    if bare is bare_sync:
        mode = "next_step"  # what make_vec makes declares it, the function does not
    with vecwrap.build(
        env_id, n=3, seed=7, engine=engine, wrappers=wrappers, autoreset=mode
    ) as ours:
        theirs = bare()
        assert ours.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.NEXT_STEP
        observations, _ = ours.reset()
        expected, _ = theirs.reset(seed=7)
        np.testing.assert_array_equal(observations, expected)
        rng = np.random.default_rng(3)
        ends = 0
        for _ in range(60):
            actions = rng.integers(0, theirs.single_action_space.n, 3)
            actions = actions.astype(theirs.single_action_space.dtype)
            result = ours.step(actions)
            expected = theirs.step(actions)
            for value, other in zip(result[:4], expected[:4], strict=True):
                np.testing.assert_array_equal(value, other)
            ends += np.count_nonzero(result[2] | result[3])
        theirs.close()
    assert ends >= 6


def test_build_leaves_the_mode_to_the_engine_and_n_to_the_pipeline():
    """Its other modes are asked for; ``n`` is the number of its rows."""
    modes = {}
    for mode in (None, "same_step", "disabled", "next_step"):
        with vecwrap.build("CartPole-v1", n=4, engine="envpool", autoreset=mode) as env:
            modes[mode] = env.metadata["autoreset_mode"].value
            assert env.num_envs == 4
            assert env.pipeline.autoreset == (mode or "next_step")
    assert modes == {
        None: "NextStep",
        "same_step": "SameStep",
        "disabled": "Disabled",
        "next_step": "NextStep",
    }


@pytest.mark.parametrize(
    ("engine", "env_id", "wrappers"),
    [("envpool", "CartPole-v1", []), ("ale", PONG, ["atari", "framestack:4"])],
)
def test_a_batch_size_is_the_engines_own(engine, env_id, wrappers):
    """Each row's stream is that of the engine that returns all its rows."""
    settings = {"n": 4, "seed": 3, "engine": engine, "wrappers": [*wrappers, "monitor"]}
    steps = 12
    with vecwrap.build(env_id, **settings) as env:
        expected = [env.reset()[0], *(env.step([i % 2] * 4)[0] for i in range(steps))]
    seen = [[] for _ in range(4)]
    with vecwrap.build(env_id, batch_size=2, **settings) as env:
        env.reset_async()
        while min(map(len, seen)) <= steps:
            observations, *_, infos = env.recv()
            ids = infos["env_id"]
            assert len(ids) == 2
            for i, observation in zip(ids, observations, strict=True):
                seen[i].append(observation)
            env.send(np.array([(len(seen[i]) - 1) % 2 for i in ids]), env_ids=ids)
    for i, stream in enumerate(seen):
        np.testing.assert_array_equal(stream[: steps + 1], [each[i] for each in expected])


# -- seeds -----------------------------------------------------------------------------------------


def first_observations(**settings):
    seed = settings.pop("reset_seed", None)
    with vecwrap.build("CartPole-v1", engine="envpool", **settings) as env:
        return env.reset(seed=seed)[0]


def test_envpool_takes_the_seed_of_a_reset_though_it_seeds_when_it_is_made():
    by_hand = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=3, seed=[5, 6, 7])
    expected, _ = by_hand.reset()
    by_hand.close()
    np.testing.assert_array_equal(first_observations(n=3, seed=5), expected)
    np.testing.assert_array_equal(first_observations(n=3, reset_seed=5), expected)
    np.testing.assert_array_equal(first_observations(n=3, seed=9, reset_seed=[5, 6, 7]), expected)
    np.testing.assert_array_equal(first_observations(n=2, seed=5, start_index=1), expected[1:])
    assert not np.array_equal(first_observations(n=3), first_observations(n=3))


@pytest.mark.parametrize("engine", ["envpool", "ale"])
def test_seeds_that_an_engine_has_not_count_from_0_again(engine):
    seen = []
    with vecwrap.build(PONG, n=2, engine=engine, wrappers=["atari"]) as env:
        for seed in (2**31 + 39, 40, 50):
            env.reset(seed=seed)
            seen.append([env.step([0, 0])[0] for _ in range(40)])
    np.testing.assert_array_equal(seen[0], seen[1])
    assert not np.array_equal(seen[0], seen[2])


def test_a_seeded_reset_begins_envpools_stream_again():
    with vecwrap.build("CartPole-v1", n=3, seed=5, engine="envpool", wrappers=["monitor"]) as env:
        streams = []
        for _ in range(2):
            observations, _ = env.reset(seed=5)
            stream = [observations]
            stream += [env.step([i % 2, 1, 0])[0] for i in range(40)]
            streams.append(np.array(stream))
        np.testing.assert_array_equal(*streams)
        observations, _ = env.reset()
        assert not np.array_equal(observations, streams[0][0])


def test_seeds_of_some_rows_are_refused_where_the_engine_is_made_with_them():
    with vecwrap.build("CartPole-v1", n=3, engine="envpool") as env:
        env.reset()
        with pytest.raises(vecwrap.VecwrapError, match="takes seeds only when it is made"):
            env.reset(seed=[1, None, 2])


def test_rows_do_not_depend_on_how_they_are_divided_over_engines():
    """Two engines in two workers, and one in this process."""
    streams = []
    for settings in ({}, {"envs_per_engine": 2, "backend": "shmem"}):
        with vecwrap.build("CartPole-v1", n=4, seed=3, engine="envpool", **settings) as env:
            stream = [env.reset()[0]]
            stream += [env.step([i % 2, 1, 0, 1])[0] for i in range(50)]
        streams.append(np.array(stream))
    np.testing.assert_array_equal(*streams)


# -- scores ----------------------------------------------------------------------------------------


def games_of_the_emulator(actions, *, noops, goes_on, limit=None):
    """Score and length of each game of Breakout: the emulator's own, four frames an action.

    In the step after an end nothing is played but no-ops: ``noops`` of them open a game, and one
    goes on with a game in which a life was lost, if ``goes_on``.
    """
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(roms.get_rom_path("breakout"))
    legal = ale.getMinimalActionSet()
    games = []
    ended = True
    begins = True
    skip = False
    for action in [None, *actions]:
        if ended or action is None:
            if begins:
                ale.reset_game()
                score = 0
                length = 0
            for _ in range(noops if begins else 1):
                ale.act(legal[0])
            lives = ale.lives()
            ended = False
            skip = True
            continue
        skip = False
        for _ in range(4):
            score += ale.act(legal[action])
            if ale.game_over():
                break
        length += 1
        begins = ale.game_over() or length == limit
        ended = begins or (goes_on and ale.lives() < lives)
        lives = ale.lives()
        if begins:
            games.append((score, length))
    assert not skip or games
    return games


SCORED = {
    # EnvPool goes on with a game after a lost life; both clip
    "envpool lives": ("envpool", "noop_max=1", [], {"noops": 1, "goes_on": True}),
    "envpool limit": (
        "envpool",
        "noop_max=1,terminal_on_life_loss=false",
        ["time_limit:120"],
        {"noops": 1, "goes_on": False, "limit": 120},
    ),
    "ale": ("ale", "noop_max=0,terminal_on_life_loss=false", [], {"noops": 0, "goes_on": False}),
    "ale limit": (
        "ale",
        "noop_max=0,terminal_on_life_loss=false",
        ["time_limit:120"],
        {"noops": 0, "goes_on": False, "limit": 120},
    ),
}


@pytest.mark.parametrize("case", SCORED)
def test_scores_are_the_games_own_whatever_the_engine_clips_and_ends(case, tmp_path):
    engine, settings, limit, emulator = SCORED[case]
    actions = np.random.default_rng(0).integers(0, 4, 1400)
    atari = f"atari:fire_reset=false,clip_reward=true,{settings}"
    wrappers = [atari, *limit, "framestack:4", {"monitor": {"dir": str(tmp_path)}}]
    with vecwrap.build(
        "BreakoutNoFrameskip-v4", n=1, engine=engine, wrappers=wrappers, seed=0
    ) as env:
        env.reset()
        rewards = [env.step([action])[1][0] for action in actions]
    assert set(rewards) == {0.0, 1.0}
    expected = games_of_the_emulator(actions, **emulator)
    with (tmp_path / "monitor.csv").open(encoding="utf-8") as file:
        assert file.readline().startswith("#")
        games = [(int(float(row["r"])), int(row["l"])) for row in csv.DictReader(file)]
    assert games == expected
    assert len(games) > 4
    if not limit:
        assert max(score for score, _ in games) > 2


# -- wrappers --------------------------------------------------------------------------------------


def placed(line):
    return {
        wrapper.spec.name: wrapper.runs_in for wrapper in plan(PipelineSpec.parse(line)).wrappers
    }


def test_the_plan_says_what_the_engine_has_itself_and_what_runs_here():
    line = (
        f"{PONG} n=2 engine=envpool | atari | time_limit:99 | framestack:4 | clip_reward | monitor"
    )
    absorbed = dict.fromkeys(("atari", "time_limit", "framestack", "clip_reward"), "engine")
    assert placed(line) == {**absorbed, "monitor": "parent"}
    assert placed(line.replace("envpool", "ale")) == {
        **absorbed,
        "clip_reward": "parent",  # ale-py would report the raw rewards nowhere
        "monitor": "parent",
    }
    kept = placed(line.replace("| atari", "engine.absorb=false | atari"))
    assert kept["atari"] == kept["time_limit"] == "engine"
    assert kept["framestack"] == kept["clip_reward"] == "parent"
    assert placed(f"{PONG} n=2 engine=ale | atari | framestack:4,padding=first") == {
        "atari": "engine",
        "framestack": "parent",
    }
    assert placed("CartPole-v1 n=2 engine=envpool | time_limit:99 | framestack:4") == {
        "time_limit": "engine",
        "framestack": "parent",
    }
    assert placed(f"{PONG} n=2 engine=envpool | atari | framestack:1") == {
        "atari": "engine",
        "framestack": "parent",  # an engine of single frames has no axis for them here
    }
    text = str(plan(PipelineSpec.parse(line + " ")))
    assert f"stepped by EnvPool {envpool.__version__} as Pong-v5" in text
    assert "stacks are padded with copies of an episode's first observation" in " ".join(
        text.split()
    )
    data = json.loads(json.dumps(plan(PipelineSpec.parse(line)).explanation.to_dict()))
    assert data["wrappers"][0]["runs_in"] == "engine"


@pytest.mark.parametrize("engine", ["envpool", "ale"])
@pytest.mark.parametrize(
    ("stack", "shape"),
    [([], (84, 84)), (["framestack:1"], (1, 84, 84)), (["framestack:2"], (2, 84, 84))],
)
def test_observations_have_the_shape_that_they_have_without_an_engine(engine, stack, shape):
    with vecwrap.build(PONG, n=1, engine=engine, wrappers=["atari", *stack]) as env:
        assert env.reset(seed=1)[0].shape == (1, *shape)
        assert env.single_observation_space.shape == shape


@pytest.mark.parametrize("engine", ["envpool", "ale"])
def test_wrappers_that_are_not_handed_over_give_the_same_stream(engine):
    """``absorb: false``, and a stack of ours where an engine stacks a single frame."""
    padding = "first" if engine == "envpool" else "zero"
    wrappers = ["atari:machado", "clip_reward", f"framestack:4,padding={padding}"]
    streams = []
    for absorb in (True, False):
        with vecwrap.build(
            PONG, n=2, seed=1, engine={"name": engine, "absorb": absorb}, wrappers=wrappers
        ) as env:
            stream = [env.reset(seed=1)[0]]
            rewards = []
            for i in range(90):
                observations, reward, *_ = env.step([i % 6, (3 * i) % 6])
                stream.append(observations)
                rewards.append(reward)
        streams.append((np.array(stream), np.array(rewards)))
    for ours, theirs in zip(*streams, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert np.count_nonzero(streams[0][1])


# -- the pipeline as data --------------------------------------------------------------------------


def test_an_engine_is_read_and_written_in_every_form():
    line = "CartPole-v1 n=4 engine=envpool engine.num_threads=8 | monitor"
    data = {
        "env": "CartPole-v1",
        "n": 4,
        "engine": {"name": "envpool", "num_threads": 8},
        "wrappers": ["monitor"],
    }
    spec = PipelineSpec.parse(line)
    assert spec.to_dict() == data
    assert spec.format() == line
    assert spec == PipelineSpec.from_dict(data) == PipelineSpec.from_yaml(spec.to_yaml())
    assert PipelineSpec.from_yaml("env: CartPole-v1\nengine: envpool").engine.name == "envpool"
    other = spec.override(**{"engine.num_threads": 2})
    assert other.to_dict()["engine"] == {"name": "envpool", "num_threads": 2}
    assert spec.override(engine="ale").to_dict()["engine"] == "ale"
    changed = PipelineSpec.from_dict({**data, "eval": {"engine": {"num_threads": 1}}})
    planned = plan(changed).pipeline
    assert dict(planned.eval)["engine"].options == {"num_threads": 1}


def test_the_hash_has_the_engine_but_not_its_threads():
    hashes = {
        engine: plan(
            PipelineSpec.parse(f"CartPole-v1 n=2 autoreset=next_step {engine}")
        ).pipeline.hash
        for engine in ("", "engine=envpool", "engine=envpool engine.num_threads=2")
    }
    assert hashes["engine=envpool"] == hashes["engine=envpool engine.num_threads=2"]
    assert hashes["engine=envpool"] != hashes[""]


def test_without_imports_an_engines_path_is_refused():
    spec = PipelineSpec.parse("CartPole-v1 engine=gymnasium:make_vec")
    with pytest.raises(SpecError, match=r"engine.*--no-imports.*gymnasium:make_vec"):
        refuse_imports(spec)
    refuse_imports(PipelineSpec.parse("CartPole-v1 engine=envpool"))


# -- bad input -------------------------------------------------------------------------------------

BREAKOUT = "BreakoutNoFrameskip-v4"
REFUSED = {
    "CartPole-v1 backend=envpool": 'expected engine="envpool"',
    "CartPole-v1 engine=envpol": 'Did you mean "envpool"',
    "CartPol-v1 engine=envpool": r'"CartPol-v1": .*CartPole-v1',
    "Blackjack-v2 engine=envpool": r"Blackjack-v1",
    "CheetahRn-v1 engine=envpool": 'Did you mean "CheetahRun-v1"',
    "PogNoFrameskip-v4 engine=envpool | atari": 'Did you mean "PongNoFrameskip-v4"',
    "MountainCarContinuous-v0 engine=vector_entry_point": "without a vector class of its own",
    "CartPole-v1 engine=ale": "plays Atari games, got CartPole-v1",
    "CartPole-v1 engine=envpool engine.num_threds=2": 'Did you mean "num_threads"',
    "CartPole-v1 engine=envpool engine.num_envs=2": "is the pipeline's own key n",
    "CartPole-v1 engine=envpool engine.num_threads=-1": "num_threads: expected 0 or more, got -1",
    "CartPole-v1 engine=envpool engine.num_threads=two": "expected a whole number, got",
    f"{PONG} engine=ale engine.num_threads=2.5 | atari": "expected a whole number, got 2.5",
    "HalfCheetah-v4 engine=envpool env_kwargs.ctrl_cost_weight=no": "ctrl_cost_weight: expected a",
    "CartPole-v1 engine=3": "expected the name of an engine, got",
    "CartPole-v1 engine=envpool engine.absorb=3": "expected true or false, got 3",
    "CartPole-v1 engine=envpool env_kwargs.gravity=3": r"env_kwargs.gravity: .* takes no gravity",
    "CartPole-v1 engine=envpool autoreset=episodic": "expected next_step, same_step or disabled",
    "CartPole-v1 n=4 engine=envpool envs_per_engine=3": "of which n=4 is a multiple, got 3",
    "CartPole-v1 n=4 engine=envpool batch_size=3": "of which n=4 is a multiple, got 3",
    "CartPole-v1 n=4 engine=envpool batch_size=2 backend=shmem": "runs in this process",
    "CartPole-v1 n=4 engine=envpool batch_size=2 autoreset=same_step": "next_step with batch_size",
    "CartPole-v1 n=4 engine=vector_entry_point batch_size=2": "arrive together",
    "CartPole-v1 n=4 engine=envpool backend=dummy backend.on_failure=restart": "on_failure",
    "CartPole-v1 engine=envpool | gymnasium.wrappers:TimeAwareObservation": "single environments",
    "CartPole-v1 engine=builtins:len": "expected a callable with an argument num_envs",
    f"{PONG} engine=envpool | framestack:4": 'atari as the first wrapper, got "framestack"',
    f"{PONG} engine=envpool env_kwargs.frameskip=2 | atari": "Give it to atari|Leave it out",
    f"{PONG} engine=ale env_kwargs.mode=1 | atari": "has no mode",
    f"{PONG} engine=ale engine.noop_max=3 | atari": "a wrapper sets it already",
    f"{PONG} engine=ale render_mode=rgb_array | atari": "draws nothing",
    f"{PONG} engine=ale | atari | framestack:4 | video:dir=videos": r"video.*draws nothing",
    f"{PONG} engine=envpool | atari:noop_max=0": "expected noop_max >= 1",
    f"{BREAKOUT} engine=ale | atari": "begins a new game where a life is lost",
    f"{BREAKOUT} engine=envpool | atari:terminal_on_life_loss=new_game": "goes on with the game",
    f"{BREAKOUT} engine=envpool autoreset=same_step | atari": "expected next_step where an episode",
    f"{BREAKOUT} engine=envpool | atari | time_limit:9": "counts the steps of a game, not",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_an_engine_cannot_do_is_refused_in_the_plan(line):
    with pytest.raises((PlanError, SpecError), match=REFUSED[line]):
        plan(PipelineSpec.parse(line))


@pytest.mark.parametrize(
    "line",
    [
        "CartPole-v1 n=4 envs_per_engine=2 backend=shmem | time_limit:400",
        "CartPole-v1 n=2 engine=envpool | time_limit:400 | monitor",
        f"{PONG} n=2 engine=ale | atari | framestack:4 | monitor",
        "CheetahRun-v1 n=2 engine=envpool | monitor",
    ],
)
def test_pipelines_with_engines_are_checked(line):
    """The findings of ``check``, and a look at what is made."""
    found = vecwrap.check(line)
    assert not [finding for finding in found if finding.severity == "error"], found


def test_an_engine_steps_one_environment_only():
    with pytest.raises(PlanError, match="one environment for all rows"):
        plan(PipelineSpec(("CartPole-v1", "CartPole-v0"), engine="envpool"))
    with pytest.raises(PlanError, match="expected an id, which envpool makes"):
        plan(PipelineSpec(lambda: gymnasium.make("CartPole-v1"), engine="envpool"))


@pytest.mark.parametrize(("engine", "title"), [("envpool", "EnvPool"), ("gymnax", "gymnax")])
def test_an_engine_that_is_not_installed_is_refused_with_its_extra(engine, title, monkeypatch):
    monkeypatch.setattr("vecwrap.pipeline.engines.is_installed", lambda name: False)
    with pytest.raises(SpecError, match=rf"{title} is not installed: pip install .*\[{engine}\]"):
        plan(PipelineSpec.parse(f"CartPole-v1 engine={engine}"))


def test_too_old_an_engine_is_refused_for_what_it_lacks(monkeypatch):
    monkeypatch.setattr("vecwrap.pipeline.engine_request.is_at_least", lambda *_: False)
    with pytest.raises(PlanError, match=r"same_step needs envpool 1.2 or newer"):
        plan(PipelineSpec.parse("CartPole-v1 engine=envpool autoreset=same_step"))
    assert plan(PipelineSpec.parse("CartPole-v1 engine=envpool")).pipeline.autoreset == "next_step"


def test_mujoco_is_not_drawn_without_a_display(monkeypatch):
    """EnvPool's own attempt would end the process."""
    monkeypatch.setattr(engine_packages, "has_display", lambda: False)
    with pytest.raises(
        PlanError, match="render_mode: EnvPool draws MuJoCo's tasks with the OpenGL"
    ):
        plan(PipelineSpec.parse("HalfCheetah-v5 engine=envpool render_mode=rgb_array"))


def test_an_engine_that_draws_gives_frames():
    with vecwrap.build(
        PONG, n=2, engine="envpool", wrappers=["atari"], render_mode="rgb_array"
    ) as env:
        env.reset()
        frames = env.render()
        assert [frame.shape for frame in frames] == [(210, 160, 3)] * 2


@pytest.mark.parametrize(
    "line", ["CartPole-v1 n=2 engine=envpool", f"{PONG} n=2 engine=ale | atari | framestack:4"]
)
def test_a_forked_process_is_refused_an_engine_whose_threads_it_lacks(line):
    """EnvPool's step would wait for ever there; the process that built it goes on."""
    with vecwrap.build(line) as env:
        env.reset(seed=1)
        receiver, sender = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            try:
                env.step([0, 1])
            except BaseException as error:
                os.write(sender, str(error).encode())
            os._exit(0)
        os.close(sender)
        _, status = os.waitpid(child, 0)
        with os.fdopen(receiver) as pipe:
            said = pipe.read()
        assert status == 0
        assert "whose engine's threads a forked process does not have" in said
        env.step([0, 1])


# -- learners --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "env_id", "wrappers"),
    [
        ("envpool", "CartPole-v1", ["monitor"]),
        ({"name": "gymnasium:make_vec", "vectorization_mode": "sync"}, "CartPole-v1", ["monitor"]),
        pytest.param(
            "ale",
            PONG,
            ["atari", "time_limit:20", "framestack:4", "monitor"],
            marks=pytest.mark.full,
        ),
    ],
)
def test_an_engine_trains_under_sb3(engine, env_id, wrappers):
    """Same-step mode by masked resets."""
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    env = vecwrap.to_sb3(
        vecwrap.build(env_id, n=4, seed=1, engine=engine, wrappers=wrappers, autoreset="same_step")
    )
    model = stable_baselines3.PPO("MlpPolicy", env, n_steps=32, batch_size=64, n_epochs=1, seed=1)
    before = [parameter.detach().clone() for parameter in model.policy.parameters()]
    model.learn(256)
    after = list(model.policy.parameters())
    assert any(not old.equal(new) for old, new in zip(before, after, strict=True))
    assert len(model.ep_info_buffer) > 4
    env.close()


def test_an_engine_without_masked_resets_has_its_own_mode_alone():
    with pytest.raises(vecwrap.VecwrapError, match="CartPoleVectorEnv declares next_step"):
        vecwrap.build("CartPole-v1", n=2, engine="vector_entry_point", autoreset="same_step")
