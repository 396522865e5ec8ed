"""Builds a plan: starts the backend, adds the wrappers, and closes everything on failure."""

from __future__ import annotations

import contextlib
import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Literal, NoReturn

from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv

from vecwrap.backends.dummy import around
from vecwrap.env.runner import Runner
from vecwrap.env.saving import refuse_unread
from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import PlanError, internal_frames_hidden
from vecwrap.pipeline.around_vector import put_around
from vecwrap.pipeline.elements import BackendName, BackendSpec, EngineSpec, read_wrappers
from vecwrap.pipeline.error_collector import ErrorCollector
from vecwrap.pipeline.evaluation import in_mode
from vecwrap.pipeline.fields import KEYS, refuse_unknown
from vecwrap.pipeline.files import is_folder
from vecwrap.pipeline.plan import Plan, plan
from vecwrap.pipeline.run_folder import Run, read_run
from vecwrap.pipeline.run_output import (
    read_config,
    record_run,
    record_wrapped,
    refuse_unwritable,
    refuse_without_folder,
    with_out,
    with_out_around,
)
from vecwrap.pipeline.source_map import SourceLocation, SourceMap, SourceRef, fail
from vecwrap.pipeline.spec import PipelineSpec, as_spec
from vecwrap.pipeline.values import short_repr
from vecwrap.pipeline.wrappers import plan_wrappers, refuse_around_engine
from vecwrap.rows.step_result import Autoreset, AutoresetName
from vecwrap.sources.batched_engine import engine_around
from vecwrap.sources.declares import Declares
from vecwrap.sources.description import game_hint
from vecwrap.sources.known_engines import refuse_other_mode
from vecwrap.wrappers.window.viewer import Viewer

_RUN_ARGUMENTS = ("stats", "out", "config")  # arguments that are not keys of the pipeline


