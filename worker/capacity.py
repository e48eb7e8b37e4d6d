"""Memory of a worker's device, read without a CUDA context so that the parent can still fork."""

from __future__ import annotations

import os
from pathlib import Path

from aps_core.errors import InvalidSpec
from aps_core.priors import PriorSpec
from aps_core.tasks.estimate import Capacity, fit
from service.settings import Settings
from worker.device import first_visible

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def capacities(settings: Settings) -> dict[str, Capacity]:
    """Memory left for a job beside each configured prior.

    Raises:
        InvalidSpec: a prior is unknown or named twice, or none is configured.
        WeightsMissing, WeightsInvalid: the weights of a prior are missing or damaged.
        InsufficientMemory: the priors together exceed the memory of the device.
    """
    names = settings.priors
    if not names or len(set(names)) < len(names):
        raise InvalidSpec(
            "APS_PRIORS must name at least one prior, each only once; it is"
            f" {', '.join(names) or 'empty'}."
        )
    specs = [PriorSpec.named(name)(type=name) for name in names]
    return fit(specs, settings.device, settings.memory_bytes or device_bytes(settings.device))


def device_bytes(device: str) -> int:
    """Memory in bytes of the first visible GPU, or for ``cpu`` of this machine or container."""
    if device == "cuda":
        return _gpu_bytes()
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = CGROUP_LIMIT.read_text().strip() if CGROUP_LIMIT.is_file() else "max"
    return physical if limit == "max" else min(physical, int(limit))


def _gpu_bytes() -> int:
    import pynvml

    pynvml.nvmlInit()
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(first_visible(pynvml)).total)
    finally:
        pynvml.nvmlShutdown()
