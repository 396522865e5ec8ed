"""``to_torch`` on the CPU: beside NumPy's environment on the same stream, bit for bit."""

import sys
from copy import deepcopy
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import create_empty_array

import vecwrap
from tests.helpers.torch_arrays import OfNumpy, OfTensors, expected
from vecwrap.errors import ArgumentError, PlanError, ResetNeededError, SpecError, SubEnvError
from vecwrap.rows.compare import assert_same
from vecwrap.testing import ToyEnv, toy
from vecwrap.testing.backends import (
    actions_are_copied_on_send,
    attributes_reach_the_environment,
    calls_out_of_order_raise,
    close_is_idempotent,
    errors_are_isolated,
    failed_start_releases_everything,
    results_are_writable,
    seeds_are_per_sub_environment,
    stepping_an_ended_row_raises,
)
from vecwrap.testing.drive import Lockstep, StepRecorder, assert_kept, drive, on_dummy
from vecwrap.testing.toys import ArrayReusingWrapper

MODES = ("same_step", "next_step", "disabled", "episodic")
FULL = pytest.mark.full
NUMBERS = spaces.Dict(
    camera=spaces.Box(0, 255, (4, 6, 3), np.uint8),
    body=spaces.Tuple(
        (spaces.Box(-1, 1, (2,), np.float64), spaces.Discrete(4, start=-2), spaces.MultiBinary(3))
    ),
    depth=spaces.Box(0, 65535, (2, 2), np.uint16),
    inner=spaces.Dict(height=spaces.Box(-1, 1, (), np.float32)),
)


class Nested(ToyEnv):
    """Dicts and tuples within each other, with leaves of many dtypes."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.observation_space = NUMBERS
        self._drawn = deepcopy(NUMBERS)


FACTORIES = {
    "nested": partial(Nested, end=0.1),
    "tuple": toy(observations="tuple", end=0.1),
    "images": toy(observations="box_uint8", end=0.1),
    "float64": toy(observations="box_float64", actions="tuple", end=0.1),
    "scalar": toy(observations="box_scalar", actions="dict", end=0.1),
    "discrete": toy(observations="discrete", actions="multi_discrete", end=0.1),
}


def pair(factories, device="cpu", dtype="float32", **options):
    """NumPy's environment and that of tensors, over the same sub-environments."""
    given, other = (on_dummy(factories, **options) for _ in range(2))
    return OfNumpy(given), OfTensors(vecwrap.to_torch(other, device, dtype))


# -- the same stream -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        pytest.param(kind, mode, marks=() if kind == "nested" or mode == "same_step" else FULL)
        for kind in FACTORIES
        for mode in MODES
    ],
)
def test_values_and_dtypes_are_those_of_numpys_environment(kind, mode):
    ours, theirs = pair([FACTORIES[kind]] * 3, autoreset=mode)
    with ours, theirs:
        met = drive(Lockstep(ours, theirs), 80, seed=1, unrest=2.0, parts=0.3)
    assert min(met.values()) >= 3  # ends of both kinds


@pytest.mark.parametrize("actions", ["box_float32", "discrete", "dict", "tuple", "multi_binary"])
def test_actions_are_tensors_of_every_space(actions):
    def batched(each):
        return gymnasium.vector.utils.concatenate(space, each, create_empty_array(space, len(each)))

    ours, theirs = pair([toy(observations="box_float32", actions=actions)] * 3)
    space = ours.single_action_space
    theirs.batched = batched
    with ours, theirs:
        drive(Lockstep(ours, theirs), 40, seed=2, parts=0.3)


def test_workers_and_batches_of_those_that_are_ready():
    with vecwrap.to_torch(
        vecwrap.build("CartPole-v1", n=3, backend="shmem", workers=1, batch_size=2)
    ) as env:
        env.reset(seed=1)
        env.send(torch.zeros(3, dtype=torch.int64))
        for _ in range(5):
            observations, rewards, *_, infos = env.recv()
            assert observations.shape == (2, 4)
            assert rewards.tolist() == [1.0, 1.0]
            env.send(torch.ones(2, dtype=torch.int64), env_ids=infos["env_id"])
        assert env.num_workers == 1


