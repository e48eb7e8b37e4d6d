"""Verification of webhooks by the client."""

import base64
import json
import queue
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from standardwebhooks import Webhook

from aps_client import Client, WebhookEvent, WebhookRejected, verify_webhook
from tests.stack import Stack, png

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
OTHER = "whsec_" + base64.b64encode(b"another secret of enough bytes..").decode()
JOB = {
    "id": "0197c1d0-0000-7000-8000-000000000000",
    "task": "restore",
    "prior": "embedded",
    "state": "succeeded",
    "phase": None,
    "version": 9,
    "priority": "normal",
    "estimated_seconds": 1.0,
    "progress": None,
    "attempt": 1,
    "resumed_from_step": None,
    "cancel_requested": False,
    "deadline": None,
    "created_at": None,
    "started_at": None,
    "finished_at": None,
    "expires_at": None,
    "image_size": [64, 64],
    "output_size": [64, 64],
    "error": None,
    "artifacts": [],
    "request_id": "",
    "traceparent": "",
    "cancel_after_seconds": None,
    "urls": {},
}
BODY = json.dumps(
    {"type": "job.completed", "timestamp": "2026-11-21T12:00:00+00:00", "data": JOB}
).encode()


def signed(
    body: bytes = BODY, secret: str = SECRET, age: float = 0, **changed: str
) -> dict[str, str]:
    """Signs a message with the reference library and returns the headers."""
    at = datetime.fromtimestamp(time.time() - age, UTC)
    return {
        "Webhook-Id": "msg_1",
        "Webhook-Timestamp": str(int(at.timestamp())),
        "Webhook-Signature": Webhook(secret).sign("msg_1", at, body.decode()),
        **changed,
    }


def test_a_signed_message_is_parsed():
    event = verify_webhook(BODY, signed(), SECRET)
    assert (event.id, event.type, event.data.state.value) == ("msg_1", "job.completed", "succeeded")
    # during secret rotation
    assert verify_webhook(BODY, signed(), [OTHER, SECRET]).data.id == JOB["id"]


@pytest.mark.parametrize(
    ("sent", "received", "words"),
    [
        ({}, BODY.replace(b"succeeded", b"failed"), "No matching signature"),
        ({"secret": OTHER}, BODY, "No matching signature"),
        ({"age": 900}, BODY, "too old"),
        ({"age": -900}, BODY, "too new"),
        ({"Webhook-Timestamp": "noon"}, BODY, "Invalid Signature Headers"),
        ({"Webhook-Signature": "nonsense"}, BODY, "malformed"),
        ({}, b"\xff", "malformed"),
        ({"body": b"{"}, b"{", "not valid JSON"),
        ({"body": b"[]"}, b"[]", "not a JSON object"),
        ({"body": b'{"type": "x"}'}, b'{"type": "x"}', "describe a job: timestamp: Field required"),
    ],
)
def test_everything_else_is_rejected(sent, received, words):
    with pytest.raises(WebhookRejected, match=words):
        verify_webhook(received, signed(**sent), SECRET)


def test_malformed_messages_are_rejected():
    with pytest.raises(WebhookRejected, match="Missing required headers"):
        verify_webhook(BODY, {}, SECRET)
    with pytest.raises(WebhookRejected, match="malformed"):
        verify_webhook(BODY, signed(), "whsec_a")
    with pytest.raises(WebhookRejected, match="No secret"):
        verify_webhook(BODY, signed(), [])


def test_webhooks_of_the_service_are_accepted(stack: Stack):
    heard: queue.Queue[WebhookEvent] = queue.Queue()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            heard.put(verify_webhook(body, dict(self.headers.items()), secrets))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    with Client(stack.url) as client, ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as receiver:
        secrets = client.webhook_secrets()
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        where = f"http://127.0.0.1:{receiver.server_port}/"
        spec: dict[str, Any] = {
            "operator": {"type": "denoise"},
            "sigma": 0.1,
            "sampler": {"steps": 2, "inner_steps": 1},
        }
        job = client.submit("restore", {"image": png()}, webhook=where, priority="high", **spec)
        event = heard.get(timeout=60)
        receiver.shutdown()
        assert (event.type, event.data.id, event.data.state.value, event.data.priority.value) == (
            "job.completed",
            job.id,
            "succeeded",
            "high",
        )
        picture = client.download(event.data, "result.png")  # the links in the message suffice
        assert picture.startswith(b"\x89PNG")
