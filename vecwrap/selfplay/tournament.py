"""Every opponent of a pool against every other, in all seats, from fixed seeds."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector.utils import create_empty_array

from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import ArgumentError, did_you_mean
from vecwrap.pipeline.build import build
from vecwrap.pipeline.spec import PipelineSpec, as_spec
from vecwrap.rows import batch as batches
from vecwrap.rows.step_result import StepResult
from vecwrap.selfplay.leaderboard import snapshot_steps
from vecwrap.selfplay.learner_games import RNG_STREAM
from vecwrap.selfplay.moves import Moves
from vecwrap.selfplay.pool import OpponentPool, open_pool
from vecwrap.selfplay.ratings import Ratings, bradley_terry_by_seed
from vecwrap.selfplay.results import CURRENT, Results, score_of
from vecwrap.sources.import_paths import import_target
from vecwrap.tools.evaluate import progress_bar

__all__ = ["Tournament", "tournament"]

MAX_PARALLEL_GAMES = 64  # games


class Match(NamedTuple):
    """One game: a player in its seat, against an opponent in all others."""

    player: str
    opponent: str
    seat: int
    seed: int

    def who(self, seat: int) -> str:
        return self.player if seat == self.seat else self.opponent


@dataclass(frozen=True)
class Tournament:
    """What a tournament gave.

    Attributes:
        results: wins, draws and losses by pair and seat.
        ratings: a Bradley-Terry fit to them, in Elo points, whose errors are of resampling the
            seeds.
        steps: for how many steps snapshots were trained, of those whose facts say ``steps``.

    >>> results = Results()
    >>> results.record("greedy", "random", result=1)
    >>> Tournament(results, bradley_terry_by_seed([results], "random")).ladder
    ('greedy', 'random')
    """

    results: Results
    ratings: Ratings
    steps: Mapping[str, float] = field(default_factory=dict)

    @property
    def ladder(self) -> tuple[str, ...]:
        """The players, the strongest first."""
        order = np.argsort(-self.ratings.points, kind="stable")
        return tuple(self.ratings.players[i] for i in order)

    def save(self, folder: str | Path) -> tuple[Path, ...]:
        """Write ``games.csv``, ``ratings.csv``, a heat map and, for snapshots, a curve of ratings.

        The curve is over the steps that snapshots were trained for, if all of them say that; or
        else over their order.

        Args:
            folder: created if missing.

        Returns:
            The files.

        Raises:
            PlotError: they cannot be written, or there is no matplotlib (extra ``plot``); the
                tables are written then.
        """
        from vecwrap.selfplay import leaderboard
        from vecwrap.tools import plot

        folder = Path(folder)
        tables = {
            "games.csv": leaderboard.results_csv(self.results),
            "ratings.csv": leaderboard.ratings_csv(self.ratings),
        }
        for name, text in tables.items():
            leaderboard.write_csv(folder / name, text)
        pictures = {"games.png": leaderboard.heat_map(self.results, self.ladder)}
        snapshots = {name for name in self.ratings.players if name[:1].isdigit()}
        if snapshots and snapshots <= self.steps.keys():
            trained = [name for name in self.steps if name in snapshots]
            x = [self.steps[name] for name in trained]
            pictures["ratings.png"] = leaderboard.rating_curve(
                self.ratings, trained, x=x, x_label="steps"
            )
        elif snapshots:
            pictures["ratings.png"] = leaderboard.rating_curve(self.ratings)
        for name, figure in pictures.items():
            plot.save(figure, folder / name)
        return tuple(folder / name for name in (*tables, *pictures))


def tournament(
    pipeline: Any,
    pool: OpponentPool | str | os.PathLike[str] | Sequence[str],
    *,
    games: int = 20,
    seed: int = 0,
    players: Sequence[str] | None = None,
    anchor: str | None = None,
    record: tuple[str, str] | None = None,
    videos: str | Path = "videos",
    progress: bool = True,
    **changes: Any,
) -> Tournament:
    """Have every member of a pool play every other one, each in every seat, and rate them.

    Game j of each pair and seat begins with seed ``seed + j``, so that all pairs meet the same
    games, and the same call gives the same results on every backend. In games of more than two
    agents, the opponent has all other seats.

    Games from one seed resemble each other, whoever plays them, so they are not independent: the
    errors of the ratings come from resampling the seeds, each with all its games, and say how much
    the ratings would differ with other seeds. With ``games=1`` there is one seed, and no error.

    Args:
        pipeline: a ``PipelineSpec``, a file, one line, or an id; of its wrappers, those inside of
            ``opponents`` are used, or all if there is none.
        pool: an ``OpponentPool``, its folder, or a list of scripted members, such as ``["random",
            "module:function"]``.
        games: how many for each pair and seat.
        seed: of the first game of each.
        players: which members; None means all.
        anchor: whose rating is 0; None: ``random`` if it plays, else the first scripted one by
            name, else who played most.
        record: a pair of members whose first game in each seat is filmed.
        videos: the folder for that.
        progress: show a bar, if standard error is a terminal and rich is installed.
        **changes: of the pipeline, as in ``vecwrap.build``; ``n`` is how many games are played at
            once.

    Raises:
        ArgumentError: fewer than two players, no such member, a pool of another type, a policy that
            raised or moved illegally.
        PlanError: a pipeline that is not of a game.

    >>> pool = OpponentPool(None, scripted=["random", "vecwrap.selfplay.scripted:first_legal"])
    >>> played = tournament("pettingzoo:classic/tictactoe-v3", pool, games=10, backend="dummy")
    >>> played.results.rows()[0].games, played.ladder[-1]
    (10, 'random')
    """
    pool = open_pool(pool, "tournament")
    spec, score = _inside(as_spec(pipeline).override(**changes))
    names = _players(pool, players)
    _refuse_unknown(pool, record or ())
    if anchor is not None and anchor not in names:
        near = did_you_mean(anchor, names) or f" Players: {', '.join(names)[:1000]}"
        raise ArgumentError(
            f'tournament: anchor: expected one of the players, got "{anchor}".{near}'
        )
    if games < 1:
        raise ArgumentError(f"tournament: games: expected at least 1, got {games}")
    by_seed = [Results() for _ in range(games)]
    with _built(spec, games) as env:
        matches = list(_matches(names, len(env.possible_agents), games, seed))
        with progress_bar("tournament", len(matches), progress) as show:
            for number, (match, result) in enumerate(_play(env, pool, matches, score), 1):
                by_seed[match.seed - seed].record(
                    match.player, match.opponent, seat=match.seat, result=result
                )
                show(number)
    if record is not None:
        _film(spec, pool, record, seed, Path(videos))
    results = Results(row for each in by_seed for row in each.rows())
    steps = snapshot_steps({name: pool.facts(name) for name in names})
    return Tournament(results, bradley_terry_by_seed(by_seed, anchor), steps)


def _inside(spec: PipelineSpec) -> tuple[PipelineSpec, Callable[..., float]]:
    """The pipeline up to ``opponents``, and how that says who has won."""
    wrappers = list(spec.wrappers)
    score = score_of
    for i, wrapper in enumerate(wrappers):
        if wrapper.name == "opponents":
            given = wrapper.kwargs.get("result")
            if isinstance(given, str):
                score = import_target(given, "opponents: result")
            else:
                score = given or score_of
            wrappers = wrappers[:i]
            break
    return spec.override(
        wrappers=wrappers, autoreset="disabled", batch_size=None, seed=None, eval=None
    ), score


def _refuse_unknown(pool: OpponentPool, names: Sequence[str]) -> None:
    known = list(pool.members)
    if pool.current is not None:
        known.append(CURRENT)
    for name in names:
        if name not in known:
            near = did_you_mean(name, known) or f" Members: {', '.join(known)[:1000]}"
            raise ArgumentError(f'tournament: there is no member "{name}".{near}')


def _players(pool: OpponentPool, players: Sequence[str] | None) -> list[str]:
    if isinstance(players, str):
        raise ArgumentError(
            f'tournament: players: expected a list of names, got "{players}"; write ["{players}"]'
        )
    names = list(pool.members if players is None else players)
    _refuse_unknown(pool, names)
    if len(set(names)) < 2:
        raise ArgumentError(
            f"tournament: expected at least two players, got {', '.join(names) or 'none'}"
        )
    return list(dict.fromkeys(names))


def _built(spec: PipelineSpec, games: int, **changes: Any) -> VecEnv:
    """Games to be driven by their rows; no more of them than are played at once."""
    env = build(spec.override(**{"n": min(spec.n or MAX_PARALLEL_GAMES, games * 2), **changes}))
    if not env.possible_agents:
        env.close()
        raise ArgumentError(f"tournament: expected games of several agents, got {env!r}")
    return env


def _matches(names: Sequence[str], agents: int, games: int, seed: int) -> Iterator[Match]:
    pairs: Iterator[tuple[str, str]] = itertools.permutations(names, 2)
    if agents == 2:
        pairs = itertools.combinations(names, 2)
    for policy_runner, opponent in pairs:
        for seat, j in itertools.product(range(agents), range(games)):
            yield Match(policy_runner, opponent, seat, seed + j)


class _Referee(VecEnvWrapper):
    """Adds up what each row is paid."""

    def __init__(self, env: VecEnv) -> None:
        super().__init__(env)
        self.returns = np.zeros(env.num_envs)

    def on_step(self, step: StepResult) -> None:
        self.returns[step.rows] = (
            np.where(step.first, 0.0, self.returns[step.rows]) + step.raw_rewards
        )


def _play(
    env: VecEnv, pool: OpponentPool, matches: Sequence[Match], score: Callable[..., float]
) -> Iterator[tuple[Match, float]]:
    """Play all matches, several at once; yield each with the player's result."""
    referee = _Referee(env)
    k = len(env.possible_agents)
    games = env.num_envs // k
    pool.bind(env.single_observation_space, env.single_action_space, env.core.env_id, write=False)
    moves = Moves(pool, env.single_action_space, deterministic=False, where="tournament")
    waiting = iter(matches)
    free = list(range(games))
    running: dict[int, Match] = {}
    rngs = [np.random.default_rng()] * games
    actions = create_empty_array(env.single_action_space, env.num_envs)
    while True:
        if begun := dict(zip(free, waiting, strict=False)):
            running |= begun
            mask = np.zeros(env.num_envs, np.bool_)
            seeds = np.zeros(games, np.int64)
            for game, match in begun.items():
                seeds[game] = match.seed
                rngs[game] = np.random.default_rng([match.seed, RNG_STREAM])
                mask[game * k : game * k + k] = True
                moves.begin(range(game * k, game * k + k))
            options = None
            if not mask.all():
                options = {"reset_mask": mask}
            referee.reset(seed=seeds.tolist(), options=options)
        if not running:
            return
        rows = np.array([game * k + seat for game in sorted(running) for seat in range(k)])
        seen = referee.call_state.results.last_observations.all()
        masks = referee.call_state.action_masks.now()
        to_move = np.isin(np.arange(env.num_envs), rows) & env.to_move & env.alive
        mover = {i: running[i // k].who(i % k) for i in np.flatnonzero(to_move).tolist()}
        for name in sorted(set(mover.values())):
            own = np.array([i for i, who in mover.items() if who == name])
            legal = None
            if masks is not None:
                legal = masks[own]
            of_games = [rngs[i // k] for i in own.tolist()]
            batches.scatter(
                actions, own, moves.choose(name, own, batches.take(seen, own), legal, of_games)
            )
        referee.send(batches.take(actions, rows), rows)
        referee.recv()
        free = [game for game in sorted(running) if not env.alive[game * k : game * k + k].any()]
        for game in free:
            match = running.pop(game)
            yield (
                match,
                float(
                    np.sign(score(referee.returns[game * k : game * k + k].copy(), [match.seat]))
                ),
            )


def _film(
    spec: PipelineSpec, pool: OpponentPool, pair: tuple[str, str], seed: int, videos: Path
) -> None:
    policy_runner, opponent = pair
    video = {
        "video": {
            "dir": str(videos),
            "every": 1,
            "files": "each",
            "name": f"{policy_runner}-{opponent}".replace(":", "."),
        }
    }
    with _built(spec, 1, wrappers=[*spec.wrappers, video], render_mode="rgb_array", n=1) as env:
        matches = [
            Match(policy_runner, opponent, seat, seed) for seat in range(len(env.possible_agents))
        ]
        for _ in _play(env, pool, matches, score_of):
            pass
