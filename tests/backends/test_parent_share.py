"""A share that the parent steps: the same stream, the same errors, and nothing isolates it, which
is why it is refused
where isolation was asked for.
"""

import signal
from functools import partial

import gymnasium
import numpy as np
import pytest

import vecwrap
from tests.helpers.backends import DummyBackend, ShmemBackend, SubprocessBackend
from vecwrap.backends.workers import process, step_ring
from vecwrap.backends.workers.shares import share_out
from vecwrap.errors import PlanError, SubEnvError
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.rows.step_result import Autoreset
from vecwrap.testing import toy
from vecwrap.testing.drive import Lockstep, drive
from vecwrap.testing.toys import OpenResources, assert_nothing_left

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


@pytest.mark.parametrize(
    ("observations", "mode"),  # how a space is laid out in memory has nothing to do with the mode
    [
        ("nested", Autoreset.SAME_STEP),
        pytest.param("nested", Autoreset.DISABLED, marks=pytest.mark.full),
        pytest.param("nested", Autoreset.NEXT_STEP, marks=pytest.mark.full),
        pytest.param("nested", Autoreset.EPISODIC, marks=pytest.mark.full),
        pytest.param("box_uint8", Autoreset.SAME_STEP, marks=pytest.mark.full),
    ],
)
def test_its_stream_is_dummys_in_every_mode(mode, observations):
    factory = toy(observations=observations, actions="nested", end=0.2)
    before = OpenResources.now()
    with (
        DummyBackend([factory] * 5, autoreset=mode) as dummy,
        ShmemBackend([factory] * 5, autoreset=mode, parent_share=True) as two,
        ShmemBackend([factory] * 5, autoreset=mode, parent_share=True, workers=2) as three,
        SubprocessBackend([factory] * 5, autoreset=mode, parent_share=True, workers=1) as piped,
    ):
        assert (three.num_workers, piped.num_workers) == (2, 1)
        met = drive(Lockstep(dummy, two, three, piped), 110, 3, unrest=0.3)
        assert min(met.values()) >= 20, met
    assert_nothing_left(before, before)


@pytest.mark.parametrize(
    ("workers", "mode"),
    [
        (2, Autoreset.NEXT_STEP),
        (2, Autoreset.DISABLED),
        *(
            pytest.param(2, mode, marks=pytest.mark.full)
            for mode in (Autoreset.SAME_STEP, Autoreset.EPISODIC)
        ),
        (1, Autoreset.SAME_STEP),
        *(
            pytest.param(1, mode, marks=pytest.mark.full)
            for mode in Autoreset
            if mode is not Autoreset.SAME_STEP
        ),
    ],
)
def test_the_stream_is_the_same_where_nobody_may_spin(mode, workers, monkeypatch):
    """As on a processor that does not keep its stores in order: all hand-overs go by the bell."""
    monkeypatch.setattr(step_ring, "ORDERED", False)
    monkeypatch.setattr(process, "ORDERED", False)
    factory = toy(observations="box_uint8", actions="discrete", end=0.1)
    with (
        DummyBackend([factory] * 4, autoreset=mode) as dummy,
        ShmemBackend([factory] * 4, autoreset=mode, workers=workers, start_method="fork") as env,
    ):
        drive(Lockstep(dummy, env), 150, 4, unrest=0.3)


