"""Content-addressed files of jobs: inputs, previews and results, in one folder per job.

A file's name is the SHA-256 of its content, so a late worker cannot overwrite another's file with
different content. Deleting a job deletes its folder. No name sent by a client reaches the store.
The store is a folder shared by the API and the workers, or any fsspec URL: ``s3://bucket/prefix``
needs the extra ``s3`` and is configured by ``AWS_*`` or ``FSSPEC_S3_*`` variables.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any, BinaryIO, ClassVar

import fsspec
from fsspec.implementations.local import LocalFileSystem

from aps_core.errors import APSError
from service.jobs.model import Artifact

CHUNK_BYTES = 1 << 18
_FILE = re.compile(r"[0-9a-f]{64}\.[a-z]{1,5}")
_JOB = re.compile(r"[0-9a-f-]{36}")


class StorageUnavailable(APSError):
    """Files cannot be stored or read, e.g. the disk is full or the object store is down."""

    code = "storage_unavailable"
    title = "The file store is not available"
    retryable: ClassVar[bool] = True


class ArtifactStore:
    """A folder or an object store prefix, shared by the API and the workers."""

    def __init__(self, root: str | Path) -> None:
        # listings are not cached, as other processes write here too
        self.fs, self.root = fsspec.url_to_fs(
            str(root), use_listings_cache=False, skip_instance_cache=True
        )
        self._local = isinstance(self.fs, LocalFileSystem)
        self._syncs = ThreadPoolExecutor(1, "sync")  # its thread starts at the first use
        self._errors: tuple[type[Exception], ...] = (OSError, *_errors_of(self.fs))

    def put(
        self, job_id: str, name: str, data: bytes, media_type: str, *, durable: bool = True
    ) -> Artifact:
        """Stores ``data`` atomically. With ``durable`` it is synced to disk before this returns.

        Raises:
            StorageUnavailable: the store is full or does not answer.
        """
        file = f"{hashlib.sha256(data).hexdigest()}{PurePath(name).suffix}"
        with self._available(f"'{name}' of job '{job_id}' could not be stored"):
            if self._local:
                with _whole(Path(self.path(job_id, file)), durable) as target:
                    target.write(data)
            else:
                self.fs.pipe_file(self.path(job_id, file), data)
        return Artifact(name=name, file=file, media_type=media_type, bytes=len(data))

    def put_upload(self, job_id: str, upload: BinaryIO, sha256: str, suffix: str) -> str:
        """Streams an open file with a known hash into the store; returns its name there.

        A local folder is synced in the background: the job store itself syncs only once a second,
        so waiting here would not make a submission more durable.

        Raises:
            StorageUnavailable: the store is full or does not answer.
        """
        file = f"{sha256}{suffix}"
        upload.seek(0)
        with self._available(f"A picture of job '{job_id}' could not be stored"):
            if self._local:
                path = Path(self.path(job_id, file))
                with _whole(path, durable=False) as target:
                    shutil.copyfileobj(upload, target, CHUNK_BYTES)
                self._syncs.submit(_sync_both, path)
            else:
                with self.fs.open(self.path(job_id, file), "wb") as target:
                    shutil.copyfileobj(upload, target, CHUNK_BYTES)
        return file

    def open(self, job_id: str, file: str) -> tuple[BinaryIO, int]:
        """Opens a file for reading; returns it and its size in bytes.

        Raises:
            FileNotFoundError: it does not exist, or has expired.
            StorageUnavailable: the store does not answer.
        """
        with self._available(f"'{file}' of job '{job_id}' could not be read", reading=True):
            path = self.path(job_id, file)
            if self._local:
                opened = Path(path).open("rb")  # noqa: SIM115  whoever reads it closes it
                return opened, os.fstat(opened.fileno()).st_size
            return self.fs.open(path, "rb"), self.fs.size(path)

    def get(self, job_id: str, file: str) -> bytes:
        """Reads a whole file.

        Raises:
            FileNotFoundError: it does not exist, or has expired.
            StorageUnavailable: the store does not answer.
        """
        with self._available(f"'{file}' of job '{job_id}' could not be read", reading=True):
            path = self.path(job_id, file)
            content: bytes = Path(path).read_bytes() if self._local else self.fs.cat_file(path)
        return content

    def copy(self, job_id: str, file: str, other_id: str) -> None:
        """Copies a file to another job; in a local folder it is a hard link.

        Raises:
            FileNotFoundError: it does not exist, or has expired.
            StorageUnavailable: the store is full or does not answer.
        """
        source, target = self.path(job_id, file), self.path(other_id, file)
        with self._available(f"'{file}' of job '{job_id}' could not be copied", reading=True):
            if self._local:
                Path(target).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                if not os.path.exists(target):
                    os.link(source, target)  # safe: files are immutable
            else:
                self.fs.cp_file(source, target)

    def path(self, job_id: str, file: str) -> str:
        """Full path of a file.

        Raises:
            ValueError: one of the names is malformed.
        """
        if not _FILE.fullmatch(file):
            raise ValueError(f"'{file}' is not the name of an artifact.")
        return f"{self._folder(job_id)}/{file}"

    def delete(self, job_id: str) -> None:
        """Removes all files of a job.

        Raises:
            StorageUnavailable: the store does not answer.
        """
        with self._available(f"The files of job '{job_id}' could not be removed"):
            try:
                self.fs.rm(self._folder(job_id), recursive=True)
            except FileNotFoundError:
                return

    def jobs(self) -> list[str]:
        """Ids of all jobs and uploads that have files.

        Raises:
            StorageUnavailable: the store does not answer.
        """
        with self._available("The files could not be listed"):
            try:
                entries: list[str] = self.fs.ls(self.root, detail=False)
            except FileNotFoundError:
                return []
        names = (entry.rstrip("/").rpartition("/")[2] for entry in entries)
        return [name for name in names if _JOB.fullmatch(name)]

    def _folder(self, job_id: str) -> str:
        if not _JOB.fullmatch(job_id):
            raise ValueError(f"'{job_id}' is not the name of a job.")
        return f"{self.root}/{job_id}"

    @contextmanager
    def _available(self, failure: str, reading: bool = False) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            if reading and isinstance(error, FileNotFoundError):
                raise
            raise StorageUnavailable(f"{failure}: {error}. Try again later.") from error


@contextmanager
def _whole(target: Path, durable: bool = True) -> Iterator[BinaryIO]:
    """Writes a local file atomically: to a temporary name that is renamed at the end. ``durable``
    syncs the file and its folder first. (Object stores are atomic by themselves.)
    """
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        partial.replace(target)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    if durable:
        _sync(target.parent)  # makes the rename durable


def _sync_both(path: Path) -> None:
    """Syncs a file and its folder to disk, unless the file has been deleted meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        _sync(path)
        _sync(path.parent)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _errors_of(fs: Any) -> tuple[type[Exception], ...]:
    """Exceptions besides OSError that a file system raises when it is unreachable."""
    if "s3" not in fs.protocol:
        return ()
    from botocore.exceptions import BotoCoreError

    return (BotoCoreError,)
