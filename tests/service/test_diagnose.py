"""``POST /v1/diagnose`` and ``aps diagnose`` give the library's answer."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from aps_cli.main import main
from aps_client import Client
from aps_core.identify.diagnosis import diagnose
from aps_core.tasks import RestoreSpec
from tests.stack import Stack
from training.diagnosis.simulate import filtered, gaussian_kernel, to_image

PAGE = Path(__file__).parents[2] / "examples/documents/page-karla.png"
PHOTO = Path(__file__).parents[2] / "examples/photos/coffee.png"


@pytest.fixture(scope="module")
def blurred(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("diagnose") / "blurred.png"
    x = np.asarray(Image.open(PHOTO).convert("RGB")) / 127.5 - 1
    to_image(filtered(x, gaussian_kernel(2.0))).save(path)
    return path


def test_a_picture_is_diagnosed_and_nothing_is_stored(stack: Stack, blurred: Path) -> None:
    buffer = io.BytesIO()
    Image.open(blurred).save(buffer, "JPEG", quality=70)
    answer = stack.http.post(
        "/v1/diagnose", content=buffer.getvalue(), headers={"Content-Type": "image/jpeg"}
    )
    assert answer.status_code == 200
    expected = diagnose(buffer.getvalue()).model_dump(mode="json")
    expected["proposal"]["prior"] = "embedded_denoiser"  # of those that the service offers
    assert answer.json() == expected
    assert "JPEG of quality 70" in answer.json()["summary"]
    spec = RestoreSpec.model_validate(answer.json()["proposal"])
    assert {"type": "jpeg", "quality": 70} in spec.model_dump()["operator"]["stages"]


def test_a_document_is_proposed_the_prior_trained_on_documents(
    stack: Stack, blurred: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.png"
    x = np.asarray(Image.open(PAGE).convert("RGB")) / 127.5 - 1
    to_image(filtered(x, gaussian_kernel(1.5))).save(page)
    proposed = {}
    for path in (page, blurred):
        answer = stack.http.post(
            "/v1/diagnose", content=path.read_bytes(), headers={"Content-Type": "image/png"}
        ).json()
        proposed[path] = RestoreSpec.model_validate(answer["proposal"]).prior
    assert proposed == {page: "embedded_documents", blurred: "embedded_denoiser"}
    printed = CliRunner().invoke(main, ["diagnose", str(page)])
    assert printed.stdout.strip().endswith("--prior embedded_documents")


@pytest.mark.parametrize(
    ("content", "kind", "status", "code"),
    [
        (b"GIF89a", "image/png", 422, "unsupported_image_format"),
        (b"", "image/png", 422, "image_empty"),
        (b"{}", "application/json", 415, "unsupported_media_type"),
    ],
)
def test_unreadable_files_are_refused(
    stack: Stack, content: bytes, kind: str, status: int, code: str
) -> None:
    answer = stack.http.post("/v1/diagnose", content=content, headers={"Content-Type": kind})
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_the_command_prints_words_and_a_command(stack: Stack, blurred: Path) -> None:
    local, remote = (
        CliRunner().invoke(main, ["diagnose", str(blurred), str(PHOTO), *where])
        for where in ((), ("--server", stack.url))
    )
    assert local.exit_code == remote.exit_code == 0, local.output + remote.output
    assert local.output == remote.output
    assert "Soft: a Gaussian blur" in local.output
    assert f"Try: aps restore {blurred} --operator gaussian_blur" in local.output
    assert "Nothing seems to be wrong with this picture." in local.output


def test_the_command_and_the_client_give_the_same_json(stack: Stack, blurred: Path) -> None:
    printed = CliRunner().invoke(main, ["diagnose", "--json", str(blurred)]).output
    buffer = io.BytesIO(blurred.read_bytes())
    with Client(stack.url) as client:
        expected = {"picture": str(blurred), **client.diagnose(buffer).model_dump(mode="json")}
    assert json.loads(printed) == expected


def test_an_unreadable_picture_does_not_stop_the_command(
    stack: Stack, blurred: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.png").write_bytes(b"GIF89a")
    (tmp_path / "b.png").write_bytes(blurred.read_bytes())
    for where in ((), ("--server", stack.url)):
        told = CliRunner().invoke(main, ["diagnose", str(tmp_path), *where])
        assert told.exit_code == 2
        assert f"{tmp_path / 'a.png'}: This is a GIF file" in told.stderr
        assert f"Try: aps restore {tmp_path / 'b.png'}" in told.stdout
