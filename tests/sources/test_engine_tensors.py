"""An engine whose observations are tensors: they stay on their device until somebody reads them."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import vecwrap
from vecwrap.wrappers.framestack import FrameStack
from vecwrap.wrappers.monitor import Monitor

torch = pytest.importorskip("torch")

N = 3
LENGTHS = np.array([2, 3, 5])  # steps of each row's episodes


class OnDevice(torch.Tensor):
    """A tensor that cannot leave its device."""

    def _refused(self, *args, **kwargs):
        raise RuntimeError("converted")

    __array__ = numpy = cpu = tolist = _refused


def on_device(values):
    return torch.tensor(values, dtype=torch.float32).as_subclass(OnDevice)


def on_host(tensor):
    return tensor.as_subclass(torch.Tensor).numpy()


class Counters(gymnasium.vector.VectorEnv):
    """Shows each row's number and its step; writes into one buffer, as simulators on GPUs do."""

    num_envs = N
    finals = "final_observation"  # the older name, as ManiSkill has it
    single_observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    single_action_space = spaces.Discrete(2)

    def __init__(self, mode, kind=on_device):
        self.metadata = {"autoreset_mode": mode}
        self.observation_space = spaces.Box(-np.inf, np.inf, (N, 2), np.float32)
        self.action_space = spaces.MultiDiscrete([2] * N)
        self.buffer = kind(np.zeros((N, 2)))
        self.kind = kind
        self.times = np.zeros(N, np.int64)
        self.over = np.zeros(N, np.bool_)

    def shown(self):
        values = np.stack([np.arange(N), self.times], axis=1)
        self.buffer[:] = self.kind(values.astype(np.float32))
        return self.buffer

    def reset(self, *, seed=None, options=None):
        mask = (options or {}).get("reset_mask", np.ones(N, np.bool_))
        self.times[mask] = 0
        self.over = self.over & ~mask
        return self.shown(), {}

    def step(self, actions):
        resets = self.over
        self.times = np.where(resets, 0, self.times + 1)
        ended = (self.times >= LENGTHS) & ~resets
        infos = {}
        mode = self.metadata["autoreset_mode"]
        self.over = np.zeros(N, np.bool_)
        if mode is AutoresetMode.SAME_STEP:
            if ended.any():
                infos = {self.finals: self.shown() + 0, "final_info": {}}
            self.times[ended] = 0
        elif mode is AutoresetMode.NEXT_STEP:
            self.over = ended
        rewards = torch.tensor(np.where(resets, 0.0, 1.0))
        return self.shown(), rewards, torch.tensor(ended), torch.zeros(N, dtype=torch.bool), infos


def in_arrays(values):
    return np.array(values, np.float32)


MODES = {
    "next_step": AutoresetMode.NEXT_STEP,
    "same_step": AutoresetMode.SAME_STEP,
    "same_step by masked resets": AutoresetMode.NEXT_STEP,
    "disabled": AutoresetMode.DISABLED,
}


def wrapped(name, kind, wrappers):
    mode = name.partition(" ")[0]
    settings = {"autoreset": mode, "masked_resets": True}
    return vecwrap.wrap(Counters(MODES[name], kind), wrappers, **settings)


def play(env, steps=12):
    """Everything that is returned, and its terminal observations; ended rows are reset if asked."""
    seen = [env.reset(seed=1)]
    for _ in range(steps):
        seen.append(env.step(np.zeros(N, np.int64)))
        ended = seen[-1][2] | seen[-1][3]
        if env.autoreset_mode is AutoresetMode.DISABLED and ended.any():
            seen.append(env.reset(options={"reset_mask": ended}))
    return seen


@pytest.mark.parametrize("wrappers", [[], ["monitor"], ["clip_reward", "monitor"]], ids=str)
@pytest.mark.parametrize("name", MODES)
def test_nobody_reads_them_so_they_are_never_converted(name, wrappers):
    with wrapped(name, on_device, wrappers) as env, wrapped(name, in_arrays, wrappers) as other:
        seen = play(env)
        expected = play(other)
    finals = 0
    for one, like in zip(seen, expected, strict=True):
        assert type(one[0]) is OnDevice
        np.testing.assert_array_equal(on_host(one[0]), like[0])  # as it was, in spite of the buffer
        for column, array in zip(one[1:-1], like[1:-1], strict=True):
            assert type(column) is np.ndarray
            np.testing.assert_array_equal(column, array)
        assert one[-1].keys() == like[-1].keys()
        if "episode" in like[-1]:
            np.testing.assert_array_equal(one[-1]["episode"]["r"], like[-1]["episode"]["r"])
        for final, array in zip(
            one[-1].get("final_obs", ()), like[-1].get("final_obs", ()), strict=True
        ):
            assert (final is None) == (array is None)
            if array is not None:
                finals += 1
                np.testing.assert_array_equal(on_host(final), array)
    assert finals > 3 or not name.startswith("same_step")


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("wrappers", [["framestack:2"], ["monitor", "normalize"]], ids=str)
def test_a_wrapper_that_reads_them_has_arrays(name, wrappers):
    with wrapped(name, torch.tensor, wrappers) as env, wrapped(name, in_arrays, wrappers) as other:
        for one, like in zip(play(env), play(other), strict=True):
            assert type(one[0]) is np.ndarray
            np.testing.assert_array_equal(one[0], like[0])


