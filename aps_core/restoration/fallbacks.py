"""Continues a run with less need of memory when the device runs out of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, cast

from aps_core.errors import InsufficientMemory
from aps_core.restoration.result import Computed
from aps_core.types import SamplerState

if TYPE_CHECKING:
    from aps_core.engines.engine import Engine

AnyEngine = TypeVar("AnyEngine", bound="Engine")
AnyResult = TypeVar("AnyResult", bound=Computed)

Reached = Callable[[SamplerState], None]
"""Remembers the state after a finished step."""


def resilient(
    compute: Callable[[AnyEngine, SamplerState | None, Reached], AnyResult],
    engine: AnyEngine,
    samples: int,
    resume: SamplerState | None = None,
) -> AnyResult:
    """Computes a result; after each out-of-memory error applies the next fallback, and continues at
    the last finished step. The result lists the fallbacks.

    Args:
        compute: runs on an engine from a state, and calls its last argument after each step.
        engine: the prior.
        samples: number of samples of the run.
        resume: state to start from.

    Raises:
        InsufficientMemory: the device runs out of memory even with all fallbacks.
    """
    from aps_core.engines.oom_fallback import fallbacks, free_memory, is_out_of_memory

    state, remaining = resume, fallbacks(engine, samples)
    taken: list[str] = []
    notes: list[str] = []

    def reached(latest: SamplerState) -> None:
        nonlocal state
        state = latest

    while True:
        try:
            result = compute(engine, state, reached)
            break
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        free_memory()  # outside the handler, which keeps the failed computation's tensors alive
        fallback, engine = cast("tuple[str | None, AnyEngine]", next(remaining, (None, engine)))
        if fallback is None:
            raise InsufficientMemory(
                "The job needs more memory than the device has free; send a smaller picture, set"
                " 'working_size', or ask for fewer samples or tokens."
            )
        taken.append(fallback)
        notes.append(
            f"The device ran out of memory after step {state.step if state else 0}; fallback used:"
            f" {fallback}."
        )
    return replace(
        result,
        resumed_from_step=resume.step if resume else None,
        memory_fallbacks=taken,
        notes=[*notes, *result.notes],
    )
