"""Development server: like ``aps serve --embedded``, but the API restarts when a file changes.

The worker does not restart, because loading its prior takes seconds.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sys

from service.launch.embedded_server import running_server
from service.launch.processes import api_command, worker_command
from service.launch.supervisor import process
from service.settings import Settings


def main(port: int) -> None:
    """Serves on ``port`` of the loopback interface until interrupted."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    settings = Settings()
    reload = [
        "--reload",
        *(word for folder in ("aps_core", "service") for word in ("--reload-dir", folder)),
    ]
    with running_server(settings) as url:
        settings = settings.model_copy(update={"redis_url": url})
        with (
            process("worker", worker_command(settings), settings),
            process("API", [*api_command("127.0.0.1", port), *reload], settings) as api,
        ):
            logging.info("Studio: http://127.0.0.1:%d   (Ctrl-C stops)", port)
            api.wait()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stop the children on SIGTERM too
    with contextlib.suppress(KeyboardInterrupt):
        main(int(sys.argv[1]))
