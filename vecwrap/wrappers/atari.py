"""Atari preprocessing as in the literature: the DeepMind lineage, and that of Machado et al."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator

from vecwrap.errors import PlanError, ResetNeededError
from vecwrap.sources.declares import Declares
from vecwrap.wrappers.emulator.lineages import NO_GAME, check_environment, resolve_settings
from vecwrap.wrappers.emulator.openings import (
    Begun,
    Lives,
    Stepped,
    meanings_of,
    noops,
    opening_of,
    play_opening,
)
from vecwrap.wrappers.emulator.play import Image, Path, choose_player, obstacle


class Atari(Declares, Lives):
    """Preprocess one Atari game; the agent sees grey images of shape (84, 84), dtype uint8.

    Two lineages exist in the literature, and their results cannot be compared with each other:

    - ``deepmind`` (Mnih et al. 2015), as in OpenAI Baselines and Stable-Baselines3 (SB3).
      Observations are the grey of the per-channel maximum of two colour frames; an episode ends at
      every lost life; games that wait for FIRE get it at each reset; rewards are clipped to their
      sign; actions are never sticky.
    - ``machado`` (Machado et al. 2018), as in Gymnasium's ``AtariPreprocessing``. Observations are
      the maximum of the emulator's own greys; an episode is a whole game; rewards are the game's;
      with probability 0.25 the emulator repeats the last action instead of taking the given one.

    Both hold an action for four frames, pool the last two of them, resize by area, and start a game
    with 1 to 30 no-ops, drawn as one ``integers(1, noop_max + 1)`` from the environment's own
    ``np_random``. For equal seeds the streams equal those of the libraries named; docs/atari.md
    lists the differences and the reasons.

    After a lost life the game continues: the unseeded `reset` that follows holds a no-op (action 0,
    or zeros if actions are continuous) for one agent step. Any other reset, and every seeded one,
    starts a new game.

    At an episode's end:
        A lost life ends an episode too, unless ``terminal_on_life_loss`` is off; the game then
        continues.

    Args:
        env: an ALE game with colour images that does not skip frames by itself and repeats actions
            only as ``repeat_action_probability`` specifies. `environment_kwargs` returns the
            arguments to make it with.
        lineage: ``"deepmind"`` or ``"machado"``.
        noop_max: the maximum number of no-ops (frames) at the start of a game; 0 for none.
        frame_skip: how many frames an agent step lasts; with 1 there is no pooling.
        screen_size: height and width of the observations, in pixels.
        terminal_on_life_loss: whether a lost life ends the episode. ``"new_game"``: as in
            Gymnasium, it also ends the agent step at once, and the next reset starts a new game.
            Here and below, None means the lineage's default.
        fire_reset: whether each reset, including after a lost life, presses FIRE (action 1) and
            then action 2, each for one agent step, if the game has FIRE.
        clip_reward: whether rewards become their sign: -1, 0 or 1.
        repeat_action_probability: the probability that the emulator repeats the last action (sticky
            actions).
        direct: whether to bypass ``env.step`` and access the emulator directly, which is faster and
            gives the same stream. None: if only wrappers known to be transparent lie in between;
            True: always, and raise if other wrappers do; False: never.

    Attributes:
        game_goes_on: True from the end of an episode by a lost life until the next reset.

    Raises:
        PlanError: the arguments or the environment do not fit, or OpenCV cannot be imported.

    Example:
        >>> import ale_py, gymnasium
        >>> gymnasium.register_envs(ale_py)
        >>> env = Atari(gymnasium.make("PongNoFrameskip-v4"))
        >>> observation, info = env.reset(seed=1)
        >>> observation.shape, observation.dtype
        ((84, 84), dtype('uint8'))
        >>> observation, reward, terminated, truncated, info = env.step(2)
        >>> sorted(info)
        ['episode_frame_number', 'frame_number', 'lives']
        >>> env.close()

    References:
        Mnih et al. (2015), Human-level control through deep reinforcement learning, Nature 518.
        Machado et al. (2018), Revisiting the Arcade Learning Environment, JAIR 61,
        https://arxiv.org/abs/1709.06009.
    """

    # The stream is the same either way.
    not_hashed: ClassVar[frozenset[str]] = frozenset({"direct"})

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        lineage: Literal["deepmind", "machado"] = "deepmind",
        *,
        noop_max: int = 30,
        frame_skip: int = 4,
        screen_size: int = 84,
        terminal_on_life_loss: bool | Literal["new_game"] | None = None,
        fire_reset: bool | None = None,
        clip_reward: bool | None = None,
        repeat_action_probability: float | None = None,
        direct: bool | None = None,
    ) -> None:
        settings = resolve_settings(
            lineage,
            noop_max=noop_max,
            frame_skip=frame_skip,
            screen_size=screen_size,
            terminal_on_life_loss=terminal_on_life_loss,
            fire_reset=fire_reset,
            clip_reward=clip_reward,
            repeat_action_probability=repeat_action_probability,
            direct=direct,
        )
        check_environment(env, settings)
        super().__init__(env)
        self._settings = settings
        self._player = choose_player(env, settings)
        if settings.fire_reset:
            self._opening = opening_of(meanings_of(env, "atari"))
        else:
            self._opening = ()
        self._has_reset = False
        self.observation_space = gymnasium.spaces.Box(0, 255, (screen_size, screen_size), np.uint8)

    @property
    def frame_skip(self) -> int:
        return self._settings.frame_skip

    @property
    def path(self) -> Path:
        return self._player.path

    def describe(self) -> str:
        if self.path == "direct":
            return (
                "Accesses the emulator directly: only wrappers known to be transparent lie in "
                "between."
            )
        return f"Goes through env.step: {obstacle(self.env) or 'direct=False'}."

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Image, dict[str, Any]]:
        _, info = play_opening(
            super().reset, super().step, self._opening, seed, options, lambda: self.game_goes_on
        )
        self._has_reset = True
        return self._player.image(), info

    def step(self, action: Any) -> tuple[Image, float, bool, bool, dict[str, Any]]:
        if not self._has_reset:
            raise ResetNeededError(
                "atari: expected a reset before the first step, got step(); call reset() first"
            )
        _, reward, terminated, truncated, info = super().step(action)
        if self._settings.clip_reward:
            reward = float(np.sign(reward))
        return self._player.image(), reward, terminated, truncated, info

    def _new_game(self, seed: int | None, options: dict[str, Any] | None) -> Begun:
        opening = noops(self.env, self._settings.noop_max)
        return play_opening(self._player.reset, self._player.play, opening, seed, options)

    def _act(self, action: Any) -> Stepped:
        one_life = self._settings.terminal_on_life_loss == "new_game"
        return self._player.play(action, self._settings.frame_skip, one_life=one_life)

    def _life_lost(self) -> bool:
        return super()._life_lost() and self._settings.terminal_on_life_loss is True

    @classmethod
    def environment_kwargs(cls, env_spec: EnvSpec, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the constructor arguments for an id: no frame skip, and this wrapper's stickiness.

        Of the two, those that the environment's constructor accepts; `Atari` checks the environment
        that was made.
        """
        settings = resolve_settings(*args, **kwargs)
        wanted = {"frameskip": 1, "repeat_action_probability": settings.repeat_action_probability}
        entry_point = env_spec.entry_point
        if entry_point is None or entry_point == "ale_py.env:AtariEnv":
            return wanted
        if isinstance(entry_point, str):
            make: Any = load_env_creator(entry_point)
        else:
            make = entry_point
        if isinstance(make, type) and not hasattr(make, "get_action_meanings"):
            raise PlanError(NO_GAME.format(f'"{env_spec.id}" ({make.__name__})'))
        parameters = inspect.signature(make).parameters.values()
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        names = {parameter.name for parameter in parameters}
        return {name: value for name, value in wanted.items() if takes_all or name in names}

    @classmethod
    def summary(cls, *args: Any, **kwargs: Any) -> str:
        return resolve_settings(*args, **kwargs).summary()

    @classmethod
    def with_defaults(cls, **arguments: Any) -> dict[str, Any]:
        settings = resolve_settings(**arguments)
        decided = (
            "terminal_on_life_loss",
            "fire_reset",
            "clip_reward",
            "repeat_action_probability",
        )
        return {name: getattr(settings, name) for name in decided}

    @classmethod
    def in_evaluation(cls, **arguments: Any) -> dict[str, Any]:
        """An evaluation plays whole games, with unclipped rewards."""
        return {"terminal_on_life_loss": False, "clip_reward": False}
