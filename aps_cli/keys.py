"""``aps keys``: creates, lists and revokes API keys in the Redis server of ``APS_REDIS_URL`` or of
``aps serve --embedded``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

import click

from aps_core.errors import APSError

if TYPE_CHECKING:
    from service.access.keys import KeyStore, Scope
    from service.settings import Settings


@click.group()
def keys() -> None:
    """Create, list and revoke API keys."""


@keys.command()
@click.argument("principal")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(["read", "write", "priority"]),
    help="Scope of the key (repeatable); default: read and write. 'priority' allows jobs with"
    " priority high.",
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
    "--days",
    type=click.IntRange(1, 3650),
    help="Days for which the key is valid; default: until it is revoked.",
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
    days: int | None,
    record: bool,
) -> None:
    """Create a key for PRINCIPAL and print it; it cannot be shown again. To rotate a key, create
    a second one, switch the clients to it and revoke the first.
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
    """List the active keys without their secrets."""
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
    """Revoke the key KEY_ID with immediate effect."""
    with _store() as store:
        if not store.revoke(key_id):
            raise APSError(f"There is no key '{key_id}' in the store; 'aps keys list' shows them.")
    click.echo(f"{key_id} revoked")


@contextmanager
def _store() -> Iterator[KeyStore]:
    from redis.exceptions import RedisError

    from service.access.start import opened_keys
    from service.settings import Settings

    settings = Settings()
    with ExitStack() as stack:
        if "redis_url" not in settings.model_fields_set:
            url = _found(settings, stack)
            click.echo(f"APS_REDIS_URL is not set; using {url}.", err=True)
            settings = settings.model_copy(update={"redis_url": url})
        try:
            yield stack.enter_context(opened_keys(settings))
        except RedisError as error:
            raise APSError(f"The server of APS_REDIS_URL does not respond: {error}") from error


def _found(settings: Settings, stack: ExitStack) -> str:
    """The store of this machine's service: that of a running 'aps serve --embedded', else the
    server at the default address, else that of the next 'aps serve --embedded', started for now.
    """
    from redis import Redis
    from redis.exceptions import RedisError

    from service.launch.embedded_server import embedded_url, running_server

    for url in (embedded_url(settings), settings.redis_url):
        with Redis.from_url(url, socket_connect_timeout=2) as redis, suppress(RedisError):
            redis.ping()
            return url
    return stack.enter_context(running_server(settings))
