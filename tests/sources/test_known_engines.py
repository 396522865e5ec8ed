"""What is known of EnvPool, ale-py and CartPole's vector class: arrays passed on as they are, and
modes by masked resets. The expectations are loops over the same engine, without vecwrap.
"""

import ale_py
import envpool
import gymnasium
import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import vecwrap
from vecwrap.errors import PlanError, ResetNeededError, SubEnvError
from vecwrap.sources.known_engines import resets_by_mask, returns_fresh_arrays
from vecwrap.wrappers.monitor import Monitor

pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")


def envpool_cartpole():
    return envpool.make("CartPole-v1", env_type="gymnasium", num_envs=5, num_threads=1, seed=3)


def envpool_pong():
    return envpool.make(
        "Pong-v5",
        env_type="gymnasium",
        num_envs=2,
        num_threads=1,
        seed=3,
        stack_num=1,
        max_episode_steps=20,
    )


def ale_pong():
    return AtariVectorEnv(
        "pong", num_envs=2, num_threads=1, stack_num=1, max_num_frames_per_episode=100
    )


def gymnasium_cartpole():
    return CartPoleVectorEnv(num_envs=6, max_episode_steps=30)


def gymnasium_sync():
    return SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 3)


ENGINES = [envpool_cartpole, envpool_pong, ale_pong, gymnasium_cartpole]
WITH_MASKED_RESETS = [envpool_cartpole, envpool_pong, ale_pong]


def actions_of(engine, steps):
    space = engine.single_action_space
    rng = np.random.default_rng(7)
    return rng.integers(space.n, size=(steps, engine.num_envs)).astype(space.dtype)


def reset(env):
    """Reset an engine, or an environment around it, with a seed, which EnvPool has already."""
    engine = env.unwrapped.runner.engines()[0] if isinstance(env, vecwrap.VecEnv) else env
    seed = None if "EnvPool" in type(engine).__name__ else 5
    return env.reset(seed=seed)


def arrays_in(infos):
    for value in infos.values():
        if isinstance(value, dict):
            yield from arrays_in(value)
        elif isinstance(value, np.ndarray):
            yield value


@pytest.mark.parametrize("make", ENGINES)
def test_engines_that_are_not_copied_never_write_an_array_again(make):
    engine = make()
    assert returns_fresh_arrays(engine)
    reset(engine)
    kept = []
    for action in actions_of(engine, 60):
        *columns, infos = engine.step(action)
        arrays = [*columns, *arrays_in(infos)]
        kept.append((arrays, [array.copy() for array in arrays]))
    for arrays, copies in kept:
        for array, copy in zip(arrays, copies, strict=True):
            np.testing.assert_array_equal(array, copy)
    engine.close()


class Derived(CartPoleVectorEnv):
    def step(self, action):
        return super().step(action)


def test_others_are_copied():
    assert not returns_fresh_arrays(Derived(num_envs=2))
    assert not returns_fresh_arrays(gymnasium_sync())
    assert not returns_fresh_arrays(RecordEpisodeStatistics(gymnasium_cartpole()))


@pytest.mark.parametrize("make", ENGINES)
@pytest.mark.parametrize("wrappers", [[], ["monitor"]])
def test_observations_are_passed_on_without_a_copy(make, wrappers, monkeypatch):
    engine = make()
    returned = []
    step = engine.step
    engine.step = lambda actions: returned.append(step(actions)) or returned[-1]
    with vecwrap.wrap(engine, wrappers) as env:
        reset(env)
        for action in actions_of(engine, 50):
            assert env.step(action)[0] is returned[-1][0]


@pytest.mark.parametrize("make", WITH_MASKED_RESETS)
def test_what_the_user_writes_into_an_observation_is_never_seen_again(make):
    with vecwrap.wrap(make()) as env:
        observations, _ = reset(env)
        for action in actions_of(env, 3):
            observations = env.step(action)[0]
        expected = observations.copy()
        observations[:] = 99
        mask = np.arange(env.num_envs) == 1
        after = env.reset(options={"reset_mask": mask})[0]
        np.testing.assert_array_equal(after[~mask], expected[~mask])
        assert (after[mask] != 99).any()


