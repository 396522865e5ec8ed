"""Games in turns, PettingZoo's ``AECEnv``: one agent moves in a step."""

from __future__ import annotations

from typing import Any

from vecwrap.errors import PlanError
from vecwrap.rows.saved import fitting
from vecwrap.sources.game import Game
from vecwrap.sources.game_env import FastLast
from vecwrap.sources.raw_rewards import float_reward


class TurnGame(Game):
    """A game in which one agent moves at a time; whose turn it is says the game."""

    _mover = 0  # the seat whose turn it is

    def _set_env(self, env: Any) -> None:
        super()._set_env(env)
        self._turn_order = FastLast(env)

    def _open_game(self, result: Any) -> None:
        env = self.env
        while env.agent_selection in self._others:
            self._move_other()
        mover = env.agent_selection
        self._mover = self._seat(mover)
        self._present = list(env.agents)
        for agent in self._present:
            if agent != mover and agent not in self._others:
                self._open(self._seat(agent), env.observe(agent), env.infos.get(agent, {}))
        observation, reward, terminated, truncated, info = env.last()
        self._open(self._mover, observation, info)
        if terminated or truncated:  # the first step reports it, and nobody moves in that
            return
        row = self._first_row + self._mover
        self._slots.not_to_move[row] = False
        if reward:  # a reset pays nothing, and the agent's own action clears it
            self._advances[row] = float_reward(reward)

    def _move(self) -> None:
        """One turn, as a loop over ``env.last()`` takes it; agents that are done leave at once."""
        way = self._turn_order
        slots = self._slots
        row = self._first_row + self._mover
        if slots.not_to_move[row]:  # it was done when its game began
            self._rest()
        else:
            (action,) = slots.actions.get_all([row])
            if self._padding is not None:
                action = self._padding.cut[self._mover](action)
            way.play.step(action)
            self._moves += 1
            self._rest()
            slots.acted[row] = self._awaited[self._mover] = True
        state = way.state
        if state.agents != self._present:
            self._refuse_vanished()
        while state.agents:
            agent = state.agent_selection
            if agent in self._others:
                if self._seat_of.keys().isdisjoint(state.agents):
                    break
                self._move_other()
                continue
            seat = self._seat(agent)
            observation, reward, terminated, truncated, info = way.last(agent)
            row = self._first_row + seat
            done = terminated or truncated
            if slots.left[row] and not done:
                self._join(row, reward)
            else:
                self._pay(row, reward)
            if self._awaited[seat]:
                slots.completed[row] = True
                self._awaited[seat] = False
            self._write(seat, observation, info)
            if not done:
                slots.not_to_move[row] = False
                self._mover = seat
                self._write_frames()
                return
            self._leave(seat, bool(terminated), bool(truncated), observation, info)
            way.play.step(None)
            if agent in state.agents and (state.terminations[agent] or state.truncations[agent]):
                raise PlanError(
                    f"{agent} is done but stays in agents: expected step(None) to take it out, as "
                    "_was_dead_step does"
                )
            self._refuse_vanished()
        self._end()

    def _refuse_vanished(self) -> None:
        """Refuse a game in turns that takes agents out itself: nobody would see how they ended."""
        before = self._present
        self._present = list(self.env.agents)
        for agent in before:
            seat = self._seat_of.get(agent)
            if (
                agent not in self._present
                and seat is not None
                and not self._slots.left[self._first_row + seat]
            ):
                raise PlanError(
                    f"{agent} is no longer in agents, but last() has not reported its end: "
                    "expected the game to leave whoever is done in agents until step(None) takes "
                    "it out"
                )

    def _move_other(self) -> None:
        env = self.env
        agent = self.env.agent_selection
        action = self._others[agent]
        if env.terminations[agent] or env.truncations[agent]:
            action = None
        env.step(action)

    def _own_state(self) -> dict[str, Any]:
        return {"mover": self._mover}

    def _load_own_state(self, state: dict[str, Any]) -> None:
        self._mover = fitting(state["mover"], 0)

    def _whose_turn(self) -> str:
        return f"It was {self.agents[self._mover]}'s turn. "
