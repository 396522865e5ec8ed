"""A2C in one file, on a pipeline file: trains, saves, evaluates on a copy, films it; or learns Pong
with different n.

    python examples/a2c.py           # CartPole to a mean score of 475
    python examples/a2c.py --play    # load what was saved, play and film it
    python examples/a2c.py --resume  # go on where it was stopped: by Ctrl-C, SIGTERM or a crash

    python examples/a2c.py --pipeline examples/pong.yaml --n 2,4,8,16  # about a game each
    python examples/a2c.py --pipeline examples/pong.yaml --n 2,4,8,16 --full  # till it plays: hours
    python examples/a2c.py --pipeline examples/pong.yaml --play  # an agent that plays

The synchronous form of asynchronous advantage actor-critic (Mnih et al., 2016): an update after
every five vector steps with five-step returns. For observations that are vectors or stacks of
images, and actions that are discrete.
"""

import argparse
import json
import os
import signal
import time
from contextlib import contextmanager
from pathlib import Path

# PyTorch's threads would spin between two operations, on the cores that the workers need.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

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
SAVE_SECONDS = 180  # between two saves
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # SLURM can send the last in time
SHORT = 1_200  # vector steps for each n of a study: about a game
FULL = 6_000_000  # agent steps for each n of a study, at most
TARGETS = {"vectors": 475, "images": 18}  # the mean score at which training stops
KEPT = Path(__file__).parents[1] / "docs" / "data"  # agents that were trained, by pipeline
WINDOWS = {  # over how many episodes a score is smoothed, and how that is drawn
    1: {"color": "#9ecae1", "linewidth": 0.5, "marker": ".", "markersize": 3, "label": "each game"},
    10: {"color": "#4292c6", "linewidth": 1.2, "label": "mean of 10"},
    100: {"color": "#08306b", "linewidth": 2.2, "label": "mean of 100"},
}


class Agent(nn.Module):
    """A policy and a value, side by side for vectors, on one convolutional net for stacks of
    images.
    """

    def __init__(self, observations, actions, net="small"):
        super().__init__()
        self.images = len(observations.shape) == 3
        self.net = net
        if self.images:
            self.eyes, width = NETS[net](observations.shape[0])
            self.actor = begun(nn.Linear(width, actions), 0.01)
            self.critic = begun(nn.Linear(width, 1), 1.0)
        else:
            self.eyes = nn.Flatten()
            width = int(np.prod(observations.shape))
            self.actor = mlp(width, actions, 0.01)
            self.critic = mlp(width, 1, 1.0)

    def forward(self, observations):
        """Give the distribution of actions and the values, (m,) each, of m observations."""
        observations = torch.as_tensor(observations).float()
        if self.images:
            observations = observations / 255
        seen = self.eyes(observations)
        distribution = Categorical(logits=self.actor(seen), validate_args=False)
        return distribution, self.critic(seen).squeeze(-1)

    def act(self, observations):
        """Draw actions; give them and what the loss is made of, which keeps its gradients."""
        distribution, values = self(observations)
        actions = distribution.sample()
        log_probs = distribution.log_prob(actions)
        beside = {"values": values, "log_probs": log_probs, "entropy": distribution.entropy()}
        return actions, beside

    @torch.no_grad()
    def best(self, observations):
        """Give the likeliest actions."""
        return self(observations)[0].probs.argmax(-1).numpy()

    @torch.no_grad()
    def value(self, observations):
        """Give the values."""
        return self(observations)[1]


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


def small_cnn(frames):
    """The net of Mnih et al. (2013), for 84 x 84 pixels, and its width."""
    layers = [
        begun(nn.Conv2d(frames, 16, 8, 4)),
        nn.ReLU(),
        begun(nn.Conv2d(16, 32, 4, 2)),
        nn.ReLU(),
        nn.Flatten(),
        begun(nn.Linear(32 * 9 * 9, 256)),
        nn.ReLU(),
    ]
    return nn.Sequential(*layers), 256


def nature_cnn(frames):
    """The net of Mnih et al. (2015), for 84 x 84 pixels, and its width."""
    layers = [
        begun(nn.Conv2d(frames, 32, 8, 4)),
        nn.ReLU(),
        begun(nn.Conv2d(32, 64, 4, 2)),
        nn.ReLU(),
        begun(nn.Conv2d(64, 64, 3, 1)),
        nn.ReLU(),
        nn.Flatten(),
        begun(nn.Linear(64 * 7 * 7, 512)),
        nn.ReLU(),
    ]
    return nn.Sequential(*layers), 512


