"""Files of jobs: inputs, previews, results; one folder per job, named by their content.

A name is the SHA-256 of the content, so a file is never half written or overwritten by a late
worker, and deleting a job is deleting its folder. Names come from us alone: nothing a client sends
reaches the file system.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from pathlib import Path

from service.jobs.model import Artifact

_FILE = re.compile(r"[0-9a-f]{64}\.[a-z]{1,5}")
_JOB = re.compile(r"[0-9a-f-]{36}")
_SUFFIXES = {"image/png": "png", "image/jpeg": "jpg", "application/json": "json", "application/octet-stream": "bin"}


class ArtifactStore:
    """A folder shared by the API and the workers."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, job_id: str, name: str, data: bytes, media_type: str) -> Artifact:
        """Stores ``data``; the file is whole once it has its name."""
        file = f"{hashlib.sha256(data).hexdigest()}.{_SUFFIXES[media_type]}"
        target = self.path(job_id, file)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = target.with_name(f".{file}.{os.getpid()}")
        partial.write_bytes(data)
        partial.replace(target)
        return Artifact(name=name, file=file, media_type=media_type, bytes=len(data))

    def get(self, job_id: str, file: str) -> bytes:
        """Reads a file.

        Raises:
            FileNotFoundError: it is not there (any more).
        """
        return self.path(job_id, file).read_bytes()

    def path(self, job_id: str, file: str) -> Path:
        """Where a file lies."""
        if not (_JOB.fullmatch(job_id) and _FILE.fullmatch(file)):
            raise ValueError(f"'{job_id}/{file}' is not the name of an artifact.")
        return self.root / job_id / file

    def delete(self, job_id: str) -> None:
        """Removes everything of a job."""
        if not _JOB.fullmatch(job_id):
            raise ValueError(f"'{job_id}' is not the name of a job.")
        shutil.rmtree(self.root / job_id, ignore_errors=True)

    def older_than(self, seconds: float) -> list[str]:
        """Jobs whose folder was last written to this long ago."""
        if not self.root.is_dir():
            return []
        limit = time.time() - seconds
        return [entry.name for entry in os.scandir(self.root) if _JOB.fullmatch(entry.name) and entry.stat().st_mtime < limit]
