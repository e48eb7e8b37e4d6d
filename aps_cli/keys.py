"""``aps keys``: creates, lists and revokes API keys in the Redis server of ``APS_REDIS_URL``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from aps_core.errors import APSError

if TYPE_CHECKING:
    from service.access.keys import KeyStore


@click.group()
def keys() -> None:
    """Create, list and revoke API keys."""


@keys.command()
@click.argument("principal")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(["read", "write"]),
    help="Scope of the key (repeatable); default: both.",
)
@click.option(
    "--max-queued",
    type=click.IntRange(1),
    help="Maximum number of queued jobs of the principal; default: APS_MAX_QUEUED.",
)
@click.option(
    "--max-running",
    type=click.IntRange(1),
    help="Maximum number of running jobs of the principal; default: APS_MAX_RUNNING.",
)
@click.option(
    "--record",
    is_flag=True,
    help="Do not store the key; also print its record, to be added to the file APS_KEYS_FILE.",
)
def create(
    principal: str,
    scopes: tuple[str, ...],
    max_queued: int | None,
    max_running: int | None,
    record: bool,
) -> None:
    """Create a key for PRINCIPAL and print it; it cannot be shown again. To rotate a key, create
    a second one, switch the clients to it and revoke the first.
    """
    from service.access.keys import new_key

    token, key = new_key(principal, frozenset(scopes or ("read", "write")), max_queued, max_running)  # type: ignore[arg-type]
    if not record:
        with _store() as store:
            store.add(key)
    click.echo(token)
    if record:
        click.echo(key.model_dump_json(exclude_none=True))


@keys.command("list")
def list_keys() -> None:
    """List the active keys without their secrets."""
    with _store() as store:
        for key in store.all():
            click.echo(
                f"{key.id}  {key.principal:<24} {'+'.join(sorted(key.scopes)):<12}"
                f" {key.created_at:%Y-%m-%d %H:%M}"
            )


@keys.command()
@click.argument("key_id")
def revoke(key_id: str) -> None:
    """Revoke the key KEY_ID with immediate effect."""
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
        raise APSError(f"The server of APS_REDIS_URL does not respond: {error}") from error
    finally:
        redis.close()
