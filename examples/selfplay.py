"""Self-play in one file: masked PPO against a pool of its own past selves learns tic-tac-toe or
connect four.

    python examples/selfplay.py                         # tic-tac-toe, until no play can beat it
    python examples/selfplay.py --game connect_four
    python examples/selfplay.py --play                  # play against it in the terminal

Proximal policy optimisation (Schulman et al., 2017), in which illegal moves have probability 0
(Huang and Ontañón, 2022). Half of the games are against the present policy, the others against
snapshots of it, most often those that beat it (prioritised fictitious self-play, Vinyals et al.,
2019). In connect four, the net is built to play mirrored boards alike (van der Pol et al., 2020),
so that each game teaches its mirror image too.
"""

import argparse
import functools
import itertools
import shutil
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import vecwrap

N, ROLLOUT = 256, 8  # games at once, and vector steps between two updates
MINIBATCHES = 4
# Discounted, so that it wins soon, and does not give up a game that it is going to lose.
GAMMA, LAMBDA = (
    0.95,
    0.95,
)
CLIP, VALUE, MAX_NORM = 0.2, 0.5, 0.5
LEARNING_RATE = 4e-3
FILTERS, WIDTH = 64, 128
SNAPSHOT = 10  # updates from one snapshot to the next
WRAPPERS = ["extract_obs:observation", "transpose"]  # two planes: one's own pieces, the other's


class Game(NamedTuple):
    """What differs between the games."""

    title: str
    seats: tuple[str, str]
    rows: int
    columns: int
    moves: int
    line: int  # how many in a row win
    entropy: float  # the coefficient of its bonus
    epochs: int
    # whether the policy is symmetric: if left and right are exchanged, so are its moves, the
    # columns
    mirror: bool
    steps: int

    @property
    def env(self):
        """Its id."""
        return f"pettingzoo:classic/{self.title}-v3"


GAMES = {
    "tictactoe": Game(
        "tictactoe",
        ("player_1", "player_2"),
        3,
        3,
        moves=9,
        line=3,
        entropy=0.1,
        epochs=8,
        mirror=False,
        steps=500_000,
    ),
    "connect_four": Game(
        "connect_four",
        ("player_0", "player_1"),
        6,
        7,
        moves=7,
        line=4,
        entropy=0.3,
        epochs=4,
        mirror=True,
        steps=2_000_000,
    ),
}


class Agent(nn.Module):
    """A policy and a value on one net, whose filters see as much of the board as a line needs.

    A symmetric one averages what the net says of a board and of its mirror image. Learning from
    mirrored games instead would be wrong: their moves were drawn for the original boards, by other
    probabilities than PPO's ratios assume.
    """

    def __init__(self, game):
        super().__init__()
        windows = (game.rows - game.line + 1) * (game.columns - game.line + 1)
        self.mirror = game.mirror
        self.body = nn.Sequential(
            nn.Conv2d(2, FILTERS, game.line),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(FILTERS * windows, WIDTH),
            nn.ReLU(),
        )
        self.actor, self.critic = nn.Linear(WIDTH, game.moves), nn.Linear(WIDTH, 1)
        nn.init.orthogonal_(self.actor.weight, 0.01)  # all moves alike at first

    def forward(self, observations, masks):
        """Give the distribution of legal moves and the values, (m,) each, of m boards."""
        boards = torch.as_tensor(observations).float()
        seen = self.body(torch.cat([boards, boards.flip(-1)]) if self.mirror else boards)
        logits, values = self.actor(seen), self.critic(seen).squeeze(-1)
        if self.mirror:
            (logits, mirrored), values = logits.chunk(2), sum(values.chunk(2)) / 2
            logits = (logits + mirrored.flip(-1)) / 2
        logits = logits.masked_fill(~torch.as_tensor(masks), -1e9)
        return Categorical(logits=logits, validate_args=False), values

    @torch.no_grad()
    def sample(self, observations, *, action_masks, rng):
        """Draw moves, with numbers from a generator of NumPy."""
        return drawn(self(observations, action_masks)[0], rng)

    @torch.no_grad()
    def act(self, observations, *, action_masks, rng):
        """Draw moves; give them, their log-probabilities, the values, and what was legal."""
        distribution, values = self(observations, action_masks)
        moves = drawn(distribution, rng)
        log_probs = distribution.log_prob(torch.as_tensor(moves))
        return moves, {"log_probs": log_probs, "values": values, "masks": action_masks}

    @torch.no_grad()
    def values(self, observations):
        """Give the values."""
        return self(observations, np.ones((len(observations), self.actor.out_features), bool))[1]

    @torch.no_grad()
    def best(self, observations, *, action_masks):
        """Give the likeliest moves."""
        return self(observations, action_masks)[0].probs.argmax(-1).numpy()


