"""Vectorised reinforcement-learning environments: pluggable backends under a chain of composable wrappers.

Every worker process imports this module, so it stays light: names are imported on first use, and nothing heavier than
the name table below is loaded up front.

Example:
    >>> import vecwrap
    >>> env = vecwrap.build("CartPole-v1", n=2, wrappers=["framestack:4"], backend="dummy")
    >>> observations, infos = env.reset(seed=1)
    >>> observations.shape
    (2, 4, 4)
    >>> env.close()
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vecwrap.adapters.gymnasium import register as register
    from vecwrap.adapters.sb3 import from_sb3 as from_sb3
    from vecwrap.adapters.sb3 import to_sb3 as to_sb3
    from vecwrap.building import build as build
    from vecwrap.building import load as load
    from vecwrap.building import wrap as wrap
    from vecwrap.clip import Clip as Clip
    from vecwrap.contract import StepResult as StepResult
    from vecwrap.errors import BackendError as BackendError
    from vecwrap.errors import PlanError as PlanError
    from vecwrap.errors import SpecError as SpecError
    from vecwrap.errors import SubEnvError as SubEnvError
    from vecwrap.errors import VecwrapError as VecwrapError
    from vecwrap.evaluating import Evaluation as Evaluation
    from vecwrap.evaluating import evaluate as evaluate
    from vecwrap.registry import register_wrapper as register_wrapper
    from vecwrap.rules.check import Finding as Finding
    from vecwrap.rules.check import check as check
    from vecwrap.spec import PipelineSpec as PipelineSpec
    from vecwrap.vec_env import VecEnv as VecEnv
    from vecwrap.wrapper import MapObservations as MapObservations
    from vecwrap.wrapper import VecEnvWrapper as VecEnvWrapper

__version__ = "0.1.0"

_PUBLIC = {
    "build": "vecwrap.building",
    "load": "vecwrap.building",
    "wrap": "vecwrap.building",
    "register": "vecwrap.adapters.gymnasium",
    "to_sb3": "vecwrap.adapters.sb3",
    "from_sb3": "vecwrap.adapters.sb3",
    "evaluate": "vecwrap.evaluating",
    "Evaluation": "vecwrap.evaluating",
    "check": "vecwrap.rules.check",
    "Finding": "vecwrap.rules.check",
    "Clip": "vecwrap.clip",
    "PipelineSpec": "vecwrap.spec",
    "VecEnv": "vecwrap.vec_env",
    "VecEnvWrapper": "vecwrap.wrapper",
    "MapObservations": "vecwrap.wrapper",
    "StepResult": "vecwrap.contract",
    "VecwrapError": "vecwrap.errors",
    "SpecError": "vecwrap.errors",
    "PlanError": "vecwrap.errors",
    "SubEnvError": "vecwrap.errors",
    "BackendError": "vecwrap.errors",
    "register_wrapper": "vecwrap.registry",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'vecwrap' has no attribute {name!r}")
    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value  # later lookups are free
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
