"""CUDA graphs: replays the kernels of one step with a single launch."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable

import torch

logger = logging.getLogger(__name__)

WARM_UP = 3
"""Calls before capture. Libraries choose kernels, compilers run and the optimiser allocates its
state.
"""

_failed: list[torch.cuda.CUDAGraph] = []
"""Graphs whose capture failed. The allocator of pinned memory keeps a pointer to them, so they must
not be freed.
"""


def captured(step: Callable[[], None]) -> Callable[[], None]:
    """Returns a callable that replays the GPU work of ``step``.

    ``step`` must read and write the same tensors in every call. Warm-up really executes ``step``,
    so its tensors change. If ``step`` cannot be captured (for example because an operator
    synchronises with the GPU), it is returned unchanged and a warning is logged.

    Raises:
        torch.OutOfMemoryError: the step does not fit the device.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    try:
        capture(graph, step, stream)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        logger.warning(
            "This job's inner step cannot be captured as a CUDA graph and runs eagerly: %s",
            str(error).splitlines()[0],
        )
        torch.cuda.synchronize()
        return step
    return graph.replay


def capture(
    graph: torch.cuda.CUDAGraph, step: Callable[[], None], stream: torch.cuda.Stream
) -> None:
    """Captures ``step`` on a side stream.

    ``torch.cuda.graph`` does the same, but an error inside it leaves the side stream current and
    the allocator's pool open.

    Raises:
        RuntimeError: the error of the step, which usually also invalidates the capture.
    """
    gc.collect()  # the collector must not free a graph or tensor during capture
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    pool = torch.cuda.graph_pool_handle()
    with torch.cuda.stream(stream):
        # 'thread_local' lets another thread read memory metrics without invalidating the capture.
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            step()
            graph.capture_end()
        except BaseException:
            _abandon(graph, pool)
            raise


def _abandon(graph: torch.cuda.CUDAGraph, pool: tuple[int, int]) -> None:
    """Ends a failed capture and closes its memory pool.

    ``capture_end`` closes the pool unless the capture is invalid. An open pool would prevent the
    allocator from freeing memory for the rest of the process.
    """
    try:
        graph.capture_end()
    except RuntimeError:
        device = torch.cuda.current_device()
        for close in (torch._C._cuda_endAllocateToPool, torch._C._cuda_releasePool):
            try:
                close(device, pool)
            except RuntimeError as error:  # already closed
                logger.debug("After a failed capture: %s", error)
        _failed.append(graph)
