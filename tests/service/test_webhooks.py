"""Webhooks with real receivers: signatures, retries, logs, isolation from jobs."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from anyio.from_thread import start_blocking_portal
from redis import Redis
from standardwebhooks import Webhook, WebhookVerificationError

from aps_contract import Progress
from service.jobs import (
    Claim,
    Delivery,
    DeliveryState,
    Job,
    JobStore,
    Outbox,
    OutboxKeys,
    new_job_id,
    open_store,
)
from service.settings import Settings
from service.webhooks.sender import Sender, secret_for, send_webhooks

FIELDS = {
    "task": "restore",
    "prior": "embedded",
    "spec": {"long": "x" * 30_000},
    "inputs": {},
    "image_size": (1, 1),
    "output_size": (1, 1),
}


@dataclass
class Receiver:
    """An HTTP server that records requests and sends configured responses."""

    answers: list[Callable[[BaseHTTPRequestHandler], None]]
    got: list[tuple[float, dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""

    def respond(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        self.got.append(
            (
                time.monotonic(),
                {name.lower(): value for name, value in request.headers.items()},
                body,
            )
        )
        self.answers[min(len(self.got), len(self.answers)) - 1](request)

    def wait(self, messages: int, seconds: float = 10) -> list[dict[str, object]]:
        deadline = time.monotonic() + seconds
        while len(self.got) < messages:
            assert time.monotonic() < deadline, self.got
            time.sleep(0.01)
        return [json.loads(body) for _, _, body in self.got]


def status(code: int, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def respond(request: BaseHTTPRequestHandler) -> None:
        request.send_response(code)
        for name, value in {"Content-Length": "0", **headers}.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()

    return respond


def flood(request: BaseHTTPRequestHandler) -> None:
    """Sends an endless body."""
    request.send_response(200)
    request.end_headers()
    try:
        while True:
            request.wfile.write(b"x" * 65536)
    except OSError:
        pass


def drip(request: BaseHTTPRequestHandler) -> None:
    """Sends a header slowly, one byte at a time."""
    try:
        for _ in range(200):
            request.wfile.write(b"H")
            time.sleep(0.05)
    except OSError:
        pass


@pytest.fixture
def receive() -> Iterator[Callable[..., Receiver]]:
    servers: list[ThreadingHTTPServer] = []

    def start(*answers: Callable[[BaseHTTPRequestHandler], None]) -> Receiver:
        receiver = Receiver(list(answers) or [status(204)])

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.respond(self)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        receiver.url = f"http://127.0.0.1:{server.server_port}/hook"
        return receiver

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def service(redis: Redis, settings: Settings) -> Settings:
    return settings.model_copy(
        update={
            "webhook_allow_private": True,
            "webhook_retry_seconds": [0.05, 0.05],
            "webhook_timeout_seconds": 0.5,
        }
    )


@pytest.fixture
def store(service: Settings) -> Iterator[JobStore]:
    store, _ = open_store(service)
    yield store
    store.redis.close()


@pytest.fixture
def sender(service: Settings) -> Iterator[Callable[[Settings], None]]:
    """Starts senders in the same way as the API."""
    tasks: list[asyncio.Task[None]] = []

    async def start(settings: Settings) -> None:
        tasks.append(asyncio.create_task(send_webhooks(settings)))

    async def stop() -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    with start_blocking_portal() as portal:
        yield lambda settings: portal.call(start, settings)
        portal.call(stop)


def submitted(store: JobStore, url: str, *events: str, **changes: object) -> Job:
    webhook = {"url": url, "events": list(events) or ["job.completed"]}
    job = Job.model_validate({"id": new_job_id(), **FIELDS, "webhook": webhook, **changes})
    store.submit(job)
    return job


def finished(store: JobStore, url: str, **changes: object) -> Job:
    """A job that has succeeded."""
    job = submitted(store, url, **changes)
    claim = store.claim(job.id, "a")
    assert isinstance(claim, Claim)
    assert store.succeed(claim, [], {}, None)
    return job


def ended(store: JobStore, job: Job) -> Delivery:
    """Waits until the job's last delivery has ended and returns it."""
    outbox, deadline = Outbox(store.redis), time.monotonic() + 10
    while (delivery := outbox.deliveries(job.id)[-1]).state is DeliveryState.PENDING:
        assert time.monotonic() < deadline, delivery
        time.sleep(0.01)
    return delivery


