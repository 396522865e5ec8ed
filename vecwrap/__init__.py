"""Vectorised RL environments: pluggable backends under a chain of composable wrappers.

Every worker process imports this module, so it stays light: names are imported on first use, and
nothing heavier than the name table below is loaded up front.

Example:
    >>> import vecwrap
    >>> env = vecwrap.build("CartPole-v1", n=2, wrappers=["framestack:4"], backend="dummy")
    >>> observations, infos = env.reset(seed=1)
    >>> observations.shape
    (2, 4, 4)
    >>> env.close()
"""

from importlib import import_module
from sys import _getframe
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vecwrap import errors as errors
    from vecwrap import testing as testing
    from vecwrap import wrappers as wrappers
    from vecwrap.adapters.gymnasium import register as register
    from vecwrap.adapters.sb3 import from_sb3 as from_sb3
    from vecwrap.adapters.sb3 import to_sb3 as to_sb3
    from vecwrap.adapters.tianshou import to_tianshou as to_tianshou
    from vecwrap.adapters.torch import to_torch as to_torch
    from vecwrap.env.vec_env import VecEnv as VecEnv
    from vecwrap.env.wrapper import VecEnvWrapper as VecEnvWrapper
    from vecwrap.errors import BackendError as BackendError
    from vecwrap.errors import PlanError as PlanError
    from vecwrap.errors import SpecError as SpecError
    from vecwrap.errors import SubEnvError as SubEnvError
    from vecwrap.errors import VecwrapError as VecwrapError
    from vecwrap.learning.returns import gae as gae
    from vecwrap.learning.returns import nstep_returns as nstep_returns
    from vecwrap.learning.rollout_batch import RolloutBatch as RolloutBatch
    from vecwrap.learning.rollouts import rollouts as rollouts
    from vecwrap.learning.transitions import TransitionBatch as TransitionBatch
    from vecwrap.learning.transitions import transitions as transitions
    from vecwrap.live.notebook import watch as watch
    from vecwrap.pipeline.build import build as build
    from vecwrap.pipeline.build import load as load
    from vecwrap.pipeline.build import wrap as wrap
    from vecwrap.pipeline.check import check as check
    from vecwrap.pipeline.findings import Finding as Finding
    from vecwrap.pipeline.registry import register_wrapper as register_wrapper
    from vecwrap.pipeline.spec import PipelineSpec as PipelineSpec
    from vecwrap.rows.step_result import StepResult as StepResult
    from vecwrap.selfplay.pool import OpponentPool as OpponentPool
    from vecwrap.selfplay.tournament import Tournament as Tournament
    from vecwrap.selfplay.tournament import tournament as tournament
    from vecwrap.sources.declares import Declares as Declares
    from vecwrap.tools.evaluate import Evaluation as Evaluation
    from vecwrap.tools.evaluate import evaluate as evaluate

__version__ = "0.1.0"

_PUBLIC = {
    "build": "vecwrap.pipeline.build",
    "load": "vecwrap.pipeline.build",
    "wrap": "vecwrap.pipeline.build",
    "register": "vecwrap.adapters.gymnasium",
    "to_sb3": "vecwrap.adapters.sb3",
    "from_sb3": "vecwrap.adapters.sb3",
    "to_tianshou": "vecwrap.adapters.tianshou",
    "to_torch": "vecwrap.adapters.torch",
    "rollouts": "vecwrap.learning.rollouts",
    "RolloutBatch": "vecwrap.learning.rollout_batch",
    "transitions": "vecwrap.learning.transitions",
    "TransitionBatch": "vecwrap.learning.transitions",
    "gae": "vecwrap.learning.returns",
    "nstep_returns": "vecwrap.learning.returns",
    "evaluate": "vecwrap.tools.evaluate",
    "tournament": "vecwrap.selfplay.tournament",
    "Tournament": "vecwrap.selfplay.tournament",
    "Evaluation": "vecwrap.tools.evaluate",
    "watch": "vecwrap.live.notebook",
    "check": "vecwrap.pipeline.check",
    "Finding": "vecwrap.pipeline.findings",
    "OpponentPool": "vecwrap.selfplay.pool",
    "PipelineSpec": "vecwrap.pipeline.spec",
    "VecEnv": "vecwrap.env.vec_env",
    "VecEnvWrapper": "vecwrap.env.wrapper",
    "Declares": "vecwrap.sources.declares",
    "StepResult": "vecwrap.rows.step_result",
    "VecwrapError": "vecwrap.errors",
    "SpecError": "vecwrap.errors",
    "PlanError": "vecwrap.errors",
    "SubEnvError": "vecwrap.errors",
    "BackendError": "vecwrap.errors",
    "register_wrapper": "vecwrap.pipeline.registry",
}

__all__ = ["__version__", *_PUBLIC]

# Public modules, as in vecwrap.wrappers.monitor.Monitor.
_MODULES = (
    "errors",
    "testing",
    "wrappers",
)

if not TYPE_CHECKING:  # so that type checkers refuse names that are not there

    def __getattr__(name: str) -> Any:
        if name in _PUBLIC:
            value = getattr(import_module(_PUBLIC[name]), name)
            globals()[name] = value  # later lookups are free
            return value
        if name in _MODULES:
            return import_module(f"vecwrap.{name}")
        said = _remedy(name)
        if said.startswith("Here it is") and _getframe(1).f_code.co_name == "_handle_fromlist":
            # `from vecwrap import name` would replace the text of an AttributeError with its own
            raise ImportError(f"cannot import name {name!r} from 'vecwrap'. {said}", name=name)
        raise AttributeError(
            f"module 'vecwrap' has no attribute {name!r}. {said}".removesuffix(". ")
        )


def _remedy(name: str) -> str:
    from difflib import get_close_matches

    from vecwrap.env.hints import IMPORT_HINTS, hint

    if here := hint(IMPORT_HINTS, name):
        return f"Here it is {here}"
    near = get_close_matches(name, __all__, n=1)
    if near:
        return f"Did you mean vecwrap.{near[0]}?"
    return ""


def __dir__() -> list[str]:
    return sorted(__all__)
