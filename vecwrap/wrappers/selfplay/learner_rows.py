"""The learner's rows of games whose other seats are moved by opponents: ``vecwrap.wrappers.opponents`` from below.

One step of the learner is one or more steps inside. What these paid and reported is added up here, row by row, until
the learner is to move again or its episode has ended; then the row is ready.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium.vector.utils import create_empty_array

from vecwrap.env.row_protocol import Endings
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import ArgumentError, CheckpointError, SubEnvError, WaitTimeoutError, kind_of, text_of
from vecwrap.rows import batch as batches
from vecwrap.rows.batch import Batch
from vecwrap.rows.infos import columns, own_copy, row_of
from vecwrap.rows.saved import fitting, fitting_list, put
from vecwrap.rows.step_result import Autoreset, BoolArray, FloatArray, IntArray, StepResult
from vecwrap.wrappers.selfplay.moves import IllegalMoveError, Moves, Side

MEMBER = "action_mask"
INFOS = ("opponent", "seat", "result")
MOST_IN_VAIN = 100  # games in a row in which the learner was never to move
STREAM = 0x0110  # of a game's own numbers, beside those that the environment draws from its seed
_SUMS = ("rewards", "raw_rewards")
_FLAGS = ("terminations", "truncations", "first", "acted", "completed", "live", "lost", "raw_dones", "raw_first")
_SAVED = ("running", "left", "returns", "episodes", "in_vain", "to_move", "alive")

Draw = Callable[[np.random.Generator], tuple[str, Sequence[int]]]
"""Draws a game's opponent and the learner's seats."""
Score = Callable[[FloatArray, Sequence[int]], float]
"""The learner's result from the summed rewards of all seats, and the learner's seats."""


class LearnerRows:
    """The rows of the learner's s seats in each of G games with k rows inside; ``moves`` moves the other seats."""

    def __init__(
        self,
        inner: VecEnv,
        seats: Sequence[int],
        moves: Moves,
        *,
        own: Side,
        others: Side,
        draw: Draw,
        score: Score,
        record: Callable[[str, float, int], None],
    ) -> None:
        core, num_seats = inner.core, len(seats)
        self._inner = inner.rows
        self._numbering = inner.face.numbering
        self._slots = core.slots
        self._mode = core.autoreset
        self._batched = core.batch_size is not None
        self._k, self._s = core.books.agents, num_seats
        self._num_games = games = inner.num_envs // self._k
        self._num_rows = n = games * num_seats
        self._names = inner.possible_agents
        self._moves, self._draw, self._score, self._record = moves, draw, score, record
        self._own, self._others = own, others
        self.endings = Endings(
            n, resets_are_asked_for=self._mode is Autoreset.DISABLED, agents=num_seats * (num_seats > 1)
        )
        self._all_ids = np.arange(n)
        # what is known of the games
        self.seats: IntArray = np.tile(np.array(seats), (games, 1))
        self.opponents = np.full(games, "", dtype=object)
        self._running = np.zeros(games, np.bool_)
        self._left = np.zeros(games, np.bool_)  # by the learner, and played to its end by the opponent
        self._returns = np.zeros((games, self._k))
        self._seeds = [int(one) for one in np.random.SeedSequence().generate_state(games, np.uint64) >> np.uint64(1)]
        self._episodes = np.zeros(games, np.int64)
        self._in_vain = np.zeros(games, np.int64)
        self._rngs = [np.random.default_rng() for _ in range(games)]
        # what is known of the rows inside
        self._seen: Batch = None
        self._told_masks: dict[int, Any] = {}
        self._to_move = np.zeros(inner.num_envs, np.bool_)
        self._alive = np.zeros(inner.num_envs, np.bool_)
        self._actions = create_empty_array(inner.single_action_space, inner.num_envs)
        # the rows to be returned, as far as they have come
        self._row: dict[str, Any] = {name: np.zeros(n) for name in _SUMS}
        self._row |= {name: np.zeros(n, np.bool_) for name in _FLAGS}
        self._early = {name: np.zeros(n) for name in _SUMS}  # paid before the learner's first move, for its first row
        self._final_obs: Batch = None
        self._infos: dict[int, dict[str, Any]] = {}
        self._final_infos: dict[int, dict[str, Any]] = {}
        self._frames: dict[int, Any] = {}
        self._final_frames: dict[int, Any] = {}
        self._results: dict[int, tuple[str, int, float]] = {}  # of games that ended: opponent, seat, result
        # what is pending
        self._out: frozenset[int] = frozenset()
        self._due: list[int] = []  # games whose opponents are to move
        self._anew: list[int] = []  # games to be reset, because they ended before the learner's first move
        self._ready: list[int] = []  # games
        self._failed: dict[int, SubEnvError] = {}  # by game

    # -- what others ask -----------------------------------------------------------------------------------------------

    @property
    def out(self) -> frozenset[int]:
        return self._out

    @property
    def num_arrived(self) -> int:
        return len(self._ready) * self._s

    def sources(self, env_ids: IntArray) -> IntArray:
        return np.asarray(env_ids // self._s * self._k + self.seats[env_ids // self._s, env_ids % self._s])

    def pictured(self, env_ids: IntArray) -> IntArray:
        """Return all rows of these games: which of them is the learner's changes, and they show the same picture."""
        return self._rows_of(np.unique(env_ids // self._s))

    def _rows_of(self, games: Any) -> IntArray:
        return np.asarray((np.asarray(games, np.int64)[:, None] * self._k + np.arange(self._k)).ravel())

    def _own_rows(self, games: Any) -> IntArray:
        return np.asarray((np.asarray(games, np.int64)[:, None] * self._s + np.arange(self._s)).ravel())

    # -- down ----------------------------------------------------------------------------------------------------------

    def send(self, actions: Batch, env_ids: IntArray) -> None:
        games = self._whole_games(env_ids, "env_ids")
        self._begin(games)
        batches.scatter(self._actions, self.sources(env_ids), self._own.done(actions))
        self._guarded(games, lambda: self._play(games))

    def reset(self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        games = self._whole_games(env_ids, "reset_mask")
        self._begin(games)
        each = list(seeds[:: self._s])
        of_rows = [seed for seed in each for _ in range(self._k)]
        self._guarded(games, lambda: self._inner.reset(self._rows_of(games), of_rows, options))
        self._running[games] = False  # nobody has won what was cut short
        self._in_vain[games] = 0
        for game, seed in zip(games, each, strict=True):
            if seed is not None:
                self._seeds[game], self._episodes[game] = seed, 0

    def _whole_games(self, env_ids: IntArray, what: str) -> list[int]:
        games = np.unique(env_ids // self._s)
        if len(games) * self._s != len(env_ids):
            raise ArgumentError(
                f"{what}: expected all of the learner's seats of a game or none, got {env_ids.tolist()}"
            )
        return [int(game) for game in games]

    def _begin(self, games: Sequence[int]) -> None:
        rows = self._own_rows(games)
        for name in _SUMS:
            self._row[name][rows] = self._early[name][rows]
            self._early[name][rows] = 0.0
        for name in _FLAGS:
            self._row[name][rows] = False
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
        self._out = self._out.union(rows.tolist())

    def _guarded(self, games: Sequence[int], send: Callable[[], None]) -> None:
        """Send; games that could not be sent are no longer pending."""
        try:
            send()
        except BaseException:
            asked = self._numbering.out
            gone = [game for game in games if asked.isdisjoint(self._rows_of([game]).tolist())]
            self._out = self._out.difference(self._own_rows(gone).tolist())
            raise

    # -- the opponents -------------------------------------------------------------------------------------------------

    def _play(self, games: Sequence[int]) -> None:
        """Step these games, whose opponents move if it is their turn."""
        at = np.asarray(games, np.int64)
        rows = self._rows_of(at[self._running[at]])
        others = np.ones((self._num_games, self._k), np.bool_)
        np.put_along_axis(others, self.seats, self._left[:, None], axis=1)
        rows = rows[self._to_move[rows] & others.ravel()[rows]]
        names = self.opponents[rows // self._k]
        for name in sorted(set(names.tolist())):
            self._ask(name, rows[names == name])
        go = at if not self._failed else np.array([game for game in games if game not in self._failed], np.int64)
        if len(go):
            inside = self._rows_of(go)
            self._inner.send(batches.take(self._actions, inside), inside)

    def _ask(self, name: str, rows: IntArray) -> None:
        """Have a policy move in these rows; games in which it cannot have failed."""
        observations = self._others.seen(batches.take(self._seen, rows))
        rngs = [self._rngs[i // self._k] for i in rows.tolist()]
        try:
            masks = self._masks(rows)
            masks = None if masks is None else self._others.masks(masks)
            actions = self._moves.ask(name, rows, observations, masks, rngs)
        except IllegalMoveError as error:
            self._fail(np.unique(rows[error.rows] // self._k).tolist(), error)
            return
        except Exception as error:
            self._fail(np.unique(rows // self._k).tolist(), error)
            return
        batches.scatter(self._actions, rows, self._others.done(actions))

    def _fail(self, games: Iterable[int], error: Exception) -> None:
        """Have games end with an error of their opponent."""
        for game in games:
            failure = SubEnvError(
                f"game {game}: {text_of(error)}\nThe other games are unharmed; reset this one before its next step.",
                index=game * self._s,
                seed=self._seeds[game],
                episode=int(self._episodes[game]),
                during="step",
                kind=kind_of(error),
            )
            failure.__cause__ = error.__cause__ or error
            self._has_failed(game, failure)

    def _has_failed(self, game: int, error: SubEnvError) -> None:
        self._failed[game] = error
        self._running[game] = False
        if game not in self._ready:
            self._ready.append(game)

    def _masks(self, rows: IntArray) -> BoolArray | None:
        """What is legal in these rows, if the games say it."""
        if all(i in self._told_masks for i in rows.tolist()):
            return np.array([np.ravel(self._told_masks[i]) for i in rows.tolist()]).astype(np.bool_)
        seen = self._slots.observations.batch()
        if isinstance(seen, dict) and MEMBER in seen:
            return np.asarray(seen[MEMBER][rows].astype(np.bool_)).reshape(len(rows), -1)
        return None

    # -- up ------------------------------------------------------------------------------------------------------------

    def receive(self, count: int, timeout: float | None) -> StepResult:
        """Return rows of whole games; what a timeout or an interrupt leaves undone, the next call goes on with."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.num_arrived < count:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            arrived, out = self._numbering.num_arrived, len(self._numbering.out)
            if (self._due or self._anew) and (not out or (self._batched and not arrived)):
                self._play_on()
                continue
            # Together, so that one call of a policy does for all; with batch_size, as they come.
            wanted = max(self._k, arrived // self._k * self._k) if self._batched else out
            self._take_in(self._inner.receive(wanted, left))
            if left == 0.0 and self.num_arrived < count:
                raise WaitTimeoutError(f"{len(self._out) - self.num_arrived} rows are not complete yet; wait again")
        games = sorted(self._ready[: -(-count // self._s)])
        step = self._result([game for game in games if game not in self._failed])
        step.failures = tuple(self._failed[game] for game in games if game in self._failed)
        self.endings.note(step)
        self.endings.mark(self._own_rows([game for game in games if game in self._failed])) if step.failures else None
        self._ready = [game for game in self._ready if game not in games]
        self._out = self._out.difference(self._own_rows(games).tolist())
        for game in games:
            self._failed.pop(game, None)
        return step

    def _play_on(self) -> None:
        if self._due:
            games, ready = sorted(self._due), len(self._ready)
            self._play(games)
            self._due = []
            assert len(self._ready) > ready or len(self._numbering.out)
        if self._anew:
            rows = self._rows_of(sorted(self._anew))
            self._inner.reset(rows, [None] * len(rows), None)
            self._anew = []

    def _take_in(self, step: StepResult) -> None:
        """Add up what has come from inside, and see who is to move."""
        for error in step.failures:
            game = error.index // self._k
            if game not in self._failed:
                error.index = game * self._s
                self._has_failed(game, error)
        if not len(step.env_ids):
            return
        k = self._k
        games: IntArray = step.env_ids[::k] // k
        assert len(games) * k == len(step.env_ids), "the rows of a game come together"
        if self._seen is None:
            self._seen = batches.empty_like(step.observations, len(self._to_move))
        batches.scatter(self._seen, step.rows, step.observations)
        self._to_move[step.rows], self._alive[step.rows] = step.to_move, step.alive
        self._note_masks(step)
        begins = np.asarray(step.first.reshape(-1, k).all(axis=1))
        lost = np.asarray(step.lost.reshape(-1, k).any(axis=1))
        gone = ~step.alive.reshape(-1, k).any(axis=1)
        over: IntArray = np.flatnonzero(self._running[games] & (begins | lost | gone))
        self._returns[games] += step.raw_rewards.reshape(-1, k)
        self._add_up(step, games, self._left[games])
        for at in over.tolist():
            self._end(int(games[at]), lost=bool(lost[at]))
        self._running[games[over]] = self._left[games[over]] = False
        for game in games[begins].tolist():
            self._open(game)
        self._show(step, games, begins)
        self._sort(games)

    def _note_masks(self, step: StepResult) -> None:
        if MEMBER in step.infos:
            mask = step.infos[MEMBER]
            for at in np.flatnonzero(step.infos.get(f"_{MEMBER}", np.ones(len(mask), np.bool_))).tolist():
                self._told_masks[int(step.env_ids[at])] = mask[at]

    def _places(self, games: IntArray) -> IntArray:
        return np.asarray((np.arange(len(games))[:, None] * self._k + self.seats[games]).ravel())

    def _add_up(self, step: StepResult, games: IntArray, left: BoolArray) -> None:
        stays = np.repeat(~left, self._s)
        at, rows, row = self._places(games)[stays], self._own_rows(games)[stays], self._row
        opened = row["first"][rows]  # in this very call: what is paid from now on belongs to the next row
        for name in _SUMS:
            paid = getattr(step, name)[at]
            row[name][rows] += np.where(opened, 0.0, paid)
            self._early[name][rows] += np.where(opened, paid, 0.0)
        for name in ("terminations", "truncations", "lost", "acted", "completed", "raw_dones"):
            row[name][rows] |= getattr(step, name)[at] & ~opened
        row["live"][rows] |= step.live[at]
        cut = row["lost"][rows] & (row["terminations"][rows] | row["truncations"][rows])
        if cut.any():  # what the learner did was lost with the game
            for name in (*_SUMS, "acted", "completed"):
                row[name][rows[cut]] = 0
        ended = step.dones[at] & (step.live[at] | step.lost[at]) & ~opened
        if ended.any():
            self._keep_ends(step, at[ended], rows[ended])

    def _keep_ends(self, step: StepResult, at: IntArray, rows: IntArray) -> None:
        if self._final_obs is None:
            self._final_obs = batches.empty_like(step.observations, self._num_rows)
        batches.scatter(self._final_obs, rows, batches.take(step.terminal_observations, at))
        for place, i in zip(at.tolist(), rows.tolist(), strict=True):
            infos = step.final_infos if step.first[place] else step.infos
            self._final_infos[i] = own_copy(row_of(infos or {}, place))
            frames = step.final_frames if step.first[place] else step.frames
            if frames is not None:
                self._final_frames[i // self._s] = frames[place]

    def _end(self, game: int, *, lost: bool) -> None:
        """Note how a game ended; one that was lost, or in which the learner never moved, has no result."""
        first = game * self._s
        if self._row["first"][first]:
            self._in_vain[game] += 1
            return
        self._in_vain[game] = 0
        seats = self.seats[game].tolist()
        result = float("nan")
        if not lost:
            result = float(np.sign(self._score(self._returns[game].copy(), seats)))
            self._record(self.opponents[game], result, seats[0])
        self._results[game] = self.opponents[game], seats[0], result

    def _open(self, game: int) -> None:
        if self._in_vain[game] >= MOST_IN_VAIN:
            names = ", ".join(self._names[seat] for seat in self.seats[game])
            self._fail([game], ArgumentError(f"seat: {names} was never to move in {MOST_IN_VAIN} games in a row"))
            return
        self._returns[game] = 0.0
        self._rngs[game] = np.random.default_rng([self._seeds[game], int(self._episodes[game]), STREAM])
        self._episodes[game] += 1
        rows = self._rows_of([game]).tolist()
        self._moves.begin(rows)
        for i in self._own_rows([game]).tolist():
            for name in _SUMS:
                self._early[name][i] = 0.0
        try:
            self.opponents[game], self.seats[game] = self._draw(self._rngs[game])
        except (ArgumentError, CheckpointError) as error:
            self._fail([game], error)
            return
        self._running[game] = True

    def _show(self, step: StepResult, games: IntArray, begins: BoolArray) -> None:
        """Note what the learner sees now, maybe from another seat than before."""
        shown = np.repeat(~self._left[games], self._s)
        at, rows, row = self._places(games)[shown], self._own_rows(games)[shown], self._row
        opens = np.repeat(begins, self._s)[shown]
        row["first"][rows] |= step.first[at]
        row["raw_first"][rows] |= step.raw_first[at]
        row["live"][rows] |= opens
        if step.infos or self._infos or self._own.does_less:
            for place, i in zip(at.tolist(), rows.tolist(), strict=True):
                if step.live[place]:
                    self._infos[i] = self._info(step, place)
        if step.frames is not None:
            for place, i in zip(at.tolist(), rows.tolist(), strict=True):
                self._frames[i // self._s] = step.frames[place]

    def _info(self, step: StepResult, place: int) -> dict[str, Any]:
        info: dict[str, Any] = own_copy(row_of(step.infos, place))
        if self._own.does_less and (masks := self._masks(step.env_ids[[place]])) is not None:
            info[MEMBER] = self._own.masks(masks)[0].astype(np.int8)
        return info

    def _sort(self, games: IntArray) -> None:
        """See what each game waits for: its opponents, a reset, or the learner."""
        if self._failed:
            games = games[[game not in self._failed for game in games.tolist()]]
        rows, row, shape = self._own_rows(games), self._row, (len(games), self._s)
        inside = self.sources(rows)
        acts = (self._to_move[inside] & self._alive[inside]).reshape(shape).any(axis=1)
        ended = (row["terminations"][rows] | row["truncations"][rows]) & ~row["first"][rows]
        left = ended.reshape(shape).any(axis=1) & ~self._alive[inside].reshape(shape).any(axis=1)
        running = self._running[games]
        ready = np.where(running, acts & ~self._left[games], left)
        self._left[games] |= running & ~ready & left
        self._ready += games[ready].tolist()
        over = ~(running | ready)  # before the learner's first move
        step_begins = self._mode is Autoreset.NEXT_STEP
        self._due += games[(running & ~ready) | (over & step_begins)].tolist()
        if not step_begins:
            self._anew += games[over].tolist()

    def _result(self, games: Sequence[int]) -> StepResult:
        ids = self._own_rows(games) if len(games) < self._num_games else self._all_ids
        inside, row = self.sources(ids), self._row
        whole = ids is self._all_ids
        step = StepResult(
            env_ids=ids,
            rows=slice(None) if whole else ids,
            observations=batches.take(self._seen, inside),
            infos=columns([self._infos.get(i, {}) for i in ids.tolist()]) if self._infos else {},
            to_move=self._to_move[inside] & self._alive[inside],
            alive=self._alive[inside],
            **{name: row[name][ids] for name in (*_SUMS, *_FLAGS)},
        )
        if (at_end := step.dones & ~step.first).any():
            step.observations = batches.where(at_end, batches.take(self._final_obs, ids), step.observations)
        ended = step.dones & step.first
        if ended.any():
            step.final_obs = batches.where(ended, batches.take(self._final_obs, ids), step.observations)
            ends = zip(ids.tolist(), ended.tolist(), strict=True)
            step.final_infos = columns([self._final_infos.get(i, {}) if end else {} for i, end in ends])
        if self._frames or self._final_frames:
            of = [i // self._s for i in ids.tolist()]
            step.frames = tuple(self._frames.get(game) for game in of)
            if ended.any():
                step.final_frames = tuple(
                    self._final_frames.get(game) if end else None for game, end in zip(of, ended, strict=True)
                )
        step.observations = self._own.seen(step.observations)
        if step.final_obs is not None:
            step.final_obs = self._own.seen(step.final_obs)
        self._add_infos(step)
        return step

    def _add_infos(self, step: StepResult) -> None:
        """Add who was played in this step, from which seat, and the result of games that have ended in it."""
        games = step.env_ids // self._s
        opponents, seats = self.opponents[games], self.seats[games, 0]
        results, rated = np.zeros(len(games)), np.zeros(len(games), np.bool_)
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

    # -- saved states --------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, f"_{name}").copy() for name in _SAVED},
            "seats": self.seats.copy(),
            "opponents": [str(name) for name in self.opponents],
            "seeds": list(self._seeds),
            "rngs": [rng.bit_generator.state for rng in self._rngs],
            "seen": None if self._seen is None else batches.copy(self._seen),
            "final_obs": None if self._final_obs is None else batches.copy(self._final_obs),
            "masks": [[i, np.array(mask)] for i, mask in sorted(self._told_masks.items())],
            "early": {name: values.copy() for name, values in self._early.items()},
            "ended": self.endings.ended.copy(),
            "moves": self._moves.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        names = [fitting(name, "") for name in fitting_list(state["opponents"], self._num_games, "opponents")]
        rngs = fitting_list(state["rngs"], self._num_games, "rngs")
        seeds = [fitting(seed, 0) for seed in fitting_list(state["seeds"], self._num_games, "seeds")]
        masks = {fitting(i, 0): mask for i, mask in fitting(state["masks"], [], "masks")}
        self._moves.load(fitting(state["moves"], {}, "moves"))
        for name in _SAVED:
            put(getattr(self, f"_{name}"), state[name], name)
        put(self.seats, state["seats"], "seats")
        put(self._early, state["early"], "early")
        put(self.endings.ended, state["ended"], "ended")
        self.endings.never_reset[:] = False
        self.endings.any_ended = bool(self.endings.ended.any())
        for rng, saved in zip(self._rngs, rngs, strict=True):
            rng.bit_generator.state = saved
        self._seeds, self._told_masks = seeds, masks
        self._seen = None if state["seen"] is None else batches.copy(state["seen"])
        self._final_obs = None if state["final_obs"] is None else batches.copy(state["final_obs"])
        self.opponents[:] = names
