"""The real service on a device with the embedded prior: jobs of five sizes, a killed worker, GPU
memory; and the fallbacks when the device runs out of memory.

    python -m benchmarks.gpu_worker service --device cuda        # the service as processes
    python -m benchmarks.gpu_worker oom_fallback --device cuda   # the library, capped memory

Exits with 1 if a check fails; the JSON shows which one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import torch

from aps_client import Client
from aps_client.models import Job
from aps_core.engines.engine import ImageEngine
from aps_core.engines.oom_fallback import free_memory
from aps_core.imaging import images
from aps_core.tasks import Inputs, RestoreSpec, run
from aps_core.tasks.results import PictureResult
from service.launch.processes import free_port, running_service
from service.launch.supervisor import Supervisor
from service.settings import Settings

PHOTO = Path(__file__).parents[1] / "examples" / "photos" / "coffee.png"
SIZES = (64, 128, 256, 384, 512)
TINY_SIZES = (32, 48)
SHARES = (0.9, 0.75, 0.6, 0.5, 0.4, 0.3)
"""Memory limits as shares of a job's peak memory, tried until the job needs a fallback."""


def service(device: str, tiny: bool) -> dict[str, Any]:
    """Runs jobs of five sizes, then one job twice: undisturbed, and with its worker killed."""
    with tempfile.TemporaryDirectory() as folder:
        ports = [free_port(), free_port()]
        settings = Settings(
            device="cuda" if device == "cuda" else "cpu",
            data_dir=Path(folder),
            artifacts_dir=Path(folder) / "artifacts",
            metrics_port=ports[1],
            lease_seconds=4,
            heartbeat_seconds=1,
            sweep_seconds=1,
            republish_seconds=2,
            threads=None if device == "cuda" else 1,
        )
        log = Path(folder) / "service.log"
        try:
            with (
                running_service(settings, embedded=True, port=ports[0], log_file=log) as (
                    url,
                    made,
                ),
                Client(url) as client,
            ):
                sizes = [one_size(client, made, side, ports[1]) for side in sizes_of(tiny)]
                return {"sizes": sizes, "killed": killed(client, made, tiny)}
        finally:
            sys.stderr.write(log.read_text() if log.exists() else "")


def sizes_of(tiny: bool) -> tuple[int, ...]:
    return TINY_SIZES if tiny else SIZES


def one_size(client: Client, supervisor: Supervisor, side: int, port: int) -> dict[str, Any]:
    """Runs a job through the service; returns its seconds and the worker's memory afterwards."""
    started = time.monotonic()
    sampler = {"steps": 2, "inner_steps": 2} if side in TINY_SIZES else {}
    job = finished(client, supervisor, submitted(client, side, "size", sampler))
    seconds = time.monotonic() - started
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=30).text
    memory = {
        line.split('"')[1]: float(line.split()[-1])
        for line in text.splitlines()
        if line.startswith("aps_gpu_memory_bytes{")
    }
    return {"side": side, "state": str(job.state), "seconds": round(seconds, 2), "memory": memory}


def killed(client: Client, supervisor: Supervisor, tiny: bool) -> dict[str, Any]:
    """Runs the same job undisturbed and with ``kill -9`` of its worker; the bytes must be equal."""
    side = 32 if tiny else 256
    sampler = {"steps": 16, "inner_steps": 3 if tiny else 100}
    calm = client.result(finished(client, supervisor, submitted(client, side, "calm", sampler)))
    job = submitted(client, side, "killed", sampler)
    while (at := step_of(job := client.job(job))) < 2 and not job.state.terminal:
        time.sleep(0.01)
    for name, child in supervisor.children.items():
        if "worker" in name.lower():
            os.kill(child.pid, signal.SIGKILL)
    over = finished(client, supervisor, job)
    result = client.result(over)
    return {
        "killed_after_step": at,
        "attempts": over.attempt,
        "resumed_from_step": result.sidecar.get("resumed_from_step"),
        "same_bytes": sha256(result.image) == sha256(calm.image),
    }


