"""The running service does not execute what it receives."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path

from kombu import Connection, Exchange, Queue
from redis import Redis

from service.settings import RUN_JOB, queue_name
from tests.stack import Stack

QUICK = {"steps": 1, "inner_steps": 1}


class Evil:
    """Creates a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.folder),)


def test_a_pickled_message_is_rejected_and_the_worker_keeps_running(
    stack: Stack, tmp_path: Path
) -> None:
    trap, name = tmp_path / "opened", queue_name("embedded")
    headers = {
        "lang": "py",
        "task": RUN_JOB,
        "id": "evil",
        "argsrepr": "",
        "kwargsrepr": "",
        "origin": "x",
        "root_id": "evil",
        "parent_id": None,
    }
    with Connection(
        stack.settings.broker_url, transport_options=stack.settings.broker_transport_options
    ) as connection:
        queue = Queue(name, Exchange(name), name)
        with connection.Producer() as producer:
            for content_type in ("application/x-python-serialize", "application/json"):
                body = pickle.dumps(((Evil(trap),), {}, {}))
                producer.publish(
                    body,
                    exchange=queue.exchange,
                    routing_key=name,
                    declare=[queue],
                    content_type=content_type,
                    content_encoding="binary",
                    headers=headers,
                )
    with Redis.from_url(stack.settings.redis_url) as redis:
        deadline = time.monotonic() + 20
        while redis.llen(f"aps:mq:{name}"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    job = stack.submit(sampler=QUICK)
    assert stack.wait(job["id"])["state"] == "succeeded"
    assert not trap.exists()
    assert "ContentDisallowed" in stack.log.read_text()