def build(
    env: str
    | Path
    | EnvSpec
    | Callable[..., Any]
    | Sequence[str | EnvSpec | Callable[..., Any]]
    | Mapping[str, Any]
    | PipelineSpec,
    n: int | None = None,
    wrappers: Sequence[Any] | str = (),
    *,
    backend: BackendName | BackendSpec | type[Runner] | Mapping[str, Any] = "auto",
    workers: int | None = None,
    envs_per_worker: int | None = None,
    start_method: Literal["fresh", "spawn", "forkserver", "fork"] | None = None,
    daemon: bool = True,
    parent_share: bool | None = None,
    on_failure: Literal["raise", "restart"] = "raise",
    max_restarts: int | None = 10,
    restart_window: float | None = 60.0,
    restart_backoff: float = 1.0,
    recreate_every: int | None = None,
    step_timeout: float | None = None,
    reset_timeout: float | None = None,
    start_timeout: float | None = None,
    copy: bool = True,
    batch_size: int | None = None,
    engine: str | EngineSpec | Callable[..., Any] | Mapping[str, Any] | None = None,
    envs_per_engine: int | None = None,
    seed: int | None = None,
    start_index: int = 0,
    autoreset: Autoreset | AutoresetMode | AutoresetName = Autoreset.SAME_STEP,
    render_mode: str | None = None,
    env_kwargs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    agents: Sequence[str] | Mapping[str, bool] | None = None,
    debug: bool = False,
    stats: VecEnv | str | Path | None = None,
    out: str | Path | None = None,
    config: Mapping[str, Any] | None = None,
    **unknown: NoReturn,
) -> VecEnv:
    """Build a vector environment from a pipeline.

    Everything that can be checked without starting a process is checked first. If ``env`` is a
    whole pipeline, the other arguments override it unless they have their default values (``load``
    overrides with any value).

    Args:
        env: an environment id (``"CartPole-v1"``, ``"module:Id-v0"``) or Gymnasium's ``EnvSpec``, a
            callable that makes one ``gymnasium.Env``, a sequence of these, one for each
            sub-environment, or a whole pipeline: a YAML or JSON file, a line (``"CartPole-v1 n=4 |
            framestack:4"``), a dict, or a ``PipelineSpec``.
        n: how many sub-environments; None: one for each entry of a sequence, otherwise one per
            usable core.
        wrappers: the wrappers, inner first: names with arguments (``"framestack:4"``), mappings
            (``{"framestack": {"k": 4}}``), import paths (``"module:attr"``), classes, partials,
            callables.
        backend: ``"dummy"``, ``"threads"``, ``"subprocess"``, ``"shmem"``, ``"auto"`` (dummy for
            n=1, and where steps are known to cost less than handing them to other processes; else
            shmem), a backend's class, or a mapping of its name and options. At runtime also another
            backend's name or import path, which type checkers want as ``{"name": ...}``.
        workers: how many worker processes; None: one per usable core.
        envs_per_worker: how many sub-environments per worker, instead of ``workers``; n need not
            divide evenly.
        start_method: None: a worker is a fresh interpreter, which needs no ``__main__`` guard; or
            multiprocessing's ``"spawn"``, ``"forkserver"`` or ``"fork"``, with its rules.
        daemon: False: at interpreter exit, wait for workers that are still closing.
        parent_share: whether this process steps a share of the sub-environments during
            ``step_wait`` instead of only waiting. None: yes with shmem, if nothing requests
            isolation (``workers``, ``on_failure``, a time limit, ``batch_size``) and the
            environment and its inner wrappers are Gymnasium's, ale-py's or vecwrap's. An
            environment that crashes or hangs there takes this process down with it.
        on_failure: ``"raise"``, or ``"restart"``: a sub-environment that raises is recreated, as
            are those of a worker that dies or hangs; the episodes lost with them end truncated
            (docs/reliability.md).
        max_restarts: how often each may be recreated within ``restart_window``, and in a row
            without a step in between; None: no limit. The next failure is raised.
        restart_window: seconds; None: the whole run.
        restart_backoff: delay in seconds before recreating one that failed again without completing
            a step.
        recreate_every: after so many episodes each sub-environment is recreated before the next one
            begins, for simulators that leak memory; None: never.
        step_timeout: seconds a worker may take for its share of a step before it is killed; None:
            no limit.
        reset_timeout: the same for a reset.
        start_timeout: the same for creating its environments.
        copy: whether returned arrays are the caller's own; False returns views that the next step
            overwrites.
        batch_size: how many rows ``recv`` waits for, with ``envs_per_engine`` a multiple of that;
            None: all that are pending.
        engine: step the sub-environments with an engine of another library instead of one
            environment each: ``"envpool"``, ``"ale"`` (ale-py's own), ``"gymnax"``,
            ``"vector_entry_point"`` (the vector class that is registered with the id), the import
            path of a callable ``(num_envs, **kwargs)`` that makes a ``gymnasium.vector.VectorEnv``,
            or a mapping of its name and options: ``{"name": "envpool", "num_threads": 8}``.
            Wrappers at the inner end that it has itself are handed to it, unless ``absorb`` is
            False (docs/engines.md).
        envs_per_engine: let engines step so many sub-environments at once, of which n is a
            multiple: the vector class that is registered with the id (CartPole's own, ale-py's), or
            what the callable makes, given ``num_envs`` if it takes it. Engines are distributed over
            workers like sub-environments (docs/backends.md).
        seed: used by the first reset if it is given none; sub-environment i gets ``seed +
            start_index + i``.
        start_index: the index of the first sub-environment, if this is part of a larger vector.
        autoreset: ``"same_step"``, ``"next_step"``, ``"disabled"`` or ``"episodic"``.
        render_mode: as ``gymnasium.make``; ``"human"`` shows all sub-environments in one window.
        env_kwargs: further arguments for ``gymnasium.make``, or for the callables; a sequence has a
            mapping for each sub-environment.
        agents: of games, whose agents are rows: the names of those that are, while the wrapper
            ``opponents`` moves the others, or ``{"pad": True}`` to pad unequal spaces with zeros
            (docs/games.md); None: all, whose spaces must be equal.
        debug: check every action and observation against its space.
        stats: an environment, or a file written by its ``save``, whose running statistics this one
            uses, for example to evaluate with those of training. They are frozen, unless the
            pipeline sets ``training: true``.
        out: a folder for the run's files, created at the first reset: ``monitor.csv``,
            ``pipeline.yaml`` and ``run.json``, which says how the run ended (docs/saving.md). A
            pipeline without a monitor gets one around everything; one whose monitor has another
            ``dir`` is refused. Files of an earlier run are moved aside.
        config: the training's own settings, such as its learning rate, for ``run.json``: numbers,
            text, lists and mappings; NumPy's scalars become Python's. Needs ``out``, or a monitor
            with ``dir``.
        unknown: rejected; the error suggests the vecwrap name for other libraries' arguments.

    Returns:
        The environment: a ``gymnasium.vector.VectorEnv``. Its ``pipeline`` is the spec with all
            defaults filled in.

    Raises:
        SpecError: the pipeline or ``config`` cannot be read, or names something unknown.
        PlanError: it can be read, but not built; or the folder cannot be written to.
        SubEnvError: an environment raised while it was being created.
        BackendError: a worker could not be started.

    >>> env = build("CartPole-v1", n=2, wrappers=["time_limit:50", "framestack:4"], backend="dummy")
    >>> env
    <VecEnv CartPole-v1, n=2, dummy, same_step, wrappers time_limit > framestack>
    >>> env.pipeline.wrappers[1].kwargs["padding"]
    'zero'
    >>> env.close()
    """
    given = {
        key: value
        for key, value in locals().items()
        if key not in ("env", *_RUN_ARGUMENTS, "unknown")
    }
    defaults: dict[str, Any] = {"n": None, "wrappers": (), **(build.__kwdefaults__ or {})}
    changes = {}
    for key, value in given.items():
        default = defaults[key]
        is_equal = (
            type(value) is type(default)
            and isinstance(value, (str, tuple, int))
            and value == default
        )
        if value is not default and not is_equal:
            changes[key] = value
    with internal_frames_hidden:
        known = ["env", *given, *_RUN_ARGUMENTS]
        errors = ErrorCollector()
        for key in unknown:
            with errors:
                if key in KEYS:
                    fail(
                        f"build: {key}",
                        f"expected in the pipeline itself, or in vecwrap.load(FILE, {key}=...)",
                    )
                refuse_unknown(key, known, SourceRef(SourceMap(SourceLocation("build"))))
        errors.raise_all()
        spec = as_spec(env).override(**changes)
        if isinstance(spec.env, tuple):
            _warn_of_one_variable(spec.env)
        return _build(spec, stats, out, config)


