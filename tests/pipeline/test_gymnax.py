"""``engine: gymnax`` in a pipeline. Each row is expected to be what gymnax's own Gymnasium wrapper
makes of the row's seed, one environment at a time.
"""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest

import vecwrap
from vecwrap.errors import CheckpointError, PlanError, SpecError
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec

gymnax = pytest.importorskip("gymnax")

N = 50
SEED = 7
LIMIT = 12


def single(env_id, **params):
    """One environment of gymnax, without vmap."""
    from gymnax.wrappers.gym import GymnaxToGymWrapper

    env, defaults = gymnax.make(env_id)
    return GymnaxToGymWrapper(env, defaults.replace(**params))


@pytest.fixture(scope="module")
def episodes():
    """The first episodes of each row, one row after the other, and the actions taken."""
    import jax

    env, params = gymnax.make("CartPole-v1")
    params = params.replace(max_steps_in_episode=LIMIT)

    @jax.jit
    def begin(key):
        key, subkey = jax.random.split(key)
        return key, *env.reset(subkey, params)

    @jax.jit
    def act(key, state, action):
        key, subkey = jax.random.split(key)
        return key, *env.step(subkey, state, action, params)[1:]

    actions = (np.random.default_rng(0).random((N, 350)) < 0.8).astype(int)
    rows = []
    for row in range(N):
        taken = iter(actions[row])
        key = jax.random.PRNGKey(SEED + row)
        found = []
        for _ in range(28):
            key, first, state = begin(key)
            steps = []
            over = False
            while not over:
                key, state, reward, terminated, truncated, info = act(key, state, next(taken))
                last = np.asarray(info["final_observation"])  # it has reset itself already
                steps.append((last, (float(reward), bool(terminated), bool(truncated))))
                over = any(steps[-1][1][1:])
            found.append((np.asarray(first), steps))
        rows.append(found)
    return rows, actions


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_each_row_is_what_gymnaxs_own_wrapper_makes_of_its_seed(mode, episodes):
    """Final observations over a thousand ends, those of terminations and of time limits."""
    rows, actions = episodes
    episode = [0] * N
    step = [0] * N
    acted = np.zeros(N, int)
    ends = {"terminated": 0, "truncated": 0}
    everyone = np.arange(N)

    def check_firsts(which, observations):
        firsts = [rows[i][episode[i]][0] for i in np.flatnonzero(which)]
        np.testing.assert_array_equal(observations[which], np.reshape(firsts, (-1, 4)))

    with vecwrap.build(
        "CartPole-v1",
        n=N,
        seed=SEED,
        engine="gymnax",
        autoreset=mode,
        wrappers=[f"time_limit:{LIMIT}"],
    ) as env:
        observations, _ = env.reset()
        check_firsts(np.ones(N, bool), observations)
        opening = np.zeros(N, bool)
        while sum(ends.values()) < 1000:
            result = env.step(actions[everyone, acted])
            observations, rewards, terminations, truncations, infos = result
            over = terminations | truncations
            check_firsts(opening, observations)
            finals = observations
            if mode == "same_step" and over.any():
                finals = infos["final_obs"]
            expected = observations.copy()
            for i in np.flatnonzero(~opening):
                expected[i], rest = rows[i][episode[i]][1][step[i]]
                assert rest == (rewards[i], terminations[i], truncations[i])
                acted[i] += 1
                step[i] += 1
                if over[i]:
                    episode[i] += 1
                    step[i] = 0
            assert not np.any(rewards[opening]) | np.any(over[opening])
            seen = observations.copy()
            for i in np.flatnonzero(over):
                seen[i] = finals[i]
            np.testing.assert_allclose(seen, expected, rtol=0, atol=1e-6)
            ends["terminated"] += np.count_nonzero(terminations)
            ends["truncated"] += np.count_nonzero(truncations & ~terminations)
            if mode == "disabled" and over.any():
                observations, _ = env.reset(options={"reset_mask": over})
            if mode == "next_step":
                opening = over
            else:
                check_firsts(over, observations)
    assert min(ends.values()) > 200


def test_a_step_is_gymnasiums_from_equal_states():
    """Two hundred states, on the way and near the ends."""
    engine = vecwrap.build("CartPole-v1", n=200, seed=1, engine="gymnax", autoreset="disabled")
    theirs = gymnasium.make("CartPole-v1").unwrapped
    theirs.reset()
    rng = np.random.default_rng(0)
    with engine:
        observations, _ = engine.reset()
        for _ in range(7):
            # the same way more often than not, so that some fall in the last step
            pushes = rng.random(200) < 0.9
            observations, _, over, *_ = engine.step(pushes.astype(int))
        assert not over.any()
        actions = np.ones(200, int)
        after, rewards, terminations, truncations, _ = engine.step(actions)
        for i in range(200):
            theirs.state = observations[i].astype(np.float64)
            theirs.steps_beyond_terminated = None
            expected, reward, terminated, *_ = theirs.step(actions[i])
            np.testing.assert_allclose(after[i], expected, rtol=0, atol=1e-6)
            assert (rewards[i], terminations[i]) == (reward, terminated)
        assert 0 < np.count_nonzero(terminations) < 200
        assert not truncations.any()


# -- seeds, and states -----------------------------------------------------------------------------

