"""How long ten tenants wait for one worker when one of them has a thousand jobs.

    python -m benchmarks.fairness --out benchmarks/results/fairness.json

Real processes: store, API and one CPU worker. One tenant submits ``--many`` small jobs, then nine
others ``--few`` each. A tenant's wait is from its first submission to the start of each of its
jobs, in units of the mean time the worker took for a job, so that the machine's speed cancels.
Ideal is a perfect rotation: the k-th job of each tenant starts in the k-th round. Beside it stands
what a single queue in order of arrival would make of the same submissions.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image
from redis import Redis

from benchmarks import service_report
from service.access.keys import KeyStore, new_key
from service.jobs import Job, open_store
from service.launch.embedded_server import running_server
from service.launch.processes import api_command, free_port, wait_ready, worker_command
from service.launch.supervisor import process
from service.settings import Settings

TENANTS = 10
QUICK = {"operator": {"type": "denoise"}, "sigma": 0.1, "sampler": {"steps": 1, "inner_steps": 1}}


def picture(folder: Path) -> bytes:
    path = folder / "picture.png"
    noise = np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    return path.read_bytes()


def submit(http: httpx.Client, token: str, image: bytes, number: int) -> list[str]:
    headers = {"Authorization": f"Bearer {token}"}
    stored = http.post(
        "/v1/files", content=image, headers={**headers, "Content-Type": "image/png"}
    ).raise_for_status()
    body = {**QUICK, "image": f"sha256:{stored.json()['sha256']}"}
    return [
        http.post("/v1/restore", json=body, headers=headers).raise_for_status().json()["id"]
        for _ in range(number)
    ]


def measure(folder: Path, many: int, few: int) -> dict[str, Any]:
    base = Settings(
        data_dir=folder,
        artifacts_dir=folder / "artifacts",
        auth="keys",
        priors=["embedded"],
        threads=1,
        max_queued=10**6,
        max_backlog_seconds=0,
        max_own_backlog_seconds=0,
        requests_per_second=10**6,
        request_burst=10**6,
    )
    with ExitStack() as exits:
        settings = base.model_copy(update={"redis_url": exits.enter_context(running_server(base))})
        tokens = {}
        with Redis.from_url(settings.redis_url) as redis:
            for number in range(TENANTS):
                tokens[number], key = new_key(f"tenant-{number}", frozenset({"read", "write"}))
                KeyStore(redis).add(key)
        log, port, image = folder / "log", free_port(), picture(folder)
        url = f"http://127.0.0.1:{port}"
        api = exits.enter_context(process("API", api_command("127.0.0.1", port), settings, log))
        worker = exits.enter_context(process("worker", worker_command(settings), settings, log))
        wait_ready(url, {"API": api, "worker": worker})
        store, _ = open_store(settings)
        with httpx.Client(base_url=url, timeout=60) as http:
            crowd = submit(http, tokens[0], image, many)
            others = {
                number: submit(http, tokens[number], image, few) for number in range(1, TENANTS)
            }
        ids = [job_id for waiting in others.values() for job_id in waiting]
        while any(_job(store.get(job_id)).finished_at is None for job_id in ids):
            time.sleep(0.2)
        found = [_job(store.get(job_id)) for job_id in (*crowd, *ids)]
        store.redis.close()
    return summary([job for job in found if job.started_at], set(ids), many, few)


def _job(job: Job | None) -> Job:
    assert job is not None
    return job


def summary(started: list[Job], others: set[str], many: int, few: int) -> dict[str, Any]:
    order = sorted(started, key=lambda job: str(job.started_at))
    first = next(place for place, job in enumerate(order) if job.id in others)
    ahead = [place - first for place, job in enumerate(order) if job.id in others]
    ideal = [
        (TENANTS * (number // (TENANTS - 1))) + number % (TENANTS - 1)
        for number in range(len(ahead))
    ]
    return {
        "tenants": TENANTS,
        "jobs_of_one": many,
        "jobs_of_each_other": few,
        "mean_wait_of_the_others_in_jobs": round(statistics.mean(ahead), 2),
        "ideal": round(statistics.mean(ideal), 2),
        "ratio_to_ideal": round(statistics.mean(ahead) / statistics.mean(ideal), 3),
        "longest_wait_in_jobs": max(ahead),
        "longest_ideal": max(ideal),
        "in_order_of_arrival": round(many - first + statistics.mean(range(len(ahead))), 1),
        "jobs_of_one_started_meanwhile": sum(
            job.id not in others for job in order[first : first + ahead[-1]]
        ),
    }


def main() -> None:
    parser = service_report.parser(__doc__)
    parser.add_argument("--many", type=int, default=1000)
    parser.add_argument("--few", type=int, default=10)
    wanted = parser.parse_args()
    origin = service_report.origin("benchmarks.fairness")
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), wanted.many, wanted.few)
    service_report.write({**origin, **found}, wanted.out)


if __name__ == "__main__":
    main()
