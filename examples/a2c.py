"""A2C in one file, on a pipeline file: trains, saves, evaluates on a copy, films it; or learns Pong
with different n.

    python examples/a2c.py              # CartPole to a mean score of 475 python examples/a2c.py
    --play       # load what was saved, play and film it python examples/a2c.py --pipeline
    examples/pong.yaml --n 2,4,8,16           # how does it scale? about a game each python
    examples/a2c.py --pipeline examples/pong.yaml --n 2,4,8,16 --full    # until it plays; hours

The synchronous form of asynchronous advantage actor-critic (Mnih et al., 2016): an update after
every five vector steps with five-step returns. For observations that are vectors or stacks of
images, and actions that are discrete.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import vecwrap
from vecwrap.tools import plot as plotting
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.video import Video

ROLLOUT = 5  # vector steps between two updates
GAMMA = 0.99
ENTROPY, VALUE, MAX_NORM = 0.01, 0.5, 0.5
LEARNING_RATE = 7e-4
# Of a scaling study: vector steps of each n, and agent steps of each n.
SHORT, FULL = (
    1_200,
    10_000_000,
)
WINDOWS = {  # over how many episodes a score is smoothed, and how that is drawn
    1: {"color": "#9ecae1", "linewidth": 0.5, "marker": ".", "markersize": 3, "label": "each game"},
    10: {"color": "#4292c6", "linewidth": 1.2, "label": "mean of 10"},
    100: {"color": "#08306b", "linewidth": 2.2, "label": "mean of 100"},
}


class Agent(nn.Module):
    """A policy and a value, side by side for vectors, on one convolutional net for stacks of
    images.
    """

    def __init__(self, observations, actions):
        super().__init__()
        self.images = len(observations.shape) == 3
        if self.images:
            self.eyes, width = (
                nature_cnn(observations.shape[0]).to(memory_format=torch.channels_last),
                512,
            )
            self.actor, self.critic = (
                begun(nn.Linear(width, actions), 0.01),
                begun(nn.Linear(width, 1), 1.0),
            )
        else:
            self.eyes, width = nn.Flatten(), int(np.prod(observations.shape))
            self.actor, self.critic = mlp(width, actions, 0.01), mlp(width, 1, 1.0)

    def forward(self, observations):
        """Give the distribution of actions and the values, (m,) each, of m observations."""
        observations = observations.float() / 255 if self.images else observations.float()
        seen = self.eyes(observations)
        return Categorical(logits=self.actor(seen), validate_args=False), self.critic(seen).squeeze(
            -1
        )

    @torch.no_grad()
    def act(self, observations):
        """Draw actions; give them and the values."""
        distribution, values = self(torch.as_tensor(observations))
        return distribution.sample(), {"values": values}

    @torch.no_grad()
    def best(self, observations):
        """Give the likeliest actions."""
        return self(torch.as_tensor(observations))[0].probs.argmax(-1).numpy()

    @torch.no_grad()
    def values(self, observations):
        """Give the values."""
        return self(torch.as_tensor(observations))[1]


def begun(layer, gain=2**0.5):
    """Begin with orthogonal weights and no biases."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def mlp(inputs, outputs, gain):
    return nn.Sequential(
        begun(nn.Linear(inputs, 64)),
        nn.Tanh(),
        begun(nn.Linear(64, 64)),
        nn.Tanh(),
        begun(nn.Linear(64, outputs), gain),
    )


def nature_cnn(frames):
    """The net of Mnih et al. (2015), for 84 x 84 pixels."""
    return nn.Sequential(
        begun(nn.Conv2d(frames, 32, 8, 4)),
        nn.ReLU(),
        begun(nn.Conv2d(32, 64, 4, 2)),
        nn.ReLU(),
        begun(nn.Conv2d(64, 64, 3, 1)),
        nn.ReLU(),
        nn.Flatten(),
        begun(nn.Linear(64 * 7 * 7, 512)),
        nn.ReLU(),
    )


def update(agent, optimizer, observations, actions, returns):
    """Take one step along the gradient of what one rollout brought."""
    distribution, values = agent(observations)
    advantages = returns - values.detach()
    policy_loss = -(distribution.log_prob(actions) * advantages).mean()
    value_loss = (returns - values).square().mean()
    loss = policy_loss + VALUE * value_loss - ENTROPY * distribution.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), MAX_NORM)
    optimizer.step()


