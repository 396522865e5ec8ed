"""Pipelines under Gymnasium's ids, Gymnasium's vector wrappers around them, and what Gymnasium
expects of both.
"""

import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as wrappers

import vecwrap
from tests.helpers.toy_envs import Counter
from vecwrap.errors import PlanError, SpecError
from vecwrap.testing import assert_same
from vecwrap.wrappers.framestack import FrameStack
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.normalize import Normalize

ID = "vecwrap-tests/Registered-v0"
LINE = "CartPole-v1 backend=dummy seed=3 | time_limit:20 | framestack:2 | monitor"


@pytest.fixture(autouse=True)
def _leave_the_registry_as_it_was():
    before = dict(gymnasium.registry)
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


def make_vec(num_envs=2, id=ID, **settings):
    return gymnasium.make_vec(
        id, num_envs=num_envs, vectorization_mode="vector_entry_point", **settings
    )


def stream(env, steps=60, seed=None):
    """All that a run gives, with the same actions each time; times are left out."""
    results = [env.reset(seed=seed)]
    env.action_space.seed(1)
    for _ in range(steps):
        results.append(env.step(env.action_space.sample()))
        results[-1][-1].get("episode", {}).pop("t", None)
    env.close()
    return results


# -- make_vec --------------------------------------------------------------------------------------


def test_a_registered_pipeline_is_what_load_gives_in_next_step_mode(tmp_path):
    file = tmp_path / "stacked.yaml"
    file.write_text(vecwrap.PipelineSpec.parse(LINE).to_yaml())
    vecwrap.register(ID, file)
    env = make_vec(3)
    assert (env.num_envs, env.metadata["autoreset_mode"]) == (3, AutoresetMode.NEXT_STEP)
    assert isinstance(env, vecwrap.VecEnv)
    assert_same(stream(vecwrap.load(file, n=3, autoreset="next_step")), stream(env))


@pytest.mark.parametrize(
    "pipeline", [LINE, vecwrap.PipelineSpec.parse(LINE), vecwrap.PipelineSpec.parse(LINE).to_dict()]
)
def test_a_line_a_dict_and_a_spec_can_be_registered(pipeline):
    vecwrap.register(ID, pipeline)
    env = make_vec()
    assert env.find(FrameStack).num_envs == 2
    env.close()


def test_a_line_longer_than_a_files_name_can_be_registered():
    vecwrap.register(ID, LINE + " | terminal_obs" * 30)
    assert ID in gymnasium.registry


def test_one_sub_environment_unless_told_otherwise_as_gymnasium_has_it():
    vecwrap.register(ID, f"{LINE}".replace("seed=3", "seed=3 n=8"))
    env = gymnasium.make_vec(ID)
    assert env.num_envs == 1
    env.close()


def test_settings_reach_the_pipeline_and_those_of_make_vec_come_over_those_of_register():
    vecwrap.register(ID, LINE, seed=5, **{"wrappers.framestack.k": 4})
    env = make_vec(
        seed=6,
        autoreset="same_step",
        render_mode="rgb_array",
        env_kwargs={"sutton_barto_reward": True},
        **{"wrappers.monitor.stats_key": "game"},
    )
    assert env.pipeline.seed == 6
    assert env.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    assert env.render_mode == "rgb_array"
    assert env.single_observation_space.shape == (4, 4)
    assert env.find(Monitor).column == "game"
    env.reset()
    assert (env.step([0, 1])[1] == 0).all()  # Sutton and Barto pay nothing for an upright pole
    env.close()


