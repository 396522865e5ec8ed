"""Play 64 games of tic-tac-toe at once, both players at random: each agent is a row, and only its
own turn counts.
"""

import numpy as np

import vecwrap

env = vecwrap.build(
    "pettingzoo:classic/tictactoe-v3", n=64, wrappers=["monitor"], backend="dummy", seed=1
)
env.reset()
rng = np.random.default_rng(1)
results = {agent: [] for agent in env.possible_agents}
while sum(map(len, results.values())) < 4000:
    masks = env.action_masks()  # (128, 9): nothing is legal for a player that waits
    actions = (rng.random(masks.shape) * masks).argmax(axis=1)
    observations, rewards, terminations, truncations, infos = env.step(actions)
    if "episode" in infos:
        for row in np.flatnonzero(infos["_episode"]):
            results[env.row_agents[row]].append(infos["episode"]["r"][row])
env.close()

for agent, scores in results.items():
    wins, draws = np.mean(np.array(scores) > 0), np.mean(np.array(scores) == 0)
    print(f"{agent}: {len(scores)} games, won {wins:.0%}, drawn {draws:.0%}")
