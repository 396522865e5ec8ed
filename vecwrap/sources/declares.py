"""What a wrapper tells the plan."""

from __future__ import annotations

from typing import Any, ClassVar

from gymnasium.envs.registration import EnvSpec


class Declares:
    """What a wrapper declares to the plan, with the defaults.

    This is a base of ``VecEnvWrapper``, and can be a base of any ``gymnasium.Wrapper``.

    Besides, a parameter annotated as a callable or a class accepts an import path,
    ``"module:attr"``, and receives what that names. If the annotation admits ``str`` too, the
    parameter receives the text, and resolves it itself.

    Attributes:
        path_parameters: parameters that are paths: relative to the pipeline's file, passed as
            absolute paths, not hashed, left out by ``explain`` (so each needs a default).
        read_parameters: those paths whose files it needs and a training alone writes: what plays a
            pipeline to look at it (``check --twice``, ``time``, ``tune``) gives every other path a
            temporary folder.
        not_hashed: parameters that do not change the stream.
        episode_infos: columns of ``infos`` that it adds, which monitors around it write for each
            episode.
        takes_frames: whether it has frames rendered, so that the packages that an id needs for
            drawing must be there.

    >>> import gymnasium
    >>> import vecwrap
    >>> class Slower(vecwrap.Declares, gymnasium.ActionWrapper):
    ...     def __init__(self, env, factor: float = 0.5):
    ...         super().__init__(env)
    ...         self.factor = factor
    ...
    ...     def action(self, action):
    ...         return action * self.factor
    ...
    ...     @classmethod
    ...     def summary(cls, factor=0.5):
    ...         return f"Actions are multiplied by {factor}."
    >>> Slower.summary(0.2)
    'Actions are multiplied by 0.2.'
    >>> vecwrap.check("Pendulum-v1", n=1, wrappers=[Slower], backend="dummy")
    ()
    """

    path_parameters: ClassVar[frozenset[str]] = frozenset()
    read_parameters: ClassVar[frozenset[str]] = frozenset()
    not_hashed: ClassVar[frozenset[str]] = frozenset()
    episode_infos: ClassVar[tuple[str, ...]] = ()
    takes_frames: ClassVar[bool] = False

    @classmethod
    def summary(cls, *args: Any, **kwargs: Any) -> str:
        """Say what it does with these arguments, for the plan.

        Args:
            *args: those that were given without a name.
            **kwargs: the others, without defaults.
        """
        return ""

    @classmethod
    def with_defaults(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return values for null arguments whose defaults depend on other arguments.

        These values appear in the resolved pipeline.

        Args:
            *args: none.
            **kwargs: all arguments, by name.
        """
        return {}

    @classmethod
    def environment_kwargs(cls, env_spec: EnvSpec, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return keyword arguments that the id must be made with; PlanError if that is impossible.

        Args:
            env_spec: of the id, as registered.
            *args: of the wrapper, those that were given without a name.
            **kwargs: the others.
        """
        return {}

    @classmethod
    def in_evaluation(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the arguments that differ in an evaluation, unless the section ``eval`` sets them.

        Args:
            *args: none.
            **kwargs: all arguments, by name.
        """
        return {}

    def describe(self) -> str:
        """Say what it does, now that it is around an environment."""
        return ""

    def on_pipeline(self, pipeline: Any) -> None:
        """Receive the pipeline that the wrapper was built from.

        This is called once, before the first reset, and only for wrappers around the vector.

        Args:
            pipeline: the resolved ``PipelineSpec``.
        """


def declared_by(wrapper: Any) -> type[Declares]:
    """What a wrapper's class declares: the defaults, if it is another library's, or a function."""
    return wrapper if isinstance(wrapper, type) and issubclass(wrapper, Declares) else Declares
