"""Policies that need to know which actions are legal: they get the masks, or it is an error."""

import functools
import gc
import sys
import types
import weakref

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import vecwrap
from tests.helpers.pair_rows import Pairs
from vecwrap.errors import ArgumentError, CheckpointError

MODES = ["same_step", "next_step", "disabled", "episodic"]
PLACES = ["infos", "member", "method"]


class Steps(gymnasium.Env):
    """Only action ``(seed + time) % n`` is legal; it pays 1, all others -100.

    Episodes have 3 to 5 steps.
    """

    def __init__(self, place="infos", n=4, shape="discrete"):
        self.place, self.n, self.shape = place, n, shape
        self.action_space = (
            spaces.Discrete(n) if shape == "discrete" else spaces.MultiDiscrete([n, 2])
        )
        self.observation_space = spaces.Box(0, 99, (1,), np.float32)
        if place == "member":
            member = spaces.Box(0, 1, (n if shape == "discrete" else n + 2,), np.int8)
            self.observation_space = spaces.Dict(at=self.observation_space, action_mask=member)
        if place == "method":
            self.action_masks = lambda: self.mask().astype(bool)

    def mask(self):
        first = (np.arange(self.n) == self.legal).astype(np.int8)
        return first if self.shape == "discrete" else np.array([*first, 0, 1], np.int8)

    def seen(self):
        self.legal = (self.begin + self.time) % self.n
        at = np.array([self.time], np.float32)
        observation = {"at": at, "action_mask": self.mask()} if self.place == "member" else at
        if self.place == "tuple":
            return observation, {"action_mask": (self.mask()[: self.n], self.mask()[self.n :])}
        return observation, {"action_mask": self.mask()} if self.place == "infos" else {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.begin, self.time = int(self.np_random.integers(9)), 0
        return self.seen()

    def step(self, action):
        legal = (
            action == self.legal if self.shape == "discrete" else tuple(action) == (self.legal, 1)
        )
        self.time += 1
        observation, info = self.seen()
        return observation, 1.0 if legal else -100.0, self.time == 3 + self.begin % 3, False, info


class Masked:
    """As sb3-contrib's: the first legal action, and without masks the action 0."""

    def __init__(self):
        self.masks = []

    def predict(
        self, observation, state=None, episode_start=None, deterministic=False, action_masks=None
    ):
        self.masks.append(action_masks)
        if action_masks is None:
            rows = observation["at"] if isinstance(observation, dict) else observation
            return np.zeros(len(rows), int), None
        return action_masks.argmax(axis=1), None


def best(returns, lengths):
    return (returns == lengths).all()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", ["dummy", "shmem"])
def test_a_model_that_takes_masks_gets_them_wherever_the_environment_has_them(place, mode, backend):
    model = Masked()
    with vecwrap.build(
        [functools.partial(Steps, place)] * 3, backend=backend, autoreset=mode
    ) as env:
        reached = vecwrap.evaluate(env, model, 13, seed=1)
    assert best(reached.returns, reached.lengths)
    assert all(masks.shape == (3, 4) and masks.dtype == bool for masks in model.masks)


@pytest.mark.parametrize("mode", MODES)
def test_a_callable_gets_what_it_declares_and_nothing_else(mode):
    def by_masks(observations, *, action_masks):
        return action_masks.argmax(axis=1)

    def by_infos(observations, infos=None):
        assert infos["_action_mask"].all() or mode == "episodic"  # where rows rest
        return infos["action_mask"].argmax(axis=1), {"extras": 1}

    def by_others(observations, **others):
        assert not others
        return np.zeros(len(observations), int)

    with vecwrap.build([Steps] * 3, wrappers=["monitor"], backend="dummy", autoreset=mode) as env:
        for policy in (by_masks, by_infos, Masked().predict):
            reached = vecwrap.evaluate(env, policy, 13, seed=1)
            assert best(reached.returns, reached.lengths)
        assert not best(
            *(lambda found: (found.returns, found.lengths))(
                vecwrap.evaluate(env, by_others, 13, seed=1)
            )
        )


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
@pytest.mark.parametrize("kind", [gymnasium.vector.SyncVectorEnv, gymnasium.vector.AsyncVectorEnv])
def test_around_gymnasiums_own_vectors_too(kind, mode, place):
    with vecwrap.wrap(kind([functools.partial(Steps, place)] * 2, autoreset_mode=mode)) as env:
        reached = vecwrap.evaluate(env, Masked(), 7, seed=1)
    assert best(reached.returns, reached.lengths)


@pytest.mark.parametrize("place", [*PLACES, "tuple"])
def test_masks_of_a_multidiscrete_are_flattened(place):
    seen = []

    def policy(observations, action_masks):
        seen.append(action_masks)
        return np.stack(
            [action_masks[:, :4].argmax(axis=1), action_masks[:, 4:].argmax(axis=1)], axis=1
        )

    with vecwrap.build(
        [functools.partial(Steps, place, shape="multi")] * 2, backend="dummy"
    ) as env:
        reached = vecwrap.evaluate(env, policy, 6, seed=1)
    assert best(reached.returns, reached.lengths)
    assert seen[0].shape == (2, 6)


def test_a_policy_that_takes_masks_is_refused_where_there_are_none():
    def policy(observations, action_masks=None):
        return [0, 0]

    with vecwrap.build("CartPole-v1", 2, backend="dummy") as env:
        for one in (Masked(), policy):
            with pytest.raises(
                ArgumentError,
                match=r'takes action_masks, but .* none, .*; expected infos\["action_mask"\]',
            ):
                vecwrap.evaluate(env, one, 2)


class Forgetful(Steps):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], {}


