"""From the rows to a learner: rollouts, advantages and returns, transitions."""
