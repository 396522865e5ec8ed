"""Rollouts hold what naive loops over single environments give, bit for bit, in every mode."""

from functools import partial
from itertools import pairwise

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import vecwrap
from tests.helpers.naive_steps import (
    Broken,
    Remembers,
    act,
    code,
    row_of,
    transitions,
    values_of,
)
from tests.helpers.stream_envs import ToyEnv
from vecwrap.errors import ArgumentError, ResetNeededError, SubEnvError
from vecwrap.rows.batch import leaves
from vecwrap.rows.compare import assert_same

MODES = ["same_step", "next_step", "disabled", "episodic"]
SPACES = {
    "vector": spaces.Box(0, 255, (3,), np.float32),
    "image": spaces.Box(0, 255, (4, 5, 3), np.uint8),
    "dict": spaces.Dict(eye=spaces.Box(0, 255, (2, 2), np.uint8), left=spaces.Discrete(7)),
    "tuple": spaces.Tuple((spaces.Box(0, 255, (2,), np.float64), spaces.Discrete(5, start=-2))),
    "text": spaces.Dict(at=spaces.Box(0, 255, (2,), np.int16), said=spaces.Text(5)),
}
LENGTHS = [(3, 5, 1), (4,), (1, 2), (30, 2)]


class Crashing(ToyEnv):
    """Raises in its ``crash``-th step, counted over all of its episodes; 0: never."""

    def __init__(self, crash=0, **settings):
        super().__init__(**settings)
        self.crash = crash

    def step(self, action):
        self.crash -= 1
        if self.crash == 0:
            raise Broken
        return super().step(action)


def settings_of(space="vector", crashes=(0, 0, 0, 0)):
    return [
        {"lengths": LENGTHS[i], "index": i, "observation_space": SPACES[space], "crash": crash}
        for i, crash in enumerate(crashes)
    ]


def built(mode="same_step", space="vector", crashes=(0, 0, 0, 0), **options):
    return vecwrap.build(
        Crashing,
        env_kwargs=settings_of(space, crashes),
        autoreset=mode,
        **{"backend": "dummy", **options},
    )


def taken(batches, i):
    """The transitions of row i in batches, and None for each that was lost, with the last
    observation before it.
    """
    found = []
    for batch in batches:
        following = batch.next_observations()
        for t in range(len(batch.valid)):
            after = row_of(row_of(following, t), i)
            if batch.valid[t, i]:
                step = (
                    row_of(row_of(batch.observations, t), i),
                    batch.actions[t, i],
                    batch.rewards[t, i],
                    batch.terminations[t, i],
                    batch.truncations[t, i],
                    after,
                )
                found.append((step, after))
            elif batch.terminations[t, i] or batch.truncations[t, i]:
                found.append((None, after))
    return found


def same_steps(found, expected):
    for (step, after), (naive, last) in zip(found, expected, strict=False):
        assert (step is None) == (naive is None)
        assert code(after) == code(last)
        if step is not None:
            assert [code(step[0]), *step[1:5], code(step[5])] == [
                code(naive[0]),
                *naive[1:5],
                code(naive[5]),
            ]
    assert len(found) <= len(expected)


def take(iterator, count):
    batches = [next(iterator) for _ in range(count)]
    iterator.close()
    return batches


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("mode", MODES)
def test_every_valid_step_is_one_of_a_naive_loop_in_its_order(mode, space):
    with built(mode, space) as env:
        batches = take(vecwrap.rollouts(env, act, n_steps=13), 3)
    for i, settings in enumerate(settings_of(space)):
        found = taken(batches, i)
        same_steps(found, transitions(partial(Crashing, **settings), 40))
        assert len(found) >= 39 - (mode == "next_step") * 18
    for batch in batches:
        assert batch.extras["values"].dtype == np.float32
        for t, row in np.argwhere(batch.valid):
            seen = row_of(row_of(batch.observations, t), row)
            assert batch.extras["values"][t, row] == values_of(np.array([code(seen)]))[0]


