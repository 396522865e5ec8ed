"""Games of several agents: what their rows give is what a loop over the raw game gives, bit for
bit.
"""

import itertools
from functools import cache, partial

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo.utils.wrappers import BaseWrapper, OrderEnforcingWrapper

import vecwrap
from tests.helpers.backends import DummyBackend, ShmemBackend, SubprocessBackend, ThreadsBackend
from tests.helpers.multi_agent_games import (
    Crowd,
    Guests,
    LingeringCrowd,
    Loop,
    Party,
    Returning,
    Turns,
    choose,
    copied,
)
from vecwrap.errors import ArgumentError, PlanError, ResetNeededError, SubEnvError
from vecwrap.rows import batch as batches
from vecwrap.rows.compare import assert_same
from vecwrap.rows.infos import row_of
from vecwrap.sources.source_factories import GameFactory
from vecwrap.wrappers.monitor import Monitor

BACKENDS = {
    "dummy": DummyBackend,
    "threads": partial(ThreadsBackend, workers=2),
    "shmem": partial(ShmemBackend, workers=2),
    "shmem, parent's share": partial(ShmemBackend, workers=1, parent_share=True),
    "subprocess": partial(SubprocessBackend, workers=2),
}


@pytest.fixture(params=BACKENDS)
def backend(request):
    return BACKENDS[request.param]


MODES = ["same_step", "next_step", "disabled", "episodic"]


def tictactoe():
    from pettingzoo.classic.tictactoe.tictactoe import env

    return env()


def connect_four():
    from pettingzoo.classic.connect_four.connect_four import env

    return env()


def rps():
    from pettingzoo.classic.rps.rps import env

    return env()


def leduc():
    from pettingzoo.classic.rlcard_envs.leduc_holdem import env

    return env()


def texas():
    from pettingzoo.classic.rlcard_envs.texas_holdem import env

    return env(num_players=3)


def chess():
    from pettingzoo.classic.chess.chess import env

    return env()


def spread():
    from mpe2.simple_spread.simple_spread import parallel_env

    return parallel_env(max_cycles=6)


def rps_at_once():
    from pettingzoo.classic.rps.rps import parallel_env

    return parallel_env(max_cycles=5)


def reference():
    from mpe2.simple_reference.simple_reference import parallel_env

    return parallel_env(max_cycles=5)


def archers():
    from pettingzoo.butterfly.knights_archers_zombies.knights_archers_zombies import parallel_env

    return parallel_env(max_cycles=9)


def pursuit():
    from pettingzoo.sisl.pursuit.pursuit import parallel_env

    return parallel_env(max_cycles=5, n_pursuers=3, n_evaders=4, x_size=8, y_size=8)


class Saying(BaseWrapper):
    """Has state of its own, in the way of what it wraps."""

    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        self.infos = {agent: {} for agent in self.agents}

    def step(self, action):
        super().step(action)
        self.infos = {
            agent: {"of": agent, "last": -1 if action is None else int(action)}
            for agent in self.agents
        }


class Doubling(BaseWrapper):
    """Has ways of its own to look and to pay."""

    def observe(self, agent):
        seen = super().observe(agent)
        return {**seen, "observation": seen["observation"][::-1]}

    def last(self, observe=True):
        seen, paid, *others = super().last(observe)
        return seen, 2 * paid, *others


def wrapped(*around):
    env = tictactoe()
    for wrapper in around:
        env = wrapper(env)
    return env


def illegal():
    """Moves that are illegal are let through to PettingZoo's own wrapper, which ends the game."""
    return OrderEnforcingWrapper(Blind(tictactoe()))


class Blind(BaseWrapper):
    def observe(self, agent):
        seen = super().observe(agent)
        return {**seen, "action_mask": np.ones_like(seen["action_mask"])}


