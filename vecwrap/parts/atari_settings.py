"""The settings of the two Atari lineages, and the check that an environment supports them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import gymnasium
import numpy as np

from vecwrap.env_chain import Env, wrappers_of
from vecwrap.errors import PlanError, did_you_mean
from vecwrap.parts.opening import NOOP, knows_fire, meanings_of, opening_of

__all__ = [
    "LINEAGES",
    "NO_GAME",
    "Lineage",
    "Pooling",
    "Settings",
    "check_environment",
    "check_skip",
    "settle",
]

Pooling = Literal["grey of the maximum", "maximum of the greys"]


@dataclass(frozen=True)
class Lineage:
    """A lineage's defaults."""

    name: str
    words: str
    pooling: Pooling
    terminal_on_life_loss: bool
    fire_reset: bool
    clip_reward: bool
    repeat_action_probability: float


DEEPMIND = Lineage(
    name="deepmind",
    words="DeepMind lineage (Mnih et al. 2015, as Baselines and SB3 build it)",
    pooling="grey of the maximum",
    terminal_on_life_loss=True,
    fire_reset=True,
    clip_reward=True,
    repeat_action_probability=0.0,
)
MACHADO = Lineage(
    name="machado",
    words="lineage of Machado et al. (2018, as Gymnasium builds it)",
    pooling="maximum of the greys",
    terminal_on_life_loss=False,
    fire_reset=False,
    clip_reward=False,
    repeat_action_probability=0.25,
)
LINEAGES = {lineage.name: lineage for lineage in (DEEPMIND, MACHADO)}

NO_GAME = (
    "atari: expected a game of the Arcade Learning Environment (ale-py), got {}: "
    'take an id such as "PongNoFrameskip-v4", or leave the layer out'
)


@dataclass(frozen=True)
class Settings:
    """The layer's arguments, checked, with the lineage's defaults filled in."""

    lineage: Lineage
    noop_max: int
    frame_skip: int
    screen_size: int
    terminal_on_life_loss: bool
    fire_reset: bool
    clip_reward: bool
    repeat_action_probability: float
    direct: bool | None

    def in_words(self) -> str:
        """Describe in one sentence which lineage this is, and what it does."""
        skip, size, sticky = self.frame_skip, self.screen_size, self.repeat_action_probability
        parts = [
            f"1 to {self.noop_max} no-ops open a game" if self.noop_max else "no no-ops",
            f"{skip} frames a step" if skip > 1 else "every frame",
            (f"{self.lineage.pooling} of the last two, " if skip > 1 else "grey, ") + f"{size}x{size}",
            "an episode is one life" if self.terminal_on_life_loss else "an episode is a whole game",
            "FIRE at each reset where the game knows it" if self.fire_reset else "no FIRE at resets",
            "rewards clipped to their sign" if self.clip_reward else "rewards as the game pays them",
            f"sticky actions {sticky:g}" if sticky else "no sticky actions",
        ]
        return f"{self.lineage.words}: {'; '.join(parts)}."


def settle(
    lineage: str = DEEPMIND.name,
    *,
    noop_max: int = 30,
    frame_skip: int = 4,
    screen_size: int = 84,
    terminal_on_life_loss: bool | None = None,
    fire_reset: bool | None = None,
    clip_reward: bool | None = None,
    repeat_action_probability: float | None = None,
    direct: bool | None = None,
) -> Settings:
    """Check the layer's arguments and fill in the lineage's defaults.

    Raises:
        PlanError: an argument is out of range.
    """
    if lineage not in LINEAGES:
        raise PlanError(
            f'atari: lineage: expected {" or ".join(LINEAGES)}, got "{lineage}".{did_you_mean(lineage, LINEAGES)}'
        )
    default = LINEAGES[lineage]
    settings = Settings(
        lineage=default,
        noop_max=noop_max,
        frame_skip=frame_skip,
        screen_size=screen_size,
        terminal_on_life_loss=_either(terminal_on_life_loss, default.terminal_on_life_loss),
        fire_reset=_either(fire_reset, default.fire_reset),
        clip_reward=_either(clip_reward, default.clip_reward),
        repeat_action_probability=(
            default.repeat_action_probability if repeat_action_probability is None else repeat_action_probability
        ),
        direct=direct,
    )
    for name, least in (("noop_max", 0), ("frame_skip", 1), ("screen_size", 1)):
        if getattr(settings, name) < least:
            raise PlanError(f"atari: {name}: expected {least} or more, got {getattr(settings, name)}")
    if not 0.0 <= settings.repeat_action_probability < 1.0:
        raise PlanError(
            "atari: repeat_action_probability: expected 0 or more and less than 1, got "
            f"{settings.repeat_action_probability}"
        )
    return settings


