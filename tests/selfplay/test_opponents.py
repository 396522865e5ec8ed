"""The wrapper ``opponents``: what the learner sees is what a loop over the raw game gives, with the
same opponents.
"""

import zlib
from functools import partial

import numpy as np
import pytest

import vecwrap
from tests.helpers.backends import DummyBackend, ShmemBackend
from tests.helpers.multi_agent_games import Party, Turns, copied
from vecwrap import OpponentPool
from vecwrap.errors import PlanError, SubEnvError
from vecwrap.rows import batch as batches
from vecwrap.rows.batch import leaves
from vecwrap.rows.compare import assert_same
from vecwrap.rows.infos import row_of
from vecwrap.selfplay.opponents import Opponents
from vecwrap.sources.source_factories import GameFactory
from vecwrap.testing import Subject
from vecwrap.testing import wrappers as kit

STREAM = 0x0110
BACKENDS = {
    "dummy": {},
    "threads": {"workers": 2},
    "shmem": {"workers": 2},
    "subprocess": {"workers": 3},
}
MODES = ["same_step", "next_step", "disabled", "episodic"]


def tictactoe():
    from pettingzoo.classic.tictactoe.tictactoe import env

    return env()


def texas():
    from pettingzoo.classic.rlcard_envs.texas_holdem import env

    return env(num_players=3)


def rps():
    from pettingzoo.classic.rps.rps import parallel_env

    return parallel_env(max_cycles=5)


GAMES = {"tictactoe": tictactoe, "texas": texas, "turns": Turns, "party": Party, "rps": rps}


def move(seen, shift, n):
    """A legal action that depends on everything that is seen."""
    legal = (
        np.flatnonzero(seen["action_mask"])
        if isinstance(seen, dict) and "action_mask" in seen
        else np.arange(n)
    )
    if not len(legal):
        return 0  # of a row that rests
    parts = sorted(leaves(seen), key=lambda part: part[0])
    whole = b"".join(np.ascontiguousarray(array, np.float64).tobytes() for _, array in parts)
    return int(legal[(zlib.crc32(whole) + shift) % len(legal)])


def one(observations, *, action_masks=None):
    return _moves(observations, 1, action_masks)


def two(observations, *, action_masks=None):
    return _moves(observations, 2, action_masks)


def _moves(observations, shift, masks):
    count = len(leaves(observations)[0][1])
    rows = [batches.row(observations, i) for i in range(count)]
    if masks is not None:
        assert all(
            np.array_equal(row["action_mask"], mask) for row, mask in zip(rows, masks, strict=True)
        )
    return [move(row, shift, N["n"]) for row in rows]


N = {}  # how many actions a game has, where nothing tells
SHIFTS = {f"{__name__}:one": 1, f"{__name__}:two": 2}


@pytest.fixture(autouse=True)
def number_of_actions():
    N.clear()
    yield
    N.clear()


class Reference:
    """The learner's transitions in a loop over a raw game."""

    def __init__(self, make, seed, seat):
        self.env, self.seed, self.seat = make(), seed, seat
        self.agents = list(self.env.possible_agents)
        self.episode = 0
        self.pool = OpponentPool(None, scripted=list(SHIFTS))
        self.transitions, self.ends = [], []

    def draw(self):
        rng = np.random.default_rng([self.seed, self.episode, STREAM])
        name = self.pool.draw(rng, "uniform")
        seat = int(rng.integers(len(self.agents)))
        self.episode += 1
        return name, seat if self.seat is None else self.seat

    def play(self, number):
        while len(self.ends) < number:
            name, seat = self.draw()
            seed = self.seed if self.episode == 1 else None
            found = self._run(seed, name, seat)
            if found:
                self.transitions += found
                self.ends.append((name, seat))

    def _run(self, seed, name, seat):
        return (self._one if hasattr(self.env, "agent_iter") else self._all)(
            seed, name, self.agents[seat], seat
        )

    def _one(self, seed, name, me, seat):
        env, n = self.env, self.env.action_space(me).n
        env.reset(seed=seed)
        found, before, early = [], None, 0.0
        for agent in env.agent_iter():
            seen, reward, terminated, truncated, _ = env.last()
            seen, done = copied(seen), terminated or truncated
            if agent == me and before is None:
                early += reward
            elif agent == me:
                found.append(
                    (*before, float(reward) + early, bool(terminated), bool(truncated), seen)
                )
                early = 0.0
            if done:
                env.step(None)
                continue
            action = move(seen, 0 if agent == me else SHIFTS[name], n)
            before = (seen, action) if agent == me else before
            env.step(action)
        return found

    def _all(self, seed, name, me, seat):
        env, n = self.env, self.env.action_space(me).n
        seen, _ = env.reset(seed=seed)
        seen, found, left = copied(seen), [], False
        while env.agents:
            mine = [agent for agent in env.agents if agent == me and not left]
            actions = {
                agent: move(seen[agent], 0 if agent in mine else SHIFTS[name], n)
                for agent in env.agents
            }
            after, rewards, terminations, truncations, _ = env.step(dict(actions))
            if mine:
                ends = bool(terminations[me]), bool(truncations[me])
                found.append((seen[me], actions[me], float(rewards[me]), *ends, copied(after[me])))
                left = any(ends)
            seen = copied(after)
        return found


