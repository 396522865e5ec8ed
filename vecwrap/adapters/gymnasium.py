"""Pipelines under ids of Gymnasium's registry: ``gymnasium.make_vec`` builds them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import gymnasium

from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import SpecError
from vecwrap.pipeline.build import build_plan, read
from vecwrap.pipeline.evaluation import in_mode
from vecwrap.pipeline.files import is_file
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.rows.step_result import Autoreset

__all__ = ["make_vec", "register"]

_ENTRY_POINT = f"{__name__}:make_vec"


def register(id: str, pipeline: str | Path | Mapping[str, Any] | PipelineSpec, **settings: Any) -> None:
    """Register a pipeline with Gymnasium, so that ``gymnasium.make_vec`` builds it.

    ``gymnasium.make_vec(id, num_envs=8, **settings)`` then returns the same as ``vecwrap.load``, but in next-step mode,
    as Gymnasium's own vector wrappers expect. Gymnasium sets the number of sub-environments, 1 by default; the
    pipeline's ``n`` is ignored. A package can register its pipelines without this function:
    ``gymnasium.register(id, vector_entry_point="vecwrap.adapters.gymnasium:make_vec", kwargs={"pipeline": ...})`` is
    equivalent.

    Args:
        id: a new one, ``"[namespace/]name[-vN]"``; one that this function registered before is replaced.
        pipeline: a YAML or JSON file, a line, a dict, or a ``PipelineSpec``. A file is read at each ``make_vec``.
        settings: as ``make_vec``; overridden by those given to ``gymnasium.make_vec``. Gymnasium copies them, so
            ``stats`` must be a file here.

    Raises:
        SpecError: the id belongs to another environment, or the pipeline cannot be read.
        gymnasium.error.Error: a malformed id.

    >>> register("Stacked-v0", "CartPole-v1 backend=dummy | framestack:4")
    >>> env = gymnasium.make_vec("Stacked-v0", num_envs=2, vectorization_mode="vector_entry_point")
    >>> env
    <VecEnv CartPole-v1, n=2, dummy, next_step, layers framestack>
    >>> env.spec.id
    'Stacked-v0'
    >>> env.close()
    """
    known = gymnasium.registry.get(id)
    if known is not None and known.vector_entry_point != _ENTRY_POINT:
        raise SpecError(f'register: id: "{id}" is another environment\'s; expected a new one, such as "My{id}".')
    _refuse_a_number("register", settings)
    if "wrappers" in settings:
        raise SpecError("register: wrappers: gymnasium.make_vec takes them for its own; write them in the pipeline.")
    if isinstance(settings.get("stats"), VecEnv):
        raise SpecError(
            "register: stats: expected a file written by save, got an environment, which Gymnasium cannot copy; pass "
            "it to gymnasium.make_vec instead."
        )
    read(pipeline)
    if isinstance(pipeline, Path) or (isinstance(pipeline, str) and is_file(Path(pipeline))):
        pipeline = str(Path(pipeline).absolute())
    gymnasium.registry.pop(id, None)  # not earlier: if the new one is refused, the old one stays
    gymnasium.register(id, vector_entry_point=_ENTRY_POINT, kwargs={"pipeline": pipeline, **settings})


def make_vec(
    num_envs: int = 1,
    *,
    pipeline: str | Path | Mapping[str, Any] | PipelineSpec,
    mode: Literal["train", "eval"] = "train",
    stats: VecEnv | str | Path | None = None,
    max_episode_steps: int | None = None,
    **settings: Any,
) -> VecEnv:
    """Build a pipeline as ``gymnasium.make_vec`` asks for it; the vector entry point of what ``register`` registers."""
    _refuse_a_number("make_vec", settings)
    settings["n"] = num_envs
    if max_episode_steps is not None:
        settings["env_kwargs.max_episode_steps"] = max_episode_steps
    spec = in_mode(read(pipeline), mode, settings)
    if "autoreset" not in settings and not _says_mode(spec):
        spec = spec.override(autoreset=Autoreset.NEXT_STEP.value)
    return build_plan(plan(spec), stats)


def _refuse_a_number(where: str, settings: Mapping[str, Any]) -> None:
    for name in ("n", "num_envs"):
        if name in settings:
            raise SpecError(f"{where}: {name}: gymnasium.make_vec sets the number, with num_envs=; leave it out here.")


def _says_mode(spec: PipelineSpec) -> bool:
    """Whether a mode was set explicitly, even to the usual default."""
    return spec.autoreset != Autoreset.SAME_STEP.value or ("autoreset",) in spec.source.places
