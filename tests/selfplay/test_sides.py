"""Opponents whose agents have other spaces: both sides see and do what they do in a loop over the
raw game.
"""

import importlib
import zlib

import numpy as np
import pytest
from gymnasium import spaces

import vecwrap
from tests.helpers.multi_agent_games import Party, Turns
from tests.selfplay.test_opponents import SHIFTS, Learner, N, check, drive
from vecwrap import OpponentPool
from vecwrap.errors import PlanError
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.rows.batch import leaves

BACKENDS = [{"backend": "dummy"}, {"backend": "shmem", "workers": 2}]


def move(seen, legal):
    """A legal action that depends on everything that is seen."""
    return int(legal[zlib.crc32(np.ascontiguousarray(seen).tobytes()) % len(legal)])


def opponent(observations, *, action_masks=None):
    everything = np.ones((len(observations), 5), bool)
    masks = everything if action_masks is None else action_masks
    return [
        move(seen, np.flatnonzero(mask)) for seen, mask in zip(observations, masks, strict=True)
    ]


TEAMS = [
    ("simple_adversary_v3", ["agent_0", "agent_1"]),
    ("simple_adversary_v3", ["adversary_0"]),
    ("simple_tag_v3", ["agent_0"]),
    ("simple_world_comm_v3", ["agent_0", "agent_1"]),
    ("simple_world_comm_v3", ["leadadversary_0"]),  # the others are of two kinds, and padded
]


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
@pytest.mark.parametrize(
    ("options", "name", "team"),
    [
        *((BACKENDS[0], *team) for team in TEAMS),
        *(pytest.param(BACKENDS[1], *team, marks=pytest.mark.full) for team in TEAMS[:-1]),
        (BACKENDS[1], *TEAMS[-1]),
    ],
)
def test_both_sides_are_those_of_a_loop_over_the_raw_game(name, team, options, autoreset):
    make = importlib.import_module(f"mpe2.{name}").parallel_env
    twins = [make(max_cycles=5) for _ in range(2)]
    agents, k = twins[0].possible_agents, len(team)
    most = max(
        (twins[0].observation_space(agent) for agent in agents if agent not in team),
        key=lambda box: box.shape,
    )
    sizes = {agent: int(twins[0].action_space(agent).n) for agent in agents}
    wrappers = [{"opponents": {"pool": [f"{__name__}:opponent"]}}, "monitor"]
    settings = {
        **options,
        "env_kwargs": {"max_cycles": 5},
        "seed": 3,
        "autoreset": autoreset,
        "wrappers": wrappers,
    }
    with vecwrap.build(f"mpe2.{name}:parallel_env", n=2, agents=team, **settings) as env:
        assert env.single_observation_space == twins[0].observation_space(team[0])
        assert env.single_action_space == twins[0].action_space(team[0])
        observations, infos = env.reset()
        seen = [twin.reset(seed=3 + g)[0] for g, twin in enumerate(twins)]
        begins, ends = [False] * 2, 0
        for _ in range(17):
            for g in range(2):
                for seat, agent in enumerate(team):
                    own = observations[g * k + seat]
                    assert own.dtype == seen[g][agent].dtype
                    np.testing.assert_array_equal(own, seen[g][agent])
            if "action_mask" in infos:
                assert (env.action_masks() == (infos["action_mask"] == 1)).all()
                assert env.action_masks().shape == (2 * k, sizes[team[0]])
            actions = [move(row, np.arange(sizes[team[0]])) for row in observations]
            observations, rewards, terminations, truncations, infos = env.step(actions)
            for g, twin in enumerate(twins):
                if begins[g]:
                    seen[g], begins[g] = twin.reset()[0], False
                    assert not rewards[g * k : g * k + k].any()
                    continue
                chosen = {}
                for agent in agents:
                    shown = seen[g][agent]
                    if agent not in team:
                        shown = np.pad(shown, (0, most.shape[0] - len(shown)))
                    chosen[agent] = move(shown, np.arange(sizes[agent]))
                result = twin.step(chosen)
                seen[g] = result[0]
                for column, got in zip(
                    result[1:4], (rewards, terminations, truncations), strict=True
                ):
                    assert [column[agent] for agent in team] == got[g * k : g * k + k].tolist()
                if not twin.agents:
                    ends += 1
                    if autoreset == "next_step":
                        begins[g] = True
                        continue
                    for seat, agent in enumerate(team):
                        np.testing.assert_array_equal(
                            infos["final_obs"][g * k + seat], seen[g][agent]
                        )
                    seen[g] = twin.reset()[0]
    assert ends >= 4


