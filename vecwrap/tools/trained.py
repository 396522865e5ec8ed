"""Policies from models saved by Stable-Baselines3 or sb3-contrib, and VecNormalize statistics.

Such files hold pickles: loading one runs whatever code it contains.
"""

from __future__ import annotations

import functools
import json
import pickle
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import SpecError, VecwrapError, did_you_mean, text_of, truncate
from vecwrap.rows.members import name_of
from vecwrap.rows.normalizers import ObservationNormalizer
from vecwrap.sources.import_paths import import_target
from vecwrap.wrappers.clip_action import ClipAction

SUFFIX = ".zip"

# By the names that RL Baselines3 Zoo gives them; MaskablePPO has none there.
ALGORITHMS = {
    "a2c": "stable_baselines3:A2C",
    "ddpg": "stable_baselines3:DDPG",
    "dqn": "stable_baselines3:DQN",
    "ppo": "stable_baselines3:PPO",
    "sac": "stable_baselines3:SAC",
    "td3": "stable_baselines3:TD3",
    "ars": "sb3_contrib:ARS",
    "crossq": "sb3_contrib:CrossQ",
    "maskable_ppo": "sb3_contrib:MaskablePPO",
    "ppo_lstm": "sb3_contrib:RecurrentPPO",
    "qrdqn": "sb3_contrib:QRDQN",
    "tqc": "sb3_contrib:TQC",
    "trpo": "sb3_contrib:TRPO",
}
_ALIASES = {"maskableppo": "maskable_ppo", "recurrentppo": "ppo_lstm", "recurrent_ppo": "ppo_lstm"}

# What names the algorithm in a file: the module of the policy's class, or of the class of its
# buffer.
_OF_MODULES = {
    "stable_baselines3.dqn.": "dqn",
    "stable_baselines3.sac.": "sac",
    "stable_baselines3.td3.": "td3",  # DDPG's too, which is TD3 with other settings
    "sb3_contrib.ars.": "ars",
    "sb3_contrib.crossq.": "crossq",
    "sb3_contrib.qrdqn.": "qrdqn",
    "sb3_contrib.tqc.": "tqc",
    "sb3_contrib.common.maskable.": "maskable_ppo",
    "sb3_contrib.common.recurrent.": "ppo_lstm",
}
_ON_POLICY = "stable_baselines3.common."  # the policies of PPO, A2C and TRPO are the same
# The first that is there.
_OF_KEYS = {
    "clip_range": "ppo",
    "cg_max_steps": "trpo",
    "gae_lambda": "a2c",
}
_ALIKE = ({"td3", "ddpg"},)
_ONLY_FOR_TRAINING = {
    "learning_rate": 0.0,
    "lr_schedule": lambda _: 0.0,
    "clip_range": lambda _: 0.0,
}
_MAX_BYTES = 100_000_000  # of a model's settings


class TrainedPolicy:
    """A saved model: its ``predict``, and the algorithm's name."""

    def __init__(self, model: Any, algorithm: str, where: str) -> None:
        self.algorithm = algorithm

        @functools.wraps(
            model.predict
        )  # it shows the keywords that the model takes, such as action_masks
        def predict(*observations: Any, **keywords: Any) -> Any:
            try:
                return model.predict(*observations, **keywords)
            except Exception as error:
                raise VecwrapError(
                    f"{where} raised {type(error).__name__}: {text_of(error)}"
                ) from error

        self.predict = predict


