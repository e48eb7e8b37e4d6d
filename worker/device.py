"""Health of a worker's GPU according to its driver; checked at start and while the worker runs."""

from __future__ import annotations

import os
from typing import Any


def fault(device: str) -> str | None:
    """Describes a fault of the device of this process; None if none is known.

    Uncorrectable memory errors and rows that could not be remapped corrupt results long before
    they cause a crash.
    """
    if device != "cuda":
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return f"The NVIDIA driver does not respond: {error}."
    try:
        return _memory_fault(pynvml, first_visible(pynvml))
    except pynvml.NVMLError as error:
        return f"The GPU was not found: {error}."
    finally:
        pynvml.nvmlShutdown()


def first_visible(nvml: Any) -> Any:
    """NVML's handle of the first GPU that CUDA shows this process; ``nvml`` is initialised.

    Raises:
        NVMLError: there is no such GPU.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    if visible.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(visible))
    return nvml.nvmlDeviceGetHandleByUUID(visible)


def _memory_fault(nvml: Any, handle: Any) -> str | None:
    try:
        uncorrected = nvml.nvmlDeviceGetTotalEccErrors(
            handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        )
        if uncorrected:
            return f"The GPU reports {uncorrected} uncorrectable memory errors; reset it."
    except nvml.NVMLError:  # ECC is unsupported or off
        pass
    try:
        failed = nvml.nvmlDeviceGetRemappedRows(handle)[3]
    except nvml.NVMLError:  # row remapping is unsupported
        return None
    return "The GPU failed to remap damaged memory rows; replace it." if failed else None
