"""The state of the learner's games, and of the rows that ``learner_rows`` sends and receives.

What the steps inside paid and reported is added up here, row by row, until the learner is shown it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vecwrap.rows import batch as batches
from vecwrap.rows.batch import Batch
from vecwrap.rows.infos import columns, detached_copy, row_of
from vecwrap.rows.saved import fitting, fitting_list, put
from vecwrap.rows.step_result import BoolArray, FloatArray, IntArray, StepResult, UnplayedGame
from vecwrap.rows.table import Slots
from vecwrap.selfplay.moves import SeatAdapter
from vecwrap.sources.masks import MEMBER

INFOS = ("opponent", "seat", "result")
# Of a game's own numbers, beside those that the environment draws from its seed.
RNG_STREAM = 0x0110
SUMS = ("rewards", "raw_rewards")
FLAGS = (
    "terminations",
    "truncations",
    "first",
    "acted",
    "completed",
    "observed",
    "lost",
    "raw_dones",
    "raw_first",
)
_SAVED = ("running", "left", "returns", "episodes", "in_vain", "to_move", "alive", "seats")

Draw = Callable[[np.random.Generator], tuple[str, Sequence[int]]]
"""Draws a game's opponent and the learner's seats."""
Score = Callable[[FloatArray, Sequence[int]], float]
"""The learner's result from the summed rewards of all seats, and the learner's seats."""


class LearnerGames:
    """G games of k rows inside, in s seats of which the learner plays.

    Attributes:
        num_games, k, s: G, k and s.
        seats: (G, s) int64. The learner's.
        opponents: (G,) objects. Their names.
        running: (G,) bool. Which games have begun and not ended.
        left: (G,) bool. Those that the learner has left, and that the opponent plays to the end.
        in_vain: (G,) int64. How many games in a row ended before the learner's first move.
        opening: (G,) bool. Which have begun, and were not shown to the learner yet.
        seeds, episodes, rngs: of each game its seed, the number of its episode, and its own
            generator.
        seen: G * k rows. The last observation of each row inside.
        to_move, alive: (G * k,) bool. Those flags of the rows inside.
    """

    def __init__(
        self,
        num_games: int,
        k: int,
        seats: Sequence[int],
        slots: Slots,
        *,
        own: SeatAdapter,
        draw: Draw,
        score: Score,
        record: Callable[[str, float, int], None],
    ) -> None:
        self.num_games = num_games
        self.k = k
        self.s = len(seats)
        self._slots = slots
        self._own = own
        self._draw = draw
        self._score = score
        self._record = record
        n = num_games * self.s
        self._all_ids = np.arange(n)
        # of the games
        self.seats: IntArray = np.tile(np.array(seats), (num_games, 1))
        self.opponents = np.full(num_games, "", dtype=object)
        self.running = np.zeros(num_games, np.bool_)
        self.left = np.zeros(num_games, np.bool_)
        self.returns = np.zeros((num_games, k))
        seeds = np.random.SeedSequence().generate_state(num_games, np.uint64) >> np.uint64(1)
        self.seeds = [int(seed) for seed in seeds]
        self.episodes = np.zeros(num_games, np.int64)
        self.in_vain = np.zeros(num_games, np.int64)
        self.opening = np.zeros(num_games, np.bool_)
        self._start_seconds = np.zeros(num_games)  # of time.perf_counter
        self.rngs = [np.random.default_rng() for _ in range(num_games)]
        # of the rows inside
        self.seen: Batch = None
        self._masks: dict[int, Any] = {}  # the last ones in infos
        self.to_move = np.zeros(num_games * k, np.bool_)
        self.alive = np.zeros(num_games * k, np.bool_)
        # The rows to be returned, added up so far.
        self._partial: dict[str, Any] = {name: np.zeros(n) for name in SUMS}
        self._partial |= {name: np.zeros(n, np.bool_) for name in FLAGS}
        # Paid before the learner's first move, for its first row.
        self._early = {name: np.zeros(n) for name in SUMS}
        self._final_obs: Batch = None
        self._infos: dict[int, dict[str, Any]] = {}
        self._final_infos: dict[int, dict[str, Any]] = {}
        self._frames: dict[int, Any] = {}
        self._final_frames: dict[int, Any] = {}
        # Of games that ended: opponent, seat, result.
        self._results: dict[int, tuple[str, int, float]] = {}
        self._unplayed: dict[int, list[UnplayedGame]] = {}  # by game, in their order
        # How many of these came before the running game.
        self._num_unplayed_before = np.zeros(num_games, np.int64)

    # -- rows --------------------------------------------------------------------------------------

    def sources(self, env_ids: IntArray) -> IntArray:
        return np.asarray(
            env_ids // self.s * self.k + self.seats[env_ids // self.s, env_ids % self.s]
        )

    def rows_of(self, games: Any) -> IntArray:
        return np.asarray(
            (np.asarray(games, np.int64)[:, None] * self.k + np.arange(self.k)).ravel()
        )

    def own_rows(self, games: Any) -> IntArray:
        return np.asarray(
            (np.asarray(games, np.int64)[:, None] * self.s + np.arange(self.s)).ravel()
        )

    def _places(self, games: IntArray) -> IntArray:
        return np.asarray((np.arange(len(games))[:, None] * self.k + self.seats[games]).ravel())

    def masks(self, rows: IntArray) -> BoolArray | None:
        """Return what is legal in these rows, if the games report it."""
        if all(i in self._masks for i in rows.tolist()):
            return np.array([np.ravel(self._masks[i]) for i in rows.tolist()]).astype(np.bool_)
        seen = self._slots.observations.batch()
        if isinstance(seen, dict) and MEMBER in seen:
            return np.asarray(seen[MEMBER][rows].astype(np.bool_)).reshape(len(rows), -1)
        return None

    def opponents_to_move(self, games: IntArray) -> IntArray:
        """Return the rows inside in which opponents are to move."""
        rows = self.rows_of(games[self.running[games]])
        others = np.ones((self.num_games, self.k), np.bool_)
        np.put_along_axis(others, self.seats, self.left[:, None], axis=1)
        return np.asarray(rows[self.to_move[rows] & others.ravel()[rows]])

    # -- a step of the learner ---------------------------------------------------------------------

    def begin(self, games: Sequence[int]) -> None:
        """Restart a row of each of the learner's seats."""
        rows = self.own_rows(games)
        for name in SUMS:
            self._partial[name][rows] = self._early[name][rows]
            self._early[name][rows] = 0.0
        for name in FLAGS:
            self._partial[name][rows] = False
        self.opening[games] = False
        self._num_unplayed_before[games] = 0
        for kept, keys in (
            (self._infos, rows.tolist()),
            (self._final_infos, rows.tolist()),
            (self._results, games),
            (self._frames, games),
            (self._final_frames, games),
        ):
            if kept:
                for key in keys:
                    kept.pop(key, None)

    def forget_early_rewards(self, games: Sequence[int]) -> None:
        """Forget what was paid before the learner's first move, in games that are reset then."""
        for early in self._early.values():
            early[self.own_rows(games)] = 0.0

    def note_reset(self, games: Sequence[int], seeds: Sequence[int | None]) -> None:
        """Note that games were reset, some of them with a seed."""
        self.running[games] = False  # nobody has won what was cut short
        self.in_vain[games] = 0
        for game, seed in zip(games, seeds, strict=True):
            if seed is not None:
                self.seeds[game] = seed
                self.episodes[game] = 0

    def add(self, step: StepResult, games: IntArray, *, held: bool) -> IntArray:
        """Add up steps received from inside or held back; return begun games, to be opened."""
        if self.seen is None:
            self.seen = batches.empty_like(step.observations, len(self.to_move))
        batches.scatter(self.seen, step.rows, step.observations)
        self.to_move[step.rows] = step.to_move
        self.alive[step.rows] = step.alive
        self._note_masks(step)
        lost = np.asarray(step.lost.reshape(-1, self.k).any(axis=1))
        over = np.flatnonzero(self._over(step, games))
        self.returns[games] += step.raw_rewards.reshape(-1, self.k)
        took_part = self._add_up(step, games)
        if held and not took_part:
            self._show_end(step, games)
        for at in over.tolist():
            self._end(int(games[at]), lost=bool(lost[at]), absent=held and not took_part)
        self.running[games[over]] = False
        self.left[games[over]] = False
        return games[self._begins(step)]

    def _begins(self, step: StepResult) -> BoolArray:
        return np.asarray(step.first.reshape(-1, self.k).all(axis=1))

    def _note_masks(self, step: StepResult) -> None:
        if MEMBER in step.infos:
            masks = step.infos[MEMBER]
            has_mask = step.infos.get(f"_{MEMBER}", np.ones(len(masks), np.bool_))
            for at in np.flatnonzero(has_mask).tolist():
                self._masks[int(step.env_ids[at])] = masks[at]

    def _over(self, step: StepResult, games: IntArray) -> BoolArray:
        """(g,) bool: which games have ended, whether or not the next one has begun."""
        lost = step.lost.reshape(-1, self.k).any(axis=1)
        has_agents = step.alive.reshape(-1, self.k).any(axis=1)
        return np.asarray(self.running[games] & (self._begins(step) | lost | ~has_agents))

    def _add_up(self, step: StepResult, games: IntArray) -> bool:
        """Add rewards and reports to the learner's rows; return whether an episode has ended."""
        plays = np.repeat(~self.left[games], self.s)
        at = self._places(games)[plays]
        rows = self.own_rows(games)[plays]
        partial = self._partial
        # In this very call: what is paid from now on belongs to the next row.
        opened = partial["first"][rows]
        for name in SUMS:
            paid = getattr(step, name)[at]
            partial[name][rows] += np.where(opened, 0.0, paid)
            self._early[name][rows] += np.where(opened, paid, 0.0)
        for name in ("terminations", "truncations", "lost", "acted", "completed", "raw_dones"):
            partial[name][rows] |= getattr(step, name)[at] & ~opened
        partial["observed"][rows] |= step.observed[at]
        cut = partial["lost"][rows] & (partial["terminations"][rows] | partial["truncations"][rows])
        if cut.any():  # what the learner did was lost with the game
            for name in (*SUMS, "acted", "completed"):
                partial[name][rows[cut]] = 0
        ended = step.dones[at] & (step.observed[at] | step.lost[at])
        played = ended & ~opened
        unplayed = ended & opened
        if played.any():
            self._keep_ends(step, at[played], rows[played])
        if unplayed.any():
            self._count_unplayed(step, at[unplayed], rows[unplayed])
        return bool(ended.any())

    def _keep_ends(self, step: StepResult, at: IntArray, rows: IntArray) -> None:
        if self._final_obs is None:
            self._final_obs = batches.empty_like(step.observations, len(self._all_ids))
        batches.scatter(self._final_obs, rows, batches.take(step.terminal_observations, at))
        for place, i in zip(at.tolist(), rows.tolist(), strict=True):
            self._final_infos[i] = _last_info(step, place)
            frames = step.final_frames if step.first[place] else step.frames
            if frames is not None:
                self._final_frames[i // self.s] = frames[place]

    def show(self, step: StepResult, games: IntArray) -> None:
        """Note what the learner sees now, maybe from another seat than before."""
        plays = np.repeat(~self.left[games], self.s)
        at = self._places(games)[plays]
        rows = self.own_rows(games)[plays]
        partial = self._partial
        partial["first"][rows] |= step.first[at]
        partial["raw_first"][rows] |= step.raw_first[at]
        partial["observed"][rows] |= np.repeat(self._begins(step), self.s)[plays]
        if step.infos or self._infos or self._own.does_less:
            for place, i in zip(at.tolist(), rows.tolist(), strict=True):
                if step.observed[place]:
                    self._infos[i] = self._info(step, place)
        if step.frames is not None:
            for place, i in zip(at.tolist(), rows.tolist(), strict=True):
                self._frames[i // self.s] = step.frames[place]

    def _info(self, step: StepResult, place: int) -> dict[str, Any]:
        info: dict[str, Any] = detached_copy(row_of(step.infos, place))
        if self._own.does_less and (masks := self.masks(step.env_ids[[place]])) is not None:
            info[MEMBER] = self._own.masks(masks)[0].astype(np.int8)
        return info

    def sort(self, games: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return games waiting for the learner, for opponents, and ended before its move."""
        rows = self.own_rows(games)
        partial = self._partial
        shape = (len(games), self.s)
        inside = self.sources(rows)
        to_move = (self.to_move[inside] & self.alive[inside]).reshape(shape).any(axis=1)
        done = partial["terminations"][rows] | partial["truncations"][rows]
        ended = (done & ~partial["first"][rows]).reshape(shape).any(axis=1)
        has_left = ended & ~self.alive[inside].reshape(shape).any(axis=1)
        running = self.running[games]
        arrived = np.where(running, to_move & ~self.left[games], has_left)
        self.left[games] |= running & ~arrived & has_left
        return games[arrived], games[running & ~arrived], games[~(running | arrived)]

    # -- games that end before the learner's first move --------------------------------------------

    def _count_unplayed(self, step: StepResult, at: IntArray, rows: IntArray) -> None:
        """Count ends of the learner's that no row shows, because it has not moved yet."""
        partial = self._partial
        for place, i in zip(at.tolist(), rows.tolist(), strict=True):
            game = i // self.s
            lost = bool(step.lost[place])
            reward = raw_reward = 0.0
            if not lost:
                reward, raw_reward = (float(self._early[name][i]) for name in SUMS)
            seconds = round(time.perf_counter() - self._start_seconds.item(game), 6)
            about = {"opponent": self.opponents[game], "seat": int(self.seats[game, 0])}
            infos = {**_last_info(step, place), **about}
            unplayed = UnplayedGame(i, reward, raw_reward, lost, seconds, infos)
            self._unplayed.setdefault(game, []).append(unplayed)
            for name in SUMS:
                self._early[name][i] = 0.0
            partial["raw_first"][i] = False  # the row of a team whose other agent plays on rests
            partial["observed"][i] = partial["terminations"][i] or partial["truncations"][i]
            self._infos.pop(i, None)

    def ends(self, step: StepResult, games: IntArray) -> BoolArray:
        """(g,) bool: which games have ended, at least for the learner, whose agents have left."""
        own = self._places(games)
        ended = (step.dones & (step.observed | step.lost))[own].reshape(-1, self.s).any(axis=1)
        leaves = ended & ~step.alive[own].reshape(-1, self.s).any(axis=1)
        return np.asarray(leaves | self._over(step, games))

    def _show_end(self, step: StepResult, games: IntArray) -> None:
        """Show the end of a game that the learner never joined, so that a step returns."""
        rows = self.own_rows(games)
        for name in ("terminations", "observed", "raw_dones"):
            self._partial[name][rows] = True
        self._keep_ends(step, self._places(games), rows)

    def count_end(self, game: int, step: StepResult) -> None:
        """Count how a game ended, before it is reset and could show it."""
        at = np.array([game])
        self.opening[game] = True
        self._partial["first"][self.own_rows(at)] = True
        self._num_unplayed_before[game] = len(self._unplayed.get(game, ()))
        self.add(step, at, held=True)

    # -- games -------------------------------------------------------------------------------------

    def _end(self, game: int, *, lost: bool, absent: bool) -> None:
        """Record how a game ended; a lost one, or one the learner never joined, has no result."""
        unplayed = self._unplayed.get(game, [])[self._num_unplayed_before[game] :]
        if not self.opening[game]:
            self.in_vain[game] = 0
        else:
            self.in_vain[game] += 1
            if not unplayed:
                return
        seats = self.seats[game].tolist()
        result = float("nan")
        if not (lost or absent):
            result = float(np.sign(self._score(self.returns[game].copy(), seats)))
            self._record(self.opponents[game], result, seats[0])
            for each in unplayed:
                each.infos["result"] = result
        if not self.opening[game]:
            self._results[game] = self.opponents[game], seats[0], result

    def open(self, game: int) -> None:
        """Draw the opponent of a begun game; ArgumentError or CheckpointError on failure."""
        self.opening[game] = True
        self._start_seconds[game] = time.perf_counter()
        self._num_unplayed_before[game] = len(self._unplayed.get(game, ()))
        self.returns[game] = 0.0
        self.rngs[game] = np.random.default_rng(
            [self.seeds[game], int(self.episodes[game]), RNG_STREAM]
        )
        self.episodes[game] += 1
        self.forget_early_rewards([game])
        self.opponents[game], self.seats[game] = self._draw(self.rngs[game])
        self.running[game] = True

    def result(self, games: Sequence[int]) -> StepResult:
        """Return the learner's rows of these games."""
        ids = self._all_ids
        rows: IntArray | slice = slice(None)
        if len(games) < self.num_games:
            ids = rows = self.own_rows(games)
        inside = self.sources(ids)
        infos = {}
        if self._infos:
            infos = columns([self._infos.get(i, {}) for i in ids.tolist()])
        step = StepResult(
            env_ids=ids,
            rows=rows,
            observations=batches.take(self.seen, inside),
            infos=infos,
            to_move=self.to_move[inside] & self.alive[inside],
            alive=self.alive[inside],
            **{name: self._partial[name][ids] for name in (*SUMS, *FLAGS)},
        )
        step.games_ended = (step.ended & ~step.cut_off).astype(np.int64)
        if self._unplayed:
            step.unplayed = tuple(each for game in games for each in self._unplayed.pop(game, ()))
            for unplayed in step.unplayed:
                step.games_ended[np.searchsorted(ids, unplayed.env_id)] += not unplayed.lost
        if (at_end := step.dones & ~step.first).any():
            step.observations = batches.where(
                at_end, batches.take(self._final_obs, ids), step.observations
            )
        if self._frames or self._final_frames:
            step.frames = tuple(self._frames.get(game) for game in (ids // self.s).tolist())
        self._add_ends(step)
        step.observations = self._own.observations(step.observations)
        self._add_infos(step)
        return step

    def _add_ends(self, step: StepResult) -> None:
        """Add what belongs to ended episodes of rows that open the next one."""
        ended = step.dones & step.first
        if not ended.any():
            return
        last = batches.take(self._final_obs, step.env_ids)
        last = batches.where(ended, last, step.observations)
        step.final_obs = self._own.observations(last)
        ended_ids = np.where(ended, step.env_ids, -1)  # no row, and no game, has the number -1
        step.final_infos = columns([self._final_infos.get(i, {}) for i in ended_ids.tolist()])
        if step.frames is not None:
            games = ended_ids // self.s
            step.final_frames = tuple(self._final_frames.get(game) for game in games.tolist())

    def _add_infos(self, step: StepResult) -> None:
        """Add this step's opponents, seats, and results of ended games to the infos."""
        games = step.env_ids // self.s
        opponents = self.opponents[games]
        seats = self.seats[games, 0]
        results = np.zeros(len(games))
        rated = np.zeros(len(games), np.bool_)
        if self._results:
            for at in np.flatnonzero(step.dones).tolist():
                if (end := self._results.get(int(games[at]))) is not None:
                    opponents[at], seats[at], results[at] = end
                    rated[at] = not np.isnan(end[2])
        everyone = np.ones(len(games), np.bool_)
        step.add_info("opponent", opponents, everyone)
        step.add_info("seat", seats, everyone.copy())
        if rated.any():
            step.add_info("result", np.where(rated, results, 0.0), rated)

    # -- saved states ------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name).copy() for name in _SAVED},
            "opponents": [str(name) for name in self.opponents],
            "seeds": list(self.seeds),
            "rngs": [rng.bit_generator.state for rng in self.rngs],
            "seen": _copy(self.seen),
            "final_obs": _copy(self._final_obs),
            "masks": [[i, np.array(mask)] for i, mask in sorted(self._masks.items())],
            "early": {name: values.copy() for name, values in self._early.items()},
        }

    def load(self, state: dict[str, Any]) -> None:
        names = [
            fitting(name, "")
            for name in fitting_list(state["opponents"], self.num_games, "opponents")
        ]
        rngs = fitting_list(state["rngs"], self.num_games, "rngs")
        self.seeds = [
            fitting(seed, 0) for seed in fitting_list(state["seeds"], self.num_games, "seeds")
        ]
        self._masks = {fitting(i, 0): mask for i, mask in fitting(state["masks"], [], "masks")}
        for name in _SAVED:
            put(getattr(self, name), state[name], name)
        put(self._early, state["early"], "early")
        for rng, saved in zip(self.rngs, rngs, strict=True):
            rng.bit_generator.state = saved
        self.seen = _copy(state["seen"])
        self._final_obs = _copy(state["final_obs"])
        self.opponents[:] = names


def _copy(batch: Batch | None) -> Batch | None:
    if batch is None:
        return None
    return batches.copy(batch)


def _last_info(step: StepResult, place: int) -> dict[str, Any]:
    """The last info of an agent whose episode ended; the next may begin in that same step."""
    infos = step.final_infos if step.first[place] else step.infos
    info: dict[str, Any] = detached_copy(row_of(infos or {}, place))
    return info
