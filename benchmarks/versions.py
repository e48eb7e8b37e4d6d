"""Time, memory and energy of a restoration by preset, side by side with version 0.1.0.

    git archive 139611b --prefix=aps-0.1.0/ | tar -x -C ..
    python -m benchmarks.versions --first ../aps-0.1.0

Runs every job in a process of its own, after a brief one that loads what a worker has loaded: 0.1.0
with its default, and this version with each preset and embedded prior; Gaussian blur. The versions
take turns, round after round, so that other work on the machine disturbs all alike. ``--processor
avx2`` computes as a processor without AVX-512 and AMX would: in float32.
Printed, and written as JSON: medians over the rounds, and how many times faster than 0.1.0.

Joules are of the whole machine, and need the processor's counters, which virtual machines do not
show: there the column is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import calibrate, machine, report

ROOT = Path(__file__).parents[1]
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
"""Environment variables that keep PyTorch and its libraries from wider instructions."""
PRIORS = ("embedded", "embedded_photographs", "embedded_documents")


@dataclass(frozen=True)
class Job:
    """One kind of job."""

    version: str
    tree: Path
    prior: str
    preset: str | None
    size: int

    def spec(self) -> dict[str, Any]:
        """Of the task restore."""
        spec = {
            "prior": self.prior,
            "operator": {"type": "gaussian_blur", "sigma": 1.5},
            "sigma": 0.05,
            "working_size": self.size,
            "seed": 0,
        }
        return spec if self.preset is None else {**spec, "preset": self.preset}


def jobs(first: Path, sizes: list[int]) -> list[Job]:
    """0.1.0, then this version's presets; sizes above 128 pixels with the default preset only."""
    found = []
    for size in sizes:
        presets = ("fast", "balanced", "best") if size <= 128 else ("balanced",)
        found.append(
            Job(version="0.1.0", tree=first.resolve(), prior="embedded", preset=None, size=size)
        )
        found += [
            Job(version="this", tree=ROOT, prior=prior, preset=preset, size=size)
            for prior in PRIORS
            for preset in presets
        ]
    return found


def run(job: Job, picture: Path, processor: str, threads: int) -> dict[str, float]:
    """Seconds, memory and joules of one job in a process of its own."""
    command = [sys.executable, str(ROOT / "benchmarks/one_job.py"), str(picture.resolve())]
    command += ["--version", job.version, "--spec", json.dumps(job.spec())]
    command += ["--threads", str(threads), *(["--no-bfloat16"] if processor == "avx2" else [])]
    environment = {**os.environ, "PYTHONPATH": str(job.tree)}
    environment |= AVX2 if processor == "avx2" else {}
    done = subprocess.run(
        command, cwd=job.tree, env=environment, stdout=subprocess.PIPE, check=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def row(job: Job, runs: list[dict[str, float]], first: list[dict[str, float]]) -> dict[str, Any]:
    """Medians of one kind of job."""
    middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    oldest = statistics.median(run["cpu_seconds"] for run in first)
    return {
        "version": job.version,
        "prior": job.prior,
        "preset": job.preset or "default",
        "pixels": job.size,
        **{name: round(value, 2) for name, value in middle.items()},
        "times faster": round(oldest / middle["cpu_seconds"], 2),
        "rounds": len(runs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--first", type=Path, required=True, help="folder with version 0.1.0")
    parser.add_argument("--picture", type=Path, default=ROOT / "examples/photos/coffee.png")
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 256])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processor", choices=["native", "avx2"], default="native")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    kinds = jobs(asked.first, asked.sizes)
    runs: dict[Job, list[dict[str, float]]] = {job: [] for job in kinds}
    for number in range(asked.rounds):
        for job in kinds:
            runs[job].append(run(job, asked.picture, asked.processor, asked.threads))
            print(number, job.version, job.prior, job.preset, runs[job][-1], flush=True)
    oldest = {job.size: runs[job] for job in kinds if job.version == "0.1.0"}
    rows = [row(job, runs[job], oldest[job.size]) for job in kinds]
    device = torch.device("cpu")
    facts = {**machine(device, calibrate(device)), "processor": asked.processor}
    facts["load_average"] = os.getloadavg()[0]
    report("Restorations by version and preset", facts, rows, asked.out)


if __name__ == "__main__":
    main()
