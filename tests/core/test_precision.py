"""The number format for a device."""

import time

import pytest
import torch

from aps_core.runtime import precision

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("amx", "avx512", "amd", "chosen"),
    [
        (True, True, False, torch.bfloat16),
        (False, True, True, torch.bfloat16),
        (False, True, False, torch.float32),
        (False, False, True, torch.float32),
    ],
)
def test_a_cpu_computes_in_the_faster_format(monkeypatch, amx, avx512, amd, chosen):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)
    monkeypatch.setattr(precision, "_made_by_amd", lambda: amd)
    assert precision.fast_dtype(CPU) == chosen


def seconds(dtype):
    """Shortest of some products, which other programs disturb least."""
    x, weight = torch.ones(1024, 192, dtype=dtype), torch.ones(576, 192, dtype=dtype)
    trials = []
    for _ in range(25):
        started = time.perf_counter()
        torch.nn.functional.linear(x, weight)
        trials.append(time.perf_counter() - started)
    return min(trials)


def test_the_choice_is_not_the_slower_one_here():
    chosen = precision.fast_dtype(CPU)
    other = torch.float32 if chosen == torch.bfloat16 else torch.bfloat16
    assert seconds(chosen) < 1.5 * seconds(other)
