"""What a pipeline asks of an engine, and which of its wrappers the engine has itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any

from vecwrap.errors import PlanError, SpecError, did_you_mean
from vecwrap.pipeline.elements import EngineSpec
from vecwrap.pipeline.environments import Environment
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.pipeline.values import normalise, short_repr
from vecwrap.pipeline.wrappers import PlannedWrapper
from vecwrap.rows.step_result import Autoreset
from vecwrap.sources.known_engines import MASKED_RESETS, is_at_least

# Arguments of engines that the pipeline sets: its own keys.
_OF_PIPELINE = {
    "num_envs": "n",
    "batch_size": "batch_size",
    "seed": "seed",
    "env_seed": "seed",
    "autoreset_mode": "autoreset",
    "render_mode": "render_mode",
}
# Options of EnvPool and ale-py, which do not check them; EnvPool ends the process.
_LEAST = {"num_threads": 0, "thread_affinity_offset": -1}


@dataclass(frozen=True)
class EnginePlan:
    """An engine and what it is given."""

    factory: Callable[[], Any]  # makes the engine of the rows that were asked for
    summary: str  # what steps the rows, with its version
    absorbed: int = 0  # how many wrappers, inner first, the engine has itself
    own_mode: Autoreset | None = None  # the autoreset mode that it has if none is asked for


@dataclass(frozen=True)
class EngineRequest:
    """What a pipeline asks of its engine."""

    spec: PipelineSpec
    engine: EngineSpec
    environment: Environment
    wrappers: Sequence[PlannedWrapper]
    rows: int  # of each engine

    @property
    def where(self) -> str:
        if self.spec.engine is None:
            return self.spec.where("envs_per_engine")
        return f'{self.spec.where("engine")} "{self.engine.name}"'

    @cached_property
    def absorb(self) -> bool:
        """Whether wrappers that could run here, too, are handed to the engine."""
        absorb = self.engine.options.get("absorb", True)
        if not isinstance(absorb, bool):
            raise SpecError(
                f"{self.where_option('absorb')}: expected true or false, got {short_repr(absorb)}."
            )
        return absorb

    @property
    def batch_size(self) -> int | None:
        """How many rows the engine returns at a time; None: all."""
        spec = self.spec
        if spec.batch_size is None or spec.envs_per_engine is not None:
            return None
        where = spec.where("batch_size")
        if self.engine.target not in ("envpool", "ale"):
            raise PlanError(
                f"{where}: the rows of this engine arrive together; leave it out, or split them "
                "with envs_per_engine."
            )
        if spec.backend.target not in ("auto", "dummy"):
            raise PlanError(
                f"{where}: an engine that returns some of its rows at a time runs in this process; "
                f"expected no backend, got {spec.backend.name}."
            )
        if self.rows % spec.batch_size:
            raise PlanError(
                f"{where}: expected a number of which n={self.rows} is a multiple, got "
                f"{spec.batch_size}: {self.engine.name} returns that many rows at a time."
            )
        return spec.batch_size

    def where_option(self, name: str) -> str:
        return self.spec.where("engine", name)

    def options(self, takes: Collection[str], given: Collection[str] = ()) -> dict[str, Any]:
        """Return the engine's own options; refuse those that it lacks or that are given already."""
        options = {key: normalise(value) for key, value in self.engine.options.items()}
        options.pop("absorb", None)
        for name, value in options.items():
            if name in _OF_PIPELINE:
                raise PlanError(
                    f"{self.where_option(name)}: is the pipeline's own key {_OF_PIPELINE[name]}; "
                    "leave it out."
                )
            if name in given:
                raise PlanError(
                    f"{self.where_option(name)}: the environment or a wrapper sets it already; "
                    "leave it out, or change the wrapper's argument."
                )
            if name not in takes:
                known = sorted(set(takes) - _OF_PIPELINE.keys() - set(given))
                listed = ", ".join(known) or "none"
                raise PlanError(
                    f"{self.where_option(name)}: {self.engine.name} has no such option."
                    f"{did_you_mean(name, known) or ' It has ' + listed + '.'}"
                )
            if name in _LEAST and self.engine.target in ("envpool", "ale"):
                refuse_other_type(self.where_option(name), value, _LEAST[name])
                if value < _LEAST[name]:
                    raise PlanError(
                        f"{self.where_option(name)}: expected {_LEAST[name]} or more, got {value}."
                    )
        return options

    def mode(self, package: str, *, ends_with_lives: bool = False) -> Autoreset:
        """Return the mode of an engine whose own is next-step; refuse one that it cannot have."""
        if self.spec.autoreset is None:
            return Autoreset.NEXT_STEP
        mode = self.spec.autoreset_mode
        where = self.spec.where("autoreset")
        if mode is Autoreset.NEXT_STEP:
            return mode
        if self.batch_size is not None:
            raise PlanError(
                f"{where}: expected next_step with batch_size, because an engine that returns some "
                f"of its rows at a time is reset as a whole, got {mode.value}."
            )
        if mode is Autoreset.EPISODIC:
            raise PlanError(
                f"{where}: expected next_step, same_step or disabled with {self.engine.name}, got "
                f"{mode.value}."
            )
        if ends_with_lives:
            raise PlanError(
                f"{where}: expected next_step where an episode is one life, because a reset of "
                f"some rows of EnvPool begins a new game, got {mode.value}. Leave it out, or give "
                "atari terminal_on_life_loss=false."
            )
        since = next(since for name, since in MASKED_RESETS.values() if name == package)
        if not is_at_least(package, since):
            needed = ".".join(map(str, since))
            raise PlanError(
                f"{where}: {mode.value} needs {package} {needed} or newer, which resets single "
                f'rows; got {version(package)}: pip install "{package}>={needed}"'
            )
        return mode


