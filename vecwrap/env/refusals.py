"""What a vector environment refuses, and what to do instead."""

from typing import Any, NoReturn

from gymnasium.vector import VectorWrapper

from vecwrap.env.hints import ATTRIBUTE_HINTS, hint
from vecwrap.errors import ArgumentError, PlanError
from vecwrap.sources.factories import has_no_render_mode


def missing(owner: object, name: str) -> AttributeError:
    """Return the error for a missing attribute of a vector environment, with what to use here."""
    kind = type(owner).__name__
    code = type(owner).__init__.__code__
    shown = kind
    if type(owner).__module__.startswith("vecwrap."):  # whatever is outermost, it is a VecEnv
        shown = "VecEnv"
    text = f"{shown!r} object has no attribute {name!r}"
    if here := hint(ATTRIBUTE_HINTS, name):
        text += f". Here it is {here}"
    elif name.startswith("_"):
        return AttributeError(text, name=name, obj=owner)
    elif name in code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]:
        text += f". It is an argument of {kind}: see env.chain, or env.pipeline.wrappers"
    else:
        text += (
            f". If it is of the sub-environments: env.get_attr({name!r}), or "
            f"env.call({name!r}) for a method"
        )
    return AttributeError(text, name=name, obj=owner)


def no_engine_restarts(backend: str) -> str:
    """What an error says of ``on_failure="restart"`` for engines in this process."""
    return (
        f'expected "raise" for engines on {backend}, got "restart": an engine is recreated with '
        'its worker process; take backend="shmem" or "subprocess", or leave on_failure out'
    )


def refuse_mode(mode: Any) -> None:
    """Refuse the argument that ``render`` has in the old Gym API and in Stable-Baselines3."""
    if mode is not None:
        raise ArgumentError(
            f"render: expected no argument, got {mode!r}; give build(..., render_mode={mode!r}) "
            "instead"
        )


def refuse_render_mode(name: str, env: Any, needed: str | None) -> None:
    mode = env.render_mode
    others = None
    if needed is None:
        others = env.metadata.get("render_modes")  # text, say
    if mode is None and not others and (why := has_no_render_mode(env.metadata, env.core.env_id)):
        raise ArgumentError(f"{name}: expected an environment that draws pictures; {why}")
    if mode is None and needed is None:
        example = "rgb_array"
        if others and "rgb_array" not in others:
            example = others[0]
        raise ArgumentError(
            f"{name}: built without a render mode; expected for example build(..., "
            f'render_mode="{example}")'
        )
    if needed is not None and mode != needed:
        raise ArgumentError(
            f'{name}: expected an environment built with render_mode="{needed}", got {mode!r}'
        )


def refuse_copy(env: object) -> NoReturn:
    """Refuse to copy or pickle an environment: copies would share sub-environments or have none."""
    raise TypeError(
        f"{env!r} cannot be copied or sent to another process, because its sub-environments "
        "cannot. Build another one where it is needed, with vecwrap.build(env.pipeline); "
        "load_state_dict(env.state_dict()) makes it continue from this one's state, and stats= "
        "gives it the running statistics"
    )


def describe_env(env: Any) -> str:
    """Describe, for an error, what was given instead of a vecwrap environment, and the remedy."""
    name = type(env).__name__
    if hasattr(env, "vecwrap_env"):
        return f"{name}; the vecwrap environment inside to_sb3's result is its vecwrap_env"
    inner = env
    steps = ""
    while isinstance(inner, VectorWrapper):
        inner = inner.env
        steps = f"{steps}.env"
    if hasattr(type(inner), "share_statistics"):  # a VecEnv
        return f"{name}, a Gymnasium wrapper around one; pass the environment itself, its {steps}"
    return (
        f"{name}; vecwrap.build makes one, and vecwrap.wrap turns any "
        "gymnasium.vector.VectorEnv into one"
    )


def refuse_tensors(name: str, env: Any, why: str) -> None:
    """Refuse an environment of ``to_torch`` where NumPy's arrays are needed."""
    if env.array_converter is not None:
        raise PlanError(
            f"{name}: expected an environment whose calls return NumPy arrays, as {why}, got "
            f"{env!r}; pass the environment inside, its env"
        )


def refuse_source(source: Any) -> NoReturn:
    raise ArgumentError(
        "stats: expected a vecwrap environment or a file written by its save, got "
        f"{describe_env(source)}"
    )
