"""Random games, row by row beside a hand-written loop: joins, deaths, simultaneous ends, losses,
partial sends.
"""

from functools import partial

import numpy as np
import pytest

import vecwrap
from tests.helpers.backends import DummyBackend, ShmemBackend
from tests.helpers.multi_agent_games import copied
from tests.helpers.reference_game_rows import (
    DIES,
    FAILS,
    FailingCrowd,
    FailingGuests,
    FailingLingeringCrowd,
    FailingReturning,
    GameRows,
)
from vecwrap.rows import batch as batches
from vecwrap.rows.compare import assert_same
from vecwrap.rows.infos import row_of
from vecwrap.sources.source_factories import GameFactory
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.normalize_reward import NormalizeReward

KINDS = {
    "guests": FailingGuests,
    "returning": FailingReturning,
    "crowd": FailingCrowd,
    "lingering crowd": FailingLingeringCrowd,
}
MODES = ["same_step", "next_step", "disabled", "episodic"]
GAMES, AGENTS, GAMMA = 4, 4, 0.9
COLUMNS = (
    *(
        "rewards",
        "raw_rewards",
        "terminations",
        "truncations",
        "first",
        "acted",
        "completed",
        "observed",
        "to_move",
    ),
    *("alive", "lost", "raw_dones", "raw_first"),
)
BACKENDS = {
    "dummy": (DummyBackend, [FAILS]),
    "shmem": (partial(ShmemBackend, workers=GAMES), [FAILS, DIES]),
}


class Rows(vecwrap.VecEnvWrapper):
    """Keeps the rows of each step, by index."""

    def __init__(self, env):
        super().__init__(env)
        self.latest = {}

    def on_step(self, step):
        for k, i in enumerate(step.env_ids.tolist()):
            row = {name: getattr(step, name)[k].item() for name in COLUMNS}
            infos = row_of(step.infos, k)
            row |= {
                "observation": copied(batches.row(step.observations, k)),
                "restarted": infos.pop("restarted", 0),
            }
            row["info"] = infos
            if row["first"] and (row["terminations"] or row["truncations"]):
                row["final"] = copied(batches.row(step.final_obs, k))
                row["final_info"] = row_of(step.final_infos or {}, k)
            self.latest[i] = row

    def taken(self):
        rows, self.latest = self.latest, {}
        return rows