def load_trained(path: Path, env: VecEnv, algorithm: str | None = None) -> TrainedPolicy:
    """Load a model for an environment; this runs the code in the file.

    Args:
        path: a ``.zip`` that a model's ``save`` wrote.
        env: what it plays.
        algorithm: a name of ``ALGORITHMS``, for a file that does not say it.

    Raises:
        SpecError: it is not such a file, does not say its algorithm, or its spaces are not the
            environment's.
    """
    where = f"--policy {path}"
    name = _algorithm(path, where, algorithm)
    target = ALGORITHMS[name]
    kind: Any = import_target(
        target, f"{where} ({name})", "sb3" if target.startswith("stable_baselines3:") else None
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of settings that are of no use here
            model = kind.load(path, custom_objects=_ONLY_FOR_TRAINING)
    except Exception as error:
        raise SpecError(
            f"{where}: cannot be loaded as a model of {kind.__name__} ({type(error).__name__}: "
            f"{text_of(error)[:500]}); expected a file of a version that is installed, and the "
            "modules that it was made with"
        ) from error
    _refuse_other_spaces(model, env, where)
    return TrainedPolicy(model, kind.__name__, where)


def read_algorithm(path: Path) -> str | None:
    """Return the name of the algorithm of a model file, if recorded; nothing in the file is run.

    Raises:
        ValueError, OSError: it is not a file of a model.
    """
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("data")
        if info.file_size > _MAX_BYTES:
            raise ValueError("its settings are too large")
        data = json.loads(archive.read(info))
    if not isinstance(data, dict) or "policy_class" not in data:
        raise ValueError("it has no policy")
    modules = [_module_of(data.get(key)) for key in ("policy_class", "rollout_buffer_class")]
    for module in modules:
        for beginning, name in _OF_MODULES.items():
            if module.startswith(beginning):
                return name
    if not any(module.startswith(_ON_POLICY) for module in modules):
        return None
    return next((name for key, name in _OF_KEYS.items() if key in data), None)


def _module_of(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("__module__", ""))
    return ""


def _algorithm(path: Path, where: str, requested: str | None) -> str:
    name = None
    if requested is not None:
        name = _ALIASES.get(requested.lower(), requested.lower())
    if name is not None and name not in ALGORITHMS:
        raise SpecError(
            f"--algo: expected one of {', '.join(ALGORITHMS)}, got "
            f"{requested!r}.{did_you_mean(name, ALGORITHMS)}"
        )
    try:
        found = read_algorithm(path)
    except FileNotFoundError:
        raise SpecError(
            f"{where}: there is no such file. Is the path right, relative to {Path.cwd()}?"
        ) from None
    except (OSError, ValueError, KeyError, RecursionError, zipfile.BadZipFile) as error:
        raise SpecError(
            f"{where}: expected a .zip that a Stable-Baselines3 model's save wrote, got another "
            f"file ({error})."
        ) from None
    if name is None and found is None:
        raise SpecError(
            f"{where}: the file does not say which algorithm it is of; name it with --algo: "
            f"{', '.join(ALGORITHMS)}."
        )
    if name is not None and found is not None and name != found and {name, found} not in _ALIKE:
        raise SpecError(f"--algo {requested}: {path} is a model of {found}; leave --algo out.")
    return name or found or ""


# -- spaces ----------------------------------------------------------------------------------------


def _refuse_other_spaces(model: Any, env: VecEnv, where: str) -> None:
    observations = model.observation_space
    actions = model.action_space
    if not _takes(observations, env.single_observation_space):
        raise SpecError(
            f"{where}: expected a model for the pipeline's observations, "
            f"{_short_repr(env.single_observation_space)}, got one for "
            f"{_short_repr(observations)}. Are the wrappers those that it was trained with?"
        )
    here = [env.single_action_space]
    here += [
        wrapper.env.single_action_space for wrapper in env.chain if isinstance(wrapper, ClipAction)
    ]
    if not any(_same_actions(actions, space) for space in here):
        raise SpecError(
            f"{where}: expected a model for the pipeline's actions, "
            f"{_short_repr(env.single_action_space)}, got one for {_short_repr(actions)}. Are the "
            "wrappers those that it was trained with?"
        )


def _short_repr(space: Any) -> str:
    return truncate(" ".join(str(space).split()), 300)


def _takes(model: Any, here: spaces.Space[Any]) -> bool:
    """Whether a model accepts the observations.

    The bounds of numbers may differ, since normalising changes them.
    """
    if isinstance(model, spaces.Dict) and isinstance(here, spaces.Dict):
        return model.keys() == here.keys() and all(_takes(model[key], here[key]) for key in model)
    if isinstance(model, spaces.Box) and isinstance(here, spaces.Box):
        return model.dtype.kind == here.dtype.kind and model.shape in (
            here.shape,
            _with_channels_first(here),
        )
    return bool(model == here)


def _with_channels_first(space: spaces.Box) -> tuple[int, ...]:
    """The shape of an image as Stable-Baselines3 shows it to a model.

    The shape of other observations does not change.
    """
    from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first

    if not is_image_space(space) or is_image_space_channels_first(space):
        return space.shape
    height, width, channels = space.shape
    return channels, height, width


def _same_actions(model: Any, here: spaces.Space[Any]) -> bool:
    if isinstance(model, spaces.Box) and isinstance(here, spaces.Box) and model.shape == here.shape:
        # actions are scaled to them
        return np.allclose(model.low, here.low) and np.allclose(model.high, here.high)
    return bool(model == here)


# -- the statistics of a VecNormalize --------------------------------------------------------------


def use_vec_normalize(path: Path, env: VecEnv) -> None:
    """Use the frozen statistics of a saved VecNormalize; this runs the code in the file.

    Args:
        path: ``vecnormalize.pkl``.
        env: whose wrappers normalise.

    Raises:
        SpecError: it is not such a file, or its statistics are not of these observations.
    """
    where = f"--stats {path}"
    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            saved = pickle.load(file)
        found = {**_by_name(getattr(saved, "obs_rms", {})), "returns": saved.ret_rms}
    except Exception as error:
        raise SpecError(
            f"{where}: expected a file that a VecNormalize's save wrote, or a state of vecwrap, "
            f"got one that cannot be read as such ({type(error).__name__}: {text_of(error)[:500]})."
        ) from error
    used = False
    for wrapper in env.chain[:-1]:
        for name, statistics in wrapper.wrapper_statistics().items():  # type: ignore[attr-defined]
            if name not in found:
                raise SpecError(
                    f"{where}: expected statistics of {name}, got those of {', '.join(found)}."
                )
            one = found[name]
            statistics.load(
                {"mean": one.mean, "var": one.var, "count": float(one.count)}, f"{where}: {name}"
            )
            used = True
    if not used:
        raise SpecError(
            f"{where}: expected a pipeline that normalises, got {env!r}; add the wrapper normalize."
        )


def _by_name(of_observations: Any) -> Mapping[str, Any]:
    if isinstance(of_observations, dict):
        return {name_of(key): one for key, one in of_observations.items()}
    return {name_of(None): of_observations}


def refuse_pickles(policy: str, stats: Path | None) -> None:
    """Refuse files that run code when they are loaded."""
    for option, path in (("--policy", Path(policy)), ("--stats", stats)):
        if path is not None and path.suffix in (SUFFIX, ".pkl"):
            raise SpecError(
                f"{option} {path}: expected nothing that runs code (--no-imports), got a file of "
                "pickles."
            )


def refuse_nothing_learnt(env: VecEnv, policy: str) -> None:
    """Refuse a trained model's observations normalised by statistics that have seen nothing."""
    for wrapper in env.chain[:-1]:
        halves = wrapper.normalizers()  # type: ignore[attr-defined]
        if any(isinstance(half, ObservationNormalizer) for half in halves):
            raise SpecError(
                f"--policy {policy}: the pipeline normalises observations "
                f"({type(wrapper).__name__}), and its statistics have seen nothing yet, unlike "
                "those that the model learnt with; expected them with --stats FILE: the stats.npz "
                "of the training, or the .pkl of its VecNormalize."
            )