NETS = {"small": small_cnn, "nature": nature_cnn}


def update(agent, optimizer, rollout):
    """Take one step along the gradient of what one rollout brought."""
    returns = vecwrap.nstep_returns(rollout, agent.value, None, GAMMA)
    valid = torch.as_tensor(rollout.valid)
    returns = returns[valid]
    values = rollout.extras["values"][valid]
    log_probs = rollout.extras["log_probs"][valid]
    entropy = rollout.extras["entropy"][valid]
    policy_loss = -(log_probs * (returns - values.detach())).mean()
    value_loss = (returns - values).square().mean()
    loss = policy_loss + VALUE * value_loss - ENTROPY * entropy.mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), MAX_NORM)
    optimizer.step()


class Training:
    """An agent that learns in an environment, and can be stopped and resumed between two updates.

    A resumed training goes on bit for bit, as if it had never stopped, on the same machine; but
    games that cannot be saved (CartPole's cannot, Atari's can) begin again.
    """

    def __init__(self, env, out, net, learning_rate):
        self.env = env
        self.out = out
        self.learning_rate = learning_rate
        self.agent = Agent(env.single_observation_space, int(env.single_action_space.n), net)
        self.optimizer = torch.optim.RMSprop(
            self.agent.parameters(), lr=learning_rate, alpha=0.99, eps=1e-5
        )
        self.monitor = env.find(Monitor)
        self.updates = 0
        self.seconds = 0.0  # of training, in all sittings
        self.resets = True  # whether it begins with a reset

    def save(self):
        """Write the environment's state into a new file, then what names that file."""
        games = self.out / f"games-{self.updates}.npz"
        self.env.save(games)
        state = {
            "agent": self.agent.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": torch.get_rng_state(),
            "updates": self.updates,
            "seconds": self.seconds,
            "steps": self.monitor.num_steps,
            "saved": time.time(),
            "games": games.name,
        }
        new = self.out / "training.pt.new"
        torch.save(state, new)
        new.replace(self.out / "training.pt")
        for other in self.out.glob("games-*.npz"):
            if other != games:
                other.unlink()

    def resume(self):
        """Go on from the last save; what the monitor has written since then is left out."""
        state = torch.load(self.out / "training.pt", weights_only=True)
        cut_back(self.out / "monitor.csv", state["steps"], time.time() - state["saved"])
        self.env.load(self.out / state["games"])
        # of games that have no state to be saved
        self.resets = bool(self.env.state_dict()["sub_envs_missing"])
        self.agent.load_state_dict(state["agent"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["generator"])
        self.updates = state["updates"]
        self.seconds = state["seconds"]

    def run(self, steps, target, minutes, stopped):
        """Train for so many agent steps or minutes, or until the last 100 games have a mean score
        of ``target``, or something is in ``stopped``.
        """
        of_update = ROLLOUT * self.env.num_envs
        last = max(1, steps // of_update)
        start = time.perf_counter() - self.seconds
        saved = told = self.seconds
        rollouts = vecwrap.rollouts(self.env, self.agent.act, ROLLOUT, reset=self.resets)
        while self.updates < last:
            self.optimizer.param_groups[0]["lr"] = self.learning_rate * (1 - self.updates / last)
            update(self.agent, self.optimizer, next(rollouts))
            self.updates += 1
            self.seconds = time.perf_counter() - start
            games = self.monitor.return_queue
            score = np.mean(games) if games else float("nan")
            plays = len(games) == 100 and score >= target
            over = plays or self.seconds > 60 * minutes or self.updates == last
            if self.seconds - told > 10 or over or stopped:
                told = self.seconds
                print(
                    f"{self.updates * of_update:,} steps in {self.seconds:.0f} s, "
                    f"{self.monitor.num_episodes:,} games, mean score {score:.1f}",
                    flush=True,
                )
            if self.seconds - saved > SAVE_SECONDS or over or stopped:
                saved = self.seconds
                self.save()
            if over or stopped:
                break


@contextmanager
def noted_signals():
    """Give a list, to which signals that stop a training only add their numbers meanwhile."""
    received = []

    def note(number, frame):
        received.append(number)

    before = [(number, signal.signal(number, note)) for number in STOPPING]
    try:
        yield received
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def cut_back(path, steps, pause):
    """Leave out the games of ``monitor.csv`` that ended after so many agent steps, and let its
    clock stand still for a pause of so many seconds.
    """
    first, columns, *rows = path.read_text(encoding="utf-8").splitlines(keepends=True)
    header = json.loads(first[1:])
    header["t_start"] += pause
    at = columns.strip().split(",").index("steps")
    rows = [row for row in rows if int(row.split(",")[at]) <= steps]
    path.write_text("".join([f"#{json.dumps(header)}\n", columns, *rows]), encoding="utf-8")


def draw(out):
    """Draw the scores of training, if a game ended in it."""
    runs = plotting.read_runs([out])
    if len(runs[0].runs[0].scores):
        plotting.save(plotting.draw(runs), out / "score.png")
        print(f"curve: {out / 'score.png'}")


def play(pipeline, out, seed, episodes):
    """Load what was saved, or else the agent that is kept for the pipeline, evaluate it on an
    evaluation copy of the pipeline, and film the first game.
    """
    settings = {
        "n": 4,
        "seed": seed + 1000,
        "render_mode": "rgb_array",
        "wrappers.monitor.dir": str(out / "eval"),
    }
    saved = out / "agent.pt"
    if not saved.exists():
        saved = KEPT / f"{pipeline.stem}.pt"
    if (statistics := out / "statistics.npz").exists():
        settings["stats"] = statistics
    film = {"video": {"dir": str(out), "name": "play", "at": [0]}}
    with vecwrap.wrap(vecwrap.load(pipeline, mode="eval", **settings), [film]) as env:
        agent = load_agent(saved, env)
        print(f"evaluation: {vecwrap.evaluate(env, agent.best, episodes)}")
    print(f"video: {', '.join(map(str, env.find(Video).paths)) or 'none'}")


def load_agent(path, env):
    if not path.exists():
        raise SystemExit(f"--play: expected an agent that was trained, in {path}; train one first")
    saved = torch.load(path, weights_only=True)
    agent = Agent(env.single_observation_space, int(env.single_action_space.n), saved["net"])
    agent.load_state_dict(saved["weights"])
    return agent


def train_one(arguments, out, steps, **overrides):
    """Train an agent on the pipeline, and save all that it takes to play; return whether it came
    to its end.
    """
    torch.manual_seed(arguments.seed)
    goes_on = arguments.resume and (out / "training.pt").exists()
    settings = {"seed": arguments.seed, "wrappers.monitor.dir": str(out), **overrides}
    if goes_on:
        settings["wrappers.monitor.resume"] = True
    with noted_signals() as stopped, vecwrap.load(arguments.pipeline, **settings) as env:
        print(env, flush=True)
        training = Training(env, out, arguments.net, arguments.lr)
        if goes_on:
            training.resume()
        target = arguments.target
        if target is None:
            target = TARGETS["images" if training.agent.images else "vectors"]
        training.run(steps, target, arguments.minutes, stopped)
        kept = {"net": arguments.net, "weights": training.agent.state_dict()}
        torch.save(kept, out / "agent.pt")
        env.save(out / "statistics.npz")
    if stopped:
        print(f"stopped, and saved: {out}; --resume goes on")
    else:
        print(f"saved: {out / 'agent.pt'}, {out / 'statistics.npz'}")
    return not stopped


def study(arguments, out):
    """Train an agent for each n, and draw how each learnt over steps, episodes and minutes."""
    for n in arguments.n:
        steps = SHORT * n
        if arguments.full:
            steps = FULL
        if not train_one(arguments, out / f"n-{n:02}", arguments.steps or steps, n=n):
            raise SystemExit(130)
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
        help="stop when the last 100 games have this mean score (default: 475, of images 18)",
    )
    parser.add_argument("--episodes", type=int, default=100, help="how many to evaluate")
    parser.add_argument(
        "--lr", type=float, default=LEARNING_RATE, help="learning rate, which falls to 0"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--net", choices=sorted(NETS), default="small", help="the network for images"
    )
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch")
    parser.add_argument(
        "--resume", action="store_true", help="go on from the last save in the folder"
    )
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
    torch.set_num_threads(arguments.threads)
    if arguments.n:
        study(arguments, out)
        return
    if not arguments.play and not train_one(arguments, out, arguments.steps or 1_000_000):
        raise SystemExit(130)
    play(arguments.pipeline, out, arguments.seed, arguments.episodes)
    draw(out)


if __name__ == "__main__":
    main()
