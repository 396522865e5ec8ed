"""How many there are, from which seed, what becomes of failures, and of statistics in an evaluation."""

from __future__ import annotations

from collections.abc import Iterator

from vecwrap.evaluation_spec import evaluation
from vecwrap.layer_plan import plan_layers
from vecwrap.plan import Plan
from vecwrap.rules.finding import Fault, rule
from vecwrap.wrapper import VecEnvWrapper


@rule("warning")
def fewer_than_workers(plan: Plan) -> Iterator[Fault]:
    """More workers than sub-environments.

    A worker holds one sub-environment at least, so there are only as many workers as these.

    Wrong: ``CartPole-v1 n=2 backend.workers=4``
    Right: ``CartPole-v1 n=4 backend.workers=4``
    """
    workers = plan.written.backend.options.get("workers")
    if workers is not None and workers > plan.n:
        yield Fault(
            "backend.workers",
            f"{workers} workers are asked for, and there are {plan.n} sub-environments: {workers - plan.n} of the "
            "workers would have nothing to hold, and are not started.",
            f"Take n={workers} or more, or workers={plan.n}.",
        )


@rule("warning", strict=True)
def no_seed(plan: Plan) -> Iterator[Fault]:
    """No seed, where ``--strict`` asks for one.

    Without a seed every run has another stream, and no result can be had again. A seed given to ``reset`` does as well,
    so only ``--strict`` looks for it.

    Wrong: ``CartPole-v1 n=2``
    Right: ``CartPole-v1 n=2 seed=1``
    """
    if plan.pipeline.seed is None:
        yield Fault("seed", "there is none, so every run is another.", "Add seed: 1, say.")


@rule("warning")
def eval_keeps_training(plan: Plan) -> Iterator[Fault]:
    """An evaluation whose running statistics go on.

    In an evaluation statistics stand still: otherwise what is measured depends on what was measured before, and
    statistics that are shared with the training are changed by it. ``training: true`` in the section ``eval`` lets them
    go on.

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
            f"the running statistics of {' and '.join(keep)} go on in the evaluation, and change with what it sees.",
            "Leave training out of the section eval.",
        )


@rule("warning")
def restarts_not_asked_for(plan: Plan) -> Iterator[Fault]:
    """How often something is made anew, where nothing is.

    Without ``on_failure: restart`` the first exception or death of a worker is raised, and ``max_restarts``,
    ``restart_window`` and ``restart_backoff`` say nothing.

    Wrong: ``CartPole-v1 backend.max_restarts=3``
    Right: ``CartPole-v1 backend.on_failure=restart backend.max_restarts=3``
    """
    options = plan.written.backend.options
    if options.get("on_failure", "raise") == "raise":
        for name in ("max_restarts", "restart_window", "restart_backoff"):
            if name in options:
                yield Fault(
                    f"backend.{name}",
                    "it says how sub-environments are made anew, and the first failure is raised.",
                    "Add on_failure=restart, or leave it out.",
                )


def _has_statistics(target: object) -> bool:
    own = isinstance(target, type) and issubclass(target, VecEnvWrapper)
    return own and getattr(target, "layer_statistics", None) is not VecEnvWrapper.layer_statistics
