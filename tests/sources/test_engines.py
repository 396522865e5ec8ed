"""Engines: vector environments that step several rows at once, in this process, in threads and in
workers.
"""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import vecwrap
from tests.helpers.backends import DummyBackend, ShmemBackend, SubprocessBackend, ThreadsBackend
from vecwrap.backends.dummy import Dummy
from vecwrap.backends.local import LocalRows
from vecwrap.env.backend import Backend
from vecwrap.errors import ArgumentError, BackendError, PlanError, ResetNeededError, SubEnvError
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.rows.compare import assert_same
from vecwrap.sources.source_factories import EngineFactory
from vecwrap.testing import toy
from vecwrap.testing.toys import OpenResources, assert_nothing_left

BACKENDS = {
    "dummy": DummyBackend,
    "threads": partial(ThreadsBackend, workers=2),
    "shmem": partial(ShmemBackend, workers=2),
    "shmem, one worker": partial(ShmemBackend, workers=1),
    "shmem, parent's share": partial(ShmemBackend, workers=1, parent_share=True),
    "subprocess": partial(SubprocessBackend, workers=2),
}
K = 3


@pytest.fixture(params=BACKENDS)
def backend(request):
    return BACKENDS[request.param]


def parts(make, number=2, rows=K):
    return [EngineFactory(make, rows)] * number


def sync(kind, mode):
    return SyncVectorEnv([kind] * K, autoreset_mode=mode)


class Told(gymnasium.Env):
    """Ends after a number of steps, and tells numbers and words of each."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.length = 0, int(self.np_random.integers(2, 6))
        return np.array([self.np_random.random(), 0.0]), {"length": self.length, "word": "begun"}

    def step(self, action):
        self.steps += 1
        seen = np.array([self.np_random.random(), self.steps])
        return (
            seen,
            float(action),
            self.steps >= self.length,
            False,
            {"steps": self.steps, "deep": {"odd": self.steps % 2}},
        )

    def fail(self):
        raise RuntimeError("as asked")


@pytest.mark.parametrize("mode", AutoresetMode)
def test_rows_are_those_of_the_engines_side_by_side(backend, mode):
    """Observations, rewards, flags, infos, terminal ones: two of Gymnasium's Sync, against them by
    themselves.
    """
    twins = [sync(Told, mode) for _ in range(2)]
    with backend(parts(partial(sync, Told, mode)), autoreset=mode) as env:
        observations, infos = env.reset(seed=7)
        each = [twin.reset(seed=7 + K * i) for i, twin in enumerate(twins)]
        assert_same(np.concatenate([one[0] for one in each]), observations)
        assert_same([info for _, info in each for info in rows_of(info)], rows_of(infos, 2 * K))
        rng, ends = np.random.default_rng(1), 0
        for _ in range(40):
            actions = rng.integers(0, 3, 2 * K)
            got = env.step(actions)
            each = [
                twin.step(part)
                for twin, part in zip(twins, (actions[:K], actions[K:]), strict=True)
            ]
            first = np.concatenate([info.get("_length", np.zeros(K, bool)) for *_, info in each])
            for part in range(4):
                expected = np.concatenate([one[part] for one in each])
                if part == 1 and mode is AutoresetMode.NEXT_STEP:
                    expected = np.where(first, 0.0, expected)
                assert_same(expected, got[part])
            assert_same(
                [info for *_, info in each for info in rows_of(info)], rows_of(got[4], 2 * K)
            )
            over = got[2] | got[3]
            ends += over.sum()
            if mode is AutoresetMode.DISABLED and over.any():
                env.reset(options={"reset_mask": over})
                for twin, part in zip(twins, (over[:K], over[K:]), strict=True):
                    if part.any():
                        twin.reset(options={"reset_mask": part})
        assert ends > 20
    for twin in twins:
        twin.close()


def rows_of(infos, number=K):
    """Infos row by row, numbers as floats: a column's dtype goes by the rows that come together."""
    return [dict(sorted(_row(infos, i).items())) for i in range(number)]


def _row(infos, i):
    row = {}
    for key, column in infos.items():
        mask = infos.get(f"_{key}")
        if mask is None or not mask[i]:
            continue
        if isinstance(column, dict):
            row[key] = _row(column, i)
        else:
            row[key] = float(column[i]) if np.asarray(column).dtype.kind in "biuf" else column[i]
    return row


