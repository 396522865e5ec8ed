"""Act on whichever sub-environments are ready: half of them are stepped while the policy looks at
the other half.
"""

import numpy as np

import vecwrap

env = vecwrap.build("CartPole-v1", n=8, backend="subprocess", workers=2, batch_size=4)
env.reset(seed=1)
env.send(env.action_space.sample())
steps = np.zeros(8, int)
for _ in range(50):
    observations, rewards, terminations, truncations, infos = env.recv()
    env_ids = infos["env_id"]  # which sub-environments these rows are
    steps[env_ids] += 1
    actions = np.where(observations[:, 2] > 0, 1, 0)  # push to the side the pole leans to
    env.send(actions, env_ids=env_ids)
env.close()

print(f"agent steps of each sub-environment: {steps.tolist()}")