@pytest.mark.parametrize("make", ENGINES)
def test_next_step_under_monitor_equals_the_bare_engine_and_a_loop_over_its_rewards(make):
    engine = make()
    reset(engine)
    returns = np.zeros(engine.num_envs)
    over = np.zeros(engine.num_envs, bool)
    ends = 0
    with vecwrap.wrap(make(), ["monitor"]) as env:
        reset(env)
        for action in actions_of(engine, 60):
            observations, rewards, terminations, truncations, _ = engine.step(action)
            ours = env.step(action)
            rewards = np.where(over, 0, rewards)
            for one, other in zip(
                ours, (observations, rewards, terminations, truncations), strict=False
            ):
                np.testing.assert_array_equal(one, other)
            assert ours[1].dtype == np.float64
            returns = np.where(over, 0, returns + rewards)
            over = terminations | truncations
            if over.any():
                ends += over.sum()
                np.testing.assert_array_equal(ours[4]["_episode"], over)
                np.testing.assert_array_equal(ours[4]["episode"]["r"], np.where(over, returns, 0))
        monitor = env.find(Monitor)
        assert ends == monitor.num_episodes > 3
        assert [episode.score for episode in monitor.recent] == list(monitor.return_queue)
    engine.close()


@pytest.mark.parametrize("make", WITH_MASKED_RESETS)
def test_same_step_by_masked_resets_equals_a_loop(make):
    engine = make()
    assert resets_by_mask(engine)
    reset(engine)
    n = engine.num_envs
    ends = 0
    with vecwrap.wrap(make(), ["monitor"], autoreset="same_step") as env:
        assert env.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.SAME_STEP
        reset(env)
        for action in actions_of(engine, 60):
            observations, rewards, terminations, truncations, infos = engine.step(action)
            ours, *columns, our_infos = env.step(action)
            for one, other in zip(columns, (rewards, terminations, truncations), strict=True):
                np.testing.assert_array_equal(one, other)
            dones = terminations | truncations
            expected = observations.copy()
            if dones.any():
                ends += dones.sum()
                options = {"reset_mask": dones} if not dones.all() else None
                fresh, infos_of_reset = engine.reset(options=options)
                some = len(fresh) < n  # EnvPool returns the rows that it has reset
                expected[dones] = fresh if some else fresh[dones]
                for i in np.flatnonzero(dones):
                    np.testing.assert_array_equal(our_infos["final_obs"][i], observations[i])
                for key in ("elapsed_step", "episode_frame_number"):
                    if key in infos:
                        final = our_infos["final_info"]
                        np.testing.assert_array_equal(final[key][dones], infos[key][dones])
                        np.testing.assert_array_equal(final[f"_{key}"], dones)
                        began = infos_of_reset[key] if some else infos_of_reset[key][dones]
                        np.testing.assert_array_equal(our_infos[key][dones], began)
                        np.testing.assert_array_equal(our_infos[key][~dones], infos[key][~dones])
            np.testing.assert_array_equal(ours, expected)
        assert ends == env.find(Monitor).num_episodes > 3
    engine.close()


@pytest.mark.parametrize("make", WITH_MASKED_RESETS)
def test_disabled_by_masked_resets(make):
    engine = make()
    reset(engine)
    with vecwrap.wrap(make(), autoreset="disabled") as env:
        reset(env)
        ends = 0
        for action in actions_of(engine, 60):
            expected = engine.step(action)
            ours = env.step(action)
            for one, other in zip(ours[:4], expected[:4], strict=True):
                np.testing.assert_array_equal(one, other)
            dones = ours[2] | ours[3]
            if dones.any():
                ends += dones.sum()
                with pytest.raises(ResetNeededError):
                    env.step(action)
                options = {"reset_mask": dones} if not dones.all() else None
                fresh = engine.reset(options=options)[0]
                after = env.reset(options=options)[0]
                some = len(fresh) < engine.num_envs
                np.testing.assert_array_equal(after[dones], fresh if some else fresh[dones])
        assert ends > 3
    engine.close()


