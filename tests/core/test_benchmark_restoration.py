"""What a restoration costs: time, memory, and energy from the processor's counters."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.energy import Counters
from benchmarks.restoration import PHOTO, Job, alone


def zone(folder: Path, name: str, energy: int, kind: str = "package-0") -> None:
    place = folder / name
    place.mkdir(exist_ok=True)
    (place / "name").write_text(f"{kind}\n")
    (place / "energy_uj").write_text(f"{energy}\n")
    (place / "max_energy_range_uj").write_text("262143328850\n")


def test_packages_are_added_and_their_parts_are_not(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", 1_000_000)
    zone(tmp_path, "intel-rapl:0:0", 500_000, "core")
    zone(tmp_path, "intel-rapl:2", 500_000, "psys")
    zone(tmp_path, "intel-rapl:1", 262_143_000_000)
    before = Counters.now(tmp_path)
    assert before is not None
    zone(tmp_path, "intel-rapl:0", 3_500_000)
    zone(tmp_path, "intel-rapl:0:0", 9_000_000, "core")
    zone(tmp_path, "intel-rapl:2", 9_000_000, "psys")
    zone(tmp_path, "intel-rapl:1", 171_150)  # it began again
    assert before.joules_since() == pytest.approx(2.5 + 0.5)


def test_a_machine_without_counters_has_no_figure(tmp_path: Path) -> None:
    assert Counters.now(tmp_path) is None


def test_a_job_in_a_process_of_its_own_reports_time_and_memory() -> None:
    found = alone(Job("embedded_documents", "fast", 32), PHOTO, "avx2", threads=1)
    assert found["cpu_seconds"] > 0
    assert 100 < found["peak_mib"] < 4000
