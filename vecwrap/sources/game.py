"""What PettingZoo's two kinds of games share: games of several agents, whose agents are rows.

A hand-written loop over ``env.last()`` is the measure: an agent's transition is what it saw when it
moved, its action, the sum of its rewards until it is to move again or has left, and what it then
sees. So a row is ``observed`` when its agent is to move, when it leaves, and when a game begins.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from vecwrap.errors import ArgumentError, PlanError
from vecwrap.rows import batch as batches
from vecwrap.rows.infos import detached_copy
from vecwrap.rows.saved import fitting
from vecwrap.rows.step_result import Autoreset, Frames
from vecwrap.rows.table import Slots
from vecwrap.sources.description import EnvDescription, chain_of_game, same_space
from vecwrap.sources.env_holder import EnvHolder
from vecwrap.sources.failure import Failure, make_failure
from vecwrap.sources.game_env import zero_of
from vecwrap.sources.own_spaces import own_spaces_of_game
from vecwrap.sources.raw_rewards import NUMBERS, float_reward
from vecwrap.sources.returned_values import frame_of, returned_copy
from vecwrap.sources.saving import game_state, load_game_state
from vecwrap.sources.seats import ALL, Seats, agents_of, name_of
from vecwrap.sources.source import Source


class Game(EnvHolder, Source):
    """One game and its agents' rows; a subclass defines who moves, and what a move returns."""

    kind: ClassVar[str] = "game"

    def __init__(
        self,
        env: Any,
        number: int,
        mode: Autoreset,
        make: Callable[[], Any] | None = None,
        seats: Seats = ALL,
    ) -> None:
        self._make = make
        self.number = number
        self.mode = mode
        self._set_env(env)
        self.name = name_of(env)
        self._seats = seats
        self._seat_spaces = seat_spaces = seats.of(env)
        self.agents = seat_spaces.agents
        self._others = seat_spaces.others
        self._padding = seat_spaces.padding
        self.observation_space = seat_spaces.observation_space
        self.action_space = seat_spaces.action_space
        self.num_rows = len(self.agents)
        self._seat_of = {agent: seat for seat, agent in enumerate(self.agents)}
        self._given_spaces = self._spaces_of_agents()
        self._over = True  # no running game
        self._present: list[Any] = []  # what the environment's ``agents`` were
        # Whether an ordinary step changes nothing but rewards, observations and infos.
        self._uneventful = False
        self._seed: int | None = None
        self._episode = 0
        self._moves = 0
        self._beginning = False  # whether the environment is being reset
        self._seed_of_restart: int | None = None
        # By row, the last info of an agent that left in this step.
        self._last_infos: dict[int, dict[str, Any]] = {}
        self._awaited = [False] * self.num_rows  # seats whose last action's reward is not complete
        # By row, what its agent was paid where no row could have it.
        self._advances: dict[int, float] = {}
        self._frames = [Frames.NONE] * self.num_rows
        self._any_frames = False

    def describe(self) -> EnvDescription:
        return EnvDescription(
            self.observation_space,
            self.action_space,
            {"render_modes": [], **(getattr(self.env, "metadata", None) or {})},
            getattr(self.env, "render_mode", None),
            spec=None,
            name=self.name,
            agents=tuple(map(str, self.agents)),
            padding=self._padding.summary if self._padding else "",
            own_spaces=self._seat_spaces.own_spaces,
        )

    def attach(self, slots: Slots, first_row: int) -> None:
        self._slots = slots
        self._first_row = first_row
        self._row_slice = slice(first_row, first_row + self.num_rows)
        self.rows = rows = range(first_row, first_row + self.num_rows)
        self._put = [slots.observations.putter(row) for row in rows]
        self._rewards: Any = slots.rewards.data
        self._raw_rewards: Any = slots.raw_rewards.data
        self._put_final = [slots.final_observations.putter(row) for row in rows]
        self._uneventful = False

    def envs(self) -> list[Any]:
        return [self.env] * self.num_rows

    # -- rows --------------------------------------------------------------------------------------

    def reset(
        self, rows: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        assert len(rows) == self.num_rows, "PendingRows refuses parts of a game"
        self._reset(seeds[0], detached_copy(options))

    def step(self, action: Any = None) -> None:
        """Let those move whose turn it is; then write all rows."""
        self._last_infos.clear()
        if self._over:
            self._step_after_end()
        else:
            self._move()

    @abstractmethod
    def _move(self) -> None:
        """Step a running game."""

    @abstractmethod
    def _open_game(self, result: Any) -> None:
        """Write the rows of agents in a new game; ``result`` is the return value of its reset."""

    @abstractmethod
    def _own_state(self) -> dict[str, Any]:
        """Return what is to be saved of who moves."""

    @abstractmethod
    def _load_own_state(self, state: dict[str, Any]) -> None:
        """Load what ``_own_state`` returned."""

    def _whose_turn(self) -> str:
        """Say whose move has failed, if one agent moves alone."""
        return ""

    def _set_env(self, env: Any) -> None:
        own_spaces_of_game(env, agents_of(env))
        self.env = env

    def _reset(self, seed: int | None, options: dict[str, Any] | None) -> None:
        self._over = True
        result = self._reset_env(seed, options)
        self._slots.rest(self._row_slice)
        self._write_new_game(result)

    def _rest(self) -> None:
        """Have nothing happen in any row, before a step writes what does."""
        slots = self._slots
        rows = self._row_slice
        keeps_dones = self.mode is Autoreset.EPISODIC
        slots.rest(rows, keep_dones=keeps_dones)
        slots.not_to_move[rows] = True
        if keeps_dones:  # but not of an agent that came back in the step in which it left
            slots.terminations[rows] &= slots.left[rows]
            slots.truncations[rows] &= slots.left[rows]
        self._forget_infos()

    def _reset_env(self, seed: int | None, options: dict[str, Any] | None) -> Any:
        """Reset the environment, without any row; return what its reset returned."""
        if seed is None:
            seed = self._seed_of_restart
        self._seed_of_restart = None
        if self.recreate_counter is not None:
            seed = self._recreate_if_due(self.recreate_counter, seed)
        self._beginning = True
        if seed is not None:
            self._seed = seed
            for space in {
                id(space): space for pair in self._given_spaces for space in pair
            }.values():
                space.seed(seed)
        result = self.env.reset(seed=seed, options=options)
        self._over = False
        self._uneventful = False
        self._episode += 1
        self._moves = 0
        self._awaited = [False] * self.num_rows
        self._advances.clear()
        return result

    def _write_new_game(self, result: Any) -> None:
        """Write all rows of a game that has begun; ``result`` is that of its reset."""
        slots = self._slots
        rows = self._row_slice
        self._forget_infos()
        slots.not_to_move[rows] = slots.left[rows] = slots.first[rows] = True
        self._refuse_changed()
        for put, agent in zip(self._put, self.agents, strict=True):
            if agent not in self.env.agents:  # it may join later
                put(zero_of(self.observation_space))
        self._open_game(result)
        self._write_frames()
        self._beginning = False

    def _open(self, seat: int, observation: Any, info: dict[str, Any]) -> None:
        slots = self._slots
        row = self._first_row + seat
        slots.left[row] = False
        slots.first[row] = slots.observed[row] = slots.raw_first[row] = True
        self._write(seat, observation, info)

    def _join(self, row: int, reward: Any) -> None:
        """Add an agent to a running game, maybe again; its observation is written afterwards."""
        slots = self._slots
        if slots.raw_dones[row]:  # it left in this very step, which the row's reward is of
            self._put_final_info(row, self._last_infos[row])
            self._advances[row] = float_reward(reward)
        else:
            slots.terminations[row] = slots.truncations[row] = False
            self._pay(row, reward)
        slots.left[row] = False
        slots.first[row] = slots.observed[row] = slots.raw_first[row] = True

    def _pay(self, row: int, reward: Any) -> None:
        if type(reward) in NUMBERS:
            paid = reward
        else:
            paid = float_reward(reward)
        self._rewards[row] = self._raw_rewards[row] = paid
        if self._advances:  # belongs to no transition, but to the score
            self._raw_rewards[row] = paid + self._advances.pop(row, 0.0)
        self._slots.observed[row] = True

    def _leave(
        self, seat: int, terminated: bool, truncated: bool, observation: Any, info: dict[str, Any]
    ) -> None:
        slots = self._slots
        row = self._first_row + seat
        slots.terminations[row] = terminated
        slots.truncations[row] = truncated
        slots.raw_dones[row] = slots.left[row] = slots.not_to_move[row] = True
        if self._padding is not None:
            observation = self._padding.fit[seat](observation)
        self._put_final[seat](observation)  # another episode may open in this very step
        self._last_infos[row] = info

    def _end(self) -> None:
        """Nobody is left: the game is over."""
        self._over = True
        if self.mode is not Autoreset.SAME_STEP:
            self._write_frames()
            return
        slots = self._slots
        for row, info in self._last_infos.items():
            self._put_final_info(row, info)
        wanted = [
            row for row in self._last_infos if self._frames[row - self._first_row] is Frames.ALL
        ]
        if wanted:
            slots.final_frames.update(dict.fromkeys(wanted, frame_of(self.env.render)))
        result = self._reset_env(None, None)
        self._write_new_game(result)

    def _put_final_info(self, row: int, info: dict[str, Any]) -> None:
        self._slots.forget_final_info(row)
        if info or self._slots.has_infos:
            self._slots.put_final_info(row, info)

    def _step_after_end(self) -> None:
        if self.mode is Autoreset.NEXT_STEP:
            self._reset(None, None)
            return
        assert self.mode is Autoreset.EPISODIC, "PendingRows refuses to step an ended game"
        self._rest()
        self._slots.left[self._row_slice] = True  # a recreated game has not set it

    # -- parts of rows -----------------------------------------------------------------------------

    def _write(self, seat: int, observation: Any, info: dict[str, Any]) -> None:
        slots = self._slots
        if self._padding is not None:
            info = self._padding.info(seat, observation, info)
            observation = self._padding.fit[seat](observation)
        if self.debug and not self.observation_space.contains(observation):
            raise ValueError(
                f"{self.agents[seat]}: expected an observation in {self.observation_space}, got "
                f"{observation!r}"
            )
        if info or slots.has_infos:
            slots.put_info(self._first_row + seat, info)
        self._put[seat](observation)

    def _forget_infos(self) -> None:
        """Infos belong to observed rows alone."""
        slots = self._slots
        if slots.has_infos or slots.frames:
            for row in self.rows:
                slots.forget_info(row)

    def want_frames(self, frames: Sequence[Frames]) -> None:
        self._frames = list(frames)
        self._any_frames = any(wanted is not Frames.NONE for wanted in frames)
        self._uneventful = False

    def _write_frames(self) -> None:
        if not self._any_frames:
            return
        slots = self._slots
        wanted = [
            row
            for row, frames in zip(self.rows, self._frames, strict=True)
            if frames is Frames.ALL or (frames is Frames.OPENING and slots.raw_first[row])
        ]
        if wanted:
            slots.frames.update(dict.fromkeys(wanted, frame_of(self.env.render)))

    def _spaces_of_agents(self) -> list[tuple[Any, Any]]:
        return [
            (self.env.observation_space(agent), self.env.action_space(agent))
            for agent in self.agents
        ]

    def _seat(self, agent: Any) -> int:
        try:
            return self._seat_of[agent]
        except (KeyError, TypeError):
            raise PlanError(
                f"expected an agent of possible_agents ({', '.join(map(str, self.agents))}), got "
                f"{agent!r}"
            ) from None

    def _refuse_changed(self) -> None:
        for agent, (observations, actions) in zip(self.agents, self._given_spaces, strict=True):
            for what, before in (("observation_space", observations), ("action_space", actions)):
                now = getattr(self.env, what)(agent)
                if not same_space(now, before):
                    raise PlanError(
                        f"{agent}: expected the {what} that it had when the vector was built, "
                        f"{before}, got {now}; a vector has one for all, so give the largest one "
                        "from the start"
                    )

    # -- calls -------------------------------------------------------------------------------------

    def call(
        self, method: str, rows: Sequence[int], arguments: Sequence[tuple[Any, ...]]
    ) -> tuple[dict[int, Any], list[Failure]]:
        """Do it once for all of these rows: their arguments are equal, or parts of one state."""
        if method == "state":
            # The first row's holds the state of the game, too.
            states = {row: {"env": []} | self._state_of_row(row) for row in rows[1:]}
            return {rows[0]: self._state() | self._state_of_row(rows[0]), **states}, []
        if method == "load_state":
            self._load_state(arguments[0][0])
            for row, (state, _) in zip(rows, arguments, strict=True):
                self._load_row(row, state)
            return dict.fromkeys(rows), []
        if method not in ("call", "get_attr", "set_attr", "has_attr", "is_wrapped"):
            raise ArgumentError(f"{self.name}, a game of several agents, has no {method}")
        value = self.answer(method, arguments[0])
        return {rows[0]: value} | {row: returned_copy(value) for row in rows[1:]}, []

    def _chain(self) -> list[Any]:
        return chain_of_game(self.env)

    def _attribute(self, name: str) -> Any:
        # Not all of PettingZoo's wrappers forward attributes.
        return getattr(self.env if hasattr(self.env, name) else self.env.unwrapped, name)

    def _holder_of(self, name: str) -> Any:
        chain = chain_of_game(self.env)
        if name.startswith("_"):  # PettingZoo's wrappers do not forward private attributes
            chain = chain[:1]
        return next((wrapper for wrapper in chain if name in vars(wrapper)), self.env.unwrapped)

    def _has_attr(self, name: str) -> bool:
        return hasattr(self.env, name) or hasattr(self.env.unwrapped, name)

    def _state(self) -> dict[str, Any]:
        if self._episode == 0:
            return {"env": None}
        return {
            "env": game_state(self.env),
            "mover": 0,
            "present": list(self._present),
            "acting": [],
            "reported": [],
            **self._counter_state(),
            **self._own_state(),
        }

    def _state_of_row(self, row: int) -> dict[str, Any]:
        slots = self._slots
        at = self._first_row + row
        return {
            "terminated": bool(slots.terminations[at]),
            "truncated": bool(slots.truncations[at]),
            "first": bool(slots.first[at]),
            "waits": bool(slots.not_to_move[at]),
            "gone": bool(slots.left[at]),
            "over": self._over,
            "seed": self._seed,
            "seed_of_takeover": self._seed_of_restart,
            "options": None,
            "episode": self._episode,
            "steps": self._moves,
            "awaited": self._awaited[row],
            "advance": self._advances.get(at, 0.0),
            "observation": batches.row(slots.observations.batch(), at),
        }

    def _load_state(self, state: dict[str, Any]) -> None:
        if state["env"] is None:
            self._over = True
            self._episode = 0
            return
        # Make what a game makes at its first reset; the state then replaces it.
        if self._episode == 0:
            self.env.reset()
        load_game_state(self.env, state["env"])
        self._over = state["over"]
        self._seed = state["seed"]
        self._seed_of_restart = state["seed_of_takeover"]
        self._episode = state["episode"]
        self._moves = state["steps"]
        self._present = list(fitting(state["present"], []))
        self._uneventful = False
        self._load_own_state(state)
        if self.recreate_counter is not None:
            self.recreate_counter.load(state.get("renewal"))

    def _load_row(self, row: int, state: dict[str, Any]) -> None:
        slots = self._slots
        at = self._first_row + row
        slots.terminations[at] = state["terminated"]
        slots.truncations[at] = state["truncated"]
        slots.first[at] = state["first"]
        slots.not_to_move[at] = state["waits"]
        slots.left[at] = state["gone"]
        slots.observations.put(at, state["observation"])
        self._awaited[row] = fitting(state["awaited"], False)
        self._advances.pop(at, None)
        if paid := fitting(state["advance"], 0.0):
            self._advances[at] = paid

    def failures(
        self, rows: Sequence[int], error: BaseException, during: str, action: Any = None
    ) -> list[Failure]:
        failure = replace(
            make_failure(self.index, error), during=during, action=action, seed=self._seed
        )
        if during in ("step", "reset"):
            failure = self._end_by(failure)
        elif isinstance(error, ArgumentError):
            failure = replace(failure, refused=True)
        return [
            replace(
                failure,
                index=self.index + row,
                whole_source=f", {self.agents[row]} in game {self.number}, a {self.name} that",
            )
            for row in rows
        ]

    def _end_by(self, failure: Failure) -> Failure:
        """End the game, which has failed; return the failure with where in the game it happened."""
        self._over = True
        self._uneventful = False
        autoreset = failure.during == "step" and self._beginning
        turn = ""
        if failure.during == "step" and not autoreset:
            turn = self._whose_turn()
        return replace(
            failure,
            episode=self._episode,
            step=self._moves,
            autoreset=autoreset,
            stepped=autoreset and self.mode is Autoreset.SAME_STEP,
            note=(
                f"\n{turn}The other games are unharmed; reset all agents of this one before "
                "its next step."
            ),
        )

    # -- restarts ----------------------------------------------------------------------------------

    def recreate(self) -> None:
        self._make_env()
        self._over = True
        self._beginning = False
        self._episode = 0
        self._moves = 0
        if self.recreate_counter is not None:
            self.recreate_counter.begin()

    def _make_env(self) -> None:
        assert self._make is not None
        env = self._make()
        agents = self._seats.of(env).agents
        if agents != self.agents:
            raise PlanError(f"{self.name}: expected the agents {self.agents} again, got {agents}")
        self._set_env(env)
        self._refuse_changed()
        self._given_spaces = self._spaces_of_agents()