def verified(receiver: Receiver, secret: str, message: int = 0) -> dict[str, object]:
    _, headers, body = receiver.got[message]
    data: dict[str, object] = Webhook(secret).verify(body, headers)
    return data


def test_messages_arrive_promptly_and_verify_with_the_public_library(
    store: JobStore, service: Settings, sender, receive
) -> None:
    receiver = receive()
    sender(service)
    time.sleep(0.3)  # it has started
    job = finished(store, receiver.url)
    over = time.monotonic()
    [message] = receiver.wait(1)
    assert receiver.got[0][0] - over < 0.5
    master = Outbox(store.redis).kept_secret()
    assert verified(receiver, secret_for(master, "")) == message
    assert message["type"] == "job.completed"
    assert (message["data"]["id"], message["data"]["state"]) == (job.id, "succeeded")
    assert len(receiver.got[0][2]) < 20_000, "links, not contents"
    with pytest.raises(WebhookVerificationError):
        verified(receiver, secret_for(master, "somebody else"))
    delivery = ended(store, job)
    assert (delivery.state, delivery.attempts[0].status) == (DeliveryState.DELIVERED, 204)
    assert receiver.got[0][1]["webhook-id"] == delivery.id
    assert Outbox(store.redis).pending() == 0


def test_both_secrets_verify_during_rotation(
    store: JobStore, service: Settings, sender, receive
) -> None:
    receiver = receive()
    finished(store, receiver.url, tenant="acme")
    sender(service.model_copy(update={"webhook_secrets": ["new", "old"]}))
    receiver.wait(1)
    for master in ("new", "old"):
        verified(receiver, secret_for(master, "acme"))
    with pytest.raises(WebhookVerificationError):
        verified(receiver, secret_for("other", "acme"))


def test_only_subscribed_events_are_sent_in_the_same_transaction(store: JobStore, receive) -> None:
    outbox = Outbox(store.redis)
    job = submitted(store, "http://x", "job.started", "job.progress", "job.completed")
    claim = store.claim(job.id, "a")
    assert isinstance(claim, Claim)
    assert [delivery.type for delivery in outbox.deliveries(job.id)] == ["job.started"]
    for step in (1, 2, 3):
        store.step(claim, Progress(step=step, total=3), {}, b"")
    assert [delivery.type for delivery in outbox.deliveries(job.id)] == [
        "job.started",
        "job.progress",
    ], "at most two a second"
    store.cancel(job.id)
    store.canceled(claim, [])
    assert outbox.deliveries(job.id)[-1].type == "job.completed"
    quiet = submitted(store, "http://x")
    store.cancel(quiet.id)
    assert [delivery.type for delivery in outbox.deliveries(quiet.id)] == ["job.completed"], (
        "a job canceled in the queue, too"
    )
    assert outbox.pending() == 4


def test_failed_deliveries_are_retried_with_the_same_message(
    store: JobStore, service: Settings, sender, receive
) -> None:
    receiver = receive(
        status(500), status(301, Location="http://127.0.0.1:1/elsewhere"), status(200)
    )
    job = finished(store, receiver.url)
    sender(service)
    receiver.wait(3)
    delivery = ended(store, job)
    assert delivery.state is DeliveryState.DELIVERED
    assert [attempt.status for attempt in delivery.attempts] == [500, 301, 200], (
        "a redirection is a failure, and is not followed"
    )
    assert len({(headers["webhook-id"], body) for _, headers, body in receiver.got}) == 1


def test_an_unreachable_receiver_is_given_up_and_can_be_redelivered(
    store: JobStore, service: Settings, sender, receive
) -> None:
    job = finished(store, "http://127.0.0.1:9/hook")
    sender(service)
    delivery = ended(store, job)
    assert (delivery.state, len(delivery.attempts)) == (DeliveryState.FAILED, 3)
    assert delivery.attempts[0].error == "no connection"
    receiver = receive()
    store.redis.hset(f"aps:webhook:{delivery.id}", "url", receiver.url)
    Outbox(store.redis).redeliver(delivery)
    receiver.wait(1)
    again = ended(store, job)
    assert (again.state, len(again.attempts)) == (DeliveryState.DELIVERED, 4)