def train(env, agent, steps, target, learning_rate, minutes=float("inf")):
    """Train for so many agent steps or minutes, or until the last 100 games have a mean score of
    ``target``.
    """
    monitor = env.find(Monitor)
    optimizer = torch.optim.RMSprop(agent.parameters(), lr=learning_rate, alpha=0.99, eps=1e-5)
    updates = max(1, steps // (ROLLOUT * env.num_envs))
    start, told = time.perf_counter(), 0.0
    rollouts = vecwrap.rollouts(env, agent.act, ROLLOUT)
    for number, rollout in zip(range(1, updates + 1), rollouts, strict=False):
        optimizer.param_groups[0]["lr"] = learning_rate * (1 - (number - 1) / updates)
        returns = vecwrap.nstep_returns(rollout, agent.values, None, GAMMA)
        columns = map(torch.as_tensor, (rollout.observations[:-1], rollout.actions, returns))
        valid = torch.as_tensor(rollout.valid)
        update(agent, optimizer, *(column[valid] for column in columns))
        score = np.mean([game.score for game in monitor.recent]) if monitor.recent else float("nan")
        seconds = time.perf_counter() - start
        enough = (len(monitor.recent) == 100 and score >= target) or seconds > 60 * minutes
        if seconds - told > 10 or enough or number == updates:
            told, done = seconds, f"{number * ROLLOUT * env.num_envs:,} steps"
            print(
                (
                    f"{done} in {seconds:.0f} s, {monitor.num_episodes:,} games, mean score "
                    f"{score:.1f}"
                ),
                flush=True,
            )
        if enough:
            break


def draw(out):
    """Draw the scores of training, if a game ended in it."""
    runs = plotting.read_runs([out])
    if len(runs[0].runs[0].scores):
        plotting.save(plotting.draw(runs), out / "score.png")
        print(f"curve: {out / 'score.png'}")


def play(pipeline, out, seed, episodes):
    """Load what was saved, evaluate it on an evaluation copy of the pipeline, and film the first
    game.
    """
    settings = {
        "n": 4,
        "seed": seed + 1000,
        "render_mode": "rgb_array",
        "wrappers.monitor.dir": str(out / "eval"),
    }
    film = {"video": {"dir": str(out), "name": "play", "at": [0]}}
    with vecwrap.wrap(
        vecwrap.load(pipeline, mode="eval", stats=out / "statistics.npz", **settings), [film]
    ) as env:
        agent = Agent(env.single_observation_space, int(env.single_action_space.n))
        agent.load_state_dict(torch.load(out / "agent.pt", weights_only=True))
        print(f"evaluation: {vecwrap.evaluate(env, agent.best, episodes)}")
    print(f"video: {', '.join(map(str, env.find(Video).paths)) or 'none'}")


def train_one(arguments, out, steps, **overrides):
    """Train an agent on the pipeline, and save all that it takes to play."""
    torch.manual_seed(arguments.seed)
    settings = {"seed": arguments.seed, "wrappers.monitor.dir": str(out), **overrides}
    with vecwrap.load(arguments.pipeline, **settings) as env:
        print(env)
        agent = Agent(env.single_observation_space, int(env.single_action_space.n))
        train(env, agent, steps, arguments.target, arguments.lr, arguments.minutes)
        torch.save(agent.state_dict(), out / "agent.pt")
        env.save(out / "statistics.npz")
    print(f"saved: {out / 'agent.pt'}, {out / 'statistics.npz'}")


def study(arguments, out):
    """Train an agent for each n, and draw how each learnt over steps, episodes and minutes."""
    for n in arguments.n:
        train_one(
            arguments,
            out / f"n-{n:02}",
            arguments.steps or (FULL if arguments.full else SHORT * n),
            n=n,
        )
    plotting.save(draw_study(out, arguments.n), out / "scaling.png")
    print(f"curves: {out / 'scaling.png'}")


def draw_study(out, numbers):
    """A row for each n, a column for each axis; in each the score over 1, 10 and 100 episodes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 2.6 * len(numbers)), layout="constrained")
    panels = figure.subplots(
        len(numbers), len(plotting.AXES), squeeze=False, sharey=True, sharex="col"
    )
    for row, n in zip(panels, numbers, strict=True):
        (run,) = plotting.read_runs([out / f"n-{n:02}"])
        for panel, axis in zip(row, plotting.AXES, strict=True):
            for window, line in WINDOWS.items():
                curve = plotting.curve(run, axis, window)
                if curve is not None:
                    panel.plot(curve.x, curve.mean, **line)
            panel.grid(color="#e4e4e4", linewidth=0.6)
            panel.spines[["top", "right"]].set_visible(False)
            if not len(run.runs[0].scores):
                panel.text(0.5, 0.5, "no game ended", ha="center", transform=panel.transAxes)
        row[0].set_ylabel(f"n = {n}\nscore")
    for panel, axis in zip(panels[-1], plotting.AXES, strict=True):
        panel.set_xlabel("agent steps" if axis == "steps" else axis)
    lines = {line.get_label(): line for panel in panels.flat for line in panel.lines}
    figure.legend(
        handles=list(lines.values()), loc="outside upper center", ncols=len(WINDOWS), frameon=False
    )
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pipeline", type=Path, default=Path(__file__).with_name("cartpole.yaml"))
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/a2c"),
        help="the folder for everything that is written",
    )
    parser.add_argument("--steps", type=int, help="agent steps over all sub-environments, at most")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="of training, at most")
    parser.add_argument(
        "--target",
        type=float,
        default=475,
        help="stop when the last 100 games have this mean score",
    )
    parser.add_argument("--episodes", type=int, default=100, help="how many to evaluate")
    parser.add_argument(
        "--lr", type=float, default=LEARNING_RATE, help="learning rate, which falls to 0"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--play", action="store_true", help="load what was saved instead of training"
    )
    numbers = {"type": lambda text: [int(n) for n in text.split(",")], "metavar": "N,N,..."}
    parser.add_argument(
        "--n", **numbers, help="a scaling study: one agent for each number of sub-environments"
    )
    parser.add_argument(
        "--full", action="store_true", help=f"the study in {FULL:,} agent steps for each n"
    )
    arguments = parser.parse_args()
    out = arguments.out.absolute()
    torch.set_num_threads(1)  # such nets are too small for more, and workers need the other cores
    if arguments.n:
        study(arguments, out)
        return
    if not arguments.play:
        train_one(arguments, out, arguments.steps or 1_000_000)
    play(arguments.pipeline, out, arguments.seed, arguments.episodes)
    draw(out)


if __name__ == "__main__":
    main()
