"""Games that end for the learner before its first move count as in a loop over the raw game."""

import csv
from functools import partial

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv

import vecwrap
from tests.helpers.multi_agent_games import Alike, InTurns
from vecwrap import OpponentPool
from vecwrap.rows.compare import assert_same, rows_of
from vecwrap.selfplay import learner_rows
from vecwrap.selfplay.opponents import Opponents

MODES = ["same_step", "next_step", "disabled", "episodic"]
OFTEN = (0.4, 0.3, 0.3)  # of games that ann resigns, that bob is knocked out of, and that bob plays
FIRST = f"{__name__}:first"


@pytest.fixture(autouse=True)
def sooner(monkeypatch):
    """Show one of 8 such games in a row instead of one of 100, which takes long."""
    monkeypatch.setattr(learner_rows, "MAX_UNPLAYED", 8)


class Table(InTurns):
    """In turns: ann opens and may resign or knock bob out, in which case she and cyd play on; else
    bob moves once.
    """

    metadata = {"name": "table", "render_modes": []}
    possible_agents = ["ann", "bob", "cyd"]
    render_mode = None

    def __init__(self, shares=OFTEN):
        super().__init__()
        self.shares, self.games = shares, 0
        self.spaces = spaces.Box(-9, 9, (2,), np.float64), spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.begin(seed)
        self.infos = {agent: {} for agent in self.agents}
        self.agent_selection = "ann"
        self.time, self.games = 0, self.games + 1
        self.plan = self.plans()

    def plans(self):
        return str(self.rng.choice(["resigns", "out", "plays"], p=self.shares))

    def observe(self, agent):
        return np.array([self.time, self.possible_agents.index(agent)], np.float64)

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self.time += 1
        self.infos = {one: {"time": self.time} for one in self.agents}
        if self.time == 1:
            self.rewards["bob"] = 0.25
        if self.plan == "resigns":
            self.end(ann=-1, bob=1)
        elif self.plan == "out" and self.time == 1:
            self.end("bob", bob=-1)
            self.agent_selection = "cyd"
        elif self.plan == "out":
            self.agent_selection = "ann"
            if self.time == 3:
                self.end("ann", "cyd", ann=0.5, cyd=-0.5)
        elif self.time == 1:
            self.agent_selection = "bob"
        else:
            self.end(**({"bob": -1} if self.rng.random() < 0.5 else {"bob": 2, "cyd": 1}))
        self._accumulate_rewards()
        self._deads_step_first()

    def end(self, *agents, **rewards):
        for agent in agents or self.agents:
            self.terminations[agent] = True
        for agent, reward in rewards.items():
            self.rewards[agent] += reward

    def state_dict(self):
        return {
            "rng": self.rng.bit_generator.state,
            "time": self.time,
            "plan": self.plan,
            "games": self.games,
        }

    def load_state_dict(self, state):
        self.rng.bit_generator.state = state["rng"]
        self.time, self.plan, self.games = state["time"], state["plan"], state["games"]


ALWAYS = partial(Table, (1.0, 0.0, 0.0))


def in_a_loop(make, seed, games, seat="bob"):
    """Score, moves and result of an agent in the first games."""
    env, found = make(), []
    for number in range(games):
        env.reset(seed=None if number else seed)
        scores, moves = dict.fromkeys(env.possible_agents, 0.0), 0
        for agent in env.agent_iter():
            _, reward, terminated, truncated, _ = env.last()
            scores[agent] += reward
            done = terminated or truncated
            moves += agent == seat and not done
            env.step(None if done else 0)
        best = max(score for agent, score in scores.items() if agent != seat)
        found.append((scores[seat], moves, float(np.sign(scores[seat] - best))))
    return found


def at_table(
    make, mode="same_step", n=3, seat="bob", wrappers=("monitor",), backend="dummy", **opponents
):
    pool = opponents.pop("pool", None) or OpponentPool(None, scripted=[FIRST])
    pool.records = True
    chain = [{"opponents": {"pool": pool, "seat": seat, **opponents}}, *wrappers]
    return vecwrap.build(make, n=n, backend=backend, autoreset=mode, seed=5, wrappers=chain)


def first(observations):
    return np.zeros(len(observations), np.int64)


