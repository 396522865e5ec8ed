"""Drives a vector environment and the model side by side, with faults; compares every row."""

from copy import deepcopy

import numpy as np

from tests.faults.faulty import IN_STEP_OF_A_WORKER, Faulty, ask, factories, forget
from tests.faults.model import Model
from tests.helpers.backends import DummyBackend, ThreadsBackend
from vecwrap.backends.workers.shares import share_out
from vecwrap.rows.compare import assert_same
from vecwrap.rows.step_result import Autoreset


class Trial:
    """One vector environment under ``on_failure="restart"``, and what should come of it."""

    def __init__(
        self, backend, mode, folder, *, num_envs=5, workers=2, seed=3, end=0.15, **options
    ):
        settings = {"max_restarts": None, "restart_backoff": 0.01, **options}
        if backend is ThreadsBackend:
            settings["workers"] = workers
        elif backend is not DummyBackend:
            settings = {
                "workers": workers,
                # a fresh interpreter takes ten times as long, and these start hundreds
                "start_method": "forkserver",
                "step_timeout": 60.0,  # nothing is a hang because the machine is busy
                "reset_timeout": 60.0,
                "start_timeout": 60.0,
                **settings,
            }
        self.env = backend(
            factories(folder, num_envs, end=end), autoreset=mode, on_failure="restart", **settings
        )
        self.folder, self.num_envs, self.mode = folder, num_envs, Autoreset.parse(mode)
        self.model = Model(lambda i: Faulty(index=i, end=end), num_envs, mode)
        self.shares = (
            [] if backend in (DummyBackend, ThreadsBackend) else share_out(num_envs, workers, None)
        )
        self.rng = np.random.default_rng(seed)
        self.met = 0

    def together(self, i):
        """Who is lost with sub-environment i when its worker dies."""
        return next((share for share in self.shares if i in share), range(i, i + 1))

    # -- calls -------------------------------------------------------------------------------------

    def reset(self, seeds=None, mask=None, faults=None):
        """Reset rows; ``faults``: index to kind."""
        env_ids = list(range(self.num_envs)) if mask is None else np.flatnonzero(mask).tolist()
        seeds = [None] * self.num_envs if seeds is None else seeds
        losses = {}
        for i, kind in (faults or {}).items():
            assert i in env_ids
            ask(self.folder, i, "reset", kind)
            self._note_loss(losses, i, kind)
        options = None if mask is None else {"reset_mask": mask}
        told = self._play(
            lambda losses: self.model.reset(env_ids, seeds, losses), losses, set(env_ids)
        )
        observations, infos = self.env.reset(seed=seeds, options=options)
        for i in env_ids:
            self._same_row(i, told[i], observations, None, infos, i)
        self._settle()

    def step(self, faults=None, env_ids=None):
        """Step rows; ``faults``: index to point and kind.

        Rows that would not meet theirs are left alone.
        """
        env_ids = self.may_step() if env_ids is None else env_ids
        actions = {i: int(self.rng.integers(3)) for i in env_ids}
        losses, kept = {}, set()
        for i, (point, kind) in self._one_death_a_worker(faults or {}).items():
            if i in actions and self._meets(i, point, actions[i]):
                ask(self.folder, i, point, kind)
                self.met += 1
                if kind == "raise" and point == "reset" and self.mode is Autoreset.SAME_STEP:
                    kept.add(i)
                else:
                    self._note_loss(losses, i, kind)
        kept -= losses.keys()  # its worker died as well
        asked = {
            i for i in env_ids if not self.model.rows[i].lost or self._loss_is_told_by_a_reset(i)
        }
        told = self._play(lambda losses: self.model.step(actions, losses, kept), losses, asked)
        if len(env_ids) == self.num_envs:
            result = self.env.step(np.array([actions[i] for i in env_ids]))
            positions = dict(zip(env_ids, env_ids, strict=True))
        else:
            self.env.send(np.array([actions[i] for i in env_ids]), env_ids=env_ids)
            result = self.env.recv()
            positions = {i: k for k, i in enumerate(result[4]["env_id"].tolist())}
            assert list(positions) == sorted(env_ids)
        for i, k in positions.items():
            self._same_row(i, told[i], *self._parts(result), k)
        self._settle()

    def may_step(self):
        """Rows that the mode lets be stepped."""
        return [
            i
            for i, row in enumerate(self.model.rows)
            if not (row.over and self.mode is Autoreset.DISABLED)
        ]

    def set_attr(self, name, values):
        self.env.set_attr(name, values)
        self.model.set_attr(name, values)
        assert self.env.get_attr(name) == tuple(values)

    def save(self, deaths=None):
        """Give the state of both; ``deaths``: index to kind."""
        self._die("save", deaths, self.model.rows)
        state = self.env.state_dict()
        assert state["sub_envs_missing"] is None
        self._settle()
        return state, self.model.state()

    def load(self, saved, deaths=None):
        """Go on where ``save`` was called; ``deaths``: index to kind."""
        state, of_model = saved
        self._die("load", deaths, of_model)
        self.env.load_state_dict(state)
        self.model.load(of_model)
        self._settle()

    # -- parts -------------------------------------------------------------------------------------

    def _die(self, point, deaths, rows):
        """Let workers die in a call that is made once more of whatever takes their place; ``rows``:
        whose state it is.

        An environment that nobody has reset is not asked: it has no state.
        """
        for i, kind in (deaths or {}).items():
            if hasattr(rows[i].env, "steps"):
                ask(self.folder, i, point, kind)
                for k in self.together(i):
                    self.model.lose(k)

    def _one_death_a_worker(self, faults):
        """Leave out what nobody would live to meet: the next one made would."""
        deaths = {}
        for i, (_, kind) in faults.items():
            if kind != "raise":
                deaths.setdefault(self.together(i), i)
        return {i: fault for i, fault in faults.items() if deaths.get(self.together(i), i) == i}

    def _note_loss(self, losses, i, kind):
        for k in [i] if kind == "raise" else self.together(i):
            losses[k] = 1

    def _play(self, play, losses, asked):
        """Let the model play; then lose what the death of a worker takes along without its showing
        in these rows.

        Those are the rows that were not asked, and those whose earlier loss is told in this call by
        the parent alone.
        """
        later = [i for i in losses if i not in asked]
        told = play({i: times for i, times in losses.items() if i in asked})
        for i in later:
            self.model.lose(i)
        return told

    def _loss_is_told_by_a_reset(self, i):
        return self.mode is Autoreset.SAME_STEP or (
            self.mode is Autoreset.NEXT_STEP and self.model.rows[i].over
        )

    def _meets(self, i, point, action):
        row = self.model.rows[i]
        if row.lost:
            return False
        if row.over:
            return point == "reset" and self.mode is Autoreset.NEXT_STEP
        if point in IN_STEP_OF_A_WORKER:
            return True
        if point != "reset" or self.mode is not Autoreset.SAME_STEP:
            return False
        _, _, terminated, truncated, _ = deepcopy(row.env).step(action)
        return terminated or truncated

    @staticmethod
    def _parts(result):
        observations, rewards, terminations, truncations, infos = result
        return observations, (rewards, terminations, truncations), infos

    def _same_row(self, i, told, observations, numbers, infos, k):
        where = f"sub-environment {i}"
        assert_same(
            told["observation"], {key: value[k] for key, value in observations.items()}, where
        )
        if numbers is not None:
            rewards, terminations, truncations = numbers
            assert rewards[k] == told["reward"], where
            assert (bool(terminations[k]), bool(truncations[k])) == told["flags"], where
        info = {
            key: infos[key][k]
            for key in ("restarted", "steps", "opened")
            if key in infos and infos[f"_{key}"][k]
        }
        assert info == told.get("info", {}), where
        final = infos["final_obs"][k] if "final_obs" in infos else None
        assert_same(told.get("final"), final, f"{where}, final_obs")
        if "final" in told:
            finals = infos["final_info"]
            got = {"steps": finals["steps"][k]} if "steps" in finals and finals["_steps"][k] else {}
            assert got == told["final_info"], where

    def _settle(self):
        forget(self.folder)
        assert self.env.health().restarts.tolist() == [row.restarts for row in self.model.rows]

    def close(self):
        self.env.close()
