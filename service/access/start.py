"""Whether a service may start: one that requires API keys needs some."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from redis.exceptions import RedisError

from service.access.keys import KeyRefused, KeyStore
from service.jobs import connect
from service.settings import Settings

log = logging.getLogger(__name__)


@contextmanager
def opened_keys(settings: Settings) -> Iterator[KeyStore]:
    """Opens the keys of the service with these ``settings``.

    Raises:
        KeyRefused: the key file is invalid.
    """
    redis = connect(settings.redis_url)
    try:
        yield KeyStore(redis, settings.key_prefix, settings.keys_file)
    finally:
        redis.close()


def check_start(settings: Settings, keys: KeyStore) -> None:
    """Checks at start-up that a service that requires API keys has some.

    Raises:
        KeyRefused: keys are required and none exists.
    """
    if not settings.auth_required:
        if not settings.on_loopback:
            log.warning(
                "APS_AUTH=none: anyone who can reach %s can use this service", settings.host
            )
        return
    try:
        known = keys.all()
    except RedisError as error:
        # harmless: without the store, every request is refused
        log.warning("API keys could not be counted because the store does not answer: %s", error)
        return
    if not known:
        raise KeyRefused(
            f"With APS_HOST={settings.host} and APS_AUTH={settings.auth} the service requires API"
            " keys, but none exists. Create one ('aps keys create NAME'), provide a key file"
            " (APS_KEYS_FILE), or set APS_AUTH=none."
        )
