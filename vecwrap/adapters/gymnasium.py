"""Pipelines as Gymnasium ids, which ``gymnasium.make_vec`` and ``gymnasium.make`` build."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import gymnasium

from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import SpecError
from vecwrap.pipeline.build import build_plan
from vecwrap.pipeline.elements import BACKEND_OPTIONS
from vecwrap.pipeline.evaluation import in_mode
from vecwrap.pipeline.fields import KEYS
from vecwrap.pipeline.files import is_file
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec, as_spec
from vecwrap.rows import batch as batches
from vecwrap.rows.gymnasium_form import element
from vecwrap.rows.infos import row_of
from vecwrap.rows.step_result import Autoreset

__all__ = ["SingleEnv", "make", "make_vec", "register"]

_ENTRY_POINT = f"{__name__}:make_vec"
_OF_ONE = f"{__name__}:make"


def register(
    id: str, pipeline: str | Path | Mapping[str, Any] | PipelineSpec, **settings: Any
) -> None:
    """Register a pipeline for ``gymnasium.make_vec`` and ``gymnasium.make``.

    ``gymnasium.make_vec(id, num_envs=8, **settings)`` then returns the same as ``vecwrap.load``,
    but in next-step mode, as Gymnasium's own vector wrappers expect. Gymnasium sets the number of
    sub-environments, 1 by default; the pipeline's ``n`` is ignored. ``gymnasium.make(id,
    **settings)`` returns a ``gymnasium.Env``: one sub-environment with all wrappers, in this
    process. A package can register its pipelines without this function: ``gymnasium.register(id,
    "vecwrap.adapters.gymnasium:make", vector_entry_point= "vecwrap.adapters.gymnasium:make_vec",
    kwargs={"pipeline": ...})`` is equivalent.

    Args:
        id: a new one, ``"[namespace/]name[-vN]"``; one that this function registered before is
            replaced.
        pipeline: a YAML or JSON file, a line, a dict, or a ``PipelineSpec``. A file is read at each
            ``make_vec``.
        settings: keys of a pipeline, ``mode`` and ``stats``, as in ``vecwrap.load``; overridden by
            those given to ``gymnasium.make_vec`` or ``make``. Gymnasium copies them, so ``stats``
            must be a file here.

    Raises:
        SpecError: the id belongs to another environment, or the pipeline cannot be read.
        gymnasium.error.Error: a malformed id.

    >>> register("Stacked-v0", "CartPole-v1 backend=dummy | framestack:4")
    >>> env = gymnasium.make_vec("Stacked-v0", num_envs=2, vectorization_mode="vector_entry_point")
    >>> env
    <VecEnv CartPole-v1, n=2, dummy, next_step, wrappers framestack>
    >>> env.spec.id
    'Stacked-v0'
    >>> env.close()
    >>> env = gymnasium.make("Stacked-v0")
    >>> env.reset(seed=1)[0].shape
    (4, 4)
    >>> env.close()
    """
    known = gymnasium.registry.get(id)
    if known is not None and known.vector_entry_point != _ENTRY_POINT:
        raise SpecError(
            f'register: id: "{id}" is another environment\'s; expected a new one, such as "My{id}".'
        )
    _refuse_a_number("register", settings)
    if "wrappers" in settings:
        raise SpecError(
            "register: wrappers: gymnasium.make_vec takes them for its own; write them in the "
            "pipeline."
        )
    if isinstance(settings.get("stats"), VecEnv):
        raise SpecError(
            "register: stats: expected a file written by save, got an environment, which "
            "Gymnasium cannot copy; pass it to gymnasium.make_vec instead."
        )
    as_spec(pipeline)
    if isinstance(pipeline, Path) or (isinstance(pipeline, str) and is_file(pipeline)):
        pipeline = str(Path(pipeline).absolute())
    gymnasium.registry.pop(id, None)  # not earlier: if the new one is refused, the old one stays
    kwargs = {"pipeline": pipeline, **settings}
    gymnasium.register(id, _OF_ONE, vector_entry_point=_ENTRY_POINT, kwargs=kwargs)


def make_vec(
    num_envs: int = 1,
    *,
    pipeline: str | Path | Mapping[str, Any] | PipelineSpec,
    mode: Literal["train", "eval"] = "train",
    stats: VecEnv | str | Path | None = None,
    max_episode_steps: int | None = None,
    **settings: Any,
) -> VecEnv:
    """Build a pipeline for ``gymnasium.make_vec``: the vector entry point of ``register``."""
    _refuse_a_number("make_vec", settings)
    settings["n"] = num_envs
    if max_episode_steps is not None:
        settings["env_kwargs.max_episode_steps"] = max_episode_steps
    spec = in_mode(as_spec(pipeline), mode, settings)
    if spec.autoreset is None:
        spec = spec.override(autoreset=Autoreset.NEXT_STEP.value)
    return build_plan(plan(spec), stats)


class SingleEnv(gymnasium.Env[Any, Any]):
    """One sub-environment of a pipeline with all its wrappers, as ``gymnasium.make`` returns it.

    Attributes:
        vecwrap_env: the vector of one inside, for ``save``, ``find`` and the like.
    """

    def __init__(self, env: VecEnv) -> None:
        self.vecwrap_env = env
        env.core.rows.read_observations()
        self.observation_space = env.single_observation_space
        self.action_space = env.single_action_space
        self.metadata = {
            key: value for key, value in env.metadata.items() if key != "autoreset_mode"
        }
        self.render_mode = env.render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        observations, infos = self.vecwrap_env.reset(seed=seed, options=options)
        return self._first(observations), row_of(infos, 0)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observations, rewards, terminations, truncations, infos = self.vecwrap_env.step([action])
        return (
            self._first(observations),
            *(each.item(0) for each in (rewards, terminations, truncations)),
            row_of(infos, 0),
        )

    def render(self) -> Any:
        return self.vecwrap_env.render()[0]

    def close(self) -> None:
        self.vecwrap_env.close()

    def _first(self, observations: Any) -> Any:
        return element(self.observation_space, batches.row(observations, 0))


def make(
    *,
    pipeline: str | Path | Mapping[str, Any] | PipelineSpec,
    mode: Literal["train", "eval"] = "train",
    stats: VecEnv | str | Path | None = None,
    **settings: Any,
) -> SingleEnv:
    """Build a pipeline for ``gymnasium.make``: the entry point that ``register`` registers."""
    _refuse_a_number("make", settings)
    for key in settings:
        # As callers expect who try arguments (TorchRL).
        if key.partition(".")[0] not in (*KEYS, *BACKEND_OPTIONS):
            raise TypeError(
                f"make() got an unexpected keyword argument {key!r}; see vecwrap.register"
            )
    own = {
        key: value
        for key, value in settings.items()
        if key.partition(".")[0] not in ("backend", *BACKEND_OPTIONS)
    }
    here = {"n": 1, "backend": "dummy", "autoreset": Autoreset.DISABLED.value, "batch_size": None}
    return SingleEnv(build_plan(plan(in_mode(as_spec(pipeline), mode, {**own, **here})), stats))


def _refuse_a_number(where: str, settings: Mapping[str, Any]) -> None:
    for name in ("n", "num_envs"):
        if name in settings:
            raise SpecError(
                f"{where}: {name}: gymnasium.make_vec sets the number, with num_envs=; leave it "
                "out here."
            )
