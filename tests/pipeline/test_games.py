"""Games of several agents in pipelines: what makes them, how they are planned, what is refused."""

import functools
import re
import sys
from importlib import import_module

import numpy as np
import pytest

import vecwrap
from tests.helpers.multi_agent_games import Party, Turns
from vecwrap.errors import ArgumentError, PlanError, SpecError
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec

pytestmark = [
    pytest.mark.usefixtures("quick_workers"),
    pytest.mark.filterwarnings("ignore:The old environment creation API:DeprecationWarning"),
]
CONNECT = "pettingzoo:classic/connect_four-v3"


def party():
    return Party()


def annotated() -> Party:
    return Party()


def rps_module():
    from pettingzoo.classic import rps_v2

    return rps_v2


@pytest.mark.parametrize("backend", ["dummy", "shmem"])
@pytest.mark.parametrize(
    ("make", "agents"),
    [
        (lambda: CONNECT, ("player_0", "player_1")),
        (lambda: "pettingzoo:classic/connect_four_v3", ("player_0", "player_1")),
        (rps_module, ("player_0", "player_1")),
        (lambda: rps_module().env, ("player_0", "player_1")),
        (lambda: "pettingzoo.classic.rps_v2:parallel_env", ("player_0", "player_1")),
        (lambda: "mpe2.simple_spread_v3:parallel_env", ("agent_0", "agent_1", "agent_2")),
        (lambda: Party, ("0", "1", "2", "3")),
        (lambda: party, ("0", "1", "2", "3")),
        (lambda: annotated, ("0", "1", "2", "3")),
        (lambda: lambda: Turns(5), ("ann", "bob", "cyd", "dot")),
        (lambda: functools.partial(Turns, 5), ("ann", "bob", "cyd", "dot")),
    ],
)
def test_whatever_makes_games_is_taken(make, agents, backend):
    with vecwrap.build(make(), n=2, backend=backend, seed=1) as env:
        assert env.possible_agents == agents
        assert env.num_envs == 2 * len(agents)
        env.reset()
        _, rewards, *_, infos = env.step(np.zeros(env.num_envs, int))
        assert rewards.shape == infos["to_move"].shape == infos["alive"].shape == (env.num_envs,)
        assert env.plan.agents == agents


def test_the_parallel_form_is_taken_where_there_are_both():
    with vecwrap.build(
        "pettingzoo:classic/rps-v2", n=1, backend="dummy", env_kwargs={"max_cycles": 3}
    ) as env:
        env.reset()
        env.step([0, 0])
        assert env.to_move.all()
        assert env.get_attr("max_cycles") == (3, 3)


