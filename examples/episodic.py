"""One episode of each sub-environment: an ended one rests until all are done, so that nothing is
counted twice.
"""

import numpy as np

import vecwrap

env = vecwrap.build("CartPole-v1", n=8, autoreset="episodic")
observations, _ = env.reset(seed=1)
returns = np.zeros(8)
dones = np.zeros(8, bool)
while not dones.all():
    observations, rewards, terminations, truncations, _ = env.step(env.action_space.sample())
    returns += rewards  # 0 for a sub-environment that rests
    dones = terminations | truncations
env.close()

print(f"returns of one episode each: {returns.astype(int).tolist()}")
