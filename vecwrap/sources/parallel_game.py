"""Simultaneous games, PettingZoo's ``ParallelEnv``: all present agents move in a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vecwrap.errors import PlanError
from vecwrap.rows.saved import fitting
from vecwrap.sources.game import Game
from vecwrap.sources.game_env import as_reset_result, as_step_result, refuse_lacking
from vecwrap.sources.raw_rewards import NUMBERS, float_reward


class ParallelGame(Game):
    """A game in which all agents that are in it move at once."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._acting: list[tuple[Any, int]] = []  # who acts in the next step, and their seats
        # After how many moves it said of whom that they are done.
        self._reported: tuple[int, set[Any]] = (0, set())
        # Who acts in an ordinary step, and its row.
        self._uneventful_keys: list[tuple[Any, int, Callable[[Any], None]]] = []

    def step(self, action: Any = None) -> None:
        if self._uneventful:
            self._step_uneventful()
        else:
            super().step()

    def _open_game(self, result: Any) -> None:
        observations, infos = as_reset_result(result)
        self._present = list(self.env.agents)
        self._reported = 0, set(observations) - set(self._present)
        self._let_act(
            [(agent, self._seat(agent)) for agent in self._present if agent not in self._others]
        )
        for agent, seat in self._acting:
            if agent not in observations:
                refuse_lacking(agent, observations=observations)
            self._open(seat, observations[agent], (infos or {}).get(agent) or {})
            self._slots.not_to_move[self._first_row + seat] = False

    def _move(self) -> None:
        actions = self._slots.actions.get_all(self._places)
        if self._padding is not None:
            actions = [
                self._padding.cut[seat](action)
                for (_, seat), action in zip(self._acting, actions, strict=True)
            ]
        chosen = dict(zip(self._names, actions, strict=True))
        if self._others:
            everyone = {**self._others, **chosen}
            chosen = {agent: everyone[agent] for agent in self._present if agent in everyone}
        result = as_step_result(self.env.step(chosen))
        self._moves += 1
        self._write_all(*result)

    def _write_all(
        self, observations: Any, rewards: Any, terminations: Any, truncations: Any, infos: Any
    ) -> None:
        slots = self._slots
        first = self._first_row
        acting = self._acting
        changed = self._changes(terminations, truncations)
        self._uneventful = False
        self._rest()
        own = list(self._places)
        slots.acted[own] = slots.completed[own] = slots.observed[own] = True
        slots.not_to_move[own] = False
        for agent, seat in acting:
            if agent not in rewards or agent not in observations:
                refuse_lacking(agent, rewards=rewards, observations=observations)
            self._pay(first + seat, rewards[agent])
            self._write(seat, observations[agent], infos.get(agent) or {})
        if changed:
            self._go_on_without(observations, rewards, terminations, truncations, infos)
            if not self._acting:
                self._end()
                return
        elif not (self._any_frames or self.debug or self._padding or self._others):
            self._uneventful = True
            self._uneventful_keys = [
                (agent, first + seat, self._put[seat]) for agent, seat in acting
            ]
        self._write_frames()

    def _changes(self, terminations: Any, truncations: Any) -> bool:
        return (
            True in terminations.values()
            or True in truncations.values()
            or self.env.agents != self._present
        )

    def _step_uneventful(self) -> None:
        """Step an uneventful game: write only its rewards, observations and infos."""
        slots = self._slots
        paid = self._rewards
        raw = self._raw_rewards
        chosen = dict(zip(self._names, slots.actions.get_all(self._places), strict=True))
        result = self.env.step(chosen)
        observations, rewards, terminations, truncations, infos = result
        self._moves += 1
        if self._changes(terminations, truncations):
            self._write_all(*result)
            return
        for agent, row, put in self._uneventful_keys:
            try:
                reward = rewards[agent]
                observation = observations[agent]
            except KeyError:
                refuse_lacking(agent, rewards=rewards, observations=observations)
            if type(reward) in NUMBERS:
                paid[row] = raw[row] = reward
            else:
                paid[row] = raw[row] = float_reward(reward)
            info = infos.get(agent)
            if info or slots.has_infos:
                slots.put_info(row, info or {})
            put(observation)

    def _go_on_without(
        self, observations: Any, rewards: Any, terminations: Any, truncations: Any, infos: Any
    ) -> None:
        """Have agents leave that are done, and others come; one may do both in this step."""
        before = self._present
        self._present = list(self.env.agents)
        stay: list[tuple[Any, int]] = []
        for agent, seat in self._acting:
            if agent not in terminations or agent not in truncations:
                refuse_lacking(agent, terminations=terminations, truncations=truncations)
            terminated = bool(terminations[agent])
            truncated = bool(truncations[agent])
            if terminated or truncated:
                self._leave(
                    seat, terminated, truncated, observations[agent], infos.get(agent) or {}
                )
            elif agent in self._present:
                stay.append((agent, seat))
            else:
                raise PlanError(
                    f"{agent} is no longer in agents, though neither terminated nor truncated: "
                    "expected one of the two in the step in which it leaves"
                )
        flags = {
            agent: (bool(terminations.get(agent)), bool(truncations.get(agent)))
            for agent in terminations
        }
        done = {agent: both for agent, both in flags.items() if any(both)}
        visitors = self._visitors(done, before, observations, rewards)
        for agent in [*self._present, *visitors]:
            if agent in before or agent in self._others:
                continue
            seat = self._seat(agent)
            if agent not in observations:
                refuse_lacking(agent, observations=observations)
            row = self._first_row + seat
            info = infos.get(agent) or {}
            if agent in done:
                self._pay(row, rewards.get(agent, 0.0))
                self._leave(seat, *done[agent], observations[agent], info)
            else:
                self._join(row, rewards.get(agent, 0.0))
                self._slots.not_to_move[row] = False
                stay.append((agent, seat))
            self._write(seat, observations[agent], info)
        self._let_act(stay)

    def _known_to_be_done(self, moves: int | None = None) -> set[Any]:
        """Return the agents that the game reported as done with this move.

        Some games keep reporting agents that have left.
        """
        if self._reported[0] == (self._moves if moves is None else moves):
            return self._reported[1]
        return set()

    def _visitors(self, done: Any, before: list[Any], observations: Any, rewards: Any) -> list[Any]:
        """Return the agents that join in this step and are done at once.

        Such agents never were in ``agents``.
        """
        known = self._known_to_be_done(self._moves - 1)
        self._reported = self._moves, set(done)
        new = done.keys() - known - set(before) - set(self._present)
        return [
            agent
            for agent in self.agents
            if agent in new and agent in observations and agent in rewards
        ]

    def _let_act(self, acting: list[tuple[Any, int]]) -> None:
        self._acting = acting
        self._names = [agent for agent, _ in acting]
        rows = [self._first_row + seat for _, seat in acting]
        # A range is quicker.
        self._places: Sequence[int] = self.rows if rows == list(self.rows) else rows

    def _own_state(self) -> dict[str, Any]:
        reported = self._known_to_be_done() & self._seat_of.keys()
        return {
            "acting": [seat for _, seat in self._acting],
            "reported": sorted(self._seat_of[agent] for agent in reported),
        }

    def _load_own_state(self, state: dict[str, Any]) -> None:
        self._let_act([(self.agents[seat], seat) for seat in fitting(state["acting"], [])])
        self._reported = self._moves, {self.agents[seat] for seat in fitting(state["reported"], [])}
