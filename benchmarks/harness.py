"""Timing, calibration of the machine, and reports as a terminal table and a JSON file."""

from __future__ import annotations

import datetime
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.service_report import cpu

WARM_UP, TIMED = 3, 20


@dataclass(frozen=True)
class Timing:
    """Milliseconds per call, and peak memory in GiB (CUDA only)."""

    median_ms: float
    p95_ms: float
    allocated_gib: float | None
    reserved_gib: float | None


def clock_of(device: torch.device) -> Callable[[], float]:
    """Returns a clock in seconds: wall time, or with one CPU thread the CPU time of this process,
    which depends less on other processes.
    """
    return (
        time.process_time
        if device.type == "cpu" and torch.get_num_threads() == 1
        else time.perf_counter
    )


def timed(call: Callable[[], object], device: torch.device, repeats: int = TIMED) -> Timing:
    """Measures ``repeats`` calls after 3 warm-up calls."""
    if device.type == "cuda":
        return _timed_cuda(call, repeats)
    return _timed_cpu({"": call}, clock_of(device), repeats)[""]


def timed_together(
    calls: dict[str, Callable[[], object]], device: torch.device, repeats: int = TIMED
) -> dict[str, Timing]:
    """Measures several calls on a CPU alternately, so that load changes affect all equally."""
    return _timed_cpu(calls, clock_of(device), repeats)


def _timed_cpu(
    calls: dict[str, Callable[[], object]], clock: Callable[[], float], repeats: int
) -> dict[str, Timing]:
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(WARM_UP + repeats):
        for name, call in calls.items():
            started = clock()
            call()
            samples[name].append((clock() - started) * 1e3)
    kept = {name: values[WARM_UP:] for name, values in samples.items()}
    return {
        name: Timing(statistics.median(values), percentile(values, 0.95), None, None)
        for name, values in kept.items()
    }


def _timed_cuda(call: Callable[[], object], repeats: int) -> Timing:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(WARM_UP):
        call()
    torch.cuda.synchronize()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize()
    samples = [a.elapsed_time(b) for a, b in pairwise(events)]
    return Timing(
        statistics.median(samples),
        percentile(samples, 0.95),
        torch.cuda.max_memory_allocated() / 2**30,
        torch.cuda.max_memory_reserved() / 2**30,
    )


def busiest_operators(
    call: Callable[[], object], device: torch.device, rows: int = 16
) -> list[dict[str, Any]]:
    """Profiles ``call``: operators with the shape of their first argument, largest share first."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities, record_shapes=True) as record:
        call()

    def spent(event: Any) -> float:
        return float(
            event.self_device_time_total if device.type == "cuda" else event.self_cpu_time_total
        )

    totals: dict[str, tuple[float, int]] = {}
    for event in record.key_averages(group_by_input_shape=True):
        name = f"{event.key} {event.input_shapes[0] if event.input_shapes else ''}".strip()
        seconds, calls = totals.get(name, (0.0, 0))
        totals[name] = seconds + spent(event), calls + event.count
    whole = sum(seconds for seconds, _ in totals.values())
    ordered = sorted(totals.items(), key=lambda item: -item[1][0])[:rows]
    return [
        {"operator": name, "share": round(seconds / whole, 3), "calls": calls}
        for name, (seconds, calls) in ordered
    ]


def percentile(samples: list[float], share: float) -> float:
    """Nearest-rank percentile; ``share`` is in [0, 1]."""
    return sorted(samples)[min(len(samples) - 1, int(share * len(samples)))]


@dataclass(frozen=True)
class Rates:
    """Measured rates: bfloat16 matrix product, and copying (bytes read plus written)."""

    tflops: float
    gb_per_s: float

    def floor_ms(self, tflop: float, gb: float) -> float:
        """Lower bound in ms without overlap: arithmetic at the matrix rate plus bytes at the copy
        rate.
        """
        return tflop / self.tflops * 1e3 + gb / self.gb_per_s * 1e3


def calibrate(device: torch.device) -> Rates:
    """Measures the rates of the machine."""
    n = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(n, n, device=device).bfloat16() for _ in range(2))
    matmul = timed(lambda: a @ b, device).median_ms
    block = torch.empty(2**28 if device.type == "cuda" else 2**25, device=device)
    target = torch.empty_like(block)
    copy = timed(lambda: target.copy_(block), device).median_ms
    return Rates(2 * n**3 / matmul / 1e9, 2 * block.nbytes / copy / 1e6)


def machine(device: torch.device, rates: Rates) -> dict[str, Any]:
    """Describes hardware and software versions."""
    facts: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "clock": "CUDA events" if device.type == "cuda" else clock_of(device).__name__,
        "bf16_matmul_tflops": round(rates.tflops, 3),
        "copy_gb_per_s": round(rates.gb_per_s, 1),
    }
    if device.type == "cuda":
        driver = torch.cuda.driver_version() if hasattr(torch.cuda, "driver_version") else None
        return facts | {
            "hardware": torch.cuda.get_device_name(device),
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "driver": driver,
        }
    return facts | {
        "hardware": cpu(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def report(title: str, facts: dict[str, Any], rows: list[dict[str, Any]], out: Path | None) -> None:
    """Prints ``rows`` as a table and writes the complete report as JSON."""
    print(
        f"\n{title}\n" + ", ".join(f"{k} {v}" for k, v in facts.items() if not isinstance(v, dict))
    )
    print_table(rows)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(
            json.dumps({"title": title, "command": command(), **facts, "rows": rows}, indent=1)
            + "\n"
        )
        print(f"written to {out}")


def command() -> str:
    """Command line of this run, relative to the repository root."""
    module = getattr(sys.modules["__main__"], "__spec__", None)
    return " ".join(["python", *(["-m", module.name] if module else sys.argv[:1]), *sys.argv[1:]])


def print_table(rows: list[dict[str, Any]]) -> None:
    """Prints rows as aligned columns."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [columns, *([_cell(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for line in cells:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )


def _cell(value: object) -> str:
    return (
        ""
        if value is None
        else (
            f"{value:.3g}"
            if isinstance(value, float) and abs(value) < 10
            else f"{value:.0f}"
            if isinstance(value, float)
            else str(value)
        )
    )