def test_two_cartpole_engines_of_128_rows_in_two_shmem_workers_under_every_kind_of_wrapper():
    wrappers = ["clip_reward", "framestack:2", "normalize", "time_aware:limit=500", "monitor"]
    settings = {
        "n": 256,
        "envs_per_engine": 128,
        "autoreset": "next_step",
        "wrappers": wrappers,
        "seed": 3,
    }
    with (
        vecwrap.build("CartPole-v1", backend={"name": "shmem", "workers": 2}, **settings) as env,
        vecwrap.build("CartPole-v1", backend="dummy", **settings) as twin,
    ):
        assert [len(worker.env_ids) for worker in env.health().workers] == [128, 128]
        assert_same(twin.reset(), env.reset())
        rng = np.random.default_rng(0)
        for _ in range(60):
            actions = rng.integers(0, 2, 256)
            expected, got = twin.step(actions), env.step(actions)
            for infos in (expected[4], got[4]):
                infos.get("episode", {}).pop("t", None)
            assert_same(expected, got)
        assert env.find(vecwrap.VecEnvWrapper).episode_count > 100


def test_one_engine_can_be_stepped_while_the_other_waits(backend):
    with backend(parts(partial(CartPoleVectorEnv, K)), autoreset="next_step") as env:
        env.reset(seed=1)
        env.send([1] * K, env_ids=range(K, 2 * K))
        observations, *_, infos = env.recv()
        assert infos["env_id"].tolist() == list(range(K, 2 * K))
        assert observations.shape == (K, 4)
        with pytest.raises(
            ArgumentError, match=r"CartPoleVectorEnv: expected all 3 rows of an engine or none"
        ):
            env.send([1, 1], env_ids=[0, 1])
        with pytest.raises(ArgumentError, match="not known to honour options"):
            env.reset(options={"reset_mask": np.arange(2 * K) == 1})
        env.reset(options={"reset_mask": np.arange(2 * K) < K})
        env.step([0] * 2 * K)


@pytest.mark.parametrize("engines", [1, 2])
def test_with_a_batch_size_engines_arrive_as_they_are_done(backend, engines):
    """Each engine's rows are those of the bare engine, stepped as often."""
    if backend is BACKENDS["shmem, parent's share"]:
        pytest.skip("a share of the parent's does not go with batch_size")
    actions = np.random.default_rng(2).integers(0, 2, size=(30, 4, K))
    expected = []
    for number in range(4):
        bare = CartPoleVectorEnv(K)
        expected.append([bare.reset(seed=7 + K * number)[0]])
        expected[-1] += [bare.step(row)[0].copy() for row in actions[:, number]]
    factories = parts(partial(CartPoleVectorEnv, K), 4)
    with backend(factories, autoreset="next_step", batch_size=engines * K) as env:
        env.reset(seed=7)
        env.send(actions[0].ravel())
        steps = np.ones(4, dtype=int)
        while steps.max() < 30:
            observations, *_, infos = env.recv()
            came = infos["env_id"][::K] // K
            assert len(came) == engines
            np.testing.assert_array_equal(
                observations, np.concatenate([expected[i][steps[i]] for i in came])
            )
            env.send(actions[steps[came], came].ravel(), env_ids=infos["env_id"])
            steps[came] += 1


def test_calls_reach_each_sub_environment_once(backend):
    with backend(parts(partial(sync, toy(), AutoresetMode.SAME_STEP))) as env:
        env.reset(seed=1)
        env.set_attr("bonus", [float(i) for i in range(2 * K)])
        assert env.get_attr("bonus") == tuple(map(float, range(2 * K)))
        assert env.get_attr("bonus", indices=[4]) == (4.0,)
        assert len(env.call("greet", "you")) == 2 * K
        with pytest.raises((AttributeError, SubEnvError)):
            env.get_attr("nothing_of_the_kind")
        state = env.state_dict()
        assert state["sub_envs"] is None
        assert "does not expose" in state["sub_envs_missing"]


class Breaks(CartPoleVectorEnv):
    broken = 0

    def step(self, actions):
        if (actions > 0).all():
            raise RuntimeError("as asked")
        return super().step(actions)