FIRST = """
import vecwrap
with vecwrap.build("CartPole-v1", n=3, seed={seed}, engine="gymnax") as env:
    print(env.reset()[0].tolist())
"""


def test_rows_differ_and_a_seed_gives_the_same_in_a_new_process():
    def first(n=3, seed=None, **settings):
        with vecwrap.build("CartPole-v1", n=n, engine="gymnax", **settings) as env:
            return env.reset(seed=seed)[0].tolist()

    rows = first(seed=5)
    assert rows[0] != rows[1] != rows[2] != rows[0]
    assert rows != first(seed=6) != first() != first()
    assert first(n=2, seed=5, start_index=1) == rows[1:]
    assert first(seed=[5, 6, 7]) == rows
    assert first(seed=[7, None, 5])[::2] == rows[::-2]
    made = subprocess.run(
        [sys.executable, "-c", FIRST.format(seed=5)], check=True, capture_output=True, text=True
    )
    assert made.stdout.strip() == str(rows)


@pytest.mark.parametrize("settings", [{}, {"envs_per_engine": 2, "backend": "shmem"}], ids=str)
def test_keys_and_states_are_saved_and_loaded(settings, tmp_path):
    def made(**others):
        wrappers = ["time_limit:12", "framestack:2", "monitor"]
        return vecwrap.build(
            "CartPole-v1", n=4, engine="gymnax", wrappers=wrappers, **settings, **others
        )

    def played(env, actions):
        return [np.concatenate([np.ravel(x) for x in env.step(one)[:4]]) for one in actions]

    actions = np.random.default_rng(0).integers(0, 2, (60, 4))
    path = tmp_path / "state.npz"
    with made(seed=3) as env:
        env.reset()
        played(env, actions[:30])
        assert env.state_dict()["sub_envs_missing"] is None
        env.save(path)
        expected = played(env, actions[30:])
        env.load(path)
        np.testing.assert_array_equal(played(env, actions[30:]), expected)
        state = env.state_dict()
        state["sub_envs"][0]["env"][0]["keys"] = np.zeros((1, 2), np.uint32)
        with pytest.raises(CheckpointError, match="keys: expected an array of shape"):
            env.load_state_dict(state)
    with made() as other:
        other.load(path)
        np.testing.assert_array_equal(played(other, actions[30:]), expected)


# -- environments ----------------------------------------------------------------------------------


def test_env_kwargs_are_gymnaxs_parameters_and_arguments():
    with vecwrap.build(
        "Pendulum-v1",
        n=2,
        seed=1,
        engine="gymnax",
        env_kwargs={"g": 3.0, "max_episode_steps": 9},
        wrappers=["time_limit:4"],
    ) as env:
        theirs = single("Pendulum-v1", g=3.0)
        theirs.reset(seed=2)
        env.reset()
        for step in range(1, 5):
            observations, rewards, terminations, truncations, _ = env.step(np.full((2, 1), 0.5))
            expected, reward, *_ = theirs.step(np.full(1, 0.5, np.float32))
            np.testing.assert_allclose(observations[1], expected, rtol=0, atol=1e-5)
            assert rewards[1] == pytest.approx(float(reward), abs=1e-5)
            assert truncations.all() == truncations.any() == (step == 4)
            assert not terminations.any()
    with vecwrap.build(
        "FrozenLake-misc", n=2, engine="gymnax", env_kwargs={"map_name": "8x8"}
    ) as env:
        assert env.single_observation_space.n == 64


def test_an_id_that_gymnax_alone_knows_is_taken_as_it_is():
    with vecwrap.build("Breakout-MinAtar", n=2, seed=0, engine="gymnax") as env:
        observations, _ = env.reset()
        assert observations.shape == (2, 10, 10, 4)
        assert env.single_action_space.n == 3
        observations, *_ = env.step([1, 2])
        assert env.observation_space.contains(observations)


REFUSED = {
    "CartPole-v0 engine=gymnax": 'gymnax has no CartPole-v0.*"CartPole-v1"',
    "CartPole-v1 engine=gymnx": 'Did you mean "gymnax"',
    "CartPole-v1 backend=gymnax": 'expected engine="gymnax"',
    "CartPole-v1 engine=gymnax env_kwargs.gravty=3": 'takes no gravty. Did you mean "gravity"',
    "CartPole-v1 engine=gymnax env_kwargs.gravity=low": "env_kwargs.gravity: expected a number",
    "CartPole-v1 engine=gymnax engine.num_threads=2": "no such option. It has none",
    "CartPole-v1 engine=gymnax autoreset=episodic": "expected next_step, same_step or disabled",
    "CartPole-v1 engine=gymnax render_mode=rgb_array": "gymnax draws nothing here",
    "FrozenLake-misc engine=gymnax env_kwargs.map_name=3x3": "does not make it .*ValueError: map",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_gymnax_cannot_do_is_refused_in_the_plan(line):
    with pytest.raises((PlanError, SpecError), match=REFUSED[line]):
        plan(PipelineSpec.parse(line))


def test_too_old_a_gymnax_is_refused(monkeypatch):
    monkeypatch.setattr("vecwrap.pipeline.engine_packages.is_at_least", lambda *_: False)
    with pytest.raises(SpecError, match=r"expected gymnax 1.0 or newer, got .*pip install"):
        plan(PipelineSpec.parse("CartPole-v1 engine=gymnax"))