class Knows(vecwrap.VecEnvWrapper):
    """Looks at everything that is known of games before they are reset."""

    def __init__(self, env):
        super().__init__(env)
        k = len(env.possible_agents)
        assert (k, env.core.rows.agents) == (4, 4)
        assert env.row_games.tolist() == [i // k for i in range(env.num_envs)]
        assert env.row_agents.tolist() == [*env.possible_agents] * (env.num_envs // k)
        assert env.alive.shape == env.to_move.shape == (env.num_envs,)
        assert env.get_attr("most") == (5,) * env.num_envs
        assert env.call_state.action_masks.has_method is False
        self.request_frames([0])


@pytest.mark.parametrize("backend", ["dummy", "subprocess"])
def test_wrappers_are_tried_on_what_a_game_will_be(backend):
    line = {
        "env": functools.partial(Turns, 5),
        "n": 2,
        "wrappers": [Knows, "monitor"],
        "backend": backend,
    }
    looked = plan(PipelineSpec.from_dict(line)).with_spaces()
    assert [stage.refusal for stage in looked.spaces_at] == [None] * 3
    with vecwrap.build(line) as env:
        assert env.find(Knows).num_envs == 8
    with pytest.raises(
        PlanError, match="batch_size: expected a multiple of 4, the agents of a game, got 6"
    ):
        plan(PipelineSpec.from_dict({**line, "batch_size": 6})).with_spaces()


def test_a_plan_says_who_sits_where_and_makes_one_game_to_know_it():
    planned = plan(
        PipelineSpec.parse(
            f"{CONNECT} n=8 seed=4 backend=shmem backend.workers=2 | framestack:2 | monitor"
        )
    )
    assert planned.agents is None
    text = " ".join(str(planned.with_spaces()).split())
    assert "n=8, 2 agents each, 16 rows, seed=4" in text
    assert "agents are rows, of game g player_0 in row 2g, player_1 in row 2g + 1" in text
    assert "2 workers, 4 games each" in text
    data = planned.with_spaces().explanation.to_dict()
    assert data["agents"] == ["player_0", "player_1"]
    assert data["environment"]["bytes_per_step"] == 16 * (6 * 7 * 2 + 7)


def test_options_count_games_and_batches_count_rows():
    with vecwrap.build(
        Turns, n=6, backend={"name": "shmem", "envs_per_worker": 3}, seed=5, start_index=2
    ) as env:
        assert [len(worker.env_ids) for worker in env.health().workers] == [12, 12]
    with vecwrap.build(Turns, n=3, backend="dummy", batch_size=8) as env:
        env.reset(seed=0)
        env.send([0] * 12)
        assert len(env.recv()[1]) == 8
    for make in (Turns, lambda: Turns()):
        with pytest.raises(
            PlanError, match="batch_size: expected a multiple of 4, the agents of a game, got 2"
        ):
            vecwrap.build(make, n=3, backend="dummy", batch_size=2)
    assert (
        plan(PipelineSpec.parse(f"{CONNECT} n=4")).pipeline.hash
        != plan(PipelineSpec.parse(f"{CONNECT} n=8")).pipeline.hash
    )


@pytest.mark.parametrize("make", [Party, lambda: Party()], ids=["known", "found out"])
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"wrappers": ["time_limit:9"]},
            r'"time_limit" wraps a gymnasium.Env of one agent, and a game has several',
        ),
        (
            {"envs_per_engine": 2, "autoreset": "next_step"},
            "a game is not an engine|expected a gymnasium.vector",
        ),
        ({"wrappers": [{"seed_each_episode": {"seeds": [1, 2]}}]}, "seed_each_episode.*a game"),
    ],
)
def test_what_does_not_go_with_games_is_refused(make, settings, said):
    with pytest.raises((PlanError, vecwrap.SubEnvError), match=said):
        vecwrap.build(make, n=2, backend="dummy", **settings)


def test_several_kinds_of_games_are_no_vector():
    with pytest.raises(PlanError, match="expected one kind of game for all, got a list"):
        vecwrap.build([Party, Turns], backend="dummy")
    with pytest.raises(PlanError, match="expected one kind of game for all, got a list"):
        vecwrap.build([lambda: Party(), lambda: Turns()], backend="dummy")


def test_unknown_games_have_near_ones():
    with pytest.raises(
        SpecError,
        match='PettingZoo has no such game. Did you mean "pettingzoo:classic/connect_four-v3"',
    ):
        vecwrap.build("pettingzoo:classic/connect_for-v3", n=1)


@pytest.mark.parametrize(
    ("make", "argument", "said"),
    [
        (
            CONNECT,
            "screen_scalin",
            f'{CONNECT} takes no such argument. Did you mean "screen_scaling"?',
        ),
        (
            "pettingzoo:classic/rps-v2",
            "x",
            "takes no such argument. It takes num_actions, max_cycles, render_mode,",
        ),
        (lambda **kwargs: Turns(4, **kwargs), "x", "lambda takes no such argument."),
    ],
)
def test_an_argument_that_a_game_does_not_take_is_refused_with_those_that_it_does(
    make, argument, said
):
    with pytest.raises(
        PlanError, match=re.escape(f"env_kwargs.{argument}: ") + ".*" + re.escape(said)
    ) as error:
        vecwrap.build(make, n=1, backend="dummy", env_kwargs={argument: 1})
    assert "none" not in str(error.value)