def play(env, steps, each=lambda result: None):
    """Step, and reset what has ended if nothing else does; ``each`` gets all results, also of
    resets.
    """
    for _ in range(steps):
        result = env.step(np.zeros(env.num_envs, np.int64))
        each(result)
        over = (result[2] | result[3]) if not env.possible_agents else ~env.alive
        over = (
            over.reshape(-1, len(env.possible_agents) or 1)
            .all(axis=1)
            .repeat(len(env.possible_agents) or 1)
        )
        if over.any() and env.core.autoreset.value in ("disabled", "episodic"):
            each(env.reset(options={"reset_mask": over}))


def rows_of_file(folder, env):
    lines = (folder / "monitor.csv").read_text().splitlines()[1:]
    return [row for row in csv.DictReader(lines) if int(row["env"]) == env]


def in_each_mode(**shares):
    """The first shares in all of the modes, the others in one of them in the suite."""
    cases = []
    for name, values in shares.items():
        for mode in MODES:
            is_left_out = values is not OFTEN and mode != "disabled"
            cases.append(
                pytest.param(
                    mode, values, id=f"{mode}-{name}", marks=pytest.mark.full if is_left_out else ()
                )
            )
    return cases


@pytest.mark.parametrize("mode", MODES)
def test_every_game_is_in_the_file_the_results_and_the_counts(mode, tmp_path):
    pool = OpponentPool(None, scripted=[FIRST])
    with at_table(Table, mode, pool=pool, wrappers=[{"monitor": {"dir": str(tmp_path)}}]) as env:
        ended = np.zeros(3, np.int64)

        def each(result):
            ended.__iadd__(result[-1]["games_ended"])

        each(env.reset())
        play(env, 40, each)
        assert env.num_episodes == ended.sum()
    for i in range(3):
        rows = rows_of_file(tmp_path, i)
        assert len(rows) == ended[i] > 40
        found = [(float(row["r"]), int(row["l"]), float(row["result"])) for row in rows]
        assert found == in_a_loop(Table, 5 + i, len(rows))
        assert {(row["opponent"], row["seat"]) for row in rows} == {(FIRST, "1")}
    results = [result for i in range(3) for *_, result in in_a_loop(Table, 5 + i, ended[i])]
    counts = [(row.wins, row.draws, row.losses) for row in pool.results.rows()]
    assert counts == [tuple(results.count(result) for result in (1, 0, -1))]


@pytest.mark.parametrize(
    ("mode", "shares"), in_each_mode(often=OFTEN, nearly_always=(0.97, 0.02, 0.01))
)
def test_an_evaluation_has_the_score_of_a_loop(mode, shares):
    make = partial(Table, shares)
    with at_table(make, mode) as env:
        played = vecwrap.evaluate(env, first, episodes=150, progress=False)
        assert env.chain[1].pool.results.rows() == []
    expected = [game for i in range(3) for game in in_a_loop(make, 5 + i, 50)]
    assert played.returns.tolist() == [score for score, *_ in expected]
    assert played.lengths.tolist() == [moves for _, moves, _ in expected]


@pytest.mark.parametrize("outside", ["scale_reward:2", "clip_reward:-0.5,0.5"])
def test_wrappers_change_the_rewards_of_such_games_too(outside):
    with at_table(ALWAYS, wrappers=[outside]) as env:
        played = vecwrap.evaluate(env, first, episodes=6, progress=False)
    assert set(played.returns) == {2.5 if "scale" in outside else 0.5}


class Rows(vecwrap.VecEnvWrapper):
    """Notes what the rows show."""

    def __init__(self, env):
        super().__init__(env)
        self.steps = []

    def on_step(self, step):
        self.steps.append(step)


@pytest.mark.parametrize("mode", MODES)
def test_against_who_always_resigns_a_step_returns_and_one_game_in_a_row_of_them_is_shown(mode):
    """Each of these games pays 1.25 and has no move of the learner."""
    with Rows(at_table(ALWAYS, mode, n=2)) as env:
        observations, infos = env.reset()
        assert infos["games_ended"].tolist() == [7, 7]
        assert infos["episode"]["r"].tolist() == [1.25, 1.25]
        assert observations.tolist() == [[0, 1]] * 2
        shown = np.zeros(2)
        for _ in range(6):
            play(env, 1)
            step = env.steps[-1] if mode in ("same_step", "next_step") else env.steps[-2]
            shown += step.terminations
            assert not step.acted.any()
            assert step.rewards[step.terminations].tolist() == [1.25] * int(step.terminations.sum())
        assert shown.tolist() == [3 if mode == "next_step" else 6] * 2
        games = sum(step.games_ended for step in env.steps)
        monitor = env.env
        assert monitor.num_episodes == games.sum()
        assert monitor.num_steps == 0
        assert env.find(Opponents).pool.results.rows()[0].wins == games.sum()
        assert all(score == 1.25 for score in monitor.return_queue)


