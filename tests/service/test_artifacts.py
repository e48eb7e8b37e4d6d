"""Files of jobs in a folder and in an S3-compatible server."""

from __future__ import annotations

import hashlib
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from service.jobs import ArtifactStore, StorageUnavailable, new_job_id
from service.settings import Settings


@pytest.fixture(scope="module")
def object_server() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["folder", "s3"])
def artifacts(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ArtifactStore:
    if request.param == "folder":
        return ArtifactStore(tmp_path / "artifacts")
    return s3(request.getfixturevalue("object_server"), new_job_id(), monkeypatch)


def s3(
    url: str, bucket: str, monkeypatch: pytest.MonkeyPatch, *, create: bool = True
) -> ArtifactStore:
    """An S3 store configured by environment variables."""
    for name, value in {
        "ACCESS_KEY_ID": "key",
        "SECRET_ACCESS_KEY": "secret",
        "DEFAULT_REGION": "us-east-1",
        "ENDPOINT_URL": url,
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    if create:
        boto3.client("s3").create_bucket(Bucket=bucket)
    settings = Settings(artifacts_url=f"s3://{bucket}/aps")
    return ArtifactStore(settings.artifacts)


def test_files_are_content_addressed_and_can_be_read(artifacts: ArtifactStore) -> None:
    job_id, data = new_job_id(), b"\x89PNG anything"
    stored = artifacts.put(job_id, "result.png", data, "image/png")
    assert stored.file == f"{hashlib.sha256(data).hexdigest()}.png"
    assert (stored.name, stored.media_type, stored.bytes) == ("result.png", "image/png", len(data))
    assert artifacts.get(job_id, stored.file) == data
    assert artifacts.put(job_id, "again.png", data, "image/png").file == stored.file


def test_deleting_a_job_removes_only_its_files(artifacts: ArtifactStore) -> None:
    going, staying = new_job_id(), new_job_id()
    files = {
        job_id: [
            artifacts.put(job_id, name, name.encode(), "application/json").file
            for name in ("a.json", "b.json")
        ]
        for job_id in (going, staying)
    }
    artifacts.delete(going)
    artifacts.delete(going)  # deletion is idempotent
    for file in files[going]:
        with pytest.raises(FileNotFoundError):
            artifacts.get(going, file)
    assert artifacts.get(staying, files[staying][0]) == b"a.json"


def test_old_jobs_are_found_by_their_ids(artifacts: ArtifactStore) -> None:
    assert artifacts.older_than(0) == []
    young = new_job_id()
    then = f"{int((time.time() - 1000) * 1000):012x}"
    old = f"{then[:8]}-{then[8:]}{young[13:]}"
    for job_id in (young, old):
        artifacts.put(job_id, "x.json", b"{}", "application/json")
    assert artifacts.older_than(500) == [old]
    assert sorted(artifacts.older_than(-1)) == sorted([old, young])


@pytest.mark.parametrize(
    "job_id", ["..", "../../etc", "a/b", "", "01a1fdcf-8d85-7ab5-9912-db6d498c9b73/.."]
)
def test_invalid_names_are_rejected(artifacts: ArtifactStore, job_id: str) -> None:
    with pytest.raises(ValueError, match="is not the name"):
        artifacts.put(job_id, "x", b"", "image/png")
    with pytest.raises(ValueError, match="is not the name"):
        artifacts.delete(job_id)


@pytest.mark.parametrize(
    "file", ["../x.png", "x.png", f"{'0' * 64}.png/..", f"{'0' * 64}.png\0", f"/{'0' * 64}.png"]
)
def test_files_outside_the_store_cannot_be_read(artifacts: ArtifactStore, file: str) -> None:
    with pytest.raises(ValueError, match="is not the name"):
        artifacts.get(new_job_id(), file)


def test_folders_are_private_and_writes_are_atomic(tmp_path: Path) -> None:
    artifacts, job_id = ArtifactStore(tmp_path / "artifacts"), new_job_id()
    stored = artifacts.put(job_id, "x.json", b"{}", "application/json")
    folder = tmp_path / "artifacts" / job_id
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [path.name for path in folder.iterdir()] == [stored.file]


def test_an_unwritable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "artifacts").write_text("a file where the folder should be")
    with pytest.raises(StorageUnavailable, match="could not be stored") as failure:
        ArtifactStore(tmp_path / "artifacts").put(new_job_id(), "x.json", b"{}", "application/json")
    assert failure.value.retryable


def test_an_unreachable_server_or_missing_bucket_is_reported(
    object_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = s3(object_server, "absent", monkeypatch, create=False)
    with pytest.raises(StorageUnavailable, match="could not be stored"):
        lacking.put(new_job_id(), "x.json", b"{}", "application/json")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    gone = s3("http://127.0.0.1:9", "absent", monkeypatch, create=False)
    with pytest.raises(StorageUnavailable, match="could not be stored"):
        gone.put(new_job_id(), "x.json", b"{}", "application/json")