def test_floats_keep_their_dtype_if_none_is_given_and_have_another_on_request():
    for dtype, seen in ((None, torch.float64), ("float64", torch.float64)):
        ours, theirs = pair([FACTORIES["float64"]] * 2, dtype=dtype)
        ours.floats = None if dtype is None else np.dtype(dtype)
        with ours, theirs:
            drive(Lockstep(ours, theirs), 20, seed=3)
            assert theirs.env.reset()[0].dtype is seen
    ours, theirs = pair([FACTORIES["scalar"]] * 2, dtype=None)
    with ours, theirs:
        observations, _ = theirs.env.reset()
        _, rewards, *_ = theirs.env.step(theirs.env.action_space.sample())
        assert (observations.dtype, rewards.dtype) == (torch.float32, torch.float64)
    for dtype in (torch.float64, np.float64, np.dtype("float64")):
        with vecwrap.to_torch(on_dummy([toy()]), dtype=dtype) as env:
            assert env.reset()[0].dtype is torch.float64


class Failing(ToyEnv):
    """Raises now and then, by its own generator."""

    def step(self, action):
        if self.np_random.random() < 0.1:
            raise RuntimeError("as drawn")
        return super().step(action)


@pytest.mark.parametrize("mode", MODES)
def test_rows_that_are_lost_and_recreated(mode):
    settings = {"on_failure": "restart", "restart_backoff": 0.0, "max_restarts": None}
    build = partial(
        vecwrap.build, partial(Failing, end=0.05), n=3, backend="dummy", autoreset=mode, **settings
    )
    with OfNumpy(build()) as ours, OfTensors(vecwrap.to_torch(build())) as theirs:
        drive(Lockstep(ours, theirs), 80, seed=4, options=False)
        assert ours.env.health().restarts.sum() >= 6
        assert theirs.health().restarts.tolist() == ours.health().restarts.tolist()


def test_several_agents_with_masks_of_legal_moves():
    build = partial(vecwrap.build, "pettingzoo:classic/tictactoe-v3", n=2, backend="dummy")
    with OfNumpy(build()) as ours, OfTensors(vecwrap.to_torch(build())) as theirs:
        lockstep = Lockstep(ours, theirs)
        drive(lockstep, 40, seed=5, options=False, unrest=0.0)
        for name in ("to_move", "alive"):
            assert getattr(theirs, name).tolist() == getattr(ours, name).tolist()
        masks = theirs.action_masks()
        assert masks.dtype is torch.bool
        assert masks.tolist() == ours.action_masks().tolist()
        assert theirs.row_agents.tolist() == ours.row_agents.tolist()


def test_a_chain_of_wrappers_that_give_arrays_that_nobody_may_write():
    build = partial(
        vecwrap.build, "CartPole-v1", n=3, backend="dummy", wrappers=["normalize", "framestack:2"]
    )
    frozen = StepRecorder(build())
    with OfNumpy(build()) as ours, OfTensors(vecwrap.to_torch(frozen)) as theirs:
        drive(Lockstep(ours, theirs), 60, seed=6)
        observations, _ = theirs.env.reset()
        observations += 1  # yours to write


class Mirror(vecwrap.VecEnvWrapper):
    """Looks from the other side: what it returns is a view with a negative stride."""

    def on_observations(self, observations):
        return observations[:, ::-1]


def test_views_that_torch_does_not_take():
    ours = OfNumpy(Mirror(on_dummy([toy()] * 2)))
    theirs = OfTensors(vecwrap.to_torch(Mirror(on_dummy([toy()] * 2)), dtype=None))
    ours.floats = None
    with ours, theirs:
        drive(Lockstep(ours, theirs), 30, seed=7)


# -- the laws --------------------------------------------------------------------------------------


def to_tensors(factories, **options):
    return OfTensors(vecwrap.to_torch(on_dummy(factories, **options), dtype=None))


@pytest.mark.parametrize("kind", ["nested", "float64"])
def test_what_is_returned_is_yours_to_keep(kind):
    assert_kept(to_tensors([FACTORIES[kind]] * 3), 60, kind)


def test_arguments_are_not_modified():
    def scribbling():
        return ArrayReusingWrapper(ToyEnv(actions="box_float32"))

    with vecwrap.to_torch(on_dummy([scribbling] * 2, autoreset="disabled")) as env:
        env.reset(seed=1)
        actions, mask = torch.rand(2, 3), torch.tensor([True, False])
        options = {"reset_mask": mask, "level": [1]}
        before = deepcopy((actions, mask.tolist()))
        for _ in range(3):
            env.step(actions)
            env.reset(options=options)
        assert torch.equal(actions, before[0])
        assert (mask.tolist(), list(options)) == (before[1], ["reset_mask", "level"])
        assert options["reset_mask"] is mask
        assert options["level"] == [1]


