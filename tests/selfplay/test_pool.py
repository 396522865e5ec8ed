"""A pool's members: what never changes, who is in it, what a saved run finds again, and what is
refused.
"""

import json
import subprocess
import sys

import numpy as np
import pytest
from gymnasium import spaces

import vecwrap
from tests.helpers.rock_paper_scissors import ACTIONS, OBSERVATIONS, SEEN, make, rock, weights
from vecwrap import OpponentPool
from vecwrap.env.state_file import read_state, write_state
from vecwrap.errors import ArgumentError, CheckpointError, PlanError, SpecError
from vecwrap.selfplay.results import Row

MAKE = "tests.helpers.rock_paper_scissors:make"


@pytest.fixture
def pool(tmp_path):
    return OpponentPool(tmp_path / "pool", make=MAKE)


def moves(pool):
    return {name: int(pool.policy(name)(SEEN)[0]) for name in pool.members}


# -- snapshots never change ------------------------------------------------------------------------


def test_a_snapshot_does_not_change_with_the_arrays_that_were_added(pool):
    learner = weights(1)
    name = pool.add(learner)
    learner["logits"][:] = [9, 0, 0]
    assert moves(pool) == {name: 1}
    assert moves(OpponentPool(pool.dir)) == {name: 1}


def test_a_snapshot_does_not_change_with_what_its_policy_does_to_its_arrays(pool, tmp_path):
    def spoiling(arrays):
        arrays["logits"][:] = 0
        return make(arrays)

    name = pool.add(weights(2))
    assert moves(OpponentPool(pool.dir, make=spoiling)) == {name: 0}
    assert moves(pool) == {name: 2}


def test_a_torch_module_that_is_trained_on_in_place_leaves_its_snapshot_as_it_was(tmp_path):
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)

    def network():
        return torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3)
        )

    def played(module, seen):
        with torch.no_grad():
            return module.eval()(seen)

    def make_torch(arrays):
        module = network()
        module.load_state_dict({name: torch.as_tensor(array) for name, array in arrays.items()})
        return lambda observations: played(module, torch.as_tensor(observations)).numpy()

    learner, seen = network(), torch.randn(16, 4)
    before = played(learner, seen).numpy().copy()
    pool = OpponentPool(tmp_path, make=make_torch)
    names = [
        pool.add(learner),
        pool.add(learner.state_dict(), label="dict"),
        pool.add(Model(learner)),
    ]
    optimiser = torch.optim.SGD(learner.parameters(), lr=1.0)
    for _ in range(5):
        optimiser.zero_grad()
        learner.train()(seen).square().mean().backward()
        optimiser.step()
    assert np.abs(played(learner, seen).numpy() - before).max() > 0.1
    for name in names:
        np.testing.assert_array_equal(pool.policy(name)(seen.numpy()), before)
        assert {
            str(array.dtype) for array in np.load(tmp_path / "members" / f"{name}.npz").values()
        } == {
            "float32",
            "int64",
        }


class Model:
    """As a model of Stable-Baselines3, whose network is its ``policy``."""

    def __init__(self, policy):
        self.policy = policy


def test_a_model_of_stable_baselines3_is_added_by_value(tmp_path):
    torch = pytest.importorskip("torch")
    algorithms = pytest.importorskip("stable_baselines3")

    def make_model(arrays):
        model = algorithms.PPO("MlpPolicy", "CartPole-v1", n_steps=64, device="cpu", seed=2)
        model.policy.load_state_dict(
            {name: torch.as_tensor(array) for name, array in arrays.items()}
        )
        return model

    learner = algorithms.PPO(
        "MlpPolicy", "CartPole-v1", n_steps=64, device="cpu", seed=1, learning_rate=0.1
    )
    seen = np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32)
    before = learner.policy.predict_values(torch.as_tensor(seen)).detach().numpy().copy()
    pool = OpponentPool(tmp_path, make=make_model)
    name = pool.add(learner)
    learner.learn(64)
    member = pool.policy(name)
    np.testing.assert_array_equal(
        member.policy.predict_values(torch.as_tensor(seen)).detach().numpy(), before
    )
    assert (
        np.abs(learner.policy.predict_values(torch.as_tensor(seen)).detach().numpy() - before).max()
        > 0.1
    )


