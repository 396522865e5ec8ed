"""Mistakes in games that opponents play: what hides results, and what makes a mask useless."""

import numpy as np
import pytest

import vecwrap
from tests.pipeline.rules.findings import ids

GAME = "pettingzoo:classic/tictactoe-v3"


@pytest.mark.parametrize(
    ("wrappers", "found"),
    [
        ("opponents | clip_reward", False),
        ("opponents | clip_reward:-1,1", False),
        ("opponents | clip_reward:low=-0.5", False),
        ("opponents | clip_reward:0,1", True),
        ("opponents | clip_reward:low=0", True),
        ("clip_reward:high=0 | opponents", True),
        ("clip_reward:0,1", False),
    ],
)
def test_clipping_that_makes_results_the_same(wrappers, found):
    assert ("clip_hides_results" in ids(f"{GAME} | {wrappers}")) is found


def test_what_is_said_of_it_is_so():
    def paid(*wrappers):
        with vecwrap.build(
            GAME, n=8, backend="dummy", seed=1, wrappers=["opponents", *wrappers]
        ) as env:
            env.reset()
            ends = set()
            for _ in range(60):
                _, rewards, _, _, infos = env.step(env.action_masks().argmax(axis=1))
                ends |= {
                    (infos["result"][i], rewards[i])
                    for i in np.flatnonzero(infos.get("_result", []))
                }
            return ends

    assert {(0, 0), (-1, 0)} <= paid({"clip_reward": {"low": 0, "high": 1}})
    assert {(0, 0), (-1, -1)} <= paid("clip_reward")


@pytest.mark.parametrize(
    ("wrappers", "found"),
    [
        ("flatten", True),
        ("framestack:4,padding=first", True),
        ([{"framestack": {"k": 4, "keys": ["observation"], "padding": "first"}}], False),
        ([{"framestack": {"k": 4, "keys": ["action_mask"], "padding": "first"}}], True),
        ("scale_obs", True),
        ([{"filter_obs": {"keys": ["observation"]}}, "flatten"], False),
        ("extract_obs:observation | flatten", False),
        ("monitor", False),
    ],
)
def test_masks_that_are_treated_as_observations(wrappers, found):
    found_ids = ids(f"{GAME} | {wrappers}") if isinstance(wrappers, str) else ids(GAME, *wrappers)
    assert "refused" not in found_ids
    assert ("mask_among_values" in found_ids) is found


def test_pools_without_members(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    vecwrap.OpponentPool("full").add("random")
    (tmp_path / "bare").mkdir()

    def found(**arguments):
        return "empty_pool" in ids(GAME, {"opponents": arguments})

    vecwrap.OpponentPool("own", make="no_such_module:make", scripted=["no_such_module:player"]).add(
        {"w": np.zeros(2)}
    )
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "pool.json").write_text("{")

    assert found(pool="nobody")
    assert found(pool="torn")
    assert found(pool="bare")
    assert found(pool=[])
    assert found(pool=vecwrap.OpponentPool(None))
    assert not found(pool="full")
    assert not found(pool="own")  # whose policies are imported when they play
    assert not found(pool=["random"])
    assert not found(pool=vecwrap.OpponentPool("full"))
    assert not found(pool="nobody", current=1.0)
    assert not (tmp_path / "nobody").exists()
