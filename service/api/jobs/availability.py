"""Availability of priors, operators and checkpoints, checked at submission rather than in the
queue, with instructions for those that are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aps_core.checkpoints import checkpoint_cache
from aps_core.errors import InvalidSpec, WeightsMissing, about
from aps_core.priors import PriorSpec
from aps_core.tasks import TaskSpec
from service.api.problems.errors import NoWorker, PriorNotLoaded
from service.jobs import WorkerInfo


@about("prior")
def worker_for(prior: str, offered: Sequence[str], live: Sequence[WorkerInfo]) -> WorkerInfo:
    """The live worker that takes the largest jobs for ``prior``.

    Raises:
        InvalidSpec: there is no prior of that name.
        PriorNotLoaded: this service does not offer it.
        WeightsMissing: it is offered, but no worker holds it and its weights are not installed.
        NoWorker: it is offered, but no worker holds it at the moment.
    """
    able = [worker for worker in live if worker.prior == prior]
    if able and prior in offered:
        return max(able, key=lambda worker: (worker.max_pixels, worker.job_bytes))
    cls = PriorSpec.named(prior)
    if prior not in offered:
        raise PriorNotLoaded(
            f"The prior '{prior}' is not loaded here; offered: {', '.join(offered)}."
            f" {_how_to_offer(cls, prior)}"
        )
    if missing := cls.missing():
        raise WeightsMissing(f"No worker holds the prior '{prior}'. {missing}")
    raise NoWorker(f"No worker holds the prior '{prior}' at the moment; try again in a while.")


def computable(
    specs: Sequence[TaskSpec], worker: Callable[[TaskSpec], WorkerInfo]
) -> tuple[TaskSpec, WorkerInfo]:
    """The first spec that a worker can compute, and that worker.

    Raises:
        PriorNotLoaded, WeightsMissing, NoWorker: there is none; what is most likely to change.
    """
    refusals: list[Exception] = []
    for spec in specs:
        try:
            return spec, worker(spec)
        except (PriorNotLoaded, WeightsMissing, NoWorker) as error:
            refusals.append(error)
    raise next((each for each in refusals if isinstance(each, NoWorker)), refusals[0])


def check_weights(needed: Sequence[str], prior: str, live: Sequence[WorkerInfo]) -> None:
    """Checks that every live worker of ``prior`` has the additional checkpoints ``needed``.

    Raises:
        WeightsMissing: a worker lacks one; the message says how to install it.
    """
    for name in needed:
        if not all(name in worker.checkpoints for worker in live if worker.prior == prior):
            raise WeightsMissing(
                f"The job needs the weights '{name}', which a worker of the prior '{prior}' lacks."
                f" {checkpoint_cache.remedy(name)}"
            )


def describe_operators(
    described: Sequence[dict[str, Any]], live: Sequence[WorkerInfo]
) -> list[dict[str, Any]]:
    """Adds ``available`` to every operator, and ``missing``: the reason when it is unavailable."""
    reasons = [_missing(operator["weights"], live) for operator in described]
    return [
        {**operator, "available": reason is None, "missing": reason}
        for operator, reason in zip(described, reasons, strict=True)
    ]


def describe_priors(
    described: Sequence[dict[str, Any]], offered: Sequence[str], live: Sequence[WorkerInfo]
) -> list[dict[str, Any]]:
    """Adds to every known prior ``offered``, ``available``, ``missing`` (the reason when it is
    unavailable) and ``lacking`` (optional checkpoints that no worker has); offered priors first.

    Workers may run on other machines, so a live worker counts as proof that its weights exist.
    """
    return sorted(
        (_describe(prior, offered, live) for prior in described),
        key=lambda prior: not prior["offered"],
    )


def _describe(
    prior: dict[str, Any], offered: Sequence[str], live: Sequence[WorkerInfo]
) -> dict[str, Any]:
    name = prior["name"]
    lacking, reason = prior["lacking"], None
    if holders := [worker for worker in live if worker.prior == name]:
        lacking = _missing(prior["better_with"], holders)
    try:
        worker_for(name, offered, live)
    except (InvalidSpec, PriorNotLoaded, WeightsMissing, NoWorker) as error:
        reason = str(error)
    return {
        **prior,
        "offered": name in offered,
        "available": reason is None,
        "missing": reason,
        "lacking": lacking,
    }


def _missing(names: Sequence[str], live: Sequence[WorkerInfo]) -> str | None:
    """Message about the first of these checkpoints that no worker has; None if there is none."""
    for name in names:
        if not any(name in worker.checkpoints for worker in live):
            return f"No worker has the weights '{name}'. {checkpoint_cache.remedy(name)}"
    return None


def _how_to_offer(cls: type[PriorSpec], prior: str) -> str:
    missing = cls.missing()
    return (
        f"To offer it, add it to APS_PRIORS of the API and of a worker, '{prior}' among them."
        + (f" {missing}" if missing else "")
    )
