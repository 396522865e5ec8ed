"""Agents with unequal spaces: what is padded, which agents may be left out, and what is refused."""

import numpy as np
import pytest
from gymnasium import spaces

import vecwrap
from tests.helpers.multi_agent_games import Party, Turns
from vecwrap.errors import ArgumentError, PlanError, SpecError, SubEnvError
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.sources.seats import padded_space

PAD = {"agents": {"pad": True}}


def padded(seen, like):
    if isinstance(like, spaces.Dict):
        return {key: padded(seen[key], like[key]) for key in like}
    return np.pad(
        seen, [(0, most - own) for own, most in zip(np.shape(seen), like.shape, strict=True)]
    )


def row(batch, i):
    return {key: part[i] for key, part in batch.items()} if isinstance(batch, dict) else batch[i]


def same(one, other):
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            same(one[key], other[key])
        return
    assert np.asarray(one).dtype == np.asarray(other).dtype
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("backend", ["dummy", "shmem"])
@pytest.mark.parametrize(
    "name",
    ["simple_tag_v3", "simple_adversary_v3", "simple_speaker_listener_v4", "simple_world_comm_v3"],
)
def test_games_at_once_are_what_a_loop_over_the_raw_game_gives_with_zeros_behind(name, backend):
    import importlib

    make = importlib.import_module(f"mpe2.{name}").parallel_env
    twins, rng, ends = [make(max_cycles=5) for _ in range(2)], np.random.default_rng(1), 0
    agents = twins[0].possible_agents
    sizes = [int(twins[0].action_space(agent).n) for agent in agents]
    kwargs = {"env_kwargs": {"max_cycles": 5}, "backend": backend, "seed": 3, **PAD}
    with vecwrap.build(f"mpe2.{name}:parallel_env", n=2, **kwargs) as env:
        like = env.single_observation_space
        assert env.single_action_space == spaces.Discrete(max(sizes))
        observations, infos = env.reset()
        seen = [twin.reset(seed=3 + g)[0] for g, twin in enumerate(twins)]
        for _ in range(13):
            for g in range(2):
                for seat, agent in enumerate(agents):
                    same(padded(seen[g][agent], like), row(observations, g * len(agents) + seat))
            if len(set(sizes)) > 1:
                legal = np.arange(max(sizes)) < np.array(sizes * 2)[:, None]
                np.testing.assert_array_equal(infos["action_mask"], legal)
                np.testing.assert_array_equal(env.action_masks(), legal)
            else:
                assert "action_mask" not in infos
            actions = [int(rng.integers(size)) for size in sizes * 2]
            observations, rewards, terminations, truncations, infos = env.step(actions)
            for g, twin in enumerate(twins):
                at = g * len(agents)
                result = twin.step(dict(zip(agents, actions[at : at + len(agents)], strict=True)))
                seen[g] = result[0]
                for column, got in zip(
                    result[1:4], (rewards, terminations, truncations), strict=True
                ):
                    assert [column[agent] for agent in agents] == got[
                        at : at + len(agents)
                    ].tolist()
                if not twin.agents:
                    ends += 1
                    for seat, agent in enumerate(agents):
                        same(padded(seen[g][agent], like), infos["final_obs"][at + seat])
                    seen[g] = twin.reset()[0]
    assert ends == 4


class Uneven(Turns):
    """Each agent sees and may do something else; one shows its mask."""

    def observation_space(self, agent):
        seat = self.possible_agents.index(agent)
        mask = spaces.Box(0, 1, (2 + seat,), np.int8)
        return spaces.Dict(board=spaces.Box(1.0, 1e6, (1 + seat, 2), np.float64), action_mask=mask)

    def action_space(self, agent):
        return spaces.Discrete(2 + self.possible_agents.index(agent))

    def observe(self, agent):
        seat, seen = self.possible_agents.index(agent), super().observe(agent)
        mask = np.ones(2 + seat, np.int8)
        mask[self.time % (2 + seat)] = 0
        return {
            "board": np.arange(2.0 + 2 * seat).reshape(-1, 2) + 1 + seen[0] + seen[3],
            "action_mask": mask,
        }


