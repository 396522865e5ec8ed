import contextlib
import gc

import gymnasium
import numpy as np
import pytest

import vecwrap
from tests.helpers.backends import DummyBackend
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.rows.compare import assert_same
from vecwrap.sources.source_factories import SubEnvFactory
from vecwrap.tools.timing import Stopwatch
from vecwrap.wrappers.window.viewer import Viewer


class Clock:
    """Stands still but for the work that is done."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now


CLOCK = Clock()


class Works(gymnasium.Env):
    """A step costs 11, a reset 13; an episode has four steps."""

    observation_space = gymnasium.spaces.Discrete(5)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        CLOCK.now += 13
        self.count = 0
        return 0, {}

    def step(self, action):
        CLOCK.now += 11
        self.count += 1
        return self.count, 1.0, self.count == 4, False, {}


class Inner(gymnasium.Wrapper):
    """Costs 3 a step and 2 a reset, of its own."""

    def step(self, action):
        CLOCK.now += 1
        result = self.env.step(action)
        CLOCK.now += 2
        return result

    def reset(self, **kwargs):
        CLOCK.now += 2
        return self.env.reset(**kwargs)


class Outer(VecEnvWrapper):
    """Costs 5 for each batch of actions and 7 for each result."""

    def on_actions(self, actions, env_ids):
        CLOCK.now += 5
        return actions

    def on_step(self, step):
        CLOCK.now += 7


class Outermost(VecEnvWrapper):
    """Costs 100 for each result."""

    def on_step(self, step):
        CLOCK.now += 100


def policy(observations):
    CLOCK.now += 17
    return np.zeros(len(observations), np.int64)


def works(*wrappers, n=3, **settings):
    return DummyBackend([SubEnvFactory(Works, wrappers)] * n, **settings)


def spent(watch):
    return {part.name: part.nanoseconds for part in watch.parts if part.nanoseconds}


def test_each_part_has_what_it_worked_and_nothing_of_what_worked_within_it():
    env = Outermost(Outer(works(Inner)))
    observations, _ = env.reset()
    watch = Stopwatch(env, clock=CLOCK)
    act = watch.timed("agent", "policy", "", policy)
    start = CLOCK.now
    with watch:
        for _ in range(4):  # the fourth ends all three episodes, and begins three more
            observations, *_ = env.step(act(observations))
            CLOCK.now += 1000
    steps, resets = 4 * 3, 3
    assert spent(watch) == {
        "Works": 11 * steps + 13 * resets,
        "Inner": 3 * steps + 2 * resets,
        "Outer": 4 * (5 + 7),
        "Outermost": 4 * 100,
        "agent": 4 * 17,
        "other": 4 * 1000,
    }
    assert watch.nanoseconds == CLOCK.now - start
    assert watch.steps == 4


def test_resets_that_are_asked_for_count_as_their_parts_and_not_as_vector_steps():
    env = Outermost(works(Inner, autoreset="disabled"))
    env.reset()
    watch = Stopwatch(env, clock=CLOCK)
    with watch:
        for _ in range(4):
            dones = env.step([0, 0, 0])[2]
        env.reset(options={"reset_mask": dones})
    assert spent(watch) == {
        "Works": 11 * 12 + 13 * 3,
        "Inner": 3 * 12 + 2 * 3,
        "Outermost": 5 * 100,
    }
    assert watch.steps == 4


def test_what_was_done_while_it_was_off_is_nobodys():
    env = Outer(works())
    env.reset()
    watch = Stopwatch(env, clock=CLOCK)
    act = watch.timed("agent", "policy", "", policy)
    for _ in range(2):
        with watch:
            env.step([0, 0, 0])
        env.step(act([0, 0, 0]))
        CLOCK.now += 10**9
    assert spent(watch) == {"Works": 2 * 33 + 13 * 0, "Outer": 2 * 12}


def test_a_step_of_the_learner_is_one_however_often_its_opponents_move():
    wrappers = [{"opponents": {"pool": ["random"], "seat": "player_2"}}]
    with vecwrap.build(
        "pettingzoo:classic/tictactoe-v3", n=2, backend="dummy", wrappers=wrappers, seed=1
    ) as env:
        env.reset()
        with Stopwatch(env) as watch:
            for _ in range(10):
                env.step(env.action_masks().argmax(axis=1))
        parts = {part.name: part for part in watch.parts}
        assert watch.steps == 10
        assert parts["send"].calls > 10
        assert parts["opponents"].nanoseconds > 0


def test_partial_batches_are_timed_too():
    env = Outer(works(batch_size=2, n=4))
    env.reset()
    watch = Stopwatch(env, clock=CLOCK)
    with watch:
        env.send([0, 0, 0, 0])
        ids = env.recv()[4]["env_id"]
        env.send([0, 0], env_ids=ids)
        env.recv()
    assert spent(watch)["Outer"] == 2 * 5 + 2 * 7
    assert watch.steps == 2


class Seen(Works):
    """The same with frames."""

    metadata = {"render_modes": ["rgb_array"]}
    render_mode = "rgb_array"

    def render(self):
        return np.zeros((20, 20, 3), np.uint8)


class Stub:
    """A window that nobody sees; each picture but the first costs 19."""

    def __init__(self, title, picture):
        self.open = True

    def show(self, picture):
        CLOCK.now += 19

    def close(self):
        self.open = False


def test_the_window_has_what_it_takes_and_the_face_has_not(monkeypatch):
    monkeypatch.setattr("vecwrap.wrappers.window.viewer.refuse_without_display", lambda: None)
    monkeypatch.setattr("vecwrap.wrappers.window.viewer.Window", Stub)
    env = Viewer(Outer(DummyBackend([Seen] * 3)))
    env.fps = float("inf")
    env.reset()
    with Stopwatch(env, clock=CLOCK) as watch:
        for _ in range(3):
            env.step([0, 0, 0])
    assert spent(watch) == {"Seen": 3 * 33, "Outer": 3 * 12, "window": 3 * 19}
    assert [part.name for part in watch.parts][-4:] == ["Outer", "window", "interface", "other"]
    env.close()


def test_the_environment_is_called_by_its_own_id_under_gymnasiums_make_vec():
    before = dict(gymnasium.registry)
    try:
        vecwrap.register("vecwrap-tests/Timed-v0", "CartPole-v1 backend=dummy")
        env = gymnasium.make_vec(
            "vecwrap-tests/Timed-v0", num_envs=2, vectorization_mode="vector_entry_point"
        )
    finally:
        gymnasium.registry.clear()
        gymnasium.registry.update(before)
    assert [part.name for part in Stopwatch(env).parts if part.kind == "environment"] == [
        "CartPole-v1"
    ]
    env.close()


def attributes(env):
    """What each sub-environment and each wrapper in it holds by itself, and its step."""
    things = []
    for inner in env.envs:
        while isinstance(inner, gymnasium.Wrapper):
            things.append(inner)
            inner = inner.env
        things.append(inner)
    return [(thing, set(vars(thing)), thing.step) for thing in things]


@pytest.mark.parametrize("fails", [False, True])
def test_without_it_the_very_methods_of_the_classes_run(fails):
    env = Outermost(Outer(works(Inner)))
    env.reset()
    before = attributes(env)
    watch = Stopwatch(env)
    try:
        with watch:
            assert "step" in vars(env.envs[0])
            env.step([0, 0, 0] if not fails else [0])
    except vecwrap.VecwrapError:
        assert fails
    assert attributes(env) == before
    assert env.core.rows.context.timing.timer is None
    env.reset()
    env.step([0, 0, 0])
    assert watch.steps == (0 if fails else 1)


def test_a_method_that_an_instance_has_of_its_own_is_put_back():
    env = works()
    env.reset()
    step = env.envs[0].step

    def own(action):
        return step(action)

    env.envs[0].step = own
    with Stopwatch(env):
        assert env.envs[0].step is not own
        env.step([0, 0, 0])
    assert env.envs[0].step is own


def test_a_second_one_is_refused_while_one_is_on():
    env = Outer(works())
    env.reset()
    with Stopwatch(env, clock=CLOCK) as watch:
        with (
            pytest.raises(vecwrap.errors.ArgumentError, match="no other stopwatch"),
            Stopwatch(env),
        ):
            pass
        env.step([0, 0, 0])
    assert spent(watch) == {"Works": 33, "Outer": 12}


def test_a_wrapper_that_was_put_around_it_later_is_no_part():
    env = Outer(works())
    watch = Stopwatch(env, clock=CLOCK)
    around = Outermost(env)
    around.reset()
    with watch:
        around.step([0, 0, 0])
    assert spent(watch) == {"Works": 33, "Outer": 12, "interface": 100}


def test_what_an_error_leaves_behind_ends_with_the_next_step():
    env = Outer(works())
    env.reset()
    with Stopwatch(env, clock=CLOCK) as watch:
        for actions in ([0], [0, 0, 0]):
            with contextlib.suppress(vecwrap.VecwrapError):
                env.step(actions)
        CLOCK.now += 1000
    assert spent(watch) == {"Works": 33, "Outer": 12, "other": 1000}


def test_an_environment_is_not_kept_alive_by_one_that_is_on():
    env = Outer(works())
    env.reset()
    watch = Stopwatch(env).__enter__()
    rows = env.core.rows
    gc.disable()
    try:
        del env
        assert rows.closed
    finally:
        gc.enable()
    watch.__exit__()


@pytest.mark.parametrize("backend", ["dummy", "subprocess", "shmem"])
def test_the_stream_is_the_same_and_waiting_and_copying_are_seen(backend):
    options = {} if backend == "dummy" else {"workers": 2}
    built = [
        vecwrap.build(
            "CartPole-v1",
            n=4,
            wrappers=["time_limit:6", "framestack:2"],
            backend=backend,
            **options,
        )
        for _ in range(2)
    ]
    watch = Stopwatch(built[0])
    for env in built:
        env.reset(seed=3)
    for _ in range(20):
        with watch:
            timed = built[0].step([0, 1, 0, 1])
        assert_same(built[1].step([0, 1, 0, 1]), timed)
    for env in built:
        env.close()
    parts = {part.name: part for part in watch.parts}
    inside = {"CartPole-v1", "time_limit"}
    assert (inside & parts.keys()) == (inside if backend == "dummy" else set())
    assert watch.steps == 20
    for name in ("wait", "copy", "send", "bookkeeping", "framestack", "interface", "other"):
        assert parts[name].nanoseconds > 0, name
    assert parts["copy"].calls == parts["framestack"].calls / 2 == 20
    assert parts["resets"].calls == 0


def test_of_an_engine_the_step_itself_is_waiting():
    engine = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point")
    with vecwrap.wrap(engine, ["framestack:2"]) as env:
        env.reset(seed=1)
        with Stopwatch(env) as watch:
            env.step([0, 1])
        parts = {part.name: part for part in watch.parts}
        assert (parts["wait"].calls, parts["framestack"].calls, watch.steps) == (1, 2, 1)
    assert not {"step", "reset"} & vars(engine).keys()