class Moody(gymnasium.Env):
    """Does in its third step what it was told."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, mood=""):
        self.mood = mood
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps == 3 and self.mood == "raise":
            raise RuntimeError("in a mood")
        if self.steps == 3 and self.mood.startswith("interrupt"):
            times, self.mood = self.mood.count("interrupt"), ""
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
        return np.full(2, self.steps / 10, np.float32), 1.0, False, False, {"steps": self.steps}

    def close(self):
        if self.mood == "stay":
            raise RuntimeError("stays")


def vector(*moods):
    return ShmemBackend(
        [lambda mood=mood: Moody(mood) for mood in moods], workers=1, parent_share=True
    )


def test_an_exception_here_is_told_as_a_workers_is_and_costs_no_other_row():
    with vector("", "", "", "raise") as env:
        assert env.num_workers == 1
        env.reset(seed=1)
        for _ in range(2):
            env.step([0] * 4)
        with pytest.raises(
            SubEnvError, match=r"sub-environment 3 .*RuntimeError in step"
        ) as caught:
            env.step([1] * 4)
        assert isinstance(caught.value.__cause__, BaseException)
        assert "in a mood" in str(caught.value)
        assert caught.value.others[4]["env_id"].tolist() == [0, 1, 2]
        env.reset(options={"reset_mask": np.array([False, False, False, True])})
        assert env.step([0] * 4)[4]["steps"].tolist() == [4, 4, 4, 1]


@pytest.mark.parametrize(
    "make", [vector, lambda *moods: DummyBackend([partial(Moody, mood) for mood in moods])]
)
def test_ctrl_c_in_a_row_of_this_process_comes_when_the_row_is_done(make):
    with make("", "", "interrupt", "interrupt") as env:
        env.reset(seed=1)
        for _ in range(2):
            env.step([0] * 4)
        with pytest.raises(KeyboardInterrupt):
            env.step([0] * 4)
        env.reset(seed=2)
        assert env.step([0] * 4)[4]["steps"].tolist() == [1] * 4


def test_a_second_ctrl_c_in_a_row_of_this_process_ends_the_step_and_not_the_environment():
    with vector("", "", "interrupt interrupt", "") as env:
        env.reset(seed=1)
        for _ in range(2):
            env.step([0] * 4)
        with pytest.raises(KeyboardInterrupt):
            env.step([0] * 4)
        env.reset(seed=2)
        assert env.step([0] * 4)[4]["steps"].tolist() == [1] * 4


def test_one_that_fails_to_close_here_leaves_no_memory_and_no_descriptor():
    before = OpenResources.now()
    env = vector("", "", "stay", "")
    env.reset(seed=1)
    during = OpenResources.now()
    with pytest.raises(RuntimeError, match="stays"):
        env.close()
    assert_nothing_left(before, during)


def test_its_attributes_are_read_set_and_called_like_the_workers():
    with vector("a", "b", "c", "d") as env:
        env.reset(seed=1)
        assert env.get_attr("mood") == ("a", "b", "c", "d")
        env.set_attr("mood", ["e", "f"], indices=[3, 0])
        assert env.get_attr("mood", indices=[0, 3]) == ("f", "e")
        assert env.call("get_wrapper_attr", "mood", indices=[2, 1]) == ("c", "b")


def test_a_wait_with_a_time_limit_steps_one_row_at_a_time_and_loses_none():
    with vector("", "", "", "") as env:
        env.reset(seed=1)
        env.step_async([0] * 4)
        rounds = 0
        while True:
            try:
                result = env.step_wait(timeout=0.0)
                break
            except TimeoutError:
                rounds += 1
        assert rounds >= 1
        assert result[4]["steps"].tolist() == [1] * 4


@pytest.mark.parametrize(
    "options",
    [
        {"on_failure": "restart"},
        {"step_timeout": 1.0},
        {"reset_timeout": 1.0},
        {"start_timeout": 9.0},
        {"batch_size": 2},
    ],
)
def test_it_is_refused_beside_what_asks_for_isolation(options):
    (name,) = options
    with pytest.raises(PlanError, match=f"{name}.*parent_share"):
        ShmemBackend([Moody] * 4, parent_share=True, **options)
    with pytest.raises(PlanError, match=f"parent_share: expected False beside {name}"):
        vecwrap.build("CartPole-v1", n=4, backend="shmem", parent_share=True, **options)


def chosen(line, **changes):
    return plan(PipelineSpec.parse(line).override(**changes)).backend_options.get(
        "parent_share", False
    )


def test_it_is_chosen_where_nothing_asks_for_isolation_and_the_code_is_known(monkeypatch):
    monkeypatch.setattr("vecwrap.pipeline.backends.usable_cores", lambda: 2)
    assert chosen("Acrobot-v1 n=8")
    assert chosen("CartPole-v1 n=4 backend=shmem | time_limit:9 | monitor")
    assert chosen("PongNoFrameskip-v4 n=4 | atari")
    assert not chosen("CartPole-v1 n=4 backend=subprocess")
    assert not chosen("CartPole-v1 n=4 backend=shmem backend.parent_share=false")
    assert not chosen("CartPole-v1 n=4", **{"backend.workers": 1})
    assert not chosen("CartPole-v1 n=4 batch_size=2")
    assert not chosen("CartPole-v1 n=4", **{"backend.on_failure": "restart"})
    assert not chosen("CartPole-v1 n=4", **{"backend.step_timeout": 3.0})
    assert not chosen("CartPole-v1 n=4 | tests.backends.test_parent_share:Wrapper")
    assert not plan(PipelineSpec(Moody, n=4)).backend_options.get("parent_share", False)
    monkeypatch.setattr("vecwrap.pipeline.backends.usable_cores", lambda: 1)
    assert not chosen("CartPole-v1 n=4")


class Wrapper(gymnasium.Wrapper):
    """Somebody's own."""


def test_the_plan_says_so_and_the_resolved_pipeline_leaves_it_to_the_machine():
    planned = plan(
        PipelineSpec.parse(
            "CartPole-v1 n=5 backend=shmem backend.parent_share=true backend.workers=1"
        )
    )
    assert "1 worker, 3 sub-environments each" in str(planned)
    assert "and 2 in this process" in " ".join(str(planned).split())
    assert planned.explanation.to_dict()["backend"]["sub_environments_of_parent"] == 2
    assert (
        "parent_share" not in plan(PipelineSpec.parse("CartPole-v1 n=5")).pipeline.backend.options
    )


def test_shares():
    assert share_out(5, 1, None, True) == [range(3), range(3, 5)]
    assert share_out(1, 1, None, True) == [range(1)]
