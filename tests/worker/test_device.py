"""Health endpoints of a worker, and device faults reported by the driver."""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
from types import SimpleNamespace
from typing import Any

import pytest

from service.jobs import WorkerInfo
from service.launch.devices import NoDevice, gpus
from service.launch.processes import free_port, start_workers
from service.launch.supervisor import Supervisor
from service.settings import Settings
from worker import device, exporter, telemetry


class NVMLError(Exception):
    """Error raised by the driver's library."""


class Driver(SimpleNamespace):
    """A simulated driver with several GPUs, the last of which may have MIG devices."""

    NVMLError = NVMLError
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0

    def __init__(
        self,
        uuids: list[str],
        slices: tuple[str, ...] = (),
        uncorrected: int | None = 0,
        failed_rows: int = 0,
    ) -> None:
        super().__init__(
            uuids=uuids, slices=slices, uncorrected=uncorrected, failed_rows=failed_rows
        )

    def nvmlInit(self) -> None:
        if not self.uuids:
            raise NVMLError("Driver Not Loaded")

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return len(self.uuids)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> str:
        return str(self.uuids[number])

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid not in self.uuids:
            raise NVMLError("Not Found")
        return uuid

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:
        return 7 if self.slices and handle == self.uuids[-1] else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, number: int) -> str:
        if number >= len(self.slices):
            raise NVMLError("Not Found")
        return str(self.slices[number])

    def nvmlDeviceGetTotalEccErrors(self, *_: Any) -> int:
        if self.uncorrected is None:
            raise NVMLError("Not Supported")
        return int(self.uncorrected)

    def nvmlDeviceGetRemappedRows(self, *_: Any) -> tuple[int, int, bool, int]:
        return 0, 0, False, self.failed_rows


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return lambda *arguments, **fields: monkeypatch.setitem(
        sys.modules, "pynvml", Driver(*arguments, **fields)
    )


def test_gpus_are_identified_by_uuid_and_mig_devices_by_theirs(driver: Any) -> None:
    driver(["GPU-a", "GPU-b"], slices=("MIG-1", "MIG-2"))
    assert gpus() == ["GPU-a", "MIG-1", "MIG-2"]


def test_visible_devices_are_respected(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver(["GPU-a", "GPU-b"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b")
    assert gpus() == ["GPU-b"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(NoDevice, match="No GPU is visible"):
        gpus()


def test_a_missing_driver_is_reported(driver: Any) -> None:
    driver([])
    with pytest.raises(NoDevice, match="driver does not answer"):
        gpus()


class Recorder(Supervisor):
    """Records processes instead of starting them."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.asked: dict[str, dict[str, str]] = {}

    def start(self, name: str, command: Any, **environment: str) -> None:
        self.asked[name] = environment


def test_every_gpu_gets_one_worker(driver: Any) -> None:
    driver(["GPU-a", "GPU-b"])
    settings = Settings(device="cuda", metrics_port=9100)
    started = Recorder(settings)
    start_workers(started, settings)
    assert [asked["CUDA_VISIBLE_DEVICES"] for asked in started.asked.values()] == ["GPU-a", "GPU-b"]
    assert [asked["APS_METRICS_PORT"] for asked in started.asked.values()] == ["9100", "9101"]
    assert {asked["CUDA_DEVICE_ORDER"] for asked in started.asked.values()} == {"PCI_BUS_ID"}
    assert list(started.asked) == ["worker 1 on GPU-a", "worker 2 on GPU-b"]
    on_cpu = Recorder(Settings())
    start_workers(on_cpu, Settings())
    assert on_cpu.asked == {"worker 1": {}}


def test_faults_reported_by_the_driver_are_described(
    driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert device.fault("cpu") is None
    driver(["GPU-a"])
    assert device.fault("cuda") is None
    driver(["GPU-a"], uncorrected=None)
    assert device.fault("cuda") is None, "no error correction is no fault"
    driver(["GPU-a"], uncorrected=2)
    assert "2 uncorrectable" in str(device.fault("cuda"))
    driver(["GPU-a"], failed_rows=1)
    assert "failed to remap" in str(device.fault("cuda"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-gone")
    assert "was not found" in str(device.fault("cuda"))
    driver([])
    assert "does not respond" in str(device.fault("cuda"))


def asked(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()


def test_the_workers_port_serves_liveness_readiness_and_metrics() -> None:
    problem: list[str | None] = ["The priors are being loaded."]
    port = free_port()
    exporter.serve(port, lambda: problem[0])
    assert asked(port, "/livez") == (200, "alive\n")
    assert asked(port, "/readyz") == (503, "The priors are being loaded.\n")
    problem[0] = None
    assert asked(port, "/readyz") == (200, "ready\n")
    assert asked(port, "/nothing")[0] == 404
    status, _ = asked(port, "/metrics")
    assert status == 200
    telemetry.DEVICE_HEALTHY.set(1)
    assert "aps_device_healthy 1.0" in asked(port, "/metrics")[1]


def test_a_worker_is_stalled_only_if_idle_with_queued_jobs_and_not_loading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from worker import lifecycle

    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(pid))
    worker = lifecycle.Worker()
    worker.entries = [
        WorkerInfo(
            name="one",
            prior="embedded",
            device="cpu",
            seconds_per_token=1e-4,
            max_pixels=10**6,
            job_bytes=10**9,
            token_bytes=1,
        )
    ]
    waiting = 1
    worker.store = SimpleNamespace(depth=lambda _: waiting)  # type: ignore[assignment]
    worker.registry = SimpleNamespace(renew=lambda _: None)  # type: ignore[assignment]
    worker.stopping.set()  # one round

    worker.last_message_at -= 1000  # loading a large prior takes minutes
    worker.stay_registered()
    assert killed == []
    worker.last_message_at -= 1000
    worker.busy = True
    worker._exit_if_stalled()
    worker.busy, waiting = False, 0
    worker._exit_if_stalled()
    assert killed == []
    waiting = 1
    worker._exit_if_stalled()
    assert len(killed) == 1