class Learner(vecwrap.VecEnvWrapper):
    """Notes the learner's transitions, and who was played."""

    def __init__(self, env):
        super().__init__(env)
        n = env.num_envs
        self.seen, self.actions, self.transitions, self.ends = (
            [None] * n,
            [0] * n,
            [[] for _ in range(n)],
            [[] for _ in range(n)],
        )

    def on_actions(self, actions, env_ids):
        for i, action in zip(env_ids.tolist(), actions.tolist(), strict=True):
            self.actions[i] = action
        return actions

    def on_step(self, step):
        for k, i in enumerate(step.env_ids.tolist()):
            seen = copied(batches.row(step.observations, k))
            done, first = bool(step.dones[k]), bool(step.first[k])
            if step.acted[k]:
                last = copied(batches.row(step.final_obs, k)) if done and first else seen
                paid, *flags = (
                    step.rewards[k].item(),
                    bool(step.terminations[k]),
                    bool(step.truncations[k]),
                )
                self.transitions[i].append((self.seen[i], self.actions[i], paid, *flags, last))
            elif not first:
                assert not step.observed[k]
                assert not step.rewards[k]
            if done and step.observed[k]:
                info = row_of(step.infos, k)
                self.ends[i].append((info["opponent"], info["seat"]))
            self.seen[i] = seen


def build(make, mode, backend, n=3, **options):
    settings = {} if backend == "dummy" else BACKENDS[backend]
    return vecwrap.build(make, n=n, backend=backend, autoreset=mode, **settings, **options)


def drive(env, games, rng=None):
    """Play until each row has ended so many episodes; with ``rng``, some rows at a time."""
    learner, n = env.chain[0], env.num_envs
    env.reset(seed=11)
    while min(map(len, learner.ends)) < games:
        act = np.array([move(seen, 0, env.single_action_space.n) for seen in learner.seen])
        if rng is None:
            result = env.step(act)
            ids = np.arange(n)
        else:
            ids = np.flatnonzero(rng.random(n) < 0.6)
            if not len(ids):
                continue
            env.send(act[ids], ids)
            result = env.recv()
        if (
            env.core.autoreset.value in ("disabled", "episodic")
            and (ended := (result[2] | result[3])).any()
        ):
            mask = np.zeros(n, bool)
            mask[ids[ended]] = True
            if env.core.autoreset.value == "disabled" or (rng is None or rng.random() < 0.5):
                env.reset(options={"reset_mask": mask})


def check(make, env, games, seat=None):
    learner = env.chain[0]
    for i in range(env.num_envs):
        reference = Reference(make, 11 + i, seat)
        reference.play(games)
        assert learner.ends[i][:games] == reference.ends
        assert_same(learner.transitions[i][: len(reference.transitions)], reference.transitions)


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize(
    ("partial", "mode"),
    [
        *(pytest.param(True, mode, id=f"partial-{mode}") for mode in MODES),
        *(
            pytest.param(
                False,
                mode,
                id=f"whole-{mode}",
                marks=() if mode == "same_step" else pytest.mark.full,
            )
            for mode in MODES
        ),
    ],
)
def test_transitions_are_those_of_a_loop_over_the_raw_game(game, mode, partial):
    make = GAMES[game]
    N["n"] = make().action_space(make().possible_agents[0]).n
    with Learner(Opponents(build(make, mode, "dummy"), list(SHIFTS))) as env:
        drive(env, 6, np.random.default_rng(1) if partial else None)
        check(make, env, 6)


