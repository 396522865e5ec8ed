"""What ``to_torch`` returns; importing it imports PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from vecwrap.adapters.torch_transfer import TensorConverter
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import SubEnvError, hide_internal_frames

__all__ = ["TorchVecEnv"]

TensorTuple = tuple[Any, Any, Any, Any, dict[str, Any]]  # Gymnasium's five values, in tensors
_Result = TypeVar("_Result", bound=tuple[Any, ...])

_SHARED = (  # attributes that never change
    "num_envs",
    "single_observation_space",
    "observation_space",
    "single_action_space",
    "action_space",
    "metadata",
    "render_mode",
    "autoreset_mode",
    "pipeline",
    "plan",
    "backend",
    "num_workers",
    "possible_agents",
    "row_games",
    "row_agents",
    "core",
    "call_state",
)


class TorchVecEnv(VecEnv):
    """An environment whose calls take and return tensors; ``env`` is the one with arrays.

    It is not a wrapper, so the chain, its statistics and its saved states are those of ``env``.
    """

    array_converter: TensorConverter  # type: ignore[assignment]

    def __init__(self, env: VecEnv, converter: TensorConverter) -> None:
        self.env: VecEnv = env
        self.array_converter = converter
        self.device: Any = converter.device
        for name in _SHARED:
            setattr(self, name, getattr(env, name))

    # -- resets and steps --------------------------------------------------------------------------

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        return self._results(self.env.reset, seed=seed, options=self._with_array(options))

    def reset_async(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.env.reset_async(seed=seed, options=self._with_array(options))

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        return self._results(self.env.reset_wait, timeout)

    def step(self, actions: Any) -> TensorTuple:
        converter = self.array_converter
        results = self.call_state.results
        try:
            results.dense_final_obs = True
            result: TensorTuple = converter.results(self.env.step(converter.to_numpy(actions)))
        except Exception as error:
            self._convert_others(error)
            raise
        finally:
            results.dense_final_obs = False
        return result

    def step_async(self, actions: Any) -> None:
        self.env.step_async(self.array_converter.to_numpy(actions))

    def step_wait(self, timeout: float | None = None) -> TensorTuple:
        return self._results(self.env.step_wait, timeout)

    def send(self, actions: Any, env_ids: Any = None) -> None:
        converter = self.array_converter
        self.env.send(converter.to_numpy(actions), converter.to_numpy(env_ids))

    def recv(self, timeout: float | None = None, *, min: int | None = None) -> TensorTuple:
        return self._results(self.env.recv, timeout, min=min)

    def _results(self, call: Callable[..., _Result], *args: Any, **kwargs: Any) -> _Result:
        try:
            result: _Result = self.array_converter.results(call(*args, **kwargs))
            return result
        except Exception as error:
            self._convert_others(error)
            raise

    def _convert_others(self, error: Exception) -> None:
        """Give an error tensors of the rows that it did not concern."""
        if isinstance(error, SubEnvError) and error.others is not None:
            error.others = self.array_converter.results(error.others)
        hide_internal_frames(error)

    def _with_array(self, options: dict[str, Any] | None) -> dict[str, Any] | None:
        if options is None or "reset_mask" not in options:
            return options
        return {**options, "reset_mask": self.array_converter.to_numpy(options["reset_mask"])}

    # -- tensors of what is known ------------------------------------------------------------------

    @property
    def to_move(self) -> Any:
        return self.array_converter.from_numpy(self.env.to_move)

    @property
    def alive(self) -> Any:
        return self.array_converter.from_numpy(self.env.alive)

    def action_masks(self) -> Any:
        return self.array_converter.from_numpy(self.env.action_masks())

    def get_original_obs(self) -> Any:
        return self.array_converter.from_numpy(self.env.get_original_obs())

    def get_original_reward(self) -> Any:
        return self.array_converter.from_numpy(self.env.get_original_reward())

    # -- forwarding --------------------------------------------------------------------------------

    @property
    def chain(self) -> tuple[VecEnv, ...]:
        return self.env.chain

    @property
    def training(self) -> bool:
        return self.env.training

    @training.setter
    def training(self, mode: bool) -> None:
        self.env.training = mode

    @property
    def unwrapped(self) -> VecEnv:  # type: ignore[override]
        return self.env.unwrapped

    @property
    def spec(self) -> Any:  # type: ignore[override]
        return self.env.spec

    @property
    def closed(self) -> bool:  # type: ignore[override]
        return self.env.closed

    @property  # type: ignore[misc]
    def np_random(self) -> Any:
        return self.env.np_random

    @property
    def np_random_seed(self) -> Any:
        return self.env.np_random_seed

    @property
    def viewer_open(self) -> bool:
        return self.env.viewer_open

    def render(self, mode: None = None) -> tuple[Any, ...]:
        return self.env.render(mode)

    def picture(self) -> Any:
        return self.env.picture()

    def _repr_html_(self) -> str | None:
        return self.env._repr_html_()

    def close(  # type: ignore[override]
        self, timeout: float | None = None, terminate: bool = False
    ) -> None:
        self.env.close(timeout=timeout, terminate=terminate)

    def __repr__(self) -> str:
        return f"{repr(self.env).removesuffix('>')}, tensors on {self.device}>"