GAMES = {
    "turns": Turns,
    "party": Party,
    "guests": Guests,
    "returning": Returning,
    "crowd": Crowd,
    "lingering crowd": LingeringCrowd,
    "tictactoe": tictactoe,
    "connect four": connect_four,
    "rps": rps,
    "leduc": leduc,
    "texas": texas,
    "spread": spread,
    "chess": chess,
    "own state": partial(wrapped, Saying),
    "own state, in order": partial(wrapped, Saying, OrderEnforcingWrapper),
    "own ways": partial(wrapped, Doubling),
    "own ways, in order": partial(wrapped, Doubling, OrderEnforcingWrapper),
    "illegal moves": illegal,
    "rps at once": rps_at_once,
    "reference": reference,
    "archers": archers,
    "pursuit": pursuit,
}
OF_FOUR = ("party", "turns", "guests", "returning", "crowd", "lingering crowd", "archers")
AGENTS = {**dict.fromkeys(OF_FOUR, 4), "spread": 3, "texas": 3, "pursuit": 3}
STEPS = {"chess": 60, "archers": 30, "pursuit": 40}  # of those that cost much


def parts(make, k, games=4):
    return [GameFactory(make, k)] * games


class Look(vecwrap.VecEnvWrapper):
    """Notes each agent's transitions: the action when it acts, the rest when that is complete."""

    def __init__(self, env):
        super().__init__(env)
        n, core = env.num_envs, env.core
        self.names = [core.description.agents[i % core.rows.agents] for i in range(n)]
        self.seen, self.before, self.moves = [None] * n, [None] * n, [0] * n
        self.movers, self.present = np.zeros(n, bool), np.zeros(n, bool)
        self.transitions = [[] for _ in range(n)]
        self.actions = [0] * n
        self.games_over = 0

    def on_actions(self, actions, env_ids):
        for i, action in zip(env_ids.tolist(), actions.tolist(), strict=True):
            self.actions[i] = action
        return actions

    def on_step(self, step):
        assert not (step.to_move & ~step.alive).any()
        assert not (
            step.alive & step.dones & ~step.first
        ).any()  # in the step in which it leaves, and at rest
        assert step.alive[step.observed & ~step.dones].all()
        assert not (step.rewards[~step.observed]).any()
        dones, completed = step.dones, step.completed
        for k, i in enumerate(step.env_ids.tolist()):
            seen = copied(batches.row(step.observations, k))
            if step.acted[k]:
                assert self.movers[i]
                self.before[i] = self.seen[i], self.actions[i]
                self.moves[i] += 1
            ended = bool(dones[k] and step.observed[k] and not step.cut_off[k])
            moved = self.before[i] is not None
            assert completed[k] == bool(moved and step.observed[k] and (ended or not step.first[k]))
            if completed[k] or ended:
                final = bool(dones[k] and step.first[k])
                last = copied(batches.row(step.final_obs, k)) if final else seen
                info = row_of(step.final_infos if final else step.infos, k)
                paid, *flags = (
                    step.rewards[k].item(),
                    bool(step.terminations[k]),
                    bool(step.truncations[k]),
                )
                row = self.before[i], paid, *flags, last, info
                self.transitions[i].append(row)
                self.before[i] = None
            if step.first[k]:
                self.moves[i], self.before[i] = 0, None
            if step.observed[k] or step.first[k]:
                self.seen[i] = seen
            elif self.seen[i] is not None:
                assert_same(self.seen[i], seen)
        self.movers[step.env_ids], self.present[step.env_ids] = step.to_move, step.alive
        assert (self.env.to_move[step.env_ids] == step.to_move).all()
        assert (self.env.alive[step.env_ids] == step.alive).all()

    def choices(self, ids):
        n = self.single_action_space.n
        return [
            choose(self.names[i], self.moves[i], self.seen[i], n) if self.movers[i] else 0
            for i in ids
        ]


def held_to_the_loop(
    backend, name, mode, *, games=4, steps=None, partial_sends=False, masked_resets=False
):
    make, k = GAMES[name], AGENTS.get(name, 2)
    games = 2 if name in STEPS else games
    rng = np.random.default_rng(5)
    with Look(backend(parts(make, k, games), autoreset=mode)) as env:
        env.reset(seed=30)
        for _ in range(steps or STEPS.get(name, 90)):
            going = np.ones(games, bool)
            if partial_sends:
                going = rng.random(games) < 0.6
                going[rng.integers(games)] = True
            over = ~env.present.reshape(games, k).any(axis=1)
            if masked_resets and rng.random() < 0.2:
                over = over | (rng.random(games) < 0.3)
            elif mode in ("same_step", "next_step"):
                over[:] = False
            if over.any():
                env.reset(options={"reset_mask": over.repeat(k)})
            ids = np.flatnonzero(going.repeat(k))
            actions = env.choices(ids)
            if partial_sends:
                env.send(actions, ids)
                env.recv()
            else:
                env.step(actions)
        assert sum(map(len, env.transitions)) > 40
        # Games that are broken off are in no loop; they are compared with dummy's.
        for game in range(0 if masked_resets else games):
            enough = [len(env.transitions[game * k + seat]) for seat in range(k)]
            expected = Loop(make(), 30 + game).play(1000, enough=enough)
            for seat in range(k):
                got = env.transitions[game * k + seat]
                wanted = expected[env.names[seat]][: len(got)]
                for number, (one, other) in enumerate(zip(wanted, got, strict=True)):
                    assert_same(one, other, f"game {game}, {env.names[seat]}, transition {number}")
        return env.transitions


