"""The innermost vector environment: a call state of its own, before its rows and their runner."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, final

from gymnasium.vector import AutoresetMode

from vecwrap.env import games
from vecwrap.env.call_state import CallState
from vecwrap.env.core import Core
from vecwrap.env.fast_path import FastPath
from vecwrap.env.options import RestartOptions, option_names
from vecwrap.env.runner import Runner
from vecwrap.env.vec_env import VecEnv
from vecwrap.interrupts import at_exit
from vecwrap.rows.step_result import Autoreset, AutoresetName
from vecwrap.sources.source_factories import Factory

__all__ = ["Backend"]


@final
class Backend(VecEnv):
    """The innermost vector environment: its rows are in a runner's hands.

    Args:
        runner: where the sub-environments run, with the options of its own.
        factories: one callable for each sub-environment, which returns a ``gymnasium.Env``; of
            engines or games one ``EngineFactory`` or ``GameFactory``
            (``vecwrap.sources.source_factories``) for each.
        autoreset: ``"same_step"``, ``"next_step"``, ``"disabled"`` or ``"episodic"``.
        copy: return fresh arrays with each result; False returns views that the next step
            overwrites.
        batch_size: how many rows ``recv`` waits for, of engines and games a multiple of their rows;
            None waits for all that are pending.
        start_index: added to the index of each sub-environment in seeds (for parts of a larger
            vector).
        seed: used by the first reset if it is given none.
        debug: check each action and observation against its space.
        restarts: options of ``vecwrap.env.options.RestartOptions``, such as
            ``on_failure="restart"``.

    Raises:
        PlanError: no sub-environments, an impossible ``batch_size``, or restart options that do not
            fit.
        SubEnvError: a sub-environment raised while it was being created.
        BackendError: a worker could not be started, or the spaces of the sub-environments differ.

    >>> import gymnasium
    >>> from vecwrap.backends.dummy import Dummy
    >>> with Backend(Dummy(), [lambda: gymnasium.make("CartPole-v1")] * 2) as env:
    ...     observations, infos = env.reset(seed=1)
    >>> observations.shape
    (2, 4)

    A runner that says which sub-environments are stepped, derived from an existing one
    (docs/adding-a-backend.md writes one from scratch):

    >>> import vecwrap
    >>> class Noting(Dummy):
    ...     name = "noting"
    ...
    ...     def send(self, env_ids):
    ...         print("steps", env_ids)
    ...         super().send(env_ids)
    >>> with vecwrap.build("CartPole-v1", n=3, backend=Noting) as env:
    ...     _ = env.reset(seed=1)
    ...     env.send([0, 1], env_ids=[0, 2])
    ...     _ = env.recv()
    steps [0 2]
    """

    def __init__(
        self,
        runner: Runner,
        factories: Sequence[Factory],
        *,
        autoreset: Autoreset | AutoresetMode | AutoresetName = Autoreset.SAME_STEP,
        copy: bool = True,
        batch_size: int | None = None,
        start_index: int = 0,
        seed: int | None = None,
        debug: bool = False,
        **restarts: Any,
    ) -> None:
        core = Core(
            runner,
            factories,
            Autoreset.parse(autoreset),
            copy=copy,
            batch_size=batch_size,
            debug=debug,
            restarts=RestartOptions(**restarts),
            seed=seed,
            start_index=start_index,
        )
        self.core = core
        self.num_envs = core.num_envs
        self.call_state = CallState(self, core.rows, core.rows, core.pending)
        made = core.description
        self.metadata = {**made.metadata, "autoreset_mode": core.autoreset.gymnasium}
        self.render_mode = made.render_mode
        self.spec = made.spec
        self.backend = runner.name
        self.num_workers = runner.workers
        self.autoreset_mode = core.autoreset.gymnasium
        self.possible_agents = made.agents
        self.row_games = games.row_games(self.call_state, core)
        self.row_agents = games.row_agents(self.call_state, core)
        self.call_state.set_observation_space(self, deepcopy(made.observation_space))
        self.call_state.set_action_space(self, deepcopy(made.action_space))
        at_exit(self)

    @classmethod
    def of(cls, runner: type[Runner], factories: Sequence[Factory], **options: Any) -> Backend:
        """Make one whose runner takes those of the options that are its own."""
        own = {name: options.pop(name) for name in option_names(runner.Options) if name in options}
        return cls(runner(**own), factories, **options)

    def new_fast_path(self) -> FastPath:
        return FastPath(self.num_envs, self.single_action_space, (), (), (False, False))

    @property
    def runner(self) -> Runner:
        return self.core.runner

    @property
    def closed(self) -> bool:  # type: ignore[override]
        return self.core.rows.closed

    def close(  # type: ignore[override]
        self, timeout: float | None = None, terminate: bool = False
    ) -> None:
        """Close every sub-environment and worker; may be called again, in any state.

        Args:
            timeout: seconds to wait for the workers before they are killed; None means 5.
            terminate: kill the workers at once instead.
        """
        self.core.close(timeout, terminate, report=True)

    def close_at_exit(self) -> None:
        timeout, terminate = self.runner.at_exit
        self.core.close(timeout, terminate)

    def __del__(self) -> None:
        core = self.__dict__.get("core")
        if core is not None and core.is_open:
            with core.rows.interrupts as interrupts:
                interrupts.hold()  # nothing could close it later
                core.close(None, terminate=True)

    @property  # type: ignore[misc]
    def np_random(self) -> Any:
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> Any:
        return self.get_attr("np_random_seed")