@pytest.mark.parametrize(
    ("pipeline", "settings", "mode"),
    [
        ("CartPole-v1", {}, AutoresetMode.NEXT_STEP),
        ("CartPole-v1 autoreset=disabled", {}, AutoresetMode.DISABLED),
        ("CartPole-v1 autoreset=same_step", {}, AutoresetMode.SAME_STEP),
        ("CartPole-v1 autoreset=same_step", {"autoreset": "next_step"}, AutoresetMode.NEXT_STEP),
        (vecwrap.PipelineSpec("CartPole-v1", autoreset="same_step"), {}, AutoresetMode.SAME_STEP),
        ("CartPole-v1", {"autoreset": AutoresetMode.SAME_STEP}, AutoresetMode.SAME_STEP),
    ],
)
def test_the_mode_is_next_step_unless_somebody_says_another(pipeline, settings, mode):
    vecwrap.register(ID, pipeline)
    env = make_vec(backend="dummy", **settings)
    assert env.metadata["autoreset_mode"] is mode
    env.close()


def test_max_episode_steps_as_gymnasium_says_it():
    vecwrap.register(ID, "CartPole-v1 backend=dummy")
    env = make_vec(max_episode_steps=7)
    env.reset(seed=1)
    truncated = [env.step([0, 1])[3].any() for _ in range(7)]
    assert truncated == [False] * 6 + [True]
    env.close()


def test_the_evaluation_of_a_pipeline_with_the_statistics_of_another_environment():
    vecwrap.register(ID, "CartPole-v1 backend=dummy | normalize")
    training = make_vec(4)
    training.reset(seed=1)
    evaluation = make_vec(1, mode="eval", stats=training)
    assert not evaluation.training
    statistics = evaluation.find(Normalize).wrapper_statistics()
    assert (
        statistics["observations"] is training.find(Normalize).wrapper_statistics()["observations"]
    )
    training.close()
    evaluation.close()


@pytest.mark.parametrize("wrappers", ["", " | framestack:2"])
def test_the_spec_rebuilds_it(wrappers):
    vecwrap.register(ID, f"CartPole-v1 backend=dummy seed=2{wrappers}")
    env = make_vec(3, autoreset="same_step")
    assert env.spec.id == ID
    assert env.spec is env.unwrapped.spec
    again = gymnasium.make_vec(env.spec)
    assert again.pipeline == env.pipeline
    assert_same(stream(env), stream(again))
    assert '"vector_entry_point": "vecwrap.adapters.gymnasium:make_vec"' in again.spec.to_json()


def test_the_environments_own_name_stands_in_files(tmp_path):
    vecwrap.register(ID, LINE, **{"wrappers.monitor.dir": str(tmp_path)})
    env = make_vec()
    env.reset()
    env.save(tmp_path / "state.npz")
    env.close()
    assert '"env_id": "CartPole-v1"' in (tmp_path / "monitor.csv").read_text()
    other = vecwrap.build(LINE, n=2, autoreset="next_step")
    other.load(tmp_path / "state.npz")
    other.close()


def test_a_package_registers_without_importing_vecwrap(tmp_path):
    program = (
        "import gymnasium, sys\n"
        "gymnasium.register('Mine-v0', vector_entry_point='vecwrap.adapters.gymnasium:make_vec',\n"
        "    kwargs={'pipeline': 'CartPole-v1 backend=dummy | framestack:2'})\n"
        "assert 'vecwrap' not in sys.modules\n"
        "env = gymnasium.make_vec('Mine-v0', num_envs=2)\n"
        "print(env.reset(seed=1)[0].shape)\n"
        "env.close()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
    )
    assert result.stdout == "(2, 2, 4)\n", result.stderr


def test_a_relative_path_is_that_of_the_moment(tmp_path, monkeypatch):
    (tmp_path / "pole.yaml").write_text("env: CartPole-v1\nbackend: dummy\n")
    monkeypatch.chdir(tmp_path)
    vecwrap.register(ID, "pole.yaml")
    monkeypatch.chdir("/")
    make_vec().close()


def test_registering_again_replaces_it():
    vecwrap.register(ID, "CartPole-v1 backend=dummy")
    vecwrap.register(ID, "Pendulum-v1 backend=dummy")
    env = make_vec()
    assert env.single_observation_space.shape == (3,)
    env.close()