@pytest.mark.parametrize(
    "law",
    [
        results_are_writable,
        attributes_reach_the_environment,
        seeds_are_per_sub_environment,
        calls_out_of_order_raise,
        stepping_an_ended_row_raises,
        failed_start_releases_everything,
        close_is_idempotent,
    ],
)
def test_it_keeps_the_laws_of_a_backend(law):
    """Those that ask neither for spaces without an array form nor for ``final_obs`` in objects."""
    law(to_tensors)


def test_an_error_of_one_row_leaves_tensors_of_the_others():
    errors_are_isolated(to_tensors)
    with vecwrap.to_torch(on_dummy([toy()] * 3)) as env:
        env.reset(seed=1)
        env.set_attr("raise_in", "step", indices=1)
        with pytest.raises(SubEnvError) as caught:
            env.step(torch.zeros(3, dtype=torch.int64))
        observations, *_, infos = caught.value.others
        assert isinstance(observations, torch.Tensor)
        assert infos["env_id"].tolist() == [0, 2]
        assert len(caught.traceback) <= 3  # the test, and the call


def test_actions_may_be_written_after_they_are_sent():
    actions_are_copied_on_send(to_tensors)
    with vecwrap.to_torch(on_dummy([toy(actions="box_float32")] * 2)) as env:
        ours = on_dummy([toy(actions="box_float32")] * 2)
        env.reset(seed=1)
        ours.reset(seed=1)
        actions = torch.rand(2, 3)
        given = actions.numpy().copy()
        env.step_async(actions)
        actions.zero_()
        assert_same(expected(ours.step(given))[1], env.step_wait()[1].numpy())


def test_nothing_is_copied_on_the_cpu():
    class Kept(vecwrap.VecEnvWrapper):
        def on_step(self, step):
            self.seen = step

    env = vecwrap.to_torch(Kept(vecwrap.build("CartPole-v1", n=4, backend="dummy")))
    observations, _ = env.reset(seed=1)
    assert observations.data_ptr() == env.find(Kept).seen.observations.ctypes.data
    observations, _, terminations, *_ = env.step(torch.zeros(4, dtype=torch.int64))
    assert observations.data_ptr() == env.find(Kept).seen.observations.ctypes.data
    assert terminations.data_ptr() == env.find(Kept).seen.terminations.ctypes.data
    env.close()


# -- actions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda actions: actions.bfloat16(),
        lambda actions: actions.requires_grad_(),
        lambda actions: torch.nn.Parameter(actions) * 1,
        lambda actions: actions.T.contiguous().T,
        lambda actions: list(actions),
        lambda actions: actions.half().requires_grad_(),
        lambda actions: actions.numpy(),
        lambda actions: actions.tolist(),
    ],
    ids=["bfloat16", "leaf", "gradient", "strides", "list", "half", "numpy", "numbers"],
)
def test_actions_in_any_form(change):
    actions = (torch.arange(6) / 8).reshape(2, 3)  # which bfloat16 has too
    ours, theirs = (on_dummy([toy(actions="box_float32")] * 2) for _ in range(2))
    with ours, vecwrap.to_torch(theirs) as env:
        ours.reset(seed=1)
        env.reset(seed=1)
        theirs_result = env.step(change(actions.clone()))
        assert torch.equal(
            theirs_result[1], torch.from_numpy(ours.step(actions.numpy())[1]).float()
        )
        assert not theirs_result[0].requires_grad


def test_bad_actions_are_refused_before_the_step():
    with vecwrap.to_torch(vecwrap.build("CartPole-v1", n=2, backend="dummy")) as env:
        with pytest.raises(ResetNeededError):
            env.step(torch.zeros(2, dtype=torch.int64))
        env.reset(seed=1)
        with pytest.raises(ArgumentError, match=r"expected shape \(2,\)"):
            env.step(torch.zeros(3, dtype=torch.int64))
        with pytest.raises(ArgumentError, match="expected dtype int64"):
            env.step(torch.zeros(2))
        with pytest.raises(ArgumentError, match="expected tensors that have an array form"):
            env.step(torch.zeros(2, dtype=torch.int64).to_sparse())
        with pytest.raises(ArgumentError, match="reset_mask"):
            env.reset(options={"reset_mask": torch.zeros(3, dtype=torch.bool)})
        assert env.step(torch.zeros(2, dtype=torch.int64))[1].tolist() == [1.0, 1.0]