@pytest.mark.parametrize("mode", MODES)
def test_what_an_interrupting_reset_finds_ended_still_counts(mode):
    with at_table(ALWAYS, mode, n=2) as env:
        first, second = env.reset()[1]["games_ended"].copy(), env.reset()[1]["games_ended"]
        assert (first + second).tolist() == [15, 15]
        mask = np.array([True, False])
        third = env.reset(options={"reset_mask": mask})[1]["games_ended"]
        assert third[0] == 8
        assert env.find(Opponents).pool.results.rows()[0].games == 38 == env.num_episodes


@pytest.mark.parametrize("mode", MODES)
def test_a_reset_pays_nothing_of_the_game_that_it_breaks_off(mode):
    """Bob was paid before his first move, which never came."""
    make = partial(Table, (0.0, 0.0, 1.0))
    with Rows(at_table(make, mode, n=2, wrappers=[])) as env:
        env.reset(seed=5)
        env.reset(seed=5)
        env.reset(seed=5, options={"reset_mask": np.array([True, False])})
        assert not any(step.rewards.any() or step.raw_rewards.any() for step in env.steps)
        for _ in range(2):
            played = vecwrap.evaluate(env, first, episodes=4, seed=5, progress=False)
            assert played.returns.tolist() == [
                score for i in range(2) for score, *_ in in_a_loop(make, 5 + i, 2)
            ]


@pytest.mark.parametrize(("mode", "shares"), in_each_mode(often=OFTEN, always=(1.0, 0.0, 0.0)))
def test_a_run_that_is_resumed_goes_on_as_if_it_had_never_stopped(mode, shares, tmp_path):
    make = partial(Table, shares)
    with at_table(make, mode) as env, at_table(make, mode) as other:
        env.reset()
        for after in (3, 8):
            play(env, after)
            env.save(tmp_path / "state.npz")
            other.load(tmp_path / "state.npz")
            both = []
            for one in (env, other):
                seen = []
                play(one, 9, lambda result, one=one, seen=seen: seen.append(_rows(one, result)))
                both.append([*seen, one.num_episodes, one.find(Opponents).pool.results.state()])
            assert_same(*both)


def _rows(env, result):
    steps = result if len(result) == 5 else (result[0], *np.zeros((3, env.num_envs)), result[1])
    return rows_of(env.single_observation_space, steps, ("episode.t",))


def test_who_is_drawn_depends_on_such_games():
    """The learner wins all of its games, so that ``pfsp`` finds no difference; without them it knew
    of no game.
    """
    pool = OpponentPool(None, scripted=["random", FIRST])
    with at_table(ALWAYS, pool=pool, sample="pfsp", n=1) as env:
        env.reset()
        assert {row.opponent for row in pool.results.rows()} == {"random", FIRST}
        assert pool.win_rate("random") > 0.7


def test_games_against_the_present_policy_count_but_are_not_rated():
    pool = OpponentPool(None, scripted=["random"])
    pool.current = first
    with at_table(ALWAYS, pool=pool, current=1.0, n=1) as env:
        env.reset()
        assert [row[:3] for row in pool.results.rows()] == [("learner", "current", 1)]
        assert pool.win_rate("random") == 0.5


def test_a_seat_that_is_drawn_is_the_seat_of_each_such_game(tmp_path):
    """Whoever sits first moves, the others do not: their results are those of their seats."""
    pool = OpponentPool(None, scripted=[FIRST])
    with at_table(
        ALWAYS, n=4, seat="random", pool=pool, wrappers=[{"monitor": {"dir": str(tmp_path)}}]
    ) as env:
        env.reset()
        play(env, 40)
    rows = [row for i in range(4) for row in rows_of_file(tmp_path, i)]
    assert {(row["seat"], row["l"], row["r"], row["result"]) for row in rows} == {
        ("0", "1", "-1.0", "-1.0"),
        ("1", "0", "1.25", "1.0"),
        ("2", "0", "0.0", "-1.0"),
    }
    for row in pool.results.rows():
        assert row.games == sum(int(one["seat"]) == row.seat for one in rows)