@pytest.mark.parametrize(
    ("make", "mode"),
    [
        (gymnasium_cartpole, "same_step"),
        (gymnasium_cartpole, "disabled"),
        (envpool_cartpole, "episodic"),
        (
            lambda: AsyncVectorEnv(
                [lambda: gymnasium.make("CartPole-v1")] * 2, shared_memory=False
            ),
            "same_step",
        ),
    ],
)
def test_a_mode_that_an_engine_cannot_have_is_refused(make, mode):
    engine = make()
    with pytest.raises(PlanError, match=f"declares next_step, expected {mode}"):
        vecwrap.wrap(engine, autoreset=mode)
    engine.close()


def test_many_ends_a_step_are_those_of_gymnasiums_wrapper():
    """400 sub-environments, of which about twenty end in each step."""
    steps = 300
    peer = RecordEpisodeStatistics(CartPoleVectorEnv(num_envs=400))
    peer.reset(seed=5)
    with vecwrap.wrap(CartPoleVectorEnv(num_envs=400), ["monitor"]) as env:
        reset(env)
        for action in actions_of(env, steps):
            expected = peer.step(action)[4]
            infos = env.step(action)[4]
            assert infos.keys() == expected.keys()
            if "episode" in infos:
                np.testing.assert_array_equal(infos["_episode"], expected["_episode"])
                for key in ("r", "l"):
                    np.testing.assert_array_equal(infos["episode"][key], expected["episode"][key])
        monitor = env.find(Monitor)
        assert monitor.num_episodes == peer.episode_count > 2000
        assert monitor.return_queue == peer.return_queue
        assert monitor.length_queue == peer.length_queue
        assert [(game.score, game.length) for game in monitor.recent] == list(
            zip(monitor.return_queue, monitor.length_queue, strict=True)
        )
        assert len(monitor.latest) == infos.get("_episode", np.zeros(1)).sum()


def breakout(**options):
    return envpool.make(
        "Breakout-v5",
        env_type="gymnasium",
        num_envs=1,
        num_threads=1,
        stack_num=1,
        reward_clip=True,
        noop_max=1,
        use_fire_reset=False,
        **options,
    )


class PlainBreakout:
    """A loop over the emulator: four frames an action, and one no-op to begin a game or a life."""

    def __init__(self, max_steps, by_life):
        self.by_life = by_life
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.loadROM(ale_py.roms.get_rom_path("breakout"))
        self.actions = self.ale.getMinimalActionSet()
        self.max_steps = max_steps
        self.games = []
        self.begin()

    def begin(self):
        self.ale.reset_game()
        self.ale.act(ale_py.Action.NOOP)
        self.score, self.steps = 0.0, 0

    def step(self, action):
        """Return whether a life or the game is over."""
        lives = self.ale.lives()
        for _ in range(4):
            self.score += self.ale.act(self.actions[action])
            if self.ale.game_over():
                break
        self.steps += 1
        self.is_over = self.ale.game_over() or self.steps == self.max_steps
        if self.is_over:
            self.games.append((self.score, self.steps))
        return self.is_over or (self.by_life and self.ale.lives() < lives)

    def reset(self):
        if self.is_over:
            self.begin()
        else:
            self.ale.act(ale_py.Action.NOOP)