def test_games_in_turns_are_padded_and_their_masks_with_illegal_actions():
    raw, rng, ends = Uneven(), np.random.default_rng(2), 0
    with vecwrap.build(Uneven, n=1, backend="dummy", seed=3, debug=True, **PAD) as env:
        like = env.single_observation_space
        assert like["board"].shape == (4, 2)
        observations, _ = env.reset()
        raw.reset(seed=3)
        for _ in range(120):
            agent = raw.agent_selection
            seat = raw.possible_agents.index(agent)
            seen = padded(raw.observe(agent), like)
            same(seen, row(observations, seat))
            assert np.flatnonzero(env.to_move).tolist() == [seat]
            np.testing.assert_array_equal(env.action_masks()[seat], seen["action_mask"])
            with pytest.raises(ArgumentError, match="expected a legal action, one of"):
                env.step([2 + seat] * 4 if seat < 3 else [raw.time % 5] * 4)
            action = int(rng.choice(np.flatnonzero(seen["action_mask"])))
            observations, rewards, terminations, truncations, infos = env.step([action] * 4)
            raw.step(action)
            left = {}
            while raw.agents:
                agent = raw.agent_selection
                last, reward, terminated, truncated, _ = raw.last()
                at = raw.possible_agents.index(agent)
                assert (rewards[at], terminations[at], truncations[at]) == (
                    reward,
                    terminated,
                    truncated,
                )
                if not (terminated or truncated):
                    break
                left[at] = padded(last, like)
                raw.step(None)
            else:
                ends += 1
                for at, last in left.items():
                    same(last, infos["final_obs"][at])
                raw.reset()
    assert ends > 5


class Pushing(Party):
    """Actions and observations are Boxes of several lengths."""

    def observation_space(self, agent):
        return spaces.Box(-1, 1, (1 + agent,), np.float32)

    def action_space(self, agent):
        return spaces.Box(-1, 1, (4 - agent,), np.float32)

    def seen(self, agents):
        return {agent: np.full(1 + agent, 0.5, np.float32) for agent in agents}

    def step(self, actions):
        for agent, action in actions.items():
            assert action.shape == (4 - agent,)
            assert action.dtype == np.float32
            assert (action == np.arange(4 - agent, dtype=np.float32) / 8).all()
        return super().step({agent: float(action.sum()) for agent, action in actions.items()})


def test_padded_actions_are_cut_off_before_the_game_gets_them():
    with vecwrap.build(Pushing, n=2, backend="dummy", seed=1, autoreset="next_step", **PAD) as env:
        assert env.single_action_space == spaces.Box(-1, 1, (4,), np.float32)
        env.reset()
        for _ in range(30):
            env.step(np.tile(np.arange(4, dtype=np.float32) / 8, (8, 1)))


def test_bounds_of_padded_boxes_include_the_zeros():
    space = padded_space([spaces.Box(1, 2, (1, 2)), spaces.Box(-3, -1, (2, 1))])
    np.testing.assert_array_equal(space.low, [[-3, 0], [-3, 0]])
    np.testing.assert_array_equal(space.high, [[2, 2], [0, 0]])


def test_a_plan_says_what_is_padded():
    planned = plan(
        PipelineSpec.parse(
            "mpe2.simple_speaker_listener_v4:parallel_env n=2 agents.pad=true backend=dummy"
        )
    )
    text = " ".join(str(planned.with_spaces()).split())
    assert "observations padded with zeros, because speaker_0 has (3,) float32" in text
    assert "masks of actions padded with zeros, because speaker_0 has Discrete(3)" in text
    with vecwrap.build(planned.pipeline) as env:
        assert "observations padded with zeros" in " ".join(str(env.plan).split())
    other = planned.pipeline.override(agents=None)
    assert plan(other).pipeline.hash != planned.pipeline.hash


class Dealt(Turns):
    """``dot`` only deals: it has one action, and takes it now and then."""

    def action_space(self, agent):
        return spaces.Discrete(1) if agent == "dot" else super().action_space(agent)

    def next_one(self):
        deals = self.time % 3 == 2 and "dot" in self.agents and not self.is_done("dot")
        return "dot" if deals else super().next_one()

    def step(self, action):
        assert self.agent_selection != "dot" or action in (0, None)
        super().step(action)


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
def test_agents_without_a_choice_may_be_left_out_and_take_their_only_action(autoreset):
    raw, ends = Dealt(), 0
    names = ["cyd", "ann", "bob"]
    with vecwrap.build(
        Dealt, n=1, backend="dummy", seed=5, agents=names, autoreset=autoreset
    ) as env:
        assert env.possible_agents == tuple(names)
        observations, _ = env.reset()
        raw.reset(seed=5)
        for _ in range(150):
            seat = names.index(raw.agent_selection)
            assert np.flatnonzero(env.to_move).tolist() == [seat]
            np.testing.assert_array_equal(observations[seat], raw.observe(raw.agent_selection))
            observations, rewards, terminations, truncations, _ = env.step([seat] * 3)
            raw.step(seat)
            while any(name in raw.agents for name in names):
                agent = raw.agent_selection
                _, reward, terminated, truncated, _ = raw.last()
                if agent in names:
                    at = names.index(agent)
                    assert (rewards[at], terminations[at], truncations[at]) == (
                        reward,
                        terminated,
                        truncated,
                    )
                    if not (terminated or truncated):
                        break
                raw.step(None if terminated or truncated else 0)
            else:
                ends += 1
                raw.reset()
                if autoreset == "next_step":
                    observations, *_ = env.step([0] * 3)
    assert ends > 5


