"""An environment's infos under names that vecwrap writes itself, and with values that cannot be
copied or sent.
"""

import socket
import threading
from functools import partial

import gymnasium
import numpy as np
import pytest

import vecwrap
from vecwrap.errors import SubEnvError
from vecwrap.rows.infos import row_of
from vecwrap.rows.step_result import Autoreset

BACKENDS = [
    "dummy",
    {"name": "subprocess", "workers": 2},
    {"name": "shmem", "workers": 2, "parent_share": False},
]


class Speaking(gymnasium.Env):
    """Two steps an episode; each info has the items it was given and how many steps were taken,
    under ``names``.
    """

    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, names):
        self.names, self.taken = names, 0

    def _info(self, at):
        return {name: 100 * k + 10 * at + self.taken for k, name in enumerate(self.names)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.taken = 0
        return np.zeros(1, np.float32), self._info(0)

    def step(self, action):
        if action == 2:
            raise RuntimeError("as told")
        self.taken += 1
        return np.full(1, self.taken, np.float32), 1.0, self.taken == 2, False, self._info(1)


def expected(names, at, taken):
    return {name: 100 * k + 10 * at + taken for k, name in enumerate(names)}


def build(names, wrappers=(), n=2, **settings):
    return vecwrap.build(partial(Speaking, names), n=n, wrappers=list(wrappers), **settings)


# -- names -----------------------------------------------------------------------------------------

OWN = ("final_obs", "final_info", "_final_info", "_success", "success", "_x", "y")


@pytest.mark.parametrize("names", [OWN, OWN[::-1]])
@pytest.mark.parametrize("mode", Autoreset)
@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_no_value_takes_anothers_place(backend, mode, names):
    """Each is a column, with a mask; where a name is taken, one or more ``_`` are appended."""
    with build(names, backend=backend, autoreset=mode) as env:
        for at, (_, *_, infos) in enumerate(
            [env.reset(seed=1), env.step([0, 0]), env.step([0, 0])]
        ):
            ends = at == 2 and mode is Autoreset.SAME_STEP
            ours = {
                name: infos.pop(name)
                for name in ("final_obs", "_final_obs", "final_info", "_final_info")
                if ends
            }
            rows = [row_of(infos, i) for i in range(2)]
            told = expected(names, 0, 0) if at == 0 or ends else expected(names, 1, at)
            for row in rows:
                assert sorted(row.values()) == sorted(told.values())
                assert {key: row[key] for key in ("success", "_x", "y")} == {
                    key: told[key] for key in ("success", "_x", "y")
                }
                assert row["_success_"] == told["_success"]
                assert row["final_obs_"] == told["final_obs"]
            assert infos["_success"].tolist() == [True, True]  # a mask
            if ends:
                assert [one.tolist() for one in ours["final_obs"]] == [[2.0], [2.0]]
                assert ours["_final_info"].tolist() == ours["_final_obs"].tolist() == [True, True]
                assert sorted(row_of(ours["final_info"], 0).values()) == sorted(
                    expected(names, 1, 2).values()
                )


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_an_environments_own_env_id_is_there_in_steps_and_under_another_name_in_recv(backend):
    with build(("env_id",), backend=backend, on_failure="raise") as env:
        assert env.reset(seed=1)[1]["env_id"].tolist() == [0, 0]
        assert env.step([0, 0])[4]["env_id"].tolist() == [11, 11]
        env.reset()
        env.send([0], env_ids=[1])
        infos = env.recv()[4]
        assert (
            infos["env_id"].tolist(),
            infos["env_id_"].tolist(),
            infos["_env_id_"].tolist(),
        ) == ([1], [11], [True])
        with pytest.raises(SubEnvError) as caught:
            env.step([0, 2])
        infos = caught.value.others[4]
        assert (infos["env_id"].tolist(), infos["env_id_"].tolist()) == ([0], [11])


@pytest.mark.parametrize(
    "names", [("episode", "_episode"), ("_episode", "episode"), ("_episode",), ("episode",)]
)
@pytest.mark.parametrize("mode", Autoreset)
def test_the_monitors_column_takes_no_value_away(mode, names):
    with build(names, ["monitor"], backend="dummy", autoreset=mode) as env:
        env.reset(seed=1)
        env.step([0, 0])
        if "episode" in names:
            with pytest.warns(UserWarning, match='renamed to "episode_"'):
                infos = env.step([0, 0])[4]
        else:
            infos = env.step([0, 0])[4]
        assert infos["episode"]["r"].tolist() == [2, 2]
        assert infos["_episode"].tolist() == [True, True]
        theirs = ("episode", "_episode", "final_obs", "_final_obs", "final_info", "_final_info")
        row = row_of({key: column for key, column in infos.items() if key not in theirs}, 0)
        told = expected(names, 0, 0) if mode is Autoreset.SAME_STEP else expected(names, 1, 2)
        assert sorted(row.values()) == sorted(told.values())


@pytest.mark.parametrize("mode", Autoreset)
@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_restarted_is_what_vecwrap_says_wherever_there_are_restarts(backend, mode):
    restarts = {"on_failure": "restart", "restart_backoff": 0.0}
    with build(("restarted", "x"), backend=backend, autoreset=mode, **restarts) as env:
        infos = env.reset(seed=1)[1]
        assert "restarted" not in infos
        assert infos["restarted_"].tolist() == [0, 0]
        infos = env.step([0, 2])[4]
        if mode in (Autoreset.NEXT_STEP, Autoreset.SAME_STEP):
            assert infos["restarted"].tolist() == [0, 1]
        assert infos["_restarted"].tolist() == [False, True]
        assert infos["restarted_"][0] == 11
    with build(("restarted",), backend=backend, autoreset=mode) as env:
        assert env.reset(seed=1)[1]["restarted"].tolist() == [0, 0]


def test_an_environments_own_episode_seed_stays_beside_the_schedules():
    with build(
        ("episode_seed",), [{"seed_each_episode": {"seeds": [5, 6]}}], backend="dummy", n=1
    ) as env:
        infos = env.reset()[1]
        assert infos["episode_seed_"].tolist() == [0]
        assert infos["episode_seed"].tolist() == [5]


# -- values ----------------------------------------------------------------------------------------


def generator():
    return (i for i in range(3))


def graph():
    torch = pytest.importorskip("torch")
    return torch.ones(2, requires_grad=True) * 2


UNCOPYABLE = {
    "lock": threading.Lock,
    "generator": generator,
    "graph": graph,
    "socket": socket.socket,
}


class Holding(gymnasium.Env):
    """Infos hold what cannot be copied, and a list that it changes later; episodes of 2 steps."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, kind, within):
        self.thing, self.within = UNCOPYABLE[kind](), within
        self.taken = [0]

    def _info(self):
        inner = {"thing": self.thing, "taken": self.taken, "also": [self.taken, self.thing]}
        return {"inner": inner, "n": 1} if self.within else inner

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.taken[0] = 0
        return np.zeros(1, np.float32), self._info()

    def step(self, action):
        self.taken[0] += 1
        return np.zeros(1, np.float32), 1.0, self.taken[0] == 2, False, self._info()

    def close(self):
        if isinstance(self.thing, socket.socket):
            self.thing.close()


@pytest.mark.parametrize("mode", Autoreset)
@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("kind", UNCOPYABLE)
def test_the_step_goes_on_with_what_cannot_be_copied(kind, within, mode, tmp_path):
    monitor = {"monitor": {"dir": str(tmp_path), "info_keys": ["thing", "inner", "taken"]}}
    with vecwrap.build(
        partial(Holding, kind, within), n=2, wrappers=[monitor], backend="dummy", autoreset=mode
    ) as env:
        things = env.get_attr("thing")
        begun = row_of(env.reset(seed=1)[1], 1)
        first = row_of(env.step([0, 0])[4], 1)
        env.step([0, 0])
        for info, taken in ((begun, 0), (first, 1)):
            inner = info["inner"] if within else info
            assert inner["thing"] is things[1]
            assert inner["taken"] == [taken]  # what can be copied is
            assert inner["also"][0] == [taken]
            assert inner["also"][1] is things[1]
    lines = (tmp_path / "monitor.csv").read_text().splitlines()
    assert len(lines) == 2 + 2


@pytest.mark.parametrize("kind", ["lock", "generator", "socket"])
@pytest.mark.parametrize("backend", BACKENDS[1:], ids=str)
def test_across_a_process_it_is_an_error_that_names_the_key(backend, kind):
    env = vecwrap.build(partial(Holding, kind, True), n=2, backend=backend)
    with (
        pytest.raises(SubEnvError, match=r"infos \['inner'\] cannot be sent between processes"),
        env,
    ):
        env.reset(seed=1)


def test_the_row_that_the_parent_steps_itself_goes_on():
    backend = {"name": "shmem", "workers": 1, "parent_share": True}
    with vecwrap.build(
        [partial(Speaking, ("x",)), partial(Holding, "lock", False)], backend=backend
    ) as env:
        infos = env.reset(seed=1)[1]
        assert infos["thing"][0] is None
        assert infos["thing"][1].acquire(blocking=False)


def test_an_engine_goes_on_too():
    engine = gymnasium.vector.SyncVectorEnv([partial(Holding, "lock", True)] * 2)
    with vecwrap.wrap(engine, ["monitor"]) as env:
        things = env.get_attr("thing")
        for infos in (env.reset(seed=1)[1], env.step([0, 0])[4]):
            assert row_of(infos, 1)["inner"]["thing"] is things[1]


class RaisesAfterItsInfo(gymnasium.Env):
    """Its first step has an info, and an observation that does not fit."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        return (
            np.zeros(3 if self.steps == 1 else 2, np.float32),
            0.0,
            False,
            False,
            {"steps": self.steps},
        )


@pytest.mark.parametrize("backend", ["dummy", "subprocess", "shmem", "threads"])
def test_infos_of_a_kind_that_came_first_in_a_step_that_failed_are_seen_later(backend):
    with vecwrap.build(RaisesAfterItsInfo, n=1, backend=backend) as env:
        env.reset(seed=1)
        with pytest.raises(vecwrap.SubEnvError):
            env.step([0])
        env.reset(options={"reset_mask": np.array([True])})
        assert [env.step([0])[4]["steps"].tolist() for _ in range(3)] == [[2], [3], [4]]
