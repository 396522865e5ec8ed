"""Text environments behind a server: many sessions of an OpenEnv server as one vector.

    pip install openenv-core
    openenv init echo_text    # a template; write max_concurrent_envs=8 into its server/app.py
    uvicorn echo_text.server.app:app --port 8000
    python examples/server_env.py http://127.0.0.1:8000

Each sub-environment has a connection (a WebSocket) and so a session of its own. Threads suit what
only waits. A session that the server loses, or that takes too long, is a failure of that row alone.
"""

import argparse
import time

import gymnasium
from gymnasium.spaces import Text
from openenv.core import GenericEnvClient

import vecwrap

CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,!?"


class ServedText(gymnasium.Env):
    """A session of an OpenEnv server whose actions and observations are messages."""

    observation_space = Text(1000, min_length=0, charset=CHARACTERS)
    action_space = Text(100, min_length=1, charset=CHARACTERS)

    def __init__(self, url, patience=30.0, deadline=10.0):
        self.url = url
        self.patience = patience  # seconds to wait for a server that is not there (yet)
        self.deadline = deadline  # seconds for an answer
        self.client = None

    def reset(self, *, seed=None, options=None):
        """Begin an episode of the session, or of a first one."""
        super().reset(seed=seed)
        if self.client is None:
            self.client = self.connected()
        result = self.client.reset()  # this server takes no seed
        return result.observation["echoed_message"], {}

    def step(self, action):
        """Send a message; what comes back is the observation."""
        result = self.client.step({"message": action})
        return result.observation["echoed_message"], result.reward, result.done, False, {}

    def connected(self):
        """Connect, as soon as the server is there."""
        begun = time.monotonic()
        while True:
            client = GenericEnvClient(self.url, message_timeout_s=self.deadline).sync()
            try:
                return client.connect()
            except OSError:
                client.close()
                if time.monotonic() - begun > self.patience:
                    raise
                time.sleep(0.2)

    def close(self):
        """End the session."""
        if self.client is not None:
            self.client.close()


def build(url, n=8, **settings):
    """A vector of n sessions; half of the rows are enough for a ``recv``."""
    return vecwrap.build(
        ServedText,
        n=n,
        env_kwargs={"url": url},
        wrappers=["time_limit:20", "monitor"],
        backend={"name": "threads", "workers": n},
        batch_size=max(1, n // 2),
        on_failure="restart",
        max_restarts=100,
        **settings,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("url")
    parser.add_argument("--n", type=int, default=8)
    parser.add_argument("--steps", type=int, default=400)
    arguments = parser.parse_args()
    with build(arguments.url, arguments.n) as env:
        env.reset()
        env.send(["Hello"] * arguments.n)
        done = 0
        while done < arguments.steps:
            observations, *_, infos = env.recv()
            done += len(observations)
            if "restarted" in infos:
                print(f"rows {infos['env_id'][infos['_restarted']]} have a new session", flush=True)
            actions = [f"Hello, step {done}." for _ in observations]
            env.send(actions, env_ids=infos["env_id"])
        print(f"{done} steps, the last message: {observations[0]!r}, {env.health()}")


if __name__ == "__main__":
    main()
