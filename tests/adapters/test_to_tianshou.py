"""``to_tianshou``: what tianshou's collectors put into their buffers, beside tianshou's own
vectors, bit for bit.
"""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation

import vecwrap
from tests.adapters.worlds import Gated, Told
from vecwrap.errors import ArgumentError, PlanError, SubEnvError

algorithm_base = pytest.importorskip("tianshou.algorithm.algorithm_base")
data = pytest.importorskip("tianshou.data")
ts_env = pytest.importorskip("tianshou.env")

pytestmark = [
    pytest.mark.xdist_group("tianshou"),  # which compiles for seconds when it is first used
    pytest.mark.filterwarnings("ignore:.*extra transitions"),
    pytest.mark.filterwarnings("ignore:.*not a multiple"),
]
N = 4


class Rule(algorithm_base.Policy):
    """Acts by the sign of what it sees."""

    def forward(self, batch, state=None, **kwargs):
        seen = batch.obs["at"] if isinstance(batch.obs, data.Batch) else batch.obs
        score = np.asarray(seen, np.float64).reshape(len(seen), -1).sum(axis=1)
        if isinstance(self.action_space, spaces.Box):
            return data.Batch(act=np.sin(score)[:, None].astype(np.float32))
        act = (np.sin(score * 99) > 0).astype(np.int64)
        return data.Batch(act=act, state=data.Batch(score=score))  # AsyncCollector needs a state


def stacked():
    return FrameStackObservation(gymnasium.make("CartPole-v1"), 3, padding_type="zero")


WORLDS = {
    "cartpole": ("CartPole-v1", [], partial(gymnasium.make, "CartPole-v1")),
    "pendulum": (
        "Pendulum-v1",
        ["time_limit:9"],
        partial(gymnasium.make, "Pendulum-v1", max_episode_steps=9),
    ),
    "stacked": ("CartPole-v1", ["framestack:3"], stacked),
    "rooms": (
        "Taxi-v4",
        ["time_limit:20"],
        partial(gymnasium.make, "Taxi-v4", max_episode_steps=20),
    ),
    "dict": (Told, [], Told),
}


def ours(world, backend="dummy", n=N, **settings):
    target, wrappers, _ = WORLDS[world]
    settings = {"wrappers": wrappers, "autoreset": "disabled", "backend": backend, **settings}
    return vecwrap.to_tianshou(vecwrap.build(target, n=n, **settings))


def theirs(world):
    return ts_env.DummyVectorEnv([WORLDS[world][2]] * N)


def collector(venv, kind=None):
    policy = Rule(venv.action_space[0], action_scaling=isinstance(venv.action_space[0], spaces.Box))
    return (kind or data.Collector)(policy, venv, data.VectorReplayBuffer(4000, len(venv)))


def collected(venv, **settings):
    venv.seed(7)
    own = collector(venv)
    own.reset()
    own.collect(n_step=N * 15, **settings)
    own.collect(n_step=N * 15, **settings)
    stats = own.collect(
        n_episode=5,
        reset_before_collect=True,
        gym_reset_kwargs={"options": {"level": 3}},
        **settings,
    )
    rows = own.buffer[own.buffer.sample_indices(0)]
    own.close()
    return rows, stats


def assert_equal_batches(got, expected, path=""):
    if isinstance(expected, data.Batch):
        assert list(got.get_keys()) == list(expected.get_keys()), path
        for key in expected.get_keys():
            assert_equal_batches(got[key], expected[key], f"{path}.{key}")
    else:
        assert (type(got), got.dtype, got.shape) == (
            type(expected),
            expected.dtype,
            expected.shape,
        ), path
        np.testing.assert_array_equal(got, expected, err_msg=path)


@pytest.mark.parametrize(
    ("backend", "random"),
    [
        ("dummy", False),
        *(
            pytest.param(*more, marks=pytest.mark.full)
            for more in (("dummy", True), ("shmem", False))
        ),
    ],
)
@pytest.mark.parametrize("world", WORLDS)
def test_the_buffer_is_that_of_tianshous_own_vector(world, backend, random):
    got, stats = collected(ours(world, backend), random=random)
    expected, their_stats = collected(theirs(world), random=random)
    assert_equal_batches(got, expected)
    np.testing.assert_array_equal(stats.returns, their_stats.returns)
    np.testing.assert_array_equal(stats.lens, their_stats.lens)
    assert expected.done.sum() > 5