def check_environment(env: Env, settings: Settings) -> None:
    """Check that an environment can be played as the settings say.

    Raises:
        PlanError: it is not an Atari game, has no colour images, has unusual actions, or skips frames or repeats
            actions by itself.
    """
    game = env.unwrapped
    if not hasattr(game, "ale") or not hasattr(game, "get_action_meanings"):
        raise PlanError(NO_GAME.format(type(game).__name__))
    check_skip(env, "atari")
    sticky = game.ale.getFloat("repeat_action_probability")
    if not math.isclose(sticky, settings.repeat_action_probability, abs_tol=1e-6):
        raise PlanError(
            f"atari: expected an environment with repeat_action_probability={settings.repeat_action_probability:g} "
            f"(sticky actions; the default of this lineage is {settings.lineage.repeat_action_probability:g}), got one "
            f"with {sticky:g}: make it with the former, or give atari repeat_action_probability={sticky:g}"
        )
    _check_actions(env, settings)
    space = env.observation_space
    colour = isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 3 and space.shape[2] == 3
    grey = isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 2
    if not (colour or (grey and settings.lineage is MACHADO)) or space.dtype != np.uint8:
        raise PlanError(
            f"atari: expected colour images, a Box of shape (height, width, 3) and dtype uint8, got {space}: make the "
            'environment with obs_type="rgb" and sound_obs=False, and put layers that change images outside of atari'
        )


def _either(given: bool | None, default: bool) -> bool:
    return default if given is None else given


def check_skip(env: Env, layer: str) -> None:
    """Raise PlanError if an environment, or a wrapper of it, skips frames by itself; ``layer`` is for the error."""
    frameskip = getattr(env.unwrapped, "_frameskip", 1)
    if frameskip != 1:
        raise PlanError(
            f"{layer}: expected an environment that skips no frames, got one with frameskip={frameskip}, which would "
            "skip twice: make it with frameskip=1, or take a NoFrameskip id"
        )
    for inner in wrappers_of(env):
        # Gymnasium's AtariPreprocessing and MaxAndSkipObservation, SB3's MaxAndSkipEnv
        skip = vars(inner).get("frame_skip", vars(inner).get("_skip", 1))
        if isinstance(skip, int) and skip > 1:
            raise PlanError(
                f"{layer}: expected an environment that skips no frames, but {type(inner).__name__} inside it skips "
                f"{skip}: leave one of the two out"
            )


def _check_actions(env: Env, settings: Settings) -> None:
    if not isinstance(env.action_space, gymnasium.spaces.Discrete):
        raise PlanError(
            f"atari: expected discrete actions, got {env.action_space}: make the environment with continuous=False"
        )
    meanings = meanings_of(env, "atari")
    fires = bool(settings.fire_reset and opening_of(meanings))
    if meanings[NOOP] != "NOOP" or (fires and not knows_fire(meanings)):
        raise PlanError(
            f"atari: expected the actions to begin with NOOP{', FIRE and one more' if fires else ''}, got "
            f"{', '.join(meanings)}: make the environment with full_action_space=True"
        )