@pytest.mark.parametrize("backend", list(BACKENDS)[1:])
@pytest.mark.parametrize("game", ["tictactoe", "party"])
@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
def test_they_are_the_same_on_every_backend(game, backend, partial):
    make = GAMES[game]
    N["n"] = make().action_space(make().possible_agents[0]).n
    with Learner(Opponents(build(make, "same_step", backend), list(SHIFTS))) as env:
        drive(env, 4, np.random.default_rng(1) if partial else None)
        check(make, env, 4)


def test_batches_of_rows_come_as_they_are_ready():
    N["n"] = 9
    with Learner(
        Opponents(build(tictactoe, "same_step", "shmem", n=4, batch_size=2), list(SHIFTS))
    ) as env:
        env.reset(seed=11)
        learner = env.chain[0]
        env.send(np.array([move(seen, 0, 9) for seen in learner.seen]))
        while min(map(len, learner.ends)) < 4:
            ids = env.recv()[4]["env_id"]
            assert len(ids) == 1  # of the two rows of a game
            env.send(np.array([move(learner.seen[i], 0, 9) for i in ids]), ids)
        for _ in range(3):
            env.recv()
        check(tictactoe, env, 4)


@pytest.mark.parametrize("seat", ["player_1", "player_2"])
def test_a_seat_can_be_fixed(seat):
    N["n"] = 9
    with Learner(Opponents(build(tictactoe, "same_step", "dummy"), list(SHIFTS), seat=seat)) as env:
        drive(env, 4)
        check(tictactoe, env, 4, seat=["player_1", "player_2"].index(seat))


class Counting:
    """A policy that counts its calls and their rows, and plays any legal move."""

    def __init__(self):
        self.rows = []

    def __call__(self, observations, *, action_masks):
        self.rows.append(len(action_masks))
        return action_masks.argmax(axis=1)


def test_rows_with_the_same_opponent_are_one_call_and_only_where_it_is_their_turn():
    pool = OpponentPool(None, scripted=["random"])
    pool.current = policy = Counting()
    with Opponents(build(tictactoe, "same_step", "dummy", n=6), pool, current=1.0) as env:
        env.reset(seed=1)
        second = int((env.seats == 1).sum())
        assert policy.rows == [second]  # who sits second waits for a first move
        env.step(env.action_masks().argmax(axis=1))
        assert policy.rows == [second, 6]


def test_simultaneous_games_are_one_call_and_one_step():
    class Rock:
        calls = 0

        def __call__(self, observations):
            Rock.calls += 1
            return np.zeros(len(observations), int)

    pool = OpponentPool(None)
    pool.current = Rock()
    with Opponents(build(rps, "same_step", "dummy", n=5), pool, current=1.0) as env:
        env.reset(seed=1)
        rewards = env.step([0, 1, 2, 0, 1])[1]
        assert Rock.calls == 1
        assert rewards.tolist() == [0, 1, -1, 0, 1]


def test_an_opponent_never_changes_within_a_game():
    with Opponents(build(tictactoe, "same_step", "dummy", n=4), list(SHIFTS)) as env:
        N["n"] = 9
        _, infos = env.reset(seed=1)
        games, seen = infos["opponent"].tolist(), set()
        for _ in range(60):
            *_, terminations, _, infos = env.step(env.action_masks().argmax(axis=1))
            for i, done in enumerate(terminations):
                assert infos["opponent"][i] == games[i]
                if done:
                    games[i] = env.opponents[i]
                    seen.add(games[i])
                else:
                    assert infos["seat"][i] == env.seats[i, 0]
                assert env.opponents[i] == games[i]
        assert seen == set(SHIFTS)


class Memory:
    """A policy with a state: its moves depend on how many it has made since its game began."""

    def __init__(self):
        self.seen = []

    def predict(
        self, observations, state=None, episode_start=None, deterministic=True, action_masks=None
    ):
        m = len(action_masks)
        number = (
            np.zeros((1, m, 2))
            if state is None
            else np.where(episode_start[None, :, None], 0, state[0])
        )
        legal = [np.flatnonzero(mask) for mask in action_masks]
        self.seen += number[0, :, 0].tolist()
        moves = [
            ones[(3 + int(count)) % len(ones)]
            for ones, count in zip(legal, number[0, :, 0], strict=True)
        ]
        return np.array(moves), (number + 1,)