def test_what_is_refused_leaves_what_was_registered_before(tmp_path):
    vecwrap.register(ID, LINE)
    for pipeline, settings in (
        (tmp_path / "none.yaml", {}),
        ("CartPole-v1 | ", {}),
        (LINE, {"n": 3}),
    ):
        with pytest.raises(SpecError):
            vecwrap.register(ID, pipeline, **settings)
    with make_vec() as env:
        assert env.pipeline.wrappers[1].kwargs["k"] == 2


@pytest.mark.parametrize(
    ("arguments", "settings", "words"),
    [
        (("CartPole-v1", LINE), {}, 'id: "CartPole-v1" is another environment'),
        ((ID, LINE), {"num_envs": 4}, "num_envs: gymnasium.make_vec sets the number"),
        ((ID, LINE), {"n": 4}, "n: gymnasium.make_vec sets the number"),
        ((ID, "nowhere.yaml"), {}, "nowhere.yaml"),
        ((ID, {"env": "CartPole-v1", "layers": []}), {}, "layers: unknown key"),
    ],
)
def test_what_cannot_be_registered_is_refused_and_leaves_nothing(arguments, settings, words):
    before = dict(gymnasium.registry)
    with pytest.raises(SpecError, match=words):
        vecwrap.register(*arguments, **settings)
    assert gymnasium.registry == before


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        (
            {"gravity": 3.0},
            SpecError,
            "gravity: unknown key. What the environment takes goes into env_kwargs",
        ),
        (
            {"n": 4},
            SpecError,
            "make_vec: n: gymnasium.make_vec sets the number, with num_envs=; leave it out here",
        ),
        ({"wrappers.framestack.m": 3}, SpecError, "framestack"),
        (
            {"env_kwargs": {"gravity": 3.0}},
            PlanError,
            "env_kwargs.gravity: CartPole-v1 takes no such argument",
        ),
        ({"autoreset": "NextStp"}, SpecError, "autoreset"),
    ],
)
def test_settings_that_do_not_fit_are_refused_where_it_is_made(settings, error, words):
    vecwrap.register(ID, LINE)
    with pytest.raises(error, match=words):
        make_vec(**settings)


def test_an_environment_as_stats_is_given_to_make_vec_and_not_registered():
    with vecwrap.build("CartPole-v1", n=1, wrappers=["normalize"], backend="dummy") as training:
        with pytest.raises(
            SpecError, match=r"register: stats: expected a file .* pass it to gymnasium\.make_vec"
        ):
            vecwrap.register(ID, "CartPole-v1 backend=dummy | normalize", stats=training)
        assert ID not in gymnasium.registry
        vecwrap.register(ID, "CartPole-v1 backend=dummy | normalize")
        make_vec(stats=training).close()


def test_a_file_as_stats_can_be_registered(tmp_path):
    with vecwrap.build("CartPole-v1", n=1, wrappers=["normalize"], backend="dummy") as training:
        training.reset(seed=1)
        training.save(tmp_path / "stats.npz")
        mean = training.find(Normalize).wrapper_statistics()["observations"].mean
    vecwrap.register(ID, "CartPole-v1 backend=dummy | normalize", stats=tmp_path / "stats.npz")
    first = make_vec()
    for env in (first, gymnasium.make_vec(first.spec)):
        assert not env.training
        assert np.array_equal(env.find(Normalize).wrapper_statistics()["observations"].mean, mean)
        env.close()


# -- make ------------------------------------------------------------------------------------------


def episodes(step, reset, steps=60):
    """What one environment gives, reset when its episode has ended."""
    kept, rng = [reset(seed=5)], np.random.default_rng(1)
    for _ in range(steps):
        kept.append(step(int(rng.integers(2))))
        kept[-1][-1].get("episode", {}).pop("t", None)
        if kept[-1][2] or kept[-1][3]:
            kept.append(reset())
    return kept