class Idle(Party):
    def action_space(self, agent):
        return spaces.Discrete(1) if agent == 2 else super().action_space(agent)

    def step(self, actions):
        assert actions.get(2, 0) == 0
        return super().step(actions)


def test_so_they_may_in_games_at_once():
    twin = Idle()
    with vecwrap.build(
        Idle, n=1, backend="dummy", seed=5, agents=["0", "1", "3"], autoreset="next_step"
    ) as env:
        env.reset()
        twin.reset(seed=5)
        for _ in range(60):
            acting = {agent: 0 if agent == 2 else agent for agent in twin.agents}
            _, rewards, *_ = env.step([0, 1, 3])
            if {0, 1, 3}.isdisjoint(acting):
                twin.reset()
                continue
            _, expected, *_ = twin.step(acting)
            assert rewards.tolist() == [expected.get(agent, 0.0) for agent in (0, 1, 3)]


TAG = "mpe2.simple_tag_v3:parallel_env"


@pytest.mark.parametrize(
    ("env", "agents", "said"),
    [
        (
            TAG,
            None,
            (
                r"agents with equal spaces.*agent_0: observations \(14,\).*agents: "
                r"\{pad: true\} pads them"
            ),
        ),
        (
            TAG,
            ["agent_0"],
            "without adversary_0, whose actions are Discrete.5.: somebody.*The wrapper opponents",
        ),
        (
            TAG,
            ["agent_7"],
            (
                'expected agents of simple_tag_v3 .adversary_0, .*got "agent_7". Did you mean '
                '"agent_0"'
            ),
        ),
        (TAG, ["agent_0", "agent_0"], "agents: expected each agent once, and one at least"),
        (TAG, [], "agents: expected each agent once, and one at least"),
        (
            TAG,
            "agent_0",
            "without adversary_0, whose actions are Discrete.5.: somebody.*The wrapper opponents",
        ),
        (TAG, "agent_0+agent_0", "agents: expected each agent once, and one at least"),
        (TAG, "agent_0+", r"agents: expected a list of agents' names, or \{pad: true\}"),
        (TAG, 3, r"agents: expected a list of agents' names, or \{pad: true\}, got 3"),
        (TAG, {"pad": 3}, r"agents: expected a list of agents' names, or \{pad: true\}"),
        (TAG, {"cut": True}, r"agents: expected a list of agents' names, or \{pad: true\}"),
        (
            "CartPole-v1",
            {"pad": True},
            "agents: expected a game of several agents, got CartPole-v1; leave it out",
        ),
        (
            lambda: Turns.spaces,
            {"pad": True},
            "AECEnv or ParallelEnv from the factory|has no attribute",
        ),
    ],
)
def test_what_cannot_be_seated_is_refused(env, agents, said):
    with pytest.raises((PlanError, SpecError, SubEnvError), match=f"(?s){said}"):
        vecwrap.build(env, n=1, backend="dummy", agents=agents)


class Mixed(Party):
    def observation_space(self, agent):
        return spaces.Box(0, 1, (2, 2) if agent else (2,))


class Starting(Party):
    def action_space(self, agent):
        return spaces.Discrete(4 + agent, start=agent)


@pytest.mark.parametrize("make", [Mixed, Starting])
def test_spaces_that_cannot_be_padded_are_listed(make):
    with pytest.raises(
        PlanError, match="agents: expected spaces that can be padded .*0: observations.*1: obs"
    ):
        vecwrap.build(make, n=1, backend="dummy", **PAD)


class Choosy(Party):
    def action_space(self, agent):
        return spaces.Discrete(5 - agent)


def test_without_debug_a_padded_action_is_an_error_that_names_the_agent():
    with vecwrap.build(Choosy, n=2, backend="dummy", seed=1, **PAD) as env:
        env.reset()
        with pytest.raises(SubEnvError, match="3: expected a legal action, one of 0 to 1, got 4"):
            for _ in range(30):
                env.step([4, 1, 1, 4] * 2)


def test_a_padded_game_is_recreated_and_goes_on():
    with vecwrap.build(
        Choosy, n=2, backend="dummy", seed=1, on_failure="restart", restart_backoff=0.0, **PAD
    ) as env:
        env.reset()
        env.set_attr("bonus", -1.0, indices=[0])
        env.step([4, 0, 0, 0] * 2)
        assert env.health().restarts.tolist() == [1] * 4 + [0] * 4
        masks = env.action_masks()
        assert masks.sum(axis=1).tolist() == (np.array([5, 4, 3, 2] * 2) * env.to_move).tolist()