def test_masks_that_are_missing_or_of_the_wrong_form_are_errors():
    with (
        vecwrap.build([Steps, Forgetful], backend="dummy") as env,
        pytest.raises(ArgumentError, match=r"none of \[1\]"),
    ):
        vecwrap.evaluate(env, Masked(), 2)
    with (
        vecwrap.build(functools.partial(Steps, n=3), 2, backend="dummy", wrappers=[Wider]) as env,
        pytest.raises(
            ArgumentError,
            match=(
                r"action_mask: expected 4 zeros and ones for Discrete\(4\), got 3 values of "
                r"\[0, 1\]"
            ),
        ),
    ):
        vecwrap.evaluate(env, Masked(), 2, seed=0)
    box = vecwrap.build("Pendulum-v1", 2, wrappers=[Legal], backend="dummy")
    with (
        box as env,
        pytest.raises(
            ArgumentError, match=r"expected Discrete, MultiDiscrete or MultiBinary actions, got B"
        ),
    ):
        vecwrap.evaluate(env, Masked(), 2, seed=0)


@pytest.mark.parametrize("backend", ["dummy", "shmem"])
@pytest.mark.parametrize(
    "wrapper", ["framestack:2", {"extract_obs": "at"}, {"normalize_obs": {"keys": ["at"]}}]
)
@pytest.mark.parametrize("mode", MODES)
def test_a_mask_among_the_observations_is_the_environments_own_whatever_wrappers_make_of_it(
    wrapper, mode, backend
):
    makers = [functools.partial(Steps, "member")] * 2
    with vecwrap.build(makers, wrappers=[wrapper], backend=backend, autoreset=mode) as env:
        reached = vecwrap.evaluate(
            env, lambda observations, action_masks: action_masks.argmax(axis=1), 7, seed=1
        )
    assert best(reached.returns, reached.lengths)


class Legal(gymnasium.Wrapper):
    def action_masks(self):
        return np.ones(1)


class Wider(gymnasium.Wrapper):
    def __init__(self, env):
        super().__init__(env)
        self.action_space = spaces.Discrete(4)