def load(
    path: str | Path,
    *,
    mode: Literal["train", "eval"] = "train",
    stats: VecEnv | str | Path | None = None,
    out: str | Path | None = None,
    config: Mapping[str, Any] | None = None,
    **overrides: Any,
) -> VecEnv:
    """Build the pipeline of a YAML or JSON file, or of a run folder with its saved statistics.

    A run folder is one written by ``build(..., out=...)`` or ``vecwrap run --out``. Its pipeline is
    checked against the one recorded in ``monitor.csv`` and in the statistics. Files that the
    environment writes do not touch the run's own: they go into the run's subfolder ``loaded``, or
    ``eval`` for an evaluation.

    Args:
        path: the file, to which the paths in it are relative; or the folder.
        mode: ``"eval"`` for the matching evaluation: with the settings of its section ``eval``,
            whole games and raw rewards for ``atari``, and frozen statistics. ``"train"``: a
            folder's statistics keep updating.
        stats: as ``build``; for an evaluation, the training environment or a file written by its
            ``save``. None: the folder's own, else those that the pipeline names.
        out: as ``build``; for an evaluation, and for the pipeline of a run folder, instead of the
            monitor's folder.
        config: as ``build``.
        overrides: a pipeline's keys, and the backend options that ``build`` takes (``workers``,
            ``on_failure``, ...); they replace those of the file, ``wrappers`` and ``env_kwargs`` as
            a whole. A dotted key reaches inside: ``**{"wrappers.framestack.k": 2}``.

    Returns:
        The environment, as ``build``.

    Raises:
        VecwrapError: as ``build``, with file and line.

    >>> from tempfile import mkdtemp
    >>> file = Path(mkdtemp()) / "cartpole.yaml"
    >>> spec = PipelineSpec.parse("CartPole-v1 n=4 backend=dummy | framestack:4")
    >>> _ = file.write_text(spec.to_yaml())
    >>> with load(file, n=2, **{"wrappers.framestack.k": 3}) as env:
    ...     observations, infos = env.reset(seed=1)
    >>> observations.shape, observations.dtype
    ((2, 3, 4), dtype('float32'))
    """
    given: Any = path  # of any type
    with internal_frames_hidden:
        if isinstance(given, (str, os.PathLike)) and is_folder(given):
            run = read_run(path)
            return rebuild(run, run.pipeline(mode, overrides), stats, out, config)
        return _build(
            in_mode(PipelineSpec.load(path), mode, overrides),
            stats,
            out,
            config,
            instead=mode == "eval",
        )


