"""What ``to_sb3`` shows of the environments themselves: their infos, attributes, and they
themselves.
"""

import threading
from functools import partial

import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv

import vecwrap
from tests.adapters.test_to_sb3 import BACKENDS, adapted, assert_same
from tests.adapters.worlds import Mine, Named, short_cartpole
from tests.helpers.pair_rows import Pairs

ODD = [
    {"_success": False, "success": True},
    {"success": True, "_success": False, "d": {"_x": 1, "x": [np.float32(2)], 3: "three"}},
    {
        "_success": False,
        "final_obs": 1,
        "final_info": {"a": 1},
        "env_id": 4,
        "restarted": 5,
        "_final_obs": None,
    },
    {"n": 1, "m": 2.5, "big": 2**70, "array": np.arange(3), "text": "one", "flag": np.bool_(True)},
    {
        "n": 1.5,
        "m": 2,
        "big": None,
        "array": np.arange(2),
        "flag": True,
        "episode_id": 7,
        "raw_reward": 3,
    },
]


class Thrifty(vecwrap.VecEnvWrapper):
    """Leaves one column out, changes one and adds one, without ``add_info``."""

    def on_step(self, step):
        infos = {key: column for key, column in step.infos.items() if key not in ("text", "_text")}
        if "array" in infos:
            infos["array"] = np.array(["changed"] * len(step.env_ids), dtype=object)
        step.infos = {
            **infos,
            "number": np.arange(len(step.env_ids)),
            "_number": np.ones(len(step.env_ids), np.bool_),
        }


@pytest.mark.parametrize("wrappers", [(), ("monitor",), ("terminal_obs", Thrifty)], ids=str)
@pytest.mark.parametrize("on_failure", ["raise", "restart"])
@BACKENDS
def test_each_row_has_the_infos_that_its_environment_gave(backend, on_failure, wrappers):
    """Values, types, order of keys as given; at an end the step's own; beside what wrappers add."""
    if backend == "shmem":
        backend = {"name": "shmem", "workers": 2, "parent_share": False}
    turns = [ODD, ODD[1:] + ODD[:1]]
    venv = adapted(
        [partial(Named, turn) for turn in turns], wrappers, backend=backend, on_failure=on_failure
    )
    venv.reset()
    given = 0
    theirs = ("TimeLimit.truncated", "terminal_observation", "episode", "terminal_obs", "number")

    def agrees(infos, final=False):
        for i, info in enumerate(infos):
            own = {key: value for key, value in info.items() if key not in theirs}
            expected = dict(turns[i][given % len(ODD)])
            if Thrifty in wrappers and not final:
                expected.pop("text", None)
                if "array" in expected:
                    expected["array"] = "changed"
                assert info["number"] == i
            else:
                assert list(own) == list(expected)
            assert_same(own, expected)

    agrees(venv.reset_infos)
    for number in range(8):
        infos = venv.step(np.zeros(2, int))[3]
        given += 1
        agrees(infos, final=number % 2 == 1)
        if number % 2:
            assert [info["TimeLimit.truncated"] for info in infos] == [False, False]
            assert all(info["terminal_observation"].shape == (1,) for info in infos)
            given += 1
            agrees(venv.reset_infos)
        assert all(
            ("episode" in info) == ("monitor" in wrappers and number % 2 == 1) for info in infos
        )
    venv.close()


@BACKENDS
def test_the_infos_of_a_wrapper_with_rows_of_its_own_are_those_of_its_rows(backend):
    """Row i of ``Pairs`` stands for the sub-environments 2i and 2i + 1, and is what 2i says."""
    turns = [[{"who": j}, {"who": j, "odd": str(j)}, {"last": j}] for j in range(6)]
    env = Pairs(vecwrap.build([partial(Named, turn) for turn in turns], backend=backend))
    with vecwrap.build([partial(Named, turn) for turn in turns[::2]], backend="dummy") as twin:
        venv, expected = vecwrap.to_sb3(env), vecwrap.to_sb3(twin)
        venv.seed(5), expected.seed(5)
        venv.reset(), expected.reset()
        assert_same(venv.reset_infos, expected.reset_infos)
        for _ in range(9):
            assert_same(venv.step(np.zeros(3, int)), expected.step(np.zeros(3, int)))
            assert_same(venv.reset_infos, expected.reset_infos)
        venv.close()


def test_what_cannot_be_copied_is_passed_on():
    venv = adapted([partial(Named, [{"lock": threading.Lock()}])] * 2, ["monitor"], backend="dummy")
    locks = [env.infos[0]["lock"] for env in venv.envs]
    venv.reset()
    assert venv.reset_infos[1]["lock"] is locks[1]
    for _ in range(4):
        assert venv.step(np.zeros(2, int))[3][1]["lock"] is locks[1]
    venv.close()


# -- sub-environments and their attributes ---------------------------------------------------------


@pytest.mark.parametrize("wrappers", [[], ["normalize"]], ids=str)
def test_callbacks_look_at_the_sub_environments_where_they_are_in_this_process(wrappers):
    venv = adapted(short_cartpole, wrappers, n=2, backend="dummy")
    seen = []

    class Looking(BaseCallback):
        def _on_step(self):
            seen.append(self.training_env.envs[0].unwrapped.gravity)
            return True

    model = PPO("MlpPolicy", venv, n_steps=8, batch_size=16, n_epochs=1)
    model.learn(16, callback=Looking())
    assert seen == [9.8] * 8
    assert [type(env.unwrapped).__name__ for env in model.get_env().envs] == ["CartPoleEnv"] * 2
    venv.close()


@pytest.mark.parametrize("wrappers", [[], ["normalize"]], ids=str)
def test_elsewhere_they_are_told_what_to_use(wrappers):
    venv = adapted(short_cartpole, wrappers, n=2, backend="subprocess")
    with pytest.raises(AttributeError, match="get_attr"):
        _ = venv.envs
    venv.close()


def test_around_a_vec_env_of_sb3_they_are_there_too():
    with vecwrap.from_sb3(DummyVecEnv([short_cartpole] * 2)) as env:
        assert [type(one) for one in env.envs] == [Mine] * 2