class Trial:
    """A vector of games and the models of its games, told the same; each row is compared."""

    def __init__(self, kind, mode, backend, seed):
        make, (start, self.faults) = KINDS[kind], BACKENDS[backend]
        factories = [GameFactory(make, AGENTS)] * GAMES
        options = {"on_failure": "restart", "restart_backoff": 0.0, "max_restarts": None}
        self.kept = Rows(start(factories, autoreset=mode, **options))
        self.statistics = NormalizeReward(self.kept, gamma=GAMMA)
        self.ended = []
        self.env = Monitor(self.statistics, log=self.ended.append)
        self.mode, self.rng = mode, np.random.default_rng(seed)
        self.models = [GameRows(make, mode) for _ in range(GAMES)]
        self.num_rows = 0
        self.running, self.returns = np.zeros(GAMES * AGENTS), []
        self.met = dict.fromkeys(["joins", "left at once", "ended together", "lost", "unearned"], 0)

    def reset(self, games, seeds):
        """Reset these games, with seeds or without."""
        mask = np.isin(np.arange(GAMES), games)
        options = None if mask.all() else {"reset_mask": mask.repeat(AGENTS)}
        self.env.reset(seed=seeds, options=options)
        self.compare(
            {
                game: self.models[game].reset(None if seeds is None else seeds[game])
                for game in games
            }
        )

    def step(self, games):
        """Step these games, together or as a part; in some, an action is a fault."""
        actions = self.rng.integers(0, 5, GAMES * AGENTS)
        expected = {}
        for game in games:
            model = self.models[game]
            own = dict(zip(model.agents, actions[game * AGENTS :].tolist(), strict=False))
            if model.acting and self.rng.random() < 0.02:
                at = game * AGENTS + model.agents.index(model.acting[0])
                actions[at] = self.rng.choice(self.faults)
                expected[game] = model.lose()
                self.met["lost"] += 1
            else:
                expected[game] = model.step(own)
        if len(games) == GAMES and self.rng.random() < 0.5:
            self.env.step(actions)
        else:
            ids = np.flatnonzero(np.isin(np.arange(GAMES), games).repeat(AGENTS))
            self.env.send(actions[ids], ids)
            self.env.recv()
        self.compare(expected)

    def compare(self, expected):
        got = self.kept.taken()
        assert sorted({i // AGENTS for i in got}) == sorted(expected)
        for game, rows in expected.items():
            for seat, (agent, row) in enumerate(rows.items()):
                i = game * AGENTS + seat
                assert_same(
                    plain(row), plain(got[i]), f"after {self.num_rows} rows: game {game}, {agent}"
                )
                self.num_rows += 1
                self.count(i, row)
            self.met["ended together"] += sum(row["raw_dones"] for row in rows.values()) > 1

    def count(self, i, row):
        done = row["terminations"] or row["truncations"]
        self.met["joins"] += (
            row["raw_first"] and not all(self.models[i // AGENTS].length.values()) and row["alive"]
        )
        self.met["left at once"] += row["raw_dones"] and not row["completed"]
        self.met["unearned"] += bool(row["rewards"]) and not row["completed"]
        if row["completed"]:
            self.running[i] = self.running[i] * GAMMA + row["rewards"]
            self.returns.append(self.running[i])
        if row["first"] or done:
            self.running[i] = 0.0

    def play(self, num_rows):
        self.reset(range(GAMES), [100, 101, 102, 103])
        while self.num_rows < num_rows:
            games = (
                np.flatnonzero(self.rng.random(GAMES) < 0.7).tolist()
                if self.rng.random() < 0.5
                else range(GAMES)
            )
            over = [
                game
                for game, model in enumerate(self.models)
                if model.over and self.mode not in MODES[:2]
            ]
            broken_off = np.flatnonzero(self.rng.random(GAMES) < 0.01).tolist()
            if again := sorted(
                {*broken_off, *(over if self.mode == "disabled" or self.rng.random() < 0.5 else [])}
            ):
                seeds = (
                    self.rng.integers(2**31, size=GAMES).tolist()
                    if self.rng.random() < 0.3
                    else None
                )
                self.reset(again, seeds)
            if len(games):
                self.step(games)

    def check_statistics(self):
        """What a monitor reports, and what a normaliser counts, by hand."""
        got = [(episode.env, episode.score, episode.length) for episode in self.ended]
        for game, model in enumerate(self.models):
            for seat, agent in enumerate(model.agents):
                own = [one[1:] for one in got if one[0] == game * AGENTS + seat]
                assert own == [
                    (score, length) for name, score, length in model.episodes if name == agent
                ]
        counted = self.statistics.rewards.statistics
        assert round(counted.count) == len(self.returns)
        np.testing.assert_allclose(
            [counted.mean, counted.var], [np.mean(self.returns), np.var(self.returns)], rtol=1e-4
        )


def plain(row):
    """A row without what depends on where a number came from: 1 and 1.0, an array and a number."""
    info = {key: np.asarray(value).tolist() for key, value in row["info"].items()}
    final = {key: np.asarray(value).tolist() for key, value in row.get("final_info", {}).items()}
    return {
        **row,
        **{name: float(row[name]) for name in ("rewards", "raw_rewards")},
        "info": info,
        "final_info": final,
    }


def played(kind, mode, backend, num_rows, seed=0):
    trial = Trial(kind, mode, backend, seed)
    with trial.env:
        trial.play(num_rows)
    trial.check_statistics()  # the log's thread has ended
    return trial.met


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_random_games_are_what_a_hand_written_loop_gives(kind, mode):
    assert played(kind, mode, "dummy", 600)["ended together"]


@pytest.mark.parametrize("kind", ["guests", "crowd"])
def test_random_games_in_workers_that_die(kind):
    assert played(kind, "same_step", "shmem", 1000)["lost"]


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("kind", "backend"),
    [*((kind, "dummy") for kind in KINDS), ("guests", "shmem"), ("crowd", "shmem")],
)
def test_a_hundred_thousand_rows_of_random_games(kind, mode, backend):
    met = played(kind, mode, backend, 100_000, seed=1)
    assert min(met.values()) > 100, met