@pytest.mark.parametrize("max_steps", [27000, 70], ids=["lives", "time limit"])
@pytest.mark.parametrize(
    ("mode", "by_life"),
    [("next_step", True), ("next_step", False), ("same_step", False), ("disabled", False)],
)
def test_scores_of_envpools_games_are_those_of_the_emulator(mode, by_life, max_steps, tmp_path):
    plain = PlainBreakout(max_steps, by_life)
    engine = breakout(max_episode_steps=max_steps, episodic_life=by_life)
    wrappers = [{"monitor": {"dir": str(tmp_path)}}]
    over = False
    ends = 0
    with vecwrap.wrap(engine, wrappers, autoreset=mode) as env:
        env.reset()
        for action in np.random.default_rng(3).integers(4, size=900):
            if over:
                plain.reset()
                over = False
                if mode == "next_step":
                    env.step([action])
                    continue
            over = plain.step(action)
            ends += over
            _, rewards, terminations, truncations, _ = env.step([action])
            assert (terminations | truncations)[0] == over
            assert rewards[0] <= 1
            if over and mode == "disabled":
                env.reset()
    rows = [line.split(",") for line in (tmp_path / "monitor.csv").read_text().splitlines()[2:]]
    assert [(float(row[0]), int(row[1])) for row in rows] == plain.games
    assert sum(score for score, _ in plain.games) > 3
    assert 1 < len(plain.games) <= ends
    assert by_life is (len(plain.games) < ends)


@pytest.mark.parametrize("mode", ["same_step", "disabled"])
def test_lives_of_envpools_games_are_refused_where_a_reset_would_begin_a_new_game(mode):
    engine = breakout(episodic_life=True)
    with pytest.raises(PlanError, match="expected next_step with episodic_life"):
        vecwrap.wrap(engine, autoreset=mode)
    engine.close()


@pytest.mark.parametrize("make", WITH_MASKED_RESETS)
def test_stable_baselines_trains_on_an_engine(make):
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    venv = vecwrap.to_sb3(vecwrap.wrap(make(), ["monitor"], autoreset="same_step"))
    policy = "CnnPolicy" if len(venv.observation_space.shape) == 3 else "MlpPolicy"
    if venv.observation_space.shape == (84, 84):
        policy = "MlpPolicy"
    model = stable_baselines3.PPO(policy, venv, n_steps=64, batch_size=64, n_epochs=1)
    model.learn(192)
    assert len(model.ep_info_buffer) > 3
    venv.close()


class ReusesInfos(SyncVectorEnv):
    """Returns the same array of infos from each step and reset."""

    def __init__(self):
        super().__init__([lambda: gymnasium.make("CartPole-v1", max_episode_steps=6)] * 2)
        self.ages = np.zeros(2, np.int64)

    def reset(self, *, seed=None, options=None):
        self.ages[(options or {}).get("reset_mask", slice(None))] = 0
        return super().reset(seed=seed, options=options)[0], {"age": self.ages}

    def step(self, actions):
        self.ages += 1
        return *super().step(actions)[:4], {"age": self.ages}


def test_infos_of_an_end_are_copied_before_the_reset_within_the_step():
    ends = 0
    with vecwrap.wrap(ReusesInfos(), autoreset="same_step") as env:
        env.reset(seed=1)
        lengths = np.zeros(2, int)
        for step in range(20):
            _, _, terminations, truncations, infos = env.step([step % 2, 1])
            lengths += 1
            for i in np.flatnonzero(terminations | truncations):
                assert infos["final_info"]["age"][i] == lengths[i]
                lengths[i] = 0
                ends += 1
            assert infos["age"].tolist() == lengths.tolist()
    assert ends > 3


# -- infos and seeds -------------------------------------------------------------------------------


def envpool_cheetah():
    return envpool.make(
        "HalfCheetah-v5",
        env_type="gymnasium",
        num_envs=3,
        num_threads=1,
        seed=3,
        max_episode_steps=4,
    )


INFOS = {
    envpool_pong: {"env_id", "players", "lives", "reward", "terminated", "ram", "elapsed_step"},
    envpool_cheetah: {
        *("env_id", "players", "elapsed_step"),
        *("reward_run", "reward_ctrl", "x_position", "x_velocity"),
    },
    ale_pong: {"env_id", "lives", "frame_number", "episode_frame_number"},
}


