"""Walks the first minutes of four kinds of users with a running service, and prints their effort.

    python -m benchmarks.newcomers http://127.0.0.1:8000 [--short]

For each path: clicks in the studio (in Chromium), lines typed into a shell or a program, seconds
until the first sign of progress and until the result, and errors seen. ``--short`` uses tiny
pictures, for tests.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

ROOT = Path(__file__).parents[1]
PHOTO = ROOT / "examples" / "photos" / "coffee.png"
TIMEOUT = 240
"""Seconds to wait for a result."""


@dataclass
class Journey:
    """What one user did and saw."""

    who: str
    clicks: int = 0
    lines: int = 0
    first: float = 0.0
    """Seconds from the submission until progress was shown."""
    seconds: float = 0.0
    errors: list[str] = field(default_factory=list)

    def click(self, page: Page, name: str) -> None:
        """Clicks the control with this text."""
        role = page.get_by_role("button", name=name, exact=True)
        page.get_by_text(name, exact=True).or_(role).locator("visible=true").last.click()
        self.clicks += 1

    def run(self, text: str, folder: Path, server: str) -> str:
        """Runs lines of shell, or of Python if they import something."""
        lines = text.strip().splitlines()
        self.lines += len(lines)
        python = lines[0].startswith(("import", "from"))
        tools = str(Path(sys.executable).parent)
        done = subprocess.run(
            [sys.executable, "-c", text] if python else ["bash", "-ec", text],
            cwd=folder,
            env={
                **os.environ,
                "PATH": f"{tools}:{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT),
                "APS_SERVER": server,
                "OMP_NUM_THREADS": "1",  # so that times of busy machines can be compared
            },
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        if done.returncode:
            self.errors.append(done.stderr.strip().splitlines()[-1] if done.stderr else "failed")
        return done.stdout


def photographer(path: Journey, folder: Path, server: str) -> None:
    """Restores a noisy photograph on the page and downloads it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(base_url=server, viewport={"width": 1280, "height": 800})
        page.on(
            "console",
            lambda said: path.errors.append(said.text) if said.type == "error" else None,
        )
        page.on("pageerror", lambda error: path.errors.append(str(error)))
        page.goto("/")
        page.get_by_label("Degraded picture", exact=True).set_input_files(folder / "photo.png")
        path.clicks += 1
        path.click(page, "Noise only")
        page.locator(".chip:has([value=fast])").click()
        path.clicks += 1
        expect(page.locator(".forecast-line")).to_have_text(re.compile("^Result .* about"))
        page.get_by_role("button", name="Restore", exact=True).click()
        path.clicks += 1
        submitted = time.perf_counter()
        page.locator("progress[value]").wait_for(state="attached", timeout=TIMEOUT * 1000)
        path.first = time.perf_counter() - submitted
        page.get_by_role("heading", name="Restored").wait_for(timeout=TIMEOUT * 1000)
        with page.expect_download():
            path.click(page, "Download PNG")
        browser.close()


def product_engineer(path: Journey, folder: Path, server: str) -> None:
    """Calls the service from Python and with curl."""
    program = """import aps_client
result = aps_client.restore("photo.png", "denoise", preset="fast")
result.save("restored.png")"""
    path.run(program, folder, server)
    path.run(
        f"curl -sf {server}/v1/restore -F image=@photo.png -H 'Prefer: wait=60'"
        """ -F 'spec={"operator": {"type": "denoise"}, "preset": "fast"}' > job.json""",
        folder,
        server,
    )


def researcher(path: Journey, folder: Path, server: str) -> None:
    """Degrades a photograph, restores it in the shell and with the library."""
    path.run(
        """aps degrade photo.png --operator gaussian_blur --blur-sigma 1 -o blurred.png
env -u APS_SERVER aps restore blurred.png --operator gaussian_blur --blur-sigma 1 --preset fast""",
        folder,
        server,
    )
    program = """import aps_core as aps
measurement = aps.Measurement("blurred.png", operator={"type": "gaussian_blur", "sigma": 1.0})
aps.restore(measurement, preset="fast").image.save("library.png")"""
    path.run(program, folder, server)


def platform_engineer(path: Journey, folder: Path, server: str) -> None:
    """Checks the installation, reads the metrics and renders the manifests of a cluster."""
    path.run(
        f"""aps doctor --server {server} || test $? = 1
curl -sf {server}/readyz
curl -sf {server}/metrics | grep -q aps_
kubectl kustomize {ROOT}/k8s/overlays/site > site.yaml
aps jobs list --limit 3""",
        folder,
        server,
    )


PATHS: tuple[Callable[[Journey, Path, str], None], ...] = (
    photographer,
    product_engineer,
    researcher,
    platform_engineer,
)


def walk(server: str, short: bool) -> list[Journey]:
    """Walks all paths, each in a folder of its own.

    Args:
        server: URL of the running service.
        short: whether to use tiny pictures.
    """
    found = []
    for steps in PATHS:
        path = Journey(steps.__name__.replace("_", " "))
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with Image.open(PHOTO) as photo:
                photo.convert("RGB").resize((32, 32) if short else (128, 128)).save(
                    folder / "photo.png"
                )
            started = time.perf_counter()
            steps(path, folder, server)
            path.seconds = time.perf_counter() - started
        found.append(path)
    return found


def table(paths: list[Journey]) -> str:
    """The effort of every user as a Markdown table."""
    rows = [
        f"| {path.who} | {path.clicks} | {path.lines} | {path.first:.1f} | {path.seconds:.1f} |"
        f" {'; '.join(path.errors) or 'none'} |"
        for path in paths
    ]
    head = "| user | clicks | lines | first progress, s | result, s | errors |"
    return "\n".join([head, "|---|---|---|---|---|---|", *rows])


def main() -> None:
    """Prints the table; the exit code is 1 if anybody met an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server")
    parser.add_argument("--short", action="store_true")
    args = parser.parse_args()
    paths = walk(args.server, args.short)
    print(table(paths))
    sys.exit(any(path.errors for path in paths))


if __name__ == "__main__":
    main()
