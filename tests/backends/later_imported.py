"""What a worker imports only when it makes its environment."""

import warnings

from tests.helpers.toy_envs import Counter


class Loud(UserWarning):
    pass


class Shouting(Counter):
    def step(self, action):
        warnings.warn("loud", Loud, stacklevel=1)
        return super().step(action)
