"""``aps keys``: makes, shows and revokes the API's keys. Talks to the server of
``APS_REDIS_URL``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

import click

from aps_core.errors import APSError

if TYPE_CHECKING:
    from service.access.keys import KeyStore, Scope


@click.group()
def keys() -> None:
    """Make, list and revoke API keys."""


@keys.command()
@click.argument("principal")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(["read", "write", "priority"]),
    help="What the key allows (may repeat); default: read and write. 'priority' allows jobs of"
    " priority high.",
)
@click.option(
    "--max-queued",
    type=click.IntRange(1),
    help="Waiting jobs the principal may have; default: APS_MAX_QUEUED.",
)
@click.option(
    "--max-running",
    type=click.IntRange(1),
    help="Jobs of the principal that run at a time; default: APS_MAX_RUNNING.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    help="Days for which the key is valid; default: until it is revoked.",
)
@click.option(
    "--record",
    is_flag=True,
    help="Do not store the key: print its record, for a file named by APS_KEYS_FILE, after it.",
)
def create(
    principal: str,
    scopes: tuple[str, ...],
    max_queued: int | None,
    max_running: int | None,
    days: int | None,
    record: bool,
) -> None:
    """Make a key for PRINCIPAL and print it, this once. Two may be active: make the second, switch
    over, revoke the first.
    """
    from service.access.keys import new_key

    allowed = cast("frozenset[Scope]", frozenset(scopes or ("read", "write")))
    expiry = datetime.now(UTC) + timedelta(days=days) if days else None
    token, key = new_key(principal, allowed, max_queued, max_running, expiry)
    if not record:
        with _store() as store:
            store.add(key)
    click.echo(token)
    if record:
        click.echo(key.model_dump_json(exclude_none=True))


@keys.command("list")
def list_keys() -> None:
    """Show the active keys, without their secrets."""
    with _store() as store:
        for key in store.all():
            click.echo(
                f"{key.id}  {key.principal:<24} {'+'.join(sorted(key.scopes)):<12}"
                f" {key.created_at:%Y-%m-%d %H:%M}"
                + (f" until {key.expires_at:%Y-%m-%d %H:%M}" if key.expires_at else "")
            )


@keys.command()
@click.argument("key_id")
def revoke(key_id: str) -> None:
    """Make the key KEY_ID invalid at once."""
    with _store() as store:
        if not store.revoke(key_id):
            raise APSError(f"There is no key '{key_id}' in the store; 'aps keys list' shows them.")
    click.echo(f"{key_id} revoked")


@contextmanager
def _store() -> Iterator[KeyStore]:
    from redis.exceptions import RedisError

    from service.access.keys import KeyStore
    from service.jobs import connect
    from service.settings import Settings

    settings = Settings()
    redis = connect(settings.redis_url)
    try:
        yield KeyStore(redis, settings.key_prefix, settings.keys_file)
    except RedisError as error:
        raise APSError(f"The server of APS_REDIS_URL does not answer: {error}") from error
    finally:
        redis.close()