class Sided(Turns):
    """``bob`` sees more than the others, and has fewer actions."""

    def observation_space(self, agent):
        n = 3 if agent == "bob" else 4
        board = spaces.Box(-1e6, 1e6, (6 if agent == "bob" else 4,), np.float64)
        return spaces.Dict(board=board, action_mask=spaces.Box(0, 1, (n,), np.int8))

    def action_space(self, agent):
        return spaces.Discrete(3 if agent == "bob" else 4)

    def observe(self, agent):
        n, seen = self.action_space(agent).n, super().observe(agent)
        mask = np.ones(n, np.int8)
        mask[self.time % n] = 0
        return {
            "board": np.pad(seen, (0, 2), constant_values=7) if agent == "bob" else seen,
            "action_mask": mask,
        }


TURNS = [
    (whole, mode)
    for whole in ("whole", "partial")
    for mode in ("same_step", "next_step", "disabled", "episodic")
]


@pytest.mark.parametrize(
    ("options", "partial", "mode"),
    [
        *((BACKENDS[0], *each) for each in TURNS),
        (BACKENDS[1], *TURNS[5]),
        *(
            pytest.param(BACKENDS[1], *each, marks=pytest.mark.full)
            for each in TURNS
            if each != TURNS[5]
        ),
    ],
)
def test_so_it_is_in_turns_with_masks_among_what_is_seen(options, mode, partial, monkeypatch):
    monkeypatch.setitem(N, "n", 4)
    wrappers = [{"opponents": {"pool": list(SHIFTS)}}, Learner]
    with vecwrap.build(
        Sided, n=3, agents=["bob"], autoreset=mode, wrappers=wrappers, **options
    ) as env:
        drive(env, 5, np.random.default_rng(1) if partial == "partial" else None)
        assert env.single_observation_space == Sided().observation_space("bob")
        assert env.action_masks().shape == (3, 3)
        check(Sided, env, 5, seat=1)


class Pushing(Party):
    """Agent 0 sees and pushes in one dimension, the others in three."""

    def observation_space(self, agent):
        return spaces.Box(-1, 1, (2,) if agent else (1,), np.float32)

    def action_space(self, agent):
        return spaces.Box(-1, 1, (3,) if agent else (1,), np.float32)

    def seen(self, agents):
        return {agent: np.full(2 if agent else 1, 0.5, np.float32) for agent in agents}

    def step(self, actions):
        for agent, action in actions.items():
            np.testing.assert_array_equal(
                action, np.array([0.25] * 3 if agent else [-0.5], np.float32)
            )
        return super().step({agent: float(action.sum()) for agent, action in actions.items()})


def push(observations):
    assert observations.shape[1:] == (2,)
    assert observations.flags.c_contiguous
    return np.full((len(observations), 3), 0.25, np.float32)


def test_actions_in_boxes_have_as_many_dimensions_as_their_agent():
    wrappers = [{"opponents": {"pool": [f"{__name__}:push"]}}]
    with vecwrap.build(
        Pushing, n=2, backend="dummy", seed=1, agents=["0"], wrappers=wrappers
    ) as env:
        assert env.reset()[0].shape == (2, 1)
        for _ in range(30):
            env.step(np.full((2, 1), -0.5, np.float32))


def test_agents_may_name_the_learners_seats_where_all_spaces_are_equal():
    wrappers = [{"opponents": {"pool": ["random"], "current": 0.5}}, "monitor"]
    named, given = (
        {"agents": ["player_2"], "wrappers": wrappers},
        {"wrappers": [{"opponents": {**wrappers[0]["opponents"], "seat": "player_2"}}, "monitor"]},
    )
    both = []
    for settings in (named, given):
        with vecwrap.build(
            "pettingzoo:classic/tictactoe-v3", n=2, backend="dummy", seed=4, **settings
        ) as env:
            seen = [env.reset()[0]["observation"]]
            seen += [
                env.step(env.action_masks().argmax(axis=1))[0]["observation"] for _ in range(15)
            ]
            both.append(np.array(seen))
    np.testing.assert_array_equal(*both)