def test_arrays_have_any_names_and_forms(pool):
    arrays = {
        "file": np.arange(3),
        "a/b.npy": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "allow_pickle": np.array(True),
        "größe 1": np.zeros((0, 4), np.float16),
        "text": np.array(["x", "yz"]),
        "big endian": np.arange(2, dtype=">i4"),
        "number": 3.5,
    }
    received = []
    pool = OpponentPool(pool.dir, make=lambda arrays: received.append(arrays) or rock)
    pool.policy(pool.add(arrays))
    assert received[0].keys() == arrays.keys()
    for name, array in received[0].items():
        np.testing.assert_array_equal(array, arrays[name])
        assert array.dtype == np.asarray(arrays[name]).dtype
        assert array.flags.writeable


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "expected arrays or tensors by name, got none"),
        (3, "what has a state_dict"),
        (rock, "got function"),
        ({1: np.zeros(2)}, "expected printable names of arrays, got 1"),
        ({"a\n": np.zeros(2)}, "expected printable names"),
        (
            {"a": object()},
            "a: expected an array of numbers or text, got one of dtype object, from object",
        ),
        ({"a": [[1], [1, 2]]}, "a: expected what can be made an array, got list"),
        ({"a": {"b": np.zeros(2)}}, "dtype object, from dict"),
        ({"a": np.zeros(2, [("x", "i4")])}, "a: expected an array of numbers"),
    ],
)
def test_what_has_no_arrays_is_refused_and_leaves_the_pool_as_it_was(pool, given, said):
    pool.add(weights())
    with pytest.raises(ArgumentError, match=said):
        pool.add(given)
    assert OpponentPool(pool.dir).members == pool.members == ("000001",)


def test_a_tensor_of_a_dtype_that_numpy_lacks_says_what_to_do(pool):
    torch = pytest.importorskip("torch")
    with pytest.raises(
        ArgumentError, match=r"w: expected what can be made an array, got Tensor.*tensor\.float\(\)"
    ):
        pool.add({"w": torch.zeros(2, dtype=torch.bfloat16)})
    with pytest.raises(ArgumentError, match="w: expected what can be made an array"):
        pool.add({"w": torch.zeros(2, device="meta")})


# -- who is in the pool ----------------------------------------------------------------------------


def test_members_are_scripted_ones_then_snapshots_by_age(pool):
    pool.add(weights(0))
    pool.add("tests.helpers.rock_paper_scissors:rock")
    pool.add(weights(1), label="b", facts={"steps": 2000, "note": "first"})
    pool.add("random")
    pool.add(weights(2))
    assert pool.members == (
        "random",
        "tests.helpers.rock_paper_scissors:rock",
        "000001",
        "000002-b",
        "000003",
    )
    assert OpponentPool(pool.dir).members == pool.members
    assert pool.facts("000002-b") == {"steps": 2000, "note": "first"}
    assert pool.facts("random") == pool.facts("000001") == {}
    assert len(pool) == 5
    assert repr(pool).endswith("pool', 5 members)")


def test_keep_bounds_the_snapshots_and_scripted_members_never_leave(pool):
    pool = OpponentPool(
        pool.dir, make=MAKE, keep=2, scripted=["tests.helpers.rock_paper_scissors:rock"]
    )
    for move in range(7):
        pool.add(weights(move))
        assert pool.members == (
            "tests.helpers.rock_paper_scissors:rock",
            *[f"{k:06d}" for k in range(max(1, move), move + 2)],
        )
    other = OpponentPool(pool.dir)
    assert other.members == pool.members
    files = sorted(path.name for path in (pool.dir / "members").iterdir())
    assert files == [f"{k:06d}.{kind}" for k in (4, 5, 6, 7) for kind in ("json", "npz")]
    # Games against them may be running.
    assert [pool.policy(f"{k:06d}")(SEEN)[0] for k in (4, 5)] == [
        0,
        1,
    ]
    with pytest.raises(ArgumentError, match='there is no member "000003"'):
        pool.policy("000003")