def test_status_410_disables_a_receiver_until_redelivery(
    store: JobStore, service: Settings, sender, receive
) -> None:
    receiver = receive(status(410), status(200))
    sender(service)
    assert ended(store, finished(store, receiver.url)).state is DeliveryState.GONE
    unsent = ended(store, finished(store, receiver.url))
    assert (unsent.state, unsent.attempts) == (DeliveryState.GONE, [])
    Outbox(store.redis).redeliver(unsent)
    receiver.wait(2)


def test_retry_after_is_respected(store: JobStore, service: Settings, sender, receive) -> None:
    receiver = receive(status(429, Retry_After="1"), status(200))
    finished(store, receiver.url)
    sender(service)
    receiver.wait(2)
    assert receiver.got[1][0] - receiver.got[0][0] >= 1


@pytest.mark.parametrize(
    ("answer", "state"), [(flood, DeliveryState.DELIVERED), (drip, DeliveryState.FAILED)]
)
def test_slow_and_endless_responses_do_not_delay_others(
    store: JobStore, service: Settings, sender, receive, answer, state
) -> None:
    bad, good = receive(answer), receive()
    sender(service)
    victims = [finished(store, bad.url) for _ in range(12)]
    finished(store, good.url)
    good.wait(1, seconds=3)
    if state is DeliveryState.FAILED:
        assert ended(store, victims[0]).attempts[0].error == "no answer within 0.5 s"
    else:
        assert ended(store, victims[0]).state is state


def test_two_senders_share_the_work_and_replace_a_dead_one(
    store: JobStore, service: Settings, sender, receive
) -> None:
    receiver = receive()
    job = finished(store, receiver.url)
    store.redis.zadd(
        "aps:webhooks:due", {Outbox(store.redis).deliveries(job.id)[0].id: time.time() + 0.4}
    )  # taken by a sender that died
    for _ in range(2):
        sender(
            service.model_copy(update={"webhook_timeout_seconds": 10})
        )  # nobody is slow here, but a busy machine
    for _ in range(20):
        finished(store, receiver.url)
    receiver.wait(21)
    time.sleep(0.2)
    assert len({headers["webhook-id"] for _, headers, _ in receiver.got}) == len(receiver.got) == 21


def test_private_addresses_are_refused(store: JobStore, service: Settings, sender, receive) -> None:
    receiver = receive()
    jobs = [
        finished(store, receiver.url.replace("127.0.0.1", host))
        for host in ("127.0.0.1", "localhost", "0x7f.1", "[::ffff:127.0.0.1]", "2130706433")
    ]
    sender(service.model_copy(update={"webhook_allow_private": False}))
    for job in jobs:
        delivery = ended(store, job)
        assert delivery.state is DeliveryState.FAILED
        assert "does not lead to a public address" in delivery.attempts[0].error
    assert receiver.got == []


def test_deleted_jobs_send_no_webhooks(store: JobStore, service: Settings, sender, receive) -> None:
    receiver = receive()
    job = finished(store, receiver.url)
    store.delete(job.id)
    sender(service)
    deadline = time.monotonic() + 10
    while Outbox(store.redis).pending():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert receiver.got == []


def test_a_sender_ends_although_a_client_caught_its_cancellation(
    service: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As timeouts do that end at the same moment."""

    async def caught(_: Sender) -> int:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return 1
        return 0

    async def run() -> None:
        task = asyncio.create_task(send_webhooks(service))
        await asyncio.sleep(0.1)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=5)
        assert done == {task}

    monkeypatch.setattr(Sender, "_start_due", caught)
    asyncio.run(run())


def test_a_delivery_that_cannot_be_read_is_logged_and_does_not_stop_others(
    store: JobStore, service: Settings, sender, receive, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = receive()
    broken = finished(store, receiver.url)
    (delivery,) = Outbox(store.redis).deliveries(broken.id)
    key = OutboxKeys(service.key_prefix).delivery(delivery.id)
    store.redis.hset(key, mapping={"attempts": "no JSON"})
    sender(service)
    job = finished(store, receiver.url)
    assert ended(store, job).state is DeliveryState.DELIVERED
    (record,) = [each for each in caplog.records if delivery.id in each.getMessage()]
    assert record.exc_info is not None
    assert len(receiver.got) == 1
