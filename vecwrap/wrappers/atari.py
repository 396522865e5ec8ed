"""Atari preprocessing as in the literature: the DeepMind lineage, and that of Machado et al."""

from __future__ import annotations

import inspect
from copy import deepcopy
from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator

from vecwrap.errors import PlanError, ResetNeededError
from vecwrap.parts.atari_image import Image
from vecwrap.parts.atari_settings import NO_GAME, Settings, check_environment, settle
from vecwrap.parts.atari_ticks import Direct, Path, Player, ThroughStep, obstacle
from vecwrap.parts.opening import NOOP, is_life_lost, lives_of, meanings_of, opening_of

__all__ = ["Atari"]


def choose_player(env: gymnasium.Env[Any, Any], settings: Settings) -> Player:
    """Access the emulator directly if that is possible and allowed."""
    size, pooling = settings.screen_size, settings.lineage.pooling
    if settings.direct is False:
        return ThroughStep(env, size, pooling)
    reason = obstacle(env)
    if reason is None:
        return Direct(env, size, pooling)
    if settings.direct:
        raise PlanError(f"atari: direct=True is not possible: {reason}. Leave direct out: the stream is the same")
    return ThroughStep(env, size, pooling)


class Atari(gymnasium.Wrapper[Image, Any, Any, Any]):
    """Preprocess one Atari game; the agent sees grey images of shape (84, 84), dtype uint8.

    Two lineages exist in the literature, and their results cannot be compared with each other:

    - ``deepmind`` (Mnih et al. 2015), as in OpenAI Baselines and Stable-Baselines3 (SB3). Observations are the grey of
      the per-channel maximum of two colour frames; an episode ends at every lost life; games that wait for FIRE get it
      at each reset; rewards are clipped to their sign; actions are never sticky.
    - ``machado`` (Machado et al. 2018), as in Gymnasium's ``AtariPreprocessing``. Observations are the maximum of the
      emulator's own greys; an episode is a whole game; rewards are the game's; with probability 0.25 the emulator
      repeats the last action instead of taking the given one.

    Both hold an action for four frames, pool the last two of them, resize by area, and start a game with 1 to 30
    no-ops, drawn as one ``integers(1, noop_max + 1)`` from the environment's own ``np_random``. For equal seeds the
    streams equal those of the libraries named; docs/atari.md lists the differences and the reasons.

    After a lost life the game continues: the unseeded `reset` that follows holds a no-op for one agent step. Any other
    reset, and every seeded one, starts a new game.

    At an episode's end:
        A lost life ends an episode too, unless ``terminal_on_life_loss`` is off; the game then continues.

    Args:
        env: an ALE game with colour images that does not skip frames by itself and repeats actions only as
            ``repeat_action_probability`` specifies. `environment_kwargs` returns the arguments to make it with.
        lineage: ``"deepmind"`` or ``"machado"``.
        noop_max: the maximum number of no-ops (frames) at the start of a game; 0 for none.
        frame_skip: how many frames an agent step lasts; with 1 there is no pooling.
        screen_size: height and width of the observations, in pixels.
        terminal_on_life_loss: whether a lost life ends the episode. Here and below, None means the lineage's default.
        fire_reset: whether each reset, including after a lost life, presses FIRE (action 1) and then action 2, each for
            one agent step, if the game has FIRE.
        clip_reward: whether rewards become their sign: -1, 0 or 1.
        repeat_action_probability: the probability that the emulator repeats the last action (sticky actions).
        direct: whether to bypass ``env.step`` and access the emulator directly, which is faster and gives the same
            stream. None: if only wrappers known to be transparent lie in between; True: always, and raise if other
            wrappers do; False: never.

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
        Machado et al. (2018), Revisiting the Arcade Learning Environment, JAIR 61, https://arxiv.org/abs/1709.06009.
    """

    game_goes_on: bool = False
    not_hashed: ClassVar[frozenset[str]] = frozenset({"direct"})  # the stream is the same either way

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        lineage: Literal["deepmind", "machado"] = "deepmind",
        *,
        noop_max: int = 30,
        frame_skip: int = 4,
        screen_size: int = 84,
        terminal_on_life_loss: bool | None = None,
        fire_reset: bool | None = None,
        clip_reward: bool | None = None,
        repeat_action_probability: float | None = None,
        direct: bool | None = None,
    ) -> None:
        super().__init__(env)
        settings = settle(
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
        self._settings = settings
        self._player = choose_player(env, settings)
        self._opening = opening_of(meanings_of(env, "atari")) if settings.fire_reset else ()
        self.game_goes_on = False
        self._lives = 0
        self._has_reset = False
        self.observation_space = gymnasium.spaces.Box(0, 255, (screen_size, screen_size), np.uint8)

    @property
    def frame_skip(self) -> int:
        """How many frames an agent step lasts; a monitor writes it into the header of its file."""
        return self._settings.frame_skip

    @property
    def path(self) -> Path:
        """How the emulator is accessed."""
        return self._player.path

    def describe(self) -> str:
        """Describe how this layer accesses the emulator."""
        if self.path == "direct":
            return "Accesses the emulator directly: only wrappers known to be transparent lie in between."
        return f"Goes through env.step: {obstacle(self.env) or 'direct=False'}."

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Image, dict[str, Any]]:
        """Start an episode: the next life if the game continues and no seed is given, else a new game.

        Args:
            seed: seeds the game and its no-ops; a seeded reset always starts a new game.
            options: passed to the environment when a new game starts.

        Returns:
            The observation, (84, 84) uint8, and the environment's last info; for a new game, including the keys that
            only a reset reports (``seeds``).
        """
        goes_on = self.game_goes_on and seed is None
        info = self._next_life(options) if goes_on else self._new_game(seed, options)
        for action in self._opening:
            _, terminated, truncated, step_info = self._player.play(action, self._settings.frame_skip)
            if terminated or truncated:
                info = self._new_game(seed, options)
            elif self._life_lost():
                info = self._next_life(options)
            else:
                info = {**info, **step_info}
        self._has_reset = True
        return self._player.image(), info

    def step(self, action: Any) -> tuple[Image, float, bool, bool, dict[str, Any]]:
        """Hold an action for ``frame_skip`` frames, or until the game ends.

        Args:
            action: an element of the environment's action space.

        Returns:
            The observation, (84, 84) uint8: the last two frames of this step pooled, or its only one; the reward;
            whether the episode terminated (game over, or a life lost) or was truncated; the environment's last info.

        Raises:
            ResetNeededError: `reset` has not been called.
        """
        if not self._has_reset:
            raise ResetNeededError("atari: expected a reset before the first step, got step(); call reset() first")
        reward, terminated, truncated, info = self._player.play(action, self._settings.frame_skip)
        lost = self._life_lost()
        self.game_goes_on = lost and not (terminated or truncated)
        if self._settings.clip_reward:
            reward = float(np.sign(reward))
        return self._player.image(), reward, terminated or lost, truncated, info

    def _new_game(self, seed: int | None, options: dict[str, Any] | None) -> dict[str, Any]:
        """Start a game with 1 to ``noop_max`` no-op frames."""
        info = self._player.reset(seed, deepcopy(options))  # what lies inside may write into its options
        noop_max = self._settings.noop_max
        noops = int(self.env.unwrapped.np_random.integers(1, noop_max + 1)) if noop_max else 0
        for _ in range(noops):
            _, terminated, truncated, step_info = self._player.play(NOOP, ticks=1)
            over = terminated or truncated
            info = self._player.reset(seed, deepcopy(options)) if over else {**info, **step_info}
        self._lives = lives_of(self.env)
        self.game_goes_on = False
        return info

    def _next_life(self, options: dict[str, Any] | None) -> dict[str, Any]:
        """Continue the game after a lost life, with a no-op; if that ends the game, start a new one."""
        _, terminated, truncated, info = self._player.play(NOOP, self._settings.frame_skip)
        if terminated or truncated:
            return self._new_game(None, options)
        self._lives = lives_of(self.env)
        self.game_goes_on = False
        return info

    def _life_lost(self) -> bool:
        """Whether a life was lost since the lives were last counted, and this ends an episode."""
        before, self._lives = self._lives, lives_of(self.env)
        return self._settings.terminal_on_life_loss and is_life_lost(before, self._lives)

    # -- what the plan asks -------------------------------------------------------------------------------------------

    @classmethod
    def environment_kwargs(cls, env_spec: EnvSpec, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the arguments to make an id with, so that it skips no frames and only this layer sets stickiness.

        Args:
            env_spec: the environment's registration.
            args: the layer's positional arguments.
            kwargs: the layer's keyword arguments.

        Returns:
            Keyword arguments for ``gymnasium.make``: of these two, those that the environment's constructor accepts.
            `Atari` itself checks the environment that was made.

        Raises:
            PlanError: the arguments do not fit, or the id is not an Atari game.

        Example:
            >>> import ale_py, gymnasium
            >>> gymnasium.register_envs(ale_py)
            >>> Atari.environment_kwargs(gymnasium.spec("ALE/Pong-v5"))
            {'frameskip': 1, 'repeat_action_probability': 0.0}
        """
        settings = settle(*args, **kwargs)
        wanted = {"frameskip": 1, "repeat_action_probability": settings.repeat_action_probability}
        entry_point = env_spec.entry_point
        if entry_point is None or entry_point == "ale_py.env:AtariEnv":
            return wanted
        make: Any = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
        if isinstance(make, type) and not hasattr(make, "get_action_meanings"):
            raise PlanError(NO_GAME.format(f'"{env_spec.id}" ({make.__name__})'))
        parameters = inspect.signature(make).parameters.values()
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        names = {parameter.name for parameter in parameters}
        return {name: value for name, value in wanted.items() if takes_all or name in names}

    @classmethod
    def in_words(cls, *args: Any, **kwargs: Any) -> str:
        """Describe in one sentence which lineage this is, and what it does.

        Example:
            >>> Atari.in_words(noop_max=0)
            'DeepMind lineage (Mnih et al. 2015, as Baselines and SB3 build it): no no-ops; 4 frames a step;
            grey of the maximum of the last two, 84x84; an episode is one life; FIRE at each reset where the game
            knows it; rewards clipped to their sign; no sticky actions.'
        """
        return settle(*args, **kwargs).in_words()

    @classmethod
    def filled_in(cls, **arguments: Any) -> dict[str, Any]:
        """Return the arguments with the lineage's defaults filled in, for the resolved pipeline.

        Example:
            >>> sorted(Atari.filled_in(lineage="machado").items())[:2]
            [('clip_reward', False), ('fire_reset', False)]
        """
        settings = settle(**arguments)
        decided = ("terminal_on_life_loss", "fire_reset", "clip_reward", "repeat_action_probability")
        return {name: getattr(settings, name) for name in decided}

    @classmethod
    def in_evaluation(cls, **arguments: Any) -> dict[str, Any]:
        """An evaluation plays whole games, with unclipped rewards."""
        return {"terminal_on_life_loss": False, "clip_reward": False}
