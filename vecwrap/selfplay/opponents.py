"""One row a game for the learner: the other seats are moved by opponents from a pool."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import CheckpointError, PlanError, did_you_mean, read_names
from vecwrap.rows.step_result import IntArray
from vecwrap.selfplay.learner_games import INFOS
from vecwrap.selfplay.learner_rows import LearnerRows
from vecwrap.selfplay.moves import Moves, SeatAdapter
from vecwrap.selfplay.pool import OpponentPool, open_pool
from vecwrap.selfplay.results import score_of
from vecwrap.selfplay.sampling import rule_of
from vecwrap.selfplay.scripted import RANDOM
from vecwrap.sources.description import same_space

RANDOM_SEAT = "random"


class Opponents(VecEnvWrapper):
    """Play multi-agent games from one seat; opponents from a pool move the other seats.

    The learner sees an ordinary vector environment with one row a game. In games in turns,
    opponents move until the learner is to move again, in as many steps of the games as that takes,
    and only in games in which it is not the learner's turn; in simultaneous games, all actions are
    joined into one step. Rows with the same opponent are one call of its policy. A transition of
    the learner goes from its own turn to its next one: rewards in between are added up, and the
    episode ends in it even if another's move ended the game. If another agent opens the next game,
    its first observation is the one after that move.

    When a game begins, its opponent and the learner's seat are drawn from the game's own numbers,
    which depend on its seed and on how many games it has played since; so they are the same on
    every backend and for any number of workers. One opponent plays all other seats of a game, and
    never changes within it. A game that the learner has left is played to its end at once.

    ``infos`` has the columns ``opponent`` (text), ``seat`` (int64, the learner's first) and, where
    a game ended, ``result`` (1.0, 0.0 or -1.0; absent if the game was lost with its
    sub-environment). They are about the step: in same-step mode, where the next game begins in the
    step that ended one, they are of the game that ended. A monitor around this wrapper writes all
    three.

    A game may end before the learner's first move: another agent resigns, or knocks the learner
    out. It counts in the step or reset in which it happens, and the next game follows at once:
    results, a monitor and ``evaluate`` have it, with length 0 and its reward, and
    ``infos["games_ended"]`` (int64) says how many games of a row have ended. There is no transition
    for it. After 100 such games in a row, one is shown as a game that has begun, and in the next
    step as ended (terminated, with its reward; the action is not used), so that a step returns even
    if an opponent always resigns. A game that the learner never joined is not one of its games.

    Policies are callables ``policy(observations, *, action_masks=..., rng=..., rngs=...)`` that
    declare the keywords that they use, or models with ``predict(observation, state, episode_start,
    deterministic)``. ``action_masks`` is (m, k) bool, ``rng`` a generator that is seeded from the
    games', ``rngs`` the generator of each row's game: what is drawn from ``rngs`` does not depend
    on which rows are asked together. A state is kept for each row and begins with each game.

    Agents of a game may have different spaces. If the pipeline's ``agents`` names some, these are
    the learner's seats, and the opponents have all others: each side sees and does what its own
    agents' spaces say, and the pool's members are policies for those of the other side.
    ``pool.current`` is then whoever moves them now, if it is set.

    At an episode's end:
        The terminal observation is the learner's own view; the next game may have another opponent
        and seat.

    Args:
        env: games of several agents, with the wrappers that all of them see through.
        pool: an ``OpponentPool``, its folder, or a list of scripted members, such as
            ``["random"]``.
        sample: how opponents are drawn: ``latest``, ``uniform``, ``recent:SHARE``, ``pfsp``,
            ``pfsp:POWER``, ``pfsp:even``, ``only:NAME``, or a rule.
        current: the share of games against ``pool.current``, the learner's own present policy;
            these are not rated. Until that is set, members are drawn.
        seat: the learner's: ``"random"``, an agent's name, or a list of names for a team, which is
            as many rows. By default those that the pipeline's ``agents`` names, if it does.
        result: ``result(returns, seats)``, whose sign is the learner's result; ``returns``, (k,)
            float64, are the summed rewards of all agents, ``seats`` the learner's. By default, the
            mean of its own minus the best other's.
        deterministic: passed to models with ``predict``.

    Attributes:
        pool: the ``OpponentPool``. While ``training`` is True it counts the games, if the program
            made it; its folder has them only if a training says that it is one: it sets
            ``pool.current``, or ``pool.records = True``.
        opponents: whoever plays each game now, by name; "" before the first.
        seats: (n, k) int64, the learner's seats in each game.
        sides_alike: whether the learner has the spaces of its opponents, so that its snapshots can
            be members.

    Raises:
        PlanError: these are not games, a seat is unknown, or nobody is left to move.
        CheckpointError: a pool of another game.
        SubEnvError: from steps and resets: an opponent's policy raised, or moved illegally; only
            its games have failed.

    Example:
        >>> import vecwrap
        >>> games = vecwrap.build("pettingzoo:classic/tictactoe-v3", n=2, backend="dummy")
        >>> env = Opponents(games, ["random"], seat="player_2")
        >>> observations, infos = env.reset(seed=1)
        >>> env.num_envs, infos["opponent"].tolist(), infos["seat"].tolist()
        (2, ['random', 'random'], [1, 1])
        >>> int(observations["observation"][0].sum())  # the other player has opened
        1
        >>> env.close()
    """

    path_parameters: ClassVar[frozenset[str]] = frozenset({"pool"})
    read_parameters: ClassVar[frozenset[str]] = frozenset({"pool"})
    episode_infos: ClassVar[tuple[str, ...]] = INFOS

    @staticmethod
    def has_members(pool: Any) -> bool:
        """Whether a pool has members; CheckpointError if its folder cannot be read.

        The pool is given as in the wrapper's argument.
        """
        return bool(open_pool(pool).members)

    @classmethod
    def summary(
        cls,
        pool: Any = (RANDOM,),
        *,
        seat: Any = RANDOM_SEAT,
        sample: Any = "uniform",
        current: float = 0.0,
        **_: Any,
    ) -> str:
        seats = [seat]
        if not isinstance(seat, str):
            seats = list(seat)
        named = f"the seat{'s' if len(seats) > 1 else ''} of {', '.join(seats)}"
        learner = "a seat drawn for each game" if seats == [RANDOM_SEAT] else named
        members = f"the pool {getattr(pool, 'dir', None) or pool}"
        if isinstance(pool, (list, tuple)):
            members = ", ".join(pool)
        also = ""
        if current:
            also = f"; in {current:.0%} of the games it is the learner's own policy"
        rule = getattr(sample, "__name__", sample)
        return (
            f"The learner has {learner}. One opponent of {members} ({rule}) moves the others{also}."
        )

    def __init__(
        self,
        env: VecEnv,
        pool: OpponentPool | str | Sequence[str] = (RANDOM,),
        *,
        sample: Callable[..., Any] | str = "uniform",
        current: float = 0.0,
        seat: str | Sequence[str] = RANDOM_SEAT,
        result: Callable[..., float] | None = None,
        deterministic: bool = False,
    ) -> None:
        self.pool: OpponentPool = open_pool(pool)
        self._is_the_programs = isinstance(pool, OpponentPool)
        self._has_recorded = False
        self._of_reset: list[tuple[str, float, int]] = []  # results that are not recorded yet
        super().__init__(env)
        if not env.possible_agents or env.core.rows.agents != len(env.possible_agents):
            raise PlanError(f"expected games of several agents with all of their rows, got {env!r}")
        if not 0 <= current <= 1:
            raise PlanError(f"current: expected a share from 0 to 1, got {current}")
        self._sample = sample
        self._current = current
        self._result = result
        if not isinstance(seat, str):
            seat = tuple(seat)
        self._seat: str | tuple[str, ...] = seat
        self._seats = _seats(self._seat, env.possible_agents)
        own, others = _sides(env, self._seats)
        self.sides_alike: bool = same_space(
            own.observation_space, others.observation_space
        ) and same_space(own.action_space, others.action_space)
        self.single_observation_space: spaces.Space[Any] = own.observation_space
        self.single_action_space: spaces.Space[Any] = own.action_space
        rule_of(sample, "opponents")
        self.pool.bind(
            others.observation_space,
            others.action_space,
            env.core.env_id,
            write=self.pool.is_training,
        )
        if not self.pool.members and current < 1:
            where = ""
            if self.pool.dir is not None:
                where = f" in {self.pool.dir}"
            raise PlanError(
                f"pool: expected members to play against, got an empty pool{where}; add one, such "
                "as "
                'pool.add("random"), or give pool=["random"]'
            )
        seats = self._seats or [0]
        num_seats = len(seats)
        moves = Moves(
            self.pool, others.action_space, deterministic=deterministic, where="opponents"
        )
        ways: Any = {
            "draw": self._draw,
            "score": result or score_of,
            "record": self._record,
            "before_step": self._before_step,
        }
        self._learner = LearnerRows(env, seats, moves, own=own, others=others, **ways)
        self.possible_agents: tuple[str, ...] = ()
        if num_seats > 1:
            self.possible_agents = env.possible_agents
        self._number_rows(
            self._learner,
            env.num_envs // len(env.possible_agents) * num_seats,
            rows_per_seed=num_seats,
        )
        if not self.possible_agents:
            self.row_agents: NDArray[np.str_] = np.full(self.num_envs, "")

    @property
    def opponents(self) -> tuple[str, ...]:
        return tuple(self._learner.games.opponents)

    @property
    def seats(self) -> IntArray:
        return self._learner.games.seats.copy()

    def _draw(self, rng: np.random.Generator) -> tuple[str, Sequence[int]]:
        known = self.pool.current is not None or not self.pool.members
        name = self.pool.draw(rng, self._sample, current=self._current if known else 0.0)
        # always drawn: a fixed seat changes nothing else
        seat = int(rng.integers(len(self.env.possible_agents)))
        if self._seats is None:
            return name, [seat]
        return name, self._seats

    def _record(self, opponent: str, result: float, seat: int) -> None:
        if self.training:
            self._of_reset.append((opponent, result, seat))
            self._record_all()

    def _record_all(self) -> None:
        is_training = self.pool.is_training
        if self._of_reset and (is_training or self._is_the_programs):
            self._has_recorded |= is_training
            for opponent, result, seat in self._of_reset:
                self.pool.record(opponent, result, seat=seat)
            self._of_reset.clear()

    def _before_step(self) -> None:
        """Forget the results of a reset outside of training.

        A training that begins with a reset, as in Stable-Baselines3, has declared itself by now.
        """
        self._record_all()
        self._of_reset.clear()

    def wrapper_state(self) -> dict[str, Any]:
        return self._learner.state()

    def load_wrapper_state(self, state: dict[str, Any]) -> None:
        self._learner.load(state)

    def on_close(self) -> None:
        if self._has_recorded and self.pool.dir is not None and self.pool.dir.exists():
            try:
                self.pool.save()
            except CheckpointError as error:
                warnings.warn(
                    f"opponents: pool: the results could not be written: {error}",
                    RuntimeWarning,
                    stacklevel=2,
                )


def _sides(env: VecEnv, seats: Sequence[int] | None) -> tuple[SeatAdapter, SeatAdapter]:
    """Return the learner's side and its opponents' side.

    PlanError is raised if the agents' own observations can no longer be distinguished.
    """
    rows = (env.single_observation_space, env.single_action_space)
    game = env.core.description
    each = game.own_spaces
    if not each:
        return SeatAdapter(rows), SeatAdapter(rows)
    if seats is None:
        names = ", ".join(env.possible_agents)
        raise PlanError(
            f"seat: expected the learner's agents ({names}), whose spaces differ, got "
            f"{RANDOM_SEAT!r}"
        )
    if not all(map(same_space, rows, (game.observation_space, game.action_space))):
        raise PlanError(
            "expected the observations of a game whose agents have spaces of their own, "
            f"{game.observation_space}, got {rows[0]}; put wrappers that change them outside, "
            "where they are the learner's alone"
        )
    others = [pair for seat, pair in enumerate(each) if seat not in seats]
    return SeatAdapter(rows, [each[seat] for seat in seats]), SeatAdapter(rows, others)


def _seats(seat: str | tuple[str, ...], agents: tuple[str, ...]) -> list[int] | None:
    if seat == RANDOM_SEAT:
        return None
    names = [seat]
    if seat not in agents:
        names = list(read_names(seat))
    for name in names:
        if name not in agents:
            near = did_you_mean(str(name), [*agents, RANDOM_SEAT])
            raise PlanError(
                f'seat: expected "{RANDOM_SEAT}" or agents ({", ".join(agents)}), got '
                f"{name!r}.{near}"
            )
    if not names or len(set(names)) != len(names) or len(names) == len(agents):
        raise PlanError(
            "seat: expected one agent or more, each once, and one that is left for opponents, got "
            f"{names}"
        )
    return [agents.index(name) for name in agents if name in names]
