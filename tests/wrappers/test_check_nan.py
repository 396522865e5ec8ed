"""Numbers that are not finite are told: who, when, and after which action."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tests.helpers.backends import DummyBackend
from tests.helpers.call_events import MODES
from tests.helpers.stream_envs import assert_same
from vecwrap.errors import NotFiniteError, PlanError
from vecwrap.wrappers.check_nan import CheckNan

ACTIONS = spaces.Box(-np.inf, np.inf, (2,), np.float32)
BOX = spaces.Box(-np.inf, np.inf, (2,), np.float64)
TREE = spaces.Dict(
    {
        "x": BOX,
        "deep": spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, ())]),
        "list": spaces.Sequence(spaces.Box(0, 1, ())),
    }
)


class Told(gymnasium.Env):
    """Spoils what it is told to: ``spoils[(episode, step)] = (where, value)``; episodes last
    ``length`` steps.
    """

    def __init__(self, spoils=(), length=4, space=BOX):
        self.observation_space, self.action_space = space, ACTIONS
        self.spoils, self.length = dict(spoils), length
        self.episode = self.time = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return self.observe(), {}

    def step(self, action):
        self.time += 1
        where, value = self.spoils.get((self.episode, self.time), (None, 0.0))
        return (
            self.observe(),
            value if where == "reward" else 1.0,
            self.time == self.length,
            False,
            {},
        )

    def observe(self):
        where, value = self.spoils.get((self.episode, self.time), (None, 0.0))

        def fill(space, path):
            if isinstance(space, spaces.Dict):
                return {
                    key: fill(member, f"{path}[{key!r}]") for key, member in space.spaces.items()
                }
            if isinstance(space, spaces.Tuple):
                return tuple(fill(member, f"{path}[{i}]") for i, member in enumerate(space.spaces))
            if isinstance(space, spaces.Discrete):
                return 1
            array = np.full(space.shape or (), 0.5, space.dtype)
            if path == where:
                array[...] = value
            return (array,) if isinstance(space, spaces.Sequence) else array

        return fill(self.observation_space, "observations")


def some(*spoils, **keywords):
    """Three sub-environments, of which the one in the middle spoils something."""
    return [lambda i=i: Told(spoils if i == 1 else (), **keywords) for i in range(3)]


def actions(seed):
    return np.random.default_rng(seed).normal(size=(3, 2)).astype(np.float32)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("value", "kind"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "inf")])
@pytest.mark.parametrize("where", ["observations", "reward"])
def test_raises_with_the_sub_environment_the_step_and_the_action_that_led_there(
    where, value, kind, mode
):
    with CheckNan(DummyBackend(some(((1, 2), (where, value))), autoreset=mode)) as env:
        env.reset()
        env.step(actions(0))
        with pytest.raises(NotFiniteError) as error:
            env.step(actions(1))
        assert (error.value.index, error.value.step) == (1, 2)
        assert_same(error.value.action, actions(1)[1])
        assert str(error.value).startswith(
            f"check_nan: {kind} in {'rewards' if where == 'reward' else where} of sub-environment "
            f"1, in step 2 of its episode, after the action {actions(1)[1]!r}: expected finite "
            "numbers"
        )
        env.reset()
        env.step(actions(2))  # it goes on


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("where", ["observations", "reward"])
def test_a_terminal_observation_and_the_last_reward_are_looked_at_too(where, mode):
    with CheckNan(DummyBackend(some(((1, 3), (where, np.nan)), length=3), autoreset=mode)) as env:
        env.reset()
        for k in range(2):
            env.step(actions(k))
        with pytest.raises(
            NotFiniteError, match="of sub-environment 1, in step 3 of its episode, after the action"
        ) as e:
            env.step(actions(2))
        assert_same(e.value.action, actions(2)[1])


@pytest.mark.parametrize("mode", MODES)
def test_what_a_reset_gives_is_told_as_such(mode):
    with CheckNan(
        DummyBackend(some(((2, 0), ("observations", np.nan)), length=1), autoreset=mode)
    ) as env:
        env.reset()
        with pytest.raises(
            NotFiniteError, match="sub-environment 1, in the reset of its episode"
        ) as error:
            env.step(actions(0))
            env.step(actions(0)) if mode == "next_step" else env.reset()
        assert (error.value.step, error.value.action) == (0, None)


def test_a_row_at_rest_is_not_told_again():
    spoilt = ((1, 1), ("observations", np.nan))
    with CheckNan(
        DummyBackend(some(spoilt, length=1), autoreset="episodic"), report="warn", once=False
    ) as env:
        env.reset()
        with pytest.warns(
            RuntimeWarning, match="nan in observations of sub-environment 1, in step 1"
        ):
            env.step(actions(0))
        env.step(actions(0))


def test_actions_are_looked_at_before_anything_is_stepped():
    with CheckNan(DummyBackend(some())) as env:
        env.reset()
        env.step(actions(0))
        bad = actions(1)
        bad[2, 1] = np.nan
        with pytest.raises(NotFiniteError) as error:
            env.step(bad)
        assert (error.value.index, error.value.step) == (2, 2)
        assert_same(error.value.action, bad[2])
        assert "from the agent, got" in str(error.value)
        assert env.get_attr("time") == (1, 1, 1)
        env.step(actions(1))
        with pytest.raises(
            NotFiniteError, match="nan in actions for sub-environment 1, at step 3 of its episode"
        ):
            env.send(bad[[2]], [1])
        env.send(actions(1)[:1], [1])
        env.recv()
        assert env.get_attr("time") == (2, 3, 2)


def test_partial_batches_name_their_own_sub_environment():
    with CheckNan(DummyBackend(some(((1, 1), ("reward", np.nan))))) as env:
        env.reset()
        env.send(actions(0)[:2], [2, 1])
        with pytest.raises(
            NotFiniteError, match="nan in rewards of sub-environment 1, in step 1"
        ) as error:
            env.recv()
        assert_same(error.value.action, actions(0)[1])


@pytest.mark.parametrize("where", ["observations['x']", "observations['deep'][1]"])
def test_members_are_named(where):
    with CheckNan(DummyBackend(some(((1, 1), (where, np.nan)), space=TREE))) as env:
        env.reset()
        with pytest.raises(NotFiniteError) as error:
            env.step(actions(0))
        assert str(error.value).startswith(
            f"check_nan: nan in {where} of sub-environment 1, in step 1"
        )


def test_infinities_may_be_let_through():
    with CheckNan(
        DummyBackend(some(((1, 1), ("reward", np.inf)), ((1, 2), ("reward", np.nan)))), inf=False
    ) as env:
        env.reset()
        assert env.step(actions(0))[1].tolist() == [1, np.inf, 1]
        with pytest.raises(NotFiniteError, match="nan in rewards"):
            env.step(actions(1))


def test_integers_are_never_told():
    make = [lambda: gymnasium.make("FrozenLake-v1")] * 2
    with CheckNan(DummyBackend(make)) as env:
        env.reset(seed=1)
        for _ in range(20):
            env.step([1, 2])


@pytest.mark.parametrize("once", [True, False])
def test_warns_once_or_each_time_and_changes_nothing(once):
    spoils = [((1, k), ("observations", np.nan)) for k in (1, 2)]
    with (
        CheckNan(DummyBackend(some(*spoils)), report="warn", once=once) as env,
        DummyBackend(some(*spoils)) as raw,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        for one in (env, raw):
            one.reset()
        for k in range(3):
            assert_same(env.step(actions(k))[:4], raw.step(actions(k))[:4])
    assert [w.category for w in caught] == [RuntimeWarning] * (1 if once else 2)


def test_raises_when_vecchecknan_of_sb3_raises():
    """On the same stream.

    SB3 says neither which sub-environment nor which step, and skips terminal observations.
    """
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    cases = [
        (((1, 2), (where, value)), inf)
        for where in ("observations", "reward")
        for value in (np.nan, np.inf, 1.0)
        for inf in (True, False)
    ]
    for spoils, inf in cases:
        peer = vec_env.VecCheckNan(
            vec_env.DummyVecEnv(some(spoils)), raise_exception=True, check_inf=inf
        )
        with CheckNan(DummyBackend(some(spoils)), inf=inf) as env:
            for one in (peer, env):
                one.reset()
            for k in range(6):
                assert raises(peer, actions(k)) == raises(env, actions(k))
            bad = np.full((3, 2), np.nan, np.float32)
            assert raises(peer, bad)
            assert raises(env, bad)


def raises(env, values):
    try:
        env.step(values)
    except ValueError:
        return True
    return False


def test_going_on_after_a_load_equals_never_having_stopped():
    spoilt = ((1, 3), ("reward", np.nan))
    with CheckNan(DummyBackend(some(spoilt))) as env, CheckNan(DummyBackend(some(spoilt))) as other:
        for one in (env, other):
            one.reset()
        for k in range(2):
            env.step(actions(k))
            other.env.step(actions(k))
        other.load_wrapper_state(env.wrapper_state())
        messages = []
        for one in (env, other):
            with pytest.raises(NotFiniteError) as error:
                one.step(actions(2))
            messages.append(str(error.value))
        assert messages[0] == messages[1]


def test_an_unknown_report_is_refused():
    with DummyBackend(some()) as env, pytest.raises(PlanError) as error:
        CheckNan(env, report="rais")
    assert (
        str(error.value)
        == 'check_nan: report: expected raise or warn, got "rais". Did you mean "raise"?'
    )
