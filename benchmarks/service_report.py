"""Reports of benchmarks that run the service: machine, version, options and JSON file."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any


def parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with the option of every report, ``--out FILE``."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--out", type=Path, help="JSON file to write")
    return made


def cpu() -> str:
    """Model name of the processor."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return models[0] if models else platform.processor()


def origin(module: str) -> dict[str, Any]:
    """What produced a report: command, machine and commit. Call it before the measurement, because
    it reads the load average.
    """
    return {
        "command": " ".join(["python", "-m", module, *sys.argv[1:]]),
        "nice": os.nice(0),
        "machine": {
            "cpu": cpu(),
            "cores_allowed": len(os.sched_getaffinity(0)),
            "python": platform.python_version(),
            "load_average_before": os.getloadavg()[0],
        },
        "commit": subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
        ).stdout.strip(),
    }


def write(report: dict[str, Any], out: Path | None) -> None:
    """Prints a report as JSON and stores it."""
    text = json.dumps(report, indent=1)
    print(text)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text + "\n")


def memory_mb(pid: int, field: str = "VmRSS") -> float:
    """A memory field of ``/proc/PID/status`` in MB; 0 if the process has exited."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(field)), 0.0)
