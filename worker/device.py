"""What the driver says of a worker's GPU: asked before jobs are taken, and again while they are."""

from __future__ import annotations

import os
from typing import Any


def fault(device: str) -> str | None:
    """What is wrong with the device this process computes on, in words; None when nothing is known
    to be.

    Memory errors that could not be corrected, or rows that could not be remapped, make results
    worthless long before anything crashes.
    """
    if device != "cuda":
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return f"The NVIDIA driver does not answer: {error}."
    try:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        handle = (
            pynvml.nvmlDeviceGetHandleByIndex(int(visible))
            if visible.isdigit()
            else pynvml.nvmlDeviceGetHandleByUUID(visible)
        )
        return _memory_fault(pynvml, handle)
    except pynvml.NVMLError as error:
        return f"The GPU cannot be found: {error}."
    finally:
        pynvml.nvmlShutdown()


def _memory_fault(nvml: Any, handle: Any) -> str | None:
    try:
        uncorrected = nvml.nvmlDeviceGetTotalEccErrors(
            handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        )
        if uncorrected:
            return (
                f"The GPU counted {uncorrected} memory errors that it could not correct; reset it."
            )
    except nvml.NVMLError:  # a GPU without ECC, or with it turned off
        pass
    try:
        failed = nvml.nvmlDeviceGetRemappedRows(handle)[3]
    except nvml.NVMLError:  # a GPU that remaps no rows
        return None
    return (
        "The GPU could not replace damaged rows of its memory; it must be exchanged."
        if failed
        else None
    )