@pytest.mark.parametrize("space", ["vector", "image"])
@pytest.mark.parametrize("mode", MODES)
def test_arrays_that_are_written_again_change_no_step(mode, space):
    with built(mode, space, copy=False) as env, built(mode, space, backend="threads") as other:
        batches = take(vecwrap.rollouts(env, act, n_steps=13), 2)
        for batch, expected in zip(
            batches, take(vecwrap.rollouts(other, act, n_steps=13), 2), strict=True
        ):
            assert_same(arrays_of(batch), arrays_of(expected))
            assert_same(batch.next_observations(), expected.next_observations())


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
def test_images_are_written_straight_into_the_batch_that_is_yours_afterwards(mode, copy):
    in_batch = []

    def policy(observations):
        rows = env.core.slots.observations.batch()
        in_batch.append(rows.base is not None and len(rows.base) == 6)  # T + 1 entries
        return act(observations)

    with built(mode, "image", copy=copy) as env, built(mode, "image", backend="threads") as other:
        ours = vecwrap.rollouts(env, policy, n_steps=5)
        theirs = vecwrap.rollouts(other, act, n_steps=5)
        for _ in range(3):
            batch = next(ours)
            assert_same(batch.observations, next(theirs).observations)
            rows = env.core.slots.observations.batch()
            assert not np.shares_memory(rows, batch.observations)
            batch.observations[:] = 0
    assert not in_batch[0]
    if mode != "disabled":  # where rows are reset between two steps
        assert in_batch == [False, True, True, True, True] * 3


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
def test_rows_beside_one_that_raises_are_those_of_a_loop_of_steps(mode, copy):
    mask = np.array([False, False, True, False])
    with (
        built(mode, "image", (0, 0, 4, 0), copy=copy) as env,
        built(mode, "image", (0, 0, 4, 0), backend="threads") as other,
    ):
        found = []
        for one in (env, other):
            with pytest.raises(SubEnvError) as raised:
                next(vecwrap.rollouts(one, act, n_steps=9))
            *rows, infos = raised.value.others
            shown, _ = one.reset(options={"reset_mask": mask}, seed=5)
            found.append((infos["env_id"], [row.copy() for row in rows], shown.copy()))
    assert_same(found[0], found[1])


@pytest.mark.parametrize("backend", ["dummy", "threads"])
@pytest.mark.parametrize("mode", MODES)
def test_lost_rows_are_no_steps_and_end_an_episode(mode, backend):
    crashes = (7, 0, 3, 11)
    options = {"on_failure": "restart", "max_restarts": 99, "backend": backend}
    with built(mode, crashes=crashes, **options) as env:
        batches = take(vecwrap.rollouts(env, act, n_steps=16), 2)
    lost = 0
    for i, settings in enumerate(settings_of(crashes=crashes)):
        found = taken(batches, i)
        same_steps(found, transitions(partial(Crashing, **settings), 40))
        lost += sum(step is None for step, _ in found)
    assert lost > 10


@pytest.mark.parametrize("mode", MODES)
def test_a_policy_with_a_state_is_told_which_rows_begin_an_episode(mode):
    policy = Remembers()
    with built(mode) as env:
        batches = take(vecwrap.rollouts(env, policy, n_steps=11), 3)
    for i, settings in enumerate(settings_of()):
        expected = transitions(
            partial(Crashing, **settings), 40, lambda seen, age: (code(seen) + age) % 3
        )
        same_steps(taken(batches, i), expected)
    assert batches[0].state is None
    for before, batch in pairwise(batches):
        np.testing.assert_array_equal(batch.state, before.extras["age"][-1])


@pytest.mark.parametrize("mode", MODES)
def test_going_on_gives_the_steps_that_one_iterator_gives(mode):
    with built(mode) as env, built(mode) as other:
        one = take(vecwrap.rollouts(env, act, n_steps=5), 6)
        more = take(vecwrap.rollouts(other, act, n_steps=5), 1)
        for _ in range(5):
            more += take(vecwrap.rollouts(other, act, n_steps=5, reset=False), 1)
    for batch, same in zip(one, more, strict=True):
        assert_same(batch.asdict(), same.asdict())
        assert_same(batch.final_obs, same.final_obs)