def test_make_gives_one_environment_with_all_wrappers():
    vecwrap.register(ID, LINE)
    one = gymnasium.make(ID)
    vector = vecwrap.build(LINE, n=1, autoreset="disabled")

    def rows(observations, *others):
        infos = {key: value for key, value in others[-1].items() if not key.startswith("_")}
        if "episode" in infos:
            infos["episode"] = {
                key: v[0].item() for key, v in infos["episode"].items() if not key.startswith("_")
            }
        return observations[0], *(each[0].item() for each in others[:-1]), infos

    expected = episodes(
        lambda action: rows(*vector.step([action])), lambda **given: rows(*vector.reset(**given))
    )
    got = episodes(one.step, one.reset)
    assert sum("episode" in row[-1] for row in got) > 2
    assert [len(row) for row in got] == [len(row) for row in expected]
    assert data_equivalence(got, expected)
    assert [type(each) for each in got[1][1:]] == [float, bool, bool, dict]
    assert one.unwrapped.vecwrap_env.pipeline.wrappers[1].kwargs["k"] == 2
    one.close()
    assert one.unwrapped.vecwrap_env.closed
    vector.close()


@pytest.mark.parametrize(
    "line",
    [
        "MountainCar-v0 | framestack:2",
        "Pendulum-v1 | rescale_action",
        "Blackjack-v1",
        "FrozenLake-v1 | monitor",
    ],
)
@pytest.mark.filterwarnings("ignore:.*CUDA.*")
def test_gymnasiums_own_checker_finds_nothing(line):
    vecwrap.register(ID, line)
    env = gymnasium.make(ID)
    check_env(env.unwrapped, skip_render_check=True)
    env.close()


def test_settings_reach_the_one_environment_and_what_runs_a_vector_does_not():
    vecwrap.register(
        ID, "CartPole-v1 seed=3 | framestack:2", backend="shmem", workers=2, autoreset="next_step"
    )
    env = gymnasium.make(
        ID, render_mode="rgb_array", max_episode_steps=9, **{"wrappers.framestack.k": 3}
    )
    inner = env.unwrapped.vecwrap_env
    assert (inner.num_envs, inner.backend, inner.autoreset_mode) == (
        1,
        "dummy",
        AutoresetMode.DISABLED,
    )
    first = env.reset()[0]
    np.testing.assert_array_equal(first, env.reset(seed=3)[0])
    assert first.shape == (3, 4)
    assert env.render().ndim == 3
    for k in range(9):
        *_, truncated, _ = env.step(k % 2)
    assert truncated
    env.close()
    for key in ("frameskip", "gravity"):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{key}'"):
            gymnasium.make(ID, **{key: 4})
    again = gymnasium.make(env.spec)
    assert again.reset(seed=3)[0].shape == (3, 4)
    again.close()


def test_gymnasiums_vectors_of_it():
    vecwrap.register(ID, "CartPole-v1 | framestack:2")
    envs = gymnasium.make_vec(ID, num_envs=2, vectorization_mode="sync")
    with vecwrap.build("CartPole-v1", n=2, wrappers=["framestack:2"], backend="dummy") as env:
        np.testing.assert_array_equal(envs.reset(seed=4)[0], env.reset(seed=4)[0])
    envs.close()


# -- Gymnasium's vector wrappers -------------------------------------------------------------------


