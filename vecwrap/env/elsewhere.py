"""What attributes of other libraries' vector environments are called here."""

from typing import Any, NoReturn

from gymnasium.vector import VectorWrapper

from vecwrap.errors import ArgumentError
from vecwrap.sources.factories import draws_none

_HERE = {
    "seed": "reset(seed=...), or build(..., seed=...)",
    **dict.fromkeys(["n_envs", "nenvs", "num_env", "env_num"], "num_envs"),
    **dict.fromkeys(["env", "venv"], "chain, or find(...) for the wrapper of a class"),
    **dict.fromkeys(["get_wrapper_attr", "getattr"], "get_attr(name), one value for each sub-environment"),
    **dict.fromkeys(["set_wrapper_attr", "setattr"], "set_attr(name, values)"),
    "layers": "chain",
    "env_is_wrapped": "pipeline.wrappers and chain; vecwrap.to_sb3(env) has env_is_wrapped",
    **dict.fromkeys(["remotes", "processes", "ps", "parent_pipes"], "num_workers and health()"),
    **dict.fromkeys(["obs_rms", "ret_rms"], "find(vecwrap.VecEnvWrapper).wrapper_statistics(), of the wrapper's class"),
    **dict.fromkeys(["reset_infos", "buf_infos"], "the second value that reset returns"),
    "max_episode_steps": "spec.max_episode_steps",
    "watch": "vecwrap.watch(env)",
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


def refuse_render_mode(name: str, env: Any, needed: str | None) -> None:
    mode = env.render_mode
    others = env.metadata.get("render_modes") if needed is None else None  # text, say
    if mode is None and not others and (why := draws_none(env.metadata, env.core.env_id)):
        raise ArgumentError(f"{name}: expected an environment that draws pictures; {why}")
    if mode is None and needed is None:
        example = "rgb_array" if not others or "rgb_array" in others else others[0]
        raise ArgumentError(
            f'{name}: built without a render mode; expected for example build(..., render_mode="{example}")'
        )
    if needed is not None and mode != needed:
        raise ArgumentError(f'{name}: expected an environment built with render_mode="{needed}", got {mode!r}')


def refuse_copy(env: object) -> NoReturn:
    """Refuse to copy or pickle an environment: a copy would share the sub-environments, or have none."""
    raise TypeError(
        f"{env!r} cannot be copied or sent to another process, because its sub-environments cannot. Build another "
        "one where it is needed, with vecwrap.build(env.pipeline); load_state_dict(env.state_dict()) makes it "
        "continue from this one's state, and stats= gives it the running statistics"
    )


def what_came(env: Any) -> str:
    """Describe, for an error, what was given instead of a vecwrap environment, and the remedy."""
    name = type(env).__name__
    if hasattr(env, "vecwrap_env"):
        return f"{name}; the vecwrap environment inside to_sb3's result is its vecwrap_env"
    inner, steps = env, ""
    while isinstance(inner, VectorWrapper):
        inner, steps = inner.env, f"{steps}.env"
    if hasattr(type(inner), "share_statistics"):  # a VecEnv
        return f"{name}, a Gymnasium wrapper around one; pass the environment itself, its {steps}"
    return f"{name}; vecwrap.build makes one, and vecwrap.wrap turns any gymnasium.vector.VectorEnv into one"


def refuse_source(source: Any) -> NoReturn:
    raise ArgumentError(f"stats: expected a vecwrap environment or a file written by its save, got {what_came(source)}")