def test_rows_come_in_the_order_in_which_they_were_asked_for():
    ones, others = ours("dict", "shmem"), theirs("dict")
    for venv in (ones, others):
        venv.seed(1)
    for ids in ([3, 0], np.array([1]), 2, None):
        got, expected = ones.reset(ids), others.reset(ids)
        assert_equal_batches(
            data.Batch(obs=got[0], info=got[1]), data.Batch(obs=expected[0], info=expected[1])
        )
        count = N if ids is None else np.size(ids)
        got, expected = (venv.step(np.arange(count) % 2, ids) for venv in (ones, others))
        names = ("obs", "rew", "terminated", "truncated", "info")
        pairs = (dict(zip(names, each, strict=True)) for each in (got, expected))
        assert_equal_batches(*(data.Batch(**each) for each in pairs))
        assert [info["env_id"] for info in got[-1]] == np.atleast_1d(
            np.arange(N) if ids is None else ids
        ).tolist()
    ones.close()
    others.close()


def test_seeds_as_there():
    venv, other = ours("cartpole"), theirs("cartpole")
    assert venv.seed(5) == other.seed(5) == [[5], [6], [7], [8]]
    assert [space.sample() for space in venv.action_space] == [
        space.sample() for space in other.action_space
    ]
    assert venv.seed([4, 4, 9, 1]) == [[4], [4], [9], [1]]
    assert venv.seed() == [None] * N
    # One seed for all of them.
    np.testing.assert_array_equal(venv.reset(seed=3)[0], other.reset(seed=3)[0])
    np.testing.assert_array_equal(venv.reset([1, 2], seed=4)[0], other.reset([1, 2], seed=4)[0])
    with pytest.raises(
        ArgumentError, match="reset: expected seed and options, got level; Gymnasium has only these"
    ):
        venv.reset(level=1)
    venv.close()
    other.close()


def test_what_else_a_base_vector_env_has():
    venv = ours("cartpole", "shmem", wrappers=["framestack:2"], render_mode="rgb_array")
    assert isinstance(venv, ts_env.BaseVectorEnv)
    assert (len(venv), venv.env_num, venv.is_async, venv.wait_num, venv.timeout) == (
        N,
        N,
        False,
        N,
        None,
    )
    assert [space.shape for space in venv.observation_space] == [(2, 4)] * N
    assert venv.spec[0].id == "CartPole-v1"
    assert venv.metadata[0]["render_fps"] == 50
    assert venv.get_env_attr("gravity") == [9.8] * N
    venv.set_env_attr("gravity", 3.0, [1, 3])
    assert venv.get_env_attr("gravity", id=[3, 0]) == [3.0, 9.8]
    assert venv.get_env_attr("gravity", 1) == [3.0]
    with pytest.raises(SubEnvError, match="nothing_of_the_kind"):
        venv.get_env_attr("nothing_of_the_kind")
    venv.reset()
    assert len(venv.render()) == N
    with pytest.raises(
        ArgumentError, match="step: action: expected an action for each of the rows, got None"
    ):
        venv.step(None)
    assert repr(venv).startswith("<to_tianshou of <VecEnv CartPole-v1, n=4, shmem")
    assert not venv.is_closed
    venv.close()
    venv.close()
    assert venv.is_closed
    assert venv.vecwrap_env.closed


