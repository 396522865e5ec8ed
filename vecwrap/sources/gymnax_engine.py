"""gymnax's environments as a vector environment: written in JAX, stepped by ``jit(vmap(...))``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from vecwrap.rows.saved import fitting, fitting_list

_SEEDS = 2**32  # JAX's keys are made from so many seeds, unless it computes with 64 bits


@dataclass(frozen=True)
class MakeGymnax:
    """A factory of an engine of gymnax; environment and parameters are gymnax's own objects."""

    name: str
    env: Any
    params: Any
    num_envs: int

    def __call__(self) -> Any:
        return GymnaxVectorEnv(self.name, self.env, self.params, self.num_envs)

    def __str__(self) -> str:
        return self.name


class GymnaxVectorEnv(VectorEnv[Any, Any, Any]):
    """Rows of one of gymnax's environments, which a reset and a step compute in one call each.

    Row i has a key of its own, from its seed. Every reset and step splits it, as
    ``GymnaxToGymWrapper`` of gymnax does, so each row is what that wrapper makes of the same seed.
    """

    def __init__(self, name: str, env: Any, params: Any, num_envs: int) -> None:
        from gymnax.environments.spaces import gymnax_space_to_gym_space

        self.spec = EnvSpec(name, max_episode_steps=int(params.max_steps_in_episode))
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": []}
        self.env = env
        self.params = params
        self.num_envs = num_envs
        self.single_observation_space = gymnax_space_to_gym_space(env.observation_space(params))
        self.single_action_space = gymnax_space_to_gym_space(env.action_space(params))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._begin, self._act = _compiled(env)
        self._over = np.zeros(num_envs, np.bool_)  # rows that the next step resets
        self._keys = self._keys_of(np.random.SeedSequence().generate_state(num_envs))
        self._observations, self._states = self._empty()

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        mask = np.ones(self.num_envs, np.bool_)
        if options is not None:
            mask = np.array(options.get("reset_mask", mask), np.bool_)
        if isinstance(seed, (int, np.integer)):
            seed = range(int(seed), int(seed) + self.num_envs)
        keys = self._keys
        if seed is not None:
            given = np.array([one is not None for one in seed]) & mask
            seeds = [one or 0 for one in seed]
            keys = np.where(given[:, np.newaxis], self._keys_of(seeds), keys)
        self._keys, self._observations, self._states = self._begin(
            keys, self._observations, self._states, mask, self.params
        )
        self._over = self._over & ~mask
        return self._in_numpy(self._observations), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        over = self._over
        self._keys, self._observations, self._states, *flags, infos = self._act(
            self._keys, self._states, over, actions, self.params
        )
        rewards, terminations, truncations = map(np.array, flags)
        self._over = terminations | truncations
        columns = {}
        for name, column in infos.items():
            columns[name] = _copied(column)
            columns[f"_{name}"] = ~over
        observations = self._in_numpy(self._observations)
        return observations, rewards, terminations, truncations, columns

    def state_dict(self) -> dict[str, Any]:
        """Return all that its rows go on from: keys, states, what they show, which are over."""
        import jax

        return {
            "keys": np.array(self._keys),
            "over": self._over.copy(),
            "rows": [
                np.array(leaf) for leaf in jax.tree.leaves((self._observations, self._states))
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned; TypeError if it is of another environment."""
        import jax

        leaves, form = jax.tree.flatten(self._empty())
        keys = fitting(state["keys"], np.array(self._keys), "keys")
        over = fitting(state["over"], self._over, "over")
        saved = fitting_list(state["rows"], len(leaves), "rows")
        for mine, theirs in zip(leaves, saved, strict=True):
            mine[...] = fitting(theirs, mine, "rows")
        self._keys = keys.astype(np.uint32)
        self._over = over.copy()
        self._observations, self._states = jax.tree.unflatten(form, leaves)

    def _keys_of(self, seeds: Sequence[int] | np.ndarray[Any, Any]) -> Any:
        """Return a key for each seed, that of ``jax.random.PRNGKey``."""
        import jax

        small = np.array([int(seed) % _SEEDS for seed in seeds], np.uint32)
        return jax.vmap(jax.random.PRNGKey)(small)

    def _empty(self) -> Any:
        """Return what a first reset replaces: zeros of its form."""
        import jax

        def rows(keys: Any, params: Any) -> Any:
            return jax.vmap(self.env.reset_env, in_axes=(0, None))(keys, params)

        form = jax.eval_shape(rows, self._keys, self.params)
        return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), form)

    def _in_numpy(self, observations: Any) -> Any:
        if not hasattr(observations, "dtype"):
            return _copied(observations)
        return np.array(observations, self.single_observation_space.dtype)


def _copied(values: Any) -> Any:
    import jax

    return jax.tree.map(np.array, values)


def _compiled(env: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the compiled functions that reset some rows, and that step all."""
    import jax
    from jax import numpy as jnp

    def begin_row(key: Any, params: Any) -> Any:
        key, reset_key = jax.random.split(key)
        return (key, *env.reset_env(reset_key, params))

    def act_row(key: Any, state: Any, action: Any, params: Any) -> Any:
        key, subkey = jax.random.split(key)
        step_key, _ = jax.random.split(subkey)  # gymnax keeps the other one for its own autoreset
        observation, state, reward, terminated, info = env.step_env(step_key, state, action, params)
        truncated = env.is_truncated(state, params)
        return key, observation, state, reward, terminated, truncated, info

    begin_rows = jax.vmap(begin_row, in_axes=(0, None))
    act_rows = jax.vmap(act_row, in_axes=(0, 0, 0, None))

    def chosen(rows: Any, ones: Any, others: Any) -> Any:
        """Return ``ones`` in these rows, and ``others`` in the rest, of their dtype."""

        def leaf(one: Any, other: Any) -> Any:
            shape = (len(rows), *[1] * (one.ndim - 1))
            return jnp.where(rows.reshape(shape), one.astype(other.dtype), other)

        return jax.tree.map(leaf, ones, others)

    def begin(keys: Any, observations: Any, states: Any, rows: Any, params: Any) -> Any:
        return chosen(rows, begin_rows(keys, params), (keys, observations, states))

    def act(keys: Any, states: Any, over: Any, actions: Any, params: Any) -> Any:
        stepped = act_rows(keys, states, actions, params)
        after, observations, states, rewards, terminations, truncations, infos = stepped

        def with_resets() -> Any:
            _, *first = begin_rows(keys, params)
            return chosen(over, tuple(first), (observations, states))

        shown = jax.lax.cond(over.any(), with_resets, lambda: (observations, states))
        rewards = jnp.where(over, 0, rewards)
        return after, *shown, rewards, terminations & ~over, truncations & ~over, infos

    return jax.jit(begin), jax.jit(act)
