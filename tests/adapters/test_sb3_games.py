"""Games of several agents through ``to_sb3``: the agents are rows of a plain SB3 ``VecEnv``."""

import numpy as np
import pytest
from stable_baselines3 import PPO

import vecwrap
from tests.adapters.test_to_sb3 import assert_same
from tests.helpers.merge_results import join
from tests.helpers.multi_agent_games import Party, Turns
from vecwrap.env.row_protocol import NeedsReset


def test_ppo_trains_one_policy_for_all_agents_of_a_cooperative_game():
    venv = vecwrap.to_sb3(
        vecwrap.build(
            "mpe2.simple_spread_v3:parallel_env",
            n=4,
            wrappers=["monitor"],
            backend="shmem",
            seed=1,
            env_kwargs={"max_cycles": 8},
        )
    )
    assert venv.num_envs == 12
    model = PPO(
        "MlpPolicy", venv, n_steps=32, batch_size=64, n_epochs=1, seed=1, device="cpu"
    ).learn(1000)
    assert len(model.ep_info_buffer) == 100
    assert {episode["l"] for episode in model.ep_info_buffer} == {8}
    venv.close()


def test_waiting_rows_have_one_legal_action_and_no_illegal_one_is_played():
    contrib = pytest.importorskip("sb3_contrib")
    venv = vecwrap.to_sb3(
        vecwrap.build(
            "pettingzoo:classic/tictactoe-v3",
            n=4,
            wrappers=["extract_obs:observation"],
            backend="dummy",
        )
    )
    env = venv.vecwrap_env
    venv.reset()
    for _ in range(30):
        masks = np.stack(venv.env_method("action_masks"))
        assert (masks[~env.to_move].sum(axis=1) == 1).all()
        assert masks[~env.to_move, 0].all()
        np.testing.assert_array_equal(masks[env.to_move], env.action_masks()[env.to_move])
        venv.step(masks.argmax(axis=1))
    model = contrib.MaskablePPO(
        "MlpPolicy", venv, n_steps=16, batch_size=32, n_epochs=1, seed=1, device="cpu"
    )
    model.learn(256)
    venv.close()


def test_no_transition_crosses_games_even_where_agents_leave_early():
    """A row that rests ends, too, when the next game begins: with its own last observation."""
    venv = vecwrap.to_sb3(vecwrap.build(Turns, n=3, backend="dummy", seed=2))
    env = venv.vecwrap_env
    before, rested = venv.reset(), 0
    alive = env.alive
    for _ in range(200):
        observations, rewards, dones, infos = venv.step(np.zeros(12, int))
        assert dones[env.core.slots.first].all()
        for i in np.flatnonzero(dones & ~alive):
            rested += 1
            np.testing.assert_array_equal(infos[i]["terminal_observation"], before[i])
            assert rewards[i] == 0
            assert not infos[i]["TimeLimit.truncated"]
        before, alive = observations, env.alive
    assert rested > 10
    venv.close()


@pytest.mark.parametrize("copy", [True, False])
def test_a_rest_ends_with_what_was_shown_whatever_becomes_of_the_arrays(copy):
    with vecwrap.build(Turns, n=3, backend="dummy", seed=2) as twin:
        before, _ = twin.reset()
        venv, rested = (
            vecwrap.to_sb3(vecwrap.build(Turns, n=3, backend="dummy", seed=2, copy=copy)),
            0,
        )
        shown = venv.reset()
        for _ in range(200):
            shown[:] = np.nan
            alive, (observations, *_) = twin.alive, twin.step(np.zeros(12, int))
            shown, _, dones, infos = venv.step(np.zeros(12, int))
            for i in np.flatnonzero(dones & ~alive):
                rested += 1
                np.testing.assert_array_equal(infos[i]["terminal_observation"], before[i])
            before = observations
        assert rested > 10
        venv.close()


def test_the_info_of_a_game_that_ends_a_rest_is_one_of_its_reset():
    venv = vecwrap.to_sb3(vecwrap.build(Turns, n=3, backend="dummy", seed=2))
    env, rested = venv.vecwrap_env, 0
    venv.reset()
    assert [info["opened"] for info in venv.reset_infos] == [1] * 12
    for _ in range(200):
        venv.reset_infos[:] = [{"none": i} for i in range(12)]
        alive = env.alive
        _, _, dones, infos = venv.step(np.zeros(12, int))
        assert not any("opened" in info for info in infos)
        for i in np.flatnonzero(dones & env.core.slots.first):
            assert venv.reset_infos[i] == {"opened": 1, "start": 0}
        for i in np.flatnonzero(dones & ~alive):
            rested += 1
            assert set(infos[i]) == {"terminal_observation", "TimeLimit.truncated"}
    assert rested > 10
    venv.close()