# Games whose agents come, wait and leave in each way that there is; the others are alike in each
# mode.
IN_EVERY_MODE = ("turns", "party", "guests", "returning", "crowd", "lingering crowd", "tictactoe")


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        (name, mode)
        if name in IN_EVERY_MODE or mode == MODES[0]
        else pytest.param(name, mode, marks=pytest.mark.full)
        for name in GAMES
        for mode in MODES
    ],
)
def test_transitions_are_those_of_a_loop_over_the_raw_game(name, mode):
    held_to_the_loop(DummyBackend, name, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["turns", "party", "tictactoe"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_on_every_backend_with_partial_sends(backend, name, mode):
    held_to_the_loop(BACKENDS[backend], name, mode, partial_sends=True)


@cache
def broken_off(backend, name, mode):
    return held_to_the_loop(BACKENDS[backend], name, mode, partial_sends=True, masked_resets=True)


@pytest.mark.xdist_group("games that are broken off")  # which keeps what is played
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["turns", "party"])
@pytest.mark.parametrize("backend", ["threads", "shmem", "subprocess"])
def test_games_that_are_broken_off_by_masked_resets_go_on_alike_on_every_backend(
    backend, name, mode
):
    assert_same(broken_off("dummy", name, mode), broken_off(backend, name, mode))


def test_a_masked_reset_seeds_games_by_their_numbers(backend):
    with Look(backend(parts(Turns, 4, 3), start_index=10)) as env:
        env.reset(seed=1)
        env.reset(seed=[50, 51, 52], options={"reset_mask": np.repeat([False, True, True], 4)})
        for game, seed in enumerate([11, 51, 52]):
            loop = Turns()
            loop.reset(seed=seed)
            np.testing.assert_array_equal(
                env.seen[4 * game][[0, 1, 3]], loop.observe("ann")[[0, 1, 3]]
            )
        with pytest.raises(
            ArgumentError, match="seed: expected 3 seeds, one for each game, got 12"
        ):
            env.reset(seed=list(range(12)))


def test_a_part_of_a_game_is_neither_sent_nor_reset(backend):
    with backend(parts(tictactoe, 2)) as env:
        env.reset(seed=1)
        with pytest.raises(
            ArgumentError,
            match=(
                r"env_ids: expected all rows of a game or none, got game 1 \(tictactoe_v3\) "
                r"without its rows 3 \(player_2\); agents of one game step and begin again "
                r"together"
            ),
        ):
            env.send([0, 0, 0], env_ids=[0, 1, 2])
        with pytest.raises(
            ArgumentError, match=r"reset_mask: .*got game 3 .*without its rows 6 \(player_1\)"
        ):
            env.reset(options={"reset_mask": np.arange(8) == 7})
        env.step([0] * 8)


def test_a_stream_comes_game_by_game_where_a_batch_is_less_than_all(backend):
    if backend is BACKENDS["shmem, parent's share"]:
        pytest.skip("a share of the parent's does not go with batch_size")
    with backend(parts(Turns, 4, 6), batch_size=8) as env:
        env.reset(seed=3)
        env.send([0] * 24)
        for _ in range(40):
            *_, infos = env.recv()
            ids = infos["env_id"]
            assert len(ids) == 8
            assert (np.bincount(ids // 4)[np.unique(ids // 4)] == 4).all()
            env.send([1] * 8, ids)
    with pytest.raises(
        PlanError,
        match="expected a multiple of 4, the agents of a game, got 6",
    ):
        backend(parts(Turns, 4, 6), batch_size=6)


def test_a_game_that_raises_takes_its_own_rows_and_no_others(backend):
    with backend(parts(Party, 4, 3), autoreset="next_step") as env:
        env.reset(seed=1)
        env.set_attr("bonus", -1.0, indices=range(4, 8))
        with pytest.raises(
            SubEnvError,
            match=(
                r"sub-environment 4 \(seed 2\), 0 in game 1, a party that raised RuntimeError "
                r"in step of its episode 1, after 0 steps: as asked\nThe other games are "
                r"unharmed; reset all agents of this one"
            ),
        ) as told:
            env.step([4] * 12)
        assert [error.index for error in told.value.failures] == [4, 5, 6, 7]
        assert told.value.others[4]["env_id"].tolist() == [0, 1, 2, 3, 8, 9, 10, 11]
        with pytest.raises(ResetNeededError, match=r"\[4, 5, 6, 7\] have ended or failed"):
            env.step([0] * 12)
        env.reset(options={"reset_mask": np.arange(12) // 4 == 1})
        env.step([0] * 12)


def test_calls_reach_each_game_once(backend):
    with backend(parts(Turns, 4, 2)) as env:
        env.reset(seed=1)
        assert env.get_attr("most") == (12,) * 8
        assert env.call("is_done", "ann", indices=[1, 6]) == (False, False)
        env.set_attr("most", 3)
        assert set(env.get_attr("most")) == {3}
        state = env.state_dict()
        assert state["sub_envs"] is None
        assert "turns" in state["sub_envs_missing"]
        assert [one.tolist() for one in env.call("state")] == [[0.0, -1.0]] * 8
        assert env.possible_agents == ("ann", "bob", "cyd", "dot")
        assert env.row_games.tolist() == [0] * 4 + [1] * 4
        assert env.row_agents.tolist() == ["ann", "bob", "cyd", "dot"] * 2


OF_THE_MODULE = spaces.Discrete(1000)


class Draws(Party):
    """Pays what it draws from an agent's space of actions, which all games share."""

    def action_space(self, agent):
        return OF_THE_MODULE

    def draw(self, agent):
        return self.action_space(agent).sample()

    def step(self, actions):
        observations, rewards, *rest = super().step(actions)
        return (
            observations,
            {agent: reward + self.draw(agent) for agent, reward in rewards.items()},
            *rest,
        )


class DrawsOfItsClass(Draws):
    action_spaces = {agent: spaces.Discrete(1000) for agent in range(4)}

    def action_space(self, agent):
        return self.action_spaces[agent]

    def draw(self, agent):
        return self.action_spaces[agent].sample()


class DrawsUnderOtherNames(Draws):
    def __init__(self):
        super().__init__()
        self.drawn = [OF_THE_MODULE]
        self.last = OF_THE_MODULE

    def draw(self, agent):
        return self.drawn[0].sample() + self.last.sample()


class DrawsInTurns(Turns):
    def action_space(self, agent):
        return OF_THE_MODULE

    def step(self, action):
        self.last_action = self.action_space("ann").sample()
        super().step(action if action is None else self.last_action)


def drawn_in_turns():
    from pettingzoo.utils.wrappers import BaseWrapper

    return BaseWrapper(DrawsInTurns())


def drawn_at_once():
    from pettingzoo.utils.wrappers import BaseParallelWrapper

    return BaseParallelWrapper(Draws())


@pytest.mark.parametrize(
    "make", [Draws, DrawsOfItsClass, DrawsUnderOtherNames, drawn_in_turns, drawn_at_once]
)
def test_what_a_game_draws_from_its_spaces_depends_on_no_other(make):
    def played(backend, games, start_index=0):
        with backend(parts(make, 4, games), start_index=start_index, autoreset="next_step") as env:
            env.reset(seed=3)
            return [env.step([0] * 4 * games)[:2] for _ in range(30)]

    expected = played(DummyBackend, 3)
    assert np.ptp([rewards for _, rewards in expected]) > 2
    for game in range(3):
        alone = played(DummyBackend, 1, game)
        assert_same(
            [rewards[4 * game : 4 * game + 4] for _, rewards in expected],
            [rewards for _, rewards in alone],
        )
    assert_same(expected, played(partial(SubprocessBackend, workers=2), 3))


def test_what_each_row_is_told_of_its_game_is_its_own(backend):
    with backend(parts(Turns, 4, 2)) as env:
        env.reset(seed=1)
        for answers in (env.get_attr("calls"), env.call("state"), env.call("tell")):
            answers[0][:] = [7, 7]
            assert [list(one) for one in answers[1:4]] == [list(answers[4])] * 3
            assert list(answers[1]) != [7, 7]
        assert set(map(tuple, env.get_attr("calls"))) == {()}


def test_an_attribute_of_a_game_has_one_value(backend):
    with backend(parts(Turns, 4, 2)) as env:
        env.reset(seed=1)
        env.set_attr("most", [3, 3, 3, 3, 5, 5, 5, 5])
        env.set_attr("calls", [np.ones(2)] * 4 + [[np.ones(2)]] * 4)
        assert env.get_attr("most") == (3,) * 4 + (5,) * 4
        with pytest.raises(
            ArgumentError,
            match=(
                r"set_attr\('most'\): expected one value for all agents of game 1 \(turns\), "
                r"which has it once, "
                "got 7 for bob and 8 for dot"
            ),
        ):
            env.set_attr("most", [6, 7, 8], indices=[0, 5, 7])
        assert env.get_attr("most") == (3,) * 4 + (5,) * 4
        env.set_attr("most", [9, 9], indices=[2, 0])
        assert env.get_attr("most") == (9,) * 4 + (5,) * 4


@pytest.mark.parametrize("name", ["dummy", "threads", "shmem", "subprocess"])
def test_a_lost_game_keeps_what_was_set_by_any_of_its_rows(name):
    with BACKENDS[name](parts(Turns, 4, 2), on_failure="restart", restart_backoff=0.0) as env:
        env.reset(seed=1)
        env.set_attr("most", 5, indices=[6])
        env.set_attr("most", 4, indices=[5])
        env.set_attr("bonus", -1.0, indices=[7])
        env.step([4] * 8)
        assert env.get_attr("most") == (12,) * 4 + (4,) * 4
        assert env.get_attr("bonus") == (0.0,) * 4 + (-1.0,) * 4


def test_a_game_that_comes_back_with_other_spaces_is_refused():
    made = []

    def make():
        made.append(Party())
        if len(made) > 2:
            made[-1].spaces = made[-1].spaces[0], spaces.Discrete(6)
        return made[-1]

    options = {"on_failure": "restart", "restart_backoff": 0.0, "max_restarts": 2}
    with DummyBackend(parts(make, 4, 2), **options) as env:
        env.reset(seed=1)
        env.set_attr("bonus", -1.0, indices=[4])
        with pytest.raises(
            SubEnvError,
            match="in make: 0: expected the action_space that it had .*, got Discrete.6",
        ):
            env.step([4] * 8)


class Picky(Turns):
    """Takes a level once."""

    taken = 0

    @property
    def level(self):
        return 0

    @level.setter
    def level(self, value):
        type(self).taken += 1
        if type(self).taken == 2:
            raise RuntimeError("no more levels")


def test_a_game_that_does_not_take_over_what_was_set_is_lost_with_all_of_its_rows():
    Picky.taken = 0
    options = {
        "on_failure": "restart",
        "restart_backoff": 0.0,
        "max_restarts": 1,
        "autoreset": "next_step",
    }
    with DummyBackend(parts(Picky, 4, 2), **options) as env:
        env.reset(seed=1)
        env.set_attr("level", 1, indices=[5])
        env.set_attr("bonus", -1.0, indices=[4])
        with pytest.raises(SubEnvError, match="no more levels") as told:
            env.step([4] * 8)
            env.step([0] * 8)
        assert {error.index for error in told.value.failures} == {4, 5, 6, 7}
        env.reset(options={"reset_mask": np.arange(8) > 3})
        env.step([0] * 8)


@pytest.mark.parametrize("loss", [-1.0, 99.0], ids=["raises", "dies"])
@pytest.mark.parametrize("name", ["dummy", "threads", "shmem", "subprocess"])
def test_nobody_is_in_a_lost_game_until_its_reset(name, loss):
    if loss > 0 and name in ("dummy", "threads"):
        pytest.skip("nothing is isolated there")
    backend = BACKENDS[name](
        parts(Turns, 4, 2), autoreset="episodic", on_failure="restart", restart_backoff=0.0
    )
    with backend as env:
        env.reset(seed=1)
        env.set_attr("bonus", loss, indices=range(4, 8))
        env.step([4] * 8)
        assert not env.alive[4:].any()
        env.set_attr("bonus", 0.0)
        for _ in range(30):
            *_, infos = env.step([0] * 8)
            assert (infos["alive"] == env.alive).all()
            assert not env.alive[4:].any()
            assert not env.to_move[4:].any()
        assert not env.alive.any()
        env.reset(options={"reset_mask": np.arange(8) > 3})
        assert env.alive.tolist() == [False] * 4 + [True] * 4


@pytest.mark.parametrize("mode", MODES)
def test_absent_agents_have_no_infos_of_the_game_before(mode):
    with DummyBackend(parts(Party, 4, 3), autoreset=mode) as env:
        env.reset(seed=2)
        absent = 0
        for number in range(120):
            over = ~env.alive.reshape(3, 4).any(axis=1)
            if over.any() and mode in ("disabled", "episodic"):
                _, infos = env.reset(options={"reset_mask": over.repeat(4)})
                opened = over.repeat(4)
            elif number % 10 == 9:
                opened = np.ones(12, bool)
                _, infos = env.reset()
            else:
                *_, infos = env.step([0] * 12)
                opened = env.core.slots.first
            gone = opened & ~env.alive
            absent += gone.sum()
            for i in np.flatnonzero(gone):
                assert not {"time", "opened"} & row_of(infos, i).keys()
        assert absent > 10


class Lopsided(Party):
    def action_space(self, agent):
        return spaces.Discrete(5 + agent)


class Twins(Party):
    possible_agents = [1, "1"]


class Nobody(Party):
    possible_agents = []


class Stingy(Party):
    def step(self, actions):
        observations, rewards, *rest = super().step(actions)
        return observations, {agent: rewards[agent] for agent in list(rewards)[1:]}, *rest


class Leaves(Turns):
    """Takes itself who is done out of ``agents``, all but the one whose turn it is."""

    def step(self, action):
        super().step(action)
        self.agents = [
            agent
            for agent in self.agents
            if not self.is_done(agent) or agent == self.agent_selection
        ]


class Stops(Turns):
    """Ends by having nobody in ``agents``."""

    def step(self, action):
        super().step(action)
        self.agents = [] if self.time > 2 else self.agents


class Growing(Turns):
    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        if self.last_action >= 0 or hasattr(self, "before"):
            self.spaces = spaces.Box(-1e6, 1e6, (5,), np.float64), self.spaces[1]
        self.before = True


class Stranger(Turns):
    def next_one(self):
        return "eve" if self.time > 2 else super().next_one()


class Vanishing(Party):
    def step(self, actions):
        result = super().step(actions)
        self.agents = self.agents[1:]
        return result


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            Lopsided,
            (
                "party: expected agents with equal spaces.*0: observations .*, actions "
                "Discrete.5.; 1: .*Discrete.6."
            ),
        ),
        (Twins, "party: possible_agents: expected each name once, got 1 again"),
        (
            Nobody,
            "party: expected possible_agents, a list of all agents that may ever take part, got ",
        ),
        (
            Stingy,
            (
                "0 in game 0, a party that raised PlanError in step.*: expected rewards of every "
                "agent that acts, got none"
            ),
        ),
        (
            Leaves,
            r"game \d, a turns that raised PlanError in step.*: \w+ is no longer in agents, but "
            r"last\(\) has not reported its end: expected the game to leave whoever is done in "
            r"agents until step\(None\)",
        ),
        (
            Stops,
            (
                r"game 0, a turns that raised .*: ann is no longer in agents, but last\(\) has not "
                r"reported its end"
            ),
        ),
        (Growing, "ann: expected the observation_space that it had when the vector was built"),
        (Stranger, r"expected an agent of possible_agents \(ann, bob, cyd, dot\), got 'eve'"),
        (Vanishing, r"\d is no longer in agents, though neither terminated nor truncated"),
    ],
)
def test_games_that_break_the_rules_are_refused_by_name(make, said):
    k = max(1, len(make.possible_agents))
    with (
        pytest.raises((SubEnvError, PlanError), match=f"(?s){said}"),
        DummyBackend(parts(make, k, 2)) as env,
    ):
        env.reset(seed=0)
        for _ in range(40):
            env.step([0] * 2 * k)


class Once(Party):
    comes_back = False


class Lingering(Once):
    """Leaves in ``agents`` who is done, and pays in arrays."""

    def reset(self, seed=None, options=None):
        result = super().reset(seed, options)
        self.dead = set()
        return result

    def step(self, actions):
        acting = {agent: action for agent, action in actions.items() if agent not in self.dead}
        self.agents = [agent for agent in self.agents if agent not in self.dead]
        observations, rewards, terminations, truncations, infos = super().step(acting)
        left = [agent for agent in acting if terminations[agent] or truncations[agent]]
        self.dead = (self.dead | set(left)) - set(self.agents)
        self.agents = self.agents + sorted(self.dead) if len(self.agents) else []
        return (
            observations,
            {agent: np.array([paid]) for agent, paid in rewards.items()},
            terminations,
            truncations,
            infos,
        )


def test_who_is_done_but_stays_in_agents_has_left():
    with DummyBackend(parts(Lingering, 4, 3)) as env, DummyBackend(parts(Once, 4, 3)) as twin:
        expected, got = twin.reset(seed=4), env.reset(seed=4)
        for _ in range(80):
            assert_same(expected, got)
            expected, got = twin.step([1] * 12), env.step([1] * 12)


def one_for_all(games):
    return games[0]


def test_a_factory_that_gives_one_game_for_all_is_refused():
    games = [Turns(), Turns()]
    made = itertools.cycle(games)
    with pytest.raises(
        ArgumentError, match="expected a new game from each call, got the same for games 0 and 2"
    ):
        DummyBackend(parts(lambda: next(made), 4, 3))
    with pytest.raises(
        SubEnvError, match="expected a new game from each call, got the same for games 0 and 1"
    ):
        SubprocessBackend(parts(partial(one_for_all, games), 4, 2), workers=1)


def test_random_legal_moves_of_64_tictactoes_end_every_game_and_add_up_to_nothing():
    with vecwrap.build(
        "pettingzoo:classic/tictactoe-v3", n=64, wrappers=["monitor"], seed=1, backend="dummy"
    ) as env:
        assert env.num_envs == 128
        env.reset()
        env.action_space.seed(0)
        rng, scores, ends = np.random.default_rng(0), np.zeros(128), 0
        for _ in range(60):
            masks = env.action_masks()
            assert masks.any(axis=1).sum() == 64
            assert (masks.any(axis=1) == env.to_move).all()
            actions = [rng.choice(np.flatnonzero(mask)) if mask.any() else 0 for mask in masks]
            _, rewards, terminations, truncations, infos = env.step(actions)
            np.testing.assert_array_equal(infos["action_mask"], env.action_masks())
            assert infos["action_mask"].dtype == np.int8
            assert not truncations.any()
            assert not (terminations[::2] ^ terminations[1::2]).any()
            scores += rewards
            ends += terminations.sum()
        assert ends > 700
        np.testing.assert_array_equal(scores[::2], -scores[1::2])
        assert scores.any()


def test_masks_among_the_observations_are_not_noted_again():
    with DummyBackend(parts(tictactoe, 2), batch_size=4) as env:
        env.reset(seed=1)
        env.send([0] * 8)
        *_, infos = env.recv()
        assert "action_mask" in infos
        assert env.call_state.results.reported_masks == {}


def test_debug_refuses_an_illegal_move_and_the_game_goes_on(backend):
    with backend(parts(tictactoe, 2), debug=True) as env:
        env.reset(seed=1)
        env.step([4] * 8)
        with pytest.raises(
            ArgumentError,
            match=(
                r"actions\[3\], for sub-environment 3 \(player_2 in game 1\): expected a legal "
                r"action, one of \[0, 1, 2, 3, 5, 6, 7, 8\], got (np.int64\()?4\)?; nothing "
                r"was stepped"
            ),
        ):
            env.step([0, 1, 0, 4, 0, 4, 0, 4])
        _, rewards, *_ = env.step([-1, 0] * 4)  # actions that are not used are not looked at
        assert not rewards.any()


def test_elsewhere_pettingzoos_own_wrapper_ends_an_illegal_move():
    with DummyBackend(parts(tictactoe, 2, 1)) as env:
        env.reset(seed=1)
        env.step([4, 0])
        _, rewards, terminations, truncations, _ = env.step([0, 4])
        assert rewards.tolist() == [0, -1]
        assert terminations.all()
        assert truncations.all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loss", ["raises", "dies"])
@pytest.mark.parametrize("name", ["dummy", "threads", "shmem", "subprocess"])
def test_a_lost_game_is_made_anew_and_the_others_do_not_notice(name, loss, mode):
    """All rows of the lost game that were in it end truncated; rows of other games are what they
    would have been.
    """
    if loss == "dies" and name in ("dummy", "threads"):
        pytest.skip("nothing is isolated there")
    k, games, lost = 4, 4, slice(4, 8)
    options = {"on_failure": "restart", "restart_backoff": 0.0, "autoreset": mode}
    if name not in ("dummy", "threads"):
        options["workers"] = games  # one each, so that a death takes one game
        backend = {"shmem": ShmemBackend, "subprocess": SubprocessBackend}[name]
    else:
        backend = {"dummy": DummyBackend, "threads": ThreadsBackend}[name]
    with (
        Look(backend(parts(Turns, k, games), **options)) as env,
        Look(DummyBackend(parts(Turns, k, games), autoreset=mode)) as twin,
    ):
        for one in (env, twin):
            one.reset(seed=3)
        rng, restarted = np.random.default_rng(0), 0
        for number in range(120):
            over = ~env.present.reshape(games, k).any(axis=1)
            of_twin = ~twin.present.reshape(games, k).any(axis=1)
            if mode in ("disabled", "episodic"):
                if over.any():
                    env.reset(options={"reset_mask": over.repeat(k)})
                if of_twin.any():
                    twin.reset(options={"reset_mask": of_twin.repeat(k)})
            actions = rng.integers(0, 4, games * k)
            if number % 30 == 7:
                alive = env.alive
                env.set_attr("bonus", -1.0 if loss == "raises" else 99.0, indices=[4])
                actions[lost] = 4
            expected, got = (
                twin.step(np.minimum(actions, 3) if number % 30 == 7 else actions),
                env.step(actions),
            )
            others = np.arange(16) // 4 != 1
            for column in range(4):
                np.testing.assert_array_equal(expected[column][others], got[column][others])
            if "restarted" in got[4]:
                restarted += 1
                assert got[4]["_restarted"].tolist() == (np.arange(16) // 4 == 1).tolist()
                assert (got[3][lost] == alive[lost]).all() or mode == "episodic"
                assert not got[1][lost].any()
                env.set_attr("bonus", 0.0, indices=[4])
        assert restarted == 4
        assert env.health().restarts.tolist() == [0] * 4 + [4] * 4 + [0] * 8


class Alone(Turns):
    """A game that dot never joins, and that ann has left when it is lost."""

    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        self.agents = ["ann", "bob", "cyd"]
        self.terminations["ann"], self.agent_selection = True, "ann"
        self._skip_agent_selection = "bob"

    def step(self, action):
        if action == 1:
            raise RuntimeError("as asked")
        if self.is_done(self.agent_selection):
            self._was_dead_step(action)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["dummy", "shmem"])
def test_who_never_joined_a_lost_game_is_not_truncated(name, mode):
    """Nor who has left it already; only of those who were in it an episode is lost."""
    options = {"on_failure": "restart", "restart_backoff": 0.0, "autoreset": mode}
    games = []
    with Monitor(BACKENDS[name](parts(Alone, 4, 2), **options), log=games.append) as env:
        env.reset(seed=1)
        env.step([0] * 8)  # ann leaves
        assert env.alive.tolist() == [False, True, True, False] * 2
        _, rewards, terminations, truncations, infos = env.step([0, 1, 0, 0] + [0] * 4)
        assert truncations[:4].tolist() == [False, True, True, False]
        assert terminations[:4].tolist() == [mode == "episodic", False, False, False]
        assert not rewards.any()
        assert infos["_restarted"].tolist() == [True] * 4 + [False] * 4
        assert env.health().lost_episodes.tolist() == [0, 1, 1, 0] + [0] * 4
    assert {(game.env, game.agent) for game in games} == {(0, "ann"), (4, "ann")}
