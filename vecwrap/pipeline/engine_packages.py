"""EnvPool, ale-py's engine and gymnax: how ids and wrappers are translated into what they take."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from typing import Any

import numpy as np

from vecwrap.errors import PlanError, SpecError, did_you_mean, install_command, text_of
from vecwrap.pipeline.engine_request import (
    Absorbed,
    EnginePlan,
    EngineRequest,
    absorb,
    least,
    refuse_other_type,
)
from vecwrap.pipeline.environments import Environment
from vecwrap.pipeline.fitting import needed_by
from vecwrap.pipeline.signatures import Signature
from vecwrap.pipeline.values import normalise, short_repr
from vecwrap.sources.declares import declared_by
from vecwrap.sources.engine_factories import MakeAle, MakeEnvPool, has_display
from vecwrap.sources.gymnax_engine import MakeGymnax
from vecwrap.sources.known_engines import is_at_least

_ATARI_KWARGS = frozenset(
    {"game", "full_action_space", "max_num_frames_per_episode", "frameskip"}
    | {"repeat_action_probability", "render_mode", "max_episode_steps"}
)
_MAX_FRAMES = 108_000  # of a game, in the literature and in ale-py's registrations


# -- Atari games -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class AtariGame:
    """An Atari game as an engine is given it."""

    name: str  # ale-py's, "ms_pacman"
    kwargs: Mapping[str, Any]  # the registered arguments and the user's
    absorbed: Absorbed
    max_frames: int  # of a game


def _is_atari(environment: Environment) -> bool:
    spec = environment.env_spec
    return spec is not None and spec.entry_point == "ale_py.env:AtariEnv"


def _atari_game(request: EngineRequest, title: str, takes: Collection[str]) -> AtariGame:
    """Read a game and its preprocessing; refuse what the engine does not have."""
    environment = request.environment
    is_envpool = request.engine.name == "envpool"
    paddings = ["zero"]
    if is_envpool:
        paddings.append("first")
    absorbed = absorb(
        request,
        is_atari=True,
        time_limit=True,
        paddings=paddings,
        clip_reward=is_envpool,
    )
    settings = absorbed.atari
    if settings is None:
        got = "none"
        if request.wrappers:
            got = f'"{request.wrappers[0].spec.name}"'
        raise PlanError(
            f"{environment.source}: {title} plays games preprocessed only: expected atari as the "
            f"first wrapper, got {got}."
        )
    needed_by(request.wrappers[0], environment)
    registered = environment.effective_spec()
    assert registered is not None
    kwargs = dict(registered.kwargs)
    for name, value in kwargs.items():
        if name not in _ATARI_KWARGS and name not in takes and value is not None:
            place = environment.source
            if name in environment.kwargs:
                place = environment.kwargs_source.at(name)
            raise PlanError(
                f"{place}: {title} has no {name}, got {short_repr(value)}; leave engine out, or "
                "take another id."
            )
    frames = least(
        kwargs.get("max_num_frames_per_episode"),
        kwargs.get("max_episode_steps", registered.max_episode_steps),
        _MAX_FRAMES,
    )
    assert frames is not None
    return AtariGame(str(kwargs["game"]), kwargs, absorbed, frames)


# -- EnvPool ---------------------------------------------------------------------------------------


def plan_envpool(request: EngineRequest) -> EnginePlan:
    import envpool

    environment = request.environment
    stacks_one = False
    ends_with_lives = False
    if _is_atari(environment):
        game = _atari_game(request, "EnvPool", ("mode", "difficulty"))
        absorbed = game.absorbed
        task = "".join(part.capitalize() for part in game.name.split("_")) + "-v5"
        given = _envpool_atari(request, game)
        stacks_one = absorbed.stack == 1
        ends_with_lives = given["episodic_life"]
    else:
        task = environment.name
        absorbed = absorb(request, is_atari=False, time_limit=True)
        given = {key: normalise(value) for key, value in environment.kwargs.items()}
        given.pop("render_mode", None)
        spec = environment.env_spec
        limit = least(
            given.pop("max_episode_steps", spec.max_episode_steps if spec else None),
            absorbed.max_episode_steps,
        )
        if limit is not None:
            given["max_episode_steps"] = limit
    tasks = envpool.list_all_envs()
    if task not in tasks:
        raise SpecError(
            f'{environment.source} "{environment.name}": EnvPool has no {task}.'
            f"{did_you_mean(task, tasks)}"
        )
    config = envpool.make_spec(task).config
    fields = config._fields
    for name, value in given.items():
        if name not in fields:
            raise PlanError(
                f"{environment.kwargs_source.at(name)}: EnvPool's {task} takes no {name}."
                f"{did_you_mean(name, fields)}"
            )
        refuse_other_type(str(environment.kwargs_source.at(name)), value, getattr(config, name))
    options = request.options(fields, given)
    for name, value in options.items():
        refuse_other_type(request.where_option(name), value, getattr(config, name))
    kwargs = {**given, **options, **_envpool_render(request, task)}
    mode = request.mode("envpool", ends_with_lives=ends_with_lives)
    seed = request.spec.seed
    if seed is not None:
        seed += request.spec.start_index
    make = MakeEnvPool(task, kwargs, request.rows, stacks_one, request.batch_size, seed)
    summary = f"stepped by EnvPool {version('envpool')} as {task}, {_threads(options)}"
    return EnginePlan(make, summary, absorbed.count, mode)


def _envpool_atari(request: EngineRequest, game: AtariGame) -> dict[str, Any]:
    absorbed = game.absorbed
    settings = absorbed.atari
    where = request.wrappers[0].where
    one_life = settings.terminal_on_life_loss and _has_lives(game.name)
    if settings.noop_max < 1:
        raise PlanError(f"{where}: EnvPool presses one no-op at least; expected noop_max >= 1.")
    if settings.terminal_on_life_loss == "new_game":
        raise PlanError(
            f"{where}: EnvPool goes on with the game after a lost life; expected "
            "terminal_on_life_loss true or false, got new_game."
        )
    if one_life and absorbed.max_episode_steps is not None:
        limit = next(one for one in request.wrappers if one.spec.name == "time_limit")
        raise PlanError(
            f"{limit.where}: EnvPool counts the steps of a game, not of a life; expected "
            "terminal_on_life_loss=false of atari, or no time_limit."
        )
    kwargs: dict[str, Any] = {
        "frame_skip": settings.frame_skip,
        "noop_max": settings.noop_max,
        "img_height": settings.screen_size,
        "img_width": settings.screen_size,
        "episodic_life": one_life,
        "reward_clip": settings.clip_reward or absorbed.clip_reward,
        "use_fire_reset": settings.fire_reset,
        "repeat_action_probability": settings.repeat_action_probability,
        "gray_scale": True,
        "stack_num": absorbed.stack,
        "full_action_space": bool(game.kwargs.get("full_action_space", False)),
        "max_episode_steps": least(
            game.max_frames // settings.frame_skip, absorbed.max_episode_steps
        ),
    }
    for name in ("mode", "difficulty"):
        if game.kwargs.get(name) is not None:
            kwargs[name] = game.kwargs[name]
    return kwargs


def _envpool_render(request: EngineRequest, task: str) -> dict[str, Any]:
    """Return the render mode, which must be of images; refuse what cannot draw."""
    mode = request.spec.render_mode
    if mode is None:
        mode = request.environment.kwargs.get("render_mode")
    if mode is None:
        return {}
    where = request.spec.where("render_mode")
    if mode not in ("human", "rgb_array"):
        raise PlanError(f"{where}: EnvPool renders rgb_array, got {short_repr(mode)}.")
    import envpool

    kinds = type(envpool.make_spec(task)).__mro__
    is_mujoco = any(kind.__module__.startswith("envpool.mujoco.") for kind in kinds)
    if is_mujoco and not has_display():
        raise PlanError(
            f"{where}: EnvPool draws MuJoCo's tasks with the OpenGL of a display, and ends the "
            "process without one: expected DISPLAY in the environment; leave render_mode out, or "
            "engine."
        )
    return {"render_mode": "rgb_array"}


def _threads(options: Mapping[str, Any]) -> str:
    count = options.get("num_threads")
    if not count:
        return "as many threads as it chooses"
    return f"{count} thread{'s' * (count != 1)}"


# -- ale-py ----------------------------------------------------------------------------------------


def plan_ale(request: EngineRequest) -> EnginePlan:
    from ale_py.vector_env import AtariVectorEnv

    environment = request.environment
    if not _is_atari(environment):
        raise PlanError(
            f"{environment.source}: ale-py's engine plays Atari games, got {environment.name}; "
            'expected an id such as "PongNoFrameskip-v4".'
        )
    game = _atari_game(request, "ale-py's engine", ())
    settings = game.absorbed.atari
    limit = game.absorbed.max_episode_steps
    where = request.wrappers[0].where
    if settings.terminal_on_life_loss is True and _has_lives(game.name):
        raise PlanError(
            f"{where}: ale-py's engine begins a new game where a life is lost; expected "
            "terminal_on_life_loss=false, or new_game, got true."
        )
    _refuse_drawing(request, "ale-py's engine draws nothing")
    frames = game.max_frames
    if limit is not None:
        frames = min(frames, limit * settings.frame_skip)
    given: dict[str, Any] = {
        "frameskip": settings.frame_skip,
        "maxpool": settings.frame_skip > 1,
        "noop_max": settings.noop_max + 1,  # it draws one of 0 to noop_max - 1
        "img_height": settings.screen_size,
        "img_width": settings.screen_size,
        "episodic_life": settings.terminal_on_life_loss == "new_game",
        "reward_clipping": False,
        "use_fire_reset": settings.fire_reset,
        "repeat_action_probability": settings.repeat_action_probability,
        "grayscale": True,
        "stack_num": game.absorbed.stack,
        "full_action_space": bool(game.kwargs.get("full_action_space", False)),
        "max_num_frames_per_episode": frames,
    }
    takes = Signature.of(AtariVectorEnv, skip=0).names
    options = request.options([name for name in takes if name != "game"], given)
    mode = request.mode("ale-py")
    make = MakeAle(
        game.name,
        {**given, **options},
        request.rows,
        game.absorbed.stack == 1,
        request.batch_size,
        settings.clip_reward,
    )
    summary = f"stepped by ale-py {version('ale-py')}'s AtariVectorEnv, {_threads(options)}"
    return EnginePlan(make, summary, game.absorbed.count, mode)


def _has_lives(game: str) -> bool:
    """Whether the game counts lives; otherwise none can be lost."""
    import ale_py
    from ale_py import roms

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    emulator = ale_py.ALEInterface()
    path = roms.get_rom_path(game)
    assert path is not None
    emulator.loadROM(path)
    emulator.reset_game()
    return int(emulator.lives()) > 0


def _refuse_drawing(request: EngineRequest, why: str) -> None:
    places = [w.where for w in request.wrappers if declared_by(w.target).takes_frames]
    if request.spec.render_mode is not None:
        places.append(request.spec.where("render_mode"))
    if places:
        raise PlanError(f"{places[0]}: {why}; leave it out, or engine.")


# -- gymnax ----------------------------------------------------------------------------------------


def plan_gymnax(request: EngineRequest) -> EnginePlan:
    environment = request.environment
    gymnax = _gymnax(request.where)
    source = f'{environment.source} "{environment.name}"'
    if environment.name not in gymnax.registered_envs:
        raise SpecError(
            f"{source}: gymnax has no {environment.name}."
            f"{did_you_mean(environment.name, gymnax.registered_envs)} It has "
            f"{', '.join(gymnax.registered_envs)}."
        )
    _refuse_drawing(request, "gymnax draws nothing here")
    given = {key: normalise(value) for key, value in environment.kwargs.items()}
    limits = [given.pop("max_episode_steps", None)]
    env, params = _of_gymnax(gymnax, source, environment.name, {})
    own = {field.name: getattr(params, field.name) for field in fields(params)}
    takes = Signature.of(type(env), skip=0).names
    for name, value in given.items():
        place = environment.kwargs_source.at(name)
        if name not in own and name not in takes:
            raise PlanError(
                f"{place}: gymnax's {environment.name} takes no {name}."
                f"{did_you_mean(name, [*own, *takes])} It takes {', '.join([*own, *takes])}."
            )
        if name in own and np.ndim(own[name]) == 0 and not isinstance(value, (bool, int, float)):
            raise PlanError(f"{place}: expected a number, got {short_repr(value)}.")
    arguments = {name: value for name, value in given.items() if name not in own}
    if arguments:
        env, params = _of_gymnax(gymnax, source, environment.name, arguments)
    params = replace(params, **{name: value for name, value in given.items() if name in own})
    absorbed = absorb(request, is_atari=False, time_limit=True)
    limits += [absorbed.max_episode_steps, given.get("max_steps_in_episode")]
    if absorbed.max_episode_steps is not None:
        limits.append(params.max_steps_in_episode)
    limit = least(*limits)
    if limit is not None:
        params = replace(params, max_steps_in_episode=limit)
    request.options([])
    mode = request.mode("gymnax")
    make = MakeGymnax(environment.name, env, params, request.rows)
    summary = f"stepped by gymnax {version('gymnax')}, compiled by JAX {version('jax')}"
    return EnginePlan(make, summary, absorbed.count, mode)


def _gymnax(where: str) -> Any:
    """Import gymnax, whose ``step`` tells time limits from other ends since 1.0."""
    if not is_at_least("gymnax", (1, 0)):
        raise SpecError(
            f"{where}: expected gymnax 1.0 or newer, got {version('gymnax')}: "
            f"{install_command('gymnax')}"
        )
    try:
        import gymnax
    except ImportError as error:
        raise SpecError(
            f"{where}: gymnax cannot be imported ({error}): {install_command('gymnax')}"
        ) from error
    return gymnax


def _of_gymnax(
    gymnax: Any, source: str, name: str, arguments: Mapping[str, Any]
) -> tuple[Any, Any]:
    """Make an environment and its parameters; what it raises is an error of the plan."""
    try:
        return gymnax.make(name, **arguments)  # type: ignore[no-any-return]
    except Exception as error:
        raise PlanError(
            f"{source}: gymnax does not make it ({type(error).__name__}: {text_of(error)})."
        ) from error
