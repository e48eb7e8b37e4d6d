"""The number format for a device."""

import pytest
import torch

from aps_core.runtime import precision

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _timed_anew():
    precision._speed_up.cache_clear()
    yield
    precision._speed_up.cache_clear()


@pytest.mark.parametrize(("seconds", "chosen"), [(0.5, torch.bfloat16), (2.0, torch.float32)])
def test_a_cpu_computes_in_the_faster_format(monkeypatch, seconds, chosen):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    times = {torch.float32: 1.0, torch.bfloat16: seconds}
    monkeypatch.setattr(precision, "_seconds", times.__getitem__)
    assert precision.fast_dtype(CPU) == chosen


def test_a_cpu_without_the_instructions_is_not_timed(monkeypatch):
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: False)
    monkeypatch.setattr(precision, "_seconds", lambda dtype: pytest.fail("timed"))
    assert precision.fast_dtype(CPU) == torch.float32


def test_the_choice_is_not_the_slower_one_here():
    chosen = precision.fast_dtype(CPU)
    other = torch.float32 if chosen == torch.bfloat16 else torch.bfloat16
    assert precision._seconds(chosen) < 1.5 * precision._seconds(other)
