"""Replaying a step without Python: one launch instead of hundreds."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable

import torch

logger = logging.getLogger(__name__)

WARM_UP = 3
"""Calls before capture, in which libraries choose kernels, compilers run and the optimiser makes
its state.
"""

_failed: list[torch.cuda.CUDAGraph] = []
"""Captures ended by an error. The allocator of pinned memory keeps a pointer to such a graph, so it
must not be freed.
"""


def captured(step: Callable[[], None]) -> Callable[[], None]:
    """A callable that repeats the GPU work of ``step``, which must read and write the same tensors
    at every call.

    The warm-up runs ``step`` for real, so its tensors change. A step that cannot be captured (an
    operator that waits for the GPU) is returned as it is, with a warning in the log.

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
    """Records ``step`` on a side stream. ``torch.cuda.graph`` does the same, but an error within it
    leaves that stream current and the allocator's pool open.

    Raises:
        RuntimeError: the step's own error, which usually ends the capture too.
    """
    gc.collect()  # a graph or tensor freed by the collector would break the capture
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    pool = torch.cuda.graph_pool_handle()
    with torch.cuda.stream(stream):
        # Only this thread is kept from calls that break a capture; the thread that reads memory
        # metrics is not.
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            step()
            graph.capture_end()
        except BaseException:
            _abandon(graph, pool)
            raise


def _abandon(graph: torch.cuda.CUDAGraph, pool: tuple[int, int]) -> None:
    """Ends a failed capture. ``capture_end`` closes the pool unless the capture is broken; an open
    pool would keep the allocator from freeing memory for the rest of the process.
    """
    try:
        graph.capture_end()
    except RuntimeError:
        device = torch.cuda.current_device()
        for close in (torch._C._cuda_endAllocateToPool, torch._C._cuda_releasePool):
            try:
                close(device, pool)
            except RuntimeError as error:  # it was closed before the error
                logger.debug("After a failed capture: %s", error)
        _failed.append(graph)
