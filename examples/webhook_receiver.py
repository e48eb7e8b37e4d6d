"""A webhook receiver: verifies messages, ignores duplicates and responds immediately.

    pip install standardwebhooks
    APS_WEBHOOK_ALLOW_PRIVATE=true aps serve --embedded   # allows receivers on this machine
    export WEBHOOK_SECRET=$(curl -s localhost:8000/v1/webhooks/secrets | jq -r '.secrets[0]')
    python examples/webhook_receiver.py

    curl localhost:8000/v1/restore -F image=@photo.jpg -F spec='{"operator": {"type": "denoise"}}' \
         -F webhook='{"url": "http://127.0.0.1:9000/", "events": ["job.started", "job.completed"]}'

https://www.standardwebhooks.com lists verification libraries for other languages.
"""

from __future__ import annotations

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

MAX_BYTES = 100_000


def serve(secret: str, port: int) -> None:
    webhook = Webhook(secret)
    seen: set[str] = set()  # in production: a database table, kept for some days

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(min(int(self.headers.get("Content-Length", 0)), MAX_BYTES))
            try:
                message = webhook.verify(body, dict(self.headers.items()))
            except WebhookVerificationError as error:
                self.send_error(400, str(error))
                return
            if self.headers["webhook-id"] not in seen:  # messages may be delivered more than once
                seen.add(self.headers["webhook-id"])
                job = message["data"]
                print(
                    message["type"],
                    job["id"],
                    job["state"],
                    *(artifact["url"] for artifact in job["artifacts"]),
                    flush=True,
                )
            # respond quickly; put slow work into a queue
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", port), Receiver).serve_forever()


if __name__ == "__main__":
    serve(os.environ["WEBHOOK_SECRET"], int(sys.argv[1]) if len(sys.argv) > 1 else 9000)