@pytest.mark.parametrize("backend", ["dummy", "shmem"])
@pytest.mark.parametrize(
    "settings", [{"render_mode": "rgb_aray"}, {"env_kwargs": {"render_mode": "rgb_aray"}}]
)
def test_a_render_mode_that_a_game_does_not_have_is_refused(settings, backend):
    said = (
        'render_mode: expected one that .* has .human, rgb_array.*, got "rgb_aray". Did you '
        'mean "rgb_array"'
    )
    for game in (CONNECT, "pettingzoo:classic/rps-v2"):
        with pytest.raises(PlanError, match=said):
            vecwrap.build(game, n=1, backend=backend, **settings)


def test_a_game_that_is_made_already_is_answered_with_what_is_possible():
    remedy = "vecwrap.build takes what makes a PettingZoo environment, and has its agents as rows"
    for target in (Party(), [Turns()]):
        with pytest.raises(SpecError, match=remedy):
            vecwrap.build(target, n=1, backend="dummy")
    for engine in (Party(), Turns()):
        with pytest.raises(
            PlanError, match=f"wrap: expected a gymnasium.vector.VectorEnv, .*{remedy}"
        ):
            vecwrap.wrap(engine)


def test_elsewhere_everyone_is_alive_and_to_move():
    with vecwrap.build("CartPole-v1", n=2, backend="dummy") as env:
        _, infos = env.reset(seed=1)
        assert not infos
        assert env.to_move.all()
        assert env.alive.all()
        assert env.possible_agents == ()
        assert env.row_games.tolist() == [0, 1]
        with pytest.raises(ArgumentError, match="action_masks: .*reports none; expected infos"):
            env.action_masks()


def test_importing_vecwrap_and_building_others_does_not_import_pettingzoo(tmp_path):
    import subprocess
    import sys

    code = (
        "import sys, vecwrap; vecwrap.build('CartPole-v1', n=1).close(); assert 'pettingzoo' "
        "not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("pettingzoo:mpe/simple_spread-v3", "mpe2.simple_spread_v3:parallel_env"),
        ("pettingzoo:mpe/simple_spread", "mpe2.simple_spread_v3:parallel_env"),
        (
            "pettingzoo:mpe/simple_speaker_listener-v3",
            "mpe2.simple_speaker_listener_v4:parallel_env",
        ),
        ("mpe/simple-v3", "mpe2.simple_v3:parallel_env"),
        ("pettingzoo.mpe:simple_push_v3", "mpe2.simple_push_v3:parallel_env"),
        ("pettingzoo.mpe.simple_push_v3:env", "mpe2.simple_push_v3:parallel_env"),
        ("pettingzoo.mpe.simple_push_v3", "mpe2.simple_push_v3:parallel_env"),
        ("pettingzoo.mpe.simple_push_v3.parallel_env", "mpe2.simple_push_v3:parallel_env"),
    ],
)
def test_the_former_particle_games_are_named_with_what_works(text, path):
    with pytest.raises(SpecError) as error:
        vecwrap.build(text, n=1, backend="dummy")
    assert str(error.value).endswith(f'are a package of their own now, mpe2. Write "{path}".')
    vecwrap.build(path, n=1, backend="dummy", agents={"pad": True}).close()


@pytest.mark.parametrize("module", ["pettingzoo.classic.tictactoe_v3", "mpe2.simple_v3"])
def test_a_module_of_a_game_as_text_is_taken_as_the_module_is(module, monkeypatch):
    package, _, name = module.rpartition(".")
    import_module(module)
    monkeypatch.delitem(sys.modules, module)  # as if nobody had imported it
    monkeypatch.delattr(import_module(package), name)
    with vecwrap.build(f"{package}:{name}", n=2, backend="dummy") as env:
        of_module = vecwrap.build(import_module(module), n=2, backend="dummy")
        assert (env.num_envs, env.possible_agents) == (
            of_module.num_envs,
            of_module.possible_agents,
        )
        np.testing.assert_equal(env.reset(seed=1)[0], of_module.reset(seed=1)[0])
        of_module.close()
    with pytest.raises(
        SpecError, match=f'An import path has a colon before its last part: "{package}:{name}"'
    ):
        vecwrap.build(module, n=1)
