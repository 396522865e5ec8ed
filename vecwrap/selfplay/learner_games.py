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
RNG_STREAM = (
    0x0110  # of a game's own numbers, beside those that the environment draws from its seed
)
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
        seen, to_move, alive: the last observation of each row inside, and what the row said.
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
        # what is known of the games
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
        self._began = np.zeros(num_games)  # in seconds
        self.rngs = [np.random.default_rng() for _ in range(num_games)]
        # what is known of the rows inside
        self.seen: Batch = None
        self._told_masks: dict[int, Any] = {}
        self.to_move = np.zeros(num_games * k, np.bool_)
        self.alive = np.zeros(num_games * k, np.bool_)
        # the rows to be returned, as far as they have come
        self._row: dict[str, Any] = {name: np.zeros(n) for name in SUMS}
        self._row |= {name: np.zeros(n, np.bool_) for name in FLAGS}
        # Paid before the learner's first move, for its first row.
        self._early = {name: np.zeros(n) for name in SUMS}
        self._final_obs: Batch = None
        self._infos: dict[int, dict[str, Any]] = {}
        self._final_infos: dict[int, dict[str, Any]] = {}
        self._frames: dict[int, Any] = {}
        self._final_frames: dict[int, Any] = {}
        self._results: dict[
            int, tuple[str, int, float]
        ] = {}  # of games that ended: opponent, seat, result
        self._unplayed: dict[int, list[UnplayedGame]] = {}  # by game, in their order
        # how many of them are of games before the running one
        self._earlier = np.zeros(num_games, np.int64)

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
        """What is legal in these rows, if the games say it."""
        if all(i in self._told_masks for i in rows.tolist()):
            return np.array([np.ravel(self._told_masks[i]) for i in rows.tolist()]).astype(np.bool_)
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
            self._row[name][rows] = self._early[name][rows]
            self._early[name][rows] = 0.0
        for name in FLAGS:
            self._row[name][rows] = False
        self.opening[games] = False
        self._earlier[games] = 0
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

    def break_off(self, games: Sequence[int]) -> None:
        """Forget what was paid in games that are reset before the learner's first move."""
        for early in self._early.values():
            early[self.own_rows(games)] = 0.0

    def begin_anew(self, games: Sequence[int], seeds: Sequence[int | None]) -> None:
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
            mask = step.infos[MEMBER]
            for at in np.flatnonzero(
                step.infos.get(f"_{MEMBER}", np.ones(len(mask), np.bool_))
            ).tolist():
                self._told_masks[int(step.env_ids[at])] = mask[at]

    def _over(self, step: StepResult, games: IntArray) -> BoolArray:
        """(g,) bool: which games have ended, whether or not the next one has begun."""
        first, lost, alive = (
            column.reshape(-1, self.k) for column in (step.first, step.lost, step.alive)
        )
        return np.asarray(
            self.running[games] & (first.all(axis=1) | lost.any(axis=1) | ~alive.any(axis=1))
        )

    def _add_up(self, step: StepResult, games: IntArray) -> bool:
        """Add rewards and reports to the learner's rows; return whether an episode has ended."""
        stays = np.repeat(~self.left[games], self.s)
        at = self._places(games)[stays]
        rows = self.own_rows(games)[stays]
        row = self._row
        # In this very call: what is paid from now on belongs to the next row.
        opened = row["first"][rows]
        for name in SUMS:
            paid = getattr(step, name)[at]
            row[name][rows] += np.where(opened, 0.0, paid)
            self._early[name][rows] += np.where(opened, paid, 0.0)
        for name in ("terminations", "truncations", "lost", "acted", "completed", "raw_dones"):
            row[name][rows] |= getattr(step, name)[at] & ~opened
        row["observed"][rows] |= step.observed[at]
        cut = row["lost"][rows] & (row["terminations"][rows] | row["truncations"][rows])
        if cut.any():  # what the learner did was lost with the game
            for name in (*SUMS, "acted", "completed"):
                row[name][rows[cut]] = 0
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
        shown = np.repeat(~self.left[games], self.s)
        at = self._places(games)[shown]
        rows = self.own_rows(games)[shown]
        row = self._row
        opens = np.repeat(self._begins(step), self.s)[shown]
        row["first"][rows] |= step.first[at]
        row["raw_first"][rows] |= step.raw_first[at]
        row["observed"][rows] |= opens
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
        row = self._row
        shape = (len(games), self.s)
        inside = self.sources(rows)
        acts = (self.to_move[inside] & self.alive[inside]).reshape(shape).any(axis=1)
        ended = (row["terminations"][rows] | row["truncations"][rows]) & ~row["first"][rows]
        left = ended.reshape(shape).any(axis=1) & ~self.alive[inside].reshape(shape).any(axis=1)
        running = self.running[games]
        ready = np.where(running, acts & ~self.left[games], left)
        self.left[games] |= running & ~ready & left
        return games[ready], games[running & ~ready], games[~(running | ready)]

    # -- games that end before the learner's first move --------------------------------------------

    def _count_unplayed(self, step: StepResult, at: IntArray, rows: IntArray) -> None:
        """Count ends of the learner's that no row shows, because it has not moved yet."""
        for place, i in zip(at.tolist(), rows.tolist(), strict=True):
            game = i // self.s
            lost = bool(step.lost[place])
            reward = raw_reward = 0.0
            if not lost:
                reward, raw_reward = (float(self._early[name][i]) for name in SUMS)
            seconds = round(time.perf_counter() - self._began.item(game), 6)
            about = {"opponent": self.opponents[game], "seat": int(self.seats[game, 0])}
            one = UnplayedGame(
                i, reward, raw_reward, lost, seconds, {**_last_info(step, place), **about}
            )
            self._unplayed.setdefault(game, []).append(one)
            for name in SUMS:
                self._early[name][i] = 0.0
            self._row["raw_first"][i] = False  # the row of a team whose other agent plays on rests
            self._row["observed"][i] = self._row["terminations"][i] or self._row["truncations"][i]
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
            self._row[name][rows] = True
        self._keep_ends(step, self._places(games), rows)

    def count_end(self, game: int, step: StepResult) -> None:
        """Count how a game ended, before it is reset and could show it."""
        at = np.array([game])
        self.opening[game] = True
        self._row["first"][self.own_rows(at)] = True
        self._earlier[game] = len(self._unplayed.get(game, ()))
        self.add(step, at, held=True)

    # -- games -------------------------------------------------------------------------------------

    def _end(self, game: int, *, lost: bool, absent: bool) -> None:
        """Record how a game ended.

        A game that was lost, or that the learner never joined, has no result.
        """
        unplayed = self._unplayed.get(game, [])[self._earlier[game] :]
        self.in_vain[game] += 1
        if not self.opening[game]:
            self.in_vain[game] = 0
        if self.opening[game] and not unplayed:
            return
        seats = self.seats[game].tolist()
        result = float("nan")
        if not (lost or absent):
            result = float(np.sign(self._score(self.returns[game].copy(), seats)))
            self._record(self.opponents[game], result, seats[0])
            for one in unplayed:
                one.infos["result"] = result
        if not self.opening[game]:
            self._results[game] = self.opponents[game], seats[0], result

    def open(self, game: int) -> None:
        """Draw the opponent of a begun game; ArgumentError or CheckpointError on failure."""
        self.opening[game] = True
        self._began[game] = time.perf_counter()
        self._earlier[game] = len(self._unplayed.get(game, ()))
        self.returns[game] = 0.0
        self.rngs[game] = np.random.default_rng(
            [self.seeds[game], int(self.episodes[game]), RNG_STREAM]
        )
        self.episodes[game] += 1
        for early in self._early.values():
            early[self.own_rows([game])] = 0.0
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
            **{name: self._row[name][ids] for name in (*SUMS, *FLAGS)},
        )
        if self._unplayed:
            step.unplayed = tuple(one for game in games for one in self._unplayed.pop(game, ()))
        step.games_ended = (step.ended & ~step.cut_off).astype(np.int64)
        for one in step.unplayed:
            step.games_ended[np.searchsorted(ids, one.env_id)] += not one.lost
        if (at_end := step.dones & ~step.first).any():
            step.observations = batches.where(
                at_end, batches.take(self._final_obs, ids), step.observations
            )
        ended = step.dones & step.first
        if ended.any():
            step.final_obs = batches.where(
                ended, batches.take(self._final_obs, ids), step.observations
            )
            final_infos: list[dict[str, Any]] = [{}] * len(ids)
            for at in np.flatnonzero(ended).tolist():
                final_infos[at] = self._final_infos.get(ids.item(at), {})
            step.final_infos = columns(final_infos)
        if self._frames or self._final_frames:
            of = [i // self.s for i in ids.tolist()]
            step.frames = tuple(self._frames.get(game) for game in of)
            if ended.any():
                final_frames: list[Any] = [None] * len(of)
                for at in np.flatnonzero(ended).tolist():
                    final_frames[at] = self._final_frames.get(of[at])
                step.final_frames = tuple(final_frames)
        step.observations = self._own.observations(step.observations)
        if step.final_obs is not None:
            step.final_obs = self._own.observations(step.final_obs)
        self._add_infos(step)
        return step

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
        copies = {"seen": self.seen, "final_obs": self._final_obs}
        for name, batch in copies.items():
            if batch is not None:
                copies[name] = batches.copy(batch)
        return {
            **{name: getattr(self, name).copy() for name in _SAVED},
            "opponents": [str(name) for name in self.opponents],
            "seeds": list(self.seeds),
            "rngs": [rng.bit_generator.state for rng in self.rngs],
            **copies,
            "masks": [[i, np.array(mask)] for i, mask in sorted(self._told_masks.items())],
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
        self._told_masks = {fitting(i, 0): mask for i, mask in fitting(state["masks"], [], "masks")}
        for name in _SAVED:
            put(getattr(self, name), state[name], name)
        put(self._early, state["early"], "early")
        for rng, saved in zip(self.rngs, rngs, strict=True):
            rng.bit_generator.state = saved
        if state["seen"] is None:
            self.seen = None
        else:
            self.seen = batches.copy(state["seen"])
        if state["final_obs"] is None:
            self._final_obs = None
        else:
            self._final_obs = batches.copy(state["final_obs"])
        self.opponents[:] = names


def _last_info(step: StepResult, place: int) -> dict[str, Any]:
    """The last info of an agent whose episode has ended.

    The next episode may begin in that same step.
    """
    infos = step.final_infos if step.first[place] else step.infos
    info: dict[str, Any] = detached_copy(row_of(infos or {}, place))
    return info
