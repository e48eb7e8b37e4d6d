"""The number of CPU threads of a process."""

import os

import pytest
import torch

from aps_core.runtime.process import reproducible


@pytest.mark.parametrize(
    ("named", "threads", "expected"),
    [("", None, len(os.sched_getaffinity(0))), ("3,1", None, 3), ("3", 2, 2)],
)
def test_threads_are_those_asked_for_or_every_available_core(monkeypatch, named, threads, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", named)
    with reproducible(threads):
        assert torch.get_num_threads() == expected


def test_a_system_that_does_not_tell_the_available_cores_uses_all(monkeypatch):
    """As macOS and Windows."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delattr(os, "sched_getaffinity")
    with reproducible():
        assert torch.get_num_threads() == os.cpu_count()