def test_the_pool_is_of_the_other_side(tmp_path):
    spec = "mpe2.simple_tag_v3:parallel_env n=1 backend=dummy"
    pool = OpponentPool(tmp_path, make="tests.selfplay.test_sides:make", scripted=["random"])
    agent, adversary = (
        spaces.Box(-np.inf, np.inf, (14,), np.float32),
        spaces.Box(-np.inf, np.inf, (16,), np.float32),
    )
    with vecwrap.build(spec, agents=["agent_0"], wrappers=[{"opponents": {"pool": pool}}]) as env:
        assert env.single_observation_space == agent
        assert not env.chain[0].sides_alike
    pool.bind(adversary, spaces.Discrete(5))
    with pytest.raises(vecwrap.errors.CheckpointError, match="expected a pool of"):
        pool.bind(agent, spaces.Discrete(5))


class Halved(vecwrap.VecEnvWrapper):
    def __init__(self, env):
        space = env.single_observation_space
        super().__init__(env, spaces.Box(-1.0, 1.0, space.shape, space.dtype))


def make(arrays):
    raise AssertionError("nobody is made here")


def test_a_plan_says_who_moves_whom():
    spec = PipelineSpec.parse("mpe2.simple_adversary_v3:parallel_env n=2 backend=dummy | opponents")
    planned = plan(spec.override(agents=["agent_0", "agent_1"])).with_spaces()
    text = " ".join(str(planned).split())
    assert (
        "The learner has the seats of agent_0, agent_1. One opponent of random (uniform) "
        "moves the others."
    ) in text
    assert "rows: 6 → 4" in text
    assert plan(planned.pipeline).pipeline == planned.pipeline


@pytest.mark.parametrize(
    ("wrappers", "said"),
    [
        (["monitor", "opponents", {"framestack": 2}], None),
        (
            ["tests.selfplay.test_sides:Halved", "opponents"],
            "put wrappers that change them outside",
        ),
        ([{"framestack": 2}, "opponents"], "put wrappers that change them outside"),
        (
            ["monitor"],
            (
                r"without adversary_0.*somebody has to move it. The wrapper opponents in the "
                r"pipeline does"
            ),
        ),
        ([{"opponents": {"seat": "agent_7"}}], "expected \"random\" or agents .*got 'agent_7'"),
    ],
)
def test_what_cannot_be_had_is_refused(wrappers, said):
    spec = {
        "env": "mpe2.simple_tag_v3:parallel_env",
        "n": 1,
        "agents": ["agent_0"],
        "wrappers": wrappers,
    }
    if said is None:
        plan(PipelineSpec.from_dict({**spec, "backend": "dummy"})).with_spaces()
        return
    with pytest.raises(PlanError, match=said):
        vecwrap.build(spec, backend="dummy")


def test_a_saved_state_goes_on_with_both_sides(tmp_path):
    settings = {
        "n": 2,
        "agents": ["bob"],
        "backend": "dummy",
        "wrappers": [{"opponents": {"pool": ["random"]}}],
    }

    def steps(env, number):
        results = []
        for _ in range(number):
            result = env.step(env.action_masks().argmax(axis=1))
            results.append([np.array(array) for _, array in leaves(result[0])] + list(result[1:4]))
        return results

    with vecwrap.build(Saving, **settings, seed=2) as env:
        env.reset()
        steps(env, 7)
        state = env.state_dict()
        expected = steps(env, 20)
    with vecwrap.build(Saving, **settings, seed=9) as env:
        env.load_state_dict(state)
        for one, other in zip(steps(env, 20), expected, strict=True):
            for got, wanted in zip(one, other, strict=True):
                np.testing.assert_array_equal(got, wanted)


class Saving(Sided):
    def state_dict(self):
        return {"rng": self.rng.bit_generator.state, "time": self.time, "last": self.last_action}

    def load_state_dict(self, state):
        self.rng.bit_generator.state = state["rng"]
        self.time, self.last_action = state["time"], state["last"]