def step_of(job: Job) -> int:
    return job.progress.step if job.progress is not None else 0


def submitted(client: Client, side: int, name: str, sampler: dict[str, int]) -> Job:
    """Submits a restoration of the photograph at ``side`` pixels; ``name`` distinguishes jobs."""
    return client.submit(
        "restore",
        {"image": PHOTO},
        operator={"type": "gaussian_blur", "sigma": 1.5},
        sigma=0.05,
        working_size=side,
        sampler=sampler,
        idempotency_key=f"{name}-{side}",
    )


def finished(client: Client, supervisor: Supervisor, job: Job) -> Job:
    """Waits for the end of the job, restarting processes that exit."""
    while not (job := client.job(job)).state.terminal:
        supervisor.tend()
        time.sleep(0.05)
    return job


def oom_fallback(device: str, tiny: bool) -> dict[str, Any]:
    """Runs a job with decreasing memory until it needs a fallback; its result must be finite.

    On a CPU, whose memory cannot be capped, the decoder raises out-of-memory errors until it
    recomputes activations.
    """
    engine = ImageEngine.load("embedded", device)
    photo = Inputs(images.open_image(PHOTO.read_bytes()))
    spec = RestoreSpec(
        operator={"type": "denoise"},
        sigma=0.1,
        working_size=32 if tiny else 512,
        sampler={"steps": 3, "inner_steps": 3},
    )

    def restored() -> PictureResult:
        result = run(spec, photo, engine)
        assert isinstance(result, PictureResult)
        return result

    whole = restored()
    if device == "cuda":
        return capped(restored) | {"undisturbed_fallbacks": whole.memory_fallbacks}
    decoder = engine.prior.tokenizer.net.decoder  # type: ignore[attr-defined]
    forward = decoder.forward

    def failing(z_BDhw: torch.Tensor) -> torch.Tensor:
        if z_BDhw.requires_grad and not decoder.recompute:
            raise torch.OutOfMemoryError("injected, as a CPU's memory cannot be capped")
        return forward(z_BDhw)  # type: ignore[no-any-return]

    decoder.forward = failing
    result = restored()
    return {"fallbacks": result.memory_fallbacks, "injected": True, "whole": bool(finite(result))}


def capped(restored: Callable[[], PictureResult]) -> dict[str, Any]:
    """Caps the process's GPU memory at decreasing shares of the job's own peak."""
    total = torch.cuda.get_device_properties(0).total_memory
    free_memory()
    torch.cuda.reset_peak_memory_stats()
    resident = torch.cuda.memory_allocated()
    restored()
    peak = torch.cuda.max_memory_allocated()
    for share in SHARES:
        limit = resident + share * (peak - resident)
        free_memory()
        torch.cuda.set_per_process_memory_fraction(limit / total)
        result = restored()
        if result.memory_fallbacks:
            facts = {"fallbacks": result.memory_fallbacks, "given": share, "peak_bytes": peak}
            return facts | {"injected": False, "whole": bool(finite(result))}
    return {"fallbacks": [], "peak_bytes": peak, "whole": False}


def finite(result: PictureResult) -> bool:
    return bool(torch.isfinite(result.pictures_BCHW).all())


def kept(part: str, facts: dict[str, Any]) -> bool:
    """Whether all checks of ``part`` passed."""
    if part == "oom_fallback":
        return bool(facts["fallbacks"]) and facts["whole"]
    killed_job = facts["killed"]
    return (
        all(row["state"] == "succeeded" for row in facts["sizes"])
        and killed_job["same_bytes"]
        and killed_job["attempts"] > 1
    )


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["service", "oom_fallback"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tiny", action="store_true", help="the smallest pictures")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    args = parser.parse_args(arguments)
    facts = {"service": service, "oom_fallback": oom_fallback}[args.part](args.device, args.tiny)
    text = json.dumps(facts, indent=1)
    print(text)
    if args.out is not None:
        args.out.write_text(text)
    sys.exit(not kept(args.part, facts))


if __name__ == "__main__":
    main()