@pytest.mark.parametrize("mode", ["disabled", "episodic"])
def test_going_on_resets_what_rests_or_has_failed(mode):
    crashes = (0, 0, 5, 0)
    with built(mode, crashes=crashes) as env:
        env.reset()
        env.step([0] * 4)
        with pytest.raises(ResetNeededError) if mode == "disabled" else nothing():
            env.step([0] * 4)
        batch = take(vecwrap.rollouts(env, act, n_steps=2, reset=False), 1)[0]
    assert batch.valid[0].all()
    assert batch.observations[0, 2, 0] == env_observation(1, 2)


def test_going_on_after_a_masked_reset_of_ones_own():
    with built() as env:
        env.reset()
        env.step([0] * 4)
        seen, _ = env.reset(options={"reset_mask": np.array([False, True, False, True])})
        batch = take(vecwrap.rollouts(env, Remembers(), n_steps=2, reset=False), 1)[0]
    np.testing.assert_array_equal(batch.observations[0], seen)
    assert batch.observations[0, 1, 0] == env_observation(1, 1)
    assert batch.extras["age"][0].tolist() == [1, 0, 0, 0]  # row 2 began an episode in that step


class nothing:  # noqa: N801
    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


def env_observation(episode, index):
    env = ToyEnv(index=index)
    for _ in range(episode + 1):
        observation, _ = env.reset()
    return observation[0]


def test_a_rollout_stops_after_so_many_agent_steps():
    with built("next_step") as env:
        counts = [int(batch.valid.sum()) for batch in vecwrap.rollouts(env, act, 10, 100)]
    assert sum(counts[:-1]) < 100 <= sum(counts)


def test_what_is_handed_on_is_writable_and_never_changes():
    with built(space="image", copy=False) as env:
        iterator = vecwrap.rollouts(env, act, n_steps=7)
        batch = next(iterator)
        before = {key: np.array(part) for key, part in arrays_of(batch).items()}
        next(iterator)
        for key, part in arrays_of(batch).items():
            np.testing.assert_array_equal(part, before[key])
            assert part.flags.writeable
        iterator.close()


@pytest.mark.parametrize("keep", ["nothing", "batch", "array", "view", "memory", "tensor"])
def test_large_arrays_are_written_again_once_nobody_has_them(keep):
    large = spaces.Box(0, 255, (90, 90, 3), np.uint8)
    env = vecwrap.build(Crashing, env_kwargs={"observation_space": large}, n=4, backend="dummy")
    iterator = vecwrap.rollouts(env, lambda seen: [0] * 4, n_steps=20)
    batch = next(iterator)
    address = batch.observations.ctypes.data
    before = batch.observations.copy()
    kept = keeps(keep, batch)
    del batch
    others = [next(iterator).observations.ctypes.data for _ in range(3)]
    assert (address in others) == (keep == "nothing")
    if kept is not None:
        found = getattr(kept, "observations", kept)
        np.testing.assert_array_equal(np.asarray(found).reshape(-1), before.reshape(-1))
    env.close()


def keeps(keep, batch):
    if keep == "tensor":
        return pytest.importorskip("torch").as_tensor(batch.observations)
    array = batch.observations
    found = {"batch": batch, "array": array, "view": array[:][:], "memory": memoryview(array)}
    return found.get(keep)


def test_a_policy_is_given_the_rows_of_the_batch_where_copies_are_not_wanted():
    given = []

    def policy(observations):
        given.append(observations)
        return [0] * 4

    with built(copy=False) as env:
        (batch,) = take(vecwrap.rollouts(env, policy, n_steps=5), 1)
    assert all(one.base is batch.observations for one in given)
    np.testing.assert_array_equal(given, batch.observations[:-1])


def arrays_of(batch):
    names = ("observations", "actions", "rewards", "terminations", "truncations", "valid")
    found = {name: getattr(batch, name) for name in (*names, "final_obs", "final_obs_index")}
    return {**found, **batch.extras}


