"""What attributes of other libraries' vector environments are called here."""

from typing import Any

from vecwrap.errors import ArgumentError

_HERE = {
    "seed": "reset(seed=...), or build(..., seed=...)",
    **dict.fromkeys(["n_envs", "nenvs", "num_env", "env_num"], "num_envs"),
    **dict.fromkeys(["env", "venv"], "layers, or find(...) for the layer of a class"),
    **dict.fromkeys(["get_wrapper_attr", "getattr"], "get_attr(name), one value for each sub-environment"),
    **dict.fromkeys(["set_wrapper_attr", "setattr"], "set_attr(name, values)"),
    "env_is_wrapped": "pipeline.wrappers and layers; vecwrap.to_sb3(env) has env_is_wrapped",
    **dict.fromkeys(["remotes", "processes", "ps", "parent_pipes"], "num_workers and health()"),
    **dict.fromkeys(["obs_rms", "ret_rms"], "find(vecwrap.VecEnvWrapper).layer_statistics(), of the layer's class"),
    **dict.fromkeys(["reset_infos", "buf_infos"], "the second value that reset returns"),
    "max_episode_steps": "spec.max_episode_steps",
}


def missing(owner: object, name: str) -> AttributeError:
    """The error for an attribute that a vector environment does not have, with what is here instead."""
    text = f"{type(owner).__name__!r} object has no attribute {name!r}"
    if name in _HERE:
        text += f". Here it is {_HERE[name]}"
    elif not name.startswith("_"):
        text += f". If it is of the sub-environments: env.get_attr({name!r}), or env.call({name!r}) for a method"
    return AttributeError(text, name=name, obj=owner)


def refuse_mode(mode: Any) -> None:
    """Refuse the argument that ``render`` has in the old Gym API and in Stable-Baselines3."""
    if mode is not None:
        raise ArgumentError(
            f"render: expected no argument, got {mode!r}; give build(..., render_mode={mode!r}) instead"
        )