class Firsts(vecwrap.VecEnvWrapper):
    """One row a game: its first agent's; the others always take action 0."""

    def __init__(self, env):
        super().__init__(env)
        k = len(env.possible_agents)
        self._number_rows(FirstRows(env, k), env.num_envs // k)


class FirstRows:
    def __init__(self, env, k):
        self.inner, self.games, self.k, self.seeds = env, env.num_envs // k, k, None
        self.needs_reset = NeedsReset(self.games, resets_on_request=False)

    in_flight = property(
        lambda self: frozenset(i // self.k for i in self.inner.call_state.numbered_rows.in_flight)
    )
    num_arrived = property(lambda self: self.inner.call_state.numbered_rows.num_arrived // self.k)

    def sources(self, ids):
        return ids * self.k

    def send(self, actions, ids):
        self.inner.rows.send(
            np.repeat(actions, self.k) * (np.arange(len(ids) * self.k) % self.k == 0), self.of(ids)
        )

    def reset(self, ids, seeds, options):
        self.seeds = seeds
        self.inner.rows.reset(
            self.of(ids), [seed for seed in seeds for _ in range(self.k)], options
        )

    def of(self, ids):
        all_ids = self.inner.call_state.pending.all_ids
        return (
            all_ids
            if len(ids) == self.games
            else np.add.outer(ids * self.k, np.arange(self.k)).ravel()
        )

    def receive(self, count, timeout):
        step = self.inner.rows.receive(count * self.k, timeout)
        rows = range(0, count * self.k, self.k)
        joined = join([(step, j) for j in rows], step.env_ids[rows] // self.k, self.games, step)
        self.needs_reset.update(joined)
        return joined


def test_rows_that_stand_for_games_have_a_seed_each():
    venv = vecwrap.to_sb3(Firsts(vecwrap.build(Party, n=3, backend="dummy")))
    twin = vecwrap.to_sb3(vecwrap.build(Party, n=3, backend="dummy"))
    venv.seed(7), twin.seed(7)
    np.testing.assert_array_equal(venv.reset()["at"], twin.reset()["at"][::4])
    assert venv.vecwrap_env.call_state.numbered_rows.seeds == [7, 8, 9]
    ends = 0
    for _ in range(60):
        actions = np.arange(12) % 4 == 0
        (seen, *got, infos), (all_seen, *expected, all_infos) = (
            venv.step(actions[::4]),
            twin.step(actions),
        )
        np.testing.assert_array_equal(seen["at"], all_seen["at"][::4])
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_array_equal(one, other[::4])
        for info, other in zip(infos, all_infos[::4], strict=True):
            assert_same(info, other)
        for info, other in zip(venv.reset_infos, twin.reset_infos[::4], strict=True):
            assert_same(info, other)
        ends += sum(got[1])
    assert ends > 10
    venv.close(), twin.close()


def test_the_end_of_a_rest_is_unnormalised_as_it_came():
    raw, venv = (
        vecwrap.to_sb3(vecwrap.build(Turns, n=3, wrappers=wrappers, backend="dummy", seed=2))
        for wrappers in ([], ["normalize"])
    )
    raw.reset(), venv.reset()
    ended = 0
    for _ in range(200):
        _, _, dones, expected = raw.step(np.zeros(12, int))
        infos = venv.step(np.zeros(12, int))[3]
        for i in np.flatnonzero(dones):
            ended += 1
            original = venv.unnormalize_obs(infos[i]["terminal_observation"])
            np.testing.assert_array_equal(original, expected[i]["terminal_observation"])
    assert ended > 10
    raw.close(), venv.close()


def test_a_normalised_game_whose_agents_leave_early_trains():
    venv = vecwrap.to_sb3(
        vecwrap.build(Turns, n=3, wrappers=["normalize", "monitor"], backend="dummy", seed=2)
    )
    PPO("MlpPolicy", venv, n_steps=32, batch_size=64, n_epochs=1, seed=1, device="cpu").learn(200)
    venv.close()