@pytest.mark.parametrize("make", INFOS)
@pytest.mark.parametrize("mode", [None, "same_step"])
def test_infos_keep_the_engines_names_with_a_row_each(make, mode):
    keys = sorted(INFOS[make] - {"ram"})
    ended = 0
    with vecwrap.wrap(make(), [{"monitor": {"info_keys": keys}}], autoreset=mode) as env:
        n = env.num_envs
        reset_infos = reset(env)[1]
        assert reset_infos.keys() == INFOS[make]
        rng = np.random.default_rng(1)
        for _ in range(30):
            infos = env.step(env.action_space.sample() * 0 + rng.integers(2))[4]
            assert infos.keys() >= INFOS[make]
            assert all(len(column) == n for column in arrays_in(reset_infos))
            assert infos["env_id"].tolist() == list(range(n))
            if "episode" in infos:
                rows = np.flatnonzero(infos["_episode"])
                ended += len(rows)
                assert infos["episode"]["env_id"][rows].tolist() == rows.tolist()
                if "players" in INFOS[make]:
                    ids = infos["episode"]["players"]["env_id"][rows]
                    assert ids.tolist() == rows.tolist()
                if make is envpool_cheetah:
                    assert set(infos["episode"]["elapsed_step"][rows].tolist()) == {4}
    assert ended >= n


class Uneven(CartPoleVectorEnv):
    """Reports arrays of more, and of fewer, values than it has rows."""

    def told(self):
        more = np.arange(self.num_envs + 2)
        return {"lives": more[:-2], "players": {"env_id": more, "id": more[:-2]}, "few": more[:1]}

    def reset(self, **arguments):
        return super().reset(**arguments)[0], self.told()

    def step(self, actions):
        return *super().step(actions)[:4], self.told()


@pytest.mark.parametrize("settings", [{"backend": "dummy"}, {"backend": "shmem"}])
def test_an_array_of_another_length_is_the_same_for_all_rows(settings):
    keys = ["lives", "players", "few"]
    engines = {"n": 6, "envs_per_engine": 3, "autoreset": "next_step"}
    with vecwrap.build(
        Uneven, wrappers=[{"monitor": {"info_keys": keys}}], **engines, **settings
    ) as env:
        env.reset(seed=1)
        infos = {}
        while "episode" not in infos:
            infos = env.step(np.zeros(6, np.int64))[4]
    i = int(np.flatnonzero(infos["_episode"])[0])
    episode = infos["episode"]
    assert episode["lives"][i] == i % 3
    assert list(episode["players"]["env_id"][i]) == [0, 1, 2, 3, 4]
    assert episode["players"]["id"][i] == i % 3
    assert list(episode["few"][i]) == [0]


@pytest.mark.parametrize("make", [envpool_cartpole, envpool_pong])
def test_envpool_says_that_a_reset_takes_no_seed_and_errors_name_none(make):
    with vecwrap.wrap(make(), ["monitor"]) as env, vecwrap.wrap(make(), ["monitor"]) as other:
        with pytest.warns(UserWarning, match=r"reset\(seed=...\) is ignored; pass seed to envpool"):
            observations = env.reset(seed=77)[0]
        np.testing.assert_array_equal(observations, other.reset()[0])  # of the seed of its make
        engine = env.unwrapped.runner.engines()[0]
        engine.step = None
        with pytest.raises(SubEnvError, match=r"sub-environment 0 \(unseeded\)"):
            env.step(np.zeros(env.num_envs, np.int64))


def test_ale_gives_row_i_the_seed_plus_i():
    with vecwrap.wrap(ale_pong(), ["monitor"]) as env:

        def shown(seed):
            observations, infos = env.reset(seed=seed)
            return observations, infos["frame_number"].tolist()

        first, listed, other = shown(5), shown([5, 6]), shown(6)
        frames = {tuple(shown(seed)[1]) for seed in range(5)}
    np.testing.assert_array_equal(first[0], listed[0])
    np.testing.assert_array_equal(first[0][1], other[0][0])
    assert first[1] == listed[1]
    assert first[1][1] == other[1][0]
    assert len(frames) > 1


def test_envpools_games_of_several_players_are_refused_at_once():
    engine = envpool.make("TicTacToe-v1", env_type="gymnasium", num_envs=3)
    with pytest.raises(PlanError, match=r"got one for each of 2 players; .*PettingZoo"):
        vecwrap.wrap(engine)
    engine.close()
