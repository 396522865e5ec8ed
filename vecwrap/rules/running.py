"""Mistakes about the number of sub-environments, seeds, failures, and statistics in an evaluation."""

from __future__ import annotations

from collections.abc import Iterator

from vecwrap.evaluation import evaluation
from vecwrap.layers import plan_layers
from vecwrap.plan import Plan
from vecwrap.rules.finding import Fault, rule
from vecwrap.wrapper import VecEnvWrapper


@rule("warning")
def fewer_than_workers(plan: Plan) -> Iterator[Fault]:
    """More workers than sub-environments.

    A worker runs at least one sub-environment, so there cannot be more workers than sub-environments.

    Wrong: ``CartPole-v1 n=2 backend.workers=4``
    Right: ``CartPole-v1 n=4 backend.workers=4``
    """
    workers = plan.written.backend.options.get("workers")
    if workers is not None and workers > plan.n:
        yield Fault(
            "backend.workers",
            f"{workers} workers are requested for {plan.n} sub-environments: {workers - plan.n} of the workers would "
            "have nothing to run, and are not started.",
            f"Use n={workers} or more, or workers={plan.n}.",
        )


@rule("warning", strict=True)
def no_seed(plan: Plan) -> Iterator[Fault]:
    """No seed, although ``--strict`` requires one.

    Without a seed every run has a different stream, and no result can be reproduced. A seed given to ``reset`` works as
    well, so only ``--strict`` checks for it.

    Wrong: ``CartPole-v1 n=2``
    Right: ``CartPole-v1 n=2 seed=1``
    """
    if plan.pipeline.seed is None:
        yield Fault("seed", "there is none, so every run is different.", "Add one, such as seed: 1.")


@rule("warning")
def eval_keeps_training(plan: Plan) -> Iterator[Fault]:
    """An evaluation whose running statistics keep updating.

    In an evaluation, statistics should be frozen: otherwise each result depends on earlier ones, and statistics shared
    with the training are changed by the evaluation. ``training: true`` in the section ``eval`` keeps them updating.

    Wrong: ``Pendulum-v1 eval.training=true | normalize``
    Right: ``Pendulum-v1 eval.n=1 | normalize``
    """
    if not plan.written.eval:
        return
    other = evaluation(plan.written)
    _, layers = plan_layers(other.wrappers)
    keep = [layer.spec.name for layer in layers if _has_statistics(layer.target)]
    if other.training and keep:
        yield Fault(
            "eval.training",
            f"the running statistics of {' and '.join(keep)} keep updating in the evaluation, with what it sees.",
            "Leave training out of the section eval.",
        )


@rule("warning")
def restarts_not_asked_for(plan: Plan) -> Iterator[Fault]:
    """Limits on restarts, without restarts.

    Without ``on_failure: restart`` the first exception or death of a worker is raised, and ``max_restarts``,
    ``restart_window`` and ``restart_backoff`` have no effect.

    Wrong: ``CartPole-v1 backend.max_restarts=3``
    Right: ``CartPole-v1 backend.on_failure=restart backend.max_restarts=3``
    """
    options = plan.written.backend.options
    if options.get("on_failure", "raise") == "raise":
        for name in ("max_restarts", "restart_window", "restart_backoff"):
            if name in options:
                yield Fault(
                    f"backend.{name}",
                    "it limits restarts of sub-environments, but there are none: the first failure is raised.",
                    "Add on_failure=restart, or leave it out.",
                )


def _has_statistics(target: object) -> bool:
    own = isinstance(target, type) and issubclass(target, VecEnvWrapper)
    return own and getattr(target, "layer_statistics", None) is not VecEnvWrapper.layer_statistics