@pytest.mark.parametrize("mode", MODES)
def test_of_a_team_an_agent_that_is_out_before_its_first_move_has_its_own_game(mode, tmp_path):
    make = partial(Table, (0.3, 0.4, 0.3))
    with at_table(
        make, mode, seat=["bob", "cyd"], wrappers=[{"monitor": {"dir": str(tmp_path)}}]
    ) as env:
        env.reset()
        play(env, 40)
    for i in range(3):
        for row, seat in ((2 * i, "bob"), (2 * i + 1, "cyd")):
            rows = rows_of_file(tmp_path, row)
            expected = [game[:2] for game in in_a_loop(make, 5 + i, len(rows), seat)]
            assert [(float(one["r"]), int(one["l"])) for one in rows] == expected


class Late(Alike, ParallelEnv):
    """Bob joins after two steps, if the game is not over by then; or never, or is done at once."""

    metadata = {"name": "late"}
    possible_agents = ["ann", "bob"]
    render_mode = None

    def __init__(self):
        self.spaces = spaces.Box(-9, 9, (2,), np.float64), spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.draw_from(seed)
        self.agents, self.time, self.plan = ["ann"], 0, int(self.rng.integers(2))
        return {"ann": np.zeros(2)}, {"ann": {}}

    def step(self, actions):
        self.time += 1
        were = self.agents
        done = self.time == 4 or (self.time == 2 and self.plan == 0)
        self.agents = [] if done else ["ann", "bob"] if self.time >= 2 else ["ann"]
        seen = {agent: np.array([self.time, 0.0]) for agent in {*were, *self.agents}}
        rewards = {agent: 1.0 if agent == "ann" else 2.0 for agent in were}
        flags = dict.fromkeys(were, done)
        return seen, rewards, flags, dict.fromkeys(were, False), {agent: {} for agent in were}


@pytest.mark.parametrize("mode", MODES)
def test_a_game_that_the_learner_never_joined_is_not_one_of_its_games(mode, tmp_path):
    pool = OpponentPool(None, scripted=[FIRST])
    with at_table(Late, mode, pool=pool, wrappers=[{"monitor": {"dir": str(tmp_path)}}]) as env:
        env.reset()
        play(env, 40)
    rows = [row for i in range(3) for row in rows_of_file(tmp_path, i)]
    assert {(row["r"], row["l"], row["result"]) for row in rows} == {("4.0", "2", "0.0")}
    assert pool.results.rows()[0].draws == len(rows) > 30


class Never(Late):
    """Bob is never in the game."""

    def step(self, actions):
        result = super().step(actions)
        self.agents = self.agents[:1]
        return tuple({"ann": one["ann"]} for one in result)


@pytest.mark.parametrize("mode", MODES)
def test_an_evaluation_ends_where_the_learner_joins_no_game(mode):
    with at_table(Never, mode) as env:
        played = vecwrap.evaluate(env, first, episodes=6, progress=False)
    assert (played.returns.tolist(), played.lengths.tolist()) == ([0.0] * 6, [0] * 6)


class Failing(Table):
    """Its third game raises in the opening move."""

    def step(self, action):
        if self.games == 3 and not self.time:
            raise RuntimeError("as asked")
        super().step(action)


def test_a_game_that_is_lost_before_the_first_move_has_no_result(tmp_path):
    pool = OpponentPool(None, scripted=[FIRST])
    pool.records = True
    chain = [{"opponents": {"pool": pool, "seat": "bob"}}, {"monitor": {"dir": str(tmp_path)}}]
    make = partial(Failing, (1.0, 0.0, 0.0))
    with vecwrap.build(
        make,
        n=1,
        backend="dummy",
        seed=5,
        on_failure="restart",
        max_restarts=1000,
        restart_backoff=0,
        wrappers=chain,
    ) as env:
        infos = env.reset()[1]
    rows = rows_of_file(tmp_path, 0)
    results = [row["result"] for row in rows]
    assert results[:4] == ["1.0", "1.0", "", "1.0"]
    assert [row["lost"] for row in rows] == ["0" if result else "1" for result in results]
    assert infos["games_ended"][0] == pool.results.rows()[0].games == len(rows) - results.count("")
