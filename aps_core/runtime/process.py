"""Settings of a whole process that computes; only the worker, the command line and programs like
them set these, never an import or a loaded prior.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def prepare_environment() -> None:
    """Sets what libraries read when they are loaded, where nothing else is asked for; call it
    before torch is imported.

    Threads that spin at every barrier make a run many times slower as soon as anything else wants a
    core; on an idle machine waiting without spinning costs about a tenth. Deterministic matrix
    products on CUDA need a workspace of fixed size.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def be_reproducible(threads: int | None = None) -> None:
    """Makes a seed reproduce a run bit for bit on the same hardware, build and thread count.

    Args:
        threads: CPU threads of this process; left out, every core it may use.
    """
    prepare_environment()
    import torch

    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
    torch.use_deterministic_algorithms(True)
    # a debugging aid that writes every new tensor twice
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


@contextmanager
def reproducible(threads: int | None = None) -> Iterator[None]:
    """:func:`be_reproducible` for a block of code; the process is afterwards as it was before."""
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