def test_what_a_policy_remembers_is_of_its_row_and_its_game():
    pool, memory = OpponentPool(None), Memory()
    pool.current = memory
    with Opponents(build(tictactoe, "same_step", "dummy", n=5), pool, current=1.0) as env:
        env.reset(seed=1)
        expected = [0.0] * int((env.seats == 1).sum())
        counts = np.where(env.seats[:, 0] == 1, 1, 0)
        assert memory.seen == expected
        for _ in range(30):
            del memory.seen[:]
            before = counts.copy()
            *_, terminations, _, _ = env.step(env.action_masks().argmax(axis=1))
            moved = list(memory.seen)
            # Each running game's opponent has moved once more; a new game in which it opens begins
            # at 0.
            assert set(moved) <= {*before.tolist(), 0.0}
            counts = np.where(terminations, np.where(env.seats[:, 0] == 1, 1, 0), before + 1)


def raises(observations):
    raise ZeroDivisionError("as asked")


def too_few(observations, *, action_masks):
    return action_masks.argmax(axis=1)[1:]


def illegal(observations, *, action_masks):
    return action_masks.argmin(axis=1)


def outside(observations, *, action_masks):
    return np.full(len(action_masks), 99)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (raises, "raised ZeroDivisionError: as asked"),
        (too_few, "its actions: expected shape"),
        (illegal, r"expected a legal move of Discrete\(9\); legal are \["),
        (outside, r"legal are \[.*got np.int64\(99\)"),
    ],
)
def test_an_opponent_that_fails_ends_its_own_games_alone(policy, said):
    pool = OpponentPool(None, scripted=["random"])
    pool.current = policy
    with Opponents(
        build(tictactoe, "same_step", "dummy", n=6), pool, current=0.5, seat="player_1"
    ) as env:
        env.reset(seed=2)
        failing = [i for i, name in enumerate(env.opponents) if name == "current"]
        assert 0 < len(failing) < 6
        with pytest.raises(SubEnvError, match=said) as error:
            env.step([4] * 6)
        assert 'opponent "current"' in str(error.value)
        assert "(" in str(error.value).partition("observations of shape")[2]
        failed = sorted(failure.index for failure in error.value.failures)
        assert set(failed) <= set(failing)
        if policy is not illegal:
            assert failed == failing
        assert error.value.others[4]["env_id"].tolist() == [i for i in range(6) if i not in failed]
        pool.current = Counting()
        mask = np.zeros(6, bool)
        mask[failed] = True
        env.reset(options={"reset_mask": mask})
        for _ in range(20):
            env.step(env.action_masks().argmax(axis=1))


def first_move(arrays):
    return lambda observations, *, action_masks: action_masks.argmax(axis=1)


def test_a_pool_that_is_removed_under_a_run_ends_only_games_that_need_it(tmp_path):
    folder, away = tmp_path / "pool", tmp_path / "away"
    pool = OpponentPool(folder, make=f"{__name__}:first_move")
    pool.add({"which": np.zeros(1)})
    pool.records = True
    with Opponents(build(tictactoe, "same_step", "dummy", n=4), pool, sample="latest") as env:
        env.reset(seed=1)
        pool.add({"which": np.ones(1)})
        folder.rename(away)
        with pytest.raises(SubEnvError, match=r"pool.*removed") as error:
            for _ in range(10):  # running games go on; one that begins needs the new snapshot
                env.step(env.action_masks().argmax(axis=1))
        assert len(error.value.failures) < 4
        assert error.value.others is not None
        away.rename(folder)
        mask = np.zeros(4, bool)
        mask[[failure.index for failure in error.value.failures]] = True
        env.reset(options={"reset_mask": mask})
        for _ in range(10):
            env.step(env.action_masks().argmax(axis=1))
        assert set(env.opponents) == {"000002"}
        played = pool.results.state()
    assert OpponentPool(folder).all_results().state() == played


