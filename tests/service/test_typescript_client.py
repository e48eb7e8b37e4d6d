"""TypeScript types generated from the OpenAPI document check, and the example works with them."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from tests.stack import Stack, png

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "typescript"
TOOLS = EXAMPLE / "node_modules" / ".bin"

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not (TOOLS / "tsc").exists(),
    reason="needs node, and 'npm ci' in examples/typescript (scripts/test runs it)",
)


def run(folder: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example, with the types generated from the frozen document."""
    folder = tmp_path_factory.mktemp("typescript")
    for name in ("package.json", "tsconfig.json", "restore.ts"):
        shutil.copy(EXAMPLE / name, folder)
    (folder / "node_modules").symlink_to(EXAMPLE / "node_modules")
    flags = ("--output", "aps.ts", "--default-non-nullable", "false")
    done = run(folder, TOOLS / "openapi-typescript", ROOT / "docs" / "openapi.json", *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_example_checks_and_restores_a_picture(project: Path, stack: Stack) -> None:
    checked = run(project, TOOLS / "tsc")
    assert checked.returncode == 0, checked.stdout
    (project / "photo.png").write_bytes(png(48, 32))
    done = run(project, "node", "build/restore.js", "photo.png", "restored.png", stack.url)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == "restored.png: 48x32 pixels"
    assert Image.open(io.BytesIO((project / "restored.png").read_bytes())).size == (48, 32)


def test_a_wrong_request_does_not_check(project: Path) -> None:
    """All mistakes in one run of the compiler, one file each."""
    example = (project / "restore.ts").read_text()
    mistakes = {
        "operator": ('type: "denoise"', 'type: "denoize"'),
        "field": ('preset: "fast"', 'prefix: "fast"'),
        "path": ('"/v1/restore"', '"/v1/restored"'),
        "answer": ("job.output_size", "job.size_of_output"),
    }
    for name, (right, wrong) in mistakes.items():
        assert right in example
        (project / f"wrong-{name}.ts").write_text(example.replace(right, wrong))
    (project / "wrong.json").write_text(
        '{"extends": "./tsconfig.json", "files": [], "include": ["wrong-*.ts"]}'
    )
    checked = run(project, TOOLS / "tsc", "--noEmit", "--project", "wrong.json")
    told = {line.partition("(")[0] for line in checked.stdout.splitlines()}
    assert {f"wrong-{name}.ts" for name in mistakes} <= told, checked.stdout