def _build(
    spec: PipelineSpec,
    stats: VecEnv | str | Path | None,
    out: str | Path | None,
    config: Mapping[str, Any] | None,
    *,
    instead: bool = False,
) -> VecEnv:
    """Build a pipeline whose run writes into ``out``.

    ``instead`` says that ``out`` replaces the folder named by the pipeline's monitor.
    """
    settings = read_config(config)
    if out is not None:
        spec = with_out(spec, out, instead=instead)
    refuse_without_folder(settings, spec)
    checked = plan(spec)
    refuse_unwritable(checked)
    return build_plan(checked, stats, settings)


def _warn_of_one_variable(makers: Sequence[Any]) -> None:
    """Warn of callables from a loop that share its variable, so all make the last environment."""
    groups: dict[Any, list[Any]] = {}
    for make in makers:
        if isinstance(make, FunctionType) and _variables(make):
            cells = tuple(map(id, make.__closure__ or ()))
            key = make.__code__, cells, repr((make.__defaults__, make.__kwdefaults__))
            groups.setdefault(key, []).append(make)
    for group in groups.values():
        if len({id(make) for make in group}) > 1:
            values = "".join(
                f", with {name} = {short_repr(value)}"
                for name, value in _variables(group[0]).items()
            )
            warnings.warn(
                f"env: {len(group)} of the callables are the same function with the same "
                f"variables{values}: they all make the same environment. If each should have its "
                "own value, bind it: lambda i=i: ..., or functools.partial(make, i); if not, "
                "pass one callable and n",
                stacklevel=3,
            )


def _variables(make: FunctionType) -> dict[str, Any]:
    """Return the variables that a function reads when called, whose values may change before then.

    Captured variables and globals, without modules, classes, functions and CONSTANTS.
    """
    try:
        closure = inspect.getclosurevars(make)
    except ValueError:  # one of them has no value yet
        return {}
    changing_globals = {
        name: value
        for name, value in closure.globals.items()
        if not (name.isupper() or callable(value))
    }
    return {
        name: value
        for name, value in {**changing_globals, **closure.nonlocals}.items()
        if not isinstance(value, ModuleType)
    }


def rebuild(
    run: Run,
    pipeline: PipelineSpec,
    stats: VecEnv | str | Path | None = None,
    out: str | Path | None = None,
    config: Mapping[str, Any] | None = None,
) -> VecEnv:
    """Build a pipeline of a run folder with the folder's statistics."""
    if stats is not None or pipeline.stats is not None or run.statistics is None:
        return _build(pipeline, stats, out, config, instead=True)
    return _build(pipeline, run.statistics, out, config, instead=True).train(pipeline.in_training)