def test_a_pipelines_evaluation_plays_one_member_and_leaves_nothing_in_the_pool(tmp_path):
    pool = OpponentPool(tmp_path / "pool", make=f"{__name__}:first_move", scripted=["random"])
    pool.add({"which": np.zeros(1)})
    files = sorted((tmp_path / "pool").rglob("*"))
    spec = vecwrap.PipelineSpec.from_dict(
        {
            "env": "pettingzoo:classic/tictactoe-v3",
            "n": 3,
            "backend": "dummy",
            "wrappers": [
                {"opponents": {"pool": str(tmp_path / "pool"), "sample": "pfsp", "current": 0.5}}
            ],
            "eval": {"wrappers": {"opponents": {"sample": "only:000001", "current": 0}}},
        }
    )
    (tmp_path / "pipeline.yaml").write_text(spec.to_yaml())
    with vecwrap.load(tmp_path / "pipeline.yaml", mode="eval") as env:
        vecwrap.evaluate(env, first_move({}), episodes=10, progress=False)
        assert set(env.opponents) == {"000001"}
    assert sorted((tmp_path / "pool").rglob("*")) == files


def test_results_are_recorded_but_not_those_against_the_present_policy(tmp_path):
    pool = OpponentPool(None, scripted=list(SHIFTS))
    pool.current = Counting()
    env = Opponents(build(tictactoe, "same_step", "dummy", n=6), pool, current=0.3)
    N["n"] = 9
    counted = {}
    with env:
        env.reset(seed=1)
        for _ in range(60):
            infos = env.step(env.action_masks().argmax(axis=1))[4]
            for i in np.flatnonzero(infos.get("_result", [])):
                end = row_of(infos, i)
                key = end["opponent"], end["seat"], int(end["result"])
                counted[key] = counted.get(key, 0) + 1
        env.eval()
        before = pool.results.state()
        for _ in range(20):
            env.step(env.action_masks().argmax(axis=1))
        assert pool.results.state() == before
    rows = {
        (row.opponent, row.seat): (row.wins, row.draws, row.losses) for row in pool.results.rows()
    }
    for opponent, seat in {key[:2] for key in counted}:
        assert rows[opponent, seat] == tuple(
            counted.get((opponent, seat, result), 0) for result in (1, 0, -1)
        )
    assert "current" not in pool.ratings("tests.selfplay.test_opponents:one").players


def test_a_monitor_writes_who_was_played(tmp_path):
    wrappers = [{"opponents": {"pool": ["random"]}}, {"monitor": {"dir": str(tmp_path)}}]
    with vecwrap.build(
        "pettingzoo:classic/tictactoe-v3", n=3, backend="dummy", wrappers=wrappers
    ) as env:
        env.reset(seed=1)
        for _ in range(20):
            env.step(env.action_masks().argmax(axis=1))
    lines = (tmp_path / "monitor.csv").read_text().splitlines()
    assert lines[1] == "r,l,t,env,lost,steps,opponent,seat,result"
    rows = [line.split(",") for line in lines[2:]]
    assert len(rows) > 5
    assert {row[6] for row in rows} == {"random"}
    assert all(float(row[0]) == float(row[8]) for row in rows)


def test_a_lost_game_is_no_result():
    class Deadly(Turns):
        possible_agents = ["ann", "bob"]

        def __init__(self):
            super().__init__(most=40)
            self.bonus = 99

        def next_one(self):
            return "ann" if self.agent_count() % 2 else "bob"

        def agent_count(self):
            return self.time

    games = vecwrap.build(
        Deadly, n=2, backend="subprocess", workers=2, on_failure="restart", seed=3
    )
    pool = OpponentPool(None)
    pool.current = lambda observations: np.zeros(len(observations), int)
    with Opponents(games, pool, current=1.0, seat="bob") as env:
        env.reset()
        env.step([0, 0])
        _, rewards, _, truncations, infos = env.step([4, 0])
        assert truncations.tolist() == [True, False]
        assert rewards[0] == 0
        assert "result" not in infos
        assert pool.results.rows() == []
        for _ in range(5):
            env.step([0, 0])