def drawn(distribution, rng):
    """Draw from a distribution of torch with a generator of NumPy."""
    shares = distribution.probs.double().cumsum(-1).numpy()
    return (shares > shares[:, -1:] * rng.random((len(shares), 1))).argmax(-1)


def agent_of(arrays):
    """Make an agent from its arrays."""
    tensors = {name: torch.as_tensor(array) for name, array in arrays.items()}
    line = tensors["body.0.weight"].shape[-1]
    agent = Agent(next(game for game in GAMES.values() if game.line == line))
    agent.load_state_dict(tensors)
    return agent


def make(arrays):
    """Make an opponent from a snapshot's arrays; the pool calls it."""
    return agent_of(arrays).sample


def games(game, pool, n=N, **opponents):
    """Build games against a pool: an environment with one row a game."""
    wrappers = [*WRAPPERS, {"opponents": {"pool": pool, **opponents}}]
    return vecwrap.build(game.env, n=n, wrappers=wrappers, backend="dummy")


def against(policy):
    """Give a pool of one policy, for ``current=1.0``."""
    pool = vecwrap.OpponentPool(None)
    pool.current = policy
    return pool


def update(agent, optimizer, rollout, game):
    """Some epochs of minibatches on what one rollout brought."""
    better, returns = vecwrap.gae(rollout, agent.values, GAMMA, LAMBDA)
    masks, old = rollout.extras["masks"], rollout.extras["log_probs"]
    columns = (rollout.observations[:-1], masks, rollout.actions, better, returns, old)
    batch = [torch.as_tensor(column)[rollout.valid] for column in columns]
    for _ in range(game.epochs):
        for rows in torch.randperm(len(batch[0])).chunk(MINIBATCHES):
            observations, masks, actions, advantage, returns, old = (
                column[rows] for column in batch
            )
            distribution, values = agent(observations, masks)
            ratio = (distribution.log_prob(actions) - old).exp()
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            policy_loss = -torch.min(
                ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage
            ).mean()
            value_loss = (values - returns).square().mean()
            loss = policy_loss + VALUE * value_loss - game.entropy * distribution.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(agent.parameters(), MAX_NORM)
            if not norm.isfinite():
                raise FloatingPointError(
                    f"training: expected a finite gradient, got {norm}: lower LEARNING_RATE"
                )
            optimizer.step()


