"""Malicious files are rejected with a typed problem and little memory; metadata is removed."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from aps_core.imaging.jpeg_tables import table
from service.settings import Settings
from service.uploads.decode_process import LENGTH_BYTES, question_head
from service.uploads.decoder import Decoder
from tests.service.hostile_files import disarmed, refused
from tests.stack import Stack

MAX_BYTES = 200_000_000
MEASURED = """
import resource, subprocess, sys
subprocess.run([sys.executable, "-m", "service.uploads.decode_process", *sys.argv[1:]], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
"""
"""Starts the decoder from a small process: the peak memory of a parent counts for its child."""

CODES = {
    "image_empty",
    "not_an_image",
    "unsupported_image_format",
    "image_animated",
    "image_truncated",
    "image_too_large",
}


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return refused()


@pytest.fixture
def decoder(tmp_path: Path) -> Iterator[Decoder]:
    decoder = Decoder(Settings(data_dir=tmp_path, artifacts_dir=tmp_path, decode_seconds=5))
    decoder.start()
    yield decoder
    decoder.close()


def test_hostile_files_are_rejected_with_little_memory(files: dict[str, bytes]) -> None:
    limits = [str(limit) for limit in (Settings().max_upload_pixels, Settings().decode_bytes, 5)]
    asked = b"".join(question_head(len(data), 0) + data for data in files.values())
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *limits],
        input=asked,
        capture_output=True,
        timeout=120,
        check=True,
    )
    answers = io.BytesIO(done.stdout)
    for name in files:
        answer = json.loads(
            answers.read(int.from_bytes(answers.read(LENGTH_BYTES), "big")).partition(b"\n")[0]
        )
        assert answer.get("code") in CODES, (name, answer)
    assert not answers.read()
    assert len(files) >= 100
    assert 1024 * int(done.stderr) < MAX_BYTES, "of the process, or the hungriest of its children"


def test_the_service_answers_each_with_a_problem(stack: Stack, files: dict[str, bytes]) -> None:
    before = stack.http.get("/v1/jobs?limit=1").json()
    for name, data in files.items():
        answer = stack.http.post(
            "/v1/restore", files={"image": data}, data={"spec": '{"operator": {"type": "denoise"}}'}
        )
        assert (answer.status_code, answer.headers["content-type"]) == (
            422,
            "application/problem+json",
        ), (name, answer.text)
        assert answer.json()["code"] in CODES, name
    assert stack.http.get("/v1/jobs?limit=1").json() == before, "nothing was stored"


@pytest.mark.parametrize("name", disarmed())
def test_appended_data_and_metadata_are_dropped(decoder: Decoder, name: str) -> None:
    upload = decoder.sanitise(disarmed()[name], "image")
    upload.file.seek(0)
    assert b"PAYLOAD" not in upload.file.read()
    told = Image.open(upload.file).info
    steps = ",".join(str(int(step)) for step in table(75).ravel())
    assert told == ({"jpeg-steps": steps} if "JPEG" in name else {})
