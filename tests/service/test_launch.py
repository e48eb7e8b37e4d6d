"""Starting and stopping all processes of the service with one call."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from service.access.keys import KeyRefused
from service.launch import processes
from service.launch.processes import LaunchFailed, free_port, running_service, wait_ready
from service.settings import Settings


def launched(settings: Settings, port: int) -> subprocess.Popen[bytes]:
    code = (
        "from service.launch.processes import launch; from service.settings import Settings;"
        f" launch(Settings(), embedded=True, port={port})"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=settings.environment() | {"PYTHONPATH": os.getcwd()},
        start_new_session=True,
    )


def processes_using(folder: Path) -> list[str]:
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(folder).encode() in environment.read_bytes():
                found.append(environment.with_name("cmdline").read_text().replace("\0", " "))
        except OSError:
            continue  # ended meanwhile
    return found


def test_it_serves_until_stopped_and_leaves_no_processes(tmp_path: Path) -> None:
    settings, port = (
        Settings(data_dir=tmp_path, artifacts_dir=tmp_path / "artifacts", threads=1),
        free_port(),
    )
    service = launched(settings, port)
    deadline = time.monotonic() + 240
    while True:
        assert service.poll() is None
        assert time.monotonic() < deadline
        try:
            if httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                break
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    assert len(processes_using(tmp_path)) >= 4
    service.send_signal(signal.SIGTERM)
    assert service.wait(40) == 0
    assert processes_using(tmp_path) == []


def test_a_slow_start_says_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(processes, "REPORT_SECONDS", 0.2)
    with pytest.raises(LaunchFailed, match=r"not ready after 1 s: .*refused"):
        wait_ready(f"http://127.0.0.1:{free_port()}", {}, seconds=1)
    assert 3 <= caplog.text.count("not ready after") <= 4
    assert "refused" in caplog.text


def test_missing_keys_are_noticed_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(data_dir=tmp_path, artifacts_dir=tmp_path / "artifacts", auth="keys")
    monkeypatch.setattr(processes, "start_workers", lambda *_: pytest.fail("a worker starts"))
    with (
        pytest.raises(KeyRefused, match="requires API keys, but none exists"),
        running_service(settings, embedded=True),
    ):
        pass
    assert processes_using(tmp_path) == []


def test_it_ends_when_a_worker_cannot_start(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, artifacts_dir=tmp_path / "artifacts", priors=["absent"])
    service = launched(settings, free_port())
    assert service.wait(120) != 0
    assert processes_using(tmp_path) == []


def test_a_killed_launcher_leaves_no_orphans(tmp_path: Path) -> None:
    settings, port = (
        Settings(data_dir=tmp_path, artifacts_dir=tmp_path / "artifacts", threads=1),
        free_port(),
    )
    service = launched(settings, port)
    deadline = time.monotonic() + 240
    while len(processes_using(tmp_path)) < 4:  # launcher, server, worker, API
        assert service.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(service.pid, signal.SIGKILL)
    service.wait()
    deadline = time.monotonic() + 10
    while left := processes_using(tmp_path):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
