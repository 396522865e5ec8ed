"""Stable-Baselines3's helpers, used as its users use them, on what ``to_sb3`` gives."""

import warnings
from functools import partial

import imageio.v3
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import DQN, PPO, HerReplayBuffer
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.results_plotter import load_results
from stable_baselines3.common.vec_env import VecTransposeImage, VecVideoRecorder

import vecwrap
from tests.adapters.worlds import DICT
from tests.helpers.stream_envs import ToyEnv


def adapted(env, n, wrappers, **settings):
    return vecwrap.to_sb3(vecwrap.build(env, n, wrappers, **{"backend": "dummy", **settings}))


class Still:
    """A policy that does nothing, or acts at random."""

    def __init__(self, space, seed=None):
        self.space, self.seed = space, seed
        space.seed(seed)

    def predict(self, observations, state=None, episode_start=None, deterministic=False):
        return np.array(
            [self.space.sample() if self.seed is not None else 0 for _ in observations]
        ), None


def test_evaluate_policy_takes_the_monitors_scores():
    venv = adapted("CartPole-v1", 3, ["monitor", "normalize"], backend="shmem", seed=4)
    monitor = venv.vecwrap_env.chain[1]
    returns, lengths = evaluate_policy(
        Still(venv.action_space, 1), venv, 9, return_episode_rewards=True
    )
    assert returns == lengths  # games, whatever normalises: a warning would be an error here
    assert set(returns) <= {episode.score for episode in monitor.recent}
    venv.close()


def test_evaluate_policy_warns_where_nothing_monitors():
    venv = adapted("CartPole-v1", 2, [])
    with pytest.warns(
        UserWarning, match="Evaluation environment is not wrapped with a ``Monitor``"
    ):
        evaluate_policy(Still(venv.action_space), venv, 2)
    venv.close()


def test_callbacks_and_a_saved_model(tmp_path):
    venv, evaluation = (adapted("CartPole-v1", n, ["monitor"]) for n in (4, 2))
    model = PPO("MlpPolicy", venv, n_steps=32, batch_size=64, n_epochs=1, seed=1, device="cpu")
    evaluate = EvalCallback(
        evaluation, n_eval_episodes=4, eval_freq=32, log_path=tmp_path, verbose=0
    )
    model.learn(256, [evaluate, CheckpointCallback(32, tmp_path)])
    assert np.load(tmp_path / "evaluations.npz")["timesteps"].tolist() == [128, 256]
    assert len(model.ep_info_buffer) > 5
    loaded = PPO.load(
        tmp_path / "rl_model_256_steps", env=adapted("CartPole-v1", 4, ["monitor"]), device="cpu"
    )
    observations = venv.reset()
    np.testing.assert_array_equal(loaded.predict(observations)[0], model.predict(observations)[0])
    loaded.learn(128, reset_num_timesteps=False)
    for env in (venv, evaluation, loaded.get_env()):
        env.close()


def test_load_results_reads_what_the_monitor_writes(tmp_path):
    venv = adapted("CartPole-v1", 3, [{"monitor": {"dir": str(tmp_path), "per_env": True}}])
    model = PPO("MlpPolicy", venv, n_steps=64, batch_size=64, n_epochs=1, device="cpu").learn(384)
    venv.close()
    table = load_results(str(tmp_path))
    assert len(table) == venv.vecwrap_env.chain[0].num_episodes > 10
    assert sorted(table["r"])[-100:] == sorted(each["r"] for each in model.ep_info_buffer)


def test_vec_video_recorder(tmp_path):
    pytest.importorskip("moviepy")
    venv = adapted("CartPole-v1", 4, ["monitor"], backend="shmem", render_mode="rgb_array")
    with warnings.catch_warnings():
        # Moviepy leaves its pipe to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        recorder = VecVideoRecorder(
            venv, str(tmp_path), record_video_trigger=lambda step: step == 0, video_length=5
        )
        recorder.reset()
        for _ in range(6):
            recorder.step(np.ones(4, int))
        recorder.close()
    (path,) = tmp_path.glob("*.mp4")
    assert imageio.v3.improps(path, plugin="FFMPEG").shape[1:] == (800, 1200, 3)  # two by two
    assert imageio.v3.immeta(path, plugin="FFMPEG")["fps"] == 50


def test_hindsight_replay_calls_the_environment():
    venv = adapted(partial(BitFlippingEnv, n_bits=4, continuous=False), 2, ["monitor"])
    model = DQN(
        "MultiInputPolicy",
        venv,
        replay_buffer_class=HerReplayBuffer,
        learning_starts=40,
        train_freq=8,
        buffer_size=500,
        seed=0,
        device="cpu",
    )
    model.learn(100)
    assert (
        model.replay_buffer.sample(32).rewards == 0
    ).any()  # goals that were reached, in hindsight
    assert len(model.ep_success_buffer) > 5
    venv.close()


# -- a Dict of observations ------------------------------------------------------------------------


def dict_toy(index):
    camera = spaces.Box(0, 255, (36, 40, 3), np.uint8)  # what SB3's CNN needs at least
    return ToyEnv(
        lengths=(5, 3),
        index=index,
        observation_space=spaces.Dict({**DICT.spaces, "camera": camera}),
    )


def test_multi_input_policy_learns_from_chosen_members_stacked_and_normalised():
    wrappers = [
        "monitor",
        {"framestack": {"k": 3, "keys": ["speed", "camera"], "axis": "channel"}},
        {"normalize": {"keys": ["speed"]}},
    ]
    venv, evaluation = (
        adapted([partial(dict_toy, i) for i in range(n)], None, wrappers) for n in (2, 1)
    )
    evaluation.training = False
    expected = spaces.Dict(
        camera=spaces.Box(0, 255, (9, 36, 40), np.uint8),  # SB3 puts the channels first
        gear=spaces.Discrete(5),
        speed=spaces.Box(-10, 10, (6,), np.float32),
    )
    small = {"net_arch": [8], "features_extractor_kwargs": {"cnn_output_dim": 8}}
    around = VecTransposeImage(venv)
    assert around.observation_space == expected
    model = PPO(
        "MultiInputPolicy",
        around,
        n_steps=16,
        batch_size=16,
        n_epochs=1,
        device="cpu",
        policy_kwargs=small,
    )
    model.learn(
        64, EvalCallback(VecTransposeImage(evaluation), n_eval_episodes=2, eval_freq=16, verbose=0)
    )
    assert evaluation.obs_rms.keys() == {"speed"}
    np.testing.assert_array_equal(evaluation.obs_rms["speed"].mean, venv.obs_rms["speed"].mean)
    assert model.rollout_buffer.observations["camera"].shape == (32, 9, 36, 40)
    venv.close()
    evaluation.close()
