"""Runs everything that needs a GPU, on a machine without network: see ``scripts/gpu-proof``.

Standard library only, as it runs before the wheels it carries are installed. A stage is a list of
steps; a step is one command. Its output goes to ``STAGE.log`` and its measurements to
``proof.json``, which is rewritten after every step. Steps that succeeded are not repeated.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
STAGE_SECONDS = 8 * 60
TIMED_OUT = 124
LIMIT_BYTES = 64 * 2**20
"""Maximum size of all wheels together."""
PROVIDED = ("torch", "transformers", "tokenizers", "safetensors", "huggingface-hub", "numpy")
"""Packages that the GPU machine already has."""
CARRIED = ("pytest", "matplotlib", "tqdm", "aps[service,worker,embedded]")
"""Packages carried besides this project's own dependencies."""
PLATFORMS = [f"manylinux_2_{n}_x86_64" for n in (34, 31, 28, 27, 24, 17)] + ["manylinux2014_x86_64"]
CUDA = "import sys, torch; sys.exit(not torch.cuda.is_available())"
JSON = "{json}"
"""Placeholder for the file to which a step writes its measurements."""


@dataclass(frozen=True)
class Step:
    """One command; its arguments follow ``python -m``."""

    name: str
    command: tuple[str, ...]


def stages(tiny: bool) -> dict[str, tuple[Step, ...]]:
    """All stages. ``tiny`` runs the same commands on a CPU, only to prove that they run."""
    device = ("--device", "cpu" if tiny else "cuda", "--out", JSON)
    job = ("benchmarks.job", *device)
    quick = ("--steps", "1", "--inner-steps", "1", "--repeats", "1", "--text-tokens", "4")
    small, large = (
        ("32x32", ("48x32",)) if tiny else ("512x512", ("256x256", "1024x512", "1024x1024"))
    )
    few = quick if tiny else ()
    text = ("--steps", "2", "--tokens", "4", "--repeats", "1") if tiny else ("--profile",)
    naive = () if tiny else ("--naive", "--profile")
    least = ("--tiny",) if tiny else ()
    pytest = ("pytest", "-o", "addopts=", "-q", "--noconftest", "-p", "no:cacheprovider")
    return {
        "parity": (
            Step("parity", (*pytest, "tests/gpu/test_cuda_parity.py")),
            Step("fast path", (*pytest, "tests/gpu", "--ignore=tests/gpu/test_cuda_parity.py")),
        ),
        "inner": (
            Step(
                small,
                ("benchmarks.inner_loop", *device, "--size", small)
                + (("--repeats", "1", "--only", "naive", "bfloat16") if tiny else ()),
            ),
        ),
        "job": (Step(small, (*job, "--sizes", small, *naive, *few)),),
        "sizes": tuple(Step(size, (*job, "--sizes", size, *few)) for size in large),
        "text": (Step("guided", ("benchmarks.guided_text", *device, *text)),),
        "worker": tuple(
            Step(part, ("benchmarks.gpu_worker", part, *device, *least))
            for part in ("oom_fallback", "service")
        ),
        "training": (Step("image priors", ("benchmarks.gpu_training", "--out", JSON, *least)),),
    }


class Proof:
    """``proof.json``: what ran when, how it ended, and what it measured."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.file = out / "proof.json"
        out.mkdir(parents=True, exist_ok=True)
        self.facts: dict[str, Any] = {"runs": [], "steps": {}}
        if self.file.exists():
            self.facts = json.loads(self.file.read_text())

    def done(self, stage: str, step: str) -> bool:
        """Whether the step has already succeeded."""
        return bool(self.facts["steps"].get(f"{stage}/{step}", {}).get("rc") == 0)

    def record(self, stage: str, step: str, **facts: Any) -> None:
        """Records the outcome of a step and saves the file."""
        self.facts["steps"][f"{stage}/{step}"] = facts
        self.save()

    def save(self) -> None:
        """Writes the file atomically."""
        scratch = self.file.with_suffix(".tmp")
        scratch.write_text(json.dumps(self.facts, indent=1))
        scratch.replace(self.file)


def run_stage(
    name: str, steps: Sequence[Step], proof: Proof, env: dict[str, str], seconds: float
) -> bool:
    """Runs the remaining steps of a stage within ``seconds``; True if all steps have succeeded."""
    deadline = time.monotonic() + seconds
    for step in steps:
        if proof.done(name, step.name):
            print(f"{name}/{step.name}: done before", flush=True)
            continue
        left = deadline - time.monotonic()
        if left <= 0:
            print(f"{name}/{step.name}: no time left; run again", flush=True)
            continue
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder) / "result.json"
            command = [str(result) if part == JSON else part for part in step.command]
            rc = run_command([sys.executable, "-m", *command], proof.out / f"{name}.log", env, left)
            measured = json.loads(result.read_text()) if result.exists() else None
        spent = round(time.monotonic() - started, 1)
        proof.record(name, step.name, rc=rc, seconds=spent, command=step.command, result=measured)
        word = {0: "ok", TIMED_OUT: "timed out"}.get(rc, f"FAILED ({rc})")
        print(f"{name}/{step.name}: {word} in {spent:.0f} s", flush=True)
    return all(proof.done(name, step.name) for step in steps)


def run_command(command: list[str], log: Path, env: dict[str, str], seconds: float) -> int:
    """Runs a command with its output appended to ``log``; returns its exit status. After
    ``seconds`` it is killed with all of its children.
    """
    with log.open("ab") as output:
        output.write(f"\n$ {' '.join(command)}\n".encode())
        output.flush()
        child = subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=output, stderr=output, start_new_session=True
        )
        try:
            return child.wait(seconds)
        except subprocess.TimeoutExpired:
            return TIMED_OUT
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def overlay(wheels: Path | None, work: Path) -> dict[str, str]:
    """The environment of the steps: the wheels in a folder before the machine's own packages."""
    paths = [str(ROOT)]
    if wheels is not None:
        site, files = work / "site", sorted(map(str, wheels.glob("*.whl")))
        if not files:
            sys.exit(f"{wheels} holds no wheels; run 'scripts/gpu-proof fetch {wheels}' before.")
        listed = work / "installed.txt"
        if not listed.exists() or listed.read_text() != "\n".join(files):
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
            subprocess.run([*pip, "--upgrade", "--target", str(site), *files], check=True)
            listed.write_text("\n".join(files))
        paths.insert(0, str(site))
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"),  # compiled once for all steps
        "TRITON_CACHE_DIR": str(work / "triton"),
    }


