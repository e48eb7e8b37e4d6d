"""How much memory a worker's device has, read without a CUDA context, so that the parent may ask
before it forks.
"""

from __future__ import annotations

import os
from pathlib import Path

from aps_core.errors import InvalidSpec
from aps_core.priors import PriorSpec
from aps_core.runtime.estimate import Capacity, fit
from service.settings import Settings

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def capacities(settings: Settings) -> dict[str, Capacity]:
    """What each of the worker's priors leaves to a job.

    Raises:
        InvalidSpec: a prior is unknown, named twice, or there is none.
        WeightsMissing, WeightsInvalid: a prior's weights are not here.
        InsufficientMemory: the priors do not fit the device together.
    """
    names = settings.priors
    if not names or len(set(names)) < len(names):
        raise InvalidSpec(
            "APS_PRIORS must name at least one prior and none twice, not"
            f" {', '.join(names) or 'nothing'}."
        )
    specs = [PriorSpec.named(name)(type=name) for name in names]
    return fit(specs, settings.device, settings.memory_bytes or device_bytes(settings.device))


def device_bytes(device: str) -> int:
    """Memory of the device a worker computes on: the first visible GPU's, or this machine's or
    container's.
    """
    if device == "cuda":
        return _gpu_bytes()
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = CGROUP_LIMIT.read_text().strip() if CGROUP_LIMIT.is_file() else "max"
    return physical if limit == "max" else min(physical, int(limit))


def _gpu_bytes() -> int:
    import pynvml

    pynvml.nvmlInit()
    try:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        handle = (
            pynvml.nvmlDeviceGetHandleByIndex(int(visible))
            if visible.isdigit()
            else pynvml.nvmlDeviceGetHandleByUUID(visible)
        )
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    finally:
        pynvml.nvmlShutdown()