def refuse_other_type(where: str, value: Any, default: Any) -> None:
    """Raise PlanError for an argument that is not of its default's type."""
    accepted: tuple[type, ...] = (type(default),)
    if isinstance(default, float):
        accepted = (float, int)
    named = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    is_other = isinstance(value, bool) and not isinstance(default, bool)
    if type(default) in named and (is_other or not isinstance(value, accepted)):
        raise PlanError(f"{where}: expected {named[type(default)]}, got {short_repr(value)}.")


@dataclass
class Absorbed:
    """What an engine is given in place of wrappers at the inner end."""

    count: int = 0
    atari: Any = None  # the settings of the wrapper ``atari``
    stack: int = 1
    max_episode_steps: int | None = None
    clip_reward: bool = False


def absorb(
    request: EngineRequest,
    *,
    is_atari: bool,
    time_limit: bool,
    paddings: Collection[str] = (),
    clip_reward: bool = False,
) -> Absorbed:
    """Go through the wrappers from inside, until one is not the engine's own.

    Args:
        request: the engine and its wrappers.
        is_atari: whether ``atari`` is taken, and the others only after it.
        time_limit: whether the engine truncates.
        paddings: those of ``framestack`` that are taken.
        clip_reward: whether the engine clips rewards to their sign, and reports raw ones.
    """
    from vecwrap.wrappers.emulator.lineages import resolve_settings

    found = Absorbed()
    may_choose = request.absorb
    seen = set()
    for wrapper in request.wrappers:
        name = wrapper.spec.target
        arguments = wrapper.bound.complete
        begun = found.atari is not None
        if name in seen:
            break
        if name == "atari" and is_atari:
            found.atari = resolve_settings(**arguments)
        elif name == "time_limit" and time_limit and begun == is_atari:
            found.max_episode_steps = arguments["max_episode_steps"]
        elif not (may_choose and begun):
            break
        elif name == "framestack" and _is_stack(arguments) and arguments["padding"] in paddings:
            found.stack = arguments["k"]
        elif name == "clip_reward" and clip_reward and not _has_bounds(arguments):
            found.clip_reward = True
        else:
            break
        seen.add(name)
        found.count += 1
    return found


def _is_stack(arguments: Mapping[str, Any]) -> bool:
    """Whether several frames are stacked as the engines do it, along a new leading axis."""
    return arguments["k"] > 1 and arguments["axis"] == "new" and arguments["keys"] is None


def _has_bounds(arguments: Mapping[str, Any]) -> bool:
    return arguments["low"] is not None or arguments["high"] is not None


def least(*limits: int | None) -> int | None:
    """The smallest of the limits that there are."""
    return min((limit for limit in limits if limit is not None), default=None)