def test_a_pool_without_a_folder_has_scripted_members_alone():
    pool = OpponentPool(None, scripted=["random", "tests.helpers.rock_paper_scissors:rock"])
    assert pool.members == ("random", "tests.helpers.rock_paper_scissors:rock")
    assert pool.policy("tests.helpers.rock_paper_scissors:rock") is rock
    pool.record("random", 1)
    pool.refresh()
    pool.save()
    assert pool.all_results().rows() == [Row("learner", "random", 0, 1, 0, 0)]
    with pytest.raises(ArgumentError, match=r"keeps no snapshots; expected OpponentPool\(dir\)"):
        pool.add(weights())
    with pytest.raises(ArgumentError, match=r"call pool\.bind first"):
        pool.policy("random")
    pool.bind(OBSERVATIONS, ACTIONS)
    assert pool.policy("random")(SEEN, rng=np.random.default_rng(1)).shape == (4,)


def test_looking_at_a_pool_creates_nothing(tmp_path):
    pool = OpponentPool(tmp_path / "pool", make=MAKE, scripted=["random"])
    pool.bind(OBSERVATIONS, ACTIONS)
    pool.refresh()
    pool.draw(np.random.default_rng(1))
    assert list(tmp_path.iterdir()) == []


def test_a_policy_is_made_once(pool):
    made = []
    pool = OpponentPool(pool.dir, make=lambda arrays: made.append(1) or rock)
    name = pool.add(weights())
    assert pool.policy(name) is pool.policy(name)
    assert len(made) == 1


def test_a_function_that_others_can_import_is_remembered(tmp_path):
    OpponentPool(tmp_path / "one", make=make).add(weights(1))
    assert json.loads((tmp_path / "one" / "pool.json").read_text())["make"] == MAKE
    OpponentPool(tmp_path / "two", make=lambda arrays: rock).add(weights(1))
    with pytest.raises(ArgumentError, match="which pool.json does not say"):
        OpponentPool(tmp_path / "two").policy("000001")


# -- saved runs ------------------------------------------------------------------------------------


def play_on(pool, rng, rounds):
    """What a run does: it draws, plays, and adds a snapshot now and then."""
    met = []
    for k in range(rounds):
        met.append(pool.draw(rng, "pfsp"))
        pool.record(met[-1], float(rng.integers(-1, 2)), seat=k % 2)
        if k % 10 == 9:
            pool.add(weights(int(rng.integers(3)), shape=(3, int(rng.integers(1, 50)))))
    return met


def test_a_run_that_is_resumed_draws_as_one_that_never_stopped(tmp_path):
    folder = tmp_path / "pool"
    pool, rng = (
        OpponentPool(
            folder, make=MAKE, keep=3, scripted=["tests.helpers.rock_paper_scissors:rock"]
        ),
        np.random.default_rng(5),
    )
    play_on(pool, rng, 45)
    write_state(tmp_path / "state.npz", pool.state_dict())
    numbers = rng.bit_generator.state
    met, members, results = play_on(pool, rng, 25), pool.members, pool.results.rows()

    resumed = OpponentPool(folder)
    assert resumed.members == members
    resumed.load_state_dict(read_state(tmp_path / "state.npz"))
    assert resumed.members[-1] == "000004"
    rng = np.random.default_rng(0)
    rng.bit_generator.state = numbers
    assert play_on(resumed, rng, 25) == met
    assert resumed.members == members
    assert resumed.results.rows() == results
    # What it had written itself does not count twice.
    assert resumed.all_results().rows() == results


def test_a_resumed_run_that_goes_another_way_keeps_its_members_apart(pool):
    pool.add(weights(0))
    state = pool.state_dict()
    pool.add(weights(1))
    pool.add("tests.helpers.rock_paper_scissors:rock")
    resumed = OpponentPool(pool.dir)
    resumed.load_state_dict(state)
    assert moves(resumed) == {"000001": 0}
    assert resumed.add(weights(2)) == "000003"
    assert moves(resumed) == {"000001": 0, "000003": 2}
    pool.refresh()
    assert moves(pool) == {
        "tests.helpers.rock_paper_scissors:rock": 0,
        "000001": 0,
        "000002": 1,
        "000003": 2,
    }
    assert OpponentPool(pool.dir).add(weights(1)) == "000004"
    resumed.refresh()
    assert "000004" in resumed.members