def test_what_a_policy_writes_and_reuses_changes_nothing():
    out = {"values": np.zeros(4), "actions": np.zeros(4, int)}

    def scribbles(observations):
        actions, extras = act(observations)
        out["values"][:] = extras["values"]
        out["actions"][:] = actions
        observations[:] = 0
        return out["actions"], {"values": out["values"]}

    with built() as env, built() as other:
        (batch,) = take(vecwrap.rollouts(env, scribbles, n_steps=9), 1)
        (expected,) = take(vecwrap.rollouts(other, act, n_steps=9), 1)
    assert_same(batch.observations, expected.observations)
    assert_same(batch.actions, expected.actions)
    np.testing.assert_array_equal(batch.extras["values"], expected.extras["values"])


def test_tensors_that_a_policy_gives_stay_tensors_with_their_gradients():
    torch = pytest.importorskip("torch")
    weight = torch.ones(3, requires_grad=True)

    def policy(observations):
        values = torch.as_tensor(observations) @ weight
        return torch.zeros(4, dtype=torch.int64), {"values": values, "more": {"bare": [1] * 4}}

    with built() as env:
        (batch,) = take(vecwrap.rollouts(env, policy, n_steps=6), 1)
    assert batch.extras["values"].shape == (6, 4)
    batch.extras["values"].sum().backward()
    np.testing.assert_allclose(weight.grad, batch.observations[:-1].sum((0, 1)))
    assert batch.extras["more"]["bare"].shape == (6, 4)


@pytest.mark.parametrize("rows", [3, 6])
def test_rollouts_of_engines_are_those_of_a_loop_of_steps(rows):
    build = partial(
        vecwrap.build, "CartPole-v1", n=6, envs_per_engine=rows, autoreset="next_step", seed=3
    )

    def scribbles(observations):
        actions = (observations[:, 2] > 0).astype(int)
        observations[:] = 0
        return actions

    with build(backend="dummy") as env, build(backend="dummy") as other:
        (batch,) = take(vecwrap.rollouts(env, scribbles, n_steps=60), 1)
        seen, _ = other.reset()
        resetting = np.zeros(6, bool)
        for t in range(60):
            actions = (seen[:, 2] > 0).astype(int)
            np.testing.assert_array_equal(batch.observations[t], seen)
            seen, rewards, terminations, truncations, _ = other.step(actions)
            np.testing.assert_array_equal(batch.rewards[t], rewards)
            np.testing.assert_array_equal(batch.terminations[t], terminations)
            np.testing.assert_array_equal(batch.valid[t], ~resetting)
            resetting = terminations | truncations
        np.testing.assert_array_equal(batch.observations[60], seen)
    assert not batch.valid.all()


def test_a_dict_of_a_batch_has_arrays_of_t_and_n_alone():
    with built(space="tuple") as env:
        (batch,) = take(vecwrap.rollouts(env, act, n_steps=6), 1)
    found = leaves(batch.asdict())
    assert {leaf.shape[:2] for _, leaf in found} == {(6, 4)}
    paths = {"/".join(path) for path, _ in found}
    assert paths >= {"observations/0", "observations/1", "actions", "extras/values", "valid"}


@pytest.mark.full  # TensorDict takes ten seconds to import
@pytest.mark.parametrize("space", ["dict", "tuple"])
def test_a_batch_fits_a_tensordict(space):
    tensordict = pytest.importorskip("tensordict")
    with built(space=space) as env:
        (batch,) = take(vecwrap.rollouts(env, act, n_steps=6), 1)
    made = tensordict.TensorDict(batch.asdict(), batch_size=[6, 4])
    flat = made.flatten(0, 1)
    assert flat["rewards"].tolist() == batch.rewards.ravel().tolist()
    assert set(made["observations"].keys()) == {"dict": {"eye", "left"}, "tuple": {"0", "1"}}[space]


def test_wrappers_change_what_is_seen_at_the_end_as_well():
    with built(wrappers=["framestack:2", "normalize"]) as env:
        (batch,) = take(vecwrap.rollouts(env, act, n_steps=20), 1)
    following = batch.next_observations()
    assert following.shape == (20, 4, 2, 3)
    for t, i in batch.final_obs_index:
        assert not (following[t, i] == batch.observations[t + 1, i]).all()
    assert len(batch.final_obs_index) > 15


