"""Replaying a step without Python: one launch instead of hundreds."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch

logger = logging.getLogger(__name__)

WARM_UP = 3
"""Calls before capture, in which libraries choose kernels, compilers run and the optimiser makes
its state.
"""


def captured(step: Callable[[], None]) -> Callable[[], None]:
    """A callable that repeats the GPU work of ``step``, which must read and write the same tensors
    at every call.

    The warm-up runs ``step`` for real, so its tensors change. A step that cannot be captured (an
    operator that waits for the GPU) is returned as it is, with a warning in the log.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            step()
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
