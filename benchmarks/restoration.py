"""Time, memory and energy of a restoration by preset and embedded prior.

    python -m benchmarks.restoration --threads 2

Runs every job in a process of its own, after a brief one that loads what a worker has loaded.
Gaussian blur. The jobs take turns, round after round, so that other work on the machine disturbs
all alike. ``--processor avx2`` computes as a processor without AVX-512 and AMX would: in float32.
Printed, and written as JSON: medians over the rounds.

Joules are of the whole machine, and need the processor's counters, which virtual machines do not
show: there the column is missing.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import os
import resource
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image

from aps_core.engines.engine import ImageEngine
from aps_core.imaging.images import open_image
from aps_core.runtime.process import be_reproducible
from aps_core.tasks import Inputs, RestoreSpec, run
from benchmarks.energy import Counters
from benchmarks.harness import calibrate, machine, report

PHOTO = Path(__file__).parents[1] / "examples/photos/coffee.png"
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
"""Environment variables that keep PyTorch and its libraries from wider instructions."""
PRIORS = ("embedded", "embedded_photographs", "embedded_documents")
BRIEF = {"type": "aps", "steps": 1, "inner_steps": 2}
"""Sampler of the job before the measured one."""


class Job(NamedTuple):
    """One kind of job."""

    prior: str
    preset: str
    pixels: int


def jobs(sizes: list[int]) -> list[Job]:
    """All presets; sizes above 128 pixels with the default preset only."""
    return [
        Job(prior, preset, size)
        for size in sizes
        for prior in PRIORS
        for preset in (("fast", "balanced", "best") if size <= 128 else ("balanced",))
    ]


def measured(job: Job, picture: Path, processor: str, threads: int) -> dict[str, float]:
    """Seconds, memory in MiB and joules of one job in this process, which has run no other."""
    if processor == "avx2":  # the processor's own answers, which no environment variable changes
        vars(torch.cpu).update(
            _is_avx512_bf16_supported=lambda: False, _is_amx_tile_supported=lambda: False
        )
    be_reproducible(threads)
    engine, file = ImageEngine.load(job.prior), io.BytesIO()
    Image.open(picture).convert("RGB").resize((job.pixels, job.pixels)).save(file, "PNG")
    inputs = Inputs(open_image(file.getvalue()))
    asked = {
        "prior": job.prior,
        "operator": {"type": "gaussian_blur", "sigma": 1.5},
        "sigma": 0.05,
        "working_size": job.pixels,
        "seed": 0,
        "preset": job.preset,
    }
    run(RestoreSpec.model_validate({**asked, "sampler": BRIEF}), inputs, engine)
    energy, started, computed = Counters.now(), time.perf_counter(), time.process_time()
    run(RestoreSpec.model_validate(asked), inputs, engine)
    return {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - computed,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        **({} if energy is None else {"joules": energy.joules_since()}),
    }


def alone(job: Job, picture: Path, processor: str, threads: int) -> dict[str, float]:
    """The same in a new process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(measured, job, picture, processor, threads).result()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--picture", type=Path, default=PHOTO)
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 256])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processor", choices=["native", "avx2"], default="native")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.processor == "avx2":
        os.environ.update(AVX2)  # read by the processes of the jobs
    runs: dict[Job, list[dict[str, float]]] = {job: [] for job in jobs(asked.sizes)}
    for number in range(asked.rounds):
        for job, found in runs.items():
            found.append(alone(job, asked.picture, asked.processor, asked.threads))
            print(number, *job, found[-1], flush=True)
    rows: list[dict[str, Any]] = [
        {
            **job._asdict(),
            **{name: round(statistics.median(one[name] for one in found), 2) for name in found[0]},
            "rounds": len(found),
        }
        for job, found in runs.items()
    ]
    torch.set_num_threads(asked.threads)
    device = torch.device("cpu")
    facts = {**machine(device, calibrate(device)), "processor": asked.processor}
    facts["load_average"] = os.getloadavg()[0]
    report("Restorations by prior and preset", facts, rows, asked.out)


if __name__ == "__main__":
    main()
