"""The learner's rows of games in which opponents move the other seats, inside ``opponents``.

``vecwrap.selfplay.opponents`` is the wrapper around these rows.

One step of the learner is one or more steps inside. What these paid and reported is added up here,
row by row, until the learner is to move again or its episode has ended; then the row is ready.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium.vector.utils import create_empty_array

from vecwrap.env.row_protocol import NeedsReset
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import (
    ArgumentError,
    CheckpointError,
    SubEnvError,
    WaitTimeoutError,
    kind_of,
    text_of,
)
from vecwrap.rows import batch as batches
from vecwrap.rows.batch import Batch
from vecwrap.rows.infos import columns, row_of, take_columns
from vecwrap.rows.saved import fitting, fitting_list, is_plain, put
from vecwrap.rows.step_result import Autoreset, IntArray, StepResult
from vecwrap.selfplay.learner_games import FLAGS, SUMS, Draw, LearnerGames, Score
from vecwrap.selfplay.moves import IllegalMoveError, Moves, SeatAdapter

MAX_UNPLAYED = 100  # games in a row that may end before the learner's first move within one step
_OF_STEP = (*FLAGS, "to_move", "alive")
_SAVED_AS = {"observed": "live"}  # keys of saved states, which keep their names


class LearnerRows:
    """The rows of the learner's s seats in each of G games with k rows inside.

    ``moves`` moves the other seats.
    """

    def __init__(
        self,
        inner: VecEnv,
        seats: Sequence[int],
        moves: Moves,
        *,
        own: SeatAdapter,
        others: SeatAdapter,
        draw: Draw,
        score: Score,
        record: Callable[[str, float, int], None],
        before_step: Callable[[], None],
    ) -> None:
        core = inner.core
        num_seats = len(seats)
        self._inner_call_state = inner.call_state
        self._numbered_rows = inner.call_state.numbered_rows
        self._mode = core.autoreset
        self._batched = core.batch_size is not None
        self._k = core.rows.agents
        self._s = num_seats
        games = inner.num_envs // self._k
        self.games = LearnerGames(
            games, self._k, seats, core.slots, own=own, draw=draw, score=score, record=record
        )
        self._moves = moves
        self._before_step = before_step
        self._own = own
        self._others = others
        self.needs_reset = NeedsReset(
            games * num_seats,
            resets_on_request=self._mode is Autoreset.DISABLED,
            agents=num_seats * (num_seats > 1),
        )
        self._actions = create_empty_array(inner.single_action_space, inner.num_envs)
        # what is pending
        self._in_flight: frozenset[int] = frozenset()
        self._games_to_move: list[int] = []  # games whose opponents are to move
        self._games_to_reset: list[
            int
        ] = []  # games to be reset, because they ended before the learner's first move
        self._arrived_games: list[int] = []  # games
        self._failed: dict[int, SubEnvError] = {}  # by game
        self._held_ends: dict[
            int, StepResult
        ] = {}  # by game, how it ended for the learner, which the next step shows
        self._ends_to_show: list[int] = []  # games of which it shows that now

    # -- what others ask ---------------------------------------------------------------------------

    @property
    def in_flight(self) -> frozenset[int]:
        return self._in_flight

    @property
    def num_arrived(self) -> int:
        return len(self._arrived_games) * self._s

    def sources(self, env_ids: IntArray) -> IntArray:
        return self.games.sources(env_ids)

    def frame_rows(self, env_ids: IntArray) -> IntArray:
        """Return all rows of these games, which show the same picture.

        Which of the rows is the learner's changes.
        """
        return self.games.rows_of(np.unique(env_ids // self._s))

    # -- down --------------------------------------------------------------------------------------

    def send(self, actions: Batch, env_ids: IntArray) -> None:
        games = self._whole_games(env_ids, "env_ids")
        self._before_step()
        self._begin(games)
        batches.scatter(self._actions, self.sources(env_ids), self._own.actions(actions))
        self._guarded(
            games, lambda: self._play([game for game in games if game not in self._held_ends])
        )
        self._ends_to_show += [game for game in games if game in self._held_ends]

    def reset(
        self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        games = self._whole_games(env_ids, "reset_mask")
        for game in games:
            if game in self._held_ends:
                self.games.count_end(game, self._held_ends.pop(game))
        self.games.forget_early_rewards(games)
        self._begin(games)
        each = list(seeds[:: self._s])
        of_rows = [seed for seed in each for _ in range(self._k)]
        self._guarded(
            games,
            lambda: self._inner_call_state.rows.reset(self.games.rows_of(games), of_rows, options),
        )
        self.games.note_reset(games, each)

    def drop_all(self) -> None:
        """Drop all pending rows, since an interrupt ended the call and a reset will follow.

        The reset restarts all games.
        """
        self._in_flight = frozenset()
        self._games_to_move = []
        self._games_to_reset = []
        self._arrived_games = []
        self._failed = {}
        self._ends_to_show = []
        self.needs_reset.interrupt()

    def _begin(self, games: Sequence[int]) -> None:
        self.games.begin(games)
        self._in_flight = self._in_flight.union(self.games.own_rows(games).tolist())

    def _whole_games(self, env_ids: IntArray, what: str) -> list[int]:
        games = np.unique(env_ids // self._s)
        if len(games) * self._s != len(env_ids):
            raise ArgumentError(
                f"{what}: expected all of the learner's seats of a game or none, got "
                f"{env_ids.tolist()}"
            )
        return [int(game) for game in games]

    def _guarded(self, games: Sequence[int], send: Callable[[], None]) -> None:
        """Send; games that could not be sent are no longer pending."""
        try:
            send()
        except BaseException:
            requested = self._numbered_rows.in_flight
            gone = [
                game for game in games if requested.isdisjoint(self.games.rows_of([game]).tolist())
            ]
            self._in_flight = self._in_flight.difference(self.games.own_rows(gone).tolist())
            raise

    # -- the opponents -----------------------------------------------------------------------------

    def _play(self, games: Sequence[int]) -> None:
        """Step these games, whose opponents move if it is their turn."""
        rows = self.games.opponents_to_move(np.asarray(games, np.int64))
        names = self.games.opponents[rows // self._k]
        for name in sorted(set(names.tolist())):
            self._request_moves(name, rows[names == name])
        go = [game for game in games if game not in self._failed]
        if go:
            inside = self.games.rows_of(go)
            self._inner_call_state.rows.send(batches.take(self._actions, inside), inside)

    def _request_moves(self, name: str, rows: IntArray) -> None:
        """Have a policy move in these rows; games in which it cannot have failed."""
        observations = self._others.observations(batches.take(self.games.seen, rows))
        rngs = [self.games.rngs[i // self._k] for i in rows.tolist()]
        try:
            masks = self.games.masks(rows)
            if masks is not None:
                masks = self._others.masks(masks)
            actions = self._moves.choose(name, rows, observations, masks, rngs)
        except IllegalMoveError as error:
            self._fail(np.unique(rows[error.rows] // self._k).tolist(), error)
            return
        except Exception as error:
            self._fail(np.unique(rows // self._k).tolist(), error)
            return
        batches.scatter(self._actions, rows, self._others.actions(actions))

    def _fail(self, games: Iterable[int], error: Exception) -> None:
        """Have games end with an error of their opponent."""
        for game in games:
            failure = SubEnvError(
                (
                    f"game {game}: {text_of(error)}\nThe other games are unharmed; reset this one "
                    "before its next step."
                ),
                index=game * self._s,
                seed=self.games.seeds[game],
                episode=int(self.games.episodes[game]),
                during="step",
                kind=kind_of(error),
            )
            failure.__cause__ = error.__cause__ or error
            self._has_failed(game, failure)

    def _has_failed(self, game: int, error: SubEnvError) -> None:
        self._failed[game] = error
        self.games.running[game] = False
        if game not in self._arrived_games:
            self._arrived_games.append(game)

    # -- up ----------------------------------------------------------------------------------------

    def receive(self, count: int, timeout: float | None) -> StepResult:
        """Return rows of whole games; what a timeout leaves undone, the next call goes on with."""
        deadline = None
        if timeout is not None:
            deadline = time.monotonic() + timeout
        while self._ends_to_show:
            self._record(self._held_ends.pop(self._ends_to_show.pop()), held=True)
        while self.num_arrived < count:
            left = None
            if deadline is not None:
                left = max(0.0, deadline - time.monotonic())
            arrived = self._numbered_rows.num_arrived
            in_flight = len(self._numbered_rows.in_flight)
            if (self._games_to_move or self._games_to_reset) and (
                not in_flight or (self._batched and not arrived)
            ):
                self._play_on()
                continue
            # Together, so that one call of a policy does for all; with batch_size, as they come.
            wanted = in_flight
            if self._batched:
                wanted = max(self._k, arrived // self._k * self._k)
            self._record(self._inner_call_state.rows.receive(wanted, left))
            if left == 0.0 and self.num_arrived < count:
                raise WaitTimeoutError(
                    f"{len(self._in_flight) - self.num_arrived} rows are not complete yet; wait "
                    "again"
                )
        games = sorted(self._arrived_games[: -(-count // self._s)])
        step = self.games.result([game for game in games if game not in self._failed])
        step.failures = tuple(self._failed[game] for game in games if game in self._failed)
        self.needs_reset.update(step)
        if step.failures:
            self.needs_reset.require_reset(
                self.games.own_rows([game for game in games if game in self._failed])
            )
        self._arrived_games = [game for game in self._arrived_games if game not in games]
        self._in_flight = self._in_flight.difference(self.games.own_rows(games).tolist())
        for game in games:
            self._failed.pop(game, None)
        return step

    def _play_on(self) -> None:
        if self._games_to_move:
            games = sorted(self._games_to_move)
            ready = len(self._arrived_games)
            self._play(games)
            self._games_to_move = []
            assert len(self._arrived_games) > ready or len(self._numbered_rows.in_flight)
        if self._games_to_reset:
            rows = self.games.rows_of(sorted(self._games_to_reset))
            self._inner_call_state.rows.reset(rows, [None] * len(rows), None)
            self._games_to_reset = []

    def _record(self, step: StepResult, *, held: bool = False) -> None:
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
        for game in self.games.add(step, games, held=held).tolist():
            self._moves.begin(self.games.rows_of([game]).tolist())
            try:
                self.games.open(game)
            except (ArgumentError, CheckpointError) as error:
                self._fail([game], error)
        self.games.show(step, games)
        self._sort(games)

    # -- games that end before the learner's first move --------------------------------------------

    def _hold_back(self, step: StepResult) -> StepResult:
        """Return a result without games that have ended for the learner too often before its move.

        Their rows show now that the game has begun, and in the next step that it has ended.
        """
        k = self._k
        games: IntArray = step.env_ids[::k] // k
        near = (self.games.in_vain[games] >= MAX_UNPLAYED - 1) & self.games.opening[games]
        if not near.any():
            return step
        held = near & self.games.ends(step, games)
        for at in np.flatnonzero(held).tolist():
            game = int(games[at])
            self._held_ends[game] = self._part(step, np.arange(at * k, at * k + k))
            self._arrived_games.append(game)
        if held.any():
            return self._part(step, np.flatnonzero(np.repeat(~held, k)))
        return step

    def _part(self, step: StepResult, places: IntArray) -> StepResult:
        """Some rows of a result that has come from inside, in fresh arrays."""
        ids = step.env_ids[places]
        rows: IntArray | slice = ids
        if len(ids) == len(self.games.to_move):
            rows = slice(None)
        part = StepResult(
            env_ids=ids,
            rows=rows,
            observations=batches.take(step.observations, places),
            infos=take_columns(step.infos, places),
            **{name: getattr(step, name)[places] for name in (*SUMS, *_OF_STEP)},
        )
        if step.frames is not None:
            part.frames = tuple(step.frames[at] for at in places.tolist())
        if (part.first & part.dones).any():
            part.final_obs = batches.take(step.terminal_observations, places)
            part.final_infos = take_columns(step.final_infos or {}, places)
            if step.final_frames is not None:
                part.final_frames = tuple(step.final_frames[at] for at in places.tolist())
        return part

    def _sort(self, games: IntArray) -> None:
        """See what each game waits for: its opponents, a reset, or the learner."""
        if self._failed:
            games = games[[game not in self._failed for game in games.tolist()]]
        ready, waiting, over = self.games.sort(games)
        self._arrived_games += ready.tolist()
        self._games_to_move += waiting.tolist()
        if self._mode is Autoreset.NEXT_STEP:
            self._games_to_move += over.tolist()
        else:
            self._games_to_reset += over.tolist()

    # -- saved states ------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {
            **self.games.state(),
            "held": {
                str(game): _saved_step(step) for game, step in sorted(self._held_ends.items())
            },
            "ended": self.needs_reset.ended.copy(),
            "moves": self._moves.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        self._moves.load(fitting(state["moves"], {}, "moves"))
        self.games.load(state)
        put(self.needs_reset.ended, state["ended"], "ended")
        self.needs_reset.never_reset[:] = False
        self.needs_reset.any_ended = bool(self.needs_reset.ended.any())
        self._held_ends = {
            int(game): self._loaded_step(int(game), step)
            for game, step in state.get("held", {}).items()
        }

    def _loaded_step(self, game: int, state: dict[str, Any]) -> StepResult:
        ids = self.games.rows_of([game])
        rows: IntArray | slice = ids
        if self.games.num_games == 1:
            rows = slice(None)
        idle = np.zeros(self._k, np.bool_)
        flags = {name: fitting(state[_SAVED_AS.get(name, name)], idle, name) for name in _OF_STEP}
        step = StepResult(
            env_ids=ids,
            rows=rows,
            infos=columns(fitting_list(state["infos"], self._k, "infos")),
            final_infos=columns(fitting_list(state["final_infos"], self._k, "final_infos")),
            **{name: fitting(state[name], np.zeros(self._k), name) for name in SUMS},
            **flags,
            observations=fitting(
                state["observations"], batches.take(self.games.seen, ids), "observations"
            ),
        )
        if state["final_obs"] is not None:
            step.final_obs = fitting(state["final_obs"], step.observations, "final_obs")
        return step


def _saved_step(step: StepResult) -> dict[str, Any]:
    names = (*SUMS, *_OF_STEP, "observations", "final_obs")
    batch = {_SAVED_AS.get(name, name): getattr(step, name) for name in names}
    each = range(len(step.env_ids))
    infos = {
        name: [_saveable(row_of(getattr(step, name) or {}, at)) for at in each]
        for name in ("infos", "final_infos")
    }
    for name, one in batch.items():
        if one is not None:
            batch[name] = batches.copy(one)
    return batch | infos


def _saveable(info: dict[str, Any]) -> dict[str, Any]:
    """What of an info a file gives back as it is."""
    return {key: value for key, value in info.items() if type(key) is str and is_plain(value)}
