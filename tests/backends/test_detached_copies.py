"""What is given to a sub-environment is its own: neither the caller's object nor another
sub-environment's.
"""

import threading

import gymnasium
import numpy as np
import pytest

import vecwrap
from tests.helpers.backends import DummyBackend, ShmemBackend, SubprocessBackend
from vecwrap.errors import ArgumentError, VecwrapError

BACKENDS = [DummyBackend, SubprocessBackend, ShmemBackend]


class Collects(gymnasium.Env):
    """Keeps what it is given and writes into it; samples from its own space."""

    def __init__(self):
        self.observation_space = gymnasium.spaces.Discrete(1000)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.items = []

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}

    def named(self, *, name):
        return name

    def add(self, item, to=None):
        (self.items if to is None else to).append(item)
        return list(self.items if to is None else to)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("workers", [1, 3])
def test_a_value_that_is_set_is_copied_for_each_sub_environment(backend, workers):
    options = {} if backend is DummyBackend else {"workers": workers}
    with backend([Collects] * 3, **options) as env:
        value = ["given"]
        env.set_attr("items", [value] * 3)
        assert env.call("add", "own") == (["given", "own"],) * 3
        assert value == ["given"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("workers", [1, 3])
def test_arguments_of_a_call_are_copied_for_each_sub_environment(backend, workers):
    options = {} if backend is DummyBackend else {"workers": workers}
    with backend([Collects] * 3, **options) as env:
        given = ["given"]
        assert env.call("add", "own", to=given) == (["given", "own"],) * 3
        assert given == ["given"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_calls_arguments_may_be_called_name(backend):
    with backend([Collects] * 2) as env:
        assert env.call("named", name="Ada") == ("Ada", "Ada")
        env.call_async("named", name="Bea")
        assert env.call_wait() == ("Bea", "Bea")


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_faces_spaces_are_not_the_sub_environments_own(backend):
    with backend([Collects] * 2) as env:
        env.reset(seed=1)
        expected = [env.step([0, 0])[0].tolist() for _ in range(5)]
        env.reset(seed=1)
        env.single_observation_space.seed(99)
        env.observation_space.seed(99)
        assert [env.step([0, 0])[0].tolist() for _ in range(5)] == expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_sending_to_nobody_is_refused(backend):
    with backend([Collects] * 2) as env:
        env.reset()
        with pytest.raises(
            ArgumentError, match="env_ids: expected at least one sub-environment, got none"
        ):
            env.send([], env_ids=[])
        env.step([0, 1])


GRAPH = gymnasium.spaces.Graph(gymnasium.spaces.Box(-9, 9, (1,), np.float32), None)


def graph(value):
    return gymnasium.spaces.GraphInstance(np.full((2, 1), value, np.float32), None, None)


class Graphs(gymnasium.Env):
    """Shows the graph that it was last given as an action; fails on a negative one."""

    observation_space = action_space = GRAPH

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return graph(1), {}

    def step(self, action):
        shown = graph(action.nodes.max())
        assert shown.nodes.max() >= 0
        action.nodes[:] = 5
        return shown, 0.0, False, False, {}


def nodes(observations):
    return [float(observation.nodes.max()) for observation in observations]


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_written_into_an_observation_without_an_array_form_is_seen_by_nobody_else(backend):
    first = np.array([True, False])
    with backend([Graphs] * 2, on_failure="restart") as env:
        observations, _ = env.reset()
        for observation in observations:
            observation.nodes[:] = 0
        observations, _ = env.reset(options={"reset_mask": first})
        assert nodes(observations) == [1, 1]
        for observation in observations:
            observation.nodes[:] = 0
        env.send((graph(2),), [0])
        observations, *_ = env.recv()
        observations[0].nodes[:] = 0
        assert nodes(env.reset(options={"reset_mask": ~first})[0]) == [2, 1]
        infos = env.step((graph(3), graph(-1)))[4]
        # Of the row that was lost, what was delivered last.
        assert nodes(infos["final_obs"][1:]) == [1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_action_without_an_array_form_is_taken_when_it_is_given(backend):
    with backend([Graphs] * 2) as env:
        env.reset()
        action = graph(2)
        env.step_async((action, action))
        action.nodes[:] = 3
        assert nodes(env.step_wait()[0]) == [2, 2]
        assert nodes([action]) == [3]


class Kept(gymnasium.Env):
    """Looks into its options at once, and has attributes that others have too."""

    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    _done = _first = _reward = _closed = "its own"
    first = "its own"
    labels = np.array(["a", None], dtype=object)

    def record(self, what):
        return f"recorded {what}"

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.full(1, (options or {"at": [0]})["at"][0], np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, False, False, {}


@pytest.mark.parametrize("settings", [{}, {"workers": 2, "parent_share": True}, {"workers": 2}])
def test_options_are_those_of_the_call_whatever_becomes_of_them(settings):
    backend = "shmem" if settings else "dummy"
    with vecwrap.build(Kept, n=2, backend=backend, **settings) as env:
        options = {"at": [1]}
        env.reset_async(seed=1, options=options)
        options["at"][0] = 2
        observations, _ = env.reset_wait()
        assert observations.ravel().tolist() == [1, 1]


def test_options_that_cannot_be_copied_are_handed_on():
    with vecwrap.build(Kept, n=1, backend="dummy") as env:
        env.reset(seed=1, options={"at": [1], "lock": threading.Lock()})


@pytest.mark.parametrize("backend", ["dummy", "subprocess"])
def test_an_environments_own_attributes_are_its_own_under_wrappers_too(backend):
    """With wrappers in the sub-environment, what it pays is noted between it and them."""
    with vecwrap.build(Kept, n=1, backend=backend, wrappers=["time_limit:9", "monitor"]) as env:
        for name in ("_done", "_first", "_reward", "_closed", "first"):
            assert env.get_attr(name) == ("its own",), name
            env.set_attr(name, 100.0)
            assert env.get_attr(name) == (100.0,), name
        assert env.call("record", 1) == ("recorded 1",)
        env.reset(seed=1)
        infos = {}
        while "episode" not in infos:
            infos = env.step([0])[4]
        assert infos["episode"]["r"].tolist() == [9.0]


@pytest.mark.parametrize("backend", ["dummy", "subprocess", "shmem"])
def test_an_array_of_objects_is_an_attribute_like_others(backend):
    with vecwrap.build(Kept, n=1, backend=backend) as env:
        assert env.get_attr("labels")[0].tolist() == ["a", None]


@pytest.mark.parametrize("backend", ["dummy", "subprocess", "shmem"])
def test_nobody_is_called_twice_in_one_call(backend):
    with vecwrap.build(Kept, n=2, backend=backend) as env:
        for ask in (
            lambda: env.call_async("record", 1, indices=[0, 0]),
            lambda: env.get_attr("first", indices=[1, 1]),
            lambda: env.set_attr("first", [1, 2], indices=[1, 1]),
        ):
            with pytest.raises(ArgumentError, match="indices: expected each index once, got"):
                ask()


@pytest.mark.parametrize(
    ("backend", "settings"), [("dummy", {}), ("shmem", {"workers": 1}), ("shmem", {"workers": 2})]
)
def test_one_environment_for_several_is_refused(backend, settings):
    one = Kept()
    with pytest.raises(
        VecwrapError, match="env: expected a new environment from each call, got the same for"
    ):
        vecwrap.build(lambda: gymnasium.Wrapper(one), n=4, backend=backend, **settings)


@pytest.mark.parametrize("settings", [{}, {"workers": 2, "parent_share": True}, {"workers": 2}])
def test_an_array_that_was_asked_for_stays_as_it_was(settings):
    class Places(Kept):
        def __init__(self):
            self.place = np.zeros(1, np.float32)

        def step(self, action):
            self.place += 1
            return self.place, 1.0, False, False, {}

        def where(self):
            return self.place

    with vecwrap.build(Places, n=2, backend="shmem" if settings else "dummy", **settings) as env:
        env.reset(seed=1)
        asked = [*env.get_attr("place"), *env.call("where")]
        for array in asked:
            array += 5
        assert env.step([0, 0])[0].ravel().tolist() == [1, 1]
        assert [array.tolist() for array in asked] == [[5]] * 4
