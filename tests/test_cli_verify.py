"""``aps verify`` passes with working weights and reports why other weights fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from aps_cli.main import main

ROOT = Path(__file__).parents[1]
SMALL = (
    "--size",
    "64",
    "--steps",
    "1",
    "--inner-steps",
    "1",
    "--device",
    "cpu",
    "--threads",
    "1",
    "--json",
)


def verify(*arguments: object) -> tuple[int, dict[str, dict]]:
    result = CliRunner().invoke(main, ["verify", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    outcomes = [json.loads(line) for line in result.stdout.splitlines()]
    return result.exit_code, {outcome["name"]: outcome for outcome in outcomes}


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Zero-filled checkpoints in the published layout: complete MAGVIT-v2, narrow MMaDA."""
    folder = tmp_path_factory.mktemp("weights")
    command = [
        sys.executable,
        "benchmarks/load.py",
        "--width",
        "128",
        "--layers",
        "1",
        "--write",
        str(folder),
    ]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    return folder


def test_published_layouts_run_whatever_their_weights(
    synthetic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APS_WEIGHTS_DIR", "unused")
    code, outcomes = verify(
        "mmada_8b", "--weights-dir", synthetic, *SMALL, "--no-quality", "-o", tmp_path
    )
    assert code == 0, outcomes
    assert list(outcomes) == [
        "load",
        "frozen",
        "tokenizer round trip",
        "text to image",
        "super resolution",
    ]
    assert "none requires gradients" in outcomes["frozen"]["detail"]
    assert outcomes["super resolution"]["peak_bytes"] > 100_000_000
    assert {path.name for path in tmp_path.iterdir()} == {
        "round-trip.png",
        "text-to-image.png",
        "super-resolution.png",
    }


def test_zero_weights_fail_the_quality_checks(
    synthetic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APS_WEIGHTS_DIR", "unused")
    code, outcomes = verify("mmada_8b", "--weights-dir", synthetic, *SMALL)
    assert code == 1
    assert outcomes["load"]["passed"]
    assert "dB, expected at least 20" in outcomes["tokenizer round trip"]["detail"]
    assert not outcomes["super resolution"]["passed"]


def test_missing_weights_fail_at_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APS_WEIGHTS_DIR", "unused")
    code, outcomes = verify("mmada_8b", "--weights-dir", tmp_path, *SMALL)
    assert code == 1
    assert list(outcomes) == ["load"]
    assert "aps weights fetch mmada-8b-base" in outcomes["load"]["detail"]


@pytest.mark.slow
def test_the_embedded_prior_passes() -> None:
    code, outcomes = verify(
        "embedded", "--device", "cpu", "--threads", "1", "--steps", "8", "--json"
    )
    assert code == 0, outcomes
