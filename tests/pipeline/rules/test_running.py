"""How many there are, from which seed, and what becomes of statistics in an evaluation."""

import pytest

import vecwrap


def ids(line, **settings):
    return [finding.id for finding in vecwrap.check(line, **{"backend": "dummy", **settings})]


@pytest.mark.parametrize(
    ("settings", "places"),
    [
        ({"max_restarts": 3, "restart_window": 9.0}, ["backend.max_restarts", "backend.restart_window"]),
        ({"restart_backoff": 1.0, "on_failure": "raise"}, ["backend.restart_backoff"]),
        ({"max_restarts": 3, "restart_backoff": 1.0, "on_failure": "restart"}, []),
        ({}, []),
    ],
)
def test_a_policy_of_restarts_where_nothing_is_made_anew(settings, places):
    findings = vecwrap.check("CartPole-v1", n=2, backend={"name": "dummy", **settings})
    assert [(finding.id, finding.place) for finding in findings] == [("restarts_not_asked_for", p) for p in places]


@pytest.mark.parametrize(
    ("line", "strict", "found"),
    [("CartPole-v1 n=2", True, True), ("CartPole-v1 n=2 seed=0", True, False), ("CartPole-v1 n=2", False, False)],
)
def test_a_seed_is_missing_where_strict_asks_for_one(line, strict, found):
    assert ids(line, strict=strict) == ["no_seed"] * found
