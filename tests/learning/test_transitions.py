"""Transitions hold what naive loops over single environments give, bit for bit, in every mode."""

import numpy as np
import pytest

import vecwrap
from tests.helpers.naive_steps import act, code, row_of, transitions
from tests.learning.test_games import GAMES, Chooses, expected_of, same
from tests.learning.test_games import built as built_game
from tests.learning.test_rollouts import MODES, SPACES, Crashing, built, settings_of
from tests.learning.test_uneven import SETTINGS
from tests.learning.test_uneven import built as built_uneven
from vecwrap.errors import ArgumentError

CRASHES = (7, 0, 3, 11)


def streams(batches, n):
    """The transitions of each row, in their order."""
    found = [[] for _ in range(n)]
    for batch in batches:
        assert (np.diff(batch.env_ids) > 0).all()
        for k, i in enumerate(batch.env_ids.tolist()):
            found[i].append(
                {
                    "before": row_of(batch.observations, k),
                    "action": batch.actions[k],
                    "reward": batch.rewards[k],
                    "flags": (bool(batch.terminations[k]), bool(batch.truncations[k])),
                    "after": row_of(batch.next_observations, k),
                }
            )
    return found


def held_to_naive_loops(found, settings):
    for row, of_row in zip(found, settings, strict=True):
        naive = transitions(lambda s=of_row: Crashing(**s), len(row) + 1)
        expected = [step for step, _ in naive if step is not None]
        for one, other in zip(row, expected, strict=False):
            seen, action, reward, terminated, truncated, after = other
            assert code(one["before"]) == code(seen)
            assert code(one["after"]) == code(after)
            assert (one["action"], one["reward"]) == (action, reward)
            assert one["flags"] == (terminated, truncated)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("mode", MODES)
def test_every_transition_is_one_of_a_naive_loop_in_its_order(mode, space):
    options = {"on_failure": "restart", "max_restarts": 99}
    with built(mode, space, CRASHES, **options) as env:
        batches = list(vecwrap.transitions(env, act, total_steps=120))
    assert sum(len(batch.env_ids) for batch in batches) in range(120, 124)
    found = streams(batches, 4)
    held_to_naive_loops(found, settings_of(space, CRASHES))
    assert min(map(len, found)) > 15


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", GAMES)
def test_transitions_of_games_are_those_of_a_loop_over_the_raw_game(name, mode):
    with built_game(name, mode) as env:
        batches = list(vecwrap.transitions(env, Chooses(env), total_steps=150))
        found = streams(batches, env.num_envs)
    loops = expected_of(name, [[None] * (3 * len(row)) for row in found])
    for i, expected in enumerate(loops):
        moved = [one for one in expected if one[0] is not None]
        same(found[i], moved, f"row {i}")


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_transitions_of_uneven_simulators_are_those_of_naive_loops(mode):
    with built_uneven(autoreset=mode) as env:
        batches = list(vecwrap.transitions(env, act, total_steps=400))
        assert not env.call_state.numbered_rows.in_flight
        assert max(len(batch.env_ids) for batch in batches) == 3
    found = streams(batches, 8)
    held_to_naive_loops(found, SETTINGS)
    assert 0 < len(found[0]) < min(map(len, found[1:])) / 5


def test_what_is_yielded_never_changes_and_goes_on_where_the_last_one_stopped():
    with built(copy=False) as env, built() as other:
        stream = vecwrap.transitions(env, act)
        some = [next(stream) for _ in range(9)]
        stream.close()
        more = vecwrap.transitions(env, act, reset=False)
        some += [next(more) for _ in range(9)]
        again = vecwrap.transitions(other, act)
        expected = [next(again) for _ in range(18)]
    for one, same_one in zip(some, expected, strict=True):
        for name in ("observations", "next_observations", "rewards", "actions"):
            np.testing.assert_array_equal(getattr(one, name), getattr(same_one, name))
        np.testing.assert_array_equal(one.extras["values"], same_one.extras["values"])
        assert one.next_observations.flags.writeable


def test_what_is_out_of_range_is_refused():
    with built() as env, pytest.raises(ArgumentError, match="transitions: total_steps: expected"):
        vecwrap.transitions(env, act, total_steps=0)
    with pytest.raises(TypeError, match="transitions: env: expected a vecwrap.VecEnv"):
        vecwrap.transitions(None, act)