def train(env, agent, pool, game, steps, minutes, episodes, seed):
    """Train for so many agent steps or minutes, or until nobody can beat the agent."""
    rng = np.random.default_rng(seed)
    optimizer = torch.optim.Adam(agent.parameters(), lr=LEARNING_RATE, eps=1e-5)
    each = ROLLOUT * env.num_envs
    updates = max(1, steps // each)
    start = time.perf_counter()
    env.reset(seed=seed)

    def policy(observations, *, action_masks):
        return agent.act(observations, action_masks=action_masks, rng=rng)

    rollouts = vecwrap.rollouts(env, policy, ROLLOUT, reset=False)
    for number, rollout in zip(range(1, updates + 1), rollouts, strict=False):
        done = max((number - 1) / updates, (time.perf_counter() - start) / (60 * minutes))
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * max(0, 1 - done)
        update(agent, optimizer, rollout, game)
        if number % SNAPSHOT == 0 or number == updates or done >= 1:
            pool.add(agent, facts={"steps": number * each}, take_results=True)
            print(f"{number * each:,} steps in {time.perf_counter() - start:.0f} s", flush=True)
            if examine(game, agent, episodes) or done >= 1:
                break


# -- how good it is --------------------------------------------------------------------------------


def examine(game, agent, number):
    """Print how good the likeliest moves are; give whether nobody can beat them, as far as that is
    known.

    Args:
        game: which one.
        agent: who is examined.
        number: how many games of connect four against each opponent; tic-tac-toe is examined
            exactly.
    """
    if game.title == "tictactoe":
        first, second = exam(agent.best)
        print(
            f"  loses to random moves: {first:.2%} of all games when it begins, {second:.2%} when "
            "it does not"
        )
        return first == second == 0
    for title, pool in {"random moves": ["random"], "a careful player": against(careful)}.items():
        with games(game, pool, n=min(N, number), current=float(title != "random moves")) as env:
            returns = vecwrap.evaluate(env, agent.best, number, seed=0, progress=False).returns
        print(
            f"  against {title}: won {np.mean(returns > 0):.1%}, drawn {np.mean(returns == 0):.1%} "
            f"of {number} games"
        )
    return False


def lines_of(rows, columns, length):
    """All lines of cells on a board, (k, length)."""
    return np.array(
        [
            [columns * (row + i * down) + column + i * right for i in range(length)]
            for down, right in ((0, 1), (1, 0), (1, 1), (1, -1))
            for row in range(rows - (length - 1) * down)
            for column in range(columns)
            if 0 <= column + (length - 1) * right < columns
        ]
    )


THREES, FOURS = lines_of(3, 3, 3), lines_of(6, 7, 4)


def exam(policy):
    """Walk through all games of tic-tac-toe in which a deterministic policy has one seat and any
    moves the other.

    Args:
        policy: called once, with all boards on which somebody is to move.

    Returns:
        The probabilities that it loses to uniformly random moves, as the first player and as the
            second. They are 0
        only if no moves whatever can beat it.
    """
    boards, found = {}, {(0,) * 9}  # 1 for the player to move, -1 for the other
    while found:
        boards.update(dict.fromkeys(sorted(found)))
        after = {moved(board, i) for board in found for i in range(9) if not board[i]}
        found = {board for board in after if 0 in board and not lost(board)}
    cells = np.array(list(boards))
    observations = np.stack([cells == 1, cells == -1], axis=1).reshape(-1, 2, 3, 3).astype(np.int8)
    answers = dict(zip(boards, policy(observations, action_masks=cells == 0).tolist(), strict=True))

    @functools.cache
    def losing(board, its_turn):
        if lost(board):
            return float(its_turn)
        moves = (
            [answers[board]] if its_turn and 0 in board else [i for i in range(9) if not board[i]]
        )
        return (
            float(np.mean([losing(moved(board, i), not its_turn) for i in moves])) if moves else 0.0
        )

    return losing((0,) * 9, True), losing((0,) * 9, False)


def moved(board, i):
    """The board after a move, as the next player sees it."""
    return tuple(-cell for cell in (*board[:i], 1, *board[i + 1 :]))


def lost(board):
    """Whether the other player has three in a row."""
    return any(all(board[i] == -1 for i in line) for line in THREES.tolist())


def careful(observations, *, action_masks, rng):
    """Play connect four: win at once, else prevent that the other wins at once, else move at
    random.
    """
    own, other = observations.reshape(-1, 2, 42).astype(bool).swapaxes(0, 1)
    candidates = action_masks
    for urgent in (completing(other, own), completing(own, other)):
        candidates = np.where(urgent.any(1, keepdims=True), urgent, candidates)
    return (rng.random(candidates.shape) * candidates).argmax(1)


def completing(own, other):
    """(m, 7) bool: the columns in which one more piece of the first player makes four in a row."""
    free = 6 - (own | other).reshape(-1, 6, 7).sum(1)  # cells of each column
    result = np.zeros(free.shape, bool)
    for column in range(7):
        open_ones = np.flatnonzero(free[:, column])
        after = own[open_ones]
        after[np.arange(len(open_ones)), 7 * (free[open_ones, column] - 1) + column] = True
        result[open_ones, column] = after[:, FOURS].all(2).any(1)
    return result


def rate(game, pool, out):
    """Have the members of the pool play each other; print and draw their ratings."""
    played = vecwrap.tournament(game.env, pool, games=10, wrappers=WRAPPERS, backend="dummy")
    in_training = pool.ratings(anchor="random")
    print("ratings in Elo points, from a tournament | from the games of training")
    for player in played.ladder:
        steps = f"{pool.facts(player)['steps']:,} steps" if pool.facts(player) else ""
        print(
            f"  {player}: {points(played.ratings, player)} | {points(in_training, player)} | "
            f"{steps}"
        )
    print(f"tournament: {', '.join(map(str, played.save(out / 'tournament')))}")


def points(ratings, player):
    if player not in ratings.players:
        return "no games"
    i = ratings.players.index(player)
    return f"{ratings.points[i]:+.0f} ± {ratings.errors[i]:.0f}"


# -- against you -----------------------------------------------------------------------------------


def play(game, agent):
    """Play in the terminal, in both seats in turn, until Ctrl-D or Ctrl-C."""
    try:
        for seat in itertools.cycle(game.seats):
            with games(game, against(agent.best), n=1, current=1.0, seat=seat) as env:
                print(
                    f"\nyou are X and {'begin' if seat == game.seats[0] else 'move second'}; "
                    "Ctrl-D ends"
                )
                play_once(game, env)
    except (EOFError, KeyboardInterrupt):
        print()


def play_once(game, env):
    observations, _ = env.reset()
    while True:
        print(board_text(game, observations[0]))
        observations, rewards, terminations, _, infos = env.step(
            np.array([asked(env.action_masks()[0])])
        )
        if terminations[0]:
            print(board_text(game, infos["final_obs"][0]))
            print({1: "you have won", 0: "a draw", -1: "you have lost"}[int(rewards[0])])
            return


def board_text(game, observation):
    """A board as text: X is yours, O the agent's, and numbers are moves."""
    cells = ["X" if own else "O" if other else "." for own, other in observation.reshape(2, -1).T]
    if game.title == "tictactoe":
        cells = [str(i) if cell == "." else cell for i, cell in enumerate(cells)]
    else:
        cells += map(str, range(7))
    return "\n".join(" ".join(row) for row in np.reshape(cells, (-1, game.columns)))


def asked(mask):
    """Ask for a move until it is a legal one."""
    legal = {str(i): i for i in np.flatnonzero(mask).tolist()}
    while (text := input("your move: ").strip()) not in legal:
        print(f"expected one of {', '.join(legal)}")
    return legal[text]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--game", choices=list(GAMES), default="tictactoe")
    parser.add_argument(
        "--out",
        type=Path,
        help="the folder for all files, whose pool is begun anew; runs/selfplay-GAME",
    )
    parser.add_argument("--steps", type=int, help="agent steps over all games, at most")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="of training, at most")
    parser.add_argument(
        "--episodes",
        type=int,
        default=500,
        help="to examine connect four with; a fifth at each snapshot",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--play", action="store_true", help="play against what was saved instead of training"
    )
    arguments = parser.parse_args()
    game = GAMES[arguments.game]
    out = arguments.out or Path(f"runs/selfplay-{game.title}")
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(1)  # such nets are too small for more

    if arguments.play:
        if not (out / "agent.npz").exists():
            parser.error(f"{out} has no agent.npz: train one first, without --play")
        with np.load(out / "agent.npz") as arrays:
            play(game, agent_of(arrays))
        return
    shutil.rmtree(out / "pool", ignore_errors=True)
    pool = vecwrap.OpponentPool(out / "pool", make="selfplay:make", scripted=["random"], keep=20)
    with games(game, pool, sample="pfsp", current=0.5) as env:
        print(env)
        agent = Agent(game)
        pool.current = agent.sample
        steps = arguments.steps or game.steps
        train(
            env,
            agent,
            pool,
            game,
            steps,
            arguments.minutes,
            max(1, arguments.episodes // 5),
            arguments.seed,
        )
    np.savez(
        out / "agent.npz", **{key: tensor.numpy() for key, tensor in agent.state_dict().items()}
    )
    print(f"saved: {out / 'agent.npz'}, {out / 'pool'}")
    examine(game, agent, arguments.episodes)
    rate(game, pool, out)


if __name__ == "__main__":
    main()