def test_tianshous_own_wrapper_around_it():
    ones, others = (ts_env.VectorEnvNormObs(make("cartpole")) for make in (ours, theirs))
    for venv in (ones, others):
        venv.seed(2)
    np.testing.assert_array_equal(ones.reset()[0], others.reset()[0])
    np.testing.assert_array_equal(ones.step([1] * N)[0], others.step([1] * N)[0])
    ones.close()
    others.close()


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("backend", ["dummy", "shmem"])
def test_asynchronous_rows_are_those_that_each_environment_gives(backend, copy):
    """Every row of the buffer follows from the one before it by the action between them, and none
    is lost.
    """
    venv = ours("cartpole", backend, batch_size=2, copy=copy)
    assert (venv.is_async, venv.wait_num) == (True, 2)
    venv.seed(7)
    own = collector(venv, data.AsyncCollector)
    own.reset()
    own.collect(n_step=100)
    own.collect(n_step=101)
    own.reset(reset_buffer=False)  # in the middle of episodes, and with rows still out
    own.collect(n_episode=8)
    for i, buffer in enumerate(own.buffer.buffers):
        env = gymnasium.make("CartPole-v1")
        env.reset(seed=7 + i)
        expected, _ = env.reset()
        rows, restarts, over = buffer[buffer.sample_indices(0)], 0, False
        for row in rows:
            if over:
                expected, _ = env.reset()
            # After that `reset`: of an episode, or of one just begun.
            if not np.array_equal(row.obs, expected):
                restarts += 1
                expected, _ = env.reset()
            np.testing.assert_array_equal(row.obs, expected)
            expected, reward, terminated, truncated, _ = env.step(int(row.act))
            np.testing.assert_array_equal(row.obs_next, expected)
            assert (row.rew, row.terminated, row.truncated) == (reward, terminated, truncated)
            assert row.info.env_id == i
            over = terminated or truncated
        assert len(rows) > 30
        assert restarts <= 1
        env.close()
    own.close()


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.parametrize("kind", ["ours", "ours of two", "theirs"])
def test_past_the_timeout_a_step_returns_the_rows_that_have_arrived(kind, tmp_path):
    gates = [tmp_path / str(i) for i in range(3)]
    makers = [partial(Gated, gate) for gate in gates]
    wait_num = 2 if kind == "ours of two" else 3
    if kind == "theirs":
        venv = ts_env.SubprocVectorEnv(makers, wait_num=wait_num, timeout=0.1)
    else:
        settings = {"backend": "subprocess", "workers": 3, "autoreset": "disabled"}
        batch_size = None if wait_num == 3 else wait_num
        venv = vecwrap.to_tianshou(
            vecwrap.build(makers, batch_size=batch_size, **settings), timeout=0.1
        )
    assert (venv.is_async, venv.wait_num, venv.timeout) == (True, wait_num, 0.1)
    venv.reset()
    gates[1].touch()
    observations, rewards, *_, infos = venv.step(np.array([0, 1, 0]), id=[0, 1, 2])
    assert (observations.tolist(), rewards.tolist()) == ([[1]], [1])
    assert ([info["env_id"] for info in infos], sorted(venv.waiting_id)) == ([1], [0, 2])
    # Goes on meanwhile.
    assert [info["env_id"] for info in venv.step(np.array([1]), id=[1])[-1]] == [1]
    gates[0].touch()
    gates[2].touch()
    others = []
    while len(others) < 2:
        others += [info["env_id"] for info in venv.step(None)[-1]]
    assert sorted(others) == [0, 2]
    assert sorted(venv.ready_id) == [0, 1, 2]
    venv.close()


@pytest.mark.parametrize("timeout", [0, -1, "1", True])
def test_a_timeout_that_is_none_is_refused(timeout):
    with (
        vecwrap.build("CartPole-v1", n=1, backend="dummy", autoreset="disabled") as env,
        pytest.raises(
            ArgumentError,
            match="to_tianshou: timeout: expected a positive number of seconds, or None, got",
        ),
    ):
        vecwrap.to_tianshou(env, timeout=timeout)


def test_a_timeout_in_which_all_rows_arrive_changes_no_row():
    venv, peer = ours("cartpole"), ours("cartpole")
    timed = vecwrap.to_tianshou(venv.vecwrap_env, timeout=60)
    for each in (timed, peer):
        each.seed(3)
        each.reset()
    for _ in range(5):
        expected, got = peer.step([0, 1, 0, 1]), timed.step([0, 1, 0, 1])
        for one, other in zip(expected[:4], got[:4], strict=True):
            np.testing.assert_array_equal(one, other)
    for each in (timed, peer):
        each.close()


def test_what_it_cannot_be_made_of():
    with (
        vecwrap.build("CartPole-v1", n=1, backend="dummy") as env,
        pytest.raises(
            PlanError,
            match=r"expected an environment in disabled mode.*same_step; build it with auto",
        ),
    ):
        vecwrap.to_tianshou(env)
    with pytest.raises(
        ArgumentError, match="to_tianshou: expected a vecwrap environment, got DummyVectorEnv"
    ):
        vecwrap.to_tianshou(theirs("cartpole"))
    with (
        vecwrap.build("Blackjack-v1", n=1, backend="dummy", autoreset="disabled") as env,
        pytest.raises(
            PlanError, match=r"tianshou has no Tuple spaces, got Tuple\(.*; the wrapper flatten"
        ),
    ):
        vecwrap.to_tianshou(env)