def test_an_engine_that_raises_takes_its_rows_and_no_others(backend):
    with backend(parts(partial(Breaks, K)), autoreset="next_step") as env:
        env.reset(seed=1)
        with pytest.raises(
            SubEnvError,
            match=(
                r"sub-environment 3 .*rows of its Breaks, which raised RuntimeError in "
                r"step(.|\n)*all 3"
            ),
        ) as told:
            env.step([0] * K + [1] * K)
        assert [error.index for error in told.value.failures] == [3, 4, 5]
        assert told.value.others[4]["env_id"].tolist() == [0, 1, 2]
        env.reset(options={"reset_mask": np.arange(2 * K) >= K})
        env.step([0] * 2 * K)


class Says(gymnasium.Env):
    """What it was last asked to do, as a text and a number."""

    observation_space = spaces.Dict(
        word=spaces.Text(8), number=spaces.Box(-1, 99, (1,), np.float32)
    )
    action_space = spaces.Discrete(100)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"word": "reset", "number": np.zeros(1, np.float32)}, {}

    def step(self, action):
        return (
            {"word": f"a{action}", "number": np.array([action], np.float32)},
            0.0,
            False,
            False,
            {},
        )


@pytest.mark.parametrize("rows", [1, 3])
def test_texts_and_actions_are_those_of_their_rows(backend, rows):
    make = partial(SyncVectorEnv, [Says] * rows, autoreset_mode=AutoresetMode.NEXT_STEP)
    with backend(parts(make, number=6 // rows, rows=rows), autoreset="next_step") as env:
        assert list(env.reset(seed=1)[0]["word"]) == ["reset"] * 6
        for start in (10, 20):
            actions = np.arange(start, start + 6)
            observations = env.step(actions)[0]
            assert list(observations["word"]) == [f"a{action}" for action in actions]
            assert observations["number"].ravel().tolist() == actions.tolist()
        env.send([7] * 3, env_ids=[5, 3, 4])  # in any order
        observations, *_, infos = env.recv()
        assert sorted(infos["env_id"].tolist()) == [3, 4, 5]
        assert list(observations["word"]) == ["a7"] * 3


def test_an_engine_of_one_row_is_one_too(backend):
    with backend(parts(partial(CartPoleVectorEnv, 1), rows=1), autoreset="next_step") as env:
        env.reset(seed=1)
        assert "does not expose" in env.state_dict()["sub_envs_missing"]
    options = {"n": 2, "envs_per_engine": 1, "autoreset": "next_step", "backend": "dummy"}
    with pytest.raises(PlanError, match="an engine resets its sub-environments itself"):
        vecwrap.build("CartPole-v1", wrappers=[{"seed_each_episode": {"seeds": [1, 2]}}], **options)


def test_waits_bring_whole_engines(backend):
    with backend(parts(partial(CartPoleVectorEnv, K)), autoreset="next_step") as env:
        env.reset(seed=1)
        env.send([0] * 2 * K)
        came = 0
        for _ in range(1000):
            try:
                ids = env.recv(timeout=0.0, min=1)[4]["env_id"]
            except vecwrap.errors.WaitTimeoutError:
                ids = env.recv(min=1)[4]["env_id"]
            assert sorted(ids.tolist()) in ([0, 1, 2], [3, 4, 5], [0, 1, 2, 3, 4, 5])
            came += len(ids)
            if came > 60:
                break
            env.send([0] * len(ids), ids)


class Interrupted(CartPoleVectorEnv):
    def step(self, actions):
        raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["dummy", "shmem, parent's share"])
def test_an_engines_interrupt_is_raised_once(name):
    with BACKENDS[name](parts(partial(Interrupted, K)), autoreset="next_step") as env:
        for seed in (1, 2):
            env.reset(seed=seed)
            env.step_async([0] * 2 * K)
            with pytest.raises(KeyboardInterrupt):
                env.step_wait()
            with pytest.raises(ResetNeededError, match="ended by an interrupt"):
                env.step_wait()


def test_what_an_engine_does_not_have_is_an_argument_error(backend):
    with backend(parts(partial(CartPoleVectorEnv, K)), autoreset="next_step") as env:
        env.reset(seed=1)
        for ask in (
            lambda: env.get_attr("length"),
            lambda: env.set_attr("length", 1.0),
            lambda: env.call("state"),
        ):
            with pytest.raises(ArgumentError, match="CartPoleVectorEnv has no"):
                ask()
        env.step([0] * 2 * K)


class Closes(CartPoleVectorEnv):
    closed_ones = 0

    def close(self, **kwargs):
        type(self).closed_ones += 1


class Notes(AsyncVectorEnv):
    """Writes how it is closed."""

    def __init__(self, file):
        super().__init__([partial(gymnasium.make, "CartPole-v1")] * K)
        self.file = file

    def close(self, **how):
        with self.file.open("a") as file:
            print(how, file=file)
        super().close(**how)


@pytest.mark.parametrize(
    ("name", "terminate", "number"),
    [
        ("dummy", False, 2),
        ("dummy", True, 2),
        ("threads", False, 2),
        ("threads", True, 2),
        ("shmem", False, 2),
        ("shmem, parent's share", False, 2),
        ("shmem, parent's share", True, 1),  # a worker that is terminated closes nothing
        ("subprocess", False, 2),
    ],
)
def test_engines_are_closed_as_whoever_closes_them_says(name, terminate, number, tmp_path):
    # Or they could have no children.
    options = {} if name in ("dummy", "threads") else {"daemon": False}
    env = BACKENDS[name](
        parts(partial(Notes, tmp_path / "closed")), autoreset="next_step", **options
    )
    env.reset(seed=1)
    env.close(timeout=31.0, terminate=terminate)
    assert (
        tmp_path / "closed"
    ).read_text() == f"{{'timeout': 31.0, 'terminate': {terminate}}}\n" * number


class Scattered(Dummy):
    """A runner with a place for each row."""

    def begin(self, context, factories):
        for i, factory in enumerate(factories):
            LocalRows([i], [factory], context.interrupts)


def test_a_runner_that_splits_an_engine_is_told_what_stays_together():
    said = (
        "expected sub-environments 0 to 0 to be all rows of 1 sources of 3, whose rows step "
        "together"
    )
    with pytest.raises(PlanError, match=said):
        Backend(Scattered(), parts(partial(CartPoleVectorEnv, K)), autoreset="next_step")


@pytest.mark.parametrize("settings", [{}, {"autoreset": "next_step"}])
def test_an_engine_that_is_refused_is_closed(settings):
    Closes.closed_ones = 0
    with pytest.raises((PlanError, SubEnvError)):
        DummyBackend(parts(partial(Closes, K + bool(settings))), **settings)
    assert Closes.closed_ones == 1


class Locked(CartPoleVectorEnv):
    def step(self, actions):
        import threading

        return *super().step(actions)[:4], {
            "lock": np.array([threading.Lock()] * self.num_envs, dtype=object)
        }


def test_an_info_that_cannot_be_sent_is_named():
    with BACKENDS["subprocess"](parts(partial(Locked, K)), autoreset="next_step") as env:
        env.reset(seed=1)
        with pytest.raises(SubEnvError, match=r"infos \['lock'\] cannot be sent between processes"):
            env.step([0] * 2 * K)


class Far(CartPoleVectorEnv):
    def step(self, actions):
        observations, *rest = super().step(actions)
        return np.full_like(observations, 1e30), *rest


def test_debug_checks_an_engines_observations(backend):
    with backend(parts(partial(Far, K)), autoreset="next_step", debug=True) as env:
        env.reset(seed=1)
        with pytest.raises(SubEnvError, match="Far: expected observations in Box"):
            env.step([0] * 2 * K)


class RefusesResets(SyncVectorEnv):
    def reset(self, *, seed=None, options=None):
        if options is not None:
            raise RuntimeError("as asked")
        return super().reset(seed=seed)


def test_the_rows_that_were_not_reset_have_not_failed(backend):
    make = partial(RefusesResets, [toy()] * K, autoreset_mode=AutoresetMode.NEXT_STEP)
    with backend(parts(make), autoreset="next_step") as env:
        env.reset(seed=1)
        with pytest.raises(SubEnvError) as told:
            env.reset(options={"reset_mask": np.arange(2 * K) == 1})
        assert [error.index for error in told.value.failures] == [1]
        assert "the other rows" not in str(told.value)


class Misfit(CartPoleVectorEnv):
    """Gives one row too few."""

    def step(self, actions):
        observations, *rest = super().step(actions)
        return observations[:-1], *rest


@pytest.mark.parametrize(
    ("make", "settings", "said"),
    [
        (
            partial(CartPoleVectorEnv, K + 1),
            {"autoreset": "next_step"},
            "expected an engine of 3 rows, got one of 4",
        ),
        (
            partial(CartPoleVectorEnv, K),
            {},
            'declares next_step, expected same_step; set autoreset="next_step"',
        ),
        (
            partial(CartPoleVectorEnv, K),
            {"autoreset": "next_step", "batch_size": 2},
            "batch_size: expected a multiple of 3, the rows of an engine",
        ),
        (toy(), {}, "expected a gymnasium.vector.VectorEnv, got"),
    ],
)
def test_what_does_not_fit_is_refused(backend, make, settings, said):
    before = OpenResources.now()
    with pytest.raises((PlanError, SubEnvError, BackendError)) as told:
        backend(parts(make), **settings)
    assert said in str(told.value)
    assert_nothing_left(before, before)


def test_rows_that_do_not_fit_what_is_declared_are_refused_at_the_first_step(backend):
    with backend(parts(partial(Misfit, K)), autoreset="next_step") as env:
        env.reset(seed=1)
        with pytest.raises(
            SubEnvError, match=r"Misfit: expected observations of shape \(3, 4\)(.|\n)*got \(2, 4\)"
        ):
            env.step([0] * 2 * K)


def pool(num_envs):
    import envpool

    return envpool.make_gymnasium("CartPole-v1", num_envs=num_envs, seed=3)


@pytest.mark.filterwarnings(
    "ignore:EnvPool seeds are fixed", "ignore:.*precision lowered by casting"
)
def test_envpools_infos_stay_columns_across_workers():
    pytest.importorskip("envpool", reason="not in the environment of the lower bounds")
    options = {"n": 8, "envs_per_engine": 4, "autoreset": "next_step"}
    with (
        vecwrap.build(pool, backend={"name": "shmem", "workers": 2}, **options) as env,
        vecwrap.build(pool, backend="dummy", **options) as twin,
    ):
        assert_same(twin.reset(seed=1), env.reset(seed=1))
        for _ in range(30):
            expected, got = twin.step([1] * 8), env.step([1] * 8)
            assert_same(expected, got)
        assert got[4]["elapsed_step"].dtype == np.int32
        assert got[4]["players"]["env_id"].tolist() == [0, 1, 2, 3] * 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "CartPole-v1 n=4 envs_per_engine=3",
            "envs_per_engine: expected at least 1, of which n=4 is a multiple, got 3.",
        ),
        (
            "CartPole-v1 n=4 envs_per_engine=2 | gymnasium.wrappers:TimeAwareObservation",
            "it wraps single environments, and an engine steps 2",
        ),
        (
            "CartPole-v1 n=4 envs_per_engine=2 batch_size=3",
            "batch_size: expected a multiple of 2, the rows of an engine",
        ),
        (
            "CartPole-v1 n=4 envs_per_engine=2 backend=threads backend.on_failure=restart",
            'on_failure: expected "raise" for engines on threads',
        ),
        (
            "CartPole-v1 n=4 envs_per_engine=1 backend=dummy backend.on_failure=restart",
            'on_failure: expected "raise" for engines on dummy',
        ),
        ("Pendulum-v1 n=4 envs_per_engine=2", "Pendulum-v1 is registered without a vector class"),
    ],
)
def test_a_pipeline_says_what_engines_cannot_do(line, said):
    with pytest.raises(PlanError) as told:
        plan(PipelineSpec.parse(line))
    assert said in str(told.value)


def test_how_many_rows_an_engine_has_belongs_to_the_pipeline_and_where_they_run_does_not():
    line = "CartPole-v1 n=8 envs_per_engine={} autoreset=next_step backend={}"
    hashes = {
        plan(PipelineSpec.parse(line.format(*each))).pipeline.hash
        for each in [(4, "dummy"), (4, "shmem"), (2, "dummy")]
    }
    spec = PipelineSpec.parse(line.format(4, "shmem"))
    assert PipelineSpec.from_yaml(spec.to_yaml()) == spec
    assert len(hashes) == 2
    assert "4 sub-environments each" in str(plan(spec).with_spaces())