def wrap(
    vector_env: Any,
    wrappers: Sequence[Any] | str = (),
    *,
    autoreset: Autoreset | AutoresetMode | AutoresetName | None = None,
    masked_resets: bool | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    config: Mapping[str, Any] | None = None,
) -> VecEnv:
    """Put wrappers around an existing vector environment.

    Args:
        vector_env: any ``gymnasium.vector.VectorEnv`` (CartPole's own, ale-py's ``AtariVectorEnv``,
            EnvPool's Gymnasium interface, Gymnasium's Sync and Async), which is closed with the
            result; or a vecwrap environment. EnvPool and ale-py with a ``batch_size`` are driven by
            ``send`` and ``recv`` (docs/backends.md).
        wrappers: wrappers of the vector, inner first, in any form that ``build`` takes.
        autoreset: its autoreset mode, if its metadata does not declare it; or ``"same_step"`` or
            ``"disabled"`` for an engine that can reset some of its rows: EnvPool from 1.2, ale-py
            from 0.12, Gymnasium's Sync and Async (with shared memory).
        masked_resets: whether it honours ``options["reset_mask"]``; None: as known of these, and
            not of others. Not for a vecwrap environment, which declares it.
        seed: used by the next reset if it is given none.
        out: as ``build``. The vector environment exists only in this program, so the folder has no
            ``pipeline.yaml``; ``run.json`` names the environment and the wrappers.
        config: as ``build``.

    Returns:
        The environment: a ``gymnasium.vector.VectorEnv``, in the autoreset mode that the engine
            declares, or in the one asked for. Observations that are PyTorch's tensors stay tensors,
            on their device, if no wrapper reads them.

    Raises:
        SpecError: a wrapper is unknown or its arguments do not fit.
        PlanError: it is not a vector environment, its autoreset mode is unknown or differs from
            ``autoreset``, or a wrapper belongs inside the sub-environments.

    >>> import gymnasium
    >>> cartpoles = gymnasium.make_vec(
    ...     "CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point"
    ... )
    >>> env = wrap(cartpoles, ["framestack:4"])
    >>> env.reset(seed=1)[0].shape
    (2, 4, 4)
    >>> env.close()
    """
    with internal_frames_hidden:
        settings = read_config(config)
        specs = read_wrappers(wrappers or (), SourceRef(steps=("wrappers",)))
        planned = plan_wrappers(with_out_around(specs, out, settings))
        refuse_around_engine(planned)
    env = vector_env
    if any(kind.__module__.startswith("stable_baselines3.") for kind in type(env).__mro__):
        raise PlanError(
            "wrap: expected a gymnasium.vector.VectorEnv, got a Stable-Baselines3 "
            f"{type(env).__name__}; use vecwrap.wrap(vecwrap.from_sb3(venv), [...])"
        )
    if isinstance(env, VecEnv):  # settings that it would ignore are refused
        refuse_other_mode(repr(env), env.core.autoreset, autoreset)
        if masked_resets is not None:
            raise PlanError(
                f"wrap: {env!r} supports masked resets, got masked_resets={masked_resets}; leave "
                "it out"
            )
        if seed is not None:
            env.call_state.pending.seed = seed
    elif isinstance(env, VectorEnv) or hasattr(env, "num_envs"):
        engine = engine_around(vector_env, autoreset=autoreset, masked_resets=masked_resets)
        env = around(engine, seed=seed)
    else:
        got = type(env).__name__
        if isinstance(env, str):
            got = f'"{env}"'
        remedy = game_hint(env) or (
            "vecwrap.build makes a vector environment from an id, or from a callable that makes "
            "single environments"
        )
        raise PlanError(f"wrap: expected a gymnasium.vector.VectorEnv, got {got}; {remedy}")
    with internal_frames_hidden:
        for wrapper in planned:
            env = put_around(wrapper, env)
    wrapped: VecEnv = env
    record_wrapped(wrapped, planned, settings)
    return wrapped


def build_plan(
    checked: Plan,
    stats: VecEnv | str | Path | Callable[[VecEnv], None] | None = None,
    config: Mapping[str, Any] | None = None,
) -> VecEnv:
    """Build what a plan says; ``stats`` may be a function that gives an environment statistics."""
    pipeline = checked.pipeline
    if stats is None:
        stats = pipeline.stats
        refuse_unread(stats, pipeline.where("stats"))
    else:
        refuse_unread(stats, "stats")
    env = checked.start()
    try:
        built = [env]
        for wrapper in checked.wrappers:
            if wrapper.runs_in == "parent":
                env = put_around(wrapper, env)
                built.append(env)
        plan_with_spaces = checked.of_made(built)
        if pipeline.render_mode == "human":
            env = Viewer(env)
        for part in env.chain:
            part.pipeline = pipeline
            part.plan = plan_with_spaces
            if isinstance(part, Declares):
                part.on_pipeline(pipeline)
        record_run(env, checked, config)
        if callable(stats):
            stats(env)
            env.train(pipeline.training is True)
        elif stats is not None:
            env.share_statistics(stats).train(pipeline.training is True)
        elif not pipeline.in_training:
            _refuse_nothing_learnt(env, pipeline)
            env.eval()
    except BaseException:
        # an error while closing must not hide the cause
        with contextlib.suppress(Exception, SystemExit):
            env.close(terminate=True)
        raise
    return env


def _refuse_nothing_learnt(env: VecEnv, pipeline: PipelineSpec) -> None:
    """Refuse frozen statistics that never saw data.

    The agent would receive inputs unlike the inputs that it was trained on.
    """
    for wrapper in env.chain:
        if isinstance(wrapper, VecEnvWrapper) and wrapper.wrapper_statistics():
            raise PlanError(
                f"{pipeline.where('stats')}: expected statistics for {type(wrapper).__name__}, "
                "which are frozen here: pass stats= with the training environment or a file "
                "written by its save, or set stats: FILE in the pipeline. If there are none, "
                "leave the wrapper out (eval: {wrappers: [...]}), or let it learn (training: "
                "true)."
            )
