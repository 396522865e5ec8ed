"""The learner's rows of games whose other seats are moved by opponents: ``vecwrap.selfplay.opponents`` from below.

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
from vecwrap.rows.joined import join
from vecwrap.rows.saved import fitting, fitting_list, put
from vecwrap.rows.step_result import Autoreset, BoolArray, FloatArray, IntArray, StepResult, UnplayedGame
from vecwrap.selfplay.moves import IllegalMoveError, Moves, Side

MEMBER = "action_mask"
INFOS = ("opponent", "seat", "result")
MAX_UNPLAYED = 100  # games in a row that may end before the learner's first move within one step
STREAM = 0x0110  # of a game's own numbers, beside those that the environment draws from its seed
_SUMS = ("rewards", "raw_rewards")
_FLAGS = ("terminations", "truncations", "first", "acted", "completed", "live", "lost", "raw_dones", "raw_first")
_OF_STEP = (*_FLAGS, "to_move", "alive")
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
        before_step: Callable[[], None],
    ) -> None:
        core, num_seats = inner.core, len(seats)
        self._within = inner.face
        self._numbering = inner.face.numbering
        self._slots = core.slots
        self._mode = core.autoreset
        self._batched = core.batch_size is not None
        self._k, self._s = core.books.agents, num_seats
        self._num_games = games = inner.num_envs // self._k
        self._num_rows = n = games * num_seats
        self._names = inner.possible_agents
        self._moves, self._draw, self._score, self._record = moves, draw, score, record
        self._before_step = before_step
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
        self._in_vain = np.zeros(games, np.int64)  # games in a row that ended before the learner's first move
        self._opening = np.zeros(games, np.bool_)  # begun, and not shown to the learner yet
        self._began = np.zeros(games)  # in seconds
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
        self._unplayed: dict[int, list[UnplayedGame]] = {}  # by game, in their order
        self._earlier = np.zeros(games, np.int64)  # how many of them are of games before the running one
        # what is pending
        self._out: frozenset[int] = frozenset()
        self._due: list[int] = []  # games whose opponents are to move
        self._anew: list[int] = []  # games to be reset, because they ended before the learner's first move
        self._ready: list[int] = []  # games
        self._failed: dict[int, SubEnvError] = {}  # by game
        self._held: dict[int, StepResult] = {}  # by game, how it ended for the learner, which the next step shows
        self._due_ends: list[int] = []  # games of which it shows that now

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
        self._before_step()
        self._begin(games)
        batches.scatter(self._actions, self.sources(env_ids), self._own.done(actions))
        self._guarded(games, lambda: self._play([game for game in games if game not in self._held]))
        self._due_ends += [game for game in games if game in self._held]

    def reset(self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        games = self._whole_games(env_ids, "reset_mask")
        self._count_held([game for game in games if game in self._held])
        for early in self._early.values():
            early[env_ids] = 0.0  # of games that never come to the learner's first move
        self._begin(games)
        each = list(seeds[:: self._s])
        of_rows = [seed for seed in each for _ in range(self._k)]
        self._guarded(games, lambda: self._within.rows.reset(self._rows_of(games), of_rows, options))
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
        self._opening[games], self._earlier[games] = False, 0
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
            self._within.rows.send(batches.take(self._actions, inside), inside)

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
        while self._due_ends:
            self._take_in(self._held.pop(self._due_ends.pop()), held=True)
        while self.num_arrived < count:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            arrived, out = self._numbering.num_arrived, len(self._numbering.out)
            if (self._due or self._anew) and (not out or (self._batched and not arrived)):
                self._play_on()
                continue
            # Together, so that one call of a policy does for all; with batch_size, as they come.
            wanted = max(self._k, arrived // self._k * self._k) if self._batched else out
            self._take_in(self._within.rows.receive(wanted, left))
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
            self._within.rows.reset(rows, [None] * len(rows), None)
            self._anew = []

    def _take_in(self, step: StepResult, *, held: bool = False) -> None:
        """Add up what has come from inside, or was held back, and see who is to move."""
        for error in step.failures:
            game = error.index // self._k
            if game not in self._failed:
                error.index = game * self._s
                self._has_failed(game, error)
        if not held:
            step = self._hold_back(step)
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
        over = np.flatnonzero(self._over(step, games))
        self._returns[games] += step.raw_rewards.reshape(-1, k)
        took_part = self._add_up(step, games, self._left[games])
        if held and not took_part:
            self._show_end(step, games)
        for at in over.tolist():
            self._end(int(games[at]), lost=bool(lost[at]), absent=held and not took_part)
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

    def _over(self, step: StepResult, games: IntArray) -> BoolArray:
        """(g,) bool: which games have ended, whether or not the next one has begun."""
        first, lost, alive = (column.reshape(-1, self._k) for column in (step.first, step.lost, step.alive))
        return np.asarray(self._running[games] & (first.all(axis=1) | lost.any(axis=1) | ~alive.any(axis=1)))

    def _add_up(self, step: StepResult, games: IntArray, left: BoolArray) -> bool:
        """Add what was paid and reported to the learner's rows; whether an episode of one has ended."""
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
        ended = step.dones[at] & (step.live[at] | step.lost[at])
        played, unplayed = ended & ~opened, ended & opened
        if played.any():
            self._keep_ends(step, at[played], rows[played])
        if unplayed.any():
            self._count_unplayed(step, at[unplayed], rows[unplayed])
        return bool(ended.any())

    def _keep_ends(self, step: StepResult, at: IntArray, rows: IntArray) -> None:
        if self._final_obs is None:
            self._final_obs = batches.empty_like(step.observations, self._num_rows)
        batches.scatter(self._final_obs, rows, batches.take(step.terminal_observations, at))
        for place, i in zip(at.tolist(), rows.tolist(), strict=True):
            self._final_infos[i] = _last_info(step, place)
            frames = step.final_frames if step.first[place] else step.frames
            if frames is not None:
                self._final_frames[i // self._s] = frames[place]

    # -- games that end before the learner's first move ----------------------------------------------------------------

    def _count_unplayed(self, step: StepResult, at: IntArray, rows: IntArray) -> None:
        """Count ends of the learner's that no row shows, because it has not moved yet."""
        for place, i in zip(at.tolist(), rows.tolist(), strict=True):
            game = i // self._s
            lost = bool(step.lost[place])
            reward, raw_reward = (0.0 if lost else float(self._early[name][i]) for name in _SUMS)
            seconds = round(time.perf_counter() - self._began.item(game), 6)
            about = {"opponent": self.opponents[game], "seat": int(self.seats[game, 0])}
            one = UnplayedGame(i, reward, raw_reward, lost, seconds, {**_last_info(step, place), **about})
            self._unplayed.setdefault(game, []).append(one)
            for name in _SUMS:
                self._early[name][i] = 0.0
            self._row["raw_first"][i] = False  # the row of a team whose other agent plays on rests
            self._row["live"][i] = self._row["terminations"][i] or self._row["truncations"][i]
            self._infos.pop(i, None)

    def _hold_back(self, step: StepResult) -> StepResult:
        """Return a result without games that have ended for the learner, in vain for too long.

        Their rows show now that the game has begun, and in the next step that it has ended.
        """
        k = self._k
        games: IntArray = step.env_ids[::k] // k
        near = (self._in_vain[games] >= MAX_UNPLAYED - 1) & self._opening[games]
        if not near.any():
            return step
        own = self._places(games)
        ended = (step.dones & (step.live | step.lost))[own].reshape(-1, self._s).any(axis=1)
        leaves = ended & ~step.alive[own].reshape(-1, self._s).any(axis=1)
        held = near & (leaves | self._over(step, games))
        for at in np.flatnonzero(held).tolist():
            game = int(games[at])
            self._held[game] = self._part(step, np.arange(at * k, at * k + k))
            self._ready.append(game)
        return self._part(step, np.flatnonzero(np.repeat(~held, k))) if held.any() else step

    def _part(self, step: StepResult, places: IntArray) -> StepResult:
        return join([(step, at) for at in places.tolist()], step.env_ids[places], len(self._to_move), step)

    def _show_end(self, step: StepResult, games: IntArray) -> None:
        """Show the end of a game that the learner never joined, so that a step returns."""
        rows = self._own_rows(games)
        for name in ("terminations", "live", "raw_dones"):
            self._row[name][rows] = True
        self._keep_ends(step, self._places(games), rows)

    def _count_held(self, games: Sequence[int]) -> None:
        """Count how these games ended, before they are reset and could show it."""
        for game in games:
            step, at = self._held.pop(game), np.array([game])
            self._opening[game] = self._row["first"][self._own_rows(at)] = True
            self._earlier[game] = len(self._unplayed.get(game, ()))
            self._returns[game] += step.raw_rewards
            took_part = self._add_up(step, at, np.zeros(1, np.bool_))
            if self._over(step, at).any():
                self._end(game, lost=bool(step.lost.any()), absent=not took_part)

    # -- games ---------------------------------------------------------------------------------------------------------

    def _end(self, game: int, *, lost: bool, absent: bool = False) -> None:
        """Note how a game ended; one that was lost, or that the learner never joined, has no result."""
        unplayed = self._unplayed.get(game, [])[self._earlier[game] :]
        self._in_vain[game] = self._in_vain[game] + 1 if self._opening[game] else 0
        if self._opening[game] and not unplayed:
            return
        seats = self.seats[game].tolist()
        result = float("nan")
        if not (lost or absent):
            result = float(np.sign(self._score(self._returns[game].copy(), seats)))
            self._record(self.opponents[game], result, seats[0])
            for one in unplayed:
                one.infos["result"] = result
        if not self._opening[game]:
            self._results[game] = self.opponents[game], seats[0], result

    def _open(self, game: int) -> None:
        self._opening[game], self._began[game] = True, time.perf_counter()
        self._earlier[game] = len(self._unplayed.get(game, ()))
        self._returns[game] = 0.0
        self._rngs[game] = np.random.default_rng([self._seeds[game], int(self._episodes[game]), STREAM])
        self._episodes[game] += 1
        self._moves.begin(self._rows_of([game]).tolist())
        for early in self._early.values():
            early[self._own_rows([game])] = 0.0
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
        if self._unplayed:
            step.unplayed = tuple(one for game in games for one in self._unplayed.pop(game, ()))
        step.games_ended = (step.ended & ~step.cut_off).astype(np.int64)
        for one in step.unplayed:
            step.games_ended[np.searchsorted(ids, one.env_id)] += not one.lost
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
            "held": {str(game): _saved_step(step) for game, step in sorted(self._held.items())},
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
        self._held = {int(game): self._loaded_step(int(game), step) for game, step in state.get("held", {}).items()}
        self.opponents[:] = names

    def _loaded_step(self, game: int, state: dict[str, Any]) -> StepResult:
        rows = self._rows_of([game])
        step = StepResult(
            env_ids=rows,
            rows=rows if self._num_games > 1 else slice(None),
            infos=columns(fitting_list(state["infos"], self._k, "infos")),
            final_infos=columns(fitting_list(state["final_infos"], self._k, "final_infos")),
            **{name: fitting(state[name], np.zeros(self._k), name) for name in _SUMS},
            **{name: fitting(state[name], np.zeros(self._k, np.bool_), name) for name in _OF_STEP},
            observations=fitting(state["observations"], batches.take(self._seen, rows), "observations"),
        )
        if state["final_obs"] is not None:
            step.final_obs = fitting(state["final_obs"], step.observations, "final_obs")
        return step


def _saved_step(step: StepResult) -> dict[str, Any]:
    batch = {name: getattr(step, name) for name in (*_SUMS, *_OF_STEP, "observations", "final_obs")}
    each = range(len(step.env_ids))
    infos = {name: [_plain(row_of(getattr(step, name) or {}, at)) for at in each] for name in ("infos", "final_infos")}
    return {**{name: None if one is None else batches.copy(one) for name, one in batch.items()}, **infos}


def _plain(info: dict[str, Any]) -> dict[str, Any]:
    """What of an info a file gives back as it is."""
    kept = {key: _plain(value) if type(value) is dict else value for key, value in info.items() if type(key) is str}
    return {
        key: value
        for key, value in kept.items()
        if type(value) in (bool, int, float, str, dict, type(None))
        or isinstance(value, np.generic)
        or (type(value) is np.ndarray and not value.dtype.hasobject)
    }


def _last_info(step: StepResult, place: int) -> dict[str, Any]:
    """The last info of an agent whose episode has ended, maybe in the very step in which the next one begins."""
    infos = step.final_infos if step.first[place] else step.infos
    info: dict[str, Any] = own_copy(row_of(infos or {}, place))
    return info
