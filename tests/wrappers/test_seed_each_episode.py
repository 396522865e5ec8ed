"""Seeds and options of every episode: the same on every backend and in every mode, and nothing
played outside.
"""

import contextlib
import os
import signal
import threading
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import vecwrap
from tests.helpers.backends import DummyBackend, EngineBackend, ShmemBackend, SubprocessBackend
from tests.helpers.polling import gone, until
from tests.helpers.stream_envs import Lives
from tests.helpers.toy_envs import LastLife
from vecwrap.errors import CheckpointError, PlanError, SpecError, SubEnvError
from vecwrap.sources.source_factories import SubEnvFactory
from vecwrap.testing.toys import ArrayReusingWrapper
from vecwrap.wrappers.episodic_life import EpisodicLife
from vecwrap.wrappers.seed_each_episode import SeedEachEpisode

BACKENDS = [DummyBackend, SubprocessBackend, ShmemBackend]
MODES = ["same_step", "next_step", "disabled", "episodic"]
NO_SEED = -1.0


class Levels(gymnasium.Env):
    """Says in every observation which seed and which options["level"] its episode was given; ends
    as it likes.
    """

    observation_space = spaces.Box(-1, 1e6, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, length=3):
        self.length = length
        self.given = []  # at every reset
        self.played = []  # how many steps followed each

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.level = np.array(
            [NO_SEED if seed is None else seed, (options or {}).get("level", -1)], np.float64
        )
        self.given.append(tuple(self.level))
        self.played.append(0)
        return self.level, {}

    def step(self, action):
        self.played[-1] += 1
        return self.level, 0.0, self.played[-1] == self.length, False, {}


class Breaks(Levels):
    """Raises in a step with action 1, or ends its process with action 2; offers its state."""

    action_space = spaces.Discrete(3)

    def step(self, action):
        if action == 1:
            raise RuntimeError("asked to raise")
        if action == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)

    def state_dict(self):
        return {"level": self.level, "given": self.given, "played": self.played}

    def load_state_dict(self, state):
        self.level, self.given, self.played = state["level"], state["given"], state["played"]


def make(lengths=(1, 2, 3), **options):
    return [lambda length=length: Levels(length) for length in lengths]


def play(env, steps=12):
    """The first `(seed, level)` of each episode of each sub-environment, resetting what asks for
    it.
    """
    mode = env.core.autoreset.value
    for _ in range(steps):
        *_, terminations, truncations, _ = env.step(np.zeros(env.num_envs, np.int64))
        ended = terminations | truncations
        if mode in ("disabled", "episodic") and ended.any():
            env.reset(options={"reset_mask": ended})
    return env.get_attr("given")


def begun(env, actions):
    """The seeds that the infos tell of each sub-environment, from the first reset on, resetting
    what asks for it.
    """
    told = [[] for _ in range(env.num_envs)]

    def note(infos):
        for i in np.flatnonzero(infos.get("_episode_seed", ())):
            told[i].append(int(infos["episode_seed"][i]))

    note(env.reset()[1])
    for each in actions:
        *_, terminations, truncations, infos = env.step(each)
        note(infos)
        ended = terminations | truncations
        if env.core.autoreset.value in ("disabled", "episodic") and ended.any():
            note(env.reset(options={"reset_mask": ended})[1])
    return told


def seeds(given):
    return [int(seed) for seed, _ in given]


def squares(episode, index):
    return 100 * index + episode**2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_episode_has_its_seed_on_every_backend_and_in_every_mode(backend, mode):
    workers = {} if backend is DummyBackend else {"workers": 2}
    with SeedEachEpisode(backend(make(), autoreset=mode, start_index=5, **workers), squares) as env:
        env.reset()
        for i, given in enumerate(play(env)):
            assert len(given) >= 3
            assert seeds(given) == [squares(episode, 5 + i) for episode in range(len(given))]


def test_a_list_is_cycled_from_evenly_spread_starts():
    with SeedEachEpisode(DummyBackend(make((1, 1, 2))), [10, 11, 12, 13, 14, 15]) as env:
        env.reset()
        first, second, third = map(seeds, play(env, 7))
    assert first == [10, 11, 12, 13, 14, 15, 10, 11]
    assert second == [12, 13, 14, 15, 10, 11, 12, 13]
    assert third == [14, 15, 10, 11]


