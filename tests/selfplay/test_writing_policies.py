"""Policies that write into what they are given: it is their own copy, wherever they play."""

import numpy as np
import pytest

import vecwrap
from vecwrap import OpponentPool
from vecwrap.errors import ArgumentError, SubEnvError
from vecwrap.rows.batch import leaves

GAME = "pettingzoo:classic/tictactoe-v3"


def spoil(observations, masks, value):
    masks[...] = value
    for _, array in leaves(observations):
        array[...] = value


def illegal(observations, *, action_masks):
    """Take what is not legal, and say that everything is."""
    moves = (~action_masks.astype(bool)).argmax(axis=1)
    spoil(observations, action_masks, True)
    return moves


def legal(observations, *, action_masks):
    """Take what is legal, and say that nothing is."""
    moves = action_masks.argmax(axis=1)
    spoil(observations, action_masks, False)
    return moves


def honest(observations, *, action_masks):
    return action_masks.argmax(axis=1)


class Stateful:
    """Remembers how often it was asked, and writes into whatever it is handed."""

    def __init__(self, writes):
        self.writes = writes

    def predict(
        self, observations, state=None, episode_start=None, deterministic=True, action_masks=None
    ):
        counts = (
            np.zeros((len(action_masks), 1))
            if state is None
            else np.where(episode_start[:, None], 0, state)
        )
        options = [np.flatnonzero(mask) for mask in action_masks]
        moves = [one[int(count) % len(one)] for one, (count,) in zip(options, counts, strict=True)]
        if self.writes:
            spoil(observations, action_masks, False)
            episode_start[...] = True
            if state is not None:
                state[...] = 7
        return np.array(moves), counts + 1


def members(tmp_path, one, other=None):
    pool = OpponentPool(
        tmp_path / f"pool-{id(one)}", make=lambda arrays: one if arrays["which"] == 1 else other
    )
    for number in (1, 2) if other else (1,):
        pool.add({"which": np.array(number)})
    return pool


def games(pool, **given):
    wrappers = [{"opponents": {"pool": pool, "seat": "player_2", **given}}, "monitor"]
    return vecwrap.build(GAME, n=4, wrappers=wrappers, backend="dummy", seed=1)


def results(env, steps=8):
    """All results of legal moves; the opponent opens."""
    found = [env.reset()[0]["observation"].copy()]
    for _ in range(steps):
        found += [part.copy() for part in env.step(env.action_masks().argmax(axis=1))[:3:2]]
    return [
        array.tolist() if isinstance(array, np.ndarray) else array["observation"].tolist()
        for array in found
    ]


@pytest.mark.parametrize("current", [0.0, 1.0], ids=["member", "current"])
def test_an_opponents_moves_are_judged_by_the_games_own_masks(tmp_path, current):
    found = {}
    for policy in (illegal, legal, honest):
        pool = members(tmp_path, policy)
        pool.current = policy
        with games(pool, current=current) as env:
            if policy is not illegal:
                found[policy] = results(env)
                continue
            with pytest.raises(
                SubEnvError, match=r"expected a legal move of Discrete\(9\); legal are \["
            ):
                results(env)
    assert found[legal] == found[honest]


def test_what_a_stateful_opponent_writes_changes_nothing(tmp_path):
    both = []
    for writes in (False, True):
        with games(members(tmp_path, Stateful(writes))) as env:
            both.append(results(env, 15))
    assert both[0] == both[1]


@pytest.mark.parametrize("copy", [True, False])
def test_what_an_evaluated_policy_writes_changes_nothing(copy):
    wrappers = [{"opponents": {"pool": ["random"]}}, "monitor"]
    played = []
    for policy in (honest, legal, Stateful(False), Stateful(True)):
        with vecwrap.build(GAME, n=3, wrappers=wrappers, backend="dummy", seed=2, copy=copy) as env:
            played.append(
                vecwrap.evaluate(env, policy, episodes=12, progress=False).returns.tolist()
            )
    assert played[0] == played[1]
    assert played[2] == played[3]


def test_infos_are_a_policys_own_too():
    """Of rows that wait, masks are those of an earlier step, which the policy has seen."""

    def writes(observations, *, action_masks, infos):
        moves = action_masks.argmax(axis=1)
        for key in ("opponent", "seat"):
            infos[key][...] = "" if key == "opponent" else 9
        return moves

    wrappers = [{"opponents": {"pool": ["random"]}}, "monitor"]
    with vecwrap.build(GAME, n=3, wrappers=wrappers, backend="dummy", seed=2) as env:
        player = vecwrap.tools.policy_runner.PolicyRunner(env, writes)
        observations, infos = player.reset()
        for _ in range(5):
            before = infos["opponent"].tolist()
            player.act(observations)
            assert infos["opponent"].tolist() == before == ["random"] * 3
            observations, *_, infos = player.step(player.act(observations))


def test_a_tournament_judges_by_its_own_masks(tmp_path):
    def tournament(one):
        return vecwrap.tournament(
            GAME, members(tmp_path, one, honest), games=2, backend="dummy", progress=False
        )

    assert tournament(legal).results.rows() == tournament(honest).results.rows()
    with pytest.raises(ArgumentError, match="expected a legal move"):
        tournament(illegal)
