"""PPO in one file, on a pipeline file: trains, saves, evaluates on a copy, films that and draws the
learning curve.

    python examples/ppo.py              # CartPole to a mean score of 475 python examples/ppo.py
    --play       # load what was saved, play and film it python examples/ppo.py --pipeline
    examples/pong.yaml --steps 10_000_000 --lr 2.5e-4 --target 18 --out runs/ppo-pong python
    examples/ppo.py --pipeline examples/spread.yaml --target -10  # three agents that share one
    policy

Proximal policy optimisation (Schulman et al., 2017) with a clipped objective and generalised
advantages (Schulman et al., 2016), for observations that are vectors or stacks of images and
actions that are discrete.
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

ROLLOUT = 128  # vector steps between two updates
EPOCHS, MINIBATCHES = 4, 4
GAMMA, LAMBDA = 0.99, 0.95
CLIP, ENTROPY, VALUE, MAX_NORM = 0.2, 0.01, 0.5, 0.5
LEARNING_RATE = 1e-3  # for CartPole; 2.5e-4 for Atari


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
        """Draw actions; give them, their log-probabilities and the values."""
        distribution, values = self(torch.as_tensor(observations))
        actions = distribution.sample()
        return actions, {"log_probs": distribution.log_prob(actions), "values": values}

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


def update(agent, optimizer, batch):
    """Some epochs of minibatches on what one rollout brought."""
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(batch[0])).chunk(MINIBATCHES):
            observations, actions, old, advantage, returns = (column[rows] for column in batch)
            distribution, values = agent(observations)
            ratio = (distribution.log_prob(actions) - old).exp()
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            policy_loss = -torch.min(
                ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage
            ).mean()
            value_loss = (values - returns).square().mean()
            loss = policy_loss + VALUE * value_loss - ENTROPY * distribution.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), MAX_NORM)
            optimizer.step()


def train(env, agent, steps, target, learning_rate):
    """Train for so many agent steps, or until the last 100 games have a mean of ``target``."""
    monitor = env.find(Monitor)
    optimizer = torch.optim.Adam(agent.parameters(), lr=learning_rate, eps=1e-5)
    updates = max(1, steps // (ROLLOUT * env.num_envs))
    start, told = time.perf_counter(), 0.0
    rollouts = vecwrap.rollouts(env, agent.act, ROLLOUT)
    for number, rollout in zip(range(1, updates + 1), rollouts, strict=False):
        optimizer.param_groups[0]["lr"] = learning_rate * (1 - (number - 1) / updates)
        better, returns = vecwrap.gae(rollout, agent.values, GAMMA, LAMBDA)
        seen, old = rollout.observations[:-1], rollout.extras["log_probs"]
        columns = map(torch.as_tensor, (seen, rollout.actions, old, better, returns))
        valid = torch.as_tensor(rollout.valid)
        update(agent, optimizer, [column[valid] for column in columns])
        score = np.mean([game.score for game in monitor.recent]) if monitor.recent else float("nan")
        seconds = time.perf_counter() - start
        enough = len(monitor.recent) == 100 and score >= target
        if seconds - told > 5 or enough or number == updates:
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pipeline", type=Path, default=Path(__file__).with_name("cartpole.yaml"))
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/ppo"),
        help="the folder for everything that is written",
    )
    parser.add_argument(
        "--steps", type=int, default=400_000, help="agent steps over all sub-environments, at most"
    )
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
    arguments = parser.parse_args()
    out = arguments.out.absolute()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(1)  # such nets are too small for more, and workers need the other cores

    if not arguments.play:
        settings = {"seed": arguments.seed, "wrappers.monitor.dir": str(out)}
        with vecwrap.load(arguments.pipeline, **settings) as env:
            print(env)
            agent = Agent(env.single_observation_space, int(env.single_action_space.n))
            train(env, agent, arguments.steps, arguments.target, arguments.lr)
            torch.save(agent.state_dict(), out / "agent.pt")
            env.save(out / "statistics.npz")
        print(f"saved: {out / 'agent.pt'}, {out / 'statistics.npz'}")
    play(arguments.pipeline, out, arguments.seed, arguments.episodes)
    draw(out)


if __name__ == "__main__":
    main()