class Wrong(gymnasium.Env):
    observation_space = spaces.Box(0, 1, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (3,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}


RIGHT = np.zeros((2, 3), np.float32)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (lambda seen: np.zeros(3), r"policy: actions: expected shape \(2, 3\)"),
        (lambda seen: (RIGHT, {"values": np.zeros(3)}), r"extras\['values'\]: expected 2 rows"),
        (lambda seen: (RIGHT, {"values": 1.0}), r"extras\['values'\]: expected 2 rows"),
        (lambda seen, state, episode_start: RIGHT, r"\(actions, extras, state\)"),
        (lambda seen, action_masks: RIGHT, "reports none"),
    ],
    ids=["number", "extras", "extra number", "no state", "masks"],
)
def test_a_policy_of_another_form_is_refused_on_its_first_call(policy, said):
    env = vecwrap.build(Wrong, n=2, backend="dummy")
    with env, pytest.raises(ArgumentError, match=said):
        next(vecwrap.rollouts(env, policy))


def test_extras_that_change_their_form_are_refused():
    forms = iter([{"a": np.zeros(2)}, {"a": np.zeros(2, int)}])
    env = vecwrap.build(Wrong, n=2, backend="dummy")
    with env, pytest.raises(ArgumentError, match="as in the first step, a: float64 .*got a: int64"):
        next(vecwrap.rollouts(env, lambda seen: (RIGHT, next(forms))))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"n_steps": 0}, "n_steps: expected an int of 1 or more, got 0"),
        ({"n_steps": 2.5}, "n_steps: expected an int"),
        ({"total_steps": 0}, "total_steps: expected an int"),
        ({"min_fraction": 0}, "min_fraction: expected more than 0"),
        ({"min_fraction": 0.5}, "min_fraction=0.5: expected an environment built with batch_size"),
    ],
)
def test_arguments_out_of_range_are_refused_before_anything_is_stepped(settings, said):
    env = vecwrap.build(Wrong, n=2, backend="dummy")
    with env, pytest.raises(ArgumentError, match=said):
        vecwrap.rollouts(env, lambda seen: RIGHT, **settings)


def test_what_is_no_environment_or_no_policy_is_refused():
    with pytest.raises(TypeError, match="rollouts: env: expected a vecwrap.VecEnv"):
        vecwrap.rollouts(gymnasium.make("CartPole-v1"), act)
    env = vecwrap.build(Wrong, n=2, backend="dummy")
    with env, pytest.raises(TypeError, match="rollouts: policy: expected a callable"):
        vecwrap.rollouts(env, 3)


def test_going_on_before_any_reset_is_refused():
    env = vecwrap.build(Wrong, n=2, backend="dummy")
    with env, pytest.raises(ResetNeededError, match="has not been reset yet"):
        next(vecwrap.rollouts(env, lambda seen: RIGHT, reset=False))


def test_actions_of_a_tuple_space_are_not_taken_for_extras():
    space = spaces.Tuple((spaces.Discrete(3), spaces.Dict(a=spaces.Discrete(2))))
    env = vecwrap.build(partial(Takes, space), n=2, backend="dummy")
    actions = (np.array([1, 2]), {"a": np.array([0, 1])})
    (batch,) = take(vecwrap.rollouts(env, lambda seen: actions, n_steps=3), 1)
    assert batch.actions[1]["a"].tolist() == [[0, 1]] * 3
    assert batch.extras == {}
    env.close()


def test_extras_come_beside_actions_of_a_tuple_space():
    space = spaces.Tuple((spaces.Discrete(3), spaces.Discrete(2)))
    env = vecwrap.build(partial(Takes, space), n=2, backend="dummy")
    answer = ((np.array([1, 2]), np.array([0, 1])), {"values": np.ones(2)})
    (batch,) = take(vecwrap.rollouts(env, lambda seen: answer, n_steps=3), 1)
    assert batch.actions[0].tolist() == [[1, 2]] * 3
    assert batch.extras["values"].shape == (3, 2)
    env.close()


class Takes(Wrong):
    def __init__(self, space):
        self.action_space = space


def test_values_depend_on_rows_alone():
    assert values_of(np.array([5]))[0] == values_of(np.array([3, 5]))[1]