def test_a_wrapper_that_is_derived_from_one_that_reads_none_has_arrays():
    class Looking(Monitor):
        def on_step(self, step):
            super().on_step(step)
            self.seen = type(step.observations)

    with wrapped("next_step", torch.tensor, [Looking]) as env:
        env.reset()
        env.step([0, 0, 0])
        assert env.seen is np.ndarray


def test_what_is_put_around_later_has_arrays_of_the_rows_that_are_there():
    inner = wrapped("disabled", torch.tensor, ["monitor"])
    inner.reset(seed=1)
    for _ in range(2):
        seen = inner.step([0, 0, 0])[0]
    assert isinstance(seen, torch.Tensor)
    env = FrameStack(inner, 2)
    observations, _ = env.reset(options={"reset_mask": np.array([True, False, False])})
    assert type(observations) is np.ndarray
    assert observations[0].tolist() == [[0, 0], [0, 0]]
    assert env.step([0, 0, 0])[0][0].tolist() == [[0, 0], [0, 1]]
    env.close()


def test_a_masked_reset_repeats_other_rows_whatever_was_written_into_the_results():
    with wrapped("disabled", on_device, ["monitor"]) as env:
        env.reset(seed=1)
        for _ in range(2):
            observations = env.step([0, 0, 0])[0]
        observations *= -1
        repeated, _ = env.reset(options={"reset_mask": np.array([True, False, False])})
        assert type(repeated) is OnDevice
        assert on_host(repeated).tolist() == [[0, 0], [1, 2], [2, 2]]
        repeated *= -1
        assert on_host(env.step([0, 0, 0])[0]).tolist() == [[0, 1], [1, 3], [2, 3]]


def test_members_that_the_space_lacks_are_left_out():
    class Members(Counters):
        single_observation_space = spaces.Dict(at=Counters.single_observation_space)

        def shown(self):
            return {"at": super().shown(), "hidden": self.buffer}

    with vecwrap.wrap(Members(AutoresetMode.NEXT_STEP), ["monitor"]) as env:
        env.reset()
        observations = env.step([0, 0, 0])[0]
    assert list(observations) == ["at"]
    assert type(observations["at"]) is OnDevice


@pytest.mark.parametrize("as_rows", [False, True])
def test_terminal_observations_in_arrays_are_put_among_the_tensors(as_rows):
    class Arrays(Counters):
        finals = "final_obs"

        def step(self, actions):
            *values, infos = super().step(actions)
            if infos:
                final = on_host(infos["final_obs"])
                infos["final_obs"] = final
                if as_rows:
                    infos["final_obs"] = np.full(N, None)
                    for i in np.flatnonzero(values[2].numpy()):
                        infos["final_obs"][i] = final[i]
            return *values, infos

    with vecwrap.wrap(Arrays(AutoresetMode.SAME_STEP), ["monitor"]) as env:
        env.reset()
        for _ in range(2):
            observations, *_, infos = env.step([0, 0, 0])
    assert on_host(observations).tolist() == [[0, 0], [1, 2], [2, 2]]
    assert on_host(infos["final_obs"][0]).tolist() == [0, 2]


def test_stable_baselines3_has_arrays():
    pytest.importorskip("stable_baselines3")
    env = vecwrap.to_sb3(wrapped("same_step by masked resets", torch.tensor, ["monitor"]))
    assert type(env.reset()) is np.ndarray
    for _ in range(2):
        observations, _, dones, infos = env.step(np.zeros(N, np.int64))
    assert observations.tolist() == [[0, 0], [1, 2], [2, 2]]
    assert dones.tolist() == [True, False, False]
    assert infos[0]["terminal_observation"].tolist() == [0, 2]
    env.close()


def test_a_policy_that_is_evaluated_has_arrays():
    given = []

    def policy(observations):
        given.append(type(observations))
        return np.zeros(N, np.int64)

    with wrapped("same_step", torch.tensor, ["monitor"]) as env:
        env.reset()
        assert isinstance(env.step([0, 0, 0])[0], torch.Tensor)
        result = vecwrap.evaluate(env, policy, 3)
    assert set(given) == {np.ndarray}
    assert sorted(result.lengths) == [2, 3, 5]


def test_a_state_is_saved_without_them():
    with wrapped("next_step", on_device, ["monitor"]) as env:
        play(env, 4)
        state = env.state_dict()
        count = env.find(Monitor).num_episodes
        assert state["sub_envs"] is None
    with wrapped("next_step", on_device, ["monitor"]) as env:
        env.load_state_dict(state)
        assert env.find(Monitor).num_episodes == count > 0
        assert type(env.reset()[0]) is OnDevice
        assert type(env.step([0, 0, 0])[0]) is OnDevice