# -- a VecEnv --------------------------------------------------------------------------------------


def test_it_is_a_vec_env_with_the_chain_of_what_it_converts(tmp_path):
    inner = vecwrap.build(
        ToyEnv, n=2, backend="dummy", wrappers=["normalize", "monitor"], seed=1,
    )  # fmt: skip
    env = vecwrap.to_torch(inner)
    assert isinstance(env, gymnasium.vector.VectorEnv)
    assert repr(env) == f"{repr(inner)[:-1]}, tensors on cpu>"
    assert env.pipeline is inner.pipeline
    assert env.chain == inner.chain
    assert env.find(vecwrap.wrappers.monitor.Monitor) is inner
    assert env.spec is inner.spec
    env.reset()
    env.step(torch.ones(2, dtype=torch.int64))
    assert env.get_original_obs().dtype is torch.float32
    assert env.get_original_reward().tolist() == pytest.approx(inner.get_original_reward())
    env.set_attr("bonus", [1.0, 2.0])
    assert env.get_attr("bonus", indices=[1]) == (2.0,)
    assert env.call("greet", "you", indices=0) == ("hello you 1",)
    assert env.eval().training is inner.training is False
    assert env.train().training is inner.training is True
    assert env.save(tmp_path / "state.npz")
    later = vecwrap.build(inner.pipeline)
    later.load(tmp_path / "state.npz")
    actions = torch.tensor([0, 1])
    assert_same(expected(later.step(actions.numpy()))[0], env.step(actions)[0].numpy())
    shared = vecwrap.build(ToyEnv, n=1, wrappers=["normalize"], stats=env, backend="dummy")
    for each in (shared, later, env):
        each.close()
    assert inner.closed
    assert env.closed


def test_pictures_are_those_of_what_it_converts():
    inner = on_dummy([toy(render_mode="rgb_array")] * 2)
    with vecwrap.to_torch(inner) as env:
        env.reset(seed=1)
        assert_same(inner.picture(), env.picture())
        assert_same(inner.render(), env.render())
        assert_same(inner.get_images([1]), env.get_images(torch.tensor([1])))


def test_an_evaluation_is_that_of_numpys_environment_and_gives_the_policy_tensors():
    def make():
        return vecwrap.build("CartPole-v1", n=3, wrappers=["normalize"], backend="dummy", seed=1)

    def fall(observations, *, infos):
        return (observations[:, 2] > 0).astype(np.int64)

    def fall_in_torch(observations, *, infos):
        assert observations.dtype is torch.float32
        assert infos == {} or isinstance(infos["_vecwrap.evaluate"], torch.Tensor)
        return (observations[:, 2] > 0).long(), {"value": observations.sum(1)}

    class Recurrent:
        def __call__(self, observations, *, state, episode_start, deterministic):
            assert episode_start.dtype is torch.bool
            state = torch.where(episode_start, 0, state if state is not None else 0) + 1
            return state % 2, state

    class Model:
        def predict(self, observation, state, episode_start, deterministic):
            return fall(np.asarray(observation), infos={}), state

    with make() as ours, vecwrap.to_torch(make()) as env:
        reached = vecwrap.evaluate(ours, fall, 7, seed=3).returns.tolist()
        for policy in (fall_in_torch, Model()):
            env.env.load_state_dict(env.env.state_dict())
            assert vecwrap.evaluate(env, policy, 7, seed=3).returns.tolist() == reached
        assert 8 < vecwrap.evaluate(env, Recurrent(), 6, seed=3).mean < 100