@pytest.mark.parametrize("mode", MODES)
def test_a_team_is_several_rows(mode):
    with Opponents(
        build(texas, mode, "dummy", n=2), ["random"], seat=["player_0", "player_2"]
    ) as env:
        assert env.num_envs == 4
        assert env.row_agents.tolist() == ["player_0", "player_2"] * 2
        assert env.row_games.tolist() == [0, 0, 1, 1]
        env.reset(seed=1)
        scores, ends = np.zeros(4), 0
        for _ in range(60):
            masks = env.action_masks()
            assert (masks.any(axis=1) == env.to_move).all()
            _, rewards, terminations, truncations, _ = env.step(masks.argmax(axis=1))
            scores += rewards
            ended = terminations | truncations
            ends += int(ended.sum())
            if mode == "disabled" and ended.any():
                both = (~env.alive).reshape(2, 2).all(axis=1).repeat(2)
                if both.any():
                    env.reset(options={"reset_mask": both})
        assert ends > (2 if mode == "episodic" else 8)
        with pytest.raises(
            vecwrap.errors.ArgumentError, match="all of the learner's seats of a game or none"
        ):
            env.send([0], [1])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            {"seat": "player_3"},
            'seat: expected "random" or agents .* got \'player_3\'. Did you mean "player_',
        ),
        ({"seat": ["player_1", "player_2"]}, "one that is left for opponents"),
        ({"seat": []}, "expected one agent or more"),
        ({"current": 1.5}, "current: expected a share from 0 to 1"),
        ({"pool": []}, "expected members to play against, got an empty pool"),
        ({"pool": ["randm"]}, 'Did you mean "random"'),
        ({"sample": "newest"}, "sample: expected latest, uniform"),
    ],
)
def test_bad_arguments_are_refused_when_it_is_built(arguments, said):
    with pytest.raises(PlanError, match=said):
        vecwrap.build(
            "pettingzoo:classic/tictactoe-v3",
            n=1,
            backend="dummy",
            wrappers=[{"opponents": arguments}],
        )


def test_environments_of_one_agent_are_refused():
    with pytest.raises(PlanError, match='"opponents": expected games of several agents'):
        vecwrap.build("CartPole-v1", n=1, backend="dummy", wrappers=["opponents"])


def test_a_seat_that_is_never_to_move_gets_a_game_in_a_hundred():
    """As the others move, these have scores, and no moves of the learner's."""
    with Opponents(build(Turns, "same_step", "dummy", n=1), list(SHIFTS), seat="dot") as env:
        N["n"] = 5
        assert env.reset(seed=1)[1]["games_ended"] == 99
        for _ in range(2):
            *_, terminations, truncations, infos = env.step([0])
            assert terminations | truncations
            assert infos["games_ended"] == 100
        assert sum(row.games for row in env.pool.results.rows()) == 299


def test_the_stream_of_a_game_does_not_depend_on_the_others():
    """Not even with opponents that draw their moves."""

    def play(n, start):
        with Opponents(
            build(tictactoe, "same_step", "dummy", n=n, start_index=start), ["random"]
        ) as env:
            env.reset(seed=5)
            seen = [env.step(env.action_masks().argmax(axis=1)) for _ in range(25)]
            return [
                [(batches.row(step[0], i), *(part[i] for part in step[1:4])) for step in seen]
                for i in range(n)
            ]

    together = play(3, 0)
    for i in range(3):
        assert_same(together[i], play(1, i)[0])


def games(make_backend, k):
    """A constructor of backends of games of ``k``, for the laws of wrappers."""

    def make(factories, batch_size=None, **options):
        parts = [GameFactory(factory, k) for factory in factories]
        return make_backend(
            parts, batch_size=None if batch_size is None else batch_size * k, **options
        )

    return make


LAWS = [
    kit.correct_in_every_autoreset_mode,
    kit.batch_size_invariance,
    kit.arrival_order_invariance,
    kit.arrays_are_not_modified,
    kit.results_never_change,
    kit.observations_are_in_the_space,
    kit.resumes_after_load,
]
OVER_SHMEM = partial(ShmemBackend, workers=2)
# The others say of rows what they say of all wrappers.
IN_SUITE = (
    kit.correct_in_every_autoreset_mode,
    kit.arrival_order_invariance,
    kit.resumes_after_load,
)


@pytest.mark.parametrize(
    ("backend", "law"),
    [
        *(
            pytest.param(
                DummyBackend,
                law,
                id=f"dummy-{law.__name__}",
                marks=() if law in IN_SUITE else pytest.mark.full,
            )
            for law in LAWS
        ),
        pytest.param(OVER_SHMEM, LAWS[0], id=f"shmem-{LAWS[0].__name__}"),
        *(
            pytest.param(OVER_SHMEM, law, id=f"shmem-{law.__name__}", marks=pytest.mark.full)
            for law in LAWS[1:]
        ),
    ],
)
def test_it_keeps_the_laws_of_wrappers(law, backend):
    wrap = partial(Opponents, pool=["random"])
    law(Subject(wrap, Turns, steps=16, backend=games(backend, 4), ignore=("opponent", "seat")))
