"""Simulators of uneven speed, of which some crash: each row at its own pace, and none of its steps
twice or lost.
"""

import os
import signal

import numpy as np
import pytest

import vecwrap
from tests.helpers.naive_steps import act, transitions, value
from tests.learning.test_returns import naive_gae
from tests.learning.test_rollouts import Crashing, same_steps, take, taken
from vecwrap.backends.dummy import Dummy
from vecwrap.errors import ArgumentError

SLOW = 7 * 20  # steps of the others while row 0 takes one: it is 20 times slower than each
N = 8
T = 10
CRASHES = (0, 0, 9, 0, 0, 14, 0, 0)
LENGTHS = [(3, 5, 1), (4,), (1, 2), (30, 2), (6,), (2, 7), (5, 5, 1), (11,)]
SETTINGS = [
    {"lengths": lengths, "index": i, "crash": crash}
    for i, (lengths, crash) in enumerate(zip(LENGTHS, CRASHES, strict=True))
]


class Uneven(Dummy):
    """Takes a step of row 0 only after so many of others, unless no other one is requested."""

    held = False
    others = 0

    def send(self, rows):
        self.held = self.held or bool((rows == 0).any())
        if (rows != 0).any():
            super().send(rows[rows != 0])

    def poll(self, until, *, return_early):
        if self.held and (self.others >= SLOW or not self.is_busy()):
            self.held, self.others = False, 0
            super().send(np.array([0]))
        arrivals = super().poll(until, return_early=return_early)
        self.others += sum(len(getattr(one, "rows", ())) for one in arrivals)
        return arrivals


class Dying(Crashing):
    """Kills its process instead of raising."""

    def step(self, action):
        if self.crash == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


def built(backend=Uneven, make=Crashing, **options):
    settings = {"batch_size": 3, "on_failure": "restart", "max_restarts": 99, **options}
    return vecwrap.build(make, env_kwargs=SETTINGS, backend=backend, **settings)


def held_to_naive_loops(batches):
    """Every valid step of each row is the next one of a loop over that simulator alone."""
    for i, settings in enumerate(SETTINGS):
        found = taken(batches, i)
        same_steps(found, transitions(lambda s=settings: Crashing(**s), len(found) + 1))


@pytest.mark.parametrize("min_fraction", [0.5, 0.9, 1.0])
@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_every_valid_step_is_the_next_one_of_a_naive_loop(mode, min_fraction):
    with built(autoreset=mode) as env:
        iterator = vecwrap.rollouts(env, act, n_steps=T, min_fraction=min_fraction)
        batches = take(iterator, 8)
    held_to_naive_loops(batches)
    lost = sum(((batch.truncations & ~batch.valid).sum()) for batch in batches)
    for batch in batches:
        filled = batch.valid | batch.truncations
        assert filled.sum() >= min_fraction * T * N
        assert (filled.cumsum(axis=0)[-1] == filled.argmin(axis=0))[~filled.all(axis=0)].all()
        np.testing.assert_allclose(
            vecwrap.gae(batch, value, 0.9, 0.7)[0], naive_gae(batch), rtol=1e-6, atol=1e-6
        )
    first = [int(batch.valid[:, 0].sum()) for batch in batches]
    if min_fraction == 1.0:
        assert first == [T] * 8
    else:
        assert max(first) < T / 2
    assert lost >= 6


@pytest.mark.parametrize(
    ("backend", "make"),
    [("threads", Crashing), pytest.param("shmem", Dying, id="workers that die")],
)
def test_rows_that_come_as_they_are_ready_are_those_of_naive_loops(backend, make):
    with built({"name": backend, "workers": N}, make) as env:
        batches = take(vecwrap.rollouts(env, act, n_steps=T, min_fraction=0.8), 5)
    held_to_naive_loops(batches)
    assert sum(batch.valid.sum() for batch in batches) > 0.7 * 5 * T * N


def test_a_policy_is_called_for_the_rows_that_are_to_act():
    asked = []

    def counted(observations):
        asked.append(len(observations))
        return act(observations)

    with built() as env:
        (batch,) = take(vecwrap.rollouts(env, counted, n_steps=T), 1)
    assert asked[0] == N
    assert max(asked[1:]) <= 3
    # each action once, and those that a loss, a reset or the end made void
    assert sum(asked) == T * N
    assert batch.extras["values"].shape == (T, N)


def test_after_the_last_batch_nothing_is_in_flight_and_the_run_goes_on():
    with built() as env:
        for _ in vecwrap.rollouts(env, act, n_steps=T, total_steps=60, min_fraction=0.5):
            pass
        iterator = vecwrap.rollouts(env, act, n_steps=T, min_fraction=0.5, reset=False)
        before = env.call_state.results.last_observations.all()
        batch = next(iterator)
        np.testing.assert_array_equal(batch.observations[0], before)
        iterator.close()
        env.reset()