def test_a_policy_of_an_evaluation_gets_its_masks_as_tensors():
    def first_legal(observations, *, action_masks):
        assert action_masks.dtype is torch.bool
        return action_masks.long().argmax(1)

    build = partial(vecwrap.build, "pettingzoo:classic/tictactoe-v3", n=2, backend="dummy")
    with vecwrap.to_torch(build()) as env, build() as ours:
        reached = vecwrap.evaluate(env, first_legal, 8, seed=1)
        beside = vecwrap.evaluate(
            ours, lambda observations, *, action_masks: action_masks.argmax(1), 8, seed=1
        )
        assert reached.returns.tolist() == beside.returns.tolist()


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("observations", "actions", "place"),
    [
        ("text", "discrete", "observations in Text"),
        ("nested", "discrete", r"observations\['body'\]\['joints'\]\[2\] in Text"),
        ("mixed", "discrete", r"observations\['loose'\]\[0\] in Polylines"),
        ("box_float32", "sequence", "actions in Sequence"),
    ],
)
def test_a_space_without_an_array_form_is_refused_at_once(observations, actions, place):
    env = on_dummy([toy(observations=observations, actions=actions)])
    with env, pytest.raises(PlanError, match=place):
        vecwrap.to_torch(env)


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        ({"device": "gpu"}, ArgumentError, 'such as "cpu" or "cuda:0", got \'gpu\''),
        ({"device": "cuda:99"}, PlanError, 'expected one that is there, such as cpu.*"cuda:99"'),
        ({"dtype": "int64"}, ArgumentError, "expected float32, float64, or None"),
        ({"dtype": torch.bfloat16}, ArgumentError, r"got torch.bfloat16; tensor.to\(dtype\)"),
    ],
)
def test_a_device_or_dtype_that_is_not_there_is_refused_before_the_first_step(
    arguments, kind, said
):
    with on_dummy([toy()]) as env, pytest.raises(kind, match=said):
        vecwrap.to_torch(env, **arguments)


@pytest.mark.filterwarnings("ignore::vecwrap.errors.CastWarning")
def test_a_dtype_that_torch_lacks_is_refused():
    class Long(ToyEnv):
        def __init__(self):
            super().__init__()
            self.observation_space = spaces.Box(-1, 1, (3,), np.longdouble)
            self._drawn = spaces.Box(-1, 1, (3,), np.float64)

    ours, theirs = pair([Long] * 2)
    with ours, theirs:
        drive(Lockstep(ours, theirs), 10, seed=8)
        with pytest.raises(PlanError, match="expected dtypes that PyTorch has, got observations"):
            vecwrap.to_torch(ours.env, dtype=None)


def test_what_does_not_take_tensors_says_so():
    env = vecwrap.to_torch(vecwrap.build("CartPole-v1", n=2, backend="dummy"))
    for refuse in (
        vecwrap.to_sb3,
        vecwrap.to_tianshou,
        vecwrap.to_torch,
        lambda env: vecwrap.wrap(env, ["monitor"]),
        vecwrap.VecEnvWrapper,
    ):
        with pytest.raises(PlanError, match=r"tensors on cpu>; pass the environment inside"):
            refuse(env)
    with pytest.raises(ArgumentError, match="expected a vecwrap environment, got SyncVectorEnv"):
        vecwrap.to_torch(gymnasium.make_vec("CartPole-v1", num_envs=1, vectorization_mode="sync"))
    env.close()


@pytest.mark.parametrize("key", ["device", "framework"])
def test_a_pipeline_has_no_device_and_says_what_has(key, tmp_path):
    file = tmp_path / "pipeline.yaml"
    file.write_text(f"env: CartPole-v1\n{key}: cuda\n")
    for build in (
        lambda: vecwrap.build("CartPole-v1", **{key: "cuda"}),
        lambda: vecwrap.build(f"CartPole-v1 {key}=cuda"),
        lambda: vecwrap.load(file),
        lambda: vecwrap.build({"env": "CartPole-v1", key: "cuda"}),
    ):
        with pytest.raises(SpecError, match=rf"{key}: unknown key.*vecwrap\.to_torch\(env"):
            build()


def test_torch_is_asked_for_by_name_where_it_is_missing(monkeypatch):
    with on_dummy([toy()]) as env:
        monkeypatch.setitem(sys.modules, "torch", None)
        with pytest.raises(PlanError, match=r"to_torch needs PyTorch.*pip install .*\[torch\]"):
            vecwrap.to_torch(env)


def test_a_device_without_streams_gets_copies():
    env = vecwrap.to_torch(vecwrap.build("CartPole-v1", n=2, backend="dummy"), device="meta")
    observations, _ = env.reset(seed=1)
    assert (observations.device.type, observations.shape) == ("meta", (2, 4))
    env.close()
