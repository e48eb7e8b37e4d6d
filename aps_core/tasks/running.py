"""Runs a task from the start or a checkpoint, with fallbacks if the device runs out of memory."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from aps_core.checkpoints import checkpoint_cache
from aps_core.errors import InvalidSpec
from aps_core.restoration.fallbacks import Reached, resilient
from aps_core.tasks.base import (
    Inputs,
    RunContext,
    TaskSpec,
    spec_digest,
)
from aps_core.tasks.progress import Progress, ProgressHook, read_checkpoint
from aps_core.tasks.results import Result
from aps_core.types import InnerHook, SamplerState

if TYPE_CHECKING:
    from aps_core.engines.engine import Engine


def run(
    spec: TaskSpec,
    inputs: Inputs,
    engine: Engine,
    on_step: ProgressHook | None = None,
    resume: bytes | None = None,
    on_inner: InnerHook | None = None,
) -> Result:
    """Runs a task on a loaded engine, from the start or from a checkpoint of the same job.

    A checkpoint that is damaged, or of a run with another spec or :func:`origin`, is ignored, with
    a note in the result.

    Args:
        spec: the task; its settings are resolved here.
        inputs: its pictures.
        engine: holds the prior named by ``spec.prior``.
        on_step: called after every reverse step; returning False cancels the run.
        resume: bytes of :meth:`Progress.checkpoint`; None starts from the beginning.
        on_inner: called between inner iterations; returning False cancels the run.

    Raises:
        InvalidSpec: the spec is invalid, does not fit the pictures, or names another prior.
        WeightsMissing, WeightsInvalid: required weights are absent or damaged.
        InsufficientMemory: the job does not fit the device, even with all fallbacks.
        SamplingCancelled: ``on_step`` or ``on_inner`` returned False.
        SamplingDiverged: the loss is not finite.
    """
    if spec.prior != engine.spec.type:
        raise InvalidSpec(
            f"This engine holds the prior '{engine.spec.type}', but the job uses '{spec.prior}'."
        )
    spec = spec.resolved()
    caveats, spec = spec.caveats(), spec.settled()
    spec.check_inputs(inputs)
    checkpoint_cache.require(spec.checkpoints)
    fingerprint = fingerprint_of(spec, inputs, engine)
    checkpoint = read_checkpoint(resume, fingerprint) if resume else None
    found = checkpoint and checkpoint.found

    def compute(engine: Engine, resume: SamplerState | None, reached: Reached) -> Result:
        def report(progress: Progress) -> bool | None:
            nonlocal found
            go_on = on_step(progress) if on_step is not None else None
            found = progress.found
            reached(progress.state)
            return go_on

        context = RunContext(
            engine=engine,
            fingerprint=fingerprint,
            on_step=report,
            on_inner=on_inner,
            resume=resume,
            found=found,
        )
        return spec.run(inputs, context)

    samples = getattr(spec, "num_samples", 1)
    result = resilient(compute, engine, samples, checkpoint and checkpoint.state)
    result.origin.update(origin(engine, inputs))
    result.notes.extend([*caveats, *engine.fallbacks()])
    if resume and checkpoint is None:
        result.notes.append(
            "The checkpoint was damaged, or belonged to another job, prior, version of the library"
            " or of PyTorch, device, number format or number of threads; the job restarted."
        )
    return result


def origin(engine: Engine, inputs: Inputs) -> dict[str, Any]:
    """Everything the tokens depend on besides the spec, as JSON: hashes of pictures and weights,
    device type, number format, threads, versions.
    """
    return {"inputs": inputs.digests(), **engine.origin()}


def fingerprint_of(spec: TaskSpec, inputs: Inputs, engine: Engine) -> str:
    """Hash of the spec and its :func:`origin`; equal for runs that give the same tokens."""
    depends_on = json.dumps(origin(engine, inputs), sort_keys=True)
    return hashlib.sha256(f"{spec_digest(spec)}\n{depends_on}".encode()).hexdigest()