@pytest.mark.parametrize("keep", [None, 1])
def test_a_state_whose_members_are_gone_is_refused_and_changes_nothing(pool, keep):
    pool = OpponentPool(pool.dir, make=MAKE, keep=keep)
    pool.add(weights(0))
    state = pool.state_dict()
    other = OpponentPool(pool.dir)
    other.record("000001", 1)
    for suffix in ("json", "npz"):
        (pool.dir / "members" / f"000001.{suffix}").unlink()
    before = other.state_dict()
    with pytest.raises(
        CheckpointError, match="the state knows 000001, which the folder no longer has"
    ):
        other.load_state_dict(state)
    assert other.state_dict() == before


def test_a_state_of_another_pool_is_refused(tmp_path):
    pools = [OpponentPool(tmp_path / name, make=MAKE) for name in "ab"]
    for move, pool in enumerate(pools):
        pool.add(weights(move))
    with pytest.raises(
        CheckpointError, match="000001: the state knows another snapshot of this name"
    ):
        pools[0].load_state_dict(pools[1].state_dict())


@pytest.mark.parametrize(
    "change",
    [
        {"snapshots": 3},
        {"snapshots": [["000001"]]},
        {"snapshots": [["000001", 5]]},
        {"scripted": ["no path"]},
        {"results": [["a", "b"]]},
        {"rates": [["random", 1.0]]},
        {"rates": [["random", -1.0, 2.0]]},
        {"rates": [["random", float("nan"), 2.0]]},
        {"writer": "../../other"},
        {"writer": None},
    ],
)
def test_a_state_that_is_none_is_refused_and_changes_nothing(pool, change):
    pool.add(weights())
    before = pool.state_dict()
    with pytest.raises((CheckpointError, SpecError)):
        pool.load_state_dict({**before, **change})
    with pytest.raises(CheckpointError, match="expected a state as state_dict gave it"):
        pool.load_state_dict({key: value for key, value in before.items() if key not in change})
    assert pool.state_dict() == before


# -- results ---------------------------------------------------------------------------------------


def test_results_of_several_writers_add_up(pool):
    pool.add(weights())
    pool.record("000001", 1, seat=1)
    pool.save()
    other = OpponentPool(pool.dir)
    other.record("000001", -1, seat=1)
    other.record("random", 1, player="000001")
    rows = [Row("000001", "random", 0, 1, 0, 0), Row("learner", "000001", 1, 1, 0, 1)]
    assert other.all_results().rows() == rows
    assert len(pool.all_results().rows()) == 1
    other.save()
    other.save()
    assert pool.all_results().rows() == rows


def test_the_games_of_the_learner_can_become_those_of_its_snapshot(pool):
    pool.add("tests.helpers.rock_paper_scissors:rock")
    for result in (1, 1, 0, -1):
        pool.record("tests.helpers.rock_paper_scissors:rock", result)
    pool.record("current", 1)
    name = pool.add(weights(), take_results=True)
    pool.record("tests.helpers.rock_paper_scissors:rock", 1)
    assert pool.all_results().rows()[0] == Row(name, "current", 0, 1, 0, 0)
    ratings = pool.ratings()
    assert (ratings.anchor, ratings.players) == (
        "tests.helpers.rock_paper_scissors:rock",
        (name, "learner", "tests.helpers.rock_paper_scissors:rock"),
    )
    # Three of five, with Firth's half won and lost.
    assert ratings.points[0] == pytest.approx(400 * np.log10(3 / 2))
    assert pool.win_rate("tests.helpers.rock_paper_scissors:rock") > 0.5


def test_ratings_need_games(pool):
    with pytest.raises(ArgumentError, match="got none; play some first"):
        pool.ratings()


# -- another game, other arguments -----------------------------------------------------------------


def test_a_pool_of_another_game_is_refused(pool):
    pool.bind(OBSERVATIONS, ACTIONS, pipeline="abc")
    pool.add(weights())
    other = OpponentPool(pool.dir)
    other.bind(OBSERVATIONS, ACTIONS)
    other.bind(OBSERVATIONS, ACTIONS, pipeline="abc")
    seven = spaces.Discrete(7)
    with pytest.raises(
        CheckpointError,
        match=r"action_space: expected a pool of Discrete\(7\), got one of Discrete\(3\)",
    ):
        other.bind(OBSERVATIONS, seven)
    with pytest.raises(CheckpointError, match="observation_space: expected"):
        other.bind(spaces.Box(0, 1, (2,), np.float32), ACTIONS)
    with pytest.raises(CheckpointError, match="pipeline: expected a pool of xyz, got one of abc"):
        other.bind(OBSERVATIONS, ACTIONS, pipeline="xyz")
    other.bind(OBSERVATIONS, ACTIONS)


