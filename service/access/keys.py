"""API keys: their principals, scopes and storage. Only hashes are stored.

A key has the form ``aps_ID_SECRET``. The ID is public and identifies the record. The secret has 256
random bits, so a single SHA-256 suffices. Keys are stored in Redis (``aps keys``) or, for
deployments that provide their own secrets, in the file named by ``APS_KEYS_FILE``, as records of
``aps keys create --record``, one a line or in a JSON list.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from redis import Redis
from redis.client import Pipeline

from aps_core.errors import APSError

Scope = Literal["read", "write", "priority"]
"""``read``: read one's own jobs; ``write``: submit, cancel and delete jobs; ``priority``: submit
with priority ``high``.
"""

ACTIVE_KEYS = 2
"""Maximum active keys of a principal. Two allow rotation without downtime: create the second,
switch over, revoke the first.
"""

_TOKEN = re.compile(r"aps_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")


class KeyRefused(APSError):
    """A key cannot be created, or a required key is missing."""

    code = "key_refused"
    title = "The API key was refused"


class ApiKey(BaseModel):
    """One key, without its secret."""

    model_config = ConfigDict(frozen=True)

    id: str = Field(pattern=r"^[0-9a-f]{12}$")
    principal: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="Owner of the key. Jobs belong to principals, not to keys.",
    )
    scopes: frozenset[Scope]
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    created_at: datetime
    expires_at: datetime | None = Field(None, description="Expiry time; null: never.")
    max_queued: int | None = Field(
        None, ge=1, description="Limit of the principal's queued jobs; by default APS_MAX_QUEUED."
    )
    max_running: int | None = Field(
        None,
        ge=1,
        description="Limit of the principal's running jobs; by default APS_MAX_RUNNING.",
    )


_FILE = TypeAdapter(list[ApiKey])


def new_key(
    principal: str,
    scopes: frozenset[Scope],
    max_queued: int | None = None,
    max_running: int | None = None,
    expires_at: datetime | None = None,
) -> tuple[str, ApiKey]:
    """Creates a key; returns the token, to be shown once, and its record.

    Raises:
        KeyRefused: the principal's name has other characters than letters, digits, dot, dash and
            underscore.
    """
    key_id = secrets.token_hex(6)
    token = f"aps_{key_id}_{secrets.token_urlsafe(32)}"
    limits = {"max_queued": max_queued, "max_running": max_running}
    try:
        return token, ApiKey(
            id=key_id,
            principal=principal,
            scopes=scopes,
            sha256=_digest(token),
            created_at=datetime.now(UTC),
            expires_at=expires_at,
            **limits,
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise KeyRefused(f"{first['loc'][0]} {first['input']!r}: {first['msg']}.") from error


class KeyStore:
    """The keys of one service."""

    def __init__(self, redis: Redis, prefix: str = "aps:", file: Path | None = None) -> None:
        self.redis = redis
        self.prefix = prefix
        self._key = f"{prefix}apikeys"
        self._fixed = {key.id: key for key in _read(file)} if file else {}

    def find(self, token: str) -> ApiKey | None:
        """The record of an active key, or None if the token is unknown, wrong or expired."""
        named = _TOKEN.fullmatch(token)
        if named is None:
            return None
        key = self.get(named[1])
        return key if key is not None and hmac.compare_digest(key.sha256, _digest(token)) else None

    def get(self, key_id: str) -> ApiKey | None:
        """The record of an active key by its id, or None."""
        key = self._fixed.get(key_id) or self._stored(key_id)
        return None if key is None or self._over(key) else key

    def _over(self, key: ApiKey) -> bool:
        """Whether the key has expired, by the store's clock."""
        if key.expires_at is None:
            return False
        seconds, _ = self.redis.time()
        return key.expires_at.timestamp() <= seconds

    def add(self, key: ApiKey) -> None:
        """Stores a key, which makes it valid.

        Raises:
            KeyRefused: the principal already has :data:`ACTIVE_KEYS` active keys.
        """

        def put(pipe: Pipeline) -> None:
            records = cast("dict[bytes, bytes]", pipe.hgetall(self._key))
            held = [
                known.id
                for known in map(ApiKey.model_validate_json, records.values())
                if known.principal == key.principal and not self._over(known)
            ]
            if len(held) >= ACTIVE_KEYS:
                raise KeyRefused(
                    f"'{key.principal}' already has {len(held)} active keys ({', '.join(held)});"
                    " revoke one first."
                )
            pipe.multi()
            pipe.hset(self._key, key.id, key.model_dump_json())

        self.redis.transaction(put, self._key)

    def all(self) -> list[ApiKey]:
        """All keys, sorted by principal and creation time."""
        stored = map(
            ApiKey.model_validate_json,
            cast("dict[bytes, bytes]", self.redis.hgetall(self._key)).values(),
        )
        return sorted(
            [*self._fixed.values(), *stored], key=lambda key: (key.principal, key.created_at)
        )

    def revoke(self, key_id: str) -> bool:
        """Deletes a key, effective immediately; False if it is not stored in Redis."""
        return bool(self.redis.hdel(self._key, key_id))

    def _stored(self, key_id: str) -> ApiKey | None:
        record = cast("bytes | None", self.redis.hget(self._key, key_id))
        return ApiKey.model_validate_json(record) if record else None


def _read(file: Path) -> list[ApiKey]:
    """The keys of a file: a JSON list, or one record a line.

    Raises:
        KeyRefused: it holds something else; the message does not quote it.
    """
    try:
        text = file.read_text().strip()
        lines = [line for line in text.splitlines() if line.strip()]
        keys = _FILE.validate_json(text if text.startswith("[") else f"[{','.join(lines)}]")
    except (OSError, ValueError) as error:
        raise KeyRefused(
            f"APS_KEYS_FILE {file} cannot be read: it must hold records that 'aps keys create"
            f" --record' prints, one a line or as a JSON list. {_reason(error)}"
        ) from error
    for principal, number in Counter(key.principal for key in keys).items():
        if number > ACTIVE_KEYS:
            raise KeyRefused(
                f"APS_KEYS_FILE {file}: '{principal}' has {number} keys; at most {ACTIVE_KEYS} may"
                " be active."
            )
    return keys


def _reason(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return f"{error}."
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where + ': ' if where else ''}{first['msg']}."


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
