"""Process-wide settings for computation. Only programs (worker, command line) apply them; importing
the library or loading a prior never does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def prepare_environment() -> None:
    """Sets environment variables that libraries read at load time, unless already set. Call it
    before importing torch.

    Threads that spin at barriers slow a run down many times when other processes need a core; on an
    idle machine, waiting without spinning costs about a tenth. Deterministic matrix products on
    CUDA need a workspace of fixed size.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def be_reproducible(threads: int | None = None) -> None:
    """Makes a seed reproduce a run bit for bit on the same hardware, build and thread count.

    Args:
        threads: CPU threads of this process. Default: ``OMP_NUM_THREADS``, else every available
            core.
    """
    prepare_environment()
    import torch

    listed = os.environ.get("OMP_NUM_THREADS") or "0"  # one number, or one for each nesting level
    asked = threads or int(listed.split(",")[0])
    torch.set_num_threads(asked or _available_cores())
    torch.use_deterministic_algorithms(True)
    # a debugging aid that initialises every new tensor
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def _available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # absent on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def reproducible(threads: int | None = None) -> Iterator[None]:
    """Context manager for :func:`be_reproducible`; restores the previous settings at exit."""
    import torch

    before = torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    be_reproducible(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        torch.use_deterministic_algorithms(deterministic)
        torch.utils.deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]
