"""Both sides of ``to_torch`` in one form: NumPy's environment, and that of tensors."""

import numpy as np
import torch

from vecwrap.errors import SubEnvError


def converted(value, floats=np.float32):
    """NumPy's results as tensors should show them, by a naive loop over everything."""
    if isinstance(value, dict):
        return {key: converted(part, floats) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(converted(part, floats) for part in value)
    if isinstance(value, np.ndarray) and value.dtype.kind == "f" and floats is not None:
        return value.astype(floats)
    return value


def dense(observations, finals, mask):
    """Terminal observations in a copy of the others, leaf by leaf and row by row."""
    if isinstance(observations, dict):
        return {
            key: dense(part, [f and f[key] for f in finals], mask)
            for key, part in observations.items()
        }
    if isinstance(observations, tuple):
        return tuple(
            dense(part, [f and f[i] for f in finals], mask) for i, part in enumerate(observations)
        )
    out = observations.copy()
    for i, ended in enumerate(mask):
        if ended:
            out[i] = finals[i]
    return out


def expected(result, floats=np.float32):
    """What a call of NumPy's environment returned, as the one of tensors should show it."""
    infos = result[-1]
    if "final_obs" in infos:
        finals = dense(result[0], list(infos["final_obs"]), infos["_final_obs"])
        result = (*result[:-1], {**infos, "final_obs": finals})
    return converted(result, floats)


def arrays(value):
    """Tensors as arrays of the same memory; an array of numbers must have become a tensor."""
    if isinstance(value, torch.Tensor):
        return value.cpu().numpy()
    if isinstance(value, dict):
        return {key: arrays(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(arrays(part) for part in value)
    assert not (isinstance(value, np.ndarray) and value.dtype.kind in "biufc"), value
    return value


def tensors(actions):
    """Actions as a network would give them."""
    if isinstance(actions, dict):
        return {key: tensors(part) for key, part in actions.items()}
    if isinstance(actions, tuple):
        return tuple(tensors(part) for part in actions)
    return torch.as_tensor(np.asarray(actions))


class Side:
    """An environment whose results are put into one form, for a lockstep of two."""

    def __init__(self, env):
        self.env = env

    def __getattr__(self, name):
        return getattr(self.env, name)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.env.close()

    def _call(self, name, *args, **kwargs):
        try:
            return self.form(getattr(self.env, name)(*args, **kwargs))
        except SubEnvError as error:
            if error.others is not None:
                error.others = self.form(error.others)
            raise

    def reset(self, **kwargs):
        return self._call("reset", **kwargs)

    def reset_wait(self, timeout=None):
        return self._call("reset_wait", timeout)

    def step(self, actions):
        return self._call("step", self.given(actions))

    def step_async(self, actions):
        self.env.step_async(self.given(actions))

    def step_wait(self, timeout=None):
        return self._call("step_wait", timeout)

    def send(self, actions, env_ids=None):
        self.env.send(self.given(actions), env_ids)

    def recv(self, timeout=None, **kwargs):
        return self._call("recv", timeout, **kwargs)


class OfNumpy(Side):
    """The reference."""

    def __init__(self, env, floats=np.float32):
        super().__init__(env)
        self.floats = floats

    def form(self, result):
        return expected(result, self.floats)

    def given(self, actions):
        return actions


class OfTensors(Side):
    """What is tested; ``finish`` waits for the device."""

    def __init__(self, env, finish=lambda: None, batched=None):
        super().__init__(env)
        self.finish = finish
        self.batched = batched

    def form(self, result):
        self.finish()
        return arrays(result)

    def given(self, actions):
        if self.batched is None:
            return actions
        return tensors(self.batched(actions))

    def reset(self, *, seed=None, options=None):
        if options is not None and "reset_mask" in options:
            options = {**options, "reset_mask": torch.from_numpy(options["reset_mask"].copy())}
        return self._call("reset", seed=seed, options=options)