def test_after_an_error_of_the_policy_nothing_is_in_flight():
    answers = iter([act, act])

    def policy(observations):
        return next(answers)(observations)  # the third call raises

    with built() as env:
        with pytest.raises(RuntimeError, match="StopIteration"):
            next(vecwrap.rollouts(env, policy, n_steps=T))
        assert not env.health().in_flight.any()
        env.reset()


class Waits:
    """Illegal without its masks: takes the first legal action."""

    def __call__(self, observations, *, action_masks, infos):
        assert len(action_masks) == len(observations) == len(infos["action_mask"])
        assert (action_masks == infos["action_mask"]).all()
        assert (action_masks.argmax(axis=1) == observations[:, 0].astype(int) % 3).all()
        return action_masks.argmax(axis=1)


class Masked(Crashing):
    def info(self, over=False):
        mask = np.arange(3) == int(self.observe()[0]) % 3
        return {"action_mask": mask.astype(np.int8)}


def test_masks_and_infos_are_those_of_the_rows_that_are_to_act():
    with built(make=Masked) as env:
        (batch,) = take(vecwrap.rollouts(env, Waits(), n_steps=T), 1)
    assert (batch.actions == batch.observations[:-1, :, 0].astype(int) % 3)[batch.valid].all()


@pytest.mark.parametrize(
    ("policy", "options", "said"),
    [
        (act, {"autoreset": "disabled"}, "expected autoreset same_step or next_step, got disabled"),
        (lambda seen, state, episode_start: seen, {}, "expected a policy without a state"),
    ],
    ids=["mode", "state"],
)
def test_what_does_not_go_together_with_batch_size_is_refused(policy, options, said):
    with built(**options) as env, pytest.raises(ArgumentError, match=said):
        vecwrap.rollouts(env, policy)


def test_games_of_several_agents_are_refused_with_batch_size():
    with (
        vecwrap.build("pettingzoo:classic/tictactoe-v3", n=3, batch_size=2, backend="dummy") as env,
        pytest.raises(ArgumentError, match="expected games of several agents without batch_size"),
    ):
        vecwrap.rollouts(env, act)


BATCHED = "n=8 batch_size=4"
TOGETHER = {
    f"CartPole-v1 {BATCHED} engine=envpool": "those of an engine .*which arrive together",
    f"CartPole-v1 {BATCHED} envs_per_engine=2 backend=dummy": "those of an engine",
    f"PongNoFrameskip-v4 {BATCHED} engine=ale | atari": "takes actions for the rows that it",
}


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")
@pytest.mark.parametrize("line", TOGETHER)
def test_engines_whose_rows_cannot_go_on_one_by_one_are_refused(line):
    with vecwrap.build(line) as env:
        with pytest.raises(ArgumentError, match=TOGETHER[line]):
            vecwrap.rollouts(env, act)
        if "ale" in line:
            with pytest.raises(ArgumentError, match=TOGETHER[line]):
                vecwrap.transitions(env, act)


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")
@pytest.mark.parametrize("options", [{}, {"envs_per_engine": 2, "autoreset": "same_step"}])
def test_transitions_of_engines_with_a_batch_size_are_those_without(options):
    """By row: those of the same actions in an engine that steps all rows at once."""
    settings = {"n": 4, "seed": 3, "engine": "envpool", "backend": "dummy", **options}
    kept = []
    for batch_size in (None, 2):
        with vecwrap.build("CartPole-v1", batch_size=batch_size, **settings) as env:
            own = [[] for _ in range(4)]
            for step in vecwrap.transitions(env, leans, total_steps=400):
                for k, i in enumerate(step.env_ids.tolist()):
                    own[i].append((*step.observations[k], *step.next_observations[k]))
        kept.append(own)
    for together, one_by_one in zip(*kept, strict=True):
        number = min(len(together), len(one_by_one))
        assert number > 60
        np.testing.assert_array_equal(together[:number], one_by_one[:number])


def leans(observations):
    return (observations[:, 1] < 0).astype(int)


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")
def test_rollouts_of_split_engines_in_same_step_mode_are_whole():
    line = "CartPole-v1 n=8 engine=envpool envs_per_engine=2 batch_size=4 autoreset=same_step"
    with vecwrap.build(line, backend="dummy", seed=1) as env:
        batches = take(vecwrap.rollouts(env, leans, n_steps=50), 3)
    assert all(batch.valid.all() for batch in batches)
    assert sum(len(batch.final_obs) for batch in batches) > 8
