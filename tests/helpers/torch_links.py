"""For tests of ``to_torch``: a device that copies as late as it may, and a count of calls."""

from collections import Counter

import torch

from vecwrap.adapters.torch_transfer import StagedConverter, with_rows
from vecwrap.adapters.torch_vec_env import TorchVecEnv


class LateLink:
    """A device whose copies are made when they are waited for, and no sooner.

    Until then its tensors hold garbage, and a copy reads what its staging memory holds by then.
    """

    def __init__(self, *, waits=True):
        self.todo = []  # what was begun and is not done, in order
        self.waits = waits

    def pinned(self, num_bytes):
        return torch.full((num_bytes,), 171, dtype=torch.uint8)

    def copy(self, staged):
        return self._later(staged, lambda: staged)

    def spread(self, whole, index, rows):
        return self._later(whole, lambda: with_rows(whole, index, rows))

    def _later(self, like, make):
        made = torch.full(like.shape, 93, dtype=torch.uint8).to(like.dtype)
        self.todo.append(lambda: made.copy_(make()))
        return made

    def deliver(self, tensors):
        return Copied(self, self.todo)

    def finish(self):
        self.do(list(self.todo))

    def do(self, begun):
        for each in begun:
            if each in self.todo:
                each()
                self.todo.remove(each)


class Copied:
    """The event after what had been begun when it was recorded."""

    def __init__(self, link, begun):
        self.link, self.begun = link, list(begun)

    def synchronize(self):
        if self.link.waits:
            self.link.do(self.begun)


class CountedLink:
    """Counts the calls of another link."""

    def __init__(self, link):
        self.link = link
        self.calls = Counter()
        self.waited = 0

    def __getattr__(self, name):
        method = getattr(self.link, name)

        def counted(*args):
            self.calls[name] += 1
            return method(*args)

        return counted


def staged(env, link, device="cpu", floats=None):
    """What ``to_torch`` returns, over a link of the test's."""
    return TorchVecEnv(env, StagedConverter(torch.device(device), floats, link))