def machine() -> dict[str, Any]:
    """Describes the machine, without importing torch."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        gpu = subprocess.run(query, capture_output=True, text=True, timeout=60).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        gpu = "no nvidia-smi"
    versions = {}
    for name in PROVIDED:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {"gpu": gpu, "python": platform.python_version(), **versions}


def needed() -> list[str]:
    """``name==version`` of the project's dependencies that the GPU machine may lack."""
    names = sorted(closure(CARRIED) - {*PROVIDED, "aps"})
    return [f"{name}=={importlib.metadata.version(name)}" for name in names]


def closure(names: Sequence[str]) -> set[str]:
    """These packages and their installed dependencies, excluding provided packages and their
    dependencies.
    """
    from packaging.requirements import Requirement

    found: set[tuple[str, str]] = set()
    waiting = [(one.name, extra) for one in map(Requirement, names) for extra in ("", *one.extras)]
    while waiting:
        name, extra = waiting.pop()
        if name in PROVIDED or (name, extra) in found:
            continue
        found.add((name, extra))
        for line in importlib.metadata.requires(name) or []:
            one = Requirement(line)
            other = re.sub(r"[-_.]+", "-", one.name).lower()
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                waiting += [(other, ""), *((other, wanted) for wanted in one.extras)]
    return {name for name, _ in found}


def fetch(folder: Path, python: str) -> int:
    """Downloads the wheels; returns their total size in bytes.

    Raises:
        SystemExit: the total exceeds the limit.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    for name in PLATFORMS:
        command += ["--platform", name]
    subprocess.run([*map(str, command), *needed()], check=True)
    total = sum(file.stat().st_size for file in folder.glob("*.whl"))
    if total > LIMIT_BYTES:
        sys.exit(f"{folder} holds {total / 2**20:.0f} MiB of wheels, more than 64.")
    return total


def run(args: argparse.Namespace) -> int:
    """Runs the chosen stages; returns 0 if all of them succeeded."""
    known = stages(args.tiny)
    chosen = [name for given in args.stage for name in given.split(",")] or list(known)
    for name in chosen:
        if name not in known:
            sys.exit(f"There is no stage '{name}'; known: {', '.join(known)}.")
    args.work.mkdir(parents=True, exist_ok=True)
    proof, env = Proof(args.out), overlay(args.wheels, args.work)
    # tests without a GPU are skipped, which must not count as a proof
    if not args.tiny and subprocess.run([sys.executable, "-c", CUDA], env=env).returncode:
        sys.exit("torch sees no CUDA device here. --tiny runs the commands on a CPU.")
    proof.facts["runs"].append(
        {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **machine()}
    )
    proof.save()
    left = [n for n in chosen if not run_stage(n, known[n], proof, env, args.minutes * 60)]
    print(f"Results: {proof.file}" + (f"; not proven: {', '.join(left)}" if left else ""))
    return 1 if left else 0


def main(arguments: list[str] | None = None) -> None:
    """Fetches, lists or runs."""
    parser = argparse.ArgumentParser(prog="scripts/gpu-proof", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list", help="name the stages")
    fetching = verbs.add_parser("fetch", help="download the wheels")
    fetching.add_argument("folder", type=Path)
    fetching.add_argument("--python", default="3.12", help="Python of the GPU machine")
    running = verbs.add_parser("run", help="run stages")
    running.add_argument("--out", type=Path, required=True, help="folder of results")
    running.add_argument("--wheels", type=Path, help="folder that fetch filled")
    running.add_argument("--stage", action="append", default=[], help="names, by commas")
    running.add_argument("--minutes", type=float, default=STAGE_SECONDS / 60, help="of a stage")
    running.add_argument("--tiny", action="store_true", help="on a CPU, at the smallest sizes")
    running.add_argument(
        "--work",
        type=Path,
        default=Path(tempfile.gettempdir()) / "aps-gpu-proof",
        help="folder of installed wheels and compiled kernels",
    )
    args = parser.parse_args(arguments)
    if args.verb == "list":
        for name, steps in stages(tiny=False).items():
            print(f"{name}: {', '.join(step.name for step in steps)}")
    elif args.verb == "fetch":
        args.folder.mkdir(parents=True, exist_ok=True)
        print(f"{args.folder}: {fetch(args.folder, args.python) / 2**20:.1f} MiB of wheels")
    else:
        sys.exit(run(args))


if __name__ == "__main__":
    main()
