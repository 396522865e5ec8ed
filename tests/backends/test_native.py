"""Engines with a vector implementation of their own under our layers, compared with our own backend where possible."""

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from vecwrap.backends.dummy import DummyBackend
from vecwrap.backends.native import NativeBackend
from vecwrap.errors import ArgumentError, PlanError
from vecwrap.wrappers.framestack import FrameStack

gymnasium.register_envs(ale_py)


def cartpole():
    return gymnasium.make("CartPole-v1", max_episode_steps=15)


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("engine", [SyncVectorEnv, AsyncVectorEnv])
def test_gymnasiums_engines_under_framestack_equal_dummy_under_framestack(mode, engine):
    ours = FrameStack(DummyBackend([cartpole] * 3, autoreset=mode), 3)
    theirs = FrameStack(NativeBackend(engine([cartpole] * 3, autoreset_mode=mode)), 3)
    with ours, theirs:
        ours.action_space.seed(1)
        endings = {"terminated": 0, "truncated": 0}
        np.testing.assert_array_equal(ours.reset(seed=1)[0], theirs.reset(seed=1)[0])
        for _ in range(120):
            actions = ours.action_space.sample()
            ours_step, theirs_step = ours.step(actions), theirs.step(actions)
            for one, other in zip(ours_step[:4], theirs_step[:4], strict=True):
                np.testing.assert_array_equal(one, other)
            assert ours_step[4].keys() == theirs_step[4].keys()
            for one, other in zip(ours_step[4].get("final_obs", ()), theirs_step[4].get("final_obs", ()), strict=True):
                np.testing.assert_array_equal(one, other)
            endings["terminated"] += ours_step[2].sum()
            endings["truncated"] += ours_step[3].sum()
            dones = ours_step[2] | ours_step[3]
            if mode is AutoresetMode.DISABLED and dones.any():
                options = {"reset_mask": dones}
                np.testing.assert_array_equal(ours.reset(options=options)[0], theirs.reset(options=options)[0])
        assert min(endings.values()) > 2


def test_actions_are_those_of_the_call_whatever_becomes_of_the_array():
    with DummyBackend([cartpole] * 2) as ours, NativeBackend(SyncVectorEnv([cartpole] * 2)) as theirs:
        np.testing.assert_array_equal(ours.reset(seed=1)[0], theirs.reset(seed=1)[0])
        actions = np.array([0, 1])
        theirs.step_async(actions)
        actions[:] = 1, 0
        np.testing.assert_array_equal(ours.step([0, 1])[0], theirs.step_wait()[0])


def test_cartpoles_own_vector_class_ignores_the_mask_so_a_masked_reset_is_refused():
    with NativeBackend(CartPoleVectorEnv(4)) as env:
        env.reset(seed=3)
        mask = np.array([True, False, False, False])
        before = env.vector_env.state.copy()
        with pytest.raises(ArgumentError, match="CartPoleVectorEnv: masked resets are refused"):
            env.reset(options={"reset_mask": mask})
        np.testing.assert_array_equal(env.vector_env.state, before)
        env.step([0, 1, 0, 1])


def test_ales_own_vector_engine():
    AtariVectorEnv = pytest.importorskip("ale_py.vector_env", reason="came with ale-py 0.11").AtariVectorEnv
    with FrameStack(NativeBackend(AtariVectorEnv("pong", num_envs=2, stack_num=1)), 2) as env:
        twin = AtariVectorEnv("pong", num_envs=2, stack_num=1)
        observations, _ = env.reset(seed=5)
        plain, _ = twin.reset(seed=5)
        for _ in range(30):
            np.testing.assert_array_equal(observations[:, -1], plain)
            observations, rewards, *_ = env.step([2, 3])
            plain, theirs, *_ = twin.step(np.array([2, 3]))
            np.testing.assert_array_equal(rewards, theirs)
        twin.close()


class Undeclared(CartPoleVectorEnv):
    metadata = {}

    def __init__(self):
        super().__init__(2)
        self.metadata = {}


def test_an_engine_that_declares_no_mode_is_refused_unless_one_is_given():
    with pytest.raises(PlanError, match="Undeclared does not say what follows the end of an episode"):
        NativeBackend(Undeclared())
    with NativeBackend(Undeclared(), autoreset="next_step") as env:
        assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    with pytest.raises(PlanError, match="declares next_step"):
        NativeBackend(CartPoleVectorEnv(2), autoreset="same_step")


def test_what_it_hands_out_stays_as_it_was():
    with NativeBackend(SyncVectorEnv([cartpole] * 2, copy=False)) as env:
        first, _ = env.reset(seed=1)
        kept = first.copy()
        env.step([0, 1])
        np.testing.assert_array_equal(first, kept)


def test_rows_go_out_together_or_not_at_all():
    with NativeBackend(SyncVectorEnv([cartpole] * 3)) as env:
        env.reset(seed=1)
        with pytest.raises(ArgumentError, match="steps all 3 sub-environments together"):
            env.send([0], env_ids=[1])
        env.send([0, 1, 0])
        assert env.recv()[4]["env_id"].tolist() == [0, 1, 2]
        assert env.get_attr("spec")[0].id == "CartPole-v1"
