"""The settings of the two Atari lineages, and the check that an environment supports them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import gymnasium
import numpy as np

from vecwrap.errors import PlanError, at_least, one_of
from vecwrap.sources.description import Env, wrappers_of
from vecwrap.wrappers.emulator.openings import meanings_of, refuse_actions

Pooling = Literal["grey of the maximum", "maximum of the greys"]
LifeLoss = bool | Literal["new_game"]

NO_GAME = (
    "atari: expected a game of the Arcade Learning Environment (ale-py), got {}: "
    'take an id such as "PongNoFrameskip-v4", or leave the wrapper out'
)

EPISODES = {
    True: "an episode is one life",
    False: "an episode is a whole game",
    "new_game": "a game ends with its first life",
}


@dataclass(frozen=True)
class Settings:
    """The wrapper's arguments, and what the lineage alone decides."""

    lineage: str
    title: str
    pooling: Pooling
    terminal_on_life_loss: LifeLoss
    fire_reset: bool
    clip_reward: bool
    repeat_action_probability: float
    noop_max: int = 30
    frame_skip: int = 4
    screen_size: int = 84
    direct: bool | None = None

    def summary(self) -> str:
        size = self.screen_size
        noops = "no no-ops"
        if self.noop_max:
            noops = f"1 to {self.noop_max} no-ops open a game"
        frames = "every frame"
        image = "grey"
        if self.frame_skip > 1:
            frames = f"{self.frame_skip} frames a step"
            image = f"{self.pooling} of the last two"
        sticky = "no sticky actions"
        if self.repeat_action_probability:
            sticky = f"sticky actions {self.repeat_action_probability:g}"
        parts = [
            noops,
            frames,
            f"{image}, {size}x{size}",
            EPISODES[self.terminal_on_life_loss],
            "FIRE at each reset where the game knows it"
            if self.fire_reset
            else "no FIRE at resets",
            "rewards clipped to their sign"
            if self.clip_reward
            else "rewards as the game pays them",
            sticky,
        ]
        return f"{self.title}: {'; '.join(parts)}."


LINEAGES = {
    "deepmind": Settings(
        lineage="deepmind",
        title="DeepMind lineage (Mnih et al. 2015, as Baselines and SB3 build it)",
        pooling="grey of the maximum",
        terminal_on_life_loss=True,
        fire_reset=True,
        clip_reward=True,
        repeat_action_probability=0.0,
    ),
    "machado": Settings(
        lineage="machado",
        title="lineage of Machado et al. (2018, as Gymnasium builds it)",
        pooling="maximum of the greys",
        terminal_on_life_loss=False,
        fire_reset=False,
        clip_reward=False,
        repeat_action_probability=0.25,
    ),
}


def resolve_settings(lineage: str = "deepmind", **given: Any) -> Settings:
    """Check the arguments, and use the lineage's default for each that is missing or None."""
    one_of("atari: lineage", lineage, tuple(LINEAGES))
    settings = replace(
        LINEAGES[lineage], **{name: value for name, value in given.items() if value is not None}
    )
    for name, least in (("noop_max", 0), ("frame_skip", 1), ("screen_size", 1)):
        at_least(f"atari: {name}", getattr(settings, name), least)
    if settings.terminal_on_life_loss not in tuple(EPISODES):
        raise PlanError(
            'atari: terminal_on_life_loss: expected true, false or "new_game", got '
            f"{settings.terminal_on_life_loss!r}"
        )
    if not 0.0 <= settings.repeat_action_probability < 1.0:
        raise PlanError(
            "atari: repeat_action_probability: expected 0 or more and less than 1, got "
            f"{settings.repeat_action_probability}"
        )
    return settings


def check_environment(env: Env, settings: Settings) -> None:
    game = env.unwrapped
    if not hasattr(game, "ale") or not hasattr(game, "get_action_meanings"):
        raise PlanError(NO_GAME.format(type(game).__name__))
    check_skip(env, "atari")
    sticky = game.ale.getFloat("repeat_action_probability")
    default = LINEAGES[settings.lineage]
    if not math.isclose(sticky, settings.repeat_action_probability, abs_tol=1e-6):
        raise PlanError(
            "atari: expected an environment with "
            f"repeat_action_probability={settings.repeat_action_probability:g} (sticky actions; "
            f"the default of this lineage is {default.repeat_action_probability:g}), got one with "
            f"{sticky:g}: make it with the former, or give atari "
            f"repeat_action_probability={sticky:g}"
        )
    noop = "give atari noop_max=0" if settings.noop_max else ""
    fire = "give atari fire_reset=False" if settings.fire_reset else ""
    refuse_actions(env, "atari", meanings_of(env, "atari"), noop, fire)
    space = env.observation_space
    colour = (
        isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 3 and space.shape[2] == 3
    )
    grey = isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 2
    if not (colour or (grey and settings.lineage == "machado")) or space.dtype != np.uint8:
        raise PlanError(
            "atari: expected colour images, a Box of shape (height, width, 3) and dtype uint8, got "
            f'{space}: make the environment with obs_type="rgb" and sound_obs=False, and put '
            "wrappers that change images outside of atari"
        )


def check_skip(env: Env, wrapper: str) -> None:
    frameskip = getattr(env.unwrapped, "_frameskip", 1)
    if frameskip != 1:
        raise PlanError(
            f"{wrapper}: expected an environment that skips no frames, got one with "
            f"frameskip={frameskip}, which would skip twice: make it with frameskip=1, or take a "
            "NoFrameskip id"
        )
    for inner in wrappers_of(env):
        # Gymnasium's AtariPreprocessing and MaxAndSkipObservation, SB3's MaxAndSkipEnv
        skip = vars(inner).get("frame_skip", vars(inner).get("_skip", 1))
        if isinstance(skip, int) and skip > 1:
            raise PlanError(
                f"{wrapper}: expected an environment that skips no frames, but "
                f"{type(inner).__name__} inside it skips {skip}: leave one of the two out"
            )