@pytest.mark.parametrize("evaluation", [[], ["--eval"]])
@pytest.mark.parametrize("policy", ["act", "model.predict"])
def test_vecwrap_run_passes_masks_too(policy, evaluation, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from vecwrap.cli.app import with_commands

    bots = types.ModuleType("masked_bots")
    bots.act = lambda observations, *, action_masks: action_masks.argmax(axis=1)
    bots.model, bots.Steps = Masked(), Steps
    monkeypatch.setitem(sys.modules, "masked_bots", bots)
    monkeypatch.chdir(tmp_path)
    for mode in MODES:
        spec = f"masked_bots:Steps n=2 autoreset={mode} backend=dummy seed=3"
        said = CliRunner().invoke(
            with_commands("run"),
            ["run", spec, "--episodes", "6", "--policy", f"masked_bots:{policy}", *evaluation],
        )
        assert said.exit_code == 0, said.output
        score = next(line for line in said.output.splitlines() if line.startswith("score"))
        assert " from 3 to 5" in score or " from 3 to 4" in score
    timed = with_commands("time")
    said = CliRunner().invoke(
        timed, ["time", "CartPole-v1 n=2", "--steps", "20", "--policy", f"masked_bots:{policy}"]
    )
    assert "takes action_masks, but" in str(said.exception or said.output)


@pytest.mark.parametrize("shape", ["discrete", "multi"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("mode", MODES)
def test_a_random_policy_draws_legal_actions(mode, place, shape):
    from vecwrap.tools.rollout import find_policy

    with vecwrap.build(
        [functools.partial(Steps, place, shape=shape)] * 3, backend="dummy", autoreset=mode
    ) as env:
        reached = vecwrap.evaluate(env, find_policy("random", env), 13, seed=1)
    assert best(reached.returns, reached.lengths)


def test_a_random_policy_draws_each_legal_action_as_often():
    from vecwrap.tools.policy_runner import RandomPolicy

    with vecwrap.build("CartPole-v1", n=300, backend="dummy") as env:
        env.action_space.seed(3)
        policy = RandomPolicy(env)
        assert policy(None).shape == (300,)
        policy._single = spaces.Discrete(5, start=2)
        masks = np.tile([True, False, True, True, False], (300, 1))
        drawn = np.concatenate([policy(None, action_masks=masks) for _ in range(10)])
        assert sorted(set(drawn.tolist())) == [2, 4, 5]
        assert np.bincount(drawn)[[2, 4, 5]].min() > 900
        policy._single = spaces.MultiBinary(2)
        policy._space = spaces.MultiBinary((300, 2))
        policy._space.seed(1)
        masks = np.tile([True, False, True, True], (300, 1))
        drawn = np.concatenate([policy(None, action_masks=masks) for _ in range(10)])
        assert drawn.shape == (3000, 2)
        assert drawn[:, 0].sum() == 0
        assert 1300 < drawn[:, 1].sum() < 1700


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("shape", ["discrete", "multi"])
def test_debug_refuses_illegal_actions_and_nothing_is_stepped(place, shape):
    make = functools.partial(Steps, place, shape=shape)
    with vecwrap.build([make] * 3, backend="dummy", debug=True, seed=1) as env:
        env.reset()
        for _ in range(9):
            legal = [int(mask[:4].argmax()) for mask in env.action_masks()]
            actions = legal if shape == "discrete" else [[one, 1] for one in legal]
            bad = [*actions[:2], (legal[2] + 1) % 4 if shape == "discrete" else [legal[2], 0]]
            with pytest.raises(
                ArgumentError,
                match=r"actions\[2\], for sub-environment 2: expected a legal action, one",
            ):
                env.step(bad)
            _, rewards, *_ = env.step(actions)
            assert (rewards == 1).all()
        legal = [int(mask[:4].argmax()) for mask in env.action_masks()]
        actions = legal if shape == "discrete" else [[one, 1] for one in legal]
        env.send([actions[2], actions[0]], env_ids=[2, 0])
        env.recv()


def test_masks_are_a_method_of_every_environment_that_reports_them():
    for place in PLACES:
        with vecwrap.build(
            [functools.partial(Steps, place)] * 2, wrappers=["monitor"], backend="shmem", seed=1
        ) as env:
            env.reset()
            env.step([0, 0])
            env.reset(options={"reset_mask": np.array([False, True])})
            masks = env.action_masks()
            assert masks.dtype == bool
            assert masks.sum(axis=1).tolist() == [1, 1]


def test_debug_keeps_no_environment_alive():
    gc.disable()
    try:
        env = vecwrap.build([Steps] * 2, backend="dummy", debug=True, seed=1)
        env.reset()
        with pytest.raises(ArgumentError, match="expected a legal action"):
            env.step([4 - 1 - int(mask.argmax()) for mask in env.action_masks()])
        gone = weakref.ref(env)
        del env
        assert gone() is None
    finally:
        gc.enable()


def test_only_the_sub_environments_that_rows_stand_for_need_the_method():
    makes = [functools.partial(Steps, "method" if i % 2 == 0 else "") for i in range(6)]
    with Pairs(vecwrap.build(makes, backend="dummy", seed=1)) as env:
        env.reset()
        assert env.action_masks().sum(axis=1).tolist() == [1, 1, 1]
        assert [mask.argmax() for mask in env.action_masks()] == list(env.get_attr("legal"))
        assert vecwrap.to_sb3(env).has_attr("action_masks")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", ["dummy", "shmem"])
@pytest.mark.parametrize("shape", ["discrete", "multi"])
@pytest.mark.parametrize("place", PLACES)
def test_masks_are_a_column_wherever_the_environment_has_them(place, shape, backend, mode):
    """Beside a loop over the environment, whose mask is asked for after every reset and step."""
    twins, wrappers = (
        [Steps(place, shape=shape) for _ in range(3)],
        ["extract_obs:at"] if place == "member" else [],
    )
    make = functools.partial(Steps, place, shape=shape)
    with vecwrap.build(make, n=3, wrappers=wrappers, backend=backend, autoreset=mode) as env:
        _, infos = env.reset(seed=5)
        for i, twin in enumerate(twins):
            twin.reset(seed=5 + i)
        over = np.zeros(3, bool)
        for _ in range(25):
            expected = np.array(
                [twin.mask() * (not done) for twin, done in zip(twins, over, strict=True)]
            )
            told = infos["_action_mask"] & ~over  # of a masked reset, only those that were reset
            np.testing.assert_array_equal(infos["action_mask"][told], expected[told])
            if place == "member":
                assert not infos["action_mask"][over].any()
            assert infos["action_mask"].dtype == np.int8
            np.testing.assert_array_equal(env.action_masks(), expected)
            if over.any() and mode in ("disabled", "episodic"):
                _, infos = env.reset(options={"reset_mask": over})
                for i in np.flatnonzero(over):
                    twins[i].reset()
                over[:] = False
                continue
            actions = [0] * 3 if shape == "discrete" else [[0, 1]] * 3
            *_, infos = env.step(actions)
            for i, twin in enumerate(twins):
                if over[i]:  # next_step
                    twin.reset()
                    over[i] = False
                    continue
                over[i] = twin.step(np.array(actions[i]))[2]
                if over[i] and mode == "same_step":
                    twin.reset()
                    over[i] = False


class Flags(Steps):
    def seen(self):
        observation, info = super().seen()
        return observation, {"action_mask": info["action_mask"].astype(bool)}


def test_masks_that_are_flags_become_what_sample_takes():
    with vecwrap.build(Flags, n=2, backend="dummy") as env:
        _, infos = env.reset(seed=1)
        assert infos["action_mask"].dtype == np.int8
        for _ in range(9):
            actions = [env.single_action_space.sample(mask) for mask in infos["action_mask"]]
            _, rewards, *_, infos = env.step(actions)
            assert (rewards == 1).all()


class Counting(Steps):
    """Counts how often it is asked, and cannot say what is legal once it is over."""

    def __init__(self):
        super().__init__("method")
        self.asked, inner = 0, self.action_masks

        def ask():
            assert not self.over
            self.asked += 1
            return inner()

        self.action_masks = ask

    def reset(self, *, seed=None, options=None):
        self.over = False
        return super().reset(seed=seed)

    def step(self, action):
        result = super().step(action)
        self.over = result[2]
        return result


@pytest.mark.parametrize("mode", MODES)
def test_a_method_is_asked_once_for_each_observation_to_act_on(mode):
    with vecwrap.build(Counting, n=2, backend="dummy", autoreset=mode) as env:
        vecwrap.evaluate(env, Masked(), 8, seed=1)
        before = sum(env.get_attr("asked"))
        env.reset(seed=1)
        env.action_masks()
        env.action_masks()
        assert sum(env.get_attr("asked")) == before + 2


class Saved(Steps):
    def state_dict(self):
        return {"begin": self.begin, "time": self.time}

    def load_state_dict(self, state):
        self.begin, self.time = state["begin"], state["time"]
        self.seen()


@pytest.mark.parametrize("place", PLACES)
def test_a_loaded_state_has_the_masks_that_were_saved(place, tmp_path):
    with (
        vecwrap.build(functools.partial(Saved, place), n=3, backend="dummy") as env,
        vecwrap.build(functools.partial(Saved, place), n=3, backend="dummy") as other,
    ):
        env.reset(seed=3)
        env.step([0] * 3)
        expected = env.action_masks()
        env.save(tmp_path / "state.npz")
        other.load(tmp_path / "state.npz")
        np.testing.assert_array_equal(other.action_masks(), expected)
        env.step([0] * 3)
        assert (env.action_masks() != expected).any()
        env.load(tmp_path / "state.npz")
        np.testing.assert_array_equal(env.action_masks(), expected)
        for one in (env, other):
            _, rewards, *_ = one.step(expected.argmax(axis=1))
            assert (rewards == 1).all()
        state = env.state_dict()
        if place != "member":
            for wrong in (state["masks"][:2], state["masks"].astype(float), "no"):
                with pytest.raises(CheckpointError, match="masks"):
                    env.load_state_dict({**state, "masks": wrong})