def test_once_deals_each_entry_out_to_one_episode_and_then_gives_no_seed():
    with SeedEachEpisode(DummyBackend(make((1, 1))), [10, 11, 12], use="once") as env:
        env.reset()
        first, second = map(seeds, play(env, 3))
    assert first == [10, 12, NO_SEED, NO_SEED]
    assert second == [11, NO_SEED, NO_SEED, NO_SEED]


def test_options_come_with_seeds_or_alone_and_survive_an_environment_that_scribbles_over_them():
    levels = [(3, {"level": np.array(0)}), (None, {"level": np.array(1)}), None, 4]
    factories = [lambda: ArrayReusingWrapper(Levels(1))]
    with SeedEachEpisode(DummyBackend(factories), levels) as env:
        env.reset()
        (given,) = play(env, 5)
    assert given == [(3, 0), (NO_SEED, 1), (NO_SEED, -1), (4, -1), (3, 0), (NO_SEED, 1)]


def test_options_of_a_reset_come_before_the_schedules():
    with SeedEachEpisode(DummyBackend(make((5, 5))), [(1, {"level": 7, "other": 1})]) as env:
        env.reset(options={"level": 8})
        env.reset(options={"reset_mask": np.array([True, False])})
        assert env.get_attr("given") == ([(1, 8), (1, 7)], [(1, 8)])


@pytest.mark.parametrize("mode", MODES)
def test_a_masked_reset_takes_the_next_of_its_rows_alone(mode):
    with SeedEachEpisode(DummyBackend(make((9, 9)), autoreset=mode), squares) as env:
        env.reset()
        env.step([0, 0])
        env.reset(options={"reset_mask": np.array([False, True])})
        env.step([0, 0])
        env.reset()
        assert list(map(seeds, env.get_attr("given"))) == [[0, 1], [100, 101, 104]]


def test_a_reset_with_a_seed_keeps_it_and_begins_the_schedule_anew():
    with SeedEachEpisode(DummyBackend(make((1,))), [10, 11, 12]) as env:
        env.reset(seed=77)
        play(env, 2)
        env.reset(seed=78)
        assert seeds(play(env, 1)[0]) == [77, 10, 11, 78, 10]


def test_replace_takes_the_place_of_every_seed():
    with SeedEachEpisode(DummyBackend(make((1,)), seed=5), [10, 11, 12], replace=True) as env:
        env.reset()
        play(env, 1)
        env.reset(seed=78)
        assert seeds(play(env, 1)[0]) == [10, 11, 10, 11]


@pytest.mark.parametrize("mode", MODES)
def test_infos_tell_the_seed_of_each_episode_that_begins(mode):
    with SeedEachEpisode(DummyBackend(make((2, 4)), autoreset=mode), [(10, None), None]) as env:
        _, infos = env.reset()
        assert infos["episode_seed"].tolist() == [10, 0]
        assert infos["_episode_seed"].tolist() == [True, False]
        *_, infos = env.step([0, 0])
        assert "episode_seed" not in infos


