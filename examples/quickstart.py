"""Build, reset, step, close: a plain script without a `__main__` guard, with workers in processes
of their own.
"""

import vecwrap

env = vecwrap.build(
    "CartPole-v1", n=4, wrappers=["framestack:4", "monitor"], backend="shmem", workers=2
)
print(env)

observations, infos = env.reset(seed=1)
scores = []
while len(scores) < 8:
    observations, rewards, terminations, truncations, infos = env.step(env.action_space.sample())
    if "episode" in infos:
        scores.extend(infos["episode"]["r"][infos["_episode"]])
env.close()

print(
    f"observations {observations.shape} {observations.dtype}, scores "
    f"{[float(score) for score in scores]}"
)
