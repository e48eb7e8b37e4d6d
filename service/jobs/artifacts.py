"""Files of jobs: inputs, previews, results; one folder per job, named by their content.

A name is the SHA-256 of the content, so a file is never half written or overwritten by a late
worker, and deleting a job is deleting its folder. Names come from us alone: nothing a client sends
reaches the store. It is a folder that the API and the workers share, or whatever else fsspec knows:
``s3://bucket/prefix`` with the extra ``s3``, configured by ``AWS_*`` or ``FSSPEC_S3_*`` variables.
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
    """Files cannot be stored or read now: the disk is full, the object store does not answer."""

    code = "storage_unavailable"
    title = "The file store is not available"
    retryable: ClassVar[bool] = True


class ArtifactStore:
    """A folder, or a place in an object store, shared by the API and the workers."""

    def __init__(self, root: str | Path) -> None:
        # no listing is cached: others write here too
        self.fs, self.root = fsspec.url_to_fs(
            str(root), use_listings_cache=False, skip_instance_cache=True
        )
        self._local = isinstance(self.fs, LocalFileSystem)
        self._syncs = ThreadPoolExecutor(1, "sync")  # started when needed
        self._errors: tuple[type[Exception], ...] = (OSError, *_errors_of(self.fs))

    def put(
        self, job_id: str, name: str, data: bytes, media_type: str, *, durable: bool = True
    ) -> Artifact:
        """Stores ``data``; the file is whole once it has its name, and if ``durable`` survives a
        power cut from then on.

        Raises:
            StorageUnavailable: there is no room, or no answer.
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
        """Stores an open file whose hash is known, a piece at a time; returns its name. In a folder
        it is on the disk a moment later: a client does not wait for what the job store, which
        syncs once a second, does not promise either.

        Raises:
            StorageUnavailable: there is no room, or no answer.
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
        """A file to read from, and its size in bytes.

        Raises:
            FileNotFoundError: it is not there (any more).
            StorageUnavailable: there is no answer.
        """
        with self._available(f"'{file}' of job '{job_id}' could not be read", reading=True):
            opened: BinaryIO = self.fs.open(self.path(job_id, file), "rb")
            size: int = self.fs.size(self.path(job_id, file))
        return opened, size

    def get(self, job_id: str, file: str) -> bytes:
        """Reads a file.

        Raises:
            FileNotFoundError: it is not there (any more).
            StorageUnavailable: there is no answer.
        """
        with self._available(f"'{file}' of job '{job_id}' could not be read", reading=True):
            path = self.path(job_id, file)
            content: bytes = Path(path).read_bytes() if self._local else self.fs.cat_file(path)
        return content

    def copy(self, job_id: str, file: str, other_id: str) -> None:
        """Gives another job the same file; in a folder it takes no room of its own.

        Raises:
            FileNotFoundError: it is not there (any more).
            StorageUnavailable: there is no room, or no answer.
        """
        source, target = self.path(job_id, file), self.path(other_id, file)
        with self._available(f"'{file}' of job '{job_id}' could not be copied", reading=True):
            if self._local:
                Path(target).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                if not os.path.exists(target):
                    os.link(source, target)  # nothing ever writes into a file that has its name
            else:
                self.fs.cp_file(source, target)

    def path(self, job_id: str, file: str) -> str:
        """Where a file lies."""
        if not _FILE.fullmatch(file):
            raise ValueError(f"'{file}' is not the name of an artifact.")
        return f"{self._folder(job_id)}/{file}"

    def delete(self, job_id: str) -> None:
        """Removes everything of a job.

        Raises:
            StorageUnavailable: there is no answer.
        """
        with self._available(f"The files of job '{job_id}' could not be removed"):
            try:
                self.fs.rm(self._folder(job_id), recursive=True)
            except FileNotFoundError:
                return

    def jobs(self) -> list[str]:
        """Every job or upload that has files.

        Raises:
            StorageUnavailable: there is no answer.
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
    """A file in a folder gets its name when it is whole and, if ``durable``, on the disk; an object
    in a store does anyway.
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
        _sync(target.parent)  # the name is the folder's


def _sync_both(path: Path) -> None:
    """Brings a file and its name to the disk, unless it has been deleted meanwhile."""
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
    """What a file system raises besides OSError when it is out of reach."""
    if "s3" not in fs.protocol:
        return ()
    from botocore.exceptions import BotoCoreError

    return (BotoCoreError,)