class TellsASeed(Levels):
    """Has a use of its own for the word that seeds are told by."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed, options=options)[0], {"episode_seed": 99, "lives": 3}


@pytest.mark.parametrize("wrappers", [(), (Lives,)])  # with lives, some resets go on with a game
def test_the_seed_that_is_told_is_the_schedules_and_no_word_of_the_environments(wrappers):
    with SeedEachEpisode(
        DummyBackend([SubEnvFactory(lambda: TellsASeed(4), wrappers)]), [10, None]
    ) as env:
        told = [env.reset()[1], *(env.step([0])[4] for _ in range(8))]
        begun = [info for info in told if "lives" in info]
        assert begun
        assert [info["episode_seed"].tolist() for info in told if "episode_seed" in info] == [
            [10],
            [10],
        ]


@pytest.mark.parametrize(
    "length", [3, 4]
)  # with 3, games end in the reset that follows a lost life
def test_an_episode_is_a_game_where_lives_are_lost_and_no_game_is_played_outside_of_the_schedule(
    length,
):
    with SeedEachEpisode(
        DummyBackend([SubEnvFactory(lambda: Levels(length), (Lives,))]), [10, 11, 12]
    ) as env:
        env.reset()
        (given,) = play(env, 12)
        (steps,) = env.get_attr("played")
    games = [(seed, played) for seed, played in zip(seeds(given), steps, strict=True) if played]
    assert [seed for seed, _ in games] == [10, 11, 12, 10, 11, 12][: len(games)]
    assert len(games) >= 4
    assert {played for _, played in games[:-1]} == {length}
    assert seeds(given).count(NO_SEED) == (len(given) // 2 if length == 3 else 0)


def test_what_a_function_remembers_no_other_sub_environment_sees():
    for backend in BACKENDS:
        generator = np.random.default_rng(3)

        def drawn(episode, index, generator=generator):
            return int(generator.integers(1000))

        workers = {} if backend is DummyBackend else {"workers": 1}
        with SeedEachEpisode(backend(make((1, 1)), **workers), drawn) as env:
            env.reset()
            first, second = map(seeds, play(env, 3))
        expected = np.random.default_rng(3).integers(1000, size=4).tolist()
        assert first == second == expected


LOSSES = [(DummyBackend, 1, {}), (ShmemBackend, 2, {"workers": 2})]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("entries", "use", "entry"),
    [
        (range(100, 120), "cycle", lambda episode, i: 100 + 10 * i + episode),
        (range(100, 140), "once", lambda episode, i: 100 + 2 * episode + i),
        (squares, "cycle", squares),
    ],
    ids=["a list", "a list, once", "a function"],
)
@pytest.mark.parametrize(("backend", "loses", "options"), LOSSES, ids=["dummy", "shmem"])
def test_what_is_lost_goes_on_with_the_entry_after_the_lost_episodes(
    backend, loses, options, mode, entries, use, entry
):
    """None is played twice and none left out, of a list in either use and of a function."""
    actions = [[0, 0]] * 3 + [[0, loses]] + [[0, 0]] * 2 + [[loses, 0]] + [[0, 0]] * 5
    made = backend(
        [partial(Breaks, 2)] * 2,
        autoreset=mode,
        on_failure="restart",
        restart_backoff=0.0,
        **options,
    )
    with SeedEachEpisode(made, entries, use=use) as env:
        told = begun(env, actions)
        assert env.health().restarts.tolist() == [1, 1]
    for i, played in enumerate(told):
        assert len(played) >= 5
        assert played == [entry(episode, i) for episode in range(len(played))]


class Waits(Breaks):
    """Takes a step when there is a file."""

    def __init__(self, gate):
        super().__init__(9)
        self.gate = gate

    def step(self, action):
        assert until(self.gate.exists)
        return super().step(action)


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.parametrize("use", ["cycle", "once"])
def test_what_rests_when_its_worker_ends_leaves_no_entry_out(use, tmp_path):
    """It is made anew while the same call still waits for another worker."""
    gate = tmp_path / "gate"
    makers = [partial(Breaks, 1), partial(Breaks, 9), partial(Waits, gate)]
    made = ShmemBackend(makers, autoreset="episodic", on_failure="restart", workers=2)
    with SeedEachEpisode(made, range(100, 112), use=use) as env:
        first = env.reset()[1]["episode_seed"]
        gate.touch()
        env.step([0, 0, 0])
        gate.unlink()
        env.step_async([0, 2, 0])
        worker = made.runner._workers[0]
        while worker.restarts < 1 or not worker.is_up() or worker.awaiting():
            with contextlib.suppress(TimeoutError):
                env.step_wait(timeout=0.01)
        gate.touch()
        assert env.step_wait()[3].tolist() == [False, True, False]
        second = env.reset()[1]["episode_seed"]
        assert second.tolist() == (first + (1 if use == "cycle" else 3)).tolist()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_lost_after_a_load_goes_on_in_the_schedule(backend, mode):
    def make(backend):
        return SeedEachEpisode(
            backend([Breaks] * 2, autoreset=mode, on_failure="restart"), range(100, 120)
        )

    def lose(env):
        infos = env.step([1, 0])[4]
        if mode in ("disabled", "episodic"):
            infos = env.reset(options={"reset_mask": np.array([True, False])})[1]
        elif mode == "next_step":
            infos = env.step([0, 0])[4]
        return infos["episode_seed"][0]

    with make(DummyBackend) as env, make(backend) as other:
        env.reset()
        play(env, 6)
        other.load_state_dict(env.state_dict())
        assert lose(other) == lose(env) == 100 + env.wrapper_state()["episodes"][0] - 1 > 101


@pytest.mark.parametrize("mode", ["disabled", "episodic"])
@pytest.mark.parametrize("backend", [SubprocessBackend, ShmemBackend])
def test_what_is_lost_twice_after_a_load_goes_on_in_the_schedule(backend, mode):
    def make(backend, **options):
        made = backend([Breaks] * 2, autoreset=mode, on_failure="restart", **options)
        return SeedEachEpisode(made, range(100, 120))

    with make(DummyBackend) as env, make(backend, workers=1) as other:
        env.reset()
        play(env, 6)
        other.load_state_dict(env.state_dict())
        seeds = []
        for one in (env, other):
            one.step([1, 0])
            if one is other:
                (worker,) = other.health().workers
                os.kill(worker.pid, signal.SIGKILL)
                assert gone([worker.pid])
            infos = one.reset(options={"reset_mask": np.array([True, False])})[1]
            seeds.append(infos["episode_seed"][0])
        assert seeds[1] == seeds[0] > 101


def test_state_goes_on_where_it_was():
    with SeedEachEpisode(DummyBackend(make()), squares) as env:
        env.reset()
        play(env, 5)
        state = env.wrapper_state()
        expected = [seeds(given)[-1] for given in play(env, 1)]
    with SeedEachEpisode(DummyBackend(make()), squares) as env:
        env.reset()
        env.load_wrapper_state(state)
        env.reset()
        counts = env.wrapper_state()["episodes"]
        assert counts == [episodes + 1 for episodes in state["episodes"]]
        assert [seeds(given)[-1] for given in env.get_attr("given")] == [
            squares(episodes, i) for i, episodes in enumerate(state["episodes"])
        ]
        assert len(expected) == 3


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_reset_that_a_load_asks_for_goes_on_in_the_schedule_though_build_has_a_seed(
    backend, replace
):
    def make(backend):
        entries = [*range(100, 104), (None, {"level": 9}), 105]
        return SeedEachEpisode(
            backend([partial(Levels, 1)] * 2, seed=1), entries, use="once", replace=replace
        )

    with make(DummyBackend) as env, make(backend) as other:
        before = 1 if replace else 2  # the first episode has the seed of build, or the schedule's
        env.reset()
        play(env, before)
        other.load_state_dict(env.state_dict())
        other.reset()
        # and where the schedule has no seed, the seed of build is there
        assert play(other, 1) == ([(1, 9), (NO_SEED, -1)], [(105, -1), (NO_SEED, -1)])


def test_a_seed_of_build_that_was_left_when_it_was_saved_begins_the_schedule_after_the_load_too():
    with (
        SeedEachEpisode(DummyBackend(make((1,)), seed=1), squares) as env,
        SeedEachEpisode(DummyBackend(make((1,)), seed=1), squares) as other,
    ):
        other.load_state_dict(env.state_dict())
        for one in (env, other):
            one.reset()
            assert seeds(play(one, 2)[0]) == [1, 0, 1]


def test_a_seed_of_build_that_another_replaced_begins_no_schedule_anew_after_a_load_either():
    with (
        SeedEachEpisode(DummyBackend(make((1,)), seed=1), squares) as env,
        SeedEachEpisode(DummyBackend(make((1,)), seed=1), squares) as other,
    ):
        env.reset(seed=7)
        assert seeds(play(env, 3)[0]) == [7, 0, 1, 4]
        other.load_state_dict(env.state_dict())
        for one in (env, other):
            one.reset()
            assert seeds(play(one, 2)[0])[-3:] == [9, 16, 25]


def test_what_is_lost_in_the_reset_of_a_load_has_another_seed_where_the_schedule_gives_none():
    asked = []

    class BreaksInReset(Levels):
        def reset(self, **given):
            if asked:
                raise RuntimeError(asked.pop())
            return super().reset(**given)

    settings = {"seed": 5, "on_failure": "restart", "restart_backoff": 0.0}
    with (
        SeedEachEpisode(DummyBackend([BreaksInReset], **settings), [None]) as env,
        SeedEachEpisode(DummyBackend([BreaksInReset], **settings), [None]) as other,
    ):
        env.reset()
        other.load_state_dict(env.state_dict())
        asked.append("once")
        other.reset()
        assert (
            seeds(other.get_attr("given")[0])
            == np.random.SeedSequence([5, 1]).generate_state(1).tolist()
        )


class Counting:
    """Keeps a count of its own, which no sub-environment hands on."""

    calls = 0

    def __call__(self, episode, index):
        self.calls += 1
        return 1000 * self.calls + episode


def test_what_a_function_keeps_itself_begins_anew_where_its_sub_environment_does():
    def make():
        return SeedEachEpisode(DummyBackend([partial(Breaks, 1)], on_failure="restart"), Counting())

    with make() as env, make() as other:
        assert begun(env, [[0], [0], [1], [0]]) == [[1000, 2001, 3002, 1003, 2004]]
        other.load_state_dict(env.state_dict())
        assert begun(other, [[0]]) == [[1005, 2006]]


@pytest.mark.parametrize(
    "remembered", [None, {"attributes": {}}], ids=["a list", "a plain function"]
)
def test_the_state_of_an_earlier_version_goes_on(remembered):
    with SeedEachEpisode(DummyBackend(make()), squares) as env:
        state = env.state_dict()
        state["wrappers"] = [{"episodes": [3, 4, 5], "remembered": [remembered] * 3}]
        env.load_state_dict(state)
        assert begun(env, []) == [[9], [116], [225]]


@pytest.mark.parametrize(
    "remembered", [{"attributes": {"level": 3}}, {"own": {"generator": np.zeros(3)}}]
)
def test_the_state_of_an_earlier_version_with_what_a_function_remembered_is_refused(remembered):
    with SeedEachEpisode(DummyBackend(make()), squares) as env:
        state = env.state_dict()
        state["wrappers"] = [{"episodes": [3, 4, 5], "remembered": [remembered] * 3}]
        with pytest.raises(
            CheckpointError, match="what its function remembered, which is no longer saved"
        ):
            env.load_state_dict(state)


def test_a_reset_in_which_a_game_ends_gives_its_options_to_the_schedules_next_game_too():
    make = SubEnvFactory(LastLife, (EpisodicLife,))
    with SeedEachEpisode(DummyBackend([make], autoreset="disabled"), [1, 2, 3]) as env:
        env.reset()
        env.step([0])
        env.reset(options={"level": 3})
        assert env.get_attr("seen") == ([0, 3, 3],)


def test_a_function_that_raises_or_gives_nonsense_is_the_sub_environments_error():
    for function, message in (
        (lambda e, i: 1 / 0, "ZeroDivisionError"),
        (lambda e, i: "x", "expected a seed"),
    ):
        with (
            SeedEachEpisode(DummyBackend(make((1,))), function) as env,
            pytest.raises(SubEnvError, match=message),
        ):
            env.reset()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "seeds: expected at least one entry"),
        (7, "seeds: expected a list or a function"),
        ([1, "x"], r"seeds\[1\]: expected a seed"),
        ([-1], r"seeds\[0\]: expected a seed of at least 0"),
        ([True], r"seeds\[0\]: expected a seed"),
        ([(1, 2)], r"seeds\[0\]: expected the options as a dict"),
        ([1.5], r"seeds\[0\]: expected a seed"),
    ],
)
def test_what_is_no_schedule_is_refused(given, message):
    with (
        DummyBackend(make()) as env,
        pytest.raises(PlanError, match=f"seed_each_episode: {message}"),
    ):
        SeedEachEpisode(env, given)


def test_other_mistakes_are_refused():
    with DummyBackend(make()) as env:
        with pytest.raises(PlanError, match="use: expected"):
            SeedEachEpisode(env, [1], use="twice")
        with pytest.raises(
            SpecError, match=r'"seed_each_episode", argument seeds: there is no module nowhere'
        ):
            vecwrap.build(
                "CartPole-v1", n=1, wrappers=[{"seed_each_episode": {"seeds": "nowhere:seeds"}}]
            )
        lock = threading.Lock()
        with pytest.raises(PlanError, match="cannot be sent to a sub-environment"):
            SeedEachEpisode(env, lambda episode, index: lock and 1)
        with pytest.raises(PlanError, match="an inner seed_each_episode"):
            SeedEachEpisode(SeedEachEpisode(env, [1]), [2])
    native = EngineBackend(
        gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point")
    )
    with native, pytest.raises(PlanError, match="resets its sub-environments itself"):
        SeedEachEpisode(native, [1])