def test_two_pools_that_were_bound_before_the_folder_was_there_do_not_mix_their_games(tmp_path):
    one, other = OpponentPool(tmp_path, make=MAKE), OpponentPool(tmp_path, make=MAKE)
    one.bind(OBSERVATIONS, ACTIONS)
    other.bind(OBSERVATIONS, spaces.Discrete(4))
    one.add(weights())
    with pytest.raises(
        CheckpointError,
        match=r"action_space: expected a pool of Discrete\(4\), got one of Discrete\(3\)",
    ):
        other.add(weights())
    assert OpponentPool(tmp_path).members == ("000001",)


def test_a_pool_that_is_bound_after_its_first_snapshot_remembers_its_game(pool):
    pool.add(weights())
    pool.bind(OBSERVATIONS, ACTIONS)
    shared = json.loads((pool.dir / "pool.json").read_text())
    assert shared["observation_space"] == "Box(0.0, 1.0, (1,), float32)"
    assert shared["action_space"] == "Discrete(3)"


def test_another_make_is_refused(pool):
    pool.add(weights())
    with pytest.raises(
        CheckpointError,
        match=(
            r"make: expected a pool of tests\.helpers\.rock_paper_scissors:make_raising, got "
            r"one of tests\.helpers\.rock_paper_scissors:make"
        ),
    ):
        OpponentPool(pool.dir, make="tests.helpers.rock_paper_scissors:make_raising")


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        ({"keep": 0}, PlanError, "keep: expected at least 1 snapshot or None, got 0"),
        ({"decay": 0.0}, PlanError, "decay: expected a number above 0"),
        ({"decay": 1.5}, PlanError, "decay"),
        (
            {"scripted": "random"},
            PlanError,
            r'expected a list of names, got "random"; write \["random"\]',
        ),
        ({"scripted": ["rondom"]}, SpecError, 'Did you mean "random"'),
        (
            {"make": "tests.helpers.rock_paper_scissors"},
            SpecError,
            (
                'make: expected an import path "module:function", got '
                '"tests.helpers.rock_paper_scissors"'
            ),
        ),
        (
            {"make": MAKE, "imports": False},
            SpecError,
            r"make: expected nothing to import \(--no-imports\)",
        ),
        (
            {"scripted": ["tests.helpers.rock_paper_scissors:rock"], "imports": False},
            SpecError,
            "scripted: expected nothing to import",
        ),
    ],
)
def test_bad_arguments(tmp_path, arguments, kind, said):
    with pytest.raises(kind, match=said):
        OpponentPool(tmp_path / "pool", **arguments)
    assert not list(tmp_path.iterdir())


def test_what_a_folder_names_is_not_imported_where_nothing_may_be(tmp_path):
    OpponentPool(tmp_path / "make", make=MAKE).add(weights())
    OpponentPool(tmp_path / "scripted").add("tests.helpers.rock_paper_scissors:rock")
    OpponentPool(tmp_path / "random").add("random")
    for name in ("make", "scripted"):
        with pytest.raises(SpecError, match=f"{name}: expected nothing to import"):
            OpponentPool(tmp_path / name, imports=False)
    pool = OpponentPool(tmp_path / "random", imports=False)
    assert pool.members == ("random",)
    with pytest.raises(SpecError, match="scripted: expected nothing to import"):
        pool.add("tests.helpers.rock_paper_scissors:rock")
    given = OpponentPool(tmp_path / "make", make=make, imports=False)  # which was imported before
    assert moves(given) == {"000001": 0}


@pytest.mark.parametrize(
    ("path", "kind", "said"),
    [
        (
            "tests.helpers.rock_paper_scissors:make_raising",
            ArgumentError,
            "make raised ValueError: size mismatch.* received logits: \\(3,\\) float32",
        ),
        (
            "tests.helpers.rock_paper_scissors:make_nothing",
            ArgumentError,
            "make: expected it to return a policy.* got int",
        ),
        (
            "tests.helpers.rock_paper_scissors:make_missing",
            SpecError,
            r"has no make_missing\. Did you mean",
        ),
        (
            "tests.helpers.rock_paper_scissors:NOT_CALLABLE",
            SpecError,
            "make: expected a class or callable, got a int",
        ),
    ],
)
def test_a_make_that_fails_says_so(tmp_path, path, kind, said):
    pool = OpponentPool(tmp_path, make=path, scripted=["random"])
    pool.bind(OBSERVATIONS, ACTIONS)
    name = pool.add(weights())
    with pytest.raises(kind, match=said):
        pool.policy(name)
    assert pool.policy("random")