class Pixels(Counter):
    """A counter that shows it in pixels, and renders them."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}
    observation_space = gymnasium.spaces.Box(0, 255, (12, 8, 3), np.uint8)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    render_mode = "rgb_array"

    def _observation(self):
        return np.full((12, 8, 3), 10 * self.episode + self.step_number, np.uint8)

    def step(self, action):
        observation, _, *rest, info = super().step(0)
        return observation, float(action.sum()), *rest, {"step": info["step"]}

    def render(self):
        return np.repeat(np.repeat(self._observation(), 4, axis=0), 4, axis=1)


class Parts(Counter):
    """A counter with its two numbers apart."""

    observation_space = gymnasium.spaces.Dict(
        episode=gymnasium.spaces.Box(0, 99, (1,), np.float32), step=gymnasium.spaces.Discrete(99)
    )

    def _observation(self):
        return {"episode": np.array([self.episode], np.float32), "step": np.int64(self.step_number)}


def halves(value):
    return value * 0.5


SINGLE = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
WRAPPERS = {
    "RecordEpisodeStatistics": (Counter, lambda env, tmp: wrappers.RecordEpisodeStatistics(env)),
    "DictInfoToList": (Counter, lambda env, tmp: wrappers.DictInfoToList(env)),
    "NormalizeObservation": (Counter, lambda env, tmp: wrappers.NormalizeObservation(env)),
    "NormalizeReward": (Counter, lambda env, tmp: wrappers.NormalizeReward(env)),
    "TransformObservation": (Counter, lambda env, tmp: wrappers.TransformObservation(env, halves)),
    "VectorizeTransformObservation": (
        Counter,
        lambda env, tmp: wrappers.VectorizeTransformObservation(
            env, gymnasium.wrappers.TransformObservation, func=halves, observation_space=SINGLE
        ),
    ),
    "FilterObservation": (Parts, lambda env, tmp: wrappers.FilterObservation(env, ["step"])),
    "FlattenObservation": (Parts, lambda env, tmp: wrappers.FlattenObservation(env)),
    "GrayscaleObservation": (Pixels, lambda env, tmp: wrappers.GrayscaleObservation(env)),
    "ResizeObservation": (Pixels, lambda env, tmp: wrappers.ResizeObservation(env, (6, 4))),
    "ReshapeObservation": (Pixels, lambda env, tmp: wrappers.ReshapeObservation(env, (8, 36))),
    "RescaleObservation": (
        Counter,
        lambda env, tmp: wrappers.RescaleObservation(
            env, np.zeros(2, np.float32), np.ones(2, np.float32)
        ),
    ),
    "DtypeObservation": (Pixels, lambda env, tmp: wrappers.DtypeObservation(env, np.int32)),
    "TransformAction": (Pixels, lambda env, tmp: wrappers.TransformAction(env, halves)),
    "VectorizeTransformAction": (
        Pixels,
        lambda env, tmp: wrappers.VectorizeTransformAction(
            env, gymnasium.wrappers.TransformAction, func=halves, action_space=Pixels.action_space
        ),
    ),
    "ClipAction": (Pixels, lambda env, tmp: wrappers.ClipAction(env)),
    "RescaleAction": (
        Pixels,
        lambda env, tmp: wrappers.RescaleAction(env, np.float32(-2), np.float32(2)),
    ),
    "TransformReward": (Counter, lambda env, tmp: wrappers.TransformReward(env, halves)),
    "VectorizeTransformReward": (
        Counter,
        lambda env, tmp: wrappers.VectorizeTransformReward(
            env, gymnasium.wrappers.TransformReward, func=halves
        ),
    ),
    "ClipReward": (Counter, lambda env, tmp: wrappers.ClipReward(env, -1, 12)),
    "HumanRendering": (Pixels, lambda env, tmp: wrappers.HumanRendering(env)),
    "RecordVideo": (
        Pixels,
        lambda env, tmp: wrappers.RecordVideo(env, str(tmp), step_trigger=lambda k: k == 0),
    ),
    "NumpyToTorch": (Counter, lambda env, tmp: wrappers.NumpyToTorch(env)),
}
# What Gymnasium itself refuses in same-step mode, where a terminal observation would escape the
# wrapper; PyTorch's has no form for the object array that final_obs is.
NEXT_STEP_ONLY = {name for name in WRAPPERS if "Observation" in name} | {"NumpyToTorch"}
REFUSALS = (ValueError, TypeError, BufferError, AssertionError)
NEEDS = {"HumanRendering": "pygame", "RecordVideo": "moviepy", "NumpyToTorch": "array_api_compat"}
# Take arrays of JAX's, which ours are not.
OTHERS = {
    "JaxToNumpy",
    "JaxToTorch",
    "NumpyToJax",
    "ArrayConversion",
}


def test_every_vector_wrapper_of_gymnasiums_is_tried():
    assert set(wrappers.__all__) <= set(WRAPPERS) | OTHERS


def plain(value):
    """Tensors as arrays, and times left out, to be compared."""
    if isinstance(value, dict):
        return {key: plain(member) for key, member in value.items() if key != "t"}
    if isinstance(value, (list, tuple)):
        return type(value)(map(plain, value))
    return np.asarray(value) if type(value).__module__ == "torch" else value


def run(env, kind):
    """What 14 steps give, with some ends."""
    rng = np.random.default_rng(1)
    results = [plain(env.reset(seed=1))]
    for _ in range(14):
        actions = (
            rng.uniform(-1, 1, (3, 2)).astype(np.float32) if kind is Pixels else np.array([0, 1, 2])
        )
        if "Torch" in repr(env):
            import torch

            actions = torch.as_tensor(actions)
        results.append(plain(env.step(actions)))
    env.close()
    return results


@pytest.mark.filterwarnings(
    "ignore:.*Recorded episodes will not contain the last frame"
)  # of RecordVideo, same-step
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_does_around_ours_what_it_does_around_gymnasiums_own(
    name, mode, tmp_path, monkeypatch
):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    kind, wrap = WRAPPERS[name]
    lengths = [4, 6, 3]
    factories = [lambda length=length: kind(length, truncate=length == 6) for length in lengths]
    ours = vecwrap.build(factories, backend="dummy", autoreset=mode)
    theirs = SyncVectorEnv(factories, autoreset_mode=ours.metadata["autoreset_mode"])
    outcomes = []
    for env, folder in ((theirs, tmp_path / "theirs"), (ours, tmp_path / "ours")):
        try:
            wrapped = wrap(env, folder)
            spaces = (
                wrapped.observation_space,
                wrapped.single_observation_space,
                wrapped.action_space,
            )
            outcomes.append((spaces, run(wrapped, kind)))
        except REFUSALS as error:
            assert mode == "same_step"
            outcomes.append(type(error))
            env.close()
    assert (outcomes[0] in REFUSALS) is (mode == "same_step" and name in NEXT_STEP_ONLY), outcomes[
        0
    ]
    assert data_equivalence(*outcomes), f"{name} in {mode} mode"
    if name == "RecordVideo":
        videos = [
            sorted((path.name, path.stat().st_size) for path in folder.iterdir())
            for folder in tmp_path.iterdir()
        ]
        assert videos[0] == videos[1]
        assert videos[0]


OLD = tuple(map(int, gymnasium.__version__.split(".")[:2])) < (1, 4)


@pytest.mark.parametrize(
    "mode",
    [
        "next_step",
        pytest.param(
            "same_step",
            marks=pytest.mark.skipif(OLD, reason="Gymnasium's is one step short before 1.4"),
        ),
    ],
)
def test_record_episode_statistics_says_what_the_monitor_says(mode):
    env = vecwrap.build(
        "CartPole-v1", n=3, wrappers=["monitor:stats_key=game"], backend="dummy", autoreset=mode
    )
    env = wrappers.RecordEpisodeStatistics(env)
    env.reset(seed=1)
    env.action_space.seed(1)
    ended = 0
    for _ in range(200):
        *_, infos = env.step(env.action_space.sample())
        if "game" in infos:
            ended += infos["_game"].sum()
            assert (infos["_game"] == infos["_episode"]).all()
            for key in "rl":
                assert (infos["game"][key] == infos["episode"][key]).all()
    env.close()
    assert ended > 10


@pytest.mark.skipif(OLD, reason="Gymnasium's own statistics cannot be made a list before 1.4")
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_infos_as_a_list_hold_what_the_dict_holds(mode):
    env = vecwrap.build(Counter, n=2, wrappers=["monitor"], backend="dummy", autoreset=mode)
    env = wrappers.DictInfoToList(env)
    assert env.reset(seed=1)[1] == [{"began": 1}, {"began": 1}]
    for _ in range(4):
        *_, infos = env.step([0, 1])
    assert [info["episode"]["l"] for info in infos] == [4, 4]
    last = [info["final_info"] if mode == "same_step" else info for info in infos]
    assert [info["action"] for info in last] == [0, 1]
    env.close()


# -- what Gymnasium's own tests expect of its vector environments ----------------------------------

BACKENDS = [
    {"backend": "dummy"},
    {"backend": "subprocess", "workers": 2},
    {"backend": "shmem", "workers": 2},
]


@pytest.fixture(params=BACKENDS, ids=lambda settings: settings["backend"])
def backend(request):
    return request.param


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_equal_to_gymnasiums_own_to_the_last_type(mode, backend):
    ours = vecwrap.build("CartPole-v1", n=4, autoreset=mode, **backend)
    factories, mode = [lambda: gymnasium.make("CartPole-v1")] * 4, ours.metadata["autoreset_mode"]
    peers = [SyncVectorEnv(factories, autoreset_mode=mode)]
    if ours.backend == "dummy":
        peers.append(AsyncVectorEnv(factories, autoreset_mode=mode, context="spawn"))
    found = stream(ours, steps=100, seed=0)
    for peer in peers:
        assert data_equivalence(stream(peer, steps=100, seed=0), found, exact=True)


def test_seeds_and_generators_of_the_sub_environments(backend):
    env = vecwrap.build("CartPole-v1", n=4, **backend)
    assert len(set(env.np_random_seed)) == 4
    env.reset(seed=42)
    assert env.np_random_seed == (42, 43, 44, 45)
    env.reset()
    assert env.np_random_seed == (42, 43, 44, 45)
    assert all(isinstance(generator, np.random.Generator) for generator in env.np_random)
    env.close()


def test_rendering_calling_and_setting(backend):
    env = vecwrap.build(Pixels, n=3, **backend)
    env.reset()
    frames = env.render()
    assert isinstance(frames, tuple)
    assert [frame.shape for frame in frames] == [(48, 32, 3)] * 3
    assert env.call("length") == (4, 4, 4)
    env.set_attr("length", [5, 6, 7])
    assert env.get_attr("length") == (5, 6, 7)
    assert env.call("_observation")[0].shape == (12, 8, 3)
    env.close()
    assert env.closed


def test_spaces_that_differ_are_refused(backend):
    factories = [lambda: gymnasium.make("CartPole-v1"), lambda: gymnasium.make("FrozenLake-v1")]
    with pytest.raises(RuntimeError):
        vecwrap.build(factories, **backend)


def test_partial_resets_show_the_other_rows_as_they_were(backend):
    env = vecwrap.build("CartPole-v1", n=3, autoreset="disabled", **backend)
    first, _ = env.reset(seed=[0, 1, 2])
    for _ in range(3):
        stepped, *_ = env.step(np.array([0, 1, 0]))
    observations, _ = env.reset(
        seed=[0, 1, 0], options={"reset_mask": np.array([True, True, False])}
    )
    assert (observations[:2] == first[:2]).all()
    assert (observations[2] == stepped[2]).all()
    env.close()


def test_wrappers_are_gymnasiums_own_and_refused():
    with pytest.raises(
        SpecError, match="register: wrappers: gymnasium.make_vec takes them for its own"
    ):
        vecwrap.register(ID, "CartPole-v1", wrappers=["monitor"])
