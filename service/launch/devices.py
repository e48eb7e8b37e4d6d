"""Lists the machine's GPUs without initializing CUDA, which a forking process must not do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from aps_core.errors import APSError


class NoDevice(APSError):
    """The GPUs cannot be listed, or there are none."""

    code = "no_device"
    title = "No GPU is available"


def gpus() -> list[str]:
    """UUIDs of the GPUs or MIG slices visible to this process; the entries of
    ``CUDA_VISIBLE_DEVICES`` if it is set.

    Raises:
        NoDevice: there is no driver, no GPU, or none is visible.
    """
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        found = [name.strip() for name in visible.split(",") if name.strip()]
    else:
        found = _listed()
    if not found:
        raise NoDevice(
            "No GPU is visible; use --device cpu, or check CUDA_VISIBLE_DEVICES and nvidia-smi."
        )
    return found


def _listed() -> list[str]:
    try:
        import pynvml
    except ModuleNotFoundError as error:
        raise NoDevice("nvidia-ml-py is not installed; pip install '.[worker]'.") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NoDevice(f"The NVIDIA driver does not answer: {error}.") from error
    try:
        handles = (
            pynvml.nvmlDeviceGetHandleByIndex(number)
            for number in range(pynvml.nvmlDeviceGetCount())
        )
        return [
            uuid
            for handle in handles
            for uuid in (list(_slices(pynvml, handle)) or [pynvml.nvmlDeviceGetUUID(handle)])
        ]
    finally:
        pynvml.nvmlShutdown()


def _slices(pynvml: Any, handle: Any) -> Iterator[str]:
    """UUIDs of a GPU's MIG slices; none if it is not partitioned."""
    try:
        most = pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except pynvml.NVMLError:  # the GPU does not support MIG
        return
    for number in range(most):
        try:
            yield pynvml.nvmlDeviceGetUUID(
                pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            )
        except pynvml.NVMLError:  # no slice has this index
            continue