def test_arrays_without_a_make_and_bad_labels_and_facts_are_refused(tmp_path):
    with pytest.raises(ArgumentError, match="got one without make"):
        OpponentPool(tmp_path).add(weights())
    pool = OpponentPool(tmp_path, make=MAKE)
    for label in ("a/b", "..\n", "-a", "x" * 101):
        with pytest.raises(ArgumentError, match="label: expected"):
            pool.add(weights(), label=label)
    for facts in ({"a": []}, {"a": np.float64(1)}, {3: 1}):
        with pytest.raises(ArgumentError, match="facts: expected numbers and text by name"):
            pool.add(weights(), facts=facts)
    assert not (tmp_path / "members").exists()


def test_asking_for_what_is_not_there(pool):
    with pytest.raises(ArgumentError, match="got an empty pool"):
        pool.draw(np.random.default_rng(1))
    pool.add(weights())
    with pytest.raises(
        ArgumentError, match=r'no member "000010"\. Did you mean "000001"\? Members: 000001'
    ):
        pool.policy("000010")
    with pytest.raises(ArgumentError, match=r"current: expected pool\.current"):
        pool.draw(np.random.default_rng(1), current=1.0)
    with pytest.raises(ArgumentError, match="a probability from 0 to 1, got 2"):
        pool.draw(np.random.default_rng(1), current=2)


def test_it_is_a_public_name_that_needs_nothing_heavy():
    assert vecwrap.OpponentPool is OpponentPool
    program = (
        "import sys, numpy, vecwrap; pool = vecwrap.OpponentPool(None, scripted=['random']); "
        "pool.record('random', 1); pool.ratings(); print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert {"torch", "matplotlib", "scipy", "cv2", "ruamel", "typer"}.isdisjoint(
        loaded.stdout.split()
    )


# -- a folder that goes away -----------------------------------------------------------------------


def test_a_folder_that_is_removed_while_it_is_read_loses_nothing(pool):
    pool.add(weights(0))
    pool.add(weights(1))
    assert pool.policy("000001")(SEEN).tolist() == [0] * 4
    pool.record("000001", 1)
    moved = pool.dir.with_name("moved")
    pool.dir.rename(moved)
    assert pool.policy("000001")(SEEN).tolist() == [0] * 4  # a game against it goes on
    pool.record("000001", 1)
    for call in (
        pool.refresh,
        pool.save,
        pool.all_results,
        lambda: pool.policy("000002"),
        lambda: pool.draw(np.random.default_rng(1), "latest"),
        lambda: pool.add(weights(2)),
        lambda: pool.add("random"),
    ):
        with pytest.raises(
            CheckpointError,
            match=r"the pool's folder was removed while it was in use\..* put the folder back",
        ):
            call()
    state = pool.state_dict()
    moved.rename(pool.dir)
    pool.refresh()
    pool.save()
    assert pool.add(weights(2)) == "000003"
    assert pool.policy("000002")(SEEN).tolist() == [1] * 4
    again = OpponentPool(pool.dir)
    again.load_state_dict(state)
    assert again.results.rows() == [Row("learner", "000001", 0, 2, 0, 0)]


def test_a_snapshot_that_another_process_deleted_is_not_drawn(pool):
    for move in range(3):
        pool.add(weights(move))
    reader = OpponentPool(pool.dir)
    for suffix in ("json", "npz"):
        (pool.dir / "members" / f"000003.{suffix}").unlink()
    with pytest.raises(CheckpointError, match="000003: its file was deleted"):
        reader.policy("000003")
    assert reader.draw(np.random.default_rng(1), "latest") == "000002"
    assert reader.members == ("000001", "000002")


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    pool = OpponentPool(tmp_path / "file" / "pool", make=MAKE)
    with pytest.raises(
        CheckpointError,
        match="expected a folder that a pool can be written to, got: Not a directory",
    ):
        pool.add(weights())
