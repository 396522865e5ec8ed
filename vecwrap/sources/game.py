"""What PettingZoo's two kinds of games share: games of several agents, whose agents are rows.

A hand-written loop over ``env.last()`` is the measure: an agent's transition is what it saw when it
moved, its action, the sum of its rewards until it is to move again or has left, and what it then
sees. So a row is ``live`` when its agent is to move, when it leaves, and when a game begins.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from vecwrap.errors import ArgumentError, PlanError
from vecwrap.interrupts import close_quietly
from vecwrap.rows.batch import row as row_of
from vecwrap.rows.infos import detached_copy
from vecwrap.rows.saved import fitting
from vecwrap.rows.step_result import Autoreset, Frames
from vecwrap.rows.table import Slots
from vecwrap.sources.description import EnvDescription, chain_of_game, same_space
from vecwrap.sources.failure import Failure, make_failure
from vecwrap.sources.game_env import zero_of
from vecwrap.sources.own_spaces import own_spaces_of_game
from vecwrap.sources.raw_rewards import NUMBERS, float_reward
from vecwrap.sources.recreate_counter import RecreateCounter
from vecwrap.sources.returned_values import frame_of, returned_copy
from vecwrap.sources.saving import game_state, load_game_state
from vecwrap.sources.seats import ALL, Seats, agents_of, name_of
from vecwrap.sources.source import RestartState, Source


class Game(Source):
    """One game and its agents' rows of the slots.

    A subclass defines who moves, and what a move returns.
    """

    kind: ClassVar[str] = "game"
    methods: ClassVar[tuple[str, ...]] = (
        *("call", "get_attr", "set_attr", "has_attr", "is_wrapped", "state", "load_state"),
    )

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
        self._seat_spaces = seated = seats.of(env)
        self.agents = seated.agents
        self._others = seated.others
        self._padding = seated.padding
        self.observation_space = seated.observation_space
        self.action_space = seated.action_space
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
        # Rows whose agents left in this step, and their infos.
        self._left: list[tuple[int, dict[str, Any]]] = []
        self._awaited = [False] * self.num_rows  # seats whose last action's reward is not complete
        # By row, what its agent was paid where no row could have it.
        self._advance: dict[int, float] = {}
        self._frames = [Frames.NONE] * self.num_rows
        self._any_frames = False

    @property
    def unwrapped(self) -> Any:
        return self.env.unwrapped

    def describe(self) -> EnvDescription:
        metadata = {"render_modes": [], **(getattr(self.env, "metadata", None) or {})}
        mode = getattr(self.env, "render_mode", None)
        space = self.observation_space
        actions = self.action_space
        agents = tuple(map(str, self.agents))
        words = self._padding.summary if self._padding else ""
        own = self._seat_spaces.own_spaces
        return EnvDescription(
            space, actions, metadata, mode, None, self.name, "", agents, words, own
        )

    def attach(self, slots: Slots, first_row: int) -> None:
        self._slots = slots
        self._first_row = first_row
        self._at = slice(first_row, first_row + self.num_rows)
        self.rows = rows = range(first_row, first_row + self.num_rows)
        self._put = [slots.observations.putter(row) for row in rows]
        self._rewards = slots.rewards.data
        self._raw_rewards = slots.raw_rewards.data
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
        self._left.clear()
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
        """Play this environment from now on."""
        own_spaces_of_game(env, agents_of(env))
        self.env = env

    def _reset(self, seed: int | None, options: dict[str, Any] | None) -> None:
        self._over = True
        self._begin(seed, options, self._rest)

    def _rest(self) -> None:
        slots = self._slots
        at = self._at
        keeps_dones = self.mode is Autoreset.EPISODIC and not self._beginning
        slots.rest(at, keep_dones=keeps_dones)
        slots.not_to_move[at] = True
        if keeps_dones:  # but not of an agent that came back in the step in which it left
            slots.terminations[at] &= slots.left[at]
            slots.truncations[at] &= slots.left[at]
        self._forget_infos()

    def _begin(
        self, seed: int | None, options: dict[str, Any] | None, before_rows: Callable[[], None]
    ) -> None:
        if seed is None:
            seed = self._seed_of_restart
        self._seed_of_restart = None
        if self.recreate_counter is not None:
            seed = self._recreate_if_due(self.recreate_counter, seed)
        env = self.env
        self._beginning = True
        if seed is not None:
            self._seed = seed
            for space in {id(one): one for both in self._given_spaces for one in both}.values():
                space.seed(seed)
        result = env.reset(seed=seed, options=options)
        self._over = False
        self._uneventful = False
        self._episode = self._episode + 1
        self._moves = 0
        self._awaited = [False] * self.num_rows
        self._advance.clear()
        before_rows()
        slots = self._slots
        at = self._at
        slots.not_to_move[at] = slots.left[at] = slots.first[at] = True
        self._refuse_changed()
        for agent in self.agents:
            if agent not in env.agents:  # it may join later
                self._put[self._seat_of[agent]](zero_of(self.observation_space))
        self._open_game(result)
        self._write_frames()
        self._beginning = False

    def _recreate_if_due(self, counter: RecreateCounter, seed: int | None) -> int | None:
        """Recreate the game's environment if due; return the seed of the reset that follows."""
        if counter.is_due():
            episode = self._episode
            close_quietly(self.env)
            self.recreate()
            self._episode = episode
            for name, value in list(counter.attributes.items()):
                self._set_attr(name, value)
            if seed is None:
                seed = counter.seed_now(self._seed)
        counter.count_episode()
        return seed

    def _open(self, seat: int, observation: Any, info: dict[str, Any]) -> None:
        slots = self._slots
        row = self._first_row + seat
        slots.left[row] = False
        slots.first[row] = slots.observed[row] = slots.raw_first[row] = True
        self._write(seat, observation, info)

    def _join(self, row: int, reward: Any) -> None:
        """Add an agent to a running game; its observation is written afterwards.

        The agent may have been in the game before.
        """
        slots = self._slots
        # It left in this very step, and the row's reward is of the episode that ended.
        if slots.raw_dones[row]:
            self._put_final_info(
                row, next(info for left, info in reversed(self._left) if left == row)
            )
            self._advance[row] = float_reward(reward)
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
        if self._advance:  # belongs to no transition, but to the score
            self._raw_rewards[row] = paid + self._advance.pop(row, 0.0)
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
        self._left.append((row, info))

    def _end(self) -> None:
        """Nobody is left: the game is over."""
        self._over = True
        self._uneventful = False
        if self.mode is not Autoreset.SAME_STEP:
            self._write_frames()
            return
        slots = self._slots
        for row, info in self._left:
            self._put_final_info(row, info)
        wanted = [row for row, _ in self._left if self._frames[row - self._first_row] is Frames.ALL]
        if wanted:
            slots.final_frames.update(dict.fromkeys(wanted, frame_of(self.env.render)))
        self._begin(None, None, self._forget_infos)

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
        self._slots.left[self._at] = True  # one that was made anew does not know it

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
        """Infos belong to live rows alone."""
        slots = self._slots
        if slots.has_infos or slots.frames:
            for row in self.rows:
                slots.forget_info(row)

    def want_frames(self, frames: Sequence[Frames]) -> None:
        self._frames = list(frames)
        self._any_frames = any(one is not Frames.NONE for one in self._frames)
        self._uneventful = False

    def _write_frames(self) -> None:
        slots = self._slots
        if not (self._any_frames or slots.frames):
            return
        wanted = [
            row
            for row, frames in enumerate(self._frames, self._first_row)
            if frames is Frames.ALL or (frames is Frames.OPENING and slots.raw_first[row])
        ]
        if wanted:
            slots.frames.update(dict.fromkeys(wanted, frame_of(self.env.render)))
        elif slots.frames:
            for row in self.rows:
                slots.frames.pop(row, None)

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
        if method not in self.methods:
            raise ArgumentError(f"{self.name}, a game of several agents, has no {method}")
        if method == "state":
            # The game's own state is in the first row's.
            games = [self._state(), *({"env": []} for _ in rows[1:])]
            states = {
                row: game | self._state_of_row(row) for row, game in zip(rows, games, strict=True)
            }
            return states, []
        if method == "load_state":
            self._load_state(arguments[0][0])
            for row, (state, _) in zip(rows, arguments, strict=True):
                self._load_row(row, state)
            return dict.fromkeys(rows), []
        answer = getattr(self, f"_{method}")(*arguments[0])
        return {rows[0]: answer} | {row: returned_copy(answer) for row in rows[1:]}, []

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = self._attribute(name)
        if callable(result):
            result = result(*detached_copy(args), **detached_copy(kwargs))
        return returned_copy(result)

    def _get_attr(self, name: str) -> Any:
        return returned_copy(self._attribute(name))

    def _attribute(self, name: str) -> Any:
        """Return an attribute of the game, or else of its unwrapped environment.

        Not all of PettingZoo's wrappers forward attributes.
        """
        return getattr(self.env if hasattr(self.env, name) else self.env.unwrapped, name)

    def _set_attr(self, name: str, value: Any) -> None:
        if self.recreate_counter is not None:
            self.recreate_counter.note_attribute(name, value)
        chain = chain_of_game(self.env)[: 1 if name.startswith("_") else None]
        holder = next((one for one in chain if name in vars(one)), self.env.unwrapped)
        setattr(holder, name, detached_copy(value))

    def _has_attr(self, name: str) -> bool:
        return hasattr(self.env, name) or hasattr(self.env.unwrapped, name)

    def _is_wrapped(self, module: str, qualname: str) -> bool:
        kinds = (kind for holder in chain_of_game(self.env) for kind in type(holder).__mro__)
        return any((kind.__module__, kind.__qualname__) == (module, qualname) for kind in kinds)

    def _state(self) -> dict[str, Any]:
        if self._episode == 0:
            return {"env": None}
        counter = {}
        if self.recreate_counter is not None:
            counter = {"renewal": self.recreate_counter.state()}
        return {
            "env": game_state(self.env),
            "mover": 0,
            "present": list(self._present),
            "acting": [],
            "reported": [],
            **counter,
            **self._own_state(),
        }

    def _state_of_row(self, row: int) -> dict[str, Any]:
        slots = self._slots
        at = self._first_row + row
        flags = {
            "terminated": slots.terminations,
            "truncated": slots.truncations,
            "first": slots.first,
        }
        flags |= {"waits": slots.not_to_move, "gone": slots.left}
        return {
            **{name: bool(column[at]) for name, column in flags.items()},
            "over": self._over,
            "seed": self._seed,
            "seed_of_takeover": self._seed_of_restart,
            "options": None,
            "episode": self._episode,
            "steps": self._moves,
            "awaited": self._awaited[row],
            "advance": self._advance.get(at, 0.0),
            "observation": row_of(slots.observations.batch(), at),
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
        self._advance.pop(at, None)
        if paid := fitting(state["advance"], 0.0):
            self._advance[at] = paid

    def failures(
        self, rows: Sequence[int], error: BaseException, during: str, action: Any = None
    ) -> list[Failure]:
        of_row = during in ("step", "reset")
        begins = self._beginning
        if begins or during != "step":
            turn = ""
        else:
            turn = self._whose_turn()
        autoreset = during == "step" and begins
        if of_row:
            self._over = True
            self._uneventful = False
        told = replace(
            make_failure(self.index, error),
            during=during,
            action=action,
            seed=self._seed,
            episode=self._episode,
            step=self._moves,
            autoreset=autoreset,
            stepped=autoreset and self.mode is Autoreset.SAME_STEP,
            refused=isinstance(error, ArgumentError) and not of_row,
            note=(
                f"\n{turn}The other games are unharmed; reset all agents of this one before "
                "its next step."
            ),
        )
        if not of_row:
            told = replace(told, note="", step=0, episode=0)
        whose = [f", {agent} in game {self.number}, a {self.name} that" for agent in self.agents]
        return [replace(told, index=self.index + row, whole_source=whose[row]) for row in rows]

    def close(self, timeout: float = 5.0, terminate: bool = False) -> None:
        self.env.close()

    # -- restarts ----------------------------------------------------------------------------------

    def recreate(self) -> None:
        assert self._make is not None
        env = self._make()
        agents = self._seats.of(env).agents
        if agents != self.agents:
            raise PlanError(f"{self.name}: expected the agents {self.agents} again, got {agents}")
        self._set_env(env)
        self._refuse_changed()
        self._over = True
        self._beginning = False
        self._episode = 0
        self._moves = 0
        self._given_spaces = self._spaces_of_agents()
        if self.recreate_counter is not None:
            self.recreate_counter.begin()

    def restore(self, restart_states: Sequence[RestartState]) -> None:
        self._seed_of_restart = restart_states[0].seed
        for name, value in restart_states[0].attributes.items():
            self._set_attr(name, value)
        slots = self._slots
        for row, restart_state in zip(self.rows, restart_states, strict=True):
            if restart_state.resting is not None and not slots.shared:
                observation, slots.terminations[row], slots.truncations[row] = restart_state.resting
                slots.observations.put(row, observation)
        self.want_frames([takeover.frames for takeover in restart_states])
